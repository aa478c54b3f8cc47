// What was measured on an NVIDIA H200 (driver 580, 132 multiprocessors, subgroups of 32): plans of matrix products, as lines that
// table.mjs reads. They are those of tables of `helios-vk tune --out FILE`, or of the sweep of benches/kernels-matmul.mjs by its
// `--table`. Of a run with HELIOS_PTX=0 come `half`, `f32`, `mixed` and `bf16x3`; of a run with PTX comes `ptx`, where a line of
// SPIR-V says `coop`. The weight gradients of 512 tokens (TN, k = 512) were measured adding to C. Lines of `tallCopied`, `tallCopiedCached` and
// `small`, those of 1,024 rows, and of 512 with 17408, in `ptx` and in `shuffled`, are of an H100, timed beside the plans that stood there; an H200 has
// trained by those of deep products. TFLOP/s of PTX are in docs/notes/ptx-products.md. Where memory's rate does not count an H100 is as fast, and
// it takes this table too.

import { keptParts } from './attention-kept.mjs';
import { sizesFault } from './form.mjs';
import { PLANS, SECOND_PASS, SIMT_PLANS } from './plans.mjs';
import { classOf, entriesOf, formName, isSpirv, nearest } from '../tuning/table.mjs';

/** @typedef {import('../matmul/types.mjs').HalfTiling} HalfTiling */
/** @typedef {import('../matmul/types.mjs').PtxChoice} PtxChoice */
/** @typedef {import('../matmul/types.mjs').Shaped} Shaped */
/** @typedef {import('../matmul/types.mjs').SpirvChoice} SpirvChoice */

