// The tilings in PTX that were measured, and their names.
//
// A name is the tile and how operands reach it: `m<rows>n<columns>-<load>`, as in `m256n128-tma-l1`. <load> is
//   ld    loads to registers, and stores to shared memory (A may stay in registers)
//   cp    cp.async, which copies to shared memory without registers
//   tma   the copy engine (TMA), for B while A comes by loads, or for both operands
//   f32   cp.async, for products in f32 without matrix units
// `-l1` says that loads keep their data in the first-level cache.
//
// They were measured on an NVIDIA H200; those with `-tma`, and `m64n64-cp`, on an H100 (driver 580, 132 multiprocessors).
// docs/notes/ptx-products.md has the figures.

/** @typedef {import('./form.mjs').GemmTiling} GemmTiling */
/** @typedef {import('./simt.mjs').SimtTiling} SimtTiling */

/** @type {Record<'m256n128-ld' | 'm256n128-ld-l1' | 'm256n128-tma' | 'm256n128-tma-l1' | 'm256n192-tma' | 'm128n128-ld' | 'm64n64-cp' | 'm128n256-cp', GemmTiling>} */
export const GEMM_TILINGS = {
  /** NT and NN with many rows. */
  'm256n128-ld': { bm: 256, bn: 128, bk: 64, stages: 3, warpgroups: 2, load: 'ld', ahead: 1, direct: true, registers: [224, 56] },
  /** NT and NN with many rows and a depth of about 1,024. */
  'm256n128-ld-l1': {
    bm: 256,
    bn: 128,
    bk: 64,
    stages: 3,
    warpgroups: 2,
    load: 'ld',
    ahead: 2,
    direct: true,
    cached: true,
    registers: [208, 88],
  },
  /** NN and TN with many rows, and NT with B permuted. */
  'm256n128-tma': { bm: 256, bn: 128, bk: 128, bkB: 32, stages: 5, warpgroups: 2, load: 'tma', direct: true, registers: [240, 24] },
  /** The same with A kept in the first-level cache: TN, and NT and NN with many columns. */
  'm256n128-tma-l1': {
    bm: 256,
    bn: 128,
    bk: 128,
    bkB: 32,
    stages: 5,
    warpgroups: 2,
    load: 'tma',
    direct: true,
    cached: true,
    registers: [240, 24],
  },
  /** TN, for several products by one launch. */
  'm256n192-tma': { bm: 256, bn: 192, bk: 16, stages: 3, warpgroups: 2, load: 'tma', ahead: 4, registers: [240, 24] },
  /** NT and NN with few tiles. */
  'm128n128-ld': { bm: 128, bn: 128, bk: 64, stages: 3, warpgroups: 2, load: 'ld', ahead: 3, direct: true },
  /** NT and NN with few rows and columns: one or two tiles for each multiprocessor, no second pass, both operands several stages ahead. */
  'm64n64-cp': { bm: 64, bn: 64, bk: 32, stages: 6, warpgroups: 1, load: 'cp', ahead: 4 },
  /** TN, with the depth split such that parts fill the device. */
  'm128n256-cp': { bm: 128, bn: 256, bk: 16, stages: 4, warpgroups: 2, load: 'cp', ahead: 2 },
};

/**
 * Tilings of convolutions (gather.mjs). `rates`: nanoseconds of a wave for each element of the depth, and microseconds of its tiles besides, as in
 * model.mjs. Layers of few outputs take tiles of 64 columns.
 * @type {Record<'m256n128-ld' | 'm256n64-ld' | 'm128n128-ld' | 'm128n64-ld' | 'm64n64-cp', { tiling: GemmTiling, rates: [number, number] }>}
 */
