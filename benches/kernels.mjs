/**
 * Times the kernels: GB/s of those that memory bounds, as a share of a device-to-device copy in the same run, and
 * TFLOP/s of products and attention, as a share of the fastest product in the same arithmetic. Timed are recorded lists
 * of milliseconds, by the difference of three launches and one; a timestamp behind every dispatch would add some
 * microseconds to each, since it waits for the device to be idle. Data is fresh and random, and dispatches rotate over
 * sets of inputs that together exceed the caches; the outputs are the same for all, so that each dispatch waits for the
 * one before, as work on a stream does. Bytes are those that
 * the kernel must move: each input read once, each output written once. Before a kernel is timed, its outputs are
 * poisoned, it runs, and no poison may be left.
 */

import { writeFileSync } from 'node:fs';
import { createKernels, optimizerState, pack, ropeTable } from '../kernels/index.mjs';
import { addonPath, loadAddon, OWN_ADDON } from './lib/addon.mjs';
import { runMain } from './lib/args.mjs';
import { barChart, figures, htmlReport, paragraph, table } from './lib/report.mjs';
import { format, median, spread, textTable } from './lib/stats.mjs';

const USAGE = 'node benches/kernels.mjs [options]';
const OPTIONS = /** @type {const} */ ({
  addon: { type: 'string', value: 'PATH', default: OWN_ADDON, help: 'the addon to measure' },
  only: { type: 'string', value: 'TEXT', help: 'only the cases whose name and shape hold this, or one of these between commas' },
  samples: { type: 'integer', default: 7, min: 1, help: 'samples of each figure; the median is reported' },
  cache: { type: 'integer', default: 256, min: 1, help: 'MiB that the rotating buffers shall exceed' },
  quick: { type: 'boolean', help: 'small shapes, one sample: does everything still run' },
  json: { type: 'string', value: 'FILE', help: 'write the figures as JSON' },
  html: { type: 'string', value: 'FILE', help: 'write the figures as a page' },
});

/** @typedef {import('../kernels/base.mjs').DType} DType */
/** @typedef {import('../kernels/base.mjs').Dispatch} Dispatch */
/** @typedef {import('../kernels/index.mjs').Kernels} Kernels */

/**
 * The buffers of one set: inputs with random data, poisoned outputs.
 * @typedef {object} Buffers
 * @property {(count: number, type?: DType) => number} input uniform in [-1, 1)
 * @property {(count: number, type?: DType) => number} output
 * @property {(count: number, below: number) => number} ids random u32
 * @property {(data: ArrayBufferView) => number} data
 */

/**
 * @typedef {object} Case
 * @property {string} name kernel and storage types
 * @property {string} shape
 * @property {number} [bytes] that one run must move
 * @property {number} [flops] of one run
 * @property {string} [arithmetic] of a product or attention
 * @property {(kernels: Kernels, buffers: Buffers) => Dispatch | Dispatch[]} build
 */

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

const size = (/** @type {DType} */ type) => (type === 'f32' ? 4 : 2);

