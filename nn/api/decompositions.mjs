// QR, singular values, eigenvalues of symmetric matrices, and LU: of batches of matrices in f32, each step a few operations over the whole
// batch, so that the number of operations depends on the sizes alone. Meant for up to some hundred columns.
//
// The factors are found without gradients. Their gradients are the adjoints of what they change by with the matrix (Giles 2008, "Collected matrix
// derivative results"; of QR, Walter and Lehmann 2018), in functions of the factors, so that they have gradients themselves.

import { checkBytes, tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, UsageError, show, shown } from '../core/errors.mjs';
import { denseLayout, isFloat, sizeOf } from '../core/layout.mjs';
import { isGradEnabled, noGrad } from '../core/node.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import * as F from './functional.mjs';
import { argmax, gather, indexSelect } from './indexing.mjs';
import { logicalAnd } from './integers.mjs';
import { hypot } from './math.mjs';
import {
  eye,
  inF32,
  indices,
  inverseAs,
  inverted,
  numbers,
  solved,
  square,
  swappedRows,
  turned,
  unlessNone,
  withAdjoint,
} from './matrices.mjs';
import { toF32 } from './operands.mjs';
import { band, diagonal, flip, pad, select, tril, triu } from './shape.mjs';
import { argsort } from './sorting.mjs';

/** @import { Tensor } from './tensor.mjs' */

/**
 * Options of `svd`.
 * @typedef {object} SvdOptions
 * @property {boolean} [fullMatrices] whether u and vh are square; true when left out
 *
 * Options of `luSolve`.
 * @typedef {object} LuSolveOptions
 * @property {boolean} [left] solves a x = b; false: x a = b; true when left out
 * @property {boolean} [adjoint] takes aᵀ for a; false when left out
 */
/** @typedef {{ q: Tensor, r: Tensor }} QR */
/** @typedef {{ u: Tensor, s: Tensor, vh: Tensor }} SVD */
/** @typedef {{ eigenvalues: Tensor, eigenvectors: Tensor }} Eigen */
/** @typedef {{ p: Tensor, l: Tensor, u: Tensor }} LU */
/** @typedef {{ lu: Tensor, pivots: Tensor }} LUFactor */

/** Matrices as f32. @param {string} op @param {Tensor} a @returns {Tensor} */
export function matricesOf(op, a) {
  const { shape, ndim, dtype } = tensorOf(op, a);
  if (ndim < 2) throw new ShapeError(op, `expected matrices [..., m, n], got ${show(shape)}`);
  if (!isFloat(dtype)) throw new ArgumentError(op, `takes f32, f16 or bf16, got ${dtype}; convert with .to('f32')`);
  checkBytes(op, denseLayout(shape, 'f32'));
  return toF32(a);
}

/**
 * A factor of matrices without elements: it has none either, or is an identity.
 * @param {Tensor} a @param {number} rows @param {number} columns @returns {Tensor}
 */
function factorOfNone(a, rows, columns) {
  const shape = [...a.shape.slice(0, -2), rows, columns];
  return sizeOf(shape) === 0 ? F.reshape(a, shape) : F.clone(F.expand(eye(rows), shape));
}

/** The first rows or columns of matrices. @param {Tensor} x @param {number} rows @param {number} columns */
const corner = (x, rows, columns) => F.slice(F.slice(x, -2, 0, rows), -1, 0, columns);
/** @param {Tensor} x [..., n] @returns {Tensor} [..., 1, n] */
const across = (x) => F.unsqueeze(x, -2);
/** Matrices with the largest element 1 in size, so that no square overflows, and what they were divided by. @param {Tensor} a */
function scaled(a) {
  const most = F.amax(F.abs(a), [-2, -1], true);
  const scale = F.where(F.eq(most, 0), 1, most);
  return { w: F.div(a, scale), scale };
}

// ---- QR

