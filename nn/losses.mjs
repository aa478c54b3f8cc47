// Losses, as functions.

import { apply } from './engine.mjs';
import { ArgumentError, ShapeError, show } from './errors.mjs';
import { abs, add, exp, log, maximum, mean, mul, neg, square, sub, sum } from './functional.mjs';
import { full32, pairs, tensorOf } from './operands.mjs';
import * as network from './ops/network.mjs';
import { checkOptions } from './options.mjs';

/** @import { Tensor } from './tensor.mjs' */

/**
 * Options of losses.
 * @typedef {object} LossOptions
 * @property {'mean' | 'sum' | 'none'} [reduction] one number of all losses, or with 'none' the losses themselves; 'mean' when left out
 */

/**
 * Options of `crossEntropy` besides those of every loss.
 * @typedef {object} IgnoreOptions
 * @property {number} [ignoreIndex] rows with this target have no loss and no gradient, nor has a target that is no class; -100 when
 *   left out. The mean is over all rows, these too
 */

/** @param {Tensor} losses @param {'mean' | 'sum' | 'none'} [reduction] */
function reducedLoss(losses, reduction = 'mean') {
  if (reduction === 'mean') return mean(losses);
  if (reduction === 'sum') return sum(losses);
  if (reduction === 'none') return losses;
  throw new ArgumentError('loss', `reduction is 'mean', 'sum' or 'none', got ${String(reduction)}`);
}

/**
 * Cross-entropy of logits and class numbers, in nats.
 * @param {Tensor} logits [..., classes]: classes last, unlike PyTorch's [batch, classes, ...]
 * @param {Tensor} targets [...] i32 or u32
 * @param {LossOptions & IgnoreOptions} [options]
 */
export function crossEntropy(logits, targets, options = {}) {
  const { reduction = 'mean', ignoreIndex = -100 } = checkOptions('crossEntropy', options, ['reduction', 'ignoreIndex']);
  if (!Number.isInteger(ignoreIndex)) throw new ArgumentError('crossEntropy', `ignoreIndex is an integer, got ${String(ignoreIndex)}`);
  logits = full32(tensorOf('crossEntropy', logits));
  tensorOf('crossEntropy', targets);
  return reducedLoss(apply(network.crossEntropyRows, [pairs(logits), targets], { ignored: ignoreIndex >>> 0 }), reduction);
}
/** (x - y)², reduced. Throws a ShapeError where the shapes differ. @param {Tensor} x @param {Tensor} y @param {LossOptions} [options] */
export const mseLoss = (x, y, options = {}) =>
  reducedLoss(square(sub(full32(x), sameShape('mseLoss', x, y))), checkOptions('mseLoss', options, ['reduction']).reduction);
/** |x - y|, reduced. Throws a ShapeError where the shapes differ. @param {Tensor} x @param {Tensor} y @param {LossOptions} [options] */
export const l1Loss = (x, y, options = {}) =>
  reducedLoss(abs(sub(full32(x), sameShape('l1Loss', x, y))), checkOptions('l1Loss', options, ['reduction']).reduction);

/**
 * Binary cross-entropy of logits and targets in [0, 1], in nats: -y log σ(x) - (1 - y) log(1 - σ(x)), without overflow. Throws a
 * ShapeError where the shapes differ.
 * @param {Tensor} x @param {Tensor} y @param {LossOptions} [options]
 */
export function binaryCrossEntropyWithLogits(x, y, options = {}) {
  const { reduction } = checkOptions('binaryCrossEntropyWithLogits', options, ['reduction']);
  const targets = sameShape('binaryCrossEntropyWithLogits', x, y);
  const logits = full32(x);
  // log(1 + eˣ) = max(x, 0) + log(1 + e^-|x|), whose power is at most 1.
  return reducedLoss(add(sub(maximum(logits, 0), mul(logits, targets)), log(add(exp(neg(abs(logits))), 1))), reduction);
}

/** @param {string} op @param {Tensor} x @param {Tensor} y */
function sameShape(op, x, y) {
  tensorOf(op, x);
  tensorOf(op, y);
  if (show(x.shape) !== show(y.shape)) {
    throw new ShapeError(
      op,
      `predictions ${show(x.shape)} and targets ${show(y.shape)} are of two shapes; reshape one (they would broadcast)`,
    );
  }
  return y;
}
