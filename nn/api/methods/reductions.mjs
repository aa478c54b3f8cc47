// Methods of tensors: sums, means, extremes.

import { asTensor } from '../../core/tensor.mjs';
import * as F from '../functional.mjs';
import { IntegerMethods } from './integers.mjs';

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
   * The maximum along one dimension; NaN if any element is NaN.
   * @param {number} [dim] the last when left out @param {boolean} [keepdim] keeps it with size 1
   */
  amax(dim, keepdim) {
    return F.amax(asTensor(this), dim, keepdim);
  }
  /**
   * The minimum along one dimension; NaN if any element is NaN.
   * @param {number} [dim] the last when left out @param {boolean} [keepdim] keeps it with size 1
   */
  amin(dim, keepdim) {
    return F.amin(asTensor(this), dim, keepdim);
  }
  /** exp(x) / Σ exp(x) along a dimension. @param {number} [dim] the last when left out */
  softmax(dim) {
    return F.softmax(asTensor(this), dim);
  }
}
