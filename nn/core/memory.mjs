// Memory planning for compiled functions: intermediate results that are not live at the same time share a slot.

/** What is read after the last dispatch takes a slot that is at most this many times larger: other graphs cannot have the slot. */
const FIT = 1.125;

/** How many of some numbers, in ascending order, are at most a limit. @param {number[]} numbers @param {number} limit */
function placeOf(numbers, limit) {
  let [from, to] = [0, numbers.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (numbers[middle] <= limit) from = middle + 1;
    else to = middle;
  }
  return from;
}

/**
 * How many calls a slot's values leave free beside a further one, up to the nearer of the two before and after it; undefined if one of them is live
 * between its uses.
 * @param {{ firsts: number[], lasts: number[] }} slot @param {number} first @param {number} last
 */
function gapOf({ firsts, lasts }, first, last) {
  const next = placeOf(firsts, last);
  const before = next === 0 ? Infinity : first - lasts[next - 1];
  return before <= 0 ? undefined : Math.min(before, next < firsts.length ? firsts[next] - last : Infinity);
}

/**
 * Assigns slots to values, the largest first, so that smaller ones go where a larger one leaves a slot for a while ("greedy by size", Pisarchyk &
 * Lee 2020, section 4). Two values share a slot only if the first is dead before the second is written. Pure.
 * @param {{ bytes: number, first: number, last: number }[]} values `first` and `last`: the first and last dispatch that uses it
 * @returns {{ slots: number[], of: number[] }} the bytes of each slot, and the slot of each value
 */
export function planMemory(values) {
  /** Slots, the largest first, each with its values' uses in order. @type {{ bytes: number, firsts: number[], lasts: number[] }[]} */
  const slots = [];
  const of = new Array(values.length).fill(-1);
  const order = values.map((_, i) => i).sort((a, b) => values[b].bytes - values[a].bytes || values[a].first - values[b].first || a - b);
  for (const i of order) {
    const { bytes, first, last } = values[i];
    // Of the smallest slots that are free, as all are large enough, the one whose other values are nearest in time.
    let [s, nearest] = [-1, Infinity];
    for (let k = slots.length - 1; k >= 0 && (s < 0 || slots[k].bytes === slots[s].bytes); k--) {
      const gap = last < Infinity || slots[k].bytes <= FIT * bytes ? gapOf(slots[k], first, last) : undefined;
      if (gap !== undefined && (s < 0 || gap < nearest)) [s, nearest] = [k, gap];
    }
    if (s < 0) s = slots.push({ bytes, firsts: [], lasts: [] }) - 1;
    const { firsts, lasts } = slots[s];
    const place = placeOf(firsts, last);
    firsts.splice(place, 0, first);
    lasts.splice(place, 0, last);
    of[i] = s;
  }
  return { slots: slots.map(({ bytes }) => bytes), of };
}

/** @typedef {import('./runtime.mjs').Allocation} Allocation */

/** Memory for intermediate results that graphs share: graphs run one after another, and none reads what another left there. */
export class SharedSlots {
  /** @param {(bytes: number) => Allocation} allocate @param {(allocation: Allocation) => void} release */
  constructor(allocate, release) {
    this.allocate = allocate;
    this.release = release;
    /** How many graphs use each allocation. @type {Map<Allocation, number>} */
    this.users = new Map();
  }

  /**
   * Takes one allocation for each slot of a graph: the smallest existing one that is large enough, or a new one. If it throws, nothing is
   * taken. A new allocation may free graphs that nobody holds, which return their slots meanwhile.
   * @param {number[]} sizes in bytes
   * @returns {Allocation[]}
   */
  take(sizes) {
    /** @type {Allocation[]} */
    const taken = new Array(sizes.length);
    /** @type {Set<Allocation>} */
    const own = new Set();
    try {
      // Largest first, so that small slots do not take large allocations that a later slot needs.
      for (const i of sizes.map((_, i) => i).sort((a, b) => sizes[b] - sizes[a])) {
        let best;
        for (const slot of this.users.keys()) {
          if (!own.has(slot) && slot.bytes >= sizes[i] && (!best || slot.bytes < best.bytes)) best = slot;
        }
        taken[i] = best ?? this.allocate(sizes[i]);
        own.add(taken[i]);
        // Counted at once: the next allocation may free the only graph that has used this slot so far.
        this.users.set(taken[i], (this.users.get(taken[i]) ?? 0) + 1);
      }
    } catch (error) {
      this.giveBack([...own]);
      throw error;
    }
    return taken;
  }

  /** Returns what a graph took; an allocation is freed when its last user returns it. @param {Allocation[]} slots */
  giveBack(slots) {
    for (const slot of slots) {
      const users = /** @type {number} */ (this.users.get(slot)) - 1;
      if (users > 0) this.users.set(slot, users);
      else {
        this.users.delete(slot);
        this.release(slot);
      }
    }
  }
}
