// Tilings that were measured, on an NVIDIA H200 (driver 580, 132 multiprocessors); docs/notes/ptx-products.md has the figures.

/** @typedef {import('./gemm.mjs').GemmPlan} GemmPlan */

/** @type {Record<'tall' | 'tallCached' | 'square' | 'wide', GemmPlan>} */
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
  /** NT and NN where there are few tiles. */
  square: { bm: 128, bn: 128, bk: 64, stages: 3, warpgroups: 2, load: 'relay', ahead: 3, direct: true },
  /** TN, with as many splits as fill the device. */
  wide: { bm: 128, bn: 256, bk: 16, stages: 4, warpgroups: 2, load: 'async', ahead: 2 },
};

/**
 * Tilings that assemble and compute right, and of which no time is known yet: `node benches/kernels-matmul.mjs --sweep --groups ptx`.
 * For TN, with A in registers, which `tall` and `tallCached` do as well.
 * @type {Record<'tallAsync' | 'tallAsyncCached' | 'tallAsyncShallow' | 'slim', GemmPlan>}
 */
export const CANDIDATES = {
  /** B by cp.async: its words pass no registers. */
  tallAsync: { bm: 256, bn: 128, bk: 64, stages: 3, warpgroups: 2, load: 'async', ahead: 1, direct: true, registers: [224, 56] },
  tallAsyncCached: {
    bm: 256,
    bn: 128,
    bk: 64,
    stages: 3,
    warpgroups: 2,
    load: 'async',
    ahead: 1,
    direct: true,
    cached: true,
    registers: [224, 56],
  },
  /** More of B on its way, less of A. */
  tallAsyncShallow: { bm: 256, bn: 128, bk: 32, stages: 5, warpgroups: 2, load: 'async', ahead: 3, direct: true, registers: [224, 56] },
  /** Half the rows, where there are few tiles. */
  slim: { bm: 128, bn: 128, bk: 64, stages: 3, warpgroups: 1, load: 'relay', ahead: 2, direct: true },
};

/** Every tiling by its name. @type {Record<string, GemmPlan>} */
export const TILINGS = { ...PLANS, ...CANDIDATES };
