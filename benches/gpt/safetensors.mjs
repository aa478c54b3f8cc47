/**
 * Reading and writing safetensors files (https://github.com/huggingface/safetensors): u64 length of a JSON
 * header, the header, then the tensors' bytes end to end, little-endian.
 */

import { open, rename, rm } from 'node:fs/promises';

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
 * Writes a file, all or nothing: under another name first, synced, then renamed.
 * @param {string} path
 * @param {TensorToWrite[]} tensors in the order of the file
 * @param {Record<string, string>} [metadata]
 */
export async function writeSafetensors(path, tensors, metadata = {}) {
  /** @type {Record<string, unknown>} */
  const header = { __metadata__: metadata };
  let end = 0;
  const sizes = tensors.map(({ name, dtype, shape }) => {
    if (!(dtype in ELEMENT_BYTES)) throw new TypeError(`${name}: unknown type ${dtype}`);
    if (name in header) throw new TypeError(`tensor ${name} is there twice`);
    const bytes = shape.reduce((a, b) => a * b, ELEMENT_BYTES[dtype]);
    header[name] = { dtype, shape, data_offsets: [end, (end += bytes)] };
    return bytes;
  });
  let text = Buffer.from(JSON.stringify(header));
  text = Buffer.concat([text, Buffer.alloc(-text.length & 7, ' ')]);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));

  const partial = `${path}.partial`;
  const file = await open(partial, 'w');
  try {
    await writeAll(file, length);
    await writeAll(file, text);
    for (const [i, tensor] of tensors.entries()) {
      const data = await tensor.data();
      if (data.byteLength !== sizes[i]) {
        throw new RangeError(`tensor ${tensor.name} has ${data.byteLength} bytes, its shape says ${sizes[i]}`);
      }
      await writeAll(file, data);
    }
    await file.sync();
    await file.close();
    await rename(partial, path);
  } catch (error) {
    await file.close().catch(() => {});
    await rm(partial, { force: true });
    throw error;
  }
}

/** @param {import('node:fs/promises').FileHandle} file @param {ArrayBufferView} data */
async function writeAll(file, { buffer, byteOffset, byteLength }) {
  for (let at = 0; at < byteLength;) {
    const piece = new Uint8Array(buffer, byteOffset + at, Math.min(CHUNK, byteLength - at));
    at += (await file.write(piece)).bytesWritten;
  }
}

/** An open safetensors file. Close it when done. */
export class SafetensorsFile {
  /**
   * @param {string} path
   * @param {import('node:fs/promises').FileHandle} file
   * @param {Record<string, string>} metadata
   * @param {Map<string, TensorEntry>} tensors
   */
  constructor(path, file, metadata, tensors) {
    this.path = path;
    this.file = file;
    this.metadata = metadata;
    this.tensors = tensors;
  }

  /**
   * Opens a file and checks its header: every tensor within the file, of its shape's size, without holes.
   * @param {string} path
   */
  static async open(path) {
    const file = await open(path, 'r');
    try {
      const { size } = await file.stat();
      const bad = (/** @type {string} */ what) => new RangeError(`${path} is not a safetensors file: ${what}`);
      if (size < 8) throw bad(`it has ${size} bytes`);
      const length = Buffer.alloc(8);
      await readAll(file, length, 0);
      const headerBytes = Number(length.readBigUInt64LE());
      if (headerBytes > LARGEST_HEADER || headerBytes + 8 > size)
        throw bad(`its header would have ${headerBytes} bytes`);
      const text = Buffer.alloc(headerBytes);
      await readAll(file, text, 8);
      let header;
      try {
        header = JSON.parse(text.toString('utf8'));
      } catch {
        throw bad('its header is not JSON');
      }
      const { __metadata__: metadata = {}, ...entries } = header;
      const tensors = new Map();
      let end = 0;
      for (const [name, entry] of Object.entries(entries).sort(
        (a, b) => a[1].data_offsets?.[0] - b[1].data_offsets?.[0],
      )) {
        const { dtype, shape, data_offsets: offsets } = /** @type {any} */ (entry);
        if (!(dtype in ELEMENT_BYTES) || !Array.isArray(shape) || !Array.isArray(offsets)) throw bad(`entry ${name}`);
        const bytes = shape.reduce((a, b) => a * b, ELEMENT_BYTES[dtype]);
        if (offsets[0] !== end || offsets[1] - offsets[0] !== bytes) throw bad(`the range of ${name} is ${offsets}`);
        tensors.set(name, { dtype, shape, begin: 8 + headerBytes + end, bytes });
        end += bytes;
      }
      if (8 + headerBytes + end !== size) throw bad(`it has ${size} bytes, its header says ${8 + headerBytes + end}`);
      return new SafetensorsFile(path, file, metadata, tensors);
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
   */
  async read(name, dtype, shape, into) {
    const entry = this.tensors.get(name);
    if (!entry) throw new RangeError(`${this.path} has no tensor ${name}`);
    if (entry.dtype !== dtype || entry.shape.join() !== shape.join()) {
      throw new RangeError(`${this.path}: ${name} is ${entry.dtype} [${entry.shape}], expected ${dtype} [${shape}]`);
    }
    if (into.byteLength !== entry.bytes)
      throw new RangeError(`${name} has ${entry.bytes} bytes, the target ${into.byteLength}`);
    await readAll(this.file, into, entry.begin);
  }

  close() {
    return this.file.close();
  }
}

/** @param {import('node:fs/promises').FileHandle} file @param {ArrayBufferView} into @param {number} position */
async function readAll(file, { buffer, byteOffset, byteLength }, position) {
  for (let at = 0; at < byteLength;) {
    const piece = new Uint8Array(buffer, byteOffset + at, Math.min(CHUNK, byteLength - at));
    const { bytesRead } = await file.read(piece, 0, piece.length, position + at);
    if (bytesRead === 0) throw new RangeError('the file ended early');
    at += bytesRead;
  }
}
