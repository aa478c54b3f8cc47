/**
 * Reading and writing safetensors files (https://github.com/huggingface/safetensors): u64 length of a JSON
 * header, the header, then the tensors' bytes end to end, little-endian.
 */

import { createHash } from 'node:crypto';
import { open, stat } from 'node:fs/promises';
import { parseJson, replaceFile } from './files.mjs';

/** Bytes of an element. @type {Record<string, number>} */
const ELEMENT_BYTES = { F64: 8, F32: 4, F16: 2, BF16: 2, I64: 8, I32: 4, U32: 4, I16: 2, I8: 1, U8: 1, BOOL: 1 };

/** One call reads or writes at most this much; the system's own limit is just under 2 GiB. */
const CHUNK = 1 << 28;

/** A header longer than this is a broken file (the format's own bound). */
const LARGEST_HEADER = 100e6;

/**
 * @typedef {object} TensorToWrite
 * @property {string} name
 * @property {string} dtype `F32`, `I32`, …
 * @property {number[]} shape
 * @property {() => ArrayBufferView | Promise<ArrayBufferView>} data called when the tensor's turn comes, so that
 *   not all of them need memory at once
 *
 * @typedef {{dtype: string, shape: number[], begin: number, bytes: number}} TensorEntry
 */

/**
 * Key of the metadata under which a file may hold the SHA-256, in hexadecimal, of the whole file with zeros in place of these 64 digits. It
 * is the first key, so that the digits stand where a reader finds them without trust in the header.
 */
export const FILE_CHECKSUM = 'file_sha256';
const UNKNOWN_CHECKSUM = '0'.repeat(64);
const BEFORE_CHECKSUM = `{"__metadata__":{"${FILE_CHECKSUM}":"`;

/** Key under which files of earlier versions hold the SHA-256 of their tensors' bytes alone. */
const TENSOR_CHECKSUM = 'sha256';

/**
 * Writes a file, all or nothing: see `replaceFile`.
 * @param {string} path
 * @param {TensorToWrite[]} tensors in the order of the file
 * @param {Record<string, string>} [metadata]
 * @param {{checksum?: boolean}} [options] whether the metadata gets the file's SHA-256
 */
export async function writeSafetensors(path, tensors, metadata = {}, { checksum = false } = {}) {
  /** @type {Record<string, unknown>} */
  const header = { __metadata__: checksum ? { [FILE_CHECKSUM]: UNKNOWN_CHECKSUM, ...metadata } : metadata };
  let end = 0;
  const sizes = tensors.map(({ name, dtype, shape }) => {
    if (!Object.hasOwn(ELEMENT_BYTES, dtype)) throw new TypeError(`${name}: unknown type ${dtype}`);
    if (Object.hasOwn(header, name)) throw new TypeError(`tensor ${name} is there twice`);
    const bytes = shape.reduce((a, b) => a * b, ELEMENT_BYTES[dtype]);
    header[name] = { dtype, shape, data_offsets: [end, (end += bytes)] };
    return bytes;
  });
  let text = Buffer.from(JSON.stringify(header));
  text = Buffer.concat([text, Buffer.alloc(-text.length & 7, ' ')]);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));

  const hash = checksum ? createHash('sha256') : undefined;
  await replaceFile(path, async (file) => {
    await writeAll(file, length, hash);
    await writeAll(file, text, hash);
    for (const [i, tensor] of tensors.entries()) {
      const data = await tensor.data();
      if (data.byteLength !== sizes[i]) {
        throw new RangeError(`tensor ${tensor.name} has ${data.byteLength} bytes, its shape says ${sizes[i]}`);
      }
      await writeAll(file, data, hash);
    }
    // The header stands first, so the checksum is put in when all else is there.
    if (hash) await writeAll(file, Buffer.from(hash.digest('hex')), undefined, 8 + BEFORE_CHECKSUM.length);
  });
}

