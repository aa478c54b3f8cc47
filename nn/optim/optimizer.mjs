// What optimizers have in common. Constructing one moves its parameters into flat memory; the step, the learning rate and the
// clipping factor live on the device, so that a compiled step goes on by itself.

import { constant } from '../core/tensor.mjs';
import { STATE, STATE_WORDS, optimizerState } from '../../kernels/index.mjs';
import { SLOT, Template } from '../../kernels/template.mjs';
import { noGrad } from '../core/node.mjs';
import { map } from '../core/codegen.mjs';
import { storageOf as alive } from '../core/engine.mjs';
import { ArgumentError, UsageError, shown, within } from '../core/errors.mjs';
import { track } from '../core/guards.mjs';
import { layoutOf } from '../core/layout.mjs';
import { Module, Parameter } from '../modules/module.mjs';
import { Places } from '../modules/places.mjs';
import { checkOptions } from '../core/options.mjs';
import { isRecording, perDevice, runtime, sink } from '../core/runtime.mjs';
import { scope } from '../core/scope.mjs';
import { Tensor } from '../api/tensor.mjs';
import { bucketsOf, stateLayout } from './bucket.mjs';
import { checkBetas, checkIterable, checkLeast, checkScale, checkSchedule } from './check.mjs';
import { Ranks } from './ranks.mjs';

/** The flat memory of some parameters. @typedef {import('./bucket.mjs').Bucket} Bucket */
/** A group of processes. @typedef {import('./ranks.mjs').ProcessGroup} ProcessGroup */
/** Elements of a bucket, one after another. @typedef {import('./bucket.mjs').Run} Run */
/** Device memory that tensors share. @typedef {import('../core/storage.mjs').Storage} Storage */
/** What dispatches are of. @typedef {import('../core/runtime.mjs').CallInfo} CallInfo */
/** What a kernel function returns. @typedef {import('../../kernels/base.mjs').Dispatches} Dispatches */
/** A kernel that is being written, and its values. @typedef {import('../core/codegen.mjs').Program} Program @typedef {import('../core/codegen.mjs').Value} Value */

/**
 * The learning rate over steps: linear warm-up to `lr`, then half a cosine down to `finalLr`.
 * @typedef {object} Schedule
 * @property {number} [warmup] steps of linear warm-up; 0 when left out
 * @property {number} total step at which half a cosine has come down to `finalLr`
 * @property {number} [finalLr] 0 when left out
 */

/**
 * Options of every optimizer. Those but `clip`, `gradientScale`, `processGroup`, `zero` and `reduce` may differ from group to group.
 * @typedef {object} Options
 * @property {number} [lr] the learning rate, with a schedule its peak
 * @property {number} [weightDecay] the factor of weight decay, which AdamW and Lion keep apart from the gradient and SGD adds to
 *   it; 0.01 for AdamW and 0 for the others when left out
 * @property {number} [clip] largest norm of all gradients together; none when left out. With one, a step whose norm is not finite, as
 *   where a gradient is NaN or infinite, is skipped: see `skippedSteps`
 * @property {number} [gradientScale] a factor on every gradient, before anything else: 1 over what the loss was multiplied by, so that
 *   gradients in f16 are not too small for it; 1 when left out
 * @property {Schedule} [schedule] a constant rate when left out
 * @property {ProcessGroup} [processGroup] the processes that train together, of `helios-vk/distributed`: all begin with the parameters of
 *   rank 0, and every step is that of the mean of their gradients. All make the same calls; none when left out
 * @property {0 | 1} [zero] 1 (the default): each of the processes keeps the moments of its shard of the parameters and steps there, and
 *   the parameters are gathered; 0: all keep all moments
 * @property {'f32' | 'bf16'} [reduce] what gradients travel as between the processes: f32 (the default), or bf16, half as many bytes. Each
 *   process's gradient is rounded to bf16 once, and the sums are of f32
 */

/**
 * What `AdamW` takes besides the options of every optimizer.
 * @typedef {object} AdamOptions
 * @property {[number, number]} [betas] decay of the running means of gradients and of their squares; [0.9, 0.999] when left out
 * @property {number} [eps] is added to the root that steps are divided by; 1e-8 when left out
 */

