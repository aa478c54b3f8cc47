/**
 * Kernels in PTX over the stand-in for the extensions: the tests of `__test__/ptx-pipelines.test.mjs` with each of them, the
 * calls that make modules and functions fail in every place, and what a device says that is made without.
 *
 *   cargo build --release -p helios-faults && node --expose-gc --test __test__/faults/ptx.test.mjs
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { vk } from '../lib/addon.mjs';
import { fails } from '../lib/expect.mjs';
import { MODULE, incrementPtx, kernelOf, moduleOf, reversePtx, scaleAddPtx } from '../lib/ptx.mjs';
import { PTX_STEPS } from './scenario.mjs';
import { LOST, faults, nothingLives, walk } from './walk.mjs';

const [NV, NVX] = /** @type {const} */ (['VK_NV_cuda_kernel_launch', 'VK_NVX_binary_import']);

for (const extension of [NV, NVX]) {
  test(`the tests of pipelines in PTX, over ${extension}`, async (t) => {
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const preload = `${new URL('offer-ptx.mjs', import.meta.url)}?${extension}`;
    const file = fileURLToPath(new URL('../ptx-pipelines.test.mjs', import.meta.url));
    const args = ['--import', preload, '--test-reporter=tap', file];
    const { stdout } = await promisify(execFile)(process.execPath, args, { env, maxBuffer: 1 << 24 }).catch((error) =>
      assert.fail(`${error.stdout}\n${error.stderr}`),
    );
    const count = (/** @type {string} */ what) => Number(stdout.match(new RegExp(`^# ${what} (\\d+)$`, 'm'))?.[1]);
    t.diagnostic(`${count('pass')} passed`);
    // One is for devices without.
    assert.deepEqual([count('fail'), count('skipped')], [0, 1], stdout);
    assert.ok(count('pass') > 20, stdout);
  });
}

const device = (/** @type {() => void} */ set) => {
  faults.reset();
  set();
  return vk.initDevice();
};
/** @param {string[]} parts */
const refused = (...parts) => fails(() => vk.createPipeline(kernelOf(incrementPtx)), 'ERR_HELIOS_UNSUPPORTED', parts);
const offer = (/** @type {Parameters<typeof faults.offerPtx>[0][]} */ ...extensions) => extensions.forEach((e) => faults.offerPtx(e));

// Before the walk: a process writes a few reports and no more.
test('the report of a lost device names kernels and their buffers', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'helios-reports-'));
  const before = process.env.HELIOS_REPORT_DIR;
  process.env.HELIOS_REPORT_DIR = folder;
  try {
    device(() => offer(NVX));
    const pipeline = vk.createPipeline({ ...kernelOf(reversePtx), name: 'turns it round' });
    const [x, y] = [vk.createBuffer(4096, 0), vk.createBuffer(4096, 0)];
    vk.setName(x, 'from');
    vk.setName(y, 'to');
    faults.fail('vkQueueSubmit', 1, LOST);
    /** @type {any} */
    const error = fails(() => {
      vk.dispatch(pipeline, [{ buffer: x, offset: 256 }, y], 2, 1, 1, Uint32Array.of(128));
      vk.readBuffer(y);
    }, 'ERR_HELIOS_DEVICE_LOST');
    const { batches } = JSON.parse(readFileSync(error.report, 'utf8'));
    const launches = batches.flatMap((/** @type {any} */ batch) => batch.commands).filter((/** @type {any} */ c) => 'dispatch' in c);
    assert.deepEqual(launches, [
      {
        dispatch: 'turns it round',
        pipeline,
        groups: [2, 1, 1],
        buffers: [
          { handle: x, name: 'from', bytes: 4096 },
          { handle: y, name: 'to', bytes: 4096 },
        ],
      },
    ]);
    vk.destroy();
    await nothingLives('after the loss');
  } finally {
    if (before === undefined) delete process.env.HELIOS_REPORT_DIR;
    else process.env.HELIOS_REPORT_DIR = before;
    rmSync(folder, { recursive: true, force: true });
  }
});

walk('PTX by VK_NVX_binary_import', { ptx: NVX, steps: PTX_STEPS, calls: (call) => /Cu(da)?(Module|Function)|vkQueueSubmit/.test(call) });
walk('PTX by VK_NV_cuda_kernel_launch', { ptx: NV, steps: PTX_STEPS, calls: (call) => /Cu(da)?(Module|Function)/.test(call) });

test('of two extensions the documented one is taken, if its feature is there', async () => {
  const of = (/** @type {() => void} */ set) => {
    const { hasPtx, ptxExtension, computeCapability, multiprocessors } = device(set);
    vk.destroy();
    return [hasPtx, ptxExtension, computeCapability, multiprocessors];
  };
  assert.deepEqual(
    of(() => offer(NVX)),
    [true, NVX, '', 0],
  );
  assert.deepEqual(
    of(() => offer(NV, NVX)),
    [true, NV, '9.0', 132],
  );
  const withhold = () => faults.withhold('cudaKernelLaunchFeatures');
  assert.deepEqual(
    of(() => [offer(NV, NVX), withhold()]),
    [true, NVX, '9.0', 132],
  );
  assert.deepEqual(
    of(() => [offer(NV), withhold()]),
    [false, '', '9.0', 132],
  );
  assert.deepEqual(
    of(() => [offer(NV), faults.withhold('bufferDeviceAddress')]),
    [false, '', '9.0', 132],
  );
  assert.deepEqual(
    of(() => {}),
    [false, '', '', 0],
  );
  await nothingLives('after six devices');
});

