#!/usr/bin/env node
// Times matrix-product plans on the device and prints them best first.
//
//   node benches/kernels-matmul.mjs --sweep [--out results.json] [--groups f32,bf16,…] [--budget 170] [--top 4]
//   node benches/kernels-matmul.mjs --sweep --shapes 'NT 8192 3072 1024,TN 1024 2752 8192'   all plans on these shapes
//   node benches/kernels-matmul.mjs --sweep --groups ptx --budget 400 --out ptx.json   PTX against the SPIR-V plans
//   node benches/kernels-matmul.mjs --table results.json…   the best plans, as kernels/tuning/h200.mjs holds them
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
import { UsageError, fail, optionsOrExit } from '../bin/lib/options.mjs';
import { KernelContext, pack } from '../kernels/base.mjs';
import { matmulKernels } from '../kernels/matmul.mjs';
import { runWorker } from './lib/addon.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';
import { runAttention } from './lib/sweep-attention.mjs';
import { GROUPS, HALVES, MODEL, TARGETS, WAVES, planName, plans, ptxPlans, shape, shapeName } from './lib/sweep-plans.mjs';
import { Values, median, scratch, scratchBits } from './lib/sweep-values.mjs';

const { values: options, positionals } = optionsOrExit(
  'node benches/kernels-matmul.mjs --sweep [options] | --table FILE…',
  /** @type {const} */ ({
    sweep: { type: 'boolean', help: "measure; without --shapes the targets' and the model's shapes" },
    groups: {
      type: 'string',
      value: 'LIST',
      help: 'bf16, f16, f32, bf16-mixed, bf16-half, ptx, bf16x3, beta, f32-beta, attention-bf16, attention-f32',
    },
    shapes: {
      type: 'string',
      value: 'LIST',
      pattern: /^(NT|NN|TN)( [1-9]\d{0,6}){3}(,(NT|NN|TN)( [1-9]\d{0,6}){3})*$/,
      help: "products such as 'NT 8192 3072 1024,TN 1024 2752 8192', with every plan",
    },
    budget: { type: 'integer', min: 1, max: 1_000_000, default: 170, help: 'seconds of the whole sweep' },
    top: { type: 'integer', min: 1, max: 1000, default: 4, help: 'plans shown of each shape' },
    out: { type: 'string', value: 'FILE', path: 'output', help: 'results as JSON' },
    ...RESULTS_OPTION,
    table: { type: 'boolean', help: 'the best plans of such files, as kernels/tuning/h200.mjs holds them' },
    small: { type: 'boolean', help: 'tiny shapes: does everything still run' },
    child: { type: 'string', value: 'GROUP', help: 'is the child of a sweep that measures a group' },
    log: { type: 'string', value: 'FILE', help: 'where a child writes' },
  }),
  { positionals: true },
);
/** @typedef {import('./lib/sweep-plans.mjs').Shape} Shape */

// ---------------------------------------------------------------------------------------------- child

