// Dead code elimination: removes calls whose results nothing reads.

import { accesses } from './calls.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('../../core/runtime.mjs').Allocation} Allocation */

/**
 * @param {Call[]} calls @param {Context} context
 * @returns {import('./calls.mjs').Passed} the calls, and how many were removed
 */
export function dead(calls, { isTemporary }) {
  /** @type {Set<Allocation>} */
  const needed = new Set();
  const kept = [];
  for (let i = calls.length - 1; i >= 0; i--) {
    const { reads, writes } = accesses(calls[i]);
    if (writes.every((allocation) => isTemporary(allocation) && !needed.has(allocation))) continue;
    for (const allocation of reads) needed.add(allocation);
    for (const allocation of writes) needed.add(allocation);
    kept.push(calls[i]);
  }
  return { calls: kept.reverse(), found: calls.length - kept.length };
}
