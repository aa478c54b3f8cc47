// Attention of one head in float64.

/**
 * Reference in float64 on one head: rows are token-major.
 * @param {{ q: Float64Array, k: Float64Array, v: Float64Array, tokens: number, d: number, scale: number, causal: boolean, cap?: number,
 *   dO?: Float64Array, dead?: readonly number[], keys?: number, firstKey?: ArrayLike<number> }} o `dead`: tokens whose scores are all -∞:
 *   their result is 0, without a gradient. `keys`: their number, `tokens` when left out; the last query is aligned with the last key.
 *   `firstKey`: the first key that each query sees
 */
export function reference({ q, k, v, tokens: T, d, scale, causal, cap = 0, dO, dead = [], keys = T, firstKey }) {
  const out = new Float64Array(T * d);
  const lse = new Float64Array(T);
  const dq = new Float64Array(T * d);
  const dk = new Float64Array(keys * d);
  const dv = new Float64Array(keys * d);
  for (let i = 0; i < T; i++) {
    const first = firstKey?.[i] ?? 0;
    const end = causal ? i + 1 + keys - T : keys;
    if (dead.includes(i) || first >= end) {
      lse[i] = -Infinity;
      continue;
    }
    const s = new Float64Array(end).fill(-Infinity, 0, first).fill(0, first);
    for (let j = first; j < end; j++) for (let e = 0; e < d; e++) s[j] += scale * q[i * d + e] * k[j * d + e];
    if (cap > 0) for (let j = first; j < end; j++) s[j] = cap * Math.tanh(s[j] / cap);
    const top = s.reduce((a, b) => Math.max(a, b), -Infinity);
    let sum = 0;
    for (let j = first; j < end; j++) sum += Math.exp(s[j] - top);
    lse[i] = top + Math.log(sum);
    const p = s.map((x) => Math.exp(x - lse[i]));
    for (let j = first; j < end; j++) for (let e = 0; e < d; e++) out[i * d + e] += p[j] * v[j * d + e];
    if (!dO) continue;
    let delta = 0;
    for (let e = 0; e < d; e++) delta += dO[i * d + e] * out[i * d + e];
    for (let j = first; j < end; j++) {
      let dp = 0;
      for (let e = 0; e < d; e++) dp += dO[i * d + e] * v[j * d + e];
      const ds = scale * p[j] * (dp - delta) * (cap > 0 ? 1 - (s[j] / cap) ** 2 : 1);
      for (let e = 0; e < d; e++) {
        dq[i * d + e] += ds * k[j * d + e];
        dk[j * d + e] += ds * q[i * d + e];
        dv[j * d + e] += p[j] * dO[i * d + e];
      }
    }
  }
  return { out, lse, dq, dk, dv };
}

/**
 * Makes all scores of these tokens' queries overflow to -∞ if the scale is positive: their first element is huge and that of all keys
 * is negative. The other queries' first element is 0, so their scores do not change.
 * @param {Float32Array} qkv rows of queries, keys and values, heads side by side
 * @param {{ rows: number, row: number, heads: number, d: number, offset?: number, tokens: number }} sizes `row`: elements from one to the next
 * @param {readonly number[]} dead tokens
 * @param {'f32' | 'f16' | 'bf16'} precision of products: halves are multiplied as they are, f32 queries by the scale before
 */
export function overflow(qkv, { rows, row, heads, d, offset = 0, tokens }, dead, precision) {
  for (let i = 0; i < rows; i++) {
    for (let head = 0; head < heads; head++) {
      const at = offset + i * row + head * d;
      qkv[at] = dead.includes(i % tokens) ? 3e38 : 0;
      qkv[at + heads * d] = precision === 'f32' ? -32 : -2;
    }
  }
}

/**
 * Log-sum-exps to compare, with those of `dead` tokens (-∞ or very low numbers) as 0.
 * @param {ArrayLike<number>} lse of one head @param {readonly number[]} dead
 */
export const finiteSums = (lse, dead) => Float64Array.from(lse, (x, t) => (dead.includes(t) && x < -1e28 ? 0 : x));

/** Rows of one head out of a strided tensor. */
export function rowsOf(
  /** @type {ArrayLike<number>} */ x,
  /** @type {number} */ offset,
  /** @type {number} */ row,
  /** @type {number} */ T,
  /** @type {number} */ d,
) {
  const y = new Float64Array(T * d);
  for (let t = 0; t < T; t++) for (let e = 0; e < d; e++) y[t * d + e] = x[offset + t * row + e];
  return y;
}
