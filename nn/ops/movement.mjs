// Copies, casts, fills and views.

import { map, writable } from '../core/codegen.mjs';
import { ArgumentError } from '../core/errors.mjs';
import {
  BYTES,
  broadcastLayout,
  channelsLast,
  channelsLastLayout,
  collapse,
  denseLayout,
  denseStrides,
  isByte,
  isFloat,
  layoutOf,
} from '../core/layout.mjs';
import { setWriters } from '../core/engine.mjs';
import { at, generate, map as mapped } from './reference.mjs';
import { flatCount, floatType, inOrder } from './pointwise.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('./registry.mjs').Op} Op */
/** @typedef {import('./registry.mjs').Operand} Operand */
/** @typedef {import('../../kernels/index.mjs').Kernels} Kernels */
/** @typedef {import('../core/codegen.mjs').Program} Program */
/** @typedef {import('../core/codegen.mjs').Value} Value */

/** `length` elements of a dimension from `start` on, `step` apart. @typedef {{ dim: number, start: number, length: number, step: number }} SliceAttributes */

/** Copies of runs that a copy of 16-bit elements into a view may be made of. */
const MAX_RUNS = 4096;

/**
 * An operand as words that keep their bits: the elements of 32 bits, or both words of 64-bit ones along a last dimension.
 * @param {Operand} operand @returns {Operand}
 */
function asWords({ buffer, offset, layout }) {
  if (layout.dtype !== 'i64') return { buffer, offset, layout: layoutOf(layout.shape, layout.strides, layout.offset, 'u32') };
  const strides = [...layout.strides.map((stride) => 2 * stride), 1];
  return { buffer, offset: 2 * offset, layout: layoutOf([...layout.shape, 2], strides, 2 * offset, 'u32') };
}

/** @param {Layout} layout */
const isHalf = ({ dtype }) => dtype === 'f16' || dtype === 'bf16';
/** How many elements a word has; 1 where one has a word or more. @param {Layout} layout */
const perWord = ({ dtype }) => Math.max(1, 4 / BYTES[dtype]);

/**
 * Chooses how to copy elements from one layout to another of the same shape and type. A generated kernel reads any strides but writes whole
 * words, so 16-bit elements are written into a view in pairs, and bytes in fours. Undefined if no kernel can.
 * @param {Layout} x @param {Layout} y @param {boolean} alone whether y is all of its memory: what is behind it in its last word is nobody's
 */
function route(x, y, alone) {
  const half = isHalf(x);
  const per = perWord(x);
  const count = Math.ceil(y.size / per) * per;
  if (x.contiguous && y.contiguous && x.offset % per === 0 && y.offset % per === 0 && (count === x.size || alone)) {
    return { kind: /** @type {const} */ ('dense'), count };
  }
  const { shape, strides } = collapse(x.shape, [x.strides, y.strides]);
  if (y.contiguous && per < 4 && shape.length >= 2 && shape.length <= 3) {
    const [batch, rows, columns] = [1, ...shape].slice(-3);
    const [step, down, across] = [0, ...strides[0]].slice(-3);
    const even = !half || [rows, columns, x.offset, y.offset].every((n) => n % 2 === 0);
    if (even && down === 1 && across === rows && (batch === 1 || step === rows * columns)) {
      return { kind: /** @type {const} */ ('transposed'), batch, rows: columns, columns: rows };
    }
  }
  if (writable(y) && shape.length <= 8) return { kind: /** @type {const} */ ('strided') };
  // Narrow elements as words; or the last dimension at a time, or element by element.
  const last = shape.length - 1;
  const whole = strides.every((own) => own[last] === 1 || shape[last] === 1);
  const run = whole ? shape[last] : 1;
  const outer = whole ? shape.slice(0, last) : shape;
  const runs = outer.reduce((product, n) => product * n, 1);
  const aligned =
    run % per === 0 && [x, y].every(({ offset }, o) => offset % per === 0 && outer.every((_, d) => strides[o][d] % per === 0));
  if (per > 1 && aligned && outer.length < 8) return { kind: /** @type {const} */ ('words'), run, outer, runs, strides };
  return runs <= MAX_RUNS && (per === 1 || (half && aligned))
    ? { kind: /** @type {const} */ ('runs'), run, outer, runs, strides }
    : undefined;
}

