// Calls of public functions that are right: functions of one, two and three elements.

import { nn, ones } from '../../nn/index.mjs';

const m = () => ones([2, 3]);
const close = () => [m(), m(), { rtol: 1e-3, atol: 1e-3, equalNan: true }];

/** Functions of one tensor, which are methods, too. */
const UNARY = [
  ...['exp2', 'expm1', 'log2', 'log10', 'sin', 'cos', 'tan', 'asin', 'acos', 'atan', 'sinh', 'cosh', 'asinh', 'acosh', 'atanh'],
  ...[
    'deg2rad',
    'rad2deg',
    'erf',
    'erfc',
    'erfinv',
    'lgamma',
    'digamma',
    'sinc',
    'floor',
    'ceil',
    'trunc',
    'frac',
    'isnan',
    'isinf',
    'isfinite',
    'signbit',
  ],
];
/** Of two. */
const BINARY = [
  'atan2',
  'hypot',
  'logaddexp',
  'logaddexp2',
  'xlogy',
  'fmod',
  'remainder',
  'floorDivide',
  'ldexp',
  'fmax',
  'fmin',
  'copysign',
  'heaviside',
  'clampMin',
  'clampMax',
];
/** Activations, and what they take after the tensor. @type {Record<string, any[]>} */
const ACTIVATIONS = {
  softplus: [1, 20],
  logSigmoid: [],
  elu: [1],
  selu: [],
  celu: [1],
  leakyRelu: [0.1],
  hardTanh: [-1, 1],
  relu6: [],
  hardSigmoid: [],
  hardSwish: [],
  mish: [],
  softsign: [],
  tanhshrink: [],
  hardshrink: [0.5],
  softshrink: [0.5],
  threshold: [0.5, 1],
};
const others = {
  logit: () => [m(), 0.1],
  round: () => [m(), { decimals: 1 }],
  nanToNum: () => [m(), 0, 1, -1],
  isclose: close,
  allclose: close,
  lerp: () => [m(), m(), m()],
  addcmul: () => [m(), m(), m(), { value: 2 }],
  addcdiv: () => [m(), m(), m(), { value: 2 }],
};
const same = /** @type {Record<string, () => any[]>} */ ({
  ...Object.fromEntries(UNARY.map((name) => [name, () => [m()]])),
  ...Object.fromEntries(BINARY.map((name) => [name, () => [m(), m()]])),
  ...others,
});

/** Functions of `F`. @type {Record<string, () => any[]>} */
export const FUNCTIONS = {
  ...same,
  ...Object.fromEntries(Object.entries(ACTIVATIONS).map(([name, rest]) => [name, () => [m(), ...rest]])),
  prelu: () => [m(), ones([3])],
  gelu: () => [m(), { approximate: 'none' }],
};
/** Methods of tensors: the tensor, then arguments. @type {Record<string, () => any[]>} */
export const METHODS = { ...same, log1p: () => [m()] };
/** Modules: what their constructors take. @type {Record<string, () => any[]>} */
export const CONSTRUCTORS = {
  GELU: () => [{ approximate: 'none' }],
  ELU: () => [1],
  CELU: () => [1],
  LeakyReLU: () => [0.1],
  PReLU: () => [3, { init: 0.5 }],
  Hardtanh: () => [-1, 1],
  Softplus: () => [1, 20],
  Softmax: () => [0],
  LogSoftmax: () => [0],
  Hardshrink: () => [0.5],
  Softshrink: () => [0.5],
  Threshold: () => [0.5, 1],
  GLU: () => [-1],
  Unflatten: () => [1, [1, -1]],
};
/** Modules and what they take, by the names that their errors have. @type {[string | string[], () => any, () => any[]][]} */
export const FORWARDS = [
  ['elu', () => new nn.ELU(), () => [m()]],
  ['selu', () => new nn.SELU(), () => [m()]],
  ['celu', () => new nn.CELU(), () => [m()]],
  ['leakyRelu', () => new nn.LeakyReLU(), () => [m()]],
  ['prelu', () => new nn.PReLU(3), () => [m()]],
  ['hardSwish', () => new nn.Hardswish(), () => [m()]],
  ['hardSigmoid', () => new nn.Hardsigmoid(), () => [m()]],
  ['hardTanh', () => new nn.Hardtanh(), () => [m()]],
  ['relu6', () => new nn.ReLU6(), () => [m()]],
  ['mish', () => new nn.Mish(), () => [m()]],
  ['logSigmoid', () => new nn.LogSigmoid(), () => [m()]],
  ['softplus', () => new nn.Softplus(), () => [m()]],
  ['softsign', () => new nn.Softsign(), () => [m()]],
  ['softmax', () => new nn.Softmax(), () => [m()]],
  ['logSoftmax', () => new nn.LogSoftmax(), () => [m()]],
  ['tanhshrink', () => new nn.Tanhshrink(), () => [m()]],
  ['hardshrink', () => new nn.Hardshrink(), () => [m()]],
  ['softshrink', () => new nn.Softshrink(), () => [m()]],
  ['threshold', () => new nn.Threshold(0.5, 1), () => [m()]],
  ['GLU', () => new nn.GLU(), () => [ones([2, 4])]],
  ['Identity', () => new nn.Identity(), () => [m()]],
  ['Unflatten', () => new nn.Unflatten(1, [1, -1]), () => [m()]],
];
