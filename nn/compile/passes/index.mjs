// Passes over the calls of a trace, each of which can be left out: the results are the same, but for roundings to 16 bits that
// fusing drops, and the order of sums.

import { accesses, lower } from './calls.mjs';
import { constants } from './constants.mjs';
import { fuse } from './fuse.mjs';
import { group } from './group.mjs';
import { match } from './match.mjs';
import { norms } from './norms.mjs';
import { schedule } from './schedule.mjs';
import { shared } from './shared.mjs';
import { shuffle } from './shuffle.mjs';
import { vectors } from './vectors.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('../../core/runtime.mjs').Allocation} Allocation */

/** @typedef {'constants' | 'shared' | 'vectors' | 'match' | 'norms' | 'dead' | 'fuse' | 'group' | 'shuffle' | 'schedule'} PassName */

/** In their order. @type {readonly PassName[]} */
export const PASSES = Object.freeze(['constants', 'shared', 'vectors', 'match', 'norms', 'dead', 'fuse', 'group', 'shuffle', 'schedule']);

/** Without calls whose results nobody reads. @param {Call[]} calls @param {Context} context */
function dead(calls, { isTemporary }) {
  /** @type {Set<Allocation>} */
  const needed = new Set();
  const kept = [];
  for (let i = calls.length - 1; i >= 0; i--) {
    const { reads, writes } = accesses(calls[i]);
    if (writes.every((allocation) => isTemporary(allocation) && !needed.has(allocation))) continue;
    for (const allocation of reads) needed.add(allocation);
    for (const allocation of writes) needed.add(allocation);
    kept.push(calls[i]);
  }
  return kept.reverse();
}

/**
 * @param {Call[]} calls changed @param {Context} context @param {readonly PassName[]} names
 * @returns {{ calls: Call[], found: Record<string, number> }} with templates
 */
export function runPasses(calls, context, names) {
  /** @type {Record<string, number>} */
  let found = {};
  if (names.includes('constants')) {
    const result = constants(calls, context);
    calls = result.calls;
    if (result.folded > 0) found['constants folded'] = result.folded;
  }
  if (names.includes('shared')) {
    const { length } = calls;
    calls = shared(calls, context);
    if (length > calls.length) found['results shared'] = length - calls.length;
  }
  if (names.includes('vectors')) {
    const result = vectors(calls, context);
    calls = result.calls;
    if (result.replaced > 0) found['products with a vector as sums'] = result.replaced;
  }
  if (names.includes('match')) {
    const result = match(calls, context);
    calls = result.calls;
    found = { ...found, ...result.found };
  }
  if (names.includes('norms')) {
    const result = norms(calls, context);
    calls = result.calls;
    if (result.merged > 0) found["norms' weight gradients summed together"] = result.merged;
  }
  if (names.includes('dead')) {
    const { length } = calls;
    calls = dead(calls, context);
    if (length > calls.length) found['results that nobody reads'] = length - calls.length;
  }
  if (names.includes('fuse')) {
    const result = fuse(calls, context);
    calls = result.calls;
    if (result.fused > 0) found['operations fused'] = result.fused;
  }
  if (names.includes('group')) {
    const result = group(calls, context);
    calls = result.calls;
    if (result.grouped > 0) found['weight gradients computed together'] = result.grouped;
  }
  if (names.includes('shuffle')) {
    const products = shuffle(calls, context);
    if (products > 0) found['products by permuted weights'] = products;
  }
  for (const call of calls) lower(call, context.kernels);
  if (names.includes('schedule')) calls = schedule(calls);
  return { calls, found };
}
