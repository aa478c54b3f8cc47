// Fuses elementwise operations, and reductions of their results, into generated kernels. Results that only the kernel reads need no memory.
// f32 rounding is unchanged; intermediate roundings to 16 bits are dropped; sums may be added in another order.

import { UseMap, callInPlaceOf } from './calls.mjs';
import { dead } from './dead.mjs';
import { fusedOp, planOf, roleOf } from './fused.mjs';
import { partsOf } from './matcher.mjs';
import { dependences } from './order.mjs';
import { isFloat } from '../../core/layout.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('../../core/runtime.mjs').Allocation} Allocation */

/** The most calls between a result and its reader: fusing calls that are further apart would keep other results alive for long. */
const WINDOW = 64;
/** The most calls in a kernel. */
const MAX_CALLS = 32;

/** The most elements of calls that become one kernel because they read the same: a dispatch takes longer than they do. */
const FEW = 4096;

/** Whether a type holds a number as it is: of 16-bit types this knows whole numbers of 8 bits. @param {string} dtype @param {number} value */
const holds = (dtype, value) => dtype === 'f32' || (Number.isInteger(value) ? Math.abs(value) <= 256 : !Number.isFinite(value));

/**
 * @param {Call[]} calls @param {Context} context
 * @returns {import('./calls.mjs').Passed} the calls, and how many became part of another
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
  /** Memory that is filled with one number: kernels have that as a constant. @type {Map<Allocation, number>} */
  const numbers = new Map();
  for (const { op, attributes, outputs } of calls) {
    if (op?.name !== 'full') continue;
    const [{ allocation, layout }] = outputs;
    const once = context.isTemporary(allocation) && uses.of(allocation).writers.size === 1;
    if (once && isFloat(layout.dtype) && holds(layout.dtype, attributes.value)) numbers.set(allocation, attributes.value);
  }
  const roles = calls.map(roleOf);
  /** Whether each call can be part of a kernel: it has a role, and nothing else writes its result. */
  const suits = calls.map((call, i) => {
    const role = roles[i];
    if (!role) return false;
    if (role.kind === 'write' || call.extra?.y) return true;
    const [{ allocation }] = call.outputs;
    return context.isOwn(allocation) && uses.of(allocation).writers.size === 1;
  });
  /** For each call, the calls of its kernel, in order. */
  const groups = calls.map((_, i) => [i]);
  /** The groups in an order that keeps dependences, with gaps; and the place of each. @type {(number[] | undefined)[]} */
  const order = [...groups];
  const placeOf = new Map(groups.map((own, place) => [own, place]));
  /**
   * The groups that depend on `from` and stand before `to`, which directly depends on it; undefined if `to` depends on one of them, so that
   * the two cannot be one kernel. Only what stands between the two can be on such a path.
   * @param {number[]} from @param {number[]} to
   */
  const between = (from, to) => {
    const end = /** @type {number} */ (placeOf.get(to));
    /** @type {Set<number[]>} */
    const seen = new Set();
    const stack = [from];
    for (let own = stack.pop(); own; own = stack.pop()) {
      for (const member of own) {
        for (const next of after[member]) {
          const reached = groups[next];
          if (reached === to && own !== from) return undefined;
          if (reached === own || seen.has(reached) || /** @type {number} */ (placeOf.get(reached)) >= end) continue;
          seen.add(reached);
          stack.push(reached);
        }
      }
    }
    return seen;
  };
  /** Makes two groups one, which stands before those that depend on it. @param {number[]} from @param {number[]} to @param {Set<number[]>} later */
  const merge = (from, to, later) => {
    const together = [...from, ...to].sort((a, b) => a - b);
    for (const member of together) groups[member] = together;
    const [start, end] = [from, to].map((own) => /** @type {number} */ (placeOf.get(own)));
    const others = order.slice(start + 1, end).filter((own) => own !== undefined);
    const earlier = others.filter((own) => !later.has(own));
    const moved = [...earlier, together, ...others.filter((own) => later.has(own))];
    for (const own of [from, to]) placeOf.delete(own);
    for (let place = start; place <= end; place++) {
      const own = moved[place - start];
      order[place] = own;
      if (own) placeOf.set(own, place);
    }
  };
  /** The plan of a group as one kernel; undefined if that is impossible. @param {number[]} group */
  const planned = (group) => {
    const members = new Set(group);
    return planOf(
      group.map((i) => calls[i]),
      group.map((i) => /** @type {import('./fused.mjs').Role} */ (roles[i])),
      (allocation) => !context.isTemporary(allocation) || [...uses.of(allocation).readers].some((reader) => !members.has(reader)),
      numbers,
    );
  };

  /** Makes the kernels of two calls one, if they can be. @param {number} i @param {number} j a later one */
  const join = (i, j) => {
    if (!suits[i] || groups[i] === groups[j] || i > j || j - i > WINDOW || calls[i].region !== calls[j].region) return;
    const [from, to] = [groups[i], groups[j]].sort((a, b) => Number(placeOf.get(a)) - Number(placeOf.get(b)));
    if (from.length + to.length > MAX_CALLS || !planned([...from, ...to].sort((a, b) => a - b))) return;
    const later = between(from, to);
    if (later) merge(from, to, later);
  };
  calls.forEach((call, j) => {
    if (!suits[j]) return;
    for (const { allocation } of call.inputs) {
      const { writers } = uses.of(allocation);
      if (writers.size === 1) for (const i of writers) join(i, j);
    }
  });
  // Small calls that read the same result.
  const sizes = calls.map(({ outputs }, i) => (suits[i] && roles[i]?.kind === 'map' ? outputs[0].layout.size : Infinity));
  calls.forEach(({ inputs }, j) => {
    if (sizes[j] > FEW) return;
    for (const { allocation } of inputs)
      if (context.isTemporary(allocation)) for (const i of uses.of(allocation).readers) if (sizes[i] === sizes[j]) join(i, j);
  });

  /** @type {Call[]} */
  const result = [];
  /** @type {Set<number[]>} */
  const done = new Set();
  let fused = 0;
  /** Appends a group after the groups that it depends on. @param {number[]} group */
  const emit = (group) => {
    if (done.has(group)) return;
    done.add(group);
    for (const member of group) for (const earlier of before[member]) emit(groups[earlier]);
    const [first] = group;
    const hasNumber = suits[first] && calls[first].inputs.some(({ allocation }) => numbers.has(allocation));
    const plan = group.length > 1 || hasNumber ? planned(group) : undefined;
    if (!plan) {
      result.push(...group.map((i) => calls[i]));
      return;
    }
    fused += group.length - 1;
    const members = group.map((i) => calls[i]);
    result.push(callInPlaceOf(members[0], { op: fusedOp, ...plan, parts: members.flatMap(partsOf) }));
  };
  // A group takes the place of its last call, so that its results do not live longer than before.
  calls.forEach((_, i) => {
    if (groups[i].at(-1) === i) emit(groups[i]);
  });
  // Nobody may read the filled memory now.
  return { calls: numbers.size ? dead(result, context).calls : result, found: fused };
}
