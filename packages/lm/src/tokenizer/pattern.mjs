/**
 * The regular expressions of `tokenizer.json`, as Oniguruma (which Hugging Face's `tokenizers` uses) reads them, run as a lazily built
 * automaton. JavaScript's own engine differs in `\s`, `$`, `(?i:` and possessive quantifiers, classifies characters by the Unicode version
 * of each Node.js release, and runs out of stack within a word of some million characters. The automaton reads each character once.
 */

import { UNASSIGNED_IN_PATTERNS } from './unicode.mjs';

/**
 * @typedef {{ set: number } | { cat: Tree[] } | { alt: Tree[] } | { repeat: Tree, min: number, max: number, lazy: boolean }
 *   | { look: number, negate: boolean }} Tree a number is the index of a set of characters
 * @typedef {{ kind: 'set', set: number, to: number } | { kind: 'split', to: number[] }
 *   | { kind: 'look', set: number, negate: boolean, to: number } | { kind: 'match' }} State of the nondeterministic automaton
 * @typedef {(text: string, at: number, end: number) => number} Scanner where the match that begins at `at` ends, -1 if none begins there
 */

/** A pattern that the automaton does not express: another library may read it. */
export class UnsupportedPattern extends Error {}

/** A code point that no version of Unicode assigns a meaning to yet. */
const UNASSIGNED = '\u0378';