/**
 * What `SGD` takes besides the options of every optimizer.
 * @typedef {object} MomentumOptions
 * @property {number} [momentum] the part of the last step's v that stays; 0 when left out, which keeps no v
 * @property {boolean} [nesterov] whether the step looks ahead by the momentum (Nesterov 1983); false when left out
 */

/**
 * What `Lion` takes besides the options of every optimizer.
 * @typedef {object} LionOptions
 * @property {[number, number]} [betas] β₁ of the step and β₂ of the running mean; [0.9, 0.99] when left out
 */

/** Parameters with options of their own; what is left out is the optimizer's. @typedef {{ params: Iterable<Parameter> } & Omit<Options, 'clip' | 'gradientScale' | 'processGroup' | 'zero' | 'reduce'>} Group */

/** Names of the options that a group may have for itself, and of those of every optimizer. */
const GROUP_OPTIONS = ['lr', 'weightDecay', 'schedule'];
export const OPTIONS = [...GROUP_OPTIONS, 'clip', 'gradientScale', 'processGroup', 'zero', 'reduce'];

/** Runs dispatches of kernels over storages, recorded once for each key. @type {Map<string, Template>} */
const templates = perDevice(new Map());

/**
 * @param {string} key @param {Storage[]} storages one for each slot
 * @param {(slots: number[]) => (Dispatches | Dispatches[])[]} build
 * @param {number} [bytes] that they read and write, for profiles
 * @param {CallInfo} [call] what they are of, where passes may change it
 */
export function launch(key, storages, build, bytes, call) {
  let template = templates.get(key);
  if (!template) {
    template = new Template(...build(storages.map((_, i) => SLOT + i)));
    templates.set(key, template);
  }
  sink().append(template, storages, call, { name: key.slice(0, key.indexOf('/')), bytes });
}

/** @param {Tensor} tensor */
export const storageOf = (tensor) => alive('optim', tensor);

/**
 * Throws where a setting cannot be this number, or not now.
 * @param {string} name @param {number} value @param {string} [of] who takes it; the setting itself when left out
 */
function checkSetting(name, value, of = name) {
  checkLeast(name, value, of);
  if (isRecording()) throw new UsageError(of, 'set it outside of the compiled function: it lives on the device, and the next call sees it');
}

/**
 * Options with their defaults in place.
 * @typedef {Required<Omit<Options, 'schedule' | 'processGroup' | 'zero' | 'reduce'>> & Pick<Options, 'schedule' | 'processGroup' | 'zero' | 'reduce'>} Settings
 */

/** Parameters with a learning rate and a weight decay of their own; both can be set between steps. */
export class ParameterGroup {
  #lr;
  #weightDecay;

  /**
   * @param {Parameter[]} parameters @param {Settings} options
   * @param {{ betas: [number, number], eps: number }} adam @param {Ranks | undefined} ranks
   */
  constructor(parameters, { lr, weightDecay, clip, gradientScale, schedule }, { betas, eps }, ranks) {
    this.#lr = lr;
    this.#weightDecay = weightDecay;
    /** Whether the state is one that was loaded: what it holds is on the device alone. */
    this.loaded = false;
    /** What the state begins with. @param {number} step @param {number} skipped @param {number} maxNorm @param {number} scale */
    this.wordsAt = (step, skipped, maxNorm, scale) =>
      optimizerState({
        rate: this.#lr,
        decay: this.#weightDecay,
        maxNorm,
        gradientScale: scale / (ranks?.size ?? 1),
        beta1: betas[0],
        beta2: betas[1],
        epsilon: eps,
        warmup: schedule?.warmup ?? 0,
        total: schedule?.total ?? 0,
        finalRate: schedule?.finalLr ?? 0,
        step,
        skipped,
      });
    // Before the parameters move: it throws where an option cannot be.
    const words = this.wordsAt(0, 0, clip, gradientScale);
    const { bindingBytes, bufferBytes } = runtime().kernels.context;
    this.buckets = bucketsOf(parameters, Math.min(bindingBytes, bufferBytes), ranks?.multiple, ranks?.exportable);
    this.state = constant(words, stateLayout(STATE_WORDS));
    runtime().name(storageOf(this.state).allocation, 'optimizer state');
  }

