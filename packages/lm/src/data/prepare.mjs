// From text files to a folder that training reads: a tokenizer and its ids, made once and used again as long as the text is the same.

import { createHash } from 'node:crypto';
import { cpSync, createReadStream, existsSync, readdirSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';

import { checkNewFolder, copyThere, makeFolder, writeFiles } from '../folder.mjs';
import { checkNames } from '../options.mjs';
import { trainTokenizer } from '../tokenizer/index.mjs';
import { TOKENIZER_FILES, loadTokenizer } from '../tokenizer/load.mjs';
import { isGguf } from '../formats/gguf.mjs';
import { CORPUS_OPTIONS, checkCorpusOptions, digestOf, writeCorpus } from './corpus.mjs';
import { META, readCorpusInfo } from './dataset.mjs';
import { TextError, textsOf } from './encode.mjs';
import { filesOf, kindOf, piecesOf } from './pieces.mjs';
import { openShard } from './shards.mjs';

/** Bytes that a tokenizer is trained on: more hardly change its merges. */
const SAMPLE_BYTES = 2 ** 25;
const WINDOW_BYTES = 2 ** 20;
const END_OF_TEXT = '<|endoftext|>';
const [MIN_VOCAB, MAX_VOCAB] = [512, 2 ** 15];

/**
 * @typedef {import('./dataset.mjs').Prepared} Prepared
 *
 * @typedef {object} PrepareProgress
 * @property {'tokenizer' | 'encode'} stage what is done: a tokenizer is trained, then text is encoded
 * @property {number} bytes done: of text for the tokenizer, of the input files for encoding
 * @property {number} totalBytes about how many there are
 * @property {number} [tokens] written so far
 * @property {number} [documents] encoded so far
 *
 * @typedef {object} PrepareOptions
 * @property {string} out the folder to make, or to use again
 * @property {string} [tokenizer] a folder or file that `loadTokenizer` reads, also a GGUF file; one is trained when left out
 * @property {number} [vocabSize] the most ids of the tokenizer to train; `defaultVocabSize` of the text when left out
 * @property {number} [sampleBytes] about the most bytes of text that it is trained on, in windows of 1 MiB that are spread over the files; 32
 *   MiB when left out
 * @property {number} [validation] the share to hold out, in [0, 1), as in `tokenizeCorpus`; 0.05 when left out
 * @property {string} [separator] @property {string} [field] @property {boolean} [replaceInvalid] @property {number} [shardTokens] as in
 *   `tokenizeCorpus`
 * @property {number} [workers] as in `tokenizeCorpus`
 * @property {boolean} [remake] whether to make the folder again if it was made from other text or with other options, which is an error otherwise
 * @property {AbortSignal} [signal] ends the call with an AbortError; nothing is left behind
 * @property {(progress: PrepareProgress) => void} [onProgress]
 */

/**
 * The size of a vocabulary that a text can teach: the power of two nearest to twice the square root of its bytes, from 512 to 32,768. By Zipf's
 * law the rarest tokens then occur some ten times: 2,048 for a novel of 1 MB, 8,192 for 10 MB.
 * @param {number} bytes of UTF-8
 */
export const defaultVocabSize = (bytes) =>
  Math.min(MAX_VOCAB, Math.max(MIN_VOCAB, 2 ** Math.round(Math.log2(2 * Math.sqrt(Math.max(1, bytes))))));

/**
 * Makes a folder to train on from text, JSONL or Parquet: `tokenizer.json` with its companions, files of ids and `meta.json`, so that both
 * `loadTokenizer` and `openDataset` read it. The tokenizer is a byte-level BPE with GPT-2's words and one special token, `<|endoftext|>`. The
 * folder appears once it is complete, or not at all.
 *
 * A folder that was made from the same text with the same options is used again: files of equal path, size and time of change are the same,
 * else their SHA-256 decides. If something differs, that is an error, because checkpoints that were trained on the folder know only its ids;
 * with `remake`, the new folder replaces the old one.
 * @param {string[]} inputs files and folders, as in `tokenizeCorpus`
 * @param {PrepareOptions} options
 * @returns {Promise<{ folder: string, tokenizer: import('../tokenizer/load.mjs').Tokenizer, info: import('./dataset.mjs').CorpusInfo, reused: boolean }>}
 * @throws {Error} that names the file and the line or byte, for text that cannot be read; with the code `ERR_PREPARED_DIFFERS` for a folder that
 *   was made from something else; {RangeError} for invalid options
 */
export async function prepareText(inputs, options) {
  const { out, tokenizer: given, vocabSize, validation = 0.05, sampleBytes = SAMPLE_BYTES, remake = false, signal } = options;
  checkNames('prepareText', options, ['out', 'vocabSize', 'sampleBytes', 'remake', ...CORPUS_OPTIONS]);
  checkCorpusOptions({ ...options, inputs, validation });
  if (given !== undefined && vocabSize !== undefined)
    throw new RangeError('vocabSize is for a tokenizer to train, and tokenizer names one');
  if (vocabSize !== undefined && !(Number.isInteger(vocabSize) && vocabSize > 256)) {
    throw new RangeError(`vocabSize is an integer of at least 257 (256 bytes and ${END_OF_TEXT}), got ${vocabSize}`);
  }
  if (!(Number.isInteger(sampleBytes) && sampleBytes > 0))
    throw new RangeError(`sampleBytes is an integer of at least 1, got ${sampleBytes}`);
  const files = filesOf(inputs);
  /** @type {Prepared['options']} */
  const wanted = {
    tokenizer: given === undefined ? null : digestOf(given),
    vocabSize: vocabSize ?? null,
    validation,
    separator: options.separator ?? null,
    field: options.field ?? 'text',
    replaceInvalid: options.replaceInvalid ?? false,
    shardTokens: options.shardTokens ?? 1e8,
    sampleBytes,
  };
  const old = preparedIn(out);
  if (old !== undefined) {
    const difference = damageOf(out, old) ?? (await differenceOf(old, files, wanted, signal));
    if (difference === undefined) return { folder: out, tokenizer: loadTokenizer(out), info: old, reused: true };
    if (!remake) {
      const error = new Error(`${out}: ${difference}; checkpoints may depend on it: name another folder, or have it made again (remake)`);
      throw Object.assign(error, { code: 'ERR_PREPARED_DIFFERS' });
    }
    checkOwn(out, old);
  }
  checkNewFolder(out, given === undefined ? inputs : [...inputs, given], { replace: old !== undefined });
  signal?.throwIfAborted();
  return makeFolder(out, (folder) => prepare(folder, files, wanted, options), { replace: old !== undefined });
}

/**
 * Fills the folder.
 * @param {string} folder @param {string[]} files @param {Prepared['options']} wanted @param {PrepareOptions} options
 */
async function prepare(folder, files, wanted, options) {
  const { out, tokenizer: given, validation = 0.05, signal, onProgress } = options;
  const stats = files.map((path) => statSync(path));
  /** @type {string[]} */
  const digests = [];
  for (const path of files) digests.push(await sha256Of(path, signal));
  const tokenizer = given === undefined ? await trainOn(files, options) : loadTokenizer(given);
  signal?.throwIfAborted();
  if (given === undefined || isGguf(given)) await writeFiles(folder, tokenizer.files());
  else copyTokenizer(given, folder);
  /** @type {Prepared} */
  const prepared = {
    version: 1,
    inputs: files.map((path, i) => ({ path: resolve(path), bytes: stats[i].size, modified: stats[i].mtimeMs, sha256: digests[i] })),
    options: wanted,
    // The mark of a partial folder is hidden, and goes.
    files: readdirSync(folder).filter((name) => name[0] !== '.'),
  };
  const info = await writeCorpus(
    folder,
    files,
    tokenizer,
    { ...options, validation, tokenizer: folder, onProgress: (progress) => onProgress?.({ stage: 'encode', ...progress }) },
    { prepared },
  );
  for (const [i, path] of files.entries()) {
    const { size, mtimeMs } = statSync(path);
    if (size !== stats[i].size || mtimeMs !== stats[i].mtimeMs) throw new Error(`${path} has changed while it was read`);
  }
  return { folder: out, tokenizer, info, reused: false };
}

/**
 * Trains a tokenizer on a sample of the files.
 * @param {string[]} files @param {PrepareOptions} options
 */
async function trainOn(files, { separator, field, vocabSize, sampleBytes = SAMPLE_BYTES, signal, onProgress }) {
  const sizes = files.map((path) => statSync(path).size);
  const total = sizes.reduce((a, b) => a + b, 0);
  const totalBytes = Math.min(total, sampleBytes);
  /** @type {string[]} */
  const texts = [];
  let [readBytes, textBytes] = [0, 0];
  for (const [i, path] of files.entries()) {
    // Only a file without compression can be read from anywhere; of the others, the beginning is read.
    const isPacked = kindOf(path) === 'parquet' || /\.gz$/i.test(path);
    const share = sampleBytes * (sizes[i] / total);
    const windows = isPacked || total <= sampleBytes ? 1 : Math.max(1, Math.ceil(share / WINDOW_BYTES));
    const most = isPacked || total > sampleBytes ? share / windows : Infinity;
    for (let window = 0; window < windows; window++) {
      const start = Math.floor((window * sizes[i]) / windows);
      const before = textBytes;
      let read = 0;
      try {
        // A line feed is as good as any other end of a window of plain text, and most texts have one.
        const pieceBytes = Math.min(WINDOW_BYTES, Math.ceil(most));
        for await (const piece of piecesOf(path, { separator: separator ?? '\n', field, start, pieceBytes })) {
          signal?.throwIfAborted();
          if (start > 0 && read === 0 && piece.bytes) piece.bytes = piece.bytes.subarray(piece.bytes.indexOf(10) + 1);
          for (const text of textsOf(piece, { separator, field, replaceInvalid: true })) {
            const part = text.length > most ? text.slice(0, most) : text;
            texts.push(part);
            textBytes += Buffer.byteLength(part);
          }
          readBytes += piece.read - read;
          read = piece.read;
          onProgress?.({ stage: 'tokenizer', bytes: Math.min(textBytes, totalBytes), totalBytes });
          if (textBytes > before && textBytes - before + pieceBytes > most) break;
        }
      } catch (error) {
        // Encoding finds it again, and can say where it is.
        if (!(error instanceof TextError)) throw error;
      }
    }
  }
  return trainTokenizer(texts, {
    vocabSize: vocabSize ?? defaultVocabSize((textBytes * total) / Math.max(1, readBytes)),
    special: { eos: END_OF_TEXT },
    // A pair that occurs once teaches nothing.
    minFrequency: 2,
  });
}

/** Copies a tokenizer byte for byte, so that its digest stays. @param {string} from a folder or file @param {string} folder */
function copyTokenizer(from, folder) {
  const isFolder = statSync(from).isDirectory();
  cpSync(isFolder ? join(from, 'tokenizer.json') : from, join(folder, 'tokenizer.json'));
  copyThere(isFolder ? from : dirname(from), folder, TOKENIZER_FILES);
}

/** @param {string} path @param {AbortSignal} [signal] */
async function sha256Of(path, signal) {
  const hash = createHash('sha256');
  for await (const part of createReadStream(path, { highWaterMark: 2 ** 20 })) {
    signal?.throwIfAborted();
    hash.update(part);
  }
  return hash.digest('hex');
}

/** The description of a folder that `prepareText` made; undefined for another folder, and if there is none. @param {string} folder */
function preparedIn(folder) {
  if (!existsSync(join(folder, META))) return undefined;
  const info = readCorpusInfo(folder);
  return info.prepared === undefined ? undefined : { ...info, prepared: info.prepared };
}

/**
 * What has changed in the folder since it was made.
 * @param {string} folder @param {import('./dataset.mjs').CorpusInfo} info
 * @returns {string | undefined} undefined if nothing has
 */
function damageOf(folder, info) {
  if (!existsSync(join(folder, 'tokenizer.json'))) return 'tokenizer.json is missing';
  if (digestOf(folder) !== info.tokenizer.sha256) return 'tokenizer.json is not the one that the ids were made with';
  for (const { file, tokens } of [...info.shards.train, ...info.shards.validation]) {
    if (!existsSync(join(folder, file))) return `${file} is missing`;
    try {
      const shard = openShard(join(folder, file));
      shard.close();
      if (shard.tokens !== tokens) return `${file} has ${shard.tokens} tokens, and ${META} says ${tokens}`;
    } catch (error) {
      return /** @type {Error} */ (error).message;
    }
  }
  return undefined;
}

/**
 * How what the folder was made from differs from what is wanted.
 * @param {{ prepared: Prepared }} old @param {string[]} files @param {Prepared['options']} wanted @param {AbortSignal} [signal]
 * @returns {Promise<string | undefined>} undefined if it does not
 */
async function differenceOf({ prepared }, files, wanted, signal) {
  if (prepared.version !== 1) return `it has version ${prepared.version} of what it was made from, and 1 is known`;
  for (const [name, value] of Object.entries(wanted)) {
    const before = prepared.options[name] ?? null;
    if (before === value) continue;
    if (name === 'tokenizer') return 'it was made with another tokenizer';
    const say = (/** @type {unknown} */ each) => (each === null ? 'left out' : JSON.stringify(each));
    return `it was made with ${name} ${say(before)}, and ${name} is ${say(value)} now`;
  }
  if (prepared.inputs.length !== files.length) return `it was made from ${prepared.inputs.length} files, and there are ${files.length} now`;
  for (const [i, path] of files.entries()) {
    const before = prepared.inputs[i];
    const { size, mtimeMs } = statSync(path);
    const isSame = before.path === resolve(path) && before.modified === mtimeMs;
    if (before.bytes === size && (isSame || (await sha256Of(path, signal)) === before.sha256)) continue;
    return basename(before.path) === basename(path) ? `${path} has changed since` : `it was made from ${before.path}, not from ${path}`;
  }
  return undefined;
}

/** Checks that a folder to replace has nothing but what `prepareText` wrote. @param {string} folder @param {NonNullable<ReturnType<typeof preparedIn>>} info */
function checkOwn(folder, { prepared, shards }) {
  const own = new Set([META, ...prepared.files, ...[...shards.train, ...shards.validation].map(({ file }) => file)]);
  const foreign = readdirSync(folder).find((name) => !own.has(name));
  if (foreign !== undefined)
    throw new Error(`${folder} cannot be made again: it has ${foreign}, which would be lost; move it, or name another folder`);
}
