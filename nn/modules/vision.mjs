// Normalizations of images, [batch, channels, rows, columns].

import { noGrad } from '../core/node.mjs';
import { isRecomputing } from '../api/checkpoint.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import * as F from '../api/functional.mjs';
import { positive, sizeOf } from '../core/layout.mjs';
import { toF32 } from '../api/operands.mjs';
import { tensorOf } from '../core/engine.mjs';
import { checkOptions } from '../core/options.mjs';
import { unscoped } from '../core/storage.mjs';
import { scope } from '../core/scope.mjs';
import { constantParameter, zeroParameter } from './layers.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/** @typedef {import('./layers.mjs').NormOptions} NormOptions */

/**
 * Options of `BatchNorm2d` besides those of every normalization.
 * @typedef {object} RunningOptions
 * @property {number} [momentum] the weight of a new batch in the running statistics: running = (1 - momentum) · running + momentum ·
 *   batch; 0.1 when left out
 */

/** @param {string} op @param {string} name @param {unknown} value */
function checkLeast(op, name, value) {
  if (typeof value !== 'number' || !(value >= 0 && value < Infinity))
    throw new ArgumentError(op, `${name} must be a number of at least 0, got ${shown(value)}`);
}

/**
 * Batch normalization (Ioffe & Szegedy 2015): (x - mean) / √(variance + eps) · weight + bias for each channel. While training, mean and
 * variance are those of the batch, over [batch, rows, columns], and update the running statistics. After `eval()` it uses the running
 * statistics. `running_var` is of the unbiased variance, as in PyTorch. The state has PyTorch's names without `num_batches_tracked`,
 * which `loadStateDict` ignores.
 */
export class BatchNorm2d extends Module {
  /** @param {number} channels of x @param {NormOptions & RunningOptions} [options] */
  constructor(channels, options = {}) {
    super();
    const { eps = 1e-5, momentum = 0.1 } = checkOptions('BatchNorm2d', options, ['eps', 'momentum']);
    checkLeast('BatchNorm2d', 'eps', eps);
    checkLeast('BatchNorm2d', 'momentum', momentum);
    this.weight = constantParameter('BatchNorm2d', 1, [positive('BatchNorm2d', 'channels', channels)]);
    this.bias = zeroParameter('BatchNorm2d', [channels]);
    this.running_mean = unscoped(() => F.zeros([channels]));
    this.running_var = unscoped(() => F.ones([channels]));
    this.eps = eps;
    this.momentum = momentum;
  }
  /** @returns {readonly string[]} */
  ignoredState() {
    return ['num_batches_tracked'];
  }
  /**
   * Throws a ShapeError for another shape, and while training if there is only one element per channel, which has no variance.
   * @param {Tensor} x [batch, channels, rows, columns] @returns {Tensor} f32, of x's shape
   */
  forward(x) {
    const channels = this.weight.size;
    if (tensorOf('BatchNorm2d', x).ndim !== 4 || x.shape[1] !== channels)
      throw new ShapeError('BatchNorm2d', `expected an input [batch, ${channels}, rows, columns], got ${show(x.shape)}`);
    return within('BatchNorm2d', () => this.#normalized(toF32(x), channels));
  }
  /** @param {Tensor} x @param {number} channels */
  #normalized(x, channels) {
    const column = (/** @type {Tensor} */ v) => F.reshape(v, [channels, 1, 1]);
    let mean = column(this.running_mean);
    let variance = column(this.running_var);
    if (this.training) {
      const count = x.size / channels;
      if (count <= 1) {
        throw new ShapeError(
          'BatchNorm2d',
          `an input ${show(x.shape)} has ${count ? 'one element' : 'none'} in each channel, which has no variance: call eval(), or train on more`,
        );
      }
      mean = F.mean(x, [0, 2, 3], true);
      variance = F.variance(x, [0, 2, 3], { keepdim: true, correction: 0 });
      const { momentum } = this;
      // `checkpoint` runs the layer again on the same batch: count the batch once.
      if (!isRecomputing())
        noGrad(() =>
          scope(() => {
            const flat = (/** @type {Tensor} */ v) => F.reshape(v.detach(), [channels]);
            this.running_mean.mul_(1 - momentum).add_(flat(mean), { alpha: momentum });
            this.running_var.mul_(1 - momentum).add_(flat(variance), { alpha: (momentum * count) / (count - 1) });
          }),
        );
    }
    const scale = F.mul(F.rsqrt(F.add(variance, this.eps)), column(this.weight));
    return F.add(F.mul(F.sub(x, mean), scale), column(this.bias));
  }
}

/**
 * Group normalization (Wu & He 2018): normalizes each group of channels within each image, then multiplies by `weight` [channels] and
 * adds `bias` [channels].
 */
export class GroupNorm extends Module {
  /** @param {number} groups a divisor of `channels` @param {number} channels of x @param {NormOptions} [options] */
  constructor(groups, channels, options = {}) {
    super();
    const { eps = 1e-5 } = checkOptions('GroupNorm', options, ['eps']);
    if (positive('GroupNorm', 'channels', channels) % positive('GroupNorm', 'groups', groups)) {
      throw new ShapeError('GroupNorm', `${channels} channels are not a multiple of ${groups} groups`);
    }
    checkLeast('GroupNorm', 'eps', eps);
    this.weight = constantParameter('GroupNorm', 1, [channels]);
    this.bias = zeroParameter('GroupNorm', [channels]);
    this.groups = groups;
    this.eps = eps;
  }
  /** @param {Tensor} x [batch, channels, ...] @returns {Tensor} f32, of x's shape */
  forward(x) {
    const channels = this.weight.size;
    if (tensorOf('GroupNorm', x).ndim < 2 || x.shape[1] !== channels)
      throw new ShapeError('GroupNorm', `expected an input [batch, ${channels}, ...], got ${show(x.shape)}`);
    return within('GroupNorm', () => {
      const [batch, , ...sizes] = x.shape;
      const size = sizeOf(sizes);
      const rows = F.reshape(toF32(x), [batch, this.groups, (channels / this.groups) * size]);
      const variance = F.variance(rows, -1, { keepdim: true, correction: 0 });
      const y = F.reshape(F.mul(F.sub(rows, F.mean(rows, -1, true)), F.rsqrt(F.add(variance, this.eps))), [batch, channels, size]);
      return F.reshape(F.add(F.mul(y, F.reshape(this.weight, [channels, 1])), F.reshape(this.bias, [channels, 1])), x.shape);
    });
  }
}
