// Methods of tensors: elements by index.

import { asTensor } from '../../core/tensor.mjs';
import * as indexing from '../indexing.mjs';
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
    return indexing.scatterAdd(asTensor(this), dim, index, source);
  }
  /** Picks slices of a dimension by index; see `F.indexSelect`. @param {number} dim @param {Tensor} index [n] i32 or u32 */
  indexSelect(dim, index) {
    return indexing.indexSelect(asTensor(this), dim, index);
  }
}
