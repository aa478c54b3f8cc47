// For every public function of helios-vk/nn: a valid call, and wrong values to put in the place of each argument.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  F,
  Tensor,
  accumulate,
  autocast,
  checkpoint,
  compile,
  customFunction,
  customOp,
  empty,
  grad,
  load,
  openTensors,
  manualSeed,
  nn,
  noGrad,
  ones,
  optim,
  rand,
  randn,
  save,
  scope,
  setFloat32MatmulPrecision,
  tensor,
  traceOperations,
  tunedPlans,
  tuningSummary,
  useTunedPlans,
  zeros,
} from '../../nn/index.mjs';
import { vk } from '../lib/addon.mjs';
import { UNARY } from './names.mjs';
import * as conv from './wrong-conv.mjs';
import * as layers from './wrong-layers.mjs';
import { LINALG } from './wrong-linalg.mjs';
import * as math from './wrong-math.mjs';
import * as more from './wrong-more.mjs';
import * as network from './wrong-network.mjs';
import * as quantized from './wrong-quantized.mjs';
import * as shapes from './wrong-shape.mjs';
import * as sorting from './wrong-sorting.mjs';
import * as transformer from './wrong-transformer.mjs';
import * as types from './wrong-types.mjs';

/** Those of other files. */
const OTHERS = [conv, layers, math, more, network, quantized, shapes, sorting, transformer, types];

const any = (/** @type {any} */ value) => value;

/** An array that has itself in it. */
function cyclicArray() {
  /** @type {any[]} */
  const list = [1];
  list[0] = list;
  return list;
}
/** An object that has itself in it. */
function cyclicObject() {
  /** @type {any} */
  const object = { a: 1 };
  object.self = object;
  return object;
}
function disposed() {
  const x = ones([2, 2]);
  x.dispose();
  return x;
}

/** Values that are wrong in most places, each made anew. @type {Record<string, () => any>} */
export const WRONG = {
  undefined: () => undefined,
  null: () => null,
  NaN: () => NaN,
  '-1': () => -1,
  0: () => 0,
  1.5: () => 1.5,
  99: () => 99,
  Infinity: () => Infinity,
  '2^40': () => 2 ** 40,
  text: () => 'x',
  'empty text': () => '',
  true: () => true,
  BigInt: () => 5n,
  symbol: () => Symbol('s'),
  function: () => () => {},
  class: () => class Some {},
  '{}': () => ({}),
  'unknown option': () => ({ nope: 1 }),
  'no prototype': () => Object.assign(Object.create(null), { nope: 1 }),
  '[]': () => [],
  '[undefined]': () => [undefined],
  '[symbol]': () => [Symbol('s')],
  '[no prototype]': () => [Object.create(null)],
  'array in itself': cyclicArray,
  'object in itself': cyclicObject,
  '[tensor]': () => [ones([2])],
  '[huge]': () => [2 ** 20, 2 ** 20],
  'typed array': () => Float32Array.of(1, 2, 3),
  'BigInt array': () => BigInt64Array.of(1n),
  date: () => new Date(0),
  module: () => new nn.Linear(2, 2),
  'module class': () => nn.Linear,
  'f32 [7, 5]': () => ones([7, 5]),
  'f32 []': () => ones([]),
  'f32 of 9 dimensions': () => ones([2, 1, 2, 1, 2, 1, 2, 1, 2]),
  'bf16 [3]': () => ones([3], { dtype: 'bf16' }),
  'i32 [2, 2]': () => ones([2, 2], { dtype: 'i32' }),
  'u32 [2, 3]': () => ones([2, 3], { dtype: 'u32' }),
  'bool [2, 3]': () => ones([2, 3], { dtype: 'bool' }),
  'strided [3, 2]': () => ones([2, 3]).T,
  'huge view': () => ones([1]).expand(2 ** 40),
  'large view [2, 2^34]': () => ones([2, 1]).expand(2, 2 ** 34),
  disposed,
  'tensor with a gradient': () => ones([2, 3]).requiresGrad_(),
};

