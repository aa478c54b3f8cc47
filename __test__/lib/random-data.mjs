/** Random test data, and the comparison with a reference. HELIOS_TEST_SEED changes the data. */
import assert from 'node:assert/strict';
import { integerVariable } from '../../bin/lib/options.mjs';
import { Random } from './random.mjs';
import { relativeError } from './reference.mjs';

export const seed = integerVariable('HELIOS_TEST_SEED', { min: 0 }) ?? 20260;
const source = new Random(seed);

/** Uniform in [low, high). @param {number} count */
export const uniform = (count, low = -1, high = 1) =>
  Float64Array.from({ length: count }, () => low + (high - low) * (source.u32() / 2 ** 32));

/** Standard normal (Box-Muller). @param {number} count */
export const normal = (count) =>
  Float64Array.from({ length: count }, () => {
    const radius = Math.sqrt(-2 * Math.log((source.u32() + 1) / 2 ** 32));
    return radius * Math.cos((2 * Math.PI * source.u32()) / 2 ** 32);
  });

/** Integers in [0, below). @param {number} count @param {number} below */
export const integers = (count, below) => Float64Array.from({ length: count }, () => source.below(below));

/** @param {ArrayLike<number>} actual @param {ArrayLike<number>} expected @param {number} tolerance @param {string} what */
export function assertClose(actual, expected, tolerance, what) {
  const error = relativeError(actual, expected);
  // Not `error > tolerance`: a NaN must fail.
  assert.ok(error <= tolerance, `${what}: relative error ${error.toExponential(2)} above ${tolerance} (seed ${seed})`);
}
