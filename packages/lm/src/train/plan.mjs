// What the options of a run ask for, checked as far as that goes without a device.

import { existsSync, readdirSync, statSync } from 'node:fs';
import { basename, extname, join, resolve } from 'node:path';
import { UsageError } from 'helios-vk/options';

import { checkKinds, filesOf } from '../data/pieces.mjs';
import { isWithin } from '../folder.mjs';
import { isGguf, readGguf } from '../formats/gguf.mjs';
import { hasTokenizer } from '../formats/gguf-tokenizer.mjs';
import { findModel } from '../open.mjs';
import { checkNames } from '../options.mjs';
import { checkpointsOf, loadCheckpoint, tokenizerIn } from './checkpoint.mjs';
import { defaultText, hasTokens } from './data.mjs';
import { PRESETS } from './settings.mjs';

/** @typedef {import('./run.mjs').TrainOptions} TrainOptions */
/** @typedef {import('./checkpoint.mjs').Checkpoint} Checkpoint */

/** Settings that a resumed run may change: the model and the order of the data stay. */
const CHANGEABLE = [
  ...['maxSteps', 'learningRate', 'minLr', 'lrScheduler', 'warmupSteps', 'weightDecay', 'maxGradNorm', 'precision', 'gradCheckpoint'],
];

/** Options that a resumed run keeps, unless it is given others: those that say what the run does, not how this machine does it. */
export const KEPT = /** @type {const} */ ([
  ...['evalEvery', 'evalBatches', 'earlyStoppingPatience', 'saveEvery', 'saveTotalLimit'],
  ...['samplePrompt', 'sampleTokens', 'sampleEvery', 'tensorboard'],
]);

/** The other options of `train` besides settings and sizes. */
const OTHERS = [
  ...['data', 'out', 'preset', 'initFrom', 'resume', 'newData', 'tokenizer', 'validation', 'separator', 'field', 'replaceInvalid', 'mode'],
  ...['engine', 'zero', 'reduce', 'commandBuffers', 'signal', 'onProgress', 'note', 'onDevice'],
];

const SIZES = ['layers', 'width', 'heads', 'kvHeads', 'hidden', 'vocabSize'];

/**
 * What options ask for, checked as far as that goes without a device.
 * @param {TrainOptions} given
 */