/** Oniguruma's classes as the inside of a class in JavaScript. Its `\w` holds the superscripts and fractions of Latin-1 too. */
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
  const source = Array.from(pattern);
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
    const found = source.slice(at, at + text.length).join('') === text;
    if (found) at += text.length;
    return found;
  };
  /** @param {string} inside of a class @param {boolean} fold ignore case */
  const setOf = (inside, fold) => {
    // JavaScript and Oniguruma fold properties in different ways.
    if (fold && /\\p/i.test(inside)) unsupported('a property of characters where case is ignored');
    const key = `${fold}${inside}`;
    if (!known.has(key)) known.set(key, sets.push(new RegExp(`^[${inside}]$`, fold ? 'iu' : 'u')) - 1);
    return /** @type {number} */ (known.get(key));
  };
  const literal = (/** @type {number} */ code) => `\\u{${code.toString(16)}}`;

  /** What follows a backslash. @returns {number | string} a code point, or the inside of a class */
  const escaped = () => {
    const letter = source[at++];
    if (letter === undefined) unsupported('a backslash');
    if (letter in CONTROLS) return CONTROLS[letter];
    if (letter in CLASSES) return CLASSES[letter];
    if (/[SDHW]/.test(letter)) return `^${CLASSES[letter.toLowerCase()]}`;
    if (letter === 'x' || letter === 'u') {
      const [all, braced, bare] =
        /^(?:\{([0-9a-fA-F]+)\}|([0-9a-fA-F]+))/.exec(source.slice(at, at + 10).join('')) ?? unsupported('an escape');
      const digits = braced ?? bare.slice(0, letter === 'x' ? 2 : 4);
      at += braced === undefined ? digits.length : all.length;
      return Number.parseInt(digits, 16);
    }
    if (letter === 'p' || letter === 'P') {
      const end = source.indexOf('}', at);
      if (source[at] !== '{' || end < 0) unsupported('a property of characters');
      const [, caret, name] = /** @type {RegExpExecArray} */ (/^(\^?)(.*)$/.exec(source.slice(at + 1, end).join('')));
      at = end + 1;
      const property = [`General_Category=${name}`, `Script=${name}`].find((value) => {
        try {
          return new RegExp(`\\p{${value}}`, 'u');
        } catch {
          return false;
        }
      });
      if (property === undefined) unsupported(`the property ${name}`);
      return `\\${(letter === 'P') !== (caret === '^') ? 'P' : 'p'}{${property}}`;
    }
    if (/[A-Za-z0-9]/.test(letter)) unsupported(`\\${letter}`);
    return /** @type {number} */ (letter.codePointAt(0));
  };

  /** A class after its bracket. @returns the inside of a class in JavaScript */
  const bracket = () => {
    let inside = eat('^') ? '^' : '';
    for (let first = true; ; first = false) {
      const letter = source[at++];
      if (letter === undefined) unsupported('a class without an end');
      if (letter === ']' && !first) return inside;
      if (letter === '[' || letter === ']' || (letter === '&' && source[at] === '&')) unsupported('a class within a class');
      const low = letter === '\\' ? escaped() : /** @type {number} */ (letter.codePointAt(0));
      if (typeof low === 'string') {
        if (low[0] !== '^') inside += low;
        else if (/^\^\\p\{\w+\}$/.test(low)) inside += `\\P${low.slice(3)}`;
        else unsupported('a negated class within a class');
        continue;
      }
      inside += literal(low);
      if (source[at] !== '-' || source[at + 1] === ']') continue;
      at++;
      const high = eat('\\') ? escaped() : /** @type {number} */ (source[at++].codePointAt(0));
      if (typeof high === 'string' || high < low) unsupported('a range');
      inside += `-${literal(high)}`;
    }
  };

  /** @param {Tree} tree @returns {number} the one set of characters that the tree is */
  const single = (tree) => {
    if ('cat' in tree && tree.cat.length === 1) return single(tree.cat[0]);
    return 'set' in tree ? tree.set : unsupported('something longer than one character');
  };
  /** @param {Tree} tree, greedy, whose repetitions are never given back: what follows them is no such character. @returns {Tree} */
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
    for (const [mark, negate] of /** @type {[string, boolean][]} */ ([
      ['?=', false],
      ['?!', true],
    ])) {
      if (eat(mark)) return { look: single(close(alternatives(fold))), negate };
    }
    if (source[at] === '?') unsupported(`the group (${source.slice(at, at + 3).join('')}`);
    return close(alternatives(fold));
  };

  /** @param {boolean} fold @returns {Tree} */
  const atom = (fold) => {
    const letter = source[at++];
    if (letter === '(') return group(fold);
    if (letter === '[') return { set: setOf(bracket(), fold) };
    if (letter === '.') return { set: setOf('^\\n', fold) };
    // The end of a line, as in Ruby: nothing follows, or a line end does.
    if (letter === '$') return { look: setOf('^\\n', false), negate: true };
    if (letter === '\\' && eat('z')) return { look: setOf('^', false), negate: true };
    if (letter === '^' || /[?*+]/.test(letter)) unsupported(letter);
    const value = letter === '\\' ? escaped() : /** @type {number} */ (letter.codePointAt(0));
    return { set: setOf(typeof value === 'string' ? value : literal(value), fold) };
  };

  /** @param {boolean} fold @returns {Tree} */
  const quantified = (fold) => {
    let tree = atom(fold);
    for (;;) {
      const interval = /^\{(\d*)(,?)(\d*)\}/.exec(source.slice(at, at + 16).join(''));
      const mark = '?*+'.indexOf(source[at] ?? ' ');
      if (mark >= 0) {
        at++;
        tree = { repeat: tree, min: [0, 0, 1][mark], max: [1, Infinity, Infinity][mark], lazy: eat('?') };
        if (!tree.lazy && eat('+')) tree = possessive(tree);
      } else if (interval !== null && interval[1] + interval[3] !== '') {
        at += interval[0].length;
        const [, low, comma, high] = interval;
        const max = high !== '' ? Number(high) : comma ? Infinity : Number(low);
        if (Number(low) > max || Math.max(Number(low), max === Infinity ? 0 : max) > 1000) unsupported(interval[0]);
        tree = { repeat: tree, min: Number(low), max, lazy: comma !== '' && eat('?') };
        // Here "?" makes {n} optional, and "+" repeats an interval: Oniguruma's possessive marks are those after "?", "*" and "+" only.
      } else return tree;
    }
  };

  /** @param {boolean} fold @returns {Tree} */
  const alternatives = (fold) => {
    /** @type {Tree[]} */
    const all = [];
    do {
      /** @type {Tree[]} */
      const cat = [];
      while (at < source.length && source[at] !== '|' && source[at] !== ')') {
        // As in Ruby, it holds for the rest of the group, alternatives included.
        if (eat('(?i)')) cat.push(alternatives(true));
        else cat.push(quantified(fold));
      }
      all.push({ cat });
    } while (eat('|'));
    return all.length === 1 ? all[0] : { alt: all };
  };

  const tree = alternatives(false);
  if (at < source.length) unsupported(source[at]);
  return { tree, sets };
}

/** Thompson's construction: the states of a tree, in the order in which a backtracking engine would try them. @param {Tree} tree */
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
 * Compiles a pattern. The match is the one that a backtracking engine finds: earlier alternatives and longer repetitions first.
 * @param {string} pattern
 * @returns {Scanner}
 * @throws {UnsupportedPattern}
 */
export function compilePattern(pattern) {
  const { tree, sets } = parse(pattern);
  const { start, states } = statesOf(tree);

  // Characters that the same sets hold are one kind. Kind 1 is the end of the text, which no set holds.
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

  // States of the automaton are ordered lists of states of the nondeterministic one. A transition is 0 where it is not known yet, else
  // 4 × the next state + 2 if a match ends before this character + 1. State 0 is where nothing more can match.
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
      // What a match precedes comes too late.
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
      if (to << 8 >= transitions.length) {
        const more = new Int32Array(transitions.length * 2);
        more.set(transitions);
        transitions = more;
      }
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
        let code = text.charCodeAt(i);
        if ((code & 0xfc00) === 0xd800 && i + 1 < end) {
          code = /** @type {number} */ (text.codePointAt(i));
          if (code > 0xffff) width = 2;
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
