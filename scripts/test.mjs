#!/usr/bin/env node
// Everything that must hold, stage by stage, in two tiers; `npm test` and `npm run test:full` run it after the set-up step.
//
//   node scripts/test.mjs [--tier quick|rest|full] [--only NAME,…] [--skip NAME,…] [--list]
//
// `quick` (npm test) is what every change has to pass: formats, lints, types, Rust, and JavaScript on the default device, as it
// is and under validation. `rest` is everything else: other drivers and runtimes, faults, fuzzing, races, load, packages. `full`
// is both. Stages `apart` are in no tier: `--only` runs them.
//
// A stage that fails does not stop the others; the run fails at its end. A stage that this machine
// cannot run says why and counts as skipped. A table of times ends it all, in CI behind what failed once more.

import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

import { UsageError, runMain } from '../bin/lib/options.mjs';
import { chooseCargo, hasValidationLayer } from './bootstrap.mjs';
import * as fuzz from './fuzz.mjs';
import { findChromium } from '../packages/lm/test/lib/chromium.mjs';
import * as llama from './llama.mjs';
import { obstacle } from './mesa-root.mjs';
import * as onnx from './onnx.mjs';
import * as races from './races.mjs';
import * as runtimes from './runtimes.mjs';
import { stopwatch, timesText } from './stopwatch.mjs';
import * as swiftshader from './swiftshader.mjs';
import { LAYER_MESSAGE } from './system.mjs';
import {
  DISTRIBUTED,
  NOT_OF_THE_DEVICE,
  NOT_ON_SWIFTSHADER,
  OF_ARITHMETIC,
  OF_BENCHES,
  OF_FUNCTIONS,
  OF_KERNELS,
  OF_LAVAPIPES_COMPILER,
  OF_LIMITS,
  SLOW,
  SLOW_VALIDATED,
  OF_LM,
  any,
  hasCases,
  hasCounts,
  packageTests,
  testFiles,
} from './test-files.mjs';

const REPOSITORY = dirname(dirname(fileURLToPath(import.meta.url)));
const TRACE = join(dirname(REPOSITORY), 'shared/traces/gpt300m-5steps.jsonl.gz');
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
 * @property {() => void} [begin] starts what goes on beside the stages before it
 * @property {() => Promise<boolean>} run whether it passed
 */

/** Of which tests a stage's commands said at their end that they failed. @type {string[]} */
let failures = [];
/** Where the runners of Node and Cargo begin to say so, and of how many lines the end of all repeats it. */
const FAILURES = /^(✖ failing tests:|failures:)/;
const FAILURE_LINES = 60;

/**
 * Runs a command in the repository with its output shown.
 * @param {string[]} command
 * @param {{ environment?: Record<string, string>, forbidden?: RegExp, limitMs?: number }} [options] `forbidden`: a line
 *   that matches it fails the command; `limitMs`: so does taking longer
 * @returns {Promise<boolean>}
 */
