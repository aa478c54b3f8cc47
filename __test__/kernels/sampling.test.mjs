// Sampling on the device against float64: the kept sets and the drawn tokens are exactly those of the reference, whose whole rows are sorted.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import {
  createKernels,
  pack,
  SAMPLING_HISTORY_WORDS,
  SAMPLING_SETTINGS_WORDS,
  SAMPLING_STATE,
  SAMPLING_STATE_WORDS,
  samplingHistory,
  samplingSettings,
  samplingState,
} from '../../kernels/index.mjs';
import { Random } from '../../packages/lm/src/random.mjs';
import { scaled, vk } from '../lib/addon.mjs';
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
for (const [vocabulary, most] of SIZES) {
  const count = most < 100 ? most : scaled(most);
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

test('a row without a candidate gives token 0, and +∞ wins', () => {
  for (const vocabulary of [3, 8, 1000]) {
    const blank = new Float32Array(vocabulary).fill(Number.NaN);
    const masked = new Float32Array(vocabulary).fill(-Infinity);
    const infinite = blank.slice();
    infinite[2] = Infinity;
    infinite[1] = 3e38;
    /** @type {SamplingOptions[]} */
    const settings = [{ temperature: 0 }, { temperature: 0.5 }, { topK: 2, topP: 0.5, minP: 0.1, presencePenalty: 1 }];
    for (const options of settings) {
      const history = [0, 1, 2];
      const results = sample([blank, masked, infinite].map((logits) => ({ logits, options, history })));
      assert.deepEqual(
        results.map(({ token, kept }) => [token, kept]),
        [
          [0, 0],
          [0, 0],
          [2, options.temperature === 0 ? 1 : results[2].kept],
        ],
      );
      for (const { logprob } of results) assert.ok(Number.isNaN(logprob));
    }
  }
});

test('the descents that a list of 512 saves: of long plateaus, and of more than it holds', () => {
  const n = 6000;
  const random = new Random(5);
  const plateau = Float32Array.from({ length: n }, (_, id) => (id % 10 === 0 ? 2 : -1));
  const steps = Float32Array.from({ length: n }, (_, id) => Math.floor(id / 1500));
  const close = Float32Array.from({ length: n }, () => 1 + 1e-5 * random.uniform());
  const signs = Float32Array.from({ length: n }, () => 1e-3 * random.normal());
  /** @type {SamplingOptions[]} */
  const settings = [{ topK: 300 }, { topK: 599 }, { topK: 600 }, { topK: 601 }, { topK: 4499 }, { topP: 0.3 }, { topP: 0.9999 }];
  settings.push({ topK: 5000, topP: 0.7 }, { topK: 5000, topP: 0.7, minP: 0.9 }, { minP: 0.04 }, { minP: 0.06, topP: 0.99 }, {});
  const rows = [plateau, steps, close, signs].flatMap((logits) =>
    settings.map((options, i) => ({ logits, options: { ...options, seed: 1000 + i }, draws: i })),
  );
  check(rows);
  check(rows.map((row) => ({ ...row, logits: /** @type {Float32Array} */ (row.logits).subarray(1) })));
});

test('probabilities are those of float64 to 2 · 10^-11', () => {
  const random = new Random(29);
  const rows = Array.from({ length: 300 }, (_, i) => {
    const logits = Float32Array.of(4 * random.normal(), 0);
    const temperature = pick(random, [0.1, 0.7, 1, 3]);
    logits[1] = logits[0] - temperature * 3 * random.uniform();
    const first = 1 / (1 + Math.exp((logits[1] - logits[0]) / temperature));
    // Top-p keeps the second token where the first is not enough.
    return { logits, options: { temperature, topP: first * (1 + (i % 2 ? 2e-11 : -2e-11)) } };
  });
  const results = sample(rows);
  assert.deepEqual(
    results.map((result) => result.kept),
    rows.map((_, i) => 1 + (i % 2)),
  );
});

test('a sequence draws the same tokens in every slot, among any others', () => {
  const random = new Random(11);
  const [mine, ...others] = randomRows(random, 300, 9, ['model']);
  mine.options = { ...mine.options, temperature: 1, topK: 0, topP: 1, minP: 0, vocabulary: 300 };
  const [alone] = sample([mine]);
  for (let slot = 0; slot < 8; slot++) {
    const rows = others.toSpliced(slot, 0, mine);
    assert.deepEqual(sample(rows, { padding: slot })[slot], alone, `slot ${slot}`);
  }
});

/**
 * Whether counts are those of probabilities: Pearson's χ² of the bins that expect at least 5, the others together, within 4 deviations.
 * @param {Map<number, number>} counts @param {Map<number, number>} probabilities @param {number} n
 */
function assertDistribution(counts, probabilities, n) {
  for (const token of counts.keys()) assert.ok(probabilities.has(token), `${token} was to be left out`);
  let [chi, bins, rest, restExpected] = [0, 0, 0, 0];
  for (const [token, p] of probabilities) {
    const [seen, expected] = [counts.get(token) ?? 0, p * n];
    if (expected < 5) {
      rest += seen;
      restExpected += expected;
    } else {
      chi += (seen - expected) ** 2 / expected;
      bins++;
    }
  }
  if (restExpected > 0) {
    chi += (rest - restExpected) ** 2 / restExpected;
    bins++;
  }
  const freedom = bins - 1;
  assert.ok(Math.abs(chi - freedom) <= 4 * Math.sqrt(2 * freedom), `χ² = ${chi} with ${freedom} degrees of freedom`);
}

test('draws have the distribution of the filtered softmax', () => {
  const random = new Random(3);
  const logits = ROWS.model(random, 60);
  const history = [1, 2, 2, 3, 3, 3, 59];
  /** @type {SamplingOptions[]} */
  const settings = [
    {},
    { temperature: 0.7, topK: 20, topP: 0.95, minP: 0.02 },
    { temperature: 2, repetitionPenalty: 1.3, frequencyPenalty: 0.4, presencePenalty: 0.2 },
  ];
  const draws = 1000;
  settings.forEach((options, i) => {
    const left = kept(logits, history, options);
    const total = left.sums[left.sums.length - 1];
    const expected = new Map(Array.from(left.ids, (id, rank) => [id, (left.sums[rank] - (left.sums[rank - 1] ?? 0)) / total]));
    /** @type {Map<number, number>} */
    const counts = new Map();
    for (let from = 0; from < draws; from += 500) {
      // The draws of one sequence, or the first draws of many seeds.
      const rows = Array.from({ length: 500 }, (_, r) => ({
        ...{ logits, history, options: { ...options, seed: i === 2 ? from + r : 99n << 32n } },
        draws: i === 2 ? 0 : from + r,
      }));
      for (const { token } of sample(rows)) counts.set(token, (counts.get(token) ?? 0) + 1);
    }
    assertDistribution(counts, expected, draws);
  });
});

test('a recorded dispatch draws the tokens of a sequence one by one, with nothing pushed', () => {
  const random = new Random(17);
  const [rows, vocabulary, steps] = [3, 100, 200];
  const rowsOf = randomRows(random, vocabulary, rows, ['model']);
  const options = rowsOf.map((_, r) => ({ seed: r, repetitionPenalty: 1.2, repeatLastN: 1024, topK: r * 20, frequencyPenalty: 0.05 }));
  const prompts = [[], [1, 2, 3], Array.from({ length: 2000 }, (_, i) => i % vocabulary)];
  /** @param {Float32Array | Uint32Array} data */
  const upload = (data) => {
    const buffer = vk.createBuffer(data.byteLength, 0);
    vk.uploadBuffer(buffer, data);
    return buffer;
  };
  /** @param {Uint32Array[]} parts */
  const joined = (parts) => Uint32Array.from(parts.flatMap((part) => [...part]));
  const buffers = {
    logits: upload(Float32Array.from(rowsOf.flatMap(({ logits }) => Array.from(logits)))),
    settings: upload(joined(options.map(samplingSettings))),
    history: upload(joined(prompts.map(samplingHistory))),
    state: upload(joined(prompts.map((tokens) => samplingState({ tokens: tokens.length })))),
    ids: upload(new Uint32Array(rows)),
    places: upload(new Uint32Array(rows)),
    ring: upload(new Uint32Array(2 * rows * steps)),
  };
  const { packed, count } = pack(kernels.sampleTokens({ ...buffers, rows, vocabulary, ringLength: steps }));
  vk.graphBegin();
  vk.batchExecuteAll(packed, count);
  const graph = vk.graphEnd();
  for (let step = 0; step < steps; step++) vk.graphLaunch(graph);
  const floats = vk.readBuffer(buffers.ring);
  const ring = new Uint32Array(floats.buffer, floats.byteOffset, floats.length);
  rowsOf.forEach(({ logits }, r) => {
    const history = [...prompts[r]];
    for (let step = 0; step < steps; step++) {
      history.push(ring[2 * (step * rows + r)]);
      // All steps against the reference would take seconds.
      if (step % 10 !== 0 && step < steps - 5) continue;
      assert.equal(history.at(-1), drawn(kept(logits, history.slice(0, -1), options[r]), BigInt(r), step), `row ${r}, step ${step}`);
    }
  });
  vk.graphDestroy(graph);
  for (const buffer of Object.values(buffers)) vk.destroyBuffer(buffer);
});

test('the most likely tokens of a row, and their log probabilities', () => {
  const random = new Random(23);
  for (const vocabulary of [1, 30, 600, 5000]) {
    for (const wanted of [1, 20, 64]) {
      const rows = Object.values(ROWS).map((make) => make(random, vocabulary));
      const stride = vocabulary + wanted;
      const logits = new Float32Array((rows.length - 1) * stride + vocabulary).fill(1e30);
      rows.forEach((row, r) => logits.set(row, r * stride));
      const c = new Case({ guard: wanted === 20 ? 5 : 8 });
      const [x, ids, logprobs] = [c.input(logits), c.output(rows.length * wanted, 'u32'), c.output(rows.length * wanted)];
      const tensors = { logits: x.tensor, ids: ids.tensor, logprobs: logprobs.tensor };
      c.run(kernels.topLogprobs({ ...tensors, rows: rows.length, vocabulary, stride, count: wanted }));
      const [tokens, values] = [ids.read(), logprobs.read()];
      c.destroy();
      rows.forEach((row, r) => {
        const order = kept(row, [], {}).ids.subarray(0, wanted);
        const expected = new Float64Array(wanted).fill(NONE);
        expected.set(order);
        assert.deepEqual(tokens.slice(r * wanted, (r + 1) * wanted), expected, `row ${r} of ${vocabulary}`);
        for (let i = 0; i < wanted; i++) {
          const right = i < order.length ? logProbability(row, order[i]) : -Infinity;
          const got = values[r * wanted + i];
          assert.ok(got === right || Math.abs(got - right) <= 1e-5 * Math.max(1, Math.abs(right) / 16), `${got}, not ${right}`);
        }
      });
    }
  }
});

test('settings that are out of range, and what a call must have', () => {
  /** @type {[any, RegExp][]} */
  const wrong = [
    [{ temperature: -1 }, /samplingSettings: temperature must be in \[0.000001, 1000000\], got -1/],
    [{ temperature: Number.NaN }, /temperature must be in .* got NaN/],
    [{ temperature: '1' }, /temperature must be a number, got 1/],
    [{ topK: 1.5 }, /topK must be an integer, got 1.5/],
    [{ topP: 1.01 }, /topP must be in \[0, 1\], got 1.01/],
    [{ minP: -0.1 }, /minP must be in \[0, 1\], got -0.1/],
    [{ repetitionPenalty: 0 }, /repetitionPenalty must be in .* got 0/],
    [{ repeatLastN: 1025 }, /repeatLastN must be in \[0, 1024\], got 1025/],
    [{ vocabulary: 0 }, /vocabulary must be in .* got 0/],
    [{ seed: 0.5 }, /seed must be an integer, got 0.5/],
    [{ seed: -1 }, /seed must be in \[0, 2\^64\), got -1/],
    [{ seed: 2n ** 64n }, /seed must be in \[0, 2\^64\), got 18446744073709551616/],
  ];
  for (const [options, message] of wrong) assert.throws(() => samplingSettings(options), message);
  const call = { logits: 0, settings: 0, history: 0, state: 0, ids: 0, places: 0, ring: 0, rows: 1, vocabulary: 8, ringLength: 1 };
  assert.throws(() => kernels.sampleTokens({ ...call, vocabulary: 2 ** 19 + 1 }), /vocabulary must be in \[1, 524288\], got 524289/);
  assert.throws(() => kernels.sampleTokens({ ...call, stride: 7 }), /stride must be in \[8, /);
  assert.throws(() => kernels.sampleTokens({ ...call, ringLength: 0 }), /ringLength must be in \[1, /);
});
