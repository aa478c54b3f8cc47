// Weighted means and counts of elements in intervals.

import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { dimension, isFloat, positive } from '../core/layout.mjs';
import { checkFinite, checkOptions, flag } from '../core/options.mjs';
import { linspace } from './creation.mjs';
import * as F from './functional.mjs';
import { indexOf } from './indexing.mjs';
import { logicalAnd } from './integers.mjs';
import { asFloat, toF32 } from './operands.mjs';
import { scatterAdd } from './scatter.mjs';
import { searchsorted } from './sorting.mjs';

/** @import { Tensor } from './tensor.mjs' */

/**
 * Options of `average`.
 * @typedef {object} AverageOptions
 * @property {number} [dim] all elements when left out
 * @property {Tensor} [weights] of x's shape, or [n] of the dimension's size; all alike when left out
 */

/**
 * Options of `histogram`.
 * @typedef {object} HistogramOptions
 * @property {readonly [number, number]} [range] of equal intervals; the least and the largest element when left out
 * @property {Tensor} [weight] of x's shape: how much each element counts; 1 when left out
 * @property {boolean} [density] whether the result is divided by its sum and the intervals' widths; false when left out
 */

/** The mean with weights, Σ w x / Σ w, as NumPy's `average`. @param {Tensor} x @param {AverageOptions} [options] @returns {Tensor} */
export function average(x, options = {}) {
  const { dim, weights } = checkOptions('average', options, ['dim', 'weights']);
  const d = dim === undefined ? undefined : dimension('average', dim, tensorOf('average', x).ndim);
  tensorOf('average', x);
  if (weights === undefined) return within('average', () => F.mean(asFloat('average', x), d));
  const isVector = d !== undefined && show(tensorOf('average', weights).shape) === show([x.shape[d]]);
  if (!isVector && show(tensorOf('average', weights).shape) !== show(x.shape))
    throw new ShapeError('average', `weights ${show(weights.shape)} of ${show(x.shape)}: they must be of its shape, or of one dimension`);
  return within('average', () => {
    const own = isVector
      ? F.reshape(
          weights,
          x.shape.map((_, i) => (i === d ? -1 : 1)),
        )
      : weights;
    const w = F.expand(F.to(own, 'f32'), x.shape);
    return F.to(F.div(F.sum(F.mul(F.to(x, 'f32'), w), d), F.sum(w, d)), isFloat(x.dtype) ? x.dtype : 'f32');
  });
}

/**
 * Counts elements in intervals, of which the last has its end, too; elements outside and NaN do not count.
 * @param {Tensor} x f32, f16 or bf16 @param {number | Tensor} bins how many intervals of equal width, or their edges [n + 1], increasing
 * @param {HistogramOptions} [options]
 * @returns {{ hist: Tensor, binEdges: Tensor }} f32 [n] and [n + 1]
 */
export function histogram(x, bins, options = {}) {
  const op = 'histogram';
  const { range, weight, density = false } = checkOptions(op, options, ['range', 'weight', 'density']);
  flag(op, 'density', density);
  if (!isFloat(tensorOf(op, x).dtype)) throw new ArgumentError(op, `takes f32, f16 or bf16, got ${x.dtype}; convert with .to('f32')`);
  if (typeof bins === 'number') positive(op, 'bins', bins);
  else if (tensorOf(op, bins).ndim !== 1 || bins.size < 2) throw new ShapeError(op, `edges must be [n + 1], got ${show(bins.shape)}`);
  if (range !== undefined && (!Array.isArray(range) || range.length !== 2 || typeof bins !== 'number'))
    throw new ArgumentError(op, `range must be two numbers, for a number of bins, got ${shown(range)}`);
  if (range) for (const [i, end] of range.entries()) checkFinite(op, `range[${i}]`, end);
  if (range && !(range[0] < range[1])) throw new ArgumentError(op, `range must be two numbers in order, got ${shown(range)}`);
  if (weight !== undefined && show(tensorOf(op, weight).shape) !== show(x.shape))
    throw new ShapeError(op, `the weight must be ${show(x.shape)}, got ${show(weight.shape)}`);
  if (typeof bins === 'number' && !range && x.size === 0) throw new ShapeError(op, 'of 0 elements there is no least: give a range');
  return within(op, () => {
    const flat = F.reshape(toF32(x.detach()), [-1]);
    const binEdges = typeof bins === 'number' ? equalEdges(flat, bins, range) : toF32(bins);
    const n = binEdges.size - 1;
    const place = F.sub(searchsorted(binEdges, flat, { right: true }), 1);
    const last = F.slice(binEdges, 0, n, n + 1);
    const own = F.where(F.eq(flat, last), n - 1, F.where(logicalAnd(F.ge(place, 0), F.lt(place, n)), place, n));
    const counts = scatterAdd(F.zeros([n]), 0, own, weight ? F.reshape(toF32(weight), [-1]) : F.ones([flat.size]));
    const widths = F.sub(F.slice(binEdges, 0, 1), F.slice(binEdges, 0, 0, n));
    return { hist: density ? F.div(F.div(counts, F.sum(counts)), widths) : counts, binEdges };
  });
}

/** @param {Tensor} flat @param {number} bins @param {readonly [number, number] | undefined} range @returns {Tensor} */
function equalEdges(flat, bins, range) {
  if (range) return linspace(range[0], range[1], bins + 1);
  const [low, high] = [F.amin(flat, 0, true), F.amax(flat, 0, true)];
  // Of no width, they are moved apart by 1/2 each.
  const flatBy = F.mul(F.to(F.eq(low, high), 'f32'), 0.5);
  const [from, to] = [F.sub(low, flatBy), F.add(high, flatBy)];
  const inner = F.add(from, F.mul(F.sub(to, from), linspace(0, 1, bins + 1)));
  // The ends exactly.
  return F.cat([from, F.slice(inner, 0, 1, bins), to]);
}

/**
 * Options of `denseBincount`.
 * @typedef {object} DenseBincountOptions
 * @property {Tensor} [weights] f32, f16 or bf16, of x's shape: how much each counts; 1 when left out
 * @property {boolean} [binaryOutput] whether the result is 1 where a number is there, and not how often; false when left out
 */

/**
 * How often each of 0 … size - 1 is in a vector, or in each row. Others do not count. Its size is given, so that it may be compiled, unlike `bincount`.
 * @param {Tensor} x integers [n] or [rows, n] @param {number} size @param {DenseBincountOptions} [options]
 * @returns {Tensor} f32 [size] or [rows, size]
 */
export function denseBincount(x, size, options = {}) {
  const op = 'denseBincount';
  const { weights, binaryOutput = false } = checkOptions(op, options, ['weights', 'binaryOutput']);
  flag(op, 'binaryOutput', binaryOutput);
  if (tensorOf(op, x).ndim !== 1 && x.ndim !== 2) throw new ShapeError(op, `expected [n] or [rows, n], got ${show(x.shape)}`);
  positive(op, 'size', size);
  if (weights !== undefined && show(tensorOf(op, weights).shape) !== show(x.shape))
    throw new ShapeError(op, `the weights must be ${show(x.shape)}, got ${show(weights.shape)}`);
  const own = indexOf(op, x);
  return within(op, () => {
    const there = F.where(logicalAnd(F.ge(own, 0), F.lt(own, size)), own, size);
    const counts = scatterAdd(F.zeros(x.shape.with(-1, size)), -1, there, weights ? F.to(weights, 'f32') : F.ones(x.shape));
    return binaryOutput ? F.to(F.ne(counts, 0), 'f32') : counts;
  });
}
