/** A worker that reports the device that an addon finds, and whether its pipelines take options. */

import { takesPipelineOptions } from '../../packages/alpha-backend/bench/lib/plain-addon.mjs';
import { loadAddon, serveWorker } from './addon.mjs';

serveWorker((/** @type {{addon: string}} */ { addon }) => {
  const vk = loadAddon(addon);
  const info = vk.initDevice();
  vk.destroy();
  return { info, pipelineOptions: takesPipelineOptions(vk) };
});
