#!/usr/bin/env node
// Times matrix-product plans on the device and prints them best first.
//
//   node benches/kernels-matmul.mjs --sweep [--out results.json] [--groups f32,bf16,…] [--budget 170] [--top 4]
//   node benches/kernels-matmul.mjs --sweep --shapes 'NT 8192 3072 1024,TN 1024 2752 8192'   all plans on these shapes
//   node benches/kernels-matmul.mjs --sweep --groups ptx --budget 400 --out ptx.json   PTX against the SPIR-V plans
//   node benches/kernels-matmul.mjs --sweep --groups permuted,glu    products with B as it is and with B permuted, in turn
//   node benches/kernels-matmul.mjs --grid [--count 80] [--budget 120] [--pytorch python3]   the package's picks for products that no table names
//   node benches/kernels-matmul.mjs --table results.json…   the best plans, as kernels/tuning/measured/hopper.mjs holds them
//
// Each group of candidates runs in a child process, so that a lost device or a crashing driver costs one candidate. Data is random. Operands
// rotate over several sets, so that large shapes do not run from cache. All products of one measurement write the same C, so that they run one
// after another, with barriers, as in a training step. Every candidate is checked first, on a poisoned C: all elements must be finite, and 96
// random ones must agree with float64.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Journal, entriesOf, runChildren } from '../bin/lib/journal.mjs';
import { UsageError, fail, optionsOrExit } from '../bin/lib/options.mjs';
import { KernelContext } from '../kernels/base.mjs';
import { matmulKernels } from '../kernels/matmul.mjs';
import { planName, tilingName } from '../kernels/matmul/words.mjs';
import { ptxPlans, sensible, tilings, withSplits } from '../kernels/tuning/candidates.mjs';
import { timedProduct } from '../kernels/tuning/measure.mjs';
import { classOf, lineOf, shapeOf } from '../kernels/tuning/table.mjs';
import { deviceTimer } from '../kernels/tuning/timer.mjs';
import { runWorker } from './lib/addon.mjs';
import { addCublas, gridName, gridProduct, gridProducts, gridSummary, pytorchSeconds, timeGrid } from './lib/product-grid.mjs';
import { RESULTS_OPTION, writeResults } from './lib/results.mjs';
import { GROUPS, HALVES, MODEL, TARGETS, shapeName } from './lib/sweep-plans.mjs';
import { runTurns } from './lib/sweep-turns.mjs';

const { values: options, positionals } = optionsOrExit(
  'node benches/kernels-matmul.mjs --sweep [options] | --grid [options] | --table FILE…',
  /** @type {const} */ ({
    sweep: { type: 'boolean', help: 'time plans; without --shapes for the shapes of the model and of the targets' },
    grid: { type: 'boolean', help: "time the package's picks beside other plans, for a sample of products that no table names" },
    count: { type: 'integer', min: 1, max: 10_000, default: 80, help: 'products of the grid' },
    products: {
      type: 'string',
      value: 'LIST',
      pattern: /^(f32|f16|bf16) (NT|NN|TN)( [1-9]\d{0,6}){3}(,(f32|f16|bf16) (NT|NN|TN)( [1-9]\d{0,6}){3})*$/,
      help: "with --grid: these, and of the grid what is left of --count, e.g. 'bf16 NT 8 50304 512,f32 TN 256 1280 2048'",
    },
    pytorch: { type: 'string', value: 'PROGRAM', help: "also time PyTorch's products of the grid, by this Python" },
    groups: {
      type: 'string',
      value: 'LIST',
      help: 'bf16, f16, f32, bf16-mixed, bf16-half, ptx, permuted, glu, bf16x3, beta, f32-beta',
    },
    shapes: {
      type: 'string',
      value: 'LIST',
      pattern: /^(NT|NN|TN)( [1-9]\d{0,6}){3}(,(NT|NN|TN)( [1-9]\d{0,6}){3})*$/,
      help: "time every plan for these products, e.g. 'NT 8192 3072 1024,TN 1024 2752 8192'",
    },
    budget: { type: 'integer', min: 1, max: 1_000_000, default: 170, help: 'seconds for the whole sweep or grid' },
    top: { type: 'integer', min: 1, max: 1000, default: 4, help: 'how many plans to show of each shape' },
    out: { type: 'string', value: 'FILE', path: 'output', help: 'write the results as JSON' },
    ...RESULTS_OPTION,
    table: { type: 'boolean', help: 'print the best plans of such files in the form of kernels/tuning/measured/hopper.mjs' },
    small: { type: 'boolean', help: 'tiny shapes, to see that everything runs' },
    child: { type: 'string', value: 'GROUP', help: 'internal: the child process that measures this group' },
    log: { type: 'string', value: 'FILE', help: 'internal: file that the child writes to' },
  }),
  { positionals: true },
);
/** @typedef {import('../kernels/tuning/table.mjs').Shape} Shape */