function run([command, ...args], { environment = {}, forbidden, limitMs } = {}) {
  const looked = forbidden !== undefined || Boolean(process.env.CI);
  return new Promise((done) => {
    const child = spawn(command, args, {
      cwd: REPOSITORY,
      env: { ...process.env, ...environment },
      timeout: limitMs,
      stdio: ['ignore', looked ? 'pipe' : 'inherit', looked ? 'pipe' : 'inherit'],
      shell: process.platform === 'win32' && !command.endsWith('.exe'),
    });
    /** @type {string[]} */
    const offending = [];
    for (const [stream, target] of /** @type {const} */ ([
      [child.stdout, process.stdout],
      [child.stderr, process.stderr],
    ])) {
      let rest = '';
      let failed = false;
      const look = (/** @type {string} */ line) => {
        if (forbidden?.test(line)) offending.push(line);
        failed ||= FAILURES.test(line);
        if (failed && failures.length < FAILURE_LINES) failures.push(line);
      };
      stream?.setEncoding('utf8');
      stream?.on('data', (/** @type {string} */ chunk) => {
        target.write(chunk);
        const lines = (rest + chunk).split('\n');
        rest = lines.pop() ?? '';
        lines.forEach(look);
      });
      stream?.on('end', () => look(rest));
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

/** Why groups of processes cannot be tested here, or null. */
function noMpi() {
  const known = ['mpiexec.openmpi', 'mpiexec.mpich', 'mpiexec'].some((name) => spawnSync(name, ['--version']).status === 0);
  return known ? null : 'no MPI is installed (apt-get install openmpi-bin mpich)';
}

/**
 * The command that runs the JS suite; a test that hangs fails.
 * @param {string} [node]
 */
function suite(node = process.execPath) {
  // Node would leave one processor to itself, which is half of two.
  const concurrency = `--test-concurrency=${availableParallelism()}`;
  return [node, '--test', '--test-reporter=spec', '--test-timeout=900000', concurrency, ...testFiles()];
}

const UNDER_VALIDATION = { environment: { HELIOS_VALIDATION: '1' }, forbidden: LAYER_MESSAGE };
/** What `npm test` sets for the suite: less of what __test__/lib/addon.mjs can make less. */
const LIGHT = { HELIOS_TEST_LIGHT: '1' };

/** Devices of __test__/devices/facts.json whose limits differ the most from lavapipe's, and widths of a vector in bits. */
const LIMITED = [
  ['the least of Vulkan 1.3', '256'],
  ['Mali-G720', '512'],
  ['RX 7900 XTX', '256'],
];

/**
 * The suite but for some files.
 * @param {RegExp} files
 * @param {string} [node]
 */
const suiteWithout = (files, node = process.execPath) => suite(node).filter((word) => !files.test(word));

/** @param {string[]} args */
const cargo = (...args) => run(['cargo', ...args]);
const inMesaRoot = (/** @type {string[]} */ command) => [process.execPath, join('scripts', 'mesa-root.mjs'), 'run', '--', ...command];

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
  console.log(`${device}: barriers by step ${barriers.join(', ')} (at most ${MAX_BARRIERS}); as if serial by step: ${agrees.join(', ')}`);
  const few = barriers.length === 2 && barriers.every((/** @type {number} */ count) => count > 0 && count <= MAX_BARRIERS);
  return few && agrees.length === 2 && agrees.every(Boolean);
}

/** @type {Stage[]} */
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
    name: 'clippy',
    quick: true,
    title: 'Clippy is content',
    run: () => cargo('clippy', '--workspace', '--all-targets', '--locked', '--', '-D', 'warnings'),
  },
  {
    name: 'rust',
    quick: true,
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
    name: 'types',
    quick: true,
    title: 'types of the package and of all scripts, after the declarations and the reference were made of these sources',
    run: () =>
      each([['scripts/made.mjs'], ['node_modules/typescript/bin/tsc', '--noEmit']].map((command) => [process.execPath, ...command])),
  },
  {
    name: 'docs',
    title: 'the API reference, generated from the types without a warning',
    unavailable: () => (existsSync(join(REPOSITORY, TYPEDOC)) ? null : 'typedoc is not installed'),
    run: () => run([process.execPath, TYPEDOC]),
  },
  {
    name: 'generated',
    quick: true,
    title: 'the committed binding.js and index.d.ts are those of this build',
    unavailable: () => (process.env.CI && isCheckout() ? null : 'only in CI, on a checkout'),
    run: () => run(['git', 'diff', '--exit-code', '--stat', '--', 'binding.js', 'index.d.ts']),
  },
  {
    name: 'packages',
    quick: true,
    title: 'packages/: built, their types and tests, and the time of their calls',
    run: () =>
      each(
        [
          ['node_modules/typescript/bin/tsc', '-p', 'packages/alpha-backend'],
          ['node_modules/typescript/bin/tsc', '-p', 'packages/alpha-backend/test'],
          [
            '--test',
            '--test-reporter=spec',
            '--test-timeout=900000',
            ...packageTests('alpha-backend'),
            ...packageTests('lm'),
            ...packageTests('onnx'),
          ],
          ['packages/alpha-backend/bench/calls.mjs', '--steps', '8'],
        ].map((command) => [process.execPath, ...command]),
      ),
  },
  {
    name: 'page',
    title: 'the page of a training run in headless Chromium',
    unavailable: () => (findChromium() ? null : 'there is no Chromium'),
    run: () => run([process.execPath, '--test', '--test-reporter=spec', 'packages/lm/test/log-page.test.mjs']),
  },
  {
    name: 'llama',
    title: 'models and tokenizers in GGUF against llama.cpp',
    unavailable: llama.obstacle,
    run: () => run([process.execPath, '--test', '--test-reporter=spec', 'packages/lm/test/gguf-llama.test.mjs']),
  },
  {
    name: 'onnx',
    title: "ONNX's backend tests through the file format, and what helios-onnx exports by ONNX's own evaluator",
    unavailable: onnx.obstacle,
    run: () => each(['backend', 'exports'].map((file) => [process.execPath, `packages/onnx/test/${file}.mjs`])),
  },
  {
    name: 'js',
    quick: true,
    title: 'JS suite, with small counts and without what takes long',
    run: () =>
      run(
        suiteWithout(SLOW).filter((word) => !OF_LM.includes(word)),
        { environment: LIGHT },
      ),
  },
  {
    name: 'js-slow',
    title: 'what takes long of the JS suite, and what does less in the quick tier, in full',
    run: () => run(suite().filter((word) => !word.endsWith('.test.mjs') || SLOW.test(word) || hasCounts(word) || hasCases(word))),
  },
  {
    name: 'sets',
    title: 'JS suite without the arithmetic of kernels on descriptor sets',
    run: () =>
      run(suiteWithout(any(NOT_OF_THE_DEVICE, OF_ARITHMETIC, OF_FUNCTIONS, OF_LAVAPIPES_COMPILER, OF_BENCHES)), {
        environment: { HELIOS_DISABLE_PUSH_DESCRIPTORS: '1' },
      }),
  },
  {
    name: 'recorder',
    title: 'JS suite without kernels and training as on a GPU: with a recording thread, and memory that the host does not see',
    run: () =>
      run(suiteWithout(any(NOT_OF_THE_DEVICE, OF_KERNELS, OF_ARITHMETIC, OF_FUNCTIONS)), {
        environment: { HELIOS_RECORD_THREAD: '1', HELIOS_TEST_STAGED: '1' },
      }),
  },
  {
    name: 'validation',
    quick: true,
    title: 'JS suite under the validation layer with synchronization checks',
    unavailable: () => (hasValidationLayer() ? null : 'the Khronos validation layer is not installed'),
    run: () =>
      run(suiteWithout(any(NOT_OF_THE_DEVICE, OF_LAVAPIPES_COMPILER, SLOW_VALIDATED)), {
        ...UNDER_VALIDATION,
        environment: { ...UNDER_VALIDATION.environment, ...LIGHT },
      }),
  },
  {
    name: 'validation-slow',
    title: 'what takes long of the JS suite or does less in the quick tier, and training, under the validation layer',
    unavailable: () => (hasValidationLayer() ? null : 'the Khronos validation layer is not installed'),
    run: () =>
      run(
        suiteWithout(any(NOT_OF_THE_DEVICE, OF_LAVAPIPES_COMPILER, OF_BENCHES)).filter(
          (word) => !word.endsWith('.test.mjs') || SLOW_VALIDATED.test(word) || hasCases(word),
        ),
        UNDER_VALIDATION,
      ),
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
    name: 'faults',
    title: 'every Vulkan call fails once, in every place',
    unavailable: () => (process.platform === 'linux' ? null : 'the fault-injecting layer is made for Linux'),
    run: async () =>
      (await cargo('build', '--release', '--locked', '--package', 'helios-faults')) &&
      run([
        process.execPath,
        '--expose-gc',
        '--test',
        '--test-reporter=spec',
        '__test__/faults/faults.test.mjs',
        '__test__/faults/ptx.test.mjs',
        '__test__/faults/collective.test.mjs',
        '__test__/faults/nccl.test.mjs',
      ]),
  },
  {
    name: 'fuzz',
    title:
      'fuzzing: a minute of packed decoder, SPIR-V reflection, hazard planner, all calls, nn programs and damaged ONNX files, then drivers with damaged shaders',
    unavailable: fuzz.obstacle,
    run: async () => {
      const first = await Promise.all([run([process.execPath, '__test__/fuzz/calls.mjs', '--seconds', '60']), fuzz.run({ seconds: 60 })]);
      // Each of these keeps one processor busy.
      const second = await Promise.all([run([process.execPath, '__test__/fuzz/nn.mjs', '--seconds', '60']), damagedShaders()]);
      const third = [await run([process.execPath, '__test__/fuzz/onnx.mjs', '--seconds', '30'])];
      return [...first, ...second, ...third].every(Boolean);
    },
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
      return run([process.execPath, '--test', '--test-reporter=spec', '--test-concurrency=2', ...DISTRIBUTED], { limitMs: 480_000 });
    },
  },
  {
    name: 'nccl-library',
    title: "NCCL's own library without a driver of CUDA: found, its version, and what a group over it says",
    unavailable: () =>
      process.env.HELIOS_NCCL_LIBRARY ? null : 'HELIOS_NCCL_LIBRARY names no NCCL (305 MB: pip download --no-deps nvidia-nccl-cu13)',
    run: async () =>
      (await cargo('build', '--release', '--locked', '--package', 'helios-faults')) &&
      run([process.execPath, '--test', '--test-reporter=spec', '__test__/faults/nccl-library.test.mjs']),
  },
  {
    name: 'races',
    title: 'recorder and completion threads, readback memory and the thread of a group under ThreadSanitizer',
    unavailable: races.obstacle,
    run: async () => races.run(),
  },
  {
    name: 'runtimes',
    title: 'reads in Node 20, 22, 24 and 26, Bun and Deno',
    unavailable: runtimes.obstacle,
    run: () => run([process.execPath, 'scripts/runtimes.mjs']),
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
    name: 'benches',
    title: 'the benches that the suite does not run, once, small',
    run: () => each(benches()),
  },
  {
    name: 'package',
    title: 'the packed packages, installed elsewhere and used without a toolchain and a network',
    run: () => run([process.execPath, 'scripts/pack.mjs', '--check']),
  },
  {
    name: 'platforms',
    apart: true,
    title: 'the binary of every platform, built, and run where this machine can; the suite in every runtime: an hour, 1.2 GB to fetch',
    unavailable: () => (process.platform === 'linux' ? null : 'the other platforms are built on Linux'),
    run: () => each(['platforms.mjs', 'platforms/runtimes.mjs'].map((script) => [process.execPath, `scripts/${script}`])),
  },
  {
    name: 'devices',
    apart: true,
    title: 'kernels and compiled functions on this machine’s device, with the limits of other devices imposed',
    run: async () => {
      let passed = true;
      // Lavapipe's subgroups have as many lanes as a vector has words.
      for (const [device, bits] of LIMITED) {
        console.log(`on ${device}`);
        const environment = { ...LIGHT, HELIOS_TEST_DEVICE: device, LP_NATIVE_VECTOR_WIDTH: bits };
        passed =
          (await run(
            suite().filter((word) => !word.endsWith('.test.mjs') || OF_LIMITS.test(word)),
            { environment },
          )) && passed;
      }
      return passed;
    },
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
    // Without what needs npm and git, which the root has not, and no device.
    run: () => run(inMesaRoot(suiteWithout(NOT_OF_THE_DEVICE, 'node'))),
  },
  {
    name: 'mesa-validation',
    title: 'JS suite, recorded run and ten training steps on a newer Mesa under its validation layer',
    unavailable: noMesaRoot,
    run: () =>
      each(
        [
          // Of functions of tensors the stage `validation` runs all, with the same kernels.
          suiteWithout(any(NOT_OF_THE_DEVICE, OF_FUNCTIONS, OF_LAVAPIPES_COMPILER, OF_BENCHES), 'node'),
          ...(existsSync(TRACE) ? [['node', ...replayArguments()]] : []),
          ['node', 'benches/train.mjs', '--steps', '10'],
        ].map((command) => inMesaRoot(['env', 'HELIOS_VALIDATION=1', ...command])),
        { forbidden: LAYER_MESSAGE },
      ),
  },
  {
    name: 'soak',
    title: 'ten minutes of a random training-like load beside all this: results, memory, handles, the timeline beyond 2^32',
    ...beside([process.execPath, 'scripts/soak.mjs', '--minutes', '10']),
  },
];

