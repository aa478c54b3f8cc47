// Checks the options of optimizers before a constructor changes anything.

import { Tensor } from '../api/tensor.mjs';
import { ArgumentError, UsageError, show, shown } from '../core/errors.mjs';
import { checkOptions } from '../core/options.mjs';
import { Parameter } from '../modules/module.mjs';

/** @param {string} op the optimizer @param {unknown} betas */
export function checkBetas(op, betas) {
  if (!Array.isArray(betas) || betas.length !== 2) throw new ArgumentError(op, `betas must be two numbers, got ${shown(betas)}`);
  betas.forEach((beta, i) => {
    // β₁ may be 0, which is no momentum: gradient penalties of Wasserstein GANs are trained so.
    if (typeof beta !== 'number' || !((i === 0 ? beta >= 0 : beta > 0) && beta < 1))
      throw new ArgumentError(op, `beta${i + 1} must be in ${i === 0 ? '[' : '('}0, 1), got ${shown(beta)}`);
  });
}

/**
 * The learning rate over steps: linear warm-up to `lr`, then cosine decay to `finalLr` (Loshchilov & Hutter 2017, without restarts).
 * @typedef {object} Schedule
 * @property {number} [warmup] number of warm-up steps; 0 when left out
 * @property {number} total the step at which the rate has reached `finalLr`, more than `warmup`; 0 for no decay
 * @property {number} [finalLr] the rate from step `total` on; 0 when left out
 */

/** The steps for which a function is called that does not say how many it is for. */
const TABLE_STEPS = 2 ** 20;

/**
 * The factors of a schedule that is a function, by the number of the step, which begins at 1; undefined of another schedule.
 * @param {string} op the optimizer @param {unknown} schedule @param {Map<unknown, Float32Array>} known those of the other groups
 */
export function factorsOf(op, schedule, known) {
  if (typeof schedule !== 'function') return undefined;
  const before = known.get(schedule);
  if (before) return before;
  const { steps = TABLE_STEPS } = /** @type {{ steps?: number }} */ (/** @type {unknown} */ (schedule));
  if (!Number.isInteger(steps) || steps < 1 || steps > 2 ** 26)
    throw new ArgumentError(op, `the schedule's steps must be an integer from 1 to 2^26, got ${shown(steps)}`);
  const factors = new Float32Array(steps + 1);
  for (let step = 0; step < steps; step++) {
    const factor = schedule(step);
    if (typeof factor !== 'number' || !(factor >= 0 && factor < Infinity))
      throw new ArgumentError(op, `the schedule must return a number of at least 0, got ${shown(factor)} for step ${step}`);
    factors[step + 1] = factor;
  }
  known.set(schedule, factors);
  return factors;
}

/** The most steps that a state can count: its counter is a u32. */
const MAX_STEPS = 2 ** 32 - 1;

/** @param {string} op the optimizer @param {unknown} schedule */
export function checkSchedule(op, schedule) {
  if (schedule === undefined || typeof schedule === 'function') return;
  const { warmup = 0, total, finalLr = 0 } = checkOptions(op, /** @type {Schedule} */ (schedule), ['warmup', 'total', 'finalLr']);
  for (const [name, value] of Object.entries({ warmup, total })) {
    if (!Number.isInteger(value) || value < 0 || value > MAX_STEPS)
      throw new ArgumentError(op, `the schedule's ${name} must be an integer of at least 0, got ${shown(value)}`);
  }
  if (total !== 0 && total <= warmup) {
    throw new ArgumentError(op, `the schedule's total must be 0 or more than warmup, got ${total} and ${warmup}`);
  }
  if (typeof finalLr !== 'number' || !(finalLr >= 0 && finalLr < Infinity))
    throw new ArgumentError(op, `the schedule's finalLr must be a number of at least 0, got ${shown(finalLr)}`);
}

/** Checks for a finite number of at least 0. @param {string} name @param {number} value @param {string} of the call, for the error */
export function checkLeast(name, value, of) {
  const label = of === name ? '' : `${name} `;
  if (!(typeof value === 'number' && value >= 0 && value < Infinity))
    throw new ArgumentError(of, `${label}must be a number of at least 0, got ${shown(value)}`);
}

/** @template T @param {Iterable<T>} params @param {string} of the call, for the error @returns {T[]} */
export function checkIterable(params, of) {
  if (typeof params !== 'object' || typeof params?.[Symbol.iterator] !== 'function') {
    throw new ArgumentError(of, `expected an array of parameters, or of groups { params, … }, got ${shown(params)}`);
  }
  return [...params];
}

/** @param {number} value @param {string} of the call, for the error */
export function checkScale(value, of) {
  if (!(typeof value === 'number' && value > 0 && value < Infinity))
    throw new ArgumentError(of, `gradientScale must be a number above 0, got ${shown(value)}`);
  return value;
}

/** Checks for a number in [0, 1). @param {string} name @param {unknown} value @param {string} of the call, for the error */
export function checkFraction(name, value, of) {
  if (typeof value !== 'number' || !(value >= 0 && value < 1))
    throw new ArgumentError(of, `${name} must be a number in [0, 1), got ${shown(value)}`);
}

/**
 * Checks that a state to load has every tensor of `own`, of its shape and type.
 * @param {Record<string, Tensor>} state @param {Record<string, Tensor>} own
 */
export function checkState(state, own) {
  for (const [name, target] of Object.entries(own)) {
    const source = state[name];
    if (!(source instanceof Tensor)) throw new ArgumentError('loadStateDict', `missing: ${name}`);
    if (source.disposed) throw new UsageError('loadStateDict', `${name} was disposed of`);
    if (show(source.shape) !== show(target.shape) || source.dtype !== target.dtype) {
      const expected = `${target.dtype} ${show(target.shape)}`;
      throw new ArgumentError('loadStateDict', `${name} is ${source.dtype} ${show(source.shape)}, expected ${expected}`);
    }
  }
}

/**
 * Checks that an optimizer may have a parameter.
 * @param {unknown} parameter @param {string} name of the optimizer, for errors
 * @returns {asserts parameter is Parameter}
 */
export function checkParameter(parameter, name) {
  if (!(parameter instanceof Parameter))
    throw new ArgumentError(name, `expected parameters of modules, got ${shown(parameter)}: new nn.Parameter(x) makes one of a tensor`);
  if (parameter.dtype !== 'f32') throw new ArgumentError(name, `takes f32 parameters, got ${parameter.dtype}`);
}
