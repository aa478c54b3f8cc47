// Files of token ids. This package writes llm.c's format: a header of 256 words, then ids of 16 or 32 bits. It also reads nanoGPT's: 16-bit
// ids without a header.

import { createHash } from 'node:crypto';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { open } from 'node:fs/promises';

const HEADER_BYTES = 1024;
/** llm.c's formats, by the first two words of the header. */
const FORMATS = [
  { magic: 20240520, version: 1, bytes: 2 },
  { magic: 20240801, version: 7, bytes: 4 },
];
/** Number of ids that are buffered before a write. */
const BUFFERED = 2 ** 20;

/** Bytes per id. @param {number} vocabSize @returns {2 | 4} */
export const idBytes = (vocabSize) => (vocabSize <= 2 ** 16 ? 2 : 4);

/**
 * Creates one shard to append ids to.
 * @param {string} path must not exist
 * @param {number} bytes per id: 2 or 4
 */
export async function createShard(path, bytes) {
  const format = FORMATS.find((each) => each.bytes === bytes);
  if (!format) throw new RangeError(`ids of ${bytes} bytes: there are shards of 2 and 4`);
  const file = await open(path, 'wx');
  const hash = createHash('sha256');
  const buffer = bytes === 2 ? new Uint16Array(BUFFERED) : new Uint32Array(BUFFERED);
  let filled = 0;
  let tokens = 0;
  const flush = async () => {
    const view = new Uint8Array(buffer.buffer, 0, filled * bytes);
    hash.update(view);
    await writeAll(file, view, HEADER_BYTES + tokens * bytes);
    tokens += filled;
    filled = 0;
  };
  return {
    /** Tokens appended so far. */
    get tokens() {
      return tokens + filled;
    },
    /** @param {Uint32Array} ids */
    async append(ids) {
      for (let at = 0; at < ids.length; ) {
        const taken = Math.min(ids.length - at, BUFFERED - filled);
        buffer.set(ids.subarray(at, at + taken), filled);
        filled += taken;
        at += taken;
        if (filled === BUFFERED) await flush();
      }
    },
    /** Writes the buffered ids and the header, and closes the file. @returns {Promise<{ tokens: number, sha256: string }>} the SHA-256 of the ids' bytes */
    async end() {
      try {
        await flush();
        const header = new Int32Array(HEADER_BYTES / 4);
        header.set([format.magic, format.version, tokens]);
        await writeAll(file, new Uint8Array(header.buffer), 0);
        await file.sync();
      } finally {
        await file.close();
      }
      return { tokens, sha256: hash.digest('hex') };
    },
    /** Closes the file, incomplete as it is. */
    async abandon() {
      await file.close();
    },
  };
}

/** Writes all bytes: one write may be partial. @param {import('node:fs/promises').FileHandle} file @param {Uint8Array} bytes @param {number} position */
async function writeAll(file, bytes, position) {
  for (let at = 0; at < bytes.length; ) {
    const { bytesWritten } = await file.write(bytes, at, bytes.length - at, position + at);
    if (bytesWritten === 0) throw Object.assign(new Error('the system wrote nothing'), { code: 'EIO', syscall: 'write' });
    at += bytesWritten;
  }
}

/**
 * Opens a shard for random access. Throws a RangeError for an unknown version, or a size that does not match the header.
 * @param {string} path
 * @param {{ vocabSize?: number }} [options] `vocabSize`: `read` throws for an id that is not below it
 */
export function openShard(path, { vocabSize = 2 ** 32 } = {}) {
  const file = openSync(path, 'r');
  try {
    const { size } = fstatSync(file);
    const header = new Int32Array(HEADER_BYTES / 4);
    const read = readSync(file, header, 0, HEADER_BYTES, 0);
    const format = read === HEADER_BYTES ? FORMATS.find(({ magic }) => magic === header[0]) : undefined;
    if (format && header[1] !== format.version) {
      throw new RangeError(
        `${path} is of version ${header[1]} of llm.c's shards of magic ${header[0]}; version ${format.version} is known`,
      );
    }
    // A file without a known header is read as nanoGPT's.
    const { bytes, begin, tokens } = format
      ? { bytes: format.bytes, begin: HEADER_BYTES, tokens: header[2] }
      : { bytes: 2, begin: 0, tokens: size / 2 };
    if (!Number.isInteger(tokens) || tokens < 0 || begin + tokens * bytes !== size) {
      throw new RangeError(
        format
          ? `${path} says that it has ${tokens} tokens of ${bytes} bytes behind ${begin} bytes of header, and has ${size} bytes`
          : `${path} has ${size} bytes: no header of llm.c, and no whole number of ids of 16 bits as nanoGPT writes them`,
      );
    }
    return {
      path,
      tokens,
      /**
       * Reads as many ids as `into` holds. Throws a RangeError for a position outside of the shard, and for an id outside of the vocabulary.
       * @param {number} position of the first id @param {Uint32Array} into
       * @returns {Uint32Array} `into`
       */
      read(position, into) {
        if (position < 0 || position + into.length > tokens) {
          throw new RangeError(`${path} has ${tokens} tokens: none from ${position} to ${position + into.length}`);
        }
        // 16-bit ids are read into the second half of `into` and widened from the front, so none is overwritten before it is read.
        const narrow = bytes === 2 ? new Uint16Array(into.buffer, into.byteOffset + into.length * 2, into.length) : undefined;
        const target = narrow ?? into;
        let at = 0;
        while (at < target.byteLength) {
          const got = readSync(file, target, at, target.byteLength - at, begin + position * bytes + at);
          if (got === 0) throw new RangeError(`${path} has become shorter than ${size} bytes`);
          at += got;
        }
        for (let i = 0; i < into.length; i++) {
          const id = target[i];
          if (id >= vocabSize) throw new RangeError(`${path}: token ${position + i} is ${id}, and the vocabulary has ${vocabSize}`);
          into[i] = id;
        }
        return into;
      },
      close() {
        closeSync(file);
      },
    };
  } catch (error) {
    closeSync(file);
    throw error;
  }
}
