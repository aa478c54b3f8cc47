// The order in which training reads windows: a pseudorandom permutation of each epoch's windows that depends only on the seed and the
// epoch's number. A run can resume from its step alone, and no list of windows is in memory.

const ROUNDS = 6;

/** Mixes 32 bits: the finalizer of MurmurHash3 (Appleby, 2011). @param {number} x */
function mix(x) {
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

/**
 * A permutation of 0 … count − 1, computed one element at a time. It is a Feistel network over an even number of bits (Luby and Rackoff
 * 1988), applied again while the result is out of range ("cycle walking", Black and Rogaway 2002): fewer than four times on average.
 * @param {number} count number of elements, from 1 to 2^32
 * @param {number} seed @param {number} epoch integers; each pair gives another permutation
 * @returns {(index: number) => number} maps an index to its image
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
 * The windows that one rank reads in one step. In each epoch all ranks together read every window once, in an order of its own. A step may
 * span the end of an epoch.
 * @param {{ windows: number, seed: number, step: number, batch: number, rank?: number, world?: number }} options `windows`: number of
 *   windows of the dataset; `step`: from 0; `batch`: windows per step and rank; `rank`: 0 when left out; `world`: number of ranks, 1 when
 *   left out
 * @returns {number[]} [batch], indices of windows. The lists of ranks 0 to world − 1, one after the other, are that of one rank with a batch of
 *   `world · batch`: the number of ranks does not change what a step reads
 * @throws {RangeError} for a number that is not an integer in its range
 */
export function windowsOfStep({ windows, seed, step, batch, rank = 0, world = 1 }) {
  for (const [name, value, least] of /** @type {[string, number, number][]} */ ([
    ['windows', windows, 1],
    ['seed', seed, -Infinity],
    ['step', step, 0],
    ['batch', batch, 1],
    ['world', world, 1],
    ['rank', rank, 0],
  ])) {
    if (!(Number.isSafeInteger(value) && value >= least))
      throw new RangeError(`${name} is an integer${least > -Infinity ? ` of at least ${least}` : ''}, got ${value}`);
  }
  if (rank >= world) throw new RangeError(`rank ${rank}: there are ${world} ranks`);
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