/** The cases, smaller when `quick`. @param {boolean} quick @returns {Case[]} */
function cases(quick) {
  /** @type {Case[]} */
  const list = [];
  const copies = quick ? 1 << 18 : 1 << 26;
  list.push({
    name: 'copy kernel', shape: `${copies} f32`, bytes: 8 * copies,
    build: (k, b) => k.copy({ x: b.input(copies), y: b.output(copies), count: copies }),
  });

  // The model's micro-step, which caches hold, and many tokens, which they do not; the most of them for the kernels of
  // rows alone, which then work for as long as the large copy.
  for (const rows of quick ? [64] : [512, 16384, 65536]) {
    const C = quick ? 128 : 1024;
    const H = quick ? 344 : 2752;
    const n = rows * C;
    const shape = `${rows}×${C}`;
    for (const [type, outType] of /** @type {[DType, DType][]} */ ([['f32', 'f32'], ['f32', 'bf16'], ['bf16', 'bf16']])) {
      const [s, t] = [size(type), size(outType)];
      const types = type === outType ? type : `${type} to ${outType}`;
      list.push(
        {
          name: `rmsNormForward ${types}`, shape, bytes: n * (s + t),
          build: (k, b) => k.rmsNormForward({ x: b.input(n, type), y: b.output(n, outType), weight: b.input(C), stats: b.output(rows), rows, columns: C, type, outType }),
        },
        {
          name: `rmsNormForward + residual ${types}`, shape, bytes: n * (2 * s + 2 * t),
          build: (k, b) => k.rmsNormForward({ x: b.input(n, outType), residual: b.input(n, type), sum: b.output(n, type), y: b.output(n, outType), weight: b.input(C), stats: b.output(rows), rows, columns: C, type, outType }),
        },
        {
          name: `layerNormForward ${types}`, shape, bytes: n * (s + t),
          build: (k, b) => k.layerNormForward({ x: b.input(n, type), y: b.output(n, outType), weight: b.input(C), bias: b.input(C), stats: b.output(2 * rows), rows, columns: C, type, outType }),
        },
        {
          name: `rmsNormBackward + residual ${types}`, shape, bytes: n * (3 * s + t) + (type === outType ? 0 : n * t),
          build: (k, b) => k.rmsNormBackward({ dy: b.input(n, outType), x: b.input(n, type), weight: b.input(C), stats: b.input(rows), dx: b.output(n, type), residual: b.input(n, type), dWeight: b.output(C), rows, columns: C, type, outType, ...(type === outType ? {} : { copy: b.output(n, outType) }) }),
        },
        {
          name: `layerNormBackward ${types}`, shape, bytes: n * (2 * s + t),
          build: (k, b) => k.layerNormBackward({ dy: b.input(n, outType), x: b.input(n, type), weight: b.input(C), stats: b.input(2 * rows), dx: b.output(n, type), dWeight: b.output(C), dBias: b.output(C), rows, columns: C, type, outType }),
        },
      );
    }
    for (const type of /** @type {DType[]} */ (['f32', 'bf16', 'f16'])) {
      list.push(
        {
          name: `activationForward gelu ${type}`, shape, bytes: 2 * n * size(type),
          build: (k, b) => k.activationForward({ x: b.input(n, type), y: b.output(n, type), count: n, activation: 'gelu', type }),
        },
        {
          name: `softmaxForward ${type}`, shape, bytes: 2 * n * size(type),
          build: (k, b) => k.softmaxForward({ x: b.input(n, type), y: b.output(n, type), rows, columns: C, type }),
        },
        {
          name: `softmaxBackward ${type}`, shape, bytes: 3 * n * size(type),
          build: (k, b) => k.softmaxBackward({ y: b.input(n, type), dy: b.input(n, type), dx: b.output(n, type), rows, columns: C, type }),
        },
        {
          name: `dropout ${type}`, shape, bytes: 2 * n * size(type),
          build: (k, b) => k.dropout({ x: b.input(n, type), y: b.output(n, type), random: b.data(Uint32Array.of(1, 2, 3, 4)), count: n, p: 0.1, type }),
        },
        {
          name: `columnSum ${type}`, shape, bytes: n * size(type),
          build: (k, b) => k.columnSum({ x: b.input(n, type), y: b.output(C), rows, columns: C, type }),
        },
      );
    }
    if (rows > 16384) continue;
    for (const type of /** @type {DType[]} */ (['f32', 'bf16', 'f16'])) {
      const h = rows * H;
      list.push(
        {
          name: `gluForward ${type}`, shape: `${rows}×${H}`, bytes: 3 * h * size(type),
          build: (k, b) => k.gluForward({ gateUp: b.input(2 * h, type), y: b.output(h, type), rows, columns: H, type }),
        },
        {
          name: `gluBackward ${type}`, shape: `${rows}×${H}`, bytes: 5 * h * size(type),
          build: (k, b) => k.gluBackward({ gateUp: b.input(2 * h, type), dy: b.input(h, type), dGateUp: b.output(2 * h, type), rows, columns: H, type }),
        },
        {
          name: `ropeForward ${type}`, shape: `${rows}×2×16×64 of qkv`, bytes: 4 * rows * 1024 * size(type),
          build: (k, b) => k.ropeForward({ x: b.input(rows * 3072, type), table: b.data(ropeTable({ positions: 64, headSize: 64 })), rows, heads: 32, headSize: 64, rowStride: 3072, positions: 64, type }),
        },
        {
          name: `embeddingBackward ${type}`, shape: `${rows}×${C} of 16384`, bytes: n * (size(type) + 8),
          build: (k, b) => k.embeddingBackward({ ids: b.ids(rows, quick ? 256 : 16384), dy: b.input(n, type), dTable: b.input((quick ? 256 : 16384) * C), tokens: rows, columns: C, vocabulary: quick ? 256 : 16384, type }),
        },
      );
    }
    list.push({
      name: 'embeddingForward f32 + positions', shape: `${rows}×${C} of 16384`, bytes: 8 * n,
      build: (k, b) => k.embeddingForward({ ids: b.ids(rows, quick ? 256 : 16384), table: b.input((quick ? 256 : 16384) * C), position: b.input(64 * C), positions: 64, y: b.output(n), tokens: rows, columns: C, vocabulary: quick ? 256 : 16384 }),
    });
    const V = quick ? 1000 : 16384;
    const tokens = quick ? 16 : Math.min(rows, 4096);
    for (const [type, gradientType] of /** @type {[DType, 'f16' | 'bf16' | undefined][]} */ ([['f32', undefined], ['bf16', undefined], ['f32', 'bf16']])) {
      list.push({
        name: `crossEntropy ${type}${gradientType ? ` to ${gradientType}` : ''}`, shape: `${tokens}×${V}`,
        bytes: tokens * V * (size(type) + size(gradientType ?? type)),
        build: (k, b) => k.crossEntropy({ logits: b.input(tokens * V, type), targets: b.ids(tokens, V), loss: b.output(tokens), rows: tokens, columns: V, type, ...(gradientType ? { gradient: b.output(tokens * V, gradientType), gradientType } : {}) }),
      });
    }
  }

  const P = quick ? 1 << 16 : 1 << 26;
  for (const copyType of /** @type {const} */ ([undefined, 'bf16', 'f16'])) {
    list.push({
      name: `adamw${copyType ? ` + ${copyType} copy` : ''}`, shape: `${P}`, bytes: P * (copyType ? 30 : 28),
      build: (k, b) => {
        const state = optimizerState({ rate: 1e-4, step: 10 });
        // As `optimizerAdvance` would leave it.
        state.set(new Uint32Array(Float32Array.of(1e-4, 0.65, 0.4, 1).buffer), 1);
        return k.adamw({ parameters: b.input(P), first: b.input(P), second: b.data(new Float32Array(P).fill(1e-3)), gradient: b.input(P), state: b.data(state), count: P, ...(copyType ? { copy: b.output(P, copyType), copyType } : {}) });
      },
    });
  }
  list.push(
    { name: 'gradientClip', shape: `${P}`, bytes: 4 * P, build: (k, b) => k.gradientClip({ gradient: b.input(P), count: P, state: b.data(optimizerState({ rate: 1, maxNorm: 1 })) }) },
    { name: 'reduceAll sum f32', shape: `${P}`, bytes: 4 * P, build: (k, b) => k.reduceAll({ x: b.input(P), y: b.output(1), count: P }) },
    { name: 'fill', shape: `${P} f32`, bytes: 4 * P, build: (k, b) => k.fill({ y: b.output(P), count: P, value: 1 }) },
    { name: 'cast f32 to bf16', shape: `${P}`, bytes: 6 * P, build: (k, b) => k.cast({ x: b.input(P), y: b.output(P, 'bf16'), count: P, from: 'f32', to: 'bf16' }) },
    { name: 'cast bf16 to f32', shape: `${P}`, bytes: 6 * P, build: (k, b) => k.cast({ x: b.input(P, 'bf16'), y: b.output(P), count: P, from: 'bf16', to: 'f32' }) },
    { name: 'binary add f32', shape: `${P}`, bytes: 12 * P, build: (k, b) => k.binary({ a: b.input(P), b: b.input(P), y: b.output(P), count: P }) },
    { name: 'unary exp f32', shape: `${P}`, bytes: 8 * P, build: (k, b) => k.unary({ x: b.input(P), y: b.output(P), count: P, op: 'exp' }) },
  );
  const side = quick ? 128 : 8192;
  for (const type of /** @type {DType[]} */ (['f32', 'bf16'])) {
    list.push({
      name: `transpose ${type}`, shape: `${side}×${side}`, bytes: 2 * side * side * size(type),
      build: (k, b) => k.transpose({ x: b.input(side * side, type), y: b.output(side * side, type), rows: side, columns: side, type }),
    });
  }

  const products = quick ? [[64, 96, 64]] : [[512, 1024, 1024], [512, 2752, 1024], [2048, 2752, 1024], [4096, 4096, 4096]];
  for (const precision of /** @type {const} */ (['f32', 'bf16x3', 'f16', 'bf16'])) {
    /** @type {DType} */
    const type = precision === 'f16' || precision === 'bf16' ? precision : 'f32';
    products.forEach(([m, n, k], i) => {
      for (const form of i === 0 ? ['NT', 'NN', 'TN'] : ['NT']) {
        list.push({
          name: `matmul ${precision} ${form}`, shape: `${m}×${n}×${k}`, flops: 2 * m * n * k, arithmetic: precision,
          bytes: (m * k + n * k) * size(type) + 4 * m * n,
          build: (kernels, b) => {
            need(kernels.matmulSupports(precision), `no matrix units for ${precision}`);
            return kernels.matmul({ a: b.input(m * k, type), b: b.input(n * k, type), c: b.output(m * n), m, n, k, transA: form === 'TN', transB: form === 'NT', aType: type, bType: type, cType: 'f32', precision });
          },
        });
      }
    });
    if (precision === 'bf16x3') continue;
    for (const batch of quick ? [1] : [1, 4, 16]) {
      const [T, heads, headSize] = quick ? [64, 2, 32] : [512, 16, 64];
      const C = heads * headSize;
      const n = batch * T * C;
      // Half of the scores are masked.
      const flops = (4 * batch * heads * T * T * headSize) / 2;
      const common = { batch, tokens: T, heads, headSize, type, precision };
      list.push(
        {
          name: `attentionForward ${precision}`, shape: `${batch}×${T}, ${heads} heads of ${headSize}`, flops, arithmetic: precision, bytes: 4 * n * size(type),
          build: (k, b) => {
            need(k.attentionSupports(precision, headSize), `no matrix units for ${precision}`);
            return k.attentionForward({ ...common, qkv: b.input(3 * n, type), out: b.output(n, type), logSumExp: b.output(batch * heads * T) });
          },
        },
        {
          name: `attentionBackward ${precision}`, shape: `${batch}×${T}, ${heads} heads of ${headSize}`, flops: 2.5 * flops, arithmetic: precision, bytes: 8 * n * size(type),
          build: (k, b) => {
            need(k.attentionSupports(precision, headSize), `no matrix units for ${precision}`);
            return k.attentionBackward({ ...common, qkv: b.input(3 * n, type), out: b.input(n, type), dOut: b.input(n, type), logSumExp: b.data(new Float32Array(batch * heads * T).fill(7)), dQkv: b.output(3 * n, type) });
          },
        },
      );
    }
  }
  return list;
}