const MEASURED = {
  half: `
NT 512 1024 1024 | 64 64 128 32 32 16 16 16 1 | 1 | 12.1
NT 512 2752 1024 | 64 96 64 32 48 16 16 16 1 | 1 | 19.8
NT 2048 2752 1024 | 192 128 64 48 64 16 16 16 1 | 1 | 52.8
NT 4096 4096 4096 | 128 128 64 64 32 16 16 16 1 | 1 | 502.8
NN 512 1024 1024 | 64 64 128 32 32 16 16 16 1 | 1 | 12.5
TN 1024 1024 512 | 64 64 64 32 32 16 16 16 1 0 1 | 1 | 14.9
NT 512 3072 1024 | 64 96 64 32 48 16 16 16 1 | 1 | 20.1
NT 512 5504 1024 | 96 64 64 48 32 16 16 16 1 | 1 | 36.2
NT 512 1024 2752 | 128 128 64 64 32 16 16 16 1 | 4 | 22.7
NN 512 1024 3072 | 128 128 64 64 32 16 16 16 1 | 4 | 23.2
NN 512 1024 5504 | 128 128 64 32 64 16 16 16 1 | 4 | 32.9
NN 512 2752 1024 | 96 64 64 48 32 16 16 16 1 | 1 | 20.1
TN 3072 1024 512 | 96 64 64 48 32 16 16 16 1 0 1 | 1 | 33.1
TN 5504 1024 512 | 128 128 64 64 32 16 16 16 1 0 1 | 1 | 55.4
TN 1024 2752 512 | 192 128 64 48 64 16 16 16 1 | 1 | 30.5
TN 512 1024 1024 | 64 64 64 16 32 16 16 16 2 | 1 | 15.0
NT 2048 3072 1024 | 192 128 64 48 64 16 16 16 1 | 1 | 53.5
TN 1024 2752 8192 | 192 128 64 48 64 16 16 16 1 | 1 | 178.3
TN 3072 1024 8192 | 192 128 64 48 64 16 16 16 1 | 1 | 177.0
TN 1024 1024 8192 | 128 128 64 32 64 16 16 16 1 | 2 | 75.9
NT 8192 1024 1024 | 128 128 64 64 32 16 16 16 1 | 1 | 74.1
TN 5504 1024 8192 | 192 128 64 48 64 16 16 16 1 | 1 | 348.2
TN 17408 1024 8192 | 192 128 64 48 64 16 16 16 1 | 132/4 | 1016.1
NT 8192 3072 1024 | 192 128 64 48 64 16 16 16 1 | 1 | 198.2
NT 8192 5504 1024 | 192 128 64 48 64 16 16 16 1 | 1 | 369.6
NT 8192 1024 2752 | 192 128 64 48 64 16 16 16 1 | 1 | 181.0
NT 8192 17408 1024 | 192 128 64 48 64 16 16 16 1 | 1 | 1097.0
NN 8192 1024 3072 | 128 128 64 32 64 16 16 16 1 | 1 | 192.8
NN 8192 1024 5504 | 128 128 64 32 64 16 16 16 1 | 1 | 331.5
NN 8192 2752 1024 | 192 128 64 48 64 16 16 16 1 | 1 | 202.7
NN 8192 1024 1024 | 128 128 64 32 64 16 16 16 1 | 1 | 76.1
NN 8192 1024 17408 | 128 128 64 32 64 16 16 16 1 | 1 | 1010.0
NT 512 17408 1024 | 128 128 64 64 32 16 16 16 1 | 132/8 | 86.0
NN 512 1024 17408 | 128 128 64 32 64 16 16 16 1 | 4 | 77.2
TN 17408 1024 512 | 64 64 64 32 32 16 16 16 1 0 1 | 1 | 155.2
NT 2048 1024 1024 | 128 128 64 32 64 16 16 16 1 | 1 | 21.1
NT 2048 1024 2752 | 128 128 64 32 64 16 16 16 1 | 1 | 46.2
NN 2048 1024 3072 | 128 128 64 32 64 16 16 16 1 | 1 | 51.2
NN 2048 2752 1024 | 192 128 64 48 64 16 16 16 1 | 1 | 53.9
TN 1024 2752 2048 | 192 128 64 48 64 16 16 16 1 | 1 | 50.7
TN 1024 1024 2048 | 128 128 64 32 64 16 16 16 1 | 2 | 27.2
TN 3072 1024 2048 | 192 128 64 48 64 16 16 16 1 | 1 | 50.0
`,
  f32: `
NT 512 1024 1024 | 128 128 16 8 8 8 2 | 4 | 37.7
NT 512 2752 1024 | 128 128 16 8 8 8 2 | 3 | 85.1
NT 2048 2752 1024 | 128 128 16 8 8 8 2 | 132/3 | 285.0
NT 4096 4096 4096 | 128 128 16 8 8 8 2 | 1 | 3195.6
NN 512 1024 1024 | 128 128 16 8 8 8 1 | 4 | 36.0
TN 1024 1024 512 | 64 64 16 8 4 8 2 | 1 | 32.5
NT 512 3072 1024 | 128 128 16 8 8 8 2 | 4 | 96.3
NT 512 5504 1024 | 128 128 16 8 8 8 2 | 132/3 | 146.7
NT 512 1024 2752 | 128 128 16 8 8 8 2 | 4 | 78.8
NT 512 16384 1024 | 128 128 16 8 8 8 2 | 1 | 410.2
NT 512 17408 1024 | 128 128 16 8 8 8 2 | 132/8 | 433.6
NN 512 1024 3072 | 128 128 16 8 8 8 2 | 4 | 84.3
NN 512 1024 5504 | 128 128 16 8 8 8 2 | 4 | 141.3
NN 512 2752 1024 | 128 128 16 8 8 8 2 | 3 | 81.6
NN 512 1024 16384 | 128 128 16 8 8 8 2 | 4 | 394.5
TN 3072 1024 512 | 64 64 16 8 4 8 2 | 1 | 89.5
TN 5504 1024 512 | 128 128 16 8 8 8 2 | 1 | 150.0
TN 1024 2752 512 | 64 64 16 8 4 8 2 | 1 | 88.9
TN 16384 1024 512 | 128 128 16 8 8 8 2 | 1 | 392.5
`,
  mixed: `
NT 512 1024 1024 | 64 64 128 32 32 16 16 16 1 | 1 | 15.6
NT 512 2752 1024 | 128 128 32 64 64 16 16 16 1 1 | 3 | 44.0
NT 2048 2752 1024 | 128 128 32 32 32 16 16 16 2 | 1 | 100.8
NN 512 1024 1024 | 64 64 128 32 32 16 16 16 1 | 1 | 15.5
TN 1024 1024 512 | 64 64 64 32 16 16 16 16 2 | 1 | 29.1
NT 512 3072 1024 | 128 128 32 32 32 16 16 16 2 | 1 | 41.1
NT 512 5504 1024 | 128 128 32 64 64 16 16 16 1 | 1 | 61.9
NT 512 1024 2752 | 128 128 32 32 32 16 16 16 2 | 4 | 37.1
NT 512 16384 1024 | 128 128 32 64 64 16 16 16 1 | 1 | 128.8
NN 512 1024 3072 | 128 128 32 32 32 16 16 16 2 | 4 | 37.8
NN 512 1024 5504 | 128 128 32 32 32 16 16 16 2 | 4 | 53.8
`,
  bf16x3: `
NT 512 1024 1024 | 64 64 64 32 32 16 16 16 1 | 1 | 26.7
NT 512 2752 1024 | 128 128 32 64 32 16 16 16 1 | 3 | 57.4
NT 2048 2752 1024 | 128 128 32 64 32 16 16 16 1 | 1 | 190.7
NN 512 1024 1024 | 64 64 64 32 32 16 16 16 1 | 1 | 26.6
TN 1024 1024 512 | 64 64 32 32 32 16 16 16 1 | 1 | 26.3
NT 512 3072 1024 | 128 128 32 64 32 16 16 16 1 | 1 | 56.9
NT 512 5504 1024 | 128 128 32 64 32 16 16 16 1 | 1 | 110.0
`,
  ptx: `
NT 512 1024 1024 | small | 1 | 9.4
NT 512 1024 2752 | small | 1 | 17.8
NT 512 2752 1024 | coop | 1 | 19.8
NT 512 3072 1024 | square | 1 | 18.6
NT 512 5504 1024 | tallCached | 1 | 19.7
NT 512 17408 1024 | tall | 1 | 53.4
NN 512 1024 1024 | small | 1 | 9.8
NN 512 2752 1024 | square | 1 | 14.7
NN 512 1024 3072 | small | 1 | 19.1
NN 512 1024 5504 | tallCopied | 5 | 26.2
NN 512 2048 5504 | tallCopied | 4 | 35.3
NN 512 1024 17408 | tall | 8 | 48.3
TN 1024 1024 512 | coop | 1 | 14.9
TN 1024 2752 512 | tallCopiedCached | 1 | 22.1
TN 3072 1024 512 | tallCopiedCached | 1 | 23.5
TN 5504 1024 512 | tallCopiedCached | 1 | 39.4
TN 17408 1024 512 | tallCopiedCached | 1 | 94.9
NT 1024 1024 1024 | square | 1 | 14.1
NT 1024 1024 2752 | square | 2 | 29.3
NT 1024 3072 1024 | tall | 1 | 20.3
NN 1024 1024 1024 | square | 1 | 14.2
NN 1024 1024 3072 | tallCopied | 4 | 26.6
NN 1024 1024 5504 | tallCopied | 4 | 33.2
NN 1024 2752 1024 | tallCopied | 1 | 17.2
NT 2048 1024 1024 | square | 1 | 14.8
NT 2048 1024 2752 | square | 1 | 32.7
NT 2048 3072 1024 | square | 1 | 33.6
NT 2048 5504 1024 | tallCached | 1 | 50.0
NT 2048 17408 1024 | tallCached | 1 | 188.8
NN 2048 1024 1024 | square | 1 | 14.8
NN 2048 1024 3072 | square | 1 | 35.9
NN 2048 1024 5504 | tall | 2 | 54.0
NN 2048 2752 1024 | square | 1 | 33.7
NN 2048 1024 17408 | tallCached | 2 | 143.3
TN 1024 1024 2048 | wide | 4 | 24.9
TN 3072 1024 2048 | wide | 1 | 37.4
TN 5504 1024 2048 | wide | 132/3 | 65.3
TN 1024 2752 2048 | wide | 1 | 37.4
TN 17408 1024 2048 | wide | 1 | 210.9
NT 4096 4096 4096 | tall | 1 | 243.3
NT 8192 1024 1024 | tall | 1 | 35.0
NT 8192 1024 2752 | tall | 1 | 79.8
NT 8192 3072 1024 | tallCached | 1 | 95.6
NT 8192 5504 1024 | tallCached | 1 | 170.4
NN 8192 1024 1024 | tallCopied | 1 | 32.1
NN 8192 1024 3072 | tallCopied | 1 | 78.0
NN 8192 1024 5504 | tallCopied | 1 | 136.1
NN 8192 2752 1024 | tallCopiedCached | 1 | 87.0
NN 8192 1024 17408 | tallCopiedCached | 1 | 393.0
TN 1024 1024 8192 | tallCopiedCached | 4 | 49.7
TN 3072 1024 8192 | wide | 1 | 127.4
TN 5504 1024 8192 | tallCopiedCached | 132/3 | 178.5
TN 1024 2752 8192 | tallCopiedCached | 3 | 110.7
TN 17408 1024 8192 | tallCopiedCached | 132/8 | 531.3
`,
  shuffled: `
NT 8192 1024 1024 | tallCopied | 1 | 31.4
NT 8192 1024 2752 | tallCopied | 1 | 75.7
NT 8192 3072 1024 | tallCopiedCached | 1 | 88.0
NT 8192 5504 1024 | tallCopiedCached | 1 | 151.2
NN 8192 1024 1024 | tallCopied | 1 | 30.5
NN 8192 1024 3072 | tallCopied | 1 | 76.3
NN 8192 1024 5504 | tallCopied | 1 | 134.7
NN 8192 2752 1024 | tallCopiedCached | 1 | 80.2
NN 8192 1024 17408 | tallCopiedCached | 1 | 389.9
NT 8192 2048 2048 | tallCopiedCached | 1 | 113.0
NT 8192 6144 2048 | tallCopiedCached | 1 | 319.5
NT 8192 2048 5504 | tallCopiedCached | 1 | 271.3
NT 8192 11008 2048 | tallCopiedCached | 1 | 554.6
`,
};

