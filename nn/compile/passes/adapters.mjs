// Matching rules for adapters beside a layer (`F.adapt`). Where a kernel takes a second pair of operands, the layer's product computes them itself:
// y = x Wᵀ + u Bᵀ over the depths of x and of u, and dx = dy W + du A. Elsewhere products add to what another product has written: adapters to
// the layer's result, and the later of two products in 16 bits to the other's.

import { BYTES, denseLayout, layoutOf } from '../../core/layout.mjs';
import { adaptDown } from '../../ops/adapters.mjs';
import { callInPlaceOf, kernelCalls } from './calls.mjs';
import { isProduct, partsOf, whole } from './matcher.mjs';

/** @typedef {import('./matcher.mjs').Matcher} Matcher */
/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Value} Value */

/** Whether nothing has changed what a call writes. @param {Call} call */
const isPlain = ({ op, kernel, extra, options }) => op !== undefined && !kernel && !extra && !options;

/** A result in other memory and its type. Its shape stays: that of what reads it may be of a view. @param {Value} value @param {Value} to @returns {Value} */
const placedIn = ({ layout: { shape, strides } }, { allocation, layout: { offset, dtype } }) => ({
  allocation,
  layout: layoutOf(shape, strides, offset, dtype),
});

/** The first output of a call in other memory. @param {Matcher} m @param {number} i @param {Value} to */
function writeTo(m, i, to) {
  const call = m.calls[i];
  m.forget(i);
  call.outputs = call.outputs.with(0, placedIn(call.outputs[0], to));
  call.template = undefined;
  m.note(call, i);
}

/** Makes call `j` part of call `i`, which is changed already. @param {Matcher} m @param {string} name @param {number} i @param {number} j */
function absorb(m, name, i, j) {
  m.forget(j);
  m.removed.add(j);
  m.calls[i].parts = [...partsOf(m.calls[i]), ...partsOf(m.calls[j])];
  m.count(name);
}

/**
 * Whether one kernel computes the product of a call with a second pair of operands.
 * @param {Matcher} m @param {Call} call a product @param {number} k2 the pair's depth
 */
function takesSecond({ context: { kernels } }, call, k2) {
  const { op } = call;
  if (!op || call.kernel || call.extra || call.options) return false;
  const [{ args }] = kernelCalls({ ...call, op }, kernels, ['matmul']);
  const product = /** @type {import('../../../kernels/matmul.mjs').MatmulArgs} */ (args);
  const { a, b, batch = 1, transA, beta = 0 } = product;
  return batch === 1 && !transA && beta === 0 && kernels.takesSecond({ ...product, a2: a, b2: b, k2 });
}

/** The layer's product computes the adapters, too. @param {Matcher} m @param {number} j */
function folded(m, j) {
  const call = m.calls[j];
  const [y, x, ...matrices] = call.inputs;
  const [z, u] = call.outputs;
  const i = m.producer(y);
  const layer = m.calls[i];
  if (i < 0 || m.removed.has(i) || call.attributes.inPlace || layer.op?.name !== 'linear' || !m.readBy(y, j)) return;
  if (matrices.some((matrix) => !m.readyAt(matrix, i, j)) || !m.readyAt(x, i, j) || !m.freeFrom(u, i, j)) return;
  if (layer.outputs[0].allocation !== y.allocation || !layer.inputs.every((input) => m.readyAt(input, i, j))) return;
  const ranks = /** @type {number} */ (u.layout.shape.at(-1));
  if (!takesSecond(m, layer, ranks)) return;
  const b = matrices[matrices.length / 2];
  const n = /** @type {number} */ (z.layout.shape.at(-1));
  const single = matrices.length === 2 && b.layout.shape[0] === n && b.layout.contiguous;
  const layout = denseLayout([n, ranks], x.layout.dtype);
  const blocks = single ? b : { allocation: m.context.allocate(layout.size * BYTES[layout.dtype]), layout };
  const [own, parts] = [partsOf(layer), partsOf(call)];
  for (const k of [i, j]) m.forget(k);
  const { rows, scales, joined, precision } = call.attributes;
  m.calls[i] = callInPlaceOf(call, {
    ...{ op: adaptDown, attributes: { rows, scales, joined, precision }, inputs: [x, ...matrices], parts },
    outputs: single ? [u] : [u, blocks],
  });
  m.calls[j] = callInPlaceOf(layer, {
    ...{
      op: layer.op,
      attributes: layer.attributes,
      inputs: layer.inputs,
      outputs: [{ ...z, layout: layer.outputs[0].layout }],
      parts: own,
    },
    ...{ kernel: 'matmul', options: { k2: ranks } },
  });
  m.calls[j].extra = { a2: u, b2: blocks };
  for (const k of [i, j]) m.note(m.calls[k], k);
  m.count("adapters in a layer's product");
}

