// Matrix products: what they compute, and how operands become such as this device's kernels take.

import { ArgumentError, ShapeError, show } from '../core/errors.mjs';
import { broadcastLayout, broadcastShapes, collapse, denseLayout, isFloat, sizeOf } from '../core/layout.mjs';
import { productAttributes } from '../core/precision.mjs';
import { runtime } from '../core/runtime.mjs';
import { floatType } from './pointwise.mjs';
import { sum } from './reduce.mjs';
import { at, generate, rowsOf } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** The arithmetic of f32 operands, f32 when left out. @typedef {{ precision?: 'bf16x3' }} ProductAttributes */

/** From this many multiplications on, matrix units are faster than f32 even where a size is odd (measured on an H200). */
const MIN_ODD = 2 ** 28;

/**
 * The type that a product of [m, k] × [k, n] is computed in: that of its operands, or f32 where they have 16 bits and this device has no
 * matrix units for them, or the sizes do not suit those.
 * @param {Tensor} a @param {Tensor} b @param {number} m @param {number} n @param {number} k
 * @returns {DType}
 */
export function computedType({ dtype }, b, m, n, k) {
  // `infer` throws for integers and for two types.
  if (dtype !== b.dtype || dtype === 'f32' || !isFloat(dtype)) return dtype;
  if (!runtime().kernels.matmulSupports(dtype)) return 'f32';
  const even = m % 2 === 0 && n % 2 === 0 && k % 2 === 0;
  return even || m * n * k >= MIN_ODD ? dtype : 'f32';
}

/**
 * How a matrix of the last two dimensions lies: row by row, or transposed; undefined where neither.
 * @param {Layout} layout
 * @returns {{ transposed: boolean, ld: number } | undefined}
 */
function matrixForm({ shape, strides }) {
  const d = shape.length - 1;
  const rows = shape[d - 1];
  const columns = shape[d];
  const rowStride = strides[d - 1];
  const columnStride = strides[d];
  if ((columnStride === 1 || columns === 1) && (rowStride >= columns || rows === 1)) {
    return { transposed: false, ld: rows === 1 ? columns : rowStride };
  }
  if ((rowStride === 1 || rows === 1) && (columnStride >= rows || columns === 1)) {
    return { transposed: true, ld: columns === 1 ? rows : columnStride };
  }
  return undefined;
}

/**
 * The one step between the matrices of a batch, or undefined where there is none.
 * @param {Layout} layout @param {readonly number[]} batch the broadcast leading sizes
 */
function batchStride(layout, batch) {
  if (batch.length === 0) return 0;
  const shape = [...batch, ...layout.shape.slice(-2)];
  const { shape: sizes, strides } = collapse(batch, [broadcastLayout(layout, shape).strides.slice(0, batch.length)]);
  return sizes.length === 1 ? strides[0][0] : undefined;
}

/** x, or a copy of it, whose rows or columns are dense. @param {Tensor} x */
const dense = (x) => (matrixForm(x.layout) ? x : x.contiguous());

/**
 * An operand that kernels can read: its rows or columns are dense, and its matrices are one stride apart. Copied where it is not one.
 * @param {Tensor} x @param {readonly number[]} batch the broadcast leading sizes
 * @returns {Tensor}
 */
function readable(x, batch) {
  const matrices = dense(x);
  if (batchStride(matrices.layout, batch) !== undefined) return matrices;
  return matrices.expand(...batch, ...x.shape.slice(-2)).contiguous();
}

/** Batches that one dispatch takes. */
const MAX_BATCH = 65535;

