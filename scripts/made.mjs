#!/usr/bin/env node
// Makes what a clone generates from its sources and git does not keep: types/ (declarations), docs/reference/ (pages made from them) and
// cjs/ (the modules for `require`). `npm run setup` makes them where they are missing or older than their sources, `prepack`
// before the package is packed.
//
//   npm run types        (node scripts/made.mjs)

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { isMain } from '../bin/lib/options.mjs';

import { readStamp, writeStamp } from './stamp.mjs';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
/** In order: each reads what the ones before it have made. */
const SCRIPTS = ['kernel-types.mjs', 'reference.mjs', 'commonjs.mjs'];
const SOURCES = [
  'distributed',
  'kernels',
  'nn',
  'index.d.ts',
  'docs/api.md',
  'package-lock.json',
  ...SCRIPTS.map((name) => `scripts/${name}`),
];
const MADE = ['types', 'docs/reference', 'cjs'];
const STAMP = join(REPOSITORY, 'node_modules/.cache/helios-vk/made.json');

/** @param {string} path @returns {string[]} the files at or below it, from the repository on */
function filesAt(path) {
  const entries = readdirSync(join(REPOSITORY, path), { withFileTypes: true });
  return entries.flatMap((entry) => (entry.isDirectory() ? filesAt(`${path}/${entry.name}`) : [`${path}/${entry.name}`])).sort();
}

/** A digest of all sources: file times mean nothing after a checkout. */
function sourcesKey() {
  const hash = createHash('sha256');
  for (const source of SOURCES) {
    for (const file of /\.\w+$/.test(source) ? [source] : filesAt(source)) {
      hash
        .update(`${file}\0`)
        .update(readFileSync(join(REPOSITORY, file)))
        .update('\0');
    }
  }
  return hash.digest('hex');
}

/** Whether everything exists and was made from these sources. */
export function isMade() {
  return MADE.every((path) => existsSync(join(REPOSITORY, path))) && readStamp(STAMP)?.key === sourcesKey();
}

/** Makes everything again. */
function make() {
  const key = sourcesKey();
  for (const name of SCRIPTS) {
    const { status } = spawnSync(process.execPath, [join('scripts', name)], { cwd: REPOSITORY, stdio: 'inherit' });
    if (status !== 0) throw new Error(`scripts/${name} ended with ${status}`);
  }
  // Without the stamp everything is made again the next time, which is slow but correct.
  writeStamp(STAMP, { key });
}

/** Makes everything where it is missing or older than its sources. */
export function ensureMade() {
  if (!isMade()) make();
}

if (isMain(import.meta.url)) ensureMade();
