// Chooses which kernel computes a convolution, and its tiles.

import { ceilDiv, nextPowerOfTwo } from '../base.mjs';
import { TILINGS, coopShapes, scaledTilings } from '../matmul/spirv.mjs';

/** @typedef {import('../base.mjs').DType} DType */
/** @typedef {import('../base.mjs').KernelContext} KernelContext */

/**
 * A kernel and its tiles. `direct`: a thread gathers for itself. `tiles`: tiles in shared memory, in f32. `coop`: the same on matrix units, for
 * half types.
 * @typedef {object} ConvolutionPlan
 * @property {'direct' | 'tiles' | 'coop'} kernel
 * @property {number} [threads] direct: of a workgroup
 * @property {number} [bm] rows of a workgroup's tile: output channels; of an input gradient, input channels
 * @property {number} [bn] columns of a workgroup's tile: positions; of a weight gradient, channels and taps
 * @property {number} [bk] depth of a staged tile
 * @property {number} tm rows a thread; coop: rows of the matrix instruction
 * @property {number} tn columns a thread; coop: columns of the matrix instruction
 * @property {number} [tk] coop: depth of the matrix instruction
 * @property {number} [wm] coop: rows of a subgroup's tile
 * @property {number} [wn] coop: columns of a subgroup's tile
 * @property {number} [splits] workgroups that share a tile: of weight gradients each with a part of the positions, else of the steps (coop)
 */

/**
 * A product of a group: rows, columns, gathered channels and taps. `phases`: products of this size. `vectors`: whether eight channels are
 * neighbours in memory, and aligned.
 * @typedef {{ m: number, n: number, c: number, taps: number, groups: number, phases: number, type: DType,
 *   vectors: [weight: boolean, x: boolean, result: boolean], splits: boolean }} Gathered `splits`: whether parts of sums can be stored
 */
/**
 * The product of a weight gradient; `k`: positions.
 * @typedef {{ m: number, n: number, groups: number, k: number, type: DType,
 *   vectors: boolean, last: boolean }} Weights `vectors`: whether eight positions of dy are neighbours in memory, and aligned; `last`: whether eight
 *   channels of x and of dy are */

/** Most terms in one chain of additions in f32: of 2^12 equal terms, the relative error is at most 5e-5. */
export const MAX_CHAIN = 1 << 12;

/** Fewest steps of a part of a sum that workgroups share, and the most parts: what a part costs besides is that of some steps. */
const [MIN_STEPS, MAX_PARTS] = [4, 16];

/** Positions below which a weight in f32 is read as it lies: not measured, since laying it out takes a dispatch. Tests lower it. */
export const limits = { packed: 4096 };

/** Rows below which a group's product is too narrow for tiles. */
const NARROW = 16;

/** [rows, columns, depth, rows and columns a thread] of tiles in shared memory, largest first. */
const TILES = [
  [128, 128, 16, 8],
  [64, 64, 16, 4],
  [32, 32, 16, 4],
];

/**
 * Tilings on matrix units as `scaledTilings` takes them: the fastest on an H100 of 35 for the layers of ResNet-18 in bf16 with channels last. Behind
 * them come the smaller ones of products.
 */
const GATHERED = [
  [8, 8, 64, 4, 2, 1],
  [8, 8, 32, 4, 4, 1],
  [4, 8, 32, 2, 2, 1],
  [4, 4, 64, 2, 2, 1],
];
const WEIGHTS = [
  [8, 8, 32, 4, 4, 1],
  [4, 8, 32, 2, 2, 1],
];

/** @param {ConvolutionPlan} plan @param {number} m @param {number} n */
const tilesOf = ({ bm = 1, bn = 1 }, m, n) => ceilDiv(m, bm) * ceilDiv(n, bn);

/**
 * Parts of each tile's sum with which workgroups, of which a device runs `slots` at a time, leave the fewest idle in their last round.
 * @param {number} slots @param {number} tiles
 */
function roundsOf(slots, tiles) {
  if (2 * tiles <= slots) return Math.floor(slots / tiles);
  const idle = (/** @type {number} */ parts) => ceilDiv(tiles * parts, slots) / parts;
  return [1, 2, 3].reduce((best, parts) => (idle(parts) < idle(best) ? parts : best));
}