  /** Changes a word of the state. @param {number} word @param {number} value */
  write(word, value) {
    runtime().upload(storageOf(this.state).allocation, Float32Array.of(value), 4 * word);
  }

  /** The learning rate; with a schedule, its peak. */
  get lr() {
    return this.#lr;
  }
  set lr(value) {
    checkSetting('lr', value);
    this.write(STATE.peakRate, value);
    this.#lr = value;
  }

  /** The factor of weight decay. */
  get weightDecay() {
    return this.#weightDecay;
  }
  set weightDecay(value) {
    checkSetting('weightDecay', value);
    this.write(STATE.decay, value);
    this.#weightDecay = value;
  }
  /** Whether weights decay at all: what runs depends on it. A state that was loaded has a factor of its own. */
  get decays() {
    return track(this, 'decays', this.#weightDecay > 0 || this.loaded);
  }
}

/**
 * The step of an optimizer for one element.
 * @callback Rule
 * @param {Program} program of the kernel
 * @param {StepValues} values
 * @returns {Value[]} the new parameter, then its new moments
 */

/**
 * What a step knows of an element.
 * @typedef {object} StepValues
 * @property {Value} parameter
 * @property {Value} gradient scaled and clipped
 * @property {Value[]} moments
 * @property {Value} rate the learning rate
 * @property {Value | undefined} decay the factor of weight decay, where there is any
 * @property {Value[]} numbers those that the optimizer gave
 */

/** The base of optimizers. */
export class Optimizer {
  #clip;
  #gradientScale;
  #places;

  /**
   * @param {Iterable<Parameter> | Group[]} params parameters, or groups with options of their own
   * @param {Settings} options
   * @param {{ betas: [number, number], eps: number }} [adam]
   * @param {number} [moments] that each parameter has
   */
  constructor(params, options, adam = { betas: [0.9, 0.999], eps: 1e-8 }, moments = 0) {
    const name = this.constructor.name;
    if (isRecording()) throw new UsageError(name, 'an optimizer is made outside of a compiled function');
    if (params instanceof Module) throw new ArgumentError(name, 'expected parameters, got a module: model.parameters()');
    const list = checkIterable(/** @type {Iterable<Parameter | Group>} */ (params), name);
    if (list.length === 0) throw new ArgumentError(name, 'no parameters');
    const groups = /** @type {Group[]} */ (list[0] instanceof Tensor ? [{ params: list }] : list);
    /** @type {Set<Parameter>} */
    for (const group of groups)
      if (typeof group !== 'object' || group === null) checkIterable(/** @type {Iterable<Group>} */ (group), name);
    checkBetas(name, adam.betas);
    const seen = new Set();
    this.#clip = options.clip;
    this.#gradientScale = checkScale(options.gradientScale, name);
    const { processGroup, zero = 1, reduce = 'f32' } = options;
    /** The processes that step together. */
    this.ranks = processGroup && new Ranks(processGroup, zero, reduce, name);
    const checked = groups.map(({ params: own, ...rest }) => {
      const parameters = checkIterable(own, name);
      for (const parameter of parameters) {
        if (!(parameter instanceof Parameter)) throw new ArgumentError(name, `expected parameters of modules, got ${shown(parameter)}`);
        if (parameter.dtype !== 'f32') throw new ArgumentError(name, `takes f32 parameters, got ${parameter.dtype}`);
        if (parameter.gradientPlace) throw new UsageError(name, 'a parameter belongs to another optimizer: dispose() of that one first');
        if (seen.has(parameter)) throw new ArgumentError(name, 'a parameter is there twice');
        seen.add(parameter);
      }
      const own_ = { ...options, ...checkOptions(name, rest, GROUP_OPTIONS) };
      for (const key of /** @type {const} */ (['lr', 'weightDecay', 'clip'])) checkSetting(key, own_[key], name);
      checkSchedule(name, own_.schedule);
      return { parameters, settings: own_ };
    });
    this.#places = new Places(seen);
    /** @type {ParameterGroup[]} */
    this.groups = [];
    /** @type {Map<Bucket, Tensor[]>} */
    this.moments = new Map();
    try {
      for (const { parameters, settings } of checked) this.groups.push(new ParameterGroup(parameters, settings, adam, this.ranks));
      this.ranks?.begin(this.buckets);
      if (moments > 0) for (const bucket of this.buckets) this.momentsOf(bucket, moments);
    } catch (error) {
      // The parameters may go to another optimizer, also those of the group that was being made.
      for (const { parameters } of checked) for (const { bucket } of parameters) bucket?.dispose();
      this.#free();
      throw error;
    }
  }