/**
 * Householder's reflections of [..., m, n], as LAPACK's: a column that is 0 below its diagonal is left as it is.
 * @param {Tensor} a @param {number} width columns of q @returns {QR} q [..., m, width], r [..., m, n]
 */
function reflected(a, width) {
  return noGrad(() => {
    const [m, n] = a.shape.slice(-2);
    const rows = numbers(m);
    let { w, scale } = scaled(a.detach());
    /** @type {{ v: Tensor, weighted: Tensor }[]} */
    const list = [];
    const reflect = (/** @type {Tensor} */ x, /** @type {Tensor} */ v, /** @type {Tensor} */ weighted) =>
      F.sub(x, F.mul(weighted, F.sum(F.mul(v, x), -2, true)));
    for (let k = 0; k < Math.min(m - 1, n); k++) {
      const column = F.slice(w, -1, k, k + 1);
      const below = F.where(F.gt(rows, k), column, 0);
      const first = F.slice(column, -2, k, k + 1);
      const rest = F.sum(F.square(below), -2, true);
      const size = F.sqrt(F.add(F.square(first), rest));
      const v = F.where(F.eq(rows, k), F.add(first, F.where(F.lt(first, 0), F.neg(size), size)), below);
      // 2 / vᵀv
      const factor = F.where(F.eq(rest, 0), 0, F.reciprocal(F.mul(size, F.add(size, F.abs(first)))));
      const weighted = F.mul(v, factor);
      w = reflect(w, v, weighted);
      list.push({ v, weighted });
    }
    let q = F.expand(F.to(band(m, width, 0, F.eq), 'f32'), [...a.shape.slice(0, -1), width]);
    for (const { v, weighted } of list.reverse()) q = reflect(q, v, weighted);
    return { q, r: F.mul(triu(w), scale) };
  });
}

/** The inverse of factors: of singular ones 0, so that no gradient passes, but NaN where gradients have gradients. @param {string} op @param {Tensor} x */
function inverseOf(op, x) {
  const found = inverted(x);
  return x.requiresGrad ? inverseAs(op, x, found) : F.where(F.ne(found, found), 0, found);
}

/** The gradient of square or tall matrices. @param {Tensor} dq @param {Tensor} dr @param {Tensor} q [..., m, n] @param {Tensor} r [..., n, n] */
function throughQR(dq, dr, q, r) {
  const c = F.sub(F.matmul(r, turned(dr)), F.matmul(turned(dq), q));
  const lower = tril(c, -1);
  const symmetric = F.add(tril(c), turned(lower));
  return F.matmul(F.add(dq, F.matmul(q, symmetric)), turned(inverseOf('qr', r)));
}

/**
 * The factors of a = q r with qᵀ q = 1 and an upper triangle r, by Householder's reflections; signs are LAPACK's. Some 16 operations a column.
 * The gradient asks for linearly independent first columns: else it is 0.
 * @param {Tensor} a [..., m, n] @param {'reduced' | 'complete' | 'r'} [mode] whether q has min(m, n) columns ('reduced', when left out) or m;
 *   with 'r' q is empty, [0] @returns {QR}
 * @throws {UsageError} if a gradient is asked for with 'complete' and more rows than columns, or with 'r': then it is not defined
 */
