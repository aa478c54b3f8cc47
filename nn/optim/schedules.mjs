// Schedules as functions: the factor on the learning rate from the number of steps made before. An optimizer computes the factors when it is
// made, so that they are on the device, where a compiled step reads them.

import { ArgumentError, shown } from '../core/errors.mjs';
import { checkAbove, checkLeast, checkOptions } from '../core/options.mjs';

/**
 * What a schedule may say of itself.
 * @typedef {object} Length
 * @property {number} [steps] the number of steps after which the factor does not change; unknown when left out
 */

/** A factor on `lr` from the number of steps made before: 0 for the first step. @typedef {((step: number) => number) & Length} Factor */

/**
 * Options of schedules that come down.
 * @typedef {object} DescentOptions
 * @property {number} [to] the last factor; 0 when left out
 */

/**
 * Options of `linear`.
 * @typedef {object} LinearScheduleOptions
 * @property {number} [from] the first factor; 1 when left out
 * @property {number} [to] the factor from step `total` on; 0 when left out
 */

/**
 * Options of `cosineRestarts`.
 * @typedef {object} RestartOptions
 * @property {number} [mult] how many times longer each period is than the one before, an integer of at least 1; 1 when left out
 * @property {number} [to] the last factor of each period; 0 when left out
 */

/**
 * Options of `polynomial`.
 * @typedef {object} PolynomialOptions
 * @property {number} [power] of what is left of the steps; 1 when left out
 * @property {number} [to] the last factor; 0 when left out
 */

/**
 * Options of `step` and `multiStep`.
 * @typedef {object} StepOptions
 * @property {number} [gamma] the factor of each drop; 0.1 when left out
 */

/**
 * Options of `oneCycle`.
 * @typedef {object} OneCycleOptions
 * @property {number} [pctStart] the part of the steps in which the rate grows, in (0, 1); 0.3 when left out
 * @property {number} [divFactor] the first factor is 1 / divFactor; 25 when left out
 * @property {number} [finalDivFactor] the last factor is the first one / finalDivFactor; 1e4 when left out
 */

/** @param {string} op @param {string} name @param {unknown} value @returns {number} */
function count(op, name, value) {
  if (!Number.isInteger(value) || Number(value) < 1 || Number(value) > 2 ** 26)
    throw new ArgumentError(op, `${name} must be an integer from 1 to 2^26, got ${shown(value)}`);
  return Number(value);
}
/** @param {string} op @param {unknown} schedule */
function checkFactor(op, schedule) {
  if (typeof schedule !== 'function') throw new ArgumentError(op, `expected a schedule, a function of the step, got ${shown(schedule)}`);
}
/** @param {(step: number) => number} factor @param {number} [steps] @returns {Factor} */
const made = (factor, steps) => Object.assign(factor, steps === undefined ? {} : { steps });

/** The same factor at every step. @param {number} [factor] 1 when left out @returns {Factor} */
export function constant(factor = 1) {
  checkLeast('constant', 'factor', factor);
  return made(() => factor, 1);
}

/** From one factor to another in equal steps. @param {number} total steps @param {LinearScheduleOptions} [options] @returns {Factor} */
export function linear(total, options = {}) {
  const { from = 1, to = 0 } = checkOptions('linear', options, ['from', 'to']);
  count('linear', 'total', total);
  checkLeast('linear', 'from', from);
  checkLeast('linear', 'to', to);
  return made((step) => from + (to - from) * Math.min(1, step / total), total + 1);
}

/**
 * Half a cosine from 1 down (Loshchilov & Hutter 2017, without restarts). @param {number} total steps @param {DescentOptions} [options]
 * @returns {Factor}
 */
export function cosine(total, options = {}) {
  const { to = 0 } = checkOptions('cosine', options, ['to']);
  count('cosine', 'total', total);
  checkLeast('cosine', 'to', to);
  return made((step) => (step >= total ? to : to + ((1 - to) * (1 + Math.cos((Math.PI * step) / total))) / 2), total + 1);
}

/**
 * Half a cosine from 1 down, again and again (Loshchilov & Hutter 2017), as PyTorch's `CosineAnnealingWarmRestarts`.
 * @param {number} period steps of the first @param {RestartOptions} [options] @returns {Factor}
 */
export function cosineRestarts(period, options = {}) {
  const { mult = 1, to = 0 } = checkOptions('cosineRestarts', options, ['mult', 'to']);
  count('cosineRestarts', 'period', period);
  count('cosineRestarts', 'mult', mult);
  checkLeast('cosineRestarts', 'to', to);
  return made((step) => {
    let [at, own] = [mult === 1 ? step % period : step, period];
    for (; at >= own; own *= mult) at -= own;
    return to + ((1 - to) * (1 + Math.cos((Math.PI * at) / own))) / 2;
  });
}

/** A power of what is left of the steps. @param {number} total steps @param {PolynomialOptions} [options] @returns {Factor} */
export function polynomial(total, options = {}) {
  const { power = 1, to = 0 } = checkOptions('polynomial', options, ['power', 'to']);
  count('polynomial', 'total', total);
  checkLeast('polynomial', 'power', power);
  checkLeast('polynomial', 'to', to);
  return made((step) => (step >= total ? to : to + (1 - to) * (1 - step / total) ** power), total + 1);
}

