/** A run from its first step to its last: progress, checkpoints, and going on after a lost device. */

import { setImmediate as nextTurn } from 'node:timers/promises';
import { latestCheckpoint, loadCheckpoint, saveCheckpoint } from './checkpoint.mjs';
import { tokensPerStep } from './config.mjs';
import { createTrainer } from './trainer.mjs';

/** @typedef {import('./config.mjs').GptConfig} GptConfig */
/** @typedef {import('./trainer.mjs').Trainer} Trainer */

/** Steps left out of the rate: pipelines are compiled and memory is touched in them. */
const WARMUP_STEPS = 2;

/** Milliseconds between reads of the losses where they drain the device. */
const LOSS_INTERVAL = 1000;

/** Lost devices that a run survives. */
const MOST_RESTARTS = 3;

/**
 * @typedef {object} RunOptions
 * @property {any} vk the native module, its device open
 * @property {GptConfig} config
 * @property {import('./tokenizer.mjs').TokenizerState} tokenizer goes into the checkpoints
 * @property {Uint32Array} tokens
 * @property {'auto' | 'plain' | 'calls' | 'graph'} [mode]
 * @property {boolean} [explicitTransposes] see GptModel
 * @property {import('./checkpoint.mjs').TrainingState} [state] where to go on from
 * @property {string} [checkpoints] folder of the checkpoints
 * @property {number} [checkpointEvery] steps; 0 for none on the way
 * @property {boolean} [checkpointAtStart]
 * @property {() => void} [profile] begins the addon's profile; called before the run, and again on a new device
 * @property {() => boolean} [stopped] asked after each step; true ends the run
 * @property {(trainer: Trainer) => void} [onStep]
 * @property {(text: string) => void} [note]
 */

/**
 * Trains until `config.steps`, or until `stopped`. With a folder of checkpoints a lost device is opened anew and the
 * run goes on from its last checkpoint; what is repeated gives the same bits.
 * @param {RunOptions} options
 * @returns {Promise<{trainer: Trainer, losses: Map<number, number>, rates: number[], hostTimes: number[],
 *   restarts: number}>} the trainer at the end, losses by step, tokens a second and host milliseconds of each step
 */
export async function runTraining(options) {
  const { vk, config, tokenizer, tokens, mode = 'auto', checkpoints, checkpointEvery = 0 } = options;
  const { explicitTransposes, profile } = options;
  const profiled = profile !== undefined;
  profile?.();
  const { stopped = () => false, onStep = (_) => {}, note = (_) => {} } = options;
  let trainer = createTrainer(vk, config, { tokens, mode, explicitTransposes, profiled, state: options.state });
  /** @type {number[]} */
  let rates = [];
  /** @type {number[]} */
  let hostTimes = [];
  let restarts = 0;
  let lastFetch = performance.now();

  const save = async () => {
    if (checkpoints === undefined) return;
    await trainer.settle();
    const read = (/** @type {'weights' | 'm' | 'v'} */ part) => trainer.read(part);
    note(`checkpoint ${await saveCheckpoint(checkpoints, { config, tokenizer }, trainer.stepsDone, read)}`);
  };
  const measure = () => {
    rates = rates.concat(stepRates(trainer.finished, tokensPerStep(config)));
    hostTimes = hostTimes.concat(trainer.hostTimes.slice(Math.min(WARMUP_STEPS, trainer.hostTimes.length - 1)));
  };

  let pending = options.checkpointAtStart === true;
  for (let done = false; !done;) {
    try {
      if (pending) await save();
      pending = false;
      if (trainer.stepsDone < config.steps && !stopped()) {
        trainer.step();
        pending = checkpointEvery > 0 && trainer.stepsDone % checkpointEvery === 0 && trainer.stepsDone < config.steps;
        // Promises of losses resolve between steps; without them reading drains the device, so only now and then.
        await nextTurn();
        if (performance.now() - lastFetch > LOSS_INTERVAL) {
          trainer.fetchLosses();
          lastFetch = performance.now();
        }
      } else {
        await trainer.settle();
        await save();
        done = true;
      }
    } catch (error) {
      if (/** @type {any} */ (error)?.code !== 'ERR_HELIOS_DEVICE_LOST') throw error;
      const last = checkpoints === undefined ? undefined : await latestCheckpoint(checkpoints);
      if (last === undefined || ++restarts > MOST_RESTARTS) throw error;
      note(`device lost (${/** @type {Error} */ (error).message}); going on from ${last}`);
      measure();
      vk.destroy();
      vk.initDevice();
      profile?.();
      const { state } = await loadCheckpoint(last);
      const { known } = trainer;
      trainer = createTrainer(vk, config, { tokens, mode, explicitTransposes, profiled, state });
      for (const [step, loss] of known) if (step < state.step) trainer.known.set(step, loss);
    }
    onStep(trainer);
  }
  measure();
  return { trainer, losses: trainer.known, rates, hostTimes, restarts };
}

/**
 * Tokens a second of each step, by the times at which steps were seen to be finished.
 * @param {number[]} finished milliseconds
 * @param {number} tokens of a step
 */
export function stepRates(finished, tokens) {
  const out = [];
  for (let i = Math.max(0, Math.min(WARMUP_STEPS, finished.length - 2)); i + 1 < finished.length; i++) {
    out.push((tokens * 1000) / (finished[i + 1] - finished[i]));
  }
  return out;
}

/**
 * Tokens a second over the last seconds.
 * @param {number[]} finished milliseconds
 * @param {number} tokens of a step
 */
export function recentRate(finished, tokens) {
  const last = finished.length - 1;
  let first = last;
  while (first > 0 && (last - first < 2 || finished[last] - finished[first] < 3000)) first--;
  return last > first ? ((last - first) * tokens * 1000) / (finished[last] - finished[first]) : undefined;
}
