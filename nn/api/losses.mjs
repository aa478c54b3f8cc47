// Loss functions.

import { apply } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { abs, add, exp, log1p, maximum, mean, mul, neg, square, sub, sum } from './functional.mjs';
import { f32UnderAutocast, f32IfOddRow } from './operands.mjs';
import { tensorOf } from '../core/engine.mjs';
import * as network from '../ops/network.mjs';
import { checkOptions } from '../core/options.mjs';

/** @import { Tensor } from './tensor.mjs' */

/**
 * Options of losses.
 * @typedef {object} LossOptions
 * @property {'mean' | 'sum' | 'none'} [reduction] how the losses become one number; 'none' returns each loss; 'mean' when left out
 */

/**
 * Options of `crossEntropy` besides those of every loss.
 * @typedef {object} IgnoreOptions
 * @property {number} [ignoreIndex] rows with this target, and rows whose target is not a class, have loss 0 and gradient 0; -100 when left
 *   out. Unlike PyTorch's, the mean divides by the number of all rows, including these
 */

/**
 * Reduces losses. Throws an ArgumentError for an unknown reduction.
 * @param {string} op @param {() => Tensor} losses @param {'mean' | 'sum' | 'none'} [reduction]
 * @returns {Tensor}
 */
function reducedLoss(op, losses, reduction = 'mean') {
  if (reduction === 'mean') return within(op, () => mean(losses()));
  if (reduction === 'sum') return within(op, () => sum(losses()));
  if (reduction === 'none') return within(op, losses);
  throw new ArgumentError(op, `reduction is 'mean', 'sum' or 'none', got ${shown(reduction)}`);
}

/**
 * Cross-entropy of logits and class indices, in nats: log Σ exp(logits) - logits[target] for each row.
 * @param {Tensor} logits [..., classes]: classes last, unlike PyTorch's [batch, classes, ...]
 * @param {Tensor} targets [...] i32 or u32
 * @param {LossOptions & IgnoreOptions} [options]
 * @returns {Tensor} [], or of the targets' shape with 'none'
 */
export function crossEntropy(logits, targets, options = {}) {
  const { reduction = 'mean', ignoreIndex = -100 } = checkOptions('crossEntropy', options, ['reduction', 'ignoreIndex']);
  tensorOf('crossEntropy', logits);
  tensorOf('crossEntropy', targets);
  if (!Number.isInteger(ignoreIndex)) throw new ArgumentError('crossEntropy', `ignoreIndex is an integer, got ${shown(ignoreIndex)}`);
  const losses = () => apply(network.crossEntropyRows, [f32IfOddRow(f32UnderAutocast(logits)), targets], { ignored: ignoreIndex >>> 0 });
  return reducedLoss('crossEntropy', losses, reduction);
}
/** (x - y)², reduced. Throws a ShapeError if the shapes differ. @param {Tensor} x @param {Tensor} y @param {LossOptions} [options] */
export function mseLoss(x, y, options = {}) {
  const { reduction } = checkOptions('mseLoss', options, ['reduction']);
  sameShape('mseLoss', x, y);
  return reducedLoss('mseLoss', () => square(sub(f32UnderAutocast(x), y)), reduction);
}
/** |x - y|, reduced. Throws a ShapeError if the shapes differ. @param {Tensor} x @param {Tensor} y @param {LossOptions} [options] */
export function l1Loss(x, y, options = {}) {
  const { reduction } = checkOptions('l1Loss', options, ['reduction']);
  sameShape('l1Loss', x, y);
  return reducedLoss('l1Loss', () => abs(sub(f32UnderAutocast(x), y)), reduction);
}

/**
 * Binary cross-entropy of logits x and targets y, in nats: -y log σ(x) - (1 - y) log(1 - σ(x)), reduced. It does not overflow. Throws a
 * ShapeError if the shapes differ.
 * @param {Tensor} x logits @param {Tensor} y targets in [0, 1] @param {LossOptions} [options]
 */
export function binaryCrossEntropyWithLogits(x, y, options = {}) {
  const name = 'binaryCrossEntropyWithLogits';
  const { reduction } = checkOptions(name, options, ['reduction']);
  const targets = sameShape(name, x, y);
  const logits = f32UnderAutocast(x);
  // log(1 + eˣ) = max(x, 0) + log(1 + e^-|x|), whose power is at most 1.
  const losses = () => add(sub(maximum(logits, 0), mul(logits, targets)), log1p(exp(neg(abs(logits)))));
  return reducedLoss(name, losses, reduction);
}

/** Throws a ShapeError if the shapes differ: broadcasting is rarely what a loss means. @param {string} op @param {Tensor} x @param {Tensor} y */
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
