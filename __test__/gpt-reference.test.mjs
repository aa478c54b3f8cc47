// The float64 reference against finite differences, and the host-side parts of the trainer. No device.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PRESETS, PRESET_NAMES, checkConfig, learningRate, parameterTable, presetOf } from '../benches/gpt/config.mjs';
import { stepBatch, unigramEntropy } from '../benches/gpt/data.mjs';
import { Random, initialWeights } from '../benches/gpt/random.mjs';
import { forwardBackward } from '../benches/gpt/reference.mjs';

const config = checkConfig({
  ...PRESETS['gpt-tiny'],
  layers: 2,
  width: 64,
  heads: 2,
  hidden: 20,
  block: 7,
  vocab: 23,
  batch: 2,
});

/** Weights that are not small, so that every path of the gradient counts. */
function testWeights() {
  const { parameters, total } = parameterTable(config);
  const weights = Float64Array.from(initialWeights(parameters, total, 3), (w) => (w === 1 ? 1 : 8 * w));
  const random = new Random(5);
  for (const { offset, size, std } of parameters) {
    if (std === 0) for (let i = offset; i < offset + size; i++) weights[i] = 1 + 0.3 * random.normal();
  }
  return weights;
}

test('the reference gradient is that of finite differences, for every parameter', () => {
  const { parameters, total } = parameterTable(config);
  const weights = testWeights();
  const random = new Random(9);
  const M = config.batch * config.block;
  const ids = Uint32Array.from({ length: M }, () => random.below(config.vocab));
  const targets = Uint32Array.from({ length: M }, () => random.below(config.vocab));
  const gradient = new Float64Array(total);
  forwardBackward(config, weights, ids, targets, gradient);
  for (const { name, offset, size } of parameters) {
    // Along a random direction: central difference of the loss against the inner product with the gradient.
    const direction = Float64Array.from({ length: size }, () => random.normal());
    const h = 1e-5;
    /** @param {number} t */
    const lossAt = (t) => {
      const moved = weights.slice();
      for (let i = 0; i < size; i++) moved[offset + i] += t * direction[i];
      return forwardBackward(config, moved, ids, targets).loss;
    };
    const difference = (lossAt(h) - lossAt(-h)) / (2 * h);
    let inner = 0;
    for (let i = 0; i < size; i++) inner += direction[i] * gradient[offset + i];
    assert.ok(Math.abs(inner) > 1e-6, `${name}: the direction is flat (${inner})`);
    assert.ok(
      Math.abs(difference - inner) <= 1e-6 * Math.max(1, Math.abs(inner)),
      `${name}: ${difference} by differences, ${inner} by the gradient`,
    );
  }
});

test('gradients add up over micro-steps', () => {
  const { total } = parameterTable(config);
  const weights = testWeights();
  const random = new Random(10);
  const M = config.batch * config.block;
  const draw = () => Uint32Array.from({ length: M }, () => random.below(config.vocab));
  const [a, b, c, d] = [draw(), draw(), draw(), draw()];
  const sum = new Float64Array(total);
  forwardBackward(config, weights, a, b, sum, 0.5);
  forwardBackward(config, weights, c, d, sum, 0.5);
  const doubled = { ...config, batch: 2 * config.batch };
  const whole = new Float64Array(total);
  forwardBackward(doubled, weights, Uint32Array.of(...a, ...c), Uint32Array.of(...b, ...d), whole);
  for (let i = 0; i < total; i++) assert.ok(Math.abs(sum[i] - whole[i]) < 1e-12);
});

test('the presets have as many parameters as their names say, and their earlier names still work', () => {
  const counts = Object.entries(PRESETS).map(([name, preset]) => [name, parameterTable(preset).count]);
  assert.deepEqual(Object.fromEntries(counts), { 'gpt-tiny': 143_680, 'gpt-30m': 29_630_976, 'gpt-300m': 301_837_312 });
  assert.equal(presetOf('tiny'), PRESETS['gpt-tiny']);
  assert.equal(presetOf('small'), PRESETS['gpt-30m']);
  assert.equal(presetOf('mission'), PRESETS['gpt-300m']);
  for (const name of Object.keys(PRESETS)) assert.equal(presetOf(name), PRESETS[name]);
  assert.deepEqual(PRESET_NAMES, [...Object.keys(PRESETS), 'tiny', 'small', 'mission']);
});

test('the gpt-300m preset has 300 to 307 million parameters, ranges do not overlap and are aligned', () => {
  const { parameters, count, total, decayed } = parameterTable(PRESETS['gpt-300m']);
  assert.ok(count >= 300e6 && count <= 307e6, `${count}`);
  let end = 0;
  for (const { offset, size, decay, name } of parameters) {
    assert.ok(offset >= end && offset % 64 === 0, name);
    end = offset + size;
    assert.equal(decay, end <= decayed, name);
  }
  assert.ok(end <= total);
});

test('bad configurations name what is wrong', () => {
  const bad = /** @type {[Partial<typeof config>, RegExp][]} */ ([
    [{ layers: 0 }, /layers .* 0/],
    [{ heads: 3 }, /width 64 is not a multiple of heads 3/],
    [{ heads: 4 }, /width . heads must be 32, 64, 96, 128, got 16/],
    [{ beta2: 1 }, /beta2/],
    [{ lr: NaN }, /lr .* NaN/],
    [{ precision: /** @type {any} */ ('f8') }, /precision .* f8/],
    [{ seed: -1 }, /seed/],
  ]);
  for (const [change, message] of bad) {
    assert.throws(() => checkConfig({ ...config, ...change }), { name: 'RangeError', message });
  }
});

test('the learning rate warms up linearly and ends at its floor', () => {
  const schedule = { ...config, lr: 1e-2, minLr: 1e-3, warmup: 10, steps: 110 };
  /** @param {number} step @param {number} rate */
  const near = (step, rate) => assert.ok(Math.abs(learningRate(schedule, step) - rate) < 1e-15, `step ${step}`);
  near(0, 1e-3);
  near(9, 1e-2);
  near(59, 5.5e-3);
  near(109, 1e-3);
  near(1000, 1e-3);
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

test('batches depend on seed and step alone, targets follow inputs', () => {
  const tokens = Uint32Array.from({ length: 1000 }, (_, i) => i);
  const sizes = { ...config, microSteps: 3, batch: 2, block: 16 };
  const first = stepBatch(tokens, sizes, 4);
  assert.deepEqual(first, stepBatch(tokens, sizes, 4));
  assert.notDeepEqual(first, stepBatch(tokens, sizes, 5));
  const half = sizes.batch * sizes.block;
  for (let micro = 0; micro < sizes.microSteps; micro++) {
    for (let i = 0; i < half; i++) assert.equal(first[micro * 2 * half + half + i], first[micro * 2 * half + i] + 1);
  }
  assert.throws(() => stepBatch(tokens.subarray(0, 16), sizes, 0), /needs at least 17/);
});

test('unigram entropy', () => {
  assert.ok(Math.abs(unigramEntropy(Uint32Array.of(1, 2, 3, 4)) - Math.log(4)) < 1e-12);
  assert.equal(unigramEntropy(Uint32Array.of(7, 7)), 0);
});
