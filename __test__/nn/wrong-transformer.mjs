// Calls of public functions that are right: PyTorch's attention and transformer layers.

import { nn, ones } from '../../nn/index.mjs';

const x = () => ones([2, 3, 4]);
const layer = { dimFeedforward: 4, dropout: 0.1, activation: 'gelu', layerNormEps: 1e-5, batchFirst: true, normFirst: true, bias: true };
const mask = () => ones([3, 3]);
const padding = () => ones([2, 3]);
const encoder = () => new nn.TransformerEncoderLayer(4, 2, { dimFeedforward: 4 });
const decoder = () => new nn.TransformerDecoderLayer(4, 2, { dimFeedforward: 4 });
const decoderCall = () => [
  x(),
  x(),
  {
    ...{ tgtMask: mask(), memoryMask: mask(), tgtKeyPaddingMask: padding(), memoryKeyPaddingMask: padding() },
    ...{ tgtIsCausal: true, memoryIsCausal: false },
  },
];

/** Functions of `F`. @type {Record<string, () => any[]>} */
export const FUNCTIONS = {};
/** Methods of tensors: the tensor, then arguments. @type {Record<string, () => any[]>} */
export const METHODS = {};
/** Modules: what their constructors take. @type {Record<string, () => any[]>} */
export const CONSTRUCTORS = {
  MultiheadAttention: () => [4, 2, { dropout: 0.1, bias: true, kdim: 4, vdim: 4, batchFirst: true }],
  TransformerEncoderLayer: () => [4, 2, layer],
  TransformerDecoderLayer: () => [4, 2, layer],
  TransformerEncoder: () => [encoder(), 2, new nn.LayerNorm(4)],
  TransformerDecoder: () => [decoder(), 2, new nn.LayerNorm(4)],
  Transformer: () => [4, 2, { ...layer, numEncoderLayers: 1, numDecoderLayers: 1 }],
};
/** Modules and what they take, by the names that their errors have. @type {[string | string[], () => any, () => any[]][]} */
export const FORWARDS = [
  [
    'MultiheadAttention',
    () => new nn.MultiheadAttention(4, 2),
    () => [x(), x(), x(), { keyPaddingMask: padding(), attnMask: mask(), isCausal: false, needWeights: true, averageAttnWeights: true }],
  ],
  ['TransformerEncoderLayer', encoder, () => [x(), { srcMask: mask(), srcKeyPaddingMask: padding(), isCausal: true }]],
  ['TransformerDecoderLayer', decoder, decoderCall],
  [
    'TransformerEncoder',
    () => new nn.TransformerEncoder(encoder(), 1),
    () => [x(), { mask: mask(), srcKeyPaddingMask: padding(), isCausal: true }],
  ],
  ['TransformerDecoder', () => new nn.TransformerDecoder(decoder(), 1), decoderCall],
  [
    'Transformer',
    () => new nn.Transformer(4, 2, { numEncoderLayers: 1, numDecoderLayers: 1, dimFeedforward: 4 }),
    () => [x(), x(), { srcMask: mask(), srcKeyPaddingMask: padding(), srcIsCausal: true, tgtIsCausal: true, tgtMask: mask() }],
  ],
];
/** Other calls, as `add` of wrong.mjs takes them. @type {[string | string[], (...args: any[]) => any, () => any[], string[]?][]} */
export const CALLS = [['generateSquareSubsequentMask', nn.Transformer.generateSquareSubsequentMask, () => [3]]];