const TABLES = Object.fromEntries(
  Object.entries(MEASURED).map(([name, text]) => [name, entriesOf(name, text.split('\n').filter(Boolean))]),
);

/** Farthest that a measured shape may lie, in octaves over the three sizes; another form counts as three quarters of one. */
const REACH = 2.5;
const OTHER_FORM = 0.75;

/**
 * The plan of the nearest measured product of the same class, if there is one near enough.
 * @param {import('../matmul/types.mjs').Asked} problem
 * @returns {SpirvChoice | undefined}
 */
function matmulPlan(problem) {
  const { m, n, k, batch, beta } = problem;
  const found = nearest(TABLES[classOf(problem)], { form: formName(problem), m: m * batch, n, k }, REACH, OTHER_FORM);
  const plan = found?.entry.plan;
  if (!found || !plan || !isSpirv(plan)) return undefined;
  const best = plan.kernel === 'coop' && plan.direct && beta === 0 ? { ...plan, direct: 0 } : plan;
  if (!best.tail || !best.wave) return best;
  // The tail of the measured shape may be another than this one's: no more parts than about one wave.
  const tiles = Math.ceil(m / best.bm) * Math.ceil(n / best.bn);
  const tail = found.distance === 0 ? best.tail : Math.min(best.tail, Math.floor((1.1 * best.wave) / (tiles % best.wave)));
  return tail >= 2 ? { ...best, tail } : { ...best, tail: 1 };
}

