// Tests attention kernels in PTX against float64 before their first use, as verify-products.mjs does for products: two batches of two heads of
// keys, each with one head of queries or two, tokens that do not fill blocks and tiles, rows with gaps, and poison around everything.

import { push } from '../attention-problem.mjs';
import { pack } from '../base.mjs';
import { generator, matrices } from './verify-products.mjs';
import { attentionSizes } from './attention.mjs';

/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('./attention.mjs').AttentionForm} AttentionForm */
/** @typedef {ReturnType<typeof import('./verify-products.mjs').matrix>} Matrix */

const [BATCH, KV_HEADS] = [2, 2];
/** Keys that a query sees at most, where there is a window, and rows of a document, where there are limits. */
const [WINDOW, DOCUMENT] = [75, 90];
/** Negative, since the kernels then flip signs. */
const SCALE = -0.25;

/** A result, and the sums of the magnitudes of its rounded terms, which bound its error. @typedef {Record<'value' | 'size', Float64Array>} Result */

/** @param {number} count @returns {Result} */
const result = (count) => ({ value: new Float64Array(count), size: new Float64Array(count) });

/**
 * Computes one head in float64, with rows of `d` elements.
 * @param {Record<'q' | 'k' | 'v' | 'dO', Float64Array>} head @param {number} tokens @param {number} d
 * @param {(query: number) => [number, number]} range the first key that a query sees, and the end of them
 * @param {Record<'dK' | 'dV', Result> | undefined} sums what the gradients of keys and values are added to; forward undefined
 */
function exact({ q, k, v, dO }, tokens, d, range, sums) {
  const [out, dQ] = [result(tokens * d), result(tokens * d)];
  const [lse, delta] = [new Float64Array(tokens), new Float64Array(tokens)];
  /** to[i] += a · x[j] @param {Result} to @param {number} i @param {number} a @param {Float64Array} x @param {number} j */
  const add = (to, i, a, x, j) => {
    for (let e = 0; e < d; e++) {
      const term = a * x[j * d + e];
      to.value[i * d + e] += term;
      to.size[i * d + e] += Math.abs(term);
    }
  };
  const dot = (/** @type {Float64Array} */ x, /** @type {number} */ i, /** @type {Float64Array} */ y, /** @type {number} */ j) => {
    let sum = 0;
    for (let e = 0; e < d; e++) sum += x[i * d + e] * y[j * d + e];
    return sum;
  };
  for (let i = 0; i < tokens; i++) {
    const [from, end] = range(i);
    const scores = Float64Array.from({ length: end - from }, (_, j) => SCALE * dot(q, i, k, from + j));
    lse[i] = Math.log(scores.reduce((sum, s) => sum + Math.exp(s), 0));
    const p = scores.map((s) => Math.exp(s - lse[i]));
    p.forEach((x, j) => add(out, i, x, v, from + j));
    if (!sums) continue;
    delta[i] = dot(dO, i, out.value, i);
    p.forEach((x, at) => {
      const j = from + at;
      const dS = SCALE * x * (dot(dO, i, v, j) - delta[i]);
      add(sums.dV, j, x, dO, i);
      add(dQ, i, dS, k, j);
      add(sums.dK, j, dS, q, i);
    });
  }
  return { out, dQ, lse, delta };
}

/**
 * Runs kernels on a small problem. Throws what the device throws: ERR_HELIOS_INVALID_BATCH while a graph is recorded.
 * @param {object} how
 * @param {KernelContext} how.context
 * @param {{ tiling: import('./attention.mjs').AttentionTiling, form: AttentionForm }[]} how.plan the kernels
 * @param {(problem: import('./attention-dispatch.mjs').Sizes, tensors: Record<string, import('../base.mjs').Binding>, push: Uint8Array) => import('../base.mjs').Dispatch[]} how.record
 * @returns {string | undefined} what is wrong with the result, or undefined
 */
