/** Command-line options of the benches: one table says names, types, defaults and help. */

import { parseArgs } from 'node:util';

/**
 * @typedef {object} Option
 * @property {'string' | 'boolean' | 'integer' | 'number'} type
 * @property {string | number | boolean} [default]
 * @property {string} help one line
 * @property {string} [value] the placeholder shown in the help, e.g. `FILE`
 * @property {readonly string[]} [choices] the only strings allowed
 * @property {number} [min] smallest number allowed
 * @property {boolean} [required]
 */

/** An error in what the user typed: shown without a stack. */
export class UsageError extends Error {}

/**
 * @param {string} name
 * @param {Option} option
 * @param {string} text
 * @returns {string | number}
 */
function convert(name, option, text) {
  if (option.type === 'string') {
    if (option.choices && !option.choices.includes(text)) {
      throw new UsageError(`--${name} ${text}: must be one of ${option.choices.join(', ')}`);
    }
    return text;
  }
  const value = text.trim() === '' ? NaN : Number(text);
  if (!Number.isFinite(value) || (option.type === 'integer' && !Number.isSafeInteger(value))) {
    throw new UsageError(`--${name} ${text}: must be ${option.type === 'integer' ? 'an integer' : 'a number'}`);
  }
  if (option.min !== undefined && value < option.min) {
    throw new UsageError(`--${name} ${text}: must be at least ${option.min}`);
  }
  return value;
}

/**
 * Parses options by their table.
 * @template {Record<string, Option>} T
 * @param {T} options
 * @param {string[]} [args] without the interpreter and the script
 * @returns {{[K in keyof T]: T[K]['type'] extends 'boolean' ? boolean
 *   : (T[K]['type'] extends 'string' ? string : number)
 *     | (T[K] extends {default: unknown} | {required: true} ? never : undefined)}}
 * @throws {UsageError} that names the option, if one is unknown, missing, or has a value that does not fit
 */
export function parseOptions(options, args = process.argv.slice(2)) {
  /** @type {Record<string, {type: 'boolean' | 'string'}>} */
  const table = {};
  for (const [name, option] of Object.entries(options)) {
    table[name] = { type: option.type === 'boolean' ? 'boolean' : 'string' };
  }
  let values;
  try {
    ({ values } = parseArgs({ args, options: table, allowPositionals: false }));
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
  /** @type {Record<string, unknown>} */
  const result = {};
  for (const [name, option] of Object.entries(options)) {
    const given = values[name];
    if (option.type === 'boolean') result[name] = given ?? option.default ?? false;
    else if (typeof given === 'string') result[name] = convert(name, option, given);
    else if (option.required) throw new UsageError(`--${name} ${option.value ?? 'VALUE'} is required`);
    else result[name] = option.default;
  }
  return /** @type {any} */ (result);
}

/**
 * The help text of a table of options.
 * @param {string} usage first line, e.g. `node benches/replay.mjs --trace FILE [options]`
 * @param {Record<string, Option>} options
 */
export function helpText(usage, options) {
  const rows = Object.entries(options).map(([name, option]) => {
    const value = option.type === 'boolean' ? '' : ` ${option.value ?? (option.choices ? option.choices.join('|') : 'N')}`;
    const standard = option.default === undefined || option.default === false ? '' : ` (default ${option.default})`;
    return [`--${name}${value}`, option.help + standard];
  });
  const width = Math.max(...rows.map(([left]) => left.length));
  return [`Usage: ${usage}`, '', ...rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`)].join('\n');
}

/**
 * Runs a bench's main function: `--help` prints the help, a UsageError prints its message alone, exit code 2;
 * any other error its stack, exit code 1.
 * @template {Record<string, Option>} T
 * @param {string} usage
 * @param {T} options
 * @param {(values: ReturnType<typeof parseOptions<T>>) => Promise<void>} main
 */
export async function runMain(usage, options, main) {
  const args = process.argv.slice(2);
  if (args.includes('--help') || args.includes('-h')) {
    console.log(helpText(usage, options));
    return;
  }
  try {
    await main(parseOptions(options, args));
  } catch (error) {
    if (error instanceof UsageError) {
      console.error(`${error.message}\n\n${helpText(usage, options)}`);
      process.exitCode = 2;
    } else {
      console.error(error);
      process.exitCode = 1;
    }
  }
}
