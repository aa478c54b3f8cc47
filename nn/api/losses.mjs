// Cross-entropies, and what all losses share. The other losses are in criteria.mjs, and that of sequences without alignment in ctc.mjs.

import { apply } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { broadcastShapes, dimension, isFloat } from '../core/layout.mjs';
import { abs, add, div, embedding, exp, full, log1p, logSoftmax, maximum, mean, mul, ne, neg, square, sub, sum } from './functional.mjs';
import { gather } from './indexing.mjs';
import { asIndex, f32UnderAutocast, f32IfOddRow, operand, promoted, toF32 } from './operands.mjs';
import { tensorOf } from '../core/engine.mjs';
import * as linearLoss from '../ops/linear-loss.mjs';
import { computedType } from '../ops/matmul.mjs';
import * as network from '../ops/network.mjs';
import { floatType } from '../ops/pointwise.mjs';
import { isGradEnabled } from '../core/node.mjs';
import { checkOptions } from '../core/options.mjs';
import { productAttributes } from '../core/precision.mjs';
import { linear } from './products.mjs';
import { permute, reshape, to, unsqueeze } from './views.mjs';

/** @import { Tensor } from './tensor.mjs' */

/**
 * Options of losses.
 * @typedef {object} LossOptions
 * @property {'mean' | 'sum' | 'none'} [reduction] how the losses become one number; 'none' returns each loss; 'mean' when left out
 */

/**
 * Options of `crossEntropy` besides those of every loss.
 * @typedef {object} IgnoreOptions
 * @property {number} [ignoreIndex] rows with this target, and rows whose target is not a class, have loss 0 and gradient 0; -100 when left
 *   out. Unlike PyTorch's, the mean divides by the number of all rows, including these
 */

/**
 * Options of `crossEntropy` besides these.
 * @typedef {object} ClassOptions
 * @property {Tensor} [weight] f32 [classes]: the factor of the loss of each class; all 1 when left out. 'mean' then divides by the sum of
 *   the factors of the rows, without ignored rows
 * @property {number} [labelSmoothing] in [0, 1]: the part of each target that is spread over all classes evenly (Szegedy et al. 2016); 0
 *   when left out
 * @property {number} [dim] the dimension of the logits that is the classes; the last when left out, 1 for PyTorch's [batch, classes, ...]
 * @property {'all' | 'kept'} [meanOf] which rows 'mean' divides by: all of them, or, as PyTorch does, those that are not ignored; 'all' when
 *   left out, which costs no count of them
 */

/**
 * Options of `nllLoss` besides those of every loss.
 * @typedef {object} NllOptions
 * @property {Tensor} [weight] f32 [classes]: the factor of the loss of each class; all 1 when left out
 * @property {number} [ignoreIndex] rows with this target, and rows whose target is not a class, have loss 0 and do not count in the mean;
 *   -100 when left out
 * @property {number} [dim] the dimension of the log-probabilities that is the classes; the last when left out, 1 for PyTorch's
 *   [batch, classes, ...]
 */

/**
 * Options of `binaryCrossEntropyWithLogits` besides those of every loss.
 * @typedef {object} BinaryOptions
 * @property {Tensor} [weight] a factor on each loss, which broadcasts to them; none when left out
 * @property {Tensor} [posWeight] a factor on the part of the loss that targets of 1 have, which broadcasts to the logits: more than 1 finds
 *   more of them, at the price of more false ones; none when left out
 */

/**
 * Options of `linearCrossEntropy` besides those of `crossEntropy`.
 * @typedef {object} BlockOptions
 * @property {number} [logitsBytes] most bytes of logits in memory at once, where two rows of them fit; 1 GiB when left out. With fewer,
 *   the gradient of the weight is read and written more often: once for each block of rows
 */

/** The default of `logitsBytes`: a GPT-2 with 16 × 1,024 tokens trains 2.7 % faster on an H100 than with a quarter of it. */
const LOGITS_BYTES = 2 ** 30;

/**
 * Reduces losses. Throws an ArgumentError for an unknown reduction.
 * @param {string} op @param {() => Tensor} losses @param {'mean' | 'sum' | 'none'} [reduction]
 * @returns {Tensor}
 */
export function reducedLoss(op, losses, reduction = 'mean') {
  if (reduction === 'mean') return within(op, () => mean(losses()));
  if (reduction === 'sum') return within(op, () => sum(losses()));
  if (reduction === 'none') return within(op, losses);
  throw new ArgumentError(op, `reduction is 'mean', 'sum' or 'none', got ${shown(reduction)}`);
}

