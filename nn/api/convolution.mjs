// Convolutions of one to three dimensions, transposed ones, and `upsample`.

import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import * as F from './functional.mjs';
import * as ops from '../ops/convolution.mjs';
import { apply, tensorOf } from '../core/engine.mjs';
import { positive } from '../core/layout.mjs';
import { checkOptions } from '../core/options.mjs';
import { operand, promoted, toF32 } from './operands.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {number | [number, number]} Pair one number for both directions, or [down, across] */

/** @typedef {number | [number]} Single */
/** @typedef {number | [number, number, number]} Triple one number for all directions, or [deep, down, across] */

/**
 * Options of `conv1d`.
 * @typedef {object} Convolution1dOptions
 * @property {Single} [stride] elements from one position of the window to the next; 1 when left out
 * @property {Single | [number, number][] | 'same' | 'valid'} [padding] zeros added on each end; or [before, after] of each direction; or 'same', as many as
 *   keep the sizes, with a stride of 1; 'valid' is 0, as when left out
 * @property {Single} [dilation] elements from one element of the window to the next; 1 when left out
 * @property {number} [groups] parts that the channels are divided into, each convolved by itself; 1 when left out
 */

/**
 * Options of `conv2d`.
 * @typedef {object} ConvolutionOptions
 * @property {Pair} [stride] elements from one position of the window to the next; 1 when left out
 * @property {Pair | [number, number][] | 'same' | 'valid'} [padding] zeros added on each side; or [before, after] of each direction; or 'same', as many as
 *   keep the sizes, with a stride of 1; 'valid' is 0, as when left out
 * @property {Pair} [dilation] elements from one element of the window to the next; 1 when left out
 * @property {number} [groups] parts that the channels are divided into, each convolved by itself; 1 when left out
 */

/**
 * Options of `conv3d`.
 * @typedef {object} Convolution3dOptions
 * @property {Triple} [stride] elements from one position of the window to the next; 1 when left out
 * @property {Triple | [number, number][] | 'same' | 'valid'} [padding] zeros added on each side; or [before, after] of each direction; or 'same', as many as
 *   keep the sizes, with a stride of 1; 'valid' is 0, as when left out
 * @property {Triple} [dilation] elements from one element of the window to the next; 1 when left out
 * @property {number} [groups] parts that the channels are divided into, each convolved by itself; 1 when left out
 */

/**
 * Options of `convTranspose1d`.
 * @typedef {object} Transposed1dOptions
 * @property {Single} [stride] elements from one position of the window to the next; 1 when left out
 * @property {Single | [number, number][] | 'valid'} [padding] elements left out at each end of the result; or [before, after] of each direction; 0
 *   when left out
 * @property {Single} [outputPadding] further elements after the result, fewer than the stride or the dilation; 0 when left out
 * @property {Single} [dilation] elements from one element of the window to the next; 1 when left out
 * @property {number} [groups] parts that the channels are divided into, each convolved by itself; 1 when left out
 */

/**
 * Options of `convTranspose2d`.
 * @typedef {object} TransposedOptions
 * @property {Pair} [stride] elements from one position of the window to the next; 1 when left out
 * @property {Pair | [number, number][] | 'valid'} [padding] elements left out at each side of the result; or [before, after] of each direction; 0
 *   when left out
 * @property {Pair} [outputPadding] further elements after the result, fewer than the stride or the dilation; 0 when left out
 * @property {Pair} [dilation] elements from one element of the window to the next; 1 when left out
 * @property {number} [groups] parts that the channels are divided into, each convolved by itself; 1 when left out
 */

/**
 * Options of `convTranspose3d`.
 * @typedef {object} Transposed3dOptions
 * @property {Triple} [stride] elements from one position of the window to the next; 1 when left out
 * @property {Triple | [number, number][] | 'valid'} [padding] elements left out at each side of the result; or [before, after] of each direction; 0
 *   when left out
 * @property {Triple} [outputPadding] further elements after the result, fewer than the stride or the dilation; 0 when left out
 * @property {Triple} [dilation] elements from one element of the window to the next; 1 when left out
 * @property {number} [groups] parts that the channels are divided into, each convolved by itself; 1 when left out
 */

/**
 * Repeats each element `scale` times along rows and columns: PyTorch's `interpolate` with an integer `scale_factor` and mode 'nearest'.
 * @param {Tensor} x [batch, channels, rows, columns] @param {Pair} scale
 * @returns {Tensor} [batch, channels, rows · scale, columns · scale]
 */
