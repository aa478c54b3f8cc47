// Finds calls that one library kernel can do together: a result and its conversion; a product or a norm's gradient, and the sum that follows;
// a product and its write to a gradient; a product and a gated unit. This may drop a rounding to 16 bits; it never adds one.

import { runs } from '../../ops/reduce.mjs';
import { ACTIVATION_RULES } from './activations.mjs';
import { ADAPTER_RULES } from './adapters.mjs';
import { GLU_RULES } from './glu.mjs';
import { GRADIENT_RULES } from './gradients.mjs';
import { Matcher, isProduct, whole } from './matcher.mjs';
import { NETWORK_RULES } from './network.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Value} Value */
/** @typedef {import('./calls.mjs').Context} Context */

/** @param {Matcher} m @param {number} j a conversion */
function conversion(m, j) {
  const call = m.calls[j];
  const [x] = call.inputs;
  const [y] = call.outputs;
  const i = m.producer(x);
  if (i < 0 || !m.context.isTemporary(y.allocation) || !whole(y) || !m.freeFrom(y, i, j)) return;
  const made = m.calls[i];
  const from = m.result(made);
  if (from.allocation !== x.allocation) return;
  const [source, target] = [x.layout.dtype, y.layout.dtype];
  // If a norm's gradient reads it, that takes the 16-bit value itself: see normGradient.
  const { readers } = m.usesOf(y.allocation);
  const [reader] = readers;
  if (readers.size === 1 && takesHalf(m.calls[reader], y)) return;
  // A product that is then converted to f32 can write f32 itself.
  if (isProduct(made) && source !== 'f32' && target === 'f32' && !made.extra?.c && m.onlyFor(i, j)) {
    m.fuse('product to f32', i, j, { kernel: 'matmul', options: { cType: 'f32' }, extra: { c: y }, dropped: [made.outputs[0]] });
  } else if (made.op?.name === 'convolutionWeight' && target === 'f32' && m.onlyFor(i, j)) {
    const { op, attributes, inputs } = made;
    if (inputs.every((input) => m.readyAt(input, i, j)))
      m.replace("convolution's weight gradient in f32", i, j, { op, attributes, inputs, outputs: [y] });
  } else if (isNorm(made) && source === 'f32' && takesPairs(made.inputs[0], target) && !made.extra?.y && m.onlyFor(i, j)) {
    const change = { options: { outType: target }, extra: { y }, dropped: [made.outputs[0]] };
    m.fuse('norm to 16 bits', i, j, { kernel: `${made.op?.name}Forward`, ...change });
  } else if (isNormGradient(made) && made.options?.outType === target && source === 'f32' && !made.extra?.copy) {
    m.fuse("norm's gradient and its 16-bit copy", i, j, { kernel: made.op?.name ?? '', extra: { copy: y } });
  }
}

/** @param {Call} call */
const isNorm = ({ op }) => op?.name === 'rmsNorm' || op?.name === 'layerNorm';
/** @param {Call} call */
const isNormGradient = ({ op }) => op?.name === 'rmsNormBackward' || op?.name === 'layerNormBackward';
/** Whether rows of this size can be written in a 16-bit type: they need an even number of elements. @param {Value} x @param {string} dtype */
const takesPairs = ({ layout }, dtype) => (dtype === 'f16' || dtype === 'bf16') && (layout.shape.at(-1) ?? 1) % 2 === 0;

/** Whether a call is the gradient of an f32 norm with rows of even size, and `y` is its dy. @param {Call} call @param {Value} y */
const takesHalf = (call, y) =>
  isNormGradient(call) &&
  call.inputs[0].allocation === y.allocation &&
  call.inputs[1].layout.dtype === 'f32' &&
  (call.inputs[1].layout.shape.at(-1) ?? 1) % 2 === 0;

