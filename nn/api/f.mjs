// `F`: the operations as functions of tensors: all of functional.mjs, and of other files what is named here.

export { attention, scaledDotProductAttention } from './attention.mjs';
export { avgPool2d, conv2d, maxPool2d, upsample } from './convolution.mjs';
export * from './functional.mjs';
export { argmax, argmin, gather, indexSelect, oneHot, scatter, scatterAdd, takeAlongDim } from './indexing.mjs';
export { binaryCrossEntropyWithLogits, crossEntropy, l1Loss, linearCrossEntropy, mseLoss } from './losses.mjs';
export {
  all,
  any,
  countNonzero,
  cummax,
  cummin,
  cumprod,
  cumsum,
  cumulativeTrapezoid,
  diff,
  logcumsumexp,
  logsumexp,
  max,
  median,
  min,
  nanmean,
  nansum,
  norm,
  prod,
  quantile,
  std,
  trapezoid,
  var_ as var,
} from './reductions.mjs';
export {
  argsort,
  bincount,
  bucketize,
  histc,
  indexAdd,
  indexCopy,
  indexFill,
  indexPut,
  kthvalue,
  maskedScatter,
  maskedSelect,
  multinomial,
  nonzero,
  scatterReduce,
  searchsorted,
  sort,
  topk,
  unique,
  uniqueConsecutive,
} from './sorting.mjs';
