// Tensors: a layout over a storage, and where its gradient comes from.

import { accumulated, backward as runBackward } from './autograd.mjs';
import { apply, applyInto, checkBytes, storageOf } from '../core/engine.mjs';
import { describe } from '../core/errors.mjs';
import { ArgumentError, ShapeError, UsageError, show, shown, within } from '../core/errors.mjs';
import * as F from './functional.mjs';
import { checkCount, decode, encode, flatten } from '../core/host.mjs';
import * as indexing from './indexing.mjs';
import { BYTES, checkShape, checkType, denseLayout, dimension } from '../core/layout.mjs';
import * as movement from '../ops/movement.mjs';
import * as pointwise from '../ops/pointwise.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { isRecording, recordingNow, runtime } from '../core/runtime.mjs';
import { allocate, unscoped } from '../core/storage.mjs';
import { TensorCore, setTensorClass, uploaded } from '../core/tensor.mjs';

/** @typedef {import('../core/storage.mjs').Storage} Storage */
/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../core/node.mjs').Node} Node */
/** @typedef {import('./functional.mjs').Operand} Operand */

/**
 * Options of `add_`.
 * @typedef {object} AddOptions
 * @property {number} [alpha] a factor on `other`; 1 when left out
 */

/**
 * Options of `tensor`.
 * @typedef {object} TensorOptions
 * @property {DType} [dtype] the element type; when left out i32 and u32 of arrays of that type, bool of booleans, else f32
 * @property {readonly number[]} [shape] sizes for the data, row by row; that of the arrays when left out
 * @property {boolean} [requiresGrad] whether `backward` finds its gradient; false when left out
 */

const inspect = Symbol.for('nodejs.util.inspect.custom');

/**
 * An array on the device, made by `tensor`, `zeros`, `randn` and so on, and by operations, which run in the order of their calls.
 * `await x.toArray()` reads it.
 */
export class Tensor extends TensorCore {
  // ---- reading

  /**
   * The elements, row by row: a Float32Array (also of f16 and bf16), Int32Array, Uint32Array, or a Uint8Array of bools.
   * @returns {Promise<Float32Array | Int32Array | Uint32Array | Uint8Array>}
   */
  async toArray() {
    return decode(await readBytes('toArray', this), this.dtype, this.size);
  }

  /** The one element of a tensor that has one. @returns {Promise<number>} */
  async item() {
    if (this.size !== 1) throw new ArgumentError('item', `${show(this.shape)} has ${this.size} elements; use toArray()`);
    return decode(await readBytes('item', this), this.dtype, 1)[0];
  }

  /** The elements in nested arrays. @returns {Promise<import('../core/host.mjs').Nested>} */
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

  /** JavaScript has no operators on tensors: `a + b` would concatenate two strings. @returns {never} */
  [Symbol.toPrimitive]() {
    throw new ArgumentError(
      'tensor',
      'a tensor is not a number: use a.add(b), a.mul(b), a.gt(b) … to compute, F.where to choose, await a.item() for its value',
    );
  }

  /** A tensor has no JSON: its elements are on the device. @returns {never} */
  toJSON() {
    throw new ArgumentError('tensor', 'a tensor has no JSON: write what await x.toNested() gives, or save(path, tensors) for a file');
  }

  [inspect]() {
    const what = this.storage === undefined ? `, ${this.fate}` : this.requiresGrad ? ', requiresGrad' : '';
    return `Tensor(${show(this.shape)}, ${this.dtype}${what})`;
  }

  // ---- memory and gradients

  /** The same elements, without gradients. */
  detach() {
    return new Tensor(storageOf('detach', this), this.layout);
  }
  /** Another object for the same elements. */
  alias() {
    return new Tensor(storageOf('alias', this), this.layout);
  }

