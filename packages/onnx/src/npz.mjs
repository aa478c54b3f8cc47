// NumPy's files of arrays: .npz is a ZIP archive of .npy files (numpy.lib.format; APPNOTE.TXT of PKWARE, stored and deflated entries).

import { crc32, deflateRawSync, inflateRawSync } from 'node:zlib';
import { f16Bits, f16Value } from 'helios-vk/kernels';

import { sizeOf } from './types.mjs';

/**
 * An array on the host. `type` is ONNX's name; elements of 64-bit integers are bigints, those of float16 lie in a Float32Array.
 * @typedef {object} HostArray
 * @property {ArrayType} type
 * @property {readonly number[]} shape
 * @property {Floats | Integers | BigInt64Array | BigUint64Array} elements
 */
/** @typedef {Float32Array | Float64Array} Floats */
/** @typedef {Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array} Integers */
/** @typedef {Exclude<import('./types.mjs').Type, 'string' | 'bfloat16'>} ArrayType */

/**
 * A class of arrays.
 * @typedef {{
 *   new (count: number): HostArray['elements'], new (buffer: ArrayBufferLike, at?: number, count?: number): HostArray['elements'],
 *   from<T>(list: ArrayLike<T>, map: (each: T, i: number) => number | bigint): HostArray['elements']
 * }} ArrayClass
 */

/**
 * NumPy's types without their byte order, bytes of an element, and the arrays that hold them.
 * @type {Record<ArrayType, [descr: string, bytes: number, array: ArrayClass]>}
 */
const TYPES = {
  bool: ['b1', 1, Uint8Array],
  int8: ['i1', 1, Int8Array],
  uint8: ['u1', 1, Uint8Array],
  int16: ['i2', 2, Int16Array],
  uint16: ['u2', 2, Uint16Array],
  int32: ['i4', 4, Int32Array],
  uint32: ['u4', 4, Uint32Array],
  int64: ['i8', 8, BigInt64Array],
  uint64: ['u8', 8, BigUint64Array],
  float16: ['f2', 2, Uint16Array],
  float: ['f4', 4, Float32Array],
  double: ['f8', 8, Float64Array],
};
/** The array class that holds elements of a type in a HostArray. @param {ArrayType} type @returns {ArrayClass} */
export const arrayOf = (type) => (type === 'float16' ? Float32Array : TYPES[type][2]);

const MAGIC = '\x93NUMPY';
/** What a header may be: NumPy writes it as a Python dict with these keys. */
const HEADER = /^\{\s*'descr':\s*'([^']*)',\s*'fortran_order':\s*(True|False),\s*'shape':\s*\(([\d\s,]*)\),?\s*\}\s*$/;

/**
 * Reads an .npy file.
 * @param {Uint8Array} bytes @param {string} what it is, for errors
 * @returns {HostArray}
 * @throws {Error} if it is damaged, or its elements are of another type than numbers and booleans
 */
export function readNpy(bytes, what) {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  if (file.length < 12 || file.toString('latin1', 0, 6) !== MAGIC) throw new Error(`${what} is no .npy file`);
  const begin = file[6] === 1 ? 10 : 12;
  const end = begin + (file[6] === 1 ? file.readUInt16LE(8) : file.readUInt32LE(8));
  const found = HEADER.exec(file.toString('utf8', begin, end));
  if (end > file.length || !found) throw new Error(`${what} has a header that is damaged, or of a structured type`);
  const [, descr, fortran, sizes] = found;
  const type = /** @type {ArrayType[]} */ (Object.keys(TYPES)).find((name) => TYPES[name][0] === descr.slice(1));
  if (type === undefined || !'<|='.includes(descr[0])) throw new Error(`${what} has elements of NumPy's type ${descr}, which is not read`);
  const shape = sizes.split(',').flatMap((size) => (size.trim() === '' ? [] : [Number(size)]));
  const [, size, array] = TYPES[type];
  const count = sizeOf(shape);
  const data = file.subarray(end);
  if (data.length !== count * size)
    throw new Error(`${what} has ${data.length} bytes of elements, and the shape [${shape}] needs ${count * size}`);
  // A copy, whose beginning is a multiple of an element's size.
  const own = new array(new Uint8Array(data).buffer, 0, count);
  const elements = type === 'float16' ? Float32Array.from(/** @type {Uint16Array} */ (own), f16Value) : own;
  return { type, shape, elements: fortran === 'True' ? rowMajor(elements, shape) : elements };
}

/** Elements whose first dimension is the fastest, with the last one fastest. @param {HostArray['elements']} elements @param {number[]} shape */
function rowMajor(elements, shape) {
  const result = new /** @type {ArrayClass} */ (elements.constructor)(elements.length);
  /** @type {import('./types.mjs').Writable[]} */
  const [source, target] = [elements, result];
  const index = shape.map(() => 0);
  for (let to = 0; to < result.length; to++) {
    target[to] = source[index.reduceRight((at, each, d) => at * shape[d] + each, 0)];
    for (let d = shape.length - 1; d >= 0 && ++index[d] === shape[d]; d--) index[d] = 0;
  }
  return result;
}

