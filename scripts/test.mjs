#!/usr/bin/env node
// Everything that must hold, stage by stage, in two tiers; `npm test` and `npm run test:full` run it after the set-up step.
//
//   node scripts/test.mjs [--tier quick|rest|full] [--only NAME,…] [--skip NAME,…] [--list]
//
// `quick` (npm test) is what every change has to pass: formats, lints, types, Rust, and JavaScript on the default device, as it
// is and under validation. `rest` is everything else: other drivers and runtimes, faults, fuzzing, races, load, packages. `full`
// is both. Stages `apart` are in no tier: `--only` runs them.
//
// Two stages at a time share the processors (--lanes), each in a process of its own: what was begun first is shown first. A stage that
// fails does not stop the others; the run fails at its end. A stage that this machine cannot run says why and counts as skipped. The
// end is what failed once more (in CI), the test files that took longest, and a table of times, which are also written to
// ~/.cache/helios-vk/test-times-TIER.json.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';

import { UsageError, runMain } from '../bin/lib/options.mjs';
import { chooseCargo, hasValidationLayer } from './bootstrap.mjs';
import * as fuzz from './fuzz.mjs';
import { findChromium } from '../packages/lm/test/lib/chromium.mjs';
import * as llama from './llama.mjs';
import { obstacle } from './mesa-root.mjs';
import * as onnx from './onnx.mjs';
import * as races from './races.mjs';
import { Unavailable, lintWorkflows } from './platforms/tools.mjs';
import * as runtimes from './runtimes.mjs';
import { stopwatch, timesText } from './stopwatch.mjs';
import * as swiftshader from './swiftshader.mjs';
import { LAYER_MESSAGE } from './system.mjs';
import { REPOSITORY, cargo, each, failures, fileTimes, run, tests } from './test-commands.mjs';
import { DISTRIBUTED, FILES, OF_LAVAPIPES_COMPILER, OF_NN, any, testFiles } from './test-files.mjs';
import { runLanes, slowest, writeReport } from './test-lanes.mjs';

const TRACE = join(dirname(REPOSITORY), 'shared/traces/gpt300m-5steps.jsonl.gz');
const TSC = 'node_modules/typescript/bin/tsc';
/** Which files the compiler has found to be right. */
const CHECKED = 'node_modules/.cache/helios-vk/checked.tsbuildinfo';
const TYPEDOC = 'node_modules/typedoc/bin/typedoc';
/** The replay's buffers take 15 GB; divided by this they fit any machine. */
const REPLAY_SCALE = '64';
/** Barriers that one of its steps may take. */
const MAX_BARRIERS = 4400;

/**
 * @typedef {object} Stage
 * @property {string} name
 * @property {string} title
 * @property {boolean} [quick] whether `npm test` runs it
 * @property {boolean} [apart] whether it is in no tier: only `--only` runs it
 * @property {() => string | null} [unavailable] why it cannot run here, or null
 * @property {string} [holds] what it changes: stages that hold the same do not run side by side
 * @property {boolean} [beside] whether it goes on beside all others, with what these leave of the processors
 * @property {(full: boolean) => Promise<boolean>} run whether it passed; `full`: both tiers are run, so that what the slow stages
 *   do in full need not be done before
 */

/** Why groups of processes cannot be tested here, or null. */
function noMpi() {
  const known = ['mpiexec.openmpi', 'mpiexec.mpich', 'mpiexec'].some((name) => spawnSync(name, ['--version']).status === 0);
  return known ? null : 'no MPI is installed (apt-get install openmpi-bin mpich)';
}

const UNDER_VALIDATION = { environment: { HELIOS_VALIDATION: '1' }, forbidden: LAYER_MESSAGE };
/** What `npm test` sets for the suite: less of what __test__/lib/addon.mjs can make less. */
const LIGHT = { HELIOS_TEST_LIGHT: '1' };

const inMesaRoot = (/** @type {string[]} */ command) => [process.execPath, join('scripts', 'mesa-root.mjs'), 'run', '--', ...command];