export function qr(a, mode = 'reduced') {
  const op = 'qr';
  const own = matricesOf(op, a);
  if (mode !== 'reduced' && mode !== 'complete' && mode !== 'r')
    throw new ArgumentError(op, `mode must be 'reduced', 'complete' or 'r', got ${shown(mode)}`);
  const [m, n] = own.shape.slice(-2);
  const k = Math.min(m, n);
  if (own.size > 0 && own.requiresGrad && isGradEnabled() && (mode === 'r' || (mode === 'complete' && m > n)))
    throw new UsageError(op, `the mode '${mode}' of ${show(a.shape)} has no gradient: take 'reduced', or detach()`);
  if (mode === 'complete') checkBytes(op, denseLayout([...own.shape.slice(0, -1), m], 'f32'));
  return inF32(op, () => {
    if (own.size === 0) {
      const columns = mode === 'complete' ? m : k;
      const q = mode === 'r' ? F.zeros([0]) : factorOfNone(own, m, columns);
      return { q: F.to(q, a.dtype), r: F.to(factorOfNone(own, columns, n), a.dtype) };
    }
    const found = reflected(own, mode === 'complete' ? m : mode === 'r' ? 1 : k);
    const to = (/** @type {Tensor} */ x) => F.to(x, a.dtype);
    if (mode === 'complete' && m > n) return { q: to(found.q), r: to(found.r) };
    const r0 = F.slice(found.r, -2, 0, k);
    if (mode === 'r') return { q: to(F.zeros([0])), r: to(r0) };
    const [q, turnedR] = withAdjoint(
      op,
      own,
      [found.q, noGrad(() => turned(r0))],
      ([dq, dr], [q1, r1], x) => {
        const [first, gradient] = [turned(F.slice(r1, -2, 0, k)), turned(F.slice(dr, -2, 0, k))];
        if (m >= n) return throughQR(dq, gradient, q1, first);
        // The other columns are q times theirs.
        const others = F.slice(dr, -2, k);
        const ofFirst = throughQR(F.add(dq, F.matmul(F.slice(x, -1, k), others)), gradient, q1, first);
        return F.cat([ofFirst, F.matmul(q1, turned(others))], -1);
      },
      [0],
    );
    const r = turned(turnedR);
    return { q: to(q), r: to(r) };
  });
}

// ---- singular values

/**
 * Sweeps of n columns: of f32 after these no rotation is more than rounding. Random matrices need some 5 + log2(n) / 2; those whose rows have sizes
 * of several orders, and those of many equal eigenvalues, need these.
 * @param {number} n
 */
const sweeps = (n) => (n === 2 ? 1 : Math.max(6, 2 + 2 * Math.ceil(Math.log2(n))));

/**
 * One-sided Jacobi (Hestenes 1958): rotates pairs of rows until all are orthogonal. Each step has every row in one pair, as rounds of a tournament
 * (Brent and Luk 1985).
 * @param {Tensor} rows [..., n, length]: of each row the first m elements count @param {number} m @returns {Tensor} rotated
 */
function orthogonalRows(rows, m) {
  const [n, length] = rows.shape.slice(-2);
  if (n === 1) return rows;
  const lead = rows.shape.slice(0, -2);
  const h = Math.ceil(n / 2);
  let w = F.reshape(n % 2 ? pad(rows, [0, 0, 0, 1]) : rows, [...lead, h, 2, length]);
  // Seats: 2 i and 2 i + 1 are a pair. The first stays, the others go on by one.
  const circle = [...Array.from({ length: h - 1 }, (_, i) => 2 * i + 2), ...Array.from({ length: h }, (_, i) => 2 * (h - 1 - i) + 1)];
  const order = Array.from({ length: 2 * h }, (_, seat) => seat);
  for (const [i, seat] of circle.entries()) order[circle[(i + 1) % circle.length]] = seat;
  const next = indices(order);
  const sign = F.reshape(indices([-1, 1]), [2, 1]);
  for (let step = 0; step < sweeps(n) * (2 * h - 1); step++) {
    const counted = F.slice(w, -1, 0, m);
    const sizes = F.sum(F.square(counted), -1);
    const doubled = F.mul(F.sum(F.mul(select(counted, -2, 0), select(counted, -2, 1)), -1), 2);
    const difference = F.sub(select(sizes, -1, 1), select(sizes, -1, 0));
    const whole = F.add(F.abs(difference), hypot(difference, doubled));
    const tangent = F.where(F.eq(whole, 0), 0, F.div(F.where(F.lt(difference, 0), F.neg(doubled), doubled), whole));
    const cosine = F.rsqrt(F.add(F.square(tangent), 1));
    const sine = F.mul(cosine, tangent);
    // Rutishauser's form: small rotations have small errors.
    const [s, t] = [sine, F.div(sine, F.add(cosine, 1))].map((x) => F.mul(F.unsqueeze(F.unsqueeze(x, -1), -1), sign));
    w = F.add(w, F.mul(s, F.sub(flip(w, [-2]), F.mul(t, w))));
    w = F.reshape(indexSelect(F.reshape(w, [...lead, 2 * h, length]), lead.length, next), w.shape);
  }
  return F.slice(F.reshape(w, [...lead, 2 * h, length]), -2, 0, n);
}

