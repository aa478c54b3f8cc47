#!/usr/bin/env node
// Times matrix-product plans on the device and prints them best first.
//
//   node benches/kernels-matmul.mjs --sweep [--out results.json] [--groups f32,bf16,…] [--budget 170] [--top 4]
//   node benches/kernels-matmul.mjs --sweep --shapes 'NT 8192 3072 1024,TN 1024 2752 8192'   all plans on these shapes
//   node benches/kernels-matmul.mjs --table results.json…   the best plans, as kernels/matmul-h200.mjs holds them
//
// Each group of candidates runs in a child process, so that a lost device or a crashing driver costs one candidate.
// Data is random; operands rotate over several sets, so that large shapes do not run from cache; products of one
// measurement write the same C, so they run one after another, barriers included, as in a training step. Every
// candidate is checked first, on a poisoned C: all elements finite, 96 random ones against float64.

import { spawn } from 'node:child_process';
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { attentionKernels } from '../kernels/attention.mjs';
import { KernelContext, pack } from '../kernels/base.mjs';
import { coopShapes, matmulKernels } from '../kernels/matmul.mjs';

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    sweep: { type: 'boolean', default: false },
    table: { type: 'boolean', default: false },
    out: { type: 'string' },
    groups: { type: 'string' },
    shapes: { type: 'string' },
    help: { type: 'boolean', default: false },
    budget: { type: 'string', default: '170' },
    top: { type: 'string', default: '4' },
    small: { type: 'boolean', default: false },
    child: { type: 'string' },
    log: { type: 'string' },
  },
});

if (options.help) {
  console.log(`Times matrix-product and attention plans on the device.

  --sweep           measure; without --shapes the targets' and the model's shapes
  --groups LIST     bf16, f16, f32, bf16-mixed, bf16-half, bf16x3, beta, f32-beta, attention-bf16, attention-f32
  --shapes LIST     products such as 'NT 8192 3072 1024,TN 1024 2752 8192', with every plan
  --budget SECONDS  for the whole sweep (default 170)
  --top N           plans shown of each shape (default 4)
  --out FILE        results as JSON
  --table FILE…     the best plans of such files, as kernels/matmul-h200.mjs holds them
  --small           tiny shapes: does everything still run`);
  process.exit(0);
}

/** @typedef {{ m: number, n: number, k: number, form: 'NT' | 'NN' | 'TN' }} Shape */

/** @param {string} text @returns {Shape} */
const shape = (text) => {
  const [form, m, n, k] = text.split(' ');
  return { form: /** @type {any} */ (form), m: Number(m), n: Number(n), k: Number(k) };
};

// The four target shapes, then the products of the 300M model at 512 tokens: forward NT, input gradient NN, weight
// gradient TN.
const TARGETS = ['NT 512 1024 1024', 'NT 512 2752 1024', 'NT 2048 2752 1024', 'NT 4096 4096 4096'].map(shape);
const MODEL = [
  'NN 512 1024 1024', 'TN 1024 1024 512', 'NT 512 3072 1024', 'NT 512 5504 1024', 'NT 512 1024 2752',
  'NT 512 16384 1024', 'NN 512 1024 3072', 'NN 512 1024 5504', 'NN 512 2752 1024', 'NN 512 1024 16384',
  'TN 3072 1024 512', 'TN 5504 1024 512', 'TN 1024 2752 512', 'TN 16384 1024 512', 'TN 512 1024 1024',
  'NT 2048 3072 1024', 'NT 2048 5504 1024', 'NT 8192 5504 1024',
].map(shape);

