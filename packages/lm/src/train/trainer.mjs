/**
 * Training on the device: compiles the model's step, uploads each step's batch, reads its loss, and moves the state between host and
 * device.
 *
 * There are two modes. `graph` launches the step as a recorded graph. `plain` submits its list of dispatches each time, by calls that
 * other addons with the existing trainer's contract have too. Both give the same bits.
 */

import { compile, init, nn, noGrad, scope, tensor } from 'helios-vk/nn';
import { checkConfig, tokensPerStep } from './config.mjs';
import { stepBatch, validationBatches } from './data.mjs';
import { checkMatrixUnits, copyFromHost, setPrecision } from './device.mjs';
import { Generator } from './generator.mjs';
import { checkFits, logitRows } from './limits.mjs';
import { Gpt, createTraining } from './model.mjs';
import { shareOf } from './ranks.mjs';
import { initialWeights } from './state.mjs';

/** @typedef {import('./config.mjs').GptConfig} GptConfig */
/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('./state.mjs').HostState} HostState */
/** @typedef {'weights' | 'm' | 'v'} Part of the state: parameters, first moments, second moments */

/** Steps that may be submitted and not finished. */
const STEPS_IN_FLIGHT = 2;

/**
 * What a process reports of a step.
 * @typedef {object} StepReport
 * @property {number | null} loss mean of its share; null where it is not a number
 * @property {boolean} stop whether this process was asked to stop
 */

/**
 * @typedef {object} TrainerOptions
 * @property {Uint32Array} tokens what to train on
 * @property {Uint32Array} [validation] held-out tokens, for `validate`
 * @property {'graph' | 'plain'} [mode] `graph` when left out
 * @property {Partial<import('./checkpoint.mjs').TrainingState>} [state] the state to continue from; a fresh start when left out
 * @property {import('./ranks.mjs').TrainingRanks} [ranks] the processes that train together; all make the same calls
 * @property {() => boolean} [stopped] whether the run is to end before its last step
 */

/**
 * Puts a model on the device. The addon becomes that of `helios-vk/nn`: to use another one in the same process, call its `reset`.
 * @param {any} vk the native module
 * @param {GptConfig} config
 * @param {TrainerOptions} options
 * @returns {Trainer}
 */
export function createTrainer(vk, config, options) {
  return new Trainer(vk, config, options);
}

export class Trainer {
  /** @param {any} vk @param {GptConfig} config @param {TrainerOptions} options */
  constructor(vk, config, { tokens, validation, mode = 'graph', state, ranks, stopped = () => false }) {
    this.config = checkConfig(config);
    const { model: sizes, training } = config;
    const { rank, worldSize } = ranks?.group ?? { rank: 0, worldSize: 1 };
    this.ranks = ranks;
    this.stopped = stopped;
    /** What this process computes of a step, with the settings that all share. @type {import('./config.mjs').TrainingConfig & { block: number }} */
    this.share = { ...training, ...shareOf(training, worldSize), block: sizes.block };
    /** Sequences of a step that come before its own. */
    this.skip = rank * this.share.batch * this.share.microSteps;
    for (const list of [tokens, validation ?? []]) {
      for (const token of list) {
        if (token >= sizes.vocab) throw new RangeError(`the data holds token ${token}; vocab is ${sizes.vocab}`);
      }
    }
    if (mode !== 'graph' && mode !== 'plain') throw new RangeError(`mode must be graph or plain, got ${String(mode)}`);
    this.tokens = tokens;
    this.mode = mode;
    const info = init({ vk });
    checkMatrixUnits(vk, training.precision, info.deviceName);
    checkFits(sizes, this.share, info);
    const rows = logitRows(sizes, this.share.batch, info);
    /** Batches of held-out sequences. */
    this.validation = validation && validationBatches(validation, { batch: training.batch, block: sizes.block });
    /** Optimizer steps submitted, including those that the optimizer skips: each takes the next batch. */
    this.stepsDone = 0;
    /** Losses known on the host, by step. @type {Map<number, number>} */
    this.known = new Map();
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
    /** @type {Uint32Array} */
    this.batch = new Uint32Array(this.share.microSteps * 2 * this.share.batch * sizes.block);

    this.model = nn.skipInit(() => new Gpt(sizes));
    const together = ranks && { processGroup: ranks.group, zero: ranks.zero, reduce: ranks.reduce };
    const { opt, loss, gradients, step } = createTraining(this.model, this.share, rows, together);
    this.opt = opt;
    const options = { graph: mode === 'graph', reuseOutputs: true };
    /** Functions of batches; {@link submit} calls them. */
    this.functions = {
      step: compile(step, options),
      gradients: compile(gradients, options),
      loss: compile((/** @type {Tensor} */ flat) => noGrad(() => loss(flat)), options),
    };
    /** Generates text with the weights as they are; does not touch the state of training. */
    this.generator = new Generator(this.model, training.precision, options);
    this.load({ step: 0, weights: state?.weights ?? initialWeights(sizes, training.seed), ...state });
  }

  /**
   * Calls one of the compiled functions.
   * @param {keyof Trainer['functions']} name @param {Uint32Array} batch
   * @returns {Tensor}
   */
  submit(name, batch) {
    setPrecision(this.config.training.precision);
    return /** @type {any} */ (this.functions[name])(batch);
  }

