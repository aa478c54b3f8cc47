// Elementwise functions that are composed of others: of jax.nn and TensorFlow.js, and of complex numbers as pairs.

import { tensorOf } from '../core/engine.mjs';
import { ShapeError, show, within } from '../core/errors.mjs';
import { isFloat } from '../core/layout.mjs';
import { checkFinite } from '../core/options.mjs';
import * as F from './functional.mjs';
import { atan2, cos, expm1, hypot, sin } from './math.mjs';
import { toF32 } from './operands.mjs';
import { select } from './shape.mjs';

/** @import { Tensor } from './tensor.mjs' */
/** @import { Operand } from './functional.mjs' */

/** @param {string} op @param {(x: Tensor) => Tensor} f @returns {(x: Tensor) => Tensor} in f32, of x's type where that is a float */
const floating = (op, f) => (x) => {
  const own = tensorOf(op, x);
  return within(op, () => (isFloat(own.dtype) ? F.to(f(toF32(own)), own.dtype) : f(F.to(own, 'f32'))));
};

/** The cube root of each element, also of those below 0. */
export const cbrt = floating('cbrt', (x) => F.mul(F.sign(x), F.pow(F.abs(x), 1 / 3)));
/** log(1 - e⁻ˣ) of each element above 0, near 0 too (Mächler 2012). */
export const log1mexp = floating('log1mexp', (x) =>
  // A device's own logarithm need not know 0 and what is below.
  F.where(
    F.gt(x, 0),
    F.where(F.gt(x, Math.LN2), F.log1p(F.neg(F.exp(F.neg(x)))), F.log(F.neg(expm1(F.neg(x))))),
    F.where(F.eq(x, 0), -Infinity, Number.NaN),
  ),
);
/** 0 below -1, x above 1, and (x + 1)² / 4 between (Martins & Astudillo 2016). */
export const sparsePlus = floating('sparsePlus', (x) => F.where(F.gt(x, 1), x, F.div(F.square(F.clamp(F.add(x, 1), 0, 2)), 4)));
/** The derivative of `sparsePlus`: (x + 1) / 2 within [0, 1]. */
export const sparseSigmoid = floating('sparseSigmoid', (x) => F.clamp(F.div(F.add(x, 1), 2), 0, 1));
/** (x + √(x² + b)) / 2 of each element (Barron 2021). @param {Tensor} x @param {number} [b] 4 when left out @returns {Tensor} */
export const squareplus = (x, b = 4) => {
  checkFinite('squareplus', 'b', b);
  return floating('squareplus', (own) => F.div(F.add(own, F.sqrt(F.add(F.square(own), b))), 2))(x);
};
/** a / b, and 0 where b is 0, broadcast; there it has no gradient. @param {Operand} a @param {Tensor} b @returns {Tensor} */
export const divNoNan = (a, b) =>
  within('divNoNan', () => {
    const none = F.eq(tensorOf('divNoNan', b), 0);
    return F.where(none, 0, F.div(a, F.where(none, 1, b)));
  });
/** 1 where x is above 0, NaN where it is NaN, else alpha; without a gradient. @param {Tensor} x @param {number} [alpha] 0 when left out @returns {Tensor} */
export const step = (x, alpha = 0) => {
  checkFinite('step', 'alpha', alpha);
  return floating('step', (own) => F.where(F.ne(own, own), own.detach(), F.where(F.gt(own, 0), 1, alpha)))(x);
};
/** (a - b)² of each element, broadcast. @param {Tensor} a @param {Operand} b @returns {Tensor} */
export const squaredDifference = (a, b) => within('squaredDifference', () => F.square(F.sub(a, b)));

// ---- complex numbers, as the Fourier transforms have them: pairs in a last dimension of 2

/** @param {string} op @param {Tensor} x */
function pairs(op, x) {
  if (tensorOf(op, x).shape.at(-1) !== 2)
    throw new ShapeError(op, `expected pairs [..., 2] of real and imaginary part, got ${show(x.shape)}`);
  return x;
}
/** Complex numbers as pairs. @param {Tensor} real @param {Tensor} imag of the same shape @returns {Tensor} [..., 2] */
export const complex = (real, imag) => within('complex', () => F.stack([tensorOf('complex', real), tensorOf('complex', imag)], -1));
/** Complex numbers as pairs, of size and angle in radians. @param {Tensor} abs @param {Tensor} angle of the same shape @returns {Tensor} [..., 2] */
export const polar = (abs, angle) =>
  within('polar', () => F.stack([F.mul(tensorOf('polar', abs), cos(tensorOf('polar', angle))), F.mul(abs, sin(angle))], -1));
/** The real parts of pairs; a view. @param {Tensor} x [..., 2] @returns {Tensor} */
export const real = (x) => within('real', () => select(pairs('real', x), -1, 0));
/** The imaginary parts of pairs; a view. @param {Tensor} x [..., 2] @returns {Tensor} */
export const imag = (x) => within('imag', () => select(pairs('imag', x), -1, 1));
/** Complex conjugates of pairs. @param {Tensor} x [..., 2] @returns {Tensor} */
export const conj = (x) => within('conj', () => F.stack([real(pairs('conj', x)), F.neg(imag(x))], -1));
/** The angles of pairs, in radians. @param {Tensor} x [..., 2] @returns {Tensor} */
export const angle = (x) => within('angle', () => atan2(imag(pairs('angle', x)), real(x)));
/** The sizes of pairs, √(re² + im²). @param {Tensor} x [..., 2] @returns {Tensor} */
export const complexAbs = (x) => within('complexAbs', () => hypot(real(pairs('complexAbs', x)), imag(x)));
