// Calls of public functions that are right: scans, sorting and choice.

import { ones, tensor, zeros } from '../../nn/index.mjs';

const m = () => ones([2, 3]);
const ids = () => tensor(Int32Array.of(0, 1));
const index = () => zeros([2, 3], { dtype: 'i32' });

/** Functions of `F`. @type {Record<string, () => any[]>} */
export const FUNCTIONS = {
  cumsum: () => [m(), 0],
  cumprod: () => [m(), 0],
  logcumsumexp: () => [m(), 0],
  cummax: () => [m(), 0],
  cummin: () => [m(), 0],
  max: () => [m(), 0, true],
  min: () => [m(), 0, true],
  prod: () => [m(), 0, true],
  countNonzero: () => [m(), 0, true],
  any: () => [m(), 0, true],
  all: () => [m(), 0, true],
  var: () => [m(), 0, { keepdim: true, correction: 0 }],
  std: () => [m(), 0, { keepdim: true, correction: 0 }],
  logsumexp: () => [m(), 0, true],
  norm: () => [m(), 3, 0, true],
  nansum: () => [m(), 0, true],
  nanmean: () => [m(), 0, true],
  median: () => [m(), 0, true],
  quantile: () => [m(), 0.5, { dim: 0, keepdim: true, interpolation: 'nearest' }],
  diff: () => [m(), 1, 1, { prepend: ones([2, 1]), append: ones([2, 1]) }],
  trapezoid: () => [m(), m(), { dx: 1, dim: 0 }],
  cumulativeTrapezoid: () => [m(), m(), { dx: 1, dim: 0 }],
  sort: () => [m(), 0, true],
  argsort: () => [m(), 0, true],
  topk: () => [m(), 1, 0, true, true],
  kthvalue: () => [m(), 1, 0, true],
  searchsorted: () => [m(), m(), { right: true }],
  bucketize: () => [m(), ones([2]), { right: true }],
  histc: () => [m(), 4, 0, 2],
  nonzero: () => [m()],
  maskedSelect: () => [m(), m().gt(0)],
  unique: () => [m()],
  uniqueConsecutive: () => [m()],
  bincount: () => [ids(), ones([2]), 3],
  multinomial: () => [m(), 2, true],
  scatterReduce: () => [m(), 0, index(), m(), 'amax', { includeSelf: false }],
  indexAdd: () => [m(), 0, ids(), m(), { alpha: 2 }],
  indexCopy: () => [m(), 0, ids(), m()],
  indexFill: () => [m(), 0, ids(), 1],
  maskedScatter: () => [m(), m().gt(0), m()],
  indexPut: () => [m(), [ids(), ids()], ones([2]), true],
};
/** Methods of tensors: the tensor, then arguments. @type {Record<string, () => any[]>} */
export const METHODS = Object.fromEntries(
  Object.entries(FUNCTIONS).filter(([name]) => !['searchsorted', 'bucketize', 'trapezoid', 'cumulativeTrapezoid'].includes(name)),
);
/** Modules: what their constructors take. @type {Record<string, () => any[]>} */
export const CONSTRUCTORS = {};
/** Modules and what they take, by the names that their errors have. @type {[string | string[], () => any, () => any[]][]} */
export const FORWARDS = [];
