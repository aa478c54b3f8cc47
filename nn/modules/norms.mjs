// Normalizations over channels as modules, with PyTorch's names.

import { tensorOf } from '../core/engine.mjs';
import { ShapeError, show, within } from '../core/errors.mjs';
import { ones, zeros } from '../api/functional.mjs';
import { batchNorm, groupNorm, instanceNorm } from '../api/norms.mjs';
import { track } from '../core/guards.mjs';
import { positive } from '../core/layout.mjs';
import { checkLeast, checkOptions, flag } from '../core/options.mjs';
import { unscoped } from '../core/storage.mjs';
import { constantParameter, zeroParameter } from './layers.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('./layers.mjs').NormOptions} NormOptions */
/** @typedef {import('./module.mjs').Parameter} Parameter */

/**
 * Options of `BatchNorm2d` and its like besides those of every normalization.
 * @typedef {object} RunningOptions
 * @property {number} [momentum] the weight of a new batch in the running statistics: running = (1 - momentum) · running + momentum ·
 *   batch; 0.1 when left out
 */

/**
 * Options of normalizations over channels besides these.
 * @typedef {object} StatisticsOptions
 * @property {boolean} [affine] whether there are a `weight` and a `bias`; true when left out, of `InstanceNorm2d` and its like false
 * @property {boolean} [trackRunningStats] whether there are running statistics, which are used after `eval()`; true when left out, of
 *   `InstanceNorm2d` and its like false
 */

/** What the normalizations by statistics of channels share. */
class ChannelNorm extends Module {
  #momentum;