/** The JS suite on SwiftShader; what was skipped there, by reason. */
async function onSwiftShader() {
  const folder = mkdtempSync(join(tmpdir(), 'helios-suite-'));
  const report = join(folder, 'report.tap');
  const command = suiteWithout(NOT_ON_SWIFTSHADER);
  const files = command.findIndex((word) => word.endsWith('.test.mjs'));
  // Reporters and destinations go together in their order: the suite's own comes first.
  const second = ['--test-reporter-destination=stdout', '--test-reporter=tap', `--test-reporter-destination=${report}`];
  const passed = await run([...command.slice(0, files), ...second, ...command.slice(files)], {
    environment: onSwiftShaderAlone(),
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
  return [
    [process.execPath, 'benches/trainer-tokens.mjs', '--quick'],
    // Criterion's test mode, in the profile of the tests: `cargo bench` would compile all anew.
    ['cargo', 'test', '--locked', '--bench', 'stages'],
  ];
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
  const started = stopwatch();
  /** @type {string[]} */
  const summary = [];
  /** @type {string[]} */
  const failed = [];
  const count = { passed: 0, failed: 0, skipped: 0 };
  const chosen = STAGES.filter((stage) => inTier(stage) && (only?.includes(stage.name) ?? true) && !skip?.includes(stage.name));
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
    const stage = stopwatch();
    failures = [];
    const passed = await run();
    if (!passed && failures.length > 0) failed.push(`\n== ${name}, again:`, ...failures);
    const times = timesText(stage());
    count[passed ? 'passed' : 'failed']++;
    summary.push(`${passed ? 'passed ' : 'FAILED '}  ${name.padEnd(16)} ${times}`);
    console.log(`== ${name}: ${passed ? 'passed' : 'FAILED'} in ${times.trim()}`);
  }
  summary.push(`         ${'all'.padEnd(16)} ${timesText(started())}`);
  console.log(`${failed.join('\n')}\n\n${summary.join('\n')}`);
  console.log(`stages: ${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped`);
  if (tier === 'quick') console.log('`npm run test:full` runs the others too');
  return count.failed === 0 ? 0 : 1;
}

await runMain('npm test -- [options]', OPTIONS, main);
