#!/usr/bin/env node
/**
 * Measures what safe mode costs: the same work with and without it, in turn, each round in fresh processes. Every result must be equal in both.
 */

import { createHash } from 'node:crypto';

import { elementwiseKernels } from '../kernels/elementwise.mjs';
import { KernelContext, pack } from '../kernels/base.mjs';
import { matmulKernels } from '../kernels/matmul.mjs';
import { normalizationKernels } from '../kernels/normalization.mjs';
import { softmaxKernels } from '../kernels/softmax.mjs';
import { addonPath, isWorker, loadAddon, OWN_ADDON, runWorker, serveWorker } from './lib/addon.mjs';
import { runMain } from '../bin/lib/options.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';
import { format, median, spread, textTable } from './lib/stats.mjs';

const USAGE = 'node benches/safe-mode.mjs [options]';
const OPTIONS = /** @type {const} */ ({
  addon: { type: 'string', value: 'PATH', path: 'module', default: OWN_ADDON, help: 'the addon to measure' },
  rounds: { type: 'integer', default: 3, min: 1, help: 'processes for each mode, in turn' },
  samples: { type: 'integer', default: 10, min: 1, help: 'samples of each figure in a round' },
  quick: { type: 'boolean', help: 'one round of two small samples, to see that everything runs' },
  json: { type: 'boolean', help: 'print JSON' },
  ...RESULTS_OPTION,
});

const now = performance.now.bind(performance);

/**
 * Measures in this process.
 * @param {{ addon: string, samples: number, quick: boolean, safe: boolean }} job
 */
function measure({ addon, samples, quick, safe }) {
  const vk = loadAddon(addon);
  const start = now();
  const { deviceName, driverInfo, robustness } = vk.initDevice({ safe });
  const init = (now() - start) * 1000;
  const context = new KernelContext(/** @type {any} */ (vk), { check: false });
  const [matmul, elementwise, normalization, softmax] = [
    matmulKernels(context),
    elementwiseKernels(context),
    normalizationKernels(context),
    softmaxKernels(context),
  ];
  const size = quick ? 64 : 512;
  const elements = size * size * (quick ? 1 : 4);
  /** The same numbers in every process. @param {number} length @param {number} seed */
  const data = (length, seed) => Float32Array.from({ length }, (_, i) => Math.sin(i * 0.37 + seed));
  /** @param {number} length @param {number} seed */
  const buffer = (length, seed) => {
    const handle = vk.createBuffer(length * 4, 0);
    vk.uploadBuffer(handle, data(length, seed));
    return handle;
  };
  const [a, b, c, w] = [buffer(elements, 1), buffer(elements, 2), buffer(elements, 0), buffer(size, 3)];
  /** @type {Record<string, any>} */
  const kernels = {
    [`matmul ${size}`]: matmul.matmul({ a, b, c, m: size, n: size, k: size }),
    [`add ${elements}`]: elementwise.binary({ op: 'add', a, b, y: c, count: elements }),
    [`rmsNorm ${elements / size} x ${size}`]: normalization.rmsNormForward({
      x: a,
      weight: w,
      y: c,
      stats: b,
      rows: elements / size,
      columns: size,
    }),
    [`softmax ${elements / size} x ${size}`]: softmax.softmaxForward({ x: a, y: c, rows: elements / size, columns: size }),
  };
  /** @type {Record<string, { samples: number[], digest?: string }>} */
  const results = { init: { samples: [init] } };
  for (const [name, dispatches] of Object.entries(kernels)) {
    const { packed, count } = pack(...[dispatches].flat());
    const sample = () => {
      const start = now();
      vk.waitTimeline(vk.batchExecuteAll(packed, count));
      return (now() - start) * 1000;
    };
    for (let i = 0; i < 3; i++) sample();
    const taken = Array.from({ length: samples }, sample);
    const result = vk.readBuffer(c);
    results[name] = {
      samples: taken,
      digest: createHash('sha256')
        .update(new Uint8Array(result.buffer, result.byteOffset, result.byteLength))
        .digest('hex'),
    };
  }
  for (const bytes of [4096, 1 << 20]) {
    const sample = () => {
      const [start, count] = [now(), 64];
      const made = Array.from({ length: count }, () => vk.createBuffer(bytes, 0));
      vk.waitIdle();
      made.forEach(vk.destroyBuffer);
      return ((now() - start) * 1000) / count;
    };
    sample();
    results[`createBuffer ${bytes}`] = { samples: Array.from({ length: samples }, sample) };
  }
  // What no other pipeline has taken part in, and no cache on disk.
  const shaders = Object.values(vk.shaders)
    .filter(({ bindings }) => bindings > 0)
    .slice(0, quick ? 20 : 120);
  /** @type {number[]} */
  const made = [];
  for (const { spirv, bindings, pushBytes } of shaders) {
    const start = now();
    try {
      vk.createPipeline(spirv, bindings, pushBytes);
      made.push((now() - start) * 1000);
    } catch (error) {
      if (/** @type {{ code?: string }} */ (error).code === undefined) throw error;
    }
  }
  results.createPipeline = { samples: made };
  vk.destroy();
  return { deviceName, driverInfo, robustness, results };
}

