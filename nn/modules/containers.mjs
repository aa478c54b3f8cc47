// Modules and parameters by name or number. Their entries are properties, so their names in `stateDict` are PyTorch's.

import { ArgumentError, shown } from '../core/errors.mjs';
import { Module, Parameter } from './module.mjs';

/** A class whose instances are entries. @template T @typedef {new (...args: never[]) => T} Kind */

/**
 * Entries by name, checked. @template T @param {string} op @param {unknown} entries @param {Kind<T>} kind @param {string} what
 * @returns {[string, T][]}
 */
function checked(op, entries, kind, what) {
  if (typeof entries !== 'object' || entries === null || entries instanceof Module || entries instanceof Parameter)
    throw new ArgumentError(op, `expected ${what}s by name, got ${shown(entries)}`);
  const list = Symbol.iterator in entries ? [.../** @type {Iterable<unknown>} */ (entries)] : Object.entries(entries);
  for (const entry of list) {
    if (!Array.isArray(entry) || typeof entry[0] !== 'string' || !(entry[1] instanceof kind))
      throw new ArgumentError(op, `expected ${what}s by name, got ${shown(Array.isArray(entry) ? entry[1] : entry)}`);
  }
  return /** @type {[string, T][]} */ (list);
}

/** What both dictionaries share. @template {Module | Parameter} T */
class Dictionary extends Module {
  #kind;
  #what;

  /** @param {unknown} entries @param {Kind<T>} kind @param {string} what */
  constructor(entries, kind, what) {
    super();
    this.#kind = kind;
    this.#what = what;
    for (const [name, value] of checked(this.constructor.name, entries, kind, what)) this.put(name, value);
  }

  /** Sets an entry. @param {string} name @param {T} value */
  put(name, value) {
    const op = this.constructor.name;
    if (typeof name !== 'string' || name === '' || name.includes('.') || (name in this && !Object.hasOwn(this, name)))
      throw new ArgumentError(op, `a name must be text without a point, and none of a ${op}'s own, got ${shown(name)}`);
    if (!(value instanceof this.#kind)) throw new ArgumentError(op, `expected a ${this.#what}, got ${shown(value)}`);
    Reflect.set(this, name, value);
    return this;
  }

  /** The entry of a name that there is. @param {string} name @returns {T} */
  #own(name) {
    return Reflect.get(/** @type {object} */ (this), name);
  }
  /** The entry of a name; undefined if there is none. @param {string} name @returns {T | undefined} */
  get(name) {
    return Object.hasOwn(this, name) ? this.#own(name) : undefined;
  }
  /** Whether there is an entry of this name. @param {string} name */
  has(name) {
    return Object.hasOwn(this, name);
  }
  /** Removes an entry, which is not disposed of. Returns whether there was one. @param {string} name */
  delete(name) {
    return Object.hasOwn(this, name) && Reflect.deleteProperty(this, name);
  }
  /** The names, in the order in which they were set. */
  keys() {
    return Object.keys(this);
  }
  /** The entries, in that order. @returns {T[]} */
  values() {
    return this.keys().map((name) => this.#own(name));
  }
  /** Names and entries. @returns {[string, T][]} */
  entries() {
    return this.keys().map((name) => [name, this.#own(name)]);
  }
}

/** Modules by name. @extends {Dictionary<Module>} */
export class ModuleDict extends Dictionary {
  /** @param {Record<string, Module> | Iterable<[string, Module]>} [modules] */
  constructor(modules = {}) {
    super(modules, Module, 'module');
  }
  /** Sets a module. @param {string} name without a point @param {Module} module @returns {this} */
  set(name, module) {
    return this.put(name, module);
  }
}

/** Parameters by name. @extends {Dictionary<Parameter>} */
export class ParameterDict extends Dictionary {
  /** @param {Record<string, Parameter> | Iterable<[string, Parameter]>} [parameters] */
  constructor(parameters = {}) {
    super(parameters, Parameter, 'parameter');
  }
  /** Sets a parameter. @param {string} name without a point @param {Parameter} parameter @returns {this} */
  set(name, parameter) {
    return this.put(name, parameter);
  }
}

/** A list of parameters. Their names are their indices. */
export class ParameterList extends Module {
  /** @param {Iterable<Parameter>} [parameters] */
  constructor(parameters = []) {
    super();
    this.length = 0;
    if (typeof parameters?.[Symbol.iterator] !== 'function')
      throw new ArgumentError('ParameterList', `expected parameters, got ${shown(parameters)}`);
    for (const parameter of parameters) this.push(parameter);
  }
  /** Appends a parameter. @param {Parameter} parameter */
  push(parameter) {
    if (!(parameter instanceof Parameter)) throw new ArgumentError('ParameterList', `expected a parameter, got ${shown(parameter)}`);
    Reflect.set(this, this.length++, parameter);
    return this;
  }
  /** The parameter at an index; a negative one counts from the end. @param {number} index @returns {Parameter} undefined if there is none */
  at(index) {
    return Reflect.get(/** @type {object} */ (this), index < 0 ? index + this.length : index);
  }
  /** @returns {Generator<Parameter>} the parameters, in order */
  *[Symbol.iterator]() {
    for (let i = 0; i < this.length; i++) yield this.at(i);
  }
}