test('where the driver makes no device with the extension there is one without, which says why', async () => {
  for (const extension of [NV, NVX]) {
    for (const result of ['ERROR_EXTENSION_NOT_PRESENT', 'ERROR_INITIALIZATION_FAILED', 'ERROR_FEATURE_NOT_PRESENT', 'ERROR_UNKNOWN']) {
      const info = device(() => {
        offer(extension);
        faults.fail('vkCreateDevice', 1, result);
      });
      assert.deepEqual([info.hasPtx, info.ptxExtension, faults.fired()], [false, '', 1]);
      refused(extension, result);
      const x = vk.createBuffer(64);
      vk.fillBuffer(x, 64, 3);
      assert.equal(new Uint32Array(vk.readBuffer(x).buffer)[15], 3, 'all else works');
      vk.destroy();
      await nothingLives(result);
      // Twice is the device's own trouble.
      fails(
        () =>
          device(() => {
            offer(extension);
            faults.fail('vkCreateDevice', 1, result, 2);
          }),
        'ERR_HELIOS_VULKAN',
        [result],
      );
      await nothingLives(`${result}, twice`);
    }
    // A shortage is not the extension's fault, and may be over next time.
    fails(
      () =>
        device(() => {
          offer(extension);
          faults.fail('vkCreateDevice', 1, 'ERROR_OUT_OF_DEVICE_MEMORY');
        }),
      'ERR_HELIOS_OUT_OF_MEMORY',
    );
    assert.equal(vk.initDevice().hasPtx, true);
    vk.destroy();
  }
});

test('a driver that lists the extension and lacks a function of it runs no PTX', async () => {
  for (const [extension, missing] of /** @type {const} */ ([
    [NV, 'vkCmdCudaLaunchKernelNV'],
    [NVX, 'vkDestroyCuFunctionNVX'],
  ])) {
    const info = device(() => {
      offer(extension);
      faults.withhold(missing);
    });
    assert.equal(info.hasPtx, false);
    refused(extension, 'lacks');
    vk.destroy();
  }
  await nothingLives('without functions');
});

test('equal modules are one, and go with the last of their kernels', async () => {
  device(() => offer(NVX));
  const calls = () => faults.counts().vkCreateCuModuleNVX ?? 0;
  const live = () => [faults.live()['PTX module'] ?? 0, faults.live()['PTX function'] ?? 0];
  const [a, b] = [vk.createPipeline(kernelOf(incrementPtx)), vk.createPipeline(kernelOf(reversePtx, new TextEncoder().encode(MODULE)))];
  const again = vk.createPipeline(kernelOf(incrementPtx));
  assert.deepEqual([calls(), ...live()], [1, 1, 2]);
  const other = vk.createPipeline(kernelOf(incrementPtx, moduleOf(incrementPtx)));
  const larger = vk.createPipeline({ ...kernelOf(scaleAddPtx), sharedBytes: 16 });
  assert.deepEqual([calls(), ...live()], [2, 2, 4]);
  for (const pipeline of [a, again, other]) vk.destroyPipeline(pipeline);
  vk.waitIdle();
  assert.deepEqual(live(), [1, 2]);
  for (const pipeline of [b, larger]) vk.destroyPipeline(pipeline);
  vk.waitIdle();
  assert.deepEqual(live(), [0, 0]);
  vk.destroyPipeline(vk.createPipeline(kernelOf(incrementPtx)));
  assert.equal(calls(), 3);
  vk.destroy();
  await nothingLives('after the modules');
});

test('parameters of other sizes are refused where each is given by itself, and taken as a block', async () => {
  const odd = { ...kernelOf(reversePtx), pushBytes: 8 };
  const ptx = MODULE.replace(/(entry reverse\([^)]*)\.param \.u32 p2/, '$1.param .u64 p2');
  device(() => offer(NV));
  fails(() => vk.createPipeline({ ...odd, ptx }), 'ERR_HELIOS_UNSUPPORTED', [NV, 'reverse', '4 for each word']);
  const cubin = Uint8Array.from([0x7f, ...new TextEncoder().encode('ELF\0.text.reverse\0')]);
  fails(() => vk.createPipeline({ ...odd, ptx: cubin }), 'ERR_HELIOS_UNSUPPORTED', [NV, 'not known']);
  vk.destroy();
  device(() => offer(NVX));
  assert.ok(vk.createPipeline({ ...odd, ptx }) > 0);
  vk.destroy();
  await nothingLives('after odd parameters');
});