/** C = A B over the last two dimensions, the others broadcast. */
export const matmul = defineOp({
  name: 'matmul',
  strided: true,
  empty: 0,
  infer: ([a, b]) => {
    floatType('matmul', a);
    if (a.dtype !== b.dtype) throw new ArgumentError('matmul', `takes tensors of one type, got ${a.dtype} and ${b.dtype}`);
    const [m, k] = a.shape.slice(-2);
    const [inner, n] = b.shape.slice(-2);
    if (k !== inner) throw new ShapeError('matmul', `${show(a.shape)} × ${show(b.shape)}: the inner sizes ${k} and ${inner} differ`);
    return [denseLayout([...broadcastShapes('matmul', a.shape.slice(0, -2), b.shape.slice(0, -2)), m, n], a.dtype)];
  },
  prepare: ([a, b], run) => {
    const [rank, ofB] = [a.shape.length, b.shape.length];
    const [m, k, n] = [a.shape[rank - 2], a.shape[rank - 1], b.shape[ofB - 1]];
    const type = computedType(a, b, m, n, k);
    // Most products are of two dense matrices, and of small ones the host's time is all there is.
    if (rank === 2 && ofB === 2 && type === a.dtype && k > 1) return run([dense(a), dense(b)], productAttributes(type));
    const [x, y] = type === a.dtype ? [a, b] : [a.to(type), b.to(type)];
    if (a.size === 0 || b.size === 0) return run([x, y], productAttributes(type)).to(a.dtype);
    // All rows of a batch by one matrix are one product.
    const folds = x.ndim > 2 && y.ndim === 2;
    const rows = folds ? x.reshape(-1, k) : x;
    /** @returns {Tensor} */
    const multiplied = () => {
      // A column by a row: nothing is summed.
      if (k === 1 && type === 'f32' && y.dtype === type) return rows.mul(y);
      const batch = broadcastShapes('matmul', rows.shape.slice(0, -2), y.shape.slice(0, -2));
      return run([readable(rows, batch), readable(y, batch)], productAttributes(type));
    };
    const c = multiplied();
    return (folds ? c.reshape(...a.shape.slice(0, -1), n) : c).to(a.dtype);
  },
  flops: ([a], [c]) => 2 * c.size * (a.shape.at(-1) ?? 1),
  lower: (kernels, [a, b], [c], /** @type {ProductAttributes} */ { precision }) => {
    const batchShape = c.layout.shape.slice(0, -2);
    const [m, n] = c.layout.shape.slice(-2);
    const k = a.layout.shape.at(-1) ?? 1;
    const batch = sizeOf(batchShape);
    const type = floatType('matmul', c.layout);
    const [formA, formB] = [a, b].map(({ layout }) => matrixForm(layout));
    const [strideA, strideB] = [a, b].map(({ layout }) => batchStride(layout, batchShape));
    if (!formA || !formB || strideA === undefined || strideB === undefined) {
      throw new ArgumentError('matmul', 'no kernel reads operands of these strides: call contiguous() on them');
    }
    /** @param {number} first @param {number} count */
    const part = (first, count) =>
      kernels.matmul({
        a: { buffer: a.buffer, offset: a.offset + first * strideA },
        b: { buffer: b.buffer, offset: b.offset + first * strideB },
        c: { buffer: c.buffer, offset: c.offset + first * m * n },
        m,
        n,
        k,
        transA: formA.transposed,
        transB: formB.transposed,
        lda: formA.ld,
        ldb: formB.ld,
        batch: count,
        strideA,
        strideB,
        aType: type,
        bType: type,
        cType: type,
        precision,
      });
    const list = [];
    for (let first = 0; first < batch; first += MAX_BATCH) list.push(part(first, Math.min(MAX_BATCH, batch - first)));
    return list;
  },
  saveInputs: ([a, b]) => [...(b ? [0] : []), ...(a ? [1] : [])],
  vjp: (dy, { inputs: [a, b], layouts, needs }, F) => [
    needs[0] ? F.sumTo(F.matmul(dy, F.transpose(b, -2, -1)), layouts[0].shape) : undefined,
    needs[1] ? F.sumTo(F.matmul(F.transpose(a, -2, -1), dy), layouts[1].shape) : undefined,
  ],
  oracle: ([a, b]) => {
    const batch = broadcastShapes('matmul', a.shape.slice(0, -2), b.shape.slice(0, -2));
    const inner = a.shape.at(-1) ?? 1;
    return generate([...batch, a.shape.at(-2) ?? 1, b.shape.at(-1) ?? 1], (index) => {
      const lead = index.slice(0, -2);
      const [i, j] = index.slice(-2);
      let sum = 0;
      for (let k = 0; k < inner; k++) sum += at(a, [...lead, i, k]) * at(b, [...lead, k, j]);
      return sum;
    });
  },
});

