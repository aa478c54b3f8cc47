// Operations that put elements elsewhere: padding, reversal, diagonals, and windows that overlap. Gradients are copies and sums in a fixed
// order, without atomics.

import { TYPES, map } from '../core/codegen.mjs';
import { denseLayout, denseStrides, layoutOf } from '../core/layout.mjs';
import { move } from './movement.mjs';
import { generated } from './pointwise.mjs';
import { at, generate, map as mapped } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('./registry.mjs').Op} Op */
/** @typedef {import('./registry.mjs').Operand} Operand */
/** @typedef {import('../../kernels/index.mjs').Kernels} Kernels */

/** Elements added before and behind each dimension, and their value. @typedef {{ before: number[], after: number[], value: number }} PadAttributes */
/** Two different dimensions, and how far right of the main diagonal. @typedef {{ offset: number, dim1: number, dim2: number }} DiagonalAttributes */
/** For each dimension that windows slide over: the window's size, and elements from one window, and from one of its elements, to the next. @typedef {{ dims: number[], sizes: number[], steps: number[], dilations: number[] }} WindowAttributes */

/** Sets all elements of a tensor of 32-bit elements. @param {Kernels} k @param {Operand} y @param {number} value */
const filled = (k, y, value) =>
  k.fill({
    y,
    count: y.layout.size,
    value: y.layout.dtype === 'f32' ? value : value >>> 0,
    type: y.layout.dtype === 'f32' ? 'f32' : 'u32',
  });

/** A part of a tensor that is all of its memory. @param {Operand} y @param {readonly number[]} shape @param {readonly number[]} strides @param {number} offset */
const partOf = (y, shape, strides, offset) => ({
  buffer: y.buffer,
  offset,
  layout: layoutOf(shape, strides, offset, y.layout.dtype),
});

/** x with elements of one value around it; of 32-bit elements. */
export const pad = defineOp({
  name: 'pad',
  strided: true,
  empty: (_, /** @type {PadAttributes} */ { value }) => [value],
  infer: ([x], /** @type {PadAttributes} */ { before, after }) => [
    denseLayout(
      x.shape.map((size, d) => before[d] + size + after[d]),
      x.dtype,
    ),
  ],
  lower: (k, [x], [y], { before, value }) => {
    const strides = denseStrides(y.layout.shape);
    const offset = before.reduce((sum, n, d) => sum + n * strides[d], 0);
    return [filled(k, y, value), ...move(k, x, partOf(y, x.layout.shape, strides, offset), 'pad')];
  },
  vjp: (dy, { layouts: [x], attributes: { before } }, F) => [
    before.reduce((part, start, d) => F.slice(part, d, start, start + x.shape[d]), dy),
  ],
  oracle: ([x], { before, after, value }) =>
    generate(
      x.shape.map((size, d) => before[d] + size + after[d]),
      (index) => {
        const from = index.map((i, d) => i - before[d]);
        return from.every((i, d) => i >= 0 && i < x.shape[d]) ? at(x, from) : value;
      },
    ),
});

/** The elements in the opposite order along dimensions. @type {Op} */
export const flip = defineOp({
  name: 'flip',
  strided: true,
  infer: ([x]) => [denseLayout(x.shape, x.dtype)],
  lower: (k, [x], [y], /** @type {{ dims: number[] }} */ { dims }) => {
    const { shape, strides, dtype } = x.layout;
    // From the last element backwards: kernels add strides modulo 2^32, so that a negative one goes down.
    const offset = dims.reduce((sum, d) => sum + (shape[d] - 1) * strides[d], x.offset);
    const signed = strides.map((stride, d) => (dims.includes(d) ? -stride : stride));
    return /** @type {import('../../kernels/base.mjs').Dispatch[]} */ ([
      map(k.context, [{ buffer: x.buffer, offset, layout: layoutOf(shape, signed, offset, dtype) }], [y], (_, values) => values),
    ]);
  },
  vjp: (dy, { attributes }, F) => [F.call(flip, [dy], attributes)],
  oracle: ([x], { dims }) =>
    generate(x.shape, (index) =>
      at(
        x,
        index.map((i, d) => (dims.includes(d) ? x.shape[d] - 1 - i : i)),
      ),
    ),
});

