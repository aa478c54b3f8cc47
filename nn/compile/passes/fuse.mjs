// Fuses elementwise operations, and reductions of their results, into generated kernels. Results that only the kernel reads take no memory.
// f32 is rounded as by the single operations; roundings to 16 bits in between are dropped; sums are added in another order.

import { UseMap, callInPlaceOf } from './calls.mjs';
import { fusedOp, planOf, roleOf } from './fused.mjs';
import { partsOf } from './matcher.mjs';
import { dependences } from './order.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */

/** Calls between a result and its reader beyond which they stay apart: the kernel would keep other results alive for long. */
const WINDOW = 64;
/** Calls of a kernel. */
const MAX_CALLS = 32;

/**
 * @param {Call[]} calls @param {Context} context
 * @returns {import('./calls.mjs').Passed} and how many calls became part of another
 */
export function fuse(calls, context) {
  const before = dependences(calls);
  /** @type {number[][]} */
  const after = calls.map(() => []);
  before.forEach((earlier, i) => {
    for (const j of earlier) after[j].push(i);
  });
  const uses = new UseMap();
  calls.forEach((call, i) => uses.note(call, i));
  /** Whether a call can be a part of a kernel: what it makes is made by it alone. */
  const suits = calls.map((call) => {
    const role = roleOf(call);
    if (!role) return false;
    if (role.kind === 'write' || call.extra?.y) return true;
    const [{ allocation }] = call.outputs;
    return context.isOwn(allocation) && uses.of(allocation).writers.size === 1;
  });
  /** The calls that are one kernel, by each of them, in order. */
  const groups = calls.map((_, i) => [i]);
  /** Whether other calls lie on a way from one group to another. @param {number[]} from @param {number[]} to */
  const apart = (from, to) => {
    const seen = new Set([from, to]);
    const stack = [from];
    for (let group = stack.pop(); group; group = stack.pop()) {
      for (const member of group) {
        for (const next of after[member]) {
          const reached = groups[next];
          if (reached === to && group !== from) return true;
          if (seen.has(reached)) continue;
          seen.add(reached);
          stack.push(reached);
        }
      }
    }
    return false;
  };
  /** @param {number[]} group */
  const planned = (group) => {
    const members = new Set(group);
    return planOf(
      group.map((i) => calls[i]),
      (allocation) => !context.isTemporary(allocation) || [...uses.of(allocation).readers].some((reader) => !members.has(reader)),
    );
  };

  calls.forEach((call, j) => {
    if (!suits[j]) return;
    for (const { allocation } of call.inputs) {
      const { writers } = uses.of(allocation);
      const [i] = writers;
      if (writers.size !== 1 || !suits[i] || groups[i] === groups[j] || i > j || j - i > WINDOW) continue;
      if (calls[i].region !== call.region) continue;
      const together = [...groups[i], ...groups[j]].sort((a, b) => a - b);
      if (together.length > MAX_CALLS || !planned(together)) continue;
      if (apart(groups[i], groups[j]) || apart(groups[j], groups[i])) continue;
      for (const member of together) groups[member] = together;
    }
  });

  /** @type {Call[]} */
  const result = [];
  /** @type {Set<number[]>} */
  const done = new Set();
  let fused = 0;
  /** Appends a group, behind what it depends on. @param {number[]} group */
  const emit = (group) => {
    if (done.has(group)) return;
    done.add(group);
    for (const member of group) for (const earlier of before[member]) emit(groups[earlier]);
    const plan = group.length > 1 ? planned(group) : undefined;
    if (!plan) {
      result.push(...group.map((i) => calls[i]));
      return;
    }
    fused += group.length - 1;
    const members = group.map((i) => calls[i]);
    result.push(callInPlaceOf(members[0], { op: fusedOp, ...plan, parts: members.flatMap(partsOf) }));
  };
  // With its last call, so that what it makes does not live for longer.
  calls.forEach((_, i) => {
    if (groups[i].at(-1) === i) emit(groups[i]);
  });
  return { calls: result, found: fused };
}
