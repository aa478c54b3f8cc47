// Operations of integers: division in its forms, bits, and reductions, which are exact in every order.

import { constantsOf, map } from '../core/codegen.mjs';
import { ArgumentError } from '../core/errors.mjs';
import { broadcastShapes, denseLayout, isInteger, layoutOf, sizeOf } from '../core/layout.mjs';
import { converted } from './movement.mjs';
import { generated } from './pointwise.mjs';
import { checkRow } from './reduce.mjs';
import { at, generate, map as mapped } from './reference.mjs';
import { defineOp } from './registry.mjs';
import * as f64 from './special.mjs';

/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../core/codegen.mjs').Program} Program */
/** @typedef {import('../core/codegen.mjs').Value} Value */
/** @typedef {import('../../kernels/base.mjs').Dispatch} Dispatch */
/** @typedef {import('./registry.mjs').Operand} Operand */

/** A constant of a value's type. @param {Program} p @param {Value} like @param {number} value @returns {Value} */
function constant(p, like, value) {
  const type = p.typeOf(like);
  if (type === 'f32') return p.constant(value);
  return constantsOf(p, [{ value, type }], (own, bits) => p.constant(bits, own))[0];
}

/** The remainder with the dividend's sign. @param {Program} p @param {Value} a @param {Value} b @returns {Value} */
const truncated = (p, a, b) => p.append('rem', a, b);
/** Where a remainder is not 0 and its sign is not the divisor's. @param {Program} p @param {Value} left @param {Value} b @returns {Value} */
function crosses(p, left, b) {
  const zero = constant(p, left, 0);
  return p.append('and', p.append('ne', left, zero), p.append('ne', p.append('lt', left, zero), p.append('lt', b, zero)));
}
/** The remainder with the divisor's sign. @param {Program} p @param {Value} a @param {Value} b @returns {Value} */
function floored(p, a, b) {
  const left = truncated(p, a, b);
  return p.append('select', crosses(p, left, b), p.append('add', left, b), left);
}

/** @param {string} name @param {Layout} a @param {Layout} b @param {(dtype: DType) => boolean} takes @param {string} what */
function inferred(name, a, b, takes, what) {
  if (a.dtype !== b.dtype || !takes(a.dtype)) throw new ArgumentError(name, `takes ${what}, got ${a.dtype}`);
  return [denseLayout(broadcastShapes(name, a.shape, b.shape), a.dtype)];
}

/**
 * Division of integers with a whole quotient, or what is left of it. No gradient passes, as in PyTorch.
 * @param {string} name @param {(p: Program, a: Value, b: Value) => Value} body @param {(a: number, b: number) => number} f
 */
const division = (name, body, f) =>
  defineOp({
    name,
    ...generated(name, (p, [a, b]) => body(p, a, b)),
    infer: ([a, b]) => inferred(name, a, b, isInteger, 'integers'),
    oracle: ([a, b]) => generate(broadcastShapes(name, a.shape, b.shape), (index) => f(at(a, index), at(b, index))),
  });
/** The quotient rounded towards 0; `math.mjs` has that of floats, as of all of these. */
export const truncDivide = division(
  'integerTruncDivide',
  (p, a, b) => p.append('div', a, b),
  (a, b) => Math.trunc(a / b),
);
/** The quotient rounded down. */
export const floorDivide = division(
  'integerFloorDivide',
  (p, a, b) => {
    const [quotient, crossed] = [p.append('div', a, b), crosses(p, p.append('rem', a, b), b)];
    const type = p.typeOf(a);
    return p.append(
      'sub',
      quotient,
      type === 'i64' ? p.toI64(p.append('toU32', crossed)) : p.append(type === 'i32' ? 'toI32' : 'toU32', crossed),
    );
  },
  (a, b) => Math.floor(a / b),
);
/** What is left of a division, with the dividend's sign. */
export const fmod = division('integerFmod', truncated, (a, b) => a % b);
/** The same with the divisor's sign. */
export const remainder = division('integerRemainder', floored, f64.remainder);

/** @param {DType} dtype */
const hasBits = (dtype) => dtype === 'bool' || isInteger(dtype);

/**
 * An operation of the bits of two integers.
 * @param {string} name @param {'and' | 'or' | 'xor' | 'shl' | 'shr'} op @param {(a: number, b: number) => number} f
 */
