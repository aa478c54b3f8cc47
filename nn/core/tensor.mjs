// The tensor as the core sees it: a layout over a storage, and the node that its gradient flows to. `api/tensor.mjs` adds the methods, and
// registers its class here for tensors that the core makes.

import { ArgumentError, ShapeError, describe, show } from './errors.mjs';
import { BYTES } from './layout.mjs';
import { runtime } from './runtime.mjs';
import { Storage, born, unscoped } from './storage.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('./layout.mjs').DType} DType */
/** @typedef {import('./layout.mjs').Layout} Layout */
/** @typedef {import('./node.mjs').Node} Node */

let serial = 0;
/** The serial number of the next tensor. */
export const nextSerial = () => serial;

/** Why a tensor no longer has memory. @typedef {'disposed' | 'traced' | 'reused'} Fate */

/** Throws a clear error when `structuredClone` or `postMessage` reads a tensor. All tensors share this object. */
const UNCLONEABLE = Object.freeze({
  get tensor() {
    throw new ArgumentError(
      'tensor',
      'a tensor is memory of the device, which cannot be structured-cloned or sent to another thread: copy it with x.clone(), or send the result of await x.toArray()',
    );
  },
});

/** The part of a tensor that all of `nn/` uses. */
export class TensorCore {
  /** @type {Tensor | undefined} */
  #grad;

  /** @param {Storage} storage @param {Layout} layout */
  constructor(storage, layout) {
    /** The first property, so that cloning reads it first and throws. */
    this.uncloneable = UNCLONEABLE;
    /** @type {Storage | undefined} */
    this.storage = storage;
    this.layout = layout;
    /** Counts tensors in the order in which they are made. */
    this.serial = serial++;
    /** @type {Fate} */
    this.fate = 'disposed';
    /** Whether `backward` computes its gradient. */
    this.requiresGrad = false;
    /** The node of the operation that made it, if gradients flow through it. @type {Node | undefined} */
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
   * A 16-bit copy that an optimizer keeps up to date. Only parameters have one.
   * @param {DType} _dtype
   * @returns {{ storage: Storage, layout: Layout } | undefined}
   */
  halfCopy(_dtype) {
    return undefined;
  }
  /** Whether the tensor no longer has memory: disposed of, or freed at the end of a scope. */
  get disposed() {
    return this.storage === undefined;
  }

  /** The gradient that `backward` computed; leaves only. @returns {Tensor | undefined} */
  get grad() {
    return this.#grad;
  }
  set grad(gradient) {
    if (gradient !== undefined && gradient !== null) {
      if (!(gradient instanceof TensorCore))
        throw new ArgumentError('grad', `a gradient must be a tensor or undefined, got ${describe(gradient)}`);
      if (gradient.layout.shape !== this.layout.shape && show(gradient.shape) !== show(this.shape))
        throw new ShapeError('grad', `the gradient has shape ${show(gradient.shape)}, but the tensor has ${show(this.shape)}`);
    }
    this.#grad = gradient ?? undefined;
  }

  /**
   * Frees the memory, unless other tensors share it. A later use of this tensor throws a UsageError; disposing of it again does nothing.
   * @param {Fate} [fate] the reason, for later errors; for internal use
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

/** A tensor as one of the class with all methods, for the classes in `api/methods` that these are divided among. @param {TensorCore} x */
export const asTensor = (x) => /** @type {Tensor} */ (x);

let Made = /** @type {new (storage: Storage, layout: Layout) => Tensor} */ (/** @type {unknown} */ (TensorCore));
/** Registers the class of tensors: the one with all methods. @param {new (storage: Storage, layout: Layout) => Tensor} type */
export const setTensorClass = (type) => {
  Made = type;
};

/** Makes a tensor over a storage. @param {Storage} storage @param {Layout} layout @returns {Tensor} */
export const makeTensor = (storage, layout) => new Made(storage, layout);

/**
 * Makes a tensor from words in the device's format.
 * @param {ArrayBufferView} data whole words @param {Layout} layout dense
 */
export function uploaded(data, layout) {
  const device = runtime();
  const storage = new Storage(device.allocate(layout.size * BYTES[layout.dtype]));
  if (layout.size > 0) device.upload(storage.allocation, data);
  return makeTensor(storage, layout);
}

/** The same outside of all scopes: no scope frees it. @param {ArrayBufferView} data @param {Layout} layout */
export const constant = (data, layout) => unscoped(() => uploaded(data, layout));
