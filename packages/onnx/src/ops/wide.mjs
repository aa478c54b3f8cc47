// What the device does not do with integers of 64 bits, composed of what it does: quotients and order, exact for all of them.

import { f } from './lib.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */

/** An f32 quotient times this is less than the exact one: devices divide within 2.5 units in the last place. */
const BELOW = 1 - 2 ** -20;
/** Each estimate leaves less than the divisor and 2^-19 of the rest before it. After this many, the divisor fits into the rest once at most. */
const ESTIMATES = 4;

/** -|x|, which has no overflow. @param {Tensor} x @returns {Tensor} */
const below = (x) => f.minimum(x, f.neg(x));

/**
 * Division of i64 rounded to 0. By 0 the results are some numbers.
 * @param {Tensor} a i64 @param {Tensor} b i64
 * @returns {{ quotient: Tensor, rest: Tensor }} the rest has a's sign
 */
function divided(a, b) {
  const divisor = f.to(b, 'f32');
  let [quotient, rest] = [f.mul(f.add(a, b), 0), a];
  for (let i = 0; i < ESTIMATES; i++) {
    const part = f.to(f.mul(f.div(f.to(rest, 'f32'), divisor), BELOW), 'i64');
    [quotient, rest] = [f.add(quotient, part), f.sub(rest, f.mul(part, b))];
  }
  const more = f.to(f.le(below(rest), below(b)), 'i64');
  const sign = f.sub(1, f.mul(f.to(f.ne(f.lt(rest, 0), f.lt(b, 0)), 'i64'), 2));
  const last = f.mul(more, sign);
  return { quotient: f.add(quotient, last), rest: f.sub(rest, f.mul(last, b)) };
}

/** a / b rounded to 0, of i64. @param {Tensor} a @param {Tensor} b @returns {Tensor} */
export const truncDivide = (a, b) => divided(a, b).quotient;
/** What a / b leaves, with a's sign, of i64. @param {Tensor} a @param {Tensor} b @returns {Tensor} */
export const fmod = (a, b) => divided(a, b).rest;
/** What a / b leaves, with b's sign, of i64. @param {Tensor} a @param {Tensor} b @returns {Tensor} */
export function remainder(a, b) {
  const { rest } = divided(a, b);
  const crosses = f.logicalAnd(f.ne(rest, 0), f.ne(f.lt(rest, 0), f.lt(b, 0)));
  return f.add(rest, f.mul(f.to(crosses, 'i64'), b));
}

/**
 * `topk` of i64. Sorts are stable: first by the low words, then by the high ones.
 * @param {Tensor} x i64 @param {number} k @param {number} d @param {boolean} largest
 * @returns {{ values: Tensor, indices: Tensor }} indices i32
 */
export function topK(x, k, d, largest) {
  // Words as i32 in their order: the low ones, which have no sign, by 2^31 less.
  const high = f.bitwiseRightShift(x, 32);
  const low = f.sub(f.sub(x, f.bitwiseLeftShift(high, 32)), 2 ** 31);
  const byLow = f.argsort(f.to(low, 'i32'), d, largest);
  const { indices } = f.topk(f.gather(f.to(high, 'i32'), d, byLow), k, d, largest);
  const places = f.gather(byLow, d, indices);
  return { values: f.gather(x, d, places), indices: places };
}

/**
 * Whole powers of integers, modulo their type's range; of a negative exponent the reciprocal rounded to 0.
 * @param {Tensor} base i32, u32 or i64 @param {Tensor} exponent of the same type
 * @returns {Tensor}
 */
export function power(base, exponent) {
  const size = exponent.dtype === 'u32' ? exponent : f.abs(exponent);
  let [y, square, left] = [f.add(f.mul(f.add(base, exponent), 0), 1), base, size];
  // Bases but 0, 1 and -1 leave every type before the exponent has more than 6 bits, and those ask for its parity only.
  left = f.where(f.gt(left, 63), f.add(f.bitwiseAnd(left, 1), 62), left);
  for (let bit = 0; bit < 6; bit++) {
    y = f.where(f.ne(f.bitwiseAnd(f.bitwiseRightShift(left, bit), 1), 0), f.mul(y, square), y);
    square = f.mul(square, square);
  }
  if (exponent.dtype === 'u32') return y;
  const vanishes = f.logicalAnd(f.lt(exponent, 0), f.ne(f.mul(base, base), 1));
  return f.mul(y, f.to(f.logicalNot(vanishes), y.dtype));
}

/**
 * Sums or products of the elements up to each along a dimension, of i64: each turn joins twice as many.
 * @param {Tensor} x i64 @param {number} d @param {'add' | 'mul'} join @param {Tensor} neutral of size 1 along `d`
 * @returns {Tensor}
 */
export function cumulated(x, d, join, neutral) {
  const size = x.shape[d];
  let result = x;
  for (let by = 1; by < size; by *= 2) {
    const before = f.cat([f.expand(neutral, x.shape.with(d, by)), f.slice(result, d, 0, size - by)], d);
    result = f[join](result, before);
  }
  return result;
}
