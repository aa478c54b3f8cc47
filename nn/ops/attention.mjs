// Attention and rotary positions.

import { ArgumentError, ShapeError, show } from '../core/errors.mjs';
import { denseLayout } from '../core/layout.mjs';
import { flatCount, floatType } from './pointwise.mjs';
import { generate } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('./registry.mjs').Reference} Reference */
/** @typedef {{ heads: number, causal: boolean }} AttentionAttributes */
/** Heads of a row that are rotated, and elements of one. @typedef {{ heads: number, headSize: number }} RopeAttributes */

/** Head sizes that the fused kernel takes. */
export const FUSED_HEADS = [32, 64, 96, 128];

/** @param {Layout} qkv [batch, tokens, 3 · width] @param {{ heads: number }} attributes */
function sizes({ shape }, { heads }) {
  const [batch, tokens, width] = shape;
  return { batch, tokens, heads, headSize: width / 3 / heads };
}

/**
 * Operations of `products` products of [tokens, tokens] and a head's size, of which a causal mask leaves half.
 * @param {Layout} qkv @param {AttentionAttributes} attributes @param {number} products
 */
function attentionFlops(qkv, { heads, causal }, products) {
  const { batch, tokens, headSize } = sizes(qkv, { heads });
  return (2 * products * batch * heads * tokens * tokens * headSize) / (causal ? 2 : 1);
}

const attentionBackward = defineOp({
  name: 'attentionBackward',
  infer: ([, qkv]) => [denseLayout(qkv.shape, qkv.dtype)],
  // What the kernels compute twice does not count. The first dispatch makes sums that the products' take.
  main: 1,
  flops: ([, qkv], _, /** @type {AttentionAttributes} */ attributes) => attentionFlops(qkv, attributes, 5),
  lower: (k, [dOut, qkv, out, logSumExp], [dQkv], { heads, causal }) => {
    const type = floatType('attention', qkv.layout);
    return [k.attentionBackward({ qkv, out, logSumExp, dOut, dQkv, ...sizes(qkv.layout, { heads }), causal, type })];
  },
  oracle: ([dOut, qkv], attributes) => {
    const base = attentionReference(qkv, attributes);
    // The gradient by central differences of Σ out · dOut.
    const value = (/** @type {Float64Array} */ data) =>
      attentionReference({ shape: qkv.shape, data }, attributes).data.reduce((sum, v, i) => sum + v * dOut.data[i], 0);
    const moved = Float64Array.from(qkv.data);
    const data = qkv.data.map((v, i) => {
      moved[i] = v + 1e-5;
      const above = value(moved);
      moved[i] = v - 1e-5;
      const below = value(moved);
      moved[i] = v;
      return (above - below) / 2e-5;
    });
    return { shape: base.shape.with(-1, qkv.shape[2]), data };
  },
});

/** @param {Reference} qkv @param {AttentionAttributes} attributes @returns {Reference} */
function attentionReference(qkv, { heads, causal }) {
  const [batch, tokens, width] = qkv.shape;
  const columns = width / 3;
  const size = columns / heads;
  const out = generate([batch, tokens, columns], () => 0);
  const read = (/** @type {number} */ b, /** @type {number} */ t, /** @type {number} */ part, /** @type {number} */ h) =>
    qkv.data.subarray((b * tokens + t) * width + part * columns + h * size, (b * tokens + t) * width + part * columns + (h + 1) * size);
  for (let b = 0; b < batch; b++) {
    for (let h = 0; h < heads; h++) {
      for (let t = 0; t < tokens; t++) {
        const q = read(b, t, 0, h);
        const scores = Array.from({ length: causal ? t + 1 : tokens }, (_, s) =>
          read(b, s, 1, h).reduce((sum, v, i) => sum + (v * q[i]) / Math.sqrt(size), 0),
        );
        const largest = Math.max(...scores);
        if (largest === -Infinity) continue; // 0
        const p = scores.map((s) => Math.exp(s - largest));
        const total = p.reduce((a, v) => a + v, 0);
        p.forEach((weight, s) => {
          const v = read(b, s, 2, h);
          for (let i = 0; i < size; i++) out.data[(b * tokens + t) * columns + h * size + i] += (weight / total) * v[i];
        });
      }
    }
  }
  return out;
}