/** @param {string} group @param {string} log */
function runChild(group, log) {
  const require = createRequire(import.meta.url);
  const vk = require(process.env.HELIOS_TEST_ADDON ? resolve(process.env.HELIOS_TEST_ADDON) : '../index.js');
  const context = new KernelContext(vk);
  const kernels = matmulKernels(context);
  const how = GROUPS[group];
  const { precision, aType = 'f32', bType = 'f32', beta = 0, few } = how;
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
  if (how.ptx && !context.takesPtx) return emit({ key: group, group, error: 'the device takes no PTX' });
  const end = Date.now() + options.budget * 1000;
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
  if (how.attention) return runAttention(vk, context, how, attempt, options.small);
  const bytes = (/** @type {string} */ type) => (type === 'f32' ? 4 : 2);
  const valuesA = new Values(aType);
  // Another seed: equal operands would make sums of squares on the diagonal, too large to be exact.
  const valuesB = new Values(bType, 0x7f4a7c15);

  const small = options.small;
  const targets = small ? ['NT 64 96 64', 'NT 128 128 128'].map(shape) : TARGETS;
  const model = small ? ['NN 64 96 64', 'TN 96 64 128'].map(shape) : MODEL;
  const all = plans(precision, context);

  /** @param {Shape} s @param {Iterable<any>} list */
  const measure = (s, list) => {
    const { m, n, k, form } = s;
    const transA = form === 'TN';
    const transB = form === 'NT';
    const cType = how.cType ?? (how.ptx && !transA ? 'bf16' : 'f32');
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
      load ??= pack(
        Array.from({ length: small ? 1 : Math.ceil(2e12 / (2 * m * n * k)) }, () =>
          kernels.matmul({ a, b, c, m, n, k, transA, transB, precision, aType, bType, cType }),
        ).flat(),
      );
      vk.waitTimeline(vk.batchExecuteAll(load.packed, load.count));
    };
    /** The first f32 result, element for element: with these values every sum is exact, in any order. @type {Float32Array | undefined} */
    let exact;
    for (const plan of list) {
      attempt(`${shapeName(s)} | ${planName(plan)}`, { shape: shapeName(s), plan }, (entry) => {
        const started = performance.now();
        const records = (/** @type {number} */ i) =>
          kernels.matmul({
            a: buffers[i % sets][0],
            b: buffers[i % sets][1],
            c: results[i % results.length],
            m,
            n,
            k,
            transA,
            transB,
            precision,
            aType,
            bType,
            cType,
            beta,
            plan,
          });
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
    if (!(relative < (cType === 'f32' ? (precision === 'bf16x3' ? 3e-5 : 1e-6) : 5e-3)))
      throw new Error(`wrong result: relative error ${relative}`);
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
        if (tiles > wave && tiles < 6 * wave && tiles % wave > 0 && (tiles % wave) * tail <= 1.1 * wave && s.k / tail >= 2 * plan.bk)
          list.push({ splits: 1, wave, tail });
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
    const found = [...done.values()]
      .filter((e) => e.shape === shapeName(s) && e.us)
      .sort((x, y) => x.us - y.us)
      .slice(0, count);
    return found.map((e) => ({ ...e.plan, splits: 1, tail: 1 }));
  };

  if (how.ptx) {
    const plain = matmulKernels(new KernelContext(vk, { ptx: false }));
    /** The plan that SPIR-V has for a product. @param {Shape} s */
    const present = ({ form, ...sizes }) =>
      plain.matmulPlan(/** @type {any} */ ({ ...sizes, transA: form === 'TN', transB: form === 'NT', aType, bType }));
    /** SPIR-V's plan, each tiling in its two likeliest ways, then the best two in all others. @param {Shape} s */
    function* candidates(s) {
      const tilings = ptxPlans(s);
      yield present(s);
      for (const ways of Object.values(tilings)) yield* ways.slice(0, 2);
      const times = (/** @type {string} */ tiling) =>
        Math.min(...[...done.values()].filter((e) => e.shape === shapeName(s) && e.plan.tiling === tiling && e.us).map((e) => e.us));
      const fastest = Object.keys(tilings).sort((x, y) => times(x) - times(y));
      for (const tiling of fastest.slice(0, 2)) yield* tilings[tiling].slice(2);
    }
    for (const s of options.shapes ? options.shapes.split(',').map(shape) : small ? targets : HALVES) measure(s, candidates(s));
    return;
  }
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
  for (const s of targets.slice(0, 2))
    measure(s, expand(s, [...best(s, 8)]).concat(expand(s, all.filter((p) => p.bm * p.bn >= 8192).slice(0, few ? 2 : 6))));
  // The winners of the target shapes, on the model's.
  const seen = new Map();
  for (const s of targets) for (const p of best(s, few ? 3 : 5)) seen.set(planName(p), p);
  const winners = [...seen.values()];
  const rest = few || precision === 'f32' ? [] : all.filter((p) => !seen.has(planName({ ...p, splits: 1, tail: 1 })));
  for (const s of few ? model.slice(0, 14) : model) measure(s, expand(s, winners));
  for (const s of model) measure(s, unsplit(s, rest));
}

// --------------------------------------------------------------------------------------------- parent

async function runSweep() {
  const folder = mkdtempSync(join(tmpdir(), 'helios-sweep-'));
  const groups = options.groups ? options.groups.split(',') : Object.keys(GROUPS).filter((g) => !GROUPS[g].extra);
  const unknown = groups.find((group) => !Object.hasOwn(GROUPS, group));
  if (unknown !== undefined) throw new UsageError(`--groups ${unknown}: there are ${Object.keys(GROUPS).join(', ')}`);
  const end = Date.now() + options.budget * 1000;
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
      const args = [fileURLToPath(import.meta.url), '--child', group, '--log', log, '--budget', String(Math.max(1, Math.ceil(left)))];
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
    if (existsSync(log))
      for (const line of readFileSync(log, 'utf8').split('\n').filter(Boolean)) byKey.set(JSON.parse(line).key, JSON.parse(line));
    for (const result of byKey.values()) results.push(result);
    if (options.out) writeFileSync(options.out, JSON.stringify(results));
  }
  rmSync(folder, { recursive: true });
  report(results);
  if (options.results !== undefined) {
    const figures = bestPlans(results).map((r) => ({
      group: r.group,
      name: r.shape,
      series: 'helios-vk',
      unit: 'TFLOP/s',
      value: r.tflops,
    }));
    const addon = fileURLToPath(new URL('../index.js', import.meta.url));
    const { info } = await runWorker(new URL('./lib/device-worker.mjs', import.meta.url).href, { addon });
    const title = 'Matrix products and attention: the best plan of each shape, barriers included';
    writeResults(options.results, { bench: 'kernels-matmul', title, device: info.deviceName, driver: info.driverInfo, figures });
  }
}

/** The fastest right result of each group and shape. @param {any[]} results */
function bestPlans(results) {
  /** @type {Map<string, any>} */
  const best = new Map();
  for (const r of results) {
    const key = `${r.group} ${r.shape}`;
    if (r.us && !r.differ && !(best.get(key)?.us <= r.us)) best.set(key, r);
  }
  return [...best.values()];
}

/** @param {any[]} results */
function report(results) {
  const top = options.top;
  for (const group of new Set(results.map((r) => r.group))) {
    console.log(`\n${group}  (TFLOP/s with barriers | of the dispatch alone | µs | compile ms)`);
    const mine = results.filter((r) => r.group === group);
    for (const name of new Set(mine.map((r) => r.shape))) {
      const good = mine.filter((r) => r.shape === name && r.us).sort((x, y) => x.us - y.us);
      for (const r of good.slice(0, top)) {
        console.log(
          `${name.padEnd(20)} ${planName(r.plan).padEnd(42)} ${r.tflops.toFixed(1).padStart(7)} ${r.dispatchTflops.toFixed(1).padStart(7)} ${r.us.toFixed(1).padStart(9)} ${String(r.compileMs).padStart(6)}`,
        );
      }
    }
    const odd = mine.filter((r) => r.differ);
    if (odd.length) console.log(`differ from the first result: ${odd.map((r) => `${r.key}: ${r.differ} elements`).join('; ')}`);
    const failed = mine.filter((r) => r.error);
    if (failed.length)
      console.log(
        `${failed.length} candidates failed, e.g. ${failed
          .slice(0, 3)
          .map((r) => `${r.key}: ${r.error}`)
          .join('; ')}`,
      );
  }
}

/** Classes of products that share a table of plans. @param {any} how */
function classOf({ precision, aType = 'f32', bType = 'f32', ptx = false }) {
  if (ptx) return 'ptx';
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
      const tile =
        name === 'ptx'
          ? [p.tiling ?? p.kernel]
          : p.kernel === 'f32'
            ? [p.bm, p.bn, p.bk, p.tm, p.tn, p.lx, p.stages]
            : [
                p.bm,
                p.bn,
                p.bk,
                p.wm,
                p.wn,
                p.tm,
                p.tn,
                p.tk,
                p.stages,
                ...(p.ahead || p.direct ? [p.ahead ?? 0] : []),
                ...(p.direct ? [1] : []),
              ];
      console.log(
        `${form} ${sizes.replaceAll('x', ' ')} | ${tile.join(' ')} | ${p.tail > 1 ? `${p.wave}/${p.tail}` : (p.splits ?? 1)} | ${us.toFixed(1)}`,
      );
    }
    console.log('`,');
  }
}

try {
  if (positionals.length > 0 && !options.table) throw new UsageError(`${positionals[0]}: files go with --table`);
  if (options.table) printTable();
  else if (options.child && options.log) runChild(options.child, options.log);
  else if (options.sweep) await runSweep();
  else throw new UsageError('nothing to do: --sweep or --table');
} catch (error) {
  fail('kernels-matmul', error);
}
