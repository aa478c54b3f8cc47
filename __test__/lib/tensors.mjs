/** Random tensors, half-precision conversions and relative errors for the kernel tests. */

const float = new Float32Array(1);
const word = new Uint32Array(float.buffer);

let seed = 0x2545f491;
/** `n` values, uniform in [-1, 1), another set each call. @param {number} n */
export function random(n) {
  seed = (seed + 0x9e3779b9) >>> 0;
  let s = seed || 1;
  return Float32Array.from({ length: n }, () => {
    s ^= s << 13;
    s ^= s >>> 17;
    s ^= s << 5;
    return (s >>> 0) / 2147483648 - 1;
  });
}

/** f32 to f16 bits, to nearest even. @param {number} x */
function toF16(x) {
  float[0] = x;
  const sign = (word[0] >>> 16) & 0x8000;
  const a = Math.abs(float[0]);
  if (Number.isNaN(a)) return sign | 0x7e00;
  if (a >= 65520) return sign | 0x7c00;
  const e = a < 2 ** -14 ? -14 : Math.floor(Math.log2(a));
  const quotient = a / 2 ** (e - 10);
  const floor = Math.floor(quotient);
  const rest = quotient - floor;
  const mantissa = floor + (rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? 1 : 0);
  return sign | (e === -14 ? mantissa : ((e + 14) << 10) + mantissa);
}
/** @param {number} h */
function fromF16(h) {
  const sign = h & 0x8000 ? -1 : 1;
  const e = (h >> 10) & 31;
  const f = h & 1023;
  if (e === 31) return f ? NaN : sign * Infinity;
  return sign * (e === 0 ? f * 2 ** -24 : (1024 + f) * 2 ** (e - 25));
}
/** @param {number} x */
function toBf16(x) {
  float[0] = x;
  if (x !== x) return 0x7fc0;
  return (word[0] + 0x7fff + ((word[0] >>> 16) & 1)) >>> 16;
}
/** @param {number} h */
function fromBf16(h) {
  word[0] = h << 16;
  return float[0];
}

/** @param {ArrayLike<number>} x @param {string} type 'f16' or 'bf16' */
export const toHalf = (x, type) => Uint16Array.from(x, type === 'f16' ? toF16 : toBf16);
/** @param {ArrayLike<number>} h @param {string} type 'f16' or 'bf16' */
export const fromHalf = (h, type) => Float64Array.from(h, type === 'f16' ? fromF16 : fromBf16);

/**
 * ‖x - y‖ / ‖y‖; NaN when any element is.
 * @param {ArrayLike<number>} x @param {ArrayLike<number>} y @param {number} [floor] added to ‖y‖²
 */
export function relativeError(x, y, floor = 0) {
  let error = 0;
  let norm = floor;
  for (let i = 0; i < y.length; i++) {
    error += (x[i] - y[i]) ** 2;
    norm += y[i] ** 2;
  }
  return Math.sqrt(error / (norm || 1));
}