/**
 * A call: what its errors may begin with, the function, arguments that are right, and options by the index of their argument.
 * @typedef {{ names: string[], call: (...args: any[]) => any, args: () => any[], skip?: string[] }} Call
 */

/** @type {Call[]} */
export const CALLS = [];
/** @param {string | string[]} names @param {(...args: any[]) => any} call @param {() => any[]} args @param {string[]} [skip] */
const add = (names, call, args, skip) => CALLS.push({ names: [names].flat(), call, args, skip });

const m = () => ones([2, 3]);
const ids = () => tensor(Int32Array.of(0, 1));
const index = () => zeros([2, 3], { dtype: 'i32' });
const image = () => ones([1, 2, 4, 4]);
const reduction = { reduction: 'sum' };

/** Functions of F, by name: arguments that are right. @type {Record<string, () => any[]>} */
export const FUNCTIONS = {
  full: () => [[2], 3, { dtype: 'f32' }],
  zeros: () => [[2], { dtype: 'f32' }],
  ones: () => [[2], { dtype: 'f32' }],
  to: () => [m(), 'bf16'],
  clone: () => [m()],
  reshape: () => [m(), [3, 2]],
  permute: () => [m(), [1, 0]],
  transpose: () => [m(), 0, 1],
  expand: () => [ones([1, 3]), [2, 3]],
  unsqueeze: () => [m(), 0],
  squeeze: () => [ones([1, 3]), 0],
  slice: () => [m(), 0, 0, 1, 1],
  split: () => [m(), 2, 1],
  cat: () => [[m(), m()], 0],
  stack: () => [[m(), m()], 0],
  add: () => [m(), m()],
  sub: () => [m(), m()],
  mul: () => [m(), m()],
  div: () => [m(), m()],
  maximum: () => [m(), m()],
  minimum: () => [m(), m()],
  clamp: () => [m(), 0, 1],
  eq: () => [m(), m()],
  ne: () => [m(), m()],
  lt: () => [m(), m()],
  le: () => [m(), m()],
  gt: () => [m(), m()],
  ge: () => [m(), m()],
  where: () => [m().gt(0), m(), m()],
  pow: () => [m(), 3],
  sum: () => [m(), 0, true],
  mean: () => [m(), 0, true],
  variance: () => [m(), 0, { keepdim: true, correction: 0 }],
  sumTo: () => [m(), [1, 3]],
  amax: () => [m(), 0, true],
  amin: () => [m(), 0, true],
  argmax: () => [m(), 0, true],
  argmin: () => [m(), 0, true],
  matmul: () => [m(), ones([3, 2])],
  linear: () => [m(), ones([4, 3]), ones([4])],
  softmax: () => [m(), 0],
  logSoftmax: () => [m(), 0],
  rmsNorm: () => [m(), ones([3]), 1e-5],
  layerNorm: () => [m(), ones([3]), ones([3]), 1e-5],
  glu: () => [ones([2, 4]), 'silu'],
  embedding: () => [ids(), m()],
  dropout: () => [m(), 0.5, true],
  rope: () => [ones([1, 4, 64]), ones([4, 16, 2]), { heads: 1, headSize: 32 }],
  attention: () => [ones([1, 4, 96]), { heads: 1, causal: true }],
  scaledDotProductAttention: () => [ones([2, 3, 4]), ones([2, 3, 4]), ones([2, 3, 4]), { isCausal: true, scale: 1, dropoutP: 0.1 }],
  crossEntropy: () => [m(), ids(), { reduction: 'mean', ignoreIndex: 7 }],
  linearCrossEntropy: () => [m(), ones([4, 3]), ids(), { reduction: 'mean', ignoreIndex: 7, logitsBytes: 64 }],
  mseLoss: () => [m(), m(), reduction],
  l1Loss: () => [m(), m(), reduction],
  binaryCrossEntropyWithLogits: () => [m(), m(), reduction],
  upsample: () => [image(), 2],
  gather: () => [m(), 0, index()],
  takeAlongDim: () => [m(), index(), 0],
  scatter: () => [m(), 0, index(), m()],
  scatterAdd: () => [m(), 0, index(), m()],
  indexSelect: () => [m(), 0, ids()],
  oneHot: () => [ids(), 4],
};
for (const own of OTHERS) Object.assign(FUNCTIONS, own.FUNCTIONS);
for (const name of UNARY) FUNCTIONS[name] = () => [m()];
for (const [name, args] of Object.entries(FUNCTIONS)) if (name in F) add(name, any(F)[name], args);
for (const [name, args] of Object.entries(LINALG)) add(name, any(F.linalg)[name], args);

