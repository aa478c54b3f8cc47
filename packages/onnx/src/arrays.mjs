// Movements and arithmetic of values. What is known on the host and small is computed here, so that shapes and sizes stay known; the rest
// by the device.

import { F } from 'helios-vk/nn';
import { TYPES, isFloat, sizeOf } from './types.mjs';
import { Value } from './value.mjs';

/** @typedef {import('./types.mjs').Type} Type */
/** @typedef {import('./types.mjs').Elements} Elements */
/** @typedef {import('./types.mjs').Writable} Writable */

/** Elements up to which a value is computed on the host. */
export const LIMIT = 4096;

/** Elements up to which an operator makes a list on the host: sizes of a file may be any. */
const LONGEST = 2 ** 24;
/** The length of a list to make on the host. Throws a RangeError where it is none, or too long. @param {number} count */
export function limited(count) {
  if (!(Number.isInteger(count) && count >= 0 && count <= LONGEST)) {
    throw new RangeError(`a list of ${count} elements cannot be made on the host, which makes up to ${LONGEST}`);
  }
  return count;
}

/** Whether all are known on the host and small. @param {...(Value | undefined)} values */
export const known = (...values) => values.every((value) => value === undefined || (value.elements !== undefined && value.size <= LIMIT));

/** Makes an array of a type's elements. @param {Type} type @param {number} count @returns {Writable} */
export const arrayOf = (type, count) => (type === 'string' ? new Array(count).fill('') : new TYPES[type].array(count));

/** An array of the same kind. @param {Elements} elements @param {number} count @returns {Writable} */
export const like = (elements, count) => new /** @type {new (count: number) => Writable} */ (elements.constructor)(count);
/** Whether elements are bigints. @param {Elements | undefined} elements */
const isBig = (elements) => elements instanceof BigInt64Array || elements instanceof BigUint64Array;

/** Whether all are known on the host, small, and exact as numbers. @param {...(Value | undefined)} values */
export const computable = (...values) => known(...values) && !values.some((value) => isBig(value?.elements));

/** Row-major strides. @param {readonly number[]} shape */
export function stridesOf(shape) {
  const strides = new Array(shape.length);
  for (let d = shape.length - 1, step = 1; d >= 0; step *= shape[d--]) strides[d] = step;
  return strides;
}

/** The index of a dimension; a negative one counts from the end. @param {number} axis @param {number} rank */
export function axisOf(axis, rank) {
  const index = axis < 0 ? axis + rank : axis;
  if (!(Number.isInteger(axis) && index >= 0 && index < Math.max(rank, 1))) {
    throw new RangeError(`axis ${axis} is out of range for ${rank} dimensions`);
  }
  return index;
}

/**
 * Elements at strides of others.
 * @param {Value} x on the host @param {readonly number[]} shape @param {readonly number[]} strides @param {number} [offset]
 */
function strided(x, shape, strides, offset = 0) {
  const from = /** @type {Elements} */ (x.elements);
  const result = like(from, limited(sizeOf(shape)));
  const index = new Array(shape.length).fill(0);
  for (let i = 0, at = offset; i < result.length; i++) {
    result[i] = from[at];
    for (let d = shape.length - 1; d >= 0; d--) {
      at += strides[d];
      if (++index[d] < shape[d]) break;
      at -= strides[d] * shape[d];
      index[d] = 0;
    }
  }
  return Value.host(x.type, shape, result);
}

/** The same elements in another shape. @param {Value} x @param {readonly number[]} shape @returns {Value} */
export function reshape(x, shape) {
  if (x.elements !== undefined && !x.uploaded) {
    if (sizeOf(shape) !== x.size) throw new RangeError(`[${x.shape}] cannot be reshaped to [${shape}]`);
    return Value.host(x.type, shape, x.elements);
  }
  return Value.of(x.type, F.reshape(x.tensor, shape));
}

/** @param {Value} x @param {readonly number[]} order @returns {Value} */
export function transpose(x, order) {
  if (!known(x)) return Value.of(x.type, F.permute(x.tensor, order));
  const strides = stridesOf(x.shape);
  return strided(
    x,
    order.map((d) => x.shape[d]),
    order.map((d) => strides[d]),
  );
}