/** A case that this device cannot run. */
class Unsupported extends Error {}
/** @param {boolean} supported @param {string} why */
function need(supported, why) {
  if (!supported) throw new Unsupported(why);
}

/** Milliseconds from the first of some launches of a graph to the end of the last. @param {any} vk @param {number} graph @param {number} launches */
function launchTime(vk, graph, launches) {
  vk.waitIdle();
  const start = performance.now();
  let value = 0;
  for (let i = 0; i < launches; i++) value = vk.graphLaunch(graph);
  vk.waitTimeline(value);
  return performance.now() - start;
}

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
    const words = new Uint32Array(floats.buffer);
    if (type === 'f32') this.pool.set(type, floats);
    else if (type === 'bf16') this.pool.set(type, Uint16Array.from(words, (w) => w >>> 16));
    else {
      // f16 from the f32's sign, exponent and fraction; what is below 2^-14 becomes 0.
      this.pool.set(type, Uint16Array.from(words, (w) => {
        const exponent = ((w >>> 23) & 255) - 112;
        return exponent <= 0 ? 0 : ((w >>> 16) & 0x8000) | (exponent << 10) | ((w >>> 13) & 1023);
      }));
    }
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
      for (let at = 0; at < bytes;) {
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
        vk.uploadBuffer(handle, Uint32Array.from({ length: count }, () => Math.floor(Math.random() * below)));
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
        options.quick
          ? (1000 * launchTime(vk, list, 1)) / runs
          : (500 * (launchTime(vk, list, 3) - launchTime(vk, list, 1))) / runs;
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

await runMain(USAGE, OPTIONS, async ({ addon, only, samples, cache, quick, json, html }) => {
  const vk = loadAddon(addonPath(addon));
  const info = vk.initDevice();
  const kernels = createKernels(vk);
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
    if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${i + 1}/${chosen.length} ${one.name} ${one.shape}`);
    try {
      results.push(bench.run(one));
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      results.push({ name: one.name, shape: one.shape, us: NaN, spread: NaN, error: message });
      if (!(error instanceof Unsupported)) process.exitCode = 1;
    }
  }
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');

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
  console.log(`${info.deviceName}; copies read and write ${format(copies.kernel)} GB/s by the kernel, ${format(copies.command)} by the driver\n\n${textTable(head, measured.map(row))}`);
  for (const { name, shape, error } of failed) console.log(`not run: ${name} ${shape}: ${error}`);

  if (json) {
    writeFileSync(json, `${JSON.stringify({ device: info.deviceName, driverVersion: info.driverVersion, copyGBs: copy, cacheMiB: cache, samples, quick, results }, null, 1)}\n`);
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
      { title: 'Kernels that memory bounds', html: [barChart({ title: 'GB/s', series: ['GB/s'], groups: bars(memory, 'gbs') }), table(head, memory.map(row))] },
      { title: 'Products and attention', html: [barChart({ title: 'TFLOP/s', series: ['TFLOP/s'], groups: bars(matrix, 'tflops') }), table(head, matrix.map(row))] },
    ];
    if (failed.length > 0) sections.push({ title: 'Not run', html: [table(['kernel', 'shape', 'why'], failed.map((r) => [r.name, r.shape, r.error ?? '']))] });
    writeFileSync(html, htmlReport({ title: 'Kernels', subtitle: `${info.deviceName}, driver ${info.driverVersion}`, sections }));
  }
  vk.destroy();
});
