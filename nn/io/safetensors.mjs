// The safetensors format (https://github.com/huggingface/safetensors#format): eight bytes with the length of a JSON header, the header,
// the elements of all tensors end to end, little-endian. Pure: bytes in, bytes out; file.mjs has the files.

import { shown } from '../core/errors.mjs';
import { isObject, isText, parseObject } from './json.mjs';

/** Bits of an element, by the format's names of types. @type {ReadonlyMap<string, number>} */
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

/** The format's own limit. */
const MAX_HEADER_BYTES = 100_000_000;

/** The bytes before the header. */
export const PREFIX_BYTES = 8;

/**
 * The name of the metadata text with the file's checksum: the SHA-256 of all its bytes, in hexadecimal, where the 64 digits of the
 * checksum itself count as zeros. It covers the header too: a changed type or a changed text is found like a changed element. A program
 * whose format has another name for it passes that name to the functions here.
 */
export const CHECKSUM = 'helios.sha256';
const ZEROS = '0'.repeat(64);
/** How a header with a checksum begins, so that its digits are found without a search. @param {string} name of the checksum */
const checksumStart = (name) => `{"__metadata__":{${JSON.stringify(name)}:"`;

/**
 * @typedef {object} TensorInfo a tensor of a file
 * @property {string} dtype the format's name of its type; one that this version of the format has not known is possible
 * @property {number[]} shape sizes from 0 on
 * @property {number} begin its first byte, from the end of the header on
 * @property {number} bytes
 *
 * @typedef {object} Header
 * @property {Record<string, string>} metadata texts by name, without the checksum
 * @property {string | undefined} checksum 64 digits where the file has one
 * @property {Map<string, TensorInfo>} tensors by name, in the order of their bytes
 */

/**
 * The length of the header from the bytes before it.
 * @param {Uint8Array} prefix eight bytes @param {number} size of the whole file
 * @param {(what: string) => Error} bad makes the error that is thrown, of what is wrong with the file
 */
export function headerLength(prefix, size, bad) {
  const length = Number(new DataView(prefix.buffer, prefix.byteOffset, PREFIX_BYTES).getBigUint64(0, true));
  if (length > MAX_HEADER_BYTES || PREFIX_BYTES + length > size) throw bad(`a header of ${length} bytes in a file of ${size}`);
  return length;
}

/**
 * Parses and checks a header: every byte of the data belongs to one tensor, whose type and shape take as many bytes as it has.
 * @param {Uint8Array} bytes @param {number} dataBytes bytes of the file behind the header
 * @param {(what: string) => Error} bad makes the error that is thrown, of what is wrong with the file
 * @param {string} [checksumName] see `CHECKSUM`
 * @returns {Header}
 */
export function parseHeader(bytes, dataBytes, bad, checksumName = CHECKSUM) {
  const header = parseObject(bytes, (what) => bad(`its header ${what}`));
  if (bytes[0] !== 0x7b) throw bad('its header does not begin with {');
  const { __metadata__: texts = {}, ...entries } = header;
  if (!isObject(texts)) throw bad('__metadata__ is not an object');
  for (const [name, text] of Object.entries(texts)) {
    if (typeof text !== 'string') throw bad(`metadata has texts, got ${JSON.stringify(text)} for ${name}`);
  }
  const { [checksumName]: checksum, ...metadata } = /** @type {Record<string, string>} */ (texts);
  const list = Object.entries(entries).map(([name, entry]) => ({ name, ...checkEntry(name, entry, bad) }));
  /** @type {Map<string, TensorInfo>} */
  const tensors = new Map();
  const data = PREFIX_BYTES + bytes.length;
  let covered = 0;
  let before = '';
  // An empty tensor comes before the one that begins at the same byte.
  for (const { name, ...info } of list.sort((a, b) => a.begin - b.begin || a.bytes - b.bytes)) {
    const { begin } = info;
    if (begin < covered) throw bad(`${name}, which begins at ${begin}, overlaps ${before}, which ends at ${covered}`);
    if (begin > covered) throw bad(`${begin - covered} bytes before ${name} belong to no tensor`);
    tensors.set(name, info);
    covered = begin + info.bytes;
    before = name;
  }
  if (dataBytes < covered) throw bad(`it has ${data + dataBytes} bytes, its header says ${data + covered}`);
  if (dataBytes > covered) throw bad(`${dataBytes - covered} bytes behind the last tensor belong to no tensor`);
  return { metadata, checksum, tensors };
}

/** An integer from 0 on as JSON has it: -0 is none. @param {unknown} value @returns {value is number} */
const isCount = (value) => Number.isSafeInteger(value) && /** @type {number} */ (value) >= 0 && !Object.is(value, -0);

/**
 * Checks an entry of a header by itself.
 * @param {string} name @param {unknown} entry @param {(what: string) => Error} bad
 * @returns {TensorInfo}
 */
