// Modules: parameters by name, and a forward pass.

import { ArgumentError, ShapeError, UsageError, show, shown, within } from '../core/errors.mjs';
import * as F from '../api/functional.mjs';
import { track } from '../core/guards.mjs';
import { isFloat, layoutOf } from '../core/layout.mjs';
import { tensorOf } from '../core/engine.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { recordingNow } from '../core/runtime.mjs';
import { Tensor } from '../api/tensor.mjs';
import { noGrad } from '../core/node.mjs';
import { enter } from './places.mjs';

/**
 * A tensor that a module learns: a leaf that requires a gradient. An optimizer may move it into memory that it shares with
 * others.
 */
export class Parameter extends Tensor {
  /** @param {Tensor} data f32, f16 or bf16; its memory becomes the parameter's */
  constructor(data) {
    tensorOf('Parameter', data);
    if (!isFloat(data.dtype)) throw new ArgumentError('Parameter', `takes f32, f16 or bf16, got ${data.dtype}`);
    const dense = within('Parameter', () => data.contiguous());
    super(/** @type {import('../core/storage.mjs').Storage} */ (dense.storage), dense.layout);
    this.requiresGrad_();
    /** Where an optimizer wants the gradient. @type {Tensor | undefined} */
    this.gradientPlace = undefined;
    /** The optimizer's memory that it lies in. @type {import('../optim/bucket.mjs').Bucket | undefined} */
    this.bucket = undefined;
    // The memory is the parameter's alone.
    if (dense !== data) dense.dispose();
    data.dispose();
  }

  get isParameter() {
    return true;
  }

  /** @param {Tensor} gradient */
  accumulate(gradient) {
    const { gradientPlace: place } = this;
    recordingNow()?.gradientOf(this);
    if (place === undefined) super.accumulate(gradient);
    else if (this.grad) place.add_(gradient);
    else {
      place.copy_(gradient);
      this.grad = place;
    }
  }

  /**
   * The 16-bit copy of it that its optimizer keeps, as an operand of a product.
   * @param {'f16' | 'bf16'} dtype
   * @returns {{ storage: import('../core/storage.mjs').Storage, layout: import('../core/layout.mjs').Layout } | undefined}
   */
  halfCopy(dtype) {
    const copy = this.bucket?.halfCopy(dtype);
    const { shape, strides, offset } = this.layout;
    return copy && { storage: copy.storage, layout: layoutOf(shape, strides, offset, dtype) };
  }

  zeroGrad() {
    recordingNow()?.gradientOf(this);
    if (this.grad !== this.gradientPlace) super.zeroGrad();
    this.grad = undefined;
  }

  /**
   * Moves the elements to other memory.
   * @param {Tensor} place dense, of this shape
   */
  moveTo(place) {
    const own = this.detach();
    place.copy_(own);
    own.dispose();
    const old = this.storage;
    const { storage, layout } = place;
    storage?.retain();
    this.storage = storage;
    this.layout = layout;
    old?.release();
  }
}

/**
 * Tensors and modules among an object's properties, and in arrays of them (`layers.0`).
 * @param {object} object @param {string} [prefix] @param {readonly object[]} [above] what it stands in
 * @returns {Generator<[name: string, value: unknown]>}
 */
function* entriesOf(object, prefix = '', above = []) {
  for (const [name, value] of Object.entries(object)) {
    if (Array.isArray(value)) yield* entriesOf(value, `${prefix}${name}.`, below(above, object, prefix + name, value));
    else if (value instanceof Tensor || value instanceof Module) yield [prefix + name, value];
  }
}

/**
 * What a part of a module stands in. Throws where that is the part itself.
 * @template {object} T
 * @param {readonly T[]} above what the owner stands in @param {T} owner @param {string} name of the part @param {T} part
 * @returns {T[]}
 */
function below(above, owner, name, part) {
  const all = [...above, owner];
  if (all.includes(part)) {
    const advice = 'what is set as a property is a part of the module; keep a reference to another one in a #private field';
    throw new UsageError(all[0].constructor.name, `${name} stands in itself: ${advice}`);
  }
  return all;
}

