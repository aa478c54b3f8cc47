/** What training and generating both do with the device: set its arithmetic, and fill its tensors. */

import { createKernels } from 'helios-vk/kernels';
import { noGrad, scope, setFloat32MatmulPrecision, tensor } from 'helios-vk/nn';

/** @typedef {import('./config.mjs').Precision} Precision */
/** @typedef {import('helios-vk/nn').Tensor} Tensor */

/**
 * Copies values of the host into tensors of the device, one at a time: the device may not have room for all of them twice.
 * @param {Record<string, Tensor>} tensors such as `model.stateDict()`
 * @param {import('./state.mjs').HostState} [values] by the same names; zeros when left out
 */
export function copyFromHost(tensors, values) {
  noGrad(() => {
    for (const [name, to] of Object.entries(tensors)) {
      if (values === undefined) to.fill_(0);
      else scope(() => void to.copy_(tensor(values[name], { shape: to.shape })));
    }
  });
}

/** Sets the arithmetic of the f32 products that are computed from now on. @param {Precision} precision */
export const setPrecision = (precision) => setFloat32MatmulPrecision(precision === 'bf16x3' ? 'high' : 'highest');

/**
 * Throws where a device cannot compute matrix products in a precision.
 * @param {any} vk the native module @param {Precision} precision @param {string} deviceName
 * @throws {RangeError} with the code `NO_MATRIX_UNITS`
 */
export function checkMatrixUnits(vk, precision, deviceName) {
  if (createKernels(vk).matmulSupports(precision)) return;
  const message = `precision ${precision}: ${deviceName} has no matrix units for it`;
  throw Object.assign(new RangeError(message), { code: 'NO_MATRIX_UNITS' });
}
