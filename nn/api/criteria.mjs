// Losses that are composed of elementwise operations and sums, and the distances that some of them are made of.

import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { broadcastShapes, dimension } from '../core/layout.mjs';
import { checkAbove, checkFinite, checkLeast, checkOptions, checkPower, flag } from '../core/options.mjs';
import { noGrad, withGradient } from '../core/node.mjs';
import * as F from './functional.mjs';
import { gather } from './indexing.mjs';
import { broadcastsTo, checkClasses, classWeight, factorsOfRows, reducedLoss, sameShape } from './losses.mjs';
import { toF32 } from './operands.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {import('./losses.mjs').LossOptions} LossOptions */

/** The least normal number of f32. */
const MIN_NORMAL = 2 ** -126;

/**
 * Options of `klDivLoss`.
 * @typedef {object} DivergenceOptions
 * @property {'mean' | 'sum' | 'none' | 'batchmean'} [reduction] how the losses become one number: 'batchmean' divides their sum by the first
 *   size, which is the mathematical definition; 'none' returns each loss; 'mean', over all elements, when left out
 * @property {boolean} [logTarget] whether the targets are log-probabilities; false when left out
 */

/**
 * Options of `huberLoss` besides those of every loss.
 * @typedef {object} HuberOptions
 * @property {number} [delta] where the loss turns from squares to lines, above 0; 1 when left out
 */

/**
 * Options of `smoothL1Loss` besides those of every loss.
 * @typedef {object} SmoothOptions
 * @property {number} [beta] where the loss turns from squares to lines, at least 0; 1 when left out
 */

/**
 * Options of `binaryCrossEntropy` besides those of every loss.
 * @typedef {object} WeightOptions
 * @property {Tensor} [weight] a factor on each loss, which broadcasts to them; none when left out
 */

/**
 * Options of losses with a margin, besides those of every loss.
 * @typedef {object} MarginOptions
 * @property {number} [margin] the distance that is enough
 */

/**
 * Options of `tripletMarginLoss` besides those of losses with a margin.
 * @typedef {object} TripletOptions
 * @property {number} [p] which norm the distances have, above 0; 2 when left out
 * @property {number} [eps] is added to each difference; 1e-6 when left out
 * @property {boolean} [swap] whether the distance from positive to negative counts where it is less than that of the anchor (Balntas et al.
 *   2016); false when left out
 */

/**
 * Options of `multiMarginLoss` besides those of losses with a margin.
 * @typedef {object} MultiMarginOptions
 * @property {1 | 2} [p] the power of each term; 1 when left out
 * @property {Tensor} [weight] f32 [classes]: the factor of the loss of each class; all 1 when left out
 */

/**
 * Options of `poissonNllLoss` besides those of every loss.
 * @typedef {object} PoissonOptions
 * @property {boolean} [logInput] whether the inputs are logarithms of rates; true when left out
 * @property {boolean} [full] whether Stirling's term for log(target!) is added where a target is above 1; false when left out
 * @property {number} [eps] is added to a rate before its logarithm; 1e-8 when left out
 */

/**
 * Options of `gaussianNllLoss` besides those of every loss.
 * @typedef {object} GaussianOptions
 * @property {boolean} [full] whether the constant log(2π) / 2 is added; false when left out
 * @property {number} [eps] the least variance; 1e-6 when left out
 */

/**
 * Options of `cosineSimilarity`.
 * @typedef {object} CosineOptions
 * @property {number} [dim] the dimension of the vectors; 1 when left out
 * @property {number} [eps] the least norm; 1e-8 when left out
 */

/**
 * Options of `pairwiseDistance`.
 * @typedef {object} DistanceOptions
 * @property {number} [p] which norm, above 0; 2 when left out
 * @property {number} [eps] is added to each difference; 1e-6 when left out
 * @property {boolean} [keepdim] whether the last dimension stays, of size 1; false when left out
 */

/**
 * The Kullback-Leibler divergence: target · (log target - x) for each element, reduced. A target of 0 gives 0.
 * @param {Tensor} x log-probabilities @param {Tensor} target probabilities, or their logarithms with `logTarget`; of x's shape
 * @param {DivergenceOptions} [options]
 */
