/**
 * The model's forward pass, backward pass and optimizer step in float64: the reference that the device's results are compared with.
 * It is written for reading, and tests check it against finite differences.
 *
 * Tensors are row-major Float64Arrays of M = batch · block rows. Backward functions add to gradients, as the device does.
 */

/** @typedef {Record<string, Float64Array>} State64 arrays by the names of `Decoder`'s parameters */

/** Whether a parameter is the weight of a norm, which does not decay. @param {string} name */
export const isNorm = (name) => /norm\.weight$/i.test(name);

/**
 * y[m, n] = sum over k of x[m, k] w[n, k]
 * @param {Float64Array} x @param {Float64Array} w @param {number} M @param {number} N @param {number} K
 */
function linear(x, w, M, N, K) {
  const y = new Float64Array(M * N);
  for (let m = 0; m < M; m++) {
    for (let n = 0; n < N; n++) {
      let sum = 0;
      for (let k = 0; k < K; k++) sum += x[m * K + k] * w[n * K + k];
      y[m * N + n] = sum;
    }
  }
  return y;
}

/**
 * Gradients of {@link linear}: returns dx = dy · w, adds dyᵀ · x to dw.
 * @param {Float64Array} dy @param {Float64Array} x @param {Float64Array} w @param {Float64Array} dw
 * @param {number} M @param {number} N @param {number} K
 */
function linearBackward(dy, x, w, dw, M, N, K) {
  const dx = new Float64Array(M * K);
  for (let m = 0; m < M; m++) {
    for (let n = 0; n < N; n++) {
      const d = dy[m * N + n];
      for (let k = 0; k < K; k++) {
        dx[m * K + k] += d * w[n * K + k];
        dw[n * K + k] += d * x[m * K + k];
      }
    }
  }
  return dx;
}

/**
 * RMSNorm (Zhang and Sennrich, 2019): y = w · x / sqrt(mean(x²) + epsilon).
 * @param {Float64Array} x @param {Float64Array} w @param {number} M @param {number} C @param {number} epsilon
 */
function rmsNorm(x, w, M, C, epsilon) {
  const y = new Float64Array(M * C);
  const inverse = new Float64Array(M);
  for (let m = 0; m < M; m++) {
    let sum = 0;
    for (let c = 0; c < C; c++) sum += x[m * C + c] ** 2;
    inverse[m] = 1 / Math.sqrt(sum / C + epsilon);
    for (let c = 0; c < C; c++) y[m * C + c] = w[c] * x[m * C + c] * inverse[m];
  }
  return { y, inverse };
}

/**
 * Gradients of {@link rmsNorm}: adds to dx and dw.
 * @param {Float64Array} dy @param {Float64Array} x @param {Float64Array} w @param {Float64Array} inverse
 * @param {Float64Array} dx @param {Float64Array} dw @param {number} M @param {number} C
 */
function rmsNormBackward(dy, x, w, inverse, dx, dw, M, C) {
  for (let m = 0; m < M; m++) {
    const r = inverse[m];
    let dot = 0;
    for (let c = 0; c < C; c++) {
      dot += dy[m * C + c] * w[c] * x[m * C + c];
      dw[c] += dy[m * C + c] * x[m * C + c] * r;
    }
    for (let c = 0; c < C; c++) dx[m * C + c] += r * (dy[m * C + c] * w[c] - (x[m * C + c] * r * r * dot) / C);
  }
}

/**
 * Causal attention over rows [q | k | v] of `qkv`, heads side by side; keeps the probabilities.
 * @param {Float64Array} qkv [batch · T, 3C] @param {number} batch @param {number} T @param {number} heads @param {number} C
 */
function attention(qkv, batch, T, heads, C) {
  const size = C / heads;
  const scale = 1 / Math.sqrt(size);
  const out = new Float64Array(batch * T * C);
  const probabilities = new Float64Array(batch * heads * T * T);
  for (let b = 0; b < batch; b++) {
    for (let h = 0; h < heads; h++) {
      for (let i = 0; i < T; i++) {
        const q = (b * T + i) * 3 * C + h * size;
        const p = ((b * heads + h) * T + i) * T;
        let largest = -Infinity;
        for (let j = 0; j <= i; j++) {
          const k = (b * T + j) * 3 * C + C + h * size;
          let dot = 0;
          for (let c = 0; c < size; c++) dot += qkv[q + c] * qkv[k + c];
          probabilities[p + j] = dot * scale;
          largest = Math.max(largest, dot * scale);
        }
        let sum = 0;
        for (let j = 0; j <= i; j++) sum += probabilities[p + j] = Math.exp(probabilities[p + j] - largest);
        const o = (b * T + i) * C + h * size;
        for (let j = 0; j <= i; j++) {
          probabilities[p + j] /= sum;
          const v = (b * T + j) * 3 * C + 2 * C + h * size;
          for (let c = 0; c < size; c++) out[o + c] += probabilities[p + j] * qkv[v + c];
        }
      }
    }
  }
  return { out, probabilities };
}

