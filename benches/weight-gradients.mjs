#!/usr/bin/env node
// Times weight gradients, products TN whose depth is the tokens of a step, by tilings of the kernels in PTX: one by one, whole and with
// the two ways to split their depth that fill the device best, and several by one launch, as `compile` has them computed, with the last tiles
// whole or split.
//
//   node benches/weight-gradients.mjs
//   node benches/weight-gradients.mjs --tokens 2048 --cases '5504 1024+1024 2752,1024 1024' --tilings wide,tallCopiedCached
//   node benches/weight-gradients.mjs --tokens 512 --adds      added to what is there, as in all micro-steps but the first
//
// Every candidate is checked first, on poisoned results, or on ones that it adds to: 96 random elements of each against float64, all of
// them against those of the first candidate. Then all candidates of a case are timed in turn, barriers and second passes included.
// Operands and results rotate over several sets, so that they do not come from cache.

import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { UsageError, fail, optionsOrExit } from '../bin/lib/options.mjs';
import { KernelContext, pack } from '../kernels/base.mjs';
import { matmulKernels } from '../kernels/matmul.mjs';
import { PLANS } from '../kernels/ptx/plans.mjs';
import { planName, ptxPlans } from '../kernels/tuning/candidates.mjs';
import { warmer } from '../kernels/tuning/measure.mjs';
import { Values, median } from '../kernels/tuning/values.mjs';

/** Those of a layer of the 300M model and of the 1.29B one, and of the smaller one's vocabulary. */
const CASES =
  '1024 1024,3072 1024,5504 1024,1024 2752,17408 1024,5504 1024+1024 2752,1024 1024+3072 1024,' +
  '2048 2048,6144 2048,11008 2048,2048 5504,11008 2048+2048 5504,2048 2048+6144 2048';
/** Bytes of operands beyond which sets of them do not stay in a cache. */
const CACHE_BYTES = 192e6;
/** The bits of 1, which is there where results are added. */
const ONE = 0x3f800000;
/** Elements of a result that are compared with float64. */
const CHECKED = 96;

const { values: options } = optionsOrExit(
  'node benches/weight-gradients.mjs [options]',
  /** @type {const} */ ({
    cases: {
      type: 'string',
      value: 'LIST',
      pattern: /^[1-9]\d{0,5} [1-9]\d{0,5}([,+][1-9]\d{0,5} [1-9]\d{0,5})*$/,
      default: CASES,
      help: "rows and columns of products, + between those of one launch: '1024 1024,5504 1024+1024 2752'",
    },
    tokens: { type: 'integer', min: 32, max: 1 << 20, default: 8192, help: 'depth of the products' },
    tilings: { type: 'string', value: 'LIST', default: 'wide,tallCopiedCached,broadCopied', help: `of ${Object.keys(PLANS).join(', ')}` },
    adds: { type: 'boolean', help: 'results are added to C, as those of all micro-steps but the first' },
    rounds: { type: 'integer', min: 1, max: 1000, default: 9, help: 'samples of each candidate' },
  }),
);

