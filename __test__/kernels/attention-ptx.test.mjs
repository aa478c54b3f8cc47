// Attention in PTX on a device that takes it: training shapes, tokens that fill no tile, random strides and scales, in poison,
// twice, in graphs, against float64. Elsewhere __test__/ptx/ runs the same kernels on a simulator.

import { after, test } from 'node:test';
import { createKernels } from '../../kernels/index.mjs';
import { vk } from '../lib/addon.mjs';
import { checkAttention } from '../ptx/attention.mjs';

/** @typedef {import('../ptx/attention.mjs').Problem} Problem */

const info = /** @type {any} */ (vk.initDevice());
const skip = info.hasPtx ? false : 'the device takes no PTX';
const kernels = createKernels(vk);
after(() => vk.destroy());

const plan = { kernel: 'ptx' };
/** @type {Problem[]} */
const PROBLEMS = [
  { tokens: 512, heads: 3, batch: 2 },
  { tokens: 1024, heads: 1 },
  { tokens: 2060, heads: 2 },
  { tokens: 1000, heads: 1, causal: false, type: 'f16' },
  { tokens: 100, heads: 2, batch: 3, pad: 24 },
  { tokens: 1, heads: 2 },
  { tokens: 129, heads: 5, pad: 0, split: true },
  { tokens: 300, scale: -0.4, type: 'f16' },
  { tokens: 250, size: 4 },
  { tokens: 700, headSize: 128 },
  { tokens: 300, heads: 2, dead: [0, 5, 128, 299] },
  { tokens: 200, causal: false, headSize: 128, dead: [0, 199] },
  { tokens: 77, headSize: 128, causal: false, type: 'f16', split: true },
  { tokens: 301, heads: 4, kvHeads: 2, batch: 2 },
  { tokens: 513, heads: 8, kvHeads: 2, split: true },
  { tokens: 640, heads: 8, kvHeads: 1, causal: false },
  { tokens: 2059, heads: 2, kvHeads: 1 },
  { tokens: 331, heads: 8, kvHeads: 1, batch: 2, type: 'f16', planBackward: { kernel: 'ptx', tiling: 'bwd-64x32-b3-ds' } },
  { tokens: 161, heads: 4, kvHeads: 1, headSize: 128, type: 'f16' },
  { tokens: 702, heads: 8, kvHeads: 4, headSize: 128, causal: false, split: true, pad: 0 },
  { tokens: 99, heads: 8, kvHeads: 1, headSize: 128, batch: 2 },
  { tokens: 700, heads: 2, window: 130 },
  { tokens: 501, heads: 4, kvHeads: 1, batch: 2, documents: [3, 64, 65, 300] },
  { tokens: 402, heads: 2, documents: [50, 200], window: 64, planBackward: { kernel: 'ptx', tiling: 'bwd-64x32-b3-ds' } },
  { tokens: 333, headSize: 128, heads: 4, kvHeads: 2, window: 100, type: 'f16' },
  { tokens: 260, headSize: 128, batch: 2, documents: [130, 255], padding: 70 },
];
for (const problem of PROBLEMS) test(JSON.stringify(problem), { skip }, () => void checkAttention(vk, kernels, { ...problem, plan }));

let state = 11;
/** A random integer below `n`. @param {number} n */
const below = (n) => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * n);
};

test('random problems', { skip }, () => {
  for (let i = 0; i < 12; i++) {
    const kvHeads = 1 + below(3);
    const problem = { tokens: 1 + below(400), heads: kvHeads * [1, 1, 2, 4][below(4)], kvHeads, batch: 1 + below(2), pad: 8 * below(4) };
    const kind = {
      type: below(2) ? 'bf16' : 'f16',
      causal: below(3) > 0,
      split: below(2) === 1,
      scale: [0.125, -0.2, 0.05][below(3)],
      headSize: [64, 128][below(2)],
    };
    checkAttention(vk, kernels, /** @type {Problem} */ ({ ...problem, ...kind, plan }));
  }
});

test('attention in a graph has the bits that it has outside of it', { skip }, () => {
  checkAttention(vk, kernels, { tokens: 320, heads: 2, plan }, (run, dispatches) => run.runInGraph(dispatches));
});
