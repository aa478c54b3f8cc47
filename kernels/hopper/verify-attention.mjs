// Tests attention kernels in PTX against float64 before their first use, as verify-products.mjs does for products: two batches of two heads,
// tokens that do not fill blocks and tiles, rows with gaps, and poison around everything.

import { pack, pushConstants } from '../base.mjs';
import { generator, matrices } from './verify-products.mjs';
import { attentionSizes } from './attention.mjs';

/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('./attention.mjs').AttentionForm} AttentionForm */
/** @typedef {ReturnType<typeof import('./verify-products.mjs').matrix>} Matrix */

const [BATCH, HEADS] = [2, 2];
/** Negative, since the kernels then flip signs. */
const SCALE = -0.25;

/**
 * Computes one head in float64, with rows of `d` elements. Beside each result stands the sum of the magnitudes of its rounded terms, which bounds
 * its error.
 * @param {Record<'q' | 'k' | 'v' | 'dO', Float64Array>} head @param {number} tokens @param {number} d @param {boolean} causal
 * @param {boolean} backward whether gradients are wanted
 */
function exact({ q, k, v, dO }, tokens, d, causal, backward) {
  const make = () => ({ value: new Float64Array(tokens * d), size: new Float64Array(tokens * d) });
  const [out, dQ, dK, dV] = [make(), make(), make(), make()];
  const [lse, delta] = [new Float64Array(tokens), new Float64Array(tokens)];
  /** to[i] += a · x[j] @param {ReturnType<make>} to @param {number} i @param {number} a @param {Float64Array} x @param {number} j */
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
    const scores = Float64Array.from({ length: causal ? i + 1 : tokens }, (_, j) => SCALE * dot(q, i, k, j));
    lse[i] = Math.log(scores.reduce((sum, s) => sum + Math.exp(s), 0));
    const p = scores.map((s) => Math.exp(s - lse[i]));
    p.forEach((x, j) => add(out, i, x, v, j));
    if (!backward) continue;
    delta[i] = dot(dO, i, out.value, i);
    p.forEach((x, j) => {
      const dS = SCALE * x * (dot(dO, i, v, j) - delta[i]);
      add(dV, j, x, dO, i);
      add(dQ, i, dS, k, j);
      add(dK, j, dS, q, i);
    });
  }
  return { out, dQ, dK, dV, lse, delta };
}

/**
 * Runs kernels on a small problem. Throws what the device throws: ERR_HELIOS_INVALID_BATCH while a graph is recorded.
 * @param {object} how
 * @param {KernelContext} how.context
 * @param {{ tiling: import('./attention.mjs').AttentionTiling, form: AttentionForm }[]} how.plan the kernels
 * @param {(problem: { batch: number, heads: number, tokens: number }, tensors: Record<string, import('../base.mjs').Binding>, push: Uint8Array) => import('../base.mjs').Dispatch[]} how.record
 * @returns {string | undefined} what is wrong with the result, or undefined
 */
export function verifyAttention({ context: { vk }, plan, record }) {
  const { pass, type, headSize: d, causal, even } = plan[0].form;
  // With this many tokens the last of three blocks has warpgroups without rows.
  const tokens = 2 * Math.max(...plan.map(({ tiling, form }) => attentionSizes(tiling, form).rows)) + (even ? 40 : 41);
  const [rows, width] = [BATCH * tokens, HEADS * d];
  const backward = pass !== 'forward';
  const next = generator(1);
  const { made, make } = matrices();
  try {
    const qkv = make(vk, rows, 3 * width, type, next);
    const dO = make(vk, rows, width, type, next);
    const wants = Array.from({ length: BATCH * HEADS }, (_, i) => {
      const [z, h] = [Math.floor(i / HEADS), i % HEADS];
      const pick = (/** @type {Matrix} */ from, /** @type {number} */ columns, /** @type {number} */ first) =>
        Float64Array.from(
          { length: tokens * d },
          (_, x) => from.values[(z * tokens + Math.floor(x / d)) * columns + first + h * d + (x % d)],
        );
      const [q, k, v] = [0, 1, 2].map((s) => pick(qkv, 3 * width, s * width));
      return exact({ q, k, v, dO: pick(dO, width, 0) }, tokens, d, causal, backward);
    });
    const stats = (/** @type {'lse' | 'delta'} */ name) => {
      let at = 0;
      return make(vk, BATCH * HEADS, tokens, 'f32', () => wants[Math.floor(at / tokens)][name][at++ % tokens], false);
    };
    const lse = backward ? stats('lse') : make(vk, BATCH * HEADS, tokens, 'f32', undefined, false);
    const delta = backward ? stats('delta') : undefined;
    const out = backward ? undefined : make(vk, rows, width, type, undefined);
    const grad = backward ? make(vk, rows, 3 * width, type, undefined) : undefined;
    const at = (/** @type {Matrix | undefined} */ x, part = 0) => (x ? x.tensor.offset + part * width : 0);
    const push = pushConstants(
      [
        ...[tokens, HEADS, at(qkv), at(qkv, 1), at(qkv, 2), qkv.ld, tokens * qkv.ld],
        ...[at(out), at(dO), dO.ld, tokens * dO.ld, at(lse), at(delta)],
        ...[at(grad), at(grad, 1), at(grad, 2), grad?.ld ?? 0, tokens * (grad?.ld ?? 0)],
      ],
      [SCALE, 0],
    );
    const bound = { q: qkv, k: qkv, v: qkv, dO, lse, ...(backward ? { delta, dQ: grad, dK: grad, dV: grad } : { out }) };
    const tensors = Object.fromEntries(Object.entries(bound).map(([name, x]) => [name, /** @type {Matrix} */ (x).tensor.buffer]));
    const { packed, count } = pack(record({ batch: BATCH, heads: HEADS, tokens }, tensors, push));
    const written = /** @type {Matrix[]} */ ([grad, out, backward ? undefined : lse].filter(Boolean));
    // While a graph is recorded this read throws, before the graph contains any of this.
    written[0].read();
    for (const { upload } of made) upload();
    vk.batchExecuteAll(packed, count);
    for (const one of written) if (!one.read().whole) return 'its test found memory written outside of its results';
    const unit = type === 'bf16' ? 2 ** -8 : 2 ** -11;
    const results = /** @type {const} */ ([
      ['O', 'out', out, 0],
      ['dQ', 'dQ', grad, 0],
      ['dK', 'dK', grad, 1],
      ['dV', 'dV', grad, 2],
    ]);
    for (const [name, which, where, part] of results) {
      if (!where) continue;
      const { at: read } = where.read();
      for (let i = 0; i < wants.length; i++) {
        const { value, size } = wants[i][which];
        for (let x = 0; x < value.length; x++) {
          const [row, column] = [Math.floor(i / HEADS) * tokens + Math.floor(x / d), part * width + (i % HEADS) * d + (x % d)];
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
    for (const { destroy } of made) destroy();
  }
}
