// Reductions and running results that are not in `functional.mjs`. Names, order of arguments, defaults and edges are PyTorch's.

import { apply, tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, shown, within } from '../core/errors.mjs';
import { dimension, isFloat } from '../core/layout.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import * as reduce from '../ops/reduce.mjs';
import * as scans from '../ops/scan.mjs';
import * as indexing from '../ops/indexing.mjs';
import * as sorts from '../ops/sorting.mjs';
import * as F from './functional.mjs';
import { argmax, argmin, gather } from './indexing.mjs';
import { doubled, extremeSoFar, orderOf, picked, toWords } from './integer-rows.mjs';
import { asFloat, dimsLast, dimsOf, toF32 } from './operands.mjs';
import { reduceIntegers } from './reduce-integers.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {import('../ops/registry.mjs').Op} Op */
/** A dimension or several; all when left out. @typedef {number | readonly number[]} Dims */

/**
 * Elements and where they are.
 * @typedef {object} Chosen
 * @property {Tensor} values the elements
 * @property {Tensor} indices i32, their indices along the dimension
 */

/**
 * Options of `quantile`.
 * @typedef {object} QuantileOptions
 * @property {number} [dim] the dimension; all elements when left out
 * @property {boolean} [keepdim] whether the dimension stays, of size 1; false when left out
 * @property {'linear' | 'lower' | 'higher' | 'nearest' | 'midpoint'} [interpolation] what stands between two elements; linear when left out
 */

/**
 * Options of `diff`.
 * @typedef {object} DiffOptions
 * @property {Tensor} [prepend] is joined before x along the dimension
 * @property {Tensor} [append] is joined behind x along the dimension
 */

/**
 * Options of `trapezoid` and `cumulativeTrapezoid`.
 * @typedef {object} TrapezoidOptions
 * @property {number} [dx] the distance of the points where no x is given; 1 when left out
 * @property {number} [dim] the dimension; the last when left out
 */

/**
 * Calls an operation of rows with a dimension as the last, and puts it back.
 * @param {Tensor} x @param {number} d @param {(rows: Tensor) => Tensor} f
 */
const alongRows = (x, d, f) => F.transpose(f(F.transpose(x, d, -1)), d, -1);

// ---- running results

/** @param {Op} op @param {import('./integer-rows.mjs').Join} [join] of 64-bit integers @returns {(x: Tensor, dim: number) => Tensor} */
const running = (op, join) => (x, dim) => {
  const d = dimension(op.name, dim, tensorOf(op.name, x).ndim);
  return within(op.name, () => {
    if (join && x.dtype === 'i64') return x.ndim === 0 ? F.clone(x) : alongRows(x, d, (rows) => doubled(rows, join));
    const y = alongRows(toWords(x), d, (rows) => apply(op, [rows], {}));
    return isFloat(x.dtype) ? F.to(y, x.dtype) : y;
  });
};
/**
 * The sum of each element and those before it along a dimension. It is accumulated in f32 and has x's type; integers wrap, and bools are
 * counted as i32 (PyTorch: i64), as bytes are summed.
 * @type {(x: Tensor, dim: number) => Tensor}
 */
export const cumsum = running(scans.cumsum, F.add);
/** The product of each element and those before it along a dimension, with the types of `cumsum`. @type {(x: Tensor, dim: number) => Tensor} */
export const cumprod = running(scans.cumprod, F.mul);
/** log Σ exp(x) of each element and those before it along a dimension, without overflow. @type {(x: Tensor, dim: number) => Tensor} */
export const logcumsumexp = running(scans.logcumsumexp);

/** @param {string} name @param {Op} op @returns {(x: Tensor, dim: number) => Chosen} */
const runningExtreme = (name, op) => (x, dim) => {
  const d = dimension(name, dim, tensorOf(name, x).ndim);
  return within(name, () => {
    if (x.ndim === 0) return { values: F.clone(x), indices: F.zeros([], { dtype: 'i32' }) };
    const long = x.dtype === 'i64';
    const indices = alongRows(toWords(x.detach()), d, (rows) => (long ? extremeSoFar(rows, name === 'cummax') : apply(op, [rows])));
    return { values: gather(x, d, indices), indices };
  });
};
/**
 * The largest element so far along a dimension, and its index, of equal ones the last; NaN from the first NaN on.
 * @type {(x: Tensor, dim: number) => Chosen}
 */
