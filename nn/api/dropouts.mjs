// Dropout of whole channels, dropout for SELU, and other draws of networks: functions with PyTorch's names and defaults.

import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, within } from '../core/errors.mjs';
import { dimension, isFloat } from '../core/layout.mjs';
import { checkAbove, checkFinite, checkProbability, flag } from '../core/options.mjs';
import * as F from './functional.mjs';
import { argmax, oneHot } from './indexing.mjs';
import { leakyRelu } from './math.mjs';
import { toF32 } from './operands.mjs';
import { rand } from './random.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/** 1 / (1 - p) or 0, one for each channel of each image. @param {Tensor} x @param {number} p */
const ofChannels = (x, p) => F.dropout(F.ones([x.shape[0], x.shape[1], ...x.shape.slice(2).map(() => 1)], { dtype: x.dtype }), p);

/**
 * Drops whole channels. @param {string} op @param {Tensor} x @param {number} p @param {boolean} training @param {number} ndim
 * @param {string} sizes for errors @returns {Tensor}
 */
export function dropChannels(op, x, p, training, ndim, sizes) {
  if (tensorOf(op, x).ndim !== ndim) throw new ShapeError(op, `expected an input ${sizes}, got ${show(x.shape)}`);
  checkProbability(op, 'p', p);
  flag(op, 'training', training);
  return training && p > 0 ? within(op, () => (p === 1 ? F.dropout(x, p) : F.mul(x, ofChannels(x, p)))) : x;
}

/**
 * Keeps mean and variance of SELU's results. @param {string} op @param {Tensor} x @param {number} p @param {boolean} training
 * @param {boolean} whole whether channels are dropped as wholes @returns {Tensor}
 */
export function dropAlpha(op, x, p, training, whole) {
  if (tensorOf(op, x).ndim < 2 && whole) throw new ShapeError(op, `expected an input [batch, channels, ...], got ${show(x.shape)}`);
  if (!isFloat(x.dtype)) throw new ArgumentError(op, `takes f32, f16 or bf16, got ${x.dtype}; convert with .to('f32')`);
  checkProbability(op, 'p', p);
  flag(op, 'training', training);
  if (!training || p === 0) return x;
  if (p === 1) return F.dropout(x, p);
  // SELU's least value, -scale · alpha, stands for what is dropped (Klambauer et al. 2017).
  const least = -1.0507009873554805 * 1.6732632423543772;
  const a = (1 - p + p * (1 - p) * least ** 2) ** -0.5;
  return within(op, () => {
    const kept = whole ? ofChannels(x, p) : F.dropout(F.ones(x.shape, { dtype: x.dtype }), p);
    return F.add(F.mul(F.where(F.ne(kept, 0), x, least), a), -a * p * least);
  });
}

const SIZES = ['[batch, channels, steps]', '[batch, channels, rows, columns]', '[batch, channels, planes, rows, columns]'];

/** Drops whole channels with probability p, and divides the others by 1 - p. @param {Tensor} x [batch, channels, steps] @param {number} [p] @param {boolean} [training] @returns {Tensor} */
export const dropout1d = (x, p = 0.5, training = true) => dropChannels('dropout1d', x, p, training, 3, SIZES[0]);
/** Drops whole channels with probability p (Tompson et al. 2015), and divides the others by 1 - p. @param {Tensor} x [batch, channels, rows, columns] @param {number} [p] @param {boolean} [training] @returns {Tensor} */
export const dropout2d = (x, p = 0.5, training = true) => dropChannels('dropout2d', x, p, training, 4, SIZES[1]);
/** Drops whole channels with probability p, and divides the others by 1 - p. @param {Tensor} x [batch, channels, planes, rows, columns] @param {number} [p] @param {boolean} [training] @returns {Tensor} */
export const dropout3d = (x, p = 0.5, training = true) => dropChannels('dropout3d', x, p, training, 5, SIZES[2]);
/** Sets elements to SELU's least value with probability p, so that mean 0 and variance 1 stay. @param {Tensor} x @param {number} [p] @param {boolean} [training] false when left out @returns {Tensor} */
export const alphaDropout = (x, p = 0.5, training = false) => dropAlpha('alphaDropout', x, p, training, false);
/** `alphaDropout` of whole channels. @param {Tensor} x [batch, channels, ...] @param {number} [p] @param {boolean} [training] false when left out @returns {Tensor} */
export const featureAlphaDropout = (x, p = 0.5, training = false) => dropAlpha('featureAlphaDropout', x, p, training, true);

/**
 * x where it is at least 0, else x times a slope that is drawn for each element while training, and the mean of both bounds otherwise (Xu et al. 2015).
 * @param {Tensor} x @param {number} [lower] bound of slopes; 1/8 when left out @param {number} [upper] 1/3 when left out
 * @param {boolean} [training] false when left out @returns {Tensor}
 */
export function rrelu(x, lower = 1 / 8, upper = 1 / 3, training = false) {
  tensorOf('rrelu', x);
  for (const [name, value] of Object.entries({ lower, upper })) checkFinite('rrelu', name, value);
  flag('rrelu', 'training', training);
  if (lower > upper) throw new ArgumentError('rrelu', `lower must be at most upper, got ${lower} and ${upper}`);
  return within('rrelu', () => {
    if (!training || lower === upper) return leakyRelu(x, (lower + upper) / 2);
    const slopes = F.to(rand(x.shape, { low: lower, high: upper }), x.dtype);
    return F.where(F.lt(x, 0), F.mul(x, slopes), x);
  });
}

/**
 * Samples of the Gumbel-softmax distribution (Jang et al. 2017): softmax((logits + Gumbel noise) / tau).
 * @param {Tensor} logits unnormalized logarithms of probabilities @param {number} [tau] above 0: the smaller, the nearer to one-hot
 * @param {boolean} [hard] whether the results are one-hot, with the gradient of those that are not; false when left out
 * @param {number} [dim] of the classes; the last when left out
 * @returns {Tensor} of the logits' shape
 */
export function gumbelSoftmax(logits, tau = 1, hard = false, dim = -1) {
  const op = 'gumbelSoftmax';
  const d = dimension(op, dim, tensorOf(op, logits).ndim);
  checkAbove(op, 'tau', tau);
  flag(op, 'hard', hard);
  return within(op, () => {
    // Above 0, of which the logarithm is infinite.
    const noise = F.neg(F.log(F.neg(F.log(rand(logits.shape, { low: 2 ** -25, high: 1 })))));
    const soft = F.softmax(F.div(F.add(toF32(logits), noise), tau), d);
    if (!hard) return F.to(soft, logits.dtype);
    const classes = logits.shape[d] ?? 1;
    const one = F.transpose(oneHot(argmax(F.transpose(soft.detach(), d, -1), -1), classes), d, -1);
    return F.to(F.add(F.sub(one, soft.detach()), soft), logits.dtype);
  });
}
