/**
 * Training on the device: what is recorded once, what goes up and comes down each step.
 *
 * Three modes. `plain` uses the calls of the existing trainer only (packed lists through `batchExecuteAll`), so that it
 * also runs on other addons of that contract; `calls` the same with one native call a dispatch. `graph` records each micro-step and the optimizer once and re-submits
 * them; the losses come back through promises where the addon has them. The results are the same bits.
 */

import { createKernels, pack } from '../../kernels/index.mjs';
import { checkConfig, parameterTable, tokensPerStep } from './config.mjs';
import { stepBatch } from './data.mjs';
import { plainAddon } from './freeze.mjs';
import { Validation, nextLogits } from './forward.mjs';
import { GptModel } from './model.mjs';
import { workOf } from './profile.mjs';
import { initialWeights } from './random.mjs';

/** @typedef {import('./config.mjs').GptConfig} GptConfig */

/** Steps whose losses the device keeps; they are read before they are overwritten. */
const LOSS_SLOTS = 1024;

/** Steps that may be submitted and not finished. */
const STEPS_IN_FLIGHT = 2;

/**
 * @typedef {object} TrainerOptions
 * @property {Uint32Array} tokens what to train on
 * @property {Uint32Array} [validation] tokens that it is not trained on, for `validate`
 * @property {'auto' | 'plain' | 'calls' | 'graph'} [mode] `auto`: graphs where the addon has them
 * @property {import('./checkpoint.mjs').TrainingState} [state] where to go on from; a fresh start without it
 * @property {boolean} [explicitTransposes] see GptModel
 * @property {boolean} [profiled] tell the addon what each dispatch does, for its profile
 * @property {Record<string, import('../../kernels/base.mjs').Shader>} [shaders] for `plain`: shaders to use, for an
 *   addon that carries none
 * @property {any} [info] for `plain`: what the kernels shall take the device for, so that two addons run the same
 *   kernels
 */

