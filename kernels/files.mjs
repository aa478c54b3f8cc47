// Replaces a file whole or not at all: the one way to write what must not be lost. Needs nothing but Node.

import { randomBytes } from 'node:crypto';
import { closeSync, fsyncSync, openSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { open, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/** Ends the name of what is being written. */
export const PARTIAL = '.partial';

/** A name beside `path` that no other call has, in another thread or on another host either. @param {string} path */
const partialOf = (path) => `${path}.${randomBytes(8).toString('hex')}${PARTIAL}`;

/** A rename would put the file in the place of a pipe or a device. @param {import('node:fs').Stats | undefined} there */
function assertFile(there) {
  if (!there || there.isFile()) return;
  throw Object.assign(new Error('it is not a file'), { code: 'ERR_HELIOS_INVALID_ARGUMENT', syscall: 'rename' });
}

/**
 * Writes a file, all or nothing: under a name of its own, synced, then renamed, and the folder synced. A failure leaves what was there
 * before, and nothing else. What is there and is not a file stays, which is an error.
 * @template T
 * @param {string} path
 * @param {(file: import('node:fs/promises').FileHandle) => Promise<T>} write
 * @returns {Promise<T>}
 * @throws the system's error, which `notWritten` makes one that names the path
 */
export async function replaceFile(path, write) {
  assertFile(await stat(path).catch(() => undefined));
  const partial = partialOf(path);
  const file = await open(partial, 'wx');
  try {
    const result = await write(file);
    await file.sync();
    await file.close();
    await rename(partial, path);
    await syncFolder(dirname(path));
    return result;
  } catch (error) {
    await file.close().catch(() => {});
    await rm(partial, { force: true }).catch(() => {});
    throw error;
  }
}

/**
 * Writes a file, all or nothing, as `replaceFile` does.
 * @param {string} path @param {string} text
 * @param {{ tryOnly?: boolean }} [options] tryOnly: whether all is done but the rename, to find out whether the file can be written
 * @throws the system's error, which `notWritten` makes one that names the path
 */
export function replaceFileSync(path, text, { tryOnly = false } = {}) {
  assertFile(statSync(path, { throwIfNoEntry: false }));
  const partial = partialOf(path);
  const file = openSync(partial, 'wx');
  try {
    try {
      writeFileSync(file, text);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    if (tryOnly) return rmSync(partial);
    renameSync(partial, path);
    syncFolderSync(dirname(path));
  } catch (error) {
    try {
      rmSync(partial, { force: true });
    } catch {
      // What cannot be written may be impossible to remove too.
    }
    throw error;
  }
}

/**
 * What the system's error of a write says, with the path, which its own message often leaves out; another error as it is.
 * @param {string} path @param {unknown} cause
 */
export function notWritten(path, cause) {
  const { syscall, code, message } = /** @type {NodeJS.ErrnoException} */ (cause);
  if (syscall === undefined) return cause;
  return Object.assign(new Error(`${path} could not be written: ${message}`, { cause }), { code });
}

/** Makes a folder's entries last. Windows has no such call, and does without. @param {string} folder */
async function syncFolder(folder) {
  if (process.platform === 'win32') return;
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** As `syncFolder`. @param {string} folder */
function syncFolderSync(folder) {
  if (process.platform === 'win32') return;
  const handle = openSync(folder, 'r');
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}
