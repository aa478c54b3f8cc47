/** A run from its first step to its last: progress, checkpoints, and going on after a lost device. */

import { rm } from 'node:fs/promises';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { checkpointsOf, firstUnusable, identityOf, loadCheckpoint, saveCheckpoint, saveWeights } from './checkpoint.mjs';
import { tokensPerStep } from './config.mjs';
import { FolderLock } from './files.mjs';
import { createTrainer } from './trainer.mjs';
import { reset } from '../../nn/index.mjs';

/** @typedef {import('./config.mjs').GptConfig} GptConfig */
/** @typedef {import('./checkpoint.mjs').Checkpoint} Checkpoint */
/** @typedef {import('./trainer.mjs').Trainer} Trainer */

/** Steps left out of the rates: pipelines are compiled and memory is touched in them. */
const WARMUP_STEPS = 2;

/** Lost devices that a run survives. */
const MAX_RESTARTS = 3;

/**
 * @typedef {object} RunOptions
 * @property {any} vk the native module, its device open
 * @property {GptConfig} config
 * @property {import('./tokenizer.mjs').TokenizerState} tokenizer goes into the checkpoints
 * @property {import('./data.mjs').DataInfo} [data] what the tokens are of; goes into the checkpoints
 * @property {Uint32Array} tokens what to train on
 * @property {Uint32Array} [validation] tokens to validate with
 * @property {number} [validationEvery] steps; 0 for at the end alone
 * @property {'graph' | 'plain'} [mode] as of the trainer
 * @property {Checkpoint} [resumed] where to go on from
 * @property {string} [checkpoints] folder of the checkpoints, which is this run's alone
 * @property {FolderLock} [lock] on it, where the caller has taken it
 * @property {number} [keep] of this run's checkpoints in the folder the last so many stay; all without it
 * @property {number} [checkpointEvery] steps; 0 for none on the way
 * @property {boolean} [checkpointAtStart]
 * @property {string} [dumpWeights] file for the weights before the first step
 * @property {() => void} [profile] begins the addon's profile; called before the run, and again on a new device
 * @property {() => boolean} [stopped] asked after each step; true ends the run
 * @property {import('./ranks.mjs').TrainingRanks} [ranks] the processes that train together. All make the same run; rank 0 alone has the
 *   lock and writes checkpoints
 * @property {string} [run] identity of a run that begins, see `identityOf`; a resumed one keeps that of its checkpoint
 * @property {(trainer: Trainer) => void} [onStep]
 * @property {(text: string) => void} [note]
 *
 * @typedef {Pick<Checkpoint, 'path' | 'step' | 'config' | 'data' | 'run'>} SavedCheckpoint a file, and what it must hold
 */

/**
 * Trains until `config.steps`, or until `stopped`. A lost device is opened anew, and the run goes on from the last
 * checkpoint that it saved, before its first from the one that it was resumed from; what is repeated gives the same
 * bits. Without either the loss ends the run; one of several processes cannot go on alone either, whoever started them starts all again.
 * @param {RunOptions} options
 * @returns {Promise<{trainer: Trainer, losses: Map<number, number>, rates: number[], hostTimes: number[],
 *   validations: Map<number, number>, restarts: number}>} the trainer at the end, losses by step, tokens a second and host
 *   milliseconds of each step, validation losses by the steps done before
 * @throws {RangeError} where the learning rate would rise to its end
 */
export async function runTraining(options) {
  const { config, checkpoints, lock, ranks } = options;
  // Not of every configuration: a checkpoint of an earlier version may hold such a one, and writes text.
  if (config.minLr > config.lr) throw new RangeError(`minLr must be at most lr, ${config.lr}, got ${config.minLr}`);
  if (checkpoints === undefined || lock !== undefined || ranks) return train(options);
  const own = await FolderLock.take(checkpoints);
  return train({ ...options, lock: own }).finally(() => own.release());
}