  /** Whether `dispose` was called. A compiled step does not outlive the optimizer. */
  get disposed() {
    return track(this, 'disposed', this.groups[0].state.disposed);
  }

  /** Throws where something in a module has taken the place of what is stepped here, and nobody steps that. */
  #checkPlaces() {
    for (const { module, key, container } of this.#places.changed()) {
      const now = container[key];
      const parameters = now instanceof Module ? now.parameters() : now instanceof Parameter ? [now] : [];
      if (!parameters.some(({ requiresGrad, bucket }) => requiresGrad && !bucket)) continue;
      throw new UsageError(
        'step',
        `${key} of a ${module.constructor.name} was replaced after the optimizer was made, and no optimizer has what is there now: ` +
          'dispose() of this optimizer and make it anew, or freeze what is new by requiresGrad_(false)',
      );
    }
  }

  /** The buckets of all groups. */
  get buckets() {
    return this.groups.flatMap(({ buckets }) => buckets);
  }

  /** The learning rate of the first group; setting it sets that of all. */
  get lr() {
    return this.groups[0].lr;
  }
  set lr(value) {
    for (const group of this.groups) group.lr = value;
  }
  /**
   * Sets the learning rate of one group, with a schedule its peak, as setting its `lr` does. Throws an ArgumentError for what
   * is no number of at least 0, and a UsageError in a function that is being compiled.
   * @param {ParameterGroup} group one of `groups` @param {number} value
   */
  setRate(group, value) {
    if (!this.groups.includes(group)) throw new ArgumentError('setRate', `expected one of the optimizer's groups, got ${shown(group)}`);
    within('setRate', () => {
      group.lr = value;
    });
  }

