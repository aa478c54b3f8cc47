// The operations of the device, each as dispatches of the kernels. Tensors are dense and f32 unless said otherwise.

import { type Dispatches, type Kernels, SLOT, STATE, STATE_WORDS, Template } from 'helios-vk/kernels';

import type { Operand, Operation } from './engine.js';
import { broadcastShapes, broadcastStrides, collapse, stridesOf } from './shapes.js';
import { BackendError, type Dtype, type Precision, type Shape, show, sizeOf } from './types.js';

const like = ([x]: readonly Operand[]) => [{ shape: x.shape, dtype: x.dtype }];
const count = (x: { shape: Shape }) => Math.max(1, sizeOf(x.shape));
/** Rows and columns of the last dimension. */
const rowsOf = (shape: Shape) => {
  const columns = shape.at(-1) ?? 1;
  return { rows: sizeOf(shape) / columns, columns };
};

/** Elements between layouts of one shape, by the larger of an element and itself: no arithmetic that changes it. */
function move(
  k: Kernels,
  call: string,
  shape: Shape,
  x: { buffer: number; offset?: number; strides: readonly number[] },
  y: { buffer: number; offset?: number; strides: readonly number[] },
): Dispatches {
  const { shape: sizes, strides } = collapse(shape, [x.strides, y.strides]);
  const from = { buffer: x.buffer, offset: x.offset ?? 0 };
  const to = { buffer: y.buffer, offset: y.offset ?? 0 };
  if (sizes.length === 1 && strides[0][0] === 1 && strides[1][0] === 1) return k.copy({ x: from, y: to, count: sizes[0] });
  // Rows become columns, matrix by matrix.
  const [batch, rows, columns] = [1, 1, ...sizes].slice(-3);
  const [step, down, across] = [0, 0, ...strides[0]].slice(-3);
  if (sizes.length <= 3 && sizes.length >= 2 && down === 1 && across === rows && (batch === 1 || step === rows * columns)) {
    const own = stridesOf(sizes);
    if (strides[1].every((stride, d) => stride === own[d])) return k.transpose({ x: from, y: to, batch, rows: columns, columns: rows });
  }
  if (sizes.length > 4) throw new BackendError(call, `a tensor ${show(shape)} in this order: more than four runs of dimensions`);
  return k.broadcast({
    a: from,
    b: from,
    y: to,
    shape: sizes,
    aStrides: strides[0],
    bStrides: strides[0],
    yStrides: strides[1],
    op: 'max',
  });
}

/** Copies whole buffers. */
export const COPY = {
  templates: new Map<number, Template>(),
  /** Slot 0 to slot 1, so many bytes. */
  templateOf(k: Kernels, bytes: number): Template {
    let template = COPY.templates.get(bytes);
    if (!template) {
      template = new Template(k.copy({ x: SLOT, y: SLOT + 1, count: bytes / 4 }));
      COPY.templates.set(bytes, template);
    }
    return template;
  },
};

/** [type], the same bits as another type of that size, or the same. */
export const CLONE: Operation = {
  name: 'clone',
  infer: like,
  lower: (k, [x], [y]) => [k.copy({ x, y, count: x.dtype === 'f16' ? Math.ceil(count(x) / 2) : count(x) })],
};

const BINARY = ['add', 'add', 'mul', 'div'] as const;
/** Numbers of `BINARY_OP`. */
export const ADD = [0];
export const SUB = [1];
export const MUL = [2];
export const DIV = [3];
const NAMES = ['add', 'sub', 'mul', 'div'];

/** a ∘ b with broadcasting: [which]. */
export const BINARY_OP: Operation = {
  name: 'binary',
  infer: ([a, b], [which]) => [{ shape: broadcastShapes(NAMES[which], a.shape, b.shape), dtype: 'f32' }],
  lower: (k, [a, b], [y], [which]) => {
    const op = BINARY[which];
    const beta = which === 1 ? -1 : 1;
    const size = count(y);
    // b repeats behind a's own elements.
    const period = count(b);
    const suffix = b.shape.slice(b.shape.findIndex((n) => n !== 1));
    const repeats = period === 1 || suffix.every((n, d) => n === y.shape[d + y.shape.length - suffix.length]);
    if (count(a) === size && repeats) return [k.binary({ a, b, y, count: size, period, op, beta })];
    const { shape, strides } = collapse(y.shape, [
      broadcastStrides(a.shape, y.shape),
      broadcastStrides(b.shape, y.shape),
      stridesOf(y.shape),
    ]);
    if (shape.length > 4) throw new BackendError(NAMES[which], `${show(a.shape)} and ${show(b.shape)}: more than four runs of dimensions`);
    return [k.broadcast({ a, b, y, shape, aStrides: strides[0], bStrides: strides[1], yStrides: strides[2], op, beta })];
  },
};

