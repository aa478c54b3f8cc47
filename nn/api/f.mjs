// `F`: the operations as functions of tensors: all of functional.mjs, and of other files what is named here.

export { adapt } from './adapters.mjs';
export { attention, scaledDotProductAttention } from './attention.mjs';
export { conv1d, conv2d, conv3d, convTranspose1d, convTranspose2d, convTranspose3d, upsample } from './convolution.mjs';
export {
  arange,
  cartesianProd,
  emptyLike,
  eye,
  fullLike,
  geomspace,
  linspace,
  logspace,
  meshgrid,
  onesLike,
  randLike,
  randint,
  randnLike,
  randperm,
  tri,
  trilIndices,
  triuIndices,
  zerosLike,
} from './creation.mjs';
export {
  binaryCrossEntropy,
  cosineEmbeddingLoss,
  cosineSimilarity,
  gaussianNllLoss,
  hingeEmbeddingLoss,
  huberLoss,
  klDivLoss,
  marginRankingLoss,
  multiMarginLoss,
  normalize,
  pairwiseDistance,
  poissonNllLoss,
  smoothL1Loss,
  softMarginLoss,
  tripletMarginLoss,
} from './criteria.mjs';
export { ctcLoss } from './ctc.mjs';
export {
  addmm,
  baddbmm,
  bmm,
  cdist,
  chainMatmul,
  cross,
  dot,
  einsum,
  inner,
  kron,
  mm,
  multiDot,
  mv,
  outer,
  tensordot,
  trace,
} from './einsum.mjs';
export * from './distributions.mjs';
export * from './elementwise.mjs';
export {
  bartlettWindow,
  blackmanWindow,
  fft,
  fft2,
  fftfreq,
  fftn,
  fftshift,
  hammingWindow,
  hannWindow,
  hfft,
  ifft,
  ifft2,
  ifftn,
  ifftshift,
  ihfft,
  irfft,
  irfft2,
  irfftn,
  istft,
  kaiserWindow,
  rfft,
  rfft2,
  rfftfreq,
  rfftn,
  stft,
} from './fft.mjs';
export { alphaDropout, dropout1d, dropout2d, dropout3d, featureAlphaDropout, gumbelSoftmax, rrelu } from './dropouts.mjs';
export * from './network.mjs';
export * from './functional.mjs';
export { argmax, argmin, gather, indexSelect, oneHot, scatter, takeAlongDim } from './indexing.mjs';
export { scatterAdd } from './scatter.mjs';
export {
  bitwiseAnd,
  bitwiseLeftShift,
  bitwiseNot,
  bitwiseOr,
  bitwiseRightShift,
  bitwiseXor,
  logicalAnd,
  logicalNot,
  logicalOr,
  logicalXor,
} from './integers.mjs';
export { binaryCrossEntropyWithLogits, crossEntropy, l1Loss, linearCrossEntropy, mseLoss, nllLoss } from './losses.mjs';
export * from './histograms.mjs';
export * from './images.mjs';
export * from './linalg.mjs';
export * as linalg from './linear-algebra.mjs';
export { matrixNorm } from './matrix-functions.mjs';
export * from './math.mjs';
export * from './more-math.mjs';
export { batchNorm, groupNorm, instanceNorm, localResponseNorm } from './norms.mjs';
export {
  adaptiveAvgPool1d,
  adaptiveAvgPool2d,
  adaptiveAvgPool3d,
  adaptiveMaxPool1d,
  adaptiveMaxPool2d,
  adaptiveMaxPool3d,
  avgPool1d,
  avgPool2d,
  avgPool3d,
  maxPool1d,
  maxPool2d,
  maxPool3d,
} from './pooling.mjs';
export { dequantizeQ8, linearQ8, quantizeQ8 } from './quantized.mjs';
export { gru, gruCell, lstm, lstmCell, multiRnnCell, rnn, rnnReluCell, rnnTanhCell } from './recurrent.mjs';
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
export { affineGrid, gridSample, interpolate } from './resample.mjs';
export {
  broadcastTo,
  channelShuffle,
  diag,
  diagEmbed,
  diagonal,
  dstack,
  expandAs,
  flip,
  fold,
  hstack,
  movedim,
  narrow,
  pad,
  pixelShuffle,
  pixelUnshuffle,
  repeat,
  repeatInterleave,
  roll,
  rot90,
  select,
  swapaxes,
  takeElements,
  tensorSplit,
  tile,
  tril,
  triu,
  unbind,
  unflatten,
  unfold,
  vstack,
} from './shape.mjs';
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
