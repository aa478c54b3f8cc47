// Training on the device: compiles the step, uploads each step's batch, reads its loss, and moves the state in and out.
//
// There are two modes. `graph` launches the step as a recorded graph. `plain` submits its list of dispatches each time, by calls that other
// addons with the existing trainer's contract have too. Both give the same bits.

import { isDeepStrictEqual } from 'node:util';

import { accumulate, autocast, compile, init, manualSeed, nn, noGrad, optim, scope, tunedPlans, useTunedPlans } from 'helios-vk/nn';
import { Decoder } from '../model/decoder.mjs';
import { checkFits, checkMatrixUnits, logitsBytes, setPrecision } from './device.mjs';
import { checkSharding, shareOf } from './ranks.mjs';
import { checkRun, halfOf, learningRateAt, tokensPerStep } from './settings.mjs';
import { inProductOrder } from '../model/lora.mjs';
import { copyInto, initialize, momentsOf, setShards, setWeights, trainedOf } from './state.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('./settings.mjs').RunConfig} RunConfig */
/** @typedef {import('./state.mjs').Values} Values */
/**
 * A compiled function of a batch. Typed arrays stand for tensors, which the type of `compile` does not say.
 * @typedef {ReturnType<typeof compile<(batch: Tensor | Uint32Array, extra?: Tensor | Float32Array) => Tensor>>} Compiled
 */
/** @typedef {'weights' | 'm' | 'v'} Part of the state: parameters, first moments, second moments */

/** Steps that may be submitted and not finished. */
const STEPS_IN_FLIGHT = 2;

/** Milliseconds between two reads of the gradient's norm, each of which is a transfer of its own. */
const NORM_EVERY = 100;

/**
 * What a process reports of a step.
 * @typedef {object} StepReport
 * @property {number | null} loss mean of its share; null where it is not a number
 * @property {boolean} stop whether this process was asked to stop
 */

/**
 * Where the windows of steps come from; `openDataset` makes one.
 * @typedef {object} Windows
 * @property {number} windows how many there are
 * @property {(which: { seed: number, step: number, batch: number, rank: number, world: number }) => Uint32Array} batch [batch, block + 1]
 * @property {(index: number) => Uint32Array} window [block + 1]
 *
 * Windows of another form than `block + 1` ids.
 * @typedef {object} OwnForm
 * @property {number} parts rows of `block` that a window has, which `batch` and `window` return
 * @property {(model: Decoder, parts: Tensor[], extra: Tensor | undefined, options: { logitsBytes?: number }) => Tensor} loss of a micro-step's
 *   windows: the sum of what `validate` divides by `counted`, and a step by its tokens
 * @property {(windows: number[]) => number} counted
 * @property {(which: { seed: number, step: number, batch: number, micro: number, rank: number, world: number, block: number }) => Float32Array} extra
 *   what `loss` takes of a step besides, of each micro-step the same number
 * @property {(windows: number[]) => Float32Array | undefined} extraOf the same of a batch in `validate`
 * @property {OwnForm['loss']} [margins] what a model that the run begins with says of each window, [windows]
 * @property {(computed: (windows: number[]) => Promise<Float32Array>, batch: number) => Promise<void>} [refer] takes `margins` of all windows
 */

/**
 * The state to continue from.
 * @typedef {object} State
 * @property {number} step optimizer steps done
 * @property {number} [skipped] how many of them the optimizer skipped because gradients were not finite; 0 when left out
 * @property {Values} [weights] as they begin with `seed` when left out
 * @property {Values} [m] first moments; zeros when left out
 * @property {Values} [v] second moments; zeros when left out
 */

