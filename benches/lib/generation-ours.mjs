/** The worker of benches/generate.mjs that measures helios-lm. */

import { Engine } from '../../packages/lm/src/infer/engine.mjs';
import { DEFAULT_SAMPLING } from '../../packages/lm/src/infer/types.mjs';
import { OWN_ADDON, driverText, isWorker, loadAddon, serveWorker } from './addon.mjs';
import { measure } from './generation.mjs';

/** @typedef {import('./generation.mjs').Job} Job */

/** @param {Job} job @param {number} context @returns {Promise<import('./generation.mjs').Side>} */
export async function openOurs({ path, dtype, slots, temperature }, context) {
  const engine = await Engine.open(path, { dtype: /** @type {'f16'} */ (dtype), context, slots });
  const sampling = { ...DEFAULT_SAMPLING, temperature };
  return {
    generate: (ids, maxTokens) => engine.submit({ ids, sampling, maxTokens, stopIds: [] }),
    embed: (ids) => engine.embed(ids, 'mean'),
    memory() {
      const { bufferBytes, blockBytes } = loadAddon(OWN_ADDON).memoryStats().peak;
      return { buffers: bufferBytes, blocks: blockBytes };
    },
    close: () => engine.dispose(),
  };
}

if (isWorker) {
  serveWorker(async (/** @type {Job} */ job) => {
    const info = loadAddon(OWN_ADDON).initDevice();
    return { ...(await measure(job, openOurs)), device: info.deviceName, driver: driverText(info) };
  });
}
