// Pools and normalizations of images, [batch, channels, rows, columns].

import { avgPool2d, maxPool2d, pair } from '../api/convolution.mjs';
import { checkOptions } from '../core/options.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../api/convolution.mjs').Pair} Pair */

/** @typedef {import('../api/convolution.mjs').PoolOptions} PoolOptions */
/** @typedef {import('./layers.mjs').NormOptions} NormOptions */

/** The largest element under each position of a window, per channel; see `F.maxPool2d`. */
export class MaxPool2d extends Module {
  /** @param {Pair} window one size for both directions, or [down, across] @param {PoolOptions} [options] */
  constructor(window, options = {}) {
    super();
    const { stride = window } = checkOptions('MaxPool2d', options, ['stride']);
    this.window = pair('MaxPool2d', 'window', window, 1);
    this.options = { stride: pair('MaxPool2d', 'stride', stride, 1) };
  }
  /** @param {Tensor} x [batch, channels, rows, columns] @returns {Tensor} [batch, channels, rows', columns'] */
  forward(x) {
    return maxPool2d(x, this.window, this.options);
  }
}

/** The mean under each position of a window, per channel; see `F.avgPool2d`. */
export class AvgPool2d extends Module {
  /** @param {Pair} window one size for both directions, or [down, across] @param {PoolOptions} [options] */
  constructor(window, options = {}) {
    super();
    const { stride = window } = checkOptions('AvgPool2d', options, ['stride']);
    this.window = pair('AvgPool2d', 'window', window, 1);
    this.options = { stride: pair('AvgPool2d', 'stride', stride, 1) };
  }
  /** @param {Tensor} x [batch, channels, rows, columns] @returns {Tensor} [batch, channels, rows', columns'] */
  forward(x) {
    return avgPool2d(x, this.window, this.options);
  }
}
