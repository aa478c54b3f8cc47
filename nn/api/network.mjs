// Further functions of networks: tables, bilinear forms, pools by norm and back, and losses of several labels, with PyTorch's names and defaults.

import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { denseLayout, isFloat } from '../core/layout.mjs';
import { checkAbove, checkFinite, checkOptions, flag } from '../core/options.mjs';
import { constant } from '../core/tensor.mjs';
import { conv1d, each } from './convolution.mjs';
import { pairwiseDistance } from './criteria.mjs';
import { cdist } from './einsum.mjs';
import * as F from './functional.mjs';
import { gather, indexOf, indexSelect, oneHot, scatter, signedIndexOf } from './indexing.mjs';
import { broadcastsTo, reducedLoss, sameShape } from './losses.mjs';
import { logSigmoid } from './math.mjs';
import { toF32 } from './operands.mjs';
import { avgPool } from './pooling.mjs';
import { cumsum } from './reductions.mjs';
import { interpolate } from './resample.mjs';
import { scatterReduce, searchsorted } from './sorting.mjs';
import { triuIndices } from './creation.mjs';

/** @import { Tensor } from './tensor.mjs' */
/** @import { LossOptions } from './losses.mjs' */
/** @import { MarginOptions } from './criteria.mjs' */
/** @import { WeightOptions } from './criteria.mjs' */

/**
 * Options of `embeddingBag`.
 * @typedef {object} EmbeddingBagOptions
 * @property {'sum' | 'mean' | 'max'} [mode] how the rows of a bag become one; 'mean' when left out
 * @property {Tensor} [perSampleWeights] of the ids' shape: a factor on the row of each id, with its gradient; only with the mode 'sum'
 */

/**
 * Options of pools by norm.
 * @typedef {object} LpPoolOptions
 * @property {number | readonly number[]} [stride] elements from one window to the next; the window's size when left out
 * @property {boolean} [ceilMode] whether a last window may end beyond x; false when left out
 */

/**
 * Options of `maxUnpool1d` and its kin.
 * @typedef {object} UnpoolOptions
 * @property {number | readonly number[]} [stride] of the pool; the window's size when left out
 * @property {number | readonly number[]} [padding] of the pool; 0 when left out
 * @property {readonly number[]} [outputSize] the sizes behind the channels; the least that the pool gives x's from when left out
 */

/**
 * Options of `tripletMarginWithDistanceLoss` besides those of losses with a margin.
 * @typedef {object} DistanceFunctionOptions
 * @property {(a: Tensor, b: Tensor) => Tensor} [distanceFunction] of rows; `pairwiseDistance` when left out
 * @property {boolean} [swap] whether the distance from positive to negative counts where it is less than that of the anchor; false when left out
 */

/**
 * Options of `upsampleBilinear`. One of both is needed.
 * @typedef {object} UpsampleBilinearOptions
 * @property {number | readonly number[]} [size] of the result, [rows, columns]
 * @property {number | readonly number[]} [scaleFactor] result size / size
 */

// ---- tables and forms

/**
 * y[k] = a W[k] b + bias[k].
 * @param {Tensor} a [..., first] @param {Tensor} b [..., second] @param {Tensor} weight [outputs, first, second] @param {Tensor} [bias] [outputs]
 * @returns {Tensor} [..., outputs]
 */
export function bilinear(a, b, weight, bias) {
  const op = 'bilinear';
  for (const x of [a, b, weight]) tensorOf(op, x);
  if (weight.ndim !== 3) throw new ShapeError(op, `the weight must be [outputs, first, second], got ${show(weight.shape)}`);
  if (bias !== undefined) tensorOf(op, bias);
  const [outputs, first, second] = weight.shape;
  if (a.shape.at(-1) !== first || b.shape.at(-1) !== second || show(a.shape.slice(0, -1)) !== show(b.shape.slice(0, -1)))
    throw new ShapeError(op, `expected [..., ${first}] and [..., ${second}], got ${show(a.shape)} and ${show(b.shape)}`);
  return within(op, () => {
    // a W for all outputs by one product, then a sum over b's columns.
    const matrix = F.reshape(F.permute(weight, [0, 2, 1]), [outputs * second, first]);
    const both = F.reshape(F.linear(a, matrix), [...a.shape.slice(0, -1), outputs, second]);
    const y = F.sum(F.mul(both, F.unsqueeze(b, -2)), -1);
    return bias ? F.add(y, bias) : y;
  });
}