/**
 * Elements from one layout to another of the same shape.
 * @param {Kernels} k @param {Operand} x @param {Operand} y @param {string} name @param {boolean} [alone] see `route`
 */
export function move(k, x, y, name, alone = false) {
  if (x.layout.dtype === 'i64') return move(k, asWords(x), asWords(y), name, alone);
  const way = route(x.layout, y.layout, alone);
  const type = isHalf(x.layout) ? /** @type {'f16' | 'bf16'} */ (x.layout.dtype) : 'f32';
  if (!way) {
    const { dtype, shape, strides } = x.layout;
    const wide = isFloat(dtype) ? 'f32' : 'i32';
    throw new ArgumentError(
      name,
      `no kernel copies ${dtype} elements [${shape}] of strides [${strides}]: convert with .to('${wide}') first`,
    );
  }
  const per = perWord(x.layout);
  if (way.kind === 'dense') {
    const [from, to] = [x, y].map(({ buffer, offset }) => ({ buffer, offset: type === 'f32' ? offset / per : offset }));
    return [k.copy({ x: from, y: to, count: type === 'f32' ? way.count / per : way.count, type })];
  }
  if (way.kind === 'transposed') return [k.transpose({ x, y, batch: way.batch, rows: way.rows, columns: way.columns, type })];
  if (way.kind === 'strided') {
    // As words, which keep their bits.
    const words = (/** @type {Operand} */ operand) => (perWord(operand.layout) > 1 ? operand : asWords(operand));
    const dispatch = map(k.context, [words(x)], [words(y)], (_, values) => values);
    if (dispatch) return [dispatch];
    throw new ArgumentError(
      name,
      `no kernel copies strides [${x.layout.strides}] to [${y.layout.strides}], of so many dimensions: call contiguous() on fewer`,
    );
  }
  const { strides, run, outer } = way;
  if (way.kind === 'words') {
    const inWords = [x, y].map(({ buffer, offset }, o) => {
      const steps = [...outer.map((_, d) => strides[o][d] / per), 1];
      return { buffer, offset: offset / per, layout: layoutOf([...outer, run / per], steps, offset / per, 'u32') };
    });
    // Strides of eight dimensions fit the push constants.
    const dispatch = map(k.context, [inWords[0]], [inWords[1]], (_, values) => values);
    return [/** @type {import('../../kernels/base.mjs').Dispatch} */ (dispatch)];
  }
  return Array.from({ length: way.runs }, (_, i) => {
    let from = x.offset;
    let to = y.offset;
    let rest = i;
    for (let d = outer.length - 1; d >= 0; d--) {
      const index = rest % outer[d];
      rest = Math.floor(rest / outer[d]);
      from += index * strides[0][d];
      to += index * strides[1][d];
    }
    return k.copy({ x: { buffer: x.buffer, offset: from }, y: { buffer: y.buffer, offset: to }, count: run, type });
  });
}

/** A dense copy of a tensor of any strides. */
export const copy = defineOp({
  name: 'copy',
  strided: true,
  infer: ([x]) => [denseLayout(x.shape, x.dtype)],
  lower: (k, [x], [y]) => move(k, x, y, 'copy', true),
  vjp: (dy) => [dy],
  oracle: ([x]) => x,
});

/** A value in another type; 16-bit numbers are f32 in programs. @param {Program} p @param {Value} x @param {DType} dtype @returns {Value} */
export function converted(p, x, dtype) {
  if (dtype === 'i64') return p.toI64(x);
  if (dtype === 'i32') return p.append('toI32', x);
  if (dtype === 'u32') return p.append('toU32', x);
  // Bytes wrap here: in a fused kernel they may be read without having been stored. Floats go by way of i32, as negative ones have no u32.
  if (dtype === 'u8') return p.append('and', p.append('toU32', p.append('toI32', x)), p.constant(0xff, 'u32'));
  if (dtype === 'i8') {
    const shift = p.constant(24, 'i32');
    return p.append('shr', p.append('shl', p.append('toI32', x), shift), shift);
  }
  return p.append(dtype === 'bool' ? 'toBool' : 'toF32', x);
}

