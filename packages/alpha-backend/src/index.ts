// The trainer's `Backend` over the kernels of helios-vk: what a program imports.

import { createRequire } from 'node:module';

import { HeliosVkBackend, type BackendOptions, checkOptions } from './backend.js';
import type { Native } from './memory.js';

export { HeliosVkBackend, type BackendOptions } from './backend.js';
export { DeviceTensor } from './tensor.js';
export { BackendError, type Dtype, type Precision, type Shape, type TensorArray, type TensorData } from './types.js';

/**
 * Opens the device and makes a backend on it.
 * @throws what `initDevice` throws, and a `BackendError` if an option is unknown or does not fit, or the device lacks the precision
 */
export function createBackend(options: BackendOptions = {}): HeliosVkBackend {
  checkOptions(options);
  const vk = options.vk ?? (createRequire(import.meta.url)('helios-vk') as Native);
  return new HeliosVkBackend(vk, options);
}
