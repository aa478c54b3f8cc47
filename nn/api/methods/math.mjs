// Methods of tensors: functions of one, two and three elements.

import { TensorCore, asTensor } from '../../core/tensor.mjs';
import * as functional from '../functional.mjs';
import * as F from '../math.mjs';

/** @typedef {import('../tensor.mjs').Tensor} Tensor */
/** @typedef {import('../functional.mjs').Operand} Operand */

/** Functions of one, two and three elements: part of every `Tensor`. */
export class MathMethods extends TensorCore {
  /** log(1 + x) of each element, also where 1 + x rounds to 1. */
  log1p() {
    return functional.log1p(asTensor(this));
  }
  /** 2ˣ of each element. */
  exp2() {
    return F.exp2(asTensor(this));
  }
  /** eˣ - 1 of each element, also where eˣ rounds to 1. */
  expm1() {
    return F.expm1(asTensor(this));
  }
  /** The logarithm to base 2 of each element. */
  log2() {
    return F.log2(asTensor(this));
  }
  /** The logarithm to base 10 of each element. */
  log10() {
    return F.log10(asTensor(this));
  }
  /** The sine of each element, in radians. */
  sin() {
    return F.sin(asTensor(this));
  }
  /** The cosine of each element, in radians. */
  cos() {
    return F.cos(asTensor(this));
  }
  /** The tangent of each element, in radians. */
  tan() {
    return F.tan(asTensor(this));
  }
  /** The angle in ±π/2 of which each element is the sine; NaN outside of ±1. */
  asin() {
    return F.asin(asTensor(this));
  }
  /** The angle in [0, π] of which each element is the cosine; NaN outside of ±1. */
  acos() {
    return F.acos(asTensor(this));
  }
  /** The angle in ±π/2 of which each element is the tangent. */
  atan() {
    return F.atan(asTensor(this));
  }
  /** The hyperbolic sine of each element. */
  sinh() {
    return F.sinh(asTensor(this));
  }
  /** The hyperbolic cosine of each element. */
  cosh() {
    return F.cosh(asTensor(this));
  }
  /** The inverse hyperbolic sine of each element. */
  asinh() {
    return F.asinh(asTensor(this));
  }
  /** The inverse hyperbolic cosine of each element; NaN below 1. */
  acosh() {
    return F.acosh(asTensor(this));
  }
  /** The inverse hyperbolic tangent of each element; NaN outside of ±1. */
  atanh() {
    return F.atanh(asTensor(this));
  }
  /** Degrees as radians. */
  deg2rad() {
    return F.deg2rad(asTensor(this));
  }
  /** Radians as degrees. */
  rad2deg() {
    return F.rad2deg(asTensor(this));
  }
  /** The error function of each element. */
  erf() {
    return F.erf(asTensor(this));
  }
  /** sin(πx) / (πx) of each element, and 1 of 0. */
  sinc() {
    return F.sinc(asTensor(this));
  }
  /** The inverse of the error function; NaN outside of ±1. */
  erfinv() {
    return F.erfinv(asTensor(this));
  }
  /** log |Γ(x)| of each element. */
  lgamma() {
    return F.lgamma(asTensor(this));
  }
  /** The derivative of `lgamma`. */
  digamma() {
    return F.digamma(asTensor(this));
  }
  /** 1 - erf(x) of each element, also where erf(x) rounds to 1. */
  erfc() {
    return F.erfc(asTensor(this));
  }
  /** The largest whole number that is not above each element. */
  floor() {
    return F.floor(asTensor(this));
  }
  /** The least whole number that is not below each element. */
  ceil() {
    return F.ceil(asTensor(this));
  }
  /** Each element without what is behind the point. */
  trunc() {
    return F.trunc(asTensor(this));
  }
  /** What is behind the point of each element, with its sign. */
  frac() {
    return F.frac(asTensor(this));
  }
  /** Where elements are NaN, as bools. */
  isnan() {
    return F.isnan(asTensor(this));
  }
  /** Where elements are infinite, as bools. */
  isinf() {
    return F.isinf(asTensor(this));
  }
  /** Where elements are neither infinite nor NaN, as bools. */
  isfinite() {
    return F.isfinite(asTensor(this));
  }
  /** Where the sign's bit is set, as bools: of -0, too. */
  signbit() {
    return F.signbit(asTensor(this));
  }
  /** The nearest whole number, ties to even, or the nearest number of `decimals` decimals. @param {import('../math.mjs').RoundOptions} [options] */
  round(options) {
    return F.round(asTensor(this), options);
  }
  /** log(x / (1 - x)) of each element. @param {number} [eps] elements are limited to [eps, 1 - eps] */
  logit(eps) {
    return F.logit(asTensor(this), eps);
  }
  /**
   * NaN and infinities replaced by numbers.
   * @param {number} [nan] in place of NaN; 0 when left out @param {number} [posinf] in place of ∞; the type's largest number when left out
   * @param {number} [neginf] in place of -∞; the type's least number when left out
   */
  nanToNum(nan, posinf, neginf) {
    return F.nanToNum(asTensor(this), nan, posinf, neginf);
  }
  /** The angle in ±π of the point (x, this), broadcast. @param {Operand} x */
  atan2(x) {
    return F.atan2(asTensor(this), x);
  }
  /** √(this² + other²), broadcast; it overflows only where the result does. @param {Operand} other */
  hypot(other) {
    return F.hypot(asTensor(this), other);
  }
  /** log(e^this + e^other), broadcast, without overflow. @param {Operand} other */
  logaddexp(other) {
    return F.logaddexp(asTensor(this), other);
  }
  /** log2(2^this + 2^other), broadcast, without overflow. @param {Operand} other */
  logaddexp2(other) {
    return F.logaddexp2(asTensor(this), other);
  }
  /** this / other rounded down, broadcast. @param {Operand} other */
  floorDivide(other) {
    return F.floorDivide(asTensor(this), other);
  }
  /** this · 2ᵏ, broadcast, k whole numbers. @param {Operand} k */
  ldexp(k) {
    return F.ldexp(asTensor(this), k);
  }
  /** The larger of each two elements, and where one is NaN the other. @param {Operand} other */
  fmax(other) {
    return F.fmax(asTensor(this), other);
  }
  /** The smaller of each two elements, and where one is NaN the other. @param {Operand} other */
  fmin(other) {
    return F.fmin(asTensor(this), other);
  }
  /** The remainder of this / other with the sign of other, broadcast. @param {Operand} other */
  remainder(other) {
    return F.remainder(asTensor(this), other);
  }
  /** The remainder of this / other with the sign of this, broadcast. @param {Operand} other */
  fmod(other) {
    return F.fmod(asTensor(this), other);
  }
  /** this · log(y), broadcast: 0 where this is 0, unless y is NaN. @param {Operand} y */
  xlogy(y) {
    return F.xlogy(asTensor(this), y);
  }
  /** The size of each element with the sign of other's, broadcast; of -0, too. @param {Operand} other */
  copysign(other) {
    return F.copysign(asTensor(this), other);
  }
  /** 0 where an element is below 0, 1 where it is above, and where it is 0 the value, broadcast. @param {Operand} values */
  heaviside(values) {
    return F.heaviside(asTensor(this), values);
  }
  /** The larger of each element and a limit, as `clamp`. @param {Operand} min */
  clampMin(min) {
    return F.clampMin(asTensor(this), min);
  }
  /** The smaller of each element and a limit, as `clamp`. @param {Operand} max */
  clampMax(max) {
    return F.clampMax(asTensor(this), max);
  }
  /** this + weight · (end - this), broadcast. @param {Tensor} end @param {Operand} weight */
  lerp(end, weight) {
    return F.lerp(asTensor(this), end, weight);
  }
  /** this + value · a · b, broadcast. @param {Operand} a @param {Operand} b @param {import('../math.mjs').FactorOptions} [options] */
  addcmul(a, b, options) {
    return F.addcmul(asTensor(this), a, b, options);
  }
  /** this + value · a / b, broadcast. @param {Operand} a @param {Operand} b @param {import('../math.mjs').FactorOptions} [options] */
  addcdiv(a, b, options) {
    return F.addcdiv(asTensor(this), a, b, options);
  }
  /** Where |this - other| ≤ atol + rtol · |other|, as bools, broadcast. @param {Operand} other @param {import('../math.mjs').CloseOptions} [options] */
  isclose(other, options) {
    return F.isclose(asTensor(this), other, options);
  }
  /** Whether all elements are close, as `isclose` says; reads the answer. @param {Operand} other @param {import('../math.mjs').CloseOptions} [options] */
  allclose(other, options) {
    return F.allclose(asTensor(this), other, options);
  }
}
