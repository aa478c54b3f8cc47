/** The built backend. */

import { existsSync, realpathSync } from 'node:fs';
import { fileURLToPath, pathToFileURL } from 'node:url';

import { UsageError } from '../../../../bin/lib/options.mjs';

/**
 * URL of a module of the built backend.
 * @param {'' | '/register'} [module]
 * @throws {UsageError} if it is not built
 */
export function backendUrl(module = '') {
  const file = fileURLToPath(import.meta.resolve(`@helios-vk/alpha-backend${module}`));
  if (!existsSync(file)) throw new UsageError(`${file} does not exist: build the backend first (npm run build in packages/alpha-backend)`);
  // The module as the trainer would load it, not by the link of the workspace: Node takes two URLs for two modules.
  return pathToFileURL(realpathSync(file)).href;
}
