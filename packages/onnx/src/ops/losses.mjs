// Losses.

import { sizeOf } from '../types.mjs';
import { f, indexOf, same } from './lib.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../value.mjs').Value} Value */
/** @typedef {import('../definitions.mjs').Computed} Computed */

/**
 * The negative log-likelihood of classes along the second dimension.
 * @param {Tensor} logs [batch, classes, ...] @param {Value} target [batch, ...] @param {Value | undefined} weight of each class
 * @param {string} reduction @param {number | undefined} ignored a class whose rows do not count
 * @returns {Tensor}
 */
function likelihood(logs, target, weight, reduction, ignored) {
  const ids = indexOf(target.tensor);
  const counts = ignored === undefined ? undefined : f.ne(ids, ignored);
  const safe = counts ? f.where(counts, ids, f.full([], 0, { dtype: 'i32' })) : ids;
  const picked = f.reshape(f.gather(logs, 1, f.unsqueeze(safe, 1)), target.shape);
  const each = weight && f.reshape(f.indexSelect(weight.tensor, 0, f.reshape(safe, [sizeOf(target.shape)])), target.shape);
  const all = each ?? f.full(target.shape, 1, { dtype: logs.dtype });
  const factor = counts ? f.where(counts, all, f.full([], 0, { dtype: logs.dtype })) : all;
  const losses = f.neg(f.mul(picked, factor));
  if (reduction === 'none') return losses;
  return reduction === 'sum' ? f.sum(losses) : f.div(f.sum(losses), f.sum(factor));
}

/** @type {Computed} */
const negativeLogLikelihood = {
  run: ([x, target, weight], { reduction = 'mean', ignore_index: ignored }) =>
    same(x.type, likelihood(x.tensor, target, weight, reduction, ignored)),
};

/** @type {Computed} */
const softmaxCrossEntropy = {
  run([x, target, weight], { reduction = 'mean', ignore_index: ignored }) {
    const logs = f.logSoftmax(x.tensor, 1);
    return [same(x.type, likelihood(logs, target, weight, reduction, ignored)), same(x.type, logs)];
  },
};

/** @type {import('../definitions.mjs').Table} */
export const LOSSES = {
  NegativeLogLikelihoodLoss: negativeLogLikelihood,
  SoftmaxCrossEntropyLoss: softmaxCrossEntropy,
};
