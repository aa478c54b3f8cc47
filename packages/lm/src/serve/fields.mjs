// Values of a request's body, checked. A wrong one is an `ApiError` that names the parameter.

import { checkNumber } from '../infer/options.mjs';
import { shown } from '../options.mjs';

/** An object of JSON, unchecked. @typedef {Record<string, unknown>} Body */

/** An error that the client gets, in OpenAI's form. */
export class ApiError extends Error {
  /**
   * @param {number} status of HTTP @param {string} message
   * @param {{ param?: string | null, code?: string | null, type?: string, headers?: Record<string, string> }} [more]
   */
  constructor(status, message, { param = null, code = null, type = 'invalid_request_error', headers = {} } = {}) {
    super(message);
    this.param = param;
    this.code = code;
    this.type = type;
    this.status = status;
    this.headers = headers;
  }

  toJSON() {
    const { message, type, param, code } = this;
    return { error: { message, type, param, code } };
  }
}

/** What the client is told of an error; of one of the server's own no more than that. @param {unknown} error */
export const toldOf = (error) =>
  error instanceof ApiError ? error : new ApiError(500, 'the server failed: see its log', { type: 'server_error' });

/** @param {string} param @param {string} message @param {string} [code] */
export const wrong = (param, message, code) => new ApiError(400, message, { param, code });

/** @param {unknown} value @returns {value is Body} */
export const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * A parameter's value; undefined where it is left out or null.
 * @template T
 * @param {Body} body @param {string} name @param {(value: unknown) => value is T} fits @param {string} expected
 * @returns {T | undefined}
 */
export function read(body, name, fits, expected) {
  const value = body[name] ?? undefined;
  if (value === undefined) return undefined;
  if (!fits(value)) throw wrong(name, `${name} must be ${expected}, got ${shown(value)}`);
  return value;
}

/** @param {Body} body @param {string} name @param {boolean} [other] what it is when left out @returns {boolean} */
export const flag = (body, name, other = false) => read(body, name, (value) => typeof value === 'boolean', 'true or false') ?? other;

/** @param {Body} body @param {string} name @param {{ min: number, max: number, integer?: boolean }} range @returns {number | undefined} */
export function number(body, name, range) {
  const value = body[name] ?? undefined;
  if (value === undefined) return undefined;
  try {
    checkNumber(name, value, range);
  } catch (error) {
    throw wrong(name, /** @type {Error} */ (error).message);
  }
  return value;
}
