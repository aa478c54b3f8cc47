// Which kernels in PTX have passed their tests on this machine: one file for each card, driver and version of the package, in the folder of the
// pipeline cache. Only passes are kept: a kernel that failed is tested again by every process. Nothing depends on the file but time, so that
// what cannot be read or written is as if it were not there.

import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { replaceFileSync } from '../files.mjs';
import { ofPackage } from '../package.mjs';

/** @typedef {import('../../index.js').DeviceInfo} DeviceInfo */

const FORMAT = 'helios-vk self-tests 1';
/** Largest file that is read: some ten thousand kernels. */
const MAX_BYTES = 1 << 20;

/** The package's version, which names the tests that were passed. */
const { version } = ofPackage(() => createRequire(import.meta.url)('../../package.json'));

/** The whole key; the file's name has part of it. @param {DeviceInfo} info */
const identityOf = ({ deviceName, vendorId, deviceId, deviceUuid, driverVersion, driverInfo, ptxExtension }) => ({
  ...{ version, deviceName, vendorId, deviceId, deviceUuid, driverVersion, driverInfo, ptxExtension },
});

/** The file of a device, or undefined where none is kept. @param {DeviceInfo} info */
export function verdictFile(info) {
  if (!info.cacheFolder || /^(0|false|off|no)$/i.test(process.env.HELIOS_KEEP_SELF_TESTS?.trim() ?? '')) return undefined;
  const key = createHash('sha256')
    .update(JSON.stringify(identityOf(info)))
    .digest('hex');
  return join(info.cacheFolder, `${key.slice(0, 16)}.self-tests.json`);
}

/** The digests that a file has for a device; none if it is missing, damaged, or of another key. @param {string} path @param {DeviceInfo} info */
function read(path, info) {
  try {
    const there = statSync(path);
    // Reading a pipe would block, and a device file may have no end.
    if (!there.isFile() || there.size > MAX_BYTES) return [];
    const { format, key, passed, checksum } = JSON.parse(readFileSync(path, 'utf8'));
    if (format !== FORMAT || JSON.stringify(key) !== JSON.stringify(identityOf(info))) return [];
    return checksum === checksumOf(passed) ? /** @type {string[]} */ (passed) : [];
  } catch {
    return [];
  }
}

/** @param {string[]} passed */
const checksumOf = (passed) => createHash('sha256').update(JSON.stringify(passed)).digest('hex').slice(0, 16);

/** @typedef {{ passed: (kernel: string) => boolean, add: (kernel: string) => void, write: () => void }} Verdicts */

/** By file, so that a program's kernels share them. @type {Map<string, Verdicts>} */
const opened = new Map();

/**
 * The verdicts of a device, or undefined where none are kept.
 * @param {DeviceInfo} info
 * @returns {Verdicts | undefined} `kernel`: everything that a test depends on, its text above all
 */
export function verdictsOf(info) {
  const path = verdictFile(info);
  if (path === undefined) return undefined;
  const before = opened.get(path);
  if (before) return before;
  const digest = (/** @type {string} */ kernel) => createHash('sha256').update(kernel).digest('base64url').slice(0, 22);
  const known = new Set(read(path, info));
  let waiting = false;
  const verdicts = {
    passed: (/** @type {string} */ kernel) => known.has(digest(kernel)),
    add: (/** @type {string} */ kernel) => {
      known.add(digest(kernel));
      // Kernels come by the dozen: one write for all that a graph needs.
      if (waiting) return;
      waiting = true;
      setImmediate(verdicts.write);
    },
    write: () => {
      waiting = false;
      // Another process may have added some.
      const passed = [...new Set([...read(path, info), ...known])].sort();
      try {
        mkdirSync(info.cacheFolder, { recursive: true });
        replaceFileSync(path, `${JSON.stringify({ format: FORMAT, key: identityOf(info), passed, checksum: checksumOf(passed) })}\n`);
      } catch {
        // The next process tests again.
      }
    },
  };
  opened.set(path, verdicts);
  return verdicts;
}

/** Forgets what was read, as another process would. For tests. */
export const forgetVerdicts = () => opened.clear();
