// The operations as functions of tensors: `F`. Shapes are checked in the call. A number stands for a tensor of one
// element wherever an operand may be broadcast.

import { autocastType, castOf, rememberCast, withoutAutocast } from './autocast.mjs';
import { apply, applyAll, describe, storageOf, view } from './engine.mjs';
import { ArgumentError, ShapeError, show } from './errors.mjs';
import { broadcastShapes, checkNumber, checkShape, checkType, dimension, isFloat, layoutOf, reshapeStrides, sizeOf } from './layout.mjs';
import * as attentionOps from './ops/attention.mjs';
import * as products from './ops/matmul.mjs';
import * as movement from './ops/movement.mjs';
import * as network from './ops/network.mjs';
import * as pointwise from './ops/pointwise.mjs';
import * as reduce from './ops/reduce.mjs';
import * as selection from './ops/select.mjs';
import { causalMask } from './masks.mjs';
import { full32, pairs, single, tensorOf } from './operands.mjs';
import { checkOptions } from './options.mjs';
import { productAttributes } from './precision.mjs';
import { deviceState } from './random.mjs';
import { runtime } from './runtime.mjs';
import { Tensor } from './tensor.mjs';

/** The type of a tensor's elements. @typedef {import('./layout.mjs').DType} DType */
/** An operation, as the engine knows it. @typedef {import('./ops/registry.mjs').Op} Op */
/** A tensor, or a number that stands for a tensor of one element. @typedef {Tensor | number} Operand */

/**
 * Options of tensors of one value.
 * @typedef {object} TypeOptions
 * @property {DType} [dtype] the element type; f32 when left out
 */

/**
 * Options of `variance`.
 * @typedef {object} VarianceOptions
 * @property {boolean} [keepdim] whether the reduced dimensions stay, of size 1; false when left out
 * @property {number} [correction] is taken from the count of elements: 1 when left out, 0 for the population's variance
 */

/**
 * What `rope` turns.
 * @typedef {object} RopeOptions
 * @property {number} heads how many heads of each row are turned, from the first on
 * @property {number} headSize elements of a head
 */

/**
 * Options of `attention`.
 * @typedef {object} AttentionOptions
 * @property {number} heads the width is a multiple of it
 * @property {boolean} [causal] whether a token sees only itself and those before it; false when left out
 */

/**
 * Options of `scaledDotProductAttention`.
 * @typedef {object} ScoreOptions
 * @property {boolean} [isCausal] whether a query sees only keys up to its own place, where the last query stands at the last key; false when left out
 * @property {number} [scale] a factor on the scores; 1 / √headSize when left out
 * @property {Tensor} [mask] is added to the scores, to whose shape [..., queries, keys] it broadcasts
 */

/** An operation by itself, for backward passes. @param {Op} op @param {Tensor[]} inputs @param {any} [attributes] */
export const call = (op, inputs, attributes) => apply(op, inputs, attributes);
/** As `call`, with all outputs: the result, and what is kept for the backward pass. @param {Op} op @param {Tensor[]} inputs @param {any} [attributes] */
export const callAll = (op, inputs, attributes) => applyAll(op, inputs, attributes);

// ---- made of nothing

/**
 * A tensor of one value.
 * @param {readonly number[]} shape
 * @param {number} value
 * @param {TypeOptions} [options]
 */
export function full(shape, value, options = {}) {
  if (typeof value !== 'number') throw new ArgumentError('full', `expected a number, got ${String(value)}`);
  return filled('full', shape, value, options);
}
/** A tensor of zeros. @param {readonly number[]} shape @param {TypeOptions} [options] */
export const zeros = (shape, options = {}) => filled('zeros', shape, 0, options);
/** A tensor of ones. @param {readonly number[]} shape @param {TypeOptions} [options] */
export const ones = (shape, options = {}) => filled('ones', shape, 1, options);

/** @param {string} op @param {readonly number[]} shape @param {number} value @param {TypeOptions} options */
function filled(op, shape, value, options) {
  const sizes = checkShape(op, shape); // first: `zeros(2, 3)` is a mistake about the shape
  const { dtype = 'f32' } = checkOptions(op, options, ['dtype']);
  return apply(movement.fill, [], { shape: [...sizes], value: checkNumber(op, value, checkType(op, dtype)), dtype });
}

// ---- types and places

/**
 * The elements in another type; the same tensor where it has it.
 * @param {Tensor} x @param {DType} dtype
 */
export function to(x, dtype) {
  tensorOf('to', x);
  if (x.dtype === dtype) return x;
  checkType('to', dtype);
  // Integers have no gradient.
  return apply(movement.cast, [isFloat(dtype) ? x : x.detach()], { dtype });
}

