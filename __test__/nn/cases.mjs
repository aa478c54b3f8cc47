// Test cases for every operation: inputs and attributes, with random and odd sizes.

import { ropeTable } from '../../kernels/index.mjs';
import { optimizerState } from '../../kernels/index.mjs';
import { integers } from '../lib/random-data.mjs';
import { any, binary, few, firstKeys, positive, random, shape, size, smooth, unary, x } from './inputs.mjs';
import { cases as conv } from './cases-conv.mjs';
import { cases as layers } from './cases-layers.mjs';
import { cases as math } from './cases-math.mjs';
import { cases as quantized } from './cases-quantized.mjs';
import { VIEWS, cases as shapes } from './cases-shape.mjs';
import { cases as sorting } from './cases-sorting.mjs';
import { cases as types } from './cases-types.mjs';

/** @typedef {import('./inputs.mjs').Input} Input */
/** @typedef {import('./inputs.mjs').Case} Case */
/** @typedef {import('../../nn/core/layout.mjs').DType} DType */

/** @type {Record<string, () => Case>} */
export const cases = {
  exp: unary(x),
  log: unary(positive),
  sqrt: unary(positive),
  rsqrt: unary(positive),
  reciprocal: unary(positive),
  quotient: () => ({ inputs: [positive(...shape())], attributes: { numerator: 2.5 } }),
  pow: () => ({
    inputs: [positive(...shape())],
    attributes: { exponent: random.pick([0, 1.5, 3, 7, -2, -3, 2.75, -1.5, 65]) },
    tolerance: 5e-5,
  }),
  log1p: unary(positive),
  abs: unary(smooth),
  square: unary(x),
  sign: unary(smooth),
  relu: unary(smooth),
  silu: unary(x),
  gelu: unary(x),
  tanh: unary(x),
  sigmoid: unary(x),
  affine: () => ({ inputs: [x(...shape())], attributes: { name: 'mul', alpha: 1.5, beta: random.pick([-0.25, 0, -0]) } }),
  add: () => ({ ...binary(x)(), attributes: random.chance(0.5) ? { beta: -1 } : undefined }),
  mul: binary(x),
  div: binary(x, positive),
  maximum: binary(x),
  minimum: binary(x),
  ...Object.fromEntries(['eq', 'ne', 'lt', 'le', 'gt', 'ge'].map((name) => [name, binary(few)])),
  where: () => {
    const own = shape();
    const part = own.slice(1).map((n) => (random.chance(0.3) ? 1 : n));
    const condition = { shape: own, values: integers(size(own), 2), dtype: /** @type {DType} */ ('bool'), constant: true };
    return { inputs: random.chance(0.5) ? [condition, x(...own), x(...part)] : [condition, x(...part), x(...own)] };
  },
  copy: unary(x),
  to: () => ({ inputs: [x(2 * any(), any())], attributes: { dtype: 'bf16' }, tolerance: 2 ** -8, dy: false }),
  full: () => ({ inputs: [], attributes: { shape: shape(), value: 2.5, dtype: 'f32' } }),
  sum: () => {
    const input = x(any(), any(), any());
    return { inputs: [input], attributes: { dims: random.pick([[0], [0, 1], [2], [1, 2], [0, 1, 2]]), alpha: 0.5 } };
  },
  amax: () => ({ inputs: [x(any(), any() + 1)] }),
  amin: () => ({ inputs: [x(any(), any() + 1)] }),
  matmul: () => {
    const [m, n, k, batch] = [any(), any(), any(), any()];
    const [a, b] = random.pick([
      [
        [m, k],
        [k, n],
      ],
      [
        [batch, m, k],
        [batch, k, n],
      ],
      [
        [batch, m, k],
        [1, k, n],
      ],
      [
        [2, batch, m, k],
        [2, batch, k, n],
      ],
    ]);
    return { inputs: [x(...a), x(...b)] };
  },
  times: () => ({ inputs: [x(...shape()), x()] }),
  linear: () => {
    const [m, n, k] = [any(), any(), any()];
    return { inputs: [x(2, m, k), x(n, k), ...(random.chance(0.5) ? [x(n)] : [])] };
  },
  softmax: () => ({ inputs: [x(any(), any() + 1)], attributes: { scale: random.pick([1, 0.5]), masked: random.chance(0.5) } }),
  softmaxBackward: () => {
    const [r, c] = [any(), any()];
    return { inputs: [positive(r, c), x(r, c)], attributes: { scale: 0.5 } };
  },
  crossEntropy: () => {
    const [rows, classes] = [any() + 1, any() + 1];
    const targets = integers(rows, classes);
    targets[0] = 4294967196;
    return {
      inputs: [x(rows, classes), { shape: [rows], values: targets, dtype: 'u32', constant: true }],
      attributes: { ignored: 4294967196 },
    };
  },
  linearCrossEntropy: () => {
    const { inputs, attributes } = /** @type {any} */ (cases.linearCrossEntropyRows());
    return { inputs, attributes: { ...attributes, scale: 0.5, wants: [true, true] } };
  },
  linearCrossEntropyRows: () => {
    const [rows, classes, inner] = [any() + 1, any() + 1, any()];
    const targets = integers(rows, classes);
    targets[0] = 4294967196;
    return {
      inputs: [x(rows, inner), x(classes, inner), { shape: [rows], values: targets, dtype: 'u32', constant: true }],
      attributes: { block: random.between(1, rows), ignored: 4294967196, weightType: 'f32' },
      tolerance: 2e-5,
    };
  },
  crossEntropyGradient: () => {
    const [rows, classes] = [any(), any() + 1];
    const targets = { shape: [rows], values: integers(rows, classes), dtype: /** @type {DType} */ ('u32') };
    return { inputs: [x(rows, classes), targets], attributes: { ignored: 4294967196 } };
  },
  rmsNorm: () => {
    const c = any() + 1;
    return { inputs: [x(2, any(), c), x(c)], attributes: { eps: 1e-5 } };
  },
  layerNorm: () => {
    const c = any() + 2;
    return { inputs: [x(2, any(), c), x(c), x(c)], attributes: { eps: 1e-5 } };
  },
  glu: () => ({ inputs: [x(any(), 2 * any())], attributes: { activation: random.pick(['silu', 'gelu', 'sigmoid']) } }),
  gluBackward: () => {
    const [r, c] = [any(), any()];
    return { inputs: [x(r, 2 * c), x(r, c)], attributes: { activation: 'silu' } };
  },
  embedding: () => {
    const [rows, columns, tokens] = [any(), any(), any()];
    return { inputs: [{ shape: [2, tokens], values: integers(2 * tokens, rows), dtype: 'i32', constant: true }, x(rows, columns)] };
  },
  embeddingBackward: () => {
    const [vocabulary, columns, tokens] = [any(), any(), any()];
    const ids = { shape: [tokens], values: integers(tokens, vocabulary), dtype: /** @type {DType} */ ('u32'), constant: true };
    return { inputs: [ids, x(tokens, columns)], attributes: { vocabulary, columns } };
  },
  dropout: () => ({ inputs: [x(any(), any()), state()], attributes: { p: 0.5 }, random: true }),
  random: () => {
    const attributes = random.pick([
      { distribution: 'bits' },
      { distribution: 'uniform', low: -0.5, high: 3 },
      { distribution: 'normal', mean: 0.5, deviation: 2 },
    ]);
    return { inputs: [state()], attributes: { shape: shape(), ...attributes }, tolerance: 1e-6 };
  },
  initial: () => {
    const attributes = random.pick([
      { distribution: 'uniform', low: -0.5, high: 3 },
      { distribution: 'normal', mean: 0.5, deviation: 2 },
    ]);
    return { inputs: [], attributes: { shape: shape(), seed: 77, first: random.between(0, 9), ...attributes }, tolerance: 1e-6 };
  },
  dropoutBackward: () => ({
    inputs: [x(4, any()), { shape: [4], values: Float64Array.of(1, 2, 3, 4), dtype: 'u32' }],
    attributes: { p: 0.5 },
    random: true,
  }),
  attention: () => {
    const [kvHeads, tokens] = [random.between(1, 2), random.between(1, 3)];
    const heads = kvHeads * random.between(1, 2);
    const attributes = { heads, kvHeads, causal: random.chance(0.5), window: random.chance(0.5) ? random.between(1, tokens) : 0 };
    const limits = random.chance(0.5) ? [{ ...firstKeys(1, tokens), constant: true }] : [];
    return { inputs: [x(1, tokens, (heads + 2 * kvHeads) * 32), ...limits], attributes, tolerance: 1e-5 };
  },
  attentionApart: () => {
    const [kvHeads, tokens, size] = [random.between(1, 2), random.between(1, 3), 32];
    const causal = random.chance(0.5);
    const keys = causal ? tokens + random.below(3) : random.between(1, 4);
    const shapes = [[tokens, kvHeads * random.between(1, 2)], ...[0, 1].map(() => [keys, kvHeads])];
    const inputs = shapes.map((own) => x(2, ...own, size));
    return { inputs, attributes: { causal, scale: random.pick([0.25, -0.1, 1 / Math.sqrt(size)]) }, tolerance: 1e-5 };
  },
  lastQueries: () => ({ inputs: [firstKeys(any(), any())] }),
  rope: () => {
    const [tokens, half] = [any(), any()];
    const places = { shape: [2, tokens], values: integers(2 * tokens, tokens + 2), dtype: /** @type {const} */ ('u32'), constant: true };
    return {
      inputs: [
        x(2, tokens, 3 * 2 * half),
        { shape: [tokens, half, 2], values: table(tokens, half), constant: true },
        ...(random.chance(0.5) ? [places] : []),
      ],
      attributes: { heads: 2, headSize: 2 * half },
    };
  },
  ropeBackward: () => {
    const [tokens, half] = [any(), any()];
    return {
      inputs: [x(tokens, 4 * half), { shape: [tokens, half, 2], values: table(tokens, half), constant: true }],
      attributes: { heads: 1, headSize: 2 * half },
    };
  },
  gather: () => {
    const [index, own, dim] = indexed();
    return { inputs: [x(...own), index], attributes: { dim } };
  },
  scatterAdd: () => {
    const [index, own, dim] = indexed();
    return { inputs: [x(...own), index, x(...index.shape)], attributes: { dim } };
  },
  scatter: () => {
    const [index, own, dim] = indexed();
    return { inputs: [x(...own), index, x(...index.shape)], attributes: { dim } };
  },
  scatterRest: () => {
    const own = shape();
    const last = Float64Array.from(integers(size(own), 3), (v) => (v ? v : 4294967295));
    return { inputs: [x(...own), { shape: own, values: last, dtype: 'u32', constant: true }] };
  },
  argmax: () => ({ inputs: [places()] }),
  argmin: () => ({ inputs: [places()] }),
  cat: () => {
    const [a, b] = [any(), any()];
    return { inputs: [x(a, 3, b), x(a, any(), b), x(a, 1, b)], attributes: { dim: 1 } };
  },
  sliceBackward: () => ({ inputs: [x(3, 2, 5)], attributes: { dim: 1, start: 1, length: 2, step: 2, shape: [3, 6, 5] } }),
  copy_: () => {
    const own = shape();
    return { inputs: [x(...own), x(...own)] };
  },
  ...conv,
  ...layers,
  ...math,
  ...shapes,
  ...sorting,
  ...types,
  ...quantized,
};
cases.gru = () => {
  const [batch, steps, hidden] = [any(), random.between(1, 5), any()];
  return { inputs: [x(batch, steps, 3 * hidden), x(batch, hidden), x(3 * hidden, hidden), x(3 * hidden)] };
};
cases.lstm = () => {
  const [batch, steps, hidden] = [any(), random.between(1, 5), any()];
  return { inputs: [x(batch, steps, 4 * hidden), x(batch, hidden), x(batch, hidden), x(4 * hidden, hidden), x(4 * hidden)] };
};
for (const name of ['relu', 'silu', 'gelu', 'tanh', 'sigmoid']) {
  cases[`${name}Backward`] = () => {
    const own = shape();
    return { inputs: [smooth(...own), x(...own)] };
  };
}

