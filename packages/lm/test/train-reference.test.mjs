// The float64 reference against finite differences, and the parts of the trainer that need no device: presets, settings, schedules, shares.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { filled, randomTokens, randomWeights, toFloat64, windowsOf } from '../../../__test__/lib/gpt.mjs';
import { forwardBackward } from '../../../__test__/lib/gpt-reference.mjs';
import { parameterCount, parameterShapes } from '../src/model/parts.mjs';
import { Random } from '../src/random.mjs';
import { profileTable } from '../src/train/profile.mjs';
import { agree, attemptOf, deviceOfRank, openRanks, shareOf } from '../src/train/ranks.mjs';
import { recentRate, stepRates } from '../src/train/run.mjs';
import {
  PRESETS,
  PRESET_NAMES,
  checkRun,
  configOf,
  flopsPerToken,
  learningRateAt,
  modelOf,
  presetOf,
  tokensPerStep,
} from '../src/train/settings.mjs';

/** @param {Partial<import('../src/train/settings.mjs').Settings & import('../src/train/settings.mjs').Sizes>} [values] */
const tiny = (values) =>
  configOf('gpt-tiny', {
    ...{ layers: 2, width: 64, heads: 2, hidden: 20, blockSize: 7, vocabSize: 23, batchSize: 2, maxSteps: 30 },
    ...values,
  });
const { model } = checkRun(tiny());
/** Tokens of a micro-step. */
const M = 14;

test('the reference gradient is that of finite differences, for every parameter', () => {
  const weights = toFloat64(randomWeights(model, 3, 0.16));
  const random = new Random(9);
  const [ids, targets] = [1, 2].map((seed) => randomTokens(M, model.vocabSize, seed));
  const gradient = toFloat64(filled(model));
  forwardBackward(model, weights, ids, targets, gradient);
  assert.deepEqual(Object.keys(gradient), Object.keys(parameterShapes(model)));
  for (const [name, values] of Object.entries(weights)) {
    const size = values.length;
    // Along a random direction: central difference of the loss against the inner product with the gradient.
    const direction = Float64Array.from({ length: size }, () => random.normal());
    const h = 1e-5;
    /** @param {number} t */
    const lossAt = (t) => {
      const moved = { ...weights, [name]: values.map((w, i) => w + t * direction[i]) };
      return forwardBackward(model, moved, ids, targets).loss;
    };
    const difference = (lossAt(h) - lossAt(-h)) / (2 * h);
    let inner = 0;
    for (let i = 0; i < size; i++) inner += direction[i] * gradient[name][i];
    assert.ok(Math.abs(inner) > 1e-6, `${name}: the direction is flat (${inner})`);
    assert.ok(
      Math.abs(difference - inner) <= 1e-6 * Math.max(1, Math.abs(inner)),
      `${name}: ${difference} by differences, ${inner} by the gradient`,
    );
  }
});

test('gradients of the reference add up over micro-steps', () => {
  const weights = toFloat64(randomWeights(model, 3));
  const [a, b, c, d] = [1, 2, 3, 4].map((seed) => randomTokens(M, model.vocabSize, seed));
  const sum = toFloat64(filled(model));
  forwardBackward(model, weights, a, b, sum, 0.5);
  forwardBackward(model, weights, c, d, sum, 0.5);
  const whole = toFloat64(filled(model));
  forwardBackward(model, weights, Uint32Array.of(...a, ...c), Uint32Array.of(...b, ...d), whole);
  for (const name of Object.keys(sum)) sum[name].forEach((x, i) => assert.ok(Math.abs(x - whole[name][i]) < 1e-12, name));
});

test('the presets have as many parameters as their names say, and their earlier names still work', () => {
  const counts = Object.fromEntries(Object.keys(PRESETS).map((name) => [name, parameterCount(checkRun(configOf(name)).model)]));
  assert.deepEqual(counts, {
    'llama-tiny': 172_352,
    'llama-30m': 27_402_752,
    'llama-1.1b': 1_107_363_840,
    'llama-7b': 6_738_415_616,
    'gpt2-124m': 124_475_904,
    'gpt-tiny': 143_680,
    'gpt-30m': 29_630_976,
    'gpt-300m': 301_837_312,
  });
  assert.equal(presetOf('tiny'), PRESETS['gpt-tiny']);
  assert.equal(presetOf('small'), PRESETS['gpt-30m']);
  assert.equal(presetOf('mission'), PRESETS['gpt-300m']);
  assert.equal(presetOf('llama-1.2b'), PRESETS['llama-1.1b']);
  for (const [name, preset] of Object.entries(PRESETS)) assert.equal(presetOf(name), preset);
  assert.deepEqual(PRESET_NAMES, [...Object.keys(PRESETS), 'tiny', 'small', 'mission', 'llama-1.2b']);
});