/** Rows in the order of `keys`. @param {Tensor} x [..., n, length] @param {Tensor} order [..., n] */
const inOrder = (x, order) => gather(x, x.ndim - 2, F.expand(F.unsqueeze(order, -1), x.shape).contiguous());

/**
 * Singular values of tall matrices, descending, with u s and v, without gradients.
 * @param {Tensor} a [..., m, n], m ≥ n
 * @returns {{ s: Tensor, us: Tensor, v: Tensor, scale: Tensor }} of a / scale: [..., n], [..., n, m] and [..., n, n], by rows
 */
function rotated(a) {
  const [m, n] = a.shape.slice(-2);
  const { w, scale } = scaled(a.detach());
  const rows = F.cat([turned(w), F.expand(eye(n), [...a.shape.slice(0, -2), n, n])], -1);
  const found = orthogonalRows(rows, m);
  const s = F.sqrt(F.sum(F.square(F.slice(found, -1, 0, m)), -1));
  const order = argsort(s, -1, true);
  const sorted = inOrder(found, order);
  return { s: gather(s, s.ndim - 1, order), us: F.slice(sorted, -1, 0, m), v: F.slice(sorted, -1, m), scale };
}

/** 1 / x, and 0 of what is 0 or has no reciprocal in f32: ∞ times a gradient of 0 would be NaN. @param {Tensor} x */
const reciprocalOf = (x) => {
  const isNone = F.le(F.abs(x), 2 ** -126);
  return F.where(isNone, 0, F.reciprocal(F.where(isNone, 1, x)));
};

/** Whether numbers of two rows of a matrix, but for those of its diagonal, are equal, [..., 1, 1]. @param {Tensor} difference [..., n, n] */
const hasEqual = (difference) =>
  F.gt(F.amax(F.where(F.gt(eye(difference.shape[difference.ndim - 1]), 0), 0, F.to(F.eq(difference, 0), 'f32')), [-2, -1], true), 0);

/** @param {Tensor} a f32 [..., m, n], m ≥ n @param {number} width columns of u @returns {SVD} without gradients; `vh` is v */
function tallSVD(a, width) {
  return noGrad(() => {
    const n = a.shape[a.ndim - 1];
    const { s, us, v, scale } = rotated(a);
    // Where a singular value is only rounding, its column of u is one that completes the others: QR does that, and keeps orthogonal ones.
    const most = F.slice(s, -1, 0, 1);
    const units = F.mul(us, F.unsqueeze(F.where(F.le(s, F.mul(most, 1e-7)), 0, reciprocalOf(s)), -1));
    const { q, r } = reflected(turned(units), width);
    const signs = F.where(F.lt(diagonal(r, 0, -2, -1), 0), -1, 1);
    const all = width > n ? F.cat([signs, F.ones([...signs.shape.slice(0, -1), width - n])], -1) : signs;
    return { u: F.mul(q, across(all)), s: F.mul(s, F.squeeze(scale, -1)), vh: turned(v) };
  });
}