/** An operand [outputs, channels, ...] in the order of dimensions in which the channels are last. @param {Operand} operand @returns {Operand} */
function reordered({ buffer, offset, layout: { shape, strides, dtype } }) {
  const [sizes, steps] = [shape, strides].map((list) => channelsLast(shape.length).map((d) => list[d]));
  return { buffer, offset, layout: layoutOf(sizes, steps, offset, dtype) };
}

/** The elements in another type; with `last` stored with dimension 1 last. @type {Op} */
export const cast = defineOp({
  name: 'to',
  strided: true,
  infer: ([x], /** @type {{ dtype: DType, last?: boolean }} */ { dtype, last }) => [
    last ? channelsLastLayout(x.shape, dtype) : denseLayout(x.shape, dtype),
  ],
  prepare: (inputs, run) => inOrder('to', inputs, run),
  body: (program, [x], { dtype }) => converted(program, x, dtype),
  lower: (k, [x], [y], { dtype, last }) => {
    const { dtype: from } = x.layout;
    const [own, made] = last ? [reordered(x), reordered(y)] : [x, y];
    const dispatch = map(k.context, [own], [made], (program, values) =>
      isFloat(from) && isFloat(dtype) ? values : [converted(program, values[0], dtype)],
    );
    if (!dispatch)
      throw new ArgumentError('to', `no kernel converts strides [${x.layout.strides}], of so many dimensions: call contiguous() first`);
    return [dispatch];
  },
  vjp: (dy, { layouts: [x] }, F) => [isFloat(x.dtype) ? F.to(dy, x.dtype) : undefined],
  oracle: ([x], { dtype }) => mapped(x, isFloat(dtype) ? (v) => v : dtype === 'bool' ? (v) => Number(v !== 0) : Math.trunc),
});

/** A tensor of one value. */
export const fill = defineOp({
  name: 'full',
  infer: (_, /** @type {{ shape: number[], value: number, dtype: DType }} */ { shape, dtype }) => [denseLayout(shape, dtype)],
  lower: (k, _, [y], { value: number, dtype }) => {
    if (dtype === 'i64') {
      const dispatch = map(k.context, [], [y], (_, __, numbers) => numbers({ value: number, type: dtype }));
      return [/** @type {import('../../kernels/base.mjs').Dispatch} */ (dispatch)];
    }
    const value = dtype === 'bool' ? Number(number !== 0) : number;
    if (isByte(dtype)) return [k.fill({ y, count: Math.ceil(y.layout.size / 4), value: ((value & 0xff) * 0x01010101) >>> 0, type: 'u32' })];
    const type = isFloat(dtype) ? dtype : 'u32';
    return [k.fill({ y, count: flatCount(y.layout), value: type === 'u32' ? value >>> 0 : Number(value), type })];
  },
  oracle: (_, { shape, value }) => generate(shape, () => Number(value)),
});

/** The same elements in another shape. */
export const reshape = defineOp({
  name: 'reshape',
  infer: ([x], /** @type {{ shape: number[] }} */ { shape }) => [denseLayout(shape, x.dtype)],
  lower: () => [],
  vjp: (dy, { layouts: [x] }, F) => [F.reshape(dy, x.shape)],
  oracle: ([x], { shape }) => ({ shape, data: x.data }),
});

/** The dimensions in another order. @type {Op} */
export const permute = defineOp({
  name: 'permute',
  infer: ([x], /** @type {{ order: number[] }} */ { order }) => [
    layoutOf(
      order.map((d) => x.shape[d]),
      order.map((d) => x.strides[d]),
      x.offset,
      x.dtype,
    ),
  ],
  lower: () => [],
  vjp: (dy, { attributes: { order } }, F) => {
    const inverse = new Array(order.length);
    order.forEach((d, i) => {
      inverse[d] = i;
    });
    return [F.permute(dy, inverse)];
  },
  oracle: ([x], { order }) =>
    generate(
      order.map((d) => x.shape[d]),
      (index) => {
        const from = new Array(order.length);
        order.forEach((d, i) => {
          from[d] = index[i];
        });
        return at(x, from);
      },
    ),
});

/** Repeats sizes of 1 up to a larger shape, without a copy. */
export const expand = defineOp({
  name: 'expand',
  infer: ([x], /** @type {{ shape: number[] }} */ { shape }) => [broadcastLayout(x, shape)],
  lower: () => [],
  vjp: (dy, { layouts: [x] }, F) => [F.sumTo(dy, x.shape)],
  oracle: ([x], { shape }) => generate(shape, (index) => at(x, index)),
});

