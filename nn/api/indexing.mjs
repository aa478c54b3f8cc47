// Gathers and scatters by index tensors (i32, u32 or i64), as functions. A negative index counts from the end. Indices are not checked, since
// that would read them back from the device: one that is out of range reads 0, and a write to it is dropped.

import { apply, tensorOf, view } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import * as F from './functional.mjs';
import { broadcastShapes, denseLayout, dimension, isFloat, isNarrow, layoutOf, sizeOf } from '../core/layout.mjs';
import { flag } from '../core/options.mjs';
import * as indexing from '../ops/indexing.mjs';
import * as integers from '../ops/integers.mjs';
import * as movement from '../ops/movement.mjs';
import { asIndex } from './operands.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/** @typedef {import('../ops/registry.mjs').Op} Op */

/** Checks that an index is a tensor of integers, and gives those of bytes and 64 bits as i32. @param {string} op @param {unknown} index @returns {Tensor} */
export function indexOf(op, index) {
  const own = asIndex(tensorOf(op, index));
  if (own.dtype !== 'i32' && own.dtype !== 'u32') {
    throw new ArgumentError(op, `the index must be i32 or u32, got ${own.dtype}: use tensor(…, { dtype: 'i32' }), or .to('i32')`);
  }
  return own;
}

/** As `indexOf`, as i32: u32 ones that i32 does not have become its largest number. @param {string} op @param {unknown} index @returns {Tensor} */
export function signedIndexOf(op, index) {
  const own = indexOf(op, index);
  return own.dtype === 'u32' ? F.to(F.minimum(own, 2 ** 31 - 1), 'i32') : own;
}

/**
 * Calls operations whose kernels take 32-bit elements: converts smaller inputs to f32 or i32, and the result back; of i64 both words of each
 * element are moved alike.
 * @param {string} op @param {Tensor[]} inputs @param {(wide: Tensor[]) => Tensor} f
 * @returns {Tensor}
 */
function in32(op, inputs, f) {
  const [{ dtype, ndim }, index] = inputs;
  return within(op, () => {
    // As in PyTorch, [] is indexed as [1].
    const rows = ndim === 0 ? inputs.map((x) => (x.ndim === 0 ? F.reshape(x, [1]) : x)) : inputs;
    const wide = rows.map((x, i) => (i !== 1 && isNarrow(x.dtype) ? F.to(x, isFloat(x.dtype) ? 'f32' : 'i32') : x));
    const y = dtype === 'i64' ? onWords(op, rows, f) : F.to(f(wide), dtype);
    return ndim === 0 ? F.reshape(y, op === 'gather' ? index.shape : []) : y;
  });
}

/**
 * x cut to the sizes of an index that has less of other dimensions than `d`, as PyTorch takes it.
 * @param {string} op @param {Tensor} x @param {number} d @param {Tensor} index @returns {Tensor} x where the numbers of dimensions differ
 */
function cutTo(op, x, d, index) {
  if (index.ndim !== x.ndim) return x;
  if (index.shape.some((size, i) => i !== d && size > x.shape[i]))
    throw new ShapeError(op, `the index ${show(index.shape)} has more than the tensor ${show(x.shape)} in another dimension than ${d}`);
  return index.shape.reduce((own, size, i) => (i === d || size === x.shape[i] ? own : F.slice(own, i, 0, size)), x);
}

/**
 * What is written by index into the part of x that the index has sizes for, with the rest of x. A source may be larger than its index.
 * @param {string} op @param {Tensor} x @param {number} d @param {Tensor} index @param {Tensor} source
 * @param {(x: Tensor, source: Tensor) => Tensor} f of tensors of the index's sizes @returns {Tensor} of x's shape
 */
export function writtenInPart(op, x, d, index, source, f) {
  const isLarger = source.ndim === index.ndim && index.shape.every((size, i) => size <= source.shape[i]);
  const from = isLarger
    ? index.shape.reduce((own, size, i) => (size === source.shape[i] ? own : F.slice(own, i, 0, size)), source)
    : source;
  const part = cutTo(op, x, d, index);
  const y = f(part, from);
  return part === x
    ? y
    : within(op, () =>
        index.shape.reduce((own, size, i) => {
          if (i === d || size === x.shape[i]) return own;
          // The rest of dimension i, cut in those behind it.
          const rest = index.shape.reduce(
            (left, n, k) => (k <= i || k === d || n === x.shape[k] ? left : F.slice(left, k, 0, n)),
            F.slice(x, i, size),
          );
          return F.cat([own, rest], i);
        }, y),
      );
}