test('values replace those of a preset, and each other value stays', () => {
  const before = configOf('gpt-tiny');
  const { model: changed, settings } = configOf('gpt-tiny', { layers: 3, blockSize: 32, learningRate: 1, tied: true, seed: undefined });
  assert.deepEqual(
    [changed.layers, changed.context, changed.tied, settings.blockSize, settings.learningRate, settings.seed],
    [3, 32, true, 32, 1, 1],
  );
  assert.deepEqual(settings, { ...before.settings, blockSize: 32, learningRate: 1 });
  assert.deepEqual(configOf('gpt-tiny'), before, 'the preset is as it was');
  assert.equal(tokensPerStep(configOf('gpt-300m').settings), 2048);
  const grouped = configOf('llama-30m').model;
  assert.deepEqual([grouped.heads, grouped.kvHeads], [8, 4]);
});

test('operations of a token are those of its products, forward once and backward twice', () => {
  const { model: small } = tiny({ layers: 3, width: 64, heads: 2, kvHeads: 1, hidden: 20, vocabSize: 23 });
  const matrices = Object.entries(parameterShapes(small)).filter(
    ([name, shape]) => shape.length === 2 && !/^(embedding|positions)/.test(name),
  );
  const products = matrices.reduce((sum, [, [n, k]]) => sum + 6 * n * k, 0);
  // Queries with keys, and probabilities with values, of half of the pairs: 2 · 2 · 3 / 2 · width a token and key.
  assert.equal(flopsPerToken(small, 7), products + 3 * 6 * 64 * 7);
});

test('bad configurations name what is wrong', () => {
  const bad =
    /** @type {[Partial<import('../src/train/settings.mjs').Settings & import('../src/train/settings.mjs').Sizes>, RegExp][]} */ ([
      [{ layers: 0 }, /^layers must be an integer from 1 to 4096, got 0$/],
      [{ heads: 3 }, /^width 64 is not a multiple of heads 3$/],
      [{ heads: 4, kvHeads: 3 }, /^heads 4 is not a multiple of kvHeads 3$/],
      [{ hidden: 6 }, /^hidden must be a multiple of 4, got 6$/],
      [{ beta2: 1 }, /^beta2 must be in \(0, 1\), got 1$/],
      [{ beta1: 0 }, /^beta1/],
      [{ beta2: /** @type {any} */ ('0.9') }, /^beta2/],
      [{ learningRate: NaN }, /^learningRate .* NaN$/],
      [{ weightDecay: -1 }, /^weightDecay must be a number of at least 0, got -1$/],
      [{ maxGradNorm: Infinity }, /^maxGradNorm/],
      [{ precision: /** @type {any} */ ('f8') }, /^precision must be f32, f16, bf16, bf16x3, got f8$/],
      [{ precision: 'bf16' }, /^vocabSize and hidden must be even in bf16, got 23 and 20$/],
      [{ lrScheduler: /** @type {any} */ ('step') }, /^lrScheduler must be cosine, linear, constant, wsd, got step$/],
      [{ seed: -1 }, /^seed must be an integer from 0 to 2\^32 - 1, got -1$/],
      [{ warmupSteps: 30 }, /^warmupSteps 30 must be less than maxSteps 30$/],
      [{ minLr: 1 }, /^minLr 1 must be at most learningRate, 0\.003$/],
    ]);
  for (const [change, message] of bad) {
    assert.throws(() => checkRun(tiny(change)), { name: 'RangeError', message });
  }
  const long = tiny();
  long.settings.blockSize = 8;
  assert.throws(() => checkRun(long), { message: "blockSize 8 is more than the model's context, 7" });
});

