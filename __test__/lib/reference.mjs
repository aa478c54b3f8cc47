/**
 * What the kernels compute, in float64 and as direct as the formulas. Arrays are Float64Array (or anything indexed),
 * row-major and dense.
 */

/** @typedef {ArrayLike<number>} Numbers */

/** @param {number} n @param {(i: number) => number} f */
const make = (n, f) => Float64Array.from({ length: n }, (_, i) => f(i));

/** ‖a - b‖ / ‖b‖; NaN where a has one. @param {Numbers} a @param {Numbers} b */
export function relativeError(a, b) {
  if (a.length !== b.length) throw new RangeError(`lengths ${a.length} and ${b.length}`);
  let error = 0;
  let norm = 0;
  for (let i = 0; i < a.length; i++) {
    error += (a[i] - b[i]) ** 2;
    norm += b[i] ** 2;
  }
  return norm === 0 ? Math.sqrt(error) : Math.sqrt(error / norm);
}

/**
 * The gradient of Σ f(x) · dy by central differences, the step relative to the element.
 * @param {(x: Float64Array) => Numbers} f @param {Numbers} x @param {Numbers} dy
 */
export function finiteDifferences(f, x, dy) {
  const at = Float64Array.from(x);
  const value = () => {
    const y = f(at);
    let sum = 0;
    for (let i = 0; i < y.length; i++) sum += y[i] * dy[i];
    return sum;
  };
  return make(x.length, (i) => {
    const h = 1e-5 * Math.max(1, Math.abs(x[i]));
    at[i] = x[i] + h;
    const above = value();
    at[i] = x[i] - h;
    const below = value();
    at[i] = x[i];
    return (above - below) / (2 * h);
  });
}

const sigmoid = (/** @type {number} */ x) => 1 / (1 + Math.exp(-x));
const GELU = Math.sqrt(2 / Math.PI);

/** @type {Record<string, (x: number) => number>} */
export const activations = {
  identity: (x) => x,
  relu: (x) => Math.max(0, x),
  silu: (x) => x * sigmoid(x),
  gelu: (x) => 0.5 * x * (1 + Math.tanh(GELU * (x + 0.044715 * x ** 3))),
  tanh: Math.tanh,
  sigmoid,
};

/** @type {Record<string, (x: number) => number>} */
export const activationSlopes = {
  identity: () => 1,
  relu: (x) => (x > 0 ? 1 : 0),
  silu: (x) => sigmoid(x) * (1 + x * (1 - sigmoid(x))),
  gelu: (x) => {
    const t = Math.tanh(GELU * (x + 0.044715 * x ** 3));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * GELU * (1 + 3 * 0.044715 * x * x);
  },
  tanh: (x) => 1 - Math.tanh(x) ** 2,
  sigmoid: (x) => sigmoid(x) * (1 - sigmoid(x)),
};

/**
 * LayerNorm (`bias` given) or RMSNorm.
 * @param {{ x: Numbers, weight: Numbers, bias?: Numbers, rows: number, columns: number, eps: number }} args
 */
export function normForward({ x, weight, bias, rows, columns, eps }) {
  const mean = new Float64Array(rows);
  const scale = new Float64Array(rows);
  const y = new Float64Array(rows * columns);
  for (let r = 0; r < rows; r++) {
    let sum = 0;
    for (let c = 0; c < columns; c++) sum += x[r * columns + c];
    mean[r] = bias ? sum / columns : 0;
    let squares = 0;
    for (let c = 0; c < columns; c++) squares += (x[r * columns + c] - mean[r]) ** 2;
    scale[r] = 1 / Math.sqrt(squares / columns + eps);
    for (let c = 0; c < columns; c++) {
      y[r * columns + c] = (x[r * columns + c] - mean[r]) * scale[r] * weight[c] + (bias ? bias[c] : 0);
    }
  }
  return { y, mean, scale };
}

/**
 * @param {{ x: Numbers, weight: Numbers, bias?: Numbers, dy: Numbers, rows: number, columns: number, eps: number }} args
 */
export function normBackward({ x, weight, bias, dy, rows, columns, eps }) {
  const { mean, scale } = normForward({ x, weight, bias, rows, columns, eps });
  const dx = new Float64Array(rows * columns);
  const dWeight = new Float64Array(columns);
  const dBias = new Float64Array(columns);
  for (let r = 0; r < rows; r++) {
    let meanG = 0;
    let meanGh = 0;
    for (let c = 0; c < columns; c++) {
      const h = (x[r * columns + c] - mean[r]) * scale[r];
      const g = dy[r * columns + c] * weight[c];
      meanG += g / columns;
      meanGh += (g * h) / columns;
      dWeight[c] += dy[r * columns + c] * h;
      dBias[c] += dy[r * columns + c];
    }
    for (let c = 0; c < columns; c++) {
      const h = (x[r * columns + c] - mean[r]) * scale[r];
      const g = dy[r * columns + c] * weight[c];
      dx[r * columns + c] = scale[r] * (g - (bias ? meanG : 0) - h * meanGh);
    }
  }
  return { dx, dWeight, dBias };
}

/** @param {Numbers} x @param {number} rows @param {number} columns @param {number} [scale] */
export function softmax(x, rows, columns, scale = 1) {
  const y = new Float64Array(rows * columns);
  for (let r = 0; r < rows; r++) {
    let most = -Infinity;
    for (let c = 0; c < columns; c++) most = Math.max(most, scale * x[r * columns + c]);
    let sum = 0;
    for (let c = 0; c < columns; c++) sum += y[r * columns + c] = Math.exp(scale * x[r * columns + c] - most);
    for (let c = 0; c < columns; c++) y[r * columns + c] /= sum;
  }
  return y;
}

