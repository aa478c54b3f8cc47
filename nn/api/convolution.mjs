// Convolution as im2col and a matrix product, and pooling as a reduction. Each element of the window gives one strided view of the input,
// which is copied once.

import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import * as F from './functional.mjs';
import { tensorOf } from '../core/engine.mjs';
import { checkOptions } from '../core/options.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {number | [number, number]} Pair one number for both directions, or [down, across] */

/**
 * Options of `conv2d`.
 * @typedef {object} ConvolutionOptions
 * @property {Pair} [stride] elements from one position of the window to the next; 1 when left out
 * @property {Pair} [padding] zeros added on each side; 0 when left out
 */

/**
 * Options of pools.
 * @typedef {object} PoolOptions
 * @property {Pair} [stride] elements from one position of the window to the next; the window's size when left out
 */

/**
 * Checks a `Pair` and returns both numbers, [down, across].
 * @param {string} op @param {string} name of the option, for the error @param {unknown} value @param {number} least the smallest valid number
 * @returns {[number, number]}
 */
export function pair(op, name, value, least) {
  const both = Array.isArray(value) ? value : [value, value];
  if (both.length !== 2 || both.some((size) => !Number.isInteger(size) || size < least)) {
    throw new ArgumentError(op, `${name} must be an integer of at least ${least}, or two of them, [down, across], got ${shown(value)}`);
  }
  return /** @type {[number, number]} */ ([both[0], both[1]]);
}

/** Adds zeros around the images. @param {Tensor} x [..., rows, columns] @param {[number, number]} sizes on each side, [down, across] */
function padded(x, sizes) {
  sizes.forEach((size, i) => {
    const d = x.ndim - 2 + i;
    if (size === 0) return;
    const zeros = F.zeros(x.shape.with(d, size), { dtype: x.dtype });
    x = F.cat([zeros, x, zeros], d);
  });
  return x;
}

/**
 * For each element of the window, row by row, the elements of x that it covers at all positions of the window.
 * @param {string} op @param {Tensor} x @param {[number, number]} window @param {[number, number]} stride
 * @returns {Tensor[]} views [batch, channels, rows', columns']
 */
function windows(op, x, window, stride) {
  const sizes = window.map((size, i) => Math.floor((x.shape[2 + i] - size) / stride[i]) + 1);
  if (sizes.some((size) => !(size >= 1)))
    throw new ShapeError(op, `a window ${show(window)} does not fit into the padded input ${show(x.shape)}`);
  const reach = (/** @type {number} */ i) => (sizes[i] - 1) * stride[i] + 1;
  return Array.from({ length: window[0] * window[1] }, (_, k) => {
    const [a, b] = [Math.floor(k / window[1]), k % window[1]];
    return F.slice(F.slice(x, 2, a, a + reach(0), stride[0]), 3, b, b + reach(1), stride[1]);
  });
}

/**
 * Repeats each element `scale` times along rows and columns: PyTorch's `interpolate` with an integer `scale_factor` and mode 'nearest'.
 * @param {Tensor} x [batch, channels, rows, columns] @param {Pair} scale
 * @returns {Tensor} [batch, channels, rows · scale, columns · scale]
 */
export function upsample(x, scale) {
  checkImages('upsample', x);
  const [down, across] = pair('upsample', 'scale', scale, 1);
  const [batch, channels, rows, columns] = x.shape;
  return within('upsample', () => {
    const wide = F.expand(F.reshape(x, [batch, channels, rows, 1, columns, 1]), [batch, channels, rows, down, columns, across]);
    return F.reshape(wide, [batch, channels, rows * down, columns * across]);
  });
}

/** Throws a ShapeError unless x has four dimensions. @param {string} op @param {Tensor} x */
function checkImages(op, x) {
  if (tensorOf(op, x).ndim !== 4) throw new ShapeError(op, `expected an input [batch, channels, rows, columns], got ${show(x.shape)}`);
}

/**
 * Two-dimensional convolution; as in every framework, it is a cross-correlation. rows' = ⌊(rows + 2 · padding - down) / stride⌋ + 1, and so
 * for columns'. Throws a ShapeError if the channels differ, or if the window is larger than the padded image.
 * @param {Tensor} x [batch, channels, rows, columns] @param {Tensor} weight [outputs, channels, down, across]
 * @param {Tensor} [bias] [outputs]
 * @param {ConvolutionOptions} [options]
 * @returns {Tensor} [batch, outputs, rows', columns']
 */
export function conv2d(x, weight, bias, options = {}) {
  const { stride = 1, padding = 0 } = checkOptions('conv2d', options, ['stride', 'padding']);
  checkImages('conv2d', x);
  if (tensorOf('conv2d', weight).ndim !== 4 || weight.shape[1] !== x.shape[1]) {
    throw new ShapeError(
      'conv2d',
      `an input ${show(x.shape)} needs a weight [outputs, ${x.shape[1]}, down, across], got ${show(weight.shape)}`,
    );
  }
  const [outputs, channels, down, across] = weight.shape;
  if (bias && show(tensorOf('conv2d', bias).shape) !== show([outputs])) {
    throw new ShapeError('conv2d', `${outputs} outputs need a bias [${outputs}], got ${show(bias.shape)}`);
  }
  const [zeros, steps] = [pair('conv2d', 'padding', padding, 0), pair('conv2d', 'stride', stride, 1)];
  return within('conv2d', () => {
    const parts = windows('conv2d', padded(x, zeros), [down, across], steps);
    const [batch, , rows, columns] = parts[0].shape;
    const inner = channels * down * across;
    const y = F.matmul(F.reshape(weight, [outputs, inner]), F.reshape(F.stack(parts, 2), [batch, inner, rows * columns]));
    return F.reshape(bias ? F.add(y, F.reshape(bias, [outputs, 1])) : y, [batch, outputs, rows, columns]);
  });
}

/**
 * The largest element under each position of a window, per channel. Equal largest elements share the gradient; PyTorch gives it to the
 * first. rows' = ⌊(rows - down) / stride⌋ + 1, and so for columns'.
 * @param {Tensor} x [batch, channels, rows, columns] @param {Pair} window one size for both directions, or [down, across]
 * @param {PoolOptions} [options]
 * @returns {Tensor} [batch, channels, rows', columns']
 */
export function maxPool2d(x, window, options = {}) {
  const { stride = window } = checkOptions('maxPool2d', options, ['stride']);
  checkImages('maxPool2d', x);
  const [sizes, steps] = [pair('maxPool2d', 'window', window, 1), pair('maxPool2d', 'stride', stride, 1)];
  return within('maxPool2d', () => F.amax(F.stack(windows('maxPool2d', x, sizes, steps), 4), 4));
}
/**
 * The mean under each position of a window, per channel; sizes as in `maxPool2d`.
 * @param {Tensor} x [batch, channels, rows, columns] @param {Pair} window one size for both directions, or [down, across]
 * @param {PoolOptions} [options]
 * @returns {Tensor} [batch, channels, rows', columns']
 */
export function avgPool2d(x, window, options = {}) {
  const { stride = window } = checkOptions('avgPool2d', options, ['stride']);
  checkImages('avgPool2d', x);
  const [sizes, steps] = [pair('avgPool2d', 'window', window, 1), pair('avgPool2d', 'stride', stride, 1)];
  return within('avgPool2d', () => F.mean(F.stack(windows('avgPool2d', x, sizes, steps), 4), 4));
}