export const cummax = runningExtreme('cummax', scans.cummaxPlace);
/**
 * The smallest element so far along a dimension, and its index, of equal ones the last; NaN from the first NaN on.
 * @type {(x: Tensor, dim: number) => Chosen}
 */
export const cummin = runningExtreme('cummin', scans.cumminPlace);

// ---- extremes

/** @param {'max' | 'min'} name @param {Tensor} x @param {number} dim @param {boolean} keepdim @returns {Chosen} */
function chosen(name, x, dim, keepdim) {
  const d = dimension(name, dim, x.ndim);
  flag(name, 'keepdim', keepdim);
  return within(name, () => {
    const place = (name === 'max' ? argmax : argmin)(x, d, true);
    const values = gather(x, d, place);
    const shape = reduce.resultShape(x.shape, [d], keepdim);
    return { values: F.reshape(values, shape), indices: F.reshape(place, shape) };
  });
}

/**
 * `max` or `min`, of all that they take.
 * @param {'max' | 'min'} name @param {Tensor} x @param {number | Tensor} [dim] @param {boolean} [keepdim] @returns {Tensor | Chosen}
 */
export function extremes(name, x, dim, keepdim = false) {
  tensorOf(name, x);
  if (typeof dim === 'number') return chosen(name, x, dim, keepdim);
  if (dim !== undefined) return within(name, () => (name === 'max' ? F.maximum : F.minimum)(x, tensorOf(name, dim)));
  return within(name, () => (name === 'max' ? F.amax : F.amin)(x, []));
}

/**
 * The largest element of all, whose gradient equal ones share, as in PyTorch; with a dimension the largest along it and their indices, of equal
 * elements the first, which gets the gradient; with another tensor the larger of each two. NaN where an element is NaN.
 * @overload
 * @param {Tensor} x
 * @returns {Tensor}
 *
 * @overload
 * @param {Tensor} x @param {number} dim @param {boolean} [keepdim] whether the dimension stays, of size 1
 * @returns {Chosen}
 *
 * @overload
 * @param {Tensor} x @param {Tensor} other
 * @returns {Tensor}
 *
 * @param {Tensor} x @param {number | Tensor} [dim] @param {boolean} [keepdim]
 * @returns {Tensor | Chosen}
 */
export function max(x, dim, keepdim) {
  return extremes('max', x, dim, keepdim);
}
/**
 * The smallest element of all, whose gradient equal ones share, as in PyTorch; with a dimension the smallest along it and their indices, of equal
 * elements the first, which gets the gradient; with another tensor the smaller of each two. NaN where an element is NaN.
 * @overload
 * @param {Tensor} x
 * @returns {Tensor}
 *
 * @overload
 * @param {Tensor} x @param {number} dim @param {boolean} [keepdim] whether the dimension stays, of size 1
 * @returns {Chosen}
 *
 * @overload
 * @param {Tensor} x @param {Tensor} other
 * @returns {Tensor}
 *
 * @param {Tensor} x @param {number | Tensor} [dim] @param {boolean} [keepdim]
 * @returns {Tensor | Chosen}
 */
export function min(x, dim, keepdim) {
  return extremes('min', x, dim, keepdim);
}

// ---- products, counts, truth

/**
 * The product over dimensions, all when left out. It is computed in f32 and has x's type; integers wrap, and of bools and bytes it is i32.
 * @param {Tensor} x @param {Dims} [dim] @param {boolean} [keepdim] whether the dimensions stay, of size 1
 */
