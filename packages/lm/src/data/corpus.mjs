// Encodes text into shards of token ids. Pieces of the text are read in order, encoded by worker threads, and written in order, so the files
// do not depend on the number of threads.

import { createHash } from 'node:crypto';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';

import { checkNewFolder, makeFolder, writeJson } from '../folder.mjs';
import { isGguf } from '../formats/gguf.mjs';
import { loadTokenizer } from '../tokenizer/index.mjs';
import { checkNames } from '../options.mjs';
import { META } from './dataset.mjs';
import { resultOf } from './encode.mjs';
import { PIECE_BYTES, filesOf, kindOf, piecesOf, textBytes } from './pieces.mjs';
import { createShard, idBytes } from './shards.mjs';

/** The least bytes of a piece if the end of a text is held out. */
const MIN_PIECE_BYTES = 4096;

/** Files of fewer bytes together are encoded in the calling thread: a worker thread starts, and compiles the tokenizer's code, in that time. */
const MIN_THREADED_BYTES = 2 ** 22;

const TOKENIZER_MODULE = new URL('../tokenizer/load.mjs', import.meta.url).href;

/**
 * @typedef {object} Progress
 * @property {number} bytes of the input files that have been encoded
 * @property {number} totalBytes of all input files
 * @property {number} tokens written so far
 * @property {number} documents encoded so far
 *
 * @typedef {object} CorpusOptions
 * @property {string[]} inputs files and folders: plain text, JSONL or Parquet; text and JSONL may be compressed (`.gz`)
 * @property {string} tokenizer a folder or file that `loadTokenizer` reads
 * @property {string} output the folder to create; it must not exist, or be empty
 * @property {number} [validation] the share to hold out, in [0, 1); 0.005 when left out. Documents are chosen by a hash of their text. Of a
 *   plain text without a separator the end is held out, but nothing if the text is too short, or if the tokenizer cannot encode it in parts
 * @property {string} [separator] the string between two documents of a plain text; without it, a file is one document
 * @property {string} [field] the field of a JSONL line, or the column of a Parquet file, that holds the text; `text` when left out
 * @property {boolean} [replaceInvalid] whether to replace invalid UTF-8 by U+FFFD instead of throwing; false when left out
 * @property {number} [shardTokens] tokens per file; 1e8 when left out, as in llm.c
 * @property {number} [workers] number of worker threads; 0 encodes in the calling thread. When left out, one per processor, and none for files
 *   of less than 4 MiB
 * @property {number} [pieceBytes] bytes that a worker encodes at a time; 8 MiB when left out
 * @property {string} [tokenizerModule] the URL of a module that exports another `loadTokenizer`, for other kinds of tokenizers
 * @property {AbortSignal} [signal] ends the call with an AbortError; nothing is left behind
 * @property {(progress: Progress) => void} [onProgress] called after each piece
 */

/** Names of options that `prepareText` has too. */
export const CORPUS_OPTIONS = [
  ...['tokenizer', 'validation', 'separator', 'field', 'replaceInvalid', 'shardTokens', 'workers', 'signal', 'onProgress'],
];

/**
 * A piece being encoded: `read` as in `Piece`, and the number of its bytes.
 * @typedef {{ read: number, length: number, result: Promise<import('./encode.mjs').Result> }} Job
 */

/**
 * Encodes text into a folder of token files that `openDataset` reads. Memory use does not grow with the size of the text. The folder appears
 * once it is complete, or not at all. The tokenizer's `eos` follows every document, if it has one.
 * @param {CorpusOptions} options
 * @returns {Promise<import('./dataset.mjs').CorpusInfo>} what was written
 * @throws {Error} that names the file and the line or byte, for text that cannot be read; {RangeError} for invalid options
 */
export async function tokenizeCorpus(options) {
  const { inputs, tokenizer: tokenizerPath, output, signal } = options;
  checkNames('tokenizeCorpus', options, ['inputs', 'output', 'pieceBytes', 'tokenizerModule', ...CORPUS_OPTIONS]);
  checkCorpusOptions(options);
  const files = filesOf(inputs);
  checkNewFolder(output, [...inputs, tokenizerPath]);
  signal?.throwIfAborted();
  const module = options.tokenizerModule ?? TOKENIZER_MODULE;
  const { loadTokenizer } = await import(module);
  const tokenizer = await loadTokenizer(tokenizerPath);
  return makeFolder(output, (folder) => writeCorpus(folder, files, tokenizer, options));
}

