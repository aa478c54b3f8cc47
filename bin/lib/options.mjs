/**
 * Command lines and environment variables of all programs here. A table gives names, types, ranges, defaults and help. A wrong value is
 * an error that names it, before any work is done.
 */

import { closeSync, fstatSync, lstatSync, openSync, readdirSync, realpathSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

/**
 * The kind of path that a string option names, checked before any work: a file or a folder to read, either of them, files to read
 * separated by commas, a module (whose loader reports errors), a file to write, one to add to, or a folder to write into, which may not
 * exist yet.
 * @typedef {'input' | 'input-folder' | 'input-any' | 'input-list' | 'module' | 'output' | 'update' | 'output-folder'} PathKind
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
 * @property {RegExp} [files] of a folder: names of the files in it that the program reads or writes
 * @property {RegExp} [pattern] what a string must match; `value` describes it in words
 * @property {boolean} [empty] whether a string may be empty
 * @property {boolean} [required]
 * @property {boolean} [multiple] of a string: may be given several times; the value is a list, empty when left out
 * @property {string} [short] one letter
 */

/** An error in what the user typed: shown without a stack. */
export class UsageError extends Error {}

/** Decimal numbers. `Number` also takes hexadecimal, blanks and empty text, which are more likely mistakes. */
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

/** The reason of a failed file operation, in words for the user. @param {unknown} error */
export function reasonOf(error) {
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

/** What is at a path, if anything. A dangling link is an error: nothing is created through it. @param {string} path */
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
  // The processes of a run check the same file; another one may have removed it first.
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
  if (kind === 'module') return;
  if (isOutput(kind)) tryToWrite(path);
  else if (kind === 'output-folder') tryToWrite(`${nearestFolder(path)}/.helios-vk-${process.pid}-${Date.now()}`);
  else {
    const folder = statSync(path).isDirectory();
    if (folder && (kind === 'input' || kind === 'input-list')) throw Object.assign(new Error(), { code: 'EISDIR' });
    if (!folder && kind === 'input-folder') throw Object.assign(new Error(), { code: 'ENOTDIR' });
    if (!folder && statSync(path).isFile()) closeSync(openSync(path, 'r'));
  }
}

const isOutput = (/** @type {PathKind} */ kind) => kind === 'output' || kind === 'update';

/** @param {import('node:fs').BigIntStats} file */
const keyOf = ({ dev, ino }) => `${dev} ${ino}`;

/** The real path of a file that may not exist yet. @param {string} path @returns {string} */
function realPath(path) {
  try {
    return realpathSync(path);
  } catch (error) {
    const above = dirname(resolve(path));
    if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'ENOENT' || above === resolve(path)) throw error;
    return join(realPath(above), basename(path));
  }
}

/**
 * Identifies a file, whatever path leads to it: links of either kind, `/dev/fd/3`. For a file that does not exist yet it is the path.
 * @param {string} path
 * @returns {string | undefined} undefined for a folder, a device or a pipe, and if the file cannot be examined
 */
function fileKey(path) {
  try {
    const there = statSync(path, { bigint: true, throwIfNoEntry: false });
    if (there) return there.isFile() ? keyOf(there) : undefined;
    return realPath(path);
  } catch {
    return undefined;
  }
}

/** Whether two paths lead to one file. @param {string} one @param {string} other */
export const isSameFile = (one, other) => fileKey(one) !== undefined && fileKey(one) === fileKey(other);

/**
 * A file that a program reads or writes, or those of a folder.
 * @typedef {object} Use
 * @property {string} name as the user wrote it
 * @property {string} says how an error about another use describes this one
 * @property {boolean} writes
 * @property {string} [kin] uses with the same kin may share a file
 * @property {string} [path]
 * @property {string} [key] see `fileKey`
 * @property {(other: Use) => boolean} [holds] of a folder: whether the file of another use is one of its files
 */

/** Variables that name files which are read although no option names them. */
const INPUT_VARIABLES = ['HELIOS_TUNING', 'HELIOS_NATIVE_ADDON', 'HELIOS_TEST_ADDON', 'HELIOS_VULKAN_LOADER', 'HELIOS_NCCL_LIBRARY'];

/**
 * Where standard output and standard error go, if to a file.
 * @returns {Use[]}
 */
function standardUses() {
  return ['standard output', 'standard error'].flatMap((name, i) => {
    try {
      const there = fstatSync(i + 1, { bigint: true });
      return there.isFile() ? [{ name, says: `${name} goes to the same file`, writes: true, kin: 'standard', key: keyOf(there) }] : [];
    } catch {
      return [];
    }
  });
}

/**
 * @param {string} option @param {string} path @param {PathKind} kind @param {RegExp | undefined} files
 * @returns {Use}
 */
