// `F`: the operations as functions of tensors: all of functional.mjs, and of other files what is named here.

export { attention, scaledDotProductAttention } from './attention.mjs';
export { conv1d, conv2d, conv3d, convTranspose1d, convTranspose2d, convTranspose3d, upsample } from './convolution.mjs';
export * from './functional.mjs';
export { argmax, argmin, gather, indexSelect, oneHot, scatter, scatterAdd, takeAlongDim } from './indexing.mjs';
export { binaryCrossEntropyWithLogits, crossEntropy, l1Loss, linearCrossEntropy, mseLoss } from './losses.mjs';
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
