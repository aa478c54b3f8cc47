// Folders that a program makes: all of one is there, or nothing of it.

import { existsSync, readdirSync, realpathSync, rmSync, statSync } from 'node:fs';
import { mkdir, rename } from 'node:fs/promises';
import { isAbsolute, relative, resolve, sep } from 'node:path';

/**
 * Throws where a folder cannot be made: something is there, or an input holds it.
 * @param {string} output @param {string[]} inputs files and folders that are read
 */
export function checkNewFolder(output, inputs) {
  const target = resolve(output);
  if (existsSync(target)) {
    if (!statSync(target).isDirectory()) throw new Error(`${output} is a file; the output is a folder`);
    if (readdirSync(target).length > 0) throw new Error(`${output} is not empty: name another folder, or remove it`);
  }
  const real = existsSync(target) ? realpathSync(target) : target;
  for (const input of inputs) {
    if (!existsSync(input)) continue;
    const way = relative(realpathSync(input), real);
    // Empty for the input itself; a way up, or to another drive, for what is not below it.
    const isBelow = way === '' || (statSync(input).isDirectory() && way.split(sep)[0] !== '..' && !isAbsolute(way));
    if (isBelow) throw new Error(`${output} is in the input ${input}`);
  }
}

/**
 * Makes a folder, see `checkNewFolder`: under another name, which becomes its own when all is written.
 * @template T
 * @param {string} output
 * @param {(folder: string) => Promise<T>} write what is to be in it
 * @returns {Promise<T>}
 */
export async function makeFolder(output, write) {
  const partial = `${resolve(output)}.partial`;
  // What a run that was killed has left.
  rmSync(partial, { recursive: true, force: true });
  await mkdir(partial, { recursive: true });
  try {
    const result = await write(partial);
    await rename(partial, resolve(output));
    return result;
  } catch (error) {
    rmSync(partial, { recursive: true, force: true });
    throw error;
  }
}
