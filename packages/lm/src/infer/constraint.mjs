// Which tokens may come next in an answer of a given form, such as JSON.

import { ANY_OBJECT, DONE, MAX_DEPTH, shapeOf, startOf } from './grammar.mjs';

/** @typedef {import('../tokenizer/load.mjs').Tokenizer} Tokenizer */
/** @typedef {import('./grammar.mjs').State} State */

/** Schemas whose states are kept, and of each the sets of tokens that were found: one has 19 KB with 152,000 tokens. */
const [MAX_SCHEMAS, MAX_SETS] = [8, 200];
/** Characters of a schema: thousands of names to choose from take a while for each token. */
const MAX_SCHEMA = 65_536;

/** The tokens of a model by their bytes, and what may follow where. */
export class Constraints {
  /** By what describes the form. `sets`: the tokens that may come, by state. @type {Map<string, { start: State, sets: Map<State, Uint32Array> }>} */
  #known = new Map();
  #tokenizer;
  #tokens;
  #stopIds;

  /**
   * @param {Tokenizer} tokenizer
   * @param {{ vocabSize?: number, stopIds?: readonly number[] }} [model] ids below `vocabSize` may come; `stopIds`, which end an answer, are no part
   *   of its text, though some tokenizers print them
   * @throws {RangeError} for a tokenizer that cannot write every text
   */
  constructor(tokenizer, { vocabSize = Infinity, stopIds = [] } = {}) {
    this.#tokenizer = tokenizer;
    this.#stopIds = new Set(stopIds.filter((id) => id < tokenizer.vocabSize));
    this.#tokens = sortedTokens(tokenizer, (id) => id < vocabSize && !this.#stopIds.has(id));
    // Otherwise an answer may come where no token goes on.
    const single = new Set(this.#tokens.flatMap(({ bytes }) => (bytes.length === 1 ? [bytes[0]] : [])));
    for (let byte = 0x20; byte <= 0xf4; byte++)
      if (byte !== 0xc0 && byte !== 0xc1 && !single.has(byte)) throw new RangeError(`the tokenizer has no token for the byte ${byte}`);
  }

  /**
   * An answer of JSON.
   * @param {true | object} schema true: any object
   * @param {string} at what the schema is called in messages
   * @returns {import('./types.mjs').Constraint}
   * @throws {RangeError} as `shapeOf`
   */
  of(schema, at) {
    return this.by(keyOf(schema, at), () => startOf(schema === true ? ANY_OBJECT : rootOf(schema, at)));
  }

  /**
   * An answer of any form.
   * @param {string} key the same for the same form and marks
   * @param {() => State} start the state before the answer
   * @param {readonly number[]} [marks] special tokens that are part of the form: the i-th is the code 256 + i
   * @returns {import('./types.mjs').Constraint}
   * @throws {RangeError} of `start`
   */
  by(key, start, marks = []) {
    let known = this.#known.get(key);
    if (!known) {
      known = { start: start(), sets: new Map() };
      if (this.#known.size >= MAX_SCHEMAS) this.#known.clear();
      this.#known.set(key, known);
    }
    let { start: state, sets } = known;
    return {
      allowed: () => {
        let found = sets.get(state);
        if (!found) {
          if (sets.size >= MAX_SETS) {
            // A state has all that was seen to follow it, and answers nest in ever new ways: the next one begins with new states.
            sets.clear();
            if (this.#known.get(key)?.sets === sets) this.#known.delete(key);
          }
          sets.set(state, (found = this.#allowed(state, marks)));
        }
        return found;
      },
      accept: (token) => {
        if (state.ends && this.#stopIds.has(token)) return 'stop';
        const mark = marks.indexOf(token);
        for (const byte of mark >= 0 ? [256 + mark] : (this.#tokenizer.bytesOf(token) ?? [])) state = state.next(byte) ?? DONE;
        if (state === DONE) return 'stop';
        return state.depth > MAX_DEPTH ? 'length' : null;
      },
    };
  }

  /**
   * Tokens in the order of their bytes: what two have in common is tried once.
   * @param {State} start @param {readonly number[]} marks @returns {Uint32Array} a bit for each id
   */
  #allowed(start, marks) {
    const bits = new Uint32Array(Math.ceil(this.#tokenizer.vocabSize / 32)).fill(start.free ? 0xffffffff : 0);
    const set = (/** @type {number} */ id, /** @type {boolean} */ may) => {
      if (may) bits[id >> 5] |= 1 << (id & 31);
      else bits[id >> 5] &= ~(1 << (id & 31));
    };
    for (const id of this.#stopIds) set(id, start.ends);
    for (const [i, id] of marks.entries()) set(id, start.next(256 + i) !== null);
    /** @type {State[]} */
    const states = [start];
    let failed = Infinity;
    for (const { id, bytes, common } of this.#tokens) {
      if (common > failed) {
        set(id, false);
        continue;
      }
      failed = Infinity;
      for (let at = common; at < bytes.length; at++) {
        const next = states[at].next(bytes[at]);
        if (next) states[at + 1] = next;
        else {
          failed = at;
          break;
        }
      }
      set(id, failed === Infinity);
    }
    // Sampled from nothing, a token would look like one of damaged weights.
    if (!bits.some((word) => word !== 0)) throw new RangeError('no token may follow the text of this form');
    return bits;
  }
}

/** The text of a schema. @param {unknown} schema @param {string} at */
export function keyOf(schema, at) {
  let key;
  try {
    key = JSON.stringify(schema);
  } catch {
    // Nested too deeply, or in a circle.
  }
  if (key === undefined || key.length > MAX_SCHEMA)
    throw new RangeError(`${at} must be JSON of at most ${MAX_SCHEMA} characters, and not nested too deeply`);
  return key;
}

/** @param {object} schema @param {string} at */
export function rootOf(schema, at) {
  const shape = shapeOf(schema, at);
  // Its end is known from its last byte.
  if (shape.types.size !== 1 || !shape.types.has('object') || shape.texts) throw new RangeError(`${at}.type must be object`);
  return shape;
}

/**
 * Tokens that stand for bytes, in their order; `common`: how many bytes the one before has in common.
 * @param {Tokenizer} tokenizer @param {(id: number) => boolean} isText
 */
function sortedTokens(tokenizer, isText) {
  const tokens = [];
  for (let id = 0; id < tokenizer.vocabSize; id++) {
    const bytes = isText(id) ? tokenizer.bytesOf(id) : undefined;
    // Texts are compared several times as fast as bytes.
    if (bytes && bytes.length > 0) tokens.push({ id, bytes, text: Buffer.from(bytes).toString('latin1'), common: 0 });
  }
  tokens.sort((a, b) => (a.text < b.text ? -1 : Number(a.text > b.text)));
  for (let i = 1; i < tokens.length; i++) {
    const [before, bytes] = [tokens[i - 1].bytes, tokens[i].bytes];
    let { common } = tokens[i];
    while (common < before.length && common < bytes.length && before[common] === bytes[common]) common++;
    tokens[i].common = common;
  }
  return tokens.map(({ id, bytes, common }) => ({ id, bytes, common }));
}
