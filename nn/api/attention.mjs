// Scaled dot-product attention as functions, and its masks.

import { apply, tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { broadcastShapes, denseLayout, isFloat, sizeOf } from '../core/layout.mjs';
import { checkOptions, checkProbability, flag } from '../core/options.mjs';
import { perDevice, runtime } from '../core/runtime.mjs';
import { constant } from '../core/tensor.mjs';
import * as attentionOps from '../ops/attention.mjs';
import { floatType } from '../ops/pointwise.mjs';
import { withoutAutocast } from './autocast.mjs';
import { add, dropout, ge, matmul, mul, where } from './functional.mjs';
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
 * @property {boolean} [enableGqa] whether k and v may have fewer heads than q, in dimension -3: a divisor of its heads. Head h of queries uses
 *   head floor(h · kvHeads / heads) of keys, which is not copied (grouped-query attention, Ainslie et al. 2023); false when left out
 * @property {Tensor} [mask] broadcasts to the scores' shape, [..., queries, keys]. A bool mask is true where a query attends to a key; a
 *   floating-point mask is added to the scores. With a mask, the whole matrix of scores is in memory
 * @property {number} [dropoutP] in [0, 1]: each weight is set to 0 with this probability, and the others are divided by 1 - dropoutP, whether or
 *   not a module is training; the whole matrix of scores is then in memory. 0 when left out
 */

/** Most heads and sequences that the fused kernel takes. */
const [MAX_HEADS, MAX_BATCH] = [32767, 65535];

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
export const places = (tokens) =>
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
      `mask must be bool (true: attends) or floating-point (added to the scores), got ${dtype}; compare for the former, as in mask.ne(0)`,
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
      throw new ArgumentError('attention', `${name} must be an integer of at least 1, got ${shown(count)}`);
  }
  if (heads % kvHeads) throw new ArgumentError('attention', `kvHeads must divide heads = ${heads}, got ${kvHeads}`);
  flag('attention', 'causal', causal);
  if (firstKey !== undefined && !['u32', 'f32'].includes(tensorOf('attention', firstKey).dtype)) {
    throw new ArgumentError('attention', `firstKey must be u32 or f32, got ${firstKey.dtype}`);
  }
  qkv = operand(tensorOf('attention', qkv));
  const [, tokens, width] = qkv.shape;
  const headSize = width / (heads + 2 * kvHeads);
  if (
    qkv.ndim === 3 &&
    Number.isInteger(headSize) &&
    (mask !== undefined || !attentionOps.FUSED_HEADS.includes(headSize) || !runtime().kernels.attentionSupports('f32', headSize))
  ) {
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
  const part = (/** @type {number} */ first, /** @type {number} */ count) =>
    transpose(reshape(slice(qkv, 2, first * headSize, (first + count) * headSize), [batch, tokens, count, headSize]), 1, 2);
  const masks = mask === undefined ? [] : [mask];
  if (window !== undefined && window < tokens) masks.push(windowMask(tokens, window));
  if (firstKey !== undefined) {
    if (show(firstKey.shape) !== show([batch, tokens])) {
      throw new ShapeError('attention', `firstKey ${show(firstKey.shape)}, expected [batch, tokens], ${show([batch, tokens])}`);
    }
    masks.push(ge(places(tokens), reshape(to(firstKey, 'u32'), [batch, 1, tokens, 1])));
  }
  const [q, k, v] = [part(0, heads), part(heads, kvHeads), part(heads + kvHeads, kvHeads)];
  const out = within('attention', () => scored(q, k, v, { isCausal: causal, masks, grouped: kvHeads < heads }));
  return reshape(transpose(out, 1, 2), [batch, tokens, heads * headSize]);
}

/**
 * Computes softmax(scale · q kᵀ + mask) v (Vaswani et al. 2017). Without a mask, with heads of 32, 64, 96 or 128 elements and values of that size,
 * no matrix of scores is in memory (Dao et al. 2022); views of [batch, tokens, heads, headSize] are then read in place. A query that attends to
 * no key (all of its scores are -∞) gets the result 0 and the gradient 0. Throws a ShapeError if the mask does not broadcast to the scores, if
 * the heads are not multiples, and for `isCausal` with more queries than keys.
 * @param {Tensor} q [..., queries, headSize] @param {Tensor} k [..., keys, headSize] @param {Tensor} v [..., keys, n]
 * @param {ScoreOptions} [options]
 * @returns {Tensor} [..., queries, n]
 */
