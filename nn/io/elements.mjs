// Converts elements of files to elements of tensors: for each type of a file, the tensor type that holds it exactly.

import { f16Bits } from '../../kernels/half.mjs';

/** @typedef {import('../core/layout.mjs').DType} DType */

/**
 * What becomes of a type of files.
 * @typedef {object} Conversion
 * @property {DType} dtype the tensor's type
 * @property {(bytes: Uint8Array, round: boolean) => ArrayBufferView | string} [convert] the tensor's words from the file's
 *   bytes, or what the tensor's type cannot hold; left out where they are the same bytes
 */

/** The format's names of the types of tensors. @type {Record<DType, string>} */
export const NAMES = { f32: 'F32', f16: 'F16', bf16: 'BF16', i32: 'I32', u32: 'U32', bool: 'BOOL' };

/** @template {ArrayBufferView} T @param {Uint8Array} bytes @param {{ new (buffer: ArrayBuffer, offset: number, length: number): T, readonly BYTES_PER_ELEMENT: number }} Class */
const viewAs = (bytes, Class) =>
  new Class(/** @type {ArrayBuffer} */ (bytes.buffer), bytes.byteOffset, bytes.length / Class.BYTES_PER_ELEMENT);

/**
 * Integers of 64 bits as their low words, where the high words say no more than these.
 * @param {DType} dtype @param {(low: number) => number} highOf what the high word of a number in 32 bits is
 * @returns {NonNullable<Conversion['convert']>}
 */
const narrowed = (dtype, highOf) => (bytes) => {
  const words = viewAs(bytes, Int32Array);
  const result = new Int32Array(words.length / 2);
  for (let i = 0; i < result.length; i++) {
    const low = words[2 * i];
    if (words[2 * i + 1] !== highOf(low)) {
      const number = dtype === 'i32' ? viewAs(bytes, BigInt64Array)[i] : viewAs(bytes, BigUint64Array)[i];
      return `element ${i} is ${number}, which is not an integer of 32 bits`;
    }
    result[i] = low;
  }
  return result;
};

/** Numbers of 64 bits in 32, where these are the same numbers, or nearest. @param {Uint8Array} bytes @param {boolean} round */
function floats(bytes, round) {
  const numbers = viewAs(bytes, Float64Array);
  const result = new Float32Array(numbers);
  for (let i = 0; i < result.length; i++) {
    if (result[i] === numbers[i] || numbers[i] !== numbers[i]) continue;
    // Nearest to what is beyond all numbers of 32 bits would be infinity.
    const beyond = !Number.isFinite(result[i]);
    if (beyond || !round)
      return `element ${i} is ${numbers[i]}, which f32 does not have${beyond ? '' : ': { round: true } takes the nearest'}`;
  }
  return result;
}

/**
 * Numbers of 8 bits, all of which f16 has.
 * @param {(magnitude: number) => number} numberOf the value of the seven bits below the sign
 * @param {number} [nan] the byte that is NaN and no negative zero, in types that have but one
 * @returns {NonNullable<Conversion['convert']>}
 */
const halves = (numberOf, nan) => {
  const table = Uint16Array.from({ length: 256 }, (_, byte) => f16Bits(byte === nan ? NaN : (byte > 127 ? -1 : 1) * numberOf(byte & 127)));
  return (bytes) => {
    const words = new Uint16Array(bytes.length + (bytes.length & 1));
    for (let i = 0; i < bytes.length; i++) words[i] = table[bytes[i]];
    return words;
  };
};

/**
 * A number of an exponent and a fraction.
 * @param {number} magnitude its bits without the sign @param {number} fractionBits @param {number} bias
 */
function binary(magnitude, fractionBits, bias) {
  const exponent = magnitude >> fractionBits;
  const fraction = (magnitude & ((1 << fractionBits) - 1)) / (1 << fractionBits);
  return exponent === 0 ? fraction * 2 ** (1 - bias) : (1 + fraction) * 2 ** (exponent - bias);
}

/**
 * Types of files that tensors can hold. Of the 8-bit types, E4M3 and E5M2 are those of https://arxiv.org/abs/2209.05433 (E4M3 without
 * infinities, E5M2 as the upper half of an f16), those with FNUZ of https://arxiv.org/abs/2206.02915 (no infinities, no negative zero), and
 * E8M0 is the powers of two of OCP's Microscaling Formats 1.0.
 * @type {ReadonlyMap<string, Conversion>}
 */
export const CONVERSIONS = new Map(
  Object.entries(
    /** @type {Record<string, Conversion>} */ ({
      F32: { dtype: 'f32' },
      F16: { dtype: 'f16' },
      BF16: { dtype: 'bf16' },
      I32: { dtype: 'i32' },
      U32: { dtype: 'u32' },
      BOOL: { dtype: 'bool', convert: (bytes) => Uint32Array.from(bytes, (byte) => (byte ? 1 : 0)) },
      I64: { dtype: 'i32', convert: narrowed('i32', (low) => low >> 31) },
      U64: { dtype: 'u32', convert: narrowed('u32', () => 0) },
      F64: { dtype: 'f32', convert: floats },
      I16: { dtype: 'i32', convert: (bytes) => Int32Array.from(viewAs(bytes, Int16Array)) },
      U16: { dtype: 'u32', convert: (bytes) => Uint32Array.from(viewAs(bytes, Uint16Array)) },
      I8: { dtype: 'i32', convert: (bytes) => Int32Array.from(viewAs(bytes, Int8Array)) },
      U8: { dtype: 'u32', convert: (bytes) => Uint32Array.from(bytes) },
      F8_E4M3: { dtype: 'f16', convert: halves((magnitude) => (magnitude === 127 ? NaN : binary(magnitude, 3, 7))) },
      F8_E5M2: {
        dtype: 'f16',
        convert: halves((magnitude) => (magnitude > 124 ? NaN : magnitude === 124 ? Infinity : binary(magnitude, 2, 15))),
      },
      F8_E4M3FNUZ: { dtype: 'f16', convert: halves((magnitude) => binary(magnitude, 3, 8), 128) },
      F8_E5M2FNUZ: { dtype: 'f16', convert: halves((magnitude) => binary(magnitude, 2, 16), 128) },
      F8_E8M0: { dtype: 'f32', convert: (bytes) => Float32Array.from(bytes, (byte) => (byte === 255 ? NaN : 2 ** (byte - 127))) },
    }),
  ),
);

/** Why tensors cannot hold the other types that the format has. @type {Record<string, string>} */
export const UNHELD = {
  C64: 'there are no complex tensors',
  F4: 'the format does not say in which order elements of less than a byte lie',
  F6_E2M3: 'the format does not say in which order elements of less than a byte lie',
  F6_E3M2: 'the format does not say in which order elements of less than a byte lie',
};
