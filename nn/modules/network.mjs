// Further functions of networks as modules: pools by norm and back, normalization across channels, and losses of several labels.

import * as F from '../api/functional.mjs';
import * as network from '../api/network.mjs';
import { rrelu } from '../api/dropouts.mjs';
import { localResponseNorm } from '../api/norms.mjs';
import { interpolate } from '../api/resample.mjs';
import { each } from '../api/convolution.mjs';
import { tensorOf } from '../core/engine.mjs';
import { ShapeError, show, within } from '../core/errors.mjs';
import { positive } from '../core/layout.mjs';
import { checkFinite, checkOptions, flag } from '../core/options.mjs';
import { Loss } from './losses.mjs';
import { Module } from './module.mjs';

/** @import { Tensor } from '../api/tensor.mjs' */
/** @import { LossOptions } from '../api/losses.mjs' */
/** One size for all directions, or one for each. @typedef {number | readonly number[]} Sizes */

/** What pools by norm share. */
class LpPool extends Module {
  /** @param {number} rank @param {number} normType @param {Sizes} kernelSize @param {network.LpPoolOptions} options */
  constructor(rank, normType, kernelSize, options) {
    super();
    const op = this.constructor.name;
    const { stride = kernelSize, ceilMode = false } = checkOptions(op, options, ['stride', 'ceilMode']);
    this.normType = checkFinite(op, 'normType', normType);
    this.kernelSize = each(op, 'kernelSize', kernelSize, 1, rank);
    flag(op, 'ceilMode', ceilMode);
    this.options = { stride: each(op, 'stride', stride, 1, rank), ceilMode };
  }
}
/** (Σ x^p)^(1/p) of each window; see `F.lpPool1d`. */
export class LPPool1d extends LpPool {
  /** @param {number} normType p @param {Sizes} kernelSize @param {network.LpPoolOptions} [options] */
  constructor(normType, kernelSize, options = {}) {
    super(1, normType, kernelSize, options);
  }
  /** @param {Tensor} x [batch, channels, steps] @returns {Tensor} */
  forward(x) {
    return network.lpPool1d(x, this.normType, this.kernelSize, this.options);
  }
}
/** (Σ x^p)^(1/p) of each window; see `F.lpPool2d`. */
export class LPPool2d extends LpPool {
  /** @param {number} normType p @param {Sizes} kernelSize @param {network.LpPoolOptions} [options] */
  constructor(normType, kernelSize, options = {}) {
    super(2, normType, kernelSize, options);
  }
  /** @param {Tensor} x [batch, channels, rows, columns] @returns {Tensor} */
  forward(x) {
    return network.lpPool2d(x, this.normType, this.kernelSize, this.options);
  }
}
/** (Σ x^p)^(1/p) of each window; see `F.lpPool3d`. */
export class LPPool3d extends LpPool {
  /** @param {number} normType p @param {Sizes} kernelSize @param {network.LpPoolOptions} [options] */
  constructor(normType, kernelSize, options = {}) {
    super(3, normType, kernelSize, options);
  }
  /** @param {Tensor} x [batch, channels, planes, rows, columns] @returns {Tensor} */
  forward(x) {
    return network.lpPool3d(x, this.normType, this.kernelSize, this.options);
  }
}

/**
 * Options of `MaxUnpool1d` and its kin.
 * @typedef {object} UnpoolModuleOptions
 * @property {Sizes} [stride] of the pool; the window's size when left out
 * @property {Sizes} [padding] of the pool; 0 when left out
 */

/** What the ways back from pools share. */
class Unpool extends Module {
  /** @param {number} rank @param {Sizes} kernelSize @param {UnpoolModuleOptions} options */
  constructor(rank, kernelSize, options) {
    super();
    const op = this.constructor.name;
    const { stride = kernelSize, padding = 0 } = checkOptions(op, options, ['stride', 'padding']);
    this.kernelSize = each(op, 'kernelSize', kernelSize, 1, rank);
    this.options = { stride: each(op, 'stride', stride, 1, rank), padding: each(op, 'padding', padding, 0, rank) };
  }
}
/** Puts what `MaxPool1d` took back where it was, with zeros elsewhere. */
export class MaxUnpool1d extends Unpool {
  /** @param {Sizes} kernelSize of the pool @param {UnpoolModuleOptions} [options] */
  constructor(kernelSize, options = {}) {
    super(1, kernelSize, options);
  }
  /** @param {Tensor} x [batch, channels, steps] @param {Tensor} indices from the pool @param {readonly number[]} [outputSize] @returns {Tensor} */
  forward(x, indices, outputSize) {
    return network.maxUnpool1d(x, indices, this.kernelSize, { ...this.options, outputSize });
  }
}
/** Puts what `MaxPool2d` took back where it was, with zeros elsewhere. */
export class MaxUnpool2d extends Unpool {
  /** @param {Sizes} kernelSize of the pool @param {UnpoolModuleOptions} [options] */
  constructor(kernelSize, options = {}) {
    super(2, kernelSize, options);
  }
  /** @param {Tensor} x [batch, channels, rows, columns] @param {Tensor} indices from the pool @param {readonly number[]} [outputSize] @returns {Tensor} */
  forward(x, indices, outputSize) {
    return network.maxUnpool2d(x, indices, this.kernelSize, { ...this.options, outputSize });
  }
}
/** Puts what `MaxPool3d` took back where it was, with zeros elsewhere. */
export class MaxUnpool3d extends Unpool {
  /** @param {Sizes} kernelSize of the pool @param {UnpoolModuleOptions} [options] */
  constructor(kernelSize, options = {}) {
    super(3, kernelSize, options);
  }
  /** @param {Tensor} x [batch, channels, planes, rows, columns] @param {Tensor} indices from the pool @param {readonly number[]} [outputSize] @returns {Tensor} */
  forward(x, indices, outputSize) {
    return network.maxUnpool3d(x, indices, this.kernelSize, { ...this.options, outputSize });
  }
}

