// Methods of tensors: what is computed element by element, conversions, and products.

import { within } from '../../core/errors.mjs';
import { checkNumber } from '../../core/layout.mjs';
import { asTensor } from '../../core/tensor.mjs';
import * as F from '../functional.mjs';
import { MathMethods } from './math.mjs';

/** @typedef {import('../tensor.mjs').Tensor} Tensor */
/** @typedef {import('../../core/layout.mjs').DType} DType */
/** @typedef {import('../functional.mjs').Operand} Operand */

/** What a tensor computes element by element, conversions and products: part of every `Tensor`. */
export class ElementwiseMethods extends MathMethods {
  /** The elements converted to another type; this tensor if it has that type. @param {DType} dtype */
  to(dtype) {
    return F.to(asTensor(this), dtype);
  }
  /** this + other, broadcast. @param {Operand} other */
  add(other) {
    return F.add(asTensor(this), other);
  }
  /** this - other, broadcast. @param {Operand} other */
  sub(other) {
    return F.sub(asTensor(this), other);
  }
  /** this · other, element by element, broadcast. @param {Operand} other */
  mul(other) {
    return F.mul(asTensor(this), other);
  }
  /** this / other, broadcast; of integers in f32, unless a `roundingMode` is given. @param {Operand} other @param {F.DivideOptions} [options] */
  div(other, options) {
    return F.div(asTensor(this), other, options);
  }
  /** this = other, as bool, broadcast. @param {Operand} other */
  eq(other) {
    return F.eq(asTensor(this), other);
  }
  /** this ≠ other, as bool, broadcast. @param {Operand} other */
  ne(other) {
    return F.ne(asTensor(this), other);
  }
  /** this < other, as bool, broadcast. @param {Operand} other */
  lt(other) {
    return F.lt(asTensor(this), other);
  }
  /** this ≤ other, as bool, broadcast. @param {Operand} other */
  le(other) {
    return F.le(asTensor(this), other);
  }
  /** this > other, as bool, broadcast. @param {Operand} other */
  gt(other) {
    return F.gt(asTensor(this), other);
  }
  /** this ≥ other, as bool, broadcast. @param {Operand} other */
  ge(other) {
    return F.ge(asTensor(this), other);
  }
  /** A copy with `value` where the mask is true. @param {Tensor} mask bool, broadcast @param {number} value */
  maskedFill(mask, value) {
    return within('maskedFill', () => {
      const { dtype } = this;
      const own = typeof value === 'number' ? checkNumber('maskedFill', dtype === 'bool' ? Number(value !== 0) : value, dtype) : value;
      return F.where(mask, own, asTensor(this));
    });
  }
  /** max(this, other), element by element, broadcast. @param {Operand} other */
  maximum(other) {
    return F.maximum(asTensor(this), other);
  }
  /** min(this, other), element by element, broadcast. @param {Operand} other */
  minimum(other) {
    return F.minimum(asTensor(this), other);
  }
  /**
   * Limits the elements to [min, max]. One of the two may be left out (`undefined`). An element equal to a limit still passes its gradient.
   * @param {Operand} [min] @param {Operand} [max]
   */
  clamp(min, max) {
    return F.clamp(asTensor(this), min, max);
  }
  /** this ^ exponent, as `F.pow`: a negative element gives NaN unless the exponent is an integer. @param {Operand} exponent */
  pow(exponent) {
    return F.pow(asTensor(this), exponent);
  }
  /** -x of each element. */
  neg() {
    return F.neg(asTensor(this));
  }
  /** eˣ of each element. */
  exp() {
    return F.exp(asTensor(this));
  }
  /** The natural logarithm of each element. */
  log() {
    return F.log(asTensor(this));
  }
  /** √x of each element. */
  sqrt() {
    return F.sqrt(asTensor(this));
  }
  /** 1 / √x of each element. */
  rsqrt() {
    return F.rsqrt(asTensor(this));
  }
  /** 1 / x of each element. */
  reciprocal() {
    return F.reciprocal(asTensor(this));
  }
  /** |x| of each element. */
  abs() {
    return F.abs(asTensor(this));
  }
  /** x² of each element. */
  square() {
    return F.square(asTensor(this));
  }
  /** The sign of each element: -1, 0 or 1. Its gradient is 0. */
  sign() {
    return F.sign(asTensor(this));
  }
  /** max(x, 0) of each element. */
  relu() {
    return F.relu(asTensor(this));
  }
  /** The hyperbolic tangent of each element. */
  tanh() {
    return F.tanh(asTensor(this));
  }
  /** 1 / (1 + exp(-x)) of each element. */
  sigmoid() {
    return F.sigmoid(asTensor(this));
  }
  /** The matrix product, as PyTorch's: [..., m, k] × [..., k, n] → [..., m, n]; leading dimensions broadcast. @param {Tensor} other */
  matmul(other) {
    return F.matmul(asTensor(this), other);
  }
}