export async function planOf(given) {
  checkNames('train', given, [...KEPT, ...OTHERS, ...SIZES, 'tied', ...Object.keys(PRESETS['gpt-tiny'].settings)]);
  const { resume, initFrom, preset, newData } = given;
  /** @type {Record<string, unknown>} */
  const named = given;
  const isGiven = (/** @type {string} */ name) => !(/** @type {unknown[]} */ ([undefined, false, 0]).includes(named[name]));
  const refuse = (/** @type {string} */ what) => {
    throw new UsageError(what);
  };
  if (resume && initFrom) refuse('--resume continues a run, --init-from begins one: leave one of them out');
  if (resume === true && given.out === undefined) refuse('--resume needs --out FOLDER, the folder of the run, or a checkpoint');
  if (newData && !resume) refuse('--new-data is for --resume');
  if (newData && given.data === undefined) refuse('--new-data needs the data: name them');
  if (initFrom && preset) refuse('--init-from has the model: leave --preset out');
  if (resume && preset) refuse('--resume keeps the model of the checkpoint: leave --preset out');
  const begin = resume ? await loadCheckpoint(resume === true ? /** @type {string} */ (given.out) : resume) : undefined;
  if (begin?.tuning) refuse(`--resume ${begin.path} is of a run that fine-tunes: helios-lm finetune --resume continues it`);
  /** @type {TrainOptions} */
  const options = { ...begin?.options, ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) };
  const from = initFrom === undefined ? undefined : await findModel(initFrom);
  const own = tokenizerOf(begin ?? from);
  const size = SIZES.find((name) => named[name] !== undefined);
  if (size && (begin || from)) refuse(`${begin ? '--resume' : '--init-from'} keeps the model: leave ${flagOf(size)} out`);
  if (begin) {
    checkResumed(begin, given, options);
    if (given.tokenizer !== undefined && own) refuse('--resume keeps the tokenizer: leave --tokenizer out');
    if (given.data !== undefined && !newData && begin.data) {
      const same = [given.data].flat().length === 1 && resolve([given.data].flat()[0]) === dataOf(begin);
      if (!same) refuse(`--resume continues on the data of the run, ${dataOf(begin)}: leave the data out, or add --new-data`);
    }
  }
  if (from && own && given.tokenizer !== undefined) refuse('--init-from has the tokenizer: leave --tokenizer out');
  const tokenizer = own ?? (given.tokenizer === undefined ? undefined : tokenizerIn(given.tokenizer));
  checkSchedule(given, begin);
  for (const name of ['sampleEvery', 'samplePrompt']) {
    if (isGiven(name) && options.sampleTokens === 0) refuse(`${flagOf(name)} needs samples, and --sample-tokens is 0`);
  }
  const sample = given.zero === 3 && ['samplePrompt', 'sampleTokens', 'sampleEvery'].find(isGiven);
  if (sample)
    refuse(`${flagOf(sample)}: with --zero 3 no process has all weights, so there are no samples; generate writes text from a checkpoint`);
  const data = begin?.data && !newData ? [dataOf(begin)] : [given.data ?? defaultText()].flat();
  const holder = data.find(hasTokens);
  if (holder && data.length > 1) refuse(`${holder} holds token files: train on it alone`);
  const ofTexts = ['validation', 'separator', 'field', 'replaceInvalid'].find(
    (name) => isGiven(name) || (given.validation === 0 && name === 'validation'),
  );
  if (holder && ofTexts) refuse(`${flagOf(ofTexts)} is for texts, and ${holder} holds token files`);
  const files = holder ? data : textsIn(data, given);
  const { vocabSize = 256 } = given;
  if (!holder && !given.tokenizer && vocabSize < 256) refuse(`--vocab-size must be at least 256, the number of bytes, got ${vocabSize}`);
  // A run continues in its folder; a checkpoint of an earlier version begins a folder in today's form.
  const folder = begin && !begin.path.endsWith('.safetensors') ? join(begin.path, '..') : undefined;
  if (from && !tokenizer && !holder) {
    refuse(`--init-from ${initFrom} has no tokenizer: name its own with --tokenizer PATH`);
  }
  return { options, begin, from, tokenizer, data, files, out: given.out ?? folder };
}

/**
 * Refuses options of a run's evaluations, rate and checkpoints that would do nothing beside the others.
 * @param {Pick<TrainOptions, 'earlyStoppingPatience' | 'evalEvery' | 'validation' | 'minLr' | 'lrScheduler' | 'saveTotalLimit'>} given
 * @param {Checkpoint} [begin] what the run continues from
 */
export function checkSchedule(given, begin) {
  const idle = /** @type {const} */ (['earlyStoppingPatience', 'evalEvery']).find((name) => given[name] && given.validation === 0);
  if (idle) throw new UsageError(`${flagOf(idle)} needs held-out text: leave --validation 0 out`);
  const patience = given.earlyStoppingPatience ?? begin?.options?.earlyStoppingPatience;
  if (patience && (given.evalEvery ?? begin?.options?.evalEvery) === 0)
    throw new UsageError('--early-stopping-patience needs evaluations, and --eval-every is 0');
  if (given.minLr && (given.lrScheduler ?? begin?.config.settings.lrScheduler) === 'constant')
    throw new UsageError('--min-lr is for a rate that falls, and --lr-scheduler is constant');
  if (given.saveTotalLimit !== undefined && !(given.saveTotalLimit >= 1)) throw new UsageError('--save-total-limit is at least 1');
}

/**
 * Refuses settings that a resumed run keeps, and to continue one that has ended early.
 * @param {Checkpoint} begin @param {Readonly<Record<string, unknown>>} given @param {{ earlyStoppingPatience?: number }} options with those that the run keeps
 * @param {readonly string[]} [others] options that it keeps besides
 */
