// `F`: the operations as functions of tensors. Each call checks its shapes, so that an error has the caller's line. Operands that broadcast
// may be numbers: a number stands for a tensor of one element.

import { apply, tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { broadcastShapes, channelsFirst, channelsLast, checkShape, dimension, isChannelsLast, isFloat, positive } from '../core/layout.mjs';
import { floorDivide, geluExact, powTensor, truncDivide } from '../ops/math.mjs';
import * as attentionOps from '../ops/attention.mjs';
import * as network from '../ops/network.mjs';
import * as integers from '../ops/integers.mjs';
import * as pointwise from '../ops/pointwise.mjs';
import * as reduce from '../ops/reduce.mjs';
import * as selection from '../ops/select.mjs';
import { autocastType } from './autocast.mjs';
import { asFloat, asIndex, f32IfOddRow, f32UnderAutocast, inOneType, rowsOfPairs, softmaxRows, toF32, withNumber } from './operands.mjs';
import { dimsLast, dimsOf, promotedType } from './operands.mjs';
import { binary, filled, isNumber, unary as unaryOf } from './binary.mjs';
import { left } from './division.mjs';
import { checkOptions, checkProbability, flag } from '../core/options.mjs';
import { reduceIntegers } from './reduce-integers.mjs';
import { TensorCore } from '../core/tensor.mjs';
import { integerPower } from './integer-products.mjs';
import { deviceState } from './random.mjs';
import { clone, expand, permute, reshape, to, transpose } from './views.mjs';

export * from './products.mjs';
export * from './views.mjs';

/** An array on the device. @typedef {import('./tensor.mjs').Tensor} Tensor */
/** The type of a tensor's elements. @typedef {import('../core/layout.mjs').DType} DType */
/** An operation, as the engine knows it. @typedef {import('../ops/registry.mjs').Op} Op */
/** A tensor, or a number that stands for a tensor of one element. @typedef {Tensor | number} Operand */

/**
 * Options of tensors of one value.
 * @typedef {object} TypeOptions
 * @property {DType} [dtype] the element type; f32 when left out
 */

/**
 * Options of `div`.
 * @typedef {object} DivideOptions
 * @property {'trunc' | 'floor'} [roundingMode] rounds the quotient to an integer, towards 0 or down; not rounded when left out
 */

/**
 * Options of `variance`.
 * @typedef {object} VarianceOptions
 * @property {boolean} [keepdim] whether the reduced dimensions stay, of size 1; false when left out
 * @property {number} [correction] is subtracted from the count of elements; 1 when left out, 0 for the population's variance
 */

/**
 * Options of `gelu`.
 * @typedef {object} GeluOptions
 * @property {'none' | 'tanh'} [approximate] the formula: 'none' is the exact one, 'tanh' its approximation, as when left out
 */

/**
 * What `rope` rotates.
 * @typedef {object} RopeOptions
 * @property {number} heads how many heads of each row are rotated, from the first on
 * @property {number} headSize elements of a head
 * @property {Tensor} [positions] u32 [..., tokens]: each token's position, one past the table counts as its last; 0, 1, … when left out
 */

// ---- made of nothing

/**
 * A tensor of one value.
 * @param {readonly number[]} shape
 * @param {number} value
 * @param {TypeOptions} [options]
 */
export function full(shape, value, options = {}) {
  if (typeof value !== 'number') throw new ArgumentError('full', `expected a number, got ${shown(value)}`);
  return filled('full', shape, value, options);
}
/** A tensor of zeros. @param {readonly number[]} shape @param {TypeOptions} [options] */
export const zeros = (shape, options = {}) => filled('zeros', shape, 0, options);
/** A tensor of ones. @param {readonly number[]} shape @param {TypeOptions} [options] */
export const ones = (shape, options = {}) => filled('ones', shape, 1, options);

// ---- element by element

/** alpha · x + beta. @param {Tensor} x @param {string} name @param {number} alpha @param {number} beta @param {number} [number] what the program gave */
const affine = (x, name, alpha, beta, number = alpha) =>
  unaryOf(name, pointwise.affine, withNumber(name, tensorOf(name, x), number), { name, alpha, beta });

/** a + b, broadcast. @param {Operand} a @param {Operand} b @returns {Tensor} */
export function add(a, b) {
  if (isNumber('add', a)) return affine(/** @type {Tensor} */ (b), 'add', 1, a, a);
  if (isNumber('add', b)) return affine(a, 'add', 1, b, b);
  return binary(pointwise.add, a, b);
}
/** a - b, broadcast. @param {Operand} a @param {Operand} b @returns {Tensor} */
export function sub(a, b) {
  if (isNumber('sub', a)) return affine(/** @type {Tensor} */ (b), 'sub', -1, a, a);
  if (isNumber('sub', b)) return affine(a, 'sub', 1, -b, b);
  return within('sub', () => binary(pointwise.add, a, b, { beta: -1 }));
}
/** a · b, element by element, broadcast. @param {Operand} a @param {Operand} b @returns {Tensor} */
export function mul(a, b) {
  if (isNumber('mul', a)) return affine(/** @type {Tensor} */ (b), 'mul', a, -0);
  if (isNumber('mul', b)) return affine(a, 'mul', b, -0);
  return binary(pointwise.mul, a, b);
}
/** The least normal number of f32; the factor by which a division is split whose reciprocal is subnormal or too large. */
const [MIN_NORMAL, SCALE] = [2 ** -126, 2 ** 64];
/** How the quotients of a division are rounded: of floats, and of integers. @type {Record<string, [floats: Op, whole: Op]>} */
const ROUNDED = { trunc: [truncDivide, integers.truncDivide], floor: [floorDivide, integers.floorDivide] };
/**
 * a / b, broadcast; of integers in f32. Division by a number multiplies by the number's reciprocal. With a `roundingMode` the quotient is whole,
 * and that of integers is one; an integer by 0 is then no error, and its quotient 0 or -1. 'floor' is `floorDivide`.
 * @param {Operand} a @param {Operand} b @param {DivideOptions} [options]
 * @returns {Tensor}
 */
export function div(a, b, options = {}) {
  const { roundingMode } = checkOptions('div', options, ['roundingMode']);
  if (roundingMode === undefined) return quotient(a, b);
  if (typeof roundingMode !== 'string' || !Object.hasOwn(ROUNDED, roundingMode))
    throw new ArgumentError('div', `roundingMode must be 'trunc' or 'floor', got ${shown(roundingMode)}`);
  return within('div', () => left(...ROUNDED[roundingMode], a, b));
}
/** @param {Operand} a @param {Operand} b @returns {Tensor} */
function quotient(a, b) {
  if (isNumber('div', a)) {
    if (a === 1) return within('div', () => reciprocal(/** @type {Tensor} */ (b)));
    return apply(pointwise.quotient, [asFloat('div', tensorOf('div', b))], { numerator: a });
  }
  if (isNumber('div', b)) return overNumber(asFloat('div', a), b);
  const [x, y] = inOneType('div', tensorOf('div', a), tensorOf('div', b));
  return binary(pointwise.div, asFloat('div', x), asFloat('div', y));
}
/** @param {Tensor} a @param {number} b @returns {Tensor} */
function overNumber(a, b) {
  const inverse = Math.abs(1 / b);
  const isNormal = inverse >= MIN_NORMAL && inverse < 1 / MIN_NORMAL;
  if (isNormal || !(inverse > 0 && inverse < Infinity)) return affine(a, 'div', 1 / b, -0);
  // f32 cannot hold the reciprocal, or only with few digits. So there are two steps, neither of which overflows before the quotient does.
  const scale = inverse < 1 ? 1 / SCALE : SCALE;
  return affine(affine(a, 'div', scale, -0), 'div', 1 / (b * scale), -0);
}
/** @param {Op} op @param {object} [attributes] @returns {(a: Tensor, b: Operand) => Tensor} */
const bound = (op, attributes) => (a, b) => {
  if (!isNumber(op.name, b)) return binary(op, a, b, attributes);
  const x = withNumber(op.name, tensorOf(op.name, a), b);
  return binary(op, x, filled(op.name, [], b, { dtype: x.dtype }), attributes);
};
/** The larger of each two elements. @type {(a: Tensor, b: Operand) => Tensor} */
export const maximum = bound(pointwise.maximum);
/** The smaller of each two elements. @type {(a: Tensor, b: Operand) => Tensor} */
export const minimum = bound(pointwise.minimum);
const [atLeast, atMost] = [pointwise.maximum, pointwise.minimum].map((op) => bound(op, { clamps: true }));
/**
 * Limits the elements to `min` … `max`. Both limits broadcast, and one may be left out. Elements within the limits, or at one, get the
 * gradient, as in PyTorch.
 * @param {Tensor} x @param {Operand} [min] @param {Operand} [max] @returns {Tensor}
 */
export function clamp(x, min, max) {
  if (min === undefined && max === undefined) throw new ArgumentError('clamp', 'expected min, max or both');
  tensorOf('clamp', x);
  return within('clamp', () => {
    const raised = min === undefined ? x : atLeast(x, min);
    return max === undefined ? raised : atMost(raised, max);
  });
}

/** @param {Op} op @returns {(a: Tensor, b: Operand) => Tensor} */
const comparison = (op) => (a, b) => {
  // Bools are compared as 0 and 1.
  const x = tensorOf(op.name, a).detach();
  if (!isNumber(op.name, b)) {
    const [c, d] = inOneType(op.name, x, b.detach());
    return binary(op, numbers(c), numbers(d));
  }
  // As in sums, integers and a fraction are compared in f32. That a whole number is none of the type is an error below.
  const own = x.dtype === 'bool' || !Number.isInteger(b) ? withNumber(op.name, x, b) : x;
  return binary(op, own, filled(op.name, [], b, { dtype: own.dtype }));
};
/** x, as i32 where it has bools. @param {Tensor} x */
const numbers = (x) => (x.dtype === 'bool' ? to(x, 'i32') : x);

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
 * a where the condition is true, else b; all three broadcast. A compiled function uses it in place of `if`, which cannot depend on elements.
 * @param {Tensor} condition bool @param {Operand} a @param {Operand} b types are promoted as those of `add`
 * @returns {Tensor}
 */
export function where(condition, a, b) {
  tensorOf('where', condition);
  const [x, y] = chosen(a, b);
  const tensors = [condition, a, b].filter((v) => typeof v !== 'number');
  const shape = broadcastShapes('where', ...tensors.map((v) => v.shape));
  // Strides of more dimensions are more push constants than every device has.
  const inputs =
    shape.length > (x.dtype === 'i64' ? 3 : 4) ? [condition, x, y].map((v) => expand(v, shape).contiguous()) : [condition, x, y];
  return apply(selection.where, inputs);
}

/** What `where` chooses from, as tensors of one type. @param {Operand} a @param {Operand} b @returns {Tensor[]} */
function chosen(a, b) {
  if (!isNumber('where', a)) {
    if (!isNumber('where', b)) return inOneType('where', a, b);
    const x = beside(a, b);
    return [x, filled('where', [], b, { dtype: x.dtype })];
  }
  const y = isNumber('where', b) ? filled('where', [], b, {}) : beside(b, a);
  return [filled('where', [], a, { dtype: y.dtype }), y];
}
/** x in the type that it has beside a number: bools stay bools beside 0 and 1. @param {Tensor} x @param {number} number */
const beside = (x, number) => (x.dtype === 'bool' && (number === 0 || number === 1) ? x : withNumber('where', x, number));

/** @param {Op} op @returns {(x: Tensor) => Tensor} */
const unary = (op) => (x) => unaryOf(op.name, op, tensorOf(op.name, x));
/** Of integers and bools the result is f32. @param {Op} op @returns {(x: Tensor) => Tensor} */
const floating = (op) => (x) => apply(op, [asFloat(op.name, tensorOf(op.name, x))]);

/** -x. @param {Tensor} x */
export const neg = (x) => affine(x, 'neg', -1, -0, 1);
/** eˣ of each element. */
export const exp = floating(pointwise.exp);
/** The natural logarithm of each element. */
export const log = floating(pointwise.log);
/** log(1 + x) of each element, also where 1 + x rounds to 1. */
export const log1p = floating(pointwise.log1p);
/** √x of each element. */
export const sqrt = floating(pointwise.sqrt);
/** 1 / √x of each element. */
export const rsqrt = floating(pointwise.rsqrt);
/** 1 / x of each element. */
export const reciprocal = floating(pointwise.reciprocal);
/** |x| of each element. */
export const abs = unary(pointwise.abs);
/** x² of each element. */
export const square = unary(pointwise.square);
/** -1, 0 or 1. Its gradient is 0. */
export const sign = unary(pointwise.sign);
/** max(x, 0) of each element. @param {Tensor} x */
export const relu = (x) => (isFloat(tensorOf('relu', x).dtype) ? apply(pointwise.relu, [x]) : within('relu', () => maximum(x, 0)));
/** x · sigmoid(x). */
export const silu = unary(pointwise.silu);
/**
 * x times the probability that a standard normal number is less than x (Hendrycks & Gimpel 2016). What is left out is not what PyTorch leaves
 * out: without options it is the tanh form.
 * @param {Tensor} x @param {GeluOptions} [options] @returns {Tensor}
 */
export function gelu(x, options = {}) {
  const { approximate = 'tanh' } = checkOptions('gelu', options, ['approximate']);
  if (approximate !== 'tanh' && approximate !== 'none')
    throw new ArgumentError('gelu', `approximate must be 'none' or 'tanh', got ${shown(approximate)}`);
  tensorOf('gelu', x);
  return within('gelu', () => apply(approximate === 'tanh' ? pointwise.geluOp : geluExact, [x]));
}
/** The hyperbolic tangent of each element. */
export const tanh = floating(pointwise.tanh);
/** 1 / (1 + exp(-x)) of each element. */
export const sigmoid = floating(pointwise.sigmoidOp);

/**
 * x to the power of a number or a tensor, broadcast, as C's `pow`. With the exponent 0 the result is 1, even of NaN. A negative x gives NaN
 * unless the exponent is an integer. Integer numbers up to 64 are computed by products. Powers of integers by integers are exact and wrap, as in
 * PyTorch: a negative number for the exponent is an error, and a negative element of a tensor gives 0, of 1 and -1 as they are. The gradient is
 * exponent · x^(exponent - 1), and xᵉ · log(x) for the exponent; with the exponent 0 the first is 0, and the second where x is 0 and the
 * exponent is not negative.
 * @param {Operand} x a number only with a tensor for the exponent @param {Operand} exponent @returns {Tensor}
 */
export function pow(x, exponent) {
  if (typeof x !== 'number') tensorOf('pow', x);
  if (typeof exponent !== 'number') {
    if (exponent instanceof TensorCore) return powers(x, tensorOf('pow', exponent));
    throw new ArgumentError('pow', `the exponent must be a number or a tensor, got ${shown(exponent)}`);
  }
  const base = withNumber('pow', tensorOf('pow', x), exponent);
  if (!isFloat(base.dtype) && exponent < 0) throw new ArgumentError('pow', `integers have no power ${exponent}; convert with .to('f32')`);
  return within('pow', () => power(base, exponent));
}

/** @param {Operand} x @param {Tensor} exponent @returns {Tensor} */
function powers(x, exponent) {
  const promoted = typeof x === 'number' ? withNumber('pow', exponent, x).dtype : promotedType(x.dtype, exponent.dtype);
  return within('pow', () => {
    const dtype = promoted === 'bool' ? 'i32' : promoted;
    const base = typeof x === 'number' ? filled('pow', [], x, { dtype: isFloat(dtype) ? 'f32' : dtype }) : x;
    if (!isFloat(dtype)) return integerPower(base, exponent, dtype);
    const operands = [base, exponent].map((v) => f32UnderAutocast(asFloat('pow', v)));
    return apply(powTensor, operands, { name: 'pow', dtype: autocastType() === undefined ? dtype : 'f32' });
  });
}

/** @param {Tensor} x @param {number} exponent @returns {Tensor} */
function power(x, exponent) {
  if (exponent === 2) return square(x);
  if (exponent === 1) return clone(x);
  if (exponent === 0.5) return sqrt(x);
  if (exponent === -0.5) return rsqrt(x);
  if (exponent === -1) return reciprocal(x);
  return unaryOf('pow', pointwise.power, x, { exponent });
}

// ---- reductions

/** @param {Tensor} x @param {number[]} dims @param {boolean} keepdim @param {number} alpha @returns {Tensor} */
function summed(x, dims, keepdim, alpha) {
  if (isChannelsLast(x.layout)) {
    // In the order of memory.
    const [order, back] = [channelsLast(x.ndim), channelsFirst(x.ndim)];
    const own = order.flatMap((d, i) => (dims.includes(d) ? [i] : []));
    const y = permute(summed(permute(x, order), own, true, alpha), back);
    return keepdim ? y : reshape(y, reduce.resultShape(x.shape, dims, keepdim));
  }
  let y;
  const parts = reduce.runs(x.shape, dims);
  // Sizes of 1: there is nothing to add.
  if (alpha === 1 && parts.every(({ reduced }) => !reduced)) y = reshape(x, reduce.keptShape(x.shape, dims));
  else if (parts.length === 3 && parts[0].reduced) {
    // Rows, then columns of their sums.
    const inner = x.shape.findLastIndex((size, d) => size !== 1 && !dims.includes(d));
    const [outer, last] = [-1, 1].map((side) => dims.filter((d) => Math.sign(d - inner) === side).sort((a, b) => a - b));
    const rows = apply(reduce.sum, [f32IfOddRow(x)], { dims: last, alpha: 1 });
    y = apply(reduce.sum, [rows], { dims: outer, alpha });
  } else if (parts.length > 2) {
    // Kept dimensions first, then the reduced ones.
    const kept = x.shape.map((_, d) => d).filter((d) => !dims.includes(d));
    const moved = permute(x, [...kept, ...dims]);
    const last = dims.map((_, i) => kept.length + i);
    y = reshape(apply(reduce.sum, [f32IfOddRow(moved)], { dims: last, alpha }), reduce.keptShape(x.shape, dims));
  } else y = apply(reduce.sum, [f32IfOddRow(x)], { dims: [...dims].sort((a, b) => a - b), alpha });
  y = to(y, x.dtype);
  return keepdim ? y : reshape(y, reduce.resultShape(x.shape, dims, keepdim));
}

/** Copies a result that shares x's memory: a write into the result must not change x. @param {Tensor} x @param {Tensor} y */
const apart = (x, y) => (y.storage === x.storage ? clone(y) : y);

/**
 * The sum over dimensions, all when left out. Of floats it is accumulated in f32, and the result has x's type; of integers it is exact but
 * wraps, and the result has x's type, and those of bools (a count) and of bytes are i32 (PyTorch's are int64).
 * @param {Tensor} x @param {number | readonly number[]} [dim] @param {boolean} [keepdim]
 */
export function sum(x, dim, keepdim = false) {
  const dims = dimsOf('sum', tensorOf('sum', x), dim);
  flag('sum', 'keepdim', keepdim);
  if (!isFloat(x.dtype)) return within('sum', () => reduceIntegers('sum', x, dims, keepdim));
  return within('sum', () => apart(x, summed(x, dims, keepdim, 1)));
}
/** The mean over dimensions, all when left out. @param {Tensor} x @param {number | readonly number[]} [dim] @param {boolean} [keepdim] */
export function mean(x, dim, keepdim = false) {
  const dims = dimsOf('mean', tensorOf('mean', x), dim);
  flag('mean', 'keepdim', keepdim);
  pointwise.floatType('mean', x.layout);
  return within('mean', () => apart(x, summed(x, dims, keepdim, 1 / reduce.reducedSize(x.shape, dims))));
}
/**
 * The variance over dimensions; NaN of no elements.
 * @param {Tensor} x @param {number | readonly number[]} [dim]
 * @param {VarianceOptions} [options]
 */
export function variance(x, dim, options = {}) {
  const { keepdim = false, correction = 1 } = checkOptions('variance', options, ['keepdim', 'correction']);
  const dims = dimsOf('variance', tensorOf('variance', x), dim);
  flag('variance', 'keepdim', keepdim);
  const elements = reduce.reducedSize(x.shape, dims);
  const count = typeof correction === 'number' ? elements - correction : NaN;
  if (!(count > 0) && (elements > 0 || Number.isNaN(count))) {
    throw new ArgumentError(
      'variance',
      `correction must be a number less than the number of elements, ${elements}, got ${shown(correction)}`,
    );
  }
  // In f32, as sums are: the rounding of a large 16-bit mean may exceed the differences between the elements.
  return within('variance', () => {
    const full = toF32(x);
    return to(apart(full, summed(square(sub(full, mean(full, dims, true))), dims, keepdim, elements > 0 ? 1 / count : NaN)), x.dtype);
  });
}
/**
 * Sums x to a shape that broadcasts to x's: the gradient of a broadcast. Throws a ShapeError for any other shape.
 * @param {Tensor} x @param {readonly number[]} shape
 * @returns {Tensor}
 */
export function sumTo(x, shape) {
  tensorOf('sumTo', x);
  checkShape('sumTo', shape);
  if (show(x.shape) === show(shape)) return x;
  if (shape.length > x.ndim || show(broadcastShapes('sumTo', x.shape, shape)) !== show(x.shape)) {
    throw new ShapeError('sumTo', `cannot sum ${show(x.shape)} to ${show(shape)}, which does not broadcast to it`);
  }
  const missing = x.ndim - shape.length;
  const dims = x.shape.map((_, d) => d).filter((d) => d < missing || (shape[d - missing] === 1 && x.shape[d] !== 1));
  return within('sumTo', () => reshape(summed(x, dims, true, 1), shape));
}

/** @param {Op} op @param {Tensor} x @param {number | readonly number[]} dim @param {boolean} keepdim @returns {Tensor} */
function extreme(op, x, dim, keepdim) {
  tensorOf(op.name, x);
  // As in PyTorch, no dimensions are all.
  const all = Array.isArray(dim) && dim.length === 0;
  const dims = dimsOf(op.name, x, all ? undefined : dim);
  flag(op.name, 'keepdim', keepdim);
  if (!isFloat(x.dtype)) return within(op.name, () => reduceIntegers(/** @type {'amax'} */ (op.name), x, dims, keepdim));
  if (x.ndim === 0) return reshape(extreme(op, reshape(x, [1]), 0, true), []);
  return within(op.name, () => {
    const y = to(apply(op, [f32IfOddRow(dimsLast(x, dims))]), x.dtype);
    return reshape(y, reduce.resultShape(x.shape, dims, keepdim));
  });
}
/**
 * The largest elements over dimensions; NaN where an element is NaN. Equal ones share the gradient.
 * @param {Tensor} x @param {number | readonly number[]} [dim] the last when left out; all of [], as PyTorch's `amax` when it is left out
 * @param {boolean} [keepdim] whether the dimensions stay, of size 1
 */
export const amax = (x, dim = -1, keepdim = false) => extreme(reduce.amax, x, dim, keepdim);
/**
 * The smallest elements over dimensions; NaN where an element is NaN. Equal ones share the gradient.
 * @param {Tensor} x @param {number | readonly number[]} [dim] the last when left out; all of [], as PyTorch's `amin` when it is left out
 * @param {boolean} [keepdim] whether the dimensions stay, of size 1
 */
export const amin = (x, dim = -1, keepdim = false) => extreme(reduce.amin, x, dim, keepdim);

// ---- networks

/** exp(x) / Σ exp(x) along a dimension, the last when left out; of x's shape. @param {Tensor} x @param {number} [dim] @returns {Tensor} */
export function softmax(x, dim = -1) {
  const d = dimension('softmax', dim, tensorOf('softmax', x).ndim);
  if (d < x.ndim - 1) return transpose(softmax(transpose(x, d, -1)), d, -1);
  return softmaxRows(x, false);
}

/** log(softmax(x)) along a dimension, the last when left out; of x's shape. @param {Tensor} x @param {number} [dim] @returns {Tensor} */
export function logSoftmax(x, dim = -1) {
  pointwise.floatType('logSoftmax', tensorOf('logSoftmax', x).layout);
  return within('logSoftmax', () => {
    const { dtype } = f32UnderAutocast(x);
    if (x.size === 0) return clone(to(x, dtype));
    // A sum of exponentials may overflow f16.
    const wide = toF32(x);
    const shifted = sub(wide, amax(wide, dim, true).detach());
    return to(sub(shifted, log(sum(exp(shifted), dim, true))), dtype);
  });
}

/** @param {string} op @param {unknown} eps @returns {number} */
function checkEps(op, eps) {
  if (typeof eps !== 'number' || !(eps >= 0 && eps < Infinity))
    throw new ArgumentError(op, `eps must be a number of at least 0, got ${shown(eps)}`);
  return eps;
}

/**
 * x / √(mean(x²) + eps) · weight over the last dimension (Zhang & Sennrich 2019).
 * @param {Tensor} x [..., columns] @param {Tensor} weight f32 [columns] @param {number} [eps]
 */
export const rmsNorm = (x, weight, eps = 1e-5) =>
  rowsOfPairs(f32UnderAutocast(tensorOf('rmsNorm', x)), (y) =>
    apply(network.rmsNorm, [y, tensorOf('rmsNorm', weight)], { eps: checkEps('rmsNorm', eps) }),
  );
/**
 * (x - mean) / √(variance + eps) · weight + bias over the last dimension (Ba et al. 2016).
 * @param {Tensor} x [..., columns] @param {Tensor} weight f32 [columns] @param {Tensor} bias f32 [columns] @param {number} [eps]
 */
export const layerNorm = (x, weight, bias, eps = 1e-5) =>
  rowsOfPairs(f32UnderAutocast(tensorOf('layerNorm', x)), (y) =>
    apply(network.layerNorm, [y, tensorOf('layerNorm', weight), tensorOf('layerNorm', bias)], { eps: checkEps('layerNorm', eps) }),
  );

/**
 * Gated unit (Shazeer 2020): f(gate) · up, where each row of x is [gate | up].
 * @param {Tensor} x [..., 2 · n] @param {import('../../kernels/activation.mjs').Activation} [activation] f
 * @returns {Tensor} [..., n]
 */
export function glu(x, activation = 'sigmoid') {
  const { dtype, shape } = tensorOf('glu', x);
  if (typeof activation !== 'string' || !Object.hasOwn(network.GATES, activation)) {
    throw new ArgumentError('glu', `activation must be one of ${Object.keys(network.GATES).join(', ')}`);
  }
  // Kernels read both halves of a row in pairs of elements.
  const odd = dtype !== 'f32' && isFloat(dtype) && (shape.at(-1) ?? 1) % 4;
  return within('glu', () => to(apply(network.glu, [odd ? to(x, 'f32') : x], { activation }), dtype));
}

/**
 * Looks up the rows of a table by id. An id outside the table gives a row of zeros.
 * @param {Tensor} ids i32, u32 or i64, any shape @param {Tensor} table [vocabulary, columns]
 * @returns {Tensor} [...ids, columns]
 */
export const embedding = (ids, table) =>
  rowsOfPairs(tensorOf('embedding', table), (rows) => apply(network.embedding, [asIndex(tensorOf('embedding', ids)), rows]));

/**
 * Drops each element with probability p and divides the others by 1 - p; outside of training it returns x.
 * @param {Tensor} x @param {number} [p] in [0, 1]; with 1 the result is zeros @param {boolean} [training]
 */
export function dropout(x, p = 0.5, training = true) {
  checkProbability('dropout', 'p', p);
  tensorOf('dropout', x);
  if (training && p === 1) {
    pointwise.floatType('dropout', x.layout);
    return where(filled('dropout', [], 0, { dtype: 'bool' }), x, 0);
  }
  return training && p > 0 ? apply(network.dropout, [x, deviceState()], { p }) : x;
}

/**
 * Rotates the first heads of each row by its position's angles (Su et al. 2021).
 * @param {Tensor} x [..., tokens, width] @param {Tensor} table [positions, headSize / 2, 2]: cosines and sines @param {RopeOptions} sizes
 */
export function rope(x, table, sizes) {
  const { heads, headSize, positions } = checkOptions('rope', sizes, ['heads', 'headSize', 'positions']);
  positive('rope', 'heads', heads);
  positive('rope', 'headSize', headSize);
  const places = positions === undefined ? [] : [tensorOf('rope', positions)];
  return apply(attentionOps.rope, [tensorOf('rope', x), tensorOf('rope', table), ...places], { heads, headSize });
}
