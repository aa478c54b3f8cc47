/**
 * Encodes text as token ids, and decodes ids.
 *
 * With a vocabulary of 256 the tokens are bytes. A larger one is byte-level BPE (Radford et al., 2019), which Hugging Face's
 * `tokenizers` trains on the given text, or on a sample of a long one.
 */

import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { BytePairEncoder } from './bpe.mjs';
import { notWritten } from 'helios-vk/files';

/**
 * @typedef {object} Tokenizer
 * @property {number} size number of different ids
 * @property {(text: string | Uint8Array) => Promise<Uint32Array>} encode bytes are UTF-8
 * @property {(ids: ArrayLike<number>) => string} decode bytes that are not UTF-8 become U+FFFD
 * @property {TokenizerState} state what `restoreTokenizer` makes the same tokenizer from
 *
 * @typedef {{kind: 'byte'} | {kind: 'bpe', merges: [string, string][]}} TokenizerState
 */

/** The largest vocabulary that the library can train. */
export const LARGEST_BPE_VOCAB = 30000;

const TRAIN_BPE = fileURLToPath(new URL('./train-bpe.mjs', import.meta.url));

/**
 * Most bytes that a tokenizer is trained on. Of a longer text these are pieces from all over it, each on a line of its own: the library
 * needs memory for what it is given, and the more the longer its lines are.
 */
const MAX_TRAINING = 1 << 27;

/** Bytes of such a piece. */
const PIECE = 1 << 16;

/**
 * Trains a tokenizer on a text.
 * @param {string | Uint8Array} text bytes are UTF-8
 * @param {number} vocab 256 for bytes; more for BPE with at most that many ids (fewer where the text does not yield as many merges)
 * @returns {Promise<Tokenizer>}
 */
export async function trainTokenizer(text, vocab) {
  if (vocab === 256) return byteTokenizer();
  if (vocab < 256 || vocab > LARGEST_BPE_VOCAB) {
    throw new RangeError(`vocab must be 256 (bytes) or up to ${LARGEST_BPE_VOCAB} (BPE), got ${vocab}`);
  }
  await checkLibrary();
  // The library reads and writes only files, and always trains its own largest vocabulary. BPE is greedy: the first merges of a larger
  // vocabulary are those of a smaller one.
  const folder = await mkdtemp(join(tmpdir(), 'helios-vk-bpe-'));
  try {
    const textFile = join(folder, 'text.txt');
    const modelFile = join(folder, 'tokenizer.json');
    await writeFile(textFile, shortWords(trainingText(text))).catch((error) => {
      throw notWritten(textFile, error);
    });
    await promisify(execFile)(process.execPath, [TRAIN_BPE, textFile, modelFile]);
    /** @type {{model: {merges: ([string, string] | string)[]}}} */
    const { model } = JSON.parse(await readFile(modelFile, 'utf8'));
    /** @type {[string, string][]} */
    const merges = [];
    const known = new Set(byteSymbols());
    for (const merge of model.merges) {
      if (known.size >= vocab) break;
      const [left, right] = typeof merge === 'string' ? merge.split(' ') : merge;
      merges.push([left, right]);
      known.add(left + right);
    }
    return bpeTokenizer(merges);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Makes the tokenizer of a checkpoint.
 * @param {TokenizerState} state
 * @returns {Promise<Tokenizer>}
 */
export async function restoreTokenizer(state) {
  if (state?.kind === 'byte') return byteTokenizer();
  if (state?.kind === 'bpe') return bpeTokenizer(state.merges);
  throw new TypeError(`unknown kind of tokenizer: ${JSON.stringify(/** @type {any} */ (state)?.kind)}`);
}

/** Names the missing package, before the child process fails for lack of it. */
async function checkLibrary() {
  try {
    await import('tokenizers');
  } catch (cause) {
    throw new Error('training BPE needs the npm package "tokenizers": run npm install; a vocabulary of 256 does not need it', { cause });
  }
}

/**
 * Decodes UTF-8, with U+FFFD for what is not UTF-8. `ignoreBOM` keeps a leading U+FEFF, which is a character of the text: without it
 * decoding would not give back what was encoded.
 * @param {Uint8Array} bytes
 */
const textOf = (bytes) => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);

/** @returns {Tokenizer} */
function byteTokenizer() {
  return {
    size: 256,
    encode: async (text) => new Uint32Array(typeof text === 'string' ? new TextEncoder().encode(text) : text),
    decode: (ids) => textOf(Uint8Array.from(ids)),
    state: { kind: 'byte' },
  };
}

/**
 * GPT-2's printable character for each byte: a printable Latin-1 character stands for itself; the other bytes become the characters from
 * U+0100 on, in order.
 */
function byteSymbols() {
  const symbols = [];
  let next = 0x100;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    symbols.push(String.fromCharCode(printable ? byte : next++));
  }
  return symbols;
}

