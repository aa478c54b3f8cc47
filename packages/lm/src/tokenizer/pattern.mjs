/**
 * Runs the regular expressions of `tokenizer.json` with the semantics of Oniguruma, which Hugging Face's `tokenizers` uses. JavaScript's own
 * engine differs in `\s`, `$`, `(?i:` and possessive quantifiers, classifies characters by the Unicode version of each Node.js release, and
 * overflows its stack on a word of some million characters. Here a pattern becomes a deterministic automaton, built as it is needed.
 */

import { grown } from './strings.mjs';
import { UNASSIGNED_IN_PATTERNS } from './unicode.mjs';

/**
 * @typedef {{ set: number } | { cat: Tree[] } | { alt: Tree[] } | { repeat: Tree, min: number, max: number, lazy: boolean }
 *   | { look: number, negate: boolean }} Tree a number is the index of a set of characters
 * @typedef {{ kind: 'set', set: number, to: number } | { kind: 'split', to: number[] }
 *   | { kind: 'look', set: number, negate: boolean, to: number } | { kind: 'match' }} State of the nondeterministic automaton
 * @typedef {(text: Uint8Array, at: number, end: number) => number} Scanner where the match that begins at `at` of a text in valid UTF-8 ends,
 *   -1 if none begins there
 */

/** Thrown for a pattern that the automaton cannot express; `@huggingface/tokenizers` may support it. */
export class UnsupportedPattern extends Error {}

/** A code point that is unassigned in every version of Unicode so far. */
const UNASSIGNED = '\u0378';

/** Oniguruma's character classes as the inside of a JavaScript class. Its `\w` includes the superscripts and fractions of Latin-1. */
const CLASSES = /** @type {Record<string, string>} */ ({
  s: '\\p{White_Space}',
  d: '\\p{Nd}',
  h: '0-9A-Fa-f',
  w: '\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\xb2\xb3\xb9\xbc-\xbe',
});
const CONTROLS = /** @type {Record<string, number>} */ ({ n: 10, r: 13, t: 9, f: 12, v: 11, a: 7, e: 27 });
const MAX_STATES = 1 << 12;

/**
 * Parses a pattern into a tree over sets of characters.
 * @param {string} pattern
 */
