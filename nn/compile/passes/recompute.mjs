// Computes again what the backward pass reads, instead of keeping it from the forward pass, where that costs one pass over memory that is there
// anyway: a norm's result from its input, a gated unit's from gate and up. The memory of a graph is what is live at its peak; only results that
// are live there, and that nobody uses for a while, are computed again.
//
// A call that runs again is a copy of the call: the same kernel on the same bits. So every result keeps its bits.

import { glu } from '../../ops/network.mjs';
import { BYTES } from '../../core/layout.mjs';
import { accesses, callInPlaceOf, effective, lower, movedTo } from './calls.mjs';
import { partsOf, whole } from './matcher.mjs';
import { dependences } from './order.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Value} Value */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('../../core/runtime.mjs').Allocation} Allocation */

/**
 * `bytes`: the least of a result that is computed again; below, a dispatch takes longer than what it moves. `share`: the least part of the peak that
 * has to be saved. `operations`: how many of the products' floating-point operations there have to be for each byte that is read or written
 * again. An H100 does some 180 in the time of a byte (600 TFLOP/s, 3.35 TB/s), an H200 125 (4.8 TB/s): 6,000 are 3 and 2 % of a step. Tests lower
 * all three.
 */
export const limits = { bytes: 4 << 20, share: 1 / 50, operations: 6000 };
/** The most bytes that may be read and written for each byte that is saved. A norm of f32 that writes 16 bits moves three. */
const MAX_TRAFFIC = 4;
/** The most calls that run again for one result, such as a norm and the conversion of its result. */
const MAX_CHAIN = 3;

/**
 * How a result is computed again: `chain` are the calls that run again before call `at`; or it is a further result of call `at`
 * (`further`). `traffic`: the bytes that this reads and writes.
 * @typedef {{ at: number, chain: number[], further: boolean, traffic: number }} Again
 */
/**
 * A result to compute again, which nobody uses between call `from` and that.
 * @typedef {{ value: Value, bytes: number, from: number, make: Again }} Candidate
 */

/** The bytes of a value. @param {Value} value */
const bytesOf = ({ layout }) => layout.size * BYTES[layout.dtype];

/** A pass over memory, which depends on nothing but its inputs. @param {Call} call */
const isCheap = ({ op, host }) => !host && (op?.cheap === true || op?.body !== undefined);

/**
 * Whether one kernel computes a product and its gated unit, or the unit's gradient; undefined if the one for a permuted weight failed its test.
 * @param {Call} call @param {Context['kernels']} kernels
 */