/**
 * @param {import('node:fs/promises').FileHandle} file
 * @param {ArrayBufferView} data
 * @param {import('node:crypto').Hash} [hash] is given what is written
 * @param {number} [position] where to write; at the end of what was written before without it
 */
async function writeAll(file, { buffer, byteOffset, byteLength }, hash, position) {
  for (let at = 0; at < byteLength; ) {
    const piece = new Uint8Array(buffer, byteOffset + at, Math.min(CHUNK, byteLength - at));
    const { bytesWritten } = await file.write(piece, 0, piece.length, position === undefined ? null : position + at);
    if (bytesWritten === 0) throw Object.assign(new Error('the system wrote nothing'), { code: 'EIO', syscall: 'write' });
    hash?.update(piece.subarray(0, bytesWritten));
    at += bytesWritten;
  }
}

/** An open safetensors file. Close it when done. */
export class SafetensorsFile {
  /**
   * @param {string} path
   * @param {import('node:fs/promises').FileHandle} file
   * @param {Record<string, string>} metadata
   * @param {Map<string, TensorEntry>} tensors
   * @param {Buffer} head the bytes before the tensors
   */
  constructor(path, file, metadata, tensors, head) {
    this.path = path;
    this.file = file;
    this.metadata = metadata;
    this.tensors = tensors;
    this.head = head;
  }