/**
 * Checks the options that do not name files. Throws a RangeError.
 * @param {Pick<CorpusOptions, 'inputs' | 'validation' | 'shardTokens' | 'separator' | 'workers'>} options
 */
export function checkCorpusOptions({ inputs, validation = 0.005, shardTokens = 1e8, separator, workers = 0 }) {
  if (!(validation >= 0 && validation < 1)) throw new RangeError(`validation is a share from 0 to less than 1, got ${validation}`);
  if (!(Number.isInteger(shardTokens) && shardTokens > 0 && shardTokens < 2 ** 31)) {
    throw new RangeError(`shardTokens is an integer from 1 to 2147483647, got ${shardTokens}`);
  }
  if (separator === '') throw new RangeError('separator is empty');
  if (!(Number.isInteger(workers) && workers >= 0)) throw new RangeError(`workers is an integer of at least 0, got ${workers}`);
  if (inputs.length === 0) throw new RangeError('no inputs');
}

/**
 * Writes the files of a corpus.
 * @param {string} folder @param {string[]} files
 * @param {Pick<import('../tokenizer/load.mjs').Tokenizer, 'vocabSize' | 'special' | 'cut' | 'encode'>} tokenizer what the module of
 *   `options.tokenizerModule` loads from `options.tokenizer`
 * @param {Omit<CorpusOptions, 'inputs' | 'output'>} options
 * @param {Pick<import('./dataset.mjs').CorpusInfo, 'prepared'>} [extra] what else `meta.json` says
 * @returns {Promise<import('./dataset.mjs').CorpusInfo>}
 */
export async function writeCorpus(folder, files, tokenizer, options, extra) {
  const { validation = 0.005, shardTokens = 1e8, pieceBytes = PIECE_BYTES, separator, field, replaceInvalid, signal, onProgress } = options;
  const sha256 = digestOf(options.tokenizer);
  const sizes = files.map((path) => statSync(path).size);
  const totalBytes = sizes.reduce((a, b) => a + b, 0);
  const [train, heldOut] = ['train', 'validation'].map((name) => shardWriter(folder, name, idBytes(tokenizer.vocabSize), shardTokens));
  const workers = options.workers ?? (totalBytes < MIN_THREADED_BYTES ? 0 : availableParallelism());
  const module = options.tokenizerModule ?? TOKENIZER_MODULE;
  const threads = workers === 0 ? callingThread(tokenizer) : startThreads(workers, { module, tokenizer: options.tokenizer });
  let documents = 0;
  let bytes = 0;
  let separated = separator === undefined;
  try {
    for (const [i, source] of files.entries()) {
      // Whole pieces at the end of one long document are held out, so pieces must be small enough for that share.
      const hasEnd = kindOf(source) === 'text' && separator === undefined && validation > 0;
      const whole = hasEnd ? await textBytes(source) : 0;
      const size = hasEnd ? Math.min(pieceBytes, Math.max(MIN_PIECE_BYTES, Math.ceil((validation * whole) / 2))) : pieceBytes;
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
      /** Pieces being encoded, oldest first. @type {Job[]} */
      const jobs = [];
      let begins = 0;
      for await (const piece of piecesOf(source, { separator, field, pieceBytes: size, cut: tokenizer.cut })) {
        signal?.throwIfAborted();
        const { read, bytes: { length } = { length: 0 } } = piece;
        const held = hasEnd && begins > 0 && begins + length > (1 - validation) * whole;
        begins += length;
        separated ||= piece.kind !== 'text' || Buffer.from(piece.bytes ?? []).includes(/** @type {string} */ (separator));
        jobs.push({ read, length, result: threads.encode(piece, { separator, field, validation, replaceInvalid, held }) });
        if (jobs.length > 2 * threads.count) await finish(/** @type {Job} */ (jobs.shift()));
      }
      for (const job of jobs) await finish(job);
      bytes = done + sizes[i];
    }
    signal?.throwIfAborted();
    if (documents === 0) throw new Error(`no text in ${listed(files)}`);
    if (!separated) throw new Error(`the separator ${JSON.stringify(separator)} is nowhere in ${listed(files)}`);
    /** @type {import('./dataset.mjs').CorpusInfo} */
    const info = {
      version: 1,
      tokenizer: { sha256, json: jsonDigestOf(options.tokenizer), vocabSize: tokenizer.vocabSize, eos: tokenizer.special.eos ?? null },
      documents,
      bytes,
      sources: files,
      shards: { train: await train.end(), validation: await heldOut.end() },
      ...extra,
    };
    await writeJson(join(folder, META), info);
    return info;
  } catch (error) {
    await train.abandon();
    await heldOut.abandon();
    throw error;
  } finally {
    threads.end();
  }
}

