// Calls of public functions that are right: convolutions and pools.

import { nn, ones } from '../../nn/index.mjs';

const steps = () => ones([2, 2, 5]);
const image = () => ones([1, 2, 4, 4]);
const volume = () => ones([1, 2, 3, 3, 3]);
const options = { stride: 1, padding: 1, dilation: 1, groups: 1 };
const transposed = { stride: 2, padding: 1, outputPadding: 1, dilation: 1, groups: 1 };

const ofMax = { stride: 1, padding: 1, dilation: 1, ceilMode: false, returnIndices: false };
const ofMean = { stride: 1, padding: 1, ceilMode: true, countIncludePad: false, divisorOverride: 3 };
/** Images by their number of dimensions. @type {[rank: number, make: () => any][]} */
const IMAGES = [
  [1, steps],
  [2, image],
  [3, volume],
];

/** Functions of `F`. @type {Record<string, () => any[]>} */
export const FUNCTIONS = {
  conv1d: () => [steps(), ones([3, 2, 2]), ones([3]), { ...options }],
  conv2d: () => [image(), ones([3, 2, 2, 2]), ones([3]), { ...options }],
  conv3d: () => [volume(), ones([3, 2, 2, 2, 2]), ones([3]), { ...options }],
  convTranspose1d: () => [steps(), ones([2, 3, 2]), ones([3]), { ...transposed }],
  convTranspose2d: () => [image(), ones([2, 3, 2, 2]), ones([3]), { ...transposed }],
  convTranspose3d: () => [volume(), ones([2, 3, 2, 2, 2]), ones([3]), { ...transposed }],
};
/** Methods of tensors: the tensor, then arguments. @type {Record<string, () => any[]>} */
export const METHODS = {};
/** Modules: what their constructors take. @type {Record<string, () => any[]>} */
export const CONSTRUCTORS = {
  Conv1d: () => [2, 3, 2, { ...options, bias: true, paddingMode: 'circular' }],
  Conv2d: () => [2, 3, 2, { ...options, bias: true, paddingMode: 'circular' }],
  Conv3d: () => [2, 3, 2, { ...options, bias: true, paddingMode: 'circular' }],
  ConvTranspose1d: () => [2, 3, 2, { ...transposed, bias: true }],
  ConvTranspose2d: () => [2, 3, 2, { ...transposed, bias: true }],
  ConvTranspose3d: () => [2, 3, 2, { ...transposed, bias: true }],
};
/** Modules and what they take, by the names that their errors have. @type {[string | string[], () => any, () => any[]][]} */
export const FORWARDS = [
  ['conv1d', () => new nn.Conv1d(2, 3, 2), () => [steps()]],
  ['conv2d', () => new nn.Conv2d(2, 3, 2), () => [image()]],
  ['conv3d', () => new nn.Conv3d(2, 3, 2), () => [volume()]],
  ['convTranspose1d', () => new nn.ConvTranspose1d(2, 3, 2), () => [steps()]],
  ['convTranspose2d', () => new nn.ConvTranspose2d(2, 3, 2), () => [image()]],
  ['convTranspose3d', () => new nn.ConvTranspose3d(2, 3, 2), () => [volume()]],
];

for (const [rank, make] of IMAGES) {
  FUNCTIONS[`maxPool${rank}d`] = () => [make(), 2, { ...ofMax }];
  FUNCTIONS[`avgPool${rank}d`] = () => [make(), 2, { ...ofMean }];
  CONSTRUCTORS[`MaxPool${rank}d`] = () => [2, { ...ofMax }];
  CONSTRUCTORS[`AvgPool${rank}d`] = () => [2, { ...ofMean }];
  const modules = /** @type {Record<string, any>} */ (/** @type {unknown} */ (nn)); // by name
  for (const kind of ['max', 'avg']) {
    const [own, adaptive] = [`${kind}Pool${rank}d`, `adaptive${kind[0].toUpperCase()}${kind.slice(1)}Pool${rank}d`];
    const classOf = (/** @type {string} */ name) => modules[name[0].toUpperCase() + name.slice(1)];
    FUNCTIONS[adaptive] = () => [make(), 2];
    CONSTRUCTORS[adaptive[0].toUpperCase() + adaptive.slice(1)] = () => [2];
    FORWARDS.push([own, () => new (classOf(own))(2), () => [make()]], [adaptive, () => new (classOf(adaptive))(2), () => [make()]]);
  }
}
