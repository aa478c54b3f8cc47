// Pools of one to three dimensions.

import * as F from '../api/pooling.mjs';
import { each } from '../api/convolution.mjs';
import { ArgumentError, shown } from '../core/errors.mjs';
import { positive } from '../core/layout.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../api/convolution.mjs').Single} Single */
/** @typedef {import('../api/convolution.mjs').Pair} Pair */
/** @typedef {import('../api/convolution.mjs').Triple} Triple */
/** @typedef {import('../api/pooling.mjs').Output1d} Output1d */
/** @typedef {import('../api/pooling.mjs').Output2d} Output2d */
/** @typedef {import('../api/pooling.mjs').Output3d} Output3d */

/** Options of any pool, as they are checked. @typedef {import('../api/pooling.mjs').MaxPoolOptions & import('../api/pooling.mjs').AvgPoolOptions} AnyOptions */

/**
 * What pools by windows have.
 * @template {[number] | [number, number] | [number, number, number]} S sizes, one for each direction
 */
class Pool extends Module {
  /** @param {string} name of the class @param {number} rank @param {unknown} window @param {object} given options @param {string[]} names known */
  constructor(name, rank, window, given, names) {
    super();
    const options = /** @type {AnyOptions} */ (checkOptions(name, given, names));
    this.kernelSize = /** @type {S} */ (each(name, 'window', window, 1, rank));
    const { stride = window, padding = 0, dilation = 1, divisorOverride, ...flags } = options;
    for (const [option, value] of Object.entries(flags)) flag(name, option, value);
    if (divisorOverride !== undefined) each(name, 'divisorOverride', positive(name, 'divisorOverride', divisorOverride), 1, 1);
    this.options = {
      stride: /** @type {S} */ (each(name, 'stride', stride, 1, rank)),
      padding: /** @type {S} */ (each(name, 'padding', padding, 0, rank)),
      ...(names.includes('dilation') ? { dilation: /** @type {S} */ (each(name, 'dilation', dilation, 1, rank)) } : {}),
      ...flags,
      ...(divisorOverride === undefined ? {} : { divisorOverride }),
    };
  }
  /** The steps between windows. */
  get stride() {
    return this.options.stride;
  }
  /** What is added around x. */
  get padding() {
    return this.options.padding;
  }
}

const OF_MAX = ['stride', 'padding', 'dilation', 'ceilMode', 'returnIndices'];
const OF_MEAN = ['stride', 'padding', 'ceilMode', 'countIncludePad', 'divisorOverride'];

/**
 * What pools by parts have.
 * @template {Output1d | Output2d | Output3d} S sizes, one for each direction
 */
class AdaptivePool extends Module {
  /** @param {string} name of the class @param {number} rank @param {unknown} outputSize */
  constructor(name, rank, outputSize) {
    super();
    const list = Array.isArray(outputSize) ? outputSize : new Array(rank).fill(outputSize);
    if (list.length !== rank || list.some((n) => n !== null && !(Number.isInteger(n) && n >= 1)))
      throw new ArgumentError(
        name,
        `outputSize must be an integer of at least 1, or one or null for each direction, got ${shown(outputSize)}`,
      );
    this.outputSize = /** @type {S} */ ([...list]);
  }
}

/**
 * The largest element under each position of a window, per channel; see `F.maxPool1d`.
 * @extends {Pool<[number]>}
 */
export class MaxPool1d extends Pool {
  /** @param {Single} window in steps @param {import('../api/pooling.mjs').MaxPool1dOptions} [options] */
  constructor(window, options = {}) {
    super('MaxPool1d', 1, window, options, OF_MAX);
  }
  /** @param {Tensor} x [batch, channels, steps] @returns {Tensor} [batch, channels, steps']; with `returnIndices` [y, indices] */
  forward(x) {
    return /** @type {Tensor} */ (F.maxPool('maxPool1d', 1, x, this.kernelSize, this.options));
  }
}

/**
 * The mean under each position of a window, per channel; see `F.avgPool1d`.
 * @extends {Pool<[number]>}
 */
export class AvgPool1d extends Pool {
  /** @param {Single} window in steps @param {import('../api/pooling.mjs').AvgPool1dOptions} [options] */
  constructor(window, options = {}) {
    super('AvgPool1d', 1, window, options, OF_MEAN);
  }
  /** @param {Tensor} x [batch, channels, steps] @returns {Tensor} [batch, channels, steps'] */
  forward(x) {
    return F.avgPool1d(x, this.kernelSize, this.options);
  }
}

/**
 * The mean of each of as many parts as the result is to have elements; see `F.adaptiveAvgPool1d`.
 * @extends {AdaptivePool<Output1d>}
 */
export class AdaptiveAvgPool1d extends AdaptivePool {
  /** @param {Output1d} outputSize size of the result */
  constructor(outputSize) {
    super('AdaptiveAvgPool1d', 1, outputSize);
  }
  /** @param {Tensor} x [batch, channels, steps] @returns {Tensor} [batch, channels, steps'] */
  forward(x) {
    return F.adaptiveAvgPool1d(x, this.outputSize);
  }
}

/**
 * The largest element of each of as many parts as the result is to have elements; see `F.adaptiveAvgPool1d`.
 * @extends {AdaptivePool<Output1d>}
 */
export class AdaptiveMaxPool1d extends AdaptivePool {
  /** @param {Output1d} outputSize size of the result */
  constructor(outputSize) {
    super('AdaptiveMaxPool1d', 1, outputSize);
  }
  /** @param {Tensor} x [batch, channels, steps] @returns {Tensor} [batch, channels, steps'] */
  forward(x) {
    return F.adaptiveMaxPool1d(x, this.outputSize);
  }
}