export function prod(x, dim, keepdim = false) {
  const dims = dimsOf('prod', tensorOf('prod', x), dim);
  flag('prod', 'keepdim', keepdim);
  return within('prod', () => {
    if (!isFloat(x.dtype)) return reduceIntegers('prod', x, dims, keepdim);
    const y = apply(scans.prod, [dimsLast(toF32(x), dims)]);
    return F.to(F.reshape(y, reduce.resultShape(x.shape, dims, keepdim)), x.dtype);
  });
}

/** How many elements are not 0. @param {string} name @param {Tensor} x @param {Dims | undefined} dim @param {boolean} keepdim */
function counted(name, x, dim, keepdim) {
  const dims = dimsOf(name, tensorOf(name, x), dim);
  flag(name, 'keepdim', keepdim);
  return within(name, () => reduceIntegers('sum', x.dtype === 'bool' ? x : F.ne(x, 0), dims, keepdim));
}

/**
 * How many elements are not 0, as i32; NaN is not.
 * @param {Tensor} x @param {Dims} [dim] all when left out @param {boolean} [keepdim] whether the dimensions stay, of size 1 (PyTorch has no such)
 */
export const countNonzero = (x, dim, keepdim = false) => counted('countNonzero', x, dim, keepdim);

/**
 * Whether any element is not 0, as bool.
 * @param {Tensor} x @param {Dims} [dim] all when left out @param {boolean} [keepdim] whether the dimensions stay, of size 1
 */
export const any = (x, dim, keepdim = false) => F.gt(counted('any', x, dim, keepdim), 0);

/**
 * Whether no element is 0, as bool.
 * @param {Tensor} x @param {Dims} [dim] all when left out @param {boolean} [keepdim] whether the dimensions stay, of size 1
 */
export function all(x, dim, keepdim = false) {
  const count = counted('all', x, dim, keepdim);
  return F.eq(count, reduce.reducedSize(x.shape, dimsOf('all', x, dim)));
}

// ---- statistics

/**
 * The variance over dimensions: `variance` by PyTorch's name, `F.var`, which no function may be declared by.
 * @param {Tensor} x @param {Dims} [dim] all when left out @param {import('./functional.mjs').VarianceOptions} [options]
 * @returns {Tensor}
 */
export function var_(x, dim, options = {}) {
  checkOptions('var', options, ['keepdim', 'correction']);
  return within('var', () => F.variance(x, dim, options));
}

/** √x, whose gradient is 0 where x is 0, as in PyTorch's `norm` and `std`. @param {Tensor} x */
function rootOf(x) {
  const isZero = F.eq(x, 0);
  return F.where(isZero, 0, F.sqrt(F.where(isZero, 1, x)));
}

/**
 * The standard deviation over dimensions. Its gradient is 0 where it is 0.
 * @param {Tensor} x @param {Dims} [dim] all when left out @param {import('./functional.mjs').VarianceOptions} [options]
 * @returns {Tensor}
 */
export function std(x, dim, options = {}) {
  checkOptions('std', options, ['keepdim', 'correction']);
  const { dtype } = tensorOf('std', x);
  return within('std', () => F.to(rootOf(F.variance(toF32(x), dim, options)), dtype));
}

/**
 * log Σ exp(x) over dimensions, without overflow.
 * @param {Tensor} x @param {Dims} [dim] all when left out @param {boolean} [keepdim] whether the dimensions stay, of size 1
 */
export function logsumexp(x, dim, keepdim = false) {
  const dims = dimsOf('logsumexp', tensorOf('logsumexp', x), dim);
  x = asFloat('logsumexp', x);
  flag('logsumexp', 'keepdim', keepdim);
  return within('logsumexp', () => {
    const own = toF32(x);
    // Of no elements none is the largest, and the result is -∞.
    const most = reduce.reducedSize(x.shape, dims) === 0 ? F.zeros([]) : F.amax(own.detach(), dims, true);
    // What is subtracted is finite: the difference of equal infinities would be NaN.
    const shift = F.where(F.lt(F.abs(most), Infinity), most, 0);
    const total = F.sum(F.exp(F.sub(own, shift)), dims, true);
    // Of elements that are all -∞ the result is -∞, and the gradient 0.
    const none = F.eq(total, 0);
    const y = F.where(none, -Infinity, F.add(F.log(F.where(none, 1, total)), shift));
    return F.to(F.reshape(y, reduce.resultShape(x.shape, dims, keepdim)), x.dtype);
  });
}

