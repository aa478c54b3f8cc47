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

/**
 * Attention by its formula.
 * @param {{ batch: number, tokens: number, keys: number, heads: number, kvHeads: number, size: number }} sizes
 * @param {{ causal: boolean, window?: number, scale?: number }} attributes
 * @param {(part: 0 | 1 | 2, batch: number, token: number, head: number) => Float64Array} read a head of queries, keys or values
 * @param {Reference} [firstKey]
 * @returns {Reference} [batch, tokens, heads · size]
 */
function referenceOf({ batch, tokens, keys, heads, kvHeads, size }, { causal, window = 0, scale = 1 / Math.sqrt(size) }, read, firstKey) {
  const columns = heads * size;
  const out = generate([batch, tokens, columns], () => 0);
  for (let b = 0; b < batch; b++) {
    for (let h = 0; h < heads; h++) {
      const key = Math.floor((h * kvHeads) / heads);
      for (let t = 0; t < tokens; t++) {
        const q = read(0, b, t, h);
        // The last query is at the last key's place.
        const own = t + 1 + keys - tokens;
        const first = Math.max(firstKey?.data[b * tokens + t] ?? 0, window ? own - window : 0);
        const length = Math.max(0, (causal ? own : keys) - first);
        const scores = Array.from({ length }, (_, s) => scale * read(1, b, first + s, key).reduce((sum, v, i) => sum + v * q[i], 0));
        const largest = Math.max(...scores);
        if (largest === -Infinity) continue; // 0
        const p = scores.map((s) => Math.exp(s - largest));
        const total = p.reduce((a, v) => a + v, 0);
        p.forEach((weight, s) => {
          const v = read(2, b, first + s, key);
          for (let i = 0; i < size; i++) out.data[(b * tokens + t) * columns + h * size + i] += (weight / total) * v[i];
        });
      }
    }
  }
  return out;
}

