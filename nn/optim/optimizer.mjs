// The base of optimizers. Constructing one moves its parameters into flat memory. The step count, the learning rate and the clipping
// factor live on the device, so a compiled step advances them without the host.

import { STATE } from '../../kernels/index.mjs';
import { SLOT, Template } from '../../kernels/template.mjs';
import { noGrad } from '../core/node.mjs';
import { map } from '../core/codegen.mjs';
import { storageOf as alive } from '../core/engine.mjs';
import { ArgumentError, UsageError, shown, within } from '../core/errors.mjs';
import { track } from '../core/guards.mjs';
import { isFloat, layoutOf } from '../core/layout.mjs';
import { Module, Parameter } from '../modules/module.mjs';
import { Places } from '../modules/places.mjs';
import { checkOptions } from '../core/options.mjs';
import { isRecording, perDevice, runtime, sink } from '../core/runtime.mjs';
import { scope } from '../core/scope.mjs';
import { Tensor } from '../api/tensor.mjs';
import { slice } from '../api/views.mjs';
import { checkBetas, checkIterable, checkLeast, checkScale, checkSchedule, checkState, factorsOf, checkParameter } from './check.mjs';
import { ParameterGroup, checkSetting } from './group.mjs';
import { Ranks } from './ranks.mjs';

/** The learning rate over steps. @typedef {import('./check.mjs').Schedule} Schedule */
/** @typedef {import('./group.mjs').Kind} Kind */
/** @typedef {import('./group.mjs').Settings} Settings */
/** The flat memory of some parameters. @typedef {import('./bucket.mjs').Bucket} Bucket */
/** A group of processes. @typedef {import('./ranks.mjs').ProcessGroup} ProcessGroup */
/** A contiguous range of a bucket's elements. @typedef {import('./bucket.mjs').Run} Run */
/** Device memory that tensors share. @typedef {import('../core/storage.mjs').Storage} Storage */
/** The operation that dispatches belong to. @typedef {import('../core/runtime.mjs').CallInfo} CallInfo */
/** What a kernel function returns. @typedef {import('../../kernels/base.mjs').Dispatches} Dispatches */
/** A kernel being generated. @typedef {import('../core/codegen.mjs').Program} Program */
/** A value of such a kernel. @typedef {import('../core/codegen.mjs').Value} Value */

/**
 * Options of every optimizer. A parameter group may have its own `lr`, `weightDecay` and `schedule`.
 * @typedef {object} Options
 * @property {number} [lr] the learning rate; with a schedule, its peak; when left out, what the optimizer says
 * @property {number} [weightDecay] the factor of weight decay. AdamW, Lion, Muon and Adafactor apply it to the parameter (decoupled), the others
 *   add it to the gradient, unless they have `decoupledWeightDecay`; 0.01 for AdamW, 0.1 for Muon and 0 for the others when left out
 * @property {number} [clip] the largest L2 norm of all gradients together; larger gradients are scaled down to it. 0 or left out: no
 *   clipping. With clipping, a step whose norm is not finite is skipped: see `skippedSteps`
 * @property {number} [gradientScale] a factor on every gradient, applied first; 1 when left out. If you multiply the loss by s, so that
 *   f16 gradients do not underflow, set it to 1 / s
 * @property {Schedule | ((step: number) => number)} [schedule] how the rate changes over steps: an object, or a function that gives the factor
 *   on `lr` from the number of steps made before, as those of `optim.schedules`. It is called for the first 2²⁰ steps, or as many as its
 *   property `steps` says, when the optimizer is made; later ones have the last factor. A constant rate when left out
 * @property {ProcessGroup} [processGroup] the processes that train together, from `helios-vk/distributed`; none when left out. All begin
 *   with the parameters of rank 0, every step uses the mean of their gradients, and all must make the same calls
 * @property {0 | 1 | 2 | 3} [zero] with a `processGroup`: what is sharded over the processes: 0 nothing, 1 (the default) the moments (ZeRO-1), 2
 *   the gradients too, 3 the parameters too. With 2 and 3 a parameter has no `grad`: sums are made during the backward pass, and each process
 *   keeps a part of them. With 3, a parameter is gathered when something reads it, so that all processes must read the same, and
 *   `setParameter` changes it; `fullyShard` says which are gathered and freed together. `dispose` frees the parameters, too
 * @property {'f32' | 'bf16'} [reduce] with a `processGroup`: the type in which gradients are sent; f32 when left out. bf16, with `zero` of 0 or
 *   1, halves the bytes: each process rounds its gradients once, and the sums are in f32
 */