export function verifyAttention({ context: { vk }, plan, record }) {
  const { pass, type, headSize: d, causal, window, limits, grouped, even } = plan[0].form;
  const heads = grouped ? 2 * KV_HEADS : KV_HEADS;
  const sharing = heads / KV_HEADS;
  // With this many tokens the last of three blocks has warpgroups without rows.
  const tokens = 2 * Math.max(...plan.map(({ tiling, form }) => attentionSizes(tiling, form).rows)) + (even ? 40 : 41);
  const [rows, width, kvWidth] = [BATCH * tokens, heads * d, KV_HEADS * d];
  /** The columns of a fused row: of Q, K, V, and their end. */
  const fused = [0, width, width + kvWidth, width + 2 * kvWidth];
  const backward = pass !== 'forward';
  // The batches' documents end at different rows.
  const firstOf = (/** @type {number} */ z, /** @type {number} */ t) => Math.max(0, t - ((t + 30 * z) % DOCUMENT));
  const firstKeys = Array.from({ length: rows }, (_, i) => firstOf(Math.floor(i / tokens), i % tokens));
  const range = (/** @type {number} */ z) => (/** @type {number} */ t) =>
    /** @type {[number, number]} */ ([
      Math.max(limits ? firstKeys[z * tokens + t] : 0, window ? t + 1 - WINDOW : 0),
      causal ? t + 1 : tokens,
    ]);
  const next = generator(1);
  const { made, make } = matrices();
  /** @type {{ upload: () => void, destroy: () => void }[]} */
  const others = [];
  try {
    const qkv = make(vk, rows, fused[3], type, next);
    const dO = make(vk, rows, width, type, next);
    const keys = Array.from({ length: BATCH * KV_HEADS }, () => ({ dK: result(tokens * d), dV: result(tokens * d) }));
    const wants = Array.from({ length: BATCH * heads }, (_, i) => {
      const [z, h] = [Math.floor(i / heads), i % heads];
      const pick = (/** @type {Matrix} */ from, /** @type {number} */ columns, /** @type {number} */ first) =>
        Float64Array.from({ length: tokens * d }, (_, x) => from.values[(z * tokens + Math.floor(x / d)) * columns + first + (x % d)]);
      const [q, k, v] = fused.slice(0, 3).map((first, s) => pick(qkv, fused[3], first + (s ? Math.floor(h / sharing) : h) * d));
      return exact({ q, k, v, dO: pick(dO, width, h * d) }, tokens, d, range(z), backward ? keys[Math.floor(i / sharing)] : undefined);
    });
    const stats = (/** @type {'lse' | 'delta'} */ name) => {
      let at = 0;
      return make(vk, BATCH * heads, tokens, 'f32', () => wants[Math.floor(at / tokens)][name][at++ % tokens], false);
    };
    const lse = backward ? stats('lse') : make(vk, BATCH * heads, tokens, 'f32', undefined, false);
    const delta = backward ? stats('delta') : undefined;
    const out = backward ? undefined : make(vk, rows, width, type, undefined);
    const grad = backward ? make(vk, rows, fused[3], type, undefined) : undefined;
    const words = (/** @type {Uint32Array} */ values) => {
      const buffer = vk.createBuffer(values.byteLength, 0);
      others.push({ upload: () => vk.uploadBuffer(buffer, values), destroy: () => vk.destroyBuffer(buffer) });
      return { buffer, offset: 0 };
    };
    const lastQueries = Uint32Array.from({ length: rows }, (_, i) => {
      const first = i - (i % tokens);
      return firstKeys.slice(first, first + tokens).findLastIndex((key) => key <= i % tokens);
    });
    const placed = (/** @type {Matrix | undefined} */ x, part = 0) => ({ buffer: 0, offset: x ? x.tensor.offset + fused[part] : 0 });
    const row = qkv.ld;
    const problem = {
      ...{ tokens, keys: tokens, heads, kvHeads: KV_HEADS, scale: SCALE, softCap: 0, window: window ? WINDOW : 0 },
      limits: limits ? { firstKey: words(Uint32Array.from(firstKeys)), lastQuery: words(lastQueries) } : undefined,
      ...{ q: placed(qkv), k: placed(qkv, 1), v: placed(qkv, 2), rowQ: row, rowKv: row, batchKv: tokens * row },
      ...{ out: placed(out), rowOut: dO.ld, lse: placed(lse) },
    };
    const rowGrad = grad?.ld ?? 0;
    const bytes = push(problem, {
      ...{ dOut: placed(dO), delta: placed(delta), dQ: placed(grad), dK: placed(grad, 1), dV: placed(grad, 2) },
      ...{ rowGradQ: rowGrad, rowGradKv: rowGrad },
    });
    const bound = { q: qkv, k: qkv, v: qkv, dO, lse, ...(backward ? { delta, dQ: grad, dK: grad, dV: grad } : { out }) };
    const tensors = Object.fromEntries(Object.entries(bound).map(([name, x]) => [name, /** @type {Matrix} */ (x).tensor.buffer]));
    const { packed, count } = pack(record({ ...problem, batch: BATCH }, tensors, bytes));
    const written = /** @type {Matrix[]} */ ([grad, out, backward ? undefined : lse].filter(Boolean));
    // While a graph is recorded this read throws, before the graph contains any of this.
    written[0].read();
    for (const { upload } of [...made, ...others]) upload();
    vk.batchExecuteAll(packed, count);
    for (const one of written) if (!one.read().whole) return 'its test found memory written outside of its results';
    const unit = type === 'bf16' ? 2 ** -8 : 2 ** -11;
    const results = /** @type {const} */ ([
      ['O', wants.map((want) => want.out), out, 0],
      ['dQ', wants.map((want) => want.dQ), grad, 0],
      ['dK', keys.map((want) => want.dK), grad, 1],
      ['dV', keys.map((want) => want.dV), grad, 2],
    ]);
    for (const [name, ofHeads, where, part] of results) {
      if (!where) continue;
      const { at: read } = where.read();
      const count = ofHeads.length / BATCH;
      for (const [i, { value, size }] of ofHeads.entries()) {
        for (let x = 0; x < value.length; x++) {
          const [row, column] = [Math.floor(i / count) * tokens + Math.floor(x / d), fused[part] + (i % count) * d + (x % d)];
          const got = read(row, column);
          // Factors and results are rounded once each; exponentials are approximate.
          if (!(Math.abs(got - value[x]) <= 1.01 * unit * (size[x] + Math.abs(value[x])) + 1e-5 * (1 + size[x])))
            return `its test found ${got} in ${name} at row ${row}, column ${column}, expected ${value[x]}`;
        }
      }
    }
    if (!backward) {
      const { at: read } = lse.read();
      for (let i = 0; i < wants.length; i++)
        for (let t = 0; t < tokens; t++)
          if (!(Math.abs(read(i, t) - wants[i].lse[t]) <= 1e-4))
            return `its test found ${read(i, t)} in the log-sum-exp of token ${t}, expected ${wants[i].lse[t]}`;
    }
    return undefined;
  } finally {
    for (const { destroy } of [...made, ...others]) destroy();
  }
}
