// Predicts how long a tiling in PTX takes for a product. A launch runs waves of blocks; each block multiplies over the depth and then
// stores. Where the depth is split, a second pass reads the parts. The model decides where no line of a table does.
// __test__/kernels/model.test.mjs compares it with what was timed.

import { gemmFault, sizesFault, division } from './form.mjs';
import { GEMM_TILINGS, SECOND_PASS, SIMT_TILINGS } from './tilings.mjs';

/** @typedef {import('../matmul/types.mjs').GemmTilingName} GemmTilingName */
/** @typedef {import('../matmul/types.mjs').PtxChoice} PtxChoice */
/** @typedef {import('../matmul/types.mjs').Shaped} Shaped */
/** @typedef {import('../matmul/types.mjs').SimtTilingName} SimtTilingName */

/**
 * The work of a launch: `whole` tiles over the full depth `k`, and `rest` tiles, each in `parts` parts of depth `kPerPart`. A tile has `area` elements.
 * @typedef {{ k: number, whole: number, rest: number, parts: number, kPerPart: number, area: number }} Work
 */

/**
 * The measured rates of a tiling.
 * @typedef {object} Rates
 * @property {number} wave blocks that the device runs at once
 * @property {number} [half] where two blocks share a multiprocessor: up to this many blocks each have one to themselves, and take HALF_WAVE of a
 *   wave's time for the depth, or of HALF_WAVE_ALONE
 * @property {number} perDepth microseconds of a wave for each element of the depth
 * @property {number} perTile other microseconds of a wave: for its first operands, and for storing results
 * @property {number} launch microseconds of a launch
 * @property {{ us: number, bytesPerUs: number }} second microseconds of the second pass, and the bytes of parts that are written and read in one
 */

/**
 * The share of a wave's time that half a wave takes, where two blocks share a multiprocessor: after other waves, and alone. NN and NT 1024 2048 512 in f32,
 * whose 128 tiles are half a wave, take 0.52 and 0.53 on an H200.
 */
const [HALF_WAVE, HALF_WAVE_ALONE] = [0.6, 0.53];

/**
 * Predicts the microseconds of a product, or of a group of products in one launch.
 * @param {Work} work @param {Rates} rates
 */
export function predict({ k, whole, rest, parts, kPerPart, area }, { wave, half = 0, perDepth, perTile, launch, second }) {
  const items = rest * parts;
  const halfWave = whole + items <= half ? HALF_WAVE_ALONE : HALF_WAVE;
  const waves = (/** @type {number} */ count) => {
    const left = count % wave;
    return Math.floor(count / wave) + (left === 0 ? 0 : left <= half ? halfWave : 1);
  };
  // Counted in waves over the full depth, so that launches with equally many have exactly equal times: `compile` compares sums of these.
  const multiply = (waves(whole) + waves(items) * (kPerPart / k)) * (k * perDepth);
  const tiles = (Math.ceil(whole / wave) + Math.ceil(items / wave)) * perTile;
  const sums = rest > 0 ? second.us + (8 * items * area) / second.bytesPerUs : 0;
  return launch + multiply + tiles + sums;
}

/** Multiprocessors of an H100 or H200. */
export const BLOCKS = 132;

/** `perDepth` in nanoseconds, and `perTile` in microseconds. @typedef {[perDepth: number, perTile: number]} Pair */
/**
 * Rates of products of halves, by form; `NN/permuted` and `NT/permuted` have B permuted. They were fitted to 391 timings on H100s (2026-11-25 and 26:
 * models of width 384 and 768 at 16,384 and 65,536 rows, products of the 300M model at 512 to 8,192), with SECOND_PASS and LAUNCH_US as they are.
 * For nine in ten timings the model predicts 0.82 to 1.11 of the measured time; the others are far from the fastest.
 * @type {Record<'N' | 'TN' | 'NN/permuted' | 'NT/permuted', Partial<Record<GemmTilingName, Pair>>>}
 */
const HALVES = {
  N: {
    'm64n64-cp': [4.29, 0.53],
    'm128n128-ld': [10.4, 1.05],
    'm256n128-ld': [14.6, 2.2],
    'm256n128-ld-l1': [15.3, 0.93],
    'm256n128-tma': [11.2, 2.7],
    'm256n128-tma-l1': [11.45, 2.45],
  },
  TN: {
    'm64n64-cp': [4.36, 0.55],
    'm128n256-cp': [15.1, 2.7],
    'm256n128-tma': [13.6, 0.46],
    'm256n128-tma-l1': [13.4, 2.25],
    'm256n192-tma': [14.6, 4.2],
  },
  'NN/permuted': { 'm256n128-tma': [11.5, 2.35], 'm256n128-tma-l1': [11.3, 2] },
  'NT/permuted': { 'm256n128-tma': [12.2, 2.43], 'm256n128-tma-l1': [12.1, 2.03] },
};
const LAUNCH_US = 4.5;

