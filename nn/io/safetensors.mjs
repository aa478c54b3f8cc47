// The safetensors format (https://github.com/huggingface/safetensors#format): eight bytes with the length of a JSON header, the header,
// then the elements of all tensors end to end, little-endian. Pure: bytes in, bytes out; file.mjs does the I/O.

import { shown } from '../core/errors.mjs';
import { isObject, isText, parseObject } from './json.mjs';

/** Bits of an element, by the format's name of its type. @type {ReadonlyMap<string, number>} */
export const BITS = new Map([
  ['BOOL', 8],
  ['F4', 4],
  ['F6_E2M3', 6],
  ['F6_E3M2', 6],
  ['U8', 8],
  ['I8', 8],
  ['F8_E5M2', 8],
  ['F8_E4M3', 8],
  ['F8_E8M0', 8],
  ['F8_E4M3FNUZ', 8],
  ['F8_E5M2FNUZ', 8],
  ['I16', 16],
  ['U16', 16],
  ['F16', 16],
  ['BF16', 16],
  ['I32', 32],
  ['U32', 32],
  ['F32', 32],
  ['C64', 64],
  ['F64', 64],
  ['I64', 64],
  ['U64', 64],
]);

/** The limit that the format sets. */
const MAX_HEADER_BYTES = 100_000_000;

/** The bytes before the header. */
export const PREFIX_BYTES = 8;

/**
 * The metadata name of the file's checksum: the SHA-256 of all bytes of the file, in hexadecimal, computed with zeros in place of its own
 * 64 digits. It covers the header too, so a changed type or metadata string is detected like a changed element. A program with another name
 * for it passes that name to the functions here.
 */
export const CHECKSUM = 'helios.sha256';
const ZEROS = '0'.repeat(64);
/** The first bytes of a header with a checksum: the digits follow them, so no search is needed. @param {string} name of the checksum */
const checksumStart = (name) => `{"__metadata__":{${JSON.stringify(name)}:"`;

/**
 * @typedef {object} TensorInfo a tensor of a file
 * @property {string} dtype the format's name of its type; may be a type that is newer than this module
 * @property {number[]} shape sizes of at least 0
 * @property {number} begin offset of its first byte, from the end of the header
 * @property {number} bytes
 *
 * @typedef {object} Header
 * @property {Record<string, string>} metadata strings by name, without the checksum
 * @property {string | undefined} checksum 64 hexadecimal digits, if the file has one
 * @property {Map<string, TensorInfo>} tensors by name, in the order of their bytes
 */

/**
 * Reads the length of the header.
 * @param {Uint8Array} prefix the first eight bytes @param {number} size of the whole file
 * @param {(what: string) => Error} bad makes an error from what is wrong with the file
 */
export function headerLength(prefix, size, bad) {
  const length = Number(new DataView(prefix.buffer, prefix.byteOffset, PREFIX_BYTES).getBigUint64(0, true));
  if (length > MAX_HEADER_BYTES || PREFIX_BYTES + length > size)
    throw bad(`it says that its header has ${length} bytes, in a file of ${size}`);
  return length;
}

/**
 * Parses and checks a header. Every byte of the data must belong to exactly one tensor, and each tensor must have as many bytes as its type
 * and shape need.
 * @param {Uint8Array} bytes of the header @param {number} dataBytes bytes of the file after the header
 * @param {(what: string) => Error} bad makes an error from what is wrong with the file
 * @param {string} [checksumName] see `CHECKSUM`
 * @returns {Header}
 */
export function parseHeader(bytes, dataBytes, bad, checksumName = CHECKSUM) {
  const header = parseObject(bytes, (what) => bad(`its header ${what}`));
  if (bytes[0] !== 0x7b) throw bad('its header does not begin with {');
  const { __metadata__: texts = {}, ...entries } = header;
  if (!isObject(texts)) throw bad('its __metadata__ is not an object');
  for (const [name, text] of Object.entries(texts)) {
    if (typeof text !== 'string') throw bad(`its __metadata__ must have strings, got ${JSON.stringify(text)} for ${name}`);
  }
  const { [checksumName]: checksum, ...metadata } = /** @type {Record<string, string>} */ (texts);
  const list = Object.entries(entries).map(([name, entry]) => ({ name, ...checkEntry(name, entry, bad) }));
  /** @type {Map<string, TensorInfo>} */
  const tensors = new Map();
  const data = PREFIX_BYTES + bytes.length;
  let covered = 0;
  let before = '';
  // An empty tensor sorts before the one that begins at the same byte.
  for (const { name, ...info } of list.sort((a, b) => a.begin - b.begin || a.bytes - b.bytes)) {
    const { begin } = info;
    if (begin < covered) throw bad(`${name}, which begins at ${begin}, overlaps ${before}, which ends at ${covered}`);
    if (begin > covered) throw bad(`${begin - covered} bytes before ${name} belong to no tensor`);
    tensors.set(name, info);
    covered = begin + info.bytes;
    before = name;
  }
  if (dataBytes < covered) throw bad(`it has ${data + dataBytes} bytes, its header says ${data + covered}`);
  if (dataBytes > covered) throw bad(`${dataBytes - covered} bytes after the last tensor belong to no tensor`);
  return { metadata, checksum, tensors };
}

/** Whether a value is an integer of at least 0; JSON's -0 is not. @param {unknown} value @returns {value is number} */
const isCount = (value) => Number.isSafeInteger(value) && /** @type {number} */ (value) >= 0 && !Object.is(value, -0);

