// Cross-entropy of a linear layer's outputs, the logits, of which only a block of rows is in memory at once.

import { ArgumentError, ShapeError, show } from '../core/errors.mjs';
import { BYTES, denseLayout } from '../core/layout.mjs';
import { floatType, times } from './pointwise.mjs';
import { rowsOf } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../core/layout.mjs').DType} DType */
/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../../kernels/index.mjs').Kernels} Kernels */
/** @typedef {import('./registry.mjs').Operand} Operand */
/** @typedef {import('./registry.mjs').Reference} Reference */

/**
 * @typedef {object} BlockAttributes
 * @property {number} block rows of logits in memory at once
 * @property {number} ignored the target of rows that have no loss
 * @property {DType} weightType of the gradient of the weight: that of the user's weight, which may have been converted for the product
 * @property {'bf16x3'} [precision] the arithmetic of f32 operands, f32 when left out
 */
/**
 * @typedef {BlockAttributes & {
 *   scale: number,
 *   wants: [x: boolean, weight: boolean],
 *   factor?: number,
 *   accumulate?: boolean,
 *   permuted?: boolean,
 * }} SumAttributes `scale`: factor on the sum of losses; `wants`: whose gradients are computed. Passes of `compile` set the others: `factor`
 *   is one on the gradients alone, with `accumulate` that of the weight is added to what is there, and with `permuted` the last input is the
 *   weight with its rows permuted, for the products that compute logits
 */

/** Rows of a block are a multiple of this where that many fit: whole tiles of the products. */
const TILE_ROWS = 256;
/** Rows of logits in memory begin at a multiple of this many elements: products on matrix units read them as such. */
const ALIGNMENT = 8;

/** Elements from row to row of logits in memory. @param {number} classes */
const strideOf = (classes) => Math.ceil(classes / ALIGNMENT) * ALIGNMENT;

/**
 * How many rows of logits are computed at once: as many as fit, in blocks of about one size.
 * @param {number} rows @param {number} classes @param {DType} dtype of the logits @param {number} bytes for them
 */
export function blockRows(rows, classes, dtype, bytes) {
  const fit = Math.floor(bytes / (BYTES[dtype] * strideOf(classes)));
  if (fit >= rows) return rows;
  // An even number: kernels read halves in pairs.
  const step = fit >= TILE_ROWS ? TILE_ROWS : 2;
  const most = Math.max(step, fit - (fit % step));
  return Math.ceil(rows / Math.ceil(rows / most) / step) * step;
}

/** @param {Operand} operand @param {number} elements */
const from = ({ buffer, offset }, elements) => ({ buffer, offset: offset + elements });

/** Checks the inputs, and returns the number of rows and that of classes. @param {Layout[]} inputs */
function sizesOf([x, weight, targets]) {
  const op = 'linearCrossEntropy';
  floatType(op, x);
  const inner = x.shape.at(-1);
  if (weight.shape.length !== 2 || weight.shape[1] !== inner) {
    throw new ShapeError(op, `${show(x.shape)} × ${show(weight.shape)}ᵀ: inner sizes ${inner}, ${weight.shape.at(-1)}`);
  }
  if (x.dtype !== weight.dtype) throw new ArgumentError(op, `takes tensors of one type, got ${x.dtype} and ${weight.dtype}`);
  if (targets.dtype !== 'u32' && targets.dtype !== 'i32') {
    throw new ArgumentError(op, `targets are class numbers, i32 or u32, got ${targets.dtype}`);
  }
  if (show(targets.shape) !== show(x.shape.slice(0, -1))) {
    throw new ShapeError(op, `targets ${show(targets.shape)} for rows ${show(x.shape)}, expected ${show(x.shape.slice(0, -1))}`);
  }
  return { rows: rowsOf(x.shape)[0], classes: weight.shape[0] };
}

/**
 * For each block of rows, the product that computes its logits and what `use` does with them.
 * @param {Kernels} k @param {Operand[]} inputs @param {Operand} logits [block, stride] @param {BlockAttributes} attributes
 * @param {(first: number, rows: number, sizes: ReturnType<typeof productSizes>) => (import('../../kernels/base.mjs').Dispatch |
 *   import('../../kernels/base.mjs').Dispatch[])[]} use
 * @param {Operand} [permuted] the weight with its rows permuted
 */
function byBlocks(k, [x, weight], logits, { block, precision }, use, permuted) {
  const sizes = productSizes(x, weight, logits, precision);
  const { rows, inner, classes, stride, types } = sizes;
  const list = [];
  for (let first = 0; first < rows; first += block) {
    const m = Math.min(block, rows - first);
    const a = from(x, first * inner);
    const b = permuted ? { b: permuted, bPermuted: true } : { b: weight };
    list.push(k.matmul({ a, ...b, c: logits, m, n: classes, k: inner, transB: true, ldc: stride, ...types }), ...use(first, m, sizes));
  }
  return list;
}

/** @param {Operand} x @param {Operand} weight @param {Operand} logits @param {'bf16x3' | undefined} precision */
function productSizes(x, weight, logits, precision) {
  const [rows, inner] = rowsOf(x.layout.shape);
  const type = floatType('linearCrossEntropy', x.layout);
  const types = { aType: type, bType: type, cType: type, precision };
  return { rows, inner, classes: weight.layout.shape[0], stride: logits.layout.shape[1], type, types };
}

