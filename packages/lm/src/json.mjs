// Reads files of JSON.

import { readFileSync } from 'node:fs';

/** The contents of such a file: `any`, since each reader checks them key by key. @typedef {any} Json */

/**
 * Reads a file of JSON.
 * @param {string} path
 * @returns {Json}
 * @throws {Error} that names the file, where it cannot be read or is not JSON
 */
export function readJson(path) {
  let text;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw new Error(`${path}: ${/** @type {Error} */ (cause).message}`, { cause });
  }
  try {
    // Some editors begin a file with the mark of its encoding.
    return JSON.parse(text.replace(/^\ufeff/, ''));
  } catch (cause) {
    throw new Error(`${path} is not a file of JSON: ${/** @type {Error} */ (cause).message}`, { cause });
  }
}
