// Sums by index, of floats and of integers.

import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, within } from '../core/errors.mjs';
import { dimension, isFloat } from '../core/layout.mjs';
import * as F from './functional.mjs';
import { addedByIndex, indexOf, writtenInPart } from './indexing.mjs';
import { combined, toWords } from './integer-rows.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/**
 * A copy of x with elements of `source` added by index: y[i][index[i][k][j]][j] += source[i][k][j] for three dimensions and `dim` 1.
 * Elements with the same index are added in the order of k, so the result is deterministic. A negative index counts from the end; one out of
 * range is dropped. Sums of integers wrap; their indices are sorted. Halves are added in f32, and each sum is rounded once.
 *
 * Of floats, up to 511 indices along `dim` each element of the result goes over all of them; more are sorted first. To look up rows of a large
 * table, use `embedding`, whose gradient adds rows by index.
 * @param {Tensor} x of any type but bool @param {number} dim @param {Tensor} index i32, u32 or i64, of at most x's sizes except along `dim`
 * @param {Tensor} source of at least the index's sizes, and of x's type; where both are floats of any
 * @returns {Tensor}
 */
export function scatterAdd(x, dim, index, source) {
  const op = 'scatterAdd';
  const d = dimension(op, dim, tensorOf(op, x).ndim);
  const places = indexOf(op, index);
  tensorOf(op, source);
  if (isFloat(x.dtype)) return addedByIndex(x, d, places, source);
  if (x.dtype === 'bool') throw new ArgumentError(op, `takes numbers, got bool; convert with .to('i32')`);
  return writtenInPart(op, x, d, places, source, (part, taken) => addedIntegers(part, d, places, taken));
}

/** @param {Tensor} x @param {number} d @param {Tensor} index @param {Tensor} source @returns {Tensor} */
function addedIntegers(x, d, index, source) {
  const op = 'scatterAdd';
  const [own, at, from] = [x, index, source].map((t) => (t.ndim === 0 ? F.reshape(t, [1]) : t));
  if (at.ndim !== own.ndim || at.shape.some((size, i) => i !== d && size !== own.shape[i]))
    throw new ShapeError(op, `the index ${show(index.shape)} and the tensor ${show(x.shape)} must have equal sizes but in dimension ${d}`);
  if (source.dtype !== x.dtype || show(from.shape) !== show(at.shape))
    throw new ShapeError(
      op,
      `expected a source ${x.dtype} ${show(index.shape)}, the shape of the index, got ${source.dtype} ${show(source.shape)}`,
    );
  return within(op, () => {
    const [rows, columns, values] = [toWords(own), at, toWords(from)].map((t) => F.transpose(t, d, -1));
    const y = F.transpose(combined(rows, columns, values, 'sum', true), d, -1);
    return F.to(x.ndim === 0 ? F.reshape(y, []) : y, x.dtype);
  });
}
