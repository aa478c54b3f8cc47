// Safetensors files on disk: opened with a check of the header, read tensor by tensor, written atomically.

import { createHash } from 'node:crypto';
import { open, stat } from 'node:fs/promises';
import { replaceFile } from '../../kernels/files.mjs';
import { CHECKSUM, PREFIX_BYTES, headerLength, parseHeader, withoutChecksum } from './safetensors.mjs';

/** @typedef {import('node:fs/promises').FileHandle} FileHandle */
/** @typedef {import('node:crypto').Hash} Hash */

/** One call reads or writes at most this much, so that hashing a piece holds up other work for milliseconds alone. */
const CHUNK = 2 ** 24;

/**
 * Writes a file, all or nothing: see `replaceFile`.
 * @param {string} path
 * @param {import('./safetensors.mjs').EncodedHeader} header
 * @param {(index: number) => ArrayBufferView | Promise<ArrayBufferView>} data the bytes of a tensor; asked for when its turn comes, so that
 *   not all of them need memory at once
 * @throws the system's error, see `notWritten`; a RangeError where there are more or fewer bytes than the header says
 */
export function writeSafetensors(path, header, data) {
  const { bytes, tensors, checksumAt } = header;
  return replaceFile(path, async (file) => {
    const hash = checksumAt === undefined ? undefined : createHash('sha256');
    await writeAll(file, bytes, hash);
    for (const [i, tensor] of tensors.entries()) {
      const view = await data(i);
      if (view.byteLength !== tensor.bytes) throw new RangeError(`${tensor.name} has ${view.byteLength} bytes, not ${tensor.bytes}`);
      await writeAll(file, view, hash);
    }
    // The header stands first, so the digits are put in when all else is there.
    if (hash) await writeAll(file, Buffer.from(hash.digest('hex')), undefined, checksumAt);
  });
}

/**
 * @param {FileHandle} file @param {ArrayBufferView} data
 * @param {Hash} [hash] is given what is written
 * @param {number} [position] where to write; behind what was written before when left out
 */
async function writeAll(file, { buffer, byteOffset, byteLength }, hash, position) {
  for (let at = 0; at < byteLength; ) {
    const piece = new Uint8Array(buffer, byteOffset + at, Math.min(CHUNK, byteLength - at));
    // A write may take a part of what it is given.
    const { bytesWritten } = await file.write(piece, 0, piece.length, position === undefined ? null : position + at);
    if (bytesWritten === 0) throw Object.assign(new Error('the system wrote nothing'), { code: 'EIO', syscall: 'write' });
    hash?.update(piece.subarray(0, bytesWritten));
    at += bytesWritten;
  }
}

/** An open file. Close it when done. */
export class SafetensorsFile {
  #file;
  #start;
  #bad;
  #checksumName;

  /**
   * @param {FileHandle} file @param {Uint8Array} start the bytes up to the data @param {import('./safetensors.mjs').Header} header
   * @param {(what: string) => Error} bad @param {string} checksumName
   */
  constructor(file, start, header, bad, checksumName) {
    this.#file = file;
    this.#start = start;
    this.#bad = bad;
    this.#checksumName = checksumName;
    this.metadata = header.metadata;
    /** By name, in the order of the file. */
    this.tensors = header.tensors;
    /** The checksum that the file says it has, if it says one. */
    this.checksum = header.checksum;
  }

  /**
   * Opens a file and checks its header.
   * @param {string} path
   * @param {(what: string) => Error} bad makes the error that is thrown, of what is wrong with the file
   * @param {string} [checksumName] see `CHECKSUM`
   */
  static async open(path, bad, checksumName = CHECKSUM) {
    // To open a pipe would wait for its writer, and a device has no end.
    if (!(await stat(path)).isFile()) throw bad('it is not a file');
    const file = await open(path);
    try {
      const { size } = await file.stat();
      if (size < PREFIX_BYTES) throw bad(`${size} bytes`);
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
   * The entry of a tensor that the file has.
   * @param {string} name
   */
  #info(name) {
    const info = this.tensors.get(name);
    if (!info) throw this.#bad(`it has no tensor ${name}`);
    return info;
  }

  /**
   * Reads a tensor.
   * @param {string} name
   * @param {ArrayBufferView} into as many bytes as the tensor has
   * @param {Hash} [hash] is given what is read
   */
  async read(name, into, hash) {
    const { begin, bytes } = this.#info(name);
    if (into.byteLength !== bytes) throw new RangeError(`${name} has ${bytes} bytes, there is room for ${into.byteLength}`);
    await readAll(this.#file, into, this.#start.length + begin, this.#bad, hash);
  }

  /**
   * Reads a tensor for its part in a checksum alone, a piece at a time.
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
   * Begins to verify the file's checksum: give `hash` to `read` or `pass` of every tensor, in the file's order; then `finish` says what is
   * wrong, or nothing.
   * @returns {{ hash: Hash, finish: () => string | undefined } | undefined} undefined where the file has none
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
 * @param {FileHandle} file @param {ArrayBufferView} into @param {number} position
 * @param {(what: string) => Error} bad
 * @param {Hash} [hash] is given what is read
 */
async function readAll(file, { buffer, byteOffset, byteLength }, position, bad, hash) {
  for (let at = 0; at < byteLength; ) {
    const piece = new Uint8Array(buffer, byteOffset + at, Math.min(CHUNK, byteLength - at));
    const { bytesRead } = await file.read(piece, 0, piece.length, position + at);
    if (bytesRead === 0) throw bad('it was cut while it was read');
    hash?.update(piece.subarray(0, bytesRead));
    at += bytesRead;
  }
}
