#!/usr/bin/env node
// Makes the declarations of a package in packages/, as `prepack` of each does:
//
//   node ../../scripts/package-types.mjs      in the package's folder
//
// The compiler names types of the main package that no entry of it exports by their path in this repository, since the package lies inside of
// it. Where it is installed there is no such path, so these imports become `helios-vk/types/…`, which the main package exports.

import { spawnSync } from 'node:child_process';
import { readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

import { isMain } from '../bin/lib/options.mjs';

const REPOSITORY = fileURLToPath(new URL('../', import.meta.url));

/**
 * Writes the declarations of a package.
 * @param {string} folder with `tsconfig.json`
 * @param {string} [out] where they go; the package's `types/` when left out
 * @throws {Error} if the compiler fails, or if a declaration names a file outside of the package that an installed one cannot reach
 */
export function packageTypes(folder, out = join(folder, 'types')) {
  rmSync(out, { recursive: true, force: true });
  const tsc = [join(REPOSITORY, 'node_modules/typescript/bin/tsc'), '-p', join(folder, 'tsconfig.json'), '--outDir', out];
  const { status, stdout } = spawnSync(process.execPath, tsc, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`no declarations of ${folder}:\n${stdout}`);
  const source = resolve(folder, 'src');
  for (const name of readdirSync(out, { recursive: true, encoding: 'utf8' }).filter((each) => each.endsWith('.d.mts'))) {
    const text = readFileSync(join(out, name), 'utf8');
    const own = text.replace(/(?<=from |import\()(["'])(\.\.?\/[^"']+)\1/g, (whole, quote, path) => {
      // Paths are relative to the package's `types/`, which mirrors `src/`.
      const target = resolve(source, name, '..', path);
      if (!relative(source, target).startsWith('..')) return whole;
      const inside = relative(REPOSITORY, target).split(sep).join('/');
      if (!inside.startsWith('types/')) throw new Error(`${name} of ${folder} names ${path}, which is not in the package`);
      return `${quote}helios-vk/${inside}${quote}`;
    });
    if (own !== text) writeFileSync(join(out, name), own);
  }
}

if (isMain(import.meta.url)) packageTypes(process.cwd());
