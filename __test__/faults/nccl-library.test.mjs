/**
 * NCCL's own library on a machine without CUDA's driver: it is found and reports its version, and a group over it fails on every rank
 * with an error that names what is missing. `__test__/distributed/nccl.test.mjs` tests it on a device.
 *
 *   pip download --no-deps nvidia-nccl-cu13 && unzip nvidia_nccl_cu13-*.whl   (305 MB)
 *   HELIOS_NCCL_LIBRARY=nvidia/nccl/lib node scripts/test.mjs --only nccl-library
 */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { engines } from '../../distributed/index.mjs';
import { ranks } from '../distributed/ranks.mjs';
import { init } from '../lib/addon.mjs';
import { build, library } from './cc.mjs';
import { temporaryFolder } from '../lib/folder.mjs';

const named = process.env.HELIOS_NCCL_LIBRARY;
const ldconfig = spawnSync('ldconfig', ['-p'], { encoding: 'utf8' }).stdout ?? '';
const skip = !named ? 'HELIOS_NCCL_LIBRARY names no NCCL' : ldconfig.includes('libcuda.so.1') && 'there is a driver of CUDA';
const LIMIT = { timeout: 120_000, skip };
const nodeArgs = ['--import', new URL('offer-timelines.mjs', import.meta.url).href];

/** Both ranks have this error. @param {import('../distributed/ranks.mjs').Ran} ran @param {string} code @param {RegExp} message */
function bothFail({ said, output }, code, message) {
  assert.equal(said.length, 2, output);
  for (const { error } of said) {
    assert.equal(error?.code, code, output);
    assert.match(error.message, message);
  }
}

test('the library is found, and says which version it is', LIMIT, async (t) => {
  const { engines: found } = await engines();
  const nccl = found.find(({ engine }) => engine === 'nccl');
  assert.match(nccl?.version ?? '', /^2\.\d+\.\d+$/);
  assert.ok(nccl?.library.startsWith(String(named)), nccl?.library);
  t.diagnostic(`NCCL ${nccl?.version}`);
});

test('a device that exports no timelines is named', LIMIT, async () => {
  const needs = /cannot share timeline semaphores \(VK_KHR_external_semaphore_fd\), which NCCL needs/;
  bothFail(await ranks(2, ['no-engine']), 'ERR_HELIOS_ENGINE', needs);
});

test('without a driver, that is named with what was tried', LIMIT, async () => {
  const tried = /no driver of CUDA loads\. Tried:\s+libcuda\.so\.1: .*cannot open shared object file/;
  bothFail(await ranks(2, ['no-engine'], { nodeArgs }), 'ERR_HELIOS_NO_ENGINE', tried);
});

test("with a driver that NCCL cannot use, NCCL's own error is named", LIMIT, async (t) => {
  const obstacle = build('nccl');
  if (obstacle) return t.skip(obstacle);
  const folder = temporaryFolder(t);
  copyFileSync(library('nccl'), join(folder, 'libcuda.so.1'));
  const environment = { LD_LIBRARY_PATH: folder, HELIOS_STUB_FOLDER: folder, HELIOS_STUB_UUID: init().deviceUuid };
  const ran = await ranks(2, ['no-engine'], { nodeArgs, environment });
  t.diagnostic(ran.said[0]?.error?.message ?? ran.output);
  assert.equal(ran.said.length, 2, ran.output);
  // The one that fails first says why; the other may hear of it.
  const codes = ran.said.map(({ error }) => error?.code);
  assert.ok(codes.includes('ERR_HELIOS_ENGINE'), ran.output);
  for (const code of codes) assert.match(code, /^ERR_HELIOS_(ENGINE|PEER_LOST|ABORTED)$/, ran.output);
  assert.match(ran.output, /nccl[A-Z]\w+/);
});
