// The loss of sequences without alignment: connectionist temporal classification.

import { constant } from '../core/tensor.mjs';
import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { denseLayout } from '../core/layout.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import * as F from './functional.mjs';
import { gather } from './indexing.mjs';
import { reducedLoss } from './losses.mjs';
import { toF32 } from './operands.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {import('./losses.mjs').LossOptions} LossOptions */

/**
 * Options of `ctcLoss` besides those of every loss.
 * @typedef {object} CtcOptions
 * @property {number} [blank] the class of no label; 0 when left out
 * @property {boolean} [zeroInfinity] whether the loss is 0 where no alignment exists, instead of Infinity; false when left out
 */

/** Stands for the logarithm of 0: differences and sums of such numbers are finite, so no gradient becomes NaN. */
const NONE = -1e30;

/**
 * Lengths as an i32 tensor [batch]. @param {string} op @param {string} name @param {unknown} lengths @param {number} batch
 * @param {number} least @param {number} most @returns {Tensor}
 */
function lengthsOf(op, name, lengths, batch, least, most) {
  if (Array.isArray(lengths)) {
    if (lengths.length !== batch) throw new ShapeError(op, `${name} must be ${batch} numbers, got ${lengths.length}`);
    for (const length of lengths) {
      if (!Number.isInteger(length) || length < least || length > most)
        throw new ArgumentError(op, `${name} must be integers from ${least} to ${most}, got ${shown(length)}`);
    }
    return constant(Int32Array.from(lengths), denseLayout([batch], 'i32'));
  }
  const { dtype, shape } = tensorOf(op, lengths);
  if (dtype !== 'i32' && dtype !== 'u32' && dtype !== 'i64')
    throw new ArgumentError(op, `${name} must be i32, u32 or i64, or an array, got ${dtype}`);
  if (show(shape) !== show([batch])) throw new ShapeError(op, `${name} must be [${batch}], got ${show(shape)}`);
  return /** @type {Tensor} */ (lengths);
}

/**
 * Targets that follow each other, as rows [batch, longest].
 * @param {string} op @param {Tensor} targets [sum] @param {unknown} lengths @param {number} batch @returns {Tensor}
 */
function rowsOf(op, targets, lengths, batch) {
  if (!Array.isArray(lengths) || lengths.length !== batch || !lengths.every((n) => Number.isInteger(n) && n >= 0))
    throw new ArgumentError(op, `targets [${targets.size}] of ${batch} sequences need targetLengths as an array of ${batch} integers`);
  const total = lengths.reduce((a, b) => a + b, 0);
  if (total !== targets.size) throw new ShapeError(op, `targetLengths add up to ${total}, but there are ${targets.size} targets`);
  const longest = Math.max(...lengths);
  let first = 0;
  const index = lengths.flatMap((n) => {
    const from = first;
    first += n;
    return Array.from({ length: longest }, (_, i) => (i < n ? from + i : 0));
  });
  const at = constant(Int32Array.from(index), denseLayout([index.length], 'i32'));
  return F.reshape(gather(targets, 0, at), [batch, longest]);
}

/**
 * Connectionist temporal classification (Graves et al. 2006): -log of the probability that the outputs, with repeats merged and blanks
 * removed, are the targets. It sums over all alignments by the forward recurrence in logarithms, one step a time step; gradients are those of
 * that recurrence. 'mean' divides each loss by the length of its target, at least 1, and takes the mean over the batch, as in PyTorch. Where no
 * alignment exists the loss is Infinity, and its gradient is 0.
 * @param {Tensor} logProbs [steps, batch, classes], or [steps, classes] of one sequence; from `logSoftmax`
 * @param {Tensor} targets [batch, most] i32, u32 or i64 ([most] of one sequence): classes other than the blank. Or [sum], one after another, with
 *   `targetLengths` as an array
 * @param {number[] | Tensor} inputLengths steps of each sequence, at least 1: an array, or i32 [batch]
 * @param {number[] | Tensor} targetLengths targets of each sequence: an array, or i32 [batch]
 * @param {LossOptions & CtcOptions} [options]
 * @returns {Tensor} f32: [], or [batch] with 'none' ([] of one sequence)
 */