/** The shape that shapes broadcast to. @param {...(readonly number[])} shapes */
export function broadcast(...shapes) {
  const result = new Array(Math.max(...shapes.map(({ length }) => length))).fill(1);
  for (const shape of shapes) {
    const missing = result.length - shape.length;
    for (const [i, size] of shape.entries()) {
      if (size === 1 || size === result[missing + i]) continue;
      if (result[missing + i] !== 1) throw new RangeError(`shapes ${shapes.map((each) => `[${each}]`).join(', ')} do not broadcast`);
      result[missing + i] = size;
    }
  }
  return result;
}

/** Repeats dimensions of size 1. @param {Value} x @param {readonly number[]} shape @returns {Value} */
export function expand(x, shape) {
  return known(x) && sizeOf(shape) <= LIMIT ? repeated(x, shape) : Value.of(x.type, F.expand(x.tensor, shape));
}

/** Repeats dimensions of size 1 on the host. @param {Value} x on the host @param {readonly number[]} shape */
function repeated(x, shape) {
  const own = stridesOf(x.shape);
  const missing = shape.length - x.rank;
  return strided(
    x,
    shape,
    shape.map((_, i) => (i < missing || x.shape[i - missing] === 1 ? 0 : own[i - missing])),
  );
}

/**
 * Elements `start`, `start + step`, … of one dimension.
 * @param {Value} x @param {number} axis @param {number} start within the dimension @param {number} count @param {number} [step] negative ones go back
 * @returns {Value}
 */
export function slice(x, axis, start, count, step = 1) {
  if (start === 0 && count === x.shape[axis] && step === 1) return x;
  const shape = x.shape.with(axis, count);
  if (known(x)) {
    const strides = stridesOf(x.shape);
    return strided(x, shape, strides.with(axis, strides[axis] * step), strides[axis] * start);
  }
  if (step > 0) return Value.of(x.type, F.slice(x.tensor, axis, start, start + (count - 1) * step + 1, step));
  return take(
    x,
    axis,
    Array.from({ length: limited(count) }, (_, i) => start + i * step),
  );
}

/** Elements of one dimension by their indices. @param {Value} x @param {number} axis @param {readonly number[]} indices @returns {Value} */
export function take(x, axis, indices) {
  const shape = x.shape.with(axis, indices.length);
  if (!known(x)) {
    const index = Value.host('int32', [indices.length], Int32Array.from(indices));
    return Value.of(x.type, F.indexSelect(x.tensor, axis, index.tensor));
  }
  const inner = sizeOf(x.shape.slice(axis + 1));
  const from = /** @type {Elements} */ (x.elements);
  const result = like(from, limited(sizeOf(shape)));
  for (let at = 0, outer = 0; at < result.length; outer += x.shape[axis] * inner) {
    for (const index of indices) for (let i = 0; i < inner; i++) result[at++] = from[outer + index * inner + i];
  }
  return Value.host(x.type, shape, result);
}

/** Joins values along a dimension. @param {readonly Value[]} values of one type @param {number} axis @returns {Value} */
export function concat(values, axis) {
  const [{ type, shape }] = values;
  if (!known(...values)) {
    return Value.of(
      type,
      F.cat(
        values.map(({ tensor }) => tensor),
        axis,
      ),
    );
  }
  const sizes = values.map((value) => value.shape[axis]);
  const all = shape.with(
    axis,
    sizes.reduce((a, b) => a + b, 0),
  );
  const inner = sizeOf(shape.slice(axis + 1));
  const own = values.map(({ elements }) => /** @type {Elements} */ (elements));
  const isLong = own.some(isBig);
  const result = like(own.find(isBig) ?? own[0], sizeOf(all));
  for (let at = 0, outer = 0; at < result.length; outer++) {
    for (let v = 0; v < own.length; v++) {
      const count = sizes[v] * inner;
      for (let i = 0; i < count; i++) {
        const element = own[v][outer * count + i];
        result[at++] = isLong ? BigInt(element) : element;
      }
    }
  }
  return Value.host(type, all, result);
}

/**
 * Applies a function to elements, broadcast, on the host. They are numbers, or strings that are compared.
 * @param {(...operands: number[]) => number | boolean} of @param {Type} type of the result @param {...Value} values on the host
 */