export function scaledDotProductAttention(q, k, v, options = {}) {
  const name = 'scaledDotProductAttention';
  const names = ['isCausal', 'scale', 'mask', 'enableGqa', 'dropoutP'];
  const { isCausal = false, scale, mask, enableGqa = false, dropoutP = 0 } = checkOptions(name, options, names);
  checkProbability(name, 'dropoutP', dropoutP);
  for (const x of [q, k, v]) tensorOf(name, x);
  if (scale !== undefined && typeof scale !== 'number') throw new ArgumentError(name, `scale must be a number, got ${shown(scale)}`);
  if (mask !== undefined) tensorOf(name, mask);
  for (const [option, value] of Object.entries({ isCausal, enableGqa })) flag(name, option, value);
  const [queries, keys] = [q.shape[q.ndim - 2], k.shape[k.ndim - 2]];
  if (isCausal && queries > keys) {
    throw new ShapeError(name, `isCausal: ${queries} queries for ${keys} keys, of which the first would see none`);
  }
  const [heads, kvHeads, ofV] = [q, k, v].map((x) => x.shape.at(-3) ?? 1);
  if (enableGqa && (heads % kvHeads || ofV !== kvHeads)) {
    throw new ShapeError(
      name,
      `enableGqa: ${heads} heads of queries, ${kvHeads} of keys and ${ofV} of values; those of keys and of values must be a divisor`,
    );
  }
  const grouped = enableGqa && kvHeads < heads;
  return within(name, () => {
    const out = mask === undefined && dropoutP === 0 ? fused(q, k, v, { isCausal, scale, grouped }) : undefined;
    return out ?? scored(q, k, v, { isCausal, scale, grouped, masks: mask === undefined ? [] : [mask], dropoutP });
  });
}

/**
 * Attention by the fused kernel, which reads [batch, tokens, heads, headSize] with the heads of a token beside each other.
 * @param {Tensor} q @param {Tensor} k @param {Tensor} v @param {{ isCausal: boolean, scale?: number, grouped: boolean }} options
 * @returns {Tensor | undefined} undefined where it does not take the shapes
 */
