/** Random tensors and relative errors for the kernel tests. */

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