  /** Tokens of one optimizer step. */
  get tokensPerStep() {
    return tokensPerStep(this.config);
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
    if (part === 'weights') return this.model.stateDict();
    const state = this.opt.stateDict();
    const names = new Map([...this.model.namedParameters()].map(([name, parameter]) => [parameter, name]));
    return Object.fromEntries(
      this.opt.groups.flatMap(({ buckets }, g) =>
        buckets
          .flatMap(({ parameters }) => parameters)
          .map((parameter, i) => [names.get(parameter), state[`${g}.${i}.${part === 'm' ? 'first' : 'second'}`]]),
      ),
    );
  }

  /**
   * Sets weights, moments and the step.
   * @param {{step: number, skipped?: number, weights: HostState, m?: HostState, v?: HostState}} state moments are zero when left out
   */
  load(state) {
    const sharded = this.ranks?.zero === 1;
    if (sharded) this.#loadShards(state);
    for (const part of /** @type {Part[]} */ (sharded ? ['weights'] : ['weights', 'm', 'v'])) {
      scope(() => copyFromHost(this.stateDict(part), state[part]));
    }
    const { skipped = 0 } = state;
    this.opt.startAt(state.step - skipped, skipped);
    this.stepsDone = state.step;
  }

  /** Sets this process's shard of the moments: of each parameter the elements that lie in it. @param {{m?: HostState, v?: HostState}} state as for `load` */
  #loadShards(state) {
    const { opt } = this;
    const names = new Map([...this.model.namedParameters()].map(([name, parameter]) => [parameter, name]));
    for (const bucket of opt.buckets) {
      const own = /** @type {NonNullable<typeof opt.ranks>} */ (opt.ranks).shard(bucket);
      for (const [i, moment] of opt.momentsOf(bucket, 2).entries()) {
        const values = [state.m, state.v][i];
        noGrad(() => moment.fill_(0));
        for (const [k, parameter] of (values ? bucket.parameters : []).entries()) {
          const at = bucket.offsets[k];
          const all = /** @type {HostState} */ (values)[/** @type {string} */ (names.get(parameter))];
          const [begin, end] = [Math.max(at, own.offset), Math.min(at + all.length, own.offset + own.count)];
          if (begin >= end) continue;
          const part = all.subarray(begin - at, end - at);
          const run = { offset: begin - own.offset, count: end - begin };
          scope(() => noGrad(() => void bucket.part(moment, run).copy_(tensor(part))));
        }
      }
    }
  }

  /**
   * Waits while too many steps are in flight.
   * @returns {Promise<boolean>} whether there is another step to make; all ranks get the same answer
   */
  async ready() {
    while (this.inFlight.size >= STEPS_IN_FLIGHT && !this.failure) await this.inFlight.values().next().value;
    if (this.failure) throw this.failure;
    return this.stepsDone < Math.min(this.config.training.steps, this.stopAt) && (this.ranks !== undefined || !this.stopped());
  }

  /**
   * Submits one optimizer step; waits while too many are in flight.
   * @returns {Promise<number>} steps submitted so far
   */
  async step() {
    await this.ready();
    const start = performance.now();
    const step = this.stepsDone;
    stepBatch(this.tokens, this.share, step, this.batch, this.skip);
    const loss = this.submit(this.ranks ? 'gradients' : 'step', this.batch);
    if (this.ranks) this.opt.step();
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
   * Reads parameters or moments, as they are after every step submitted so far.
   * @param {Part} part
   * @returns {Promise<HostState>}
   */
  async read(part) {
    const reads = scope(() => Object.entries(this.stateDict(part)).map(([name, values]) => ({ name, values: values.toArray() })));
    return Object.fromEntries(await Promise.all(reads.map(async ({ name, values }) => [name, /** @type {Float32Array} */ (await values)])));
  }

  /** On the other ranks: takes part in what rank 0 reads of the state, in the same order. @param {...Part} parts */
  join(...parts) {
    for (const part of parts) scope(() => void this.stateDict(part));
  }

  /** Tokens that a validation predicts. */
  get validationTokens() {
    return this.validation?.reduce((sum, batch) => sum + batch.length / 2, 0);
  }

  /**
   * The mean loss over the held-out tokens, after every step submitted so far. Each rank computes some of the batches. Does not touch
   * weights, moments or gradients.
   * @returns {Promise<number>} in nats
   */
  async validate() {
    if (!this.validation) throw new Error('validate: the trainer was made without validation tokens');
    await this.settle();
    const { rank, worldSize } = this.ranks?.group ?? { rank: 0, worldSize: 1 };
    /** Sums of losses by batch: they are added in the order of batches, whatever the number of ranks. @type {(number | null)[]} */
    let sums = [];
    for (const [i, batch] of this.validation.entries()) {
      sums.push(0);
      if (i % worldSize !== rank) continue;
      const loss = this.submit('loss', batch);
      sums[i] = await loss.item();
      loss.dispose();
    }
    if (this.ranks) {
      const all = await this.ranks.group.exchange(sums);
      sums = sums.map((_, i) => all[i % worldSize][i]);
    }
    const sum = sums.reduce((/** @type {number} */ total, loss) => total + (loss ?? NaN), 0);
    // The next step begins after a pause.
    this.pauses.add(this.finished.length);
    return sum / /** @type {number} */ (this.validationTokens);
  }

  /**
   * GPU time of a step, by line of the model and the operations there, from timestamps around each dispatch; with several processes
   * without the optimizer. It trains one step more, so call it at the end of a run.
   * @returns {Promise<import('./profile.mjs').KernelTime[]>} longest first
   */
  async kernelTimes() {
    await this.settle();
    stepBatch(this.tokens, this.share, this.stepsDone, this.batch, this.skip);
    const times = this.compiled.profile(/** @type {any} */ (this.batch));
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
    this.generator.dispose();
    this.opt.dispose();
    this.model.dispose();
  }
}
