// Lists the plans of a product that `helios-vk tune` and benches/kernels-matmul.mjs time, and the few that `compile` does.

import { coopShapes, cpuTilings, scaledTilings } from '../matmul/spirv.mjs';
import { planName, tilingName } from '../matmul/words.mjs';
import { gemmFault, sizesFault } from '../hopper/form.mjs';
import { GEMM_TILINGS, SIMT_TILINGS } from '../hopper/tilings.mjs';
import { simtFault } from '../hopper/simt.mjs';
import { guesses } from '../hopper/model.mjs';
import { measuredTilings } from '../hopper/tables.mjs';
import { formName, isSpirv, tilingOf } from './table.mjs';

/** @typedef {import('./table.mjs').Shape} Shape */
/** @typedef {import('../matmul/types.mjs').PtxChoice} PtxChoice */
/** @typedef {import('../matmul/types.mjs').Split} Split */
/** @typedef {import('../matmul/types.mjs').SpirvTiling} SpirvTiling */

/** @typedef {{ bm: number, bn: number }} Tile */
/** f32 tilings: bm bn bk tm tn lx stages. */
const F32_TILES = `
128 128 16 8 8 8 2|128 128 16 8 8 8 1|128 128 16 8 4 8 2|128 128 16 8 4 8 1|64 64 16 8 8 8 2|64 64 16 8 4 8 2|128 64 16 8 8 8 2|64 128 16 8 8 8 2
128 128 16 8 8 4 2|128 128 8 8 8 8 2|64 64 32 4 4 8 1|64 128 16 4 8 8 2`;
/** Matrix-unit tilings: bm bn bk wm wn tm tn tk stages [ahead [direct]]. */
const COOP_TILES = `
128 128 64 64 32 16 16 16 1 1|64 64 128 32 32 16 16 16 1 1|128 128 32 64 64 16 16 16 1 1|128 64 64 32 32 16 16 16 1 1|256 128 32 64 64 16 16 16 1 1
128 128 64 64 32 16 16 16 1|64 64 128 32 32 16 16 16 1|64 64 64 32 32 16 16 16 1|128 64 64 32 32 16 16 16 1|64 128 64 32 32 16 16 16 1
128 128 32 64 64 16 16 16 1|128 128 32 64 32 16 16 16 2|128 128 32 32 32 16 16 16 2|256 128 32 64 64 16 16 16 1|256 128 32 128 32 16 16 16 1
128 128 64 64 64 16 16 16 1|64 64 64 32 16 16 16 16 2|64 64 64 16 32 16 16 16 2|128 128 64 32 64 16 16 16 1|128 128 64 32 32 16 16 16 1
128 96 64 64 48 16 16 16 1|128 96 64 32 48 16 16 16 1|96 128 64 48 64 16 16 16 1|96 128 64 48 32 16 16 16 1
128 192 64 64 48 16 16 16 1|192 128 64 48 64 16 16 16 1|192 128 64 96 32 16 16 16 1|192 128 32 96 32 16 16 16 1|128 192 32 64 48 16 16 16 1
64 64 128 32 16 16 16 16 1|64 64 128 16 32 16 16 16 1|64 96 64 32 48 16 16 16 1|96 64 64 48 32 16 16 16 1|96 96 64 48 48 16 16 16 1
64 128 64 32 64 16 16 16 1|128 64 64 64 32 16 16 16 1|64 192 64 32 48 16 16 16 1|64 32 128 32 16 16 16 16 1|32 64 128 16 32 16 16 16 1
128 128 64 64 32 16 8 16 1|64 64 128 32 32 16 8 16 1|128 64 32 32 32 16 16 16 2|64 64 64 32 32 16 16 16 2|128 256 32 64 64 16 16 16 1
64 64 64 32 32 16 16 16 1 0 1|128 128 64 64 32 16 16 16 1 0 1|96 64 64 48 32 16 16 16 1 0 1
128 64 32 32 32 16 16 16 1|64 64 32 32 32 16 16 16 2|128 128 32 64 32 16 16 16 1|64 64 32 32 32 16 16 16 1`;

/** Workgroups that an H200 runs at once, one or two on each of its 132 multiprocessors. */
export const WAVES = [132, 264];

/**
 * The tilings of the SPIR-V kernels for a precision on a device.
 * @param {'f32' | 'f16' | 'bf16' | 'bf16x3'} precision @param {import('../base.mjs').KernelContext} context
 * @param {{ quick?: boolean }} [options] `quick`: only those that were fastest for some product on an H200
 * @returns {SpirvTiling[]} those of `quick` come first
 */
