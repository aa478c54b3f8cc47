// Optimizers that scale each element's step by its own gradients, with PyTorch's formulas and defaults. Each is one generated kernel.

import { STATE } from '../../kernels/index.mjs';
import { map } from '../core/codegen.mjs';
import { layoutOf } from '../core/layout.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { runtime } from '../core/runtime.mjs';
import { checkFraction, checkLeast } from './check.mjs';
import { OPTIONS, Optimizer, launch, settingsOf, storageOf } from './optimizer.mjs';

/** @typedef {import('./bucket.mjs').Bucket} Bucket */
/** @typedef {import('./bucket.mjs').Run} Run */
/** @typedef {import('./optimizer.mjs').AdamOptions} AdamOptions */
/** @typedef {import('./optimizer.mjs').Group} Group */
/** @typedef {import('./optimizer.mjs').Options} Options */
/** @typedef {import('./optimizer.mjs').Program} Program */
/** @typedef {import('./optimizer.mjs').StepValues} StepValues */
/** @typedef {import('./optimizer.mjs').Value} Value */
/** @typedef {import('./group.mjs').ParameterGroup} ParameterGroup */
/** @typedef {import('../modules/module.mjs').Parameter} Parameter */

/**
 * A further option of `Adam` and `AdamW`.
 * @typedef {object} AmsgradOptions
 * @property {boolean} [amsgrad] whether the step is divided by the largest v so far (Reddi et al. 2018); false when left out
 */

/**
 * Options of `NAdam` and `RAdam` besides those of `AdamW`.
 * @typedef {object} DecoupledOptions
 * @property {boolean} [decoupledWeightDecay] whether weight decay is applied to the parameter, as AdamW does, instead of the gradient; false
 *   when left out
 */

/**
 * Options of `NAdam` besides these.
 * @typedef {object} MomentumDecayOptions
 * @property {number} [momentumDecay] how fast the momentum grows to β₁; 4e-3 when left out
 */

/**
 * Options of `RMSprop` besides those of every optimizer.
 * @typedef {object} RmsOptions
 * @property {number} [alpha] the decay rate of the running mean of squares, in [0, 1); 0.99 when left out
 * @property {number} [eps] added to the root that the step is divided by; 1e-8 when left out
 * @property {number} [momentum] the factor on the last step; 0 when left out, which needs no memory for it
 * @property {boolean} [centered] whether the square of the running mean of gradients is subtracted (Graves 2013); false when left out
 */

/**
 * Options of `Adagrad` besides those of every optimizer.
 * @typedef {object} AdagradOptions
 * @property {number} [lrDecay] the rate of step t is lr / (1 + (t - 1) · lrDecay); 0 when left out
 * @property {number} [initialAccumulator] what the sums of squares begin with; 0 when left out
 * @property {number} [eps] added to the root that the step is divided by; 1e-10 when left out
 */

/**
 * Options of `Adadelta` besides those of every optimizer.
 * @typedef {object} AdadeltaOptions
 * @property {number} [rho] the decay rate of both running means, in [0, 1); 0.9 when left out
 * @property {number} [eps] added to both means before their roots; 1e-6 when left out
 */

/** The arithmetic of a program. @param {Program} p */
export const arithmetic = (p) => ({
  add: (/** @type {Value} */ a, /** @type {Value} */ b) => p.append('add', a, b),
  sub: (/** @type {Value} */ a, /** @type {Value} */ b) => p.append('sub', a, b),
  mul: (/** @type {Value} */ a, /** @type {Value} */ b) => p.append('mul', a, b),
  div: (/** @type {Value} */ a, /** @type {Value} */ b) => p.append('div', a, b),
  max: (/** @type {Value} */ a, /** @type {Value} */ b) => p.append('max', a, b),
  sqrt: (/** @type {Value} */ a) => p.append('sqrt', a),
});

/** The gradient with weight decay added. @param {Program} p @param {StepValues} values */
export const decayed = (p, { parameter, gradient, decay }) =>
  decay === undefined ? gradient : p.append('add', gradient, p.append('mul', parameter, decay));

