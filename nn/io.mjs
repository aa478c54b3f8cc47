// State to files and back: `save` and `load`, in the safetensors format.

import { randomBytes } from 'node:crypto';
import { mkdir, open, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { ArgumentError, shown } from './errors.mjs';
import { decode, encode } from './host.mjs';
import { BYTES, sizeOf } from './layout.mjs';
import { checkOptions } from './options.mjs';
import { Tensor, tensor } from './tensor.mjs';

/** @typedef {import('./layout.mjs').DType} DType */

/** The format's names of types. @type {Record<DType, string>} */
const NAMES = { f32: 'F32', f16: 'F16', bf16: 'BF16', i32: 'I32', u32: 'U32', bool: 'BOOL' };
const TYPES = new Map(Object.entries(NAMES).map(([type, name]) => [name, /** @type {DType} */ (type)]));
/** Bytes of an element in a file: a bool has one there. @param {DType} dtype */
const fileBytes = (dtype) => (dtype === 'bool' ? 1 : BYTES[dtype]);
/** A header is at most this large in the format. */
const MAX_HEADER = 100_000_000;
/** One read takes at most this much; the system's own limit is just under 2 GiB. */
const MAX_READ = 2 ** 28;

/**
 * Options of `save`.
 * @typedef {object} SaveOptions
 * @property {Record<string, string>} [metadata] texts by name, for the file's `__metadata__`; none when left out
 */

/**
 * Writes tensors to a safetensors file. What was at the path stays until the new file is complete on the disk. Throws an error that names
 * the path where it cannot be written; nothing is left of it then.
 * @param {string} path @param {Record<string, Tensor>} tensors such as `model.stateDict()`
 * @param {SaveOptions} [options]
 */
export async function save(path, tensors, options = {}) {
  if (typeof path !== 'string' || path === '') throw new ArgumentError('save', `expected a path, got ${shown(path)}`);
  if (typeof tensors !== 'object' || tensors === null) throw new ArgumentError('save', `expected tensors by name, got ${shown(tensors)}`);
  const { metadata = {} } = checkOptions('save', options, ['metadata']);
  if (metadata === null) throw new ArgumentError('save', 'metadata has texts by name, got null');
  for (const [key, text] of Object.entries(metadata)) {
    if (typeof text !== 'string') throw new ArgumentError('save', `metadata has texts, got ${shown(text)} for ${key}`);
  }
  /** Without a prototype: a tensor may have any name. @type {Record<string, unknown>} */
  const header = Object.create(null);
  if (Object.keys(metadata).length > 0) header.__metadata__ = metadata;
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
  // A name that no other call has, in another thread or on another host either.
  const temporary = `${path}.${randomBytes(8).toString('hex')}.tmp`;
  /** @type {import('node:fs/promises').FileHandle | undefined} */
  let file;
  try {
    const arrays = await Promise.all(reads.map(({ values }) => values));
    await mkdir(dirname(path), { recursive: true });
    // To rename a file to a device or a pipe would remove that.
    const there = await stat(path).catch(() => undefined);
    if (there && !there.isFile()) throw new ArgumentError('save', `${path} could not be written: it is not a file`);
    file = await open(temporary, 'wx');
    // `write` may take a part of what it is given; `writeFile` continues, from where the file is at.
    await file.writeFile(length);
    await file.writeFile(padded);
    for (const [i, { dtype, bytes }] of reads.entries()) {
      const words = dtype === 'bool' ? /** @type {Uint8Array} */ (arrays[i]) : encode('save', arrays[i], dtype);
      await file.writeFile(new Uint8Array(words.buffer, words.byteOffset, bytes));
    }
    await file.sync();
    await file.close();
    await rename(temporary, path);
  } catch (cause) {
    await Promise.allSettled(reads.map(({ values }) => values));
    await file?.close().catch(() => {});
    if (file) await rm(temporary, { force: true }).catch(() => {});
    const { code, message, syscall } = /** @type {NodeJS.ErrnoException} */ (cause);
    if (syscall === undefined) throw cause;
    throw Object.assign(new Error(`save: ${path} could not be written: ${message}`, { cause }), { code });
  }
}

/**
 * Reads the tensors of a safetensors file. Throws an ArgumentError for a file that is none: also where bytes of its data belong to
 * no tensor or to two.
 * @param {string} path
 * @returns {Promise<Record<string, Tensor>>} by name; for `model.loadStateDict`
 */
export async function load(path) {
  const bad = (/** @type {string} */ what) => new ArgumentError('load', `${path} is not a safetensors file: ${what}`);
  /** @type {unknown} */
  const given = path;
  if (typeof given !== 'string' && !(given instanceof URL) && !Buffer.isBuffer(given))
    throw new ArgumentError('load', `expected a path, got ${shown(given)}`);
  // Opening a pipe would wait for its writer, and a device has no end.
  if (!(await stat(path)).isFile()) throw bad('it is not a file');
  const file = await open(path);
  /** @type {[string, Tensor][]} */
  const tensors = [];
  try {
    const { size } = await file.stat();
    /** @param {number} start @param {number} count */
    const read = async (start, count) => {
      const bytes = new Uint8Array(count);
      for (let at = 0; at < count; ) {
        const { bytesRead } = await file.read(bytes, at, Math.min(MAX_READ, count - at), start + at);
        if (bytesRead === 0) throw bad(`it was cut to less than ${size} bytes while it was read`);
        at += bytesRead;
      }
      return bytes;
    };
    if (size < 8) throw bad(`${size} bytes`);
    const length = Number(new DataView((await read(0, 8)).buffer).getBigUint64(0, true));
    if (length > MAX_HEADER || 8 + length > size) throw bad(`a header of ${length} bytes in a file of ${size}`);
    const entries = entriesOf(path, Buffer.from((await read(8, length)).buffer).toString(), size - 8 - length, bad);
    // All is checked: now the memory.
    for (const { name, dtype, shape, start, end } of entries) {
      tensors.push([name, tensor(values(await read(8 + length + start, end - start), dtype), { dtype, shape })]);
    }
    return Object.fromEntries(tensors);
  } catch (error) {
    for (const [, x] of tensors) x.dispose();
    throw error;
  } finally {
    await file.close();
  }
}

/**
 * The entries of a header, checked.
 * @param {string} path @param {string} text @param {number} bytes of the data behind it
 * @param {(what: string) => Error} bad
 */
function entriesOf(path, text, bytes, bad) {
  /** @type {Record<string, any>} */
  let header;
  try {
    header = JSON.parse(text);
  } catch {
    throw bad('its header is not JSON');
  }
  if (typeof header !== 'object' || header === null || Array.isArray(header)) throw bad('its header is not an object');
  const entries = Object.entries(header)
    .filter(([name]) => name !== '__metadata__')
    .map(([name, entry]) => {
      const dtype = TYPES.get(entry?.dtype);
      if (!dtype) {
        const types = [...TYPES.keys()].join(', ');
        throw new ArgumentError('load', `${path}: ${name} has the type ${JSON.stringify(entry?.dtype)}; there are ${types}`);
      }
      const { shape, data_offsets: offsets } = entry;
      if (!Array.isArray(shape) || !shape.every((size) => Number.isInteger(size) && size >= 1)) {
        throw new ArgumentError('load', `${path}: ${name} has the shape ${JSON.stringify(shape)}; sizes are integers of at least 1`);
      }
      const [start, end] = Array.isArray(offsets) ? offsets : [];
      const whole = Number.isSafeInteger(start) && Number.isSafeInteger(end) && start >= 0 && end <= bytes;
      if (!whole || end - start !== sizeOf(shape) * fileBytes(dtype)) throw bad(`${name} [${shape}] lies at ${start} to ${end}`);
      return { name, dtype, shape, start, end };
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
  if (bytes > covered) throw bad(`${bytes - covered} bytes behind the last tensor belong to no tensor`);
  return entries;
}

/** @param {Uint8Array} data with a buffer of its own @param {DType} dtype @returns {any} numbers, exactly those of the file */
function values(data, dtype) {
  const { buffer } = data;
  if (dtype === 'bool') return data;
  if (dtype === 'i32') return new Int32Array(buffer);
  if (dtype === 'u32') return new Uint32Array(buffer);
  if (dtype === 'f32') return new Float32Array(buffer);
  return decode(data, dtype, data.length / 2);
}