/**
 * The sum, the mean or the largest of rows of a table, bag by bag.
 * @param {Tensor} ids i32, u32 or i64: [bags, n], or [n] with `offsets` @param {Tensor} weight the table, [vocabulary, columns]
 * @param {Tensor} [offsets] i32, u32 or i64 [bags]: where each bag of [n] begins, from 0 on and not decreasing; a bag without ids gives zeros
 * @param {EmbeddingBagOptions} [options]
 * @returns {Tensor} [bags, columns]
 */
export function embeddingBag(ids, weight, offsets, options = {}) {
  const op = 'embeddingBag';
  const { mode = 'mean', perSampleWeights } = checkOptions(op, options, ['mode', 'perSampleWeights']);
  if (!['sum', 'mean', 'max'].includes(mode)) throw new ArgumentError(op, `mode is 'sum', 'mean' or 'max', got ${shown(mode)}`);
  const { ndim } = tensorOf(op, ids);
  tensorOf(op, weight);
  if (perSampleWeights !== undefined) {
    if (mode !== 'sum') throw new ArgumentError(op, `perSampleWeights need the mode 'sum', got ${shown(mode)}`);
    if (!isFloat(tensorOf(op, perSampleWeights).dtype) || show(perSampleWeights.shape) !== show(ids.shape))
      throw new ShapeError(
        op,
        `perSampleWeights must be floats of the ids' shape ${show(ids.shape)}, got ${perSampleWeights.dtype} ${show(perSampleWeights.shape)}`,
      );
  }
  const rowsOf = () => {
    const rows = F.embedding(ids, weight);
    return perSampleWeights ? F.mul(rows, F.unsqueeze(F.to(perSampleWeights, rows.dtype), -1)) : rows;
  };
  if (offsets === undefined) {
    if (ndim !== 2 || ids.size === 0) throw new ShapeError(op, `expected ids [bags, n], or [n] and offsets, got ${show(ids.shape)}`);
    return within(op, () => {
      const rows = rowsOf();
      return mode === 'sum' ? F.sum(rows, 1) : mode === 'mean' ? F.mean(rows, 1) : F.amax(rows, 1);
    });
  }
  tensorOf(op, offsets);
  if (ndim !== 1 || offsets.ndim !== 1 || offsets.size === 0)
    throw new ShapeError(op, `expected ids [n] and offsets [bags], got ${show(ids.shape)} and ${show(offsets.shape)}`);
  const firsts = within(op, () => indexOf(op, offsets));
  return within(op, () => {
    const rows = rowsOf();
    // The bag of each id is the last that begins at it or before; ids before the first are in none.
    const at = constant(
      Int32Array.from({ length: ids.size }, (_, i) => i),
      denseLayout([ids.size], 'i32'),
    );
    const behind = searchsorted(F.to(firsts, 'i32'), at, { right: true });
    const bags = F.where(F.gt(behind, 0), F.sub(behind, 1), offsets.size);
    const start = F.zeros([offsets.size, rows.shape[1]], { dtype: rows.dtype });
    const reduce = mode === 'max' ? 'amax' : mode;
    return scatterReduce(start, 0, F.expand(F.unsqueeze(bags, 1), rows.shape), rows, reduce, { includeSelf: false });
  });
}

