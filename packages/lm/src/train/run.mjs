// A training run from its options to its last checkpoint, as a series of events.

import { readdirSync, rmSync, rmdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { reset, tunedPlans, tuningSummary } from 'helios-vk/nn';
import { UsageError } from 'helios-vk/options';

import { MetricsLog } from '../log/metrics.mjs';
import { TensorBoardLog } from '../log/tensorboard.mjs';
import { openModel } from '../open.mjs';
import {
  checkFolder,
  checkpointPath,
  checkpointsOf,
  joinCheckpoint,
  joinModel,
  loadCheckpoint,
  newRun,
  saveBest,
  saveCheckpoint,
} from './checkpoint.mjs';
import { openData, predictedBytes, vocabularyFor } from './data.mjs';
import { checkFits, checkMatrixUnits } from './device.mjs';
import { Generator as TextGenerator } from './generator.mjs';
import { FolderLock } from './outputs.mjs';
import { KEPT, flagOf, freeFolder, freeName, planOf, withFlags } from './plan.mjs';
import { tuningLine } from './profile.mjs';
import { agree, attemptOf, checkSharding, openRanks, shareOf } from './ranks.mjs';
import { generate } from './sample.mjs';
import { checkRun, configOf, fitSettings, learningRateAt, presetOf, tokensPerStep, withValues } from './settings.mjs';
import { DataError, Trainer } from './trainer.mjs';

/** @typedef {import('../log/events.mjs').TrainEvent} TrainEvent */
/** @typedef {import('./settings.mjs').Settings} Settings */
/** @typedef {import('./settings.mjs').RunConfig} RunConfig */
/** @typedef {import('./checkpoint.mjs').Checkpoint} Checkpoint */
/** @typedef {import('../config.mjs').ModelConfig} ModelConfig */

/**
 * Options of `train`, besides those of `Settings` and `Sizes`, which replace the preset's.
 * @typedef {object} OwnOptions
 * @property {string | string[]} [data] texts, JSONL, Parquet or folders of them, or one folder of token files; a novel when left out, or the
 *   resumed run's
 * @property {string} [out] the run's folder; `runs/NAME` when left out, with a number where that is taken
 * @property {string} [preset] a name of `PRESETS`; `llama-tiny` on a CPU device and `llama-30m` on others when left out
 * @property {string} [initFrom] a model's folder, a checkpoint or a GGUF file: its weights and tokenizer begin a new run
 * @property {boolean | string} [resume] continue the run in `out`, or from a checkpoint
 * @property {boolean} [newData] with `resume`: whether to accept other data than the run's
 * @property {string} [tokenizer] `tokenizer.json`, or a folder that has it; one is trained when left out
 * @property {number} [validation] share of the text that is held out; 0.05 when left out
 * @property {string} [separator] what stands between documents of a plain text
 * @property {string} [field] field of JSONL, or column of Parquet, with the text
 * @property {boolean} [replaceInvalid] whether U+FFFD replaces invalid UTF-8, which is an error otherwise
 * @property {number} [evalEvery] evaluate every N steps, and at the end; a tenth of the run when left out, 0: only at the end
 * @property {number} [evalBatches] most batches of an evaluation; 16 when left out
 * @property {number} [saveEvery] write a checkpoint every N steps, and at the end; 0, the default: only at the end
 * @property {number} [saveTotalLimit] keep only the last N checkpoints of this run; all when left out
 * @property {number} [earlyStoppingPatience] end after N evaluations without a lower loss; 0, the default: never
 * @property {string} [samplePrompt] what samples continue; the beginning of the text when left out
 * @property {number} [sampleTokens] tokens of a sample; 100 when left out, 0: no samples
 * @property {number} [sampleEvery] write a sample every N steps, and at the end; 0, the default: only at the end
 * @property {boolean} [tensorboard] whether to write event files for TensorBoard; true when left out
 * @property {'graph' | 'plain'} [mode] as for `Trainer`
 * @property {'mpi' | 'nccl'} [engine] @property {import('./ranks.mjs').Zero} [zero] @property {'f32' | 'bf16'} [reduce] with several processes, see `openRanks`
 * @property {number} [commandBuffers] submissions in flight
 * @property {AbortSignal} [signal] ends the run after its step, an evaluation or a sample at once: it writes a checkpoint, then throws the signal's
 *   reason, an AbortError where the caller names none
 * @property {(progress: import('../data/prepare.mjs').PrepareProgress) => void} [onProgress] while a tokenizer is trained and texts are encoded
 * @property {(text: string) => void} [note] called with a message for people: a device was lost, steps were skipped
 * @property {(vk: import('./device.mjs').Native) => void} [onDevice] called with the native module when the device is open, and again after it was lost
 *
 * @typedef {OwnOptions & Partial<Settings> & Partial<import('./settings.mjs').Sizes>} TrainOptions
 */

/** Settings that begin a run from another model's weights, where none are given. */
const FROM_A_MODEL = { learningRate: 1e-4, minLr: 1e-5, warmupSteps: 20, maxSteps: 400 };

/** How many lost devices a run recovers from. */
const MAX_RESTARTS = 3;

/** Steps that do not count in the rates: they compile pipelines and touch memory for the first time. */
export const WARMUP_STEPS = 2;

/** Milliseconds between two looks at the device's memory. */
const MEMORY_EVERY = 1000;

/**
 * Trains a model. Everything that can be refused is refused before any work is done. When the device is lost, the run opens it again and
 * continues from its last checkpoint, or else from where it began; repeated steps give the same bits. A device that the program has open stays
 * open, with what is on it; without one, the run opens the device and closes it, with all that is on it then. With several processes (`helios-vk run`)
 * all call it alike: only rank 0 writes files, and the launcher restarts them all.
 * @param {TrainOptions} options
 * @returns {AsyncGenerator<TrainEvent>}
 * @throws {UsageError} for options that are out of range, or contradict each other or what is on disk
 */
export async function* train(options) {
  options.signal?.throwIfAborted();
  yield* start(Run, await planOf(options));
}

/** The runs of this process that go on, and whether the first of them opened the device. */
const running = { count: 0, isDeviceTheirs: false };

/**
 * Makes a run.
 * @param {typeof Run} Kind @param {Plan} plan
 * @returns {AsyncGenerator<TrainEvent>}
 */
export async function* start(Kind, plan) {
  const { options } = plan;
  const vk = createRequire(import.meta.url)('helios-vk');
  // A program may have models and tensors on a device that it has opened, or another run that goes on: the run then works beside them.
  if (running.count === 0) running.isDeviceTheirs = !isOpen(vk);
  running.count++;
  /** @type {Run | undefined} */
  let run;
  /** @type {import('./ranks.mjs').TrainingRanks | undefined} */
  let ranks;
  try {
    const opened = await openRanks(vk, { ...options, 'command-buffers': options.commandBuffers });
    ranks = opened.ranks;
    run = new Kind(plan, vk, opened.info, ranks);
    yield* run.events();
    await ranks?.group.destroy();
  } catch (error) {
    // Whatever reason the caller gave, a run that was asked to end has not failed.
    if (options.signal?.aborted && error === options.signal.reason) await ranks?.group.destroy();
    else ranks?.group.abort(/** @type {Error} */ (error).message);
    throw error;
  } finally {
    running.count--;
    // The next run in this process begins on a device of its own.
    if (running.count > 0 || !running.isDeviceTheirs) run?.free();
    else {
      reset();
      vk.destroy();
    }
  }
}

/** Whether a device is open. @param {import('./device.mjs').Native} vk */
function isOpen(vk) {
  try {
    vk.getAllocatorStats();
    return true;
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code === 'ERR_HELIOS_NO_DEVICE') return false;
    throw error;
  }
}