export function mapped(of, type, ...values) {
  const shape = broadcast(...values.map((value) => value.shape));
  const operands = values.map((value) => /** @type {ArrayLike<number>} */ (repeated(value, shape).elements));
  const result = arrayOf(type, sizeOf(shape));
  for (let i = 0; i < result.length; i++) result[i] = /** @type {number} */ (of(...operands.map((each) => each[i])));
  return Value.host(type, shape, result);
}

/** A value of one element on the host, of a type. @param {Type} type @param {number} number */
export function scalar(type, number) {
  const array = arrayOf(type, 1);
  array[0] = number;
  return Value.host(type, [], array);
}

/**
 * Converts to a type. An integer beyond another integer type's range is taken modulo the range, as in C; of a float beyond the integers that the
 * device computes in, it is the nearest of these, and of NaN 0, on the host as on the device.
 * @param {Value} x @param {Type} type @returns {Value}
 */
export function cast(x, type) {
  if (x.type === type) return x;
  if (x.type === 'string' || type === 'string') return castStrings(x, type);
  if (computable(x) && type !== 'float16' && type !== 'bfloat16') {
    if (type === 'bool') return mapped((v) => v !== 0, type, x);
    return isFloat(x.type) && !isFloat(type) ? saturated(x, type) : mapped(isFloat(type) ? Number : Math.trunc, type, x);
  }
  const { dtype, own, range } = TYPES[type];
  if (type === 'bool') return Value.of(type, F.ne(x.tensor, 0));
  const converted = F.to(x.tensor, dtype);
  return Value.of(type, range && !own && !fits(x.type, range) ? wrapped(converted, range) : converted);
}

/** Floats of the host as integers. @param {Value} x @param {Exclude<Type, 'string'>} type */
function saturated(x, type) {
  const { dtype } = TYPES[type];
  const [least, most] = dtype === 'i64' ? [-(2 ** 63), 2 ** 63] : dtype === 'u32' ? [0, 2 ** 32 - 1] : [-(2 ** 31), 2 ** 31 - 1];
  const near = (/** @type {number} */ v) => (Number.isNaN(v) ? 0 : Math.min(Math.max(Math.trunc(v), least), most));
  const numbers = Array.from(/** @type {ArrayLike<number>} */ (x.elements), near);
  const isExact = (/** @type {number} */ v) => Number.isSafeInteger(v) && (v >= 0 || type !== 'uint64');
  if (dtype !== 'i64' || numbers.every(isExact)) return mapped(near, type, x);
  const exact = numbers.map((v) => (v === most ? 2n ** 63n - 1n : BigInt(v)));
  return Value.host(type, x.shape, type === 'uint64' ? BigUint64Array.from(exact) : BigInt64Array.from(exact));
}

/** Whether each number of a type is in a range. @param {Type} type @param {readonly [number, number]} range */
function fits(type, [least, most]) {
  if (type === 'bool') return true;
  const own = type === 'string' ? undefined : TYPES[type].range;
  return own !== undefined && own[0] >= least && own[1] <= most;
}

/**
 * Integers modulo a range that has a power of two of them.
 * @param {import('helios-vk/nn').Tensor} x i32 @param {readonly [least: number, most: number]} range
 */
export function wrapped(x, [least, most]) {
  const low = F.bitwiseAnd(x, most - least);
  return least === 0 ? low : F.where(F.gt(low, most), F.sub(low, most - least + 1), low);
}

/** @param {Value} x @param {Type} type */
function castStrings(x, type) {
  if (x.elements === undefined) throw new Error('numbers of the device cannot become strings: read them first');
  if (type === 'string') {
    // As C++ prints a float: the fewest digits that name it.
    const text = (/** @type {import('./types.mjs').Element} */ v) =>
      Number.isNaN(v) ? 'NaN' : v === Infinity ? 'INF' : v === -Infinity ? '-INF' : String(v);
    return Value.host(type, x.shape, Array.from(x.elements, text));
  }
  const names = new Map([
    ['INF', Infinity],
    ['+INF', Infinity],
    ['-INF', -Infinity],
    ['NAN', NaN],
  ]);
  const values = Array.from(/** @type {ArrayLike<string>} */ (x.elements), (text) => names.get(text.trim().toUpperCase()) ?? Number(text));
  const array = arrayOf(type, values.length);
  for (const [i, value] of values.entries()) array[i] = value;
  return Value.host(type, x.shape, array);
}
