#!/usr/bin/env node
// Runs the quick tier's JavaScript suite in every runtime that loads the addon (Node 20 to 26, Bun, Deno), and bundles a server program by
// esbuild, webpack and Vite. Linux x64.
//
//   node scripts/platforms/runtimes.mjs [NAME…] [--part] [--files PATTERN] [--record]
//
//   NAME       only these: node20, node22, node24, node26, bun, deno, bundlers
//   --part     Node, too, without the arithmetic of kernels and of functions of tensors
//   --files    only test files whose path matches
//   --record   writes docs/runtimes.json, and the table in docs/packages.md
//
// Bun and Deno leave out what is the same whatever runs it: arithmetic, which the driver does, and tests of the repository's scripts,
// which run in Node. Tests that are known to fail are in EXPECTED, each with the reason; any other that fails fails this.

import { spawn, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';

import { UsageError, runMain } from '../../bin/lib/options.mjs';
import { ensureMade } from '../made.mjs';
import { RUNTIMES, fetched, program } from '../runtimes.mjs';
import { BUNDLERS, bundlers } from './bundlers.mjs';
import { OF_ADDON, OF_PROGRAMS, QUICK } from './files.mjs';
import { withTable } from './runtimes-table.mjs';
import { REPOSITORY, Unavailable } from './tools.mjs';

const RESULTS = join(REPOSITORY, 'docs/runtimes.json');
const PAGE = join(REPOSITORY, 'docs/packages.md');
/** A test may take so long on a busy machine. */
const LIMIT_MS = 600_000;

/** @typedef {import('../runtimes.mjs').Runtime} Runtime */
/** @typedef {{ passed: number, skipped: number, failed: string[], status: number | null, said: string }} Outcome */

/** How a runtime runs one test file, and what its report says. */
const KINDS = {
  node: {
    files: (/** @type {boolean} */ part) => (part ? OF_ADDON : QUICK),
    command: ['--test', '--test-reporter=tap'],
    filter: (/** @type {string} */ names) => [`--test-name-pattern=${names}`],
    passed: /^# pass (\d+)/m,
    skipped: /^# skipped (\d+)/m,
    failed: /^not ok \d+ - (.*)$/gm,
  },
  bun: {
    files: () => OF_PROGRAMS,
    command: ['test', '--timeout', String(LIMIT_MS)],
    filter: (/** @type {string} */ names) => ['-t', names],
    passed: /^ *(\d+) pass$/m,
    skipped: /^ *(\d+) skip$/m,
    failed: /^\(fail\) (.*?)(?: \[[\d.]+ms\])?$/gm,
  },
  deno: {
    files: () => OF_PROGRAMS,
    filter: (/** @type {string} */ names) => ['--filter', `/${names}/`],
    command: ['test', '--allow-all', '--no-lock', '--node-modules-dir=manual', '--no-check', '--v8-flags=--expose-gc'],
    passed: /(\d+) passed/,
    skipped: /(\d+) ignored/,
    failed: /^(\S.*?) \.\.\. FAILED/gm,
  },
};

/**
 * Tests that fail in a runtime, by why: part of a file's name and of the test's. Those that would not end are not begun.
 * @type {Record<string, Record<string, [file: string, test: string, endless?: 'endless'][]>>}
 */
const EXPECTED = {
  bun: {
    'what a program writes to `process.env` does not reach native code': [
      ['/device.', 'after a failed initDevice'],
      ['/device.', 'a variable with nonsense'],
      ['/lifetime.', 'a changed environment'],
      ['/ranges.', ''],
    ],
    'a tail call leaves no frame': [['/nn/explain.', '']],
    'an exception that nobody catches does not end a process with a worker that loops': [
      ['/exits.', 'an uncaught exception in a callback', 'endless'],
      ['/memory-stats.', 'an exception of the callback', 'endless'],
    ],
    'promises of native code run no `async_hooks`, and their errors have no stack of the call': [
      ['/panics.', 'async_hooks'],
      ['/reports.', 'HELIOS_STACKS=1'],
    ],
    'its engine has another heap limit, and reserves more addresses': [
      ['/readback.', 'bounded by the heap'],
      ['/readback.', 'in a process that may have 2.6 GB'],
    ],
    '`process.dlopen`, fields of sockets, messages of the engine and `node:test` outside of `bun test` differ': [
      ['/readback.', 'where the addon is loaded once more'],
      ['/share.', 'importBuffer refuses what is no memory'],
      ['/nn/training.', 'rates, decays and the norm'],
      ['/examples.', 'own-kernel'],
      ['/load-error.', 'in a bundle'],
    ],
  },
  deno: {
    '`terminate()` of a worker does not tell native code: what was the worker’s stays until the process ends': [
      ['/exits.', 'workers that come and go', 'endless'],
      ['/exits.', 'results that arrive for a worker at its end', 'endless'],
      ['/promises.', 'a worker that ends with promises pending'],
    ],
    'descriptors of its `node:fs` are numbers of its own, not the system’s: `exportBuffer` gives one that `fs` does not know': [
      ['/share.', ''],
    ],
    'promises of native code run no `async_hooks`, and what `--eval` is called in a stack differs': [
      ['/panics.', 'async_hooks'],
      ['/reports.', 'a lost device: the error names a report'],
    ],
    'its Node-API knows no `Float16Array` over shared memory': [['/upload-types.', 'every view']],
    "errors of `structuredClone`, `import()` in `eval`, modules as a worker's text and `node:test` outside of `deno test` differ from Node's":
      [
        ['/nn/errors.', 'messages'],
        ['/load-error.', 'no binary at all'],
        ['/load-error.', 'in a bundle'],
        ['/memory-stats.', 'ends with its worker'],
        ['/examples.', 'own-kernel'],
      ],
  },
};

/** @param {Runtime} runtime */
const kindOf = ({ name, node }) => KINDS[node ? 'node' : /** @type {'bun' | 'deno'} */ (name)];

/** Tests that are not begun. @param {Runtime} runtime @param {string} file */
const endless = ({ name }, file) =>
  Object.values(EXPECTED[name] ?? {}).flatMap((tests) =>
    tests.filter(([part, , ends]) => ends && file.includes(part)).map(([, test]) => test),
  );

/** @param {Runtime} runtime @param {string} file @returns {Promise<Outcome>} */
function outcome(runtime, file) {
  const kind = kindOf(runtime);
  const left = endless(runtime, file);
  const filter = left.length > 0 ? kind.filter(`^(?!.*(${left.join('|')}))`) : [];
  const env = { ...process.env, HELIOS_TEST_LIGHT: '1', NO_COLOR: '1', NODE_TEST_CONTEXT: undefined };
  return new Promise((resolve, reject) => {
    // Bun would take a path without the dots for a pattern.
    const child = spawn(program(runtime), [...kind.command, ...filter, `./${file}`], { cwd: REPOSITORY, env, timeout: 2 * LIMIT_MS });
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (said += text));
    child.on('error', reject);
    child.on('close', (status) => {
      const count = (/** @type {RegExp} */ pattern) => Number(pattern.exec(said)?.[1] ?? 0);
      const failed = [...new Set([...said.matchAll(kind.failed)].map(([, name]) => name))];
      failed.push(...left);
      resolve({ passed: count(kind.passed), skipped: count(kind.skipped), failed, status, said });
    });
  });
}

