// Converts host data to the bytes of a tensor, and back.

import { bf16Bits, bf16Value, f16Bits, f16Value } from '../../kernels/half.mjs';
import { ArgumentError, ShapeError, show, shown } from './errors.mjs';
import { RANGES } from './layout.mjs';

/** @typedef {import('./layout.mjs').DType} DType */
/** @typedef {number | boolean | bigint | NestedArray} Nested */
/** @typedef {Nested[]} NestedArray */
/** @typedef {Float32Array | Float64Array | Int32Array | Uint32Array | Uint8Array | Uint16Array | Int16Array | Int8Array | BigInt64Array} Numbers */
/** What a tensor is made of. @typedef {number | boolean | bigint | Numbers | DataArray} Data */
/** @typedef {Data[]} DataArray */
/** What is read back of every type but i64. @typedef {Float32Array | Int32Array | Uint32Array | Uint8Array | Int8Array} Elements */
/** Numbers by their place, of i64 bigints. @typedef {ArrayLike<number> | ArrayLike<number | bigint>} Values */

/** The most dimensions that nested arrays may have. */
const MAX_DEPTH = 64;

/** The type that a typed array suggests; most are f32. @param {string} op @param {Numbers} numbers @returns {DType} */
export function typeOfArray(op, numbers) {
  if (numbers instanceof Int32Array) return 'i32';
  if (numbers instanceof Uint32Array) return 'u32';
  if (numbers instanceof BigInt64Array) return 'i64';
  if (typeof numbers[0] === 'bigint' || /** @type {unknown} */ (numbers) instanceof BigUint64Array)
    throw new ArgumentError(op, 'a BigUint64Array: 64-bit integers are signed here, so convert it with BigInt64Array.from');
  return 'f32';
}

/** @param {unknown} data @returns {data is Numbers} */
const isTyped = (data) => ArrayBuffer.isView(data) && !(data instanceof DataView);

/** Typed arrays by the type that they suggest; of f32 are also bytes and shorts. */
const OF_TYPE = { i32: Int32Array, u32: Uint32Array, i64: BigInt64Array };

/**
 * The numbers of rows in one typed array. As a list of numbers, a batch of 64 images [3, 224, 224] took 20 s instead of 0.7.
 * @param {Numbers[]} rows of one type, or none of i64 @param {Set<DType>} types of the rows @returns {Values}
 */
function joined(rows, types) {
  const [type] = types;
  const isExact = types.size === 1 && type in OF_TYPE;
  const Joined = isExact
    ? OF_TYPE[/** @type {'i32'} */ (type)]
    : rows.every((row) => row instanceof Float32Array)
      ? Float32Array
      : Float64Array;
  const all = new Joined(rows.reduce((count, { length }) => count + length, 0));
  let at = 0;
  for (const row of rows) {
    all.set(/** @type {any} */ (row), at);
    at += row.length;
  }
  return all;
}

/**
 * The numbers of nested arrays, row by row, and their shape. Throws a ShapeError for ragged arrays, an ArgumentError for what is not a number.
 * @param {string} op @param {unknown} data a number, a typed array, or nested arrays of equal lengths, the innermost of which may be typed
 * @returns {{ values: Values, shape: number[], dtype: DType }} the type that the data suggests
 */
export function flatten(op, data) {
  if (isTyped(data)) return { values: data, shape: [data.length], dtype: typeOfArray(op, data) };
  /** @type {number[]} */
  const shape = [];
  for (let at = data; Array.isArray(at) || isTyped(at); at = at[0]) {
    if (shape.push(at.length) > MAX_DEPTH)
      throw new ShapeError(op, `arrays are nested more than ${MAX_DEPTH} deep, or one contains itself`);
  }
  /** Numbers, and typed rows, in order. @type {(number | bigint | Numbers)[]} */
  const parts = [];
  let booleans = true;
  let long = false;
  let plain = false;
  /** The types of typed rows. @type {Set<DType>} */
  const types = new Set();
  /** @param {unknown} item @param {number} depth */
  const walk = (item, depth) => {
    if (Array.isArray(item) || isTyped(item)) {
      if (item.length !== shape[depth]) {
        throw new ShapeError(
          op,
          `nested arrays have unequal lengths: ${item.length} and ${shape[depth] ?? 'a number'} in dimension ${depth}`,
        );
      }
      if (isTyped(item) && depth + 1 === shape.length) {
        types.add(typeOfArray(op, item));
        parts.push(item);
      } else for (const inner of item) walk(inner, depth + 1);
      return;
    }
    if (depth !== shape.length) throw new ShapeError(op, `nested arrays have unequal depths: ${shown(item)} in dimension ${depth}`);
    if (typeof item !== 'number' && typeof item !== 'boolean' && typeof item !== 'bigint')
      throw new ArgumentError(op, `expected numbers, got ${shown(item)}`);
    plain = true;
    booleans &&= typeof item === 'boolean';
    long ||= typeof item === 'bigint';
    parts.push(typeof item === 'bigint' ? item : Number(item));
  };
  walk(data, 0);
  const [typed] = types;
  const isLong = long || types.has('i64');
  const isOne = types.size === 1 && !plain;
  const isTogether = types.size > 0 && !plain && (isOne || !isLong);
  /** @param {number | bigint | Numbers} part */
  const numbersOf = (part) => (isTyped(part) ? Array.from(/** @type {ArrayLike<number | bigint>} */ (part)) : [part]);
  const values = isTogether
    ? joined(/** @type {Numbers[]} */ (parts), types)
    : /** @type {(number | bigint)[]} */ (types.size === 0 ? parts : parts.flatMap(numbersOf));
  return { values, shape, dtype: isOne ? typed : isLong ? 'i64' : booleans && plain && types.size === 0 ? 'bool' : 'f32' };
}

