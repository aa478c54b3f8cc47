// Chooses plans on an H100 and an H200. In PTX a product takes its measured line (kernels/tuning/measured/hopper.mjs), else the plan that the
// model predicts to be fastest. Through SPIR-V it takes the nearest measured line. Tilings of attention are chosen here, too.

import { keptParts } from './attention-kept.mjs';
import { BLOCKS, BROAD_DEPTH, guesses, wordsOf } from './model.mjs';
import { GEMM_TILINGS } from './tilings.mjs';
import { HOPPER } from '../tuning/measured/hopper.mjs';
import { classOf, entriesOf, formName, isSpirv, nearest } from '../tuning/table.mjs';

/** @typedef {import('../matmul/types.mjs').Choice} Choice */
/** @typedef {import('../matmul/types.mjs').GemmTilingName} GemmTilingName */
/** @typedef {import('../matmul/types.mjs').PtxChoice} PtxChoice */
/** @typedef {import('../matmul/types.mjs').Shaped} Shaped */
/** @typedef {import('../matmul/types.mjs').SpirvChoice} SpirvChoice */
/** @typedef {import('../tuning/table.mjs').Entry} Entry */

/** The lines of a class, in order. @param {typeof import('../tuning/table.mjs').CLASSES[number]} name */
const linesOf = (name) =>
  HOPPER.filter((block) => block.name === name).flatMap(({ device, untimed, lines }) =>
    entriesOf(name, lines.split('\n').filter(Boolean)).map((entry) => ({ ...entry, device, untimed })),
  );

const TABLES = {
  half: linesOf('half'),
  mixed: linesOf('mixed'),
  bf16x3: linesOf('bf16x3'),
  f32: linesOf('f32'),
  ptx: linesOf('ptx'),
  permuted: linesOf('permuted'),
};

/** Describes a line in a few words. @param {Entry} entry */
const lineWords = ({ form, m, n, k, device, untimed }) =>
  `line ${form} ${m} ${n} ${k}${device ? ` of the ${device} table` : ''}${untimed ? ', kept until it is timed' : ''}`;

/** The line with exactly the product's form and sizes. @param {Entry[]} table @param {Shaped} problem */
const lineOf = (table, { m, n, k, ...form }) =>
  table.find((entry) => entry.m === m && entry.n === n && entry.k === k && entry.form === formName(form));

/** Measured shapes must be nearer than this, in octaves over the three sizes. Another form counts as three quarters of an octave. */
const REACH = 2.5;
const OTHER_FORM = 0.75;

/**
 * The plan of the nearest measured product of the same class, if one is near enough.
 * @param {import('../matmul/types.mjs').Asked} problem
 * @returns {SpirvChoice | undefined}
 */
function matmulPlan(problem) {
  const { m, n, k, batch, beta } = problem;
  const found = nearest(TABLES[classOf(problem)], { form: formName(problem), m: m * batch, n, k }, REACH, OTHER_FORM);
  const plan = found?.entry.plan;
  if (!found || !plan || !isSpirv(plan)) return undefined;
  const because = `${found.distance > 0 ? 'nearest ' : ''}${lineWords(found.entry)}`;
  const guess = found.distance > 0 ? { guess: true } : {};
  const best = { ...plan, ...(plan.kernel === 'coop' && plan.direct && beta === 0 ? { direct: 0 } : {}), because, ...guess };
  if (!best.tail || !best.wave) return best;
  // This product's tail may differ from that of the measured one, so parts are limited to about one wave.
  const tiles = Math.ceil(m / best.bm) * Math.ceil(n / best.bn);
  const tail = found.distance === 0 ? best.tail : Math.min(best.tail, Math.floor((1.1 * best.wave) / (tiles % best.wave)));
  return tail >= 2 ? { ...best, tail } : { ...best, tail: 1 };
}

/**
 * Least multiplications for PTX. Of halves NT 8 3456 640, of 2^24.1, takes an H200 7.6 microseconds, and 9.3 by the fastest tile of SPIR-V; smaller ones
 * take about as long as a launch by either. In f32 this many take about 15 microseconds.
 */