/** The words of 64-bit integers along a last dimension; a view. @param {Tensor} x @returns {Tensor} */
function wordsOf(x) {
  const { shape, strides, offset } = x.layout;
  const layout = layoutOf([...shape, 2], [...strides.map((stride) => 2 * stride), 1], 2 * offset, 'u32');
  return view(movement.reshape, x, layout, { shape: layout.shape });
}

/**
 * An operation of an index on 64-bit integers: both words of each are moved alike.
 * @param {string} op @param {Tensor[]} inputs @param {(words: Tensor[]) => Tensor} f
 */
function onWords(op, [x, index, ...sources], f) {
  // As words all have one type.
  for (const source of sources) {
    if (source.dtype !== 'i64' || show(source.shape) !== show(index.shape)) {
      const got = `${source.dtype} ${show(source.shape)}`;
      throw new ShapeError(op, `expected a source i64 ${show(index.shape)}, the shape of the index, got ${got}`);
    }
  }
  if (index.ndim !== x.ndim)
    throw new ShapeError(op, `the index ${show(index.shape)} and the tensor ${show(x.shape)} must have equally many dimensions`);
  const pairs = F.expand(F.unsqueeze(index, -1), [...index.shape, 2]);
  const y = f([wordsOf(x), pairs, ...sources.map(wordsOf)]);
  const shape = y.shape.slice(0, -1);
  return view(movement.reshape, y, denseLayout(shape, 'i64'), { shape });
}

/**
 * Picks elements by index along a dimension, as PyTorch's `gather`: y[i][k][j] = x[i][index[i][k][j]][j] for three dimensions and `dim` 1.
 * A negative index counts from the end (PyTorch refuses it); one out of range reads 0.
 * @param {Tensor} x @param {number} dim @param {Tensor} index i32, u32 or i64, of at most x's sizes except along `dim`
 * @returns {Tensor} of the index's shape
 */
export function gather(x, dim, index) {
  const d = dimension('gather', dim, tensorOf('gather', x).ndim);
  const own = indexOf('gather', index);
  return in32('gather', [cutTo('gather', x, d, own), own], (wide) => apply(indexing.gather, wide, { dim: d }));
}

/**
 * Same as `gather`, but the sizes other than that of `dim` broadcast. Throws a ShapeError if the numbers of dimensions differ.
 * @param {Tensor} x @param {Tensor} index i32, u32 or i64, with as many dimensions as x @param {number} [dim] the last when left out
 */
export function takeAlongDim(x, index, dim = -1) {
  const d = dimension('takeAlongDim', dim, tensorOf('takeAlongDim', x).ndim);
  if (indexOf('takeAlongDim', index).ndim !== x.ndim) {
    throw new ShapeError(
      'takeAlongDim',
      `the index ${show(index.shape)} and the tensor ${show(x.shape)} must have equally many dimensions`,
    );
  }
  if (x.ndim === 0) return within('takeAlongDim', () => gather(x, 0, index));
  const others = broadcastShapes('takeAlongDim', x.shape.with(d, 1), index.shape.with(d, 1));
  return within('takeAlongDim', () => gather(F.expand(x, others.with(d, x.shape[d])), d, F.expand(index, others.with(d, index.shape[d]))));
}

/** `scatterAdd` of floats. @param {Tensor} x @param {number} d @param {Tensor} index @param {Tensor} source @returns {Tensor} */
export const addedByIndex = (x, d, index, source) =>
  writtenInPart('scatterAdd', x, d, index, source, (part, from) =>
    in32('scatterAdd', [part, index, from], (wide) => indexing.added({ call: apply, transpose: F.transpose }, wide, { dim: d })),
  );

/**
 * A copy of x with elements of `source` written by index: y[i][index[i][k][j]][j] = source[i][k][j] for three dimensions and `dim` 1. If
 * several have the same index, the last one (largest k) wins. A negative index counts from the end; one out of range is dropped. Each element
 * of the result goes over all indices along `dim`.
 * @param {Tensor} x @param {number} dim @param {Tensor} index i32, u32 or i64, of at most x's sizes except along `dim`
 * @param {Tensor | number} source of at least the index's sizes, or one number
 */
export function scatter(x, dim, index, source) {
  const d = dimension('scatter', dim, tensorOf('scatter', x).ndim);
  const own = indexOf('scatter', index);
  const from =
    typeof source === 'number' ? within('scatter', () => F.full(index.shape, source, { dtype: x.dtype })) : tensorOf('scatter', source);
  return writtenInPart('scatter', x, d, own, from, (part, taken) =>
    in32('scatter', [part, own, taken], (wide) => apply(indexing.scatter, wide, { dim: d })),
  );
}

