// Converts numbers to 16-bit floating point and back, on the host.

const f32 = new Float32Array(1);
const u32 = new Uint32Array(f32.buffer);

/** The bits of a number as bf16, rounded to nearest even; 0x7fc0 for NaN. @param {number} value @returns {number} */
export function bf16Bits(value) {
  f32[0] = value;
  if (Number.isNaN(value)) return 0x7fc0;
  // Rounding to f32 first may end half-way between two bf16 numbers. This restores on which side of the middle the number lies.
  if ((u32[0] & 0xffff) === 0x8000 && f32[0] !== value) u32[0] += Math.abs(value) > Math.abs(f32[0]) ? 1 : -1;
  return (u32[0] + 0x7fff + ((u32[0] >>> 16) & 1)) >>> 16;
}

/** The bits of a number as f16, rounded to nearest even; 0x7e00 for NaN, an infinity from ±65520 on. @param {number} value @returns {number} */
export function f16Bits(value) {
  f32[0] = value;
  if (f32[0] === value) return f16BitsOfF32(u32[0], value);
  // Rounding to f32 first may end half-way between two f16 numbers, so this rounds once.
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (Number.isNaN(size)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  const exponent = size < 2 ** -14 ? -14 : Math.floor(Math.log2(size));
  const scaled = size * 2 ** (10 - exponent);
  let whole = Math.floor(scaled);
  if (scaled - whole > 0.5 || (scaled - whole === 0.5 && whole % 2 === 1)) whole++;
  // A carry out of the mantissa adds to the exponent, which is right.
  return sign | (exponent === -14 ? whole : ((exponent + 14) << 10) + whole);
}

/** @param {number} bits of an f32 that is not NaN @param {number} value the same number */
function f16BitsOfF32(bits, value) {
  const sign = (bits >>> 16) & 0x8000;
  const size = bits & 0x7fffffff;
  if (size >= 0x477ff000) return sign | 0x7c00;
  // Adding 2^52 rounds a number of 2^-24ths to an integer: below 2^-14 that is the mantissa.
  if (size < 0x38800000) return sign | (Math.abs(value) * 2 ** 24 + 2 ** 52 - 2 ** 52);
  return sign | ((size - 0x38000000 + 0xfff + ((size >>> 13) & 1)) >>> 13);
}

/** The number that bf16 bits represent. @param {number} bits @returns {number} */
export function bf16Value(bits) {
  u32[0] = bits << 16;
  return f32[0];
}

/** The numbers of all f16 bits, made at first use. @type {Float32Array | undefined} */
let f16Values;

/** The number that f16 bits represent. @param {number} bits @returns {number} */
export function f16Value(bits) {
  f16Values ??= Float32Array.from({ length: 2 ** 16 }, (_, each) => f16ValueOf(each));
  return f16Values[bits & 0xffff];
}

/** @param {number} bits */
function f16ValueOf(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const size =
    exponent === 31 ? (fraction ? Number.NaN : Infinity) : exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
  return bits & 0x8000 ? -size : size;
}