export function tilings(precision, context, { quick = false } = {}) {
  const parse = (/** @type {string} */ name, /** @type {string} */ text) =>
    text
      .split(/[|\n]/)
      .map((line) => line.trim())
      .filter(Boolean)
      .map((line) => tilingOf(name, line))
      .filter(isSpirv);
  /** @param {SpirvTiling[]} list */
  const distinct = (list) => [...new Map(list.map((plan) => [planName(plan), plan])).values()];
  const first = (/** @type {'half' | 'bf16x3' | 'f32'} */ name, /** @type {string} */ text) =>
    quick ? measuredTilings(name) : distinct([...measuredTilings(name), ...parse(name, text)]);
  if (precision === 'f32') return context.isCpu ? cpuTilings(context) : first('f32', F32_TILES);
  const known = coopShapes(context.info, precision === 'f16' ? 'f16' : 'bf16');
  const name = precision === 'bf16x3' ? 'bf16x3' : 'half';
  const list = first(name, COOP_TILES);
  if (known.some((s) => s.m === 16 && s.n === 16)) {
    return list.filter((p) => p.kernel === 'coop' && known.some((s) => s.m === p.tm && s.n === p.tn && s.k === p.tk));
  }
  return known.slice(0, 1).flatMap((shape) => scaledTilings(shape));
}

/** The ways to split K in a plan: not at all, for all tiles, or for those after the last whole wave. @param {Shape} s @param {Tile & { bk: number }} plan */
export function splitsFor(s, plan) {
  const tiles = Math.ceil(s.m / plan.bm) * Math.ceil(s.n / plan.bn);
  /** @type {Split[]} */
  const list = [{ splits: 1 }];
  for (const splits of [2, 3, 4, 6, 8]) {
    if (tiles * splits <= 640 && tiles < 160 && s.k / splits >= 4 * plan.bk && s.k / splits >= 128) list.push({ splits });
  }
  for (const wave of WAVES) {
    for (const tail of [2, 3, 4]) {
      if (tiles > wave && tiles < 6 * wave && tiles % wave > 0 && (tiles % wave) * tail <= 1.1 * wave && s.k / tail >= 2 * plan.bk)
        list.push({ splits: 1, wave, tail });
    }
  }
  return list;
}

/**
 * The plans worth timing for a product: those with no more padding than work and at least some workgroups, or all if there are none.
 * @template {Tile} T
 * @param {Shape} s @param {T[]} list
 */
export function sensible(s, list) {
  const fitting = list.filter((plan) => {
    const tiles = Math.ceil(s.m / plan.bm) * Math.ceil(s.n / plan.bn);
    const area = plan.bm * plan.bn;
    return tiles >= 12 && !(tiles > 4096 && area <= 64 * 64) && !(s.m * s.n >= 2048 * 2752 && area < 64 * 64);
  });
  return fitting.length > 0 ? fitting : list;
}

/** Each plan with every way to split K. @template {Tile & { bk: number }} T @param {Shape} s @param {T[]} list */
export const withSplits = (s, list) => list.flatMap((p) => splitsFor(s, p).map((split) => ({ ...p, ...split })));

/**
 * The tilings in PTX that can compute a form, each with all sensible ways to split the depth; the ways that fill the device best come first.
 * @param {Shape} s @param {'f32' | 'bf16'} [type] of the operands
 * @param {{ permuted?: boolean }} [options] `permuted`: only tilings that take a permuted B
 * @returns {Record<string, PtxChoice[]>} plans by tiling
 */
export function ptxPlans({ form, m, n, k }, type = 'bf16', { permuted = false } = {}) {
  const of = /** @type {const} */ ({ type, transA: form[0] === 'T', transB: form[1] === 'T', permuted, parts: true });
  /** @type {[string, { bm: number, bn: number, blocks?: number }][]} */
  const list =
    type === 'f32'
      ? Object.entries(SIMT_TILINGS).filter(([, sizes]) => !simtFault(sizes, of))
      : Object.entries(GEMM_TILINGS).filter(([, sizes]) => !gemmFault(sizes, of) && !sizesFault(sizes, { m, n, k }));
  // A part of less depth than this costs more in partial sums than it gains.
  const least = type === 'f32' ? 96 : 512;
  return Object.fromEntries(
    list.map(([tiling, { bm, bn, blocks = 1 }]) => {
      const wave = WAVES[0] * blocks;
      const tiles = Math.ceil(m / bm) * Math.ceil(n / bn);
      const rest = tiles % wave;
      /** The share of the device's time that a split uses, if a part takes as long as its depth says. @param {Split} plan */
      const fill = ({ splits = 1, tail = 1 }) => {
        const time =
          tail > 1 ? Math.floor(tiles / wave) + Math.ceil((rest * tail) / wave) / tail : Math.ceil((tiles * splits) / wave) / splits;
        return tiles / (time * wave);
      };
      const splits = [2, 3, 4, 5, 6, 7, 8, ...(type === 'f32' ? [9, 10, 12, 14, 16, 20, 24, 28, 32] : [])].filter(
        (s) => tiles * s <= (type === 'f32' ? 2 : 4) * wave && k / s >= least,
      );
      const tails = [2, 3, 4, 6, 8].filter((tail) => tiles > wave && rest > 0 && rest * tail <= 1.1 * wave && k / tail >= least);
      const ways = [{}, ...splits.map((splits) => ({ splits })), ...tails.map((tail) => ({ wave, tail }))];
      const plan = /** @type {PtxChoice} */ ({ kernel: 'ptx', tiling, ...(permuted ? { permuted } : {}) });
      return [tilingName(plan), ways.sort((x, y) => fill(y) - fill(x)).map((way) => ({ ...plan, ...way }))];
    }),
  );
}

