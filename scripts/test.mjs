#!/usr/bin/env node
// Everything that must hold, stage by stage; `npm test` runs it after the set-up step.
//
//   node scripts/test.mjs [--only NAME,…] [--skip NAME,…] [--list]
//
// A stage that fails does not stop the others; the run fails at its end. A stage that this machine
// cannot run says why and counts as skipped.

import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { chooseCargo, hasValidationLayer } from './bootstrap.mjs';
import { obstacle } from './mesa-root.mjs';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
const TRACE = join(dirname(REPOSITORY), 'shared/traces/gpt300m-5steps.jsonl.gz');
/** What the validation layer prints, where a message gets past the addon. */
const LAYER_MESSAGE = /VUID-|SYNC-HAZARD|UNASSIGNED-|Validation (Error|Warning)|vkDebugUtilsMessenger/;
/** The replay's buffers take 15 GB; divided by this they fit any machine. */
const REPLAY_SCALE = '64';
/** Barriers that one of its steps may take. */
const MOST_BARRIERS = 4400;

/**
 * @typedef {object} Stage
 * @property {string} name
 * @property {string} title
 * @property {() => string | null} [unavailable] why it cannot run here, or null
 * @property {() => Promise<boolean>} run whether it passed
 */

/**
 * Runs a command in the repository with its output shown.
 * @param {string[]} command
 * @param {{ environment?: Record<string, string>, forbidden?: RegExp }} [options] `forbidden`: a line
 *   that matches it fails the command
 * @returns {Promise<boolean>}
 */
function run([command, ...args], { environment = {}, forbidden } = {}) {
  return new Promise((done) => {
    const child = spawn(command, args, {
      cwd: REPOSITORY,
      env: { ...process.env, ...environment },
      stdio: ['ignore', forbidden ? 'pipe' : 'inherit', forbidden ? 'pipe' : 'inherit'],
      shell: process.platform === 'win32' && !command.endsWith('.exe'),
    });
    /** @type {string[]} */
    const offending = [];
    for (const [stream, target] of /** @type {const} */ ([
      [child.stdout, process.stdout],
      [child.stderr, process.stderr],
    ])) {
      let rest = '';
      stream?.on('data', (/** @type {Buffer} */ chunk) => {
        target.write(chunk);
        const lines = (rest + chunk).split('\n');
        rest = lines.pop() ?? '';
        offending.push(...lines.filter((line) => forbidden?.test(line)));
      });
      stream?.on('end', () => forbidden?.test(rest) && offending.push(rest));
    }
    child.on('error', (error) => {
      console.error(`${command}: ${error.message}`);
      done(false);
    });
    child.on('close', (status, signal) => {
      if (signal) console.error(`${command}: ended by ${signal}`);
      if (offending.length > 0) console.error(`${offending.length} validation messages, the first:\n${offending[0]}`);
      done(status === 0 && offending.length === 0);
    });
  });
}

