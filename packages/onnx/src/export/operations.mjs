// Operations of the registry as nodes of ONNX.

import { elementwise } from './elementwise.mjs';
import { END } from './graph.mjs';
import { NETWORK, isOfSequence } from './network.mjs';
import { Size, Unsupported, computed, equal, product } from './sizes.mjs';

/** @typedef {import('./graph.mjs').Writer} Writer */
/** @typedef {import('./graph.mjs').Value} Value */
/** @typedef {import('./sizes.mjs').Dimension} Dimension */
/**
 * An operation of all traces; numbers that differ are of the class `Size`.
 * @typedef {object} Operation
 * @property {string} name
 * @property {ReturnType<typeof import('helios-vk/nn').traceOperations>['operations'][number]['attributes']} attributes
 * @property {Value[]} inputs
 * @property {Value[]} outputs
 * @property {ReturnType<typeof import('helios-vk/nn').traceOperations>['operations'][number]['body']} body
 * @property {string} origin
 * @property {(value: Value) => Operation | undefined} producer the operation that a value is the result of
 */
/**
 * Writes the nodes of an operation, and returns the name of its result, unless it has entered it.
 * @typedef {(g: Writer, x: string[], operation: Operation) => string | undefined} Writes
 */

/** Everything along a dimension, from its end. @param {Writer} g @param {string} x @param {readonly number[]} dims */
function flip(g, x, dims) {
  const all = (/** @type {number} */ value) => g.integers(dims.map(() => value));
  return g.node('Slice', [x, all(-1), all(-END), g.integers(dims), all(-1)]);
}

/** @type {Record<string, string>} */
const REDUCTIONS = { sum: 'ReduceSum', prod: 'ReduceProd', amax: 'ReduceMax', amin: 'ReduceMin' };

/** @param {Writer} g @param {string} op @param {string} x @param {readonly number[]} dims */
const reduced = (g, op, x, dims) => g.node(op, [x, g.integers(dims)], { keepdims: 1 });

/** A reduction of rows. @type {Writes} */
const ofRows = (g, [x], { name, inputs: [{ dtype }], outputs: [y] }) => reduced(g, REDUCTIONS[name], g.cast(x, dtype, y.dtype), [-1]);

/** @param {'ArgMax' | 'ArgMin'} op @returns {Writes} */
const place =
  (op) =>
  (g, [x]) =>
    g.cast(g.node(op, [x], { axis: -1, keepdims: 1 }), 'i64', 'i32');

/** An index as ONNX takes it. @param {Writer} g @param {string} x @param {Value} value */
const indexOf = (g, x, { dtype }) => (dtype === 'u32' ? g.cast(x, dtype, 'i64') : x);

/** @param {'none' | 'add'} reduction @returns {Writes} */
const scattered =
  (reduction) =>
  (g, [x, index, source], { inputs, attributes: { dim } }) =>
    g.node('ScatterElements', [x, indexOf(g, index, inputs[1]), source], { axis: dim, reduction });

/** What leaves the other operand as it is, by reduction: ONNX's name of it, and its number. @type {Record<string, [reduction: string, number]>} */
const NEUTRAL = { sum: ['add', 0], prod: ['mul', 1], max: ['max', -Infinity], min: ['min', Infinity] };

/** Sums and extremes by index; the sorted index is not needed. @type {Writes} */
function reduceRuns(g, [x, index, , source], { inputs, attributes: { op, apart } }) {
  const [reduction, neutral] = NEUTRAL[op];
  const own = indexOf(g, index, inputs[1]);
  const scatter = (/** @type {string[]} */ operands, /** @type {string} */ how) =>
    g.node('ScatterElements', operands, { axis: -1, reduction: how });
  const sizes = g.node('Shape', [source]);
  const none = () => g.node('ConstantOfShape', [sizes], { value: { dtype: 'f32', shape: [1], elements: [neutral] } });
  return scatter([apart ? scatter([x, own, none()], 'none') : x, own, source], reduction);
}

/** Places without negative ones, which count from the end of a dimension. @type {Writes} */
function fromEnd(g, [x], { attributes: { size } }) {
  const whole = g.cast(g.sizes([size]), 'i64', 'i32');
  return g.cast(g.node('Where', [g.node('Less', [x, g.number('i32', 0)]), g.node('Add', [x, whole]), x]), 'i32', 'u32');
}

/** Where a dimension is when two others stand at the end. @param {number} rank @param {Operation['attributes']} two */
const lastTwo = (rank, { dim1, dim2 }) => [
  ...Array.from({ length: rank }, (_, d) => d).filter((d) => d !== dim1 && d !== dim2),
  dim1,
  dim2,
];

/** The places of a diagonal among the elements of a matrix, row by row. @param {number} rows @param {number} columns @param {number} offset */
const placesOf = (rows, columns, offset) =>
  Array.from({ length: rows }, (_, i) => i)
    .filter((i) => i + offset >= 0 && i + offset < columns)
    .map((i) => i * columns + i + offset);

