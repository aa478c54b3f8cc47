// Files that are written atomically.

import { randomBytes } from 'node:crypto';
import { open, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Writes a file atomically: writes it under a unique name (also among threads and hosts), syncs it, renames it, and syncs the folder.
 * After a failure only the old file is there. If something else than a file is at the path, that is an error and it stays: the rename
 * would replace a pipe or a device.
 * @template T
 * @param {string} path
 * @param {(file: import('node:fs/promises').FileHandle) => Promise<T>} write
 * @returns {Promise<T>}
 * @throws the system's error, which `notWritten` makes one that names the path
 */
export async function replaceFile(path, write) {
  const there = await stat(path).catch(() => undefined);
  if (there && !there.isFile()) {
    throw Object.assign(new Error('it is not a file'), { code: 'ERR_HELIOS_INVALID_ARGUMENT', syscall: 'rename' });
  }
  const partial = `${path}.${randomBytes(8).toString('hex')}.partial`;
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
 * The system's error of a write, with the path, which the system's message often lacks; another error as it is.
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
