// `helios-vk link --backend`: puts a file into a trainer checkout that calls `register` of `@helios-vk/alpha-backend`, and takes it away
// again. No file of the checkout is changed. This is not part of that package: helios-vk is installed without it, and `unlink` has to work
// when the package is gone.

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
 * The backend's module `register`: installed beside this package, in the checkout, or where the command was called.
 * @param {string} checkout
 * @returns {string} its path
 */
function find(checkout) {
  for (const from of [import.meta.url, join(checkout, 'package.json'), join(process.cwd(), 'package.json')]) {
    try {
      // The package itself, not a workspace's link to it: `npm install` may remove the link while our file names it.
      return realpathSync(createRequire(from).resolve(`${PACKAGE}/register`));
    } catch (error) {
      const { code = '' } = /** @type {NodeJS.ErrnoException} */ (error);
      if (!['MODULE_NOT_FOUND', 'ERR_PACKAGE_PATH_NOT_EXPORTED', 'ENOENT'].includes(code)) throw error;
    }
  }
  throw new CommandError('ERR_NO_BACKEND', `${PACKAGE} is not installed, or not built. To install it: npm install ${PACKAGE}`);
}

/**
 * What is at a path.
 * @param {string} path
 * @returns {{ there: boolean, text: string | null }} `text`: of our file, null for anything else, such as a folder or a link
 */
function contentOf(path) {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  const text = stats?.isFile() ? readFileSync(path, 'utf8') : '';
  return { there: stats !== undefined, text: text.startsWith(MARK) ? text : null };
}

/**
 * Puts the file into a checkout.
 * @param {string} folder
 * @returns {{ path: string, changed: boolean, source: string, run: string }} `source`: the module that the file imports; `run`: the
 *   command that trains with it
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
  // Written whole or not at all: a part of our file would be taken for somebody else's.
  if (changed) replaceFileSync(path, text);
  return { path, changed, source, run: `node --import ./${NAME} apps/cli/dist/main.js train --backend=helios …` };
}

/**
 * Removes the file.
 * @param {string} folder
 * @returns {string | null} its path, null if it was not there
 */
export function unlinkBackend(folder) {
  const path = join(placeIn(folder).checkout, NAME);
  if (contentOf(path).text === null) return null;
  rmSync(path);
  return path;
}
