// JSON that fits a schema, as an automaton over the bytes of its text.
//
// A state is made by a function that is told the state after its value, so that states are a stack. What follows a state's byte is made once: states
// that come again, as those of a list's next element, are the same objects, and what was found out of one is known then. Members of an object come in
// the schema's order.

import { shown } from '../options.mjs';

/** @typedef {Record<string, any>} Json */

/**
 * What a value may be. `texts`: one of these, bytes as characters; `members`: of an object, in order, or any; `items`: of a list.
 * @typedef {{ types: Set<string>, texts?: string[], members?: Member[], items: Shape }} Shape
 * @typedef {{ name: string, shape: Shape, required: boolean }} Member
 */

const TYPES = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'];
/** Keywords that constrain nothing. */
const NOTES = ['title', 'description', 'default', 'examples', '$schema', '$id', '$comment', 'deprecated', 'readOnly', 'writeOnly'];
const KEYWORDS = ['type', 'enum', 'const', 'properties', 'required', 'additionalProperties', 'items', ...NOTES];
/** White space at one place: without an end a model may write nothing else. */
const MAX_SPACES = 32;
/** Schemas one in the other: every level is a call. */
const MAX_LEVELS = 200;

/** Any value. @type {Shape} */
const ANY = { types: new Set(TYPES), items: /** @type {any} */ (undefined) };
ANY.items = ANY;
/** Any object. @type {Shape} */
export const ANY_OBJECT = { ...ANY, types: new Set(['object']) };

/** A text with its UTF-8 bytes as characters. @param {unknown} value of JSON */
const textOf = (value) => Buffer.from(JSON.stringify(value)).toString('latin1');

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
 * @returns {Shape}
 * @throws {RangeError} that names a keyword that is not supported, or wrong, and where it is
 */
export function shapeOf(schema, at, level = 0) {
  if (schema === true) return ANY;
  if (level > MAX_LEVELS) throw new RangeError(`${at.slice(0, 100)}… is in more than ${MAX_LEVELS} other schemas`);
  if (!isObject(schema)) throw new RangeError(`${at} must be a JSON schema, got ${shown(schema)}`);
  const unknown = Object.keys(schema).find((key) => !KEYWORDS.includes(key));
  if (unknown !== undefined) throw new RangeError(`${at}.${unknown} is not supported; there are ${KEYWORDS.slice(0, 7).join(', ')}`);
  const { type, properties, required = [], additionalProperties, items = true } = schema;
  const given = type === undefined ? TYPES : [type].flat();
  const wrong = given.find((/** @type {unknown} */ each) => !TYPES.includes(/** @type {string} */ (each)));
  if (wrong !== undefined || given.length === 0)
    throw new RangeError(`${at}.type must be of ${TYPES.join(', ')}, got ${shown(wrong ?? type)}`);
  const types = new Set(/** @type {string[]} */ (given));
  // Without properties any are meant, and with them no others are written.
  if (additionalProperties !== undefined && additionalProperties !== false && (properties !== undefined || additionalProperties !== true))
    throw new RangeError(`${at}.additionalProperties must be false, got ${shown(additionalProperties)}`);
  if (properties !== undefined && !isObject(properties))
    throw new RangeError(`${at}.properties must be an object, got ${shown(properties)}`);
  const named = Object.entries(properties ?? {});
  const wanted = new Set(Array.isArray(required) ? required : [required]);
  const names = new Set(named.map(([name]) => name));
  const missing = Array.isArray(required) ? [...wanted].find((name) => !names.has(name)) : required;
  if (missing !== undefined) throw new RangeError(`${at}.required must be a list of names of properties, got ${shown(missing)}`);
  const member = (/** @type {[string, unknown]} */ [name, own]) => ({
    name,
    shape: shapeOf(own, `${at}.properties.${name}`, level + 1),
    required: wanted.has(name),
  });
  const members = properties !== undefined || additionalProperties === false ? named.map(member) : undefined;
  const shape = { types, members, items: shapeOf(items, `${at}.items`, level + 1) };
  if (!('enum' in schema) && !('const' in schema)) return shape;
  if ('enum' in schema && !Array.isArray(schema.enum)) throw new RangeError(`${at}.enum must be a list, got ${shown(schema.enum)}`);
  const values = 'const' in schema ? [schema.const] : schema.enum;
  const texts = values.filter((/** @type {unknown} */ value) => typesOf(value).some((each) => types.has(each))).map(textOf);
  if (texts.length === 0) throw new RangeError(`${at}.${'const' in schema ? 'const' : 'enum'} has no value of its type`);
  return { ...shape, texts };
}