const bitwise = (name, op, f) =>
  defineOp({
    name,
    ...generated(name, (p, [a, b]) => p.append(op, a, b)),
    infer: ([a, b]) => {
      const shifts = op === 'shl' || op === 'shr';
      return inferred(name, a, b, shifts ? isInteger : hasBits, shifts ? 'integers' : 'integers or bools');
    },
    oracle: ([a, b]) => generate(broadcastShapes(name, a.shape, b.shape), (index) => f(at(a, index), at(b, index))),
  });
export const bitwiseAnd = bitwise('bitwiseAnd', 'and', (a, b) => a & b);
export const bitwiseOr = bitwise('bitwiseOr', 'or', (a, b) => a | b);
export const bitwiseXor = bitwise('bitwiseXor', 'xor', (a, b) => a ^ b);
export const bitwiseLeftShift = bitwise('bitwiseLeftShift', 'shl', (a, b) => a << b);
export const bitwiseRightShift = bitwise('bitwiseRightShift', 'shr', (a, b) => a >> b);
export const bitwiseNot = defineOp({
  name: 'bitwiseNot',
  ...generated('bitwiseNot', (p, [x]) => p.append('not', x)),
  infer: ([x]) => {
    if (!hasBits(x.dtype)) throw new ArgumentError('bitwiseNot', `takes integers or bools, got ${x.dtype}`);
    return [denseLayout(x.shape, x.dtype)];
  },
  oracle: ([x]) => mapped(x, (v) => ~v),
});

/** How many bits of an exponent a power takes at once: of 64-bit integers not all, as a kernel has at most 1,024 instructions. @param {DType} dtype */
export const exponentBits = (dtype) => (dtype === 'i64' ? 8 : 32);

/**
 * a to the power of some bits of b, from bit `shift` on, by squaring; it wraps. By the lowest bits the power of a negative b is rounded towards 0,
 * as PyTorch's: 0, unless a is 1 or -1.
 */
export const power = defineOp({
  name: 'integerPower',
  ...generated('integerPower', (p, [a, b], /** @type {{ shift: number }} */ { shift }) => {
    const type = p.typeOf(a);
    const word = p.append('toU32', type === 'i64' ? p.wordsOf(b)[shift < 32 ? 0 : 1] : b);
    const [zero, one] = [0, 1].map((n) => constant(p, a, n));
    let [y, square] = [one, a];
    for (let bit = 0; bit < exponentBits(type); bit++) {
      if (bit > 0) square = p.append('mul', square, square);
      const isSet = p.append('ne', p.append('and', word, p.constant(2 ** ((shift % 32) + bit), 'u32')), p.constant(0, 'u32'));
      y = p.append('select', isSet, bit === 0 ? square : p.append('mul', y, square), y);
    }
    if (type === 'u32' || shift > 0) return y;
    const isUnit = p.append('or', p.append('eq', a, one), p.append('eq', a, p.append('neg', one)));
    return p.append('select', p.append('or', isUnit, p.append('ge', b, zero)), y, zero);
  }),
  infer: ([a, b]) => inferred('pow', a, b, isInteger, 'integers'),
  oracle: ([a, b]) =>
    generate(broadcastShapes('pow', a.shape, b.shape), (index) => {
      const [base, exponent] = [at(a, index), at(b, index)];
      return exponent < 0 && Math.abs(base) !== 1 ? 0 : base ** exponent;
    }),
});

/** The number of the element in its row where it is true, else the number of columns. */
export const placeIfTrue = defineOp({
  name: 'placeIfTrue',
  infer: ([mask]) => [denseLayout(mask.shape, 'i32')],
  lower: (k, [mask], [y]) => {
    const columns = mask.layout.shape.at(-1) ?? 1;
    const dispatch = map(k.context, [mask], [y], (p, [there], numbers) => {
      const [all] = numbers({ value: columns, type: 'u32' });
      return [p.append('toI32', p.append('select', there, p.append('rem', p.append('index'), all), all))];
    });
    return [/** @type {Dispatch} */ (dispatch)];
  },
  oracle: ([mask]) => {
    const columns = mask.shape.at(-1) ?? 1;
    return { shape: mask.shape, data: mask.data.map((v, i) => (v ? i % columns : columns)) };
  },
});

