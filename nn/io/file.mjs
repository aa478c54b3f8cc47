// Safetensors files on disk: opened with a check of the header, read tensor by tensor, written atomically.

import { createHash } from 'node:crypto';
import { open, stat } from 'node:fs/promises';
import { replaceFile, writeAll } from '../../kernels/files.mjs';
import { CHECKSUM, PREFIX_BYTES, headerLength, parseHeader, withoutChecksum } from './safetensors.mjs';

/** @typedef {import('node:fs/promises').FileHandle} FileHandle */
/** @typedef {import('node:crypto').Hash} Hash */

/** The most bytes that one call reads: hashing a piece blocks the event loop for milliseconds only. */
const CHUNK = 2 ** 24;

/**
 * Writes a file atomically: see `replaceFile`.
 * @param {string} path
 * @param {import('./safetensors.mjs').EncodedHeader} header
 * @param {(index: number) => ArrayBufferView | Promise<ArrayBufferView>} data returns the bytes of a tensor; called once per tensor, in
 *   order, so that the tensors need not be in memory at the same time
 * @throws the system's error, see `notWritten`; a RangeError if a tensor's bytes are not as many as the header says
 */
export function writeSafetensors(path, header, data) {
  const { bytes, tensors, checksumAt } = header;
  return replaceFile(path, async (file) => {
    const hash = checksumAt === undefined ? undefined : createHash('sha256');
    const update = hash && ((/** @type {Uint8Array} */ piece) => void hash.update(piece));
    await writeAll(file, bytes, undefined, update);
    for (const [i, tensor] of tensors.entries()) {
      const view = await data(i);
      if (view.byteLength !== tensor.bytes) throw new RangeError(`${tensor.name} needs ${tensor.bytes} bytes, got ${view.byteLength}`);
      await writeAll(file, view, undefined, update);
    }
    // The checksum is part of the header, so it can be written only after everything else.
    if (hash) await writeAll(file, Buffer.from(hash.digest('hex')), checksumAt);
  });
}

/** An open file whose header has been checked. Close it when done. */
export class SafetensorsFile {
  #file;
  #start;
  #bad;
  #checksumName;

  /**
   * @param {FileHandle} file @param {Uint8Array} start the bytes up to the data @param {import('./safetensors.mjs').Header} header
   * @param {(what: string) => Error} bad makes an error about the file @param {string} checksumName
   */
  constructor(file, start, header, bad, checksumName) {
    this.#file = file;
    this.#start = start;
    this.#bad = bad;
    this.#checksumName = checksumName;
    this.metadata = header.metadata;
    /** By name, in file order. */
    this.tensors = header.tensors;
    /** The checksum that the file's metadata states, if any. */
    this.checksum = header.checksum;
  }

  /**
   * Opens a file and checks its header.
   * @param {string} path
   * @param {(what: string) => Error} bad makes an error from what is wrong with the file
   * @param {string} [checksumName] see `CHECKSUM`
   */
  static async open(path, bad, checksumName = CHECKSUM) {
    // Opening a pipe would wait for its writer, and reading a device may never end.
    if (!(await stat(path)).isFile()) throw bad('it is not a file');
    const file = await open(path);
    try {
      const { size } = await file.stat();
      if (size < PREFIX_BYTES) throw bad(`it has ${size} bytes, fewer than its length takes`);
      const prefix = new Uint8Array(PREFIX_BYTES);
      await readAll(file, prefix, 0, bad);
      const data = PREFIX_BYTES + headerLength(prefix, size, bad);
      const start = new Uint8Array(data);
      await readAll(file, start, 0, bad);
      const header = parseHeader(start.subarray(PREFIX_BYTES), size - data, bad, checksumName);
      return new SafetensorsFile(file, start, header, bad, checksumName);
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /**
   * The entry of a tensor; an error if the file has no such tensor.
   * @param {string} name
   */
  #info(name) {
    const info = this.tensors.get(name);
    if (!info) throw this.#bad(`it has no tensor ${name}`);
    return info;
  }

  /**
   * Reads a tensor's bytes.
   * @param {string} name
   * @param {ArrayBufferView} into as many bytes as the tensor has; a RangeError otherwise
   * @param {Hash} [hash] updated with the bytes read
   */
  async read(name, into, hash) {
    const { begin, bytes } = this.#info(name);
    if (into.byteLength !== bytes) throw new RangeError(`${name} has ${bytes} bytes, but the array to read into has ${into.byteLength}`);
    await readAll(this.#file, into, this.#start.length + begin, this.#bad, hash);
  }

  /**
   * Reads a tensor only to update a checksum, one piece at a time.
   * @param {string} name @param {Hash} hash
   */
  async pass(name, hash) {
    const { begin, bytes } = this.#info(name);
    const piece = new Uint8Array(Math.min(CHUNK, bytes));
    for (let at = 0; at < bytes; at += piece.length) {
      const part = piece.subarray(0, Math.min(piece.length, bytes - at));
      await readAll(this.#file, part, this.#start.length + begin + at, this.#bad, hash);
    }
  }

  /**
   * Begins to verify the file's checksum. Pass `hash` to `read` or `pass` for every tensor, in file order. `finish` then returns what is
   * wrong, or undefined.
   * @returns {{ hash: Hash, finish: () => string | undefined } | undefined} undefined if the file has no checksum
   */
  verification() {
    const { checksum } = this;
    if (checksum === undefined) return undefined;
    const hash = createHash('sha256').update(withoutChecksum(this.#start, this.#checksumName));
    const finish = () => {
      const found = hash.digest('hex');
      return found === checksum ? undefined : `its bytes have the SHA-256 ${found}, its metadata says ${checksum} (${this.#checksumName})`;
    };
    return { hash, finish };
  }

  close() {
    return this.#file.close();
  }
}

/**
 * Fills `into`; an error if the file ends before that.
 * @param {FileHandle} file @param {ArrayBufferView} into @param {number} position
 * @param {(what: string) => Error} bad
 * @param {Hash} [hash] updated with the bytes read
 */
async function readAll(file, { buffer, byteOffset, byteLength }, position, bad, hash) {
  for (let at = 0; at < byteLength; ) {
    const piece = new Uint8Array(buffer, byteOffset + at, Math.min(CHUNK, byteLength - at));
    const { bytesRead } = await file.read(piece, 0, piece.length, position + at);
    if (bytesRead === 0) throw bad('it became shorter while it was read');
    hash?.update(piece.subarray(0, bytesRead));
    at += bytesRead;
  }
}
