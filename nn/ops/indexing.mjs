// Gathers and scatters along a dimension. Their gradients are scatters and gathers, without atomics, so the bits are the same every time.

import { map } from '../core/codegen.mjs';
import { ArgumentError, ShapeError, show } from '../core/errors.mjs';
import { BYTES, denseLayout, sizeOf } from '../core/layout.mjs';
import { checkRow } from './reduce.mjs';
import { at, generate } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
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
  vjp: (dy, { inputs: [, index], layouts: [x], attributes }, F) => [
    F.call(scatterAdd, [F.zeros(x.shape, { dtype: x.dtype }), index, dy], attributes),
    undefined,
  ],
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

/** The gradient of x in a scatter: dy where nothing was written, else 0. */
const scatterRest = defineOp({
  name: 'scatterRest',
  infer: ([dy]) => [denseLayout(dy.shape, dy.dtype)],
  lower: (k, [dy, last], [dx]) => {
    const dispatch = map(k.context, [dy, last], [dx], (p, [v, l]) => [
      p.append('select', p.append('eq', l, p.constant(NONE, 'u32')), v, p.constant(0)),
    ]);
    return dispatch ? [dispatch] : [];
  },
  oracle: ([dy, last]) => ({ shape: dy.shape, data: dy.data.map((v, i) => (last.data[i] === NONE ? v : 0)) }),
});

/** x, with source[..., k, ...] in place of [..., index[..., k, ...], ...]: of several the last. */
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
