#!/usr/bin/env node
// ONNX's backend tests, as files: what the stage `onnx` runs.
//
//   node scripts/onnx.mjs status    prints where they are; exit code 0 if they are there
//   node scripts/onnx.mjs create    makes them (60 MB)
//
// Installs PyPI's `onnx`, which holds the tests as Python, into a folder of its own in target/onnx, and has it write them. Its evaluator runs
// what `exportOnnx` writes.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { fetchedMain } from './fetched.mjs';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
/** The tests' inputs and outputs are computed by NumPy: the same version makes the same. */
const PACKAGES = ['onnx==1.23.2', 'numpy==2.4.6'];
const TARGET = join(REPOSITORY, 'target/onnx');
/** Where the tests of these versions are. */
export const TESTS = join(TARGET, PACKAGES.join('-').replaceAll('==', '-'));
const LIST = join(TESTS, 'tests.json');
/** Where the packages are. */
const INSTALLED = join(TESTS, 'python');
/** Runs a program of Python with these packages. @param {string[]} args of python3 */
export const python = (args) =>
  spawnSync('python3', args, { encoding: 'utf8', env: { ...process.env, PYTHONPATH: INSTALLED }, maxBuffer: 2 ** 26 });

/** Makes the tests if they are missing. Returns why that is impossible here, or null. */
export function obstacle() {
  if (existsSync(LIST) && existsSync(INSTALLED)) return null;
  mkdirSync(TARGET, { recursive: true });
  const work = mkdtempSync(join(TARGET, 'work-'));
  const step = (/** @type {string} */ command, /** @type {string[]} */ ...args) => {
    const { status, error, stderr } = spawnSync(command, args, {
      encoding: 'utf8',
      env: { ...process.env, PYTHONPATH: join(work, 'python') },
    });
    return status === 0 ? undefined : (error?.message ?? stderr.trim().split('\n').at(-1));
  };
  try {
    const [environment, made] = [join(work, 'venv'), join(work, 'tests')];
    const own = join(environment, process.platform === 'win32' ? 'Scripts/python.exe' : 'bin/python');
    // Unlike an environment, a folder of packages may be moved.
    const folder = join(work, 'python');
    const created = step('python3', '-m', 'venv', environment);
    if (created !== undefined) return `python3 makes no environment: ${created}`;
    const installed = step(own, '-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--target', folder, ...PACKAGES);
    if (installed !== undefined) return `pip could not install ${PACKAGES.join(' and ')}: ${installed}`;
    const written = step('python3', join(REPOSITORY, 'packages/onnx/test/make-node-tests.py'), made);
    if (written !== undefined) return `the tests could not be written: ${written}`;
    renameSync(folder, join(made, 'python'));
    rmSync(TESTS, { recursive: true, force: true });
    renameSync(made, TESTS);
    return null;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

fetchedMain(import.meta.url, 'onnx', {
  found: () => (existsSync(LIST) ? TESTS : undefined),
  missing: () => `${TESTS}: not made yet`,
  create: obstacle,
});