/** @param {Numbers} y @param {Numbers} dy @param {number} rows @param {number} columns @param {number} [scale] */
export function softmaxBackward(y, dy, rows, columns, scale = 1) {
  const dx = new Float64Array(rows * columns);
  for (let r = 0; r < rows; r++) {
    let sum = 0;
    for (let c = 0; c < columns; c++) sum += y[r * columns + c] * dy[r * columns + c];
    for (let c = 0; c < columns; c++) {
      const i = r * columns + c;
      dx[i] = scale * y[i] * (dy[i] - sum);
    }
  }
  return dx;
}

/**
 * Losses and gradient of cross-entropy; rows whose target is not a column are left out.
 * @param {Numbers} x @param {Numbers} targets @param {number} rows @param {number} columns @param {number} scale
 */
export function crossEntropy(x, targets, rows, columns, scale) {
  const probabilities = softmax(x, rows, columns);
  const loss = make(rows, (r) => (targets[r] < columns ? -Math.log(probabilities[r * columns + targets[r]]) : 0));
  const gradient = make(rows * columns, (i) => {
    const r = Math.floor(i / columns);
    if (targets[r] >= columns) return 0;
    return scale * (probabilities[i] - (i % columns === targets[r] ? 1 : 0));
  });
  return { loss, gradient };
}

/**
 * Rotary positions on dense heads [rows, heads, headSize].
 * @param {Numbers} x
 * @param {{ rows: number, heads: number, headSize: number, positions: number, first?: number, interleaved?: boolean,
 *   base?: number, direction?: number }} args
 */
export function rope(x, { rows, heads, headSize, positions, first = 0, interleaved = false, base = 10000, direction = 1 }) {
  const y = Float64Array.from(x);
  const half = headSize / 2;
  for (let r = 0; r < rows; r++) {
    for (let h = 0; h < heads; h++) {
      for (let i = 0; i < half; i++) {
        const angle = direction * (first + (r % positions)) * base ** ((-2 * i) / headSize);
        const start = (r * heads + h) * headSize;
        const low = start + (interleaved ? 2 * i : i);
        const high = interleaved ? low + 1 : low + half;
        y[low] = x[low] * Math.cos(angle) - x[high] * Math.sin(angle);
        y[high] = x[low] * Math.sin(angle) + x[high] * Math.cos(angle);
      }
    }
  }
  return y;
}

/** Σ over rows. @param {Numbers} x @param {number} rows @param {number} columns */
export function columnSum(x, rows, columns) {
  const y = new Float64Array(columns);
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) y[c] += x[r * columns + c];
  return y;
}

/**
 * Philox 4x32-10, with BigInt products: shares no code with the shader.
 * @param {number[]} counter four words @param {number[]} key two words
 */
export function philox(counter, key) {
  let [c0, c1, c2, c3] = counter.map((word) => BigInt(word >>> 0));
  let [k0, k1] = key.map((word) => BigInt(word >>> 0));
  const low = (/** @type {bigint} */ v) => v & 0xffffffffn;
  for (let round = 0; round < 10; round++) {
    const p0 = 0xd2511f53n * c0;
    const p1 = 0xcd9e8d57n * c2;
    [c0, c1, c2, c3] = [(p1 >> 32n) ^ c1 ^ k0, low(p1), (p0 >> 32n) ^ c3 ^ k1, low(p0)];
    k0 = low(k0 + 0x9e3779b9n);
    k1 = low(k1 + 0xbb67ae85n);
  }
  return [c0, c1, c2, c3].map(Number);
}

/**
 * @param {Numbers} x
 * @param {{ p: number, seed: number[], offset: number[], stream: number }} args
 */
export function dropout(x, { p, seed, offset, stream }) {
  const threshold = Math.floor(p * 2 ** 32);
  return make(x.length, (e) => {
    const words = philox([Math.floor(e / 4), stream, ...offset], seed);
    return words[e % 4] >= threshold ? x[e] / (1 - p) : 0;
  });
}

/**
 * The learning rate of step `step` (from 1): linear warm-up, then half a cosine.
 * @param {number} step @param {{ rate: number, finalRate: number, warmup: number, total: number }} schedule
 */
export function learningRate(step, { rate, finalRate, warmup, total }) {
  if (step <= warmup) return (rate * step) / warmup;
  if (total === 0) return rate;
  const done = Math.min(1, (step - warmup) / (total - warmup));
  return finalRate + ((rate - finalRate) * (1 + Math.cos(Math.PI * done))) / 2;
}

/**
 * One AdamW step in place on float64 arrays.
 * @param {{ p: Float64Array, m: Float64Array, v: Float64Array, g: Numbers, step: number, rate: number, beta1: number,
 *   beta2: number, epsilon: number, decay: number, decayCount: number, clip: number }} args
 */
export function adamw({ p, m, v, g, step, rate, beta1, beta2, epsilon, decay, decayCount, clip }) {
  for (let i = 0; i < p.length; i++) {
    const gradient = clip * g[i];
    if (i < decayCount) p[i] -= rate * decay * p[i];
    m[i] = beta1 * m[i] + (1 - beta1) * gradient;
    v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
    const mean = m[i] / (1 - beta1 ** step);
    const variance = v[i] / (1 - beta2 ** step);
    p[i] -= (rate * mean) / (Math.sqrt(variance) + epsilon);
  }
}
