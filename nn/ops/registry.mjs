// The registry: one entry for each operation, with everything that is known of it. Tests go through the list.

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
 * Attributes of a call: plain values by name. An operation declares its own where it is defined.
 * @typedef {Record<string, any>} Attributes any: the registry is one list of operations with attributes of all types
 */

/**
 * What an operation's backward pass is given.
 * @template {Attributes} [A=Attributes]
 * @typedef {object} Saved
 * @property {Tensor[]} inputs those of `saveInputs`; the others are holes
 * @property {Tensor[]} outputs those of `saveOutputs`
 * @property {Layout[]} layouts of all inputs
 * @property {A} attributes
 * @property {boolean[]} needs which inputs' gradients are asked for
 * @property {Tensor[]} [edges] where gradients have gradients: stand-ins of all inputs, without values, through which gradients flow to these
 */

/** The operations as functions of tensors: they stand above the registry. @typedef {typeof import('../api/gradients.mjs')} Functions */

/**
 * Makes constants of a generated kernel, f32 or of an integer type. Call it before anything is appended.
 * @typedef {(...values: (number | import('../core/codegen.mjs').Integer)[]) => Value[]} Constants
 */

/**
 * Everything that is known of an operation; the tests go through the list.
 * @template {Attributes} [A=Attributes]
 * @typedef {object} Definition
 * @property {string} name for errors; unique in the list
 * @property {(inputs: Layout[], attributes: A) => Layout[]} infer the outputs' layouts, dense. Throws a ShapeError or ArgumentError that says
 *   what is wrong with the inputs. The first output is the result; the others are for the backward pass
 * @property {(inputs: Tensor[], run: (inputs: Tensor[], attributes?: Attributes) => Tensor, attributes: A) => Tensor} [prepare] adapts a call to this device. It
 *   converts and lays out the inputs by methods of tensors, calls `run` with them, and converts the result back. The engine calls it first;
 *   when left out, the call runs as it is
 * @property {(kernels: Kernels, inputs: Operand[], outputs: Operand[], attributes: A) => (Dispatches | Dispatches[])[]} lower the
 *   dispatches of its kernels, in order
 * @property {(program: Program, inputs: Value[], attributes: A, numbers: Constants) => Value} [body] one element, as instructions of a
 *   generated kernel; of elementwise operations
 * @property {(dy: Tensor, saved: Saved<A>, F: Functions) => (Tensor | undefined)[]} [vjp] the inputs' gradients from the result's, written in
 *   the functions `F`. Without it the result has no gradient
 * @property {(needs: boolean[]) => number[]} [saveInputs] indices of the inputs that `vjp` reads; none when left out
 * @property {number[]} [saveOutputs] indices of the outputs that `vjp` reads
 * @property {(inputs: Layout[], outputs: Layout[], attributes: A) => number} [flops] floating-point operations of its products, for
 *   profiles: 2 for each multiplication, whatever the kernel does inside; none when left out
 * @property {number} [main] index of the dispatch that does these; 0 when left out
 * @property {'lower' | number | ((inputs: Tensor[], attributes: A) => (number | Tensor)[])} [empty] what a call means of which an input has no
 *   elements, and an output has: each element of the outputs is the number; or each output is its number, or its tensor broadcast to it;
 *   or `lower` takes such inputs. When left out, the call is an error. A call whose outputs are all empty has no dispatches
 * @property {boolean} [cheap] whether it is one pass over its inputs and outputs, and depends on nothing else: `compile` may run it again in the
 *   backward pass instead of keeping its result, as it may run operations with a `body`
 * @property {boolean} [strided] whether `lower` takes inputs of any strides; otherwise the engine makes them dense first
 * @property {(inputs: Reference[], attributes: A) => Reference} oracle the result in float64
 */

/** An operation of the list, with what calls do, by layouts and attributes: each plan is made once. @typedef {Definition & { plans: Map<string, Plan> }} Op */

/**
 * What a call of an operation does, by layouts and attributes. `empty`: its outputs are what the operation's `empty` says.
 * @typedef {{ outputs: Layout[], template: Template | undefined, empty: boolean }} Plan
 */

/** All operations by name. @type {Map<string, Op>} */
export const operations = new Map();

/**
 * Enters an operation.
 * @template {Attributes} [A=Attributes]
 * @param {Definition<A>} definition
 * @returns {Op}
 */
export function defineOp(definition) {
  // Calls give an operation the attributes that it declares: its function in `api/` makes them.
  const op = /** @type {Definition} */ (/** @type {unknown} */ (definition));
  const entry = { ...op, plans: perDevice(new Map()) };
  operations.set(op.name, entry);
  return entry;
}
