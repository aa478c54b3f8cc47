// Functions of integers and bools: bits, and logic. Operands broadcast and are promoted as those of `add`.

import { apply, tensorOf } from '../core/engine.mjs';
import { within } from '../core/errors.mjs';
import * as ops from '../ops/integers.mjs';
import { binary, mixed, unary } from './binary.mjs';
import * as F from './functional.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {import('./functional.mjs').Operand} Operand */
/** @typedef {import('../ops/registry.mjs').Op} Op */

/** @param {Op} op @returns {(a: Operand, b: Operand) => Tensor} */
const either = (op) => (a, b) => mixed(op, a, b);

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
