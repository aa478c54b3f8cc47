// Optimizers whose steps do not follow the gradient's size, and averaged gradient descent, with PyTorch's formulas and defaults.

import { STATE } from '../../kernels/index.mjs';
import { ArgumentError, shown } from '../core/errors.mjs';
import { checkFinite, checkOptions } from '../core/options.mjs';
import { arithmetic, decayed, shared } from './adaptive.mjs';
import { checkLeast } from './check.mjs';
import { OPTIONS, Optimizer, settingsOf } from './optimizer.mjs';

/** @typedef {import('./bucket.mjs').Bucket} Bucket */
/** @typedef {import('./bucket.mjs').Run} Run */
/** @typedef {import('./optimizer.mjs').Group} Group */
/** @typedef {import('./optimizer.mjs').Options} Options */
/** @typedef {import('./group.mjs').ParameterGroup} ParameterGroup */
/** @typedef {import('../modules/module.mjs').Parameter} Parameter */

/**
 * Options of `Rprop` besides those of every optimizer.
 * @typedef {object} RpropOptions
 * @property {[number, number]} [etas] the factors on a step whose gradient changed its sign, in (0, 1), and whose did not, above 1; [0.5, 1.2]
 *   when left out
 * @property {[number, number]} [stepSizes] the least and the largest step; [1e-6, 50] when left out
 */

/**
 * Options of `ASGD` besides those of every optimizer.
 * @typedef {object} AsgdOptions
 * @property {number} [lambd] the decay of parameters and of the rate; 1e-4 when left out
 * @property {number} [alpha] the power by which the rate falls; 0.75 when left out
 * @property {number} [t0] the step after which parameters are averaged; 1e6 when left out
 */

/** Two numbers in order. @param {string} name @param {unknown} pair @param {(low: number, high: number) => boolean} fits @param {string} what */
function checkPair(name, pair, fits, what) {
  if (!Array.isArray(pair) || pair.length !== 2 || pair.some((n) => !Number.isFinite(n)) || !fits(pair[0], pair[1]))
    throw new ArgumentError('Rprop', `${name} must be ${what}, got ${shown(pair)}`);
}

/**
 * Resilient propagation (Riedmiller & Braun 1993), for whole batches. Each element has a step of its own, which grows while its gradient keeps
 * its sign. Where the sign changed, the step shrinks and the element stays. `lr` is the first step. Weight decay is added to the gradient.
 */
export class Rprop extends Optimizer {
  #etas;
  #sizes;

  /**
   * @param {Iterable<Parameter> | Group[]} params
   * @param {Options & RpropOptions} [options] lr 1e-2, etas [0.5, 1.2], stepSizes [1e-6, 50]
   */
  constructor(params, options = {}) {
    const { etas = [0.5, 1.2], stepSizes = [1e-6, 50], ...rest } = checkOptions('Rprop', options, [...OPTIONS, 'etas', 'stepSizes']);
    checkPair('etas', etas, (low, high) => low > 0 && low < 1 && high > 1, 'a number in (0, 1) and one above 1');
    checkPair('stepSizes', stepSizes, (low, high) => low >= 0 && low <= high, 'two numbers of at least 0 in order');
    super(params, settingsOf(rest, 1e-2), {}, 2);
    this.#etas = etas;
    this.#sizes = stepSizes;
    for (const group of this.groups) for (const bucket of group.buckets) this.moments.get(bucket)?.[1].fill_(group.lr);
  }

  /** @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run */
  update(group, bucket, run) {
    this.change('rprop', group, bucket, run, [...this.#etas, ...this.#sizes], (p, values) => {
      const { parameter, moments, numbers } = values;
      const [down, up, least, most] = numbers;
      const { sub, mul, max } = arithmetic(p);
      const [zero, one] = [p.constant(0), p.constant(1)];
      const g = decayed(p, values);
      // By signs: the product of two small gradients may be 0.
      const turn = mul(p.append('sign', g), p.append('sign', moments[0]));
      const factor = p.append('select', p.append('gt', turn, zero), up, p.append('select', p.append('lt', turn, zero), down, one));
      const size = p.append('min', max(mul(moments[1], factor), least), most);
      const kept = p.append('select', p.append('lt', turn, zero), zero, g);
      return [sub(parameter, mul(p.append('sign', kept), size)), kept, size];
    });
  }
}

/**
 * Averaged stochastic gradient descent (Polyak & Juditsky 1992), as PyTorch's: p = (1 - lambd · η) p - η g with η = lr / (1 + lambd · lr · (t - 1))
 * to the power alpha. The moment `first` of `stateDict()` is the average of p from step t0 on, and p before. Weight decay is added to the gradient.
 */
export class ASGD extends Optimizer {
  #numbers;

  /**
   * @param {Iterable<Parameter> | Group[]} params
   * @param {Options & AsgdOptions} [options] lr 1e-2, lambd 1e-4, alpha 0.75, t0 1e6
   */
  constructor(params, options = {}) {
    const { lambd = 1e-4, alpha = 0.75, t0 = 1e6, ...rest } = checkOptions('ASGD', options, [...OPTIONS, 'lambd', 'alpha', 't0']);
    checkLeast('lambd', lambd, 'ASGD');
    checkFinite('ASGD', 'alpha', alpha);
    checkLeast('t0', t0, 'ASGD');
    super(params, settingsOf(rest, 1e-2), {}, 1);
    this.#numbers = { lambd, alpha, t0 };
  }

  /** The rate of this step, and the share of the parameter in the average. @param {ParameterGroup} group */
  begin(group) {
    const { lambd, alpha, t0 } = this.#numbers;
    shared(
      `asgd rate ${lambd} ${alpha} ${t0}`,
      group,
      [STATE.step, STATE.rate],
      (p, [step, rate]) => {
        const { add, sub, mul, div, max } = arithmetic(p);
        const one = p.constant(1);
        const before = sub(p.append('toF32', step), one);
        const base = add(one, mul(mul(p.constant(lambd), rate), before));
        return [div(rate, p.append('pow', base, p.constant(alpha))), div(one, max(one, sub(before, p.constant(t0))))];
      },
      2,
    );
  }

  /** @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run */
  update(group, bucket, run) {
    this.change(
      'asgd',
      group,
      bucket,
      run,
      [this.#numbers.lambd],
      (p, values) => {
        const { parameter, moments, numbers, words } = values;
        const [eta, share] = words;
        const { add, sub, mul } = arithmetic(p);
        const one = p.constant(1);
        const g = decayed(p, values);
        const next = sub(mul(parameter, sub(one, mul(numbers[0], eta))), mul(eta, g));
        const average = add(moments[0], mul(sub(next, moments[0]), share));
        return [next, p.append('select', p.append('eq', share, one), next, average)];
      },
      [STATE.own, STATE.own + 1],
    );
  }
}
