/** Runs training from the first step to the last: progress, checkpoints, and recovery after a lost device. */

import { rm } from 'node:fs/promises';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { checkpointsOf, firstUnusable, identityOf, loadCheckpoint, saveCheckpoint, saveWeights } from './checkpoint.mjs';
import { tokensPerStep } from './config.mjs';
import { FolderLock } from './outputs.mjs';
import { createTrainer } from './trainer.mjs';
import { reset } from 'helios-vk/nn';

/** @typedef {import('./config.mjs').GptConfig} GptConfig */
/** @typedef {import('./checkpoint.mjs').Checkpoint} Checkpoint */
/** @typedef {import('./trainer.mjs').Trainer} Trainer */

/** Steps that do not count in the rates: they compile pipelines and touch memory for the first time. */
const WARMUP_STEPS = 2;

/** How many lost devices a run recovers from. */
const MAX_RESTARTS = 3;

/**
 * @typedef {object} RunOptions
 * @property {any} vk the native module, its device open
 * @property {GptConfig} config
 * @property {import('./tokenizer.mjs').TokenizerState} tokenizer goes into the checkpoints
 * @property {import('./data.mjs').DataInfo} [data] describes the tokens; goes into the checkpoints
 * @property {Uint32Array} tokens what to train on
 * @property {Uint32Array} [validation] held-out tokens to validate with
 * @property {number} [validationEvery] validate every so many steps; 0, the default: only at the end
 * @property {'graph' | 'plain'} [mode] as for the trainer
 * @property {Checkpoint} [resumed] the checkpoint to continue from
 * @property {string} [checkpoints] folder of the checkpoints, which no other run uses
 * @property {FolderLock} [lock] the lock of that folder, where the caller has taken it
 * @property {number} [keep] keep only the last so many checkpoints of this run in the folder; all when left out
 * @property {number} [checkpointEvery] write a checkpoint every so many steps; 0, the default: only at the end
 * @property {boolean} [checkpointAtStart] also before the first step
 * @property {string} [dumpWeights] file for the weights before the first step
 * @property {() => void} [profile] starts the addon's profile; called before the run, and again on a new device
 * @property {() => boolean} [stopped] asked after each step; true ends the run
 * @property {import('./ranks.mjs').TrainingRanks} [ranks] the processes that train together. All call `runTraining` alike; only rank 0 has
 *   the lock and writes checkpoints
 * @property {string} [run] identity of a new run, see `identityOf`; a resumed one keeps that of its checkpoint
 * @property {(trainer: Trainer) => void} [onStep]
 * @property {(text: string) => void} [note]
 *
 * @typedef {Pick<Checkpoint, 'path' | 'step' | 'config' | 'data' | 'run'>} SavedCheckpoint a file and what it must contain
 */

/**
 * Trains until the last step of the configuration, or until `stopped`. When the device is lost, opens it again and continues from the
 * last checkpoint that the run saved, or else from the one it was resumed from; repeated steps give the same bits. Without either, and
 * with several processes, the loss ends the run: the launcher restarts all processes together.
 * @param {RunOptions} options
 * @returns {Promise<{trainer: Trainer, losses: Map<number, number>, rates: number[], hostTimes: number[],
 *   validations: Map<number, number>, restarts: number}>} the trainer at the end, losses by step, tokens a second and host
 *   milliseconds of each step, validation losses by the number of steps before them
 * @throws {RangeError} where the learning rate at the end is above its peak
 */
export async function runTraining(options) {
  const { config, checkpoints, lock, ranks } = options;
  // `checkConfig` accepts it: a checkpoint of an earlier version may contain it, and text can still be generated from that.
  const { lr, minLr } = config.training;
  if (minLr > lr) throw new RangeError(`minLr must be at most lr, ${lr}, got ${minLr}`);
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
  /** Undefined before the start, and from a lost device until the model is on the device again. @type {Trainer | undefined} */
  let trainer;
  /** What this run saved last. Never simply the latest file of the folder, which may be another run's. @type {SavedCheckpoint | undefined} */
  let last = resumed;
  /** Losses that trainers on lost devices had read. @type {Map<number, number>} */
  let known = new Map();
  /** @type {number[]} */
  let rates = [];
  /** @type {number[]} */
  let hostTimes = [];
  /** @type {Map<number, number>} */
  const validations = new Map();
  let restarts = 0;
  /** This run's checkpoints, oldest first, with those from before it was resumed or restarted. */
  let saved = lock && checkpoints !== undefined && run !== undefined ? await checkpointsOf(checkpoints, run) : [];
  let pending = false;
  let dump = options.dumpWeights;

  const open = async () => {
    if (restarts > 0) {
      // Forget everything on the lost device; `createTrainer` opens it again.
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
  /** Writes the weights that the run starts from. @param {string} path @param {Trainer} trainer */
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
      const values = await trainer.read(part);
      // The last loss may be finite, and the update after it not.
      if (Object.values(values).some((each) => firstUnusable(each) >= 0)) {
        const what = part === 'weights' ? 'weights' : 'moments of the optimizer';
        throw new Error(`the ${what} after step ${step} are not finite: the run has diverged`);
      }
      return values;
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
        pending = checkpointEvery > 0 && trainer.stepsDone % checkpointEvery === 0 && trainer.stepsDone < config.training.steps;
        // Lets promises of losses resolve between steps.
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
        if (skipped > 0) note(`steps skipped because their gradients were not finite: ${skipped}`);
        return { trainer, losses: trainer.known, rates, hostTimes, validations, restarts };
      }
    } catch (error) {
      // The next turn opens the device again, where another loss is caught as well.
      if (ranks || /** @type {any} */ (error)?.code !== 'ERR_HELIOS_DEVICE_LOST') throw error;
      if (last === undefined || ++restarts > MAX_RESTARTS) throw error;
      note(`device lost (${/** @type {Error} */ (error).message}); continuing from ${last.path}`);
      if (trainer === undefined) continue;
      measure(trainer);
      known = trainer.known;
      trainer = undefined;
    }
  }
}

/**
 * The state in a checkpoint that this run saved. Throws where another file has replaced it since.
 * @param {SavedCheckpoint} saved
 */
async function readBack(saved) {
  const found = await loadCheckpoint(saved.path);
  for (const key of /** @type {const} */ (['step', 'config', 'data', 'run'])) {
    if (!isDeepStrictEqual(found[key], saved[key])) {
      throw new Error(`cannot continue from ${saved.path}: it is not what this run saved there; its ${key} differs`);
    }
  }
  return found.state;
}

/**
 * Tokens a second of each step, from the times at which steps were seen to be finished.
 * @param {number[]} finished milliseconds
 * @param {number} tokens of a step
 * @param {Set<number>} [pauses] indexes of steps that began after a pause: they do not count
 */
export function stepRates(finished, tokens, pauses = new Set()) {
  const out = [];
  for (let i = Math.max(1, Math.min(WARMUP_STEPS + 1, finished.length - 1)); i < finished.length; i++) {
    if (!pauses.has(i)) out.push((tokens * 1000) / (finished[i] - finished[i - 1]));
  }
  return out;
}

/**
 * Tokens a second over about the last three seconds.
 * @param {number[]} finished milliseconds
 * @param {number} tokens of a step
 * @param {Set<number>} [pauses] as for `stepRates`
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
