// The precision setting of products of f32 matrices. Compiled functions track it.

import { ArgumentError, shown } from './errors.mjs';
import { track } from './guards.mjs';
import { NO_ATTRIBUTES } from './keys.mjs';
import { runtime } from './runtime.mjs';

/** @typedef {'highest' | 'high'} MatmulPrecision */

/** @type {MatmulPrecision} */
let current = 'highest';

/** The setting, in the form that `track` takes. */
const setting = {
  /** @returns {MatmulPrecision} */
  get matmul() {
    return track(setting, 'matmul', current);
  },
};

const HIGH = Object.freeze({ precision: 'bf16x3' });

/** The attributes of a product of matrices of an element type. @param {import('./layout.mjs').DType} dtype */
export const productAttributes = (dtype) => (dtype === 'f32' && setting.matmul === 'high' ? HIGH : NO_ATTRIBUTES);

/**
 * Sets how products of f32 matrices are computed from now on, like PyTorch's `set_float32_matmul_precision`. 'highest' (the default) computes
 * in f32. 'high' splits each number into a sum of bf16 numbers and computes three products on the device's matrix units. Products inside
 * attention are f32 in both. Throws an ArgumentError for 'high' if the device has no matrix units for it.
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
