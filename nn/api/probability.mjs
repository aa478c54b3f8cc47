// Distributions as objects, with the names of torch.distributions: samples, logarithms of probabilities, entropies, divergences. Parameters may
// have gradients. Whether they are ones of a distribution is not checked, which would need a read.

import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, UsageError, show, shown, within } from '../core/errors.mjs';
import { broadcastShapes, checkShape, isFloat, sizeOf } from '../core/layout.mjs';
import { noGrad } from '../core/node.mjs';
import { checkOptions } from '../core/options.mjs';
import { bernoulli, categorical } from './distributions.mjs';
import * as F from './functional.mjs';
import { argmax, gather } from './indexing.mjs';
import { logicalAnd } from './integers.mjs';
import { logSigmoid, softplus } from './math.mjs';
import { rand, randn } from './random.mjs';
import { logsumexp } from './reductions.mjs';
import { movedim } from './shape.mjs';

/** @import { Tensor } from './tensor.mjs' */

/**
 * Parameters of `Categorical` and `Bernoulli`: one of the two.
 * @typedef {object} ProbabilityOptions
 * @property {Tensor} [probs] probabilities; those of `Categorical` are divided by their sum
 * @property {Tensor} [logits] their logarithms (`Categorical`, up to a number added to all) or log odds (`Bernoulli`)
 */

/** The distance of a probability from 0 and 1 at which its logarithm is taken, as in PyTorch. */
const EPS = 2 ** -23;
/** The largest f32. */
const LARGEST = 2 ** 128 - 2 ** 104;

/** A parameter as f32. @param {string} op @param {string} name @param {unknown} x @returns {Tensor} */
function parameter(op, name, x) {
  if (typeof x === 'number') return F.full([], x);
  const own = tensorOf(op, x);
  if (!isFloat(own.dtype)) throw new ArgumentError(op, `${name} must be f32, f16 or bf16, got ${own.dtype}: convert it with .to('f32')`);
  return F.to(own, 'f32');
}

/** Parameters in their common shape. @param {string} op @param {Record<string, unknown>} given @returns {Tensor[]} */
function parameters(op, given) {
  const own = Object.entries(given).map(([name, x]) => parameter(op, name, x));
  return within(op, () => {
    const shape = broadcastShapes(op, ...own.map((x) => x.shape));
    return own.map((x) => F.expand(x, shape));
  });
}

/** What probabilities are given as. @param {string} op @param {ProbabilityOptions} options @returns {{ probs?: Tensor, logits?: Tensor }} */
function oneOf(op, options) {
  const { probs, logits } = checkOptions(op, options, ['probs', 'logits']);
  if ((probs === undefined) === (logits === undefined))
    throw new ArgumentError(op, `expected either probs or logits, got ${probs === undefined ? 'neither' : 'both'}`);
  return probs === undefined ? { logits: parameter(op, 'logits', logits) } : { probs: parameter(op, 'probs', probs) };
}

/** Probabilities away from 0 and 1. @param {Tensor} probs */
const inside = (probs) => F.clamp(probs, EPS, 1 - EPS);
/** Logarithms of which a product with 0 is 0, where that of an infinite one is NaN. @param {Tensor} logits */
const finite = (logits) => F.clamp(logits, -LARGEST, LARGEST);
/** A value as f32. @param {string} op @param {Tensor | number} value @returns {Tensor} */
const valueAsF32 = (op, value) => (typeof value === 'number' ? F.full([], value) : F.to(tensorOf(op, value), 'f32'));

/** A distribution, or one for each element of `batchShape`. */
export class Distribution {
  /** @param {readonly number[]} batchShape @param {readonly number[]} [eventShape] [] when left out */
  constructor(batchShape, eventShape = []) {
    /** The sizes of the dimensions of independent distributions. */
    this.batchShape = [...batchShape];
    /** The sizes of the dimensions of one sample. */
    this.eventShape = [...eventShape];
  }
  /** The name of a method, for errors. @param {string} method */
  named(method) {
    return `${this.constructor.name}.${method}`;
  }
  /**
   * Numbers drawn on the device, without a gradient. @param {readonly number[]} [shape] how many of each distribution; [] when left out: one
   * @returns {Tensor} [...shape, ...batchShape, ...eventShape]
   */
  sample(shape = []) {
    const op = this.named('sample');
    checkShape(op, shape);
    return within(op, () => noGrad(() => this.draw(shape)));
  }
  /**
   * Numbers that pass gradients on to the parameters (the reparametrization trick). Throws a UsageError where there are none such.
   * @param {readonly number[]} [shape] as of `sample` @returns {Tensor}
   */
  rsample(shape = []) {
    const op = this.named('rsample');
    checkShape(op, shape);
    if (!this.reparametrized)
      throw new UsageError(op, 'what is drawn is not a smooth function of the parameters: use sample, and the gradient of logProb');
    return within(op, () => this.draw(shape));
  }
  /** Whether `rsample` is there. */
  get reparametrized() {
    return true;
  }
  /** Draws. @param {readonly number[]} _shape @returns {Tensor} */
  draw(_shape) {
    throw new UsageError(this.named('sample'), 'this distribution cannot be drawn from');
  }
  /**
   * The logarithm of the probability, or of its density, of values. @param {Tensor | number} _value broadcasts with `batchShape`
   * @returns {Tensor} of the common shape
   */
  logProb(_value) {
    throw new UsageError(this.named('logProb'), 'this distribution has none');
  }
  /** The entropy in nats. @returns {Tensor} of `batchShape` */
  entropy() {
    throw new UsageError(this.named('entropy'), 'this distribution has none');
  }
}

