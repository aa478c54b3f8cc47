/**
 * Trains byte-level BPE. It finds the same merges as Hugging Face's `tokenizers`, ties included. Counts of pairs are updated after each merge
 * instead of being counted again.
 */

import { BYTE_SYMBOLS } from './bpe.mjs';
import { byteLevelJson, loadTokenizer, wellFormed } from './load.mjs';
import { GPT2_PATTERN, MODERN_PATTERNS, byteLevel, preTokenizerOf, splitBy } from './split.mjs';
import { byteStrings, grown } from './strings.mjs';

/** Regular expressions of words, by name: what `trainTokenizer` takes as `pattern`. */
export const PATTERNS = { gpt2: GPT2_PATTERN, ...MODERN_PATTERNS };

/**
 * Longer words are cut into parts of this many UTF-8 bytes, and no merge spans two parts. A merge takes time proportional to the length of
 * the words that contain it, so a genome or a long base64 string would take quadratic time. No language has such words.
 */
const MAX_WORD = 2048;
/** A pair of ids is the number left · PAIR + right. */
const PAIR = 2 ** 26;

/**
 * Counts how often each word occurs.
 * @param {Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>} chunks @param {import('../json.mjs').Json} preTokenizer
 * @returns {Promise<{ bytes: Uint8Array, ends: Int32Array, counts: Float64Array, size: number }>} the different words' bytes, end to end in the
 *   order of their first occurrence; where each ends; how often it occurs; how many they are
 */
async function countWords(chunks, preTokenizer) {
  const { split } = /** @type {NonNullable<ReturnType<typeof preTokenizerOf>>} */ (preTokenizerOf(preTokenizer));
  const words = byteStrings();
  let ends = new Int32Array(1 << 12);
  let counts = new Float64Array(1 << 12);
  let size = 0;
  for await (const chunk of chunks) {
    const text = Buffer.from(wellFormed(chunk));
    const count = (/** @type {number} */ start, /** @type {number} */ end) => {
      const word = words.intern(text, start, end);
      if (word === size) {
        if (++size > ends.length) {
          ends = grown(ends);
          counts = grown(counts);
        }
        ends[word] = words.bytes;
      }
      counts[word]++;
    };
    split(text, (start, end) => {
      for (; end - start > MAX_WORD; start += MAX_WORD) count(start, start + MAX_WORD);
      count(start, end);
    });
  }
  return { bytes: words.all(), ends, counts, size };
}

/**
 * The pairs of adjacent symbols in all words: how often each occurs, and in which words. The words that hold a pair are a linked list, and
 * `take` begins a new list for each pair: a merge has to see only the words that got the pair since the pair was last queued.
 */
