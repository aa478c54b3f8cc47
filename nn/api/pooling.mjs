// Pools of one to three dimensions: the largest element or the mean of each window, and of as many windows as are asked for.

import { apply, applyKept } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { isFloat, positive } from '../core/layout.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import * as ops from '../ops/pooling.mjs';
import { each, checkImage } from './convolution.mjs';
import { mean } from './functional.mjs';
import { toF32 } from './operands.mjs';
import { to } from './views.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {import('./convolution.mjs').Single} Single */
/** @typedef {import('./convolution.mjs').Pair} Pair */
/** @typedef {import('./convolution.mjs').Triple} Triple */

/**
 * Options of `maxPool1d`.
 * @typedef {object} MaxPool1dOptions
 * @property {Single} [stride] elements from one position of the window to the next; the window's size when left out
 * @property {Single} [padding] elements on each side that windows may lie over, at most half of the window's; never the largest; 0 when left out
 * @property {Single} [dilation] elements from one element of the window to the next; 1 when left out
 * @property {boolean} [ceilMode] whether a last window may begin within x and its padding and end beyond; false when left out
 * @property {boolean} [returnIndices] whether to return [y, indices], with the i32 index of each largest element in its plane of x; false
 *   when left out
 */

/**
 * Options of `avgPool1d`.
 * @typedef {object} AvgPool1dOptions
 * @property {Single} [stride] elements from one position of the window to the next; the window's size when left out
 * @property {Single} [padding] elements on each side that windows may lie over, at most half of the window's; zeros; 0 when left out
 * @property {boolean} [ceilMode] whether a last window may begin within x and its padding and end beyond; false when left out
 * @property {boolean} [countIncludePad] whether means count padding as elements; true when left out
 * @property {number} [divisorOverride] what sums are divided by instead of the number of elements
 */

/**
 * Options of `maxPool2d`.
 * @typedef {object} MaxPoolOptions
 * @property {Pair} [stride] elements from one position of the window to the next; the window's size when left out
 * @property {Pair} [padding] elements on each side that windows may lie over, at most half of the window's; never the largest; 0 when left out
 * @property {Pair} [dilation] elements from one element of the window to the next; 1 when left out
 * @property {boolean} [ceilMode] whether a last window may begin within x and its padding and end beyond; false when left out
 * @property {boolean} [returnIndices] whether to return [y, indices], with the i32 index of each largest element in its plane of x; false
 *   when left out
 */

/**
 * Options of `avgPool2d`.
 * @typedef {object} AvgPoolOptions
 * @property {Pair} [stride] elements from one position of the window to the next; the window's size when left out
 * @property {Pair} [padding] elements on each side that windows may lie over, at most half of the window's; zeros; 0 when left out
 * @property {boolean} [ceilMode] whether a last window may begin within x and its padding and end beyond; false when left out
 * @property {boolean} [countIncludePad] whether means count padding as elements; true when left out
 * @property {number} [divisorOverride] what sums are divided by instead of the number of elements
 */

/**
 * Options of `maxPool3d`.
 * @typedef {object} MaxPool3dOptions
 * @property {Triple} [stride] elements from one position of the window to the next; the window's size when left out
 * @property {Triple} [padding] elements on each side that windows may lie over, at most half of the window's; never the largest; 0 when left out
 * @property {Triple} [dilation] elements from one element of the window to the next; 1 when left out
 * @property {boolean} [ceilMode] whether a last window may begin within x and its padding and end beyond; false when left out
 * @property {boolean} [returnIndices] whether to return [y, indices], with the i32 index of each largest element in its plane of x; false
 *   when left out
 */

/**
 * Options of `avgPool3d`.
 * @typedef {object} AvgPool3dOptions
 * @property {Triple} [stride] elements from one position of the window to the next; the window's size when left out
 * @property {Triple} [padding] elements on each side that windows may lie over, at most half of the window's; zeros; 0 when left out
 * @property {boolean} [ceilMode] whether a last window may begin within x and its padding and end beyond; false when left out
 * @property {boolean} [countIncludePad] whether means count padding as elements; true when left out
 * @property {number} [divisorOverride] what sums are divided by instead of the number of elements
 */

/** One size of the result for all directions, or one for each; null keeps that of x. @typedef {number | [number]} Output1d */
/** One size of the result for all directions, or one for each; null keeps that of x. @typedef {number | [number | null, number | null]} Output2d */
/** One size of the result for all directions, or one for each; null keeps that of x. @typedef {number | [number | null, number | null, number | null]} Output3d */

