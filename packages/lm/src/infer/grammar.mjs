// JSON that fits a schema, as an automaton over the bytes of its text.
//
// A state is made by a function that is told the state after its value, so that states are a stack. What follows a state's byte is made once: states
// that come again, as those of a list's next element, are the same objects, and what was found out of one is known then. Members of an object come in
// the schema's order.

import { decoded } from '../address.mjs';
import { shown } from '../options.mjs';

/** @typedef {Record<string, any>} Json */

/**
 * What a value may be. `anyOf`: one of these, whatever else is said; `texts`: one of these, bytes as characters; `members`: of an object, in order,
 * or any, each of which is `others`; `items`: of a list, of `minItems` to `maxItems`; `range`: of an integer.
 * @typedef {{ types: Set<string>, anyOf?: Shape[], texts?: string[], members?: Member[], others?: Shape, items?: Shape, minItems?: number,
 *   maxItems?: number, range?: [number, number] }} Shape
 * @typedef {{ name: string, shape: Shape, required: boolean }} Member
 *
 * The schema that others are in, to which `$ref` points, and the shapes of those that were pointed to.
 * @typedef {{ schema: unknown, at: string, known: Map<unknown, Shape> }} Root
 */

const TYPES = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'];
/** Keywords that constrain nothing. */
const NOTES = ['title', 'description', 'default', 'examples', '$schema', '$id', '$comment', 'deprecated', 'readOnly', 'writeOnly'];
/** Keywords that constrain a value. */
const TELLING = (
  'type enum const properties required additionalProperties items minItems maxItems ' +
  'minimum maximum exclusiveMinimum exclusiveMaximum anyOf $ref'
).split(' ');
/** What `$ref` points to; alone they constrain nothing. */
const DEFINITIONS = ['$defs', 'definitions'];
const KEYWORDS = [...TELLING, ...DEFINITIONS, ...NOTES];
/** White space at one place: without an end a model may write nothing else. */
const MAX_SPACES = 32;
/** Schemas one in the other: every level is a call. */
const MAX_LEVELS = 200;
/** Items that can be counted: every one has states of its own. */
const MAX_ITEMS = 1000;
/** Alternatives of one value: each is looked at for every byte. */
const MAX_ALTERNATIVES = 100;
/** Values in one another of an answer, which is cut there: a schema may refer to itself, and each level keeps its states. */
export const MAX_DEPTH = 256;
/** Of a safe integer. */
const MAX_DIGITS = 16;

/** Any value. @type {Shape} */
const ANY = { types: new Set(TYPES) };
/** Any object. @type {Shape} */
export const ANY_OBJECT = { ...ANY, types: new Set(['object']) };

/** A text with its UTF-8 bytes as characters. @param {unknown} value of JSON */
export const textOf = (value) => Buffer.from(JSON.stringify(value)).toString('latin1');

/** @param {unknown} value @returns {value is Json} */
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

/** The type of a value of JSON, of `TYPES`. @param {unknown} value */
const typesOf = (value) => {
  if (value === null) return ['null'];
  if (Array.isArray(value)) return ['array'];
  return typeof value === 'number' ? (Number.isInteger(value) ? ['integer', 'number'] : ['number']) : [typeof value];
};

/**
 * The shape that a JSON schema describes.
 * @param {unknown} schema @param {string} at what it is called in messages @param {number} [level] how many others it is in
 * @param {Root} [root] @param {string[]} [chain] what led here by `$ref` and `anyOf` alone
 * @returns {Shape} that of a schema which refers to itself is complete when the outermost call returns
 * @throws {RangeError} that names a keyword that is not supported, or wrong, and where it is
 */