/** f32 tilings: bm bn bk tm tn lx stages. */
const F32_TILES = `
128 128 16 8 8 8 2|128 128 16 8 8 8 1|128 128 16 8 4 8 2|128 128 16 8 4 8 1|64 64 16 8 8 8 2|64 64 16 8 4 8 2|128 64 16 8 8 8 2|64 128 16 8 8 8 2
128 128 16 8 8 4 2|128 128 8 8 8 8 2|64 64 32 4 4 8 1|64 128 16 4 8 8 2`;
/** Matrix-unit tilings: bm bn bk wm wn tm tn tk stages [ahead [direct]]. */
const COOP_TILES = `
128 128 64 64 32 16 16 16 1 1|64 64 128 32 32 16 16 16 1 1|128 128 32 64 64 16 16 16 1 1|128 64 64 32 32 16 16 16 1 1|256 128 32 64 64 16 16 16 1 1
128 128 64 64 32 16 16 16 1|64 64 128 32 32 16 16 16 1|64 64 64 32 32 16 16 16 1|128 64 64 32 32 16 16 16 1|64 128 64 32 32 16 16 16 1
128 128 32 64 64 16 16 16 1|128 128 32 64 32 16 16 16 2|128 128 32 32 32 16 16 16 2|256 128 32 64 64 16 16 16 1|256 128 32 128 32 16 16 16 1
128 128 64 64 64 16 16 16 1|64 64 64 32 16 16 16 16 2|64 64 64 16 32 16 16 16 2|128 128 64 32 64 16 16 16 1|128 128 64 32 32 16 16 16 1
128 96 64 64 48 16 16 16 1|128 96 64 32 48 16 16 16 1|96 128 64 48 64 16 16 16 1|96 128 64 48 32 16 16 16 1
128 192 64 64 48 16 16 16 1|192 128 64 48 64 16 16 16 1|192 128 64 96 32 16 16 16 1|192 128 32 96 32 16 16 16 1|128 192 32 64 48 16 16 16 1
64 64 128 32 16 16 16 16 1|64 64 128 16 32 16 16 16 1|64 96 64 32 48 16 16 16 1|96 64 64 48 32 16 16 16 1|96 96 64 48 48 16 16 16 1
64 128 64 32 64 16 16 16 1|128 64 64 64 32 16 16 16 1|64 192 64 32 48 16 16 16 1|64 32 128 32 16 16 16 16 1|32 64 128 16 32 16 16 16 1
128 128 64 64 32 16 8 16 1|64 64 128 32 32 16 8 16 1|128 64 32 32 32 16 16 16 2|64 64 64 32 32 16 16 16 2|128 256 32 64 64 16 16 16 1
64 64 64 32 32 16 16 16 1 0 1|128 128 64 64 32 16 16 16 1 0 1|96 64 64 48 32 16 16 16 1 0 1
128 64 32 32 32 16 16 16 1|64 64 32 32 32 16 16 16 2|128 128 32 64 32 16 16 16 1|64 64 32 32 32 16 16 16 1`;

/** Workgroups that an H200 runs at once, one or two on each of its 132 multiprocessors. */
const WAVES = [132, 264];

/** @param {string} text */
const rows = (text) => text.split(/[|\n]/).map((line) => line.trim()).filter(Boolean).map((line) => line.split(/\s+/).map(Number));

/** @param {string} precision @param {any} context @returns {any[]} */
function plans(precision, context) {
  if (precision === 'f32') {
    return rows(F32_TILES).map(([bm, bn, bk, tm, tn, lx, stages]) => ({ kernel: 'f32', bm, bn, bk, tm, tn, lx, stages }));
  }
  const known = coopShapes(context.info, precision === 'f16' ? 'f16' : 'bf16');
  const list = rows(COOP_TILES).map(([bm, bn, bk, wm, wn, tm, tn, tk, stages, ahead = 0, direct = 0]) => ({ kernel: 'coop', bm, bn, bk, wm, wn, tm, tn, tk, stages, ahead, direct }));
  if (known.some((s) => s.m === 16 && s.n === 16)) {
    return list.filter((p) => known.some((s) => s.m === p.tm && s.n === p.tn && s.k === p.tk));
  }
  return known.slice(0, 1).flatMap(({ m, n, k }) =>
    [[4, 4, 2, 2], [8, 4, 2, 2]].map(([x, y, wx, wy]) => (
      { kernel: 'coop', bm: x * m, bn: y * n, bk: Math.max(16, k), wm: wx * m, wn: wy * n, tm: m, tn: n, tk: k, stages: 1 })),
  );
}

/** @type {Record<string, any>} */
const GROUPS = {
  bf16: { precision: 'bf16', aType: 'bf16', bType: 'bf16', share: 5 },
  f16: { precision: 'f16', aType: 'f16', bType: 'f16', share: 5, extra: true },
  f32: { precision: 'f32', share: 2 },
  // Groups marked extra run only when named. Activations and gradients in f32, weights in half precision.
  'bf16-mixed': { precision: 'bf16', aType: 'f32', bType: 'bf16', few: true },
  // Half results.
  'bf16-half': { precision: 'bf16', aType: 'bf16', bType: 'bf16', cType: 'bf16', few: true, extra: true },
  bf16x3: { precision: 'bf16x3', few: true },
  // Weight gradients that accumulate: C is read, from memory rather than from cache.
  beta: { precision: 'bf16', aType: 'bf16', bType: 'bf16', beta: 1, extra: true },
  'f32-beta': { precision: 'f32', beta: 1, extra: true },
  'attention-bf16': { attention: true, type: 'bf16', few: true },
  'attention-f32': { attention: true, type: 'f32', few: true },
};

