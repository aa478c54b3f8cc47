// `F`: the operations as functions of tensors: all of functional.mjs, and of other files what is named here.

export { attention, scaledDotProductAttention } from './attention.mjs';
export { avgPool2d, conv2d, maxPool2d, upsample } from './convolution.mjs';
export {
  arange,
  cartesianProd,
  emptyLike,
  eye,
  fullLike,
  linspace,
  logspace,
  meshgrid,
  onesLike,
  randLike,
  randint,
  randnLike,
  randperm,
  trilIndices,
  triuIndices,
  zerosLike,
} from './creation.mjs';
export * from './functional.mjs';
export { argmax, argmin, gather, indexSelect, oneHot, scatter, scatterAdd, takeAlongDim } from './indexing.mjs';
export { binaryCrossEntropyWithLogits, crossEntropy, l1Loss, linearCrossEntropy, mseLoss } from './losses.mjs';
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