export const CONVOLUTION_TILINGS = {
  'm256n128-ld': { tiling: GEMM_TILINGS['m256n128-ld'], rates: [14.6, 2.2] },
  'm256n64-ld': {
    tiling: { bm: 256, bn: 64, bk: 64, stages: 4, warpgroups: 2, load: 'ld', ahead: 2, direct: true, registers: [208, 88] },
    rates: [11, 1.6],
  },
  'm128n128-ld': { tiling: GEMM_TILINGS['m128n128-ld'], rates: [10.4, 1.05] },
  'm128n64-ld': { tiling: { bm: 128, bn: 64, bk: 64, stages: 4, warpgroups: 2, load: 'ld', ahead: 3, direct: true }, rates: [7.5, 0.8] },
  'm64n64-cp': { tiling: GEMM_TILINGS['m64n64-cp'], rates: [4.29, 0.53] },
};

/**
 * Tilings of weight gradients, likewise. A window of 3 x 3 has columns in multiples of 192 if the channels are multiples of 64.
 * @type {Record<'m128n192-cp' | 'm64n192-cp' | 'm128n256-cp', { tiling: GemmTiling, rates: [number, number] }>}
 */
export const WINDOW_TILINGS = {
  'm128n192-cp': { tiling: { bm: 128, bn: 192, bk: 16, stages: 4, warpgroups: 2, load: 'cp', ahead: 2 }, rates: [12.5, 2.2] },
  'm64n192-cp': { tiling: { bm: 64, bn: 192, bk: 16, stages: 5, warpgroups: 1, load: 'cp', ahead: 3 }, rates: [9, 1.6] },
  'm128n256-cp': { tiling: GEMM_TILINGS['m128n256-cp'], rates: [15.1, 2.7] },
};

/**
 * The second pass of products of halves, which adds up parts: its fixed microseconds, and the bytes of parts that are written and read in one.
 * Neither was measured by itself; both are part of the model (model.mjs).
 */
export const SECOND_PASS = { us: 5, bytesPerUs: 3.5e6 };

/**
 * Tilings of products in f32.
 * @type {Record<'m256n128-f32' | 'm128n256-f32' | 'm128n128-f32', SimtTiling>}
 */
export const SIMT_TILINGS = {
  'm256n128-f32': { bm: 256, bn: 128, bk: 8, stages: 3, warps: [4, 2], tm: 16, tn: 8, blocks: 1 },
  'm128n256-f32': { bm: 128, bn: 256, bk: 8, stages: 3, warps: [2, 4], tm: 16, tn: 8, blocks: 1 },
  /** Where the others would leave multiprocessors idle, or have rows that are not there. */
  'm128n128-f32': { bm: 128, bn: 128, bk: 8, stages: 3, warps: [2, 2], tm: 16, tn: 8, blocks: 2 },
};

/**
 * Names that tilings had before (until November 2026), which callers and tables on users' disks may still have.
 * @type {Readonly<Record<string, keyof typeof GEMM_TILINGS | keyof typeof SIMT_TILINGS>>}
 */
const FORMER_NAMES = {
  tall: 'm256n128-ld',
  tallCached: 'm256n128-ld-l1',
  tallCopied: 'm256n128-tma',
  tallCopiedCached: 'm256n128-tma-l1',
  broadCopied: 'm256n192-tma',
  square: 'm128n128-ld',
  small: 'm64n64-cp',
  wide: 'm128n256-cp',
  simtTall: 'm256n128-f32',
  simtWide: 'm128n256-f32',
  simtSquare: 'm128n128-f32',
};

/** The name that a tiling has now; a name that never was one is returned as it is. @param {string} name @returns {string} */
export const currentName = (name) => (Object.hasOwn(FORMER_NAMES, name) ? FORMER_NAMES[name] : name);

/** The name of a tiling: a name is its own; `another` where it has none. @param {unknown} tiling */
export const nameOf = (tiling) =>
  typeof tiling === 'string'
    ? currentName(tiling)
    : (Object.entries({ ...GEMM_TILINGS, ...SIMT_TILINGS }).find(([, known]) => known === tiling)?.[0] ?? 'another');

