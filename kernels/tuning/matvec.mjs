// How the products of a few rows with a matrix are divided (shaders/decode/matvec.comp).

import { MAX_CPU_ROUNDS, ceilDiv } from '../base.mjs';

/** @typedef {import('../base.mjs').KernelContext} KernelContext */

/**
 * @param {KernelContext} context
 * @param {object} of
 * @param {number} of.rows rows of x
 * @param {number} of.vectors loads of a row of the weight
 * @param {number} of.outputs
 * @param {number} of.matrices that each output takes a row of
 * @param {boolean} of.norm whether each workgroup computes the statistics of x first
 */
export function matvecPlan(context, { rows, vectors, outputs, matrices, norm }) {
  const { info, isCpu } = context;
  const full = info.computeFullSubgroupsSupported;
  const team = isCpu ? 0 : full ? 1 : 2;
  const threads = isCpu ? (full ? info.subgroupSize : 8) : full ? Math.max(128, info.subgroupSize) : 64;
  const lanes = team === 0 ? 1 : team === 1 ? info.subgroupSize : threads;
  const teams = threads / lanes;
  const span = isCpu ? (rows <= 2 ? 2 : 1) : outputs >= 16384 && rows <= 4 && matrices === 1 ? 2 : 1;
  const steps = Math.floor(vectors / lanes);
  const most = Math.max(1, Math.floor((isCpu ? 4 : 8) / (span * matrices)));
  // As many loads ahead as divide the row, if that is not too few, so that none is left over.
  let ahead = Math.max(1, Math.min(most, steps));
  for (let n = ahead; n > ahead / 2; n--) {
    if (vectors % (n * lanes) === 0) {
      ahead = n;
      break;
    }
  }
  const once = ceilDiv(vectors, ahead * lanes) + ahead;
  const statistics = norm ? rows * 2 * ceilDiv(vectors * 4, threads) : 0;
  return {
    team,
    threads,
    span,
    ahead,
    oneSubgroup: full && threads === info.subgroupSize ? 1 : 0,
    /** Rounds of the loops of an invocation that computes one block of outputs. */
    rounds: statistics + once,
    /** Workgroups for a number of outputs. @param {number} count */
    groups: (count) => {
      const blocks = ceilDiv(ceilDiv(count, span), teams);
      // On a CPU a workgroup computes several blocks, so that the statistics are not its main work.
      const turns = isCpu ? Math.max(1, Math.min(norm ? 8 : 2, Math.floor((MAX_CPU_ROUNDS - statistics) / (once + 1)))) : 1;
      return Math.min(ceilDiv(blocks, turns), context.maxGroups);
    },
    options: full ? context.wholeSubgroups : {},
  };
}
