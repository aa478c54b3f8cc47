// Made by `npm run types` from nn/; do not edit.
export * from "./functional.mjs";
export * from "./losses.mjs";
export { avgPool2d, conv2d, maxPool2d, upsample } from "./convolution.mjs";
export { argmax, argmin, gather, indexSelect, oneHot, scatter, scatterAdd, takeAlongDim } from "./indexing.mjs";