/**
 * Gradient of {@link attention} with respect to `qkv`.
 * @param {Float64Array} dOut @param {Float64Array} qkv @param {Float64Array} probabilities
 * @param {number} batch @param {number} T @param {number} heads @param {number} C
 */
function attentionBackward(dOut, qkv, probabilities, batch, T, heads, C) {
  const size = C / heads;
  const scale = 1 / Math.sqrt(size);
  const d = new Float64Array(qkv.length);
  const dP = new Float64Array(T);
  for (let b = 0; b < batch; b++) {
    for (let h = 0; h < heads; h++) {
      for (let i = 0; i < T; i++) {
        const q = (b * T + i) * 3 * C + h * size;
        const o = (b * T + i) * C + h * size;
        const p = ((b * heads + h) * T + i) * T;
        let mean = 0;
        for (let j = 0; j <= i; j++) {
          const v = (b * T + j) * 3 * C + 2 * C + h * size;
          dP[j] = 0;
          for (let c = 0; c < size; c++) {
            dP[j] += dOut[o + c] * qkv[v + c];
            d[v + c] += probabilities[p + j] * dOut[o + c];
          }
          mean += probabilities[p + j] * dP[j];
        }
        for (let j = 0; j <= i; j++) {
          const k = (b * T + j) * 3 * C + C + h * size;
          const dScore = probabilities[p + j] * (dP[j] - mean) * scale;
          for (let c = 0; c < size; c++) {
            d[q + c] += dScore * qkv[k + c];
            d[k + c] += dScore * qkv[q + c];
          }
        }
      }
    }
  }
  return d;
}

/**
 * SwiGLU (Shazeer, 2020) of rows [gate | up]: silu(gate) · up.
 * @param {Float64Array} x @param {number} M @param {number} H
 */
function swiGlu(x, M, H) {
  const y = new Float64Array(M * H);
  for (let m = 0; m < M; m++) {
    for (let h = 0; h < H; h++) {
      const gate = x[m * 2 * H + h];
      y[m * H + h] = (gate / (1 + Math.exp(-gate))) * x[m * 2 * H + H + h];
    }
  }
  return y;
}

/** @param {Float64Array} dy @param {Float64Array} x @param {number} M @param {number} H */
function swiGluBackward(dy, x, M, H) {
  const dx = new Float64Array(M * 2 * H);
  for (let m = 0; m < M; m++) {
    for (let h = 0; h < H; h++) {
      const gate = x[m * 2 * H + h];
      const sigmoid = 1 / (1 + Math.exp(-gate));
      const d = dy[m * H + h];
      dx[m * 2 * H + h] = d * x[m * 2 * H + H + h] * sigmoid * (1 + gate * (1 - sigmoid));
      dx[m * 2 * H + H + h] = d * gate * sigmoid;
    }
  }
  return dx;
}

/**
 * One micro-step: mean cross-entropy in nats, and its gradient times `scale` added to `gradient`.
 * @param {import('../../packages/lm/src/config.mjs').ModelConfig} model of the family helios-gpt
 * @param {Record<string, ArrayLike<number>>} weights by name
 * @param {ArrayLike<number>} ids [batch, block]
 * @param {ArrayLike<number>} targets [batch, block]
 * @param {State64} [gradient] by name; left out for the loss alone
 * @param {number} [scale] for accumulation over n micro-steps, 1 / n
 * @param {number} [T] tokens of a sequence, the model's context when left out
 * @returns {{loss: number, logits: Float64Array}}
 */
