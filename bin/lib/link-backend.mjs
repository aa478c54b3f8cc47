// The file by which a trainer checkout uses `@helios-vk/alpha-backend`: it registers the backend under the name that the
// trainer knows. Nothing of the checkout's own is changed.

import { lstatSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { replaceFileSync } from '../../kernels/files.mjs';
import { CommandError, placeIn } from './link.mjs';

const NAME = 'helios-vk-backend.mjs';
const MARK = '// Put here by `helios-vk link --backend`; `helios-vk unlink` removes it.';
const PACKAGE = '@helios-vk/alpha-backend';

/**
 * Where the backend's package is: beside this package, in the checkout, or where the command was called.
 * @param {string} checkout
 */
function find(checkout) {
  for (const from of [import.meta.url, join(checkout, 'package.json'), join(process.cwd(), 'package.json')]) {
    try {
      // Not through a link of a workspace: the file outlives it.
      return realpathSync(createRequire(from).resolve(`${PACKAGE}/register`));
    } catch (error) {
      if (!['MODULE_NOT_FOUND', 'ERR_PACKAGE_PATH_NOT_EXPORTED', 'ENOENT'].includes(/** @type {any} */ (error).code)) throw error;
    }
  }
  throw new CommandError('ERR_NO_BACKEND', `${PACKAGE} is not installed, or not built: npm install ${PACKAGE}`);
}

/**
 * What is at a path: nothing, our file's text, or something that is not ours, such as a folder or a link.
 * @param {string} path
 * @returns {{ there: boolean, text: string | null }}
 */
function contentOf(path) {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  const text = stats?.isFile() ? readFileSync(path, 'utf8') : '';
  return { there: stats !== undefined, text: text.startsWith(MARK) ? text : null };
}

/**
 * Puts the file into a checkout.
 * @param {string} folder
 * @returns {{ path: string, changed: boolean, source: string, run: string }} `run`: how to train with it
 */
export function linkBackend(folder) {
  const { checkout } = placeIn(folder);
  const source = find(checkout);
  const path = join(checkout, NAME);
  const text = `${MARK}\nimport { register } from ${JSON.stringify(pathToFileURL(source).href)};\n\nawait register(import.meta.dirname);\n`;
  const before = contentOf(path);
  if (before.there && before.text === null)
    throw new CommandError('ERR_IN_USE', `${path} was not put there by helios-vk: move it away first`);
  const changed = before.text !== text;
  // Part of one would be taken for somebody else's.
  if (changed) replaceFileSync(path, text);
  return { path, changed, source, run: `node --import ./${NAME} apps/cli/dist/main.js train --backend=helios …` };
}

/**
 * Removes the file.
 * @param {string} folder
 * @returns {string | null} where it was
 */
export function unlinkBackend(folder) {
  const path = join(placeIn(folder).checkout, NAME);
  if (contentOf(path).text === null) return null;
  rmSync(path);
  return path;
}
