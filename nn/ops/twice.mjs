// Gradients that have gradients themselves, of operations whose own gradient is a kernel that has none: for `grad` with `createGraph`, which
// computes them by functions of tensors. Others are differentiated again as they are, or say that they cannot be.

import { checkTwice } from '../core/node.mjs';
import { operations } from './registry.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('./registry.mjs').Functions} Functions */
/** @typedef {import('./registry.mjs').Saved} Saved */

/**
 * The derivative of a function of one element at what was saved, the argument or, of `relu`, the result; and with the numbers of the call.
 * @typedef {(F: Functions, x: Tensor, ...numbers: number[]) => Tensor} Slope
 */

/** A function of one element by its name. @param {Functions} F @param {string} name @param {Tensor} x @param {object} [attributes] */
const call = (F, name, x, attributes) => F.call(/** @type {import('./registry.mjs').Op} */ (operations.get(name)), [x], attributes);
/** 1 above 0, and `below` elsewhere. @param {Functions} F @param {Tensor} x @param {Tensor | number} below */
const step = (F, x, below) => F.where(F.gt(x, 0), F.ones(x.shape, { dtype: x.dtype }), below);
/** a · x + b. @param {Functions} F @param {Tensor} x @param {number} a @param {number} b */
const line = (F, x, a, b) => F.add(F.mul(x, a), b);
/** (1 - x²). @param {Functions} F @param {Tensor} x */
const oneLessSquare = (F, x) => line(F, F.square(x), -1, 1);
/** factor · e^(-scale x²). @param {Functions} F @param {Tensor} x @param {number} factor @param {number} scale */
const bell = (F, x, factor, scale) => F.mul(F.exp(F.mul(F.square(x), -scale)), factor);

const [SELU_ALPHA, SELU_SCALE] = [1.6732632423543772, 1.0507009873554805];

/** @type {Record<string, Slope>} */
const SLOPES = {
  relu: (F, y) => step(F, y, 0),
  sigmoid: (F, x) => {
    const y = F.sigmoid(x);
    return F.mul(y, line(F, y, -1, 1));
  },
  tanh: (F, x) => oneLessSquare(F, F.tanh(x)),
  silu: (F, x) => {
    const s = F.sigmoid(x);
    return F.mul(s, line(F, F.mul(x, line(F, s, -1, 1)), 1, 1));
  },
  gelu: (F, x) => {
    // With s = sigmoid(2u), u = √(2/π) (x + 0.044715 x³): s + x s (1 - s) 2u'.
    const [factor, cubic] = [2 * Math.sqrt(2 / Math.PI), 0.044715];
    const s = F.sigmoid(F.mul(F.mul(x, line(F, F.square(x), cubic, 1)), factor));
    return F.add(s, F.mul(F.mul(F.mul(x, s), line(F, s, -1, 1)), line(F, F.square(x), 3 * cubic * factor, factor)));
  },
  geluExact: (F, x) =>
    F.add(line(F, call(F, 'erf', F.mul(x, Math.SQRT1_2)), 0.5, 0.5), F.mul(x, bell(F, x, 1 / Math.sqrt(2 * Math.PI), 0.5))),
  sin: (F, x) => call(F, 'cos', x),
  cos: (F, x) => F.neg(call(F, 'sin', x)),
  tan: (F, x) => line(F, F.square(call(F, 'tan', x)), 1, 1),
  asin: (F, x) => F.rsqrt(oneLessSquare(F, x)),
  acos: (F, x) => F.neg(F.rsqrt(oneLessSquare(F, x))),
  atan: (F, x) => F.reciprocal(line(F, F.square(x), 1, 1)),
  sinh: (F, x) => call(F, 'cosh', x),
  cosh: (F, x) => call(F, 'sinh', x),
  asinh: (F, x) => F.rsqrt(line(F, F.square(x), 1, 1)),
  atanh: (F, x) => F.reciprocal(oneLessSquare(F, x)),
  exp2: (F, x) => F.mul(call(F, 'exp2', x), Math.LN2),
  expm1: (F, x) => F.exp(x),
  log2: (F, x) => F.reciprocal(F.mul(x, Math.LN2)),
  log10: (F, x) => F.reciprocal(F.mul(x, Math.LN10)),
  erf: (F, x) => bell(F, x, 2 / Math.sqrt(Math.PI), 1),
  erfc: (F, x) => bell(F, x, -2 / Math.sqrt(Math.PI), 1),
  softplus: (F, x, beta, limit) => F.where(F.gt(F.mul(x, beta), limit), F.ones(x.shape, { dtype: x.dtype }), F.sigmoid(F.mul(x, beta))),
  logSigmoid: (F, x) => F.sigmoid(F.neg(x)),
  mish: (F, x) => {
    const t = F.tanh(F.neg(call(F, 'logSigmoid', F.neg(x))));
    return F.add(t, F.mul(F.mul(x, F.sigmoid(x)), oneLessSquare(F, t)));
  },
  softsign: (F, x) => F.reciprocal(F.square(line(F, F.abs(x), 1, 1))),
  tanhshrink: (F, x) => F.square(F.tanh(x)),
  elu: (F, x, alpha) => step(F, x, F.mul(F.exp(F.minimum(x, 0)), alpha)),
  celu: (F, x, alpha) => step(F, x, F.exp(F.mul(F.minimum(x, 0), 1 / alpha))),
  selu: (F, x) => F.mul(step(F, x, F.mul(F.exp(F.minimum(x, 0)), SELU_ALPHA)), SELU_SCALE),
  leakyRelu: (F, x, slope) => step(F, x, slope),
};

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

