// Gathers and scatters along a dimension. Their gradients are scatters and gathers, without atomics, so the bits are the same every time.

import { TYPES, map } from '../core/codegen.mjs';
import { ArgumentError, ShapeError, show } from '../core/errors.mjs';
import { BYTES, broadcastShapes, denseLayout, sizeOf } from '../core/layout.mjs';
import { generated } from './pointwise.mjs';
import { at, generate, map as mapped, rowsOf } from './reference.mjs';
import { checkRow } from './reduce.mjs';
import { defineOp } from './registry.mjs';
import { matrixOf, wordType } from './scan.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../core/codegen.mjs').Program} Program */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('./registry.mjs').Functions} Functions */
/** @typedef {import('./registry.mjs').Op} Op */
/** @typedef {import('./registry.mjs').Reference} Reference */
/** The dimension that an index counts in. @typedef {{ dim: number }} Along */

/** Marks an element that no source was written to. */
const NONE = 0xffffffff;

/**
 * Sizes as kernels take them, of a tensor and an index that differ in dimension `dim` alone.
 * @param {Layout} x @param {Layout} index @param {number} dim
 */
const sizes = (x, index, dim) => ({
  outer: sizeOf(x.shape.slice(0, dim)),
  size: x.shape[dim],
  length: index.shape[dim],
  inner: sizeOf(x.shape.slice(dim + 1)),
  fromEnd: index.dtype === 'i32',
});

/** The place that an index names in a dimension of `size`: a negative one counts from the end. @param {number} id @param {number} size */
const placeOf = (id, size) => (id < 0 ? id + size : id);

/** @param {string} op @param {Layout} x @param {Layout} index @param {number} dim */
function check(op, x, index, dim) {
  if (BYTES[x.dtype] !== 4) throw new ArgumentError(op, `takes elements of 32 bits, got ${x.dtype}`);
  if (index.dtype !== 'i32' && index.dtype !== 'u32') throw new ArgumentError(op, `the index must be i32 or u32, got ${index.dtype}`);
  if (index.shape.length !== x.shape.length || index.shape.some((size, d) => d !== dim && size !== x.shape[d])) {
    throw new ShapeError(
      op,
      `the index ${show(index.shape)} and the tensor ${show(x.shape)} must have equal sizes but in dimension ${dim}`,
    );
  }
}

/**
 * y[..., k, ...] = x[..., index[..., k, ...], ...]. With `last` of a scatter, elements that were not taken there are 0: the gradient of
 * its source.
 * @type {Op}
 */
export const gather = defineOp({
  name: 'gather',
  infer: ([x, index], /** @type {Along} */ { dim }) => {
    check('gather', x, index, dim);
    return [denseLayout(index.shape, x.dtype)];
  },
  empty: 0, // No index is in range.
  lower: (k, [x, index, last], [y], { dim }) => [k.gather({ x, index, y, last, ...sizes(x.layout, index.layout, dim) })],
  saveInputs: () => [1],
  vjp: (dy, { inputs: [, index], layouts: [x, , last], attributes }, F) => {
    const inputs = [F.zeros(x.shape, { dtype: x.dtype }), index, dy];
    // With `last`, one index of each place counts.
    return [last ? F.call(scatter, inputs, attributes) : added(F, inputs, attributes), undefined, undefined];
  },
  oracle: ([x, index, last], { dim }) =>
    generate(index.shape, (place) => {
      const id = placeOf(at(index, place), x.shape[dim]);
      if (id < 0 || id >= x.shape[dim]) return 0;
      const from = place.with(dim, id);
      return last && at(last, from) !== place[dim] ? 0 : at(x, from);
    }),
});

/** @param {string} op @param {Layout[]} inputs @param {number} dim */
function checkSource(op, [x, index, source], dim) {
  check(op, x, index, dim);
  if (show(source.shape) !== show(index.shape) || source.dtype !== x.dtype) {
    throw new ShapeError(
      op,
      `expected a source ${x.dtype} ${show(index.shape)}, the shape of the index, got ${source.dtype} ${show(source.shape)}`,
    );
  }
}

/**
 * Combines each element of x with the sources whose index names it, in the order of k.
 * @param {Reference[]} inputs @param {number} dim @param {(value: number, source: number) => number} f
 */
