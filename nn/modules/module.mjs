// Modules: parameters by name, and a forward pass.

import { ArgumentError, ShapeError, UsageError, checkFunction, checkResult, show, shown, within } from '../core/errors.mjs';
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
 * A trainable tensor: a leaf that requires a gradient. An optimizer moves its elements into memory that holds other parameters too.
 */
export class Parameter extends Tensor {
  /** @param {Tensor} data f32, f16 or bf16; the parameter takes over its memory and disposes of it */
  constructor(data) {
    tensorOf('Parameter', data);
    if (!isFloat(data.dtype)) throw new ArgumentError('Parameter', `takes f32, f16 or bf16, got ${data.dtype}`);
    const dense = within('Parameter', () => data.contiguous());
    super(/** @type {import('../core/storage.mjs').Storage} */ (dense.storage), dense.layout);
    this.requiresGrad_();
    /** The optimizer's memory for the gradient. @type {Tensor | undefined} */
    this.gradientPlace = undefined;
    /** The optimizer's bucket that holds the elements. @type {import('../optim/bucket.mjs').Bucket | undefined} */
    this.bucket = undefined;
    /** The unit that `fullyShard` has made it a part of. @type {import('./shard.mjs').Unit | undefined} */
    this.unit = undefined;
    // No other tensor may share the parameter's memory.
    if (dense !== data) dense.dispose();
    data.dispose();
  }

  get isParameter() {
    return true;
  }

  /** Adds to the gradient, in the optimizer's memory if there is one. @param {Tensor} gradient */
  accumulate(gradient) {
    const { gradientPlace: place } = this;
    if (this.bucket?.shards) return this.bucket.shards.accumulate(this, this.bucket, gradient);
    recordingNow()?.gradientOf(this);
    this.bucket?.reserveGradients();
    this.place();
    if (place === undefined) super.accumulate(gradient);
    else if (this.grad) place.add_(gradient);
    else {
      place.copy_(gradient);
      this.grad = place;
    }
  }

  /** Copies a gradient that a program has set into the optimizer's memory. */
  place() {
    const { gradientPlace: place, grad } = this;
    if (!place || !grad || grad === place) return;
    this.bucket?.reserveGradients();
    noGrad(() => void place.copy_(grad));
    this.grad = place;
  }

  /**
   * The 16-bit copy that the optimizer keeps of this parameter, as an operand of a product; undefined if there is none.
   * @param {'f16' | 'bf16'} dtype
   * @returns {{ storage: import('../core/storage.mjs').Storage, layout: import('../core/layout.mjs').Layout } | undefined}
   */
  halfCopy(dtype) {
    const copy = this.bucket?.halfCopy(dtype);
    const { shape, strides, offset } = this.layout;
    return copy && { storage: copy.storage, layout: layoutOf(shape, strides, offset, dtype) };
  }

  zeroGrad() {
    this.bucket?.clearShard();
    recordingNow()?.gradientOf(this);
    if (this.grad !== this.gradientPlace) super.zeroGrad();
    this.grad = undefined;
  }