/**
 * The p-norm of the elements over dimensions: (Σ |x|^p)^(1/p). Infinity gives the largest |x|, -Infinity the smallest, 0 how many are not 0. It
 * is computed in f32. The gradient of a norm of 0 is 0.
 * @param {Tensor} x @param {number | 'fro'} [p] 2 when left out; 'fro' is 2
 * @param {Dims} [dim] all when left out @param {boolean} [keepdim] whether the dimensions stay, of size 1
 */
export function norm(x, p = 2, dim = undefined, keepdim = false) {
  const power = p === 'fro' ? 2 : p;
  const { dtype } = tensorOf('norm', x);
  if (typeof power !== 'number' || Number.isNaN(power)) throw new ArgumentError('norm', `p must be a number or 'fro', got ${shown(p)}`);
  const dims = dimsOf('norm', x, dim);
  flag('norm', 'keepdim', keepdim);
  return within('norm', () => F.to(normOf(toF32(x), power, dims, keepdim), dtype));
}

/** @param {Tensor} x f32 @param {number} p @param {number[]} dims @param {boolean} keepdim @returns {Tensor} */
function normOf(x, p, dims, keepdim) {
  if (p === 2) return rootOf(F.sum(F.square(x), dims, keepdim));
  const size = F.abs(x);
  if (p === 1) return F.sum(size, dims, keepdim);
  if (p === 0) return F.sum(F.to(F.ne(x, 0), 'f32'), dims, keepdim);
  if (!Number.isFinite(p)) return dims.length === 0 ? size : (p > 0 ? F.amax : F.amin)(size, dims, keepdim);
  // A power's gradient would be infinite at 0. A negative power of 0 is infinite, and the norm 0.
  const isZero = F.eq(size, 0);
  const total = F.sum(F.where(isZero, p > 0 ? 0 : Infinity, F.pow(F.where(isZero, 1, size), p)), dims, keepdim);
  const none = F.eq(total, p > 0 ? 0 : Infinity);
  return F.where(none, 0, F.pow(F.where(none, 1, total), 1 / p));
}

/**
 * The sum over dimensions, where NaN counts as 0.
 * @param {Tensor} x @param {Dims} [dim] all when left out @param {boolean} [keepdim] whether the dimensions stay, of size 1
 */
export const nansum = (x, dim, keepdim = false) =>
  within('nansum', () => F.sum(F.where(F.ne(tensorOf('nansum', x), x), 0, x), dim, keepdim));

/**
 * The mean over dimensions of what is not NaN; NaN where nothing else is.
 * @param {Tensor} x @param {Dims} [dim] all when left out @param {boolean} [keepdim] whether the dimensions stay, of size 1
 */
export const nanmean = (x, dim, keepdim = false) =>
  within('nanmean', () => {
    const own = toF32(tensorOf('nanmean', x));
    const counted = F.to(F.eq(own, own), 'f32');
    return F.to(F.div(nansum(own, dim, keepdim), F.sum(counted, dim, keepdim)), x.dtype);
  });

/** @param {string} op @param {number} count */
function checkSome(op, count) {
  if (count === 0) throw new ShapeError(op, 'of 0 elements there is none');
}

/** @param {Tensor} x @param {number} dim @param {boolean} keepdim @returns {Chosen} */
function medianAlong(x, dim, keepdim) {
  const rows = F.transpose(toWords(x), dim, -1);
  const columns = rows.shape.at(-1) ?? 1;
  checkSome('median', columns);
  const order = orderOf(rows.detach(), false);
  const middle = F.slice(order, -1, Math.floor((columns - 1) / 2), Math.floor((columns - 1) / 2) + 1);
  // NaN is sorted to the end, and is the median where there is one.
  const last = picked(rows.detach(), F.slice(order, -1, columns - 1, columns).contiguous());
  const place = isFloat(x.dtype) ? F.where(F.ne(last, last), argmax(rows, -1, true), middle) : middle;
  const values = picked(rows, place.contiguous());
  const put = (/** @type {Tensor} */ y) => F.reshape(F.transpose(y, dim, -1), reduce.resultShape(x.shape, [dim], keepdim));
  return { values: F.to(put(values), x.dtype), indices: put(place) };
}

