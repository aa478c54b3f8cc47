// Matching rules for activations behind a linear layer, and for their gradients behind the next layer's: where the device has one kernel for the
// product and the activation. Elsewhere the activation is left to generated kernels, which fuse it with its other neighbours.

import { floatType } from '../../ops/pointwise.mjs';
import { kernelCalls } from './calls.mjs';
import { whole } from './matcher.mjs';

/** @typedef {import('./matcher.mjs').Matcher} Matcher */
/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').KernelArgs} KernelArgs */
/** @typedef {import('../../ops/registry.mjs').Op} Op */
/** @typedef {import('../../../kernels/index.mjs').Kernels} Kernels */
/** @typedef {import('../../../kernels/matmul.mjs').PermutedQuestion} PermutedQuestion */
/** @typedef {Parameters<Kernels['matmulActivation']>[0]} Forward */
/** @typedef {Parameters<Kernels['matmulActivationBackward']>[0]} Backward */

/** The linear layer that computes an activation's argument, and the activation. */
const linearActivation = /** @type {Op} */ (
  /** @type {Pick<Op, "name" | "flops" | "lower">} */ ({
    name: 'linearActivation',
    flops: ([x, w]) => 2 * x.size * w.shape[0],
    lower: (k, [a, b, bias], [x], { precision }) => {
      const [n, inner] = b.layout.shape;
      // The result and the activation are among the further arguments.
      const args = { a, b, bias, x, m: a.layout.size / inner, n, k: inner, type: floatType('linear', a.layout), precision };
      return [k.matmulActivation(/** @type {Forward} */ (/** @type {Partial<Forward>} */ (args)))];
    },
  })
);

/** The product that computes the gradient of an activation, and that of its argument. */
const activationGradient = /** @type {Op} */ (
  /** @type {Pick<Op, "name" | "flops" | "lower">} */ ({
    name: 'matmulActivationGradient',
    flops: ([a], [dy]) => 2 * dy.size * (a.shape.at(-1) ?? 1),
    lower: (k, [a, b], [dy], { precision }) => {
      const [inner, n] = b.layout.shape;
      const args = { a, b, dy, m: a.layout.size / inner, n, k: inner, type: floatType('matmul', a.layout), precision };
      return [k.matmulActivationBackward(/** @type {Backward} */ (/** @type {Partial<Backward>} */ (args)))];
    },
  })
);

/**
 * The arguments of a product with an activation in the form that kernels are asked about it.
 * @param {string} kernel @param {KernelArgs} args @returns {PermutedQuestion}
 */
export function activationQuestion(kernel, { a, b, bias, x, y, dx, m, n, k, type, precision, activation }) {
  const product = { a, b, m, n, k, aType: type, bType: type, cType: type, precision, activation };
  if (kernel === 'matmulActivation') return { ...product, transB: true, c: x, bias, half: y, unit: 'forward' };
  return { ...product, c: dx, slopeOf: x, unit: 'backward' };
}

/**
 * Whether one kernel does what a call would be changed to.
 * @param {Matcher} m @param {Call} call @param {Omit<import('./matcher.mjs').Change, 'dropped'> & { op: Op }} change
 */
function asOne({ context: { kernels } }, call, { kernel, ...change }) {
  const [product] = kernelCalls({ ...call, ...change, kernel }, kernels, [kernel]);
  return kernels.takesActivation(activationQuestion(kernel, product.args));
}

/** @param {Matcher} m @param {number} j an activation @param {'gelu' | 'silu'} activation */
function forward(m, j, activation) {
  const { inputs, outputs } = m.calls[j];
  const [x] = inputs;
  const [y] = outputs;
  const i = m.producer(x);
  if (i < 0 || m.removed.has(i) || x.layout.dtype === 'f32') return;
  if (!m.context.isTemporary(y.allocation) || !whole(y) || !m.freeFrom(y, i, j)) return;
  const made = m.calls[i];
  if (made.op?.name !== 'linear' || made.kernel || made.extra || made.outputs[0].allocation !== x.allocation) return;
  if (!made.inputs[1].layout.contiguous) return;
  const change = { op: linearActivation, kernel: 'matmulActivation', options: { activation }, extra: { y } };
  if (asOne(m, made, change)) m.fuse('product and activation', i, j, change);
}

/** @param {Matcher} m @param {number} j the gradient of an activation @param {'gelu' | 'silu'} activation */
function backward(m, j, activation) {
  const { inputs, outputs } = m.calls[j];
  const [x, dy] = inputs;
  const [dx] = outputs;
  const i = m.producer(dy);
  if (i < 0 || m.removed.has(i) || x.layout.dtype === 'f32' || !m.onlyFor(i, j) || !m.readyAt(x, i, j)) return;
  const made = m.calls[i];
  if (made.op?.name !== 'matmul' || made.kernel || made.extra || made.outputs[0].allocation !== dy.allocation) return;
  // Both must be dense matrices, and so must be what the activation was applied to.
  if (made.inputs.some(({ layout }) => layout.shape.length !== 2 || !layout.contiguous) || !x.layout.contiguous) return;
  if (!m.context.isTemporary(dx.allocation) || !whole(dx) || !m.freeFrom(dx, i, j)) return;
  const change = { op: activationGradient, kernel: 'matmulActivationBackward', options: { activation }, extra: { x, dx } };
  if (asOne(m, made, change)) m.fuse("product and activation's gradient", i, j, change);
}

/** @type {[name: string, rule: (m: Matcher, j: number) => void][]} */
export const ACTIVATION_RULES = /** @type {const} */ (['gelu', 'silu']).flatMap((activation) => [
  [activation, (/** @type {Matcher} */ m, /** @type {number} */ j) => forward(m, j, activation)],
  [`${activation}Backward`, (/** @type {Matcher} */ m, /** @type {number} */ j) => backward(m, j, activation)],
]);
