// Calls of public functions that are right: losses, norms and layers.

import { distributions, nn, ones, optim, tensor } from '../../nn/index.mjs';

const m = () => ones([2, 3]);
const ids = () => tensor(Int32Array.of(0, 1));
const sum = { reduction: 'sum' };
const margin = { reduction: 'sum', margin: 1 };

const image = () => ones([1, 2, 4, 4]);
const steps = () => ones([1, 4, 3]);
const recurrent = { numLayers: 1, bidirectional: false, dropout: 0.1, training: true, batchFirst: true, bias: true };
/** Parameters of a recurrence of 3 inputs and 2 states. @param {number} n */
const gates = (n) => [ones([2 * n, 3]), ones([2 * n, 2]), ones([2 * n]), ones([2 * n])];

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
  batchNorm: () => [image(), ones([2]), ones([2]), ones([2]), ones([2]), true, 0.1, 1e-5],
  groupNorm: () => [image(), 2, ones([2]), ones([2]), 1e-5],
  instanceNorm: () => [image(), ones([2]), ones([2]), ones([2]), ones([2]), true, 0.1, 1e-5],
  localResponseNorm: () => [image(), 2, 1e-4, 0.75, 1],
  lstm: () => [steps(), [ones([1, 2]), ones([1, 2])], gates(4), recurrent],
  lstmCell: () => [m(), [ones([2, 2]), ones([2, 2])], ones([8, 3]), ones([8, 2]), ones([8]), ones([8])],
  gruCell: () => [m(), ones([2, 2]), ones([6, 3]), ones([6, 2]), ones([6]), ones([6])],
  rnnTanhCell: () => [m(), ones([2, 2]), ones([2, 3]), ones([2, 2]), ones([2]), ones([2])],
  rnnReluCell: () => [m(), ones([2, 2]), ones([2, 3]), ones([2, 2]), ones([2]), ones([2])],
  multiRnnCell: () => [[(/** @type {any} */ x, /** @type {any} */ state) => [x, state[1]]], m(), [[ones([2, 3]), ones([2, 3])]]],
  gru: () => [steps(), ones([1, 2]), gates(3), recurrent],
  rnn: () => [steps(), ones([1, 2]), gates(1), { ...recurrent, nonlinearity: 'relu' }],
};
/** Methods of tensors: the tensor, then arguments. @type {Record<string, () => any[]>} */
export const METHODS = {};
/** Modules: what their constructors take. @type {Record<string, () => any[]>} */
export const CONSTRUCTORS = {
  Embedding: () => [4, 2, { paddingIdx: 1, maxNorm: 1, normType: 2 }],
  LayerNorm: () => [3, { eps: 1e-5, elementwiseAffine: true, bias: true }],
  GroupNorm: () => [1, 2, { eps: 1e-5, affine: true }],
  ModuleDict: () => [{ a: new nn.ReLU() }],
  ParameterDict: () => [{ a: new nn.Parameter(ones([2])) }],
  ParameterList: () => [[new nn.Parameter(ones([2]))]],
  EmbeddingBag: () => [4, 2, { mode: 'sum' }],
  Bilinear: () => [2, 3, 4, { bias: true }],
};
for (const name of ['BatchNorm1d', 'BatchNorm2d', 'BatchNorm3d', 'InstanceNorm1d', 'InstanceNorm2d', 'InstanceNorm3d'])
  CONSTRUCTORS[name] = () => [2, { eps: 1e-5, momentum: 0.1, affine: true, trackRunningStats: true }];
for (const name of ['Dropout1d', 'Dropout2d', 'Dropout3d', 'AlphaDropout', 'FeatureAlphaDropout']) CONSTRUCTORS[name] = () => [0.5];
for (const name of ['GRU', 'LSTM', 'RNN'])
  CONSTRUCTORS[name] = () => [3, 2, { numLayers: 1, bidirectional: true, dropout: 0.1, batchFirst: true, bias: true }];
