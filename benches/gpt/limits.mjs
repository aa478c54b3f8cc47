/** What a device binds at once, before anything is allocated: an error that names what does not fit, and the rows of logits that do. */

import { halfOf, parameterTable } from './config.mjs';

/** A binding may begin so many bytes before what it is for. */
const ALIGNMENT = 256;

/**
 * Throws where a device cannot hold a model: a parameter and any other tensor is within one buffer and one binding. Logits may be
 * larger: they are computed in blocks of rows.
 * @param {import('./config.mjs').GptConfig} config
 * @param {{ deviceName: string, maxStorageBufferRange?: number, maxBufferBytes?: number }} device what `initDevice` said
 * @returns {number} rows of logits to compute at once, all of a micro-step where they fit
 * @throws {RangeError} that names what does not fit
 */
export function logitRows(config, { deviceName, maxStorageBufferRange: bound = Infinity, maxBufferBytes: most = Infinity }) {
  for (const { name, size } of parameterTable(config).parameters) {
    if (4 * size > most) throw new RangeError(`${name}: ${4 * size} bytes, and the device's largest buffer has ${most}`);
    if (4 * size > bound) {
      throw new RangeError(`${name} has ${4 * size} bytes, and ${deviceName} binds at most ${bound} of a buffer at once`);
    }
  }
  const { batch, block, width, heads, hidden, vocab } = config;
  const tokens = batch * block;
  const limit = Math.min(bound, most);
  const wide = halfOf(config) ? 2 : 4;
  const widest = tokens * Math.max(4 * width, 4 * heads, wide * Math.max(3 * width, 2 * hidden));
  if (widest > limit) {
    throw new RangeError(
      `activations of ${tokens} tokens take a buffer of ${widest} bytes, and ${deviceName} binds at most ${limit} at once: ` +
        'a smaller batch in more micro-steps needs less',
    );
  }
  if (4 * tokens * vocab <= limit) return tokens;
  // Products in 16 bits take an even number of rows.
  const rows = 2 * Math.floor((limit - ALIGNMENT) / (8 * vocab));
  if (rows < 2) throw new RangeError(`the logits of two tokens have ${8 * vocab} bytes, and ${deviceName} binds at most ${limit} at once`);
  return rows;
}
