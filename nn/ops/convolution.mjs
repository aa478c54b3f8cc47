// Convolutions of one to three dimensions. The three operations are each other's gradients: the result, the gradient of x (which is the
// transposed convolution of dy), and that of the weight.

import { apply } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show } from '../core/errors.mjs';
import { channelsFirst, channelsLast, channelsLastLayout, denseLayout, isChannelsLast, sizeOf } from '../core/layout.mjs';
import { runtime } from '../core/runtime.mjs';
import { linear } from './matmul.mjs';
import { floatType } from './pointwise.mjs';
import { at, generate } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('./registry.mjs').Op} Op */
/** @typedef {import('./registry.mjs').Operand} Operand */
/** @typedef {import('./registry.mjs').Reference} Reference */

/**
 * How windows go over x, one number for each direction.
 * @typedef {object} Windows
 * @property {number[]} stride
 * @property {number[]} padding zeros before x
 * @property {number[]} dilation
 * @property {number} groups
 * @property {boolean} [last] whether the result is stored with the channels last
 */
/** `after`: zeros after x. @typedef {Windows & { after: number[] }} Forward */
/** `size`: sizes of x. @typedef {Windows & { size: number[] }} Input */
/** `window`: its sizes. @typedef {Windows & { window: number[] }} Weight */

/**
 * Positions of a window, in each direction: ⌊(size + zeros - reach) / stride⌋ + 1.
 * @param {readonly number[]} size @param {readonly number[]} window @param {Omit<Forward, 'groups'>} how
 */
export const positions = (size, window, { stride, padding, after, dilation }) =>
  size.map((n, d) => Math.floor((n + padding[d] + after[d] - (window[d] - 1) * dilation[d] - 1) / stride[d]) + 1);

/** @param {Windows} attributes */
const plain = ({ stride, padding, dilation, groups }) => ({ stride, padding, dilation, groups });

/** Throws unless both have one floating-point type, and a bias f32. @param {string} op @param {Layout[]} inputs */
function checkTypes(op, [a, b, bias]) {
  floatType(op, a);
  if (a.dtype !== b.dtype) throw new ArgumentError(op, `takes tensors of one type, got ${a.dtype} and ${b.dtype}`);
  if (bias && bias.dtype !== 'f32') throw new ArgumentError(op, `takes a bias of f32, got ${bias.dtype}`);
}

/** The layout of a result: with the attribute `last` its channels are the last in memory. @param {number[]} shape @param {Layout} x @param {{ last?: boolean }} how */
const resultLayout = (shape, { dtype }, { last = false }) => (last ? channelsLastLayout(shape, dtype) : denseLayout(shape, dtype));

/** Channels of which kernels on matrix units read eight at a time: whole steps of their sums, or many. @param {number} n */
const isVectored = (n) => n % 32 === 0 || (n >= 256 && n % 8 === 0);

/** Whether each element of the result depends on one position. @param {Tensor} weight @param {Forward} how */
const isPointwise = ({ shape }, { stride, padding, after }) =>
  shape.slice(2).every((n) => n === 1) && stride.every((n) => n === 1) && [...padding, ...after].every((n) => n === 0);

/** x with its dimension `d` last in memory, if it is not already. @param {Tensor} x @param {number} d @param {number[]} order of the others */
function withLast(x, d, order) {
  if (x.layout.strides[d] === 1) return x;
  const all = [...order, d];
  return x
    .permute(...all)
    .contiguous()
    .permute(...all.map((_, i) => all.indexOf(i)));
}

/**
 * The call in a type that the device has a kernel for. Images may have any strides. Kernels for half types read channels that are neighbours in
 * memory eight at a time: to copy an image so takes far less time than to gather its elements one by one. So their results are stored channels
 * last, and what is computed of these element by element is too: between convolutions nothing is copied.
 * @param {Tensor[]} inputs @param {(inputs: Tensor[], attributes?: import('./registry.mjs').Attributes) => Tensor} run
 * @param {Windows} attributes @param {'forward' | 'input' | 'weight'} what
 */