/**
 * @typedef {object} TrainerOptions
 * @property {Windows & Partial<OwnForm>} data what to train on
 * @property {Windows & Partial<OwnForm>} [validation] held-out windows, for `validate`
 * @property {number} [evalBatches] most batches of a validation; 16 when left out
 * @property {'graph' | 'plain'} [mode] `graph` when left out
 * @property {Decoder} [model] on the device, to train; becomes the trainer's. A new one when left out
 * @property {boolean} [drops] whether the model has dropout; false when left out
 * @property {import('./ranks.mjs').TrainingRanks} [ranks] the processes that train together; all make the same calls
 * @property {() => boolean} [stopped] whether the run is to end before its last step
 * @property {ReturnType<typeof tunedPlans>} [plans] those of matrix products that the run had before, on this device: they are used, and nothing is
 *   timed, so that the bits are the same
 */

/**
 * The parts of windows, ids and targets first, as a step takes them.
 * @param {Uint32Array[]} windows @param {number} block @param {number | undefined} parts as in `OwnForm`
 * @param {Uint32Array} [into]
 * @returns {Uint32Array} [parts, windows, block]
 */
function splitWindows(windows, block, parts, into = new Uint32Array((parts ?? 2) * windows.length * block)) {
  // The targets of ids are these ids, one further.
  const step = parts === undefined ? 1 : block;
  for (const [row, window] of windows.entries()) {
    for (let part = 0; part < (parts ?? 2); part++) {
      into.set(window.subarray(part * step, part * step + block), (part * windows.length + row) * block);
    }
  }
  return into;
}

/** Parts that `splitWindows` has put into one row. @param {Tensor} flat @param {number} parts @param {number} block @returns {Tensor[]} [windows, block] each */
const partsOf = (flat, parts, block) => Array.from({ length: parts }, (_, i) => flat.reshape(parts, -1, block).at(i));

/** The arguments of a compiled function. @param {Uint32Array} batch @param {Float32Array} [extra] @returns {[batch: Uint32Array, extra?: Float32Array]} */
const withExtra = (batch, extra) => (extra ? [batch, extra] : [batch]);

/**
 * The ids and targets of one process's share of a step.
 * @param {Windows & { parts?: number }} data
 * @param {Pick<import('./settings.mjs').Settings, 'batchSize' | 'gradientAccumulationSteps' | 'blockSize' | 'seed'>} share
 * @param {number} step
 * @param {{ rank: number, world: number }} [place] one process when left out
 * @param {Uint32Array} [into]
 * @returns {Uint32Array} [microSteps, parts, batch, block]
 */
export function stepBatch(data, share, step, place = { rank: 0, world: 1 }, into) {
  const { batchSize, gradientAccumulationSteps: micro, blockSize, seed } = share;
  const rows = data.batch({ seed, step, batch: batchSize * micro, ...place });
  const [from, to] = [rows.length / (batchSize * micro), (data.parts ?? 2) * batchSize * blockSize];
  const windows = Array.from({ length: batchSize * micro }, (_, i) => rows.subarray(i * from, (i + 1) * from));
  const batch = into ?? new Uint32Array(micro * to);
  for (let i = 0; i < micro; i++) {
    splitWindows(windows.slice(i * batchSize, (i + 1) * batchSize), blockSize, data.parts, batch.subarray(i * to, (i + 1) * to));
  }
  return batch;
}

/**
 * The sum of losses of each window's next tokens.
 * @param {Decoder} model @param {Tensor[]} parts @param {unknown} _ @param {{ logitsBytes?: number }} options
 */
const nextToken = (model, [ids, targets], _, options) => model.loss(ids, targets, { counted: 1, ...options });

/**
 * The optimizer of a model, and functions of batches, to be compiled.
 * @param {Decoder} model
 * @param {Omit<import('./settings.mjs').Settings, 'batchSize' | 'gradientAccumulationSteps'> & { batchSize: number, gradientAccumulationSteps: number }} settings
 *   of this process's share of a step
 * @param {{ logitsBytes?: number } & Partial<Pick<OwnForm, 'parts' | 'loss'>> & Pick<optim.Options, 'processGroup' | 'zero' | 'reduce'>} [options]
 *   `logitsBytes`: see `Decoder.loss`; with processes, call `gradients`, then `opt.step()`
 */
