// The operations of the device, as dispatches of the kernels. Tensors are dense and f32 unless said otherwise. The comment above an
// operation lists its inputs, its outputs and, in brackets, its numbers, where the name does not say them.

import { type Dispatches, type Kernels, STATE, STATE_WORDS } from 'helios-vk/kernels';

import * as host from './host.js';
import { type Described, type Operand, operation, sameNumbers } from './plan.js';
import { axisOf, broadcastShapes, broadcastStrides, collapse, sameShape, stridesOf, swapped, type View } from './shapes.js';
import { BackendError, type Dtype, type Precision, type Shape, show, sizeOf } from './types.js';

const like = ([x]: readonly Described[]): Described[] => [{ shape: x.shape, dtype: x.dtype }];
/** Of operations that write their inputs: no outputs. */
const nothing = () => [];
const scalar = () => f32([]);
const f32 = (...shapes: Shape[]): Described[] => shapes.map((shape) => ({ shape, dtype: 'f32' }));
const count = (x: { shape: Shape }) => Math.max(1, sizeOf(x.shape));
/** @throws BackendError for a tensor without elements: a kernel takes at least one */
function checkSome(call: string, shape: Shape): void {
  if (sizeOf(shape) === 0) throw new BackendError(call, `a tensor ${show(shape)} has no elements`);
}
/** Rows and columns of a tensor as a matrix; columns are its last dimension. */
function rowsOf(call: string, shape: Shape) {
  checkSome(call, shape);
  const columns = shape.at(-1) ?? 1;
  return { rows: sizeOf(shape) / columns, columns };
}

/** @throws BackendError unless all tensors have `size` elements: a kernel would read past the end of a smaller one */
function sameCount(call: string, size: number, x: readonly Described[]): void {
  for (const { shape } of x) {
    if (sizeOf(shape) !== size) throw new BackendError(call, `a tensor ${show(shape)} where ${size} elements are expected`);
  }
}
/** The output is like the first input; the others must have as many elements. */
const likeBoth = (call: string) => (x: readonly Described[]) => {
  sameCount(call, sizeOf(x[0].shape), x.slice(1));
  return like(x);
};
/** @throws BackendError unless there is one target for each row of logits */
function checkTargets(call: string, [logits, targets]: readonly Described[]): void {
  sameCount(call, rowsOf(call, logits.shape).rows, [targets]);
}

/** Where elements lie in a buffer. */
interface Laid {
  buffer: number;
  strides: readonly number[];
  offset?: number;
}
const dense = ({ buffer, shape }: { buffer: number; shape: Shape }): Laid => ({ buffer, strides: stridesOf(shape) });
/** Offset of the element at an index. */
const offsetOf = (shape: Shape, index: readonly number[]) => stridesOf(shape).reduce((sum, stride, d) => sum + stride * index[d], 0);

/** Copies elements from one layout to another. Where no copy kernel fits, y = max(x, x), which changes no number. */
function move(k: Kernels, call: string, shape: Shape, x: Laid, y: Laid): Dispatches {
  checkSome(call, shape);
  const { shape: sizes, strides } = collapse(shape, [x.strides, y.strides]);
  const from = { buffer: x.buffer, offset: x.offset ?? 0 };
  const to = { buffer: y.buffer, offset: y.offset ?? 0 };
  if (sizes.length === 1 && strides[0][0] === 1 && strides[1][0] === 1) return k.copy({ x: from, y: to, count: sizes[0] });
  // A transpose of each matrix of a batch.
  const [batch, rows, columns] = [1, 1, ...sizes].slice(-3);
  const [step, down, across] = [0, 0, ...strides[0]].slice(-3);
  if (sizes.length <= 3 && sizes.length >= 2 && down === 1 && across === rows && (batch === 1 || step === rows * columns)) {
    if (sameNumbers(strides[1], stridesOf(sizes))) return k.transpose({ x: from, y: to, batch, rows: columns, columns: rows });
  }
  if (sizes.length > 4)
    throw new BackendError(call, `a tensor ${show(shape)} in this order has more than four dimensions that cannot be merged`);
  const layouts = { aStrides: strides[0], bStrides: strides[0], yStrides: strides[1] };
  return k.broadcast({ a: from, b: from, y: to, shape: sizes, ...layouts, op: 'max' });
}

