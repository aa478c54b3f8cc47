// Scopes. The end of a scope frees the tensors made in it, except those that are returned or kept.

import { ArgumentError, checkFunction, checkResult } from './errors.mjs';
import { born, scopes } from './storage.mjs';
import { TensorCore } from './tensor.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/** Number of tensors at which a scope first drops those that were disposed of. */
const MANY = 256;

/** What `scope()` returns. Disposing of it frees the tensors made since. */
export class Scope {
  constructor() {
    /** @type {Tensor[]} */
    this.tensors = [];
    /** At this many tensors, disposed ones are dropped: a loop may make and dispose of any number. */
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
   * Keeps tensors beyond the end of this scope; the enclosing scope then owns them.
   * @template T
   * @param {T} value a tensor, or arrays and plain objects of tensors
   * @returns {T}
   */
  keep(value) {
    for (const tensor of tensorsIn(value)) this.kept.add(tensor);
    return value;
  }

  /** Ends the scope, and any inner scope that is still open. */
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
 * Runs `fn` and frees the tensors made in it, except parameters, gradients, and the tensors that it returns (also in arrays and plain
 * objects). Without a function, it returns a `Scope`, which frees the tensors made since when it is disposed of (`using s = scope()`); its
 * `keep` excepts tensors.
 * @template T
 * @overload
 * @param {() => T} fn synchronous
 * @returns {T}
 */
/**
 * @overload
 * @returns {Scope & Disposable}
 */
/** @param {() => unknown} [fn] */
export function scope(fn) {
  const late = 'what it makes after its first await would belong to no scope';
  if (fn !== undefined) checkFunction('scope', fn, late);
  const own = new Scope();
  if (fn === undefined) return own;
  try {
    return own.keep(checkResult('scope', fn(), late));
  } finally {
    own[Symbol.dispose]();
  }
}

/** Whether a value is an array or a plain object: only these are searched for tensors. @param {unknown} value @returns {value is object} */
export const isContainer = (value) =>
  Array.isArray(value) || (typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype);

/**
 * The values in nested arrays and plain objects, in order. A container that appears several times, or in itself, is searched once.
 * @param {unknown} value
 * @returns {Generator<unknown>}
 */
export function* leavesIn(value) {
  const seen = new Set();
  const stack = [value];
  while (stack.length > 0) {
    const at = stack.pop();
    if (!isContainer(at)) yield at;
    else if (!seen.has(at)) {
      seen.add(at);
      for (const item of Object.values(at).reverse()) stack.push(item);
    }
  }
}

/** The tensors in nested arrays and plain objects. @param {unknown} value @returns {Generator<Tensor>} */
export function* tensorsIn(value) {
  for (const leaf of leavesIn(value)) if (leaf instanceof TensorCore) yield/** @type {Tensor} */ (leaf);
}

/** The deepest nesting of arrays and objects that is accepted. */
const MAX_DEPTH = 1000;

/**
 * Calls `fn` for a container; an ArgumentError if the container contains itself or is nested too deep.
 * @template T
 * @param {string} op @param {string} what it is, for the error @param {object} value @param {Set<object>} above the containers around it
 * @param {() => T} fn
 * @returns {T}
 */
export function inside(op, what, value, above, fn) {
  if (above.has(value)) throw new ArgumentError(op, `${what} has an array or object that contains itself`);
  if (above.size >= MAX_DEPTH) throw new ArgumentError(op, `${what} has arrays or objects nested more than ${MAX_DEPTH} deep`);
  above.add(value);
  try {
    return fn();
  } finally {
    above.delete(value);
  }
}

/**
 * The result of a compiled function with each tensor in its arrays and plain objects replaced by `f` of it. Throws an ArgumentError if a
 * container contains itself.
 * @param {unknown} value @param {(tensor: Tensor) => unknown} f @param {Set<object>} [above]
 * @returns {unknown}
 */
export function mapTensors(value, f, above = new Set()) {
  if (typeof value !== 'object' || value === null) return value;
  if (value instanceof TensorCore) return f(/** @type {Tensor} */ (value));
  if (!isContainer(value)) return value;
  return inside('compile', 'the result', value, above, () => {
    if (Array.isArray(value)) return value.map((item) => mapTensors(item, f, above));
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, mapTensors(item, f, above)]));
  });
}