function pairCounts() {
  let mask = (1 << 14) - 1;
  /** The number of the pair + 1 by slot of a hash table with open addressing, 0 for an empty slot. */
  let slots = new Int32Array(mask + 1);
  let size = 0;
  /** By pair: left · PAIR + right, its count, and the first node of its list, -1 if the list is empty. */
  let keys = new Float64Array(1 << 13);
  let counts = new Float64Array(1 << 13);
  let heads = new Int32Array(1 << 13);
  /** By node of a list: the word, and the next node. */
  let words = new Int32Array(1 << 14);
  let nexts = new Int32Array(1 << 14);
  let nodes = 0;
  /** The pairs whose lists are not empty. @type {number[]} */
  let listed = [];

  const slotOf = (/** @type {number} */ left, /** @type {number} */ right) => {
    const hash = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b);
    let slot = (hash ^ (hash >>> 15)) & mask;
    const key = left * PAIR + right;
    while (slots[slot] !== 0 && keys[slots[slot] - 1] !== key) slot = (slot + 1) & mask;
    return slot;
  };
  const grow = () => {
    keys = grown(keys);
    counts = grown(counts);
    heads = grown(heads);
    mask = 2 * mask + 1;
    slots = new Int32Array(mask + 1);
    for (let pair = 0; pair < size; pair++) slots[slotOf(Math.floor(keys[pair] / PAIR), keys[pair] % PAIR)] = pair + 1;
  };

  return {
    keyOf: (/** @type {number} */ pair) => keys[pair],
    countOf: (/** @type {number} */ pair) => counts[pair],
    wordOf: (/** @type {number} */ node) => words[node],
    nextOf: (/** @type {number} */ node) => nexts[node],
    /**
     * Adds to the count of a pair and, if `change` is positive, adds `word` to its list. Between two calls of `take`, all calls for a word
     * come before those for the next, so a word is in a list once.
     * @param {number} left @param {number} right @param {number} change @param {number} word
     */
    add(left, right, change, word) {
      const slot = slotOf(left, right);
      let pair = slots[slot] - 1;
      if (pair < 0) {
        pair = size++;
        slots[slot] = size;
        keys[pair] = left * PAIR + right;
        heads[pair] = -1;
        if (size === keys.length) grow();
      }
      counts[pair] += change;
      if (change < 0) return;
      const head = heads[pair];
      if (head >= 0 && words[head] === word) return;
      if (head < 0) listed.push(pair);
      if (nodes === words.length) {
        words = grown(words);
        nexts = grown(nexts);
      }
      words[nodes] = word;
      nexts[nodes] = head;
      heads[pair] = nodes++;
    },
    /** Calls `onPair` for every pair with a list, and begins new lists. @param {(pair: number, head: number) => void} onPair */
    take(onPair) {
      for (const pair of listed) {
        onPair(pair, heads[pair]);
        heads[pair] = -1;
      }
      listed = [];
    },
  };
}

/** A priority queue of pairs: the highest count first, then the smallest pair. */
function mergeQueue() {
  /** @typedef {{ pair: number, key: number, count: number, head: number }} Entry as in `pairCounts` */
  /** @type {Entry[]} */
  const heap = [];
  const before = (/** @type {Entry} */ a, /** @type {Entry} */ b) => a.count > b.count || (a.count === b.count && a.key < b.key);
  return {
    /** @param {Entry} entry */
    push(entry) {
      let at = heap.push(entry) - 1;
      for (let parent = (at - 1) >> 1; at > 0 && before(entry, heap[parent]); parent = (at - 1) >> 1) {
        heap[at] = heap[parent];
        at = parent;
      }
      heap[at] = entry;
    },
    pop() {
      const top = heap[0];
      const last = heap.pop();
      if (last === undefined || heap.length === 0) return top;
      let at = 0;
      for (let child = 1; child < heap.length; child = 2 * at + 1) {
        if (child + 1 < heap.length && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], last)) break;
        heap[at] = heap[child];
        at = child;
      }
      heap[at] = last;
      return top;
    },
  };
}

/**
 * Trains a byte-level BPE tokenizer (Sennrich et al. 2016; Radford et al. 2019). Its memory holds the different words, not the text. Write
 * `files()` of the result to a folder to keep it.
 * @param {Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>} chunks texts; bytes are UTF-8. No word spans two chunks
 * @param {object} options
 * @param {number} options.vocabSize the most ids, including 256 for bytes and those of special tokens; fewer if the text has fewer pairs
 * @param {string[] | Record<string, string>} [options.special] special tokens, which get the first ids. Given by name
 *   (`{ eos: '<|endoftext|>' }`), they are also in the tokenizer's `special`; none when left out
 * @param {string} [options.pattern] a name in `PATTERNS`, or the regular expression of a word in the syntax of `tokenizer.json`; gpt2 when
 *   left out
 * @param {number} [options.minFrequency] the least count of a pair to be merged; 1 when left out
 * @returns {Promise<import('./load.mjs').Tokenizer>}
 * @throws {RangeError} for a `vocabSize` out of range; {TypeError} for a pattern that is not supported
 */
