// Passes over the calls of a trace, each of which can be left out: the results are the same, but for roundings to 16 bits that
// fusing drops.

import { accesses, lower } from './calls.mjs';
import { constants } from './constants.mjs';
import { match } from './match.mjs';
import { norms } from './norms.mjs';
import { schedule } from './schedule.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('../runtime.mjs').Allocation} Allocation */

/** @typedef {'constants' | 'shared' | 'match' | 'norms' | 'dead' | 'schedule'} PassName */

/** In their order. @type {readonly PassName[]} */
export const PASSES = Object.freeze(['constants', 'shared', 'match', 'norms', 'dead', 'schedule']);

/**
 * One conversion of what was there before the trace (a parameter), in place of several equal ones. Values of the trace are
 * left: computing one again may be what `checkpoint` is for.
 * @param {Call[]} calls changed @param {Context} context
 */
function shared(calls, { isTemporary }) {
  /** @type {Map<Allocation, { layout: number, dtype: string, to: Allocation }[]>} */
  const known = new Map();
  /** @type {Map<Allocation, Allocation>} */
  const renamed = new Map();
  /** @type {Map<Allocation, number>} */
  const writers = new Map();
  for (const call of calls) for (const allocation of accesses(call).writes) writers.set(allocation, (writers.get(allocation) ?? 0) + 1);
  return calls.filter((call) => {
    call.allocations = call.allocations.map((allocation) => renamed.get(allocation) ?? allocation);
    for (const list of [call.inputs, call.outputs]) {
      list.forEach((value, i) => {
        const other = renamed.get(value.allocation);
        if (other) list[i] = { ...value, allocation: other };
      });
    }
    if (call.op?.name === 'to') {
      const [x] = call.inputs;
      const [y] = call.outputs;
      const mine = known.get(x.allocation);
      const before = mine?.find(({ layout, dtype }) => layout === x.layout.id && dtype === y.layout.dtype);
      const plain = !isTemporary(x.allocation) && isTemporary(y.allocation) && writers.get(y.allocation) === 1;
      if (plain && before) {
        renamed.set(y.allocation, before.to);
        return false;
      }
      if (plain) known.set(x.allocation, [...(mine ?? []), { layout: x.layout.id, dtype: y.layout.dtype, to: y.allocation }]);
    }
    for (const allocation of accesses(call).writes) known.delete(allocation);
    return true;
  });
}

/** Without calls whose results nobody reads. @param {Call[]} calls @param {Context} context */
function dead(calls, { isTemporary }) {
  /** @type {Set<Allocation>} */
  const needed = new Set();
  const kept = [];
  for (let i = calls.length - 1; i >= 0; i--) {
    const { reads, writes } = accesses(calls[i]);
    if ([...writes].every((allocation) => isTemporary(allocation) && !needed.has(allocation))) continue;
    for (const allocation of [...reads, ...writes]) needed.add(allocation);
    kept.push(calls[i]);
  }
  return kept.reverse();
}

/**
 * @param {Call[]} calls changed @param {Context} context @param {readonly PassName[]} names
 * @returns {{ calls: Call[], found: Record<string, number> }} with templates
 */
export function runPasses(calls, context, names) {
  /** @type {Record<string, number>} */
  let found = {};
  if (names.includes('constants')) {
    const result = constants(calls, context);
    calls = result.calls;
    if (result.folded > 0) found['constants folded'] = result.folded;
  }
  if (names.includes('shared')) {
    const { length } = calls;
    calls = shared(calls, context);
    if (length > calls.length) found['conversions shared'] = length - calls.length;
  }
  if (names.includes('match')) {
    const result = match(calls, context);
    calls = result.calls;
    found = { ...found, ...result.found };
  }
  if (names.includes('norms')) {
    const result = norms(calls, context);
    calls = result.calls;
    if (result.merged > 0) found["norms' weight gradients summed together"] = result.merged;
  }
  for (const call of calls) lower(call, context.kernels);
  if (names.includes('dead')) {
    const { length } = calls;
    calls = dead(calls, context);
    if (length > calls.length) found['results that nobody reads'] = length - calls.length;
  }
  if (names.includes('schedule')) calls = schedule(calls);
  return { calls, found };
}