/**
 * The singular values and vectors of matrices: a = u diag(s) vh, s descending. By one-sided Jacobi: some 20 operations a step, and 2 + 2 log2(n)
 * times n of steps, n the smaller size, after which nothing tests whether they were enough. Errors are some 1e-6 of the largest singular value. Signs of
 * vectors are not LAPACK's. Vectors of equal singular values have no gradient of their own (PyTorch's is NaN).
 * @param {Tensor} a [..., m, n] @param {SvdOptions} [options]
 * @returns {SVD} with k = min(m, n): u [..., m, m] or [..., m, k], s [..., k], vh [..., n, n] or [..., k, n]
 * @throws {UsageError} if a gradient is asked for with `fullMatrices` and m ≠ n
 */
export function svd(a, options = {}) {
  const op = 'svd';
  const { fullMatrices = true } = checkOptions(op, options, ['fullMatrices']);
  flag(op, 'fullMatrices', fullMatrices);
  const own = matricesOf(op, a);
  const [m, n] = own.shape.slice(-2);
  const k = Math.min(m, n);
  if (fullMatrices && m !== n && own.size > 0 && own.requiresGrad && isGradEnabled())
    throw new UsageError(op, `square factors of ${show(a.shape)} have no gradient: take { fullMatrices: false }, or detach()`);
  if (fullMatrices) checkBytes(op, denseLayout([...own.shape.slice(0, -2), Math.max(m, n), Math.max(m, n)], 'f32'));
  return inF32(op, () => {
    if (own.size === 0) {
      const [u, vh] = fullMatrices
        ? [factorOfNone(own, m, m), factorOfNone(own, n, n)]
        : [factorOfNone(own, m, k), factorOfNone(own, k, n)];
      return { u: F.to(u, a.dtype), s: F.to(F.reshape(own, [...own.shape.slice(0, -2), k]), a.dtype), vh: F.to(vh, a.dtype) };
    }
    const isTall = m >= n;
    const found = tallSVD(isTall ? own : turned(own), fullMatrices ? Math.max(m, n) : k);
    const [u0, v0] = isTall ? [found.u, found.vh] : [found.vh, found.u];
    const [u, row, v] = withAdjoint(op, own, [u0, noGrad(() => across(found.s)), v0], ([du, ds, dv], [u1, s1, v1]) => {
      const column = turned(s1);
      const squares = F.mul(F.sub(s1, column), F.add(s1, column));
      const isNone = m === n ? hasEqual(squares) : F.add(hasEqual(squares), F.eq(F.amin(s1, -1, true), 0));
      const [left, right] = [u1, v1].map((x) => unlessNone(op, x, isNone));
      // 1 / (s_j² - s_i²)
      const gaps = reciprocalOf(squares);
      const part = (/** @type {Tensor} */ basis, /** @type {Tensor} */ d) => {
        const p = F.mul(gaps, F.matmul(turned(basis), d));
        return F.add(p, turned(p));
      };
      const outside = (/** @type {Tensor} */ x, /** @type {Tensor} */ basis) =>
        F.mul(F.sub(x, F.matmul(basis, F.matmul(turned(basis), x))), reciprocalOf(s1));
      const inner = F.add(F.add(F.mul(part(left, du), s1), F.mul(column, part(right, dv))), F.mul(eye(k), ds));
      const both = F.matmul(F.add(F.matmul(left, inner), outside(du, left)), turned(right));
      return F.add(both, F.matmul(left, turned(outside(dv, right))));
    });
    const s = F.squeeze(row, -2);
    const to = (/** @type {Tensor} */ x) => F.to(x, a.dtype);
    return { u: to(u), s: to(s), vh: to(turned(v)) };
  });
}

/** The singular values of matrices, descending: those of `svd`. @param {Tensor} a [..., m, n] @returns {Tensor} [..., min(m, n)] */
export function svdvals(a) {
  const own = matricesOf('svdvals', a);
  return inF32('svdvals', () => {
    if (own.size === 0 || (own.requiresGrad && isGradEnabled())) return F.to(svd(own, { fullMatrices: false }).s, a.dtype);
    const [m, n] = own.shape.slice(-2);
    const { s, scale } = noGrad(() => rotated(m >= n ? own : turned(own)));
    return F.to(F.mul(s, F.squeeze(scale, -1)), a.dtype);
  });
}