/** Classes 0, 1, … with the probabilities of the last dimension. */
export class Categorical extends Distribution {
  /** @type {Tensor | undefined} */
  #probs;
  /** @type {Tensor | undefined} */
  #logits;

  /** @param {ProbabilityOptions} options [..., classes] */
  constructor(options) {
    const { probs, logits } = oneOf('Categorical', options);
    const { shape } = /** @type {Tensor} */ (probs ?? logits);
    if (shape.length === 0 || shape.at(-1) === 0) throw new ShapeError('Categorical', `expected [..., classes], got ${show(shape)}`);
    super(shape.slice(0, -1));
    within('Categorical', () => {
      this.#probs = probs && F.div(probs, F.sum(probs, -1, true));
      this.#logits = logits && F.sub(logits, logsumexp(logits, -1, true));
    });
  }
  get reparametrized() {
    return false;
  }
  /** Probabilities, whose sum is 1. @returns {Tensor} [..., classes] */
  get probs() {
    return this.#probs ?? F.softmax(/** @type {Tensor} */ (this.#logits), -1);
  }
  /** Their logarithms. @returns {Tensor} [..., classes] */
  get logits() {
    return this.#logits ?? F.log(inside(/** @type {Tensor} */ (this.#probs)));
  }
  /** The likeliest class. @returns {Tensor} i32, of `batchShape` */
  get mode() {
    return argmax(this.probs, -1);
  }
  /** @param {readonly number[]} shape @returns {Tensor} i32, [...shape, ...batchShape] */
  draw(shape) {
    // A class of probability 0 is never drawn.
    const own = this.#probs ? F.log(this.#probs) : this.logits;
    const count = sizeOf(shape);
    if (count === 0) return F.zeros([...shape, ...this.batchShape], { dtype: 'i32' });
    return F.reshape(movedim(categorical(own, count), -1, 0), [...shape, ...this.batchShape]);
  }
  /**
   * @param {Tensor | number} value classes, integers; broadcasts with `batchShape`. In a tensor they are not checked: a negative one counts from the
   *   end, and 0 stands for one out of range
   * @returns {Tensor}
   */
  logProb(value) {
    const op = 'Categorical.logProb';
    const { logits } = this;
    const classes = /** @type {number} */ (logits.shape.at(-1));
    if (typeof value === 'number' && !(Number.isInteger(value) && value >= 0 && value < classes))
      throw new ArgumentError(op, `the class must be an integer from 0 to ${classes - 1}, got ${shown(value)}`);
    const own = typeof value === 'number' ? F.full([], value, { dtype: 'i32' }) : tensorOf(op, value);
    return within(op, () => {
      const common = broadcastShapes(op, own.shape, this.batchShape);
      const index = F.unsqueeze(F.expand(own, common), -1);
      return F.squeeze(gather(F.expand(logits, [...common, classes]), -1, index), -1);
    });
  }
  /** @returns {Tensor} */
  entropy() {
    return within('Categorical.entropy', () => F.neg(F.sum(F.mul(this.probs, finite(this.logits)), -1)));
  }
}

/** 1 with a probability, else 0. */
export class Bernoulli extends Distribution {
  /** @type {Tensor | undefined} */
  #probs;
  /** @type {Tensor | undefined} */
  #logits;

