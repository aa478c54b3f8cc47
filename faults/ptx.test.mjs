/**
 * Kernels in PTX over the stand-in for the extensions: `__test__/ptx-pipelines.test.mjs` once for each way of launching, what
 * the device says, what happens where it is not made with the extension.
 *
 *   cargo build --release -p helios-faults && node --test faults/ptx.test.mjs
 *
 * HELIOS_FAULTS_PTX names the extension; without it the file runs itself once for each.
 */
import { install } from './layer.mjs';

const faults = install();
faults.offerPtx(process.argv[2] ?? 'VK_NVX_binary_import');
await import('../__test__/ptx-pipelines.test.mjs');
