// What a device must have for a model: matrix units for the precision, and room in its buffers. Found before anything is allocated.

import { createKernels } from 'helios-vk/kernels';
import { setFloat32MatmulPrecision } from 'helios-vk/nn';
import { parameterShapes, sizeOf } from '../model/parts.mjs';
import { halfOf } from './settings.mjs';

/** The native module, as `require` gives it. @typedef {Omit<typeof import('helios-vk'), 'default'>} Native */
/** @typedef {import('./settings.mjs').Precision} Precision */
/** @typedef {{ deviceName: string, maxStorageBufferRange?: number, maxBufferBytes?: number }} Limits of `initDevice`'s answer */

/** Sets the arithmetic of the f32 products that are computed from now on. @param {Precision} precision */
export const setPrecision = (precision) => setFloat32MatmulPrecision(precision === 'bf16x3' ? 'high' : 'highest');

/**
 * Throws where a device cannot compute matrix products in a precision.
 * @param {Parameters<typeof createKernels>[0]} vk the native module @param {Precision} precision @param {string} deviceName
 * @throws {RangeError} with the code `NO_MATRIX_UNITS`
 */
export function checkMatrixUnits(vk, precision, deviceName) {
  if (createKernels(vk).matmulSupports(precision)) return;
  const message = `precision ${precision}: ${deviceName} has no matrix units for it`;
  throw Object.assign(new RangeError(message), { code: 'NO_MATRIX_UNITS' });
}

/** A binding may begin up to this many bytes before the data. */
const ALIGNMENT = 256;

/** Most bytes of logits at once, where that is not all that a micro-step has. */
const LOGITS_BYTES = 2 ** 30;

/**
 * Throws where a device cannot hold a model: each parameter and each activation must fit one buffer and one binding. Logits are an
 * exception, see `logitsBytes`.
 * @param {import('../config.mjs').ModelConfig} model
 * @param {{ batchSize: number, blockSize: number, precision: Precision }} use
 * @param {Limits} device
 * @throws {RangeError} that names what does not fit
 */
export function checkFits(model, { batchSize, blockSize, precision }, device) {
  const { deviceName, maxStorageBufferRange: bound = Infinity, maxBufferBytes: most = Infinity } = device;
  for (const [name, shape] of Object.entries(parameterShapes(model))) {
    const size = sizeOf(shape);
    if (4 * size > most) throw new RangeError(`${name}: ${4 * size} bytes, and the device's largest buffer has ${most}`);
    if (4 * size > bound) {
      throw new RangeError(`${name} has ${4 * size} bytes, and ${deviceName} binds at most ${bound} of a buffer at once`);
    }
  }
  const { width, heads, kvHeads, headSize, hidden, mlp } = model;
  const tokens = batchSize * blockSize;
  const limit = Math.min(bound, most);
  const wide = halfOf(precision) ? 2 : 4;
  const widest =
    tokens * Math.max(4 * width, 4 * heads, wide * Math.max((heads + 2 * kvHeads) * headSize, (mlp === 'swiglu' ? 2 : 1) * hidden));
  if (widest > limit) {
    throw new RangeError(
      `activations of ${tokens} tokens take a buffer of ${widest} bytes, and ${deviceName} binds at most ${limit} at once: ` +
        (widest / batchSize > limit ? 'a smaller block size needs less' : 'a smaller batch in more micro-steps needs less'),
    );
  }
}

/**
 * How many bytes of logits to compute at once: at most 1 GiB, and no more than fit one buffer and one binding.
 * @param {import('../config.mjs').ModelConfig} model @param {Limits} device
 * @throws {RangeError} where not even two rows fit
 */
export function logitsBytes({ vocabSize }, { deviceName, maxStorageBufferRange: bound = Infinity, maxBufferBytes: most = Infinity }) {
  const limit = Math.min(bound, most, LOGITS_BYTES) - ALIGNMENT;
  // 16-bit products need an even number of rows.
  const rows = 2 * Math.floor(limit / (8 * vocabSize));
  if (rows < 2) {
    throw new RangeError(`the logits of two tokens take ${8 * vocabSize} bytes, and ${deviceName} binds at most ${limit} at once`);
  }
  return rows * 4 * vocabSize;
}