// ---- eigenvalues

/**
 * The eigenvalues of symmetric matrices, ascending, and their vectors as columns, by one-sided Jacobi of the matrix plus a multiple of the
 * identity that makes it positive. Errors are some 1e-6 of the largest eigenvalue's size. Signs of vectors are not LAPACK's. The gradient is
 * symmetric; vectors of equal eigenvalues have none of their own (PyTorch's is NaN). As of `svd`, the number of steps is fixed.
 * @param {Tensor} a [..., n, n] @param {'L' | 'U'} [uplo] the triangle that is read, 'L' (the lower) when left out @returns {Eigen} [..., n] and [..., n, n]
 */
export function eigh(a, uplo = 'L') {
  return eigen('eigh', a, uplo);
}
/**
 * The eigenvalues of symmetric matrices, ascending: those of `eigh`.
 * @param {Tensor} a [..., n, n] @param {'L' | 'U'} [uplo] as of `eigh` @returns {Tensor} [..., n]
 */
export const eigvalsh = (a, uplo = 'L') => eigen('eigvalsh', a, uplo).eigenvalues;

/** @param {string} op @param {Tensor} a @param {'L' | 'U'} uplo @returns {Eigen} */
function eigen(op, a, uplo) {
  const own = square(op, a);
  if (uplo !== 'L' && uplo !== 'U') throw new ArgumentError(op, `uplo must be 'L' or 'U', got ${shown(uplo)}`);
  return inF32(op, () => {
    const n = own.shape[own.ndim - 1];
    if (own.size === 0)
      return { eigenvalues: F.to(F.reshape(own, own.shape.slice(0, -1)), a.dtype), eigenvectors: F.to(F.clone(own), a.dtype) };
    const { l0, v0 } = noGrad(() => {
      const given = own.detach();
      const whole = uplo === 'L' ? F.add(tril(given), turned(tril(given, -1))) : F.add(triu(given), turned(triu(given, 1)));
      const { w, scale } = scaled(whole);
      // No eigenvalue is larger in size than Frobenius's norm.
      const shift = F.sqrt(F.sum(F.square(w), [-2, -1], true));
      const { v } = rotated(F.add(w, F.mul(eye(n), shift)));
      // Rayleigh's quotients, without the shift: of rows of v, which descend.
      const values = F.div(F.sum(F.mul(v, F.matmul(v, w)), -1), F.sum(F.square(v), -1));
      const order = argsort(values, -1);
      return { l0: F.mul(gather(values, values.ndim - 1, order), F.squeeze(scale, -1)), v0: turned(inOrder(v, order)) };
    });
    const [row, eigenvectors] = withAdjoint(op, own, [noGrad(() => across(l0)), v0], ([dl, dv], [l1, v1]) => {
      const difference = F.sub(l1, turned(l1));
      const v = unlessNone(op, v1, hasEqual(difference));
      const inner = F.add(F.mul(reciprocalOf(difference), F.matmul(turned(v), dv)), F.mul(eye(n), dl));
      const g = F.matmul(F.matmul(v, inner), turned(v));
      return F.div(F.add(g, turned(g)), 2);
    });
    const eigenvalues = F.squeeze(row, -2);
    return { eigenvalues: F.to(eigenvalues, a.dtype), eigenvectors: F.to(eigenvectors, a.dtype) };
  });
}

// ---- LU

/**
 * Elimination with partial pivoting, without gradients.
 * @param {Tensor} a f32 [..., m, n]
 * @returns {{ w: Tensor, order: Tensor, pivots: Tensor }} both factors in one, rows of a by their place [..., m, 1], and with which row each was
 *   swapped [..., min(m, n)]
 */
