// Arrays of float64, in which the operations' references are written. They are meant to be read, not to be fast.

import { sizeOf } from '../core/layout.mjs';

/** @typedef {import('./registry.mjs').Reference} Reference */

/** @param {readonly number[]} shape @param {(index: number[]) => number} f @returns {Reference} */
export function generate(shape, f) {
  const data = new Float64Array(sizeOf(shape));
  const index = new Array(shape.length).fill(0);
  for (let i = 0; i < data.length; i++) {
    data[i] = f(index);
    for (let d = shape.length - 1; d >= 0 && ++index[d] === shape[d]; d--) index[d] = 0;
  }
  return { shape, data };
}

/** The element at an index, repeated where a size is 1 or a dimension is missing. @param {Reference} x @param {readonly number[]} index */
export function at(x, index) {
  const { shape, data } = x;
  const missing = index.length - shape.length;
  let i = 0;
  let stride = 1;
  for (let d = shape.length - 1; d >= 0; d--) {
    if (shape[d] !== 1) i += index[d + missing] * stride;
    stride *= shape[d];
  }
  return data[i];
}

/** @param {Reference} x @param {(value: number) => number} f @returns {Reference} */
export const map = (x, f) => ({ shape: x.shape, data: x.data.map(f) });

/** The size of all dimensions but the last, and of the last. @param {readonly number[]} shape @returns {[rows: number, columns: number]} */
export function rowsOf(shape) {
  const columns = shape.at(-1) ?? 1;
  return [sizeOf(shape.slice(0, -1)), columns];
}

/** tanh form of GELU (Hendrycks & Gimpel 2016). @param {number} x */
export const gelu = (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
/** @param {number} x */
export const sigmoid = (x) => 1 / (1 + Math.exp(-x));
