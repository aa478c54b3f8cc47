// What linear algebra is made of: elimination, identities, and gradients of results that are found without them.

import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, within } from '../core/errors.mjs';
import { denseLayout, isFloat } from '../core/layout.mjs';
import { isGradEnabled, noGrad, withGradient } from '../core/node.mjs';
import { constant } from '../core/tensor.mjs';
import { withoutAutocast } from './autocast.mjs';
import * as F from './functional.mjs';
import { argmax, gather } from './indexing.mjs';
import { toF32 } from './operands.mjs';
import { band } from './shape.mjs';

/** @import { Tensor } from './tensor.mjs' */

/**
 * Calls what errors name `op`, with products in f32 under `autocast` too, as PyTorch's: of halves, an inverse would be off by 1e-3 and overflow.
 * @template T @param {string} op @param {() => T} f @returns {T}
 */
export const inF32 = (op, f) => within(op, () => withoutAutocast(f));

/** Throws unless a has square matrices. @param {string} op @param {Tensor} a */
export function checkSquare(op, a) {
  const { shape, ndim } = tensorOf(op, a);
  if (ndim < 2 || shape[ndim - 1] !== shape[ndim - 2]) throw new ShapeError(op, `expected square matrices [..., n, n], got ${show(shape)}`);
}

/** Square matrices as f32. @param {string} op @param {Tensor} a @returns {Tensor} */
export function square(op, a) {
  checkSquare(op, a);
  const { dtype } = a;
  if (!isFloat(dtype)) throw new ArgumentError(op, `takes f32, f16 or bf16, got ${dtype}; convert with .to('f32')`);
  return toF32(a);
}
export const turned = (/** @type {Tensor} */ x) => F.transpose(x, -2, -1);
/** The identity of n rows. @param {number} n */
export const eye = (n) => F.to(band(n, n, 0, F.eq), 'f32');

/** Integers as a tensor [n]. @param {readonly number[]} list */
export const indices = (list) => constant(Int32Array.from(list), denseLayout([list.length], 'i32'));
/** The numbers of rows, [n, 1]. @param {number} n */
export const numbers = (n) => F.reshape(indices(Array.from({ length: n }, (_, i) => i)), [n, 1]);

/**
 * Matrices with rows k and `place` swapped.
 * @param {Tensor[]} list @param {Tensor} rows their numbers @param {number} k @param {Tensor} place [..., 1, 1] @returns {Tensor[]}
 */
export function swappedRows(list, rows, k, place) {
  const from = F.where(F.eq(rows, k), place, F.where(F.eq(rows, place), k, rows));
  return list.map((x) => gather(x, x.ndim - 2, F.expand(from, x.shape).contiguous()));
}

/**
 * Gauss–Jordan elimination with partial pivoting of [a | b], without gradients.
 * @param {Tensor} a [..., n, n] @param {Tensor} b [..., n, k]
 * @returns {{ x: Tensor, pivots: Tensor, swaps: Tensor }} a⁻¹ b; the pivots [..., n]; -1 to the power of swapped rows, [...]
 */
export function eliminated(a, b) {
  return noGrad(() => {
    const n = a.shape[a.ndim - 1];
    const rows = numbers(n);
    let w = F.cat([a.detach(), F.expand(b.detach(), [...a.shape.slice(0, -1), b.shape[b.ndim - 1]])], -1);
    let swaps = F.ones(a.shape.slice(0, -2));
    const pivots = [];
    for (let k = 0; k < n; k++) {
      const column = F.abs(F.slice(F.slice(w, -1, k, k + 1), -2, k, n));
      const place = F.add(
        F.reshape(argmax(F.reshape(column, [...column.shape.slice(0, -2), n - k]), -1), [...column.shape.slice(0, -2), 1, 1]),
        k,
      );
      [w] = swappedRows([w], rows, k, place);
      swaps = F.mul(swaps, F.where(F.eq(F.reshape(place, swaps.shape), k), 1, -1));
      const row = F.slice(w, -2, k, k + 1);
      const pivot = F.slice(row, -1, k, k + 1);
      pivots.push(F.reshape(pivot, swaps.shape));
      // Of a column without a pivot nothing is eliminated: the next ones have pivots of their own.
      const scaled = F.div(row, F.where(F.eq(pivot, 0), 1, pivot));
      w = F.where(F.eq(rows, k), scaled, F.sub(w, F.mul(F.slice(w, -1, k, k + 1), scaled)));
    }
    const own = F.stack(pivots, -1);
    const isSingular = F.unsqueeze(F.amin(F.abs(own), -1, true), -1);
    return { x: F.where(F.eq(isSingular, 0), NaN, F.slice(w, -1, n)), pivots: own, swaps };
  });
}

