// Convolutions, pools, norms, attention and recurrent layers as ONNX's operators.

import { activated } from './elementwise.mjs';
import { float } from './graph.mjs';
import { Size, Unsupported, computed, equal, product } from './sizes.mjs';

/** @typedef {import('./graph.mjs').Writer} Writer */
/** @typedef {import('./graph.mjs').DType} DType */
/** @typedef {import('./operations.mjs').Operation} Operation */
/** @typedef {import('./operations.mjs').Writes} Writes */
/** @typedef {import('./sizes.mjs').Dimension} Dimension */

/** A bias, which is f32, in the type of what it is added to. @param {Writer} g @param {string[]} x @param {Operation} operation */
const biasOf = (g, x, { inputs }) => (x.length > 2 ? [g.cast(x[2], inputs[2].dtype, inputs[0].dtype)] : []);

/** Numbers that all traces share. @param {Writer} g @param {readonly Dimension[]} sizes @param {string} what */
const all = (g, sizes, what) => sizes.map((size) => g.fixed(size, what));

/** @type {Writes} */
function linear(g, x, operation) {
  const { inputs, outputs } = operation;
  const bias = biasOf(g, x, operation);
  if (inputs[0].shape.length === 2) return g.node('Gemm', [x[0], x[1], ...bias], { transB: 1 });
  const product = g.node('MatMul', [x[0], g.node('Transpose', [x[1]], { perm: [1, 0] })]);
  const y = bias.length > 0 ? g.node('Add', [product, ...bias]) : product;
  // A row alone has no dimension of rows.
  return inputs[0].shape.length === 0 ? g.reshape(y, [1], outputs[0].shape) : y;
}

/** Adapters beside a layer, each in its columns. @type {Writes} */
function adapt(g, x, { inputs, attributes: { rows, scales } }) {
  const [y] = inputs;
  const columns = g.fixed(/** @type {Dimension} */ (y.shape.at(-1)), 'the size of a row');
  const none = new Array(y.shape.length - 1).fill(0);
  const transposed = (/** @type {string} */ name) => g.node('Transpose', [name], { perm: [1, 0] });
  return rows.reduce((/** @type {string} */ sum, /** @type {number} */ row, /** @type {number} */ i) => {
    const [a, b] = [2 + i, 2 + rows.length + i];
    const inner = g.node('MatMul', [x[1], transposed(x[a])]);
    const scaled = scales[i] === 1 ? inner : g.node('Mul', [inner, g.number(y.dtype, scales[i])]);
    const own = g.node('MatMul', [scaled, transposed(x[b])]);
    const after = columns - row - g.fixed(inputs[b].shape[0], 'the outputs of an adapter');
    const wide = row === 0 && after === 0 ? own : g.node('Pad', [own, g.integers([...none, row, ...none, after])]);
    return g.node('Add', [sum, wide]);
  }, x[0]);
}

/** @type {Writes} */
function convolution(g, x, operation) {
  const { stride, padding, after, dilation, groups } = operation.attributes;
  const pads = all(g, [...padding, ...after], 'its padding');
  return g.node('Conv', [x[0], x[1], ...biasOf(g, x, operation)], { strides: stride, pads, dilations: dilation, group: groups });
}

/** @type {Writes} */
function convolutionInput(g, x, operation) {
  const { stride, padding, dilation, groups, size } = operation.attributes;
  const [from, weight] = operation.inputs.map(({ shape }) => shape.slice(2));
  // Zeros behind: fewer elements where it is positive, else more.
  const behind = size.map((/** @type {Dimension} */ own, /** @type {number} */ d) =>
    g.fixed(
      computed((n, result, window) => stride[d] * (n - 1) + (window - 1) * dilation[d] + 1 - padding[d] - result, from[d], own, weight[d]),
      'its padding',
    ),
  );
  const attributes = {
    strides: stride,
    dilations: dilation,
    group: groups,
    pads: [...padding, ...behind.map((/** @type {number} */ n) => Math.max(n, 0))],
    output_padding: behind.map((/** @type {number} */ n) => Math.max(-n, 0)),
  };
  return g.node('ConvTranspose', [x[0], x[1], ...biasOf(g, x, operation)], attributes);
}

/**
 * A pool's window as ONNX has it, with zeros behind x as far as the last window reaches.
 * @param {Writer} g @param {Operation} operation
 */