/**
 * Options of `LocalResponseNorm`.
 * @typedef {object} ResponseOptions
 * @property {number} [alpha] 1e-4 when left out
 * @property {number} [beta] 0.75 when left out
 * @property {number} [k] 1 when left out
 */

/** x / (k + alpha / size · Σ x² of `size` channels)^beta; see `F.localResponseNorm`. */
export class LocalResponseNorm extends Module {
  /** @param {number} size channels @param {ResponseOptions} [options] */
  constructor(size, options = {}) {
    super();
    const op = this.constructor.name;
    const { alpha = 1e-4, beta = 0.75, k = 1 } = checkOptions(op, options, ['alpha', 'beta', 'k']);
    this.size = positive(op, 'size', size);
    for (const [name, value] of Object.entries({ alpha, beta, k })) checkFinite(op, name, value);
    this.alpha = alpha;
    this.beta = beta;
    this.k = k;
  }
  /** @param {Tensor} x [batch, channels, ...] @returns {Tensor} */
  forward(x) {
    return localResponseNorm(x, this.size, this.alpha, this.beta, this.k);
  }
}
/** `LocalResponseNorm` by its older name. */
export class CrossMapLRN2d extends LocalResponseNorm {}

/** A slope below 0 that is drawn while training; see `F.rrelu`. */
export class RReLU extends Module {
  /** @param {number} [lower] bound of slopes @param {number} [upper] */
  constructor(lower = 1 / 8, upper = 1 / 3) {
    super();
    this.lower = checkFinite('RReLU', 'lower', lower);
    this.upper = checkFinite('RReLU', 'upper', upper);
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return rrelu(x, this.lower, this.upper, this.training);
  }
}

/** softmax(-x) along a dimension. */
export class Softmin extends Module {
  /** @param {number} [dim] the last when left out */
  constructor(dim = -1) {
    super();
    this.dim = checkFinite('Softmin', 'dim', dim);
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return network.softmin(x, this.dim);
  }
}
/** softmax over the channels of images. */
export class Softmax2d extends Module {
  /** @param {Tensor} x [batch, channels, rows, columns], or without the batch @returns {Tensor} */
  forward(x) {
    if (tensorOf('Softmax2d', x).ndim !== 3 && x.ndim !== 4)
      throw new ShapeError('Softmax2d', `expected an input [batch, channels, rows, columns], got ${show(x.shape)}`);
    return within('Softmax2d', () => F.softmax(x, -3));
  }
}

/** What both kinds of upsampling share. */
class Upsampling extends Module {
  /** @param {network.UpsampleBilinearOptions} options */
  constructor(options) {
    super();
    this.options = { ...checkOptions(this.constructor.name, options, ['size', 'scaleFactor']) };
  }
}
/** Bilinear interpolation with the outermost elements on one another; see `F.upsampleBilinear`. */
export class UpsamplingBilinear2d extends Upsampling {
  /** @param {Tensor} x [batch, channels, rows, columns] @returns {Tensor} */
  forward(x) {
    return network.upsampleBilinear(x, this.options);
  }
}
/** The nearest element of each place; see `F.interpolate`. */
export class UpsamplingNearest2d extends Upsampling {
  /** @param {Tensor} x [batch, channels, rows, columns] @returns {Tensor} */
  forward(x) {
    return interpolate(x, this.options);
  }
}

/** `F.multilabelMarginLoss`. */
export class MultiLabelMarginLoss extends Loss {
  /** @param {LossOptions} [options] */
  constructor(options = {}) {
    super(options, []);
  }
  /** @param {Tensor} x [batch, classes] @param {Tensor} targets i32 of x's shape: classes, then -1 @returns {Tensor} */
  forward(x, targets) {
    return network.multilabelMarginLoss(x, targets, this.options);
  }
}
/** `F.multilabelSoftMarginLoss`. A `weight` is in `stateDict`. */
export class MultiLabelSoftMarginLoss extends Loss {
  /** @param {LossOptions & import('../api/criteria.mjs').WeightOptions} [options] */
  constructor(options = {}) {
    super(options, ['weight']);
  }
  /** @param {Tensor} x logits @param {Tensor} y of x's shape: 0 or 1 @returns {Tensor} */
  forward(x, y) {
    return network.multilabelSoftMarginLoss(x, y, this.options);
  }
}
/** `F.tripletMarginWithDistanceLoss`. */
export class TripletMarginWithDistanceLoss extends Loss {
  /** @param {LossOptions & import('../api/criteria.mjs').MarginOptions & network.DistanceFunctionOptions} [options] */
  constructor(options = {}) {
    super(options, ['margin', 'distanceFunction', 'swap']);
  }
  /** @param {Tensor} anchor @param {Tensor} positive @param {Tensor} negative @returns {Tensor} */
  forward(anchor, positive, negative) {
    return network.tripletMarginWithDistanceLoss(anchor, positive, negative, this.options);
  }
}
