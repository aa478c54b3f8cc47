// Encodes one piece of text: the work of a worker thread. Pure, apart from the tokenizer's cache.

import { createHash } from 'node:crypto';

import { invalidUtf8 } from './utf8.mjs';

/**
 * The result of encoding a piece.
 * @typedef {object} Encoded
 * @property {Uint32Array<ArrayBuffer>} train ids to train on
 * @property {Uint32Array<ArrayBuffer>} validation ids that are held out
 * @property {number} documents number of documents that end in the piece
 * @property {number} lines number of lines of JSONL in it, to number the lines of later pieces
 */

/** Half of a pair of UTF-16, which JSON can escape, and UTF-8 has no bytes for. */
export const LONE_SURROGATE = /\p{Surrogate}/u;
export const HALF_A_CHARACTER = 'has half of a surrogate pair, which is no character';

/** A fault in the user's text. `line` counts from 1 at the start of the piece; `byte` is an offset in the piece. */
export class TextError extends Error {
  /** @param {string} message @param {{ line?: number, byte?: number }} at */
  constructor(message, at) {
    super(message);
    this.at = at;
  }
}

/**
 * @typedef {object} EncodeOptions
 * @property {string} [separator] the string between two documents of a plain text
 * @property {string} [field] the field of a JSONL line that holds the text; `text` when left out
 * @property {number} [validation] the share of documents to hold out, chosen by a hash of their text; 0 when left out
 * @property {boolean} [replaceInvalid] whether to replace invalid UTF-8 by U+FFFD instead of throwing; false when left out
 */

/**
 * Whether a document is held out. Only its text decides, so that copies of a document are all on the same side.
 * @param {string} text @param {number} share
 */
export const isHeldOut = (text, share) => share > 0 && createHash('sha1').update(text).digest().readUInt32LE() < share * 2 ** 32;

/**
 * The texts of a piece: its documents, or a part of one if the piece is of a plain text without a separator. Blank lines and blank documents
 * are skipped.
 * @param {import('./pieces.mjs').Piece} piece
 * @param {EncodeOptions} options
 * @param {() => void} [onLine] called before each line of JSONL is read
 * @returns {Generator<string>}
 * @throws {TextError} for invalid UTF-8 and for a JSONL line without a text
 */
export function* textsOf(piece, { separator, field = 'text', replaceInvalid = false }, onLine) {
  if (piece.kind === 'values') {
    yield* piece.values ?? [];
    return;
  }
  const bytes = piece.bytes ?? new Uint8Array();
  const text = (/** @type {Uint8Array} */ part, /** @type {number} */ line) => {
    const invalid = replaceInvalid ? undefined : invalidUtf8(part);
    if (invalid !== undefined) {
      const byte = part[invalid].toString(16).padStart(2, '0');
      const hasMark = (part[0] === 0xff && part[1] === 0xfe) || (part[0] === 0xfe && part[1] === 0xff);
      throw new TextError(`byte 0x${byte} is not UTF-8${hasMark ? ', but the mark of UTF-16' : ''}`, line ? { line } : { byte: invalid });
    }
    return Buffer.from(part.buffer, part.byteOffset, part.length).toString('utf8');
  };
  if (piece.kind === 'jsonl') {
    for (let at = 0, lines = 1; at < bytes.length; lines++) {
      onLine?.();
      const end = bytes.indexOf(10, at);
      const line = text(bytes.subarray(at, end < 0 ? bytes.length : end), lines).replace(/^\ufeff/, lines === 1 ? '' : '\ufeff');
      at = end < 0 ? bytes.length : end + 1;
      if (line.trim() === '') continue;
      const value = textOfLine(line, field, lines);
      if (!replaceInvalid && LONE_SURROGATE.test(value)) throw new TextError(`${field} ${HALF_A_CHARACTER}`, { line: lines });
      yield value;
    }
    return;
  }
  const all = piece.begins ? text(bytes, 0).replace(/^\ufeff/, '') : text(bytes, 0);
  if (separator === undefined) {
    // A mark alone is no text; a later piece without text is the end of one.
    if (all !== '' || !piece.begins) yield all;
  } else {
    // Nothing follows the last separator of most pieces; at the end of a file, the rest is a document.
    for (const part of all.split(separator)) if (part.trim() !== '') yield part;
  }
}

/**
 * Encodes the documents of a piece, each followed by `eos` if the tokenizer has one.
 * @param {{ encode(text: string, options: { addSpecial: boolean }): Uint32Array, special: { eos?: number } }} tokenizer
 * @param {import('./pieces.mjs').Piece} piece
 * @param {EncodeOptions & { held?: boolean }} options `held`: whether to hold out this piece of a plain text without a separator
 * @returns {Encoded}
 * @throws {TextError} for invalid UTF-8 and for a JSONL line without a text
 */
export function encodePiece(tokenizer, piece, options) {
  const { separator, validation = 0, held = false } = options;
  /** @type {{ train: Uint32Array[], validation: Uint32Array[] }} */
  const ids = { train: [], validation: [] };
  const { eos } = tokenizer.special;
  const isPart = piece.kind === 'text' && separator === undefined;
  let documents = 0;
  let lines = 0;
  for (const text of textsOf(piece, options, () => lines++)) {
    const side = (isPart ? held : isHeldOut(text, validation)) ? ids.validation : ids.train;
    side.push(tokenizer.encode(text, { addSpecial: false }));
    if (isPart && !piece.ends) continue;
    documents++;
    if (eos !== undefined) side.push(Uint32Array.of(eos));
  }
  return { train: concat(ids.train), validation: concat(ids.validation), documents, lines };
}

/**
 * What came of a piece, in a form that a message between threads can carry.
 * @typedef {{ encoded: Encoded, failed?: undefined } | { encoded?: undefined, failed: Failure }} Result
 * @typedef {{ message: string, at?: { line?: number, byte?: number } }} Failure
 *
 * @param {Parameters<typeof encodePiece>} args
 * @returns {Result}
 */
export function resultOf(...args) {
  try {
    return { encoded: encodePiece(...args) };
  } catch (error) {
    const { message, stack } = /** @type {Error} */ (error);
    return { failed: error instanceof TextError ? { message, at: error.at } : { message: stack ?? message } };
  }
}

/** The text of a JSONL line. @param {string} line @param {string} field @param {number} number of the line, for the error */
function textOfLine(line, field, number) {
  let value;
  try {
    value = JSON.parse(line);
  } catch (error) {
    throw new TextError(`not JSON: ${/** @type {Error} */ (error).message}`, { line: number });
  }
  if (value === null || typeof value !== 'object' || Array.isArray(value)) throw new TextError('not an object', { line: number });
  const text = value[field];
  if (typeof text === 'string') return text;
  const keys = Object.keys(value);
  const found = text === undefined ? `no field ${field}; it has ${keys.join(', ') || 'none'}` : `${field} is not text`;
  throw new TextError(found, { line: number });
}

/** @param {Uint32Array[]} parts */
function concat(parts) {
  const whole = new Uint32Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