/**
 * Options of `AdamW` besides those of every optimizer.
 * @typedef {object} AdamOptions
 * @property {[number, number]} [betas] β₁ and β₂, decay rates of the running means of gradients and of their squares, in [0, 1) and (0, 1);
 *   [0.9, 0.999] when left out
 * @property {number} [eps] added to √v̂, which the step is divided by; 1e-8 when left out
 */

/**
 * Options of `SGD` besides those of every optimizer.
 * @typedef {object} MomentumOptions
 * @property {number} [momentum] the factor on the last step's v; 0 when left out, which needs no memory for v
 * @property {boolean} [nesterov] whether the step uses Nesterov momentum; false when left out
 */

/**
 * Options of `Lion` besides those of every optimizer.
 * @typedef {object} LionOptions
 * @property {[number, number]} [betas] β₁ of the step and β₂ of the running mean, in [0, 1) and (0, 1); [0.9, 0.99] when left out
 */

/**
 * Parameters with their own options; of `Adam` and `AdamW` also `betas` and `eps`. An option that is left out is the optimizer's.
 * @typedef {{ params: Iterable<Parameter> } & Omit<Options, 'clip' | 'gradientScale' | 'processGroup' | 'zero' | 'reduce'> & AdamOptions} Group
 */

/** Names of the options that a group may have, and of the options of every optimizer. */
const GROUP_OPTIONS = ['lr', 'weightDecay', 'schedule'];
export const OPTIONS = [...GROUP_OPTIONS, 'clip', 'gradientScale', 'processGroup', 'zero', 'reduce'];

/**
 * The common options with an optimizer's defaults.
 * @param {Options} options @param {number} lr @param {number} [weightDecay]
 */
export const settingsOf = (options, lr, weightDecay = 0) => {
  const { lr: rate = lr, weightDecay: decay = weightDecay, clip = 0, gradientScale = 1, ...rest } = options;
  return { lr: rate, weightDecay: decay, clip, gradientScale, ...rest };
};

/** The names of moments. */
const MOMENTS = ['first', 'second', 'third'];

/** Recorded dispatches by key. @type {Map<string, Template>} */
const templates = perDevice(new Map());

/**
 * Runs dispatches over storages. `build` is called once for each key.
 * @param {string} key names the dispatches; the text before the first `/` is their name in profiles
 * @param {Storage[]} storages one for each slot
 * @param {(slots: number[]) => (Dispatches | Dispatches[])[]} build
 * @param {number} [bytes] that they read and write, for profiles
 * @param {CallInfo} [call] the operation that they belong to, if passes of `compile` may change it
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
 * Generates the code of a step for one element.
 * @callback Rule
 * @param {Program} program the kernel being generated
 * @param {StepValues} values
 * @returns {Value[]} the new parameter, then its new moments
 */

/**
 * The values that a rule may use.
 * @typedef {object} StepValues
 * @property {Value} parameter
 * @property {Value} gradient scaled and clipped
 * @property {Value[]} moments
 * @property {Value} rate the learning rate
 * @property {Value | undefined} decay the factor of weight decay; undefined without weight decay
 * @property {Value[]} numbers the optimizer's own numbers, as passed to `change`
 * @property {Value[]} words those of the state that were passed to `change`
 */

/** The base class of optimizers. */
export class Optimizer {
  #clip;
  #gradientScale;
  #places;

