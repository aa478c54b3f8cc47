import assert from 'node:assert/strict';

export const INVALID_HANDLE = 'ERR_HELIOS_INVALID_HANDLE';
export const INVALID_ARGUMENT = 'ERR_HELIOS_INVALID_ARGUMENT';
export const INVALID_BATCH = 'ERR_HELIOS_INVALID_BATCH';
export const NO_DEVICE = 'ERR_HELIOS_NO_DEVICE';
export const NO_LOADER = 'ERR_HELIOS_NO_LOADER';
export const VULKAN = 'ERR_HELIOS_VULKAN';
export const UNSUPPORTED = 'ERR_HELIOS_UNSUPPORTED';

/**
 * What a message must contain: a literal string, a number that is not part of a longer one, or a
 * pattern.
 * @typedef {string | number | RegExp} Part
 */

/**
 * @param {string} message
 * @param {Part} part
 */
function mentions(message, part) {
  if (part instanceof RegExp) return part.test(message);
  if (typeof part === 'number') return new RegExp(`(^|[^0-9.])${String(part).replace(/[.+]/g, '\\$&')}([^0-9]|$)`).test(message);
  return message.includes(part);
}

/**
 * Asserts that `call` throws an error of the addon: a real `Error` with the `code`, of one of `types`
 * (argument errors: TypeError or RangeError), whose message mentions every one of `parts`.
 *
 * @param {() => unknown} call
 * @param {string} code
 * @param {Part[]} [parts]
 * @param {ErrorConstructor[]} [types]
 * @returns {Error & {code: string}}
 */
export function throws(call, code, parts = [], types = [TypeError, RangeError]) {
  /** @type {any} */
  let error;
  let value;
  try {
    value = call();
  } catch (caught) {
    error = caught;
  }
  assert.notEqual(error, undefined, `expected ${code}, but the call returned ${value}`);
  assert.equal(error instanceof Error, true, `not an Error: ${error}`);
  assert.equal(error.code, code, `code of: ${error.stack}`);
  assert.ok(
    types.some((type) => error instanceof type),
    `${error.name} is none of ${types.map((type) => type.name)}: ${error.message}`,
  );
  assert.equal(typeof error.call, 'string');
  assert.ok(error.message.startsWith(`${error.call}: `), `"${error.message}" names the call`);
  for (const part of parts) assert.ok(mentions(error.message, part), `"${error.message}" does not mention ${part}`);
  return error;
}

/**
 * The same for errors that are not about an argument.
 * @param {() => unknown} call
 * @param {string} code
 * @param {Part[]} [parts]
 */
export const fails = (call, code, parts = []) => throws(call, code, parts, [Error]);

/**
 * Compares arrays of numbers and shows the first difference only.
 * @param {ArrayLike<number>} actual
 * @param {ArrayLike<number>} expected
 * @param {string} what
 */
export function sameWords(actual, expected, what) {
  assert.equal(actual.length, expected.length, `${what}: length`);
  for (let i = 0; i < expected.length; i++) {
    if (actual[i] !== expected[i]) assert.fail(`${what}: element ${i} is ${actual[i]}, expected ${expected[i]}`);
  }
}
