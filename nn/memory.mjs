// Which intermediate results of a recording can lie in the same memory. Pure.

/** Memory is taken for something smaller only where it is at most this much larger, but for small results. */
const FIT = 1.125;
const SMALL = 65536;

/**
 * Slots for values that live from one dispatch to another. Two values share a slot only if one is dead before the other is
 * first written; best fit, in the order of first use.
 * @param {{ bytes: number, first: number, last: number }[]} values `first` and `last`: dispatches that use it, inclusive
 * @returns {{ slots: number[], of: number[] }} bytes of each slot, and each value's slot
 */
export function planMemory(values) {
  /** @type {{ bytes: number, busyUntil: number }[]} */
  const slots = [];
  const of = new Array(values.length).fill(-1);
  const order = values.map((_, i) => i).sort((a, b) => values[a].first - values[b].first || a - b);
  for (const i of order) {
    const { bytes, first, last } = values[i];
    let best = -1;
    let waste = Infinity;
    for (let s = 0; s < slots.length; s++) {
      if (slots[s].busyUntil >= first) continue;
      const [small, large] = [Math.min(bytes, slots[s].bytes), Math.max(bytes, slots[s].bytes)];
      if (large > FIT * small && large > SMALL) continue;
      if (large - small < waste) [best, waste] = [s, large - small];
    }
    if (best < 0) best = slots.push({ bytes: 0, busyUntil: -1 }) - 1;
    slots[best].bytes = Math.max(slots[best].bytes, bytes);
    slots[best].busyUntil = last;
    of[i] = best;
  }
  return { slots: slots.map(({ bytes }) => bytes), of };
}
