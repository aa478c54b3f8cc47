// How functions call operations of several operands, of which some may be numbers, and divisions with whole quotients.

import { apply, tensorOf } from '../core/engine.mjs';
import { ArgumentError, shown, within } from '../core/errors.mjs';
import { broadcastShapes, isFloat } from '../core/layout.mjs';
import * as movement from '../ops/movement.mjs';
import { mixed } from './binary.mjs';
import { asFloat, inOneType, promotedType } from './operands.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {import('../ops/registry.mjs').Op} Op */
/** @typedef {import('./functional.mjs').Operand} Operand */

/**
 * An operation of several operands, which broadcast: of floats, and of integers in f32. Numbers count as tensors of one element of f32 and leave the
 * type as it is.
 * @param {Op} op @param {readonly unknown[]} operands @param {readonly number[]} [numbers] @returns {Tensor}
 */
export function of(op, operands, numbers = []) {
  const tensors = operands.flatMap((x) => (typeof x === 'number' ? [] : [tensorOf(op.name, x)]));
  if (tensors.length === 0) throw new ArgumentError(op.name, `expected a tensor, got ${shown(operands[0])}`);
  const promoted = tensors.map((x) => x.dtype).reduce(promotedType);
  const type = isFloat(promoted) ? promoted : 'f32';
  broadcastShapes(op.name, ...tensors.map((x) => x.shape));
  const inputs = operands.map((x) =>
    typeof x === 'number' ? apply(movement.fill, [], { shape: [], value: x, dtype: 'f32' }) : asFloat(op.name, /** @type {Tensor} */ (x)),
  );
  return within(op.name, () => apply(op, inputs, { numbers, dtype: type }));
}

/**
 * A remainder or a whole quotient of integers, which are in no f32, or of floats; of an integer tensor and a float one in the float's type.
 * @param {Op} op of floats @param {Op} whole of integers @param {Operand} x @param {Operand} y
 */
export function left(op, whole, x, y) {
  const isWhole = (/** @type {Operand} */ v) => (typeof v === 'number' ? Number.isInteger(v) : !isFloat(tensorOf(op.name, v).dtype));
  if ((typeof x !== 'number' || typeof y !== 'number') && isWhole(x) && isWhole(y)) return within(op.name, () => mixed(whole, x, y));
  const floats = typeof x === 'number' || typeof y === 'number' || isWhole(x) === isWhole(y) ? [x, y] : inOneType(op.name, x, y);
  return of(
    op,
    floats.map((v) => (typeof v === 'number' ? v : asFloat(op.name, tensorOf(op.name, v)))),
  );
}
