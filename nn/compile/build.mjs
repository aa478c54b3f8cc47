// From the calls of a trace to what a graph submits: passes, memory for results by how long each lives, and a packed list.

import { Recorder } from '../../kernels/base.mjs';
import { stepsOf } from './explain.mjs';
import { planMemory } from '../core/memory.mjs';
import { HalfCopy } from '../optim/half-copy.mjs';
import { accesses } from './passes/calls.mjs';
import { runPasses } from './passes/index.mjs';
import { runtime } from '../core/runtime.mjs';

/** @typedef {import('../core/runtime.mjs').Allocation} Allocation */
/** @typedef {import('./passes/calls.mjs').Call} Call */
/** @typedef {import('./passes/index.mjs').PassName} PassName */
/** @typedef {import('./recording.mjs').Recording} Recording */

/** A result of a trace: its bytes, and the first and the last call that use it. @typedef {{ bytes: number, first: number, last: number }} Life */

/** Memory of a graph: what it shares with others, and that of the call's results, which is its own. @typedef {{ shared: Allocation[], own: Allocation[] }} GraphMemory */

/**
 * What is built of a trace.
 * @typedef {object} Built
 * @property {ArrayBuffer} packed the dispatches
 * @property {number} dispatches how many
 * @property {import('./explain.mjs').Step[]} steps what they do
 * @property {Record<string, number>} found what passes found, and how often
 * @property {{ unplanned: number, planned: number }} bytes of all results by themselves, and as they share memory
 * @property {GraphMemory} memory to be given back by `freeMemory`
 */

/**
 * @param {Recording} recording @param {Set<Allocation>} outputs memory of what the function returns
 * @param {readonly PassName[]} passes
 * @returns {Built}
 */
export function build(recording, outputs, passes) {
  const isOwn = (/** @type {Allocation} */ allocation) => recording.owns(allocation);
  const { calls, found } = runPasses(
    recording.list,
    {
      isOwn,
      isTemporary: (allocation) => isOwn(allocation) && !outputs.has(allocation),
      allocate: (bytes) => recording.allocate(bytes),
      kernels: runtime().kernels,
      halves: new Map([...recording.copies].flatMap((copy) => (copy instanceof HalfCopy ? [[copy.storage.allocation, copy]] : []))),
      keep: (copy) => recording.keep(copy),
    },
    passes,
  );
  const lives = livesOf(calls, outputs, isOwn);
  const { slots, of } = planMemory([...lives.values()]);
  const memory = takeMemory([...lives.keys()], slots, of, outputs);
  const recorder = new Recorder(65536);
  for (const { template, allocations } of calls) {
    template?.appendTo(
      recorder,
      allocations.map(({ handle }) => handle),
    );
  }
  const { packed, count } = recorder.finish();
  const sum = (/** @type {number[]} */ sizes) => sizes.reduce((a, b) => a + b, 0);
  const bytes = { unplanned: sum(Array.from(lives.values(), (life) => life.bytes)), planned: sum(slots) };
  return { packed, dispatches: count, steps: stepsOf(calls), found, bytes, memory };
}

/**
 * How long each result of the trace lives, in the order of first uses.
 * @param {Call[]} calls @param {Set<Allocation>} outputs @param {(allocation: Allocation) => boolean} isOwn
 * @returns {Map<Allocation, Life>}
 */
function livesOf(calls, outputs, isOwn) {
  /** @type {Map<Allocation, Life>} */
  const lives = new Map();
  calls.forEach((call, i) => {
    const { reads, writes } = accesses(call);
    for (const allocation of [...reads, ...writes]) {
      if (!isOwn(allocation)) continue;
      const life = lives.get(allocation);
      if (life) life.last = i;
      else lives.set(allocation, { bytes: allocation.bytes, first: i, last: i });
    }
  });
  for (const allocation of outputs) {
    if (!isOwn(allocation)) continue;
    // A result that no dispatch wrote has memory as well.
    lives.set(allocation, { bytes: allocation.bytes, first: lives.get(allocation)?.first ?? 0, last: Infinity });
  }
  return lives;
}

/**
 * Memory for planned slots, all or nothing: each result gets the handle of its slot's. Slots of outputs are the graph's own, since
 * what is in them is read after the call; others are shared among graphs.
 * @param {Allocation[]} results @param {number[]} slots bytes of each @param {number[]} of slots of the results
 * @param {Set<Allocation>} outputs
 * @returns {GraphMemory}
 */
function takeMemory(results, slots, of, outputs) {
  const device = runtime();
  const kept = new Set(results.flatMap((allocation, i) => (outputs.has(allocation) ? [of[i]] : [])));
  const others = slots.map((_, s) => s).filter((s) => !kept.has(s));
  /** @type {Allocation[]} */
  const bySlot = [];
  /** @type {GraphMemory} */
  const memory = { shared: device.slots.take(others.map((s) => slots[s])), own: [] };
  others.forEach((s, i) => {
    bySlot[s] = memory.shared[i];
  });
  try {
    for (const s of kept) {
      bySlot[s] = device.allocate(slots[s]);
      memory.own.push(bySlot[s]);
      device.name(bySlot[s], 'results');
    }
  } catch (error) {
    freeMemory(device, memory);
    throw error;
  }
  results.forEach((allocation, i) => {
    allocation.handle = bySlot[of[i]].handle;
  });
  return memory;
}

/** Gives back the memory of a graph. @param {import('../core/runtime.mjs').Runtime} device that it is of @param {GraphMemory} memory emptied */
export function freeMemory(device, { shared, own }) {
  device.slots.giveBack(shared.splice(0));
  for (const allocation of own.splice(0)) device.release(allocation);
}