/** An operand of a product, in autocast's type. @param {Tensor} x @returns {Tensor} */
function operand(x) {
  const dtype = autocastType();
  if (dtype === undefined || x.dtype === dtype || !isFloat(x.dtype)) return x;
  storageOf('autocast', x);
  const kept = x.halfCopy(dtype);
  if (kept) return view(movement.cast, x, kept.layout, { dtype }, kept.storage);
  const known = castOf(x, dtype);
  if (known) return known;
  const cast = to(x, dtype);
  rememberCast(x, cast);
  return cast;
}

/** A dense copy. @param {Tensor} x */
export const clone = (x) => apply(movement.copy, [tensorOf('clone', x)]);

/**
 * The same elements in another shape; one size may be -1, to be found from the others. A view where the strides allow.
 * @param {Tensor} x @param {readonly number[]} shape
 */
export function reshape(x, shape) {
  tensorOf('reshape', x);
  if (!Array.isArray(shape)) throw new ShapeError('reshape', `a shape is an array of sizes, got ${describe(shape)}`);
  const free = shape.indexOf(-1);
  const given = sizeOf(shape) * (free < 0 ? 1 : -1);
  const sizes = free < 0 ? [...shape] : shape.with(free, x.size / given);
  if (sizes.some((size) => !Number.isInteger(size) || size < 1) || sizeOf(sizes) !== x.size) {
    throw new ShapeError('reshape', `${show(x.shape)} of ${x.size} elements to ${show(shape)}`);
  }
  const strides = reshapeStrides(x.layout, sizes);
  if (strides === undefined) return reshape(x.contiguous(), sizes);
  return view(movement.reshape, x, layoutOf(sizes, strides, x.layout.offset, x.dtype), { shape: sizes });
}

/** The dimensions in another order. @param {Tensor} x @param {readonly number[]} order */
export function permute(x, order) {
  tensorOf('permute', x);
  if (!Array.isArray(order)) throw new ShapeError('permute', `an order is an array of dimensions, got ${describe(order)}`);
  const dims = order.map((d) => dimension('permute', d, x.ndim));
  if (dims.length !== x.ndim || new Set(dims).size !== x.ndim)
    throw new ShapeError('permute', `order ${show(order)} of ${x.ndim} dimensions`);
  const attributes = { order: dims };
  return view(movement.permute, x, movement.permute.infer([x.layout], attributes)[0], attributes);
}

/** Two dimensions exchanged. @param {Tensor} x @param {number} a @param {number} b */
export function transpose(x, a, b) {
  const order = tensorOf('transpose', x).shape.map((_, d) => d);
  const [i, j] = [dimension('transpose', a, x.ndim), dimension('transpose', b, x.ndim)];
  [order[i], order[j]] = [j, i];
  return permute(x, order);
}

/** Repeated to a larger shape, as a view. @param {Tensor} x @param {readonly number[]} shape */
export function expand(x, shape) {
  tensorOf('expand', x);
  checkShape('expand', shape);
  if (show(broadcastShapes('expand', x.shape, shape)) !== show(shape)) throw new ShapeError('expand', `${show(x.shape)} to ${show(shape)}`);
  if (show(shape) === show(x.shape)) return x;
  return view(movement.expand, x, movement.expand.infer([x.layout], { shape })[0], { shape: [...shape] });
}

/** With a dimension of size 1 more. @param {Tensor} x @param {number} dim where it stands in the result */
export function unsqueeze(x, dim) {
  const at = dimension('unsqueeze', dim, tensorOf('unsqueeze', x).ndim + 1);
  return reshape(x, x.shape.toSpliced(at, 0, 1));
}

/** Without a dimension of size 1; without all of them where none is named. @param {Tensor} x @param {number} [dim] */
export function squeeze(x, dim) {
  tensorOf('squeeze', x);
  const at = dim === undefined ? -1 : dimension('squeeze', dim, x.ndim);
  return reshape(
    x,
    x.shape.filter((size, d) => size !== 1 || (at >= 0 && d !== at)),
  );
}

/**
 * Elements `start` to `end` (exclusive; negative ones count from the end) of a dimension, as a view.
 * @param {Tensor} x @param {number} dim @param {number} [start] @param {number} [end] @param {number} [step] positive
 */