export function klDivLoss(x, target, options = {}) {
  const name = 'klDivLoss';
  const { reduction = 'mean', logTarget = false } = checkOptions(name, options, ['reduction', 'logTarget']);
  flag(name, 'logTarget', logTarget);
  sameShape(name, x, target);
  const losses = () => {
    const [own, given] = [toF32(x), toF32(target)];
    if (logTarget) return F.mul(F.exp(given), F.sub(given, own));
    const none = F.eq(given, 0);
    // 0 · log 0 is 0, and its gradient is none.
    const entropy = F.mul(given, F.log(F.where(none, 1, given)));
    return F.sub(entropy, F.mul(given, own));
  };
  if (reduction !== 'batchmean') return reducedLoss(name, losses, reduction);
  if (x.ndim === 0) throw new ShapeError(name, "'batchmean' divides by the first size, which a tensor [] does not have");
  return within(name, () => F.div(F.sum(losses()), x.shape[0]));
}

/**
 * (x - y)² / 2 where |x - y| ≤ delta, and delta · (|x - y| - delta / 2) elsewhere (Huber 1964), reduced.
 * @param {Tensor} x @param {Tensor} y of x's shape @param {LossOptions & HuberOptions} [options]
 */
export function huberLoss(x, y, options = {}) {
  const { reduction, delta = 1 } = checkOptions('huberLoss', options, ['reduction', 'delta']);
  checkAbove('huberLoss', 'delta', delta);
  sameShape('huberLoss', x, y);
  return reducedLoss('huberLoss', () => huber(F.sub(toF32(x), toF32(y)), delta), reduction);
}

/** @param {Tensor} difference @param {number} delta */
function huber(difference, delta) {
  // With m = min(|d|, delta) both branches are m · (|d| - m / 2).
  const size = F.abs(difference);
  const near = F.clamp(size, undefined, delta);
  return F.mul(near, F.sub(size, F.mul(near, 0.5)));
}

/**
 * (x - y)² / (2 beta) where |x - y| < beta, and |x - y| - beta / 2 elsewhere (Girshick 2015), reduced. A beta of 0 is `l1Loss`.
 * @param {Tensor} x @param {Tensor} y of x's shape @param {LossOptions & SmoothOptions} [options]
 */
export function smoothL1Loss(x, y, options = {}) {
  const { reduction, beta = 1 } = checkOptions('smoothL1Loss', options, ['reduction', 'beta']);
  checkLeast('smoothL1Loss', 'beta', beta);
  sameShape('smoothL1Loss', x, y);
  const losses = () => {
    const difference = F.sub(toF32(x), toF32(y));
    return beta === 0 ? F.abs(difference) : F.div(huber(difference, beta), beta);
  };
  return reducedLoss('smoothL1Loss', losses, reduction);
}

/**
 * Binary cross-entropy of probabilities: -y log x - (1 - y) log(1 - x), with logarithms of at least -100 as in PyTorch, times `weight`,
 * reduced. `binaryCrossEntropyWithLogits` is more exact.
 * @param {Tensor} x probabilities @param {Tensor} y targets in [0, 1], of x's shape @param {LossOptions & WeightOptions} [options]
 */
export function binaryCrossEntropy(x, y, options = {}) {
  const name = 'binaryCrossEntropy';
  const { reduction, weight } = checkOptions(name, options, ['reduction', 'weight']);
  sameShape(name, x, y);
  if (weight !== undefined) broadcastsTo(name, weight, x);
  const losses = () => {
    const [own, target] = [toF32(x), toF32(y)];
    // Some drivers' logarithm of 0 is finite.
    const logarithms = (/** @type {Tensor} */ p) => [
      F.where(F.eq(p, 0), -100, F.maximum(F.log(p), -100)),
      F.where(F.eq(p, 1), -100, F.maximum(F.log1p(F.neg(p)), -100)),
    ];
    const value = noGrad(() => {
      const [yes, no] = logarithms(own);
      return F.sub(0, F.add(F.mul(target, yes), F.mul(F.add(F.neg(target), 1), no)));
    });
    // PyTorch's gradient, which is finite where x is 0 or 1.
    const gradient = (/** @type {Tensor} */ dy, /** @type {Tensor} */ _, /** @type {Tensor[]} */ [p, t]) => {
      const slope = () => F.div(F.sub(p, t), F.maximum(F.mul(p, F.add(F.neg(p), 1)), 1e-12));
      const ofTarget = () => {
        const [yes, no] = logarithms(p);
        return F.sub(no, yes);
      };
      return [own.requiresGrad ? F.mul(dy, slope()) : undefined, target.requiresGrad ? F.mul(dy, ofTarget()) : undefined];
    };
    const losses = withGradient(name, [own, target], value, gradient, [0, 1]);
    return weight === undefined ? losses : F.mul(losses, weight);
  };
  return reducedLoss(name, losses, reduction);
}

