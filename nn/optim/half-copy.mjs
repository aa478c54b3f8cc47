// 16-bit copies of an optimizer's parameters, which products read under `autocast`. AdamW writes them in the same kernel as the
// parameters. If anything else has changed the parameters, the copies are converted again before they are next read.

import { SLOT, Template } from '../../kernels/template.mjs';
import { map } from '../core/codegen.mjs';
import { denseLayout, layoutOf } from '../core/layout.mjs';
import { recordingNow, runtime } from '../core/runtime.mjs';
import { Storage } from '../core/storage.mjs';
import { LazyMemory } from './lazy-memory.mjs';

/** @typedef {import('../../kernels/base.mjs').Dispatch} Dispatch */

/** A copy of parameters. It is stale if the parameters' version is not the one that was copied. */
export class ParameterCopy {
  /** @param {Storage} source `count` f32 elements @param {number} count even @param {'f16' | 'bf16'} dtype @param {string} name for reports */
  constructor(source, count, dtype, name) {
    this.source = source;
    this.dtype = dtype;
    /** Its memory, which lasts until `drop` or `dispose`. */
    this.memory = new LazyMemory(2 * count, () => {
      const device = runtime();
      // Allocated from the device even while a function is compiled: the copy outlives the graph.
      const storage = new Storage(device.allocate(2 * count));
      storage.retain();
      device.name(storage.allocation, name);
      return storage;
    });
    this.storage = new Storage(this.memory);
    this.storage.retain();
    /** The version of the source that was copied. */
    this.version = -1;
    /** Whether a trace has counted on that version, but nothing has copied it yet: the graph may turn out not to read the copy. */
    this.pending = false;
  }

  /** Whether the copy is up to date. */
  get fresh() {
    return this.version === this.source.version;
  }

  /** Brings the copy up to date. */
  refresh() {
    // A graph may outlive the optimizer, which has then freed the copies that the graph does not read.
    if ((this.fresh && !this.pending) || !this.storage.allocation.live) return;
    this.memory.reserve();
    this.write();
    this.#copied(false);
  }

  /** @param {boolean} pending */
  #copied(pending) {
    if (!this.fresh) this.storage.version++;
    this.version = this.source.version;
    this.pending = pending;
  }

  /** Appends the dispatches that write the copy. */
  write() {}

  /**
   * Brings the copy up to date for a read at this point.
   * @returns {boolean} false if that is impossible: the function being compiled has changed the source
   */
  ready() {
    const recording = recordingNow();
    if (recording) {
      if (!this.fresh && recording.changed(this.source)) return false;
      recording.copies.add(this);
      // The launch brings it up to date, before what was recorded.
      if (!this.fresh) this.#copied(true);
    } else this.refresh();
    return true;
  }

  /** Marks the copy as up to date after a kernel has written both the source and the copy. */
  follow() {
    this.version = this.source.version;
    this.storage.version++;
  }

  /** Has the copy made anew before it is next read. Its memory goes, if only the optimizer holds it. */
  drop() {
    this.version = -1;
    if (this.storage.shares === 1) this.memory.free();
  }

  dispose() {
    this.storage.release();
  }
}

/** The copy in the order of the parameters. */
export class HalfCopy extends ParameterCopy {
  /** @param {Storage} source `count` f32 elements @param {number} count even @param {'f16' | 'bf16'} dtype */
  constructor(source, count, dtype) {
    super(source, count, dtype, `parameters in ${dtype}`);
    this.count = count;
    this.convert = new Template(runtime().kernels.cast({ x: SLOT, y: SLOT + 1, count, from: 'f32', to: dtype }));
    /** The permuted copy, for products that load their operands with TMA; made when a compiled function first uses it. @type {PermutedCopy | undefined} */
    this.permuted = undefined;
  }

  write() {
    runtime().append(this.convert, [this.source, this.storage]);
  }

  /** The permuted copy, made at first use. */
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
 * The copy in the order that matrix products with `bPermuted` read: in each block of 32, position p holds element `columnOf(p)`
 * (kernels/hopper/layout.mjs). A kernel that writes the copy in natural order either writes this one too, or leaves it stale.
 */
export class PermutedCopy extends ParameterCopy {
  /** @param {HalfCopy} half its count is a multiple of 32, as in every bucket */
  constructor(half) {
    super(half.source, half.count, half.dtype, `parameters in ${half.dtype}, permuted`);
    this.half = half;
    // In each 32 elements 16 pairs are a 4 x 4 matrix, which is transposed.
    const shape = [half.count / 32, 4, 4, 2];
    const from = { buffer: SLOT, offset: 0, layout: layoutOf(shape, [32, 2, 8, 1], 0, 'f32') };
    const to = { buffer: SLOT + 1, offset: 0, layout: denseLayout(shape, half.dtype) };
    this.convert = new Template(/** @type {Dispatch} */ (map(runtime().kernels.context, [from], [to], (_, values) => values)));
  }

  write() {
    runtime().append(this.convert, [this.source, this.storage]);
  }
}
