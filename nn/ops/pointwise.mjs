// Element by element.

import { map as mapped, writable } from '../core/codegen.mjs';
import { ArgumentError } from '../core/errors.mjs';
import { broadcastShapes, denseLayout, isFloat } from '../core/layout.mjs';
import { at, generate, map } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {import('./registry.mjs').Op} Op */
/** @typedef {import('./registry.mjs').Saved} Saved */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../../kernels/base.mjs').DType} FloatType */
/** @typedef {import('../core/codegen.mjs').Program} Program */
/** @typedef {import('../core/codegen.mjs').Value} Value */

/** The element type as kernels name it. @param {string} op @param {Layout} layout @returns {FloatType} */
export function floatType(op, { dtype }) {
  if (!isFloat(dtype)) throw new ArgumentError(op, `takes f32, f16 or bf16, got ${dtype}; convert with .to('f32')`);
  return /** @type {FloatType} */ (dtype);
}

/** Elements that a flat kernel goes over: 16-bit ones in pairs, the last with the padding of its storage. @param {Layout} layout */
export const flatCount = ({ size, dtype }) => (dtype === 'f16' || dtype === 'bf16' ? size + (size & 1) : size);

/** The error function, by Abramowitz and Stegun 7.1.5 (the series) below 3 and the continued fraction of erfc above. @param {number} x */
export function erf(x) {
  const a = Math.abs(x);
  if (a < 3) {
    let term = x;
    let sum = x;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = 0;
  for (let k = 60; k > 0; k--) fraction = k / 2 / (a + fraction);
  return Math.sign(x) * (1 - Math.exp(-a * a) / (Math.sqrt(Math.PI) * (a + fraction)));
}

/** tanh form of GELU (Hendrycks & Gimpel 2016). @param {number} x */
const gelu = (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
/** @param {number} x */
const sigmoid = (x) => 1 / (1 + Math.exp(-x));

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

/**
 * What an operation is from its program on: its dispatch, and the program for kernels that do several operations.
 * @param {string} name @param {NonNullable<Op['body']>} body
 * @returns {Pick<Op, 'strided' | 'lower' | 'body'>}
 */
export const generated = (name, body) => ({
  strided: true,
  body,
  lower: (k, inputs, [y], attributes) => {
    const dispatch = writable(y.layout)
      ? mapped(k.context, inputs, [y], (program, values, numbers) => [body(program, values, attributes, numbers)])
      : undefined;
    if (!dispatch)
      throw new ArgumentError(attributes.name ?? name, `${y.layout.dtype} operands of these strides: call contiguous() on them`);
    return [dispatch];
  },
});

/**
 * @param {string} name @param {(program: Program, x: Value) => Value} body the operation as a program
 * @param {(x: number) => number} f @param {Partial<Op>} rest
 */
const elementwise = (name, body, f, rest) => unary(name, f, { ...generated(name, (program, [x]) => body(program, x)), ...rest });
/** An operation of programs by itself. @param {(typeof import('../core/codegen.mjs').OPERATIONS)[number]} name */
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
  ...generated('div', (p, [x], { numerator }, numbers) => p.append('div', numbers(numerator)[0], x)),
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
    floatType('pow', x);
    return [denseLayout(x.shape, x.dtype)];
  },
  ...generated('pow', (p, [x], { exponent }, numbers) => {
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
export const abs = elementwise('abs', one('abs'), Math.abs, { saveInputs: first, vjp: (dy, { inputs: [x] }, F) => [F.mul(dy, F.sign(x))] });
export const square = elementwise(
  'square',
  (p, x) => p.append('mul', x, x),
  (x) => x * x,
  {
    saveInputs: first,
    vjp: (dy, { inputs: [x] }, F) => [F.mul(F.mul(dy, x), 2)],
  },
);
export const sign = elementwise('sign', one('sign'), Math.sign, { vjp: (dy, _saved, F) => [F.zeros(dy.shape, { dtype: dy.dtype })] });

/** y = alpha · x + beta. A beta of -0 adds nothing, unlike 0, which makes 0 of -0. */
export const affine = defineOp({
  name: 'affine',
  infer: ([x], { name }) => {
    floatType(name, x);
    return [denseLayout(x.shape, x.dtype)];
  },
  ...generated('affine', (p, [x], { alpha, beta }, numbers) => {
    const [a, b] = numbers(alpha, beta);
    const scaled = alpha === 1 ? x : alpha === -1 ? p.append('neg', x) : p.append('mul', x, a);
    return Object.is(beta, -0) ? scaled : p.append('add', scaled, b);
  }),
  vjp: (dy, { attributes: { alpha } }, F) => [alpha === 1 ? dy : F.mul(dy, alpha)],
  oracle: ([x], { alpha, beta }) => map(x, (v) => alpha * v + beta),
});

/**
 * @param {string} name @param {import('../../kernels/activation.mjs').Activation} activation @param {(x: number) => number} f
 * @param {(program: Program, x: Value) => Value} body
 * @param {(program: Program, x: Value, dy: Value) => Value} gradient as the kernel's own: shaders/include/activation.glsl
 */
function activated(name, activation, f, body, gradient) {
  const backward = defineOp({
    name: `${name}Backward`,
    infer: ([x]) => [denseLayout(x.shape, x.dtype)],
    body: (p, [x, dy]) => gradient(p, x, dy),
    lower: (k, [x, dy], [dx]) => [
      k.activationBackward({ x, dy, dx, count: flatCount(x.layout), activation, type: floatType(name, x.layout) }),
    ],
    oracle: ([x, dy]) => {
      const h = 1e-6;
      return { shape: x.shape, data: x.data.map((v, i) => (dy.data[i] * (f(v + h) - f(v - h))) / (2 * h)) };
    },
  });
  return elementwise(name, body, f, {
    saveInputs: first,
    vjp: (dy, { inputs: [x] }, F) => [F.call(backward, [x, dy])],
  });
}

/** dy · f'(x). @param {(program: Program, x: Value) => Value} derivative @returns {(program: Program, x: Value, dy: Value) => Value} */
const times = (derivative) => (p, x, dy) => p.append('mul', dy, derivative(p, x));

/** 1 / (1 + exp(-x)). @param {Program} p @param {Value} x */
const sigmoidProgram = (p, x) => {
  const unit = p.constant(1);
  return p.append('div', unit, p.append('add', unit, p.append('exp', p.append('neg', x))));
};
/** @param {Program} p @param {Value} x */
const geluProgram = (p, x) => {
  const cube = p.append('mul', p.append('mul', x, x), x);
  const inner = p.append('add', x, p.append('mul', cube, p.constant(0.044715)));
  const t = p.append('tanh', p.append('mul', inner, p.constant(Math.sqrt(2 / Math.PI))));
  return p.append('mul', p.append('mul', x, p.constant(0.5)), p.append('add', t, p.constant(1)));
};

/** 1 - x. @param {Program} p @param {Value} x */
const oneMinus = (p, x) => p.append('sub', p.constant(1), x);
/** e / (1 + e)² of e = exp(-factor · |x|), which never overflows. @param {Program} p @param {Value} x @param {number} factor */
const bell = (p, x, factor) => {
  const e = p.append('exp', p.append('mul', p.append('abs', x), p.constant(-factor)));
  const sum = p.append('add', e, p.constant(1));
  return p.append('div', e, p.append('mul', sum, sum));
};

export const relu = activated(
  'relu',
  'relu',
  (x) => Math.max(x, 0),
  (p, x) => p.append('max', x, p.constant(0)),
  // Not a product: 0 times an infinity is NaN.
  (p, x, dy) => p.append('select', p.append('gt', x, p.constant(0)), dy, p.constant(0)),
);
export const silu = activated(
  'silu',
  'silu',
  (x) => x * sigmoid(x),
  (p, x) => p.append('mul', x, sigmoidProgram(p, x)),
  times((p, x) => {
    const s = sigmoidProgram(p, x);
    return p.append('mul', s, p.append('add', p.constant(1), p.append('mul', x, oneMinus(p, s))));
  }),
);
const geluSlope = (/** @type {Program} */ p, /** @type {Value} */ x) => {
  // With s = sigmoid(u) of u = 2 √(2/π) (x + 0.044715 x³): s + x s (1 - s) u'.
  const square = p.append('mul', x, x);
  const cubic = p.append('mul', square, p.constant(0.044715));
  const factor = p.constant(2 * Math.sqrt(2 / Math.PI));
  const s = sigmoidProgram(p, p.append('mul', factor, p.append('mul', x, p.append('add', cubic, p.constant(1)))));
  const slope = p.append('mul', factor, p.append('add', p.append('mul', cubic, p.constant(3)), p.constant(1)));
  return p.append('add', s, p.append('mul', p.append('mul', x, p.append('mul', s, oneMinus(p, s))), slope));
};
export const geluOp = activated('gelu', 'gelu', gelu, geluProgram, times(geluSlope));
export const tanh = activated(
  'tanh',
  'tanh',
  Math.tanh,
  one('tanh'),
  times((p, x) => p.append('mul', bell(p, x, 2), p.constant(4))),
);
export const sigmoidOp = activated(
  'sigmoid',
  'sigmoid',
  sigmoid,
  sigmoidProgram,
  times((p, x) => bell(p, x, 1)),
);

/** @param {string} name @param {Layout[]} inputs */
function inferBinary(name, [a, b]) {
  floatType(name, a);
  if (a.dtype !== b.dtype)
    throw new ArgumentError(name, `takes tensors of one type, got ${a.dtype} and ${b.dtype}; convert with .to('${a.dtype}')`);
  return [denseLayout(broadcastShapes(name, a.shape, b.shape), a.dtype)];
}

/**
 * @param {string} name @param {'add' | 'mul' | 'div' | 'max' | 'min'} op
 * @param {(a: number, b: number, attributes: any) => number} f
 * @param {Partial<Op>} rest
 */
function binary(name, op, f, rest) {
  return defineOp({
    name,
    infer: (inputs) => inferBinary(name, inputs),
    ...generated(name, (p, [x, z], { alpha = 1, beta = 1 }, numbers) => {
      if (alpha === 1 && beta === 1) return p.append(op, x, z);
      if (alpha === 1 && beta === -1) return p.append('sub', x, z);
      const [s, t] = numbers(alpha, beta);
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
 * Of two values the larger (`direction` 1) or the smaller (-1). The gradient goes to that one, where they are equal by halves, and where
 * one is NaN to neither, as in JAX (PyTorch gives it to both); with the attribute `clamps`, equal ones give all of it to the first, as in
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
