// Floating-point operations of nodes, by the shapes of a call.

import { sizeOf } from './types.mjs';

/** @typedef {import('./definitions.mjs').Node} Node */
/** @typedef {import('./value.mjs').Value} Value */
/**
 * Multiply-adds by the shapes of the inputs and of the first output.
 * @typedef {(inputs: (readonly number[])[], output: readonly number[], attributes: import('./definitions.mjs').Attributes) => number} Rule
 */

/** @type {Rule} */
const matmul = ([a], y) => sizeOf(y) * a[a.length - 1];
/** @type {Rule} */
const gemm = ([a], y, { transA = 0 }) => sizeOf(y) * a[transA ? 0 : 1];
/** Weights are [outputs, channels of a group, ...window]. @param {number} at the input that has them @returns {Rule} */
const convolution = (at) => (inputs, y) => sizeOf(y) * sizeOf(inputs[at].slice(1));
/** Of a step the products with x and with h. @type {Rule} */
const recurrent = ([[steps, batch], w, r]) => steps * batch * (sizeOf(w) + sizeOf(r));

/** @type {Rule} */
function einsum(inputs, y, { equation }) {
  const [left, right] = equation.replaceAll(' ', '').split('->');
  /** @type {Map<string, number>} */
  const sizes = new Map();
  for (const [i, term] of left.split(',').entries()) {
    const [before, after] = term.split('...');
    [...before].forEach((letter, d) => sizes.set(letter, inputs[i][d]));
    [...(after ?? '')].forEach((letter, d) => sizes.set(letter, inputs[i][inputs[i].length - after.length + d]));
  }
  // Without an arrow the letters that occur once are the result's.
  const kept = right ?? [...sizes.keys()].filter((letter) => left.split(letter).length === 2).join('');
  const summed = [...sizes].flatMap(([letter, size]) => (kept.includes(letter) ? [] : [size]));
  return inputs.length < 2 ? 0 : sizeOf(y) * sizeOf(summed);
}

/** Scores and their product with the values; the keys of the past count. @type {Rule} */
const attention = ([q, k, , , past], y) => {
  const keys = k[k.length - 2] + (past?.[2] ?? 0);
  return (sizeOf(q) + sizeOf(y)) * keys;
};

/** @type {Record<string, Rule>} */
const RULES = {
  MatMul: matmul,
  MatMulInteger: matmul,
  QLinearMatMul: matmul,
  Gemm: gemm,
  Conv: convolution(1),
  ConvInteger: convolution(1),
  DeformConv: convolution(1),
  QLinearConv: convolution(3),
  ConvTranspose: ([x, w]) => sizeOf(x) * sizeOf(w.slice(1)),
  Einsum: einsum,
  RNN: recurrent,
  GRU: recurrent,
  LSTM: recurrent,
  Attention: attention,
  'com.microsoft.QGemm': gemm,
};

/**
 * Floating-point operations of a node that is a product or a convolution: two for a multiplication and an addition; else 0.
 * @param {Node} node @param {readonly (Value | undefined)[]} inputs @param {readonly (Value | undefined)[]} outputs
 */
export function flopsOf({ domain, op, attributes }, inputs, outputs) {
  const name = domain === '' ? op : `${domain}.${op}`;
  if (!Object.hasOwn(RULES, name)) return 0;
  const shapes = /** @type {(readonly number[])[]} */ (inputs.map((each) => each?.shape));
  return 2 * RULES[name](shapes, outputs[0]?.shape ?? [], attributes);
}
