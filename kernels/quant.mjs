// q8_0 on the host: blocks of 32 numbers, each an 8-bit integer times the block's f16 scale, as llama.cpp quantizes.

import { bf16Value, f16Bits, f16Value } from './half.mjs';
import { CHUNK, openQuantizer } from './quant-simd.mjs';

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

/** Null where there is none. @type {ReturnType<typeof openQuantizer> | null | undefined} */
let simd;

/**
 * Quantizes to q8_0 by llama.cpp's rule: d = max |x| / 127 in f32, each number round(x / d) with halves away from zero; d is kept as f16. A
 * block of zeros gives zeros. A block with a NaN or an infinity has a scale that is none either, so that what it gives is NaN or infinite.
 * @param {ArrayLike<number>} values rows one after another, each of a multiple of 32 numbers; of `type` f16 and bf16 a Uint16Array of their bits
 * @param {Q8} [into] where the result goes; new arrays when left out
 * @param {'f32' | 'f16' | 'bf16'} [type] of the values; f32 when left out
 * @returns {Q8} what `matvec`, `embedRows` and `dequantize` take as `weight` or `table`, and `scales`
 */
export function quantizeQ8(values, into, type = 'f32') {
  if (type !== 'f32' && type !== 'f16' && type !== 'bf16') throw new RangeError(`quantizeQ8: type must be f32, f16 or bf16, got ${type}`);
  if (type !== 'f32' && !(values instanceof Uint16Array))
    throw new TypeError(`quantizeQ8: values of ${type} must be a Uint16Array of bits`);
  const blocks = blocksOf('quantizeQ8', 'values', values.length, Q8_BLOCK);
  const result = placeOf('quantizeQ8', into, blocks);
  const { quants, scales } = result;
  const own = values instanceof Float32Array || values instanceof Uint16Array ? values : Float32Array.from(values);
  simd ??= openQuantizer() ?? null;
  const floats = simd?.floats ?? new Float32Array(CHUNK);
  const sizes = simd?.sizes ?? new Float32Array(CHUNK / Q8_BLOCK);
  for (let at = 0; at < own.length; at += CHUNK) {
    const part = own.subarray(at, at + CHUNK);
    widen(part, type, floats);
    if (simd) {
      simd.quantize(part.length);
      quants.set(part.length === CHUNK ? simd.quants : simd.quants.subarray(0, part.length), at);
    } else sizesOf(floats, part.length, sizes);
    for (let b = 0; b < part.length / Q8_BLOCK; b++) {
      const block = at / Q8_BLOCK + b;
      scales[block] = f16Bits(sizes[b]);
      if (!simd || !(sizes[b] >= MIN_NORMAL && sizes[b] < Infinity))
        quantizeBlock(floats, b * Q8_BLOCK, sizes[b], quants, block * Q8_BLOCK);
    }
  }
  return result;
}

/** The least f32 that is not subnormal: the reciprocals of it and of larger ones are finite. */
const MIN_NORMAL = 2 ** -126;

/** Writes numbers as f32. @param {Float32Array | Uint16Array} values @param {'f32' | 'f16' | 'bf16'} type @param {Float32Array} floats */
function widen(values, type, floats) {
  if (type === 'f32') floats.set(values);
  else if (simd) {
    simd.halves.set(values);
    if (type === 'f16') simd.widenF16(values.length);
    else simd.widenBf16(values.length);
  } else {
    const toValue = type === 'f16' ? f16Value : bf16Value;
    for (let i = 0; i < values.length; i++) floats[i] = toValue(values[i]);
  }
}

/** max |x| / 127 of each block. @param {Float32Array} floats @param {number} count @param {Float32Array} sizes */
function sizesOf(floats, count, sizes) {
  const bits = new Int32Array(floats.buffer, floats.byteOffset, count);
  const ofSizes = new Int32Array(sizes.buffer, sizes.byteOffset, sizes.length);
  for (let b = 0; b < count / Q8_BLOCK; b++) {
    // Sizes are ordered as their bits are, and NaN comes after infinity.
    let largest = 0;
    for (let i = b * Q8_BLOCK; i < (b + 1) * Q8_BLOCK; i++) largest = Math.max(largest, bits[i] & 0x7fffffff);
    ofSizes[b] = largest;
    sizes[b] /= 127;
  }
}

/**
 * Quantizes a block of numbers of any size.
 * @param {Float32Array} floats @param {number} from where the block begins @param {number} d @param {Int8Array} quants @param {number} to where its quants go
 */
function quantizeBlock(floats, from, d, quants, to) {
  if (!(d > 0 && d < Infinity)) {
    // The scale alone says zero, or NaN times 1, or an infinity with the signs of its numbers.
    for (let i = 0; i < Q8_BLOCK; i++) quants[to + i] = d === 0 ? 0 : floats[from + i] < 0 ? -1 : 1;
    return;
  }
  const inverse = Math.fround(1 / d);
  for (let i = 0; i < Q8_BLOCK; i++) {
    // Without a branch, which would be predicted wrongly for half of the numbers: the size rounded, then the sign.
    const size = (Math.abs(Math.fround(floats[from + i] * inverse)) + 0.5) | 0;
    quants[to + i] = size * Math.sign(floats[from + i]);
  }
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