function windows(g, { attributes: { size, result, window, stride = window, padding = [], dilation = [] } }) {
  const rank = size.length;
  const sized = (/** @type {number[]} */ list, /** @type {number} */ fill) => Array.from({ length: rank }, (_, d) => list[d] ?? fill);
  const [before, steps] = [sized(padding, 0), sized(dilation, 1)];
  /** How far the last window reaches behind x. @param {number} d @returns {Dimension} */
  const reach = (d) => computed((n, q) => (q - 1) * stride[d] + (window[d] - 1) * steps[d] + 1 - n - before[d], size[d], result[d]);
  /** As many windows as with the same zeros behind as before. */
  const even = before.every((zeros, d) => computed((r) => Number(r <= zeros && r > zeros - stride[d]), reach(d)) === 1);
  const behind = before.map((zeros, d) => (even ? zeros : Math.max(0, g.fixed(reach(d), 'how far its last window reaches'))));
  return { kernel_shape: window, strides: stride, dilations: steps, pads: [...before, ...behind], even };
}

/**
 * A pool over planes, which ONNX wants as [batch, channels, ...sizes].
 * @param {Writer} g @param {string} x @param {Operation} operation @param {(x: string) => string} of @returns {string}
 */
function overPlanes(g, x, { inputs: [{ shape }], outputs: [y], attributes: { size } }, of) {
  const rank = size.length;
  if (shape.length === rank + 2) return of(x);
  const lead = shape.slice(0, shape.length - rank);
  const planes = [1, product(lead), ...shape.slice(lead.length)];
  const pooled = of(g.reshape(x, shape, planes));
  return g.reshape(pooled, [1, planes[1], ...y.shape.slice(lead.length)], y.shape);
}

/** Whether an adaptive pool has one element. @param {Operation} operation */
const isGlobal = ({ attributes: { result, window } }) => window === undefined && result.every((/** @type {Dimension} */ n) => n === 1);

/** An adaptive pool of equal windows as one with these. @param {Operation} operation @returns {Operation | undefined} */
function withWindow(operation) {
  const { size, result, window } = operation.attributes;
  if (window !== undefined) return operation;
  const own = size.map((/** @type {Dimension} */ n, /** @type {number} */ d) => computed((a, b) => a / b, n, result[d]));
  return own.every(Number.isInteger) ? { ...operation, attributes: { ...operation.attributes, window: own } } : undefined;
}

/** @type {Writes} */
function maxPool(g, [x], operation) {
  if (isGlobal(operation)) return overPlanes(g, x, operation, (planes) => g.node('GlobalMaxPool', [planes]));
  const own = withWindow(operation);
  if (!own) return adaptiveMax(g, x, operation);
  const { even: _, ...attributes } = windows(g, own);
  const [, indices] = operation.outputs;
  if (indices !== undefined)
    g.names.set(indices, () => {
      const plane = g.fixed(product(own.attributes.size), `maxPool (${operation.origin}): the size of the planes of its indices`);
      const everywhere = overPlanes(g, x, own, (planes) => g.split('MaxPool', [planes], attributes, 2)[1]);
      // ONNX counts from the first plane on.
      return g.cast(g.node('Mod', [everywhere, g.number('i64', plane)]), 'i64', indices.dtype);
    });
  return overPlanes(g, x, own, (planes) => g.node('MaxPool', [planes], attributes));
}

/** What an adaptive pool's windows are along a dimension. @param {number} n @param {number} q how many @returns {[from: number, to: number][]} */
const parts = (n, q) => Array.from({ length: q }, (_, i) => [Math.floor((i * n) / q), Math.ceil(((i + 1) * n) / q)]);

/** The largest elements of an adaptive pool, dimension by dimension, window by window. @type {(g: Writer, x: string, operation: Operation) => string} */
function adaptiveMax(g, x, { inputs: [{ shape }], attributes: { size, result } }) {
  return size.reduce((/** @type {string} */ y, /** @type {Dimension} */ _, /** @type {number} */ d) => {
    const [n, q] = all(g, [size[d], result[d]], 'the size of its windows');
    const axis = shape.length - size.length + d;
    const largest = parts(n, q).map(([from, to]) => g.node('ReduceMax', [g.slice(y, axis, from, to), g.integers([axis])], { keepdims: 1 }));
    return largest.length === 1 ? largest[0] : g.node('Concat', largest, { axis });
  }, x);
}