export function slice(x, dim, start = 0, end = Infinity, step = 1) {
  tensorOf('slice', x);
  const d = dimension('slice', dim, x.ndim);
  const size = x.shape[d];
  const clamp = (/** @type {number} */ i) => Math.min(size, Math.max(0, i < 0 ? i + size : i));
  if (typeof start !== 'number' || typeof end !== 'number') {
    throw new ShapeError('slice', `start and end are integers, got ${describe(start)} and ${describe(end)}`);
  }
  const [from, behind] = [clamp(start), clamp(end)];
  if (!(Number.isInteger(step) && step > 0)) throw new ShapeError('slice', `a step is a positive integer, got ${step}`);
  if (!Number.isInteger(from) || !Number.isInteger(behind) || behind <= from) {
    throw new ShapeError('slice', `elements ${start} to ${end} of dimension ${dim} of ${show(x.shape)} are none`);
  }
  const attributes = { dim: d, start: from, length: Math.ceil((behind - from) / step), step };
  return view(movement.slice, x, movement.slice.infer([x.layout], attributes)[0], attributes);
}

/** Parts of at most `size` along a dimension, as views. @param {Tensor} x @param {number} size @param {number} [dim] */
export function split(x, size, dim = 0) {
  const d = dimension('split', dim, tensorOf('split', x).ndim);
  if (!(Number.isInteger(size) && size > 0)) throw new ShapeError('split', `a part has a positive integer of elements, got ${size}`);
  return Array.from({ length: Math.ceil(x.shape[d] / size) }, (_, i) => slice(x, d, i * size, (i + 1) * size));
}

/** Operands of one operation; with its result they are fewer than the slots of a template. */
const MAX_OPERANDS = 128;

/** Tensors end to end along a dimension. @param {Tensor[]} tensors of one type, equal in the other sizes @param {number} [dim] @returns {Tensor} */
export function cat(tensors, dim = 0) {
  if (!Array.isArray(tensors) || tensors.length === 0) throw new ArgumentError('cat', 'expected an array of tensors');
  const [first] = tensors.map((x) => tensorOf('cat', x));
  const d = dimension('cat', dim, first.ndim);
  for (const x of tensors) {
    if (x.ndim !== first.ndim || x.shape.some((size, i) => i !== d && size !== first.shape[i]) || x.dtype !== first.dtype) {
      throw new ShapeError('cat', `${first.dtype} ${show(first.shape)} and ${x.dtype} ${show(x.shape)} along dimension ${dim}`);
    }
  }
  if (isFloat(first.dtype) && first.dtype !== 'f32') {
    return to(
      cat(
        tensors.map((x) => to(x, 'f32')),
        d,
      ),
      first.dtype,
    );
  }
  // An operation has a limit of operands.
  if (tensors.length > MAX_OPERANDS) {
    const parts = Array.from({ length: Math.ceil(tensors.length / MAX_OPERANDS) }, (_, i) =>
      cat(tensors.slice(i * MAX_OPERANDS, (i + 1) * MAX_OPERANDS), d),
    );
    return cat(parts, d);
  }
  return apply(movement.concat, [...tensors], { dim: d });
}

/** Tensors of one shape along a new dimension. @param {Tensor[]} tensors @param {number} [dim] */
export function stack(tensors, dim = 0) {
  if (!Array.isArray(tensors)) throw new ArgumentError('stack', 'expected an array of tensors');
  return cat(
    tensors.map((x) => unsqueeze(tensorOf('stack', x), dim)),
    dim,
  );
}

// ---- element by element

/** The type that two operands meet in, by PyTorch's rule for floating types. @param {DType} a @param {DType} b @returns {DType} */
const meet = (a, b) => (a === b ? a : 'f32');

/** @param {Tensor} x @param {string} name @param {number} alpha @param {number} beta */
const affine = (x, name, alpha, beta) => apply(pointwise.affine, [tensorOf(name, x)], { name, alpha, beta });

/** @param {Op} op @param {Tensor} a @param {Tensor} b @param {any} [attributes] @returns {Tensor} */
function binary(op, a, b, attributes) {
  tensorOf(op.name, a);
  tensorOf(op.name, b);
  if (a.dtype !== b.dtype && isFloat(a.dtype) && isFloat(b.dtype)) {
    const dtype = meet(a.dtype, b.dtype);
    return binary(op, to(a, dtype), to(b, dtype), attributes);
  }
  // Strides of more dimensions are more push constants than every device has.
  if (a.ndim > 8 || b.ndim > 8) {
    const shape = broadcastShapes(op.name, a.shape, b.shape);
    return apply(op, [expand(a, shape).contiguous(), expand(b, shape).contiguous()], attributes);
  }
  return apply(op, [a, b], attributes);
}

/** @param {string} name @param {unknown} value @returns {value is number} */
function isNumber(name, value) {
  if (typeof value === 'number') return true;
  tensorOf(name, value);
  return false;
}