const scattered = ([x, index, source], dim, f) =>
  generate(x.shape, (place) => {
    let value = at(x, place);
    for (let k = 0; k < index.shape[dim]; k++) {
      const from = place.with(dim, k);
      if (placeOf(at(index, from), x.shape[dim]) === place[dim]) value = f(value, at(source, from));
    }
    return value;
  });

/** x, with source[..., k, ...] added at [..., index[..., k, ...], ...]: the gradient of a gather. @type {Op} */
export const scatterAdd = defineOp({
  name: 'scatterAdd',
  infer: (inputs, /** @type {Along} */ { dim }) => {
    const [x] = inputs;
    if (x.dtype !== 'f32') throw new ArgumentError('scatterAdd', `takes f32, f16 or bf16, got ${x.dtype}`);
    checkSource('scatterAdd', inputs, dim);
    return [denseLayout(x.shape, x.dtype)];
  },
  empty: ([x]) => [x],
  lower: (k, [x, index, source], [y], { dim }) => [k.scatterAdd({ x, index, source, y, ...sizes(x.layout, index.layout, dim) })],
  saveInputs: () => [1],
  vjp: (dy, { inputs: [, index], needs, attributes }, F) => [dy, undefined, needs[2] ? F.call(gather, [dy, index], attributes) : undefined],
  oracle: (inputs, { dim }) => scattered(inputs, dim, (a, b) => a + b),
});

/** The gradient of x in a scatter: dy where nothing was written, else 0. @type {Op} */
const scatterRest = defineOp({
  name: 'scatterRest',
  saveInputs: () => [1],
  vjp: (g, { inputs: [, last] }, F) => [F.call(scatterRest, [g, last]), undefined],
  infer: ([dy]) => [denseLayout(dy.shape, dy.dtype)],
  lower: (k, [dy, last], [dx]) => {
    const dispatch = map(k.context, [dy, last], [dx], (p, [v, l]) => [
      p.append('select', p.append('eq', l, p.constant(NONE, 'u32')), v, p.constant(0)),
    ]);
    return dispatch ? [dispatch] : [];
  },
  oracle: ([dy, last]) => ({ shape: dy.shape, data: dy.data.map((v, i) => (last.data[i] === NONE ? v : 0)) }),
});

/** x, with source[..., k, ...] in place of [..., index[..., k, ...], ...]: of several the last. @type {Op} */
export const scatter = defineOp({
  name: 'scatter',
  infer: (inputs, /** @type {Along} */ { dim }) => {
    checkSource('scatter', inputs, dim);
    const [x] = inputs;
    return [denseLayout(x.shape, x.dtype), denseLayout(x.shape, 'u32')];
  },
  empty: ([x]) => [x, NONE],
  lower: (k, [x, index, source], [y, last], { dim }) => [k.scatter({ x, index, source, y, last, ...sizes(x.layout, index.layout, dim) })],
  saveInputs: ([, , source]) => (source ? [1] : []),
  saveOutputs: [1],
  vjp: (dy, { inputs: [, index], outputs: [, last], needs, attributes }, F) => [
    needs[0] ? F.call(scatterRest, [dy, last]) : undefined,
    undefined,
    needs[2] ? F.call(gather, [dy, index, last], attributes) : undefined,
  ],
  oracle: (inputs, { dim }) => scattered(inputs, dim, (_, b) => b),
});

/**
 * The column of each row's largest (or smallest) element, the first of equal ones.
 * @param {string} name @param {'max' | 'min'} op
 */
const argExtreme = (name, op) =>
  defineOp({
    name,
    infer: ([x]) => {
      if (x.dtype !== 'f32') throw new ArgumentError(name, `takes f32, f16 or bf16, got ${x.dtype}; convert with .to('f32')`);
      checkRow(name, x);
      return [denseLayout([...x.shape.slice(0, -1), 1], 'i32')];
    },
    lower: (k, [x], [y]) => {
      const columns = x.layout.shape.at(-1) ?? 1;
      return [k.argExtreme({ x, y, rows: x.layout.size / columns, columns, op })];
    },
    oracle: ([x]) =>
      generate([...x.shape.slice(0, -1), 1], (place) => {
        let best = 0;
        for (let c = 1; c < (x.shape.at(-1) ?? 1); c++) {
          const [a, b] = [at(x, place.with(-1, c)), at(x, place.with(-1, best))];
          if (op === 'max' ? a > b : a < b) best = c;
        }
        return best;
      }),
  });

export const argmax = argExtreme('argmax', 'max');
export const argmin = argExtreme('argmin', 'min');