function prepared([a, b, ...last], run, attributes, what) {
  const { groups } = attributes;
  const { dtype } = a;
  const own = what === 'weight' || isChannelsLast(b.layout) ? b : b.contiguous();
  const bias = last.map((x) => x.contiguous());
  if (a.dtype !== b.dtype || dtype === 'f32') return run([a, own, ...bias]);
  if (!runtime().kernels.convolutionSupports(/** @type {'f16'} */ (dtype))) return run([a.to('f32'), own.to('f32'), ...bias]).to(dtype);
  const [channels, directions] = [a.shape[1], a.shape.slice(2).map((_, i) => 2 + i)];
  const image = (/** @type {Tensor} */ x) => withLast(x, 1, [0, ...directions]);
  if (groups !== 1) {
    // A channel with a window of its own: the kernel takes eight channels at a time.
    const isApart = what === 'weight' ? b.shape[1] === groups : b.shape[0] === groups && b.shape[1] === 1;
    const isDepthwise = isApart && channels === groups && groups % 8 === 0 && directions.length < 3;
    if (!isDepthwise) return run([a, own, ...bias]);
    return what === 'weight' ? run([image(a), image(b)]) : run([image(a), own, ...bias], { ...attributes, last: true });
  }
  const made = what === 'forward' ? b.shape[0] : b.shape[1];
  const how = what !== 'weight' && isVectored(made) ? { ...attributes, last: true } : attributes;
  if (!isVectored(channels)) return run([a, own, ...bias], how);
  // A window of one element: channels are the columns of a matrix, and the convolution is its product.
  if (what === 'forward' && made % 8 === 0 && isPointwise(b, /** @type {Forward} */ (attributes))) {
    const rows = image(a).permute(...channelsLast(a.ndim));
    return apply(linear, [rows, own.reshape(made, channels), ...bias]).permute(...channelsFirst(a.ndim));
  }
  if (what === 'weight') return b.shape[1] % 8 ? run([a, b]) : run([image(a), image(b)]);
  return run([image(a), what === 'forward' ? image(own) : withLast(own, 0, [1, ...directions]), ...bias], how);
}

/**
 * The arguments of kernels.
 * @param {Layout} x @param {Layout} weight @param {Layout} y @param {Windows} attributes
 */
const sizes = (x, { shape: weight, strides }, y, attributes) => ({
  batch: x.shape[0],
  channels: x.shape[1],
  outputs: y.shape[1],
  size: x.shape.slice(2),
  window: weight.slice(2),
  result: y.shape.slice(2),
  xStrides: [...x.strides],
  yStrides: [...y.strides],
  weightStrides: [...strides],
  type: floatType('convolution', x),
  ...plain(attributes),
});

/** Multiplications and additions. @param {Layout} y @param {readonly number[]} weight its shape */
const flops = (y, weight) => 2 * y.size * sizeOf(weight.slice(1));

/** @param {Reference} x @param {readonly number[]} place that may be outside, where x is zero */
const orZero = (x, place) => (place.some((p, d) => p < 0 || p >= x.shape[d]) ? 0 : at(x, place));

/**
 * What is left of a convolution without products.
 * @param {import('../api/tensor.mjs').Tensor[]} inputs
 */
const biasAlone = ([x, , bias]) => [bias ? bias.detach().reshape(bias.size, ...x.shape.slice(2).map(() => 1)) : 0];

/** y = x ⋆ weight + bias: x [batch, channels, ...size], weight [outputs, channels / groups, ...window], bias [outputs]. @type {Op} */
export const convolution = defineOp({
  name: 'convolution',
  empty: biasAlone,
  strided: true,
  infer: ([x, w, ...bias], /** @type {Forward} */ attributes) => {
    checkTypes('convolution', [x, w, ...bias]);
    const result = positions(x.shape.slice(2), w.shape.slice(2), attributes);
    return [resultLayout([x.shape[0], w.shape[0], ...result], x, attributes)];
  },
  prepare: (inputs, run, attributes) => prepared(inputs, run, /** @type {Windows} */ (attributes), 'forward'),
  lower: (k, [x, w, bias], [y], attributes) => k.convolution({ x, weight: w, y, bias, ...sizes(x.layout, w.layout, y.layout, attributes) }),
  flops: ([, w], [y]) => flops(y, w.shape),
  saveInputs: ([x, w]) => [...(w ? [0] : []), ...(x ? [1] : [])],
  vjp: (dy, { inputs: [x, w], layouts, needs, attributes }, F) => [
    needs[0] ? F.call(convolutionInput, [dy, w], { ...plain(attributes), size: layouts[0].shape.slice(2) }) : undefined,
    needs[1] ? F.call(convolutionWeight, [x, dy], { ...plain(attributes), window: layouts[1].shape.slice(2) }) : undefined,
    needs[2] ? biasGradient(dy, F) : undefined,
  ],
  oracle: ([x, w, bias], attributes) => {
    const { stride, padding, dilation, groups } = attributes;
    const result = positions(x.shape.slice(2), w.shape.slice(2), attributes);
    const [made, own] = [w.shape[0] / groups, w.shape[1]];
    return generate([x.shape[0], w.shape[0], ...result], ([b, o, ...q]) => {
      let sum = bias ? bias.data[o] : 0;
      const first = Math.floor(o / made) * own;
      generate([own, ...w.shape.slice(2)], ([c, ...j]) => {
        const place = q.map((p, d) => p * stride[d] - padding[d] + j[d] * dilation[d]);
        sum += orZero(x, [b, first + c, ...place]) * at(w, [o, c, ...j]);
        return 0;
      });
      return sum;
    });
  },
});

/** The sum over images and positions, in f32. @param {Tensor} dy @param {import('./registry.mjs').Functions} F */
const biasGradient = (dy, F) =>
  F.sum(
    F.to(dy, 'f32'),
    dy.shape.flatMap((_, d) => (d === 1 ? [] : [d])),
  );

/**
 * The gradient of x in a convolution from that of y, plus a bias: the transposed convolution. dy [batch, outputs, ...positions], weight
 * [outputs, channels / groups, ...window], bias [channels].
 * @type {Op}
 */