/**
 * The median of all elements; with a dimension the medians along it and their indices. Of an even number of elements it is the lower of the two
 * in the middle. NaN where an element is NaN.
 * @overload
 * @param {Tensor} x
 * @returns {Tensor}
 *
 * @overload
 * @param {Tensor} x @param {number} dim @param {boolean} [keepdim] whether the dimension stays, of size 1
 * @returns {Chosen}
 *
 * @param {Tensor} x @param {number} [dim] @param {boolean} [keepdim]
 * @returns {Tensor | Chosen}
 */
export function median(x, dim, keepdim = false) {
  return medians(x, dim, keepdim);
}

/** `median`, with a dimension or without. @param {Tensor} x @param {number} [dim] @param {boolean} [keepdim] @returns {Tensor | Chosen} */
export function medians(x, dim, keepdim = false) {
  tensorOf('median', x);
  if (dim === undefined) return within('median', () => medianAlong(F.reshape(x, [-1]), 0, false).values);
  const d = dimension('median', dim, x.ndim);
  flag('median', 'keepdim', keepdim);
  return within('median', () => {
    if (x.ndim === 0) return { values: F.clone(x), indices: F.zeros([], { dtype: 'i32' }) };
    return medianAlong(x, d, keepdim);
  });
}

/** How far each quantile lies between two elements, by the name of the interpolation. @type {Record<string, (between: number, low: number) => number>} */
const BETWEEN = {
  linear: (between) => between,
  lower: () => 0,
  higher: (between) => Math.ceil(between),
  // Ties go to the even element.
  nearest: (between, low) => (between === 0.5 ? low % 2 : Math.round(between)),
  midpoint: (between) => (between === 0 ? 0 : 0.5),
};

/**
 * Quantiles of the elements. NaN where an element is NaN.
 * @param {Tensor} x @param {number | readonly number[]} q in [0, 1]; the results of several stand along a new first dimension
 * @param {QuantileOptions} [options]
 * @returns {Tensor}
 */
export function quantile(x, q, options = {}) {
  const { dim, keepdim = false, interpolation = 'linear' } = checkOptions('quantile', options, ['dim', 'keepdim', 'interpolation']);
  tensorOf('quantile', x);
  const list = typeof q === 'number' ? [q] : q;
  if (!Array.isArray(list) || list.length === 0 || list.some((n) => typeof n !== 'number' || !(n >= 0 && n <= 1)))
    throw new ArgumentError('quantile', `q must be a number in [0, 1], or an array of them, got ${shown(q)}`);
  flag('quantile', 'keepdim', keepdim);
  if (typeof interpolation !== 'string' || !Object.hasOwn(BETWEEN, interpolation))
    throw new ArgumentError('quantile', `interpolation must be one of ${Object.keys(BETWEEN).join(', ')}, got ${shown(interpolation)}`);
  if (!isFloat(x.dtype)) throw new ArgumentError('quantile', `takes f32, f16 or bf16, got ${x.dtype}; convert with .to('f32')`);
  if (dim !== undefined) dimension('quantile', dim, x.ndim);
  const dims = dimsOf('quantile', x, dim);
  checkSome('quantile', reduce.reducedSize(x.shape, dims));
  return within('quantile', () => {
    const rows = dimsLast(toF32(x), dims);
    const sorted = apply(sorts.pick, [rows, apply(indexing.argsort, [rows.detach()], { descending: false })]);
    const columns = sorted.shape.at(-1) ?? 1;
    const column = (/** @type {number} */ c) => F.slice(sorted, -1, c, c + 1);
    const last = column(columns - 1);
    const shape = reduce.resultShape(x.shape, dims, keepdim);
    const results = list.map((own) => {
      const place = own * (columns - 1);
      const low = Math.floor(place);
      const share = BETWEEN[interpolation](place - low, low);
      const a = column(Math.min(columns - 1, low + (share === 1 ? 1 : 0)));
      const y = share > 0 && share < 1 ? F.add(a, F.mul(F.sub(column(low + 1), a), share)) : a;
      return F.to(F.reshape(F.where(F.ne(last, last), NaN, y), shape), x.dtype);
    });
    return typeof q === 'number' ? results[0] : F.stack(results, 0);
  });
}

