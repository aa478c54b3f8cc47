#!/usr/bin/env node
/**
 * Times the kernels of a decode step: products of a few rows with a matrix, by weight type and size, and attention of one query a row to a cache.
 * Both are reported in GB/s of what they must read: the weights with their scales, the keys and values.
 *
 * Weights rotate over copies that together exceed the caches. The cases of a group run in turn, each a recorded list; the median is reported.
 * Where processors are shared, `--cpu` counts the time that a software device's threads worked, as if they had two processors.
 */

import { createKernels, pack } from '../kernels/index.mjs';
import { OWN_ADDON, addonPath, driverText, loadAddon } from './lib/addon.mjs';
import { runMain } from './lib/args.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';
import { median, textTable } from './lib/stats.mjs';

/** @typedef {import('../kernels/decode.mjs').WeightType} WeightType */
/** @typedef {import('../kernels/base.mjs').Dispatch} Dispatch */
/** @typedef {{ group: string, name: string, series: string, bytes: number, dispatches: Dispatch[] }} Case `bytes` of all dispatches together */

const OPTIONS = /** @type {const} */ ({
  addon: { type: 'string', value: 'PATH', path: 'module', default: OWN_ADDON, help: 'the addon to measure' },
  rows: { type: 'integer', min: 1, max: 8, default: 1, help: 'sequences decoded together' },
  samples: { type: 'integer', min: 1, max: 1_000_000, default: 7, help: 'samples of each figure; the median is reported' },
  cache: { type: 'integer', min: 1, max: 65_536, default: 256, help: 'MiB of cache, which the copies of a weight exceed' },
  quick: { type: 'boolean', help: 'small sizes, one sample, to see that everything runs' },
  cpu: { type: 'boolean', help: 'processor time by two instead of elapsed time, for software devices' },
  json: { type: 'boolean', help: 'print JSON' },
  ...RESULTS_OPTION,
});

/** [inputs, outputs, what is done beside the product] */
const PRODUCTS = /** @type {const} */ ([
  [768, 768, 'plain'],
  [768, 3072, 'plain'],
  [1024, 2752, 'rms, swiglu'],
  [2048, 2048, 'plain'],
  [2048, 8192, 'rms, swiglu'],
  [4096, 4096, 'plain'],
  [4096, 14336, 'rms, swiglu'],
  [4096, 32768, 'rms'],
]);
/** [heads, kvHeads, headSize] */
const HEADS = /** @type {const} */ ([
  [12, 12, 64],
  [32, 8, 64],
  [32, 8, 128],
]);
const BYTES = { f32: 4, f16: 2, bf16: 2, q8_0: 34 / 32 };
/** Two elements of 0.07 in f16 and of 2^-9 in bf16, or an f32: no sum of random signs overflows. */
const WORDS = { f32: 0x3c8f5c29, f16: 0x2c7a2c7a, bf16: 0x3b003b00, q8_0: 0x05fb03fe };

