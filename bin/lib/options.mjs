/**
 * Command lines and environment variables of everything here that is run from one: a table says names, types, ranges, defaults and
 * help, and what does not fit is an error that names it, before any work.
 */

import { closeSync, lstatSync, openSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

/**
 * What a string option names in the file system, which is looked at before the work: a file or a folder to read, either,
 * a file to write, or a folder to write into, which may not exist yet.
 * @typedef {'input' | 'input-folder' | 'input-any' | 'output' | 'output-folder'} PathKind
 *
 * @typedef {object} Option
 * @property {'string' | 'boolean' | 'integer' | 'number'} type
 * @property {string | number | boolean} [default]
 * @property {string} help one line; further lines are indented
 * @property {string} [value] the placeholder shown in the help, e.g. `FILE`
 * @property {readonly string[]} [choices] the only strings allowed
 * @property {number} [min] smallest number allowed
 * @property {number} [max] largest number allowed
 * @property {PathKind} [path]
 * @property {RegExp} [pattern] what a string must match; `value` says it in words
 * @property {boolean} [empty] whether a string may be empty
 * @property {boolean} [required]
 * @property {string} [short] one letter
 */

/** An error in what the user typed: shown without a stack. */
export class UsageError extends Error {}

/** Decimal numbers; what else `Number` takes (hexadecimal, blanks, nothing) is more likely a mistake. */
const DECIMAL = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

/** What a number may be, in words. @param {Pick<Option, 'type' | 'min' | 'max'>} option */
function allowedNumber({ type, min, max }) {
  const what = type === 'integer' ? 'an integer' : 'a number';
  if (min !== undefined && max !== undefined) return `${what} from ${min} to ${max}`;
  if (min !== undefined) return `${what} of at least ${min}`;
  return max === undefined ? what : `${what} of at most ${max}`;
}

/**
 * @param {string} name as the user wrote it: `--steps`, `HELIOS_X`
 * @param {Pick<Option, 'type' | 'min' | 'max'>} option
 * @param {string} text
 */
function convertNumber(name, option, text) {
  const value = DECIMAL.test(text) ? Number(text) : NaN;
  const { type, min = -Infinity, max = Infinity } = option;
  const fits = Number.isFinite(value) && (type !== 'integer' || Number.isSafeInteger(value)) && value >= min && value <= max;
  if (!fits) throw new UsageError(`${name} ${text}: must be ${allowedNumber(option)}`);
  return value;
}

/**
 * @param {string} name
 * @param {Option} option
 * @param {string} text
 * @returns {string | number}
 */
function convert(name, option, text) {
  if (option.type !== 'string') return convertNumber(`--${name}`, option, text);
  if (option.choices && !option.choices.includes(text)) {
    throw new UsageError(`--${name} ${text}: must be one of ${option.choices.join(', ')}`);
  }
  if (text === '' && !option.empty) throw new UsageError(`--${name}: must not be empty`);
  if (option.pattern && !option.pattern.test(text)) throw new UsageError(`--${name} ${text}: must be ${option.value}`);
  return text;
}

/** What of a failed look at a file the user needs. @param {unknown} error */
function reasonOf(error) {
  const { code, message } = /** @type {NodeJS.ErrnoException} */ (error);
  const known = {
    ENOENT: 'no such file or folder',
    EACCES: 'permission denied',
    EROFS: 'the file system is read-only',
    ENOTDIR: 'a part of the path is not a folder',
    ELOOP: 'an endless chain of links',
    ENAMETOOLONG: 'the name is too long',
    ENOSPC: 'no space left',
    EISDIR: 'it is a folder',
  };
  return known[/** @type {keyof typeof known} */ (code)] ?? message;
}

/** What is there, if anything is. Nothing is made behind a link to nothing. @param {string} path */
function statOf(path) {
  const there = statSync(path, { throwIfNoEntry: false });
  if (!there && lstatSync(path, { throwIfNoEntry: false })) throw new Error('it is a link that leads nowhere');
  return there;
}

/** Whether a file can be written, by opening it; leaves everything as it was. @param {string} path */
function tryToWrite(path) {
  const there = statOf(path);
  if (there?.isDirectory()) throw Object.assign(new Error(), { code: 'EISDIR' });
  // Opening a pipe would wait for a reader.
  if (there && !there.isFile()) return;
  closeSync(openSync(path, 'a'));
  // Processes of one run look at the same file, and another may have been faster.
  if (!there) rmSync(path, { force: true });
}

/** The nearest folder on the way to `path` that exists. @param {string} path */
function nearestFolder(path) {
  for (let at = resolve(path); ; at = dirname(at)) {
    const there = statOf(at);
    if (there?.isDirectory()) return at;
    if (there || at === dirname(at)) throw Object.assign(new Error(), { code: 'ENOTDIR' });
  }
}

/** @param {PathKind} kind @param {string} path */
function tryPath(kind, path) {
  if (kind === 'output') tryToWrite(path);
  else if (kind === 'output-folder') tryToWrite(`${nearestFolder(path)}/.helios-vk-${process.pid}-${Date.now()}`);
  else {
    const folder = statSync(path).isDirectory();
    if (folder && kind === 'input') throw Object.assign(new Error(), { code: 'EISDIR' });
    if (!folder && kind === 'input-folder') throw Object.assign(new Error(), { code: 'ENOTDIR' });
    if (!folder && statSync(path).isFile()) closeSync(openSync(path, 'r'));
  }
}

/**
 * Looks at every file and folder that the options name; two outputs cannot be one file.
 * @param {Record<string, Option>} options
 * @param {Record<string, unknown>} values
 * @throws {UsageError} that names the option and the path
 */
export function checkPaths(options, values) {
  /** @type {Map<string, string>} */
  const outputs = new Map();
  for (const [name, { path: kind }] of Object.entries(options)) {
    const path = values[name];
    if (kind === undefined || typeof path !== 'string') continue;
    try {
      tryPath(kind, path);
    } catch (error) {
      const doing = kind.startsWith('output') ? 'cannot be written' : 'cannot be read';
      throw new UsageError(`--${name} ${path}: ${doing}: ${reasonOf(error)}`);
    }
    // A device or a pipe takes any number of them.
    if (kind !== 'output' || statSync(path, { throwIfNoEntry: false })?.isFile() === false) continue;
    const other = outputs.get(resolve(path));
    if (other !== undefined) throw new UsageError(`--${name} ${path}: --${other} writes the same file`);
    outputs.set(resolve(path), name);
  }
}

/**
 * @template {Record<string, Option>} T
 * @typedef {{[K in keyof T]: T[K]['type'] extends 'boolean' ? boolean
 *   : (T[K]['type'] extends 'string' ? string : number)
 *     | (T[K] extends {default: unknown} | {required: true} ? never : undefined)}} ValuesOf
 */

/**
 * Parses a command line by its table.
 * @template {Record<string, Option>} T
 * @param {T} options
 * @param {string[]} args without the interpreter and the script
 * @param {boolean} [allowPositionals]
 * @returns {{values: ValuesOf<T>, positionals: string[], given: Set<string>}} `given`: the options that the line names
 * @throws {UsageError} that names the option, if one is unknown, missing, or has a value that does not fit
 */
export function parseCommandLine(options, args, allowPositionals = false) {
  /** @type {Record<string, {type: 'boolean' | 'string', short?: string}>} */
  const table = {};
  for (const [name, { type, short }] of Object.entries(options)) {
    table[name] = { type: type === 'boolean' ? 'boolean' : 'string', ...(short ? { short } : {}) };
  }
  let parsed;
  try {
    parsed = parseArgs({ args, options: table, allowPositionals });
  } catch (error) {
    throw new UsageError((error instanceof Error ? error.message : String(error)).replaceAll('\n', ' '));
  }
  /** @type {Record<string, unknown>} */
  const values = {};
  for (const [name, option] of Object.entries(options)) {
    const given = parsed.values[name];
    if (option.type === 'boolean') values[name] = given ?? option.default ?? false;
    else if (typeof given === 'string') values[name] = convert(name, option, given);
    else if (option.required) throw new UsageError(`--${name} ${option.value ?? 'VALUE'} is required`);
    else values[name] = option.default;
  }
  return { values: /** @type {any} */ (values), positionals: parsed.positionals, given: new Set(Object.keys(parsed.values)) };
}

/**
 * Parses a command line without anything but options.
 * @template {Record<string, Option>} T
 * @param {T} options
 * @param {string[]} [args] without the interpreter and the script
 * @returns {ValuesOf<T>}
 * @throws {UsageError} as `parseCommandLine`
 */
export function parseOptions(options, args = process.argv.slice(2)) {
  return parseCommandLine(options, args).values;
}

/** @param {Option} option */
function placeholder({ type, value, choices }) {
  if (type === 'boolean') return '';
  return ` ${value ?? (choices ? choices.join('|') : type === 'integer' ? 'N' : type === 'number' ? 'X' : 'TEXT')}`;
}

/**
 * The help text of a table of options.
 * @param {string} usage first line, e.g. `node benches/replay.mjs --trace FILE [options]`
 * @param {Record<string, Option>} options
 */
export function helpText(usage, options) {
  const rows = Object.entries(options).map(([name, option]) => {
    const standard = option.default === undefined || option.default === false ? '' : ` (default ${option.default})`;
    return [`--${name}${placeholder(option)}`, option.help + standard];
  });
  const width = Math.max(0, ...rows.map(([left]) => left.length));
  const lines = rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right.replaceAll('\n', `\n${' '.repeat(width + 4)}`)}`);
  return [`Usage: ${usage}`, '', ...lines].join('\n');
}

/**
 * An environment variable as the addon reads its own (docs/environment.md): unset, empty or blank is none.
 * @param {string} name
 */
export function textVariable(name) {
  const text = process.env[name]?.trim();
  return text === '' ? undefined : text;
}

/**
 * A switch of the environment.
 * @param {string} name
 * @param {boolean} [otherwise]
 * @throws {UsageError} that names the variable and its value, if it is neither on nor off
 */
export function switchVariable(name, otherwise = false) {
  const text = textVariable(name);
  if (text === undefined) return otherwise;
  if (/^(1|true|on|yes)$/i.test(text)) return true;
  if (/^(0|false|off|no)$/i.test(text)) return false;
  throw new UsageError(`${name} must be 1, true, on or yes, or 0, false, off or no, got ${text}`);
}

/**
 * A whole number of the environment.
 * @param {string} name
 * @param {{min?: number, max?: number}} [range]
 * @returns {number | undefined}
 * @throws {UsageError} that names the variable and its value
 */
export function integerVariable(name, range = {}) {
  const text = textVariable(name);
  return text === undefined ? undefined : convertNumber(name, { type: 'integer', ...range }, text);
}

/** A failure and what led to it, in one line. @param {unknown} error */
function messageOf(error) {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause instanceof Error && !error.message.includes(error.cause.message) ? `: ${error.cause.message}` : '';
  return `${error.message || error.name}${cause}`;
}

/**
 * Says what went wrong and sets the exit code: 2 where the command line or a variable is at fault, 1 for all else.
 * Stacks are shown with HELIOS_STACKS=1.
 * @param {string} program
 * @param {unknown} error
 */
export function fail(program, error) {
  let stacks = false;
  try {
    stacks = switchVariable('HELIOS_STACKS');
  } catch (nonsense) {
    error = nonsense;
  }
  const usage = error instanceof UsageError;
  console.error(`${program}: ${messageOf(error)}${usage ? ' (see --help)' : ''}`);
  if (stacks) console.error(error);
  process.exitCode = usage ? 2 : 1;
}

/**
 * The options of a program that is one long script: it ends here with `--help`, or where they do not fit.
 * @template {Record<string, Option>} T
 * @param {string} usage
 * @param {T} options
 * @param {{positionals?: boolean}} [more] whether there may be arguments that are no options
 * @returns {{values: ValuesOf<T>, positionals: string[]}}
 */
export function optionsOrExit(usage, options, { positionals: allowed = false } = {}) {
  try {
    const args = process.argv.slice(2);
    if (asksForHelp(args)) {
      console.log(helpText(usage, options));
      process.exit();
    }
    const { values, positionals } = parseCommandLine(options, args, allowed);
    checkPaths(options, values);
    return { values, positionals };
  } catch (error) {
    fail(programName(), error);
    process.exit();
  }
}

/** Whether the file of this URL is what was started. @param {string} url `import.meta.url` */
export function isMain(url) {
  return process.argv[1] !== undefined && pathToFileURL(resolve(process.argv[1])).href === url;
}

const programName = () => basename(process.argv[1] ?? 'helios-vk').replace(/\.mjs$/, '');

/** Whether help is asked for; behind `--` stands what is not ours. @param {string[]} args */
function asksForHelp(args) {
  const end = args.indexOf('--');
  return args.slice(0, end < 0 ? args.length : end).some((word) => word === '--help' || word === '-h');
}

/**
 * Outputs that cannot be written to any more end no work but their own: nobody reads what is said of its progress, and what is to stay
 * is in files. Where the results' reader has gone (`| head`) the program ends in silence, and on a full disk it says so.
 */
function outliveOutputs() {
  process.stderr.on('error', () => {});
  process.stdout.on('error', (error) => {
    if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'EPIPE') {
      console.error(`${programName()}: standard output cannot be written: ${reasonOf(error)}`);
    }
    process.exit(1);
  });
}

/**
 * Runs a program's main function: `--help` prints the help; a failure is one line, see `fail`. What the options name in
 * the file system is looked at first.
 * @template {Record<string, Option>} T
 * @param {string} usage
 * @param {T} options
 * @param {(values: ValuesOf<T>, positionals: string[], given: Set<string>) => Promise<number | void> | number | void} main may return the exit code
 * @param {{positionals?: boolean}} [more] whether there may be arguments that are no options
 */
export async function runMain(usage, options, main, { positionals: allowed = false } = {}) {
  const args = process.argv.slice(2);
  outliveOutputs();
  if (asksForHelp(args)) {
    console.log(helpText(usage, options));
    return;
  }
  try {
    const { values, positionals, given } = parseCommandLine(options, args, allowed);
    checkPaths(options, values);
    process.exitCode = (await main(values, positionals, given)) ?? process.exitCode;
  } catch (error) {
    fail(programName(), error);
  }
}
