// What commands write to a terminal: progress of work that has no page or events of its own, and texts of a model.

import { canRedraw } from 'helios-vk/options';

import { printable } from '../log/format.mjs';

/**
 * Shows progress on one line of the terminal; does nothing if stderr is not a terminal that can redraw a line.
 * @param {string} text @param {{ isTTY?: boolean, write(text: string): unknown }} [stream] @param {NodeJS.ProcessEnv} [env]
 */
export function showProgress(text, stream = process.stderr, env = process.env) {
  if (canRedraw(stream, env)) stream.write(`\r\x1b[K${text}`);
}

/**
 * Writes what a model wrote, or a prompt, to standard output; a terminal gets what is printable of it.
 * @param {string} text @param {{ isTTY?: boolean, write(text: string): unknown }} [stream]
 */
export function writeText(text, stream = process.stdout) {
  stream.write(stream.isTTY ? printable(text) : text);
}
