// Calls of public functions that are right: further functions of networks, and their modules.

import { nn, ones, tensor, zeros } from '../../nn/index.mjs';

const m = () => ones([2, 3]);
const ids = () => tensor(Int32Array.of(0, 1));
const signal = () => ones([1, 2, 4]);
const image = () => ones([1, 2, 4, 4]);
const volume = () => ones([1, 2, 2, 4, 4]);
const lp = { stride: 2, ceilMode: true };
const indices = (/** @type {any} */ x) => zeros(x.shape, { dtype: 'i32' });
const classes = () => tensor(Int32Array.of(0, 2, -1, 1, -1, -1), { shape: [2, 3] });
const weighted = () => ({ reduction: 'sum', weight: ones([3]) });
const distance = () => ({
  reduction: 'sum',
  margin: 1,
  distanceFunction: (/** @type {any} */ a, /** @type {any} */ b) => a.sub(b).abs().sum(-1),
  swap: true,
});
const pools = /** @type {[string, () => any][]} */ ([
  ['1d', signal],
  ['2d', image],
  ['3d', volume],
]);

/** Functions of `F`. @type {Record<string, () => any[]>} */
export const FUNCTIONS = {
  dropout1d: () => [signal(), 0.5, true],
  dropout2d: () => [image(), 0.5, true],
  dropout3d: () => [volume(), 0.5, true],
  alphaDropout: () => [m(), 0.5, true],
  featureAlphaDropout: () => [m(), 0.5, true],
  rrelu: () => [m(), 0.1, 0.2, true],
  gumbelSoftmax: () => [m(), 1, true, 0],
  bilinear: () => [ones([1, 2]), ones([1, 3]), ones([4, 2, 3]), ones([4])],
  embeddingBag: () => [ids(), ones([4, 2]), ids(), { mode: 'sum', perSampleWeights: ones(ids().shape) }],
  softmin: () => [m(), 0],
  pdist: () => [m(), 2],
  convTbc: () => [ones([4, 1, 2]), ones([3, 2, 3]), ones([3]), 1],
  upsampleBilinear: () => [image(), { size: [3, 5] }],
  multilabelMarginLoss: () => [m(), classes(), { reduction: 'sum' }],
  multilabelSoftMarginLoss: () => [m(), m(), weighted()],
  tripletMarginWithDistanceLoss: () => [m(), m(), m(), distance()],
};
/** Methods of tensors: the tensor, then arguments. @type {Record<string, () => any[]>} */
export const METHODS = {};
/** Modules: what their constructors take. @type {Record<string, () => any[]>} */
export const CONSTRUCTORS = {
  LocalResponseNorm: () => [2, { alpha: 1e-4, beta: 0.75, k: 1 }],
  CrossMapLRN2d: () => [2, { alpha: 1e-4, beta: 0.75, k: 1 }],
  RReLU: () => [0.1, 0.2],
  Softmin: () => [0],
  UpsamplingBilinear2d: () => [{ size: [2, 2] }],
  UpsamplingNearest2d: () => [{ scaleFactor: 2 }],
  MultiLabelMarginLoss: () => [{ reduction: 'sum' }],
  MultiLabelSoftMarginLoss: () => [weighted()],
  TripletMarginWithDistanceLoss: () => [distance()],
};
/** Modules and what they take, by the names that their errors have. @type {[string | string[], () => any, () => any[]][]} */
export const FORWARDS = [
  ['localResponseNorm', () => new nn.LocalResponseNorm(2), () => [image()]],
  ['localResponseNorm', () => new nn.CrossMapLRN2d(2), () => [image()]],
  ['rrelu', () => new nn.RReLU(), () => [m()]],
  ['softmin', () => new nn.Softmin(), () => [m()]],
  ['Softmax2d', () => new nn.Softmax2d(), () => [image()]],
  ['upsampleBilinear', () => new nn.UpsamplingBilinear2d({ scaleFactor: 2 }), () => [image()]],
  ['interpolate', () => new nn.UpsamplingNearest2d({ scaleFactor: 2 }), () => [image()]],
  ['multilabelMarginLoss', () => new nn.MultiLabelMarginLoss(), () => [m(), classes()]],
  ['multilabelSoftMarginLoss', () => new nn.MultiLabelSoftMarginLoss(), () => [m(), m()]],
  ['tripletMarginWithDistanceLoss', () => new nn.TripletMarginWithDistanceLoss(), () => [m(), m(), m()]],
];
for (const [rank, make] of pools) {
  FUNCTIONS[`lpPool${rank}`] = () => [make(), 2, 2, lp];
  FUNCTIONS[`maxUnpool${rank}`] = () => [
    make(),
    indices(make()),
    2,
    {
      stride: 2,
      padding: 0,
      outputSize: make()
        .shape.slice(2)
        .map((/** @type {number} */ n) => 2 * n),
    },
  ];
  CONSTRUCTORS[`LPPool${rank}`] = () => [2, 2, lp];
  CONSTRUCTORS[`MaxUnpool${rank}`] = () => [2, { stride: 2, padding: 0 }];
  const any = /** @type {any} */ (nn);
  FORWARDS.push([`lpPool${rank}`, () => new any[`LPPool${rank}`](2, 2), () => [make()]]);
  FORWARDS.push([
    `maxUnpool${rank}`,
    () => new any[`MaxUnpool${rank}`](2),
    () => [
      make(),
      indices(make()),
      make()
        .shape.slice(2)
        .map((/** @type {number} */ n) => 2 * n),
    ],
  ]);
}
