/**
 * `benches/overlap.mjs --peers` over the CUDA of `nccl.c`: two processes on the software device measure, what they report, and how they end
 * where a call fails.
 *
 *   node --test faults/overlap.test.mjs
 */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { init } from '../__test__/lib/addon.mjs';
import { build, library } from './cc.mjs';

const path = (/** @type {string} */ name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'helios-overlap-'));
after(() => rmSync(folder, { recursive: true }));
const module = join(folder, 'overlap.node');
const obstacle = build('nccl');
if (!obstacle) {
  copyFileSync(library('nccl'), join(folder, 'libcuda.so.1'));
  const options = ['-O2', '-Wall', '-Wextra', '-Werror', '-shared', '-fPIC', '-o', module, path('benches/overlap.c'), '-ldl', '-lpthread'];
  const { status, stderr } = spawnSync('cc', options, { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
}
const { deviceUuid } = init();

/** @param {string[]} args @param {Record<string, string>} [environment] */
function overlap(args, environment = {}) {
  const small = ['--size', '64', '--products', '2', '--gradients', '8', '--pieces', '1,2', '--samples', '1'];
  return spawnSync(process.execPath, [path('benches/overlap.mjs'), '--module', module, '--peers', ...small, ...args], {
    encoding: 'utf8',
    timeout: 100_000,
    env: { ...process.env, LD_LIBRARY_PATH: folder, HELIOS_STUB_FOLDER: folder, HELIOS_STUB_UUID: deviceUuid, ...environment },
  });
}
const same = ['--devices', `${deviceUuid},${deviceUuid}`];

describe('copies between two processes', { skip: obstacle ?? false, timeout: 240_000 }, () => {
  test('are checked, measured in every case, and kept', () => {
    const results = join(folder, 'results');
    const { status, stdout, stderr } = overlap([...same, '--results', results, '--samples', '2']);
    assert.equal(status, 0, stderr);
    const books = [...stderr.matchAll(/"violations":(\[.*\])/g)].map(([, list]) => JSON.parse(list));
    assert.deepEqual(books, [[], []]);
    const [file, ...others] = readdirSync(results);
    assert.deepEqual(others, []);
    const { bench, figures } = JSON.parse(readFileSync(join(results, file), 'utf8'));
    assert.equal(bench, 'overlap');
    const count = (/** @type {string} */ group) =>
      figures.filter((/** @type {{ group: string }} */ figure) => figure.group.startsWith(group)).length;
    // By pieces and alone or beside: 4 kinds of copies; 3 of sums, in 2 ways of looking; the products beside each, and alone.
    assert.deepEqual(['Copies', 'All copies', 'A hand-over', 'Matrix products'].map(count), [16, 24, 8, 1 + 8 + 12]);
    for (const { name, value, runs } of figures) assert.ok(value > 0 && runs.length === 2, name);
    assert.match(stdout, /until the other process has heard of it, busy loop/);
  });

  test('leave out what the driver does not do', () => {
    const { status, stdout, stderr } = overlap(same, { HELIOS_STUB_FAIL: 'cuMemcpyBatchAsync:1' });
    assert.equal(status, 0, stderr);
    assert.match(stderr, /rank 0: copies with the hint to overlap are left out: cuMemcpyBatchAsync failed: CUDA_ERROR_UNKNOWN \(999\)/);
    assert.doesNotMatch(stdout, /asked to overlap/);
  });

  test('end soon, and name the call, where one fails', () => {
    for (const call of ['cuInit:1', 'cuDeviceGetUuid_v2:1', 'cuImportExternalMemory:1', 'cuMemAlloc_v2:1', 'cuIpcOpenMemHandle_v2:1'])
      fails(call);
    for (const call of ['cuEventQuery:30', 'cuEventRecord:60', 'cuMemcpyDtoDAsync_v2:100', 'cuMemcpyBatchAsync:50']) fails(call);
  });

  /** @param {string} call */
  function fails(call) {
    const started = performance.now();
    const { status, stdout, stderr } = overlap(same, { HELIOS_STUB_FAIL: call });
    assert.equal(status, 1, call);
    assert.equal(stdout, '');
    assert.ok(stderr.includes(`${call.split(':')[0]} failed: CUDA_ERROR_UNKNOWN (999)`), `${call}: ${stderr}`);
    assert.ok(performance.now() - started < 15_000, call);
  }

  test('need CUDA, two devices and pieces that fit', () => {
    const broken = join(folder, 'broken');
    mkdirSync(broken);
    writeFileSync(join(broken, 'libcuda.so.1'), '');
    /** @type {[string[], Record<string, string>, RegExp][]} */
    const cases = [
      [same, { LD_LIBRARY_PATH: broken }, /^overlap: no CUDA: .*libcuda\.so\.1/m],
      [['--devices', '0'], {}, /--devices 0: must be two devices/],
      [['--pieces', '3'], {}, /--pieces 3: must divide half of --gradients 8 into 256 pieces at most/],
      [['--pieces', '2,2'], {}, /--pieces 2,2: one is there twice/],
      [['--copies'], {}, /--copies: --peers copies already/],
    ];
    for (const [args, environment, message] of cases) {
      const { status, stderr } = overlap(args, environment);
      assert.notEqual(status, 0, `${args}`);
      assert.match(stderr, message);
    }
  });
});
