// A tensor's elements as text, in the form of PyTorch's `print`: what `Tensor.format` gives.

import { ArgumentError, shown } from './errors.mjs';
import { isFloat } from './layout.mjs';
import { checkOptions } from './options.mjs';

/** @typedef {import('./layout.mjs').DType} DType */

/**
 * Options of `format` and `print`, as those of `torch.set_printoptions`.
 * @typedef {object} FormatOptions
 * @property {number} [precision] digits behind the point, at most 100; 4 when left out
 * @property {number} [threshold] a tensor of more elements is summarized; 1,000 when left out
 * @property {number} [edgeItems] elements at each end of a dimension that a summary has; 3 when left out
 * @property {number} [lineWidth] characters a line; 80 when left out
 * @property {boolean} [sciMode] whether floats have exponents; by their sizes when left out
 */

/** @typedef {Required<Omit<FormatOptions, 'sciMode'>> & { sciMode?: boolean }} Format */

/** @param {string} op @param {FormatOptions} options @returns {Format} */
export function checkFormat(op, options) {
  const names = /** @type {const} */ (['precision', 'threshold', 'edgeItems', 'lineWidth', 'sciMode']);
  const { sciMode, ...given } = checkOptions(op, options, names);
  const how = { precision: 4, threshold: 1000, edgeItems: 3, lineWidth: 80, ...given };
  for (const [name, value] of Object.entries(how)) {
    const [least, most] = [name === 'lineWidth' ? 1 : 0, name === 'precision' ? 100 : Infinity];
    if (!(Number.isInteger(value) || value === Infinity) || value < least || value > most)
      throw new ArgumentError(
        op,
        `${name} must be an integer of at least ${least}${most === 100 ? ', at most 100' : ''}, got ${shown(value)}`,
      );
  }
  if (sciMode !== undefined && typeof sciMode !== 'boolean')
    throw new ArgumentError(op, `sciMode must be true or false, got ${shown(sciMode)}`);
  return { ...how, sciMode };
}

/** How many elements of a dimension are shown. @param {number} size @param {boolean} isSummary @param {Format} how */
export const countShown = (size, isSummary, { edgeItems }) => (isSummary && size > 2 * edgeItems ? 2 * edgeItems : size);

/** Digits behind those that are shown, of which a tie has one: f32 between 1e-4 and 1e8 has fewer. */
const MORE = 60;

/**
 * A number with some digits, ties to even, as C's `printf`; `toFixed` and `toExponential` round them up.
 * @param {'toFixed' | 'toExponential'} form @param {number} value @param {number} digits
 */
function rounded(form, value, digits) {
  const [before, exponent = ''] = value[form](Math.min(digits + MORE, 100)).split('e');
  const end = before.indexOf('.') + 1 + digits;
  const isTie = before.includes('.') && /^50*$/.test(before.slice(end)) && /[02468]$/.test(before.slice(0, end).replace(/\.$/, ''));
  // Of a tie after an even digit, the digits as they are.
  const [text, power = exponent] = (isTie ? before.slice(0, end).replace(/\.$/, '') : value[form](digits)).split('e');
  const sign = value < 0 || Object.is(value, -0) ? '-' : '';
  const signed = text.startsWith('-') ? text : sign + text;
  return form === 'toFixed' ? signed : `${signed}e${power[0]}${power.slice(1).padStart(2, '0')}`;
}

/** A number without a fraction. @param {number} value */
const whole = (value) => (Object.is(value, -0) ? '-0' : Math.abs(value) < 1e21 ? value.toFixed(0) : String(BigInt(value)));

/**
 * How elements are written, in one width: floats with the digits that all of them need.
 * @param {Iterable<number | bigint>} values @param {DType} dtype @param {Format} how @returns {{ width: number, text: (value: number | bigint) => string }}
 */
function writer(values, dtype, { precision, sciMode }) {
  if (!isFloat(dtype)) {
    const text = (/** @type {number | bigint} */ v) => (dtype === 'bool' ? (v ? 'True' : 'False') : String(v));
    let width = 1;
    for (const value of values) width = Math.max(width, text(value).length);
    return { width, text: (v) => text(v).padStart(width) };
  }
  const counted = [...values].map(Number).filter((v) => Number.isFinite(v) && v !== 0);
  let [least, most] = [Infinity, 0];
  for (const v of counted) [least, most] = [Math.min(least, Math.abs(v)), Math.max(most, Math.abs(v))];
  const areWhole = counted.every(Number.isInteger);
  const bySize = most / least > 1000 || most > 1e8 || (!areWhole && least < 1e-4);
  const withExponent = counted.length > 0 && (sciMode ?? bySize);
  const text = (/** @type {number} */ v) => {
    if (Number.isNaN(v)) return 'nan';
    if (!Number.isFinite(v)) return v < 0 ? '-inf' : 'inf';
    if (withExponent) return rounded('toExponential', v, precision);
    return areWhole ? `${whole(v)}.` : Math.abs(v) < 1e21 ? rounded('toFixed', v, precision) : `${whole(v)}.${'0'.repeat(precision)}`;
  };
  let width = 1;
  for (const v of counted) width = Math.max(width, text(v).length);
  return { width, text: (v) => text(Number(v)).padStart(width) };
}

/**
 * A tensor as PyTorch prints it.
 * @param {ArrayLike<number | bigint> & Iterable<number | bigint>} values row by row; of a summary the shown ones only
 * @param {readonly number[]} shape of the tensor @param {DType} dtype @param {string[]} suffixes what follows the elements @param {Format} how
 * @returns {string}
 */
export function formatted(values, shape, dtype, suffixes, how) {
  const { edgeItems, lineWidth, threshold } = how;
  const size = shape.reduce((product, n) => product * n, 1);
  const isSummary = size > threshold;
  const { width, text } = writer(values, dtype, how);
  const prefix = 'tensor(';
  /** @param {number} dim @param {number} from where its elements begin @param {number} step elements of it @param {number} indent @returns {string} */
  const nested = (dim, from, step, indent) => {
    if (dim === shape.length) return text(values[from]);
    const count = countShown(shape[dim], isSummary, how);
    const each = count === 0 ? 0 : step / count;
    const items = Array.from({ length: count }, (_, i) => nested(dim + 1, from + i * each, each, indent + 1));
    const isRow = dim === shape.length - 1;
    if (count < shape[dim]) items.splice(edgeItems, 0, isRow && edgeItems > 0 ? ' ...' : '...');
    const start = ' '.repeat(indent + 1);
    if (!isRow) return `[${items.join(`,${'\n'.repeat(shape.length - dim - 1)}${start}`)}]`;
    const perLine = Math.max(1, Math.floor((lineWidth - indent) / (width + 2)));
    const lines = Array.from({ length: Math.ceil(items.length / perLine) }, (_, i) =>
      items.slice(i * perLine, (i + 1) * perLine).join(', '),
    );
    return `[${lines.join(`,\n${start}`)}]`;
  };
  let result = prefix + (size === 0 ? '[]' : nested(0, 0, values.length, prefix.length));
  let length = result.length - result.lastIndexOf('\n') + 1;
  for (const suffix of suffixes) {
    const isNew = length + suffix.length + 2 > lineWidth;
    result += isNew ? `,\n${' '.repeat(prefix.length)}${suffix}` : `, ${suffix}`;
    length = isNew ? prefix.length + suffix.length : length + suffix.length + 2;
  }
  return `${result})`;
}
