// The sink of a trace: keeps the function's dispatches as calls for the passes, and the storages from before the trace that they touch.

import { NO_ATTRIBUTES } from '../core/keys.mjs';
import { callerLine } from '../core/errors.mjs';
import { nextSerial } from '../core/tensor.mjs';
import { Guard } from './guard.mjs';

/** @typedef {import('../core/runtime.mjs').Allocation} Allocation */
/** @typedef {import('../core/runtime.mjs').Sink} Sink */
/** @typedef {import('../core/storage.mjs').Storage} Storage */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../../kernels/template.mjs').Template} Template */
/** @typedef {import('./passes/calls.mjs').Call} Call */
/** @typedef {import('../optim/half-copy.mjs').ParameterCopy} ParameterCopy */

/**
 * The dispatches of a trace, and what they touch.
 * @implements {Sink}
 */
export class Recording {
  constructor() {
    /** @type {Call[]} */
    this.list = [];
    /** Tensors made from here on are the trace's. */
    this.serial = nextSerial();
    /** What is relied on from before. */
    this.guard = new Guard(this.serial);
    this.region = 0;
    /** The line of the user's program whose operations are recorded, where it is not the one that is running. @type {string | undefined} */
    this.origin = undefined;
    /** Storages from before, and their versions when they were first used. @type {Map<Storage, number>} */
    this.outside = new Map();
    /** Copies of parameters that are read or written here. @type {Set<ParameterCopy>} */
    this.copies = new Set();
  }

  /** Memory is planned at the end. @param {number} bytes @returns {Allocation} */
  allocate(bytes) {
    return { handle: -1, bytes: Math.max(16, Math.ceil(bytes / 16) * 16), live: true, sink: this };
  }

  /** @param {Allocation} allocation */
  release(allocation) {
    allocation.live = false;
  }

  /** Whether memory is the trace's. @param {Allocation} allocation */
  owns(allocation) {
    return allocation.sink === this;
  }

  /** Notes a storage that is touched here, and keeps it if it was there before. @param {Storage} storage */
  hold(storage) {
    if (this.owns(storage.allocation) || this.outside.has(storage)) return;
    this.outside.set(storage, storage.version);
    storage.retain();
  }

  /** Has a copy of parameters, which is read or written here, hold what it should before each launch. @param {ParameterCopy} copy */
  keep(copy) {
    this.hold(copy.storage);
    this.copies.add(copy);
  }

  originNow() {
    return this.origin ?? callerLine();
  }

  /** @param {Template} template @param {Storage[]} storages @param {import('../core/runtime.mjs').CallInfo} [call] @param {import('../core/runtime.mjs').WorkInfo} [info] */
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
      origin,
    });
    return origin;
  }

  /** Notes an operand. @param {Tensor} tensor */
  use(tensor) {
    this.guard.use(tensor);
  }

  /** Notes a leaf's gradient before it is looked at. @param {Tensor} leaf */
  gradientOf(leaf) {
    this.guard.gradientOf(leaf);
  }

  /** Whether a storage from before is changed here. @param {Storage} storage */
  changed(storage) {
    return this.outside.has(storage) && this.outside.get(storage) !== storage.version;
  }

  /**
   * Has everything from before be as it was: nothing has run yet. Copies of parameters that go with a change here hold what these hold
   * without it.
   */
  undo() {
    const fresh = [...this.copies].filter((copy) => copy.fresh);
    for (const [storage, version] of this.outside) storage.version = version;
    for (const copy of fresh) copy.version = copy.source.version;
    for (const [leaf, gradient] of this.guard.gradients) leaf.grad = gradient;
  }

  forget() {
    for (const storage of this.outside.keys()) storage.release();
    this.outside.clear();
  }
}