/**
 * The largest element under each position of a window, per channel; see `F.maxPool2d`.
 * @extends {Pool<[number, number]>}
 */
export class MaxPool2d extends Pool {
  /** @param {Pair} window one size for both directions, or [down, across] @param {import('../api/pooling.mjs').MaxPoolOptions} [options] */
  constructor(window, options = {}) {
    super('MaxPool2d', 2, window, options, OF_MAX);
  }
  /** @param {Tensor} x [batch, channels, rows, columns] @returns {Tensor} [batch, channels, rows', columns']; with `returnIndices` [y, indices] */
  forward(x) {
    return /** @type {Tensor} */ (F.maxPool('maxPool2d', 2, x, this.kernelSize, this.options));
  }
}

/**
 * The mean under each position of a window, per channel; see `F.avgPool2d`.
 * @extends {Pool<[number, number]>}
 */
export class AvgPool2d extends Pool {
  /** @param {Pair} window one size for both directions, or [down, across] @param {import('../api/pooling.mjs').AvgPoolOptions} [options] */
  constructor(window, options = {}) {
    super('AvgPool2d', 2, window, options, OF_MEAN);
  }
  /** @param {Tensor} x [batch, channels, rows, columns] @returns {Tensor} [batch, channels, rows', columns'] */
  forward(x) {
    return F.avgPool2d(x, this.kernelSize, this.options);
  }
}

/**
 * The mean of each of as many parts as the result is to have elements; see `F.adaptiveAvgPool2d`.
 * @extends {AdaptivePool<Output2d>}
 */
export class AdaptiveAvgPool2d extends AdaptivePool {
  /** @param {Output2d} outputSize sizes of the result */
  constructor(outputSize) {
    super('AdaptiveAvgPool2d', 2, outputSize);
  }
  /** @param {Tensor} x [batch, channels, rows, columns] @returns {Tensor} [batch, channels, rows', columns'] */
  forward(x) {
    return F.adaptiveAvgPool2d(x, this.outputSize);
  }
}

/**
 * The largest element of each of as many parts as the result is to have elements; see `F.adaptiveAvgPool2d`.
 * @extends {AdaptivePool<Output2d>}
 */
export class AdaptiveMaxPool2d extends AdaptivePool {
  /** @param {Output2d} outputSize sizes of the result */
  constructor(outputSize) {
    super('AdaptiveMaxPool2d', 2, outputSize);
  }
  /** @param {Tensor} x [batch, channels, rows, columns] @returns {Tensor} [batch, channels, rows', columns'] */
  forward(x) {
    return F.adaptiveMaxPool2d(x, this.outputSize);
  }
}

/**
 * The largest element under each position of a window, per channel; see `F.maxPool3d`.
 * @extends {Pool<[number, number, number]>}
 */
export class MaxPool3d extends Pool {
  /** @param {Triple} window one size for all directions, or [deep, down, across] @param {import('../api/pooling.mjs').MaxPool3dOptions} [options] */
  constructor(window, options = {}) {
    super('MaxPool3d', 3, window, options, OF_MAX);
  }
  /** @param {Tensor} x [batch, channels, planes, rows, columns] @returns {Tensor} [batch, channels, planes', rows', columns']; with `returnIndices` [y, indices] */
  forward(x) {
    return /** @type {Tensor} */ (F.maxPool('maxPool3d', 3, x, this.kernelSize, this.options));
  }
}

/**
 * The mean under each position of a window, per channel; see `F.avgPool3d`.
 * @extends {Pool<[number, number, number]>}
 */
export class AvgPool3d extends Pool {
  /** @param {Triple} window one size for all directions, or [deep, down, across] @param {import('../api/pooling.mjs').AvgPool3dOptions} [options] */
  constructor(window, options = {}) {
    super('AvgPool3d', 3, window, options, OF_MEAN);
  }
  /** @param {Tensor} x [batch, channels, planes, rows, columns] @returns {Tensor} [batch, channels, planes', rows', columns'] */
  forward(x) {
    return F.avgPool3d(x, this.kernelSize, this.options);
  }
}

/**
 * The mean of each of as many parts as the result is to have elements; see `F.adaptiveAvgPool3d`.
 * @extends {AdaptivePool<Output3d>}
 */
export class AdaptiveAvgPool3d extends AdaptivePool {
  /** @param {Output3d} outputSize sizes of the result */
  constructor(outputSize) {
    super('AdaptiveAvgPool3d', 3, outputSize);
  }
  /** @param {Tensor} x [batch, channels, planes, rows, columns] @returns {Tensor} [batch, channels, planes', rows', columns'] */
  forward(x) {
    return F.adaptiveAvgPool3d(x, this.outputSize);
  }
}

/**
 * The largest element of each of as many parts as the result is to have elements; see `F.adaptiveAvgPool3d`.
 * @extends {AdaptivePool<Output3d>}
 */
export class AdaptiveMaxPool3d extends AdaptivePool {
  /** @param {Output3d} outputSize sizes of the result */
  constructor(outputSize) {
    super('AdaptiveMaxPool3d', 3, outputSize);
  }
  /** @param {Tensor} x [batch, channels, planes, rows, columns] @returns {Tensor} [batch, channels, planes', rows', columns'] */
  forward(x) {
    return F.adaptiveMaxPool3d(x, this.outputSize);
  }
}