/** @typedef {Awaited<ReturnType<typeof planOf>> & { tuning?: import('./finetune.mjs').Tuning }} Plan `tuning`: of a run that fine-tunes */
/** @typedef {import('./trainer.mjs').Windows & Partial<import('./trainer.mjs').OwnForm> & { tokens: number }} RunWindows */
/**
 * What a run trains on. `nothingHeld`: why there is no validation.
 * @typedef {{ train: RunWindows, validation: RunWindows | undefined, test?: RunWindows, nothingHeld: string | undefined, close: () => void,
 *   tokenizer: import('../tokenizer/load.mjs').Tokenizer | undefined, info: import('./checkpoint.mjs').DataInfo }} RunData
 */

export class Run {
  /**
   * @param {Plan} plan
   * @param {import('./device.mjs').Native} vk @param {import('helios-vk').DeviceInfo} info @param {import('./ranks.mjs').TrainingRanks | undefined} ranks
   */
  constructor(plan, vk, info, ranks) {
    const { options } = plan;
    this.options = options;
    this.plan = plan;
    this.vk = vk;
    this.info = info;
    this.ranks = ranks;
    /** Whether this process writes files. */
    this.first = !ranks || ranks.group.rank === 0;
    this.note = options.note ?? (() => {});
    this.started = performance.now();
    /** The plans of matrix products that steps are computed by. @type {import('./checkpoint.mjs').RunState['plans']} */
    this.plans = undefined;
    /** Products whose timing has been reported. */
    this.timedProducts = tuningSummary().products;
    /** @type {import('./checkpoint.mjs').RunState['best']} */
    this.best = plan.begin?.best ?? null;
    /** Losses by the number of steps before them. @type {Map<number, number>} */
    this.evaluated = new Map();
    /** Steps whose events have been yielded. */
    this.reported = 0;
    this.memory = { read: -Infinity, bytes: /** @type {number | undefined} */ (undefined) };
    /** @type {TextGenerator | undefined} */
    this.generator = undefined;
    /** What has memory of the device, until the run has ended. @type {Trainer | undefined} */
    this.trainer = undefined;
  }

