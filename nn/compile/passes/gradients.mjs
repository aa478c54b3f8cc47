// Matching rules for gradients of parameters that an operation computes beside its result: it writes them where the optimizer has them.

import { callInPlaceOf } from './calls.mjs';
import { isProduct, partsOf, whole, written } from './matcher.mjs';
import { tableGradient } from './network.mjs';

/** @typedef {import('./matcher.mjs').Matcher} Matcher */
/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Value} Value */

/**
 * By operation, the first output that is a parameter's gradient; the others follow. `accumulates`: it can add to what is there.
 * @type {Record<string, { first: number, accumulates?: boolean }>}
 */
const GRADIENTS = { layerNormBackward: { first: 1 }, linearCrossEntropy: { first: 2, accumulates: true }, convolutionWeight: { first: 0 } };

/**
 * How the call that computes a gradient can write it to a destination instead; undefined if it cannot.
 * @param {Matcher} m @param {number} j the call that writes the destination @param {number} reader the only call that reads the gradient
 * @param {Value} x the gradient @param {Value} y the destination @param {0 | 1} beta 1 to add to the destination, 0 to overwrite it
 * @returns {{ i: number, redirect: () => void } | undefined}
 */
function redirected(m, j, reader, x, y, beta) {
  const i = m.producer(x);
  const fits = y.layout.dtype === 'f32' && x.layout.dtype === 'f32' && y.layout.contiguous && x.layout.size === y.layout.size;
  if (i < 0 || m.removed.has(i) || !fits || !m.readBy(x, reader) || !m.freeFrom(y, i, j)) return undefined;
  const call = m.calls[i];
  /** @param {() => void} change */
  const how = (change) => ({
    i,
    redirect: () => {
      m.forget(i);
      change();
      m.note(call, i);
    },
  });
  const k = call.outputs.findIndex(({ allocation }) => allocation === x.allocation);
  const known = GRADIENTS[call.op?.name ?? ''];
  if (known && k >= known.first && (beta === 0 || known.accumulates)) {
    return how(() => {
      call.template = undefined;
      call.outputs = call.outputs.with(k, y);
      if (beta === 1) call.attributes = { ...call.attributes, accumulate: true };
    });
  }
  if (!isProduct(call) || call.extra?.residual || call.options?.beta !== undefined || m.result(call).allocation !== x.allocation)
    return undefined;
  const options = beta === 1 ? { cType: 'f32', beta } : { cType: 'f32' };
  return how(() => m.change(call, { kernel: 'matmul', options, extra: { c: y }, dropped: call.outputs.slice(0, 1) }));
}

/** @param {Matcher} m @param {number} j @param {Value} x @param {0 | 1} beta */
function intoGradient(m, j, x, beta) {
  const found = redirected(m, j, j, x, m.calls[j].outputs[0], beta);
  if (!found || isProduct(m.calls[found.i])) return;
  const call = m.calls[found.i];
  m.forget(j);
  m.removed.add(j);
  call.parts = [...partsOf(call), ...partsOf(m.calls[j])];
  found.redirect();
  m.count('gradient of a parameter in its place');
}

/**
 * A table that is also the weight of a product, such as an output head: the product's gradient goes to the destination, and the embedding's
 * kernel adds the table's to it.
 * @param {Matcher} m @param {number} j @param {Value} x the sum of both @param {0 | 1} beta
 */
function tied(m, j, x, beta) {
  const [y] = m.calls[j].outputs;
  const s = m.producer(x);
  const sum = m.calls[s];
  if (s < 0 || m.removed.has(s) || sum.op?.name !== 'add' || sum.kernel || sum.extra || !m.onlyFor(s, j)) return;
  const { alpha = 1, beta: factor = 1 } = sum.attributes;
  if (alpha !== 1 || factor !== 1) return;
  for (const side of [0, 1]) {
    const t = m.producer(sum.inputs[side]);
    const table = m.calls[t];
    if (t < 0 || m.removed.has(t) || table.op?.name !== 'embeddingBackward' || !m.onlyFor(t, s)) continue;
    if (!table.inputs.every((input) => m.readyAt(input, t, j))) continue;
    const found = redirected(m, j, s, sum.inputs[1 - side], y, beta);
    if (!found) continue;
    found.redirect();
    for (const gone of [t, s, j]) m.forget(gone);
    for (const gone of [t, s]) m.removed.add(gone);
    const parts = [t, s, j].flatMap((k) => partsOf(m.calls[k]));
    const attributes = { ...table.attributes, beta: 1 };
    m.calls[j] = callInPlaceOf(table, { op: tableGradient, attributes, inputs: table.inputs, outputs: [y], parts });
    m.note(m.calls[j], j);
    m.count("tied table's gradients in their place");
    return;
  }
}

/**
 * A loss whose gradients are computed with it takes the number that all of them are multiplied by: the gradient of the loss, where that is
 * a constant, such as a share of micro-steps.
 * @param {Matcher} m @param {number} j a multiplication
 */
function factorOfLoss(m, j) {
  const { inputs, attributes } = m.calls[j];
  const i = m.producer(inputs[0]);
  const call = m.calls[i];
  if (i < 0 || m.removed.has(i) || call.op?.name !== 'linearCrossEntropy' || !Object.is(attributes.beta, -0)) return;
  /** The only call that reads each gradient, or undefined where none does. */
  const readers = [1, 2].map((k) => {
    const { readers, writers } = m.usesOf(call.outputs[k].allocation);
    if (readers.size === 0) return undefined;
    const [reader] = readers;
    return readers.size === 1 && writers.size === 1 ? reader : -1;
  });
  const fits = readers.every((reader, k) => {
    if (reader === undefined) return true;
    const made = m.calls[reader];
    if (made?.op?.name !== 'affine' || made.attributes.alpha !== attributes.alpha || !Object.is(made.attributes.beta, -0)) return false;
    const [y] = made.outputs;
    const { writers } = m.usesOf(y.allocation);
    const own = call.outputs[k + 1].layout;
    const same = y.layout.dtype === own.dtype && y.layout.size === own.size;
    return m.context.isTemporary(y.allocation) && whole(y) && writers.size === 1 && same;
  });
  if (!fits) return;
  m.forget(i);
  call.parts = [i, ...readers.filter((reader) => reader !== undefined)].flatMap((k) => partsOf(m.calls[k]));
  for (const [k, reader] of readers.entries()) {
    if (reader === undefined) continue;
    call.outputs = call.outputs.with(k + 1, m.calls[reader].outputs[0]);
    m.forget(reader);
    m.removed.add(reader);
  }
  call.template = undefined;
  call.attributes = { ...call.attributes, factor: (call.attributes.factor ?? 1) * attributes.alpha };
  m.note(call, i);
  m.count("loss's gradients and factor");
}

/** @type {[name: string, rule: (m: Matcher, j: number) => void][]} */
export const GRADIENT_RULES = [['affine', factorOfLoss], ...written(intoGradient), ...written(tied)];
