// Methods of tensors: the same elements in other shapes and orders.

import { storageOf } from '../../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../../core/errors.mjs';
import { dimension, sizeOf } from '../../core/layout.mjs';
import { TensorCore, asTensor } from '../../core/tensor.mjs';
import * as F from '../functional.mjs';
import * as shapes from '../shape.mjs';
import { elementsAt } from '../sorting.mjs';
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
  /** Repeats dimensions of size 1 up to a larger shape, as a view. A size of -1 keeps the dimension's. @param {...number} shape */
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
   * The part at indices of the first dimensions, without these: x.at(1, 2) is x[1, 2] in PyTorch, a view. With tensors of integers among the
   * indices, which broadcast, it is a copy of the elements that they name: x.at(rows, columns) is x[rows, columns], of the indices' common shape,
   * then the other dimensions. A negative element counts from the end, and one out of range reads as 0. Throws a ShapeError for a number out
   * of range, and for more indices than dimensions.
   * @param {...(number | Tensor)} indices at least one; a negative number counts from the end
   * @returns {Tensor}
   */
  at(...indices) {
    storageOf('at', asTensor(this));
    const { shape } = this;
    if (indices.length > shape.length && indices.length > 1)
      throw new ShapeError('at', `${indices.length} indices are more than the ${shape.length} dimensions of ${show(shape)}`);
    const own = (indices.length === 0 ? [/** @type {unknown} */ (undefined)] : indices).map((i, d) => {
      if (i instanceof TensorCore && shape.length > 0) return asTensor(i);
      if (Array.isArray(i))
        throw new ArgumentError('at', `an index is a number or a tensor, got ${shown(i)}: use tensor(…, { dtype: 'i32' })`);
      if (!(typeof i === 'number' && Number.isInteger(i) && i >= -shape[d] && i < shape[d]))
        throw new ShapeError('at', `index ${shown(i)} is out of range for ${d === 0 ? show(shape) : `dimension ${d} of ${show(shape)}`}`);
      return i < 0 ? i + shape[d] : i;
    });
    if (!own.every((i) => typeof i === 'number')) return elementsAt(asTensor(this), own);
    return own.reduce((/** @type {Tensor} */ x, i) => F.squeeze(F.slice(x, 0, i, i + 1), 0), asTensor(this));
  }
  /**
   * Splits a dimension into parts of `size`; the last may be smaller. The parts are views.
   * @param {number | readonly number[]} size of each part, or the sizes of all @param {number} [dim] the first when left out
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
  /** The elements in the opposite order along dimensions; a copy. @param {...number} dims */
  flip(...dims) {
    return shapes.flip(asTensor(this), dims.flat());
  }
  /** Moves the elements along dimensions; see `F.roll`. @param {number | readonly number[]} shifts @param {number | readonly number[]} [dims] one row of all elements when left out */
  roll(shifts, dims) {
    return shapes.roll(asTensor(this), shifts, dims);
  }
  /** Turns by 90 degrees; see `F.rot90`. @param {number} [k] how often; 1 when left out @param {readonly number[]} [dims] [0, 1] when left out */
  rot90(k, dims) {
    return shapes.rot90(asTensor(this), k, dims);
  }
  /** Repeats the tensor along each dimension, fewer counts being for the last ones; a copy. @param {...number} counts */
  tile(...counts) {
    return shapes.tile(asTensor(this), counts.flat());
  }
  /** Repeats the tensor along each dimension; a copy. @param {...number} counts at least as many as dimensions */
  repeat(...counts) {
    return shapes.repeat(asTensor(this), counts.flat());
  }
  /** Repeats each element of a dimension; see `F.repeatInterleave`. @param {number | readonly number[]} repeats @param {number} [dim] one row of all elements when left out */
  repeatInterleave(repeats, dim) {
    return shapes.repeatInterleave(asTensor(this), repeats, dim);
  }
  /** The lower triangle of matrices; see `F.tril`. @param {number} [diagonal] the last that is kept; 0 when left out */
  tril(diagonal) {
    return shapes.tril(asTensor(this), diagonal);
  }
  /** The upper triangle of matrices; see `F.triu`. @param {number} [diagonal] the first that is kept; 0 when left out */
  triu(diagonal) {
    return shapes.triu(asTensor(this), diagonal);
  }
  /** A matrix with this vector on a diagonal, or a copy of this matrix's diagonal. @param {number} [offset] 0 when left out */
  diag(offset) {
    return shapes.diag(asTensor(this), offset);
  }
  /** A diagonal of matrices, as the last dimension of a view; see `F.diagonal`. @param {number} [offset] 0 when left out @param {number} [dim1] of rows; 0 when left out @param {number} [dim2] of columns; 1 when left out */
  diagonal(offset, dim1, dim2) {
    return shapes.diagonal(asTensor(this), offset, dim1, dim2);
  }
  /** Matrices with the last dimension on a diagonal; see `F.diagEmbed`. @param {number} [offset] 0 when left out @param {number} [dim1] of rows; -2 when left out @param {number} [dim2] of columns; -1 when left out */
  diagEmbed(offset, dim1, dim2) {
    return shapes.diagEmbed(asTensor(this), offset, dim1, dim2);
  }
  /** Moves dimensions to other positions, as a view. @param {number | readonly number[]} source @param {number | readonly number[]} destination */
  movedim(source, destination) {
    return shapes.movedim(asTensor(this), source, destination);
  }
  /** The same as `transpose`. @param {number} a @param {number} b */
  swapaxes(a, b) {
    return shapes.swapaxes(asTensor(this), a, b);
  }
  /** `length` elements of a dimension from `start` on, as a view. @param {number} dim @param {number} start @param {number} length */
  narrow(dim, start, length) {
    return shapes.narrow(asTensor(this), dim, start, length);
  }
  /** The slice at an index of a dimension, without that dimension, as a view. @param {number} dim @param {number} index negative: from the end */
  select(dim, index) {
    return shapes.select(asTensor(this), dim, index);
  }
  /** All slices of a dimension, without it, as views. @param {number} [dim] the first when left out */
  unbind(dim) {
    return shapes.unbind(asTensor(this), dim);
  }
  /** Divides a dimension into several, as a view. @param {number} dim @param {readonly number[]} sizes one may be -1: inferred */
  unflatten(dim, sizes) {
    return shapes.unflatten(asTensor(this), dim, sizes);
  }
  /** Windows of a dimension, which may overlap, as a view with the elements of each in a new last dimension. @param {number} dim @param {number} size @param {number} step from one to the next */
  unfold(dim, size, step) {
    return shapes.slidingWindows(asTensor(this), dim, size, step);
  }
  /** The same as `expand`. @param {...number} shape */
  broadcastTo(...shape) {
    return shapes.broadcastTo(asTensor(this), shape.flat());
  }
  /** Repeats dimensions of size 1 up to the shape of another tensor, as a view. @param {Tensor} other */
  expandAs(other) {
    return shapes.expandAs(asTensor(this), other);
  }
  /** Divides a dimension into parts, as views; see `F.tensorSplit`. @param {number | readonly number[]} sections @param {number} [dim] the first when left out */
  tensorSplit(sections, dim) {
    return shapes.tensorSplit(asTensor(this), sections, dim);
  }
}
