// Elementwise operations: one element of the result depends on one element of each operand.

import { activate, activateGradient } from '../../kernels/formulas.mjs';
import { map as mapped, writable } from '../core/codegen.mjs';
import { ArgumentError } from '../core/errors.mjs';
import { broadcastShapes, channelsFirst, channelsLast, denseLayout, isChannelsLast, isFloat } from '../core/layout.mjs';
import { at, gelu, generate, map, sigmoid } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {import('./registry.mjs').Definition} Op */
/** @template {import('./registry.mjs').Attributes} A @typedef {import('./registry.mjs').Definition<A>} Definition */
/** Factors of both operands, and whether a limit's gradient passes at it. @typedef {{ alpha?: number, beta?: number, clamps?: boolean }} BinaryAttributes */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../../kernels/base.mjs').DType} FloatType */
/** @typedef {import('../core/codegen.mjs').Program} Program */
/** @typedef {import('../core/codegen.mjs').Value} Value */

/** The element type as kernels name it. @param {string} op @param {Layout} layout @returns {FloatType} */
export function floatType(op, { dtype }) {
  if (!isFloat(dtype)) throw new ArgumentError(op, `takes f32, f16 or bf16, got ${dtype}; convert with .to('f32')`);
  return /** @type {FloatType} */ (dtype);
}

/** Checks that elements are numbers: floats or integers. @param {string} op @param {Layout} layout */
function numberType(op, { dtype }) {
  if (dtype === 'bool') throw new ArgumentError(op, `takes numbers, got bool; convert with .to('i32')`);
}

/** How many elements a flat kernel processes. 16-bit elements come in pairs, so an odd count includes the storage's padding. @param {Layout} layout */
export const flatCount = ({ size, dtype }) => (dtype === 'f16' || dtype === 'bf16' ? size + (size & 1) : size);

/**
 * @param {string} name @param {(x: number) => number} f
 * @param {Pick<Op, 'lower'> & Partial<Op>} rest
 */
const unary = (name, f, rest) =>
  defineOp({
    name,
    infer: ([x]) => {
      floatType(name, x);
      return [denseLayout(x.shape, x.dtype)];
    },
    oracle: ([x]) => map(x, f),
    ...rest,
  });

/** Of what `unary` has, for operations that integers have as well. @param {string} name @returns {Pick<Op, 'infer'>} */
const ofNumbers = (name) => ({
  infer: ([x]) => {
    numberType(name, x);
    return [denseLayout(x.shape, x.dtype)];
  },
});

/**
 * Calls an elementwise operation so that a result lies in memory as its first operand of the same shape: channels last, if that does.
 * @param {string} name @param {Tensor[]} inputs @param {(inputs: Tensor[]) => Tensor} run
 */
export function inOrder(name, inputs, run) {
  if (!inputs.some((x) => x.layout?.contiguous === false)) return run(inputs);
  const shape = broadcastShapes(name, ...inputs.map((x) => x.shape));
  const first = inputs.find((x) => String(x.shape) === String(shape) && (x.layout.contiguous || isChannelsLast(x.layout)));
  if (!first || first.layout.contiguous) return run(inputs);
  const moved = inputs.map((x) =>
    x.reshape(...new Array(shape.length - x.ndim).fill(1), ...x.shape).permute(...channelsLast(shape.length)),
  );
  return run(moved).permute(...channelsFirst(shape.length));
}

/**
 * What follows from an operation's program: its own dispatch, and its part of kernels that fuse several operations.
 * @template {import('./registry.mjs').Attributes} A
 * @param {string} name @param {(program: Program, inputs: Value[], attributes: A, numbers: import('./registry.mjs').Constants) => Value} body
 * @returns {Pick<Definition<A>, 'strided' | 'prepare' | 'lower' | 'body'>}
 */
export const generated = (name, body) => ({
  strided: true,
  prepare: (inputs, run, attributes) => inOrder(attributes.name ?? name, inputs, run),
  body,
  lower: (k, inputs, [y], attributes) => {
    const dispatch = writable(y.layout)
      ? mapped(k.context, inputs, [y], (program, values, numbers) => [body(program, values, attributes, numbers)])
      : undefined;
    if (!dispatch)
      throw new ArgumentError(
        attributes.name ?? name,
        `no kernel reads ${y.layout.dtype} operands of these strides: call contiguous() on them`,
      );
    return [dispatch];
  },
});

/**
 * @param {string} name @param {(program: Program, x: Value) => Value} body the operation as a program
 * @param {(x: number) => number} f @param {Partial<Op>} rest
 */
const elementwise = (name, body, f, rest) => unary(name, f, { ...generated(name, (program, [x]) => body(program, x)), ...rest });
/** The program of one instruction. @param {(typeof import('../core/codegen.mjs').OPERATIONS)[number]} name */
const one = (name) => (/** @type {Program} */ p, /** @type {Value} */ x) => p.append(name, x);

