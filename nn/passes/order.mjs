// What must come before what.

import { BYTES } from '../layout.mjs';
import { accesses, effective } from './calls.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('../runtime.mjs').Allocation} Allocation */

/** Bytes of an allocation from `start` to `end`, read or written by a call. @typedef {{ call: number, start: number, end: number, writes: boolean }} Access */

/**
 * The bytes of each allocation that a call touches, as far as they lie without gaps: gradients of many parameters share one.
 * @param {Call} call
 * @returns {Map<Allocation, { start: number, end: number }>} without those of which all bytes are meant
 */
function rangesOf(call) {
  const ranges = new Map();
  if (!call.op) return ranges;
  const { inputs, outputs } = effective(call);
  for (const { allocation, layout } of [...inputs, ...outputs]) {
    const bytes = BYTES[layout.dtype];
    // Halves are written with the padding behind them.
    const start = layout.contiguous ? layout.offset * bytes : 0;
    const end = layout.contiguous && bytes === 4 ? start + layout.size * bytes : Infinity;
    const known = ranges.get(allocation);
    ranges.set(allocation, known ? { start: Math.min(start, known.start), end: Math.max(end, known.end) } : { start, end });
  }
  return ranges;
}

/**
 * The calls that each call depends on: those that write what it touches, and those that read what it writes. Others follow from
 * these.
 * @param {Call[]} calls
 * @returns {Set<number>[]}
 */
export function dependences(calls) {
  /** What later calls may depend on: what was not written over since. @type {Map<Allocation, Access[]>} */
  const last = new Map();
  return calls.map((call, i) => {
    const ranges = rangesOf(call);
    const { reads, writes } = accesses(call);
    /** @type {Set<number>} */
    const before = new Set();
    for (const allocation of new Set([...reads, ...writes])) {
      const { start, end } = ranges.get(allocation) ?? { start: 0, end: Infinity };
      const own = { call: i, start, end, writes: writes.has(allocation) };
      const kept = (last.get(allocation) ?? []).filter((other) => {
        if (other.end <= start || other.start >= end) return true;
        if (other.writes || own.writes) before.add(other.call);
        return !(own.writes && start <= other.start && end >= other.end);
      });
      kept.push(own);
      last.set(allocation, kept);
    }
    return before;
  });
}
