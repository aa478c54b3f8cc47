// Attention and rotary positions.

import { ArgumentError, ShapeError, show } from '../core/errors.mjs';
import { denseLayout } from '../core/layout.mjs';
import { flatCount, floatType } from './pointwise.mjs';
import { generate } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('./registry.mjs').Reference} Reference */
/**
 * `kvHeads`: heads of keys and of values, a divisor of heads; `window`: keys that a query sees at most, up to its own place, or 0 for all.
 * @typedef {{ heads: number, kvHeads: number, causal: boolean, window: number }} AttentionAttributes
 */
/** Heads of a row that are rotated, and elements of one. @typedef {{ heads: number, headSize: number }} RopeAttributes */

/** Head sizes that the fused kernel takes. */
export const FUSED_HEADS = [32, 64, 96, 128];

/**
 * The sizes of a call, as kernels take them.
 * @param {{ shape: readonly number[] }} qkv [batch, tokens, (heads + 2 · kvHeads) · headSize] @param {{ heads: number, kvHeads: number }} attributes
 */
function sizes({ shape }, { heads, kvHeads }) {
  const [batch, tokens, width] = shape;
  return { batch, tokens, heads, kvHeads, headSize: width / (heads + 2 * kvHeads) };
}

/** The arguments of both passes, but for tensors. @param {Layout} qkv @param {AttentionAttributes} attributes */
function problem(qkv, attributes) {
  const { causal, window } = attributes;
  return { ...sizes(qkv, attributes), causal, window: window || undefined, type: floatType('attention', qkv) };
}

/**
 * Operations of `products` products of queries with the keys that they see by their places: what first keys hide counts.
 * @param {Layout} qkv @param {AttentionAttributes} attributes @param {number} products
 */
function attentionFlops(qkv, attributes, products) {
  const { batch, tokens, heads, headSize } = sizes(qkv, attributes);
  const before = Math.max(0, tokens - (attributes.window || tokens));
  const pairs = tokens ** 2 / (attributes.causal ? 2 : 1) - before ** 2 / 2;
  return 2 * products * batch * heads * pairs * headSize;
}

/** For each key the last query whose first key is at most it: u32 [batch, tokens] of first keys to u32 [batch, tokens]. */
const lastQueries = defineOp({
  name: 'lastQueries',
  infer: ([firstKey]) => [denseLayout(firstKey.shape, 'u32')],
  lower: (k, [firstKey], [lastQuery]) => {
    const [batch, tokens] = firstKey.layout.shape;
    return [k.attentionLastQuery({ firstKey, lastQuery, batch, tokens })];
  },
  oracle: ([{ shape, data }]) => {
    const tokens = shape[1];
    const last = (/** @type {number} */ i) => {
      const from = i - (i % tokens);
      return data.subarray(from, from + tokens).findLastIndex((first) => first <= i % tokens) >>> 0;
    };
    return { shape, data: data.map((_, i) => last(i)) };
  },
});

