// Attention of one head in float64.

/**
 * Reference in float64 on one head: rows are token-major.
 * @param {{ q: Float64Array, k: Float64Array, v: Float64Array, tokens: number, d: number, scale: number, causal: boolean, cap?: number, dO?: Float64Array }} o
 */
export function reference({ q, k, v, tokens: T, d, scale, causal, cap = 0, dO }) {
  const out = new Float64Array(T * d);
  const lse = new Float64Array(T);
  const dq = new Float64Array(T * d);
  const dk = new Float64Array(T * d);
  const dv = new Float64Array(T * d);
  for (let i = 0; i < T; i++) {
    const end = causal ? i + 1 : T;
    const s = new Float64Array(end);
    for (let j = 0; j < end; j++) for (let e = 0; e < d; e++) s[j] += scale * q[i * d + e] * k[j * d + e];
    if (cap > 0) for (let j = 0; j < end; j++) s[j] = cap * Math.tanh(s[j] / cap);
    const top = s.reduce((a, b) => Math.max(a, b), -Infinity);
    let sum = 0;
    for (let j = 0; j < end; j++) sum += Math.exp(s[j] - top);
    lse[i] = top + Math.log(sum);
    const p = s.map((x) => Math.exp(x - lse[i]));
    for (let j = 0; j < end; j++) for (let e = 0; e < d; e++) out[i * d + e] += p[j] * v[j * d + e];
    if (!dO) continue;
    let delta = 0;
    for (let e = 0; e < d; e++) delta += dO[i * d + e] * out[i * d + e];
    for (let j = 0; j < end; j++) {
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
