/**
 * f16 and bf16: bits to values, and values to the nearest bits, ties to even. Implemented in another way than
 * kernels/half.mjs, which is tested against these.
 */

const f32 = new Float32Array(1);
const u32 = new Uint32Array(f32.buffer);

/** The value of f16 bits. @param {number} bits */
export function fromF16(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}

/** The value of bf16 bits. @param {number} bits */
export function fromBf16(bits) {
  u32[0] = bits << 16;
  return f32[0];
}

/** Every finite f16 that is not negative, ascending: the index is its bits. */
const FINITE = Float64Array.from({ length: 0x7c00 }, (_, bits) => fromF16(bits));

/** f16 bits of a number, by search: the neighbour that is nearest. @param {number} value */
export function toF16(value) {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (Number.isNaN(value)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  let low = 0;
  let high = 0x7bff;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (FINITE[middle] <= size) low = middle;
    else high = middle - 1;
  }
  if (low === 0x7bff) return sign | low;
  const below = size - FINITE[low];
  const above = FINITE[low + 1] - size;
  return sign | (below < above || (below === above && low % 2 === 0) ? low : low + 1);
}

/** bf16 bits of a number. @param {number} value */
export function toBf16(value) {
  if (Number.isNaN(value)) return 0x7fc0;
  f32[0] = value;
  const bits = u32[0];
  const rest = bits & 0xffff;
  const up = rest > 0x8000 || (rest === 0x8000 && (bits >>> 16) % 2 === 1) ? 1 : 0;
  return (bits >>> 16) + up;
}

/** @param {ArrayLike<number>} values @param {string} type 'f16' or 'bf16' */
export const toHalf = (values, type) => Uint16Array.from(values, type === 'f16' ? toF16 : toBf16);
/** @param {ArrayLike<number>} bits @param {string} type 'f16' or 'bf16' */
export const fromHalf = (bits, type) => Float64Array.from(bits, type === 'f16' ? fromF16 : fromBf16);