/** What replays two steps of the recorded run and checks them. */
function replayArguments() {
  const trace = relative(REPOSITORY, TRACE);
  return ['packages/alpha-backend/bench/replay.mjs', '--trace', trace, '--steps', '2', '--scale', REPLAY_SCALE, '--check'];
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
    console.error(`${stdout}\npackages/alpha-backend/bench/replay.mjs ended with ${status}`);
    return false;
  }
  const { device, barriers, checks } = JSON.parse(stdout);
  const agrees = checks.flatMap((/** @type {{ agrees: boolean[] }} */ { agrees }) => agrees);
  console.log(`${device}: barriers by step ${barriers.join(', ')} (at most ${MAX_BARRIERS}); as if serial by step: ${agrees.join(', ')}`);
  const few = barriers.length === 2 && barriers.every((/** @type {number} */ count) => count > 0 && count <= MAX_BARRIERS);
  return few && agrees.length === 2 && agrees.every(Boolean);
}

/**
 * Stages side by side are begun in this order: in each tier what takes long stands before what fills the lanes at the end.
 * @type {Stage[]}
 */
const STAGES = [
  {
    name: 'fmt',
    quick: true,
    title: 'Rust is formatted',
    run: () =>
      each(
        ['Cargo.toml', '__test__/fuzz/Cargo.toml', '__test__/races/Cargo.toml'].map((file) => [
          'cargo',
          'fmt',
          '--all',
          '--check',
          '--manifest-path',
          file,
        ]),
      ),
  },
  {
    name: 'lint',
    quick: true,
    title: 'JavaScript and TypeScript are formatted and linted (Biome); the form of commit messages',
    run: () =>
      each(
        [['node_modules/@biomejs/biome/bin/biome', 'check', '--error-on-warnings', '.'], ['scripts/commit-msg.mjs']].map((command) => [
          process.execPath,
          ...command,
        ]),
      ),
  },
  {
    name: 'js',
    quick: true,
    title: 'JS suite, with small counts and without what takes long',
    run: (full) => run(tests(FILES.js(full)), { environment: LIGHT }),
  },
  {
    name: 'validation',
    quick: true,
    title: 'JS suite under the validation layer with synchronization checks',
    unavailable: () => (hasValidationLayer() ? null : 'the Khronos validation layer is not installed'),
    run: (full) => run(tests(FILES.validation(full)), { ...UNDER_VALIDATION, environment: { ...UNDER_VALIDATION.environment, ...LIGHT } }),
  },
  {
    name: 'clippy',
    quick: true,
    holds: 'target/debug',
    title: 'Clippy is content; what stands in for the addon under ThreadSanitizer fits it',
    run: () =>
      each(
        [
          ['--workspace', '--all-targets'],
          ['--manifest-path', '__test__/races/Cargo.toml', '--target-dir', 'target/races'],
        ].map((what) => ['cargo', 'clippy', ...what, '--locked', '--', '-D', 'warnings']),
      ),
  },
  {
    name: 'rust',
    quick: true,
    holds: 'target/debug',
    title: 'Rust tests',
    run: () =>
      cargo(
        'test',
        '--locked',
        '--package',
        'helios-vk',
        '--package',
        'collectives',
        '--package',
        'handle-table',
        '--package',
        'kernel-codegen',
        '--package',
        'plan',
        '--package',
        'memory-policy',
        '--package',
        'pipeline-cache',
        '--package',
        'ptx-check',
        '--package',
        'spirv-check',
      ),
  },
  {
    name: 'packages',
    quick: true,
    title: 'packages/: built, their types, tests without whole runs of training, and the time of their calls',
    run: () =>
      each(
        [
          [TSC, '-p', 'packages/alpha-backend'],
          [TSC, '-p', 'packages/alpha-backend/test'],
          tests(FILES.packages()).slice(1),
          ['packages/alpha-backend/bench/calls.mjs', '--steps', '8'],
        ].map((command) => [process.execPath, ...command]),
      ),
  },
  {
    name: 'types',
    quick: true,
    title: 'types of the package and of all scripts, after the declarations and the reference were made of these sources',
    run: () =>
      each(
        [['scripts/made.mjs'], [TSC, '--noEmit', '--incremental', '--tsBuildInfoFile', CHECKED]].map((command) => [
          process.execPath,
          ...command,
        ]),
      ),
  },
  {
    name: 'generated',
    quick: true,
    title: 'the committed binding.js and index.d.ts are those of this build',
    unavailable: () => (process.env.CI && isCheckout() ? null : 'only in CI, on a checkout'),
    run: () => run(['git', 'diff', '--exit-code', '--stat', '--', 'binding.js', 'index.d.ts']),
  },
  {
    name: 'mesa-validation',
    holds: 'the root of the newer Mesa',
    title: 'JS suite, recorded run and ten training steps on a newer Mesa under its validation layer',
    unavailable: noMesaRoot,
    run: () =>
      each(
        [
          // Of many similar cases the older driver and the older layer run all.
          ['env', 'HELIOS_TEST_LIGHT=1', ...tests(FILES['mesa-validation'](), { node: 'node' })],
          ...(existsSync(TRACE) ? [['node', ...replayArguments()]] : []),
          ['node', 'benches/train.mjs', '--steps', '10'],
        ].map((command) => inMesaRoot(['env', 'HELIOS_VALIDATION=1', ...command])),
        { forbidden: LAYER_MESSAGE },
      ),
  },
  {
    name: 'swiftshader',
    title: "JS suite on SwiftShader, Chromium's software driver, with small counts",
    unavailable: swiftshader.obstacle,
    run: onSwiftShader,
  },
  {
    name: 'js-slow',
    title: 'what takes long of the JS suite and of the packages, and what does less in the quick tier, in full',
    run: () => run(tests(FILES['js-slow']())),
  },
  {
    name: 'sets',
    title: 'JS suite without the arithmetic of kernels on descriptor sets, with small counts',
    run: () => run(tests(FILES.sets()), { environment: { HELIOS_DISABLE_PUSH_DESCRIPTORS: '1', ...LIGHT } }),
  },
  {
    name: 'recorder',
    title: 'JS suite without kernels and training as on a GPU: with a recording thread, and memory that the host does not see',
    run: async () => {
      const files = FILES.recorder();
      const environment = { HELIOS_RECORD_THREAD: '1', HELIOS_TEST_STAGED: '1' };
      // Threads meet in many ways: counts of calls are full. Those of tensors are of values, and small; `js-slow` tries all moments of compilation.
      const small = any(OF_NN, OF_LAVAPIPES_COMPILER);
      const calls = await run(tests(files.filter((file) => !small.test(file))), { environment });
      return (await run(tests(files.filter((file) => small.test(file))), { environment: { ...environment, ...LIGHT } })) && calls;
    },
  },
  {
    name: 'validation-slow',
    title: 'training, functions of tensors, and what does less in the quick tier, under the validation layer',
    unavailable: () => (hasValidationLayer() ? null : 'the Khronos validation layer is not installed'),
    run: () => run(tests(FILES['validation-slow']()), UNDER_VALIDATION),
  },
  {
    name: 'distributed',
    title: 'groups of processes over Open MPI and MPICH: results, order, and every way in which one of them can end',
    unavailable: noMpi,
    // Nothing of it may hang, and nor may the run.
    run: async () => {
      const { LAUNCHERS } = await import('../__test__/distributed/launchers.mjs');
      const over = LAUNCHERS.map(({ name, path, environment }) => [name, path, environment.HELIOS_MPI_LIBRARY].filter(Boolean).join(', '));
      console.log(`over ${over.join('; ')}`);
      // They wait for each other's ends more than for a processor.
      return run(tests(DISTRIBUTED, { options: ['--test-concurrency=2'] }), { limitMs: 900_000 });
    },
  },
  {
    name: 'faults',
    holds: 'target/release',
    title: 'every Vulkan call fails once, in every place',
    unavailable: () => (process.platform === 'linux' ? null : 'the fault-injecting layer is made for Linux'),
    run: async () =>
      (await cargo('build', '--release', '--locked', '--package', 'helios-faults')) &&
      run(
        tests(
          ['faults', 'ptx', 'portability', 'collective', 'nccl'].map((name) => `__test__/faults/${name}.test.mjs`),
          { options: ['--expose-gc'] },
        ),
      ),
  },
  {
    name: 'fuzz',
    holds: 'target/release',
    title:
      'fuzzing: packed decoder, SPIR-V reflection, hazard planner, all calls, nn programs and damaged ONNX files, and drivers with damaged shaders',
    unavailable: fuzz.obstacle,
    run: async () => {
      // Each run has other seeds: what one finds in twice the time, two find.
      const first = await Promise.all([run([process.execPath, '__test__/fuzz/calls.mjs', '--seconds', '40']), fuzz.run({ seconds: 40 })]);
      // Each of these keeps one processor busy.
      const second = await Promise.all([run([process.execPath, '__test__/fuzz/nn.mjs', '--seconds', '40']), damagedShaders()]);
      const third = [await run([process.execPath, '__test__/fuzz/onnx.mjs', '--seconds', '20'])];
      return [...first, ...second, ...third].every(Boolean);
    },
  },
  {
    name: 'runtimes',
    title: 'reads in Node 20, 22, 24 and 26, Bun and Deno',
    unavailable: runtimes.obstacle,
    run: () => run([process.execPath, 'scripts/runtimes.mjs']),
  },
  {
    name: 'races',
    title: 'recorder and completion threads, readback memory and the thread of a group under ThreadSanitizer',
    unavailable: races.obstacle,
    run: async () => races.run(),
  },
  {
    name: 'package',
    holds: 'the root of the newer Mesa',
    title: 'the packed packages, installed elsewhere and used without a toolchain and a network',
    run: () => run([process.execPath, 'scripts/pack.mjs', '--check']),
  },
  {
    name: 'onnx',
    title: "ONNX's backend tests through the file format, and what helios-onnx exports by ONNX's own evaluator",
    unavailable: onnx.obstacle,
    run: () => each(['backend', 'exports'].map((file) => [process.execPath, `packages/onnx/test/${file}.mjs`])),
  },
  {
    name: 'mesa',
    holds: 'the root of the newer Mesa',
    title: 'functions of tensors on a newer Mesa, with cooperative matrices; all else the next stage runs there',
    unavailable: noMesaRoot,
    // Without what needs npm and git, which the root has not, and no device. Of moments of compilation `js-slow` tries all.
    run: () => run(inMesaRoot(['env', 'HELIOS_TEST_LIGHT=1', ...tests(FILES.mesa(), { node: 'node' })])),
  },
  {
    name: 'llama',
    title: 'models and tokenizers in GGUF against llama.cpp',
    unavailable: llama.obstacle,
    run: () => run(tests(['packages/lm/test/gguf-llama.test.mjs'])),
  },
  {
    name: 'page',
    title: 'the page of a training run in headless Chromium',
    unavailable: () => (findChromium() ? null : 'there is no Chromium'),
    run: () => run(tests(['packages/lm/test/log-page.test.mjs'])),
  },
  {
    name: 'docs',
    title: 'the API reference, generated from the types without a warning',
    unavailable: () => (existsSync(join(REPOSITORY, TYPEDOC)) ? null : 'typedoc is not installed'),
    run: () => run([process.execPath, TYPEDOC]),
  },
  {
    name: 'benches',
    holds: 'target/debug',
    title: 'the benches that the suite does not run, once, small',
    run: () => each(benches()),
  },
  {
    name: 'replay',
    title: 'two steps of the recorded training run',
    unavailable: () => (existsSync(TRACE) ? null : `no recording at ${relative(REPOSITORY, TRACE)}`),
    run: replay,
  },
  {
    name: 'train',
    title: 'three steps of npm run train',
    run: async () => {
      const folder = mkdtempSync(join(tmpdir(), 'helios-lm-'));
      try {
        return await run([process.execPath, 'packages/lm/bin/helios-lm.mjs', 'train', '--max-steps', '3', '--out', join(folder, 'run')]);
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    },
  },
  {
    name: 'supply',
    title: 'licences, advisories, sources, bills of materials; the workflows',
    unavailable: () => (spawnSync('cargo', ['--version'], { stdio: 'ignore' }).status === 0 ? null : 'no cargo'),
    run: async () => (await run([process.execPath, 'scripts/supply.mjs'])) && workflowsAreRight(),
  },
  {
    name: 'nccl-library',
    holds: 'target/release',
    title: "NCCL's own library without a driver of CUDA: found, its version, and what a group over it says",
    unavailable: () =>
      process.env.HELIOS_NCCL_LIBRARY ? null : 'HELIOS_NCCL_LIBRARY names no NCCL (305 MB: pip download --no-deps nvidia-nccl-cu13)',
    run: async () =>
      (await cargo('build', '--release', '--locked', '--package', 'helios-faults')) &&
      run(tests(['__test__/faults/nccl-library.test.mjs'])),
  },
  {
    name: 'trainer',
    title: 'ten steps of an existing trainer, with its optimizer, under the validation layer',
    unavailable: () =>
      !process.env.HELIOS_TEST_TRAINER
        ? 'HELIOS_TEST_TRAINER names no built checkout of it'
        : hasValidationLayer()
          ? null
          : 'the Khronos validation layer is not installed',
    run: () => run([process.execPath, 'packages/alpha-backend/bench/validate.mjs', process.env.HELIOS_TEST_TRAINER ?? '']),
  },
  {
    name: 'platforms',
    apart: true,
    title: 'the binary of every platform, built, and run where this machine can; the suite in every runtime: two hours, 1.2 GB to fetch',
    unavailable: () => (process.platform === 'linux' ? null : 'the other platforms are built on Linux'),
    run: () => run([process.execPath, 'scripts/platforms.mjs']),
  },
  {
    name: 'devices',
    apart: true,
    title: 'kernels and compiled functions on this machine’s device, with the limits of other devices imposed',
    run: () => run([process.execPath, 'scripts/platforms/devices.mjs']),
  },
  {
    name: 'soak',
    beside: true,
    title: 'ten minutes of a random training-like load beside all this: results, memory, handles, the timeline beyond 2^32',
    run: () => run([process.execPath, 'scripts/soak.mjs', '--minutes', '10']),
  },
];

/** The JS suite on SwiftShader; what was skipped there, by reason. */
async function onSwiftShader() {
  const folder = mkdtempSync(join(tmpdir(), 'helios-suite-'));
  const report = join(folder, 'report.tap');
  // Reporters and destinations go together in their order: the suite's own comes first.
  const options = ['--test-reporter-destination=stdout', '--test-reporter=tap', `--test-reporter-destination=${report}`];
  const passed = await run(tests(FILES.swiftshader(), { options }), { environment: { ...onSwiftShaderAlone(), ...LIGHT } });
  /** @type {Map<string, number>} */
  const skipped = new Map();
  for (const [, reason] of readFileSync(report, 'utf8').matchAll(/^\s*ok \d+ .* # SKIP ?(.*)$/gm)) {
    skipped.set(reason, (skipped.get(reason) ?? 0) + 1);
  }
  rmSync(folder, { recursive: true });
  const here = FILES.swiftshader();
  const left = testFiles().filter((file) => !here.includes(file));
  console.log(`not run here: ${left.join(', ')}`);
  for (const [reason, count] of skipped) console.log(`skipped ${count}: ${reason}`);
  return passed;
}

/** Whether GitHub would take the workflows, or no linter of them can be had. */
function workflowsAreRight() {
  try {
    lintWorkflows();
    return true;
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    console.log(error instanceof Unavailable ? `the workflows are not linted: ${message}` : message);
    return error instanceof Unavailable;
  }
}

/** Damaged shaders in safe mode on the driver that is the default, and on SwiftShader: none may end its process. */
async function damagedShaders() {
  const command = [process.execPath, '__test__/fuzz/shaders.mjs', '--seconds', '20'];
  const passed = await run(command);
  const reason = swiftshader.obstacle();
  if (reason !== null) console.log(`damaged shaders not tried on SwiftShader: ${reason}`);
  return (reason !== null || (await run(command, { environment: onSwiftShaderAlone() }))) && passed;
}

/** The environment that has the loader take SwiftShader alone. */
function onSwiftShaderAlone() {
  return { VK_DRIVER_FILES: swiftshader.manifest(), VK_ICD_FILENAMES: swiftshader.manifest() };
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

/** Benches in a size that takes seconds; those of calls and kernels run in the suite, which checks what they say. */
function benches() {
  return [[process.execPath, 'packages/alpha-backend/bench/trainer-tokens.mjs', '--quick']];
}

function isCheckout() {
  return spawnSync('git', ['ls-files', '--error-unmatch', 'binding.js'], { cwd: REPOSITORY, stdio: 'ignore' }).status === 0;
}

const OPTIONS = /** @type {const} */ ({
  tier: {
    type: 'string',
    choices: ['quick', 'rest', 'full'],
    help: 'stages to run: quick (the default without --only), rest (all others) or full (all)',
  },
  only: { type: 'string', value: 'STAGES', help: 'run only these, separated by commas' },
  skip: { type: 'string', value: 'STAGES', help: 'run all but these' },
  lanes: {
    type: 'integer',
    min: 1,
    max: 64,
    default: Math.min(2, availableParallelism()),
    help: 'stages at a time, which share the processors',
  },
  list: { type: 'boolean', help: 'list the stages' },
});

/** @param {import('../bin/lib/options.mjs').ValuesOf<typeof OPTIONS>} values */
async function main(values) {
  if (values.list) {
    for (const { name, title, quick, apart } of STAGES)
      console.log(`${apart ? 'apart' : quick ? 'quick' : 'full '}  ${name.padEnd(16)} ${title}`);
    return 0;
  }
  const [only, skip] = [values.only, values.skip].map((list) => list?.split(',').filter(Boolean));
  const unknown = [...(only ?? []), ...(skip ?? [])].filter((name) => STAGES.every((stage) => stage.name !== name));
  if (unknown.length > 0) {
    throw new UsageError(`no stage ${unknown.join(', ')}; there are ${STAGES.map(({ name }) => name).join(', ')}`);
  }
  await chooseCargo();

  const tier = values.tier ?? (only ? 'full' : 'quick');
  const inTier = (/** @type {Stage} */ { name, quick = false, apart = false }) =>
    apart ? only?.includes(name) === true : tier === 'full' || quick === (tier === 'quick');
  const chosen = STAGES.filter((stage) => inTier(stage) && (only?.includes(stage.name) ?? true) && !skip?.includes(stage.name));
  const started = stopwatch();
  const lanes = Math.min(values.lanes, chosen.length);
  const outcomes =
    lanes > 1
      ? await runLanes(chosen, { lanes, command: (name) => [process.execPath, 'scripts/test.mjs', '--tier', tier, '--only', name] })
      : await oneByOne(chosen, tier === 'full');
  if (process.send && process.env.HELIOS_TEST_LANES) {
    process.send(outcomes[0]);
    return outcomes[0].result === 'failed' ? 1 : 0;
  }

  for (const { name, failures } of outcomes) if (failures.length > 0) console.log(`\n== ${name}, again:\n${failures.join('\n')}`);
  const all = started();
  const lines = outcomes.map((outcome) => {
    const { name, result, reason } = outcome;
    return `${result === 'failed' ? 'FAILED ' : result.padEnd(7)}  ${name.padEnd(16)} ${reason ?? timesText(outcome)}`;
  });
  console.log(`\n${[...slowest(outcomes), '', ...lines, `         ${'all'.padEnd(16)} ${timesText(all)}`].join('\n')}`);
  if (chosen.length > 1) console.log(`seconds of stages and test files: ${writeReport(only ? 'some' : tier, outcomes, all)}`);
  const [passed, failed, skipped] = ['passed', 'failed', 'skipped'].map((kind) => outcomes.filter(({ result }) => result === kind).length);
  console.log(`stages: ${passed} passed, ${failed} failed, ${skipped} skipped`);
  if (tier === 'quick') console.log('`npm run test:full` runs the others too');
  return failed === 0 ? 0 : 1;
}

/**
 * Runs stages in this process.
 * @param {Stage[]} stages
 * @param {boolean} full whether both tiers are run
 */
async function oneByOne(stages, full) {
  /** @type {import('./test-lanes.mjs').Outcome[]} */
  const outcomes = [];
  for (const { name, title, unavailable, run } of stages) {
    const reason = unavailable?.() ?? null;
    if (reason !== null) {
      console.log(`\n== ${name}: skipped: ${reason}`);
      outcomes.push({ name, result: 'skipped', reason, wall: 0, processor: null, failures: [], files: [] });
      continue;
    }
    console.log(`\n== ${name}: ${title}`);
    const stage = stopwatch();
    const passed = await run(full);
    const times = stage();
    const said = failures.splice(0);
    outcomes.push({ name, result: passed ? 'passed' : 'failed', ...times, failures: passed ? [] : said, files: fileTimes() });
    console.log(`== ${name}: ${passed ? 'passed' : 'FAILED'} in ${timesText(times).trim()}`);
  }
  return outcomes;
}

await runMain('npm test -- [options]', OPTIONS, main);
