/** Byte-level BPE (Radford et al. 2019): encodes words to ids. A bounded cache remembers the ids of words. */

/** Size of the cache: slots of its hash table, UTF-16 units of the longest word, and units and ids of all words together. */
const SLOTS = 1 << 18;
const MAX_CACHED = 64;
const MAX_UNITS = 1 << 20;
const MAX_IDS = 1 << 19;
/** Numbers per cached word: its hash, the start and number of its units, and the start and end of its ids. */
const FIELDS = 5;

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

const BYTE_OF = new Map(BYTE_SYMBOLS.map((symbol, byte) => [symbol, byte]));

/** The bytes of a token's symbols; undefined if a character is not a symbol of a byte. @param {string} token */
export function bytesOfToken(token) {
  const bytes = Array.from(token, (symbol) => BYTE_OF.get(symbol));
  return bytes.includes(undefined) ? undefined : Uint8Array.from(/** @type {number[]} */ (bytes));
}

/**
 * A growing list of ids: the first `length` elements of `ids`.
 * @typedef {{ ids: Uint32Array, length: number }} Sink
 */

/** Makes room for `count` more ids. @param {Sink} sink @param {number} count */
function reserve(sink, count) {
  if (sink.length + count <= sink.ids.length) return;
  const more = new Uint32Array(Math.max(2 * sink.ids.length, sink.length + count));
  more.set(sink.ids.subarray(0, sink.length));
  sink.ids = more;
}

/** Appends an id. @param {Sink} sink @param {number} id */
export function pushId(sink, id) {
  reserve(sink, 1);
  sink.ids[sink.length++] = id;
}

/**
 * A hash table from pairs of ids to ranks, with open addressing; a `Map` keyed by both takes three times as long.
 * @param {[left: number, right: number, id: number][]} merges in order of rank
 * @returns a function from a pair to its rank, -1 if the pair is not merged
 */
function pairTable(merges) {
  const mask = 2 ** Math.ceil(Math.log2(2 * merges.length + 2)) - 1;
  const slots = new Int32Array(mask + 1).fill(-1);
  const [lefts, rights] = [Int32Array.from(merges, ([left]) => left), Int32Array.from(merges, ([, right]) => right)];
  const slotOf = (/** @type {number} */ left, /** @type {number} */ right) => {
    let slot = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b);
    slot = (slot ^ (slot >>> 15)) & mask;
    while (slots[slot] >= 0 && (lefts[slots[slot]] !== left || rights[slots[slot]] !== right)) slot = (slot + 1) & mask;
    return slot;
  };
  // If a pair is listed twice, the later rank counts, as in Hugging Face's library.
  merges.forEach(([left, right], rank) => (slots[slotOf(left, right)] = rank));
  return (/** @type {number} */ left, /** @type {number} */ right) => slots[slotOf(left, right)];
}

/**
 * @typedef {object} BytePairModel
 * @property {Int32Array} byteIds the id of each byte, -1 if the vocabulary lacks it
 * @property {number} [unknown] the id for a byte that the vocabulary lacks; without it, such a byte is dropped
 * @property {boolean} [fuseUnknown] whether consecutive unknown bytes become one id
 * @property {[left: number, right: number, id: number][]} merges in order of rank
 * @property {Map<string, number>} [words] whole words with an id of their own, which are not merged; keyed by their bytes as Latin-1
 */

/**
 * Merges the bytes of a word: the pair of lowest rank first, the leftmost of equal ranks. It keeps candidates in a heap over a linked list, so
 * n bytes take O(n log n).
 * @param {BytePairModel} model
 */