/** How many elements a diagonal of a matrix has. @param {number} rows @param {number} columns @param {number} offset */
export const diagonalSize = (rows, columns, offset) => Math.min(rows + Math.min(offset, 0), columns - Math.max(offset, 0));

/** @param {readonly number[]} shape of the matrices @param {readonly number[]} strides @param {DiagonalAttributes} attributes */
function diagonalOf(shape, strides, { offset, dim1, dim2 }) {
  const others = shape.map((_, d) => d).filter((d) => d !== dim1 && d !== dim2);
  return {
    shape: [...others.map((d) => shape[d]), diagonalSize(shape[dim1], shape[dim2], offset)],
    strides: [...others.map((d) => strides[d]), strides[dim1] + strides[dim2]],
    start: Math.max(-offset, 0) * strides[dim1] + Math.max(offset, 0) * strides[dim2],
  };
}

/** A diagonal of matrices in two dimensions, as the last dimension of a view. */
export const diagonal = defineOp({
  name: 'diagonal',
  infer: ([x], /** @type {DiagonalAttributes} */ attributes) => {
    const { shape, strides, start } = diagonalOf(x.shape, x.strides, attributes);
    return [layoutOf(shape, strides, x.offset + start, x.dtype)];
  },
  lower: () => [],
  vjp: (dy, { layouts: [x], attributes }, F) => [
    F.to(
      F.call(diagEmbed, [F.to(dy, 'f32')], { ...attributes, rows: x.shape[attributes.dim1], columns: x.shape[attributes.dim2] }),
      x.dtype,
    ),
  ],
  oracle: ([x], { offset, dim1, dim2 }) =>
    generate(diagonalOf(x.shape, x.shape, { offset, dim1, dim2 }).shape, (index) => {
      const i = /** @type {number} */ (index.at(-1));
      let next = 0;
      return at(
        x,
        x.shape.map((_, d) => (d === dim1 ? i + Math.max(-offset, 0) : d === dim2 ? i + Math.max(offset, 0) : index[next++])),
      );
    }),
});

/** Where the dimensions of the matrices stand among those of the result. @param {readonly number[]} shape @param {DiagonalAttributes & { rows: number, columns: number }} attributes */
function embeddedShape(shape, { dim1, dim2, rows, columns }) {
  let next = 0;
  return Array.from({ length: shape.length + 1 }, (_, d) => (d === dim1 ? rows : d === dim2 ? columns : shape[next++]));
}

/** Matrices in two new dimensions, with the last dimension of x on a diagonal and zeros elsewhere; of 32-bit elements. */
export const diagEmbed = defineOp({
  name: 'diagEmbed',
  empty: 0,
  strided: true,
  infer: ([x], /** @type {DiagonalAttributes & { rows: number, columns: number }} */ attributes) => [
    denseLayout(embeddedShape(x.shape, attributes), x.dtype),
  ],
  lower: (k, [x], [y], attributes) => {
    const { shape, strides, start } = diagonalOf(y.layout.shape, denseStrides(y.layout.shape), attributes);
    return [filled(k, y, 0), ...move(k, x, partOf(y, shape, strides, start), 'diagEmbed')];
  },
  vjp: (dy, { attributes: { offset, dim1, dim2 } }, F) => [F.diagonal(dy, offset, dim1, dim2)],
  oracle: ([x], attributes) =>
    generate(embeddedShape(x.shape, attributes), (index) => {
      const { offset, dim1, dim2 } = attributes;
      if (index[dim2] - index[dim1] !== offset) return 0;
      return at(x, [...index.filter((_, d) => d !== dim1 && d !== dim2), index[dim1] + Math.min(offset, 0)]);
    }),
});

/** How many windows lie in `length` elements; 0 if none does. @param {number} length @param {number} size @param {number} step @param {number} dilation */
export const windowCount = (length, size, step, dilation) => Math.max(0, Math.floor((length - (size - 1) * dilation - 1) / step) + 1);

/** @param {readonly number[]} shape @param {WindowAttributes} attributes */
function windowShape(shape, { dims, sizes, steps, dilations }) {
  const counts = [...shape];
  dims.forEach((d, i) => {
    counts[d] = windowCount(shape[d], sizes[i], steps[i], dilations[i]);
  });
  return [...counts, ...sizes];
}