/**
 * 1 - cos(a, b) where y is 1, and max(0, cos(a, b) - margin) where it is -1; the cosines are of the vectors of the last dimension.
 * @param {Tensor} a [..., n] @param {Tensor} b of a's shape @param {Tensor} y [...]: 1 or -1, in any type but bool
 * @param {LossOptions & MarginOptions} [options] margin 0
 */
export function cosineEmbeddingLoss(a, b, y, options = {}) {
  const name = 'cosineEmbeddingLoss';
  const { reduction, margin = 0 } = checkOptions(name, options, ['reduction', 'margin']);
  checkFinite(name, 'margin', margin);
  sameShape(name, a, b);
  signsOf(name, y, a.shape.slice(0, -1));
  const losses = () => {
    const [x, z] = [toF32(a), toF32(b)];
    const dot = (/** @type {Tensor} */ u, /** @type {Tensor} */ v) => F.sum(F.mul(u, v), -1);
    const cosine = F.div(dot(x, z), F.sqrt(F.mul(F.add(dot(x, x), 1e-12), F.add(dot(z, z), 1e-12))));
    const apart = F.maximum(F.sub(cosine, margin), 0);
    return F.add(F.where(F.eq(y, 1), F.add(F.neg(cosine), 1), 0), F.where(F.eq(y, -1), apart, 0));
  };
  return reducedLoss(name, losses, reduction);
}

/** Checks targets that are 1 or -1. @param {string} op @param {Tensor} y @param {readonly number[]} shape */
function signsOf(op, y, shape) {
  const { dtype } = tensorOf(op, y);
  if (dtype === 'bool' || dtype === 'u32') throw new ArgumentError(op, `targets are 1 or -1, which ${dtype} cannot hold both`);
  if (show(y.shape) !== show(shape)) throw new ShapeError(op, `expected targets ${show(shape)}, got ${show(y.shape)}`);
}

/**
 * max(0, d(anchor, positive) - d(anchor, negative) + margin), where d is `pairwiseDistance` (Balntas et al. 2016), reduced.
 * @param {Tensor} anchor [..., n] @param {Tensor} positive of anchor's shape @param {Tensor} negative of anchor's shape
 * @param {LossOptions & MarginOptions & TripletOptions} [options] margin 1
 */
export function tripletMarginLoss(anchor, positive, negative, options = {}) {
  const name = 'tripletMarginLoss';
  const known = /** @type {const} */ (['reduction', 'margin', 'p', 'eps', 'swap']);
  const { reduction, margin = 1, p = 2, eps = 1e-6, swap = false } = checkOptions(name, options, known);
  checkFinite(name, 'margin', margin);
  checkAbove(name, 'p', p);
  checkLeast(name, 'eps', eps);
  flag(name, 'swap', swap);
  sameShape(name, anchor, positive);
  sameShape(name, anchor, negative);
  const losses = () => {
    const near = pairwiseDistance(anchor, positive, { p, eps });
    const far = pairwiseDistance(anchor, negative, { p, eps });
    const other = swap ? F.minimum(far, pairwiseDistance(positive, negative, { p, eps })) : far;
    return F.maximum(F.add(F.sub(near, other), margin), 0);
  };
  return reducedLoss(name, losses, reduction);
}

/**
 * max(0, -y · (a - b) + margin): y is 1 where a should be the larger and -1 where b should be, reduced.
 * @param {Tensor} a @param {Tensor} b of a's shape @param {Tensor} y of a's shape, f32 @param {LossOptions & MarginOptions} [options] margin 0
 */
export function marginRankingLoss(a, b, y, options = {}) {
  const name = 'marginRankingLoss';
  const { reduction, margin = 0 } = checkOptions(name, options, ['reduction', 'margin']);
  checkFinite(name, 'margin', margin);
  sameShape(name, a, b);
  sameShape(name, a, y);
  const losses = () => F.maximum(F.add(F.mul(F.neg(toF32(y)), F.sub(toF32(a), toF32(b))), margin), 0);
  return reducedLoss(name, losses, reduction);
}

/**
 * x where y is 1, and max(0, margin - x) where it is -1, reduced.
 * @param {Tensor} x @param {Tensor} y of x's shape: 1 or -1, in any type but bool @param {LossOptions & MarginOptions} [options] margin 1
 */
export function hingeEmbeddingLoss(x, y, options = {}) {
  const name = 'hingeEmbeddingLoss';
  const { reduction, margin = 1 } = checkOptions(name, options, ['reduction', 'margin']);
  checkFinite(name, 'margin', margin);
  signsOf(name, y, tensorOf(name, x).shape);
  const losses = () => {
    const own = toF32(x);
    const apart = F.maximum(F.add(F.neg(own), margin), 0);
    return F.add(F.where(F.ne(y, 1), apart, 0), F.where(F.ne(y, -1), own, 0));
  };
  return reducedLoss(name, losses, reduction);
}