const LEAST = { halves: 2 ** 22, f32: 2 ** 28 };
/**
 * Least rows and columns for PTX. Of halves with A as it is any rows will do: NT 1 1600 1600 takes an H200 12 microseconds, and 34 in tiles of 32 rows.
 * Products of a rank are narrower than a tile, and still faster: they wait for memory, of which a tile in PTX has several stages under way. On an H100
 * those of a Llama's adapters with the gradients (NN 4096 x 32 x 16384 and x 48 x 3072) took 341 microseconds a layer together through SPIR-V; all such
 * products of a layer, in PTX and one for each adapter, take 215.
 */
const NARROWEST = { halves: 8, f32: 128 };

/**
 * Whether a product is large enough for PTX.
 * @param {Shaped} problem
 */
const large = ({ m, n, k, transA, precision }) =>
  precision === 'f32'
    ? m * n * k >= LEAST.f32 && Math.min(m, n) >= NARROWEST.f32
    : m * n * k >= LEAST.halves && Math.min(transA ? m : n, n) >= NARROWEST.halves;

const MAX_PREDICTIONS = 4096;
/**
 * What `predicted` returned, by all that it depends on: a graph asks for the same products hundreds of times.
 * @type {Map<string, PtxChoice | undefined>}
 */
const predictions = new Map();

/** The plan that the model predicts to be fastest. @param {Shaped} problem @returns {PtxChoice | undefined} */
function guessed(problem) {
  const { m, n, k, transA, transB, precision, glu, unit } = problem;
  const key = `${m} ${n} ${k} ${transA} ${transB} ${precision} ${glu} ${unit}`;
  if (!predictions.has(key)) {
    if (predictions.size >= MAX_PREDICTIONS) predictions.clear();
    predictions.set(key, predicted(problem));
  }
  return predictions.get(key);
}

/**
 * The plan that the model predicts to be fastest, and why.
 * @param {Shaped} problem @returns {PtxChoice | undefined}
 */
function predicted(problem) {
  const list = guesses(problem);
  return list.length > 0 ? { ...list[0].plan, because: wordsOf(list), guess: true } : undefined;
}

/**
 * The plan in PTX of a product in f32 or of halves, or undefined if none is known to be faster than SPIR-V.
 * @param {Shaped} problem halves when the precision is left out; with SwiGLU only plans of whole, large tiles
 * @returns {PtxChoice | undefined}
 */
export function ptxPlan(problem) {
  const { precision, glu, unit } = problem;
  const line = precision === 'f32' ? undefined : lineOf(TABLES.ptx, problem);
  if (line) {
    const { plan } = line;
    if (plan.kernel !== 'ptx') return undefined;
    const parts = (plan.splits ?? 1) > 1;
    if (!(glu && (plan.tiling === 'm64n64-cp' || parts)) && !(unit && (parts || (plan.tail ?? 1) > 1)))
      return { ...plan, because: lineWords(line), ...(line.untimed ? { guess: true } : {}) };
  }
  return large(problem) ? guessed(problem) : undefined;
}

/** Least rows for a permuted B. It needs tall tiles, of which fewer rows make too few. */
const PERMUTED_ROWS = 2048;

/**
 * The plan of a product of halves with B permuted, or undefined if none is known to be faster than with B as it is.
 * @param {Shaped} problem halves when the precision is left out
 * @param {Entry[]} [table] the package's when left out
 * @returns {PtxChoice | undefined}
 */
export function permutedPlan(problem, table = TABLES.permuted) {
  const { m, transA, precision } = problem;
  if (precision === 'f32' || transA || m < PERMUTED_ROWS) return undefined;
  const line = lineOf(table, problem);
  if (line) return line.plan.kernel === 'ptx' ? { ...line.plan, because: lineWords(line) } : undefined;
  const [natural] = guesses(problem);
  const [permuted] = guesses(problem, { permuted: true });
  if (!permuted || !large(problem) || (natural && natural.us <= permuted.us)) return undefined;
  return { ...permuted.plan, because: wordsOf([permuted, natural]), guess: true };
}