function factored(a) {
  return noGrad(() => {
    const [m, n] = a.shape.slice(-2);
    const lead = a.shape.slice(0, -2);
    const [rows, columns] = [numbers(m), F.reshape(numbers(n), [1, n])];
    let w = a.detach();
    let order = F.expand(rows, [...lead, m, 1]).contiguous();
    const pivots = [];
    for (let k = 0; k < Math.min(m, n); k++) {
      const sizes = F.reshape(F.abs(F.slice(F.slice(w, -1, k, k + 1), -2, k, m)), [...lead, m - k]);
      const place = F.reshape(F.add(argmax(sizes, -1), k), [...lead, 1, 1]);
      pivots.push(F.reshape(place, lead));
      [w, order] = swappedRows([w, order], rows, k, place);
      const pivot = F.slice(F.slice(w, -2, k, k + 1), -1, k, k + 1);
      const factors = F.where(F.gt(rows, k), F.div(F.slice(w, -1, k, k + 1), F.where(F.eq(pivot, 0), 1, pivot)), 0);
      const rest = F.sub(w, F.mul(factors, F.where(F.gt(columns, k), F.slice(w, -2, k, k + 1), 0)));
      w = F.where(logicalAnd(F.gt(rows, k), F.eq(columns, k)), factors, rest);
    }
    return { w, order, pivots: F.stack(pivots, -1) };
  });
}

/**
 * The factors of a = p l u: p of rows swapped so that each pivot is the largest of its column, l with ones on its diagonal, u an upper triangle.
 * Of singular matrices u has a 0 on its diagonal, and no gradient.
 * @param {Tensor} a [..., m, n] @returns {LU} with k = min(m, n): p [..., m, m], l [..., m, k], u [..., k, n]
 */
export function lu(a) {
  const own = matricesOf('lu', a);
  return inF32('lu', () => {
    const { p, l, u } = factorsOf(own);
    return { p: F.to(p, a.dtype), l: F.to(l, a.dtype), u: F.to(u, a.dtype) };
  });
}
/** @param {Tensor} own f32 [..., m, n] @returns {LU & { pivots: Tensor }} */
function factorsOf(own) {
  const [m, n] = own.shape.slice(-2);
  const k = Math.min(m, n);
  if (own.size === 0) {
    const pivots = F.zeros([...own.shape.slice(0, -2), k], { dtype: 'i32' });
    return { p: factorOfNone(own, m, m), l: factorOfNone(own, m, k), u: factorOfNone(own, k, n), pivots };
  }
  const { w, order, pivots } = factored(own);
  const { l0, u0, p } = noGrad(() => ({
    l0: F.add(tril(F.slice(w, -1, 0, k), -1), F.to(band(m, k, 0, F.eq), 'f32')),
    u0: triu(F.slice(w, -2, 0, k)),
    p: F.to(F.eq(numbers(m), turned(order)), 'f32'),
  }));
  const [l, turnedU] = withAdjoint('lu', own, [l0, noGrad(() => turned(u0))], ([dl, duT], [l1, u1T]) => {
    const [u1, du] = [turned(u1T), turned(duT)];
    const [lower, upper] = [corner(l1, k, k), corner(u1, k, k)];
    // L⁻ᵀ and U⁻ᵀ
    const [left, right] = [turned(inverseOf('lu', lower)), turned(inverseOf('lu', upper))];
    let [ofLower, ofUpper] = [corner(dl, k, k), corner(du, k, k)];
    /** @type {Tensor | undefined} */
    let rest;
    if (m > k) {
      rest = F.matmul(F.slice(dl, -2, k), right);
      ofUpper = F.sub(ofUpper, F.matmul(turned(F.slice(l1, -2, k)), rest));
    } else if (n > k) {
      rest = F.matmul(left, F.slice(du, -1, k));
      ofLower = F.sub(ofLower, F.matmul(rest, turned(F.slice(u1, -1, k))));
    }
    const inner = F.add(tril(F.matmul(turned(lower), ofLower), -1), triu(F.matmul(ofUpper, turned(upper))));
    const square = F.matmul(F.matmul(left, inner), right);
    return F.matmul(p, rest ? F.cat([square, rest], m > k ? -2 : -1) : square);
  });
  const u = turned(turnedU);
  return { p, l, u, pivots };
}
/**
 * The factors of `lu` as LAPACK has them: one matrix with u and, below the diagonal, l; and pivots: row i was swapped with row pivots[i] - 1.
 * @param {Tensor} a [..., m, n] @returns {LUFactor} lu [..., m, n], pivots i32 [..., min(m, n)], from 1 on
 */
