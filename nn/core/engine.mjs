// Calls operations: makes inputs dense, finds or makes a plan, appends the plan's dispatches, and records a node for the backward pass.

import { SLOT, Template } from '../../kernels/template.mjs';
import { Node, checkTwice, isGradEnabled } from './node.mjs';
import { ArgumentError, ShapeError, UsageError, describe, show, within } from './errors.mjs';
import { NO_ATTRIBUTES, keyOf } from './keys.mjs';
import { BYTES, isFloat, overlaps } from './layout.mjs';
import { recordingNow, runtime } from './runtime.mjs';
import { allocate } from './storage.mjs';
import { TensorCore, makeTensor } from './tensor.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('./layout.mjs').Layout} Layout */
/** @typedef {import('./storage.mjs').Storage} Storage */
/** @typedef {import('../ops/registry.mjs').Attributes} Attributes */
/** @typedef {import('../ops/registry.mjs').Op} Op */
/** @typedef {import('../ops/registry.mjs').Operand} Operand */
/** @typedef {import('../ops/registry.mjs').Plan} Plan */

/** The operations that write what `empty` says; see {@link setWriters}. @type {{ fill: Op, copy: Op }} */
let writers;
/** Registers the operations that write a number and a tensor. @param {{ fill: Op, copy: Op }} operations */
export const setWriters = (operations) => {
  writers = operations;
};

/** The most plans that are kept for one operation. */
const MAX_PLANS = 4096;

/**
 * Appends an operation's dispatches.
 * @param {Op} op @param {Tensor[]} inputs @param {Attributes} attributes @param {Tensor} [target] the tensor to write the result into
 * @returns {{ storages: Storage[], layouts: Layout[], origin: string | undefined }} the storages of inputs, then outputs; the layouts of
 *   outputs; while a function is compiled, the line of the user's program
 */
function execute(op, inputs, attributes, target) {
  let key = attributes === NO_ATTRIBUTES ? '' : keyOf(attributes);
  for (let i = 0; i < inputs.length; i++) {
    const input = inputs[i];
    if (!(input instanceof TensorCore)) throw new ArgumentError(attributes.name ?? op.name, `expected a tensor, got ${describe(input)}`);
    storageOf(attributes.name ?? op.name, input);
    const { layout } = input;
    // Kernels read 16-bit elements in pairs, which must start at an even element.
    const misplaced = BYTES[layout.dtype] === 2 && layout.offset % 2 === 1 && op.name !== 'copy';
    // Two operands of so many strides do not fit the push constants.
    const spread = layout.dtype === 'i64' && layout.shape.length > 3 && op.body !== undefined;
    if (misplaced || ((op.strided !== true || spread) && !layout.contiguous))
      inputs[i] = within(attributes.name ?? op.name, () => input.clone());
    key += `,${inputs[i].layout.id}`;
  }
  const recording = recordingNow();
  if (recording) for (const input of inputs) recording.use(input);
  if (target) key += `>${target.layout.id}`;
  const { plans } = op;
  const device = runtime();
  let plan = plans.get(key);
  if (plan === undefined) {
    plan = planOf(op, inputs, attributes, target?.layout);
    if (plans.size >= MAX_PLANS) plans.clear();
    plans.set(key, plan);
    device.misses++;
  } else device.hits++;

  const { outputs: layouts, template } = plan;
  /** @type {Storage[]} */
  const storages = new Array(inputs.length + layouts.length);
  for (let i = 0; i < inputs.length; i++) {
    storages[i] = /** @type {Storage} */ (inputs[i].storage);
    storages[i].fetch?.();
  }
  for (let i = 0; i < layouts.length; i++) {
    storages[inputs.length + i] =
      i === 0 && target ? /** @type {Storage} */ (target.storage) : allocate(layouts[i].size * BYTES[layouts[i].dtype]);
  }
  if (plan.empty) writeEmpty(op, inputs, attributes, storages, layouts);
  /** @type {string | undefined} */
  let origin;
  if (template) {
    if (recording)
      origin = recording.append(template, storages, {
        op,
        attributes,
        inputs: inputs.length,
        layouts: [...inputs.map((input) => input.layout), ...layouts],
      });
    else device.append(template, storages);
  }
  return { storages, layouts, origin };
}

/**
 * Writes the outputs of a call of which an input has no elements, by calls of other operations: passes of `compile` see only these.
 * @param {Op} op @param {Tensor[]} inputs @param {Attributes} attributes @param {Storage[]} storages of inputs, then outputs
 * @param {Layout[]} layouts of outputs
 */
