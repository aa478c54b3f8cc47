// Reads text of any size in pieces that can be encoded independently. A piece ends at the end of a document or, within a document, at a place
// that no token can span. The reader holds one piece of a text or JSONL file in memory, or one row group of a Parquet file.

import { createReadStream, existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import * as zlib from 'node:zlib';

/** The default size of a piece in bytes. A longer document makes a longer piece. */
export const PIECE_BYTES = 2 ** 23;
/** The longest piece: a string in V8 has at most 2^29 - 24 characters. */
const MAX_PIECE_BYTES = 2 ** 29 - 2 ** 24;

const LINE_FEED = 10;
const WHITE_SPACE = /\p{White_Space}/u;

/**
 * A piece of the text.
 * @typedef {object} Piece
 * @property {string} source the path of the file
 * @property {'text' | 'jsonl' | 'values'} kind
 * @property {Uint8Array<ArrayBuffer>} [bytes] UTF-8 of a plain text, or of whole lines of JSONL
 * @property {string[]} [values] the documents in rows of a Parquet file
 * @property {number} read bytes of the file read up to the end of this piece
 * @property {boolean} [begins] whether a piece of bytes is the first of its file, which may have a byte order mark
 * @property {boolean} ends whether the piece ends at the end of a document
 */

/**
 * @typedef {object} PieceOptions
 * @property {string} [separator] the string between two documents of a plain text
 * @property {import('../tokenizer/load.mjs').Cut} [cut] where the tokenizer lets a long document be cut; nowhere when left out
 * @property {string} [field] the column of a Parquet file; `text` when left out
 * @property {number} [pieceBytes] the least bytes of a piece, except the last
 * @property {number} [start] the byte of a file without compression to begin at; 0 when left out
 */

/** What unpacks the pages of a Parquet file, beside Snappy, which hyparquet has. */
const COMPRESSORS = {
  GZIP: (/** @type {Uint8Array} */ page) => zlib.gunzipSync(page),
  BROTLI: (/** @type {Uint8Array} */ page) => zlib.brotliDecompressSync(page),
  ZSTD(/** @type {Uint8Array} */ page) {
    const { zstdDecompressSync } = /** @type {{ zstdDecompressSync?: (data: Uint8Array) => Buffer }} */ (zlib);
    if (!zstdDecompressSync) throw new Error(`its pages are packed with zstd, which Node reads from 22.15 on; this is ${process.version}`);
    return zstdDecompressSync(page);
  },
};

/** The kind of a file, from its name. @param {string} path @returns {'parquet' | 'jsonl' | 'text'} */
export function kindOf(path) {
  const name = path.replace(/\.gz$/i, '');
  if (/\.parquet$/i.test(name)) return 'parquet';
  return /\.(jsonl|ndjson)$/i.test(name) ? 'jsonl' : 'text';
}

/** Options that only files of some kinds have a use for. */
const USES = /** @type {const} */ ({ separator: ['text'], field: ['jsonl', 'parquet'], replaceInvalid: ['text', 'jsonl'] });
const KINDS = { text: 'plain text', jsonl: 'JSONL', parquet: 'Parquet' };

/**
 * Checks that each option of some kinds of files has one that it is for.
 * @param {string[]} files @param {{ separator?: string, field?: string, replaceInvalid?: boolean }} options
 * @throws {RangeError} that begins with the option's name
 */
export function checkKinds(files, options) {
  for (const [name, kinds] of Object.entries(USES)) {
    const isUsed = files.some((path) => /** @type {readonly string[]} */ (kinds).includes(kindOf(path)));
    if (isUsed || !(/** @type {Record<string, unknown>} */ (options)[name])) continue;
    throw new RangeError(`${name} is for ${kinds.map((kind) => KINDS[kind]).join(' and ')}, and ${files[0]} is ${KINDS[kindOf(files[0])]}`);
  }
}

/**
 * Expands a list of files and folders to files. A folder gives its text, JSONL and Parquet files, at any depth, sorted by path.
 * @param {string[]} inputs
 * @throws {Error} for a path that does not exist, for a folder without such files, and for a file of ids
 */
export function filesOf(inputs) {
  return inputs.flatMap((input) => {
    if (!existsSync(input)) throw new Error(`${input}: no such file or folder`);
    if (/\.bin$/i.test(input)) throw new Error(`${input} has ids, not text: openDataset reads them as they are`);
    if (!statSync(input).isDirectory()) return [input];
    const names = readdirSync(input, { recursive: true, encoding: 'utf8' }).filter((name) =>
      /\.((txt|md|jsonl|ndjson)(\.gz)?|parquet)$/i.test(name),
    );
    if (names.length === 0) throw new Error(`${input}: no .txt, .md, .jsonl or .parquet file in this folder`);
    return names.sort().map((name) => join(input, name));
  });
}

/**
 * Reads a file piece by piece, in order.
 * @param {string} path
 * @param {PieceOptions} [options]
 * @returns {AsyncGenerator<Piece>}
 */
export function piecesOf(path, options = {}) {
  const kind = kindOf(path);
  return kind === 'parquet' ? parquetPieces(path, options) : bytePieces(path, kind, options);
}

/**
 * @param {string} path @param {'text' | 'jsonl'} kind @param {PieceOptions} options
 * @returns {AsyncGenerator<Piece>}
 */
async function* bytePieces(path, kind, { separator, cut, pieceBytes = PIECE_BYTES, start = 0 }) {
  const mark = separator === undefined ? undefined : Buffer.from(separator);
  const { file, stream } = openText(path, { start, highWaterMark: Math.min(pieceBytes, 2 ** 20) });
  /** @type {Buffer[]} */
  let parts = [];
  let held = 0;
  // A search that found no end is repeated only after twice as many bytes, so the total time stays linear.
  let enough = pieceBytes;
  let handed = 0;
  const isPacked = stream !== file;
  /** @param {number} length @returns {number} */
  const readWith = (length) => {
    handed += length;
    return isPacked ? file.bytesRead : handed;
  };
  for await (const part of named(path, stream)) {
    parts.push(part);
    held += part.length;
    if (held < enough) continue;
    const bytes = Buffer.concat(parts);
    const end = kind === 'jsonl' ? bytes.lastIndexOf(LINE_FEED) + 1 : mark ? lastDocument(bytes, mark) : cut ? lastCut(bytes, cut) : 0;
    if (end === 0) {
      if (held > MAX_PIECE_BYTES) throw tooLong(path, kind, mark !== undefined, cut);
      [parts, enough] = [[bytes], 2 * held];
      continue;
    }
    const begins = start === 0 && handed === 0;
    const ends = kind === 'jsonl' || mark !== undefined;
    yield { source: path, kind, bytes: copyOf(bytes.subarray(0, end)), read: readWith(end), begins, ends };
    [parts, held, enough] = [[bytes.subarray(end)], bytes.length - end, pieceBytes];
  }
  if (held > MAX_PIECE_BYTES) throw tooLong(path, kind, mark !== undefined, cut);
  if (held === 0 && handed === 0) return;
  const begins = start === 0 && handed === 0;
  yield { source: path, kind, bytes: copyOf(Buffer.concat(parts)), read: readWith(held), begins, ends: true };
}

/** The bytes of a text: of a compressed one, those that it unpacks to. @param {string} path */
export async function textBytes(path) {
  if (!/\.gz$/i.test(path)) return statSync(path).size;
  let bytes = 0;
  for await (const part of named(path, openText(path).stream)) bytes += part.length;
  return bytes;
}

/** A file, and its bytes unpacked. @param {string} path @param {{ start?: number, highWaterMark?: number }} [options] */
function openText(path, options) {
  const file = createReadStream(path, options);
  const stream = /\.gz$/i.test(path) ? file.pipe(zlib.createGunzip({ chunkSize: Math.max(64, options?.highWaterMark ?? 2 ** 16) })) : file;
  // `pipe` does not forward errors.
  if (stream !== file) file.on('error', (error) => stream.destroy(error));
  return { file, stream };
}

/** The parts of a stream. An error names the file, which zlib's do not. @param {string} path @param {AsyncIterable<Buffer>} stream */
async function* named(path, stream) {
  try {
    yield* stream;
  } catch (cause) {
    throw new Error(`${path}: ${/** @type {Error} */ (cause).message}`, { cause });
  }
}

/** A copy in its own ArrayBuffer, which a message can transfer. @param {Uint8Array} bytes */
const copyOf = (bytes) => new Uint8Array(bytes);

/** The offset after the last separator; 0 if there is none. @param {Buffer} bytes @param {Buffer} mark */
function lastDocument(bytes, mark) {
  const at = bytes.lastIndexOf(mark);
  return at < 0 ? 0 : at + mark.length;
}

/** The last offset where a text can be cut; 0 if there is none. @param {Buffer} bytes @param {import('../tokenizer/load.mjs').Cut} cut */
function lastCut(bytes, cut) {
  for (let at = bytes.lastIndexOf(LINE_FEED); at > 0; at = bytes.lastIndexOf(LINE_FEED, at - 1)) {
    // A character has at most four bytes.
    if (cut === 'before') {
      const character = [...bytes.toString('utf8', Math.max(0, at - 4), at)].at(-1) ?? ' ';
      if (!WHITE_SPACE.test(character)) return at;
    } else if (at + 4 < bytes.length) {
      const [character] = bytes.toString('utf8', at + 1, at + 5);
      if (!WHITE_SPACE.test(character)) return at + 1;
    }
  }
  return 0;
}

/**
 * The error for a piece beyond `MAX_PIECE_BYTES`.
 * @param {string} path @param {string} kind @param {boolean} separated @param {import('../tokenizer/load.mjs').Cut} [cut]
 */
function tooLong(path, kind, separated, cut) {
  const what = kind === 'jsonl' ? 'a line' : separated ? 'a document' : 'a text';
  const advice =
    kind === 'jsonl' || separated
      ? ''
      : cut
        ? ' without the end of a line: name what stands between documents (separator)'
        : ', which this tokenizer cannot take in parts: name what stands between documents (separator), or use JSONL';
  return new RangeError(`${path} has ${what} of more than ${MAX_PIECE_BYTES} bytes${advice}`);
}

/**
 * @param {string} path @param {PieceOptions} options
 * @returns {AsyncGenerator<Piece>}
 */
async function* parquetPieces(path, { field = 'text', pieceBytes = PIECE_BYTES }) {
  const { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects, parquetSchema } = await import('hyparquet').catch((cause) => {
    throw new Error(`${path}: Parquet files are read by the package hyparquet: npm install hyparquet`, { cause });
  });
  const file = await asyncBufferFromFile(path);
  const metadata = await parquetMetadataAsync(file).catch((cause) => {
    throw new Error(`${path} is not a Parquet file: ${cause.message}`, { cause });
  });
  const columns = parquetSchema(metadata).children.map(({ element }) => element.name);
  if (!columns.includes(field)) throw new Error(`${path} has no column ${field}; it has ${columns.join(', ')}`);
  const size = statSync(path).size;
  const rows = Number(metadata.num_rows);
  let rowStart = 0;
  for (const [i, group] of metadata.row_groups.entries()) {
    const rowEnd = rowStart + Number(group.num_rows);
    const found = await parquetReadObjects({ file, metadata, columns: [field], rowStart, rowEnd, compressors: COMPRESSORS }).catch(
      (cause) => {
        throw new Error(`${path}: ${cause.message}`, { cause });
      },
    );
    /** @type {string[]} */
    let values = [];
    let length = 0;
    for (const [j, row] of found.entries()) {
      const value = row[field];
      if (typeof value !== 'string')
        throw new Error(
          `${path}, row ${rowStart + j}: ${field} is ${value === null ? 'null' : typeof value === 'object' ? 'an object' : `a ${typeof value}`}, not text`,
        );
      values.push(value);
      length += value.length;
      if (length < pieceBytes && j + 1 < found.length) continue;
      const read = Math.round((size * (rowStart + j + 1)) / rows);
      yield {
        source: path,
        kind: 'values',
        values,
        read: i + 1 === metadata.row_groups.length && j + 1 === found.length ? size : read,
        ends: true,
      };
      [values, length] = [[], 0];
    }
    rowStart = rowEnd;
  }
}