/** Methods of tensors, by name: the tensor, then arguments that are right. @type {Record<string, () => any[]>} */
export const METHODS = {
  toArray: () => [m()],
  item: () => [ones([])],
  toNested: () => [m()],
  format: () => [m(), { precision: 2, threshold: 10, edgeItems: 2, lineWidth: 60, sciMode: false }],
  print: () => [m(), { precision: 2 }],
  detach: () => [m()],
  alias: () => [m()],
  requiresGrad_: () => [m(), true],
  backward: () => [m().requiresGrad_().sum(), { gradient: ones([]), retain: true }],
  zeroGrad: () => [m()],
  accumulate: () => [m(), m()],
  copy_: () => [m(), m()],
  fill_: () => [m(), 1],
  zero_: () => [m()],
  add_: () => [m(), m(), { alpha: 2 }],
  sub_: () => [m(), m(), { alpha: 2 }],
  mul_: () => [m(), m()],
  div_: () => [m(), m()],
  clamp_: () => [m(), -1, 1],
  contiguous: () => [m().T],
  reshape: () => [m(), 3, 2],
  view: () => [m().T, 1, 6],
  permute: () => [m(), 1, 0],
  expand: () => [ones([1, 3]), 2, 3],
  flatten: () => [m(), 0, 1],
  at: () => [m(), 0],
  chunk: () => [m(), 2, 1],
  maskedFill: () => [m(), m().gt(0), 1],
};
/** Methods that take what the functions of their names take. */
const SAME = [
  ...['clone', 'transpose', 'unsqueeze', 'squeeze', 'slice', 'split', 'gather', 'scatter', 'scatterAdd', 'indexSelect', 'to'],
  ...['add', 'sub', 'mul', 'div', 'maximum', 'minimum', 'eq', 'ne', 'lt', 'le', 'gt', 'ge', 'clamp', 'pow', 'matmul'],
  ...['sum', 'mean', 'amax', 'amin', 'argmax', 'argmin', 'softmax', 'logSoftmax', 'takeAlongDim'],
  ...['neg', 'exp', 'log', 'sqrt', 'rsqrt', 'reciprocal', 'abs', 'square', 'sign', 'relu', 'tanh', 'sigmoid'],
];
for (const name of SAME) METHODS[name] = FUNCTIONS[name];
for (const own of OTHERS) Object.assign(METHODS, own.METHODS);
/** What is called on something that is no tensor is the runtime's own error. @param {any} x @param {(x: Tensor) => any} f */
const onTensor = (x, f) => (x instanceof Tensor ? f(x) : undefined);
for (const [name, args] of Object.entries(METHODS))
  add(name, (x, ...rest) => onTensor(x, (own) => /** @type {any} */ (own)[name](...rest)), args);
add(
  'T',
  (x) => onTensor(x, (own) => own.T),
  () => [m()],
);
add(
  'grad',
  (x, value) => onTensor(x, () => void (x.grad = value)),
  () => [m(), m()],
);

