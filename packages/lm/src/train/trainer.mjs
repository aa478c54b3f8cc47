// Training on the device: compiles the step, uploads each step's batch, reads its loss, and moves the state in and out.
//
// There are two modes. `graph` launches the step as a recorded graph. `plain` submits its list of dispatches each time, by calls that other
// addons with the existing trainer's contract have too. Both give the same bits.

import { isDeepStrictEqual } from 'node:util';

import { accumulate, autocast, compile, init, nn, noGrad, optim, scope, tunedPlans, useTunedPlans } from 'helios-vk/nn';
import { Decoder } from '../model/decoder.mjs';
import { checkFits, checkMatrixUnits, logitsBytes, setPrecision } from './device.mjs';
import { shareOf } from './ranks.mjs';
import { checkRun, halfOf, learningRateAt, tokensPerStep } from './settings.mjs';
import { copyInto, initialize, momentsOf, setShards } from './state.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('./settings.mjs').RunConfig} RunConfig */
/** @typedef {import('./state.mjs').Values} Values */
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
 * @property {Windows} data what to train on
 * @property {Windows} [validation] held-out windows, for `validate`
 * @property {number} [evalBatches] most batches of a validation; 16 when left out
 * @property {'graph' | 'plain'} [mode] `graph` when left out
 * @property {Decoder} [model] on the device, to train; becomes the trainer's. A new one when left out
 * @property {import('./ranks.mjs').TrainingRanks} [ranks] the processes that train together; all make the same calls
 * @property {() => boolean} [stopped] whether the run is to end before its last step
 * @property {ReturnType<typeof tunedPlans>} [plans] those of matrix products that the run had before, on this device: they are used, and nothing is
 *   timed, so that the bits are the same
 */

/**
 * Ids and targets of windows, as a step takes them.
 * @param {Uint32Array} rows [count, block + 1] @param {number} count @param {number} block @param {Uint32Array} into [2, count, block]
 */
function splitWindows(rows, count, block, into) {
  for (let row = 0; row < count; row++) {
    const at = row * (block + 1);
    into.set(rows.subarray(at, at + block), row * block);
    into.set(rows.subarray(at + 1, at + block + 1), (count + row) * block);
  }
  return into;
}

/**
 * The ids and targets of one process's share of a step.
 * @param {Windows} data
 * @param {Pick<import('./settings.mjs').Settings, 'batchSize' | 'gradientAccumulationSteps' | 'blockSize' | 'seed'>} share
 * @param {number} step
 * @param {{ rank: number, world: number }} [place] one process when left out
 * @param {Uint32Array} [into]
 * @returns {Uint32Array} [microSteps, 2, batch, block]
 */
export function stepBatch(data, share, step, place = { rank: 0, world: 1 }, into) {
  const { batchSize, gradientAccumulationSteps: micro, blockSize, seed } = share;
  const rows = data.batch({ seed, step, batch: batchSize * micro, ...place });
  const [from, to] = [batchSize * (blockSize + 1), 2 * batchSize * blockSize];
  const batch = into ?? new Uint32Array(micro * to);
  for (let i = 0; i < micro; i++) {
    splitWindows(rows.subarray(i * from, (i + 1) * from), batchSize, blockSize, batch.subarray(i * to, (i + 1) * to));
  }
  return batch;
}

/**
 * The optimizer of a model, and functions of batches, to be compiled.
 * @param {Decoder} model
 * @param {Omit<import('./settings.mjs').Settings, 'batchSize' | 'gradientAccumulationSteps'> & { batchSize: number, gradientAccumulationSteps: number }} settings
 *   of this process's share of a step
 * @param {{ logitsBytes?: number } & Pick<optim.Options, 'processGroup' | 'zero' | 'reduce'>} [options] `logitsBytes`: see `Decoder.loss`;
 *   with processes, call `gradients`, then `opt.step()`
 */