const planName = (/** @type {any} */ p) => p.held ? `${p.kernel ?? ''} ${p.held}x${p.walked}${p.group ? ` g${p.group}` : ''}${p.threads ? ` t${p.threads}` : ''}${p.rows ? ` ${p.rows}x${p.columns} ${p.workspace / 2 ** 20} MiB` : ''}${p.shape ? ` i${p.shape.m}x${p.shape.n}x${p.shape.k}` : ''}`.trim() :
  [p.kernel, `${p.bm}x${p.bn}x${p.bk}`, p.kernel === 'f32' ? `${p.tm}x${p.tn} l${p.lx}` : `w${p.wm}x${p.wn} i${p.tm}x${p.tn}x${p.tk}`,
    `s${p.stages}${p.ahead ? 'a' : ''}${p.direct ? 'd' : ''}`, p.splits > 1 ? `k/${p.splits}` : p.tail > 1 ? `tail/${p.tail} of ${p.wave}` : ''].join(' ').trim();
const shapeName = (/** @type {Shape} */ s) => `${s.form} ${s.m}x${s.n}x${s.k}`;

// ---------------------------------------------------------------------------------------------- child

/** @param {number} x f32 value */
const scratch = new Float32Array(1);
const scratchBits = new Uint32Array(scratch.buffer);

/** Random values and their storage; one block repeated, which timing does not see. */
class Values {
  /** @param {string} type @param {number} [seed] not 0 */
  constructor(type, seed = 0x9e3779b9) {
    this.type = type;
    const count = (1 << 18) + 7;
    this.values = new Float32Array(count);
    let s = seed;
    for (let i = 0; i < count; i++) {
      s ^= s << 13;
      s ^= s >>> 17;
      s ^= s << 5;
      // Multiples of 2^-7 in [-1, 1): exact in every storage type.
      this.values[i] = ((s >> 24) | 0) / 128;
    }
    this.block = type === 'f32' ? this.values : Uint16Array.from(this.values, (x) => {
      scratch[0] = x;
      if (type === 'bf16' || x === 0) return scratchBits[0] >>> 16;
      const bits = scratchBits[0];
      return ((bits >>> 16) & 0x8000) | ((((bits >>> 23) & 255) - 112) << 10) | ((bits >>> 13) & 1023);
    });
  }
  /** @param {number} i */
  at(i) {
    return this.values[i % this.values.length];
  }
  /** @param {number} length */
  tensor(length) {
    const all = new /** @type {any} */ (this.block.constructor)(length);
    for (let i = 0; i < length; i += this.block.length) all.set(this.block.subarray(0, Math.min(this.block.length, length - i)), i);
    return all;
  }
}

/**
 * Attention at 16 heads of 64, 512 tokens: every tiling, forward and backward (with its delta pass), checked against
 * the f32 kernels.
 * @param {any} vk @param {any} context @param {any} how @param {(key: string, entry: any, work: (entry: any) => void) => void} attempt
 */
