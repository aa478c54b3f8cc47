// What benches/kernels-matmul.mjs sweeps over: shapes, tilings and groups, and how they are named.

import { coopShapes } from '../../kernels/matmul.mjs';
import { planFault } from '../../kernels/ptx/gemm.mjs';
import { PLANS } from '../../kernels/ptx/plans.mjs';

/** @typedef {{ m: number, n: number, k: number, form: 'NT' | 'NN' | 'TN' }} Shape */

/** @param {string} text @returns {Shape} */
export const shape = (text) => {
  const [form, m, n, k] = text.split(' ');
  return { form: /** @type {any} */ (form), m: Number(m), n: Number(n), k: Number(k) };
};

// The four target shapes, then the products of the 300M model at 512 tokens: forward NT, input gradient NN, weight
// gradient TN.
export const TARGETS = ['NT 512 1024 1024', 'NT 512 2752 1024', 'NT 2048 2752 1024', 'NT 4096 4096 4096'].map(shape);
export const MODEL = [
  'NN 512 1024 1024',
  'TN 1024 1024 512',
  'NT 512 3072 1024',
  'NT 512 5504 1024',
  'NT 512 1024 2752',
  'NT 512 16384 1024',
  'NN 512 1024 3072',
  'NN 512 1024 5504',
  'NN 512 2752 1024',
  'NN 512 1024 16384',
  'TN 3072 1024 512',
  'TN 5504 1024 512',
  'TN 1024 2752 512',
  'TN 16384 1024 512',
  'TN 512 1024 1024',
  'NT 2048 3072 1024',
  'NT 2048 5504 1024',
  'NT 8192 5504 1024',
].map(shape);

/** The products of the 300M model at 16 and at 4 sequences of 512 tokens, with its vocabulary last, and some at one sequence. */
export const HALVES = [
  ...[8192, 2048].flatMap((rows) => [
    ...[1024, 3072, 5504].flatMap((n) => [`NT ${rows} ${n} 1024`, `NN ${rows} 1024 ${n}`, `TN ${n} 1024 ${rows}`]),
    ...[`NT ${rows} 1024 2752`, `NN ${rows} 2752 1024`, `TN 1024 2752 ${rows}`],
  ]),
  ...['NT 512 5504 1024', 'NN 512 1024 5504', 'TN 5504 1024 512', 'NT 4096 4096 4096'],
  ...[8192, 2048].flatMap((rows) => [`NT ${rows} 17408 1024`, `NN ${rows} 1024 17408`, `TN 17408 1024 ${rows}`]),
].map(shape);

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

/** @param {string} text */
const rows = (text) =>
  text
    .split(/[|\n]/)
    .map((line) => line.trim())
    .filter(Boolean)
    .map((line) => line.split(/\s+/).map(Number));

/** @param {string} precision @param {any} context @returns {any[]} */
export function plans(precision, context) {
  if (precision === 'f32') {
    return rows(F32_TILES).map(([bm, bn, bk, tm, tn, lx, stages]) => ({ kernel: 'f32', bm, bn, bk, tm, tn, lx, stages }));
  }
  const known = coopShapes(context.info, precision === 'f16' ? 'f16' : 'bf16');
  const list = rows(COOP_TILES).map(([bm, bn, bk, wm, wn, tm, tn, tk, stages, ahead = 0, direct = 0]) => ({
    kernel: 'coop',
    bm,
    bn,
    bk,
    wm,
    wn,
    tm,
    tn,
    tk,
    stages,
    ahead,
    direct,
  }));
  if (known.some((s) => s.m === 16 && s.n === 16)) {
    return list.filter((p) => known.some((s) => s.m === p.tm && s.n === p.tn && s.k === p.tk));
  }
  return known.slice(0, 1).flatMap(({ m, n, k }) =>
    [
      [4, 4, 2, 2],
      [8, 4, 2, 2],
    ].map(([x, y, wx, wy]) => ({
      kernel: 'coop',
      bm: x * m,
      bn: y * n,
      bk: Math.max(16, k),
      wm: wx * m,
      wn: wy * n,
      tm: m,
      tn: n,
      tk: k,
      stages: 1,
    })),
  );
}

