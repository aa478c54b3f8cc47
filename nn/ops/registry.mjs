// The operations: everything that is known of each, in one list that the tests go through.

import { perDevice } from '../core/runtime.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../../kernels/base.mjs').Dispatches} Dispatches */
/** @typedef {import('../../kernels/index.mjs').Kernels} Kernels */
/** @typedef {import('../../kernels/template.mjs').Template} Template */
/** @typedef {import('../core/codegen.mjs').Program} Program */
/** @typedef {import('../core/codegen.mjs').Value} Value */

/**
 * A tensor of an operation as kernels take it.
 * @typedef {{ buffer: number, offset: number, layout: Layout }} Operand
 */

/**
 * A dense array in float64, for references.
 * @typedef {{ shape: readonly number[], data: Float64Array }} Reference
 */

/**
 * What an operation's backward pass is given.
 * @typedef {object} Saved
 * @property {Tensor[]} inputs those of `saveInputs`; the others are holes
 * @property {Tensor[]} outputs those of `saveOutputs`
 * @property {Layout[]} layouts of all inputs
 * @property {any} attributes
 * @property {boolean[]} needs which inputs' gradients are asked for
 */

/** The operations as functions of tensors: they stand above the registry. @typedef {typeof import('../api/gradients.mjs')} Functions */

/**
 * An operation. Everything that is known of it is here; the tests go through the list.
 * @typedef {object} Op
 * @property {string} name for errors, and by which the list finds it
 * @property {(inputs: Layout[], attributes: any) => Layout[]} infer the outputs' layouts, dense; throws what is wrong
 *   with the inputs. The first output is the result, others are kept for the backward pass
 * @property {(inputs: Tensor[], run: (inputs: Tensor[], attributes?: any) => Tensor) => Tensor} [prepare] makes a call one that this device's kernels
 *   take: gives its inputs another type or order by methods of tensors, calls `run` with them, and gives the result the form that it has
 *   to have. The engine calls it first. When left out, the call runs as it is
 * @property {(kernels: Kernels, inputs: Operand[], outputs: Operand[], attributes: any) => (Dispatches | Dispatches[])[]} lower the
 *   dispatches of its kernels, in order
 * @property {(program: Program, inputs: Value[], attributes: any, numbers: (...values: number[]) => Value[]) => Value} [body] of what is
 *   computed element by element: one element, as instructions of a generated kernel. `numbers` makes values of f32, before anything
 *   is appended
 * @property {(dy: Tensor, saved: Saved, F: Functions) => (Tensor | undefined)[]} [vjp] gradients of the inputs from that of the result,
 *   written in the operations that it is handed; without it the result has no gradient
 * @property {(needs: boolean[]) => number[]} [saveInputs] inputs that `vjp` reads; none when left out
 * @property {number[]} [saveOutputs] outputs that `vjp` reads
 * @property {(inputs: Layout[], outputs: Layout[], attributes: any) => number} [flops] floating-point operations of its products, for
 *   profiles: 2 for each multiplication, whatever the kernel does inside; none when left out
 * @property {number} [main] which of its dispatches does these; the first, 0, when left out
 * @property {boolean} [strided] whether `lower` takes inputs of any strides; otherwise they are made dense first
 * @property {(inputs: Reference[], attributes: any) => Reference} oracle the result in float64
 * @property {Map<string, Plan>} plans what calls do, by layouts and attributes: each is made once
 */

/**
 * What a call of an operation does, by layouts and attributes.
 * @typedef {{ outputs: Layout[], template: Template | undefined }} Plan
 */

/** All operations by name. @type {Map<string, Op>} */
export const operations = new Map();

/**
 * Enters an operation.
 * @param {Omit<Op, 'plans'>} op
 * @returns {Op}
 */
export function defineOp(op) {
  const entry = { ...op, plans: perDevice(new Map()) };
  operations.set(op.name, entry);
  return entry;
}