/** a + b, broadcast. @param {Operand} a @param {Operand} b @returns {Tensor} */
export function add(a, b) {
  if (isNumber('add', a)) return affine(/** @type {Tensor} */ (b), 'add', 1, a);
  if (isNumber('add', b)) return affine(a, 'add', 1, b);
  return binary(pointwise.add, a, b);
}
/** a - b, broadcast. @param {Operand} a @param {Operand} b @returns {Tensor} */
export function sub(a, b) {
  if (isNumber('sub', a)) return affine(/** @type {Tensor} */ (b), 'sub', -1, a);
  if (isNumber('sub', b)) return affine(a, 'sub', 1, -b);
  return binary(pointwise.add, a, b, { beta: -1 });
}
/** a · b, element by element, broadcast. @param {Operand} a @param {Operand} b @returns {Tensor} */
export function mul(a, b) {
  if (isNumber('mul', a)) return affine(/** @type {Tensor} */ (b), 'mul', a, 0);
  if (isNumber('mul', b)) return affine(a, 'mul', b, 0);
  return binary(pointwise.mul, a, b);
}
/** a / b, broadcast. A divisor that is a number is multiplied by its reciprocal. @param {Operand} a @param {Operand} b @returns {Tensor} */
export function div(a, b) {
  if (isNumber('div', a)) return mul(reciprocal(/** @type {Tensor} */ (b)), a);
  if (isNumber('div', b)) return affine(a, 'div', 1 / b, 0);
  return binary(pointwise.div, a, b);
}
/** @param {Op} op @param {object} [attributes] @returns {(a: Tensor, b: Operand) => Tensor} */
const bound = (op, attributes) => (a, b) =>
  binary(op, a, isNumber(op.name, b) ? full([], b, { dtype: tensorOf(op.name, a).dtype }) : b, attributes);
/** The larger of each two elements. @type {(a: Tensor, b: Operand) => Tensor} */
export const maximum = bound(pointwise.maximum);
/** The smaller of each two elements. @type {(a: Tensor, b: Operand) => Tensor} */
export const minimum = bound(pointwise.minimum);
const [atLeast, atMost] = [pointwise.maximum, pointwise.minimum].map((op) => bound(op, { clamps: true }));
/**
 * The elements, but none below `min` and none above `max`, broadcast; one of them may be left out. The gradient passes from one limit to the
 * other, and at them, as in PyTorch.
 * @param {Tensor} x @param {Operand} [min] @param {Operand} [max] @returns {Tensor}
 */
export function clamp(x, min, max) {
  if (min === undefined && max === undefined) throw new ArgumentError('clamp', 'expected min, max or both');
  const raised = min === undefined ? tensorOf('clamp', x) : atLeast(tensorOf('clamp', x), min);
  return max === undefined ? raised : atMost(raised, max);
}

/** @param {Op} op @returns {(a: Tensor, b: Operand) => Tensor} */
const comparison = (op) => (a, b) =>
  binary(op, tensorOf(op.name, a).detach(), isNumber(op.name, b) ? filled(op.name, [], b, { dtype: a.dtype }) : b.detach());

/** Where a = b, as bools. @param {Tensor} a @param {Operand} b */
export const eq = comparison(selection.eq);
/** Where a ≠ b, as bools. @param {Tensor} a @param {Operand} b */
export const ne = comparison(selection.ne);
/** Where a < b, as bools. @param {Tensor} a @param {Operand} b */
export const lt = comparison(selection.lt);
/** Where a ≤ b, as bools. @param {Tensor} a @param {Operand} b */
export const le = comparison(selection.le);
/** Where a > b, as bools. @param {Tensor} a @param {Operand} b */
export const gt = comparison(selection.gt);
/** Where a ≥ b, as bools. @param {Tensor} a @param {Operand} b */
export const ge = comparison(selection.ge);

/**
 * a where the condition holds, else b; all three broadcast. It chooses by values inside a compiled function, where `if` cannot.
 * @param {Tensor} condition bool @param {Operand} a @param {Operand} b of a's type
 * @returns {Tensor}
 */
export function where(condition, a, b) {
  tensorOf('where', condition);
  const dtype = typeof a !== 'number' ? tensorOf('where', a).dtype : typeof b !== 'number' ? tensorOf('where', b).dtype : 'f32';
  const [x, y] = [a, b].map((v) => (typeof v === 'number' ? filled('where', [], v, { dtype }) : tensorOf('where', v)));
  const shape = broadcastShapes('where', condition.shape, x.shape, y.shape);
  // Strides of more dimensions are more push constants than every device has.
  const inputs = shape.length > 4 ? [condition, x, y].map((v) => expand(v, shape).contiguous()) : [condition, x, y];
  return apply(selection.where, inputs);
}

/** @param {Op} op @returns {(x: Tensor) => Tensor} */
const unary = (op) => (x) => apply(op, [tensorOf(op.name, x)]);