/**
 * Cross-entropy of logits, in nats. With class indices it is log Σ exp(logits) - logits[target] for each row; with probabilities p, tensors of
 * floats shaped as the logits, -Σ p log softmax(logits).
 * @param {Tensor} logits [..., classes]: classes last, unlike PyTorch's [batch, classes, ...], for which set `dim` to 1
 * @param {Tensor} classes targets: the logits' shape without the classes, i32, u32 or i64; or the probabilities of all classes, of the logits' shape
 * @param {LossOptions & IgnoreOptions & ClassOptions} [options] `ignoreIndex` and `meanOf` concern indices only: the mean of losses with
 *   probabilities is over all rows, with a `weight` too
 * @returns {Tensor} [], or of the logits' shape without the classes with 'none'
 */
export function crossEntropy(logits, classes, options = {}) {
  const name = 'crossEntropy';
  const known = /** @type {const} */ (['reduction', 'ignoreIndex', 'weight', 'labelSmoothing', 'dim', 'meanOf']);
  const { reduction = 'mean', weight, labelSmoothing = 0, dim = -1, ...rest } = checkOptions(name, options, known);
  const { ignoreIndex = -100, meanOf = 'all' } = rest;
  tensorOf(name, logits);
  const targets = asIndex(tensorOf(name, classes));
  checkIgnored(name, ignoreIndex);
  if (meanOf !== 'all' && meanOf !== 'kept') throw new ArgumentError(name, `meanOf is 'all' or 'kept', got ${shown(meanOf)}`);
  if (typeof labelSmoothing !== 'number' || !(labelSmoothing >= 0 && labelSmoothing <= 1))
    throw new ArgumentError(name, `labelSmoothing must be in [0, 1], got ${shown(labelSmoothing)}`);
  const own = within(name, () => f32UnderAutocast(classesLast(name, logits, dim)));
  const factors = weight && classWeight(name, weight, own);
  if (isFloat(targets.dtype)) {
    if (show(targets.shape) !== show(logits.shape)) {
      throw new ShapeError(
        name,
        `targets must be class numbers, i32 or u32, or probabilities of the shape of the logits ${show(logits.shape)}, ` +
          `got ${targets.dtype} ${show(targets.shape)}`,
      );
    }
    const losses = () => {
      const given = classesLast(name, toF32(targets), dim);
      const smoothed = labelSmoothing ? add(mul(given, 1 - labelSmoothing), labelSmoothing / (own.shape.at(-1) ?? 1)) : given;
      return neg(sum(mul(weighted(smoothed, factors), logSoftmax(toF32(own))), -1));
    };
    return reducedLoss(name, losses, reduction);
  }
  const rows = () => apply(network.crossEntropyRows, [f32IfOddRow(own), targets], { ignored: ignoreIndex >>> 0 });
  if (!factors && !labelSmoothing && meanOf === 'all') return reducedLoss(name, rows, reduction);
  return within(name, () => {
    const plain = rows(); // first: it checks the types and shapes
    const ofRow = factorsOfRows(targets, own.shape.at(-1) ?? 1, factors, ignoreIndex);
    let losses = mul(plain, ofRow);
    if (labelSmoothing) {
      const all = neg(sum(weighted(logSoftmax(toF32(own)), factors), -1));
      const kept = factors ? factorsOfRows(targets, own.shape.at(-1) ?? 1, undefined, ignoreIndex) : ofRow;
      losses = add(mul(losses, 1 - labelSmoothing), mul(mul(all, kept), labelSmoothing / (own.shape.at(-1) ?? 1)));
    }
    if (reduction !== 'mean' || (meanOf === 'all' && !factors)) return reducedLoss(name, () => losses, reduction);
    return div(sum(losses), sum(ofRow));
  });
}

/**
 * The negative log-likelihood: -logProbs[target] for each row, times the `weight` of its class. 'mean' divides by the sum of those weights, as
 * PyTorch does: by the number of rows that are not ignored when there is no `weight`.
 * @param {Tensor} logProbs [..., classes], from `logSoftmax`; for PyTorch's [batch, classes, ...] set `dim` to 1
 * @param {Tensor} targets the shape without the classes, i32, u32 or i64
 * @param {LossOptions & NllOptions} [options]
 * @returns {Tensor} [], or of the targets' shape with 'none'
 */
export function nllLoss(logProbs, targets, options = {}) {
  const name = 'nllLoss';
  const {
    reduction = 'mean',
    weight,
    ignoreIndex = -100,
    dim = -1,
  } = checkOptions(name, options, ['reduction', 'weight', 'ignoreIndex', 'dim']);
  tensorOf(name, logProbs);
  checkIgnored(name, ignoreIndex);
  const own = within(name, () => toF32(classesLast(name, logProbs, dim)));
  const shape = own.shape.slice(0, -1);
  const index = checkClasses(name, targets, shape);
  const factors = weight && classWeight(name, weight, own);
  return within(name, () => {
    const ofRow = factorsOfRows(index, own.shape[shape.length], factors, ignoreIndex);
    const losses = neg(mul(reshape(gather(own, -1, unsqueeze(index, -1)), shape), ofRow));
    if (reduction !== 'mean') return reducedLoss(name, () => losses, reduction);
    return div(sum(losses), sum(ofRow));
  });
}

