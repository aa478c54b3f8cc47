// Random numbers (Philox, Salmon et al. 2011). Initial parameters are a sequence whose position the host knows; `rand`, `randn` and dropout
// draw from a state in a buffer that each draw advances.

import { STATE_WORDS, optimizerState } from '../../kernels/index.mjs';
import { apply, applyInto } from '../core/engine.mjs';
import { ArgumentError, UsageError, shown, within } from '../core/errors.mjs';
import { checkShape, denseLayout, sizeOf } from '../core/layout.mjs';
import { initial, random } from '../ops/random.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { Philox } from '../core/philox.mjs';
import { isRecording, perDevice, runtime } from '../core/runtime.mjs';
import { constant } from '../core/tensor.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

let generator = new Philox(0);
let seed = 0;
/** The generator's state on the device: the seed and a count of draws. @type {Tensor | undefined} */
let state;

/**
 * Seeds all random numbers, on the host and on the device: the same seed gives the same sequence. Throws an ArgumentError for another
 * value, and a UsageError while a function is compiled.
 * @param {number} value an integer from 0 to 2^53 - 1
 */
export function manualSeed(value) {
  if (!Number.isSafeInteger(value) || value < 0)
    throw new ArgumentError('manualSeed', `expected an integer of at least 0, got ${shown(value)}`);
  if (isRecording())
    throw new UsageError('manualSeed', 'the calls of a compiled function would not repeat it: call it outside of the function');
  seed = value;
  generator = new Philox(value);
  if (state?.storage) runtime().upload(state.storage.allocation, optimizerState({ rate: 0, seed }));
}

perDevice({
  clear: () => {
    state = undefined;
  },
});

/** Number of draws on the device so far: `checkpoint` compares it to see whether a function drew. */
let draws = 0;
export const drawsSoFar = () => draws;

/** The state for a draw. The operation that draws advances it. @returns {Tensor} */
export function deviceState() {
  draws++;
  return randomState();
}

/** The state, for saving and restoring. @returns {Tensor} */
export function randomState() {
  state ??= constant(optimizerState({ rate: 0, seed }), denseLayout([STATE_WORDS], 'u32'));
  return state;
}

/** Throws a UsageError while a function is compiled. */
function checkNotRecording() {
  if (isRecording()) {
    throw new UsageError(
      'random',
      'parameters are drawn once, so that every call of the compiled function would have the same: make modules outside of it',
    );
  }
}

/** `count` values drawn on the host. Throws a UsageError while a function is compiled. @param {number} count @param {() => number} draw */
function drawn(count, draw) {
  checkNotRecording();
  const values = new Float32Array(count);
  for (let i = 0; i < count; i++) values[i] = draw();
  return values;
}

/** Uniform in [low, high), drawn on the host. @param {number} count @param {number} low @param {number} high */
export const uniformValues = (count, low, high) => drawn(count, () => low + (high - low) * generator.uniform());

/** Normally distributed, drawn on the host. @param {number} count @param {number} mean @param {number} deviation */
export const normalValues = (count, mean, deviation) => drawn(count, () => mean + deviation * generator.normal());

/** What initial values are drawn from. @typedef {Exclude<import('../ops/random.mjs').Distribution, { distribution: 'bits' }>} Initial */

/**
 * Initial values, drawn on the device: the generator moves on as if the host had drawn them. Throws a UsageError while a function is compiled.
 * @param {readonly number[]} shape @param {Initial} distribution
 * @param {Tensor} [target] the dense f32 tensor of this shape to write them to; a new one when left out
 */
export function initialValues(shape, distribution, target) {
  checkNotRecording();
  const first = generator.take((distribution.distribution === 'normal' ? 2 : 1) * sizeOf(shape));
  const attributes = { shape: [...shape], seed, first, ...distribution };
  return target ? applyInto(initial, [], attributes, target) : apply(initial, [], attributes);
}

/** A random permutation of 0 … count - 1 (Fisher & Yates 1938), drawn on the host. @param {number} count */
export function permutation(count) {
  const order = Int32Array.from({ length: count }, (_, i) => i);
  for (let i = count - 1; i > 0; i--) {
    const j = Math.floor(generator.uniform() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

/**
 * Options of `randn`.
 * @typedef {object} NormalOptions
 * @property {number} [mean] 0 when left out
 * @property {number} [deviation] the standard deviation, at least 0; 1 when left out
 * @property {boolean} [requiresGrad] whether `backward` computes its gradient; false when left out
 */

/**
 * Options of `rand`.
 * @typedef {object} UniformOptions
 * @property {number} [low] the lower bound, included; 0 when left out
 * @property {number} [high] the upper bound, excluded, above `low`; 1 when left out
 * @property {boolean} [requiresGrad] whether `backward` computes its gradient; false when left out
 */

/**
 * @param {string} op @param {readonly number[]} shape @param {import('../ops/random.mjs').Distribution} attributes @param {boolean} requiresGrad
 * @returns {Tensor}
 */
function draw(op, shape, attributes, requiresGrad) {
  flag(op, 'requiresGrad', requiresGrad);
  const y = within(op, () => apply(random, [deviceState()], { shape: [...shape], ...attributes }));
  return requiresGrad ? y.requiresGrad_() : y;
}

/** @param {string} op @param {string} name @param {unknown} value */
function checkNumber(op, name, value) {
  if (typeof value !== 'number' || !Number.isFinite(value)) throw new ArgumentError(op, `${name} must be a number, got ${shown(value)}`);
}

/**
 * Makes an f32 tensor of normally distributed numbers, drawn on the device. `manualSeed` determines them; a compiled function draws new ones
 * at every call.
 * @param {readonly number[]} shape @param {NormalOptions} [options]
 */
export function randn(shape, options = {}) {
  checkShape('randn', shape);
  const { mean = 0, deviation = 1, requiresGrad = false } = checkOptions('randn', options, ['mean', 'deviation', 'requiresGrad']);
  checkNumber('randn', 'mean', mean);
  checkNumber('randn', 'deviation', deviation);
  if (deviation < 0) throw new ArgumentError('randn', `deviation must be at least 0, got ${deviation}`);
  return draw('randn', shape, { distribution: 'normal', mean, deviation }, requiresGrad);
}

/**
 * Makes an f32 tensor of uniform numbers in [low, high), drawn on the device as in `randn`. They are `low` plus multiples of
 * (high - low) / 2^24, rounded to f32.
 * @param {readonly number[]} shape @param {UniformOptions} [options]
 */
export function rand(shape, options = {}) {
  checkShape('rand', shape);
  const { low = 0, high = 1, requiresGrad = false } = checkOptions('rand', options, ['low', 'high', 'requiresGrad']);
  checkNumber('rand', 'low', low);
  checkNumber('rand', 'high', high);
  if (!(low < high)) throw new ArgumentError('rand', `low must be less than high, got ${low} and ${high}`);
  return draw('rand', shape, { distribution: 'uniform', low, high }, requiresGrad);
}
