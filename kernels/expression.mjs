// Programs of generated kernels as expressions: `x.mul(y).add(1)` appends two instructions and a constant.

import { TYPES } from './program.mjs';

/** @typedef {import('./program.mjs').Program} Program */
/** @typedef {import('./program.mjs').Value} Value */
/** @typedef {import('./program.mjs').ValueType} ValueType */
/** An expression, or a number, which becomes a constant. @typedef {Expression | number} Term */

const CONVERT = /** @type {const} */ ({ f32: 'toF32', i32: 'toI32', u32: 'toU32', bool: 'toBool' });

/** A value of a program. Numbers among arguments are constants of the expression's own type. */
export class Expression {
  /** @param {Program} program @param {Value} value */
  constructor(program, value) {
    this.program = program;
    this.value = value;
  }

  /** What it is computed as. */
  get type() {
    return this.program.typeOf(this.value);
  }

  /** @param {Parameters<Program['append']>[0]} name @param {Value[]} args */
  #of(name, args) {
    return new Expression(this.program, this.program.append(name, ...args));
  }
  /** @param {Parameters<Program['append']>[0]} name @param {Term} other */
  #with(name, other) {
    return this.#of(name, [this.value, this.#value(other)]);
  }
  /** @param {Term} term @param {ValueType} [type] */
  #value(term, type = this.type) {
    return typeof term === 'number' ? this.program.constant(term, type) : term.value;
  }

  /** A constant of this type, or another. @param {number} value @param {ValueType} [type] */
  number(value, type = this.type) {
    return new Expression(this.program, this.program.constant(value, type));
  }

  /** @param {Term} other */
  add(other) {
    return this.#with('add', other);
  }
  /** @param {Term} other */
  sub(other) {
    return this.#with('sub', other);
  }
  /** @param {Term} other */
  mul(other) {
    return this.#with('mul', other);
  }
  /** @param {Term} other */
  div(other) {
    return this.#with('div', other);
  }
  /** other - this. @param {number} other */
  from(other) {
    return this.number(other).sub(this);
  }
  /** other / this. @param {number} other */
  under(other) {
    return this.number(other).div(this);
  }
  /** The larger; NaN where either is. @param {Term} other */
  max(other) {
    return this.#with('max', other);
  }
  /** The smaller; NaN where either is. @param {Term} other */
  min(other) {
    return this.#with('min', other);
  }
  neg() {
    return this.#of('neg', [this.value]);
  }
  abs() {
    return this.#of('abs', [this.value]);
  }
  sqrt() {
    return this.#of('sqrt', [this.value]);
  }
  floor() {
    return this.#of('floor', [this.value]);
  }
  ceil() {
    return this.#of('ceil', [this.value]);
  }
  trunc() {
    return this.#of('trunc', [this.value]);
  }
  /** To the nearest whole number, ties to even. */
  round() {
    return this.#of('round', [this.value]);
  }
  tanh() {
    return this.#of('tanh', [this.value]);
  }
  /** 2^x by the device's own function, which may be off by 3 + 2 |x| ulp; `exp2` of functions.mjs is right. */
  exp2() {
    return this.#of('exp2', [this.value]);
  }

  /** @param {Term} other */
  eq(other) {
    return this.#with('eq', other);
  }
  /** @param {Term} other */
  lt(other) {
    return this.#with('lt', other);
  }
  /** @param {Term} other */
  le(other) {
    return this.#with('le', other);
  }
  /** @param {Term} other */
  gt(other) {
    return this.#with('gt', other);
  }
  /** @param {Term} other */
  ge(other) {
    return this.#with('ge', other);
  }
  isNan() {
    return this.#of('isNan', [this.value]);
  }
  /** Where this, a bool, is true, a, else b; numbers are f32. @param {Term} a @param {Term} b */
  choose(a, b) {
    const [type = 'f32'] = [a, b].flatMap((term) => (typeof term === 'number' ? [] : [term.type]));
    return this.#of('select', [this.value, this.#value(a, type), this.#value(b, type)]);
  }

  /** @param {Term} other */
  and(other) {
    return this.#with('and', other);
  }
  /** @param {Term} other */
  or(other) {
    return this.#with('or', other);
  }
  /** @param {Term} other */
  xor(other) {
    return this.#with('xor', other);
  }
  not() {
    return this.#of('not', [this.value]);
  }
  /** @param {Term} bits */
  shl(bits) {
    return this.#with('shl', bits);
  }
  /** @param {Term} bits */
  shr(bits) {
    return this.#with('shr', bits);
  }
  /** The value in another type. @param {ValueType} type */
  to(type) {
    return this.#of(CONVERT[type], [this.value]);
  }
  /** The same bits as another type. @param {ValueType} type */
  bits(type) {
    return this.#of('bits', [this.value, TYPES.indexOf(type)]);
  }

  /** The polynomial of this, by Horner's scheme. @param {readonly number[]} coefficients of rising powers */
  polynomial(coefficients) {
    return coefficients.slice(0, -1).reduceRight((sum, c) => sum.mul(this).add(c), this.number(coefficients[coefficients.length - 1]));
  }
  /** This magnitude with another's sign. @param {Expression} sign */
  withSign(sign) {
    return this.bits('u32').and(0x7fffffff).or(sign.bits('u32').and(0x80000000)).bits('f32');
  }
  /** Whether the sign's bit is set: of -0, too. */
  isNegative() {
    return this.bits('u32').ge(0x80000000);
  }
  isFinite() {
    return this.bits('u32').and(0x7fffffff).lt(0x7f800000);
  }
  isInfinite() {
    return this.bits('u32').and(0x7fffffff).eq(0x7f800000);
  }
}