  /** @param {ProbabilityOptions} options */
  constructor(options) {
    const { probs, logits } = oneOf('Bernoulli', options);
    super(/** @type {Tensor} */ (probs ?? logits).shape);
    this.#probs = probs;
    this.#logits = logits;
  }
  get reparametrized() {
    return false;
  }
  /** Probabilities of 1. @returns {Tensor} */
  get probs() {
    return this.#probs ?? F.sigmoid(/** @type {Tensor} */ (this.#logits));
  }
  /** Log odds of 1. @returns {Tensor} */
  get logits() {
    if (this.#logits) return this.#logits;
    const own = inside(/** @type {Tensor} */ (this.#probs));
    return F.sub(F.log(own), F.log(F.sub(1, own)));
  }
  /** The mean. @returns {Tensor} of `batchShape` */
  get mean() {
    return this.probs;
  }
  /** The variance. @returns {Tensor} of `batchShape` */
  get variance() {
    return F.mul(this.probs, F.sub(1, this.probs));
  }
  /** @param {readonly number[]} shape @returns {Tensor} */
  draw(shape) {
    return bernoulli(F.expand(this.probs, [...shape, ...this.batchShape]));
  }
  /** @param {Tensor | number} value 0 or 1 @returns {Tensor} */
  logProb(value) {
    const own = valueAsF32('Bernoulli.logProb', value);
    return within('Bernoulli.logProb', () => {
      // Not value · logits - softplus(logits): of what is nearly certain that difference has no digits.
      const logits = finite(this.logits);
      return F.add(F.mul(own, logSigmoid(logits)), F.mul(F.sub(1, own), logSigmoid(F.neg(logits))));
    });
  }
  /** @returns {Tensor} */
  entropy() {
    return within('Bernoulli.entropy', () => {
      const logits = finite(this.logits);
      const zeros = this.#probs ? F.sub(1, this.#probs) : F.sigmoid(F.neg(logits));
      return F.add(F.mul(this.probs, softplus(F.neg(logits))), F.mul(zeros, softplus(logits)));
    });
  }
}

/** Normal numbers. */
export class Normal extends Distribution {
  /** @param {Tensor | number} loc the mean @param {Tensor | number} scale the deviation, above 0 */
  constructor(loc, scale) {
    const [own, deviation] = parameters('Normal', { loc, scale });
    super(own.shape);
    this.loc = own;
    this.scale = deviation;
  }
  /** The mean. @returns {Tensor} of `batchShape` */
  get mean() {
    return this.loc;
  }
  /** The likeliest value. @returns {Tensor} of `batchShape` */
  get mode() {
    return this.loc;
  }
  /** The standard deviation. @returns {Tensor} of `batchShape` */
  get stddev() {
    return this.scale;
  }
  /** The variance. @returns {Tensor} of `batchShape` */
  get variance() {
    return F.square(this.scale);
  }
  /** @param {readonly number[]} shape @returns {Tensor} */
  draw(shape) {
    return F.add(F.mul(randn([...shape, ...this.batchShape]), this.scale), this.loc);
  }
  /** @param {Tensor | number} value @returns {Tensor} */
  logProb(value) {
    return within('Normal.logProb', () => {
      const z = F.div(F.sub(value, this.loc), this.scale);
      return F.sub(F.mul(F.square(z), -0.5), F.add(F.log(this.scale), Math.log(2 * Math.PI) / 2));
    });
  }
  /** @returns {Tensor} */
  entropy() {
    return within('Normal.entropy', () => F.add(F.log(this.scale), (1 + Math.log(2 * Math.PI)) / 2));
  }
}

/** Uniform numbers. */
export class Uniform extends Distribution {
  /** @param {Tensor | number} low @param {Tensor | number} high above `low` */
  constructor(low, high) {
    const [from, to] = parameters('Uniform', { low, high });
    super(from.shape);
    this.low = from;
    this.high = to;
  }
  /** The mean. @returns {Tensor} of `batchShape` */
  get mean() {
    return F.mul(F.add(this.low, this.high), 0.5);
  }
  /** The variance. @returns {Tensor} of `batchShape` */
  get variance() {
    return F.mul(F.square(F.sub(this.high, this.low)), 1 / 12);
  }
  /** @param {readonly number[]} shape @returns {Tensor} */
  draw(shape) {
    return F.add(F.mul(rand([...shape, ...this.batchShape]), F.sub(this.high, this.low)), this.low);
  }
  /** -∞ outside of [low, high). @param {Tensor | number} value @returns {Tensor} */
  logProb(value) {
    return within('Uniform.logProb', () => {
      const own = valueAsF32('Uniform.logProb', value);
      return F.where(logicalAnd(F.ge(own, this.low), F.lt(own, this.high)), F.neg(this.entropy()), -Infinity);
    });
  }
  /** @returns {Tensor} */
  entropy() {
    return within('Uniform.entropy', () => F.log(F.sub(this.high, this.low)));
  }
}

/** A distribution whose last dimensions of `batchShape` are those of one event: logarithms of probabilities are summed over them. */
export class Independent extends Distribution {
  /** @param {Distribution} base @param {number} count of dimensions, from 0 to those of `batchShape` */
  constructor(base, count) {
    if (!(base instanceof Distribution)) throw new ArgumentError('Independent', `expected a distribution, got ${shown(base)}`);
    const { batchShape: batch, eventShape } = base;
    if (!Number.isInteger(count) || count < 0 || count > batch.length)
      throw new ArgumentError('Independent', `count must be an integer from 0 to ${batch.length}, got ${shown(count)}`);
    super(batch.slice(0, batch.length - count), [...batch.slice(batch.length - count), ...eventShape]);
    this.base = base;
    this.count = count;
  }
  get reparametrized() {
    return this.base.reparametrized;
  }
  /** @param {readonly number[]} shape @returns {Tensor} */
  draw(shape) {
    return this.base.draw(shape);
  }
  /** A sum over the last dimensions. @param {Tensor} x @returns {Tensor} */
  summed(x) {
    return this.count === 0
      ? x
      : F.sum(
          x,
          Array.from({ length: this.count }, (_, i) => -1 - i),
        );
  }
  /** @param {Tensor | number} value @returns {Tensor} */
  logProb(value) {
    return within('Independent.logProb', () => this.summed(this.base.logProb(value)));
  }
  /** @returns {Tensor} */
  entropy() {
    return within('Independent.entropy', () => this.summed(this.base.entropy()));
  }
}

/** Of two normal ones. @param {Normal} p @param {Normal} q */
function ofNormal(p, q) {
  const ratio = F.square(F.div(p.scale, q.scale));
  const shift = F.square(F.div(F.sub(p.loc, q.loc), q.scale));
  return F.mul(F.sub(F.add(ratio, shift), F.add(F.log(ratio), 1)), 0.5);
}
/** Of two categorical ones. @param {Categorical} p @param {Categorical} q */
function ofCategorical(p, q) {
  const each = F.mul(p.probs, F.sub(finite(p.logits), finite(q.logits)));
  return F.sum(F.where(F.eq(p.probs, 0), 0, F.where(F.eq(q.probs, 0), Infinity, each)), -1);
}
/** Of two of one bit. @param {Bernoulli} p @param {Bernoulli} q */
function ofBernoulli(p, q) {
  const [of, from] = [finite(p.logits), finite(q.logits)];
  const ones = F.mul(p.probs, F.sub(softplus(F.neg(from)), softplus(F.neg(of))));
  const zeros = F.mul(F.sub(1, p.probs), F.sub(softplus(from), softplus(of)));
  return F.add(
    F.where(F.eq(p.probs, 0), 0, F.where(F.eq(q.probs, 0), Infinity, ones)),
    F.where(F.eq(p.probs, 1), 0, F.where(F.eq(q.probs, 1), Infinity, zeros)),
  );
}
/** Of two uniform ones. @param {Uniform} p @param {Uniform} q */
function ofUniform(p, q) {
  const isInside = logicalAnd(F.le(q.low, p.low), F.ge(q.high, p.high));
  return F.where(isInside, F.log(F.div(F.sub(q.high, q.low), F.sub(p.high, p.low))), Infinity);
}

/** Pairs that `klDivergence` knows. @type {[new (...args: any[]) => Distribution, (p: any, q: any) => Tensor][]} */
const DIVERGENCES = [
  [Normal, ofNormal],
  [Categorical, ofCategorical],
  [Bernoulli, ofBernoulli],
  [Uniform, ofUniform],
];

/**
 * The Kullback-Leibler divergence of p from q, in nats: what E log p(x) / q(x) is for x of p. Both are of one class: `Normal`, `Categorical`,
 * `Bernoulli`, `Uniform`, or `Independent` of these.
 * @param {Distribution} p @param {Distribution} q @returns {Tensor} of their common `batchShape`
 */
export function klDivergence(p, q) {
  for (const each of [p, q])
    if (!(each instanceof Distribution)) throw new ArgumentError('klDivergence', `expected a distribution, got ${shown(each)}`);
  return within('klDivergence', () => {
    if (p instanceof Independent && q instanceof Independent && p.count === q.count) return p.summed(klDivergence(p.base, q.base));
    const found = DIVERGENCES.find(([Kind]) => p instanceof Kind && q instanceof Kind);
    if (!found) throw new ArgumentError('klDivergence', `knows no formula for ${p.constructor.name} and ${q.constructor.name}`);
    return found[1](p, q);
  });
}
