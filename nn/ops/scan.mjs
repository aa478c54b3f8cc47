// Running sums, products and extremes along the last dimension, and products of whole rows.

import { ArgumentError } from '../core/errors.mjs';
import { denseLayout } from '../core/layout.mjs';
import { reduced } from './reduce.mjs';
import { rowsOf } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {import('./registry.mjs').Functions} Functions */
/** @typedef {import('./registry.mjs').Reference} Reference */
/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../../kernels/scan.mjs').ScanOp} ScanOp */
/** @typedef {import('../../kernels/scan.mjs').WordType} WordType */
/** Whether a scan begins at the end of the rows. @typedef {{ reverse?: boolean }} Direction */

/** The type as kernels that take words name it: a bool is a word of 0 or 1. @param {string} op @param {Layout} layout @returns {WordType} */
export function wordType(op, { dtype }) {
  if (dtype === 'bool') return 'u32';
  if (dtype === 'f32' || dtype === 'i32' || dtype === 'u32') return dtype;
  throw new ArgumentError(op, `takes elements of 32 bits, got ${dtype}`);
}

/** Rows and columns as kernels take them. @param {Layout} layout */
export function matrixOf({ shape }) {
  const [rows, columns] = rowsOf(shape);
  return { rows, columns };
}

/** A sum of bools counts them. @param {DType} dtype @returns {DType} */
const summedType = (dtype) => (dtype === 'bool' ? 'i32' : dtype);

/**
 * Scans rows in float64.
 * @param {Reference} x @param {boolean} reverse @param {(state: number[] | undefined, value: number, column: number) => number[]} f
 * @returns {number[][]} the state at each element
 */
function scanned(x, reverse, f) {
  const [rows, columns] = rowsOf(x.shape);
  /** @type {number[][]} */
  const states = new Array(x.data.length);
  for (let r = 0; r < rows; r++) {
    /** @type {number[] | undefined} */
    let state;
    for (let i = 0; i < columns; i++) {
      const c = reverse ? columns - 1 - i : i;
      state = f(state, x.data[r * columns + c], c);
      states[r * columns + c] = state;
    }
  }
  return states;
}

/**
 * @param {string} name @param {'sum' | 'prod' | 'logSumExp'} op @param {(a: number, b: number) => number} f
 * @param {Partial<import('./registry.mjs').Definition<Direction>>} rest
 */
const scan = (name, op, f, rest) =>
  defineOp({
    name,
    infer: ([x], _) => {
      wordType(name, x);
      if (op === 'logSumExp' && x.dtype !== 'f32')
        throw new ArgumentError(name, `takes f32, f16 or bf16, got ${x.dtype}; convert with .to('f32')`);
      return [denseLayout(x.shape, summedType(x.dtype))];
    },
    lower: (k, [x], [y], /** @type {Direction} */ { reverse }) => [
      k.scanRows({ x, y, ...matrixOf(x.layout), op, type: wordType(name, x.layout), reverse }),
    ],
    oracle: ([x], { reverse = false }) => {
      const states = scanned(x, reverse, (state, value) => [state ? f(state[0], value) : value]);
      return { shape: x.shape, data: Float64Array.from(states, ([value]) => value) };
    },
    ...rest,
  });

/** The other direction. @param {Direction} attributes */
const back = ({ reverse = false }) => ({ reverse: !reverse });

export const cumsum = scan('cumsum', 'sum', (a, b) => a + b, {
  vjp: (dy, { attributes }, F) => [F.call(cumsum, [dy], back(attributes))],
});

/**
 * The gradient of a product: dx[k] = Σ dy[i] · y[i] / x[k] over the results that x[k] is a factor of. Where x[k] is the first 0, they are the
 * products without it; behind it each of them has another 0.
 */
export const cumprod = scan('cumprod', 'prod', (a, b) => a * b, {
  saveInputs: () => [0],
  saveOutputs: [0],
  vjp: (dy, { inputs: [x], outputs: [y], attributes }, F) => {
    const sums = (/** @type {Tensor} */ products) => F.call(cumsum, [F.mul(dy, products)], back(attributes));
    const isZero = F.eq(x, 0);
    const first = F.where(isZero, F.eq(F.call(cumsum, [isZero], attributes), 1), isZero);
    const without = F.call(cumprod, [F.where(first, 1, x)], attributes);
    return [F.where(first, sums(without), F.where(isZero, 0, F.div(sums(y), F.where(isZero, 1, x))))];
  },
});

/** log Σ exp(x) of each element and those before. The gradient, dx[k] = exp(x[k]) · Σ dy[i] · exp(-y[i]), is computed by logarithms too. */
export const logcumsumexp = scan('logcumsumexp', 'logSumExp', logAddExp, {
  saveInputs: () => [0],
  saveOutputs: [0],
  vjp: (dy, { inputs: [x], outputs: [y], attributes }, F) => {
    const part = (/** @type {Tensor} */ own) => F.exp(F.add(F.call(logcumsumexp, [F.sub(F.log(own), y)], back(attributes)), x));
    return [F.sub(part(F.maximum(dy, 0)), part(F.maximum(F.neg(dy), 0)))];
  },
});

/** @param {number} a @param {number} b */
function logAddExp(a, b) {
  const most = Math.max(a, b);
  return Number.isFinite(most) ? most + Math.log(Math.exp(a - most) + Math.exp(b - most)) : most;
}

/**
 * The column of the largest (or smallest) element so far, of equal ones the last. NaN is more extreme than any number.
 * @param {string} name @param {1 | -1} direction
 */
const lastExtreme = (name, direction) =>
  defineOp({
    name,
    infer: ([x]) => {
      wordType(name, x);
      return [denseLayout(x.shape, 'i32')];
    },
    lower: (k, [x], [y]) => [
      k.scanRows({ x, y, ...matrixOf(x.layout), op: direction === 1 ? 'lastMax' : 'lastMin', type: wordType(name, x.layout) }),
    ],
    oracle: ([x]) => {
      const states = scanned(x, false, (state, value, c) =>
        !state || Number.isNaN(value) || direction * (value - state[0]) >= 0 ? [value, c] : state,
      );
      return { shape: x.shape, data: Float64Array.from(states, ([, column]) => column) };
    },
  });

export const cummaxPlace = lastExtreme('cummaxPlace', 1);
export const cumminPlace = lastExtreme('cumminPlace', -1);

/** The product of each row. Its gradient at an element is the product of the others. */
export const prod = defineOp({
  name: 'prod',
  infer: ([x]) => {
    wordType('prod', x);
    return [denseLayout([...x.shape.slice(0, -1), 1], summedType(x.dtype))];
  },
  lower: (k, [x], [y]) => [k.totalRows({ x, y, ...matrixOf(x.layout), op: 'prod', type: wordType('prod', x.layout) })],
  empty: 1,
  saveInputs: () => [0],
  saveOutputs: [0],
  vjp: (dy, { inputs: [x], outputs: [y] }, F) => {
    const isZero = F.eq(x, 0);
    const filled = F.where(isZero, 1, x);
    const zeros = F.sum(isZero, -1, true);
    const others = F.where(F.eq(zeros, 1), F.call(prod, [filled]), 0);
    return [F.mul(dy, F.where(isZero, others, F.div(y, filled)))];
  },
  oracle: ([x]) => reduced(x, [x.shape.length - 1], 1, (a, b) => a * b),
});