/** Why a test is known to fail. @param {Runtime} runtime @param {string} file @param {string} test */
const reasonOf = ({ name }, file, test) =>
  Object.entries(EXPECTED[name] ?? {}).find(([, tests]) => tests.some(([part, of]) => file.includes(part) && test.includes(of)))?.[0];

/** What device the suite runs on. @returns {string} */
function device() {
  const source = "const { deviceName, driverInfo } = require('./index.js').initDevice(); console.log(deviceName, driverInfo)";
  return spawnSync(process.execPath, ['-e', source], { cwd: REPOSITORY, encoding: 'utf8' }).stdout.trim();
}

/**
 * Runs the suite's files, as many at a time as there are processors.
 * @param {Runtime} runtime @param {boolean} part @param {RegExp} pattern
 */
async function suite(runtime, part, pattern) {
  const files = kindOf(runtime)
    .files(part)
    .filter((file) => pattern.test(file));
  const [total, left] = [{ passed: 0, skipped: 0 }, /** @type {Record<string, number>} */ ({})];
  /** @type {string[]} */
  const wrong = [];
  const waiting = [...files];
  const worker = async () => {
    for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
      const { passed, skipped, failed, status, said } = await outcome(runtime, file);
      total.passed += passed;
      total.skipped += skipped;
      const unknown = failed.filter((test) => reasonOf(runtime, file, test) === undefined);
      for (const test of failed) {
        const reason = reasonOf(runtime, file, test);
        if (reason !== undefined) left[reason] = (left[reason] ?? 0) + 1;
      }
      if (unknown.length === 0 && (status === 0 || failed.length > 0)) continue;
      wrong.push(file);
      console.error(`${runtime.name}, ${file} (status ${status}): ${unknown.join('; ')}\n${said.slice(-4000)}`);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  const whole = files.length === QUICK.length ? "the quick tier's suite" : "part of the quick tier's suite";
  return { wrong, left, ran: `${whole}, ${files.length} files: ${total.passed} tests passed, ${total.skipped} skipped (${device()})` };
}

const OPTIONS = /** @type {const} */ ({
  part: { type: 'boolean', help: 'Node, too, without the arithmetic of kernels and of functions of tensors' },
  files: { type: 'string', value: 'PATTERN', help: 'only test files whose path matches' },
  record: { type: 'boolean', help: 'write docs/runtimes.json, and the table in docs/packages.md' },
});

/** @param {import('../../bin/lib/options.mjs').ValuesOf<typeof OPTIONS>} values @param {string[]} chosen */
async function main({ part, files = '', record }, chosen) {
  const names = [...RUNTIMES.map(({ name }) => name), 'bundlers'];
  const unknown = chosen.find((name) => !names.includes(name));
  if (unknown !== undefined) throw new UsageError(`no runtime ${unknown}; there are ${names.join(', ')}`);
  const wanted = (/** @type {string} */ name) => chosen.length === 0 || chosen.includes(name);
  // Of the quick tier are tests of types and of pages.
  ensureMade();
  const date = new Date().toISOString().slice(0, 10);
  /** @param {string} name @param {Omit<import('./runtimes-table.mjs').Found, 'date'>} result */
  const found = (name, result) => record && write(name, { date, ...result });
  let passed = true;
  for (const runtime of RUNTIMES.filter(({ name }) => wanted(name))) {
    const reason = fetched(runtime);
    if (reason !== null) {
      console.log(`${runtime.name}: skipped: ${reason}`);
      found(runtime.name, { skipped: reason });
      continue;
    }
    const [said] = spawnSync(program(runtime), ['--version'], { encoding: 'utf8' }).stdout.split('\n');
    const number = /\d+\.\d+\.\d+/.exec(said)?.[0];
    const version = `${runtime.node ? 'Node' : runtime.name === 'bun' ? 'Bun' : 'Deno'} ${number}`;
    const { wrong, left, ran } = await suite(runtime, part, new RegExp(files));
    console.log(`${version}: ${ran}${wrong.length > 0 ? `; FAILED: ${wrong.join(', ')}` : ''}`);
    passed &&= wrong.length === 0;
    found(runtime.name, { version, ran: wrong.length > 0 ? `${ran}; failed: ${wrong.join(', ')}` : ran, left });
  }
  if (wanted('bundlers')) {
    try {
      passed = bundlers(found) && passed;
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      console.log(`bundlers: skipped: ${error.message}`);
    }
  }
  return passed ? 0 : 1;
}

/** Puts a result beside the others, in their order. @param {string} name @param {import('./runtimes-table.mjs').Found} result */
function write(name, result) {
  const all = { ...JSON.parse(readFileSync(RESULTS, 'utf8')), [name]: result };
  const order = [...RUNTIMES, ...BUNDLERS].map(({ name }) => name);
  const results = Object.fromEntries(order.flatMap((each) => (all[each] ? [[each, all[each]]] : [])));
  writeFileSync(RESULTS, `${JSON.stringify(results, null, 2)}\n`);
  writeFileSync(PAGE, withTable(readFileSync(PAGE, 'utf8'), results));
}

await runMain('node scripts/platforms/runtimes.mjs [NAME…] [options]', OPTIONS, main, { positionals: true });
