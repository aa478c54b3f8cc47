// Options by name. A name that a call does not have would be left out without a word: `{ biass: false }`, or PyTorch's `Linear(8, 4, false)`.

import { ArgumentError } from './errors.mjs';

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
  if (typeof options !== 'object' || options === null) {
    throw new ArgumentError(op, `options are an object, { ${names.map((name) => `${name}: …`).join(', ')} }, got ${String(options)}`);
  }
  for (const name of Object.keys(options)) {
    if (!names.includes(name))
      throw new ArgumentError(op, `no option ${name}; there ${names.length > 1 ? 'are' : 'is'} ${names.join(', ')}`);
  }
  return options;
}
