// Common subexpressions: one call replaces several that compute the same from the same values.

import { keyOf } from '../../core/keys.mjs';
import { accesses, countWriters } from './calls.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('../../core/runtime.mjs').Allocation} Allocation */

/**
 * Results are shared within a region only. `checkpoint` recomputes in a region of its own: sharing with the first run would keep the results
 * in memory in between, which is what it avoids. Conversions of parameters are shared among regions.
 * @param {Call[]} calls changed @param {Context} context
 * @returns {import('./calls.mjs').Passed} the calls, and how many were removed
 */
export function shared(calls, { isTemporary }) {
  /** Numbers of operations and allocations, for keys. @type {Map<object, number>} */
  const numbers = new Map();
  const numberOf = (/** @type {object} */ thing) => {
    let number = numbers.get(thing);
    if (number === undefined) numbers.set(thing, (number = numbers.size));
    return number;
  };
  const all = calls.map(accesses);
  const writers = countWriters(all);
  /** Number of writes to each allocation so far; a value is an allocation with this number. @type {Map<Allocation, number>} */
  const versions = new Map();
  /** @type {Map<Allocation, Allocation>} */
  const renamed = new Map();
  /** Outputs of calls, by what they compute. @type {Map<string, Call['outputs']>} */
  const known = new Map();

  const kept = calls.filter((call, i) => {
    for (const [slot, allocation] of call.allocations.entries()) call.allocations[slot] = renamed.get(allocation) ?? allocation;
    for (const list of [call.inputs, call.outputs]) {
      for (const [k, value] of list.entries()) {
        const other = renamed.get(value.allocation);
        if (other) list[k] = { ...value, allocation: other };
      }
    }
    const { op, inputs, outputs, attributes, region = 0 } = call;
    const { writes } = all[i];
    const own = new Set(outputs.map(({ allocation }) => allocation));
    // Keep a call that writes anything else (dropout writes the random state), or an output that other calls write too.
    const pure = op && inputs.length > 0 && writes.every((a) => own.has(a) && isTemporary(a) && writers.get(a) === 1);
    if (pure) {
      const converts = op.name === 'to' && !isTemporary(inputs[0].allocation);
      const values = inputs.map(({ allocation, layout }) => `${numberOf(allocation)}.${versions.get(allocation) ?? 0}.${layout.id}`);
      const key = `${numberOf(op)} ${keyOf(attributes)} ${values} ${converts ? 'any' : region}`;
      const before = known.get(key);
      if (before) {
        outputs.forEach(({ allocation }, k) => renamed.set(allocation, before[k].allocation));
        return false;
      }
      known.set(key, outputs);
    }
    for (const allocation of writes) versions.set(allocation, (versions.get(allocation) ?? 0) + 1);
    return true;
  });
  return { calls: kept, found: calls.length - kept.length };
}