export function createTraining(model, settings, { logitsBytes: bytes, ...ranks } = {}) {
  const { batchSize, gradientAccumulationSteps: micro, blockSize, lrScheduler, warmupSteps, maxSteps, minLr } = settings;
  const tokens = batchSize * blockSize;
  const [vectors, matrices] = [true, false].map((flat) => [...model.parameters()].filter(({ ndim }) => (ndim === 1) === flat));
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
  /** The sum of losses. @param {Tensor} flat u32: the ids, then the targets, of whole sequences */
  const loss = (flat) => {
    const [ids, targets] = [0, 1].map((i) => flat.reshape(2, -1, blockSize).at(i));
    return autocast(halfOf(settings.precision), () => model.loss(ids, targets, { counted: 1, logitsBytes: bytes }));
  };
  /** Computes the gradients of an optimizer step, times `tokens`. @param {Tensor} flat ids and targets of each micro-step @returns {Tensor} the mean loss */
  const gradients = (flat) => {
    const batch = flat.reshape(micro, -1);
    return accumulate(micro, (i) => loss(batch.at(i))).mul(1 / tokens);
  };
  /** One optimizer step. @param {Tensor} flat as for `gradients` @returns {Tensor} the mean loss before the step */
  const step = (flat) => {
    const mean = gradients(flat);
    opt.step();
    return mean;
  };
  return { opt, loss, gradients, step };
}

export class Trainer {
  /**
   * Puts a model on the device. The addon becomes that of `helios-vk/nn`: to use another one in the same process, call its `reset`. Call
   * `load` before the first step, to continue a run.
   * @param {any} vk the native module
   * @param {RunConfig} config of the whole run
   * @param {TrainerOptions} options
   */
  constructor(vk, config, { data, validation, evalBatches = 16, mode = 'graph', model, ranks, stopped = () => false, plans }) {
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
    this.mode = mode;
    const info = init({ vk });
    checkMatrixUnits(vk, settings.precision, info.deviceName);
    checkFits(config.model, this.share, info);
    const bytes = logitsBytes(config.model, info);
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
    this.batch = new Uint32Array(gradientAccumulationSteps * 2 * batchSize * blockSize);

    this.model = model ?? nn.skipInit(() => new Decoder(config.model));
    this.model.gradCheckpoint = settings.gradCheckpoint;
    if (!model) initialize(this.model, settings.seed);
    const together = ranks && { processGroup: ranks.group, zero: ranks.zero, reduce: ranks.reduce };
    const { opt, loss, gradients, step } = createTraining(this.model, this.share, { logitsBytes: bytes, ...together });
    this.opt = opt;
    // Several processes take the plans that rank 0 finds, see `agree`.
    const known = plans && isDeepStrictEqual(plans.device, tunedPlans().device);
    if (known) useTunedPlans(plans);
    const tune = known ? { tune: false } : worldSize > 1 ? { tune: rank === 0 } : {};
    const options = { graph: mode === 'graph', reuseOutputs: true, ...tune };
    /** Whether the ranks use the same plans. @type {Promise<void> | undefined} */
    this.agreed = undefined;
    /** Functions of batches; {@link submit} calls them. */
    this.functions = {
      step: compile(step, options),
      gradients: compile(gradients, options),
      loss: compile((/** @type {Tensor} */ flat) => noGrad(() => loss(flat)), worldSize > 1 ? { ...options, tune: false } : options),
    };
    this.load({ step: 0 });
  }