/** @type {Writes} */
function diagonal(g, [x], { inputs: [{ shape }], attributes }) {
  const perm = lastTwo(shape.length, attributes);
  const [rows, columns] = [attributes.dim1, attributes.dim2].map((d) => g.fixed(shape[d], 'the size of a matrix'));
  const own = perm.map((d) => shape[d]);
  const flat = g.reshape(g.node('Transpose', [x], { perm }), own, [...own.slice(0, -2), rows * columns]);
  const places = placesOf(rows, columns, attributes.offset);
  return g.node('Gather', [flat, g.constant('i64', [places.length], places)], { axis: -1 });
}

/** Each element of a matrix is one of the vector, or of zeros behind it. @type {Writes} */
function diagEmbed(g, [x], { inputs: [{ shape, dtype }], outputs: [y], attributes }) {
  const count = g.fixed(shape[shape.length - 1], 'the size of a diagonal');
  const [rows, columns] = [attributes.rows, attributes.columns].map((size) => g.fixed(size, 'the size of a matrix'));
  const places = new Array(rows * columns).fill(count);
  for (const [i, place] of placesOf(rows, columns, attributes.offset).entries()) places[place] = i;
  const padded = g.node('Pad', [x, g.integers([0, 1]), g.number(dtype, 0), g.integers([-1])]);
  const all = g.node('Gather', [padded, g.constant('i64', [places.length], places)], { axis: -1 });
  const order = lastTwo(y.shape.length, attributes);
  const own = order.map((d) => y.shape[d]);
  const matrices = g.reshape(all, [...own.slice(0, -2), rows * columns], own);
  return g.node('Transpose', [matrices], { perm: order.map((_, d) => order.indexOf(d)) });
}

/** The places of what is true in rows, and their size for the rest. @type {Writes} */
function placeIfTrue(g, [mask], { inputs: [{ shape }] }) {
  const columns = g.fixed(shape[shape.length - 1], 'the size of a row');
  const places = g.constant(
    'i32',
    [columns],
    Array.from({ length: columns }, (_, i) => i),
  );
  return g.node('Where', [mask, places, g.number('i32', columns)]);
}