/** softmax(-x). @param {Tensor} x @param {number} [dim] the last when left out @returns {Tensor} */
export const softmin = (x, dim = -1) => within('softmin', () => F.softmax(F.neg(tensorOf('softmin', x)), dim));

/**
 * The p-norm distance of each two rows: those of rows (0, 1), (0, 2), … (1, 2), ….
 * @param {Tensor} x [n, columns], of at least two rows @param {number} [p] at least 0; 2 when left out
 * @returns {Tensor} [n (n - 1) / 2]
 */
export function pdist(x, p = 2) {
  if (tensorOf('pdist', x).ndim !== 2 || x.shape[0] < 2)
    throw new ShapeError('pdist', `expected at least two rows, [n, columns], got ${show(x.shape)}`);
  return within('pdist', () => {
    const [n] = x.shape;
    const [rows, columns] = F.split(triuIndices(n, n, 1), 1, 0);
    const flat = F.reshape(F.add(F.mul(rows, n), columns), [-1]);
    return indexSelect(F.reshape(cdist(x, x, p), [-1]), 0, flat);
  });
}

/**
 * A convolution of sequences with time first, as PyTorch's `conv_tbc`.
 * @param {Tensor} x [time, batch, inputs] @param {Tensor} weight [width, inputs, outputs] @param {Tensor} bias [outputs] @param {number} [pad] 0 when left out
 * @returns {Tensor} [time', batch, outputs]
 */
export function convTbc(x, weight, bias, pad = 0) {
  for (const own of [x, weight])
    if (tensorOf('convTbc', own).ndim !== 3) throw new ShapeError('convTbc', `expected three dimensions, got ${show(own.shape)}`);
  tensorOf('convTbc', bias);
  return within('convTbc', () => {
    const y = conv1d(F.permute(x, [1, 2, 0]), F.permute(weight, [2, 1, 0]), bias, { padding: pad });
    return F.permute(y, [2, 0, 1]);
  });
}

/** Bilinear interpolation with the outermost elements on one another. @param {Tensor} x [batch, channels, rows, columns] @param {UpsampleBilinearOptions} options @returns {Tensor} */
export function upsampleBilinear(x, options) {
  const op = 'upsampleBilinear';
  const { size, scaleFactor } = checkOptions(op, options, ['size', 'scaleFactor']);
  tensorOf(op, x);
  const how = size === undefined ? { scaleFactor } : scaleFactor === undefined ? { size } : { size, scaleFactor };
  return within(op, () => interpolate(x, { ...how, mode: 'bilinear', alignCorners: true }));
}

// ---- pools

/**
 * (Σ x^p)^(1/p) of each window: the mean of powers times their number.
 * @param {string} op @param {number} rank @param {Tensor} x @param {number} p
 * @param {unknown} window @param {LpPoolOptions} options @returns {Tensor}
 */
function lpPool(op, rank, x, p, window, options) {
  const { stride = window, ceilMode = false } = checkOptions(op, options, ['stride', 'ceilMode']);
  if (!isFloat(tensorOf(op, x).dtype)) throw new ArgumentError(op, `takes f32, f16 or bf16, got ${x.dtype}; convert with .to('f32')`);
  if (checkFinite(op, 'normType', p) === 0) throw new ArgumentError(op, 'normType must not be 0');
  const sizes = each(op, 'window', window, 1, rank);
  return within(op, () => {
    const sums = F.mul(
      avgPool(`avgPool${rank}d`, rank, F.pow(toF32(x), p), sizes, { stride, ceilMode }),
      sizes.reduce((a, b) => a * b),
    );
    // The root's gradient at 0 would be infinite.
    const isZero = F.eq(sums, 0);
    return F.to(F.where(isZero, 0, F.pow(F.where(isZero, 1, sums), 1 / p)), x.dtype);
  });
}
/** (Σ x^p)^(1/p) of each window. @param {Tensor} x [batch, channels, steps] @param {number} normType p @param {number | readonly number[]} kernelSize @param {LpPoolOptions} [options] */
export const lpPool1d = (x, normType, kernelSize, options = {}) => lpPool('lpPool1d', 1, x, normType, kernelSize, options);
/** (Σ x^p)^(1/p) of each window. @param {Tensor} x [batch, channels, rows, columns] @param {number} normType p @param {number | readonly number[]} kernelSize @param {LpPoolOptions} [options] */
export const lpPool2d = (x, normType, kernelSize, options = {}) => lpPool('lpPool2d', 2, x, normType, kernelSize, options);
/** (Σ x^p)^(1/p) of each window. @param {Tensor} x [batch, channels, planes, rows, columns] @param {number} normType p @param {number | readonly number[]} kernelSize @param {LpPoolOptions} [options] */
export const lpPool3d = (x, normType, kernelSize, options = {}) => lpPool('lpPool3d', 3, x, normType, kernelSize, options);