export function createTraining(model, settings, { logitsBytes: bytes, parts = 2, loss: lossOf = nextToken, ...ranks } = {}) {
  const { batchSize, gradientAccumulationSteps: micro, blockSize, lrScheduler, warmupSteps, maxSteps, minLr } = settings;
  const tokens = batchSize * blockSize;
  const trained = inProductOrder(Object.entries(trainedOf(model)));
  const [vectors, matrices] = [true, false].map((flat) => trained.filter(({ ndim }) => (ndim === 1) === flat));
  const opt = new optim.AdamW([{ params: matrices }, ...(vectors.length ? [{ params: vectors, weightDecay: 0 }] : [])], {
    lr: settings.learningRate,
    betas: [settings.beta1, settings.beta2],
    eps: settings.epsilon,
    weightDecay: settings.weightDecay,
    clip: settings.maxGradNorm,
    // The gradients are of the sum of losses: of the mean, they would be too small for f16.
    gradientScale: 1 / tokens,
    // The device computes half a cosine itself. The host sets other rates before each step.
    ...(lrScheduler === 'cosine' ? { schedule: { warmup: warmupSteps, total: maxSteps, finalLr: minLr } } : {}),
    ...ranks,
  });
  /** The sum of losses. @param {Tensor} flat u32: the ids, then the targets and other parts, of whole sequences @param {Tensor} [extra] as in `OwnForm` */
  const loss = (flat, extra) => {
    return autocast(halfOf(settings.precision), () => lossOf(model, partsOf(flat, parts, blockSize), extra, { logitsBytes: bytes }));
  };
  /**
   * Computes the gradients of an optimizer step, times `tokens`.
   * @param {Tensor} flat ids and targets of each micro-step @param {Tensor} [extra] @returns {Tensor} the mean loss
   */
  const gradients = (flat, extra) => {
    const [batch, more] = [flat.reshape(micro, -1), extra?.reshape(micro, -1)];
    return accumulate(micro, (i) => loss(batch.at(i), more?.at(i))).mul(1 / tokens);
  };
  /** One optimizer step. @param {Tensor} flat @param {Tensor} [extra] as for `gradients` @returns {Tensor} the mean loss before the step */
  const step = (flat, extra) => {
    const mean = gradients(flat, extra);
    opt.step();
    return mean;
  };
  return { opt, loss, gradients, step };
}

/** Data that could not be read. Nothing of them has reached the weights. */
export class DataError extends Error {
  /** @param {string} what such as 'step 3' @param {Error} cause */
  constructor(what, cause) {
    super(`the data of ${what} cannot be read: ${cause.message}`, { cause });
    this.name = 'DataError';
  }
}

/** @template T @param {string} what @param {() => T} read @returns {T} @throws {DataError} */
function reading(what, read) {
  try {
    return read();
  } catch (error) {
    throw new DataError(what, /** @type {Error} */ (error));
  }
}

