/**
 * Training on the device: the model's step as a compiled function, what goes up and comes down for each, and the state between
 * flat arrays of the host and the device.
 *
 * Two modes. `graph` launches the step as a recorded graph; `plain` submits its list of dispatches each time, through calls that
 * other addons of the existing trainer's contract have as well. The results are the same bits.
 */

import { createKernels } from '../../kernels/index.mjs';
import { autocast, compile, init, nn, noGrad, scope, setFloat32MatmulPrecision, tensor } from '../../nn/index.mjs';
import { checkConfig, halfOf, parameterTable, tokensPerStep } from './config.mjs';
import { stepBatch, validationBatches } from './data.mjs';
import { logitRows } from './limits.mjs';
import { Gpt, createTraining } from './model.mjs';
import { initialWeights } from './random.mjs';
import { shareOf } from './ranks.mjs';

/** @typedef {import('./config.mjs').GptConfig} GptConfig */
/** @typedef {import('../../nn/api/tensor.mjs').Tensor} Tensor */
/** @typedef {'weights' | 'm' | 'v'} Part of the state: parameters, first and second moments */

/** Steps that may be submitted and not finished. */
const STEPS_IN_FLIGHT = 2;

/** What a process says of a step: the mean loss of its share, null where that is no number, and whether it was asked to stop. @typedef {{ loss: number | null, stop: boolean }} StepReport */

