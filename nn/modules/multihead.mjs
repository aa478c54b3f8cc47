// PyTorch's multi-head attention: queries, keys and values of different sequences, and parameters by PyTorch's names.

import { scaledDotProductAttention, weightsOf } from '../api/attention.mjs';
import * as F from '../api/functional.mjs';
import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, within } from '../core/errors.mjs';
import { isFloat, positive } from '../core/layout.mjs';
import { track } from '../core/guards.mjs';
import { checkOptions, checkProbability, flag } from '../core/options.mjs';
import { Linear, uniformParameter, zeroParameter } from './layers.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/**
 * Options of `MultiheadAttention`.
 * @typedef {object} MultiheadOptions
 * @property {number} [dropout] the probability with which a weight is set to 0 while training; 0 when left out
 * @property {boolean} [bias] whether the projections have biases; true when left out
 * @property {number} [kdim] size of the keys' last dimension; `embedDim` when left out
 * @property {number} [vdim] size of the values' last dimension; `embedDim` when left out
 * @property {boolean} [batchFirst] whether inputs are [batch, tokens, size] and not [tokens, batch, size]; true when left out (PyTorch: false)
 */

/**
 * Options of a call of `MultiheadAttention`. Masks are PyTorch's: a bool is true where a key is hidden, the opposite of `mask` elsewhere.
 * @typedef {object} MultiheadCallOptions
 * @property {Tensor} [keyPaddingMask] [batch, keys]: bool, true at the padding, which no query attends to; or floating-point, added to the scores
 * @property {Tensor} [attnMask] [queries, keys] or [batch · heads, queries, keys]: bool, true where a query does not attend to a key; or
 *   floating-point, added to the scores
 * @property {boolean} [isCausal] whether a query attends only to keys up to its own position, with no `attnMask` needed; false when left out
 * @property {boolean} [needWeights] whether the weights are returned, for which the matrix of scores is in memory; true when left out
 * @property {boolean} [averageAttnWeights] whether these are the mean over heads; true when left out
 */

const OP = 'MultiheadAttention';

/** What a mask adds to scores, or true where it shows a key. @param {string} name @param {Tensor} mask @returns {Tensor} */
function shownKeys(name, mask) {
  const { dtype } = tensorOf(OP, mask);
  if (dtype === 'bool') return F.eq(mask, 0);
  if (!isFloat(dtype)) throw new ArgumentError(OP, `${name} must be bool (true: hidden) or floating-point (added), got ${dtype}`);
  return mask;
}

/**
 * Multi-head attention of queries to keys and values (Vaswani et al. 2017), as PyTorch's class of this name. Parameters have PyTorch's names:
 * `in_proj_weight` [3 · embedDim, embedDim] and `in_proj_bias` (or `q_proj_weight`, `k_proj_weight`, `v_proj_weight` where sizes differ) and
 * `out_proj`. `MultiHeadAttention` has rotary embeddings, grouped keys and a cache.
 */
export class MultiheadAttention extends Module {
  /**
   * @param {number} embedDim size of the queries' and the result's last dimension @param {number} numHeads a divisor of it
   * @param {MultiheadOptions} [options]
   */
  constructor(embedDim, numHeads, options = {}) {
    super();
    const names = /** @type {const} */ (['dropout', 'bias', 'kdim', 'vdim', 'batchFirst']);
    const { dropout = 0, bias = true, kdim = embedDim, vdim = embedDim, batchFirst = true } = checkOptions(OP, options, names);
    for (const [name, value] of Object.entries({ embedDim, numHeads, kdim, vdim })) positive(OP, name, value);
    for (const [name, value] of Object.entries({ bias, batchFirst })) flag(OP, name, value);
    if (embedDim % numHeads) throw new ShapeError(OP, `${numHeads} heads do not divide an embedDim of ${embedDim}`);
    this.embedDim = embedDim;
    this.numHeads = numHeads;
    this.dropout = checkProbability(OP, 'dropout', dropout);
    this.batchFirst = batchFirst;
    // As Glorot & Bengio (2010), the matrix of all three as one.
    const drawn = (/** @type {number} */ rows, /** @type {number} */ columns) =>
      uniformParameter(OP, Math.sqrt(6 / (rows + columns)), [rows, columns]);
    if (kdim === embedDim && vdim === embedDim) this.in_proj_weight = drawn(3 * embedDim, embedDim);
    else {
      this.q_proj_weight = drawn(embedDim, embedDim);
      this.k_proj_weight = drawn(embedDim, kdim);
      this.v_proj_weight = drawn(embedDim, vdim);
    }
    if (bias) this.in_proj_bias = zeroParameter(OP, [3 * embedDim]);
    this.out_proj = within(OP, () => new Linear(embedDim, embedDim, { bias: false }));
    if (bias) this.out_proj.bias = zeroParameter(OP, [embedDim]);
  }

