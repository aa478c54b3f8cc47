/** The fault-injecting layer, as `cargo build --release -p helios-faults` leaves it. */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const TARGET = process.env.CARGO_TARGET_DIR ?? fileURLToPath(new URL('../../target', import.meta.url));
/** Where the library lies. */
export const LIBRARY = join(TARGET, 'release/libhelios_faults.so');

/**
 * The control panel: see the functions of `src/lib.rs`.
 * @typedef {object} Faults
 * @property {(call: string, nth: number, result: string, times?: number) => void} fail
 * @property {(what: string) => void} withhold
 * @property {() => void} tellFaults
 * @property {(extension: 'VK_NVX_binary_import' | 'VK_NV_cuda_kernel_launch') => void} offerPtx
 * @property {() => void} offerTimelines
 * @property {() => void} offerPortability
 * @property {() => void} reset
 * @property {() => Record<string, number>} counts
 * @property {() => Record<string, number>} live
 * @property {() => number} fired
 * @property {() => string[]} violations
 */

/**
 * Puts the layer in front of every device that this process opens from now on.
 * @returns {Faults}
 */
export function install() {
  if (!existsSync(LIBRARY)) throw new Error(`${LIBRARY} is not there: cargo build --release -p helios-faults`);
  const folder = mkdtempSync(join(tmpdir(), 'helios-faults-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  const layer = {
    name: 'VK_LAYER_HELIOS_faults',
    type: 'GLOBAL',
    library_path: LIBRARY,
    api_version: '1.3.0',
    implementation_version: '1',
    description: 'Makes calls fail on demand',
    device_extensions: [
      { name: 'VK_KHR_external_semaphore_fd', spec_version: '1', entrypoints: ['vkGetSemaphoreFdKHR'] },
      { name: 'VK_KHR_portability_subset', spec_version: '1', entrypoints: [] },
      { name: 'VK_EXT_device_fault', spec_version: '2', entrypoints: ['vkGetDeviceFaultInfoEXT'] },
      ...[
        ['VK_NVX_binary_import', 'CuModuleNVX', 'CuFunctionNVX', 'vkCmdCuLaunchKernelNVX'],
        ['VK_NV_cuda_kernel_launch', 'CudaModuleNV', 'CudaFunctionNV', 'vkCmdCudaLaunchKernelNV'],
      ].map(([name, module, kernel, launch]) => ({
        name,
        spec_version: '2',
        entrypoints: [...[module, kernel].flatMap((what) => [`vkCreate${what}`, `vkDestroy${what}`]), launch],
      })),
    ],
  };
  writeFileSync(join(folder, 'faults.json'), JSON.stringify({ file_format_version: '1.2.0', layer }));
  process.env.VK_ADD_LAYER_PATH = folder;
  process.env.VK_INSTANCE_LAYERS = layer.name;
  // Mesa's own layer stands in front and does not look at the result of what it calls.
  process.env.NODEVICE_SELECT = '1';
  // So that the calls that make and destroy an instance are made, and fail, for every device.
  process.env.HELIOS_TEST_NEW_INSTANCES = '1';
  const module = { exports: {} };
  process.dlopen(module, LIBRARY);
  return /** @type {Faults} */ (module.exports);
}