/** @param {string} op @param {number} rank @param {Tensor} x @param {Tensor} indices @param {unknown} window @param {UnpoolOptions} options @returns {Tensor} */
function unpool(op, rank, x, indices, window, options) {
  const { stride = window, padding = 0, outputSize } = checkOptions(op, options, ['stride', 'padding', 'outputSize']);
  if (tensorOf(op, x).ndim !== rank + 2 || show(tensorOf(op, indices).shape) !== show(x.shape))
    throw new ShapeError(
      op,
      `expected an input of ${rank + 2} dimensions and indices of its shape, got ${show(x.shape)} and ${show(indices.shape)}`,
    );
  const [sizes, steps] = [each(op, 'window', window, 1, rank), each(op, 'stride', stride, 1, rank)];
  const around = each(op, 'padding', padding, 0, rank);
  const least = x.shape.slice(2).map((n, d) => (n - 1) * steps[d] - 2 * around[d] + sizes[d]);
  const result = outputSize === undefined ? least : each(op, 'outputSize', outputSize, 1, rank);
  if (result.some((n) => n < 1)) throw new ShapeError(op, `the result would be ${show(result)}`);
  const [batch, channels] = x.shape;
  return within(op, () => {
    const flat = (/** @type {Tensor} */ y) => F.reshape(y, [batch, channels, -1]);
    const start = F.zeros([batch, channels, result.reduce((a, b) => a * b)], { dtype: x.dtype });
    return F.reshape(scatter(start, 2, flat(indices), flat(x)), [batch, channels, ...result]);
  });
}
/** Puts what `maxPool1d` took back where it was, with zeros elsewhere. @param {Tensor} x [batch, channels, steps] @param {Tensor} indices from the pool @param {number | readonly number[]} kernelSize @param {UnpoolOptions} [options] */
export const maxUnpool1d = (x, indices, kernelSize, options = {}) => unpool('maxUnpool1d', 1, x, indices, kernelSize, options);
/** Puts what `maxPool2d` took back where it was, with zeros elsewhere. @param {Tensor} x [batch, channels, rows, columns] @param {Tensor} indices from the pool @param {number | readonly number[]} kernelSize @param {UnpoolOptions} [options] */
export const maxUnpool2d = (x, indices, kernelSize, options = {}) => unpool('maxUnpool2d', 2, x, indices, kernelSize, options);
/** Puts what `maxPool3d` took back where it was, with zeros elsewhere. @param {Tensor} x [batch, channels, planes, rows, columns] @param {Tensor} indices from the pool @param {number | readonly number[]} kernelSize @param {UnpoolOptions} [options] */
export const maxUnpool3d = (x, indices, kernelSize, options = {}) => unpool('maxUnpool3d', 3, x, indices, kernelSize, options);

// ---- losses

/**
 * Σ max(0, 1 - (x[target] - x[c])) / classes over the targets of a row and the classes c that are none, reduced. A row of targets ends at -1.
 * @param {Tensor} x [batch, classes], or [classes] @param {Tensor} targets integers of x's shape: classes, then -1 @param {LossOptions} [options]
 */
