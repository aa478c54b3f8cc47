// The public class `Tensor` with its methods, and the functions that make tensors from host data.

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
 * @property {DType} [dtype] the element type; when left out, i32 for an Int32Array, u32 for a Uint32Array, bool for booleans, else f32
 * @property {readonly number[]} [shape] the shape, filled row by row; the nesting of the arrays when left out
 * @property {boolean} [requiresGrad] whether `backward` computes its gradient; false when left out
 */

const inspect = Symbol.for('nodejs.util.inspect.custom');

/**
 * An array on the device. `tensor`, `zeros`, `randn` and others make one, and so does every operation. Operations run asynchronously on the
 * device, in the order of their calls; `await x.toArray()` reads the values back.
 */
export class Tensor extends TensorCore {
  // ---- reading

  /**
   * Reads the elements, row by row: a Float32Array for f32, f16 and bf16, an Int32Array, a Uint32Array, or a Uint8Array of 0 and 1 for bool.
   * Throws a UsageError for a disposed tensor, and while a function is compiled.
   * @returns {Promise<Float32Array | Int32Array | Uint32Array | Uint8Array>}
   */
  async toArray() {
    return decode(await readBytes('toArray', this), this.dtype, this.size);
  }

  /** Reads the only element. Throws an ArgumentError if the size is not 1. @returns {Promise<number>} */
  async item() {
    if (this.size !== 1)
      throw new ArgumentError('item', `the tensor ${show(this.shape)} has ${this.size} elements, not one; use toArray()`);
    return decode(await readBytes('item', this), this.dtype, 1)[0];
  }