/** x with the dimension of the classes last. @param {string} op @param {Tensor} x @param {number} dim */
function classesLast(op, x, dim) {
  if (x.ndim === 0) throw new ShapeError(op, 'expected a dimension of classes, got a tensor []');
  const d = dimension(op, dim, x.ndim);
  if (d === x.ndim - 1) return x;
  return permute(x, [...x.shape.keys()].toSpliced(d, 1).concat(d));
}

/** Checks the factors of classes. @param {string} op @param {Tensor} weight @param {Tensor} x classes last @returns {Tensor} */
export function classWeight(op, weight, x) {
  const classes = x.shape.at(-1);
  if (tensorOf(op, weight).ndim !== 1 || weight.size !== classes || weight.dtype !== 'f32')
    throw new ShapeError(op, `the weight must be f32 [${classes}], got ${weight.dtype} ${show(weight.shape)}`);
  return weight;
}

/** Checks class indices. @param {string} op @param {Tensor} targets @param {readonly number[]} shape */
export function checkClasses(op, targets, shape) {
  const own = asIndex(tensorOf(op, targets));
  const { dtype } = own;
  if (dtype !== 'u32' && dtype !== 'i32') throw new ArgumentError(op, `targets must be class numbers, i32 or u32, got ${dtype}`);
  if (show(targets.shape) !== show(shape)) throw new ShapeError(op, `expected targets ${show(shape)}, got ${show(targets.shape)}`);
  return own;
}

/** @param {Tensor} x @param {Tensor | undefined} factors */
const weighted = (x, factors) => (factors ? mul(x, factors) : x);

/**
 * The factor of each row: that of its class, and 0 where it is ignored or no class.
 * @param {Tensor} targets @param {number} classes @param {Tensor | undefined} factors @param {number} ignored
 */
export function factorsOfRows(targets, classes, factors, ignored) {
  const table = factors ? reshape(factors, [classes, 1]) : full([classes, 1], 1);
  const own = reshape(embedding(targets, table), targets.shape);
  // Other numbers are no classes, of which the table has no row.
  return ignored >= 0 && ignored < classes ? mul(own, to(ne(targets, ignored), 'f32')) : own;
}

/** @param {string} op @param {unknown} index */
function checkIgnored(op, index) {
  if (!Number.isInteger(index)) throw new ArgumentError(op, `ignoreIndex must be an integer, got ${shown(index)}`);
  // Kernels compare 32 bits: 2^32 would be class 0.
  if (Number(index) < -(2 ** 31) || Number(index) >= 2 ** 32)
    throw new ArgumentError(op, `ignoreIndex must be of 32 bits, got ${shown(index)}`);
}

/**
 * `crossEntropy(linear(x, weight), targets)`, without all logits in memory: they are computed in blocks of rows. 'mean' and 'sum' compute the
 * gradients of x and of the weight with the loss, block by block, so that no logits are computed twice (Hsu et al. 2024, Liger Kernel); the
 * backward pass multiplies them by the loss's gradient. With 'none', and for no gradient, the forward pass computes the losses alone, and the
 * backward pass computes the logits again. Under `autocast` logits have 16 bits, and losses are f32; so is the gradient of an f32 weight, which
 * the products of all blocks are added to.
 * @param {Tensor} x [..., in] @param {Tensor} weight [classes, in] @param {Tensor} targets [...] i32, u32 or i64
 * @param {LossOptions & IgnoreOptions & BlockOptions} [options]
 * @returns {Tensor} f32: [], or of the targets' shape with 'none'
 * @throws {ShapeError} if the shapes do not fit
 */