/** 64-bit integers as i32; those that are beyond are its least. */
export const narrowed = defineOp({
  name: 'narrowed',
  ...generated('narrowed', (p, [x]) => {
    const fits = p.append('eq', x, p.toI64(p.append('toI32', x)));
    return p.append('select', fits, p.append('toI32', x), p.constant(LEAST, 'i32'));
  }),
  infer: ([x]) => [denseLayout(x.shape, 'i32')],
  oracle: ([x]) => mapped(x, (v) => (v === (v | 0) ? v : LEAST)),
});
const LEAST = -(2 ** 31);

/** Reductions of integers: what joins two elements, and the same in references. */
const JOINS = /** @type {const} */ ({
  sum: { op: 'add', f: (/** @type {number} */ a, /** @type {number} */ b) => a + b },
  prod: { op: 'mul', f: (/** @type {number} */ a, /** @type {number} */ b) => a * b },
  amax: { op: 'max', f: Math.max },
  amin: { op: 'min', f: Math.min },
});

/** How integers are joined, and in which type. @typedef {{ join: keyof typeof JOINS, dtype: DType }} Joined */

/** How many elements one invocation joins: as many as strides fit the push constants. @param {DType} dtype */
const waysOf = (dtype) => (dtype === 'i64' ? 3 : 8);

/**
 * Joins the elements along one dimension of [outer, size, inner], in the type `dtype`. Each dispatch joins some slices of the dimension, until
 * one is left. Integers wrap, so that the order does not matter.
 */
export const reduceIntegers = defineOp({
  name: 'reduceIntegers',
  empty: (_, /** @type {Joined} */ { join }) => [join === 'prod' ? 1 : 0],
  infer: ([x], /** @type {Joined} */ { join, dtype }) => {
    if (join === 'amax' || join === 'amin') checkRow(join, { shape: [x.shape[1]] });
    return [denseLayout([x.shape[0], 1, x.shape[2]], dtype)];
  },
  lower: (k, [x], [y], { join, dtype }) => {
    const [outer, , inner] = x.layout.shape;
    const { op } = JOINS[join];
    const most = waysOf(x.layout.dtype === 'i64' ? 'i64' : dtype);
    /** @type {Dispatch[]} */
    const dispatches = [];
    let from = x;
    for (let [size, level] = [x.layout.shape[1], 0]; dispatches.length === 0 || size > 1; level++) {
      const left = Math.ceil(size / most);
      const into = left === 1 ? y : scratch(k.context, level % 2, [outer, left, inner], dtype);
      // The last slices may have one element less.
      const rest = size % left;
      for (const [start, length, ways] of [
        [0, rest, Math.ceil(size / left)],
        [rest, left - rest, Math.floor(size / left)],
      ]) {
        if (length === 0) continue;
        const slices = Array.from({ length: ways }, (_, i) => along(from, start + i * left, length));
        const dispatch = map(k.context, slices, [along(into, start, length)], (p, values) => [
          values.map((value) => converted(p, value, dtype)).reduce((a, b) => p.append(op, a, b)),
        ]);
        dispatches.push(/** @type {Dispatch} */ (dispatch));
      }
      from = into;
      size = left;
    }
    return dispatches;
  },
  oracle: ([x], { join }) => {
    const [outer, size, inner] = x.shape;
    return generate([outer, 1, inner], ([o, , i]) => {
      let value = size > 0 ? at(x, [o, 0, i]) : Number(join === 'prod');
      for (let s = 1; s < size; s++) value = JOINS[join].f(value, at(x, [o, s, i]));
      return value;
    });
  },
});

/** A dense operand in the device's workspace. @param {import('../../kernels/base.mjs').KernelContext} context @param {number} which @param {number[]} shape @param {DType} dtype @returns {Operand} */
function scratch(context, which, shape, dtype) {
  const buffer = context.workspace(`joined integers ${which}`, sizeOf(shape) * (dtype === 'i64' ? 8 : 4));
  return { buffer: Number(buffer), offset: 0, layout: denseLayout(shape, dtype) };
}

/** `length` places of the middle dimension of a dense operand [outer, size, inner]. @param {Operand} x @param {number} start @param {number} length @returns {Operand} */
function along({ buffer, offset, layout }, start, length) {
  const [outer, , inner] = layout.shape;
  const at = offset + start * inner;
  return { buffer, offset: at, layout: layoutOf([outer, length, inner], layout.strides, at, layout.dtype) };
}