function fused(q, k, v, { isCausal, scale, grouped }) {
  if (![q, k, v].every((x) => isFloat(x.dtype) && x.ndim >= 2 && x.size > 0)) return undefined;
  const [tokens, size] = q.shape.slice(-2);
  const keys = k.shape[k.ndim - 2];
  const wanted = show([keys, size]);
  if (!attentionOps.FUSED_HEADS.includes(size) || [k, v].some((x) => show(x.shape.slice(-2)) !== wanted)) return undefined;
  const factor = scale ?? 1 / Math.sqrt(size);
  if (!Number.isFinite(factor)) return undefined;
  const lead = q.shape.slice(0, -2);
  const heads = lead.at(-1) ?? 1;
  // One head of keys that broadcasts is a group of all heads.
  const kvHeads = grouped || [k, v].every((x) => (x.shape.at(-3) ?? 1) === 1) ? (k.shape.at(-3) ?? 1) : heads;
  const shared = lead.length ? lead.with(-1, kvHeads) : [];
  const fits = (/** @type {readonly number[]} */ own) =>
    own.length <= shared.length && own.every((n, i) => n === 1 || n === shared[i + shared.length - own.length]);
  const batch = sizeOf(lead) / heads;
  if (![k, v].every((x) => fits(x.shape.slice(0, -2))) || heads > MAX_HEADS || batch > MAX_BATCH) return undefined;
  const { kernels } = runtime();
  if (!kernels.attentionSupports('f32', size, { tokens, keys, heads, kvHeads })) return undefined;

  const operands = [q, k, v].map((x) => operand(x));
  const { dtype } = operands[0];
  const alike = operands.every((x) => x.dtype === dtype);
  const type = alike && (dtype === 'f32' || kernels.attentionSupports(/** @type {'f16' | 'bf16'} */ (dtype), size)) ? dtype : 'f32';
  const whole = (/** @type {Tensor} */ x, /** @type {number} */ count, /** @type {number} */ rows) =>
    reshape(expand(to(x, type), [...lead.slice(0, -1), ...(lead.length ? [count] : []), rows, size]), [batch, count, rows, size]);
  const own = [whole(operands[0], heads, tokens), whole(operands[1], kvHeads, keys), whole(operands[2], kvHeads, keys)];
  const attributes = { causal: isCausal, scale: factor };
  const run = (/** @type {Tensor[]} */ inputs) => apply(attentionOps.attentionApart, inputs, attributes);
  const copied = (/** @type {Tensor[]} */ [a, b, c]) => attentionOps.copiedElements(a.layout, b.layout, c.layout);

  // Heads side by side, as a linear layer computes them; or each head of keys with its queries as a sequence by itself, as in dense tensors.
  const group = heads / kvHeads;
  const beside = own.map((x) => transpose(x, 1, 2));
  const merges = batch === 1 || kvHeads === 1 || own.every(({ shape, layout: { strides } }) => strides[0] === shape[1] * strides[1]);
  const folded =
    merges && batch * kvHeads <= MAX_BATCH
      ? [
          reshape(transpose(reshape(own[0], [batch, kvHeads, group, tokens, size]), 2, 3), [batch * kvHeads, tokens, group, size]),
          ...own.slice(1).map((x) => reshape(x, [batch * kvHeads, keys, 1, size])),
        ]
      : beside;
  const back = group > 1 && tokens > 1 ? q.size : 0;
  const out =
    folded === beside || copied(beside) <= copied(folded) + back
      ? transpose(run(beside), 1, 2)
      : transpose(reshape(run(folded), [batch, kvHeads, tokens, group, size]), 2, 3);
  return to(reshape(out, [...lead, tokens, size]), alike ? dtype : 'f32');
}

/** The rows of the heads of a group one after another, and back. @param {Tensor} x @param {number} count of heads @returns {Tensor} */
const regroup = (x, count) =>
  reshape(x, [...x.shape.slice(0, -3), count, (x.shape[x.ndim - 3] * x.shape[x.ndim - 2]) / count, x.shape[x.ndim - 1]]);

/**
 * The weights of attention, softmax(scale · q kᵀ + masks).
 * @param {Tensor} q @param {Tensor} k
 * @param {{ isCausal: boolean, scale?: number, masks: Tensor[], grouped: boolean }} options `grouped`: k has fewer heads than q
 * @returns {Tensor} [..., heads, queries, keys]
 */
export function weightsOf(q, k, { isCausal, scale, masks, grouped }) {
  const size = q.shape.at(-1) ?? 1;
  const [queries, keys] = [q.shape[q.ndim - 2], k.shape[k.ndim - 2]];
  const [heads, kvHeads] = [q.shape[q.ndim - 3], k.shape[k.ndim - 3]];
  // Scale q instead of the scores: unscaled scores may overflow f16.
  const scaled = mul(q, scale ?? 1 / Math.sqrt(size));
  const products = matmul(grouped ? regroup(scaled, kvHeads) : scaled, transpose(k, -2, -1));
  let scores = grouped ? regroup(products, heads) : products;
  if (isCausal) scores = where(causalMask(queries, keys), scores, -Infinity);
  for (const mask of masks) scores = masked('scaledDotProductAttention', scores, mask);
  return softmaxRows(scores, true);
}

/**
 * Attention with the matrix of scores in memory.
 * @param {Tensor} q @param {Tensor} k @param {Tensor} v
 * @param {{ isCausal: boolean, scale?: number, masks: Tensor[], grouped: boolean, dropoutP?: number }} options `grouped`: k and v have fewer
 *   heads than q
 * @returns {Tensor}
 */
export function scored(q, k, v, options) {
  const { grouped, dropoutP = 0 } = options;
  const own = weightsOf(q, k, options);
  const weights = dropoutP > 0 ? dropout(own, dropoutP) : own;
  if (!grouped) return matmul(weights, v);
  return regroup(matmul(regroup(weights, k.shape[k.ndim - 3]), v), q.shape[q.ndim - 3]);
}
