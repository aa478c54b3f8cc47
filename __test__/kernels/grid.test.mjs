// Products that no table names, over a grid of models: on a made-up H100 and H200 a plan in PTX wherever there can be one, and predicted times
// without cliffs between neighbours; on made-up devices without a table, what timing finds by simulated times.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KernelContext } from '../../kernels/base.mjs';
import { predictPlan } from '../../kernels/hopper/model.mjs';
import { nameOf } from '../../kernels/hopper/tilings.mjs';
import { matmulKernels } from '../../kernels/matmul.mjs';
import { AutoTuning } from '../../kernels/tuning/auto.mjs';
import { sensible, tilings, waveTime, withSplits } from '../../kernels/tuning/candidates.mjs';
import { infoOf, productsOn } from '../lib/plans.mjs';

const PTX = { hasPtx: true, multiprocessors: 132 };
const WIDTHS = [256, 320, 384, 512, 640, 768, 1024, 1280, 1600];
const VOCABULARIES = [256, 4096, 8192, 32000, 50304];
/** Numbers of tokens, doubling. @type {number[]} */
const TOKENS = Array.from({ length: 11 }, (_, i) => 256 << i);

/** Weights [N, K] of a model. @param {number} width */
const weightsOf = (width) => [
  ...[3 * width, width, 4 * width, 2 * Math.ceil((8 * width) / 3 / 64) * 64].map((n) => [n, width]),
  [width, 4 * width],
  ...VOCABULARIES.map((n) => [n, width]),
];
/** The three products of a weight. @param {string} form @param {number} tokens @param {number} n @param {number} k */
function productOf(form, tokens, n, k) {
  const [rows, columns, depth] = form === 'NT' ? [tokens, n, k] : form === 'NN' ? [tokens, k, n] : [n, k, tokens];
  const transA = form === 'TN';
  return { m: rows, n: columns, k: depth, transA, transB: form === 'NT' };
}
/** @param {{ transA: boolean }} product @returns {any} */
const halves = (product) => ({ ...product, aType: 'bf16', bType: 'bf16', cType: product.transA ? 'f32' : 'bf16' });
const nameIn = (/** @type {string} */ form, /** @type {{ m: number, n: number, k: number }} */ { m, n, k }) => `${form} ${m} ${n} ${k}`;

/** Bytes of the largest operand: from 4 GiB on none can be bound. @param {{ m: number, n: number, k: number, transA: boolean }} product */
const largest = ({ m, n, k, transA }) => Math.max(2 * m * k, 2 * n * k, (transA ? 4 : 2) * m * n);

for (const device of ['NVIDIA H100 80GB HBM3', 'NVIDIA H200'])
  test(`${device}: plans in PTX from 2^25 multiplications on, at 256 to 262,144 tokens`, () => {
    const { matmulPlan } = productsOn(infoOf(device, PTX));
    let seen = 0;
    const others = [];
    for (const width of WIDTHS)
      for (const [n, k] of weightsOf(width))
        for (const form of ['NT', 'NN', 'TN'])
          for (const tokens of TOKENS) {
            const product = productOf(form, tokens, n, k);
            if (product.m * product.n * product.k < 2 ** 25 || largest(product) >= 2 ** 32) continue;
            seen++;
            const { kernel, because, fallback } = matmulPlan(halves(product));
            if (kernel !== 'ptx') others.push(`${nameIn(form, product)}: ${because}`);
            assert.ok(!fallback, nameIn(form, product));
          }
    assert.ok(seen > 2500, `${seen} products`);
    // Where SPIR-V was measured to be as fast, a line says so: no model, no neighbour.
    for (const other of others) assert.match(other, /: line (NT|NN|TN) \d+ \d+ \d+ of the H[12]00 table$/);
    assert.ok(others.length <= 4, others.join('\n'));
  });

/** @param {ReturnType<typeof productsOn>} kernels @param {{ m: number, n: number, k: number, transA: boolean, transB: boolean }} product */
function predicted({ matmulPlan }, product) {
  const plan = matmulPlan(halves(product));
  if (plan.kernel !== 'ptx') return undefined;
  return predictPlan(product, /** @type {any} */ ({ ...plan, tiling: nameOf(plan.tiling) }));
}

/**
 * Lines whose plans the model predicts to be slower than its own: one that nobody has timed (`untimed` in kernels/tuning/measured/hopper.mjs), and
 * two from before there was `m256n192-tma`.
 */
