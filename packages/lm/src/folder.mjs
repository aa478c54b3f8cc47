// Creates output folders atomically (a folder appears once it is complete, or not at all), and the files in them.

import { cpSync, existsSync, readdirSync, realpathSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from 'node:path';
import { notWritten } from 'helios-vk/files';

/** Marks a partial folder as one of this program's, which a later run may remove. */
const MARK = '.helios-lm-partial';

/** @param {string} output */
const partialOf = (output) => `${resolve(output)}.partial`;

/** The real path of what may not exist yet. @param {string} path @returns {string} */
const realOf = (path) => (existsSync(path) || dirname(path) === path ? realpathSync(path) : join(realOf(dirname(path)), basename(path)));

/** Whether a path is a folder or lies in it; what does not exist yet, too. @param {string} path @param {string} folder */
export function isWithin(path, folder) {
  // The relative path is empty for the folder itself, and goes up or to another drive for what is outside of it.
  const way = relative(realOf(resolve(folder)), realOf(resolve(path)));
  return way === '' || (way.split(sep)[0] !== '..' && !isAbsolute(way));
}

/**
 * Checks that an output folder can be created. Throws an Error if a file or a non-empty folder is there, if it lies inside an input, or if
 * `<output>.partial` is there and no killed run left it.
 * @param {string} output @param {string[]} inputs files and folders that the program reads
 * @param {{ replace?: boolean }} [options] `replace`: a folder that is not empty may be there
 */
export function checkNewFolder(output, inputs, { replace = false } = {}) {
  const target = resolve(output);
  if (existsSync(target)) {
    if (!statSync(target).isDirectory()) throw new Error(`${output} is a file; the output is a folder`);
    if (!replace && readdirSync(target).length > 0) throw new Error(`${output} is not empty: name another folder, or remove it`);
  }
  const partial = partialOf(output);
  if (existsSync(partial) && !existsSync(join(partial, MARK))) {
    throw new Error(`${output}.partial is in the way: the output is written there first; remove it, or name another output`);
  }
  for (const input of inputs) {
    if (existsSync(input) && isWithin(target, input)) throw new Error(`${output} is in the input ${input}`);
  }
}

/**
 * Creates a folder (check it with `checkNewFolder` first). Writes to `<output>.partial` and renames that when `write` is done; if `write`
 * fails, the partial folder is removed. What a killed run left there is deleted.
 * @template T
 * @param {string} output
 * @param {(folder: string) => Promise<T>} write fills the folder that it is given
 * @param {{ replace?: boolean }} [options] `replace`: when `write` is done, what is at `output` is deleted
 * @returns {Promise<T>} what `write` returns
 */
export async function makeFolder(output, write, { replace = false } = {}) {
  const partial = partialOf(output);
  // A killed run may have left one.
  rmSync(partial, { recursive: true, force: true });
  await mkdir(partial, { recursive: true });
  try {
    writeFileSync(join(partial, MARK), '');
    const result = await write(partial);
    if (replace) rmSync(resolve(output), { recursive: true, force: true });
    rmSync(join(partial, MARK));
    await rename(partial, resolve(output));
    return result;
  } catch (error) {
    rmSync(partial, { recursive: true, force: true });
    // Node names no file where a write fails.
    const { syscall, path } = /** @type {NodeJS.ErrnoException} */ (error);
    throw syscall === 'write' && path === undefined ? notWritten(output, error) : error;
  }
}

/** Writes a file of JSON. @param {string} path @param {object} value */
export const writeJson = (path, value) => writeFile(path, `${JSON.stringify(value, null, 2)}\n`, { flush: true });

/** Writes files, also into folders below. @param {string} folder @param {Record<string, string>} files texts by name, such as a tokenizer's `files()` */
export async function writeFiles(folder, files) {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), text, { flush: true });
  }
}

/** Copies those files and folders of a folder that are there. @param {string} from @param {string} to @param {readonly string[]} names */
export function copyThere(from, to, names) {
  for (const name of names) if (existsSync(join(from, name))) cpSync(join(from, name), join(to, name), { recursive: true });
}
