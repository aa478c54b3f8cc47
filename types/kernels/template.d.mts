// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./base.mjs').Dispatches} Dispatches */
/**
 * Handles that stand for the buffers of a template: `SLOT + i` for slot i, 2^20 in all. No buffer has such a handle: this
 * high they are those of graphs.
 */
export const SLOT: 2146435072;
/**
 * Packed dispatches whose buffers are slots, and where their handles stand. Handles below `SLOT` (a workspace of the
 * kernels) stay as they are.
 */
export class Template {
    /** @param {(Dispatches | Dispatches[])[]} dispatches */
    constructor(...dispatches: (Dispatches | Dispatches[])[]);
    /** The records, with slots for handles. */
    bytes: Uint8Array<ArrayBuffer>;
    /** Dispatches. */
    count: number;
    /** Pairs: byte of a handle, slot that it is of. */
    places: Int32Array<ArrayBuffer>;
    /** Slots that dispatches bind and only read, and those that one writes. */
    read: number[];
    written: number[];
    /**
     * Appends the dispatches with these handles for the slots.
     * @param {Recorder} recorder @param {ArrayLike<number>} handles
     */
    appendTo(recorder: Recorder, handles: ArrayLike<number>): void;
}
export type Dispatches = import("./base.mjs").Dispatches;
import { Recorder } from './base.mjs';
