#!/usr/bin/env node
// Runs the tests of reads in every runtime that loads the addon: Node 20, 22, 24 and 26, Bun and Deno.
//
//   node scripts/runtimes.mjs status        prints which are installed; exit code 0 if all are
//   node scripts/runtimes.mjs create        fetches them (packages of the npm registry, 700 MB in all)
//   node scripts/runtimes.mjs [NAME…]       fetches them if needed and runs the tests with all, or with those named
//
// Another Node than this one runs the suite of reads and promises, whose reads are the programs of __test__/lib/reads.mjs, each in a process
// of its own. Bun and Deno, which have no `node:test`, run these programs alone. The runtimes are in $HELIOS_RUNTIMES, else ~/.cache/helios-vk/runtimes.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { isMain } from '../bin/lib/options.mjs';
import { cacheFolder } from './system.mjs';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
const READS = join('__test__', 'lib', 'reads.mjs');
const SUITE = ['readback', 'promises'].map((name) => `__test__/${name}.test.mjs`);

/**
 * @typedef {object} Runtime
 * @property {string} name
 * @property {string} wanted the package and its version
 * @property {string[]} flags of a runtime without node:test: they expose the garbage collector and give the program all permissions
 * @property {boolean} node whether it runs node:test
 */

/** @type {Runtime[]} */
export const RUNTIMES = [
  ...['20', '22', '24', '26'].map((version) => ({
    name: `node${version}`,
    wanted: `node@${version}`,
    flags: [],
    node: true,
  })),
  { name: 'bun', wanted: 'bun@1', flags: [], node: false },
  { name: 'deno', wanted: 'deno@2', flags: ['run', '--allow-all', '--no-config', '--v8-flags=--expose-gc'], node: false },
];

const folder = () => resolve(process.env.HELIOS_RUNTIMES ?? join(cacheFolder(), 'runtimes'));
/** @param {Runtime} runtime */
export const program = ({ name, node }) => join(folder(), name, 'node_modules', '.bin', node ? 'node' : name);

/**
 * Fetches a runtime if it is missing. Returns why that is impossible here, or null.
 * @param {Runtime} runtime
 */
export function fetched(runtime) {
  if (existsSync(program(runtime))) return null;
  const place = join(folder(), runtime.name);
  const partial = `${place}.partial-${process.pid}`;
  mkdirSync(partial, { recursive: true });
  try {
    writeFileSync(join(partial, 'package.json'), '{ "private": true }\n');
    // The packages' own scripts select the binary for this machine.
    const options = ['--no-audit', '--no-fund', '--ignore-scripts=false', '--loglevel=error'];
    const npm = spawnSync('npm', ['install', ...options, runtime.wanted], {
      cwd: partial,
      encoding: 'utf8',
      timeout: 300_000,
      shell: process.platform === 'win32',
    });
    const complaint = npm.error?.message ?? npm.stderr.trim().split('\n')[0];
    if (npm.status !== 0) return `npm could not install ${runtime.wanted}: ${complaint}`;
    if (!existsSync(place)) renameSync(partial, place);
    return existsSync(program(runtime)) ? null : `${place} is there, but holds no ${runtime.name}: remove it`;
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
}

/** Fetches all. Returns why that is impossible here, or null. */
export function obstacle() {
  if (process.platform !== 'linux') return 'the runtimes are compared on Linux';
  for (const runtime of RUNTIMES) {
    const reason = fetched(runtime);
    if (reason !== null) return reason;
  }
  return null;
}

/**
 * Runs a command in the repository; shows what it printed if it fails.
 * @param {string[]} command
 * @param {Record<string, string>} [environment]
 */
function passes([command, ...args], environment = {}) {
  const { status, signal, stdout, stderr, error } = spawnSync(command, args, {
    cwd: REPOSITORY,
    encoding: 'utf8',
    timeout: 600_000,
    maxBuffer: 64 << 20,
    env: { ...process.env, NODE_TEST_CONTEXT: undefined, ...environment },
  });
  if (status === 0) return true;
  console.error(`${args.join(' ')}: ${error?.message ?? (signal ? `ended by ${signal}` : `status ${status}`)}`);
  console.error(`${stdout}${stderr}`.trimEnd());
  return false;
}

/**
 * Runs the tests of reads with a runtime; whether all passed.
 * @param {Runtime} runtime
 */
async function tests(runtime) {
  const since = performance.now();
  const [binary, { flags }] = [program(runtime), runtime];
  const version = spawnSync(binary, ['--version'], { encoding: 'utf8' }).stdout.split('\n')[0];
  /** @type {string[]} */
  let failed = [];
  let what = '';
  if (runtime.node) {
    // The Node that runs this runs the suite anyway.
    const own = runtime.name === `node${process.versions.node.split('.')[0]}`;
    if (!own && !passes([binary, '--test', '--test-timeout=300000', ...SUITE])) failed = SUITE;
    what = own ? 'runs the suite itself' : 'the suite of reads and promises passed';
  } else {
    const { names } = await import('../__test__/lib/reads.mjs');
    // As on a GPU: every read goes through readback blocks.
    failed = names.filter((/** @type {string} */ name) => !passes([binary, ...flags, READS, name], { HELIOS_TEST_STAGED: '1' }));
    what = `${names.length} programs of reads passed`;
  }
  const seconds = ((performance.now() - since) / 1000).toFixed(0);
  const result = failed.length === 0 ? what : `FAILED: ${failed.join(', ')}`;
  console.log(`${runtime.name.padEnd(7)} ${version}: ${result} in ${seconds} s`);
  return failed.length === 0;
}

/** @param {string[]} args */
async function main(args) {
  if (args[0] === 'status') {
    for (const runtime of RUNTIMES) console.log(existsSync(program(runtime)) ? program(runtime) : `${runtime.name}: not fetched yet`);
    return RUNTIMES.every((runtime) => existsSync(program(runtime))) ? 0 : 1;
  }
  const create = args[0] === 'create';
  const chosen = create || args.length === 0 ? RUNTIMES : RUNTIMES.filter(({ name }) => args.includes(name));
  if (chosen.length < (create ? 1 : args.length)) {
    console.error(`usage: runtimes.mjs [status | create | NAME…], of ${RUNTIMES.map(({ name }) => name).join(', ')}`);
    return 2;
  }
  let passed = true;
  for (const runtime of chosen) {
    const reason = fetched(runtime);
    if (reason !== null) console.error(`runtimes: ${reason}`);
    passed = reason === null && (create || (await tests(runtime))) && passed;
  }
  return passed ? 0 : 1;
}

if (isMain(import.meta.url)) process.exitCode = await main(process.argv.slice(2));
