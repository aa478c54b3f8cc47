// Keys of values for caches: different values have different keys.

/** Replaces numbers that JSON cannot tell apart: NaN and the infinities are `null` there, and -0 is `0`. @param {string} _ @param {unknown} value */
const distinct = (_, value) =>
  typeof value === 'number' && (!Number.isFinite(value) || Object.is(value, -0))
    ? { number: Object.is(value, -0) ? '-0' : `${value}` }
    : value;

/** JSON in which different numbers are always written differently. @param {unknown} value @returns {string} */
const exact = (value) => JSON.stringify(value, distinct);

/**
 * The key of attributes. Most are numbers, strings and arrays of them, which this encodes ten times as fast as JSON.
 * @param {import('../ops/registry.mjs').Attributes} attributes
 */
export function keyOf(attributes) {
  let key = '';
  for (const name in attributes) key += `${name}:${keyOfValue(attributes[name])};`;
  return key;
}

/** Whether a value is an object as a literal makes it. @param {unknown} value @returns {value is import('../ops/registry.mjs').Attributes} */
const isPlain = (value) => typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;

/** @param {unknown} value @returns {string} */
function keyOfValue(value) {
  if (typeof value === 'number') return Object.is(value, -0) ? '-0' : `${value}`;
  // The length comes first, so that the contents of a string cannot imitate another attribute.
  if (typeof value === 'string') return `${value.length}'${value}`;
  if (!Array.isArray(value)) return isPlain(value) ? `{${keyOf(value)}}` : exact(value);
  let key = '[';
  for (const item of value) key += `${keyOfValue(item)},`;
  return `${key}]`;
}

/** The attributes of a call without any. */
export const NO_ATTRIBUTES = Object.freeze({});