/**
 * Checks one entry of a header.
 * @param {string} name @param {unknown} entry @param {(what: string) => Error} bad
 * @returns {TensorInfo}
 */
function checkEntry(name, entry, bad) {
  if (!isObject(entry)) throw bad(`its entry ${name} is not an object`);
  const { dtype, shape, data_offsets: offsets } = entry;
  if (typeof dtype !== 'string')
    throw bad(`${name} has the unknown type ${JSON.stringify(dtype)}; the types are ${[...BITS.keys()].join(', ')}`);
  if (!Array.isArray(shape) || !shape.every(isCount)) {
    throw bad(`${name} has the shape ${JSON.stringify(shape)}; sizes must be integers of at least 0`);
  }
  const [begin, end] = Array.isArray(offsets) && offsets.length === 2 ? offsets : [];
  const bytes = end - begin;
  // The element size of a type that is not in the table is unknown.
  const known = BITS.has(dtype);
  const expected = known ? byteSize(dtype, shape) : bytes;
  if (!isCount(begin) || !isCount(end) || bytes < 0 || bytes !== expected) {
    throw bad(`${name} [${shape}] lies at bytes ${begin} to ${end}${known ? `, but its shape needs ${expected} bytes` : ''}`);
  }
  return { dtype, shape, begin, bytes };
}

/**
 * The bytes of a tensor. Not an integer if elements of less than a byte do not fill the last byte, and inexact above 2^53.
 * @param {string} dtype in the table @param {readonly number[]} shape
 */
const byteSize = (dtype, shape) => (shape.reduce((size, count) => size * count, 1) * /** @type {number} */ (BITS.get(dtype))) / 8;

/** The JSON of an object with its members in this order; a JavaScript object would put names such as 0 first. @param {string[][]} members */
const objectText = (members) => `{${members.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(',')}}`;

/**
 * @typedef {object} EncodedHeader
 * @property {Buffer} bytes the length and the header: the start of the file
 * @property {{ name: string, bytes: number }[]} tensors in file order
 * @property {number | undefined} checksumAt file offset of the checksum's digits, which are zeros in `bytes`
 */

/**
 * Encodes a header.
 * @param {readonly { name: string, dtype: string, shape: readonly number[] }[]} tensors in file order
 * @param {Record<string, string>} metadata
 * @param {boolean} checksum whether to reserve space for a checksum
 * @param {(what: string) => Error} bad makes an error from what the format cannot hold
 * @param {string} [checksumName] see `CHECKSUM`
 * @returns {EncodedHeader}
 */
export function encodeHeader(tensors, metadata, checksum, bad, checksumName = CHECKSUM) {
  for (const [name, text] of Object.entries(metadata)) {
    if (typeof text !== 'string') throw bad(`metadata must have strings, got ${shown(text)} for ${name}`);
    if (!isText(name) || !isText(text))
      throw bad(`metadata has half of a surrogate pair in ${JSON.stringify(name)}: ${JSON.stringify(text)}`);
    if (name === checksumName) throw bad(`metadata cannot have ${checksumName}, which holds the checksum: choose another name`);
  }
  const texts = Object.entries(metadata).map(([name, text]) => [name, JSON.stringify(text)]);
  if (checksum) texts.unshift([checksumName, JSON.stringify(ZEROS)]);
  const members = texts.length > 0 ? [['__metadata__', objectText(texts)]] : [];
  const names = new Set();
  let end = 0;
  const sizes = tensors.map(({ name, dtype, shape }) => {
    if (name === '__metadata__') throw bad('the format reserves __metadata__ for metadata: choose another name for the tensor');
    if (!isText(name)) throw bad(`the name ${JSON.stringify(name)} has half of a surrogate pair`);
    if (names.has(name)) throw bad(`two tensors are named ${name}`);
    if (!BITS.has(dtype)) throw bad(`${name} has the unknown type ${dtype}; the types are ${[...BITS.keys()].join(', ')}`);
    const bytes = byteSize(dtype, shape);
    if (!Number.isSafeInteger(bytes)) throw bad(`${name}, ${dtype} [${shape}], is not a whole number of bytes`);
    names.add(name);
    members.push([name, JSON.stringify({ dtype, shape, data_offsets: [end, (end += bytes)] })]);
    return { name, bytes };
  });
  const text = Buffer.from(objectText(members));
  if (text.length > MAX_HEADER_BYTES)
    throw bad(`the header would have ${text.length} bytes; the format allows at most ${MAX_HEADER_BYTES}`);
  // Padded with spaces, so that the data begins at a multiple of eight bytes.
  const bytes = Buffer.alloc(PREFIX_BYTES + Math.ceil(text.length / 8) * 8, ' ');
  bytes.writeBigUInt64LE(BigInt(bytes.length - PREFIX_BYTES));
  text.copy(bytes, PREFIX_BYTES);
  return { bytes, tensors: sizes, checksumAt: checksum ? PREFIX_BYTES + checksumStart(checksumName).length : undefined };
}

/**
 * A copy of the start of a file with zeros in place of the checksum's digits: the form in which it is hashed.
 * @param {Uint8Array} start the length and the header @param {string} checksumName see `CHECKSUM`
 */
export function withoutChecksum(start, checksumName) {
  const copy = Buffer.from(start);
  const beginning = checksumStart(checksumName);
  const at = PREFIX_BYTES + beginning.length;
  if (copy.toString('latin1', PREFIX_BYTES, at) === beginning) copy.fill(ZEROS, at, Math.min(copy.length, at + ZEROS.length));
  return copy;
}