/** a += b, of one shape. */
export const ADD_INPLACE: Operation = {
  name: 'addInplace',
  infer: () => [],
  lower: (k, [a, b]) => [k.binary({ a, b, y: a, count: count(a) })],
  writes: [0],
};

const UNARY = ['identity', 'exp', 'log', 'sqrt', 'square', 'reciprocal', 'abs'] as const;
export const IDENTITY = 0;
export const EXP = 1;
export const LOG = 2;
export const SQRT = 3;
export const SQUARE = 4;
export const RECIPROCAL = 5;
export const ABS = 6;

/** alpha · f(x) + beta: [f, alpha, beta]. */
export const UNARY_OP: Operation = {
  name: 'unary',
  infer: like,
  lower: (k, [x], [y], [f, alpha, beta]) => [k.unary({ x, y, count: count(x), op: UNARY[f], alpha, beta })],
};

/** x *= alpha: [alpha]. */
export const SCALE_INPLACE: Operation = {
  name: 'scaleInplace',
  infer: () => [],
  lower: (k, [x], _, [alpha]) => [k.unary({ x, y: x, count: count(x), alpha })],
  writes: [0],
};

/** The larger or smaller of x and each element of b, by one value: [0 for the larger]. */
export const BOUND: Operation = {
  name: 'bound',
  infer: like,
  lower: (k, [x, b], [y], [smaller]) => [k.binary({ a: x, b, y, count: count(x), period: count(b), op: smaller ? 'min' : 'max' })],
};

const ACTIVATIONS = ['gelu', 'relu', 'silu'] as const;
export const GELU = [0];
export const RELU = [1];
export const SILU = [2];

/** f(x): [f]. */
export const ACTIVATION: Operation = {
  name: 'activation',
  infer: like,
  lower: (k, [x], [y], [f]) => [k.activationForward({ x, y, count: count(x), activation: ACTIVATIONS[f] })],
};

/** dy · f'(x): [f]. */
export const ACTIVATION_BACKWARD: Operation = {
  name: 'activationBackward',
  infer: like,
  lower: (k, [x, dy], [dx], [f]) => [k.activationBackward({ x, dy, dx, count: count(x), activation: ACTIVATIONS[f] })],
};

/** silu(a) · b. */
export const SILU_MUL: Operation = {
  name: 'siluMul',
  infer: like,
  lower: (k, [gate, up], [y]) => [k.gluForward({ gate, up, y, ...rowsOf(gate.shape) })],
};
export const SILU_MUL_BACKWARD: Operation = {
  name: 'siluMulBackward',
  infer: ([a, b]) => [a, b].map(({ shape, dtype }) => ({ shape, dtype })),
  lower: (k, [gate, up, dy], [dGate, dUp]) => [k.gluBackward({ gate, up, dy, dGate, dUp, ...rowsOf(gate.shape) })],
};

/** cap · tanh(x / cap): [cap]. */
export const SOFT_CAP: Operation = {
  name: 'softCap',
  infer: like,
  lower: (k, [x], [y], [cap]) => [
    k.unary({ x, y, count: count(x), alpha: 1 / cap }),
    k.activationForward({ x: y, y, count: count(x), activation: 'tanh' }),
    k.unary({ x: y, y, count: count(x), alpha: cap }),
  ],
};
/** dy · (1 − tanh²(x / cap)): [cap]. */
export const SOFT_CAP_BACKWARD: Operation = {
  name: 'softCapBackward',
  infer: like,
  lower: (k, [x, dy], [dx], [cap]) => [
    k.unary({ x, y: dx, count: count(x), alpha: 1 / cap }),
    k.activationBackward({ x: dx, dy, dx, count: count(x), activation: 'tanh' }),
  ],
};

