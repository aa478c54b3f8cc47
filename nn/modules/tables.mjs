// Bags of rows of a table, and the bilinear layer.

import { constant } from '../core/tensor.mjs';
import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import * as F from '../api/functional.mjs';
import { scatterReduce, searchsorted } from '../api/sorting.mjs';
import { denseLayout, positive } from '../core/layout.mjs';
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
   * @returns {Tensor} [bags, columns]
   */
  forward(ids, offsets) {
    const op = 'EmbeddingBag';
    const { ndim } = tensorOf(op, ids);
    if (offsets === undefined) {
      if (ndim !== 2 || ids.size === 0) throw new ShapeError(op, `expected ids [bags, n], or [n] and offsets, got ${show(ids.shape)}`);
      return within(op, () => {
        const rows = F.embedding(ids, this.weight);
        return this.mode === 'sum' ? F.sum(rows, 1) : this.mode === 'mean' ? F.mean(rows, 1) : F.amax(rows, 1);
      });
    }
    if (ndim !== 1 || tensorOf(op, offsets).ndim !== 1 || offsets.size === 0)
      throw new ShapeError(op, `expected ids [n] and offsets [bags], got ${show(ids.shape)} and ${show(offsets.shape)}`);
    if (offsets.dtype !== 'i32' && offsets.dtype !== 'u32') throw new ArgumentError(op, `offsets must be i32 or u32, got ${offsets.dtype}`);
    return within(op, () => {
      const rows = F.embedding(ids, this.weight);
      // The bag of each id is the last that begins at it or before; ids before the first are in none.
      const at = constant(
        Int32Array.from({ length: ids.size }, (_, i) => i),
        denseLayout([ids.size], 'i32'),
      );
      const behind = searchsorted(F.to(offsets, 'i32'), at, { right: true });
      const bags = F.where(F.gt(behind, 0), F.sub(behind, 1), offsets.size);
      const start = F.zeros([offsets.size, rows.shape[1]]);
      const reduce = this.mode === 'max' ? 'amax' : this.mode;
      return scatterReduce(start, 0, F.expand(F.unsqueeze(bags, 1), rows.shape), rows, reduce, { includeSelf: false });
    });
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
    const [outputs, first, second] = this.weight.shape;
    tensorOf('Bilinear', a);
    tensorOf('Bilinear', b);
    if (a.shape.at(-1) !== first || b.shape.at(-1) !== second || show(a.shape.slice(0, -1)) !== show(b.shape.slice(0, -1)))
      throw new ShapeError('Bilinear', `expected [..., ${first}] and [..., ${second}], got ${show(a.shape)} and ${show(b.shape)}`);
    return within('Bilinear', () => {
      // a W for all outputs by one product, then a sum over b's columns.
      const matrix = F.reshape(F.permute(this.weight, [0, 2, 1]), [outputs * second, first]);
      const both = F.reshape(F.linear(a, matrix), [...a.shape.slice(0, -1), outputs, second]);
      const y = F.sum(F.mul(both, F.unsqueeze(b, -2)), -1);
      return this.bias ? F.add(y, this.bias) : y;
    });
  }
}