const codeOf = (/** @type {string} */ character) => character.charCodeAt(0);
const [QUOTE, BACKSLASH, COMMA, COLON, MINUS, PLUS, POINT, ZERO, NINE, U] = [...'"\\,:-+.09u'].map(codeOf);
const [OPEN_LIST, CLOSE_LIST, OPEN, CLOSE] = [...'[]{}'].map(codeOf);
const [ESCAPES, SPACES, HEX] = ['"\\/bfnrt', ' \n\r\t', '0123456789abcdefABCDEF'].map((all) => new Set([...all].map(codeOf)));
const isDigit = (/** @type {number} */ byte) => byte >= ZERO && byte <= NINE;
const isE = (/** @type {number} */ byte) => (byte | 0x20) === 0x65;

/** What has been written, as far as it matters for what may come. */
export class State {
  /** By byte. @type {(State | null | undefined)[]} */
  #after = [];
  #step;

  /** @param {(byte: number) => State | null} step the state after a byte; null if it may not come */
  constructor(step) {
    this.#step = step;
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

/** The state before a text of a shape, which must have an end: an object, a list or a text. @param {Shape} shape */
export const startOf = (shape) => value(shape, DONE);

/** With white space before it. @param {(byte: number) => State | null} step @param {number} [left] @returns {State} */
function spaced(step, left = MAX_SPACES) {
  /** @type {State | undefined} */
  let more;
  return new State((byte) => (!SPACES.has(byte) ? step(byte) : left > 0 ? (more ??= spaced(step, left - 1)) : null));
}

/**
 * One of several texts, each with what follows it.
 * @param {{ text: string, after: State }[]} choices @param {number} [at] characters that have come @returns {State}
 */
function oneOf(choices, at = 0) {
  return new State((byte) => {
    const fitting = choices.filter(({ text }) => text.charCodeAt(at) === byte);
    if (fitting.length === 1 && fitting[0].text.length === at + 1) return fitting[0].after;
    if (fitting.length > 0) return oneOf(fitting, at + 1);
    // No more of a longer text: what follows the one that is complete, as 1 beside 12.
    return choices.find(({ text }) => text.length === at)?.after.next(byte) ?? null;
  });
}

/** @param {Shape} shape @param {State} then @returns {State} */
function value(shape, then) {
  const { types, texts } = shape;
  const all = (/** @type {string[]} */ words) => oneOf(words.map((text) => ({ text, after: then })));
  const words = all(texts ?? [...(types.has('boolean') ? ['true', 'false'] : []), ...(types.has('null') ? ['null'] : [])]);
  const isNumber = types.has('number') || types.has('integer');
  const digits = number(types.has('number'), then);
  return spaced((byte) => {
    if (texts) return words.next(byte);
    if (byte === QUOTE) return types.has('string') ? string(then) : null;
    if (byte === OPEN) return types.has('object') ? object(shape, then) : null;
    if (byte === OPEN_LIST) return types.has('array') ? list(shape, then) : null;
    return byte === MINUS || isDigit(byte) ? (isNumber ? digits.next(byte) : null) : words.next(byte);
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

/** What follows [. @param {Shape} shape @param {State} then @returns {State} */
function list({ items }, then) {
  /** @type {State} */
  const after = spaced((byte) => (byte === COMMA ? item : byte === CLOSE_LIST ? then : null));
  const item = value(items, after);
  return spaced((byte) => (byte === CLOSE_LIST ? then : item.next(byte)));
}

/** What follows {. @param {Shape} shape @param {State} then @returns {State} */
function object({ members }, then) {
  const colon = (/** @type {Shape} */ shape, /** @type {State} */ after) =>
    new State((byte) => (byte === COLON ? value(shape, after) : null));
  if (!members) {
    /** @type {State} */
    const after = spaced((byte) => (byte === COMMA ? name : byte === CLOSE ? then : null));
    const inside = string(colon(ANY, after));
    const name = spaced((byte) => (byte === QUOTE ? inside : null));
    return spaced((byte) => (byte === CLOSE ? then : name.next(byte)));
  }
  const lastRequired = members.findLastIndex(({ required }) => required);
  const mayClose = (/** @type {number} */ i) => i > lastRequired;
  /** Made where they are needed: there may be thousands of members, most of them left out. @type {{ names: State[], afters: State[] }} */
  const { names, afters } = { names: [], afters: [] };
  /** After the members before the i-th. @param {number} i */
  const after = (i) =>
    (afters[i] ??= spaced((byte) => (byte === COMMA && i < members.length ? name(i) : byte === CLOSE && mayClose(i) ? then : null)));
  /** Before the name of the i-th member or of a later one, up to the next that is required. @param {number} i @returns {State} */
  const name = (i) => {
    if (names[i]) return names[i];
    const required = members.findIndex((each, k) => k >= i && each.required);
    const choice = oneOf(choices.slice(i, required < 0 ? members.length : required + 1));
    return (names[i] = spaced((byte) => choice.next(byte)));
  };
  const choices = members.map(({ name, shape }, i) => ({ text: textOf(name), after: colon(shape, after(i + 1)) }));
  return spaced((byte) => (byte === CLOSE ? (mayClose(0) ? then : null) : members.length > 0 ? name(0).next(byte) : null));
}
