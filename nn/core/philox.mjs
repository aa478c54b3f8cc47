// Philox 4x32-10 (Salmon et al. 2011): random words from a counter and a key, the same on the host and on the device. Pure.

/** The upper 32 bits of the 64-bit product of two words. @param {number} x @param {number} y */
function upperHalf(x, y) {
  const [xl, xh, yl, yh] = [x & 0xffff, x >>> 16, y & 0xffff, y >>> 16];
  const middle = xh * yl + ((xl * yl) >>> 16);
  const upper = xl * yh + (middle & 0xffff);
  return (xh * yh + (middle >>> 16) + (upper >>> 16)) >>> 0;
}

/**
 * Computes four random words. It works on scalars and writes to existing memory, since a model draws hundreds of millions of weights.
 * @template {{ [i: number]: number }} T
 * @param {ArrayLike<number>} counter four words @param {ArrayLike<number>} key two words @param {T} words the result
 * @returns {T}
 */
export function philox(counter, key, words) {
  let [a, b, c, d] = [counter[0], counter[1], counter[2], counter[3]];
  let [low, high] = [key[0], key[1]];
  for (let i = 0; i < 10; i++) {
    const upperA = upperHalf(0xd2511f53, a);
    const upperC = upperHalf(0xcd9e8d57, c);
    const lowerA = Math.imul(0xd2511f53, a);
    const lowerC = Math.imul(0xcd9e8d57, c);
    a = (upperC ^ b ^ low) >>> 0;
    b = lowerC >>> 0;
    c = (upperA ^ d ^ high) >>> 0;
    d = lowerA >>> 0;
    low = (low + 0x9e3779b9) >>> 0;
    high = (high + 0xbb67ae85) >>> 0;
  }
  words[0] = a;
  words[1] = b;
  words[2] = c;
  words[3] = d;
  return words;
}

/** The sequence of random words of a seed. */
export class Philox {
  /** @param {number} seed */
  constructor(seed) {
    this.seed = seed;
    /** The number of the next word. */
    this.position = 0;
    this.key = [seed >>> 0, Math.floor(seed / 2 ** 32) >>> 0];
    /** The counter of `words`. */
    this.counter = -1;
    this.words = new Uint32Array(4);
  }

  /** The next word. */
  next() {
    const counter = Math.floor(this.position / 4);
    if (counter !== this.counter) {
      philox([counter >>> 0, Math.floor(counter / 2 ** 32) >>> 0, 0, 0], this.key, this.words);
      this.counter = counter;
    }
    return this.words[this.position++ % 4];
  }

  /** Leaves words to the device. @param {number} count @returns {number} the first one's number */
  take(count) {
    const first = this.position;
    this.position += count;
    return first;
  }

  /** Uniform in [0, 1), a multiple of 2^-24. */
  uniform() {
    return (this.next() >>> 8) / 2 ** 24;
  }

  /** Standard normal (Box & Muller 1958). */
  normal() {
    const radius = Math.sqrt(-2 * Math.log((this.next() + 1) / 2 ** 32));
    return radius * Math.cos((2 * Math.PI * this.next()) / 2 ** 32);
  }
}
