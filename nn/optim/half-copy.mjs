// The 16-bit copy of an optimizer's parameters: what products read in `autocast`. AdamW writes it in the pass that writes the
// parameters; where anything else has changed them, it is made anew before it is next read.

import { SLOT, Template } from '../../kernels/template.mjs';
import { recordingNow, runtime } from '../runtime.mjs';
import { Storage } from '../storage.mjs';

export class HalfCopy {
  /** @param {Storage} source `count` f32 elements @param {number} count even @param {'f16' | 'bf16'} dtype */
  constructor(source, count, dtype) {
    const device = runtime();
    this.source = source;
    this.dtype = dtype;
    // The device's own memory, also where a function is being compiled: it outlives the graph.
    this.storage = new Storage(device.allocate(2 * count, true));
    this.storage.retain();
    device.name(this.storage.allocation, `parameters in ${dtype}`);
    /** The source's version that was copied. */
    this.version = -1;
    this.convert = new Template(device.kernels.cast({ x: SLOT, y: SLOT + 1, count, from: 'f32', to: dtype }));
  }

  /** Whether it holds what the source holds. */
  get fresh() {
    return this.version === this.source.version;
  }

  /** Has it hold what the source holds; before the function that is being compiled, if one is. */
  refresh() {
    // A graph may outlive the optimizer, and what it does not read goes with that.
    if (this.fresh || !this.storage.allocation.live) return;
    runtime().append(this.convert, [this.source, this.storage]);
    this.storage.version++;
    this.version = this.source.version;
  }

  /**
   * Has it hold what the source holds where it is to be read now.
   * @returns {boolean} false where it cannot: the function that is being compiled has changed the source
   */
  ready() {
    const recording = recordingNow();
    if (recording) {
      if (!this.fresh && recording.changed(this.source)) return false;
      recording.copies.add(this);
    }
    this.refresh();
    return true;
  }

  /** The source was changed, and this with it. */
  follow() {
    this.version = this.source.version;
    this.storage.version++;
  }

  dispose() {
    this.storage.release();
  }
}
