// Gradients that have gradients themselves, of operations whose own gradient is a kernel that has none: for `grad` with `createGraph`, which
// computes them by functions of tensors. Others are differentiated again as they are, or say that they cannot be.

import { checkTwice } from '../core/node.mjs';
import { reduceRuns } from './indexing.mjs';
import { operations } from './registry.mjs';
import { SLOPES, call } from './slopes.mjs';
import { adapt, attention, attentionApart, gru, lstm } from './twice-layers.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('./registry.mjs').Functions} Functions */
/** @typedef {import('./registry.mjs').Saved} Saved */

/** Of the norms of a row, with its mean or without. @param {boolean} layer */
const norm =
  (layer) =>
  /** @param {Tensor} dy @param {Saved} saved @param {Functions} F */
  (dy, { inputs: [x, weight], layouts, needs, attributes: { eps } }, F) => {
    const mean = (/** @type {Tensor} */ own) => F.mean(own, -1, true);
    const own = F.to(x, 'f32');
    const centred = layer ? F.sub(own, mean(own)) : own;
    const inverse = F.rsqrt(F.add(mean(F.square(centred)), eps));
    const normalized = F.mul(centred, inverse);
    const wide = F.to(dy, 'f32');
    const g = F.mul(wide, weight);
    const part = F.sub(g, F.mul(normalized, mean(F.mul(g, normalized))));
    return [
      needs[0] ? F.to(F.mul(layer ? F.sub(part, mean(g)) : part, inverse), x.dtype) : undefined,
      needs[1] ? F.sumTo(F.mul(wide, normalized), layouts[1].shape) : undefined,
      needs[2] ? F.sumTo(wide, layouts[2].shape) : undefined,
    ].slice(0, layouts.length);
  };

/** The gradient of class cross-entropy: the value is the kernel's; what it changes by with x is what softmax changes by. */
const ofClasses = (/** @type {Tensor} */ dy, /** @type {Saved} */ { inputs: [x, targets], attributes }, /** @type {Functions} */ F) => {
  const gradient = F.call(
    /** @type {import('./registry.mjs').Op} */ (operations.get('crossEntropyGradient')),
    [x.detach(), targets],
    attributes,
  );
  const p = F.softmax(x);
  // The number of 32 bits that the targets have.
  const counts = F.unsqueeze(F.ne(targets, targets.dtype === 'i32' ? attributes.ignored | 0 : attributes.ignored >>> 0), -1);
  const slope = F.add(F.to(gradient, 'f32'), F.where(counts, F.to(F.sub(p, p.detach()), 'f32'), 0));
  return [F.to(F.mul(slope, F.unsqueeze(dy, -1)), x.dtype), undefined];
};

/** dy times a slope. @param {Functions} F @param {Tensor} dy @param {import('./slopes.mjs').Slope} slope @param {(Tensor | number)[]} operands */
function sloped(F, dy, slope, operands) {
  const own = slope(F, ...operands);
  if (own === 1) return dy;
  return typeof own !== 'number' && own.dtype === 'bool' ? F.where(own, dy, 0) : F.mul(dy, own);
}

/**
 * Of functions of elements. In f32: parts of a slope may overflow f16 where it does not.
 * @param {import('./slopes.mjs').Slope | import('./slopes.mjs').Slope[]} slopes
 */
const ofElements =
  (slopes) =>
  /** @param {Tensor} dy @param {Saved} saved @param {Functions} F */
  (dy, { inputs, outputs, layouts, needs, attributes: { numbers = [] } }, F) => {
    const operands = (inputs.length > 0 ? inputs : outputs).map((x) => F.to(x, 'f32'));
    const own = F.to(dy, 'f32');
    return layouts.map(({ shape, dtype }, i) =>
      needs[i] ? F.to(F.sumTo(sloped(F, own, [slopes].flat()[i], [...operands, ...numbers]), shape), dtype) : undefined,
    );
  };

/**
 * Of scans and products of rows, whose own gradients divide by elements: Σ dy[i] · term[k, i] over the results i of each element k, which takes
 * rows of n² terms. `each` makes terms [..., n, n] of which those that count are given as a bool [n, n].
 * @param {(F: Functions, x: Tensor, y: Tensor, attributes: any, isOwn: Tensor, counts: Tensor) => Tensor} each any: of the operation
 */
const byTerms =
  (each) =>
  /** @param {Tensor} dy @param {Saved} saved @param {Functions} F */
  (dy, { inputs: [x], outputs: [y], attributes }, F) => {
    const n = x.shape[x.ndim - 1];
    const counts = F.band(n, n, 0, attributes.reverse ? F.le : F.ge);
    const terms = each(F, x, y, attributes, F.band(n, n, 0, F.eq), counts);
    return [F.sum(F.mul(F.unsqueeze(dy, -2), terms), -1)];
  };
/** Rows without element k, [..., n, n]. @param {Functions} F @param {Tensor} x @param {Tensor} isOwn */
const without = (F, x, isOwn) => F.where(isOwn, 1, F.unsqueeze(x, -2));

