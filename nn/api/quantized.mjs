// Frozen weights of 8 bits with a scale for 32 of them (q8_0 of llama.cpp): gradients flow through their products to the input alone.

import { apply, tensorOf } from '../core/engine.mjs';
import { ArgumentError, show, within } from '../core/errors.mjs';
import { isFloat } from '../core/layout.mjs';
import { noGrad } from '../core/node.mjs';
import { checkOptions } from '../core/options.mjs';
import { productAttributes } from '../core/precision.mjs';
import { scope } from '../core/scope.mjs';
import { BLOCK, linearQ8 as product } from '../ops/quantized.mjs';
import { abs, add, amax, maximum, mul, reciprocal } from './functional.mjs';
import { round } from './math.mjs';
import { operand } from './operands.mjs';
import { reshape, to } from './views.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/**
 * A matrix in q8_0: an element is its quant times the scale of its 32 neighbours.
 * @typedef {object} Quantized
 * @property {Tensor} quants i8 [rows, columns]
 * @property {Tensor} scales f16 [rows, columns / 32]
 */

/**
 * Quantizes a matrix by llama.cpp's rule: of 32 neighbours in a row, d = max |x| / 127, and each is round(x / d); d is kept as f16. Neighbours
 * that are all 0 give 0. There is no gradient.
 * @param {Tensor} x f32, f16 or bf16 [rows, columns], columns a multiple of 32
 * @returns {Quantized}
 * @throws {ArgumentError} for another type or shape
 */
export function quantizeQ8(x) {
  const { ndim, shape, dtype } = tensorOf('quantizeQ8', x);
  if (!isFloat(dtype) || ndim !== 2 || shape[1] % BLOCK)
    throw new ArgumentError('quantizeQ8', `takes floats [rows, columns], columns a multiple of ${BLOCK}, got ${dtype} ${show(shape)}`);
  const [rows, columns] = shape;
  return within('quantizeQ8', () =>
    noGrad(() =>
      scope(() => {
        const blocks = reshape(to(x, 'f32'), [rows, columns / BLOCK, BLOCK]);
        const d = mul(amax(abs(blocks), -1, true), 1 / 127);
        // Of zeros, which stay zeros, the reciprocal would be infinite.
        const quants = to(round(mul(blocks, reciprocal(maximum(d, 1e-30)))), 'i8');
        return { quants: reshape(quants, [rows, columns]), scales: to(reshape(d, [rows, columns / BLOCK]), 'f16') };
      }),
    ),
  );
}

/**
 * The matrix that q8_0 represents. There is no gradient.
 * @param {Quantized} weight @returns {Tensor} f32 [rows, columns]
 */
export function dequantizeQ8(weight) {
  const { quants, scales } = checkOptions('dequantizeQ8', weight, ['quants', 'scales']);
  if (tensorOf('dequantizeQ8', quants).dtype !== 'i8') throw new ArgumentError('dequantizeQ8', `quants must be i8, got ${quants.dtype}`);
  if (tensorOf('dequantizeQ8', scales).dtype !== 'f16') throw new ArgumentError('dequantizeQ8', `scales must be f16, got ${scales.dtype}`);
  const [rows, columns] = quants.shape;
  if (quants.ndim !== 2 || String(scales.shape) !== String([rows, columns / BLOCK]))
    throw new ArgumentError(
      'dequantizeQ8',
      `quants are [rows, columns], scales [rows, columns / ${BLOCK}], got ${show(quants.shape)} and ${show(scales.shape)}`,
    );
  return within('dequantizeQ8', () =>
    noGrad(() =>
      scope(() => {
        const blocks = reshape(to(quants, 'f32'), [rows, columns / BLOCK, BLOCK]);
        return reshape(mul(blocks, reshape(to(scales, 'f32'), [rows, columns / BLOCK, 1])), [rows, columns]);
      }),
    ),
  );
}

/**
 * x Wᵀ + bias with a weight in q8_0, which is decoded for each product into memory that all of them share: the forward pass keeps no copy of it
 * for the backward pass. x and the bias get gradients, the weight gets none.
 * @param {Tensor} x f32, f16 or bf16 [..., in] @param {Quantized} weight [out, in], as `quantizeQ8` returns it
 * @param {Tensor} [bias] f32 [out]
 * @returns {Tensor} [..., out], of x's type, under `autocast` of that
 * @throws {ShapeError} if the sizes do not fit; {ArgumentError} for other types
 */
export function linearQ8(x, weight, bias) {
  tensorOf('linearQ8', x);
  const { quants, scales } = checkOptions('linearQ8', weight, ['quants', 'scales']);
  for (const tensor of [quants, scales, ...(bias === undefined ? [] : [bias])]) tensorOf('linearQ8', tensor);
  return within('linearQ8', () => {
    const y = apply(product, [operand(x), quants, scales], { transposed: false, ...productAttributes('f32') });
    return bias === undefined ? y : to(add(y, bias), y.dtype);
  });
}
