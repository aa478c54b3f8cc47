// Turns the calls of a trace into what a graph submits: runs the passes, plans memory by the lifetimes of results, and packs the dispatches.

import { Recorder } from '../../kernels/base.mjs';
import { stepsOf } from './explain.mjs';
import { planMemory } from '../core/memory.mjs';
import { HalfCopy } from '../optim/half-copy.mjs';
import { GradientMemory, LazyMemory } from '../optim/lazy-memory.mjs';
import { accesses, lower } from './passes/calls.mjs';
import { runPasses } from './passes/index.mjs';
import { runtime } from '../core/runtime.mjs';
import { tuneProducts } from './tune.mjs';

/** @typedef {import('../core/runtime.mjs').Allocation} Allocation */
/** @typedef {import('./passes/calls.mjs').Call} Call */
/** @typedef {import('./passes/index.mjs').PassName} PassName */
/** @typedef {import('./recording.mjs').Recording} Recording */
/** @typedef {import('../optim/half-copy.mjs').ParameterCopy} ParameterCopy */
/** @typedef {import('../core/storage.mjs').Storage} Storage */

/** The lifetime of a result: its bytes, and the first and last call that uses it. @typedef {{ bytes: number, first: number, last: number }} Life */

/**
 * Memory of a graph: `shared` with other graphs for intermediate results, `own` for the results of the function.
 * @typedef {{ shared: Allocation[], own: Allocation[] }} GraphMemory
 */

/**
 * Dispatches that are submitted together, and what the host calls after them.
 * @typedef {{ packed: ArrayBuffer, dispatches: number, after?: () => void }} Part
 */

/**
 * What a graph is made of.
 * @typedef {object} Built
 * @property {Part[]} parts one, unless the host makes calls in between
 * @property {import('./explain.mjs').Step[]} steps what they do
 * @property {Record<string, number>} found what the passes found, and how often
 * @property {{ unplanned: number, planned: number }} bytes of all results: each in its own memory, and with memory shared
 * @property {GraphMemory} memory free it with `freeMemory`
 * @property {Set<ParameterCopy>} abandoned copies of parameters that no call reads or leaves up to date
 * @property {Once | undefined} once what has to be computed before the first call
 */

/**
 * Dispatches of which the results are kept between calls: they run before the first one, and where a source has changed.
 * @typedef {{ packed: ArrayBuffer, dispatches: number, sources: Storage[] }} Once
 */

/**
 * Builds a graph from a recording.
 * @param {Recording} recording @param {Storage[]} inputs memory of the arguments, which change from call to call
 * @param {Set<Allocation>} outputs memory of what the function returns
 * @param {readonly PassName[]} passes @param {boolean | undefined} tune the option of `compile`
 * @returns {Built}
 */
export function build(recording, inputs, outputs, passes, tune) {
  const isOwn = (/** @type {Allocation} */ allocation) => recording.owns(allocation);
  // Also by way of another storage: of sharded parameters, several share memory.
  const written = new Set(recording.list.flatMap((call) => accesses(call).writes));
  const steady = new Map(
    [...recording.outside.keys()].flatMap((storage) =>
      recording.changed(storage) || inputs.includes(storage) || written.has(storage.allocation)
        ? []
        : [/** @type {const} */ ([storage.allocation, storage])],
    ),
  );
  /** @type {Call[]} */
  const once = [];
  /** @type {Set<ParameterCopy>} */
  const abandoned = new Set();
  const halves = new Map([...recording.copies].flatMap((copy) => (copy instanceof HalfCopy ? [[copy.storage.allocation, copy]] : [])));
  const gathered = recording.list.flatMap(({ permuted, allocations }) => (permuted ? [allocations[1]] : []));
  tuneProducts(recording, passes.includes('shuffle') ? new Set([...halves.keys(), ...gathered]) : new Set(), tune);
  const { calls, found } = runPasses(
    recording.list,
    {
      isOwn,
      isTemporary: (allocation) => isOwn(allocation) && !outputs.has(allocation),
      // Where gradients are kept for an optimizer, parameters change from call to call.
      isSteady: (allocation) => recording.guard.gradients.size === 0 && steady.has(allocation),
      isCleared: (allocation) => isCleared(allocation, recording) && !outputs.has(allocation),
      once,
      allocate: (bytes) => recording.allocate(bytes),
      kernels: runtime().kernels,
      halves,
      keep: (copy) => recording.keep(copy),
      abandon: (copy) => void abandoned.add(copy),
    },
    passes,
  );
  for (const call of once) lower(call, runtime().kernels);
  for (const { allocations } of [...once, ...calls]) for (const each of allocations) if (each instanceof LazyMemory) each.reserve();
  const kept = new Set(once.flatMap((call) => accesses(call).writes));
  const lives = livesOf([...once, ...calls], new Set([...outputs, ...kept]), isOwn);
  const { slots, of } = planMemory([...lives.values()]);
  const memory = takeMemory([...lives.keys()], slots, of, outputs, kept);
  const parts = packedOf(calls);
  const sum = (/** @type {number[]} */ sizes) => sizes.reduce((a, b) => a + b, 0);
  const bytes = { unplanned: sum(Array.from(lives.values(), (life) => life.bytes)), planned: sum(slots) };
  const built = { parts, steps: stepsOf(calls), found, bytes, memory, abandoned };
  if (once.length === 0) return { ...built, once: undefined };
  const [before] = packedOf(once);
  const sources = new Set(once.flatMap((call) => accesses(call).reads.flatMap((allocation) => steady.get(allocation) ?? [])));
  return { ...built, once: { packed: before.packed, dispatches: before.dispatches, sources: [...sources] } };
}

