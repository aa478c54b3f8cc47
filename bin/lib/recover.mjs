// Restores the addon of a trainer checkout that a bench replaced and was killed before it put it back. The bench replaces it by
// packages/alpha-backend/bench/lib/borrow.mjs; this half lies here because `helios-vk link` needs it and is installed without that one.

import { existsSync, readFileSync, renameSync, rmSync, rmdirSync } from 'node:fs';
import { dirname } from 'node:path';

/** Suffix of the file that says which process replaced the addon and what to restore. It is written before anything is moved. */
export const MARK = '.borrowed.json';
/** Suffix of the file that was replaced. */
export const ASIDE = '.before-borrowing';

/**
 * @typedef {object} Mark
 * @property {number} pid of the process that replaced the addon
 * @property {boolean} had whether there was a file
 * @property {string | null} made the topmost folder that was created for it
 */

/** @param {number} pid */
function isRunning(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return /** @type {NodeJS.ErrnoException} */ (error).code !== 'ESRCH';
  }
}

/**
 * Undoes what a mark records.
 * @param {string} path where the trainer looks for its addon
 * @param {Mark} mark
 */
export function restore(path, { had, made }) {
  // Without a file moved aside, the move had not happened yet, or was undone already.
  if (!had) rmSync(path, { force: true });
  else if (existsSync(path + ASIDE)) renameSync(path + ASIDE, path);
  rmSync(path + MARK, { force: true });
  try {
    for (let folder = dirname(path); made !== null && folder.startsWith(made); folder = dirname(folder)) rmdirSync(folder);
  } catch {
    // The folder has got other files since.
  }
}

/**
 * Restores what a process that has ended replaced; nothing if nothing is replaced.
 * @param {string} path where the trainer looks for its addon
 * @throws {Error} if the process still runs
 */
export function recover(path) {
  if (!existsSync(path + MARK)) return;
  /** @type {Mark} */ let mark;
  try {
    mark = JSON.parse(readFileSync(path + MARK, 'utf8'));
  } catch {
    // The process ended while it wrote the mark, so it had moved nothing.
    mark = { pid: 0, had: true, made: null };
  }
  if (mark.pid !== 0 && isRunning(mark.pid)) {
    throw new Error(`${path} is in use: process ${mark.pid} measures with it (if it does not, remove ${path + MARK})`);
  }
  restore(path, mark);
}