/** @param {number} tokens @param {number} half */
const table = (tokens, half) => Float64Array.from(ropeTable({ positions: tokens, headSize: 2 * half }));
/** Numbers many of which are equal. */
function places() {
  const own = [any(), 40 * any()];
  return { shape: own, values: Float64Array.from(integers(size(own), 25), (v) => v - 12) };
}
/** An index along a dimension, some of which is out of range, and the shape that it is for. @returns {[Input, number[], number]} */
function indexed() {
  const own = shape();
  const dim = random.below(own.length);
  const places = own.with(dim, any());
  return [{ shape: places, values: integers(size(places), own[dim] + 1), dtype: random.pick(['i32', 'u32']), constant: true }, own, dim];
}
const state = () => ({
  shape: [32],
  values: Float64Array.from(optimizerState({ rate: 0, seed: 7 })),
  dtype: /** @type {DType} */ ('u32'),
  constant: true,
});

/** Operations whose result is the input seen otherwise, and those that other tests take. */
export const ELSEWHERE = [
  'reshape',
  'permute',
  'expand',
  'slice',
  ...VIEWS,
  'layerNormBackward',
  'rmsNormBackward',
  'attentionBackward',
  'attentionApartBackward',
  'gruBackward',
  'lstmBackward',
  'adaptBackward',
  'adaptDown',
  'adaptInput',
];