/** @param {KernelContext} context */
export function planner(context) {
  const { info, isCpu, tuning } = context;

  /** @param {DType} type */
  const supports = (type) => type === 'f32' || ((type === 'f16' || type === 'bf16') && coopShapes(info, type).length > 0);

  /** Shared memory of a plan's workgroup on matrix units, in bytes. @param {ConvolutionPlan} plan */
  function coopBytes({ bm = 0, bn = 0, bk = 0, wm = 1, wn = 1, tm }) {
    const subgroups = (bm / wm) * (bn / wn);
    // Tiles by rows, or by positions with what is known of each position.
    const tiles = Math.max(2 * (bm + bn) * (bk + 8), 2 * bk * (bm + bn + 16) + 24 * bk);
    return Math.max(tiles, subgroups * 4 * Math.max(tm * (wn + 4), wn * (tm + 4))) + 4 * bn;
  }

  /** Why a plan on matrix units cannot run, or undefined. @param {ConvolutionPlan} plan */
  function coopFault(plan) {
    const { bm = 0, bn = 0, bk = 0, wm = 1, wn = 1, tm, tn, tk = 1 } = plan;
    const threads = (bm / wm) * (bn / wn) * info.subgroupSize;
    if (bm % wm || bn % wn || wm % tm || wn % tn || bk % tk) return 'tiles do not nest';
    const vectors = bk / 8;
    if (
      threads % (bm / 8) ||
      threads % (bn / 8) ||
      (bm * vectors) % threads ||
      (bn * vectors) % threads ||
      threads % vectors ||
      (threads % bn && bn % threads)
    )
      return 'loads do not divide';
    if (threads > info.maxComputeWorkGroupInvocations) return `${threads} threads a workgroup`;
    const bytes = coopBytes(plan);
    return bytes > context.sharedBytes ? `${bytes} bytes of shared memory` : undefined;
  }

  /** Tilings for a type on matrix units, largest first. @param {'f16' | 'bf16'} type @param {boolean} isWeight @returns {ConvolutionPlan[]} */
  function coopTilings(type, isWeight) {
    const [shape] = coopShapes(info, type);
    const list = isCpu ? scaledTilings(shape).slice(4) : scaledTilings(shape, [...(isWeight ? WEIGHTS : GATHERED), ...TILINGS.slice(3)]);
    return list.map(({ stages: _, ...plan }) => plan).filter((plan) => coopFault(plan) === undefined);
  }

  /** @param {number} m @param {number} n @param {number} most @returns {ConvolutionPlan} */
  const direct = (m, n, most) => {
    // A CPU computes a workgroup of eight threads together. Elsewhere neighbours hide each other's loads.
    const threads = isCpu ? 8 : Math.min(128, info.maxComputeWorkGroupInvocations);
    const limit = (/** @type {number} */ size, /** @type {number} */ largest) => Math.min(largest, nextPowerOfTwo(size));
    return { kernel: 'direct', threads, tm: limit(m, isCpu ? 8 : 4), tn: limit(n, isCpu ? 8 : most) };
  };

  /** @param {string} kernel @param {ConvolutionPlan} plan @returns {{ threads: number, bm: number, bn: number }} */
  function checked(kernel, plan) {
    const { tm, tn } = plan;
    const fail = (/** @type {string} */ why) => new RangeError(`${kernel}: the plan cannot run on ${info.deviceName}: ${why}`);
    if (plan.kernel === 'direct') {
      const threads = plan.threads ?? 1;
      if (threads > info.maxComputeWorkGroupInvocations) throw fail(`${threads} threads a workgroup`);
      if (4 * threads * tm * tn > context.sharedBytes) throw fail(`${4 * threads * tm * tn} bytes of shared memory`);
      return { threads, bm: tm, bn: tn };
    }
    const { bm = 0, bn = 0, bk = 0, wm = 1, wn = 1 } = plan;
    if (plan.kernel === 'coop') {
      const fault = coopFault(plan);
      if (fault) throw fail(fault);
      return { threads: (bm / wm) * (bn / wn) * info.subgroupSize, bm, bn };
    }
    const threads = (bm / tm) * (bn / tn);
    if (!(threads >= 1) || threads % bn || threads % bk || (bm * bk) % threads || tm % 4 || tn % 4)
      throw fail('tiles do not divide among threads');
    if (threads > info.maxComputeWorkGroupInvocations) throw fail(`${threads} threads a workgroup`);
    const bytes = 4 * bk * (bm + bn + 8);
    if (bytes > context.sharedBytes) throw fail(`${bytes} bytes of shared memory`);
    return { threads, bm, bn };
  }

  /** Tiles in f32, largest first. @returns {ConvolutionPlan[]} */
  const tilings = () =>
    TILES.map(([bm, bn, bk, t]) => /** @type {const} */ ({ kernel: 'tiles', bm, bn, bk, tm: t, tn: t })).filter(
      ({ bm, bn, bk, tm, tn }) =>
        (bm / tm) * (bn / tn) <= info.maxComputeWorkGroupInvocations && 4 * bk * (bm + bn + 8) <= context.sharedBytes,
    );

  /**
   * The largest tile that fills the device.
   * @param {ConvolutionPlan[]} all @param {number} m @param {number} n @param {(plan: ConvolutionPlan) => number} copies workgroups for each tile
   * @returns {ConvolutionPlan}
   */
  function largest(all, m, n, copies) {
    // A tile at least twice as tall or wide as the product would mostly multiply padding.
    const fitting = all.filter(({ bm = 1, bn = 1 }) => bm < 2 * m && bn < 2 * n);
    return (
      fitting.find((plan) => tilesOf(plan, m, n) * copies(plan) >= tuning.units) ??
      fitting.at(-1) ??
      /** @type {ConvolutionPlan} */ (all.at(-1))
    );
  }

  /** Tilings of a forward pass or an input gradient: those whose steps divide the channels, if there are any. @param {DType} type @param {number} c */
  function gatheredTilings(type, c) {
    if (type === 'f32') return tilings();
    const all = coopTilings(type, false);
    const whole = all.filter(({ bk = 1 }) => c % bk === 0);
    return whole.length > 0 ? whole : all;
  }

  /** The specialization of tiles. @param {ConvolutionPlan} plan @param {number[]} flags */
  const tileWords = ({ kernel, bm = 0, bn = 0, bk = 0, wm = 0, wn = 0, tm, tn, tk = 0 }, flags) =>
    kernel === 'coop' ? [bm, bn, bk, wm, wn, tm, tn, tk, info.subgroupSize, ...flags] : [bm, bn, bk, tm, tn, ...flags.slice(0, 2)];

  /** @param {ConvolutionPlan} plan @param {DType} type @param {'' | '_weights' | '_weights_last'} what */
  const nameOf = ({ kernel }, type, what) => `convolve${kernel === 'tiles' ? '' : `_${kernel}`}${what}${suffix(type)}`;
  /** @param {ConvolutionPlan} plan */
  const optionsOf = ({ kernel }) => (kernel === 'coop' ? context.wholeSubgroups : {});

  /** The part of a kernel's name that says its type. @param {DType} type */
  const suffix = (type) => (type === 'f32' ? '' : `_${type}`);

  /** Whether the threads of a direct kernel load for each other. @param {ConvolutionPlan} plan @param {DType} type */
  const shares = ({ kernel, threads, tm }, type) =>
    kernel === 'direct' && type === 'f32' && context.shufflesEight && threads === info.subgroupSize && tm >= threads;
  /** @param {number} m @param {number} n @param {number} most @param {DType} type @returns {ConvolutionPlan} */
  const narrow = (m, n, most, type) => {
    /** @type {ConvolutionPlan} */
    const shared = { kernel: 'direct', threads: 8, tm: Math.min(32, nextPowerOfTwo(m)), tn: Math.min(4, nextPowerOfTwo(ceilDiv(n, 8))) };
    return shares(shared, type) ? shared : direct(m, n, most);
  };

  /**
   * The plan of a forward pass or an input gradient.
   * @param {string} kernel @param {Gathered} shape @param {Partial<ConvolutionPlan>} [asked]
   */
  function gathered(kernel, { m, n, c, taps, groups, phases, type, vectors, splits: canSplit }, asked) {
    const isNarrow = m < NARROW || (isCpu && type === 'f32');
    const mayShare = canSplit && phases === 1 && type !== 'f32';
    // A larger tile is faster even where workgroups share it.
    const parts = (/** @type {ConvolutionPlan} */ { bk = 1 }) =>
      mayShare ? Math.max(1, Math.min(MAX_PARTS, Math.floor((c * taps) / (bk * MIN_STEPS)))) : groups * phases;
    const plan = { ...(isNarrow ? narrow(m, n, 2, type) : largest(gatheredTilings(type, c), m, n, parts)), ...asked };
    const { threads, bm, bn } = checked(kernel, plan);
    if (plan.kernel === 'direct') {
      // A loop of n rounds counts n + 1.
      context.checkRounds(kernel, `${c} channels and ${taps} taps`, taps * (2 + c) + 1);
      const tiles = ceilDiv(m, bm) * ceilDiv(n, bn * threads);
      return {
        name: shares(plan, type) ? 'convolve_shuffle' : nameOf(plan, type, ''),
        threads,
        tiles,
        packed: false,
        specialization: [threads, plan.tm, plan.tn],
        options: shares(plan, type) ? context.wholeSubgroups : {},
        splits: 1,
        kPerSplit: 0,
      };
    }
    const bk = plan.bk ?? 1;
    // Whole blocks of channels waste what is missing in the last one, and find taps faster.
    const blocked = c % bk === 0 || c >= 8 * bk;
    const steps = blocked ? ceilDiv(c, bk) * taps : ceilDiv(c * taps, bk);
    context.checkRounds(kernel, `${c} channels and ${taps} taps`, steps);
    const tiles = ceilDiv(m, bm) * ceilDiv(n, bn);
    // Of a tile's rows four are loaded at a time, if the weight is laid out so first. A weight that few positions use is not worth that.
    const packed = plan.kernel === 'tiles' && blocked && m % 4 === 0 && n * phases >= limits.packed && (bm * bk) % (4 * threads) === 0;
    const flags = plan.kernel === 'tiles' ? [blocked, packed] : [blocked, blocked && vectors[0], blocked && vectors[1], vectors[2]];
    const filling = Math.min(parts(plan), ceilDiv(tuning.units, tiles));
    const most = Math.floor(context.bindingBytes / (4 * m * n));
    const wanted = plan.kernel === 'coop' && mayShare ? Math.max(1, Math.min(plan.splits ?? filling, most)) : 1;
    const kPerSplit = ceilDiv(steps, wanted);
    return {
      name: nameOf(plan, type, ''),
      threads,
      tiles,
      packed,
      kPerSplit,
      splits: ceilDiv(steps, kPerSplit),
      specialization: tileWords(plan, flags.map(Number)),
      options: optionsOf(plan),
    };
  }

  /**
   * The plan of a weight gradient.
   * @param {string} kernel @param {Weights} shape @param {Partial<ConvolutionPlan>} [asked]
   */
  function weights(kernel, { m, n, groups, k, type, vectors, last }, asked) {
    const isNarrow = m < NARROW || n < NARROW || (isCpu && type === 'f32');
    const plan = {
      ...(isNarrow
        ? narrow(m, n, 8, type)
        : largest(type === 'f32' ? tilings() : coopTilings(type, true), m, n, () => groups * ceilDiv(k, 1024))),
      ...asked,
    };
    const { threads, bm, bn } = checked(kernel, plan);
    const [isDirect, shared] = [plan.kernel === 'direct', shares(plan, type)];
    const tiles = ceilDiv(m, bm) * ceilDiv(n, shared ? bn * threads : bn);
    // Positions of a step of the sum. Where threads have a position each, chains of additions are that much shorter.
    const step = isDirect ? threads : (plan.bk ?? 1);
    const chain = MAX_CHAIN * (isDirect && !shared ? threads : 1);
    const filling = Math.min(roundsOf(2 * tuning.units, tiles * groups), ceilDiv(k, 8 * step), 256);
    const most = Math.max(1, Math.floor(Math.min(context.maxGroups / groups, context.bindingBytes / (4 * groups * m * n))));
    const wanted = Math.min(most, Math.max(plan.splits ?? filling, ceilDiv(k, chain)));
    const kPerSplit = ceilDiv(ceilDiv(k, wanted), step) * step;
    const steps = ceilDiv(kPerSplit, step);
    context.checkRounds(kernel, `${k} positions`, shared ? steps * (2 + step) + 1 : steps + plan.tm * plan.tn);
    return {
      name: shared ? 'convolve_shuffle_weights' : nameOf(plan, type, last && plan.kernel === 'coop' ? '_weights_last' : '_weights'),
      threads,
      tiles,
      kPerSplit,
      splits: ceilDiv(k, kPerSplit),
      specialization: isDirect ? [threads, plan.tm, plan.tn] : tileWords(plan, [0, Number(vectors && plan.kernel === 'coop'), 0, 0]),
      options: shared ? context.wholeSubgroups : optionsOf(plan),
    };
  }

  return { supports, gathered, weights };
}
