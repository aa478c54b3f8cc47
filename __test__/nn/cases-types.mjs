// Test cases of operations: integers.

import { integers } from '../lib/random-data.mjs';
import { any, binary, random, size, unary } from './inputs.mjs';

/** Integers from -50 on, below 50. @param {number[]} shape @returns {import('./inputs.mjs').Input} */
const whole = (...shape) => ({ shape, values: Float64Array.from(integers(size(shape), 100), (v) => v - 50), dtype: 'i32', constant: true });
/** Without 0. @param {number[]} shape @returns {import('./inputs.mjs').Input} */
const divisor = (...shape) => ({
  ...whole(...shape),
  values: Float64Array.from(integers(size(shape), 20), (v) => (v < 10 ? v - 10 : v - 9)),
});
/** @param {number[]} shape @returns {import('./inputs.mjs').Input} */
const amount = (...shape) => ({ ...whole(...shape), values: integers(size(shape), 32) });

const division = () => ({ ...binary(whole, divisor)(), dy: false });
/** @type {Record<string, () => import('./inputs.mjs').Case>} */
export const cases = {
  integerTruncDivide: division,
  integerFloorDivide: division,
  integerRemainder: division,
  integerFmod: division,
  ...Object.fromEntries(['bitwiseAnd', 'bitwiseOr', 'bitwiseXor'].map((name) => [name, binary(whole)])),
  ...Object.fromEntries(['bitwiseLeftShift', 'bitwiseRightShift'].map((name) => [name, binary(whole, amount)])),
  bitwiseNot: unary(whole),
  integerPower: () => ({
    ...binary(
      (...shape) => ({ ...whole(...shape), values: Float64Array.from(integers(size(shape), 9), (v) => v - 4) }),
      (...shape) => ({ ...whole(...shape), values: Float64Array.from(integers(size(shape), 12), (v) => v - 2) }),
    )(),
    attributes: { shift: 0 },
    dy: false,
  }),
  placeIfTrue: unary((...shape) => ({ shape, values: integers(size(shape), 2), dtype: 'bool', constant: true })),
  narrowed: unary((...shape) => ({
    ...whole(...shape),
    values: Float64Array.from(integers(size(shape), 5), (v) => (v - 2) * 2 ** 30),
    dtype: 'i64',
  })),
  reduceIntegers: () => ({
    inputs: [whole(any(), random.pick([1, 2, 7, 8, 9, 65, 600]), any())],
    attributes: { join: random.pick(['sum', 'amax', 'amin']), dtype: 'i32' },
  }),
};