  /**
   * Copies the elements to other memory and uses that from then on.
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
 * The tensors and modules among an object's properties, and in arrays among them (`layers.0`).
 * @param {object} object @param {string} [prefix] @param {readonly object[]} [above] the objects that contain it, outermost first
 * @returns {Generator<[name: string, value: unknown]>}
 */
function* entriesOf(object, prefix = '', above = []) {
  for (const [name, value] of Object.entries(object)) {
    if (Array.isArray(value)) yield* entriesOf(value, `${prefix}${name}.`, below(above, object, prefix + name, value));
    else if (value instanceof Tensor || value instanceof Module) yield [prefix + name, value];
  }
}

/**
 * The objects that contain a part, outermost first. Throws a UsageError if the part is one of them.
 * @template {object} T
 * @param {readonly T[]} above the objects that contain the owner @param {T} owner @param {string} name of the part @param {T} part
 * @returns {T[]}
 */
function below(above, owner, name, part) {
  const all = [...above, owner];
  if (all.includes(part)) {
    const advice = 'every property is a part of its module; keep a reference to another module in a #private field';
    throw new UsageError(all[0].constructor.name, `${name} contains itself: ${advice}`);
  }
  return all;
}

/** @type {Record<string, string>} */
const FORMER = { original0: 'g', original1: 'v', original: 'orig', '0._u': 'u', '0._v': 'v' };
/** Names before PyTorch 2.0 of what `weightNorm` and `spectralNorm` make of a weight. @param {string} name @returns {string[]} none of other tensors */
function formerNames(name) {
  const former = name.replace(
    /(^|\.)parametrizations\.([^.]+)\.(original[01]?|0\._[uv])$/,
    (_, before, own, part) => `${before}${own}_${FORMER[part]}`,
  );
  return former === name ? [] : [former];
}

/**
 * Options of `loadStateDict`.
 * @typedef {object} LoadOptions
 * @property {boolean} [strict] whether a missing or unknown name is an error; true when left out
 */

/**
 * What `loadStateDict` did not copy.
 * @typedef {object} LoadReport
 * @property {string[]} missingKeys names of the module that the state lacks; these tensors are unchanged
 * @property {string[]} unexpectedKeys names of the state that the module lacks
 */

/**
 * The base class of modules. A module registers nothing: its parameters, buffers and children are the tensors and modules among its
 * properties, and those in arrays among them. The property names form the names of `stateDict`, as in PyTorch: `layers.0.weight`.
 */
export class Module {
  #training = true;

  constructor() {
    enter(this);
  }

  /** Whether the module trains, which changes `Dropout` and `BatchNorm2d`. True at first; set it with `train` and `eval`. */
  get training() {
    return track(this, 'training', this.#training);
  }

  /**
   * Computes the module's result. Each class overrides it; this one throws a UsageError.
   * @param {...any} _inputs the overriding class says which
   * @returns {any} the overriding class says what
   */
  forward(..._inputs) {
    throw new UsageError(this.constructor.name, 'this module has no forward(…)');
  }

  /** The direct children: modules among the properties, by name. @returns {Generator<[name: string, module: Module]>} */
  *namedChildren() {
    for (const [name, value] of entriesOf(this)) if (value instanceof Module) yield [name, value];
  }

  /**
   * This module, then all modules below it, depth first. Throws a UsageError if a module contains itself.
   * @param {readonly Module[]} [above] the modules that contain this one; for the recursion
   * @returns {Generator<Module>}
   */
  *modules(above = []) {
    yield this;
    for (const [name, child] of this.namedChildren()) yield* child.modules(below(above, this, name, child));
  }

  /**
   * As `modules`, with names: '' of this module, 'layers.0' of a child's child.
   * @param {string} [prefix] the name of this module; for the recursion @param {readonly Module[]} [above] as of `modules`
   * @returns {Generator<[name: string, module: Module]>}
   */
  *namedModules(prefix = '', above = []) {
    yield [prefix, this];
    for (const [name, child] of this.namedChildren())
      yield* child.namedModules(prefix ? `${prefix}.${name}` : name, below(above, this, name, child));
  }

  /** The direct children. @returns {Generator<Module>} */
  *children() {
    for (const [, child] of this.namedChildren()) yield child;
  }

  /**
   * Calls a function with each module below this one, then with this one: each after its children, as PyTorch does. To initialize
   * weights: `model.apply((m) => { if (m instanceof nn.Linear) nn.init.normal(m.weight, 0, 0.02); })`.
   * @param {(module: Module) => void} fn synchronous @param {readonly Module[]} [above] as of `modules`
   * @returns {this}
   */
  apply(fn, above = []) {
    const late = 'what it does after its first await would come too late';
    checkFunction('apply', fn, late);
    for (const [name, child] of this.namedChildren()) child.apply(fn, below(above, this, name, child));
    checkResult('apply', fn(this), late);
    return this;
  }

  /**
   * The tensors of this module and of all below it, by name: parameters, and other tensors among the properties (buffers). A tensor that
   * is set in several places appears under each name.
   * @param {string} [prefix] put before each name @param {readonly Module[]} [above] the modules that contain this one; for the recursion
   * @returns {Generator<[name: string, tensor: Tensor]>}
   */
  *namedTensors(prefix = '', above = []) {
    for (const [name, value] of entriesOf(this)) {
      if (value instanceof Tensor) yield [prefix + name, value];
      else if (value instanceof Module) yield* value.namedTensors(`${prefix}${name}.`, below(above, this, prefix + name, value));
    }
  }

  /** The parameters of this module and of all below it, by name; each once. @returns {Generator<[name: string, parameter: Parameter]>} */
  *namedParameters() {
    const seen = new Set();
    for (const [name, value] of this.namedTensors()) {
      if (!(value instanceof Parameter) || seen.has(value)) continue;
      seen.add(value);
      yield [name, value];
    }
  }

  /** The parameters of this module and of all below it, each once: what an optimizer takes. */
  parameters() {
    return Array.from(this.namedParameters(), ([, parameter]) => parameter);
  }

  /** Sets `training` of this module and of all below it. @param {boolean} [training] true when left out @returns {this} */
  train(training = true) {
    flag('train', 'training', training);
    for (const module of [...this.modules()]) module.#training = training;
    return this;
  }
  /** Same as `train(false)`: `Dropout` passes its input on, and `BatchNorm2d` uses its running statistics. @returns {this} */
  eval() {
    return this.train(false);
  }

  /** Sets `requiresGrad` of every parameter: false freezes the module. @param {boolean} [requires] true when left out @returns {this} */
  requiresGrad_(requires = true) {
    for (const parameter of this.parameters()) parameter.requiresGrad_(requires);
    return this;
  }

  /** Clears the gradients of all parameters. */
  zeroGrad() {
    for (const parameter of this.parameters()) parameter.zeroGrad();
  }

  /**
   * The tensors of the module by name, as PyTorch's `state_dict`. They are the module's own tensors, not copies.
   * @returns {Record<string, Tensor>}
   */
  stateDict() {
    return Object.fromEntries(this.namedTensors());
  }

  /**
   * Names that PyTorch's state of such a module has and this one does not need. `loadStateDict` ignores them.
   * @returns {readonly string[]}
   */
  ignoredState() {
    return [];
  }

  /** The ignored names of this module and of all below it. @param {string} [prefix] @returns {Generator<string>} */
  *#allIgnored(prefix = '') {
    for (const name of this.ignoredState()) yield prefix + name;
    for (const [name, child] of this.namedChildren()) yield* child.#allIgnored(`${prefix}${name}.`);
  }