/** Constructors of modules, by name: arguments that are right. @type {Record<string, () => any[]>} */
const CONSTRUCTORS = {
  Parameter: () => [ones([2])],
  ModuleList: () => [[new nn.Linear(2, 2)]],
  Sequential: () => [new nn.Linear(2, 2), new nn.ReLU()],
  Linear: () => [3, 2, { bias: true }],
  Embedding: () => [4, 2, { paddingIdx: 1, maxNorm: 1, normType: 2 }],
  RMSNorm: () => [3, { eps: 1e-5 }],
  LayerNorm: () => [3, { eps: 1e-5 }],
  Dropout: () => [0.5],
  SwiGLU: () => [4, 8],
  MLP: () => [4, 8, { outputs: 2, bias: true }],
  MultiHeadAttention: () => [64, 2, { causal: true, rope: { base: 100 }, bias: true, kvHeads: 1, qkNorm: true }],
  LoRALinear: () => [new nn.Linear(3, 2), { rank: 1, alpha: 1 }],
  GRU: () => [3, 2, { numLayers: 1 }],
  LSTM: () => [3, 2, { numLayers: 1 }],
  BatchNorm2d: () => [2, { eps: 1e-5, momentum: 0.1 }],
  GroupNorm: () => [1, 2, { eps: 1e-5 }],
};
for (const own of OTHERS) Object.assign(CONSTRUCTORS, own.CONSTRUCTORS);
// So many layers are made one by one.
const MANY = ['2.numLayers 2^40'];
for (const [name, args] of Object.entries(CONSTRUCTORS))
  add([name, name.toLowerCase()], (...a) => new /** @type {any} */ (nn)[name](...a), args, MANY);

/** Modules and what they take, by the names that their errors have. @type {[string | string[], () => any, () => any[]][]} */
const FORWARDS = [
  ['linear', () => new nn.Linear(3, 2), () => [m()]],
  ['embedding', () => new nn.Embedding(4, 2), () => [ids()]],
  ['rmsNorm', () => new nn.RMSNorm(3), () => [m()]],
  ['layerNorm', () => new nn.LayerNorm(3), () => [m()]],
  ['dropout', () => new nn.Dropout(0.5), () => [m()]],
  ['relu', () => new nn.ReLU(), () => [m()]],
  ['silu', () => new nn.SiLU(), () => [m()]],
  ['gelu', () => new nn.GELU(), () => [m()]],
  ['tanh', () => new nn.Tanh(), () => [m()]],
  ['sigmoid', () => new nn.Sigmoid(), () => [m()]],
  ['Flatten', () => new nn.Flatten(), () => [m()]],
  ['SwiGLU', () => new nn.SwiGLU(3, 8), () => [m()]],
  ['MLP', () => new nn.MLP(3, 8), () => [m()]],
  ['MultiHeadAttention', () => new nn.MultiHeadAttention(64, 2), () => [ones([1, 4, 64])]],
  [
    'MultiHeadAttention',
    () => new nn.MultiHeadAttention(64, 2, { rope: true, kvHeads: 1, qkNorm: true }),
    () => [ones([1, 4, 64]), { keyPaddingMask: ones([1, 4]), mask: ones([4, 4]) }],
  ],
  ['LoRALinear', () => new nn.LoRALinear(new nn.Linear(3, 2), { rank: 1, alpha: 1 }), () => [m()]],
  ['GRU', () => new nn.GRU(3, 2), () => [ones([1, 4, 3]), ones([1, 2])]],
  ['LSTM', () => new nn.LSTM(3, 2), () => [ones([1, 4, 3]), [ones([1, 2]), ones([1, 2])]]],
  ['BatchNorm2d', () => new nn.BatchNorm2d(2), () => [image()]],
  ['BatchNorm2d', () => new nn.BatchNorm2d(2).eval(), () => [image()]],
  ['GroupNorm', () => new nn.GroupNorm(1, 2), () => [image()]],
];
for (const [names, make, args] of [FORWARDS, ...OTHERS.map((own) => own.FORWARDS)].flat()) add(names, (...a) => make().forward(...a), args);

