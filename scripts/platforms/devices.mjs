#!/usr/bin/env node
// Runs tests of kernels and compiled functions with the limits of devices that are not here (__test__/devices/facts.json) imposed: on this
// machine's driver, and those with matrices on the lavapipe of a newer Mesa, where a root of it can be made.
//
//   node scripts/platforms/devices.mjs [NAME…] [--files PATTERN] [--record]
//
//   NAME       only these devices, as facts.json has them
//   --files    only test files whose path matches, for every device
//   --record   writes docs/devices.json, and the table in docs/testing.md
//
// Devices whose limits are the driver's wherever it has less are one run. All files run with the limits that differ the most, few with others.

import { spawn, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';

import { USABLE, infoOf } from '../../__test__/devices/device.mjs';
import { infoWith } from '../../__test__/devices/impose.mjs';
import { UsageError, runMain } from '../../bin/lib/options.mjs';
import { obstacle } from '../mesa-root.mjs';
import { tests } from '../test-commands.mjs';
import { FILES } from '../test-files.mjs';
import { leftOut, withTable } from './devices-table.mjs';
import { REPOSITORY } from './tools.mjs';

const RESULTS = join(REPOSITORY, 'docs/devices.json');
const PAGE = join(REPOSITORY, 'docs/testing.md');

/** Devices with the limits that differ the most from lavapipe's: all files run there. */
const FARTHEST = ['the least of Vulkan 1.3', 'Mali-G720', 'RX 7900 XTX'];
/** Files that run in a minute or two. */
const FEW = /\/kernels\/(indexing|matmul|normalization)\.test/;
/** Files whose kernels multiply matrices. Attention's need subgroups that skip blocks, which lavapipe's cannot (docs/drivers.md). */
const OF_MATRICES = /\/kernels\/(convolution|matmul)\.test/;

/** @typedef {import('./devices-table.mjs').Found} Found */
/** @typedef {import('./devices-table.mjs').Info} Info */

/** Devices that are the same once limited by a driver. @param {any} driver @param {string[]} names */
function groupsOn(driver, names) {
  /** @type {Map<string, string[]>} */
  const groups = new Map();
  for (const name of names) {
    const { deviceName, ...rest } = infoWith(driver, name);
    // The tables of measured plans go by the name.
    const key = JSON.stringify([/\bH[12]00\b/.test(deviceName), rest]);
    groups.set(key, [...(groups.get(key) ?? []), name]);
  }
  return [...groups.values()];
}

/**
 * A command of Node with an environment, of which the root of a newer Mesa keeps only some.
 * @param {string[]} inside what the command begins with to run on a driver @param {Record<string, string>} environment @param {string[]} args
 */
function commandOf(inside, environment, args) {
  if (inside.length === 0) return { command: process.execPath, args };
  const [command, ...rest] = [...inside, 'env', ...Object.entries(environment).map(([name, value]) => `${name}=${value}`), 'node', ...args];
  return { command, args: rest };
}

/** What the addon says of a driver. @param {string[]} inside @param {Record<string, string>} environment @returns {Info} */
function driverOf(inside, environment) {
  const say = 'process.stdout.write(JSON.stringify(require("./index.js").initDevice()))';
  const { command, args } = commandOf(inside, environment, ['-e', say]);
  const { stdout, stderr, status } = spawnSync(command, args, {
    cwd: REPOSITORY,
    encoding: 'utf8',
    env: { ...process.env, ...environment },
  });
  if (status !== 0) throw new Error(`the driver could not be asked: ${stderr}`);
  return JSON.parse(stdout.slice(stdout.indexOf('{')));
}

/** Runs test files, and reads the report. @param {string[]} inside @param {Record<string, string>} environment @param {string[]} files */
async function outcomeOf(inside, environment, files) {
  const began = Date.now();
  const [, ...options] = tests(files).map((arg) => (arg === '--test-reporter=spec' ? '--test-reporter=tap' : arg));
  const { command, args } = commandOf(inside, environment, options);
  const child = spawn(command, args, { cwd: REPOSITORY, env: { ...process.env, ...environment }, stdio: ['ignore', 'pipe', 'inherit'] });
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (chunk) => (said += chunk));
  const status = await new Promise((resolve) => child.on('close', resolve));
  const count = (/** @type {string} */ what) => Number(new RegExp(`^# ${what} (\\d+)`, 'm').exec(said)?.[1] ?? 0);
  const failed = [...said.matchAll(/^ *not ok \d+ - (.*)$/gm)].map(([, name]) => name);
  if (status !== 0) {
    process.stdout.write(said);
    if (failed.length === 0) failed.push(`the tests ended with ${status}`);
  }
  return { passed: count('pass'), skipped: count('skipped'), failed, minutes: Math.ceil((Date.now() - began) / 60_000) };
}

