// Matching rules for losses and embeddings.

import { floatType } from '../../ops/pointwise.mjs';
import { whole, written } from './matcher.mjs';

/** @typedef {import('./matcher.mjs').Matcher} Matcher */
/** @typedef {import('./calls.mjs').Value} Value */
/** @typedef {import('../../ops/registry.mjs').Op} Op */

/** Computes the losses of rows and, in the same kernel, the gradient of the logits, into the further argument `gradient`. */
const lossAndGradient = /** @type {Op} */ ({
  name: 'crossEntropyAndGradient',
  lower: (k, [logits, targets], [loss], { ignored }) => {
    const columns = logits.layout.shape[logits.layout.shape.length - 1];
    return [k.crossEntropy({ logits, targets, loss, rows: logits.layout.size / columns, columns, ignored })];
  },
});

/** Computes the gradient of an embedding table into an existing gradient: overwrites it (beta 0) or adds to it. */
export const tableGradient = /** @type {Op} */ ({
  name: 'embeddingBackwardInto',
  lower: (k, [ids, dy], [dTable], { vocabulary, columns, beta }) => [
    ...(beta === 0 ? [k.fill({ y: dTable, count: vocabulary * columns, value: 0 })].flat() : []),
    ...k.embeddingBackward({ ids, dy, dTable, tokens: ids.layout.size, columns, vocabulary, type: floatType('embedding', dy.layout) }),
  ],
});

/** The kernel of the losses also computes the gradient of f32 logits. @param {Matcher} m @param {number} j */
function gradientOfLosses(m, j) {
  const call = m.calls[j];
  const [x, targets] = call.inputs;
  const [dx, loss] = call.outputs;
  if (x.layout.dtype !== 'f32' || !m.context.isTemporary(dx.allocation) || m.usesOf(loss.allocation).readers.size > 0) return;
  const i = m.calls.findIndex(
    ({ op, inputs, attributes }, at) =>
      at < j &&
      op?.name === 'crossEntropy' &&
      !m.removed.has(at) &&
      [x, targets].every(({ allocation, layout }, k) => inputs[k].allocation === allocation && inputs[k].layout === layout) &&
      attributes.ignored === call.attributes.ignored,
  );
  if (i < 0 || !m.readyAt(x, i, j) || !m.readyAt(targets, i, j) || !m.freeFrom(dx, i, j)) return;
  m.fuse('losses and their gradient', i, j, {
    op: lossAndGradient,
    kernel: 'crossEntropy',
    options: { gradientType: 'f32', scale: 1 },
    extra: { gradient: dx },
  });
}

/** The call that computes a value together with losses, as the gradient of logits; -1 if none does. @param {Matcher} m @param {number} j @param {Value} x */
function madeByLosses(m, j, x) {
  const i = m.producer(x);
  return i >= 0 && m.calls[i].extra?.gradient?.allocation === x.allocation && m.readBy(x, j) ? i : -1;
}

/** Whether call `i` can write the result of call `j`. @param {Matcher} m @param {number} i @param {number} j */
function replaceable(m, i, j) {
  const [y] = m.calls[j].outputs;
  return m.context.isTemporary(y.allocation) && whole(y) && y.layout.size === m.calls[j].inputs[0].layout.size && m.freeFrom(y, i, j);
}

/** The kernel of the losses multiplies the gradient of logits by a factor. @param {Matcher} m @param {number} j */
function scaledLosses(m, j) {
  const { inputs, outputs, attributes } = m.calls[j];
  const i = madeByLosses(m, j, inputs[0]);
  const options = m.calls[i]?.options;
  if (i < 0 || !Object.is(attributes.beta, -0) || options?.gradientType !== 'f32' || !replaceable(m, i, j)) return;
  m.fuse("losses' gradient and factor", i, j, {
    kernel: 'crossEntropy',
    options: { scale: /** @type {number} */ (options.scale) * attributes.alpha },
    extra: { gradient: outputs[0] },
  });
}

/** The kernel of the losses writes the gradient of logits in 16 bits. @param {Matcher} m @param {number} j */
function convertedLosses(m, j) {
  const { inputs, outputs } = m.calls[j];
  const [{ layout }] = inputs;
  const i = madeByLosses(m, j, inputs[0]);
  const target = outputs[0].layout.dtype;
  if (i < 0 || (target !== 'f16' && target !== 'bf16') || !replaceable(m, i, j)) return;
  if (m.calls[i].options?.gradientType !== 'f32' || (m.calls[i].inputs[0].layout.shape.at(-1) ?? 1) % 2 || !layout.contiguous) return;
  m.fuse("losses' gradient to 16 bits", i, j, {
    kernel: 'crossEntropy',
    options: { gradientType: target },
    extra: { gradient: outputs[0] },
  });
}

/** The embedding kernel adds learned positions. @param {Matcher} m @param {number} j */
function positions(m, j) {
  const { inputs, outputs, attributes } = m.calls[j];
  const { alpha = 1, beta = 1 } = attributes;
  const [x, position] = inputs;
  const i = m.producer(x);
  if (i < 0 || m.removed.has(i) || alpha !== 1 || beta !== 1) return;
  const made = m.calls[i];
  const [y] = outputs;
  if (made.op?.name !== 'embedding' || made.extra || !m.onlyFor(i, j) || !m.readyAt(position, i, j)) return;
  if (!replaceable(m, i, j) || y.layout.dtype !== position.layout.dtype) return;
  // [..., tokens, columns] and [tokens, columns].
  const [tokens, columns] = y.layout.shape.slice(-2);
  const own = position.layout.shape.filter((_, d, { length }) => d >= length - 2);
  const fits = own[0] === tokens && own[1] === columns && position.layout.size === tokens * columns && position.layout.contiguous;
  if (!fits || made.inputs[0].layout.shape.at(-1) !== tokens) return;
  m.fuse('embedding and positions', i, j, {
    kernel: 'embeddingForward',
    options: { positions: tokens },
    extra: { y, position },
    dropped: made.outputs,
  });
}

/**
 * The embedding's backward kernel writes the table's gradient to its destination itself.
 * @param {Matcher} m @param {number} j @param {Value} x @param {0 | 1} beta 1 to add to the destination, 0 to overwrite it
 */
function intoTable(m, j, x, beta) {
  const [y] = m.calls[j].outputs;
  const i = m.producer(x);
  if (i < 0 || m.removed.has(i) || y.layout.dtype !== 'f32' || !y.layout.contiguous || x.layout.size !== y.layout.size) return;
  const made = m.calls[i];
  if (made.op?.name !== 'embeddingBackward' || !m.onlyFor(i, j) || !made.inputs.every((input) => m.readyAt(input, i, j))) return;
  m.replace("embedding's gradient into a gradient", i, j, {
    op: tableGradient,
    attributes: { ...made.attributes, beta },
    inputs: made.inputs,
    outputs: [y],
  });
}

/** @type {[name: string, rule: (m: Matcher, j: number) => void][]} */
export const NETWORK_RULES = [
  ['crossEntropyGradient', gradientOfLosses],
  ['affine', scaledLosses],
  ['to', convertedLosses],
  ['add', positions],
  ...written(intoTable),
];