/** @param {(Reference | undefined)[]} inputs rows, and first keys if there are any @param {AttentionAttributes} attributes @returns {Reference} */
function attentionReference([qkv, firstKey], attributes) {
  if (!qkv) throw new TypeError('attention: no rows');
  const { headSize: size, ...own } = sizes(qkv, attributes);
  const { tokens, heads, kvHeads } = own;
  const from = [0, heads, heads + kvHeads];
  const row = (/** @type {number} */ b, /** @type {number} */ t) => (b * tokens + t) * qkv.shape[2];
  const read = (/** @type {0 | 1 | 2} */ part, /** @type {number} */ b, /** @type {number} */ t, /** @type {number} */ h) =>
    qkv.data.subarray(row(b, t) + (from[part] + h) * size, row(b, t) + (from[part] + h + 1) * size);
  return referenceOf({ ...own, keys: tokens, size }, attributes, read, firstKey);
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
    if (!FUSED_HEADS.includes(headSize))
      throw new ArgumentError('attention', `headSize must be one of ${FUSED_HEADS.join(', ')}, got ${headSize}`);
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

/** `scale`: a factor on the scores. @typedef {{ causal: boolean, scale: number }} ApartAttributes */

/**
 * Where the kernels find the tokens of [batch, tokens, heads, headSize]: elements from token to token and from sequence to sequence.
 * @param {Layout} layout
 * @returns {{ row: number, step: number } | undefined} undefined where the heads of a token are not beside each other
 */
function rowsOf({ shape: [batch, tokens, heads, size], strides, offset, dtype }) {
  const width = heads * size;
  // The stride of a dimension of size 1 does not matter.
  const row = tokens > 1 ? strides[1] : batch > 1 ? strides[0] : width;
  const step = batch > 1 ? strides[0] : tokens * row;
  const unit = dtype === 'f32' ? 4 : 8; // Rows start at multiples of 16 bytes.
  const beside = strides[3] === 1 && (heads === 1 || strides[2] === size);
  const apart = row >= width && step >= (tokens - 1) * row + width;
  return beside && apart && [row, step, offset].every((n) => n % unit === 0) ? { row, step } : undefined;
}

/** The row of queries, whose sequences follow each other without a gap. @param {Layout} q @returns {number | undefined} */
function queryRow(q) {
  const rows = rowsOf(q);
  return rows && rows.step === q.shape[1] * rows.row ? rows.row : undefined;
}

/** The rows of keys and of values, which the kernels find by the same strides. @param {Layout} k @param {Layout} v */
function keyRows(k, v) {
  const [ofK, ofV] = [rowsOf(k), rowsOf(v)];
  return ofK && ofV && ofK.row === ofV.row && ofK.step === ofV.step ? ofK : undefined;
}

/** Whether the kernels can read x after nothing but a copy of what is not dense. @param {Layout} x */
const isDense = (x) => x.contiguous && rowsOf(x) !== undefined;

/**
 * The number of elements that `attentionApart` copies of these layouts, [batch, tokens, heads, headSize] each.
 * @param {Layout} q @param {Layout} k @param {Layout} v
 */
export const copiedElements = (q, k, v) =>
  (queryRow(q) === undefined ? q.size : 0) + (keyRows(k, v) ? 0 : [k, v].reduce((sum, x) => sum + (isDense(x) ? 0 : x.size), 0));

/** Sizes as kernels take them. @param {Layout} q @param {Layout} k */
function apartSizes({ shape: [batch, tokens, heads, headSize] }, { shape: [, keys, kvHeads] }) {
  return { batch, tokens, keys, heads, kvHeads, headSize };
}

/** The arguments of both passes, but for tensors. @param {Layout[]} inputs queries, keys and values @param {ApartAttributes} attributes */
function apartProblem([q, k, v], { causal, scale }) {
  const [rowQ, rows] = [queryRow(q), keyRows(k, v)];
  if (rowQ === undefined || !rows) throw new ArgumentError('attentionApart', 'no kernel reads operands of these strides');
  return { ...apartSizes(q, k), rowQ, rowKv: rows.row, batchKv: rows.step, causal, scale, type: floatType('attentionApart', q) };
}

/**
 * Operations of `products` products of queries with the keys that they see.
 * @param {Layout[]} inputs @param {ApartAttributes} attributes @param {number} products
 */
function apartFlops([q, k], { causal }, products) {
  const { batch, tokens, keys, heads, headSize } = apartSizes(q, k);
  const pairs = tokens * (causal ? keys - tokens / 2 : keys);
  return 2 * products * batch * heads * pairs * headSize;
}

/** @param {Reference[]} inputs @param {ApartAttributes} attributes @returns {Reference} */
function apartReference(inputs, attributes) {
  const [[batch, tokens, heads, size], [, keys, kvHeads]] = inputs.map(({ shape }) => shape);
  const read = (/** @type {0 | 1 | 2} */ part, /** @type {number} */ b, /** @type {number} */ t, /** @type {number} */ h) => {
    const { shape, data } = inputs[part];
    const from = ((b * shape[1] + t) * shape[2] + h) * size;
    return data.subarray(from, from + size);
  };
  const { data } = referenceOf({ batch, tokens, keys, heads, kvHeads, size }, attributes, read);
  return { shape: inputs[0].shape, data };
}

const attentionApartBackward = defineOp({
  name: 'attentionApartBackward',
  empty: 0,
  strided: true,
  infer: ([, ...inputs]) => inputs.slice(0, 3).map((x) => denseLayout(x.shape, x.dtype)),
  main: 1,
  flops: ([, ...inputs], _, /** @type {ApartAttributes} */ attributes) => apartFlops(inputs, attributes, 5),
  lower: (kernels, [dOut, q, k, v, out, logSumExp], [dQ, dK, dV], attributes) => {
    const problem = apartProblem([q.layout, k.layout, v.layout], attributes);
    return [kernels.attentionBackward({ q, k, v, out, logSumExp, dOut, dQ, dK, dV, ...problem })];
  },
  // The gradient of the queries by central differences of Σ out · dOut.
  oracle: ([dOut, q, k, v], attributes) => {
    const value = (/** @type {Float64Array} */ data) =>
      apartReference([{ shape: q.shape, data }, k, v], attributes).data.reduce((sum, x, i) => sum + x * dOut.data[i], 0);
    const data = q.data.map((x, i) => (value(q.data.with(i, x + 1e-5)) - value(q.data.with(i, x - 1e-5))) / 2e-5);
    return { shape: q.shape, data };
  },
});

/**
 * Attention of queries [batch, tokens, heads, headSize] to keys and values [batch, keys, kvHeads, headSize], to the queries' shape. Operands
 * may be views in which the heads of a token are beside each other; others are copied. With `causal` the last query is at the last key's place.
 */
export const attentionApart = defineOp({
  name: 'attentionApart',
  strided: true,
  empty: 0, // Of no keys.
  infer: ([q, k, v], /** @type {ApartAttributes} */ { causal }) => {
    floatType('attentionApart', q);
    const { batch, tokens, keys, heads, kvHeads, headSize } = apartSizes(q, k);
    const wanted = show([batch, keys, kvHeads, headSize]);
    if (
      q.shape.length !== 4 ||
      show(k.shape) !== wanted ||
      show(v.shape) !== wanted ||
      heads % kvHeads !== 0 ||
      (causal && keys < tokens)
    ) {
      throw new ShapeError('attentionApart', `${[q, k, v].map(({ shape }) => show(shape)).join(', ')} as queries, keys and values`);
    }
    return [denseLayout(q.shape, q.dtype), denseLayout([batch, heads, tokens], 'f32')];
  },
  prepare: ([q, k, v], run) => {
    const dense = (/** @type {import('../api/tensor.mjs').Tensor} */ x) => (isDense(x.layout) ? x : x.clone());
    const keys = keyRows(k.layout, v.layout) ? [k, v] : [dense(k), dense(v)];
    return run([queryRow(q.layout) === undefined ? dense(q) : q, ...keys]);
  },
  flops: (inputs, _, attributes) => apartFlops(inputs, attributes, 2),
  lower: (kernels, [q, k, v], [out, logSumExp], attributes) => [
    kernels.attentionForward({ q, k, v, out, logSumExp, ...apartProblem([q.layout, k.layout, v.layout], attributes) }),
  ],
  saveInputs: () => [0, 1, 2],
  saveOutputs: [0, 1],
  vjp: (dy, { inputs, outputs, attributes }, F) => F.callAll(attentionApartBackward, [dy.contiguous(), ...inputs, ...outputs], attributes),
  oracle: apartReference,
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
      if (show(table.shape.slice(1)) !== show([headSize / 2, 2]) || table.shape[0] < (places ? Math.min(1, x.size) : tokens)) {
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

/** What the gradient of a rotation is: one by the other direction. @param {() => import('./registry.mjs').Op} back @returns {Partial<import('./registry.mjs').Definition<RopeAttributes>>} */
const rotatedBack = (back) => ({
  saveInputs: (needs) => needs.flatMap((_, i) => (i > 0 ? [i] : [])),
  vjp: (dy, { inputs: [, ...rest], attributes }, F) => [F.call(back(), [dy, ...rest], attributes), ...rest.map(() => undefined)],
});

/** @type {import('./registry.mjs').Op} */
const ropeBackward = rotation(
  'ropeBackward',
  -1,
  rotatedBack(() => rope),
);

/**
 * Rotates the first `heads` heads of each row by its position's angles (Su et al. 2021): x [..., tokens, width], table
 * [positions, headSize / 2, 2] of cosines and sines, and where tokens are not at positions 0, 1, … u32 [..., tokens] of positions; one past
 * the table counts as its last.
 */
export const rope = rotation(
  'rope',
  1,
  rotatedBack(() => ropeBackward),
);
