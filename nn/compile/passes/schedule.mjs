// Orders the calls for fewer barriers: among the next few calls that are ready, one that needs no barrier goes first.

import { accesses } from './calls.mjs';
import { dependences } from './order.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('../../core/runtime.mjs').Allocation} Allocation */

/** How many calls to look ahead: moving a call further would make results live longer. */
const WINDOW = 12;

/**
 * @param {Call[]} calls
 * @returns {Call[]} the same calls in an order that keeps every dependence
 */
export function schedule(calls) {
  return ordered(calls, dependences(calls)).map((i) => calls[i]);
}

/** @param {Call[]} calls @param {Set<number>[]} before @returns {number[]} */
function ordered(calls, before) {
  const all = calls.map(accesses);
  /** For each call, how many calls that it depends on have not been ordered yet. */
  const missing = before.map(({ size }) => size);
  /** @type {number[][]} */
  const next = calls.map(() => []);
  before.forEach((earlier, i) => {
    for (const j of earlier) next[j].push(i);
  });

  /** Memory that was read, and written, since the last barrier. @type {Set<Allocation>} */
  const read = new Set();
  /** @type {Set<Allocation>} */
  const written = new Set();
  /** Whether a call needs a barrier before it. @param {number} i */
  const waits = (i) => {
    for (const allocation of all[i].reads) if (written.has(allocation)) return true;
    for (const allocation of all[i].writes) if (written.has(allocation) || read.has(allocation)) return true;
    return false;
  };
  const order = [];
  const pending = calls.map((_, i) => i);
  while (pending.length > 0) {
    let chosen = -1;
    for (let p = 0; p < Math.min(WINDOW, pending.length); p++) {
      const i = pending[p];
      if (missing[i] > 0 || (calls[i].late && p > 0)) continue;
      if (!waits(i)) {
        chosen = p;
        break;
      }
      if (chosen < 0) chosen = p;
    }
    const [i] = pending.splice(chosen, 1);
    const dispatches = calls[i].template?.count ?? 1;
    if (waits(i) || dispatches > 1) {
      read.clear();
      written.clear();
    }
    for (const allocation of all[i].reads) read.add(allocation);
    for (const allocation of all[i].writes) written.add(allocation);
    for (const j of next[i]) missing[j]--;
    order.push(i);
  }
  return order;
}
