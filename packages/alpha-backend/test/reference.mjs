// The model of `model.mjs` in float64, by plain loops over its equations: no tape, no kernels, nothing of the backend.

/** @param {ArrayLike<number>} x rows of `columns`; @param {ArrayLike<number>} w [outputs, columns]. @returns x Wᵀ */
function linear(x, columns, w) {
  const rows = x.length / columns;
  const outputs = w.length / columns;
  const y = new Float64Array(rows * outputs);
  for (let r = 0; r < rows; r++) {
    for (let o = 0; o < outputs; o++) {
      let sum = 0;
      for (let c = 0; c < columns; c++) sum += x[r * columns + c] * w[o * columns + c];
      y[r * outputs + o] = sum;
    }
  }
  return y;
}

function layerNorm(x, { weight, bias }) {
  const columns = weight.length;
  const y = new Float64Array(x.length);
  for (let first = 0; first < x.length; first += columns) {
    const row = x.subarray(first, first + columns);
    const mean = row.reduce((sum, v) => sum + v, 0) / columns;
    const variance = row.reduce((sum, v) => sum + (v - mean) ** 2, 0) / columns;
    for (let c = 0; c < columns; c++) y[first + c] = ((row[c] - mean) / Math.sqrt(variance + 1e-5)) * weight[c] + bias[c];
  }
  return y;
}

/**
 * Causal attention with scores capped at ±cap.
 * @param {(head: number, token: number) => number} input where the queries, keys and values of a token of a head begin
 * @param {(head: number, token: number) => number} output where its result goes
 */
function attention([q, k, v], { heads, tokens, size, cap, input, output }) {
  const y = new Float64Array(q.length);
  for (let h = 0; h < heads; h++) {
    for (let i = 0; i < tokens; i++) {
      const powers = new Float64Array(i + 1);
      let total = 0;
      for (let j = 0; j <= i; j++) {
        let score = 0;
        for (let e = 0; e < size; e++) score += q[input(h, i) + e] * k[input(h, j) + e];
        powers[j] = Math.exp(cap * Math.tanh(score / Math.sqrt(size) / cap));
        total += powers[j];
      }
      for (let j = 0; j <= i; j++) for (let e = 0; e < size; e++) y[output(h, i) + e] += (powers[j] / total) * v[input(h, j) + e];
    }
  }
  return y;
}

/**
 * The mean cross-entropy of a batch.
 * @param {Omit<ReturnType<typeof import('./model.mjs').createModel>, 'parameters' | 'orders'>} p the parameters as arrays instead of variables
 * @param {{ layers: number, width: number, heads: number, block: number, cap?: number, swapHeads?: boolean }} c
 * @param {ArrayLike<number>} ids sequences of `block` tokens @param {ArrayLike<number>} targets
 */
export function referenceLoss(p, c, ids, targets) {
  const { width, heads, block: tokens, cap = 30, swapHeads = true } = c;
  const size = width / heads;
  const rows = ids.length;
  const add = (x, y) => x.map((value, i) => value + y[i]);
  const own = (h, t) => ((Math.floor(h / heads) * tokens + t) * heads + (h % heads)) * size;
  // Rows reshaped to [batch · heads, tokens, size] as they lie are not those of a head.
  const asTheyLie = (h, t) => (h * tokens + t) * size;
  let x = Float64Array.from({ length: rows * width }, (_, i) => {
    const r = Math.floor(i / width);
    return p.tokens[ids[r] * width + (i % width)] + p.positions[(r % tokens) * width + (i % width)];
  });
  for (const layer of p.layers) {
    const qkv = linear(layerNorm(x, layer.first), width, layer.qkv);
    const parts = [0, 1, 2].map((n) => Float64Array.from(x, (_, i) => qkv[(Math.floor(i / width) * 3 + n) * width + (i % width)]));
    const input = swapHeads ? own : asTheyLie;
    const attended = attention(parts, { heads: (rows / tokens) * heads, tokens, size, cap, input, output: own });
    x = add(x, linear(attended, width, layer.out));
    const y = layerNorm(x, layer.second);
    const up = linear(y, width, layer.up);
    const gated = linear(y, width, layer.gate).map((g, i) => (g / (1 + Math.exp(-g))) * up[i]);
    x = add(x, linear(gated, layer.down.length / width, layer.down));
  }
  const logits = linear(layerNorm(x, p.last), width, p.head);
  const columns = logits.length / rows;
  let loss = 0;
  for (let r = 0; r < rows; r++) {
    let total = 0;
    for (let i = 0; i < columns; i++) total += Math.exp(logits[r * columns + i]);
    loss += Math.log(total) - logits[r * columns + targets[r]];
  }
  return loss / rows;
}
