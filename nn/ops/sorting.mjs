// Order: sorting, searching, and what combines elements by index after a sort. All of it is along the last dimension.

import { TYPES, map } from '../core/codegen.mjs';
import { ArgumentError, ShapeError, show } from '../core/errors.mjs';
import { broadcastShapes, denseLayout, sizeOf } from '../core/layout.mjs';
import { gather } from './indexing.mjs';
import { generated } from './pointwise.mjs';
import { at, generate, map as mapped, rowsOf } from './reference.mjs';
import { defineOp } from './registry.mjs';
import { matrixOf, wordType } from './scan.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../core/codegen.mjs').Program} Program */
/** @typedef {import('./registry.mjs').Reference} Reference */
/** @typedef {import('./registry.mjs').Functions} Functions */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/** An index that names no element. */
const NONE = 0xffffffff;

/** Numbers in their order, NaN last. @param {number} a @param {number} b */
const compared = (a, b) => (Number.isNaN(a) ? Number(!Number.isNaN(b)) : Number.isNaN(b) ? -1 : Number(a > b) - Number(a < b));

/** The columns of each row in the order of its elements. It is a stable sort in both directions; NaN is the largest. */
export const argsort = defineOp({
  name: 'argsort',
  infer: ([x], /** @type {{ descending: boolean }} */ _) => {
    wordType('argsort', x);
    return [denseLayout(x.shape, 'i32')];
  },
  lower: (k, [x], [y], { descending }) => [k.argSort({ x, y, ...matrixOf(x.layout), type: wordType('argsort', x.layout), descending })],
  oracle: ([x], { descending }) => {
    const [rows, columns] = rowsOf(x.shape);
    const order = Array.from({ length: rows }, (_, r) => {
      const row = x.data.subarray(r * columns, (r + 1) * columns);
      return Array.from(row.keys()).sort((a, b) => (descending ? -1 : 1) * compared(row[a], row[b]) || a - b);
    });
    return { shape: x.shape, data: Float64Array.from(order.flat()) };
  },
});

/** Elements of rows by index, which names none twice: so the gradient is written, not added. */
export const pick = defineOp({
  name: 'pick',
  infer: ([x, index]) => {
    wordType('pick', x);
    return [denseLayout(index.shape, x.dtype)];
  },
  lower: (k, [x, index], [y]) => {
    const { rows, columns } = matrixOf(x.layout);
    return [k.gather({ x, index, y, outer: rows, size: columns, length: matrixOf(index.layout).columns, inner: 1 })];
  },
  saveInputs: () => [1],
  vjp: (dy, { inputs: [, index], layouts: [x] }, F) => [F.call(put, [index, dy], { size: x.shape.at(-1) ?? 1 }), undefined],
  oracle: ([x, index]) => generate(index.shape, (place) => at(x, place.with(-1, at(index, place)))),
});

/** Rows of `size` zeros, with source[..., k] at index[..., k]. No two indices of a row are equal; one outside the row is dropped. */
export const put = defineOp({
  name: 'put',
  infer: ([, source], /** @type {{ size: number }} */ { size }) => {
    wordType('put', source);
    return [denseLayout([...source.shape.slice(0, -1), size], source.dtype)];
  },
  lower: (k, [index, source], [y], { size }) => {
    const { rows, columns } = matrixOf(index.layout);
    return [k.fill({ y, count: y.layout.size, value: 0, type: 'u32' }), k.putRows({ index, source, y, rows, picks: columns, size })];
  },
  saveInputs: () => [0],
  vjp: (dy, { inputs: [index] }, F) => [undefined, F.call(gather, [dy, index], { dim: index.ndim - 1 })],
  oracle: ([index, source], { size }) => {
    const [, picks] = rowsOf(index.shape);
    const result = generate([...source.shape.slice(0, -1), size], () => 0);
    index.data.forEach((id, i) => {
      if (id < size) result.data[Math.floor(i / picks) * size + id] = source.data[i];
    });
    return result;
  },
});