/** Sums, times a factor: [axis, or −1 for all, 1 to keep dimensions, factor]. */
export const SUM: Operation = {
  name: 'sum',
  infer: ([x], [axis, keep]) => {
    if (axis < 0) return [{ shape: keep ? x.shape.map(() => 1) : [], dtype: 'f32' }];
    const shape = [...x.shape];
    if (keep) shape[axis] = 1;
    else shape.splice(axis, 1);
    return [{ shape, dtype: 'f32' }];
  },
  lower: (k, [x], [y], [axis, , alpha]) => {
    if (axis < 0) return [k.reduceAll({ x, y, count: count(x), alpha })];
    const n = x.shape[axis];
    const outer = sizeOf(x.shape.slice(0, axis));
    const inner = sizeOf(x.shape.slice(axis + 1));
    if (inner === 1) return [k.reduceRows({ x, y, rows: outer, columns: n, alpha })];
    if (outer === 1) return [k.columnSum({ x, y, rows: n, columns: inner, alpha })];
    const turned = k.context.workspace('alpha sum', 4 * outer * n * inner);
    return [
      k.transpose({ x, y: turned, batch: outer, rows: n, columns: inner }),
      k.reduceRows({ x: turned, y, rows: outer * inner, columns: n, alpha }),
    ];
  },
};

/** The largest of each row, which stays a dimension of 1. */
export const ROW_MAX: Operation = {
  name: 'rowMax',
  infer: ([x]) => [{ shape: [...x.shape.slice(0, -1), 1], dtype: 'f32' }],
  lower: (k, [x], [y]) => [k.reduceRows({ x, y, ...rowsOf(x.shape), op: 'max' })],
};

/** The sum of squares of all elements of all inputs, in order. */
export const SUM_OF_SQUARES: Operation = {
  name: 'sumOfSquares',
  infer: () => [{ shape: [], dtype: 'f32' }],
  lower: (k, x, [y]) => {
    if (x.length === 1) return [k.reduceAll({ x: x[0], y, count: count(x[0]), op: 'sumOfSquares' })];
    const buffer = k.context.workspace('alpha sums', 4 * x.length);
    return [
      ...x.map((tensor, i) => k.reduceAll({ x: tensor, y: { buffer, offset: i }, count: count(tensor), op: 'sumOfSquares' })),
      k.reduceAll({ x: buffer, y, count: x.length }),
    ];
  },
};

/** 0 where every element is finite, else NaN. */
export const CHECK_FINITE: Operation = {
  name: 'checkFinite',
  infer: () => [{ shape: [], dtype: 'f32' }],
  lower: (k, [x], [y]) => {
    const zeros = k.context.workspace('alpha zeros', 4 * count(x));
    return [k.unary({ x, y: zeros, count: count(x), alpha: 0 }), k.reduceAll({ x: zeros, y, count: count(x) })];
  },
};

/** Numbers of `precision` in an operation. */
export const PRECISIONS: readonly Precision[] = ['f32', 'bf16', 'f16'];

/** A product over the last two dimensions: [transposed a, transposed b, precision]. Batches are equal, or one has none. */
export const MATMUL: Operation = {
  name: 'matmul',
  infer: ([a, b], [transA, transB]) => {
    const [ar, ac] = a.shape.slice(-2);
    const [br, bc] = b.shape.slice(-2);
    const [m, k] = transA ? [ac, ar] : [ar, ac];
    const [inner, n] = transB ? [bc, br] : [br, bc];
    if (k !== inner) {
      throw new BackendError(
        'matmul',
        `${show(a.shape)}${transA ? 'ᵀ' : ''} × ${show(b.shape)}${transB ? 'ᵀ' : ''}: inner sizes ${k}, ${inner}`,
      );
    }
    return [{ shape: [...broadcastShapes('matmul', a.shape.slice(0, -2), b.shape.slice(0, -2)), m, n], dtype: 'f32' }];
  },
  lower: (kernels, [a, b], [c], [transA, transB, precision]) => {
    const [m, n] = c.shape.slice(-2);
    const k = a.shape[a.shape.length - (transA ? 2 : 1)];
    const batch = sizeOf(c.shape.slice(0, -2));
    const one = (x: Operand) => sizeOf(x.shape.slice(0, -2)) === 1;
    const list: Dispatches[] = [];
    // A grid has at most 65,535 in its third dimension.
    for (let first = 0; first < batch; first += 65535) {
      const part = (x: Operand, size: number) => ({ buffer: x.buffer, offset: one(x) ? 0 : first * size });
      list.push(
        kernels.matmul({
          a: part(a, m * k),
          b: part(b, k * n),
          c: { buffer: c.buffer, offset: first * m * n },
          m,
          n,
          k,
          transA: transA === 1,
          transB: transB === 1,
          precision: PRECISIONS[precision],
          batch: Math.min(65535, batch - first),
          ...(one(a) && batch > 1 ? { strideA: 0 } : {}),
          ...(one(b) && batch > 1 ? { strideB: 0 } : {}),
        }),
      );
    }
    return list;
  },
};

