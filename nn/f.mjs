// `F`: the operations as functions of tensors.

export * from './functional.mjs';
export { avgPool2d, conv2d, maxPool2d } from './convolution.mjs';
export { argmax, argmin, gather, indexSelect, scatter, scatterAdd, takeAlongDim } from './indexing.mjs';