function parse(pattern) {
  /** @type {RegExp[]} */
  const sets = [];
  /** @type {Map<string, number>} */
  const known = new Map();
  let at = 0;

  /** @param {string} what @returns {never} */
  const unsupported = (what) => {
    throw new UnsupportedPattern(`${what} at character ${at} of the pattern ${JSON.stringify(pattern)}`);
  };
  const eat = (/** @type {string} */ text) => {
    const found = pattern.startsWith(text, at);
    if (found) at += text.length;
    return found;
  };
  /** Matches a sticky expression at the current position, and moves past it. @param {RegExp} expression */
  const take = (expression) => {
    expression.lastIndex = at;
    const found = expression.exec(pattern);
    if (found !== null) at = expression.lastIndex;
    return found;
  };
  /** The next character, of one or two UTF-16 units. */
  const next = () => take(/[^]/uy)?.[0] ?? unsupported('an end');
  /** The index of a set of characters. @param {string} inside of a JavaScript class @param {boolean} fold whether to ignore case */
  const setOf = (inside, fold) => {
    // JavaScript and Oniguruma apply case folding to properties in different ways.
    if (fold && /\\p/i.test(inside)) unsupported('a property of characters where case is ignored');
    const key = `${fold}${inside}`;
    if (!known.has(key)) known.set(key, sets.push(new RegExp(`^[${inside}]$`, fold ? 'iu' : 'u')) - 1);
    return /** @type {number} */ (known.get(key));
  };
  const literal = (/** @type {number} */ code) => `\\u{${code.toString(16)}}`;

  /** Parses what follows a backslash. @returns {number | string} a code point, or the inside of a class */
  const escaped = () => {
    const digits = take(/x\{([0-9a-f]+)\}|x([0-9a-f]{1,2})|u([0-9a-f]{4})/iy);
    if (digits !== null) return Number.parseInt(digits[1] ?? digits[2] ?? digits[3], 16);
    const property = take(/([pP])\{(\^?)(\w+)\}/y);
    if (property !== null) {
      const [, letter, caret, name] = property;
      for (const key of ['General_Category', 'Script']) {
        const inside = `\\${(letter === 'P') !== (caret === '^') ? 'P' : 'p'}{${key}=${name}}`;
        try {
          new RegExp(inside, 'u');
          return inside;
        } catch {
          // The name may belong to the other key.
        }
      }
      unsupported(`the property ${name}`);
    }
    const letter = next();
    if (letter in CONTROLS) return CONTROLS[letter];
    if (letter in CLASSES) return CLASSES[letter];
    if (/[SDHW]/.test(letter)) return `^${CLASSES[letter.toLowerCase()]}`;
    if (/[A-Za-z0-9]/.test(letter)) unsupported(`\\${letter}`);
    return /** @type {number} */ (letter.codePointAt(0));
  };
  /** A literal character, or the meaning of an escape. @param {string} letter */
  const meaning = (letter) => (letter === '\\' ? escaped() : /** @type {number} */ (letter.codePointAt(0)));

  /** Parses a class after its opening bracket. @returns the inside of a JavaScript class */
  const bracket = () => {
    let inside = eat('^') ? '^' : '';
    for (let first = true; first || !eat(']'); first = false) {
      if (take(/\[|\]|&&/y)) unsupported('a class within a class');
      const low = meaning(next());
      if (typeof low === 'string') {
        if (low[0] === '^' && !/^\^\\p\{\w+\}$/.test(low)) unsupported('a negated class within a class');
        inside += low.replace(/^\^\\p/, '\\P');
        continue;
      }
      inside += literal(low);
      if (!take(/-(?!\])/y)) continue;
      const high = meaning(next());
      if (typeof high === 'string' || high < low) unsupported('a range');
      inside += `-${literal(high)}`;
    }
    return inside;
  };

  /** The set of a tree that matches exactly one character. @param {Tree} tree @returns {number} */
  const single = (tree) => {
    if ('cat' in tree && tree.cat.length === 1) return single(tree.cat[0]);
    return 'set' in tree ? tree.set : unsupported('something longer than one character');
  };
  /** Makes a greedy repetition possessive: it never gives characters back, so a character of its set must not follow. @param {Tree} tree @returns {Tree} */
  const possessive = (tree) => {
    if ('cat' in tree && tree.cat.length === 1) return possessive(tree.cat[0]);
    if ('set' in tree) return tree;
    if (!('repeat' in tree) || tree.lazy || (tree.max !== Infinity && tree.max !== 1)) return unsupported('a possessive part');
    const look = { look: single(tree.repeat), negate: true };
    if (tree.max === 1) return tree.min === 1 ? tree : { alt: [tree.repeat, look] };
    return { cat: [tree, look] };
  };

  /** @param {boolean} fold @returns {Tree} */
  const group = (fold) => {
    const close = (/** @type {Tree} */ tree) => (eat(')') ? tree : unsupported('a group without an end'));
    if (eat('?:')) return close(alternatives(fold));
    if (eat('?i:')) return close(alternatives(true));
    if (eat('?>')) return possessive(close(alternatives(fold)));
    const look = take(/\?([=!])/y);
    if (look !== null) return { look: single(close(alternatives(fold))), negate: look[1] === '!' };
    if (eat('?')) unsupported('a group of this kind');
    return close(alternatives(fold));
  };

  /** @param {boolean} fold @returns {Tree} */
  const atom = (fold) => {
    const letter = next();
    if (letter === '(') return group(fold);
    if (letter === '[') return { set: setOf(bracket(), fold) };
    if (letter === '.') return { set: setOf('^\\n', fold) };
    // The end of a line, as in Ruby: at the end of the text or before a line feed.
    if (letter === '$') return { look: setOf('^\\n', false), negate: true };
    if (letter === '\\' && eat('z')) return { look: setOf('^', false), negate: true };
    if (letter === '^' || /[?*+]/.test(letter)) unsupported(letter);
    const value = meaning(letter);
    return { set: setOf(typeof value === 'string' ? value : literal(value), fold) };
  };

  /** @param {boolean} fold @returns {Tree} */
  const quantified = (fold) => {
    let tree = atom(fold);
    for (;;) {
      const interval = take(/\{(?=\d|,\d)(\d*)(,?)(\d*)\}/y);
      const mark = interval ?? take(/[?*+]/y);
      if (mark === null) return tree;
      if (interval !== null) {
        const [min, max] = [Number(interval[1]), Number(interval[3] || (interval[2] ? Infinity : interval[1]))];
        if (min > max || min > 1000 || (max > 1000 && max < Infinity)) unsupported(interval[0]);
        // In Oniguruma, "?" after {n} makes it optional, and "+" after an interval repeats it: only "?", "*" and "+" can be possessive.
        tree = { repeat: tree, min, max, lazy: interval[2] !== '' && eat('?') };
      } else {
        tree = { repeat: tree, min: mark[0] === '+' ? 1 : 0, max: mark[0] === '?' ? 1 : Infinity, lazy: eat('?') };
        if (!tree.lazy && eat('+')) tree = possessive(tree);
      }
    }
  };

  /** @param {boolean} fold @returns {Tree} */
  const alternatives = (fold) => {
    /** @type {Tree[]} */
    const all = [];
    do {
      /** @type {Tree[]} */
      const cat = [];
      while (at < pattern.length && pattern[at] !== '|' && pattern[at] !== ')') {
        // As in Ruby, `(?i)` applies to the rest of the group, including its alternatives.
        if (eat('(?i)')) cat.push(alternatives(true));
        else cat.push(quantified(fold));
      }
      all.push({ cat });
    } while (eat('|'));
    return all.length === 1 ? all[0] : { alt: all };
  };

  const tree = alternatives(false);
  if (at < pattern.length) unsupported(pattern[at]);
  return { tree, sets };
}

