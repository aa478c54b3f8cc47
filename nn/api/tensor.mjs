// The public class `Tensor`, whose operations are methods of `methods/`, and the functions that make tensors from host data.

import { accumulated, backward as runBackward } from './autograd.mjs';
import { apply, applyInto, checkBytes, storageOf } from '../core/engine.mjs';
import { describe } from '../core/errors.mjs';
import { ArgumentError, UsageError, show, shown, within } from '../core/errors.mjs';
import * as F from './functional.mjs';
import { writable } from '../core/codegen.mjs';
import { checkFormat, countShown, formatted } from '../core/format.mjs';
import { checkCount, decode, encode, flatten } from '../core/host.mjs';
import { MoreMethods } from './methods/more.mjs';
import { BYTES, checkShape, checkType, denseLayout, isByte, isFloat, layoutOf } from '../core/layout.mjs';
import * as movement from '../ops/movement.mjs';
import * as pointwise from '../ops/pointwise.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { promotedType, withNumber } from './operands.mjs';
import { isRecording, recordingNow, runtime } from '../core/runtime.mjs';
import { scope } from '../core/scope.mjs';
import { allocate, unscoped } from '../core/storage.mjs';
import { setTensorClass, uploaded } from '../core/tensor.mjs';

/** @typedef {import('../core/storage.mjs').Storage} Storage */
/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../core/node.mjs').Node} Node */
/** @typedef {import('./functional.mjs').Operand} Operand */

/**
 * Options of `add_` and `sub_`.
 * @typedef {object} AddOptions
 * @property {number} [alpha] a factor on `other`; 1 when left out
 */

/**
 * Options of `tensor`.
 * @typedef {object} TensorOptions
 * @property {DType} [dtype] the element type; when left out, i32 for an Int32Array, u32 for a Uint32Array, i64 for a BigInt64Array and
 *   for bigints, bool for booleans, else f32
 * @property {readonly number[]} [shape] the shape, filled row by row; the nesting of the arrays when left out
 * @property {boolean} [requiresGrad] whether `backward` computes its gradient; false when left out
 */

const inspect = Symbol.for('nodejs.util.inspect.custom');

/**
 * An array on the device. `tensor`, `zeros`, `randn` and others make one, and so does every operation. Operations run asynchronously on the
 * device, in the order of their calls; `await x.toArray()` reads the values back.
 */
export class Tensor extends MoreMethods {
  // ---- reading

  /**
   * Reads the elements, row by row: a Float32Array for f32, f16 and bf16, an Int32Array, a Uint32Array, a BigInt64Array for i64 (in TypeScript
   * `x.toArray<BigInt64Array>()`), an Int8Array, a Uint8Array for u8 and, of 0 and 1, for bool. Throws a UsageError for a disposed tensor, and while a function is
   * compiled.
   * @overload
   * @returns {Promise<import('../core/host.mjs').Elements>}
   */
  /**
   * The same of i64.
   * @template {BigInt64Array} T
   * @overload
   * @returns {Promise<T>}
   */
  /** @returns {Promise<import('../core/host.mjs').Elements | BigInt64Array>} */
  async toArray() {
    return decode(await readBytes('toArray', this), this.dtype, this.size);
  }

  /**
   * Reads the only element, as a number. Throws an ArgumentError if the size is not 1, and for an i64 that no number has, which `toArray` reads.
   * @returns {Promise<number>}
   */
  async item() {
    if (this.size !== 1)
      throw new ArgumentError('item', `the tensor ${show(this.shape)} has ${this.size} elements, not one; use toArray()`);
    const [value] = decode(await readBytes('item', this), this.dtype, 1);
    const number = Number(value);
    if (typeof value === 'bigint' && !Number.isSafeInteger(number))
      throw new ArgumentError('item', `${value} is beyond the integers that a number has: use toArray(), which gives bigints`);
    return number;
  }

