// Loss functions.

import { apply } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { isFloat } from '../core/layout.mjs';
import { abs, add, exp, log1p, maximum, mean, mul, neg, square, sub, sum } from './functional.mjs';
import { asIndex, f32UnderAutocast, f32IfOddRow, operand, promoted } from './operands.mjs';
import { tensorOf } from '../core/engine.mjs';
import * as linearLoss from '../ops/linear-loss.mjs';
import { computedType } from '../ops/matmul.mjs';
import * as network from '../ops/network.mjs';
import { isGradEnabled } from '../core/node.mjs';
import { checkOptions } from '../core/options.mjs';
import { productAttributes } from '../core/precision.mjs';
import { to } from './views.mjs';

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
 * Options of `linearCrossEntropy` besides those of `crossEntropy`.
 * @typedef {object} BlockOptions
 * @property {number} [logitsBytes] most bytes of logits in memory at once, where two rows of them fit; 1 GiB when left out. With fewer,
 *   the gradient of the weight is read and written more often: once for each block of rows
 */

/** The default of `logitsBytes`: a GPT-2 with 16 × 1,024 tokens trains 2.7 % faster on an H100 than with a quarter of it. */
const LOGITS_BYTES = 2 ** 30;

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
 * @param {Tensor} targets [...] i32, u32 or i64
 * @param {LossOptions & IgnoreOptions} [options]
 * @returns {Tensor} [], or of the targets' shape with 'none'
 */
export function crossEntropy(logits, targets, options = {}) {
  const { reduction = 'mean', ignoreIndex = -100 } = checkOptions('crossEntropy', options, ['reduction', 'ignoreIndex']);
  tensorOf('crossEntropy', logits);
  tensorOf('crossEntropy', targets);
  checkIgnored('crossEntropy', ignoreIndex);
  const losses = () =>
    apply(network.crossEntropyRows, [f32IfOddRow(f32UnderAutocast(logits)), asIndex(targets)], { ignored: ignoreIndex >>> 0 });
  return reducedLoss('crossEntropy', losses, reduction);
}

/** @param {string} op @param {unknown} index */
function checkIgnored(op, index) {
  if (!Number.isInteger(index)) throw new ArgumentError(op, `ignoreIndex must be an integer, got ${shown(index)}`);
}

/**
 * `crossEntropy(linear(x, weight), targets)`, without all logits in memory: they are computed in blocks of rows. 'mean' and 'sum' compute the
 * gradients of x and of the weight with the loss, block by block, so that no logits are computed twice (Hsu et al. 2024, Liger Kernel); the
 * backward pass multiplies them by the loss's gradient. With 'none', and for no gradient, the forward pass computes the losses alone, and the
 * backward pass computes the logits again. Under `autocast` logits have 16 bits, and losses are f32; so is the gradient of an f32 weight, which
 * the products of all blocks are added to.
 * @param {Tensor} x [..., in] @param {Tensor} weight [classes, in] @param {Tensor} targets [...] i32, u32 or i64
 * @param {LossOptions & IgnoreOptions & BlockOptions} [options]
 * @returns {Tensor} f32: [], or of the targets' shape with 'none'
 * @throws {ShapeError} if the shapes do not fit
 */
export function linearCrossEntropy(x, weight, targets, options = {}) {
  const name = 'linearCrossEntropy';
  const known = /** @type {const} */ (['reduction', 'ignoreIndex', 'logitsBytes']);
  const { reduction = 'mean', ignoreIndex = -100, logitsBytes = LOGITS_BYTES } = checkOptions(name, options, known);
  for (const tensor of [x, weight, targets]) tensorOf(name, tensor);
  checkIgnored(name, ignoreIndex);
  if (typeof logitsBytes !== 'number' || !(logitsBytes > 0))
    throw new ArgumentError(name, `logitsBytes must be a number above 0, got ${shown(logitsBytes)}`);
  return within(name, () => {
    const [rows, classes, inner] = [targets.size, weight.shape[0] ?? 1, weight.shape[1] ?? 1];
    const classNumbers = asIndex(targets);
    const given = promoted(operand(x), operand(weight));
    const dtype = computedType(given[0], given[1], rows, classes, inner);
    const [a, b] = given.map((tensor) => (isFloat(tensor.dtype) ? to(tensor, dtype) : tensor));
    const attributes = {
      block: linearLoss.blockRows(rows, classes, dtype, logitsBytes),
      ignored: ignoreIndex >>> 0,
      weightType: weight.dtype,
      ...productAttributes(dtype),
    };
    const wants = [x, weight].map(({ requiresGrad }) => isGradEnabled() && requiresGrad);
    if (reduction === 'none' || !wants.includes(true)) {
      return reducedLoss(name, () => apply(linearLoss.linearCrossEntropyRows, [a, b, classNumbers], attributes), reduction);
    }
    if (reduction !== 'mean' && reduction !== 'sum') return reducedLoss(name, () => x, reduction);
    return apply(linearLoss.linearCrossEntropy, [a, b, classNumbers], { ...attributes, scale: reduction === 'mean' ? 1 / rows : 1, wants });
  });
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