/** Rows of a table: weight, ids. */
export const EMBEDDING: Operation = {
  name: 'embedding',
  types: ['f32', 'i32'],
  infer: ([weight, ids]) => [{ shape: [...ids.shape, weight.shape[1]], dtype: 'f32' }],
  lower: (k, [table, ids], [y]) => [
    k.embeddingForward({ ids, table, y, tokens: count(ids), columns: table.shape[1], vocabulary: table.shape[0] }),
  ],
};
/** The table's gradient: ids, dy; [rows of the table]. */
export const EMBEDDING_BACKWARD: Operation = {
  name: 'embeddingBackward',
  types: ['i32', 'f32'],
  infer: ([ids, dy], [vocabulary]) => [{ shape: [vocabulary, sizeOf(dy.shape) / sizeOf(ids.shape)], dtype: 'f32' }],
  lower: (k, [ids, dy], [dTable], [vocabulary]) => {
    const columns = dTable.shape[1];
    return [
      k.fill({ y: dTable, count: vocabulary * columns, value: 0 }),
      k.embeddingBackward({ ids, dy, dTable, tokens: count(ids), columns, vocabulary }),
    ];
  },
};

/** x, weight, bias to y and the rows' statistics: [eps]. */
export const LAYER_NORM: Operation = {
  name: 'layerNorm',
  infer: ([x]) => [
    { shape: x.shape, dtype: 'f32' },
    { shape: [rowsOf(x.shape).rows, 2], dtype: 'f32' },
  ],
  lower: (k, [x, weight, bias], [y, stats], [eps]) => [k.layerNormForward({ x, y, weight, bias, stats, eps, ...rowsOf(x.shape) })],
};
/** x, weight, statistics, dy to dx, dWeight, dBias. */
export const LAYER_NORM_BACKWARD: Operation = {
  name: 'layerNormBackward',
  infer: ([x, weight]) => [x, weight, weight].map(({ shape }) => ({ shape, dtype: 'f32' })),
  lower: (k, [x, weight, stats, dy], [dx, dWeight, dBias]) => [
    k.layerNormBackward({ x, weight, stats, dy, dx, dWeight, dBias, ...rowsOf(x.shape) }),
  ],
};

export const SOFTMAX: Operation = {
  name: 'softmax',
  infer: like,
  lower: (k, [x], [y]) => [k.softmaxForward({ x, y, ...rowsOf(x.shape) })],
};

/** The mean of the rows' losses: logits, targets. */
export const CROSS_ENTROPY: Operation = {
  name: 'crossEntropy',
  types: ['f32', 'i32'],
  infer: () => [{ shape: [], dtype: 'f32' }],
  lower: (k, [logits, targets], [y]) => {
    const { rows, columns } = rowsOf(logits.shape);
    const loss = k.context.workspace('alpha losses', 4 * rows);
    return [k.crossEntropyForward({ logits, targets, loss, rows, columns }), k.reduceAll({ x: loss, y, count: rows, alpha: 1 / rows })];
  },
};
/** Its gradient times a factor: logits, targets, and by a tensor where there is a third; [factor]. */
export const CROSS_ENTROPY_BACKWARD: Operation = {
  name: 'crossEntropyBackward',
  types: ['f32', 'i32', 'f32'],
  infer: like,
  lower: (k, [logits, targets, by], [y], [factor]) => {
    const { rows, columns } = rowsOf(logits.shape);
    const size = rows * columns;
    const loss = k.context.workspace('alpha losses', 4 * rows);
    return [
      k.crossEntropy({ logits, targets, loss, rows, columns, scale: factor / rows, gradient: y, gradientType: 'f32' }),
      ...(by ? [k.binary({ a: y, b: by, y, count: size, period: 1, op: 'mul' })] : []),
    ];
  },
};