/**
 * The parameter and the gradient with weight decay applied to one of them. @param {Program} p @param {StepValues} values
 * @param {boolean} decoupled whether to the parameter
 */
function withDecay(p, values, decoupled) {
  const { parameter, gradient, rate, decay } = values;
  if (!decoupled || decay === undefined) return { parameter, gradient: decayed(p, values) };
  return { parameter: p.append('sub', parameter, p.append('mul', parameter, p.append('mul', rate, decay))), gradient };
}

/**
 * Computes numbers that all elements of a group share, and writes them into the optimizer's own words of the state.
 * @param {string} name of the kernel @param {ParameterGroup} group @param {number[]} words of the state that are read
 * @param {(p: Program, words: Value[]) => Value[]} body the values of the first own words
 * @param {number} results how many
 */
export function shared(name, group, words, body, results) {
  const word = (/** @type {number} */ buffer, /** @type {number} */ at, /** @type {'f32' | 'u32'} */ dtype) => ({
    buffer,
    offset: at,
    layout: layoutOf([1], [1], at, dtype),
  });
  launch(`${name}/`, [storageOf(group.state)], ([state]) => {
    const inputs = words.map((at) => word(state, at, at === STATE.step ? 'u32' : 'f32'));
    const outputs = Array.from({ length: results }, (_, i) => word(state, STATE.own + i, 'f32'));
    return [/** @type {import('../../kernels/base.mjs').Dispatch} */ (map(runtime().kernels.context, inputs, outputs, body))];
  });
}

/**
 * The step of `Adam` and, with decoupled weight decay, of `AdamW`.
 * @param {Optimizer} optimizer @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run
 * @param {{ amsgrad: boolean, decoupled: boolean }} form with `amsgrad` a third moment is the largest v so far
 */
export function adamStep(optimizer, group, bucket, run, { amsgrad, decoupled }) {
  const words = [STATE.beta1, STATE.oneMinusBeta1, STATE.beta2, STATE.oneMinusBeta2, STATE.correction1, STATE.correction2, STATE.epsilon];
  optimizer.change(
    `adam${decoupled ? ' decoupled' : ''}${amsgrad ? ' amsgrad' : ''}`,
    group,
    bucket,
    run,
    [],
    (p, values) => {
      const { moments, rate, words } = values;
      const [beta1, rest1, beta2, rest2, correction1, correction2, eps] = words;
      const { add, sub, mul, div, max, sqrt } = arithmetic(p);
      const { parameter, gradient: g } = withDecay(p, values, decoupled);
      const first = add(mul(moments[0], beta1), mul(g, rest1));
      const second = add(mul(moments[1], beta2), mul(mul(g, g), rest2));
      const largest = amsgrad ? [max(moments[2], second)] : [];
      const [over = second] = largest;
      const root = add(sqrt(div(over, correction2)), eps);
      return [sub(parameter, mul(rate, div(div(first, correction1), root))), first, second, ...largest];
    },
    words,
  );
}

/**
 * Adam (Kingma & Ba 2015): AdamW whose weight decay is added to the gradient. With `amsgrad` the largest v̂ so far takes v̂'s place.
 */
export class Adam extends Optimizer {
  #amsgrad;

  /**
   * @param {Iterable<Parameter> | Group[]} params
   * @param {Options & AdamOptions & AmsgradOptions} [options] lr 1e-3, betas [0.9, 0.999], eps 1e-8, weightDecay 0
   */
  constructor(params, options = {}) {
    const {
      betas = [0.9, 0.999],
      eps = 1e-8,
      amsgrad = false,
      ...rest
    } = checkOptions('Adam', options, [...OPTIONS, 'betas', 'eps', 'amsgrad']);
    checkLeast('eps', eps, 'Adam');
    flag('Adam', 'amsgrad', amsgrad);
    super(params, settingsOf(rest, 1e-3), { betas, eps, groupOptions: ['betas', 'eps'] }, amsgrad ? 3 : 2);
    this.#amsgrad = amsgrad;
  }