const first = () => [0];

export const exp = elementwise('exp', one('exp'), Math.exp, { saveOutputs: [0], vjp: (dy, { outputs: [y] }, F) => [F.mul(dy, y)] });
export const log = elementwise('log', one('log'), Math.log, { saveInputs: first, vjp: (dy, { inputs: [x] }, F) => [F.div(dy, x)] });
export const sqrt = elementwise('sqrt', one('sqrt'), Math.sqrt, {
  saveOutputs: [0],
  vjp: (dy, { outputs: [y] }, F) => [F.mul(F.div(dy, y), 0.5)],
});
export const rsqrt = elementwise('rsqrt', one('rsqrt'), (x) => 1 / Math.sqrt(x), {
  saveOutputs: [0],
  vjp: (dy, { outputs: [y] }, F) => [F.mul(F.mul(F.mul(F.mul(dy, y), y), y), -0.5)],
});
export const reciprocal = elementwise(
  'reciprocal',
  (p, x) => p.append('div', p.constant(1), x),
  (x) => 1 / x,
  {
    saveOutputs: [0],
    // Not by y², which f16 may not hold where it holds the gradient.
    vjp: (dy, { outputs: [y] }, F) => [F.neg(F.mul(F.mul(dy, y), y))],
  },
);
/**
 * numerator / x. Not a multiple of 1 / x, which may overflow where this does not.
 */
export const quotient = defineOp({
  name: 'quotient',
  infer: ([x]) => {
    floatType('div', x);
    return [denseLayout(x.shape, x.dtype)];
  },
  ...generated('div', (p, [x], /** @type {{ numerator: number }} */ { numerator }, numbers) => p.append('div', numbers(numerator)[0], x)),
  saveInputs: first,
  saveOutputs: [0],
  // dy · y may overflow where the gradient does not.
  vjp: (dy, { inputs: [x], outputs: [y] }, F) => [F.neg(F.mul(F.div(dy, x), y))],
  oracle: ([x], { numerator }) => map(x, (v) => numerator / v),
});
/** Exponents up to here are products. */
const MAX_PRODUCT_EXPONENT = 64;
/** x to a positive integer. @param {Program} p @param {Value} x @param {number} n @returns {Value} */
function productPower(p, x, n) {
  if (n === 1) return x;
  const half = productPower(p, x, Math.floor(n / 2));
  const even = p.append('mul', half, half);
  return n % 2 ? p.append('mul', even, x) : even;
}
/**
 * x to a number: small integers by products, others as C's pow, which knows 0, infinities and negative numbers. The gradient is
 * exponent · x^(exponent - 1): by way of a logarithm it would be NaN where x is 0 or negative.
 */
export const power = defineOp({
  name: 'pow',
  infer: ([x]) => {
    numberType('pow', x);
    return [denseLayout(x.shape, x.dtype)];
  },
  ...generated('pow', (p, [x], /** @type {{ exponent: number }} */ { exponent }, numbers) => {
    const type = p.typeOf(x);
    if (type !== 'f32') return exponent === 0 ? numbers({ value: 1, type })[0] : productPower(p, x, exponent);
    const size = Math.abs(exponent);
    if (!Number.isInteger(exponent) || size === 0 || size > MAX_PRODUCT_EXPONENT) return p.append('pow', x, numbers(exponent)[0]);
    const [one] = exponent < 0 ? numbers(1) : [];
    const product = productPower(p, x, size);
    return one === undefined ? product : p.append('div', one, product);
  }),
  saveInputs: first,
  vjp: (dy, { inputs: [x], attributes: { exponent } }, F) => [
    exponent === 0 ? F.zeros(x.shape, { dtype: x.dtype }) : F.mul(F.mul(dy, F.pow(x, exponent - 1)), exponent),
  ],
  oracle: ([x], { exponent }) => map(x, (v) => v ** exponent),
});
/** log(1 + x): by the series of 2 artanh(x / (2 + x)) where the sum would lose digits of x. */
export const log1p = elementwise(
  'log1p',
  (p, x) => {
    const [half, one] = [0.5, 1].map((n) => p.constant(n));
    const ratio = p.append('div', x, p.append('add', one, p.append('mul', x, half)));
    const square = p.append('mul', p.append('mul', ratio, half), p.append('mul', ratio, half));
    // 1/3 + z/5 + z²/7 …; of z, at most 1/9, what is left out is less than 2^-26.
    let series = p.constant(1 / 13);
    for (let n = 11; n >= 3; n -= 2) series = p.append('add', p.append('mul', series, square), p.constant(1 / n));
    const small = p.append('add', ratio, p.append('mul', ratio, p.append('mul', square, series)));
    const near = p.append('and', p.append('ge', x, p.constant(-0.5)), p.append('le', x, one));
    return p.append('select', near, small, p.append('log', p.append('add', one, x)));
  },
  Math.log1p,
  { saveInputs: first, vjp: (dy, { inputs: [x] }, F) => [F.div(dy, F.add(x, 1))] },
);
export const abs = elementwise('abs', one('abs'), Math.abs, {
  ...ofNumbers('abs'),
  saveInputs: first,
  vjp: (dy, { inputs: [x] }, F) => [F.mul(dy, F.sign(x))],
});
export const square = elementwise(
  'square',
  (p, x) => p.append('mul', x, x),
  (x) => x * x,
  {
    ...ofNumbers('square'),
    saveInputs: first,
    vjp: (dy, { inputs: [x] }, F) => [F.mul(F.mul(dy, x), 2)],
  },
);
export const sign = elementwise('sign', one('sign'), Math.sign, {
  ...ofNumbers('sign'),
  vjp: (dy, _saved, F) => [F.zeros(dy.shape, { dtype: dy.dtype })],
});

