// Chooses plans on an H100 and an H200. In PTX a product takes its measured line (kernels/tuning/measured/hopper.mjs), else the model's guess.
// Through SPIR-V it takes the nearest measured line. Tilings of attention are chosen here, too.

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

/** Lines by class, in their order. @param {typeof import('../tuning/table.mjs').CLASSES[number]} name */
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

/** A line in a few words. @param {Entry} entry */
const lineWords = ({ form, m, n, k, device, untimed }) =>
  `line ${form} ${m} ${n} ${k}${device ? ` of the ${device} table` : ''}${untimed ? ', kept until it is timed' : ''}`;

/** The line of a product itself. @param {Entry[]} table @param {Shaped} problem */
const lineOf = (table, { m, n, k, ...form }) =>
  table.find((entry) => entry.m === m && entry.n === n && entry.k === k && entry.form === formName(form));

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
  const because = `${found.distance > 0 ? 'nearest ' : ''}${lineWords(found.entry)}`;
  const best = { ...plan, ...(plan.kernel === 'coop' && plan.direct && beta === 0 ? { direct: 0 } : {}), because };
  if (!best.tail || !best.wave) return best;
  // The tail of the measured shape may be another than this one's: no more parts than about one wave.
  const tiles = Math.ceil(m / best.bm) * Math.ceil(n / best.bn);
  const tail = found.distance === 0 ? best.tail : Math.min(best.tail, Math.floor((1.1 * best.wave) / (tiles % best.wave)));
  return tail >= 2 ? { ...best, tail } : { ...best, tail: 1 };
}

/** Multiplications from which on products are computed in PTX: of halves fewer were not timed, in f32 they take about 15 microseconds. */
const LEAST = { halves: 2 ** 27, f32: 2 ** 28 };

/**
 * Whether a product is large enough for PTX.
 * @param {Shaped} problem
 */
const large = ({ m, n, k, precision }) =>
  precision === 'f32' ? m * n * k >= LEAST.f32 && Math.min(m, n) >= 128 : m * n * k >= LEAST.halves && Math.min(m, n) >= 64;

/** The model's plan, and why. @param {Shaped} problem @param {{ permuted?: boolean }} [options] @returns {PtxChoice | undefined} */
function guessed(problem, options) {
  const list = guesses(problem, options);
  return list.length > 0 ? { ...list[0].plan, because: wordsOf(list) } : undefined;
}

/**
 * The plan in PTX of a product in f32 or of halves, or undefined where none is known to be faster than SPIR-V.
 * @param {Shaped} problem halves when the precision is left out; with SwiGLU, which is of whole tiles and not of small ones
 * @returns {PtxChoice | undefined}
 */
export function ptxPlan(problem) {
  const { precision, glu } = problem;
  const line = precision === 'f32' ? undefined : lineOf(TABLES.ptx, problem);
  if (line) {
    const { plan } = line;
    if (plan.kernel !== 'ptx') return undefined;
    if (!(glu && (plan.tiling === 'm64n64-cp' || (plan.splits ?? 1) > 1))) return { ...plan, because: lineWords(line) };
  }
  return large(problem) ? guessed(problem) : undefined;
}

/** Rows from which on a permuted B can be worth it: it is for tall tiles, which fewer rows are too few of. */
const PERMUTED_ROWS = 2048;

/**
 * The plan of a product of halves whose B is permuted, or undefined where none is known to be faster than with B as it is.
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
  return { ...permuted.plan, because: wordsOf([permuted, natural]) };
}

/**
 * The tilings of GEMM_TILINGS by which one launch computes several weight gradients, and what each multiplies in whole waves, in TFLOP/s: on H100s at
 * a depth of 8,192, `m128n256-cp` on an H200 (docs/notes/ptx-products.md). The first is that of weight gradients alone. None of less than 512 tokens, for
 * which nothing was measured, nor where C has another factor than 1, for which a tile's end would wait.
 * @param {{ k: number, beta: number, transA: boolean, transB: boolean }} problem
 * @returns {{ tiling: keyof typeof GEMM_TILINGS, rate: number }[]}
 */
export function ptxGroup({ k, beta, transA, transB }) {
  if (!transA || transB || (beta !== 0 && beta !== 1) || k < 512) return [];
  // Copies take a depth in multiples of 32.
  if (k % 32) return [{ tiling: 'm128n256-cp', rate: 520 }];
  // Of few tokens broad tiles are slower.
  if (k < BROAD_DEPTH) return [{ tiling: 'm256n128-tma-l1', rate: 566 }];
  return [
    { tiling: 'm256n128-tma-l1', rate: 566 },
    { tiling: 'm256n192-tma', rate: 685 },
  ];
}

/**
 * The tiling of attention in PTX, one of ATTENTION_TILINGS, or undefined where there is no kernel.
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
export const HOPPER_TUNING = {
  name: 'Hopper',
  // For products that no measured one is near to.
  units: 96,
  residentGroups: 1056,
  normBlocks: 792,
  // At 4096 x 16384 in microseconds: exponentials taken twice 82.2, kept 81.4, kept with 528 workgroups 78.4, with 264 79.5.
  crossEntropy: { kept: 12288, groups: 528 },
  flatThreads: 256,
  matmulPlan,
};
