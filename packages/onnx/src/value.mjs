// What flows along the edges of a graph: a tensor on the device, elements on the host, or both.

import { tensor } from 'helios-vk/nn';
import { infoOf, plain, sizeOf } from './types.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('./types.mjs').Type} Type */
/** @typedef {import('./types.mjs').Elements} Elements */

/**
 * A value of a graph. ONNX's type is kept beside the tensor, since several types are computed in one of the device's.
 */
export class Value {
  /** @type {Tensor | undefined} */
  #tensor;
  /** @type {Elements | undefined} */
  #elements;

  /** @param {Type} type @param {readonly number[]} shape @param {Tensor | undefined} tensor @param {Elements | undefined} elements */
  constructor(type, shape, tensor, elements) {
    this.type = type;
    this.shape = shape;
    this.#tensor = tensor;
    this.#elements = elements;
  }

  /** A value on the device. @param {Type} type @param {Tensor} tensor */
  static of(type, tensor) {
    return new Value(type, tensor.shape, tensor, undefined);
  }
  /** A value on the host. @param {Type} type @param {readonly number[]} shape @param {Elements} elements */
  static host(type, shape, elements) {
    return new Value(type, shape, undefined, elements);
  }
  /** Integers of 64 bits on the host, in one dimension. @param {readonly number[]} elements */
  static integers(elements) {
    return Value.host('int64', [elements.length], Float64Array.from(elements));
  }

  get rank() {
    return this.shape.length;
  }
  get size() {
    return sizeOf(this.shape);
  }
  /** The elements, if they are known on the host. */
  get elements() {
    return this.#elements;
  }
  /** The elements as numbers. The interpreter has seen to it that they are known. @returns {number[]} */
  get numbers() {
    if (this.#elements === undefined) throw new Error(`a ${this.type} [${this.shape}] is not known on the host`);
    return Array.from(this.#elements, Number);
  }
  /** The only element as a number. */
  get number() {
    return this.numbers[0];
  }
  /** On the device; elements of the host are uploaded. @returns {Tensor} */
  get tensor() {
    this.#tensor ??= upload(this.type, this.shape, /** @type {Elements} */ (this.#elements));
    return this.#tensor;
  }
  /** Whether it is on the device already. */
  get uploaded() {
    return this.#tensor !== undefined;
  }

  /** Reads the elements to the host. */
  async read() {
    const elements = this.#elements ?? (await this.tensor.toArray());
    this.#elements = plain(this.type === 'uint64' && elements instanceof BigInt64Array ? new BigUint64Array(elements.buffer) : elements);
  }
}

/**
 * A value that belongs to the model. Its upload is made once, when the model is loaded, and not while a function is compiled, whose memory
 * it would be.
 */
export class Constant extends Value {
  get tensor() {
    return this.uploaded ? super.tensor : upload(this.type, this.shape, /** @type {Elements} */ (this.elements));
  }
}

/** @param {Type} type @param {readonly number[]} shape @param {Elements} elements */
function upload(type, shape, elements) {
  const { dtype } = infoOf(type);
  if (type === 'double') {
    const beyond = Array.prototype.findIndex.call(elements, (each) => Number.isFinite(each) && !Number.isFinite(Math.fround(each)));
    if (beyond >= 0) throw new RangeError(`element ${beyond}, ${elements[beyond]}, is beyond f32, in which double is computed`);
  }
  // Numbers of 64 bits must fit the device's type: `tensor` checks it. Others are of as many bits as their array.
  return tensor(/** @type {Parameters<typeof tensor>[0]} */ (elements), { dtype, shape: [...shape] });
}
