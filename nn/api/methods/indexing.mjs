// Methods of tensors: elements by index and by order.

import { asTensor } from '../../core/tensor.mjs';
import * as indexing from '../indexing.mjs';
import * as scatter from '../scatter.mjs';
import * as sorting from '../sorting.mjs';
import { ShapeMethods } from './shape.mjs';

/** @typedef {import('../tensor.mjs').Tensor} Tensor */
/** @typedef {import('../functional.mjs').Operand} Operand */

/** The elements of a tensor by index: part of every `Tensor`. */
export class IndexingMethods extends ShapeMethods {
  /**
   * The index of the maximum along a dimension, as i32; see `F.argmax`.
   * @param {number} [dim] the last when left out @param {boolean} [keepdim] keeps it with size 1
   */
  argmax(dim, keepdim) {
    return indexing.argmax(asTensor(this), dim, keepdim);
  }
  /**
   * The index of the minimum along a dimension, as i32; see `F.argmin`.
   * @param {number} [dim] the last when left out @param {boolean} [keepdim] keeps it with size 1
   */
  argmin(dim, keepdim) {
    return indexing.argmin(asTensor(this), dim, keepdim);
  }
  /** As `gather`, but the other sizes broadcast; see `F.takeAlongDim`. @param {Tensor} index i32 or u32 @param {number} [dim] the last when left out */
  takeAlongDim(index, dim) {
    return indexing.takeAlongDim(asTensor(this), index, dim);
  }
  /** Picks elements by index along a dimension; see `F.gather`. @param {number} dim @param {Tensor} index i32 or u32 */
  gather(dim, index) {
    return indexing.gather(asTensor(this), dim, index);
  }
  /** A copy with elements of `source` written by index; see `F.scatter`. @param {number} dim @param {Tensor} index @param {Operand} source */
  scatter(dim, index, source) {
    return indexing.scatter(asTensor(this), dim, index, source);
  }
  /** A copy with elements of `source` added by index; see `F.scatterAdd`. @param {number} dim @param {Tensor} index @param {Tensor} source */
  scatterAdd(dim, index, source) {
    return scatter.scatterAdd(asTensor(this), dim, index, source);
  }
  /** Picks slices of a dimension by index; see `F.indexSelect`. @param {number} dim @param {Tensor} index [n] i32 or u32 */
  indexSelect(dim, index) {
    return indexing.indexSelect(asTensor(this), dim, index);
  }
  /**
   * The elements in order along a dimension, and where they were; see `F.sort`.
   * @param {number} [dim] the last when left out @param {boolean} [descending] false when left out
   */
  sort(dim, descending) {
    return sorting.sort(asTensor(this), dim, descending);
  }
  /**
   * The indices that sort a dimension, as i32; see `F.argsort`.
   * @param {number} [dim] the last when left out @param {boolean} [descending] false when left out
   */
  argsort(dim, descending) {
    return sorting.argsort(asTensor(this), dim, descending);
  }
  /**
   * The k largest elements along a dimension, and where they were; see `F.topk`.
   * @param {number} k @param {number} [dim] the last when left out @param {boolean} [largest] true when left out
   * @param {boolean} [sorted]
   */
  topk(k, dim, largest, sorted) {
    return sorting.topk(asTensor(this), k, dim, largest, sorted);
  }
  /**
   * The k-th smallest element along a dimension, and where it was; see `F.kthvalue`.
   * @param {number} k @param {number} [dim] the last when left out @param {boolean} [keepdim] keeps it with size 1
   */
  kthvalue(k, dim, keepdim) {
    return sorting.kthvalue(asTensor(this), k, dim, keepdim);
  }
  /**
   * Indices drawn by these weights; see `F.multinomial`.
   * @param {number} numSamples @param {boolean} [replacement] false when left out
   */
  multinomial(numSamples, replacement) {
    return sorting.multinomial(asTensor(this), numSamples, replacement);
  }
  /**
   * Counts the elements in intervals; see `F.histc`.
   * @param {number} [bins] @param {number} [min] @param {number} [max]
   */
  histc(bins, min, max) {
    return sorting.histc(asTensor(this), bins, min, max);
  }
  /**
   * How often each number occurs; waits for the largest; see `F.bincount`.
   * @param {Tensor} [weights] @param {number} [minlength]
   */
  bincount(weights, minlength) {
    return sorting.bincount(asTensor(this), weights, minlength);
  }
  /** The different elements; waits for their number; see `F.unique`. */
  unique() {
    return sorting.unique(asTensor(this));
  }
  /** Equal neighbours as one; waits for their number; see `F.uniqueConsecutive`. */
  uniqueConsecutive() {
    return sorting.uniqueConsecutive(asTensor(this));
  }
  /** The indices of elements that are not 0; waits for their number; see `F.nonzero`. */
  nonzero() {
    return sorting.nonzero(asTensor(this));
  }
  /** The elements where a mask is true; waits for their number; see `F.maskedSelect`. @param {Tensor} mask bool */
  maskedSelect(mask) {
    return sorting.maskedSelect(asTensor(this), mask);
  }
  /**
   * A copy with elements of `source` combined by index; see `F.scatterReduce`.
   * @param {number} dim @param {Tensor} index @param {Tensor} source @param {import('../sorting.mjs').Reduction} reduce
   * @param {import('../sorting.mjs').ScatterReduceOptions} [options]
   */
  scatterReduce(dim, index, source, reduce, options) {
    return sorting.scatterReduce(asTensor(this), dim, index, source, reduce, options);
  }
  /**
   * A copy with slices added by index; see `F.indexAdd`.
   * @param {number} dim @param {Tensor} index @param {Tensor} source @param {import('../sorting.mjs').IndexAddOptions} [options]
   */
  indexAdd(dim, index, source, options) {
    return sorting.indexAdd(asTensor(this), dim, index, source, options);
  }
  /**
   * A copy with slices written by index; see `F.indexCopy`.
   * @param {number} dim @param {Tensor} index @param {Tensor} source
   */
  indexCopy(dim, index, source) {
    return sorting.indexCopy(asTensor(this), dim, index, source);
  }
  /**
   * A copy with a number in the slices of an index; see `F.indexFill`.
   * @param {number} dim @param {Tensor} index @param {number} value
   */
  indexFill(dim, index, value) {
    return sorting.indexFill(asTensor(this), dim, index, value);
  }
  /**
   * A copy with elements of `source` where a mask is true; see `F.maskedScatter`.
   * @param {Tensor} mask bool @param {Tensor} source
   */
  maskedScatter(mask, source) {
    return sorting.maskedScatter(asTensor(this), mask, source);
  }
  /**
   * A copy with values at the places that indices name; see `F.indexPut`.
   * @param {Tensor[]} indices @param {Tensor} values @param {boolean} [accumulate] false when left out
   */
  indexPut(indices, values, accumulate) {
    return sorting.indexPut(asTensor(this), indices, values, accumulate);
  }
}