/** a⁻¹, without gradients. @param {Tensor} a f32 @returns {Tensor} */
export const inverted = (a) => eliminated(a, eye(a.shape[a.ndim - 1])).x;

/** The inverse of a where its value is known. @param {string} op for errors @param {Tensor} a @param {Tensor} value @returns {Tensor} */
export const inverseAs = (op, a, value) => withGradient(op, [a], value, (dy, y) => [F.neg(F.matmul(F.matmul(turned(y), dy), turned(y)))]);

/**
 * Factors of matrices that were found without gradients, with the gradient that is given.
 * @param {string} op for errors @param {Tensor} a what they were found of, f32 @param {Tensor[]} results f32 [..., rows, k]
 * @param {(dy: Tensor[], results: Tensor[], a: Tensor) => Tensor} adjoint of a, in functions of tensors @param {number[]} [reads] [0] if it reads a
 * @returns {Tensor[]}
 */
export function withAdjoint(op, a, results, adjoint, reads = []) {
  if (!a.requiresGrad || !isGradEnabled()) return results;
  let rows = 0;
  const parts = results.map(({ shape }) => [rows, (rows += shape[shape.length - 2])]);
  const split = (/** @type {Tensor} */ x) => parts.map(([from, to]) => F.slice(x, -2, from, to));
  // As one tensor, since a node has the gradient of one.
  const all = noGrad(() => F.cat(results, -2));
  const gradient = (/** @type {Tensor} */ dy, /** @type {Tensor} */ y, /** @type {Tensor[]} */ [own]) => [
    adjoint(split(dy), split(y), own),
  ];
  return split(withGradient(op, [a], all, gradient, reads));
}
/** The same tensor, with a gradient that is NaN where `isNone`. @param {string} op @param {Tensor} x @param {Tensor} isNone that broadcasts to x */
export const unlessNone = (op, x, isNone) =>
  withGradient(op, [x, isNone], x, (dy, _, [, none]) => [F.where(none, NaN, dy), undefined], [1]);

/**
 * a⁻¹ b, with one step of refinement. Its gradients read the inverse and the result but neither a nor b, as PyTorch's do not read b: that may be
 * changed in place before the backward pass.
 * @param {string} op for errors @param {Tensor} a f32 [..., n, n] @param {Tensor} b [..., n, k] @returns {Tensor} f32
 */
export function solved(op, a, b) {
  const right = toF32(b);
  const inverse = inverseAs(op, a, inverted(a));
  const value = noGrad(() => {
    const first = F.matmul(inverse, right);
    return F.add(first, F.matmul(inverse, F.sub(right, F.matmul(a, first))));
  });
  const [needsA, needsB] = [a, right].map(({ requiresGrad }) => requiresGrad);
  const [own, of] = [a.shape, right.shape];
  /** @type {Parameters<typeof withGradient>[3]} */
  const gradient = (dy, y, [, , known]) => {
    const db = F.matmul(turned(known), dy);
    return [needsA ? F.neg(F.sumTo(F.matmul(db, turned(y)), own)) : undefined, needsB ? F.sumTo(db, of) : undefined, undefined];
  };
  return withGradient(op, [a, right, inverse], value, gradient, [2]);
}