/** Plans that the model predicts to take this much longer than the fastest are not timed: it is wrong by a fifth at most. */
const LIKELY = 1.4;
/** Most plans in PTX, and through SPIR-V, that are timed for a product while a program compiles. */
const [MOST_PTX, MOST_SPIRV] = [6, 8];
/** Up to this many multiplications the kernels through SPIR-V may be faster than those in PTX. */
const SMALL = 2 ** 31;

/**
 * The plans in PTX that are likely the fastest, by the model of time; none where the device has none.
 * @param {import('../base.mjs').KernelContext} context @param {import('../matmul/types.mjs').Problem} problem
 * @param {{ permuted?: boolean }} [options] `permuted`: those with B permuted
 * @returns {PtxChoice[]}
 */
export function ptxCandidates(context, problem, { permuted = false } = {}) {
  const { precision, aType, bType, transA, n, k } = problem;
  if (!context.takesPtx || !context.tuning.ptxPlan || precision !== aType || precision !== bType) return [];
  if (permuted && (precision === 'f32' || transA || n % 32 || k % 32)) return [];
  const list = guesses(problem, { permuted, ways: 2 });
  return list
    .filter(({ us }) => us <= LIKELY * list[0].us)
    .slice(0, MOST_PTX)
    .map(({ plan }) => plan);
}

/** Elements of a tile's operands, for each of the depth, that take as long to load as one product of a tile of that many elements. */
const LOADS = 48;

/**
 * A plan's time in arbitrary units: waves of tiles, each of which multiplies and loads; and a second pass over parts.
 * @param {{ m: number, n: number, k: number }} problem @param {Tile & Split} plan @param {number} units tiles that the device computes at once
 */
export function waveTime({ m, n, k }, { bm, bn, splits = 1, wave, tail = 1 }, units) {
  const tiles = Math.ceil(m / bm) * Math.ceil(n / bn);
  const depth = k * (bm * bn + LOADS * (bm + bn));
  if (tail > 1 && wave) return (Math.floor(tiles / wave) + Math.ceil(((tiles % wave) * tail) / wave) / tail) * depth;
  return Math.ceil((tiles * splits) / units) * (depth / splits) + (splits > 1 ? (8 * LOADS * m * n * splits) / units : 0);
}

/**
 * The plans through SPIR-V that are likely the fastest.
 * @param {import('../base.mjs').KernelContext} context @param {import('../matmul/types.mjs').Problem} problem
 * @param {import('../matmul/types.mjs').Choice} own the package's plan: without PTX all ways to split the depth in it are among them
 * @returns {import('../matmul/types.mjs').SpirvChoice[]}
 */
export function spirvCandidates(context, problem, own) {
  const { m, n, k, precision } = problem;
  if (own.kernel === 'ptx' || context.tuning.ptxPlan) {
    // Beside plans in PTX only small products need to be compared.
    const near = m * n * k < SMALL ? context.tuning.matmulPlan?.(problem) : undefined;
    if (!near) return [];
    const { because: _because, guess: _guess, fallback: _fallback, ...plan } = near;
    return [plan];
  }
  const shape = { form: formName(problem), m, n, k };
  const time = (/** @type {Tile & Split} */ plan) => waveTime(problem, plan, context.tuning.units);
  const list = sensible(shape, tilings(precision, context, { quick: true }));
  if (context.isCpu) return list.slice(0, MOST_SPIRV).map((plan) => ({ ...plan, splits: 1 }));
  const { splits: _splits, wave: _wave, tail: _tail, ...tiling } = own;
  const ways = isSpirv(tiling) ? withSplits(shape, [tiling]) : [];
  const others = withSplits(shape, list).sort((x, y) => time(x) - time(y));
  return [...ways, ...others.slice(0, MOST_SPIRV)];
}
