// Optimizers that look at a whole matrix at a time: operations on the tensors of each parameter, which `compile` fuses.

import { STATE } from '../../kernels/index.mjs';
import * as F from '../api/functional.mjs';
import { withoutAutocast } from '../api/autocast.mjs';
import { Tensor } from '../api/tensor.mjs';
import { ArgumentError, show, shown } from '../core/errors.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { unscoped } from '../core/storage.mjs';
import { stateWord } from './bucket.mjs';
import { checkFraction, checkLeast } from './check.mjs';
import { OPTIONS, Optimizer, settingsOf } from './optimizer.mjs';

/** @typedef {import('./bucket.mjs').Bucket} Bucket */
/** @typedef {import('./bucket.mjs').Run} Run */
/** @typedef {import('./optimizer.mjs').Group} Group */
/** @typedef {import('./optimizer.mjs').Options} Options */
/** @typedef {import('./group.mjs').ParameterGroup} ParameterGroup */
/** @typedef {import('./group.mjs').Settings} Settings */
/** @typedef {import('../modules/module.mjs').Parameter} Parameter */

/**
 * Options of `Muon` besides those of every optimizer.
 * @typedef {object} MuonOptions
 * @property {number} [momentum] the decay rate of the running mean of gradients, in [0, 1); 0.95 when left out
 * @property {boolean} [nesterov] whether the step uses Nesterov momentum; true when left out
 * @property {number} [steps] Newton-Schulz iterations; 5 when left out
 * @property {[number, number, number]} [coefficients] of an iteration; [3.4445, -4.775, 2.0315] when left out
 * @property {number} [eps] the least norm that a matrix is divided by; 1e-7 when left out
 * @property {'original' | 'matchRmsAdamw'} [adjustLr] the factor on the rate of a matrix: √max(1, rows / columns), or 0.2 √max(rows, columns),
 *   which lets rates and weight decays of AdamW be used (Liu et al. 2025); 'original' when left out
 * @property {[number, number]} [betas] of the groups without Muon, as AdamW's; [0.9, 0.95] when left out
 * @property {number} [adamEps] of the groups without Muon, as AdamW's eps; 1e-8 when left out
 */

/**
 * A group of `Muon`. @typedef {Group & MuonGroupOptions} MuonGroup
 */
/**
 * What a group of `Muon` may have besides what every group may have.
 * @typedef {object} MuonGroupOptions
 * @property {boolean} [muon] false for parameters that AdamW updates: embeddings, heads, norms, biases; true when left out, which takes
 *   matrices only
 */

/**
 * Options of `Adafactor` besides those of every optimizer.
 * @typedef {object} AdafactorOptions
 * @property {number} [beta2Decay] the running means of squares are weighted by 1 - t to this power; -0.8 when left out
 * @property {[number, number]} [eps] the least root of a mean of squares, and the least scale of a parameter; [2⁻²³, 1e-3] when left out
 * @property {number} [d] the largest root mean square of a step before the rate; 1 when left out
 */

/** Numbers of the state that a step on tensors reads. @param {Optimizer} optimizer @param {ParameterGroup} group */
function numbersOf({ scales, clips }, group) {
  const word = (/** @type {number} */ at) => stateWord(group.state, at);
  const clip = scales ? word(STATE.clip) : undefined;
  return {
    rate: word(STATE.rate),
    decay: group.decays ? word(STATE.decay) : undefined,
    gradient: (/** @type {Tensor} */ g) => (clip ? F.mul(g, clip) : g),
    // A skipped step keeps the old values; it does not multiply by 0, since 0 · NaN is NaN.
    write: (/** @type {Tensor} */ to, /** @type {Tensor} */ value) =>
      void to.copy_(clips && clip ? F.where(F.ne(clip, 0), value, to) : value),
  };
}

/** The options without those that shard a step: each process updates whole matrices. @param {string} op @param {Options} options */
function unsharded(op, { zero, ...rest }) {
  if (rest.processGroup === undefined) return zero === undefined ? rest : { ...rest, zero };
  if (zero !== undefined && zero !== 0)
    throw new ArgumentError(op, `zero must be 0, since a step needs whole matrices, got ${shown(zero)}`);
  return { ...rest, zero: /** @type {const} */ (0) };
}

