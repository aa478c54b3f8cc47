// Programs of generated kernels that also compute 64-bit integers: each is a pair of u32 values, the low word and the high one. Devices need
// not have 64-bit integers, and kernels of 32-bit words need no others.

import { Program } from '../../kernels/program.mjs';

/** @typedef {import('../../kernels/program.mjs').Value} Value */
/** @typedef {import('../../kernels/program.mjs').ElementType} ElementType */
/** @typedef {import('../../kernels/program.mjs').ValueType} ValueType */
/** The low and the high word, u32 each. @typedef {[low: Value, high: Value]} Pair */

/** Pairs have numbers from here on, beyond those of values and the bits of constants. */
const PAIRS = 2 ** 40;

/** The low and the high word of a 64-bit integer. @param {number | bigint} value @returns {[low: number, high: number]} */
export function wordsOf(value) {
  const bits = BigInt.asUintN(64, BigInt(value));
  return [Number(bits & 0xffffffffn), Number(bits >> 32n)];
}

/** A program whose values may be pairs. They have numbers as all values have, and `append` takes them for the operations of integers. */
export class WideProgram extends Program {
  /** @type {Pair[]} */
  #pairs = [];
  /** Equal pairs are one, as equal instructions are. @type {Map<string, Value>} */
  #numbers = new Map();

  /** @param {Value} low @param {Value} high both u32 @returns {Value} */
  pair(low, high) {
    const key = `${low},${high}`;
    let value = this.#numbers.get(key);
    if (value === undefined) {
      value = PAIRS + this.#pairs.push([low, high]) - 1;
      this.#numbers.set(key, value);
    }
    return value;
  }

  /** The words of a pair. @param {Value} value @returns {Pair} */
  wordsOf(value) {
    return this.#pairs[value - PAIRS];
  }

  /** What a value is computed as. @override @param {Value} value @returns {any} a ValueType, or 'i64', which the class it extends does not know */
  typeOf(value) {
    return value >= PAIRS ? 'i64' : super.typeOf(value);
  }

  /** @override @param {(typeof import('../../kernels/program.mjs').OPERATIONS)[number]} name @param {...Value} args @returns {Value} */
  append(name, ...args) {
    if (name === 'const' || args.every((arg) => arg < PAIRS)) return super.append(name, ...args);
    const operation = OPERATIONS[name];
    if (operation === undefined) throw new RangeError(`${name} of i64`);
    return operation(this, args);
  }

  /** A value as a 64-bit integer: floats without their fraction, the nearest where it has none, and 0 for NaN. @param {Value} x @returns {Value} */
  toI64(x) {
    const type = this.typeOf(x);
    if (type === 'i64') return x;
    if (type === 'f32') return ofFloat(this, x);
    const low = this.append('toU32', x);
    const high = type === 'i32' ? this.append('toU32', this.append('shr', x, this.constant(31, 'i32'))) : this.constant(0, 'u32');
    return this.pair(low, high);
  }
}

/** @typedef {(typeof import('../../kernels/program.mjs').OPERATIONS)[number]} Name */
/** @param {WideProgram} p @param {number} value */
const word = (p, value) => p.constant(value, 'u32');
/** @param {WideProgram} p @param {Value} a @param {Value} b */
const times = (p, a, b) => p.append('mul', a, b);
/** @param {WideProgram} p @param {...Value} terms @returns {Value} */
const sum = (p, ...terms) => terms.reduce((a, b) => p.append('add', a, b));
/** @param {WideProgram} p @param {Value} x @param {number} n */
const up = (p, x, n) => p.append('shr', x, word(p, n));

