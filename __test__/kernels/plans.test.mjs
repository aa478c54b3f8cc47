// The plans that products have, kept as text, so that whoever changes a table or the model of time sees which plans that changes.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { productLines } from '../../packages/lm/src/train/profile.mjs';
import { GEMM_TILINGS, SIMT_TILINGS } from '../../kernels/hopper/tilings.mjs';
import { choiceOf } from '../../kernels/matmul/words.mjs';
import { matmulKernels } from '../../kernels/matmul.mjs';
import { contextOf, infoOf, plansNow, productsOn } from '../lib/plans.mjs';

test('products of the presets and of four models that no table names have the plans that are written down', () => {
  const kept = JSON.parse(readFileSync(new URL('./plans.json', import.meta.url), 'utf8'));
  // Where a change is meant: node __test__/lib/plans.mjs > __test__/kernels/plans.json, and say in the commit what is faster.
  assert.deepEqual(plansNow(), kept);
});

test('a plan says why it was chosen', () => {
  const halves = /** @type {const} */ ({ transB: true, aType: 'bf16', bType: 'bf16' });
  /** @type {any} */
  const large = { ...halves, m: 65536, n: 1536, k: 768 };
  const hopper = productsOn(infoOf('NVIDIA H100 80GB HBM3', { hasPtx: true, multiprocessors: 132 }));
  const because = (/** @type {any} */ args, { matmulPlan } = hopper) => matmulPlan(args).because;
  assert.match(String(because(large)), /^model: \d+ µs by m256n128-ld-l1, \d+ by [\w-]+$/);
  assert.equal(because({ ...large, n: 768 }), 'line NT 65536 768 768 of the H100 table');
  assert.equal(because({ ...large, plan: { kernel: 'ptx', tiling: 'm256n128-ld' } }), 'the caller asked for it');
  assert.equal(because({ ...halves, m: 64, n: 64, k: 48 }), 'no line is near: the smallest tile that fits');
  assert.match(String(because({ ...halves, m: 4096, n: 768, k: 768, bPermuted: true })), /^model: .* by m256n128-tma-l1/);
  assert.equal(because({ ...halves, m: 512, n: 64, k: 64, bPermuted: true }), 'B is permuted, which only PTX takes');
  const plain = productsOn(infoOf('NVIDIA H200'));
  assert.equal(because({ ...halves, m: 512, n: 1024, k: 1024 }, plain), 'line NT 512 1024 1024 of the H200 table');
  assert.equal(because({ ...halves, m: 600, n: 1024, k: 1024 }, plain), 'nearest line NT 512 1024 1024 of the H200 table');
  // Given back, a plan is the same plan.
  const plan = hopper.matmulPlan(large);
  assert.deepEqual(hopper.matmulPlan({ ...large, plan }), plan);
});

test('a plan says where it is a fallback: PTX cannot compute the product, or no measured one is near', () => {
  const halves = /** @type {const} */ ({ transB: true, aType: 'bf16', bType: 'bf16' });
  const large = { ...halves, m: 4096, n: 3072, k: 1024 };
  const on = (/** @type {string} */ name, more = {}) => {
    const { matmulPlan } = productsOn(infoOf(name, more));
    return (/** @type {any} */ args) => {
      const { kernel, because, fallback } = matmulPlan(args);
      return [kernel, fallback ?? false, because];
    };
  };
  const hopper = on('NVIDIA H100 80GB HBM3', { hasPtx: true, multiprocessors: 132 });
  assert.deepEqual(hopper(large).slice(0, 2), ['ptx', false]);
  const line = 'nearest line NT 8192 3072 1024 of the H200 table';
  const types = 'A and B must both be stored in the half type of the precision';
  assert.deepEqual(hopper({ ...large, aType: 'f32', bType: 'bf16' }).slice(0, 2), ['coop', true]);
  assert.match(
    String(hopper({ ...large, aType: 'f32', bType: 'bf16' })[2]),
    new RegExp(`^the PTX kernels cannot take it: ${types}; nearest line `),
  );
  assert.match(
    String(hopper({ ...large, batch: 3 })[2]),
    /^the PTX kernels cannot take it: they compute one product at a time, not a batch of 3; /,
  );
  assert.match(
    String(hopper({ ...large, n: 3076, beta: 1 })[2]),
    /^the PTX kernels cannot take it: rows of D have 3076 elements, not a multiple of 8; /,
  );
  // What no kernel in PTX is for is no fallback.
  assert.equal(hopper({ ...large, aType: 'f32', bType: 'f32', precision: 'bf16x3' })[1], false);
  // Nor what a device without PTX is measured to do best, or what the caller asks for.
  assert.deepEqual(on('NVIDIA H200')({ ...large, m: 8192 }), ['coop', false, line.replace('nearest ', '')]);
  assert.deepEqual(hopper({ ...large, batch: 3, plan: { splits: 2 } }).slice(1), [false, 'the caller asked for it']);
  assert.deepEqual(on('NVIDIA A100')(large), ['coop', true, 'no line is near: the largest tile that fills the device']);
  assert.deepEqual(on('a device', { deviceType: 4 })({ m: 64, n: 64, k: 64 }).slice(1), [false, 'a CPU: the tile with the least padding']);
  // Given back, a plan is the same plan.
  const { matmulPlan } = productsOn(infoOf('NVIDIA A100'));
  const plan = matmulPlan(/** @type {any} */ (large));
  assert.deepEqual(matmulPlan(/** @type {any} */ ({ ...large, plan })), plan);
});