  /** Sets whether `backward` computes the gradient of this leaf. @param {boolean} [requires] */
  requiresGrad_(requires = true) {
    if (this.node) throw new UsageError('requiresGrad_', 'a result of operations; only leaves can be changed. Use detach() for a constant');
    if (this.dtype !== 'f32' && this.dtype !== 'f16' && this.dtype !== 'bf16') {
      throw new ArgumentError('requiresGrad_', `${this.dtype} elements have no gradients`);
    }
    this.requiresGrad = requires;
    return this;
  }

  /**
   * Adds the gradients of this number to the `grad` of every leaf that it depends on.
   * @param {import('./autograd.mjs').BackwardOptions} [options]
   */
  backward(options) {
    storageOf('backward', this);
    runBackward(this, options);
  }

  /** Adds to the gradient. @param {Tensor} gradient */
  accumulate(gradient) {
    if (!(gradient instanceof Tensor)) throw new ArgumentError('accumulate', `expected a tensor, got ${describe(gradient)}`);
    const recording = recordingNow();
    if (recording && this.serial < recording.serial) {
      throw new UsageError(
        'backward',
        `the gradient of a tensor ${show(this.shape)} would be memory of the compiled function: make the optimizer before the first call ` +
          '(it has memory for gradients, but one that was disposed of, or made before the parameter was replaced, has none for this one), ' +
          'or take gradients with grad(…) and return them',
      );
    }
    within('accumulate', () => {
      this.grad = accumulated(this.grad, gradient);
    });
  }

  /** Forgets the gradient. */
  zeroGrad() {
    recordingNow()?.gradientOf(this);
    this.grad?.dispose();
    this.grad = undefined;
  }

  // ---- in place