function useOf(option, path, kind, files) {
  const writes = isOutput(kind) || kind === 'output-folder';
  /** @type {Use} */
  const use = {
    name: `${option} ${path}`,
    says: `${option} ${writes ? 'writes' : 'reads'} the same file`,
    writes,
    path,
    key: fileKey(path),
  };
  // The table that results are added to may be the one in use.
  if (kind === 'update') use.kin = 'variables';
  if (files === undefined) return use;
  const there = statSync(path, { throwIfNoEntry: false })?.isDirectory();
  const keys = new Set((there ? readdirSync(path) : []).filter((name) => files.test(name)).map((name) => fileKey(join(path, name))));
  const folder = realPath(path);
  // A run may continue in the folder of its checkpoints.
  return {
    ...use,
    kin: 'folders',
    holds: (other) => {
      const at = other.path === undefined ? undefined : realPath(other.path);
      return keys.has(other.key ?? '') || (at !== undefined && dirname(at) === folder && files.test(basename(at)));
    },
  };
}

/** Throws if one use writes a file that another use names. @param {Use[]} uses */
function checkApart(uses) {
  for (const [i, one] of uses.entries()) {
    for (const other of uses.slice(0, i)) {
      if (!(one.writes || other.writes) || (one.kin !== undefined && one.kin === other.kin)) continue;
      const same = (one.key !== undefined && one.key === other.key) || one.holds?.(other) || other.holds?.(one);
      if (same) throw new UsageError(`${one.name}: ${other.says}`);
    }
  }
}

/**
 * Checks every file and folder that the options name. An output must not be a file that is read, or another output: its contents would
 * be lost.
 * @param {Record<string, Option>} options
 * @param {Record<string, unknown>} values
 * @param {Record<string, string>} [more] further files that are read, by what they are
 * @throws {UsageError} that names the option and the path
 */
export function checkPaths(options, values, more = {}) {
  const uses = standardUses();
  for (const name of INPUT_VARIABLES) {
    const path = textVariable(name);
    if (path !== undefined)
      uses.push({ name, says: `${name} names the same file`, writes: false, kin: 'variables', path, key: fileKey(path) });
  }
  for (const [name, path] of Object.entries(more)) {
    try {
      tryPath('input-any', path);
    } catch (error) {
      throw new UsageError(`${name} cannot be read: ${reasonOf(error)}`);
    }
    uses.push({ name, says: `it is ${name}`, writes: false, path, key: fileKey(path) });
  }
  for (const [name, { path: kind, files }] of Object.entries(options)) {
    const value = values[name];
    if (kind === undefined || typeof value !== 'string') continue;
    for (const path of kind === 'input-list' ? value.split(',') : [value]) {
      try {
        tryPath(kind, path);
        uses.push(useOf(`--${name}`, path, kind, files));
      } catch (error) {
        const doing = isOutput(kind) || kind === 'output-folder' ? 'cannot be written' : 'cannot be read';
        throw new UsageError(`--${name} ${path}: ${doing}: ${reasonOf(error)}`);
      }
    }
  }
  checkApart(uses);
}

/**
 * @template {Record<string, Option>} T
 * @typedef {{[K in keyof T]: T[K]['type'] extends 'boolean' ? boolean
 *   : T[K] extends {multiple: true} ? string[]
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
  /** @type {Record<string, {type: 'boolean' | 'string', short?: string, multiple: boolean}>} */
  const table = {};
  for (const [name, { type, short, multiple = false }] of Object.entries(options)) {
    table[name] = { type: type === 'boolean' ? 'boolean' : 'string', ...(short ? { short } : {}), multiple };
  }
  // `parseArgs` takes a negative number for an option of its own.
  const isNumber = (/** @type {string} */ word) => ['integer', 'number'].includes(options[word.replace(/^--/, '')]?.type);
  /** @type {string[]} */
  const joined = [];
  for (const word of args) {
    const before = joined.at(-1) ?? '';
    if (before.startsWith('--') && isNumber(before) && /^-[\d.]/.test(word)) joined[joined.length - 1] = `${before}=${word}`;
    else joined.push(word);
  }
  let parsed;
  try {
    parsed = parseArgs({ args: joined, options: table, allowPositionals });
  } catch (error) {
    const message = (error instanceof Error ? error.message : String(error)).replaceAll('\n', ' ');
    const unknown = /^Unknown option '--([^']+)'/.exec(message)?.[1];
    const near = unknown && nearest(unknown, Object.keys(options));
    throw new UsageError(unknown ? `--${unknown}: no such option${near ? `; the nearest is --${near}` : ''}` : message);
  }
  /** @type {Record<string, unknown>} */
  const values = {};
  for (const [name, option] of Object.entries(options)) {
    const given = parsed.values[name];
    if (option.type === 'boolean') values[name] = given ?? option.default ?? false;
    else if (option.multiple) values[name] = [given ?? []].flat().map((text) => convert(name, option, String(text)));
    else if (typeof given === 'string') values[name] = convert(name, option, given);
    else if (option.required) throw new UsageError(`--${name} ${option.value ?? 'VALUE'} is required`);
    else values[name] = option.default;
  }
  return { values: /** @type {any} */ (values), positionals: parsed.positionals, given: new Set(Object.keys(parsed.values)) };
}

