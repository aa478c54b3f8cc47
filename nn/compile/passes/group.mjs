// Computes several weight gradients with one launch, where their tiles fill the device only together. The launch stands where the last of them
// stood. Groups are chosen over the whole backward pass for the least total time: a greedy choice from the front can leave neighbours
// that do not fit together.

import { MAX_PRODUCTS } from '../../../kernels/hopper/form.mjs';
import { SLOT } from '../../../kernels/template.mjs';
import { keyOf } from '../../core/keys.mjs';
import { callInPlaceOf, kernelCalls, valuesOf } from './calls.mjs';
import { partsOf } from './matcher.mjs';
import { dependences } from './order.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('./calls.mjs').Value} Value */
/** @typedef {import('../../ops/registry.mjs').Op} Op */
/** @typedef {import('../../../kernels/matmul.mjs').MatmulArgs} MatmulArgs */

/** The most calls by which a product may be delayed, since its operands must stay alive until then. */
const WINDOW = 24;

/** Inputs are pairs of operands, with one output for each; `products` has the other arguments of `matmul`. @type {Pick<Op, 'name' | 'flops' | 'lower'>} */
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

/** A weight gradient: the arguments of its product, and the values of its operands. @typedef {{ args: MatmulArgs, a: Value, b: Value, c: Value }} Gradient */

/**
 * The weight gradient that a call computes in f32, or undefined if it computes something else.
 * @param {Call} call @param {Context} context @returns {Gradient | undefined}
 */
function gradientOf(call, { kernels }) {
  const { op, kernel } = call;
  if (op?.name !== 'matmul' || (kernel !== undefined && kernel !== 'matmul')) return undefined;
  const values = valuesOf(call);
  const products = kernelCalls({ ...call, op }, kernels, ['matmul']);
  const args = /** @type {MatmulArgs} */ (products[0].args);
  if (products.length !== 1 || !args.transA || args.transB || (args.cType ?? 'f32') !== 'f32') return undefined;
  // The operands as `lower` was given them.
  const operands = /** @type {import('../../ops/registry.mjs').Operand[]} */ ([args.a, args.b, args.c]);
  const [a, b, c] = operands.map(({ buffer, offset }) => {
    const value = values[buffer - SLOT];
    return value.layout.offset === offset ? value : undefined;
  });
  return a && b && c ? { args, a, b, c } : undefined;
}

/** Elements of which a multiple is aligned as kernels in PTX may ask for. */
const ALIGNED = 4096;

/**
 * Partitions a sequence into groups of neighbours that save the most time in total, by dynamic programming.
 * @param {number} count length of the sequence
 * @param {(start: number, end: number) => number | undefined} saving microseconds that a group saves, or undefined if it cannot be a group
 * @returns {[start: number, end: number][]} groups of at least two
 */
function bestGroups(count, saving) {
  /** For the first 0, 1, 2, … members: the most that they can save, and the size of the last group in that case. */
  const best = [{ saved: 0, size: 0 }];
  for (let end = 1; end <= count; end++) {
    let chosen = { saved: best[end - 1].saved, size: 1 };
    for (let size = 2; size <= Math.min(end, MAX_PRODUCTS); size++) {
      const saved = best[end - size].saved + (saving(end - size, end) ?? -Infinity);
      // On a tie, prefer a group to single products, since it is one launch less, and the smallest group, since its operands live shorter.
      if (saved > chosen.saved || (saved === chosen.saved && chosen.size === 1)) chosen = { saved, size };
    }
    best.push(chosen);
  }
  /** @type {[number, number][]} */
  const groups = [];
  for (let end = count; end > 0; end -= best[end].size) if (best[end].size > 1) groups.push([end - best[end].size, end]);
  return groups;
}

/**
 * @param {Call[]} calls @param {Context} context
 * @returns {import('./calls.mjs').Passed} the calls, and how many became part of another
 */
export function group(calls, context) {
  const { kernels } = context;
  const gradients = calls.flatMap((call, place) => {
    const gradient = gradientOf(call, context);
    return gradient ? [{ ...gradient, call, place }] : [];
  });
  if (gradients.length < 2) return { calls, found: 0 };
  const before = dependences(calls);
  /** Whether call i can move to the place of call j. @param {number} i @param {number} j */
  const movable = (i, j) => j - i <= WINDOW && !before.slice(i + 1, j + 1).some((earlier) => earlier.has(i));
  /** Savings by products: those of one layer are those of the next. @type {Map<string, number | undefined>} */
  const savings = new Map();
  const keys = gradients.map(({ args: { a, b, c, ...sizes } }) =>
    keyOf({
      ...sizes,
      offsets: [a, b, c].map((operand) => /** @type {import('../../ops/registry.mjs').Operand} */ (operand).offset % ALIGNED),
    }),
  );
  const groups = bestGroups(gradients.length, (start, end) => {
    const list = gradients.slice(start, end);
    const last = list[list.length - 1].place;
    if (!list.slice(0, -1).every(({ place }) => movable(place, last))) return undefined;
    const key = keys.slice(start, end).join();
    if (!savings.has(key)) savings.set(key, kernels.matmulGroupSaving(list.map(({ args }) => args)));
    return savings.get(key);
  });
  /** What replaces each call: a group replaces its last member, nothing replaces the others. @type {Map<number, Call[]>} */
  const made = new Map();
  let grouped = 0;
  for (const [start, end] of groups) {
    const members = gradients.slice(start, end);
    // This tests the kernel on the device, so it is done only for groups that were chosen.
    if (!kernels.matmulGroupPlan(members.map(({ args }) => args))) continue;
    const { call, place } = members[members.length - 1];
    for (const member of members) made.set(member.place, []);
    made.set(place, [
      callInPlaceOf(call, {
        op: weightGradients,
        attributes: { products: members.map(({ args: { a: _a, b: _b, c: _c, ...args } }) => args) },
        inputs: members.flatMap(({ a, b }) => [a, b]),
        outputs: members.map(({ c }) => c),
        parts: members.flatMap((member) => partsOf(member.call)),
      }),
    ]);
    grouped += members.length - 1;
  }
  return { calls: calls.flatMap((call, i) => made.get(i) ?? [call]), found: grouped };
}