const OPTIONS = /** @type {const} */ ({
  files: { type: 'string', value: 'PATTERN', help: 'only test files whose path matches, for every device' },
  record: { type: 'boolean', help: 'write docs/devices.json and the table in docs/testing.md' },
});

/** @param {{ files?: string, record?: boolean }} values @param {string[]} [names] */
async function main({ files: pattern, record = false }, names = []) {
  for (const name of names) if (!USABLE.includes(name)) throw new UsageError(`no device ${name}: facts.json has ${USABLE.join(', ')}`);
  const wanted = names.length > 0 ? names : USABLE;
  const asked = FILES.devices().filter((file) => pattern === undefined || new RegExp(pattern).test(file));
  if (asked.length === 0) throw new UsageError(`--files ${pattern}: no test file of this stage matches`);
  const few = pattern === undefined ? asked.filter((file) => FEW.test(file)) : asked;
  const ofMatrices = asked.filter((file) => OF_MATRICES.test(file));
  /** @type {Found[]} */
  const results = [];
  /** @param {string[]} inside @param {string[]} devices that are the same there @param {string} width of a vector, in bits @param {string[]} files */
  const runOn = async (inside, devices, width, files) => {
    // Lavapipe's subgroups have as many lanes as a vector has words. LLVM's passes (15) lose the upper half of some vectors of 512 bits.
    const vectors = { LP_NATIVE_VECTOR_WIDTH: width, ...(width === '512' ? { GALLIVM_PERF: 'nopt' } : {}) };
    const { deviceName, driverInfo, ...driver } = driverOf(inside, vectors);
    const left = [...new Set(devices.flatMap((name) => leftOut(infoOf(name), driver)))];
    const which =
      files.length === FILES.devices().length ? `all ${files.length} files` : files.map((file) => basename(file, '.test.mjs')).join(', ');
    console.log(`with the limits of ${devices.join(', ')} on ${deviceName} ${driverInfo}: ${which}`);
    for (const what of left) console.log(`  not here: ${what}`);
    const outcome = await outcomeOf(inside, { HELIOS_TEST_LIGHT: '1', HELIOS_TEST_DEVICE: devices[0], ...vectors }, files);
    const { passed, skipped, failed, minutes } = outcome;
    console.log(`  ${passed} passed, ${skipped} skipped, in ${minutes} min${failed.length > 0 ? `; FAILED: ${failed.join(', ')}` : ''}`);
    const date = new Date().toISOString().slice(0, 10);
    const found = { date, devices, driver: `${deviceName} ${driverInfo}`, files: which, ...outcome, left };
    results.push(found);
    if (record) write(found);
  };

  for (const devices of groupsOn(driverOf([], {}), wanted)) {
    const far = devices.some((name) => FARTHEST.includes(name));
    await runOn([], devices, infoOf(devices[0]).subgroupSize === 16 ? '512' : '256', far ? asked : few);
  }

  const reason = obstacle();
  if (reason) console.log(`plans with matrices: skipped: ${reason}`);
  else if (ofMatrices.length > 0) {
    const inside = [process.execPath, join('scripts', 'mesa-root.mjs'), 'run', '--'];
    const withMatrices = wanted.filter((name) => infoOf(name).coopMatSupported);
    for (const devices of groupsOn(driverOf(inside, {}), withMatrices)) await runOn(inside, devices, '256', ofMatrices);
  }

  return results.every(({ failed }) => failed.length === 0) ? 0 : 1;
}

/** Puts a result in the place of what is recorded of its devices on this driver. @param {Found} result */
function write(result) {
  /** @type {Found[]} */
  const known = JSON.parse(readFileSync(RESULTS, 'utf8'));
  const others = known.filter(({ driver, devices }) => driver !== result.driver || !devices.some((name) => result.devices.includes(name)));
  writeFileSync(RESULTS, `${JSON.stringify([...others, result], null, 2)}\n`);
  writeFileSync(PAGE, withTable(readFileSync(PAGE, 'utf8'), [...others, result]));
}

await runMain('node scripts/platforms/devices.mjs [NAME…] [options]', OPTIONS, main, { positionals: true });
