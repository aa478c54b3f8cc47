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

/** Tall, with B by cp.async: but for NT, where they are sorted, its words pass no registers. */
const async = /** @type {const} */ ({ bm: 256, bn: 128, bk: 64, stages: 3, warpgroups: 2, load: 'async', ahead: 1, direct: true });

/**
 * Tilings that assemble and compute right, and of which no time is known yet: `node benches/kernels-matmul.mjs --sweep --groups ptx`.
 * @type {Record<'tallLate' | 'async' | 'asyncLate' | 'asyncTeams' | 'deep' | 'deepCached' | 'deepFine' | 'deepTeams' | 'squareDeep' | 'slim' | 'slimDeep', GemmPlan>}
 */
export const CANDIDATES = {
  tallLate: { ...PLANS.tall, late: true },
  async: { ...async, registers: [224, 56] },
  asyncLate: { ...async, late: true, registers: [224, 56] },
  asyncTeams: { ...async, teams: 2, late: true, registers: [216, 72] },
  /** Two stages of A on their way: TN and NN. */
  deep: { ...async, sets: 2, late: true, registers: [240, 24] },
  deepCached: { ...async, sets: 2, late: true, cached: true, registers: [240, 24] },
  /** The same, with stages of half the depth. */
  deepFine: { ...async, bk: 32, stages: 5, ahead: 3, sets: 2, late: true, registers: [232, 40] },
  deepTeams: { ...async, teams: 2, sets: 2, late: true, registers: [232, 40] },
  squareDeep: { ...PLANS.square, sets: 2, late: true },
  /** One warpgroup that multiplies, for TN with few tiles. */
  slim: { bm: 128, bn: 128, bk: 64, stages: 3, warpgroups: 1, load: 'relay', ahead: 2, direct: true },
  slimDeep: { bm: 128, bn: 128, bk: 64, stages: 3, warpgroups: 1, load: 'async', ahead: 1, direct: true, sets: 2, late: true },
};

/** Every tiling by its name. @type {Record<string, GemmPlan>} */
export const TILINGS = { ...PLANS, ...CANDIDATES };