/**
 * Least depth at which `m256n192-tma` is not slower, since the end of its tiles takes long (docs/notes/ptx-products.md): for several products by
 * one launch, and for one alone.
 */
export const BROAD_DEPTH = 2048;
const BROAD_DEPTH_ALONE = 1024;

/**
 * Up to this many columns too few tiles read the same rows of A, and `m256n128-ld-l1` is slower than `m256n128-ld`; and up to this many in NT of
 * less depth than `SHALLOW`.
 */
const [CACHED_COLUMNS, CACHED_COLUMNS_SHALLOW, SHALLOW] = [1024, 768, 448];

/** Most parts of a product of halves, and the least depth of one; and most parts of a depth so large that a part has `DEEP`. */
const [PARTS, DEPTH] = [8, 512];
const [DEEP_PARTS, DEEP] = [16, 8192];

/** The least depth of a part of halves where only tiles after the last whole wave are split, and the share of the time that such a plan must take. */
const [TAIL_DEPTH, TAIL_GAIN] = [1024, 0.93];

/**
 * Rates of products in f32 (docs/notes/ptx-products.md): operations a second while all multiprocessors work and both operands are copied by
 * vectors; the factor for each operand that is copied element by element; microseconds of a tile beside its products.
 */
const SINGLES = {
  'm256n128-f32': { rate: 53.7e12, crosswise: 0.6e12, perTile: 6 },
  'm128n256-f32': { rate: 53.7e12, crosswise: 0.6e12, perTile: 6 },
  'm128n128-f32': { rate: 52.8e12, crosswise: 2.1e12, perTile: 4 },
};
/** The second pass of products in f32. The time of their launch is part of `perTile`. */
const SINGLE_SECOND = { us: 4, bytesPerUs: 3e6 };
/** Most parts of a product in f32. */
const SINGLE_PARTS = 32;

/** @typedef {{ plan: PtxChoice, us: number }} Guess a plan, and the microseconds that the model predicts */

/**
 * The rates of a tiling for a form, or undefined where none were measured.
 * @param {GemmTilingName | SimtTilingName} tiling @param {{ transA: boolean, transB: boolean, permuted?: boolean }} form
 * @returns {Rates | undefined}
 */
export function ratesOf(tiling, { transA, transB, permuted = false }) {
  if (Object.hasOwn(SIMT_TILINGS, tiling)) {
    const name = /** @type {SimtTilingName} */ (tiling);
    const { bm, bn, blocks } = SIMT_TILINGS[name];
    const { rate, crosswise, perTile } = SINGLES[name];
    const wave = BLOCKS * blocks;
    const perDepth = (2e6 * bm * bn * wave) / (rate - crosswise * (Number(!transA) + Number(transB)));
    return { wave, half: blocks > 1 ? BLOCKS : 0, perDepth, perTile, launch: 0, second: SINGLE_SECOND };
  }
  const table = HALVES[transA ? 'TN' : permuted ? (transB ? 'NT/permuted' : 'NN/permuted') : 'N'];
  const pair = transA && transB ? undefined : table[/** @type {GemmTilingName} */ (tiling)];
  return pair && { wave: BLOCKS, perDepth: pair[0] / 1000, perTile: pair[1], launch: LAUNCH_US, second: SECOND_PASS };
}

/**
 * Predicts the microseconds of a product by a plan; undefined if no rates of its tiling were measured.
 * @param {Shaped} problem @param {Pick<PtxChoice, 'tiling' | 'permuted' | 'splits' | 'wave' | 'tail'>} plan
 */
export function predictPlan({ m, n, k, transA, transB }, { tiling, permuted, splits, wave, tail }) {
  const sizes = { ...GEMM_TILINGS, ...SIMT_TILINGS }[tiling];
  const rates = ratesOf(tiling, { transA, transB, permuted });
  if (!rates) return undefined;
  const how = division(sizes, { m, n, k }, { blocks: wave ?? rates.wave, splits, tail });
  return predict({ k, ...how, area: sizes.bm * sizes.bn }, rates);
}

/**
 * The sensible ways to split the depth, with the predicted microseconds of each.
 * @param {Shaped} problem @param {{ tiling: GemmTilingName | SimtTilingName, permuted?: boolean }} tile
 * @returns {Guess[]}
 */
