/** A seeded generator (mulberry32), so that a failing program can be run again. */
export class Random {
  #state;
  /** @param {number} seed */
  constructor(seed) {
    this.#state = seed >>> 0;
  }
  u32() {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  }
  /**
   * An integer in [0, n).
   * @param {number} n
   */
  below(n) {
    return Math.floor((this.u32() / 2 ** 32) * n);
  }
  /**
   * An integer in [low, high].
   * @param {number} low
   * @param {number} high
   */
  between(low, high) {
    return low + this.below(high - low + 1);
  }
  /** @param {number} p */
  chance(p) {
    return this.u32() / 2 ** 32 < p;
  }
  /**
   * @template T
   * @param {readonly T[]} list
   * @returns {T}
   */
  pick(list) {
    return list[this.below(list.length)];
  }
  /** @param {number} length */
  words(length) {
    return Uint32Array.from({ length }, () => this.u32());
  }
  /**
   * `count` different members of `list`.
   * @template T
   * @param {readonly T[]} list
   * @param {number} count
   * @returns {T[]}
   */
  sample(list, count) {
    const rest = [...list];
    return Array.from({ length: count }, () => rest.splice(this.below(rest.length), 1)[0]);
  }
}