/** How windows lie, before it is checked. @typedef {{ stride?: unknown, padding?: unknown, dilation?: unknown, ceilMode?: boolean }} WindowOptions */

/**
 * Sizes of x and y, and how windows go over x.
 * @param {string} op @param {number} rank @param {Tensor} x @param {unknown} window @param {WindowOptions} options
 */
function windows(op, rank, x, window, { stride = window, padding = 0, dilation = 1, ceilMode = false }) {
  checkImage(op, x, rank);
  const sizes = each(op, 'window', window, 1, rank);
  const steps = each(op, 'stride', stride, 1, rank);
  const around = each(op, 'padding', padding, 0, rank);
  const dilations = each(op, 'dilation', dilation, 1, rank);
  flag(op, 'ceilMode', ceilMode);
  if (around.some((n, d) => 2 * n > sizes[d]))
    throw new ArgumentError(op, `padding must be at most half of the window ${show(sizes)}, got ${shown(padding)}`);
  const size = x.shape.slice(2);
  const result = size.map((n, d) => {
    const room = n + 2 * around[d] - dilations[d] * (sizes[d] - 1) - 1;
    if (!ceilMode) return Math.floor(room / steps[d]) + 1;
    const count = Math.ceil(room / steps[d]) + 1;
    // As in PyTorch, no window begins in the padding after x.
    return (count - 1) * steps[d] >= n + around[d] ? count - 1 : count;
  });
  if (result.some((n) => n < 1)) {
    const whole = [...x.shape.slice(0, 2), ...size.map((n, d) => n + 2 * around[d])];
    throw new ShapeError(op, `a window ${show(sizes)} does not fit into the padded input ${show(whole)}`);
  }
  return { size, result, window: sizes, stride: steps, padding: around, dilation: dilations };
}

/** Applies an operation of f32 and returns the result in the type of x. @param {string} op @param {import('../ops/registry.mjs').Op} pool @param {Tensor} x @param {ops.PoolAttributes} how */
const pooled = (op, pool, x, how) =>
  within(op, () => {
    const y = apply(pool, [toF32(x)], how);
    return y.dtype === 'f32' && isFloat(x.dtype) ? to(y, x.dtype) : y;
  });

/**
 * `maxPool1d` and its kin.
 * @param {string} op @param {number} rank @param {Tensor} x @param {unknown} window @param {WindowOptions & { returnIndices?: boolean }} options
 * @returns {Tensor | [y: Tensor, indices: Tensor]}
 */
export function maxPool(op, rank, x, window, options) {
  const { returnIndices = false, ...rest } = checkOptions(op, options, ['stride', 'padding', 'dilation', 'ceilMode', 'returnIndices']);
  flag(op, 'returnIndices', returnIndices);
  const how = windows(op, rank, x, window, rest);
  if (!returnIndices) return pooled(op, ops.maxPool, x, how);
  return within(op, () => {
    const [y, indices] = applyKept(ops.maxPool, [ops.inPlanes(toF32(x), rank)], how);
    return [isFloat(x.dtype) ? to(y, x.dtype) : y, indices];
  });
}

/**
 * `avgPool1d` and its kin.
 * @param {string} op @param {number} rank @param {Tensor} x @param {unknown} window
 * @param {WindowOptions & { countIncludePad?: boolean, divisorOverride?: number }} options @returns {Tensor}
 */
export function avgPool(op, rank, x, window, options) {
  const names = /** @type {const} */ (['stride', 'padding', 'ceilMode', 'countIncludePad', 'divisorOverride']);
  const { countIncludePad = true, divisorOverride, ...rest } = checkOptions(op, options, names);
  flag(op, 'countIncludePad', countIncludePad);
  if (divisorOverride !== undefined) each(op, 'divisorOverride', positive(op, 'divisorOverride', divisorOverride), 1, 1);
  const { dilation: _, ...how } = windows(op, rank, x, window, rest);
  return pooled(op, ops.avgPool, x, { ...how, countIncludePad, ...(divisorOverride === undefined ? {} : { divisor: divisorOverride }) });
}

/**
 * Sizes of x and y of a pool whose windows divide x into parts.
 * @param {string} op @param {number} rank @param {Tensor} x @param {unknown} output
 */