/** x · factor in x's type, of an f32 number that is not rounded to that type first: the gradient of a loss that a backward pass begins with. */
export const times = defineOp({
  name: 'times',
  infer: ([x, factor]) => {
    floatType('times', x);
    if (factor.dtype !== 'f32' || factor.size !== 1) throw new ArgumentError('times', 'the factor is one number of f32');
    return [denseLayout(x.shape, x.dtype)];
  },
  ...generated('times', (p, [x, factor]) => p.append('mul', x, factor)),
  oracle: ([x, factor]) => map(x, (v) => v * factor.data[0]),
});

/** y = alpha · x + beta. A beta of -0 leaves every product as it is; a beta of 0 would turn -0 into 0. */
export const affine = defineOp({
  name: 'affine',
  infer: ([x], /** @type {{ name: string, alpha: number, beta: number }} */ { name }) => {
    numberType(name, x);
    return [denseLayout(x.shape, x.dtype)];
  },
  ...generated('affine', (p, [x], { alpha, beta }, numbers) => {
    const type = p.typeOf(x);
    const [a, b] = type === 'f32' ? numbers(alpha, beta) : numbers({ value: alpha, type }, { value: beta, type });
    const scaled = alpha === 1 ? x : alpha === -1 ? p.append('neg', x) : p.append('mul', x, a);
    return Object.is(beta, -0) ? scaled : p.append('add', scaled, b);
  }),
  vjp: (dy, { attributes: { alpha } }, F) => [alpha === 1 ? dy : F.mul(dy, alpha)],
  oracle: ([x], { alpha, beta }) => map(x, (v) => alpha * v + beta),
});

/**
 * @param {import('../../kernels/formulas.mjs').Activation} name @param {(x: number) => number} f
 * @param {boolean} [byResult] whether the derivative at the result is that at the argument: the result is kept then, which others need anyway
 */
function activated(name, f, byResult = false) {
  const backward = defineOp({
    name: `${name}Backward`,
    prepare: (inputs, run) => inOrder(name, inputs, run),
    infer: ([x]) => [denseLayout(x.shape, x.dtype)],
    body: (p, [x, dy]) => activateGradient(p, name, x, dy),
    lower: (k, [x, dy], [dx]) => [
      k.activationBackward({ x, dy, dx, count: flatCount(x.layout), activation: name, type: floatType(name, x.layout) }),
    ],
    oracle: ([x, dy]) => {
      const h = 1e-6;
      return { shape: x.shape, data: x.data.map((v, i) => (dy.data[i] * (f(v + h) - f(v - h))) / (2 * h)) };
    },
  });
  return elementwise(name, activate[name], f, {
    ...(byResult ? { saveOutputs: [0] } : { saveInputs: first }),
    vjp: (dy, { inputs: [x], outputs: [y] }, F) => [F.call(backward, [byResult ? y : x, dy])],
  });
}

export const relu = activated('relu', (x) => Math.max(x, 0), true);
export const silu = activated('silu', (x) => x * sigmoid(x));
export const geluOp = activated('gelu', gelu);
export const tanh = activated('tanh', Math.tanh);
export const sigmoidOp = activated('sigmoid', sigmoid);

/** What operations of two bools are: the sum is `or`, as in PyTorch. */
const OF_BOOLS = /** @type {const} */ ({ add: 'or', mul: 'and', max: 'or', min: 'and' });

/** @param {string} name @param {Layout[]} inputs */
function inferBinary(name, [a, b]) {
  if (a.dtype !== b.dtype)
    throw new ArgumentError(name, `takes tensors of one type, got ${a.dtype} and ${b.dtype}; convert with .to('${a.dtype}')`);
  return [denseLayout(broadcastShapes(name, a.shape, b.shape), a.dtype)];
}

