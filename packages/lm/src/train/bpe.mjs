/** Byte-level BPE (Radford et al., 2019): encodes text as ids. A bounded cache remembers the ids of words, so most words are merged once. */

/**
 * GPT-2's words: contractions; letters, digits or other characters, each with the space before them; white space. No merge crosses the
 * border of a word. White space is Unicode's, as in the library that trains: JavaScript's `\s` differs in U+0085 and U+FEFF.
 */
const WORD =
  /'(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

/** How many UTF-16 units after a word can decide whether it ends there: for "'ll", the two after the apostrophe. */
const LOOKAHEAD = 2;
/** UTF-16 units of the longest word. Longer runs are cut, which bounds memory. */
export const MAX_WORD = 1 << 16;
/** UTF-16 units or bytes of a chunk of text. A regular expression needs memory in proportion to its match. */
const CHUNK = 1 << 18;
/** Most words in the cache, and the UTF-16 units of the longest of them. */
const MAX_CACHED = 1 << 18;
const MAX_CACHED_LENGTH = 64;
/** Ids in one part of the result. */
const PART = 1 << 20;

/** A text in chunks. @param {string | Uint8Array} text bytes are UTF-8 @param {number} size */
function* chunksOf(text, size) {
  if (typeof text === 'string') {
    for (let at = 0; at < text.length; at += size) yield text.slice(at, at + size);
    return;
  }
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  for (let at = 0; at < text.length; at += size) yield decoder.decode(text.subarray(at, at + size), { stream: true });
  yield decoder.decode();
}

/** Where to cut `text` at or just before `at`, so that no surrogate pair is divided. @param {string} text @param {number} at */
const cutAt = (text, at) => at - Number(text.charCodeAt(at - 1) >> 10 === 0x36 && text.charCodeAt(at) >> 10 === 0x37);

/**
 * The words of a text. They do not depend on the size of the chunks.
 * @param {string | Uint8Array} text bytes are UTF-8
 * @param {number} [size] of a chunk
 * @returns {Generator<string>}
 */
export function* wordsOf(text, size = CHUNK) {
  let rest = '';
  /** @param {string} word */
  const cut = function* (word) {
    let at = 0;
    while (word.length - at > MAX_WORD) {
      const end = cutAt(word, at + MAX_WORD);
      yield word.slice(at, end);
      at = end;
    }
    return word.slice(at);
  };
  for (const chunk of chunksOf(text, size)) {
    rest += chunk;
    let end = 0;
    WORD.lastIndex = 0;
    for (let found = WORD.exec(rest); found !== null; found = WORD.exec(rest)) {
      const word = found[0];
      // The next chunk may make it longer.
      if (end + word.length + LOOKAHEAD > rest.length) break;
      end += word.length;
      if (word.length <= MAX_WORD) yield word;
      else yield yield* cut(word);
      WORD.lastIndex = end;
    }
    rest = rest.slice(end);
    if (rest.length > MAX_WORD + LOOKAHEAD) rest = yield* cut(rest);
  }
  // `matchAll` starts at `lastIndex`.
  WORD.lastIndex = 0;
  for (const [word] of rest.matchAll(WORD)) yield word;
}

/** Whether heap entry a comes before b: the earlier merge first, then the earlier position. @param {number[]} a @param {number[]} b */
const precedes = (a, b) => a[0] < b[0] || (a[0] === b[0] && a[1] < b[1]);

/** @param {number[][]} heap @param {number[]} entry */
function push(heap, entry) {
  let at = heap.push(entry) - 1;
  while (at > 0) {
    const parent = (at - 1) >> 1;
    if (!precedes(entry, heap[parent])) break;
    heap[at] = heap[parent];
    at = parent;
  }
  heap[at] = entry;
}

