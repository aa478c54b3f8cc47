// Plans measured on an NVIDIA H200 (driver 580) with `node benches/kernels-matmul.mjs --sweep`.

/**
 * The measured plan for a product, if there is one.
 * @param {any} _problem
 * @returns {any}
 */
export function h200Plan(_problem) {
  return undefined;
}
