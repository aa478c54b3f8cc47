// Leaves out calls whose result is their operand, bit for bit: a multiplication by 1, as by the gradient of a loss that the backward pass starts
// from, and the conversion of a widened value back to its type. What read the result reads the operand.

import { isFloat } from '../../core/layout.mjs';
import { accesses, countWriters } from './calls.mjs';
import { whole } from './matcher.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('./calls.mjs').Value} Value */
/** @typedef {import('../../core/runtime.mjs').Allocation} Allocation */

/** Whether conversion from one type to the other keeps every value. @param {string} from @param {string} to */
const widens = (from, to) => (from === 'bf16' || from === 'f16') && to === 'f32';

/**
 * @param {Call[]} calls changed @param {Context} context
 * @returns {import('./calls.mjs').Passed} the calls, and how many were left out
 */
export function identities(calls, { isTemporary }) {
  const writers = countWriters(calls.map(accesses));
  /** Whether a value is all of its memory, which is written once. @param {Value} value */
  const once = (value) => isTemporary(value.allocation) && writers.get(value.allocation) === 1 && whole(value);
  /** What was widened to a value. @type {Map<Allocation, Value>} */
  const widened = new Map();
  /** @type {Map<Allocation, Allocation>} */
  const renamed = new Map();

  /** The value that a call's result is, or undefined. @param {Call} call @returns {Value | undefined} */
  const same = ({ op, attributes, inputs: [x], outputs: [y] }) => {
    if (op?.name === 'affine') return attributes.alpha === 1 && Object.is(attributes.beta, -0) ? x : undefined;
    if (op?.name !== 'to' || !isFloat(y.layout.dtype)) return undefined;
    const from = widened.get(x.allocation);
    if (from?.layout.dtype === y.layout.dtype) return from;
    if (widens(x.layout.dtype, y.layout.dtype) && once(x) && once(y)) widened.set(y.allocation, x);
    return undefined;
  };

  const kept = calls.filter((call) => {
    for (const [slot, allocation] of call.allocations.entries()) call.allocations[slot] = renamed.get(allocation) ?? allocation;
    call.inputs = call.inputs.map((value) => {
      const other = renamed.get(value.allocation);
      return other ? { ...value, allocation: other } : value;
    });
    const x = same(call);
    const [y] = call.outputs;
    if (!x || !once(x) || !once(y) || x.layout.dtype !== y.layout.dtype || x.layout.size !== y.layout.size) return true;
    renamed.set(y.allocation, x.allocation);
    return false;
  });
  return { calls: kept, found: calls.length - kept.length };
}
