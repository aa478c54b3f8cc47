// Rows of integers: their order, running results and what is combined by index, for bytes and 64-bit integers too. Kernels of sorts and scans take
// words of 32 bits. Bytes are computed as i32. 64-bit integers are sorted by their low words and then by their high ones, and scanned by
// doubling: log₂ n elementwise steps, each of which joins what is twice as far apart.

import { apply, view } from '../core/engine.mjs';
import { isByte, isFloat, layoutOf } from '../core/layout.mjs';
import * as indexing from '../ops/indexing.mjs';
import * as movement from '../ops/movement.mjs';
import * as scans from '../ops/scan.mjs';
import * as sorts from '../ops/sorting.mjs';
import * as F from './functional.mjs';
import { gather, scatter } from './indexing.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** What joins two elements. @typedef {(later: Tensor, earlier: Tensor) => Tensor} Join */

/** x in a type that kernels of rows take, if there is one: floats as f32, bytes as i32. @param {Tensor} x @returns {Tensor} */
export const toWords = (x) => (isFloat(x.dtype) ? F.to(x, 'f32') : isByte(x.dtype) ? F.to(x, 'i32') : x);

/** The words of 64-bit integers, as a view: the low one or the high one. @param {Tensor} x @param {0 | 1} which @returns {Tensor} u32 */
function wordOf(x, which) {
  const { shape, strides, offset } = x.layout;
  const layout = layoutOf(
    [...shape],
    strides.map((stride) => 2 * stride),
    2 * offset + which,
    'u32',
  );
  return view(movement.reshape, x, layout, { shape: layout.shape });
}

/**
 * The indices that sort rows, stable in both directions.
 * @param {Tensor} rows words or i64 @param {boolean} descending @param {number} [keep] return only the first `keep`
 * @returns {Tensor} i32
 */
export function orderOf(rows, descending, keep) {
  const columns = rows.shape.at(-1) ?? 1;
  if (rows.dtype !== 'i64') {
    return apply(indexing.argsort, [rows], keep !== undefined && keep < columns ? { descending, keep } : { descending });
  }
  const dense = rows.contiguous();
  const first = apply(indexing.argsort, [wordOf(dense, 0).contiguous()], { descending });
  const high = gather(F.to(wordOf(dense, 1).contiguous(), 'i32'), -1, first);
  const order = gather(first, -1, apply(indexing.argsort, [high], { descending }));
  return keep !== undefined && keep < columns ? F.slice(order, -1, 0, keep).contiguous() : order;
}

/** Elements of rows by index, none of them twice. @param {Tensor} rows @param {Tensor} index @returns {Tensor} */
export const picked = (rows, index) => (rows.dtype === 'i64' ? gather(rows, -1, index) : apply(sorts.pick, [rows, index]));

/** Numbers of the runs of equal elements in sorted rows: equal where the elements are, and in their order. @param {Tensor} sorted @returns {Tensor} i32 */
export function runsOf(sorted) {
  const columns = sorted.shape.at(-1) ?? 1;
  const changes = F.to(F.ne(F.slice(sorted, -1, 1), F.slice(sorted, -1, 0, columns - 1)), 'i32');
  return apply(scans.cumsum, [F.cat([F.zeros(sorted.shape.with(-1, 1), { dtype: 'i32' }), changes], -1)], {});
}

/**
 * Numbers of 32 bits that are in the order of 64-bit integers, and equal where they are.
 * @param {Tensor} a i64 [..., m] @param {Tensor} b i64 [..., n] @returns {[Tensor, Tensor]} i32
 */
export function ranksOf(a, b) {
  const both = F.cat([a, b], -1);
  const order = orderOf(both, false);
  const ranks = scatter(F.zeros(both.shape, { dtype: 'i32' }), -1, order, runsOf(gather(both, -1, order)));
  const columns = a.shape.at(-1) ?? 1;
  return [F.slice(ranks, -1, 0, columns).contiguous(), F.slice(ranks, -1, columns).contiguous()];
}

