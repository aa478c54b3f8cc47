// Sampling on the device against float64: the kept sets and the drawn tokens are exactly those of the reference, whose whole rows are sorted.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import {
  createKernels,
  SAMPLING_HISTORY_WORDS,
  SAMPLING_SETTINGS_WORDS,
  SAMPLING_STATE,
  SAMPLING_STATE_WORDS,
  samplingHistory,
  samplingSettings,
  samplingState,
} from '../../kernels/index.mjs';
import { Random } from '../../packages/lm/src/random.mjs';
import { vk } from '../lib/addon.mjs';
import { Case } from '../lib/kernel-check.mjs';
import { drawn, kept, logProbability } from '../lib/sampling.mjs';

/** @typedef {import('../../kernels/sampling.mjs').SamplingOptions} SamplingOptions */
/**
 * @typedef {object} Row
 * @property {ArrayLike<number>} logits those of the whole row
 * @property {SamplingOptions} [options]
 * @property {number[]} [history] the sequence's tokens
 * @property {number} [step]
 * @property {number} [draws]
 * @property {number} [active]
 */

const kernels = createKernels(vk);
after(() => vk.destroy());

const NONE = 0xffffffff;
const RING = 3;

/**
 * Samples once from each row, of equal lengths.
 * @param {Row[]} rows @param {{ guard?: number, padding?: number }} [layout] padding: elements between rows
 */
function sample(rows, { guard = 8, padding = 0 } = {}) {
  const vocabulary = rows[0].logits.length;
  const stride = vocabulary + padding;
  const logits = new Float32Array((rows.length - 1) * stride + vocabulary).fill(1e30);
  const settings = new Uint32Array(rows.length * SAMPLING_SETTINGS_WORDS);
  const history = new Uint32Array(rows.length * SAMPLING_HISTORY_WORDS);
  const state = new Uint32Array(rows.length * SAMPLING_STATE_WORDS);
  rows.forEach(({ logits: values, options, history: tokens = [], step = 0, draws = 0 }, r) => {
    logits.set(values, r * stride);
    settings.set(samplingSettings(options), r * SAMPLING_SETTINGS_WORDS);
    history.set(samplingHistory(tokens), r * SAMPLING_HISTORY_WORDS);
    state.set(samplingState({ step, draws, tokens: tokens.length }), r * SAMPLING_STATE_WORDS);
  });
  const c = new Case({ guard });
  const tensors = {
    logits: c.inout(logits),
    settings: c.input(settings, 'u32'),
    history: c.inout(history, 'u32'),
    state: c.inout(state, 'u32'),
    ids: c.inout(new Uint32Array(rows.length).fill(7777), 'u32'),
    places: c.inout(
      Uint32Array.from(rows, (_, r) => 10 * r),
      'u32',
    ),
    ring: c.inout(new Uint32Array(2 * RING * rows.length).fill(5), 'u32'),
    ...(rows.some(({ active }) => active !== undefined) && {
      active: c.input(
        rows.map(({ active = 1 }) => active),
        'u32',
      ),
    }),
  };
  const buffers = Object.fromEntries(Object.entries(tensors).map(([name, { tensor }]) => [name, tensor]));
  c.run(kernels.sampleTokens({ .../** @type {any} */ (buffers), rows: rows.length, vocabulary, stride, ringLength: RING }));
  assert.deepEqual(tensors.logits.read(), Float64Array.from(logits), 'the logits are restored');
  const after = Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, tensor.read()]));
  c.destroy();
  const float = new Float32Array(1);
  const bits = new Uint32Array(float.buffer);
  return rows.map(({ step = 0, history: tokens = [] }, r) => {
    const words = after.state.slice(r * SAMPLING_STATE_WORDS, (r + 1) * SAMPLING_STATE_WORDS);
    const at = 2 * ((step % RING) * rows.length + r);
    bits[0] = after.ring[at + 1];
    return {
      token: after.ring[at],
      logprob: float[0],
      id: after.ids[r],
      advanced: after.places[r] - 10 * r,
      appended: after.history[r * SAMPLING_HISTORY_WORDS + (tokens.length % SAMPLING_HISTORY_WORDS)],
      step: words[SAMPLING_STATE.step],
      draws: words[SAMPLING_STATE.draws],
      tokens: words[SAMPLING_STATE.tokens],
      kept: words[SAMPLING_STATE.kept],
    };
  });
}

/** Samples from the rows and compares everything with the reference. @param {Row[]} rows @param {Parameters<typeof sample>[1]} [layout] */
function check(rows, layout) {
  const results = sample(rows, layout);
  rows.forEach(({ logits, options = {}, history = [], step = 0, draws = 0 }, r) => {
    const result = results[r];
    const candidates = Float32Array.from(logits).subarray(0, options.vocabulary);
    const left = kept(candidates, history, options);
    const what = `row ${r} of ${candidates.length}, ${JSON.stringify(options, (_, v) => (typeof v === 'bigint' ? String(v) : v))}`;
    assert.equal(result.kept, left.ids.length, `${what}: kept`);
    const token = drawn(left, BigInt(options.seed ?? 0), draws);
    assert.equal(result.token, token, `${what}: token`);
    const expected = logProbability(candidates, token);
    const near = Math.abs(result.logprob - expected) <= 1e-5 * Math.max(1, Math.abs(expected) / 16);
    assert.ok(near || (Number.isNaN(expected) && Number.isNaN(result.logprob)), `${what}: logprob ${result.logprob}, not ${expected}`);
    const { id, advanced, appended } = result;
    assert.deepEqual({ id, advanced, appended }, { id: token, advanced: 1, appended: token }, what);
    const counters = { step: result.step, draws: result.draws, tokens: result.tokens };
    assert.deepEqual(counters, { step: step + 1, draws: draws + 1, tokens: history.length + 1 }, what);
  });
  return results;
}

