// Text to shards of ids: pieces are read in order, encoded by threads, and written in order, so that the files are the same whatever
// the number of threads.

import { createHash } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';

import { checkNewFolder, makeFolder } from '../folder.mjs';
import { META } from './dataset.mjs';
import { PIECE_BYTES, filesOf, kindOf, piecesOf } from './pieces.mjs';
import { createShard, idBytes } from './shards.mjs';

/** Bytes of a piece at least, where the end of a small text is held out. */
const MIN_PIECE_BYTES = 4096;

const TOKENIZER_MODULE = new URL('../tokenizer/load.mjs', import.meta.url).href;

/**
 * @typedef {object} Progress
 * @property {number} bytes of the files read and encoded @property {number} totalBytes
 * @property {number} tokens @property {number} documents
 *
 * @typedef {object} CorpusOptions
 * @property {string[]} inputs files and folders: text, JSONL, Parquet, the first two also with `.gz`
 * @property {string} tokenizer a folder or file that `loadTokenizer` reads
 * @property {string} output the folder that is made: it must not exist, or be empty
 * @property {number} [validation] the share that is held out: of documents by a hash of their text, of a plain text without a separator
 *   its end; 0.005 when left out
 * @property {string} [separator] what stands between two documents of a plain text; without it a file is one document
 * @property {string} [field] of a line of JSONL, or a column of a Parquet file; `text` when left out
 * @property {boolean} [replaceInvalid] whether U+FFFD takes the place of what is not UTF-8; that is an error otherwise
 * @property {number} [shardTokens] tokens of a file: 100 million when left out, as llm.c's
 * @property {number} [workers] threads that encode: one a processor when left out
 * @property {number} [pieceBytes] bytes that a thread takes at once
 * @property {string} [tokenizerModule] a module that exports `loadTokenizer`, for tokenizers of other kinds
 * @property {AbortSignal} [signal] ends it with an AbortError; nothing is left behind
 * @property {(progress: Progress) => void} [onProgress] called after each piece
 */

/**
 * What a thread says of a piece.
 * @typedef {{ encoded: import('./encode.mjs').Encoded, failed?: undefined } | { encoded?: undefined, failed: Failure }} Result
 * @typedef {{ message: string, at?: { line?: number, byte?: number } }} Failure
 *
 * A piece under way: `read` as the piece's, `length` of its bytes.
 * @typedef {{ read: number, length: number, result: Promise<Result> }} Job
 */

/**
 * Encodes text of any size into a folder that `openDataset` reads. Memory does not grow with the text. The folder is there once all of it
 * is written, or not at all.
 * @param {CorpusOptions} options
 * @returns {Promise<import('./dataset.mjs').CorpusInfo>}
 * @throws {Error} that names file and line, or byte, of text that cannot be read
 */
export async function tokenizeCorpus(options) {
  const { inputs, tokenizer: tokenizerPath, output, validation = 0.005, shardTokens = 1e8, signal } = options;
  if (!(validation >= 0 && validation < 1)) throw new RangeError(`validation is a share from 0 to less than 1, got ${validation}`);
  if (!(Number.isInteger(shardTokens) && shardTokens > 0 && shardTokens < 2 ** 31)) {
    throw new RangeError(`shardTokens is an integer from 1 to 2147483647, got ${shardTokens}`);
  }
  if (options.separator === '') throw new RangeError('separator is empty');
  const files = filesOf(inputs);
  if (files.length === 0) throw new RangeError('no inputs');
  checkNewFolder(output, [...inputs, tokenizerPath]);
  signal?.throwIfAborted();
  const module = options.tokenizerModule ?? TOKENIZER_MODULE;
  const { loadTokenizer } = await import(module);
  const tokenizer = await loadTokenizer(tokenizerPath);
  return makeFolder(output, (folder) => writeCorpus(folder, files, tokenizer, module, options));
}

/**
 * Fills the folder of a corpus.
 * @param {string} folder @param {string[]} files @param {{ vocabSize: number, special: { eos?: number }, cutsBeforeLineFeed?: boolean }} tokenizer
 * @param {string} module that loads it @param {CorpusOptions} options
 * @returns {Promise<import('./dataset.mjs').CorpusInfo>}
 */
