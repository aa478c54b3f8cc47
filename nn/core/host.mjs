// Converts host data to the bytes of a tensor, and back.

import { bf16Bits, bf16Value, f16Bits, f16Value } from '../../kernels/half.mjs';
import { ArgumentError, ShapeError, show, shown } from './errors.mjs';

/** @typedef {import('./layout.mjs').DType} DType */
/** @typedef {number | boolean | NestedArray} Nested */
/** @typedef {Nested[]} NestedArray */
/** @typedef {Float32Array | Float64Array | Int32Array | Uint32Array | Uint8Array | Uint16Array | Int16Array | Int8Array} Numbers */

/** The most dimensions that nested arrays may have. */
const MAX_DEPTH = 64;

/**
 * The numbers of nested arrays, row by row, and their shape. Throws a ShapeError for ragged arrays, an ArgumentError for what is not a number.
 * @param {string} op @param {unknown} data a number, a typed array, or nested arrays of equal lengths
 * @returns {{ values: ArrayLike<number>, shape: number[], dtype: DType }} the type that the data suggests
 */
export function flatten(op, data) {
  if (ArrayBuffer.isView(data) && !(data instanceof DataView)) {
    const numbers = /** @type {Numbers} */ (data);
    if (typeof numbers[0] === 'bigint') throw new ArgumentError(op, 'a BigInt array: convert it to Int32Array first');
    const dtype = data instanceof Int32Array ? 'i32' : data instanceof Uint32Array ? 'u32' : 'f32';
    return { values: numbers, shape: [numbers.length], dtype };
  }
  /** @type {number[]} */
  const shape = [];
  for (let at = data; Array.isArray(at); at = at[0]) {
    if (shape.push(at.length) > MAX_DEPTH)
      throw new ShapeError(op, `arrays are nested more than ${MAX_DEPTH} deep, or one contains itself`);
  }
  /** @type {number[]} */
  const values = [];
  let booleans = true;
  /** @param {unknown} item @param {number} depth */
  const walk = (item, depth) => {
    if (Array.isArray(item)) {
      if (item.length !== shape[depth]) {
        throw new ShapeError(
          op,
          `nested arrays have unequal lengths: ${item.length} and ${shape[depth] ?? 'a number'} in dimension ${depth}`,
        );
      }
      for (const inner of item) walk(inner, depth + 1);
      return;
    }
    if (depth !== shape.length) throw new ShapeError(op, `nested arrays have unequal depths: ${shown(item)} in dimension ${depth}`);
    if (typeof item !== 'number' && typeof item !== 'boolean') throw new ArgumentError(op, `expected numbers, got ${shown(item)}`);
    booleans &&= typeof item === 'boolean';
    values.push(Number(item));
  };
  walk(data, 0);
  return { values, shape, dtype: booleans && values.length > 0 ? 'bool' : 'f32' };
}

/**
 * The words of a tensor with these values. Throws an ArgumentError for a number that an integer type cannot represent.
 * @param {string} op @param {ArrayLike<number>} values @param {DType} dtype
 * @returns {ArrayBufferView}
 */
export function encode(op, values, dtype) {
  if (dtype === 'f32') return values instanceof Float32Array ? values : Float32Array.from(values);
  if (dtype === 'f16' || dtype === 'bf16') {
    // Whole words: an odd number of elements is padded by one.
    const halves = new Uint16Array(values.length + (values.length & 1));
    const bits = dtype === 'f16' ? f16Bits : bf16Bits;
    for (let i = 0; i < values.length; i++) halves[i] = bits(values[i]);
    return halves;
  }
  if (dtype === 'bool') return Uint32Array.from(values, (value) => (Number(value) === 0 ? 0 : 1));
  const [low, high] = dtype === 'i32' ? [-(2 ** 31), 2 ** 31 - 1] : [0, 2 ** 32 - 1];
  for (let i = 0; i < values.length; i++) {
    if (!Number.isInteger(values[i]) || values[i] < low || values[i] > high) {
      throw new ArgumentError(op, `element ${i}, ${values[i]}, is not a value of type ${dtype}`);
    }
  }
  if (dtype === 'i32') return values instanceof Int32Array ? values : Int32Array.from(values);
  return values instanceof Uint32Array ? values : Uint32Array.from(values);
}

/**
 * The values in the bytes of a tensor.
 * @param {Uint8Array} bytes @param {DType} dtype @param {number} count
 * @returns {Float32Array | Int32Array | Uint32Array | Uint8Array}
 */
export function decode(bytes, dtype, count) {
  const { buffer, byteOffset } = bytes;
  if (dtype === 'f32') return new Float32Array(buffer, byteOffset, count);
  if (dtype === 'i32') return new Int32Array(buffer, byteOffset, count);
  if (dtype === 'u32') return new Uint32Array(buffer, byteOffset, count);
  if (dtype === 'bool') return Uint8Array.from(new Uint32Array(buffer, byteOffset, count), (word) => (word ? 1 : 0));
  const halves = new Uint16Array(buffer, byteOffset, count);
  const result = new Float32Array(count);
  const value = dtype === 'bf16' ? bf16Value : f16Value;
  for (let i = 0; i < count; i++) result[i] = value(halves[i]);
  return result;
}

/**
 * Checks that data has as many elements as a shape.
 * @param {string} op @param {number} count @param {number[]} shape
 */
export function checkCount(op, count, shape) {
  const size = shape.reduce((a, b) => a * b, 1);
  if (size !== count) throw new ShapeError(op, `a shape ${show(shape)} needs ${size} elements, got ${count}`);
}