function writeEmpty(op, inputs, attributes, storages, layouts) {
  const { empty } = op;
  const values = typeof empty === 'function' ? empty(inputs, attributes) : layouts.map(() => empty);
  layouts.forEach((layout, i) => {
    if (layout.size === 0) return;
    const { shape, dtype } = layout;
    const value = /** @type {number | Tensor} */ (values[i]);
    const target = /** @type {Tensor} */ ({ storage: storages[inputs.length + i], layout });
    if (typeof value === 'number') execute(writers.fill, [], { shape: [...shape], value, dtype }, target);
    else
      execute(
        writers.copy,
        [
          value
            .detach()
            .to(dtype)
            .expand(...shape),
        ],
        NO_ATTRIBUTES,
        target,
      );
  });
}

/**
 * Calls an operation, after its `prepare` if it has one.
 * @param {Op} op
 * @param {Tensor[]} inputs modified: an input that must be dense is replaced by a copy
 * @param {Attributes} [attributes] plain values
 * @returns {Tensor}
 */
export function apply(op, inputs, attributes = NO_ATTRIBUTES) {
  if (op.prepare) return op.prepare(inputs, (own, chosen = attributes) => run(op, own, chosen), attributes);
  return run(op, inputs, attributes);
}

/** Calls an operation without its `prepare`. @param {Op} op @param {Tensor[]} inputs @param {Attributes} attributes @returns {Tensor} */
function run(op, inputs, attributes) {
  const { storages, layouts, origin } = execute(op, inputs, attributes);
  const result = makeTensor(storages[inputs.length], layouts[0]);
  if (!remember(result, op, attributes, inputs, storages, layouts, origin))
    for (let i = 1; i < layouts.length; i++) drop(storages[inputs.length + i]);
  return result;
}

/** Has the backward pass go over a result, if a gradient flows through it. @param {Tensor} result @param {ConstructorParameters<typeof Node>} node */
function remember(result, ...node) {
  const [op, , inputs] = node;
  if (!isGradEnabled() || !inputs.some(needsGrad)) return false;
  if (!op.vjp) {
    if (isFloat(result.dtype)) checkTwice();
    return false;
  }
  result.node = new Node(...node);
  result.requiresGrad = true;
  return true;
}

/**
 * Calls an operation and returns all of its outputs, of which the first has gradients.
 * @param {Op} op @param {Tensor[]} inputs @param {Attributes} [attributes]
 * @returns {Tensor[]}
 */
export function applyKept(op, inputs, attributes = NO_ATTRIBUTES) {
  const { storages, layouts, origin } = execute(op, inputs, attributes);
  const results = layouts.map((layout, i) => makeTensor(storages[inputs.length + i], layout));
  remember(results[0], op, attributes, inputs, storages, layouts, origin);
  return results;
}

/**
 * Calls an operation and returns all of its outputs, without gradients.
 * @param {Op} op @param {Tensor[]} inputs @param {Attributes} [attributes]
 * @returns {Tensor[]}
 */
export function applyAll(op, inputs, attributes = NO_ATTRIBUTES) {
  if (isGradEnabled() && inputs.some(needsGrad)) checkTwice();
  const { storages, layouts } = execute(op, inputs, attributes);
  return layouts.map((layout, i) => makeTensor(storages[inputs.length + i], layout));
}

/**
 * Calls an operation and writes its result into `target`. Throws a UsageError if gradients flow through the target or an input, and if
 * several elements of the target share memory.
 * @param {Op} op @param {Tensor[]} inputs @param {Attributes} attributes @param {Tensor} target
 */
export function applyInto(op, inputs, attributes = NO_ATTRIBUTES, target = inputs[0]) {
  const { fetch } = storageOf(op.name, target);
  const { name = op.name } = attributes;
  const method = name.endsWith('_') ? name : `${name}_`;
  if (fetch !== undefined)
    throw new UsageError(method, 'each process has a part of this parameter (zero: 3): optimizer.setParameter() changes it');
  if (isGradEnabled() && (target.requiresGrad || inputs.some(needsGrad))) {
    throw new UsageError(
      method,
      !target.requiresGrad
        ? 'gradients cannot flow through a change in place to what is written: make a new tensor, by stack, cat, where or scatter, or write its detach()'
        : target.isParameter || target.node === undefined
          ? 'a tensor that requires a gradient cannot be changed in place: do it in noGrad(() => …)'
          : 'a result that gradients flow through cannot be changed in place: use the operation that returns a new tensor',
    );
  }
  if (target.size > 0 && overlaps(target.layout)) {
    throw new UsageError(
      method,
      `several elements of ${show(target.shape)} share memory, as expand() and unfold() make them: write into a clone()`,
    );
  }
  const { storages, layouts } = execute(op, inputs, attributes, target);
  /** @type {Storage} */ (target.storage).version++;
  for (let i = 1; i < layouts.length; i++) drop(storages[inputs.length + i]);
  return target;
}