  /** The projected queries, keys and values. @param {Tensor[]} inputs [query, key, value] @returns {Tensor[]} */
  #projected(inputs) {
    const { embedDim: n, in_proj_weight: whole, in_proj_bias: bias } = this;
    if (whole && inputs.every((x) => x === inputs[0])) {
      const y = F.linear(inputs[0], whole, bias);
      return inputs.map((_, i) => F.slice(y, -1, i * n, (i + 1) * n));
    }
    const separate = [this.q_proj_weight, this.k_proj_weight, this.v_proj_weight];
    return inputs.map((x, i) => {
      const part = (/** @type {Tensor} */ all) => F.slice(all, 0, i * n, (i + 1) * n);
      const weight = /** @type {Tensor} */ (whole ? part(whole) : separate[i]);
      return F.linear(x, weight, bias && part(bias));
    });
  }

  /** One mask for all scores, [batch, heads, queries, keys] or what broadcasts to it. @param {MultiheadCallOptions} options @param {number[]} sizes */
  #mask({ attnMask, keyPaddingMask }, [batch, queries, keys]) {
    const masks = [];
    if (attnMask !== undefined) {
      const own = shownKeys('attnMask', attnMask);
      const each = [batch * this.numHeads, queries, keys];
      if (show(own.shape) === show([queries, keys])) masks.push(own);
      else if (show(own.shape) === show(each)) masks.push(F.reshape(own, [batch, this.numHeads, queries, keys]));
      else throw new ShapeError(OP, `attnMask must be ${show([queries, keys])} or ${show(each)}, got ${show(own.shape)}`);
    }
    if (keyPaddingMask !== undefined) {
      const own = shownKeys('keyPaddingMask', keyPaddingMask);
      if (show(own.shape) !== show([batch, keys]))
        throw new ShapeError(OP, `keyPaddingMask must be [batch, keys], ${show([batch, keys])}, got ${show(own.shape)}`);
      masks.push(F.reshape(own, [batch, 1, 1, keys]));
    }
    if (masks.length < 2) return masks[0];
    const [a, b] = masks[0].dtype === 'bool' ? masks : masks.toReversed();
    return a.dtype === 'bool' ? F.where(a, b, b.dtype === 'bool' ? 0 : -Infinity) : F.add(a, b);
  }

  /**
   * A query that attends to no key gets 0 before the last layer (PyTorch: NaN).
   * @param {Tensor} query [batch, queries, embedDim]; without a batch [queries, embedDim]
   * @param {Tensor} [key] [batch, keys, kdim]; the query when left out @param {Tensor} [value] [batch, keys, vdim]; the key when left out
   * @param {MultiheadCallOptions} [options]
   * @returns {[output: Tensor, weights: Tensor | undefined]} of the query's shape, and with `needWeights` [batch, queries, keys], or
   *   [batch, heads, queries, keys] where they are not averaged
   */
  forward(query, key = query, value = key, options = {}) {
    const names = /** @type {const} */ (['keyPaddingMask', 'attnMask', 'isCausal', 'needWeights', 'averageAttnWeights']);
    const given = checkOptions(OP, options, names);
    const { isCausal = false, needWeights = true, averageAttnWeights = true } = given;
    for (const [name, flagged] of Object.entries({ isCausal, needWeights, averageAttnWeights })) flag(OP, name, flagged);
    const { ndim } = tensorOf(OP, query);
    const { numHeads: heads, embedDim, batchFirst } = this;
    const inputs = [query, key, value];
    if ((ndim !== 2 && ndim !== 3) || inputs.some((x) => tensorOf(OP, x).ndim !== ndim))
      throw new ShapeError(
        OP,
        `expected inputs [batch, tokens, size] or [tokens, size], got ${inputs.map((x) => show(x.shape)).join(', ')}`,
      );
    return within(OP, () => {
      // The same tensor stays the same, so that one product projects it three ways.
      const seen = new Map(inputs.map((x) => [x, ndim === 2 ? F.unsqueeze(x, 0) : batchFirst ? x : F.transpose(x, 0, 1)]));
      const whole = inputs.map((x) => /** @type {Tensor} */ (seen.get(x)));
      const [batch, queries, keys] = [whole[0].shape[0], whole[0].shape[1], whole[1].shape[1]];
      if (whole.some((x) => x.shape[0] !== batch) || whole[2].shape[1] !== keys)
        throw new ShapeError(
          OP,
          `keys and values must be as many, for as many sequences, got ${inputs.map((x) => show(x.shape)).join(', ')}`,
        );
      if (isCausal && queries > keys) throw new ShapeError(OP, `isCausal: ${queries} queries for ${keys} keys`);
      const padding = ndim === 2 && given.keyPaddingMask ? { keyPaddingMask: F.unsqueeze(given.keyPaddingMask, 0) } : {};
      const mask = this.#mask({ ...given, ...padding }, [batch, queries, keys]);
      const [q, k, v] = this.#projected(whole).map((x) => F.transpose(F.reshape(x, [batch, x.shape[1], heads, embedDim / heads]), 1, 2));
      const dropoutP = this.training ? track(this, 'dropout', this.dropout) : 0;
      /** @type {Tensor} */
      let y;
      /** @type {Tensor | undefined} */
      let weights;
      if (needWeights) {
        const all = weightsOf(q, k, { isCausal, masks: mask ? [mask] : [], grouped: false });
        const kept = dropoutP > 0 ? F.dropout(all, dropoutP) : all;
        y = F.matmul(kept, v);
        const own = averageAttnWeights ? F.mean(kept, 1) : kept;
        weights = ndim === 2 ? F.squeeze(own, 0) : own;
      } else y = scaledDotProductAttention(q, k, v, { isCausal, mask, dropoutP });
      const out = this.out_proj.forward(F.reshape(F.transpose(y, 1, 2), [batch, queries, embedDim]));
      return [ndim === 2 ? F.squeeze(out, 0) : batchFirst ? out : F.transpose(out, 0, 1), weights];
    });
  }
}