/**
 * Running results of rows: of each element and those before it, or of those of the same segment.
 * @param {Tensor} rows @param {Join} join associative @param {Tensor} [segments] numbers that do not decrease along a row
 * @returns {Tensor}
 */
export function doubled(rows, join, segments) {
  const columns = rows.shape.at(-1) ?? 1;
  let y = rows;
  for (let step = 1; step < columns; step *= 2) {
    const [later, earlier] = [F.slice(y, -1, step), F.slice(y, -1, 0, columns - step)];
    const joined = join(later, earlier);
    const own = segments ? F.where(F.eq(F.slice(segments, -1, step), F.slice(segments, -1, 0, columns - step)), joined, later) : joined;
    y = F.cat([F.slice(y, -1, 0, step), own], -1);
  }
  return y;
}

/** The columns of the largest (or least) 64-bit integers so far, of equal ones the last. @param {Tensor} rows i64 @param {boolean} largest @returns {Tensor} i32 */
export function extremeSoFar(rows, largest) {
  const columns = rows.shape.at(-1) ?? 1;
  let [values, places] = [rows, F.expand(apply(sorts.iota, [], { shape: [columns] }), rows.shape)];
  for (let step = 1; step < columns; step *= 2) {
    const parts = (/** @type {Tensor} */ x) => [F.slice(x, -1, 0, step), F.slice(x, -1, step), F.slice(x, -1, 0, columns - step)];
    const [[first, later, earlier], [firstAt, laterAt, earlierAt]] = [parts(values), parts(places)];
    const stays = largest ? F.ge(later, earlier) : F.le(later, earlier);
    values = F.cat([first, F.where(stays, later, earlier)], -1);
    places = F.cat([firstAt, F.where(stays, laterAt, earlierAt)], -1);
  }
  return places;
}

/** @type {Record<'sum' | 'prod' | 'amax' | 'amin', Join>} */
const JOINS = { sum: F.add, prod: F.mul, amax: F.maximum, amin: F.minimum };

/**
 * Rows of integers with sources combined by index, as `scatterReduce`.
 * @param {Tensor} rows [..., size] @param {Tensor} index i32 [..., n], from the end where it is below 0 @param {Tensor} source of the index's shape
 * @param {'sum' | 'prod' | 'mean' | 'amax' | 'amin'} reduce @param {boolean} includeSelf
 * @returns {Tensor}
 */
export function combined(rows, index, source, reduce, includeSelf) {
  const [size, n] = [rows.shape.at(-1) ?? 1, index.shape.at(-1) ?? 1];
  if (n === 0) return F.clone(rows);
  // As i32, in which order an index that is out of range stands before the others or behind them.
  const own = F.to(index.dtype === 'i32' ? apply(indexing.fromEnd, [index], { size }) : index, 'i32').contiguous();
  const order = apply(indexing.argsort, [own], { descending: false });
  const segments = gather(own, -1, order);
  const join = JOINS[reduce === 'mean' ? 'sum' : reduce];
  const running = doubled(gather(source, -1, order), join, segments);
  // Each place of the result takes the last of its segment.
  const places = F.expand(apply(sorts.iota, [], { shape: [size] }), rows.shape).contiguous();
  const [first, behind] = [false, true].map((right) => apply(sorts.searchSorted, [segments, places], { right }));
  const last = gather(running, -1, F.maximum(F.sub(behind, 1), 0));
  const whole = includeSelf ? join(last, rows) : last;
  const count = F.sub(behind, first);
  const isThere = F.gt(count, 0);
  if (reduce !== 'mean') return F.where(isThere, whole, rows);
  const divisor = F.to(F.maximum(includeSelf ? F.add(count, 1) : count, 1), rows.dtype);
  return F.where(isThere, F.div(whole, divisor, { roundingMode: 'floor' }), rows);
}
