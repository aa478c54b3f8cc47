// Which kernel computes a product of a few rows with a matrix, and how it is divided: in vector arithmetic (shaders/decode/matvec.comp), or on
// matrix units (matvec_coop.comp), which round the rows to the half type of the weights.

import { MAX_CPU_ROUNDS, ceilDiv } from '../base.mjs';
import { coopShapes } from '../matmul/spirv.mjs';
import { ASKED } from './table.mjs';

/** @typedef {import('../base.mjs').KernelContext} KernelContext */
/** @typedef {import('../decode.mjs').WeightType} WeightType */

/** Most rows of one dispatch in vector arithmetic, where each has a sum in registers, and on matrix units. */
export const [VECTOR_ROWS, MATRIX_ROWS] = [8, 32];

/**
 * Fewest rows for which matrix units are chosen, and fewest where the weight has at least this many elements. On an H100 the two kernels are equal at
 * 2 rows, and at 4 rows vector arithmetic is 10 % faster for smaller weights.
 */
const [FEWEST_ROWS, FEWEST_ROWS_OF_LARGE, LARGE] = [5, 4, 2 ** 23];

/**
 * Sizes of the kernel on matrix units.
 * @typedef {object} MatrixTiling
 * @property {number} out outputs of a workgroup, a multiple of `tm`
 * @property {number} bk inputs of a block, which a subgroup takes at a time; a multiple of `tk` and of 32
 * @property {number} ahead blocks whose weights are in registers
 * @property {number} subgroups subgroups of a workgroup, which divide the blocks
 * @property {number} tm rows, columns and depth of a matrix instruction
 * @property {number} tn
 * @property {number} tk
 */

/**
 * What a caller may choose: the kernel, and of the one on matrix units any of its sizes.
 * @typedef {{ kernel: 'vector' | 'matrix' } & Partial<MatrixTiling>} MatvecChoice
 */

/** @typedef {MatrixTiling & { kernel: 'matrix', because: string }} MatrixPlan */
/** @typedef {{ kernel: 'vector', because: string }} VectorPlan */

/**
 * A product, as the choice of a kernel depends on it.
 * @typedef {object} MatvecProblem
 * @property {number} rows rows of x
 * @property {number} inputs elements of one
 * @property {number} outputs elements of a row of the result
 * @property {number} matrices that each output takes a row of
 * @property {WeightType} type of the weight
 * @property {boolean} wide whether rows can be read 16 bytes at a time
 */

/** Workgroups of the kernel on matrix units, as a part of those that fill the device, that a tile should leave. */
const FILLING = 0.75;

/** Subgroups of its workgroups and inputs of their blocks, best first: the first that fit are taken. */
const MATRIX_BLOCKS = [
  [8, 64],
  [4, 64],
  [8, 32],
  [4, 32],
  [2, 32],
  [1, 32],
];

/** Subgroups that keep enough of a GPU's loads in flight: some 16 on each of an H100's 132 multiprocessors. */
const FILLING_TEAMS = 2048;

/** Most loads of 16 bytes that an invocation waits for at a time, as registers allow. */
const LOADS_AHEAD = 12;

/** Most registers of an invocation for sums, and for weights and rows in flight: beside those for the rest, 160 leave three subgroups of a scheduler. */
const MOST_REGISTERS = 160;

/** The half type in which matrix units multiply a weight. @param {WeightType} type */
const halfOf = (type) => (type === 'bf16' ? 'bf16' : 'f16');

/** Elements of a weight in 16 bytes. @param {WeightType} type */
const perVector = (type) => (type === 'q8_0' ? 16 : 8);

/**
 * Bytes of shared memory of a workgroup: for each subgroup its staged block, and in its place at the end its sums, and a word a row; besides two words
 * a row, and one.
 * @param {MatvecProblem} problem @param {MatrixTiling} tiling
 */
function matrixShared({ rows, matrices }, { out, bk, subgroups, tn }) {
  const columns = ceilDiv(rows, tn) * tn;
  const stage = (matrices * out + columns) * (bk / 8 + 1);
  const squares = (columns * bk) / 32;
  const sums = columns * ((matrices * out) / 4 + 1);
  return 16 * subgroups * Math.max(stage, sums, squares) + 4 * subgroups * columns + 8 * columns + 4;
}

/**
 * Why a tiling cannot compute a product, or undefined.
 * @param {KernelContext} context @param {MatvecProblem} problem @param {MatrixTiling} tiling
 */