function runAttention(vk, context, { type }, attempt) {
  const kernels = attentionKernels(context);
  if (!kernels.attentionSupports(type)) return;
  const [tokens, heads, headSize] = options.small ? [80, 2, 64] : [512, 16, 64];
  const width = heads * headSize;
  const known = type === 'f32' ? [undefined] : coopShapes(context.info, type);
  // Of the backward pass by tiles: queries, of them at a time, rows and columns a thread, MiB of workspace.
  const parts = [[64, 16, 8, 4, 64], [64, 16, 8, 4, 128], [64, 16, 8, 4, 512], [64, 16, 4, 8, 128], [64, 16, 8, 8, 128], [64, 16, 4, 4, 128], [64, 32, 8, 4, 128], [128, 16, 8, 4, 128], [32, 16, 8, 4, 128], [64, 8, 8, 4, 128]]
    .map(([held, walked, rows, columns, workspace]) => ({ kernel: 'tiles', held, walked, rows, columns, workspace: workspace * 2 ** 20 }));
  const tiles = type === 'f32'
    ? [...[[32, 32, 128], [32, 32, 64], [32, 32, 256], [16, 32, 64], [16, 16, 64], [32, 16, 128], [64, 32, 256], [64, 16, 128], [64, 32, 128], [64, 64, 128]]
        .map(([held, walked, threads]) => ({ kernel: 'walk', held, walked, threads })), ...parts]
    : [[64, 64], [64, 32], [32, 64], [32, 32], [128, 64], [128, 32], [16, 64], [16, 32], [48, 32], [64, 16]]
        .flatMap(([held, walked]) => [{ kernel: 'scratch' }, { kernel: 'register', group: 1 }, { kernel: 'register', group: 2 }].map((how) => ({ held, walked, ...how })));
  const bytes = type === 'f32' ? 4 : 2;
  const values = new Values(type);
  const upload = (/** @type {number} */ n, /** @type {Values} */ from) => {
    const handle = vk.createBuffer(n * (from.type === 'f32' ? 4 : 2), 0);
    vk.uploadBuffer(handle, from.tensor(n));
    return handle;
  };
  for (const batch of options.small ? [1, 2] : [1, 4, 16]) {
    const rows = batch * tokens;
    const sets = batch === 16 || options.small ? 1 : 4;
    const make = (/** @type {Values} */ from, /** @type {number} */ size) => ({
      qkv: upload(rows * 3 * width, from), dOut: upload(rows * width, from), out: vk.createBuffer(rows * width * size, 0),
      logSumExp: vk.createBuffer(batch * heads * tokens * 4, 0), dQkv: vk.createBuffer(rows * 3 * width * size, 0),
    });
    const common = { batch, tokens, heads, headSize };
    const read = (/** @type {number} */ handle, /** @type {string} */ as) => {
      const words = vk.readBuffer(handle);
      if (as === 'f32') return words;
      const h = new Uint16Array(words.buffer, words.byteOffset, words.length * 2);
      return Float32Array.from(h, (x) => {
        if (as === 'bf16') {
          scratchBits[0] = x << 16;
          return scratch[0];
        }
        const e = (x >> 10) & 31;
        return (x & 0x8000 ? -1 : 1) * (e === 0 ? (x & 1023) * 2 ** -24 : (1024 + (x & 1023)) * 2 ** (e - 25));
      });
    };
    const run = (/** @type {any} */ records) => {
      const { packed, count } = pack(records);
      vk.waitTimeline(vk.batchExecuteAll(packed, count));
    };
    const exact = make(new Values('f32'), 4);
    run([kernels.attentionForward({ ...exact, ...common }), ...kernels.attentionBackward({ ...exact, ...common })]);
    const want = { out: read(exact.out, 'f32'), dQkv: read(exact.dQkv, 'f32') };
    const mine = Array.from({ length: sets }, () => make(values, bytes));
    for (const pass of /** @type {const} */ (['forward', 'backward'])) {
      // A failed candidate may have left poison.
      for (const set of mine) run(kernels.attentionForward({ ...set, ...common, type }));
      for (const shape of known.slice(0, 3)) {
        for (const tile of tiles) {
          if (pass === 'forward' && ('workspace' in tile || ('group' in tile && tile.group !== 1))) continue; // says nothing to it
          const plan = /** @type {any} */ ({ ...tile, ...(shape ? { shape } : {}) });
          const name = `${pass} b${batch}`;
          attempt(`${name} | ${planName(plan)}`, { shape: name, plan }, (entry) => {
            const of = (/** @type {number} */ i) => {
              const args = { ...mine[i % sets], ...common, type, plan };
              return pass === 'forward' ? [kernels.attentionForward(args)] : kernels.attentionBackward(args);
            };
            const target = pass === 'forward' ? 'out' : 'dQkv';
            vk.fillBuffer(mine[0][target], rows * width * bytes * (pass === 'forward' ? 1 : 3), 0x7fc07fc0);
            const started = performance.now();
            run(of(0));
            entry.compileMs = Math.round(performance.now() - started);
            const got = read(mine[0][target], type);
            let error = 0;
            let norm = 0;
            for (let i = 0; i < got.length; i++) {
              error += (got[i] - want[target][i]) ** 2;
              norm += want[target][i] ** 2;
            }
            const relative = Math.sqrt(error / norm);
            entry.relative = relative;
            if (!(relative < (type === 'f32' ? 1e-4 : type === 'f16' ? 4e-3 : 3e-2))) throw new Error(`wrong result: relative error ${relative}`);
            const reps = options.small ? 2 : 40;
            const { packed, count } = pack(Array.from({ length: reps }, (_, i) => of(i)).flat());
            const times = [0, 1, 2, 3, 4].map(() => vk.batchExecuteAllProfiled(packed, count));
            const per = count / reps;
            entry.us = median(times.map((t) => t.batchGpuTimeUs / reps));
            entry.dispatchUs = median(times.map((t) => median(Array.from({ length: reps }, (_, r) => {
              let sum = 0;
              for (let d = 0; d < per; d++) sum += t.dispatchTimesUs[r * per + d];
              return sum;
            }))));
            const flops = (pass === 'forward' ? 2 : 5) * batch * heads * tokens * tokens * headSize; // causal: half
            entry.tflops = flops / entry.us / 1e6;
            entry.dispatchTflops = flops / entry.dispatchUs / 1e6;
          });
        }
      }
    }
    for (const set of [exact, ...mine]) for (const handle of Object.values(set)) vk.destroyBuffer(handle);
  }
}