/** @param {Tensor} tensor */
const needsGrad = (tensor) => tensor.requiresGrad;

/** Frees a storage unless something else holds it. @param {Storage} storage */
function drop(storage) {
  storage.retain();
  storage.release();
}

/**
 * Makes the plan of a call: the layouts of the outputs, and the dispatches over slots.
 * @param {Op} op @param {Tensor[]} inputs @param {Attributes} attributes @param {Layout} [target]
 * @returns {Plan}
 */
function planOf(op, inputs, attributes, target) {
  const layouts = inputs.map((input) => input.layout);
  const outputs = op.infer(layouts, attributes);
  if (target) outputs[0] = target;
  for (const layout of outputs) checkBytes(attributes.name ?? op.name, layout);
  // Kernels need at least one element. A call with new layouts always makes a plan, so this covers all operations.
  if (outputs.every(({ size }) => size === 0)) return { outputs, template: undefined, empty: false };
  const nothing = layouts.find(({ size }) => size === 0);
  if (nothing && op.empty !== 'lower') {
    if (op.empty === undefined) {
      const result = outputs.find(({ size }) => size > 0);
      throw new ShapeError(
        attributes.name ?? op.name,
        `a tensor ${show(nothing.shape)} has no elements, of which there is no result ${show(result?.shape ?? [])}`,
      );
    }
    return { outputs, template: undefined, empty: true };
  }
  /** @param {Layout} layout @param {number} slot @returns {Operand} */
  const operand = (layout, slot) => ({ buffer: SLOT + slot, offset: layout.offset, layout });
  const dispatches = op.lower(
    runtime().kernels,
    layouts.map(operand),
    outputs.map((layout, i) => operand(layout, inputs.length + i)),
    attributes,
  );
  return { outputs, template: dispatches.length > 0 ? new Template(...dispatches) : undefined, empty: false };
}

/**
 * Makes a view: a tensor of the inferred layout over the input's storage, or over another storage that already holds the result.
 * @param {Op} op @param {Tensor} input @param {Layout} layout @param {Attributes} attributes @param {Storage} [storage]
 */
export function view(op, input, layout, attributes, storage) {
  const own = storageOf(op.name, input);
  const recording = recordingNow();
  recording?.use(input);
  recording?.viewed({ op, attributes, inputs: 1, layouts: [input.layout, layout] }, own, storage ?? own);
  const result = makeTensor(storage ?? own, layout);
  if (input.requiresGrad && isGradEnabled()) {
    result.node = new Node(op, attributes, [input], [own], []);
    result.requiresGrad = true;
  }
  return result;
}

/** Throws a ShapeError if a tensor would not fit one buffer of the device. @param {string} op @param {Layout} layout */
export function checkBytes(op, { dtype, shape, size }) {
  const bytes = size * BYTES[dtype];
  const { maxBytes } = runtime();
  if (bytes > maxBytes) {
    throw new ShapeError(op, `a tensor ${show(shape)} of ${dtype} has ${bytes} bytes; this device allows at most ${maxBytes}`);
  }
}

/** Why a tensor has no memory, and what the user can do about it. */
const FATES = {
  disposed: 'was disposed of (by dispose(), or at the end of the scope that it was made in; return it from there, or keep() it)',
  traced: 'was made while a function was compiled and never had a value: return it from the function, alone or in arrays and plain objects',
  reused: 'was the result of an earlier call of a compiled function with { reuseOutputs: true }, which a later call has reused',
};

/**
 * The memory of a tensor.
 * @param {string} op @param {Tensor} tensor
 * @returns {Storage}
 * @throws {UsageError} if the tensor has no memory any more, with the reason
 */
export function storageOf(op, tensor) {
  const { storage } = tensor;
  if (storage === undefined) throw disposed(op, tensor);
  if (storage.allocation.sink.closed) throw new UsageError(op, 'reset() closed the device of this tensor: make it anew');
  return storage;
}

/** @param {string} op @param {Tensor} tensor */
const disposed = (op, tensor) => new UsageError(op, `the tensor ${FATES[tensor.fate]}`);

/** Checks that x is a tensor that has memory, and returns it. @param {string} op @param {unknown} x @returns {Tensor} */
export function tensorOf(op, x) {
  if (!(x instanceof TensorCore)) throw new ArgumentError(op, `expected a tensor, got ${describe(x)}`);
  storageOf(op, /** @type {Tensor} */ (x));
  return /** @type {Tensor} */ (x);
}
