// The sink of a trace: keeps the function's dispatches as calls for the passes, and tracks the storages from before the trace that they use.

import { Template } from '../../kernels/template.mjs';
import { NO_ATTRIBUTES } from '../core/keys.mjs';
import { callerLine } from '../core/errors.mjs';
import { nextSerial } from '../core/tensor.mjs';
import { Guard } from './guard.mjs';

/** @typedef {import('../core/runtime.mjs').Allocation} Allocation */
/** @typedef {import('../core/runtime.mjs').Sink} Sink */
/** @typedef {import('../core/storage.mjs').Storage} Storage */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('./passes/calls.mjs').Call} Call */
/** @typedef {import('../optim/half-copy.mjs').ParameterCopy} ParameterCopy */

/** What each call of the host counts as writing, so that no pass changes their order. @type {Allocation} */
const HOST_ORDER = { handle: -1, bytes: 0, live: true, sink: /** @type {Sink} */ ({}) };

/**
 * The dispatches of a trace, and the outside memory that they use.
 * @implements {Sink}
 */
export class Recording {
  constructor() {
    /** @type {Call[]} */
    this.list = [];
    /** Tensors from this serial number on were made in the trace. */
    this.serial = nextSerial();
    /** The outside state that the trace relies on. */
    this.guard = new Guard(this.serial);
    this.region = 0;
    /** The line of the user's program that operations belong to, if it is not the running one. @type {string | undefined} */
    this.origin = undefined;
    /** Storages from before the trace, with their versions at first use. @type {Map<Storage, number>} */
    this.outside = new Map();
    /** What a launch does on the host, by what it changes there. @type {Map<object, import('../core/runtime.mjs').Effect>} */
    this.effects = new Map();
    /** Copies of parameters that are read or written here. @type {Set<ParameterCopy>} */
    this.copies = new Set();
    /** Leaves from before the trace whose gradient is in memory of the graph. @type {Map<Tensor, Error>} */
    this.inside = new Map();
    /** Gradients from before the trace that it clears: each launch disposes of them. @type {Set<Tensor>} */
    this.cleared = new Set();
  }

  /** Allocates without a buffer: memory is planned after the trace. @param {number} bytes @returns {Allocation} */
  allocate(bytes) {
    return { handle: -1, bytes: Math.max(16, Math.ceil(bytes / 16) * 16), live: true, sink: this };
  }

  /** @param {Allocation} allocation */
  release(allocation) {
    allocation.live = false;
  }

  /** Whether memory was allocated in the trace. @param {Allocation} allocation */
  owns(allocation) {
    return allocation.sink === this;
  }

  /** Records the use of a storage, and retains it if it is from before the trace. @param {Storage} storage */
  hold(storage) {
    if (this.owns(storage.allocation) || this.outside.has(storage)) return;
    this.outside.set(storage, storage.version);
    storage.retain();
  }

  /** Records the use of a copy of parameters, which each launch first brings up to date. @param {ParameterCopy} copy */
  keep(copy) {
    this.hold(copy.storage);
    this.copies.add(copy);
  }

  /** Drops a copy of parameters that no call uses any more, and none leaves up to date. @param {ParameterCopy} copy */
  abandon(copy) {
    this.copies.delete(copy);
    const version = this.outside.get(copy.storage);
    if (version === undefined) return copy.drop();
    copy.storage.version = version;
    this.outside.delete(copy.storage);
    copy.storage.release();
    copy.drop();
  }

  /** The line of the user's program that operations belong to now. */
  originNow() {
    return this.origin ?? callerLine();
  }

  /**
   * Appends dispatches as a call.
   * @param {Template} template @param {Storage[]} storages
   * @param {import('../core/runtime.mjs').CallInfo} [call] @param {import('../core/runtime.mjs').WorkInfo} [info]
   * @returns {string | undefined} the line of the user's program
   */
  append(template, storages, call, info) {
    for (const storage of storages) this.hold(storage);
    const origin = this.originNow();
    const allocations = storages.map(({ allocation }) => allocation);
    const values = call?.layouts.map((layout, i) => ({ allocation: allocations[i], layout })) ?? [];
    this.list.push({
      op: call?.op,
      attributes: call?.attributes ?? NO_ATTRIBUTES,
      inputs: values.slice(0, call?.inputs),
      outputs: values.slice(call?.inputs),
      template,
      allocations,
      region: this.region,
      name: info?.name,
      bytes: info?.bytes,
      permuted: info?.permuted,
      origin,
    });
    return origin;
  }

  /**
   * Appends a call of the host, which reads and writes storages from before the trace. Such calls keep their order.
   * @param {Storage[]} storages @param {(handles: number[]) => void} run takes the storages' buffers
   */
  host(storages, run) {
    for (const storage of storages) this.hold(storage);
    const allocations = [...storages.map(({ allocation }) => allocation), HOST_ORDER];
    const template = new Template();
    template.written = allocations.map((_, slot) => slot);
    const { region } = this;
    this.list.push({ attributes: NO_ATTRIBUTES, inputs: [], outputs: [], template, allocations, region, name: 'collective', host: run });
  }

  /** Records an operand. @param {Tensor} tensor */
  use(tensor) {
    this.guard.use(tensor);
  }

  /** Views have no dispatches. @param {import('../core/runtime.mjs').CallInfo} _call @param {Storage} _from @param {Storage} _to */
  viewed(_call, _from, _to) {}

  /** Records a leaf's gradient, before it is read or changed. @param {Tensor} leaf */
  gradientOf(leaf) {
    this.guard.gradientOf(leaf);
  }

  /** Records a leaf whose gradient is in memory of the graph. @param {Tensor} leaf @param {Error} error if it still is at the end */
  gradientInside(leaf, error) {
    if (!this.inside.has(leaf)) this.inside.set(leaf, error);
  }

  /** Throws if a gradient would be left in memory of the graph, which the next launch overwrites. */
  checkGradients() {
    for (const [leaf, error] of this.inside) if (leaf.grad && leaf.grad.serial >= this.serial) throw error;
  }

  /** Whether the trace has written a storage from before it. @param {Storage} storage */
  changed(storage) {
    return this.outside.has(storage) && this.outside.get(storage) !== storage.version;
  }

  /**
   * Restores versions and gradients of everything from before the trace, since nothing has run yet. Copies of parameters that are fresh stay
   * fresh for the restored version.
   */
  undo() {
    const fresh = [...this.copies].filter((copy) => copy.fresh);
    for (const [storage, version] of this.outside) storage.version = version;
    for (const copy of fresh) copy.version = copy.source.version;
    for (const [leaf, gradient] of this.guard.gradients) leaf.grad = gradient;
  }

  /** Releases the storages from before the trace. */
  forget() {
    for (const storage of this.outside.keys()) storage.release();
    this.outside.clear();
  }
}
