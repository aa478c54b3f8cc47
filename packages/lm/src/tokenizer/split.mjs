/** What happens to a text before BPE: added tokens are taken out of it, what remains is normalized and split into words. */

import { UnsupportedPattern, compilePattern } from './pattern.mjs';
import { normalize } from './unicode.mjs';

/** GPT-2's words: contractions, letters, digits and others with the space before them, white space. */
export const GPT2_PATTERN = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/** Words of Llama 3 and, but for the digits, of Qwen 2 and 3. @param {string} digits */
const modern = (digits) =>
  `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
export const MODERN_PATTERNS = { llama3: modern('\\p{N}{1,3}'), qwen2: modern('\\p{N}') };

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
 * Finds added tokens in a text: the leftmost, of these the longest.
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
      // Two UTF-16 units hold the character beside the token.
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
 * The normalizer of a file.
 * @param {any} json
 * @returns {((text: string) => string) | undefined} undefined: one that only another library knows
 */
export function normalizerOf(json) {
  if (json === null || json === undefined) return (text) => text;
  if (json.type === 'NFC' || json.type === 'NFD') return (text) => normalize(text, json.type);
  if (json.type !== 'Sequence') return undefined;
  const all = json.normalizers.map(normalizerOf);
  return all.includes(undefined)
    ? undefined
    : (text) => all.reduce((/** @type {string} */ done, /** @type {any} */ next) => next(done), text);
}

/** A stage that gives out matches and what is between them, or one of both. @param {string} pattern @param {'all' | 'matches' | 'rest'} keep */
const stageOf = (pattern, keep = 'all') => {
  const scan = compilePattern(pattern);
  return (/** @type {string} */ text, /** @type {number} */ start, /** @type {number} */ end, /** @type {OnWord} */ onWord) => {
    let given = start;
    for (let at = start; at < end; ) {
      const stop = scan(text, at, end);
      if (stop > at) {
        if (given < at && keep !== 'matches') onWord(given, at);
        if (keep !== 'rest') onWord(at, stop);
        given = at = stop;
        continue;
      }
      // A match of no length divides, and is not a word.
      if (stop === at && given < at) {
        if (keep !== 'matches') onWord(given, at);
        given = at;
      }
      at += /** @type {number} */ (text.codePointAt(at)) > 0xffff ? 2 : 1;
    }
    if (given < end && keep !== 'matches') onWord(given, end);
  };
};

/**
 * The pre-tokenizer of a file: the splits of GPT-2, Llama 3, Qwen, SmolLM, OLMo, DeepSeek and all that are made of the same parts.
 * @param {any} json
 * @returns {{ prefixSpace: boolean, split: (text: string, onWord: OnWord) => void } | undefined} undefined: no byte-level split, or one that
 *   only another library knows
 */
export function preTokenizerOf(json) {
  /** @type {any[]} */
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
  /** @param {string} text @param {number} stage @param {number} start @param {number} end @param {OnWord} onWord */
  const run = (text, stage, start, end, onWord) => {
    if (stage === stages.length) onWord(start, end);
    else if (stage === stages.length - 1) stages[stage](text, start, end, onWord);
    else stages[stage](text, start, end, (from, to) => run(text, stage + 1, from, to, onWord));
  };
  return { prefixSpace: last.add_prefix_space === true, split: (text, onWord) => run(text, 0, 0, text.length, onWord) };
}