await runMain('node benches/decode-kernels.mjs [options]', OPTIONS, async (options) => {
  const { addon, rows, samples, cache, quick, cpu, json, results } = options;
  const vk = loadAddon(addonPath(addon));
  const info = vk.initDevice();
  const kernels = createKernels(/** @type {any} */ (vk));
  /** @type {number[]} */
  let made = [];
  const make = (/** @type {number} */ bytes, word = 0) => {
    const buffer = vk.createBuffer(Math.ceil(bytes / 16) * 16, 0);
    vk.fillBuffer(buffer, Math.ceil(bytes / 16) * 16, word);
    made.push(buffer);
    return buffer;
  };
  const data = (/** @type {ArrayBufferView} */ values) => {
    const buffer = make(values.byteLength);
    vk.uploadBuffer(buffer, values);
    return buffer;
  };
  const random = (/** @type {number} */ count) => data(Float32Array.from({ length: count }, () => 2 * Math.random() - 1));

  /** @param {number} inputs @param {number} outputs @param {string} what @param {WeightType} type @returns {Case} */
  const product = (inputs, outputs, what, type) => {
    const all = what.includes('swiglu') ? 2 * outputs : outputs;
    const bytes = all * inputs * BYTES[type];
    const copies = quick ? 1 : Math.min(16, Math.max(2, Math.ceil((cache * 2 ** 20) / bytes)));
    const [x, ones, out] = [random(rows * inputs), random(inputs), make(4 * rows * outputs)];
    const scales = type === 'q8_0' ? make((all * inputs) / 16, 0x14001400) : undefined;
    const dispatches = Array.from({ length: copies }, () =>
      kernels.matvec({
        ...{ x, weight: make(all * inputs * Math.floor(BYTES[type]), WORDS[type]), scales, out, rows, inputs, outputs, type },
        norm: what.includes('rms') ? { kind: 'rms', weight: ones } : undefined,
        activation: what.includes('swiglu') ? 'swiglu' : undefined,
      }),
    ).flat();
    return { group: `matvec, ${what}`, name: `${inputs} × ${outputs}`, series: type, bytes: bytes * copies, dispatches };
  };

  /** @param {readonly [number, number, number]} heads @param {number} capacity @param {'f32' | 'f16' | 'bf16'} cacheType @returns {Case} */
  const attention = ([heads, kvHeads, headSize], capacity, cacheType) => {
    const bytes = 2 * rows * capacity * kvHeads * headSize * BYTES[cacheType];
    const copies = quick ? 1 : Math.min(16, Math.max(2, Math.ceil((cache * 2 ** 20) / bytes)));
    const [q, out] = [random(rows * heads * headSize), make(4 * rows * heads * headSize)];
    const slots = data(Uint32Array.from({ length: rows }, (_, r) => r));
    const places = data(new Uint32Array(rows).fill(capacity - 1));
    const dispatches = Array.from({ length: copies }, () => {
      const [keys, values] = [make(bytes / 2, WORDS[cacheType]), make(bytes / 2, WORDS[cacheType])];
      return kernels.attendCache({ q, keys, values, out, rows, heads, kvHeads, headSize, slots, places, capacity, cacheType });
    }).flat();
    const name = `${heads} heads, ${kvHeads} of keys, of ${headSize}; ${capacity} keys`;
    return { group: 'attendCache', name, series: cacheType, bytes: bytes * copies, dispatches };
  };

  /** Milliseconds of a launch. @param {number} graph */
  const time = (graph) => {
    const [start, before] = [performance.now(), process.cpuUsage()];
    vk.waitTimeline(vk.graphLaunch(graph));
    const { user, system } = process.cpuUsage(before);
    return cpu ? (user + system) / 2000 : performance.now() - start;
  };

  /** @type {{ group: string, name: string, series: string, unit: string, value: number, runs: number[] }[]} */
  const figures = [];
  /** Times cases in turn. @param {(() => Case)[]} builders */
  const run = (builders) => {
    const cases = builders.map((build) => build());
    const graphs = cases.map(({ dispatches }) => {
      const { packed, count } = pack(dispatches);
      vk.graphBegin();
      vk.batchExecuteAll(packed, count);
      return vk.graphEnd();
    });
    for (const graph of graphs) time(graph);
    const times = Array.from({ length: quick ? 1 : samples }, () => graphs.map(time));
    cases.forEach(({ group, name, series, bytes }, i) => {
      const runs = times.map((round) => bytes / round[i] / 1e6);
      figures.push({ group, name, series, unit: 'GB/s', value: median(runs), runs });
    });
    vk.waitIdle();
    for (const graph of graphs) vk.graphDestroy(graph);
    for (const buffer of made) vk.destroyBuffer(buffer);
    made = [];
  };

  for (const [inputs, outputs, what] of quick ? PRODUCTS.slice(0, 3) : PRODUCTS) {
    run(/** @type {WeightType[]} */ (['f32', 'f16', 'bf16', 'q8_0']).map((type) => () => product(inputs, outputs, what, type)));
  }
  for (const heads of quick ? HEADS.slice(0, 2) : HEADS) {
    for (const capacity of quick ? [300] : [1024, 8192]) {
      run(/** @type {const} */ (['f32', 'f16', 'bf16']).map((type) => () => attention(heads, capacity, type)));
    }
  }
  kernels.context.releaseWorkspaces();
  if (results !== undefined) {
    writeResults(results, {
      bench: 'decode-kernels',
      title: `Kernels of a decode step of ${rows} ${rows === 1 ? 'sequence' : 'sequences'}${cpu ? ', by processor time' : ''}, median of ${samples}`,
      device: info.deviceName,
      driver: driverText(info),
      figures: figures.map((figure) => ({ ...figure, group: `${figure.group}, rows ${rows}` })),
    });
  }
  if (json) return console.log(JSON.stringify({ device: info.deviceName, rows, figures }));
  const lines = figures.map(({ group, name, series, value }) => [group, name, series, value.toFixed(2)]);
  console.log(textTable(['kernel', 'size', 'type', 'GB/s'], lines));
});