export function upsample(x, scale) {
  checkImage('upsample', x, 2);
  const [down, across] = each('upsample', 'scale', scale, 1, 2);
  const [batch, channels, rows, columns] = x.shape;
  return within('upsample', () => {
    const wide = F.expand(F.reshape(x, [batch, channels, rows, 1, columns, 1]), [batch, channels, rows, down, columns, across]);
    return F.reshape(wide, [batch, channels, rows * down, columns * across]);
  });
}

/** What a direction is called in messages, and what its sizes are. */
const DIRECTIONS = [['steps'], ['rows', 'columns'], ['planes', 'rows', 'columns']];
const WINDOWS = [['window'], ['down', 'across'], ['deep', 'down', 'across']];

/**
 * Checks one number for all directions, or one for each, and returns one for each.
 * @param {string} op @param {string} name of the option, for the error @param {unknown} value @param {number} least @param {number} rank
 * @returns {number[]}
 */
export function each(op, name, value, least, rank) {
  const list = Array.isArray(value) ? value : new Array(rank).fill(value);
  if (list.length !== rank || list.some((size) => !Number.isInteger(size) || size < least || size > MAX_SIZE)) {
    const many = rank === 1 ? '' : `, or ${['two', 'three'][rank - 2]} of them, [${WINDOWS[rank - 1].join(', ')}]`;
    const limits = typeof value === 'number' && value > MAX_SIZE ? `in [${least}, ${MAX_SIZE}]` : `of at least ${least}`;
    throw new ArgumentError(op, `${name} must be an integer ${limits}${many}, got ${shown(value)}`);
  }
  return [...list];
}

/** Throws unless both numbers of channels divide into groups. @param {string} op @param {unknown} groups @param {number} inputs @param {number} outputs */
export function checkGroups(op, groups, inputs, outputs) {
  const own = positive(op, 'groups', groups);
  if (inputs % own || outputs % own) throw new ShapeError(op, `${inputs} inputs and ${outputs} outputs are not multiples of ${own} groups`);
}

/** Kernels compute coordinates in 32 bits. */
const MAX_SIZE = 0x3fffffff;

/**
 * Zeros before and after x, in each direction.
 * @param {string} op @param {unknown} padding @param {number} rank
 * @param {number[]} [reach] of the window, from its first element to its last; of `padding` by name
 * @returns {[before: number, after: number][]}
 */
export function zeros(op, padding, rank, reach = new Array(rank).fill(1)) {
  if (padding === 'valid') return reach.map(() => [0, 0]);
  // Where the zeros are odd in number, the last ones are more, as in PyTorch.
  if (padding === 'same') return reach.map((n) => [Math.floor((n - 1) / 2), Math.ceil((n - 1) / 2)]);
  if (typeof padding === 'string') throw new ArgumentError(op, `padding must be 'same', 'valid' or integers, got ${shown(padding)}`);
  if (Array.isArray(padding) && padding.length === rank && padding.every(Array.isArray)) {
    const flat = padding.flat();
    if (padding.some((own) => own.length !== 2) || flat.some((n) => !Number.isInteger(n) || n < 0 || n > MAX_SIZE))
      throw new ArgumentError(op, `padding must have [before, after] of at least 0 for each direction, got ${shown(padding)}`);
    return padding.map(([before, after]) => [before, after]);
  }
  return each(op, 'padding', padding, 0, rank).map((n) => [n, n]);
}

/** @param {Tensor} x @param {Tensor} weight @param {Tensor | undefined} bias @returns {Tensor[]} in the types of kernels */
function operands(x, weight, bias) {
  const both = promoted(operand(x), operand(weight, true));
  return bias ? [...both, toF32(bias)] : both;
}

/** Throws unless x is a batch of images of this rank. @param {string} op @param {Tensor} x @param {number} rank */
export function checkImage(op, x, rank) {
  if (tensorOf(op, x).ndim !== rank + 2)
    throw new ShapeError(op, `expected an input [batch, channels, ${DIRECTIONS[rank - 1].join(', ')}], got ${show(x.shape)}`);
}

/** @param {string} op @param {Tensor | undefined} bias @param {number} outputs */
function checkBias(op, bias, outputs) {
  if (bias !== undefined && show(tensorOf(op, bias).shape) !== show([outputs]))
    throw new ShapeError(op, `${outputs} outputs need a bias [${outputs}], got ${show(bias.shape)}`);
}