/** Attention of fused rows [q | k | v], heads side by side: [batch, tokens, 3 · width] to [batch, tokens, width]. */
export const attention = defineOp({
  name: 'attention',
  infer: ([qkv], /** @type {AttentionAttributes} */ attributes) => {
    floatType('attention', qkv);
    if (qkv.shape.length !== 3 || qkv.shape[2] % (3 * attributes.heads)) {
      throw new ShapeError('attention', `${show(qkv.shape)} for ${attributes.heads} heads, expected [batch, tokens, 3 · heads · headSize]`);
    }
    const { batch, tokens, heads, headSize } = sizes(qkv, attributes);
    if (!FUSED_HEADS.includes(headSize)) throw new ArgumentError('attention', `heads of ${headSize}, not of ${FUSED_HEADS.join(', ')}`);
    return [denseLayout([batch, tokens, heads * headSize], qkv.dtype), denseLayout([batch, heads, tokens], 'f32')];
  },
  flops: ([qkv], _, attributes) => attentionFlops(qkv, attributes, 2),
  lower: (k, [qkv], [out, logSumExp], { heads, causal }) => {
    const type = floatType('attention', qkv.layout);
    return [k.attentionForward({ qkv, out, logSumExp, ...sizes(qkv.layout, { heads }), causal, type })];
  },
  saveInputs: () => [0],
  saveOutputs: [0, 1],
  vjp: (dy, { inputs: [qkv], outputs: [out, logSumExp], attributes }, F) => [
    F.call(attentionBackward, [dy, qkv, out, logSumExp], attributes),
  ],
  oracle: ([qkv], attributes) => attentionReference(qkv, attributes),
});

/**
 * @param {string} name @param {1 | -1} direction
 * @param {Partial<import('./registry.mjs').Definition<RopeAttributes>>} [rest]
 */
const rotation = (name, direction, rest) =>
  defineOp({
    name,
    infer: ([x, table], /** @type {RopeAttributes} */ { heads, headSize }) => {
      floatType('rope', x);
      if (x.shape.length < 2 || (x.shape.at(-1) ?? 0) < heads * headSize || headSize % 2) {
        throw new ShapeError('rope', `${show(x.shape)} for ${heads} heads of ${headSize}`);
      }
      const tokens = x.shape[x.shape.length - 2];
      if (table.shape[0] < tokens || table.shape[1] !== headSize / 2) {
        throw new ShapeError('rope', `a table ${show(table.shape)} for ${tokens} positions of heads of ${headSize}`);
      }
      return [denseLayout(x.shape, x.dtype)];
    },
    lower: (k, [x, table], [y], { heads, headSize }) => {
      const { shape, size } = x.layout;
      const rowStride = shape[shape.length - 1];
      const type = floatType('rope', x.layout);
      const args = { x: y, table, rows: size / rowStride, heads, headSize, rowStride, positions: shape[shape.length - 2], type };
      return [k.copy({ x, y, count: flatCount(x.layout), type }), direction === 1 ? k.ropeForward(args) : k.ropeBackward(args)];
    },
    oracle: ([x, table], { heads, headSize }) => {
      const width = x.shape[x.shape.length - 1];
      const tokens = x.shape[x.shape.length - 2];
      const data = Float64Array.from(x.data);
      const half = headSize / 2;
      for (let row = 0; row < data.length / width; row++) {
        for (let h = 0; h < heads; h++) {
          for (let i = 0; i < half; i++) {
            const from = row * width + h * headSize + i;
            const angle = ((row % tokens) * half + i) * 2;
            const [cos, sin] = [table.data[angle], direction * table.data[angle + 1]];
            data[from] = x.data[from] * cos - x.data[from + half] * sin;
            data[from + half] = x.data[from] * sin + x.data[from + half] * cos;
          }
        }
      }
      return { shape: x.shape, data };
    },
    ...rest,
  });

const ropeBackward = rotation('ropeBackward', -1);

/**
 * Rotates the first `heads` heads of each row by its position's angles (Su et al. 2021): x [..., tokens, width], table
 * [positions, headSize / 2, 2] of cosines and sines.
 */
export const rope = rotation('rope', 1, {
  saveInputs: () => [1],
  vjp: (dy, { inputs: [, table], attributes }, F) => [F.call(ropeBackward, [dy, table], attributes), undefined],
});
