// Replaces a file, all or nothing: the one way to write what must not be lost. This file needs nothing but Node.

import { randomBytes } from 'node:crypto';
import { closeSync, fsyncSync, openSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { open, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/** Suffix of a file that is still being written. */
export const PARTIAL = '.partial';

/** A name beside `path` that no other call uses, not even in another thread or on another host. @param {string} path */
const partialOf = (path) => `${path}.${randomBytes(8).toString('hex')}${PARTIAL}`;

/** Throws if the path is a pipe or a device, which a rename would replace. @param {import('node:fs').Stats | undefined} there */
function assertFile(there) {
  if (!there || there.isFile()) return;
  throw Object.assign(new Error('it is not a file'), { code: 'ERR_HELIOS_INVALID_ARGUMENT', syscall: 'rename' });
}

/**
 * Writes a file, all or nothing: writes it under a name of its own, syncs it, renames it, and syncs the folder. A failure leaves the old file as
 * it was, and no other. If the path is not a file, it stays, and the call fails.
 * @template T
 * @param {string} path
 * @param {(file: import('node:fs/promises').FileHandle) => Promise<T>} write
 * @returns {Promise<T>}
 * @throws the system's error; `notWritten` turns it into one that names the path
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
 * @param {{ tryOnly?: boolean }} [options] tryOnly: does everything but the rename, to find out whether the file can be written
 * @throws the system's error; `notWritten` turns it into one that names the path
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
      // A file that cannot be written may be impossible to remove, too.
    }
    throw error;
  }
}

/**
 * An error with the message of a system error and the path, which that message often omits. Other errors are returned as they are.
 * @param {string} path @param {unknown} cause
 */
export function notWritten(path, cause) {
  const { syscall, code, message } = /** @type {NodeJS.ErrnoException} */ (cause);
  if (syscall === undefined) return cause;
  return Object.assign(new Error(`${path} could not be written: ${message}`, { cause }), { code });
}

/** The most bytes of one write: what is done with a piece blocks the event loop for milliseconds only. */
const PIECE = 2 ** 24;

/**
 * Writes all bytes of an array: one write of the system may be partial.
 * @param {import('node:fs/promises').FileHandle} file @param {ArrayBufferView} data
 * @param {number} [position] in the file; behind what was written before when left out
 * @param {(piece: Uint8Array) => void} [onWritten] called with each piece
 */
export async function writeAll(file, { buffer, byteOffset, byteLength }, position, onWritten) {
  for (let at = 0; at < byteLength; ) {
    const piece = new Uint8Array(buffer, byteOffset + at, Math.min(PIECE, byteLength - at));
    const { bytesWritten } = await file.write(piece, 0, piece.length, position === undefined ? null : position + at);
    if (bytesWritten === 0) throw Object.assign(new Error('the system wrote nothing'), { code: 'EIO', syscall: 'write' });
    onWritten?.(piece.subarray(0, bytesWritten));
    at += bytesWritten;
  }
}

/** Syncs a folder, so that its entries survive a crash. Windows has no such call. @param {string} folder */
export async function syncFolder(folder) {
  if (process.platform === 'win32') return;
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** `syncFolder`, synchronously. @param {string} folder */
function syncFolderSync(folder) {
  if (process.platform === 'win32') return;
  const handle = openSync(folder, 'r');
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}