/** The parameters of a bucket that lie in a range, with their first elements. @param {Bucket} bucket @param {Run} run */
const within = (bucket, { offset, count }) =>
  bucket.parameters.flatMap((parameter, i) => {
    const first = bucket.offsets[i];
    return first >= offset && first < offset + count ? [{ parameter, first }] : [];
  });

/**
 * Muon (Jordan et al. 2024), as PyTorch's: the running mean of a matrix's gradients is replaced by the nearest orthogonal matrix, found by
 * Newton-Schulz iterations, in f32. p = p (1 - lr · weightDecay) - lr · factor · O. It is for the matrices inside of a network. The other
 * parameters go into groups with `muon: false`, which AdamW updates with these groups' `lr` and `weightDecay`.
 */
export class Muon extends Optimizer {
  #options;

  /**
   * @param {Iterable<Parameter> | MuonGroup[]} params
   * @param {Options & MuonOptions} [options] lr 1e-3, weightDecay 0.1
   */
  constructor(params, options = {}) {
    const own = /** @type {const} */ (['momentum', 'nesterov', 'steps', 'coefficients', 'eps', 'adjustLr', 'betas', 'adamEps']);
    const {
      momentum = 0.95,
      nesterov = true,
      steps = 5,
      coefficients = [3.4445, -4.775, 2.0315],
      eps = 1e-7,
      adjustLr = 'original',
      betas = [0.9, 0.95],
      adamEps = 1e-8,
      ...rest
    } = checkOptions('Muon', options, [...OPTIONS, ...own]);
    checkFraction('momentum', momentum, 'Muon');
    flag('Muon', 'nesterov', nesterov);
    if (!Number.isInteger(steps) || steps < 1 || steps > 100)
      throw new ArgumentError('Muon', `steps must be an integer from 1 to 100, got ${shown(steps)}`);
    if (!Array.isArray(coefficients) || coefficients.length !== 3 || !coefficients.every((c) => Number.isFinite(c)))
      throw new ArgumentError('Muon', `coefficients must be three numbers, got ${shown(coefficients)}`);
    checkLeast('eps', eps, 'Muon');
    if (adjustLr !== 'original' && adjustLr !== 'matchRmsAdamw')
      throw new ArgumentError('Muon', `adjustLr is 'original' or 'matchRmsAdamw', got ${shown(adjustLr)}`);
    checkLeast('adamEps', adamEps, 'Muon');
    super(
      checkedGroups(params),
      settingsOf(unsharded('Muon', rest), 1e-3, 0.1),
      { betas, eps: adamEps, groupOptions: ['muon'] },
      (settings) => (usesMuon(settings) ? 1 : 2),
    );
    this.#options = { momentum, nesterov, steps, coefficients: /** @type {number[]} */ (coefficients), eps, adjustLr };
  }

  /** @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run */
  update(group, bucket, run) {
    if (!usesMuon(group.settings)) return this.#adamw(group, bucket, run);
    const { momentum, nesterov, adjustLr } = this.#options;
    const { rate, decay, gradient, write } = numbersOf(this, group);
    const [means] = this.momentsOf(bucket, 1);
    withoutAutocast(() => {
      for (const { parameter, first } of within(bucket, run)) {
        const { shape } = parameter;
        const [p, mean, raw] = [bucket.values, means, bucket.gradients].map((flat) => bucket.view(flat, shape, first));
        const g = gradient(raw);
        const next = F.add(F.mul(mean, momentum), F.mul(g, 1 - momentum));
        const direction = this.#orthogonal(nesterov ? F.add(F.mul(g, 1 - momentum), F.mul(next, momentum)) : next);
        const [rows, columns] = shape;
        const factor = adjustLr === 'original' ? Math.sqrt(Math.max(1, rows / columns)) : 0.2 * Math.sqrt(Math.max(rows, columns));
        const kept = decay ? F.sub(p, F.mul(p, F.mul(rate, decay))) : p;
        write(p, F.sub(kept, F.mul(direction, F.mul(rate, factor))));
        write(mean, next);
      }
    });
  }

