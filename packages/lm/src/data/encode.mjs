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
const isHeldOut = (text, share) => share > 0 && createHash('sha1').update(text).digest().readUInt32LE() < share * 2 ** 32;

/**
 * Encodes the documents of a piece, each followed by `eos` if the tokenizer has one. Blank lines and blank documents are skipped.
 * @param {{ encode(text: string, options: { addSpecial: boolean }): Uint32Array, special: { eos?: number } }} tokenizer
 * @param {import('./pieces.mjs').Piece} piece
 * @param {EncodeOptions & { held?: boolean }} options `held`: whether to hold out this piece of a plain text without a separator
 * @returns {Encoded}
 * @throws {TextError} for invalid UTF-8 and for a JSONL line without a text
 */
export function encodePiece(tokenizer, piece, { separator, field = 'text', validation = 0, replaceInvalid = false, held = false }) {
  /** @type {{ train: Uint32Array[], validation: Uint32Array[] }} */
  const ids = { train: [], validation: [] };
  const { eos } = tokenizer.special;
  let documents = 0;
  const add = (/** @type {string} */ text, /** @type {boolean} */ ends, /** @type {boolean} */ isValidation) => {
    const side = isValidation ? ids.validation : ids.train;
    side.push(tokenizer.encode(text, { addSpecial: false }));
    if (!ends) return;
    documents++;
    if (eos !== undefined) side.push(Uint32Array.of(eos));
  };
  const bytes = piece.bytes ?? new Uint8Array();
  const text = (/** @type {Uint8Array} */ part, /** @type {number} */ offset, /** @type {number} */ line) => {
    const invalid = replaceInvalid ? undefined : invalidUtf8(part);
    if (invalid !== undefined) {
      const byte = part[invalid].toString(16).padStart(2, '0');
      throw new TextError(`byte 0x${byte} is not UTF-8`, line ? { line } : { byte: offset + invalid });
    }
    return Buffer.from(part.buffer, part.byteOffset, part.length).toString('utf8');
  };
  let lines = 0;
  if (piece.kind === 'values') {
    for (const value of piece.values ?? []) add(value, true, isHeldOut(value, validation));
  } else if (piece.kind === 'jsonl') {
    for (let at = 0; at < bytes.length; ) {
      const end = bytes.indexOf(10, at);
      const line = text(bytes.subarray(at, end < 0 ? bytes.length : end), at, ++lines).replace(/^\ufeff/, lines === 1 ? '' : '\ufeff');
      at = end < 0 ? bytes.length : end + 1;
      if (line.trim() === '') continue;
      const value = textOfLine(line, field, lines);
      add(value, true, isHeldOut(value, validation));
    }
  } else if (separator === undefined) {
    add(text(bytes, 0, 0), piece.ends, held);
  } else {
    // Nothing follows the last separator of most pieces; at the end of a file, the rest is a document.
    const parts = text(bytes, 0, 0).split(separator);
    if (parts.at(-1) === '') parts.pop();
    for (const part of parts) if (part.trim() !== '') add(part, true, isHeldOut(part, validation));
  }
  return { train: concat(ids.train), validation: concat(ids.validation), documents, lines };
}

/** The text of a JSONL line. @param {string} line @param {string} field @param {number} number of the line, for the error */
function textOfLine(line, field, number) {
  let value;
  try {
    value = JSON.parse(line);
  } catch (error) {
    throw new TextError(`no JSON: ${/** @type {Error} */ (error).message}`, { line: number });
  }
  if (value === null || typeof value !== 'object' || Array.isArray(value)) throw new TextError('not an object', { line: number });
  const text = value[field];
  if (typeof text === 'string') return text;
  const keys = Object.keys(value);
  const found = text === undefined ? `no field ${field}; it has ${keys.join(', ') || 'none'}` : `${field} is no text`;
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
