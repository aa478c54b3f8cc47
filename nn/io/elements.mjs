// Converts elements of safetensors files to elements of tensors. Each file type has a tensor type that can hold its values.

import { f16Bits } from '../../kernels/half.mjs';

/** @typedef {import('../core/layout.mjs').DType} DType */

/**
 * How one file type is converted.
 * @typedef {object} Conversion
 * @property {DType} dtype the tensor's type
 * @property {(bytes: Uint8Array, round: boolean) => ArrayBufferView | string} [convert] converts the file's bytes to the tensor's words, or
 *   returns the reason why a value does not fit; left out if the bytes are the same
 */

/** The format's name of each tensor type. @type {Record<DType, string>} */
export const NAMES = { f32: 'F32', f16: 'F16', bf16: 'BF16', i32: 'I32', u32: 'U32', bool: 'BOOL', i64: 'I64', u8: 'U8', i8: 'I8' };

/**
 * The same bytes as a typed array of another class.
 * @template {ArrayBufferView} T
 * @param {Uint8Array} bytes
 * @param {{ new (buffer: ArrayBuffer, offset: number, length: number): T, readonly BYTES_PER_ELEMENT: number }} Class
 */
const viewAs = (bytes, Class) =>
  new Class(/** @type {ArrayBuffer} */ (bytes.buffer), bytes.byteOffset, bytes.length / Class.BYTES_PER_ELEMENT);

/** Converts unsigned 64-bit integers to 32 bits, if every one of them fits. @param {Uint8Array} bytes */
function narrowed(bytes) {
  const words = viewAs(bytes, Uint32Array);
  const result = new Uint32Array(words.length / 2);
  for (let i = 0; i < result.length; i++) {
    if (words[2 * i + 1] !== 0) return `element ${i} is ${viewAs(bytes, BigUint64Array)[i]}, which is not an integer of 32 bits`;
    result[i] = words[2 * i];
  }
  return result;
}

/**
 * Converts f64 to f32. Without `round`, a number that f32 cannot represent is an error; with it, the number is rounded to nearest.
 * @param {Uint8Array} bytes @param {boolean} round
 */
function floats(bytes, round) {
  const numbers = viewAs(bytes, Float64Array);
  const result = new Float32Array(numbers);
  for (let i = 0; i < result.length; i++) {
    if (result[i] === numbers[i] || numbers[i] !== numbers[i]) continue;
    // A finite number beyond the range of f32 would become infinity: an error also with `round`.
    const beyond = !Number.isFinite(result[i]);
    if (beyond || !round)
      return `element ${i} is ${numbers[i]}, which f32 does not have${beyond ? '' : ': { round: true } takes the nearest'}`;
  }
  return result;
}

/**
 * Converts 8-bit floats to f16, which represents all of them exactly.
 * @param {(magnitude: number) => number} numberOf the value of the seven bits below the sign
 * @param {number} [nan] the one byte that is NaN, in types that have no negative zero
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
 * The value of a binary floating-point number, subnormals included.
 * @param {number} magnitude its bits without the sign @param {number} fractionBits @param {number} bias
 */
function binary(magnitude, fractionBits, bias) {
  const exponent = magnitude >> fractionBits;
  const fraction = (magnitude & ((1 << fractionBits) - 1)) / (1 << fractionBits);
  return exponent === 0 ? fraction * 2 ** (1 - bias) : (1 + fraction) * 2 ** (exponent - bias);
}

/**
 * The file types that can be read. F8_E4M3 (no infinities) and F8_E5M2 (the upper half of an f16) are defined in
 * https://arxiv.org/abs/2209.05433, the FNUZ types (no infinities, no negative zero) in https://arxiv.org/abs/2206.02915, and F8_E8M0
 * (powers of two) in OCP's Microscaling Formats 1.0.
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
      I64: { dtype: 'i64' },
      U64: { dtype: 'u32', convert: narrowed },
      F64: { dtype: 'f32', convert: floats },
      I16: { dtype: 'i32', convert: (bytes) => Int32Array.from(viewAs(bytes, Int16Array)) },
      U16: { dtype: 'u32', convert: (bytes) => Uint32Array.from(viewAs(bytes, Uint16Array)) },
      I8: { dtype: 'i8' },
      U8: { dtype: 'u8' },
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

/** Why the remaining types of the format cannot be read. @type {Record<string, string>} */
export const UNHELD = {
  C64: 'there are no complex tensors',
  F4: 'the format does not say in which order elements of less than a byte lie',
  F6_E2M3: 'the format does not say in which order elements of less than a byte lie',
  F6_E3M2: 'the format does not say in which order elements of less than a byte lie',
};