  /** Writes over the elements. @param {Tensor | number | ArrayBufferView} source of this shape, or that broadcasts to it; may share its memory */
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
    applyInto(movement.write, [this, this.#overlaps(values) ? values.clone() : values], undefined, this);
    return this;
  }
  /** Writes a number over all elements. @param {number} value */
  fill_(value) {
    return within('fill_', () => this.#write(value));
  }
  /** Writes 0 over all elements. */
  zero_() {
    return within('zero_', () => this.#write(0));
  }
  /** Whether other elements of the same memory would be read while this tensor is written. @param {Tensor} other */
  #overlaps(other) {
    return other.storage === this.storage && other.layout !== this.layout;
  }
  /** Adds to the elements. @param {Operand} other @param {AddOptions} [options] */
  add_(other, options = {}) {
    const { alpha = 1 } = checkOptions('add_', options, ['alpha']);
    if (typeof alpha !== 'number') throw new ArgumentError('add_', `alpha is a number, got ${shown(alpha)}`);
    return within('add_', () => {
      if (typeof other === 'number') return this.#affine_('add', 1, other * alpha);
      return this.#binary_(pointwise.add, other, { alpha: 1, beta: alpha });
    });
  }
  /** Multiplies the elements. @param {Operand} other */
  mul_(other) {
    return within('mul_', () => (typeof other === 'number' ? this.#affine_('mul', other, -0) : this.#binary_(pointwise.mul, other)));
  }
  /** @param {string} name @param {number} alpha @param {number} beta */
  #affine_(name, alpha, beta) {
    if (!this.layout.contiguous) return this.copy_(F.add(F.mul(this.detach(), alpha), beta));
    applyInto(pointwise.affine, [this], { name: `${name}_`, alpha, beta }, this);
    return this;
  }
  /** @param {import('../ops/registry.mjs').Op} op @param {Tensor} other @param {import('../ops/registry.mjs').Attributes} [attributes] */
  #binary_(op, other, attributes) {
    if (!(other instanceof Tensor)) throw new ArgumentError(`${op.name}_`, `expected a tensor or a number, got ${describe(other)}`);
    const dense = other.layout.contiguous && this.layout.contiguous;
    const same = dense && show(other.shape) === show(this.shape) && other.dtype === this.dtype;
    if (same && !this.#overlaps(other)) applyInto(op, [this, other], attributes, this);
    else this.copy_(apply(op, [this.detach(), F.expand(F.to(other, this.dtype), this.shape).contiguous()], attributes));
    return this;
  }

  // ---- operations

  /** Dense, row by row: this tensor where it is so. @returns {Tensor} */
  contiguous() {
    return this.layout.contiguous ? this : within('contiguous', () => F.clone(this));
  }
  /** A dense copy, through which gradients flow. */
  clone() {
    return F.clone(this);
  }
  /** The elements in another type; this tensor where it has it. @param {DType} dtype */
  to(dtype) {
    return F.to(this, dtype);
  }
  /** The same elements in another shape; one size may be -1, to be found from the others. @param {...number} shape */
  reshape(...shape) {
    return F.reshape(this, shape.flat());
  }
  /** The same as `reshape`: a copy where the strides do not allow a view. @param {...number} shape */
  view(...shape) {
    return within('view', () => F.reshape(this, shape.flat()));
  }
  /** The dimensions in another order, as a view. @param {...number} order */
  permute(...order) {
    return F.permute(this, order.flat());
  }
  /** Two dimensions exchanged, as a view. @param {number} a @param {number} b */
  transpose(a, b) {
    return F.transpose(this, a, b);
  }
  /** The last two dimensions exchanged. */
  get T() {
    return within('T', () => F.transpose(this, -2, -1));
  }
  /** Repeated to a larger shape, as a view. @param {...number} shape */
  expand(...shape) {
    return F.expand(this, shape.flat());
  }
  /** With one more dimension, of size 1, at `dim` of the result. @param {number} dim */
  unsqueeze(dim) {
    return F.unsqueeze(this, dim);
  }
  /** Without a dimension of size 1, or without all such dimensions if `dim` is left out. @param {number} [dim] */
  squeeze(dim) {
    return F.squeeze(this, dim);
  }
  /** With the dimensions from `start` to `end` merged into one. @param {number} [start] @param {number} [end] */
  flatten(start = 0, end = -1) {
    storageOf('flatten', this);
    const [a, b] = [start, end].map((d) => dimension('flatten', d, Math.max(this.ndim, 1)));
    if (a > b) throw new ShapeError('flatten', `dimensions ${start} to ${end} of ${show(this.shape)} are none`);
    return within('flatten', () => F.reshape(this, [...this.shape.slice(0, a), -1, ...this.shape.slice(b + 1)]));
  }
  /** Elements `start` to before `end` of a dimension, every `step`-th, as a view; a negative `start` or `end` counts from the end. @param {number} dim @param {number} [start] @param {number} [end] @param {number} [step] */
  slice(dim, start, end, step) {
    return F.slice(this, dim, start, end, step);
  }
  /** The part of index `i` of the first dimension (negative: from the end). @param {number} i */
  at(i) {
    storageOf('at', this);
    const size = this.shape[0];
    if (!(Number.isInteger(i) && i >= -size && i < size)) throw new ShapeError('at', `index ${shown(i)} of ${show(this.shape)}`);
    const index = i < 0 ? i + size : i;
    return F.squeeze(F.slice(this, 0, index, index + 1), 0);
  }
  /** Parts of at most `size` along a dimension, the first when left out, as views. @param {number} size @param {number} [dim] */
  split(size, dim) {
    return F.split(this, size, dim);
  }
  /** At most `count` parts of one size along a dimension, the first when left out; the last may be smaller. @param {number} count @param {number} [dim] */
  chunk(count, dim = 0) {
    if (!(Number.isInteger(count) && count > 0)) throw new ArgumentError('chunk', `count is an integer of at least 1, got ${shown(count)}`);
    storageOf('chunk', this);
    if (this.ndim === 0) throw new ShapeError('chunk', 'a tensor [] has no dimension to split');
    return F.split(this, Math.ceil(this.shape[dimension('chunk', dim, this.ndim)] / count), dim);
  }
  /** this + other, broadcast. @param {Operand} other */
  add(other) {
    return F.add(this, other);
  }
  /** this - other, broadcast. @param {Operand} other */
  sub(other) {
    return F.sub(this, other);
  }
  /** this · other, element by element, broadcast. @param {Operand} other */
  mul(other) {
    return F.mul(this, other);
  }
  /** this / other, broadcast. @param {Operand} other */
  div(other) {
    return F.div(this, other);
  }
  /** Where this = other, as bools. @param {Operand} other */
  eq(other) {
    return F.eq(this, other);
  }
  /** Where this ≠ other, as bools. @param {Operand} other */
  ne(other) {
    return F.ne(this, other);
  }
  /** Where this < other, as bools. @param {Operand} other */
  lt(other) {
    return F.lt(this, other);
  }
  /** Where this ≤ other, as bools. @param {Operand} other */
  le(other) {
    return F.le(this, other);
  }
  /** Where this > other, as bools. @param {Operand} other */
  gt(other) {
    return F.gt(this, other);
  }
  /** Where this ≥ other, as bools. @param {Operand} other */
  ge(other) {
    return F.ge(this, other);
  }
  /** The elements, with `value` where the mask is true. @param {Tensor} mask bool, broadcast @param {number} value */
  maskedFill(mask, value) {
    return within('maskedFill', () => F.where(mask, value, this));
  }
  /** The larger of each two elements, broadcast. @param {Operand} other */
  maximum(other) {
    return F.maximum(this, other);
  }
  /** The smaller of each two elements, broadcast. @param {Operand} other */
  minimum(other) {
    return F.minimum(this, other);
  }
  /** The elements, limited to `min` and `max`; one of the two may be left out (`undefined`). The gradient passes at a limit, too. @param {Operand} [min] @param {Operand} [max] */
  clamp(min, max) {
    return F.clamp(this, min, max);
  }
  /** The elements to the power of a number, as `F.pow`: a negative element gives NaN unless the exponent is an integer. @param {number} exponent */
  pow(exponent) {
    return F.pow(this, exponent);
  }
  /** -x of each element. */
  neg() {
    return F.neg(this);
  }
  /** eˣ of each element. */
  exp() {
    return F.exp(this);
  }
  /** The natural logarithm of each element. */
  log() {
    return F.log(this);
  }
  /** √x of each element. */
  sqrt() {
    return F.sqrt(this);
  }
  /** 1 / √x of each element. */
  rsqrt() {
    return F.rsqrt(this);
  }
  /** 1 / x of each element. */
  reciprocal() {
    return F.reciprocal(this);
  }
  /** |x| of each element. */
  abs() {
    return F.abs(this);
  }
  /** x² of each element. */
  square() {
    return F.square(this);
  }
  /** -1, 0 or 1 for each element. Its gradient is 0. */
  sign() {
    return F.sign(this);
  }
  /** max(x, 0) of each element. */
  relu() {
    return F.relu(this);
  }
  /** The hyperbolic tangent of each element. */
  tanh() {
    return F.tanh(this);
  }
  /** 1 / (1 + exp(-x)) of each element. */
  sigmoid() {
    return F.sigmoid(this);
  }
  /** The matrix product, as PyTorch's: [..., m, k] × [..., k, n], leading sizes broadcast. @param {Tensor} other */
  matmul(other) {
    return F.matmul(this, other);
  }
  /** Σ over dimensions, all when left out. @param {number | readonly number[]} [dim] @param {boolean} [keepdim] */
  sum(dim, keepdim) {
    return F.sum(this, dim, keepdim);
  }
  /** The mean over dimensions, all when left out. @param {number | readonly number[]} [dim] @param {boolean} [keepdim] */
  mean(dim, keepdim) {
    return F.mean(this, dim, keepdim);
  }
  /** The largest elements along one dimension, the last when left out; NaN where one of them is. @param {number} [dim] @param {boolean} [keepdim] */
  amax(dim, keepdim) {
    return F.amax(this, dim, keepdim);
  }
  /** The smallest elements along one dimension, the last when left out; NaN where one of them is. @param {number} [dim] @param {boolean} [keepdim] */
  amin(dim, keepdim) {
    return F.amin(this, dim, keepdim);
  }
  /** The indices of the largest elements along a dimension, the last when left out, as i32. @param {number} [dim] @param {boolean} [keepdim] */
  argmax(dim, keepdim) {
    return indexing.argmax(this, dim, keepdim);
  }
  /** The indices of the smallest elements along a dimension, the last when left out, as i32. @param {number} [dim] @param {boolean} [keepdim] */
  argmin(dim, keepdim) {
    return indexing.argmin(this, dim, keepdim);
  }
  /** Elements by index along a dimension: `F.gather`. @param {number} dim @param {Tensor} index */
  gather(dim, index) {
    return indexing.gather(this, dim, index);
  }
  /** The elements, with others written by index along a dimension: `F.scatter`. @param {number} dim @param {Tensor} index @param {Operand} source */
  scatter(dim, index, source) {
    return indexing.scatter(this, dim, index, source);
  }
  /** The elements, with others added by index along a dimension: `F.scatterAdd`. @param {number} dim @param {Tensor} index @param {Tensor} source */
  scatterAdd(dim, index, source) {
    return indexing.scatterAdd(this, dim, index, source);
  }
  /** Slices of a dimension by index. @param {number} dim @param {Tensor} index [n] i32 or u32 */
  indexSelect(dim, index) {
    return indexing.indexSelect(this, dim, index);
  }
  /** softmax(x) along a dimension, the last when left out. @param {number} [dim] */
  softmax(dim) {
    return F.softmax(this, dim);
  }
}

setTensorClass(Tensor);

/**
 * The bytes of a tensor's elements, row by row.
 * @param {string} op the call, for errors @param {Tensor} x
 * @returns {Promise<Uint8Array>}
 */
export async function readBytes(op, x) {
  storageOf(op, x);
  if (isRecording()) {
    throw new UsageError(op, 'there are no values while a function is compiled: return the tensor and read what the call returns');
  }
  if (x.size === 0) return new Uint8Array(0);
  const device = runtime();
  const dense = x.layout.contiguous ? x : within(op, () => unscoped(() => F.clone(x.detach())));
  const { layout, storage } = /** @type {{ layout: Layout, storage: Storage }} */ (dense);
  const size = BYTES[layout.dtype];
  const from = layout.offset * size;
  const start = Math.floor(from / 4) * 4;
  const end = Math.ceil((from + layout.size * size) / 4) * 4;
  device.flush();
  const words = await device.vk.readAsync(storage.allocation.handle, start, end - start);
  if (dense !== x) dense.dispose();
  return new Uint8Array(words.buffer, words.byteOffset + from - start, layout.size * size);
}

/**
 * A tensor of host data.
 * @param {import('../core/host.mjs').Nested | import('../core/host.mjs').Numbers} data a number, nested arrays of one shape, or a
 *   typed array
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
  // In a compiled function the graph keeps the data; each call gets a copy, which it may overwrite and return.
  const result = isRecording() ? F.clone(constant) : constant;
  return requiresGrad ? result.requiresGrad_() : result;
}

/** A tensor with undefined contents. @param {readonly number[]} shape @param {import('./functional.mjs').TypeOptions} [options] */
export function empty(shape, options = {}) {
  const sizes = checkShape('empty', shape);
  const { dtype = 'f32' } = checkOptions('empty', options, ['dtype']);
  const layout = denseLayout(sizes, checkType('empty', dtype));
  checkBytes('empty', layout);
  return new Tensor(allocate(layout.size * BYTES[dtype]), layout);
}