  /** The largest norm of all gradients together; 0 for none. */
  get clip() {
    return this.#clip;
  }
  set clip(value) {
    checkSetting('clip', value);
    for (const group of this.groups) group.write(STATE.maxNorm, value);
    this.#clip = value;
  }
  /** Whether gradients are clipped at all: what runs depends on it. A state that was loaded has a norm of its own, perhaps none. */
  get clips() {
    return track(this, 'clips', this.#clip > 0 || this.groups[0].loaded);
  }

  /** A factor on every gradient, before anything else. */
  get gradientScale() {
    return this.#gradientScale;
  }
  set gradientScale(value) {
    checkScale(value, 'gradientScale');
    checkSetting('gradientScale', value);
    for (const group of this.groups) group.write(STATE.gradientScale, value / (this.ranks?.size ?? 1));
    this.#gradientScale = value;
  }
  /** Whether gradients have a factor: what runs depends on it. */
  get scales() {
    return track(this, 'scales', this.clips || this.#gradientScale !== 1 || this.ranks !== undefined);
  }

  /**
   * Sets the number of steps that the schedule and the bias correction count from, to continue a run with other options than before.
   * Moments stay as they are; `loadStateDict` restores these and everything else.
   * @param {number} steps made, without those that were skipped
   * @param {number} [skipped] what `skippedSteps` counts on from; 0 when left out
   */
  startAt(steps, skipped = 0) {
    for (const [name, count] of Object.entries({ steps, skipped })) {
      if (!Number.isInteger(count) || count < 0 || count > 0xffffffff) {
        throw new ArgumentError('startAt', `${name} are an integer from 0 to 2^32 - 1, got ${shown(count)}`);
      }
    }
    checkSetting('startAt', steps);
    for (const group of this.groups) {
      runtime().upload(storageOf(group.state).allocation, group.wordsAt(steps, skipped, this.#clip, this.#gradientScale));
    }
  }

  /**
   * The number of skipped steps. With `clip`, a step is skipped if the norm of its gradients is not finite (one is NaN or infinite, or
   * the sum of their squares is too large for f32). It changes no parameter and no moment, and the schedule and the bias correction do
   * not count it. Without `clip` gradients are not checked, and such a step makes the parameters NaN, as in PyTorch.
   *
   * Counted since the optimizer was made, or from the number that `loadStateDict` or `startAt` set. Waits for the device. Throws a
   * UsageError in a function that is being compiled.
   * @returns {Promise<number>}
   */
  skippedSteps() {
    const { state } = this.groups[0];
    if (isRecording()) throw new UsageError('skippedSteps', 'ask outside of the compiled function: there are no values in it');
    if (state.disposed) throw new UsageError('skippedSteps', 'the optimizer was disposed of');
    return state.toArray().then((words) => words[STATE.skipped]);
  }

  /** Tensors of a bucket that begin as zeros. @param {Bucket} bucket @param {number} count */
  momentsOf(bucket, count) {
    let list = this.moments.get(bucket);
    if (!list) {
      if (isRecording()) throw new UsageError(this.constructor.name, 'its memory is made at construction');
      list = Array.from({ length: count }, (_, i) => bucket.zeros(['first moments', 'second moments'][i], this.ranks?.shard(bucket).count));
      this.moments.set(bucket, list);
    }
    return list;
  }

  /** What is stepped: runs of elements with gradients. @returns {{ bucket: Bucket, runs: Run[] }[][]} by group */
  #ready() {
    const ready = this.groups.map(({ buckets }) => buckets.map((bucket) => ({ bucket, runs: bucket.ready() })));
    if (ready.flat().every(({ runs }) => runs.length === 0)) {
      throw new UsageError('step', 'no parameter has a gradient: call backward() on a loss first');
    }
    const { ranks } = this;
    if (!ranks) return ready;
    if (isRecording()) {
      throw new UsageError(
        'step',
        'a step of several processes cannot be compiled: compile what computes the gradients, and call it behind that',
      );
    }
    if (ready.flat().some(({ bucket, runs }) => runs.length !== 1 || runs[0].count !== bucket.count)) {
      throw new UsageError('step', 'a parameter has no gradient: a step of several processes needs one of every parameter');
    }
    ranks.sum(this.buckets);
    return ready.map((buckets) => buckets.map(({ bucket }) => ({ bucket, runs: [ranks.shard(bucket)] })));
  }

  /**
   * Updates the parameters by their gradients and clears the gradients (no `zeroGrad` is needed). A parameter without a gradient stays
   * as it is; with a `processGroup`, every parameter needs one on every process. Without a `processGroup`, a step that throws, for
   * example out of memory, has changed nothing and may be repeated.
   */
  step() {
    if (this.disposed) throw new UsageError('step', 'the optimizer was disposed of');
    this.#checkPlaces();
    const ready = this.#ready();
    // What collectives have done cannot be taken back, and a recording is given up as a whole.
    if (this.ranks || isRecording()) this.#change(ready);
    else {
      const written = this.buckets.flatMap((bucket) => [bucket.values, ...(this.moments.get(bucket) ?? [])]);
      runtime().allOrNothing(() => this.#change(ready), written.map(storageOf));
    }
    if (this.ranks?.zero) this.ranks.gather(this.buckets);
    for (const { bucket, runs } of ready.flat()) {
      if (runs.length > 0) bucket.changed(!this.ranks?.zero);
      for (const parameter of bucket.parameters) parameter.zeroGrad();
    }
  }

  /** Counts the step and changes what it is of. @param {{ bucket: Bucket, runs: Run[] }[][]} ready by group */
  #change(ready) {
    const { clips } = this;
    // Shards have a norm of their own each.
    const ranks = this.ranks?.zero ? this.ranks : undefined;
    noGrad(() =>
      scope(() => {
        const shards = ready.flat().flatMap(({ bucket, runs }) => runs.map((run) => ({ bucket, run })));
        const clip = clips ? shards : [];
        // Runs are many where parameters in between have no gradient; buckets, of which each is one slot, are few.
        const clipped = [...new Set(clip.map(({ bucket }) => bucket))];
        const key = clip.map(({ bucket, run }) => `${clipped.indexOf(bucket)}:${run.offset}+${run.count}`).join();
        const states = this.groups.map(({ state }) => state);
        const norms = ranks && clips ? [ranks.own] : [];
        const storages = [...states, ...norms, ...clipped.map(({ gradients }) => gradients)].map(storageOf);
        launch(`advance/${states.length}+${norms.length}/${key}`, storages, (slots) => {
          const kernels = runtime().kernels;
          const all = slots.slice(0, states.length);
          const gradients = slots.slice(states.length + norms.length);
          const list = all.map((one) => kernels.optimizerAdvance({ state: one }));
          if (clip.length === 0) return list;
          const gradient = clip.map(({ bucket, run: { offset, count } }) => ({
            tensor: { buffer: gradients[clipped.indexOf(bucket)], offset },
            count,
          }));
          const state = norms.length > 0 ? slots.slice(states.length, states.length + 1) : all;
          return [...list, ...kernels.gradientClip({ gradient, count: gradient.reduce((sum, { count }) => sum + count, 0), state })];
        });
        if (ranks && clips) {
          ranks.gatherNorms();
          launch(`norms/${states.length}/${ranks.norms.size}`, [...states, ranks.norms].map(storageOf), (slots) => {
            const gradient = { buffer: slots[states.length], offset: 0 };
            return [runtime().kernels.gradientClip({ gradient, count: ranks.norms.size, state: slots.slice(0, states.length) })];
          });
        }
        ready.forEach((buckets, g) => {
          for (const { bucket, runs } of buckets) for (const run of runs) this.update(this.groups[g], bucket, run);
        });
      }),
    );
  }

  /**
   * Changes a run of parameters.
   * @param {ParameterGroup} _group @param {Bucket} _bucket @param {Run} _run
   */
  update(_group, _bucket, _run) {}

  /**
   * Changes a run of parameters and their moments by a rule for one element, in one kernel. Where the step is skipped, the elements stay
   * as they are: chosen, not multiplied by 0, which NaN survives.
   * @param {string} name of the kernel, for profiles; what else it depends on, too
   * @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run @param {number[]} numbers that the rule takes @param {Rule} rule
   */
  change(name, group, bucket, { offset, count }, numbers, rule) {
    const { scales, clips } = this;
    const { decays } = group;
    const moments = this.moments.get(bucket) ?? [];
    const from = this.ranks?.shard(bucket).offset ?? 0;
    const elements = (/** @type {number} */ buffer, /** @type {number} */ at) => ({
      buffer,
      offset: at,
      layout: layoutOf([count], [1], at, 'f32'),
    });
    const key = `${name}/${numbers}${scales ? ' scales' : ''}${clips ? ' clips' : ''}${decays ? ' decays' : ''}/${offset}-${from}+${count}`;
    const storages = [bucket.gradients, group.state, bucket.values, ...moments].map(storageOf);
    // The gradient is read, parameter and moments are read and written.
    const bytes = 4 * count * (1 + 2 * (1 + moments.length));
    const build = (/** @type {number[]} */ [gradient, state, ...changed]) => {
      const targets = changed.map((buffer, i) => elements(buffer, i === 0 ? offset : offset - from));
      const words = [STATE.rate, ...(scales ? [STATE.clip] : []), ...(decays ? [STATE.decay] : [])];
      const inputs = [
        elements(gradient, offset),
        ...targets,
        ...words.map((at) => ({ buffer: state, offset: at, layout: layoutOf([1], [1], at, 'f32') })),
      ];
      const dispatch = map(runtime().kernels.context, inputs, targets, (program, values, scalars) => {
        const given = scalars(...numbers);
        const before = values.slice(1, 1 + targets.length);
        const [rate, ...rest] = values.slice(1 + targets.length);
        const scale = scales ? rest.shift() : undefined;
        const after = rule(program, {
          parameter: before[0],
          gradient: scale === undefined ? values[0] : program.append('mul', values[0], scale),
          moments: before.slice(1),
          rate,
          decay: rest[0],
          numbers: given,
        });
        if (!clips || scale === undefined) return after;
        const counts = program.append('ne', scale, program.constant(0));
        return after.map((value, i) => program.append('select', counts, value, before[i]));
      });
      return [/** @type {Dispatches} */ (dispatch)];
    };
    launch(key, storages, build, bytes);
  }

  /** Forgets all gradients. */
  zeroGrad() {
    for (const { buckets } of this.groups) for (const { parameters } of buckets) for (const parameter of parameters) parameter.zeroGrad();
  }

  /**
   * What a resumed run needs besides the parameters: the state of each group, and the moments of each parameter. With a `processGroup`
   * all processes must call it, and each gets the whole state: let one write it; any number of processes may load it.
   * @returns {Record<string, Tensor>} by name, such as `0.state` and `0.3.first`; they see the optimizer's memory, unless each process
   *   has a shard of the moments alone: then they are copies
   */
  stateDict() {
    const { ranks } = this;
    return this.#named((bucket, flat) => (ranks?.zero ? noGrad(() => ranks.whole(bucket, flat)) : flat));
  }

  /** The state by name, of moments of whole buckets. @param {(bucket: Bucket, flat: Tensor) => Tensor} wholeOf */
  #named(wholeOf) {
    /** @type {Record<string, Tensor>} */
    const state = {};
    this.groups.forEach((group, g) => {
      state[`${g}.state`] = group.state.alias();
      let first = 0;
      for (const bucket of group.buckets) {
        this.moments.get(bucket)?.forEach((flat, m) => {
          const whole = wholeOf(bucket, flat);
          bucket.parameters.forEach((parameter, i) => {
            state[`${g}.${first + i}.${['first', 'second'][m]}`] = bucket.view(whole, parameter.shape, bucket.offsets[i]);
          });
          if (whole !== flat) whole.dispose();
        });
        first += bucket.parameters.length;
      }
    });
    return state;
  }

  /**
   * Restores what `stateDict` returned, even with another number of processes: moments and steps, and also rates, decays, schedule and
   * clipping norm. Those live on the device, so that `lr`, `weightDecay` and `clip` do not show them. `gradientScale` keeps its present
   * value. If it throws, nothing has changed.
   * @param {Record<string, Tensor>} state
   */
  loadStateDict(state) {
    if (typeof state !== 'object' || state === null)
      throw new ArgumentError('loadStateDict', `expected tensors by name, got ${shown(state)}`);
    /** Moments as a whole, of which this process keeps its shard. @type {[shard: Tensor, whole: Tensor, bucket: Bucket][]} */
    const shards = [];
    const { ranks } = this;
    const own = this.#named((bucket, flat) => {
      if (!ranks?.zero) return flat;
      const whole = bucket.zeros('moments of all ranks');
      shards.push([flat, whole.alias(), bucket]);
      return whole;
    });
    // Of another kind of optimizer, or of more parameters.
    const foreign = Object.keys(state).find((name) => /^\d+\.(state|\d+\.(first|second))$/.test(name) && !(name in own));
    if (foreign) throw new ArgumentError('loadStateDict', `unexpected: ${foreign}, which this ${this.constructor.name} has not`);
    for (const [name, target] of Object.entries(own)) {
      if (!(state[name] instanceof Tensor)) throw new ArgumentError('loadStateDict', `missing: ${name}`);
      if (state[name].disposed) throw new UsageError('loadStateDict', `${name} was disposed of`);
      if (String(state[name].shape) !== String(target.shape) || state[name].dtype !== target.dtype) {
        throw new ArgumentError(
          'loadStateDict',
          `${name} is ${state[name].dtype} [${state[name].shape}], expected ${target.dtype} [${target.shape}]`,
        );
      }
    }
    noGrad(() => {
      for (const [name, target] of Object.entries(own)) target.copy_(state[name]);
      for (const [flat, whole, bucket] of shards) {
        flat.copy_(bucket.part(whole, /** @type {Ranks} */ (ranks).shard(bucket)));
        whole.dispose();
      }
    });
    for (const group of this.groups) {
      group.write(STATE.gradientScale, this.#gradientScale / (ranks?.size ?? 1));
      group.loaded = true;
    }
  }

  /** Frees the optimizer's memory. The parameters keep theirs, and another optimizer may take them. */
  dispose() {
    this.zeroGrad();
    this.#free();
  }

  #free() {
    for (const { buckets, state } of this.groups) {
      for (const bucket of buckets) {
        bucket.dispose();
        for (const tensor of this.moments.get(bucket) ?? []) tensor.dispose();
      }
      state.dispose();
    }
    this.ranks?.dispose();
    this.moments.clear();
  }
  [Symbol.dispose]() {
    this.dispose();
  }
}