/** How many elements of a sorted row are less than each value (`right`: or equal). Rows of values search their own row, or all the only one. */
export const searchSorted = defineOp({
  name: 'searchsorted',
  infer: ([x, values], /** @type {{ right: boolean }} */ _) => {
    wordType('searchsorted', x);
    if (x.dtype !== values.dtype)
      throw new ArgumentError(
        'searchsorted',
        `takes tensors of one type, got ${x.dtype} and ${values.dtype}; convert with .to('${x.dtype}')`,
      );
    if (x.shape.length !== 1 && show(x.shape.slice(0, -1)) !== show(values.shape.slice(0, -1)))
      throw new ShapeError(
        'searchsorted',
        `the sorted tensor ${show(x.shape)} must have one dimension, or the sizes of the values ${show(values.shape)} but for the last`,
      );
    return [denseLayout(values.shape, 'i32')];
  },
  lower: (k, [x, values], [y], { right }) => {
    const { columns: picks, rows } = matrixOf(values.layout);
    const type = wordType('searchsorted', x.layout);
    return [
      k.searchSorted({ x, values, y, rows, columns: matrixOf(x.layout).columns, picks, shared: x.layout.shape.length === 1, right, type }),
    ];
  },
  oracle: ([x, values], { right }) => {
    const [, columns] = rowsOf(x.shape);
    const [, picks] = rowsOf(values.shape);
    const data = values.data.map((value, i) => {
      const from = x.shape.length === 1 ? 0 : Math.floor(i / picks) * columns;
      return x.data.subarray(from, from + columns).filter((other) => compared(other, value) < (right ? 1 : 0)).length;
    });
    return { shape: values.shape, data };
  },
});

/** @typedef {{ op: import('../../kernels/sorting.mjs').RunOp, apart: boolean }} RunAttributes `apart`: an element with sources is of them alone */

/**
 * x, each element combined with the sources whose index names it. The inputs are x, the index (u32, without negative ones), its argsort, and
 * the sources.
 * @type {import('./registry.mjs').Op}
 */
export const reduceRuns = defineOp({
  name: 'reduceRuns',
  infer: ([x, index, , source], /** @type {RunAttributes} */ _) => {
    if (x.dtype !== 'f32' || source.dtype !== 'f32' || index.dtype !== 'u32' || show(index.shape) !== show(source.shape))
      throw new ArgumentError('reduceRuns', 'takes f32 and an index u32 of the shape of the sources');
    return [denseLayout(x.shape, 'f32'), denseLayout(x.shape, 'u32')];
  },
  lower: (k, [x, index, order, source], [y, counts], attributes) => {
    const { rows, columns: size } = matrixOf(x.layout);
    return [k.reduceRuns({ x, index, order, source, y, counts, rows, size, picks: matrixOf(index.layout).columns, ...attributes })];
  },
  saveInputs: () => [0, 1, 2, 3],
  saveOutputs: [0, 1],
  vjp: (dy, { inputs: [x, index, order, source], outputs: [y, counts], attributes: { op, apart } }, F) => {
    const own = apart ? F.ne(counts, 0) : undefined;
    // x where it counts, else `other`; and the elements of x's shape at the places of the sources.
    const counted = (/** @type {Tensor} */ of, /** @type {number} */ other) => (own ? F.where(own, other, of) : of);
    const atSources = (/** @type {Tensor} */ of) => F.call(gather, [of, index], { dim: index.ndim - 1 });
    const combined = (/** @type {Tensor} */ a, /** @type {Tensor} */ b, /** @type {RunAttributes['op']} */ by) =>
      F.call(reduceRuns, [counted(a, by === 'prod' ? 1 : 0), index, order, b], { op: by, apart: false });
    const none = [undefined, undefined];
    if (op === 'sum') return [counted(dy, 0), ...none, atSources(dy)];
    if (op === 'prod') {
      // The product of the others: without a factor 0 by division; of the only 0 the product of the rest; else 0.
      const [noX, noS] = [F.eq(x, 0), F.eq(source, 0)];
      const [fullX, fullS] = [F.where(noX, 1, x), F.where(noS, 1, source)];
      const rest = F.mul(dy, combined(fullX, fullS, 'prod'));
      const zeros = combined(F.to(noX, 'f32'), F.to(noS, 'f32'), 'sum');
      const [only, all] = [F.where(F.eq(zeros, 1), rest, 0), F.where(F.eq(zeros, 0), rest, 0)];
      return [counted(F.where(noX, only, F.div(all, fullX)), 0), ...none, F.where(noS, atSources(only), F.div(atSources(all), fullS))];
    }
    // Equal ones share the gradient.
    const isX = F.to(F.eq(x, y), 'f32');
    const isS = F.to(F.eq(source, atSources(y)), 'f32');
    const share = F.div(dy, F.maximum(combined(isX, isS, 'sum'), 1));
    return [counted(F.mul(share, isX), 0), ...none, F.mul(atSources(share), isS)];
  },
  oracle: ([x, index, , source], { op, apart }) => {
    const f = {
      sum: (/** @type {number} */ a, /** @type {number} */ b) => a + b,
      prod: (/** @type {number} */ a, /** @type {number} */ b) => a * b,
      max: Math.max,
      min: Math.min,
    }[op];
    const [, picks] = rowsOf(index.shape);
    return generate(x.shape, (place) => {
      /** @type {number | undefined} */
      let value = apart ? undefined : at(x, place);
      for (let k = 0; k < picks; k++) {
        const from = place.with(-1, k);
        if (at(index, from) === place.at(-1)) value = value === undefined ? at(source, from) : f(value, at(source, from));
      }
      return value ?? at(x, place);
    });
  },
});

