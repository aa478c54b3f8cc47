/**
 * Times the kernels. Memory-bound ones are reported in GB/s, as a share of a device-to-device copy in the same run; products and attention in
 * TFLOP/s, as a share of the fastest product in the same arithmetic.
 *
 * The time is that of recorded lists of some milliseconds: the difference of three launches and one. A timestamp after every dispatch would add
 * some microseconds to each, since it waits for the device to be idle. Data is random, and dispatches rotate over sets of inputs that together
 * exceed the caches. All write the same outputs, so that each dispatch waits for the one before, as work on a stream does. Bytes are those that
 * the kernel must move: each input is read once, each output written once. Before a kernel is timed it runs once on poisoned outputs, and must
 * leave no poison.
 */

import { writeFileSync } from 'node:fs';
import { bf16Bits, createKernels, f16Bits, pack } from '../kernels/index.mjs';
import { addonPath, driverText, loadAddon, OWN_ADDON } from './lib/addon.mjs';
import { canRedraw, runMain } from '../bin/lib/options.mjs';
import { Unsupported, cases, size } from './lib/kernel-cases.mjs';
import { launchTime } from './lib/launch.mjs';
import { barChart, figures, htmlReport, paragraph, table } from './lib/report.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';
import { format, median, spread, textTable } from './lib/stats.mjs';

const USAGE = 'node benches/kernels.mjs [options]';
const OPTIONS = /** @type {const} */ ({
  addon: { type: 'string', value: 'PATH', path: 'module', default: OWN_ADDON, help: 'the addon to measure' },
  only: { type: 'string', value: 'TEXT', help: 'only cases whose name or shape contains this; several separated by commas' },
  samples: { type: 'integer', default: 7, min: 1, max: 1_000_000, help: 'samples of each figure; the median is reported' },
  cache: { type: 'integer', default: 256, min: 1, max: 1_000_000, help: 'MiB of cache, which the rotating buffers exceed' },
  quick: { type: 'boolean', help: 'small shapes, one sample, to see that everything runs' },
  json: { type: 'string', value: 'FILE', path: 'output', help: 'write the figures as JSON' },
  ...RESULTS_OPTION,
  html: { type: 'string', value: 'FILE', path: 'output', help: 'write the figures as an HTML page' },
});

/** @typedef {import('../kernels/base.mjs').DType} DType */
/** @typedef {import('../kernels/base.mjs').Dispatch} Dispatch */
/** @typedef {import('../kernels/index.mjs').Kernels} Kernels */
/** @typedef {import('./lib/kernel-cases.mjs').Buffers} Buffers */
/** @typedef {import('./lib/kernel-cases.mjs').Case} Case */

/**
 * @typedef {object} Result
 * @property {string} name
 * @property {string} shape
 * @property {number} us median GPU time of one run
 * @property {number} spread
 * @property {number} [gbs]
 * @property {number} [tflops]
 * @property {number} [share] of the copy, or of the fastest product
 * @property {string} [error]
 */

const POISON = 0x7fc17fc1;

class Bench {
  /** @param {any} vk @param {Kernels} kernels @param {{ quick: boolean, samples: number, cache: number }} options */
  constructor(vk, kernels, options) {
    this.vk = vk;
    this.kernels = kernels;
    this.options = options;
    /** Random bytes by type, cut anew for every buffer. @type {Map<DType, ArrayBufferView>} */
    this.pool = new Map();
  }

  /** At least `bytes` of random elements. @param {DType} type @param {number} bytes @returns {Uint8Array} */
  random(type, bytes) {
    const held = this.pool.get(type);
    if (held && held.byteLength >= bytes) {
      return new Uint8Array(held.buffer, 4 * Math.floor(Math.random() * ((held.byteLength - bytes) / 4)), bytes);
    }
    // One block for the large ones: more would be hours of Math.random.
    const count = Math.min(Math.max(bytes, 1 << 16), 1 << 24) / size(type);
    const floats = Float32Array.from({ length: count }, () => 2 * Math.random() - 1);
    this.pool.set(type, type === 'f32' ? floats : Uint16Array.from(floats, type === 'bf16' ? bf16Bits : f16Bits));
    const made = /** @type {ArrayBufferView} */ (this.pool.get(type));
    return new Uint8Array(made.buffer, 0, Math.min(bytes, made.byteLength));
  }