  /**
   * Calls one of the compiled functions.
   * @param {keyof Trainer['functions']} name @param {Uint32Array} batch
   * @returns {Tensor}
   */
  submit(name, batch) {
    setPrecision(this.config.settings.precision);
    return /** @type {any} */ (this.functions[name])(batch);
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
   * Parameters or moments by the parameters' names, as `Module.stateDict` returns them. They see the device's memory: call it in a scope.
   * With ZeRO all processes must call it for moments, which are gathered.
   * @param {Part} part
   * @returns {Record<string, Tensor>}
   */
  stateDict(part) {
    return part === 'weights' ? this.model.stateDict() : this.moments()[part];
  }

  /** Both moments by the parameters' names, as `stateDict` returns one of them: dispose of the tensors. */
  moments() {
    return momentsOf(this.model, this.opt);
  }

  /** Sets weights, moments and the step. Weights that are left out stay as they are. @param {State} state */
  load({ step, skipped = 0, weights, m, v }) {
    if (weights) copyInto(this.model.stateDict(), weights);
    if (this.ranks?.zero === 1) setShards(this.model, this.opt, { m, v });
    else {
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

  /** The ids and targets of a step, this process's share: [microSteps, 2, batch, block]. @param {number} step */
  batchOf(step) {
    return stepBatch(this.data, this.share, step, this.place, this.batch);
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
      this.functions.gradients.prepare(/** @type {any} */ (this.batchOf(this.stepsDone)));
    }
    const [plans] = await group.exchange(group.rank === 0 ? tunedPlans() : null);
    if (group.rank !== 0) useTunedPlans(plans);
  }

  /**
   * Submits one optimizer step; waits while too many are in flight.
   * @returns {Promise<number>} steps submitted so far
   */
  async step() {
    await this.ready();
    await (this.agreed ??= this.agree());
    const start = performance.now();
    const step = this.stepsDone;
    if (this.config.settings.lrScheduler !== 'cosine') this.opt.lr = learningRateAt(this.config.settings, step);
    const loss = this.submit(this.ranks ? 'gradients' : 'step', this.batchOf(step));
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

  /** The windows of a validation: evenly spread over the held-out ones, without overlap, the same each time. @returns {number[]} */
  validationWindows() {
    const all = this.validation?.windows ?? 0;
    const count = Math.min(all, this.evalBatches * this.share.batchSize);
    return Array.from({ length: count }, (_, i) => Math.floor((i * all) / count));
  }

  /**
   * The mean loss over the held-out windows, after every step submitted so far. Each rank computes some of the batches. Does not touch
   * weights, moments or gradients.
   * @returns {Promise<number | undefined>} in nats; undefined where a process was asked to stop meanwhile: all then stop after this step
   */
  async validate() {
    const { validation } = this;
    if (!validation) throw new Error('validate: the trainer was made without validation windows');
    await this.settle();
    const { batchSize, blockSize } = this.share;
    const { rank, world } = this.place;
    const windows = this.validationWindows();
    /** Sums of losses by batch: they are added in the order of batches, whatever the number of ranks. @type {(number | null)[]} */
    let sums = [];
    let stop = false;
    for (let at = 0; at < windows.length && !(stop = this.stopped()); at += batchSize) {
      const own = windows.slice(at, at + batchSize);
      sums.push(0);
      if ((sums.length - 1) % world !== rank) continue;
      const batch = new Uint32Array(2 * own.length * blockSize);
      own.forEach((index, row) => {
        const ids = validation.window(index);
        batch.set(ids.subarray(0, blockSize), row * blockSize);
        batch.set(ids.subarray(1), (own.length + row) * blockSize);
      });
      const loss = this.submit('loss', batch);
      sums[sums.length - 1] = await loss.item();
      loss.dispose();
    }
    if (this.ranks) {
      /** @type {{ sums: (number | null)[], stop: boolean }[]} */
      const all = await this.ranks.group.exchange({ sums, stop });
      stop = all.some((each) => each.stop);
      if (stop) this.stopAt = this.stepsDone;
      else sums = sums.map((_, i) => all[i % world].sums[i]);
    }
    this.pause();
    if (stop) return undefined;
    const sum = sums.reduce((/** @type {number} */ total, loss) => total + (loss ?? NaN), 0);
    return sum / (windows.length * blockSize);
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
    const times = this.compiled.profile(/** @type {any} */ (this.batchOf(this.stepsDone)));
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
