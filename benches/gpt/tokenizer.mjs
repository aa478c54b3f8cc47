/**
 * Text to token ids and back.
 *
 * A vocabulary of 256 is the bytes themselves. A larger one is byte-level BPE (Radford et al., 2019),
 * trained on the given text by Hugging Face's `tokenizers`.
 */

import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

/**
 * @typedef {object} Tokenizer
 * @property {number} size number of different ids
 * @property {(text: string) => Promise<Uint32Array>} encode
 * @property {(ids: ArrayLike<number>) => string} decode bytes that are not UTF-8 become U+FFFD
 * @property {TokenizerState} state what `restoreTokenizer` needs
 *
 * @typedef {{kind: 'byte'} | {kind: 'bpe', merges: [string, string][]}} TokenizerState
 */

/** The library's trainer stops here, so no larger vocabulary can be trained. */
export const LARGEST_BPE_VOCAB = 30000;

const TRAIN_BPE = fileURLToPath(new URL('./train-bpe.mjs', import.meta.url));

/** Characters a piece of text handed to the library has at least; bounds its memory. */
const PIECE = 1 << 16;

/**
 * Trains a tokenizer on a text.
 * @param {string} text
 * @param {number} vocab 256 for bytes, more for BPE with at most that many ids (fewer if the text
 *   does not hold as many merges)
 * @returns {Promise<Tokenizer>}
 */
export async function trainTokenizer(text, vocab) {
  if (vocab === 256) return byteTokenizer();
  if (vocab < 256 || vocab > LARGEST_BPE_VOCAB) {
    throw new RangeError(`vocab must be 256 (bytes) or up to ${LARGEST_BPE_VOCAB} (BPE), got ${vocab}`);
  }
  const library = await loadLibrary();
  // The library trains from files and saves to files only, always to its own largest vocabulary.
  // BPE is greedy: the first merges of a longer training are the merges of a shorter one.
  const folder = await mkdtemp(join(tmpdir(), 'helios-vk-bpe-'));
  try {
    const textFile = join(folder, 'text.txt');
    const modelFile = join(folder, 'tokenizer.json');
    await writeFile(textFile, text);
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
    return bpeTokenizer(library, merges);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * The tokenizer of a checkpoint.
 * @param {TokenizerState} state
 * @returns {Promise<Tokenizer>}
 */
export async function restoreTokenizer(state) {
  if (state?.kind === 'byte') return byteTokenizer();
  if (state?.kind === 'bpe') return bpeTokenizer(await loadLibrary(), state.merges);
  throw new TypeError(`unknown kind of tokenizer: ${JSON.stringify(/** @type {any} */ (state)?.kind)}`);
}

async function loadLibrary() {
  try {
    const loaded = await import('tokenizers');
    return loaded.default ?? loaded;
  } catch (cause) {
    throw new Error('BPE needs the npm package "tokenizers" (npm install); a vocabulary of 256 does without', {
      cause,
    });
  }
}

/** @returns {Tokenizer} */
function byteTokenizer() {
  return {
    size: 256,
    encode: async (text) => Uint32Array.from(new TextEncoder().encode(text)),
    decode: (ids) => new TextDecoder().decode(Uint8Array.from(ids)),
    state: { kind: 'byte' },
  };
}

/**
 * GPT-2's printable stand-in for each byte: printable Latin-1 characters stand for themselves, the
 * other bytes for the characters from U+0100 on, in order.
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
 * @param {typeof import('tokenizers')} library
 * @param {[string, string][]} merges in the order of training
 * @returns {Tokenizer}
 */
function bpeTokenizer(library, merges) {
  const symbols = byteSymbols();
  /** @type {Record<string, number>} */
  const vocab = Object.create(null);
  /** @type {Uint8Array[]} bytes of each id */
  const bytes = [];
  symbols.forEach((symbol, byte) => {
    vocab[symbol] = byte;
    bytes.push(Uint8Array.of(byte));
  });
  for (const [left, right] of merges) {
    const token = left + right;
    if (token in vocab) continue;
    if (!(left in vocab) || !(right in vocab))
      throw new TypeError(`merge ${JSON.stringify([left, right])} is of tokens that no earlier merge made`);
    vocab[token] = bytes.length;
    bytes.push(Buffer.concat([bytes[vocab[left]], bytes[vocab[right]]]));
  }
  const tokenizer = new library.Tokenizer(library.BPE.init({ ...vocab }, merges));
  tokenizer.setPreTokenizer(library.byteLevelPreTokenizer(false, true));
  return {
    size: bytes.length,
    encode: async (text) => {
      const pieces = splitText(text);
      const parts = await Promise.all(pieces.map(async (piece) => (await tokenizer.encode(piece)).getIds()));
      const ids = new Uint32Array(parts.reduce((sum, part) => sum + part.length, 0));
      let at = 0;
      for (const part of parts) {
        ids.set(part, at);
        at += part.length;
      }
      return ids;
    },
    decode: (ids) =>
      new TextDecoder().decode(
        Buffer.concat(
          // Ids beyond the tokenizer's size can only come from a model that pads its vocabulary.
          Array.from(ids, (id) => bytes[id] ?? Buffer.from('\ufffd')),
        ),
      ),
    state: { kind: 'bpe', merges },
  };
}

/** Cuts a text before spaces that follow a letter, where no token can span the cut. @param {string} text */
function splitText(text) {
  const pieces = [];
  let start = 0;
  const boundary = /[A-Za-z](?= [A-Za-z])/g;
  while (start < text.length) {
    boundary.lastIndex = start + PIECE;
    const found = boundary.exec(text);
    const end = found ? found.index + 1 : text.length;
    pieces.push(text.slice(start, end));
    start = end;
  }
  return pieces;
}