function checkEntry(name, entry, bad) {
  if (!isObject(entry)) throw bad(`the entry ${name} is not an object`);
  const { dtype, shape, data_offsets: offsets } = entry;
  if (typeof dtype !== 'string') throw bad(`${name} has the type ${JSON.stringify(dtype)}; there are ${[...BITS.keys()].join(', ')}`);
  if (!Array.isArray(shape) || !shape.every(isCount)) {
    throw bad(`${name} has the shape ${JSON.stringify(shape)}; sizes are integers from 0 on`);
  }
  const [begin, end] = Array.isArray(offsets) && offsets.length === 2 ? offsets : [];
  const bytes = end - begin;
  // The size of an element of a type that is newer than this table is not known.
  const known = BITS.has(dtype);
  const expected = known ? byteSize(dtype, shape) : bytes;
  if (!isCount(begin) || !isCount(end) || bytes < 0 || bytes !== expected) {
    throw bad(`${name} [${shape}] lies at ${begin} to ${end}${known ? `, its shape has ${expected} bytes` : ''}`);
  }
  return { dtype, shape, begin, bytes };
}

/**
 * The bytes of a tensor; no integer where elements of less than a byte do not fill the last one, or above 2^53.
 * @param {string} dtype of the table @param {readonly number[]} shape
 */
const byteSize = (dtype, shape) => (shape.reduce((size, count) => size * count, 1) * /** @type {number} */ (BITS.get(dtype))) / 8;

/** An object as JSON, its members in this order: in a JavaScript object names such as 0 would come first. @param {string[][]} members */
const objectText = (members) => `{${members.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(',')}}`;

/**
 * @typedef {object} EncodedHeader
 * @property {Buffer} bytes the length and the header: what a file begins with
 * @property {{ name: string, bytes: number }[]} tensors in the order of the file
 * @property {number | undefined} checksumAt where the digits of the checksum, which are zeros here, are to be written
 */

/**
 * Makes a header.
 * @param {readonly { name: string, dtype: string, shape: readonly number[] }[]} tensors in the order of the file
 * @param {Record<string, string>} metadata
 * @param {boolean} checksum whether it has room for one
 * @param {(what: string) => Error} bad makes the error that is thrown, of what the format cannot hold
 * @param {string} [checksumName] see `CHECKSUM`
 * @returns {EncodedHeader}
 */
export function encodeHeader(tensors, metadata, checksum, bad, checksumName = CHECKSUM) {
  for (const [name, text] of Object.entries(metadata)) {
    if (typeof text !== 'string') throw bad(`metadata has texts, got ${shown(text)} for ${name}`);
    if (!isText(name) || !isText(text))
      throw bad(`metadata has half of a surrogate pair in ${JSON.stringify(name)}: ${JSON.stringify(text)}`);
    if (name === checksumName) throw bad(`metadata has ${checksumName} for the checksum: name the text otherwise`);
  }
  const texts = Object.entries(metadata).map(([name, text]) => [name, JSON.stringify(text)]);
  if (checksum) texts.unshift([checksumName, JSON.stringify(ZEROS)]);
  const members = texts.length > 0 ? [['__metadata__', objectText(texts)]] : [];
  const names = new Set();
  let end = 0;
  const sizes = tensors.map(({ name, dtype, shape }) => {
    if (name === '__metadata__') throw bad('the format has __metadata__ for texts: name the tensor otherwise');
    if (!isText(name)) throw bad(`the name ${JSON.stringify(name)} has half of a surrogate pair`);
    if (names.has(name)) throw bad(`two tensors are named ${name}`);
    if (!BITS.has(dtype)) throw bad(`${name} has the type ${dtype}; there are ${[...BITS.keys()].join(', ')}`);
    const bytes = byteSize(dtype, shape);
    if (!Number.isSafeInteger(bytes)) throw bad(`${name}, ${dtype} [${shape}], is not a whole number of bytes`);
    names.add(name);
    members.push([name, JSON.stringify({ dtype, shape, data_offsets: [end, (end += bytes)] })]);
    return { name, bytes };
  });
  const text = Buffer.from(objectText(members));
  if (text.length > MAX_HEADER_BYTES) throw bad(`a header of ${text.length} bytes; the format has at most ${MAX_HEADER_BYTES}`);
  // Padded, so that the data begins at a multiple of eight.
  const bytes = Buffer.alloc(PREFIX_BYTES + Math.ceil(text.length / 8) * 8, ' ');
  bytes.writeBigUInt64LE(BigInt(bytes.length - PREFIX_BYTES));
  text.copy(bytes, PREFIX_BYTES);
  return { bytes, tensors: sizes, checksumAt: checksum ? PREFIX_BYTES + checksumStart(checksumName).length : undefined };
}

/**
 * What a file begins with, as its checksum counts it: with zeros for the digits.
 * @param {Uint8Array} start length and header @param {string} checksumName see `CHECKSUM`
 */
export function withoutChecksum(start, checksumName) {
  const copy = Buffer.from(start);
  const beginning = checksumStart(checksumName);
  const at = PREFIX_BYTES + beginning.length;
  if (copy.toString('latin1', PREFIX_BYTES, at) === beginning) copy.fill(ZEROS, at, Math.min(copy.length, at + ZEROS.length));
  return copy;
}