/** `length` elements of a dimension from `start` on, `step` apart. */
export const slice = defineOp({
  name: 'slice',
  infer: ([x], /** @type {SliceAttributes} */ { dim, start, length, step }) => [
    layoutOf(x.shape.with(dim, length), x.strides.with(dim, x.strides[dim] * step), x.offset + start * x.strides[dim], x.dtype),
  ],
  lower: () => [],
  vjp: (dy, { layouts: [x], attributes }, F) => [
    // A slice of all elements: dy is the gradient.
    attributes.length === x.shape[attributes.dim]
      ? dy
      : F.to(F.call(sliceBackward, [F.to(dy, 'f32')], { ...attributes, shape: x.shape }), x.dtype),
  ],
  oracle: ([x], { dim, start, length, step }) =>
    generate(x.shape.with(dim, length), (index) => at(x, index.with(dim, start + index[dim] * step))),
});

/** The gradient of a slice: zeros, with dy at the slice's elements. */
const sliceBackward = defineOp({
  name: 'sliceBackward',
  strided: true,
  empty: 0,
  infer: ([dy], /** @type {SliceAttributes & { shape: number[] }} */ { shape }) => [denseLayout(shape, dy.dtype)],
  lower: (k, [dy], [dx], { dim, start, step }) => {
    const { shape, dtype } = dx.layout;
    const strides = denseStrides(shape);
    const part = layoutOf(dy.layout.shape, strides.with(dim, strides[dim] * step), start * strides[dim], dtype);
    const zero = k.fill({ y: dx, count: flatCount(dx.layout), value: 0, type: isHalf(dx.layout) ? floatType('slice', dx.layout) : 'f32' });
    return [zero, ...move(k, dy, { buffer: dx.buffer, offset: part.offset, layout: part }, 'slice')];
  },
  vjp: (dx, { attributes: { dim, start, length, step } }, F) => [
    F.slice(dx, dim, start, length === 0 ? start : start + (length - 1) * step + 1, step),
  ],
  oracle: ([dy], { shape, dim, start, length, step }) =>
    generate(shape, (index) => {
      const i = (index[dim] - start) / step;
      return Number.isInteger(i) && i >= 0 && i < length ? at(dy, index.with(dim, i)) : 0;
    }),
});

/** Tensors end to end along a dimension. */
export const concat = defineOp({
  name: 'cat',
  strided: true,
  empty: 'lower',
  infer: (inputs, /** @type {{ dim: number }} */ { dim }) => [
    denseLayout(
      inputs[0].shape.with(
        dim,
        inputs.reduce((sum, x) => sum + x.shape[dim], 0),
      ),
      inputs[0].dtype,
    ),
  ],
  lower: (k, inputs, [y], { dim }) => {
    const strides = denseStrides(y.layout.shape);
    let start = 0;
    return inputs.flatMap((x) => {
      const part = layoutOf(x.layout.shape, strides, start * strides[dim], y.layout.dtype);
      start += x.layout.shape[dim];
      return x.layout.size === 0 ? [] : move(k, x, { buffer: y.buffer, offset: part.offset, layout: part }, 'cat');
    });
  },
  vjp: (dy, { layouts, needs, attributes: { dim } }, F) => {
    let start = 0;
    return layouts.map((x, i) => {
      const from = start;
      start += x.shape[dim];
      return needs[i] ? F.slice(dy, dim, from, start) : undefined;
    });
  },
  oracle: (inputs, { dim }) => {
    const size = inputs.reduce((sum, x) => sum + x.shape[dim], 0);
    return generate(inputs[0].shape.with(dim, size), (index) => {
      let i = index[dim];
      let k = 0;
      while (i >= inputs[k].shape[dim]) i -= inputs[k++].shape[dim];
      return at(inputs[k], index.with(dim, i));
    });
  },
});

setWriters({ fill, copy });

/** Writes the second input over the first, which may have any strides. */
export const write = defineOp({
  name: 'copy_',
  strided: true,
  infer: ([target]) => [target],
  lower: (k, [, x], [y]) => move(k, x, y, 'copy_'),
  oracle: ([, x]) => x,
});
