// Where a text is not UTF-8.

import { isUtf8 } from 'node:buffer';

/**
 * The offset of the first byte that is not valid UTF-8, or undefined.
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
    // The first byte limits the second: no overlong encodings, no surrogates, nothing above U+10FFFF.
    const more = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    const low = byte === 0xe0 ? 0xa0 : byte === 0xf0 ? 0x90 : 0x80;
    const high = byte === 0xed ? 0x9f : byte === 0xf4 ? 0x8f : 0xbf;
    if (byte < 0xc2 || byte > 0xf4 || !(bytes[at + 1] >= low && bytes[at + 1] <= high)) return at;
    for (let i = 2; i <= more; i++) if (!(bytes[at + i] >= 0x80 && bytes[at + i] <= 0xbf)) return at;
    at += more + 1;
  }
  return undefined;
}