  /** Frees what a run that has not come to its end has on the device. */
  free() {
    try {
      this.generator?.dispose();
      this.trainer?.destroy();
    } catch {
      // With a device that was lost all of it has gone.
    }
  }

  /** The configuration: that of the checkpoint, of the model to begin with, or the preset's, with the values given. @returns {RunConfig} */
  config() {
    try {
      return this.checkedConfig();
    } catch (error) {
      if (error instanceof RangeError) throw new UsageError(withFlags(error.message));
      throw error;
    }
  }

  /** The configuration, with errors that name settings. @returns {RunConfig} */
  checkedConfig() {
    const { begin, from } = this.plan;
    const { options } = this;
    const isCpu = this.info.deviceTypeName === 'cpu';
    const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
    const name = options.preset ?? (isCpu ? 'llama-tiny' : 'llama-30m');
    /** @type {RunConfig} */
    let config;
    if (begin) config = { model: begin.config.model, settings: withValues(begin.config.settings, given) };
    else if (from) {
      const block = { blockSize: Math.min(from.config.context, 1024) };
      config = { model: from.config, settings: withValues({ ...presetOf(name).settings, ...this.defaults(from.config), ...block }, given) };
    } else {
      const vocabSize = options.vocabSize ?? vocabularyFor(this.plan.files, presetOf(name).sizes.vocabSize);
      config = configOf(name, { ...given, vocabSize });
    }
    const { settings } = config;
    if (!begin) settings.gradientAccumulationSteps *= this.ranks?.group.worldSize ?? 1;
    fitSettings(settings, given);
    checkSharding(this.ranks, settings);
    return checkRun(config);
  }

  /** Settings that begin a run from another model's weights, where none are given. @param {ModelConfig} _ @returns {Partial<Settings>} */
  defaults(_) {
    return FROM_A_MODEL;
  }

  /**
   * The model to train, where it is not new or is read from a checkpoint.
   * @param {RunConfig} _ @param {Checkpoint | undefined} last the checkpoint to continue from
   * @returns {Promise<import('../model/decoder.mjs').Decoder | undefined>}
   */
  async model(_, last) {
    return !last && this.plan.from ? (await openModel(this.plan.from.from, this.options)).model : undefined;
  }