for (const name of ['GRUCell', 'LSTMCell', 'RNNCell']) CONSTRUCTORS[name] = () => [3, 2, { bias: true }];
/** Modules and what they take, by the names that their errors have. @type {[string | string[], () => any, () => any[]][]} */
export const FORWARDS = [
  ['embedding', () => new nn.Embedding(4, 2, { paddingIdx: 0 }), () => [ids()]],
  ['layerNorm', () => new nn.LayerNorm([2, 3], { bias: false }), () => [m()]],
  ['BatchNorm1d', () => new nn.BatchNorm1d(3), () => [m()]],
  ['BatchNorm3d', () => new nn.BatchNorm3d(2), () => [ones([1, 2, 2, 2, 2])]],
  ['InstanceNorm1d', () => new nn.InstanceNorm1d(2), () => [ones([1, 2, 3])]],
  ['InstanceNorm2d', () => new nn.InstanceNorm2d(2), () => [image()]],
  ['InstanceNorm3d', () => new nn.InstanceNorm3d(2), () => [ones([1, 2, 2, 2, 2])]],
  ['Dropout1d', () => new nn.Dropout1d(), () => [ones([1, 2, 3])]],
  ['Dropout2d', () => new nn.Dropout2d(), () => [image()]],
  ['Dropout3d', () => new nn.Dropout3d(), () => [ones([1, 2, 2, 2, 2])]],
  ['AlphaDropout', () => new nn.AlphaDropout(), () => [m()]],
  ['FeatureAlphaDropout', () => new nn.FeatureAlphaDropout(), () => [m()]],
  ['EmbeddingBag', () => new nn.EmbeddingBag(4, 2), () => [ids(), ids()]],
  ['Bilinear', () => new nn.Bilinear(2, 3, 4), () => [ones([1, 2]), ones([1, 3])]],
  ['RNN', () => new nn.RNN(3, 2), () => [steps(), ones([1, 2])]],
  ['GRUCell', () => new nn.GRUCell(3, 2), () => [ones([1, 3]), ones([1, 2])]],
  ['LSTMCell', () => new nn.LSTMCell(3, 2), () => [ones([1, 3]), [ones([1, 2]), ones([1, 2])]]],
  ['RNNCell', () => new nn.RNNCell(3, 2), () => [ones([1, 3]), ones([1, 2])]],
];

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
  AdamW: { ...betas, amsgrad: true },
  Adamax: betas,
  NAdam: { ...betas, momentumDecay: 0.1, decoupledWeightDecay: true },
  RAdam: { ...betas, decoupledWeightDecay: true },
  RMSprop: { alpha: 0.9, eps: 1e-8, momentum: 0.5, centered: true },
  Adagrad: { lrDecay: 0.1, initialAccumulator: 0.1, eps: 1e-8 },
  Adadelta: { rho: 0.5, eps: 1e-8 },
  Rprop: { etas: [0.5, 2], stepSizes: [0.1, 1] },
  ASGD: { lambd: 0.1, alpha: 0.5, t0: 2 },
  Adafactor: { beta2Decay: -0.5, eps: [1e-8, 1e-3], d: 1 },
  Muon: {
    ...{ momentum: 0.5, nesterov: true, steps: 2, coefficients: [1, 2, 3], eps: 1e-7, adjustLr: 'original' },
    ...{ betas: [0.9, 0.99], adamEps: 1e-8 },
  },
};

/** Objects of functions, whose names are none of functions. */
export const NAMES = ['schedules', 'utils', 'distributions'];
/** Other calls, as `add` of wrong.mjs takes them. @type {[string | string[], (...args: any[]) => any, () => any[], string[]?][]} */
export const CALLS = [];

CALLS.push([
  'LBFGS',
  (params, options) => new optim.LBFGS(params, options),
  () => [
    [new nn.Parameter(m())],
    { lr: 1, maxIter: 2, maxEval: 3, toleranceGrad: 1e-7, toleranceChange: 1e-9, historySize: 5, lineSearchFn: 'strong_wolfe' },
  ],
]);
CALLS.push([
  'ReduceLROnPlateau',
  (own, options) => new optim.ReduceLROnPlateau(own, options),
  () => [
    new optim.SGD([new nn.Parameter(m())], { lr: 1 }),
    { mode: 'max', factor: 0.5, patience: 1, threshold: 0.1, thresholdMode: 'abs', cooldown: 1, minLr: 0.1, eps: 0.1 },
  ],
]);
/** @type {nn.Parameter | undefined} */
let weight;
const ofWeight = () => (weight ??= new nn.Parameter(m()));
const lossOfWeight = () => {
  const loss = ofWeight().sum();
  loss.backward();
  return loss;
};
CALLS.push(['step', (closure) => new optim.LBFGS([ofWeight()]).step(closure), () => [lossOfWeight]]);

