// Remembers what a trace relied on outside of it. A graph is launched only if all of that is unchanged; otherwise the function is traced
// again.

import { same } from '../core/guards.mjs';
import { Places } from '../modules/places.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../core/storage.mjs').Storage} Storage */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

export class Guard {
  /** @param {number} serial tensors from this number on are the trace's */
  constructor(serial) {
    this.serial = serial;
    /** Tensors from before that were used, as they were. @type {Map<Tensor, { storage: Storage, layout: Layout, requiresGrad: boolean }>} */
    this.used = new Map();
    /** Leaves whose gradient was read or changed, and what it was. @type {Map<Tensor, Tensor | undefined>} */
    this.gradients = new Map();
    /** Settings asked for, such as whether a module trains. @type {import('../core/guards.mjs').Settings} */
    this.settings = new Map();
    /** Where modules hold what was used, once the trace has ended. */
    this.places = new Places([]);
  }

  /** Notes an operand. @param {Tensor} tensor */
  use(tensor) {
    if (tensor.serial >= this.serial || this.used.has(tensor) || tensor.storage === undefined) return;
    this.used.set(tensor, { storage: tensor.storage, layout: tensor.layout, requiresGrad: tensor.requiresGrad });
  }

  /** Notes a leaf's gradient before it is looked at. @param {Tensor} leaf */
  gradientOf(leaf) {
    if (leaf.serial < this.serial && !this.gradients.has(leaf)) this.gradients.set(leaf, leaf.grad);
  }

  /** Notes where modules hold what was used. */
  end() {
    this.places = new Places([...this.used.keys(), ...this.gradients.keys()]);
  }

  /** Whether everything is as it was. */
  holds() {
    for (const [tensor, { storage, layout, requiresGrad }] of this.used) {
      if (tensor.storage !== storage || tensor.layout !== layout || tensor.requiresGrad !== requiresGrad) return false;
    }
    for (const [leaf, before] of this.gradients) if (leaf.grad !== before) return false;
    return same(this.settings) && this.places.hold();
  }
}