  /** @param {Case} one @returns {Result} */
  run(one) {
    const { vk, kernels, options } = this;
    /** @type {number[]} */
    const buffers = [];
    /** @type {number[]} */
    const graphs = [];
    const make = (/** @type {number} */ bytes) => {
      const handle = vk.createBuffer(Math.ceil(bytes / 16) * 16, 0);
      buffers.push(handle);
      return handle;
    };
    /** @param {number} handle @param {number} bytes @param {DType} type */
    const randomize = (handle, bytes, type) => {
      for (let at = 0; at < bytes; ) {
        const chunk = this.random(type, Math.min(bytes - at, 1 << 24));
        vk.uploadAsync(handle, chunk, at);
        at += chunk.byteLength;
      }
    };
    let allocated = 0;
    /** Those of the first set, which the others write as well. @type {{ handle: number, bytes: number }[]} */
    const outputs = [];
    let output = 0;
    /** @type {Buffers} */
    const set = {
      input: (count, type = 'f32') => {
        const bytes = Math.ceil((count * size(type)) / 4) * 4;
        const handle = make(bytes);
        allocated += bytes;
        randomize(handle, bytes, type);
        return handle;
      },
      output: (count, type = 'f32') => {
        const held = outputs[output++];
        if (held) return held.handle;
        const bytes = Math.ceil((count * size(type)) / 4) * 4;
        const handle = make(bytes);
        allocated += bytes;
        vk.fillBuffer(handle, bytes, POISON);
        outputs.push({ handle, bytes });
        return handle;
      },
      ids: (count, below) => {
        const handle = make(4 * count);
        vk.uploadBuffer(
          handle,
          Uint32Array.from({ length: count }, () => Math.floor(Math.random() * below)),
        );
        return handle;
      },
      data: (data) => {
        const handle = make(data.byteLength);
        vk.uploadBuffer(handle, data);
        return handle;
      },
    };
    try {
      /** @type {Dispatch[][]} */
      const sets = [[one.build(kernels, set)].flat()];
      const first = pack(...sets[0]);
      vk.waitTimeline(vk.batchExecuteAll(first.packed, first.count));
      for (const { handle, bytes } of outputs) {
        if (bytes > 1 << 28) continue; // too much to bring to the host
        const words = new Uint32Array(vk.readBuffer(handle).buffer).subarray(0, Math.floor(bytes / 4));
        if (words.includes(POISON)) throw new Error(`element ${words.indexOf(POISON)} was not written`);
      }
      const wanted = Math.min(32, Math.max(2, Math.ceil((options.cache * 2 ** 20) / allocated)));
      while (sets.length < wanted) {
        output = 0;
        sets.push([one.build(kernels, set)].flat());
      }
      const record = (/** @type {number} */ runs) => {
        const { packed, count } = pack(Array.from({ length: runs }, (_, i) => sets[i % sets.length]).flat());
        vk.graphBegin();
        vk.batchExecuteAll(packed, count);
        return vk.graphEnd();
      };
      const short = record(sets.length);
      graphs.push(short);
      launchTime(vk, short, 2);
      const guess = (1000 * launchTime(vk, short, 1)) / sets.length;
      // About ten milliseconds, every set as often as the others.
      const rounds = options.quick ? 1 : Math.max(1, Math.round(10000 / guess / sets.length));
      const runs = rounds * sets.length;
      const list = record(runs);
      graphs.push(list);
      launchTime(vk, list, options.quick ? 1 : 3);
      const sample = () =>
        options.quick ? (1000 * launchTime(vk, list, 1)) / runs : (500 * (launchTime(vk, list, 3) - launchTime(vk, list, 1))) / runs;
      const samples = Array.from({ length: options.quick ? 1 : options.samples }, sample);
      const us = median(samples);
      return {
        name: one.name,
        shape: one.shape,
        us,
        spread: spread(samples),
        ...(one.flops ? { tflops: one.flops / us / 1e6 } : one.bytes ? { gbs: one.bytes / us / 1e3 } : {}),
      };
    } finally {
      vk.waitIdle();
      for (const graph of graphs) vk.graphDestroy(graph);
      for (const handle of buffers) vk.destroyBuffer(handle);
    }
  }

  /** GB/s of copies by the copy engine or the driver's own kernel, by the host's clock over many. */
  copyRate() {
    const { vk, options } = this;
    const bytes = options.quick ? 1 << 20 : 1 << 28;
    const buffers = Array.from({ length: 4 }, () => vk.createBuffer(bytes, 0));
    buffers.forEach((buffer, i) => vk.fillBuffer(buffer, bytes, i + 1));
    const count = options.quick ? 4 : 64;
    const sample = () => {
      vk.waitIdle();
      const start = performance.now();
      vk.batchBegin();
      for (let i = 0; i < count; i++) vk.copyBuffer(buffers[i % 2], buffers[2 + (i % 2)], bytes);
      vk.waitTimeline(vk.batchSubmit());
      return (2 * bytes * count) / (performance.now() - start) / 1e6;
    };
    sample();
    const rate = median(Array.from({ length: options.quick ? 1 : options.samples }, sample));
    if (new Uint32Array(vk.readBuffer(buffers[3]).buffer)[bytes / 4 - 1] !== 2) throw new Error('the copy did not copy');
    for (const buffer of buffers) vk.destroyBuffer(buffer);
    return rate;
  }
}

