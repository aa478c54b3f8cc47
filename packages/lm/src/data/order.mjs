// The order in which training takes its windows: a permutation of an epoch's windows by its number alone, so that nothing but the
// step is needed to go on, and no list of windows lies in memory.

const ROUNDS = 6;

/** Mixes 32 bits: the finalizer of MurmurHash3 (Appleby, 2011). @param {number} x */
function mix(x) {
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

/**
 * A permutation of 0 … count − 1, computed one element at a time: a Feistel network over the next even number of bits (Luby and
 * Rackoff, 1988), applied again while it leaves the range ("cycle walking": Black and Rogaway, 2002), at most four times on average.
 * @param {number} count of elements, from 1 to 2^32
 * @param {number} seed @param {number} epoch each pair has its own permutation
 * @returns {(index: number) => number}
 */
export function permutation(count, seed, epoch) {
  const bits = Math.max(1, Math.ceil(Math.log2(count) / 2));
  const half = 2 ** bits;
  const keys = Uint32Array.from({ length: ROUNDS }, (_, round) =>
    mix(mix(mix(seed >>> 0) ^ (epoch >>> 0)) + Math.imul(round + 1, 0x9e3779b9)),
  );
  return (index) => {
    let at = index;
    do {
      let left = Math.floor(at / half);
      let right = at % half;
      for (const key of keys) [left, right] = [right, (left ^ mix(right ^ key)) & (half - 1)];
      at = (left >>> 0) * half + (right >>> 0);
    } while (at >= count);
    return at;
  };
}

/**
 * The windows of one step of one rank: each window is taken once an epoch by all ranks together, and epochs follow each other
 * without a gap, in orders of their own.
 * @param {{ windows: number, seed: number, step: number, batch: number, rank?: number, world?: number }} options `batch`: windows of a
 *   step and rank
 * @returns {number[]} [batch]
 */
export function windowsOfStep({ windows, seed, step, batch, rank = 0, world = 1 }) {
  const first = (step * world + rank) * batch;
  /** @type {Map<number, (index: number) => number>} */
  const orders = new Map();
  return Array.from({ length: batch }, (_, i) => {
    const epoch = Math.floor((first + i) / windows);
    const order = orders.get(epoch) ?? permutation(windows, seed, epoch);
    orders.set(epoch, order);
    return order((first + i) % windows);
  });
}