/** Prints the times of a case's candidates. @param {any} vk @param {KernelContext} context @param {ReturnType<typeof matmulKernels>} kernels @param {number[][]} sizes */
function measure(vk, context, kernels, sizes) {
  const k = options.tokens;
  /** @type {number[]} */
  const owned = [];
  const buffer = (/** @type {number} */ bytes) => {
    owned.push(vk.createBuffer(bytes, 0));
    return owned[owned.length - 1];
  };
  const values = sizes.map((_, i) => [new Values('bf16', 2 * i + 1), new Values('bf16', 2 * i + 2)]);
  const bytes = sizes.reduce((sum, [m, n]) => sum + 2 * k * (m + n), 0);
  try {
    /** Operands by set and product. */
    const sets = Array.from({ length: Math.min(24, Math.ceil(CACHE_BYTES / bytes)) }, () =>
      sizes.map((size, i) =>
        size.map((extent, which) => {
          const handle = buffer(2 * k * extent);
          vk.uploadBuffer(handle, values[i][which].tensor(k * extent));
          return handle;
        }),
      ),
    );
    const results = sets.map(() => sizes.map(([m, n]) => buffer(4 * m * n)));
    const products = (/** @type {number} */ set) =>
      sizes.map(([m, n], i) => {
        const [a, b] = sets[set % sets.length][i];
        const halves = { aType: /** @type {const} */ ('bf16'), bType: /** @type {const} */ ('bf16'), cType: /** @type {const} */ ('f32') };
        return { a, b, c: results[set % sets.length][i], m, n, k, transA: true, beta: options.adds ? 1 : 0, ...halves };
      });
    /** @type {any[]} */
    const plans = options.tilings.split(',').flatMap((tiling) => {
      // As it is, and with the last tiles split.
      if (sizes.length > 1)
        return [1, 2, 4, 8].map((tail) => ({ kernel: 'ptx', tiling, tail, wave: context.info.multiprocessors || undefined }));
      const ways = ptxPlans({ form: 'TN', m: sizes[0][0], n: sizes[0][1], k })[tiling];
      if (!ways) throw new UsageError(`--tilings ${tiling}: not one of PLANS that can compute TN`);
      return ways.filter(({ splits = 1, tail = 1 }, i) => i < 2 || splits * tail === 1);
    });
    const batch = (/** @type {number} */ count, /** @type {any} */ plan) =>
      pack(
        Array.from({ length: count }, (_, set) =>
          sizes.length > 1
            ? kernels.matmulGroup(products(set), { tiling: plan.tiling, tail: plan.tail, wave: plan.wave })
            : kernels.matmul({ ...products(set)[0], precision: 'bf16', plan }),
        ).flat(),
      );

    /** The results of the first candidate. @type {Float32Array[] | undefined} */
    let first;
    const check = (/** @type {any} */ plan) => {
      sizes.forEach(([m, n], i) => vk.fillBuffer(results[0][i], 4 * m * n, options.adds ? ONE : 0x7fc07fc0));
      const { packed, count } = batch(1, plan);
      vk.waitTimeline(vk.batchExecuteAll(packed, count));
      const got = results[0].map((handle) => vk.readBuffer(handle).slice());
      sizes.forEach(([m, n], p) => {
        for (let t = 0; t < CHECKED; t++) {
          const [i, j] = [Math.floor(Math.random() * m), t < 8 ? n - 1 - t : Math.floor(Math.random() * n)];
          let sum = options.adds ? 1 : 0;
          for (let l = 0; l < k; l++) sum += values[p][0].at(l * m + i) * values[p][1].at(l * n + j);
          const x = got[p][i * n + j];
          if (!(Math.abs(x - sum) <= 1e-3 + 1e-5 * Math.abs(sum)))
            throw new Error(`${planName(plan)}: product ${p} has ${x} in row ${i}, column ${j}, expected ${sum}`);
        }
      });
      first ??= got;
      return got.reduce(
        (sum, result, p) => sum + result.filter((/** @type {number} */ x, /** @type {number} */ i) => x !== first?.[p][i]).length,
        0,
      );
    };

    const flops = sizes.reduce((sum, [m, n]) => sum + 2 * m * n * k, 0);
    // Some milliseconds of each.
    const count = Math.max(6, Math.min(60, Math.round(3e12 / flops)));
    const candidates = plans.map((plan) => ({ name: planName(plan), differ: check(plan), run: batch(count, plan), us: [0].slice(1) }));
    const timeOf = (/** @type {typeof candidates[number]} */ { run }) =>
      vk.batchExecuteAllProfiled(run.packed, run.count).batchGpuTimeUs / count;
    warmer(() => void timeOf(candidates[0]))();
    for (let round = 0; round < options.rounds; round++) for (const candidate of candidates) candidate.us.push(timeOf(candidate));
    console.log(`TN ${sizes.map((size) => size.join('x')).join(' + ')}, ${k} tokens`);
    for (const { name, differ, us } of candidates) {
      const [middle, least] = [median(us), Math.min(...us)];
      const tflops = (/** @type {number} */ time) => (flops / time / 1e6).toFixed(0).padStart(5);
      const note = differ ? `, ${differ} elements differ from the first candidate's` : '';
      console.log(
        `  ${name.padEnd(36)} ${middle.toFixed(1).padStart(8)} µs ${tflops(middle)} TFLOP/s, least ${least.toFixed(1)} µs ${tflops(least)}${note}`,
      );
    }
  } finally {
    for (const handle of owned) vk.destroyBuffer(handle);
  }
}

try {
  const unknown = options.tilings.split(',').find((tiling) => !Object.hasOwn(PLANS, tiling));
  if (unknown !== undefined) throw new UsageError(`--tilings ${unknown}: there are ${Object.keys(PLANS).join(', ')}`);
  const require = createRequire(import.meta.url);
  const vk = require(process.env.HELIOS_TEST_ADDON ? resolve(process.env.HELIOS_TEST_ADDON) : '../index.js');
  const context = new KernelContext(vk, { tuning: false });
  if (!context.takesPtx) throw new Error(`${context.info.deviceName} takes no PTX`);
  console.log(`${context.info.deviceName}, driver ${context.info.driverInfo}`);
  const kernels = matmulKernels(context);
  for (const list of options.cases.split(','))
    measure(
      vk,
      context,
      kernels,
      list.split('+').map((size) => size.split(' ').map(Number)),
    );
} catch (error) {
  fail('weight-gradients', error);
}