  /**
   * Checks all options before it moves any parameter. Throws an ArgumentError for an invalid option, for what is not an f32 parameter, and
   * for one that is listed twice; a UsageError for a parameter of another optimizer, and while a function is compiled.
   * @param {Iterable<Parameter> | Group[]} params parameters, or groups with their own options
   * @param {Settings} options
   * @param {Kind} [kind]
   * @param {number | ((settings: Settings) => number)} [moments] number of moments that each parameter has, or that those of a group have
   */
  constructor(params, options, kind = {}, moments = 0) {
    const name = this.constructor.name;
    if (isRecording()) throw new UsageError(name, 'make the optimizer outside of the compiled function');
    if (params instanceof Module) throw new ArgumentError(name, 'expected parameters, got a module: pass model.parameters()');
    const list = checkIterable(/** @type {Iterable<Parameter | Group>} */ (params), name);
    if (list.length === 0) throw new ArgumentError(name, 'expected at least one parameter, got none');
    const groups = /** @type {Group[]} */ (list[0] instanceof Tensor ? [{ params: list }] : list);
    /** @type {Set<Parameter>} */
    for (const group of groups)
      if (typeof group !== 'object' || group === null) checkIterable(/** @type {Iterable<Group>} */ (group), name);
    if (kind.betas !== undefined) checkBetas(name, kind.betas);
    const groupOptions = [...GROUP_OPTIONS, ...(kind.groupOptions ?? [])];
    const seen = new Set();
    this.#clip = options.clip;
    this.#gradientScale = checkScale(options.gradientScale, name);
    const { processGroup, zero = 1, reduce = 'f32' } = options;
    /** The collectives, with a `processGroup`. @type {Ranks | undefined} */
    this.ranks = processGroup && new Ranks(processGroup, zero, reduce, name);
    const tables = new Map();
    const checked = groups.map(({ params: own, ...rest }) => {
      const parameters = checkIterable(own, name);
      for (const parameter of parameters) {
        checkParameter(parameter, name);
        if (parameter.bucket) throw new UsageError(name, 'a parameter belongs to another optimizer: dispose() of that one first');
        if (seen.has(parameter)) throw new ArgumentError(name, 'a parameter appears twice');
        seen.add(parameter);
      }
      const own_ = { ...options, ...checkOptions(name, rest, groupOptions) };
      for (const key of /** @type {const} */ (['lr', 'weightDecay', 'clip'])) checkSetting(key, own_[key], name);
      if (own_.betas !== undefined) checkBetas(name, own_.betas);
      if (own_.eps !== undefined) checkLeast('eps', own_.eps, name);
      checkSchedule(name, own_.schedule);
      return { parameters, settings: { ...own_, factors: factorsOf(name, own_.schedule, tables) } };
    });
    this.#places = new Places(seen);
    /** @type {ParameterGroup[]} */
    this.groups = [];
    /** @type {Map<Bucket, Tensor[]>} */
    this.moments = new Map();
    try {
      for (const { parameters, settings } of checked) this.groups.push(new ParameterGroup(parameters, settings, kind, this.ranks));
      this.ranks?.begin(this.buckets);
      for (const { buckets, settings } of this.groups) {
        const count = typeof moments === 'number' ? moments : moments(settings);
        if (count > 0) for (const bucket of buckets) this.momentsOf(bucket, count);
      }
    } catch (error) {
      // Release all parameters, also those of the group that failed, so that another optimizer can take them. What they are gathered in is taken
      // after the moments are freed.
      for (const list of this.moments.values()) for (const tensor of list) tensor.dispose();
      this.moments.clear();
      const buckets = new Set(checked.flatMap(({ parameters }) => parameters.flatMap(({ bucket }) => bucket ?? [])));
      try {
        for (const bucket of buckets) bucket.restore();
      } catch (cause) {
        const lost = 'parameters that were divided among the processes already could not be gathered again: load them anew';
        throw new UsageError(name, `${/** @type {Error} */ (error).message}; ${lost} (${/** @type {Error} */ (cause).message})`);
      } finally {
        for (const bucket of buckets) bucket.dispose();
        this.#free();
      }
      throw error;
    }
  }

  /** Whether `dispose` was called. A compiled step then throws. */
  get disposed() {
    return track(this, 'disposed', this.groups[0].state.disposed);
  }

  /** Throws a UsageError if a parameter of this optimizer was replaced in its module by one that no optimizer updates. */
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