await runMain(USAGE, OPTIONS, async ({ addon, only, samples, cache, quick, json, html, results: folder }) => {
  const vk = loadAddon(addonPath(addon));
  const info = vk.initDevice();
  const kernels = createKernels(/** @type {any} */ (vk), { check: false });
  const bench = new Bench(vk, kernels, { quick, samples, cache });
  // Of the driver's copy and the copy kernel, the faster.
  const copies = { command: bench.copyRate(), kernel: bench.run(cases(quick)[0]).gbs ?? 0 };
  const copy = Math.max(copies.command, copies.kernel);
  /** @type {Result[]} */
  const results = [];
  const chosen = cases(quick).filter(
    ({ name, shape }) => only === undefined || only.split(',').some((part) => `${name} ${shape}`.includes(part)),
  );
  for (const [i, one] of chosen.entries()) {
    if (canRedraw(process.stderr)) process.stderr.write(`\r\x1b[K${i + 1}/${chosen.length} ${one.name} ${one.shape}`);
    try {
      results.push(bench.run(one));
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      results.push({ name: one.name, shape: one.shape, us: NaN, spread: NaN, error: message });
      if (!(error instanceof Unsupported)) process.exitCode = 1;
    }
  }
  if (canRedraw(process.stderr)) process.stderr.write('\r\x1b[K');

  const arithmetic = (/** @type {Result} */ r) => chosen.find((c) => c.name === r.name)?.arithmetic ?? '';
  for (const result of results) {
    if (result.gbs !== undefined) result.share = result.gbs / copy;
    if (result.tflops !== undefined) {
      const peers = results.filter((r) => arithmetic(r) === arithmetic(result) && r.name.startsWith('matmul') && r.tflops);
      if (peers.length > 0) result.share = result.tflops / Math.max(...peers.map((r) => r.tflops ?? 0));
    }
  }
  const percent = (/** @type {number | undefined} */ v) => (v === undefined ? '–' : `${format(100 * v)} %`);
  const row = (/** @type {Result} */ r) => [
    r.name,
    r.shape,
    format(r.us),
    r.gbs === undefined ? '–' : format(r.gbs),
    r.tflops === undefined ? '–' : format(r.tflops),
    percent(r.share),
  ];
  const measured = results.filter((r) => r.error === undefined);
  const failed = results.filter((r) => r.error !== undefined);
  const head = ['kernel', 'shape', 'µs', 'GB/s', 'TFLOP/s', 'share'];
  console.log(
    `${info.deviceName}; copies read and write ${format(copies.kernel)} GB/s by the kernel, ${format(copies.command)} by the driver\n\n${textTable(head, measured.map(row))}`,
  );
  for (const { name, shape, error } of failed) console.log(`not run: ${name} ${shape}: ${error}`);

  if (folder !== undefined) {
    const rates = measured.map((r) => ({
      group: r.tflops === undefined ? 'kernels that memory bounds' : 'products and attention',
      name: `${r.name} ${r.shape}`,
      series: 'helios-vk',
      ...(r.tflops !== undefined
        ? { unit: 'TFLOP/s', value: r.tflops }
        : r.gbs !== undefined
          ? { unit: 'GB/s', value: r.gbs }
          : { unit: 'µs', value: r.us }),
    }));
    const title = `Kernels, medians of ${samples} samples; a copy moves ${format(copy)} GB/s`;
    writeResults(folder, { bench: 'kernels', title, device: info.deviceName, driver: info.driverInfo, figures: rates });
  }
  if (json) {
    writeFileSync(
      json,
      `${JSON.stringify({ device: info.deviceName, driver: driverText(info), driverVersion: info.driverVersion, copyGBs: copy, cacheMiB: cache, samples, quick, results }, null, 1)}\n`,
    );
  }
  if (html) {
    const memory = results.filter((r) => r.gbs !== undefined);
    const matrix = results.filter((r) => r.tflops !== undefined);
    const bars = (/** @type {Result[]} */ list, /** @type {'gbs' | 'tflops'} */ key) =>
      list.map((r) => ({ label: `${r.name} ${r.shape}`.slice(0, 34), values: [r[key]] }));
    const sections = [
      {
        title: 'What the device can do',
        html: [
          figures([
            { value: `${format(copy)} GB/s`, label: 'device-to-device copy, read and write' },
            ...['f32', 'bf16x3', 'f16', 'bf16'].flatMap((precision) => {
              const best = Math.max(...matrix.filter((r) => r.name.startsWith(`matmul ${precision} `)).map((r) => r.tflops ?? 0));
              return best > 0 ? [{ value: `${format(best)} TFLOP/s`, label: `fastest product, ${precision}` }] : [];
            }),
          ]),
          paragraph(`Median of ${samples} samples; fresh random data, rotating over more than ${cache} MiB.`),
        ],
      },
      {
        title: 'Kernels that memory bounds',
        html: [barChart({ title: 'GB/s', series: ['GB/s'], groups: bars(memory, 'gbs') }), table(head, memory.map(row))],
      },
      {
        title: 'Products and attention',
        html: [barChart({ title: 'TFLOP/s', series: ['TFLOP/s'], groups: bars(matrix, 'tflops') }), table(head, matrix.map(row))],
      },
    ];
    if (failed.length > 0)
      sections.push({
        title: 'Not run',
        html: [
          table(
            ['kernel', 'shape', 'why'],
            failed.map((r) => [r.name, r.shape, r.error ?? '']),
          ),
        ],
      });
    writeFileSync(html, htmlReport({ title: 'Kernels', subtitle: `${info.deviceName} · ${driverText(info)}`, sections }));
  }
  vk.destroy();
});
