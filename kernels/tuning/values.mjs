// Random operands of timed products, and the median.

import { bf16Bits, f16Bits } from '../half.mjs';

/** Values after which they are repeated, which does not affect timing. It is a prime, so that no column of a matrix repeats them sooner. */
export const PERIOD = (1 << 18) + 3;

/** Random values and their storage. */
export class Values {
  /** @param {string} type @param {number} [seed] not 0 */
  constructor(type, seed = 0x9e3779b9) {
    this.type = type;
    const count = PERIOD;
    this.values = new Float32Array(count);
    let s = seed;
    for (let i = 0; i < count; i++) {
      s ^= s << 13;
      s ^= s >>> 17;
      s ^= s << 5;
      // Multiples of 2^-6 in [-1, 1): exact in every storage type. A sum of 2^18 products of them is a multiple of 2^-12 with a standard deviation of
      // 171, so that it, and each of its parts, is exact in f32 up to 24 deviations.
      this.values[i] = (s >> 25) / 64;
    }
    this.block = type === 'f32' ? this.values : Uint16Array.from(this.values, type === 'bf16' ? bf16Bits : f16Bits);
  }
  /** @param {number} i */
  at(i) {
    return this.values[i % this.values.length];
  }
  /** @param {number} length */
  tensor(length) {
    const all = this.block instanceof Float32Array ? new Float32Array(length) : new Uint16Array(length);
    for (let i = 0; i < length; i += this.block.length) all.set(this.block.subarray(0, Math.min(this.block.length, length - i)), i);
    return all;
  }
}

/** The median; of an even number of values, the upper of the two in the middle. @param {number[]} list */
export function median(list) {
  const sorted = [...list].sort((x, y) => x - y);
  return sorted[sorted.length >> 1];
}