/** The call adds to the memory of the layer's result. @param {Matcher} m @param {number} j */
function inPlace(m, j) {
  const call = m.calls[j];
  const [y, ...others] = call.inputs;
  const [z] = call.outputs;
  const i = m.producer(y);
  if (i < 0 || m.removed.has(i) || call.attributes.inPlace || !m.readBy(y, j) || others.some((x) => x.allocation === y.allocation)) return;
  const made = m.calls[i];
  if (!isPlain(made) || made.outputs[0].allocation !== y.allocation) return;
  if (!m.context.isTemporary(z.allocation) || !whole(z) || !m.freeFrom(z, i, j)) return;
  m.count("adapters into a layer's result");
  writeTo(m, i, z);
  adaptIn(m, j, z);
}

/** Whether each column belongs to one adapter. @param {Call} call of `adapt` */
function coversAll({ inputs, outputs, attributes: { rows } }) {
  const matrices = inputs.slice(2);
  const parts = /** @type {number[]} */ (rows).map((row, i) => ({ row, end: row + matrices[rows.length + i].layout.shape[0] }));
  parts.sort((a, b) => a.row - b.row);
  const ends = parts.map(({ row }, i) => row === (parts[i - 1]?.end ?? 0));
  return ends.every(Boolean) && parts.at(-1)?.end === outputs[0].layout.shape.at(-1);
}

/** Has a call of `adapt` add to other memory, in its type. @param {Matcher} m @param {number} j @param {Value} to */
function adaptIn(m, j, to) {
  const call = m.calls[j];
  m.forget(j);
  const own = placedIn(call.outputs[0], to);
  call.inputs = call.inputs.with(0, own);
  call.outputs = call.outputs.with(0, own);
  call.attributes = { ...call.attributes, inPlace: true };
  call.template = undefined;
  m.note(call, j);
}

/**
 * The product of a layer and the adapters that add to its result in place, which only call `j` reads besides.
 * @param {Matcher} m @param {Value} x @param {number} j
 * @returns {{ i: number, k: number } | undefined} the product, the adapters
 */
function adapted(m, x, j) {
  if (!m.context.isTemporary(x.allocation) || !whole(x)) return undefined;
  const { readers, writers } = m.usesOf(x.allocation);
  const [i, k] = [...writers].sort((a, b) => a - b);
  if (writers.size !== 2 || readers.size !== 2 || !readers.has(k) || !readers.has(j) || k > j) return undefined;
  if (m.calls[k].op?.name !== 'adapt' || !m.calls[k].attributes.inPlace || !isProduct(m.calls[i])) return undefined;
  return m.result(m.calls[i]).layout.size === x.layout.size ? { i, k } : undefined;
}

/** A layer with adapters writes f32 itself. @param {Matcher} m @param {number} j a conversion */
function converted(m, j) {
  const { inputs, outputs } = m.calls[j];
  const [x] = inputs;
  const [y] = outputs;
  if (y.layout.dtype !== 'f32' || x.layout.dtype === 'f32' || !m.context.isTemporary(y.allocation) || !whole(y)) return;
  const only = m.producer(x);
  if (m.calls[only]?.op?.name === 'adaptInput') {
    if (m.removed.has(only) || !isPlain(m.calls[only]) || !m.readBy(x, j) || !m.freeFrom(y, only, j)) return;
    const call = m.calls[only];
    m.forget(only);
    call.outputs = [y];
    call.template = undefined;
    m.note(call, only);
    absorb(m, 'product to f32', only, j);
    return;
  }
  const found = adapted(m, x, j);
  if (!found || !isPlain(m.calls[found.i]) || !m.freeFrom(y, found.i, j)) return;
  const { i, k } = found;
  m.forget(i);
  m.change(m.calls[i], { kernel: 'matmul', options: { cType: 'f32' }, extra: { c: y }, dropped: m.calls[i].outputs.slice(0, 1) });
  m.note(m.calls[i], i);
  adaptIn(m, k, y);
  absorb(m, 'product to f32', k, j);
}

/** A layer with adapters adds a residual in f32 itself. @param {Matcher} m @param {number} j a sum */
function residual(m, j) {
  const { inputs, outputs, attributes } = m.calls[j];
  const { alpha = 1, beta = 1 } = attributes;
  const [y] = outputs;
  if (alpha !== 1 || beta !== 1 || y.layout.dtype !== 'f32' || !y.layout.contiguous) return;
  if (inputs.some(({ layout, allocation }) => !layout.contiguous || layout.size !== y.layout.size || allocation === y.allocation)) return;
  for (const side of [1, 0]) {
    const [x, other] = [inputs[side], inputs[1 - side]];
    const found = x.layout.dtype === 'f32' && other.layout.dtype === 'f32' && other.layout.offset === 0 ? adapted(m, x, j) : undefined;
    if (!found) continue;
    const { i, k } = found;
    const [made, call] = [m.calls[i], m.calls[k]];
    if (made.extra?.residual || made.options?.beta !== undefined || !m.freeFrom(y, i, j) || !m.readyAt(other, k, j)) continue;
    if (call.attributes.residual || !coversAll(call)) continue;
    // The adapters' products wait for memory anyway; the layer's would wait for the residual at the end of each tile.
    if (made.extra?.c) {
      m.forget(i);
      m.change(made, { kernel: 'matmul', extra: { c: y } });
      m.note(made, i);
    } else writeTo(m, i, y);
    adaptIn(m, k, y);
    m.forget(k);
    call.inputs = [...call.inputs, other];
    call.attributes = { ...call.attributes, residual: true };
    m.note(call, k);
    absorb(m, 'product and sum', k, j);
    return;
  }
}