// ---- differences

/**
 * The differences of neighbours along a dimension, n times over: x[1 …] - x[… -1]. Of bools, whether they differ. Of n elements and fewer there
 * are none.
 * @param {Tensor} x @param {number} [n] 1 when left out @param {number} [dim] the last when left out @param {DiffOptions} [options]
 * @returns {Tensor}
 */
export function diff(x, n = 1, dim = -1, options = {}) {
  const { prepend, append } = checkOptions('diff', options, ['prepend', 'append']);
  tensorOf('diff', x);
  if (typeof n !== 'number' || !Number.isInteger(n) || n < 0)
    throw new ArgumentError('diff', `n must be an integer of at least 0, got ${shown(n)}`);
  const d = dimension('diff', dim, x.ndim);
  if (x.ndim === 0) throw new ShapeError('diff', 'a tensor [] has no neighbours');
  return within('diff', () => {
    const parts = [prepend, x, append].filter((part) => part !== undefined);
    let y = parts.length > 1 ? F.cat(parts, d) : x;
    for (let i = 0; i < n && y.shape[d] > 0; i++) {
      const [next, own] = [F.slice(y, d, 1), F.slice(y, d, 0, -1)];
      y = y.dtype === 'bool' ? F.ne(next, own) : F.sub(next, own);
    }
    return n === 0 ? F.clone(y) : y;
  });
}

/** The areas between neighbours. @param {string} op @param {Tensor} y @param {Tensor | undefined} x @param {TrapezoidOptions} options */
function areas(op, y, x, options) {
  const { dx = 1, dim = -1 } = checkOptions(op, options, ['dx', 'dim']);
  const d = dimension(op, dim, tensorOf(op, y).ndim);
  if (typeof dx !== 'number') throw new ArgumentError(op, `dx must be a number, got ${shown(dx)}`);
  if (x !== undefined) tensorOf(op, x);
  if (y.ndim === 0) throw new ShapeError(op, 'a tensor [] has no points along a dimension');
  return within(op, () => {
    const heights = F.mul(F.add(F.slice(y, d, 1), F.slice(y, d, 0, -1)), 0.5);
    if (x === undefined) return { own: F.mul(heights, dx), d };
    // Points of one dimension are those along `dim`.
    const points =
      x.ndim === 1
        ? F.reshape(
            x,
            y.shape.map((_, i) => (i === d ? -1 : 1)),
          )
        : x;
    return { own: F.mul(heights, diff(points, 1, d)), d };
  });
}

/**
 * The integral along a dimension by the trapezoidal rule: Σ (y[i] + y[i + 1]) / 2 · (x[i + 1] - x[i]).
 * @param {Tensor} y @param {Tensor} [x] the points, of y's shape or of one dimension; `dx` apart when left out @param {TrapezoidOptions} [options]
 */
export function trapezoid(y, x, options = {}) {
  const { own, d } = areas('trapezoid', y, x, options);
  return within('trapezoid', () => F.sum(own, d));
}

/**
 * The integral up to each point but the first, by the trapezoidal rule.
 * @param {Tensor} y @param {Tensor} [x] the points, of y's shape or of one dimension; `dx` apart when left out @param {TrapezoidOptions} [options]
 */
export function cumulativeTrapezoid(y, x, options = {}) {
  const { own, d } = areas('cumulativeTrapezoid', y, x, options);
  return within('cumulativeTrapezoid', () => cumsum(own, d));
}