  /** The learning rate of the first group. Setting it sets the rate of all groups. */
  get lr() {
    return this.groups[0].lr;
  }
  set lr(value) {
    for (const group of this.groups) group.lr = value;
  }
  /**
   * Sets the learning rate of one group, or its peak with a schedule; the same as setting the group's `lr`. Throws an ArgumentError unless
   * the value is a finite number of at least 0, and a UsageError while a function is compiled.
   * @param {ParameterGroup} group one of `groups` @param {number} value
   */
  setRate(group, value) {
    if (!this.groups.includes(group)) throw new ArgumentError('setRate', `expected one of the optimizer's groups, got ${shown(group)}`);
    within('setRate', () => {
      group.lr = value;
    });
  }

  /** The largest L2 norm of all gradients together; 0 for no clipping. */
  get clip() {
    return this.#clip;
  }
  set clip(value) {
    checkSetting('clip', value);
    for (const group of this.groups) group.write(STATE.maxNorm, value);
    this.#clip = value;
  }
  /** Whether the kernels must clip. A loaded state has a norm that the host does not know, so it counts as clipping. */
  get clips() {
    return track(this, 'clips', this.#clip > 0 || this.groups[0].loaded);
  }

  /** The factor on every gradient, applied before clipping. */
  get gradientScale() {
    return this.#gradientScale;
  }
  set gradientScale(value) {
    checkScale(value, 'gradientScale');
    checkSetting('gradientScale', value);
    for (const group of this.groups) group.write(STATE.gradientScale, value / (this.ranks?.size ?? 1));
    this.#gradientScale = value;
  }
  /** Whether the kernels must scale gradients, for clipping, for `gradientScale` or for the mean over processes. */
  get scales() {
    return track(this, 'scales', this.clips || this.#gradientScale !== 1 || this.ranks !== undefined);
  }

  /**
   * Sets the step count of the schedule and the bias correction, to continue a run with new options. Moments are unchanged. To restore a
   * run as it was, use `loadStateDict`.
   * @param {number} steps number of steps made so far, without skipped ones
   * @param {number} [skipped] number of steps skipped so far; 0 when left out
   */
  startAt(steps, skipped = 0) {
    for (const [name, count] of Object.entries({ steps, skipped })) {
      if (!Number.isInteger(count) || count < 0 || count > 0xffffffff) {
        throw new ArgumentError('startAt', `${name} must be an integer from 0 to 2^32 - 1, got ${shown(count)}`);
      }
    }
    checkSetting('startAt', steps);
    for (const group of this.groups) {
      runtime().upload(storageOf(group.state).allocation, group.wordsAt(steps, skipped, this.#clip, this.#gradientScale));
    }
  }

  /**
   * The number of skipped steps. With `clip`, a step is skipped if the norm of its gradients is not finite: a gradient is NaN or infinite,
   * or the sum of their squares overflows f32. A skipped step changes no parameter and no moment, and the schedule and the bias correction
   * do not count it. Without `clip` gradients are not checked, and such a step makes parameters NaN, as in PyTorch.
   *
   * The count starts at 0, or at the number that `loadStateDict` or `startAt` set. Reading it waits for the device. Throws a UsageError
   * while a function is compiled and after `dispose`.
   * @returns {Promise<number>}
   */
  skippedSteps() {
    return this.#words('skippedSteps').then((words) => words[STATE.skipped]);
  }

  /**
   * The L2 norm of all gradients of the last step together, after `gradientScale` and before clipping. NaN without `clip`, since no step then
   * computes it. Reading it waits for the device. Throws a UsageError while a function is compiled and after `dispose`.
   * @returns {Promise<number>}
   */
  gradientNorm() {
    const read = this.#words('gradientNorm');
    if (!this.clips) return read.then(() => NaN);
    return read.then((words) => new Float32Array(words.buffer, words.byteOffset, words.length)[STATE.norm]);
  }

  /** The state of the first group. @param {string} op the call, for errors @returns {Promise<Uint32Array>} */
  #words(op) {
    const { state } = this.groups[0];
    if (isRecording()) throw new UsageError(op, 'call it outside of the compiled function, in which there are no values');
    if (state.disposed) throw new UsageError(op, 'the optimizer was disposed of');
    return /** @type {Promise<Uint32Array>} */ (state.toArray());
  }

  /** The moments of a bucket, made as zeros at first use. @param {Bucket} bucket @param {number} count number of moments */
  momentsOf(bucket, count) {
    let list = this.moments.get(bucket);
    if (!list) {
      if (isRecording())
        throw new UsageError(this.constructor.name, 'make the optimizer, which allocates its memory, outside of the compiled function');
      list = Array.from({ length: count }, (_, i) => bucket.zeros(`${MOMENTS[i]} moments`, this.ranks?.shard(bucket).count));
      this.moments.set(bucket, list);
    }
    return list;
  }

  /**
   * The ranges that a step updates, after summing the gradients over the processes. Throws a UsageError if no parameter has a gradient.
   * @returns {{ bucket: Bucket, runs: Run[] }[][]} by group
   */
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
        'a step of several processes cannot be compiled: compile what computes the gradients, and call step() after it',
      );
    }
    if (ready.flat().some(({ bucket, runs }) => runs.length !== 1 || runs[0].count !== bucket.count)) {
      throw new UsageError('step', 'a parameter has no gradient: a step of several processes needs one of every parameter');
    }
    ranks.sum(this.buckets);
    return ready.map((buckets) => buckets.map(({ bucket }) => ({ bucket, runs: [ranks.shard(bucket)] })));
  }

