// Multi-head attention, over a sequence at once or token by token with a cache.

import { attention } from '../api/attention.mjs';
import * as F from '../api/functional.mjs';
import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, UsageError, describe, show, shown, within } from '../core/errors.mjs';
import { denseLayout, isFloat, positive } from '../core/layout.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { constant } from '../core/tensor.mjs';
import { ropeTable } from '../../kernels/index.mjs';
import { KeyValueCache } from './cache.mjs';
import { Linear, RMSNorm } from './layers.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/**
 * Options of `MultiHeadAttention`.
 * @typedef {object} MultiHeadAttentionOptions
 * @property {boolean} [causal] whether a token attends only to itself and to earlier tokens; false when left out
 * @property {boolean | { base?: number }} [rope] whether queries and keys get rotary position embeddings (Su et al. 2021), with the base
 *   of their frequencies (1e4 when left out); false when left out
 * @property {boolean} [bias] whether both linear layers have a bias; false when left out
 * @property {number} [kvHeads] number of key and value heads, a divisor of `heads`; `heads` when left out
 * @property {boolean} [qkNorm] whether an RMSNorm over `headSize` is applied to each head's queries and keys; false when left out
 */

/**
 * Options of a call of `MultiHeadAttention`.
 * @typedef {object} MaskOptions
 * @property {Tensor} [mask] which keys a query attends to, as in `F.scaledDotProductAttention`; broadcasts to
 *   [batch, heads, tokens, tokens], and with a cache to [batch, heads, tokens, capacity]
 * @property {Tensor} [keyPaddingMask] for padded sequences, [batch, tokens], and with a cache [batch, capacity]: as in PyTorch, a bool mask is
 *   true at the padding, which no query attends to (the opposite of `mask`); a floating-point mask is added to the scores of its key. It goes
 *   together with `mask`
 * @property {KeyValueCache} [cache] of this layer, from `cache(…)`: x follows the tokens in it, is appended to it, and attends to all of them
 */

/**
 * One mask of a mask and of the padding of keys.
 * @param {Tensor | undefined} mask as in `F.scaledDotProductAttention` @param {Tensor} padding [batch, keys]
 * @param {number[]} wanted the shape of the padding
 * @returns {Tensor} as in `F.scaledDotProductAttention`
 */
function withPadding(mask, padding, wanted) {
  const { shape, dtype } = tensorOf('MultiHeadAttention', padding);
  if (show(shape) !== show(wanted))
    throw new ShapeError('MultiHeadAttention', `keyPaddingMask must be of shape [batch, keys], ${show(wanted)}, got ${show(shape)}`);
  if (dtype !== 'bool' && !isFloat(dtype))
    throw new ArgumentError('MultiHeadAttention', `keyPaddingMask must be bool (true: padding) or floating-point (added), got ${dtype}`);
  const own = F.reshape(padding, [wanted[0], 1, 1, wanted[1]]);
  const keys = dtype === 'bool' ? F.eq(own, 0) : own;
  if (mask === undefined) return keys;
  const [hides, other] = tensorOf('MultiHeadAttention', mask).dtype === 'bool' ? [mask, keys] : [keys, mask];
  if (hides.dtype !== 'bool') return F.add(hides, other);
  return F.where(hides, other, other.dtype === 'bool' ? 0 : -Infinity);
}

/**
 * Multi-head self-attention (Vaswani et al. 2017). `qkv` is one linear layer whose result has the queries, then the keys, then the
 * values, head by head. With fewer `kvHeads` than heads, each key and value head serves `heads / kvHeads` query heads (grouped-query
 * attention, Ainslie et al. 2023).
 */
export class MultiHeadAttention extends Module {
  /** @type {Map<number, Tensor>} Rotary tables by number of tokens. */
  #tables = new Map();

  /**
   * Throws a ShapeError if `heads` does not divide `width`, or `kvHeads` does not divide `heads`.
   * @param {number} width size of the last dimension of x and of the result @param {number} heads of `width / heads` elements each
   * @param {MultiHeadAttentionOptions} [options]
   */
  constructor(width, heads, options = {}) {
    super();
    const {
      causal = false,
      rope = false,
      bias = false,
      kvHeads = heads,
      qkNorm = false,
    } = checkOptions('MultiHeadAttention', options, ['causal', 'rope', 'bias', 'kvHeads', 'qkNorm']);
    if (positive('MultiHeadAttention', 'width', width) % positive('MultiHeadAttention', 'heads', heads)) {
      throw new ShapeError('MultiHeadAttention', `a width of ${width} is not a multiple of ${heads} heads`);
    }
    if (heads % positive('MultiHeadAttention', 'kvHeads', kvHeads)) {
      throw new ShapeError('MultiHeadAttention', `${heads} heads are not a multiple of ${kvHeads} kvHeads`);
    }
    for (const [name, value] of Object.entries({ causal, bias, qkNorm })) flag('MultiHeadAttention', name, value);
    const base = typeof rope === 'object' ? checkOptions('MultiHeadAttention', rope, ['base']).base : undefined;
    if (base === undefined && typeof rope !== 'object') flag('MultiHeadAttention', 'rope', rope);
    if (base !== undefined && !(base > 0 && base < Infinity)) {
      throw new ArgumentError('MultiHeadAttention', `base must be a number above 0, got ${shown(base)}`);
    }
    const headSize = width / heads;
    this.qkv = within('MultiHeadAttention', () => new Linear(width, (heads + 2 * kvHeads) * headSize, { bias }));
    this.out = within('MultiHeadAttention', () => new Linear(width, width, { bias }));
    if (qkNorm) {
      this.q_norm = new RMSNorm(headSize);
      this.k_norm = new RMSNorm(headSize);
    }
    this.heads = heads;
    this.kvHeads = kvHeads;
    this.causal = causal;
    this.base = rope ? (base ?? 1e4) : 0;
  }

