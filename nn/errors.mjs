// Errors of this folder: what was wrong, and the line of the user's program that it was wrong in.

const HERE = new URL('./', import.meta.url).href;

/** Frames that are looked at for a line: most often these are enough, and modules within modules take more. */
const FRAMES = [12, 48];

/** The user's frames of a stack. @param {string} stack */
function userFrames(stack) {
  const lines = stack.split('\n').filter((line) => /^\s+at /.test(line) && !line.includes(HERE) && !line.includes('node:internal'));
  // What the runtime calls back from (Array.from, map) is no line of the user's.
  while (lines.length > 1 && !/[\\/].*:\d+:\d+\)?$/.test(lines[0])) lines.shift();
  return lines;
}

/** The first of the user's frames. @param {unknown} _ @param {NodeJS.CallSite[]} sites @returns {string | undefined} */
function firstLine(_, sites) {
  for (const site of sites) {
    const file = site.getFileName();
    if (!file || file.startsWith(HERE) || file.startsWith('node:')) continue;
    return `${file.slice(Math.max(file.lastIndexOf('/'), file.lastIndexOf('\\')) + 1)}:${site.getLineNumber()}`;
  }
  return undefined;
}

/** The line of the user's program that is running, as `model.mjs:12`. @returns {string | undefined} */
export function callerLine() {
  const { stackTraceLimit, prepareStackTrace } = Error;
  // One frame of the stack: a text of all of them takes ten times as long, and a trace asks for thousands.
  Error.prepareStackTrace = firstLine;
  /** @type {string | undefined} */
  let line;
  for (const frames of FRAMES) {
    Error.stackTraceLimit = frames;
    line ??= /** @type {string | undefined} */ (/** @type {unknown} */ (new Error().stack));
  }
  Error.stackTraceLimit = stackTraceLimit;
  Error.prepareStackTrace = prepareStackTrace;
  return line;
}

/**
 * Cuts the frames of this folder off an error's stack and names the caller's line at the end of its message.
 * @template {Error} T
 * @param {T} error
 * @returns {T}
 */
export function atCaller(error) {
  const lines = userFrames(error.stack ?? '');
  const place = lines[0]?.match(/([^/\\(]+:\d+):\d+\)?$/)?.[1];
  if (place) error.message += ` (${place})`;
  error.stack = [`${error.name}: ${error.message}`, ...lines].join('\n');
  return error;
}

/** Sizes that do not go together. `op` is the operation's name. */
export class ShapeError extends RangeError {
  /** @param {string} op @param {string} what */
  constructor(op, what) {
    super(`${op}: ${what}`);
    this.name = 'ShapeError';
    this.code = 'ERR_HELIOS_INVALID_ARGUMENT';
    this.op = op;
    atCaller(this);
  }
}

/** An element type, or an argument, that the operation does not take. */
export class ArgumentError extends TypeError {
  /** @param {string} op @param {string} what */
  constructor(op, what) {
    super(`${op}: ${what}`);
    this.name = 'ArgumentError';
    this.code = 'ERR_HELIOS_INVALID_ARGUMENT';
    this.op = op;
    atCaller(this);
  }
}

/** A call that is right in itself and made at the wrong time: a tensor after `dispose`, a second `backward`. */
export class UsageError extends Error {
  /** @param {string} op @param {string} what */
  constructor(op, what) {
    super(`${op}: ${what}`);
    this.name = 'UsageError';
    this.code = 'ERR_HELIOS_INVALID_ARGUMENT';
    this.op = op;
    atCaller(this);
  }
}

/** A shape as messages show it. @param {readonly number[]} shape */
export const show = (shape) => `[${shape.join(', ')}]`;
