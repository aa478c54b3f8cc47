// Sums, means and extremes over dimensions.

import { ShapeError } from '../core/errors.mjs';
import { denseLayout, sizeOf } from '../core/layout.mjs';
import { floatType } from './pointwise.mjs';
import { generate } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('./registry.mjs').Reference} Reference */

/** The shape after a reduction that keeps the reduced dimensions, with size 1. @param {readonly number[]} shape @param {number[]} dims */
export const keptShape = (shape, dims) => shape.map((size, d) => (dims.includes(d) ? 1 : size));

/** The shape of a reduction's result. @param {readonly number[]} shape @param {number[]} dims @param {boolean} keepdim whether sizes of 1 stay */
export const resultShape = (shape, dims, keepdim) => (keepdim ? keptShape(shape, dims) : shape.filter((_, d) => !dims.includes(d)));

/**
 * Reduces in float64.
 * @param {Reference} x @param {number[]} dims @param {number} start @param {(sum: number, x: number) => number} f
 */
export function reduced(x, dims, start, f) {
  const result = generate(keptShape(x.shape, dims), () => start);
  const index = new Array(x.shape.length).fill(0);
  for (const value of x.data) {
    let to = 0;
    for (let d = 0; d < index.length; d++) to = to * result.shape[d] + (dims.includes(d) ? 0 : index[d]);
    result.data[to] = f(result.data[to], value);
    for (let d = index.length - 1; d >= 0 && ++index[d] === x.shape[d]; d--) index[d] = 0;
  }
  return result;
}

/**
 * Merges neighbouring dimensions that are all reduced or all kept, and leaves out sizes of 1. How many runs are left decides on the kernel.
 * @param {readonly number[]} shape @param {number[]} dims
 * @returns {{ size: number, reduced: boolean }[]}
 */
export function runs(shape, dims) {
  /** @type {{ size: number, reduced: boolean }[]} */
  const list = [];
  shape.forEach((size, d) => {
    if (size === 1) return;
    const reduced = dims.includes(d);
    const last = list.at(-1);
    if (last && last.reduced === reduced) last.size *= size;
    else list.push({ size, reduced });
  });
  return list;
}

/**
 * alpha · Σ x over `dims`, which are the first or the last dimensions of a dense tensor. Reduced dimensions keep size 1; the result is f32.
 */
export const sum = defineOp({
  name: 'sum',
  infer: ([x], /** @type {{ dims: number[], alpha: number }} */ { dims }) => {
    floatType('sum', x);
    return [denseLayout(keptShape(x.shape, dims), 'f32')];
  },
  lower: (k, [x], [y], { dims, alpha }) => {
    const type = floatType('sum', x.layout);
    const parts = runs(x.layout.shape, dims);
    if (parts.length === 0 || (parts.length === 1 && !parts[0].reduced)) {
      const count = x.layout.size;
      return type === 'f32' ? [k.unary({ x, y, count, alpha })] : [k.cast({ x, y, count, from: type, to: 'f32' })];
    }
    if (parts.length === 1) return k.reduceAll({ x, y, count: parts[0].size, alpha, type });
    const [first, second] = parts;
    if (parts.length > 2) throw new RangeError('sum: dimensions in between are moved first');
    if (second.reduced) return [k.reduceRows({ x, y, rows: first.size, columns: second.size, alpha, type })];
    return k.columnSum({ x, y, rows: first.size, columns: second.size, alpha, type });
  },
  // A mean of nothing is infinitely often 0, which is NaN.
  empty: (_, { alpha }) => [0 * alpha],
  vjp: (dy, { layouts: [x], attributes: { alpha } }, F) => [F.to(F.expand(alpha === 1 ? dy : F.mul(dy, alpha), x.shape), x.dtype)],
  oracle: ([x], { dims, alpha }) => {
    const result = reduced(x, dims, 0, (a, b) => a + b);
    return { shape: result.shape, data: result.data.map((v) => v * alpha) };
  },
});

/** Throws a ShapeError where rows have no elements, of which none is the largest. @param {string} name @param {Pick<Layout, 'shape'>} layout */
export function checkRow(name, { shape }) {
  if (shape.at(-1) === 0) throw new ShapeError(name, `none of 0 elements is the ${/max/i.test(name) ? 'largest' : 'smallest'}`);
}

/**
 * The largest (or smallest) element of each row. Equal ones share its gradient, as in PyTorch's `amax`.
 * @param {string} name @param {'max' | 'min'} op
 */
const extreme = (name, op) =>
  defineOp({
    name,
    infer: ([x]) => {
      floatType(name, x);
      checkRow(name, x);
      return [denseLayout([...x.shape.slice(0, -1), 1], 'f32')];
    },
    lower: (k, [x], [y]) => {
      const columns = x.layout.shape.at(-1) ?? 1;
      return [k.reduceRows({ x, y, rows: x.layout.size / columns, columns, op, type: floatType(name, x.layout) })];
    },
    saveInputs: () => [0],
    saveOutputs: [0],
    vjp: (dy, { inputs: [x], outputs: [y] }, F) => {
      // 1 where the element is the extreme, else 0: a difference would be NaN of two infinities.
      const mask = F.to(F.eq(x, y), 'f32');
      return [F.to(F.mul(mask, F.div(dy, F.sum(mask, -1, true))), x.dtype)];
    },
    oracle: ([x]) => reduced(x, [x.shape.length - 1], op === 'max' ? -Infinity : Infinity, op === 'max' ? Math.max : Math.min),
  });

export const amax = extreme('amax', 'max');
export const amin = extreme('amin', 'min');

/** Elements that a reduction goes over. @param {readonly number[]} shape @param {number[]} dims */
export const reducedSize = (shape, dims) => sizeOf(dims.map((d) => shape[d] ?? 1));
