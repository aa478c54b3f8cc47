/**
 * Whether work of Vulkan and of CUDA runs at the same time on one device, as a collective of NCCL would beside a backward pass: each alone,
 * and both together. CUDA's work is a kernel of one block that waits (overlap.c), or copies to the next device; Vulkan's are matrix products.
 * With `--peers`, two processes copy to each other's device (lib/overlap-peers.mjs).
 */

import { createRequire } from 'node:module';
import { resolve } from 'node:path';

import { createKernels, pack } from '../kernels/index.mjs';
import { OWN_ADDON, addonPath, loadAddon } from './lib/addon.mjs';
import { UsageError, runMain } from './lib/args.mjs';
import { measurePeers } from './lib/overlap-peers.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';
import { format, median, textTable } from './lib/stats.mjs';

const USAGE = 'node benches/overlap.mjs --module FILE [options]';
const OPTIONS = /** @type {const} */ ({
  addon: { type: 'string', value: 'PATH', path: 'module', default: OWN_ADDON, help: 'the addon to measure' },
  module: { type: 'string', value: 'FILE', path: 'input', required: true, help: 'overlap.c, built as its top says' },
  size: { type: 'integer', default: 4096, min: 64, max: 16_384, help: 'rows of the matrices' },
  products: { type: 'integer', default: 8, min: 1, max: 10_000, help: 'products of a list' },
  blocks: { type: 'integer', default: 1, min: 1, max: 10_000, help: "blocks of CUDA's kernel" },
  copies: { type: 'boolean', help: "CUDA's work is copies to the next device, or to the host where there is none, in place of a kernel" },
  peers: { type: 'boolean', help: "in place of all that, two processes that copy to each other's device" },
  devices: { type: 'string', value: 'A,B', default: '0,1', help: 'the devices of --peers, as HELIOS_DEVICE has them' },
  gradients: { type: 'integer', default: 1152, min: 2, max: 8192, help: 'MiB of gradients that --peers exchanges' },
  pieces: { type: 'string', value: 'A,B…', default: '32,64', help: 'MiB of the pieces of --peers' },
  samples: { type: 'integer', default: 9, min: 1, max: 10_000, help: 'samples of each figure' },
  ...RESULTS_OPTION,
});

const now = performance.now.bind(performance);

/**
 * Prints a table for each group of figures, and keeps them where a folder is given.
 * @param {string} title
 * @param {{ device: string, driver: string | undefined, figures: import('./lib/results.mjs').Figure[] }} measured
 * @param {number} samples
 * @param {string | undefined} results
 */
function report(title, { device, driver, figures }, samples, results) {
  if (results) writeResults(results, { bench: 'overlap', title, device, driver, figures });
  console.log(`${device}, driver ${driver}; ${title}; medians of ${samples}`);
  for (const group of new Set(figures.map((figure) => figure.group))) {
    const own = figures.filter((figure) => figure.group === group);
    const series = [...new Set(own.map((figure) => figure.series))];
    const rows = [...new Set(own.map(({ name }) => name))].map((name) => [
      name,
      ...series.map((one) => format(own.find((figure) => figure.name === name && figure.series === one)?.value ?? NaN)),
    ]);
    console.log(`\n${textTable([`${group}, ${own[0].unit}`, ...series], rows)}`);
  }
}

/** The settings of `--peers` that must fit together. @param {{ devices: string, pieces: string, gradients: number }} values */
function peerSettings({ devices, pieces, gradients }) {
  const pair = devices.split(',');
  if (pair.length !== 2 || pair.includes('')) throw new UsageError(`--devices ${devices}: must be two devices`);
  const sizes = pieces.split(',').map(Number);
  const fits = (/** @type {number} */ piece) =>
    Number.isInteger(piece) && piece > 0 && (gradients / 2) % piece === 0 && gradients / 2 / piece <= 256;
  if (!sizes.every(fits)) throw new UsageError(`--pieces ${pieces}: must divide half of --gradients ${gradients} into 256 pieces at most`);
  if (new Set(sizes).size < sizes.length) throw new UsageError(`--pieces ${pieces}: one is there twice`);
  return { devices: /** @type {[string, string]} */ (pair), pieces: sizes };
}

await runMain(USAGE, OPTIONS, async (values) => {
  const { addon, module, size, products, blocks, copies, samples, results } = values;
  if (values.peers) {
    if (copies) throw new UsageError('--copies: --peers copies already');
    const { devices, pieces } = peerSettings(values);
    const settings = { addon: addonPath(addon), module: resolve(module), size, products, samples, gradients: values.gradients, pieces };
    report('Copies between two processes beside matrix products', await measurePeers(settings, devices), samples, results);
    return;
  }
  const vk = /** @type {typeof import('../index.js')} */ (loadAddon(addonPath(addon)));
  const device = vk.initDevice();
  const kernels = createKernels(vk);
  /** @type {{ start: (microseconds: number, blocks: number) => void, copy: (times: number) => void, finish: () => void }} */
  const cuda = createRequire(import.meta.url)(resolve(module));
  const bytes = 4 * size * size;
  const [a, b, c] = Array.from({ length: 3 }, () => {
    const buffer = vk.createBuffer(bytes, 0);
    vk.fillBuffer(buffer, bytes, 0);
    return buffer;
  });
  const { packed, count } = pack(Array.from({ length: products }, () => kernels.matmul({ a, b, c, m: size, n: size, k: size })));
  const vulkanAlone = () => {
    const start = now();
    vk.waitTimeline(vk.batchExecuteAll(packed, count));
    return now() - start;
  };
  vulkanAlone();
  // CUDA's work takes as long as Vulkan's.
  const microseconds = 1000 * median(Array.from({ length: 3 }, vulkanAlone));
  const timeCopies = (/** @type {number} */ times) => {
    const start = now();
    cuda.copy(times);
    cuda.finish();
    return now() - start;
  };
  if (copies) timeCopies(1);
  const times = copies ? Math.max(1, Math.round((8 * microseconds) / 1000 / timeCopies(8))) : 0;
  const launch = () => (copies ? cuda.copy(times) : cuda.start(microseconds, blocks));
  const cudaAlone = () => {
    const start = now();
    launch();
    cuda.finish();
    return now() - start;
  };
  cudaAlone();
  const together = () => {
    const start = now();
    launch();
    vk.waitTimeline(vk.batchExecuteAll(packed, count));
    cuda.finish();
    return now() - start;
  };
  /** @type {[string, () => number, number[]][]} */
  const rows = [
    ['Vulkan alone', vulkanAlone, []],
    ['CUDA alone', cudaAlone, []],
    ['both', together, []],
  ];
  for (let i = 0; i < samples; i++) for (const [, measure, runs] of rows) runs.push(measure());
  const what = copies ? `${times} copies of 64 MiB` : `${blocks} block${blocks === 1 ? '' : 's'}`;
  const title = `Work of Vulkan and of CUDA (${what}) alone and together`;
  const figures = rows.map(([name, , runs]) => ({ group: title, name, series: 'milliseconds', unit: 'ms', runs, value: median(runs) }));
  report(title, { device: device.deviceName, driver: device.driverInfo, figures }, samples, results);
});
