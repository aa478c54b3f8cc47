// Constant folding: a result whose elements are all one number is computed here, and kernels that read it get the number as a constant. The
// bits are those that the device would compute.

import { operations } from '../../ops/registry.mjs';
import { accesses, callInPlaceOf, countWriters } from './calls.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('../../core/runtime.mjs').Allocation} Allocation */

const { fround } = Math;

/** alpha · x + beta, rounded as the kernel of `affine` rounds. @param {number} x @param {number} alpha @param {number} beta */
function affine(x, alpha, beta) {
  const scaled = alpha === 1 ? x : alpha === -1 ? -x : fround(x * fround(alpha));
  return Object.is(beta, -0) ? scaled : fround(scaled + fround(beta));
}

/**
 * @param {Call[]} calls @param {Context} context
 * @returns {import('./calls.mjs').Passed} the calls, and how many were folded
 */
export function constants(calls, { isTemporary }) {
  const writers = countWriters(calls.map(accesses));
  /** @type {Map<Allocation, number>} */
  const known = new Map();
  let folded = 0;
  /** @param {Call} call @param {string} name @param {Call['attributes']} attributes @param {Call['inputs']} inputs @returns {Call} */
  const changed = (call, name, attributes, inputs) => {
    folded++;
    return callInPlaceOf(call, { op: operations.get(name), attributes, inputs, outputs: call.outputs });
  };
  const result = calls.map((call) => {
    const { op, attributes, inputs, outputs } = call;
    const [y] = outputs;
    if (op?.name === 'times') {
      const factor = inputs[1].layout.offset === 0 ? known.get(inputs[1].allocation) : undefined;
      return factor === undefined ? call : changed(call, 'affine', { name: 'mul', alpha: factor, beta: -0 }, [inputs[0]]);
    }
    if (!op || y?.layout.dtype !== 'f32') return call;
    // Memory that is written several times has no single value.
    const once = isTemporary(y.allocation) && writers.get(y.allocation) === 1 && y.layout.offset === 0;
    const value = (/** @type {number} */ i) => (inputs[i].layout.dtype === 'f32' ? known.get(inputs[i].allocation) : undefined);
    if (op.name === 'full' && once) known.set(y.allocation, fround(attributes.value));
    if (op.name === 'affine' && once) {
      const x = value(0);
      if (x === undefined) return call;
      const number = affine(x, attributes.alpha, attributes.beta);
      known.set(y.allocation, number);
      return changed(call, 'full', { shape: y.layout.shape, value: number, dtype: 'f32' }, []);
    }
    if (op.name === 'mul') {
      const at = [1, 0].find((i) => value(i) !== undefined && inputs[1 - i].layout.size === y.layout.size);
      if (at === undefined) return call;
      return changed(call, 'affine', { name: 'mul', alpha: value(at), beta: -0 }, [inputs[1 - at]]);
    }
    return call;
  });
  return { calls: result, found: folded };
}
