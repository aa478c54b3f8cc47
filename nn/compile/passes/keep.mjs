// Keeps conversions and copies of memory from before the trace that no call changes, such as weights in another type or order, and small results of
// such memory, such as the factors of a batch norm and positions: they are computed before the first call, and again once that memory has changed.

import { BYTES, isFloat } from '../../core/layout.mjs';
import { accesses, countWriters } from './calls.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('../../core/runtime.mjs').Allocation} Allocation */

/** Bytes of small results. Larger conversions are at most as large as what they are computed of: weights stay quantized. */
const SMALL = 65536;

/** @param {Call['inputs']} values */
const bytesOf = (values) => values.reduce((sum, { layout }) => sum + layout.size * BYTES[layout.dtype], 0);

/**
 * @param {Call[]} calls @param {Context} context `once` gets the calls that are left out here
 * @returns {import('./calls.mjs').Passed} the other calls, and how many are left out
 */
export function keep(calls, { isTemporary, isSteady, once }) {
  const all = calls.map(accesses);
  const writers = countWriters(all);
  /** @type {Set<Allocation>} */
  const kept = new Set();
  const others = calls.filter((call, i) => {
    const { reads, writes } = all[i];
    const bytes = bytesOf(call.outputs);
    const isConversion = call.op?.name === 'to' || call.op?.name === 'copy';
    // Generated kernels have numbers in floating point as constants: these are left to them.
    const isInteger = call.op?.name === 'full' && !isFloat(call.outputs[0].layout.dtype);
    const isFixed =
      call.op !== undefined &&
      bytes <= (isConversion ? Math.max(SMALL, bytesOf(call.inputs)) : SMALL) &&
      (reads.length > 0 || isInteger) &&
      reads.every((allocation) => kept.has(allocation) || (isSteady(allocation) && !writers.has(allocation))) &&
      writes.every((allocation) => isTemporary(allocation) && writers.get(allocation) === 1);
    if (!isFixed) return true;
    for (const allocation of writes) kept.add(allocation);
    once.push(call);
    return false;
  });
  return { calls: others, found: once.length };
}
