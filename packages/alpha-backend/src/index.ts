// The existing trainer's `Backend` over the kernels of helios-vk.

import { createRequire } from 'node:module';

import { HeliosVkBackend, type BackendOptions, checkOptions } from './backend.js';
import type { Native } from './memory.js';

export { HeliosVkBackend, type BackendOptions } from './backend.js';
export { DeviceTensor } from './tensor.js';
export { BackendError, type Dtype, type Precision, type Shape, type TensorArray, type TensorData } from './types.js';

/**
 * A backend on the device that `helios-vk` opens.
 * @throws what `initDevice` throws, and a `BackendError` for an option that is unknown or does not fit, or a precision that the device does not have
 */
export function createBackend(options: BackendOptions = {}): HeliosVkBackend {
  checkOptions(options);
  const vk = options.vk ?? (createRequire(import.meta.url)('helios-vk') as Native);
  return new HeliosVkBackend(vk, options);
}
