// The float64 reference against finite differences, and the host-side parts of the trainer. No device.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  PRESETS,
  PRESET_NAMES,
  checkConfig,
  flatConfig,
  learningRate,
  presetOf,
  splitConfig,
  withValues,
} from '../packages/lm/src/train/config.mjs';
import { stepBatch, unigramEntropy } from '../packages/lm/src/train/data.mjs';
import { Random } from '../packages/lm/src/train/random.mjs';
import { forwardBackward } from './lib/gpt-reference.mjs';
import { initialWeights, isNorm, parameterCount } from '../packages/lm/src/train/state.mjs';
import { filled, toFloat64 } from './lib/gpt.mjs';

const config = checkConfig(withValues(PRESETS['gpt-tiny'], { layers: 2, width: 64, heads: 2, hidden: 20, block: 7, vocab: 23, batch: 2 }));
const { model } = config;
/** Tokens of a micro-step. */
const M = config.training.batch * model.block;

/** Weights that are not small, so that every path of the gradient counts. */
function testWeights() {
  const weights = toFloat64(initialWeights(model, 3));
  const random = new Random(5);
  for (const [name, values] of Object.entries(weights)) {
    values.forEach((w, i) => (values[i] = isNorm(name) ? 1 + 0.3 * random.normal() : 8 * w));
  }
  return weights;
}

test('the reference gradient is that of finite differences, for every parameter', () => {
  const weights = testWeights();
  const random = new Random(9);
  const ids = Uint32Array.from({ length: M }, () => random.below(model.vocab));
  const targets = Uint32Array.from({ length: M }, () => random.below(model.vocab));
  const gradient = toFloat64(filled(model));
  forwardBackward(model, weights, ids, targets, gradient);
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

test('gradients add up over micro-steps', () => {
  const weights = testWeights();
  const random = new Random(10);
  const draw = () => Uint32Array.from({ length: M }, () => random.below(model.vocab));
  const [a, b, c, d] = [draw(), draw(), draw(), draw()];
  const sum = toFloat64(filled(model));
  forwardBackward(model, weights, a, b, sum, 0.5);
  forwardBackward(model, weights, c, d, sum, 0.5);
  const whole = toFloat64(filled(model));
  forwardBackward(model, weights, Uint32Array.of(...a, ...c), Uint32Array.of(...b, ...d), whole);
  for (const name of Object.keys(sum)) sum[name].forEach((x, i) => assert.ok(Math.abs(x - whole[name][i]) < 1e-12, name));
});

test('the presets have as many parameters as their names say, and their earlier names still work', () => {
  const counts = Object.entries(PRESETS).map(([name, preset]) => [name, parameterCount(preset.model)]);
  assert.deepEqual(Object.fromEntries(counts), { 'gpt-tiny': 143_680, 'gpt-30m': 29_630_976, 'gpt-300m': 301_837_312 });
  assert.equal(presetOf('tiny'), PRESETS['gpt-tiny']);
  assert.equal(presetOf('small'), PRESETS['gpt-30m']);
  assert.equal(presetOf('mission'), PRESETS['gpt-300m']);
  for (const name of Object.keys(PRESETS)) assert.equal(presetOf(name), PRESETS[name]);
  assert.deepEqual(PRESET_NAMES, [...Object.keys(PRESETS), 'tiny', 'small', 'mission']);
});

test('a configuration splits into the model and its training, and joins again', () => {
  const flat = flatConfig(config);
  assert.deepEqual(Object.keys(model), ['layers', 'width', 'heads', 'hidden', 'block', 'vocab']);
  assert.deepEqual(Object.keys(flat).length, Object.keys(model).length + Object.keys(config.training).length);
  assert.deepEqual(splitConfig(flat), config);
  assert.deepEqual(withValues(config, { layers: 3, lr: 1 }), {
    model: { ...model, layers: 3 },
    training: { ...config.training, lr: 1 },
  });
});

test('bad configurations name what is wrong', () => {
  const bad = /** @type {[Partial<import('../packages/lm/src/train/config.mjs').FlatConfig>, RegExp][]} */ ([
    [{ layers: 0 }, /layers .* 0/],
    [{ heads: 3 }, /width 64 is not a multiple of heads 3/],
    [{ heads: 4 }, /width . heads must be 32, 64, 96, 128, got 16/],
    [{ beta2: 1 }, /beta2/],
    [{ lr: NaN }, /lr .* NaN/],
    [{ precision: /** @type {any} */ ('f8') }, /precision .* f8/],
    [{ seed: -1 }, /seed/],
  ]);
  for (const [change, message] of bad) {
    assert.throws(() => checkConfig(withValues(config, change)), { name: 'RangeError', message });
  }
});

test('the learning rate warms up linearly and ends at its floor', () => {
  const schedule = { lr: 1e-2, minLr: 1e-3, warmup: 10, steps: 110 };
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
  const sizes = { seed: 1, microSteps: 3, batch: 2, block: 16 };
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