  /** @returns {AsyncGenerator<TrainEvent>} */
  async *events() {
    const { options, plan, ranks, first } = this;
    const { signal } = options;
    const config = this.config();
    const { settings } = config;
    const attempt = attemptOf();
    const run = plan.begin ? (plan.begin.run ?? newRun()) : (attempt.run ?? newRun());
    const out = await this.folder(run);
    /** After a launcher's restart, the last checkpoint that this run has written. @type {Checkpoint | undefined} */
    const begin = attempt.restarted && ranks ? ((await this.lastOf(out, run)) ?? plan.begin) : plan.begin;
    const firstStep = begin?.step ?? 0;
    if (begin && begin !== plan.begin) this.note(`continuing from ${begin.path}`);
    if (firstStep >= settings.maxSteps) {
      throw new UsageError(`the checkpoint is of step ${firstStep}, so --max-steps ${settings.maxSteps} is done: give more to continue`);
    }
    checkMatrixUnits(this.vk, settings.precision, this.info.deviceName);
    checkFits(config.model, { ...settings, ...shareOf(settings, ranks?.group.worldSize ?? 1) }, this.info);
    const lock = first ? await FolderLock.take(out) : undefined;
    /** @type {{ push(event: TrainEvent): void, close(): unknown }[]} */
    const logs = [];
    /** @type {RunData | undefined} */
    let data;
    try {
      if (first) checkFolder(out, run, firstStep);
      data = await this.openData(config, out);
      if (first) this.note(`${out}: training on ${plan.data.join(', ')}`);
      if (first && data.nothingHeld) this.note(`nothing is held out: ${data.nothingHeld}`);
      if (first && !data.tokenizer) {
        this.note(
          `${data.info.folder} has no tokenizer.json: there are no samples, and generate cannot write text; --tokenizer PATH names it`,
        );
      }
      // A new model takes the ids of its special tokens from the tokenizer.
      if (!begin && !plan.from && data.tokenizer) {
        const { bos, eos, pad } = data.tokenizer.special;
        Object.assign(config.model, { bos: bos ?? null, eos: eos === undefined ? [] : [eos], pad: pad ?? null });
      }
      if (begin?.data && !options.newData && data.info.sha256 !== begin.data.sha256) {
        const way = plan.tuning ? '' : ': --new-data continues with them';
        throw new UsageError(`the run was trained on other data than ${data.info.folder} has now${way}`);
      }
      const evalEvery = options.evalEvery ?? Math.max(1, Math.ceil(settings.maxSteps / 10));
      await this.agreeOn(config, { firstStep, data: data.info.sha256, evalEvery });
      if (options.earlyStoppingPatience && !data.validation) {
        throw new UsageError(`--early-stopping-patience needs held-out text, and ${data.nothingHeld}`);
      }
      if (first) {
        logs.push(new MetricsLog(out));
        if (options.tensorboard !== false) logs.push(new TensorBoardLog(out));
      }
      for await (const event of this.loop({ config, run, out, begin, data, evalEvery, lock })) {
        for (const log of logs) log.push(event);
        yield event;
      }
      signal?.throwIfAborted();
    } finally {
      for (const log of logs) await log.close();
      data?.close();
      lock?.release();
      // A run that was refused leaves nothing behind.
      if (lock && readdirSync(out).length === 0) rmdirSync(out);
    }
  }

  /** The folder of the run. Where none is named, rank 0 chooses it for all, and after a restart it is that of the attempt before. @param {string} run */
  async folder(run) {
    const { out, data } = this.plan;
    const own = this.first ? (out ?? freeFolder(data[0], run)) : '';
    const [chosen] = this.ranks ? await this.ranks.group.exchange(own) : [own];
    return out ?? /** @type {string} */ (chosen);
  }

  /** @param {string} out @param {string} run */
  async lastOf(out, run) {
    const { group } = /** @type {NonNullable<typeof this.ranks>} */ (this.ranks);
    const [path] = await group.exchange(group.rank === 0 ? (checkpointsOf(out, run).at(-1) ?? null) : null);
    return path === null ? undefined : loadCheckpoint(/** @type {string} */ (path));
  }

  /** Opens the data: rank 0 encodes texts before the others open them. @param {RunConfig} config @param {string} out @returns {Promise<RunData>} */
  async openData({ model, settings }, out) {
    const { options, plan, ranks, first } = this;
    const open = () =>
      openData({
        inputs: plan.files,
        prepared: options.newData ? freeName(join(out, 'data')) : join(out, 'data'),
        tokenizer: plan.tokenizer,
        vocabSize: model.vocabSize,
        block: settings.blockSize,
        isKnown: plan.begin?.data !== undefined && !options.newData,
        validation: options.validation,
        separator: options.separator,
        field: options.field,
        replaceInvalid: options.replaceInvalid,
        signal: options.signal,
        onProgress: options.onProgress,
      });
    const data = first ? await open() : undefined;
    await ranks?.group.exchange(null);
    return data ?? open();
  }

