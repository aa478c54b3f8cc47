/**
 * The device of macOS: a driver that is not wholly Vulkan and says so, as MoltenVK does, without file descriptors to share memory by and
 * without kernels in PTX. The loader leaves such a driver out, and the driver makes no device, unless they are asked for it.
 *
 *   cargo build --release -p helios-faults && node --expose-gc --test __test__/faults/portability.test.mjs
 */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { test } from 'node:test';
import { drivers } from '../../bin/lib/manifests.mjs';
import { vk } from '../lib/addon.mjs';
import { fails } from '../lib/expect.mjs';
import { temporaryFolder } from '../lib/folder.mjs';
import { increment } from '../lib/programs.mjs';
import { incrementPtx, kernelOf } from '../lib/ptx.mjs';
import { faults, nothingLives } from './walk.mjs';

const { platform, arch, env } = process;
const folder = temporaryFolder();

// The drivers of this machine, by manifests that say what MoltenVK's says.
const manifests = drivers({ platform, arch, env, home: homedir(), root: '/' }).filter(({ ignored, exists }) => ignored === null && exists);
const portable = manifests.map(({ file, library, libraryPath }, i) => {
  const manifest = JSON.parse(readFileSync(file, 'utf8'));
  manifest.ICD.library_path = library !== null && isAbsolute(library) ? library : (libraryPath ?? library);
  manifest.ICD.is_portability_driver = true;
  const path = join(folder, `${i}.json`);
  writeFileSync(path, JSON.stringify(manifest));
  return path;
});
process.env.VK_DRIVER_FILES = process.env.VK_ICD_FILENAMES = portable.join(':');

/** What MoltenVK has not. */
const MISSING = ['VK_KHR_external_memory_fd', 'VK_KHR_external_semaphore_fd', 'VK_NV_cuda_kernel_launch', 'VK_NVX_binary_import'];

test('a device of the portability subset computes; it shares no memory and takes no PTX, and says so', async () => {
  assert.ok(portable.length > 0, 'there is no driver');
  faults.reset();
  faults.offerPortability();
  for (const extension of MISSING) faults.withhold(extension);
  const { deviceName, hasPtx, ptxExtension, bufferExportSupported, bufferImportSupported } = vk.initDevice();
  assert.deepEqual([hasPtx, ptxExtension, bufferExportSupported, bufferImportSupported], [false, '', false, false]);
  const n = 1000;
  const x = vk.createBuffer(4 * n, 0);
  vk.uploadBuffer(
    x,
    Uint32Array.from({ length: n }, (_, i) => i),
  );
  const pipeline = vk.createPipeline(increment.spirv, increment.bindings, increment.pushBytes);
  vk.dispatch(pipeline, [x], Math.ceil(n / 64), 1, 1, Uint32Array.of(n, 7));
  const words = new Uint32Array(vk.readBuffer(x).slice().buffer);
  assert.deepEqual(
    words,
    Uint32Array.from({ length: n }, (_, i) => i + 7),
  );
  fails(() => vk.exportBuffer(x), 'ERR_HELIOS_UNSUPPORTED', ['exportBuffer', deviceName]);
  fails(() => vk.createPipeline(kernelOf(incrementPtx)), 'ERR_HELIOS_UNSUPPORTED', [deviceName]);
  vk.destroy();
  await nothingLives('portability subset');
  assert.deepEqual(faults.violations(), []);
});
