// Lock files. One process at a time holds a lock. This file needs nothing but Node.

import { randomBytes } from 'node:crypto';
import { closeSync, openSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { notWritten } from './files.mjs';

/** The process that holds a lock. @typedef {{pid: number, host: string, begin?: string, since: string}} Owner */

/**
 * Decides whether a lock that another process holds was abandoned and may be removed; if not, `takeLock` tries again. It is called where the
 * owner is not known to have ended, with undefined if the lock names no owner. It may wait, or throw to give up.
 * @typedef {(owner: Owner | undefined, identity: string) => boolean} IsLeft
 */

/** Milliseconds between two attempts. */
const LOOK_MS = 20;

/** Milliseconds after which a lock that guards the removal of another one counts as abandoned. */
const REMOVAL_MS = 10_000;

/**
 * When a process began, which distinguishes it from a later process with the same id; undefined where the system does not say.
 * @param {number | 'self'} pid
 */
function beginOf(pid) {
  try {
    // The name, in parentheses, may contain anything. The start time is field 22, the 20th after the name.
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ')[19];
  } catch {
    return undefined;
  }
}

/** The owner that a lock names, or undefined. @param {string} path @returns {Owner | undefined} */
export function ownerIn(path) {
  try {
    const owner = JSON.parse(readFileSync(path, 'utf8'));
    return Number.isSafeInteger(owner.pid) && typeof owner.host === 'string' ? owner : undefined;
  } catch {
    return undefined;
  }
}

/** Whether the process is known to have ended. Nothing is known of a process on another host. @param {Owner} owner */
function hasEnded({ pid, host, begin }) {
  if (host !== hostname()) return false;
  try {
    process.kill(pid, 0);
  } catch (error) {
    return /** @type {NodeJS.ErrnoException} */ (error).code === 'ESRCH';
  }
  return begin !== undefined && beginOf(pid) !== begin;
}

/** What distinguishes a file from a later one of the same name; undefined where there is no file. @param {string} path */
function identity(path) {
  const file = statSync(path, { bigint: true, throwIfNoEntry: false });
  return file && `${file.ino} ${file.mtimeNs}`;
}

/** Waits for a lock, and counts it as abandoned if it does not change for so long. @param {number} ms @returns {IsLeft} */
export function waiting(ms) {
  let found = '';
  let end = 0;
  return (_, there) => {
    if (there !== found) {
      found = there;
      end = Date.now() + ms;
    }
    if (Date.now() >= end) return true;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOOK_MS);
    return false;
  };
}

/**
 * Takes a lock. A lock whose owner has ended is removed. The removal has a lock of its own: otherwise, of two processes that find an abandoned
 * lock, the second could remove the one that the first has just made.
 * @param {string} path in a folder that exists
 * @param {IsLeft} isLeft called about a lock whose owner may still run
 * @throws what `isLeft` throws, or the system's error
 */
export function takeLock(path, isLeft) {
  const own = { pid: process.pid, host: hostname(), begin: beginOf('self'), since: new Date().toISOString() };
  const text = `${JSON.stringify({ ...own, id: randomBytes(8).toString('hex') })}\n`;
  while (!create(path, text)) {
    const there = identity(path);
    if (there === undefined) continue;
    const owner = ownerIn(path);
    if (!(owner && hasEnded(owner)) && !isLeft(owner, there)) continue;
    const removal = takeLock(`${path}.lock`, waiting(REMOVAL_MS));
    try {
      if (identity(path) === there) rmSync(path, { force: true });
    } finally {
      removal.release();
    }
  }
  /** Whether the caller still holds the lock: somebody may have removed it by hand. */
  const isOwn = () => {
    try {
      return readFileSync(path, 'utf8') === text;
    } catch {
      return false;
    }
  };
  const release = () => {
    if (isOwn()) rmSync(path, { force: true });
  };
  return { isOwn, release };
}

/** Creates a file if there is none, all or nothing. @param {string} path @param {string} text @returns {boolean} whether it did */
function create(path, text) {
  let file;
  try {
    file = openSync(path, 'wx');
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code === 'EEXIST') return false;
    throw error;
  }
  try {
    writeFileSync(file, text);
    return true;
  } catch (error) {
    rmSync(path, { force: true });
    throw notWritten(path, error);
  } finally {
    closeSync(file);
  }
}