/**
 * @param {string} op @param {number} rank @param {Tensor} x @param {Tensor} weight @param {Tensor | undefined} bias
 * @param {{ stride?: unknown, padding?: unknown, dilation?: unknown, groups?: unknown }} options
 */
function convolve(op, rank, x, weight, bias, options) {
  const { stride = 1, padding = 0, dilation = 1, groups = 1 } = checkOptions(op, options, ['stride', 'padding', 'dilation', 'groups']);
  checkImage(op, x, rank);
  const own = positive(op, 'groups', groups);
  const channels = x.shape[1];
  if (channels % own) throw new ShapeError(op, `${channels} channels of an input ${show(x.shape)} are not a multiple of ${own} groups`);
  if (tensorOf(op, weight).ndim !== rank + 2 || weight.shape[1] !== channels / own) {
    const wanted = ['outputs', channels / own, ...WINDOWS[rank - 1]].join(', ');
    throw new ShapeError(op, `an input ${show(x.shape)} needs a weight [${wanted}], got ${show(weight.shape)}`);
  }
  const [outputs, , ...window] = weight.shape;
  if (outputs % own) throw new ShapeError(op, `${outputs} outputs of a weight ${show(weight.shape)} are not a multiple of ${own} groups`);
  checkBias(op, bias, outputs);
  const steps = each(op, 'stride', stride, 1, rank);
  const dilations = each(op, 'dilation', dilation, 1, rank);
  const reach = window.map((n, d) => (n - 1) * dilations[d] + 1);
  if (padding === 'same' && steps.some((n) => n !== 1))
    throw new ArgumentError(op, `padding 'same' needs a stride of 1, got ${shown(stride)}`);
  const around = zeros(op, padding, rank, reach);
  const attributes = {
    stride: steps,
    padding: around.map(([before]) => before),
    after: around.map(([, after]) => after),
    dilation: dilations,
    groups: own,
  };
  const size = x.shape.slice(2);
  if (ops.positions(size, window, attributes).some((n) => !(n >= 1))) {
    const whole = [...x.shape.slice(0, 2), ...size.map((n, d) => n + around[d][0] + around[d][1])];
    const wide = reach.every((n, d) => n === window[d]) ? '' : ` with dilation ${show(dilations)}`;
    throw new ShapeError(op, `a window ${show(window)}${wide} does not fit into the padded input ${show(whole)}`);
  }
  return within(op, () => apply(ops.convolution, operands(x, weight, bias), attributes));
}

/**
 * @param {string} op @param {number} rank @param {Tensor} x @param {Tensor} weight @param {Tensor | undefined} bias
 * @param {{ stride?: unknown, padding?: unknown, outputPadding?: unknown, dilation?: unknown, groups?: unknown }} options
 */
function convolveTransposed(op, rank, x, weight, bias, options) {
  const names = /** @type {const} */ (['stride', 'padding', 'outputPadding', 'dilation', 'groups']);
  const { stride = 1, padding = 0, outputPadding = 0, dilation = 1, groups = 1 } = checkOptions(op, options, names);
  checkImage(op, x, rank);
  const own = positive(op, 'groups', groups);
  const channels = x.shape[1];
  if (channels % own) throw new ShapeError(op, `${channels} channels of an input ${show(x.shape)} are not a multiple of ${own} groups`);
  if (tensorOf(op, weight).ndim !== rank + 2 || weight.shape[0] !== channels) {
    const wanted = [channels, own === 1 ? 'outputs' : `outputs / ${own}`, ...WINDOWS[rank - 1]].join(', ');
    throw new ShapeError(op, `an input ${show(x.shape)} needs a weight [${wanted}], got ${show(weight.shape)}`);
  }
  checkBias(op, bias, weight.shape[1] * own);
  const steps = each(op, 'stride', stride, 1, rank);
  const dilations = each(op, 'dilation', dilation, 1, rank);
  const around = zeros(op, padding, rank);
  const more = each(op, 'outputPadding', outputPadding, 0, rank);
  more.forEach((n, d) => {
    // As in PyTorch: further elements would be of no window's.
    if (n >= Math.max(steps[d], dilations[d]))
      throw new ArgumentError(op, `outputPadding must be smaller than the stride or the dilation, got ${shown(outputPadding)}`);
  });
  const window = weight.shape.slice(2);
  const size = window.map((n, d) => (x.shape[2 + d] - 1) * steps[d] + (n - 1) * dilations[d] + 1 - around[d][0] - around[d][1] + more[d]);
  if (size.some((n) => n < 1))
    throw new ShapeError(op, `padding ${shown(padding)} leaves nothing of the result for an input ${show(x.shape)}`);
  const attributes = { stride: steps, padding: around.map(([before]) => before), dilation: dilations, groups: own, size };
  return within(op, () => apply(ops.convolutionInput, operands(x, weight, bias), attributes));
}