/** -x. @param {Tensor} x */
export const neg = (x) => affine(x, 'neg', -1, 0);
/** eˣ of each element. */
export const exp = unary(pointwise.exp);
/** The natural logarithm of each element. */
export const log = unary(pointwise.log);
/** √x of each element. */
export const sqrt = unary(pointwise.sqrt);
/** 1 / √x of each element. */
export const rsqrt = unary(pointwise.rsqrt);
/** 1 / x of each element. */
export const reciprocal = unary(pointwise.reciprocal);
/** |x| of each element. */
export const abs = unary(pointwise.abs);
/** x² of each element. */
export const square = unary(pointwise.square);
/** -1, 0 or 1. Its gradient is 0. */
export const sign = unary(pointwise.sign);
/** max(x, 0) of each element. */
export const relu = unary(pointwise.relu);
/** x · sigmoid(x). */
export const silu = unary(pointwise.silu);
/** The tanh form (Hendrycks & Gimpel 2016); PyTorch's `approximate='tanh'`. */
export const gelu = unary(pointwise.geluOp);
/** The hyperbolic tangent of each element. */
export const tanh = unary(pointwise.tanh);
/** 1 / (1 + exp(-x)) of each element. */
export const sigmoid = unary(pointwise.sigmoidOp);

/** x to the power of a number: of 2, 1, ½, -½, -1, and of integers up to 64 by multiplication; of 0 it is 1 where x is finite. @param {Tensor} x @param {number} exponent @returns {Tensor} */
export function pow(x, exponent) {
  if (typeof exponent !== 'number') throw new ArgumentError('pow', `the exponent is a number, got ${describe(exponent)}`);
  if (exponent === 2) return square(x);
  if (exponent === 1) return clone(x);
  if (exponent === 0) return add(mul(x, 0), 1);
  if (exponent === 0.5) return sqrt(x);
  if (exponent === -0.5) return rsqrt(x);
  if (exponent === -1) return reciprocal(x);
  if (Number.isInteger(exponent) && exponent > 2 && exponent <= 64) {
    const half = square(pow(x, Math.floor(exponent / 2)));
    return exponent % 2 ? mul(half, x) : half;
  }
  if (Number.isInteger(exponent) && exponent < -1) return reciprocal(pow(x, -exponent));
  // x^e = exp(e · log x), for positive x.
  return exp(mul(log(x), exponent));
}

// ---- reductions

/** @param {string} op @param {Tensor} x @param {number | readonly number[] | undefined} dim */
function dimsOf(op, x, dim) {
  if (dim === undefined) return x.shape.map((_, d) => d);
  if (typeof dim !== 'number' && !Array.isArray(dim)) {
    throw new ArgumentError(op, `dimensions are a number or an array of them, got ${describe(dim)}: x.${op}(1, true) keeps the dimension`);
  }
  const dims = (typeof dim === 'number' ? [dim] : dim).map((d) => dimension(op, d, x.ndim));
  if (new Set(dims).size !== dims.length)
    throw new ShapeError(op, `dimensions ${show([dim].flat())} of ${show(x.shape)}: one is there twice`);
  return dims;
}

/** @param {Tensor} x @param {number[]} dims @param {boolean} keepdim @param {number} alpha @returns {Tensor} */
function summed(x, dims, keepdim, alpha) {
  let y;
  const parts = reduce.runs(x.shape, dims);
  // Sizes of 1: there is nothing to add.
  if (alpha === 1 && parts.every(({ reduced }) => !reduced)) y = reshape(x, reduce.keptShape(x.shape, dims));
  else if (parts.length > 2) {
    // Kept dimensions first, then the reduced ones.
    const kept = x.shape.map((_, d) => d).filter((d) => !dims.includes(d));
    const moved = permute(x, [...kept, ...dims]);
    const last = dims.map((_, i) => kept.length + i);
    y = reshape(apply(reduce.sum, [pairs(moved)], { dims: last, alpha }), reduce.keptShape(x.shape, dims));
  } else y = apply(reduce.sum, [pairs(x)], { dims: [...dims].sort((a, b) => a - b), alpha });
  y = to(y, x.dtype);
  return keepdim
    ? y
    : reshape(
        y,
        x.shape.filter((_, d) => !dims.includes(d)),
      );
}

/** A result that may be x's own memory, which writing into it must not change. @param {Tensor} x @param {Tensor} y */
const apart = (x, y) => (y.storage === x.storage ? clone(y) : y);

