// The tensor as the core sees it: a layout over a storage, and where its gradient comes from. Its methods stand on top, in
// `api/tensor.mjs`, which says here what class tensors are made of.

import { ArgumentError, ShapeError, describe, show } from './errors.mjs';
import { BYTES } from './layout.mjs';
import { runtime } from './runtime.mjs';
import { Storage, born, unscoped } from './storage.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('./layout.mjs').DType} DType */
/** @typedef {import('./layout.mjs').Layout} Layout */
/** @typedef {import('./node.mjs').Node} Node */

let serial = 0;
/** The number of the next tensor. */
export const nextSerial = () => serial;

/** Why a tensor has no memory any more. @typedef {'disposed' | 'traced' | 'reused'} Fate */

/** Throws when `structuredClone` or `postMessage` reads a tensor, with a better message than theirs. One object serves all tensors. */
const UNCLONEABLE = Object.freeze({
  get tensor() {
    throw new ArgumentError(
      'tensor',
      'a tensor is memory of the device, which is not cloned or sent to another thread: copy it with x.clone(), send what await x.toArray() gives',
    );
  },
});

/** What all of `nn/` knows of a tensor. */
export class TensorCore {
  /** @type {Tensor | undefined} */
  #grad;

  /** @param {Storage} storage @param {Layout} layout */
  constructor(storage, layout) {
    /** What is read first of a tensor that is cloned, and throws. */
    this.uncloneable = UNCLONEABLE;
    /** @type {Storage | undefined} */
    this.storage = storage;
    this.layout = layout;
    /** Its number: tensors are numbered as they are made. */
    this.serial = serial++;
    /** @type {Fate} */
    this.fate = 'disposed';
    /** Whether `backward` finds its gradient. */
    this.requiresGrad = false;
    /** The operation that made it, where gradients flow through that. @type {Node | undefined} */
    this.node = undefined;
    storage.retain();
    born(/** @type {Tensor} */ (/** @type {unknown} */ (this)));
  }

  /** Sizes of the dimensions. @returns {readonly number[]} */
  get shape() {
    return this.layout.shape;
  }
  /** The element type. @returns {DType} */
  get dtype() {
    return this.layout.dtype;
  }
  /** The number of elements. */
  get size() {
    return this.layout.size;
  }
  /** The number of dimensions. */
  get ndim() {
    return this.layout.shape.length;
  }
  /** Whether it is a parameter of a module. */
  get isParameter() {
    return false;
  }
  /**
   * A copy in a 16-bit type that somebody keeps up to date; there is one of parameters alone.
   * @param {DType} _dtype
   * @returns {{ storage: Storage, layout: Layout } | undefined}
   */
  halfCopy(_dtype) {
    return undefined;
  }
  /** Whether it was disposed of. */
  get disposed() {
    return this.storage === undefined;
  }

  /** The gradient, after `backward`; of leaves only. @returns {Tensor | undefined} */
  get grad() {
    return this.#grad;
  }
  set grad(gradient) {
    if (gradient !== undefined && gradient !== null) {
      if (!(gradient instanceof TensorCore))
        throw new ArgumentError('grad', `a gradient is a tensor or undefined, got ${describe(gradient)}`);
      if (gradient.layout.shape !== this.layout.shape && show(gradient.shape) !== show(this.shape))
        throw new ShapeError('grad', `a gradient ${show(gradient.shape)} for a tensor ${show(this.shape)}`);
    }
    this.#grad = gradient ?? undefined;
  }

  /**
   * Frees the memory, unless other tensors share it. Later uses of this tensor throw; disposing of it again does nothing.
   * @param {Fate} [fate] why, for the errors of later uses
   */
  dispose(fate = /** @type {Fate} */ ('disposed')) {
    const { storage } = this;
    if (storage === undefined) return;
    this.storage = undefined;
    this.fate = fate;
    this.node = undefined;
    storage.release();
  }
  [Symbol.dispose]() {
    this.dispose();
  }
}

let Made = /** @type {new (storage: Storage, layout: Layout) => Tensor} */ (/** @type {unknown} */ (TensorCore));
/** Says what class tensors are made of: the one with all methods. @param {new (storage: Storage, layout: Layout) => Tensor} type */
export const setTensorClass = (type) => {
  Made = type;
};

/** A tensor of what a storage holds. @param {Storage} storage @param {Layout} layout @returns {Tensor} */
export const makeTensor = (storage, layout) => new Made(storage, layout);

/**
 * A tensor of elements as the device has them.
 * @param {ArrayBufferView} data whole words @param {Layout} layout dense
 */
export function uploaded(data, layout) {
  const device = runtime();
  const storage = new Storage(device.allocate(layout.size * BYTES[layout.dtype]));
  if (layout.size > 0) device.upload(storage.allocation, data);
  return makeTensor(storage, layout);
}

/** A tensor of host data outside of all scopes. @param {ArrayBufferView} data @param {Layout} layout */
export const constant = (data, layout) => unscoped(() => uploaded(data, layout));
