/** Whether a model fits a device's limits, found before anything is allocated. */

import { halfOf } from './config.mjs';
import { parameterShapes, sizeOf } from './state.mjs';

/** @typedef {import('./config.mjs').ModelConfig} ModelConfig */
/** @typedef {{ deviceName: string, maxStorageBufferRange?: number, maxBufferBytes?: number }} Limits of `initDevice`'s answer */

/** A binding may begin up to this many bytes before the data. */
const ALIGNMENT = 256;

/**
 * Throws where a device cannot hold a model: each parameter and each activation must fit one buffer and one binding. Logits are an
 * exception, see `logitRows`.
 * @param {ModelConfig} model
 * @param {Pick<import('./config.mjs').TrainingConfig, 'batch' | 'precision'>} use
 * @param {Limits} device
 * @throws {RangeError} that names what does not fit
 */
export function checkFits(model, { batch, precision }, device) {
  const { deviceName, maxStorageBufferRange: bound = Infinity, maxBufferBytes: most = Infinity } = device;
  for (const [name, shape] of Object.entries(parameterShapes(model))) {
    const size = sizeOf(shape);
    if (4 * size > most) throw new RangeError(`${name}: ${4 * size} bytes, and the device's largest buffer has ${most}`);
    if (4 * size > bound) {
      throw new RangeError(`${name} has ${4 * size} bytes, and ${deviceName} binds at most ${bound} of a buffer at once`);
    }
  }
  const { block, width, heads, hidden } = model;
  const tokens = batch * block;
  const limit = Math.min(bound, most);
  const wide = halfOf(precision) ? 2 : 4;
  const widest = tokens * Math.max(4 * width, 4 * heads, wide * Math.max(3 * width, 2 * hidden));
  if (widest > limit) {
    throw new RangeError(
      `activations of ${tokens} tokens take a buffer of ${widest} bytes, and ${deviceName} binds at most ${limit} at once: ` +
        'a smaller batch in more micro-steps needs less',
    );
  }
}

/**
 * How many rows of logits to compute at once: all of a micro-step where they fit one buffer and one binding, else the most that do.
 * @param {ModelConfig} model @param {number} batch sequences of a micro-step
 * @param {Limits} device
 * @throws {RangeError} where not even two rows fit
 */
export function logitRows(
  { block, vocab },
  batch,
  { deviceName, maxStorageBufferRange: bound = Infinity, maxBufferBytes: most = Infinity },
) {
  const limit = Math.min(bound, most);
  if (4 * batch * block * vocab <= limit) return batch * block;
  // 16-bit products need an even number of rows.
  const rows = 2 * Math.floor((limit - ALIGNMENT) / (8 * vocab));
  if (rows < 2) throw new RangeError(`the logits of two tokens take ${8 * vocab} bytes, and ${deviceName} binds at most ${limit} at once`);
  return rows;
}