  /**
   * Opens a file and checks its header: every tensor within the file, of its shape's size, without holes.
   * @param {string} path
   */
  static async open(path) {
    // A pipe would wait for its writer.
    if (!(await stat(path)).isFile()) throw new RangeError(`${path} is not a safetensors file: it is not a regular file`);
    const file = await open(path, 'r');
    try {
      const { size } = await file.stat();
      const bad = (/** @type {string} */ what) => new RangeError(`${path} is not a safetensors file: ${what}`);
      if (size < 8) throw bad(`it has ${size} bytes`);
      const length = Buffer.alloc(8);
      await readAll(file, length, 0);
      const headerBytes = Number(length.readBigUInt64LE());
      if (headerBytes > LARGEST_HEADER || headerBytes + 8 > size) throw bad(`its header would have ${headerBytes} bytes`);
      const text = Buffer.alloc(headerBytes);
      await readAll(file, text, 8);
      let header;
      try {
        header = parseJson(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(text));
      } catch (error) {
        throw bad(`its header is not JSON: ${/** @type {Error} */ (error).message}`);
      }
      if (!isObject(header)) throw bad('its header is not an object');
      const { __metadata__: metadata = {}, ...entries } = header;
      if (!isObject(metadata) || !Object.values(metadata).every((value) => typeof value === 'string')) {
        throw bad('__metadata__ is not an object of strings');
      }
      /** @type {[string, TensorEntry][]} */
      const list = Object.entries(entries).map(([name, entry]) => [name, checkEntry(name, entry, bad)]);
      const tensors = new Map();
      let end = 0;
      for (const [name, entry] of list.sort((a, b) => a[1].begin - b[1].begin || a[1].bytes - b[1].bytes)) {
        if (entry.begin !== end) throw bad(`data_offsets of ${name} begin at ${entry.begin}, not at ${end}`);
        tensors.set(name, { ...entry, begin: 8 + headerBytes + end });
        end += entry.bytes;
      }
      if (8 + headerBytes + end !== size) throw bad(`it has ${size} bytes, its header says ${8 + headerBytes + end}`);
      return new SafetensorsFile(path, file, metadata, tensors, Buffer.concat([length, text]));
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /**
   * Reads a tensor.
   * @param {string} name
   * @param {string} dtype the type it must have
   * @param {number[]} shape the shape it must have
   * @param {ArrayBufferView} into receives the bytes
   * @param {import('node:crypto').Hash} [hash] is given what is read
   */
  async read(name, dtype, shape, into, hash) {
    const entry = this.expect(name, dtype, shape);
    if (into.byteLength !== entry.bytes) throw new RangeError(`${name} has ${entry.bytes} bytes, the target ${into.byteLength}`);
    await readAll(this.file, into, entry.begin, hash);
  }

  /**
   * A tensor's entry, which must be of a type and a shape.
   * @param {string} name @param {string} dtype @param {number[]} shape
   */
  expect(name, dtype, shape) {
    const entry = this.tensors.get(name);
    if (!entry) throw new RangeError(`${this.path} has no tensor ${name}`);
    if (entry.dtype !== dtype || entry.shape.join() !== shape.join()) {
      throw new RangeError(`${this.path}: ${name} is ${entry.dtype} [${entry.shape}], expected ${dtype} [${shape}]`);
    }
    return entry;
  }

  /**
   * The checksum that the file says it has, and where it is summed up. Read all tensors into it, in the file's order, and then `check` it.
   * None if the file says nothing.
   */
  checksum() {
    const { path, metadata, head } = this;
    const name = [FILE_CHECKSUM, TENSOR_CHECKSUM].find((key) => Object.hasOwn(metadata, key));
    if (name === undefined) return undefined;
    const hash = createHash('sha256');
    if (name === FILE_CHECKSUM) {
      const at = 8 + BEFORE_CHECKSUM.length;
      if (head.toString('latin1', 8, at) !== BEFORE_CHECKSUM)
        throw new RangeError(`${path} is damaged: its header does not begin with ${name}`);
      hash.update(head.subarray(0, at)).update(UNKNOWN_CHECKSUM);
      hash.update(head.subarray(at + UNKNOWN_CHECKSUM.length));
    }
    const check = () => {
      const found = hash.digest('hex');
      if (found !== metadata[name]) {
        const what = name === FILE_CHECKSUM ? 'the file' : 'its tensors';
        throw new RangeError(`${path} is damaged: the SHA-256 of ${what} is ${found}, its header says ${name} ${metadata[name]}`);
      }
    };
    return { hash, check };
  }

  close() {
    return this.file.close();
  }
}

/** @param {unknown} value @returns {value is Record<string, any>} */
export function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * Checks an entry of a header by itself.
 * @param {string} name
 * @param {unknown} entry
 * @param {(what: string) => Error} bad
 * @returns {TensorEntry} `begin` within the tensors' bytes
 */
function checkEntry(name, entry, bad) {
  if (!isObject(entry)) throw bad(`the entry ${name} is not an object`);
  const { dtype, shape, data_offsets: offsets } = entry;
  if (typeof dtype !== 'string' || !Object.hasOwn(ELEMENT_BYTES, dtype)) throw bad(`dtype of ${name} is ${JSON.stringify(dtype)}`);
  const isSize = (/** @type {unknown} */ value) => Number.isSafeInteger(value) && /** @type {number} */ (value) >= 0;
  if (!Array.isArray(shape) || !shape.every(isSize)) throw bad(`shape of ${name} is ${JSON.stringify(shape)}`);
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize)) {
    throw bad(`data_offsets of ${name} are ${JSON.stringify(offsets)}`);
  }
  const bytes = shape.reduce((a, b) => a * b, ELEMENT_BYTES[dtype]);
  if (offsets[1] - offsets[0] !== bytes) throw bad(`data_offsets of ${name} are ${offsets}, its shape has ${bytes} bytes`);
  return { dtype, shape, begin: offsets[0], bytes };
}

/**
 * @param {import('node:fs/promises').FileHandle} file
 * @param {ArrayBufferView} into
 * @param {number} position
 * @param {import('node:crypto').Hash} [hash] is given what is read
 */
async function readAll(file, { buffer, byteOffset, byteLength }, position, hash) {
  for (let at = 0; at < byteLength; ) {
    const piece = new Uint8Array(buffer, byteOffset + at, Math.min(CHUNK, byteLength - at));
    const { bytesRead } = await file.read(piece, 0, piece.length, position + at);
    if (bytesRead === 0) throw new RangeError('the file ended early');
    hash?.update(piece.subarray(0, bytesRead));
    at += bytesRead;
  }
}
