// Test cases of operations: functions of one and two elements.

import { uniform } from '../lib/random-data.mjs';
import { binary, few, positive, random, shape, size, smooth, unary, x } from './inputs.mjs';

/** @typedef {import('./inputs.mjs').Case} Case */
/** @typedef {import('./inputs.mjs').Input} Input */

/** Within ±0.9, where the inverses of sine and error function are at ease. @param {number[]} own @returns {Input} */
const inside = (...own) => ({ shape: own, values: uniform(size(own), -0.9, 0.9) });
/** @param {number[]} own @returns {Input} */
const aboveOne = (...own) => ({ shape: own, values: uniform(size(own), 1.1, 4) });
/** Away from whole numbers and halves. @param {number[]} own @returns {Input} */
const between = (...own) => ({
  shape: own,
  values: uniform(size(own), -4, 4).map((v) => Math.floor(v * 2) / 2 + 0.25 + (v - Math.floor(v)) / 8),
});

/** @param {number[]} own @returns {Input} */
const within01 = (...own) => ({ shape: own, values: uniform(size(own), 0.15, 0.85) });
/** Ones, of both signs: quotients by these are as far from whole numbers. @param {number[]} own @returns {Input} */
const one = (...own) => ({ shape: own, values: uniform(size(own)).map((v) => (v < 0 ? -1 : 1)) });
/** Functions of one, by what they are asked of. @type {Record<string, [make: (...shape: number[]) => Input, numbers?: number[]]>} */
const UNARY = {
  exp2: [x],
  expm1: [x],
  log2: [positive],
  log10: [positive],
  sin: [x],
  cos: [x],
  tan: [inside],
  asin: [inside],
  acos: [inside],
  atan: [x],
  sinh: [x],
  cosh: [x],
  asinh: [x],
  acosh: [aboveOne],
  atanh: [inside],
  erf: [x],
  erfc: [x],
  geluExact: [x],
  erfinv: [inside],
  lgamma: [positive],
  digamma: [positive],
  sinc: [x],
  logit: [within01, [0.1, 0.9]],
  floor: [between],
  ceil: [between],
  trunc: [between],
  round: [between],
  frac: [between],
  isnan: [few],
  isinf: [few],
  isfinite: [few],
  signbit: [few],
  nanToNum: [x, [0, 9, -9]],
  softplus: [x, [1.5, 20]],
  logSigmoid: [x],
  elu: [smooth, [1.5]],
  selu: [smooth],
  celu: [smooth, [1.5]],
  leakyRelu: [smooth, [0.1]],
  hardTanh: [between, [-1, 2]],
  hardSigmoid: [between],
  hardSwish: [between],
  mish: [x],
  softsign: [smooth],
  tanhshrink: [x],
  hardshrink: [between, [0.5]],
  softshrink: [between, [0.5]],
  threshold: [between, [0.5, -3]],
};
/** Functions of two and three. @type {Record<string, [makes: ((...shape: number[]) => Input)[], numbers?: number[]]>} */
const SEVERAL = {
  atan2: [[smooth, smooth]],
  hypot: [[smooth, smooth]],
  logaddexp: [[x, x]],
  logaddexp2: [[x, x]],
  xlogy: [[x, positive]],
  powTensor: [[positive, x]],
  fmod: [[between, one]],
  remainder: [[between, one]],
  floorDivide: [[between, one]],
  truncDivide: [[between, one]],
  ldexp: [[x, few]],
  // Away from ties, where a difference quotient is of both operands.
  fmax: [[between, few]],
  fmin: [[between, few]],
  copysign: [[smooth, smooth]],
  heaviside: [[smooth, x]],
  isclose: [
    [few, few],
    [0.1, 0.2, 1],
  ],
  prelu: [[smooth, x]],
  lerp: [[x, x, x]],
  addcmul: [[x, x, x], [0.5]],
  addcdiv: [[x, x, positive], [0.5]],
};

/** @type {Record<string, () => Case>} */
export const cases = {};
for (const [name, [make, numbers = []]] of Object.entries(UNARY)) {
  cases[name] = () => ({ ...unary(make)(), attributes: { numbers } });
  cases[`${name}Backward`] = () => {
    const own = shape();
    return { inputs: [make(...own), x(...own)], attributes: { numbers } };
  };
}
for (const [name, [makes, numbers = []]] of Object.entries(SEVERAL)) {
  const inputs = () => {
    const { inputs: two } = binary(makes[0], makes[1])();
    const whole = two[0].shape.length > two[1].shape.length ? two[0].shape : two[1].shape;
    return [...two, ...makes.slice(2).map((make) => make(...whole.map((n) => (random.chance(0.3) ? 1 : n))))];
  };
  cases[name] = () => ({ inputs: inputs(), attributes: { numbers } });
  cases[`${name}Backward`] = () => {
    const own = inputs();
    const rank = Math.max(...own.map((input) => input.shape.length));
    const all = own.map((input) => [...Array(rank - input.shape.length).fill(1), ...input.shape]);
    const result = all[0].map((_, d) => Math.max(...all.map((sizes) => sizes[d])));
    return { inputs: [...own, x(...result)], attributes: { numbers, of: random.below(own.length) } };
  };
}
// Functions that are flat have no gradient, or none of some operands.
for (const name of ['floor', 'ceil', 'trunc', 'round', 'floorDivide', 'truncDivide', 'isnan', 'isinf', 'isfinite', 'signbit', 'isclose'])
  delete cases[`${name}Backward`];
for (const [name, of] of /** @type {[string, number][]} */ ([
  ['copysign', 0],
  ['heaviside', 1],
])) {
  const made = cases[`${name}Backward`];
  cases[`${name}Backward`] = () => {
    const own = made();
    return { ...own, attributes: { ...own.attributes, of } };
  };
}
