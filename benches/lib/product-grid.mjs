// Products over a grid of models that tables do not name: the package's pick beside the plans that could be faster, timed in turn. For
// `benches/kernels-matmul.mjs --grid`.

import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { isDeviceLost } from '../../bin/lib/journal.mjs';
import { planName } from '../../kernels/matmul/words.mjs';
import { guesses } from '../../kernels/hopper/model.mjs';
import { argumentsOf, tabled } from '../../kernels/tuning/auto.mjs';
import { sensible, tilings, waveTime, withSplits } from '../../kernels/tuning/candidates.mjs';
import { median } from '../../kernels/tuning/values.mjs';

/** Rounds in which the plans of a product are timed in turn. */
const ROUNDS = 7;
/** Most plans through SPIR-V that are timed beside the pick: with kernels in PTX, and without. */
const SPIRV = { besidePtx: 4, alone: 20 };
/** Most bytes of an operand or a result. */
const MAX_BYTES = 2 ** 31;
/** Seconds that PyTorch takes to start, and for a product. */
const PYTORCH = { start: 15, each: 0.2 };

const WIDTHS = [256, 384, 512, 640, 768, 1024, 1280, 1600];
const VOCABULARIES = [256, 1000, 8192, 32000, 50257, 50304];
const ROWS = [1, 8, 64, 256, 333, 1024, 2048, 8192, 16384, 65536, 262144];

/** @typedef {{ type: 'bf16' | 'f16' | 'f32', form: string, m: number, n: number, k: number }} GridProduct */
/** @typedef {GridProduct & { pick: string, because: string, us: number, plans: { name: string, us: number }[], cublas?: number }} GridResult */

/** Three of four products are of halves. @param {number} i @param {'bf16' | 'f16' | undefined} half @returns {GridProduct['type']} */
const typeOf = (i, half) => (half && i % 4 ? half : 'f32');

/**
 * Products of the grid in an order that looks random and is always the same, so that the first of them are a sample.
 * @param {'bf16' | 'f16' | undefined} half the type of halves, undefined where the device has no matrix units
 * @param {boolean} small tiny sizes, to see that everything runs
 * @returns {GridProduct[]}
 */
export function gridProducts(half, small) {
  const widths = small ? [32, 48] : WIDTHS;
  const rows = small ? [1, 8, 33] : ROWS;
  const weights = widths.flatMap((width) => [
    [3 * width, width],
    [width, width],
    [4 * width, width],
    [width, 4 * width],
    [2 * Math.ceil((8 * width) / 3 / 64) * 64, width],
    ...(small ? [257] : VOCABULARIES).map((vocabulary) => [vocabulary, width]),
  ]);
  const all = weights.flatMap(([n, k]) =>
    rows.flatMap((count) => [
      { form: 'NT', m: count, n, k },
      { form: 'NN', m: count, n: k, k: n },
      { form: 'TN', m: n, n: k, k: count },
    ]),
  );
  // A linear congruential generator (Numerical Recipes) orders them.
  let seed = 7;
  const keyed = all.map((product) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return { product, key: seed };
  });
  return keyed
    .sort((x, y) => x.key - y.key)
    .map(({ product }, i) => ({ type: typeOf(i, half), ...product }))
    .filter(({ m, n, k }) => 4 * Math.max(m * n, m * k, n * k) <= MAX_BYTES);
}

/** @param {GridProduct} product @returns {string} such as `bf16 NT 333 1000 768` */
export const gridName = ({ type, form, m, n, k }) => `${type} ${form} ${m} ${n} ${k}`;

/** The product of such a name. @param {string} name @returns {GridProduct} */
export function gridProduct(name) {
  const [type, form, ...sizes] = name.split(' ');
  const [m, n, k] = sizes.map(Number);
  return { type: /** @type {GridProduct['type']} */ (type), form, m, n, k };
}

/** The problem of `matmul`. @param {GridProduct} product @returns {any} */
function problemOf({ type, form, m, n, k }) {
  const [transA, transB] = [form[0] === 'T', form[1] === 'T'];
  const of = {
    m,
    n,
    k,
    transA,
    transB,
    precision: type,
    aType: type,
    bType: type,
    cType: type === 'f32' || transA ? 'f32' : type,
    beta: 0,
  };
  return { ...of, batch: 1, half: type, bPermuted: false, dual: false, args: of };
}

