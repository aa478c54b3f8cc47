// Lock files, each held by one process at a time. Needs nothing but Node.

import { randomBytes } from 'node:crypto';
import { closeSync, openSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { notWritten } from './files.mjs';

/** Whose a lock is. @typedef {{pid: number, host: string, begin?: string, since: string}} Owner */

/**
 * Asked about a lock that is in the way and whose owner is not known to have ended; undefined for an owner where the lock does not say who.
 * Whether the lock was left behind and may be removed; the lock is tried again where it was not. It may wait, or throw.
 * @typedef {(owner: Owner | undefined, identity: string) => boolean} IsLeft
 */

/** Milliseconds between looks at a lock. */
const LOOK_MS = 20;

/** Milliseconds for which the lock of a removal may stay, which takes one itself. */
const REMOVAL_MS = 10_000;

/**
 * When a process began, which tells it from a later one of the same number. Only where the system says so.
 * @param {number | 'self'} pid
 */
function beginOf(pid) {
  try {
    // The name, in parentheses, may hold anything; the 22nd field is the 20th behind it.
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ')[19];
  } catch {
    return undefined;
  }
}

/** The owner that a lock names, if there is one. @param {string} path @returns {Owner | undefined} */
export function ownerIn(path) {
  try {
    const owner = JSON.parse(readFileSync(path, 'utf8'));
    return Number.isSafeInteger(owner.pid) && typeof owner.host === 'string' ? owner : undefined;
  } catch {
    return undefined;
  }
}

/** Whether the process is known to have ended. Of another host's nothing is known. @param {Owner} owner */
function hasEnded({ pid, host, begin }) {
  if (host !== hostname()) return false;
  try {
    process.kill(pid, 0);
  } catch (error) {
    return /** @type {NodeJS.ErrnoException} */ (error).code === 'ESRCH';
  }
  return begin !== undefined && beginOf(pid) !== begin;
}

/** What tells a file from the next one of its name, undefined where there is none. @param {string} path */
function identity(path) {
  const file = statSync(path, { bigint: true, throwIfNoEntry: false });
  return file && `${file.ino} ${file.mtimeNs}`;
}

/** Waits for a lock, which was left behind if it stays for so long. @param {number} ms @returns {IsLeft} */
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
 * Takes a lock. One whose owner has ended is removed: under a lock of its own, since two that find the same one there would remove it and
 * what the first of them has put in its place.
 * @param {string} path in a folder that exists
 * @param {IsLeft} isLeft
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
  /** Whether the lock is still the caller's: somebody may have removed it by hand. */
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

/** Makes a file that is not there, whole or not at all. @param {string} path @param {string} text @returns {boolean} whether it did */
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
