// Attention by `kernels`, forward and backward, in poisoned buffers against float64; for the stand-in of device.mjs and for a GPU.

import assert from 'node:assert/strict';
import { finiteSums, overflow, reference, rowsOf } from '../lib/attention.mjs';
import { Case } from '../lib/kernel-check.mjs';
import { random, relativeError } from '../lib/tensors.mjs';

/**
 * @typedef {object} Problem
 * @property {number} tokens
 * @property {number} [heads] 1 when left out, as `batch`
 * @property {number} [kvHeads] `heads` when left out
 * @property {number} [batch]
 * @property {64 | 128} [headSize]
 * @property {'bf16' | 'f16'} [type]
 * @property {boolean} [causal]
 * @property {number} [scale]
 * @property {number} [size] of the largest element
 * @property {boolean} [split] whether Q, K and V, and their gradients, are tensors of their own
 * @property {number} [pad] elements of poison behind each row
 * @property {number} [window] keys that a query sees at most
 * @property {number} [padding] tokens at the start that no query sees, and that see nothing; with `documents`
 * @property {number[]} [documents] tokens that begin a document, which are moved by the number of the batch
 * @property {number[]} [dead] tokens of whose queries all scores are -∞; not with `split`
 * @property {any} [plan]
 * @property {any} [planBackward] as `plan` when left out
 */

/**
 * Runs a problem twice and compares; returns its dispatches.
 * @param {any} vk @param {any} kernels @param {Problem} problem
 * @param {(test: Case, dispatches: any[]) => void} [run] how it is run
 */