/** @type {Writes} */
function avgPool(g, [x], operation) {
  if (isGlobal(operation)) return overPlanes(g, x, operation, (planes) => g.node('GlobalAveragePool', [planes]));
  const own = withWindow(operation);
  if (!own) return adaptiveMean(g, x, operation);
  const { even, ...attributes } = windows(g, own);
  const { divisor, countIncludePad = true } = own.attributes;
  const area = attributes.kernel_shape.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
  return overPlanes(g, x, own, (planes) => {
    if (!divisor && (even || !countIncludePad)) {
      return g.node('AveragePool', [planes], { ...attributes, count_include_pad: countIncludePad ? 1 : 0 });
    }
    const sum = g.node('AveragePool', [planes], { ...attributes, count_include_pad: 1 });
    // The mean of a whole window, times its area, by what the mean of this one is of.
    const { shape, elements } = divisor ? { shape: [], elements: [area / divisor] } : shares(g, own, area);
    return g.node('Mul', [sum, g.constant(own.inputs[0].dtype, shape, elements)]);
  });
}

/**
 * For each window the area of a whole one by that of its part within x and the zeros around it.
 * @param {Writer} g @param {Operation} operation @param {number} area
 */
function shares(g, { attributes: { size, result, window, stride = window, padding = [], dilation = [] } }, area) {
  const counts = result.map((/** @type {Dimension} */ own, /** @type {number} */ d) => {
    const [n, q] = all(g, [size[d], own], 'the size of its last window');
    return Array.from({ length: q }, (_, i) => {
      const from = i * stride[d] - (padding[d] ?? 0);
      return Math.min(from + (window[d] - 1) * (dilation[d] ?? 1) + 1, n + (padding[d] ?? 0)) - from;
    });
  });
  const elements = counts.reduce(
    (/** @type {number[]} */ list, /** @type {number[]} */ own) => list.flatMap((a) => own.map((b) => a * b)),
    [1],
  );
  return {
    shape: counts.map((/** @type {number[]} */ own) => own.length),
    elements: elements.map((/** @type {number} */ count) => area / count),
  };
}

/** The means of an adaptive pool, dimension by dimension, as products with constant matrices. @type {(g: Writer, x: string, operation: Operation) => string} */
function adaptiveMean(g, x, { inputs: [{ shape, dtype }], attributes: { size, result } }) {
  let y = x;
  for (let d = 0; d < size.length; d++) {
    const [n, q] = all(g, [size[d], result[d]], 'the size of its windows');
    const matrix = new Array(n * q).fill(0);
    for (const [i, [from, to]] of parts(n, q).entries()) for (let j = from; j < to; j++) matrix[j * q + i] = 1 / (to - from);
    const axis = shape.length - size.length + d;
    const order = [...shape.keys()];
    [order[axis], order[shape.length - 1]] = [order[shape.length - 1], order[axis]];
    const isLast = axis === shape.length - 1;
    const rows = isLast ? y : g.node('Transpose', [y], { perm: order });
    const means = g.node('MatMul', [rows, g.constant(dtype, [n, q], matrix)]);
    y = isLast ? means : g.node('Transpose', [means], { perm: order });
  }
  return y;
}

/** A row of only -∞ gives 0. @param {Writer} g @param {string} x @param {DType} dtype @param {boolean} masked @returns {string} */
function softmaxOf(g, x, dtype, masked) {
  const y = g.node('Softmax', [x], { axis: -1 });
  if (!masked) return y;
  const largest = g.node('ReduceMax', [x, g.integers([-1])], { keepdims: 1 });
  return g.node('Where', [g.node('Equal', [largest, g.number(dtype, -Infinity)]), g.number(dtype, 0), y]);
}

/** @type {Writes} */
function softmax(g, [x], { inputs: [{ dtype }], attributes: { scale, masked } }) {
  return softmaxOf(g, scale === 1 ? x : g.node('Mul', [x, g.number(dtype, scale)]), dtype, masked);
}

/** What `withBatchNorms` makes. @type {Writes} */
function batchNorm(g, [x, mean, variance, ...rest], { inputs, attributes: { eps, weight, bias } }) {
  const count = g.fixed(inputs[1].shape[0], 'the number of channels');
  const all = (/** @type {number} */ value) => g.constant('f32', [count], new Array(count).fill(value));
  const scale = weight ? rest[0] : all(1);
  const shift = bias ? rest[rest.length - 1] : all(0);
  return g.node('BatchNormalization', [x, scale, shift, mean, variance], { epsilon: float(eps) });
}

