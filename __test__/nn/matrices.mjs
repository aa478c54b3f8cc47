// Matrices in float64, as arrays of rows.

import { range } from './inputs.mjs';

/** @typedef {import('../../nn/ops/registry.mjs').Reference} Reference */
/** @typedef {number[][]} Matrix */

/** The matrices of a batch. @param {Reference} t @returns {Matrix[]} */
export function matrices({ shape, data }) {
  const [n, m] = shape.slice(-2);
  return range(data.length / n / m).map((b) => range(n).map((i) => [...data.slice((b * n + i) * m, (b * n + i + 1) * m)]));
}
export const identity = (/** @type {number} */ n) => range(n).map((i) => range(n).map((j) => Number(i === j)));
/** @param {Matrix} a @param {Matrix} b */
export const times = (a, b) => a.map((row) => b[0].map((_, j) => row.reduce((sum, v, k) => sum + v * b[k][j], 0)));
export const turned = (/** @type {Matrix} */ a) => a[0].map((_, j) => a.map((row) => row[j]));
