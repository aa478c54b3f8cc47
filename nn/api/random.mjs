// Random numbers. Initial parameters are drawn on the host, so that they have the same bits on every device. `rand`, `randn` and
// dropout draw on the device, from a state in a buffer that each draw advances.

import { STATE_WORDS, optimizerState } from '../../kernels/index.mjs';
import { apply } from '../core/engine.mjs';
import { ArgumentError, UsageError, shown, within } from '../core/errors.mjs';
import { checkShape, denseLayout } from '../core/layout.mjs';
import { random } from '../ops/random.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { Philox } from '../core/philox.mjs';
import { isRecording, perDevice, runtime } from '../core/runtime.mjs';
import { constant } from '../core/tensor.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

let generator = new Philox(0);
let seed = 0;
/** Words on the device that are drawn with: seed, and a count of draws. @type {Tensor | undefined} */
let state;

/**
 * Seeds all random numbers: after the same seed the same numbers follow.
 * @param {number} value an integer of at least 0
 */
export function manualSeed(value) {
  if (!Number.isSafeInteger(value) || value < 0)
    throw new ArgumentError('manualSeed', `expected an integer of at least 0, got ${shown(value)}`);
  if (isRecording())
    throw new UsageError('manualSeed', 'it would not be done again at the calls of the compiled function: call it outside of that');
  seed = value;
  generator = new Philox(value);
  if (state?.storage) runtime().upload(state.storage.allocation, optimizerState({ rate: 0, seed }));
}

perDevice({
  clear: () => {
    state = undefined;
  },
});

/** Times that the state was asked for. */
let draws = 0;
export const drawsSoFar = () => draws;

/** The state to draw with, moved on by the one who asks. @returns {Tensor} */
export function deviceState() {
  draws++;
  return randomState();
}

/** The state, to be saved and restored. @returns {Tensor} */
export function randomState() {
  state ??= constant(optimizerState({ rate: 0, seed }), denseLayout([STATE_WORDS], 'u32'));
  return state;
}

/** @param {number} count @param {() => number} draw */
function drawn(count, draw) {
  if (isRecording()) {
    throw new UsageError(
      'random',
      'parameters are drawn on the host, and would be the same at every call of the compiled function: make modules outside of it',
    );
  }
  const values = new Float32Array(count);
  for (let i = 0; i < count; i++) values[i] = draw();
  return values;
}

/** @param {number} count @param {number} low @param {number} high */
export const uniformValues = (count, low, high) => drawn(count, () => low + (high - low) * generator.uniform());

/** @param {number} count @param {number} mean @param {number} deviation */
export const normalValues = (count, mean, deviation) => drawn(count, () => mean + deviation * generator.normal());

/** A permutation of 0 … count - 1 (Fisher & Yates). @param {number} count */
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
 * @property {boolean} [requiresGrad] whether `backward` finds its gradient; false when left out
 */

/**
 * Options of `rand`.
 * @typedef {object} UniformOptions
 * @property {number} [low] the least value; 0 when left out
 * @property {number} [high] the upper bound, excluded; more than `low`; 1 when left out
 * @property {boolean} [requiresGrad] whether `backward` finds its gradient; false when left out
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
  if (typeof value !== 'number' || !Number.isFinite(value)) throw new ArgumentError(op, `${name} is a number, got ${shown(value)}`);
}

/**
 * Normally distributed numbers, f32, drawn on the device. They follow from `manualSeed`; a compiled function draws new ones at every
 * call.
 * @param {readonly number[]} shape @param {NormalOptions} [options]
 */
export function randn(shape, options = {}) {
  checkShape('randn', shape);
  const { mean = 0, deviation = 1, requiresGrad = false } = checkOptions('randn', options, ['mean', 'deviation', 'requiresGrad']);
  checkNumber('randn', 'mean', mean);
  checkNumber('randn', 'deviation', deviation);
  if (deviation < 0) throw new ArgumentError('randn', `deviation is at least 0, got ${deviation}`);
  return draw('randn', shape, { distribution: 'normal', mean, deviation }, requiresGrad);
}

/**
 * Uniform numbers in [low, high), f32, drawn on the device as those of `randn`: `low` plus multiples of (high - low) / 2^24, rounded.
 * @param {readonly number[]} shape @param {UniformOptions} [options]
 */
export function rand(shape, options = {}) {
  checkShape('rand', shape);
  const { low = 0, high = 1, requiresGrad = false } = checkOptions('rand', options, ['low', 'high', 'requiresGrad']);
  checkNumber('rand', 'low', low);
  checkNumber('rand', 'high', high);
  if (!(low < high)) throw new ArgumentError('rand', `low is less than high, got ${low} and ${high}`);
  return draw('rand', shape, { distribution: 'uniform', low, high }, requiresGrad);
}