/** The strides of windows: of one window to the next, then within a window. @param {readonly number[]} strides @param {WindowAttributes} attributes */
function windowStrides(strides, { dims, steps, dilations }) {
  const outer = [...strides];
  dims.forEach((d, i) => {
    outer[d] = strides[d] * steps[i];
  });
  return [...outer, ...dims.map((d, i) => strides[d] * dilations[i])];
}

/** A view of windows, which may overlap: instead of the elements along `dims` the windows, and the elements of each in new last dimensions. */
export const windows = defineOp({
  name: 'unfold',
  infer: ([x], /** @type {WindowAttributes} */ attributes) => [
    layoutOf(windowShape(x.shape, attributes), windowStrides(x.strides, attributes), x.offset, x.dtype),
  ],
  lower: () => [],
  vjp: (dy, { layouts: [x], attributes }, F) => [F.to(F.call(overlapAdd, [F.to(dy, 'f32')], { ...attributes, shape: x.shape }), x.dtype)],
  oracle: ([x], attributes) =>
    generate(windowShape(x.shape, attributes), (index) => {
      const from = index.slice(0, x.shape.length);
      attributes.dims.forEach((d, i) => {
        from[d] = index[d] * attributes.steps[i] + index[x.shape.length + i] * attributes.dilations[i];
      });
      return at(x, from);
    }),
});

/**
 * The sum of windows at their positions: the gradient of `windows`. Elements of a window that no other window's same elements meet are added
 * by one dispatch, in the order of the elements.
 */
export const overlapAdd = defineOp({
  name: 'fold',
  empty: 0,
  strided: true,
  infer: (_, /** @type {WindowAttributes & { shape: readonly number[] }} */ { shape }) => [denseLayout(shape, 'f32')],
  lower: (k, [x], [y], attributes) => {
    const { shape, dims, sizes, steps, dilations } = attributes;
    const rank = shape.length;
    const strides = windowStrides(denseStrides(shape), attributes);
    const outer = x.layout.shape.slice(0, rank);
    // Neighbours within a window, as many as a step has, are at other places in every window.
    const runs = sizes.map((size, i) => (dilations[i] === 1 ? Math.min(steps[i], size) : 1));
    /** @type {number[][]} */
    let starts = [[]];
    sizes.forEach((size, i) => {
      const own = Array.from({ length: Math.ceil(size / runs[i]) }, (_, n) => n * runs[i]);
      starts = starts.flatMap((before) => own.map((start) => [...before, start]));
    });
    const list = starts.map((start) => {
      const part = [...outer, ...sizes.map((size, i) => Math.min(runs[i], size - start[i]))];
      const skip = (/** @type {readonly number[]} */ own) => start.reduce((sum, n, i) => sum + n * own[rank + i], 0);
      const from = { ...partOf(x, part, x.layout.strides, x.offset + skip(x.layout.strides)) };
      const to = partOf(y, part, strides, skip(strides));
      return map(k.context, [to, from], [to], (p, [sum, value]) => [p.append('add', sum, value)]);
    });
    if (list.includes(undefined)) throw new RangeError(`fold: no kernel adds windows over ${dims.length} of ${rank} dimensions`);
    return [filled(k, y, 0), .../** @type {import('../../kernels/base.mjs').Dispatch[]} */ (list)];
  },
  vjp: (dy, { attributes: { shape: _, ...attributes } }, F) => [F.windows(dy, attributes)],
  oracle: ([x], { shape, dims, steps, dilations }) => {
    const result = generate(shape, () => 0);
    const strides = denseStrides(shape);
    generate(x.shape, (index) => {
      let to = 0;
      for (let d = 0; d < shape.length; d++) {
        const i = dims.indexOf(d);
        to += strides[d] * (i < 0 ? index[d] : index[d] * steps[i] + index[shape.length + i] * dilations[i]);
      }
      result.data[to] += at(x, index);
      return 0;
    });
    return result;
  },
});

/** Random bits, modulo a number, and a number added: integers of a range. */
export const integersOf = defineOp({
  name: 'randint',
  ...generated('randint', (p, [bits, range, first]) =>
    p.append('add', p.append('bits', p.append('rem', bits, range), TYPES.indexOf('i32')), first),
  ),
  infer: ([bits]) => [denseLayout(bits.shape, 'i32')],
  oracle: ([bits, range, first]) => mapped(bits, (v) => ((range.data[0] === 0 ? v : v % range.data[0]) + first.data[0]) | 0),
});
