// Norms, ranks, pseudoinverses, least squares and exponentials of matrices.

import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { dimension, isFloat } from '../core/layout.mjs';
import { noGrad } from '../core/node.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { matricesOf, svd, svdvals } from './decompositions.mjs';
import * as F from './functional.mjs';
import { inverse } from './linalg.mjs';
import { ceil, exp2, log2 } from './math.mjs';
import { eye, inF32, square, turned, withAdjoint } from './matrices.mjs';
import { toF32 } from './operands.mjs';
import { norm } from './reductions.mjs';

/** @import { Tensor } from './tensor.mjs' */

/**
 * Which singular values count as 0: those of at most max(atol, rtol · the largest).
 * @typedef {object} ToleranceOptions
 * @property {number} [atol] 0 when left out
 * @property {number} [rtol] 2⁻²³ · max(m, n) when left out, and 0 if `atol` is given
 */
/**
 * Options of `lstsq`.
 * @typedef {object} LeastSquaresOptions
 * @property {number} [rcond] singular values of at most that part of the largest count as 0; 2⁻²³ · max(m, n) when left out
 */
/** Orders of `matrixNorm`. @typedef {'fro' | 'nuc' | 1 | -1 | 2 | -2 | number} MatrixOrder */
/** What `lstsq` finds. @typedef {{ solution: Tensor, residuals: Tensor, rank: Tensor, singularValues: Tensor }} LeastSquares */

/**
 * Norms of matrices: Frobenius's, the sum of singular values ('nuc'), the largest (of a negative order the least) singular value (2), or sum of
 * sizes along columns (1) or rows (Infinity).
 * @param {Tensor} a [..., n, m] @param {MatrixOrder} [order] 'fro' when left out; else 'nuc', 1, -1, 2, -2, Infinity or -Infinity
 * @param {readonly [number, number]} [dim] rows and columns; the last two when left out
 * @param {boolean} [keepdim] whether both dimensions stay, of size 1
 * @returns {Tensor}
 */
export function matrixNorm(a, order = 'fro', dim = [-2, -1], keepdim = false) {
  const op = 'matrixNorm';
  if (tensorOf(op, a).ndim < 2) throw new ShapeError(op, `expected matrices [..., n, m], got ${show(a.shape)}`);
  if (!Array.isArray(dim) || dim.length !== 2) throw new ArgumentError(op, `dim must be two dimensions, got ${shown(dim)}`);
  const [rows, columns] = dim.map((d) => dimension(op, d, a.ndim));
  if (rows === columns) throw new ShapeError(op, `dim ${show(dim)} names a dimension twice`);
  checkOrder(op, order);
  flag(op, 'keepdim', keepdim);
  /** Of nothing the largest is 0. @param {Tensor} x @param {number} d @param {boolean} keep */
  const largest = (x, d, keep) => (x.shape.at(d) === 0 ? F.sum(x, d, keep) : F.amax(x, d, keep));
  return inF32(op, () => {
    if (order === 'fro') return norm(a, 2, [rows, columns], keepdim);
    const sizes = a.shape.flatMap((n, d) => (d === rows || d === columns ? (keepdim ? [1] : []) : [n]));
    if (order === 'nuc' || Math.abs(order) === 2) {
      const others = a.shape.map((_, d) => d).filter((d) => d !== rows && d !== columns);
      const values = svdvals(F.permute(a, [...others, rows, columns]));
      return F.reshape((order === 'nuc' ? F.sum : order > 0 ? largest : F.amin)(values, -1, false), sizes);
    }
    const [summed, other] = Math.abs(order) === 1 ? [rows, columns] : [columns, rows];
    const y = (order > 0 ? largest : F.amin)(F.sum(F.abs(toF32(a)), summed, true), other, true);
    return F.to(F.reshape(y, sizes), isFloat(a.dtype) ? a.dtype : 'f32');
  });
}
/** @param {string} op @param {unknown} order */
function checkOrder(op, order) {
  if (!(/** @type {unknown[]} */ (['fro', 'nuc', 1, -1, 2, -2, Infinity, -Infinity]).includes(order)))
    throw new ArgumentError(op, `order must be 'fro', 'nuc', 1, -1, 2, -2, Infinity or -Infinity, got ${shown(order)}`);
}
/**
 * The norm of the elements over dimensions, as `norm`: (Σ |x|^order)^(1/order), Infinity for the largest, -Infinity for the least, 0 for how many
 * are not 0.
 * @param {Tensor} x @param {number} [order] 2 when left out @param {number | readonly number[]} [dim] all when left out
 * @param {boolean} [keepdim] whether the dimensions stay, of size 1 @returns {Tensor}
 */