/** Σ over dimensions, all when left out. Sums are f32, the result of x's type. @param {Tensor} x @param {number | readonly number[]} [dim] @param {boolean} [keepdim] */
export function sum(x, dim, keepdim = false) {
  return apart(x, summed(tensorOf('sum', x), dimsOf('sum', x, dim), keepdim, 1));
}
/** The mean over dimensions, all when left out. @param {Tensor} x @param {number | readonly number[]} [dim] @param {boolean} [keepdim] */
export function mean(x, dim, keepdim = false) {
  const dims = dimsOf('mean', tensorOf('mean', x), dim);
  return apart(x, summed(x, dims, keepdim, 1 / reduce.reducedSize(x.shape, dims)));
}
/**
 * The variance over dimensions.
 * @param {Tensor} x @param {number | readonly number[]} [dim]
 * @param {VarianceOptions} [options]
 */
export function variance(x, dim, options = {}) {
  const { keepdim = false, correction = 1 } = checkOptions('variance', options, ['keepdim', 'correction']);
  const dims = dimsOf('variance', tensorOf('variance', x), dim);
  const elements = reduce.reducedSize(x.shape, dims);
  const count = elements - correction;
  if (!(count > 0)) {
    throw new ArgumentError('variance', `of ${elements} elements with a correction of ${String(correction)}: there must be more of them`);
  }
  // In f32, as sums are: a 16-bit mean is further from the elements than they from each other where it is large.
  const full = single(x);
  return to(apart(full, summed(square(sub(full, mean(full, dims, true))), dims, keepdim, 1 / count)), x.dtype);
}
/** Summed to a smaller shape that broadcasts to x's: the gradient of a broadcast. @param {Tensor} x @param {readonly number[]} shape @returns {Tensor} */
export function sumTo(x, shape) {
  if (show(x.shape) === show(shape)) return x;
  const missing = x.ndim - shape.length;
  const dims = x.shape.map((_, d) => d).filter((d) => d < missing || (shape[d - missing] === 1 && x.shape[d] !== 1));
  return reshape(summed(x, dims, true, 1), shape);
}

/** @param {Op} op @param {Tensor} x @param {number} dim @param {boolean} keepdim @returns {Tensor} */
function extreme(op, x, dim, keepdim) {
  const d = dimension(op.name, dim, tensorOf(op.name, x).ndim);
  const last = d === x.ndim - 1;
  const y = apply(op, [pairs(last ? x : transpose(x, d, -1))]);
  const moved = to(last ? y : transpose(y, d, -1), x.dtype);
  return keepdim ? moved : reshape(moved, x.shape.toSpliced(d, 1));
}
/** The largest elements along one dimension, the last when left out (PyTorch's `amax` takes all then); NaN where one of them is. @param {Tensor} x @param {number} [dim] @param {boolean} [keepdim] */
export const amax = (x, dim = -1, keepdim = false) => extreme(reduce.amax, x, dim, keepdim);
/** The smallest elements along one dimension, the last when left out (PyTorch's `amin` takes all then); NaN where one of them is. @param {Tensor} x @param {number} [dim] @param {boolean} [keepdim] */
export const amin = (x, dim = -1, keepdim = false) => extreme(reduce.amin, x, dim, keepdim);

// ---- products

/** Multiplications from which on halves of odd sizes are faster on matrix units, element by element, than as f32 (measured on an H200). */
const ODD_LEAST = 2 ** 28;

/** Whether a product of these sizes is computed in this type, on matrix units where it is a half. @param {DType} dtype @param {number} m @param {number} n @param {number} k */
function multiplies(dtype, m, n, k) {
  if (dtype === 'f32') return true;
  if (!runtime().kernels.matmulSupports(/** @type {any} */ (dtype))) return false;
  return (m % 2 === 0 && n % 2 === 0 && k % 2 === 0) || m * n * k >= ODD_LEAST;
}

/**
 * The matrix product, as PyTorch's: [..., m, k] × [..., k, n], leading sizes broadcast; a vector is a row on the left and a
 * column on the right.
 * @param {Tensor} a @param {Tensor} b
 * @returns {Tensor}
 */
