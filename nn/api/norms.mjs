// Normalizations over channels, composed of sums: of batches, of groups of channels, of single images, and across channels.

import { apply, tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, within } from '../core/errors.mjs';
import { positive, sizeOf } from '../core/layout.mjs';
import { noGrad } from '../core/node.mjs';
import { checkLeast, flag } from '../core/options.mjs';
import { scope } from '../core/scope.mjs';
import { isRecomputing } from './checkpoint.mjs';
import * as F from './functional.mjs';
import { toF32 } from './operands.mjs';
import { centered, normalizeChannels } from '../ops/channels.mjs';
import { floatType } from '../ops/pointwise.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/**
 * Checks an input [batch, channels, ...] and what has one element for each channel, and returns the number of channels.
 * @param {string} op @param {Tensor} x @param {Record<string, Tensor | undefined>} vectors
 */
function channelsOf(op, x, vectors) {
  if (tensorOf(op, x).ndim < 2) throw new ShapeError(op, `expected an input [batch, channels, ...], got ${show(x.shape)}`);
  const channels = x.shape[1];
  for (const [name, vector] of Object.entries(vectors)) {
    if (vector === undefined) continue;
    if (tensorOf(op, vector).dtype !== 'f32' || show(vector.shape) !== show([channels]))
      throw new ShapeError(op, `an input ${show(x.shape)} needs ${name} f32 [${channels}], got ${vector.dtype} ${show(vector.shape)}`);
  }
  return channels;
}

/** A vector of channels, as it broadcasts to [batch, channels, ...]. @param {Tensor} v @param {Tensor} x */
const column = (v, x) => F.reshape(v, [v.size, ...x.shape.slice(2).map(() => 1)]);

/**
 * Mean and (biased) variance of each channel, f32 [channels], in one pass: sums of differences to the channel's first element k, and of their
 * squares (Chan, Golub & LeVeque 1983). Since k is one of n elements, (k - mean)² is at most n times the variance.
 * @param {Tensor} x [batch, channels, ...] @param {number} count elements of a channel
 */
function moments(x, count) {
  const channels = x.shape[1];
  const dims = [...x.shape.keys()].filter((d) => d !== 1);
  const first = dims.reduce((part, d) => F.slice(part, d, 0, 1), x);
  const apart = apply(centered, [x, first]);
  const [sums, squares] = [apart, F.square(apart)].map((v) => F.reshape(F.sum(v, dims), [channels]));
  const offset = F.mul(sums, 1 / count);
  // A rounding may be below 0.
  const variance = F.relu(F.sub(F.mul(squares, 1 / count), F.square(offset)));
  return { mean: F.add(F.reshape(toF32(first), [channels]), offset), variance };
}

/** weight · x + bias for each channel. @param {Tensor} x @param {Tensor} [weight] @param {Tensor} [bias] */
function affine(x, weight, bias) {
  const scaled = weight ? F.mul(x, column(weight, x)) : x;
  return bias ? F.add(scaled, column(bias, x)) : scaled;
}

/**
 * Batch normalization (Ioffe & Szegedy 2015): (x - mean) / √(variance + eps) · weight + bias for each channel. With `training`, mean and variance
 * are those of the batch, and the running statistics, where there are any, become (1 - momentum) · running + momentum · batch, with the
 * unbiased variance. Otherwise they are the running statistics.
 * @param {Tensor} x [batch, channels, ...] @param {Tensor} [runningMean] f32 [channels] @param {Tensor} [runningVar] f32 [channels]
 * @param {Tensor} [weight] f32 [channels] @param {Tensor} [bias] f32 [channels] @param {boolean} [training] @param {number} [momentum]
 * @param {number} [eps]
 * @returns {Tensor} of x's shape and type
 * @throws {ShapeError} with `training` also where a channel has one element, which has no variance
 */
export function batchNorm(x, runningMean, runningVar, weight, bias, training = false, momentum = 0.1, eps = 1e-5) {
  const op = 'batchNorm';
  const channels = channelsOf(op, x, { runningMean, runningVar, weight, bias });
  floatType(op, x.layout);
  flag(op, 'training', training);
  checkLeast(op, 'momentum', momentum);
  checkLeast(op, 'eps', eps);
  if (!training && (runningMean === undefined || runningVar === undefined))
    throw new ArgumentError(op, 'needs runningMean and runningVar, unless training is true');
  return within(op, () => {
    const [scale, shift] = [weight ?? F.ones([channels]), bias ?? F.zeros([channels])];
    if (!training) {
      const [mean, variance] = [runningMean, runningVar].map((v) => column(/** @type {Tensor} */ (v), x));
      const inverse = F.rsqrt(F.add(variance, eps));
      return apply(normalizeChannels, [x, mean, inverse, column(scale, x), column(shift, x)], { count: 0 });
    }
    const count = x.size / channels;
    if (count <= 1) {
      throw new ShapeError(
        op,
        `an input ${show(x.shape)} has ${count ? 'one element' : 'none'} in each channel, which has no variance: call eval(), or train on more`,
      );
    }
    const { mean, inverse } = noGrad(() => {
      const batch = moments(x.detach(), count);
      // `checkpoint` runs the layer again on the same batch: count the batch once.
      if (!isRecomputing()) {
        runningMean?.copy_(F.add(F.mul(runningMean, 1 - momentum), F.mul(batch.mean, momentum)));
        runningVar?.copy_(F.add(F.mul(runningVar, 1 - momentum), F.mul(batch.variance, (momentum * count) / (count - 1))));
      }
      return { mean: batch.mean, inverse: F.rsqrt(F.add(batch.variance, eps)) };
    });
    return apply(normalizeChannels, [x, column(mean, x), column(inverse, x), column(scale, x), column(shift, x)], { count });
  });
}

