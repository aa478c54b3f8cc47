// How functions call operations of two operands: in one type, of strides that kernels take, and with numbers in place of tensors.

import { apply, tensorOf } from '../core/engine.mjs';
import { show, within } from '../core/errors.mjs';
import { broadcastShapes, checkNumber, checkShape, checkType, isByte } from '../core/layout.mjs';
import { checkOptions } from '../core/options.mjs';
import * as movement from '../ops/movement.mjs';
import { inOneType, withNumber } from './operands.mjs';
import { expand, to } from './views.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {import('../ops/registry.mjs').Op} Op */
/** @typedef {import('./functional.mjs').Operand} Operand */
/** @typedef {import('./functional.mjs').TypeOptions} TypeOptions */

/** @param {string} op @param {readonly number[]} shape @param {number} value @param {TypeOptions} options */
export function filled(op, shape, value, options) {
  const sizes = checkShape(op, shape); // first: `zeros(2, 3)` is a mistake about the shape
  const { dtype = 'f32' } = checkOptions(op, options, ['dtype']);
  const attributes = { shape: [...sizes], value: checkNumber(op, value, checkType(op, dtype)), dtype };
  return within(op, () => apply(movement.fill, [], attributes));
}

/** The most dimensions of an elementwise operation whose strides fit the push constants of every device; an i64 is two operands. @param {Tensor} x */
const mostDims = (x) => (x.dtype === 'i64' ? 3 : 8);

/**
 * An elementwise operation of two tensors, in the type that they are promoted to.
 * @param {Op} op @param {Tensor} a @param {Tensor} b @param {import('../ops/registry.mjs').Attributes} [attributes]
 * @returns {Tensor}
 */
export function binary(op, a, b, attributes) {
  const [x, y] = inOneType(op.name, tensorOf(op.name, a), tensorOf(op.name, b));
  if (isByte(x.dtype)) return within(op.name, () => asBytes(binary(op, to(x, 'i32'), to(y, 'i32'), attributes), x.dtype));
  if (Math.max(x.ndim, y.ndim) > mostDims(x) && !(x.layout.contiguous && y.layout.contiguous && show(x.shape) === show(y.shape))) {
    const shape = broadcastShapes(op.name, x.shape, y.shape);
    return apply(op, [expand(x, shape).contiguous(), expand(y, shape).contiguous()], attributes);
  }
  return apply(op, [x, y], attributes);
}

/** A result of i32 as bytes, which wrap; others are what they are. @param {Tensor} y @param {Tensor['dtype']} dtype */
const asBytes = (y, dtype) => (y.dtype === 'i32' ? to(y, dtype) : y);

/** An elementwise operation of one tensor; of bytes as i32. @param {string} name @param {Op} op @param {Tensor} x @param {import('../ops/registry.mjs').Attributes} [attributes] @returns {Tensor} */
export function unary(name, op, x, attributes) {
  if (!isByte(x.dtype)) return apply(op, [x], attributes);
  return within(name, () => asBytes(apply(op, [to(x, 'i32')], attributes), x.dtype));
}

/** @param {string} name @param {unknown} value @returns {value is number} */
export function isNumber(name, value) {
  if (typeof value === 'number') return true;
  tensorOf(name, value);
  return false;
}

/**
 * An operation of two operands of which either may be a number, in the type that the tensor is computed in with it.
 * @param {Op} op @param {Operand} a @param {Operand} b
 * @returns {Tensor}
 */
export function mixed(op, a, b) {
  if (!isNumber(op.name, a) && !isNumber(op.name, b)) return binary(op, a, b);
  const [x, number] = isNumber(op.name, a) ? [tensorOf(op.name, b), a] : [tensorOf(op.name, a), /** @type {number} */ (b)];
  const own = withNumber(op.name, x, number);
  const other = filled(op.name, [], number, { dtype: own.dtype });
  return x === a ? binary(op, own, other) : binary(op, other, own);
}
