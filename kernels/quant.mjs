// q8_0 on the host: blocks of 32 numbers, each an 8-bit integer times the block's f16 scale, as llama.cpp quantizes.

import { f16Bits, f16Value } from './half.mjs';

/** Numbers of a q8_0 block. */
export const Q8_BLOCK = 32;
/** Bytes of a block in a GGUF file: the scale, then the quants. */
export const Q8_BYTES = 34;

/**
 * Numbers in q8_0: number i is quants[i] times the scale of its block.
 * @typedef {object} Q8
 * @property {Int8Array} quants one for each number
 * @property {Uint16Array} scales f16 bits, one for each 32 quants
 */

/** @param {string} call @param {string} name @param {number} count @param {number} unit @returns {number} units */
function blocksOf(call, name, count, unit) {
  if (count % unit) throw new RangeError(`${call}: ${name} must have a multiple of ${unit} elements, got ${count}`);
  return count / unit;
}

/**
 * Where numbers in q8_0 go: new memory, or what was given for so many.
 * @param {string} call @param {Q8 | undefined} into @param {number} blocks @returns {Q8}
 */
function placeOf(call, into, blocks) {
  if (into === undefined) return { quants: new Int8Array(blocks * Q8_BLOCK), scales: new Uint16Array(blocks) };
  const { quants, scales } = into;
  if (!(quants instanceof Int8Array) || quants.length !== blocks * Q8_BLOCK || !(scales instanceof Uint16Array) || scales.length !== blocks)
    throw new RangeError(`${call}: into must have an Int8Array of ${blocks * Q8_BLOCK} quants and a Uint16Array of ${blocks} scales`);
  return into;
}

/** The bits of an f32 and its number share memory. */
const bitsOfMost = new Int32Array(1);
const most = new Float32Array(bitsOfMost.buffer);

/**
 * Quantizes to q8_0 by llama.cpp's rule: d = max |x| / 127 in f32, each number round(x / d) with halves away from zero; d is kept as f16. A
 * block of zeros gives zeros. A block with a NaN or an infinity has a scale that is none either, so that what it gives is NaN or infinite.
 * @param {Float32Array} values rows one after another, each of a multiple of 32 numbers
 * @param {Q8} [into] where the result goes; new arrays when left out
 * @returns {Q8} what `matvec`, `embedRows` and `dequantize` take as `weight` or `table`, and `scales`
 */
export function quantizeQ8(values, into) {
  const blocks = blocksOf('quantizeQ8', 'values', values.length, Q8_BLOCK);
  const result = placeOf('quantizeQ8', into, blocks);
  const { quants, scales } = result;
  const own = values instanceof Float32Array ? values : Float32Array.from(values);
  const bits = new Int32Array(own.buffer, own.byteOffset, own.length);
  for (let b = 0; b < blocks; b++) {
    const from = b * Q8_BLOCK;
    const end = from + Q8_BLOCK;
    // Sizes are ordered as their bits are, and NaN comes after infinity.
    let largest = 0;
    for (let i = from; i < end; i++) largest = Math.max(largest, bits[i] & 0x7fffffff);
    bitsOfMost[0] = largest;
    const d = Math.fround(most[0] / 127);
    scales[b] = f16Bits(d);
    if (!(d > 0 && d < Infinity)) {
      // The scale alone says zero, or NaN times 1, or an infinity with the signs of its numbers.
      for (let i = from; i < end; i++) quants[i] = d === 0 ? 0 : own[i] < 0 ? -1 : 1;
      continue;
    }
    const inverse = Math.fround(1 / d);
    for (let i = from; i < end; i++) {
      // Without a branch, which would be predicted wrongly for half of the numbers: the size rounded, then negated where the sign bit is set.
      const size = (Math.abs(Math.fround(own[i] * inverse)) + 0.5) | 0;
      const sign = bits[i] >> 31;
      quants[i] = (size ^ sign) - sign;
    }
  }
  return result;
}

/**
 * The numbers that q8_0 represents.
 * @param {Q8} q8
 * @returns {Float32Array}
 */
export function dequantizeQ8({ quants, scales }) {
  return Float32Array.from(quants, (q, i) => q * f16Value(scales[i >> 5]));
}

/**
 * Splits the interleaved blocks of a GGUF file, an f16 scale and 32 quants in 34 bytes, into quants and scales.
 * @param {Uint8Array} bytes
 * @param {Q8} [into] where the result goes, `quants` at an even offset; new arrays when left out
 * @returns {Q8}
 */
export function q8FromBlocks(bytes, into) {
  const blocks = blocksOf('q8FromBlocks', 'bytes', bytes.length, Q8_BYTES);
  const result = placeOf('q8FromBlocks', into, blocks);
  const { quants, scales } = result;
  // Blocks are of 17 words of 16 bits: copied so, a block costs less than a call that copies it.
  const words = new Uint16Array(quants.buffer, quants.byteOffset, quants.length / 2);
  const even = bytes.byteOffset % 2 === 0 ? bytes : bytes.slice();
  const source = new Uint16Array(even.buffer, even.byteOffset, blocks * (Q8_BYTES / 2));
  for (let b = 0, at = 0, to = 0; b < blocks; b++) {
    scales[b] = source[at++];
    for (const end = to + Q8_BLOCK / 2; to < end; ) words[to++] = source[at++];
  }
  return result;
}

/**
 * The interleaved blocks of a GGUF file: the inverse of `q8FromBlocks`.
 * @param {Q8} q8
 * @returns {Uint8Array}
 */
export function q8ToBlocks({ quants, scales }) {
  const blocks = blocksOf('q8ToBlocks', 'quants', quants.length, Q8_BLOCK);
  if (scales.length !== blocks) throw new RangeError(`q8ToBlocks: scales must have ${blocks} elements, got ${scales.length}`);
  const bytes = new Uint8Array(blocks * Q8_BYTES);
  const source = new Uint8Array(quants.buffer, quants.byteOffset, quants.length);
  for (let b = 0, at = 0; b < blocks; b++, at += Q8_BYTES) {
    bytes[at] = scales[b] & 0xff;
    bytes[at + 1] = scales[b] >> 8;
    bytes.set(source.subarray(b * Q8_BLOCK, (b + 1) * Q8_BLOCK), at + 2);
  }
  return bytes;
}