/** @param {string} group @param {string} log */
function runChild(group, log) {
  const require = createRequire(import.meta.url);
  const vk = require(process.env.HELIOS_TEST_ADDON ? resolve(process.env.HELIOS_TEST_ADDON) : '../index.js');
  const context = new KernelContext(vk);
  const kernels = matmulKernels(context);
  const how = GROUPS[group];
  const { precision, aType = 'f32', bType = 'f32', cType = 'f32', beta = 0, few } = how;
  if (!how.attention && !kernels.matmulSupports(precision)) return;
  const done = new Map();
  for (const line of existsSync(log) ? readFileSync(log, 'utf8').split('\n').filter(Boolean) : []) {
    const entry = JSON.parse(line);
    done.set(entry.key, entry);
  }
  const emit = (/** @type {any} */ entry) => {
    appendFileSync(log, `${JSON.stringify(entry)}\n`);
    done.set(entry.key, entry);
  };
  const end = Date.now() + Number(options.budget) * 1000;
  /** Runs one candidate, whatever becomes of it. @type {(key: string, entry: any, work: (entry: any) => void) => void} */
  const attempt = (name, fields, work) => {
    const key = `${group} | ${name}`;
    if (done.has(key) || Date.now() > end) return;
    // Written first: a crash inside leaves the mark, and the next child passes over it.
    emit({ key, group, ...fields, error: 'crashed' });
    const entry = { key, group, ...fields };
    try {
      work(entry);
    } catch (error) {
      entry.error = String(/** @type {any} */ (error)?.message ?? error).slice(0, 200);
      if (/DEVICE_LOST/i.test(String(/** @type {any} */ (error)?.code) + entry.error)) {
        emit(entry);
        process.exit(3);
      }
    }
    emit(entry);
  };
  if (how.attention) return runAttention(vk, context, how, attempt);
  const bytes = (/** @type {string} */ type) => (type === 'f32' ? 4 : 2);
  const valuesA = new Values(aType);
  // Another seed: equal operands would make sums of squares on the diagonal, too large to be exact.
  const valuesB = new Values(bType, 0x7f4a7c15);

  const small = options.small;
  const targets = small ? ['NT 64 96 64', 'NT 128 128 128'].map(shape) : TARGETS;
  const model = small ? ['NN 64 96 64', 'TN 96 64 128'].map(shape) : MODEL;
  const all = plans(precision, context);

  /** @param {Shape} s @param {any[]} list */
  const measure = (s, list) => {
    const { m, n, k, form } = s;
    const transA = form === 'TN';
    const transB = form === 'NT';
    const setBytes = m * k * bytes(aType) + n * k * bytes(bType);
    const sets = Math.max(1, Math.min(24, Math.ceil((small ? 1 : 192e6) / setBytes)));
    const dataA = valuesA.tensor(m * k);
    const dataB = valuesB.tensor(n * k);
    const buffers = Array.from({ length: sets }, () => {
      const a = vk.createBuffer(Math.ceil(dataA.byteLength / 16) * 16, 0);
      const b = vk.createBuffer(Math.ceil(dataB.byteLength / 16) * 16, 0);
      vk.uploadBuffer(a, dataA);
      vk.uploadBuffer(b, dataB);
      return [a, b];
    });
    for (const [i, data] of [dataA, dataB].entries()) {
      const back = vk.readBuffer(buffers[0][i]);
      const words = new Uint32Array(back.buffer, back.byteOffset, back.length);
      const sent = new Uint32Array(data.buffer, data.byteOffset, Math.floor(data.byteLength / 4));
      for (let w = 0; w < sent.length; w++) {
        if (words[w] !== sent[w]) throw new Error(`upload of ${data.byteLength} bytes came back wrong at word ${w}`);
      }
    }
    const sizeC = Math.ceil((m * n * bytes(cType)) / 16) * 16;
    const c = vk.createBuffer(sizeC, 0);
    const others = Array.from({ length: beta && !small ? Math.ceil(128e6 / sizeC) : 0 }, () => vk.createBuffer(sizeC, 0));
    const results = [c, ...others];
    for (const handle of results) vk.fillBuffer(handle, sizeC, 0);
    // An idle GPU lowers its clocks: some milliseconds of work come before each measurement.
    /** @type {{ packed: ArrayBuffer, count: number } | undefined} */
    let load;
    const warm = () => {
      const [a, b] = buffers[0];
      load ??= pack(Array.from({ length: small ? 1 : Math.ceil(2e12 / (2 * m * n * k)) }, () =>
        kernels.matmul({ a, b, c, m, n, k, transA, transB, precision, aType, bType, cType })).flat());
      vk.waitTimeline(vk.batchExecuteAll(load.packed, load.count));
    };
    /** The first f32 result, element for element: with these values every sum is exact, in any order. @type {Float32Array | undefined} */
    let exact;
    for (const plan of list) {
      attempt(`${shapeName(s)} | ${planName(plan)}`, { shape: shapeName(s), plan }, (entry) => {
        const started = performance.now();
        const records = (/** @type {number} */ i) => kernels.matmul(
          { a: buffers[i % sets][0], b: buffers[i % sets][1], c: results[i % results.length], m, n, k, transA, transB, precision, aType, bType, cType, beta, plan });
        const batch = (/** @type {number} */ count) => pack(Array.from({ length: count }, (_, i) => records(i)).flat());
        vk.fillBuffer(c, sizeC, beta ? 0 : 0x7fc07fc0);
        const first = batch(1);
        vk.waitTimeline(vk.batchExecuteAll(first.packed, first.count));
        entry.compileMs = Math.round(performance.now() - started);
        const out = vk.readBuffer(c);
        verify(out, s, { transA, transB, cType });
        if (cType === 'f32' && precision !== 'bf16x3') {
          const want = (exact ??= out);
          let differ = 0;
          for (let i = 0; i < m * n; i++) if (out[i] !== want[i]) differ++;
          if (differ > 0) entry.differ = differ;
        }
        warm();
        const trial = batch(4);
        const time = (/** @type {{ packed: ArrayBuffer, count: number }} */ b) => vk.batchExecuteAllProfiled(b.packed, b.count);
        time(trial);
        const guess = time(trial).batchGpuTimeUs / 4;
        const reps = Math.max(6, Math.min(small ? 6 : 60, Math.round(6000 / guess)));
        const run = batch(reps);
        /** @type {number[]} */
        const means = [];
        /** @type {number[]} */
        const singles = [];
        for (let i = 0; i < 7; i++) {
          const t = time(run);
          means.push(t.batchGpuTimeUs / reps);
          // Where K is split, both passes count.
          const per = t.dispatchCount / reps;
          for (let r = 0; r < reps; r++) {
            let sum = 0;
            for (let d = 0; d < per; d++) sum += t.dispatchTimesUs[r * per + d];
            singles.push(sum);
          }
        }
        entry.us = median(means);
        entry.dispatchUs = median(singles);
        entry.tflops = (2 * m * n * k) / entry.us / 1e6;
        entry.dispatchTflops = (2 * m * n * k) / entry.dispatchUs / 1e6;
      });
    }
    for (const handle of [...buffers.flat(), ...results]) vk.destroyBuffer(handle);
  };

  /** @param {Float32Array} out @param {Shape} s @param {any} how */
  const verify = (out, { m, n, k }, { transA, transB, cType }) => {
    const halves = new Uint16Array(out.buffer, out.byteOffset, out.length * 2);
    const get = (/** @type {number} */ i) => {
      if (cType === 'f32') return out[i];
      scratchBits[0] = halves[i] << 16;
      return scratch[0];
    };
    let error = 0;
    let norm = 0;
    for (let t = 0; t < 96; t++) {
      const i = Math.floor(Math.random() * m);
      const j = t < 8 ? n - 1 - (t % n) : Math.floor(Math.random() * n);
      let sum = 0;
      for (let l = 0; l < k; l++) {
        sum += valuesA.at(transA ? l * m + i : i * k + l) * valuesB.at(transB ? j * k + l : l * n + j);
      }
      error += (get(i * n + j) - sum) ** 2;
      norm += sum * sum;
    }
    const relative = Math.sqrt(error / norm);
    if (!(relative < (cType === 'f32' ? (precision === 'bf16x3' ? 3e-5 : 1e-6) : 5e-3))) throw new Error(`wrong result: relative error ${relative}`);
    for (let i = 0; i < m * n; i++) {
      const x = get(i);
      if (x !== x) throw new Error(`element ${i} was not written`);
    }
  };

  /** Ways to split K: not at all, everywhere, or for the tiles after the last whole wave. @returns {any[]} */
  const splitsFor = (/** @type {Shape} */ s, /** @type {any} */ plan) => {
    const tiles = Math.ceil(s.m / plan.bm) * Math.ceil(s.n / plan.bn);
    /** @type {any[]} */
    const list = [{ splits: 1 }];
    for (const splits of [2, 3, 4, 6, 8]) {
      if (tiles * splits <= 640 && tiles < 160 && s.k / splits >= 4 * plan.bk && s.k / splits >= 128) list.push({ splits });
    }
    for (const wave of WAVES) {
      for (const tail of [2, 3, 4]) {
        if (tiles > wave && tiles < 6 * wave && tiles % wave > 0 && (tiles % wave) * tail <= 1.1 * wave && s.k / tail >= 2 * plan.bk) list.push({ splits: 1, wave, tail });
      }
    }
    return list;
  };
  /** Sensible tiles for a shape: not more padding than work, and at least some workgroups. */
  const sensible = (/** @type {Shape} */ s, /** @type {any} */ plan) => {
    const tiles = Math.ceil(s.m / plan.bm) * Math.ceil(s.n / plan.bn);
    if (small) return true;
    return tiles >= 12 && !(tiles > 4096 && plan.bm * plan.bn <= 64 * 64) && !(s.m * s.n >= 2048 * 2752 && plan.bm * plan.bn < 64 * 64);
  };
  const expand = (/** @type {Shape} */ s, /** @type {any[]} */ list) =>
    list.filter((p) => sensible(s, p)).flatMap((p) => splitsFor(s, p).map((split) => ({ ...p, ...split })));

  const unsplit = (/** @type {Shape} */ s, /** @type {any[]} */ list) => expand(s, list).filter((p) => p.splits === 1 && !p.tail);
  const best = (/** @type {Shape} */ s, /** @type {number} */ count) => {
    const found = [...done.values()].filter((e) => e.shape === shapeName(s) && e.us).sort((x, y) => x.us - y.us).slice(0, count);
    return found.map((e) => ({ ...e.plan, splits: 1, tail: 1 }));
  };

  if (options.shapes) {
    for (const s of options.shapes.split(',').map(shape)) measure(s, expand(s, all));
    return;
  }
  if (beta) {
    for (const s of small ? model : MODEL.filter(({ form }) => form === 'TN')) measure(s, expand(s, all));
    return;
  }
  const first = few && precision !== 'bf16x3' ? all.filter((_, i) => i % 2 === 0) : all;
  for (const s of few ? targets.slice(0, 3) : targets) measure(s, unsplit(s, first));
  for (const s of targets.slice(0, 2)) measure(s, expand(s, [...best(s, 8)]).concat(expand(s, all.filter((p) => p.bm * p.bn >= 8192).slice(0, few ? 2 : 6))));
  // The winners of the target shapes, on the model's.
  const seen = new Map();
  for (const s of targets) for (const p of best(s, few ? 3 : 5)) seen.set(planName(p), p);
  const winners = [...seen.values()];
  const rest = few || precision === 'f32' ? [] : all.filter((p) => !seen.has(planName({ ...p, splits: 1, tail: 1 })));
  for (const s of few ? model.slice(0, 14) : model) measure(s, expand(s, winners));
  for (const s of model) measure(s, unsplit(s, rest));
}

