// Gradients of norm weights. The kernel of a norm's gradient writes sums over blocks of rows, which a `columnSum` then adds. This pass puts the
// block sums of many norms side by side, so that one `columnSum` serves them all.

import { layoutOf } from '../../core/layout.mjs';
import { callInPlaceOf, effective } from './calls.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Value} Value */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('../../ops/registry.mjs').Op} Op */
/** @typedef {import('../../core/runtime.mjs').Allocation} Allocation */
/** @typedef {(bytes: number) => Allocation} Allocate temporary memory */

/** Adds the sums of blocks to gradients. */
const blockSums = /** @type {Op} */ ({
  name: 'normWeightGradients',
  lower: (k, [x], [y], { rows, beta }) => [k.columnSum({ x, y, rows, columns: y.layout.size, beta })],
});

/** Norms whose weight gradients share one allocation. @typedef {{ beta: unknown, rows: number, members: number[] }} Group */

/** Where a norm's gradient writes the gradient of the weight; undefined for other calls. @param {Call} call @returns {Value | undefined} */
const target = ({ op, extra }) => (op?.name === 'rmsNormBackward' ? extra?.dWeight : undefined);
/** The number of rows of a norm. @param {Call} call */
const rowsOf = ({ inputs: [, { layout }] }) => layout.size / (layout.shape.at(-1) ?? 1);

/**
 * @param {Call[]} calls @param {Context} context
 * @returns {import('./calls.mjs').Passed} the calls, and how many gradients are summed together
 */
export function norms(calls, { kernels, allocate }) {
  /** The groups that may still grow, by the allocation of their gradients. @type {Map<Allocation, Group>} */
  const open = new Map();
  /** The calls to insert after each call. @type {Map<number, Call[]>} */
  const behind = new Map();
  let merged = 0;

  /** Merges norms whose gradients are adjacent in memory. @param {number[]} run their calls @param {Group} group */
  const merge = (run, { beta, rows }) => {
    if (run.length < 2) return;
    const targets = run.map((i) => /** @type {Value} */ (target(calls[i])));
    const [{ allocation, layout }] = targets;
    const columns = targets.reduce((sum, { layout: { size } }) => sum + size, 0);
    const blocks = kernels.normBlocks({ rows });
    const sums = allocate(4 * blocks * columns);
    for (const [k, i] of run.entries()) {
      const call = calls[i];
      const { dWeight, ...extra } = /** @type {Record<string, Value>} */ (call.extra);
      const own = layoutOf([dWeight.layout.size], [1], targets[k].layout.offset - layout.offset, 'f32');
      calls[i] = {
        ...call,
        template: undefined,
        options: { ...call.options, beta: undefined, blockStride: columns },
        extra: { ...extra, blockSums: { allocation: sums, layout: own } },
      };
    }
    const last = Math.max(...run);
    const sum = callInPlaceOf(calls[last], {
      op: blockSums,
      attributes: { rows: blocks, beta },
      inputs: [{ allocation: sums, layout: layoutOf([blocks, columns], [columns, 1], 0, 'f32') }],
      outputs: [{ allocation, layout: layoutOf([columns], [1], layout.offset, 'f32') }],
    });
    behind.set(last, [...(behind.get(last) ?? []), sum]);
    merged += run.length;
  };
  /** Ends a group and merges its members that are adjacent in memory. @param {Allocation} allocation */
  const close = (allocation) => {
    const group = open.get(allocation);
    if (!group) return;
    open.delete(allocation);
    const layoutAt = (/** @type {number} */ i) => /** @type {Value} */ (target(calls[i])).layout;
    const members = group.members.sort((a, b) => layoutAt(a).offset - layoutAt(b).offset);
    let from = 0;
    for (let m = 1; m <= members.length; m++) {
      const before = layoutAt(members[m - 1]);
      if (m < members.length && before.offset + before.size === layoutAt(members[m]).offset) continue;
      merge(members.slice(from, m), group);
      from = m;
    }
  };

  calls.forEach((call, i) => {
    const own = target(call);
    const { inputs, outputs } = effective(call);
    for (const { allocation, layout } of call.op
      ? [...inputs, ...outputs]
      : call.allocations.map((allocation) => ({ allocation, layout: undefined }))) {
      const group = open.get(allocation);
      if (!group) continue;
      const end = layout ? layout.offset + layout.size : Infinity;
      const touched = group.members.some((member) => {
        const other = /** @type {Value} */ (target(calls[member])).layout;
        return !layout?.contiguous || (layout.offset < other.offset + other.size && other.offset < end);
      });
      if (touched) close(allocation);
    }
    if (!own) return;
    const rows = rowsOf(call);
    const group = open.get(own.allocation);
    if (group && group.beta === call.options?.beta && group.rows === rows) group.members.push(i);
    else {
      close(own.allocation);
      open.set(own.allocation, { beta: call.options?.beta, rows, members: [i] });
    }
  });
  for (const allocation of [...open.keys()]) close(allocation);
  return { calls: calls.flatMap((call, i) => [calls[i] ?? call, ...(behind.get(i) ?? [])]), found: merged };
}
