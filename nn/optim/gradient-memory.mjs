// The memory of a bucket's gradients. It is allocated when a gradient is first written: a compiled step that makes the gradients and clears them
// keeps them among its intermediate results instead (compile/passes/gradient-memory.mjs), and may be the only program that has gradients.

import { UsageError } from '../core/errors.mjs';
import { runtime } from '../core/runtime.mjs';

/** @typedef {import('../core/runtime.mjs').Allocation} Allocation */
/** @typedef {import('../core/storage.mjs').Storage} Storage */
/** @typedef {import('./bucket.mjs').Bucket} Bucket */

/** @implements {Allocation} */
export class GradientMemory {
  /** @type {Storage | undefined} */
  #storage;

  /** @param {Bucket} bucket whose gradients it holds */
  constructor(bucket) {
    const device = runtime();
    this.bucket = bucket;
    this.bytes = 4 * bucket.count;
    this.live = true;
    /** @type {import('../core/runtime.mjs').Sink} */
    this.sink = {
      get closed() {
        return device.closed;
      },
      allocate: (bytes) => device.allocate(bytes),
      release: () => {
        this.live = false;
        this.#storage?.release();
      },
      append: () => undefined,
    };
  }

  /** Whether it is allocated. */
  get reserved() {
    return this.#storage !== undefined;
  }

  /** Allocates it, as zeros, if it is not. */
  reserve() {
    if (this.#storage) return;
    const zeros = this.bucket.zeros('gradients');
    this.#storage = /** @type {Storage} */ (zeros.storage);
  }

  get handle() {
    if (!this.#storage) {
      throw new UsageError('grad', 'the gradient was only in a compiled function, which cleared it: return it from the function');
    }
    return this.#storage.allocation.handle;
  }
}
