// Softmax, losses, normalization, gated units, embeddings and dropout: one kernel each, forward and backward.

import { STATE } from '../../kernels/index.mjs';
import { ArgumentError, ShapeError, show } from '../core/errors.mjs';
import { denseLayout } from '../core/layout.mjs';
import { flatCount, floatType } from './pointwise.mjs';
import { at, gelu, generate, rowsOf, sigmoid } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../core/layout.mjs').Layout} Layout */
/** @typedef {import('./registry.mjs').Reference} Reference */
/** @typedef {import('../../kernels/activation.mjs').Activation} Activation */
/** @typedef {{ scale: number, masked: boolean }} SoftmaxAttributes */
/** The target of rows that have no loss. @typedef {{ ignored: number }} LossAttributes */

/** @param {Layout} layout */
const rowSizes = ({ shape }) => {
  const [rows, columns] = rowsOf(shape);
  return { rows, columns };
};

/**
 * A result row by row.
 * @param {Reference} x @param {(row: Float64Array, r: number) => ArrayLike<number>} f @param {readonly number[]} [shape]
 */
function byRows(x, f, shape = x.shape) {
  const [rows, columns] = rowsOf(x.shape);
  const results = Array.from({ length: rows }, (_, r) => f(x.data.slice(r * columns, (r + 1) * columns), r));
  return { shape, data: Float64Array.from(results.flatMap((row) => [...Array.from(row)])) };
}

/** @param {Float64Array} row @param {number} scale @param {boolean} [masked] whether a row of only -∞ gives 0, not NaN */
function softmaxRow(row, scale, masked = false) {
  const largest = row.reduce((a, b) => Math.max(a, b * scale), -Infinity);
  if (masked && largest === -Infinity) return row.map(() => 0);
  const e = row.map((v) => Math.exp(v * scale - largest));
  const total = e.reduce((a, b) => a + b, 0);
  return e.map((v) => v / total);
}

const softmaxBackward = defineOp({
  name: 'softmaxBackward',
  infer: ([y]) => [denseLayout(y.shape, y.dtype)],
  lower: (k, [y, dy], [dx], /** @type {SoftmaxAttributes} */ { scale }) => [
    k.softmaxBackward({ y, dy, dx, ...rowSizes(y.layout), scale, type: floatType('softmax', y.layout) }),
  ],
  oracle: ([y, dy], { scale }) =>
    byRows(y, (row, r) => {
      const dot = row.reduce((sum, v, i) => sum + v * dy.data[r * row.length + i], 0);
      return row.map((v, i) => scale * v * (dy.data[r * row.length + i] - dot));
    }),
});

/** softmax(scale · x) over the last dimension. With `masked`, a row of only -∞ gives 0, as in PyTorch's attention. */
export const softmax = defineOp({
  name: 'softmax',
  infer: ([x]) => {
    floatType('softmax', x);
    return [denseLayout(x.shape, x.dtype)];
  },
  lower: (k, [x], [y], /** @type {SoftmaxAttributes} */ { scale, masked }) => [
    k.softmaxForward({ x, y, ...rowSizes(x.layout), scale, masked, type: floatType('softmax', x.layout) }),
  ],
  saveOutputs: [0],
  vjp: (dy, { outputs: [y], attributes }, F) => [F.call(softmaxBackward, [y, dy], attributes)],
  oracle: ([x], { scale, masked }) => byRows(x, (row) => softmaxRow(row, scale, masked)),
});

/** softmax(x) less the target's one, for each row. */
const crossEntropyGradient = defineOp({
  name: 'crossEntropyGradient',
  empty: 0,
  infer: ([x]) => [denseLayout(x.shape, x.dtype), denseLayout([rowsOf(x.shape)[0]], 'f32')],
  lower: (k, [x, targets], [dx, loss], /** @type {LossAttributes} */ { ignored }) => {
    const type = floatType('crossEntropy', x.layout);
    const copied = k.copy({ x, y: dx, count: flatCount(x.layout), type });
    return [copied, k.crossEntropy({ logits: dx, targets, loss, ...rowSizes(x.layout), type, ignored })];
  },
  oracle: ([x, targets], { ignored }) =>
    byRows(x, (row, r) => {
      const p = softmaxRow(row, 1);
      const target = targets.data[r];
      if (target === ignored) return p.fill(0);
      p[target]--;
      return p;
    }),
});

