// Device memory that tensors share, and when it is freed.
//
// A storage counts the tensors that hold it. Disposing of the last one frees it at once; the end of a `scope`, and of a backward pass, disposes
// of the tensors made in it. Tensors that a program merely drops are freed when they are found to be garbage: see garbage.mjs.

import { sink } from './runtime.mjs';

/** @typedef {import('./runtime.mjs').Allocation} Allocation */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/** Device memory with a count of the tensors that hold it. */
export class Storage {
  /** @param {Allocation} allocation */
  constructor(allocation) {
    this.allocation = allocation;
    /** How many tensors and saved values hold it. */
    this.shares = 0;
    /** Counts writes in place. */
    this.version = 0;
    /**
     * Brings the elements to this process before an operation reads them; only storages of parameters of which each process keeps a part have
     * it (`optim/shards.mjs`). @type {(() => void) | undefined}
     */
    this.fetch = undefined;
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

/** Adds a new tensor to the innermost scope. @param {Tensor} tensor */
export function born(tensor) {
  const { length } = scopes;
  if (length > 0) scopes[length - 1].add(tensor);
}

/**
 * Runs `fn` outside of all scopes: no scope frees what it makes.
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