/** @param {number[][]} heap not empty */
function pop(heap) {
  const top = heap[0];
  const last = /** @type {number[]} */ (heap.pop());
  if (heap.length === 0) return top;
  let at = 0;
  for (;;) {
    let child = 2 * at + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && precedes(heap[child + 1], heap[child])) child++;
    if (!precedes(heap[child], last)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = last;
  return top;
}

/** Encodes text by a list of merges. */
export class BytePairEncoder {
  /** How many words were merged because they were not in the cache. */
  merged = 0;
  /** @type {Map<number, [rank: number, id: number]>} by pair of ids */
  #merges = new Map();
  /** @type {Map<string, number | Uint32Array>} the id or ids of a word */
  #cache = new Map();
  #maxCached;
  #size;

  /**
   * @param {[left: number, right: number, id: number][]} merges in the order of training; ids below 256 are bytes
   * @param {{ maxCached?: number, chunk?: number }} [options] `maxCached`: most words in the cache; `chunk`: bytes or UTF-16 units of a
   *   chunk of text
   */
  constructor(merges, { maxCached = MAX_CACHED, chunk = CHUNK } = {}) {
    merges.forEach(([left, right, id], rank) => this.#merges.set(left * 2 ** 26 + right, [rank, id]));
    this.#maxCached = maxCached;
    this.#size = chunk;
  }

  /**
   * The ids of a text.
   * @param {string | Uint8Array} text bytes are UTF-8
   */
  encode(text) {
    /** @type {Uint32Array[]} */
    const parts = [];
    let part = new Uint32Array(PART);
    let used = 0;
    for (const word of wordsOf(text, this.#size)) {
      const ids = this.#cache.get(word) ?? this.#encodeWord(word);
      const length = typeof ids === 'number' ? 1 : ids.length;
      if (used + length > part.length) {
        parts.push(part.subarray(0, used));
        part = new Uint32Array(Math.max(PART, length));
        used = 0;
      }
      if (typeof ids === 'number') part[used] = ids;
      else part.set(ids, used);
      used += length;
    }
    parts.push(part.subarray(0, used));
    const all = new Uint32Array(parts.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const ids of parts) {
      all.set(ids, at);
      at += ids.length;
    }
    return all;
  }

  /** @param {string} word */
  #encodeWord(word) {
    this.merged++;
    const bytes = Buffer.from(word);
    const merged = this.#merge(bytes);
    const ids = merged.length === 1 ? merged[0] : merged;
    if (word.length <= MAX_CACHED_LENGTH) {
      if (this.#cache.size >= this.#maxCached) this.#cache.clear();
      // A copy: a substring would keep the whole chunk alive.
      this.#cache.set(bytes.toString(), ids);
    }
    return ids;
  }

  /** @param {Uint8Array} bytes */
  #merge(bytes) {
    const count = bytes.length;
    // A symbol is at the index of its first byte; `next` and `previous` link it with its neighbours.
    const ids = Int32Array.from(bytes);
    const next = Int32Array.from(ids, (_, i) => i + 1);
    const previous = Int32Array.from(ids, (_, i) => i - 1);
    /** Candidates for a merge: rank, index, id of the result. @type {number[][]} */
    const heap = [];
    const consider = (/** @type {number} */ at) => {
      const found = at >= 0 && next[at] < count && this.#merges.get(ids[at] * 2 ** 26 + ids[next[at]]);
      if (found) push(heap, [found[0], at, found[1]]);
    };
    for (let i = 0; i + 1 < count; i++) consider(i);
    while (heap.length > 0) {
      const [rank, at] = pop(heap);
      const right = next[at];
      if (ids[at] < 0 || right >= count) continue;
      // Meanwhile one of the two may have been merged with its other neighbour.
      const found = this.#merges.get(ids[at] * 2 ** 26 + ids[right]);
      if (found?.[0] !== rank) continue;
      ids[at] = found[1];
      ids[right] = -1;
      next[at] = next[right];
      if (next[at] < count) previous[next[at]] = at;
      consider(previous[at]);
      consider(at);
    }
    return Uint32Array.from(ids.filter((id) => id >= 0));
  }
}