/** @returns {string[]} the test files, relative to the repository */
function testFiles() {
  return readdirSync(join(REPOSITORY, '__test__'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.test.mjs'))
    .map((name) => join('__test__', name).split(sep).join('/'))
    .sort();
}

/**
 * The command that runs the JS suite; a test that hangs fails.
 * @param {string} [node]
 */
function suite(node = process.execPath) {
  return [node, '--test', '--test-reporter=spec', '--test-timeout=900000', ...testFiles()];
}

/** @param {string[]} args */
const cargo = (...args) => run(['cargo', ...args]);
const inMesaRoot = (/** @type {string[]} */ command) => [
  process.execPath,
  join('scripts', 'mesa-root.mjs'),
  'run',
  '--',
  ...command,
];

/**
 * Runs all, also after one has failed.
 * @param {string[][]} commands
 */
async function each(commands) {
  let passed = true;
  for (const command of commands) passed = (await run(command)) && passed;
  return passed;
}

/** The recorded run: what it read is what it reads with every dispatch alone, and barriers are few. */
async function replay() {
  const [file, ...args] = [
    'benches/replay.mjs',
    '--trace',
    relative(REPOSITORY, TRACE),
    '--steps',
    '2',
    '--scale',
    REPLAY_SCALE,
  ];
  const { stdout, status } = spawnSync(process.execPath, [file, ...args, '--check', '--json'], {
    cwd: REPOSITORY,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
    maxBuffer: 64 << 20,
  });
  if (status !== 0) {
    console.error(`${stdout}\n${file} ended with ${status}`);
    return false;
  }
  const { device, barriers, checks } = JSON.parse(stdout);
  const agrees = checks.flatMap((/** @type {{ agrees: boolean[] }} */ { agrees }) => agrees);
  console.log(
    `${device}: barriers by step ${barriers.join(', ')} (at most ${MOST_BARRIERS}); as if serial by step: ${agrees.join(', ')}`,
  );
  const few =
    barriers.length === 2 && barriers.every((/** @type {number} */ count) => count > 0 && count <= MOST_BARRIERS);
  return few && agrees.length === 2 && agrees.every(Boolean);
}

/** @type {Stage[]} */
const STAGES = [
  { name: 'fmt', title: 'Rust is formatted', run: () => cargo('fmt', '--check') },
  {
    name: 'clippy',
    title: 'Clippy is content',
    run: () => cargo('clippy', '--all-targets', '--locked', '--', '-D', 'warnings'),
  },
  { name: 'rust', title: 'Rust tests', run: () => cargo('test', '--locked') },
  {
    name: 'types',
    title: 'types of the package and of all scripts',
    run: () => run([process.execPath, 'node_modules/typescript/bin/tsc', '--noEmit']),
  },
  {
    name: 'generated',
    title: 'the committed index.js and index.d.ts are those of this build',
    unavailable: () => (process.env.CI && isCheckout() ? null : 'only in CI, on a checkout'),
    run: () => run(['git', 'diff', '--exit-code', '--stat', '--', 'index.js', 'index.d.ts']),
  },
  { name: 'js', title: 'JS suite', run: () => run(suite()) },
  {
    name: 'sets',
    title: 'JS suite on descriptor sets',
    run: () => run(suite(), { environment: { HELIOS_DISABLE_PUSH_DESCRIPTORS: '1' } }),
  },
  {
    name: 'validation',
    title: 'JS suite under the validation layer with synchronization checks',
    unavailable: () => (hasValidationLayer() ? null : 'the Khronos validation layer is not installed'),
    run: () => run(suite(), { environment: { HELIOS_VALIDATION: '1' }, forbidden: LAYER_MESSAGE }),
  },
  {
    name: 'replay',
    title: 'two steps of the recorded training run',
    unavailable: () => (existsSync(TRACE) ? null : `no recording at ${relative(REPOSITORY, TRACE)}`),
    run: replay,
  },
  {
    name: 'train',
    title: 'three training steps',
    run: () => run([process.execPath, 'benches/train.mjs', '--steps', '3']),
  },
  {
    name: 'benches',
    title: 'every bench once, small',
    run: () => each(benches()),
  },
  {
    name: 'mesa',
    title: 'JS suite on a newer Mesa, with cooperative matrices',
    unavailable: noMesaRoot,
    run: () => run(inMesaRoot(suite('node'))),
  },
  {
    name: 'mesa-validation',
    title: 'JS suite on a newer Mesa under its validation layer',
    unavailable: noMesaRoot,
    run: () => run(inMesaRoot(['env', 'HELIOS_VALIDATION=1', ...suite('node')]), { forbidden: LAYER_MESSAGE }),
  },
];

/** Why there is no root with a newer Mesa and none can be made, or null. */
function noMesaRoot() {
  const reason = obstacle();
  if (reason !== null) return reason;
  const { status } = spawnSync(process.execPath, [join('scripts', 'mesa-root.mjs'), 'create'], {
    cwd: REPOSITORY,
    stdio: 'inherit',
  });
  return status === 0 ? null : 'the Debian root could not be made: see above';
}

/** Each bench in a size that takes seconds. */
function benches() {
  return [
    [process.execPath, 'benches/calls.mjs', '--quick'],
    [process.execPath, 'benches/kernels.mjs', '--quick'],
    [process.execPath, 'benches/toks.mjs', '--quick'],
    // Criterion's test mode, in the profile of the tests: `cargo bench` would compile all anew.
    ['cargo', 'test', '--locked', '--bench', 'stages'],
  ];
}

function isCheckout() {
  return (
    spawnSync('git', ['ls-files', '--error-unmatch', 'index.js'], { cwd: REPOSITORY, stdio: 'ignore' }).status === 0
  );
}

/** @param {number} since milliseconds */
const seconds = (since) => `${((performance.now() - since) / 1000).toFixed(1)} s`;

async function main() {
  const { values } = parseArgs({
    options: { only: { type: 'string' }, skip: { type: 'string' }, list: { type: 'boolean', default: false } },
  });
  if (values.list) {
    for (const { name, title } of STAGES) console.log(`${name.padEnd(16)} ${title}`);
    return 0;
  }
  const [only, skip] = [values.only, values.skip].map((list) => list?.split(',').filter(Boolean));
  const unknown = [...(only ?? []), ...(skip ?? [])].filter((name) => STAGES.every((stage) => stage.name !== name));
  if (unknown.length > 0) {
    console.error(`no stage ${unknown.join(', ')}; there are ${STAGES.map(({ name }) => name).join(', ')}`);
    return 2;
  }
  await chooseCargo();

  const started = performance.now();
  /** @type {string[]} */
  const summary = [];
  const count = { passed: 0, failed: 0, skipped: 0 };
  for (const { name, title, unavailable, run } of STAGES.filter(
    (stage) => (only?.includes(stage.name) ?? true) && !skip?.includes(stage.name),
  )) {
    const reason = unavailable?.() ?? null;
    if (reason !== null) {
      count.skipped++;
      summary.push(`skipped  ${name.padEnd(16)} ${reason}`);
      console.log(`\n== ${name}: skipped: ${reason}`);
      continue;
    }
    console.log(`\n== ${name}: ${title}`);
    const since = performance.now();
    const passed = await run();
    count[passed ? 'passed' : 'failed']++;
    summary.push(`${passed ? 'passed ' : 'FAILED '}  ${name.padEnd(16)} ${seconds(since)}`);
    console.log(`== ${name}: ${passed ? 'passed' : 'FAILED'} in ${seconds(since)}`);
  }
  console.log(`\n${summary.join('\n')}`);
  console.log(
    `stages: ${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped, in ${seconds(started)}`,
  );
  return count.failed === 0 ? 0 : 1;
}

process.exitCode = await main();