export function shapeOf(schema, at, level = 0, root = { schema, at, known: new Map() }, chain = []) {
  if (schema === true) return ANY;
  if (level > MAX_LEVELS) throw new RangeError(`${at.slice(0, 100)}… is in more than ${MAX_LEVELS} other schemas`);
  if (!isObject(schema)) throw new RangeError(`${at} must be a JSON schema, got ${shown(schema)}`);
  const unknown = Object.keys(schema).find((key) => !KEYWORDS.includes(key));
  if (unknown !== undefined) throw new RangeError(`${at}.${unknown} is not supported; there are ${TELLING.join(', ')}`);
  for (const alone of ['$ref', 'anyOf']) {
    const beside = alone in schema && TELLING.find((key) => key !== alone && key in schema);
    if (beside) throw new RangeError(`${at}.${beside} is not supported beside ${alone}`);
  }
  if ('$ref' in schema) return referred(schema.$ref, `${at}.$ref`, level, root, chain);
  if ('anyOf' in schema) {
    const { anyOf } = schema;
    if (!Array.isArray(anyOf) || anyOf.length === 0) throw new RangeError(`${at}.anyOf must be a list of schemas, got ${shown(anyOf)}`);
    /** @type {Shape} */
    const shape = { types: new Set(), anyOf: anyOf.map((each, i) => shapeOf(each, `${at}.anyOf[${i}]`, level + 1, root, chain)) };
    if (leavesOf(shape).length > MAX_ALTERNATIVES) throw new RangeError(`${at}.anyOf has more than ${MAX_ALTERNATIVES} alternatives`);
    return shape;
  }
  const { type, properties, required = [], additionalProperties: others, items = true } = schema;
  const given = type === undefined ? TYPES : [type].flat();
  const wrong = given.find((/** @type {unknown} */ each) => !TYPES.includes(/** @type {string} */ (each)));
  if (wrong !== undefined || given.length === 0)
    throw new RangeError(`${at}.type must be of ${TYPES.join(', ')}, got ${shown(wrong ?? type)}`);
  const types = new Set(/** @type {string[]} */ (given));
  // With properties no others are written.
  if (others !== undefined && others !== false && properties !== undefined)
    throw new RangeError(`${at}.additionalProperties must be false beside properties, got ${shown(others)}`);
  if (properties !== undefined && !isObject(properties))
    throw new RangeError(`${at}.properties must be an object, got ${shown(properties)}`);
  const named = Object.entries(properties ?? {});
  const wanted = new Set(Array.isArray(required) ? required : [required]);
  const names = new Set(named.map(([name]) => name));
  const missing = Array.isArray(required) ? [...wanted].find((name) => !names.has(name)) : required;
  if (missing !== undefined) throw new RangeError(`${at}.required must be a list of names of properties, got ${shown(missing)}`);
  const inner = (/** @type {unknown} */ own, /** @type {string} */ where) => shapeOf(own, `${at}.${where}`, level + 1, root);
  const member = (/** @type {[string, unknown]} */ [name, own]) => ({
    name,
    shape: inner(own, `properties.${name}`),
    required: wanted.has(name),
  });
  const shape = {
    types,
    members: properties !== undefined || others === false ? named.map(member) : undefined,
    others: others === undefined || others === false ? undefined : inner(others, 'additionalProperties'),
    items: inner(items, 'items'),
    ...sizesOf(schema, at),
    range: rangeOf(schema, at, types),
  };
  if (!('enum' in schema) && !('const' in schema)) return shape;
  if ('enum' in schema && !Array.isArray(schema.enum)) throw new RangeError(`${at}.enum must be a list, got ${shown(schema.enum)}`);
  const values = 'const' in schema ? [schema.const] : schema.enum;
  const [least, greatest] = shape.range ?? [-Infinity, Infinity];
  const fits = (/** @type {unknown} */ each) =>
    typesOf(each).some((type) => types.has(type)) && !(typeof each === 'number' && (each < least || each > greatest));
  const texts = values.filter(fits).map(textOf);
  if (texts.length === 0) throw new RangeError(`${at}.${'const' in schema ? 'const' : 'enum'} has no value of its type and bounds`);
  return { ...shape, texts };
}

/**
 * The shape that `$ref` points to. @param {unknown} pointer @param {string} at @param {number} level @param {Root} root @param {string[]} chain
 * @returns {Shape}
 */