/** Elements of x as a view has them, copied: [first element, rank, …shape, …strides]. */
export const STRIDED: Operation = {
  name: 'strided',
  infer: ([x], [, rank, ...n]) => [{ shape: n.slice(0, rank), dtype: x.dtype }],
  lower: (k, [x], [y], [offset, rank, ...n]) => [
    move(k, 'strided', y.shape, { buffer: x.buffer, offset, strides: n.slice(rank) }, { buffer: y.buffer, strides: stridesOf(y.shape) }),
  ],
};

/** Zeros with a part from x: [rank, …shape, …first elements]. */
export const SCATTER_SLICE: Operation = {
  name: 'scatterSlice',
  infer: (_, [rank, ...n]) => [{ shape: n.slice(0, rank), dtype: 'f32' }],
  lower: (k, [x], [y], [rank, ...n]) => {
    const strides = stridesOf(y.shape);
    const offset = strides.reduce((sum, stride, d) => sum + stride * n[d + rank], 0);
    return [
      k.fill({ y, count: count(y), value: 0 }),
      move(k, 'scatterSlice', x.shape, { buffer: x.buffer, strides: stridesOf(x.shape) }, { buffer: y.buffer, offset, strides }),
    ];
  },
};

/** Tensors behind each other: [axis]. */
export const CAT: Operation = {
  name: 'cat',
  infer: (x, [axis]) => {
    const shape = [...x[0].shape];
    shape[axis] = x.reduce((sum, tensor) => sum + tensor.shape[axis], 0);
    return [{ shape, dtype: x[0].dtype }];
  },
  lower: (k, x, [y], [axis]) => {
    const strides = stridesOf(y.shape);
    let first = 0;
    return x.map((tensor) => {
      const offset = first * strides[axis];
      first += tensor.shape[axis];
      return move(
        k,
        'cat',
        tensor.shape,
        { buffer: tensor.buffer, strides: stridesOf(tensor.shape) },
        { buffer: y.buffer, offset, strides },
      );
    });
  },
};

/** Between f32 and f16. */
export const CAST: Operation = {
  name: 'castDtype',
  types: ['f32 or f16'],
  infer: ([x]) => [{ shape: x.shape, dtype: x.dtype === 'f32' ? 'f16' : 'f32' }],
  lower: (k, [x], [y]) => [k.cast({ x, y, count: count(x), from: kernelType(x.dtype), to: kernelType(y.dtype) })],
};
const kernelType = (dtype: Dtype) => (dtype === 'f16' ? 'f16' : 'f32');

/** Parameters, gradient, first and second moments, and what `adamwState` makes. */
export const ADAMW: Operation = {
  name: 'adamwStep',
  infer: () => [],
  lower: (k, [parameters, gradient, first, second, state]) => [
    k.adamw({ parameters, gradient, first, second, state, count: count(parameters) }),
  ],
  writes: [0, 2, 3],
};

/** Words of an optimizer's state. */
export const ADAMW_WORDS = STATE_WORDS;

/** What a step's state holds, word by word (see `STATE` of the kernels). */
export function adamwState(
  s: Record<'lr' | 'beta1' | 'beta2' | 'eps' | 'weightDecay' | 'bc1' | 'bc2' | 'gradScale', number>,
): [number, number][] {
  return [
    [STATE.rate, s.lr],
    [STATE.correction1, s.bc1],
    [STATE.correction2, s.bc2],
    [STATE.clip, s.gradScale],
    [STATE.beta1, s.beta1],
    [STATE.oneMinusBeta1, 1 - s.beta1],
    [STATE.beta2, s.beta2],
    [STATE.oneMinusBeta2, 1 - s.beta2],
    [STATE.epsilon, s.eps],
    [STATE.decay, s.weightDecay],
  ];
}