/**
 * One-dimensional convolution, as `conv2d` is for two: steps' = ⌊(steps + padding - dilation · (window - 1) - 1) / stride⌋ + 1 with all zeros
 * added as padding.
 * @param {Tensor} x [batch, channels, steps] @param {Tensor} weight [outputs, channels / groups, window]
 * @param {Tensor} [bias] [outputs]
 * @param {Convolution1dOptions} [options]
 * @returns {Tensor} [batch, outputs, steps']
 */
export function conv1d(x, weight, bias, options = {}) {
  return convolve('conv1d', 1, x, weight, bias, options);
}

/**
 * Two-dimensional convolution; as in every framework, it is a cross-correlation. rows' = ⌊(rows + zeros - dilation · (down - 1) - 1) /
 * stride⌋ + 1 with all zeros that padding adds to a column, and so for columns'. Throws a ShapeError if the channels differ, or if the window
 * is larger than the padded image. The result has the type that x and the weight are promoted to.
 * @param {Tensor} x [batch, channels, rows, columns] @param {Tensor} weight [outputs, channels / groups, down, across]
 * @param {Tensor} [bias] [outputs]
 * @param {ConvolutionOptions} [options]
 * @returns {Tensor} [batch, outputs, rows', columns']
 */
export function conv2d(x, weight, bias, options = {}) {
  return convolve('conv2d', 2, x, weight, bias, options);
}

/**
 * Three-dimensional convolution, as `conv2d` is for two.
 * @param {Tensor} x [batch, channels, planes, rows, columns] @param {Tensor} weight [outputs, channels / groups, deep, down, across]
 * @param {Tensor} [bias] [outputs]
 * @param {Convolution3dOptions} [options]
 * @returns {Tensor} [batch, outputs, planes', rows', columns']
 */
export function conv3d(x, weight, bias, options = {}) {
  return convolve('conv3d', 3, x, weight, bias, options);
}

/**
 * One-dimensional transposed convolution, as `convTranspose2d` is for two.
 * @param {Tensor} x [batch, channels, steps] @param {Tensor} weight [channels, outputs / groups, window]
 * @param {Tensor} [bias] [outputs]
 * @param {Transposed1dOptions} [options]
 * @returns {Tensor} [batch, outputs, steps']
 */
export function convTranspose1d(x, weight, bias, options = {}) {
  return convolveTransposed('convTranspose1d', 1, x, weight, bias, options);
}

/**
 * Two-dimensional transposed convolution: the gradient of `conv2d` with these options with respect to its input, as PyTorch's
 * `conv_transpose2d`. rows' = (rows - 1) · stride - zeros + dilation · (down - 1) + outputPadding + 1, where zeros are those that the
 * convolution adds to a column, and so for columns'.
 * @param {Tensor} x [batch, channels, rows, columns] @param {Tensor} weight [channels, outputs / groups, down, across]
 * @param {Tensor} [bias] [outputs]
 * @param {TransposedOptions} [options]
 * @returns {Tensor} [batch, outputs, rows', columns']
 */
export function convTranspose2d(x, weight, bias, options = {}) {
  return convolveTransposed('convTranspose2d', 2, x, weight, bias, options);
}

/**
 * Three-dimensional transposed convolution, as `convTranspose2d` is for two.
 * @param {Tensor} x [batch, channels, planes, rows, columns] @param {Tensor} weight [channels, outputs / groups, deep, down, across]
 * @param {Tensor} [bias] [outputs]
 * @param {Transposed3dOptions} [options]
 * @returns {Tensor} [batch, outputs, planes', rows', columns']
 */
export function convTranspose3d(x, weight, bias, options = {}) {
  return convolveTransposed('convTranspose3d', 3, x, weight, bias, options);
}