/** @param {number[]} list */
function median(list) {
  const sorted = [...list].sort((x, y) => x - y);
  return sorted[sorted.length >> 1];
}

// --------------------------------------------------------------------------------------------- parent

async function runSweep() {
  const folder = mkdtempSync(join(tmpdir(), 'helios-sweep-'));
  const groups = options.groups ? options.groups.split(',') : Object.keys(GROUPS).filter((g) => !GROUPS[g].extra);
  const unknown = groups.find((g) => !GROUPS[g]);
  if (unknown) throw new Error(`unknown group ${unknown}; known: ${Object.keys(GROUPS).join(', ')}`);
  const end = Date.now() + Number(options.budget) * 1000;
  // Share the time by what the groups hold.
  const weight = (/** @type {string} */ g) => GROUPS[g].share ?? 1;
  /** @type {any[]} */
  const results = [];
  for (const [index, group] of groups.entries()) {
    const log = join(folder, `${group}.jsonl`);
    const share = weight(group) / groups.slice(index).reduce((sum, g) => sum + weight(g), 0);
    const until = Date.now() + (end - Date.now()) * share;
    for (let attempt = 0; attempt < 12 && Date.now() < until; attempt++) {
      const left = (until - Date.now()) / 1000;
      const args = [fileURLToPath(import.meta.url), '--child', group, '--log', log, '--budget', String(left)];
      if (options.shapes) args.push('--shapes', options.shapes);
      if (options.small) args.push('--small');
      const code = await new Promise((done) => {
        const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
        const timer = setTimeout(() => child.kill('SIGKILL'), (left + 15) * 1000);
        child.on('exit', (status) => {
          clearTimeout(timer);
          done(status);
        });
      });
      if (code === 0) break;
    }
    /** @type {Map<string, any>} */
    const byKey = new Map();
    if (existsSync(log)) for (const line of readFileSync(log, 'utf8').split('\n').filter(Boolean)) byKey.set(JSON.parse(line).key, JSON.parse(line));
    for (const result of byKey.values()) results.push(result);
    if (options.out) writeFileSync(options.out, JSON.stringify(results));
  }
  rmSync(folder, { recursive: true });
  report(results);
}

