// Functions of integers and bools: whole quotients and what they leave, bits, and logic. Operands broadcast and are promoted as those of `add`.

import { apply, tensorOf } from '../core/engine.mjs';
import { dimension, isFloat } from '../core/layout.mjs';
import { flag } from '../core/options.mjs';
import { within } from '../core/errors.mjs';
import * as ops from '../ops/integers.mjs';
import { binary, mixed, unary } from './binary.mjs';
import * as F from './functional.mjs';
import { reduceIntegers } from './reduce-integers.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {import('./functional.mjs').Operand} Operand */
/** @typedef {import('../ops/registry.mjs').Op} Op */

/** @param {Op} op @returns {(a: Operand, b: Operand) => Tensor} */
const either = (op) => (a, b) => mixed(op, a, b);

/**
 * The quotient rounded down, as PyTorch's `floor_divide`; `div` with `roundingMode: 'trunc'` rounds towards 0. An integer by 0 is no error: its
 * quotient is 0 or -1. Throws an ArgumentError for i64 and bools.
 */
export const floorDivide = either(ops.floorDivide);
/**
 * What `floorDivide` leaves: 0 or of b's sign, as Python's `%` and PyTorch's `remainder`. Of floats it is exact where the quotient is below
 * 2^23. An integer by 0 leaves itself. Throws an ArgumentError for i64 and bools.
 */
export const remainder = either(ops.remainder);
/** What a division towards 0 leaves: 0 or of a's sign, as JavaScript's `%` and PyTorch's `fmod`; else as `remainder`. */
export const fmod = either(ops.fmod);

/** The bits that are set in both; of bools where both are true. Throws an ArgumentError for floats. */
export const bitwiseAnd = either(ops.bitwiseAnd);
/** The bits that are set in either; of bools where either is true. Throws an ArgumentError for floats. */
export const bitwiseOr = either(ops.bitwiseOr);
/** The bits that are set in one of the two; of bools where they differ. Throws an ArgumentError for floats. */
export const bitwiseXor = either(ops.bitwiseXor);
/** a · 2ᵇ without the bits beyond a's type; b modulo the bits of the type (of bytes 32). Throws an ArgumentError for floats and bools. */
export const bitwiseLeftShift = either(ops.bitwiseLeftShift);
/** a / 2ᵇ rounded down; b modulo the bits of the type (of bytes 32). Throws an ArgumentError for floats and bools. */
export const bitwiseRightShift = either(ops.bitwiseRightShift);
/** The other bits: -1 - x; of bools their opposites. Throws an ArgumentError for floats. @param {Tensor} x @returns {Tensor} */
export const bitwiseNot = (x) => unary('bitwiseNot', ops.bitwiseNot, tensorOf('bitwiseNot', x));

/** Whether the elements are not 0. @param {string} op @param {Tensor} x */
const truth = (op, x) => within(op, () => F.to(tensorOf(op, x).detach(), 'bool'));
/** @param {string} name @param {Op} op @returns {(a: Tensor, b: Tensor) => Tensor} */
const logical = (name, op) => (a, b) => within(name, () => binary(op, truth(name, a), truth(name, b)));
/** Where both are not 0, as bools. */
export const logicalAnd = logical('logicalAnd', ops.bitwiseAnd);
/** Where one of them is not 0, or both, as bools. */
export const logicalOr = logical('logicalOr', ops.bitwiseOr);
/** Where one of them is 0 and the other is not, as bools. */
export const logicalXor = logical('logicalXor', ops.bitwiseXor);
/** Where x is 0, as bools. @param {Tensor} x @returns {Tensor} */
export const logicalNot = (x) => within('logicalNot', () => apply(ops.bitwiseNot, [truth('logicalNot', x)]));

/**
 * The product over one dimension, or over all when `dim` is left out. That of integers wraps and has x's type; that of bools and bytes is i32.
 * @param {Tensor} x @param {number} [dim] @param {boolean} [keepdim] whether the dimension stays, of size 1
 * @returns {Tensor}
 */
export function prod(x, dim, keepdim = false) {
  const { ndim } = tensorOf('prod', x);
  flag('prod', 'keepdim', keepdim);
  const dims = dim === undefined ? x.shape.map((_, d) => d) : [dimension('prod', dim, ndim)].slice(0, ndim);
  return within('prod', () => (isFloat(x.dtype) ? floatProduct(x, dims, keepdim) : reduceIntegers('prod', x, dims, keepdim)));
}

/** By halves, so that the gradient of an element is the product of the others, also where one is 0. @param {Tensor} x @param {number[]} dims @param {boolean} keepdim */
function floatProduct(x, dims, keepdim) {
  const dim = dims.length === 1 ? dims[0] : 0;
  let y = dims.length === 1 ? x : F.reshape(x, [-1]);
  for (let size = y.shape[dim]; size > 1; size = y.shape[dim]) {
    const half = Math.floor(size / 2);
    const product = F.mul(F.slice(y, dim, 0, half), F.slice(y, dim, half, 2 * half));
    y = size % 2 ? F.cat([product, F.slice(y, dim, size - 1)], dim) : product;
  }
  const shape = keepdim ? x.shape.map((size, d) => (dims.includes(d) ? 1 : size)) : x.shape.filter((_, d) => !dims.includes(d));
  const result = F.reshape(y, shape);
  return result.storage === x.storage ? F.clone(result) : result;
}
