// Dependences: which calls must run before which.

import { BYTES } from '../../core/layout.mjs';
import { accesses, effective } from './calls.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('../../core/runtime.mjs').Allocation} Allocation */

/** The bytes of an allocation, from `start` to before `end`, that a call reads or writes. @typedef {{ call: number, start: number, end: number }} Access */

/** @param {Access} a @param {Access} b */
const overlap = (a, b) => a.start < b.end && b.start < a.end;

/**
 * The byte range of each allocation that a call uses. Ranges matter since the gradients of many parameters share an allocation.
 * @param {Call} call
 * @returns {Map<Allocation, { start: number, end: number }>} an allocation that is missing counts as used entirely
 */
function rangesOf(call) {
  const ranges = new Map();
  if (!call.op) return ranges;
  const { inputs, outputs } = effective(call);
  for (const { allocation, layout } of [...inputs, ...outputs]) {
    const bytes = BYTES[layout.dtype];
    // 16-bit elements are written together with the padding after them.
    const start = layout.contiguous ? layout.offset * bytes : 0;
    const end = layout.contiguous && bytes >= 4 ? start + layout.size * bytes : Infinity;
    const known = ranges.get(allocation);
    ranges.set(allocation, known ? { start: Math.min(start, known.start), end: Math.max(end, known.end) } : { start, end });
  }
  return ranges;
}

/**
 * The calls that each call depends on: those that wrote what it uses, and those that read what it overwrites. Only direct dependences are
 * listed; the others follow from them.
 * @param {Call[]} calls
 * @returns {Set<number>[]}
 */
export function dependences(calls) {
  /** Accesses that later calls may depend on: those not overwritten since. @type {Map<Allocation, { reads: Access[], writes: Access[] }>} */
  const last = new Map();
  return calls.map((call, i) => {
    const ranges = rangesOf(call);
    const { reads, writes } = accesses(call);
    /** @type {Set<number>} */
    const before = new Set();
    /** @param {Allocation} allocation @returns {{ own: Access, earlier: { reads: Access[], writes: Access[] } }} */
    const access = (allocation) => {
      const { start, end } = ranges.get(allocation) ?? { start: 0, end: Infinity };
      let earlier = last.get(allocation);
      if (!earlier) last.set(allocation, (earlier = { reads: [], writes: [] }));
      return { own: { call: i, start, end }, earlier };
    };
    for (const allocation of reads) {
      if (writes.includes(allocation)) continue;
      const { own, earlier } = access(allocation);
      for (const other of earlier.writes) if (overlap(own, other)) before.add(other.call);
      earlier.reads.push(own);
    }
    for (const allocation of writes) {
      const { own, earlier } = access(allocation);
      /** @param {Access} other @returns {boolean} whether any of it is left */
      const outlives = (other) => {
        if (!overlap(own, other)) return true;
        before.add(other.call);
        return other.start < own.start || other.end > own.end;
      };
      earlier.reads = earlier.reads.filter(outlives);
      earlier.writes = earlier.writes.filter(outlives);
      earlier.writes.push(own);
    }
    return before;
  });
}
