// Files of token ids. This package writes llm.c's format: a header of 256 words, then ids of 16 or 32 bits. It also reads nanoGPT's: 16-bit
// ids without a header.

import { createHash } from 'node:crypto';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { writeAll } from 'helios-vk/files';

const HEADER_BYTES = 1024;
/** llm.c's formats, by the first two words of the header. */
const FORMATS = [
  { magic: 20240520, version: 1, bytes: 2 },
  { magic: 20240801, version: 7, bytes: 4 },
];
/** Other files of llm.c, by the first word, which a file of ids may be mistaken for. */
const OTHERS = new Map([
  [20240326, "a model of llm.c's"],
  [20240327, "a state of llm.c's for debugging"],
  [20240328, "a tokenizer of llm.c's"],
  [20240522, "an evaluation set of llm.c's"],
]);
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

/**
 * Opens a shard for random access: llm.c's by its header, nanoGPT's by its name, which ends in `.bin`. Throws a RangeError for a file of
 * another kind or version, and for a size that does not match the header.
 * @param {string} path
 * @param {{ vocabSize?: number }} [options] `vocabSize`: `read` throws for an id that is not below it
 */
export function openShard(path, { vocabSize = 2 ** 32 } = {}) {
  const file = openSync(path, 'r');
  try {
    const { size } = fstatSync(file);
    const { bytes, begin, tokens } = layoutOf(file, path, size);
    return {
      path,
      tokens,
      bytes: /** @type {2 | 4} */ (bytes),
      /** What the file is, for messages about a set of files. */
      kind: `${begin === 0 ? "nanoGPT's ids" : "llm.c's ids"} of ${8 * bytes} bits`,
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

/**
 * Where the ids of a shard lie: bytes per id, the byte of the first, and how many there are.
 * @param {number} file @param {string} path @param {number} size of the file in bytes
 */
function layoutOf(file, path, size) {
  const header = new Int32Array(HEADER_BYTES / 4);
  readSync(file, header, 0, HEADER_BYTES, 0);
  const [magic, version, tokens] = header;
  const other = OTHERS.get(magic);
  if (other !== undefined) throw new RangeError(`${path} is ${other} (magic ${magic}), not a file of ids`);
  const format = FORMATS.find((each) => each.magic === magic);
  if (format === undefined) {
    if (!/\.bin$/i.test(path)) {
      throw new RangeError(
        `${path} is not a file of ids: no header of llm.c, and not named .bin, as nanoGPT's are; tokenizeCorpus makes such files`,
      );
    }
    if (size % 2 === 1) {
      throw new RangeError(`${path} has ${size} bytes: no header of llm.c, and no whole number of ids of 16 bits as nanoGPT writes them`);
    }
    return { bytes: 2, begin: 0, tokens: size / 2 };
  }
  if (size < HEADER_BYTES) throw new RangeError(`${path} has ${size} bytes, less than the ${HEADER_BYTES} of llm.c's header`);
  if (version !== format.version) {
    throw new RangeError(`${path} is of version ${version} of llm.c's shards of magic ${magic}; version ${format.version} is known`);
  }
  if (tokens < 0 || HEADER_BYTES + tokens * format.bytes !== size) {
    throw new RangeError(
      `${path} says that it has ${tokens} tokens of ${format.bytes} bytes behind ${HEADER_BYTES} bytes of header, and has ${size} bytes`,
    );
  }
  return { bytes: format.bytes, begin: HEADER_BYTES, tokens };
}