/**
 * @param {[string, string][]} merges in the order of training
 * @returns {Tokenizer}
 */
function bpeTokenizer(merges) {
  const symbols = byteSymbols();
  /** @type {Record<string, number>} */
  const vocab = Object.create(null);
  /** @type {Uint8Array[]} bytes of each id */
  const bytes = [];
  symbols.forEach((symbol, byte) => {
    vocab[symbol] = byte;
    bytes.push(Uint8Array.of(byte));
  });
  /** @type {[number, number, number][]} */
  const ranked = [];
  for (const [left, right] of merges) {
    const token = left + right;
    if (!(left in vocab) || !(right in vocab))
      throw new TypeError(`merge ${JSON.stringify([left, right])} is of tokens that no earlier merge made`);
    if (!(token in vocab)) {
      vocab[token] = bytes.length;
      bytes.push(Buffer.concat([bytes[vocab[left]], bytes[vocab[right]]]));
    }
    ranked.push([vocab[left], vocab[right], vocab[token]]);
  }
  const encoder = new BytePairEncoder(ranked);
  return {
    size: bytes.length,
    encode: async (text) => encoder.encode(text),
    decode: (ids) =>
      textOf(
        Buffer.concat(
          // Ids beyond the tokenizer's size can only come from a model that pads its vocabulary.
          Array.from(ids, (id) => bytes[id] ?? Buffer.from('\ufffd')),
        ),
      ),
    state: { kind: 'bpe', merges },
  };
}

/**
 * The part of a text that a tokenizer is trained on: all of it, or pieces of a long one.
 * @param {string | Uint8Array} text
 * @param {number} [most] bytes at most
 * @returns {string | Uint8Array | Generator<Uint8Array>}
 */
export function trainingText(text, most = MAX_TRAINING) {
  if (typeof text === 'string' || text.length <= most) return text;
  return (function* () {
    const pieces = Math.max(1, Math.floor(most / PIECE));
    const [length, stride] = [Math.min(PIECE, most), text.length / pieces];
    for (let i = 0; i < pieces; i++) {
      const start = characterAt(text, Math.floor(i * stride));
      yield text.subarray(start, characterAt(text, start + length));
      yield NEWLINE;
    }
  })();
}

const NEWLINE = Buffer.from('\n');

/** Bytes of the longest word that a tokenizer is trained on: the library's time grows with the square of a word's length. */
const MAX_TRAINED_WORD = 2048;

/** Whether a byte is ASCII white space. @param {number} byte */
const isWhite = (byte) => byte === 0x20 || (byte >= 0x09 && byte <= 0x0d);

/**
 * Cuts long words of a text by line ends: runs without white space, and runs of white space, that are longer than any word of a language,
 * such as a genome, base64 or a file of zeros. Any other text stays as it is.
 * @param {string | Uint8Array | Iterable<Uint8Array>} text whole, or in pieces
 * @param {number} [most] bytes of the longest run
 * @returns {Generator<Uint8Array>}
 */
export function* shortWords(text, most = MAX_TRAINED_WORD) {
  const pieces = typeof text === 'string' ? [Buffer.from(text)] : text instanceof Uint8Array ? [text] : text;
  for (const piece of pieces) {
    let [given, begin, white] = [0, 0, false];
    for (let at = 0; at < piece.length; at++) {
      if (isWhite(piece[at]) !== white) [begin, white] = [at, !white];
      if (at - begin < most) continue;
      const cut = characterAt(piece, at);
      yield piece.subarray(given, cut);
      yield NEWLINE;
      given = begin = cut;
    }
    yield piece.subarray(given);
  }
}

/** The index of the first byte of the character that the byte at `at` belongs to. @param {Uint8Array} text UTF-8 @param {number} at */
function characterAt(text, at) {
  while (at > 0 && at < text.length && (text[at] & 0xc0) === 0x80) at--;
  return Math.min(at, text.length);
}