export function matmul(a, b) {
  a = operand(tensorOf('matmul', a));
  b = operand(tensorOf('matmul', b));
  if (a.ndim === 0 || b.ndim === 0) throw new ShapeError('matmul', `${show(a.shape)} × ${show(b.shape)}: a number; use mul`);
  if (a.ndim === 1) return squeeze(matmul(unsqueeze(a, 0), b), -2);
  if (b.ndim === 1) return squeeze(matmul(a, unsqueeze(b, 1)), -1);
  if (a.dtype !== b.dtype && isFloat(a.dtype) && isFloat(b.dtype))
    return matmul(to(a, meet(a.dtype, b.dtype)), to(b, meet(a.dtype, b.dtype)));
  const m = a.shape[a.ndim - 2];
  const k = a.shape[a.ndim - 1];
  const n = b.shape[b.ndim - 1];
  if (isFloat(a.dtype) && !multiplies(a.dtype, m, n, k))
    return to(
      withoutAutocast(() => matmul(to(a, 'f32'), to(b, 'f32'))),
      a.dtype,
    );
  if (a.ndim > 2 && b.ndim === 2 && k === b.shape[0]) {
    return reshape(matmul(reshape(a, [-1, k]), b), [...a.shape.slice(0, -1), n]);
  }
  if (k !== b.shape[b.ndim - 2]) return apply(products.matmul, [a, b]);
  // A column by a row: nothing is summed.
  if (k === 1 && a.dtype === 'f32') return mul(a, b);
  const attributes = productAttributes(a.dtype);
  if (!products.matrixForm(a.layout)) a = a.contiguous();
  if (!products.matrixForm(b.layout)) b = b.contiguous();
  if (a.ndim === 2 && b.ndim === 2) return apply(products.matmul, [a, b], attributes);
  const batch = broadcastShapes('matmul', a.shape.slice(0, -2), b.shape.slice(0, -2));
  const [x, y] = [a, b].map((operand) => {
    if (products.batchStride(operand.layout, batch) !== undefined) return operand;
    return expand(operand, [...batch, ...operand.shape.slice(-2)]).contiguous();
  });
  return apply(products.matmul, [x, y], attributes);
}

/**
 * x Wᵀ + bias.
 * @param {Tensor} x [..., in] @param {Tensor} weight [out, in] @param {Tensor} [bias] [out]
 * @returns {Tensor} [..., out]
 */
export function linear(x, weight, bias) {
  x = operand(tensorOf('linear', x));
  weight = operand(tensorOf('linear', weight));
  if (x.dtype !== weight.dtype && isFloat(x.dtype) && isFloat(weight.dtype)) {
    const dtype = meet(x.dtype, weight.dtype);
    return linear(to(x, dtype), to(weight, dtype), bias);
  }
  const [n, k] = weight.shape;
  if (isFloat(x.dtype) && !multiplies(x.dtype, x.size / k, n, k)) {
    return to(
      withoutAutocast(() => linear(to(x, 'f32'), to(weight, 'f32'), bias)),
      x.dtype,
    );
  }
  return apply(products.linear, bias ? [x, weight, bias] : [x, weight], productAttributes(x.dtype));
}

// ---- networks

/** softmax(x) along a dimension. @param {Tensor} x @param {number} [dim] @returns {Tensor} */
export function softmax(x, dim = -1) {
  const d = dimension('softmax', dim, tensorOf('softmax', x).ndim);
  if (d !== x.ndim - 1) return transpose(softmax(transpose(x, d, -1)), d, -1);
  return rowsOfPairs(full32(x), (y) => apply(network.softmax, [y], { scale: 1 }));
}

/** log softmax(x) along a dimension. @param {Tensor} x @param {number} [dim] @returns {Tensor} */
export function logSoftmax(x, dim = -1) {
  const { dtype } = full32(tensorOf('logSoftmax', x));
  // A sum of exponentials is more than f16 holds.
  x = single(x);
  const shifted = sub(x, amax(x, dim, true).detach());
  return to(sub(shifted, log(sum(exp(shifted), dim, true))), dtype);
}

/** An operation on rows, by way of f32 where 16-bit rows have an odd size. @param {Tensor} x @param {(x: Tensor) => Tensor} f */
const rowsOfPairs = (x, f) => to(f(pairs(x)), x.dtype);

/** @param {string} op @param {unknown} eps @returns {number} */
function checkEps(op, eps) {
  if (typeof eps !== 'number' || !(eps >= 0 && eps < Infinity))
    throw new ArgumentError(op, `eps is a number of at least 0, got ${String(eps)}`);
  return eps;
}

/** Root-mean-square normalization over the last dimension. @param {Tensor} x @param {Tensor} weight f32 @param {number} [eps] */
export const rmsNorm = (x, weight, eps = 1e-5) =>
  rowsOfPairs(full32(tensorOf('rmsNorm', x)), (y) =>
    apply(network.rmsNorm, [y, tensorOf('rmsNorm', weight)], { eps: checkEps('rmsNorm', eps) }),
  );
/** Layer normalization over the last dimension. @param {Tensor} x @param {Tensor} weight f32 @param {Tensor} bias f32 @param {number} [eps] */
export const layerNorm = (x, weight, bias, eps = 1e-5) =>
  rowsOfPairs(full32(tensorOf('layerNorm', x)), (y) =>
    apply(network.layerNorm, [y, tensorOf('layerNorm', weight), tensorOf('layerNorm', bias)], { eps: checkEps('layerNorm', eps) }),
  );