// ---- indices

/** The number of each element: 0, 1, 2 … */
export const iota = defineOp({
  name: 'iota',
  infer: (_, /** @type {{ shape: number[] }} */ { shape }) => [denseLayout(shape, 'i32')],
  lower: (k, _, [y]) => [
    /** @type {import('../../kernels/base.mjs').Dispatch} */ (map(k.context, [], [y], (p) => [p.append('toI32', p.append('index'))])),
  ],
  oracle: (_, { shape }) => ({ shape, data: Float64Array.from({ length: sizeOf(shape) }, (_, i) => i) }),
});

/**
 * An operation of i32 and u32 numbers, whose result is an index.
 * @template {import('./registry.mjs').Attributes} A
 * @param {string} name @param {'i32' | 'u32'} dtype of the result
 * @param {(p: Program, inputs: number[], attributes: A) => number} body
 * @param {(inputs: number[], attributes: A) => number} f
 */
const indices = (name, dtype, body, f) =>
  defineOp({
    name,
    ...generated(name, body),
    infer: (/** @type {Layout[]} */ inputs) => [denseLayout(broadcastShapes(name, ...inputs.map(({ shape }) => shape)), dtype)],
    oracle: (/** @type {Reference[]} */ inputs, /** @type {A} */ attributes) =>
      inputs.length === 1
        ? mapped(inputs[0], (v) => f([v], attributes))
        : generate(broadcastShapes(name, ...inputs.map(({ shape }) => shape)), (place) =>
            f(
              inputs.map((x) => at(x, place)),
              attributes,
            ),
          ),
  });

/** Where marked elements go when the others are left out: their count, this one included, less one. Others go nowhere. */
export const packedPlace = indices(
  'packedPlace',
  'u32',
  (p, [mark, count]) => p.append('select', mark, p.append('sub', p.append('toU32', count), p.constant(1, 'u32')), p.constant(NONE, 'u32')),
  ([mark, count]) => (mark ? count - 1 : NONE),
);

/** An index of a dimension, where a negative one counts from the end: one that is outside stays outside. */
export const fromEnd = indices(
  'fromEnd',
  'u32',
  (p, [index], /** @type {{ size: number }} */ { size }) =>
    p.append(
      'bits',
      p.append('select', p.append('lt', index, p.constant(0, 'i32')), p.append('add', index, p.constant(size, 'i32')), index),
      TYPES.indexOf('u32'),
    ),
  ([index], { size }) => (index < 0 ? index + size : index) >>> 0,
);

/** a - b of indices. */
export const indexMinus = indices(
  'indexMinus',
  'i32',
  (p, [a, b]) => p.append('sub', a, b),
  ([a, b]) => a - b,
);

/** The part of a number of an element that counts in one dimension. */
export const coordinate = indices(
  'coordinate',
  'i32',
  (p, [index], /** @type {{ step: number, size: number }} */ { step, size }) =>
    p.append('rem', p.append('div', index, p.constant(step, 'i32')), p.constant(size, 'i32')),
  ([index], { step, size }) => Math.floor(index / step) % size,
);

/** The number of an element of one dimension more: place · size + index. An index that is out of range makes it so. */
export const nextPlace = indices(
  'nextPlace',
  'i32',
  (p, [place, index], /** @type {{ size: number }} */ { size }) => {
    const [zero, length, outside] = [0, size, -(2 ** 31)].map((n) => p.constant(n, 'i32'));
    const own = p.append('select', p.append('lt', index, zero), p.append('add', index, length), index);
    const there = p.append('and', p.append('and', p.append('ge', own, zero), p.append('lt', own, length)), p.append('ge', place, zero));
    return p.append('select', there, p.append('add', p.append('mul', place, length), own), outside);
  },
  ([place, index], { size }) => {
    const own = index < 0 ? index + size : index;
    return own >= 0 && own < size && place >= 0 ? place * size + own : -(2 ** 31);
  },
);