// ---- by order

/**
 * Throws a ShapeError for [], which has no last dimension (functions take it as [1]), and unless others have as many rows.
 * @param {string} op @param {Layout} layout @param {...Layout} others
 */
export function checkRows(op, { shape }, ...others) {
  if (shape.length === 0) throw new ShapeError(op, 'a tensor [] has no rows');
  const rows = show(shape.slice(0, -1));
  for (const other of others)
    if (show(other.shape.slice(0, -1)) !== rows) throw new ShapeError(op, `${show(shape)} and ${show(other.shape)} must have as many rows`);
}

/** Numbers in their order, NaN last. @param {number} a @param {number} b */
export const compared = (a, b) => (Number.isNaN(a) ? Number(!Number.isNaN(b)) : Number.isNaN(b) ? -1 : Number(a > b) - Number(a < b));

/** The columns of each row in the order of its elements, or the first `keep`. It is a stable sort in both directions; NaN is the largest. */
export const argsort = defineOp({
  name: 'argsort',
  infer: ([x], /** @type {{ descending: boolean, keep?: number }} */ { keep }) => {
    wordType('argsort', x);
    return [denseLayout(keep === undefined ? x.shape : [...x.shape.slice(0, -1), keep], 'i32')];
  },
  lower: (k, [x], [y], { descending, keep }) => [
    k.argSort({ x, y, ...matrixOf(x.layout), type: wordType('argsort', x.layout), descending, keep }),
  ],
  oracle: ([x], { descending, keep }) => {
    const [rows, columns] = rowsOf(x.shape);
    const order = Array.from({ length: rows }, (_, r) => {
      const row = x.data.subarray(r * columns, (r + 1) * columns);
      const sorted = Array.from(row.keys()).sort((a, b) => (descending ? -1 : 1) * compared(row[a], row[b]) || a - b);
      return sorted.slice(0, keep);
    });
    const shape = keep === undefined ? x.shape : [...x.shape.slice(0, -1), keep];
    return { shape, data: Float64Array.from(order.flat()) };
  },
});

/**
 * An operation of i32 and u32 numbers, whose result is an index.
 * @template {import('./registry.mjs').Attributes} A
 * @param {string} name @param {'i32' | 'u32'} dtype of the result
 * @param {(p: Program, inputs: number[], attributes: A) => number} body
 * @param {(inputs: number[], attributes: A) => number} f
 */
export const indices = (name, dtype, body, f) =>
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

/** @typedef {{ op: import('../../kernels/sorting.mjs').RunOp, apart: boolean }} RunAttributes `apart`: an element with sources is of them alone */

/**
 * x, each element combined with the sources whose index names it. The inputs are x, the index (u32, without negative ones), its argsort, and
 * the sources.
 * @type {import('./registry.mjs').Op}
 */
export const reduceRuns = defineOp({
  name: 'reduceRuns',
  empty: ([x]) => [x, 0], // Without a source.
  infer: ([x, index, order, source], /** @type {RunAttributes} */ _) => {
    checkRows('reduceRuns', x, index);
    const equal = [order, source].every(({ shape }) => show(shape) === show(index.shape));
    if (x.dtype !== 'f32' || source.dtype !== 'f32' || index.dtype !== 'u32' || !equal)
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

/** From so many indices of a place on, sorting them is less work than that each element goes over all of them. */
const MANY_INDICES = 512;

/**
 * `scatterAdd`, of many indices by a sort: it adds the same numbers in the same order, so the bits are the same.
 * @param {Pick<Functions, 'call' | 'transpose'>} F @param {Tensor[]} inputs x, the index and the sources @param {Along} attributes
 * @returns {Tensor}
 */
export function added(F, [x, index, source], { dim }) {
  // The scatter says what does not fit.
  if (index.ndim <= dim || index.shape[dim] < MANY_INDICES) return F.call(scatterAdd, [x, index, source], { dim });
  checkSource('scatterAdd', [x.layout, index.layout, source.layout], dim);
  const [rows, places, from] = [x, index, source].map((t) => F.transpose(t, dim, -1));
  const own = index.dtype === 'i32' ? F.call(fromEnd, [places], { size: x.shape[dim] }) : places;
  const order = F.call(argsort, [own], { descending: false });
  return F.transpose(F.call(reduceRuns, [rows, own, order, from], { op: 'sum', apart: false }), dim, -1);
}