test('products that leave the fast path say so: rows that take copies, copies of some rows at a time, kernels that fail, no PTX, no matrix units', () => {
  const H100 = infoOf('NVIDIA H100 80GB HBM3', { hasPtx: true, multiprocessors: 132 });
  const said = (/** @type {any} */ { matmulPlan }, /** @type {any} */ args) => {
    const problem = { transA: false, transB: false, ...args };
    const { kernel, because, fallback } = choiceOf({ products: [problem], plan: matmulPlan(args) });
    return { kernel: kernel.split(' ')[0], because, fallback };
  };
  const halves = { transB: true, aType: 'bf16', bType: 'bf16', cType: 'bf16', m: 4480, n: 2600, k: 650 };
  const kernels = productsOn(H100);
  const copies = said(kernels, halves);
  assert.deepEqual([copies.kernel, copies.fallback], ['ptx', false]);
  assert.match(copies.because, /^model: .*; A, B by copies with rows of a multiple of 8$/);
  // 16,384 rows of 50,257: their copy would take more than a GiB.
  const large = said(kernels, { ...halves, transB: false, m: 16384, n: 768, k: 50257 });
  assert.deepEqual([large.kernel, large.fallback], ['ptx', false]);
  assert.match(large.because, /^model: .*; A by a copy with rows of a multiple of 8, in 2 pieces$/);
  const single = { transA: true, m: 50257, n: 1024, k: 8192 };
  assert.match(said(kernels, single).because, /^model: .*; A by a copy with rows of a multiple of 4, in 2 pieces$/);
  // A kernel whose test fails.
  const failing = matmulKernels(contextOf(H100), { verify: () => 'wrong result' });
  const failed = said(failing, { ...halves, k: 1024 });
  assert.deepEqual([failed.kernel, failed.fallback], ['coop', true]);
  assert.match(failed.because, /^the PTX kernels cannot take it: .*wrong result/);
  // Another GPU has no kernels in PTX, and no table.
  const another = said(productsOn(infoOf('NVIDIA A100')), { ...halves, k: 1024 });
  assert.deepEqual([another.kernel, another.fallback], ['coop', true]);
  // Without matrix units products of halves are computed in f32.
  const plain = productsOn(infoOf('a GPU', { coopMatSupported: false, cooperativeMatrixProperties: [] }));
  assert.equal(plain.matmulSupports('bf16'), false);
  assert.throws(() => plain.matmulPlan(/** @type {any} */ (halves)), /a GPU has no matrix instruction for precision bf16/);
  const f32 = said(plain, { ...halves, aType: 'f32', bType: 'f32', cType: 'f32' });
  assert.deepEqual([f32.kernel, f32.fallback], ['f32', true]);
});

