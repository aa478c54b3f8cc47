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
import { add, ge, matmul, mul, where } from './functional.mjs';
import { operand, softmaxRows } from './operands.mjs';
import { expand, reshape, slice, to, transpose } from './views.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/**
 * Options of `attention`.
 * @typedef {object} AttentionOptions
 * @property {number} heads number of heads of queries
 * @property {number} [kvHeads] number of heads of keys and of values, a divisor of `heads`: head h of queries uses head
 *   floor(h · kvHeads / heads) of keys (grouped-query attention, Ainslie et al. 2023); `heads` when left out
 * @property {boolean} [causal] whether a token attends only to itself and to earlier tokens; false when left out
 * @property {number} [window] how many keys a token attends to at most, the last ones up to itself (and, without `causal`, all later ones);
 *   all when left out
 * @property {Tensor} [firstKey] u32 or f32 [batch, tokens]: the first key that each token attends to, such as the first of its document. Must
 *   not decrease from token to token. The kernel skips blocks of keys that no token of a block attends to
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

/** Constants of masks, by size. @type {Map<string, Tensor>} */
const constants = perDevice(new Map());

/** A cached constant. @param {string} key @param {() => Tensor} make */
function cached(key, make) {
  let value = constants.get(key);
  if (!value?.storage) {
    value = make();
    if (constants.size >= 64) {
      for (const old of constants.values()) old.dispose();
      constants.clear();
    }
    constants.set(key, value);
  }
  return value;
}

/**
 * A bool mask [queries, keys] of the keys from `first` to before `end` of each query.
 * @param {number} queries @param {number} keys @param {(query: number) => [first: number, end: number]} seen
 */
function bandMask(queries, keys, seen) {
  const values = new Uint32Array(queries * keys);
  for (let i = 0; i < queries; i++) {
    const [first, end] = seen(i);
    values.fill(1, i * keys + first, i * keys + end);
  }
  return constant(values, denseLayout([queries, keys], 'bool'));
}

/** The causal mask; the last query is aligned with the last key. @param {number} queries @param {number} keys */
const causalMask = (queries, keys) =>
  cached(`${queries}x${keys}`, () => bandMask(queries, keys, (i) => [0, Math.min(keys, i + 1 + keys - queries)]));

/** The mask of a window of the last keys up to a query's own place. @param {number} tokens @param {number} window */
const windowMask = (tokens, window) =>
  cached(`${tokens} window ${window}`, () => bandMask(tokens, tokens, (i) => [Math.max(0, i + 1 - window), tokens]));

/** The places of keys, u32 [tokens]. @param {number} tokens */
const places = (tokens) =>
  cached(`${tokens} places`, () =>
    constant(
      Uint32Array.from({ length: tokens }, (_, i) => i),
      denseLayout([tokens], 'u32'),
    ),
  );

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
 * the head size and there is no mask. A token that attends to no key gets 0.
 * @param {Tensor} qkv [batch, tokens, (heads + 2 · kvHeads) · headSize]: each row has the queries of all heads, then the keys, then the values
 * @param {AttentionOptions} options
 * @returns {Tensor} [batch, tokens, heads · headSize]
 */