/**
 * The gradient of a layer's input is one product with the gradient of its adapters' input. They are calls `last` and `first`.
 * @param {Matcher} m @param {number} first @param {number} last @param {Value} y their sum
 */
function foldedInput(m, first, last, y) {
  const [made, added] = [m.calls[first], m.calls[last]];
  const [dU, ...as] = made.inputs;
  if (made.op?.name !== 'adaptInput' || !isPlain(made) || m.removed.has(first) || m.removed.has(last)) return false;
  if (as.length > 1 && !made.attributes.joined) return false;
  const k2 = /** @type {number} */ (dU.layout.shape.at(-1));
  if (!isProduct(added) || !takesSecond(m, added, k2) || ![dU, ...as].every((value) => m.readyAt(value, first, last))) return false;
  writeTo(m, last, y);
  m.forget(last);
  // Joined matrices are one.
  const [{ allocation, layout }] = as;
  const inner = layout.shape[1];
  const b2 = { allocation, layout: layoutOf([k2, inner], [inner, 1], layout.offset, layout.dtype) };
  m.change(added, { kernel: 'matmul', options: { k2 }, extra: { a2: dU, b2 } });
  added.parts = [...partsOf(made), ...partsOf(added)];
  m.note(added, last);
  m.forget(first);
  m.removed.add(first);
  return true;
}

/** The gradients of several adapters' sums are one product with the matrix of all B, where a layer's product has that. @param {Matcher} m @param {number} j */
function oneBackward(m, j) {
  const call = m.calls[j];
  const [dy, ...bs] = call.inputs;
  const { rows, scales, precision } = call.attributes;
  if (bs.length < 2 || !isPlain(call) || scales.some((/** @type {number} */ scale) => scale !== scales[0])) return;
  const isSame = (/** @type {Value} */ x, /** @type {Value} */ y) => x.allocation === y.allocation && x.layout.id === y.layout.id;
  const made = [...m.usesOf(bs[0].allocation).readers].find((i) => {
    const { op, inputs, outputs, attributes } = m.calls[i];
    const isOf = op === adaptDown && i < j && outputs.length === 2 && String(attributes.rows) === String(rows);
    // An optimizer's step between two steps of one function changes B.
    return isOf && bs.every((b, k) => isSame(b, inputs[1 + bs.length + k]) && m.readyAt(b, i, j));
  });
  if (made === undefined || m.removed.has(made)) return;
  const [, blocks] = m.calls[made].outputs;
  if (blocks.layout.shape[0] !== dy.layout.shape.at(-1)) return;
  m.forget(j);
  call.inputs = [dy, blocks];
  call.attributes = { rows: [0], scales: [scales[0]], precision };
  call.template = undefined;
  m.note(call, j);
  m.count("adapters' gradients in one product");
}

/** The later of two products in 16 bits adds to the result of the other one. @param {Matcher} m @param {number} j their sum */
function sumOfProducts(m, j) {
  const { inputs, outputs, attributes } = m.calls[j];
  const { alpha = 1, beta = 1 } = attributes;
  const [y] = outputs;
  const { dtype, size } = y.layout;
  if (alpha !== 1 || beta !== 1 || (dtype !== 'bf16' && dtype !== 'f16') || !m.context.isTemporary(y.allocation) || !whole(y)) return;
  if (inputs.some(({ layout }) => layout.dtype !== dtype || layout.size !== size)) return;
  const [first, last] = inputs.map((x) => m.producer(x)).sort((a, b) => a - b);
  if (first < 0 || first === last || !inputs.every((x) => m.readBy(x, j)) || !m.freeFrom(y, first, j)) return;
  const [made, added] = [m.calls[first], m.calls[last]];
  if (foldedInput(m, first, last, y)) {
    absorb(m, "product and its adapters'", last, j);
    return;
  }
  const fits = [made, added].every((call) => isPlain(call) && (isProduct(call) || call.op?.name === 'adaptInput'));
  if (!fits || m.removed.has(first) || m.removed.has(last)) return;
  writeTo(m, first, y);
  if (added.op?.name === 'adaptInput') {
    writeTo(m, last, y);
    added.attributes = { ...added.attributes, accumulate: true };
  } else {
    m.forget(last);
    m.change(added, { kernel: 'matmul', options: { beta: 1 }, extra: { c: y }, dropped: added.outputs.slice(0, 1) });
    m.note(added, last);
  }
  absorb(m, 'product added to a product', last, j);
}

/** @type {[name: string, rule: (m: Matcher, j: number) => void][]} */
export const ADAPTER_RULES = [
  ['adapt', folded],
  ['adapt', inPlace],
  ['adaptBackward', oneBackward],
  ['to', converted],
  ['add', residual],
  ['add', sumOfProducts],
];