  /** @param {RunConfig} config @param {Record<string, unknown>} more */
  async agreeOn({ model, settings }, more) {
    const { options, ranks } = this;
    if (!ranks) return;
    const named = Object.fromEntries(Object.entries(settings).map(([name, value]) => [flagOf(name), value]));
    const { zero, reduce, group } = ranks;
    const { saveEvery = 0, evalBatches, sampleEvery = 0, sampleTokens, earlyStoppingPatience } = options;
    await agree(group, {
      ...model,
      ...named,
      ...more,
      zero,
      reduce,
      saveEvery,
      evalBatches,
      sampleEvery,
      sampleTokens,
      earlyStoppingPatience,
      ...this.plan.tuning,
    });
  }

  /**
   * @param {{ config: RunConfig, run: string, out: string, begin: Checkpoint | undefined, data: RunData,
   *   evalEvery: number, lock: FolderLock | undefined }} parts
   * @returns {AsyncGenerator<TrainEvent>}
   */
  async *loop({ config, run, out, begin, data, evalEvery, lock }) {
    const { options, plan, ranks, first, info } = this;
    const { settings } = config;
    const { saveEvery = 0, saveTotalLimit = Infinity, sampleEvery = 0, earlyStoppingPatience = 0 } = options;
    // Samples are rank 0's, which has a part of the weights then.
    const sampleTokens = ranks?.zero === 3 ? 0 : (options.sampleTokens ?? 100);
    if (first && ranks?.zero === 3) this.note('with --zero 3 no process has all weights: no samples are written');
    const files = data.tokenizer?.files() ?? {};
    const kept = Object.fromEntries(KEPT.map((name) => [name, options[name]]));
    const windows = { predicted: 0, bytes: /** @type {number | undefined} */ (undefined) };
    let last = begin;
    /** The step of the newest checkpoint in the run's folder: it is written once. */
    let saved = begin && resolve(begin.path) === resolve(checkpointPath(out, begin.step)) ? begin.step : undefined;
    let restarts = 0;
    /** Losses that trainers on lost devices had read. @type {Map<number, number>} */
    let known = new Map();
    /** @type {Trainer | undefined} */
    let trainer;
    let reason = /** @type {'steps' | 'early-stopping' | 'stopped'} */ ('steps');
    this.reported = begin?.step ?? 0;
    const open = async () => {
      if (restarts > 0) {
        // Forget everything on the lost device; the trainer opens it again.
        reset();
        this.vk.destroy();
      }
      options.onDevice?.(this.vk);
      const model = await this.model(config, last);
      const opened = new Trainer(this.vk, config, {
        data: data.train,
        validation: data.validation,
        evalBatches: options.evalBatches,
        mode: options.mode,
        model,
        drops: (plan.tuning?.dropout ?? 0) > 0,
        ranks,
        stopped: () => options.signal?.aborted === true,
        plans: this.plans ?? last?.plans,
      });
      const compared = [data.train, data.validation, data.test].filter((each) => each?.refer !== undefined);
      const pairs = compared.reduce((sum, each) => sum + (each?.windows ?? 0), 0);
      if (first && pairs > 0) this.note(`first, what the model says of ${pairs.toLocaleString('en')} pairs as it is`);
      this.trainer = opened;
      // Of several processes none may leave alone: they learn in the first step that one is to end.
      await opened.refer(compared, ranks ? undefined : options.signal);
      await last?.restore(opened);
      for (const [step, loss] of known) if (step < opened.stepsDone) opened.known.set(step, loss);
      return opened;
    };
    /** @param {Trainer} running @returns {AsyncGenerator<TrainEvent>} */
    const save = async function* (/** @type {Run} */ self, running, /** @type {boolean} */ best) {
      await running.settle();
      yield* self.steps(running, settings);
      running.pause();
      const step = running.stepsDone;
      if (step === saved) return;
      /** @type {string} */
      let path = '';
      if (first) {
        await lock?.check();
        path = await saveCheckpoint(out, running, { run, data: data.info, best: self.best, options: kept, tuning: plan.tuning }, files);
        last = await loadCheckpoint(path);
        const own = checkpointsOf(out, run);
        while (own.length > saveTotalLimit) rmSync(/** @type {string} */ (own.shift()), { recursive: true, force: true });
      } else await joinCheckpoint(running);
      // The others wait until rank 0 has written it.
      await ranks?.group.exchange(null);
      saved = step;
      yield { type: 'checkpoint', step, path, best };
    };
    /** Whether the evaluation came to its end. @param {Trainer} running @returns {AsyncGenerator<TrainEvent, boolean>} */
    const evaluate = async function* (/** @type {Run} */ self, running) {
      const step = running.stepsDone;
      if (!data.validation || self.evaluated.has(step)) return true;
      await running.settle();
      yield* self.steps(running, settings);
      const loss = await running.validate();
      if (loss === undefined) return false;
      // Of targets that are parts of texts there are no bytes.
      if (data.tokenizer && !data.validation.parts && windows.bytes === undefined) {
        const indexes = running.validationWindows();
        windows.bytes = predictedBytes(data.validation, indexes, data.tokenizer);
        windows.predicted = indexes.length * settings.blockSize;
      }
      // NaN is never the best.
      const best = loss < (self.best?.loss ?? Infinity);
      // Until its model is saved it counts as not made: the device may be lost meanwhile.
      if (best && first) await saveBest(out, running, files, plan.tuning);
      else if (best) await joinModel(running);
      if (best) self.best = { step, loss, since: 0 };
      else if (self.best) self.best.since++;
      self.evaluated.set(step, loss);
      const bitsPerByte = windows.bytes ? (loss * windows.predicted) / Math.LN2 / windows.bytes : undefined;
      // A loss over pairs is of no tokens.
      const perplexity = plan.tuning?.loss === 'dpo' ? undefined : Math.exp(loss);
      yield { type: 'eval', step, loss, perplexity, bitsPerByte, best };
      return true;
    };
    for (;;) {
      try {
        if (!trainer) {
          trainer = await open();
          if (restarts === 0) {
            yield {
              type: 'start',
              step: trainer.stepsDone,
              steps: settings.maxSteps,
              parameters: Object.values(trainer.stateDict('weights')).reduce((sum, { size }) => sum + size, 0),
              device: info.deviceName,
              precision: settings.precision,
              tokensPerStep: tokensPerStep(settings),
              trainTokens: data.train.tokens,
              validationTokens: data.validation?.tokens ?? 0,
              evalEvery: data.validation ? evalEvery : 0,
              saveEvery,
              sampleEvery: sampleTokens > 0 && data.tokenizer ? sampleEvery : 0,
            };
          }
        }
        const early = earlyStoppingPatience > 0 && (this.best?.since ?? 0) >= earlyStoppingPatience;
        if (!early && (await trainer.ready())) {
          await trainer.step();
          this.reportTuning();
          // Lets promises of losses resolve between steps.
          await nextTurn();
          yield* this.steps(trainer, settings);
          const { stepsDone } = trainer;
          const isLast = stepsDone >= settings.maxSteps;
          if (evalEvery > 0 && stepsDone % evalEvery === 0 && !isLast) yield* evaluate(this, trainer);
          if (saveEvery > 0 && stepsDone % saveEvery === 0 && !isLast) yield* save(this, trainer, false);
          if (sampleEvery > 0 && stepsDone % sampleEvery === 0 && !isLast) yield* this.sampled(trainer, data, sampleTokens);
          continue;
        }
        if (early) reason = 'early-stopping';
        else if (trainer.stepsDone < settings.maxSteps) reason = 'stopped';
        await trainer.settle();
        yield* this.steps(trainer, settings);
        if (reason !== 'stopped' && !(yield* evaluate(this, trainer))) reason = 'stopped';
        yield* save(this, trainer, this.best?.step === trainer.stepsDone);
        if (reason !== 'stopped') yield* this.sampled(trainer, data, sampleTokens);
        else if (first && data.validation && !this.best) this.note(`${out} has no best/: the run has stopped before its first evaluation`);
        const testLoss = data.test && reason !== 'stopped' ? await trainer.validate(data.test) : undefined;
        const skipped = await trainer.opt.skippedSteps();
        if (skipped > 0) this.note(`steps skipped because their gradients were not finite: ${skipped}`);
        const step = trainer.stepsDone;
        this.generator?.dispose();
        trainer.destroy();
        this.trainer = this.generator = undefined;
        yield {
          type: 'done',
          step,
          reason,
          bestStep: this.best?.step,
          bestLoss: this.best?.loss,
          ...(testLoss === undefined ? {} : { testLoss }),
          seconds: (performance.now() - this.started) / 1000,
        };
        return;
      } catch (error) {
        // A text that was cut or moved meanwhile ends the run, not what it has learned. One process of several cannot save alone.
        if (trainer && !ranks && error instanceof DataError) yield* this.kept(error, save(this, trainer, false));
        // The next turn opens the device again, where another loss is caught as well.
        if (ranks || /** @type {NodeJS.ErrnoException} */ (error)?.code !== 'ERR_HELIOS_DEVICE_LOST' || ++restarts > MAX_RESTARTS)
          throw error;
        this.note(`device lost (${/** @type {Error} */ (error).message}); continuing from ${last?.path ?? 'the first step'}`);
        if (trainer) known = trainer.known;
        trainer = this.generator = undefined;
      }
    }
  }