const SLOW_LINES = ['TN 512 512 2048', 'TN 5504 1024 2048', 'TN 5504 1024 8192'];

test('twice the tokens take up to 2.3 times as long, and never less', () => {
  const kernels = productsOn(infoOf('NVIDIA H100 80GB HBM3', PTX));
  const cliffs = [];
  for (const width of WIDTHS)
    for (const [n, k] of weightsOf(width))
      for (const form of ['NT', 'NN', 'TN']) {
        let before;
        for (const tokens of TOKENS) {
          const product = productOf(form, tokens, n, k);
          if (largest(product) >= 2 ** 32) break;
          if (SLOW_LINES.includes(nameIn(form, product))) {
            before = undefined;
            continue;
          }
          const us = predicted(kernels, product);
          const ratio = us !== undefined && before !== undefined ? us / before : 1.5;
          if (!(ratio < 2.3 && ratio > 0.99)) cliffs.push(`${nameIn(form, product)}: ${us} µs, half of it ${before}`);
          before = us;
        }
      }
  assert.deepEqual(cliffs, []);
});

test('64 more columns take up to one more wave; with many rows less than 1.6 times as long', () => {
  const kernels = productsOn(infoOf('NVIDIA H100 80GB HBM3', PTX));
  const cliffs = [];
  for (const tokens of [1024, 4096, 16384, 65536, 262144])
    for (const width of [256, 384, 640, 1024, 1600])
      for (const form of ['NT', 'NN', 'TN']) {
        let before;
        for (let x = 256; x <= 6400; x += 64) {
          const product = productOf(form, tokens, x, width);
          if (largest(product) >= 2 ** 32) break;
          const us = predicted(kernels, product);
          // Twice as many waves, of which one was full, is the most.
          const most = tokens >= 16384 ? 1.6 : 1.9;
          const ratio = us !== undefined && before !== undefined ? us / before / (x / (x - 64)) : 1;
          if (!(ratio < most && ratio > 0.75)) cliffs.push(`${nameIn(form, product)}: ${us} µs, with 64 columns less ${before}`);
          before = us;
        }
      }
  assert.deepEqual(cliffs, []);
});

test('devices without a table: of simulated times, timing finds a plan within 5 % of the fastest in nine of ten products', () => {
  for (const [name, units, more] of /** @type {const} */ ([
    ['NVIDIA A100', 108, {}],
    ['NVIDIA A100', 2 * 46, {}],
    ['a device', 20, { deviceType: 1 }],
  ])) {
    const info = { ...infoOf(name, more), cacheFolder: '' };
    let good = 0;
    let seen = 0;
    let worst = 1;
    for (const width of [256, 384, 768, 1600])
      for (const [n, k] of weightsOf(width).slice(0, 6))
        for (const form of ['NT', 'NN', 'TN'])
          for (const tokens of [256, 2048, 16384, 65536]) {
            const product = productOf(form, tokens, n, k);
            // A device of its own for each, so that no plan is known yet.
            const context = new KernelContext(/** @type {any} */ ({ initDevice: () => info, shaders: {} }), {
              check: false,
              tuning: false,
            });
            const kernels = { context, ...matmulKernels(context) };
            const of = { precision: 'bf16', aType: 'bf16', bType: 'bf16', cType: 'bf16' };
            /** @type {any} */
            const problem = {
              ...product,
              ...of,
              half: 'bf16',
              batch: 1,
              beta: 0,
              bPermuted: false,
              dual: false,
              args: { ...product, ...of },
            };
            const time = (/** @type {any} */ plan) => waveTime(product, plan, units);
            const timer = { open: () => ({ sampler: (/** @type {any} */ plan) => () => time(plan), close: () => {} }), close: () => {} };
            new AutoTuning(kernels, timer).tune([{ problem, count: 1, permutable: false }]);
            const shape = { form, m: product.m, n: product.n, k: product.k };
            const all = withSplits(shape, sensible(shape, tilings('bf16', context, { quick: true })));
            const fastest = Math.min(time(kernels.matmulPlan(problem.args)), ...all.map(time));
            const ratio = time(kernels.matmulPlan(problem.args)) / fastest;
            seen++;
            if (ratio <= 1.05) good++;
            worst = Math.max(worst, ratio);
          }
    assert.ok(good >= 0.9 * seen, `${name} with ${units} units: ${good} of ${seen}, the worst ${worst}`);
    assert.ok(worst < 1.3, `${name} with ${units} units: the worst takes ${worst} times as long as the fastest`);
  }
});
