// Linear equations, inverses, determinants and Cholesky's factor of small matrices. They are found by elimination, one column after another, each
// of which is a few operations over the whole batch: some hundred columns are quick, thousands are not.
//
// What elimination finds is refined by one step of Newton's, and has the gradient of its formula.

import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, within } from '../core/errors.mjs';
import { dimension, isInteger, positive, sizeOf } from '../core/layout.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { noGrad, withGradient } from '../core/node.mjs';
import * as F from './functional.mjs';
import { checkSquare, eliminated, eye, inF32, inverseAs, inverted, numbers, solved, square, turned } from './matrices.mjs';
import { toF32 } from './operands.mjs';
import { prod } from './reductions.mjs';
import { integer, integers, tril, triu } from './shape.mjs';
import { permute, reshape } from './views.mjs';

/** @import { Tensor } from './tensor.mjs' */

/**
 * Options of `solveTriangular`.
 * @typedef {object} TriangularOptions
 * @property {boolean} upper whether a is the upper triangle, and not the lower
 * @property {boolean} [left] whether a x = b is solved, and not x a = b; true when left out
 * @property {boolean} [unitriangular] whether a's diagonal counts as ones; false when left out
 */

/**
 * Solves a x = b by elimination with partial pivoting. Of a singular matrix the result is NaN.
 * @param {Tensor} a [..., n, n] @param {Tensor} b [..., n, k], or vectors, [n] or a's shape without its last dimension @returns {Tensor} of b's
 *   shape, broadcast
 */
export function solve(a, b) {
  const own = square('solve', a);
  const areVectors = tensorOf('solve', b).ndim === 1 || show(b.shape) === show(a.shape.slice(0, -1));
  if (b.ndim === 0 || b.shape[areVectors ? b.ndim - 1 : b.ndim - 2] !== own.shape[own.ndim - 1])
    throw new ShapeError('solve', `matrices ${show(a.shape)} and right sides ${show(b.shape)}`);
  return inF32('solve', () => {
    const right = areVectors ? F.unsqueeze(b, -1) : b;
    const x = own.size === 0 || b.size === 0 ? F.matmul(own, toF32(right)) : solved('solve', own, right);
    return F.to(areVectors ? F.squeeze(x, -1) : x, a.dtype);
  });
}

/** The inverse of matrices, by elimination with partial pivoting; NaN of a singular one. @param {Tensor} a [..., n, n] @returns {Tensor} of a's shape */
export function inverse(a) {
  const own = square('inverse', a);
  return inF32('inverse', () => {
    if (own.size === 0) return F.to(F.clone(own), a.dtype);
    const value = noGrad(() => {
      const first = inverted(own);
      return F.add(first, F.matmul(first, F.sub(eye(own.shape[own.ndim - 1]), F.matmul(own, first))));
    });
    return F.to(inverseAs('inverse', own, value), a.dtype);
  });
}

/** Numbers of matrices, [..., 1, 1]. @param {Tensor} x */
const each = (x) => F.unsqueeze(F.unsqueeze(x, -1), -1);

/** The determinant of matrices; of a singular one the gradient is 0, and its gradient NaN. @param {Tensor} a [..., n, n] @returns {Tensor} [...] */
export function det(a) {
  const own = square('det', a);
  return inF32('det', () => {
    if (own.size === 0) return F.to(F.add(F.sum(own, [-2, -1]), 1), a.dtype);
    const { x, pivots, swaps } = eliminated(own, eye(own.shape[own.ndim - 1]));
    const value = F.mul(F.reshape(prod(pivots, -1), swaps.shape), swaps);
    // A singular matrix has no inverse.
    const gradient = (/** @type {Tensor} */ dy, /** @type {Tensor} */ y, /** @type {Tensor[]} */ [, inverse]) => [
      F.where(each(F.eq(y, 0)), 0, F.mul(turned(inverse), each(F.mul(dy, y)))),
      undefined,
    ];
    return F.to(withGradient('det', [own, inverseAs('det', own, x)], value, gradient, [1]), a.dtype);
  });
}

