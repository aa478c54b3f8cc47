/** Summarizes timings. */

/** @param {ArrayLike<number>} values @returns {Float64Array} ascending */
function sorted(values) {
  return Float64Array.from(values).sort();
}

/**
 * Quantile by linear interpolation between order statistics (Hyndman and Fan, type 7).
 * @param {ArrayLike<number>} values at least one
 * @param {number} q in 0…1
 */
export function quantile(values, q) {
  if (values.length === 0) throw new RangeError('quantile of no values');
  if (!(q >= 0 && q <= 1)) throw new RangeError(`quantile ${q}: must be in 0…1`);
  const ascending = sorted(values);
  const position = q * (ascending.length - 1);
  const below = Math.floor(position);
  const above = Math.min(below + 1, ascending.length - 1);
  return ascending[below] + (position - below) * (ascending[above] - ascending[below]);
}

/** The middle value, or the mean of the two in the middle. @param {ArrayLike<number>} values at least one */
export function median(values) {
  return quantile(values, 0.5);
}

/** @param {ArrayLike<number>} values */
export function sum(values) {
  let total = 0;
  for (let i = 0; i < values.length; i++) total += values[i];
  return total;
}

/** @param {ArrayLike<number>} values at least one */
export function mean(values) {
  if (values.length === 0) throw new RangeError('mean of no values');
  return sum(values) / values.length;
}

/**
 * Half the distance between the quartiles, relative to the median: a spread that one slow round does not change.
 * @param {ArrayLike<number>} values at least one
 */
export function spread(values) {
  const middle = median(values);
  return middle === 0 ? 0 : (quantile(values, 0.75) - quantile(values, 0.25)) / 2 / Math.abs(middle);
}

/**
 * The least and the greatest value, for lists too long to pass as arguments of `Math.min`.
 * @param {ArrayLike<number>} values
 * @returns {{low: number, high: number}} NaN for no values
 */
export function extremes(values) {
  let [low, high] = values.length > 0 ? [Infinity, -Infinity] : [NaN, NaN];
  for (let i = 0; i < values.length; i++) {
    low = Math.min(low, values[i]);
    high = Math.max(high, values[i]);
  }
  return { low, high };
}

/**
 * A number with three significant digits and no exponent, for tables.
 * @param {number} value
 */
export function format(value) {
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  const digits = size === 0 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(size)));
  return value.toLocaleString('en-US', { maximumFractionDigits: Math.min(digits, 6), minimumFractionDigits: 0 });
}

/**
 * A table as text: the first column to the left, all others to the right.
 * @param {string[]} head
 * @param {string[][]} rows
 */
export function textTable(head, rows) {
  const widths = head.map((cell, i) => Math.max(cell.length, ...rows.map((row) => (row[i] ?? '').length)));
  const line = (/** @type {string[]} */ cells) =>
    widths.map((width, i) => (i === 0 ? (cells[i] ?? '').padEnd(width) : (cells[i] ?? '').padStart(width))).join('  ');
  return [line(head), widths.map((width) => '-'.repeat(width)).join('  '), ...rows.map(line)].join('\n');
}
