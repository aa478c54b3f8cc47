// Sizes that each call of an exported model chooses. A module is traced for several of them; a number that differs from trace to trace is a
// `Size`, which has its value in each. The exporter writes it as a polynomial of the sizes of the inputs.

/** What an operation cannot be in a file for. */
export class Unsupported extends Error {}

/** A number that depends on dynamic sizes. */
export class Size {
  /** @param {readonly number[]} values in each trace */
  constructor(values) {
    this.values = values;
  }
  /** Where one number is computed with, an operation depends on it in another way than it can be written. @returns {never} */
  [Symbol.toPrimitive]() {
    throw new Unsupported('it depends on a dynamic size');
  }
}

/** A number, the same in all traces or not. @typedef {number | Size} Dimension */

/** The number in a trace. @param {Dimension} size @param {number} trace */
const at = (size, trace) => (size instanceof Size ? size.values[trace] : size);

/** A number of values in the traces. @param {readonly number[]} values @returns {Dimension} */
export const sizeOf = (values) => (values.every((value) => Object.is(value, values[0])) ? values[0] : new Size(values));

/** What a function gives of numbers, in each trace. @param {(...numbers: number[]) => number} f @param {...Dimension} sizes @returns {Dimension} */
export function computed(f, ...sizes) {
  const count = sizes.find((size) => size instanceof Size)?.values.length ?? 1;
  return sizeOf(Array.from({ length: count }, (_, trace) => f(...sizes.map((size) => at(size, trace)))));
}

/** Whether two numbers are equal in all traces. @param {Dimension} a @param {Dimension} b */
export const equal = (a, b) => computed((x, y) => Number(x === y), a, b) === 1;

/** The product of sizes. @param {readonly Dimension[]} sizes @returns {Dimension} */
export const product = (sizes) => computed((...numbers) => numbers.reduce((a, b) => a * b, 1), 1, ...sizes);

/**
 * Attributes of all traces as one value, with a `Size` for each number that differs.
 * @param {readonly unknown[]} values of the traces
 * @returns {unknown} undefined if they differ in anything but numbers
 */
export function merged(values) {
  const [first] = values;
  if (values.every((value) => typeof value === 'number')) return sizeOf(/** @type {number[]} */ (values));
  if (typeof first !== 'object' || first === null) return values.every((value) => value === first) ? first : undefined;
  const keys = Object.keys(first);
  if (values.some((value) => typeof value !== 'object' || value === null || Object.keys(value).join() !== keys.join())) return undefined;
  const result = Array.isArray(first) ? new Array(first.length) : {};
  for (const key of keys) {
    const each = values.map((value) => Reflect.get(/** @type {object} */ (value), key));
    const own = merged(each);
    if (own === undefined && each.some((value) => value !== undefined)) return undefined;
    Reflect.set(result, key, own);
  }
  return result;
}

/** The sizes that differ, by name. */
export class Symbols {
  /** @param {Map<string, number>} examples the size in the example inputs, by name */
  constructor(examples) {
    this.names = [...examples.keys()];
    // Not 1, which broadcasts, and not above the example, which a model's positions may not allow.
    this.least = [...examples.values()].map((size) => (size >= 4 ? size - 2 : 2));
  }

  /** The sizes in each trace: every choice of the least and one more, which a polynomial takes, and a last one that proves it. */
  get points() {
    const { least } = this;
    const all = Array.from({ length: 2 ** least.length }, (_, mask) => least.map((size, i) => size + ((mask >> i) & 1)));
    return least.length > 0 ? [...all, least.map((size) => size + 2)] : all;
  }

  /**
   * A number as a sum of products of sizes: coefficients by the set of sizes, as bits. Undefined if it is none.
   * @param {Size} size @returns {Map<number, number> | undefined}
   */
  polynomial({ values }) {
    const { least } = this;
    const count = 2 ** least.length;
    // By differences: the coefficient of the product of (size - least) over a set.
    const differences = values.slice(0, count);
    for (let i = 0; i < least.length; i++)
      for (let mask = 0; mask < count; mask++) if ((mask >> i) & 1) differences[mask] -= differences[mask ^ (1 << i)];
    /** @type {Map<number, number>} */
    const terms = new Map();
    for (let set = 0; set < count; set++) {
      for (let part = set; ; part = (part - 1) & set) {
        let factor = differences[set];
        for (let i = 0; i < least.length; i++) if (((set & ~part) >> i) & 1) factor *= -least[i];
        terms.set(part, (terms.get(part) ?? 0) + factor);
        if (part === 0) break;
      }
    }
    for (const [set, factor] of terms) if (factor === 0) terms.delete(set);
    const last = this.points[count];
    let sum = 0;
    for (const [set, factor] of terms) sum += last.reduce((all, size, i) => ((set >> i) & 1 ? all * size : all), factor);
    const isWhole = [...terms.values()].every(Number.isInteger);
    return isWhole && sum === values[count] ? terms : undefined;
  }
}
