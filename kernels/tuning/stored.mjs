// The tables that `helios-vk tune` writes: one file for each kind of device and driver, in the folder of the pipeline cache or where
// HELIOS_TUNING says. A table affects speed only: a plan that the device cannot run is ignored.

import { mkdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { notWritten, replaceFileSync } from '../files.mjs';
import { currentName } from '../hopper/tilings.mjs';
import { CLASSES, classOf, currentClass, entriesOf, formName } from './table.mjs';

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
  if (given === undefined && /^(0|false|off|no)$/i.test(text)) return undefined;
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
  for (const part of /** @type {const} */ (['faster', 'kept'])) {
    const lines = stored[part];
    if (typeof lines !== 'object' || lines === null || Array.isArray(lines)) throw new Error(`${part} must be an object`);
    for (const [name, list] of Object.entries(lines)) {
      if (!CLASSES.some((known) => known === currentClass(name)))
        throw new Error(`${part} has an unknown class ${name}; the classes are ${CLASSES.join(', ')}`);
      if (!Array.isArray(list) || !list.every((line) => typeof line === 'string' && line.length <= MAX_LINE)) {
        throw new Error(`${part}.${name} must be lines of text`);
      }
    }
    stored[part] = currentLines(lines);
    for (const [name, list] of Object.entries(stored[part])) entriesOf(name, list);
  }
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

/**
 * The plans that were measured on this machine to be faster than the package's own. A table that is damaged, or of another device, is ignored
 * with a warning.
 * @param {DeviceInfo} info @param {string | false} [given] `tuning` of `createKernels`
 * @returns {((problem: Asked) => Choice | undefined) | undefined} the plan of a product, or undefined where none was measured
 */
export function storedPlans(info, given) {
  const file = tableFile(info, given);
  if (!file) return undefined;
  /** @type {Map<string, Choice>} */
  const plans = new Map();
  try {
    const { faster } = readStored(file.path, info);
    for (const [name, lines] of Object.entries(faster)) {
      for (const { form, m, n, k, plan } of entriesOf(name, lines))
        plans.set(`${name} ${form} ${m} ${n} ${k}`, { ...plan, because: 'measured on this machine' });
    }
  } catch (error) {
    if (file.named || /** @type {NodeJS.ErrnoException} */ (error).code !== 'ENOENT') refuse(file.path, error);
    return undefined;
  }
  return (problem) => {
    const { m, n, k, batch } = problem;
    return batch === 1 ? plans.get(`${classOf(problem)} ${formName(problem)} ${m} ${n} ${k}`) : undefined;
  };
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