/**
 * Options of `loadStateDict`.
 * @typedef {object} LoadOptions
 * @property {boolean} [strict] whether it throws where a name is missing or unknown; true when left out
 */

/**
 * What `loadStateDict` did not copy.
 * @typedef {object} LoadReport
 * @property {string[]} missingKeys names of the module that the state lacks: these tensors are as they were
 * @property {string[]} unexpectedKeys names of the state that the module does not have
 */

/**
 * The base of all modules. Parameters, modules and arrays of them that are set as properties are found by their names, which
 * are those of PyTorch's `state_dict`.
 */
export class Module {
  #training = true;

  constructor() {
    enter(this);
  }

  /** Whether dropout drops: set by `train` and `eval`. */
  get training() {
    return track(this, 'training', this.#training);
  }

  /**
   * What the module computes.
   * @param {...any} _inputs what the module takes, which the class that overrides this says
   * @returns {any} what it computes, which that class says too
   */
  forward(..._inputs) {
    throw new UsageError(this.constructor.name, 'this module has no forward(…)');
  }

  /** The modules set on this one, by property. @returns {Generator<[name: string, module: Module]>} */
  *namedChildren() {
    for (const [name, value] of entriesOf(this)) if (value instanceof Module) yield [name, value];
  }

  /** This module and all below it. @param {readonly Module[]} [above] what it stands in @returns {Generator<Module>} */
  *modules(above = []) {
    yield this;
    for (const [name, child] of this.namedChildren()) yield* child.modules(below(above, this, name, child));
  }

  /**
   * Tensors of the state: parameters, and other tensors that are set as properties (buffers). One that stands in several
   * places is named at each.
   * @param {string} [prefix] @param {readonly Module[]} [above] what this module stands in
   * @returns {Generator<[name: string, tensor: Tensor]>}
   */
  *namedTensors(prefix = '', above = []) {
    for (const [name, value] of entriesOf(this)) {
      if (value instanceof Tensor) yield [prefix + name, value];
      else if (value instanceof Module) yield* value.namedTensors(`${prefix}${name}.`, below(above, this, prefix + name, value));
    }
  }

  /** Parameters by name, each once. @returns {Generator<[name: string, parameter: Parameter]>} */
  *namedParameters() {
    const seen = new Set();
    for (const [name, value] of this.namedTensors()) {
      if (!(value instanceof Parameter) || seen.has(value)) continue;
      seen.add(value);
      yield [name, value];
    }
  }

  /** Parameters, each once. */
  parameters() {
    return Array.from(this.namedParameters(), ([, parameter]) => parameter);
  }

  /** Modules train (`eval` ends that). @param {boolean} [training] @returns {this} */
  train(training = true) {
    flag('train', 'training', training);
    for (const module of [...this.modules()]) module.#training = training;
    return this;
  }
  /** Modules evaluate: nothing is dropped, and normalizations of batches take running means. @returns {this} */
  eval() {
    return this.train(false);
  }

  /** Has parameters take part in training or not. @param {boolean} [requires] @returns {this} */
  requiresGrad_(requires = true) {
    for (const parameter of this.parameters()) parameter.requiresGrad_(requires);
    return this;
  }

  /** Forgets the gradients of all parameters. */
  zeroGrad() {
    for (const parameter of this.parameters()) parameter.zeroGrad();
  }

  /** Tensors by name, as PyTorch names them; they see the module's memory. @returns {Record<string, Tensor>} */
  stateDict() {
    return Object.fromEntries(this.namedTensors());
  }

  /**
   * Names in PyTorch's state of such a module that it has no use for: `loadStateDict` takes a state with or without them.
   * @returns {readonly string[]}
   */
  ignoredState() {
    return [];
  }

  /** These names, of this module and all below it. @param {string} [prefix] @returns {Generator<string>} */
  *#allIgnored(prefix = '') {
    for (const name of this.ignoredState()) yield prefix + name;
    for (const [name, child] of this.namedChildren()) yield* child.#allIgnored(`${prefix}${name}.`);
  }

