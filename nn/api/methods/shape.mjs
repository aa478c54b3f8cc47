// Methods of tensors: the same elements in other shapes and orders.

import { storageOf } from '../../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../../core/errors.mjs';
import { dimension, sizeOf } from '../../core/layout.mjs';
import { asTensor } from '../../core/tensor.mjs';
import * as F from '../functional.mjs';
import { ReductionMethods } from './reductions.mjs';

/** @typedef {import('../tensor.mjs').Tensor} Tensor */

/** The elements of a tensor in other shapes and orders: part of every `Tensor`. */
export class ShapeMethods extends ReductionMethods {
  /** This tensor if its elements are dense, row by row; otherwise a dense copy. @returns {Tensor} */
  contiguous() {
    return this.layout.contiguous ? asTensor(this) : within('contiguous', () => F.clone(asTensor(this)));
  }
  /** A dense copy, through which gradients flow. */
  clone() {
    return F.clone(asTensor(this));
  }
  /** The same elements in another shape: a view if the strides allow, else a copy. @param {...number} shape one size may be -1: inferred */
  reshape(...shape) {
    return F.reshape(asTensor(this), shape.flat());
  }
  /** The same as `reshape`: unlike PyTorch's `view`, it copies if the strides do not allow a view. @param {...number} shape */
  view(...shape) {
    return within('view', () => F.reshape(asTensor(this), shape.flat()));
  }
  /** The dimensions in another order, as a view. @param {...number} order for each dimension of the result, the one of this tensor */
  permute(...order) {
    return F.permute(asTensor(this), order.flat());
  }
  /** Exchanges two dimensions, as a view; negative numbers count from the end. @param {number} a @param {number} b */
  transpose(a, b) {
    return F.transpose(asTensor(this), a, b);
  }
  /** The transpose of the last two dimensions, as a view. */
  get T() {
    return within('T', () => F.transpose(asTensor(this), -2, -1));
  }
  /** Repeats dimensions of size 1 up to a larger shape, as a view. @param {...number} shape */
  expand(...shape) {
    return F.expand(asTensor(this), shape.flat());
  }
  /** Inserts a dimension of size 1 at `dim` of the result, as a view. @param {number} dim */
  unsqueeze(dim) {
    return F.unsqueeze(asTensor(this), dim);
  }
  /** Removes a dimension of size 1, or all such dimensions if `dim` is left out, as a view. @param {number} [dim] */
  squeeze(dim) {
    return F.squeeze(asTensor(this), dim);
  }
  /**
   * Merges the dimensions from `start` to `end`, both included, into one.
   * @param {number} [start] the first dimension when left out @param {number} [end] the last when left out
   */
  flatten(start = 0, end = -1) {
    storageOf('flatten', asTensor(this));
    const [a, b] = [start, end].map((d) => dimension('flatten', d, Math.max(this.ndim, 1)));
    if (a > b) throw new ShapeError('flatten', `the first dimension, ${start}, lies behind the last, ${end}, in ${show(this.shape)}`);
    return within('flatten', () =>
      F.reshape(asTensor(this), [...this.shape.slice(0, a), sizeOf(this.shape.slice(a, b + 1)), ...this.shape.slice(b + 1)]),
    );
  }
  /**
   * The elements from `start` to before `end` along a dimension, every `step`-th, as a view. A negative `start` or `end` counts from the end.
   * @param {number} dim @param {number} [start] 0 when left out @param {number} [end] the size when left out @param {number} [step] 1 when left
   *   out
   */
  slice(dim, start, end, step) {
    return F.slice(asTensor(this), dim, start, end, step);
  }
  /**
   * The slice at index `i` of the first dimension, without that dimension, as a view. Throws a ShapeError for an index out of range.
   * @param {number} i negative: from the end
   */
  at(i) {
    storageOf('at', asTensor(this));
    const size = this.shape[0];
    if (!(Number.isInteger(i) && i >= -size && i < size))
      throw new ShapeError('at', `index ${shown(i)} is out of range for ${show(this.shape)}`);
    const index = i < 0 ? i + size : i;
    return F.squeeze(F.slice(asTensor(this), 0, index, index + 1), 0);
  }
  /**
   * Splits a dimension into parts of `size`; the last may be smaller. The parts are views.
   * @param {number} size @param {number} [dim] the first when left out
   */
  split(size, dim) {
    return F.split(asTensor(this), size, dim);
  }
  /**
   * Splits a dimension into at most `count` parts of equal size; the last may be smaller. The parts are views.
   * @param {number} count @param {number} [dim] the first when left out
   */
  chunk(count, dim = 0) {
    if (!(Number.isInteger(count) && count > 0))
      throw new ArgumentError('chunk', `count must be an integer of at least 1, got ${shown(count)}`);
    storageOf('chunk', asTensor(this));
    if (this.ndim === 0) throw new ShapeError('chunk', 'a tensor [] has no dimension to split');
    return F.split(asTensor(this), Math.max(1, Math.ceil(this.shape[dimension('chunk', dim, this.ndim)] / count)), dim);
  }
}