/** @param {string[]} files */
const listed = (files) => `${files.slice(0, 3).join(', ')}${files.length > 3 ? ' …' : ''}`;

/**
 * The place of a fault in a file, for the error.
 * @param {import('./encode.mjs').Failure} failed @param {number} lines before the piece @param {number} offset bytes before it
 */
function placeOf({ at }, lines, offset) {
  if (at?.line !== undefined) return `, line ${lines + at.line}`;
  return at?.byte === undefined ? '' : `, byte ${offset + at.byte}`;
}

/** The SHA-256 of a tokenizer's file, of `tokenizer.json` in a folder, or of that which a GGUF file stands for. @param {string} path */
export const digestOf = (path) => createHash('sha256').update(contentsOf(path)).digest('hex');

/** @param {string} path as for `digestOf` */
function contentsOf(path) {
  if (isGguf(path)) return loadTokenizer(path).files()['tokenizer.json'];
  const file = statSync(path, { throwIfNoEntry: false })?.isDirectory() ? join(path, 'tokenizer.json') : path;
  if (!existsSync(file)) throw new Error(`${file} does not exist; a tokenizer is a folder with tokenizer.json, or that file`);
  return readFileSync(file);
}

/**
 * Writes ids into numbered shards, and begins a new one when a shard is full.
 * @param {string} folder @param {string} name @param {number} bytes per id @param {number} most tokens per shard
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

/** What `startThreads` returns, for the calling thread alone. @param {Parameters<typeof resultOf>[0]} tokenizer @returns {ReturnType<typeof startThreads>} */
function callingThread(tokenizer) {
  return {
    count: 0,
    async encode(piece, options) {
      // Other work of this thread comes in between two pieces.
      await setImmediate();
      return resultOf(tokenizer, piece, options);
    },
    end() {},
  };
}

/**
 * A pool of worker threads that encode pieces. It starts another thread, up to `count`, while pieces wait and all threads are ready.
 * @param {number} count @param {{ module: string, tokenizer: string }} workerData
 */
function startThreads(count, workerData) {
  /** @typedef {{ message: object, transfer: ArrayBuffer[], resolve: (result: import('./encode.mjs').Result) => void }} Request */
  /** @type {Request[]} */
  const waiting = [];
  /** @type {{ worker: Worker, request: Request | undefined, ready: boolean }[]} */
  const threads = [];
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
    /** @param {import('./pieces.mjs').Piece} piece @param {object} options @returns {Promise<import('./encode.mjs').Result>} */
    encode(piece, options) {
      return new Promise((resolve) => {
        const transfer = piece.bytes ? [piece.bytes.buffer] : [];
        waiting.push({ message: { piece, options }, transfer, resolve });
        hand();
      });
    },
    end() {
      for (const { worker } of threads) void worker.terminate();
    },
  };
}

/**
 * Whether a corpus was encoded by a tokenizer: by that file, or by one that differs in its white space, since programs that write the same
 * tokenizer indent it differently.
 * @param {import('./dataset.mjs').CorpusInfo} info of the corpus @param {string} path `tokenizer.json`, or a folder that has it
 */
export const isTokenizerOf = ({ tokenizer }, path) =>
  digestOf(path) === tokenizer.sha256 || (tokenizer.json !== undefined && jsonDigestOf(path) === tokenizer.json);

/** The SHA-256 of a tokenizer's JSON without white space; undefined for files of other forms. @param {string} path as for `digestOf` */
function jsonDigestOf(path) {
  try {
    return createHash('sha256')
      .update(JSON.stringify(JSON.parse(String(contentsOf(path)))))
      .digest('hex');
  } catch {
    return undefined;
  }
}