/** Builds the nondeterministic automaton of a tree (Thompson 1968). A split lists its branches in the order of a backtracking engine. @param {Tree} tree */
function statesOf(tree) {
  /** @type {State[]} */
  const states = [{ kind: 'match' }];
  /** @param {State} state */
  const add = (state) => {
    if (states.length > MAX_STATES) throw new UnsupportedPattern('a pattern of too many states');
    return states.push(state) - 1;
  };
  /** @param {Tree} tree @param {number} to @returns {number} */
  const build = (tree, to) => {
    if ('set' in tree) return add({ kind: 'set', set: tree.set, to });
    if ('look' in tree) return add({ kind: 'look', set: tree.look, negate: tree.negate, to });
    if ('cat' in tree) return tree.cat.reduceRight((next, part) => build(part, next), to);
    if ('alt' in tree) return add({ kind: 'split', to: tree.alt.map((part) => build(part, to)) });
    const ways = (/** @type {number} */ more) => (tree.lazy ? [to, more] : [more, to]);
    let start = to;
    if (tree.max === Infinity) {
      const loop = { kind: /** @type {const} */ ('split'), to: /** @type {number[]} */ ([]) };
      start = add(loop);
      loop.to = ways(build(tree.repeat, start));
    } else {
      for (let i = tree.min; i < tree.max; i++) start = add({ kind: 'split', to: ways(build(tree.repeat, start)) });
    }
    for (let i = 0; i < tree.min; i++) start = build(tree.repeat, start);
    return start;
  };
  return { start: build(tree, 0), states };
}

