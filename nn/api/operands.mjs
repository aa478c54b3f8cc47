// In which type functions compute what they take, rows of an odd size, and the dimensions that they go over.

import { apply, view } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { checkNumber, dimension, isByte, isFloat, promotedType, sizeOf } from '../core/layout.mjs';
import * as integers from '../ops/integers.mjs';
import * as movement from '../ops/movement.mjs';
import * as network from '../ops/network.mjs';
import { autocastType, castOf, rememberCast } from './autocast.mjs';
import { permute, reshape, to } from './views.mjs';

export { promotedType } from '../core/layout.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/**
 * Both operands in the type that they are promoted to, by PyTorch's rule for floating types: f32 where they differ. Others stay as they
 * are: the operation says what is wrong with them.
 * @param {Tensor} a @param {Tensor} b @returns {[a: Tensor, b: Tensor]}
 */
export const promoted = (a, b) => (a.dtype !== b.dtype && isFloat(a.dtype) && isFloat(b.dtype) ? [to(a, 'f32'), to(b, 'f32')] : [a, b]);

/** @typedef {import('../core/layout.mjs').DType} DType */

/** x in another type, for a call of `op`. @param {string} op @param {Tensor} x @param {DType} dtype @returns {Tensor} */
const converted = (op, x, dtype) => (x.dtype === dtype ? x : within(op, () => to(x, dtype)));

/** Two tensors in the type that they are promoted to. @param {string} op @param {Tensor} a @param {Tensor} b @returns {Tensor[]} */
export function inOneType(op, a, b) {
  const dtype = promotedType(a.dtype, b.dtype);
  return [converted(op, a, dtype), converted(op, b, dtype)];
}

/**
 * x in the type that it is computed in with a number: that of an integer tensor if the number is an integer (of bools i32), else f32. Throws an
 * ArgumentError if the type does not have the number; an unsigned type takes the negative of one that it has, as sums wrap.
 * @param {string} op @param {Tensor} x @param {number} number @returns {Tensor}
 */
export function withNumber(op, x, number) {
  if (isFloat(x.dtype)) return x;
  if (!Number.isInteger(number)) return converted(op, x, 'f32');
  const own = converted(op, x, x.dtype === 'bool' ? 'i32' : x.dtype);
  checkNumber(op, own.dtype[0] === 'u' ? Math.abs(number) : number, own.dtype);
  return own;
}

/** Indices as kernels take them: bytes and i64 ones as i32, and those that i32 does not have as its least, which is out of range. @param {Tensor} x */
export const asIndex = (x) => (x.dtype === 'i64' ? apply(integers.narrowed, [x]) : isByte(x.dtype) ? to(x, 'i32') : x);

/** x as f32 where it has integers or bools, for what has no whole result. @param {string} op @param {Tensor} x */
export const asFloat = (op, x) => (isFloat(x.dtype) ? x : converted(op, x, 'f32'));

/** x as f32 within `autocast`, else x: for what autocast computes in f32. @param {Tensor} x @returns {Tensor} */
export const f32UnderAutocast = (x) => (autocastType() !== undefined && isFloat(x.dtype) ? to(x, 'f32') : x);

/** x as f32 where it has 16 bits: statistics are computed in f32. @param {Tensor} x */
export const toF32 = (x) => (isFloat(x.dtype) ? to(x, 'f32') : x);

/** x as f32 where its rows are 16-bit and of odd size: kernels read 16-bit elements in pairs. @param {Tensor} x @returns {Tensor} */
export const f32IfOddRow = (x) => (x.dtype !== 'f32' && isFloat(x.dtype) && (x.shape.at(-1) ?? 1) % 2 ? to(x, 'f32') : x);

/**
 * An operand of a product, in autocast's type.
 * @param {Tensor} x @param {boolean} [last] whether a conversion is stored with dimension 1 last
 * @returns {Tensor}
 */
export function operand(x, last = false) {
  const dtype = autocastType();
  if (dtype === undefined || x.dtype === dtype || !isFloat(x.dtype)) return x;
  const kept = x.halfCopy(dtype);
  if (kept) return view(movement.cast, x, kept.layout, { dtype }, kept.storage);
  const known = castOf(x, dtype);
  if (known) return known;
  const cast = last ? apply(movement.cast, [x.contiguous()], { dtype, last }) : to(x, dtype);
  rememberCast(x, cast);
  return cast;
}

/** Applies f to x, in f32 where 16-bit rows have an odd size; the result has x's type. @param {Tensor} x @param {(x: Tensor) => Tensor} f */
export const rowsOfPairs = (x, f) => to(f(f32IfOddRow(x)), x.dtype);

/** softmax of rows. @param {Tensor} x @param {boolean} masked whether a row of only -∞ gives 0, not NaN */
export const softmaxRows = (x, masked) => rowsOfPairs(f32UnderAutocast(x), (y) => apply(network.softmax, [y], { scale: 1, masked }));

/** The dimensions that a reduction goes over, all when left out. @param {string} op @param {Tensor} x @param {number | readonly number[] | undefined} dim */
export function dimsOf(op, x, dim) {
  if (dim === undefined) return x.shape.map((_, d) => d);
  if (typeof dim !== 'number' && !Array.isArray(dim)) {
    throw new ArgumentError(op, `dim must be a number or an array of numbers, got ${shown(dim)}; x.${op}(1, true) keeps the dimension`);
  }
  const dims = (typeof dim === 'number' ? [dim] : dim).map((d) => dimension(op, d, x.ndim));
  if (new Set(dims).size !== dims.length) throw new ShapeError(op, `dim ${show([dim].flat())} names a dimension of ${show(x.shape)} twice`);
  return dims;
}

/** x with these dimensions merged into one, the last; the others in their order. @param {Tensor} x @param {readonly number[]} dims */
export function dimsLast(x, dims) {
  if (dims.length === 1 && dims[0] === x.ndim - 1) return x;
  const [kept, merged] = [false, true].map((is) => x.shape.map((_, d) => d).filter((d) => dims.includes(d) === is));
  const moved = permute(x, [...kept, ...merged]);
  return reshape(moved, [...kept.map((d) => x.shape[d]), sizeOf(merged.map((d) => x.shape[d]))]);
}