  /** Reads the elements as nested arrays; those of a bool tensor are booleans, of i64 bigints. @returns {Promise<import('../core/host.mjs').Nested>} */
  async toNested() {
    const values = decode(await readBytes('toNested', this), this.dtype, this.size);
    /** @param {number} dim @param {number} from @param {number} size @returns {import('../core/host.mjs').Nested} */
    const nest = (dim, from, size) => {
      if (dim === this.ndim) return this.dtype === 'bool' ? values[from] === 1 : values[from];
      const step = size / this.shape[dim];
      return Array.from({ length: this.shape[dim] }, (_, i) => nest(dim + 1, from + i * step, step));
    };
    return nest(0, 0, this.size);
  }

  /**
   * Reads the elements as text, as PyTorch prints tensors: in nested brackets, floats with 4 digits and one scale, and of more than 1,000 elements
   * only the first and last 3 of each dimension, so that no others are read. Behind them stand the type where it is not f32, and `requiresGrad` or
   * the operation that it is the result of. Throws an ArgumentError for a wrong option, and a UsageError as `toArray`.
   * @param {import('../core/format.mjs').FormatOptions} [options]
   * @returns {Promise<string>}
   */
  async format(options = {}) {
    return format('format', this, options);
  }

  /**
   * Prints the elements with `console.log`, in the form of `format`.
   * @param {import('../core/format.mjs').FormatOptions} [options]
   * @returns {Promise<void>}
   */
  async print(options = {}) {
    console.log(await format('print', this, options));
  }

  /** Throws: JavaScript cannot overload operators, so `a + b` would concatenate two strings. @returns {never} */
  [Symbol.toPrimitive]() {
    throw new ArgumentError(
      'tensor',
      'a tensor is not a number: use a.add(b), a.mul(b), a.gt(b) … to compute, F.where to choose, await a.item() for its value',
    );
  }

  /** Throws: the elements are on the device and can only be read asynchronously. @returns {never} */
  toJSON() {
    throw new ArgumentError(
      'tensor',
      'a tensor cannot be written as JSON: write the result of await x.toNested(), or use save(path, tensors) for a file',
    );
  }

  [inspect]() {
    const what = this.storage === undefined ? `, ${this.fate}` : this.requiresGrad ? ', requiresGrad' : '';
    return `Tensor(${show(this.shape)}, ${this.dtype}${what})`;
  }

  // ---- memory and gradients

  /** A tensor that shares this one's memory and through which no gradient flows. */
  detach() {
    return new Tensor(storageOf('detach', this), this.layout);
  }
  /** A second tensor object over the same memory, to be disposed of on its own. Like `detach`, it has no gradient. */
  alias() {
    return new Tensor(storageOf('alias', this), this.layout);
  }

  /**
   * Sets whether `backward` computes the gradient of this leaf. Throws a UsageError for a result of operations, and an ArgumentError unless
   * the type is f32, f16 or bf16.
   * @param {boolean} [requires] true when left out
   */
  requiresGrad_(requires = true) {
    if (this.node)
      throw new UsageError(
        'requiresGrad_',
        'the tensor is the result of an operation, and only leaves can be changed. Use detach() for a constant',
      );
    if (this.dtype !== 'f32' && this.dtype !== 'f16' && this.dtype !== 'bf16') {
      throw new ArgumentError('requiresGrad_', `a tensor of ${this.dtype} cannot have a gradient`);
    }
    this.requiresGrad = requires;
    return this;
  }

  /**
   * Computes the gradients of this tensor, usually a loss of one element, and adds them to the `grad` of every leaf that it depends on. Frees
   * what the forward pass saved, unless `retain` is set. Throws a UsageError if nothing that it depends on requires a gradient, and a
   * ShapeError if it has several elements and no `gradient` is given.
   * @param {import('./autograd.mjs').BackwardOptions} [options]
   */
  backward(options) {
    storageOf('backward', this);
    runBackward(this, options);
  }

  /** Adds to `grad`. @param {Tensor} gradient of this shape */
  accumulate(gradient) {
    if (!(gradient instanceof Tensor)) throw new ArgumentError('accumulate', `expected a tensor, got ${describe(gradient)}`);
    const recording = recordingNow();
    if (recording && this.serial < recording.serial) {
      const error = new UsageError(
        'backward',
        `the gradient of a tensor ${show(this.shape)} would lie in memory of the compiled function: make the optimizer before the first call ` +
          '(an optimizer has memory for gradients; one that was disposed of, or made before the parameter was replaced, has none for this one), ' +
          'clear it with zeroGrad() before the function ends, or take gradients with grad(…) and return them',
      );
      if (this.grad && this.grad.serial < recording.serial) throw error;
      recording.gradientOf?.(this);
      recording.gradientInside?.(this, error);
    }
    within('accumulate', () => {
      this.grad = accumulated(this.grad, gradient);
    });
  }