export function vectorNorm(x, order = 2, dim = undefined, keepdim = false) {
  if (typeof order !== 'number') throw new ArgumentError('vectorNorm', `order must be a number, got ${shown(order)}`);
  return within('vectorNorm', () => norm(x, order, dim, keepdim));
}

/**
 * How much matrices enlarge relative errors: the largest singular value by the least, or in another norm that of the matrix times that of its
 * inverse. Of a singular matrix it is Infinity, or NaN in norms that need the inverse.
 * @param {Tensor} a [..., m, n]; square but for the orders 2 and -2 @param {MatrixOrder} [order] as of `matrixNorm`; 2 when left out @returns {Tensor} [...]
 */
export function cond(a, order = 2) {
  const op = 'cond';
  checkOrder(op, order);
  const own = order === 2 || order === -2 ? matricesOf(op, a) : square(op, a);
  return inF32(op, () => {
    if (own.size === 0) return F.to(F.sum(own, [-2, -1]), a.dtype);
    if (order !== 2 && order !== -2) return F.to(F.mul(matrixNorm(own, order), matrixNorm(inverse(own), order)), a.dtype);
    const s = svdvals(own);
    const [most, least] = [F.amax(s, -1), F.amin(s, -1)];
    return F.to(order === 2 ? F.div(most, least) : F.div(least, most), a.dtype);
  });
}

/** @param {string} op @param {ToleranceOptions} options @param {Tensor} a @returns {(s: Tensor) => Tensor} the bound [..., 1] of singular values */
function tolerances(op, options, a) {
  const { atol = 0, rtol = options.atol ? 0 : 2 ** -23 * Math.max(...a.shape.slice(-2)) } = checkOptions(op, options, ['atol', 'rtol']);
  for (const [name, value] of Object.entries({ atol, rtol }))
    if (typeof value !== 'number' || !(value >= 0))
      throw new ArgumentError(op, `${name} must be a number of at least 0, got ${shown(value)}`);
  return (s) => F.clamp(F.mul(F.amax(s, -1, true), rtol), atol);
}
/** How many singular values are not 0: none of a matrix with NaN, where PyTorch throws. @param {Tensor} a [..., m, n] @param {ToleranceOptions} [options] @returns {Tensor} i32 [...] */
export function matrixRank(a, options = {}) {
  const own = matricesOf('matrixRank', a);
  const bound = tolerances('matrixRank', options, own);
  return inF32('matrixRank', () => {
    if (own.size === 0) return F.sum(F.gt(own.detach(), 0), [-2, -1]);
    const s = svdvals(own.detach());
    return F.sum(F.gt(s, bound(s)), -1);
  });
}

/** @param {Tensor} own f32 @param {(s: Tensor) => Tensor} bound */
function pseudoinverse(own, bound) {
  const [m, n] = own.shape.slice(-2);
  const lead = own.shape.slice(0, -2);
  if (own.size === 0)
    return { p: F.reshape(own, [...lead, n, m]), s: F.reshape(own, [...lead, Math.min(m, n)]), rank: F.zeros(lead, { dtype: 'i32' }) };
  const { p0, s, rank } = noGrad(() => {
    const { u, s, vh } = svd(own.detach(), { fullMatrices: false });
    const counts = F.gt(s, bound(s));
    const factors = F.where(counts, F.reciprocal(F.where(counts, s, 1)), 0);
    return { p0: F.matmul(F.mul(turned(vh), F.unsqueeze(factors, -2)), turned(u)), s, rank: F.sum(counts, -1) };
  });
  const gradient = (/** @type {Tensor[]} */ [dy], /** @type {Tensor[]} */ [y], /** @type {Tensor} */ a) => {
    const [d, t] = [turned(dy), turned(y)];
    const inside = F.matmul(F.matmul(t, dy), t);
    const left = F.matmul(F.sub(d, F.matmul(a, F.matmul(y, d))), F.matmul(y, t));
    const right = F.matmul(F.matmul(t, y), F.sub(d, F.matmul(F.matmul(d, y), a)));
    return F.add(F.sub(left, inside), right);
  };
  const [p] = withAdjoint('pinv', own, [p0], gradient, [0]);
  return { p, s, rank };
}
/**
 * The pseudoinverse of matrices (Moore and Penrose), by singular values. Its gradient (Golub and Pereyra 1973) is that at a constant rank.
 * @param {Tensor} a [..., m, n] @param {ToleranceOptions} [options] @returns {Tensor} [..., n, m]
 */