/** The letters to insert, delete or replace to make one word of another (Levenshtein 1966). @param {string} a @param {string} b */
function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (const [i, letter] of [...a].entries()) {
    const above = row;
    row = [i + 1];
    for (let k = 0; k < b.length; k++) row.push(Math.min(row[k] + 1, above[k + 1] + 1, above[k] + Number(letter !== b[k])));
  }
  return row[b.length];
}

/**
 * The known name that a word is nearest to, whatever its case, hyphens and underscores; undefined where it is part of none and half of its letters
 * differ.
 * @param {string} word @param {readonly string[]} names
 */
export function nearest(word, names) {
  // A longer word resembles none.
  const plain = (/** @type {string} */ name) => name.toLowerCase().replaceAll(/[-_]/g, '').slice(0, 40);
  const ranked = names.map((name) => ({ name, away: distance(plain(name), plain(word)) }));
  const best = ranked.reduce((near, each) => (each.away < near.away ? each : near));
  if (best.away < plain(word).length / 2) return best.name;
  return word.length < 3 ? undefined : names.find((name) => plain(name).includes(plain(word)));
}

/** @param {Option} option */
function placeholder({ type, value, choices }) {
  if (type === 'boolean') return '';
  return ` ${value ?? (choices ? choices.join('|') : type === 'integer' ? 'N' : type === 'number' ? 'X' : 'TEXT')}`;
}

/**
 * The help text of a table of options.
 * @param {string} usage first line, e.g. `node packages/alpha-backend/bench/replay.mjs --trace FILE [options]`
 * @param {Record<string, Option>} options
 */
export function helpText(usage, options) {
  const rows = Object.entries(options).map(([name, option]) => {
    const standard = [undefined, false, ''].includes(/** @type {any} */ (option.default)) ? '' : ` (default ${option.default})`;
    return [`--${name}${placeholder(option)}`, option.help + standard];
  });
  const width = Math.max(0, ...rows.map(([left]) => left.length));
  const lines = rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right.replaceAll('\n', `\n${' '.repeat(width + 4)}`)}`);
  return [`Usage: ${usage}`, '', ...lines].join('\n');
}

/**
 * An environment variable, read by the addon's rule (docs/environment.md): unset, empty or blank means none.
 * @param {string} name
 */
function textVariable(name) {
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

/** A failure and its causes, in one line. @param {unknown} error */
function messageOf(error) {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause instanceof Error && !error.message.includes(error.cause.message) ? `: ${error.cause.message}` : '';
  return `${error.message || error.name}${cause}`;
}

/**
 * Prints what went wrong and sets the exit code: 2 if the command line or a variable is wrong, 1 for everything else.
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
 * The options of a program that is one long script. Ends the program on `--help` and on wrong options.
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

/** Whether the file of this URL is the program that was started. @param {string} url `import.meta.url` */
export function isMain(url) {
  return process.argv[1] !== undefined && pathToFileURL(resolve(process.argv[1])).href === url;
}

const programName = () => basename(process.argv[1] ?? 'helios-vk').replace(/\.mjs$/, '');

/** Whether the user asks for help; words after `--` are not ours. @param {string[]} args */
function asksForHelp(args) {
  const end = args.indexOf('--');
  return args.slice(0, end < 0 ? args.length : end).some((word) => word === '--help' || word === '-h');
}

/**
 * Handles standard streams that can no longer be written. Without a reader of standard error the work continues: results are in files.
 * Without a reader of standard output (`| head`) the program ends silently; on a full disk it ends with an error.
 * @param {(closed: boolean) => void} [end] ends the program, once: at once, with status 1, when left out. `closed`: whether there is no reader
 */
export function outliveOutputs(end = () => process.exit(1)) {
  let ended = false;
  process.stderr.on('error', () => {});
  process.stdout.on('error', (error) => {
    if (ended) return;
    ended = true;
    const closed = /** @type {NodeJS.ErrnoException} */ (error).code === 'EPIPE';
    if (!closed) console.error(`${programName()}: standard output cannot be written: ${reasonOf(error)}`);
    end(closed);
  });
}

/**
 * Whether a line that was written can be written over: `stream` is a terminal, and not one that knows no commands (`TERM=dumb`), such as an editor's.
 * @param {{ isTTY?: boolean }} stream @param {NodeJS.ProcessEnv} [env]
 */
export const canRedraw = (stream, env = process.env) => stream.isTTY === true && env.TERM !== 'dumb';

/**
 * Runs a program's main function. `--help` prints the help; a failure is one line, see `fail`. The files that the options name are
 * checked first.
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