/** @param {any[]} results */
function report(results) {
  const top = Number(options.top);
  for (const group of new Set(results.map((r) => r.group))) {
    console.log(`\n${group}  (TFLOP/s with barriers | of the dispatch alone | µs | compile ms)`);
    const mine = results.filter((r) => r.group === group);
    for (const name of new Set(mine.map((r) => r.shape))) {
      const good = mine.filter((r) => r.shape === name && r.us).sort((x, y) => x.us - y.us);
      for (const r of good.slice(0, top)) {
        console.log(`${name.padEnd(20)} ${planName(r.plan).padEnd(42)} ${r.tflops.toFixed(1).padStart(7)} ${r.dispatchTflops.toFixed(1).padStart(7)} ${r.us.toFixed(1).padStart(9)} ${String(r.compileMs).padStart(6)}`);
      }
    }
    const odd = mine.filter((r) => r.differ);
    if (odd.length) console.log(`differ from the first result: ${odd.map((r) => `${r.key}: ${r.differ} elements`).join('; ')}`);
    const failed = mine.filter((r) => r.error);
    if (failed.length) console.log(`${failed.length} candidates failed, e.g. ${failed.slice(0, 3).map((r) => `${r.key}: ${r.error}`).join('; ')}`);
  }
}

/** Classes of products that share a table of plans. @param {any} how */
function classOf({ precision, aType = 'f32', bType = 'f32' }) {
  if (precision === 'f32' || precision === 'bf16x3') return precision;
  return aType === 'f32' || bType === 'f32' ? 'mixed' : 'half';
}

