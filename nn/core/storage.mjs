// Device memory that tensors share, and when it is freed.
//
// A storage counts its tensors. The last `dispose` frees it at once, as do the end of a `scope` and of a backward pass for what was
// made in them. Tensors that a program merely drops are freed when they are found to be garbage: see `garbage`.

import { sink } from './runtime.mjs';

/** @typedef {import('./runtime.mjs').Allocation} Allocation */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

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

/** The open scopes, innermost last. @type {import('./scope.mjs').Scope[]} */
export const scopes = [];

/** Notes a new tensor in the innermost scope. @param {Tensor} tensor */
export function born(tensor) {
  const { length } = scopes;
  if (length > 0) scopes[length - 1].add(tensor);
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