const model = () => new nn.Sequential(new nn.Linear(2, 2));
add('lora', nn.lora, () => [model(), { rank: 1, alpha: 1, targets: /0/ }]);
add('mergeLora', nn.mergeLora, () => [model()]);
add('fullyShard', nn.fullyShard, () => [model()]);
add('skipInit', nn.skipInit, () => [() => model(), { dtype: 'f32' }]);
add(
  'loadStateDict',
  (state, options) => new nn.Linear(2, 1).loadStateDict(state, options),
  () => [new nn.Linear(2, 1).stateDict(), { strict: true }],
);
add(
  'ModuleList',
  (x) => new nn.ModuleList().push(x),
  () => [new nn.ReLU()],
);
add(
  'train',
  (x) => model().train(x),
  () => [true],
);
add(
  'apply',
  (fn) => model().apply(fn),
  () => [() => undefined],
  ['0 undefined'],
);
add(
  'requiresGrad_',
  (x) => model().requiresGrad_(x),
  () => [true],
);

// Functions.
add('tensor', tensor, () => [[1, 2], { dtype: 'f32', shape: [2, 1], requiresGrad: true }]);
add('empty', empty, () => [[2], { dtype: 'f32' }]);
add('rand', rand, () => [[2], { low: 0, high: 1, requiresGrad: true }]);
add('randn', randn, () => [[2], { mean: 0, deviation: 1, requiresGrad: true }]);
add('manualSeed', manualSeed, () => [1]);
add('setFloat32MatmulPrecision', setFloat32MatmulPrecision, () => ['highest']);
add('grad', grad, () => {
  const x = m().requiresGrad_();
  return [x.sum(), [x], { gradient: ones([]), retain: true, createGraph: true }];
});
add('noGrad', noGrad, () => [() => m()]);
add('scope', scope, () => [() => m()], ['0 undefined']);
add(
  'scope',
  (value) => scope(() => value),
  () => [m()],
);
add('autocast', autocast, () => ['bf16', () => m()]);
add('checkpoint', checkpoint, () => [(/** @type {any} */ x) => (x instanceof Tensor ? x.clone() : m()), m()], [
  '1 huge view',
  '1 large view [2, 2^34]',
]);
add(
  'checkpoint',
  (value) => checkpoint(() => value, m()),
  () => [m()],
);
// So many micro-steps are made one by one.
add('accumulate', accumulate, () => [2, () => m().requiresGrad_().sum()], ['0 2^40', '0 99']);
add(
  'accumulate',
  (value) => accumulate(1, () => value),
  () => [m().requiresGrad_().sum()],
);
add('compile', compile, () => [() => m(), { reuseOutputs: true, graph: true, passes: [], dynamic: [0], bound: 8, tune: false }]);
add('tuningSummary', tuningSummary, () => []);
add('tunedPlans', tunedPlans, () => []);
add('useTunedPlans', useTunedPlans, () => [tunedPlans()]);
add(
  'compile',
  (value) => compile((/** @type {any} */ x) => (x instanceof Tensor ? x : m()))(value),
  () => [m()],
);
add('traceOperations', traceOperations, () => [() => m(), [{ shape: [2, 3], dtype: 'f32' }]]);
add(
  'compile',
  (value) => compile(() => value)(),
  () => [m()],
);

const optimizers = {
  SGD: { momentum: 0.5, nesterov: true },
  AdamW: { betas: [0.9, 0.99], eps: 1e-8 },
  Lion: { betas: [0.9, 0.99] },
  ...layers.OPTIMIZERS,
};
for (const [name, own] of Object.entries(optimizers)) {
  // What all take is the same code for all.
  const common = {
    lr: 1,
    weightDecay: 1,
    clip: 1,
    gradientScale: 1,
    schedule: { warmup: 1, total: 9, finalLr: 1 },
    zero: 1,
    reduce: 'f32',
  };
  const options = name in layers.OPTIMIZERS ? own : { ...common, ...own };
  add(
    name,
    (...a) => new /** @type {any} */ (optim)[name](...a),
    () => [name === 'Muon' ? [{ params: [model().parameters()[0]], muon: true }] : model().parameters(), options],
  );
  add(
    name,
    (params) => new /** @type {any} */ (optim)[name](params),
    () => [[{ params: name === 'Muon' ? [model().parameters()[0]] : model().parameters(), lr: 1, weightDecay: 1 }]],
  );
}
/** @type {() => any} */
const optimizer = () => new optim.AdamW(model().parameters());
for (const name of ['lr', 'clip', 'gradientScale'])
  add(
    name,
    (value) => void (/** @type {any} */ ((optimizer()[name] = value))),
    () => [1],
  );
