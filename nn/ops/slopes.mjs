// The derivatives of functions of one, two and three elements by functions of tensors: for gradients that have gradients themselves. What the
// kernels of `math.mjs` and `pointwise.mjs` compute has none.

import { operations } from './registry.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('./registry.mjs').Functions} Functions */

/**
 * The derivative by one operand, of f32: a tensor that broadcasts to the result, or one number. A bool is 1 where it is true: not even an infinite
 * gradient passes elsewhere. It is given all operands, or, of `relu`, the result; then the numbers of the call.
 * @typedef {(F: Functions, ...operands: any[]) => Tensor | number} Slope any: tensors, then numbers
 */

/** A function of elements by its name. @param {Functions} F @param {string} name @param {Tensor[]} operands @param {object} [attributes] */
export const call = (F, name, operands, attributes) =>
  F.call(/** @type {import('./registry.mjs').Op} */ (operations.get(name)), operands, attributes);
/** a · x + b. @param {Functions} F @param {Tensor} x @param {number} a @param {number} b */
const line = (F, x, a, b) => F.add(F.mul(x, a), b);
/** (1 - x²). @param {Functions} F @param {Tensor} x */
const oneLessSquare = (F, x) => line(F, F.square(x), -1, 1);
/** factor · e^(-scale x²). @param {Functions} F @param {Tensor} x @param {number} factor @param {number} scale */
const bell = (F, x, factor, scale) => F.mul(F.exp(F.mul(F.square(x), -scale)), factor);
/** 1 above 0, and another slope elsewhere. @param {Functions} F @param {Tensor} x @param {Tensor | number} other */
const step = (F, x, other) => F.where(F.gt(x, 0), F.ones(x.shape), other);
/** x below 0, else 0: at 0 without a gradient, as in PyTorch. @param {Functions} F @param {Tensor} x */
const below = (F, x) => F.where(F.lt(x, 0), x, 0);
/** Whether x is within (low, high). @param {Functions} F @param {Tensor} x @param {number} low @param {number} high */
const between = (F, x, low, high) => F.mul(F.gt(x, low), F.lt(x, high));
/** Not of a bool. @param {Functions} F @param {Tensor} x */
const not = (F, x) => F.eq(x, 0);
/**
 * A slope that f32 cannot tell from its limits outside of ±limit, computed within: at ±∞ its terms would be ∞ · 0.
 * @param {number} limit @param {(F: Functions, x: Tensor) => Tensor} slope @returns {Slope}
 */
const levelFrom = (limit, slope) => (F, x) => slope(F, F.clamp(x, -limit, limit));

/** Of the larger (`sign` 1) or smaller of a and b, one of which may be NaN: equal ones share it. @param {1 | -1} sign @returns {Slope[]} */
const extreme = (sign) => {
  const wins = (/** @type {Functions} */ F, /** @type {Tensor} */ a, /** @type {Tensor} */ b) => {
    const ahead = sign === 1 ? F.gt(a, b) : F.lt(a, b);
    const isNumber = F.eq(a, a);
    return F.where(F.eq(a, b), 0.5, F.to(F.mul(isNumber, F.add(ahead, F.ne(b, b))), 'f32'));
  };
  return [wins, (F, a, b) => wins(F, b, a)];
};

/**
 * sigmoid(scale (a - b)): the slope of logarithms of sums, where both may be one infinity.
 * @param {Functions} F @param {Tensor} a @param {Tensor} b @param {number} scale
 */
function share(F, a, b, scale) {
  const isSame = F.mul(F.eq(a, b), F.eq(F.abs(a), Infinity));
  return F.sigmoid(F.mul(F.sub(F.where(isSame, 0, a), F.where(isSame, 0, b)), scale));
}

/**
 * The derivative of digamma: Σ 1 / (x + k)² of the first 8 terms, and the asymptotic series of the others (6.4.12 of Abramowitz and Stegun); below
 * 1/2 by reflection.
 * @param {Functions} F @param {Tensor} x
 */
function trigamma(F, x) {
  const isLow = F.lt(x, 0.5);
  const own = F.where(isLow, F.sub(1, x), x);
  const w = F.reciprocal(F.add(own, 8));
  const z = F.square(w);
  let sum = F.mul(w, F.add(line(F, w, 0.5, 1), F.mul(z, line(F, F.mul(z, line(F, z, 1 / 42, -1 / 30)), 1, 1 / 6))));
  for (let k = 7; k >= 0; k--) sum = F.add(sum, F.square(F.reciprocal(F.add(own, k))));
  const fraction = F.sub(x, call(F, 'round', [x]));
  const sine = call(F, 'sin', [F.mul(F.where(isLow, fraction, 0.5), Math.PI)]);
  return F.where(isLow, F.sub(F.mul(F.square(F.reciprocal(sine)), Math.PI ** 2), sum), sum);
}

