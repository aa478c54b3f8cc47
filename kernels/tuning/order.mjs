// The order in which plans add up products over the depth. Two plans of one product have equal bits if their orders are equal; otherwise they may
// differ in rounding.

import { isSimt } from '../hopper/simt.mjs';

/**
 * The order of sums of a plan, as a text that can only be compared.
 * @param {import('../matmul/types.mjs').Plan} plan
 */
export function sumOrder(plan) {
  if (plan.kernel === 'ptx') {
    const { tiling, bm, bn } = plan;
    const { parts, kPerPart, whole } = plan.division;
    // Where A comes from registers, the depth is permuted within 32 (`depthOf`).
    const kind = isSimt(tiling) ? 'f32' : tiling.direct ? 'matrix units, permuted' : 'matrix units';
    return `ptx ${kind}${partsOf(parts, kPerPart, whole, bm, bn)}`;
  }
  if (plan.kernel === 'rows') return `rows by ${plan.bk}${partsOf(plan.splits, plan.kPerSplit, 0, plan.bm, plan.bn)}`;
  const kind = plan.kernel === 'f32' ? 'f32' : `matrix units ${plan.tm} ${plan.tn} ${plan.tk}`;
  return `spirv ${kind}${partsOf(plan.tail ?? plan.splits, plan.kPerSplit, plan.tail ? plan.whole : 0, plan.bm, plan.bn)}`;
}

/** @param {number} parts @param {number} depth of a part @param {number} whole tiles that are not split @param {number} bm @param {number} bn */
const partsOf = (parts, depth, whole, bm, bn) =>
  parts === 1 ? '' : `/${parts} of ${depth}${whole > 0 ? ` after ${whole} of ${bm}x${bn}` : ''}`;

/** What is said of a plan whose sums are in another order than the package's. */
export const ANOTHER_ORDER = "its sums are in another order than those of the package's plan, so that last bits may differ";