export class Trainer {
  /**
   * Puts a model on the device. The addon becomes that of `helios-vk/nn`: to use another one in the same process, call its `reset`. Call
   * `load` before the first step, to continue a run.
   * @param {import('./device.mjs').Native} vk the native module
   * @param {RunConfig} config of the whole run
   * @param {TrainerOptions} options
   */
  constructor(
    vk,
    config,
    { data, validation, evalBatches = 16, mode = 'graph', model, drops = false, ranks, stopped = () => false, plans },
  ) {
    this.config = checkRun(config);
    const { settings } = config;
    const { rank, worldSize } = ranks?.group ?? { rank: 0, worldSize: 1 };
    this.ranks = ranks;
    this.stopped = stopped;
    /** What this process computes of a step, with the settings that all share. @type {import('./settings.mjs').Settings} */
    this.share = { ...settings, ...shareOf(settings, worldSize) };
    this.place = { rank, world: worldSize };
    if (mode !== 'graph' && mode !== 'plain') throw new RangeError(`mode must be graph or plain, got ${String(mode)}`);
    this.data = data;
    this.validation = validation;
    this.evalBatches = evalBatches;
    this.drops = drops;
    this.mode = mode;
    const info = init({ vk });
    checkMatrixUnits(vk, settings.precision, info.deviceName);
    checkFits(config.model, this.share, info);
    const bytes = logitsBytes(config.model, info);
    this.logitsBytes = bytes;
    /** Optimizer steps submitted, including those that the optimizer skips: each takes the next batch. */
    this.stepsDone = 0;
    /** Losses known on the host, by step. @type {Map<number, number>} */
    this.known = new Map();
    /** The gradient's norm before clipping of some steps, by step. @type {Map<number, number>} */
    this.norms = new Map();
    /** When a norm was read last. */
    this.normRead = -Infinity;
    /** The number of steps after which all ranks stop, because one of them was asked to. */
    this.stopAt = Infinity;
    /** Steps that are submitted and not finished, oldest first. @type {Set<Promise<void>>} */
    this.inFlight = new Set();
    /** @type {unknown} */
    this.failure = undefined;
    /** When each step was seen to be finished, in milliseconds of `performance.now()`. @type {number[]} */
    this.finished = [];
    /** Indexes into `finished` of steps before which the run paused to do something else. @type {Set<number>} */
    this.pauses = new Set();
    /** Host time of each step in milliseconds, without waiting. @type {number[]} */
    this.hostTimes = [];
    const { batchSize, gradientAccumulationSteps, blockSize } = this.share;
    /** @type {Uint32Array} */
    this.batch = new Uint32Array(gradientAccumulationSteps * (data.parts ?? 2) * batchSize * blockSize);

    this.model = model ?? nn.skipInit(() => new Decoder(config.model));
    checkSharding(ranks, settings);
    /** Whether each process has a part of the weights. */
    this.sharded = ranks?.zero === 3;
    // A unit of sharded parameters computes its layer again itself.
    this.model.gradCheckpoint = settings.gradCheckpoint && !this.sharded;
    if (!model) initialize(this.model, settings.seed);
    if (this.sharded) for (const block of this.model.layers) nn.fullyShard(block);
    const together = ranks && { processGroup: ranks.group, zero: ranks.zero, reduce: ranks.reduce };
    const { parts, loss: lossOf } = data;
    const { opt, loss, gradients, step } = createTraining(this.model, this.share, { logitsBytes: bytes, parts, loss: lossOf, ...together });
    this.opt = opt;
    // Several processes take the plans that rank 0 finds, see `agree`.
    const known = plans && isDeepStrictEqual(plans.device, tunedPlans().device);
    if (known) useTunedPlans(plans);
    const tune = known ? { tune: false } : worldSize > 1 ? { tune: rank === 0 } : {};
    const options = { graph: mode === 'graph', reuseOutputs: true, ...tune };
    /** Whether the ranks use the same plans. @type {Promise<void> | undefined} */
    this.agreed = undefined;
    /** Functions of batches; {@link submit} calls them. */
    this.functions = /** @type {Record<'step' | 'gradients' | 'loss', Compiled>} */ ({
      step: compile(step, options),
      gradients: compile(gradients, options),
      loss: compile(
        (/** @type {Tensor} */ flat, /** @type {Tensor | undefined} */ extra) => noGrad(() => loss(flat, extra)),
        worldSize > 1 ? { ...options, tune: false } : options,
      ),
    });
    this.load({ step: 0 });
  }

  /**
   * Calls one of the compiled functions.
   * @param {keyof Trainer['functions']} name @param {Uint32Array} batch @param {Float32Array} [extra] as in `OwnForm`
   * @returns {Tensor}
   */
  submit(name, batch, extra) {
    setPrecision(this.config.settings.precision);
    return this.functions[name](...withExtra(batch, extra));
  }

  /** Tokens of one optimizer step. */
  get tokensPerStep() {
    return tokensPerStep(this.config.settings);
  }

