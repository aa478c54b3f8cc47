// Errors of helios-vk/nn. A message says what was wrong, and names the line of the user's program that caused it.

import { fileURLToPath } from 'node:url';
import { inspect } from 'node:util';
import { ofPackage } from '../../kernels/package.mjs';

const HERE = ofPackage(() => new URL('../', import.meta.url).href);
/** The same as a path, which Bun's frames have. */
const FOLDER = HERE.startsWith('file:') ? fileURLToPath(HERE) : HERE;

/** How files of Node, Bun and Deno begin. */
const OF_RUNTIMES = ['node:', '[', 'ext:'];

/** Stack frames to search for the user's line: the first number is usually enough, nested modules need more. */
const FRAMES = [12, 48];

/** The frames of a stack that are in the user's code. @param {string} stack */
function userFrames(stack) {
  const others = [HERE, FOLDER, 'node:internal', '(ext:', 'at ext:'];
  const lines = stack.split('\n').filter((line) => /^\s+at /.test(line) && !others.some((other) => line.includes(other)));
  // Frames of built-ins that call back (Array.from, map) have no line of the user's code.
  while (lines.length > 1 && !/[\\/].*:\d+:\d+\)?$/.test(lines[0])) lines.shift();
  return lines;
}

/** The first frame in the user's code; for `Error.prepareStackTrace`. @param {unknown} _ @param {NodeJS.CallSite[]} sites @returns {string | undefined} */
function firstLine(_, sites) {
  for (const site of sites) {
    const file = site.getFileName();
    if (!file || [HERE, FOLDER, ...OF_RUNTIMES].some((other) => file.startsWith(other))) continue;
    return `${file.slice(Math.max(file.lastIndexOf('/'), file.lastIndexOf('\\')) + 1)}:${site.getLineNumber()}`;
  }
  return undefined;
}

/** The line of the user's program that is running, such as `model.mjs:12`. @returns {string | undefined} */
export function callerLine() {
  const { stackTraceLimit, prepareStackTrace } = Error;
  // Format one frame only: formatting all takes ten times as long, and a trace asks thousands of times.
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
 * Removes this package's frames from an error's stack, and appends the caller's line to its message.
 * @template {Error} T
 * @param {T} error
 * @returns {T}
 */
export function atCaller(error) {
  const { stackTraceLimit } = Error;
  // Otherwise nested calls within this package could use up all frames and leave none of the caller's.
  Error.stackTraceLimit = stackTraceLimit + FRAMES[1];
  Error.captureStackTrace?.(error);
  Error.stackTraceLimit = stackTraceLimit;
  const lines = userFrames(error.stack ?? '');
  const place = lines[0]?.match(/([^/\\(]+:\d+):\d+\)?$/)?.[1];
  if (place) error.message += ` (${place})`;
  error.stack = [`${error.name}: ${error.message}`, ...lines.slice(0, stackTraceLimit)].join('\n');
  return error;
}

/** Thrown for shapes or sizes that do not fit together. `op` is the function that the program called. */
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

/** Thrown for an argument or an element type that the function does not accept. `op` is the function that the program called. */
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

/** Thrown for a call at the wrong time, such as use of a tensor after `dispose` or a second `backward`. `op` is the function called. */
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

/** The function that the program called, while it runs. @type {string | undefined} */
let called;
/** The function that the program called, if it is one of several operations. */
export const callNow = () => called;
/** Runs `fn` as part of what the program called `op`. @template T @param {string} op @param {() => T} fn @returns {T} */
export function partOf(op, fn) {
  const outer = called;
  called = op;
  try {
    return fn();
  } finally {
    called = outer;
  }
}

/**
 * Runs the operations that a function consists of. An error in one of them then names `op`, the function that the program called. `fn` must
 * not call functions of the user, whose errors name their own functions.
 * @template T
 * @param {string} op @param {() => T} fn
 * @returns {T}
 */
export function within(op, fn) {
  const outer = called;
  called ??= op;
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
  } finally {
    called = outer;
  }
}

/** The most characters of a value that a message shows. */
const MAX_SHOWN = 60;

/** Any value as one line of a message. @param {unknown} value @returns {string} */
export function shown(value) {
  if (value === '') return "''";
  const text = typeof value === 'string' ? value : textOf(value);
  const line = text.replace(/\s+/g, ' ');
  return line.length > MAX_SHOWN ? `${line.slice(0, MAX_SHOWN)}…` : line;
}

/** @param {unknown} value @returns {string} */
function textOf(value) {
  // Its name, not its source.
  if (typeof value === 'function')
    return `${/^class\b/.test(Function.prototype.toString.call(value)) ? 'class' : 'function'} ${value.name}`.trim();
  if (typeof value === 'object' && value !== null && !Array.isArray(value) && !(inspect.custom in value)) {
    const name = value.constructor?.name;
    if (name && name !== 'Object') return `${/^[AEIOU]/.test(name) ? 'an' : 'a'} ${name}`;
  }
  const named = typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === null ? { ...value } : value;
  return inspect(named, { depth: 1, breakLength: Infinity, maxArrayLength: 8 });
}

/** A shape as messages show it; entries need not be numbers. @param {readonly unknown[]} shape */
export const show = (shape) =>
  `[${shape.every((size) => typeof size === 'number') ? shape.join(', ') : Array.from(shape, shown).join(', ')}]`;

/**
 * Checks that an argument is a synchronous function: not async, and not a generator.
 * @param {string} op @param {unknown} fn @param {string} late why an async function would be wrong
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
 * Throws if a function returned a promise. Also handles that promise's rejection, which would otherwise end the process.
 * @template T
 * @param {string} op @param {T} result @param {string} late why an async function would be wrong
 * @returns {T}
 */
export function checkResult(op, result, late) {
  if (!isPromise(result)) return result;
  result.then(undefined, () => {});
  throw new ArgumentError(op, `the function is async: ${late}`);
}

/** @param {unknown} value @returns {value is PromiseLike<unknown>} */
export const isPromise = (value) => typeof (/** @type {Partial<PromiseLike<unknown>> | null | undefined} */ (value)?.then) === 'function';

/** Describes a value that was passed instead of a tensor, for a message. @param {unknown} value */
export function describe(value) {
  if (Array.isArray(value)) return 'an array: make it a tensor with tensor(…)';
  if (ArrayBuffer.isView(value)) return `a ${value.constructor.name}: make it a tensor with tensor(…)`;
  return shown(value);
}