/** Kinds of rows. @type {Record<string, (random: Random, n: number) => Float32Array>} */
const ROWS = {
  model: (random, n) => Float32Array.from({ length: n }, () => 3 * random.normal()),
  peaked: (random, n) => Float32Array.from({ length: n }, () => 12 * random.normal()),
  flat: (random, n) => Float32Array.from({ length: n }, () => 5 + 1e-4 * random.normal()),
  equal: (_, n) => new Float32Array(n).fill(-1.5),
  tied: (random, n) => Float32Array.from({ length: n }, () => Math.round(2 * random.normal())),
  // The precision of bf16.
  rounded: (random, n) => {
    const row = ROWS.model(random, n);
    const bits = new Uint32Array(row.buffer);
    for (let i = 0; i < n; i++) bits[i] &= 0xffff0000;
    return row;
  },
  masked: (random, n) => ROWS.model(random, n).map((v) => (random.uniform() < 0.7 ? -Infinity : v)),
  broken: (random, n) => ROWS.tied(random, n).map((v) => [v, v, Number.NaN, -Infinity, -0, 0, 1e-40][Math.floor(7 * random.uniform())]),
  huge: (random, n) => Float32Array.from({ length: n }, () => 1e30 * random.normal()),
  tiny: (random, n) => Float32Array.from({ length: n }, () => 1e-6 * random.normal()),
};

/** @param {Random} random @param {readonly any[]} values */
const pick = (random, values) => values[Math.floor(values.length * random.uniform())];

/** @param {Random} random @param {number} vocabulary @returns {SamplingOptions} */
function randomOptions(random, vocabulary) {
  const penalties = {
    repetitionPenalty: pick(random, [1, 1.1, 2, 0.8]),
    presencePenalty: pick(random, [0, 0.5, -1]),
    frequencyPenalty: pick(random, [0, 0.25, -0.1]),
    repeatLastN: pick(random, [0, 1, 64, 1000, 1024]),
  };
  return {
    temperature: pick(random, [0, 0.01, 0.5, 0.8, 1, 1, 1.5, 30]),
    topK: pick(random, [0, 0, 1, 2, 40, 200, 700, Math.ceil(vocabulary * random.uniform()), vocabulary]),
    topP: pick(random, [1, 1, 0, 0.1, 0.5, 0.9, 0.95, 0.999, 0.1 + 0.9 * random.uniform()]),
    minP: pick(random, [0, 0, 0.01, 0.05, 0.5, 1]),
    seed: BigInt(Math.floor(2 ** 32 * random.uniform())) << BigInt(Math.floor(32 * random.uniform())),
    ...(random.uniform() < 0.5 && penalties),
    ...(random.uniform() < 0.2 && { vocabulary: Math.ceil(vocabulary * random.uniform()) }),
  };
}

/** @param {Random} random @param {number} vocabulary @param {number} count @param {(keyof typeof ROWS)[]} [kinds] @returns {Row[]} */
function randomRows(random, vocabulary, count, kinds = Object.keys(ROWS)) {
  return Array.from({ length: count }, (_, i) => {
    const options = randomOptions(random, vocabulary);
    const used = Math.min(vocabulary, options.vocabulary ?? vocabulary);
    return {
      logits: ROWS[kinds[i % kinds.length]](random, vocabulary),
      options,
      history: Array.from({ length: Math.floor(random.uniform() ** 3 * 1500) }, () => Math.floor(used * random.uniform() ** 2)),
      step: Math.floor(10 * random.uniform()),
      draws: Math.floor(2 ** 32 * random.uniform() ** 4),
    };
  });
}

const SIZES = /** @type {const} */ ([
  [1, 100],
  [2, 300],
  [31, 1000],
  [257, 800],
  [512, 200],
  [5000, 200],
  [50_304, 20],
  [151_936, 4],
]);
for (const [vocabulary, count] of SIZES) {
  test(`${count} random rows of ${vocabulary}: kept, drawn and logged as float64 has it`, () => {
    const random = new Random(42, vocabulary);
    for (let done = 0; done < count; done += 100) {
      const layout = { guard: pick(random, [8, 3]), padding: pick(random, [0, 4, 5]) };
      check(randomRows(random, vocabulary, Math.min(100, count - done)), layout);
    }
  });
}

test('a row that is not active only advances its step, and the others draw as without it', () => {
  const random = new Random(7);
  for (const vocabulary of [33, 64]) {
    const rows = randomRows(random, vocabulary, 6, ['model']).map((row, i) => ({ ...row, active: i % 3 }));
    const all = sample(rows);
    const alone = sample(rows.filter(({ active }) => active).map((row) => ({ ...row, active: 1 })));
    const idle = rows.filter(({ active }) => !active);
    assert.deepEqual(
      all.filter((_, r) => rows[r].active),
      alone,
    );
    all
      .filter((_, r) => !rows[r].active)
      .forEach((result, i) => {
        const { step = 0, draws = 0, history = [] } = idle[i];
        const { appended: _, ...rest } = result;
        assert.deepEqual(rest, {
          ...{ token: NONE, logprob: 0, id: 7777, advanced: 0, step: step + 1, draws, tokens: history.length, kept: 0 },
        });
      });
  }
});
