// What functions take: that it is a tensor, and in which type it is computed.

import { autocastType } from './autocast.mjs';
import { describe, storageOf } from './engine.mjs';
import { ArgumentError } from './errors.mjs';
import { to } from './functional.mjs';
import { isFloat } from './layout.mjs';
import { Tensor } from './tensor.mjs';

/** x, which has to be a tensor that has its memory. @param {string} op @param {unknown} x @returns {Tensor} */
export function tensorOf(op, x) {
  if (!(x instanceof Tensor)) throw new ArgumentError(op, `expected a tensor, got ${describe(x)}`);
  storageOf(op, x);
  return x;
}

/** What autocast computes in f32. @param {Tensor} x @returns {Tensor} */
export const full32 = (x) => (autocastType() !== undefined && isFloat(x.dtype) ? to(x, 'f32') : x);

/** x, as f32 where it has 16 bits: statistics are f32. @param {Tensor} x */
export const single = (x) => (isFloat(x.dtype) ? to(x, 'f32') : x);

/** x, as f32 where 16-bit rows have an odd size: kernels that are not products take such rows by pairs. @param {Tensor} x @returns {Tensor} */
export const pairs = (x) => (x.dtype !== 'f32' && isFloat(x.dtype) && (x.shape.at(-1) ?? 1) % 2 ? to(x, 'f32') : x);