function isOneKernel(call, kernels) {
  const own = { ...call };
  try {
    lower(own, kernels);
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
  return own.template?.count === 1;
}

/**
 * Whether a call computes the gradient of a product's gated unit: of all of its rows, which other units may read too.
 * @param {Call} call @param {Call} product
 */
function isGradientOf({ op, options, extra }, { options: own, outputs: [{ allocation, layout }] }) {
  if (op?.name !== 'matmulGluGradient' || !extra || extra.y || options?.activation !== own?.activation) return false;
  const { gateUp } = extra;
  const { size, shape } = gateUp.layout;
  return gateUp.allocation === allocation && whole(gateUp) && size === layout.size && shape.at(-1) === layout.shape.at(-1);
}

/**
 * @param {Call[]} calls @param {Context} context
 * @returns {import('./calls.mjs').Passed} the calls, and how many results are computed again
 */
export function recompute(calls, { isTemporary, isOwn, allocate, kernels }) {
  calls = behindGradients(calls);
  /** The calls that read and that write each allocation, in order. @type {Map<Allocation, { readers: number[], writers: number[] }>} */
  const uses = new Map();
  const usesOf = (/** @type {Allocation} */ allocation) => {
    let own = uses.get(allocation);
    if (!own) uses.set(allocation, (own = { readers: [], writers: [] }));
    return own;
  };
  calls.forEach((call, i) => {
    const { reads, writes } = accesses(call);
    for (const allocation of reads) usesOf(allocation).readers.push(i);
    for (const allocation of writes) usesOf(allocation).writers.push(i);
  });
  /** Bytes that are live at each call. */
  const live = new Float64Array(calls.length);
  for (const [allocation, { readers, writers }] of uses) {
    if (!isOwn(allocation)) continue;
    const first = Math.min(readers[0] ?? Infinity, writers[0] ?? Infinity);
    const last = isTemporary(allocation) ? Math.max(readers.at(-1) ?? 0, writers.at(-1) ?? 0) : calls.length - 1;
    for (let i = first; i <= last; i++) live[i] += allocation.bytes;
  }
  const peakAt = () => live.reduce((peak, bytes, i) => (bytes > live[peak] ? i : peak), 0);

  /** What is computed again, by the call at which it is. @type {Map<number, Candidate[]>} */
  const again = new Map();
  /** Results that are computed again. @type {Set<Allocation>} */
  const split = new Set();
  /** What this reads. @type {Set<Allocation>} */
  const pinned = new Set();

  /** Whether a value is there before call `to` as it was after call `i`, whoever reads it. @param {Value} value @param {number} i @param {number} to */
  const isThere = ({ allocation }, i, to) => {
    const { readers, writers } = usesOf(allocation);
    if (writers.some((writer) => writer >= i && writer < to) || split.has(allocation)) return false;
    return !isOwn(allocation) || !isTemporary(allocation) || (readers.at(-1) ?? -1) >= to || (writers.at(-1) ?? -1) >= to;
  };
  /**
   * The calls that have to run again before call `to` for a result of call `i`, last first; undefined if that takes more than passes over memory.
   * @param {number} i @param {number} to @param {number} [depth] @returns {number[] | undefined}
   */
  const chainOf = (i, to, depth = 1) => {
    const call = calls[i];
    if (!isCheap(call)) return undefined;
    const { inputs, outputs } = effective(call);
    // A call that writes in place has nothing to run on again.
    const pure = outputs.every(({ allocation }) => {
      const { writers } = usesOf(allocation);
      return isTemporary(allocation) && writers.length === 1 && !inputs.some((input) => input.allocation === allocation);
    });
    if (!pure) return undefined;
    const chain = [i];
    for (const input of inputs) {
      if (isThere(input, i + 1, to)) continue;
      const { writers } = usesOf(input.allocation);
      if (depth === MAX_CHAIN || writers.length !== 1 || pinned.has(input.allocation) || writers[0] >= i) return undefined;
      const more = chainOf(writers[0], to, depth + 1);
      if (!more) return undefined;
      chain.push(...more.filter((j) => !chain.includes(j)));
    }
    return chain.length > MAX_CHAIN ? undefined : chain;
  };
  /** The bytes that calls read and write. @param {number[]} chain */
  const trafficOf = (chain) =>
    chain.reduce((sum, i) => {
      const { inputs, outputs } = effective(calls[i]);
      return sum + [...inputs, ...outputs].reduce((bytes, value) => bytes + bytesOf(value), 0);
    }, 0);
  /** How a gated unit that a product has computed is computed again. @param {number} i the product @param {number} to @returns {Again | undefined} */
  const unitOf = (i, to) => {
    const [gateUp] = calls[i].outputs;
    // Its gradient has all that it takes at hand. A product that ends in the unit has an exponential of its own, and so other last bits.
    const one = isOneKernel(calls[i], kernels);
    const by = usesOf(gateUp.allocation).readers.find((j) => isGradientOf(calls[j], calls[i]));
    if (by !== undefined && by < to && isThere(gateUp, i + 1, by)) {
      const both = { ...calls[by], template: undefined, extra: { ...calls[by].extra, y: /** @type {Value} */ (calls[i].extra?.y) } };
      // In two passes the second one reads gate and up again.
      const traffic = gateUp.allocation.bytes / 2 + (one ? 0 : gateUp.allocation.bytes);
      if (isOneKernel(both, kernels) === one) return { at: by, chain: [], further: true, traffic };
    }
    return one || !isThere(gateUp, i + 1, to) ? undefined : { at: to, chain: [i], further: false, traffic: 1.5 * gateUp.allocation.bytes };
  };
  /** The first of the last uses of what call `i` reads. @param {number} i */
  const lastUse = (i) =>
    effective(calls[i]).inputs.reduce((first, { allocation }) => {
      const { readers, writers } = usesOf(allocation);
      return isTemporary(allocation) ? Math.min(first, Math.max(readers.at(-1) ?? 0, writers.at(-1) ?? 0)) : first;
    }, Infinity);
  /**
   * How a result of call `i` is had again after call `after`, for call `to`: right before that, or before its inputs go.
   * @param {number} i @param {Value} value @param {number} after @param {number} to @returns {Again | undefined}
   */
  const makeOf = (i, value, after, to) => {
    if (calls[i].op?.name === 'linearGlu') return value === calls[i].extra?.y ? unitOf(i, to) : undefined;
    for (const at of new Set([to, Math.min(to, lastUse(i))])) {
      const chain = at > after ? chainOf(i, at) : undefined;
      const traffic = chain ? trafficOf(chain) : Infinity;
      if (chain && traffic <= MAX_TRAFFIC * bytesOf(value)) return { at, chain, further: false, traffic };
    }
    return undefined;
  };

  /** All results that could be computed again, the largest first. @type {{ value: Value, i: number, bytes: number, from: number, to: number }[]} */
  const results = [];
  calls.forEach((call, i) => {
    for (const value of effective(call).outputs) {
      const { allocation } = value;
      const { readers, writers } = usesOf(allocation);
      if (allocation.bytes < limits.bytes || !isTemporary(allocation) || writers.length !== 1 || !whole(value)) continue;
      if (!isCheap(call) && call.op?.name !== 'linearGlu') continue;
      const points = [i, ...readers];
      for (let k = 1; k < points.length; k++)
        if (points[k] - points[k - 1] > 1) results.push({ value, i, bytes: allocation.bytes, from: points[k - 1], to: points[k] });
    }
  });
  results.sort((a, b) => b.bytes - a.bytes);

  if (results.length === 0) return { calls, found: 0 };
  const layoutsOf = (/** @type {Value[]} */ values) => values.map(({ layout }) => layout);
  const operations = calls.reduce((sum, { op, attributes, inputs, outputs }) => {
    return sum + (op?.flops?.(layoutsOf(inputs), layoutsOf(outputs), attributes) ?? 0);
  }, 0);
  /** The bytes that may still be read and written again. */
  let left = limits.operations > 0 ? operations / limits.operations : Infinity;
  const before = live[peakAt()];
  for (;;) {
    const peak = peakAt();
    /** What saves the most for what it moves. @type {Candidate | undefined} */
    let found;
    for (const { value, i, bytes, from, to } of results) {
      const { allocation } = value;
      if (from >= peak || to <= peak || split.has(allocation) || pinned.has(allocation)) continue;
      const make = makeOf(i, value, Math.max(peak, from), to);
      if (!make || make.traffic > left || make.at <= peak) continue;
      if (!found || bytes * found.make.traffic > found.bytes * make.traffic) found = { value, bytes, from, make };
    }
    if (!found) break;
    const { value, bytes, from, make } = found;
    const { at, chain } = make;
    left -= make.traffic;
    split.add(value.allocation);
    for (const i of chain) for (const input of effective(calls[i]).inputs) pinned.add(input.allocation);
    for (let i = from + 1; i < at; i++) live[i] -= bytes;
    // What runs again before it is live there too.
    for (const i of chain)
      for (const { allocation } of effective(calls[i]).outputs) if (allocation !== value.allocation) live[at] += allocation.bytes;
    again.set(at, [...(again.get(at) ?? []), found]);
  }
  if (before - live[peakAt()] < limits.share * before) return { calls, found: 0 };
  return { calls: withAgain(calls, again, allocate), found: split.size };
}

/** The most calls behind which one is moved, since its operands stay alive until then. */
const NEAR = 4;

/**
 * The calls, with readers of a gated unit's result right behind the unit's gradient, which can compute the result again, where they stood before it.
 * @param {Call[]} calls
 */
function behindGradients(calls) {
  const gradients = calls.flatMap(({ op }, i) => (op?.name === 'matmulGluGradient' ? [i] : []));
  if (gradients.length === 0) return calls;
  const units = new Map(
    calls.flatMap(({ op, outputs, extra }) => (op?.name === 'linearGlu' ? [[outputs[0].allocation, extra?.y.allocation]] : [])),
  );
  const before = dependences(calls);
  /** The readers to move, by gradient. @type {Map<number, number[]>} */
  const moved = new Map();
  /** A call is moved once, and no gradient is. @type {Set<number>} */
  const taken = new Set();
  for (const g of gradients) {
    const unit = units.get(/** @type {Allocation} */ (calls[g].extra?.gateUp.allocation));
    const near = Array.from({ length: Math.min(NEAR, g) }, (_, d) => g - 1 - d).reverse();
    const readers = near.filter((i) => {
      const isReader = unit !== undefined && !calls[i].host && accesses(calls[i]).reads.includes(unit);
      return isReader && !taken.has(i) && !gradients.includes(i) && !before.slice(i + 1, g + 1).some((earlier) => earlier.has(i));
    });
    for (const i of readers) taken.add(i);
    if (readers.length > 0) moved.set(g, readers);
  }
  return calls.flatMap((call, i) => (taken.has(i) ? [] : [call, ...(moved.get(i) ?? []).map((k) => calls[k])]));
}

/**
 * The calls with those that run again.
 * @param {Call[]} calls @param {Map<number, Candidate[]>} again by the call at which it is @param {Context['allocate']} allocate
 */
function withAgain(calls, again, allocate) {
  /** The memory that a call from here on reads instead. @type {Map<Allocation, Allocation>} */
  const renamed = new Map();
  return calls.flatMap((call, at) => {
    /** @type {Call[]} */
    const list = [];
    let own = call;
    for (const { value, make } of again.get(at) ?? []) {
      /** New memory of what runs again. @type {Map<Allocation, Allocation>} */
      const made = new Map();
      for (const i of [...make.chain].sort((a, b) => a - b)) list.push({ ...copyOf(calls[i], made, allocate), late: true });
      if (make.further) {
        const y = { ...value, allocation: allocate(value.allocation.bytes) };
        made.set(value.allocation, y.allocation);
        own = { ...own, template: undefined, extra: { ...own.extra, y } };
      }
      renamed.set(value.allocation, /** @type {Allocation} */ (made.get(value.allocation)));
    }
    return [...list, movedTo(own, renamed)];
  });
}

/**
 * A copy of a call that writes new memory.
 * @param {Call} call @param {Map<Allocation, Allocation>} made memory by that of the first run; the copy's is added @param {Context['allocate']} allocate
 * @returns {Call}
 */
function copyOf(call, made, allocate) {
  const { op, attributes, kernel, options, extra, outputs } = call;
  if (op?.name === 'linearGlu') {
    const { activation } = /** @type {Record<string, unknown>} */ (options);
    const y = /** @type {Value} */ (extra?.y);
    const own = { ...y, allocation: allocate(y.allocation.bytes) };
    made.set(y.allocation, own.allocation);
    const unit = { op: glu, attributes: { activation }, inputs: outputs.slice(0, 1), outputs: [own], parts: partsOf(call).slice(-1) };
    return callInPlaceOf(call, unit);
  }
  for (const { allocation } of effective(call).outputs) made.set(allocation, allocate(allocation.bytes));
  return movedTo({ ...call, attributes, kernel }, made);
}