  /** Reads the elements as nested arrays; those of a bool tensor are booleans. @returns {Promise<import('../core/host.mjs').Nested>} */
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
      throw new UsageError(
        'backward',
        `the gradient of a tensor ${show(this.shape)} would lie in memory of the compiled function: make the optimizer before the first call ` +
          '(an optimizer has memory for gradients; one that was disposed of, or made before the parameter was replaced, has none for this one), ' +
          'or take gradients with grad(…) and return them',
      );
    }
    within('accumulate', () => {
      this.grad = accumulated(this.grad, gradient);
    });
  }

  /** Disposes of `grad` and sets it to undefined. */
  zeroGrad() {
    recordingNow()?.gradientOf(this);
    this.grad?.dispose();
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
    applyInto(movement.write, [this, this.#overlaps(values) ? values.clone() : values], undefined, this);
    return this;
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
      if (typeof other === 'number') return this.#affine_('add', 1, other * alpha);
      return this.#binary_(pointwise.add, other, { alpha: 1, beta: alpha });
    });
  }
  /** this · other, in place. @param {Operand} other broadcasts to this shape */
  mul_(other) {
    return within('mul_', () => (typeof other === 'number' ? this.#affine_('mul', other, -0) : this.#binary_(pointwise.mul, other)));
  }
  /** alpha · this + beta, in place. @param {string} name of the operation @param {number} alpha @param {number} beta */
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

  /** This tensor if its elements are dense, row by row; otherwise a dense copy. @returns {Tensor} */
  contiguous() {
    return this.layout.contiguous ? this : within('contiguous', () => F.clone(this));
  }
  /** A dense copy, through which gradients flow. */
  clone() {
    return F.clone(this);
  }
  /** The elements converted to another type; this tensor if it has that type. @param {DType} dtype */
  to(dtype) {
    return F.to(this, dtype);
  }
  /** The same elements in another shape: a view if the strides allow, else a copy. @param {...number} shape one size may be -1: inferred */
  reshape(...shape) {
    return F.reshape(this, shape.flat());
  }
  /** The same as `reshape`: unlike PyTorch's `view`, it copies if the strides do not allow a view. @param {...number} shape */
  view(...shape) {
    return within('view', () => F.reshape(this, shape.flat()));
  }
  /** The dimensions in another order, as a view. @param {...number} order for each dimension of the result, the one of this tensor */
  permute(...order) {
    return F.permute(this, order.flat());
  }
  /** Exchanges two dimensions, as a view; negative numbers count from the end. @param {number} a @param {number} b */
  transpose(a, b) {
    return F.transpose(this, a, b);
  }
  /** The transpose of the last two dimensions, as a view. */
  get T() {
    return within('T', () => F.transpose(this, -2, -1));
  }
  /** Repeats dimensions of size 1 up to a larger shape, as a view. @param {...number} shape */
  expand(...shape) {
    return F.expand(this, shape.flat());
  }
  /** Inserts a dimension of size 1 at `dim` of the result, as a view. @param {number} dim */
  unsqueeze(dim) {
    return F.unsqueeze(this, dim);
  }
  /** Removes a dimension of size 1, or all such dimensions if `dim` is left out, as a view. @param {number} [dim] */
  squeeze(dim) {
    return F.squeeze(this, dim);
  }
  /**
   * Merges the dimensions from `start` to `end`, both included, into one.
   * @param {number} [start] the first dimension when left out @param {number} [end] the last when left out
   */
  flatten(start = 0, end = -1) {
    storageOf('flatten', this);
    const [a, b] = [start, end].map((d) => dimension('flatten', d, Math.max(this.ndim, 1)));
    if (a > b) throw new ShapeError('flatten', `the first dimension, ${start}, lies behind the last, ${end}, in ${show(this.shape)}`);
    return within('flatten', () => F.reshape(this, [...this.shape.slice(0, a), -1, ...this.shape.slice(b + 1)]));
  }
  /**
   * The elements from `start` to before `end` along a dimension, every `step`-th, as a view. A negative `start` or `end` counts from the end.
   * @param {number} dim @param {number} [start] 0 when left out @param {number} [end] the size when left out @param {number} [step] 1 when left
   *   out
   */
  slice(dim, start, end, step) {
    return F.slice(this, dim, start, end, step);
  }
  /**
   * The slice at index `i` of the first dimension, without that dimension, as a view. Throws a ShapeError for an index out of range.
   * @param {number} i negative: from the end
   */
  at(i) {
    storageOf('at', this);
    const size = this.shape[0];
    if (!(Number.isInteger(i) && i >= -size && i < size))
      throw new ShapeError('at', `index ${shown(i)} is out of range for ${show(this.shape)}`);
    const index = i < 0 ? i + size : i;
    return F.squeeze(F.slice(this, 0, index, index + 1), 0);
  }
  /**
   * Splits a dimension into parts of `size`; the last may be smaller. The parts are views.
   * @param {number} size @param {number} [dim] the first when left out
   */
  split(size, dim) {
    return F.split(this, size, dim);
  }
  /**
   * Splits a dimension into at most `count` parts of equal size; the last may be smaller. The parts are views.
   * @param {number} count @param {number} [dim] the first when left out
   */
  chunk(count, dim = 0) {
    if (!(Number.isInteger(count) && count > 0))
      throw new ArgumentError('chunk', `count must be an integer of at least 1, got ${shown(count)}`);
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
  /** this = other, as bool, broadcast. @param {Operand} other */
  eq(other) {
    return F.eq(this, other);
  }
  /** this ≠ other, as bool, broadcast. @param {Operand} other */
  ne(other) {
    return F.ne(this, other);
  }
  /** this < other, as bool, broadcast. @param {Operand} other */
  lt(other) {
    return F.lt(this, other);
  }
  /** this ≤ other, as bool, broadcast. @param {Operand} other */
  le(other) {
    return F.le(this, other);
  }
  /** this > other, as bool, broadcast. @param {Operand} other */
  gt(other) {
    return F.gt(this, other);
  }
  /** this ≥ other, as bool, broadcast. @param {Operand} other */
  ge(other) {
    return F.ge(this, other);
  }
  /** A copy with `value` where the mask is true. @param {Tensor} mask bool, broadcast @param {number} value */
  maskedFill(mask, value) {
    return within('maskedFill', () => F.where(mask, value, this));
  }
  /** max(this, other), element by element, broadcast. @param {Operand} other */
  maximum(other) {
    return F.maximum(this, other);
  }
  /** min(this, other), element by element, broadcast. @param {Operand} other */
  minimum(other) {
    return F.minimum(this, other);
  }
  /**
   * Limits the elements to [min, max]. One of the two may be left out (`undefined`). An element equal to a limit still passes its gradient.
   * @param {Operand} [min] @param {Operand} [max]
   */
  clamp(min, max) {
    return F.clamp(this, min, max);
  }
  /** this ^ exponent, as `F.pow`: a negative element gives NaN unless the exponent is an integer. @param {number} exponent */
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
  /** The sign of each element: -1, 0 or 1. Its gradient is 0. */
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
  /** The matrix product, as PyTorch's: [..., m, k] × [..., k, n] → [..., m, n]; leading dimensions broadcast. @param {Tensor} other */
  matmul(other) {
    return F.matmul(this, other);
  }
  /** The sum over dimensions, all when left out. @param {number | readonly number[]} [dim] @param {boolean} [keepdim] keeps them with size 1 */
  sum(dim, keepdim) {
    return F.sum(this, dim, keepdim);
  }
  /** The mean over dimensions, all when left out. @param {number | readonly number[]} [dim] @param {boolean} [keepdim] keeps them with size 1 */
  mean(dim, keepdim) {
    return F.mean(this, dim, keepdim);
  }
  /**
   * The maximum along one dimension; NaN if any element is NaN.
   * @param {number} [dim] the last when left out @param {boolean} [keepdim] keeps it with size 1
   */
  amax(dim, keepdim) {
    return F.amax(this, dim, keepdim);
  }
  /**
   * The minimum along one dimension; NaN if any element is NaN.
   * @param {number} [dim] the last when left out @param {boolean} [keepdim] keeps it with size 1
   */
  amin(dim, keepdim) {
    return F.amin(this, dim, keepdim);
  }
  /**
   * The index of the maximum along a dimension, as i32; see `F.argmax`.
   * @param {number} [dim] the last when left out @param {boolean} [keepdim] keeps it with size 1
   */
  argmax(dim, keepdim) {
    return indexing.argmax(this, dim, keepdim);
  }
  /**
   * The index of the minimum along a dimension, as i32; see `F.argmin`.
   * @param {number} [dim] the last when left out @param {boolean} [keepdim] keeps it with size 1
   */
  argmin(dim, keepdim) {
    return indexing.argmin(this, dim, keepdim);
  }
  /** Picks elements by index along a dimension; see `F.gather`. @param {number} dim @param {Tensor} index i32 or u32 */
  gather(dim, index) {
    return indexing.gather(this, dim, index);
  }
  /** A copy with elements of `source` written by index; see `F.scatter`. @param {number} dim @param {Tensor} index @param {Operand} source */
  scatter(dim, index, source) {
    return indexing.scatter(this, dim, index, source);
  }
  /** A copy with elements of `source` added by index; see `F.scatterAdd`. @param {number} dim @param {Tensor} index @param {Tensor} source */
  scatterAdd(dim, index, source) {
    return indexing.scatterAdd(this, dim, index, source);
  }
  /** Picks slices of a dimension by index; see `F.indexSelect`. @param {number} dim @param {Tensor} index [n] i32 or u32 */
  indexSelect(dim, index) {
    return indexing.indexSelect(this, dim, index);
  }
  /** exp(x) / Σ exp(x) along a dimension. @param {number} [dim] the last when left out */
  softmax(dim) {
    return F.softmax(this, dim);
  }
}

setTensorClass(Tensor);

/**
 * Reads the bytes of a tensor's elements, row by row. The read is ordered after all operations called so far.
 * @param {string} op the call, for errors @param {Tensor} x
 * @returns {Promise<Uint8Array>}
 */
export async function readBytes(op, x) {
  storageOf(op, x);
  if (isRecording()) {
    throw new UsageError(op, 'a tensor has no values while its function is compiled: return the tensor and read what the call returns');
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
 * Makes a tensor from host data. Throws an ArgumentError for what is not a number, or not a value of the type; a ShapeError for ragged
 * arrays, and if the data has not as many elements as the shape.
 * @param {import('../core/host.mjs').Nested | import('../core/host.mjs').Numbers} data a number, nested arrays of equal lengths, or a typed
 *   array
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