/**
 * Σ max(0, margin - x[target] + x[c])^p / classes over the classes c that are not the target, times the target's `weight`, reduced. A row
 * whose target is not a class has loss 0.
 * @param {Tensor} x [..., classes] @param {Tensor} targets [...] i32, u32 or i64
 * @param {LossOptions & MarginOptions & MultiMarginOptions} [options] margin 1
 */
export function multiMarginLoss(x, targets, options = {}) {
  const name = 'multiMarginLoss';
  const { reduction, margin = 1, p = 1, weight } = checkOptions(name, options, ['reduction', 'margin', 'p', 'weight']);
  checkFinite(name, 'margin', margin);
  if (p !== 1 && p !== 2) throw new ArgumentError(name, `p must be 1 or 2, got ${shown(p)}`);
  if (tensorOf(name, x).ndim === 0) throw new ShapeError(name, 'expected a dimension of classes, got a tensor []');
  const shape = x.shape.slice(0, -1);
  const classes = x.shape[shape.length];
  const index = checkClasses(name, targets, shape);
  if (weight !== undefined) classWeight(name, weight, x);
  const losses = () => {
    const own = toF32(x);
    const column = F.unsqueeze(index, -1);
    const terms = F.maximum(F.add(F.sub(own, gather(own, -1, column)), margin), 0);
    // The target's own term is that of a difference of 0.
    const sums = F.sub(F.sum(p === 1 ? terms : F.square(terms), -1), Math.max(0, margin) ** p);
    return F.mul(F.mul(sums, factorsOfRows(index, classes, weight, -1)), 1 / classes);
  };
  return reducedLoss(name, losses, reduction);
}

/**
 * log(1 + exp(-y · x)), reduced. It does not overflow.
 * @param {Tensor} x @param {Tensor} y of x's shape: 1 or -1 @param {LossOptions} [options]
 */
export function softMarginLoss(x, y, options = {}) {
  const name = 'softMarginLoss';
  const { reduction } = checkOptions(name, options, ['reduction']);
  sameShape(name, x, y);
  const losses = () => {
    const z = F.neg(F.mul(toF32(y), toF32(x)));
    return F.add(F.maximum(z, 0), F.log1p(F.exp(F.neg(F.abs(z)))));
  };
  return reducedLoss(name, losses, reduction);
}

/**
 * The negative log-likelihood of counts from a Poisson distribution, without the constant log(target!): exp(x) - target · x, or
 * x - target · log(x + eps) without `logInput`; reduced.
 * @param {Tensor} x logarithms of rates @param {Tensor} target of x's shape @param {LossOptions & PoissonOptions} [options]
 */
export function poissonNllLoss(x, target, options = {}) {
  const name = 'poissonNllLoss';
  const { reduction, logInput = true, full = false, eps = 1e-8 } = checkOptions(name, options, ['reduction', 'logInput', 'full', 'eps']);
  flag(name, 'logInput', logInput);
  flag(name, 'full', full);
  checkLeast(name, 'eps', eps);
  sameShape(name, x, target);
  const losses = () => {
    const [own, count] = [toF32(x), toF32(target)];
    const loss = logInput ? F.sub(F.exp(own), F.mul(count, own)) : F.sub(own, F.mul(count, F.log(F.add(own, eps))));
    if (!full) return loss;
    const many = F.gt(count, 1);
    const safe = F.where(many, count, 1);
    const stirling = F.add(F.sub(F.mul(safe, F.log(safe)), safe), F.mul(F.log(F.mul(safe, 2 * Math.PI)), 0.5));
    return F.add(loss, F.where(many, stirling, 0));
  };
  return reducedLoss(name, losses, reduction);
}

/**
 * The negative log-likelihood of values from normal distributions (Nix & Weigend 1994): (log v + (x - target)² / v) / 2, where v is the
 * variance, at least eps; reduced. As in PyTorch, a variance below eps gets the gradient that eps would have.
 * @param {Tensor} x means @param {Tensor} target of x's shape
 * @param {Tensor} variances of x's shape, or with a last dimension of 1 or without it: one for each row
 * @param {LossOptions & GaussianOptions} [options]
 */
