// Adapters beside a layer as a function.

import { apply, tensorOf } from '../core/engine.mjs';
import { ArgumentError, describe, within } from '../core/errors.mjs';
import { isFloat } from '../core/layout.mjs';
import { checkFinite, checkOptions } from '../core/options.mjs';
import { adapt as op } from '../ops/adapters.mjs';
import { operand } from './operands.mjs';
import { to } from './views.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/**
 * A low-rank adapter.
 * @typedef {object} LowRank
 * @property {Tensor} a [rank, in]
 * @property {Tensor} b [outputs, rank]
 * @property {number} [scale] a factor on what it adds; 1 when left out
 * @property {number} [row] the first column of the result that it adds to, which is the first row of the weight that it stands beside; 0 when left out
 */

/** Whether matrices are one in memory: each begins where the one before ends. @param {Tensor[]} matrices */
const isJoined = (matrices) =>
  matrices.every(({ storage, layout }, i) => {
    if (!layout.contiguous) return false;
    const before = matrices[i - 1];
    return before === undefined || (storage === before.storage && layout.offset === before.layout.offset + before.layout.size);
  });

/**
 * The result of a linear layer and what adapters add to it (LoRA, Hu et al. 2021): y + scale · (x Aᵀ) Bᵀ, for each adapter in its own columns.
 * @param {Tensor | ((x: Tensor) => Tensor)} y [..., out], the result of the layer, or a function that computes it of x: it gets x in the type of products
 *   (`autocast`), so that x is converted once, and so are the gradients that both have of it
 * @param {Tensor} x [..., in], the layer's input
 * @param {readonly LowRank[]} adapters at least one
 * @returns {Tensor} of the result's shape and type
 * @throws {ShapeError} if sizes do not fit; {ArgumentError} for other arguments
 */
export function adapt(y, x, adapters) {
  tensorOf('adapt', x);
  if (typeof y !== 'function') tensorOf('adapt', y);
  if (!Array.isArray(adapters) || adapters.length === 0)
    throw new ArgumentError('adapt', `adapters must be an array of at least one { a, b, scale, row }, got ${describe(adapters)}`);
  const list = adapters.map((each) => {
    const { a, b, scale = 1, row = 0 } = checkOptions('adapt', each, ['a', 'b', 'scale', 'row']);
    for (const matrix of [a, b]) tensorOf('adapt', matrix);
    if (!Number.isInteger(row) || row < 0) throw new ArgumentError('adapt', `row must be an integer of at least 0, got ${String(row)}`);
    return { a, b, scale: checkFinite('adapt', 'scale', scale), row };
  });
  return within('adapt', () => {
    const [input, ...matrices] = [x, ...list.map(({ a }) => a), ...list.map(({ b }) => b)].map((each) => operand(each));
    const result = typeof y === 'function' ? tensorOf('adapt', y(input)) : y;
    if (!isFloat(result.dtype)) throw new ArgumentError('adapt', `y must be f32, f16 or bf16, got ${result.dtype}`);
    // As PyTorch promotes them: f32 where types differ.
    const type = matrices.every(({ dtype }) => dtype === input.dtype) ? input.dtype : 'f32';
    const own = [result, input, ...matrices].map((each) => to(each, type));
    const attributes = { rows: list.map(({ row }) => row), scales: list.map(({ scale }) => scale) };
    const joined = list.length > 1 && isJoined(own.slice(2, 2 + list.length));
    return to(apply(op, own, { ...attributes, ...(joined ? { joined } : {}) }), result.dtype);
  });
}