function matrixFault({ info, isCpu }, problem, tiling) {
  const { type, rows, matrices } = problem;
  const { out, bk, ahead, subgroups, tm, tn, tk } = tiling;
  const lanes = info.subgroupSize;
  const vectors = bk / perVector(type);
  if (![out, bk, ahead, subgroups].every((size) => Number.isInteger(size) && size > 0)) return 'sizes must be positive integers';
  if (!coopShapes(info, halfOf(type)).some(({ m, n, k }) => m === tm && n === tn && k === tk)) return `no ${tm}x${tn}x${tk} instruction`;
  if (out % tm || bk % tk || bk % 32) return 'blocks do not divide into instructions';
  if (lanes % (bk / 8) || (out * vectors) % lanes) return 'loads do not divide among the lanes of a subgroup';
  if (subgroups * lanes > info.maxComputeWorkGroupInvocations) return `${subgroups * lanes} threads a workgroup`;
  const sums = (matrices * out * ceilDiv(rows, tn) * tn) / lanes;
  const held = (4 * ahead * matrices * out * vectors) / lanes;
  const rowsHeld = (ceilDiv(rows, tn) * tn * bk) / lanes;
  const registers = sums + held + rowsHeld;
  if (!isCpu && registers > MOST_REGISTERS) return `${registers} registers for sums, weights and rows`;
  const bytes = matrixShared(problem, tiling);
  if (bytes > info.maxComputeSharedMemorySize)
    return `${bytes} bytes of shared memory, the device allows ${info.maxComputeSharedMemorySize}`;
  return undefined;
}

/**
 * The sizes for a product: the most outputs of a workgroup that leave enough workgroups, since all of them read all of x, then the first blocks that
 * fit. On an H100 these were among the three fastest of those tried for 24 of 27 products: 8, 16 and 32 rows by nine weights in f16.
 * @param {KernelContext} context @param {MatvecProblem} problem @param {Partial<MatrixTiling>} asked
 * @returns {MatrixTiling | undefined}
 */
function matrixTiling(context, problem, asked) {
  const { info, tuning } = context;
  const { rows, outputs, matrices, type } = problem;
  // The fewest columns, and among those the largest instruction, which is the first.
  const shapes = coopShapes(info, halfOf(type)).filter(
    ({ m, n, k }) => (asked.tm ?? m) === m && (asked.tn ?? n) === n && (asked.tk ?? k) === k,
  );
  const [shape] = shapes.toSorted((x, y) => ceilDiv(rows, x.n) * x.n - ceilDiv(rows, y.n) * y.n);
  if (!shape) return undefined;
  const { m: tm, n: tn, k: tk } = shape;
  const outs = [64, 32, 16].map((total) => Math.max(tm, total / matrices));
  const out = asked.out ?? outs.find((size) => outputs / size >= FILLING * tuning.units) ?? tm;
  for (const [count, depth] of MATRIX_BLOCKS) {
    const [subgroups, bk] = [asked.subgroups ?? count, asked.bk ?? depth];
    const tiling = { out, bk, ahead: asked.ahead ?? 1, subgroups, tm, tn, tk };
    if (!matrixFault(context, problem, tiling)) return tiling;
  }
  return undefined;
}

/**
 * The kernel of a product.
 * @param {KernelContext} context @param {MatvecProblem} problem @param {MatvecChoice | undefined} asked
 * @returns {VectorPlan | MatrixPlan}
 * @throws {RangeError} where the caller asks for matrix units and they cannot compute it
 */
export function matvecKernel(context, problem, asked) {
  const { rows, inputs, outputs, matrices, type, wide } = problem;
  const { kernel, ...sizes } = asked ?? {};
  const vector = (/** @type {string} */ because) => ({ kernel: /** @type {const} */ ('vector'), because });
  if (kernel === 'vector') return vector(ASKED);
  const half = halfOf(type);
  const tiling = matrixTiling(context, problem, sizes);
  const reason =
    type === 'f32'
      ? 'weights in f32'
      : coopShapes(context.info, half).length === 0 || !context.countsSubgroups
        ? `no matrix units for ${half}`
        : !wide
          ? 'rows cannot be read 16 bytes at a time'
          : rows > MATRIX_ROWS
            ? `more than ${MATRIX_ROWS} rows`
            : tiling === undefined
              ? 'no tile fits the device'
              : undefined;
  if (kernel === 'matrix') {
    if (reason || !tiling) throw new RangeError(`matvec: matrix units cannot compute it on ${context.info.deviceName}: ${reason}`);
    return { kernel: 'matrix', ...tiling, because: ASKED };
  }
  if (reason || !tiling) return vector(String(reason));
  if (context.isCpu) return vector('a CPU, which has no matrix units');
  const fewest = inputs * outputs * matrices < LARGE ? FEWEST_ROWS : FEWEST_ROWS_OF_LARGE;
  if (rows < fewest) return vector(`fewer than ${fewest} rows`);
  return { kernel: 'matrix', ...tiling, because: `${rows} rows: one pass over the weights on matrix units` };
}

