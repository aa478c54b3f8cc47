/**
 * Trains byte-level BPE. It finds the same merges as Hugging Face's `tokenizers`, ties included. Counts of pairs are updated after each merge
 * instead of being counted again.
 */

import { BYTE_SYMBOLS } from './bpe.mjs';
import { byteLevelJson, loadTokenizer, wellFormed } from './load.mjs';
import { GPT2_PATTERN, MODERN_PATTERNS, preTokenizerOf } from './split.mjs';

/** Regular expressions of words, by name: what `trainTokenizer` takes as `pattern`. */
export const PATTERNS = { gpt2: GPT2_PATTERN, ...MODERN_PATTERNS };

/**
 * Longer words are cut into parts of this many UTF-8 bytes, and no merge spans two parts. A merge takes time proportional to the length of
 * the words that contain it, so a genome or a long base64 string would take quadratic time. No language has such words.
 */
const MAX_WORD = 2048;
/** A pair of ids is the number left · PAIR + right. */
const PAIR = 2 ** 26;

/** A priority queue of pairs: the highest count first, then the smallest pair. */
function mergeQueue() {
  /** @type {{ pair: number, count: number, words: Set<number> }[]} */
  const heap = [];
  /** @param {typeof heap[0]} a @param {typeof heap[0]} b */
  const before = (a, b) => a.count > b.count || (a.count === b.count && a.pair < b.pair);
  return {
    /** @param {typeof heap[0]} entry */
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
 * Counts how often each word occurs.
 * @param {Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>} chunks @param {import('../json.mjs').Json} preTokenizer
 */
async function countWords(chunks, preTokenizer) {
  const { split } = /** @type {NonNullable<ReturnType<typeof preTokenizerOf>>} */ (preTokenizerOf(preTokenizer));
  /** @type {Map<string, number>} */
  const counts = new Map();
  for await (const chunk of chunks) {
    const text = wellFormed(chunk);
    split(text, (start, end) => {
      const word = text.slice(start, end);
      const known = counts.get(word);
      // Copy a new word: a slice would keep the whole text alive.
      counts.set(known === undefined ? Buffer.from(word).toString() : word, (known ?? 0) + 1);
    });
  }
  return counts;
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
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: regex === GPT2_PATTERN };
  const split = { type: 'Split', pattern: { Regex: regex }, behavior: 'Isolated', invert: false };
  const preTokenizer = byteLevel.use_regex ? byteLevel : { type: 'Sequence', pretokenizers: [split, byteLevel] };
  if (preTokenizerOf(preTokenizer) === undefined)
    throw new TypeError(
      `pattern ${JSON.stringify(pattern)} is neither one of ${Object.keys(PATTERNS).join(', ')} nor a regular expression that is known here`,
    );

  // Ids in order: special tokens, bytes sorted by symbol, merges.
  const symbols = [...specials, ...[...BYTE_SYMBOLS].sort()];
  const ids = new Map(symbols.map((symbol, id) => [symbol, id]));
  const byteIds = Int32Array.from(BYTE_SYMBOLS, (symbol) => /** @type {number} */ (ids.get(symbol)));

  /** @type {{ ids: Int32Array, length: number, count: number }[]} */
  const words = [];
  /** @type {Map<number, number>} */
  const counts = new Map();
  /** @type {Map<number, Set<number>>} the pairs that appeared since the last `enqueue`, with the words that contain them */
  let made = new Map();
  const add = (/** @type {number} */ left, /** @type {number} */ right, /** @type {number} */ change, /** @type {number} */ word) => {
    const pair = left * PAIR + right;
    counts.set(pair, (counts.get(pair) ?? 0) + change * words[word].count);
    if (change < 0) return;
    const holders = made.get(pair);
    if (holders === undefined) made.set(pair, new Set([word]));
    else holders.add(word);
  };
  for (const [word, count] of await countWords(chunks, preTokenizer)) {
    const bytes = Buffer.from(word);
    for (let at = 0; at < bytes.length; at += MAX_WORD) {
      const piece = Int32Array.from(bytes.subarray(at, at + MAX_WORD), (byte) => byteIds[byte]);
      const index = words.push({ ids: piece, length: piece.length, count }) - 1;
      for (let i = 1; i < piece.length; i++) add(piece[i - 1], piece[i], 1, index);
    }
  }

  const queue = mergeQueue();
  const enqueue = () => {
    for (const [pair, holders] of made) {
      const count = /** @type {number} */ (counts.get(pair));
      if (count > 0) queue.push({ pair, count, words: holders });
    }
    made = new Map();
  };
  enqueue();
  /** @type {Set<number>} pairs in the order of merging */
  const merges = new Set();
  while (ids.size < vocabSize) {
    const top = queue.pop();
    if (top === undefined) break;
    const count = /** @type {number} */ (counts.get(top.pair));
    if (top.count !== count) {
      queue.push({ ...top, count });
      continue;
    }
    if (count < Math.max(1, minFrequency)) break;
    const [left, right] = [Math.floor(top.pair / PAIR), top.pair % PAIR];
    const token = symbols[left] + symbols[right];
    const id = ids.get(token) ?? symbols.push(token) - 1;
    ids.set(token, id);
    // Two pairs may make the same token, so a pair can be merged again. As in Hugging Face's trainer, its last rank counts.
    merges.delete(top.pair);
    merges.add(top.pair);
    for (const index of top.words) {
      const word = words[index];
      const symbol = word.ids;
      let used = 0;
      for (let i = 0; i < word.length; i++) {
        if (symbol[i] !== left || i + 1 >= word.length || symbol[i + 1] !== right) {
          symbol[used++] = symbol[i];
          continue;
        }
        i++;
        if (used > 0) {
          add(symbol[used - 1], left, -1, index);
          add(symbol[used - 1], id, 1, index);
        }
        if (i + 1 < word.length) {
          add(right, symbol[i + 1], -1, index);
          add(id, symbol[i + 1], 1, index);
        }
        symbol[used++] = id;
      }
      word.length = used;
    }
    enqueue();
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
  const pairs = Array.from(merges, (pair) => /** @type {[string, string]} */ ([symbols[Math.floor(pair / PAIR)], symbols[pair % PAIR]]));
  const names = Array.isArray(special) ? [] : Object.entries(special).map(([name, content]) => [`${name}_token`, content]);
  return loadTokenizer(byteLevelJson(ids, pairs, added, preTokenizer), { config: Object.fromEntries(names) });
}