export function checkAttention(vk, kernels, problem, run = (test, dispatches) => test.run(dispatches)) {
  const { tokens, heads = 1, batch = 1, headSize = 64, type = 'bf16', causal = true, scale, size = 1, split, pad = 8, dead = [] } = problem;
  const { kvHeads = heads, window, documents, padding = 0, plan, planBackward = plan } = problem;
  const [rows, width, kvWidth] = [batch * tokens, heads * headSize, kvHeads * headSize];
  const label = JSON.stringify(problem);
  const test = new Case({ vk });
  try {
    /** Rows in memory, NaN behind each. @param {number} columns @param {number} [most] size of their elements, poison when left out */
    const spaced = (columns, most) => {
      const all = new Float32Array(rows * (columns + pad)).fill(NaN);
      if (most === undefined) return all;
      const data = random(rows * columns).map((x) => x * most);
      for (let i = 0; i < rows; i++) all.set(data.subarray(i * columns, (i + 1) * columns), i * (columns + pad));
      return all;
    };
    const widths = split ? [width, kvWidth, kvWidth] : [width + 2 * kvWidth];
    const row = widths[0] + pad;
    const rowKv = split ? kvWidth + pad : row;
    const inputs = widths.map((columns) => {
      const all = spaced(columns, size);
      if (dead.length) overflow(all, { rows, row, heads, d: headSize, tokens }, dead, type);
      return test.input(all, type);
    });
    const gradients = widths.map((columns) => test.inout(spaced(columns), type));
    const rowOut = width + 2 * pad;
    const outRows = new Float32Array(rows * rowOut).fill(NaN);
    const out = test.inout(outRows, type);
    const dOutRows = outRows.slice();
    const data = random(rows * width);
    for (let i = 0; i < rows; i++) dOutRows.set(data.subarray(i * width, (i + 1) * width), i * rowOut);
    const dOut = test.input(dOutRows, type);
    /** The first key of a query. */
    const firstKey = (/** @type {number} */ z, /** @type {number} */ t) =>
      Math.max(padding, window ? t + 1 - window : 0, ...(documents ?? []).map((start) => start + z).filter((start) => start <= t));
    const rowsOfDocuments = (/** @type {(z: number, t: number) => number} */ of) =>
      test.input(
        Uint32Array.from({ length: rows }, (_, i) => of(Math.floor(i / tokens), i % tokens)),
        'u32',
      ).tensor;
    const firsts = (/** @type {number} */ z) => Array.from({ length: tokens }, (_, t) => firstKey(z, t));
    const limits = documents && {
      firstKey: rowsOfDocuments(firstKey),
      lastQuery: rowsOfDocuments((z, t) => firsts(z).findLastIndex((first) => first <= t)),
    };
    const logSumExp = test.output(batch * heads * tokens);
    const delta = test.output(batch * heads * tokens);
    const named = (/** @type {string[]} */ names, /** @type {any[]} */ tensors) =>
      Object.fromEntries(tensors.map(({ tensor }, i) => [names[i], tensor]));
    const args = {
      ...named(split ? ['q', 'k', 'v'] : ['qkv'], inputs),
      ...{
        out: out.tensor,
        logSumExp: logSumExp.tensor,
        batch,
        tokens,
        heads,
        kvHeads,
        headSize,
        type,
        causal,
        scale,
        window,
        ...limits,
        rowQ: row,
        rowKv,
        rowOut,
        plan,
      },
    };
    const dispatches = [
      kernels.attentionForward(args),
      ...kernels.attentionBackward({
        ...args,
        ...named(split ? ['dQ', 'dK', 'dV'] : ['dQkv'], gradients),
        ...{ dOut: dOut.tensor, delta: delta.tensor, rowGradQ: row, rowGradKv: rowKv, plan: planBackward },
      }),
    ];
    run(test, dispatches);

    const [gotOut, gotLse, gotGradients] = [out.read(), logSumExp.read(), gradients.map((x) => x.read())];
    // P and dS are rounded, and the results: by norm, each less than a rounding's largest error.
    const tolerance = type === 'bf16' ? 2 ** -8 : 2 ** -11;
    /** Tokens whose queries see nothing. */
    const hidden = padding ? Array.from({ length: padding }, (_, t) => t) : dead;
    const stored = inputs.map(({ values }) => values);
    const compare = (/** @type {string} */ where, /** @type {[string, ArrayLike<number>, Float64Array, number, number][]} */ pairs) => {
      for (const [name, got, wanted, allowed, added] of pairs) {
        const error = relativeError(got, wanted, added);
        assert.ok(error <= allowed * Math.max(1, size), `${name} of ${where} is off by ${error}: ${label}`);
      }
    };
    for (let z = 0; z < batch; z++) {
      /** Gradients of a head of keys, summed over the heads of queries that share it. */
      let [dK, dV] = [new Float64Array(0), new Float64Array(0)];
      for (let head = 0; head < heads; head++) {
        const sharing = heads / kvHeads;
        const kvHead = Math.floor(head / sharing);
        const pick = (/** @type {ArrayLike<number>[]} */ tensors, /** @type {number} */ i) => {
          const ld = i ? rowKv : row;
          const column = (i ? kvHead : head) * headSize + (split ? 0 : [0, width, width + kvWidth][i]);
          return rowsOf(tensors[split ? i : 0], z * tokens * ld + column, ld, tokens, headSize);
        };
        const ofOut = (/** @type {ArrayLike<number>} */ x) => rowsOf(x, z * tokens * rowOut + head * headSize, rowOut, tokens, headSize);
        const [q, k, v] = [0, 1, 2].map((i) => pick(stored, i));
        const dO = ofOut(dOut.values);
        const want = reference({
          q,
          k,
          v,
          tokens,
          d: headSize,
          scale: scale ?? 1 / Math.sqrt(headSize),
          causal,
          dO,
          dead: hidden,
          firstKey: firsts(z),
        });
        const stats = (z * heads + head) * tokens;
        // Tokens are added to the sizes of what may be near 0 throughout.
        compare(`batch ${z}, head ${head}`, [
          ['out', ofOut(gotOut), want.out, tolerance, 0],
          ['lse', finiteSums(gotLse.subarray(stats, stats + tokens), hidden), finiteSums(want.lse, hidden), 2e-6, tokens],
          ['dQ', pick(gotGradients, 0), want.dq, tolerance, 1e-3 * tokens],
        ]);
        if (head % sharing === 0) [dK, dV] = [want.dk, want.dv];
        else
          for (const [sum, more] of [
            [dK, want.dk],
            [dV, want.dv],
          ])
            more.forEach((x, i) => (sum[i] += x));
        if (head % sharing === sharing - 1)
          compare(`batch ${z}, head ${kvHead} of keys`, [
            ['dK', pick(gotGradients, 1), dK, tolerance, 1e-3 * tokens],
            ['dV', pick(gotGradients, 2), dV, tolerance, 0],
          ]);
      }
    }
    const gaps = (/** @type {string} */ name, /** @type {Float64Array} */ got, /** @type {number} */ columns, /** @type {number} */ ld) => {
      for (let i = 0; i < rows; i++)
        for (let j = columns; j < ld; j++)
          assert.ok(Number.isNaN(got[i * ld + j]), `${name}: the gap behind row ${i} was written: ${label}`);
    };
    gaps('O', gotOut, width, rowOut);
    gotGradients.forEach((got, i) => gaps('a gradient', got, widths[i], widths[i] + pad));
    return dispatches;
  } finally {
    test.destroy();
  }
}