/**
 * Whether memory holds gradients that are undefined before and after a recording. Between parameters there is padding, which has to stay 0: only
 * memory without any can be shared.
 * @param {Allocation} allocation @param {Recording} recording
 */
function isCleared(allocation, { guard: { gradients } }) {
  if (!(allocation instanceof GradientMemory)) return false;
  const { bucket } = allocation;
  const isUnset = bucket.parameters.every((p) => gradients.has(p) && gradients.get(p) === undefined && p.grad === undefined);
  return isUnset && bucket.gaps().length === 0;
}

/** The dispatches of lowered calls, in memory that has been allocated. @param {Call[]} calls @returns {Part[]} */
function packedOf(calls) {
  const recorder = new Recorder(65536);
  /** @type {Part[]} */
  const parts = [];
  const end = (/** @type {Part['after']} */ after) => {
    const { packed, count } = recorder.finish();
    recorder.reset();
    parts.push({ packed, dispatches: count, after });
  };
  for (const { template, allocations, host } of calls) {
    const handles = allocations.map(({ handle }) => handle);
    template?.appendTo(recorder, handles);
    if (host) end(() => host(handles));
  }
  end(undefined);
  return parts;
}

/**
 * The lifetime of each result of the trace, in the order of first use.
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
    // A returned result needs memory even if no dispatch writes it.
    lives.set(allocation, { bytes: allocation.bytes, first: lives.get(allocation)?.first ?? 0, last: Infinity });
  }
  return lives;
}

/**
 * Allocates the planned slots, and gives each result the handle of its slot. Slots of outputs belong to the graph alone, since they are read
 * after the call; all others are shared between graphs. If it throws, nothing is allocated.
 * @param {Allocation[]} results @param {number[]} slots bytes of each @param {number[]} of slots of the results
 * @param {Set<Allocation>} outputs @param {Set<Allocation>} kept results that are kept between calls
 * @returns {GraphMemory}
 */
function takeMemory(results, slots, of, outputs, kept) {
  const device = runtime();
  const slotsOf = (/** @type {Set<Allocation>} */ list) =>
    new Set(results.flatMap((allocation, i) => (list.has(allocation) ? [of[i]] : [])));
  const named = /** @type {const} */ ([
    [slotsOf(outputs), 'results'],
    [slotsOf(kept), 'kept results'],
  ]);
  const others = slots.map((_, s) => s).filter((s) => named.every(([own]) => !own.has(s)));
  /** @type {Allocation[]} */
  const bySlot = [];
  /** @type {GraphMemory} */
  const memory = { shared: device.slots.take(others.map((s) => slots[s])), own: [] };
  others.forEach((s, i) => {
    bySlot[s] = memory.shared[i];
  });
  try {
    for (const [own, name] of named) {
      for (const s of own) {
        bySlot[s] = device.allocate(slots[s]);
        memory.own.push(bySlot[s]);
        device.name(bySlot[s], name);
      }
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

/** Frees the memory of a graph. @param {import('../core/runtime.mjs').Runtime} device @param {GraphMemory} memory emptied */
export function freeMemory(device, { shared, own }) {
  device.slots.giveBack(shared.splice(0));
  for (const allocation of own.splice(0)) device.release(allocation);
}
