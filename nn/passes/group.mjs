// Weight gradients of a layer by one launch, where their tiles fill the device together and do not by themselves: the first ones wait
// for the last one.

import { MAX_PRODUCTS } from '../../kernels/ptx/gemm.mjs';
import { SLOT } from '../../kernels/template.mjs';
import { kernelCalls, valuesOf } from './calls.mjs';
import { partsOf } from './matcher.mjs';
import { dependences } from './order.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('./calls.mjs').Value} Value */
/** @typedef {import('../ops/registry.mjs').Op} Op */
/** @typedef {import('../../kernels/matmul.mjs').MatmulArgs} MatmulArgs */

/** Calls that one may wait for: its operands live on. */
const WINDOW = 24;

/** Operands are pairs, results one for each; `products` are the other arguments of `matmul`. @type {Pick<Op, 'name' | 'flops' | 'lower'>} */
const operation = {
  name: 'weightGradients',
  flops: (inputs, outputs) => outputs.reduce((sum, { shape }, i) => sum + 2 * inputs[2 * i].size * (shape.at(-1) ?? 1), 0),
  lower: (kernels, inputs, outputs, { products }) => [
    kernels.matmulGroup(
      products.map((/** @type {object} */ product, /** @type {number} */ i) => ({
        ...product,
        a: inputs[2 * i],
        b: inputs[2 * i + 1],
        c: outputs[i],
      })),
    ),
  ],
};
const weightGradients = /** @type {Op} */ (operation);

/** A weight gradient: the arguments of its product, and its operands. @typedef {{ args: MatmulArgs, a: Value, b: Value, c: Value }} Gradient */

/**
 * A call as the product of a weight gradient in f32, or undefined where it is something else.
 * @param {Call} call @param {Context} context @returns {Gradient | undefined}
 */
function gradientOf(call, { kernels }) {
  const { op, kernel } = call;
  if (op?.name !== 'matmul' || (kernel !== undefined && kernel !== 'matmul')) return undefined;
  const values = valuesOf(call);
  const products = kernelCalls({ ...call, op }, kernels, ['matmul']);
  const { args } = products[0];
  if (products.length !== 1 || !args.transA || args.transB || (args.cType ?? 'f32') !== 'f32') return undefined;
  const [a, b, c] = [args.a, args.b, args.c].map(({ buffer, offset }) => {
    const value = values[buffer - SLOT];
    return value.layout.offset === offset ? value : undefined;
  });
  return a && b && c ? { args, a, b, c } : undefined;
}

/**
 * @param {Call[]} calls @param {Context} context
 * @returns {{ calls: Call[], grouped: number }} how many calls became part of another
 */
export function group(calls, context) {
  const { kernels } = context;
  const gradients = calls.map((call) => gradientOf(call, context));
  if (gradients.filter(Boolean).length < 2) return { calls, grouped: 0 };
  const before = dependences(calls);
  /** Whether a call may be made behind another one. @param {number} i @param {number} j */
  const movable = (i, j) => {
    const reached = new Set([i]);
    for (let x = i + 1; x <= j; x++) if ([...before[x]].some((earlier) => reached.has(earlier))) return false;
    return true;
  };
  /** Gradients that wait, and what became of them. @type {number[]} */
  let waiting = [];
  /** The group that is made in a call's stead. @type {Map<number, Call>} */
  const made = new Map();
  /** @type {Set<number>} */
  const moved = new Set();
  calls.forEach((call, j) => {
    const gradient = gradients[j];
    if (!gradient) return;
    waiting = waiting.filter((i) => j - i <= WINDOW && movable(i, j));
    waiting = [...waiting, j].slice(-MAX_PRODUCTS);
    // As many as are faster together: the last of those that wait.
    const together = waiting
      .map((_, from) => waiting.slice(from))
      .find((list) => list.length > 1 && kernels.matmulGroupPlan(list.map((i) => /** @type {Gradient} */ (gradients[i]).args)));
    if (!together) return;
    const members = together.map((i) => /** @type {Gradient} */ (gradients[i]));
    made.set(j, {
      op: weightGradients,
      attributes: { products: members.map(({ args: { a: _a, b: _b, c: _c, ...args } }) => args) },
      inputs: members.flatMap(({ a, b }) => [a, b]),
      outputs: members.map(({ c }) => c),
      template: undefined,
      allocations: [],
      origin: call.origin,
      region: call.region,
      parts: together.flatMap((i) => partsOf(calls[i])),
    });
    for (const i of together) moved.add(i);
    waiting = waiting.filter((i) => !moved.has(i));
  });
  return { calls: calls.flatMap((call, i) => made.get(i) ?? (moved.has(i) ? [] : [call])), grouped: moved.size - made.size };
}