const attentionBackward = defineOp({
  name: 'attentionBackward',
  infer: ([, qkv]) => [denseLayout(qkv.shape, qkv.dtype)],
  // What the kernels compute twice does not count. The first dispatch makes sums that the products' take.
  main: 1,
  flops: ([, qkv], _, /** @type {AttentionAttributes} */ attributes) => attentionFlops(qkv, attributes, 5),
  lower: (k, [dOut, qkv, out, logSumExp, firstKey, lastQuery], [dQkv], attributes) => [
    k.attentionBackward({ qkv, out, logSumExp, dOut, dQkv, firstKey, lastQuery, ...problem(qkv.layout, attributes) }),
  ],
  oracle: ([dOut, qkv, , , firstKey], attributes) => {
    const base = attentionReference([qkv, firstKey], attributes);
    // The gradient by central differences of Σ out · dOut.
    const value = (/** @type {Float64Array} */ data) =>
      attentionReference([{ shape: qkv.shape, data }, firstKey], attributes).data.reduce((sum, v, i) => sum + v * dOut.data[i], 0);
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

/** @param {(Reference | undefined)[]} inputs rows, and first keys if there are any @param {AttentionAttributes} attributes @returns {Reference} */
function attentionReference([qkv, firstKey], attributes) {
  if (!qkv) throw new TypeError('attention: no rows');
  const { batch, tokens, heads, kvHeads, headSize: size } = sizes(qkv, attributes);
  const width = qkv.shape[2];
  const columns = heads * size;
  const out = generate([batch, tokens, columns], () => 0);
  const read = (/** @type {number} */ b, /** @type {number} */ t, /** @type {number} */ h) =>
    qkv.data.subarray((b * tokens + t) * width + h * size, (b * tokens + t) * width + (h + 1) * size);
  for (let b = 0; b < batch; b++) {
    for (let h = 0; h < heads; h++) {
      const key = heads + Math.floor((h * kvHeads) / heads);
      for (let t = 0; t < tokens; t++) {
        const q = read(b, t, h);
        const first = Math.max(firstKey?.data[b * tokens + t] ?? 0, attributes.window ? t + 1 - attributes.window : 0);
        const length = Math.max(0, (attributes.causal ? t + 1 : tokens) - first);
        const scores = Array.from({ length }, (_, s) =>
          read(b, first + s, key).reduce((sum, v, i) => sum + (v * q[i]) / Math.sqrt(size), 0),
        );
        const largest = Math.max(...scores);
        if (largest === -Infinity) continue; // 0
        const p = scores.map((s) => Math.exp(s - largest));
        const total = p.reduce((a, v) => a + v, 0);
        p.forEach((weight, s) => {
          const v = read(b, first + s, key + kvHeads);
          for (let i = 0; i < size; i++) out.data[(b * tokens + t) * columns + h * size + i] += (weight / total) * v[i];
        });
      }
    }
  }
  return out;
}

/**
 * Attention of fused rows [q | k | v], heads side by side: [batch, tokens, (heads + 2 · kvHeads) · headSize], and where queries do not see all
 * earlier keys u32 [batch, tokens] of first keys, to [batch, tokens, heads · headSize].
 */
export const attention = defineOp({
  name: 'attention',
  infer: ([qkv, firstKey], /** @type {AttentionAttributes} */ attributes) => {
    floatType('attention', qkv);
    const { heads, kvHeads } = attributes;
    if (qkv.shape.length !== 3 || qkv.shape[2] % (heads + 2 * kvHeads)) {
      const [times, of] = kvHeads === heads ? ['3 · heads', ''] : ['(heads + 2 · kvHeads)', ` and ${kvHeads} kvHeads`];
      throw new ShapeError('attention', `${show(qkv.shape)} for ${heads} heads${of}, expected [batch, tokens, ${times} · headSize]`);
    }
    const { batch, tokens, headSize } = sizes(qkv, attributes);
    if (!FUSED_HEADS.includes(headSize)) throw new ArgumentError('attention', `heads of ${headSize}, not of ${FUSED_HEADS.join(', ')}`);
    if (firstKey && show(firstKey.shape) !== show([batch, tokens])) {
      throw new ShapeError('attention', `firstKey ${show(firstKey.shape)}, expected [batch, tokens], ${show([batch, tokens])}`);
    }
    return [denseLayout([batch, tokens, heads * headSize], qkv.dtype), denseLayout([batch, heads, tokens], 'f32')];
  },
  flops: ([qkv], _, attributes) => attentionFlops(qkv, attributes, 2),
  lower: (k, [qkv, firstKey], [out, logSumExp], attributes) => [
    k.attentionForward({ qkv, out, logSumExp, firstKey, ...problem(qkv.layout, attributes) }),
  ],
  saveInputs: (needs) => needs.map((_, i) => i),
  saveOutputs: [0, 1],
  vjp: (dy, { inputs: [qkv, firstKey], outputs: [out, logSumExp], attributes }, F) => {
    const limits = firstKey ? [firstKey, F.call(lastQueries, [firstKey], {})] : [];
    return [F.call(attentionBackward, [dy, qkv, out, logSumExp, ...limits], attributes), ...limits.slice(1).map(() => undefined)];
  },
  oracle: (inputs, attributes) => attentionReference(inputs, attributes),
});

/**
 * @param {string} name @param {1 | -1} direction
 * @param {Partial<import('./registry.mjs').Definition<RopeAttributes>>} [rest]
 */
const rotation = (name, direction, rest) =>
  defineOp({
    name,
    infer: ([x, table, places], /** @type {RopeAttributes} */ { heads, headSize }) => {
      floatType('rope', x);
      if (x.shape.length < 2 || (x.shape.at(-1) ?? 0) < heads * headSize || headSize % 2) {
        throw new ShapeError('rope', `${show(x.shape)} for ${heads} heads of ${headSize}`);
      }
      const tokens = x.shape[x.shape.length - 2];
      if (places && (places.dtype !== 'u32' || show(places.shape) !== show(x.shape.slice(0, -1)))) {
        throw new ShapeError('rope', `positions ${places.dtype} ${show(places.shape)}, expected u32 ${show(x.shape.slice(0, -1))}`);
      }
      if ((!places && table.shape[0] < tokens) || table.shape[1] !== headSize / 2) {
        throw new ShapeError('rope', `a table ${show(table.shape)} for ${tokens} positions of heads of ${headSize}`);
      }
      return [denseLayout(x.shape, x.dtype)];
    },
    lower: (k, [x, table, places], [y], { heads, headSize }) => {
      const { shape, size } = x.layout;
      const rowStride = shape[shape.length - 1];
      const type = floatType('rope', x.layout);
      const positions = places ? table.layout.shape[0] : shape[shape.length - 2];
      const args = { x: y, table, rows: size / rowStride, heads, headSize, rowStride, positions, places, type };
      return [k.copy({ x, y, count: flatCount(x.layout), type }), direction === 1 ? k.ropeForward(args) : k.ropeBackward(args)];
    },
    oracle: ([x, table, places], { heads, headSize }) => {
      const width = x.shape[x.shape.length - 1];
      const tokens = x.shape[x.shape.length - 2];
      const data = Float64Array.from(x.data);
      const half = headSize / 2;
      for (let row = 0; row < data.length / width; row++) {
        for (let h = 0; h < heads; h++) {
          for (let i = 0; i < half; i++) {
            const from = row * width + h * headSize + i;
            const position = places ? Math.min(places.data[row], table.shape[0] - 1) : row % tokens;
            const angle = (position * half + i) * 2;
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
 * [positions, headSize / 2, 2] of cosines and sines, and where tokens are not at positions 0, 1, … u32 [..., tokens] of positions; one past
 * the table counts as its last.
 */
export const rope = rotation('rope', 1, {
  saveInputs: (needs) => needs.flatMap((_, i) => (i > 0 ? [i] : [])),
  vjp: (dy, { inputs: [, ...rest], attributes }, F) => [F.call(ropeBackward, [dy, ...rest], attributes), ...rest.map(() => undefined)],
});