export const convolutionInput = defineOp({
  name: 'convolutionInput',
  empty: biasAlone,
  strided: true,
  infer: ([dy, w, ...bias], /** @type {Input} */ attributes) => {
    checkTypes('convolutionInput', [dy, w, ...bias]);
    return [resultLayout([dy.shape[0], w.shape[1] * attributes.groups, ...attributes.size], dy, attributes)];
  },
  prepare: (inputs, run, attributes) => prepared(inputs, run, /** @type {Windows} */ (attributes), 'input'),
  lower: (k, [dy, w, bias], [dx], attributes) =>
    k.convolutionInput({ dy, weight: w, dx, bias, ...sizes(dx.layout, w.layout, dy.layout, attributes) }),
  flops: ([dy, w]) => flops(dy, w.shape),
  saveInputs: ([dy, w]) => [...(w ? [0] : []), ...(dy ? [1] : [])],
  vjp: (dx, { inputs: [dy, w], layouts, needs, attributes }, F) => [
    needs[0]
      ? F.call(convolution, [dx, w], {
          ...plain(attributes),
          after: missing(layouts[0], layouts[1].shape.slice(2), attributes.size, attributes),
        })
      : undefined,
    needs[1] ? F.call(convolutionWeight, [dx, dy], { ...plain(attributes), window: layouts[1].shape.slice(2) }) : undefined,
    needs[2] ? biasGradient(dx, F) : undefined,
  ],
  oracle: ([dy, w, bias], { stride, padding, dilation, groups, size }) => {
    const [made, own] = [w.shape[0] / groups, w.shape[1]];
    return generate([dy.shape[0], own * groups, ...size], ([b, c, ...i]) => {
      let sum = bias ? bias.data[c] : 0;
      const first = Math.floor(c / own) * made;
      generate([made, ...w.shape.slice(2)], ([o, ...j]) => {
        const place = i.map((p, d) => (p + padding[d] - j[d] * dilation[d]) / stride[d]);
        if (place.every(Number.isInteger)) sum += orZero(dy, [b, first + o, ...place]) * at(w, [first + o, c % own, ...j]);
        return 0;
      });
      return sum;
    });
  },
});

/**
 * Zeros after x with which a convolution of x has as many positions as dy.
 * @param {Layout} dy @param {readonly number[]} window its sizes @param {readonly number[]} size of x @param {Windows} attributes
 */
const missing = (dy, window, size, { stride, padding, dilation }) =>
  size.map((n, d) => (dy.shape[2 + d] - 1) * stride[d] + (window[d] - 1) * dilation[d] + 1 - n - padding[d]);

/** The gradient of the weight in a convolution from x [batch, channels, ...size] and dy [batch, outputs, ...positions]. @type {Op} */
export const convolutionWeight = defineOp({
  name: 'convolutionWeight',
  empty: 0,
  strided: true,
  infer: ([x, dy], /** @type {Weight} */ { groups, window }) => {
    checkTypes('convolutionWeight', [x, dy]);
    if (x.shape[0] !== dy.shape[0])
      throw new ShapeError('convolutionWeight', `x ${show(x.shape)} and dy ${show(dy.shape)} have different batches`);
    return [denseLayout([dy.shape[1], x.shape[1] / groups, ...window], x.dtype)];
  },
  prepare: (inputs, run, attributes) => prepared(inputs, run, /** @type {Windows} */ (attributes), 'weight'),
  lower: (k, [x, dy], [dw], attributes) =>
    k.convolutionWeight({
      x,
      dy,
      dWeight: dw,
      weightType: floatType('convolutionWeight', dw.layout),
      ...sizes(x.layout, dw.layout, dy.layout, attributes),
    }),
  flops: ([, dy], [dw]) => flops(dy, dw.shape),
  saveInputs: ([x, dy]) => [...(dy ? [0] : []), ...(x ? [1] : [])],
  vjp: (dw, { inputs: [x, dy], layouts, needs, attributes }, F) => [
    needs[0] ? F.call(convolutionInput, [dy, dw], { ...plain(attributes), size: layouts[0].shape.slice(2) }) : undefined,
    needs[1]
      ? F.call(convolution, [x, dw], {
          ...plain(attributes),
          after: missing(layouts[1], attributes.window, layouts[0].shape.slice(2), attributes),
        })
      : undefined,
  ],
  oracle: ([x, dy], { stride, padding, dilation, groups, window }) => {
    const [made, own] = [dy.shape[1] / groups, x.shape[1] / groups];
    return generate([dy.shape[1], own, ...window], ([o, c, ...j]) => {
      let sum = 0;
      const channel = Math.floor(o / made) * own + c;
      generate([dy.shape[0], ...dy.shape.slice(2)], ([b, ...q]) => {
        const place = q.map((p, d) => p * stride[d] - padding[d] + j[d] * dilation[d]);
        sum += orZero(x, [b, channel, ...place]) * at(dy, [b, o, ...q]);
        return 0;
      });
      return sum;
    });
  },
});
