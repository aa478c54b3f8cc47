// Philox 4x32-10 (Salmon et al. 2011): random words from a counter and a key, the same on the host and on the device. Pure.

/**
 * Four random words.
 * @param {ArrayLike<number>} counter four words @param {ArrayLike<number>} key two words
 * @returns {[number, number, number, number]}
 */
export function philox(counter, key) {
  let [a, b, c, d] = [counter[0], counter[1], counter[2], counter[3]];
  let [low, high] = [key[0], key[1]];
  for (let i = 0; i < 10; i++) {
    const [p, q] = [product(0xd2511f53, a), product(0xcd9e8d57, c)];
    [a, b, c, d] = [(q.high ^ b ^ low) >>> 0, q.low, (p.high ^ d ^ high) >>> 0, p.low];
    low = (low + 0x9e3779b9) >>> 0;
    high = (high + 0xbb67ae85) >>> 0;
  }
  return [a, b, c, d];
}

/** The 64 bits of a product of words. @param {number} x @param {number} y */
function product(x, y) {
  const low = Math.imul(x, y) >>> 0;
  const [xl, xh, yl, yh] = [x & 0xffff, x >>> 16, y & 0xffff, y >>> 16];
  const middle = xh * yl + Math.floor((xl * yl) / 65536);
  const upper = xl * yh + (middle % 65536);
  return { low, high: (xh * yh + Math.floor(middle / 65536) + Math.floor(upper / 65536)) >>> 0 };
}

/** The words of a seed, one after another. */
export class Philox {
  /** @param {number} seed */
  constructor(seed) {
    this.key = [seed >>> 0, Math.floor(seed / 2 ** 32) >>> 0];
    this.counter = 0;
    /** @type {number[]} */
    this.words = [];
    this.left = 0;
  }

  /** The next word. */
  next() {
    if (this.left === 0) {
      this.words = philox([this.counter >>> 0, Math.floor(this.counter / 2 ** 32) >>> 0, 0, 0], this.key);
      this.counter++;
      this.left = 4;
    }
    return this.words[4 - this.left--];
  }

  /** Uniform in [0, 1), of 24 bits. */
  uniform() {
    return (this.next() >>> 8) / 2 ** 24;
  }

  /** Standard normal (Box & Muller 1958). */
  normal() {
    const radius = Math.sqrt(-2 * Math.log((this.next() + 1) / 2 ** 32));
    return radius * Math.cos((2 * Math.PI * this.next()) / 2 ** 32);
  }
}