add(
  'weightDecay',
  (value) => void (optimizer().groups[0].weightDecay = value),
  () => [1],
);
add(
  'startAt',
  (value) => optimizer().startAt(value),
  () => [1],
);
add(
  'setRate',
  (group, value) => {
    const own = optimizer();
    own.setRate(group === 'own' ? own.groups[0] : group, value);
  },
  () => ['own', 1],
);
add(
  'loadStateDict',
  (state) => optimizer().loadStateDict(state),
  () => [optimizer().stateDict()],
);
add(
  'setParameter',
  (parameter, values, offset) => {
    const own = optimizer();
    own.setParameter(parameter === 'own' ? own.buckets[0].parameters[0] : parameter, values, offset);
  },
  () => ['own', ones([1]), 0],
);
add('averageGradients', optim.averageGradients, () => [{ worldSize: 1, allReduce: () => {} }, []]);

// Files, in a folder that is not there where the path is right.
const folder = mkdtempSync(join(tmpdir(), 'helios-nn-wrong-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
const file = join(folder, 'a.safetensors');
add(['save', 'toArray'], save, () => [file, { x: m() }, { metadata: { a: 'b' } }], ['0 text']);
add(
  'load',
  async (path) => {
    await save(file, { x: m() });
    return load(path);
  },
  () => [file],
);
add(
  'openTensors',
  async (path) => {
    await save(file, { x: m() });
    await (await openTensors(path)).close();
  },
  () => [file],
);

const twice = () => ({
  name: 'twice',
  // A word for each element, times 2: docs/design/codegen.md.
  spirv: vk.buildKernel(Uint32Array.from([0x314b5648, 0, 32, 0, 1, 0, 1, 1, 0, 0, 7, 0, 0, 0, 0, 0, 1])).spirv,
  infer: (/** @type {any} */ x) => ({ shape: x.shape, dtype: x.dtype }),
  dispatch: () => ({ groups: 1 }),
  backward: (/** @type {Tensor} */ dy) => [dy],
  reference: (/** @type {Float64Array} */ x) => x,
});
add(['customOp', 'twice'], customOp, () => [twice()]);
add(
  'twice',
  (...a) => customOp(twice())(...a),
  () => [m(), { a: 1 }],
);
add(
  'twice',
  (value) => customOp({ ...twice(), infer: () => value })(m()),
  () => [{ shape: [2, 3], dtype: 'f32' }],
);
add(
  'twice',
  (value) => customOp({ ...twice(), dispatch: () => value })(m()),
  () => [{ groups: 1, push: undefined }],
);
add(
  'twice',
  (value) =>
    customOp({ ...twice(), backward: () => value })(m().requiresGrad_())
      .sum()
      .backward(),
  () => [[m()]],
);
add(
  'twice',
  (value) =>
    customOp({ ...twice(), backward: () => [value] })(m().requiresGrad_())
      .sum()
      .backward(),
  () => [m()],
);
add(
  'twice',
  (shapes, attributes, options) => customOp(twice()).check(shapes, attributes, options),
  () => [[[2, 3]], { a: 1 }, { tolerance: Infinity }],
);

const same = () => ({ name: 'same', forward: (/** @type {Tensor} */ x) => x.clone(), backward: (/** @type {Tensor} */ dy) => [dy] });
add(['customFunction', 'same'], customFunction, () => [same()]);
add(
  ['customFunction', 'same'],
  (value) => customFunction({ ...same(), forward: () => value })(m()),
  () => [m()],
);
add(
  'same',
  (value) =>
    customFunction({ ...same(), backward: () => [value] })(m().requiresGrad_())
      .sum()
      .backward(),
  () => [m()],
);

for (const call of [layers, transformer].flatMap((own) => own.CALLS)) add(...call);

/** Classes that have no call of their name: those of functions that have it; and objects of functions. */
export const NAMES = ['ModuleList', 'Sequential', ...layers.NAMES];
