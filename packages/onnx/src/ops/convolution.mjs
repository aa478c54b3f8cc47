export const CONVOLUTION = {};
