// What linear algebra is made of: elimination, identities, and gradients of results that are found without them.

import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, within } from '../core/errors.mjs';
import { denseLayout, isFloat } from '../core/layout.mjs';
import { isGradEnabled, noGrad, once } from '../core/node.mjs';
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
  if (ndim < 2 || shape[ndim - 1] !== shape[ndim - 2] || shape[ndim - 1] === 0)
    throw new ShapeError(op, `expected square matrices [..., n, n], got ${show(shape)}`);
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

/**
 * A result that was found without gradients, with the gradient of what it changes by. `change` is linear in da and is only called where a gradient
 * is asked for. Where it is no number (of singular matrices), the result has no gradient.
 * @param {string} op for errors @param {Tensor} a what it was found of, f32 @param {Tensor[]} results f32 @param {(da: Tensor) => Tensor[]} change of each result, by da of a's shape
 * @returns {Tensor[]}
 */
export function withChange(op, a, results, change) {
  if (!a.requiresGrad || !isGradEnabled()) return results;
  const changes = change(F.sub(once(op, a), a.detach()));
  return results.map((y, i) => F.add(y, F.where(F.ne(changes[i], changes[i]), 0, changes[i])));
}

/** @param {string} op for errors @param {Tensor} a f32 [..., n, n] @param {Tensor} b [..., n, k] @returns {Tensor} f32: a⁻¹ b, with one step of refinement */
export function solved(op, a, b) {
  const right = once(op, toF32(b));
  const inverse = inverted(a);
  const first = F.matmul(inverse, right.detach());
  return F.add(first, F.matmul(inverse, F.sub(right, F.matmul(once(op, a), first))));
}