/** log Σ exp(x) - x[target] for each row, f32; 0 where the target is `ignored`. */
export const crossEntropyRows = defineOp({
  name: 'crossEntropy',
  infer: ([x, targets]) => {
    floatType('crossEntropy', x);
    if (targets.dtype !== 'u32' && targets.dtype !== 'i32') {
      throw new ArgumentError(
        'crossEntropy',
        `targets must be class numbers, i32 or u32, got ${targets.dtype}; argmax() makes them of one-hot rows`,
      );
    }
    if (x.shape.length === 0 || show(targets.shape) !== show(x.shape.slice(0, -1))) {
      const isPyTorchs = x.shape.length > 2 && show(targets.shape) === show(x.shape.toSpliced(1, 1));
      throw new ShapeError(
        'crossEntropy',
        `logits ${show(x.shape)}, whose last dimension is the classes, need targets ${show(x.shape.slice(0, -1))}, got ${show(targets.shape)}` +
          (isPyTorchs ? '; where dimension 1 is the classes, as in PyTorch, pass { dim: 1 }' : ''),
      );
    }
    return [denseLayout(targets.shape, 'f32')];
  },
  lower: (k, [x, targets], [loss], /** @type {LossAttributes} */ { ignored }) => [
    k.crossEntropyForward({ logits: x, targets, loss, ...rowSizes(x.layout), type: floatType('crossEntropy', x.layout), ignored }),
  ],
  empty: 0, // No target is a class.
  saveInputs: () => [0, 1],
  vjp: (dy, { inputs: [x, targets], attributes }, F) => {
    const dx = F.call(crossEntropyGradient, [x, targets], attributes);
    return [F.to(F.mul(dx, F.to(F.unsqueeze(dy, -1), dx.dtype)), x.dtype), undefined];
  },
  oracle: ([x, targets], { ignored }) =>
    byRows(
      x,
      (row, r) => {
        if (targets.data[r] === ignored || !(targets.data[r] in row)) return [0];
        const largest = row.reduce((a, b) => Math.max(a, b), -Infinity);
        return [largest + Math.log(row.reduce((sum, v) => sum + Math.exp(v - largest), 0)) - row[targets.data[r]]];
      },
      targets.shape,
    ),
});

/**
 * @param {'rmsNorm' | 'layerNorm'} name
 */
function normalization(name) {
  const layer = name === 'layerNorm';
  const inputs = layer ? 3 : 2;
  /** @param {Float64Array} row @param {number} eps */
  const normalized = (row, eps) => {
    const mean = layer ? row.reduce((a, b) => a + b, 0) / row.length : 0;
    const scale = 1 / Math.sqrt(row.reduce((sum, v) => sum + (v - mean) ** 2, 0) / row.length + eps);
    return { scale, values: row.map((v) => (v - mean) * scale) };
  };
  const backward = defineOp({
    name: `${name}Backward`,
    empty: 0,
    // dx, the weight's gradient, and the bias's.
    infer: ([, x, weight]) => [denseLayout(x.shape, x.dtype), ...new Array(inputs - 1).fill(denseLayout(weight.shape, 'f32'))],
    lower: (k, [dy, x, weight, stats], [dx, dWeight, dBias]) => {
      const args = { dy, x, weight, stats, dx, dWeight, ...rowSizes(x.layout), type: floatType(name, x.layout) };
      return layer ? k.layerNormBackward({ ...args, dBias }) : k.rmsNormBackward(args);
    },
    oracle: ([dy, x, weight], /** @type {{ eps: number }} */ { eps }) =>
      byRows(x, (row, r) => {
        const { scale, values } = normalized(row, eps);
        const g = row.map((_, i) => dy.data[r * row.length + i] * weight.data[i]);
        const mean = layer ? g.reduce((a, b) => a + b, 0) / row.length : 0;
        const dot = g.reduce((sum, v, i) => sum + v * values[i], 0) / row.length;
        return g.map((v, i) => scale * (v - mean - values[i] * dot));
      }),
  });
  return defineOp({
    name,
    cheap: true,
    empty: 0, // Statistics of empty rows, which nobody reads.
    infer: ([x, weight, bias]) => {
      floatType(name, x);
      const [rows, columns] = rowsOf(x.shape);
      for (const [what, own] of /** @type {[string, Layout | undefined][]} */ ([
        ['weight', weight],
        ['bias', bias],
      ])) {
        if (own && (own.dtype !== 'f32' || own.shape.length !== 1 || own.shape[0] !== columns)) {
          throw new ShapeError(name, `an input ${show(x.shape)} needs a ${what} f32 [${columns}], got ${own.dtype} ${show(own.shape)}`);
        }
      }
      return [denseLayout(x.shape, x.dtype), denseLayout(layer ? [rows, 2] : [rows], 'f32')];
    },
    lower: (k, [x, weight, bias], [y, stats], /** @type {{ eps: number }} */ { eps }) => {
      const args = { x, y, weight, stats, ...rowSizes(x.layout), eps, type: floatType(name, x.layout) };
      return [layer ? k.layerNormForward({ ...args, bias }) : k.rmsNormForward(args)];
    },
    saveInputs: () => [0, 1],
    saveOutputs: [1],
    vjp: (dy, { inputs: [x, weight], outputs: [, stats], attributes }, F) => F.callAll(backward, [dy, x, weight, stats], attributes),
    oracle: ([x, weight, bias], { eps }) =>
      byRows(x, (row) => normalized(row, eps).values.map((v, i) => v * weight.data[i] + (bias ? bias.data[i] : 0))),
  });
}