if (isWorker) {
  serveWorker(measure);
} else {
  await runMain(USAGE, OPTIONS, async ({ addon, quick, json, ...options }) => {
    const path = addonPath(addon);
    const rounds = quick ? 1 : options.rounds;
    const samples = quick ? 2 : options.samples;
    /** @type {ReturnType<typeof measure>[][]} */ const measured = [[], []];
    for (let round = 0; round < rounds; round++) {
      for (const safe of [false, true]) {
        const env = { HELIOS_PIPELINE_CACHE: '0', HELIOS_SAFE: '' };
        measured[Number(safe)].push(await runWorker(import.meta.url, { addon: path, samples, quick, safe }, { env }));
      }
    }
    const all = measured.flat();
    const names = Object.keys(all[0].results);
    for (const name of names) {
      const digests = new Set(all.map(({ results }) => results[name].digest));
      if (digests.size !== 1) throw new Error(`${name}: safe mode computes something else`);
    }
    const rows = names.map((name) => {
      const [plain, safe] = measured.map((side) => {
        const values = side.flatMap(({ results }) => results[name].samples);
        return { us: median(side.map(({ results }) => median(results[name].samples))), spread: spread(values) };
      });
      return { name, plain, safe, ratio: safe.us / plain.us };
    });
    const { deviceName: device, driverInfo: driver, robustness } = measured[1][0];
    if (options.results !== undefined) {
      const figures = rows.flatMap(({ name, plain, safe }) => [
        { group: 'what safe mode costs', name, series: 'plain', unit: 'µs', value: plain.us },
        { group: 'what safe mode costs', name, series: 'safe', unit: 'µs', value: safe.us },
      ]);
      const title = `Safe mode (${robustness}), medians of ${samples} samples in each of ${rounds} processes`;
      writeResults(options.results, { bench: 'safe-mode', title, device, driver, figures });
    }
    if (json) {
      console.log(JSON.stringify({ device, robustness, rounds, samples, quick, rows }, null, 2));
      return;
    }
    console.log(`${device}, ${robustness}; medians of ${samples} samples in each of ${rounds} processes; µs\n`);
    const percent = (/** @type {number} */ value) => `±${format(value * 100)}%`;
    console.log(
      textTable(
        ['work', 'plain', 'spread', 'safe', 'spread', 'safe / plain'],
        rows.map(({ name, plain, safe, ratio }) => [
          name,
          format(plain.us),
          percent(plain.spread),
          format(safe.us),
          percent(safe.spread),
          format(ratio),
        ]),
      ),
    );
  });
}
