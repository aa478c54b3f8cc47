// Sums, extremes, norms, softmax.

import { reshape, take, transpose } from '../arrays.mjs';
import { TYPES, isFloat, sizeOf } from '../types.mjs';
import { Value, axesOf, axisOf, f, hosted, onHost as eachOnHost, result, same } from './lib.mjs';
import { truncDivide } from './wide.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../definitions.mjs').Computed} Computed */

/**
 * A reduction over `axes`, an attribute or, in later opsets, the second input.
 * @param {(x: Tensor, axes: number[], keep: boolean) => Tensor} of @param {(a: number, b: number) => number} [host] of two elements
 * @param {{ last?: (x: Tensor) => Tensor, none?: number }} [parts] `last`: what is done to the elements if no dimension is reduced; `none`:
 *   the result of no elements
 * @returns {Computed}
 */
const reduction = (of, host, { last, none } = {}) => ({
  host: [1],
  run([x, given], { axes: attribute, keepdims = 1, noop_with_empty_axes: noop = 0 }) {
    const listed = attribute ?? given?.numbers ?? [];
    if (listed.length === 0 && noop) return last ? same(x.type, last(x.tensor)) : x;
    const axes = listed.length === 0 ? x.shape.map((_, d) => d) : axesOf(listed, x.rank);
    const known = host && x.size > 0 ? onHost(x, axes, Boolean(keepdims), host) : undefined;
    if (known) return known;
    if (none !== undefined && axes.some((d) => x.shape[d] === 0)) {
      const shape = x.shape.flatMap((size, d) => (!axes.includes(d) ? [size] : keepdims ? [1] : []));
      return Value.host(x.type, shape, filled(x.type, sizeOf(shape), none));
    }
    return result(x.type, of(x.tensor, axes, Boolean(keepdims)));
  },
});

/** Elements of the number of a type that is nearest to one. @param {import('../types.mjs').Type} type @param {number} count @param {number} value */
function filled(type, count, value) {
  if (!Number.isFinite(value) && (type === 'int64' || type === 'uint64')) {
    const [least, most] = type === 'int64' ? [-(2n ** 63n), 2n ** 63n - 1n] : [0n, 2n ** 64n - 1n];
    return new (type === 'int64' ? BigInt64Array : BigUint64Array)(count).fill(value < 0 ? least : most);
  }
  const whole = type === 'uint32' ? [0, 2 ** 32 - 1] : [-(2 ** 31), 2 ** 31 - 1];
  const { array, range } = TYPES[/** @type {'int8'} */ (type)];
  const [least, most] = type === 'bool' ? [0, 1] : (range ?? whole);
  return new array(count).fill(isFloat(type) ? value : Math.min(most, Math.max(least, value)));
}

/** Undefined where the host does not compute it. @param {Value} x @param {number[]} axes @param {boolean} keep @param {(a: number, b: number) => number} of */
function onHost(x, axes, keep, of) {
  if (!hosted(x)) return undefined;
  const others = x.shape.map((_, d) => d).filter((d) => !axes.includes(d));
  const sizes = others.map((d) => x.shape[d]);
  const count = sizeOf(axes.map((d) => x.shape[d]));
  const rows = reshape(transpose(x, [...others, ...axes]), [sizeOf(sizes), count]);
  const columns = Array.from({ length: count }, (_, i) => reshape(take(rows, 1, [i]), sizes));
  /** @type {Value | undefined} */
  let y = columns[0];
  for (const column of columns.slice(1)) y = y && eachOnHost(of, x.type, y, column);
  return y && keep
    ? reshape(
        y,
        x.shape.map((size, d) => (axes.includes(d) ? 1 : size)),
      )
    : y;
}

/** In f32 where the type has 16 bits. @param {(x: Tensor, axes: number[], keep: boolean) => Tensor} of */
const wide = (of) => (/** @type {Tensor} */ x, /** @type {number[]} */ axes, /** @type {boolean} */ keep) =>
  f.to(of(/^b?f16$/.test(x.dtype) ? f.to(x, 'f32') : x, axes, keep), x.dtype);