/** f(gate) · up of rows [gate | up]. @param {Tensor} x [..., 2 · n] @param {import('../kernels/activation.mjs').Activation} [activation] */
export function glu(x, activation = 'sigmoid') {
  const { dtype, shape } = tensorOf('glu', x);
  if (!Object.hasOwn(network.GATES, String(activation))) {
    throw new ArgumentError('glu', `no activation ${String(activation)}; there are ${Object.keys(network.GATES).join(', ')}`);
  }
  // Both halves of a row are taken by pairs.
  const odd = dtype !== 'f32' && isFloat(dtype) && (shape.at(-1) ?? 1) % 4;
  return to(apply(network.glu, [odd ? to(x, 'f32') : x], { activation }), dtype);
}

/** Rows of a table. @param {Tensor} ids i32 or u32, any shape @param {Tensor} table [vocabulary, columns] @returns {Tensor} [...ids, columns] */
export const embedding = (ids, table) =>
  rowsOfPairs(tensorOf('embedding', table), (rows) => apply(network.embedding, [tensorOf('embedding', ids), rows]));

/** Elements dropped with probability p while training. @param {Tensor} x @param {number} [p] @param {boolean} [training] */
export function dropout(x, p = 0.5, training = true) {
  if (typeof p !== 'number' || !(p >= 0 && p < 1)) throw new ArgumentError('dropout', `p is in [0, 1), got ${String(p)}`);
  return training && p > 0 ? apply(network.dropout, [tensorOf('dropout', x), deviceState()], { p }) : x;
}

/** Rotary positions on the first heads of each row. @param {Tensor} x [..., tokens, width] @param {Tensor} table [positions, headSize / 2, 2] @param {RopeOptions} sizes */
export function rope(x, table, sizes) {
  const { heads, headSize } = checkOptions('rope', sizes, ['heads', 'headSize']);
  return apply(attentionOps.rope, [tensorOf('rope', x), tensorOf('rope', table)], { heads, headSize });
}

/**
 * Attention of fused rows.
 * @param {Tensor} qkv [batch, tokens, 3 · width]: queries, keys, values, heads side by side
 * @param {AttentionOptions} options
 * @returns {Tensor} [batch, tokens, width]
 */
export function attention(qkv, options) {
  const { heads, causal = false } = checkOptions('attention', options, ['heads', 'causal']);
  if (!(Number.isInteger(heads) && heads > 0))
    throw new ArgumentError('attention', `heads is an integer of at least 1, got ${String(heads)}`);
  qkv = operand(tensorOf('attention', qkv));
  const [batch, tokens, width] = qkv.shape;
  const headSize = width / 3 / heads;
  if (qkv.ndim === 3 && Number.isInteger(headSize) && !attentionOps.FUSED_HEADS.includes(headSize)) {
    const [q, k, v] = [0, 1, 2].map((i) =>
      transpose(reshape(slice(qkv, 2, (i * width) / 3, ((i + 1) * width) / 3), [batch, tokens, heads, headSize]), 1, 2),
    );
    return reshape(transpose(scaledDotProductAttention(q, k, v, { isCausal: causal }), 1, 2), [batch, tokens, width / 3]);
  }
  const supported = qkv.dtype === 'f32' || runtime().kernels.attentionSupports(/** @type {any} */ (qkv.dtype), headSize);
  if (!supported)
    return to(
      withoutAutocast(() => attention(to(qkv, 'f32'), { heads, causal })),
      qkv.dtype,
    );
  return apply(attentionOps.attention, [qkv], { heads, causal });
}

/**
 * softmax(q kᵀ / √headSize) v.
 * @param {Tensor} q [..., queries, headSize] @param {Tensor} k [..., keys, headSize] @param {Tensor} v [..., keys, n]
 * @param {ScoreOptions} [options]
 * @returns {Tensor} [..., queries, n]
 */
export function scaledDotProductAttention(q, k, v, options = {}) {
  const { isCausal = false, scale, mask } = checkOptions('scaledDotProductAttention', options, ['isCausal', 'scale', 'mask']);
  const size = tensorOf('attention', q).shape.at(-1) ?? 1;
  // The factor first: f16 may hold the scores, and not their multiples.
  let scores = matmul(mul(q, scale ?? 1 / Math.sqrt(size)), transpose(k, -2, -1));
  const [queries, keys] = [q.shape[q.ndim - 2], k.shape[k.ndim - 2]];
  if (isCausal && queries > keys) {
    throw new ShapeError('scaledDotProductAttention', `isCausal: ${queries} queries for ${keys} keys, of which the first would see none`);
  }
  if (isCausal) scores = add(scores, to(causalMask(queries, keys), scores.dtype));
  if (mask) scores = add(scores, mask);
  return matmul(softmax(scores), v);
}