  /**
   * @param {number} channels @param {NormOptions & RunningOptions & StatisticsOptions} options @param {boolean} by the defaults of both flags
   */
  constructor(channels, options, by) {
    super();
    const name = this.constructor.name;
    const known = /** @type {const} */ (['eps', 'momentum', 'affine', 'trackRunningStats']);
    const { eps = 1e-5, momentum = 0.1, affine = by, trackRunningStats = by } = checkOptions(name, options, known);
    checkLeast(name, 'eps', eps);
    checkLeast(name, 'momentum', momentum);
    flag(name, 'affine', affine);
    flag(name, 'trackRunningStats', trackRunningStats);
    positive(name, 'channels', channels);
    // Typed as what they nearly always are.
    this.weight = /** @type {Parameter} */ (affine ? constantParameter(name, 1, [channels]) : undefined);
    this.bias = /** @type {Parameter} */ (affine ? zeroParameter(name, [channels]) : undefined);
    this.running_mean = /** @type {Tensor} */ (trackRunningStats ? unscoped(() => zeros([channels])) : undefined);
    this.running_var = /** @type {Tensor} */ (trackRunningStats ? unscoped(() => ones([channels])) : undefined);
    this.numFeatures = channels;
    this.eps = eps;
    this.#momentum = momentum;
  }
  /** The weight of a new batch in the running statistics. A compiled function is traced again where it was set. */
  get momentum() {
    return track(this, 'momentum', this.#momentum);
  }
  set momentum(momentum) {
    checkLeast(this.constructor.name, 'momentum', momentum);
    this.#momentum = momentum;
  }
  /** @returns {readonly string[]} */
  ignoredState() {
    return ['num_batches_tracked'];
  }
  /**
   * Throws a ShapeError unless x has the channels and as many sizes behind them as one of the lists of names.
   * @param {Tensor} x @param {string[][]} behind names of sizes
   */
  check(x, behind) {
    const name = this.constructor.name;
    if (behind.some((names) => tensorOf(name, x).ndim === names.length + 2) && x.shape[1] === this.numFeatures) return;
    const shapes = behind.map((names) => `[${['batch', this.numFeatures, ...names].join(', ')}]`);
    throw new ShapeError(name, `expected an input ${shapes.join(' or ')}, got ${show(x.shape)}`);
  }
}

/** What the three batch normalizations share. */
class BatchNorm extends ChannelNorm {
  /** @param {number} channels of x @param {NormOptions & RunningOptions & StatisticsOptions} [options] */
  constructor(channels, options = {}) {
    super(channels, options, true);
  }
  /** The result for an input that has been checked. @param {Tensor} x */
  normalized(x) {
    const { running_mean: mean, running_var: variance, weight, bias, momentum, eps } = this;
    // Without running statistics those of the batch are used after `eval()` too.
    const training = mean === undefined || this.training;
    return within(this.constructor.name, () => batchNorm(x, mean, variance, weight, bias, training, momentum, eps));
  }
}

/** What the three instance normalizations share. */
class InstanceNorm extends ChannelNorm {
  /** @param {number} channels of x @param {NormOptions & RunningOptions & StatisticsOptions} [options] */
  constructor(channels, options = {}) {
    super(channels, options, false);
  }
  /** The result for an input that has been checked. @param {Tensor} x */
  normalized(x) {
    const { running_mean: mean, running_var: variance, weight, bias, momentum, eps } = this;
    const own = mean === undefined || this.training;
    return within(this.constructor.name, () => instanceNorm(x, mean, variance, weight, bias, own, momentum, eps));
  }
}

/**
 * Batch normalization of [batch, channels, steps]; see `BatchNorm2d`.
 */
export class BatchNorm1d extends BatchNorm {
  /**
   * Throws a ShapeError for another shape, and while training if there is only one element per channel, which has no variance.
   * @param {Tensor} x [batch, channels, steps] or [batch, channels] @returns {Tensor} of x's shape and type
   */
  forward(x) {
    this.check(x, [['steps'], []]);
    return this.normalized(x);
  }
}

/**
 * Batch normalization (Ioffe & Szegedy 2015): (x - mean) / √(variance + eps) · weight + bias for each channel. While training, mean and
 * variance are those of the batch, and update the running statistics. After `eval()` it uses the running statistics. `running_var` is of the
 * unbiased variance, as in PyTorch. The state has PyTorch's names without `num_batches_tracked`, which `loadStateDict` ignores.
 */
export class BatchNorm2d extends BatchNorm {
  /**
   * Throws a ShapeError for another shape, and while training if there is only one element per channel, which has no variance.
   * @param {Tensor} x [batch, channels, rows, columns] @returns {Tensor} of x's shape and type
   */
  forward(x) {
    this.check(x, [['rows', 'columns']]);
    return this.normalized(x);
  }
}

/**
 * Batch normalization of [batch, channels, planes, rows, columns]; see `BatchNorm2d`.
 */
export class BatchNorm3d extends BatchNorm {
  /**
   * Throws a ShapeError for another shape, and while training if there is only one element per channel, which has no variance.
   * @param {Tensor} x [batch, channels, planes, rows, columns] @returns {Tensor} of x's shape and type
   */
  forward(x) {
    this.check(x, [['planes', 'rows', 'columns']]);
    return this.normalized(x);
  }
}

/**
 * Instance normalization (Ulyanov et al. 2016) of each channel of each image; see `F.instanceNorm`.
 */
export class InstanceNorm1d extends InstanceNorm {
  /**
   * Throws a ShapeError for another shape.
   * @param {Tensor} x [batch, channels, steps] @returns {Tensor} f32, of x's shape
   */
  forward(x) {
    this.check(x, [['steps']]);
    return this.normalized(x);
  }
}

/**
 * Instance normalization (Ulyanov et al. 2016) of each channel of each image; see `F.instanceNorm`.
 */
export class InstanceNorm2d extends InstanceNorm {
  /**
   * Throws a ShapeError for another shape.
   * @param {Tensor} x [batch, channels, rows, columns] @returns {Tensor} f32, of x's shape
   */
  forward(x) {
    this.check(x, [['rows', 'columns']]);
    return this.normalized(x);
  }
}

/**
 * Instance normalization (Ulyanov et al. 2016) of each channel of each image; see `F.instanceNorm`.
 */
export class InstanceNorm3d extends InstanceNorm {
  /**
   * Throws a ShapeError for another shape.
   * @param {Tensor} x [batch, channels, planes, rows, columns] @returns {Tensor} f32, of x's shape
   */
  forward(x) {
    this.check(x, [['planes', 'rows', 'columns']]);
    return this.normalized(x);
  }
}

/**
 * Group normalization (Wu & He 2018): normalizes each group of channels within each image, then multiplies by `weight` [channels] and
 * adds `bias` [channels].
 */
export class GroupNorm extends Module {
  /**
   * @param {number} groups a divisor of `channels` @param {number} channels of x
   * @param {NormOptions & Pick<StatisticsOptions, 'affine'>} [options]
   */
  constructor(groups, channels, options = {}) {
    super();
    const { eps = 1e-5, affine = true } = checkOptions('GroupNorm', options, ['eps', 'affine']);
    if (positive('GroupNorm', 'channels', channels) % positive('GroupNorm', 'groups', groups)) {
      throw new ShapeError('GroupNorm', `${channels} channels are not a multiple of ${groups} groups`);
    }
    checkLeast('GroupNorm', 'eps', eps);
    flag('GroupNorm', 'affine', affine);
    // Typed as what they nearly always are.
    this.weight = /** @type {Parameter} */ (affine ? constantParameter('GroupNorm', 1, [channels]) : undefined);
    this.bias = /** @type {Parameter} */ (affine ? zeroParameter('GroupNorm', [channels]) : undefined);
    this.numChannels = channels;
    this.numGroups = groups;
    this.eps = eps;
  }
  /** @param {Tensor} x [batch, channels, ...] @returns {Tensor} f32, of x's shape */
  forward(x) {
    if (tensorOf('GroupNorm', x).ndim < 2 || x.shape[1] !== this.numChannels)
      throw new ShapeError('GroupNorm', `expected an input [batch, ${this.numChannels}, ...], got ${show(x.shape)}`);
    return within('GroupNorm', () => groupNorm(x, this.numGroups, this.weight, this.bias, this.eps));
  }
}