export async function trainTokenizer(chunks, { vocabSize, special = [], pattern = 'gpt2', minFrequency = 0 }) {
  const specials = [...new Set(Object.values(special))];
  if (!Number.isSafeInteger(vocabSize) || vocabSize < 256 + specials.length || vocabSize >= PAIR) {
    throw new RangeError(
      `vocabSize must be from ${256 + specials.length} (256 bytes, ${specials.length} special tokens) to ${PAIR - 1}, got ${vocabSize}`,
    );
  }
  const regex = /** @type {Record<string, string>} */ (PATTERNS)[pattern] ?? pattern;
  const preTokenizer = regex === GPT2_PATTERN ? byteLevel(true) : { type: 'Sequence', pretokenizers: [splitBy(regex), byteLevel()] };
  if (preTokenizerOf(preTokenizer) === undefined)
    throw new TypeError(
      `pattern ${JSON.stringify(pattern)} is neither one of ${Object.keys(PATTERNS).join(', ')} nor a regular expression that is known here`,
    );

  // Ids in order: special tokens, bytes sorted by symbol, merges.
  const symbols = [...specials, ...[...BYTE_SYMBOLS].sort()];
  const ids = new Map(symbols.map((symbol, id) => [symbol, id]));
  const byteIds = Int32Array.from(BYTE_SYMBOLS, (symbol) => /** @type {number} */ (ids.get(symbol)));

  const words = await countWords(chunks, preTokenizer);
  // The symbols of all words, end to end. A merge makes a word shorter, and leaves a gap behind it.
  const text = new Int32Array(words.bytes.length);
  for (let i = 0; i < text.length; i++) text[i] = byteIds[words.bytes[i]];
  const lengths = new Int32Array(words.size);
  const pairs = pairCounts();
  for (let word = 0, start = 0; word < words.size; start = words.ends[word++]) {
    lengths[word] = words.ends[word] - start;
    for (let i = start + 1; i < words.ends[word]; i++) pairs.add(text[i - 1], text[i], words.counts[word], word);
  }

  const queue = mergeQueue();
  const enqueue = (/** @type {number} */ pair, /** @type {number} */ head) => {
    const count = pairs.countOf(pair);
    if (count > 0) queue.push({ pair, key: pairs.keyOf(pair), count, head });
  };
  pairs.take(enqueue);
  /** @type {Set<number>} pairs in the order of merging */
  const merges = new Set();
  while (ids.size < vocabSize) {
    const top = queue.pop();
    if (top === undefined) break;
    const count = pairs.countOf(top.pair);
    if (top.count !== count) {
      top.count = count;
      queue.push(top);
      continue;
    }
    if (count < Math.max(1, minFrequency)) break;
    const left = Math.floor(top.key / PAIR);
    const right = top.key % PAIR;
    const token = symbols[left] + symbols[right];
    const id = ids.get(token) ?? symbols.push(token) - 1;
    ids.set(token, id);
    // Two pairs may make the same token, so a pair can be merged again. As in Hugging Face's trainer, its last rank counts.
    merges.delete(top.key);
    merges.add(top.key);
    for (let node = top.head; node >= 0; node = pairs.nextOf(node)) {
      const word = pairs.wordOf(node);
      const start = word === 0 ? 0 : words.ends[word - 1];
      const end = start + lengths[word];
      const times = words.counts[word];
      let used = start;
      for (let i = start; i < end; i++) {
        if (text[i] !== left || i + 1 >= end || text[i + 1] !== right) {
          text[used++] = text[i];
          continue;
        }
        i++;
        if (used > start) {
          pairs.add(text[used - 1], left, -times, word);
          pairs.add(text[used - 1], id, times, word);
        }
        if (i + 1 < end) {
          pairs.add(right, text[i + 1], -times, word);
          pairs.add(id, text[i + 1], times, word);
        }
        text[used++] = id;
      }
      lengths[word] = used - start;
    }
    pairs.take(enqueue);
  }

  const added = specials.map((content, id) => ({
    id,
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  }));
  const merged = Array.from(merges, (pair) => /** @type {[string, string]} */ ([symbols[Math.floor(pair / PAIR)], symbols[pair % PAIR]]));
  const names = Array.isArray(special) ? [] : Object.entries(special).map(([name, content]) => [`${name}_token`, content]);
  return loadTokenizer(byteLevelJson(ids, merged, added, preTokenizer), { config: Object.fromEntries(names) });
}
