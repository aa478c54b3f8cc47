// ONNX's element types, how tensors lie in files, and which type of `helios-vk/nn` computes each.

import { closeSync, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { isAbsolute, join, normalize, sep } from 'node:path';
import { bf16Bits, bf16Value, f16Bits, f16Value } from 'helios-vk/kernels';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {Tensor['dtype']} DType */
/** An integer of 64 bits, of the package `long`. @typedef {{ toNumber(): number, toBigInt(): bigint }} Long */
/**
 * A message TensorProto.
 * @typedef {object} TensorMessage
 * @property {Long[]} dims
 * @property {number} dataType
 * @property {string} name
 * @property {Uint8Array} rawData
 * @property {number[]} floatData
 * @property {number[]} int32Data
 * @property {Long[]} int64Data
 * @property {Long[]} uint64Data
 * @property {number[]} doubleData
 * @property {Uint8Array[]} stringData
 * @property {{ key: string, value: string }[]} externalData
 * @property {number} dataLocation 1 if the elements are in another file
 */

/** The types that this package reads, by their number in files. */
export const NUMBERS = /** @type {const} */ ({
  1: 'float',
  2: 'uint8',
  3: 'int8',
  4: 'uint16',
  5: 'int16',
  6: 'int32',
  7: 'int64',
  8: 'string',
  9: 'bool',
  10: 'float16',
  11: 'double',
  12: 'uint32',
  13: 'uint64',
  16: 'bfloat16',
});
/** Types that it does not read, for errors. @type {Record<number, string>} */
const OTHERS = {
  14: 'complex64',
  15: 'complex128',
  17: 'float8e4m3fn',
  18: 'float8e4m3fnuz',
  19: 'float8e5m2',
  20: 'float8e5m2fnuz',
  21: 'uint4',
  22: 'int4',
  23: 'float4e2m1',
  24: 'float8e8m0',
  25: 'uint2',
  26: 'int2',
};

/** An element type by ONNX's name. @typedef {(typeof NUMBERS)[keyof typeof NUMBERS]} Type */
/** @typedef {string | number | bigint} Element */
/**
 * The elements of a tensor on the host: strings for the type string, bigints where numbers are not exact, else numbers.
 * @typedef {ArrayLike<Element>} Elements
 */
/** Elements while they are made. @typedef {{ length: number, [index: number]: Element }} Writable */
/** @typedef {Float32Array | Float64Array | Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array} NumberArray */
/**
 * A class of arrays of numbers.
 * @typedef {{
 *   new (count: number): NumberArray, new (buffer: ArrayBufferLike, at?: number, count?: number): NumberArray,
 *   from(list: ArrayLike<number>): NumberArray, from<T>(list: ArrayLike<T>, map: (each: T, i: number) => number): NumberArray
 * }} NumberClass
 */

/**
 * How a type is computed: `dtype` on the device, which is another type unless `own`; `bytes` of an element in a file; `array` for elements on
 * the host. `range`: the least and most of a type of fewer bits than the device computes with.
 * @typedef {{ dtype: DType, own?: boolean, bytes: number, array: NumberClass, range?: [least: number, most: number] }} TypeInfo
 */
/** @type {Record<Exclude<Type, 'string'>, TypeInfo>} */
export const TYPES = {
  float: { dtype: 'f32', own: true, bytes: 4, array: Float32Array },
  double: { dtype: 'f32', bytes: 8, array: Float64Array },
  float16: { dtype: 'f16', own: true, bytes: 2, array: Float32Array },
  bfloat16: { dtype: 'bf16', own: true, bytes: 2, array: Float32Array },
  bool: { dtype: 'bool', own: true, bytes: 1, array: Uint8Array },
  int8: { dtype: 'i8', own: true, bytes: 1, array: Int8Array, range: [-128, 127] },
  uint8: { dtype: 'u8', own: true, bytes: 1, array: Uint8Array, range: [0, 255] },
  int16: { dtype: 'i32', bytes: 2, array: Int16Array, range: [-(2 ** 15), 2 ** 15 - 1] },
  uint16: { dtype: 'i32', bytes: 2, array: Uint16Array, range: [0, 2 ** 16 - 1] },
  int32: { dtype: 'i32', own: true, bytes: 4, array: Int32Array },
  uint32: { dtype: 'u32', own: true, bytes: 4, array: Uint32Array },
  int64: { dtype: 'i64', own: true, bytes: 8, array: Float64Array },
  uint64: { dtype: 'i64', bytes: 8, array: Float64Array },
};

/** The type with a number in files. Throws an Error for one that is not read. @param {number} number @param {string} what has it @returns {Type} */
export function typeOf(number, what) {
  const type = NUMBERS[/** @type {keyof typeof NUMBERS} */ (number)];
  if (type === undefined) throw new Error(`${what} has the element type ${OTHERS[number] ?? number}, which is not supported`);
  return type;
}
/** How a type is computed. Throws an Error for strings, which are on the host only. @param {Type} type */
export function infoOf(type) {
  if (type === 'string') throw new Error('strings cannot be computed on the device');
  return TYPES[type];
}

/** Whether a type is a floating-point one. @param {Type} type */
export const isFloat = (type) => type === 'float' || type === 'double' || type === 'float16' || type === 'bfloat16';
/** @param {readonly number[]} shape */
export const sizeOf = (shape) => shape.reduce((a, b) => a * b, 1);

/** The values of many 16-bit floats. @param {Uint16Array} bits @param {(bits: number) => number} value of one */
function valuesOf(bits, value) {
  // A loop: `Float32Array.from` with a function takes fifty times the time, and models have 10^8 of them.
  const values = new Float32Array(bits.length);
  for (let i = 0; i < bits.length; i++) values[i] = value(bits[i]);
  return values;
}

/**
 * Elements as they are in files: little-endian bytes.
 * @param {Type} type no string @param {ArrayLike<number | bigint>} elements @returns {Uint8Array}
 */
export function bitsOf(type, elements) {
  const list = /** @type {ArrayLike<number>} */ (elements);
  const array =
    type === 'float16'
      ? Uint16Array.from(list, f16Bits)
      : type === 'bfloat16'
        ? Uint16Array.from(list, bf16Bits)
        : type === 'int64'
          ? BigInt64Array.from(elements, BigInt)
          : type === 'uint64'
            ? BigUint64Array.from(elements, BigInt)
            : infoOf(type).array.from(list);
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

/**
 * Integers of 64 bits as numbers where these are exact; else they stay bigints, which no arithmetic of the host takes.
 * @param {Elements} elements @returns {Elements}
 */
export function plain(elements) {
  if (!(elements instanceof BigInt64Array || elements instanceof BigUint64Array)) return elements;
  const numbers = Float64Array.from(elements, Number);
  return numbers.every(Number.isSafeInteger) ? numbers : elements;
}

/**
 * The elements in a tensor of a file.
 * @param {TensorMessage} message @param {string} what it is, for errors
 * @param {(message: TensorMessage, bytes: number) => Uint8Array} external reads the elements from another file
 * @returns {{ type: Type, shape: number[], elements: Elements }}
 */
export function tensorOf(message, what, external) {
  const type = typeOf(message.dataType, what);
  const shape = message.dims.map((size) => size.toNumber());
  if (shape.some((size) => !(size >= 0))) throw new Error(`${what} has the shape [${shape}]`);
  const size = sizeOf(shape);
  if (!Number.isSafeInteger(size)) throw new Error(`${what} has the shape [${shape}], which is too large`);
  const elements = type === 'string' ? message.stringData.map((each) => Buffer.from(each).toString('utf8')) : read(type);
  if (elements.length !== size) throw new Error(`${what} has ${elements.length} elements, and the shape [${shape}] needs ${size}`);
  return { type, shape, elements };

  /** @param {Exclude<Type, 'string'>} type */
  function read(type) {
    const { bytes, array } = TYPES[type];
    const raw = message.dataLocation === 1 ? external(message, size * bytes) : message.rawData;
    if (raw.length > 0) return fromBytes(type, raw, what);
    if (type === 'float') return Float32Array.from(message.floatData);
    if (type === 'double') return Float64Array.from(message.doubleData);
    if (type === 'int64') return plain(BigInt64Array.from(message.int64Data, (each) => each.toBigInt()));
    if (type === 'uint64') return plain(BigUint64Array.from(message.uint64Data, (each) => each.toBigInt()));
    if (type === 'uint32') return Uint32Array.from(message.uint64Data, (each) => each.toNumber());
    if (type === 'float16') return Float32Array.from(message.int32Data, f16Value);
    if (type === 'bfloat16') return Float32Array.from(message.int32Data, bf16Value);
    return array.from(message.int32Data);
  }
}

/** @param {Exclude<Type, 'string'>} type @param {Uint8Array} raw little-endian @param {string} what */
function fromBytes(type, raw, what) {
  const { bytes, array } = TYPES[type];
  if (raw.length % bytes !== 0) throw new Error(`${what} has ${raw.length} bytes, no multiple of ${bytes}`);
  // Typed arrays begin at multiples of their elements' size.
  const { buffer, byteOffset } = raw.byteOffset % bytes === 0 ? raw : new Uint8Array(raw);
  const count = raw.length / bytes;
  if (type === 'float16') return valuesOf(new Uint16Array(buffer, byteOffset, count), f16Value);
  if (type === 'bfloat16') return valuesOf(new Uint16Array(buffer, byteOffset, count), bf16Value);
  if (type === 'int64') return plain(new BigInt64Array(buffer, byteOffset, count));
  if (type === 'uint64') return plain(new BigUint64Array(buffer, byteOffset, count));
  return new array(buffer, byteOffset, count);
}

/**
 * Reads the elements of tensors that a model keeps in other files of its folder.
 * @param {string | undefined} folder
 * @returns {(message: TensorMessage, bytes: number) => Uint8Array}
 */
export function externalReader(folder) {
  return (message, bytes) => {
    const entries = Object.fromEntries(message.externalData.map(({ key, value }) => [key, value]));
    const location = normalize(entries.location ?? '');
    if (folder === undefined) throw new Error(`${message.name} is in another file, ${location}: load the model by its path`);
    // A model must not read files outside of its folder.
    if (isAbsolute(location) || location === '..' || location.startsWith(`..${sep}`)) {
      throw new Error(`${message.name} is in ${location}, outside of the model's folder`);
    }
    const [offset, length] = [Number(entries.offset ?? 0), Number(entries.length ?? bytes)];
    if (length !== bytes || !(Number.isSafeInteger(offset) && offset >= 0)) {
      throw new Error(`${message.name} takes ${entries.length} bytes from ${entries.offset} of ${location}, expected ${bytes}`);
    }
    const path = join(folder, location);
    // Opening a pipe would wait for who writes it.
    if (!statSync(path).isFile()) throw new Error(`${message.name} is in ${location}, which is no file`);
    const file = openSync(path, 'r');
    try {
      if (fstatSync(file).size < offset + bytes) throw new Error(`${location} has no ${bytes} bytes at ${offset} for ${message.name}`);
      const result = new Uint8Array(bytes);
      for (let at = 0; at < bytes; ) {
        const more = readSync(file, result, at, Math.min(bytes - at, 2 ** 30), offset + at);
        if (more === 0) throw new Error(`${location} became shorter while it was read`);
        at += more;
      }
      return result;
    } finally {
      closeSync(file);
    }
  };
}
