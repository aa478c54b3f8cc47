#!/usr/bin/env node
// The declarations of `helios-vk/kernels`, types/kernels/, made from the JSDoc of kernels/.
//
//   node scripts/kernel-types.mjs [--check]
//
//   --check   writes nothing and fails if those that are there are not those of the sources

import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { readIfThere } from './system.mjs';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
const TARGET = join(REPOSITORY, 'types/kernels');
const NOTE = '// Made by `npm run types` from kernels/; do not edit.\n';

/** Has TypeScript write the declarations into `folder`. @param {string} folder */
function emit(folder) {
  const options = ['--ignoreConfig', '--declaration', '--emitDeclarationOnly', '--allowJs', '--checkJs', '--strict',
    '--target', 'es2023', '--module', 'nodenext', '--types', 'node', '--newLine', 'lf'];
  const command = ['node_modules/typescript/bin/tsc', ...options, '--outDir', folder, 'kernels/index.mjs'];
  const { status } = spawnSync(process.execPath, command, { cwd: REPOSITORY, stdio: 'inherit' });
  if (status !== 0) throw new Error(`tsc ended with ${status}`);
}

/**
 * The declarations of a file. TypeScript leaves the comments of a function behind where an object only names it, as
 * those do that the families of kernels return: they are put back.
 * @param {string} declarations @param {string} source
 */
function documented(declarations, source) {
  for (const [, comment, name] of source.matchAll(/^ {2}(\/\*\*(?:(?!\*\/)[^])*\*\/)\n {2}function (\w+)\(/gm)) {
    const indented = comment.replaceAll('\n', '\n  ');
    declarations = declarations.replace(new RegExp(`^ {4}(?=${name}: \\()`, 'm'), () => `    ${indented}\n    `);
  }
  return NOTE + declarations;
}

const { values } = parseArgs({ options: { check: { type: 'boolean', default: false } } });
const folder = mkdtempSync(join(tmpdir(), 'helios-types-'));
emit(folder);
const files = new Map(
  readdirSync(folder).map((name) => {
    const source = readFileSync(join(REPOSITORY, 'kernels', name.replace('.d.mts', '.mjs')), 'utf8').replaceAll('\r\n', '\n');
    return [name, documented(readFileSync(join(folder, name), 'utf8'), source)];
  }),
);
rmSync(folder, { recursive: true });

if (values.check) {
  const stale = [...files].filter(([name, text]) => readIfThere(join(TARGET, name))?.replaceAll('\r\n', '\n') !== text).map(([name]) => name);
  const extra = readdirSync(TARGET).filter((name) => !files.has(name));
  if (stale.length + extra.length > 0) {
    console.error(`types/kernels: ${[...stale, ...extra].join(', ')} not of these sources: npm run types`);
    process.exitCode = 1;
  }
} else {
  rmSync(TARGET, { recursive: true, force: true });
  mkdirSync(TARGET, { recursive: true });
  for (const [name, text] of files) writeFileSync(join(TARGET, name), text);
}
