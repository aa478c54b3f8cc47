/**
 * What `sampleTokens` computes, in float64 and as direct as its definition: the whole row is sorted. Only the penalties are rounded to
 * f32, operation by operation, as the kernel does.
 */

import { philox } from './reference.mjs';

/** A probability this much below a limit is within it. */
const SLACK = 2 ** -40;

/**
 * The logits after the penalties for the last tokens of a history.
 * @param {ArrayLike<number>} logits @param {ArrayLike<number>} history @param {import('../../kernels/sampling.mjs').SamplingOptions} options
 */
export function penalized(logits, history, { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0, repeatLastN = 64 }) {
  const result = Float64Array.from(logits);
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (let t = Math.max(0, history.length - Math.min(repeatLastN, 1024)); t < history.length; t++) {
    counts.set(history[t], (counts.get(history[t]) ?? 0) + 1);
  }
  if (repetitionPenalty === 1 && presencePenalty === 0 && frequencyPenalty === 0) return result;
  const { fround } = Math;
  // Numbers that f32 has only as denormals count as 0.
  const normal = (/** @type {number} */ v) => (Math.abs(v) < 2 ** -126 ? 0 : v);
  for (const [id, count] of counts) {
    const logit = normal(result[id]);
    const repeated = normal(fround(logit * fround(logit > 0 ? 1 / repetitionPenalty : repetitionPenalty)));
    result[id] = normal(fround(repeated - fround(fround(count * fround(frequencyPenalty)) + fround(presencePenalty))));
  }
  return result;
}

/**
 * The tokens that the filters leave, most likely first, and the sums of their probabilities up to each, not normalized.
 * @param {ArrayLike<number>} logits of the candidates @param {ArrayLike<number>} history
 * @param {import('../../kernels/sampling.mjs').SamplingOptions} options
 */
export function kept(logits, history, options) {
  const { temperature = 1, topK = 0, topP = 1, minP = 0 } = options;
  const values = penalized(logits, history, options);
  const order = Uint32Array.from(values.keys()).filter((id) => values[id] > -Infinity);
  order.sort((a, b) => values[b] - values[a] || a - b);
  if (temperature === 0 || topK === 1) return { ids: order.subarray(0, 1), sums: Float64Array.of(1) };
  const most = values[order[0]];
  const weights = Float64Array.from(order, (id) => (values[id] === most ? 1 : Math.exp((values[id] - most) / temperature)));
  const sums = new Float64Array(order.length);
  let sum = 0;
  for (let i = 0; i < order.length; i++) sums[i] = sum += weights[i];
  let n = topK === 0 ? order.length : Math.min(topK, order.length);
  if (topP < 1) {
    const enough = sums[n - 1] * topP * (1 - SLACK);
    const last = sums.findIndex((value) => value >= enough);
    n = Math.min(n, last + 1);
  }
  const least = minP * (1 - SLACK);
  if (minP > 0) while (weights[n - 1] < least) n--;
  return { ids: order.subarray(0, n), sums: sums.subarray(0, n) };
}

/**
 * The token that is drawn: that in which a 64-bit random number falls, as a fraction of the sum.
 * @param {{ ids: Uint32Array, sums: Float64Array }} kept @param {bigint} seed @param {number} draws
 */
export function drawn({ ids, sums }, seed, draws) {
  if (ids.length === 0) return 0;
  const [low, high] = philox([draws, 0, 0, 0], [Number(seed & 0xffffffffn), Number(seed >> 32n)]);
  const target = (high / 2 ** 32 + low / 2 ** 64) * sums[sums.length - 1];
  return ids[Math.max(0, sums.length === 1 ? 0 : sums.findIndex((sum) => sum > target))];
}

/** ln softmax(logits)[token], over numbers above -∞. @param {ArrayLike<number>} logits @param {number} token */
export function logProbability(logits, token) {
  let most = -Infinity;
  for (let id = 0; id < logits.length; id++) if (logits[id] > most) most = logits[id];
  let sum = 0;
  for (let id = 0; id < logits.length; id++) if (logits[id] > -Infinity) sum += Math.exp(logits[id] - most);
  return logits[token] - most - Math.log(sum);
}
