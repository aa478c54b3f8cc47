// Test cases of operations: products by weights of 8 bits, and adapters beside weights.

import { integers } from '../lib/random-data.mjs';
import { any, random, x } from './inputs.mjs';

/**
 * Quants and scales of [rows, columns]. The scales are numbers that f16 has.
 * @param {number} rows @param {number} columns @returns {import('./inputs.mjs').Input[]}
 */
export const quantized = (rows, columns) => [
  { shape: [rows, columns], values: Float64Array.from(integers(rows * columns, 255), (v) => v - 127), dtype: 'i8', constant: true },
  {
    shape: [rows, columns / 32],
    values: Float64Array.from(integers((rows * columns) / 32, 9), (v) => (v - 4) / 256),
    dtype: 'f16',
    constant: true,
  },
];

/** @type {Record<string, () => import('./inputs.mjs').Case>} */
export const cases = {
  adapt: () => {
    const [rows, k, n] = [any(), any(), random.between(2, 12)];
    const first = random.between(1, n - 1);
    // Two adapters beside each other, or one.
    const outputs = random.chance(0.5) ? [first, n - first] : [first];
    const ranks = outputs.map(any);
    const inputs = [x(2, rows, n), x(2, rows, k), ...ranks.map((rank) => x(rank, k)), ...ranks.map((rank, i) => x(outputs[i], rank))];
    return { inputs, attributes: { rows: outputs.length > 1 ? [0, first] : [n - first], scales: [0.5, 2].slice(0, outputs.length) } };
  },
  linearQ8: () => {
    const [n, k, transposed] = [any(), random.pick([32, 64, 96]), random.chance(0.5)];
    return { inputs: [x(2, any(), transposed ? n : k), ...quantized(n, k)], attributes: { transposed } };
  },
};
