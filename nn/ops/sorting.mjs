// Order: what is picked and put by index after a sort, and searching. All of it is along the last dimension.

import { map } from '../core/codegen.mjs';
import { ArgumentError, ShapeError, show } from '../core/errors.mjs';
import { denseLayout, sizeOf } from '../core/layout.mjs';
import { checkRows, compared, gather, indices } from './indexing.mjs';
import { at, generate, rowsOf } from './reference.mjs';
import { defineOp } from './registry.mjs';
import { matrixOf, wordType } from './scan.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../core/codegen.mjs').Program} Program */
/** @typedef {import('./registry.mjs').Reference} Reference */
/** @typedef {import('./registry.mjs').Functions} Functions */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/** An index that names no element. */
const NONE = 0xffffffff;

/** Elements of rows by index, which names none twice: so the gradient is written, not added. */
export const pick = defineOp({
  name: 'pick',
  infer: ([x, index]) => {
    wordType('pick', x);
    checkRows('pick', x, index);
    if (x.shape.at(-1) === 0 && index.shape.at(-1) !== 0) throw new ShapeError('pick', `of ${show(x.shape)} there is no element to pick`);
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
  empty: 0, // Without a source.
  infer: ([index, source], /** @type {{ size: number }} */ { size }) => {
    wordType('put', source);
    checkRows('put', source);
    if (show(index.shape) !== show(source.shape)) throw new ShapeError('put', `${show(index.shape)} indices of ${show(source.shape)}`);
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
    return [denseLayout(values.shape, 'i32')];
  },
  lower: (k, [x, values], [y], { right }) => {
    const { columns: picks, rows } = matrixOf(values.layout);
    const type = wordType('searchsorted', x.layout);
    return [
      k.searchSorted({ x, values, y, rows, columns: matrixOf(x.layout).columns, picks, shared: x.layout.shape.length === 1, right, type }),
    ];
  },
  empty: 0,
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

/** Where marked elements go when the others are left out: their count, this one included, less one. Others go nowhere. */
export const packedPlace = indices(
  'packedPlace',
  'u32',
  (p, [mark, count]) => p.append('select', mark, p.append('sub', p.append('toU32', count), p.constant(1, 'u32')), p.constant(NONE, 'u32')),
  ([mark, count]) => (mark ? count - 1 : NONE),
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
