// Methods of tensors: sums, means, extremes, running results.

import { asTensor } from '../../core/tensor.mjs';
import * as F from '../functional.mjs';
import { IntegerMethods } from './integers.mjs';
import * as reductions from '../reductions.mjs';

/** @typedef {import('../tensor.mjs').Tensor} Tensor */
/** @typedef {import('../reductions.mjs').Chosen} Chosen */
/** @typedef {import('../functional.mjs').VarianceOptions} VarianceOptions */

/** What a tensor computes over dimensions: part of every `Tensor`. */
export class ReductionMethods extends IntegerMethods {
  /** The sum over dimensions, all when left out. @param {number | readonly number[]} [dim] @param {boolean} [keepdim] keeps them with size 1 */
  sum(dim, keepdim) {
    return F.sum(asTensor(this), dim, keepdim);
  }
  /** The mean over dimensions, all when left out. @param {number | readonly number[]} [dim] @param {boolean} [keepdim] keeps them with size 1 */
  mean(dim, keepdim) {
    return F.mean(asTensor(this), dim, keepdim);
  }
  /**
   * The maximum over dimensions; NaN if any element is NaN. Equal elements share the gradient.
   * @param {number | readonly number[]} [dim] the last when left out; all of [] @param {boolean} [keepdim] keeps them with size 1
   */
  amax(dim, keepdim) {
    return F.amax(asTensor(this), dim, keepdim);
  }
  /**
   * The minimum over dimensions; NaN if any element is NaN. Equal elements share the gradient.
   * @param {number | readonly number[]} [dim] the last when left out; all of [] @param {boolean} [keepdim] keeps them with size 1
   */
  amin(dim, keepdim) {
    return F.amin(asTensor(this), dim, keepdim);
  }
  /** exp(x) / Σ exp(x) along a dimension. @param {number} [dim] the last when left out */
  softmax(dim) {
    return F.softmax(asTensor(this), dim);
  }
  /** log softmax(x) along a dimension. @param {number} [dim] the last when left out */
  logSoftmax(dim) {
    return F.logSoftmax(asTensor(this), dim);
  }
  /**
   * The largest element of all, or with a dimension the largest along it and their indices, or with a tensor the larger of each two; see `F.max`.
   * @overload
   * @returns {Tensor}
   *
   * @overload
   * @param {number} dim @param {boolean} [keepdim] keeps it with size 1
   * @returns {Chosen}
   *
   * @overload
   * @param {Tensor} other
   * @returns {Tensor}
   *
   * @param {number | Tensor} [dim] @param {boolean} [keepdim]
   * @returns {Tensor | Chosen}
   */
  max(dim, keepdim) {
    return reductions.extremes('max', asTensor(this), dim, keepdim);
  }
  /**
   * The smallest element of all, or with a dimension the smallest along it and their indices, or with a tensor the smaller of each two; see `F.min`.
   * @overload
   * @returns {Tensor}
   *
   * @overload
   * @param {number} dim @param {boolean} [keepdim] keeps it with size 1
   * @returns {Chosen}
   *
   * @overload
   * @param {Tensor} other
   * @returns {Tensor}
   *
   * @param {number | Tensor} [dim] @param {boolean} [keepdim]
   * @returns {Tensor | Chosen}
   */
  min(dim, keepdim) {
    return reductions.extremes('min', asTensor(this), dim, keepdim);
  }
  /**
   * The product over dimensions.
   * @param {number | readonly number[]} [dim] all when left out @param {boolean} [keepdim] keeps them with size 1
   */
  prod(dim, keepdim) {
    return reductions.prod(asTensor(this), dim, keepdim);
  }
  /**
   * log Σ exp(x) over dimensions, without overflow.
   * @param {number | readonly number[]} [dim] all when left out @param {boolean} [keepdim] keeps them with size 1
   */
  logsumexp(dim, keepdim) {
    return reductions.logsumexp(asTensor(this), dim, keepdim);
  }
  /**
   * Whether any element is not 0, as bool.
   * @param {number | readonly number[]} [dim] all when left out @param {boolean} [keepdim] keeps them with size 1
   */
  any(dim, keepdim) {
    return reductions.any(asTensor(this), dim, keepdim);
  }
  /**
   * Whether no element is 0, as bool.
   * @param {number | readonly number[]} [dim] all when left out @param {boolean} [keepdim] keeps them with size 1
   */
  all(dim, keepdim) {
    return reductions.all(asTensor(this), dim, keepdim);
  }
  /**
   * How many elements are not 0, as i32.
   * @param {number | readonly number[]} [dim] all when left out @param {boolean} [keepdim] keeps them with size 1
   */
  countNonzero(dim, keepdim) {
    return reductions.countNonzero(asTensor(this), dim, keepdim);
  }
  /**
   * The sum over dimensions, where NaN counts as 0.
   * @param {number | readonly number[]} [dim] all when left out @param {boolean} [keepdim] keeps them with size 1
   */
  nansum(dim, keepdim) {
    return reductions.nansum(asTensor(this), dim, keepdim);
  }
  /**
   * The mean over dimensions of what is not NaN.
   * @param {number | readonly number[]} [dim] all when left out @param {boolean} [keepdim] keeps them with size 1
   */
  nanmean(dim, keepdim) {
    return reductions.nanmean(asTensor(this), dim, keepdim);
  }
  /**
   * The variance over dimensions; see `F.variance`.
   * @param {number | readonly number[]} [dim] all when left out @param {VarianceOptions} [options]
   * @returns {Tensor}
   */
  var(dim, options) {
    return reductions.var_(asTensor(this), dim, options);
  }
  /**
   * The standard deviation over dimensions; see `F.std`.
   * @param {number | readonly number[]} [dim] all when left out @param {VarianceOptions} [options]
   */
  std(dim, options) {
    return reductions.std(asTensor(this), dim, options);
  }
  /**
   * The p-norm over dimensions; see `F.norm`.
   * @param {number | 'fro'} [p] 2 when left out @param {number | readonly number[]} [dim] all when left out
   * @param {boolean} [keepdim] keeps them with size 1
   */
  norm(p, dim, keepdim) {
    return reductions.norm(asTensor(this), p, dim, keepdim);
  }
  /**
   * The median of all elements, or with a dimension the medians along it and their indices; see `F.median`.
   * @overload
   * @returns {Tensor}
   *
   * @overload
   * @param {number} dim @param {boolean} [keepdim] keeps it with size 1
   * @returns {Chosen}
   *
   * @param {number} [dim] @param {boolean} [keepdim]
   * @returns {Tensor | Chosen}
   */
  median(dim, keepdim) {
    return reductions.medians(asTensor(this), dim, keepdim);
  }
  /**
   * Quantiles of the elements; see `F.quantile`.
   * @param {number | readonly number[]} q in [0, 1] @param {import('../reductions.mjs').QuantileOptions} [options]
   */
  quantile(q, options) {
    return reductions.quantile(asTensor(this), q, options);
  }
  /**
   * The differences of neighbours along a dimension; see `F.diff`.
   * @param {number} [n] how often, 1 when left out @param {number} [dim] the last when left out
   * @param {import('../reductions.mjs').DiffOptions} [options]
   */
  diff(n, dim, options) {
    return reductions.diff(asTensor(this), n, dim, options);
  }
  /** The sum of each element and those before it along a dimension. @param {number} dim */
  cumsum(dim) {
    return reductions.cumsum(asTensor(this), dim);
  }
  /** The product of each element and those before it along a dimension. @param {number} dim */
  cumprod(dim) {
    return reductions.cumprod(asTensor(this), dim);
  }
  /** log Σ exp(x) of each element and those before it along a dimension. @param {number} dim */
  logcumsumexp(dim) {
    return reductions.logcumsumexp(asTensor(this), dim);
  }
  /** The largest element so far along a dimension, and its index; see `F.cummax`. @param {number} dim */
  cummax(dim) {
    return reductions.cummax(asTensor(this), dim);
  }
  /** The smallest element so far along a dimension, and its index; see `F.cummin`. @param {number} dim */
  cummin(dim) {
    return reductions.cummin(asTensor(this), dim);
  }
}
