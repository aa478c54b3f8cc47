/** Runs the trainer's own training command in a checkout of it, and reads what it prints. */

import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { delimiter, dirname, join, resolve } from 'node:path';

import { UsageError } from '../../../../bin/lib/options.mjs';
import { CommandError, placeIn } from '../../../../bin/lib/link.mjs';

/** One training step as the trainer prints it: step, loss, milliseconds, tokens a second. */
const STEP_LINE = /^step (\d+)\/\d+ \| loss=(\S+).*?\| ([\d.]+)ms\/it \| ([\d.]+) tok\/s/;

/** Steps of the trainer's learning-rate schedule: the same for every run, so that losses can be compared. */
const SCHEDULE_STEPS = 1000;

/**
 * @typedef {object} TrainerShape
 * @property {number} layers
 * @property {number} width
 * @property {number} heads
 * @property {number} block
 * @property {number} batch
 * @property {number} microSteps
 * @property {number} lr
 * @property {number} seed
 *
 * @typedef {object} PrintedStep
 * @property {number} step from 1
 * @property {number} loss as printed
 * @property {number} ms
 * @property {number} toks tokens a second, as printed
 */

/**
 * @typedef {import('./timed.mjs').CallTimes} CallTimes
 *
 * @typedef {object} TrainerRun
 * @property {PrintedStep[]} steps
 * @property {CallTimes[]} calls times of the native calls of each step
 * @property {number[]} printedAt when each step was printed, in ms
 * @property {string[]} mapped files of the addons that the process had loaded
 * @property {string} output
 * @property {string | undefined} device as the trainer named it
 * @property {string[]} digests with HELIOS_BENCH_BACKEND, as `HookResults` of hook.mjs says; likewise `weights`
 * @property {string | undefined} weights
 */

/**
 * The steps in a trainer's output.
 * @param {string} output
 * @returns {PrintedStep[]}
 */
export function parseSteps(output) {
  return output.split('\n').flatMap((line) => {
    const match = STEP_LINE.exec(line);
    return match ? [{ step: Number(match[1]), loss: Number(match[2]), ms: Number(match[3]), toks: Number(match[4]) }] : [];
  });
}

/** @param {string} word @returns {string} quoted for a POSIX shell */
const quote = (word) => `'${word.replaceAll("'", "'\\''")}'`;

/**
 * The shell command that a checkout trains with: the `train` script of its package.json.
 * @param {string} checkout
 * @returns {Promise<string>}
 */
export async function trainCommand(checkout) {
  const file = join(resolve(checkout), 'package.json');
  if (!existsSync(file)) throw new UsageError(`--trainer ${checkout}: no package.json there`);
  const script = JSON.parse(await readFile(file, 'utf8')).scripts?.train;
  if (typeof script !== 'string') throw new UsageError(`--trainer ${checkout}: its package.json has no script "train"`);
  return script;
}

/**
 * The path at which the trainer of a checkout looks for its addon.
 * @param {string} checkout
 */
export function addonPlace(checkout) {
  try {
    return placeIn(checkout).path;
  } catch (error) {
    throw error instanceof CommandError ? new UsageError(`--trainer ${error.message}`) : error;
  }
}

/**
 * Trains for some steps in a fresh process, and ends it. The process inherits the environment. The trainer chooses its workgroup size by
 * timing, so that losses differ from run to run, unless HELIOS_WG_SIZE is set; versions before its commit 024f5aa do not read that.
 * @param {object} run
 * @param {string} run.checkout
 * @param {string} run.command what `trainCommand` returned
 * @param {string} run.addon absolute path at which the trainer looks for its addon
 * @param {string} run.data text file
 * @param {string} run.tokenizer name of the trainer's tokenizer
 * @param {string} run.scratch folder for files that runs share, such as the tokenizer's vocabulary
 * @param {number} run.steps
 * @param {TrainerShape} run.shape
 * @param {string[]} [run.more] further options of the trainer
 * @returns {Promise<TrainerRun>}
 * @throws {Error} with the end of its output, if the trainer ends before its last step
 */
export async function runTrainer({ checkout, command, addon, data, tokenizer, scratch, steps, shape, more = [] }) {
  const runFolder = join(scratch, 'run');
  const timesFile = join(scratch, 'times.json');
  await rm(runFolder, { recursive: true, force: true });
  await rm(timesFile, { force: true });
  const options = {
    data: resolve(data),
    tokenizer,
    tokenizerArtifacts: join(scratch, `${tokenizer}.json`),
    runDir: runFolder,
    layers: shape.layers,
    dim: shape.width,
    heads: shape.heads,
    block: shape.block,
    batch: shape.batch,
    accumSteps: shape.microSteps,
    lr: shape.lr,
    seed: shape.seed,
    steps: SCHEDULE_STEPS,
    activation: 'swiglu',
    optim: 'adamw',
    backend: 'helios',
    gpuProfile: 'none',
    logEvery: 1,
    evalInterval: 1e9,
    sampleInterval: 0,
    postSamples: false,
    remote: false,
  };
  const args = [...Object.entries(options).map(([name, value]) => `--${name}=${value}`), ...more];
  const folder = resolve(checkout);
  const hook = new URL('./hook.mjs', import.meta.url).href;
  const child = spawn(`${command} ${args.map(quote).join(' ')}`, {
    cwd: folder,
    shell: true,
    // A process group of its own, so that what the shell starts can be ended with it.
    detached: process.platform !== 'win32',
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...process.env,
      PATH: [join(folder, 'node_modules', '.bin'), dirname(process.execPath), process.env.PATH].join(delimiter),
      NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} --import=${hook}`.trim(),
      HELIOS_NATIVE_ADDON: addon,
      HELIOS_BENCH_STEPS: String(steps),
      HELIOS_BENCH_OUT: timesFile,
    },
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => void (output += text));
  const end = () => {
    try {
      process.kill(process.platform === 'win32' ? Number(child.pid) : -Number(child.pid), 'SIGKILL');
    } catch {
      // The trainer has ended.
    }
  };
  process.on('exit', end);
  const status = await new Promise((fulfil, reject) => {
    child.on('error', reject);
    child.on('close', (code, signal) => fulfil(signal ?? `exit code ${code}`));
  }).finally(() => process.off('exit', end));
  const printed = parseSteps(output);
  if (printed.length < steps) {
    const end = output.trimEnd().split('\n').slice(-15).join('\n');
    throw new Error(`the trainer ended with ${status} after ${printed.length} of ${steps} steps:\n${end}`);
  }
  /** @type {import('./hook.mjs').HookResults} */
  const times = JSON.parse(await readFile(timesFile, 'utf8'));
  return {
    steps: printed.slice(0, steps),
    calls: times.steps.map(({ calls }) => calls),
    printedAt: times.steps.map(({ at }) => at),
    mapped: times.mapped,
    digests: times.digests,
    weights: times.weights,
    output,
    device: /^gpu: (.*)$/m.exec(output)?.[1],
  };
}
