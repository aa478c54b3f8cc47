// Lion.

import { checkOptions } from '../core/options.mjs';
import { OPTIONS, Optimizer, settingsOf } from './optimizer.mjs';

/** @typedef {import('./bucket.mjs').Bucket} Bucket */
/** @typedef {import('./bucket.mjs').Run} Run */
/** @typedef {import('./optimizer.mjs').Group} Group */
/** @typedef {import('./optimizer.mjs').LionOptions} LionOptions */
/** @typedef {import('./optimizer.mjs').Options} Options */
/** @typedef {import('./group.mjs').ParameterGroup} ParameterGroup */
/** @typedef {import('../modules/module.mjs').Parameter} Parameter */

/** Lion (Chen et al. 2023): p = p - lr · (sign(β₁ m + (1 - β₁) g) + weightDecay · p), then m = β₂ m + (1 - β₂) g. */
export class Lion extends Optimizer {
  #betas;

  /**
   * @param {Iterable<Parameter> | Group[]} params
   * @param {Options & LionOptions} [options] lr 1e-4, betas [0.9, 0.99], weightDecay 0
   */
  constructor(params, options = {}) {
    const { betas = [0.9, 0.99], ...rest } = checkOptions('Lion', options, [...OPTIONS, 'betas']);
    super(params, settingsOf(rest, 1e-4), { betas, eps: 1e-8 }, 1);
    this.#betas = Object.freeze(/** @type {[number, number]} */ ([betas[0], betas[1]]));
  }

  /** β₁ of the step and β₂ of the running mean. They cannot be changed, since compiled steps contain them as constants. */
  get betas() {
    return this.#betas;
  }

  /** @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run */
  update(group, bucket, run) {
    const numbers = this.#betas.flatMap((beta) => [beta, 1 - beta]);
    this.change('lion', group, bucket, run, numbers, (program, values) => {
      const { parameter, gradient, moments, rate, decay } = values;
      const [b1, rest1, b2, rest2] = values.numbers;
      const [mul, add] = /** @type {const} */ (['mul', 'add']).map((op) => program.append.bind(program, op));
      const mean = (/** @type {number} */ b, /** @type {number} */ rest) => add(mul(moments[0], b), mul(gradient, rest));
      const sign = program.append('sign', mean(b1, rest1));
      const direction = decay === undefined ? sign : add(sign, mul(parameter, decay));
      return [program.append('sub', parameter, mul(direction, rate)), mean(b2, rest2)];
    });
  }
}
