// Matrix products by PyTorch's rules of shapes and types. What a device wants of operands is in `ops/matmul.mjs`.

import { apply, tensorOf } from '../core/engine.mjs';
import { ShapeError, show, within } from '../core/errors.mjs';
import { isFloat } from '../core/layout.mjs';
import * as products from '../ops/matmul.mjs';
import * as pointwise from '../ops/pointwise.mjs';
import { binary } from './binary.mjs';
import { integerMatmul } from './integer-products.mjs';
import { operand, promoted } from './operands.mjs';
import { reshape, transpose, unsqueeze } from './views.mjs';

/** @typedef {import('./tensor.mjs').Tensor} Tensor */

/**
 * The matrix product, as `torch.matmul`: [..., m, k] × [..., k, n] → [..., m, n]. Leading sizes broadcast. A vector is a row on the left
 * and a column on the right, and the result is without that dimension: two vectors of one size give a number, of shape [].
 * Floating types are promoted to f32 where they differ; the result has that type. Products of integers, of one type, are exact and wrap.
 * @param {Tensor} a @param {Tensor} b
 * @returns {Tensor}
 * @throws {ShapeError} if inner sizes differ, leading ones do not broadcast, or an operand has no dimension
 */
export function matmul(a, b) {
  tensorOf('matmul', a);
  tensorOf('matmul', b);
  return within('matmul', () => product(operand(a), operand(b)));
}

/** Checks shapes as the program gave them. @param {readonly number[]} a @param {readonly number[]} b */
function checkProduct(a, b) {
  if (a.length === 0 || b.length === 0) throw new ShapeError('matmul', `${show(a)} × ${show(b)}: a tensor [] is no matrix; use mul`);
  const [k, inner] = [a[a.length - 1], b[Math.max(b.length - 2, 0)]];
  if (k !== inner) throw new ShapeError('matmul', `${show(a)} × ${show(b)}: the inner sizes ${k} and ${inner} differ`);
  for (let i = 3; i <= Math.min(a.length, b.length); i++) {
    const [own, other] = [a[a.length - i], b[b.length - i]];
    if (own !== other && own !== 1 && other !== 1) {
      throw new ShapeError('matmul', `${show(a)} × ${show(b)} do not broadcast: sizes ${own} and ${other} in dimension -${i}`);
    }
  }
}

/** @param {Tensor} a @param {Tensor} b @returns {Tensor} */
function product(a, b) {
  checkProduct(a.shape, b.shape);
  const [x, y] = promoted(a, b);
  const [isRow, isColumn] = [a.ndim === 1, b.ndim === 1];
  const operands = [isRow ? unsqueeze(x, 0) : x, isColumn ? unsqueeze(y, 1) : y];
  const c = isFloat(x.dtype) && isFloat(y.dtype) ? apply(products.matmul, operands) : integerMatmul(operands[0], operands[1]);
  if (!isRow && !isColumn) return c;
  const added = [isRow ? c.ndim - 2 : -1, isColumn ? c.ndim - 1 : -1];
  return reshape(
    c,
    c.shape.filter((_, d) => !added.includes(d)),
  );
}

/**
 * x Wᵀ + bias.
 * @param {Tensor} x [..., in] @param {Tensor} weight [out, in] @param {Tensor} [bias] f32 [out], or of integers of the others' type
 * @returns {Tensor} [..., out], of the type that x and the weight are promoted to
 */
export function linear(x, weight, bias) {
  tensorOf('linear', x);
  tensorOf('linear', weight);
  if (bias) tensorOf('linear', bias);
  return within('linear', () => {
    if (!isFloat(x.dtype) && x.dtype === weight.dtype && weight.ndim === 2) {
      const y = product(x, transpose(weight, 0, 1));
      return bias ? binary(pointwise.add, y, bias) : y;
    }
    const operands = promoted(operand(x), operand(weight));
    return apply(products.linear, bias ? [...operands, bias] : operands);
  });
}
