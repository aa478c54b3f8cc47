// Conversions, copies and views as functions. A view has the elements of another tensor in the same memory, by another shape or order.

import { apply, view } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import {
  broadcastShapes,
  checkShape,
  checkType,
  dimension,
  isFloat,
  isNarrow,
  layoutOf,
  promotedType,
  reshapeStrides,
  sizeOf,
} from '../core/layout.mjs';
import * as movement from '../ops/movement.mjs';
import { tensorOf } from '../core/engine.mjs';

/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/**
 * Converts the elements to another type; returns x itself if it has that type.
 * @param {Tensor} x @param {DType} dtype
 * @returns {Tensor}
 */
export function to(x, dtype) {
  tensorOf('to', x);
  if (x.dtype === dtype) return x;
  checkType('to', dtype);
  // An integer result passes no gradient on.
  return apply(movement.cast, [isFloat(dtype) ? x : x.detach()], { dtype });
}

/** A dense copy. @param {Tensor} x @returns {Tensor} */
export const clone = (x) => within('clone', () => apply(movement.copy, [tensorOf('clone', x)]));

/**
 * Gives x another shape with as many elements. One size may be -1: it follows from the others. Returns a view where the strides allow one,
 * else a copy.
 * @param {Tensor} x @param {readonly number[]} shape
 * @returns {Tensor}
 */
export function reshape(x, shape) {
  tensorOf('reshape', x);
  if (!Array.isArray(shape)) throw new ShapeError('reshape', `the shape must be an array of sizes, got ${shown(shape)}`);
  const numbers = shape.every((size) => typeof size === 'number');
  const free = shape.indexOf(-1);
  const given = numbers ? sizeOf(shape) * (free < 0 ? 1 : -1) : NaN;
  const sizes = free < 0 ? [...shape] : shape.with(free, x.size / given);
  if (!numbers || sizes.some((size) => !Number.isInteger(size) || size < 0) || sizeOf(sizes) !== x.size) {
    throw new ShapeError('reshape', `cannot reshape ${show(x.shape)} of ${x.size} elements to ${show(shape)}`);
  }
  const strides = reshapeStrides(x.layout, sizes);
  if (strides === undefined) return within('reshape', () => reshape(x.contiguous(), sizes));
  return view(movement.reshape, x, layoutOf(sizes, strides, x.layout.offset, x.dtype), { shape: sizes });
}

/** Reorders the dimensions; a view. @param {Tensor} x @param {readonly number[]} order @returns {Tensor} */
export function permute(x, order) {
  tensorOf('permute', x);
  if (!Array.isArray(order)) throw new ShapeError('permute', `the order must be an array of dimensions, got ${shown(order)}`);
  const dims = order.map((d) => dimension('permute', d, x.ndim));
  if (dims.length !== x.ndim || new Set(dims).size !== x.ndim)
    throw new ShapeError('permute', `order ${show(order)} must name each of ${x.ndim} dimensions once`);
  const attributes = { order: dims };
  return view(movement.permute, x, movement.permute.infer([x.layout], attributes)[0], attributes);
}

/** Swaps two dimensions; a view. @param {Tensor} x @param {number} a @param {number} b @returns {Tensor} */
export function transpose(x, a, b) {
  const order = tensorOf('transpose', x).shape.map((_, d) => d);
  const [i, j] = [dimension('transpose', a, x.ndim), dimension('transpose', b, x.ndim)];
  if (x.ndim === 0) return permute(x, order);
  [order[i], order[j]] = [j, i];
  return permute(x, order);
}

/**
 * Repeats dimensions of size 1, and adds leading ones, up to a larger shape; a view. A size of -1 keeps the dimension's.
 * @param {Tensor} x @param {readonly number[]} sizes @returns {Tensor}
 */
export function expand(x, sizes) {
  const { shape: own, ndim } = tensorOf('expand', x);
  const shape = Array.isArray(sizes) ? sizes.map((size, d) => (size === -1 ? (own[d + ndim - sizes.length] ?? -1) : size)) : sizes;
  checkShape('expand', shape);
  if (show(broadcastShapes('expand', x.shape, shape)) !== show(shape))
    throw new ShapeError('expand', `cannot expand ${show(x.shape)} to ${show(shape)}`);
  if (show(shape) === show(x.shape)) return x;
  return view(movement.expand, x, movement.expand.infer([x.layout], { shape })[0], { shape: [...shape] });
}

/** Inserts a dimension of size 1; a view. @param {Tensor} x @param {number} dim where it stands in the result @returns {Tensor} */
export function unsqueeze(x, dim) {
  const at = dimension('unsqueeze', dim, tensorOf('unsqueeze', x).ndim + 1);
  return reshape(x, x.shape.toSpliced(at, 0, 1));
}

/** Removes a dimension if its size is 1, or all of size 1 when `dim` is left out; a view. @param {Tensor} x @param {number} [dim] @returns {Tensor} */
export function squeeze(x, dim) {
  tensorOf('squeeze', x);
  const at = dim === undefined ? -1 : dimension('squeeze', dim, x.ndim);
  return reshape(
    x,
    x.shape.filter((size, d) => size !== 1 || (at >= 0 && d !== at)),
  );
}

/**
 * Elements `start` to `end` (exclusive; negative ones count from the end) of a dimension, as a view; none where `end` is not behind `start`.
 * @param {Tensor} x @param {number} dim @param {number} [start] @param {number} [end] @param {number} [step] positive
 * @returns {Tensor}
 */
