// Options by name. Unknown names would otherwise be ignored silently: `{ biass: false }`, or PyTorch's `Linear(8, 4, false)`.

import { ArgumentError, shown } from './errors.mjs';

/**
 * The options, checked to be an object of known names.
 * @template {object} T
 * @param {string} op the call, for the error
 * @param {T} options
 * @param {readonly string[]} names those that the call has
 * @returns {T}
 * @throws an ArgumentError that names what is not an option, and what there is
 */
export function checkOptions(op, options, names) {
  const unknown = typeof options === 'object' && options !== null ? Object.keys(options).find((name) => !names.includes(name)) : '';
  if (unknown === undefined && !Array.isArray(options)) return options;
  const plain = typeof options === 'object' && options !== null && [Object.prototype, null].includes(Object.getPrototypeOf(options));
  if (plain) throw new ArgumentError(op, `no option ${shown(unknown)}; there ${names.length > 1 ? 'are' : 'is'} ${names.join(', ')}`);
  // Of a tensor or an array, the program did not write the names.
  throw new ArgumentError(op, `options are an object, { ${names.map((name) => `${name}: …`).join(', ')} }, got ${shown(options)}`);
}

/** Checks that an option is true or false. @param {string} op @param {string} name @param {unknown} value */
export function flag(op, name, value) {
  if (typeof value !== 'boolean') throw new ArgumentError(op, `${name} is true or false, got ${shown(value)}`);
}
