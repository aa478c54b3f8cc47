// The intermediate representation of passes: the calls of a trace, in order, with the memory that each reads and writes.

import { SLOT, Template } from '../../../kernels/template.mjs';
import { keyOf } from '../../core/keys.mjs';
import { perDevice } from '../../core/runtime.mjs';

/** @typedef {import('../../core/layout.mjs').Layout} Layout */
/** @typedef {import('../../ops/registry.mjs').Op} Op */
/** @typedef {import('../../core/runtime.mjs').Allocation} Allocation */
/** @typedef {import('../../../kernels/index.mjs').Kernels} Kernels */
/** @typedef {import('../../optim/half-copy.mjs').HalfCopy} HalfCopy */
/** @typedef {import('../../optim/half-copy.mjs').PermutedCopy} PermutedCopy */

/** Elements in memory. @typedef {{ allocation: Allocation, layout: Layout }} Value */

/**
 * A call of an operation; without `op`, dispatches that passes do not change.
 * @typedef {object} Call
 * @property {Op} [op]
 * @property {import('../../ops/registry.mjs').Attributes} attributes
 * @property {Value[]} inputs
 * @property {Value[]} outputs the first may share an input's memory: written in place
 * @property {Template | undefined} template its dispatches; undefined once a pass has changed the call
 * @property {Allocation[]} allocations the memory of the template's slots; no dispatch binds those of replaced operands
 * @property {string} [name] of a call without `op`
 * @property {number} [bytes] that a call without `op` reads and writes
 * @property {() => Template} [permuted] of a call that writes weights, which are then gathered, into its second allocation: makes the template that
 *   writes them in the order of permuted copies
 * @property {(handles: number[]) => void} [host] what the host calls at this point, between two parts of the graph, such as a collective
 * @property {string} [origin] the line of the user's program
 * @property {{ name: string, origin: string | undefined }[]} [parts] the recorded calls that were fused into this one
 * @property {number} [region] what `checkpoint` computes again is in a region of its own
 * @property {boolean} [late] whether no order may have it run earlier, so that its result does not live longer
 * @property {string} [kernel] the kernel that gets the further arguments `options` and `extra`
 * @property {Record<string, unknown>} [options] further arguments that are plain values
 * @property {Set<Value>} [dropped] operands that were replaced
 * @property {Record<string, Value>} [extra] further arguments that are tensors, by the kernel's argument names
 */

/**
 * What passes may use besides the calls.
 * @typedef {object} Context
 * @property {(allocation: Allocation) => boolean} isOwn whether memory was allocated in the trace
 * @property {(allocation: Allocation) => boolean} isTemporary whether memory is used only inside a call of the graph
 * @property {(allocation: Allocation) => boolean} isSteady whether memory is from before the trace, and only what changes its version changes it
 * @property {(allocation: Allocation) => boolean} isCleared whether memory holds gradients of parameters of which the function clears every one that it
 *   makes: none is there before a call or after it
 * @property {Call[]} once calls whose results are kept between calls of the graph
 * @property {(bytes: number) => Allocation} allocate allocates temporary memory
 * @property {Kernels} kernels
 * @property {Map<Allocation, HalfCopy>} halves 16-bit copies of parameters that the calls use
 * @property {(copy: PermutedCopy) => void} keep brings another copy up to date before each launch
 * @property {(copy: HalfCopy) => void} abandon says that no call reads a copy any more, and that none leaves it up to date
 */

/**
 * The result of a pass.
 * @typedef {object} Passed
 * @property {Call[]} calls
 * @property {number | Record<string, number>} found how often it found what it looks for; by name if it looks for several things
 */

/** Names of kernel arguments that the kernel writes. */
const WRITTEN = new Set(['c', 'y', 'dx', 'dWeight', 'blockSums', 'copy', 'gradient', 'dGateUp', 'permuted']);

/**
 * The allocations that a call reads and writes, each listed once. An operand that is written in place counts as both.
 * @param {Call} call
 * @returns {{ reads: Allocation[], writes: Allocation[] }}
 */
export function accesses(call) {
  /** @type {Allocation[]} */
  const reads = [];
  /** @type {Allocation[]} */
  const writes = [];
  // A call has few allocations, so lists are faster than sets.
  const add = (/** @type {Allocation[]} */ list, /** @type {Allocation} */ allocation) => {
    if (!list.includes(allocation)) list.push(allocation);
  };
  const { template, allocations } = call;
  if (template) {
    for (const slot of template.read) add(reads, allocations[slot]);
    for (const slot of template.written) add(writes, allocations[slot]);
  } else {
    const { inputs, outputs } = effective(call);
    for (const { allocation } of inputs) add(reads, allocation);
    for (const { allocation } of outputs) add(writes, allocation);
  }
  return { reads, writes };
}

/**
 * A new call that replaces another one, with its line and region.
 * @param {Pick<Call, 'origin' | 'region'>} source the call that it replaces
 * @param {Pick<Call, 'op' | 'attributes' | 'inputs' | 'outputs' | 'parts' | 'kernel' | 'options'>} made
 * @returns {Call} without a template: `lower` makes one
 */
export const callInPlaceOf = ({ origin, region }, made) => ({ ...made, template: undefined, allocations: [], origin, region });