/** [value, 1 for i32 or 0 for f32, …shape]. */
export const FILL = operation(
  'full',
  (_, [, integers, ...shape]) => [{ shape, dtype: integers ? 'i32' : 'f32' }],
  (k, _, [y], [value, integers]) => [k.fill({ y, count: count(y), value: integers ? value >>> 0 : value, type: integers ? 'u32' : 'f32' })],
);

export const CLONE = operation('clone', like, (k, [x], [y]) => [k.copy({ x, y, count: count(x) })], {
  host: ([x]) => ({ shape: x.shape, dtype: x.dtype, data: x.data.slice() }),
});

/** a ∘ b with broadcasting. */
const binary = (name: string, op: 'add' | 'mul' | 'div', beta: number, f: (x: number, y: number) => number) =>
  operation(
    name,
    ([a, b]) => f32(broadcastShapes(name, a.shape, b.shape)),
    (k, [a, b], [y]) => {
      const size = count(y);
      // One pass suffices if a has the output's shape and b repeats only along its leading dimensions.
      const period = count(b);
      const suffix = b.shape.slice(b.shape.findIndex((n) => n !== 1));
      const repeats = period === 1 || suffix.every((n, d) => n === y.shape[d + y.shape.length - suffix.length]);
      if (count(a) === size && repeats) return [k.binary({ a, b, y, count: size, period, op, beta })];
      const { shape, strides } = collapse(y.shape, [
        broadcastStrides(a.shape, y.shape),
        broadcastStrides(b.shape, y.shape),
        stridesOf(y.shape),
      ]);
      if (shape.length > 4)
        throw new BackendError(
          name,
          `${show(a.shape)} and ${show(b.shape)}: broadcasting leaves more than four dimensions that cannot be merged`,
        );
      return [k.broadcast({ a, b, y, shape, aStrides: strides[0], bStrides: strides[1], yStrides: strides[2], op, beta })];
    },
    { host: ([a, b]) => host.zip(name, a, b, f) },
  );
export const ADD = binary('add', 'add', 1, (x, y) => x + y);
export const SUB = binary('sub', 'add', -1, (x, y) => x - y);
export const MUL = binary('mul', 'mul', 1, (x, y) => x * y);
export const DIV = binary('div', 'div', 1, (x, y) => x / y);

/** a += b. */
export const ADD_INPLACE = operation(
  'addInplace',
  ([a, b]) => {
    if (!sameShape(a.shape, b.shape))
      throw new BackendError('addInplace', `${show(a.shape)} += ${show(b.shape)}: the shapes must be the same`);
    return [];
  },
  (k, [a, b]) => [k.binary({ a, b, y: a, count: count(a) })],
  { writes: [0] },
);

const unary = (name: string, op: 'exp' | 'log' | 'sqrt' | 'square' | 'reciprocal', f: (x: number) => number) =>
  operation(name, like, (k, [x], [y]) => [k.unary({ x, y, count: count(x), op })], { host: ([x]) => host.map(x, f) });
export const EXP = unary('exp', 'exp', Math.exp);
export const LOG = unary('log', 'log', Math.log);
export const SQRT = unary('sqrt', 'sqrt', Math.sqrt);
export const SQUARE = unary('pow', 'square', (x) => x ** 2);
export const RECIPROCAL = unary('pow', 'reciprocal', (x) => x ** -1);

/** s · x: [s]. */
export const SCALE = operation(
  'scale',
  like,
  // beta is −0: x · s + 0 would turn a product of −0 into 0.
  (k, [x], [y], [s]) => [k.unary({ x, y, count: count(x), alpha: s, beta: -0 })],
  { host: ([x], [s]) => host.map(x, (value) => value * s) },
);
/** x *= s: [s]. */
export const SCALE_INPLACE = operation('scaleInplace', nothing, (k, [x], _, [s]) => [k.unary({ x, y: x, count: count(x), alpha: s })], {
  writes: [0],
});