export function forwardBackward(model, weights, ids, targets, gradient, scale = 1, T = model.context) {
  const { layers, width: C, heads, hidden: H, vocabSize: V, eps } = model;
  const M = ids.length;
  const batch = M / T;
  const w = (/** @type {string} */ name) => Float64Array.from(weights[name]);
  const g = (/** @type {string} */ name) => /** @type {State64} */ (gradient)[name];

  const tokenEmbedding = w('embedding.weight');
  const positionEmbedding = w('positions.weight');
  let x = new Float64Array(M * C);
  for (let m = 0; m < M; m++) {
    for (let c = 0; c < C; c++) x[m * C + c] = tokenEmbedding[ids[m] * C + c] + positionEmbedding[(m % T) * C + c];
  }
  const saved = [];
  for (let i = 0; i < layers; i++) {
    const name = `layers.${i}`;
    const x1 = x;
    const norm1 = rmsNorm(x1, w(`${name}.attentionNorm.weight`), M, C, eps);
    const qkv = linear(norm1.y, w(`${name}.attention.qkv.weight`), M, 3 * C, C);
    const att = attention(qkv, batch, T, heads, C);
    const x2 = linear(att.out, w(`${name}.attention.out.weight`), M, C, C);
    for (let k = 0; k < x2.length; k++) x2[k] += x1[k];
    const norm2 = rmsNorm(x2, w(`${name}.mlpNorm.weight`), M, C, eps);
    const gateUp = linear(norm2.y, w(`${name}.mlp.up.weight`), M, 2 * H, C);
    const act = swiGlu(gateUp, M, H);
    x = linear(act, w(`${name}.mlp.down.weight`), M, C, H);
    for (let k = 0; k < x.length; k++) x[k] += x2[k];
    saved.push({ x1, norm1, qkv, att, x2, norm2, gateUp, act });
  }
  const last = rmsNorm(x, w('norm.weight'), M, C, eps);
  const head = w('head.weight');
  const logits = linear(last.y, head, M, V, C);

  let loss = 0;
  const dLogits = new Float64Array(M * V);
  for (let m = 0; m < M; m++) {
    const row = m * V;
    let largest = -Infinity;
    for (let v = 0; v < V; v++) largest = Math.max(largest, logits[row + v]);
    let sum = 0;
    for (let v = 0; v < V; v++) sum += Math.exp(logits[row + v] - largest);
    loss += (Math.log(sum) + largest - logits[row + targets[m]]) / M;
    for (let v = 0; v < V; v++) {
      dLogits[row + v] = ((Math.exp(logits[row + v] - largest) / sum - (v === targets[m] ? 1 : 0)) * scale) / M;
    }
  }
  if (!gradient) return { loss, logits };

  const dLast = linearBackward(dLogits, last.y, head, g('head.weight'), M, V, C);
  const dx = new Float64Array(M * C);
  rmsNormBackward(dLast, x, w('norm.weight'), last.inverse, dx, g('norm.weight'), M, C);
  for (let i = layers - 1; i >= 0; i--) {
    const name = `layers.${i}`;
    const { x1, norm1, qkv, att, x2, norm2, gateUp, act } = saved[i];
    const dAct = linearBackward(dx, act, w(`${name}.mlp.down.weight`), g(`${name}.mlp.down.weight`), M, C, H);
    const dGateUp = swiGluBackward(dAct, gateUp, M, H);
    const gateUpName = `${name}.mlp.up.weight`;
    const dNorm2 = linearBackward(dGateUp, norm2.y, w(gateUpName), g(gateUpName), M, 2 * H, C);
    const norm2Name = `${name}.mlpNorm.weight`;
    rmsNormBackward(dNorm2, x2, w(norm2Name), norm2.inverse, dx, g(norm2Name), M, C);
    const outName = `${name}.attention.out.weight`;
    const dAtt = linearBackward(dx, att.out, w(outName), g(outName), M, C, C);
    const dQkv = attentionBackward(dAtt, qkv, att.probabilities, batch, T, heads, C);
    const qkvName = `${name}.attention.qkv.weight`;
    const dNorm1 = linearBackward(dQkv, norm1.y, w(qkvName), g(qkvName), M, 3 * C, C);
    const norm1Name = `${name}.attentionNorm.weight`;
    rmsNormBackward(dNorm1, x1, w(norm1Name), norm1.inverse, dx, g(norm1Name), M, C);
  }
  const dToken = g('embedding.weight');
  const dPosition = g('positions.weight');
  for (let m = 0; m < M; m++) {
    for (let c = 0; c < C; c++) {
      dToken[ids[m] * C + c] += dx[m * C + c];
      dPosition[(m % T) * C + c] += dx[m * C + c];
    }
  }
  return { loss, logits };
}

/**
 * One AdamW step (Loshchilov and Hutter, 2019) after clipping to the global norm, in place.
 * @param {import('../../packages/lm/src/train/settings.mjs').Settings} settings
 * @param {{weights: State64, gradient: State64, m: State64, v: State64}} state
 * @param {number} step 0 is the first
 * @param {number} lr
 * @returns {number} the gradient's norm before clipping
 */
export function adamW({ beta1, beta2, epsilon, weightDecay, maxGradNorm: clip }, state, step, lr) {
  let sum = 0;
  for (const values of Object.values(state.gradient)) for (const d of values) sum += d * d;
  const norm = Math.sqrt(sum);
  const factor = clip > 0 && norm > clip ? clip / norm : 1;
  for (const name of Object.keys(state.weights)) {
    const [weights, gradient, m, v] = [state.weights[name], state.gradient[name], state.m[name], state.v[name]];
    const decay = !isNorm(name);
    for (let i = 0; i < weights.length; i++) {
      const d = gradient[i] * factor;
      m[i] = beta1 * m[i] + (1 - beta1) * d;
      v[i] = beta2 * v[i] + (1 - beta2) * d * d;
      const mHat = m[i] / (1 - beta1 ** (step + 1));
      const vHat = v[i] / (1 - beta2 ** (step + 1));
      weights[i] -= lr * (mHat / (Math.sqrt(vHat) + epsilon) + (decay ? weightDecay * weights[i] : 0));
    }
  }
  return norm;
}
