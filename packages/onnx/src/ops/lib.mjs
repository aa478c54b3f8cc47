// What definitions of operators have in common.

import { F, tensor } from 'helios-vk/nn';
import { LIMIT, axisOf, broadcast, cast, computable, expand, known, mapped, scalar, wrapped } from '../arrays.mjs';
import { TYPES, isFloat, sizeOf } from '../types.mjs';
import { Value } from '../value.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../types.mjs').Type} Type */
/** @typedef {import('../definitions.mjs').Call} Call */
/** @typedef {import('../definitions.mjs').Computed} Computed */

/** The functions of `helios-vk/nn`. */
export const f = F;

/** A value of a type computed in the device's: brought back into the type's range. @param {Type} type @param {Tensor} y @returns {Value} */
export function result(type, y) {
  const { dtype, own, range } = TYPES[/** @type {Exclude<Type, 'string'>} */ (type)];
  if (y.dtype !== dtype) return Value.of(type, y.to(dtype));
  return Value.of(type, range && !own ? wrapped(y, range) : y);
}

/** A value whose elements the device's type cannot leave the range of: minima, picked elements. @param {Type} type @param {Tensor} y */
export const same = (type, y) =>
  Value.of(type, y.dtype === TYPES[/** @type {'float'} */ (type)].dtype ? y : y.to(TYPES[/** @type {'float'} */ (type)].dtype));

/** An operator of tensors whose result has the first one's type. @param {(...tensors: Tensor[]) => Tensor} of @returns {Computed} */
export const mapping = (of) => ({ run: (inputs) => same(inputs[0].type, of(...inputs.map((each) => each?.tensor))) });

/** Types whose arithmetic the host does as the device would. */
const ON_HOST = new Set(['float', 'double', 'bool', 'int8', 'uint8', 'int16', 'uint16', 'int32', 'uint32', 'int64']);
/** Whether all inputs are known on the host, small, and of a type that the host computes. @param {...(Value | undefined)} values */
export const hosted = (...values) => computable(...values) && values.every((value) => value === undefined || ON_HOST.has(value.type));
/**
 * What `mapped` makes of inputs that the host computes. Undefined if it does not, and where an integer has no exact number: the device's
 * integers wrap.
 * @param {(...numbers: number[]) => number | boolean} of @param {Type} type of the result @param {...Value} values
 */
export function onHost(of, type, ...values) {
  // A row and a column that are small may be a large matrix.
  if (!hosted(...values) || sizeOf(broadcast(...values.map(({ shape }) => shape))) > LIMIT) return undefined;
  let isExact = true;
  const y = mapped(
    (...numbers) => {
      const number = of(...numbers);
      isExact &&= isFloat(type) || Number.isSafeInteger(Number(number));
      return number;
    },
    type,
    ...values,
  );
  return isExact ? y : undefined;
}

/**
 * An elementwise operator.
 * @param {(...tensors: Tensor[]) => Tensor} of on the device @param {(...numbers: number[]) => number | boolean} [host] the same of numbers
 * @param {Type} [type] of the result; the first input's when left out
 * @returns {{ run: (inputs: import('../definitions.mjs').Inputs) => Value }} a Computed
 */
export const elementwise = (of, host, type) => ({
  run(inputs) {
    const to = type ?? inputs[0].type;
    const known = host && onHost(host, to, ...inputs);
    if (known) return known;
    const y = of(...inputs.map((each) => each.tensor));
    return type === undefined ? result(to, y) : same(to, y);
  },
});

/**
 * An operator that throws where a node asks for what it does not do, instead of leaving it out.
 * @param {Computed} operator @param {string} taken names of the attributes that it takes, with a space between
 * @param {number} count of inputs that it takes @param {Record<string, number | string>} [only] attributes that have to have one value, or be left out
 * @param {readonly string[]} [others] names of the inputs behind those that it takes
 * @returns {Computed}
 */
export function strict(operator, taken, count, only = {}, others = []) {
  const names = new Set(taken.split(' '));
  return {
    ...operator,
    run(inputs, attributes, call) {
      for (const [name, value] of Object.entries(attributes)) {
        if (names.has(name) || (Object.hasOwn(only, name) && only[name] === value)) continue;
        throw new Error(`the attribute ${name}${Object.hasOwn(only, name) ? ` = ${value}` : ''} is not supported`);
      }
      const more = inputs.findIndex((value, i) => i >= count && value !== undefined);
      if (more >= 0) throw new Error(`the input ${others[more - count] ?? more} is not supported`);
      return operator.run(inputs, attributes, call);
    },
  };
}

/** Dimensions of a reduction or the like. @param {readonly number[]} axes @param {number} rank */
export const axesOf = (axes, rank) => axes.map((axis) => axisOf(axis, rank));

/** An index as i32, which functions take. What 32 bits do not have stays out of range. @param {Tensor} index @returns {Tensor} */
export const indexOf = (index) => F.to(index.dtype === 'i64' ? F.clamp(index, -(2 ** 31), 2 ** 31 - 1) : index, 'i32');

/** Numbers as a tensor on the device. @param {ArrayLike<number>} numbers @param {readonly number[]} shape @param {Tensor['dtype']} [dtype] */
export const uploaded = (numbers, shape, dtype = 'f32') => tensor(Float64Array.from(numbers), { shape: [...shape], dtype });

/** Integers of an axis, 0, 1, …, as a tensor of i32. @param {number} count @param {readonly number[]} [shape] */
export const counted = (count, shape = [count]) =>
  tensor(
    Int32Array.from({ length: count }, (_, i) => i),
    { shape: [...shape], dtype: 'i32' },
  );

export { Value, axisOf, broadcast, cast, expand, known, mapped, scalar };