/** The same for products in PTX, which care less how long a side is, and more which form they are of. */
const PTX_REACH = 3;

/** Multiprocessors. */
const BLOCKS = 132;

/**
 * What was measured of products NT and NN of few tiles (docs/notes/ptx-products.md, *Few tokens*): nanoseconds that a wave of tiles takes for
 * each element of the depth. That of a launch is the same for all.
 */
const FEW_RATES = { small: 4.5, square: 9.8, tall: 14.7, tallCached: 14.7, tallCopied: 12.2, tallCopiedCached: 12.5 };
/** Most parts of such a product, and the least depth of one. */
const [FEW_PARTS, FEW_DEPTH] = [8, 512];

/** Multiplications of a product in f32 from which on it is computed in PTX: about 15 microseconds. */
const SIMT_LEAST = 2 ** 28;

/**
 * What was measured of the tilings of products in f32 (docs/notes/ptx-products.md): operations a second while all multiprocessors
 * work, with both operands copied by vectors; how much less for each that is copied element by element; seconds that a tile takes
 * beside its products.
 */
const SIMT_RATES = {
  simtTall: { rate: 53.7e12, crosswise: 0.6e12, start: 6e-6 },
  simtWide: { rate: 53.7e12, crosswise: 0.6e12, start: 6e-6 },
  simtSquare: { rate: 52.8e12, crosswise: 2.1e12, start: 4e-6 },
};
/** Bytes a second, and seconds of a launch, of the second pass that adds the parts of split tiles. */
const SUMS = { bytes: 3e12, launch: 4e-6 };
/** The share of a wave's time that half of one takes where two blocks share a multiprocessor. */
const HALF_WAVE = 0.6;
/** Most parts that a product in f32 is split into. */
const SIMT_PARTS = 32;