  /**
   * Copies tensors into the module's. All or nothing: names and shapes are checked first. Elements become the module's type. Of the state
   * only what the module has is looked at, so that a tensor that `load` could not read is an error here where the module needs it.
   * @param {Record<string, Tensor>} state
   * @param {LoadOptions} [options]
   * @returns {LoadReport} both empty unless `strict` is false
   */
  loadStateDict(state, options = {}) {
    const { strict = true } = checkOptions('loadStateDict', options, ['strict']);
    if (typeof state !== 'object' || state === null || state instanceof Tensor || state instanceof Module)
      throw new ArgumentError('loadStateDict', `expected tensors by name, got ${shown(state)}`);
    const own = new Map(this.namedTensors());
    const ignored = new Set(this.#allIgnored());
    // Own names alone: every object has a `constructor`.
    const missing = [...own.keys()].filter((name) => !Object.hasOwn(state, name));
    const unknown = Object.keys(state).filter((name) => !own.has(name) && !ignored.has(name));
    if (strict && missing.length + unknown.length > 0) {
      throw new ArgumentError(
        'loadStateDict',
        [missing.length ? `missing: ${missing.join(', ')}` : '', unknown.length ? `unknown: ${unknown.join(', ')}` : '']
          .filter(Boolean)
          .join('; '),
      );
    }
    /** @type {[target: Tensor, source: Tensor][]} */
    const pairs = [];
    for (const [name, target] of own) {
      if (!Object.hasOwn(state, name)) continue;
      const source = state[name];
      if (!(source instanceof Tensor)) throw new ArgumentError('loadStateDict', `${name} is not a tensor`);
      if (source.disposed) throw new UsageError('loadStateDict', `${name} was disposed of`);
      if (show(source.shape) !== show(target.shape)) {
        throw new ShapeError('loadStateDict', `${name} is ${show(source.shape)}, the module's ${show(target.shape)}`);
      }
      if (target.size > 0) pairs.push([target, source]);
    }
    noGrad(() => {
      for (const [target, source] of pairs) target.copy_(F.to(source, target.dtype));
    });
    return { missingKeys: missing, unexpectedKeys: unknown };
  }

  /** Frees all tensors of the module. */
  dispose() {
    for (const [, value] of this.namedTensors()) {
      value.zeroGrad();
      value.dispose();
    }
  }
  [Symbol.dispose]() {
    this.dispose();
  }

  /** The module and those below it by name, a line each. @returns {string} */
  toString() {
    for (const _ of this.modules()); // throws where one stands in itself
    const lines = Array.from(this.namedChildren(), ([name, child]) => `  (${name}): ${String(child).replaceAll('\n', '\n  ')}`);
    return lines.length ? `${this.constructor.name}(\n${lines.join('\n')}\n)` : `${this.constructor.name}(${this.describe()})`;
  }
  /** What `toString` says of a module without children. */
  describe() {
    return '';
  }
}

/** A list of modules, named by their indices. */
export class ModuleList extends Module {
  /** @param {Iterable<Module>} [modules] */
  constructor(modules = []) {
    super();
    this.length = 0;
    if (typeof modules?.[Symbol.iterator] !== 'function')
      throw new ArgumentError(this.constructor.name, `expected modules, got ${shown(modules)}`);
    for (const module of modules) this.push(module);
  }

  /** Adds a module at the end. @param {Module} module */
  push(module) {
    if (!(module instanceof Module)) throw new ArgumentError(this.constructor.name, `expected a module, got ${shown(module)}`);
    Reflect.set(this, this.length++, module);
    return this;
  }

  /** The module of an index (negative: from the end). @param {number} index @returns {any} of its own class, which the list does not know */
  at(index) {
    return Reflect.get(this, index < 0 ? index + this.length : index);
  }

  /** @returns {Generator<any>} modules, each of its own class, as from `at` */
  *[Symbol.iterator]() {
    for (let i = 0; i < this.length; i++) yield this.at(i);
  }
}

/** Modules one after another. */
export class Sequential extends ModuleList {
  /** @param {...Module} modules */
  constructor(...modules) {
    super(modules);
  }

  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    for (const module of this) x = module.forward(x);
    return x;
  }
}
