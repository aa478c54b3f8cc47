// Calls of public functions that are right: other shapes and orders.

import { nn, ones, tensor } from '../../nn/index.mjs';

const m = () => ones([2, 3]);
const image = () => ones([1, 4, 4, 4]);
const dtype = { dtype: 'f32' };

/** Functions of `F`. @type {Record<string, () => any[]>} */
export const FUNCTIONS = {
  arange: () => [1, 5, 2, dtype],
  cartesianProd: () => [[ones([2]), ones([3])]],
  emptyLike: () => [m(), dtype],
  eye: () => [2, 3, dtype],
  fullLike: () => [m(), 2, dtype],
  linspace: () => [0, 1, 5, dtype],
  logspace: () => [0, 1, 5, 2, dtype],
  meshgrid: () => [[ones([2]), ones([3])], { indexing: 'xy' }],
  onesLike: () => [m(), dtype],
  randLike: () => [m(), dtype],
  randint: () => [-2, 5, [3], { dtype: 'i32' }],
  randnLike: () => [m(), dtype],
  randperm: () => [5, { dtype: 'i32' }],
  trilIndices: () => [3, 4, 1],
  triuIndices: () => [3, 4, 1],
  zerosLike: () => [m(), dtype],
  broadcastTo: () => [ones([1, 3]), [2, 3]],
  channelShuffle: () => [image(), 2],
  diag: () => [m(), 1],
  diagEmbed: () => [m(), 1, 0, 1],
  diagonal: () => [m(), 1, 0, 1],
  dstack: () => [[m(), m()]],
  expandAs: () => [ones([1, 3]), m()],
  flip: () => [m(), [0, 1]],
  fold: () => [ones([1, 4, 9]), [4, 4], 2, { dilation: 1, padding: 0, stride: 1 }],
  hstack: () => [[m(), m()]],
  movedim: () => [m(), 0, 1],
  narrow: () => [m(), 1, 0, 2],
  pad: () => [m(), [1, 1], 'constant', 2],
  pixelShuffle: () => [image(), 2],
  pixelUnshuffle: () => [image(), 2],
  repeat: () => [m(), [2, 1]],
  repeatInterleave: () => [m(), 2, 1],
  roll: () => [m(), 1, 0],
  rot90: () => [m(), 1, [0, 1]],
  select: () => [m(), 0, 1],
  swapaxes: () => [m(), 0, 1],
  takeElements: () => [m(), tensor(Int32Array.of(0, 5))],
  tensorSplit: () => [m(), 2, 1],
  tile: () => [m(), [2]],
  tril: () => [m(), 1],
  triu: () => [m(), 1],
  unbind: () => [m(), 0],
  unflatten: () => [ones([6]), 0, [2, 3]],
  unfold: () => [image(), 2, { dilation: 1, padding: 1, stride: 1 }],
  vstack: () => [[m(), m()]],
  affineGrid: () => [ones([1, 2, 3]), [1, 1, 3, 4], { alignCorners: true }],
  gridSample: () => [image(), ones([1, 2, 3, 2]), { mode: 'bicubic', paddingMode: 'border', alignCorners: true }],
  interpolate: () => [image(), { size: [3, 5], mode: 'bilinear', alignCorners: true, antialias: false, recomputeScaleFactor: false }],
  blackmanWindow: () => [5, true, dtype],
  fft: () => [ones([3, 4, 2]), 5, 0, 'ortho'],
  fft2: () => [ones([3, 4, 2]), [3, 4], [0, 1], 'ortho'],
  fftfreq: () => [5, 0.5, dtype],
  fftn: () => [ones([3, 4, 2]), [3, 4], [0, 1], 'ortho'],
  fftshift: () => [m(), 1],
  hammingWindow: () => [5, true, 0.5, 0.5, dtype],
  hannWindow: () => [5, true, dtype],
  ifft: () => [ones([3, 4, 2]), 5, 0, 'ortho'],
  ifft2: () => [ones([3, 4, 2]), [3, 4], [0, 1], 'ortho'],
  ifftn: () => [ones([3, 4, 2]), [3, 4], [0, 1], 'ortho'],
  ifftshift: () => [m(), [0, 1]],
  irfft: () => [ones([3, 4, 2]), 5, 0, 'ortho'],
  irfft2: () => [ones([3, 4, 2]), [3, 4], [0, 1], 'ortho'],
  istft: () => [
    ones([3, 5, 2]),
    4,
    { hopLength: 1, winLength: 4, window: ones([4]), center: true, normalized: false, onesided: true, length: 3 },
  ],
  rfft: () => [m(), 5, 0, 'ortho'],
  rfft2: () => [m(), [3, 4], [0, 1], 'ortho'],
  rfftfreq: () => [5, 0.5, dtype],
  stft: () => [
    ones([9]),
    4,
    { hopLength: 1, winLength: 4, window: ones([4]), center: true, padMode: 'reflect', normalized: false, onesided: true },
  ],
  addmm: () => [ones([4]), m(), ones([3, 4]), { beta: 1, alpha: 2 }],
  baddbmm: () => [ones([4]), ones([1, 2, 3]), ones([1, 3, 4]), { beta: 1, alpha: 2 }],
  bmm: () => [ones([1, 2, 3]), ones([1, 3, 4])],
  cdist: () => [m(), m(), 2, 'use_mm_for_euclid_dist'],
  chainMatmul: () => [m(), ones([3, 4]), ones([4, 5])],
  cross: () => [m(), m(), 1],
  dot: () => [ones([3]), ones([3])],
  einsum: () => ['ij,kj', m(), m()],
  inner: () => [m(), m()],
  kron: () => [m(), m()],
  mm: () => [m(), ones([3, 4])],
  multiDot: () => [[m(), ones([3, 4])]],
  mv: () => [m(), ones([3])],
  outer: () => [ones([2]), ones([3])],
  tensordot: () => [m(), m(), [[0], [0]]],
  trace: () => [m()],
};
/** Methods of tensors: the tensor, then arguments. @type {Record<string, () => any[]>} */
export const METHODS = {
  flip: () => [m(), 0, 1],
  tile: () => [m(), 2, 1],
  repeat: () => [m(), 2, 1],
  broadcastTo: () => [ones([1, 3]), 2, 3],
  unfold: () => [m(), 1, 2, 1],
};
for (const name of ['roll', 'rot90', 'repeatInterleave', 'tril', 'triu', 'diag', 'diagonal', 'diagEmbed', 'movedim', 'swapaxes', 'narrow'])
  METHODS[name] = FUNCTIONS[name];
