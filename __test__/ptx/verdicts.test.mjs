// The verdicts of self-tests on disk: by card, driver, version and text; damage, other keys and folders that cannot be written.

import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, readFileSync, readdirSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { KernelContext } from '../../kernels/base.mjs';
import { kernelSelfTests } from '../../kernels/hopper/self-test.mjs';
import { forgetVerdicts, verdictFile } from '../../kernels/hopper/verdicts.mjs';
import { matmulKernels } from '../../kernels/matmul.mjs';
import { ptxDevice } from './device.mjs';
import { temporaryFolder } from '../lib/folder.mjs';

const root = temporaryFolder();
let folder = '';
let count = 0;
beforeEach(() => {
  folder = join(root, String(count++), 'made', 'on', 'demand');
  forgetVerdicts();
});
afterEach(() => void delete process.env.HELIOS_KEEP_SELF_TESTS);

/** @param {object} [other] @returns {any} */
const infoOf = (other = {}) => ({
  ...{
    deviceName: 'card',
    vendorId: 1,
    deviceId: 2,
    deviceUuid: 'aa',
    driverVersion: 3,
    driverInfo: '1.2',
    ptxExtension: 'x',
    deviceTypeName: 'discrete',
  },
  ...{ cacheFolder: folder, ...other },
});

/**
 * Tests kernels as a new process would, and writes what passed.
 * @param {Record<string, { text?: string, fails?: string }>} kernels by key @param {object} [other] properties of the device
 * @returns {Promise<{ ran: string[], verdicts: string[] }>} which tests ran, and what came of each kernel
 */
async function processOf(kernels, other) {
  forgetVerdicts();
  /** @type {string[]} */
  const ran = [];
  const selfTestOf = kernelSelfTests(/** @type {any} */ ({ info: infoOf(other) }), 'compute');
  const verdicts = Object.entries(kernels).map(([key, { text, fails }]) =>
    selfTestOf(
      key,
      () => {
        ran.push(key);
        return fails;
      },
      text === undefined ? undefined : () => text,
    ),
  );
  await nextTurn();
  return { ran, verdicts };
}

const KERNELS = { a: { text: 'A' }, b: { text: 'B' } };

test('kernels that passed are not tested again, until their text or anything of the key changes', async () => {
  assert.deepEqual((await processOf(KERNELS)).ran, ['a', 'b']);
  assert.equal(readdirSync(folder).length, 1);
  assert.deepEqual(await processOf(KERNELS), { ran: [], verdicts: ['', ''] });
  assert.deepEqual((await processOf({ ...KERNELS, b: { text: 'B2' }, c: { text: 'C' } })).ran, ['b', 'c']);
  assert.deepEqual((await processOf({ ...KERNELS, c: { text: 'C' } })).ran, []);
  const others = { deviceName: 'x', vendorId: 9, deviceId: 9, deviceUuid: 'bb', driverVersion: 9, driverInfo: '1.3', ptxExtension: 'y' };
  for (const [name, value] of Object.entries(others)) {
    assert.deepEqual((await processOf(KERNELS, { [name]: value })).ran, ['a', 'b'], name);
  }
  assert.deepEqual((await processOf(KERNELS)).ran, []);
});

test('failures are not kept, nor anything after one; a kernel without a text is always tested', async () => {
  const warned = new Promise((resolve) => process.once('warning', resolve));
  const wrong = { a: { text: 'A' }, b: { text: 'B', fails: 'its test found 1' }, c: { text: 'C' } };
  assert.deepEqual(await processOf(wrong), { ran: ['a', 'b'], verdicts: ['', 'its test found 1', 'its test found 1'] });
  assert.match(/** @type {Error} */ (await warned).message, /in place of b on card: its test found 1/);
  assert.deepEqual((await processOf({ ...KERNELS, c: { text: 'C' } })).ran, ['b', 'c']);
  assert.deepEqual((await processOf({ d: {} })).ran, ['d']);
  assert.deepEqual((await processOf({ d: {} })).ran, ['d']);
});

