// Options by name. Unknown names would otherwise be ignored silently: `{ biass: false }`, or PyTorch's `Linear(8, 4, false)`.

import { ArgumentError, shown } from './errors.mjs';

/**
 * Checks that options are an object with known names only.
 * @template {object} T
 * @param {string} op the call, for the error
 * @param {T} options
 * @param {readonly string[]} names the known names
 * @returns {T} the options
 * @throws an ArgumentError that names the unknown option and lists the known ones
 */
export function checkOptions(op, options, names) {
  const unknown = typeof options === 'object' && options !== null ? Object.keys(options).find((name) => !names.includes(name)) : '';
  if (unknown === undefined && !Array.isArray(options)) return options;
  const plain = typeof options === 'object' && options !== null && [Object.prototype, null].includes(Object.getPrototypeOf(options));
  if (plain)
    throw new ArgumentError(op, `unknown option ${shown(unknown)}; the option${names.length > 1 ? 's are' : ' is'} ${names.join(', ')}`);
  // For a tensor or an array, an unknown name in the message would mislead: the program wrote no names.
  throw new ArgumentError(op, `options must be an object, { ${names.map((name) => `${name}: …`).join(', ')} }, got ${shown(options)}`);
}

/** Checks that an option is true or false. @param {string} op @param {string} name @param {unknown} value */
export function flag(op, name, value) {
  if (typeof value !== 'boolean') throw new ArgumentError(op, `${name} must be true or false, got ${shown(value)}`);
}

/** @param {string} op @param {string} name @param {unknown} value @param {(value: number) => boolean} fits @param {string} what @returns {number} */
function check(op, name, value, fits, what) {
  if (typeof value !== 'number' || !fits(value)) throw new ArgumentError(op, `${name} must be ${what}, got ${shown(value)}`);
  return value;
}
/** Checks for a finite number. @param {string} op @param {string} name @param {unknown} value */
export const checkFinite = (op, name, value) => check(op, name, value, Number.isFinite, 'a number');
/** Checks for a finite number of at least 0. @param {string} op @param {string} name @param {unknown} value */
export const checkLeast = (op, name, value) => check(op, name, value, (v) => v >= 0 && v < Infinity, 'a number of at least 0');
/** Checks for a finite number above 0. @param {string} op @param {string} name @param {unknown} value */
export const checkAbove = (op, name, value) => check(op, name, value, (v) => v > 0 && v < Infinity, 'a number above 0');
/** Checks for a number above 0, or Infinity. @param {string} op @param {string} name @param {unknown} value */
export const checkPower = (op, name, value) => check(op, name, value, (v) => v > 0, 'a number above 0');
/** Checks for a probability, which may be 1. @param {string} op @param {string} name @param {unknown} value */
export const checkProbability = (op, name, value) => check(op, name, value, (v) => v >= 0 && v <= 1, 'in [0, 1]');
/** Checks for a rate, in [0, 1). @param {string} op @param {string} name @param {unknown} value */
export const checkFraction = (op, name, value) => check(op, name, value, (v) => v >= 0 && v < 1, 'in [0, 1)');