/** x / sqrt(mean(x²) + eps) · weight over the last dimension (Zhang & Sennrich 2019). */
export const rmsNorm = normalization('rmsNorm');
/** (x - mean) / sqrt(var + eps) · weight + bias over the last dimension (Ba et al. 2016). */
export const layerNorm = normalization('layerNorm');

/** Activations of gated units. @type {Record<string, (x: number) => number>} */
export const GATES = {
  identity: (x) => x,
  relu: (x) => Math.max(x, 0),
  silu: (x) => x * sigmoid(x),
  gelu,
  tanh: Math.tanh,
  sigmoid,
};

const gluBackward = defineOp({
  name: 'gluBackward',
  infer: ([x]) => [denseLayout(x.shape, x.dtype)],
  lower: (k, [gateUp, dy], [dGateUp], /** @type {{ activation: Activation }} */ { activation }) => {
    const [rows, columns] = rowsOf(gateUp.layout.shape);
    return [k.gluBackward({ gateUp, dy, dGateUp, rows, columns: columns / 2, activation, type: floatType('glu', gateUp.layout) })];
  },
  oracle: ([x, dy], { activation }) => {
    const f = GATES[activation];
    return byRows(x, (row, r) => {
      const half = row.length / 2;
      return row.map((v, i) => {
        const d = dy.data[r * half + (i % half)];
        return i < half ? (d * row[i + half] * (f(v + 1e-6) - f(v - 1e-6))) / 2e-6 : d * f(row[i - half]);
      });
    });
  },
});

/** f(gate) · up of rows [gate | up] (Shazeer 2020). */
export const glu = defineOp({
  name: 'glu',
  cheap: true,
  infer: ([x]) => {
    const columns = x.shape.at(-1) ?? 1;
    floatType('glu', x);
    if (columns % 2) throw new ShapeError('glu', `rows of [gate, up] must have an even size, got ${show(x.shape)}`);
    return [denseLayout([...x.shape.slice(0, -1), columns / 2], x.dtype)];
  },
  lower: (k, [gateUp], [y], /** @type {{ activation: Activation }} */ { activation }) => {
    const [rows, columns] = rowsOf(gateUp.layout.shape);
    return [k.gluForward({ gateUp, y, rows, columns: columns / 2, activation, type: floatType('glu', gateUp.layout) })];
  },
  saveInputs: () => [0],
  vjp: (dy, { inputs: [x], attributes }, F) => [F.call(gluBackward, [x, dy], attributes)],
  oracle: ([x], { activation }) => {
    const half = (x.shape.at(-1) ?? 2) / 2;
    return byRows(x, (row) => row.slice(0, half).map((v, i) => GATES[activation](v) * row[i + half]), [...x.shape.slice(0, -1), half]);
  },
});

