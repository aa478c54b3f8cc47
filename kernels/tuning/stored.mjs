// The tables that `helios-vk tune` writes: one file for each kind of device and driver, in the folder of the pipeline cache or where
// HELIOS_TUNING says. A table affects speed only: a plan that the device cannot run is ignored.

import { mkdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { notWritten, replaceFileSync } from '../files.mjs';
import { currentName } from '../hopper/tilings.mjs';
import { takeLock, waiting } from '../lock.mjs';
import { CLASSES, classOf, currentClass, entriesOf, formName, lineOf } from './table.mjs';

/** @typedef {import('../../index.js').DeviceInfo} DeviceInfo */
/** @typedef {import('../matmul/types.mjs').Asked} Asked */
/** @typedef {import('../matmul/types.mjs').Choice} Choice */
/** Lines of a table by class, see table.mjs. @typedef {Partial<Record<typeof CLASSES[number], string[]>>} Lines */
/** @typedef {Pick<DeviceInfo, 'deviceName' | 'vendorId' | 'deviceId' | 'driverVersion' | 'driverInfo'>} Identity */
/**
 * A file's content.
 * @typedef {object} Stored
 * @property {string} format FORMAT
 * @property {Identity} device where it was measured
 * @property {string} date day of the last change
 * @property {Lines} faster plans that were measured to be faster than the package's own
 * @property {Lines} kept the package's own plans, of products for which nothing faster was found
 */

export const FORMAT = 'helios-vk tuning 1';
/** Largest file that is read: enough for some ten thousand products. */
const MAX_BYTES = 4 << 20;
/** Longest line, since warnings quote lines. Those that are written have at most about 80 characters. */
const MAX_LINE = 200;

/** What identifies the device and driver of a table. @param {DeviceInfo} info @returns {Identity} */
export const identityOf = ({ deviceName, vendorId, deviceId, driverVersion, driverInfo }) => ({
  deviceName,
  vendorId,
  deviceId,
  driverVersion,
  driverInfo,
});

/**
 * The path of the table of a device.
 * @param {DeviceInfo} info
 * @param {string | false} [given] `tuning` of `createKernels`
 * @returns {{ path: string, named: boolean } | undefined} undefined where none is to be read; `named`: whether the user named this file
 */
export function tableFile(info, given) {
  if (given === false) return undefined;
  if (given !== undefined && (typeof given !== 'string' || given === '')) {
    throw new TypeError(`createKernels: tuning must be the path of a table or false, got ${String(given)}`);
  }
  const text = given ?? process.env.HELIOS_TUNING?.trim() ?? '';
  if (given === undefined && tablesAreOff()) return undefined;
  if (text && (given !== undefined || !/^(1|true|on|yes)$/i.test(text))) return { path: text, named: true };
  if (!info.cacheFolder) return undefined;
  const hex = (/** @type {number} */ x, /** @type {number} */ digits) => x.toString(16).padStart(digits, '0');
  const name = `${hex(info.vendorId, 4)}-${hex(info.deviceId, 4)}-${hex(info.driverVersion, 8)}.tuning.json`;
  return { path: join(info.cacheFolder, name), named: false };
}

/**
 * Lines with the current names of classes and tilings: tables on users' disks may have former ones.
 * @param {Record<string, string[]>} lines @returns {Lines}
 */
function currentLines(lines) {
  /** @type {Record<string, string[]>} */
  const current = {};
  for (const [name, list] of Object.entries(lines)) {
    const renamed = list.map((line) => {
      const [product, tile, ...rest] = line.split('|').map((part) => part.trim());
      return tile === undefined ? line : [product, currentName(tile), ...rest].join(' | ');
    });
    current[currentClass(name)] = [...(current[currentClass(name)] ?? []), ...renamed];
  }
  return current;
}

/**
 * Lines that somebody else wrote, with current names.
 * @param {string} part what they are, for errors @param {unknown} lines
 * @returns {Lines}
 * @throws {Error} that says what is wrong with them
 */
export function checkedLines(part, lines) {
  if (typeof lines !== 'object' || lines === null || Array.isArray(lines)) throw new Error(`${part} must be an object`);
  for (const [name, list] of Object.entries(lines)) {
    if (!CLASSES.some((known) => known === currentClass(name)))
      throw new Error(`${part} has an unknown class ${name}; the classes are ${CLASSES.join(', ')}`);
    if (!Array.isArray(list) || !list.every((line) => typeof line === 'string' && line.length <= MAX_LINE)) {
      throw new Error(`${part}.${name} must be lines of text`);
    }
  }
  const current = currentLines(/** @type {Record<string, string[]>} */ (lines));
  for (const [name, list] of Object.entries(current)) entriesOf(name, list);
  return current;
}

/**
 * Reads a table's file, and replaces former names by current ones.
 * @param {string} path @param {DeviceInfo} info the device that the table must be for
 * @returns {Stored}
 * @throws {Error} that says why the file is not used
 */
export function readStored(path, info) {
  const there = statSync(path);
  // Reading a pipe would block, and a device file may have no end.
  if (!there.isFile()) throw new Error('it is not a file');
  if (there.size > MAX_BYTES) throw new Error(`it has ${there.size} bytes, more than ${MAX_BYTES}`);
  const stored = /** @type {Stored} */ (JSON.parse(readFileSync(path, 'utf8')));
  if (stored?.format !== FORMAT) throw new Error(`it is not a table of the format "${FORMAT}"`);
  const here = identityOf(info);
  for (const key of /** @type {const} */ (['deviceName', 'vendorId', 'deviceId', 'driverVersion', 'driverInfo'])) {
    if (stored.device?.[key] !== here[key]) {
      const there = String(stored.device?.[key]).slice(0, 100);
      throw new Error(`it is of another device or driver: its ${key} is ${there}, here it is ${here[key]}`);
    }
  }
  for (const part of /** @type {const} */ (['faster', 'kept'])) stored[part] = checkedLines(part, stored[part]);
  return stored;
}

/** Messages already shown, so that a program with many kernels warns once. @type {Set<string>} */
const warned = new Set();

/** @param {string} path @param {unknown} error */
function refuse(path, error) {
  const message = `the tuning table ${path} is not used: ${/** @type {Error} */ (error).message}`;
  if (warned.has(message)) return;
  warned.add(message);
  process.emitWarning(message, { type: 'HeliosWarning', code: 'HELIOS_TUNING' });
}

/** Why a plan of a table that was written on this machine is used, and why one that this process timed. */
const MEASURED = 'measured on this machine';
export const SELF_TUNED = 'timed on this machine when it was compiled';

/** Whether HELIOS_TUNING turns tables off. */
export const tablesAreOff = () => /^(0|false|off|no)$/i.test(process.env.HELIOS_TUNING?.trim() ?? '');

/** A product in the terms of a table's line. @param {string} name of the class @param {import('./table.mjs').Shape} shape */
const keyOf = (name, { form, m, n, k }) => `${name} ${form} ${m} ${n} ${k}`;

/** What was measured on this machine: plans that are faster than the package's own, and products whose own plans are the fastest. */
export class MachinePlans {
  constructor() {
    /** @type {Map<string, { plan: Choice, line: string }>} */
    this.faster = new Map();
    /** Products that keep the package's plan, with their lines. @type {Map<string, string>} */
    this.kept = new Map();
  }

  /**
   * The plans of a table. One that is damaged, or of another device, is ignored with a warning.
   * @param {DeviceInfo} info @param {string | false} [given] `tuning` of `createKernels`
   */
  static of(info, given) {
    const plans = new MachinePlans();
    const file = tableFile(info, given);
    if (!file) return plans;
    try {
      plans.take(readStored(file.path, info));
    } catch (error) {
      if (file.named || /** @type {NodeJS.ErrnoException} */ (error).code !== 'ENOENT') refuse(file.path, error);
    }
    return plans;
  }

  /**
   * Adds a table's lines.
   * @param {Pick<Stored, 'faster' | 'kept'>} lines @param {(line: string) => string} [because] the reason of a plan, by its line
   * @throws {SyntaxError} that quotes the first line that is not valid; nothing is then added
   */
  take({ faster, kept }, because = () => MEASURED) {
    const parsed = [faster, kept].map((part) =>
      Object.entries(part).flatMap(([name, lines]) =>
        entriesOf(name, lines).map(({ plan, ...shape }, i) => ({ key: keyOf(name, shape), plan, line: lines[i] })),
      ),
    );
    for (const { key, line } of parsed[1]) {
      this.kept.set(key, line);
      this.faster.delete(key);
    }
    // A product in both parts has the faster plan.
    for (const { key, plan, line } of parsed[0]) {
      this.faster.set(key, { plan: { ...plan, because: because(line) }, line });
      this.kept.delete(key);
    }
  }

  /** All as lines of a table. @returns {{ faster: Lines, kept: Lines }} */
  lines() {
    /** @type {{ faster: Lines, kept: Lines }} */
    const all = { faster: {}, kept: {} };
    const add = (/** @type {'faster' | 'kept'} */ part, /** @type {string} */ key, /** @type {string} */ line) => {
      const name = /** @type {typeof CLASSES[number]} */ (key.split(' ')[0]);
      all[part][name] = [...(all[part][name] ?? []), line];
    };
    for (const [key, { line }] of this.faster) add('faster', key, line);
    for (const [key, line] of this.kept) add('kept', key, line);
    return all;
  }

  /** Forgets everything. */
  clear() {
    this.faster.clear();
    this.kept.clear();
  }

  /** The plan of a product, or undefined where none was measured to be faster than the package's. @param {Asked} problem */
  plan(problem) {
    return problem.batch === 1 ? this.faster.get(keyOf(classOf(problem), { ...problem, form: formName(problem) }))?.plan : undefined;
  }

  /** Whether nothing was found to be faster than the package's plan of a product. @param {Asked} problem */
  keeps(problem) {
    return problem.batch === 1 && this.kept.has(keyOf(classOf(problem), { ...problem, form: formName(problem) }));
  }
}

/** @param {string} path its folder is made if it does not exist @param {string} text @param {{ tryOnly?: boolean }} [options] */
function write(path, text, options) {
  try {
    mkdirSync(dirname(path), { recursive: true });
    replaceFileSync(path, text, options);
  } catch (cause) {
    throw notWritten(path, cause);
  }
}

/**
 * Tests whether a table can be written to `path`, without changing it.
 * @param {string} path
 * @throws {Error} that says why not
 */
export const tryToWrite = (path) => write(path, FORMAT, { tryOnly: true });

/**
 * Writes a table. A reader sees the old file or the new one, whole.
 * @param {string} path @param {Stored} stored
 * @throws {Error} that names the path; the old file is then unchanged
 */
export const writeStored = (path, stored) => write(path, `${JSON.stringify(stored, null, 1)}\n`);

/** Milliseconds that a process waits for another one to write the same table. Writing takes a few. */
const LOCK_MS = 10_000;

/**
 * What was measured of a product.
 * @typedef {object} Result
 * @property {typeof CLASSES[number]} name its class
 * @property {import('./table.mjs').Shape} shape
 * @property {string} [error] why there is no measurement; such results are left out
 * @property {Choice} [plan] the fastest plan
 * @property {number} [us] its microseconds
 * @property {boolean} [faster] whether it is faster than the package's own by more than the noise
 */

/**
 * Lines of results: those with a faster plan, and those that keep the package's.
 * @param {Result[]} results @param {Pick<Stored, 'faster' | 'kept'>} [before] lines that stay, unless a result is of the same product
 * @returns {Pick<Stored, 'faster' | 'kept'>}
 */
export function linesOf(results, { faster, kept } = { faster: {}, kept: {} }) {
  for (const { name, shape, error, plan, us, faster: gains } of results) {
    if (error || us === undefined || plan === undefined) continue;
    const line = lineOf(name, shape, plan, us);
    const product = line.split('|')[0];
    for (const [part, takes] of /** @type {const} */ ([
      [faster, gains],
      [kept, !gains],
    ])) {
      const others = (part[name] ?? []).filter((other) => !other.startsWith(product));
      const lines = takes ? [...others, line] : others;
      if (lines.length > 0) part[name] = lines;
      else delete part[name];
    }
  }
  return { faster, kept };
}

/**
 * Adds results to the table in a file. Its other products are kept, even those of processes that write at the same time: a file `path.lock`
 * marks the one that does.
 * @param {string} path @param {Identity} device @param {Result[]} results
 * @param {number} [waitMs] after this time another process's lock counts as left behind by one that was killed
 * @returns {string | undefined} a note if the existing file is replaced, with the reason
 * @throws {Error} that names the path
 */
export function addResults(path, device, results, waitMs = LOCK_MS) {
  const name = `${path}.lock`;
  let lock;
  try {
    mkdirSync(dirname(name), { recursive: true });
    lock = takeLock(name, waiting(waitMs));
  } catch (cause) {
    throw new Error(`${path} was not written: its lock ${name} could not be taken: ${/** @type {Error} */ (cause).message}`, { cause });
  }
  try {
    let note;
    /** @type {Pick<Stored, 'faster' | 'kept'> | undefined} */
    let before;
    try {
      before = readStored(path, /** @type {DeviceInfo} */ (device));
    } catch (error) {
      const { code, message } = /** @type {NodeJS.ErrnoException} */ (error);
      if (code !== 'ENOENT') note = `${path} is replaced: ${message}`;
    }
    writeStored(path, { format: FORMAT, device, date: new Date().toISOString().slice(0, 10), ...linesOf(results, before) });
    return note;
  } finally {
    lock.release();
  }
}
