// The stages before BPE: find added tokens in the text, then normalize the text between them and split it into words. Their forms in
// `tokenizer.json`.

import { UnsupportedPattern, compilePattern } from './pattern.mjs';
import { normalize } from './unicode.mjs';

/** @typedef {import('../json.mjs').Json} Json */

/** GPT-2's words: contractions; runs of letters, of digits and of other characters, each with a space before it; white space. */
export const GPT2_PATTERN = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/** The words of Llama 3, and of Qwen 2 and 3, which differ only in the digits. @param {string} digits */
const modern = (digits) =>
  `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
export const MODERN_PATTERNS = { llama3: modern('\\p{N}{1,3}'), qwen2: modern('\\p{N}') };

/** The last stage, which writes bytes as symbols. @param {boolean} [words] whether it splits a text into GPT-2's words first; false when left out */
export const byteLevel = (words = false) => ({ type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: words });
/** A stage that splits a text into the matches of a pattern and what is between them. @param {string} Regex */
export const splitBy = (Regex) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false });

/**
 * `model` of a `tokenizer.json` of BPE.
 * @template {object} T @param {T} own what differs from byte-level BPE, with `vocab` and `merges`
 */
export const bpeModel = (own) => ({
  type: 'BPE',
  dropout: null,
  unk_token: null,
  continuing_subword_prefix: null,
  end_of_word_suffix: null,
  fuse_unk: false,
  byte_fallback: false,
  ignore_merges: false,
  ...own,
});

const WORD_AT_END = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]$/u;
const WORD_AT_START = /^[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]/u;
const SPACE = /\p{White_Space}/u;

/**
 * @typedef {{ id: number, content: string, single_word?: boolean, lstrip?: boolean, rstrip?: boolean, normalized?: boolean,
 *   special?: boolean }} AddedToken as in `tokenizer.json`
 * @typedef {(start: number, end: number) => void} OnWord
 */

const escaped = (/** @type {string} */ text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');

/**
 * Makes a function that finds added tokens in a text, the leftmost and of these the longest. It calls `onToken` for each, and `onText` for the
 * text between them, in order.
 * @param {AddedToken[]} tokens
 * @returns {(text: string, onText: (text: string) => void, onToken: (id: number) => void) => void}
 */
export function addedTokenSplitter(tokens) {
  const byContent = new Map(tokens.filter(({ content }) => content !== '').map((token) => [token.content, token]));
  if (byContent.size === 0) return (text, onText) => text !== '' && onText(text);
  const contents = [...byContent.keys()].sort((a, b) => b.length - a.length);
  const pattern = new RegExp(contents.map(escaped).join('|'), 'g');
  return (text, onText, onToken) => {
    let given = 0;
    pattern.lastIndex = 0;
    for (let found = pattern.exec(text); found !== null; found = pattern.exec(text)) {
      const token = /** @type {AddedToken} */ (byContent.get(found[0]));
      let [start, end] = [found.index, found.index + found[0].length];
      // The character beside the token has at most two UTF-16 units.
      if (
        token.single_word &&
        (WORD_AT_END.test(text.slice(Math.max(0, start - 2), start)) || WORD_AT_START.test(text.slice(end, end + 2)))
      )
        continue;
      if (token.lstrip) while (start > given && SPACE.test(text[start - 1])) start--;
      if (token.rstrip) while (end < text.length && SPACE.test(text[end])) end++;
      if (given < start) onText(text.slice(given, start));
      onToken(token.id);
      given = end;
    }
    if (given < text.length) onText(text.slice(given));
  };
}

/**
 * The normalizer of a tokenizer.
 * @param {Json} json `normalizer` of `tokenizer.json`
 * @returns {((text: string) => string) | undefined} undefined for one that this package does not implement
 */
export function normalizerOf(json) {
  if (json === null || json === undefined) return (text) => text;
  if (json.type === 'NFC' || json.type === 'NFD') return (text) => normalize(text, json.type);
  if (json.type !== 'Sequence') return undefined;
  const all = json.normalizers.map(normalizerOf);
  return all.includes(undefined)
    ? undefined
    : (text) => all.reduce((/** @type {string} */ done, /** @type {Json} */ next) => next(done), text);
}

/** A splitting stage: emits the matches of a pattern, the text between them, or both. @param {string} pattern @param {'all' | 'matches' | 'rest'} keep */
const stageOf = (pattern, keep = 'all') => {
  const scan = compilePattern(pattern);
  return (/** @type {Uint8Array} */ text, /** @type {number} */ start, /** @type {number} */ end, /** @type {OnWord} */ onWord) => {
    let given = start;
    for (let at = start; at < end; ) {
      const stop = scan(text, at, end);
      if (stop > at) {
        if (given < at && keep !== 'matches') onWord(given, at);
        if (keep !== 'rest') onWord(at, stop);
        given = at = stop;
        continue;
      }
      // An empty match splits the text there, but is not a word.
      if (stop === at && given < at) {
        if (keep !== 'matches') onWord(given, at);
        given = at;
      }
      at += text[at] < 0x80 ? 1 : text[at] < 0xe0 ? 2 : text[at] < 0xf0 ? 3 : 4;
    }
    if (given < end && keep !== 'matches') onWord(given, end);
  };
};

/**
 * The pre-tokenizer of a tokenizer. Implements those of GPT-2, Llama 3, Qwen, SmolLM, OLMo, DeepSeek, and others made of the same parts.
 * @param {Json} json `pre_tokenizer` of `tokenizer.json`
 * @returns {{ prefixSpace: boolean, split: (text: Uint8Array, onWord: OnWord) => void } | undefined} `split` takes valid UTF-8 and gives
 *   offsets in it; undefined for one that is not byte-level, or that this package does not implement
 */
export function preTokenizerOf(json) {
  /** @type {Json[]} */
  const parts = json?.type === 'Sequence' ? json.pretokenizers : [json];
  const last = parts.at(-1);
  if (last?.type !== 'ByteLevel' || (last.add_prefix_space && parts.length > 1)) return undefined;
  /** @type {ReturnType<typeof stageOf>[]} */
  const stages = [];
  try {
    for (const part of parts) {
      if (part === last) last.use_regex !== false && stages.push(stageOf(GPT2_PATTERN));
      else if (part.type === 'Digits') stages.push(stageOf(part.individual_digits ? '\\p{N}' : '\\p{N}+'));
      else if (part.type === 'Split' && (part.behavior === 'Isolated' || part.behavior === 'Removed')) {
        const pattern = part.pattern.Regex ?? escaped(part.pattern.String);
        stages.push(stageOf(pattern, part.behavior === 'Isolated' ? 'all' : part.invert ? 'matches' : 'rest'));
      } else return undefined;
    }
  } catch (error) {
    if (error instanceof UnsupportedPattern) return undefined;
    throw error;
  }
  /** Runs the stages from `stage` on. @param {Uint8Array} text @param {number} stage @param {number} start @param {number} end @param {OnWord} onWord */
  const run = (text, stage, start, end, onWord) => {
    if (stage === stages.length) onWord(start, end);
    else if (stage === stages.length - 1) stages[stage](text, start, end, onWord);
    else stages[stage](text, start, end, (from, to) => run(text, stage + 1, from, to, onWord));
  };
  return { prefixSpace: last.add_prefix_space === true, split: (text, onWord) => run(text, 0, 0, text.length, onWord) };
}