function referred(pointer, at, level, root, chain) {
  if (typeof pointer !== 'string' || !/^#(\/|$)/.test(pointer))
    throw new RangeError(`${at} must point into this schema, as #/$defs/name, got ${shown(pointer)}`);
  if (chain.includes(pointer)) throw new RangeError(`${at} points to itself`);
  /** @type {any} */
  let schema = root.schema;
  const keys = pointer.split('/').slice(1);
  for (const key of keys.map((each) => decoded(each).replaceAll('~1', '/').replaceAll('~0', '~')))
    schema = typeof schema === 'object' && schema !== null && Object.hasOwn(schema, key) ? schema[key] : undefined;
  if (schema === undefined) throw new RangeError(`${at} points to nothing, got ${shown(pointer)}`);
  const where = [root.at, ...keys].join('.');
  const own = [...chain, pointer];
  // Another reference: the shape at its end, which may be under way, and not a copy of what it has so far.
  if (isObject(schema) && '$ref' in schema) return shapeOf(schema, where, level + 1, root, own);
  const known = root.known.get(schema);
  if (known) return known;
  const shape = /** @type {Shape} */ ({});
  root.known.set(schema, shape);
  return Object.assign(shape, shapeOf(schema, where, level + 1, root, own));
}

/** How many items a list may have. @param {Json} schema @param {string} at */
function sizesOf(schema, at) {
  const { minItems = 0, maxItems = Infinity } = schema;
  for (const [name, value] of Object.entries({ minItems, maxItems }))
    if (!(name === 'maxItems' && value === Infinity) && !(Number.isInteger(value) && value >= 0 && value <= MAX_ITEMS))
      throw new RangeError(`${at}.${name} must be an integer from 0 to ${MAX_ITEMS}, got ${shown(value)}`);
  if (minItems > maxItems) throw new RangeError(`${at}.minItems must be at most maxItems, got ${minItems}`);
  return { minItems, maxItems };
}

/** Least and greatest integer. @param {Json} schema @param {string} at @param {Set<string>} types @returns {[number, number] | undefined} */
function rangeOf(schema, at, types) {
  const bounds = ['minimum', 'exclusiveMinimum', 'maximum', 'exclusiveMaximum'].filter((key) => key in schema);
  if (bounds.length === 0) return undefined;
  if (types.has('number')) throw new RangeError(`${at}.${bounds[0]} is supported of the type integer alone`);
  const bad = bounds.find((key) => typeof schema[key] !== 'number');
  if (bad) throw new RangeError(`${at}.${bad} must be a number, got ${shown(schema[bad])}`);
  const { minimum = -Infinity, exclusiveMinimum = -Infinity, maximum = Infinity, exclusiveMaximum = Infinity } = schema;
  const least = Math.max(Math.ceil(minimum), Math.floor(exclusiveMinimum) + 1, Number.MIN_SAFE_INTEGER);
  const greatest = Math.min(Math.floor(maximum), Math.ceil(exclusiveMaximum) - 1, Number.MAX_SAFE_INTEGER);
  if (least > greatest) throw new RangeError(`${at}.${bounds[0]} leaves no integer, got ${shown(schema[bounds[0]])}`);
  return [least, greatest];
}

const codeOf = (/** @type {string} */ character) => character.charCodeAt(0);
const [QUOTE, BACKSLASH, COMMA, COLON, MINUS, PLUS, POINT, ZERO, NINE, U] = [...'"\\,:-+.09u'].map(codeOf);
const [OPEN_LIST, CLOSE_LIST, OPEN, CLOSE] = [...'[]{}'].map(codeOf);
/** The codes of white space, which may come between tokens. */
export const SPACES = new Set([...' \n\r\t'].map(codeOf));
const [ESCAPES, HEX] = ['"\\/bfnrt', '0123456789abcdefABCDEF'].map((all) => new Set([...all].map(codeOf)));
const isDigit = (/** @type {number} */ byte) => byte >= ZERO && byte <= NINE;
const isE = (/** @type {number} */ byte) => (byte | 0x20) === 0x65;

/** What follows [ or { of a value. @typedef {(shape: Shape, then: State) => State} Opening */

let made = 0;

/** What has been written, as far as it matters for what may come. */
export class State {
  /** By byte. @type {(State | null | undefined)[]} */
  #after = [];
  #step;
  #id = made++;
  /** Unions of this state and others, by the ids of all. @type {Map<string, State>} */
  #unions = new Map();
  /** Values before this state that have been opened. @type {Map<Opening, WeakMap<Shape, State>>} */
  #opened = new Map();
  /** The value that has just been opened, where this is the state after that. `outer`: after its end. @type {{ open: Opening, shape: Shape, outer: State } | undefined} */
  opened;
  /** States of which one is true. @type {readonly State[]} */
  all = [this];

  /**
   * @param {(byte: number) => State | null} step the state after a byte; null if it may not come. Codes from 256 are special tokens
   * @param {{ ends?: boolean, free?: boolean, depth?: number }} [more] `ends`: the text may end here; `free`: so may come what is no text;
   *   `depth`: values that are open
   */
  constructor(step, { ends = false, free = false, depth = 0 } = {}) {
    this.#step = step;
    this.ends = ends;
    this.free = free;
    this.depth = depth;
  }

  /** The state after the opening of a value that this state follows: the same for the same value. @param {Opening} open @param {Shape} shape */
  after(open, shape) {
    const known = this.#opened.get(open) ?? new WeakMap();
    let state = known.get(shape);
    if (!state) {
      state = open(shape, this);
      state.opened = { open, shape, outer: this };
      // `DONE` outlives every schema.
      if (this !== DONE) this.#opened.set(open, known.set(shape, state));
    }
    return state;
  }

  /** The union of several states, of which this is one: the same for the same states. @param {readonly State[]} all */
  union(all) {
    const key = all.map((state) => state.#id).join();
    let state = this.#unions.get(key);
    if (!state) {
      const step = (/** @type {number} */ byte) => {
        const next = all.flatMap((each) => each.next(byte) ?? []);
        return next.length > 0 ? either(next, all.length) : null;
      };
      state = new State(step, { ends: all.some((each) => each.ends || each === DONE), depth: Math.max(...all.map(({ depth }) => depth)) });
      state.all = all;
      this.#unions.set(key, state);
    }
    return state;
  }

  /** The state after a byte; null if it may not come. @param {number} byte @returns {State | null} */
  next(byte) {
    let after = this.#after[byte];
    if (after === undefined) this.#after[byte] = after = this.#step(byte);
    return after;
  }
}

/** After a whole text: nothing may come. */
export const DONE = new State(() => null);

/** The state before a text of a shape, which must have an end: an object, a list or a text. @param {Shape} shape @param {State} [then] */
export const startOf = (shape, then = DONE) => value(shape, then);

/**
 * The state before one of several texts of whatever begins in these states. One value that was opened in several of them is in the union once, before
 * whatever may follow it: else values in values would double the states at each level.
 * @param {readonly State[]} states at least one @param {number} [before] of how many alternatives they come: there are no more after them, beyond
 *   `MAX_ALTERNATIVES`. What the others would allow is not written then
 * @returns {State}
 */
export function either(states, before = Infinity) {
  const alternatives = new Set(states.flatMap(({ all }) => all));
  /** @type {Map<Opening, Map<Shape, State[]>>} */
  const opened = new Map();
  for (const state of alternatives) {
    if (!state.opened) continue;
    const { open, shape } = state.opened;
    const shapes = opened.get(open) ?? new Map();
    opened.set(open, shapes.set(shape, [...(shapes.get(shape) ?? []), state]));
  }
  for (const [open, shapes] of opened) {
    for (const [shape, same] of shapes) {
      if (same.length === 1) continue;
      for (const state of same) alternatives.delete(state);
      alternatives.add(either(same.map((state) => /** @type {{ outer: State }} */ (state.opened).outer)).after(open, shape));
    }
  }
  const all = [...alternatives].slice(0, Math.max(before, MAX_ALTERNATIVES));
  if (all.length === 1) return all[0];
  return (all.find((state) => state !== DONE) ?? DONE).union(all);
}

/** Any text, up to a mark in it and then what follows that. @param {string} mark @param {() => State} then @returns {State} */
export function until(mark, then) {
  /** After so many characters of the mark. @type {State[]} */
  const states = Array.from(mark, (_, seen) => {
    const step = (/** @type {number} */ byte) => {
      let end = mark.slice(0, seen) + String.fromCharCode(byte);
      while (!mark.startsWith(end)) end = end.slice(1);
      return end.length === mark.length ? then() : states[end.length];
    };
    return new State(step, { ends: true, free: true });
  });
  return states[0];
}

/**
 * With white space before it.
 * @param {(byte: number) => State | null} step @param {{ ends?: boolean, free?: boolean, depth?: number }} [more] as of a `State`
 * @param {number} [left] @returns {State}
 */
export function spaced(step, more = {}, left = MAX_SPACES) {
  /** @type {State | undefined} */
  let next;
  return new State((byte) => (!SPACES.has(byte) ? step(byte) : left > 0 ? (next ??= spaced(step, more, left - 1)) : null), more);
}

/**
 * One of several texts, each with what follows it.
 * @param {{ text: string, after: State }[]} choices @param {number} [at] characters that have come @returns {State}
 */
export function oneOf(choices, at = 0) {
  return new State((byte) => {
    const fitting = choices.filter(({ text }) => text.charCodeAt(at) === byte);
    if (fitting.length === 1 && fitting[0].text.length === at + 1) return fitting[0].after;
    if (fitting.length > 0) return oneOf(fitting, at + 1);
    // No more of a longer text: what follows the one that is complete, as 1 beside 12.
    return choices.find(({ text }) => text.length === at)?.after.next(byte) ?? null;
  });
}

/** The shapes of which one is a shape's value, each once, whatever is in what. @param {Shape} shape */
function leavesOf(shape) {
  const found = new Set([shape]);
  // A set that is gone through has what is added meanwhile, too.
  for (const each of found) for (const inner of each.anyOf ?? []) found.add(inner);
  return [...found].filter(({ anyOf }) => !anyOf);
}

/** @param {Shape} shape @param {State} then @returns {State} */
function value(shape, then) {
  const { types, texts, range } = shape;
  if (shape.anyOf) return either(leavesOf(shape).map((each) => value(each, then)));
  const isNumber = types.has('number') || types.has('integer');
  /** Made where they are needed. @type {{ words?: State, digits?: State }} */
  const own = {};
  const words = () => {
    const all = texts ?? [...(types.has('boolean') ? ['true', 'false'] : []), ...(types.has('null') ? ['null'] : [])];
    return (own.words ??= oneOf(all.map((text) => ({ text, after: then }))));
  };
  const digits = () => (own.digits ??= range ? integer(range, then) : number(types.has('number'), then));
  return spaced((byte) => {
    if (texts) return words().next(byte);
    if (byte === QUOTE) return types.has('string') ? string(then) : null;
    if (byte === OPEN) return types.has('object') ? then.after(object, shape) : null;
    if (byte === OPEN_LIST) return types.has('array') ? then.after(list, shape) : null;
    return byte === MINUS || isDigit(byte) ? (isNumber ? digits().next(byte) : null) : words().next(byte);
  });
}

/** The least and greatest second byte of characters of several bytes, by their first, where it is not any (RFC 3629). @type {Record<number, number[]>} */
const SECOND = { 224: [0xa0, 0xbf], 237: [0x80, 0x9f], 240: [0x90, 0xbf], 244: [0x80, 0x8f] };

/** What follows a quotation mark. @param {State} then @returns {State} */
function string(then) {
  /** @type {State} */
  const inside = new State((byte) => {
    if (byte === QUOTE) return then;
    if (byte === BACKSLASH) return escaped;
    if (byte < 0x80) return byte >= 0x20 ? inside : null;
    if (byte < 0xc2 || byte > 0xf4) return null;
    const left = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    if (!SECOND[byte]) return bytes[left];
    const [least, greatest] = SECOND[byte];
    return new State((second) => (second >= least && second <= greatest ? bytes[left - 1] : null));
  });
  /** So many digits of a code, or bytes of a character, are left. */
  const [codes, bytes] = [[inside], [inside]];
  for (let left = 1; left <= 4; left++) {
    codes.push(new State((byte) => (HEX.has(byte) ? codes[left - 1] : null)));
    bytes.push(new State((byte) => (byte >= 0x80 && byte < 0xc0 ? bytes[left - 1] : null)));
  }
  const escaped = new State((byte) => (byte === U ? codes[4] : ESCAPES.has(byte) ? inside : null));
  return inside;
}

/** @param {boolean} fractional whether it may have a fraction and an exponent @param {State} then @returns {State} */
function number(fractional, then) {
  /** Where the number may end. @param {(byte: number) => State | null} step */
  const orEnd = (step) => new State((byte) => step(byte) ?? then.next(byte));
  /** @type {State} */
  const exponent = orEnd((byte) => (isDigit(byte) ? exponent : null));
  const sign = new State((byte) => (isDigit(byte) ? exponent : null));
  const e = new State((byte) => (byte === PLUS || byte === MINUS ? sign : sign.next(byte)));
  /** @type {State} */
  const fraction = orEnd((byte) => (isDigit(byte) ? fraction : isE(byte) ? e : null));
  const point = new State((byte) => (isDigit(byte) ? fraction : null));
  const zero = orEnd((byte) => (!fractional ? null : byte === POINT ? point : isE(byte) ? e : null));
  /** @type {State} */
  const digits = orEnd((byte) => (isDigit(byte) ? digits : zero.next(byte)));
  const positive = new State((byte) => (byte === ZERO ? zero : isDigit(byte) ? digits : null));
  return new State((byte) => (byte === MINUS ? positive : positive.next(byte)));
}

/** An integer from the least to the greatest. @param {[number, number]} range safe integers @param {State} then @returns {State} */
function integer([least, greatest], then) {
  /** States by what may follow: where the range does not cut through, that does not depend on the digits before. @type {Map<string, State>} */
  const states = new Map();
  /** After a sign and digits. @param {string} text @returns {State | null} */
  const after = (text) => {
    const sign = text[0] === '-' ? -1 : 1;
    const digits = text.slice(sign < 0 ? 1 : 0);
    // -0 is not what one means.
    if (/^0./.test(digits) || text === '-0') return null;
    // With so many more digits: all of them are in the range, some, or none.
    const fits = [];
    for (let more = 0; more <= (digits === '0' ? 0 : MAX_DIGITS - digits.length); more++) {
      const low = Number(digits.padEnd(digits.length + more, '0'));
      const ends = [sign * low, sign * (low + (10 ** more - 1))].sort((a, b) => a - b);
      fits.push(ends[0] >= least && ends[1] <= greatest ? 'a' : ends[1] >= least && ends[0] <= greatest ? 's' : 'n');
    }
    // A sign alone is no number: what follows is looked at with its first digit.
    if (digits !== '' && fits.every((each) => each === 'n')) return null;
    const key = digits === '' || fits.includes('s') ? text : `${sign}${digits.length}${fits.join('')}`;
    let state = states.get(key);
    if (!state) {
      const may = digits !== '' && fits[0] === 'a';
      state = new State((byte) => (isDigit(byte) ? after(text + String.fromCharCode(byte)) : may ? then.next(byte) : null));
      states.set(key, state);
    }
    return state;
  };
  return new State((byte) => (byte === MINUS && least >= 0 ? null : after(String.fromCharCode(byte))));
}

/** What follows [. @param {Shape} shape @param {State} then @returns {State} */
function list({ items = ANY, minItems = 0, maxItems = Infinity }, then) {
  const more = { depth: then.depth + 1 };
  // Beyond the counts that matter the states are the same.
  const last = maxItems === Infinity ? minItems : maxItems;
  /** After so many items. @type {State[]} */
  const afters = [];
  /** @param {number} count @returns {State} */
  const after = (count) =>
    (afters[count] ??= spaced((byte) => {
      if (byte === COMMA) return count < maxItems ? item(count) : null;
      return byte === CLOSE_LIST && count >= minItems ? then : null;
    }, more));
  /** @type {State[]} */
  const begun = [];
  /** @param {number} count @returns {State} */
  const item = (count) => (begun[Math.min(count, last)] ??= value(items, after(Math.min(count + 1, Math.max(last, 1)))));
  return spaced((byte) => (byte === CLOSE_LIST && minItems === 0 ? then : maxItems > 0 ? item(0).next(byte) : null), more);
}

/** What follows {. @param {Shape} shape @param {State} then @returns {State} */
function object({ members, others = ANY }, then) {
  const more = { depth: then.depth + 1 };
  const colon = (/** @type {Shape} */ shape, /** @type {State} */ after) =>
    new State((byte) => (byte === COLON ? value(shape, after) : null));
  if (!members) {
    /** @type {State} */
    const after = spaced((byte) => (byte === COMMA ? name : byte === CLOSE ? then : null), more);
    const inside = string(colon(others, after));
    const name = spaced((byte) => (byte === QUOTE ? inside : null));
    return spaced((byte) => (byte === CLOSE ? then : name.next(byte)), more);
  }
  const lastRequired = members.findLastIndex(({ required }) => required);
  const mayClose = (/** @type {number} */ i) => i > lastRequired;
  /** Made where they are needed: there may be thousands of members, most of them left out. @type {{ names: State[], afters: State[] }} */
  const { names, afters } = { names: [], afters: [] };
  /** After the members before the i-th. @param {number} i */
  const after = (i) =>
    (afters[i] ??= spaced((byte) => (byte === COMMA && i < members.length ? name(i) : byte === CLOSE && mayClose(i) ? then : null), more));
  /** Before the name of the i-th member or of a later one, up to the next that is required. @param {number} i @returns {State} */
  const name = (i) => {
    if (names[i]) return names[i];
    const required = members.findIndex((each, k) => k >= i && each.required);
    const choice = oneOf(choices.slice(i, required < 0 ? members.length : required + 1));
    return (names[i] = spaced((byte) => choice.next(byte)));
  };
  const choices = members.map(({ name, shape }, i) => ({ text: textOf(name), after: colon(shape, after(i + 1)) }));
  return spaced((byte) => (byte === CLOSE ? (mayClose(0) ? then : null) : members.length > 0 ? name(0).next(byte) : null), more);
}