function merger({ byteIds, unknown, fuseUnknown = false, merges }) {
  const rankOf = pairTable(merges);
  const made = Int32Array.from(merges, ([, , id]) => id);
  const PLACES = 2 ** 31;
  let ids = new Int32Array(256);
  let [next, previous, heap] = [new Int32Array(256), new Int32Array(256), new Float64Array(512)];
  let size = 0;
  let count = 0;

  /** Adds the pair at a place as a candidate: the number rank · 2³¹ + place, so that the heap orders by rank, then by place. @param {number} at */
  const consider = (at) => {
    if (at < 0 || next[at] >= count) return;
    const rank = rankOf(ids[at], ids[next[at]]);
    if (rank < 0) return;
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

  /** Appends the ids of a word. @param {Uint8Array} bytes @param {number} length bytes of the word @param {Sink} out */
  return (bytes, length, out) => {
    if (length > ids.length) {
      const room = 2 ** Math.ceil(Math.log2(length));
      [ids, next, previous, heap] = [new Int32Array(room), new Int32Array(room), new Int32Array(room), new Float64Array(2 * room)];
    }
    size = count = 0;
    for (let i = 0, fused = false; i < length; i++) {
      const id = byteIds[bytes[i]];
      if (id >= 0) ids[count++] = id;
      else if (unknown !== undefined && !(fused && fuseUnknown)) ids[count++] = unknown;
      fused = id < 0;
    }
    for (let i = 0; i < count; i++) [next[i], previous[i]] = [i + 1, i - 1];
    for (let i = 0; i < count; i++) consider(i);
    while (size > 0) {
      const entry = pop();
      const at = entry % PLACES;
      const rank = (entry - at) / PLACES;
      const right = next[at];
      // Skip a stale candidate: one of the two was merged with its other neighbour.
      if (ids[at] < 0 || right >= count || rankOf(ids[at], ids[right]) !== rank) continue;
      ids[at] = made[rank];
      ids[right] = -1;
      next[at] = next[right];
      if (next[at] < count) previous[next[at]] = at;
      consider(previous[at]);
      consider(at);
    }
    reserve(out, count);
    for (let i = 0; i < count; i = next[i]) out.ids[out.length++] = ids[i];
  };
}

/**
 * @param {BytePairModel} model
 * @returns a function that appends the ids of the word `text[start..end)`
 */
export function wordEncoder(model) {
  const merge = merger(model);
  let longest = 0;
  for (const { length } of model.words?.keys() ?? []) longest = Math.max(longest, length);
  let bytes = Buffer.alloc(1 << 10);
  // The cache: a hash table with open addressing, keyed by the UTF-16 units. It is cleared when one of its arrays is full.
  const slots = new Int32Array(SLOTS);
  const fields = new Int32Array(FIELDS * (SLOTS / 2));
  const [units, ids] = [new Uint16Array(MAX_UNITS), new Uint32Array(MAX_IDS)];
  let [words, usedUnits, usedIds] = [0, 0, 0];

  /** @param {string} text @param {number} start @param {number} end @param {Sink} out */
  const encode = (text, start, end, out) => {
    // A UTF-16 unit has at most three bytes of UTF-8.
    if (bytes.length < 3 * (end - start)) bytes = Buffer.alloc(4 * (end - start));
    let length = 0;
    for (let i = start; i < end && length === i - start; i++) {
      const unit = text.charCodeAt(i);
      if (unit < 0x80) bytes[length++] = unit;
    }
    if (length < end - start) length = bytes.write(text.slice(start, end));
    const known = length <= longest ? model.words?.get(bytes.toString('latin1', 0, length)) : undefined;
    if (known === undefined) merge(bytes, length, out);
    else pushId(out, known);
  };

  /** @param {string} text @param {number} start @param {number} end @param {Sink} out */
  return (text, start, end, out) => {
    const length = end - start;
    if (length > MAX_CACHED) return encode(text, start, end, out);
    let hash = length;
    for (let i = start; i < end; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
    hash ^= hash >>> 15;
    let slot = hash & (SLOTS - 1);
    for (let word = slots[slot]; word > 0; slot = (slot + 1) & (SLOTS - 1), word = slots[slot]) {
      const field = FIELDS * word;
      if (fields[field] !== hash || fields[field + 2] !== length) continue;
      const at = fields[field + 1] - start;
      let i = start;
      while (i < end && units[at + i] === text.charCodeAt(i)) i++;
      if (i < end) continue;
      const [from, to] = [fields[field + 3], fields[field + 4]];
      reserve(out, to - from);
      for (let id = from; id < to; id++) out.ids[out.length++] = ids[id];
      return;
    }
    const before = out.length;
    encode(text, start, end, out);
    const count = out.length - before;
    if (words + 1 >= SLOTS / 2 || usedUnits + length > MAX_UNITS || usedIds + count > MAX_IDS) {
      slots.fill(0);
      words = usedUnits = usedIds = 0;
      slot = hash & (SLOTS - 1);
    }
    slots[slot] = ++words;
    fields.set([hash, usedUnits, length, usedIds, usedIds + count], FIELDS * words);
    for (let i = start; i < end; i++) units[usedUnits++] = text.charCodeAt(i);
    ids.set(out.ids.subarray(before, before + count), usedIds);
    usedIds += count;
  };
}
