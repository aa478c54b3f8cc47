/** A worker that reports which files loading an addon maps. */

import { loadAddon, serveWorker } from './addon.mjs';
import { mappedAddons } from './mapped.mjs';

serveWorker((/** @type {{addon: string}} */ { addon }) => {
  loadAddon(addon);
  return mappedAddons();
});
