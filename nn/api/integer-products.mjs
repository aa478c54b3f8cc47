// Products and powers of integers, which are exact and wrap.

import { apply } from '../core/engine.mjs';
import { ArgumentError } from '../core/errors.mjs';
import { broadcastShapes, isByte, isInteger, sizeOf } from '../core/layout.mjs';
import { scope } from '../core/scope.mjs';
import * as integers from '../ops/integers.mjs';
import * as pointwise from '../ops/pointwise.mjs';
import { binary } from './binary.mjs';
import { reduceIntegers } from './reduce-integers.mjs';
import { expand, reshape, slice, to, unsqueeze } from './views.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/** Products that are in memory at once, before they are summed: 16 MiB of i32. */
const MAX_PRODUCTS = 2 ** 22;

/**
 * The matrix product of integers of one type; of bytes as i32. A few columns of a at a time, all products with them are made and then summed.
 * @param {Tensor} a [..., m, k] @param {Tensor} b [..., k, n] @returns {Tensor} [..., m, n]
 */
export function integerMatmul(a, b) {
  if (a.dtype !== b.dtype) throw new ArgumentError('matmul', `takes tensors of one type, got ${a.dtype} and ${b.dtype}`);
  if (!isInteger(a.dtype)) throw new ArgumentError('matmul', `takes numbers, got ${a.dtype}; convert with .to('i32') or .to('f32')`);
  const [m, k, n] = [...a.shape.slice(-2), b.shape[b.ndim - 1]];
  const lead = broadcastShapes('matmul', a.shape.slice(0, -2), b.shape.slice(0, -2));
  const dtype = isByte(a.dtype) ? 'i32' : a.dtype;
  const batch = sizeOf(lead);
  const [x, y] = [a, b].map((own) => reshape(expand(to(own, dtype), [...lead, ...own.shape.slice(-2)]), [batch, ...own.shape.slice(-2)]));
  const step = Math.max(1, Math.floor(MAX_PRODUCTS / Math.max(batch * m * n, 1)));
  /** @type {Tensor | undefined} */
  let c;
  for (let from = 0; from === 0 || from < k; from += step) {
    const to = Math.min(from + step, k);
    const before = c;
    c = scope(() => {
      const products = binary(pointwise.mul, unsqueeze(slice(x, 2, from, to), 3), unsqueeze(slice(y, 1, from, to), 1));
      const sums = reduceIntegers('sum', products, [2], false);
      return before ? binary(pointwise.add, before, sums) : sums;
    });
    before?.dispose();
  }
  return to(reshape(/** @type {Tensor} */ (c), [...lead, m, n]), a.dtype);
}

/**
 * Integers to the power of integers, rounded towards 0 where the exponent is negative. Of 64-bit ones a few bits of the exponent at a time.
 * @param {Tensor} x @param {Tensor} exponent broadcasts with x @param {Tensor['dtype']} dtype of the result
 * @returns {Tensor}
 */
export function integerPower(x, exponent, dtype) {
  const [base, e] = [to(x, dtype), to(exponent, dtype)];
  let y = binary(integers.power, base, e, { shift: 0 });
  if (dtype !== 'i64') return y;
  const step = integers.exponentBits(dtype);
  let square = base;
  for (let shift = step; shift < 64; shift += step) {
    square = apply(pointwise.power, [square], { exponent: 2 ** step });
    y = binary(pointwise.mul, y, binary(integers.power, square, e, { shift }));
  }
  return y;
}