export function checkResumed(begin, given, { earlyStoppingPatience: patience = 0 }, others = []) {
  const kept = Object.keys(begin.config.settings).filter((name) => !CHANGEABLE.includes(name));
  const changed = [...kept, ...others].find((name) => given[name] !== undefined);
  if (changed) throw new UsageError(`--resume keeps the run's ${flagOf(changed)}: leave it out`);
  if (patience > 0 && begin.best && begin.best.since >= patience) {
    throw new UsageError(
      `the run ended after ${begin.best.since} evaluations without a lower loss: a larger --early-stopping-patience, or 0, continues`,
    );
  }
}

/**
 * The files of texts. What lies in a folder of runs is none, though it may be in an input, such as the current folder.
 * @param {string[]} inputs @param {Pick<TrainOptions, 'out' | 'separator' | 'field' | 'replaceInvalid'>} options
 * @throws {UsageError} for what is not there or has no text, and for options that no file has a use for
 */
export function textsIn(inputs, options) {
  const runs = ['runs', ...(options.out === undefined ? [] : [options.out])];
  const missing = inputs.find((path) => !existsSync(path));
  if (missing) throw new UsageError(`${missing} does not exist`);
  if (inputs.some((input) => options.out !== undefined && isWithin(input, options.out) && isWithin(options.out, input))) {
    throw new UsageError(`--out ${options.out} is an input: name another folder`);
  }
  try {
    const files = inputs.flatMap((input) => {
      const own = runs.filter((folder) => isWithin(folder, input) && !isWithin(input, folder));
      return filesOf([input]).filter((file) => !own.some((folder) => isWithin(file, folder)));
    });
    if (files.length === 0) throw new Error(`${inputs.join(', ')}: all texts are in the folder of a run`);
    checkKinds(files, options);
    return files;
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    throw new UsageError(error instanceof RangeError ? message.replace(/^\w+/, flagOf) : message);
  }
}

/** The tokenizer of a checkpoint, a model's folder or a GGUF file, if it has one. @param {Pick<Checkpoint, 'tokenizer'> | undefined} of */
export function tokenizerOf(of) {
  if (typeof of?.tokenizer !== 'string') return of?.tokenizer;
  const path = of.tokenizer;
  return (isGguf(path) ? hasTokenizer(readGguf(path)) : existsSync(join(path, 'tokenizer.json'))) ? path : undefined;
}

/**
 * The folder of a run's data: in the run's own folder if it has them, since it may have been moved or copied.
 * @param {Checkpoint} checkpoint with data
 */
function dataOf({ path, data }) {
  const { folder } = /** @type {import('./checkpoint.mjs').DataInfo} */ (data);
  const own = resolve(path, '..', basename(folder));
  return hasTokens(own) ? own : folder;
}

/** An option as it is written on the command line. @param {string} name */
export const flagOf = (name) => `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

/** A path, or the first of PATH-2, PATH-3 … if it is there. @param {string} path */
export function freeName(path) {
  for (let i = 1; ; i++) {
    const name = i === 1 ? path : `${path}-${i}`;
    if (!existsSync(name)) return name;
  }
}

/** The names of settings and sizes, longest first. */
const NAMES = Object.values(PRESETS)
  .flatMap(({ sizes, settings }) => Object.keys({ ...sizes, ...settings }))
  .sort((a, b) => b.length - a.length);

/** A message with options in place of the names of settings and sizes. @param {string} message */
export const withFlags = (message) => message.replaceAll(new RegExp(`\\b(${NAMES.join('|')})\\b`, 'g'), (name) => flagOf(name));

/** `runs/NAME` for a text, or the first of `runs/NAME-2` … that is not there, is empty, or has checkpoints of this run. @param {string} input @param {string} run */
export function freeFolder(input, run) {
  const file = basename(resolve(input)).replace(/\.gz$/i, '');
  const name =
    basename(file, extname(file))
      .replaceAll(/[^\p{L}\p{M}\p{N}_.-]+/gu, '-')
      .replace(/^-*\.*$|^-+/, '') || 'run';
  for (let i = 1; ; i++) {
    const folder = join('runs', i === 1 ? name : `${name}-${i}`);
    if (!existsSync(folder) || (statSync(folder).isDirectory() && readdirSync(folder).length === 0)) return folder;
    if (checkpointsOf(folder, run).length > 0) return folder;
  }
}