  /** About the nearest orthogonal matrix: singular values near 1. @param {Tensor} x [rows, columns] @returns {Tensor} */
  #orthogonal(x) {
    const { steps, coefficients, eps } = this.#options;
    const [a, b, c] = coefficients;
    const tall = x.shape[0] > x.shape[1];
    let own = tall ? F.transpose(x, 0, 1) : x;
    own = F.div(own, F.maximum(F.sqrt(F.sum(F.square(own))), eps));
    for (let i = 0; i < steps; i++) {
      const gram = F.matmul(own, F.transpose(own, 0, 1));
      const both = F.add(F.mul(gram, b), F.mul(F.matmul(gram, gram), c));
      own = F.add(F.mul(own, a), F.matmul(both, own));
    }
    return tall ? F.transpose(own, 0, 1) : own;
  }

  /** @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run */
  #adamw(group, bucket, run) {
    const words = [STATE.beta1, STATE.oneMinusBeta1, STATE.beta2, STATE.oneMinusBeta2, STATE.correction1, STATE.correction2, STATE.epsilon];
    this.change(
      'muon adamw',
      group,
      bucket,
      run,
      [],
      (p, { parameter, gradient, moments, rate, decay, words }) => {
        const [beta1, rest1, beta2, rest2, correction1, correction2, eps] = words;
        const [add, mul, div] = /** @type {const} */ (['add', 'mul', 'div']).map((op) => p.append.bind(p, op));
        const first = add(mul(moments[0], beta1), mul(gradient, rest1));
        const second = add(mul(moments[1], beta2), mul(mul(gradient, gradient), rest2));
        const kept = decay === undefined ? parameter : p.append('sub', parameter, mul(parameter, mul(rate, decay)));
        const root = add(p.append('sqrt', div(second, correction2)), eps);
        return [p.append('sub', kept, mul(rate, div(div(first, correction1), root))), first, second];
      },
      words,
    );
  }
}

/** Whether Muon updates a group. @param {Settings} settings */
const usesMuon = (settings) => /** @type {Settings & MuonGroupOptions} */ (settings).muon !== false;

/** Checks what Muon updates. @param {Iterable<Parameter> | MuonGroup[]} params @returns {Iterable<Parameter> | MuonGroup[]} */
function checkedGroups(params) {
  if (typeof params !== 'object' || params === null || !(Symbol.iterator in params)) return params;
  /** @type {(Parameter | MuonGroup)[]} */
  const list = [...params];
  const groups = /** @type {MuonGroup[]} */ (list[0] instanceof Tensor ? [{ params: list }] : list);
  return groups.map((group) => {
    if (typeof group !== 'object' || group === null) return group;
    const { params: own, muon = true } = group;
    flag('Muon', 'muon', muon);
    // An iterator gives its parameters once.
    const parameters = typeof own === 'object' && own !== null && Symbol.iterator in own ? [...own] : own;
    if (muon && Array.isArray(parameters)) {
      const other = parameters.find((parameter) => parameter instanceof Tensor && parameter.ndim !== 2);
      if (other)
        throw new ArgumentError('Muon', `takes matrices, got a parameter ${show(other.shape)}: put it into a group with muon: false`);
    }
    return { ...group, params: parameters };
  });
}

/** The names of Adafactor's tensors in a state. */
const FACTORS = ['row', 'column', 'variance'];

/**
 * Adafactor (Shazeer & Stern 2018), as PyTorch's: the running mean of a matrix's squared gradients is kept as that of its rows and that of its
 * columns, rows + columns numbers instead of rows · columns. The rate is min(lr, 1 / √t) times the root mean square of the parameter. A
 * parameter of one dimension keeps the mean of all squares. Tensors of more dimensions are matrices of the last two.
 */
export class Adafactor extends Optimizer {
  #options;
  /** The running means of each parameter: of rows and columns, or of all. @type {Map<Parameter, Tensor[]>} */
  #means = new Map();

