/** Byte-level BPE (Radford et al. 2019): encodes words to ids. A bounded cache remembers the ids of words. */

import { byteStrings, grown } from './strings.mjs';

/** Bounds of the cache: words, bytes of the longest word, and bytes and ids of all words together. */
const MAX_WORDS = 1 << 17;
const MAX_CACHED = 64;
const MAX_BYTES = 1 << 20;
const MAX_IDS = 1 << 19;
/** Up to this many symbols, a search for the pair of lowest rank takes less time than a heap. */
const MAX_SCANNED = 32;
/** The rank of a pair that is not merged: above all ranks. */
const NO_RANK = 0x7fffffff;

/**
 * GPT-2's printable symbol for each byte: printable Latin-1 characters represent themselves, the other bytes are U+0100, U+0101 and so on.
 */
export const BYTE_SYMBOLS = (() => {
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    return String.fromCharCode(printable ? byte : next++);
  });
})();

/** The byte of each symbol's character code + 1, 0 for a code that is no symbol. */
const BYTE_OF = new Uint16Array(0x200);
BYTE_SYMBOLS.forEach((symbol, byte) => (BYTE_OF[symbol.charCodeAt(0)] = byte + 1));

/**
 * Writes the bytes of a token's symbols.
 * @param {string} token @param {Uint8Array} into @param {number} at where to write; as many bytes as the token has characters must fit
 * @returns {boolean} false if a character is not a symbol of a byte
 */
export function writeToken(token, into, at) {
  for (let i = 0; i < token.length; i++) {
    const code = token.charCodeAt(i);
    const byte = code < BYTE_OF.length ? BYTE_OF[code] : 0;
    if (byte === 0) return false;
    into[at + i] = byte - 1;
  }
  return true;
}

/**
 * A growing list of ids: the first `length` elements of `ids`.
 * @typedef {{ ids: Uint32Array, length: number }} Sink
 */

/** Makes room for `count` more ids. @param {Sink} sink @param {number} count */
function reserve(sink, count) {
  if (sink.length + count <= sink.ids.length) return;
  sink.ids = grown(sink.ids, sink.length + count);
}

/** Appends an id. @param {Sink} sink @param {number} id */
export function pushId(sink, id) {
  reserve(sink, 1);
  sink.ids[sink.length++] = id;
}

/**
 * A hash table from pairs of ids to ranks, with open addressing; a `Map` keyed by both takes three times as long.
 * @param {Int32Array} merges left, right and merged id of each, in order of rank
 * @returns a function from a pair to its rank, `NO_RANK` if the pair is not merged
 */
function pairTable(merges) {
  const mask = 2 ** Math.ceil(Math.log2((2 * merges.length) / 3 + 2)) - 1;
  // Each slot has left, right and rank in one line of the processor's cache, and an unused number. A left of -1 marks an empty slot.
  const slots = new Int32Array(4 * (mask + 1));
  for (let slot = 0; slot < slots.length; slot += 4) slots[slot] = -1;
  const slotOf = (/** @type {number} */ left, /** @type {number} */ right) => {
    let slot = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b);
    slot = 4 * ((slot ^ (slot >>> 15)) & mask);
    while (slots[slot] >= 0 && (slots[slot] !== left || slots[slot + 1] !== right)) slot = (slot + 4) & (4 * mask + 3);
    return slot;
  };
  // If a pair is listed twice, the later rank counts, as in Hugging Face's library.
  for (let rank = 0; 3 * rank < merges.length; rank++) {
    const slot = slotOf(merges[3 * rank], merges[3 * rank + 1]);
    slots[slot] = merges[3 * rank];
    slots[slot + 1] = merges[3 * rank + 1];
    slots[slot + 2] = rank;
  }
  return (/** @type {number} */ left, /** @type {number} */ right) => {
    const slot = slotOf(left, right);
    return slots[slot] < 0 ? NO_RANK : slots[slot + 2];
  };
}

/**
 * @typedef {object} BytePairModel
 * @property {Int32Array} byteIds the id of each byte, -1 if the vocabulary lacks it
 * @property {number} [unknown] the id for a byte that the vocabulary lacks; without it, such a byte is dropped
 * @property {boolean} [fuseUnknown] whether consecutive unknown bytes become one id
 * @property {Int32Array} merges left, right and merged id of each, in order of rank
 * @property {(bytes: Uint8Array, start: number, end: number) => number} [wholeWord] the id of a whole word that is not merged, -1 for others
 */

/**
 * Merges the symbols of a long word with the candidates in a heap over a linked list, so n symbols take O(n log n).
 * @param {(left: number, right: number) => number} rankOf @param {Int32Array} merges
 */