/** A norm's gradient reads a 16-bit dy directly, without its conversion to f32. @param {Matcher} m @param {number} j */
function normGradient(m, j) {
  const call = m.calls[j];
  const [dy] = call.inputs;
  const i = m.producer(dy);
  if (i < 0 || call.extra?.dy || !takesHalf(call, dy)) return;
  const made = m.calls[i];
  if (made.op?.name !== 'to' || m.removed.has(i) || made.inputs[0].layout.dtype === 'f32' || !whole(made.inputs[0])) return;
  if (!m.readyAt(made.inputs[0], i, j)) return;
  m.forget(j);
  m.change(call, {
    kernel: call.op?.name ?? '',
    options: { outType: made.inputs[0].layout.dtype },
    extra: { dy: made.inputs[0] },
    dropped: [dy],
  });
  m.note(call, j);
  m.count("norm's gradient of 16 bits");
}

/**
 * A norm's gradient writes the gradient of the weight to its destination itself.
 * @param {Matcher} m @param {number} j @param {Value} x the weight's gradient @param {Value} y its destination
 * @param {0 | 1} beta 1 to add to the destination, 0 to overwrite it
 */
function normWeight(m, j, x, y, beta) {
  const i = m.producer(x);
  if (i < 0 || m.removed.has(i) || y.layout.dtype !== 'f32' || !y.layout.contiguous) return false;
  const made = m.calls[i];
  if (made.op?.name !== 'rmsNormBackward' || made.outputs[1].allocation !== x.allocation || made.extra?.dWeight) return false;
  if (!m.readBy(x, j) || !m.freeFrom(y, i, j)) return false;
  const dropped = [made.outputs[1]];
  m.fuse("norm's gradient into a gradient", i, j, { kernel: 'rmsNormBackward', options: { beta }, extra: { dWeight: y }, dropped });
  return true;
}

/** @param {Matcher} m @param {number} j a sum, perhaps into one of its operands */
function sum(m, j) {
  const call = m.calls[j];
  const { alpha = 1, beta = 1 } = call.attributes;
  const [y] = call.outputs;
  if (alpha !== 1 || beta !== 1 || y.layout.dtype !== 'f32' || !y.layout.contiguous) return;
  if (call.inputs.some(({ layout }) => !layout.contiguous || layout.size !== y.layout.size)) return;
  const inPlace = call.inputs[0].allocation === y.allocation;
  if (inPlace && (normWeight(m, j, call.inputs[1], y, 1) || columnSum(m, j, call.inputs[1], y, 1))) return;
  for (const side of inPlace ? [1] : [1, 0]) {
    const [x, other] = [call.inputs[side], call.inputs[1 - side]];
    const i = m.producer(x);
    if (i < 0 || m.removed.has(i)) continue;
    const made = m.calls[i];
    if (m.result(made).allocation !== x.allocation || !m.onlyFor(i, j) || !m.freeFrom(y, i, j)) continue;
    const product = isProduct(made);
    const taken = made.extra?.residual !== undefined || made.extra?.dx !== undefined || (product && made.options?.beta !== undefined);
    const norm = isNormGradient(made);
    if (taken || !(product || norm) || !(inPlace || m.readyAt(other, i, j))) continue;
    // The product no longer writes its own result.
    const dropped = made.outputs.slice(0, 1);
    if (inPlace && product) {
      m.fuse('product added to a gradient', i, j, { kernel: 'matmul', options: { cType: 'f32', beta: 1 }, extra: { c: y }, dropped });
    } else if (inPlace || other.layout.offset !== 0) continue;
    else if (product)
      m.fuse('product and sum', i, j, { kernel: 'matmul', options: { cType: 'f32' }, extra: { c: y, residual: other }, dropped });
    else m.fuse("norm's gradient and sum", i, j, { kernel: made.op?.name ?? '', extra: { dx: y, residual: other }, dropped });
    return;
  }
}

/** @param {Matcher} m @param {number} j a copy over something */
function written(m, j) {
  const call = m.calls[j];
  const [, x] = call.inputs;
  const [y] = call.outputs;
  if (!y.layout.contiguous || y.layout.dtype !== 'f32' || x.layout.dtype !== 'f32') return;
  const i = m.producer(x);
  if (i < 0 || m.removed.has(i)) return;
  const made = m.calls[i];
  if (normWeight(m, j, x, y, 0) || columnSum(m, j, x, y, 0)) return;
  if (!isProduct(made) || made.extra?.residual || made.options?.beta !== undefined) return;
  if (m.result(made).allocation !== x.allocation || !m.onlyFor(i, j) || !m.freeFrom(y, i, j)) return;
  m.fuse('product written to a gradient', i, j, {
    kernel: 'matmul',
    options: { cType: 'f32' },
    extra: { c: y },
    dropped: made.outputs.slice(0, 1),
  });
}

