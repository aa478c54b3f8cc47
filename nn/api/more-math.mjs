// Further functions of `torch`: membership, statistics, gradients of samples, polynomials and products, with its names and defaults.

import { apply, tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { broadcastShapes as commonShape, checkShape, checkType, denseLayout, dimension, isFloat, positive } from '../core/layout.mjs';
import { checkFinite, checkLeast, checkOptions, flag } from '../core/options.mjs';
import { uploaded } from '../core/tensor.mjs';
import * as sorts from '../ops/sorting.mjs';
import { conv1d } from './convolution.mjs';
import { dot, mv, outer } from './einsum.mjs';
import * as F from './functional.mjs';
import { argmax, gather, indexSelect, signedIndexOf } from './indexing.mjs';
import { ranksOf, runsOf } from './integer-rows.mjs';
import { logicalAnd } from './integers.mjs';
import { floorDivide, remainder } from './math.mjs';
import { promotedType, toF32 } from './operands.mjs';
import { all, cumprod, cumsum, logsumexp, median, norm, std, var_ } from './reductions.mjs';
import { diag, flip, hstack, integer, integers, pad, tensorSplit } from './shape.mjs';
import { scatterReduce, searchsorted, sort } from './sorting.mjs';

/** @import { Tensor } from './tensor.mjs' */
/** @import { Chosen } from './reductions.mjs' */
/** @import { VarianceOptions } from './functional.mjs' */
/** @import { DType } from '../core/layout.mjs' */

/**
 * Options of `isin`.
 * @typedef {object} IsinOptions
 * @property {boolean} [invert] whether to say what is not among them; false when left out
 */

/**
 * Options of `aminmax`.
 * @typedef {object} AminmaxOptions
 * @property {number} [dim] all dimensions when left out
 * @property {boolean} [keepdim] whether the dimension stays, of size 1; false when left out
 */

/**
 * Options of `cov`.
 * @typedef {object} CovarianceOptions
 * @property {number} [correction] is subtracted from the count of observations; 1 when left out
 * @property {Tensor} [fweights] [observations]: how often each counts; 1 when left out
 * @property {Tensor} [aweights] [observations]: the weight of each; 1 when left out
 */

/**
 * Options of `nonzeroStatic`.
 * @typedef {object} NonzeroOptions
 * @property {number} size rows of the result
 * @property {number} [fillValue] what fills the rows that are left; -1 when left out
 */

/**
 * Options of `gradient`.
 * @typedef {object} GradientOptions
 * @property {number | Tensor} [spacing] distance of samples, or their places [n] along the only dimension; 1 when left out
 * @property {number | readonly number[]} [dim] all when left out
 * @property {1 | 2} [edgeOrder] order of the differences at both ends; 1 when left out
 */

/**
 * Options of `unwrap`.
 * @typedef {object} UnwrapOptions
 * @property {number} [discont] the least step that is corrected; half the period when left out
 * @property {number} [dim] the last when left out
 * @property {number} [period] a turn, 2π, when left out
 */

/**
 * Options of `addmv`, `addr` and `addbmm`.
 * @typedef {object} ScaleOptions
 * @property {number} [beta] a factor on the input, which is not read where it is 0; 1 when left out
 * @property {number} [alpha] a factor on the product; 1 when left out
 */

// ---- membership and order

/**
 * Whether each element is among others, as bools. NaN is not.
 * @param {Tensor} elements @param {Tensor} testElements of any shape, of the same type @param {IsinOptions} [options]
 * @returns {Tensor} bool, of the elements' shape
 */
export function isin(elements, testElements, options = {}) {
  const op = 'isin';
  const { invert = false } = checkOptions(op, options, ['invert']);
  flag(op, 'invert', invert);
  const [a, b] = [tensorOf(op, elements).detach(), tensorOf(op, testElements).detach()];
  return within(op, () => {
    if (b.size === 0 || a.size === 0) return F.full(a.shape, Number(invert), { dtype: 'bool' });
    if (a.dtype === 'i64' && b.dtype === 'i64') {
      const [own, others] = ranksOf(F.reshape(a, [-1]), F.reshape(b, [-1]));
      return isin(F.reshape(own, a.shape), others, { invert });
    }
    const sorted = sort(F.reshape(b, [-1]), 0).values;
    const [flat, list] = isFloat(a.dtype) ? [toF32(F.reshape(a, [-1])), toF32(sorted)] : [F.reshape(a, [-1]), sorted];
    const place = F.minimum(searchsorted(list, flat), b.size - 1);
    const found = F.reshape(F.eq(indexSelect(list, 0, place), flat), a.shape);
    return invert ? F.eq(found, 0) : found;
  });
}

/** Rows along a dimension, and what is chosen of each put back. @param {Tensor} x @param {number} d @param {boolean} keepdim */
function alongRows(x, d, keepdim) {
  const rows = F.transpose(x.ndim === 0 ? F.reshape(x, [1]) : x, d, -1);
  const back = (/** @type {Tensor} */ y) => {
    if (x.ndim === 0) return F.reshape(y, []);
    const own = F.transpose(y, d, -1);
    return keepdim ? own : F.reshape(own, x.shape.toSpliced(d, 1));
  };
  return { rows, back };
}

/** @param {string} op @param {Tensor} x @param {number} d */
function checkSome(op, x, d) {
  if ((x.shape[d] ?? 1) === 0) throw new ShapeError(op, 'of 0 elements there is none');
}

/**
 * The element that is most often along a dimension, the least of several, and the index of its last occurrence.
 * @param {Tensor} x @param {number} [dim] the last when left out @param {boolean} [keepdim] whether the dimension stays, of size 1
 * @returns {Chosen}
 */
export function mode(x, dim = -1, keepdim = false) {
  const d = dimension('mode', dim, tensorOf('mode', x).ndim);
  flag('mode', 'keepdim', keepdim);
  checkSome('mode', x, d);
  return within('mode', () => {
    const { rows, back } = alongRows(x, d, keepdim);
    const { values, indices } = sort(rows.detach(), -1);
    const own = values.dtype === 'i64' ? runsOf(values) : toF32(values);
    const [first, behind] = [false, true].map((right) => searchsorted(own, own, { right }));
    // NaN equals no other NaN.
    const place = argmax(F.to(F.where(F.eq(own, own), F.sub(behind, first), 1), 'f32'), -1, true);
    const index = gather(indices, -1, F.sub(gather(behind, -1, place), 1));
    return { values: back(gather(rows, -1, index)), indices: back(index) };
  });
}

/**
 * The median of what is not NaN, the lower of two; NaN where nothing else is. With a dimension the medians along it and their indices.
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
export function nanmedian(x, dim, keepdim = false) {
  const op = 'nanmedian';
  tensorOf(op, x);
  flag(op, 'keepdim', keepdim);
  if (dim === undefined) return within(op, () => nanmedian(F.reshape(x, [-1]), 0).values);
  const d = dimension(op, dim, x.ndim);
  checkSome(op, x, d);
  if (!isFloat(x.dtype)) return within(op, () => median(x, dim, keepdim));
  return within(op, () => {
    const { rows, back } = alongRows(x, d, keepdim);
    const { indices } = sort(rows.detach(), -1);
    const counts = F.sum(F.to(F.eq(rows, rows), 'f32'), -1, true);
    // NaN is sorted behind all numbers.
    const place = F.to(F.maximum(F.mul(F.sub(counts, 1), 0.5), 0), 'i32');
    const index = gather(indices, -1, place);
    return { values: back(gather(rows, -1, index)), indices: back(index) };
  });
}

/** The least and the largest element. @param {Tensor} x @param {AminmaxOptions} [options] @returns {{ min: Tensor, max: Tensor }} */
export function aminmax(x, options = {}) {
  const { dim, keepdim = false } = checkOptions('aminmax', options, ['dim', 'keepdim']);
  tensorOf('aminmax', x);
  flag('aminmax', 'keepdim', keepdim);
  const dims = dim === undefined ? x.shape.map((_, d) => d) : dimension('aminmax', dim, x.ndim);
  return within('aminmax', () => ({ min: F.amin(x, dims, keepdim), max: F.amax(x, dims, keepdim) }));
}

// ---- statistics

/** The variance and the mean over dimensions. @param {Tensor} x @param {number | readonly number[]} [dim] all when left out @param {VarianceOptions} [options] @returns {[variance: Tensor, mean: Tensor]} */
export function varMean(x, dim, options = {}) {
  const { keepdim = false } = checkOptions('varMean', options, ['keepdim', 'correction']);
  return within('varMean', () => [var_(tensorOf('varMean', x), dim, options), F.mean(x, dim, keepdim)]);
}
/** The standard deviation and the mean over dimensions. @param {Tensor} x @param {number | readonly number[]} [dim] all when left out @param {VarianceOptions} [options] @returns {[deviation: Tensor, mean: Tensor]} */
export function stdMean(x, dim, options = {}) {
  const { keepdim = false } = checkOptions('stdMean', options, ['keepdim', 'correction']);
  return within('stdMean', () => [std(tensorOf('stdMean', x), dim, options), F.mean(x, dim, keepdim)]);
}

/**
 * Covariances of variables: Σ w (a - mean a) (b - mean b) / (Σ w - correction), with the weights w = fweights · aweights.
 * @param {Tensor} x [variables, observations], or [observations] @param {CovarianceOptions} [options]
 * @returns {Tensor} [variables, variables], or [] of one variable
 */
export function cov(x, options = {}) {
  const { correction = 1, fweights, aweights } = checkOptions('cov', options, ['correction', 'fweights', 'aweights']);
  checkFinite('cov', 'correction', correction);
  if (tensorOf('cov', x).ndim > 2)
    throw new ShapeError('cov', `expected [variables, observations] or [observations], got ${show(x.shape)}`);
  const count = x.shape.at(-1) ?? 1;
  for (const [name, own] of Object.entries({ fweights, aweights }))
    if (own !== undefined && show(tensorOf('cov', own).shape) !== show([count]))
      throw new ShapeError('cov', `${name} must be [${count}], got ${show(own.shape)}`);
  return within('cov', () => {
    const own = F.reshape(F.to(x, 'f32'), x.ndim < 2 ? [1, count] : x.shape);
    const weights = [fweights, aweights].flatMap((w) => (w === undefined ? [] : [F.to(w, 'f32')]));
    const w = weights.length === 2 ? F.mul(weights[0], weights[1]) : weights[0];
    const total = w ? F.sum(w) : F.full([], count);
    const mean = w ? F.div(F.sum(F.mul(own, w), 1, true), total) : F.mean(own, 1, true);
    const apart = F.sub(own, mean);
    // As PyTorch's: with weights of observations the correction is of their mean.
    const mended = w && aweights ? F.div(F.mul(F.sum(F.mul(w, F.to(aweights, 'f32'))), correction), total) : F.full([], correction);
    const y = F.div(F.matmul(w ? F.mul(apart, w) : apart, F.transpose(apart, 0, 1)), F.maximum(F.sub(total, mended), 0));
    return F.to(x.ndim < 2 ? F.reshape(y, []) : y, isFloat(x.dtype) ? x.dtype : 'f32');
  });
}

/** Pearson's correlations of variables, within ±1. @param {Tensor} x [variables, observations], or [observations] @returns {Tensor} [variables, variables], or [] */
export function corrcoef(x) {
  if (tensorOf('corrcoef', x).ndim > 2)
    throw new ShapeError('corrcoef', `expected [variables, observations] or [observations], got ${show(x.shape)}`);
  return within('corrcoef', () => {
    const c = cov(F.to(x, 'f32'));
    if (c.ndim === 0) return F.div(c, c);
    const deviations = F.sqrt(diag(c));
    return F.to(F.clamp(F.div(F.div(c, F.unsqueeze(deviations, 1)), deviations), -1, 1), isFloat(x.dtype) ? x.dtype : 'f32');
  });
}

/**
 * The logarithm of the mean of exp(x) over dimensions, without overflow.
 * @param {Tensor} x @param {number | readonly number[]} [dim] all when left out @param {boolean} [keepdim] whether the dimensions stay, of size 1
 */
export function logmeanexp(x, dim, keepdim = false) {
  const sums = within('logmeanexp', () => logsumexp(tensorOf('logmeanexp', x), dim, keepdim));
  return F.sub(sums, Math.log(x.size / Math.max(sums.size, 1)));
}

/**
 * Each part along a dimension, scaled down to a norm where it is longer.
 * @param {Tensor} x of at least two dimensions @param {number} p of the norm @param {number} dim @param {number} maxnorm
 * @returns {Tensor}
 */
export function renorm(x, p, dim, maxnorm) {
  const op = 'renorm';
  const d = dimension(op, dim, tensorOf(op, x).ndim);
  if (x.ndim < 2) throw new ShapeError(op, `expected at least two dimensions, got ${show(x.shape)}`);
  if (!(checkFinite(op, 'p', p) > 0)) throw new ArgumentError(op, `p must be above 0, got ${p}`);
  checkLeast(op, 'maxnorm', maxnorm);
  const others = x.shape.flatMap((_, i) => (i === d ? [] : [i]));
  return within(op, () => {
    const own = toF32(x);
    const lengths = norm(own, p, others, true);
    // PyTorch's 1e-7.
    const factors = F.where(F.gt(lengths, maxnorm), F.div(maxnorm, F.add(lengths, 1e-7)), 1);
    return F.to(F.mul(own, factors), x.dtype);
  });
}

/**
 * A copy of x with rows of `source` combined by index along a dimension, as PyTorch's `index_reduce`; see `scatterReduce`.
 * @param {Tensor} x @param {number} dim @param {Tensor} index [n] i32, u32 or i64 @param {Tensor} source x's shape with n along `dim`
 * @param {'prod' | 'mean' | 'amax' | 'amin'} reduce @param {import('./sorting.mjs').ScatterReduceOptions} [options]
 * @returns {Tensor}
 */
export function indexReduce(x, dim, index, source, reduce, options = {}) {
  const op = 'indexReduce';
  const d = dimension(op, dim, tensorOf(op, x).ndim);
  if (tensorOf(op, index).ndim !== 1) throw new ShapeError(op, `the index must have one dimension, got ${show(index.shape)}`);
  if (x.ndim === 0) throw new ShapeError(op, 'a tensor [] has no dimension');
  if (!['prod', 'mean', 'amax', 'amin'].includes(reduce))
    throw new ArgumentError(op, `reduce must be one of prod, mean, amax, amin, got ${shown(reduce)}`);
  tensorOf(op, source);
  return within(op, () => {
    const sizes = x.shape.map((_, i) => (i === d ? index.size : 1));
    return scatterReduce(x, d, F.expand(F.reshape(index, sizes), x.shape.with(d, index.size)), source, reduce, options);
  });
}

/**
 * The indices of the elements that are not 0, row by row, of a size that is given: it waits for nothing, and may be compiled.
 * @param {Tensor} x @param {NonzeroOptions} options
 * @returns {Tensor} i32 [size, dimensions]
 */
export function nonzeroStatic(x, options) {
  const op = 'nonzeroStatic';
  const { size, fillValue = -1 } = checkOptions(op, options, ['size', 'fillValue']);
  positive(op, 'size', size);
  integer(op, 'fillValue', fillValue);
  tensorOf(op, x);
  return within(op, () => {
    const marks = F.reshape(x.dtype === 'bool' ? x : F.ne(x, 0), [-1]);
    const sums = cumsum(marks, 0);
    const places = apply(sorts.packedPlace, [marks, sums]);
    const kept = F.where(F.lt(F.to(places, 'i32'), size), places, F.full([], 0xffffffff, { dtype: 'u32' }));
    const flat = apply(sorts.put, [kept, apply(sorts.iota, [], { shape: [places.size] })], { size });
    const isThere = F.lt(apply(sorts.iota, [], { shape: [size] }), F.sum(F.to(marks, 'i32'), 0, true));
    const columns = unravelIndex(flat, x.shape).map((c) => F.where(isThere, c, fillValue));
    return x.ndim === 0 ? F.zeros([size, 0], { dtype: 'i32' }) : F.stack(columns, 1);
  });
}

/** Where elements of a shape are, by their numbers. @param {Tensor} indices integers @param {readonly number[]} shape @returns {Tensor[]} i32, one for each dimension */
export function unravelIndex(indices, shape) {
  const own = within('unravelIndex', () => signedIndexOf('unravelIndex', indices));
  const sizes = checkShape('unravelIndex', shape);
  const steps = sizes.map((_, d) => sizes.slice(d + 1).reduce((a, b) => a * b, 1));
  return within('unravelIndex', () => {
    if (sizes.reduce((a, b) => a * b, 1) < 2 ** 31) return sizes.map((size, d) => apply(sorts.coordinate, [own], { step: steps[d], size }));
    // Numbers that 32 bits do not have.
    const wide = F.to(indices, 'i64');
    return sizes.map((size, d) => F.to(remainder(floorDivide(wide, steps[d]), size), 'i32'));
  });
}

// ---- samples of functions

/** Powers of a vector: column j is x to the power n - 1 - j, or j where they increase. @param {Tensor} x [rows] @param {number} [n] columns; as many as rows when left out @param {boolean} [increasing] @returns {Tensor} [rows, n] */
export function vander(x, n, increasing = false) {
  if (tensorOf('vander', x).ndim !== 1) throw new ShapeError('vander', `expected a vector, got ${show(x.shape)}`);
  const columns = n === undefined ? x.size : positive('vander', 'n', n);
  flag('vander', 'increasing', increasing);
  return within('vander', () => {
    const one = F.ones([x.size, 1], { dtype: x.dtype });
    const powers = columns > 1 ? cumprod(F.expand(F.unsqueeze(x, 1), [x.size, columns - 1]), 1) : undefined;
    const y = powers ? F.cat([one, F.to(powers, x.dtype)], 1) : one;
    return increasing ? y : flip(y, 1);
  });
}

/** The value of a polynomial by Horner's rule, the highest power first. @param {Tensor} p [n] @param {Tensor} x @returns {Tensor} of x's shape */
export function polyval(p, x) {
  if (tensorOf('polyval', p).ndim !== 1 || p.size === 0)
    throw new ShapeError('polyval', `the coefficients must be [n], got ${show(p.shape)}`);
  tensorOf('polyval', x);
  return within('polyval', () => {
    const coefficients = F.split(p, 1).map((c) => F.reshape(c, []));
    return coefficients.slice(1).reduce((y, c) => F.add(F.mul(y, x), c), F.expand(coefficients[0], x.shape));
  });
}
/** @param {string} op @param {Tensor} a @param {Tensor} b @param {(a: Tensor, b: Tensor) => Tensor} f */
function ofPolynomials(op, a, b, f) {
  for (const x of [a, b])
    if (tensorOf(op, x).ndim !== 1 || x.size === 0) throw new ShapeError(op, `expected coefficients [n], got ${show(x.shape)}`);
  const size = Math.max(a.size, b.size);
  const whole = (/** @type {Tensor} */ x) => (x.size < size ? pad(x, [size - x.size, 0]) : x);
  return within(op, () => f(whole(a), whole(b)));
}
/** The sum of two polynomials, the highest power first. @param {Tensor} a [n] @param {Tensor} b [m] @returns {Tensor} [max(n, m)] */
export const polyadd = (a, b) => ofPolynomials('polyadd', a, b, F.add);
/** The difference of two polynomials, the highest power first. @param {Tensor} a [n] @param {Tensor} b [m] @returns {Tensor} [max(n, m)] */
export const polysub = (a, b) => ofPolynomials('polysub', a, b, F.sub);
/** The product of two polynomials, the highest power first. @param {Tensor} a [n] @param {Tensor} b [m] @returns {Tensor} [n + m - 1] */
export const polymul = (a, b) => within('polymul', () => convolve(a, b));

/** How much of a convolution is returned: all, as much as the longer signal is long, or where both overlap. @typedef {'full' | 'same' | 'valid'} ConvolveMode */

/** @param {string} op @param {Tensor} a @param {Tensor} b @param {ConvolveMode} mode @param {boolean} turned whether b is taken from its end */
function convolved(op, a, b, mode, turned) {
  for (const x of [a, b])
    if (tensorOf(op, x).ndim !== 1 || x.size === 0) throw new ShapeError(op, `expected a signal [n], got ${show(x.shape)}`);
  if (mode !== 'full' && mode !== 'same' && mode !== 'valid')
    throw new ArgumentError(op, `mode must be 'full', 'same' or 'valid', got ${shown(mode)}`);
  return within(op, () => {
    const swaps = a.size < b.size;
    const [long, short] = swaps ? [b, a] : [a, b];
    const kernel = turned ? flip(short, 0) : short;
    const n = short.size;
    const row = (/** @type {Tensor} */ x) => F.reshape(x, [1, 1, -1]);
    const whole = F.reshape(conv1d(row(long), row(kernel), undefined, { padding: n - 1 }), [-1]);
    const full = !turned && swaps ? flip(whole, 0) : whole;
    if (mode === 'full') return full;
    const size = mode === 'same' ? long.size : long.size - n + 1;
    // Of an odd rest numpy leaves more out at the end, and of a correlation's shorter first signal at the beginning.
    const start = mode === 'valid' ? n - 1 : !turned && swaps ? Math.ceil((n - 1) / 2) : Math.floor((n - 1) / 2);
    return F.slice(full, 0, start, start + size);
  });
}
/** The convolution of two signals, y[k] = Σ a[i] b[k - i], as NumPy's. @param {Tensor} a [n] @param {Tensor} b [m] @param {ConvolveMode} [mode] 'full' when left out @returns {Tensor} */
export const convolve = (a, b, mode = 'full') => convolved('convolve', a, b, mode, true);
/** The correlation of two signals, y[k] = Σ a[k + i] b[i], as NumPy's. @param {Tensor} a [n] @param {Tensor} b [m] @param {ConvolveMode} [mode] 'valid' when left out @returns {Tensor} */
export const correlate = (a, b, mode = 'valid') => convolved('correlate', a, b, mode, false);

/**
 * Derivatives of samples along dimensions, of second order within, as `torch.gradient`.
 * @param {Tensor} x @param {GradientOptions} [options]
 * @returns {Tensor[]} of x's shape, one for each dimension
 */
export function gradient(x, options = {}) {
  const op = 'gradient';
  const { spacing = 1, dim, edgeOrder = 1 } = checkOptions(op, options, ['spacing', 'dim', 'edgeOrder']);
  tensorOf(op, x);
  if (edgeOrder !== 1 && edgeOrder !== 2) throw new ArgumentError(op, `edgeOrder must be 1 or 2, got ${shown(edgeOrder)}`);
  const dims = dim === undefined ? x.shape.map((_, d) => d) : integers(op, 'dim', [dim].flat()).map((d) => dimension(op, d, x.ndim));
  const places = typeof spacing === 'number' ? undefined : tensorOf(op, spacing);
  if (typeof spacing === 'number' && !(Number.isFinite(spacing) && spacing !== 0))
    throw new ArgumentError(op, `spacing must be a number that is not 0, or places, got ${shown(spacing)}`);
  for (const d of dims) {
    if (!(x.shape[d] > edgeOrder))
      throw new ShapeError(op, `dimension ${d} of ${show(x.shape)} must have at least ${edgeOrder + 1} samples`);
    if (places && show(places.shape) !== show([x.shape[d]]))
      throw new ShapeError(op, `spacing must be [${x.shape[d]}], got ${show(places.shape)}`);
  }
  return within(op, () => dims.map((d) => derivative(toF32(x), d, places ? toF32(places) : Number(spacing), edgeOrder)));
}

/** @param {Tensor} x @param {number} d @param {Tensor | number} spacing @param {number} order */
function derivative(x, d, spacing, order) {
  const n = x.shape[d];
  const part = (/** @type {number} */ from, /** @type {number} */ to) => F.slice(x, d, from, to);
  const sizes = x.shape.map((_, i) => (i === d ? -1 : 1));
  const steps = typeof spacing === 'number' ? F.full([n - 1], spacing) : F.sub(F.slice(spacing, 0, 1), F.slice(spacing, 0, 0, -1));
  const wide = (/** @type {number} */ from, /** @type {number} */ to) => F.reshape(F.slice(steps, 0, from, to), sizes);
  const edge = (/** @type {number[]} */ [a, b, c], /** @type {number} */ near, /** @type {number} */ far, /** @type {number} */ sign) => {
    const h = wide(near, near + 1);
    const first = F.div(F.sub(part(b, b + 1), part(a, a + 1)), F.mul(h, sign));
    if (order === 1) return first;
    // The parabola through three samples.
    const k = wide(far, far + 1);
    const second = F.div(F.sub(part(c, c + 1), part(b, b + 1)), F.mul(k, sign));
    return F.sub(first, F.mul(F.sub(second, first), F.div(h, F.add(h, k))));
  };
  const ends = [edge([0, 1, 2], 0, 1, 1), edge([n - 1, n - 2, n - 3], n - 2, n - 3, -1)];
  if (n === 2) return F.cat(ends, d);
  const [before, after] = [wide(0, n - 2), wide(1, n - 1)];
  const [left, right] = [F.sub(part(1, n - 1), part(0, n - 2)), F.sub(part(2, n), part(1, n - 1))];
  const inner = F.div(F.add(F.div(F.mul(right, before), after), F.div(F.mul(left, after), before)), F.add(before, after));
  return F.cat([ends[0], inner, ends[1]], d);
}

/** Angles without jumps: a step larger than `discont` is changed by whole periods, as NumPy's `unwrap`. @param {Tensor} x @param {UnwrapOptions} [options] @returns {Tensor} */
export function unwrap(x, options = {}) {
  const { period = 2 * Math.PI, discont = period / 2, dim = -1 } = checkOptions('unwrap', options, ['discont', 'dim', 'period']);
  const d = dimension('unwrap', dim, tensorOf('unwrap', x).ndim);
  for (const [name, value] of Object.entries({ discont, period })) checkLeast('unwrap', name, value);
  if (period === 0 || x.ndim === 0) throw new ArgumentError('unwrap', 'needs a period above 0 and a dimension');
  return within('unwrap', () => {
    const own = toF32(x);
    if (x.shape[d] < 2) return F.clone(own);
    const steps = F.sub(F.slice(own, d, 1), F.slice(own, d, 0, -1)).detach();
    const half = period / 2;
    const turns = F.div(F.add(steps, half), period, { roundingMode: 'floor' });
    const within_ = F.sub(steps, F.mul(turns, period));
    // Half a period up stays up.
    const mended = F.where(logicalAnd(F.eq(within_, -half), F.gt(steps, 0)), half, within_);
    const change = F.where(F.lt(F.abs(steps), discont), 0, F.sub(mended, steps));
    return F.cat([F.slice(own, d, 0, 1), F.add(F.slice(own, d, 1), cumsum(change, d))], d);
  });
}

// ---- products and parts

/** Matrices along a diagonal, with zeros elsewhere. @param {...Tensor} tensors of at most two dimensions @returns {Tensor} */
export function blockDiag(...tensors) {
  if (tensors.length === 0) throw new ArgumentError('blockDiag', 'expected at least one tensor');
  for (const x of tensors)
    if (tensorOf('blockDiag', x).ndim > 2) throw new ShapeError('blockDiag', `expected at most two dimensions, got ${show(x.shape)}`);
  return within('blockDiag', () => {
    const blocks = tensors.map((x) => (x.ndim === 2 ? x : F.reshape(x, [1, x.size])));
    const columns = blocks.reduce((sum, { shape }) => sum + shape[1], 0);
    let at = 0;
    return F.cat(
      blocks.map((x) => {
        const before = at;
        at += x.shape[1];
        return pad(x, [before, columns - at]);
      }),
      0,
    );
  });
}
/** The products of equal vectors: Σ a b along a dimension. @param {Tensor} a @param {Tensor} b broadcasts with a @param {number} [dim] the last when left out @returns {Tensor} */
export const vecdot = (a, b, dim = -1) =>
  within('vecdot', () => F.sum(F.mul(tensorOf('vecdot', a), tensorOf('vecdot', b)), dimension('vecdot', dim, Math.max(a.ndim, b.ndim))));
/** The product of two vectors. @param {Tensor} a [n] @param {Tensor} b [n] @returns {Tensor} [] */
export const vdot = (a, b) => within('vdot', () => dot(tensorOf('vdot', a), tensorOf('vdot', b)));
/** The p-norm of a - b. @param {Tensor} a @param {Tensor} b broadcasts with a @param {number} [p] 2 when left out @returns {Tensor} [] */
export const dist = (a, b, p = 2) => within('dist', () => norm(F.sub(tensorOf('dist', a), tensorOf('dist', b)), p));
/** A matrix with all elements of x on a diagonal. @param {Tensor} x @param {number} [offset] 0 (when left out) the main one, 1 the next above it @returns {Tensor} */
export const diagflat = (x, offset = 0) => within('diagflat', () => diag(F.reshape(tensorOf('diagflat', x), [-1]), offset));
/** Whether two tensors have the same shape and elements, as a bool on the device. @param {Tensor} a @param {Tensor} b @returns {Tensor} bool [] */
export const equal = (a, b) =>
  within('equal', () => {
    const same = show(tensorOf('equal', a).shape) === show(tensorOf('equal', b).shape);
    return same ? all(F.eq(a, b)) : F.full([], 0, { dtype: 'bool' });
  });

/** @param {string} op @param {Tensor} input @param {ScaleOptions} options @param {() => Tensor} product */
function scaled(op, input, options, product) {
  const { beta = 1, alpha = 1 } = checkOptions(op, options, ['beta', 'alpha']);
  for (const [name, value] of Object.entries({ beta, alpha })) checkFinite(op, name, value);
  tensorOf(op, input);
  return within(op, () => {
    const y = F.mul(product(), alpha);
    return beta === 0 ? y : F.add(F.mul(input, beta), y);
  });
}
/** beta · input + alpha · a v. @param {Tensor} input [n] @param {Tensor} a [n, m] @param {Tensor} v [m] @param {ScaleOptions} [options] @returns {Tensor} [n] */
export const addmv = (input, a, v, options = {}) => scaled('addmv', input, options, () => mv(a, v));
/** beta · input + alpha · a bᵀ of vectors. @param {Tensor} input [n, m] @param {Tensor} a [n] @param {Tensor} b [m] @param {ScaleOptions} [options] @returns {Tensor} [n, m] */
export const addr = (input, a, b, options = {}) => scaled('addr', input, options, () => outer(a, b));
/** beta · input + alpha · Σ a b over a batch. @param {Tensor} input [n, m] @param {Tensor} a [batch, n, k] @param {Tensor} b [batch, k, m] @param {ScaleOptions} [options] @returns {Tensor} [n, m] */
export const addbmm = (input, a, b, options = {}) =>
  scaled('addbmm', input, options, () => {
    for (const x of [a, b])
      if (tensorOf('addbmm', x).ndim !== 3) throw new ShapeError('addbmm', `expected batches of matrices, got ${show(x.shape)}`);
    return F.sum(F.matmul(a, b), 0);
  });

/** Tensors as columns, or matrices beside each other. @param {Tensor[]} tensors @returns {Tensor} */
export function columnStack(tensors) {
  if (!Array.isArray(tensors) || tensors.length === 0) throw new ArgumentError('columnStack', 'expected an array of tensors');
  return within('columnStack', () => hstack(tensors.map((x) => (tensorOf('columnStack', x).ndim < 2 ? F.reshape(x, [x.size, 1]) : x))));
}
/** @param {string} op @param {Tensor} x @param {number | readonly number[]} sections @param {number} dim @param {number} least */
function divided(op, x, sections, dim, least) {
  if (tensorOf(op, x).ndim < least) throw new ShapeError(op, `expected at least ${least} dimensions, got ${show(x.shape)}`);
  if (typeof sections === 'number' && x.shape[dim] % positive(op, 'sections', sections))
    throw new ShapeError(op, `${sections} parts do not divide a dimension of ${x.shape[dim]}`);
  return within(op, () => tensorSplit(x, sections, dim));
}
/** Divides the second dimension, or the only one, into equal parts or at indices. @param {Tensor} x @param {number | readonly number[]} sections @returns {Tensor[]} */
export const hsplit = (x, sections) => divided('hsplit', x, sections, tensorOf('hsplit', x).ndim === 1 ? 0 : 1, 1);
/** Divides the first dimension into equal parts or at indices. @param {Tensor} x @param {number | readonly number[]} sections @returns {Tensor[]} */
export const vsplit = (x, sections) => divided('vsplit', x, sections, 0, 2);
/** Divides the third dimension into equal parts or at indices. @param {Tensor} x @param {number | readonly number[]} sections @returns {Tensor[]} */
export const dsplit = (x, sections) => divided('dsplit', x, sections, 2, 3);

/**
 * All combinations of r elements of a vector, in order.
 * @param {Tensor} x [n] @param {number} [r] 2 when left out @param {boolean} [withReplacement] whether an element may be there several times
 * @returns {Tensor} [combinations, r]
 */
export function combinations(x, r = 2, withReplacement = false) {
  const op = 'combinations';
  if (tensorOf(op, x).ndim !== 1) throw new ShapeError(op, `expected a vector, got ${show(x.shape)}`);
  positive(op, 'r', r);
  flag(op, 'withReplacement', withReplacement);
  const n = x.size;
  // (n choose r), of n + r - 1 with replacement.
  const from = withReplacement ? n + r - 1 : n;
  let count = from >= r ? 1 : 0;
  for (let k = 1; k <= r && count > 0 && count < 2 ** 31; k++) count = (count * (from - r + k)) / k;
  if (Math.round(count) * r > 2 ** 26) throw new ShapeError(op, `${n} elements have too many combinations of ${r}`);
  /** @type {number[]} */
  const places = [];
  const visit = (/** @type {number[]} */ own, /** @type {number} */ next) => {
    if (own.length === r) return void places.push(...own);
    for (let i = next; i < n; i++) visit([...own, i], withReplacement ? i : i + 1);
  };
  visit([], 0);
  return within(op, () => {
    if (places.length === 0) return F.zeros([0, r], { dtype: x.dtype });
    const index = uploaded(Int32Array.from(places), denseLayout([places.length], 'i32'));
    return F.reshape(indexSelect(x, 0, index), [-1, r]);
  });
}

// ---- shapes and types

/** Tensors as views of the shape that they broadcast to. @param {...Tensor} tensors @returns {Tensor[]} */
export function broadcastTensors(...tensors) {
  if (tensors.length === 0) throw new ArgumentError('broadcastTensors', 'expected at least one tensor');
  const shape = commonShape('broadcastTensors', ...tensors.map((x) => tensorOf('broadcastTensors', x).shape));
  return within('broadcastTensors', () => tensors.map((x) => F.expand(x, shape)));
}
/** The shape that shapes broadcast to. @param {...readonly number[]} shapes @returns {number[]} */
export function broadcastShapes(...shapes) {
  return commonShape('broadcastShapes', ...shapes.map((shape) => checkShape('broadcastShapes', shape)));
}
/** The type in which elements of two types are computed. @param {DType} a @param {DType} b @returns {DType} */
export const promoteTypes = (a, b) => promotedType(checkType('promoteTypes', a), checkType('promoteTypes', b));
/** The type in which two tensors are computed. @param {Tensor} a @param {Tensor} b @returns {DType} */
export const resultType = (a, b) => promotedType(tensorOf('resultType', a).dtype, tensorOf('resultType', b).dtype);

/** The places of a diagonal in a tensor of equal sizes, as indices of each dimension. @param {number} n @param {number} [ndim] 2 when left out @returns {Tensor[]} i32 [n] */
export function diagIndices(n, ndim = 2) {
  positive('diagIndices', 'n', n);
  if (positive('diagIndices', 'ndim', ndim) > 64) throw new ArgumentError('diagIndices', `ndim must be at most 64, got ${ndim}`);
  return within('diagIndices', () => Array.from({ length: ndim }, () => apply(sorts.iota, [], { shape: [n] })));
}
