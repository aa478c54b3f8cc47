// Bags of rows of a table, and the bilinear layer.

import { ArgumentError, shown, within } from '../core/errors.mjs';
import { bilinear, embeddingBag } from '../api/network.mjs';
import { positive } from '../core/layout.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { Embedding, kaiming } from './layers.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('./layers.mjs').LinearOptions} LinearOptions */

/**
 * Options of `EmbeddingBag`.
 * @typedef {object} BagOptions
 * @property {'sum' | 'mean' | 'max'} [mode] how the rows of a bag become one; 'mean' when left out
 */

/** The sum, the mean or the largest of rows of a table, bag by bag. `weight` is [vocabulary, columns] and begins normal, as `Embedding`'s. */
export class EmbeddingBag extends Module {
  /** @param {number} vocabulary rows of the table @param {number} columns @param {BagOptions} [options] */
  constructor(vocabulary, columns, options = {}) {
    super();
    const { mode = 'mean' } = checkOptions('EmbeddingBag', options, ['mode']);
    if (!['sum', 'mean', 'max'].includes(mode))
      throw new ArgumentError('EmbeddingBag', `mode is 'sum', 'mean' or 'max', got ${shown(mode)}`);
    this.weight = within('EmbeddingBag', () => new Embedding(vocabulary, columns)).weight;
    this.mode = mode;
  }
  /**
   * @param {Tensor} ids i32 or u32: [bags, n], or [n] with `offsets`
   * @param {Tensor} [offsets] i32 or u32 [bags]: where each bag of [n] begins, from 0 on and not decreasing; a bag without ids gives zeros
   * @param {Tensor} [perSampleWeights] of the ids' shape: a factor on the row of each id; only with the mode 'sum'
   * @returns {Tensor} [bags, columns]
   */
  forward(ids, offsets, perSampleWeights) {
    return within('EmbeddingBag', () => embeddingBag(ids, this.weight, offsets, { mode: this.mode, perSampleWeights }));
  }
}

/** y[k] = a W[k] b + bias[k]. `weight` is [outputs, a's columns, b's columns], `bias` is [outputs]; both begin uniform in ±1 / √(a's columns). */
export class Bilinear extends Module {
  /**
   * @param {number} first a's last size @param {number} second b's last size @param {number} outputs the result's last size
   * @param {LinearOptions} [options]
   */
  constructor(first, second, outputs, options = {}) {
    super();
    const { bias = true } = checkOptions('Bilinear', options, ['bias']);
    for (const [name, value] of Object.entries({ first, second, outputs })) positive('Bilinear', name, value);
    flag('Bilinear', 'bias', bias);
    this.weight = kaiming('Bilinear', first, [outputs, first, second]);
    if (bias) this.bias = kaiming('Bilinear', first, [outputs]);
  }
  /** @param {Tensor} a [..., first] @param {Tensor} b [..., second] @returns {Tensor} [..., outputs] */
  forward(a, b) {
    return within('Bilinear', () => bilinear(a, b, this.weight, this.bias));
  }
}