/** `gamma` times less after every `size` steps. @param {number} size @param {StepOptions} [options] @returns {Factor} */
export function step(size, options = {}) {
  const { gamma = 0.1 } = checkOptions('step', options, ['gamma']);
  count('step', 'size', size);
  checkLeast('step', 'gamma', gamma);
  return made((at) => gamma ** Math.floor(at / size));
}

/** `gamma` times less at each milestone. @param {number[]} milestones steps @param {StepOptions} [options] @returns {Factor} */
export function multiStep(milestones, options = {}) {
  const { gamma = 0.1 } = checkOptions('multiStep', options, ['gamma']);
  if (!Array.isArray(milestones) || milestones.length === 0)
    throw new ArgumentError('multiStep', `milestones must be an array of steps, got ${shown(milestones)}`);
  for (const milestone of milestones) count('multiStep', 'a milestone', milestone);
  checkLeast('multiStep', 'gamma', gamma);
  return made((at) => gamma ** milestones.filter((milestone) => at >= milestone).length, Math.max(...milestones) + 1);
}

/** `gamma` times less at every step. @param {number} gamma @returns {Factor} */
export function exponential(gamma) {
  checkLeast('exponential', 'gamma', gamma);
  return made((at) => gamma ** at);
}

/**
 * Linear warm-up, then 1 / √step (Vaswani et al. 2017): the factor is 1 at the end of the warm-up.
 * @param {number} warmup steps @returns {Factor}
 */
export function inverseSqrt(warmup) {
  count('inverseSqrt', 'warmup', warmup);
  return made((at) => Math.min((at + 1) / warmup, Math.sqrt(warmup / (at + 1))));
}

/**
 * Linear warm-up from 1 / steps to 1, then another schedule from its beginning.
 * @param {number} steps of the warm-up @param {Factor} [then] 1 when left out @returns {Factor}
 */
export function warmup(steps, then = constant()) {
  count('warmup', 'steps', steps);
  checkFactor('warmup', then);
  return made((at) => (at < steps ? (at + 1) / steps : then(at - steps)), then.steps === undefined ? undefined : steps + then.steps);
}

/**
 * Up and down once in half cosines (Smith & Topin 2019), as PyTorch's `OneCycleLR`, whose `max_lr` is `lr`.
 * @param {number} total steps, at least 2 @param {OneCycleOptions} [options] @returns {Factor}
 */
export function oneCycle(total, options = {}) {
  const {
    pctStart = 0.3,
    divFactor = 25,
    finalDivFactor = 1e4,
  } = checkOptions('oneCycle', options, ['pctStart', 'divFactor', 'finalDivFactor']);
  if (count('oneCycle', 'total', total) < 2) throw new ArgumentError('oneCycle', `total must be at least 2, got ${total}`);
  if (typeof pctStart !== 'number' || !(pctStart > 0 && pctStart < 1))
    throw new ArgumentError('oneCycle', `pctStart must be in (0, 1), got ${shown(pctStart)}`);
  for (const [name, value] of Object.entries({ divFactor, finalDivFactor })) checkAbove('oneCycle', name, value);
  const [first, top, end] = [1 / divFactor, pctStart * total - 1, total - 1];
  const between = (/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ part) =>
    to + ((from - to) / 2) * (1 + Math.cos(Math.PI * part));
  return made((at) => {
    const now = Math.min(at, end);
    return now <= top ? between(first, 1, now / top) : between(1, first / finalDivFactor, (now - top) / (end - top));
  }, total);
}

/** The product of schedules, as PyTorch's `ChainedScheduler`. @param {...Factor} schedules @returns {Factor} */
export function chained(...schedules) {
  if (schedules.length === 0) throw new ArgumentError('chained', 'expected at least one schedule');
  for (const schedule of schedules) checkFactor('chained', schedule);
  const steps = schedules.map((schedule) => schedule.steps ?? Infinity);
  const most = Math.max(...steps);
  return made((at) => schedules.reduce((product, schedule) => product * schedule(at), 1), most < Infinity ? most : undefined);
}

/**
 * One schedule after another, each from its beginning, as PyTorch's `SequentialLR`.
 * @param {Factor[]} schedules @param {number[]} milestones the steps at which the second, the third, … begin; increasing
 * @returns {Factor}
 */
export function sequential(schedules, milestones) {
  if (!Array.isArray(schedules) || schedules.length === 0)
    throw new ArgumentError('sequential', `expected an array of schedules, got ${shown(schedules)}`);
  for (const schedule of schedules) checkFactor('sequential', schedule);
  if (!Array.isArray(milestones) || milestones.length !== schedules.length - 1)
    throw new ArgumentError('sequential', `milestones must be an array of ${schedules.length - 1} steps, got ${shown(milestones)}`);
  milestones.forEach((milestone, i) => {
    if (count('sequential', 'a milestone', milestone) <= (milestones[i - 1] ?? 0))
      throw new ArgumentError('sequential', `milestones must increase, got ${milestones[i - 1]}, ${milestone}`);
  });
  const last = schedules[schedules.length - 1].steps;
  return made(
    (at) => {
      const i = milestones.filter((milestone) => at >= milestone).length;
      return schedules[i](at - (milestones[i - 1] ?? 0));
    },
    last === undefined ? undefined : (milestones.at(-1) ?? 0) + last,
  );
}