/**
 * The plan in PTX of a product in f32: of all tilings and ways to split its depth, the one that takes the least time by these figures.
 * @param {Shaped} problem
 * @returns {PtxChoice | undefined}
 */
function simtPlan({ m, n, k, transA, transB }) {
  if (m * n * k < SIMT_LEAST || Math.min(m, n) < 128) return undefined;
  /** @type {{ seconds: number, plan?: PtxChoice }} */
  let best = { seconds: Infinity };
  for (const [name, { bm, bn, bk, blocks }] of Object.entries(SIMT_PLANS)) {
    const tiling = /** @type {import('../matmul/types.mjs').SimtTiling} */ (name);
    const { rate, crosswise, start } = SIMT_RATES[tiling];
    const wave = BLOCKS * blocks;
    const tiles = Math.ceil(m / bm) * Math.ceil(n / bn);
    const rest = tiles % wave;
    const whole = (2 * bm * bn * k * wave) / (rate - crosswise * (Number(!transA) + Number(transB)));
    /** Of so many blocks, each with one of so many parts of the depth. @param {number} items @param {number} parts */
    const run = (items, parts) => {
      const [full, left] = [Math.floor(items / wave), items % wave];
      const last = left === 0 ? 0 : blocks > 1 && left <= BLOCKS ? HALF_WAVE : 1;
      return ((full + last) * whole) / parts + Math.ceil(items / wave) * start;
    };
    const sums = (/** @type {number} */ items) => SUMS.launch + (2 * 4 * bm * bn * items) / SUMS.bytes;
    const consider = (/** @type {number} */ seconds, /** @type {object} */ way) => {
      if (seconds < best.seconds) best = { seconds, plan: { kernel: 'ptx', tiling, ...way } };
    };
    consider(run(tiles, 1), {});
    for (let parts = 2; parts <= SIMT_PARTS && k / parts >= 8 * bk; parts++) {
      if (tiles * parts <= 2 * wave) consider(run(tiles * parts, parts) + sums(tiles * parts), { splits: parts });
      else if (rest > 0 && rest * parts <= wave)
        consider(run(tiles - rest, 1) + run(rest * parts, parts) + sums(rest * parts), { wave, tail: parts });
    }
  }
  return best.plan;
}