export function attention(qkv, options) {
  const names = ['heads', 'kvHeads', 'causal', 'window', 'firstKey', 'mask'];
  const { heads, kvHeads = heads, causal = false, window, firstKey, mask } = checkOptions('attention', options, names);
  for (const [name, count] of Object.entries({ heads, kvHeads, ...(window === undefined ? {} : { window }) })) {
    if (!(Number.isInteger(count) && count > 0))
      throw new ArgumentError('attention', `${name} is an integer of at least 1, got ${shown(count)}`);
  }
  if (heads % kvHeads) throw new ArgumentError('attention', `kvHeads divides heads, ${heads}, got ${kvHeads}`);
  flag('attention', 'causal', causal);
  if (firstKey !== undefined && !['u32', 'f32'].includes(tensorOf('attention', firstKey).dtype)) {
    throw new ArgumentError('attention', `firstKey is u32 or f32, got ${firstKey.dtype}`);
  }
  qkv = operand(tensorOf('attention', qkv));
  const [, tokens, width] = qkv.shape;
  const headSize = width / (heads + 2 * kvHeads);
  if (qkv.ndim === 3 && Number.isInteger(headSize) && (mask !== undefined || !attentionOps.FUSED_HEADS.includes(headSize))) {
    return inParts(qkv, { heads, kvHeads, headSize, causal, window, firstKey, mask });
  }
  const supported = qkv.dtype === 'f32' || runtime().kernels.attentionSupports(floatType('attention', qkv.layout), headSize);
  if (!supported)
    return to(
      withoutAutocast(() => attention(to(qkv, 'f32'), options)),
      qkv.dtype,
    );
  const limits = firstKey === undefined ? [] : [to(firstKey, 'u32')];
  // A window of all tokens is none.
  const attributes = { heads, kvHeads, causal, window: window !== undefined && window < tokens ? window : 0 };
  return apply(attentionOps.attention, [qkv, ...limits], attributes);
}

/**
 * `attention` with the scores in memory.
 * @param {Tensor} qkv
 * @param {{ heads: number, kvHeads: number, headSize: number, causal: boolean, window?: number, firstKey?: Tensor, mask?: Tensor }} options
 * @returns {Tensor}
 */
function inParts(qkv, { heads, kvHeads, headSize, causal, window, firstKey, mask }) {
  const [batch, tokens] = qkv.shape;
  const part = (/** @type {number} */ first, /** @type {number} */ count) => {
    const rows = slice(qkv, 2, first * headSize, (first + count) * headSize);
    if (count === heads) return transpose(reshape(rows, [batch, tokens, heads, headSize]), 1, 2);
    // Each head of keys for all heads of its group.
    const split = reshape(rows, [batch, tokens, count, 1, headSize]);
    return transpose(reshape(expand(split, [batch, tokens, count, heads / count, headSize]), [batch, tokens, heads, headSize]), 1, 2);
  };
  const masks = mask === undefined ? [] : [mask];
  if (window !== undefined && window < tokens) masks.push(windowMask(tokens, window));
  if (firstKey !== undefined) {
    if (show(firstKey.shape) !== show([batch, tokens])) {
      throw new ShapeError('attention', `firstKey ${show(firstKey.shape)}, expected [batch, tokens], ${show([batch, tokens])}`);
    }
    masks.push(ge(places(tokens), reshape(to(firstKey, 'u32'), [batch, 1, tokens, 1])));
  }
  const [q, k, v] = [part(0, heads), part(heads, kvHeads), part(heads + kvHeads, kvHeads)];
  const out = within('attention', () => scored(q, k, v, { isCausal: causal, masks }));
  return reshape(transpose(out, 1, 2), [batch, tokens, heads * headSize]);
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
  return within(name, () => scored(q, k, v, { isCausal, scale, masks: mask === undefined ? [] : [mask] }));
}

/**
 * Attention with the matrix of scores in memory.
 * @param {Tensor} q @param {Tensor} k @param {Tensor} v @param {{ isCausal: boolean, scale?: number, masks: Tensor[] }} options
 * @returns {Tensor}
 */
function scored(q, k, v, { isCausal, scale, masks }) {
  const size = q.shape.at(-1) ?? 1;
  // Scale q instead of the scores: unscaled scores may overflow f16.
  let scores = matmul(mul(q, scale ?? 1 / Math.sqrt(size)), transpose(k, -2, -1));
  const [queries, keys] = [q.shape[q.ndim - 2], k.shape[k.ndim - 2]];
  if (isCausal && queries > keys) {
    throw new ShapeError('scaledDotProductAttention', `isCausal: ${queries} queries for ${keys} keys, of which the first would see none`);
  }
  if (isCausal) scores = where(causalMask(queries, keys), scores, -Infinity);
  for (const mask of masks) scores = masked('scaledDotProductAttention', scores, mask);
  return matmul(softmaxRows(scores, true), v);
}