/**
 * The tilings of GEMM_TILINGS by which one launch computes several weight gradients, each with its rate in whole waves, in TFLOP/s. The rates were
 * measured on H100s at a depth of 8,192; that of `m128n256-cp` on an H200 (docs/notes/ptx-products.md). The first is the one for a single weight
 * gradient. There are none for less than 512 tokens, where nothing was measured, and none if C has a factor other than 1, since a tile's end would
 * wait for C.
 * @param {{ k: number, beta: number, transA: boolean, transB: boolean }} problem
 * @returns {{ tiling: keyof typeof GEMM_TILINGS, rate: number }[]}
 */
export function ptxGroup({ k, beta, transA, transB }) {
  if (!transA || transB || (beta !== 0 && beta !== 1) || k < 512) return [];
  // The copy engine needs a depth that is a multiple of 32.
  if (k % 32) return [{ tiling: 'm128n256-cp', rate: 520 }];
  // Broad tiles are slower for few tokens.
  if (k < BROAD_DEPTH) return [{ tiling: 'm256n128-tma-l1', rate: 566 }];
  return [
    { tiling: 'm256n128-tma-l1', rate: 566 },
    { tiling: 'm256n192-tma', rate: 685 },
  ];
}

/**
 * The name of the tiling for attention in PTX, one of ATTENTION_TILINGS, or undefined if there is no kernel.
 * @param {import('./attention.mjs').AttentionForm} form @param {{ tokens: number, heads: number, kvHeads?: number, batch: number }} sizes
 * @returns {import('./tilings.mjs').AttentionTilingName | undefined}
 */
export function ptxAttention({ pass, headSize, causal, window, limits }, { tokens, heads, kvHeads = heads, batch }) {
  const kept = keptParts({ batch, heads, kvHeads, tokens }, causal).length > 0;
  const grouped = kvHeads < heads;
  if (headSize === 128) {
    if (pass === 'forward') return 'fwd-128x64';
    if (!kept) return 'bwd-64x32-2wg';
    return grouped ? 'bwd-64x32-2wg-ds-long' : 'bwd-64x32-2wg-ds';
  }
  if (headSize !== 64) return undefined;
  if (pass === 'forward') return 'fwd-128x64-b2';
  // With 8 heads of keys for 32 of queries dS in memory gains nothing at 4 x 2,048 tokens, and takes 1.7 times as long at 8,192.
  if (grouped) return kvHeads * batch * Math.ceil(tokens / 64) < 3 * BLOCKS ? 'bwd-128x64-s3' : 'bwd-64x32-b3';
  // `bwd-128x64` has one block of keys and one of queries for each 128 tokens.
  if (2 * Math.ceil(tokens / 128) * heads * batch <= BLOCKS) return 'bwd-128x64';
  // `bwd-64x32-b3-ds` takes 329 us and `bwd-64x32-b3` 346 for 4 x 16 heads of 2,048 tokens; at 16 x 16 heads of 512 tokens they are equal.
  // dS has room for all keys, of which queries with limits may see few.
  return tokens < 2048 || !kept || window || limits ? 'bwd-64x32-b3' : 'bwd-64x32-b3-ds';
}

/**
 * The distinct tilings of a class's table.
 * @param {'half' | 'mixed' | 'bf16x3' | 'f32'} name
 * @returns {import('../matmul/types.mjs').SpirvTiling[]}
 */
export function measuredTilings(name) {
  const plans = TABLES[name].map(({ plan }) => plan).filter(isSpirv);
  const tilings = plans.map(({ splits, wave, tail, ...tiling }) => tiling);
  return [...new Map(tilings.map((tiling) => [JSON.stringify(tiling), tiling])).values()];
}

/** @type {import('../tuning/index.mjs').Tuning} */
export const HOPPER_TUNING = {
  name: 'Hopper',
  // Used for products with nothing measured near them.
  units: 96,
  residentGroups: 1056,
  normBlocks: 792,
  // Microseconds at 4096 x 16384: 82.2 with exponentials computed twice, 81.4 kept, 78.4 kept with 528 workgroups, 79.5 with 264.
  crossEntropy: { kept: 12288, groups: 528 },
  flatThreads: 256,
  matmulPlan,
};