  /**
   * Copies tensors into those of the module, converted to the module's element type. Checks all names and shapes before it copies
   * anything. It reads only the names that the module has, so a tensor that `load` could not read is an error only if the module needs it.
   * @param {Record<string, Tensor>} state by name, from `load` or another module's `stateDict`
   * @param {LoadOptions} [options]
   * @returns {LoadReport} both lists are empty unless `strict` is false
   * @throws an ArgumentError for a missing or unknown name (with `strict`) and for what is not a tensor; a ShapeError for another shape;
   *   a UsageError for a disposed tensor, and for a parameter of which each process has a part (`zero: 3`)
   */
  loadStateDict(state, options = {}) {
    const { strict = true } = checkOptions('loadStateDict', options, ['strict']);
    if (typeof state !== 'object' || state === null || state instanceof Tensor || state instanceof Module)
      throw new ArgumentError('loadStateDict', `expected tensors by name, got ${shown(state)}`);
    // Own properties only: every object has a `constructor`.
    const has = (/** @type {string} */ name) => Object.hasOwn(state, name);
    /** By the name of each in `state`. */
    const own = new Map(
      Array.from(this.namedTensors(), ([name, tensor]) => [has(name) ? name : (formerNames(name).find(has) ?? name), tensor]),
    );
    const ignored = new Set(this.#allIgnored());
    const missing = [...own.keys()].filter((name) => !has(name));
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
      if (!has(name)) continue;
      const source = state[name];
      if (!(source instanceof Tensor)) throw new ArgumentError('loadStateDict', `${name} is not a tensor`);
      if (source.disposed) throw new UsageError('loadStateDict', `${name} was disposed of`);
      if (target instanceof Parameter && target.bucket?.whole)
        throw new UsageError('loadStateDict', `each process has a part of ${name} (zero: 3): optimizer.setParameter() changes it`);
      if (show(source.shape) !== show(target.shape)) {
        throw new ShapeError('loadStateDict', `${name} has shape ${show(source.shape)}, but the module's has ${show(target.shape)}`);
      }
      if (target.size > 0) pairs.push([target, source]);
    }
    noGrad(() => {
      for (const [target, source] of pairs) target.copy_(F.to(source, target.dtype));
    });
    return { missingKeys: missing, unexpectedKeys: unknown };
  }

