// What functions take: that it is a tensor, and in which type it is computed.

import { autocastType } from './autocast.mjs';
import { to } from './views.mjs';
import { isFloat } from '../core/layout.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/** What autocast computes in f32. @param {Tensor} x @returns {Tensor} */
export const full32 = (x) => (autocastType() !== undefined && isFloat(x.dtype) ? to(x, 'f32') : x);

/** x, as f32 where it has 16 bits: statistics are f32. @param {Tensor} x */
export const single = (x) => (isFloat(x.dtype) ? to(x, 'f32') : x);

/** x, as f32 where 16-bit rows have an odd size: kernels that are not products take such rows by pairs. @param {Tensor} x @returns {Tensor} */
export const pairs = (x) => (x.dtype !== 'f32' && isFloat(x.dtype) && (x.shape.at(-1) ?? 1) % 2 ? to(x, 'f32') : x);
