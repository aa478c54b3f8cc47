/** Finds out which addons a process has loaded, by what it has mapped and not by what it was told to load. */

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** The suffix by which Linux marks a mapped file that was replaced on disk. */
const DELETED = ' (deleted)';

/**
 * The files of native addons in this process, each once.
 * @returns {string[]} paths without symbolic links
 */
export function mappedAddons() {
  const files =
    process.platform === 'linux'
      ? // address, rights, offset, device, inode, and a path where there is one
        readFileSync('/proc/self/maps', 'utf8')
          .split('\n')
          .map((line) => /^(?:\S+\s+){5}(\/.*)$/.exec(line)?.[1] ?? '')
      : /** @type {{sharedObjects: string[]}} */ (/** @type {unknown} */ (process.report.getReport())).sharedObjects;
  return [...new Set(files.filter((file) => file.endsWith('.node') || file.endsWith(`.node${DELETED}`)))].sort();
}

/** @param {string} file */
export const digest = (file) => createHash('sha256').update(readFileSync(file)).digest('hex');

/**
 * The files that belong to an addon of the trainer's contract, by name.
 * @param {string[]} files
 */
const heliosAddons = (files) => files.filter((file) => /(^|[\\/])helios[-_]vk[^\\/]*$/.test(file));

/**
 * Why a process's mapped files are not the expected ones, or null.
 * @param {string[]} mapped by {@link mappedAddons} there
 * @param {string[]} expected the same of a process that loaded the addon alone
 * @returns {string | null}
 */
export function wrongAddon(mapped, expected) {
  const missing = expected.filter((file) => !mapped.includes(file));
  const others = heliosAddons(mapped).filter((file) => !expected.includes(file));
  if (missing.length === 0 && others.length === 0) return null;
  const list = (/** @type {string[]} */ files) => (files.length > 0 ? files.join(', ') : 'no addon');
  return `it has loaded ${list(mapped)}, not ${list(expected)}${missing.length > 0 ? '' : ' alone'}`;
}