/** y = x Wᵀ + bias over rows: x [..., in], W [out, in], bias [out]. W may lie transposed in memory. */
export const linear = defineOp({
  name: 'linear',
  strided: true,
  empty: ([, , bias]) => [bias ?? 0],
  infer: ([x, w, bias]) => {
    floatType('linear', x);
    const inner = x.shape.at(-1);
    if (w.shape.length !== 2 || w.shape[1] !== inner) {
      throw new ShapeError('linear', `${show(x.shape)} × ${show(w.shape)}ᵀ: the inner sizes ${inner} and ${w.shape.at(-1)} differ`);
    }
    if (x.dtype !== w.dtype) throw new ArgumentError('linear', `takes tensors of one type, got ${x.dtype} and ${w.dtype}`);
    if (bias && (bias.shape.length !== 1 || bias.shape[0] !== w.shape[0] || bias.dtype !== 'f32')) {
      throw new ShapeError('linear', `${w.shape[0]} outputs need a bias f32 [${w.shape[0]}], got ${bias.dtype} ${show(bias.shape)}`);
    }
    return [denseLayout([...x.shape.slice(0, -1), w.shape[0]], x.dtype)];
  },
  prepare: ([x, w, bias], run) => {
    const [n, k] = w.shape;
    const type = computedType(x, w, rowsOf(x.shape)[0], n, k);
    const operands = (type === x.dtype ? [x, w] : [x.to(type), w.to(type)]).map((each, i) => (i === 0 ? each.contiguous() : dense(each)));
    return run(bias ? [...operands, bias.contiguous()] : operands, productAttributes(type)).to(x.dtype);
  },
  flops: ([x, w]) => 2 * x.size * w.shape[0],
  lower: (kernels, [x, w, bias], [y], /** @type {ProductAttributes} */ { precision }) => {
    const [m, k] = rowsOf(x.layout.shape);
    const type = floatType('linear', x.layout);
    const form = matrixForm(w.layout);
    if (!form || !x.layout.contiguous) throw new ArgumentError('linear', 'no kernel reads operands of these strides');
    return [
      kernels.matmul({
        a: x,
        b: w,
        c: y,
        m,
        n: w.layout.shape[0],
        k,
        transB: !form.transposed,
        ldb: form.ld,
        bias,
        aType: type,
        bType: type,
        cType: type,
        precision,
      }),
    ];
  },
  saveInputs: ([x, w]) => [...(w ? [0] : []), ...(x ? [1] : [])],
  vjp: (dy, { inputs: [x, w], layouts, needs }, F) => {
    // Sums take rows of halves by pairs.
    const pairs = (/** @type {import('../api/tensor.mjs').Tensor} */ y) => (layouts[1].shape[0] % 2 ? F.to(y, 'f32') : y);
    const rows = (/** @type {import('../api/tensor.mjs').Tensor} */ t) => F.reshape(t, rowsOf(t.shape));
    return [
      needs[0] ? F.reshape(F.matmul(rows(dy), w), layouts[0].shape) : undefined,
      needs[1] ? F.matmul(F.transpose(rows(dy), 0, 1), rows(x)) : undefined,
      // Of 16-bit gradients, too, the sum is f32.
      needs[2] ? F.reshape(F.call(sum, [pairs(rows(dy).contiguous())], { dims: [0], alpha: 1 }), layouts[2].shape) : undefined,
    ];
  },
  oracle: ([x, w, bias]) => {
    const [, inner] = rowsOf(x.shape);
    return generate([...x.shape.slice(0, -1), w.shape[0]], (index) => {
      const lead = index.slice(0, -1);
      const n = index[index.length - 1];
      let sum = bias ? bias.data[n] : 0;
      for (let k = 0; k < inner; k++) sum += at(x, [...lead, k]) * at(w, [n, k]);
      return sum;
    });
  },
});