export function slice(x, dim, start = 0, end = Infinity, step = 1) {
  tensorOf('slice', x);
  const d = dimension('slice', dim, x.ndim);
  if (x.ndim === 0) throw new ShapeError('slice', 'a tensor [] has no dimension to slice');
  const size = x.shape[d];
  const clamp = (/** @type {number} */ i) => Math.min(size, Math.max(0, i < 0 ? i + size : i));
  if (typeof start !== 'number' || typeof end !== 'number') {
    throw new ShapeError('slice', `start and end must be integers, got ${shown(start)} and ${shown(end)}`);
  }
  const [from, behind] = [clamp(start), clamp(end)];
  if (!(Number.isInteger(step) && step > 0)) throw new ShapeError('slice', `step must be a positive integer, got ${shown(step)}`);
  if (!Number.isInteger(from) || !Number.isInteger(behind)) {
    throw new ShapeError('slice', `dimension ${dim} of ${show(x.shape)} has no elements from ${start} to ${end}`);
  }
  const attributes = { dim: d, start: from, length: Math.max(0, Math.ceil((behind - from) / step)), step };
  return view(movement.slice, x, movement.slice.infer([x.layout], attributes)[0], attributes);
}

/** The most parts that a tensor is split into: each is a JavaScript object. */
const MAX_PARTS = 2 ** 24;

/**
 * Splits x along a dimension into views of `size` elements; the last may be smaller. A dimension of size 0 is one part.
 * @param {Tensor} x @param {number | readonly number[]} size of each part; or the sizes of all parts, of at least 0, which together are the
 *   dimension's
 * @param {number} [dim]
 * @returns {Tensor[]}
 */
export function split(x, size, dim = 0) {
  const d = dimension('split', dim, tensorOf('split', x).ndim);
  if (x.ndim === 0) throw new ShapeError('split', 'a tensor [] has no dimension to split');
  const whole = x.shape[d];
  if (Array.isArray(size)) {
    const right = size.every((part) => Number.isInteger(part) && part >= 0);
    if (!right || size.reduce((sum, part) => sum + part, 0) !== whole)
      throw new ShapeError('split', `sizes must be integers of at least 0 that make ${whole} together, got ${shown(size)}`);
    let end = 0;
    return size.map((part) => slice(x, d, end, (end += part)));
  }
  const each = /** @type {number} */ (size);
  if (!(Number.isInteger(each) && each > 0))
    throw new ShapeError('split', `size must be a positive integer, or an array of sizes, got ${shown(size)}`);
  const parts = Math.max(1, Math.ceil(whole / each));
  if (parts > MAX_PARTS) throw new ShapeError('split', `size ${each} makes ${parts} parts of ${show(x.shape)}, more than ${MAX_PARTS}`);
  return Array.from({ length: parts }, (_, i) => slice(x, d, i * each, (i + 1) * each));
}

/** The most operands of one operation: with the result they fit into the slots of a template. */
const MAX_OPERANDS = 128;

/**
 * Joins tensors end to end along a dimension, in the type that theirs are promoted to; a copy.
 * @param {Tensor[]} tensors equal in the other sizes, or of shape [0] @param {number} [dim]
 * @returns {Tensor}
 */
export function cat(tensors, dim = 0) {
  if (!Array.isArray(tensors) || tensors.length === 0) throw new ArgumentError('cat', 'expected an array of tensors');
  for (const x of tensors) tensorOf('cat', x);
  // As in PyTorch, [0] joins with any shape.
  const first = tensors.find((x) => show(x.shape) !== '[0]') ?? tensors[0];
  const d = dimension('cat', dim, first.ndim);
  if (first.ndim === 0) throw new ShapeError('cat', 'tensors [] have no dimension to join along; stack() makes one');
  const dtype = tensors.map((x) => x.dtype).reduce(promotedType);
  if (first.ndim > 1) tensors = tensors.map((x) => (show(x.shape) === '[0]' ? reshape(x, first.shape.with(d, 0)) : x));
  for (const x of tensors) {
    if (x.ndim !== first.ndim || x.shape.some((size, i) => i !== d && size !== first.shape[i])) {
      throw new ShapeError('cat', `cannot join ${first.dtype} ${show(first.shape)} and ${x.dtype} ${show(x.shape)} along dimension ${dim}`);
    }
  }
  tensors = within('cat', () => tensors.map((x) => to(x, dtype)));
  if (isNarrow(dtype)) {
    return to(
      cat(
        tensors.map((x) => to(x, isFloat(dtype) ? 'f32' : 'i32')),
        d,
      ),
      dtype,
    );
  }
  // More tensors than one operation takes are joined in parts.
  if (tensors.length > MAX_OPERANDS) {
    const parts = Array.from({ length: Math.ceil(tensors.length / MAX_OPERANDS) }, (_, i) =>
      cat(tensors.slice(i * MAX_OPERANDS, (i + 1) * MAX_OPERANDS), d),
    );
    return cat(parts, d);
  }
  return apply(movement.concat, [...tensors], { dim: d });
}

/**
 * Joins tensors of one shape along a new dimension, in the type that theirs are promoted to; a copy.
 * @param {Tensor[]} tensors @param {number} [dim] @returns {Tensor}
 */
export function stack(tensors, dim = 0) {
  if (!Array.isArray(tensors) || tensors.length === 0) throw new ArgumentError('stack', 'expected an array of tensors');
  const [first] = tensors.map((x) => tensorOf('stack', x));
  const d = dimension('stack', dim, first.ndim + 1);
  for (const x of tensors) {
    if (show(x.shape) === show(first.shape)) continue;
    throw new ShapeError(
      'stack',
      `cannot stack ${first.dtype} ${show(first.shape)} and ${x.dtype} ${show(x.shape)}: their shapes must be equal`,
    );
  }
  return within('stack', () =>
    cat(
      tensors.map((x) => unsqueeze(x, d)),
      d,
    ),
  );
}