/**
 * Picks slices of a dimension, in the order of the indices. A slice that is picked several times gets the sum of its gradients, added in that
 * order. A negative index counts from the end; one out of range gives zeros.
 * @param {Tensor} x @param {number} dim @param {Tensor} index [n] i32, u32 or i64
 * @returns {Tensor} x's shape with n along `dim`
 */
export function indexSelect(x, dim, index) {
  const d = dimension('indexSelect', dim, tensorOf('indexSelect', x).ndim);
  const own = indexOf('indexSelect', index);
  if (own.ndim !== 1) throw new ShapeError('indexSelect', `the index must have one dimension, got ${show(index.shape)}`);
  if (x.ndim === 0) throw new ShapeError('indexSelect', 'a tensor [] has no dimension to select from');
  return within('indexSelect', () => selected(x, d, own));
}

/** @param {Tensor} x @param {number} d @param {Tensor} index @returns {Tensor} */
function selected(x, d, index) {
  if (!isFloat(x.dtype)) {
    const shape = x.shape.with(d, index.size);
    const wide = F.reshape(
      index,
      shape.map((_, i) => (i === d ? index.size : 1)),
    );
    return gather(x, d, F.expand(wide, shape));
  }
  const first = F.transpose(x, 0, d);
  const own = index.dtype === 'i32' ? apply(indexing.fromEnd, [index], { size: x.shape[d] }) : index;
  const rows = F.embedding(own, F.reshape(first, [x.shape[d], sizeOf(first.shape.slice(1))]));
  return F.to(F.transpose(F.reshape(rows, first.shape.with(0, index.size)), 0, d), x.dtype);
}

/**
 * One-hot rows: y[..., c] is 1 if c is the id and 0 otherwise. The result is f32, unlike PyTorch's int64. An id outside 0 … classes - 1 gives
 * a row of zeros.
 * @param {Tensor} ids i32, u32 or i64, any shape @param {number} classes
 * @returns {Tensor} [...ids, classes]
 */
export function oneHot(ids, classes) {
  const own = indexOf('oneHot', ids);
  if (!(Number.isInteger(classes) && classes > 0))
    throw new ArgumentError('oneHot', `classes must be an integer of at least 1, got ${shown(classes)}`);
  // As u32, of which none counts from the end.
  return within('oneHot', () => scatter(F.zeros([...ids.shape, classes]), -1, F.to(F.unsqueeze(own, -1), 'u32'), 1));
}

/** @param {Op} op @param {Tensor} x @param {number} dim @param {boolean} keepdim @returns {Tensor} */
function argExtreme(op, x, dim, keepdim) {
  const d = dimension(op.name, dim, tensorOf(op.name, x).ndim);
  flag(op.name, 'keepdim', keepdim);
  if (x.ndim === 0) return F.reshape(argExtreme(op, F.reshape(x, [1]), 0, true), []);
  if (!isFloat(x.dtype)) return within(op.name, () => integerArgExtreme(op, x, d, keepdim));
  return within(op.name, () => {
    const moved = F.transpose(F.to(x.detach(), 'f32'), d, -1);
    const y = F.transpose(apply(op, [moved]), d, -1);
    return keepdim ? y : F.reshape(y, x.shape.toSpliced(d, 1));
  });
}

/** The first place where an element is the extreme, of integers or bools. @param {Op} op @param {Tensor} x @param {number} d @param {boolean} keepdim */
function integerArgExtreme(op, x, d, keepdim) {
  const extreme = op === indexing.argmax ? F.amax(x, d, true) : F.amin(x, d, true);
  const places = apply(integers.placeIfTrue, [F.transpose(F.eq(x, extreme), d, -1)]);
  return F.amin(F.transpose(places, d, -1), d, keepdim);
}

/**
 * The index of the largest element along a dimension, as i32. The first of equal elements wins, and a NaN counts as the largest.
 * @param {Tensor} x @param {number} [dim] the last when left out @param {boolean} [keepdim] keeps the dimension with size 1
 */
export const argmax = (x, dim = -1, keepdim = false) => argExtreme(indexing.argmax, x, dim, keepdim);
/**
 * The index of the smallest element along a dimension, as i32. The first of equal elements wins, and a NaN counts as the smallest.
 * @param {Tensor} x @param {number} [dim] the last when left out @param {boolean} [keepdim] keeps the dimension with size 1
 */
export const argmin = (x, dim = -1, keepdim = false) => argExtreme(indexing.argmin, x, dim, keepdim);