function parts(op, rank, x, output) {
  checkImage(op, x, rank);
  const size = x.shape.slice(2);
  const whole = Array.isArray(output) && output.length === rank ? output.map((n, d) => (n === null ? size[d] : n)) : output;
  return { size, result: each(op, 'the output size', whole, 1, rank) };
}

/** @param {string} op @param {number} rank @param {Tensor} x @param {unknown} output @returns {Tensor} */
function adaptiveAvgPool(op, rank, x, output) {
  const how = parts(op, rank, x, output);
  // The mean of whole planes is a sum over rows, which many threads share.
  const dims = how.size.map((_, d) => 2 + d);
  return how.result.every((n) => n === 1) ? within(op, () => mean(x, dims, true)) : pooled(op, ops.avgPool, x, how);
}

/**
 * The largest element under each position of a window, per channel. The gradient goes to the first of equal elements, as in PyTorch.
 * steps' = ⌊(steps + 2 · padding - dilation · (window - 1) - 1) / stride⌋ + 1.
 * @overload
 * @param {Tensor} x [batch, channels, steps] @param {Single} window in steps
 * @param {MaxPool1dOptions & { returnIndices: true }} options
 * @returns {[y: Tensor, indices: Tensor]} both [batch, channels, steps']
 */
/**
 * The largest element under each position of a window, per channel. The gradient goes to the first of equal elements, as in PyTorch.
 * steps' = ⌊(steps + 2 · padding - dilation · (window - 1) - 1) / stride⌋ + 1.
 * @overload
 * @param {Tensor} x [batch, channels, steps] @param {Single} window in steps
 * @param {MaxPool1dOptions & { returnIndices?: false }} [options]
 * @returns {Tensor} [batch, channels, steps']
 */
/** @param {Tensor} x @param {Single} window @param {MaxPool1dOptions} [options] */
export function maxPool1d(x, window, options = {}) {
  return maxPool('maxPool1d', 1, x, window, options);
}

/**
 * The mean under each position of a window, per channel; sizes as in `maxPool1d` without dilation.
 * @param {Tensor} x [batch, channels, steps] @param {Single} window in steps
 * @param {AvgPool1dOptions} [options]
 * @returns {Tensor} [batch, channels, steps']
 */
export function avgPool1d(x, window, options = {}) {
  return avgPool('avgPool1d', 1, x, window, options);
}

/**
 * The mean of each of as many parts as the result is to have elements, per channel: part q of n covers ⌊q · size / n⌋ to before
 * ⌈(q + 1) · size / n⌉, as in PyTorch. With 1, the mean over all positions.
 * @param {Tensor} x [batch, channels, steps] @param {Output1d} outputSize size of the result
 * @returns {Tensor} [batch, channels, steps']
 */
export function adaptiveAvgPool1d(x, outputSize) {
  return adaptiveAvgPool('adaptiveAvgPool1d', 1, x, outputSize);
}

/**
 * The largest element of each part; see `adaptiveAvgPool1d`.
 * @param {Tensor} x [batch, channels, steps] @param {Output1d} outputSize size of the result
 * @returns {Tensor} [batch, channels, steps']
 */
export function adaptiveMaxPool1d(x, outputSize) {
  return pooled('adaptiveMaxPool1d', ops.maxPool, x, parts('adaptiveMaxPool1d', 1, x, outputSize));
}

/**
 * The largest element under each position of a window, per channel. The gradient goes to the first of equal elements, as in PyTorch.
 * rows' = ⌊(rows + 2 · padding - dilation · (down - 1) - 1) / stride⌋ + 1, and so for columns'.
 * @overload
 * @param {Tensor} x [batch, channels, rows, columns] @param {Pair} window one size for both directions, or [down, across]
 * @param {MaxPoolOptions & { returnIndices: true }} options
 * @returns {[y: Tensor, indices: Tensor]} both [batch, channels, rows', columns']
 */
/**
 * The largest element under each position of a window, per channel. The gradient goes to the first of equal elements, as in PyTorch.
 * rows' = ⌊(rows + 2 · padding - dilation · (down - 1) - 1) / stride⌋ + 1, and so for columns'.
 * @overload
 * @param {Tensor} x [batch, channels, rows, columns] @param {Pair} window one size for both directions, or [down, across]
 * @param {MaxPoolOptions & { returnIndices?: false }} [options]
 * @returns {Tensor} [batch, channels, rows', columns']
 */
