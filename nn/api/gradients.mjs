// The functions that gradients are written in: those of `functional.mjs`, and operations as they are.

import { apply, applyAll } from '../core/engine.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {import('../ops/registry.mjs').Op} Op */

export * from './functional.mjs';
export { band, diagonal, windows } from './shape.mjs';

/** An operation by itself, for backward passes. @param {Op} op @param {Tensor[]} inputs @param {import('../ops/registry.mjs').Attributes} [attributes] */
export const call = (op, inputs, attributes) => apply(op, inputs, attributes);
/**
 * As `call`, with all outputs: the result, and what is kept for the backward pass.
 * @param {Op} op @param {Tensor[]} inputs @param {import('../ops/registry.mjs').Attributes} [attributes]
 */
export const callAll = (op, inputs, attributes) => applyAll(op, inputs, attributes);