test('sizes are checked before anything is made by them', () => {
  for (const [key, value] of Object.entries({
    ...{ layers: 1e9, width: 2 ** 40, heads: 2 ** 40, hidden: 2 ** 40, vocabSize: 1e12, blockSize: NaN },
    ...{ batchSize: 1e10, gradientAccumulationSteps: 0.5, maxSteps: 2 ** 40 },
  })) {
    assert.throws(() => checkRun(tiny({ [key]: value })), new RegExp(`^RangeError: ${key} must be an integer from 1 to`));
  }
  assert.throws(() => checkRun(tiny({ batchSize: 2 ** 20, gradientAccumulationSteps: 2 ** 20 })), /tokens: at most 268435456/);
  for (const family of /** @type {const} */ (['helios-gpt', 'llama', 'gpt2'])) {
    const made = modelOf(family, { layers: 2, width: 64, heads: 2, hidden: 20, blockSize: 7, vocabSize: 23 });
    assert.deepEqual([made.family, made.layers, made.headSize, made.context, made.tied], [family, 2, 32, 7, false]);
  }
});

test('the learning rate warms up linearly and ends at its floor, in the way of its schedule', () => {
  const settings = { learningRate: 1e-2, minLr: 1e-3, warmupSteps: 10, maxSteps: 110 };
  /** @type {Record<string, Record<number, number>>} by schedule and step */
  const expected = {
    cosine: { 34: 1e-3 + 9e-3 * 0.5 * (1 + Math.SQRT1_2), 59: 5.5e-3, 109: 1e-3, 1000: 1e-3 },
    linear: { 34: 7.75e-3, 59: 5.5e-3, 84: 3.25e-3, 109: 1e-3, 1000: 1e-3 },
    constant: { 34: 1e-2, 109: 1e-2, 1000: 1e-2 },
    // The last fifth of 110 steps is 22.
    wsd: { 34: 1e-2, 87: 1e-2, 98: 5.5e-3, 109: 1e-3, 1000: 1e-3 },
  };
  for (const [lrScheduler, rates] of Object.entries(expected)) {
    for (const [step, rate] of Object.entries({ 0: 1e-3, 4: 5e-3, 9: 1e-2, ...rates })) {
      const found = learningRateAt({ ...settings, lrScheduler: /** @type {any} */ (lrScheduler) }, Number(step));
      assert.ok(Math.abs(found - rate) < 1e-15, `${lrScheduler}, step ${step}: ${found}, ${rate} expected`);
    }
  }
  // A warm-up that ends within the last fifth leaves the rest to fall in.
  const late = { ...settings, warmupSteps: 100, lrScheduler: /** @type {const} */ ('wsd') };
  assert.deepEqual(
    [99, 104, 109].map((step) => learningRateAt(late, step).toFixed(6)),
    ['0.010000', '0.005500', '0.001000'],
  );
  assert.equal(learningRateAt({ ...settings, warmupSteps: 0, maxSteps: 1, lrScheduler: 'linear' }, 0), 1e-3);
});

test('random numbers: one seed one stream, moments of the normal deviates', () => {
  const a = new Random(1, 2);
  const b = new Random(1, 2);
  const c = new Random(1, 3);
  const draws = Array.from({ length: 100 }, () => a.int32());
  assert.deepEqual(
    draws,
    Array.from({ length: 100 }, () => b.int32()),
  );
  assert.notDeepEqual(
    draws,
    Array.from({ length: 100 }, () => c.int32()),
  );
  const n = 1e6;
  let [sum, square, fourth] = [0, 0, 0];
  for (let i = 0; i < n; i++) {
    const x = c.normal();
    sum += x;
    square += x * x;
    fourth += x ** 4;
  }
  assert.ok(Math.abs(sum / n) < 5e-3);
  assert.ok(Math.abs(square / n - 1) < 8e-3);
  assert.ok(Math.abs(fourth / n - 3) < 6e-2);
});

test('the shares of all processes are the sequences of a step, in order, however many there are', () => {
  const whole = { batchSize: 6, gradientAccumulationSteps: 4 };
  const data = windowsOf(
    Uint32Array.from({ length: 300 }, (_, i) => i),
    5,
  );
  for (const step of [0, 7]) {
    const all = [...data.batch({ seed: 3, step, batch: 24 })];
    for (const size of [1, 2, 3, 4, 6, 8, 12, 24]) {
      const share = shareOf(whole, size);
      const batch = share.batchSize * share.gradientAccumulationSteps;
      assert.equal(batch * size, 24);
      assert.ok(share.batchSize <= whole.batchSize);
      const parts = Array.from({ length: size }, (_, rank) => [...data.batch({ seed: 3, step, batch, rank, world: size })]);
      assert.deepEqual(parts.flat(), all, `${size} processes, step ${step}`);
    }
  }
  const shares = /** @type {[number, number, number, number, number][]} */ ([
    [8, 4, 4, 8, 1],
    [8, 1, 4, 2, 1],
    [6, 3, 2, 3, 3],
  ]);
  for (const [batchSize, gradientAccumulationSteps, size, rows, micro] of shares) {
    assert.deepEqual(shareOf({ batchSize, gradientAccumulationSteps }, size), { batchSize: rows, gradientAccumulationSteps: micro });
  }
  assert.throws(() => shareOf(whole, 5), /a step of 24 sequences \(batch size 6, 4 micro-steps\) cannot be divided equally by 5 processes/);
});

