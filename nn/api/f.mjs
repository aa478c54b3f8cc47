// `F`: the operations as functions of tensors: all of functional.mjs, and of other files what is named here.

export { attention, scaledDotProductAttention } from './attention.mjs';
export { avgPool2d, conv2d, maxPool2d, upsample } from './convolution.mjs';
export * from './functional.mjs';
export { argmax, argmin, gather, indexSelect, oneHot, scatter, scatterAdd, takeAlongDim } from './indexing.mjs';
export { bitwiseAnd, bitwiseLeftShift, bitwiseNot, bitwiseOr, bitwiseRightShift, bitwiseXor } from './integers.mjs';
export { floorDivide, fmod, logicalAnd, logicalNot, logicalOr, logicalXor, prod, remainder } from './integers.mjs';
export { binaryCrossEntropyWithLogits, crossEntropy, l1Loss, linearCrossEntropy, mseLoss } from './losses.mjs';
