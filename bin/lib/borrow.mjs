// Replaces a trainer's addon for the time of a measurement, and restores it afterwards, even if the process that
// replaced it has died.

import {
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  rmdirSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, extname } from 'node:path';

/** Suffix of the file that says which process has replaced the addon, and what to restore. Written before anything is moved. */
const MARK = '.borrowed.json';
const ASIDE = '.before-borrowing';

/**
 * @typedef {object} Mark
 * @property {number} pid
 * @property {boolean} had whether something lay there
 * @property {string | null} made the topmost folder that was created for it
 *
 * @typedef {object} Borrowed
 * @property {string} path
 * @property {(source: string) => void} put makes the place lead to this file, in one step
 * @property {() => void} restore restores it; further calls do nothing
 */

/** @param {number} pid */
function lives(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return /** @type {any} */ (error).code !== 'ESRCH';
  }
}

/** @param {string} path @param {Mark} mark */
function giveBack(path, { had, made }) {
  // Without a file moved aside, the move had not happened yet, or was undone already.
  if (!had) rmSync(path, { force: true });
  else if (existsSync(path + ASIDE)) renameSync(path + ASIDE, path);
  rmSync(path + MARK, { force: true });
  try {
    for (let folder = dirname(path); made !== null && folder.startsWith(made); folder = dirname(folder)) rmdirSync(folder);
  } catch {
    // something else lies there by now
  }
}

/**
 * Restores what a process that has ended replaced.
 * @param {string} path the place
 * @throws {Error} if the process still runs
 */
export function recover(path) {
  if (!existsSync(path + MARK)) return;
  /** @type {Mark} */ let mark;
  try {
    mark = JSON.parse(readFileSync(path + MARK, 'utf8'));
  } catch {
    // It ended while it wrote the mark: nothing was moved.
    mark = { pid: 0, had: true, made: null };
  }
  if (mark.pid !== 0 && lives(mark.pid)) {
    throw new Error(`${path} is in use: process ${mark.pid} measures with it (if it does not, remove ${path + MARK})`);
  }
  giveBack(path, mark);
}

/**
 * Replaces the file at a path, which is moved aside.
 * @param {string} path
 * @returns {Borrowed}
 * @throws {Error} if another process has it
 */
export function borrow(path) {
  recover(path);
  const mark = {
    pid: process.pid,
    had: lstatSync(path, { throwIfNoEntry: false }) !== undefined,
    made: mkdirSync(dirname(path), { recursive: true }) ?? null,
  };
  writeFileSync(path + MARK, JSON.stringify(mark), { flag: 'wx' });
  let taken = true;
  const restore = () => {
    if (!taken) return;
    taken = false;
    process.off('exit', restore);
    giveBack(path, mark);
  };
  process.on('exit', restore);
  if (mark.had) renameSync(path, path + ASIDE);
  const put = (/** @type {string} */ source) => {
    const trial = `${path}.new`;
    rmSync(trial, { force: true });
    try {
      symlinkSync(source, trial, 'file');
    } catch (error) {
      // Windows wants a right for it. A module in JavaScript needs the files around it.
      if (extname(source) !== '.node') throw error;
      copyFileSync(source, trial);
    }
    renameSync(trial, path);
  };
  return { path, put, restore };
}
