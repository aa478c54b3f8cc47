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

/** @typedef {import('./config.mjs').GptConfig} GptConfig */
/** @typedef {import('../../nn/tensor.mjs').Tensor} Tensor */
/** @typedef {'weights' | 'm' | 'v'} Part of the state: parameters, first and second moments */

/** Steps that may be submitted and not finished. */
const STEPS_IN_FLIGHT = 2;

/**
 * @typedef {object} TrainerOptions
 * @property {Uint32Array} tokens what to train on
 * @property {Uint32Array} [validation] tokens that it is not trained on, for `validate`
 * @property {'graph' | 'plain'} [mode] `graph` when left out
 * @property {Partial<import('./checkpoint.mjs').TrainingState>} [state] where to go on from; a fresh start without it
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
  constructor(vk, config, { tokens, validation, mode = 'graph', state }) {
    this.config = checkConfig(config);
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
    const rows = logitRows(config, info);
    /** Held-out sequences. */
    this.validation = validation && validationBatches(validation, config);
    /** Optimizer steps submitted. */
    this.stepsDone = 0;
    /** Losses known on the host, by step. @type {Map<number, number>} */
    this.known = new Map();
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
    this.batch = new Uint32Array(config.microSteps * 2 * config.batch * config.block);

    this.model = nn.skipInit(() => new Gpt(config));
    const { opt, loss, gradients, step } = createTraining(this.model, config, rows);
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

  /** Dispatches of one optimizer step; 0 before the first. */
  get dispatches() {
    return this.functions.step.explain().at(-1)?.dispatches ?? 0;
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
   * @param {{step: number, weights: Float32Array, m?: Float32Array, v?: Float32Array}} state flat, as of `parameterTable`; moments
   *   are zero when left out
   */
  load(state) {
    const { parameters } = parameterTable(this.config);
    for (const part of /** @type {const} */ (['weights', 'm', 'v'])) {
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
    this.opt.startAt(state.step);
    this.stepsDone = state.step;
  }

  /**
   * Submits one optimizer step; waits while too many are in flight.
   * @returns {Promise<number>} steps submitted so far
   */
  async step() {
    while (this.inFlight.size >= STEPS_IN_FLIGHT && !this.failure) await this.inFlight.values().next().value;
    if (this.failure) throw this.failure;
    const start = performance.now();
    const step = this.stepsDone;
    stepBatch(this.tokens, this.config, step, this.batch);
    const loss = this.submit('step', this.batch);
    /** @type {Promise<void>} */
    const read = loss
      .item()
      .then((value) => {
        this.known.set(step, value);
        this.finished.push(performance.now());
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

  /** Tokens of the held-out sequences that a validation predicts. */
  get validationTokens() {
    return this.validation?.reduce((sum, batch) => sum + batch.length / 2, 0);
  }

  /**
   * The mean loss over the held-out tokens, after every step submitted so far. Leaves weights, moments and gradients alone.
   * @returns {Promise<number>} in nats
   */
  async validate() {
    if (!this.validation) throw new Error('validate: the trainer was made without validation tokens');
    await this.settle();
    let sum = 0;
    for (const batch of this.validation) {
      const loss = this.submit('loss', batch);
      sum += await loss.item();
      loss.dispose();
    }
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
   * GPU time of a step by line of the model and operations there, from timestamps around each dispatch. Trains one step more than
   * asked: for the end of a run.
   * @returns {Promise<{ role: string, count: number, microseconds: number, flops: number }[]>} longest first
   */
  async kernelTimes() {
    await this.settle();
    stepBatch(this.tokens, this.config, this.stepsDone, this.batch);
    const times = this.functions.step.profile(/** @type {any} */ (this.batch));
    return times.map(({ origin, operations, dispatches, microseconds, flops }) => ({
      role: origin ? `${operations} (${origin})` : operations,
      count: dispatches,
      microseconds,
      flops,
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