for (const name of ['addmm', 'baddbmm', 'bmm', 'cross', 'dot', 'mm', 'mv', 'outer', 'trace']) METHODS[name] = FUNCTIONS[name];
for (const name of ['select', 'unbind', 'unflatten', 'expandAs', 'tensorSplit']) METHODS[name] = FUNCTIONS[name];
/** Modules: what their constructors take. @type {Record<string, () => any[]>} */
export const CONSTRUCTORS = {
  Fold: () => [4, 2, { dilation: 1, padding: 1, stride: 1 }],
  PixelShuffle: () => [2],
  PixelUnshuffle: () => [2],
  Unfold: () => [2, { dilation: 1, padding: 1, stride: 1 }],
  Upsample: () => [{ scaleFactor: 2, mode: 'bilinear', alignCorners: true }],
};
for (const kind of ['Zero', 'Constant', 'Reflection', 'Replication', 'Circular']) {
  for (const rank of kind === 'Circular' ? [1, 2] : [1, 2, 3])
    CONSTRUCTORS[`${kind}Pad${rank}d`] = () => (kind === 'Constant' ? [new Array(2 * rank).fill(1), 2] : [new Array(2 * rank).fill(1)]);
}
/** Modules and what they take, by the names that their errors have. @type {[string | string[], () => any, () => any[]][]} */
export const FORWARDS = [
  ['fold', () => new nn.Fold(4, 2), () => [ones([1, 4, 9])]],
  ['pixelShuffle', () => new nn.PixelShuffle(2), () => [image()]],
  ['pixelUnshuffle', () => new nn.PixelUnshuffle(2), () => [image()]],
  ['unfold', () => new nn.Unfold(2), () => [image()]],
  ['Upsample', () => new nn.Upsample({ size: 3 }), () => [image()]],
  ['ReflectionPad2d', () => new nn.ReflectionPad2d(1), () => [image()]],
  ['ConstantPad1d', () => new nn.ConstantPad1d(1, 2), () => [ones([1, 2, 3])]],
];
