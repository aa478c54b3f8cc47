// How the products of a few rows with a matrix are divided (shaders/decode/matvec.comp). Nothing here changes a result but its last bits.

import { MAX_CPU_ROUNDS, ceilDiv } from '../base.mjs';

/** @typedef {import('../base.mjs').KernelContext} KernelContext */

/** Subgroups that keep enough of a GPU's loads in flight: some 16 on each of an H100's 132 multiprocessors. */
const FILLING_TEAMS = 2048;

/** Most loads of 16 bytes that an invocation waits for at a time, as registers allow. */
const LOADS_AHEAD = 12;

/**
 * @typedef {object} Shape
 * @property {number} rows rows of x
 * @property {number} vectors loads of a row of the weight
 * @property {number} outputs elements of a row of the result
 * @property {number} matrices that each output takes a row of
 * @property {boolean} norm whether each workgroup computes the statistics of x first
 * @property {boolean} quantized whether a load holds 16 elements
 */

/**
 * Outputs of a team. More of them share each load of x, and of the norm's weight; fewer leave more teams.
 * @param {boolean} isCpu @param {Shape} shape
 */
function spanOf(isCpu, { rows, outputs, matrices, norm, quantized }) {
  // lavapipe, in f16, x of 768 by 3,072 outputs: 5.2 GB/s with 2, 6.1 with 4, 7.8 with 8, 7.5 with 16.
  if (isCpu) return outputs >= 512 ? (matrices === 2 && rows > 1 ? 4 : 8) : outputs >= 64 ? 2 : 1;
  // Bytes of x and of the norm for each byte of the weight come from the first-level cache, which is some 8 times as fast as memory.
  const traffic = rows + (norm ? 1 : 0);
  const shared = Math.min(4, (quantized ? 2 : 1) * traffic) / matrices;
  const fewest = rows > 4 ? 2 : 1;
  for (let span = 4; span > fewest; span /= 2) {
    if (span <= shared && (outputs * matrices) / span >= FILLING_TEAMS) return span;
  }
  return fewest;
}

/**
 * @param {KernelContext} context
 * @param {Shape} shape
 */
export function matvecPlan(context, shape) {
  const { info, isCpu } = context;
  const { rows, vectors, matrices, norm } = shape;
  const full = context.countsSubgroups;
  // On a CPU an invocation computes its outputs alone: the lanes of a vector instruction then share x. Only the norm of a single row is
  // cheaper where lanes share the inputs.
  const alone = isCpu && !(full && norm && rows === 1);
  const team = alone ? 0 : full ? 1 : 2;
  const threads = isCpu ? (full ? info.subgroupSize : 8) : full ? Math.max(128, info.subgroupSize) : 64;
  const lanes = team === 0 ? 1 : team === 1 ? info.subgroupSize : threads;
  const span = spanOf(isCpu, shape);
  // As many loads ahead as make few rounds, all about equally long: the latency of memory is that of each round.
  const perLane = ceilDiv(vectors, lanes);
  const most = isCpu ? 1 : Math.max(1, Math.floor(LOADS_AHEAD / (span * matrices)));
  const ahead = ceilDiv(perLane, ceilDiv(perLane, most));
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
      const blocks = ceilDiv(ceilDiv(count, span), threads / lanes);
      // On a CPU a workgroup computes several blocks, so that the statistics are not its main work.
      const turns = isCpu ? Math.max(1, Math.min(norm ? 8 : 2, Math.floor((MAX_CPU_ROUNDS - statistics) / (once + 1)))) : 1;
      return Math.min(ceilDiv(blocks, turns), context.maxGroups);
    },
    options: full ? context.wholeSubgroups : {},
  };
}
