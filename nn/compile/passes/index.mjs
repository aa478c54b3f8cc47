// The table of passes over the calls of a trace, in the order in which they run. Each can be left out. Results are then the same, except for
// roundings to 16 bits that fusing drops, and the order of sums.

import { lower } from './calls.mjs';
import { constants } from './constants.mjs';
import { dead } from './dead.mjs';
import { fuse } from './fuse.mjs';
import { gradientMemory } from './gradient-memory.mjs';
import { group } from './group.mjs';
import { identities } from './identities.mjs';
import { keep } from './keep.mjs';
import { match } from './match.mjs';
import { norms } from './norms.mjs';
import { recompute } from './recompute.mjs';
import { schedule } from './schedule.mjs';
import { shared } from './shared.mjs';
import { shuffle } from './shuffle.mjs';
import { vectors } from './vectors.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('./calls.mjs').Passed} Passed */

/** @typedef {'constants' | 'identities' | 'shared' | 'vectors' | 'match' | 'norms' | 'dead' | 'keep' | 'fuse' | 'group' | 'shuffle' | 'gradients' | 'recompute' | 'schedule'} PassName */

/**
 * A pass.
 * @typedef {object} Pass
 * @property {PassName} name
 * @property {string} does what it does, in a sentence
 * @property {boolean} exact whether every result keeps its bits
 * @property {string} [finds] what it counts, as `explain()` names it; left out if the pass returns several names itself, or none
 * @property {(calls: Call[], context: Context) => Passed} run may modify the calls
 */

/** Makes the dispatches of all calls. @param {Call[]} calls modified @param {Context} context */
function lowered(calls, { kernels }) {
  for (const call of calls) lower(call, kernels);
  return calls;
}

/** @type {readonly Pass[]} */
const TABLE = [
  {
    name: 'constants',
    does: 'Computes results that are one number everywhere, and makes them constants of the kernels that read them.',
    exact: true,
    finds: 'constants folded',
    run: constants,
  },
  {
    name: 'identities',
    does: 'Leaves out multiplications by 1, and conversions of widened values back to their type.',
    exact: true,
    finds: 'identities left out',
    run: identities,
  },
  {
    name: 'shared',
    does: 'Calls once what several calls compute of the same values.',
    exact: true,
    finds: 'results shared',
    run: shared,
  },
  {
    name: 'vectors',
    does: 'Computes products of a matrix and a vector as sums of its rows or columns, which fuse with their neighbours.',
    exact: false,
    finds: 'products with a vector as sums',
    run: vectors,
  },
  {
    name: 'match',
    does: 'Gives one library kernel what several calls do: a product and its residual, a norm and its 16-bit copy.',
    exact: false,
    run: match,
  },
  {
    name: 'norms',
    does: "Sums the gradients of several norms' weights with one kernel.",
    exact: true,
    finds: "norms' weight gradients summed together",
    run: norms,
  },
  {
    name: 'dead',
    does: 'Leaves out calls whose results nobody reads.',
    exact: true,
    finds: 'results that nobody reads',
    run: dead,
  },
  {
    name: 'keep',
    does: 'Keeps between calls what depends only on tensors that no call changes, such as weights in another type or order.',
    exact: true,
    finds: 'results kept between calls',
    run: keep,
  },
  {
    name: 'fuse',
    does: 'Generates one kernel for several elementwise operations and the reductions of their results.',
    exact: false,
    finds: 'operations fused',
    run: fuse,
  },
  {
    name: 'group',
    does: 'Computes several weight gradients with one launch, where one by itself does not fill the device.',
    exact: true,
    finds: 'weight gradients computed together',
    run: group,
  },
  {
    name: 'shuffle',
    does: "Has products read permuted copies of 16-bit weights, where the device's kernel for those is faster.",
    exact: true,
    finds: 'products by permuted weights',
    run: shuffle,
  },
  {
    name: 'gradients',
    does: 'Keeps gradients that the function makes and clears where activations were, instead of in memory of their own.',
    exact: true,
    finds: 'allocations of gradients shared',
    run: gradientMemory,
  },
  {
    name: 'recompute',
    does: 'Computes norms, gated units and elementwise results again in the backward pass, where that lowers the peak of memory.',
    exact: true,
    finds: 'results computed again',
    run: recompute,
  },
  {
    name: 'schedule',
    does: 'Orders the calls so that fewer barriers stand between them.',
    exact: true,
    // It needs dispatches: what a call reads and writes is known once its kernel is chosen.
    run: (calls, context) => ({ calls: schedule(lowered(calls, context)), found: 0 }),
  },
];

/** The names of all passes, in order. @type {readonly PassName[]} */
export const PASSES = Object.freeze(TABLE.map(({ name }) => name));
/** The names of the passes that keep every bit. @type {readonly PassName[]} */
export const EXACT = Object.freeze(TABLE.flatMap(({ name, exact }) => (exact ? [name] : [])));

/**
 * Runs passes, in the order of the table.
 * @param {Call[]} calls modified @param {Context} context @param {readonly PassName[]} names of the passes to run
 * @returns {{ calls: Call[], found: Record<string, number> }} the calls with templates, and how often the passes found what
 */
export function runPasses(calls, context, names) {
  /** @type {Record<string, number>} */
  const all = {};
  for (const { name, finds = '', run } of TABLE) {
    if (!names.includes(name)) continue;
    const { calls: next, found } = run(calls, context);
    calls = next;
    const counts = typeof found === 'number' ? { [finds]: found } : found;
    for (const [what, count] of Object.entries(counts)) if (count > 0) all[what] = count;
  }
  return { calls: lowered(calls, context), found: all };
}