/**
 * The words of a tensor with these values. Throws an ArgumentError for a number that an integer type cannot represent.
 * @param {string} op @param {Values} given @param {DType} dtype
 * @returns {ArrayBufferView}
 */
export function encode(op, given, dtype) {
  if (dtype === 'i64') return given instanceof BigInt64Array ? given : longs(op, given);
  /** @type {ArrayLike<number>} */
  const values =
    typeof given[0] === 'number' && !Array.isArray(given) ? /** @type {ArrayLike<number>} */ (given) : Array.from(given, Number);
  if (dtype === 'f32') return values instanceof Float32Array ? values : Float32Array.from(values);
  if (dtype === 'f16' || dtype === 'bf16') {
    // Whole words: an odd number of elements is padded by one.
    const halves = new Uint16Array(values.length + (values.length & 1));
    const bits = dtype === 'f16' ? f16Bits : bf16Bits;
    for (let i = 0; i < values.length; i++) halves[i] = bits(values[i]);
    return halves;
  }
  if (dtype === 'bool') return Uint32Array.from(values, (value) => (Number(value) === 0 ? 0 : 1));
  const [low, high] = /** @type {[number, number]} */ (RANGES[dtype]);
  for (let i = 0; i < values.length; i++) {
    if (!Number.isInteger(values[i]) || values[i] < low || values[i] > high) {
      throw new ArgumentError(op, `element ${i}, ${values[i]}, is not a value of type ${dtype}`);
    }
  }
  if (dtype === 'u8' || dtype === 'i8') {
    // Whole words.
    const bytes = new Uint8Array(Math.ceil(values.length / 4) * 4);
    for (let i = 0; i < values.length; i++) bytes[i] = values[i];
    return bytes;
  }
  if (dtype === 'i32') return values instanceof Int32Array ? values : Int32Array.from(values);
  return values instanceof Uint32Array ? values : Uint32Array.from(values);
}

/** 64-bit integers of numbers, which must be exact, and bigints. @param {string} op @param {Values} values */
function longs(op, values) {
  const result = new BigInt64Array(values.length);
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    const fits = typeof value === 'bigint' ? BigInt.asIntN(64, value) === value : Number.isSafeInteger(value);
    if (!fits) {
      const advice = Number.isInteger(value) ? ': beyond 2^53 give bigints' : '';
      throw new ArgumentError(op, `element ${i}, ${value}, is not a value of type i64${advice}`);
    }
    result[i] = BigInt(value);
  }
  return result;
}

/**
 * The values in the bytes of a tensor.
 * @param {Uint8Array} bytes @param {DType} dtype @param {number} count
 * @returns {Elements | BigInt64Array}
 */
export function decode(bytes, dtype, count) {
  const { buffer, byteOffset } = bytes;
  // Their place need not be one of 64-bit words.
  if (dtype === 'i64') return new BigInt64Array(byteOffset % 8 ? bytes.slice().buffer : buffer, byteOffset % 8 ? 0 : byteOffset, count);
  if (dtype === 'f32') return new Float32Array(buffer, byteOffset, count);
  if (dtype === 'i32') return new Int32Array(buffer, byteOffset, count);
  if (dtype === 'u32') return new Uint32Array(buffer, byteOffset, count);
  if (dtype === 'u8') return new Uint8Array(buffer, byteOffset, count);
  if (dtype === 'i8') return new Int8Array(buffer, byteOffset, count);
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
