// Records the outside state that a trace relied on. A graph is launched only if all of it is unchanged; otherwise the function is traced again.

import { same, seenOf } from '../core/guards.mjs';
import { Places } from '../modules/places.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../core/storage.mjs').Storage} Storage */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/** The state that one trace relied on. */
export class Guard {
  /** @param {number} serial tensors from this serial number on were made in the trace */
  constructor(serial) {
    this.serial = serial;
    /** Tensors from before the trace that it used, as they were. @type {Map<Tensor, { storage: Storage, layout: Layout, requiresGrad: boolean }>} */
    this.used = new Map();
    /** Leaves whose gradient was read or changed, with the gradient before. @type {Map<Tensor, Tensor | undefined>} */
    this.gradients = new Map();
    /** Settings that were read, such as whether a module trains. @type {import('../core/guards.mjs').Settings} */
    this.settings = new Map();
    /** The same as a list; filled at the end of the trace. @type {import('../core/guards.mjs').Seen[]} */
    this.seen = [];
    /** The properties of modules that hold used tensors; filled at the end of the trace. */
    this.places = new Places([]);
  }

  /** Records an operand. @param {Tensor} tensor */
  use(tensor) {
    if (tensor.serial >= this.serial || this.used.has(tensor) || tensor.storage === undefined) return;
    this.used.set(tensor, { storage: tensor.storage, layout: tensor.layout, requiresGrad: tensor.requiresGrad });
  }

  /** Records a leaf's gradient, before it is read or changed. @param {Tensor} leaf */
  gradientOf(leaf) {
    if (leaf.serial < this.serial && !this.gradients.has(leaf)) this.gradients.set(leaf, leaf.grad);
  }

  /** Lists the settings, and finds the properties of modules that hold used tensors. */
  end() {
    this.seen = seenOf(this.settings);
    this.places = new Places([...this.used.keys(), ...this.gradients.keys()]);
  }

  /** Whether all of the state is unchanged. */
  holds() {
    for (const [tensor, { storage, layout, requiresGrad }] of this.used) {
      if (tensor.storage !== storage || tensor.layout !== layout || tensor.requiresGrad !== requiresGrad) return false;
    }
    for (const [leaf, before] of this.gradients) if (leaf.grad !== before) return false;
    return same(this.seen) && this.places.hold();
  }
}