export function gaussianNllLoss(x, target, variances, options = {}) {
  const name = 'gaussianNllLoss';
  const { reduction, full = false, eps = 1e-6 } = checkOptions(name, options, ['reduction', 'full', 'eps']);
  flag(name, 'full', full);
  checkAbove(name, 'eps', eps);
  sameShape(name, x, target);
  const { shape } = tensorOf(name, variances);
  const rows = x.shape.slice(0, -1);
  const own = show(shape) === show(x.shape);
  if (!own && (x.ndim === 0 || (show(shape) !== show(rows) && show(shape) !== show([...rows, 1]))))
    throw new ShapeError(name, `variances ${show(shape)} for values ${show(x.shape)}, expected ${show(x.shape)} or ${show([...rows, 1])}`);
  const losses = () => {
    const given = own || shape.length === x.ndim ? toF32(variances) : F.unsqueeze(toF32(variances), -1);
    // The difference to the least variance has no gradient.
    const low = given.detach();
    const least = F.add(given, F.sub(F.maximum(low, eps), low));
    const half = F.mul(F.add(F.log(least), F.div(F.square(F.sub(toF32(x), toF32(target))), least)), 0.5);
    return full ? F.add(half, 0.5 * Math.log(2 * Math.PI)) : half;
  };
  return reducedLoss(name, losses, reduction);
}

// ---- distances

/**
 * The p-norm of vectors along a dimension, at least `least`. @param {Tensor} x @param {number} p @param {number} dim @param {number} least
 */
function norm(x, p, dim, least) {
  // Limits before the root, whose gradient at 0 is infinite.
  if (p === 2) return F.sqrt(F.clamp(F.sum(F.square(x), dim, true), Math.max(least ** 2, MIN_NORMAL)));
  if (p === Infinity) return F.clamp(F.amax(F.abs(x), dim, true), least);
  if (p === 1) return F.clamp(F.sum(F.abs(x), dim, true), least);
  const size = p < 1 ? F.clamp(F.abs(x), MIN_NORMAL) : F.abs(x);
  return F.pow(F.clamp(F.sum(F.pow(size, p), dim, true), Math.max(least ** p, MIN_NORMAL)), 1 / p);
}

/**
 * x / max(‖x‖, eps) for the vectors of a dimension.
 * @param {Tensor} x @param {number} [p] which norm, above 0; Infinity is the largest size @param {number} [dim] 1 when left out
 * @param {number} [eps]
 * @returns {Tensor} of x's shape and type
 */
export function normalize(x, p = 2, dim = 1, eps = 1e-12) {
  const d = dimension('normalize', dim, tensorOf('normalize', x).ndim);
  checkPower('normalize', 'p', p);
  checkAbove('normalize', 'eps', eps);
  return within('normalize', () => {
    const own = toF32(x);
    return F.to(F.div(own, norm(own, p, d, eps)), x.dtype);
  });
}

/**
 * The cosine of the angle between vectors: a · b / (max(‖a‖, eps) · max(‖b‖, eps)).
 * @param {Tensor} a @param {Tensor} b broadcasts with a @param {CosineOptions} [options]
 * @returns {Tensor} f32, without the dimension
 */
export function cosineSimilarity(a, b, options = {}) {
  const name = 'cosineSimilarity';
  const { dim = 1, eps = 1e-8 } = checkOptions(name, options, ['dim', 'eps']);
  checkAbove(name, 'eps', eps);
  const shape = broadcastShapes(name, tensorOf(name, a).shape, tensorOf(name, b).shape);
  const d = dimension(name, dim, shape.length);
  return within(name, () => {
    const [x, y] = [a, b].map((v) => F.expand(toF32(v), shape));
    const cosine = F.div(F.sum(F.mul(x, y), d, true), F.mul(norm(x, 2, d, eps), norm(y, 2, d, eps)));
    return F.reshape(cosine, shape.toSpliced(d, 1));
  });
}

/**
 * ‖a - b + eps‖ of the vectors of the last dimension.
 * @param {Tensor} a [..., n] @param {Tensor} b broadcasts with a @param {DistanceOptions} [options]
 * @returns {Tensor} f32 [...]
 */
export function pairwiseDistance(a, b, options = {}) {
  const name = 'pairwiseDistance';
  const { p = 2, eps = 1e-6, keepdim = false } = checkOptions(name, options, ['p', 'eps', 'keepdim']);
  checkPower(name, 'p', p);
  checkLeast(name, 'eps', eps);
  flag(name, 'keepdim', keepdim);
  const shape = broadcastShapes(name, tensorOf(name, a).shape, tensorOf(name, b).shape);
  if (shape.length === 0) throw new ShapeError(name, 'expected vectors [..., n], got tensors []');
  return within(name, () => {
    const distance = norm(F.add(F.sub(toF32(a), toF32(b)), eps), p, -1, 0);
    return keepdim ? distance : F.reshape(distance, shape.slice(0, -1));
  });
}