/**
 * Compiles a pattern. A match is the one that a backtracking engine finds: it prefers earlier alternatives, and longer repetitions.
 * @param {string} pattern
 * @returns {Scanner}
 * @throws {UnsupportedPattern} for a construct that is not supported, and for a pattern with too many states
 */
export function compilePattern(pattern) {
  const { tree, sets } = parse(pattern);
  const { start, states } = statesOf(tree);

  // Characters that are in the same sets form one kind. Kind 1 is the end of the text, which is in no set.
  const kindOf = new Uint8Array(0x110000);
  const END = 1;
  /** @type {boolean[][]} by kind, then by set */
  const held = [[], sets.map(() => false)];
  /** @type {Map<string, number>} */
  const kinds = new Map();
  const classify = (/** @type {number} */ code) => {
    const character = String.fromCodePoint(code);
    const bits = sets.map((set) => set.test(UNASSIGNED_IN_PATTERNS.test(character) ? UNASSIGNED : character));
    const key = bits.map(Number).join('');
    let kind = kinds.get(key);
    if (kind === undefined) {
      kind = held.push(bits) - 1;
      if (kind > 255) throw new UnsupportedPattern(`a pattern of too many kinds of characters: ${JSON.stringify(pattern)}`);
      kinds.set(key, kind);
    }
    kindOf[code] = kind;
    return kind;
  };

  // A state of the deterministic automaton is an ordered list of states of the nondeterministic one; state 0 is the empty list, where nothing
  // more can match. A transition is 0 if it has not been computed, else 4 · next state + (2 if a match ends before this character) + 1.
  const lists = [[], [start]];
  /** @type {Map<string, number>} */
  const known = new Map([
    ['', 0],
    [`${start}`, 1],
  ]);
  let transitions = new Int32Array(16 << 8);
  const step = (/** @type {number} */ from, /** @type {number} */ kind) => {
    /** @type {Set<number>} */
    const next = new Set();
    const seen = new Set();
    let matched = false;
    const visit = (/** @type {number} */ index) => {
      // A match has priority over everything after it.
      if (matched || seen.has(index)) return;
      seen.add(index);
      const state = states[index];
      if (state.kind === 'match') matched = true;
      else if (state.kind === 'split') state.to.forEach(visit);
      else if (state.kind === 'look') held[kind][state.set] !== state.negate && visit(state.to);
      else if (held[kind][state.set]) next.add(state.to);
    };
    lists[from].forEach(visit);
    const list = [...next];
    const key = list.join(' ');
    let to = known.get(key);
    if (to === undefined) {
      to = lists.push(list) - 1;
      if (to > MAX_STATES) throw new UnsupportedPattern(`a pattern of too many states: ${JSON.stringify(pattern)}`);
      known.set(key, to);
      if (to << 8 >= transitions.length) transitions = grown(transitions);
    }
    return (transitions[(from << 8) | kind] = (to << 2) | (matched ? 2 : 0) | 1);
  };

  return (text, at, end) => {
    let state = 1;
    let found = -1;
    for (let i = at; ; ) {
      let kind = END;
      let width = 1;
      if (i < end) {
        let code = text[i];
        if (code >= 0xf0) {
          code = ((code & 0x07) << 18) | ((text[i + 1] & 0x3f) << 12) | ((text[i + 2] & 0x3f) << 6) | (text[i + 3] & 0x3f);
          width = 4;
        } else if (code >= 0xe0) {
          code = ((code & 0x0f) << 12) | ((text[i + 1] & 0x3f) << 6) | (text[i + 2] & 0x3f);
          width = 3;
        } else if (code >= 0x80) {
          code = ((code & 0x1f) << 6) | (text[i + 1] & 0x3f);
          width = 2;
        }
        kind = kindOf[code] || classify(code);
      }
      const transition = transitions[(state << 8) | kind] || step(state, kind);
      if (transition & 2) found = i;
      state = transition >> 2;
      if (state === 0) return found;
      i += width;
    }
  };
}