/** @param {WideProgram} p @param {Value[]} args @returns {Value} */
function add(p, [a, b]) {
  const [[al, ah], [bl, bh]] = [p.wordsOf(a), p.wordsOf(b)];
  const low = sum(p, al, bl);
  return p.pair(low, sum(p, ah, bh, p.append('toU32', p.append('lt', low, al))));
}
/** @param {WideProgram} p @param {Value[]} args @returns {Value} */
function sub(p, [a, b]) {
  const [[al, ah], [bl, bh]] = [p.wordsOf(a), p.wordsOf(b)];
  const borrow = p.append('toU32', p.append('lt', al, bl));
  return p.pair(p.append('sub', al, bl), p.append('sub', p.append('sub', ah, bh), borrow));
}
/** The high word of the product of two words, by their halves. @param {WideProgram} p @param {Value} a @param {Value} b @returns {Value} */
function highProduct(p, a, b) {
  const low = (/** @type {Value} */ x) => p.append('and', x, word(p, 0xffff));
  const [[a0, a1], [b0, b1]] = [a, b].map((x) => [low(x), up(p, x, 16)]);
  const [first, second] = [times(p, a0, b1), times(p, a1, b0)];
  const middle = sum(p, up(p, times(p, a0, b0), 16), low(first), low(second));
  return sum(p, times(p, a1, b1), up(p, first, 16), up(p, second, 16), up(p, middle, 16));
}
/** @param {WideProgram} p @param {Value[]} args @returns {Value} */
function mul(p, [a, b]) {
  const [[al, ah], [bl, bh]] = [p.wordsOf(a), p.wordsOf(b)];
  return p.pair(times(p, al, bl), sum(p, highProduct(p, al, bl), times(p, al, bh), times(p, ah, bl)));
}
/** @param {WideProgram} p @param {Value[]} args @returns {Value} */
const neg = (p, [x]) => sub(p, [p.pair(word(p, 0), word(p, 0)), x]);
/** @param {WideProgram} p @param {Value[]} args @returns {Value} */
function lt(p, [a, b]) {
  const [[al, ah], [bl, bh]] = [p.wordsOf(a), p.wordsOf(b)];
  const above = p.append('lt', p.append('toI32', ah), p.append('toI32', bh));
  return p.append('or', above, p.append('and', p.append('eq', ah, bh), p.append('lt', al, bl)));
}
/** @param {WideProgram} p @param {Value[]} args @returns {Value} */
function eq(p, [a, b]) {
  const [[al, ah], [bl, bh]] = [p.wordsOf(a), p.wordsOf(b)];
  return p.append('and', p.append('eq', al, bl), p.append('eq', ah, bh));
}
/** @param {WideProgram} p @param {Value[]} args @returns {Value} */
function select(p, [condition, a, b]) {
  const [[al, ah], [bl, bh]] = [p.wordsOf(a), p.wordsOf(b)];
  return p.pair(p.append('select', condition, al, bl), p.append('select', condition, ah, bh));
}
/** Whether x is below 0. @param {WideProgram} p @param {Value} x */
const negative = (p, x) => p.append('lt', p.append('toI32', p.wordsOf(x)[1]), p.constant(0, 'i32'));
/**
 * The quotient rounded towards 0, and what is left, with the dividend's sign. Three quotients of f32 leave less than the divisor but for one of it.
 * Sizes are below 0, where the least integer has one. By 0 the quotient is 0 and all is left, as of smaller integers.
 * @param {WideProgram} p @param {Value} a @param {Value} b @returns {[quotient: Value, rest: Value]}
 */
function divided(p, a, b) {
  const zero = p.pair(word(p, 0), word(p, 0));
  const below = (/** @type {Value} */ x) => select(p, [negative(p, x), x, neg(p, [x])]);
  const divisor = below(b);
  const width = toFloat(p, divisor);
  let [quotient, rest] = [zero, below(a)];
  for (let step = 0; step < 3; step++) {
    const more = ofFloat(p, p.append('div', toFloat(p, rest), width));
    quotient = add(p, [quotient, more]);
    rest = sub(p, [rest, mul(p, [more, divisor])]);
  }
  const one = p.pair(word(p, 1), word(p, 0));
  const over = p.append('not', p.append('or', negative(p, rest), p.append('not', nonzero(p, rest))));
  quotient = select(p, [over, sub(p, [quotient, one]), quotient]);
  rest = select(p, [over, add(p, [rest, divisor]), rest]);
  const under = p.append('not', lt(p, [divisor, rest]));
  quotient = select(p, [under, add(p, [quotient, one]), quotient]);
  rest = select(p, [under, sub(p, [rest, divisor]), rest]);
  const differ = p.append('ne', negative(p, a), negative(p, b));
  const isZero = p.append('not', nonzero(p, b));
  return [
    select(p, [isZero, zero, select(p, [differ, neg(p, [quotient]), quotient])]),
    select(p, [isZero, a, select(p, [negative(p, a), rest, neg(p, [rest])])]),
  ];
}
/** @param {WideProgram} p @param {Value[]} args @returns {Value} */
const abs = (p, [x]) => select(p, [negative(p, x), neg(p, [x]), x]);
/** @param {WideProgram} p @param {Value} x */
const nonzero = (p, x) => p.append('ne', p.append('or', ...p.wordsOf(x)), word(p, 0));
/** @param {'and' | 'or' | 'xor'} name @returns {(p: WideProgram, args: Value[]) => Value} */
const byWords =
  (name) =>
  (p, [a, b]) => {
    const [[al, ah], [bl, bh]] = [p.wordsOf(a), p.wordsOf(b)];
    return p.pair(p.append(name, al, bl), p.append(name, ah, bh));
  };

