/** States of the GPT on the host, for tests. */

import { parameterShapes, sizeOf } from '../../packages/lm/src/train/state.mjs';

/** @typedef {import('../../packages/lm/src/train/state.mjs').HostState} HostState */

/**
 * A state with one number everywhere.
 * @param {import('../../packages/lm/src/train/config.mjs').ModelConfig} model @param {number} [value]
 * @returns {HostState}
 */
export const filled = (model, value = 0) =>
  Object.fromEntries(Object.entries(parameterShapes(model)).map(([name, shape]) => [name, new Float32Array(sizeOf(shape)).fill(value)]));

/** A copy in float64. @param {HostState} state @returns {Record<string, Float64Array>} */
export const toFloat64 = (state) => Object.fromEntries(Object.entries(state).map(([name, values]) => [name, Float64Array.from(values)]));

/** The bits of a state's elements, by name: NaN equals NaN, and 0 is not -0. @param {HostState} state @returns {Record<string, Uint32Array>} */
export const bitsOf = (state) =>
  Object.fromEntries(
    Object.entries(state).map(([name, { buffer, byteOffset, length }]) => [name, new Uint32Array(buffer, byteOffset, length)]),
  );

/** All elements of a state, parameter after parameter in the order of their names. @param {HostState} state */
export function joined(state) {
  const parts = Object.keys(state)
    .sort()
    .map((name) => state[name]);
  const all = new Float32Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
