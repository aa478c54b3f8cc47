// Stochastic gradient descent.

import { checkOptions } from '../core/options.mjs';
import { checkLeast } from './check.mjs';
import { OPTIONS, Optimizer, settingsOf } from './optimizer.mjs';

/** @typedef {import('./bucket.mjs').Bucket} Bucket */
/** @typedef {import('./bucket.mjs').Run} Run */
/** @typedef {import('./optimizer.mjs').Group} Group */
/** @typedef {import('./optimizer.mjs').MomentumOptions} MomentumOptions */
/** @typedef {import('./optimizer.mjs').Options} Options */
/** @typedef {import('./group.mjs').ParameterGroup} ParameterGroup */
/** @typedef {import('../modules/module.mjs').Parameter} Parameter */

/**
 * Stochastic gradient descent, as PyTorch's: d = g + weightDecay · p, v = momentum · v + d, p = p - lr · v. With `nesterov` (Nesterov
 * 1983) the last is p = p - lr · (d + momentum · v).
 */
export class SGD extends Optimizer {
  #momentum;
  #nesterov;

  /**
   * @param {Iterable<Parameter> | Group[]} params
   * @param {Options & MomentumOptions} [options] lr 1e-3, weightDecay 0, momentum 0, nesterov false
   */
  constructor(params, options = {}) {
    const { momentum = 0, nesterov = false, ...rest } = checkOptions('SGD', options, [...OPTIONS, 'momentum', 'nesterov']);
    checkLeast('momentum', momentum, 'SGD');
    super(params, settingsOf(rest, 1e-3), undefined, momentum > 0 ? 1 : 0);
    this.#momentum = momentum;
    this.#nesterov = nesterov;
  }

  /** The factor on the last step's v. It cannot be changed, since compiled steps contain it as a constant. */
  get momentum() {
    return this.#momentum;
  }
  /** Whether the step uses Nesterov momentum. It cannot be changed. */
  get nesterov() {
    return this.#nesterov;
  }

  /** @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run */
  update(group, bucket, run) {
    const { momentum, nesterov } = this;
    this.change(nesterov ? 'sgd nesterov' : 'sgd', group, bucket, run, momentum > 0 ? [momentum] : [], (program, values) => {
      const { parameter, gradient, moments, rate, decay, numbers } = values;
      const [mul, add] = /** @type {const} */ (['mul', 'add']).map((op) => program.append.bind(program, op));
      const g = decay === undefined ? gradient : add(gradient, mul(parameter, decay));
      const next = moments.map((v) => add(mul(v, numbers[0]), g));
      const [direction = g] = nesterov ? next.map((v) => add(g, mul(v, numbers[0]))) : next;
      return [program.append('sub', parameter, mul(direction, rate)), ...next];
    });
  }
}
