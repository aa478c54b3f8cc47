// What the compilation of a function decided for arguments of some sizes, for arguments of others: what it saves is in docs/design/compile.md.
// What searches find depends on which calls there are and on which they depend, hardly on sizes. So a pass that searches asks here first, and
// checks what it is given: a decision for other sizes is never wrong, at worst less good. A line is, where a branch calls the same operations
// on other lines.

/** @typedef {import('./passes/calls.mjs').Call} Call */

/** The decisions for one function and arguments that differ in their dynamic sizes alone. */
export class Decisions {
  constructor() {
    /** By pass: what the decision was for, and the decision. @type {Map<string, { key: string, value: unknown }>} */
    this.made = new Map();
    /** Lines of the user's program, in the order in which they were asked for, with what asked. @type {{ name: string, line: string | undefined }[]} */
    this.lines = [];
    /** How many of them were asked for again in this trace; -1 once one was asked for that differs. */
    this.line = 0;
    /** How many decisions this trace took over. */
    this.taken = 0;
  }

  /** Begins a trace. */
  begin() {
    this.line = 0;
    this.taken = 0;
  }

  /**
   * The decision of a pass for calls, or what `make` decides.
   * @template T
   * @param {string} pass @param {Call[]} calls @param {Set<number>[]} before the calls that each depends on
   * @param {() => T} make @param {(call: Call, i: number) => unknown} [also] what else it rests on
   * @returns {T}
   */
  of(pass, calls, before, make, also = () => '') {
    /** Regions by their first call: their numbers are new in each trace. @type {Map<number | undefined, number>} */
    const regions = new Map();
    const key = calls
      .map((call, i) => {
        if (!regions.has(call.region)) regions.set(call.region, i);
        return `${call.op?.name ?? call.name} ${regions.get(call.region)} ${also(call, i)} ${[...before[i]]}`;
      })
      .join(';');
    const known = this.made.get(pass);
    if (known?.key === key) {
      this.taken++;
      return /** @type {T} */ (known.value);
    }
    const value = make();
    this.made.set(pass, { key, value });
    return value;
  }

  /**
   * The line of the user's program for what is recorded now: the one of the trace before, as long as the same is recorded in the same order.
   * @param {string} name of what is recorded @param {() => string | undefined} find
   */
  lineOf(name, find) {
    if (this.line >= 0 && this.line < this.lines.length) {
      const known = this.lines[this.line];
      if (known.name === name) {
        this.line++;
        return known.line;
      }
    }
    const line = find();
    if (this.line === this.lines.length) {
      this.lines.push({ name, line });
      this.line++;
    } else this.line = -1;
    return line;
  }
}