/** The sign of the determinant of matrices, and the logarithm of its size. @param {Tensor} a [..., n, n] @returns {{ sign: Tensor, logabsdet: Tensor }} both [...] */
export function slogdet(a) {
  const own = square('slogdet', a);
  return inF32('slogdet', () => {
    if (own.size === 0) {
      const none = F.to(F.sum(own, [-2, -1]), a.dtype);
      return { sign: F.add(none, 1), logabsdet: none };
    }
    const { x, pivots, swaps } = eliminated(own, eye(own.shape[own.ndim - 1]));
    const sign = F.mul(F.reshape(prod(F.sign(pivots), -1), swaps.shape), swaps);
    const isSingular = F.eq(sign, 0);
    const size = F.sum(F.log(F.abs(F.where(F.eq(pivots, 0), 1, pivots))), -1);
    const value = F.where(isSingular, -Infinity, size);
    const logabsdet = withGradient(
      'slogdet',
      [own, inverseAs('slogdet', own, x)],
      value,
      (dy, _, [, inverse]) => [F.mul(turned(inverse), each(dy)), undefined],
      [1],
    );
    return { sign: F.to(sign, a.dtype), logabsdet: F.to(logabsdet, a.dtype) };
  });
}
/** The logarithm of the determinant of matrices, NaN where it is below 0. @param {Tensor} a [..., n, n] @returns {Tensor} [...] */
export const logdet = (a) =>
  within('logdet', () => {
    const { sign, logabsdet } = slogdet(a);
    return F.where(F.lt(sign, 0), NaN, logabsdet);
  });

/** The lower triangle with half the diagonal. @param {Tensor} x */
const lowerHalf = (x) => F.sub(tril(x), F.div(tril(triu(x)), 2));

/**
 * The lower triangle L with L Lᵀ = a (Cholesky), of symmetric positive definite matrices. Of others it has NaN; PyTorch throws. A matrix counts
 * as (a + aᵀ) / 2, and so its gradient is symmetric, as in PyTorch.
 * @param {Tensor} a [..., n, n] @returns {Tensor} of a's shape
 */
export function cholesky(a) {
  const given = square('cholesky', a);
  return inF32('cholesky', () => {
    if (given.size === 0) return F.to(F.clone(given), a.dtype);
    const own = F.div(F.add(given, turned(given)), 2);
    const n = own.shape[own.ndim - 1];
    const { value, back } = noGrad(() => {
      let w = own.detach();
      const rows = numbers(n);
      const columns = [];
      for (let k = 0; k < n; k++) {
        const column = F.slice(w, -1, k, k + 1);
        const scaled = F.div(column, F.sqrt(F.slice(column, -2, k, k + 1)));
        const l = F.where(F.lt(rows, k), 0, scaled);
        columns.push(l);
        w = F.sub(w, F.matmul(l, turned(l)));
      }
      const factor = F.cat(columns, -1);
      const back = inverted(factor);
      // The change of L with a: L times the lower half of L⁻¹ da L⁻ᵀ (Murray 2016), which mends rounding errors.
      const inner = F.matmul(F.matmul(back, F.sub(own, F.matmul(factor, turned(factor)))), turned(back));
      return { value: F.add(factor, F.matmul(factor, lowerHalf(inner))), back };
    });
    const gradient = (/** @type {Tensor} */ dy, /** @type {Tensor} */ y, /** @type {Tensor[]} */ [, known]) => {
      const inverse = inverseAs('cholesky', y, known);
      return [F.matmul(F.matmul(turned(inverse), lowerHalf(F.matmul(turned(y), dy))), inverse), undefined];
    };
    return F.to(withGradient('cholesky', [own, back], value, gradient, [1]), a.dtype);
  });
}

/**
 * Solves with a triangle of matrices, as `torch.linalg.solve_triangular`.
 * @param {Tensor} a [..., n, n]; the other triangle is not read @param {Tensor} b [..., n, k], or [..., k, n] with `left` false
 * @param {TriangularOptions} options @returns {Tensor} of b's shape, broadcast
 */
export function solveTriangular(a, b, options) {
  const op = 'solveTriangular';
  const { upper, left = true, unitriangular = false } = checkOptions(op, options, ['upper', 'left', 'unitriangular']);
  for (const [name, value] of Object.entries({ upper, left, unitriangular })) flag(op, name, value);
  const own = square(op, a);
  if (tensorOf(op, b).ndim < 2) throw new ShapeError(op, `expected right sides [..., n, k], got ${show(b.shape)}`);
  return inF32(op, () => {
    if (own.size === 0 || b.size === 0) return F.to(left ? F.matmul(own, toF32(b)) : F.matmul(toF32(b), own), a.dtype);
    const strict = upper ? triu(own, Number(unitriangular)) : tril(own, -Number(unitriangular));
    const triangle = unitriangular ? F.add(strict, eye(own.shape[own.ndim - 1])) : strict;
    const x = left ? solved(op, triangle, b) : turned(solved(op, turned(triangle), turned(b)));
    return F.to(x, a.dtype);
  });
}