  /** The compiled part of a step: all of it, or with several processes everything up to the gradients, which are exchanged next. */
  get compiled() {
    return this.functions[this.ranks ? 'gradients' : 'step'];
  }

  /** Dispatches of one step, with several processes without those of the optimizer; 0 before the first step. */
  get dispatches() {
    return this.compiled.explain().at(-1)?.dispatches ?? 0;
  }

  /**
   * Trained parameters or their moments by the parameters' names, as `Module.stateDict` returns them. They see the device's memory: call it in a scope.
   * With ZeRO all processes must call it for moments, which are gathered; with ZeRO-3 all must read the same weights.
   * @param {Part} part
   * @returns {Record<string, Tensor>}
   */
  stateDict(part) {
    return part === 'weights' ? trainedOf(this.model) : this.moments()[part];
  }

  /** Both moments by the parameters' names, as `stateDict` returns one of them: dispose of the tensors. */
  moments() {
    return momentsOf(this.model, this.opt);
  }

  /** Sets weights, moments and the step. Weights that are left out stay as they are. @param {State} state */
  load({ step, skipped = 0, weights, m, v }) {
    if (weights && this.sharded) setWeights(this.model, this.opt, weights);
    else if (weights) copyInto(trainedOf(this.model), weights);
    if (this.ranks?.zero) {
      for (const [moment, values] of [m, v].entries()) setShards(this.model, this.opt, moment, values);
    } else {
      scope(() => {
        const own = this.moments();
        copyInto(own.m, m);
        copyInto(own.v, v);
      });
    }
    this.opt.startAt(step - skipped, skipped);
    this.stepsDone = step;
  }

  /**
   * Waits while too many steps are in flight.
   * @returns {Promise<boolean>} whether there is another step to make; all ranks get the same answer
   */
  async ready() {
    while (this.inFlight.size >= STEPS_IN_FLIGHT && !this.failure) await this.inFlight.values().next().value;
    if (this.failure) throw this.failure;
    return this.stepsDone < Math.min(this.config.settings.maxSteps, this.stopAt) && (this.ranks !== undefined || !this.stopped());
  }

  /** The ids and targets of a step, this process's share: [microSteps, parts, batch, block]. @param {number} step */
  batchOf(step) {
    return stepBatch(this.data, this.share, step, this.place, this.batch);
  }

  /** What the loss of a step takes besides. @param {number} step */
  extraOf(step) {
    const { batchSize: batch, gradientAccumulationSteps: micro, blockSize: block, seed } = this.share;
    return this.data.extra?.({ seed, step, batch, micro, block, ...this.place });
  }

  /**
   * With several processes: rank 0 compiles the step and times its products, and the others take the plans that it found. Otherwise nothing:
   * the first step does so.
   */
  async agree() {
    if (!this.ranks || this.place.world === 1) return;
    const { group } = this.ranks;
    if (group.rank === 0) {
      setPrecision(this.config.settings.precision);
      this.functions.gradients.prepare(...withExtra(this.batchOf(this.stepsDone), this.extraOf(this.stepsDone)));
    }
    const [plans] = await group.exchange(group.rank === 0 ? tunedPlans() : null);
    if (group.rank !== 0) useTunedPlans(plans);
  }