/** @type {import('./registry.mjs').Op} */
const embeddingBackward = defineOp({
  name: 'embeddingBackward',
  empty: 0,
  infer: (_, /** @type {{ vocabulary: number, columns: number }} */ { vocabulary, columns }) => [denseLayout([vocabulary, columns], 'f32')],
  saveInputs: () => [0],
  vjp: (g, { inputs: [ids], layouts: [, dy] }, F) => [undefined, F.to(F.call(embedding, [ids, g]), dy.dtype)],
  lower: (k, [ids, dy], [dTable], { vocabulary, columns }) => [
    k.fill({ y: dTable, count: vocabulary * columns, value: 0 }),
    k.embeddingBackward({ ids, dy, dTable, tokens: ids.layout.size, columns, vocabulary, type: floatType('embedding', dy.layout) }),
  ],
  oracle: ([ids, dy], { vocabulary, columns }) => {
    const result = generate([vocabulary, columns], () => 0);
    ids.data.forEach((id, t) => {
      for (let c = 0; c < columns; c++) result.data[id * columns + c] += dy.data[t * columns + c];
    });
    return result;
  },
});

/** The rows of a table that ids name; an id outside the table gives zeros. */
export const embedding = defineOp({
  name: 'embedding',
  empty: 0, // Of a table without rows, every id is outside.
  infer: ([ids, table]) => {
    if (ids.dtype !== 'u32' && ids.dtype !== 'i32')
      throw new ArgumentError('embedding', `ids must be i32 or u32, got ${ids.dtype}; convert with .to('i32')`);
    floatType('embedding', table);
    if (table.shape.length !== 2) throw new ShapeError('embedding', `the table must have two dimensions, got ${show(table.shape)}`);
    return [denseLayout([...ids.shape, table.shape[1]], table.dtype)];
  },
  lower: (k, [ids, table], [y]) => {
    const [vocabulary, columns] = table.layout.shape;
    return [
      k.embeddingForward({ ids, table, y, tokens: ids.layout.size, columns, vocabulary, type: floatType('embedding', table.layout) }),
    ];
  },
  saveInputs: () => [0],
  vjp: (dy, { inputs: [ids], layouts: [, table] }, F) => {
    const [vocabulary, columns] = table.shape;
    return [undefined, F.to(F.call(embeddingBackward, [ids, dy], { vocabulary, columns }), table.dtype)];
  },
  oracle: ([ids, table]) => {
    const [rows, columns] = table.shape;
    return generate([...ids.shape, columns], (index) => {
      const id = at(ids, index.slice(0, -1));
      return id < rows ? at(table, [id, index[index.length - 1]]) : 0;
    });
  },
});

/** The words of a random state, kept for the backward pass. */
const RANDOM_WORDS = 4;

/** The gradient: drops the same elements again. */
/** @type {import('./registry.mjs').Op} */
const dropoutBackward = defineOp({
  name: 'dropoutBackward',
  infer: ([dy]) => [denseLayout(dy.shape, dy.dtype)],
  lower: (k, [dy, random], [dx], /** @type {{ p: number }} */ { p }) => [
    k.dropout({ x: dy, y: dx, count: flatCount(dy.layout), p, random, type: floatType('dropout', dy.layout) }),
  ],
  saveInputs: () => [1],
  vjp: (g, { inputs: [, random], attributes }, F) => [F.call(dropoutBackward, [g, random], attributes), undefined],
  oracle: ([dy]) => dy,
});

/**
 * Drops elements with probability p and divides the others by 1 - p. The second input is the random state, which each call advances by one;
 * the state that was drawn from is kept for the backward pass.
 */
export const dropout = defineOp({
  name: 'dropout',
  empty: 0, // The random state of no elements.
  infer: ([x]) => {
    floatType('dropout', x);
    return [denseLayout(x.shape, x.dtype), denseLayout([RANDOM_WORDS], 'u32')];
  },
  lower: (k, [x, state], [y, random], /** @type {{ p: number }} */ { p }) => [
    k.optimizerAdvance({ state: state.buffer }),
    k.copy({ x: { buffer: state.buffer, offset: STATE.seedLow }, y: random, count: RANDOM_WORDS }),
    k.dropout({ x, y, count: flatCount(x.layout), p, random, type: floatType('dropout', x.layout) }),
  ],
  saveOutputs: [1],
  vjp: (dy, { outputs: [, random], attributes }, F) => [F.call(dropoutBackward, [dy, random], attributes), undefined],
  oracle: ([x]) => x,
});