/** Coefficients of the derivative of sin(πx) / (πx) in powers of x², from that of x on. */
const SINC_SLOPE = Array.from({ length: 10 }, (_, i) => {
  let term = 2 * (i + 1);
  for (let k = 1; k <= i + 1; k++) term *= -(Math.PI ** 2) / (2 * k * (2 * k + 1));
  return term;
});

const [SELU_ALPHA, SELU_SCALE] = [1.6732632423543772, 1.0507009873554805];

/** By the operation's name: of several operands one slope each. @type {Record<string, Slope | Slope[]>} */
export const SLOPES = {
  relu: (F, y) => F.gt(y, 0),
  sigmoid: (F, x) => {
    const y = F.sigmoid(x);
    return F.mul(y, line(F, y, -1, 1));
  },
  tanh: (F, x) => oneLessSquare(F, F.tanh(x)),
  silu: levelFrom(150, (F, x) => {
    const s = F.sigmoid(x);
    return F.mul(s, line(F, F.mul(x, line(F, s, -1, 1)), 1, 1));
  }),
  gelu: levelFrom(20, (F, x) => {
    // With s = sigmoid(2u), u = √(2/π) (x + 0.044715 x³): s + x s (1 - s) 2u'.
    const [factor, cubic] = [2 * Math.sqrt(2 / Math.PI), 0.044715];
    const s = F.sigmoid(F.mul(F.mul(x, line(F, F.square(x), cubic, 1)), factor));
    return F.add(s, F.mul(F.mul(F.mul(x, s), line(F, s, -1, 1)), line(F, F.square(x), 3 * cubic * factor, factor)));
  }),
  geluExact: levelFrom(20, (F, x) =>
    F.add(line(F, call(F, 'erf', [F.mul(x, Math.SQRT1_2)]), 0.5, 0.5), F.mul(x, bell(F, x, 1 / Math.sqrt(2 * Math.PI), 0.5))),
  ),
  sin: (F, x) => call(F, 'cos', [x]),
  cos: (F, x) => F.neg(call(F, 'sin', [x])),
  tan: (F, x) => line(F, F.square(call(F, 'tan', [x])), 1, 1),
  asin: (F, x) => F.rsqrt(oneLessSquare(F, x)),
  acos: (F, x) => F.neg(F.rsqrt(oneLessSquare(F, x))),
  atan: (F, x) => F.reciprocal(line(F, F.square(x), 1, 1)),
  sinh: (F, x) => call(F, 'cosh', [x]),
  cosh: (F, x) => call(F, 'sinh', [x]),
  asinh: (F, x) => F.rsqrt(line(F, F.square(x), 1, 1)),
  acosh: (F, x) => F.mul(F.rsqrt(F.sub(x, 1)), F.rsqrt(F.add(x, 1))),
  atanh: (F, x) => F.reciprocal(oneLessSquare(F, x)),
  atan2: [
    (F, y, x) => {
      const size = call(F, 'hypot', [x, y]);
      return F.div(F.div(x, size), size);
    },
    (F, y, x) => {
      const size = call(F, 'hypot', [x, y]);
      return F.neg(F.div(F.div(y, size), size));
    },
  ],
  hypot: [(F, x, y) => F.div(x, call(F, 'hypot', [x, y])), (F, x, y) => F.div(y, call(F, 'hypot', [x, y]))],
  // (cos πx - sinc x) / x; near 0, where that cancels, its series.
  sinc: (F, x) => {
    const isNear = F.lt(F.abs(x), 0.5);
    const [near, far] = [F.where(isNear, x, 0), F.where(isNear, 1, x)];
    const square = F.square(near);
    const series = SINC_SLOPE.slice(0, -1).reduceRight(
      (/** @type {Tensor} */ sum, c) => F.add(F.mul(sum, square), c),
      F.full([], /** @type {number} */ (SINC_SLOPE.at(-1))),
    );
    // cos πx of large x by the remainder, which is exact.
    const angle = F.mul(call(F, 'remainder', [far, F.full([], 2)]), Math.PI);
    return F.where(isNear, F.mul(near, series), F.div(F.sub(call(F, 'cos', [angle]), call(F, 'sinc', [far])), far));
  },
  exp2: (F, x) => F.mul(call(F, 'exp2', [x]), Math.LN2),
  ldexp: [(F, _, k) => call(F, 'exp2', [k]), (F, x, k) => F.mul(call(F, 'ldexp', [x, k]), Math.LN2)],
  expm1: (F, x) => F.exp(x),
  log2: (F, x) => F.reciprocal(F.mul(x, Math.LN2)),
  log10: (F, x) => F.reciprocal(F.mul(x, Math.LN10)),
  logit: (F, x, low, high) => {
    const isOutside = F.add(F.lt(x, low), F.gt(x, high));
    const own = F.where(isOutside, 0.5, x);
    return F.where(isOutside, 0, F.reciprocal(F.mul(own, line(F, own, -1, 1))));
  },
  logaddexp: [(F, a, b) => share(F, a, b, 1), (F, a, b) => share(F, b, a, 1)],
  logaddexp2: [(F, a, b) => share(F, a, b, Math.LN2), (F, a, b) => share(F, b, a, Math.LN2)],
  xlogy: [
    (F, x, y) => {
      const isNone = F.mul(F.eq(x, 0), F.le(y, 0));
      return F.where(isNone, 0, F.log(F.where(isNone, 1, y)));
    },
    (F, x, y) => F.div(x, y),
  ],
  powTensor: [
    (F, x, y) => {
      const isNone = F.mul(F.eq(y, 0), F.add(F.eq(x, 0), F.ne(x, x)));
      return F.where(isNone, 0, F.mul(y, call(F, 'powTensor', [F.where(isNone, 1, x), F.sub(y, 1)])));
    },
    (F, x, y) => {
      const isNone = F.mul(F.eq(x, 0), F.ge(y, 0));
      const base = F.where(isNone, 1, x);
      return F.where(isNone, 0, F.mul(call(F, 'powTensor', [base, y]), F.log(base)));
    },
  ],
  erf: (F, x) => bell(F, x, 2 / Math.sqrt(Math.PI), 1),
  erfc: (F, x) => bell(F, x, -2 / Math.sqrt(Math.PI), 1),
  erfinv: (F, x) => bell(F, call(F, 'erfinv', [x]), Math.sqrt(Math.PI) / 2, -1),
  lgamma: (F, x) => call(F, 'digamma', [x]),
  digamma: trigamma,
  frac: () => 1,
  fmod: [() => 1, (F, x, y) => F.neg(call(F, 'trunc', [F.div(x.detach(), y.detach())]))],
  remainder: [() => 1, (F, x, y) => F.neg(call(F, 'floor', [F.div(x.detach(), y.detach())]))],
  nanToNum: (F, x) => F.lt(F.abs(x), Infinity),
  copysign: [
    (F, x, y) => {
      const isAlike = F.eq(call(F, 'signbit', [x]), call(F, 'signbit', [y]));
      return F.where(F.eq(x, 0), 0, line(F, F.to(isAlike, 'f32'), 2, -1));
    },
    () => 0,
  ],
  heaviside: [() => 0, (F, x) => F.eq(x, 0)],
  fmax: extreme(1),
  fmin: extreme(-1),
  lerp: [(F, _, __, w) => line(F, w, -1, 1), (_, __, ___, w) => w, (F, a, b) => F.sub(b, a)],
  addcmul: [() => 1, (F, _, __, b, value) => F.mul(b, value), (F, _, a, __, value) => F.mul(a, value)],
  addcdiv: [() => 1, (F, _, __, b, value) => F.div(value, b), (F, _, a, b, value) => F.neg(F.div(F.mul(F.div(a, b), value), b))],
  softplus: (F, x, beta, limit) => F.where(F.gt(F.mul(x, beta), limit), F.ones(x.shape), F.sigmoid(F.mul(x, beta))),
  logSigmoid: (F, x) => F.sigmoid(F.neg(x)),
  mish: levelFrom(150, (F, x) => {
    const t = F.tanh(F.neg(call(F, 'logSigmoid', [F.neg(x)])));
    return F.add(t, F.mul(F.mul(x, F.sigmoid(x)), oneLessSquare(F, t)));
  }),
  softsign: (F, x) => F.reciprocal(F.square(line(F, F.abs(x), 1, 1))),
  tanhshrink: (F, x) => F.square(F.tanh(x)),
  elu: (F, x, alpha) => step(F, x, F.mul(F.exp(below(F, x)), alpha)),
  celu: (F, x, alpha) => step(F, x, F.exp(F.mul(below(F, x), 1 / alpha))),
  selu: (F, x) => F.mul(step(F, x, F.mul(F.exp(below(F, x)), SELU_ALPHA)), SELU_SCALE),
  prelu: [(F, x, slope) => step(F, x, slope), (F, x) => F.where(F.gt(x, 0), 0, x)],
  leakyRelu: (F, x, slope) => step(F, x, slope),
  hardTanh: between,
  hardSigmoid: (F, x) => F.mul(F.to(between(F, x, -3, 3), 'f32'), 1 / 6),
  hardSwish: (F, x) => F.where(F.le(x, -3), 0, F.where(F.ge(x, 3), 1, line(F, x, 1 / 3, 0.5))),
  hardshrink: (F, x, limit) => not(F, F.le(F.abs(x), limit)),
  softshrink: (F, x, limit) => not(F, F.le(F.abs(x), limit)),
  threshold: (F, x, limit) => not(F, F.le(x, limit)),
};