function waysOf(problem, tile) {
  const { m, n, k, glu, unit } = problem;
  const single = problem.precision === 'f32';
  const { bm, bn, bk } = { ...GEMM_TILINGS, ...SIMT_TILINGS }[tile.tiling];
  const tiles = Math.ceil(m / bm) * Math.ceil(n / bn);
  const { wave = BLOCKS } = ratesOf(tile.tiling, { ...problem, ...tile }) ?? {};
  const guessOf = (/** @type {import('../matmul/types.mjs').Split} */ way) => {
    const plan = /** @type {PtxChoice} */ ({ kernel: 'ptx', ...tile, ...way });
    const us = predictPlan(problem, plan);
    return us === undefined ? [] : [{ plan, us }];
  };
  const ways = guessOf({ splits: 1 });
  /** @type {Guess[]} */
  const tails = [];
  const most = single ? SINGLE_PARTS : Math.max(PARTS, Math.min(DEEP_PARTS, k / DEEP));
  for (let parts = 2; !glu && !unit && parts <= most && k / parts >= (single ? 8 * bk : DEPTH); parts++) {
    if (tiles * parts <= (single ? 2 : 4) * wave) ways.push(...guessOf({ splits: parts }));
    else if (tiles % wave > 0 && (tiles % wave) * parts <= wave && (single || k / parts >= TAIL_DEPTH))
      tails.push(...guessOf({ splits: 1, wave, tail: parts }));
  }
  // Without a tail the last wave would take as long as a whole one. In halves a slight gain is within the model's error.
  const fastest = Math.min(...ways.map(({ us }) => us));
  return [...ways, ...tails.filter(({ us }) => single || us < TAIL_GAIN * fastest)];
}

/**
 * The plans in PTX that the model can predict for a product: each tiling with its fastest splits, the fastest first.
 * @param {Shaped} problem
 * @param {{ permuted?: boolean, ways?: number }} [options] `permuted`: whether the product's B is permuted; `ways`: the most ways to split the depth
 *   for each tiling, 1 when left out
 * @returns {Guess[]}
 */
export function guesses(problem, { permuted = false, ways = 1 } = {}) {
  const { n, k, transA, transB, precision, glu } = problem;
  const form = /** @type {const} */ ({ type: 'bf16', transA, transB, permuted, glu, half: glu !== undefined });
  /** @type {(GemmTilingName | SimtTilingName)[]} */
  const tilings =
    precision === 'f32'
      ? ['m256n128-f32', 'm128n256-f32', 'm128n128-f32']
      : /** @type {GemmTilingName[]} */ (Object.keys(GEMM_TILINGS)).filter(
          (name) =>
            !gemmFault(GEMM_TILINGS[name], form) &&
            !sizesFault(GEMM_TILINGS[name], problem) &&
            (name !== 'm256n128-ld-l1' || n > (transB && k < SHALLOW ? CACHED_COLUMNS_SHALLOW : CACHED_COLUMNS)) &&
            (name !== 'm256n192-tma' || k >= BROAD_DEPTH_ALONE),
        );
  return tilings
    .flatMap((tiling) =>
      waysOf(problem, permuted ? { tiling, permuted } : { tiling })
        .sort((x, y) => x.us - y.us)
        .slice(0, ways),
    )
    .sort((x, y) => x.us - y.us);
}

/** Microseconds of a pass that copies operands, and the bytes that it reads, or writes, in one. */
const COPY = { us: 4, bytesPerUs: 1e6 };
/**
 * Operations in a microsecond of the SPIR-V kernels on halves whose rows they load one by one, or only store so, and the microseconds of a launch. On
 * an H100 2,048 x 300 x 300 takes them 29 microseconds, and 16,384 x 300 x 1,200, where only results have such rows, 99. Large products are faster
 * (4,480 x 2,600 x 650 takes 323), but still take several times as long as in PTX.
 */
const ODD_ROWS = { loaded: 22e6, stored: 120e6, us: 8 };
/** The same in f32: NN 512 50257 256 takes an H200 518 microseconds. TN 50257 1024 8192, at 24.2 milliseconds, has a rate of 35e6. */
const ODD_ROWS_F32 = { loaded: 26e6, stored: 35e6, us: 8 };

/**
 * Whether a product is faster in PTX on copies of its operands than through SPIR-V on the operands themselves.
 * @param {Shaped} problem @param {{ tiling: string, splits?: number, wave?: number, tail?: number }} plan
 * @param {readonly { name: string, bytes: number }[]} copies
 */
export function copiesPay(problem, plan, copies) {
  const us = predictPlan(problem, /** @type {PtxChoice} */ (plan)) ?? guesses(problem)[0]?.us;
  if (us === undefined) return false;
  const copying = copies.reduce((sum, { bytes }) => sum + COPY.us + bytes / COPY.bytesPerUs, 0);
  const odd = problem.precision === 'f32' ? ODD_ROWS_F32 : ODD_ROWS;
  const rate = copies.some(({ name }) => name === 'a' || name === 'b') ? odd.loaded : odd.stored;
  return us + copying < odd.us + (2 * problem.m * problem.n * problem.k) / rate;
}

/** Formats microseconds for a reader. @param {number} us */
export const usWords = (us) => us.toFixed(us < 10 ? 1 : 0);

/** Describes a prediction in a few words: the fastest, and the next. @param {Guess[]} list */
export const wordsOf = ([first, second]) =>
  `model: ${usWords(first.us)} µs by ${first.plan.tiling}${second ? `, ${usWords(second.us)} by ${second.plan.tiling}` : ''}`;
