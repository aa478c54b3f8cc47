// Low-rank adapters beside a layer (LoRA, Hu et al. 2021): each adds scale · (x Aᵀ) Bᵀ to its own columns of the layer's result. A product of a
// rank adds to what lies in memory, so that no pass reads and writes the result again; `compile` has it add to the layer's result in place.

import { ArgumentError, ShapeError, show } from '../core/errors.mjs';
import { denseLayout, layoutOf } from '../core/layout.mjs';
import { productAttributes } from '../core/precision.mjs';
import { runtime } from '../core/runtime.mjs';
import { move } from './movement.mjs';
import { flatCount, floatType } from './pointwise.mjs';
import { at, generate, rowsOf } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('../../kernels/index.mjs').Kernels} Kernels */
/** @typedef {import('./registry.mjs').Operand} Operand */

/**
 * @typedef {object} AdaptAttributes
 * @property {number[]} rows the first column of the result that each adapter adds to: the first row of the weight that it stands beside
 * @property {number[]} scales
 * @property {boolean} [joined] whether the matrices A lie one after another in memory, as one
 * @property {boolean} [inPlace] whether the result's memory holds the layer's result; set by `compile`
 * @property {boolean} [residual] whether the last input, f32 of the result's shape, is added too; each column belongs to one adapter then. Set by
 *   `compile`
 * @property {boolean} [accumulate] whether the gradient of the input is added to what is there; set by `compile`
 * @property {'bf16x3'} [precision] the arithmetic of f32 operands, f32 when left out
 */

/** A part of an operand, from an element on. @param {Operand} operand @param {number} elements */
const from = ({ buffer, offset }, elements) => ({ buffer, offset: offset + elements });

/**
 * What adapters are as products: rank, outputs and first column among the ranks of each, and the sum of ranks.
 * @param {Layout[]} as of the matrices A, or of their gradients @param {Layout[]} bs
 */
function placed(as, bs) {
  let total = 0;
  const parts = as.map(({ shape: [rank] }, i) => ({ rank, outputs: bs[i].shape[0], column: (total += rank) - rank }));
  return { parts, total };
}

/** What is of A, and what of B, of all adapters. @template T @param {T[]} list A's, then B's @returns {[T[], T[]]} */
const split = (list) => [list.slice(0, list.length / 2), list.slice(list.length / 2)];

/** Whether matrix units can multiply: 16-bit elements lie in pairs. @param {number[]} sizes */
const evens = (sizes) => sizes.every((size) => size % 2 === 0);

/** @param {string} op @param {Layout} y @param {Layout} x @param {Layout[]} matrices @param {AdaptAttributes} attributes */
function check(op, y, x, matrices, { rows, scales }) {
  const [inner, n] = [x.shape.at(-1) ?? 1, y.shape.at(-1) ?? 1];
  if (matrices.length === 0 || rows.length * 2 !== matrices.length || scales.length !== rows.length)
    throw new ArgumentError(op, `takes A and B of at least one adapter, got ${matrices.length} matrices`);
  if (y.shape.length !== x.shape.length || show(y.shape.slice(0, -1)) !== show(x.shape.slice(0, -1)))
    throw new ShapeError(op, `a result ${show(y.shape)} has other rows than its layer's input ${show(x.shape)}`);
  const [as, bs] = split(matrices);
  for (const [i, a] of as.entries()) {
    const b = bs[i];
    if (a.shape.length !== 2 || b.shape.length !== 2 || a.shape[1] !== inner || b.shape[1] !== a.shape[0])
      throw new ShapeError(
        op,
        `inputs of ${inner} need a [rank, ${inner}] and b [outputs, rank], got ${show(a.shape)} and ${show(b.shape)}`,
      );
    if (a.shape[0] === 0 || b.shape[0] === 0)
      throw new ShapeError(op, `an adapter has a rank and outputs of at least 1, got a ${show(a.shape)} and b ${show(b.shape)}`);
    if (!Number.isInteger(rows[i]) || rows[i] < 0 || rows[i] + b.shape[0] > n)
      throw new ShapeError(op, `row must be an integer from 0 with which ${b.shape[0]} outputs lie in ${n}, got ${rows[i]}`);
  }
  for (const { dtype } of [y, ...matrices])
    if (dtype !== x.dtype) throw new ArgumentError(op, `takes tensors of one type, got ${x.dtype} and ${dtype}`);
}

/** The products dU = scale · dy B of all adapters, side by side. Without a gradient of its own. */
const adaptBackward = defineOp({
  name: 'adaptBackward',
  empty: 0,
  infer: ([dy, ...bs]) => [denseLayout([...dy.shape.slice(0, -1), bs.reduce((sum, b) => sum + b.shape[1], 0)], dy.dtype)],
  flops: ([dy], [dU]) => (2 * dy.size * dU.size) / rowsOf(dU.shape)[0],
  lower: (k, [dy, ...bs], [dU], /** @type {AdaptAttributes} */ { rows, scales, precision }) => {
    const [m, n] = rowsOf(dy.layout.shape);
    const total = dU.layout.shape.at(-1) ?? 1;
    const type = floatType('adapt', dy.layout);
    let column = 0;
    return bs.map((b, i) => {
      const [outputs, rank] = b.layout.shape;
      column += rank;
      return k.matmul({
        ...{ a: from(dy, rows[i]), b, c: from(dU, column - rank), m, n: rank, k: outputs, lda: n, ldc: total, alpha: scales[i] },
        ...{ aType: type, bType: type, cType: type, precision },
      });
    });
  },
  oracle: () => {
    throw new Error('adaptBackward: the gradients of adapt are held against finite differences');
  },
});