/**
 * The fastest by FEW_RATES of some tilings, with as many parts of the depth as are worth a second pass.
 * @param {HalfTiling[]} tilings @param {(tiling: HalfTiling) => number} tiles @param {number} k @param {string} [glu] SwiGLU, which is of whole tiles and
 *   not of small ones
 */
function fewTiles(tilings, tiles, k, glu) {
  /** @type {{ us: number, way: { tiling: HalfTiling, splits: number } }} */
  let best = { us: Infinity, way: { tiling: tilings[0], splits: 1 } };
  for (const tiling of glu ? tilings.filter((name) => name !== 'small') : tilings) {
    const { bm, bn } = PLANS[tiling];
    for (let splits = 1; splits === 1 || (!glu && splits <= FEW_PARTS && k / splits >= FEW_DEPTH); splits++) {
      const items = tiles(tiling) * splits;
      const waves = (Math.ceil(items / BLOCKS) * k * FEW_RATES[/** @type {keyof typeof FEW_RATES} */ (tiling)]) / splits / 1000;
      const us = waves + (splits > 1 ? SECOND_PASS.us + (8 * items * bm * bn) / SECOND_PASS.bytesPerUs : 0);
      if (us < best.us) best = { us, way: { tiling, splits } };
    }
  }
  return best.way;
}

/**
 * The plan in PTX of a product in f32 or of halves, or undefined where none is known to be faster than SPIR-V.
 * @param {Shaped} problem halves when the precision is left out; with SwiGLU, which is of whole tiles and not of small ones
 * @returns {PtxChoice | undefined}
 */
export function ptxPlan({ m, n, k, transA, transB, precision, glu }) {
  if (precision === 'f32') return simtPlan({ m, n, k, transA, transB });
  const found = nearest(TABLES.ptx, { form: formName({ transA, transB }), m, n, k }, PTX_REACH, Infinity);
  const measured = found?.entry.plan;
  if (measured?.kernel !== 'ptx') return undefined;
  if (found?.distance === 0 && !(glu && (measured.tiling === 'small' || (measured.splits ?? 1) > 1))) return measured;
  const fits = !sizesFault(PLANS[/** @type {HalfTiling} */ (measured.tiling)], { m, n, k });
  const plan = { ...measured, tiling: fits ? /** @type {HalfTiling} */ (measured.tiling) : transA ? 'wide' : 'tall' };
  const tiles = (/** @type {HalfTiling} */ name) => {
    const { bm, bn } = PLANS[name];
    return Math.ceil(m / bm) * Math.ceil(n / bn);
  };
  if (!transA) {
    const tiling = plan.tiling === 'small' || plan.tiling === 'square' ? 'tall' : plan.tiling;
    // Of many tiles the last wave is a small part, and parts would not be worth a second pass.
    return { ...plan, ...(tiles(tiling) > 2 * BLOCKS ? { tiling, splits: 1 } : fewTiles([tiling, 'square', 'small'], tiles, k, glu)) };
  }
  // Weight gradients have few tiles: as many splits as fill one or two waves best, the fewest of those that do as well.
  const fill = (/** @type {number} */ splits) => {
    const items = tiles(plan.tiling) * splits;
    return items / (Math.ceil(items / BLOCKS) * BLOCKS);
  };
  const splits = [1, 2, 3, 4, 5, 6, 7, 8]
    .filter((s) => s === 1 || (tiles(plan.tiling) * s <= 2 * BLOCKS && k / s >= 1024))
    .reduce((best, s) => (fill(s) > fill(best) + 0.01 ? s : best));
  return { ...plan, splits };
}

/** Rows from which on a shuffled B can be worth it: it is for tall tiles, which fewer rows are too few of. */
const SHUFFLED_ROWS = 2048;

