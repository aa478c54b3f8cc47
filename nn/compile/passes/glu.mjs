// Matching rules for gated units. One call computes the rows of [gate, up] and the unit's result; another one computes the gradient.
// kernels/matmul/glu.mjs decides whether the device runs such a call as one kernel or as two.

import { floatType } from '../../ops/pointwise.mjs';
import { whole } from './matcher.mjs';

/** @typedef {import('./matcher.mjs').Matcher} Matcher */
/** @typedef {import('../../ops/registry.mjs').Op} Op */
/** @typedef {import('../../../kernels/index.mjs').Kernels} Kernels */
/** @typedef {Parameters<Kernels['matmulGlu']>[0]} GluForward */
/** @typedef {Parameters<Kernels['matmulGluBackward']>[0]} GluBackward */

/** The linear layer that computes rows of [gate, up], and the unit's result. */
const linearGlu = /** @type {Op} */ (
  /** @type {Pick<Op, "name" | "flops" | "lower">} */ ({
    name: 'linearGlu',
    flops: ([x, w]) => 2 * x.size * w.shape[0],
    lower: (k, [x, w], [gateUp], { precision }) => {
      const [n, inner] = w.layout.shape;
      const sizes = { m: x.layout.size / inner, columns: n / 2, k: inner };
      // The result is among the further arguments.
      /** @type {Omit<GluForward, 'y'>} */
      const args = { a: x, b: w, gateUp, ...sizes, type: floatType('glu', x.layout), precision };
      return [k.matmulGlu(/** @type {GluForward} */ (args))];
    },
  })
);

/** The product that computes the gradient of the unit's result, and the gradient of its rows. */
const gluGradient = /** @type {Op} */ (
  /** @type {Pick<Op, "name" | "flops" | "lower">} */ ({
    name: 'matmulGluGradient',
    flops: ([a], [dy]) => 2 * dy.size * (a.shape.at(-1) ?? 1),
    lower: (k, [a, b], [dy], { precision }) => {
      const [inner, columns] = b.layout.shape;
      const sizes = { m: a.layout.size / inner, columns, k: inner };
      /** @type {Omit<GluBackward, 'gateUp' | 'dGateUp'>} */
      const args = { a, b, dy, ...sizes, type: floatType('glu', a.layout), precision };
      return [k.matmulGluBackward(/** @type {GluBackward} */ (args))];
    },
  })
);

/** Whether nothing has changed a product but that it has a second pair of operands. @param {import('./calls.mjs').Call} call */
const isPlain = ({ kernel, extra = {} }) =>
  (kernel === undefined || kernel === 'matmul') && Object.keys(extra).every((name) => name === 'a2' || name === 'b2');

/** @param {Matcher} m @param {number} j a gated unit */
function unit(m, j) {
  const { inputs, outputs, attributes } = m.calls[j];
  const [gateUp] = inputs;
  const [y] = outputs;
  const i = m.producer(gateUp);
  if (i < 0 || m.removed.has(i) || !m.context.isTemporary(y.allocation) || !whole(y) || !m.freeFrom(y, i, j)) return;
  const made = m.calls[i];
  if (made.op?.name !== 'linear' || !isPlain(made) || made.inputs.length !== 2 || !made.inputs[1].layout.contiguous) return;
  const [n] = made.inputs[1].layout.shape;
  if (made.outputs[0].allocation !== gateUp.allocation || gateUp.layout.shape.at(-1) !== n) return;
  const options = { activation: attributes.activation };
  m.fuse('product and gated unit', i, j, { op: linearGlu, kernel: 'matmulGlu', options, extra: { y } });
}

/** @param {Matcher} m @param {number} j the gradient of a gated unit */
function gradient(m, j) {
  const { inputs, outputs, attributes } = m.calls[j];
  const [gateUp, dy] = inputs;
  const [dGateUp] = outputs;
  const i = m.producer(dy);
  if (i < 0 || m.removed.has(i) || !m.onlyFor(i, j) || !m.readyAt(gateUp, i, j)) return;
  const made = m.calls[i];
  if (made.op?.name !== 'matmul' || !isPlain(made) || made.outputs[0].allocation !== dy.allocation) return;
  // Both must be dense matrices, and the columns of b those of the unit.
  const [a, b] = made.inputs.map(({ layout }) => layout);
  if (a.shape.length !== 2 || b.shape.length !== 2 || !a.contiguous || !b.contiguous) return;
  if (gateUp.layout.shape.at(-1) !== 2 * b.shape[1] || !gateUp.layout.contiguous) return;
  if (!m.context.isTemporary(dGateUp.allocation) || !whole(dGateUp) || !m.freeFrom(dGateUp, i, j)) return;
  const options = { activation: attributes.activation };
  const extra = { gateUp, dGateUp };
  m.fuse("product and gated unit's gradient", i, j, { op: gluGradient, kernel: 'matmulGluBackward', options, extra });
}

/** @type {[name: string, rule: (m: Matcher, j: number) => void][]} */
export const GLU_RULES = [
  ['glu', unit],
  ['gluBackward', gradient],
];
