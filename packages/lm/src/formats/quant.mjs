// The element types of GGUF's tensors: to f32, and from it. A block holds neighbours of a row; sizes are those of `TYPES` in gguf.mjs.
// The layouts are those of `block_q4_0` … `block_q6_K` in ggml-common.h of llama.cpp.

import { bf16Bits, f16Bits, f16Value, q8ToBlocks, quantizeQ8 } from 'helios-vk/kernels';

import { TYPES } from './gguf.mjs';

/** @typedef {import('./gguf.mjs').TensorType} TensorType */

/** @type {Record<string, (values: Float32Array) => Uint8Array>} */
const ENCODERS = {
  f32: ({ buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength),
  f16: (values) => halvesOf(values, f16Bits),
  bf16: (values) => halvesOf(values, bf16Bits),
  q8_0: (values) => q8ToBlocks(quantizeQ8(values)),
};

/** @param {Float32Array} values @param {(value: number) => number} bits */
function halvesOf(values, bits) {
  const out = new Uint16Array(values.length);
  // A loop: `Uint16Array.from` with a function takes fifty times the time.
  for (let i = 0; i < out.length; i++) out[i] = bits(values[i]);
  return new Uint8Array(out.buffer);
}

/** An f16 in a block. @param {Uint8Array} bytes @param {number} at */
const half = (bytes, at) => f16Value(bytes[at] | (bytes[at + 1] << 8));

/** A scale and a minimum of q4_k and q5_k: six bits each, of eight packed into twelve bytes. @param {Uint8Array} bytes @param {number} at @param {number} i */
function scaleAndMinimum(bytes, at, i) {
  if (i < 4) return [bytes[at + i] & 63, bytes[at + i + 4] & 63];
  const both = bytes[at + i + 4];
  return [(both & 15) | ((bytes[at + i - 4] >> 6) << 4), (both >> 4) | ((bytes[at + i] >> 6) << 4)];
}

/**
 * Functions that decode one block: its bytes begin at `at`, its elements go to `to`.
 * @type {Record<string, (bytes: Uint8Array, at: number, out: Float32Array, to: number) => void>}
 */
const DECODERS = {
  q8_0(bytes, at, out, to) {
    const scale = half(bytes, at);
    for (let i = 0; i < 32; i++) out[to + i] = ((bytes[at + 2 + i] << 24) >> 24) * scale;
  },
  q4_0: (bytes, at, out, to) => decodeNibbles(bytes, at + 2, out, to, half(bytes, at), -8 * half(bytes, at)),
  q4_1: (bytes, at, out, to) => decodeNibbles(bytes, at + 4, out, to, half(bytes, at), half(bytes, at + 2)),
  q5_0: (bytes, at, out, to) => decodeNibbles(bytes, at + 6, out, to, half(bytes, at), -16 * half(bytes, at), at + 2),
  q5_1: (bytes, at, out, to) => decodeNibbles(bytes, at + 8, out, to, half(bytes, at), half(bytes, at + 2), at + 4),
  q4_k: (bytes, at, out, to) => decodeK(bytes, at, out, to, at + 16, undefined),
  q5_k: (bytes, at, out, to) => decodeK(bytes, at, out, to, at + 48, at + 16),
  // 128 bytes of low nibbles, 64 of two high bits, 16 scales of i8, one scale of f16.
  q6_k(bytes, at, out, to) {
    const scale = half(bytes, at + 208);
    for (let i = 0; i < 256; i++) {
      const [part, column] = [i >> 7, i & 31];
      const quarter = (i >> 5) & 3;
      const low = (bytes[at + 64 * part + 32 * (quarter & 1) + column] >> ((quarter >> 1) << 2)) & 15;
      const high = (bytes[at + 128 + 32 * part + column] >> (2 * quarter)) & 3;
      const own = Math.fround(scale * ((bytes[at + 192 + (i >> 4)] << 24) >> 24));
      out[to + i] = own * ((low | (high << 4)) - 32);
    }
  },
};

/**
 * Decodes 32 numbers of four bits, or of five if `high` is where the fifth bits begin: scale · q + offset. The low nibbles come first.
 * @param {Uint8Array} bytes @param {number} at @param {Float32Array} out @param {number} to @param {number} scale @param {number} offset
 * @param {number} [high]
 */
function decodeNibbles(bytes, at, out, to, scale, offset, high) {
  for (let i = 0; i < 32; i++) {
    const low = i < 16 ? bytes[at + i] & 15 : bytes[at + i - 16] >> 4;
    const fifth = high === undefined ? 0 : (bytes[high + (i >> 3)] >> (i & 7)) & 1;
    out[to + i] = scale * (low | (fifth << 4)) + offset;
  }
}

/**
 * Decodes a block of q4_k or q5_k: eight runs of 32 numbers, each with a scale and a minimum of its own.
 * @param {Uint8Array} bytes @param {number} at @param {Float32Array} out @param {number} to @param {number} low where the nibbles begin
 * @param {number | undefined} high where the fifth bits begin
 */
function decodeK(bytes, at, out, to, low, high) {
  const [scale, minimum] = [half(bytes, at), half(bytes, at + 2)];
  for (let run = 0; run < 8; run++) {
    const [own, least] = scaleAndMinimum(bytes, at + 4, run);
    const [d, m] = [Math.fround(scale * own), Math.fround(minimum * least)];
    for (let i = 0; i < 32; i++) {
      const nibble = (bytes[low + 32 * (run >> 1) + i] >> (4 * (run & 1))) & 15;
      const fifth = high === undefined ? 0 : (bytes[high + i] >> run) & 1;
      out[to + 32 * run + i] = d * (nibble | (fifth << 4)) - m;
    }
  }
}

/**
 * Decodes elements to f32.
 * @param {TensorType} type @param {Uint8Array<ArrayBuffer>} bytes whole blocks
 * @param {Float32Array<ArrayBuffer>} [into] memory for at least so many elements, which is used unless the result is a view
 * @returns {Float32Array<ArrayBuffer>} for f32 a view of the bytes where their alignment allows
 * @throws {RangeError} for a type that cannot be decoded
 */
export function toF32(type, bytes, into) {
  if (!canDecode(type)) throw new RangeError(`no type ${type} can be decoded; there are ${DECODED.join(', ')}`);
  const { elements, bytes: width } = TYPES[type];
  // A view of words begins at a multiple of their size.
  const words = elements === 1 && bytes.byteOffset % width ? new Uint8Array(bytes) : bytes;
  if (type === 'f32') return new Float32Array(words.buffer, words.byteOffset, words.length / 4);
  const count = (bytes.length / width) * elements;
  const out = into ? into.subarray(0, count) : new Float32Array(count);
  if (type === 'f16' || type === 'bf16') {
    const halves = new Uint16Array(words.buffer, words.byteOffset, out.length);
    const bits = new Uint32Array(out.buffer, out.byteOffset, out.length);
    if (type === 'f16') for (let i = 0; i < out.length; i++) out[i] = f16Value(halves[i]);
    else for (let i = 0; i < out.length; i++) bits[i] = halves[i] << 16;
  } else for (let at = 0, to = 0; at < bytes.length; at += width, to += elements) DECODERS[type](bytes, at, out, to);
  return out;
}

/** Types that can be decoded, and those that can be encoded. */
const DECODED = ['f32', 'f16', 'bf16', ...Object.keys(DECODERS)];
export const ENCODED = /** @type {('f32' | 'f16' | 'bf16' | 'q8_0')[]} */ (Object.keys(ENCODERS));

/** Whether `toF32` takes a type. @param {TensorType} type */
export const canDecode = (type) => DECODED.includes(type);

/** From here on numbers round to an infinity of f16. */
export const MAX_F16 = 65520;

/** The error about weights that f16 cannot hold. @param {string} name of the tensor */
export const beyondHalf = (name) => new RangeError(`${name} has numbers beyond the largest of f16, 65504: choose bf16 or f32`);

/** @param {string} name of the tensor @param {Float32Array} values @throws {RangeError} if f16 cannot hold one */
export function checkHalf(name, values) {
  for (let i = 0; i < values.length; i++) if (Math.abs(values[i]) >= MAX_F16) throw beyondHalf(name);
}

/**
 * Encodes f32 elements. f16 and bf16 round to nearest even; q8_0 follows llama.cpp's rule.
 * @param {'f32' | 'f16' | 'bf16' | 'q8_0'} type @param {Float32Array} values whole blocks
 * @returns {Uint8Array} for f32 a view of the values
 */
export const fromF32 = (type, values) => ENCODERS[type](values);