/** @param {Tensor} x @param {Pair} window @param {MaxPoolOptions} [options] */
export function maxPool2d(x, window, options = {}) {
  return maxPool('maxPool2d', 2, x, window, options);
}

/**
 * The mean under each position of a window, per channel; sizes as in `maxPool2d` without dilation.
 * @param {Tensor} x [batch, channels, rows, columns] @param {Pair} window one size for both directions, or [down, across]
 * @param {AvgPoolOptions} [options]
 * @returns {Tensor} [batch, channels, rows', columns']
 */
export function avgPool2d(x, window, options = {}) {
  return avgPool('avgPool2d', 2, x, window, options);
}

/**
 * The mean of each of as many parts as the result is to have elements, per channel: part q of n covers ⌊q · size / n⌋ to before
 * ⌈(q + 1) · size / n⌉, as in PyTorch. With 1, the mean over all positions.
 * @param {Tensor} x [batch, channels, rows, columns] @param {Output2d} outputSize sizes of the result
 * @returns {Tensor} [batch, channels, rows', columns']
 */
export function adaptiveAvgPool2d(x, outputSize) {
  return adaptiveAvgPool('adaptiveAvgPool2d', 2, x, outputSize);
}

/**
 * The largest element of each part; see `adaptiveAvgPool2d`.
 * @param {Tensor} x [batch, channels, rows, columns] @param {Output2d} outputSize sizes of the result
 * @returns {Tensor} [batch, channels, rows', columns']
 */
export function adaptiveMaxPool2d(x, outputSize) {
  return pooled('adaptiveMaxPool2d', ops.maxPool, x, parts('adaptiveMaxPool2d', 2, x, outputSize));
}

/**
 * The largest element under each position of a window, per channel. The gradient goes to the first of equal elements, as in PyTorch.
 * Sizes are as in `maxPool2d`.
 * @overload
 * @param {Tensor} x [batch, channels, planes, rows, columns] @param {Triple} window one size for all directions, or [deep, down, across]
 * @param {MaxPool3dOptions & { returnIndices: true }} options
 * @returns {[y: Tensor, indices: Tensor]} both [batch, channels, planes', rows', columns']
 */
/**
 * The largest element under each position of a window, per channel. The gradient goes to the first of equal elements, as in PyTorch.
 * Sizes are as in `maxPool2d`.
 * @overload
 * @param {Tensor} x [batch, channels, planes, rows, columns] @param {Triple} window one size for all directions, or [deep, down, across]
 * @param {MaxPool3dOptions & { returnIndices?: false }} [options]
 * @returns {Tensor} [batch, channels, planes', rows', columns']
 */
/** @param {Tensor} x @param {Triple} window @param {MaxPool3dOptions} [options] */
export function maxPool3d(x, window, options = {}) {
  return maxPool('maxPool3d', 3, x, window, options);
}

/**
 * The mean under each position of a window, per channel; sizes as in `maxPool3d` without dilation.
 * @param {Tensor} x [batch, channels, planes, rows, columns] @param {Triple} window one size for all directions, or [deep, down, across]
 * @param {AvgPool3dOptions} [options]
 * @returns {Tensor} [batch, channels, planes', rows', columns']
 */
export function avgPool3d(x, window, options = {}) {
  return avgPool('avgPool3d', 3, x, window, options);
}

/**
 * The mean of each of as many parts as the result is to have elements, per channel: part q of n covers ⌊q · size / n⌋ to before
 * ⌈(q + 1) · size / n⌉, as in PyTorch. With 1, the mean over all positions.
 * @param {Tensor} x [batch, channels, planes, rows, columns] @param {Output3d} outputSize sizes of the result
 * @returns {Tensor} [batch, channels, planes', rows', columns']
 */
export function adaptiveAvgPool3d(x, outputSize) {
  return adaptiveAvgPool('adaptiveAvgPool3d', 3, x, outputSize);
}

/**
 * The largest element of each part; see `adaptiveAvgPool3d`.
 * @param {Tensor} x [batch, channels, planes, rows, columns] @param {Output3d} outputSize sizes of the result
 * @returns {Tensor} [batch, channels, planes', rows', columns']
 */
export function adaptiveMaxPool3d(x, outputSize) {
  return pooled('adaptiveMaxPool3d', ops.maxPool, x, parts('adaptiveMaxPool3d', 3, x, outputSize));
}