  /** The events of saving after an error, which is thrown with what went wrong then, too. @param {Error} error @param {AsyncGenerator<TrainEvent>} saving */
  async *kept(error, saving) {
    try {
      yield* saving;
    } catch (failure) {
      throw new Error(`${error.message}; and then: ${/** @type {Error} */ (failure).message}`, { cause: error });
    }
  }

  /** After a step: keeps the plans of its products, and reports which products were timed to choose kernels, when there are new ones. */
  reportTuning() {
    this.plans ??= tunedPlans();
    const summary = tuningSummary();
    if (!this.first || summary.products === this.timedProducts) return;
    this.timedProducts = summary.products;
    const line = tuningLine(summary);
    if (line) this.note(line);
  }

  /** Events of the steps whose loss has become known. @param {Trainer} trainer @param {Settings} settings @returns {Generator<TrainEvent>} */
  *steps(trainer, settings) {
    const { known, norms, finished, pauses } = trainer;
    const tokens = trainer.tokensPerStep;
    const now = performance.now();
    if (now - this.memory.read > MEMORY_EVERY) {
      this.memory = { read: now, bytes: this.vk.getAllocatorStats?.().activeBufferBytes };
    }
    for (; known.has(this.reported); this.reported++) {
      const step = this.reported + 1;
      yield {
        type: 'step',
        step,
        epoch: (step * tokens) / (trainer.data.windows * settings.blockSize),
        loss: /** @type {number} */ (known.get(this.reported)),
        learningRate: learningRateAt(settings, this.reported),
        gradNorm: norms.get(this.reported),
        tokensPerSecond: recentRate(finished, tokens, pauses),
        memoryBytes: this.memory.bytes,
      };
      norms.delete(this.reported);
    }
  }

  /** @param {Trainer} trainer @param {RunData} data @param {number} tokens @returns {AsyncGenerator<TrainEvent>} */
  async *sampled(trainer, data, tokens) {
    const { settings } = trainer.config;
    if (tokens === 0 || !data.tokenizer || !this.first) return;
    await trainer.settle();
    yield* this.steps(trainer, settings);
    this.generator ??= new TextGenerator(trainer.model, settings.precision, { block: settings.blockSize, graph: trainer.mode === 'graph' });
    const prompt = this.options.samplePrompt ?? data.tokenizer.decode(data.train.window(0).slice(0, 8), { skipSpecial: true });
    let text = '';
    for await (const part of generate(this.generator, data.tokenizer, prompt, { tokens, seed: settings.seed })) {
      if (this.options.signal?.aborted) return;
      text += part;
    }
    trainer.pause();
    yield { type: 'sample', step: trainer.stepsDone, text };
  }
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