/** @type {Writes} */
function rmsNorm(g, [x, weight], { inputs: [{ dtype }], attributes: { eps } }) {
  const own = g.cast(x, dtype, 'f32');
  const mean = g.node('ReduceMean', [g.node('Mul', [own, own]), g.integers([-1])], { keepdims: 1 });
  const scaled = g.node('Div', [own, g.node('Sqrt', [g.node('Add', [mean, g.number('f32', eps)])])]);
  return g.cast(g.node('Mul', [scaled, weight]), 'f32', dtype);
}

/** @type {Writes} */
function layerNorm(g, [x, ...rest], { inputs: [{ dtype }], attributes: { eps } }) {
  const y = g.node('LayerNormalization', [g.cast(x, dtype, 'f32'), ...rest], { axis: -1, epsilon: float(eps) });
  return g.cast(y, 'f32', dtype);
}

/** @type {Writes} */
function glu(g, [x], operation) {
  const [gate, up] = g.split('Split', [x], { axis: -1, num_outputs: 2 }, 2);
  return g.node('Mul', [activated(g, operation.attributes.activation, gate, operation), up]);
}

/** @type {Writes} */
function embedding(g, [ids, table], { inputs: [{ dtype }] }) {
  return g.node('Gather', [table, g.cast(ids, dtype, 'i64')], { axis: 0 });
}

/** The registry's operation has its targets, and the one that has no loss, as words. @type {Writes} */
function crossEntropy(g, [x, targets], { inputs: [logits, labels], outputs: [y], attributes: { ignored } }) {
  const classes = logits.shape[logits.shape.length - 1];
  const rows = product(labels.shape);
  const flat = g.reshape(g.cast(x, logits.dtype, 'f32'), logits.shape, [rows, classes]);
  const own = g.reshape(g.cast(targets, labels.dtype, 'i64'), labels.shape, [rows]);
  return g.reshape(g.node('SoftmaxCrossEntropyLoss', [flat, own], { reduction: 'none', ignore_index: ignored | 0 }), [rows], y.shape);
}

// ---- attention

/**
 * Attention of [batch, heads, tokens, size].
 * @param {Writer} g @param {{ q: string, k: string, v: string }} names k and v with `kvHeads` heads
 * @param {{ dtype: DType, batch: Dimension, tokens: Dimension, keys: Dimension, heads: number, kvHeads: number, size: number }} sizes
 * @param {{ causal: boolean, window?: number, scale: number, firstKey?: string }} how `firstKey` [batch, tokens] of int64
 * @returns {string} [batch, heads, tokens, size]
 */
function attend(g, { q, k, v }, { dtype, batch, tokens, keys, heads, kvHeads, size }, { causal, window = 0, scale, firstKey }) {
  /** Each head of keys for all of its queries' heads. @param {string} x */
  const spread = (x) => {
    if (kvHeads === heads) return x;
    const group = heads / kvHeads;
    const apart = g.node('Unsqueeze', [x, g.integers([2])]);
    const wide = g.node('Expand', [apart, g.integers([1, 1, group, 1, 1])]);
    return g.reshape(wide, [batch, kvHeads, group, keys, size], [batch, heads, keys, size]);
  };
  const scaled = g.node('Mul', [q, g.number(dtype, scale)]);
  let scores = g.node('MatMul', [scaled, g.node('Transpose', [spread(k)], { perm: [0, 1, 3, 2] })]);
  /** @type {string[]} */
  const seen = [];
  if (causal || window > 0 || firstKey !== undefined) {
    const place = g.node('Unsqueeze', [g.range(tokens), g.integers([1])]);
    const own = equal(tokens, keys) ? place : g.node('Add', [place, g.sizes([computed((a, b) => b - a, tokens, keys)])]);
    const key = g.node('Unsqueeze', [g.range(keys), g.integers([0])]);
    if (causal) seen.push(g.node('LessOrEqual', [key, own]));
    if (window > 0) seen.push(g.node('Greater', [key, g.node('Sub', [own, g.integers([window])])]));
    if (firstKey !== undefined) seen.push(g.node('GreaterOrEqual', [key, g.node('Unsqueeze', [firstKey, g.integers([1, 3])])]));
  }
  if (seen.length > 0) {
    const mask = seen.reduce((a, b) => g.node('And', [a, b]));
    scores = g.node('Where', [mask, scores, g.number(dtype, -Infinity)]);
  }
  return g.node('MatMul', [softmaxOf(g, scores, dtype, firstKey !== undefined), spread(v)]);
}

const HEADS_FIRST = { perm: [0, 2, 1, 3] };