/** Solves a x = b with Cholesky's factor of a. @param {Tensor} b [..., n, k] @param {Tensor} factor [..., n, n] @param {boolean} [upper] whether it is the upper triangle, a = UᵀU; false when left out @returns {Tensor} */
export function choleskySolve(b, factor, upper = false) {
  flag('choleskySolve', 'upper', upper);
  tensorOf('choleskySolve', b);
  const own = square('choleskySolve', factor);
  return inF32('choleskySolve', () => {
    if (own.size === 0 || b.size === 0) return F.matmul(own, toF32(b));
    const lower = upper ? turned(triu(own)) : tril(own);
    return solved('choleskySolve', turned(lower), solved('choleskySolve', lower, b));
  });
}
/** The inverse of a by Cholesky's factor of it. @param {Tensor} factor [..., n, n] @param {boolean} [upper] as of `choleskySolve` @returns {Tensor} */
export const choleskyInverse = (factor, upper = false) =>
  within('choleskyInverse', () => {
    const own = square('choleskyInverse', factor);
    return own.size === 0 ? F.clone(own) : choleskySolve(eye(own.shape[own.ndim - 1]), factor, upper);
  });

/** A matrix times itself n times; the inverse's power where n is below 0, which integers do not have. @param {Tensor} a [..., n, n] @param {number} n @returns {Tensor} of a's shape */
export function matrixPower(a, n) {
  const op = 'matrixPower';
  checkSquare(op, a);
  const own = isInteger(a.dtype) && n >= 0 ? a : square(op, a);
  if (Math.abs(integer(op, 'n', n)) > 2 ** 31) throw new ArgumentError(op, `n must be within ±2^31, got ${n}`);
  return within(op, () => {
    if (own.size === 0) return F.clone(a);
    let base = n < 0 ? inverse(own) : own;
    /** @type {Tensor | undefined} */
    let y;
    for (let rest = Math.abs(n); rest > 0; rest = Math.floor(rest / 2)) {
      if (rest % 2) y = y ? F.matmul(y, base) : base;
      if (rest > 1) base = F.matmul(base, base);
    }
    return F.to(y ?? F.clone(F.expand(eye(own.shape[own.ndim - 1]), own.shape)), a.dtype);
  });
}

/**
 * The inverse of a as a matrix whose rows are its first dimensions, as `torch.linalg.tensorinv`: `tensordot` with it, over as many, is an identity.
 * @param {Tensor} a of as many elements in the first dimensions as in the others @param {number} [ind] how many are the first; 2 when left out
 * @returns {Tensor} of the sizes of the others, then of the first
 */
export function tensorinv(a, ind = 2) {
  const op = 'tensorinv';
  const { shape } = tensorOf(op, a);
  const [rows, columns] = [shape.slice(0, positive(op, 'ind', ind)), shape.slice(ind)];
  const n = sizeOf(rows);
  if (sizeOf(columns) !== n)
    throw new ShapeError(op, `the first ${ind} dimensions of ${show(shape)} must have as many elements as the others`);
  return within(op, () => reshape(inverse(reshape(a, [n, n])), [...columns, ...rows]));
}

/**
 * The x with tensordot(a, x, x.ndim) = b, as `torch.linalg.tensorsolve`.
 * @param {Tensor} a of b's sizes, then of as many elements @param {Tensor} b
 * @param {readonly number[]} [dims] dimensions of a that are moved behind the others; none when left out
 * @returns {Tensor} of a's sizes behind those of b
 */
export function tensorsolve(a, b, dims = []) {
  const op = 'tensorsolve';
  const { shape, ndim } = tensorOf(op, a);
  tensorOf(op, b);
  const moved = integers(op, 'dims', dims).map((d) => dimension(op, d, ndim));
  if (new Set(moved).size !== moved.length) throw new ShapeError(op, `dims ${show(moved)} name a dimension twice`);
  const order = [...shape.map((_, d) => d).filter((d) => !moved.includes(d)), ...moved];
  const sizes = order.slice(b.ndim).map((d) => shape[d]);
  const n = sizeOf(sizes);
  if (a.size !== n * n || b.size !== n)
    throw new ShapeError(op, `${show(order.map((d) => shape[d]))} and ${show(b.shape)}: a must have b's sizes, then as many elements`);
  return within(op, () => reshape(solve(reshape(permute(a, order), [n, n]), reshape(b, [n])), sizes));
}
