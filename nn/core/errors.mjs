// Errors of helios-vk/nn. A message says what was wrong and names the line of the user's program that caused it.

import { inspect } from 'node:util';

const HERE = new URL('../', import.meta.url).href;

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
  const { stackTraceLimit } = Error;
  // Functions within functions of this folder would else take all frames, and leave none of the caller's.
  Error.stackTraceLimit = stackTraceLimit + FRAMES[1];
  Error.captureStackTrace?.(error);
  Error.stackTraceLimit = stackTraceLimit;
  const lines = userFrames(error.stack ?? '');
  const place = lines[0]?.match(/([^/\\(]+:\d+):\d+\)?$/)?.[1];
  if (place) error.message += ` (${place})`;
  error.stack = [`${error.name}: ${error.message}`, ...lines.slice(0, stackTraceLimit)].join('\n');
  return error;
}

/** Sizes that do not fit together. `op` is the function that the program called. */
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

/** A call that is valid but comes at the wrong time: use of a tensor after `dispose`, a second `backward`. */
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

/**
 * Runs the operations that a function consists of, so that an error in one of them names the function that the program called. `fn` must
 * not call functions of the user, whose errors have names of their own.
 * @template T
 * @param {string} op @param {() => T} fn
 * @returns {T}
 */
export function within(op, fn) {
  try {
    return fn();
  } catch (error) {
    if (error instanceof ShapeError || error instanceof ArgumentError || error instanceof UsageError) {
      const before = `${error.name}: ${error.message}`;
      error.message = op + error.message.slice(error.op.length);
      error.stack = `${error.name}: ${error.message}${error.stack?.slice(before.length) ?? ''}`;
      error.op = op;
    }
    throw error;
  }
}

/** Characters of a value that messages show. */
const MAX_SHOWN = 60;

/** A value as messages show it, whatever it is. @param {unknown} value @returns {string} */
export function shown(value) {
  if (value === '') return "''";
  const text = typeof value === 'string' ? value : textOf(value);
  const line = text.replace(/\s+/g, ' ');
  return line.length > MAX_SHOWN ? `${line.slice(0, MAX_SHOWN)}…` : line;
}

/** @param {unknown} value @returns {string} */
function textOf(value) {
  // Not the source.
  if (typeof value === 'function')
    return `${/^class\b/.test(Function.prototype.toString.call(value)) ? 'class' : 'function'} ${value.name}`.trim();
  if (typeof value === 'object' && value !== null && !Array.isArray(value) && !(inspect.custom in value)) {
    const name = value.constructor?.name;
    if (name && name !== 'Object') return `${/^[AEIOU]/.test(name) ? 'an' : 'a'} ${name}`;
  }
  const named = typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === null ? { ...value } : value;
  return inspect(named, { depth: 1, breakLength: Infinity, maxArrayLength: 8 });
}

/** A shape as messages show it: numbers, or what was given for them. @param {readonly unknown[]} shape */
export const show = (shape) =>
  `[${shape.every((size) => typeof size === 'number') ? shape.join(', ') : Array.from(shape, shown).join(', ')}]`;

/**
 * Checks that an argument is a function that has done its work when it returns.
 * @param {string} op @param {unknown} fn @param {string} late why that matters
 */
export function checkFunction(op, fn, late) {
  if (typeof fn !== 'function') throw new ArgumentError(op, `expected a function, got ${shown(fn)}`);
  const kind = fn.constructor?.name;
  if (kind === 'AsyncFunction') throw new ArgumentError(op, `the function is async: ${late}`);
  if (kind === 'GeneratorFunction' || kind === 'AsyncGeneratorFunction') {
    throw new ArgumentError(op, 'the function is a generator, which runs when its values are asked for: pass one that returns its result');
  }
}

/**
 * Throws where a function returned a promise. Nobody gets that one then: what it may fail with would end the process.
 * @template T
 * @param {string} op @param {T} result @param {string} late why that matters
 * @returns {T}
 */
export function checkResult(op, result, late) {
  if (!isPromise(result)) return result;
  result.then(undefined, () => {});
  throw new ArgumentError(op, `the function is async: ${late}`);
}

/** @param {unknown} value @returns {value is PromiseLike<unknown>} */
export const isPromise = (value) => typeof (/** @type {Partial<PromiseLike<unknown>> | null | undefined} */ (value)?.then) === 'function';

/** What stands in a tensor's place. @param {unknown} value */
export function describe(value) {
  if (Array.isArray(value)) return 'an array: make it a tensor with tensor(…)';
  if (ArrayBuffer.isView(value)) return `a ${value.constructor.name}: make it a tensor with tensor(…)`;
  return shown(value);
}