/** Of gated units, rows [gate | up]. */
const gated = (/** @type {Tensor} */ dy, /** @type {Saved} */ { inputs: [x], attributes: { activation } }, /** @type {Functions} */ F) => {
  const half = x.shape[x.ndim - 1] / 2;
  const [gate, up] = [0, half].map((from) => F.to(F.slice(x, -1, from, from + half), 'f32'));
  const wide = F.to(dy, 'f32');
  const isPlain = activation === 'identity';
  const value = isPlain ? gate : call(F, activation, gate);
  const slope = isPlain ? 1 : SLOPES[activation](F, gate);
  const parts = [F.mul(F.mul(wide, up), slope), F.mul(wide, value)];
  const both = F.call(/** @type {import('./registry.mjs').Op} */ (operations.get('cat')), parts, { dim: x.ndim - 1 });
  return [F.to(both, x.dtype)];
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

/** By the operation's name, in the form of `vjp`. @type {Record<string, (dy: Tensor, saved: Saved, F: Functions) => (Tensor | undefined)[]>} */
export const TWICE = {
  ...Object.fromEntries(
    Object.entries(SLOPES).map(([name, slope]) => [
      name,
      (
        /** @type {Tensor} */ dy,
        /** @type {Saved} */ { inputs: [x], outputs: [y], attributes: { numbers = [] } },
        /** @type {Functions} */ F,
      ) => {
        // In f32: parts of a slope may overflow f16 where it does not.
        const at = x ?? y;
        return [F.to(F.mul(F.to(dy, 'f32'), slope(F, F.to(at, 'f32'), ...numbers)), at.dtype)];
      },
    ]),
  ),
  softmax: (dy, { outputs: [y], attributes: { scale = 1 } }, F) => [F.mul(F.mul(y, F.sub(dy, F.sum(F.mul(dy, y), -1, true))), scale)],
  crossEntropy: ofClasses,
  glu: gated,
  normalizeChannels: ofChannels,
  rmsNorm: norm(false),
  layerNorm: norm(true),
  // Logarithms of gradients that are 0, and quotients by elements that may be: their first gradients are right, those of these are not.
  logcumsumexp: refused,
  reduceRuns: refused,
  prod: refused,
  cumprod: refused,
};