/**
 * Puts a model on the device.
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
  constructor(vk, config, { tokens, validation, mode = 'auto', state, explicitTransposes, profiled, shaders, info }) {
    this.config = checkConfig(config);
    for (const list of [tokens, validation ?? []]) {
      for (const token of list) {
        if (token >= config.vocab) throw new RangeError(`the data holds token ${token}; vocab is ${config.vocab}`);
      }
    }
    this.tokens = tokens;
    if (!['auto', 'plain', 'calls', 'graph'].includes(mode)) {
      throw new RangeError(`mode must be auto, plain, calls or graph, got ${mode}`);
    }
    const graphs = typeof vk.graphBegin === 'function';
    if (mode === 'graph' && !graphs) throw new RangeError('mode graph: this addon has no graphBegin');
    /** @type {'plain' | 'calls' | 'graph'} */
    this.mode = mode === 'auto' ? (graphs ? 'graph' : 'plain') : mode;
    /** Whether losses come back through promises; else the ring of losses is read, which drains the device. */
    this.promises = this.mode === 'graph' && typeof vk.readAsync === 'function';
    this.vk = this.mode === 'graph' ? vk : plainAddon(vk, shaders ?? vk.shaders, info);
    this.kernels = createKernels(this.vk);
    this.model = new GptModel(this.vk, this.kernels, config, LOSS_SLOTS, { explicitTransposes });
    this.validation = validation && new Validation(this.vk, this.model, validation);
    /** Optimizer steps submitted. */
    this.stepsDone = 0;
    /** Losses known on the host, by step. @type {Map<number, number>} */
    this.known = new Map();
    /** First step whose loss has not been fetched, without promises. */
    this.firstUnread = 0;
    /** Loss reads under way. @type {Set<Promise<void>>} */
    this.pending = new Set();
    /** @type {unknown} */
    this.failure = undefined;
    /** Timeline values of the steps in flight. @type {number[]} */
    this.inFlight = [];
    /** When steps were seen to be finished, in milliseconds of `performance.now()`. @type {number[]} */
    this.finished = [];
    /** Indexes into `finished` of steps before which the run did something else. @type {Set<number>} */
    this.pauses = new Set();
    /** Host time of each step in milliseconds, without waiting. @type {number[]} */
    this.hostTimes = [];
    /** @type {Uint32Array} */
    this.batch = new Uint32Array(config.microSteps * 2 * config.batch * config.block);

    this.load(state ?? { step: 0, weights: freshWeights(config) });
    const clear = this.model.clear;
    /** What a step dispatches: each micro-step, then the optimizer. */
    this.records = Array.from({ length: config.microSteps }, (_, i) => this.model.microStep(i));
    this.records.push(this.model.optimizerStep());
    const lists = this.records.map((records) => pack(records));
    this.nameAll(vk);
    /** What each list's dispatches do, for the addon's profile. @type {((list: number) => void) | undefined} */
    this.announce = profiled ? this.announcer(vk) : undefined;
    this.lists = this.mode === 'plain' ? lists : [];
    /** @type {number[]} */
    this.graphs = [];
    if (this.mode === 'graph') {
      this.graphs = lists.map(({ packed, count }, i) => {
        this.vk.graphBegin();
        if (i === 0) this.vk.fillBuffer(clear.buffer, clear.bytes, 0);
        this.announce?.(i);
        this.vk.batchExecuteAll(packed, count);
        return this.vk.graphEnd();
      });
    }
    /** Dispatches of one optimizer step. */
    this.dispatches = lists.reduce((sum, { count }) => sum + count, 0);
  }

  /** Names the buffers that outlive a step, for reports and memory statistics. @param {any} vk */
  nameAll(vk) {
    if (typeof vk.setName !== 'function') return;
    const { model } = this;
    for (const name of /** @type {const} */ (['ids', 'losses', 'state'])) vk.setName(model[name], name);
    for (const name of /** @type {const} */ (['weights', 'gradient', 'm', 'v', 'operands'])) {
      if (name === 'operands' && model.operands === model.weights) continue;
      for (const [i, buffer] of model[name].entries()) vk.setName(buffer, model.shards.length === 1 ? name : `${name}, shard ${i}`);
    }
    for (const [key, handle] of this.kernels.context.pipelines) vk.setName(handle, key.split('/')[0], 'pipeline');
  }

  /** @param {any} vk the native module, which is told what the dispatches of a list do */
  announcer(vk) {
    const { total } = parameterTable(this.config);
    const narrow = this.model.operands === this.model.weights ? 0 : 2;
    const adamw = [...this.kernels.context.pipelines].filter(([key]) => key.startsWith('adamw')).map(([, p]) => p);
    const parts = this.records.flat().filter(({ pipeline }) => adamw.includes(pipeline)).length;
    // AdamW reads weight, gradient and both moments, and writes all but the gradient, and the operand.
    const each = (total * (7 * 4 + narrow)) / Math.max(1, parts);
    const bytes = (/** @type {number} */ pipeline) => (adamw.includes(pipeline) ? each : 0);
    const work = this.records.map((records) => workOf(records, bytes));
    return (/** @type {number} */ list) => vk.profileWork(work[list]);
  }

  /** Tokens of one optimizer step. */
  get tokensPerStep() {
    return tokensPerStep(this.config);
  }

  /**
   * Sets weights, moments and the step.
   * @param {{step: number, weights: Float32Array, m?: Float32Array, v?: Float32Array}} state
   */
  load(state) {
    this.model.load(state);
    this.stepsDone = state.step;
    this.firstUnread = state.step;
  }

  /** Submits one optimizer step; waits only while too many are in flight. @returns {number} steps submitted so far */
  step() {
    if (this.failure) throw this.failure;
    while (this.inFlight.length >= STEPS_IN_FLIGHT) this.waitOldest();
    if (!this.promises && this.stepsDone - this.firstUnread >= LOSS_SLOTS) this.fetchLosses();
    const start = performance.now();
    const step = this.stepsDone;
    const { vk, model } = this;
    stepBatch(this.tokens, this.config, step, this.batch);
    let value = 0;
    if (this.mode === 'graph') {
      vk.uploadAsync(model.ids, this.batch);
      for (const graph of this.graphs) value = vk.graphLaunch(graph);
      if (this.promises) this.readLoss(step);
    } else {
      vk.uploadBuffer(model.ids, this.batch);
      vk.fillBuffer(model.clear.buffer, model.clear.bytes, 0);
      if (this.mode === 'calls') value = this.callEach();
      else {
        for (const [i, { packed, count }] of this.lists.entries()) {
          this.announce?.(i);
          value = vk.batchExecuteAll(packed, count);
        }
      }
    }
    this.hostTimes.push(performance.now() - start);
    this.inFlight.push(value);
    return ++this.stepsDone;
  }

  /** Submits the step with one native call a dispatch. @returns {number} timeline value */
  callEach() {
    const { vk } = this;
    const mask = new Uint32Array(1);
    let value = 0;
    for (const [i, records] of this.records.entries()) {
      this.announce?.(i);
      vk.batchBegin();
      for (const { pipeline, buffers, groups, push, writeMask } of records) {
        mask[0] = writeMask;
        vk.batchDispatch(pipeline, buffers, groups[0], groups[1], groups[2], push, mask);
      }
      value = vk.batchSubmit();
    }
    return value;
  }

  /** Reads the loss of a step without waiting for it. @param {number} step */
  readLoss(step) {
    /** @type {Promise<void>} */
    const read = this.vk
      .readAsync(this.model.losses, 4 * (step % LOSS_SLOTS), 4)
      .then((/** @type {ArrayBufferView} */ { buffer, byteOffset }) => {
        this.known.set(step, new DataView(buffer, byteOffset).getFloat32(0, true));
      })
      .catch((/** @type {unknown} */ error) => {
        this.failure ??= error;
      })
      .finally(() => this.pending.delete(read));
    this.pending.add(read);
  }

  waitOldest() {
    this.vk.waitTimeline(this.inFlight[0]);
    this.inFlight.shift();
    this.finished.push(performance.now());
  }

  /** Waits for every submitted step. */
  finish() {
    while (this.inFlight.length > 0) this.waitOldest();
  }

  /** Reads the losses of the steps since the last time, where promises do not bring them; drains the device. */
  fetchLosses() {
    if (this.promises || this.firstUnread === this.stepsDone) return;
    // Step by step, so that each is seen when it finishes.
    this.finish();
    const slots = this.vk.readBuffer(this.model.losses);
    for (let step = this.firstUnread; step < this.stepsDone; step++) this.known.set(step, slots[step % LOSS_SLOTS]);
    this.firstUnread = this.stepsDone;
  }

  /** Waits until the loss of every submitted step is known. */
  async settle() {
    this.finish();
    this.fetchLosses();
    await Promise.all(this.pending);
    if (this.failure) throw this.failure;
  }

  /**
   * One of the flat arrays, as it is after every step submitted so far.
   * @param {'weights' | 'm' | 'v' | 'gradient'} part
   * @returns {Float32Array} laid out as by `parameterTable`
   */
  read(part) {
    return this.model.read(part);
  }

  /** The mean loss over the held-out tokens, after every step submitted so far; drains the device. */
  validate() {
    if (!this.validation) throw new Error('validate: the trainer was made without validation tokens');
    this.finish();
    const loss = this.validation.run();
    // The next step begins after a pause.
    this.pauses.add(this.finished.length);
    return loss;
  }

  /**
   * The logits of the token after a context. Does not touch the state of training.
   * @param {ArrayLike<number>} context 1 to `block` ids
   * @returns {Float32Array} `vocab` logits
   */
  nextLogits(context) {
    const { block } = this.config;
    if (context.length < 1 || context.length > block) {
      throw new RangeError(`the context must have 1 to ${block} tokens, got ${context.length}`);
    }
    const ids = new Uint32Array(block);
    ids.set(Array.from(context));
    this.vk.uploadBuffer(this.model.ids, ids);
    const { packed, count } = pack(nextLogits(this.model, context.length - 1));
    this.vk.batchExecuteAll(packed, count);
    return this.vk.readBuffer(this.model.sampleLogits);
  }

  /**
   * GPU time of a step by what the dispatches are for, from timestamps around each. Trains one step more than asked:
   * for the end of a run.
   * @returns {{ role: string, count: number, microseconds: number, flops: number }[]} longest first
   */
  kernelTimes() {
    const { vk, model } = this;
    this.finish();
    vk.uploadBuffer(model.ids, stepBatch(this.tokens, this.config, this.stepsDone, this.batch));
    vk.fillBuffer(model.clear.buffer, model.clear.bytes, 0);
    const names = new Map([...this.kernels.context.pipelines].map(([key, handle]) => [handle, key.split('/')[0]]));
    /** @type {Map<string, { role: string, count: number, microseconds: number, flops: number }>} */
    const roles = new Map();
    for (const records of this.records) {
      const { packed, count } = pack(records);
      const { dispatchTimesUs } = vk.batchExecuteAllProfiled(packed, count);
      for (const [i, record] of /** @type {import('./model.mjs').LabelledDispatch[]} */ (records).entries()) {
        const name = names.get(record.pipeline) ?? 'unknown';
        const role = record.role === undefined ? name : `${record.role} (${name})`;
        const entry = roles.get(role) ?? { role, count: 0, microseconds: 0, flops: 0 };
        entry.count++;
        entry.microseconds += dispatchTimesUs[i];
        entry.flops += record.flops ?? 0;
        roles.set(role, entry);
      }
    }
    return [...roles.values()].sort((a, b) => b.microseconds - a.microseconds);
  }

  /** Releases every buffer and graph. */
  destroy() {
    for (const graph of this.graphs) this.vk.graphDestroy(graph);
    this.model.destroy();
    this.kernels.context.releaseWorkspaces();
  }
}

/** The weights a run starts from. @param {GptConfig} config */
export function freshWeights(config) {
  const { parameters, total } = parameterTable(config);
  return initialWeights(parameters, total, config.seed);
}
