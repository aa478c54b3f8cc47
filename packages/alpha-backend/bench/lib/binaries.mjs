/** Checks that a process measured the intended addon, by the files that the process had mapped. */

import { UsageError } from '../../../../bin/lib/options.mjs';
import { runWorker } from '../../../../benches/lib/addon.mjs';
import { digest, wrongAddon } from './mapped.mjs';

/**
 * @typedef {object} Binary a file that loading an addon maps
 * @property {string} path
 * @property {string} sha256
 */

/**
 * The files that loading an addon maps, found out in a process of its own.
 * @param {string} addon
 * @returns {Promise<Binary[]>}
 * @throws {UsageError} if it loads no native addon
 */
export async function binariesOf(addon) {
  const url = new URL('./mapped-worker.mjs', import.meta.url).href;
  const files = /** @type {string[]} */ (await runWorker(url, { addon }));
  if (files.length === 0) throw new UsageError(`${addon} loads no native addon`);
  return files.map((path) => ({ path, sha256: digest(path) }));
}

/**
 * Throws if a run measured another addon, or one that was rebuilt in the meantime.
 * @param {string} name of the addon, for the message
 * @param {string[]} mapped files of the addons that the run's process had loaded
 * @param {Binary[]} binaries what it was to load
 */
export function checkMapped(name, mapped, binaries) {
  const wrong = wrongAddon(
    mapped,
    binaries.map(({ path }) => path),
  );
  if (wrong !== null) throw new Error(`a process was to measure ${name}, but ${wrong}`);
  for (const { path, sha256 } of binaries) if (digest(path) !== sha256) throw new Error(`${path} has changed while the bench ran`);
}

/** @param {Binary[]} a @param {Binary[]} b */
export const sameBinaries = (a, b) => a.length === b.length && a.every(({ sha256 }, i) => sha256 === b[i].sha256);