/** The losses of rows in float64. @param {Reference[]} inputs @param {number} ignored */
function losses([x, weight, targets], ignored) {
  const [, inner] = rowsOf(x.shape);
  const [classes] = weight.shape;
  return Array.from(targets.data, (target, r) => {
    if (target === ignored || !(target >= 0 && target < classes)) return 0;
    const row = Array.from({ length: classes }, (_, c) => {
      let sum = 0;
      for (let i = 0; i < inner; i++) sum += x.data[r * inner + i] * weight.data[c * inner + i];
      return sum;
    });
    const largest = row.reduce((a, b) => Math.max(a, b), -Infinity);
    return largest + Math.log(row.reduce((sum, v) => sum + Math.exp(v - largest), 0)) - row[target];
  });
}

/**
 * scale · Σ log Σ exp(x Wᵀ) - (x Wᵀ)[target], with its gradients: those of a block's logits overwrite them, and are multiplied into the
 * gradients of x and of the weight at once (Hsu et al. 2024, Liger Kernel). A fourth input of x's shape takes its place in the gradient of
 * the weight. An output that is not wanted has one element.
 */
export const linearCrossEntropy = defineOp({
  name: 'linearCrossEntropy',
  infer: (inputs, /** @type {SumAttributes} */ { block, wants }) => {
    const { rows, classes } = sizesOf(inputs);
    const [x, weight] = inputs;
    return [
      denseLayout([], 'f32'),
      denseLayout(wants[0] ? x.shape : [1], x.dtype),
      denseLayout(wants[1] ? weight.shape : [1], 'f32'),
      denseLayout([rows], 'f32'),
      denseLayout([block, strideOf(classes)], x.dtype),
    ];
  },
  lower: (k, inputs, outputs, { scale, factor = 1, wants, accumulate = false, permuted = false, ignored, ...blocks }) => {
    const [x, weight, targets, weighted = x] = permuted ? inputs.slice(0, -1) : inputs;
    const [loss, dx, dWeight, lossOfRows, logits] = outputs;
    /** @type {Parameters<typeof byBlocks>[4]} */
    const gradients = (first, m, { inner, classes, stride, type, types }) => {
      // f16 has no gradients as small as those of a mean: there the products' results are scaled, not the gradients of logits.
      const [before, alpha] = type === 'f16' ? [1, scale * factor] : [scale * factor, 1];
      const a = { a: logits, lda: stride, alpha };
      const sizes = { rows: m, columns: classes, rowStride: stride };
      return [
        k.crossEntropy({ logits, targets: from(targets, first), loss: from(lossOfRows, first), ...sizes, scale: before, type, ignored }),
        ...(wants[0] ? [k.matmul({ ...a, b: weight, c: from(dx, first * inner), m, n: inner, k: classes, ...types })] : []),
        ...(wants[1]
          ? [
              k.matmul({
                ...a,
                transA: true,
                b: from(weighted, first * inner),
                c: dWeight,
                m: classes,
                n: inner,
                k: m,
                beta: accumulate || first > 0 ? 1 : 0,
                ...types,
                cType: 'f32',
              }),
            ]
          : []),
      ];
    };
    const list = byBlocks(k, inputs, logits, { ignored, ...blocks }, gradients, permuted ? inputs.at(-1) : undefined);
    return [...list, k.reduceAll({ x: lossOfRows, y: loss, count: lossOfRows.layout.size, alpha: scale, type: 'f32' })];
  },
  flops: ([x, weight], _, { wants }) => 2 * x.size * weight.shape[0] * (1 + Number(wants[0]) + Number(wants[1])),
  saveOutputs: [1, 2],
  vjp: (dy, { outputs: [, dx, dWeight], attributes: { wants, weightType } }, F) => [
    wants[0] ? F.call(times, [dx, dy]) : undefined,
    wants[1] ? F.to(F.call(times, [dWeight, dy]), weightType) : undefined,
    undefined,
  ],
  oracle: (inputs, { scale, ignored }) => ({
    shape: [],
    data: Float64Array.of(losses(inputs, ignored).reduce((sum, loss) => sum + loss * scale, 0)),
  }),
});

/** The losses of rows, f32. Their gradient computes the logits again: it depends on a factor for each row, which is not known before. */
export const linearCrossEntropyRows = defineOp({
  name: 'linearCrossEntropyRows',
  infer: (inputs, /** @type {BlockAttributes} */ { block }) => {
    const { classes } = sizesOf(inputs);
    return [denseLayout(inputs[2].shape, 'f32'), denseLayout([block, strideOf(classes)], inputs[0].dtype)];
  },
  lower: (k, inputs, [loss, logits], attributes) =>
    byBlocks(k, inputs, logits, attributes, (first, m, { classes, stride, type }) => [
      k.crossEntropyForward({
        logits,
        targets: from(inputs[2], first),
        loss: from(loss, first),
        rows: m,
        columns: classes,
        rowStride: stride,
        type,
        ignored: attributes.ignored,
      }),
    ]),
  flops: ([x, weight]) => 2 * x.size * weight.shape[0],
  saveInputs: () => [0, 1, 2],
  vjp: (dy, { inputs: [x, weight, targets], attributes, needs }, F) => {
    const factors = F.unsqueeze(dy, -1);
    const weighted = needs[1] ? [F.to(F.mul(x, factors), x.dtype)] : [];
    const wants = [needs[0], needs[1]];
    const [, dx, dWeight] = F.callAll(linearCrossEntropy, [x, weight, targets, ...weighted], { ...attributes, scale: 1, wants });
    return [
      needs[0] ? F.to(F.mul(dx, factors), x.dtype) : undefined,
      needs[1] ? F.to(dWeight, attributes.weightType) : undefined,
      undefined,
    ];
  },
  oracle: (inputs, { ignored }) => ({ shape: inputs[2].shape, data: Float64Array.from(losses(inputs, ignored)) }),
});