/** Prints the best plan of each shape: noise only ever adds time, so a plan counts with its least. */
function printTable() {
  /** @type {Record<string, Map<string, any>>} */
  const tables = {};
  for (const file of positionals) {
    for (const r of JSON.parse(readFileSync(file, 'utf8'))) {
      if (!r.us || r.differ || GROUPS[r.group]?.attention !== undefined || GROUPS[r.group]?.beta) continue;
      const table = (tables[classOf(GROUPS[r.group])] ??= new Map());
      const best = table.get(r.shape);
      if (!best || r.us < best.us) table.set(r.shape, r);
    }
  }
  for (const [name, table] of Object.entries(tables)) {
    console.log(`  ${name}: \``);
    for (const { shape: text, plan: p, us } of table.values()) {
      const [form, sizes] = text.split(' ');
      const tile = p.kernel === 'f32' ? [p.bm, p.bn, p.bk, p.tm, p.tn, p.lx, p.stages] : [p.bm, p.bn, p.bk, p.wm, p.wn, p.tm, p.tn, p.tk, p.stages, ...(p.ahead || p.direct ? [p.ahead ?? 0] : []), ...(p.direct ? [1] : [])];
      console.log(`${form} ${sizes.replaceAll('x', ' ')} | ${tile.join(' ')} | ${p.tail > 1 ? `${p.wave}/${p.tail}` : (p.splits ?? 1)} | ${us.toFixed(1)}`);
    }
    console.log('`,');
  }
}

if (options.table) printTable();
else if (options.child && options.log) runChild(options.child, options.log);
else if (options.sweep) await runSweep();
else {
  console.error('usage: node benches/kernels-matmul.mjs --sweep [--out FILE] [--groups a,b] [--budget SECONDS] [--top N]');
  process.exitCode = 2;
}
