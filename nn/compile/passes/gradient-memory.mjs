// Gradients in memory of the graph. Where a function makes the gradients of an optimizer's parameters and clears them, as a whole training step does,
// nothing reads them before a call or after it: they take the memory that activations leave during the backward pass.

import { accesses, movedTo } from './calls.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('../../core/runtime.mjs').Allocation} Allocation */

/**
 * @param {Call[]} calls @param {Context} context
 * @returns {import('./calls.mjs').Passed} the calls, and how many allocations of gradients became temporary
 */
export function gradientMemory(calls, { isCleared, allocate }) {
  /** What the calls use instead; undefined for what is not `isCleared`, or holds something before it is written. @type {Map<Allocation, Allocation | undefined>} */
  const own = new Map();
  for (const call of calls) {
    const { reads, writes } = accesses(call);
    for (const memory of reads) if (!own.has(memory)) own.set(memory, undefined);
    for (const memory of writes) if (!own.has(memory)) own.set(memory, isCleared(memory) ? allocate(memory.bytes) : undefined);
  }
  const renamed = new Map([...own].flatMap(([memory, made]) => (made ? [/** @type {const} */ ([memory, made])] : [])));
  if (renamed.size === 0) return { calls, found: 0 };
  return { calls: calls.map((call) => movedTo(call, renamed)), found: renamed.size };
}
