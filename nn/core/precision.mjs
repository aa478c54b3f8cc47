// The setting of how products of f32 matrices are computed, which compiled functions track.

import { ArgumentError, shown } from './errors.mjs';
import { track } from './guards.mjs';
import { NO_ATTRIBUTES } from './keys.mjs';
import { runtime } from './runtime.mjs';

/** @typedef {'highest' | 'high'} MatmulPrecision */

/** @type {MatmulPrecision} */
let current = 'highest';

/** The setting as compiled functions remember it. */
const setting = {
  /** @returns {MatmulPrecision} */
  get matmul() {
    return track(setting, 'matmul', current);
  },
};

const HIGH = Object.freeze({ precision: 'bf16x3' });

/** Attributes of a product of matrices of a type. @param {import('./layout.mjs').DType} dtype */
export const productAttributes = (dtype) => (dtype === 'f32' && setting.matmul === 'high' ? HIGH : NO_ATTRIBUTES);

/**
 * Sets how products of f32 matrices are computed from now on, like PyTorch's `set_float32_matmul_precision`: 'highest' in f32, 'high'
 * with each number as a sum of bf16 numbers, in three products on the device's matrix units. Attention's own products are f32 in both.
 * @param {MatmulPrecision} precision
 */
export function setFloat32MatmulPrecision(precision) {
  const name = 'setFloat32MatmulPrecision';
  if (precision !== 'highest' && precision !== 'high')
    throw new ArgumentError(name, `expected 'highest' or 'high', got ${shown(precision)}`);
  const { kernels, info } = runtime();
  if (precision === 'high' && !kernels.matmulSupports('bf16x3')) {
    throw new ArgumentError(name, `${info.deviceName} has no matrix units for 'high'`);
  }
  current = precision;
}
