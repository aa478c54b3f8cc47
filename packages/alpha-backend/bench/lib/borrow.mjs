// Replaces the addon of a trainer checkout while a bench runs, and restores it when the bench ends or is interrupted. After a kill,
// the next `borrow`, `helios-vk link` or `helios-vk unlink` restores it (bin/lib/recover.mjs).

import { copyFileSync, lstatSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, extname } from 'node:path';

import { ASIDE, MARK, recover, restore } from '../../../../bin/lib/recover.mjs';

/** Signals that end the bench, and their numbers. */
const SIGNALS = /** @type {const} */ ([
  ['SIGHUP', 1],
  ['SIGINT', 2],
  ['SIGTERM', 15],
]);

/**
 * @typedef {object} Borrowed
 * @property {(source: string) => void} put replaces the addon by this file, in one step
 * @property {() => void} restore restores the addon; further calls do nothing
 */

/**
 * Moves the addon at `path` aside, until `restore` or the end of this process. A signal ends the process by `process.exit`, so that
 * everything that waits for the exit is cleaned up as well.
 * @param {string} path where the trainer looks for its addon; there need not be a file
 * @returns {Borrowed}
 * @throws {Error} if another process has borrowed it
 */
export function borrow(path) {
  recover(path);
  const mark = {
    pid: process.pid,
    had: lstatSync(path, { throwIfNoEntry: false }) !== undefined,
    made: mkdirSync(dirname(path), { recursive: true }) ?? null,
  };
  writeFileSync(path + MARK, JSON.stringify(mark), { flag: 'wx' });
  const listeners = SIGNALS.map(([signal, number]) => /** @type {const} */ ([signal, () => process.exit(128 + number)]));
  let borrowed = true;
  const giveBack = () => {
    if (!borrowed) return;
    borrowed = false;
    process.off('exit', giveBack);
    for (const [signal, listener] of listeners) process.off(signal, listener);
    restore(path, mark);
  };
  process.on('exit', giveBack);
  for (const [signal, listener] of listeners) process.once(signal, listener);
  if (mark.had) renameSync(path, path + ASIDE);
  const put = (/** @type {string} */ source) => {
    const trial = `${path}.new`;
    rmSync(trial, { force: true });
    try {
      symlinkSync(source, trial, 'file');
    } catch (error) {
      // Windows requires a privilege for symbolic links. A module in JavaScript cannot be copied: it needs the files around it.
      if (extname(source) !== '.node') throw error;
      copyFileSync(source, trial);
    }
    renameSync(trial, path);
  };
  return { put, restore: giveBack };
}