  /** Disposes of `grad` and sets it to undefined. */
  zeroGrad() {
    const recording = recordingNow();
    recording?.gradientOf(this);
    // A trace may fail, or only prepare: what is from before it is disposed of by the launch.
    if (recording && this.grad && this.grad.serial < recording.serial) recording.cleared?.add(this.grad);
    else this.grad?.dispose();
    this.grad = undefined;
  }

  // ---- in place

  /**
   * Overwrites the elements. Like every method that ends in `_`, it changes this tensor in place and returns it, and throws a UsageError if
   * gradients flow through it: wrap the call in `noGrad`.
   * @param {Tensor | number | ArrayBufferView} source broadcasts to this shape and is converted to this type; a tensor may share this one's
   *   memory; a typed array must have as many elements
   */
  copy_(source) {
    return within('copy_', () => this.#write(source));
  }
  /** @param {Tensor | number | ArrayBufferView} source */
  #write(source) {
    storageOf('copy_', this);
    if (ArrayBuffer.isView(source)) {
      const { values } = flatten('copy_', source);
      checkCount('copy_', values.length, [...this.shape]);
      const data = unscoped(() => uploaded(encode('copy_', values, this.dtype), denseLayout(this.shape, this.dtype)));
      this.#write(data);
      data.dispose();
      return this;
    }
    const from = typeof source === 'number' ? F.full([], source, { dtype: this.dtype }) : source;
    const values = F.expand(F.to(from, this.dtype), this.shape);
    const own = this.#overlaps(values) ? values.clone() : values;
    if (isByte(this.dtype) && !writable(this.layout)) this.#writeBytes(own);
    else applyInto(movement.write, [this, own], undefined, this);
    return this;
  }
  /** Writes a view whose bytes share words with others: all bytes from its first word on as i32, and back. @param {Tensor} values */
  #writeBytes(values) {
    const { shape, strides, offset, dtype } = this.layout;
    const start = offset - (offset % 4);
    const end = shape.reduce((last, size, d) => last + (size - 1) * strides[d], offset) + 1;
    const all = new Tensor(storageOf('copy_', this), layoutOf([end - start], [1], start, dtype));
    const wide = F.to(all, 'i32');
    const part = new Tensor(storageOf('copy_', wide), layoutOf(shape, strides, offset - start, 'i32'));
    applyInto(movement.write, [part, F.to(values, 'i32')], undefined, part);
    applyInto(movement.write, [all, F.to(wide, dtype)], undefined, all);
  }
  /** Sets all elements to a number, in place. @param {number} value */
  fill_(value) {
    return within('fill_', () => this.#write(value));
  }
  /** Sets all elements to 0, in place. */
  zero_() {
    return within('zero_', () => this.#write(0));
  }
  /** Whether `other` reads the same memory in another layout, so that it must be copied before this tensor is written. @param {Tensor} other */
  #overlaps(other) {
    return other.storage === this.storage && other.layout !== this.layout;
  }
  /** this + alpha · other, in place. @param {Operand} other broadcasts to this shape @param {AddOptions} [options] */
  add_(other, options = {}) {
    const { alpha = 1 } = checkOptions('add_', options, ['alpha']);
    if (typeof alpha !== 'number') throw new ArgumentError('add_', `alpha must be a number, got ${shown(alpha)}`);
    return within('add_', () => {
      if (!isFloat(this.dtype) && !Number.isInteger(alpha)) throw new ArgumentError('add_', `alpha must be an integer, got ${alpha}`);
      if (typeof other === 'number') return this.#affine_('add', 1, other * alpha, other * alpha);
      return this.#binary_(pointwise.add, other, { alpha: 1, beta: alpha });
    });
  }
  /** this · other, in place. @param {Operand} other broadcasts to this shape */
  mul_(other) {
    return within('mul_', () => (typeof other === 'number' ? this.#affine_('mul', other, -0) : this.#binary_(pointwise.mul, other)));
  }
  /** this - alpha · other, in place. @param {Operand} other broadcasts to this shape @param {AddOptions} [options] */
  sub_(other, options = {}) {
    const { alpha = 1 } = checkOptions('sub_', options, ['alpha']);
    if (typeof alpha !== 'number') throw new ArgumentError('sub_', `alpha must be a number, got ${shown(alpha)}`);
    return within('sub_', () =>
      typeof other === 'number' ? this.#affine_('sub', 1, -other * alpha, other * alpha) : this.add_(other, { alpha: -alpha }),
    );
  }
  /** this / other, in place; of floats. @param {Operand} other broadcasts to this shape */
  div_(other) {
    if (!isFloat(this.dtype)) throw new ArgumentError('div_', `a quotient is f32, and the tensor is ${this.dtype}: use div`);
    return within('div_', () => this.copy_(F.div(this.detach(), other)));
  }
  /** Limits the elements to low … high, in place, as `F.clamp`. @param {number} [low] @param {number} [high] */
  clamp_(low, high) {
    return within('clamp_', () => {
      const limited = F.clamp(this.detach(), low, high);
      if (limited.dtype !== this.dtype)
        throw new ArgumentError('clamp_', `the result is ${limited.dtype}, and the tensor is ${this.dtype}: use clamp`);
      return this.copy_(limited);
    });
  }
  /** alpha · this + beta, in place. @param {string} name of the operation @param {number} alpha @param {number} beta @param {number} [number] of the two */
  #affine_(name, alpha, beta, number = alpha) {
    if (withNumber(`${name}_`, this, number) !== this) {
      throw new ArgumentError(`${name}_`, `${number} is no ${this.dtype}, so the result has another type: use ${name}`);
    }
    if (isByte(this.dtype)) return this.copy_(name === 'mul' ? F.mul(this.detach(), alpha) : F.add(this.detach(), beta));
    if (!this.layout.contiguous) return this.copy_(F.add(F.mul(this.detach(), alpha), beta));
    applyInto(pointwise.affine, [this], { name: `${name}_`, alpha, beta }, this);
    return this;
  }
  /** @param {import('../ops/registry.mjs').Op} op @param {Tensor} other @param {import('../ops/registry.mjs').Attributes} [attributes] */
  #binary_(op, other, attributes) {
    if (!(other instanceof Tensor)) throw new ArgumentError(`${op.name}_`, `expected a tensor or a number, got ${describe(other)}`);
    if (promotedType(this.dtype, other.dtype) !== this.dtype && !(isFloat(this.dtype) && isFloat(other.dtype))) {
      throw new ArgumentError(`${op.name}_`, `the result of ${this.dtype} and ${other.dtype} has another type: use ${op.name}`);
    }
    if (isByte(this.dtype)) {
      const own = this.detach();
      return this.copy_(op === pointwise.mul ? F.mul(own, other) : F.add(own, F.mul(other, attributes?.beta ?? 1)));
    }
    const dense = other.layout.contiguous && this.layout.contiguous;
    const same = dense && show(other.shape) === show(this.shape) && other.dtype === this.dtype;
    if (same && !this.#overlaps(other)) applyInto(op, [this, other], attributes, this);
    else this.copy_(apply(op, [this.detach(), F.expand(F.to(other, this.dtype), this.shape).contiguous()], attributes));
    return this;
  }
}

setTensorClass(Tensor);

/** @param {string} op @param {Tensor} x @param {import('../core/format.mjs').FormatOptions} options @returns {Promise<string>} */
async function format(op, x, options) {
  const how = checkFormat(op, options);
  storageOf(op, x);
  checkReadable(op);
  const isSummary = x.size > how.threshold;
  const ends = () =>
    x.shape.reduce((/** @type {Tensor} */ y, size, d) => {
      const count = countShown(size, isSummary, how);
      return count === size ? y : F.cat([F.slice(y, d, 0, count / 2), F.slice(y, d, size - count / 2)], d);
    }, x.detach());
  const shown = isSummary ? within(op, () => unscoped(() => scope(() => ends().clone()))) : x;
  const values = decode(await readBytes(op, shown), x.dtype, shown.size);
  if (shown !== x) shown.dispose();
  const suffixes = [];
  if (x.size === 0 && x.ndim !== 1) suffixes.push(`size=(${x.shape.join(', ')})`);
  if (x.dtype !== 'f32' && x.dtype !== 'bool') suffixes.push(`dtype=${x.dtype}`);
  if (x.requiresGrad) suffixes.push(x.node ? `gradFn=<${x.node.op.name}>` : 'requiresGrad=true');
  return formatted(values, x.shape, x.dtype, suffixes, how);
}

/** Throws while a function is compiled. @param {string} op */
function checkReadable(op) {
  if (isRecording())
    throw new UsageError(op, 'a tensor has no values while its function is compiled: return the tensor and read what the call returns');
}

/**
 * Reads the bytes of a tensor's elements, row by row. The read is ordered after all operations called so far.
 * @param {string} op the call, for errors @param {Tensor} x
 * @returns {Promise<Uint8Array>}
 */
export async function readBytes(op, x) {
  storageOf(op, x);
  checkReadable(op);
  if (x.size === 0) return new Uint8Array(0);
  const device = runtime();
  const dense = x.layout.contiguous ? x : within(op, () => unscoped(() => F.clone(x.detach())));
  const { layout, storage } = /** @type {{ layout: Layout, storage: Storage }} */ (dense);
  const size = BYTES[layout.dtype];
  const from = layout.offset * size;
  const start = Math.floor(from / 4) * 4;
  const end = Math.ceil((from + layout.size * size) / 4) * 4;
  storage.fetch?.();
  device.flush();
  const words = await device.vk.readAsync(storage.allocation.handle, start, end - start);
  if (dense !== x) dense.dispose();
  return new Uint8Array(words.buffer, words.byteOffset + from - start, layout.size * size);
}

/**
 * Makes a tensor from host data. Throws an ArgumentError for what is not a number, or not a value of the type; a ShapeError for ragged
 * arrays, and if the data does not have as many elements as the shape.
 * @param {import('../core/host.mjs').Data} data a number, a typed array, or nested arrays of equal lengths, the innermost of which may be typed
 * @param {TensorOptions} [options]
 * @returns {Tensor}
 */
export function tensor(data, options = {}) {
  if (/** @type {unknown} */ (data) instanceof Tensor) throw new ArgumentError('tensor', 'this is a tensor: use clone() for a copy');
  if (Array.isArray(options)) {
    throw new ArgumentError('tensor', `expected options such as { dtype: 'i32' }, got an array: a shape is { shape: ${show(options)} }`);
  }
  if (options !== Object(options)) {
    throw new ArgumentError(
      'tensor',
      `expected options such as { dtype: 'i32' }, got ${shown(options)}: numbers are given as an array, tensor([1, 2])`,
    );
  }
  const { dtype, shape, requiresGrad = false } = checkOptions('tensor', options, ['dtype', 'shape', 'requiresGrad']);
  const flat = flatten('tensor', data);
  const sizes = checkShape('tensor', shape ?? flat.shape);
  checkCount('tensor', flat.values.length, sizes);
  const type = checkType('tensor', dtype ?? flat.dtype);
  flag('tensor', 'requiresGrad', requiresGrad);
  checkBytes('tensor', denseLayout(sizes, type));
  const constant = uploaded(encode('tensor', flat.values, type), denseLayout(sizes, type));
  // While a function is compiled, the graph keeps the data. Each call gets a copy, which it may overwrite and return.
  const result = isRecording() ? F.clone(constant) : constant;
  return requiresGrad ? result.requiresGrad_() : result;
}

/** Makes a tensor with undefined contents. @param {readonly number[]} shape @param {import('./functional.mjs').TypeOptions} [options] */
export function empty(shape, options = {}) {
  const sizes = checkShape('empty', shape);
  const { dtype = 'f32' } = checkOptions('empty', options, ['dtype']);
  const layout = denseLayout(sizes, checkType('empty', dtype));
  checkBytes('empty', layout);
  return new Tensor(allocate(layout.size * BYTES[dtype]), layout);
}
