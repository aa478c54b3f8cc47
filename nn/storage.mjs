// Device memory that tensors share, and how it is given back.
//
// A storage counts its tensors. The last `dispose` frees it at once; so do the end of a `scope` and of a backward pass for
// what they made. What a program just drops is freed when it is found to be garbage: see `garbage`.

import { ArgumentError } from './errors.mjs';
import { sink } from './runtime.mjs';

/** @typedef {import('./runtime.mjs').Allocation} Allocation */
/** @typedef {import('./tensor.mjs').Tensor} Tensor */

export class Storage {
  /** @param {Allocation} allocation */
  constructor(allocation) {
    this.allocation = allocation;
    /** Tensors, and values saved for a backward pass, that hold it. */
    this.shares = 0;
    /** Counts writes in place. */
    this.version = 0;
    allocation.sink.watch?.(this);
  }

  retain() {
    this.shares++;
  }

  release() {
    if (--this.shares === 0 && this.allocation.live) this.allocation.sink.release(this.allocation);
  }
}

/** A storage of at least `bytes` bytes, with undefined contents. @param {number} bytes */
export const allocate = (bytes) => new Storage(sink().allocate(bytes));

/** Tensors made in the open scopes, innermost last. @type {Scope[]} */
const scopes = [];

/** Notes a new tensor in the innermost scope. @param {Tensor} tensor */
export function born(tensor) {
  const { length } = scopes;
  if (length > 0) scopes[length - 1].add(tensor);
}

/** Tensors of a scope at which it first forgets those that were disposed of. */
const MANY = 256;

/** What `scope()` returns: disposing of it frees what was made since. */
export class Scope {
  constructor() {
    /** @type {Tensor[]} */
    this.tensors = [];
    /** Their number at which those that were disposed of are forgotten: a loop may make and dispose of any number of them. */
    this.limit = MANY;
    /** @type {Set<Tensor>} */
    this.kept = new Set();
    scopes.push(this);
  }

  /** @param {Tensor} tensor */
  add(tensor) {
    if (this.tensors.length >= this.limit) {
      this.tensors = this.tensors.filter(({ disposed }) => !disposed);
      this.limit = Math.max(MANY, 2 * this.tensors.length);
    }
    this.tensors.push(tensor);
  }

  /**
   * Keeps tensors beyond the end of this scope: they belong to the scope around it.
   * @template T
   * @param {T} value a tensor, or arrays and plain objects of them
   * @returns {T}
   */
  keep(value) {
    for (const tensor of tensorsIn(value)) this.kept.add(tensor);
    return value;
  }

  /** Ends the scope, and any that was opened in it and not ended. */
  [Symbol.dispose]() {
    const at = scopes.lastIndexOf(this);
    if (at < 0) return;
    for (const inner of scopes.splice(at).reverse()) {
      for (const tensor of inner.tensors) {
        if (tensor.isParameter || this.kept.has(tensor) || inner.kept.has(tensor)) born(tensor);
        else tensor.dispose();
      }
      inner.tensors.length = 0;
    }
  }
}

/**
 * Runs `fn` and frees the tensors that were made in it, except those that it returns (alone, or in arrays and plain
 * objects), parameters, and gradients. Without a function: an object that does so when it is disposed of
 * (`using s = scope()`), with `keep`.
 * @template T
 * @overload
 * @param {() => T} fn synchronous
 * @returns {T}
 */
/**
 * @overload
 * @returns {Scope & Disposable}
 */
/** @param {(() => any)} [fn] */
export function scope(fn) {
  if (fn !== undefined && typeof fn !== 'function') throw new ArgumentError('scope', `expected a function, got ${String(fn)}`);
  const own = new Scope();
  if (fn === undefined) return own;
  try {
    const result = fn();
    if (typeof result?.then === 'function') {
      throw new ArgumentError('scope', 'the function is async: what it makes after its first await would belong to no scope');
    }
    return own.keep(result);
  } finally {
    own[Symbol.dispose]();
  }
}

/**
 * Runs `fn` outside of all scopes: what it makes is freed by its owner alone.
 * @template T
 * @param {() => T} fn
 * @returns {T}
 */
export function unscoped(fn) {
  const outer = scopes.splice(0);
  try {
    return fn();
  } finally {
    scopes.push(...outer);
  }
}

/** The class of tensors, set by its module: a storage does not import it. @type {{ class?: new (...args: any[]) => Tensor }} */
export const tensorClass = {};

/**
 * The tensors in arrays and plain objects.
 * @param {any} value
 * @returns {Generator<Tensor>}
 */
export function* tensorsIn(value) {
  if (typeof value !== 'object' || value === null) return;
  if (tensorClass.class && value instanceof tensorClass.class) yield value;
  else if (Array.isArray(value)) for (const item of value) yield* tensorsIn(item);
  else if (Object.getPrototypeOf(value) === Object.prototype) for (const item of Object.values(value)) yield* tensorsIn(item);
}

/**
 * Arrays and plain objects with something else in place of each tensor; other values are as they are.
 * @param {any} value @param {(tensor: Tensor) => any} f @returns {any}
 */
export function mapTensors(value, f) {
  if (typeof value !== 'object' || value === null) return value;
  if (tensorClass.class && value instanceof tensorClass.class) return f(value);
  if (Array.isArray(value)) return value.map((item) => mapTensors(item, f));
  if (Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, mapTensors(item, f)]));
}
