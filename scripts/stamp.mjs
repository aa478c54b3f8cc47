/** Small JSON files that remember results: any of them may be missing, truncated, or impossible to write. */

import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { replaceFileSync } from '../kernels/files.mjs';

/**
 * A stamp's contents; null if there is none, or if the file is something else.
 * @param {string} path
 * @returns {Record<string, any> | null}
 */
export function readStamp(path) {
  try {
    const value = JSON.parse(readFileSync(path, 'utf8'));
    return typeof value === 'object' && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

/**
 * Makes a folder and its parents. On a read-only file system Node's own recursion reports ENOENT instead of EROFS.
 * @param {string} path
 */
function makeFolder(path) {
  if (existsSync(path)) return;
  if (dirname(path) !== path) makeFolder(dirname(path));
  try {
    mkdirSync(path);
  } catch (error) {
    // Another process was first.
    if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'EEXIST') throw error;
  }
}

/**
 * Writes a stamp, whole or not at all.
 * @param {string} path
 * @param {object} value
 * @returns {string | null} why it could not be written
 */
export function writeStamp(path, value) {
  try {
    makeFolder(dirname(path));
    replaceFileSync(path, JSON.stringify(value));
    return null;
  } catch (error) {
    return `${path} cannot be written: ${/** @type {Error} */ (error).message}`;
  }
}
