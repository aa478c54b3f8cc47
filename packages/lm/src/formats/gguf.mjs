// Files in GGUF, the format of llama.cpp: reads versions 2 and 3, writes version 3.
//
// Header (all little-endian): "GGUF", u32 version, u64 tensors, u64 keys; each key: name, u32 type, value; each tensor: name, u32 number of
// dimensions, u64 of each, columns first, u32 type, u64 offset. A string is a u64 length and UTF-8. Then the tensors' data, at multiples of
// the alignment (`general.alignment`, else 32). Specification: docs/gguf.md in the repository of ggml.

import { isUtf8 } from 'node:buffer';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { mkdir, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { notWritten, replaceFile, writeAll } from 'helios-vk/files';

/**
 * @typedef {'u8' | 'i8' | 'u16' | 'i16' | 'u32' | 'i32' | 'f32' | 'bool' | 'string' | 'u64' | 'i64' | 'f64'} Scalar
 * @typedef {number | bigint | boolean | string} ScalarValue 64-bit integers are numbers where these are exact, else bigints
 * @typedef {{ type: Scalar, value: ScalarValue } | { type: `${Scalar}[]`, value: ArrayLike<ScalarValue> }} Value of a key; arrays of numbers
 *   of at most 32 bits, and of f64, are typed arrays
 * @typedef {Map<string, Value>} Metadata
 *
 * @typedef {keyof typeof TYPES} TensorType
 * @typedef {{ name: string, type: TensorType, shape: number[] }} TensorDescription `shape`: outputs first, so the reverse of the file's order
 * @typedef {TensorDescription & { offset: number, bytes: number }} TensorInfo `offset`: from the file's first byte
 *
 * @typedef {object} Gguf
 * @property {string} path
 * @property {number} version
 * @property {Metadata} metadata
 * @property {TensorInfo[]} tensors in the file's order
 * @property {number} dataOffset where the tensors' data begins
 */

/** The types of tensors: id in the file, elements and bytes of a block. Elements that share a block are neighbours in a row. */
export const TYPES = /** @type {const} */ ({
  f32: { id: 0, elements: 1, bytes: 4 },
  f16: { id: 1, elements: 1, bytes: 2 },
  q4_0: { id: 2, elements: 32, bytes: 18 },
  q4_1: { id: 3, elements: 32, bytes: 20 },
  q5_0: { id: 6, elements: 32, bytes: 22 },
  q5_1: { id: 7, elements: 32, bytes: 24 },
  q8_0: { id: 8, elements: 32, bytes: 34 },
  q2_k: { id: 10, elements: 256, bytes: 84 },
  q3_k: { id: 11, elements: 256, bytes: 110 },
  q4_k: { id: 12, elements: 256, bytes: 144 },
  q5_k: { id: 13, elements: 256, bytes: 176 },
  q6_k: { id: 14, elements: 256, bytes: 210 },
  iq2_xxs: { id: 16, elements: 256, bytes: 66 },
  iq2_xs: { id: 17, elements: 256, bytes: 74 },
  iq3_xxs: { id: 18, elements: 256, bytes: 98 },
  iq1_s: { id: 19, elements: 256, bytes: 50 },
  iq4_nl: { id: 20, elements: 32, bytes: 18 },
  iq3_s: { id: 21, elements: 256, bytes: 110 },
  iq2_s: { id: 22, elements: 256, bytes: 82 },
  iq4_xs: { id: 23, elements: 256, bytes: 136 },
  iq1_m: { id: 29, elements: 256, bytes: 56 },
  bf16: { id: 30, elements: 1, bytes: 2 },
});
/** @type {Map<number, TensorType>} */
const TYPE_NAMES = new Map(Object.entries(TYPES).map(([name, { id }]) => [id, /** @type {TensorType} */ (name)]));

/** The types of values, in the order of their ids; 9 is an array. */
const VALUES = /** @type {const} */ (['u8', 'i8', 'u16', 'i16', 'u32', 'i32', 'f32', 'bool', 'string', 'array', 'u64', 'i64', 'f64']);
const WIDTHS = { u8: 1, i8: 1, u16: 2, i16: 2, u32: 4, i32: 4, f32: 4, bool: 1, u64: 8, i64: 8, f64: 8 };
const ARRAYS = {
  ...{ u8: Uint8Array, i8: Int8Array, u16: Uint16Array, i16: Int16Array, u32: Uint32Array, i32: Int32Array },
  ...{ f32: Float32Array, f64: Float64Array },
};

/** Limits far above any model's, so that a damaged length is an error before memory is allocated for it. */
const MAX_ENTRIES = 2 ** 16;
const MAX_ELEMENTS = 2 ** 24;
const MAX_STRING = 2 ** 24;
const MAX_NAME = 2 ** 16 - 1;
const MAX_ALIGNMENT = 2 ** 16;
const ALIGNMENT = 32;
/** Dimensions of a tensor, and bytes of its name with a zero at the end, in llama.cpp. */
const MAX_DIMENSIONS = 4;
const MAX_TENSOR_NAME = 63;

/** The most bytes that one call reads. */
const CHUNK = 2 ** 24;

/** Whether a path names a file in this format, by its ending. @param {unknown} path @returns {path is string} */
export const isGguf = (path) => typeof path === 'string' && /\.gguf$/i.test(path);

const padded = (/** @type {number} */ bytes, alignment = ALIGNMENT) => Math.ceil(bytes / alignment) * alignment;

/** Bytes of a tensor. @param {Pick<TensorDescription, 'type' | 'shape'>} tensor */
export const bytesOf = ({ type, shape }) => (shape.reduce((a, b) => a * b, 1) / TYPES[type].elements) * TYPES[type].bytes;

/** Reads the header from front to back. Never allocates more than the file has bytes. */
class Reader {
  #file;
  #window = Buffer.alloc(0);
  #used = 0;
  at = 0;

  /** @param {number} file descriptor @param {number} size of the file @param {string} path */
  constructor(file, size, path) {
    this.#file = file;
    this.size = size;
    this.path = path;
    this.what = 'the header';
  }

  /** The error about what is being read. @param {string} problem */
  bad(problem) {
    return new Error(`${this.path}: ${this.what} ${problem}`);
  }

  /** The next bytes, valid until the next call. @param {number} bytes @returns {Buffer} */
  take(bytes) {
    const left = this.size - this.at;
    if (bytes > left) throw this.bad(`needs ${bytes} bytes at ${this.at}, and the file has ${left} more: it is truncated or damaged`);
    if (this.#window.length - this.#used < bytes) {
      const window = Buffer.allocUnsafe(Math.min(left, Math.max(bytes, 2 ** 18)));
      for (let read = 0; read < window.length; ) {
        const more = readSync(this.#file, window, read, window.length - read, this.at + read);
        if (more === 0) throw this.bad('could not be read: the file became shorter');
        read += more;
      }
      this.#window = window;
      this.#used = 0;
    }
    this.at += bytes;
    this.#used += bytes;
    return this.#window.subarray(this.#used - bytes, this.#used);
  }

  u32() {
    return this.take(4).readUInt32LE();
  }

  /** A u64 that is at most a limit. @param {string} name @param {number} most */
  count(name, most) {
    const bytes = this.take(8);
    // Exact up to the limits, and without a bigint for each string.
    const value = bytes.readUInt32LE(4) * 2 ** 32 + bytes.readUInt32LE(0);
    if (value > most) throw this.bad(`has ${name} ${bytes.readBigUInt64LE()}, expected at most ${most}`);
    return value;
  }

  /** @param {string} name what the string is @param {number} [most] bytes */
  string(name, most = MAX_STRING) {
    const bytes = this.take(this.count(`a length of ${name}:`, most));
    if (!isUtf8(bytes)) throw this.bad(`has ${name} that is not UTF-8`);
    return bytes.toString('utf8');
  }

  /** @param {Scalar} type @returns {ScalarValue} */
  scalar(type) {
    if (type === 'string') return this.string('a text');
    const bytes = this.take(WIDTHS[type]);
    if (type === 'u64' || type === 'i64') {
      const value = type === 'u64' ? bytes.readBigUInt64LE() : bytes.readBigInt64LE();
      return Number.isSafeInteger(Number(value)) ? Number(value) : value;
    }
    if (type !== 'bool') return new ARRAYS[type](Uint8Array.from(bytes).buffer)[0];
    if (bytes[0] > 1) throw this.bad(`has a truth value of ${bytes[0]}, expected 0 or 1`);
    return bytes[0] === 1;
  }

  /** @returns {(typeof VALUES)[number]} */
  type() {
    const id = this.u32();
    if (id >= VALUES.length) throw this.bad(`has a value of type ${id}; known: 0 to ${VALUES.length - 1}`);
    return VALUES[id];
  }

  /** @returns {Value} */
  value() {
    const type = this.type();
    if (type !== 'array') return { type, value: this.scalar(type) };
    const of = this.type();
    if (of === 'array') throw this.bad('is an array of arrays, which no known key is');
    const length = this.count('a number of elements of', MAX_ELEMENTS);
    // A string has a length of 8 bytes at least.
    const least = length * (of === 'string' ? 8 : WIDTHS[of]);
    if (least > this.size - this.at) {
      throw this.bad(`has ${length} elements of type ${of}, at least ${least} bytes; the file has ${this.size - this.at} more`);
    }
    if (!(of in ARRAYS)) return { type: `${of}[]`, value: Array.from({ length }, () => this.scalar(of)) };
    const bytes = Uint8Array.from(this.take(least));
    return { type: `${of}[]`, value: new ARRAYS[/** @type {keyof typeof ARRAYS} */ (of)](bytes.buffer) };
  }
}

/**
 * Reads the header of a file, and checks every length, count, type and offset of it; the tensors' data is not read.
 * @param {string} path
 * @returns {Gguf}
 * @throws {Error} that names the file and the key or tensor, what is there and what was expected
 */
export function readGguf(path) {
  const file = openSync(path, 'r');
  try {
    const reader = new Reader(file, fstatSync(file).size, path);
    if (reader.take(4).toString('latin1') !== 'GGUF') throw new Error(`${path} is not a GGUF file: it does not begin with "GGUF"`);
    const version = reader.u32();
    if (version !== 2 && version !== 3) {
      const why = version > 2 ** 24 ? ': it is big-endian' : '';
      throw new Error(`${path}: the version of GGUF is ${version}${why}; known: 2, 3`);
    }
    const tensorCount = reader.count('a number of tensors of', MAX_ENTRIES);
    const keyCount = reader.count('a number of keys of', MAX_ENTRIES);
    /** @type {Metadata} */
    const metadata = new Map();
    for (let i = 0; i < keyCount; i++) {
      reader.what = `key ${i + 1} of ${keyCount}`;
      const key = reader.string('a name', MAX_NAME);
      reader.what = `the key ${JSON.stringify(key)}`;
      if (metadata.has(key)) throw reader.bad('is there twice');
      metadata.set(key, reader.value());
    }
    const alignment = metadata.get('general.alignment')?.value ?? ALIGNMENT;
    if (typeof alignment !== 'number' || !(alignment >= 1 && alignment <= MAX_ALIGNMENT && Number.isInteger(Math.log2(alignment)))) {
      throw new Error(`${path}: the key "general.alignment" is ${alignment}, expected a power of 2 of at most ${MAX_ALIGNMENT}`);
    }
    /** @type {TensorInfo[]} */
    const tensors = [];
    for (let i = 0; i < tensorCount; i++) {
      reader.what = `tensor ${i + 1} of ${tensorCount}`;
      tensors.push(readTensorInfo(reader, alignment));
    }
    const dataOffset = padded(reader.at, alignment);
    for (const tensor of tensors) tensor.offset += dataOffset;
    checkTensors(tensors, reader.size, path);
    return { path, version, metadata, tensors, dataOffset };
  } finally {
    closeSync(file);
  }
}

/** @param {Reader} reader @param {number} alignment @returns {TensorInfo} `offset` is from the beginning of the data */
function readTensorInfo(reader, alignment) {
  const name = reader.string('a name', MAX_NAME);
  reader.what = `tensor ${name}`;
  const dimensions = reader.u32();
  if (dimensions < 1 || dimensions > MAX_DIMENSIONS) {
    throw reader.bad(`has ${dimensions} dimensions, expected 1 to ${MAX_DIMENSIONS}`);
  }
  const shape = Array.from({ length: dimensions }, () => reader.count('a dimension of', Number.MAX_SAFE_INTEGER)).reverse();
  const id = reader.u32();
  const type = TYPE_NAMES.get(id);
  if (!type) {
    const known = Object.entries(TYPES).map(([each, { id }]) => `${id} ${each}`);
    throw reader.bad(`is of type ${id}; known: ${known.join(', ')}`);
  }
  const columns = shape[shape.length - 1];
  const bytes = bytesOf({ type, shape });
  if (!(Math.min(...shape) >= 1) || !Number.isSafeInteger(bytes)) throw reader.bad(`has the shape [${shape.join(', ')}]`);
  if (columns % TYPES[type].elements) {
    throw reader.bad(`has rows of ${columns} elements of type ${type}, expected a multiple of ${TYPES[type].elements}`);
  }
  const offset = reader.count('an offset of', Number.MAX_SAFE_INTEGER);
  if (offset % alignment) throw reader.bad(`has the offset ${offset}, expected a multiple of the alignment, ${alignment}`);
  return { name, type, shape, offset, bytes };
}

/**
 * Checks that all tensors lie in the file, have names of their own and do not overlap.
 * @param {TensorInfo[]} tensors @param {number} size @param {string} path
 */
function checkTensors(tensors, size, path) {
  const byOffset = [...tensors].sort((a, b) => a.offset - b.offset);
  const names = new Set();
  byOffset.forEach(({ name, offset, bytes }, i) => {
    if (names.size === names.add(name).size) throw new Error(`${path}: tensor ${name} is there twice`);
    if (offset + bytes > size) {
      throw new Error(`${path}: tensor ${name} has ${bytes} bytes at ${offset}, and the file ends at ${size}: it is truncated or damaged`);
    }
    const next = byOffset[i + 1];
    if (next && offset + bytes > next.offset) {
      throw new Error(`${path}: tensor ${name} has ${bytes} bytes at ${offset} and overlaps tensor ${next.name} at ${next.offset}`);
    }
  });
}

/**
 * Reads the bytes of a tensor, or some of them.
 * @param {Gguf} gguf @param {TensorInfo} tensor one of its tensors @param {number} [from] first byte @param {number} [bytes] all that follow
 *   when left out
 * @param {Uint8Array<ArrayBuffer>} [out] where to, new memory when left out
 * @returns {Promise<Uint8Array<ArrayBuffer>>} `out`
 */
export async function readTensor({ path }, { name, offset, bytes: all }, from = 0, bytes = all - from, out = new Uint8Array(bytes)) {
  if (!(from >= 0 && bytes >= 0 && from + bytes <= all)) throw new RangeError(`${path}: ${name} has ${all} bytes, not ${from} + ${bytes}`);
  const file = await open(path, 'r');
  try {
    for (let at = 0; at < bytes; ) {
      const { bytesRead } = await file.read(out, at, Math.min(CHUNK, bytes - at), offset + from + at);
      if (bytesRead === 0) throw new Error(`${path}: tensor ${name} could not be read: the file became shorter`);
      at += bytesRead;
    }
  } finally {
    await file.close();
  }
  return out;
}

/** @param {Scalar} type @param {ScalarValue} value @returns {Buffer} */
function encodeScalar(type, value) {
  if (type === 'string') {
    const text = Buffer.from(String(value));
    return Buffer.concat([encodeScalar('u64', text.length), text]);
  }
  const bytes = Buffer.alloc(WIDTHS[type]);
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const number = Number(value);
  if (type === 'u64' || type === 'i64') bytes.writeBigUInt64LE(BigInt.asUintN(64, BigInt(/** @type {number} */ (value))));
  else if (type === 'f32') view.setFloat32(0, number, true);
  else if (type === 'f64') view.setFloat64(0, number, true);
  else bytes.writeUIntLE(number < 0 ? number + 256 ** bytes.length : number, 0, bytes.length);
  return bytes;
}

const encodeU32 = (/** @type {number} */ value) => encodeScalar('u32', value);
const encodeU64 = (/** @type {number} */ value) => encodeScalar('u64', value);

/** @param {Value} value */
function encodeValue({ type, value }) {
  if (!type.endsWith('[]')) {
    const scalar = /** @type {Scalar} */ (type);
    return Buffer.concat([encodeU32(VALUES.indexOf(scalar)), encodeScalar(scalar, /** @type {ScalarValue} */ (value))]);
  }
  const of = /** @type {Scalar} */ (type.slice(0, -2));
  const list = Array.from(/** @type {ArrayLike<ScalarValue>} */ (value), (each) => encodeScalar(of, each));
  return Buffer.concat([encodeU32(VALUES.indexOf('array')), encodeU32(VALUES.indexOf(of)), encodeU64(list.length), ...list]);
}

/**
 * Writes a file of version 3, and makes its folder if needed. The file appears once it is complete, or not at all; one that is there is
 * replaced.
 * @param {string} path @param {Metadata} metadata
 * @param {(TensorDescription & { pieces(): AsyncIterable<Uint8Array> | Iterable<Uint8Array> })[]} tensors `pieces`: the bytes of the tensor, in
 *   order; called once per tensor, so that they need not be in memory at the same time
 * @throws {RangeError} for a tensor whose name or bytes do not fit; an error that names the path if the file cannot be written
 */
export async function writeGguf(path, metadata, tensors) {
  /** @type {Buffer[]} */
  const header = [Buffer.from('GGUF'), encodeU32(3), encodeU64(tensors.length), encodeU64(metadata.size)];
  for (const [key, value] of metadata) header.push(encodeScalar('string', key), encodeValue(value));
  let offset = 0;
  for (const { name, type, shape } of tensors) {
    if (Buffer.byteLength(name) > MAX_TENSOR_NAME)
      throw new RangeError(`${name}: the name of a tensor has at most ${MAX_TENSOR_NAME} bytes`);
    header.push(encodeScalar('string', name), encodeU32(shape.length), ...shape.toReversed().map(encodeU64));
    header.push(encodeU32(TYPES[type].id), encodeU64(offset));
    offset += padded(bytesOf({ type, shape }));
  }
  const bytes = Buffer.concat(header);
  try {
    await mkdir(dirname(path), { recursive: true });
    await replaceFile(path, async (file) => {
      const pad = (/** @type {number} */ length) => writeAll(file, new Uint8Array(padded(length) - length));
      await writeAll(file, bytes);
      await pad(bytes.length);
      for (const tensor of tensors) {
        let written = 0;
        for await (const piece of tensor.pieces()) {
          await writeAll(file, piece);
          written += piece.length;
        }
        const expected = bytesOf(tensor);
        if (written !== expected) throw new RangeError(`${tensor.name} needs ${expected} bytes, got ${written}`);
        await pad(written);
      }
    });
  } catch (cause) {
    throw notWritten(path, cause);
  }
}