async function writeCorpus(folder, files, tokenizer, module, options) {
  const { validation = 0.005, shardTokens = 1e8, pieceBytes = PIECE_BYTES, separator, field, replaceInvalid, signal, onProgress } = options;
  const sizes = files.map((path) => statSync(path).size);
  const totalBytes = sizes.reduce((a, b) => a + b, 0);
  const [train, heldOut] = ['train', 'validation'].map((name) => shardWriter(folder, name, idBytes(tokenizer.vocabSize), shardTokens));
  const threads = startThreads(Math.max(1, options.workers ?? availableParallelism()), { module, tokenizer: options.tokenizer });
  let documents = 0;
  let bytes = 0;
  try {
    for (const [i, source] of files.entries()) {
      // The end of one long document is held out, which takes pieces that are small enough.
      const hasEnd = kindOf(source) === 'text' && separator === undefined && validation > 0;
      const size = hasEnd ? Math.min(pieceBytes, Math.max(MIN_PIECE_BYTES, (validation * sizes[i]) / 2)) : pieceBytes;
      const done = bytes;
      let lines = 0;
      let offset = 0;
      const finish = async (/** @type {Job} */ { read, length, result }) => {
        const { encoded, failed } = await result;
        if (failed) throw new Error(`${source}${placeOf(failed, lines, offset)}: ${failed.message}`);
        await train.append(encoded.train);
        await heldOut.append(encoded.validation);
        documents += encoded.documents;
        lines += encoded.lines;
        offset += length;
        bytes = done + read;
        onProgress?.({ bytes, totalBytes, tokens: train.tokens() + heldOut.tokens(), documents });
      };
      /** Pieces under way, oldest first. @type {Job[]} */
      const jobs = [];
      let begins = 0;
      for await (const piece of piecesOf(source, { separator, field, pieceBytes: size, cuts: tokenizer.cutsBeforeLineFeed })) {
        signal?.throwIfAborted();
        const held = hasEnd && begins > 0 && piece.read > (1 - validation) * sizes[i];
        begins = piece.read;
        const { read, bytes: { length } = { length: 0 } } = piece;
        jobs.push({ read, length, result: threads.encode(piece, { separator, field, validation, replaceInvalid, held }) });
        if (jobs.length > 2 * threads.count) await finish(/** @type {Job} */ (jobs.shift()));
      }
      for (const job of jobs) await finish(job);
      bytes = done + sizes[i];
    }
    signal?.throwIfAborted();
    /** @type {import('./dataset.mjs').CorpusInfo} */
    const info = {
      version: 1,
      tokenizer: { sha256: digestOf(options.tokenizer), vocabSize: tokenizer.vocabSize, eos: tokenizer.special.eos ?? null },
      documents,
      bytes,
      sources: files,
      shards: { train: await train.end(), validation: await heldOut.end() },
    };
    await writeFile(join(folder, META), `${JSON.stringify(info, null, 2)}\n`, { flush: true });
    return info;
  } catch (error) {
    await train.abandon();
    await heldOut.abandon();
    throw error;
  } finally {
    threads.end();
  }
}

/** Where in a file a fault is. @param {Failure} failed @param {number} lines before the piece @param {number} offset bytes before it */
function placeOf({ at }, lines, offset) {
  if (at?.line !== undefined) return `, line ${lines + at.line}`;
  return at?.byte === undefined ? '' : `, byte ${offset + at.byte}`;
}

/** The digest of a file, or of a folder's tokenizer. @param {string} path */
function digestOf(path) {
  const file = statSync(path).isDirectory() ? join(path, 'tokenizer.json') : path;
  return createHash('sha256').update(readFileSync(file)).digest('hex');
}

/**
 * Writes ids into shards of at most so many tokens.
 * @param {string} folder @param {string} name @param {number} bytes of an id @param {number} most tokens of a shard
 */
function shardWriter(folder, name, bytes, most) {
  /** @type {{ file: string, tokens: number, sha256: string }[]} */
  const done = [];
  /** @type {Awaited<ReturnType<typeof createShard>> | undefined} */
  let shard;
  let finished = 0;
  const file = () => `${name}-${String(done.length).padStart(5, '0')}.bin`;
  const end = async () => {
    if (!shard) return;
    const ended = shard;
    shard = undefined;
    done.push({ file: file(), ...(await ended.end()) });
    finished += done[done.length - 1].tokens;
  };
  return {
    tokens: () => finished + (shard?.tokens ?? 0),
    /** @param {Uint32Array} ids */
    async append(ids) {
      for (let at = 0; at < ids.length; ) {
        shard ??= await createShard(join(folder, file()), bytes);
        const taken = Math.min(ids.length - at, most - shard.tokens);
        await shard.append(ids.subarray(at, at + taken));
        at += taken;
        if (shard.tokens === most) await end();
      }
    },
    async end() {
      await end();
      return done;
    },
    async abandon() {
      await shard?.abandon().catch(() => {});
      shard = undefined;
    },
  };
}

/**
 * Threads that encode pieces. One more starts while pieces wait, up to `count`.
 * @param {number} count @param {{ module: string, tokenizer: string }} workerData
 */
function startThreads(count, workerData) {
  /** @typedef {{ number: number, message: object, transfer: ArrayBuffer[], resolve: (result: Result) => void }} Request */
  /** @type {Request[]} */
  const waiting = [];
  /** @type {{ worker: Worker, request: Request | undefined, ready: boolean }[]} */
  const threads = [];
  let number = 0;
  const hand = () => {
    for (const thread of threads) {
      if (!thread.ready || thread.request) continue;
      const request = waiting.shift();
      if (!request) return;
      thread.request = request;
      thread.worker.postMessage(request.message, request.transfer);
    }
    if (waiting.length > 0 && threads.length < count && threads.every(({ ready }) => ready)) start();
  };
  const start = () => {
    const worker = new Worker(new URL('./worker.mjs', import.meta.url), { workerData, execArgv: [] });
    /** @type {(typeof threads)[number]} */
    const thread = { worker, request: undefined, ready: false };
    threads.push(thread);
    worker.on('message', (message) => {
      if (message.ready) thread.ready = true;
      else {
        thread.request?.resolve(message);
        thread.request = undefined;
      }
      hand();
    });
    worker.on('error', (error) => {
      const failed = { message: `a thread that encodes has ended: ${error.message}` };
      for (const request of [thread.request, ...waiting.splice(0)]) request?.resolve({ failed });
      thread.request = undefined;
    });
  };
  return {
    count,
    /** @param {import('./pieces.mjs').Piece} piece @param {object} options @returns {Promise<Result>} */
    encode(piece, options) {
      return new Promise((resolve) => {
        const transfer = piece.bytes ? [piece.bytes.buffer] : [];
        waiting.push({ number: ++number, message: { number, piece, options }, transfer, resolve });
        hand();
      });
    },
    end() {
      for (const { worker } of threads) void worker.terminate();
    },
  };
}