export function linearCrossEntropy(x, weight, targets, options = {}) {
  const name = 'linearCrossEntropy';
  const known = /** @type {const} */ (['reduction', 'ignoreIndex', 'logitsBytes']);
  const { reduction = 'mean', ignoreIndex = -100, logitsBytes = LOGITS_BYTES } = checkOptions(name, options, known);
  for (const tensor of [x, weight, targets]) tensorOf(name, tensor);
  checkIgnored(name, ignoreIndex);
  if (typeof logitsBytes !== 'number' || !(logitsBytes > 0))
    throw new ArgumentError(name, `logitsBytes must be a number above 0, got ${shown(logitsBytes)}`);
  // No products to save memory of.
  if (x.size === 0 || weight.size === 0) return within(name, () => crossEntropy(linear(x, weight), targets, { reduction, ignoreIndex }));
  return within(name, () => {
    const [rows, classes, inner] = [targets.size, weight.shape[0] ?? 1, weight.shape[1] ?? 1];
    const classNumbers = asIndex(targets);
    const given = promoted(operand(x), operand(weight));
    const dtype = computedType(given[0], given[1], rows, classes, inner);
    const [a, b] = given.map((tensor) => (isFloat(tensor.dtype) ? to(tensor, dtype) : tensor));
    const attributes = {
      block: linearLoss.blockRows(rows, classes, dtype, logitsBytes),
      ignored: ignoreIndex >>> 0,
      weightType: weight.dtype,
      ...productAttributes(dtype),
    };
    const wants = [x, weight].map(({ requiresGrad }) => isGradEnabled() && requiresGrad);
    if (reduction === 'none' || !wants.includes(true)) {
      return reducedLoss(name, () => apply(linearLoss.linearCrossEntropyRows, [a, b, classNumbers], attributes), reduction);
    }
    if (reduction !== 'mean' && reduction !== 'sum') return reducedLoss(name, () => x, reduction);
    return apply(linearLoss.linearCrossEntropy, [a, b, classNumbers], { ...attributes, scale: reduction === 'mean' ? 1 / rows : 1, wants });
  });
}

/** (x - y)², reduced. Throws a ShapeError if the shapes differ. @param {Tensor} x @param {Tensor} y @param {LossOptions} [options] */
export function mseLoss(x, y, options = {}) {
  const { reduction } = checkOptions('mseLoss', options, ['reduction']);
  sameShape('mseLoss', x, y);
  return reducedLoss('mseLoss', () => square(sub(f32UnderAutocast(x), y)), reduction);
}
/** |x - y|, reduced. Throws a ShapeError if the shapes differ. @param {Tensor} x @param {Tensor} y @param {LossOptions} [options] */
export function l1Loss(x, y, options = {}) {
  const { reduction } = checkOptions('l1Loss', options, ['reduction']);
  sameShape('l1Loss', x, y);
  return reducedLoss('l1Loss', () => abs(sub(f32UnderAutocast(x), y)), reduction);
}

/**
 * Binary cross-entropy of logits x and targets y, in nats: -posWeight · y log σ(x) - (1 - y) log(1 - σ(x)), times `weight`, reduced. It does
 * not overflow. Throws a ShapeError if the shapes differ.
 * @param {Tensor} x logits @param {Tensor} y targets in [0, 1] @param {LossOptions & BinaryOptions} [options]
 */
export function binaryCrossEntropyWithLogits(x, y, options = {}) {
  const name = 'binaryCrossEntropyWithLogits';
  const { reduction, weight, posWeight } = checkOptions(name, options, ['reduction', 'weight', 'posWeight']);
  const targets = sameShape(name, x, y);
  floatType(name, x.layout);
  for (const factor of [weight, posWeight]) if (factor !== undefined) broadcastsTo(name, factor, x);
  const losses = () => {
    const logits = f32UnderAutocast(x);
    // log(1 + eˣ) = max(x, 0) + log(1 + e^-|x|), whose power is at most 1.
    const tail = log1p(exp(neg(abs(logits))));
    if (posWeight === undefined) return add(sub(maximum(logits, 0), mul(logits, targets)), tail);
    const factor = add(mul(sub(posWeight, 1), targets), 1);
    return add(mul(add(neg(targets), 1), logits), mul(factor, add(tail, maximum(neg(logits), 0))));
  };
  return reducedLoss(name, () => (weight === undefined ? losses() : mul(losses(), weight)), reduction);
}

/** Throws a ShapeError if a factor does not broadcast to x. @param {string} op @param {Tensor} factor @param {Tensor} x */
export function broadcastsTo(op, factor, x) {
  if (show(broadcastShapes(op, tensorOf(op, factor).shape, x.shape)) !== show(x.shape))
    throw new ShapeError(op, `a weight ${show(factor.shape)} does not broadcast to ${show(x.shape)}`);
}

/** Throws a ShapeError if the shapes differ: broadcasting is rarely what a loss means. @param {string} op @param {Tensor} x @param {Tensor} y */
export function sameShape(op, x, y) {
  tensorOf(op, x);
  tensorOf(op, y);
  if (show(x.shape) !== show(y.shape)) {
    throw new ShapeError(
      op,
      `predictions ${show(x.shape)} and targets ${show(y.shape)} are of two shapes; reshape one (they would broadcast)`,
    );
  }
  return y;
}