/**
 * The tilings in PTX that can compute a form, each with the depth split in every way that may be worth it: the ways that fill
 * the device best first.
 * @param {Shape} s
 * @returns {Record<string, any[]>} plans by tiling
 */
export function ptxPlans({ form, m, n, k }) {
  const [transA, transB] = [form[0] === 'T', form[1] === 'T'];
  const [wave] = WAVES;
  return Object.fromEntries(
    Object.entries(PLANS)
      .filter(([, sizes]) => !planFault(sizes, { type: 'bf16', transA, transB, parts: true }))
      .map(([tiling, { bm, bn }]) => {
        const tiles = Math.ceil(m / bm) * Math.ceil(n / bn);
        const rest = tiles % wave;
        /** How much of the device's time is used, were parts as long as the depth says. @param {any} plan */
        const fill = ({ splits = 1, tail = 1 }) => {
          const time =
            tail > 1 ? Math.floor(tiles / wave) + Math.ceil((rest * tail) / wave) / tail : Math.ceil((tiles * splits) / wave) / splits;
          return tiles / (time * wave);
        };
        const splits = [2, 3, 4, 5, 6, 7, 8].filter((s) => tiles * s <= 4 * wave && k / s >= 512);
        const tails = [2, 3, 4, 6, 8].filter((tail) => tiles > wave && rest > 0 && rest * tail <= 1.1 * wave && k / tail >= 512);
        const ways = [{}, ...splits.map((splits) => ({ splits })), ...tails.map((tail) => ({ wave, tail }))];
        return [tiling, ways.sort((x, y) => fill(y) - fill(x)).map((way) => ({ kernel: 'ptx', tiling, ...way }))];
      }),
  );
}

/** @type {Record<string, any>} */
export const GROUPS = {
  bf16: { precision: 'bf16', aType: 'bf16', bType: 'bf16', share: 5 },
  f16: { precision: 'f16', aType: 'f16', bType: 'f16', share: 5, extra: true },
  f32: { precision: 'f32', share: 2 },
  // Groups marked extra run only when named. Activations and gradients in f32, weights in half precision.
  'bf16-mixed': { precision: 'bf16', aType: 'f32', bType: 'bf16', few: true },
  // Half results.
  'bf16-half': { precision: 'bf16', aType: 'bf16', bType: 'bf16', cType: 'bf16', few: true, extra: true },
  // Kernels in PTX beside the plan that SPIR-V has for a product; results in half precision but for weight gradients.
  ptx: { precision: 'bf16', aType: 'bf16', bType: 'bf16', ptx: true, extra: true },
  bf16x3: { precision: 'bf16x3', few: true },
  // Weight gradients that accumulate: C is read, from memory rather than from cache.
  beta: { precision: 'bf16', aType: 'bf16', bType: 'bf16', beta: 1, extra: true },
  'f32-beta': { precision: 'f32', beta: 1, extra: true },
  'attention-bf16': { attention: true, type: 'bf16', few: true },
  'attention-f32': { attention: true, type: 'f32', few: true },
};

export const planName = (/** @type {any} */ p) =>
  p.queryBlock
    ? `${p.kernel ?? ''} ${p.queryBlock}x${p.keyBlock}${p.group ? ` g${p.group}` : ''}${p.threads ? ` t${p.threads}` : ''}${p.rows ? ` ${p.rows}x${p.columns} ${p.workspace / 2 ** 20} MiB` : ''}${p.shape ? ` i${p.shape.m}x${p.shape.n}x${p.shape.k}` : ''}`.trim()
    : [
        p.kernel,
        ...(p.kernel === 'ptx'
          ? [p.tiling]
          : [
              `${p.bm}x${p.bn}x${p.bk}`,
              p.kernel === 'f32' ? `${p.tm}x${p.tn} l${p.lx}` : `w${p.wm}x${p.wn} i${p.tm}x${p.tn}x${p.tk}`,
              `s${p.stages}${p.ahead ? 'a' : ''}${p.direct ? 'd' : ''}`,
            ]),
        p.splits > 1 ? `k/${p.splits}` : p.tail > 1 ? `tail/${p.tail} of ${p.wave}` : '',
      ]
        .join(' ')
        .trim();
export const shapeName = (/** @type {Shape} */ s) => `${s.form} ${s.m}x${s.n}x${s.k}`;
