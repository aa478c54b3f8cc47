// What passes work on: the calls of a trace, in order, with the memory that each reads and writes.

import { SLOT, Template } from '../../kernels/template.mjs';
import { exact } from '../keys.mjs';
import { perDevice } from '../runtime.mjs';

/** @typedef {import('../layout.mjs').Layout} Layout */
/** @typedef {import('../ops/registry.mjs').Op} Op */
/** @typedef {import('../runtime.mjs').Allocation} Allocation */
/** @typedef {import('../../kernels/index.mjs').Kernels} Kernels */

/** Elements in memory. @typedef {{ allocation: Allocation, layout: Layout }} Value */

/**
 * A call of an operation, or (without `op`) dispatches that passes leave as they are.
 * @typedef {object} Call
 * @property {Op} [op]
 * @property {any} attributes
 * @property {Value[]} inputs
 * @property {Value[]} outputs the first may lie in an input's memory: written in place
 * @property {Template | undefined} template its dispatches; undefined once a pass has changed it
 * @property {Allocation[]} allocations what the template's slots are
 * @property {string} [name] what it is, of a call without `op`
 * @property {number} [bytes] that it reads and writes, of a call without `op`
 * @property {string} [origin] the line of the user's program
 * @property {{ name: string, origin: string | undefined }[]} [parts] what was recorded as calls of their own and is one now
 * @property {number} [region] what `checkpoint` computes again has a number of its own
 * @property {string} [kernel] the kernel that gets the further arguments
 * @property {Record<string, unknown>} [options] further arguments: plain values
 * @property {Set<Value>} [dropped] operands that were replaced
 * @property {Set<number>} [unbound] slots of the template that no dispatch binds
 * @property {Record<string, Value>} [extra] further arguments: tensors. What replaces an operand has its kernel's name
 */

/**
 * What passes know besides the calls: whether memory was made for the graph, whether it lives within a call of it alone, and how to
 * make more of that.
 * @typedef {{ isOwn: (allocation: Allocation) => boolean, isTemporary: (allocation: Allocation) => boolean, allocate: (bytes: number) => Allocation, kernels: Kernels }} Context
 */

/** Arguments of kernels that are written. */
const WRITTEN = new Set(['c', 'y', 'dx', 'dWeight', 'blockSums', 'copy', 'gradient', 'dGateUp']);

/**
 * Memory that a call touches, whole allocations. What is written counts as read, too, where it was there before.
 * @param {Call} call
 * @returns {{ reads: Set<Allocation>, writes: Set<Allocation> }}
 */
export function accesses(call) {
  const reads = new Set();
  const writes = new Set();
  if (call.template) {
    const { written } = call.template;
    call.allocations.forEach((allocation, slot) => {
      if (!call.unbound?.has(slot)) (written.has(slot) ? writes : reads).add(allocation);
    });
    return { reads, writes };
  }
  const { inputs, outputs } = effective(call);
  for (const { allocation } of inputs) reads.add(allocation);
  for (const { allocation } of outputs) writes.add(allocation);
  return { reads, writes };
}

/**
 * Operands of a call with those that were replaced left out.
 * @param {Call} call
 * @returns {{ inputs: Value[], outputs: Value[] }}
 */
export function effective({ inputs, outputs, extra, dropped }) {
  // Most calls are as they were recorded.
  if (!extra && !dropped) return { inputs, outputs };
  const own = Object.entries(extra ?? {});
  return {
    inputs: [...inputs.filter((value) => !dropped?.has(value)), ...own.filter(([name]) => !WRITTEN.has(name)).map(([, value]) => value)],
    outputs: [...outputs.filter((value) => !dropped?.has(value)), ...own.filter(([name]) => WRITTEN.has(name)).map(([, value]) => value)],
  };
}

/** Templates of changed calls. @type {Map<string, Template>} */
const templates = perDevice(new Map());
/** @type {WeakMap<Op, number>} */
const numbers = new WeakMap();
let number = 0;

/**
 * Makes the template of a changed call.
 * @param {Call} call @param {Kernels} kernels
 */
export function lower(call, kernels) {
  const { op, attributes, inputs, outputs, kernel, options = {}, extra = {} } = call;
  if (call.template || !op) return;
  const names = Object.keys(extra);
  const values = [...inputs, ...outputs, ...Object.values(extra)];
  if (!numbers.has(op)) numbers.set(op, number++);
  const key = `${numbers.get(op)} ${exact([attributes, options, names])} ${inputs.length} ${values.map(({ layout }) => layout.id)}`;
  let template = templates.get(key);
  if (!template) {
    const operands = values.map(({ layout }, slot) => ({ buffer: SLOT + slot, offset: layout.offset, layout }));
    const further = Object.fromEntries(names.map((name, i) => [name, operands[inputs.length + outputs.length + i]]));
    const changed = Object.create(kernels);
    if (kernel) changed[kernel] = (/** @type {any} */ args) => /** @type {any} */ (kernels)[kernel]({ ...args, ...options, ...further });
    template = new Template(
      ...op.lower(changed, operands.slice(0, inputs.length), operands.slice(inputs.length, inputs.length + outputs.length), attributes),
    );
    if (templates.size >= 4096) templates.clear();
    templates.set(key, template);
  }
  // Slots of operands that were replaced are bound by no dispatch: they hold no memory.
  const used = new Set(template.slots);
  call.template = template;
  call.allocations = values.map(({ allocation }) => allocation);
  call.unbound = new Set(Array.from(values.keys()).filter((slot) => !used.has(slot)));
}
