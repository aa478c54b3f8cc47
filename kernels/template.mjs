// Dispatches that are packed once and appended many times, each time with other buffers.

import { Recorder } from './base.mjs';
import { choiceOf } from './matmul/words.mjs';

/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').Dispatches} Dispatches */

/**
 * Handles that stand for the buffers of a template: `SLOT + i` is slot i, of 2^20 slots. No buffer has such a handle: handles this
 * high belong to graphs.
 */
export const SLOT = 0x7ff00000;
const LAST_SLOT = 0x7fffffff;

/** The slot that a binding stands for, or -1. @param {import('./base.mjs').Binding} binding */
function slotOf(binding) {
  const handle = typeof binding === 'number' ? binding : binding.buffer;
  return handle >= SLOT && handle <= LAST_SLOT ? handle - SLOT : -1;
}

/**
 * Packed dispatches whose buffers are slots, with the positions of the handles to fill in. Handles below `SLOT`, such as a workspace of the
 * kernels, stay as they are.
 */
export class Template {
  /** The packed records, with slots instead of handles, and the places of these; made at first use, since that makes pipelines. */
  #packed = /** @type {{ bytes: Uint8Array, places: Int32Array } | undefined} */ (undefined);
  /** @type {Dispatch[]} */
  #dispatches;

  /** @param {(Dispatches | Dispatches[])[]} dispatches */
  constructor(...dispatches) {
    this.#dispatches = /** @type {Dispatch[]} */ (dispatches.flat(Infinity));
    /** @type {Set<number>} */
    const bound = new Set();
    /** @type {Set<number>} */
    const written = new Set();
    /** The matrix products that it computes: by which kernels, and why by these. @type {import('./matmul/words.mjs').ProductChoice[]} */
    this.products = [];
    for (const { buffers, writeMask, computes } of this.#dispatches) {
      if (computes) this.products.push(choiceOf(computes));
      buffers.forEach((binding, i) => {
        const slot = slotOf(binding);
        if (slot < 0) return;
        bound.add(slot);
        if ((writeMask >>> i) & 1) written.add(slot);
      });
    }
    /** Number of dispatches. */
    this.count = this.#dispatches.length;
    /** Slots that dispatches only read, and slots that at least one writes. */
    this.read = [...bound].filter((slot) => !written.has(slot));
    this.written = [...written];
  }

  /** Packs the dispatches. */
  #pack() {
    const recorder = new Recorder(256);
    /** Pairs of numbers: the byte at which a handle stands, and its slot. @type {number[]} */
    const places = [];
    for (const dispatch of this.#dispatches) {
      let at = recorder.length + (dispatch.groups[2] === 1 ? 16 : 20);
      recorder.append(dispatch);
      for (const binding of dispatch.buffers) {
        const slot = slotOf(binding);
        if (slot >= 0) places.push(at, slot);
        at += 4;
      }
    }
    this.#packed = { bytes: new Uint8Array(recorder.finish().packed), places: Int32Array.from(places) };
    this.#dispatches = [];
    return this.#packed;
  }

  /**
   * Appends the dispatches, with handles in place of the slots.
   * @param {Recorder} recorder @param {ArrayLike<number>} handles that of slot i at index i
   */
  appendTo(recorder, handles) {
    const { bytes, places } = this.#packed ?? this.#pack();
    const start = recorder.length;
    const end = start + bytes.length;
    if (end > recorder.view.byteLength) recorder.grow(end);
    const { view } = recorder;
    new Uint8Array(view.buffer, start, bytes.length).set(bytes);
    for (let i = 0; i < places.length; i += 2) view.setInt32(start + places[i], handles[places[i + 1]], true);
    recorder.length = end;
    recorder.count += this.count;
  }
}
