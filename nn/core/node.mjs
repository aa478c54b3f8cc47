// The graph of the backward pass: a node for each operation that gradients flow through, with the values that the operation saved.

import { UsageError, callNow, checkFunction, checkResult, partOf, show } from './errors.mjs';
import { isFloat } from './layout.mjs';
import { recordingNow } from './runtime.mjs';
import { makeTensor } from './tensor.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../ops/registry.mjs').Op} Op */
/** @typedef {import('../ops/registry.mjs').Functions} Functions */
/** @typedef {import('./layout.mjs').Layout} Layout */
/** @typedef {import('./storage.mjs').Storage} Storage */

let enabled = true;
let counter = 0;

/** Whether operations record nodes. */
export const isGradEnabled = () => enabled;

/**
 * Runs `fn` without recording nodes: no gradient flows through what it makes. Parameters may be changed in place in it.
 * @template T
 * @param {() => T} fn synchronous
 * @returns {T}
 */
export function noGrad(fn) {
  const late = 'gradients would be on again after its first await';
  checkFunction('noGrad', fn, late);
  const before = enabled;
  enabled = false;
  try {
    return checkResult('noGrad', fn(), late);
  } finally {
    enabled = before;
  }
}

/**
 * Runs `fn` with recording on: `checkpoint` recomputes in the backward pass, where it is off.
 * @template T
 * @param {() => T} fn
 * @returns {T}
 */
export function withGrad(fn) {
  const before = enabled;
  enabled = true;
  try {
    return fn();
  } finally {
    enabled = before;
  }
}

/** The operation whose gradient is computed so that it has a gradient itself; undefined in other backward passes. @type {string | undefined} */
let differentiated;

/** Throws a UsageError if the gradient that is being computed is to have a gradient, which a call within it does not give. */
export function checkTwice() {
  if (differentiated === undefined) return;
  throw new UsageError(
    'grad',
    `the gradient of ${differentiated} has no gradient itself, so createGraph cannot pass through it; write ${differentiated} with other functions`,
  );
}

/**
 * What was found without gradients, with the gradients that are given for it.
 * @param {string} name what errors call it @param {Tensor[]} inputs what it was found of @param {Tensor} value
 * @param {(dy: Tensor, y: Tensor, inputs: Tensor[]) => (Tensor | undefined)[]} adjoint the inputs' gradients, in functions of tensors, of the value and
 *   of the inputs that are read: so they have gradients themselves, of any order @param {number[]} [reads] which inputs; none when left out
 * @returns {Tensor}
 */
export function withGradient(name, inputs, value, adjoint, reads = []) {
  if (!enabled || !inputs.some((x) => x.requiresGrad)) return value;
  const y = value.alias();
  const op = onlyBackward(name, (dy, saved) => adjoint(dy, saved.outputs[0], saved.inputs), {
    saveInputs: () => reads,
    saveOutputs: [0],
  });
  const storages = [...inputs, y].map((x) => /** @type {Storage} */ (x.storage));
  return Object.assign(y, { node: new Node(op, {}, inputs, storages, [y.layout]), requiresGrad: true });
}

/**
 * What a node of the backward pass stands for where no operation made the result.
 * @param {string} name for errors @param {NonNullable<Op['vjp']>} vjp @param {Pick<Op, 'saveInputs' | 'saveOutputs'>} [saves] @returns {Op}
 */
export const onlyBackward = (name, vjp, saves = {}) => ({
  ...saves,
  name,
  infer: () => [],
  lower: () => [],
  oracle: () => {
    throw new Error(`${name} is no operation`);
  },
  vjp,
  plans: new Map(),
});

/** The order of the next node. */
export const nextOrder = () => counter;

/**
 * A value saved for the backward pass, with the version of its storage at that time.
 * @typedef {{ storage: Storage, layout: Layout, version: number }} SavedValue
 */