/**
 * @param {string} name @param {'add' | 'mul' | 'div' | 'max' | 'min'} op
 * @param {(a: number, b: number, attributes: BinaryAttributes) => number} f
 * @param {Partial<Definition<BinaryAttributes>>} rest
 */
function binary(name, op, f, rest) {
  return defineOp({
    name,
    infer: (inputs, { beta = 1 }) => {
      const [{ dtype }] = inputs;
      if (op === 'div') floatType(name, inputs[0]);
      if (dtype === 'bool' && beta !== 1) throw new ArgumentError('sub', 'takes numbers, got bool: bools differ by logicalXor');
      return inferBinary(name, inputs);
    },
    ...generated(name, (p, [x, z], /** @type {BinaryAttributes} */ { alpha = 1, beta = 1 }, numbers) => {
      const type = p.typeOf(x);
      if (type === 'bool') return p.append(OF_BOOLS[/** @type {'add'} */ (op)], x, z);
      if (alpha === 1 && beta === 1) return p.append(op, x, z);
      if (alpha === 1 && beta === -1) return p.append('sub', x, z);
      const [s, t] = type === 'f32' ? numbers(alpha, beta) : numbers({ value: alpha, type }, { value: beta, type });
      return p.append(op, p.append('mul', x, s), p.append('mul', z, t));
    }),
    oracle: ([a, b], attributes) =>
      generate(broadcastShapes(name, a.shape, b.shape), (index) => f(at(a, index), at(b, index), attributes ?? {})),
    ...rest,
  });
}

/** @param {boolean[]} needs */
const saveOther = ([a, b]) => [...(b ? [0] : []), ...(a ? [1] : [])];
/** The gradient of an operand: summed over what was repeated. @param {import('./registry.mjs').Functions} F @param {Tensor} dy @param {Layout} layout */
const unbroadcast = (F, dy, layout) => F.sumTo(dy, layout.shape);

/** alpha · a + beta · b. */
export const add = binary('add', 'add', (a, b, { alpha = 1, beta = 1 }) => alpha * a + beta * b, {
  vjp: (dy, { layouts: [a, b], needs, attributes: { alpha = 1, beta = 1 } }, F) => [
    needs[0] ? unbroadcast(F, alpha === 1 ? dy : F.mul(dy, alpha), a) : undefined,
    needs[1] ? unbroadcast(F, beta === 1 ? dy : F.mul(dy, beta), b) : undefined,
  ],
});
export const mul = binary('mul', 'mul', (a, b) => a * b, {
  saveInputs: saveOther,
  vjp: (dy, { inputs: [a, b], layouts, needs }, F) => [
    needs[0] ? unbroadcast(F, F.mul(dy, b), layouts[0]) : undefined,
    needs[1] ? unbroadcast(F, F.mul(dy, a), layouts[1]) : undefined,
  ],
});
export const div = binary('div', 'div', (a, b) => a / b, {
  saveInputs: ([, b]) => (b ? [0, 1] : [1]),
  vjp: (dy, { inputs: [a, b], layouts, needs }, F) => [
    needs[0] ? unbroadcast(F, F.div(dy, b), layouts[0]) : undefined,
    // The gradient of a, times the quotient: dy · a may overflow where these do not.
    needs[1] ? unbroadcast(F, F.neg(F.mul(F.div(dy, b), F.div(a, b))), layouts[1]) : undefined,
  ],
});

/**
 * The larger (`direction` 1) or the smaller (-1) of two values. That one gets the gradient; of equal values each gets half, and where
 * one is NaN neither gets any, as in JAX (PyTorch gives it to both). With the attribute `clamps` the first of equal values gets all, as in
 * PyTorch.
 * @param {string} name @param {'max' | 'min'} op @param {1 | -1} direction
 */
const extreme = (name, op, direction) =>
  binary(name, op, (a, b) => (direction === 1 ? Math.max(a, b) : Math.min(a, b)), {
    saveInputs: () => [0, 1],
    vjp: (dy, { inputs: [a, b], layouts, needs, attributes: { clamps = false } }, F) => {
      // By comparisons: the difference of two infinities would be NaN.
      const equal = F.eq(a, b);
      const wins = (/** @type {Tensor} */ x, /** @type {Tensor} */ y) => F.where(direction === 1 ? F.gt(x, y) : F.lt(x, y), dy, 0);
      const share = clamps ? dy : F.mul(dy, 0.5);
      return [
        needs[0] ? unbroadcast(F, F.where(equal, share, wins(a, b)), layouts[0]) : undefined,
        needs[1] ? unbroadcast(F, F.where(equal, clamps ? 0 : share, wins(b, a)), layouts[1]) : undefined,
      ];
    },
  });
export const maximum = extreme('maximum', 'max', 1);
export const minimum = extreme('minimum', 'min', -1);
