// A rate that falls when a metric no longer gets better. Unlike a schedule it is directed by the host, which has read the metric.

import { ArgumentError, shown } from '../core/errors.mjs';
import { checkLeast, checkOptions } from '../core/options.mjs';
import { Optimizer } from './optimizer.mjs';

/**
 * Options of `ReduceLROnPlateau`.
 * @typedef {object} PlateauOptions
 * @property {'min' | 'max'} [mode] whether a lower or a higher metric is better; 'min' when left out
 * @property {number} [factor] by which rates are multiplied, in [0, 1); 0.1 when left out
 * @property {number} [patience] how many steps without a better metric are accepted; 10 when left out
 * @property {number} [threshold] by how much a metric must be better to count; 1e-4 when left out
 * @property {'rel' | 'abs'} [thresholdMode] whether `threshold` is a share of the best metric so far, or a difference; 'rel' when left out
 * @property {number} [cooldown] how many steps after a change do not count; 0 when left out
 * @property {number} [minLr] the least rate; 0 when left out
 * @property {number} [eps] the least change of a rate that is made; 1e-8 when left out
 */

/**
 * What a state dictionary of `ReduceLROnPlateau` has.
 * @typedef {object} PlateauState
 * @property {number | null} best the best metric so far; null before the first
 * @property {number} badSteps how many steps in a row were no better
 * @property {number} cooldownLeft steps until it counts again
 * @property {number[]} rates of the optimizer's groups
 */

const MODES = { mode: ['min', 'max'], thresholdMode: ['rel', 'abs'] };

/**
 * Lowers an optimizer's rates where a metric, such as the loss of held-out data, has not become better for some steps, as PyTorch's class of this
 * name. Compiled steps read the new rate in their next call. With a `schedule` it lowers the peaks.
 */
export class ReduceLROnPlateau {
  #optimizer;
  #options;
  #cooldownLeft = 0;

  /** @param {Optimizer} optimizer @param {PlateauOptions} [options] */
  constructor(optimizer, options = {}) {
    const op = 'ReduceLROnPlateau';
    if (!(optimizer instanceof Optimizer)) throw new ArgumentError(op, `expected an optimizer with groups, got ${shown(optimizer)}`);
    const known = /** @type {const} */ (['mode', 'factor', 'patience', 'threshold', 'thresholdMode', 'cooldown', 'minLr', 'eps']);
    const { mode = 'min', factor = 0.1, thresholdMode = 'rel', ...rest } = checkOptions(op, options, known);
    const { patience = 10, threshold = 1e-4, cooldown = 0, minLr = 0, eps = 1e-8 } = rest;
    for (const [name, value] of Object.entries({ mode, thresholdMode })) {
      const all = MODES[/** @type {keyof typeof MODES} */ (name)];
      if (!all.includes(value))
        throw new ArgumentError(op, `${name} must be ${all.map((each) => `'${each}'`).join(' or ')}, got ${shown(value)}`);
    }
    if (typeof factor !== 'number' || !(factor >= 0 && factor < 1))
      throw new ArgumentError(op, `factor must be in [0, 1), got ${shown(factor)}`);
    for (const [name, value] of Object.entries({ patience, threshold, cooldown, minLr, eps })) checkLeast(op, name, value);
    this.#optimizer = optimizer;
    this.#options = { mode, factor, patience, threshold, thresholdMode, cooldown, minLr, eps };
    /** The best metric so far. */
    this.best = this.#worst;
    /** How many steps there were since. */
    this.badSteps = 0;
  }

  /** Any metric is better than this. */
  get #worst() {
    return this.#options.mode === 'min' ? Infinity : -Infinity;
  }

  /** Whether a metric is better than the best so far. @param {number} metric */
  #isBetter(metric) {
    const { mode, threshold, thresholdMode } = this.#options;
    const sign = mode === 'min' ? -1 : 1;
    const least = thresholdMode === 'rel' ? this.best * (1 + sign * threshold) : this.best + sign * threshold;
    return mode === 'min' ? metric < least : metric > least;
  }

  /**
   * Notes the metric of an epoch, and lowers the rates if it is time. Throws an ArgumentError for anything but a number: read a loss first, with
   * `await loss.item()`.
   * @param {number} metric NaN is not better
   * @returns {boolean} whether a rate was lowered
   */
  step(metric) {
    if (typeof metric !== 'number')
      throw new ArgumentError('ReduceLROnPlateau.step', `expected a number, as await loss.item() gives, got ${shown(metric)}`);
    const { factor, patience, cooldown, minLr, eps } = this.#options;
    if (this.#isBetter(metric)) {
      this.best = metric;
      this.badSteps = 0;
    } else this.badSteps++;
    if (this.#cooldownLeft > 0) {
      this.#cooldownLeft--;
      this.badSteps = 0;
    }
    if (this.badSteps <= patience) return false;
    this.#cooldownLeft = cooldown;
    this.badSteps = 0;
    return this.#optimizer.groups.map((group) => this.#lower(group, Math.max(group.lr * factor, minLr), eps)).some(Boolean);
  }

  /** @param {import('./group.mjs').ParameterGroup} group @param {number} lr @param {number} eps */
  #lower(group, lr, eps) {
    if (group.lr - lr <= eps) return false;
    group.lr = lr;
    return true;
  }

  /** What `loadStateDict` needs to continue, as JSON has it too. @returns {PlateauState} */
  stateDict() {
    const rates = this.#optimizer.groups.map(({ lr }) => lr);
    // JSON has no infinity.
    return { best: this.best === this.#worst ? null : this.best, badSteps: this.badSteps, cooldownLeft: this.#cooldownLeft, rates };
  }
  /**
   * Continues where `stateDict` was called. It sets the rates of the optimizer's groups, too: a state that the optimizer has loaded is on the
   * device, so that its `lr` does not show the rate that must fall.
   * @param {PlateauState} state of as many groups
   */
  loadStateDict(state) {
    const { best, badSteps, cooldownLeft, rates } = Object(state);
    const { groups } = this.#optimizer;
    const isOne = [best ?? 0, badSteps, cooldownLeft].every((n) => typeof n === 'number') && Array.isArray(rates);
    if (!isOne || rates.length !== groups.length)
      throw new ArgumentError(
        'ReduceLROnPlateau.loadStateDict',
        isOne
          ? `expected the rates of ${groups.length} groups, got ${rates.length}`
          : `expected what stateDict() returns, got ${shown(state)}`,
      );
    for (const rate of rates) checkLeast('ReduceLROnPlateau.loadStateDict', 'a rate', rate);
    groups.forEach((group, i) => {
      group.lr = rates[i];
    });
    this.best = best ?? this.#worst;
    this.badSteps = badSteps;
    this.#cooldownLeft = cooldownLeft;
  }
}