  /**
   * Updates the parameters by their gradients, then clears the gradients, so no `zeroGrad` is needed. A parameter without a gradient is
   * unchanged; with a `processGroup`, every parameter needs a gradient on every process, except that with `zero` of 2 or 3 one without counts
   * as having zeros. Without a `processGroup`, a step that throws (out of memory, for example) has changed nothing and may be repeated.
   *
   * Throws a UsageError if no parameter has a gradient, after `dispose`, if a module's parameter was replaced after the optimizer was made,
   * and while a function is compiled if there is a `processGroup`.
   */
  step() {
    if (this.disposed) throw new UsageError('step', 'the optimizer was disposed of');
    this.#checkPlaces();
    const ready = this.#ready();
    // A collective cannot be undone, and a recording that fails is dropped as a whole.
    if (this.ranks || isRecording()) this.#change(ready);
    else {
      runtime().allOrNothing(() => this.#change(ready), this.written().map(storageOf));
    }
    if (this.ranks?.zero) this.ranks.gather(this.buckets);
    for (const { bucket, runs } of ready.flat()) {
      if (runs.length > 0) bucket.changed(!this.ranks?.zero);
      for (const parameter of bucket.parameters) parameter.zeroGrad();
    }
  }

  /** What a step writes besides its state. @returns {Tensor[]} */
  written() {
    return this.buckets.flatMap((bucket) => [bucket.values, ...(this.moments.get(bucket) ?? [])]);
  }

  /** Advances the step count, computes the clipping factor and updates the parameters. @param {{ bucket: Bucket, runs: Run[] }[][]} ready by group */
  #change(ready) {
    const { clips } = this;
    // With ZeRO each process computes the norm of its own shards first.
    const ranks = this.ranks?.zero ? this.ranks : undefined;
    noGrad(() =>
      scope(() => {
        const shards = ready.flat().flatMap(({ bucket, runs }) => runs.map((run) => ({ bucket, run })));
        const clip = clips ? shards : [];
        // One slot per bucket, not per range: there are many ranges if parameters in between have no gradient.
        const clipped = [...new Set(clip.map(({ bucket }) => bucket))];
        const key = clip.map(({ bucket, run }) => `${clipped.indexOf(bucket)}:${run.offset - bucket.from.gradients}+${run.count}`).join();
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
            tensor: { buffer: gradients[clipped.indexOf(bucket)], offset: offset - bucket.from.gradients },
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
        for (const group of this.groups) {
          group.follow();
          this.begin(group);
        }
        ready.forEach((buckets, g) => {
          for (const { bucket, runs } of buckets) for (const run of runs) this.update(this.groups[g], bucket, run);
        });
      }),
    );
  }