test('each process of a host has a device of the kind that is taken anyway', () => {
  const device = (/** @type {number} */ index, deviceType = 2, usable = true) => ({ index, deviceType, usable, chosen: index === 1 });
  // A software device first, and one that cannot be used.
  const devices = [device(0, 4), device(1), device(2, 2, false), device(3), device(4)];
  const taken = (/** @type {number} */ localRank) => deviceOfRank(devices, localRank, {});
  assert.deepEqual([0, 1, 2, 3].map(taken), [1, 3, 4, 1]);
  assert.equal(deviceOfRank(devices, 1, { HELIOS_DEVICE: '0' }), undefined, 'what the user says stays');
  assert.equal(deviceOfRank([], 1, {}), undefined);
});

test('what processes do not have in common is named, with both values', async () => {
  const group = (/** @type {unknown[]} */ ...all) => /** @type {any} */ ({ exchange: async () => all });
  await agree(group({ lr: 1, steps: 2 }, { lr: 1, steps: 2 }), {});
  const other = { lr: 1, steps: 2 };
  await assert.rejects(agree(group(other, other, { lr: 1, steps: 3 }), {}), /steps is 3 on rank 2, and 2 on rank 0/);
  await assert.rejects(agree(group({ lr: 1 }, { lr: 1, extra: 'x' }), {}), /extra is "x" on rank 1, and none on rank 0/);
  const vk = /** @type {any} */ ({ initDevice: () => assert.fail('a device was opened') });
  for (const options of /** @type {import('../src/train/ranks.mjs').RanksOptions[]} */ ([
    { engine: 'mpi' },
    { zero: 1 },
    { reduce: 'bf16' },
  ])) {
    await assert.rejects(openRanks(vk, options), new RegExp(`^Error: --${Object.keys(options)[0]} is for several processes: `));
  }
});

test('a restart knows the run that its launcher restarts', () => {
  assert.deepEqual(attemptOf({}), { run: undefined, restarted: false });
  assert.deepEqual(attemptOf({ HELIOS_GENERATION: '0a1b-0', HELIOS_RESTART_COUNT: '0' }), { run: '0a1b', restarted: false });
  assert.deepEqual(attemptOf({ HELIOS_GENERATION: '0a1b-12', HELIOS_RESTART_COUNT: '12' }), { run: '0a1b', restarted: true });
});

test('rates leave out the first steps, and steps after a pause', () => {
  const finished = [0, 500, 600, 700, 5800, 5900, 6000];
  assert.deepEqual(stepRates(finished, 10), [100, 10_000 / 5100, 100, 100]);
  assert.deepEqual(stepRates(finished, 10, new Set([4])), [100, 100, 100]);
  assert.deepEqual(stepRates([0, 100, 300], 10), [50]);
  assert.deepEqual(stepRates([0], 10), []);
  assert.equal(recentRate(finished, 10), 30_000 / 5300);
  assert.equal(recentRate(finished, 10, new Set([4])), 50_000 / 900);
  assert.equal(recentRate([5], 10), undefined);
  assert.equal(recentRate([5, 6], 10, new Set([1])), undefined);
});

test('a profile’s table has rates without exponents', () => {
  const row = { share: 0.5, count: 4, us: 50, gbPerSecond: undefined, tflops: undefined };
  const table = profileTable(
    /** @type {any} */ ({
      us: 200,
      gpuUs: 100,
      rows: [
        { ...row, name: 'adamw', gbPerSecond: 4123 },
        { ...row, name: 'matmul', tflops: 1200 },
      ],
      calls: { batchExecuteAll: { us: 10, calls: 3 } },
      clock: 'submission',
      clockErrorUs: 1,
    }),
  );
  assert.match(table[1], /50\.0 % +4 +12\.5 +4,123 GB\/s {2}adamw$/);
  assert.match(table[2], /50\.0 % +4 +12\.5 +1,200 TFLOP\/s {2}matmul$/);
});