/** One operation of the graph. */
export class Node {
  /**
   * @param {Op} op @param {import('../ops/registry.mjs').Attributes} attributes @param {Tensor[]} inputs
   * @param {Storage[]} storages of inputs, then outputs @param {Layout[]} outputs
   * @param {string | undefined} [origin] the line of the user's program, if already known
   */
  constructor(op, attributes, inputs, storages, outputs, origin = recordingNow()?.originNow(op.name)) {
    this.op = op;
    this.attributes = attributes;
    /** What errors call it: the function that the program called. @type {string} */
    this.name = callNow() ?? attributes.name ?? op.name;
    /** Counts nodes: an input's node has a lower order than the nodes made from it. */
    this.order = counter++;
    /** The line of the user's program; only while a function is compiled. */
    this.origin = origin;
    this.layouts = inputs.map((input) => input.layout);
    /** Where gradients go: the node that made an input, or the leaf. @type {(Node | Tensor | undefined)[]} */
    this.edges = inputs.map((input) => (input.requiresGrad ? (input.node ?? input) : undefined));
    /** @param {number} slot @param {Layout} layout @returns {SavedValue} */
    const save = (slot, layout) => {
      storages[slot].retain();
      return { storage: storages[slot], layout, version: storages[slot].version };
    };
    const needs = this.needs();
    /** @type {(SavedValue | undefined)[] | undefined} */
    this.inputs = [];
    for (const i of op.saveInputs?.(needs) ?? []) this.inputs[i] = save(i, inputs[i].layout);
    /** @type {(SavedValue | undefined)[]} */
    this.outputs = [];
    for (const i of op.saveOutputs ?? []) this.outputs[i] = save(inputs.length + i, outputs[i]);
    // Free further outputs, made for the backward pass, that this call does not save.
    for (let i = 1; i < outputs.length; i++) {
      if (this.outputs[i]) continue;
      storages[inputs.length + i].retain();
      storages[inputs.length + i].release();
    }
  }

  /** For each input, whether its gradient is needed. */
  needs() {
    return this.edges.map((edge) => edge !== undefined);
  }

  /**
   * Computes the gradients of the inputs. Throws a UsageError if the saved values were freed, or changed in place since.
   * @param {Tensor} dy the gradient of the output @param {Functions} F the operations that vector-Jacobian products are written in
   * @param {(op: Op) => Op['vjp']} [twice] given where the results are to have gradients, which then flow through the saved values: the gradient of
   *   an operation whose `vjp` has none
   */
  backward(dy, F, twice) {
    const { op } = this;
    const linked = twice !== undefined;
    if (this.inputs === undefined) {
      throw new UsageError(
        'backward',
        `an earlier backward() freed what ${this.name} saved; run the forward pass again, or call the earlier backward with { retain: true }`,
      );
    }
    /** @param {SavedValue | undefined} saved @param {Node | Tensor | undefined} edge where the value's gradient goes */
    const open = (saved, edge) => {
      if (saved === undefined) return /** @type {never} */ (undefined); // A hole, as `Saved` has them.
      if (saved.storage.version !== saved.version) {
        throw new UsageError(
          'backward',
          `a tensor ${show(saved.layout.shape)} that ${this.name} needs for its gradient was changed in place ` +
            `(version ${saved.storage.version}, used at version ${saved.version}); change it after backward(), or a clone() of it`,
        );
      }
      // Nobody can ask for the gradient of a leaf that was disposed of.
      if (linked && edge && !(edge instanceof Node) && !edge.disposed) return edge;
      const value = makeTensor(saved.storage, saved.layout);
      if (linked && edge instanceof Node) Object.assign(value, { node: edge, requiresGrad: true });
      return value;
    };
    const before = differentiated;
    differentiated = linked ? this.name : undefined;
    try {
      const vjp = /** @type {NonNullable<Op['vjp']>} */ (twice?.(op) ?? op.vjp);
      // Of several outputs only the first has gradients.
      if (vjp === op.vjp && this.outputs.some((saved, i) => i > 0 && saved && isFloat(saved.layout.dtype))) checkTwice();
      /** @type {import('../ops/registry.mjs').Saved} */
      const saved = {
        inputs: this.inputs.map((saved, i) => open(saved, this.edges[i])),
        outputs: this.outputs.map((saved, i) => open(saved, i === 0 ? this : undefined)),
        layouts: this.layouts,
        attributes: this.attributes,
        needs: this.needs(),
      };
      if (!linked) return vjp(dy, saved, F);
      // Of an input that was not saved there is no value, but what its gradients go to.
      const standIn = (/** @type {Layout} */ layout, /** @type {number} */ i) =>
        /** @type {Tensor} */ ({ layout, node: this.edges[i], requiresGrad: this.edges[i] !== undefined });
      return partOf(this.name, () => vjp(dy, { ...saved, edges: this.layouts.map(standIn) }, F));
    } finally {
      differentiated = before;
    }
  }

  /** Frees the saved values. */
  free() {
    for (const saved of [...(this.inputs ?? []), ...this.outputs]) saved?.storage.release();
    this.inputs = undefined;
    this.outputs = [];
  }
}