  /**
   * Submits one optimizer step; waits while too many are in flight.
   * @returns {Promise<number>} steps submitted so far
   * @throws {DataError} if its data cannot be read: the trainer is then as after the step before
   */
  async step() {
    await this.ready();
    await (this.agreed ??= this.agree());
    const start = performance.now();
    const step = this.stepsDone;
    const [batch, extra] = reading(`step ${step + 1}`, () => [this.batchOf(step), this.extraOf(step)]);
    // Of the step alone, so that a resumed run drops what it would have dropped.
    if (this.drops) manualSeed(this.config.settings.seed * 2 ** 20 + step);
    if (this.config.settings.lrScheduler !== 'cosine') this.opt.lr = learningRateAt(this.config.settings, step);
    const loss = this.submit(this.ranks ? 'gradients' : 'step', batch, extra);
    if (this.ranks) this.opt.step();
    if (this.config.settings.maxGradNorm > 0 && start - this.normRead >= NORM_EVERY) this.#readNorm(step, start);
    // The ranks exchange their reports in the order of steps.
    const before = [...this.inFlight].at(-1);
    /** @type {Promise<void>} */
    const read = Promise.all([loss.item(), before])
      .then(([value]) => this.#report(step, value))
      .then((value) => {
        this.known.set(step, value);
        this.finished.push(performance.now());
        // No later step makes the weights finite again.
        if (!Number.isFinite(value)) {
          throw new Error(
            `the loss of step ${step + 1} is ${value}: the run has diverged; a lower learning rate or a longer warm-up may keep it finite`,
          );
        }
      })
      .catch((/** @type {unknown} */ error) => {
        this.failure ??= error;
      })
      .finally(() => this.inFlight.delete(read));
    this.inFlight.add(read);
    loss.dispose();
    this.hostTimes.push(performance.now() - start);
    return ++this.stepsDone;
  }

  /** Reads the norm of a step's gradient, before its loss is read. @param {number} step @param {number} now */
  #readNorm(step, now) {
    this.normRead = now;
    // A lost device is the loss's error.
    void this.opt.gradientNorm().then(
      (norm) => this.norms.set(step, norm),
      () => {},
    );
  }