  /** The rotary table, [tokens, headSize / 2, 2]: cosines and sines. @param {number} tokens @param {number} headSize */
  #table(tokens, headSize) {
    let table = this.#tables.get(tokens);
    if (!table?.storage) {
      const values = ropeTable({ positions: tokens, headSize, base: this.base });
      table = constant(values, denseLayout([tokens, headSize / 2, 2], 'f32'));
      this.#tables.set(tokens, table);
    }
    return table;
  }

  /**
   * A cache for the keys and values of this layer, empty at first.
   * @param {import('./cache.mjs').CacheOptions} options
   */
  cache(options) {
    const headSize = this.out.weight.shape[0] / this.heads;
    return new KeyValueCache('cache', { kvHeads: this.kvHeads, headSize }, options);
  }

  /**
   * Throws a RangeError if the tokens in the cache and those of x exceed its capacity, and a UsageError if gradients would flow through a cache.
   * @param {Tensor} x [batch, tokens, width]
   * @param {MaskOptions} [options]
   * @returns {Tensor} of x's shape
   */
  forward(x, options = {}) {
    const { mask: given, keyPaddingMask, cache } = checkOptions('MultiHeadAttention', options, ['mask', 'keyPaddingMask', 'cache']);
    if (tensorOf('MultiHeadAttention', x).ndim !== 3)
      throw new ShapeError('MultiHeadAttention', `expected an input [batch, tokens, width], got ${show(x.shape)}`);
    const [batch, tokens, width] = x.shape;
    const headSize = width / this.heads;
    const keys = cache instanceof KeyValueCache ? cache.capacity : tokens;
    const mask =
      keyPaddingMask === undefined ? given : within('MultiHeadAttention', () => withPadding(given, keyPaddingMask, [batch, keys]));
    const { heads, kvHeads, q_norm: qNorm, k_norm: kNorm } = this;
    let qkv = within('MultiHeadAttention', () => this.qkv.forward(x));
    /** The columns of `count` heads, [batch, tokens, count · headSize]. @param {number} first @param {number} count */
    const part = (first, count) => F.slice(qkv, 2, first * headSize, (first + count) * headSize);
    if (qNorm && kNorm) {
      const normed = (/** @type {Tensor} */ h, /** @type {RMSNorm} */ norm) =>
        F.reshape(F.to(norm.forward(F.reshape(h, [batch, tokens, h.shape[2] / headSize, headSize])), qkv.dtype), h.shape);
      qkv = F.cat([normed(part(0, heads), qNorm), normed(part(heads, kvHeads), kNorm), part(heads + kvHeads, kvHeads)], 2);
    }
    const sizes = { heads: heads + kvHeads, headSize };
    if (cache === undefined) {
      if (this.base) qkv = F.rope(qkv, this.#table(tokens, headSize), sizes);
      return this.out.forward(within('MultiHeadAttention', () => attention(qkv, { heads, kvHeads, causal: this.causal, mask })));
    }
    if (!(cache instanceof KeyValueCache)) {
      throw new ArgumentError('MultiHeadAttention', `cache must be one that the layer's cache(…) made, got ${describe(cache)}`);
    }
    const [, ofCache, , size] = cache.keys.shape;
    if (ofCache !== kvHeads || size !== headSize) {
      throw new ShapeError(
        'MultiHeadAttention',
        `a cache of ${ofCache} heads of ${size} for a layer with ${kvHeads} kvHeads of ${headSize}`,
      );
    }
    if (qkv.requiresGrad) {
      throw new UsageError('MultiHeadAttention', 'gradients do not flow through a cache: call the model in noGrad(() => …)');
    }
    const start = cache.begin('MultiHeadAttention', batch, tokens);
    if (this.base) {
      const table = this.#table(cache.capacity, headSize);
      qkv =
        typeof start === 'number'
          ? F.rope(qkv, F.slice(table, 0, start, start + tokens), sizes)
          : F.rope(qkv, table, { ...sizes, positions: F.expand(F.reshape(start, [1, 1]), [batch, 1]) });
    }
    const split = [part(0, heads), part(heads, kvHeads), part(heads + kvHeads, kvHeads)].map((x) =>
      F.transpose(F.reshape(x, [batch, tokens, x.shape[2] / headSize, headSize]), 1, 2),
    );
    const out = within('MultiHeadAttention', () => cache.attend('MultiHeadAttention', start, split, { isCausal: this.causal, mask }));
    return this.out.forward(F.reshape(F.transpose(out, 1, 2), [batch, tokens, width]));
  }
}
