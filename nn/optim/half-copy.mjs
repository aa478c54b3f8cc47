// 16-bit copies of an optimizer's parameters, which products read in `autocast`. AdamW writes them in the pass that writes the
// parameters. If anything else has changed the parameters, the copies are made anew before they are next read.

import { SLOT, Template } from '../../kernels/template.mjs';
import { map } from '../core/codegen.mjs';
import { denseLayout, layoutOf } from '../core/layout.mjs';
import { recordingNow, runtime } from '../core/runtime.mjs';
import { Storage } from '../core/storage.mjs';

/** @typedef {import('../../kernels/base.mjs').Dispatch} Dispatch */

/** A copy of parameters. It is stale if the parameters have another version. */
export class ParameterCopy {
  /** @param {Storage} source `count` f32 elements @param {number} count even @param {'f16' | 'bf16'} dtype @param {string} name for reports */
  constructor(source, count, dtype, name) {
    const device = runtime();
    this.source = source;
    this.dtype = dtype;
    // The device's own memory, also where a function is being compiled: it outlives the graph.
    this.storage = new Storage(device.allocate(2 * count));
    this.storage.retain();
    device.name(this.storage.allocation, name);
    /** The source's version that was copied. */
    this.version = -1;
  }

  /** Whether it holds what the source holds. */
  get fresh() {
    return this.version === this.source.version;
  }

  /** Has it hold what the source holds; before the function that is being compiled, if one is. */
  refresh() {
    // A graph may outlive the optimizer, and what it does not read goes with that.
    if (this.fresh || !this.storage.allocation.live) return;
    this.write();
    this.storage.version++;
    this.version = this.source.version;
  }

  /** Appends the dispatches that make it anew. */
  write() {}

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

/** The elements in their order. */
export class HalfCopy extends ParameterCopy {
  /** @param {Storage} source `count` f32 elements @param {number} count even @param {'f16' | 'bf16'} dtype */
  constructor(source, count, dtype) {
    super(source, count, dtype, `parameters in ${dtype}`);
    this.count = count;
    this.convert = new Template(runtime().kernels.cast({ x: SLOT, y: SLOT + 1, count, from: 'f32', to: dtype }));
    /** The same for products by the copy engine, once a compiled function takes it. @type {PermutedCopy | undefined} */
    this.permuted = undefined;
  }

  write() {
    runtime().append(this.convert, [this.source, this.storage]);
  }

  /** The copy for products by the copy engine, made at first use. */
  permutedCopy() {
    this.permuted ??= new PermutedCopy(this);
    return this.permuted;
  }

  dispose() {
    this.permuted?.dispose();
    super.dispose();
  }
}

/**
 * The elements in the order in which matrix products take them with `bPermuted`: in each 32 position p holds element `columnOf(p)`
 * (kernels/hopper/layout.mjs). Whatever writes the copy in natural order writes this one as well, or it is made anew of that.
 */
export class PermutedCopy extends ParameterCopy {
  /** @param {HalfCopy} half of a multiple of 32 elements, which buckets have */
  constructor(half) {
    super(half.source, half.count, half.dtype, `parameters in ${half.dtype}, permuted`);
    this.half = half;
    // Pairs are words, and each 16 of them a matrix of 4 x 4, which is transposed.
    const shape = [half.count / 32, 4, 4];
    const from = { buffer: SLOT, offset: 0, layout: layoutOf(shape, [16, 1, 4], 0, 'u32') };
    const to = { buffer: SLOT + 1, offset: 0, layout: denseLayout(shape, 'u32') };
    this.order = new Template(/** @type {Dispatch} */ (map(runtime().kernels.context, [from], [to], (_, values) => values)));
  }

  write() {
    this.half.refresh();
    runtime().append(this.order, [this.half.storage, this.storage]);
  }
}
