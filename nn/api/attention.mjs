// Scaled dot-product attention as functions, and its masks.

import { apply, tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { broadcastShapes, denseLayout, isFloat } from '../core/layout.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { perDevice, runtime } from '../core/runtime.mjs';
import { constant } from '../core/tensor.mjs';
import * as attentionOps from '../ops/attention.mjs';
import { floatType } from '../ops/pointwise.mjs';
import { withoutAutocast } from './autocast.mjs';
import { add, matmul, mul, where } from './functional.mjs';
import { operand, softmaxRows } from './operands.mjs';
import { reshape, slice, to, transpose } from './views.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/**
 * Options of `attention`.
 * @typedef {object} AttentionOptions
 * @property {number} heads number of heads, a divisor of the width
 * @property {boolean} [causal] whether a token attends only to itself and to earlier tokens; false when left out
 * @property {Tensor} [mask] as in `scaledDotProductAttention`; broadcasts to [batch, heads, tokens, tokens]. The fused kernel does not
 *   support it: with a mask, the whole matrix of scores is in memory
 */

/**
 * Options of `scaledDotProductAttention`.
 * @typedef {object} ScoreOptions
 * @property {boolean} [isCausal] whether a query attends only to keys up to its own position; the last query is aligned with the last key
 *   (PyTorch aligns the first ones). Needs at least as many keys as queries; false when left out
 * @property {number} [scale] a factor on the scores; 1 / √headSize when left out
 * @property {Tensor} [mask] broadcasts to the scores' shape, [..., queries, keys]. A bool mask is true where a query attends to a key; a
 *   floating-point mask is added to the scores
 */

/** Causal masks by size. @type {Map<string, Tensor>} */
const masks = perDevice(new Map());

/** The causal mask, bool [queries, keys]; the last query is aligned with the last key. Cached. @param {number} queries @param {number} keys */
function causalMask(queries, keys) {
  const key = `${queries}x${keys}`;
  let mask = masks.get(key);
  if (!mask?.storage) {
    const values = new Uint32Array(queries * keys);
    for (let i = 0; i < queries; i++) values.fill(1, i * keys, i * keys + Math.min(keys, i + 1 + keys - queries));
    mask = constant(values, denseLayout([queries, keys], 'bool'));
    if (masks.size >= 64) {
      for (const old of masks.values()) old.dispose();
      masks.clear();
    }
    masks.set(key, mask);
  }
  return mask;
}

/**
 * Applies a mask: a bool mask sets scores to -∞ where it is false, a floating-point mask is added.
 * @param {string} op @param {Tensor} scores [..., queries, keys] @param {Tensor} mask that broadcasts to the scores' shape
 */
function masked(op, scores, mask) {
  const { shape, dtype } = tensorOf(op, mask);
  if (dtype !== 'bool' && !isFloat(dtype)) {
    throw new ArgumentError(
      op,
      `a mask is bool (true: attends) or floating (added to the scores), got ${dtype}; compare for the former, as in mask.ne(0)`,
    );
  }
  if (show(broadcastShapes(op, scores.shape, shape)) !== show(scores.shape)) {
    throw new ShapeError(op, `a mask ${show(shape)} for scores ${show(scores.shape)}, to which it has to broadcast`);
  }
  return dtype === 'bool' ? where(mask, scores, -Infinity) : add(scores, mask);
}

/**
 * Multi-head self-attention over queries, keys and values that lie in one tensor, such as the result of one linear layer. Computes
 * softmax(q kᵀ / √headSize) v for each head (Vaswani et al. 2017), without a matrix of scores in memory where the device's kernels support
 * the head size and there is no mask.
 * @param {Tensor} qkv [batch, tokens, 3 · width]: each row has the queries of all heads, then the keys, then the values
 * @param {AttentionOptions} options
 * @returns {Tensor} [batch, tokens, width]
 */
export function attention(qkv, options) {
  const { heads, causal = false, mask } = checkOptions('attention', options, ['heads', 'causal', 'mask']);
  if (!(Number.isInteger(heads) && heads > 0))
    throw new ArgumentError('attention', `heads is an integer of at least 1, got ${shown(heads)}`);
  flag('attention', 'causal', causal);
  qkv = operand(tensorOf('attention', qkv));
  const [batch, tokens, width] = qkv.shape;
  const headSize = width / 3 / heads;
  if (qkv.ndim === 3 && Number.isInteger(headSize) && (mask !== undefined || !attentionOps.FUSED_HEADS.includes(headSize))) {
    const [q, k, v] = [0, 1, 2].map((i) =>
      transpose(reshape(slice(qkv, 2, (i * width) / 3, ((i + 1) * width) / 3), [batch, tokens, heads, headSize]), 1, 2),
    );
    const out = scaledDotProductAttention(q, k, v, { isCausal: causal, mask });
    return reshape(transpose(out, 1, 2), [batch, tokens, width / 3]);
  }
  const supported = qkv.dtype === 'f32' || runtime().kernels.attentionSupports(floatType('attention', qkv.layout), headSize);
  if (!supported)
    return to(
      withoutAutocast(() => attention(to(qkv, 'f32'), { heads, causal })),
      qkv.dtype,
    );
  return apply(attentionOps.attention, [qkv], { heads, causal });
}

/**
 * Computes softmax(scale · q kᵀ + mask) v (Vaswani et al. 2017). A query that attends to no key (all of its scores are -∞) gets the result 0
 * and the gradient 0. Throws a ShapeError if the mask does not broadcast to the scores, and for `isCausal` with more queries than keys.
 * @param {Tensor} q [..., queries, headSize] @param {Tensor} k [..., keys, headSize] @param {Tensor} v [..., keys, n]
 * @param {ScoreOptions} [options]
 * @returns {Tensor} [..., queries, n]
 */
export function scaledDotProductAttention(q, k, v, options = {}) {
  const name = 'scaledDotProductAttention';
  const { isCausal = false, scale, mask } = checkOptions(name, options, ['isCausal', 'scale', 'mask']);
  for (const x of [q, k, v]) tensorOf(name, x);
  if (scale !== undefined && typeof scale !== 'number') throw new ArgumentError(name, `scale is a number, got ${shown(scale)}`);
  if (mask) tensorOf(name, mask);
  flag(name, 'isCausal', isCausal);
  return within(name, () => scored(q, k, v, isCausal, scale, mask));
}

/**
 * Attention with the matrix of scores in memory.
 * @param {Tensor} q @param {Tensor} k @param {Tensor} v @param {boolean} isCausal @param {number} [scale] @param {Tensor} [mask]
 * @returns {Tensor}
 */
function scored(q, k, v, isCausal, scale, mask) {
  const size = q.shape.at(-1) ?? 1;
  // Scale q instead of the scores: unscaled scores may overflow f16.
  let scores = matmul(mul(q, scale ?? 1 / Math.sqrt(size)), transpose(k, -2, -1));
  const [queries, keys] = [q.shape[q.ndim - 2], k.shape[k.ndim - 2]];
  if (isCausal && queries > keys) {
    throw new ShapeError('scaledDotProductAttention', `isCausal: ${queries} queries for ${keys} keys, of which the first would see none`);
  }
  if (isCausal) scores = where(causalMask(queries, keys), scores, -Infinity);
  if (mask !== undefined) scores = masked('scaledDotProductAttention', scores, mask);
  return matmul(softmaxRows(scores, true), v);
}