  /**
   * @param {Iterable<Parameter> | Group[]} params
   * @param {Options & AdafactorOptions} [options] lr 1e-2, weightDecay 0
   */
  constructor(params, options = {}) {
    const {
      beta2Decay = -0.8,
      eps = [2 ** -23, 1e-3],
      d = 1,
      ...rest
    } = checkOptions('Adafactor', options, [...OPTIONS, 'beta2Decay', 'eps', 'd']);
    if (typeof beta2Decay !== 'number' || !(beta2Decay <= 0 && beta2Decay > -Infinity))
      throw new ArgumentError('Adafactor', `beta2Decay must be a number of at most 0, got ${shown(beta2Decay)}`);
    if (!Array.isArray(eps) || eps.length !== 2) throw new ArgumentError('Adafactor', `eps must be two numbers, got ${shown(eps)}`);
    eps.forEach((value, i) => {
      checkLeast(`eps[${i}]`, value, 'Adafactor');
    });
    if (typeof d !== 'number' || !(d > 0 && d < Infinity))
      throw new ArgumentError('Adafactor', `d must be a number above 0, got ${shown(d)}`);
    super(params, settingsOf(unsharded('Adafactor', rest), 1e-2));
    this.#options = { beta2Decay, eps, d };
    unscoped(() => {
      for (const { parameters } of this.buckets) {
        for (const parameter of parameters) {
          const { shape, ndim } = parameter;
          const shapes = ndim > 1 ? [shape.with(-1, 1), shape.with(-2, 1)] : [shape];
          this.#means.set(
            parameter,
            shapes.map((own) => F.zeros(own)),
          );
        }
      }
    });
  }

  /** @returns {Tensor[]} */
  written() {
    return [...super.written(), ...[...this.#means.values()].flat()];
  }

  /** @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run */
  update(group, bucket, run) {
    const { beta2Decay, eps, d } = this.#options;
    const { rate, decay, gradient, write } = numbersOf(this, group);
    const words = /** @type {import('../core/storage.mjs').Storage} */ (group.state.storage);
    const step = F.to(new Tensor(words, { ...stateWord(group.state, STATE.step).layout, dtype: 'u32' }), 'f32');
    const rest = F.pow(step, beta2Decay);
    const bounded = F.minimum(rate, F.rsqrt(step));
    const size = (/** @type {Tensor} */ x) => F.sqrt(F.mean(F.square(x)));
    for (const { parameter, first } of within(bucket, run)) {
      const [p, raw] = [bucket.values, bucket.gradients].map((flat) => bucket.view(flat, parameter.shape, first));
      const g = gradient(raw);
      const means = /** @type {Tensor[]} */ (this.#means.get(parameter));
      const squares = F.square(g);
      const now = means.length === 1 ? [squares] : [F.mean(squares, -1, true), F.mean(squares, -2, true)];
      const next = means.map((mean, i) => F.add(mean, F.mul(F.sub(now[i], mean), rest)));
      const estimate = next.length === 1 ? next[0] : F.div(F.mul(next[0], next[1]), F.maximum(F.mean(next[0], -2, true), eps[0]));
      // PyTorch's least value is eps², which f32 may not hold: its root is taken before.
      const update = F.div(g, F.maximum(F.sqrt(estimate), eps[0]));
      const alpha = F.mul(F.maximum(size(p), eps[1]), bounded);
      const over = F.maximum(F.mul(size(update), 1 / d), 1);
      const kept = decay ? F.sub(p, F.mul(p, F.mul(rate, decay))) : p;
      write(p, F.sub(kept, F.mul(update, F.div(alpha, over))));
      for (const [i, mean] of means.entries()) write(mean, next[i]);
    }
  }

  /** The running means: `0.3.row` and `0.3.column`, or `0.3.variance`. @returns {Record<string, Tensor>} */
  further() {
    return Object.fromEntries(
      this.groups.flatMap(({ buckets }, g) =>
        buckets
          .flatMap(({ parameters }) => parameters)
          .flatMap((parameter, i) => {
            const means = this.#means.get(parameter) ?? [];
            return means.map((mean, m) => [`${g}.${i}.${FACTORS[means.length === 1 ? 2 : m]}`, mean]);
          }),
      ),
    );
  }

  /** Frees the optimizer's state. The parameters keep their values. */
  dispose() {
    super.dispose();
    for (const mean of [...this.#means.values()].flat()) mean.dispose();
  }
}