/**
 * Group normalization (Wu & He 2018): normalizes each group of channels within each image, then multiplies by `weight` and adds `bias`.
 * @param {Tensor} x [batch, channels, ...] @param {number} groups a divisor of the channels @param {Tensor} [weight] f32 [channels]
 * @param {Tensor} [bias] f32 [channels] @param {number} [eps]
 * @returns {Tensor} f32, of x's shape
 */
export function groupNorm(x, groups, weight, bias, eps = 1e-5) {
  const op = 'groupNorm';
  const channels = channelsOf(op, x, { weight, bias });
  if (channels % positive(op, 'groups', groups)) throw new ShapeError(op, `${channels} channels are not a multiple of ${groups} groups`);
  checkLeast(op, 'eps', eps);
  return within(op, () => {
    const rows = F.reshape(toF32(x), [x.shape[0], groups, (channels / groups) * sizeOf(x.shape.slice(2))]);
    return affine(F.reshape(normalizedRows(rows, eps), x.shape), weight, bias);
  });
}

/** @param {Tensor} rows @param {number} eps */
function normalizedRows(rows, eps) {
  const variance = F.variance(rows, -1, { keepdim: true, correction: 0 });
  return F.mul(F.sub(rows, F.mean(rows, -1, true)), F.rsqrt(F.add(variance, eps)));
}

/**
 * Instance normalization (Ulyanov et al. 2016): normalizes each channel of each image. With running statistics, those are updated by the means
 * over the batch, or, without `useInputStats`, used instead.
 * @param {Tensor} x [batch, channels, ...] with at least three dimensions @param {Tensor} [runningMean] f32 [channels]
 * @param {Tensor} [runningVar] f32 [channels] @param {Tensor} [weight] f32 [channels] @param {Tensor} [bias] f32 [channels]
 * @param {boolean} [useInputStats] @param {number} [momentum] @param {number} [eps]
 * @returns {Tensor} f32, of x's shape; without `useInputStats` of x's type, as batchNorm's
 */
export function instanceNorm(x, runningMean, runningVar, weight, bias, useInputStats = true, momentum = 0.1, eps = 1e-5) {
  const op = 'instanceNorm';
  const channels = channelsOf(op, x, { runningMean, runningVar, weight, bias });
  flag(op, 'useInputStats', useInputStats);
  checkLeast(op, 'momentum', momentum);
  checkLeast(op, 'eps', eps);
  if (!useInputStats) return within(op, () => batchNorm(x, runningMean, runningVar, weight, bias, false, momentum, eps));
  const count = sizeOf(x.shape.slice(2));
  if (!(count > 1))
    throw new ShapeError(op, `an input ${show(x.shape)} has ${count ? 'one element' : 'none'} in each channel, which has no variance`);
  return within(op, () => {
    const rows = F.reshape(toF32(x), [x.shape[0], channels, count]);
    if ((runningMean || runningVar) && !isRecomputing())
      noGrad(() =>
        scope(() => {
          const own = rows.detach();
          runningMean?.mul_(1 - momentum).add_(F.mean(own, [0, 2]), { alpha: momentum });
          runningVar?.mul_(1 - momentum).add_(F.mean(F.variance(own, -1), 0), { alpha: momentum });
        }),
      );
    return affine(F.reshape(normalizedRows(rows, eps), x.shape), weight, bias);
  });
}

/**
 * Local response normalization (Krizhevsky et al. 2012): x / (k + alpha · mean of x² over `size` neighbouring channels)^beta, with zeros beyond
 * the first and the last channel, as in PyTorch.
 * @param {Tensor} x [batch, channels, ...] @param {number} size @param {number} [alpha] @param {number} [beta] @param {number} [k]
 * @returns {Tensor} f32, of x's shape
 */
export function localResponseNorm(x, size, alpha = 1e-4, beta = 0.75, k = 1) {
  const op = 'localResponseNorm';
  const channels = channelsOf(op, x, {});
  if (positive(op, 'size', size) > 2 * channels)
    throw new ShapeError(op, `size must be at most ${2 * channels}, twice the channels, got ${size}`);
  for (const [name, value] of Object.entries({ alpha, beta, k })) checkLeast(op, name, value);
  return within(op, () => {
    const own = toF32(x);
    const squares = F.square(own);
    const zeros = (/** @type {number} */ n) => (n > 0 ? [F.zeros([x.shape[0], n, ...x.shape.slice(2)])] : []);
    const padded = F.cat([...zeros(Math.floor(size / 2)), squares, ...zeros(Math.floor((size - 1) / 2))], 1);
    let sum = F.slice(padded, 1, 0, channels);
    for (let i = 1; i < size; i++) sum = F.add(sum, F.slice(padded, 1, i, i + channels));
    return F.div(own, F.pow(F.add(F.mul(sum, alpha / size), k), beta));
  });
}