/** The gradient of the input, dU A of all adapters: one product where the matrices are joined. Without a gradient of its own. */
const adaptInput = defineOp({
  name: 'adaptInput',
  empty: 0,
  infer: ([dU, a]) => [denseLayout([...dU.shape.slice(0, -1), a.shape[1]], dU.dtype)],
  flops: ([dU], [dx]) => (2 * dU.size * dx.size) / rowsOf(dU.shape)[0],
  lower: (k, [dU, ...as], [dx], /** @type {AdaptAttributes} */ { joined, accumulate = false, precision }) => {
    const [m, total] = rowsOf(dU.layout.shape);
    const [n] = as[0].layout.shape.slice(-1);
    const type = floatType('adapt', dU.layout);
    const types = { aType: type, bType: type, cType: floatType('adapt', dx.layout), precision };
    if (joined) return [k.matmul({ a: dU, b: as[0], c: dx, m, n, k: total, beta: Number(accumulate), ...types })];
    let column = 0;
    return as.map((b, i) => {
      const [rank] = b.layout.shape;
      column += rank;
      return k.matmul({ a: from(dU, column - rank), b, c: dx, m, n, k: rank, lda: total, beta: Number(accumulate || i > 0), ...types });
    });
  },
  oracle: () => {
    throw new Error('adaptInput: the gradients of adapt are held against finite differences');
  },
});

/**
 * The products scale · x Aᵀ of all adapters side by side.
 * @param {Kernels} k @param {Operand} x @param {Operand[]} as @param {Operand} u @param {AdaptAttributes} attributes
 */
function downProducts(k, x, as, u, { scales, joined, precision }) {
  const [m, inner] = rowsOf(x.layout.shape);
  const ranks = as.map(({ layout: { shape } }) => shape[0]);
  const total = ranks.reduce((sum, rank) => sum + rank, 0);
  const type = floatType('adapt', x.layout);
  const types = { aType: type, bType: type, cType: type, precision };
  let column = 0;
  const down = (/** @type {number} */ i, /** @type {number} */ rank) =>
    k.matmul({ a: x, b: as[i], c: from(u, column), m, n: rank, k: inner, transB: true, ldc: total, alpha: scales[i], ...types });
  if (joined && scales.every((scale) => scale === scales[0])) return [down(0, total)];
  return ranks.map((rank, i) => {
    const made = down(i, rank);
    column += rank;
    return made;
  });
}

/**
 * What a layer's product takes to compute its adapters itself, over a second pair of operands (`kernels.matmul`): scale · x Aᵀ of all adapters, and
 * B of all in one matrix [n, ranks], which is zero beside the blocks. Of one adapter for all columns B is that matrix, and there is one output. Only
 * passes make it.
 */
export const adaptDown = defineOp({
  name: 'adaptDown',
  empty: 0,
  infer: () => {
    throw new Error('adaptDown: only passes make it');
  },
  flops: ([x], [u]) => (2 * x.size * u.size) / rowsOf(u.shape)[0],
  lower: (k, [x, ...matrices], [u, blocks], /** @type {AdaptAttributes} */ attributes) => {
    const [as, bs] = split(matrices);
    const products = downProducts(k, x, as, u, attributes);
    if (!blocks) return products;
    const { dtype, shape } = blocks.layout;
    const zeros = k.fill({ y: blocks, count: flatCount(blocks.layout), value: 0, type: floatType('adapt', blocks.layout) });
    let column = 0;
    const copies = bs.flatMap((b, i) => {
      const offset = blocks.offset + attributes.rows[i] * shape[1] + column;
      column += b.layout.shape[1];
      return move(k, b, { buffer: blocks.buffer, offset, layout: layoutOf(b.layout.shape, [shape[1], 1], offset, dtype) }, 'adapt');
    });
    return [...products, zeros, ...copies];
  },
  oracle: () => {
    throw new Error('adaptDown: only passes make it');
  },
});

/**
 * y [..., n] and what adapters add to it: x [..., k] is the layer's input; A [rank, k] of each, then B [outputs, rank] of each. All of one type. The
 * second output is scale · x Aᵀ of all adapters side by side, for the backward pass.
 */