// ---------------------------------------------------------------------------------------------- child

/** @param {string} group @param {string} log */
function runChild(group, log) {
  const require = createRequire(import.meta.url);
  const vk = require(process.env.HELIOS_TEST_ADDON ? resolve(process.env.HELIOS_TEST_ADDON) : '../index.js');
  const context = new KernelContext(vk, { tuning: false });
  const kernels = matmulKernels(context);
  const how = GROUPS[group];
  const { precision, aType = 'f32', bType = 'f32', beta = 0, few } = how;
  if (!kernels.matmulSupports(precision)) return;
  const journal = new Journal(log, Date.now() + options.budget * 1000);
  const { done } = journal;
  if (how.ptx && !context.takesPtx) return journal.write({ key: group, group, error: 'the device takes no PTX' });
  /** @type {(name: string, fields: any, work: (entry: any) => void) => void} */
  const attempt = (name, fields, work) => journal.attempt(`${group} | ${name}`, { group, ...fields }, work);
  if (how.turns) return runTurns(vk, kernels, group, how, journal, options);

  const { small } = options;
  const targets = small ? ['NT 64 96 64', 'NT 128 128 128'].map(shapeOf) : TARGETS;
  const model = small ? ['NN 64 96 64', 'TN 96 64 128'].map(shapeOf) : MODEL;
  const all = tilings(precision, context);

  /** @param {Shape} s @param {Iterable<any>} list */
  const measure = (s, list) => {
    const cType = how.cType ?? (how.ptx && s.form[0] === 'N' ? 'bf16' : 'f32');
    const product = timedProduct(vk, kernels, s, { precision, aType, bType, cType, beta }, { small });
    for (const plan of list) {
      const name = shapeName(s);
      attempt(`${name} | ${planName(plan)}`, { shape: name, plan }, (entry) => Object.assign(entry, product.measure(plan)));
    }
    product.close();
  };

  const plansFor = (/** @type {Shape} */ s, /** @type {any[]} */ list) => (small ? list : sensible(s, list));
  const expand = (/** @type {Shape} */ s, /** @type {any[]} */ list) => withSplits(s, plansFor(s, list));
  const unsplit = (/** @type {Shape} */ s, /** @type {any[]} */ list) => plansFor(s, list).map((p) => ({ ...p, splits: 1 }));
  const best = (/** @type {Shape} */ s, /** @type {number} */ count) => {
    const found = [...done.values()]
      .filter((e) => e.shape === shapeName(s) && e.us)
      .sort((x, y) => x.us - y.us)
      .slice(0, count);
    return found.map((e) => ({ ...e.plan, splits: 1, tail: 1 }));
  };

  if (how.ptx) {
    const plain = matmulKernels(new KernelContext(vk, { ptx: false, tuning: false }));
    /** The plan that SPIR-V has for a product. @param {Shape} s */
    const present = ({ form, ...sizes }) =>
      plain.matmulPlan(/** @type {any} */ ({ ...sizes, transA: form === 'TN', transB: form === 'NT', aType, bType }));
    /** SPIR-V's plan, each tiling in its two likeliest ways, then the best two in all others. @param {Shape} s */
    function* candidates(s) {
      const tilings = { ...ptxPlans(s), ...ptxPlans(s, 'bf16', { permuted: true }) };
      yield present(s);
      for (const ways of Object.values(tilings)) yield* ways.slice(0, 2);
      const times = (/** @type {string} */ tiling) =>
        Math.min(...[...done.values()].filter((e) => e.shape === shapeName(s) && tilingName(e.plan) === tiling && e.us).map((e) => e.us));
      const fastest = Object.keys(tilings).sort((x, y) => times(x) - times(y));
      for (const tiling of fastest.slice(0, 2)) yield* tilings[tiling].slice(2);
    }
    for (const s of options.shapes ? options.shapes.split(',').map(shapeOf) : small ? targets : HALVES) measure(s, candidates(s));
    return;
  }
  if (options.shapes) {
    // Without matrix units, the kernels in PTX with the splits that fill the device best, then those of SPIR-V.
    const inPtx = (/** @type {Shape} */ s) =>
      precision === 'f32' && context.takesPtx ? Object.values(ptxPlans(s, 'f32')).flatMap((ways) => ways.slice(0, 3)) : [];
    for (const s of options.shapes.split(',').map(shapeOf)) measure(s, [...inPtx(s), ...expand(s, all)]);
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
    await runChildren(
      fileURLToPath(import.meta.url),
      (seconds) => [
        ...['--child', group, '--log', log, '--budget', String(Math.max(1, Math.ceil(seconds)))],
        ...(options.shapes ? ['--shapes', options.shapes] : []),
        ...(options.small ? ['--small'] : []),
      ],
      until,
    );
    for (const entry of entriesOf(log).values())
      results.push(...(entry.timed?.map((/** @type {any} */ one) => ({ ...entry, ...one })) ?? [entry]));
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
    const title = 'Matrix products: the best plan of each shape, barriers included';
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

// ----------------------------------------------------------------------------------------------- grid

/** Times a sample of the grid, and prints and writes what was found. */
function runGrid() {
  const end = Date.now() + 1000 * options.budget;
  const vk = createRequire(import.meta.url)(process.env.HELIOS_TEST_ADDON ? resolve(process.env.HELIOS_TEST_ADDON) : '../index.js');
  const context = new KernelContext(vk, { tuning: false });
  const kernels = { context, ...matmulKernels(context) };
  const half = /** @type {const} */ (['bf16', 'f16']).find((type) => kernels.matmulSupports(type));
  const named = options.products?.split(',').map(gridProduct) ?? [];
  const names = new Set(named.map(gridName));
  const others = gridProducts(half, options.small === true).filter((product) => !names.has(gridName(product)));
  const products = [...named, ...others].slice(0, options.count);
  const reserved = options.pytorch ? 1000 * Math.min(pytorchSeconds(products.length), options.budget / 3) : 0;
  const { results, failed } = timeGrid(kernels, deviceTimer(vk, kernels), products, end - reserved, (line) => console.error(line));
  if (results.length === 0) throw new Error(`no product was timed: ${failed[0] ?? 'the budget is too short'}`);
  const missing = options.pytorch ? addCublas(results, options.pytorch, (end - Date.now()) / 1000) : undefined;
  const { within, mean, ratios } = gridSummary(results);

  const plan = (/** @type {{ name: string, us: number }} */ { name, us }) => `${us.toFixed(1).padStart(9)} ${name.padEnd(40)}`;
  console.log(
    `pick / fastest, µs of both${options.pytorch ? ' and of cuBLAS' : ''}, on ${context.info.deviceName}; the ${options.top} worst:`,
  );
  for (const { result, ratio } of ratios.slice(0, options.top)) {
    const { pick, us, plans, because, cublas } = result;
    const theirs = cublas === undefined ? '' : ` cuBLAS ${cublas.toFixed(1)}`;
    console.log(`${ratio.toFixed(2)} ${gridName(result).padEnd(28)} ${plan({ name: pick, us })}${plan(plans[0])}${theirs}  ${because}`);
  }
  const known = results.filter(({ cublas }) => cublas !== undefined);
  const theirs = Math.exp(known.reduce((sum, { us, cublas }) => sum + Math.log(us / Number(cublas)), 0) / known.length);
  console.log(
    `${results.length} of ${products.length} products: ${(100 * within).toFixed(0)} % within 5 % of the fastest plan, geometric mean ${mean.toFixed(3)}` +
      (known.length > 0 ? `; beside cuBLAS ${theirs.toFixed(3)} (${known.length} products)` : ''),
  );
  if (missing !== undefined) console.log(`cuBLAS was not timed for all products: ${missing}`);
  for (const text of failed.slice(0, 5)) console.log(`failed: ${text}`);

  if (options.out) writeFileSync(options.out, JSON.stringify(results));
  if (options.results === undefined) return;
  const figures = results.flatMap((result) => {
    const { type, form, m, n, k, us, plans, cublas } = result;
    const tflops = (/** @type {number} */ time) => (2 * m * n * k) / time / 1e6;
    const figure = { group: `grid, ${type}`, name: `${form} ${m}×${n}×${k}`, unit: 'TFLOP/s' };
    return [
      { ...figure, series: 'pick', value: tflops(us) },
      { ...figure, series: 'fastest plan', value: tflops(plans[0].us) },
      ...(cublas === undefined ? [] : [{ ...figure, series: 'cuBLAS', value: tflops(cublas) }]),
    ];
  });
  const { deviceName: device, driverInfo: driver } = context.info;
  const title = "Matrix products that no table names: the package's pick beside the fastest plan that was timed";
  writeResults(options.results, { bench: 'kernels-matmul', title, device, driver, figures });
}

/** The table of a group. @param {any} how */
const tableOf = ({ precision, aType = 'f32', bType = 'f32', ptx = false }) => (ptx ? 'ptx' : classOf({ precision, aType, bType }));

/** Prints the best plan of each shape: noise only ever adds time, so a plan counts with its least. */
function printTable() {
  /** @type {Record<string, Map<string, any>>} */
  const tables = {};
  /** Results by shape. @type {Map<string, any[]>} */
  const compared = new Map();
  for (const file of positionals) {
    for (const r of JSON.parse(readFileSync(file, 'utf8'))) {
      if (!r.us || r.differ || GROUPS[r.group]?.beta || GROUPS[r.group]?.glu) continue;
      // Products with B permuted are compared below, in the groups that have them with those as they are.
      const { ptx, turns } = GROUPS[r.group];
      if (ptx) compared.set(r.shape, [...(compared.get(r.shape) ?? []), r]);
      if (turns || r.plan.permuted) continue;
      const table = (tables[tableOf(GROUPS[r.group])] ??= new Map());
      const best = table.get(r.shape);
      if (!best || r.us < best.us) table.set(r.shape, r);
    }
  }
  for (const [shape, results] of compared) {
    if (!results.some((r) => r.plan.permuted)) continue;
    const [{ plan, us }] = results.sort((x, y) => x.us - y.us);
    (tables.permuted ??= new Map()).set(shape, { shape, plan: plan.permuted ? plan : { kernel: 'natural' }, us });
  }
  for (const [name, table] of Object.entries(tables)) {
    console.log(`  ${name}: \``);
    for (const { shape, plan, us } of table.values()) console.log(lineOf(name, shapeOf(shape.replaceAll('x', ' ')), plan, us));
    console.log('`,');
  }
}

try {
  if (positionals.length > 0 && !options.table) throw new UsageError(`${positionals[0]}: files go with --table`);
  if (options.table) printTable();
  else if (options.child && options.log) runChild(options.child, options.log);
  else if (options.sweep) await runSweep();
  else if (options.grid) runGrid();
  else throw new UsageError('nothing to do: --sweep, --grid or --table');
} catch (error) {
  fail('kernels-matmul', error);
}