/** The plans that could be faster than the pick. @param {import('../../kernels/base.mjs').KernelContext} context @param {any} problem */
function candidatesOf(context, problem) {
  const { m, n, k, transA, transB, precision } = problem;
  const inPtx = context.takesPtx && context.tuning.ptxPlan ? guesses(problem, { ways: 2 }).map(({ plan }) => plan) : [];
  const shape = { form: `${transA ? 'T' : 'N'}${transB ? 'T' : 'N'}`, m, n, k };
  const list = sensible(shape, tilings(precision, context, { quick: true }));
  const units = context.tuning.units;
  const split = context.isCpu ? list.map((plan) => ({ ...plan, splits: 1 })) : withSplits(shape, list);
  const spirv = split.sort((x, y) => waveTime(problem, x, units) - waveTime(problem, y, units));
  /** @type {any[]} */
  const fewRows = [{ kernel: 'rows', splits: 1 }];
  return [...fewRows, ...inPtx, ...spirv.slice(0, inPtx.length > 0 ? SPIRV.besidePtx : SPIRV.alone)];
}

/**
 * Times products until the time is over. Plans that cannot compute a product are left out; a lost device ends the run.
 * @param {import('../../kernels/tuning/auto.mjs').TunedKernels} kernels @param {import('../../kernels/tuning/auto.mjs').Timer} timer
 * @param {GridProduct[]} products @param {number} end by Date.now() @param {(line: string) => void} progress
 * @returns {{ results: GridResult[], failed: string[] }}
 */
export function timeGrid(kernels, timer, products, end, progress) {
  /** @type {GridResult[]} */
  const results = [];
  /** @type {string[]} */
  const failed = [];
  let longest = 0;
  for (const [i, product] of products.entries()) {
    const start = Date.now();
    if (start + longest > end) break;
    const problem = problemOf(product);
    let opened;
    try {
      const { because = '', ...chosen } = kernels.matmulPlan(argumentsOf(problem));
      const own = tabled(chosen);
      opened = timer.open(problem);
      const running = [{ name: planName(own), sample: opened.sampler(own), us: /** @type {number[]} */ ([]) }];
      for (const plan of candidatesOf(kernels.context, problem)) {
        const name = planName(plan);
        if (running.some((one) => one.name === name) || Date.now() > end) continue;
        try {
          running.push({ name, sample: opened.sampler(plan), us: [] });
        } catch (error) {
          if (isDeviceLost(error)) throw error;
          // A tiling that cannot take the product is no candidate; a wrong result is a fault.
          if (!(error instanceof RangeError)) failed.push(`${gridName(product)}, ${name}: ${/** @type {Error} */ (error).message}`);
        }
      }
      for (let round = 0; round < ROUNDS; round++) for (const one of running) one.us.push(one.sample());
      const plans = running.map(({ name, us }) => ({ name, us: median(us) }));
      results.push({ ...product, pick: plans[0].name, because, us: plans[0].us, plans: plans.toSorted((x, y) => x.us - y.us) });
    } catch (error) {
      failed.push(`${gridName(product)}: ${/** @type {Error} */ (error).message}`);
      if (isDeviceLost(error)) return { results, failed };
    } finally {
      opened?.close();
    }
    longest = Math.max(longest, Date.now() - start);
    if ((i + 1) % 10 === 0) progress(`${i + 1} of ${products.length} products, ${((end - Date.now()) / 1000).toFixed(0)} s left`);
  }
  timer.close();
  return { results, failed };
}

/** Seconds that PyTorch needs for so many products. @param {number} count */
export const pytorchSeconds = (count) => PYTORCH.start + PYTORCH.each * count;

/**
 * Adds cuBLAS's times, by PyTorch.
 * @param {GridResult[]} results @param {string} python @param {number} seconds
 * @returns {string | undefined} why there are none
 */
export function addCublas(results, python, seconds) {
  const program = fileURLToPath(new URL('../pytorch/products.py', import.meta.url));
  const input = results.map(gridName).join('\n');
  const { status, stdout, stderr, error } = spawnSync(python, [program, '--stdin'], {
    input,
    encoding: 'utf8',
    timeout: 1000 * Math.max(1, seconds),
  });
  /** @type {Map<string, number>} */
  const times = new Map();
  for (const line of (stdout ?? '').split('\n').filter((text) => text.startsWith('{'))) {
    const { product, us } = JSON.parse(line);
    times.set(product, us);
  }
  for (const result of results) result.cublas = times.get(gridName(result));
  if (status === 0) return undefined;
  return `${python}: ${error?.message ?? (stderr ?? '').trim().split('\n').at(-1)}`;
}

/** The share of products within 5 %, the geometric mean of pick / fastest, and products by that, the worst first. @param {GridResult[]} results */
export function gridSummary(results) {
  const ratios = results.map((result) => ({ result, ratio: result.us / result.plans[0].us })).sort((x, y) => y.ratio - x.ratio);
  const mean = Math.exp(ratios.reduce((sum, { ratio }) => sum + Math.log(ratio), 0) / ratios.length);
  return { within: ratios.filter(({ ratio }) => ratio <= 1.05).length / ratios.length, mean, ratios };
}