export function pinv(a, options = {}) {
  const own = matricesOf('pinv', a);
  const bound = tolerances('pinv', options, own);
  return inF32('pinv', () => F.to(pseudoinverse(own, bound).p, a.dtype));
}
/**
 * The x with the least ‖a x - b‖, and of several the shortest, by the pseudoinverse (LAPACK's gelsd).
 * @param {Tensor} a [..., m, n] @param {Tensor} b [..., m, k], or vectors, of a's shape without its last dimension @param {LeastSquaresOptions} [options]
 * @returns {LeastSquares} solution [..., n, k]; residuals [..., k], the squared distances, empty where m ≤ n; rank i32 [...]; singularValues
 */
export function lstsq(a, b, options = {}) {
  const op = 'lstsq';
  const own = matricesOf(op, a);
  const { rcond } = checkOptions(op, options, ['rcond']);
  if (rcond !== undefined && (typeof rcond !== 'number' || !(rcond >= 0)))
    throw new ArgumentError(op, `rcond must be a number of at least 0, got ${shown(rcond)}`);
  const bound = tolerances(op, rcond === undefined ? {} : { rtol: rcond }, own);
  const [m, n] = own.shape.slice(-2);
  const areVectors = tensorOf(op, b).ndim > 0 && show(b.shape) === show(a.shape.slice(0, -1));
  if (!isFloat(b.dtype) || b.ndim === 0 || b.shape[areVectors ? b.ndim - 1 : b.ndim - 2] !== m)
    throw new ShapeError(op, `matrices ${show(a.shape)} and right sides ${b.dtype} ${show(b.shape)}`);
  return inF32(op, () => {
    const right = areVectors ? F.unsqueeze(toF32(b), -1) : toF32(b);
    const { p, s, rank } = pseudoinverse(own, bound);
    const first = F.matmul(p, right);
    const x = F.add(first, F.matmul(p, F.sub(right, F.matmul(own, first))));
    const to = (/** @type {Tensor} */ y) => F.to(areVectors ? F.squeeze(y, -1) : y, a.dtype);
    const residuals = m > n ? F.sum(F.square(F.sub(F.matmul(own, x), right)), -2) : F.zeros([0]);
    return { solution: to(x), residuals: to(residuals), rank, singularValues: F.to(s, a.dtype) };
  });
}

/** Most squarings of `matrixExp`. */
const SQUARINGS = 16;
/**
 * The exponential of matrices, Σ aᵏ / k!, by scaling and squaring (Moler and Van Loan 2003) of Taylor's polynomial of degree 8. Of a norm above 2¹⁵
 * it is less exact.
 * @param {Tensor} a [..., n, n] @returns {Tensor} of a's shape
 */
export function matrixExp(a) {
  const own = square('matrixExp', a);
  return inF32('matrixExp', () => {
    if (own.size === 0) return F.to(F.clone(own), a.dtype);
    const one = eye(own.shape[own.ndim - 1]);
    const times = noGrad(() => {
      const size = F.amax(F.sum(F.abs(own.detach()), -2, true), -1, true);
      return F.clamp(F.add(ceil(log2(F.where(F.eq(size, 0), 1, size))), 1), 0, SQUARINGS);
    });
    const small = F.mul(own, exp2(F.neg(times)));
    let y = F.add(one, F.div(small, 8));
    for (let k = 7; k >= 1; k--) y = F.add(one, F.div(F.matmul(small, y), k));
    for (let k = 0; k < SQUARINGS; k++) y = F.where(F.gt(times, k), F.matmul(y, y), y);
    return F.to(y, a.dtype);
  });
}

/**
 * A norm of vectors or matrices, as `torch.linalg.norm`: without an order that of all elements; with one of matrices if two dimensions are named, or
 * none and x has two; else of vectors.
 * @param {Tensor} x @param {MatrixOrder} [order] as of `vectorNorm` or `matrixNorm` @param {number | readonly number[]} [dim] all when left out
 * @param {boolean} [keepdim] whether the dimensions stay, of size 1 @returns {Tensor}
 */
export function linalgNorm(x, order = undefined, dim = undefined, keepdim = false) {
  const { ndim } = tensorOf('norm', x);
  const dims = Array.isArray(dim) ? dim : dim === undefined ? x.shape.map((_, d) => d) : [dim];
  if (order !== undefined && dim === undefined && ndim > 2)
    throw new ShapeError('norm', `an order without dim needs a vector or a matrix, got ${show(x.shape)}`);
  const isMatrix = typeof order === 'string' || (order !== undefined && dims.length === 2);
  return within('norm', () =>
    isMatrix
      ? matrixNorm(x, order, /** @type {[number, number]} */ (dims), keepdim)
      : vectorNorm(x, /** @type {number | undefined} */ (order), dim, keepdim),
  );
}
