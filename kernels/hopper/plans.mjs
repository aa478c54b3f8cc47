// Tilings that were measured, and what the second pass of split products takes: on an NVIDIA H200 and, those by copies and `small`, an H100
// (driver 580, 132 multiprocessors); docs/notes/ptx-products.md has the figures.

/** @typedef {import('./form.mjs').GemmPlan} GemmPlan */
/** @typedef {import('./simt.mjs').SimtPlan} SimtPlan */

/** @type {Record<'tall' | 'tallCached' | 'tallCopied' | 'tallCopiedCached' | 'broadCopied' | 'square' | 'small' | 'wide', GemmPlan>} */
export const PLANS = {
  /** NT and NN with many rows. */
  tall: { bm: 256, bn: 128, bk: 64, stages: 3, warpgroups: 2, load: 'relay', ahead: 1, direct: true, registers: [224, 56] },
  /** NT and NN with many rows and a depth of about 1,024. */
  tallCached: {
    bm: 256,
    bn: 128,
    bk: 64,
    stages: 3,
    warpgroups: 2,
    load: 'relay',
    ahead: 2,
    direct: true,
    cached: true,
    registers: [208, 88],
  },
  /** NN and TN with many rows, and NT with B shuffled. */
  tallCopied: { bm: 256, bn: 128, bk: 128, bkB: 32, stages: 5, warpgroups: 2, load: 'copy', direct: true, registers: [240, 24] },
  /** The same by loads of A that stay in the first-level cache: TN, and NT and NN with many columns. */
  tallCopiedCached: {
    bm: 256,
    bn: 128,
    bk: 128,
    bkB: 32,
    stages: 5,
    warpgroups: 2,
    load: 'copy',
    direct: true,
    cached: true,
    registers: [240, 24],
  },
  /** TN, several products by one launch. */
  broadCopied: { bm: 256, bn: 192, bk: 16, stages: 3, warpgroups: 2, load: 'copy', ahead: 4, registers: [240, 24] },
  /** NT and NN where there are few tiles. */
  square: { bm: 128, bn: 128, bk: 64, stages: 3, warpgroups: 2, load: 'relay', ahead: 3, direct: true },
  /** NT and NN of few rows and columns: as many tiles as multiprocessors without a second pass, and both operands several stages ahead. */
  small: { bm: 64, bn: 64, bk: 32, stages: 6, warpgroups: 1, load: 'async', ahead: 4 },
  /** TN, with as many splits as fill the device. */
  wide: { bm: 128, bn: 256, bk: 16, stages: 4, warpgroups: 2, load: 'async', ahead: 2 },
};

/**
 * The second pass of products of halves, which adds up parts: microseconds beside those in which parts are written and read, and how many bytes
 * in one. Not measured by themselves: they are part of the model (model.mjs).
 */
export const SECOND_PASS = { us: 5, bytesPerUs: 3.5e6 };

/**
 * Tilings of products in f32.
 * @type {Record<'simtTall' | 'simtWide' | 'simtSquare', SimtPlan>}
 */
export const SIMT_PLANS = {
  simtTall: { bm: 256, bn: 128, bk: 8, stages: 3, warps: [4, 2], tm: 16, tn: 8, blocks: 1 },
  simtWide: { bm: 128, bn: 256, bk: 8, stages: 3, warps: [2, 4], tm: 16, tn: 8, blocks: 1 },
  /** Where the others would leave multiprocessors idle, or have rows that are not there. */
  simtSquare: { bm: 128, bn: 128, bk: 8, stages: 3, warps: [2, 2], tm: 16, tn: 8, blocks: 2 },
};

/** The name of a tiling: a name is its own; `another` where it has none. @param {unknown} tiling */
export const nameOf = (tiling) =>
  typeof tiling === 'string'
    ? tiling
    : (Object.entries({ ...PLANS, ...SIMT_PLANS }).find(([, known]) => known === tiling)?.[0] ?? 'another');

/**
 * Tilings of attention, by what they are for.
 * @type {Record<string, import('./attention.mjs').AttentionTiling>}
 */
export const ATTENTION_PLANS = {
  /** Forward: two blocks of a multiprocessor hide each other's softmax, and the longest walks come first. */
  pair: { warpgroups: 2, columns: 64, stages: 3, blocks: 2, order: 'length' },
  /** Forward, heads of 128: a multiprocessor has shared memory for one block. */
  wide: { warpgroups: 2, columns: 64, stages: 3, blocks: 1, order: 'length' },
  /** Backward, heads of 128: tiles of 32, of which two pairs and P leave shared memory for one block; dQ from dS in memory. */
  backwardWide: {
    ...{ warpgroups: 2, columns: 32, stages: 2, blocks: 1, order: 'head', paired: true },
    queries: { warpgroups: 2, columns: 64, stages: 3, blocks: 1, order: 'head' },
  },
  /** The same where dS of one head would be too large, and is computed twice: the longest walks first. */
  backwardTwice: { warpgroups: 2, columns: 32, stages: 2, blocks: 1, order: 'length', paired: true },
  /** Backward where there is less than a block of 128 rows for each multiprocessor. */
  few: { warpgroups: 2, columns: 64, stages: 2, blocks: 1, order: 'head' },
  /** Backward: three blocks of a multiprocessor, each of one warpgroup. */
  single: { warpgroups: 1, columns: 32, stages: 2, blocks: 3, order: 'head' },
  /** Backward, long sequences: the same by length, and dQ from dS in memory. */
  long: {
    ...{ warpgroups: 1, columns: 32, stages: 2, blocks: 3, order: 'length' },
    queries: { warpgroups: 2, columns: 64, stages: 3, blocks: 1, order: 'length' },
  },
};
