#!/usr/bin/env node
// Everything that must hold, stage by stage; `npm test` runs it after the set-up step.
//
//   node scripts/test.mjs [--only NAME,…] [--skip NAME,…] [--list]
//
// A stage that fails does not stop the others; the run fails at its end. A stage that this machine
// cannot run says why and counts as skipped.

import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { chooseCargo, hasValidationLayer } from './bootstrap.mjs';
import * as fuzz from './fuzz.mjs';
import { obstacle } from './mesa-root.mjs';
import * as races from './races.mjs';
import * as swiftshader from './swiftshader.mjs';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
const TRACE = join(dirname(REPOSITORY), 'shared/traces/gpt300m-5steps.jsonl.gz');
const TYPEDOC = 'node_modules/typedoc/bin/typedoc';
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
 * @property {() => void} [begin] starts what goes on beside the stages before it
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

/**
 * A command that takes what the stages leave of the processors, until `run` waits for its end and shows what it printed.
 * @param {string[]} command
 */
function beside(command) {
  /** @type {Promise<boolean> | undefined} */
  let ended;
  let output = '';
  const begin = () => {
    const polite = process.platform === 'win32' ? command : ['nice', '-n', '19', ...command];
    const child = spawn(polite[0], polite.slice(1), { cwd: REPOSITORY, stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
    process.once('exit', () => child.kill('SIGKILL'));
    ended = new Promise((done) => {
      child.on('error', (error) => {
        output += `${command[0]}: ${error.message}\n`;
        done(false);
      });
      child.on('close', (status, signal) => {
        if (signal) output += `${command[0]}: ended by ${signal}\n`;
        done(status === 0);
      });
    });
  };
  const run = async () => {
    if (!ended) begin();
    const passed = await ended;
    process.stdout.write(output);
    return passed === true;
  };
  return { begin, run };
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

/** Tests of what a variant of the device's set-up cannot change. */
const NOT_OF_THE_DEVICE = /\/(bench-lib|benches|bootstrap|cli|cli-decisions|load-error|package)\.test/;
/** Tests of kernels, whose arithmetic does not depend on how commands are recorded, and of training with them. */
const OF_KERNELS = /\/(kernels\/|kernels\.test|gpt-)/;

/**
 * The suite but for some files.
 * @param {RegExp} files
 */
const suiteWithout = (files) => suite().filter((word) => !files.test(word));

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
 * @param {Parameters<typeof run>[1]} [options]
 */
async function each(commands, options) {
  let passed = true;
  for (const command of commands) passed = (await run(command, options)) && passed;
  return passed;
}

/** What replays two steps of the recorded run and checks them. */
function replayArguments() {
  const trace = relative(REPOSITORY, TRACE);
  return ['benches/replay.mjs', '--trace', trace, '--steps', '2', '--scale', REPLAY_SCALE, '--check'];
}

/** The recorded run: what it read is what it reads with every dispatch alone, and barriers are few. */
async function replay() {
  const { stdout, status } = spawnSync(process.execPath, [...replayArguments(), '--json'], {
    cwd: REPOSITORY,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
    maxBuffer: 64 << 20,
  });
  if (status !== 0) {
    console.error(`${stdout}\nbenches/replay.mjs ended with ${status}`);
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
  { name: 'fmt', title: 'Rust is formatted', run: () => each(['Cargo.toml', 'fuzz/Cargo.toml', 'races/Cargo.toml'].map((file) => ['cargo', 'fmt', '--all', '--check', '--manifest-path', file])) },
  {
    name: 'clippy',
    title: 'Clippy is content',
    run: () => cargo('clippy', '--workspace', '--all-targets', '--locked', '--', '-D', 'warnings'),
  },
  { name: 'rust', title: 'Rust tests', run: () => cargo('test', '--locked') },
  {
    name: 'types',
    title: 'types of the package and of all scripts',
    run: () => each([['node_modules/typescript/bin/tsc', '--noEmit'], ['scripts/kernel-types.mjs', '--check']].map((command) => [process.execPath, ...command])),
  },
  {
    name: 'docs',
    title: 'the API reference, generated from the types without a warning',
    unavailable: () => (existsSync(join(REPOSITORY, TYPEDOC)) ? null : 'typedoc is not installed'),
    run: () => run([process.execPath, TYPEDOC]),
  },
  {
    name: 'generated',
    title: 'the committed binding.js and index.d.ts are those of this build',
    unavailable: () => (process.env.CI && isCheckout() ? null : 'only in CI, on a checkout'),
    run: () => run(['git', 'diff', '--exit-code', '--stat', '--', 'binding.js', 'index.d.ts']),
  },
  { name: 'js', title: 'JS suite', run: () => run(suite()) },
  {
    name: 'sets',
    title: 'JS suite on descriptor sets',
    run: () => run(suiteWithout(NOT_OF_THE_DEVICE), { environment: { HELIOS_DISABLE_PUSH_DESCRIPTORS: '1' } }),
  },
  {
    name: 'recorder',
    title: 'JS suite without kernels and training as on a GPU: with a recording thread, and memory that the host does not see',
    run: () =>
      run(
        suiteWithout(NOT_OF_THE_DEVICE).filter((word) => !OF_KERNELS.test(word)),
        { environment: { HELIOS_RECORD_THREAD: '1', HELIOS_TEST_STAGED: '1' } },
      ),
  },
  {
    name: 'validation',
    title: 'JS suite under the validation layer with synchronization checks',
    unavailable: () => (hasValidationLayer() ? null : 'the Khronos validation layer is not installed'),
    run: () => run(suite(), { environment: { HELIOS_VALIDATION: '1' }, forbidden: LAYER_MESSAGE }),
  },
  {
    name: 'faults',
    title: 'every Vulkan call fails once, in every place',
    unavailable: () => (process.platform === 'linux' ? null : 'the fault-injecting layer is made for Linux'),
    run: async () =>
      (await cargo('build', '--release', '--locked', '--package', 'helios-faults')) &&
      run([process.execPath, '--expose-gc', '--test', '--test-reporter=spec', 'faults/faults.test.mjs']),
  },
  {
    name: 'fuzz',
    title: 'a minute of fuzzing: packed decoder, SPIR-V reflection, hazard planner, and all calls',
    unavailable: fuzz.obstacle,
    run: async () => {
      const calls = run([process.execPath, 'fuzz/calls.mjs', '--seconds', '60']);
      return [await fuzz.run({ seconds: 60 }), await calls].every(Boolean);
    },
  },
  {
    name: 'races',
    title: 'recorder, background and completion threads and readback memory under ThreadSanitizer',
    unavailable: races.obstacle,
    run: async () => races.run(),
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
    name: 'package',
    title: 'the packed packages, installed elsewhere and used without a toolchain and a network',
    run: () => run([process.execPath, 'scripts/pack.mjs', '--check']),
  },
  {
    name: 'supply',
    title: 'licences, advisories, sources, bills of materials',
    unavailable: () => (spawnSync('cargo', ['--version'], { stdio: 'ignore' }).status === 0 ? null : 'no cargo'),
    run: () => run([process.execPath, 'scripts/supply.mjs']),
  },
  {
    name: 'swiftshader',
    title: "JS suite on SwiftShader, Chromium's software driver",
    unavailable: swiftshader.obstacle,
    run: onSwiftShader,
  },
  {
    name: 'mesa',
    title: 'JS suite on a newer Mesa, with cooperative matrices',
    unavailable: noMesaRoot,
    run: () => run(inMesaRoot(suite('node'))),
  },
  {
    name: 'mesa-validation',
    title: 'JS suite, recorded run and ten training steps on a newer Mesa under its validation layer',
    unavailable: noMesaRoot,
    run: () =>
      each(
        [
          suite('node'),
          ...(existsSync(TRACE) ? [['node', ...replayArguments()]] : []),
          ['node', 'benches/train.mjs', '--steps', '10'],
        ].map((command) =>
          inMesaRoot(['env', 'HELIOS_VALIDATION=1', ...command]),
        ),
        { forbidden: LAYER_MESSAGE },
      ),
  },
  {
    name: 'soak',
    title: 'ten minutes of a random training-like load beside all this: results, memory, handles, the timeline beyond 2^32',
    ...beside([process.execPath, 'scripts/soak.mjs', '--minutes', '10']),
  },
];

/**
 * Test files that SwiftShader does not run: those that meet no driver, and those that compile all of the
 * training's pipelines in many processes, which takes it minutes each, since it keeps no cache of them.
 */
const NOT_ON_SWIFTSHADER = /\/(bench-lib|benches|bootstrap|cli|cli-decisions|gpt-train|load-error|package)\.test/;

/** The JS suite on SwiftShader; what was skipped there, by reason. */
async function onSwiftShader() {
  const folder = mkdtempSync(join(tmpdir(), 'helios-suite-'));
  const report = join(folder, 'report.tap');
  const command = suiteWithout(NOT_ON_SWIFTSHADER);
  const files = command.findIndex((word) => word.endsWith('.test.mjs'));
  // Reporters and destinations go together in their order: the suite's own comes first.
  const second = ['--test-reporter-destination=stdout', '--test-reporter=tap', `--test-reporter-destination=${report}`];
  const passed = await run([...command.slice(0, files), ...second, ...command.slice(files)], {
    environment: { VK_DRIVER_FILES: swiftshader.manifest(), VK_ICD_FILENAMES: swiftshader.manifest() },
  });
  /** @type {Map<string, number>} */
  const skipped = new Map();
  for (const [, reason] of readFileSync(report, 'utf8').matchAll(/^\s*ok \d+ .* # SKIP ?(.*)$/gm)) {
    skipped.set(reason, (skipped.get(reason) ?? 0) + 1);
  }
  rmSync(folder, { recursive: true });
  const left = suite().filter((word) => NOT_ON_SWIFTSHADER.test(word));
  console.log(`not run here: ${left.join(', ')}`);
  for (const [reason, count] of skipped) console.log(`skipped ${count}: ${reason}`);
  return passed;
}

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
    spawnSync('git', ['ls-files', '--error-unmatch', 'binding.js'], { cwd: REPOSITORY, stdio: 'ignore' }).status === 0
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
  const chosen = STAGES.filter((stage) => (only?.includes(stage.name) ?? true) && !skip?.includes(stage.name));
  for (const { begin } of chosen) begin?.();
  for (const { name, title, unavailable, run } of chosen) {
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