/** @type {Writes} */
function attention(g, [qkv, firstKey], operation) {
  const [{ shape, dtype }, first] = operation.inputs;
  const { heads, kvHeads, causal, window: given } = operation.attributes;
  // 0 where a window has all tokens: with it they are seen as well.
  const spans = given instanceof Size ? [...new Set(given.values.filter((span) => span > 0))] : [given];
  if (spans.length !== 1) throw new Unsupported('its window depends on a dynamic size');
  const [window] = spans;
  const [batch, tokens, width] = shape;
  const size = g.fixed(width, 'the size of a head') / (heads + 2 * kvHeads);
  let from = 0;
  const [q, k, v] = [heads, kvHeads, kvHeads].map((count) => {
    const part = g.slice(qkv, 2, from * size, (from + count) * size);
    from += count;
    const split = g.reshape(part, [batch, tokens, count * size], [batch, tokens, count, size]);
    return g.node('Transpose', [split], HEADS_FIRST);
  });
  const sizes = { dtype, batch, tokens, keys: tokens, heads, kvHeads, size };
  const how = { causal, window, scale: 1 / Math.sqrt(size), firstKey: firstKey && g.cast(firstKey, first.dtype, 'i64') };
  const out = g.node('Transpose', [attend(g, { q, k, v }, sizes, how)], HEADS_FIRST);
  return g.reshape(out, [batch, tokens, heads, size], [batch, tokens, heads * size]);
}

/** @type {Writes} */
function attentionApart(g, x, operation) {
  const [{ shape, dtype }, { shape: ofKeys }] = operation.inputs;
  const [q, k, v] = x.map((name) => g.node('Transpose', [name], HEADS_FIRST));
  const [heads, size] = all(g, shape.slice(2), 'heads');
  const sizes = { dtype, batch: shape[0], tokens: shape[1], keys: ofKeys[1], heads, kvHeads: g.fixed(ofKeys[2], 'heads'), size };
  return g.node(
    'Transpose',
    [attend(g, { q, k, v }, sizes, /** @type {Parameters<typeof attend>[3]} */ (operation.attributes))],
    HEADS_FIRST,
  );
}

/** @type {Writes} */
function rope(g, [x, table, places], operation) {
  const [{ shape, dtype }, { shape: ofTable }, at] = operation.inputs;
  const { heads, headSize } = operation.attributes;
  const rank = shape.length;
  const tokens = shape[rank - 2];
  const width = g.fixed(shape[rank - 1], 'the size of a row');
  const [cos, sin] = [0, 1].map((i) => {
    const own = g.node('Gather', [table, g.number('i64', i)], { axis: 2 });
    const rows =
      places === undefined
        ? equal(ofTable[0], tokens)
          ? own
          : g.slice(own, 0, 0, tokens)
        : g.node('Gather', [own, g.node('Min', [g.cast(places, at.dtype, 'i64'), g.sizes([computed((n) => n - 1, ofTable[0])])])], {
            axis: 0,
          });
    return g.cast(g.node('Unsqueeze', [rows, g.integers([-2])]), 'f32', dtype);
  });
  const lead = shape.slice(0, -1);
  const rotated = heads * headSize;
  const own = rotated === width ? x : g.slice(x, rank - 1, 0, rotated);
  const apart = g.reshape(own, [...lead, rotated], [...lead, heads, headSize]);
  const [a, b] = g.split('Split', [apart], { axis: -1, num_outputs: 2 }, 2);
  const product = (/** @type {string} */ p, /** @type {string} */ q) => g.node('Mul', [p, q]);
  const halves = [g.node('Sub', [product(a, cos), product(b, sin)]), g.node('Add', [product(a, sin), product(b, cos)])];
  const turned = g.reshape(g.node('Concat', halves, { axis: -1 }), [...lead, heads, headSize], [...lead, rotated]);
  return rotated === width ? turned : g.node('Concat', [turned, g.slice(x, rank - 1, rotated, width)], { axis: -1 });
}

// ---- recurrent layers

/**
 * The states of a recurrence [steps + 1, batch, hidden], or of an LSTM's cells. Parts of it that ONNX's operator gives are outputs of it.
 * @typedef {{ first: string, last: string, all?: string, steps: Dimension }} Sequence `last` [1, batch, hidden]; without `all` only these are known
 */
/** Values that are sequences, or both of an LSTM. @type {WeakMap<import('./graph.mjs').Value, Sequence | Sequence[]>} */
const sequences = new WeakMap();