/** Of integers rounded to 0. @param {Tensor} x @param {number[]} axes @param {boolean} keep @returns {Tensor} */
function mean(x, axes, keep) {
  if (!/^[iu]/.test(x.dtype)) return f.mean(x, axes, keep);
  const count = f.full([], sizeOf(axes.map((d) => x.shape[d])), { dtype: 'i64' });
  return truncDivide(f.sum(f.to(x, 'i64'), axes, keep), count);
}

const sum = (/** @type {Tensor} */ x, /** @type {number[]} */ axes, /** @type {boolean} */ keep) => f.sum(x, axes, keep);

/** @param {(x: Tensor, dim: number) => Tensor} of @returns {Computed} */
const softmaxOf = (of) => ({
  run([x], { axis }, { opset }) {
    if (opset >= 13) return same(x.type, of(x.tensor, axisOf(axis ?? -1, x.rank)));
    // Dimensions from the axis on are one.
    const d = axisOf(axis ?? 1, x.rank);
    const rows = f.reshape(x.tensor, [sizeOf(x.shape.slice(0, d)), sizeOf(x.shape.slice(d))]);
    return same(x.type, f.reshape(of(rows, -1), x.shape));
  },
});

/** @param {'argmax' | 'argmin'} name @returns {Computed} */
const arg = (name) => ({
  run([x], { axis = 0, keepdims = 1, select_last_index: last = 0 }) {
    const d = axisOf(axis, x.rank);
    const size = x.shape[d];
    const index = f[name](last ? f.flip(x.tensor, d) : x.tensor, d, Boolean(keepdims));
    const wide = f.to(index, TYPES.int64.dtype);
    return Value.of('int64', last ? f.sub(f.full([], size - 1, { dtype: wide.dtype }), wide) : wide);
  },
});

/** 1 at the first of the greatest elements. @param {Tensor} x @param {number} dim */
const hardmax = (x, dim) => f.scatter(f.zeros(x.shape, { dtype: x.dtype }), dim, f.argmax(x, dim, true), 1);

/** @type {Computed} */
const lpNormalization = {
  run([x], { axis = -1, p = 2 }) {
    const d = [axisOf(axis, x.rank)];
    const norm = p === 1 ? f.sum(f.abs(x.tensor), d, true) : f.sqrt(f.sum(f.square(x.tensor), d, true));
    const zero = f.eq(norm, 0);
    return same(x.type, f.where(zero, f.mul(x.tensor, 0), f.div(x.tensor, f.where(zero, f.add(norm, 1), norm))));
  },
};

/** @type {import('../definitions.mjs').Table} */
export const REDUCTIONS = {
  ArgMax: arg('argmax'),
  ArgMin: arg('argmin'),
  Hardmax: softmaxOf(hardmax),
  LogSoftmax: softmaxOf((x, dim) => f.logSoftmax(x, dim)),
  LpNormalization: lpNormalization,
  ReduceL1: reduction((x, axes, keep) => f.sum(f.abs(x), axes, keep), undefined, { last: f.abs }),
  ReduceL2: reduction(
    wide((x, axes, keep) => f.to(f.sqrt(f.to(f.sum(f.square(x), axes, keep), 'f32')), x.dtype)),
    undefined,
    { last: f.abs },
  ),
  ReduceLogSum: reduction(
    wide((x, axes, keep) => f.log(f.sum(x, axes, keep))),
    undefined,
    { last: f.log },
  ),
  ReduceLogSumExp: reduction((x, axes, keep) => f.logsumexp(x, axes, keep), undefined, { none: -Infinity }),
  ReduceMax: reduction((x, axes, keep) => f.amax(x, axes, keep), Math.max, { none: -Infinity }),
  ReduceMean: reduction(mean),
  ReduceMin: reduction((x, axes, keep) => f.amin(x, axes, keep), Math.min, { none: Infinity }),
  ReduceProd: reduction(
    (x, axes, keep) => f.prod(x, axes, keep),
    (a, b) => a * b,
    { none: 1 },
  ),
  ReduceSum: reduction(sum, (a, b) => a + b),
  ReduceSumSquare: reduction((x, axes, keep) => f.sum(f.square(x), axes, keep), undefined, { last: f.square }),
  Softmax: softmaxOf((x, dim) => f.softmax(x, dim)),
};