/** A shift by the amount modulo 64; to the right, the sign comes after. @param {'shl' | 'shr'} name @returns {(p: WideProgram, args: Value[]) => Value} */
const shift =
  (name) =>
  (p, [x, by]) => {
    const [low, high] = p.wordsOf(x);
    const [amount] = p.wordsOf(by);
    const far = p.append('ne', p.append('and', amount, word(p, 32)), word(p, 0));
    // 31 - n and one more: shifts by 32 do nothing.
    const rest = p.append('xor', amount, word(p, 31));
    if (name === 'shl') {
      const moved = p.append('shl', low, amount);
      const near = p.append('or', p.append('shl', high, amount), p.append('shr', up(p, low, 1), rest));
      return p.pair(p.append('select', far, word(p, 0), moved), p.append('select', far, moved, near));
    }
    const signed = (/** @type {Value} */ n) => p.append('toU32', p.append('shr', p.append('toI32', high), p.append('toI32', n)));
    const near = p.append('or', p.append('shr', low, amount), p.append('shl', p.append('shl', high, word(p, 1)), rest));
    const moved = signed(amount);
    return p.pair(p.append('select', far, moved, near), p.append('select', far, signed(word(p, 31)), moved));
  };

/** The nearest f32, ties to even. @param {WideProgram} p @param {Value} x @returns {Value} */
function toFloat(p, x) {
  const [low, high] = p.wordsOf(abs(p, [x]));
  // The place of the highest bit of the high word, from the exponent of a number that begins with it and does not round up to the next power.
  const begins = p.append('and', high, p.append('not', up(p, high, 1)));
  const exponent = up(p, p.append('bits', p.append('toF32', begins), U32), 23);
  const place = p.append('sub', exponent, word(p, 127));
  const rest = p.append('sub', word(p, 31), place);
  // The upper 32 bits from there on. The last says as well whether a bit below is set, so that the one rounding to 24 is right.
  const upper = p.append('or', p.append('shr', up(p, low, 1), place), p.append('shl', high, rest));
  const lost = p.append('ne', p.append('shl', low, rest), word(p, 0));
  const digits = p.append('or', upper, p.append('toU32', lost));
  const scale = p.append('bits', p.append('shl', p.append('add', exponent, word(p, 1)), word(p, 23)), F32);
  const large = p.append('mul', p.append('toF32', digits), scale);
  const size = p.append('select', p.append('eq', high, word(p, 0)), p.append('toF32', low), large);
  return p.append('select', negative(p, x), p.append('neg', size), size);
}
/** The numbers of the types, as `bits` takes them. */
const [F32, U32] = [0, 4];

/** @param {WideProgram} p @param {Value} x f32 @returns {Value} */
function ofFloat(p, x) {
  const size = p.append('abs', x);
  // Powers of two scale exactly, and the difference has the digits that are left.
  const high = p.append('floor', p.append('mul', size, p.constant(2 ** -32)));
  const low = p.append('sub', size, p.append('mul', high, p.constant(2 ** 32)));
  const whole = p.pair(p.append('toU32', low), p.append('toU32', high));
  const below = p.append('lt', x, p.constant(0));
  const signed = select(p, [below, neg(p, [whole]), whole]);
  const most = select(p, [below, p.pair(word(p, 0), word(p, 2 ** 31)), p.pair(word(p, 2 ** 32 - 1), word(p, 2 ** 31 - 1))]);
  return select(p, [p.append('ge', size, p.constant(2 ** 63)), most, signed]);
}

/** The operations of pairs. @type {Partial<Record<Name, (p: WideProgram, args: Value[]) => Value>>} */
const OPERATIONS = {
  ...{ add, sub, mul, neg, abs, lt, eq, select },
  div: (p, [a, b]) => divided(p, a, b)[0],
  rem: (p, [a, b]) => divided(p, a, b)[1],
  ...{ and: byWords('and'), or: byWords('or'), xor: byWords('xor'), shl: shift('shl'), shr: shift('shr') },
  not: (p, [x]) => {
    const [low, high] = p.wordsOf(x);
    return p.pair(p.append('not', low), p.append('not', high));
  },
  sign: (p, [x]) => p.pair(p.append('or', signs(p, x), p.append('toU32', nonzero(p, x))), signs(p, x)),
  min: (p, [a, b]) => select(p, [lt(p, [a, b]), a, b]),
  max: (p, [a, b]) => select(p, [lt(p, [a, b]), b, a]),
  ne: (p, args) => p.append('not', eq(p, args)),
  gt: (p, [a, b]) => lt(p, [b, a]),
  le: (p, [a, b]) => p.append('not', lt(p, [b, a])),
  ge: (p, args) => p.append('not', lt(p, args)),
  toI32: (p, [x]) => p.append('toI32', p.wordsOf(x)[0]),
  toU32: (p, [x]) => p.wordsOf(x)[0],
  toBool: (p, [x]) => nonzero(p, x),
  toF32: (p, [x]) => toFloat(p, x),
};

/** A word of sign bits. @param {WideProgram} p @param {Value} x */
const signs = (p, x) => p.append('toU32', p.append('shr', p.append('toI32', p.wordsOf(x)[1]), p.constant(31, 'i32')));