export const adapt = defineOp({
  name: 'adapt',
  empty: ([y]) => [y, 0],
  infer: ([y, x, ...matrices], /** @type {AdaptAttributes} */ attributes) => {
    floatType('adapt', x);
    check('adapt', y, x, matrices, attributes);
    const { total } = placed(...split(matrices));
    return [denseLayout(y.shape, y.dtype), denseLayout([...x.shape.slice(0, -1), total], x.dtype)];
  },
  prepare: ([y, x, ...matrices], run, attributes) => {
    const half = x.dtype !== 'f32' && runtime().kernels.matmulSupports(/** @type {'f16'} */ (x.dtype));
    const fits = half && evens([rowsOf(x.shape)[0], y.shape.at(-1) ?? 1, ...attributes.rows, ...matrices.flatMap(({ shape }) => shape)]);
    if (x.dtype === 'f32' || fits) return run([y, x, ...matrices], { ...attributes, ...productAttributes(x.dtype) });
    const wide = [y, x, ...matrices].map((each) => each.to('f32'));
    return run(wide, { ...attributes, joined: false, ...productAttributes('f32') }).to(y.dtype);
  },
  flops: ([y, x, ...matrices]) => {
    const [m] = rowsOf(y.shape);
    return x.size === 0 ? 0 : 2 * m * matrices.reduce((sum, { size }) => sum + size, 0);
  },
  lower: (k, [y, x, ...rest], [z, u], /** @type {AdaptAttributes} */ attributes) => {
    const { rows, inPlace, residual, precision } = attributes;
    const matrices = rest.slice(0, 2 * rows.length);
    const [m] = rowsOf(x.layout.shape);
    const n = z.layout.shape.at(-1) ?? 1;
    const count = matrices.length / 2;
    const { parts, total } = placed(...split(matrices.map(({ layout }) => layout)));
    const type = floatType('adapt', x.layout);
    const types = { aType: type, bType: type, precision };
    const copied = inPlace ? [] : [k.copy({ x: y, y: z, count: y.layout.size + (type === 'f32' ? 0 : y.layout.size % 2), type })];
    return [
      ...copied,
      ...downProducts(k, x, matrices.slice(0, count), u, attributes),
      ...parts.map(({ rank, outputs, column }, i) =>
        k.matmul({
          ...{ a: from(u, column), b: matrices[count + i], c: from(z, rows[i]), m, n: outputs, k: rank, transB: true, lda: total, ldc: n },
          ...{ beta: 1, ...types, cType: floatType('adapt', z.layout) },
          ...(residual ? { residual: from(rest[2 * count], rows[i]), ldr: n } : {}),
        }),
      ),
    ];
  },
  saveInputs: ([, x, ...matrices]) => {
    const [as, bs] = split(matrices);
    const count = as.length;
    const through = x || as.includes(true);
    return [...(as.includes(true) ? [1] : []), ...(x ? as.map((_, i) => 2 + i) : []), ...(through ? bs.map((_, i) => 2 + count + i) : [])];
  },
  saveOutputs: [1],
  vjp: (dy, { inputs: [, x, ...matrices], outputs: [, u], layouts, attributes, needs }, F) => {
    const count = attributes.rows.length;
    const flat = (/** @type {Tensor} */ t) => F.reshape(t, rowsOf(t.shape));
    const [rows, ranks] = [flat(dy).contiguous(), flat(u)];
    const [as, bs] = [2, 2 + count].map((first) => Array.from({ length: count }, (_, i) => matrices[first - 2 + i]));
    const wanted = [2, 2 + count].map((first) => needs.slice(first, first + count));
    const through = needs[1] || wanted[0].includes(true);
    const dU = through ? F.call(adaptBackward, [rows, ...bs], attributes) : undefined;
    const { parts } = placed(...split(layouts.slice(2)));
    const columns = (/** @type {Tensor} */ t, /** @type {number} */ first, /** @type {number} */ size) =>
      F.slice(t, 1, first, first + size);
    const gradient = (/** @type {Tensor} */ left, /** @type {Tensor} */ right) => F.matmul(F.transpose(left, 0, 1), right);
    return [
      needs[0] ? dy : undefined,
      needs[1] && dU ? F.reshape(F.call(adaptInput, [dU, ...as], attributes), layouts[1].shape) : undefined,
      ...parts.map(({ rank, column }, i) => (wanted[0][i] && dU ? gradient(columns(dU, column, rank), flat(x)) : undefined)),
      ...parts.map(({ rank, column, outputs }, i) =>
        wanted[1][i] ? gradient(columns(rows, attributes.rows[i], outputs), columns(ranks, column, rank)) : undefined,
      ),
    ];
  },
  oracle: ([y, x, ...matrices], { rows, scales }) => {
    const count = rows.length;
    const inner = x.shape.at(-1) ?? 1;
    return generate(y.shape, (index) => {
      const [lead, column] = [index.slice(0, -1), index[index.length - 1]];
      let sum = at(y, index);
      for (let i = 0; i < count; i++) {
        const [a, b] = [matrices[i], matrices[count + i]];
        const o = column - rows[i];
        if (o < 0 || o >= b.shape[0]) continue;
        for (let r = 0; r < a.shape[0]; r++) {
          let inside = 0;
          for (let j = 0; j < inner; j++) inside += at(x, [...lead, j]) * at(a, [r, j]);
          sum += scales[i] * inside * at(b, [o, r]);
        }
      }
      return sum;
    });
  },
});
