#!/usr/bin/env node
/**
 * Times the kernels of a decode step: products of a few rows with a matrix, by weight type and size, and attention of one query a row to a cache.
 * Both are reported in GB/s of what they must read: the weights with their scales, the keys and values. With --kernels, products are compared by
 * kernel: in vector arithmetic, on matrix units, and as an ordinary product of halves, without the norm before it.
 *
 * Weights rotate over copies that together exceed the caches. The cases of a group run in turn, each a recorded list; the median is reported.
 * Where processors are shared, `--cpu` counts the time that a software device's threads worked, as if they had two processors.
 */

import { createKernels, pack } from '../kernels/index.mjs';
import { OWN_ADDON, addonPath, loadAddon } from './lib/addon.mjs';
import { UsageError, runMain } from '../bin/lib/options.mjs';
import { RESULTS_OPTION, report } from './lib/results.mjs';
import { median } from './lib/stats.mjs';

/** @typedef {import('../kernels/decode.mjs').WeightType} WeightType */
/** @typedef {import('../kernels/base.mjs').Dispatch} Dispatch */
/** @typedef {{ group: string, name: string, series: string, bytes: number, dispatches: Dispatch[] }} Case `bytes` of all dispatches together */

const OPTIONS = /** @type {const} */ ({
  addon: { type: 'string', value: 'PATH', path: 'module', default: OWN_ADDON, help: 'the addon to measure' },
  rows: {
    type: 'string',
    pattern: /^[1-9]\d*(,[1-9]\d*)*$/,
    value: 'numbers such as 1,16',
    default: '1',
    help: 'sequences decoded together',
  },
  types: { type: 'string', default: 'f32,f16,bf16,q8_0', help: 'of weights and caches, separated by commas' },
  kernels: { type: 'string', help: 'only products, by each of these: auto, vector, matrix, product' },
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
/** Those of a layer of models of 300M, 1.2B and 7.2B parameters, and heads. */
const LAYERS = /** @type {const} */ ([
  [1024, 3072, 'rms'],
  [1024, 1024, 'plain'],
  [1024, 2752, 'rms, swiglu'],
  [2752, 1024, 'plain'],
  [2048, 3072, 'rms'],
  [2048, 2048, 'plain'],
  [2048, 8192, 'rms, swiglu'],
  [8192, 2048, 'plain'],
  [2048, 32768, 'rms'],
  [4096, 6144, 'rms'],
  [4096, 4096, 'plain'],
  [4096, 14336, 'rms, swiglu'],
  [14336, 4096, 'plain'],
]);
/** [heads, kvHeads, headSize] */
const HEADS = /** @type {const} */ ([
  [12, 12, 64],
  [32, 8, 64],
  [32, 8, 128],
]);
const WAYS = ['auto', 'vector', 'matrix', 'product'];
/** Milliseconds of a sample. */
const SAMPLE_MS = 3;
const BYTES = { f32: 4, f16: 2, bf16: 2, q8_0: 34 / 32 };
/** Two elements of 0.07 in f16 and of 2^-9 in bf16, or an f32: no sum of random signs overflows. */
const WORDS = { f32: 0x3c8f5c29, f16: 0x2c7a2c7a, bf16: 0x3b003b00, q8_0: 0x05fb03fe };

await runMain('node benches/decode-kernels.mjs [options]', OPTIONS, async (options) => {
  const { addon, samples, cache, quick, cpu } = options;
  const types = /** @type {WeightType[]} */ (options.types.split(','));
  const unknown = types.find((type) => !(type in BYTES));
  if (unknown) throw new UsageError(`--types: ${unknown} is not one of ${Object.keys(BYTES).join(', ')}`);
  const ways = options.kernels?.split(',');
  const strange = ways?.find((way) => !WAYS.includes(way));
  if (strange) throw new UsageError(`--kernels: ${strange} is not one of ${WAYS.join(', ')}`);
  const vk = loadAddon(addonPath(addon));
  const info = /** @type {import('../index.js').DeviceInfo} */ (vk.initDevice());
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

  /** @param {number} rows @param {number} inputs @param {number} outputs @param {string} what @param {WeightType} type @param {string} [way] @returns {Case} */
  const product = (rows, inputs, outputs, what, type, way = 'auto') => {
    const all = what.includes('swiglu') ? 2 * outputs : outputs;
    const bytes = all * inputs * BYTES[type];
    const copies = quick ? 1 : Math.min(64, Math.max(2, Math.ceil((cache * 2 ** 20) / bytes)));
    const [x, ones, out] = [random(rows * inputs), random(inputs), make(4 * rows * all)];
    const scales = type === 'q8_0' ? make((all * inputs) / 16, 0x14001400) : undefined;
    const kernel = /** @type {'vector' | 'matrix'} */ (way);
    const plan = way === 'auto' ? undefined : { kernel };
    const dispatches = Array.from({ length: copies }, () => {
      const weight = make(all * inputs * Math.floor(BYTES[type]), WORDS[type]);
      if (way === 'product') {
        const half = /** @type {'f16' | 'bf16'} */ (type);
        const sizes = { a: make(2 * rows * inputs), b: weight, m: rows, k: inputs };
        return what.includes('swiglu')
          ? kernels.matmulGlu({ ...sizes, gateUp: make(2 * rows * all), y: out, columns: outputs, type: half })
          : kernels.matmul({ ...sizes, c: out, n: outputs, aType: half, bType: half, precision: half, transB: true });
      }
      return kernels.matvec({
        ...{ x, weight, scales, out, rows, inputs, outputs, type, plan },
        norm: what.includes('rms') ? { kind: 'rms', weight: ones } : undefined,
        activation: what.includes('swiglu') ? 'swiglu' : undefined,
      });
    }).flat();
    const series = ways ? `${type}, ${way}` : type;
    return { group: `matvec, ${what}, rows ${rows}`, name: `${inputs} × ${outputs}`, series, bytes: bytes * copies, dispatches };
  };

  /** @param {number} rows @param {readonly [number, number, number]} heads @param {number} capacity @param {'f32' | 'f16' | 'bf16'} cacheType @returns {Case} */
  const attention = (rows, [heads, kvHeads, headSize], capacity, cacheType) => {
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
    return { group: `attendCache, rows ${rows}`, name, series: cacheType, bytes: bytes * copies, dispatches };
  };

  /** Milliseconds of a launch, of `count` in a row: a single one is as long as the host takes to make it. @param {number} graph @param {number} [count] */
  const time = (graph, count = 1) => {
    const [start, before] = [performance.now(), process.cpuUsage()];
    for (let i = 1; i < count; i++) vk.graphLaunch(graph);
    vk.waitTimeline(vk.graphLaunch(graph));
    const { user, system } = process.cpuUsage(before);
    return (cpu ? (user + system) / 2000 : performance.now() - start) / count;
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
    const counts = graphs.map((graph) => Math.max(1, Math.min(50, Math.ceil(SAMPLE_MS / time(graph)))));
    const times = Array.from({ length: quick ? 1 : samples }, () => graphs.map((graph, i) => time(graph, counts[i])));
    cases.forEach(({ group, name, series, bytes }, i) => {
      const runs = times.map((round) => bytes / round[i] / 1e6);
      figures.push({ group, name, series, unit: 'GB/s', value: median(runs), runs });
    });
    vk.waitIdle();
    for (const graph of graphs) vk.graphDestroy(graph);
    for (const buffer of made) vk.destroyBuffer(buffer);
    made = [];
  };

  for (const rows of options.rows.split(',').map(Number)) {
    if (ways) {
      const able = (/** @type {WeightType} */ type, /** @type {string} */ way) =>
        way === 'product'
          ? (type === 'f16' || type === 'bf16') && kernels.matmulSupports(type)
          : way === 'auto' || way === 'vector' || (type !== 'f32' && kernels.matmulSupports(type === 'bf16' ? 'bf16' : 'f16'));
      for (const [inputs, outputs, what] of quick ? LAYERS.slice(0, 3) : LAYERS) {
        const cases = types.flatMap((type) => ways.filter((way) => able(type, way)).map((way) => /** @type {const} */ ([type, way])));
        run(
          cases.map(
            ([type, way]) =>
              () =>
                product(rows, inputs, outputs, what, type, way),
          ),
        );
      }
      continue;
    }
    for (const [inputs, outputs, what] of quick ? PRODUCTS.slice(0, 3) : PRODUCTS) {
      run(types.map((type) => () => product(rows, inputs, outputs, what, type)));
    }
    for (const heads of quick ? HEADS.slice(0, 2) : HEADS) {
      for (const capacity of quick ? [300] : [1024, 8192]) {
        const caches = /** @type {const} */ (['f32', 'f16', 'bf16']).filter((type) => types.includes(type));
        run(caches.map((type) => () => attention(rows, heads, capacity, type)));
      }
    }
  }
  kernels.context.releaseWorkspaces();
  const title = `Kernels of a decode step of ${options.rows} sequences${cpu ? ', by processor time' : ''}, median of ${samples}`;
  report(options, { bench: 'decode-kernels', title, info, figures, about: { rows: options.rows } });
});
