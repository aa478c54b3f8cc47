// Reads what macOS asks of a library before it loads it: the oldest system, the libraries and symbols, the signature.
//
// Formats: <mach-o/loader.h>, <mach-o/nlist.h> and, of the signature, <Security/CSCommon.h> with XNU's osfmk/kern/cs_blobs.h.

import { createHash } from 'node:crypto';

const MAGIC = 0xfeedfacf;
const PROCESSORS = new Map([
  [0x0100000c, 'arm64'],
  [0x01000007, 'x64'],
]);
const LC = {
  symbols: 0x2,
  library: 0xc,
  identity: 0xd,
  weakLibrary: 0x80000018,
  reexport: 0x8000001f,
  signature: 0x1d,
  oldest: 0x24,
  build: 0x32,
};
/** Of a signature: the blob of blobs, the list of hashes, and its flag "without a certificate". */
const [SUPER_BLOB, CODE_DIRECTORY, AD_HOC] = [0xfade0cc0, 0xfade0c02, 0x2];
/** A symbol that any loaded image may define, Node's own functions among them; nlist's masks. */
const [DYNAMIC_LOOKUP, STAB, TYPE] = [0xfe, 0xe0, 0x0e];

/**
 * @typedef {object} MachO
 * @property {string} processor `arm64` or `x64`, as Node names them
 * @property {string | null} oldest version of macOS
 * @property {string[]} libraries that it is linked to
 * @property {string[]} undefinedSymbols that it takes from those libraries
 * @property {string[]} looked symbols that it looks up in whatever is loaded
 * @property {'none' | 'ad-hoc' | 'certificate'} signature
 */

/**
 * @param {Buffer} file a thin 64-bit library
 * @returns {MachO}
 */
export function readMachO(file) {
  if (file.length < 32 || file.readUInt32LE(0) !== MAGIC) throw new Error('not a 64-bit Mach-O file');
  const processor = PROCESSORS.get(file.readUInt32LE(4));
  if (processor === undefined) throw new Error(`a Mach-O file for an unknown processor (0x${file.readUInt32LE(4).toString(16)})`);
  /** @type {MachO} */
  const found = { processor, oldest: null, libraries: [], undefinedSymbols: [], looked: [], signature: 'none' };
  let at = 32;
  for (let i = 0; i < file.readUInt32LE(16); i++) {
    const [command, size] = [file.readUInt32LE(at), file.readUInt32LE(at + 4)];
    if (size < 8) throw new Error(`load command ${i} has ${size} bytes`);
    if ([LC.library, LC.weakLibrary, LC.reexport].includes(command)) found.libraries.push(text(file, at + file.readUInt32LE(at + 8)));
    else if (command === LC.build) found.oldest = version(file.readUInt32LE(at + 12));
    else if (command === LC.oldest) found.oldest = version(file.readUInt32LE(at + 8));
    else if (command === LC.symbols) symbols(file, at, found);
    else if (command === LC.signature) found.signature = signature(file, file.readUInt32LE(at + 8));
    at += size;
  }
  return found;
}

/** @param {Buffer} file @param {number} at */
const text = (file, at) => file.toString('utf8', at, file.indexOf(0, at));

/** @param {number} packed xxxx.yy.zz */
const version = (packed) => [packed >>> 16, (packed >> 8) & 255, packed & 255].join('.').replace(/\.0$/, '');

/** @param {Buffer} file @param {number} at @param {MachO} found */
function symbols(file, at, found) {
  const [table, count, strings] = [8, 12, 16].map((offset) => file.readUInt32LE(at + offset));
  for (let i = 0; i < count; i++) {
    const entry = table + 16 * i;
    const type = file[entry + 4];
    if ((type & STAB) !== 0 || (type & TYPE) !== 0) continue;
    const name = text(file, strings + file.readUInt32LE(entry));
    (file[entry + 7] === DYNAMIC_LOOKUP ? found.looked : found.undefinedSymbols).push(name);
  }
}

/**
 * The kind of a signature, whose hash of every page is checked: macOS ends a process that touches a page which does not match.
 * @param {Buffer} file @param {number} start
 * @returns {MachO['signature']}
 */
function signature(file, start) {
  if (file.readUInt32BE(start) !== SUPER_BLOB) throw new Error('the signature is none');
  for (let i = 0; i < file.readUInt32BE(start + 8); i++) {
    const at = start + file.readUInt32BE(start + 16 + 8 * i);
    if (file.readUInt32BE(at) !== CODE_DIRECTORY) continue;
    const [flags, hashes, , , slots, limit] = [12, 16, 20, 24, 28, 32].map((offset) => file.readUInt32BE(at + offset));
    const [size, kind, page] = [file[at + 36], file[at + 37], 2 ** file[at + 39]];
    if (kind !== 2 || size !== 32) throw new Error('the hashes of the signature are not SHA-256');
    if (limit !== start) throw new Error(`the signature covers ${limit} bytes of the ${start} before it`);
    if (slots !== Math.ceil(limit / page))
      throw new Error(`the signature has hashes of ${slots} pages, the file ${Math.ceil(limit / page)}`);
    for (let slot = 0; slot < slots; slot++) {
      const bytes = file.subarray(slot * page, Math.min((slot + 1) * page, limit));
      const stored = file.subarray(at + hashes + 32 * slot, at + hashes + 32 * (slot + 1));
      if (!createHash('sha256').update(bytes).digest().equals(stored)) throw new Error(`page ${slot} is not what was signed`);
    }
    return (flags & AD_HOC) !== 0 ? 'ad-hoc' : 'certificate';
  }
  throw new Error('the signature has no hashes');
}