test('products in words, and the table of them under the kernel times of a training run', () => {
  const product = { m: 512, n: 1024, k: 256, transA: false, transB: true };
  const choice = (/** @type {any} */ more, /** @type {any} */ plan) => choiceOf({ products: [{ ...product, ...more }], plan });
  const f32 = { kernel: 'f32', bm: 64, bn: 64, bk: 16, tm: 4, tn: 4, lx: 8, stages: 2, splits: 2 };
  const slow = choice({ batch: 2 }, { ...f32, because: 'no line is near', fallback: true });
  assert.deepEqual(slow, {
    ...{ product: 'NT 512 1024 256, a batch of 2', kernel: 'f32 64x64x16 4x4 l8 s2 k/2', because: 'no line is near', fallback: true },
    guess: false,
  });
  const fast = choice({ glu: 'forward' }, { kernel: 'ptx', tiling: 'm256n128-ld', because: 'a line' });
  assert.deepEqual(fast, {
    product: 'NT 512 1024 256, with SwiGLU',
    kernel: 'ptx m256n128-ld',
    because: 'a line',
    fallback: false,
    guess: false,
  });
  const weights = { ...product, transA: true, transB: false };
  const group = choiceOf({ products: [weights, { ...weights, n: 64 }], plan: { tiling: 'm128n256-cp', tail: 3, because: 'model' } });
  assert.deepEqual([group.product, group.kernel], ['TN 512 1024 256 + TN 512 64 256', 'ptx m128n256-cp tail/3, one launch']);
  const time = { role: 'linear', count: 1, microseconds: 1, flops: 0 };
  const lines = productLines([
    { ...time, products: [fast] },
    { ...time, products: [fast, slow] },
    { ...time, products: [] },
  ]);
  assert.equal(lines.length, 4, 'each once, fallbacks first');
  assert.match(lines[1], /^NT 512 1024 256, a batch of 2 {2}f32 64x64x16 4x4 l8 s2 k\/2 {2}FALLBACK: no line is near$/);
  assert.match(lines[2], /^NT 512 1024 256, with SwiGLU {3}ptx m256n128-ld {13}a line$/);
  assert.match(lines[3], /^1 of 2 products run on a fallback: `helios-vk tune` may find faster kernels$/);
  assert.deepEqual(productLines([{ ...time, products: [] }]), []);
});

test("a tiling's name is its tile and how operands reach it; names from before mean the same tilings", () => {
  for (const [name, { bm, bn, load, cached }] of Object.entries(GEMM_TILINGS))
    assert.equal(name, `m${bm}n${bn}-${load}${cached ? '-l1' : ''}`);
  for (const [name, { bm, bn }] of Object.entries(SIMT_TILINGS)) assert.equal(name, `m${bm}n${bn}-f32`);
  const { matmulPlan } = productsOn(infoOf('NVIDIA H100 80GB HBM3', { hasPtx: true, multiprocessors: 132 }));
  const args = /** @type {any} */ ({ m: 8192, n: 8192, k: 1024, transB: true, aType: 'bf16', bType: 'bf16' });
  const tilingOf = (/** @type {string} */ tiling, more = {}) => matmulPlan({ ...args, ...more, plan: { kernel: 'ptx', tiling } }).tiling;
  const single = { aType: 'f32', bType: 'f32' };
  for (const [former, name, more] of /** @type {const} */ ([
    ['tall', 'm256n128-ld', {}],
    ['tallCached', 'm256n128-ld-l1', {}],
    ['tallCopied', 'm256n128-tma', { transB: false }],
    ['tallCopiedCached', 'm256n128-tma-l1', { transB: false }],
    ['broadCopied', 'm256n192-tma', { transA: true, transB: false }],
    ['square', 'm128n128-ld', {}],
    ['small', 'm64n64-cp', {}],
    ['wide', 'm128n256-cp', {}],
    ['simtTall', 'm256n128-f32', single],
    ['simtWide', 'm128n256-f32', single],
    ['simtSquare', 'm128n128-f32', single],
  ])) {
    const tiling = tilingOf(name, more);
    assert.ok(tiling === /** @type {any} */ ({ ...GEMM_TILINGS, ...SIMT_TILINGS })[name], name);
    assert.equal(tilingOf(former, more), tiling, former);
  }
  assert.throws(() => tilingOf('constructor'), /plan\.tiling must be one of m256n128-ld, .*, got constructor/);
});