/** Of gated units, rows [gate | up]. */
const gated = (/** @type {Tensor} */ dy, /** @type {Saved} */ { inputs: [x], attributes: { activation } }, /** @type {Functions} */ F) => {
  const half = x.shape[x.ndim - 1] / 2;
  const [gate, up] = [0, half].map((from) => F.to(F.slice(x, -1, from, from + half), 'f32'));
  const wide = F.to(dy, 'f32');
  const isPlain = activation === 'identity';
  const value = isPlain ? gate : call(F, activation, [gate]);
  const atGate = F.mul(wide, up);
  const parts = [
    isPlain ? atGate : sloped(F, atGate, /** @type {import('./slopes.mjs').Slope} */ (SLOPES[activation]), [gate]),
    F.mul(wide, value),
  ];
  return [F.to(F.cat(parts, -1), x.dtype)];
};

/** Of batch norms, whose mean and variance are those of x where `count` is not 0. @param {Tensor} dy @param {Saved} saved @param {Functions} F */
function ofChannels(dy, { inputs: [x, mean, inverse, weight], layouts: [, , , scale, shift], needs, attributes: { count } }, F) {
  const [own, wide] = [F.to(x, 'f32'), F.to(dy, 'f32')];
  const total = (/** @type {Tensor} */ v) => F.sumTo(v, scale.shape);
  const gradients = (/** @type {Tensor | undefined} */ dx, /** @type {Tensor} */ normalized) => [
    needs[0] && dx ? F.to(dx, x.dtype) : undefined,
    needs[1] ? F.neg(F.mul(F.mul(weight, inverse), total(wide))) : undefined,
    needs[2] ? F.mul(weight, total(F.mul(wide, F.sub(own, mean)))) : undefined,
    needs[3] ? total(F.mul(wide, normalized)) : undefined,
    needs[4] ? F.sumTo(wide, shift.shape) : undefined,
  ];
  if (count === 0) return gradients(F.mul(wide, F.mul(weight, inverse)), F.mul(F.sub(own, mean), inverse));
  // Statistics of several processes.
  const each = x.size / scale.shape.reduce((a, b) => a * b, 1);
  if (count !== each) refused();
  const meanOf = (/** @type {Tensor} */ v) => F.div(total(v), each);
  const centred = F.sub(own, meanOf(own));
  const variance = meanOf(F.square(centred));
  // The variance that the forward pass took has eps in it.
  const eps = F.sub(F.reciprocal(F.square(inverse)), variance).detach();
  const over = F.rsqrt(F.add(variance, eps));
  const normalized = F.mul(centred, over);
  const g = F.mul(wide, weight);
  const part = F.sub(F.sub(g, meanOf(g)), F.mul(normalized, meanOf(F.mul(g, normalized))));
  return gradients(F.mul(part, over), normalized);
}

/** @returns {never} */
function refused() {
  checkTwice();
  throw new Error('no gradient is computed that is to have a gradient');
}

const byRuns = /** @type {NonNullable<import('./registry.mjs').Op['vjp']>} */ (reduceRuns.vjp);

/** By the operation's name, in the form of `vjp`. @type {Record<string, (dy: Tensor, saved: Saved, F: Functions) => (Tensor | undefined)[]>} */
const TWICE = {
  ...Object.fromEntries(Object.entries(SLOPES).map(([name, slopes]) => [name, ofElements(slopes)])),
  softmax: (dy, { outputs: [y], attributes: { scale = 1 } }, F) => [F.mul(F.mul(y, F.sub(dy, F.sum(F.mul(dy, y), -1, true))), scale)],
  crossEntropy: ofClasses,
  glu: gated,
  normalizeChannels: ofChannels,
  rmsNorm: norm(false),
  layerNorm: norm(true),
  adapt,
  attention,
  attentionApart,
  gru,
  lstm,
  prod: byTerms((F, x, _, __, isOwn) => call(F, 'prod', [without(F, x, isOwn)])),
  cumprod: byTerms((F, x, _, attributes, isOwn, counts) => F.where(counts, call(F, 'cumprod', [without(F, x, isOwn)], attributes), 0)),
  logcumsumexp: byTerms((F, x, y, _, __, counts) => {
    // Of -∞ no share.
    const isNone = F.eq(F.unsqueeze(x, -1), -Infinity);
    const counted = F.mul(counts, F.eq(isNone, 0));
    const distance = F.sub(F.where(isNone, 0, F.unsqueeze(x, -1)), F.where(counted, F.unsqueeze(y, -2), 0));
    return F.where(counted, F.exp(F.where(counted, distance, 0)), 0);
  }),
  // Products divide by elements that may be 0.
  reduceRuns: (dy, saved, F) => (saved.attributes.op === 'prod' ? refused() : byRuns(dy, saved, F)),
};

/** The gradient of an operation by functions of tensors, if its own has none. Other operations may have one's name. @param {import('./registry.mjs').Op} op */
export const twice = (op) => (operations.get(op.name) === op && Object.hasOwn(TWICE, op.name) ? TWICE[op.name] : undefined);
