// Calls of public functions that are right: losses, norms and layers.

import { nn, ones, optim, tensor } from '../../nn/index.mjs';

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

const betas = { betas: [0.9, 0.99], eps: 1e-8 };
/** Optimizers: their own options. @type {Record<string, object>} */
export const OPTIMIZERS = {
  Adam: { ...betas, amsgrad: true },
  Adamax: betas,
  NAdam: { ...betas, momentumDecay: 0.1, decoupledWeightDecay: true },
  RAdam: { ...betas, decoupledWeightDecay: true },
  RMSprop: { alpha: 0.9, eps: 1e-8, momentum: 0.5, centered: true },
  Adagrad: { lrDecay: 0.1, initialAccumulator: 0.1, eps: 1e-8 },
  Adadelta: { rho: 0.5, eps: 1e-8 },
  Adafactor: { beta2Decay: -0.5, eps: [1e-8, 1e-3], d: 1 },
  Muon: {
    ...{ momentum: 0.5, nesterov: true, steps: 2, coefficients: [1, 2, 3], eps: 1e-7, adjustLr: 'original' },
    ...{ betas: [0.9, 0.99], adamEps: 1e-8 },
  },
};

/** Objects of functions, whose names are none of functions. */
export const NAMES = ['schedules'];
/** Other calls, as `add` of wrong.mjs takes them. @type {[string | string[], (...args: any[]) => any, () => any[], string[]?][]} */
export const CALLS = [];

const { schedules } = /** @type {any} */ (optim);
for (const [name, args] of /** @type {[string, () => any[]][]} */ ([
  ['constant', () => [0.5]],
  ['linear', () => [9, { from: 1, to: 0 }]],
  ['cosine', () => [9, { to: 0.1 }]],
  ['polynomial', () => [9, { power: 2, to: 0.1 }]],
  ['step', () => [9, { gamma: 0.1 }]],
  ['multiStep', () => [[2, 9], { gamma: 0.1 }]],
  ['exponential', () => [0.9]],
  ['inverseSqrt', () => [9]],
  ['warmup', () => [9, schedules.linear(9)]],
  ['oneCycle', () => [9, { pctStart: 0.5, divFactor: 2, finalDivFactor: 2 }]],
  ['chained', () => [schedules.linear(9), schedules.step(2)]],
  ['sequential', () => [[schedules.linear(9), schedules.step(2)], [4]]],
]))
  CALLS.push([name, schedules[name], args]);
const linear = () => new nn.Linear(2, 2);
CALLS.push(['EMA', (...a) => new /** @type {any} */ (optim.EMA)(...a), () => [linear(), { decay: 0.9 }]]);
CALLS.push(['SWA', (...a) => new /** @type {any} */ (optim.SWA)(...a), () => [linear()]]);
/** Made once: every optimizer looks at all modules that there are. @type {optim.EMA | undefined} */
let average;
const averages = () => (average ??= new optim.EMA(linear()));
CALLS.push(['loadStateDict', (state) => averages().loadStateDict(state), () => [averages().stateDict()]]);