/** @param {RunOptions} options @returns {ReturnType<typeof runTraining>} */
async function train(options) {
  const { vk, config, tokenizer, data, tokens, mode, resumed, checkpoints, checkpointEvery = 0 } = options;
  const { profile, lock, keep = Infinity, validation, validationEvery = 0, ranks, stopped } = options;
  const run = identityOf(resumed, options.run);
  const { onStep = (_) => {}, note = (_) => {} } = options;
  /** None before the start, and from a loss until the model is on the device again. @type {Trainer | undefined} */
  let trainer;
  /** Never just the latest file of the folder: that may be another run's. @type {SavedCheckpoint | undefined} */
  let last = resumed;
  /** Losses that trainers of lost devices knew. @type {Map<number, number>} */
  let known = new Map();
  /** @type {number[]} */
  let rates = [];
  /** @type {number[]} */
  let hostTimes = [];
  /** @type {Map<number, number>} */
  const validations = new Map();
  let restarts = 0;
  /** This run's checkpoints, the oldest first: of a resumed or restarted run also those from before. */
  let saved = lock && checkpoints !== undefined && run !== undefined ? await checkpointsOf(checkpoints, run) : [];
  let pending = false;
  let dump = options.dumpWeights;

  const open = async () => {
    if (restarts > 0) {
      // Everything on the lost device is forgotten; what follows opens it anew.
      reset();
      vk.destroy();
    }
    profile?.();
    const state = last === resumed ? resumed?.state : await readBack(/** @type {SavedCheckpoint} */ (last));
    const opened = createTrainer(vk, config, { tokens, validation, mode, state, ranks, stopped });
    for (const [step, loss] of known) if (step < opened.stepsDone) opened.known.set(step, loss);
    pending = options.checkpointAtStart === true && last === resumed;
    return opened;
  };
  /** Writes the weights that the run begins with. @param {string} path @param {Trainer} trainer */
  const dumpTo = async (path, trainer) => {
    await trainer.settle();
    if (ranks && ranks.group.rank > 0) trainer.join('weights');
    else await saveWeights(path, config, await trainer.read('weights'));
    await ranks?.group.exchange();
    dump = undefined;
  };
  const save = async (/** @type {Trainer} */ trainer) => {
    if (checkpoints === undefined) return;
    await trainer.settle();
    trainer.pauses.add(trainer.finished.length);
    const step = trainer.stepsDone;
    if (ranks && ranks.group.rank > 0) {
      trainer.join('weights', 'm', 'v');
      // Rank 0 has written it.
      await ranks.group.exchange();
      return;
    }
    await lock?.check();
    const read = async (/** @type {'weights' | 'm' | 'v'} */ part) => {
      const flat = await trainer.read(part);
      // A loss that is still finite comes before the update that leaves such weights.
      if (firstUnusable(flat) >= 0) {
        const what = part === 'weights' ? 'weights' : 'moments of the optimizer';
        throw new Error(`the ${what} after step ${step} are not finite: the run has diverged`);
      }
      return flat;
    };
    const path = await saveCheckpoint(checkpoints, { config, tokenizer, data, run }, step, read, await trainer.opt.skippedSteps());
    await ranks?.group.exchange();
    last = { path, step, config, data, run };
    note(`checkpoint ${path}`);
    saved = [...saved.filter((other) => other !== path), path];
    while (saved.length > keep) await rm(/** @type {string} */ (saved.shift()), { force: true });
  };
  const validate = async (/** @type {Trainer} */ trainer) => {
    const step = trainer.stepsDone;
    if (validation === undefined || validations.has(step)) return;
    await trainer.settle();
    validations.set(step, await trainer.validate());
    note(`step ${step}: validation loss ${validations.get(step)?.toFixed(4)}`);
  };
  const measure = (/** @type {Trainer} */ { finished, pauses, hostTimes: times }) => {
    rates = rates.concat(stepRates(finished, tokensPerStep(config), pauses));
    hostTimes = hostTimes.concat(times.slice(Math.min(WARMUP_STEPS, times.length - 1)));
  };

  for (;;) {
    try {
      trainer ??= await open();
      if (dump !== undefined) await dumpTo(dump, trainer);
      if (pending) await save(trainer);
      pending = false;
      if (await trainer.ready()) {
        await trainer.step();
        pending = checkpointEvery > 0 && trainer.stepsDone % checkpointEvery === 0 && trainer.stepsDone < config.steps;
        // Promises of losses resolve between steps.
        await nextTurn();
        onStep(trainer);
        if (validationEvery > 0 && trainer.stepsDone % validationEvery === 0) await validate(trainer);
      } else {
        await trainer.settle();
        await validate(trainer);
        await save(trainer);
        onStep(trainer);
        measure(trainer);
        const skipped = await trainer.opt.skippedSteps();
        if (skipped > 0) note(`steps skipped, as their gradients were not finite: ${skipped}`);
        return { trainer, losses: trainer.known, rates, hostTimes, validations, restarts };
      }
    } catch (error) {
      // The device is opened anew in the next turn, where its own loss is caught as well.
      if (ranks || /** @type {any} */ (error)?.code !== 'ERR_HELIOS_DEVICE_LOST') throw error;
      if (last === undefined || ++restarts > MAX_RESTARTS) throw error;
      note(`device lost (${/** @type {Error} */ (error).message}); going on from ${last.path}`);
      if (trainer === undefined) continue;
      measure(trainer);
      known = trainer.known;
      trainer = undefined;
    }
  }
}

/**
 * The state in a checkpoint that this run saved, unless something else has been written in its place since.
 * @param {SavedCheckpoint} saved
 */
async function readBack(saved) {
  const found = await loadCheckpoint(saved.path);
  for (const key of /** @type {const} */ (['step', 'config', 'data', 'run'])) {
    if (!isDeepStrictEqual(found[key], saved[key])) {
      throw new Error(`cannot go on from ${saved.path}: it is not what this run saved there; its ${key} differs`);
    }
  }
  return found.state;
}

/**
 * Tokens a second of each step, by the times at which steps were seen to be finished.
 * @param {number[]} finished milliseconds
 * @param {number} tokens of a step
 * @param {Set<number>} [pauses] steps, by index, that began only after a pause: they do not count
 */
export function stepRates(finished, tokens, pauses = new Set()) {
  const out = [];
  for (let i = Math.max(1, Math.min(WARMUP_STEPS + 1, finished.length - 1)); i < finished.length; i++) {
    if (!pauses.has(i)) out.push((tokens * 1000) / (finished[i] - finished[i - 1]));
  }
  return out;
}

/**
 * Tokens a second over the last seconds.
 * @param {number[]} finished milliseconds
 * @param {number} tokens of a step
 * @param {Set<number>} [pauses] as of `stepRates`
 */
export function recentRate(finished, tokens, pauses = new Set()) {
  let [steps, milliseconds] = [0, 0];
  for (let i = finished.length - 1; i > 0 && (steps < 2 || milliseconds < 3000); i--) {
    if (pauses.has(i)) continue;
    steps++;
    milliseconds += finished[i] - finished[i - 1];
  }
  return steps > 0 ? (steps * tokens * 1000) / milliseconds : undefined;
}
