// Messages over a stream: one line of JSON each.

import { inspect } from 'node:util';

/** Largest number of JSON characters in a value of `exchange`. */
export const MAX_VALUE = 2 ** 26;
/** Longer than any message of ours: a value's JSON is sent as a string, in which only quotes and backslashes are escaped, to two characters. */
const MAX_LINE = 2 * MAX_VALUE + 2 ** 16;
/** Largest number of characters of a failure's message that are sent to other ranks. */
export const MAX_REASON = 4096;

/**
 * Calls `receive` with every message that arrives. Anything else, or a line that is too long, ends the connection.
 * @param {import('node:net').Socket} socket
 * @param {(message: any) => void} receive
 * @param {() => number | undefined} [limit] largest number of characters of a message now, if that is less than our messages need
 */
export function listen(socket, receive, limit = () => undefined) {
  // Chunks of the current line, joined once at its end, so that the cost of a long line stays linear.
  /** @type {string[]} */
  let parts = [];
  let length = 0;
  const take = (/** @type {string} */ part) => {
    length += part.length;
    if (length > (limit() ?? MAX_LINE)) throw new Error('a line that is too long');
    parts.push(part);
  };
  socket.setEncoding('utf8');
  socket.on('data', (/** @type {string} */ chunk) => {
    try {
      let from = 0;
      for (let end = chunk.indexOf('\n'); end >= 0 && !socket.destroyed; end = chunk.indexOf('\n', from)) {
        take(chunk.slice(from, end));
        from = end + 1;
        const line = parts.join('');
        parts = [];
        length = 0;
        const message = JSON.parse(line);
        if (message === null || typeof message !== 'object') throw new Error('no message');
        receive(message);
      }
      if (from < chunk.length) take(chunk.slice(from));
    } catch {
      socket.destroy();
    }
  });
}

/** @param {import('node:net').Socket} socket @param {object} message */
export const send = (socket, message) => sendAll([socket], message);

/** Sends one message to several. @param {Iterable<import('node:net').Socket>} sockets @param {object} message */
export function sendAll(sockets, message) {
  const line = Buffer.from(`${JSON.stringify(message)}\n`);
  for (const socket of sockets) if (socket.writable) socket.write(line);
}

/**
 * Serializes a value before anything is sent, so that a value without JSON fails on this rank alone.
 * @param {unknown} value undefined is null
 * @param {string} name of the argument, for the error
 */
export function jsonOf(value, name) {
  let text;
  try {
    text = JSON.stringify(value ?? null);
  } catch (error) {
    // A `toJSON` may throw anything.
    throw new TypeError(`${name} must be representable in JSON: ${error instanceof Error ? error.message : inspect(error)}`, {
      cause: error,
    });
  }
  if (text === undefined) throw new TypeError(`${name} must be representable in JSON, got ${typeof value}`);
  return text;
}
