// State to files and back: `save` and `load`, in the safetensors format.

import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { ArgumentError } from './errors.mjs';
import { decode, encode } from './host.mjs';
import { BYTES, checkShape, sizeOf } from './layout.mjs';
import { checkOptions } from './options.mjs';
import { Tensor, tensor } from './tensor.mjs';

/** @typedef {import('./layout.mjs').DType} DType */

/** The format's names of types. @type {Record<DType, string>} */
const NAMES = { f32: 'F32', f16: 'F16', bf16: 'BF16', i32: 'I32', u32: 'U32', bool: 'BOOL' };
const TYPES = new Map(Object.entries(NAMES).map(([type, name]) => [name, /** @type {DType} */ (type)]));
/** Bytes of an element in a file: a bool has one there. @param {DType} dtype */
const fileBytes = (dtype) => (dtype === 'bool' ? 1 : BYTES[dtype]);
/** Calls of `save` so far. */
let saves = 0;
/** A header is at most this large in the format. */
const MAX_HEADER = 100_000_000;

/**
 * Options of `save`.
 * @typedef {object} SaveOptions
 * @property {Record<string, string>} [metadata] texts by name, for the file's `__metadata__`; none when left out
 */

/**
 * Writes tensors to a safetensors file. What was at the path stays until the new file is complete on the disk.
 * @param {string} path @param {Record<string, Tensor>} tensors such as `model.stateDict()`
 * @param {SaveOptions} [options]
 */
export async function save(path, tensors, options = {}) {
  const { metadata = {} } = checkOptions('save', options, ['metadata']);
  /** @type {Record<string, unknown>} */
  const header = Object.keys(metadata).length > 0 ? { __metadata__: metadata } : {};
  let end = 0;
  // One snapshot: all reads are in the device's order before anything that is called later.
  const reads = Object.entries(tensors).map(([name, x]) => {
    if (!(x instanceof Tensor)) throw new ArgumentError('save', `${name} is not a tensor`);
    if (x.storage === undefined) throw new ArgumentError('save', `${name} was disposed of`);
    if (name === '__metadata__') throw new ArgumentError('save', 'the format has __metadata__ for texts: name the tensor otherwise');
    const bytes = x.size * fileBytes(x.dtype);
    header[name] = { dtype: NAMES[x.dtype], shape: x.shape, data_offsets: [end, (end += bytes)] };
    return { dtype: x.dtype, bytes, values: x.toArray() };
  });
  const text = Buffer.from(JSON.stringify(header));
  const padded = Buffer.alloc(Math.ceil(text.length / 8) * 8, ' ');
  text.copy(padded);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.length));
  // Each call has a file of its own: others may be writing to the same path.
  const temporary = `${path}.${process.pid}.${++saves}.tmp`;
  try {
    const arrays = await Promise.all(reads.map(({ values }) => values));
    await mkdir(dirname(path), { recursive: true });
    const file = await open(temporary, 'w');
    try {
      await file.write(length);
      await file.write(padded);
      for (const [i, { dtype, bytes }] of reads.entries()) {
        const words = dtype === 'bool' ? /** @type {Uint8Array} */ (arrays[i]) : encode('save', arrays[i], dtype);
        await file.writeFile(new Uint8Array(words.buffer, words.byteOffset, bytes));
      }
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await Promise.allSettled(reads.map(({ values }) => values));
    await rm(temporary, { force: true });
    throw error;
  }
}

/**
 * Reads the tensors of a safetensors file. Throws an ArgumentError for a file that is none: also where bytes of its data belong to
 * no tensor or to two.
 * @param {string} path
 * @returns {Promise<Record<string, Tensor>>} by name; for `model.loadStateDict`
 */
export async function load(path) {
  const bytes = await readFile(path);
  const bad = (/** @type {string} */ what) => new ArgumentError('load', `${path} is not a safetensors file: ${what}`);
  if (bytes.length < 8) throw bad(`${bytes.length} bytes`);
  const length = Number(bytes.readBigUInt64LE(0));
  if (length > MAX_HEADER || 8 + length > bytes.length) throw bad(`a header of ${length} bytes in a file of ${bytes.length}`);
  /** @type {Record<string, any>} */
  let header;
  try {
    header = JSON.parse(bytes.toString('utf8', 8, 8 + length));
  } catch {
    throw bad('its header is not JSON');
  }
  if (typeof header !== 'object' || header === null || Array.isArray(header)) throw bad('its header is not an object');
  const entries = Object.entries(header)
    .filter(([name]) => name !== '__metadata__')
    .map(([name, entry]) => {
      const dtype = TYPES.get(entry?.dtype);
      if (!dtype)
        throw new ArgumentError('load', `${name} has the type ${String(entry?.dtype)}; there are ${[...TYPES.keys()].join(', ')}`);
      const shape = checkShape('load', entry.shape);
      const [start, end] = Array.isArray(entry.data_offsets) ? entry.data_offsets : [];
      const whole = Number.isSafeInteger(start) && Number.isSafeInteger(end) && start >= 0 && 8 + length + end <= bytes.length;
      if (!whole || end - start !== sizeOf(shape) * fileBytes(dtype)) throw bad(`${name} [${shape}] lies at ${start} to ${end}`);
      return { name, dtype, shape, start, end, data: bytes.subarray(8 + length + start, 8 + length + end) };
    });
  // Every byte of the data belongs to one tensor.
  let covered = 0;
  let before = '';
  for (const { name, start, end } of entries.toSorted((a, b) => a.start - b.start)) {
    if (start < covered) throw bad(`${name}, which begins at ${start}, overlaps ${before}, which ends at ${covered}`);
    if (start > covered) throw bad(`${start - covered} bytes before ${name} belong to no tensor`);
    covered = end;
    before = name;
  }
  const rest = bytes.length - 8 - length - covered;
  if (rest > 0) throw bad(`${rest} bytes behind the last tensor belong to no tensor`);
  // All is checked: now the memory.
  return Object.fromEntries(entries.map(({ name, dtype, shape, data }) => [name, tensor(values(data, dtype), { dtype, shape })]));
}

/** @param {Uint8Array} data @param {DType} dtype @returns {any} numbers, exactly those of the file */
function values(data, dtype) {
  // The data of a file begins anywhere; arrays begin at whole elements.
  const { buffer } = new Uint8Array(data);
  if (dtype === 'bool') return new Uint8Array(buffer);
  if (dtype === 'i32') return new Int32Array(buffer);
  if (dtype === 'u32') return new Uint32Array(buffer);
  if (dtype === 'f32') return new Float32Array(buffer);
  return decode(new Uint8Array(buffer), dtype, data.length / 2);
}