  /** @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run */
  update(group, bucket, run) {
    adamStep(this, group, bucket, run, { amsgrad: this.#amsgrad, decoupled: false });
  }
}

/** Adamax (Kingma & Ba 2015): u = max(β₂ u, |g| + eps), p = p - lr · m / ((1 - β₁ᵗ) u). Weight decay is added to the gradient. */
export class Adamax extends Optimizer {
  /**
   * @param {Iterable<Parameter> | Group[]} params
   * @param {Options & AdamOptions} [options] lr 2e-3, betas [0.9, 0.999], eps 1e-8, weightDecay 0
   */
  constructor(params, options = {}) {
    const { betas = [0.9, 0.999], eps = 1e-8, ...rest } = checkOptions('Adamax', options, [...OPTIONS, 'betas', 'eps']);
    checkLeast('eps', eps, 'Adamax');
    super(params, settingsOf(rest, 2e-3), { betas, eps }, 2);
  }

  /** @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run */
  update(group, bucket, run) {
    const words = [STATE.beta1, STATE.oneMinusBeta1, STATE.beta2, STATE.correction1, STATE.epsilon];
    this.change(
      'adamax',
      group,
      bucket,
      run,
      [],
      (p, values) => {
        const { parameter, moments, rate, words } = values;
        const [beta1, rest1, beta2, correction1, eps] = words;
        const { add, sub, mul, div, max } = arithmetic(p);
        const g = decayed(p, values);
        const first = add(mul(moments[0], beta1), mul(g, rest1));
        const largest = max(mul(moments[1], beta2), add(p.append('abs', g), eps));
        return [sub(parameter, mul(div(rate, correction1), div(first, largest))), first, largest];
      },
      words,
    );
  }
}

/**
 * NAdam (Dozat 2016): Adam with Nesterov momentum μ = β₁ (1 - 0.96^(t · momentumDecay) / 2), as PyTorch computes it. The product of all μ so far is
 * in the state.
 */
export class NAdam extends Optimizer {
  #beta1;
  #decay;
  #decoupled;

  /**
   * @param {Iterable<Parameter> | Group[]} params
   * @param {Options & AdamOptions & DecoupledOptions & MomentumDecayOptions} [options] lr 2e-3, betas [0.9, 0.999], eps 1e-8, weightDecay 0
   */
  constructor(params, options = {}) {
    const known = /** @type {const} */ ([...OPTIONS, 'betas', 'eps', 'momentumDecay', 'decoupledWeightDecay']);
    const {
      betas = [0.9, 0.999],
      eps = 1e-8,
      momentumDecay = 4e-3,
      decoupledWeightDecay = false,
      ...rest
    } = checkOptions('NAdam', options, known);
    checkLeast('eps', eps, 'NAdam');
    checkLeast('momentumDecay', momentumDecay, 'NAdam');
    flag('NAdam', 'decoupledWeightDecay', decoupledWeightDecay);
    const begin = (/** @type {Uint32Array} */ words, /** @type {number} */ step) => {
      let product = 1;
      // It becomes 0 soon.
      for (let t = 1; t <= step && product > 0; t++) product = Math.fround(product * betas[0] * (1 - 0.5 * 0.96 ** (t * momentumDecay)));
      words.set(new Uint32Array(Float32Array.of(product).buffer), STATE.own);
    };
    super(params, settingsOf(rest, 2e-3), { betas, eps, begin }, 2);
    this.#beta1 = betas[0];
    this.#decay = momentumDecay;
    this.#decoupled = decoupledWeightDecay;
  }

  /** The product of all μ, and the factors of the gradient and of m. @param {ParameterGroup} group */
  begin(group) {
    const words = [STATE.step, STATE.own, STATE.clip];
    const [beta1, exponent, { clips }] = [this.#beta1, this.#decay * Math.log2(0.96), this];
    shared(
      `nadam numbers ${beta1} ${exponent}${clips ? ' clips' : ''}`,
      group,
      words,
      (p, [step, product, clip]) => {
        const { add, sub, mul, div } = arithmetic(p);
        const one = p.constant(1);
        const t = p.append('toF32', step);
        const momentum = (/** @type {Value} */ at) =>
          mul(p.constant(beta1), sub(one, mul(p.constant(0.5), p.append('exp2', mul(at, p.constant(exponent))))));
        const [now, next] = [momentum(t), momentum(add(t, one))];
        const all = mul(product, now);
        const kept = clips ? p.append('select', p.append('ne', clip, p.constant(0)), all, product) : all;
        return [kept, div(sub(one, now), sub(one, all)), div(next, sub(one, mul(all, next)))];
      },
      3,
    );
  }

  /** @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run */
  update(group, bucket, run) {
    const words = [STATE.beta1, STATE.oneMinusBeta1, STATE.beta2, STATE.oneMinusBeta2, STATE.correction2, STATE.epsilon];
    const decoupled = this.#decoupled;
    this.change(
      decoupled ? 'nadam decoupled' : 'nadam',
      group,
      bucket,
      run,
      [],
      (p, values) => {
        const { moments, rate, words } = values;
        const [beta1, rest1, beta2, rest2, correction2, eps, ofGradient, ofFirst] = words;
        const { add, sub, mul, div, sqrt } = arithmetic(p);
        const { parameter, gradient } = withDecay(p, values, decoupled);
        const first = add(mul(moments[0], beta1), mul(gradient, rest1));
        const second = add(mul(moments[1], beta2), mul(mul(gradient, gradient), rest2));
        const root = add(sqrt(div(second, correction2)), eps);
        const direction = div(add(mul(gradient, ofGradient), mul(first, ofFirst)), root);
        return [sub(parameter, mul(rate, direction)), first, second];
      },
      [...words, STATE.own + 1, STATE.own + 2],
    );
  }
}

/**
 * RAdam (Liu et al. 2020): Adam whose steps are not divided by √v̂ until its variance is known, and then times the rectification r:
 * p = p - lr · m̂ · r · √(1 - β₂ᵗ) / (√v + eps), as in PyTorch.
 */
export class RAdam extends Optimizer {
  #beta2;
  #decoupled;

  /**
   * @param {Iterable<Parameter> | Group[]} params
   * @param {Options & AdamOptions & DecoupledOptions} [options] lr 1e-3, betas [0.9, 0.999], eps 1e-8, weightDecay 0
   */
  constructor(params, options = {}) {
    const known = /** @type {const} */ ([...OPTIONS, 'betas', 'eps', 'decoupledWeightDecay']);
    const { betas = [0.9, 0.999], eps = 1e-8, decoupledWeightDecay = false, ...rest } = checkOptions('RAdam', options, known);
    checkLeast('eps', eps, 'RAdam');
    flag('RAdam', 'decoupledWeightDecay', decoupledWeightDecay);
    super(params, settingsOf(rest, 1e-3), { betas, eps }, 2);
    this.#beta2 = betas[1];
    this.#decoupled = decoupledWeightDecay;
  }

  /** The factor of m̂ / (√v + eps), 0 while the step is not divided. @param {ParameterGroup} group */
  begin(group) {
    const beta2 = this.#beta2;
    const [infinite, lambda] = [2 / (1 - beta2) - 1, -Math.log(beta2)];
    shared(
      `radam numbers ${beta2}`,
      group,
      [STATE.step, STATE.correction2],
      (p, [step, correction2]) => {
        const { add, sub, mul, div, sqrt } = arithmetic(p);
        const number = (/** @type {number} */ value) => p.constant(value);
        const t = p.append('toF32', step);
        // ρ = ρ∞ - 2 t βᵗ / (1 - βᵗ). The difference of two large numbers at first: there by the series of t βᵗ / (1 - βᵗ), with z = -t log β.
        const z = mul(t, number(lambda));
        const square = mul(z, z);
        const series = mul(square, add(number(1 / 12), mul(square, add(number(-1 / 720), mul(square, number(1 / 30240))))));
        const early = sub(add(number(infinite - 2 / lambda), t), mul(number(2 / lambda), series));
        const late = sub(number(infinite), div(mul(mul(number(2), t), sub(number(1), correction2)), correction2));
        const rho = p.append('select', p.append('lt', z, number(0.5)), early, late);
        const ratio = div(
          mul(mul(sub(rho, number(4)), sub(rho, number(2))), number(infinite)),
          mul(rho, number((infinite - 4) * (infinite - 2))),
        );
        const known = p.append('gt', rho, number(5));
        return [p.append('select', known, mul(sqrt(ratio), sqrt(correction2)), number(0))];
      },
      1,
    );
  }

  /** @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run */
  update(group, bucket, run) {
    const words = [STATE.beta1, STATE.oneMinusBeta1, STATE.beta2, STATE.oneMinusBeta2, STATE.correction1, STATE.epsilon, STATE.own];
    const decoupled = this.#decoupled;
    this.change(
      decoupled ? 'radam decoupled' : 'radam',
      group,
      bucket,
      run,
      [],
      (p, values) => {
        const { moments, rate, words } = values;
        const [beta1, rest1, beta2, rest2, correction1, eps, factor] = words;
        const { add, sub, mul, div, sqrt } = arithmetic(p);
        const { parameter, gradient } = withDecay(p, values, decoupled);
        const first = add(mul(moments[0], beta1), mul(gradient, rest1));
        const second = add(mul(moments[1], beta2), mul(mul(gradient, gradient), rest2));
        const mean = div(first, correction1);
        const rectified = div(mul(mean, factor), add(sqrt(second), eps));
        const known = p.append('gt', factor, p.constant(0));
        return [sub(parameter, mul(rate, p.append('select', known, rectified, mean))), first, second];
      },
      words,
    );
  }
}

/**
 * RMSprop (Tieleman & Hinton 2012), as PyTorch's: v = alpha v + (1 - alpha) g², d = g / (√v + eps), p = p - lr · d; with `momentum`
 * b = momentum · b + d takes d's place. Weight decay is added to the gradient.
 */
export class RMSprop extends Optimizer {
  #alpha;
  #eps;
  #momentum;
  #centered;

  /**
   * @param {Iterable<Parameter> | Group[]} params
   * @param {Options & RmsOptions} [options] lr 1e-2, alpha 0.99, eps 1e-8, weightDecay 0, momentum 0, centered false
   */
  constructor(params, options = {}) {
    const known = /** @type {const} */ ([...OPTIONS, 'alpha', 'eps', 'momentum', 'centered']);
    const { alpha = 0.99, eps = 1e-8, momentum = 0, centered = false, ...rest } = checkOptions('RMSprop', options, known);
    checkFraction('alpha', alpha, 'RMSprop');
    checkLeast('eps', eps, 'RMSprop');
    checkLeast('momentum', momentum, 'RMSprop');
    flag('RMSprop', 'centered', centered);
    super(params, settingsOf(rest, 1e-2), {}, 1 + Number(centered) + Number(momentum > 0));
    this.#alpha = alpha;
    this.#eps = eps;
    this.#momentum = momentum;
    this.#centered = centered;
  }

  /** @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run */
  update(group, bucket, run) {
    const [centered, momentum] = [this.#centered, this.#momentum];
    const numbers = [this.#alpha, 1 - this.#alpha, this.#eps, momentum];
    const name = `rmsprop${centered ? ' centered' : ''}${momentum > 0 ? ' momentum' : ''}`;
    this.change(name, group, bucket, run, numbers, (p, values) => {
      const { parameter, moments, rate } = values;
      const [alpha, rest, eps, factor] = values.numbers;
      const { add, sub, mul, div, sqrt } = arithmetic(p);
      const g = decayed(p, values);
      const squares = add(mul(moments[0], alpha), mul(mul(g, g), rest));
      const mean = centered ? [add(moments[1], mul(sub(g, moments[1]), rest))] : [];
      const variance = mean.reduce((v, m) => sub(v, mul(m, m)), squares);
      const direction = div(g, add(sqrt(variance), eps));
      const velocity = momentum > 0 ? [add(mul(/** @type {Value} */ (moments.at(-1)), factor), direction)] : [];
      return [sub(parameter, mul(rate, velocity[0] ?? direction)), squares, ...mean, ...velocity];
    });
  }
}

/** Adagrad (Duchi et al. 2011): s = s + g², p = p - lr / (1 + (t - 1) · lrDecay) · g / (√s + eps). Weight decay is added to the gradient. */
export class Adagrad extends Optimizer {
  #eps;
  #lrDecay;

  /**
   * @param {Iterable<Parameter> | Group[]} params
   * @param {Options & AdagradOptions} [options] lr 1e-2, lrDecay 0, weightDecay 0, initialAccumulator 0, eps 1e-10
   */
  constructor(params, options = {}) {
    const known = /** @type {const} */ ([...OPTIONS, 'lrDecay', 'initialAccumulator', 'eps']);
    const { lrDecay = 0, initialAccumulator = 0, eps = 1e-10, ...rest } = checkOptions('Adagrad', options, known);
    for (const [name, value] of Object.entries({ lrDecay, initialAccumulator, eps })) checkLeast(name, value, 'Adagrad');
    super(params, settingsOf(rest, 1e-2), {}, 1);
    this.#eps = eps;
    this.#lrDecay = lrDecay;
    if (initialAccumulator > 0) for (const moments of this.moments.values()) moments[0].fill_(initialAccumulator);
  }

  /** The rate of this step. @param {ParameterGroup} group */
  begin(group) {
    const decay = this.#lrDecay;
    shared(
      `adagrad rate ${decay}`,
      group,
      [STATE.step, STATE.rate],
      (p, [step, rate]) => {
        const { add, sub, mul, div } = arithmetic(p);
        const one = p.constant(1);
        return [div(rate, add(one, mul(sub(p.append('toF32', step), one), p.constant(decay))))];
      },
      1,
    );
  }

  /** @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run */
  update(group, bucket, run) {
    this.change(
      'adagrad',
      group,
      bucket,
      run,
      [this.#eps],
      (p, values) => {
        const { parameter, moments, numbers, words } = values;
        const { add, sub, mul, div, sqrt } = arithmetic(p);
        const g = decayed(p, values);
        const squares = add(moments[0], mul(g, g));
        return [sub(parameter, mul(words[0], div(g, add(sqrt(squares), numbers[0])))), squares];
      },
      [STATE.own],
    );
  }
}

/**
 * Adadelta (Zeiler 2012): v = rho v + (1 - rho) g², d = √(a + eps) / √(v + eps) · g, a = rho a + (1 - rho) d², p = p - lr · d. Weight decay is
 * added to the gradient.
 */
export class Adadelta extends Optimizer {
  #rho;
  #eps;

  /**
   * @param {Iterable<Parameter> | Group[]} params
   * @param {Options & AdadeltaOptions} [options] lr 1, rho 0.9, eps 1e-6, weightDecay 0
   */
  constructor(params, options = {}) {
    const { rho = 0.9, eps = 1e-6, ...rest } = checkOptions('Adadelta', options, [...OPTIONS, 'rho', 'eps']);
    checkFraction('rho', rho, 'Adadelta');
    checkLeast('eps', eps, 'Adadelta');
    super(params, settingsOf(rest, 1), {}, 2);
    this.#rho = rho;
    this.#eps = eps;
  }

  /** @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run */
  update(group, bucket, run) {
    this.change('adadelta', group, bucket, run, [this.#rho, 1 - this.#rho, this.#eps], (p, values) => {
      const { parameter, moments, rate } = values;
      const [rho, rest, eps] = values.numbers;
      const { add, sub, mul, div, sqrt } = arithmetic(p);
      const g = decayed(p, values);
      const squares = add(mul(moments[0], rho), mul(mul(g, g), rest));
      const direction = mul(div(sqrt(add(moments[1], eps)), sqrt(add(squares, eps))), g);
      return [sub(parameter, mul(rate, direction)), squares, add(mul(moments[1], rho), mul(mul(direction, direction), rest))];
    });
  }
}