/** Writes an .npy file, of format 1.0. @param {HostArray} array @returns {Uint8Array} */
export function writeNpy({ type, shape, elements }) {
  const [descr, size] = TYPES[type];
  const dict = `{'descr': '${size === 1 ? '|' : '<'}${descr}', 'fortran_order': False, 'shape': (${shape.map((each) => `${each},`).join(' ')}), }`;
  // Elements begin at a multiple of 64 bytes.
  const header = `${dict}${' '.repeat(63 - ((10 + dict.length) % 64))}\n`;
  const start = Buffer.alloc(10);
  start.write(`${MAGIC}\x01\x00`, 'latin1');
  start.writeUInt16LE(header.length, 8);
  const own = type === 'float16' ? Uint16Array.from(/** @type {Float32Array} */ (elements), f16Bits) : elements;
  return Buffer.concat([start, Buffer.from(header, 'latin1'), new Uint8Array(own.buffer, own.byteOffset, own.byteLength)]);
}

const [LOCAL, CENTRAL, END] = [0x04034b50, 0x02014b50, 0x06054b50];

/**
 * Reads the arrays of an .npz file.
 * @param {Uint8Array} bytes @param {string} what it is, for errors
 * @returns {Record<string, HostArray>} by name
 * @throws {Error} if it is damaged, encrypted, or of more than 4 GiB
 */
export function readNpz(bytes, what) {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  /** @type {[string, HostArray][]} */
  const arrays = [];
  try {
    // The end record may be followed by a comment of up to 65,535 bytes.
    let end = file.length - 22;
    while (end >= 0 && file.length - end < 65_558 && file.readUInt32LE(end) !== END) end--;
    if (end < 0 || file.readUInt32LE(end) !== END) throw new Error('it is no ZIP archive');
    const count = file.readUInt16LE(end + 10);
    for (let i = 0, at = file.readUInt32LE(end + 16); i < count; i++) {
      if (file.readUInt32LE(at) !== CENTRAL) throw new Error('its directory is damaged');
      const [flags, method] = [file.readUInt16LE(at + 8), file.readUInt16LE(at + 10)];
      const [crc, packed, size] = [16, 20, 24].map((field) => file.readUInt32LE(at + field));
      const [nameLength, extra, comment] = [28, 30, 32].map((field) => file.readUInt16LE(at + field));
      const local = file.readUInt32LE(at + 42);
      const name = file.toString('utf8', at + 46, at + 46 + nameLength);
      if (packed === 0xffffffff || size === 0xffffffff || local === 0xffffffff) throw new Error(`${name} has more than 4 GiB`);
      if (flags & 1 || (method !== 0 && method !== 8))
        throw new Error(`${name} is encrypted, or compressed by another method than deflate`);
      if (file.readUInt32LE(local) !== LOCAL) throw new Error(`${name} is not where the directory says`);
      const from = local + 30 + file.readUInt16LE(local + 26) + file.readUInt16LE(local + 28);
      if (from + packed > file.length) throw new Error(`${name} goes beyond the end`);
      const raw = file.subarray(from, from + packed);
      // The directory says how much there is, and no more is unpacked.
      const entry = method === 8 ? inflateRawSync(raw, { maxOutputLength: Math.max(size, 1) }) : raw;
      if (entry.length !== size || crc32(entry) !== crc) throw new Error(`${name} is damaged`);
      if (name.endsWith('.npy')) arrays.push([name.slice(0, -4), readNpy(entry, name)]);
      at += 46 + nameLength + extra + comment;
    }
  } catch (error) {
    throw new Error(`${what} cannot be read: ${/** @type {Error} */ (error).message}`, { cause: error });
  }
  return Object.fromEntries(arrays);
}

/**
 * Writes an .npz file.
 * @param {Record<string, HostArray>} arrays by name @param {{ compress?: boolean }} [options] `compress`: deflate, as `numpy.savez_compressed`
 * @returns {Uint8Array}
 * @throws {RangeError} for more than 4 GiB
 */
export function writeNpz(arrays, { compress = false } = {}) {
  /** @type {Uint8Array[]} */
  const parts = [];
  /** @type {Uint8Array[]} */
  const directory = [];
  let offset = 0;
  for (const [key, array] of Object.entries(arrays)) {
    const [name, entry] = [Buffer.from(`${key}.npy`), writeNpy(array)];
    const data = compress ? deflateRawSync(entry) : entry;
    if (offset + data.length >= 2 ** 32) throw new RangeError('an .npz file of more than 4 GiB is not written');
    // Version 2.0, names in UTF-8, the first day that the format has.
    const shared = Buffer.alloc(26);
    [20, 0x800, compress ? 8 : 0, 0, 0x21].forEach((value, i) => shared.writeUInt16LE(value, 2 * i));
    [crc32(entry), data.length, entry.length].forEach((value, i) => shared.writeUInt32LE(value, 10 + 4 * i));
    shared.writeUInt16LE(name.length, 22);
    const [local, central] = [Buffer.alloc(30), Buffer.alloc(46)];
    local.writeUInt32LE(LOCAL, 0);
    shared.copy(local, 4);
    central.writeUInt32LE(CENTRAL, 0);
    central.writeUInt16LE(20, 4);
    shared.copy(central, 6);
    central.writeUInt32LE(offset, 42);
    parts.push(local, name, data);
    directory.push(central, name);
    offset += local.length + name.length + data.length;
  }
  const [end, central] = [Buffer.alloc(22), Buffer.concat(directory)];
  const count = Object.keys(arrays).length;
  end.writeUInt32LE(END, 0);
  end.writeUInt16LE(count, 8);
  end.writeUInt16LE(count, 10);
  end.writeUInt32LE(central.length, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...parts, central, end]);
}