/**
 * A column sum, such as a bias gradient, writes to its destination itself.
 * @param {Matcher} m @param {number} j @param {Value} x the sum @param {Value} y its destination
 * @param {0 | 1} beta 1 to add to the destination, 0 to overwrite it
 */
function columnSum(m, j, x, y, beta) {
  const i = m.producer(x);
  if (i < 0 || m.removed.has(i) || y.layout.dtype !== 'f32' || !y.layout.contiguous) return false;
  const made = m.calls[i];
  if (made.op?.name !== 'sum' || made.extra || !m.onlyFor(i, j) || !m.freeFrom(y, i, j)) return false;
  const parts = runs(made.inputs[0].layout.shape, made.attributes.dims);
  if (parts.length !== 2 || parts[1].reduced) return false;
  m.fuse('sum into a gradient', i, j, { kernel: 'columnSum', options: { beta }, extra: { y }, dropped: made.outputs });
  return true;
}

/** A sum that is multiplied by a number. @param {Matcher} m @param {number} j */
function scaledSum(m, j) {
  const { inputs, outputs, attributes } = m.calls[j];
  const i = m.producer(inputs[0]);
  if (i < 0 || !Object.is(attributes.beta, -0) || !whole(outputs[0]) || outputs[0].layout.size !== inputs[0].layout.size) return;
  const made = m.calls[i];
  const from = made.inputs[0];
  if (made.op?.name !== 'sum' || made.extra || from.layout.dtype !== 'f32' || !m.onlyFor(i, j) || !m.readyAt(from, i, j)) return;
  m.replace('sum and factor', i, j, {
    op: made.op,
    attributes: { ...made.attributes, alpha: made.attributes.alpha * attributes.alpha },
    inputs: made.inputs,
    outputs: [{ ...outputs[0], layout: made.outputs[0].layout }],
  });
}

/** ReLU behind a convolution, which ends with it. @param {Matcher} m @param {number} j */
function convolutionRelu(m, j) {
  const [x] = m.calls[j].inputs;
  const [y] = m.calls[j].outputs;
  const i = m.producer(x);
  const made = m.calls[i];
  const kernel = made?.op?.name ?? '';
  if (i < 0 || m.removed.has(i) || !(kernel === 'convolution' || kernel === 'convolutionInput') || made.kernel) return;
  if (!m.onlyFor(i, j) || !whole(y) || !made.inputs.every((input) => m.readyAt(input, i, j))) return;
  m.replace('convolution and ReLU', i, j, {
    op: made.op,
    attributes: made.attributes,
    inputs: made.inputs,
    // Both lie in one order in memory.
    outputs: [{ allocation: y.allocation, layout: made.outputs[0].layout }],
    kernel,
    options: { relu: true },
  });
}

/** @type {Record<string, ((m: Matcher, j: number) => void)[]>} */
const RULES = {
  to: [conversion],
  rmsNormBackward: [normGradient],
  layerNormBackward: [normGradient],
  add: [sum],
  copy_: [written],
  affine: [scaledSum],
  relu: [convolutionRelu],
};
for (const [name, rule] of [...NETWORK_RULES, ...GLU_RULES, ...ACTIVATION_RULES, ...GRADIENT_RULES, ...ADAPTER_RULES])
  RULES[name] = [...(RULES[name] ?? []), rule];

/**
 * @param {Call[]} calls modified @param {Context} context
 * @returns {import('./calls.mjs').Passed} the remaining calls, and how often each pattern was found
 */
export function match(calls, context) {
  const m = new Matcher(calls, context);
  for (let j = 0; j < calls.length; j++) {
    const { op } = calls[j];
    for (const rule of RULES[op?.name ?? ''] ?? []) if (!m.removed.has(j) && m.calls[j].op === op) rule(m, j);
  }
  return { calls: m.calls.filter((_, i) => !m.removed.has(i)), found: m.found };
}
