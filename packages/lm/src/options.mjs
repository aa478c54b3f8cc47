// Options of the public functions: one that a function does not know would change nothing, so it is an error.

import { nearest } from 'helios-vk/options';

export { nearest };

/**
 * Checks the names of options.
 * @param {string} of the function @param {object} options @param {readonly string[]} names that it knows
 * @throws {TypeError} that has the first other name, and the known one that is nearest to it
 */
export function checkNames(of, options, names) {
  const other = Object.keys(options).find((name) => !names.includes(name));
  if (other === undefined) return;
  const near = nearest(other, names);
  throw new TypeError(`${of} has no option ${other}${near ? `; the nearest is ${near}` : `; it has ${names.join(', ')}`}`);
}

/** A value in a message. @param {unknown} value */
export function shown(value) {
  if (typeof value === 'string') return value.length > 60 ? `${JSON.stringify(value.slice(0, 60))}…` : JSON.stringify(value);
  if (Array.isArray(value)) return `a list of ${value.length}`;
  return typeof value === 'object' && value !== null ? 'an object' : String(value);
}