export function luFactor(a) {
  const own = matricesOf('luFactor', a);
  return inF32('luFactor', () => {
    const [m, n] = own.shape.slice(-2);
    const { l, u, pivots } = factorsOf(own);
    if (own.size === 0) return { lu: F.to(F.clone(own), a.dtype), pivots };
    const k = Math.min(m, n);
    const [left, right] = [pad(tril(l, -1), [0, n - k]), pad(u, [0, 0, 0, m - k])];
    return { lu: F.to(F.add(left, right), a.dtype), pivots: F.add(pivots, 1) };
  });
}
/**
 * Solves a x = b (with `left` false x a = b) with the factors of a by `luFactor`. Of a singular matrix the result is NaN.
 * @param {Tensor} lu [..., n, n] @param {Tensor} pivots i32 [..., n] @param {Tensor} b [..., n, k], or [..., k, n] with `left` false
 * @param {LuSolveOptions} [options]
 * @returns {Tensor} of b's shape, broadcast
 */
export function luSolve(lu, pivots, b, options = {}) {
  const op = 'luSolve';
  const { left = true, adjoint = false } = checkOptions(op, options, ['left', 'adjoint']);
  flag(op, 'left', left);
  flag(op, 'adjoint', adjoint);
  const own = square(op, lu);
  const n = own.shape[own.ndim - 1];
  if (tensorOf(op, pivots).dtype !== 'i32' || show(pivots.shape) !== show(own.shape.slice(0, -1)))
    throw new ArgumentError(op, `pivots must be i32 ${show(own.shape.slice(0, -1))}, got ${pivots.dtype} ${show(pivots.shape)}`);
  if (tensorOf(op, b).ndim < 2 || !isFloat(b.dtype) || b.shape[b.ndim - (left ? 2 : 1)] !== n)
    throw new ShapeError(op, `matrices ${show(lu.shape)} and right sides ${b.dtype} ${show(b.shape)}`);
  return inF32(op, () => {
    if (own.size === 0 || b.size === 0) return F.to(left ? F.matmul(own, toF32(b)) : F.matmul(toF32(b), own), b.dtype);
    const rows = numbers(n);
    let order = F.expand(rows, [...own.shape.slice(0, -1), 1]).contiguous();
    for (let k = 0; k < n; k++) {
      const place = F.reshape(F.sub(F.slice(pivots, -1, k, k + 1), 1), [...own.shape.slice(0, -2), 1, 1]);
      [order] = swappedRows([order], rows, k, place);
    }
    const p = F.to(F.eq(rows, turned(order)), 'f32');
    const [lower, upper] = [F.add(tril(own, -1), eye(n)), triu(own)];
    const right = left ? toF32(b) : turned(toF32(b));
    // x a = b is aᵀ xᵀ = bᵀ.
    const x =
      adjoint === left
        ? F.matmul(p, solved(op, turned(lower), solved(op, turned(upper), right)))
        : solved(op, upper, solved(op, lower, F.matmul(turned(p), right)));
    return F.to(left ? x : turned(x), b.dtype);
  });
}