  /** Computes what all elements of a group share. Optimizers that have such numbers override it. @param {ParameterGroup} _group */
  begin(_group) {}

  /**
   * Updates a range of parameters. Each optimizer overrides it.
   * @param {ParameterGroup} _group @param {Bucket} _bucket @param {Run} _run
   */
  update(_group, _bucket, _run) {}

  /**
   * Updates a range of parameters and their moments in one generated kernel. In a skipped step the kernel selects the old values; it does
   * not multiply the update by 0, since 0 · NaN is NaN.
   * @param {string} name of the kernel, for profiles; it must differ for different rules
   * @param {ParameterGroup} group @param {Bucket} bucket @param {Run} run @param {number[]} numbers for the rule @param {Rule} rule
   * @param {number[]} [stateWords] f32 words of the state for the rule
   */
  change(name, group, bucket, { offset, count }, numbers, rule, stateWords = []) {
    const { scales, clips } = this;
    const { decays } = group;
    const moments = this.moments.get(bucket) ?? [];
    const { from, own } = bucket;
    const elements = (/** @type {number} */ buffer, /** @type {number} */ at) => ({
      buffer,
      offset: at,
      layout: layoutOf([count], [1], at, 'f32'),
    });
    const begins = [from.gradients, from.values, own.offset];
    const key = `${name}/${numbers}${scales ? ' scales' : ''}${clips ? ' clips' : ''}${decays ? ' decays' : ''}/${offset}-${begins}+${count}`;
    const storages = [bucket.gradients, group.state, bucket.values, ...moments].map(storageOf);
    // Reads the gradient; reads and writes parameter and moments.
    const bytes = 4 * count * (1 + 2 * (1 + moments.length));
    const build = (/** @type {number[]} */ [gradient, state, ...changed]) => {
      const targets = changed.map((buffer, i) => elements(buffer, offset - (i === 0 ? from.values : own.offset)));
      const words = [STATE.rate, ...(scales ? [STATE.clip] : []), ...(decays ? [STATE.decay] : []), ...stateWords];
      const inputs = [
        elements(gradient, offset - from.gradients),
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
          decay: decays ? rest[0] : undefined,
          numbers: given,
          words: decays ? rest.slice(1) : rest,
        });
        if (!clips || scale === undefined) return after;
        const counts = program.append('ne', scale, program.constant(0));
        return after.map((value, i) => program.append('select', counts, value, before[i]));
      });
      return [/** @type {Dispatches} */ (dispatch)];
    };
    launch(key, storages, build, bytes);
  }

  /**
   * Sets elements of a parameter, also of one that is sharded (`zero: 3`): all processes must then call it with the same values.
   *
   * Throws an ArgumentError for a parameter of another optimizer and for values that are not floating or too many.
   * @param {Parameter} parameter @param {Tensor} values of any shape @param {number} [offset] the first element to set, in the order of memory; 0
   *   when left out
   */
  setParameter(parameter, values, offset = 0) {
    const name = 'setParameter';
    const { bucket } = parameter instanceof Parameter ? parameter : { bucket: undefined };
    if (!bucket || !this.buckets.includes(bucket))
      throw new ArgumentError(name, `expected a parameter of this optimizer, got ${shown(parameter)}`);
    if (!(values instanceof Tensor) || !isFloat(values.dtype))
      throw new ArgumentError(name, `values must be a tensor of floating type, got ${shown(values)}`);
    alive(name, values);
    if (!Number.isInteger(offset) || offset < 0 || offset + values.size > parameter.size)
      throw new ArgumentError(name, `the parameter has ${parameter.size} elements, got ${values.size} from ${shown(offset)}`);
    if (isRecording()) throw new UsageError(name, 'call it outside of the compiled function');
    const first = bucket.offsets[bucket.parameters.indexOf(parameter)] + offset;
    const part = bucket.whole ? bucket.own : { offset: 0, count: bucket.count };
    const [begin, end] = [Math.max(first, part.offset), Math.min(first + values.size, part.offset + part.count)];
    noGrad(() =>
      scope(() => {
        if (begin >= end) return;
        const own = slice(values.to('f32').reshape(-1), 0, begin - first, end - first);
        bucket.view(bucket.values, [end - begin], begin - part.offset).copy_(own);
      }),
    );
    bucket.changed(false);
  }

  /** Clears the gradients of all parameters. */
  zeroGrad() {
    for (const { buckets } of this.groups) for (const { parameters } of buckets) for (const parameter of parameters) parameter.zeroGrad();
  }

  /**
   * What a resumed run needs besides the parameters: the state of each group and the moments of each parameter. With a `processGroup`, all
   * processes must call it. Each gets the whole state, so one of them writes the file; a run with any number of processes can load it.
   * @returns {Record<string, Tensor>} by name: `0.state` for group 0, `0.3.first` for the first moment of its parameter 3. The tensors
   *   are views of the optimizer's memory; with `zero`, the moments are copies
   */
  stateDict() {
    const { ranks } = this;
    return this.#named((bucket, flat) => (ranks?.zero ? noGrad(() => ranks.whole(bucket, flat)) : flat));
  }

  /** The state by name. `wholeOf` gives the moments of a whole bucket. @param {(bucket: Bucket, flat: Tensor) => Tensor} wholeOf */
  #named(wholeOf) {
    /** @type {Record<string, Tensor>} */
    const state = {};
    this.groups.forEach((group, g) => {
      state[`${g}.state`] = group.state.alias();
      for (const bucket of group.buckets) {
        this.moments.get(bucket)?.forEach((flat, m) => {
          const whole = wholeOf(bucket, flat);
          bucket.parameters.forEach((parameter, i) => {
            state[`${g}.${bucket.indices[i]}.${MOMENTS[m]}`] = bucket.view(whole, parameter.shape, bucket.offsets[i]);
          });
          if (whole !== flat) whole.dispose();
        });
      }
    });
    for (const [name, tensor] of Object.entries(this.further())) state[name] = tensor.alias();
    return state;
  }

  /** What a state has besides moments, by name. Optimizers that have more override it. @returns {Record<string, Tensor>} */
  further() {
    return {};
  }

  /**
   * Restores what `stateDict` returned, also with another number of processes: moments, step counts, learning rates, weight decays,
   * schedules and clipping norm. These values live on the device, so the properties `lr`, `weightDecay` and `clip` do not show them.
   * `gradientScale` keeps its present value.
   *
   * Checks everything before it changes anything. Throws an ArgumentError for a missing tensor, one of another shape or type, and one that
   * this optimizer does not have; a UsageError for a disposed tensor.
   * @param {Record<string, Tensor>} state by name; names of another form are ignored
   */
  loadStateDict(state) {
    if (typeof state !== 'object' || state === null)
      throw new ArgumentError('loadStateDict', `expected tensors by name, got ${shown(state)}`);
    /** With `zero`: whole moments to load into, of which this process keeps its shard. @type {[shard: Tensor, whole: Tensor, bucket: Bucket][]} */
    const shards = [];
    const { ranks } = this;
    const own = this.#named((bucket, flat) => {
      if (!ranks?.zero) return flat;
      const whole = bucket.zeros('moments of all ranks');
      shards.push([flat, whole.alias(), bucket]);
      return whole;
    });
    // From another kind of optimizer, or from one with more parameters.
    const foreign = Object.keys(state).find(
      (name) => /^\d+\.(state|\d+\.(first|second|third|row|column|variance))$/.test(name) && !(name in own),
    );
    if (foreign) throw new ArgumentError('loadStateDict', `unexpected: ${foreign}, which this ${this.constructor.name} does not have`);
    checkState(state, own);
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

  /** Frees the optimizer's state and moments, and clears gradients. The parameters keep their values; another optimizer may take them. */
  dispose() {
    this.zeroGrad();
    this.#free();
  }

  #free() {
    for (const group of this.groups) {
      for (const bucket of group.buckets) {
        bucket.dispose();
        for (const tensor of this.moments.get(bucket) ?? []) tensor.dispose();
      }
      group.dispose();
    }
    this.ranks?.dispose();
    this.moments.clear();
  }
  [Symbol.dispose]() {
    this.dispose();
  }
}