/**
 * Enters a value that is a sequence: its nodes are written only where all of it is used.
 * @param {Writer} g @param {import('./graph.mjs').Value} value @param {Sequence | Sequence[]} states
 */
function enter(g, value, states) {
  sequences.set(value, states);
  g.names.set(value, () => {
    if (Array.isArray(states) || states.all === undefined) throw new Unsupported('the cells of all steps are no output of ONNX');
    return g.node('Concat', [states.first, states.all], { axis: 0 });
  });
}

/**
 * Names a view of a recurrence's states that is an output of its operator.
 * @param {Writer} g @param {Operation} operation a slice or reshape @returns {boolean} whether it is one
 */
export function isOfSequence(g, { name, inputs: [x], outputs: [y], attributes: { dim, start, length } }) {
  const states = sequences.get(x);
  if (states === undefined) return false;
  if (Array.isArray(states)) {
    // [2, steps + 1, batch, hidden] to one of both, and without the first dimension.
    if (name === 'slice' && dim === 0 && length === 1) enter(g, y, [states[start]]);
    else if (name === 'reshape' && states.length === 1 && y.shape.length === x.shape.length - 1) enter(g, y, states[0]);
    else return false;
    return true;
  }
  if (name !== 'slice' || dim !== 0) return false;
  const part =
    length === 1 && equal(start, states.steps) ? states.last : start === 1 && equal(length, states.steps) ? states.all : undefined;
  if (part !== undefined) g.names.set(y, part);
  return part !== undefined;
}

/**
 * A recurrent operation as ONNX's operator. If the inputs' gates are of a linear layer, that is part of it.
 * @param {'GRU' | 'LSTM'} op @param {readonly number[]} order of ONNX's gates among the operation's
 * @returns {Writes}
 */
const recurrent = (op, order) => (g, x, operation) => {
  const { inputs, outputs, producer } = operation;
  const [, steps, every] = inputs[0].shape;
  const gates = order.length;
  const wide = g.fixed(every, 'the size of a state');
  const hidden = wide / gates;
  const weight = inputs.length - 2;
  /** Rows of a parameter in ONNX's order, with a dimension of directions. @param {string} name */
  const ordered = (name) => {
    const parts = g.split('Split', [name], { axis: 0, num_outputs: gates }, gates);
    return g.node(
      'Concat',
      order.map((i) => parts[i]),
      { axis: 0 },
    );
  };
  const directed = (/** @type {string} */ name) => g.node('Unsqueeze', [name, g.integers([0])]);
  const source = producer(inputs[0]);
  const layer = source?.name === 'linear' && source.inputs[0].shape.length === 3 ? source : undefined;
  const read = layer ? layer.inputs.map((value) => g.nameOf(value)) : [x[0], identity(g, wide)];
  const zeros = () => g.constant('f32', [wide], new Array(wide).fill(0));
  const bias = g.node('Concat', [read[2] ?? zeros(), x[weight + 1]].map(ordered), { axis: 0 });
  const first = x.slice(1, weight).map(directed);
  const operands = [
    g.node('Transpose', [read[0]], { perm: [1, 0, 2] }),
    directed(ordered(read[1])),
    directed(ordered(x[weight])),
    directed(bias),
    '',
    ...first,
  ];
  const attributes = { hidden_size: hidden, ...(op === 'GRU' ? { linear_before_reset: 1 } : {}) };
  const [y, ...last] = g.split(op, operands, attributes, first.length + 1);
  /** @type {Sequence} */
  const states = { first: first[0], last: last[0], all: g.node('Squeeze', [y, g.integers([1])]), steps };
  enter(g, outputs[0], op === 'GRU' ? states : [states, { first: first[1], last: last[1], steps }]);
  return undefined;
};

/** @param {Writer} g @param {number} size */
const identity = (g, size) =>
  g.constant(
    'f32',
    [size, size],
    Array.from({ length: size * size }, (_, i) => Number(i % (size + 1) === 0)),
  );

/** @type {Record<string, Writes>} */
export const NETWORK = {
  linear,
  adapt,
  convolution,
  convolutionInput,
  maxPool,
  avgPool,
  softmax,
  batchNorm,
  rmsNorm,
  layerNorm,
  glu,
  embedding,
  crossEntropy,
  attention,
  attentionApart,
  rope,
  // Reset, update, new as update, reset, new; input, forget, new, output as input, output, forget, new.
  gru: recurrent('GRU', [1, 0, 2]),
  lstm: recurrent('LSTM', [0, 3, 1, 2]),
};