function heapMerger(rankOf, merges) {
  const PLACES = 2 ** 31;
  let next = new Int32Array(0);
  let previous = new Int32Array(0);
  let heap = new Float64Array(0);
  let size = 0;

  /**
   * Adds the pair at a place as a candidate: the number rank · 2³¹ + place, so that the heap orders by rank, then by place.
   * @param {Int32Array} ids @param {number} at @param {number} count
   */
  const consider = (ids, at, count) => {
    if (at < 0 || next[at] >= count) return;
    const rank = rankOf(ids[at], ids[next[at]]);
    if (rank === NO_RANK) return;
    const entry = rank * PLACES + at;
    let child = size++;
    while (child > 0) {
      const parent = (child - 1) >> 1;
      if (heap[parent] <= entry) break;
      heap[child] = heap[parent];
      child = parent;
    }
    heap[child] = entry;
  };
  const pop = () => {
    const top = heap[0];
    const last = heap[--size];
    let at = 0;
    for (let child = 1; child < size; child = 2 * at + 1) {
      if (child + 1 < size && heap[child + 1] < heap[child]) child++;
      if (heap[child] >= last) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = last;
    return top;
  };

  /** Merges the first `count` of `ids` in place. @param {Int32Array} ids @param {number} count @returns {number} how many are left */
  return (ids, count) => {
    if (count > next.length) {
      next = new Int32Array(ids.length);
      previous = new Int32Array(ids.length);
      heap = new Float64Array(2 * ids.length);
    }
    size = 0;
    for (let i = 0; i < count; i++) {
      next[i] = i + 1;
      previous[i] = i - 1;
    }
    for (let i = 0; i < count; i++) consider(ids, i, count);
    while (size > 0) {
      const entry = pop();
      const at = entry % PLACES;
      const rank = (entry - at) / PLACES;
      const right = next[at];
      // Skip a stale candidate: one of the two was merged with its other neighbour.
      if (ids[at] < 0 || right >= count || rankOf(ids[at], ids[right]) !== rank) continue;
      ids[at] = merges[3 * rank + 2];
      ids[right] = -1;
      next[at] = next[right];
      if (next[at] < count) previous[next[at]] = at;
      consider(ids, previous[at], count);
      consider(ids, at, count);
    }
    let left = 0;
    for (let i = 0; i < count; i = next[i]) ids[left++] = ids[i];
    return left;
  };
}

/**
 * Merges the bytes of a word: the pair of lowest rank first, the leftmost of equal ranks.
 * @param {BytePairModel} model
 */
function merger({ byteIds, unknown, fuseUnknown = false, merges }) {
  const rankOf = pairTable(merges);
  const mergeLong = heapMerger(rankOf, merges);
  const ranks = new Int32Array(MAX_SCANNED);
  let ids = new Int32Array(256);

  /** Merges the first `count` of `ids` in place, for few symbols. @param {number} count @returns {number} how many are left */
  const mergeShort = (count) => {
    for (let i = 0; i + 1 < count; i++) ranks[i] = rankOf(ids[i], ids[i + 1]);
    for (;;) {
      let at = 0;
      let best = NO_RANK;
      for (let i = 0; i + 1 < count; i++) {
        if (ranks[i] >= best) continue;
        best = ranks[i];
        at = i;
      }
      if (best === NO_RANK) return count;
      ids[at] = merges[3 * best + 2];
      count--;
      for (let i = at + 1; i < count; i++) {
        ids[i] = ids[i + 1];
        ranks[i] = ranks[i + 1];
      }
      if (at > 0) ranks[at - 1] = rankOf(ids[at - 1], ids[at]);
      if (at + 1 < count) ranks[at] = rankOf(ids[at], ids[at + 1]);
    }
  };

  /** Appends the ids of the word `bytes[start..end)`. @param {Uint8Array} bytes @param {number} start @param {number} end @param {Sink} out */
  return (bytes, start, end, out) => {
    if (end - start > ids.length) ids = new Int32Array(2 ** Math.ceil(Math.log2(end - start)));
    let count = 0;
    let fused = false;
    for (let i = start; i < end; i++) {
      const id = byteIds[bytes[i]];
      if (id >= 0) ids[count++] = id;
      else if (unknown !== undefined && !(fused && fuseUnknown)) ids[count++] = unknown;
      fused = id < 0;
    }
    count = count <= MAX_SCANNED ? mergeShort(count) : mergeLong(ids, count);
    reserve(out, count);
    for (let i = 0; i < count; i++) out.ids[out.length++] = ids[i];
  };
}

/**
 * @param {BytePairModel} model
 * @returns a function that appends the ids of the word `bytes[start..end)`
 */
export function wordEncoder(model) {
  const merge = merger(model);
  const { wholeWord } = model;
  // The ids of the words in the cache, end to end: those of word w begin at starts[w] and end at starts[w + 1].
  const cache = byteStrings();
  let ids = new Int32Array(1 << 12);
  let starts = new Int32Array(1 << 11);
  let words = 0;

  /** @param {Uint8Array} bytes @param {number} start @param {number} end @param {Sink} out */
  const encode = (bytes, start, end, out) => {
    const known = wholeWord === undefined ? -1 : wholeWord(bytes, start, end);
    if (known < 0) merge(bytes, start, end, out);
    else pushId(out, known);
  };

  /** @param {Uint8Array} bytes @param {number} start @param {number} end @param {Sink} out */
  return (bytes, start, end, out) => {
    if (end - start > MAX_CACHED) return encode(bytes, start, end, out);
    const word = cache.intern(bytes, start, end);
    if (word < words) {
      const to = starts[word + 1];
      reserve(out, MAX_CACHED);
      for (let i = starts[word]; i < to; i++) out.ids[out.length++] = ids[i];
      return;
    }
    const before = out.length;
    encode(bytes, start, end, out);
    let at = starts[words];
    if (at + MAX_CACHED > ids.length) ids = grown(ids);
    for (let i = before; i < out.length; i++) ids[at++] = out.ids[i];
    if (++words === starts.length) starts = grown(starts);
    starts[words] = at;
    if (words === MAX_WORDS || cache.bytes > MAX_BYTES || at > MAX_IDS) {
      cache.clear();
      words = 0;
    }
  };
}