  /**
   * The mean of all ranks' losses of a step. The ranks also learn here whether one of them was asked to stop. All then stop after the
   * same step: the last one that any rank may have submitted before it learned.
   * @param {number} step @param {number} loss
   */
  async #report(step, loss) {
    if (!this.ranks) return loss;
    /** @type {StepReport[]} */
    const all = await this.ranks.group.exchange({ loss, stop: this.stopped() });
    if (all.some(({ stop }) => stop)) this.stopAt = Math.min(this.stopAt, step + STEPS_IN_FLIGHT);
    return all.reduce((sum, each) => sum + (each.loss ?? NaN), 0) / all.length;
  }

  /** Waits until every submitted step is finished and its loss is known. */
  async settle() {
    await Promise.all(this.inFlight);
    if (this.failure) throw this.failure;
  }

  /**
   * Tells data that are compared with the model as it is now what this says of them.
   * @param {(Windows & Partial<OwnForm> | undefined)[]} all @param {AbortSignal} [signal] ends it with the signal's reason before the next batch
   */
  async refer(all, signal) {
    const { batchSize, blockSize, precision } = this.share;
    this.model.eval();
    for (const { parts, margins, refer, window } of all.filter((each) => each !== undefined)) {
      if (parts === undefined || margins === undefined || refer === undefined) continue;
      const marginsOf = (/** @type {Tensor} */ flat) => {
        const own = partsOf(flat, parts, blockSize);
        return noGrad(() => autocast(halfOf(precision), () => margins(this.model, own, undefined, { logitsBytes: this.logitsBytes })));
      };
      const compiled = /** @type {Compiled} */ (compile(marginsOf));
      try {
        await refer(async (windows) => {
          signal?.throwIfAborted();
          setPrecision(precision);
          const result = compiled(splitWindows(windows.map(window), blockSize, parts));
          const values = await result.toArray();
          result.dispose();
          return /** @type {Float32Array} */ (values);
        }, batchSize);
      } finally {
        compiled.dispose();
      }
    }
    this.model.train();
  }

  /** The windows of a validation: evenly spread over the held-out ones, without overlap, the same each time. @returns {number[]} */
  validationWindows(validation = this.validation) {
    const all = validation?.windows ?? 0;
    const count = Math.min(all, this.evalBatches * this.share.batchSize);
    return Array.from({ length: count }, (_, i) => Math.floor((i * all) / count));
  }

  /**
   * The mean loss over the held-out windows, after every step submitted so far. Each rank computes some of the batches. Does not touch
   * weights, moments or gradients.
   * @param {TrainerOptions['validation']} [validation] other windows than the trainer's
   * @returns {Promise<number | undefined>} in nats; undefined where a process was asked to stop meanwhile: all then stop after this step
   * @throws {DataError} if the windows cannot be read
   */
  async validate(validation = this.validation) {
    this.model.eval();
    try {
      return await this.#validated(validation);
    } finally {
      this.model.train();
    }
  }

  /** @param {TrainerOptions['validation']} validation */
  async #validated(validation) {
    if (!validation) throw new Error('validate: the trainer was made without validation windows');
    await this.settle();
    const { batchSize, blockSize } = this.share;
    const { rank, world } = this.place;
    const windows = this.validationWindows(validation);
    /** Sums of losses by batch: they are added in the order of batches, whatever the number of ranks. @type {(number | null)[]} */
    let sums = [];
    let stop = false;
    const batches = Math.ceil(windows.length / batchSize);
    // Those that read sharded weights gather them together: all compute as many batches, of the same shapes, since kernels by their shapes choose the
    // order in which weights are gathered. So a last batch that is smaller is computed by all.
    const even = this.sharded ? Math.floor(windows.length / batchSize) : batches;
    const rounds = this.sharded ? world * (Math.ceil(even / world) + batches - even) : batches;
    /** The batch of a round, and the round that counts for it. @param {number} i */
    const batchOf = (i) => (i < world * Math.ceil(even / world) ? Math.min(i, even - 1) : batches - 1);
    const roundOf = (/** @type {number} */ i) => (i < even ? i : world * Math.ceil(even / world));
    for (let i = 0; i < rounds && !(stop = !this.sharded && this.stopped()); i++) {
      const at = batchOf(i) * batchSize;
      const own = windows.slice(at, at + batchSize);
      const counts = roundOf(batchOf(i)) === i;
      if (counts) sums.push(0);
      if (i % world !== rank) continue;
      const rows = reading('an evaluation', () => own.map((index) => validation.window(index)));
      const loss = this.submit('loss', splitWindows(rows, blockSize, validation.parts), validation.extraOf?.(own));
      const sum = await loss.item();
      if (counts) sums[batchOf(i)] = sum;
      loss.dispose();
    }
    stop ||= this.stopped();
    if (this.ranks) {
      /** @type {{ sums: (number | null)[], stop: boolean }[]} */
      const all = await this.ranks.group.exchange({ sums, stop });
      stop = all.some((each) => each.stop);
      if (stop) this.stopAt = this.stepsDone;
      else sums = sums.map((_, i) => all[roundOf(i) % world].sums[i]);
    }
    this.pause();
    if (stop) return undefined;
    const sum = sums.reduce((/** @type {number} */ total, loss) => total + (loss ?? NaN), 0);
    return sum / (validation.counted?.(windows) ?? windows.length * blockSize);
  }

  /** Notes that the next step begins after a pause, which its rate leaves out. */
  pause() {
    this.pauses.add(this.finished.length);
  }

  /**
   * GPU time of a step, by line of the model and the operations there, from timestamps around each dispatch; with several processes
   * without the optimizer. It trains one step more, so call it at the end of a run.
   * @returns {Promise<import('./profile.mjs').KernelTime[]>} longest first
   */
  async kernelTimes() {
    await this.settle();
    const times = this.compiled.profile(...withExtra(this.batchOf(this.stepsDone), this.extraOf(this.stepsDone)));
    return times.map(({ origin, operations, dispatches, microseconds, flops, products }) => ({
      role: origin ? `${operations} (${origin})` : operations,
      count: dispatches,
      microseconds,
      flops,
      products,
    }));
  }

  /** Releases every buffer and graph. */
  destroy() {
    for (const compiled of Object.values(this.functions)) compiled.dispose();
    this.opt.dispose();
    this.model.dispose();
  }
}