/** @type {Record<string, Writes>} */
const WRITES = {
  ...NETWORK,
  fromEnd,
  reduceRuns,
  diagonal,
  diagEmbed,
  placeIfTrue,
  copy: (_, [x]) => x,
  to: (g, [x], { inputs: [from], outputs: [y] }) => g.cast(x, from.dtype, y.dtype),
  reshape: (g, [x], { inputs: [from], outputs: [y] }) => g.reshape(x, from.shape, y.shape),
  permute: (g, [x], { attributes: { order } }) => g.node('Transpose', [x], { perm: order }),
  expand: (g, [x], { inputs: [{ shape: from }], outputs: [{ shape }] }) => {
    const missing = shape.length - from.length;
    // Sizes of x stay by a 1.
    const sizes = shape.map((size, d) => (d >= missing && equal(size, from[d - missing]) ? 1 : size));
    return missing === 0 && sizes.every((size) => size === 1) ? x : g.node('Expand', [x, g.sizes(sizes)]);
  },
  slice: (g, [x], { inputs: [{ shape }], attributes: { dim, start, length, step } }) => {
    const size = shape[dim];
    if (start === 0 && step === 1 && equal(length, size)) return x;
    const end = computed((from, n, by) => from + (n - 1) * by + 1, start, length, step);
    // Behind the last element there is nothing more.
    const toEnd = computed((last, n, by) => Number(last + by > n), end, size, step) === 1;
    return g.slice(x, dim, start, size instanceof Size && toEnd ? END : end, step);
  },
  cat: (g, x, { attributes: { dim } }) => g.node('Concat', x, { axis: dim }),
  full: (g, _, { attributes: { shape, value, dtype } }) => {
    const number = dtype === 'bool' ? Number(value !== 0) : value;
    if (shape.length === 0) return g.number(dtype, number);
    return g.node('ConstantOfShape', [g.sizes(shape)], { value: { dtype, shape: [1], elements: [number] } });
  },
  iota: (g, _, { attributes: { shape } }) => {
    const count = product(shape);
    return g.reshape(g.cast(g.range(count), 'i64', 'i32'), [count], shape);
  },
  pad: (g, [x], { inputs: [{ dtype }], attributes: { before, after, value } }) =>
    g.node('Pad', [x, g.sizes([...before, ...after]), g.number(dtype, value)]),
  flip: (g, [x], { attributes: { dims } }) => flip(g, x, dims),
  unfold: (g, [x], { inputs: [{ shape }], outputs: [y], attributes: { dims, sizes, steps, dilations } }) => {
    // Each dimension becomes two, the windows and their elements; the latter go to the end.
    const order = [...shape.keys()].map((d) => d + dims.filter((/** @type {number} */ other) => other < d).length);
    let windows = x;
    for (const [i, d] of dims.entries()) {
      const count = g.fixed(y.shape[d], 'the number of windows');
      const index = Array.from({ length: count * sizes[i] }, (_, n) => Math.floor(n / sizes[i]) * steps[i] + (n % sizes[i]) * dilations[i]);
      const axis = d + dims.slice(0, i).filter((/** @type {number} */ other) => other < d).length;
      windows = g.node('Gather', [windows, g.constant('i64', [count, sizes[i]], index)], { axis });
    }
    return g.node('Transpose', [windows], { perm: [...order, ...dims.map((/** @type {number} */ d) => order[d] + 1)] });
  },
  fold: (g, [x], { inputs: [{ shape: from }], attributes: { shape, dims, sizes, steps, dilations } }) => {
    const lead = shape.length - dims.length;
    if (dims.some((/** @type {number} */ d, /** @type {number} */ i) => d !== lead + i))
      throw new Unsupported('its windows are not over the last dimensions');
    const counts = dims.map((/** @type {number} */ d) => g.fixed(from[d], 'the number of windows'));
    const planes = dims.map((/** @type {number} */ d) => g.fixed(shape[d], 'the size of a plane'));
    /** Where each element of each window is in its plane. @type {number[]} */
    let places = [0];
    for (const [i, count] of counts.entries())
      places = places.flatMap((at) => Array.from({ length: count }, (_, n) => at * planes[i] + n * steps[i]));
    let within = [0];
    for (const [i, size] of sizes.entries())
      within = within.flatMap((at) => Array.from({ length: size }, (_, n) => at * planes[i] + n * dilations[i]));
    places = places.flatMap((at) => within.map((more) => at + more));
    const leading = shape.slice(0, lead);
    const flat = g.reshape(x, from, [...leading, places.length]);
    const index = g.node('Expand', [g.constant('i64', [places.length], places), g.node('Shape', [flat])]);
    const plane = planes.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
    const zeros = g.node('ConstantOfShape', [g.sizes([...leading, plane])], { value: { dtype: 'f32', shape: [1], elements: [0] } });
    return g.reshape(g.node('ScatterElements', [zeros, index, flat], { axis: -1, reduction: 'add' }), [...leading, plane], shape);
  },
  sum: (g, [x], { inputs: [{ shape, dtype }], attributes: { dims, alpha } }) => {
    const own = g.cast(x, dtype, 'f32');
    const count = product(dims.map((/** @type {number} */ d) => shape[d] ?? 1));
    const isMean = computed((factor, n) => Number(factor !== 1 && Math.abs(factor * n - 1) < 1e-12), alpha, count) === 1;
    if (isMean) return reduced(g, 'ReduceMean', own, dims);
    const sum = dims.length > 0 ? reduced(g, 'ReduceSum', own, dims) : own;
    return alpha === 1 ? sum : g.node('Mul', [sum, g.number('f32', g.fixed(alpha, 'a factor'))]);
  },
  amax: ofRows,
  amin: ofRows,
  prod: ofRows,
  reduceIntegers: (g, [x], { inputs: [{ dtype }], outputs: [y], attributes: { join } }) =>
    reduced(g, REDUCTIONS[join], g.cast(x, dtype, y.dtype), [1]),
  cumsum: (g, [x], { inputs: [{ dtype }], outputs: [y], attributes: { reverse } }) =>
    g.node('CumSum', [g.cast(x, dtype, y.dtype), g.number('i64', -1)], { reverse: Number(Boolean(reverse)) }),
  argmax: place('ArgMax'),
  argmin: place('ArgMin'),
  argsort: (g, [x], { outputs: [y], attributes: { descending } }) => {
    const count = y.shape[y.shape.length - 1];
    return g.cast(g.split('TopK', [x, g.sizes([count])], { axis: -1, largest: Number(descending), sorted: 1 }, 2)[1], 'i64', 'i32');
  },
  gather: (g, [x, index, last], { inputs, attributes: { dim } }) => {
    if (last !== undefined) throw new Unsupported('it is the gradient of a scatter');
    return g.node('GatherElements', [x, indexOf(g, index, inputs[1])], { axis: dim });
  },
  pick: (g, [x, index], { inputs }) => g.node('GatherElements', [x, indexOf(g, index, inputs[1])], { axis: inputs[0].shape.length - 1 }),
  scatter: scattered('none'),
  scatterAdd: scattered('add'),
  matmul: (g, x) => g.node('MatMul', x),
  rowsByMatrix: (g, [x, m], { attributes: { transposed } }) => g.node('Gemm', [x, m], { transB: Number(transposed) }),
};

/**
 * Writes an operation. Throws Unsupported if it cannot be written.
 * @param {Writer} g @param {Operation} operation
 */
export function write(g, operation) {
  if (isOfSequence(g, operation)) return;
  const names = operation.inputs.map((value) => g.nameOf(value));
  const name = Object.hasOwn(WRITES, operation.name) ? WRITES[operation.name](g, names, operation) : elementwise(g, names, operation);
  if (name !== undefined) g.names.set(operation.outputs[0], name);
}