export function ctcLoss(logProbs, targets, inputLengths, targetLengths, options = {}) {
  const name = 'ctcLoss';
  const { reduction = 'mean', blank = 0, zeroInfinity = false } = checkOptions(name, options, ['reduction', 'blank', 'zeroInfinity']);
  flag(name, 'zeroInfinity', zeroInfinity);
  const { ndim } = tensorOf(name, logProbs);
  if (ndim !== 2 && ndim !== 3) throw new ShapeError(name, `expected [steps, batch, classes], got ${show(logProbs.shape)}`);
  const classes = logProbs.shape[ndim - 1];
  if (!Number.isInteger(blank) || blank < 0 || blank >= classes)
    throw new ArgumentError(name, `blank must be a class, an integer from 0 to ${classes - 1}, got ${shown(blank)}`);
  const { dtype } = tensorOf(name, targets);
  if (dtype !== 'i32' && dtype !== 'u32' && dtype !== 'i64')
    throw new ArgumentError(name, `targets must be class numbers, i32, u32 or i64, got ${dtype}`);
  const [steps, batch] = [logProbs.shape[0], ndim === 3 ? logProbs.shape[1] : 1];
  if (targets.ndim !== 1 && (targets.ndim !== 2 || targets.shape[0] !== batch))
    throw new ShapeError(name, `expected targets [${batch}, most], or one after another, got ${show(targets.shape)}`);
  return within(name, () => {
    const rows = targets.ndim === 2 ? targets : batch === 1 ? F.unsqueeze(targets, 0) : rowsOf(name, targets, targetLengths, batch);
    const labels = F.to(rows, 'i32');
    const ends = lengthsOf(name, 'inputLengths', inputLengths, batch, 1, steps);
    const counts = lengthsOf(name, 'targetLengths', targetLengths, batch, 0, labels.shape[1]);
    const own = F.reshape(toF32(logProbs), [steps, batch, classes]);
    const losses = ofSequences(own, labels, F.to(ends, 'f32'), F.to(counts, 'f32'), blank);
    const impossible = F.gt(losses, -NONE / 10);
    const each = F.where(impossible, zeroInfinity ? 0 : Infinity, losses);
    const shaped = ndim === 2 ? F.reshape(each, []) : each;
    if (reduction !== 'mean') return reducedLoss(name, () => shaped, reduction);
    return F.mean(F.div(each, F.maximum(F.to(counts, 'f32'), 1)));
  });
}

/**
 * The losses of sequences, at least -NONE / 10 where there is no alignment.
 * @param {Tensor} logProbs f32 [steps, batch, classes] @param {Tensor} labels i32 [batch, most] @param {Tensor} ends f32 [batch]
 * @param {Tensor} counts f32 [batch] @param {number} blank @returns {Tensor} [batch]
 */
function ofSequences(logProbs, labels, ends, counts, blank) {
  const [steps, batch] = logProbs.shape;
  const most = labels.shape[1];
  // The states of an alignment: a blank, the first label, a blank, the second label, …, a blank.
  const states = 2 * most + 1;
  const blanks = (/** @type {number} */ n) => F.full([batch, n], blank, { dtype: 'i32' });
  const path = F.cat([F.reshape(F.stack([blanks(most), labels], 2), [batch, 2 * most]), blanks(1)], 1);
  // Log-probabilities by state, at least NONE.
  const index = F.expand(F.unsqueeze(path, 0), [steps, batch, states]);
  const emitted = F.maximum(gather(logProbs, 2, index), NONE);
  // A label may follow another one without a blank between them unless they are equal.
  const skips = most > 1 ? F.ne(F.slice(labels, 1, 1), F.slice(labels, 1, 0, -1)) : undefined;
  const never = (/** @type {number} */ n) => F.full([batch, n], NONE);
  const jump = skips ? F.cat([never(1), F.where(skips, 0, F.full(skips.shape, NONE))], 1) : never(most);
  const jumps = F.cat([F.reshape(F.stack([never(most), jump], 2), [batch, 2 * most]), never(1)], 1);
  const state = constant(
    Float32Array.from({ length: states }, (_, i) => i),
    denseLayout([1, states], 'f32'),
  );

  let alpha = F.where(F.lt(state, 2), F.squeeze(F.slice(emitted, 0, 0, 1), 0), NONE);
  for (let t = 1; t < steps; t++) {
    const padded = F.cat([never(2), alpha], 1);
    const [stay, next, skip] = [alpha, F.slice(padded, 1, 1, -1), F.add(F.slice(padded, 1, 0, -2), jumps)];
    const most_ = F.maximum(F.maximum(stay, next), skip).detach();
    const sum = F.add(F.add(F.exp(F.sub(stay, most_)), F.exp(F.sub(next, most_))), F.exp(F.sub(skip, most_)));
    const moved = F.add(F.add(F.log(sum), most_), F.squeeze(F.slice(emitted, 0, t, t + 1), 0));
    alpha = F.where(F.gt(F.unsqueeze(ends, 1), t), moved, alpha);
  }
  // An alignment ends in the last label or in the blank behind it.
  const last = F.mul(F.unsqueeze(counts, 1), 2);
  const isLast = F.where(F.le(state, last), F.to(F.ge(state, F.sub(last, 1)), 'f32'), 0);
  const final = F.where(F.gt(isLast, 0), alpha, NONE);
  const largest = F.amax(final, -1, true).detach();
  return F.neg(F.reshape(F.add(F.log(F.sum(F.exp(F.sub(final, largest)), -1, true)), largest), [batch]));
}