/** A call on other memory: without a change the call itself. @param {Call} call @param {Map<Allocation, Allocation>} renamed @returns {Call} */
export function movedTo(call, renamed) {
  const { reads, writes } = accesses(call);
  if (![...reads, ...writes].some((allocation) => renamed.has(allocation))) return call;
  // Dropped operands are known by identity.
  const of = (/** @type {Value} */ value) => {
    const allocation = renamed.get(value.allocation);
    return allocation && !call.dropped?.has(value) ? { ...value, allocation } : value;
  };
  return {
    ...call,
    inputs: call.inputs.map(of),
    outputs: call.outputs.map(of),
    ...(call.extra && { extra: Object.fromEntries(Object.entries(call.extra).map(([name, value]) => [name, of(value)])) }),
    allocations: call.allocations.map((allocation) => renamed.get(allocation) ?? allocation),
  };
}

/** The number of calls that write each allocation. @param {{ writes: Allocation[] }[]} all of each call @returns {Map<Allocation, number>} */
export function countWriters(all) {
  /** @type {Map<Allocation, number>} */
  const writers = new Map();
  for (const { writes } of all) for (const allocation of writes) writers.set(allocation, (writers.get(allocation) ?? 0) + 1);
  return writers;
}

/** Arguments of a kernel by name. @typedef {Record<string, any>} KernelArgs `any`, since it covers all kernels */
/** A kernel and its arguments. @typedef {{ kernel: string, args: KernelArgs }} KernelCall */

/** The calls that write and read an allocation, by index. @typedef {{ writers: Set<number>, readers: Set<number> }} Uses */

/** The uses of each allocation. */
export class UseMap {
  constructor() {
    /** @type {Map<Allocation, Uses>} */
    this.uses = new Map();
  }
  /** @param {Allocation} allocation @returns {Uses} */
  of(allocation) {
    let uses = this.uses.get(allocation);
    if (!uses) this.uses.set(allocation, (uses = { writers: new Set(), readers: new Set() }));
    return uses;
  }
  /** @param {Call} call @param {number} i its number */
  note(call, i) {
    const { reads, writes } = accesses(call);
    for (const allocation of reads) this.of(allocation).readers.add(i);
    for (const allocation of writes) this.of(allocation).writers.add(i);
  }
  /** @param {Call} call @param {number} i its number */
  forget(call, i) {
    const { reads, writes } = accesses(call);
    for (const allocation of reads) this.of(allocation).readers.delete(i);
    for (const allocation of writes) this.of(allocation).writers.delete(i);
  }
}

/**
 * The operands that a call really has: without those that were replaced, and with the further ones.
 * @param {Call} call
 * @returns {{ inputs: Value[], outputs: Value[] }}
 */
export function effective({ inputs, outputs, extra, dropped }) {
  // Most calls are unchanged.
  if (!extra && !dropped) return { inputs, outputs };
  const [read, written] = [inputs, outputs].map((values) => values.filter((value) => !dropped?.has(value)));
  for (const name in extra) (WRITTEN.has(name) ? written : read).push(extra[name]);
  return { inputs: read, outputs: written };
}

/** Templates of changed calls. @type {Map<string, Template>} */
const templates = perDevice(new Map());
/** Has all templates made again, since kernels would choose other plans now. */
export const forgetTemplates = () => templates.clear();
/** @type {WeakMap<Op, number>} */
const numbers = new WeakMap();
let number = 0;

/** Operands, results and further tensors of a call: value i is slot i of its dispatches. @param {Call} call @returns {Value[]} */
export const valuesOf = ({ inputs, outputs, extra = {} }) => [...inputs, ...outputs, ...Object.values(extra)];

/**
 * The dispatches of a call, over slots.
 * @param {Call & { op: Op }} call @param {Kernels} kernels
 */
function dispatchesOf(call, kernels) {
  const { op, attributes, inputs, outputs, kernel, options = {}, extra = {} } = call;
  const operands = valuesOf(call).map(({ layout }, slot) => ({ buffer: SLOT + slot, offset: layout.offset, layout }));
  const further = Object.fromEntries(Object.keys(extra).map((name, i) => [name, operands[inputs.length + outputs.length + i]]));
  const changed = Object.create(kernels);
  if (kernel) changed[kernel] = (/** @type {KernelArgs} */ args) => Reflect.get(kernels, kernel)({ ...args, ...options, ...further });
  return op.lower(changed, operands.slice(0, inputs.length), operands.slice(inputs.length, inputs.length + outputs.length), attributes);
}

/**
 * The kernels that a call would run, without making dispatches.
 * @param {Call & { op: Op }} call @param {Kernels} kernels @param {string[]} names of all kernels that the operation may call
 * @returns {KernelCall[]} with arguments over slots
 */
export function kernelCalls(call, kernels, names) {
  /** @type {KernelCall[]} */
  const list = [];
  const note = (/** @type {string} */ kernel) => (/** @type {KernelArgs} */ args) => {
    list.push({ kernel, args });
    return [];
  };
  dispatchesOf(call, Object.assign(Object.create(kernels), Object.fromEntries(names.map((name) => [name, note(name)]))));
  return list;
}

/**
 * Makes the template of a changed call; does nothing for others.
 * @param {Call} call @param {Kernels} kernels
 */
export function lower(call, kernels) {
  const { op, attributes, inputs, options = {}, extra = {} } = call;
  if (call.template || !op) return;
  const names = Object.keys(extra);
  const values = valuesOf(call);
  if (!numbers.has(op)) numbers.set(op, number++);
  const key = `${numbers.get(op)} ${keyOf(attributes)} ${keyOf(options)} ${names} ${inputs.length} ${values.map(({ layout }) => layout.id)}`;
  let template = templates.get(key);
  if (!template) {
    template = new Template(...dispatchesOf({ ...call, op }, kernels));
    if (templates.size >= 4096) templates.clear();
    templates.set(key, template);
  }
  call.template = template;
  call.allocations = values.map(({ allocation }) => allocation);
}
