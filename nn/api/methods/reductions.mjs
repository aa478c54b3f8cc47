// Methods of tensors: sums, means, extremes.

import { asTensor } from '../../core/tensor.mjs';
import * as F from '../functional.mjs';
import { ElementwiseMethods } from './elementwise.mjs';

/** What a tensor computes over dimensions: part of every `Tensor`. */
export class ReductionMethods extends ElementwiseMethods {
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
}