/**
 * Tilings of attention. A name is the pass, the rows that a block owns × the rows of a tile that it walks over, then
 *   -2wg   two warpgroups share the block's rows
 *   -b<n>  a multiprocessor holds n blocks at a time; one when left out
 *   -s<n>  n pairs of tiles in shared memory instead of two
 *   -ds    dS goes through memory to a second kernel, for dQ
 *   -long  blocks begin with the longest walks, and those of a head are not together as in the tiling without it
 * @typedef {'fwd-128x64-b2' | 'fwd-128x64' | 'bwd-64x32-2wg-ds' | 'bwd-64x32-2wg-ds-long' | 'bwd-64x32-2wg' | 'bwd-128x64' | 'bwd-128x64-s3' |
 *   'bwd-64x32-b3' | 'bwd-64x32-b3-ds'} AttentionTilingName
 */

/** @type {Record<AttentionTilingName, import('./attention.mjs').AttentionTiling>} */
export const ATTENTION_TILINGS = {
  /** Two blocks of a multiprocessor hide each other's softmax, and the longest walks come first. */
  'fwd-128x64-b2': { warpgroups: 2, columns: 64, stages: 3, blocks: 2, order: 'length' },
  /** Heads of 128: a multiprocessor has shared memory for one block. */
  'fwd-128x64': { warpgroups: 2, columns: 64, stages: 3, blocks: 1, order: 'length' },
  /** Heads of 128: two pairs of tiles of 32 and P leave shared memory for one block. */
  'bwd-64x32-2wg-ds': {
    ...{ warpgroups: 2, columns: 32, stages: 2, blocks: 1, order: 'head', paired: true },
    queries: { warpgroups: 2, columns: 64, stages: 3, blocks: 1, order: 'head' },
  },
  /** The same where a block of keys walks over several heads of queries, so that walks differ more. */
  'bwd-64x32-2wg-ds-long': {
    ...{ warpgroups: 2, columns: 32, stages: 2, blocks: 1, order: 'length', paired: true },
    queries: { warpgroups: 2, columns: 64, stages: 3, blocks: 1, order: 'head' },
  },
  /** The same where dS would be too large, and is computed twice: the longest walks first. */
  'bwd-64x32-2wg': { warpgroups: 2, columns: 32, stages: 2, blocks: 1, order: 'length', paired: true },
  /** Where there is less than a block of 128 rows for each multiprocessor. */
  'bwd-128x64': { warpgroups: 2, columns: 64, stages: 2, blocks: 1, order: 'head' },
  /** Several heads of queries share keys, and there are fewer blocks of 64 keys than multiprocessors hold. */
  'bwd-128x64-s3': { warpgroups: 2, columns: 64, stages: 3, blocks: 1, order: 'length' },
  /** Each block is one warpgroup. */
  'bwd-64x32-b3': { warpgroups: 1, columns: 32, stages: 2, blocks: 3, order: 'head' },
  /** Long sequences: the same by length. */
  'bwd-64x32-b3-ds': {
    ...{ warpgroups: 1, columns: 32, stages: 2, blocks: 3, order: 'length' },
    queries: { warpgroups: 2, columns: 64, stages: 3, blocks: 1, order: 'length' },
  },
};

/** Names that tilings of attention had before (until November 2026). @type {Readonly<Record<string, AttentionTilingName>>} */
const FORMER_ATTENTION_NAMES = {
  pair: 'fwd-128x64-b2',
  wide: 'fwd-128x64',
  backwardWide: 'bwd-64x32-2wg-ds',
  backwardTwice: 'bwd-64x32-2wg',
  few: 'bwd-128x64',
  single: 'bwd-64x32-b3',
  long: 'bwd-64x32-b3-ds',
};

/** The tiling of attention that a name, or a former name, stands for. @param {string} name @returns {import('./attention.mjs').AttentionTiling | undefined} */
export function attentionTiling(name) {
  const now = Object.hasOwn(FORMER_ATTENTION_NAMES, name) ? FORMER_ATTENTION_NAMES[name] : name;
  return Object.entries(ATTENTION_TILINGS).find(([known]) => known === now)?.[1];
}
