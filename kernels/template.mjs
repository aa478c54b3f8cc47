// Dispatches that are packed once and appended many times, each time with other buffers.

import { Recorder } from './base.mjs';
import { choiceOf } from './matmul/words.mjs';

/** @typedef {import('./base.mjs').Dispatches} Dispatches */

/**
 * Handles that stand for the buffers of a template: `SLOT + i` is slot i, of 2^20 slots. No buffer has such a handle: handles this
 * high belong to graphs.
 */
export const SLOT = 0x7ff00000;
const LAST_SLOT = 0x7fffffff;

/**
 * Packed dispatches whose buffers are slots, with the positions of the handles to fill in. Handles below `SLOT`, such as a workspace of the
 * kernels, stay as they are.
 */
export class Template {
  /** @param {(Dispatches | Dispatches[])[]} dispatches */
  constructor(...dispatches) {
    const recorder = new Recorder(256);
    /** @type {number[]} */
    const places = [];
    /** @type {Set<number>} */
    const written = new Set();
    /** The matrix products that it computes: by which kernels, and why by these. @type {import('./matmul/words.mjs').ProductChoice[]} */
    this.products = [];
    /** @param {Dispatches | (Dispatches | Dispatches[])[]} entry */
    const add = (entry) => {
      if (Array.isArray(entry)) {
        for (const one of entry) add(one);
        return;
      }
      let at = recorder.length + (entry.groups[2] === 1 ? 16 : 20);
      recorder.append(entry);
      if (entry.computes) this.products.push(choiceOf(entry.computes));
      entry.buffers.forEach((binding, i) => {
        const handle = typeof binding === 'number' ? binding : binding.buffer;
        if (handle >= SLOT && handle <= LAST_SLOT) {
          places.push(at, handle - SLOT);
          if ((entry.writeMask >>> i) & 1) written.add(handle - SLOT);
        }
        at += 4;
      });
    };
    add(dispatches);
    const { packed, count } = recorder.finish();
    /** The packed records, with slots instead of handles. */
    this.bytes = new Uint8Array(packed);
    /** Number of dispatches. */
    this.count = count;
    /** Pairs of numbers: the byte at which a handle stands, and its slot. */
    this.places = Int32Array.from(places);
    const bound = [...new Set(places.filter((_, i) => i % 2 === 1))];
    /** Slots that dispatches only read, and slots that at least one writes. */
    this.read = bound.filter((slot) => !written.has(slot));
    this.written = [...written];
  }

  /**
   * Appends the dispatches, with handles in place of the slots.
   * @param {Recorder} recorder @param {ArrayLike<number>} handles that of slot i at index i
   */
  appendTo(recorder, handles) {
    const { bytes, places } = this;
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