  /** Frees all tensors of this module and of all below it, and their gradients. */
  dispose() {
    for (const [, value] of this.namedTensors()) {
      value.zeroGrad();
      value.dispose();
    }
  }
  [Symbol.dispose]() {
    this.dispose();
  }

  /** The module and its children, one per line, indented by depth. @returns {string} */
  toString() {
    for (const _ of this.modules()); // Throws if a module contains itself.
    const lines = Array.from(this.namedChildren(), ([name, child]) => `  (${name}): ${String(child).replaceAll('\n', '\n  ')}`);
    return lines.length ? `${this.constructor.name}(\n${lines.join('\n')}\n)` : `${this.constructor.name}(${this.describe()})`;
  }
  /** What `toString` puts in the parentheses of a module without children. */
  describe() {
    return '';
  }
}

/** A list of modules. Their names are their indices. @template {Module} [M=Module] of which class they are */
export class ModuleList extends Module {
  /** @param {Iterable<M>} [modules] */
  constructor(modules = []) {
    super();
    this.length = 0;
    if (typeof modules?.[Symbol.iterator] !== 'function')
      throw new ArgumentError(this.constructor.name, `expected modules, got ${shown(modules)}`);
    for (const module of modules) this.push(module);
  }

  /** Appends a module. @param {M} module */
  push(module) {
    if (!(module instanceof Module)) throw new ArgumentError(this.constructor.name, `expected a module, got ${shown(module)}`);
    Reflect.set(this, this.length++, module);
    return this;
  }

  /**
   * The module at an index; a negative one counts from the end.
   * @param {number} index
   * @returns {M} undefined if there is none
   */
  at(index) {
    return Reflect.get(/** @type {object} */ (this), index < 0 ? index + this.length : index);
  }

  /** @returns {Generator<M>} the modules, in order */
  *[Symbol.iterator]() {
    for (let i = 0; i < this.length; i++) yield this.at(i);
  }
}

/**
 * A chain of modules: each takes the result of the one before it. Their names are their indices, or those of an object that has them.
 * @extends {ModuleList<any>} any: each module has a class of its own
 */
export class Sequential extends ModuleList {
  /** @type {string[]} */
  #names = [];

  /** @param {...(Module | Record<string, Module>)} modules modules, or one object of modules by name: { conv: …, norm: … } */
  constructor(...modules) {
    const [first] = modules;
    if (modules.length === 1 && Array.isArray(first))
      throw new ArgumentError(new.target.name, 'expected modules, got an array: pass its elements, as in new nn.Sequential(...modules)');
    const named = modules.length === 1 && typeof first === 'object' && first !== null && Object.getPrototypeOf(first) === Object.prototype;
    super(named ? [] : /** @type {Module[]} */ (modules));
    if (!named) return;
    for (const [name, module] of Object.entries(first)) {
      if (name === '' || /\.|^\d+$/.test(name) || name in this)
        throw new ArgumentError(
          this.constructor.name,
          `a name must be text without a point, and none of a module's own, got ${shown(name)}`,
        );
      if (!(module instanceof Module)) throw new ArgumentError(this.constructor.name, `expected a module as ${name}, got ${shown(module)}`);
      Reflect.set(this, name, module);
      this.#names.push(name);
      this.length++;
    }
  }

  /** The module at an index; a negative one counts from the end. @param {number} index @returns {any} undefined if there is none */
  at(index) {
    const own = index < 0 ? index + this.length : index;
    return Reflect.get(/** @type {object} */ (this), this.#names[own] ?? own);
  }

  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    for (const module of this) x = module.forward(x);
    return x;
  }
}
