// Calls of public functions that are right: losses, norms and layers.

import { nn, ones, tensor } from '../../nn/index.mjs';

const m = () => ones([2, 3]);
const ids = () => tensor(Int32Array.of(0, 1));
const sum = { reduction: 'sum' };
const margin = { reduction: 'sum', margin: 1 };

/** Functions of `F`. @type {Record<string, () => any[]>} */
export const FUNCTIONS = {
  crossEntropy: () => [m(), ids(), { reduction: 'mean', ignoreIndex: 7, weight: ones([3]), labelSmoothing: 0.1, dim: -1, meanOf: 'kept' }],
  nllLoss: () => [m(), ids(), { reduction: 'mean', weight: ones([3]), ignoreIndex: 7, dim: -1 }],
  klDivLoss: () => [m(), m(), { reduction: 'batchmean', logTarget: true }],
  huberLoss: () => [m(), m(), { ...sum, delta: 1 }],
  smoothL1Loss: () => [m(), m(), { ...sum, beta: 1 }],
  binaryCrossEntropy: () => [m(), m(), { ...sum, weight: ones([3]) }],
  binaryCrossEntropyWithLogits: () => [m(), m(), { ...sum, weight: ones([3]), posWeight: ones([3]) }],
  cosineEmbeddingLoss: () => [m(), m(), ones([2]), margin],
  tripletMarginLoss: () => [m(), m(), m(), { ...margin, p: 2, eps: 1e-6, swap: true }],
  marginRankingLoss: () => [m(), m(), m(), margin],
  hingeEmbeddingLoss: () => [m(), m(), margin],
  multiMarginLoss: () => [m(), ids(), { ...margin, p: 1, weight: ones([3]) }],
  softMarginLoss: () => [m(), m(), sum],
  poissonNllLoss: () => [m(), m(), { ...sum, logInput: true, full: true, eps: 1e-8 }],
  gaussianNllLoss: () => [m(), m(), m(), { ...sum, full: true, eps: 1e-6 }],
  ctcLoss: () => [ones([3, 2, 4]), ones([2, 1], { dtype: 'i32' }), [3, 2], [1, 1], { ...sum, blank: 0, zeroInfinity: true }],
  normalize: () => [m(), 2, 1, 1e-12],
  cosineSimilarity: () => [m(), m(), { dim: 1, eps: 1e-8 }],
  pairwiseDistance: () => [m(), m(), { p: 2, eps: 1e-6, keepdim: true }],
};
/** Methods of tensors: the tensor, then arguments. @type {Record<string, () => any[]>} */
export const METHODS = {};
/** Modules: what their constructors take. @type {Record<string, () => any[]>} */
export const CONSTRUCTORS = {};
/** Modules and what they take, by the names that their errors have. @type {[string | string[], () => any, () => any[]][]} */
export const FORWARDS = [];

// Losses as modules take their functions' options, and give their errors.
for (const [name, of] of Object.entries({
  CrossEntropyLoss: 'crossEntropy',
  NLLLoss: 'nllLoss',
  KLDivLoss: 'klDivLoss',
  HuberLoss: 'huberLoss',
  SmoothL1Loss: 'smoothL1Loss',
  MSELoss: 'mseLoss',
  L1Loss: 'l1Loss',
  BCELoss: 'binaryCrossEntropy',
  BCEWithLogitsLoss: 'binaryCrossEntropyWithLogits',
  CosineEmbeddingLoss: 'cosineEmbeddingLoss',
  TripletMarginLoss: 'tripletMarginLoss',
  MarginRankingLoss: 'marginRankingLoss',
  HingeEmbeddingLoss: 'hingeEmbeddingLoss',
  MultiMarginLoss: 'multiMarginLoss',
  SoftMarginLoss: 'softMarginLoss',
  PoissonNLLLoss: 'poissonNllLoss',
  GaussianNLLLoss: 'gaussianNllLoss',
  CTCLoss: 'ctcLoss',
  CosineSimilarity: 'cosineSimilarity',
  PairwiseDistance: 'pairwiseDistance',
})) {
  const args = FUNCTIONS[of] ?? (() => [m(), m(), sum]);
  CONSTRUCTORS[name] = () => args().slice(-1);
  FORWARDS.push([of, () => new /** @type {any} */ (nn)[name](args().at(-1)), () => args().slice(0, -1)]);
}
