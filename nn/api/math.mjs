// `F`: functions of one, two and three elements, and activations. Each has PyTorch's name, order of arguments and defaults.

import { apply, tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { isFloat } from '../core/layout.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { TensorCore } from '../core/tensor.mjs';
import * as integers from '../ops/integers.mjs';
import * as math from '../ops/math.mjs';
import { left, of } from './division.mjs';
import * as F from './functional.mjs';
import { asFloat, f32UnderAutocast, promotedType, toF32 } from './operands.mjs';

// Types by `@import`: a typedef would be exported, and stand in the way of functional.mjs's in `f.mjs`.
/** @import { Tensor } from './tensor.mjs' */
/** @import { Operand } from './functional.mjs' */
/** @import { Op } from '../ops/registry.mjs' */

/**
 * Options of `isclose` and `allclose`.
 * @typedef {object} CloseOptions
 * @property {number} [rtol] the largest distance relative to |b|; 1e-5 when left out
 * @property {number} [atol] what is added to it; 1e-8 when left out
 * @property {boolean} [equalNan] whether NaN is close to NaN; false when left out
 */

/**
 * Options of `round`.
 * @typedef {object} RoundOptions
 * @property {number} [decimals] decimal places that stay, before the point where it is negative; 0 when left out
 */

/**
 * Options of `addcmul` and `addcdiv`.
 * @typedef {object} FactorOptions
 * @property {number} [value] a factor of the product or quotient; 1 when left out
 */

/** A number among the arguments. @param {string} op @param {string} name @param {unknown} value @returns {number} */
function number(op, name, value) {
  if (typeof value !== 'number') throw new ArgumentError(op, `${name} must be a number, got ${shown(value)}`);
  return value;
}

/** Of integers in f32, as in PyTorch. @param {Op} op @returns {(x: Tensor) => Tensor} */
const unary = (op) => (x) => apply(op, [asFloat(op.name, tensorOf(op.name, x))]);
/** Of what PyTorch's autocast computes in f32. @param {Op} op @returns {(x: Tensor) => Tensor} */
const wide = (op) => (x) => apply(op, [f32UnderAutocast(asFloat(op.name, tensorOf(op.name, x)))]);
/** Whether x is a tensor of integers or bools. @param {unknown} x */
const isWhole = (x) => x instanceof TensorCore && !isFloat(x.dtype);
/** What leaves integers as they are. @param {Op} op @returns {(x: Tensor) => Tensor} */
const rounding = (op) => (x) => (isWhole(tensorOf(op.name, x)) && x.dtype !== 'bool' ? within(op.name, () => F.clone(x)) : apply(op, [x]));
/** With numbers after x. @param {Op} op @param {Tensor} x @param {Record<string, unknown>} named @returns {Tensor} */
function withNumbers(op, x, named) {
  const numbers = Object.entries(named).map(([name, value]) => number(op.name, name, value));
  return apply(op, [tensorOf(op.name, x)], { numbers });
}

// ---- exponentials and logarithms

/** 2ˣ of each element. */
export const exp2 = unary(math.exp2);
/** eˣ - 1 of each element, also where eˣ rounds to 1. */
export const expm1 = wide(math.expm1);
/** The logarithm to base 2 of each element. */
export const log2 = wide(math.log2);
/** The logarithm to base 10 of each element. */
export const log10 = wide(math.log10);
/** log(eᵃ + eᵇ), broadcast, without overflow. @param {Tensor} a @param {Operand} b */
export const logaddexp = (a, b) => of(math.logaddexp, [a, b]);
/** log2(2ᵃ + 2ᵇ), broadcast, without overflow. @param {Tensor} a @param {Operand} b */
export const logaddexp2 = (a, b) => of(math.logaddexp2, [a, b]);
/**
 * log(x / (1 - x)) of each element, the inverse of sigmoid.
 * @param {Tensor} x @param {number} [eps] x is limited to [eps, 1 - eps]; without it, what is outside of [0, 1] gives NaN
 */
export const logit = (x, eps = 0) => {
  const low = number('logit', 'eps', eps);
  return apply(math.logit, [asFloat('logit', tensorOf('logit', x))], { numbers: low > 0 ? [low, 1 - low] : [-Infinity, Infinity] });
};
/** x · log(y), broadcast: 0 where x is 0, unless y is NaN. @param {Operand} x @param {Operand} y */
export const xlogy = (x, y) => of(math.xlogy, [x, y]);

// ---- angles

/** The sine of each element, in radians. Of any size: what is right is the sine of the f32, however large. */
export const sin = unary(math.sin);
/** The cosine of each element, in radians. */
export const cos = unary(math.cos);
/** The tangent of each element, in radians. */
export const tan = wide(math.tan);
/** The angle in ±π/2 of which each element is the sine; NaN outside of ±1. */
export const asin = wide(math.asin);
/** The angle in [0, π] of which each element is the cosine; NaN outside of ±1. */
export const acos = wide(math.acos);
/** The angle in ±π/2 of which each element is the tangent. */
export const atan = unary(math.atan);
/** The angle in ±π of the point (x, y), broadcast, as C's `atan2`. @param {Tensor} y @param {Operand} x */
export const atan2 = (y, x) => of(math.atan2, [y, x]);
/** The hyperbolic sine of each element. */
export const sinh = wide(math.sinh);
/** The hyperbolic cosine of each element. */
export const cosh = wide(math.cosh);
/** The inverse hyperbolic sine of each element. */
export const asinh = unary(math.asinh);
/** The inverse hyperbolic cosine of each element; NaN below 1. */
export const acosh = unary(math.acosh);
/** The inverse hyperbolic tangent of each element; NaN outside of ±1. */
export const atanh = unary(math.atanh);
/** sin(πx) / (πx) of each element, and 1 of 0. */
export const sinc = unary(math.sinc);
/** √(a² + b²), broadcast; it overflows only where the result does. @param {Tensor} a @param {Operand} b */
export const hypot = (a, b) => of(math.hypot, [a, b]);
/** Degrees as radians. @param {Tensor} x @returns {Tensor} */
export const deg2rad = (x) => {
  tensorOf('deg2rad', x);
  return within('deg2rad', () => F.mul(x, Math.PI / 180));
};
/** Radians as degrees. @param {Tensor} x @returns {Tensor} */
export const rad2deg = (x) => {
  tensorOf('rad2deg', x);
  return within('rad2deg', () => F.mul(x, 180 / Math.PI));
};

// ---- the error function

/** The error function of each element: 2 / √π times the integral of exp(-t²) from 0 to x. */
export const erf = unary(math.erfOp);
/** 1 - erf(x) of each element, also where erf(x) rounds to 1. */
export const erfc = unary(math.erfcOp);

/** The inverse of the error function; NaN outside of ±1. */
export const erfinv = wide(math.erfinvOp);
/** log |Γ(x)| of each element: infinite at 0, -1, -2 … Below 0, near a zero, its error is absolute. */
export const lgamma = unary(math.lgammaOp);
/** The derivative of `lgamma`: NaN at -1, -2 … Below 0, near a zero, its error is absolute. */
export const digamma = unary(math.digammaOp);

// ---- rounding, remainders and kinds of numbers

/** The largest whole number that is not above each element. Its gradient is 0. */
export const floor = rounding(math.floor);
/** The least whole number that is not below each element. Its gradient is 0. */
export const ceil = rounding(math.ceil);
/** Each element without what is behind the point. Its gradient is 0. */
export const trunc = rounding(math.trunc);
/** What is behind the point of each element, with its sign. */
export const frac = unary(math.frac);
/**
 * The nearest whole number, ties to even, or the nearest number of `decimals` decimals. Its gradient is 0.
 * @param {Tensor} x @param {RoundOptions} [options] @returns {Tensor}
 */
export function round(x, options = {}) {
  tensorOf('round', x);
  const { decimals = 0 } = checkOptions('round', options, ['decimals']);
  if (!Number.isInteger(decimals) || Math.abs(decimals) > 38)
    throw new ArgumentError('round', `decimals must be a whole number within ±38, got ${shown(decimals)}`);
  if (isWhole(x) && x.dtype !== 'bool' && decimals >= 0) return within('round', () => F.clone(x));
  if (decimals === 0) return apply(math.round, [x]);
  const power = 10 ** Math.abs(decimals);
  return within('round', () => {
    // In f32: the power, or the product, may be beyond f16.
    const own = toF32(x);
    const rounded = apply(math.round, [decimals > 0 ? F.mul(own, power) : F.div(own, power)]);
    return F.to(decimals > 0 ? F.div(rounded, power) : F.mul(rounded, power), x.dtype);
  });
}
/**
 * The remainder of a division, with the sign of the divisor, broadcast, as Python's `%`: of floats exact, and then rounded once, and NaN of a
 * divisor of 0; an integer by 0 leaves itself. Throws an ArgumentError for bools.
 * @param {Operand} x @param {Operand} y
 */
export const remainder = (x, y) => left(math.remainder, integers.remainder, x, y);
/** The remainder of a division, with the sign of the dividend, broadcast, as C's `fmod`: exact. @param {Tensor} x @param {Operand} y */
export const fmod = (x, y) => left(math.fmod, integers.fmod, x, y);
/**
 * The quotient rounded down, broadcast, as Python's `//`; `div` with `roundingMode: 'trunc'` rounds towards 0. Its gradient is 0. An integer by 0
 * is no error: its quotient is 0 or -1. Throws an ArgumentError for bools.
 * @param {Operand} x @param {Operand} y
 */
export const floorDivide = (x, y) => left(math.floorDivide, integers.floorDivide, x, y);
/** x · 2ᵏ, broadcast. @param {Tensor} x @param {Operand} k */
export const ldexp = (x, k) => of(math.ldexp, [x, k]);
/** The larger of each two elements, and where one is NaN the other. @param {Tensor} a @param {Operand} b */
export const fmax = (a, b) => (isWhole(a) && isWhole(b) ? within('fmax', () => F.maximum(a, b)) : of(math.fmax, [a, b]));
/** The smaller of each two elements, and where one is NaN the other. @param {Tensor} a @param {Operand} b */
export const fmin = (a, b) => (isWhole(a) && isWhole(b) ? within('fmin', () => F.minimum(a, b)) : of(math.fmin, [a, b]));
/** Where elements are NaN, as bools. */
export const isnan = unary(math.isnan);
/** Where elements are infinite, as bools. */
export const isinf = unary(math.isinf);
/** Where elements are neither infinite nor NaN, as bools. */
export const isfinite = unary(math.isfinite);
/** Where the sign's bit is set, as bools: of -0, too. */
export const signbit = unary(math.signbit);
/** The size of each element of x with the sign of y's, broadcast; of -0, too. @param {Tensor} x @param {Operand} y */
export const copysign = (x, y) => of(math.copysign, [x, y]);
/** 0 where x is below 0, 1 where it is above, and where it is 0 the value, broadcast. @param {Tensor} x @param {Operand} values */
export const heaviside = (x, values) => {
  const y = of(math.heaviside, [x, values]);
  return isWhole(x) && isWhole(values)
    ? within('heaviside', () => F.to(y, promotedType(x.dtype, /** @type {Tensor} */ (values).dtype)))
    : y;
};
/** The largest number of each type. */
const LARGEST = { f32: 3.4028234663852886e38, f16: 65504, bf16: 3.3895313892515355e38 };
/**
 * NaN and infinities replaced by numbers.
 * @param {Tensor} x @param {number} [nan] in place of NaN; 0 when left out
 * @param {number} [posinf] in place of ∞; the largest number of x's type when left out
 * @param {number} [neginf] in place of -∞; the least number when left out
 */
export function nanToNum(x, nan = 0, posinf = undefined, neginf = undefined) {
  const largest = LARGEST[/** @type {'f32'} */ (tensorOf('nanToNum', x).dtype)] ?? 0;
  if (isWhole(x)) return within('nanToNum', () => F.clone(x));
  return withNumbers(math.nanToNum, x, { nan, posinf: posinf ?? largest, neginf: neginf ?? -largest });
}
/**
 * Where |a - b| ≤ atol + rtol · |b|, as bools, broadcast. Equal infinities are close, others are not.
 * @param {Tensor} a @param {Operand} b @param {CloseOptions} [options]
 */
export const isclose = (a, b, options = {}) => close('isclose', a, b, options);
/** @param {string} op @param {Tensor} a @param {Operand} b @param {CloseOptions} options */
function close(op, a, b, options) {
  const { rtol = 1e-5, atol = 1e-8, equalNan = false } = checkOptions(op, options, ['rtol', 'atol', 'equalNan']);
  flag(op, 'equalNan', equalNan);
  const numbers = [number(op, 'rtol', rtol), number(op, 'atol', atol), equalNan ? 1 : 0];
  return within(op, () => of(math.isclose, [a, b], numbers));
}
/**
 * Whether all elements are close, as `isclose` says; reads the answer from the device.
 * @param {Tensor} a @param {Operand} b @param {CloseOptions} [options]
 * @returns {Promise<boolean>}
 */
export async function allclose(a, b, options = {}) {
  const far = F.where(close('allclose', a, b, options), 0, 1);
  return (await F.sum(far).item()) === 0;
}

// ---- of two and three

/** start + weight · (end - start), broadcast. @param {Tensor} start @param {Tensor} end @param {Operand} weight */
export const lerp = (start, end, weight) => of(math.lerp, [start, end, weight]);
/** x + value · a · b, broadcast. @param {Tensor} x @param {Operand} a @param {Operand} b @param {FactorOptions} [options] */
export const addcmul = (x, a, b, options = {}) => of(math.addcmul, [x, a, b], [factor('addcmul', options)]);
/** x + value · a / b, broadcast. @param {Tensor} x @param {Operand} a @param {Operand} b @param {FactorOptions} [options] */
export const addcdiv = (x, a, b, options = {}) => of(math.addcdiv, [x, a, b], [factor('addcdiv', options)]);
/** @param {string} op @param {FactorOptions} options */
const factor = (op, options) => number(op, 'value', checkOptions(op, options, ['value']).value ?? 1);

/** The larger of each element and a limit; an element at the limit gets the gradient. @param {Tensor} x @param {Operand} min @returns {Tensor} */
export const clampMin = (x, min) => limited('clampMin', x, min, undefined);
/** The smaller of each element and a limit; an element at the limit gets the gradient. @param {Tensor} x @param {Operand} max @returns {Tensor} */
export const clampMax = (x, max) => limited('clampMax', x, undefined, max);
/** @param {string} op @param {Tensor} x @param {Operand | undefined} min @param {Operand | undefined} max */
function limited(op, x, min, max) {
  tensorOf(op, x);
  const limit = min ?? max;
  if (typeof limit !== 'number') tensorOf(op, limit);
  return within(op, () => F.clamp(x, min, max));
}

// ---- activations

/**
 * log(1 + e^(beta x)) / beta, and x where beta x is above the threshold.
 * @param {Tensor} x @param {number} [beta] @param {number} [threshold]
 */
export const softplus = (x, beta = 1, threshold = 20) =>
  withNumbers(math.softplus, f32UnderAutocast(tensorOf('softplus', x)), { beta, threshold });
/** log(sigmoid(x)) of each element. */
export const logSigmoid = unary(math.logSigmoid);
/** x where x is above 0, else alpha (eˣ - 1) (Clevert et al. 2016). @param {Tensor} x @param {number} [alpha] */
export const elu = (x, alpha = 1) => withNumbers(math.elu, x, { alpha });
/** 1.0507 times elu(x, 1.6733), of which activations keep their mean and variance (Klambauer et al. 2017). */
export const selu = unary(math.selu);
/** x where x is above 0, else alpha (e^(x / alpha) - 1) (Barron 2017). @param {Tensor} x @param {number} [alpha] */
export const celu = (x, alpha = 1) => withNumbers(math.celu, x, { alpha });
/** x where x is above 0, else negativeSlope · x. @param {Tensor} x @param {number} [negativeSlope] */
export const leakyRelu = (x, negativeSlope = 0.01) => withNumbers(math.leakyRelu, x, { negativeSlope });
/**
 * x where x is above 0, else weight · x (He et al. 2015).
 * @param {Tensor} x @param {Tensor} weight of one element, or of one for each channel, x's second dimension
 * @returns {Tensor}
 */
export function prelu(x, weight) {
  const channels = tensorOf('prelu', x).ndim < 2 ? 1 : x.shape[1];
  if (tensorOf('prelu', weight).ndim > 1 || (weight.size !== 1 && weight.size !== channels))
    throw new ShapeError(
      'prelu',
      `the weight must have 1 or ${channels} elements, one for each channel of ${show(x.shape)}, got ${show(weight.shape)}`,
    );
  return within('prelu', () =>
    of(math.prelu, [
      x,
      F.reshape(weight, x.ndim < 2 || weight.size === 1 ? Array(Math.min(x.ndim, 1)).fill(1) : [channels, ...Array(x.ndim - 2).fill(1)]),
    ]),
  );
}
/** x limited to minVal … maxVal. Elements at a limit get no gradient. @param {Tensor} x @param {number} [minVal] @param {number} [maxVal] */
export const hardTanh = (x, minVal = -1, maxVal = 1) => withNumbers(math.hardTanh, x, { minVal, maxVal });
/** x limited to 0 … 6. Elements at a limit get no gradient. @param {Tensor} x @returns {Tensor} */
export const relu6 = (x) => {
  tensorOf('relu6', x);
  return within('relu6', () => hardTanh(x, 0, 6));
};
/** min(max(x + 3, 0), 6) / 6 of each element. */
export const hardSigmoid = unary(math.hardSigmoid);
/** x · hardSigmoid(x) of each element (Howard et al. 2019). */
export const hardSwish = unary(math.hardSwish);
/** x · tanh(softplus(x)) of each element (Misra 2019). */
export const mish = unary(math.mish);
/** x / (1 + |x|) of each element. */
export const softsign = unary(math.softsign);
/** x - tanh(x) of each element. */
export const tanhshrink = unary(math.tanhshrink);
/** 0 where |x| is at most lambd, else x. @param {Tensor} x @param {number} [lambd] */
export const hardshrink = (x, lambd = 0.5) => withNumbers(math.hardshrink, x, { lambd });
/** 0 where |x| is at most lambd, else x nearer to 0 by it. @param {Tensor} x @param {number} [lambd] */
export const softshrink = (x, lambd = 0.5) => withNumbers(math.softshrink, x, { lambd });
/** x where it is above the threshold, else the value. @param {Tensor} x @param {number} threshold @param {number} value */
export const threshold = (x, threshold, value) => withNumbers(math.threshold, x, { threshold, value });
