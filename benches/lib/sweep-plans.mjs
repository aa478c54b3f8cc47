// The shapes and groups that benches/kernels-matmul.mjs sweeps over.

import { shapeOf } from '../../kernels/tuning/table.mjs';

// The four target shapes, then the products of the 300M model at 512 tokens: forward NT, input gradient NN, weight
// gradient TN.
export const TARGETS = ['NT 512 1024 1024', 'NT 512 2752 1024', 'NT 2048 2752 1024', 'NT 4096 4096 4096'].map(shapeOf);
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
].map(shapeOf);

/** The products of the 300M model at 16 and at 4 sequences of 512 tokens, with its vocabulary last, and some at one sequence. */
export const HALVES = [
  ...[8192, 2048].flatMap((rows) => [
    ...[1024, 3072, 5504].flatMap((n) => [`NT ${rows} ${n} 1024`, `NN ${rows} 1024 ${n}`, `TN ${n} 1024 ${rows}`]),
    ...[`NT ${rows} 1024 2752`, `NN ${rows} 2752 1024`, `TN 1024 2752 ${rows}`],
  ]),
  ...['NT 512 5504 1024', 'NN 512 1024 5504', 'TN 5504 1024 512', 'NT 4096 4096 4096'],
  ...[8192, 2048].flatMap((rows) => [`NT ${rows} 17408 1024`, `NN ${rows} 1024 17408`, `TN 17408 1024 ${rows}`]),
].map(shapeOf);

/** Products of the 300M model whose B is a weight, at 16 sequences; then those with SwiGLU. */
export const WEIGHTS = HALVES.filter(({ form, m }) => form !== 'TN' && m === 8192);
export const SWIGLU = ['NT 8192 5504 1024', 'NN 8192 2752 1024'].map(shapeOf);

/** @type {Record<string, any>} */
export const GROUPS = {
  bf16: { precision: 'bf16', aType: 'bf16', bType: 'bf16', share: 5 },
  f16: { precision: 'f16', aType: 'f16', bType: 'f16', share: 5, extra: true },
  f32: { precision: 'f32', share: 2 },
  // Groups marked `extra` run only when named. Activations and gradients are in f32, weights in half precision.
  'bf16-mixed': { precision: 'bf16', aType: 'f32', bType: 'bf16', few: true },
  // Half results.
  'bf16-half': { precision: 'bf16', aType: 'bf16', bType: 'bf16', cType: 'bf16', few: true, extra: true },
  // Kernels in PTX beside the SPIR-V plan of a product. Results are in half precision, except weight gradients.
  ptx: { precision: 'bf16', aType: 'bf16', bType: 'bf16', ptx: true, extra: true },
  // The same kernels with B as it is and with B permuted, alone and with SwiGLU, timed in turn.
  permuted: { precision: 'bf16', aType: 'bf16', bType: 'bf16', ptx: true, turns: true, extra: true },
  glu: { precision: 'bf16', aType: 'bf16', bType: 'bf16', ptx: true, turns: true, glu: true, extra: true },
  bf16x3: { precision: 'bf16x3', few: true },
  // Weight gradients that accumulate: C is read, from memory rather than from cache.
  beta: { precision: 'bf16', aType: 'bf16', bType: 'bf16', beta: 1, extra: true },
  'f32-beta': { precision: 'f32', beta: 1, extra: true },
};

/** @param {import('../../kernels/tuning/table.mjs').Shape} s */
export const shapeName = (s) => `${s.form} ${s.m}x${s.n}x${s.k}`;
