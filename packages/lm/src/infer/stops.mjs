// Texts that end an answer. One may span several tokens, so what could be its beginning is held back until the next text decides.

export class StopFinder {
  #held = '';
  #stops;

  /** @param {readonly string[]} stops */
  constructor(stops) {
    this.#stops = stops;
  }

  /**
   * Adds text.
   * @param {string} text
   * @returns {{ text: string, found: boolean, rest: string }} what may be printed; `found`: a stop text follows it, and `rest` after that
   */
  push(text) {
    if (this.#stops.length === 0) return { text, found: false, rest: '' };
    const held = this.#held + text;
    // The one that is complete first, so that the answer does not depend on where tokens end; of several the longest.
    let [start, end] = [-1, Infinity];
    for (const stop of this.#stops) {
      const at = held.indexOf(stop);
      const before = at + stop.length < end || (at + stop.length === end && at < start);
      if (at >= 0 && before) [start, end] = [at, at + stop.length];
    }
    if (start >= 0) {
      this.#held = '';
      return { text: held.slice(0, start), found: true, rest: held.slice(end) };
    }
    let kept = 0;
    for (const stop of this.#stops) {
      for (let length = Math.min(stop.length - 1, held.length); length > kept; length--) {
        if (held.endsWith(stop.slice(0, length))) kept = length;
      }
    }
    this.#held = held.slice(held.length - kept);
    return { text: held.slice(0, held.length - kept), found: false, rest: '' };
  }

  /** What is still held back, at the end of the answer. */
  end() {
    const held = this.#held;
    this.#held = '';
    return held;
  }
}