/**
 * @typedef {object} TrainerOptions
 * @property {Uint32Array} tokens what to train on
 * @property {Uint32Array} [validation] tokens that it is not trained on, for `validate`
 * @property {'graph' | 'plain'} [mode] `graph` when left out
 * @property {Partial<import('./checkpoint.mjs').TrainingState>} [state] where to go on from; a fresh start without it
 * @property {import('./ranks.mjs').TrainingRanks} [ranks] the processes that train together; all make the same calls
 * @property {() => boolean} [stopped] whether the run is to end before `config.steps`
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
    const { rank, worldSize } = ranks?.group ?? { rank: 0, worldSize: 1 };
    this.ranks = ranks;
    this.stopped = stopped;
    /** What this process computes of a step. */
    this.share = { ...config, ...shareOf(config, worldSize) };
    /** Sequences of a step that come before its own. */
    this.skip = rank * this.share.batch * this.share.microSteps;
    for (const list of [tokens, validation ?? []]) {
      for (const token of list) {
        if (token >= config.vocab) throw new RangeError(`the data holds token ${token}; vocab is ${config.vocab}`);
      }
    }
    if (mode !== 'graph' && mode !== 'plain') throw new RangeError(`mode must be graph or plain, got ${String(mode)}`);
    this.tokens = tokens;
    this.mode = mode;
    const info = init({ vk });
    if (!createKernels(vk).matmulSupports(config.precision)) {
      throw new RangeError(`precision ${config.precision}: ${info.deviceName} has no matrix units for it`);
    }
    const rows = logitRows(this.share, info);
    /** Held-out sequences. */
    this.validation = validation && validationBatches(validation, config);
    /** Optimizer steps submitted, with those that the optimizer skips: each takes the next batch. */
    this.stepsDone = 0;
    /** Losses known on the host, by step. @type {Map<number, number>} */
    this.known = new Map();
    /** Steps after which all ranks stop, since one of them was asked to. */
    this.stopAt = Infinity;
    /** Steps that are submitted and not finished, the oldest first. @type {Set<Promise<void>>} */
    this.inFlight = new Set();
    /** @type {unknown} */
    this.failure = undefined;
    /** When steps were seen to be finished, in milliseconds of `performance.now()`. @type {number[]} */
    this.finished = [];
    /** Indexes into `finished` of steps before which the run did something else. @type {Set<number>} */
    this.pauses = new Set();
    /** Host time of each step in milliseconds, without waiting. @type {number[]} */
    this.hostTimes = [];
    /** @type {Uint32Array} */
    this.batch = new Uint32Array(this.share.microSteps * 2 * this.share.batch * config.block);

    this.model = nn.skipInit(() => new Gpt(config));
    const together = ranks && { processGroup: ranks.group, zero: ranks.zero, reduce: ranks.reduce };
    const { opt, loss, gradients, step } = createTraining(this.model, this.share, rows, together);
    this.opt = opt;
    /** Functions of batches; {@link submit} calls them. */
    const options = { graph: mode === 'graph', reuseOutputs: true };
    this.functions = {
      step: compile(step, options),
      gradients: compile(gradients, options),
      loss: compile((/** @type {Tensor} */ flat) => noGrad(() => loss(flat)), options),
      logits: compile((/** @type {Tensor} */ ids, /** @type {Tensor} */ position) => this.logitsAt(ids, position), options),
    };
    this.load({ step: 0, weights: state?.weights ?? freshWeights(config), ...state });
  }

  /** The logits of the token after one of a context. @param {Tensor} ids [block] @param {Tensor} position [1] @returns {Tensor} [1, vocab] */
  logitsAt(ids, position) {
    const { model, config } = this;
    const context = ids.reshape(1, -1);
    return noGrad(() => autocast(halfOf(config), () => model.head.forward(model.hidden(context).at(0).indexSelect(0, position))));
  }

  /**
   * Calls one of the compiled functions.
   * @param {keyof Trainer['functions']} name @param {...Uint32Array} args
   * @returns {Tensor}
   */
  submit(name, ...args) {
    setFloat32MatmulPrecision(this.config.precision === 'bf16x3' ? 'high' : 'highest');
    return /** @type {any} */ (this.functions[name])(...args);
  }

  /** Tokens of one optimizer step. */
  get tokensPerStep() {
    return tokensPerStep(this.config);
  }

  /** What is compiled of a step: of one of several processes all up to its gradients, which go to the others then. */
  get compiled() {
    return this.functions[this.ranks ? 'gradients' : 'step'];
  }

  /** Dispatches of one optimizer step, of several processes without those of the optimizer; 0 before the first. */
  get dispatches() {
    return this.compiled.explain().at(-1)?.dispatches ?? 0;
  }

  /**
   * Parameters or moments by the parameters' names, as views of the device's memory: call it in a scope.
   * @param {Part} part
   * @returns {Record<string, Tensor>}
   */
  tensors(part) {
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
   * @param {{step: number, skipped?: number, weights: Float32Array, m?: Float32Array, v?: Float32Array}} state flat, as of
   *   `parameterTable`; moments are zero when left out
   */
  load(state) {
    const { parameters } = parameterTable(this.config);
    const sharded = this.ranks?.zero === 1;
    if (sharded) this.#loadShards(state);
    for (const part of /** @type {Part[]} */ (sharded ? ['weights'] : ['weights', 'm', 'v'])) {
      const flat = state[part];
      scope(() =>
        noGrad(() => {
          const tensors = this.tensors(part);
          for (const { name, shape, offset, size } of parameters) {
            if (flat === undefined) tensors[name].fill_(0);
            // One at a time: the device has no room for the whole state twice.
            else scope(() => void tensors[name].copy_(tensor(flat.subarray(offset, offset + size), { shape })));
          }
        }),
      );
    }
    const { skipped = 0 } = state;
    this.opt.startAt(state.step - skipped, skipped);
    this.stepsDone = state.step;
  }

  /** Sets the moments of which each process keeps a shard: of each parameter what lies in it. @param {{m?: Float32Array, v?: Float32Array}} state as of `load` */
  #loadShards(state) {
    const { opt } = this;
    const { byName } = parameterTable(this.config);
    const names = new Map([...this.model.namedParameters()].map(([name, parameter]) => [parameter, name]));
    for (const bucket of opt.buckets) {
      const own = /** @type {NonNullable<typeof opt.ranks>} */ (opt.ranks).shard(bucket);
      for (const [i, moment] of opt.momentsOf(bucket, 2).entries()) {
        const flat = [state.m, state.v][i];
        noGrad(() => moment.fill_(0));
        for (const [k, parameter] of (flat ? bucket.parameters : []).entries()) {
          const at = bucket.offsets[k];
          const { offset, size } = /** @type {import('./config.mjs').Parameter} */ (
            byName.get(/** @type {string} */ (names.get(parameter)))
          );
          const [begin, end] = [Math.max(at, own.offset), Math.min(at + size, own.offset + own.count)];
          if (begin >= end) continue;
          const values = /** @type {Float32Array} */ (flat).subarray(offset + begin - at, offset + end - at);
          const run = { offset: begin - own.offset, count: end - begin };
          scope(() => noGrad(() => void bucket.part(moment, run).copy_(tensor(values))));
        }
      }
    }
  }

  /**
   * Waits while too many steps are in flight.
   * @returns {Promise<boolean>} whether another step is to be made, which all ranks agree on
   */
  async ready() {
    while (this.inFlight.size >= STEPS_IN_FLIGHT && !this.failure) await this.inFlight.values().next().value;
    if (this.failure) throw this.failure;
    return this.stepsDone < Math.min(this.config.steps, this.stopAt) && (this.ranks !== undefined || !this.stopped());
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
    // Ranks report in the order of steps.
    const before = [...this.inFlight].at(-1);
    /** @type {Promise<void>} */
    const read = Promise.all([loss.item(), before])
      .then(([value]) => this.#report(step, value))
      .then((value) => {
        this.known.set(step, value);
        this.finished.push(performance.now());
        // The weights behind it are no better, and stay so.
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
   * The mean of all ranks' losses of a step; also hears whether one of them was asked to stop. All then stop after the same step: the
   * last that one may have submitted before it has heard.
   * @param {number} step @param {number} loss
   */
  async #report(step, loss) {
    if (!this.ranks) return loss;
    /** @type {StepReport[]} */
    const all = await this.ranks.group.exchange({ loss, stop: this.stopped() });
    if (all.some(({ stop }) => stop)) this.stopAt = Math.min(this.stopAt, step + STEPS_IN_FLIGHT);
    return all.reduce((sum, each) => sum + (each.loss ?? NaN), 0) / all.length;
  }

  /** Waits until every submitted step is finished, and its loss known. */
  async settle() {
    await Promise.all(this.inFlight);
    if (this.failure) throw this.failure;
  }

  /**
   * Parameters or moments, as they are after every step submitted so far.
   * @param {Part} part
   * @returns {Promise<Float32Array>} laid out as by `parameterTable`
   */
  async read(part) {
    const { parameters, total } = parameterTable(this.config);
    const flat = new Float32Array(total);
    const reads = scope(() => {
      const tensors = this.tensors(part);
      return parameters.map(({ name, offset }) => ({ offset, values: tensors[name].toArray() }));
    });
    await Promise.all(reads.map(async ({ offset, values }) => flat.set(await values, offset)));
    return flat;
  }

  /** Takes part in what rank 0 reads of the state, in the same order, on the other ranks. @param {...Part} parts */
  join(...parts) {
    for (const part of parts) scope(() => void this.tensors(part));
  }

  /** Tokens of the held-out sequences that a validation predicts. */
  get validationTokens() {
    return this.validation?.reduce((sum, batch) => sum + batch.length / 2, 0);
  }

  /**
   * The mean loss over the held-out tokens, after every step submitted so far: each rank computes some of the batches. Leaves weights,
   * moments and gradients alone.
   * @returns {Promise<number>} in nats
   */
  async validate() {
    if (!this.validation) throw new Error('validate: the trainer was made without validation tokens');
    await this.settle();
    const { rank, worldSize } = this.ranks?.group ?? { rank: 0, worldSize: 1 };
    /** By batch: added up in their order, however many ranks there are. @type {(number | null)[]} */
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
   * The logits of the token after a context. Does not touch the state of training.
   * @param {ArrayLike<number>} context 1 to `block` ids
   * @returns {Promise<Float32Array>} `vocab` logits
   */
  async nextLogits(context) {
    const { block } = this.config;
    if (context.length < 1 || context.length > block) {
      throw new RangeError(`the context must have 1 to ${block} tokens, got ${context.length}`);
    }
    const ids = new Uint32Array(block);
    ids.set(Array.from(context));
    const logits = this.submit('logits', ids, Uint32Array.of(context.length - 1));
    const values = logits.toArray();
    logits.dispose();
    return /** @type {Promise<Float32Array>} */ (values);
  }

  /**
   * GPU time of a step by line of the model and operations there, from timestamps around each dispatch; of one of several processes
   * without the optimizer. Trains one step more than asked: for the end of a run.
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
    this.opt.dispose();
    this.model.dispose();
  }
}

/** The weights a run starts from. @param {GptConfig} config */
export function freshWeights(config) {
  const { parameters, total } = parameterTable(config);
  return initialWeights(parameters, total, config.seed);
}