/**
 * The plan of a product of halves whose B is shuffled, or undefined where none is known to be faster than with B as it is.
 * @param {Shaped} problem halves when the precision is left out
 * @param {import('../tuning/table.mjs').Entry[]} [table] the package's when left out
 * @returns {PtxChoice | undefined}
 */
export function shuffledPlan({ m, n, k, transA, transB, precision }, table = TABLES.shuffled) {
  if (precision === 'f32' || m < SHUFFLED_ROWS) return undefined;
  const found = nearest(table, { form: formName({ transA, transB }), m, n, k }, PTX_REACH, Infinity);
  const plan = found?.entry.plan;
  if (plan?.kernel !== 'ptx') return undefined;
  const { bm, bn } = PLANS[/** @type {HalfTiling} */ (plan.tiling)];
  const idle = Math.ceil(m / bm) * Math.ceil(n / bn) < BLOCKS - 4;
  return found && found.distance > 0 && idle ? undefined : plan;
}

/**
 * The tilings of PLANS by which one launch computes several weight gradients, and what each multiplies in whole waves, in TFLOP/s: on H100s at
 * a depth of 8,192, `wide` on an H200 (docs/notes/ptx-products.md). The first is that of weight gradients alone. None of less than 512 tokens, for
 * which nothing was measured, nor where C has another factor than 1, for which a tile's end would wait.
 * @param {{ k: number, beta: number, transA: boolean, transB: boolean }} problem
 * @returns {{ tiling: keyof typeof PLANS, rate: number }[]}
 */
export function ptxGroup({ k, beta, transA, transB }) {
  if (!transA || transB || (beta !== 0 && beta !== 1) || k < 512) return [];
  // Copies take a depth in multiples of 32.
  if (k % 32) return [{ tiling: 'wide', rate: 520 }];
  // Of few tokens broad tiles are slower.
  if (k < 2048) return [{ tiling: 'tallCopiedCached', rate: 566 }];
  return [
    { tiling: 'tallCopiedCached', rate: 566 },
    { tiling: 'broadCopied', rate: 685 },
  ];
}

/**
 * The tiling of attention in PTX, one of ATTENTION_PLANS, or undefined where there is no kernel.
 * @param {import('./attention.mjs').AttentionForm} form @param {{ tokens: number, heads: number, batch: number }} sizes
 * @returns {string | undefined}
 */
export function ptxAttention({ pass, headSize, causal }, { tokens, heads, batch }) {
  const kept = keptParts({ batch, heads, tokens }, causal).length > 0;
  if (headSize === 128) return pass === 'forward' ? 'wide' : kept ? 'backwardWide' : 'backwardTwice';
  if (headSize !== 64) return undefined;
  if (pass === 'forward') return 'pair';
  // One block of keys and one of queries for each 128 tokens.
  if (2 * Math.ceil(tokens / 128) * heads * batch <= BLOCKS) return 'few';
  // 4 x 16 heads of 2,048 tokens take 329 microseconds for 346, 16 x 16 of 512 tokens as long as by `single`.
  return tokens < 2048 || !kept ? 'single' : 'long';
}

/**
 * The tilings of a class's table, each once.
 * @param {'half' | 'mixed' | 'bf16x3' | 'f32'} name
 * @returns {import('../matmul/types.mjs').SpirvTiling[]}
 */
export function measuredTilings(name) {
  const plans = TABLES[name].map(({ plan }) => plan).filter(isSpirv);
  const tilings = plans.map(({ splits, wave, tail, ...tiling }) => tiling);
  return [...new Map(tilings.map((tiling) => [JSON.stringify(tiling), tiling])).values()];
}

/** @type {import('../tuning/index.mjs').Tuning} */
export const H200 = {
  name: 'H200',
  // For products that no measured one is near to.
  units: 96,
  residentGroups: 1056,
  normBlocks: 792,
  // At 4096 x 16384 in microseconds: exponentials taken twice 82.2, kept 81.4, kept with 528 workgroups 78.4, with 264 79.5.
  crossEntropy: { kept: 12288, groups: 528 },
  flatThreads: 256,
  matmulPlan,
};