const { schedules } = /** @type {any} */ (optim);
for (const [name, args] of /** @type {[string, () => any[]][]} */ ([
  ['constant', () => [0.5]],
  ['linear', () => [9, { from: 1, to: 0 }]],
  ['cosine', () => [9, { to: 0.1 }]],
  ['cosineRestarts', () => [9, { mult: 2, to: 0.1 }]],
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
// Values of such sizes are drawn one by one.
for (const [name, rest] of /** @type {[string, any[]][]} */ ([
  ['uniform', [0, 1]],
  ['normal', [0, 1]],
  ['truncNormal', [0, 1, -2, 2]],
  ['constant', [1]],
  ['zeros', []],
  ['ones', []],
  ['eye', []],
  ['xavierUniform', [1]],
  ['xavierNormal', [1]],
  ['kaimingUniform', [{ a: 0, mode: 'fanOut', nonlinearity: 'relu' }]],
  ['kaimingNormal', [{ a: 0, mode: 'fanOut', nonlinearity: 'relu' }]],
  ['orthogonal', [1]],
]))
  CALLS.push([name, /** @type {any} */ (nn.init)[name], () => [m(), ...rest], ['0 huge view', '0 large view [2, 2^34]']]);
CALLS.push(['calculateGain', nn.init.calculateGain, () => ['leakyRelu', 0.1]]);
const trained = () => {
  const x = m().requiresGrad_();
  x.sum().backward();
  return [x];
};
CALLS.push(['clipGradNorm', nn.utils.clipGradNorm, () => [trained(), 1, 2]]);
CALLS.push(['clipGradValue', nn.utils.clipGradValue, () => [trained(), 1]]);
CALLS.push(['weightNorm', nn.utils.weightNorm, () => [new nn.Linear(2, 3), { name: 'bias', dim: 0 }]]);
CALLS.push(['spectralNorm', nn.utils.spectralNorm, () => [new nn.Linear(2, 3), { name: 'bias', nPowerIterations: 2, eps: 1e-6, dim: 0 }]]);
CALLS.push(['removeSpectralNorm', nn.utils.removeSpectralNorm, () => [nn.utils.spectralNorm(new nn.Linear(2, 3)), { name: 'weight' }]]);
CALLS.push(['removeWeightNorm', nn.utils.removeWeightNorm, () => [nn.utils.weightNorm(new nn.Linear(2, 3)), { name: 'weight' }]]);
CALLS.push(['parametersToVector', nn.utils.parametersToVector, () => [[m(), m()]]]);
const spread = () => new distributions.Normal(m(), 1);
for (const [name, args] of /** @type {[string, () => any[]][]} */ ([
  ['Categorical', () => [{ probs: m() }]],
  ['Bernoulli', () => [{ logits: m() }]],
  ['Normal', () => [m(), m()]],
  ['Uniform', () => [m(), m()]],
  ['Independent', () => [spread(), 1]],
]))
  CALLS.push([name, (...own) => new /** @type {any} */ (distributions)[name](...own), args]);
CALLS.push(['klDivergence', distributions.klDivergence, () => [spread(), spread()]]);
CALLS.push(['padSequence', nn.utils.padSequence, () => [[m(), m()], { batchFirst: true, paddingValue: 1 }]]);
CALLS.push(['vectorToParameters', nn.utils.vectorToParameters, () => [ones([6]), [m()]]]);
const linear = () => new nn.Linear(2, 2);
CALLS.push(['EMA', (...a) => new /** @type {any} */ (optim.EMA)(...a), () => [linear(), { decay: 0.9 }]]);
CALLS.push(['SWA', (...a) => new /** @type {any} */ (optim.SWA)(...a), () => [linear()]]);
/** Made once: every optimizer looks at all modules that there are. @type {optim.EMA | undefined} */
let average;
const averages = () => (average ??= new optim.EMA(linear()));
CALLS.push(['loadStateDict', (state) => averages().loadStateDict(state), () => [averages().stateDict()]]);