/**
 * @typedef {object} Shape
 * @property {number} rows rows of x
 * @property {number} vectors loads of a row of the weight
 * @property {number} outputs elements of a row of the result
 * @property {number} matrices that each output takes a row of
 * @property {boolean} norm whether each workgroup computes the statistics of x first
 * @property {boolean} quantized whether a load holds 16 elements
 */

/**
 * Outputs of a team. More of them share each load of x, and of the norm's weight; fewer leave more teams.
 * @param {boolean} isCpu @param {Shape} shape
 */
function spanOf(isCpu, { rows, outputs, matrices, norm, quantized }) {
  // lavapipe, in f16, x of 768 by 3,072 outputs: 5.2 GB/s with 2, 6.1 with 4, 7.8 with 8, 7.5 with 16.
  if (isCpu) return outputs >= 512 ? (matrices === 2 && rows > 1 ? 4 : 8) : outputs >= 64 ? 2 : 1;
  // Bytes of x and of the norm for each byte of the weight come from the first-level cache, which is some 8 times as fast as memory.
  const traffic = rows + (norm ? 1 : 0);
  const shared = Math.min(4, (quantized ? 2 : 1) * traffic) / matrices;
  const fewest = rows > 4 ? 2 : 1;
  for (let span = 4; span > fewest; span /= 2) {
    if (span <= shared && (outputs * matrices) / span >= FILLING_TEAMS) return span;
  }
  return fewest;
}

/**
 * How the kernel in vector arithmetic is divided. Nothing here changes a result but its last bits.
 * @param {KernelContext} context
 * @param {Shape} shape
 */
export function vectorTiling(context, shape) {
  const { info, isCpu } = context;
  const { rows, vectors, matrices, norm } = shape;
  const full = context.countsSubgroups;
  // On a CPU an invocation computes its outputs alone: the lanes of a vector instruction then share x. Only the norm of a single row is
  // cheaper where lanes share the inputs.
  const alone = isCpu && !(full && norm && rows === 1);
  const team = alone ? 0 : full ? 1 : 2;
  const threads = isCpu ? (full ? info.subgroupSize : 8) : full ? Math.max(128, info.subgroupSize) : 64;
  const lanes = team === 0 ? 1 : team === 1 ? info.subgroupSize : threads;
  const span = spanOf(isCpu, shape);
  // As many loads ahead as make few rounds, all about equally long: the latency of memory is that of each round.
  const perLane = ceilDiv(vectors, lanes);
  const most = isCpu ? 1 : Math.max(1, Math.floor(LOADS_AHEAD / (span * matrices)));
  const ahead = ceilDiv(perLane, ceilDiv(perLane, most));
  const once = ceilDiv(vectors, ahead * lanes) + ahead;
  const statistics = norm ? rows * 2 * ceilDiv(vectors * 4, threads) : 0;
  return {
    team,
    threads,
    span,
    ahead,
    oneSubgroup: full && threads === info.subgroupSize ? 1 : 0,
    /** Rounds of the loops of an invocation that computes one block of outputs. */
    rounds: statistics + once,
    /** Workgroups for a number of outputs. @param {number} count */
    groups: (count) => {
      const blocks = ceilDiv(ceilDiv(count, span), threads / lanes);
      // On a CPU a workgroup computes several blocks, so that the statistics are not its main work.
      const turns = isCpu ? Math.max(1, Math.min(norm ? 8 : 2, Math.floor((MAX_CPU_ROUNDS - statistics) / (once + 1)))) : 1;
      return Math.min(ceilDiv(blocks, turns), context.maxGroups);
    },
    options: full ? context.wholeSubgroups : {},
  };
}