/** min(max(x, low), high): [low, high]. */
export const CLAMP = operation(
  'clamp',
  like,
  (k, [x], [y], [low, high]) => {
    const bound = k.context.workspace('alpha bound', 4);
    const one = { y, count: count(x), b: bound, period: 1 };
    return [
      k.fill({ y: bound, count: 1, value: high }),
      k.binary({ ...one, a: x, op: 'min' }),
      k.fill({ y: bound, count: 1, value: low }),
      k.binary({ ...one, a: y, op: 'max' }),
    ];
  },
  { host: ([x], [low, high]) => host.map(x, (value) => Math.max(low, Math.min(high, value))) },
);
/** Stands for x − (−∞), since a dispatch takes only finite numbers: x · alpha + beta is positive for every number except −∞. */
const UNBOUNDED = { alpha: 2 ** -30, beta: 2 ** 100 };
/** x, dy to dx: dy where x is strictly between the bounds, else 0. [low, high]. */
export const CLAMP_BACKWARD = operation('clampBackward', likeBoth('clampBackward'), (k, [x, dy], [dx], [low, high]) => {
  // The bounds as f32. No x is above ∞, below −∞, or between bounds without room.
  const [from, to] = [Math.fround(low), Math.fround(high)];
  if (!(from < to)) return [k.fill({ y: dx, count: count(x), value: 0 })];
  // The gradient of relu(x − low), then that of relu(high − x). For a NaN both are 0.
  const side = k.context.workspace('alpha side', 4 * count(x));
  const relu = { x: side, dx, count: count(x), activation: 'relu' } as const;
  return [
    k.unary({ x, y: side, count: count(x), ...(from === -Infinity ? UNBOUNDED : { beta: -low }) }),
    k.activationBackward({ ...relu, dy }),
    k.unary({ x, y: side, count: count(x), ...(to === Infinity ? { ...UNBOUNDED, alpha: -UNBOUNDED.alpha } : { alpha: -1, beta: high }) }),
    k.activationBackward({ ...relu, dy: dx }),
  ];
});

type Activation = 'gelu' | 'relu' | 'silu';
const activation = (name: Activation) =>
  operation(name, like, (k, [x], [y]) => [k.activationForward({ x, y, count: count(x), activation: name })]);
/** x, dy to dy · f'(x). */
const activationBackward = (name: Activation) =>
  operation(`${name}Backward`, likeBoth(`${name}Backward`), (k, [x, dy], [dx]) => [
    k.activationBackward({ x, dy, dx, count: count(x), activation: name }),
  ]);
export const [GELU, SILU] = (['gelu', 'silu'] as const).map(activation);
/**
 * x where x > 0, else 0, also for a NaN, as the trainer defines it. That is relu's gradient for dy = x; the kernel's own activation
 * propagates NaN.
 */
export const RELU = operation('relu', like, (k, [x], [y]) => [
  k.activationBackward({ x, dy: x, dx: y, count: count(x), activation: 'relu' }),
]);
export const [GELU_BACKWARD, RELU_BACKWARD, SILU_BACKWARD] = (['gelu', 'relu', 'silu'] as const).map(activationBackward);

/** a, b to silu(a) · b. */
export const SILU_MUL = operation('siluMul', likeBoth('siluMul'), (k, [gate, up], [y]) => [
  k.gluForward({ gate, up, y, ...rowsOf('siluMul', gate.shape) }),
]);
export const SILU_MUL_BACKWARD = operation(
  'siluMulBackward',
  ([a, b, dy]) => {
    sameCount('siluMulBackward', sizeOf(a.shape), [b, dy]);
    return f32(a.shape, b.shape);
  },
  (k, [gate, up, dy], [dGate, dUp]) => [k.gluBackward({ gate, up, dy, dGate, dUp, ...rowsOf('siluMulBackward', gate.shape) })],
);

/** cap · tanh(x / cap): [cap]. */
export const SOFT_CAP = operation('softCap', like, (k, [x], [y], [cap]) => [
  k.unary({ x, y, count: count(x), alpha: 1 / cap }),
  k.activationForward({ x: y, y, count: count(x), activation: 'tanh' }),
  k.unary({ x: y, y, count: count(x), alpha: cap }),
]);
/** x, dy to dy · (1 − tanh²(x / cap)): [cap]. */
export const SOFT_CAP_BACKWARD = operation('softCapBackward', likeBoth('softCapBackward'), (k, [x, dy], [dx], [cap]) => [
  k.unary({ x, y: dx, count: count(x), alpha: 1 / cap }),
  k.activationBackward({ x: dx, dy, dx, count: count(x), activation: 'tanh' }),
]);

