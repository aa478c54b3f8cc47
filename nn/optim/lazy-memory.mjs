// Memory of an optimizer that is allocated when something first needs it. A compiled step may do without: gradients that it makes and clears are among
// its intermediate results (compile/passes/gradient-memory.mjs), and 16-bit copies that only other graphs would read are not kept (passes/shuffle.mjs).

import { UsageError } from '../core/errors.mjs';
import { runtime } from '../core/runtime.mjs';

/** @typedef {import('../core/runtime.mjs').Allocation} Allocation */
/** @typedef {import('../core/storage.mjs').Storage} Storage */
/** @typedef {import('./bucket.mjs').Bucket} Bucket */

/** @implements {Allocation} */
export class LazyMemory {
  #make;
  /** @type {Storage | undefined} */
  #storage;

  /** @param {number} bytes @param {() => Storage} make allocates the memory, which this object then holds */
  constructor(bytes, make) {
    const device = runtime();
    this.bytes = bytes;
    this.#make = make;
    this.live = true;
    /** @type {import('../core/runtime.mjs').Sink} */
    this.sink = {
      get closed() {
        return device.closed;
      },
      allocate: (size) => device.allocate(size),
      release: () => {
        this.live = false;
        this.free();
      },
      append: () => undefined,
    };
  }

  /** Whether it is allocated. */
  get reserved() {
    return this.#storage !== undefined;
  }

  /** Allocates it, if it is not. */
  reserve() {
    this.#storage ??= this.#make();
  }

  /** Frees it until it is reserved again. No graph may have its handle. */
  free() {
    this.#storage?.release();
    this.#storage = undefined;
  }

  get handle() {
    if (!this.#storage) {
      throw new UsageError('grad', 'the gradient was only in a compiled function, which cleared it: return it from the function');
    }
    return this.#storage.allocation.handle;
  }
}

/** The memory of a bucket's gradients; zeros at first. */
export class GradientMemory extends LazyMemory {
  /** @param {Bucket} bucket whose gradients it holds */
  constructor(bucket) {
    super(4 * bucket.count, () => /** @type {Storage} */ (bucket.zeros('gradients').storage));
    this.bucket = bucket;
  }
}
