/** A worker that reports which files loading an addon maps. */

import { loadAddon, serveWorker } from '../../../../benches/lib/addon.mjs';
import { mappedAddons } from './mapped.mjs';

serveWorker((/** @type {{addon: string}} */ { addon }) => {
  loadAddon(addon);
  return mappedAddons();
});