export function multilabelMarginLoss(x, targets, options = {}) {
  const op = 'multilabelMarginLoss';
  const { reduction } = checkOptions(op, options, ['reduction']);
  sameShape(op, x, targets);
  if (x.ndim !== 1 && x.ndim !== 2) throw new ShapeError(op, `expected [batch, classes] or [classes], got ${show(x.shape)}`);
  const classNumbers = within(op, () => signedIndexOf(op, targets));
  const losses = () => {
    const own = toF32(x);
    const classes = own.shape[own.ndim - 1];
    // What stands behind the first -1 is no target.
    const ended = F.gt(cumsum(F.lt(classNumbers, 0), -1), 0);
    const ids = F.where(ended, 0, classNumbers);
    const isTarget = F.ne(F.sum(F.mul(oneHot(ids, classes), F.unsqueeze(F.to(F.eq(ended, 0), 'f32'), -1)), -2), 0);
    const chosen = F.unsqueeze(gather(own, -1, ids), -1);
    const terms = F.maximum(F.add(F.sub(F.unsqueeze(own, -2), chosen), 1), 0);
    const counts = F.where(F.unsqueeze(ended, -1), 0, F.where(F.unsqueeze(isTarget, -2), 0, terms));
    return F.mul(F.sum(counts, [-2, -1]), 1 / classes);
  };
  return reducedLoss(op, losses, reduction);
}

/**
 * The mean over classes of binary cross-entropies of logits, times the classes' weights, reduced.
 * @param {Tensor} x logits [..., classes] @param {Tensor} y of x's shape: 0 or 1 @param {LossOptions & WeightOptions} [options]
 */
export function multilabelSoftMarginLoss(x, y, options = {}) {
  const op = 'multilabelSoftMarginLoss';
  const { reduction, weight } = checkOptions(op, options, ['reduction', 'weight']);
  sameShape(op, x, y);
  if (x.ndim === 0) throw new ShapeError(op, 'expected a dimension of classes, got a tensor []');
  if (weight !== undefined) broadcastsTo(op, weight, x);
  const losses = () => {
    const [own, target] = [toF32(x), toF32(y)];
    const terms = F.neg(F.add(F.mul(target, logSigmoid(own)), F.mul(F.sub(1, target), logSigmoid(F.neg(own)))));
    return F.mean(weight ? F.mul(terms, weight) : terms, -1);
  };
  return reducedLoss(op, losses, reduction);
}

/**
 * `tripletMarginLoss` with any distance.
 * @param {Tensor} anchor [..., n] @param {Tensor} positive of anchor's shape @param {Tensor} negative of anchor's shape
 * @param {LossOptions & MarginOptions & DistanceFunctionOptions} [options] margin 1
 */
export function tripletMarginWithDistanceLoss(anchor, positive, negative, options = {}) {
  const op = 'tripletMarginWithDistanceLoss';
  const known = /** @type {const} */ (['reduction', 'margin', 'distanceFunction', 'swap']);
  const { reduction, margin = 1, distanceFunction = pairwiseDistance, swap = false } = checkOptions(op, options, known);
  if (typeof distanceFunction !== 'function')
    throw new ArgumentError(op, `distanceFunction must be a function, got ${shown(distanceFunction)}`);
  checkAbove(op, 'margin', margin);
  flag(op, 'swap', swap);
  sameShape(op, anchor, positive);
  sameShape(op, anchor, negative);
  const distance = (/** @type {Tensor} */ a, /** @type {Tensor} */ b) => tensorOf(op, distanceFunction(a, b));
  const [near, far] = [distance(anchor, positive), distance(anchor, negative)];
  const other = swap ? F.minimum(far, distance(positive, negative)) : far;
  return reducedLoss(op, () => F.maximum(F.add(F.sub(near, other), margin), 0), reduction);
}