/** factor · the sum over an axis: [axis, or −1 for all; 1 to keep the dimension; factor]. */
export const SUM = operation(
  'sum',
  ([x], [axis, keep]) => {
    if (axis < 0) return f32(keep ? x.shape.map(() => 1) : []);
    const shape = [...x.shape];
    if (keep) shape[axis] = 1;
    else shape.splice(axis, 1);
    return f32(shape);
  },
  (k, [x], [y], [axis, , alpha]) => {
    if (sizeOf(x.shape) === 0) return [k.fill({ y, count: count(y), value: 0 })];
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
  { host: ([x], [axis, keep, factor]) => host.sum(x, axis, keep === 1, factor) },
);

/** The sum of squares of all elements of all inputs, in order. */
export const SUM_OF_SQUARES = operation('sumOfSquares', scalar, (k, all, [y]) => {
  const x = all.filter(({ shape }) => sizeOf(shape) > 0);
  if (x.length === 0) return [k.fill({ y, count: 1, value: 0 })];
  if (x.length === 1) return [k.reduceAll({ x: x[0], y, count: count(x[0]), op: 'sumOfSquares' })];
  const buffer = k.context.workspace('alpha sums', 4 * x.length);
  return [
    ...x.map((tensor, i) => k.reduceAll({ x: tensor, y: { buffer, offset: i }, count: count(tensor), op: 'sumOfSquares' })),
    k.reduceAll({ x: buffer, y, count: x.length }),
  ];
});

/** 0 where every element is finite, else NaN. */
export const CHECK_FINITE = operation('checkFinite', scalar, (k, [x], [y]) => {
  if (sizeOf(x.shape) === 0) return [k.fill({ y, count: 1, value: 0 })];
  const zeros = k.context.workspace('alpha zeros', 4 * count(x));
  return [k.unary({ x, y: zeros, count: count(x), alpha: 0 }), k.reduceAll({ x: zeros, y, count: count(x) })];
});

/** An operation's number `precision` is an index of this list. */
export const PRECISIONS: readonly Precision[] = ['f32', 'bf16', 'f16'];

/** a b over the last two dimensions; the others are broadcast. [1 to transpose a, 1 to transpose b, precision]. */
export const MATMUL = operation(
  'matmul',
  ([a, b], [transA, transB]) => {
    if (a.shape.length < 2 || b.shape.length < 2) {
      throw new BackendError('matmul', `${show(a.shape)} × ${show(b.shape)}: both need at least two dimensions`);
    }
    const [ar, ac] = a.shape.slice(-2);
    const [br, bc] = b.shape.slice(-2);
    const [m, k] = transA ? [ac, ar] : [ar, ac];
    const [inner, n] = transB ? [bc, br] : [br, bc];
    if (k !== inner) {
      throw new BackendError(
        'matmul',
        `${show(a.shape)}${transA ? 'ᵀ' : ''} × ${show(b.shape)}${transB ? 'ᵀ' : ''}: inner sizes ${k}, ${inner} differ`,
      );
    }
    if (m * n * k === 0) throw new BackendError('matmul', `${show(a.shape)} × ${show(b.shape)}: a matrix has no elements`);
    return f32([...broadcastShapes('matmul', a.shape.slice(0, -2), b.shape.slice(0, -2)), m, n]);
  },
  (kernels, [a, b], [c], [transA, transB, precision]) => {
    const [m, n] = c.shape.slice(-2);
    const k = a.shape[a.shape.length - (transA ? 2 : 1)];
    const batchShape = c.shape.slice(0, -2);
    const batch = sizeOf(batchShape);
    const list: Dispatches[] = [];
    /** A buffer with one matrix for each of the batch, or `one` for all. */
    const operand = (name: string, { buffer, shape }: Operand) => {
      const own = shape.slice(0, -2);
      if (sizeOf(own) === 1) return { buffer, one: true };
      if (sameShape(own, batchShape)) return { buffer, one: false };
      const to = [...batchShape, ...shape.slice(-2)];
      const copy = kernels.context.workspace(name, 4 * sizeOf(to));
      const strides = broadcastStrides(shape, to);
      list.push(move(kernels, 'matmul', to, { buffer, strides }, dense({ buffer: copy, shape: to })));
      return { buffer: copy, one: false };
    };
    const left = operand('alpha left', a);
    const right = operand('alpha right', b);
    // A grid has at most 65,535 workgroups in its third dimension.
    for (let first = 0; first < batch; first += 65535) {
      list.push(
        kernels.matmul({
          a: { buffer: left.buffer, offset: left.one ? 0 : first * m * k },
          b: { buffer: right.buffer, offset: right.one ? 0 : first * k * n },
          c: { buffer: c.buffer, offset: first * m * n },
          m,
          n,
          k,
          transA: transA === 1,
          transB: transB === 1,
          precision: PRECISIONS[precision],
          batch: Math.min(65535, batch - first),
          ...(left.one && batch > 1 ? { strideA: 0 } : {}),
          ...(right.one && batch > 1 ? { strideB: 0 } : {}),
        }),
      );
    }
    return list;
  },
);

/** weight, ids to the rows of weight. */
export const EMBEDDING = operation(
  'embedding',
  ([weight, ids]) => f32([...ids.shape, weight.shape[1]]),
  (k, [table, ids], [y]) => [
    k.embeddingForward({ ids, table, y, tokens: count(ids), columns: table.shape[1], vocabulary: table.shape[0] }),
  ],
  { types: ['f32', 'i32'] },
);
/** ids, dy to the gradient of weight: [rows of weight]. */
export const EMBEDDING_BACKWARD = operation(
  'embeddingBackward',
  ([ids, dy], [vocabulary]) => f32([vocabulary, sizeOf(dy.shape) / sizeOf(ids.shape)]),
  (k, [ids, dy], [dTable], [vocabulary]) => {
    const columns = dTable.shape[1];
    return [
      k.fill({ y: dTable, count: vocabulary * columns, value: 0 }),
      k.embeddingBackward({ ids, dy, dTable, tokens: count(ids), columns, vocabulary }),
    ];
  },
  { types: ['i32', 'f32'] },
);

/** x, weight, bias to y and each row's statistics: [eps]. */
export const LAYER_NORM = operation(
  'layerNorm',
  ([x, weight, bias]) => {
    const { rows, columns } = rowsOf('layerNorm', x.shape);
    sameCount('layerNorm', columns, [weight, bias]);
    return f32(x.shape, [rows, 2]);
  },
  (k, [x, weight, bias], [y, stats], [eps]) => [k.layerNormForward({ x, y, weight, bias, stats, eps, ...rowsOf('layerNorm', x.shape) })],
);
/** x, weight, statistics, dy to dx, dWeight, dBias. */
export const LAYER_NORM_BACKWARD = operation(
  'layerNormBackward',
  ([x, weight, , dy]) => {
    sameCount('layerNormBackward', rowsOf('layerNormBackward', x.shape).columns, [weight]);
    sameCount('layerNormBackward', sizeOf(x.shape), [dy]);
    return f32(x.shape, weight.shape, weight.shape);
  },
  (k, [x, weight, stats, dy], [dx, dWeight, dBias]) => [
    k.layerNormBackward({ x, weight, stats, dy, dx, dWeight, dBias, ...rowsOf('layerNormBackward', x.shape) }),
  ],
);

/** residual, x, mask to x · mask + residual. */
export const RESIDUAL_DROPOUT_ADD = operation(
  'residualDropoutAdd',
  ([residual, x, mask]) => {
    if (!sameShape(x.shape, residual.shape) || !sameShape(x.shape, mask.shape)) {
      throw new BackendError(
        'residualDropoutAdd',
        `${show(residual.shape)} + ${show(x.shape)} · ${show(mask.shape)}: the shapes must be the same`,
      );
    }
    return like([x]);
  },
  (k, [residual, x, mask], [y]) => [
    k.binary({ a: x, b: mask, y, count: count(x), op: 'mul' }),
    k.binary({ a: residual, b: y, y, count: count(x) }),
  ],
);

export const SOFTMAX = operation('softmax', like, (k, [x], [y]) => [k.softmaxForward({ x, y, ...rowsOf('softmax', x.shape) })]);
export const LOG_SOFTMAX = operation('logSoftmax', like, (k, [x], [y]) => {
  const { rows, columns } = rowsOf('logSoftmax', x.shape);
  const size = rows * columns;
  const powers = k.context.workspace('alpha powers', 4 * size);
  const row = k.context.workspace('alpha row', 4 * rows);
  const lessRow = { b: row, y, shape: [rows, columns], aStrides: [columns, 1], bStrides: [1, 0], yStrides: [columns, 1], beta: -1 };
  return [
    k.reduceRows({ x, y: row, rows, columns, op: 'max' }),
    k.broadcast({ a: x, ...lessRow }),
    k.unary({ x: y, y: powers, count: size, op: 'exp' }),
    k.reduceRows({ x: powers, y: row, rows, columns }),
    k.unary({ x: row, y: row, count: rows, op: 'log' }),
    k.broadcast({ a: y, ...lessRow }),
  ];
});

/** logits, targets to the mean loss of the rows. */
export const CROSS_ENTROPY = operation(
  'crossEntropy',
  (x) => {
    checkTargets('crossEntropy', x);
    return scalar();
  },
  (k, [logits, targets], [y]) => {
    const { rows, columns } = rowsOf('crossEntropy', logits.shape);
    const loss = k.context.workspace('alpha losses', 4 * rows);
    return [k.crossEntropyForward({ logits, targets, loss, rows, columns }), k.reduceAll({ x: loss, y, count: rows, alpha: 1 / rows })];
  },
  { types: ['f32', 'i32'] },
);
/** logits, targets and perhaps dy (a scalar) to factor · dy · the gradient of `crossEntropy`: [factor]. */
export const CROSS_ENTROPY_BACKWARD = operation(
  'crossEntropyBackward',
  (x) => {
    checkTargets('crossEntropyBackward', x);
    sameCount('crossEntropyBackward', 1, x.slice(2));
    return like(x);
  },
  (k, [logits, targets, by], [y], [factor]) => {
    const { rows, columns } = rowsOf('crossEntropyBackward', logits.shape);
    const size = rows * columns;
    const loss = k.context.workspace('alpha losses', 4 * rows);
    return [
      k.crossEntropy({ logits, targets, loss, rows, columns, scale: factor / rows, gradient: y, gradientType: 'f32' }),
      ...(by ? [k.binary({ a: y, b: by, y, count: size, period: 1, op: 'mul' })] : []),
    ];
  },
  { types: ['f32', 'i32', 'f32'] },
);

/** A dense copy of a view of x. `viewOf` makes the view from x's shape and the call's numbers. */
const view = (name: string, viewOf: (x: Shape, n: readonly number[]) => View) =>
  operation(
    name,
    ([x], n) => [{ shape: viewOf(x.shape, n).shape, dtype: x.dtype }],
    (k, [x], [y], n) => {
      const { strides, offset } = viewOf(x.shape, n);
      return [move(k, name, y.shape, { buffer: x.buffer, offset, strides }, dense(y))];
    },
    { host: ([x], n) => host.strided(x, viewOf(x.shape, n)) },
  );

/** [two axes]. */
export const TRANSPOSE = view('transpose', (shape, dimensions) => {
  const [first, second] = dimensions.map((dim) => axisOf('transpose', dim, shape.length));
  return { shape: swapped(shape, first, second), strides: swapped(stridesOf(shape), first, second), offset: 0 };
});

/** [start of each dimension, …end of each]. */
export const SLICE = view('slice', (shape, n) => {
  const [starts, ends] = [n.slice(0, shape.length), n.slice(shape.length)];
  if (
    n.length !== 2 * shape.length ||
    !n.every(Number.isInteger) ||
    shape.some((size, d) => !(starts[d] >= 0 && starts[d] <= ends[d] && ends[d] <= size))
  ) {
    throw new BackendError(
      'slice',
      `${show(starts)} to ${show(ends)} of ${show(shape)}: expected integers with 0 ≤ start ≤ end ≤ size for each dimension`,
    );
  }
  return { shape: starts.map((start, d) => ends[d] - start), strides: stridesOf(shape), offset: offsetOf(shape, starts) };
});

/** […shape]. */
export const BROADCAST = view('broadcast', (shape, target) => {
  const to = broadcastShapes('broadcast', shape, target);
  if (!sameShape(to, target)) throw new BackendError('broadcast', `${show(shape)} does not broadcast to ${show(target)}`);
  return { shape: to, strides: broadcastStrides(shape, to), offset: 0 };
});

/** Zeros with x at a place: [shape, start of each dimension, end of each]. */
export const SCATTER_SLICE = operation(
  'scatterSlice',
  ([x], n) => {
    const rank = n.length / 3;
    const [shape, starts, ends] = [0, 1, 2].map((i) => n.slice(i * rank, (i + 1) * rank));
    if (rank !== x.shape.length || shape.some((size, d) => !(starts[d] >= 0 && ends[d] - starts[d] === x.shape[d] && ends[d] <= size))) {
      throw new BackendError(
        'scatterSlice',
        `${show(x.shape)} at ${show(starts)} to ${show(ends)} of ${show(shape)}: ends − starts must be the tensor's shape, inside of ${show(shape)}`,
      );
    }
    return f32(shape);
  },
  (k, [x], [y], n) => {
    const offset = offsetOf(y.shape, n.slice(y.shape.length));
    return [
      k.fill({ y, count: count(y), value: 0 }),
      move(k, 'scatterSlice', x.shape, dense(x), { buffer: y.buffer, offset, strides: stridesOf(y.shape) }),
    ];
  },
);

/** Concatenates its inputs: [axis]. */
export const CAT = operation(
  'cat',
  (x, [axis]) => [{ shape: catShape(x, axis), dtype: x[0].dtype }],
  (k, x, [y], [axis]) => {
    const strides = stridesOf(y.shape);
    const first = y.shape.map(() => 0);
    return x.map(({ buffer, shape }) => {
      const to = { buffer: y.buffer, offset: offsetOf(y.shape, first), strides };
      first[axis] += shape[axis];
      return move(k, 'cat', shape, { buffer, strides: stridesOf(shape) }, to);
    });
  },
  { host: (x, [axis]) => host.cat(x, catShape(x, axis), axis) },
);

function catShape(x: readonly Described[], axis: number): number[] {
  const shape = [...x[0].shape];
  shape[axis] = 0;
  for (const { shape: part, dtype } of x) {
    if (dtype !== x[0].dtype)
      throw new BackendError('cat', `${x[0].dtype} ${show(x[0].shape)} and ${dtype} ${show(part)}: cast one first (castDtype)`);
    if (part.length !== shape.length || part.some((size, d) => d !== axis && size !== shape[d])) {
      throw new BackendError('cat', `${show(x[0].shape)} and ${show(part)} along axis ${axis}: the other sizes must be the same`);
    }
    shape[axis] += part[axis];
  }
  return shape;
}

/** f32 to f16, or f16 to f32. */
export const CAST = operation(
  'castDtype',
  ([x]) => [{ shape: x.shape, dtype: x.dtype === 'f32' ? 'f16' : 'f32' }],
  (k, [x], [y]) => [k.cast({ x, y, count: count(x), from: kernelType(x.dtype), to: kernelType(y.dtype) })],
  { types: ['f32 or f16'] },
);
const kernelType = (dtype: Dtype) => (dtype === 'f16' ? 'f16' : 'f32');

/** Updates parameters, gradient, first and second moments in place; the last input is what `adamwState` makes. */
export const ADAMW = operation(
  'adamwStep',
  ([parameters, gradient, first, second]) => {
    sameCount('adamwStep', sizeOf(parameters.shape), [gradient, first, second]);
    return [];
  },
  (k, [parameters, gradient, first, second, state]) => [k.adamw({ parameters, gradient, first, second, state, count: count(parameters) })],
  { writes: [0, 2, 3] },
);

/** The optimizer state that the kernel reads (`STATE` of the kernels), from the numbers of the trainer's call in its order. */
export function adamwState([lr, beta1, beta2, eps, weightDecay, bc1, bc2, gradScale]: readonly number[]): Float32Array {
  const words = new Float32Array(STATE_WORDS);
  words[STATE.rate] = lr;
  words[STATE.correction1] = bc1;
  words[STATE.correction2] = bc2;
  words[STATE.clip] = gradScale;
  words[STATE.beta1] = beta1;
  words[STATE.oneMinusBeta1] = 1 - beta1;
  words[STATE.beta2] = beta2;
  words[STATE.oneMinusBeta2] = 1 - beta2;
  words[STATE.epsilon] = eps;
  words[STATE.decay] = weightDecay;
  return words;
}