test('a damaged file, or one with the content of another, is as none, and is replaced', async () => {
  await processOf(KERNELS);
  const path = /** @type {string} */ (verdictFile(infoOf()));
  const good = readFileSync(path, 'utf8');
  const parsed = JSON.parse(good);
  /** @type {Record<string, () => void>} */
  const damages = {
    cut: () => truncateSync(path, 40),
    empty: () => truncateSync(path, 0),
    'no JSON': () => writeFileSync(path, 'verdicts'.repeat(100)),
    'other JSON': () => writeFileSync(path, '[null]'),
    'a changed digest': () => writeFileSync(path, good.replace(parsed.passed[0], 'A'.repeat(22))),
    'another version': () => writeFileSync(path, JSON.stringify({ ...parsed, key: { ...parsed.key, version: '0.0.0' } })),
    'another format': () => writeFileSync(path, JSON.stringify({ ...parsed, format: 'verdicts' })),
    'too large': () => writeFileSync(path, good + ' '.repeat(2 << 20)),
  };
  for (const [name, damage] of Object.entries(damages)) {
    damage();
    assert.deepEqual((await processOf(KERNELS)).ran, ['a', 'b'], name);
    assert.deepEqual((await processOf(KERNELS)).ran, [], `after ${name}`);
  }
  assert.equal(readFileSync(path, 'utf8'), good);
});

test('two processes at once lose neither verdict', async () => {
  const selfTestOf = kernelSelfTests(/** @type {any} */ ({ info: infoOf() }), 'compute');
  selfTestOf(
    'a',
    () => undefined,
    () => 'A',
  );
  await processOf({ b: { text: 'B' } });
  assert.deepEqual((await processOf(KERNELS)).ran, []);
});

test('a folder that cannot be made or written costs only time; none, or the switch, keeps nothing', async () => {
  const file = join(root, 'file');
  writeFileSync(file, '');
  for (const cacheFolder of [join(file, 'below'), '']) {
    for (let i = 0; i < 2; i++)
      assert.deepEqual(await processOf(KERNELS, { cacheFolder }), { ran: ['a', 'b'], verdicts: ['', ''] }, cacheFolder);
  }
  if (process.getuid?.() !== 0) {
    const closed = mkdtempSync(join(root, 'closed-'));
    chmodSync(closed, 0o500);
    for (let i = 0; i < 2; i++) assert.deepEqual((await processOf(KERNELS, { cacheFolder: closed })).ran, ['a', 'b']);
  }
  await processOf(KERNELS);
  for (const off of ['0', 'off', ' False ']) {
    process.env.HELIOS_KEEP_SELF_TESTS = off;
    assert.deepEqual((await processOf(KERNELS)).ran, ['a', 'b'], off);
  }
  process.env.HELIOS_KEEP_SELF_TESTS = 'on';
  assert.deepEqual((await processOf(KERNELS)).ran, []);
});

test('a kernel of a product runs its own test once for all processes; a test that was replaced keeps nothing', async () => {
  const tiling = { bm: 64, bn: 64, bk: 32, stages: 2, warpgroups: 1, load: 'ld', ahead: 2 };
  /** The number of kernels that ran. @param {object} [options] */
  const ranBy = async (options) => {
    forgetVerdicts();
    const { vk, ran } = ptxDevice({ info: infoOf() });
    const kernels = matmulKernels(new KernelContext(vk), options);
    const [a, b, c] = [0, 1, 2].map(() => vk.createBuffer(1 << 16));
    const plan = { kernel: 'ptx', tiling, wave: 2 };
    kernels.matmul(/** @type {any} */ ({ a, b, c, m: 72, n: 72, k: 40, transB: true, aType: 'bf16', bType: 'bf16', cType: 'bf16', plan }));
    await nextTurn();
    return ran.length;
  };
  assert.equal(await ranBy({ verify: () => undefined }), 0);
  assert.throws(() => statSync(folder), { code: 'ENOENT' });
  assert.equal(await ranBy(), 1);
  assert.equal(await ranBy(), 0);
});
