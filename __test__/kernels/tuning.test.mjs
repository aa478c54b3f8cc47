// What kernels choose by device: the table of the H200 as it was measured, for others of its kind too, and properties for the rest.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { attentionKernels } from '../../kernels/attention.mjs';
import { matmulKernels } from '../../kernels/matmul.mjs';
import { GEMM_TILINGS } from '../../kernels/hopper/tilings.mjs';
import { planName } from '../../kernels/matmul/words.mjs';
import { tilings } from '../../kernels/tuning/candidates.mjs';
import { permutedPlan } from '../../kernels/hopper/tables.mjs';
import { genericTuning, tuningOf } from '../../kernels/tuning/index.mjs';
import { entriesOf } from '../../kernels/tuning/table.mjs';
import { matvecKernel } from '../../kernels/tuning/matvec.mjs';
import { contextOf, infoOf } from '../lib/plans.mjs';

/** Plans of products of all kinds and of many sizes. @param {any} info */
function plansOf(info) {
  const { matmulPlan } = matmulKernels(contextOf(info));
  const plans = [];
  const sizes = [64, 512, 1000, 1024, 2752, 4096, 8192, 17408];
  for (const precision of /** @type {const} */ (['f32', 'f16', 'bf16', 'bf16x3', 'mixed'])) {
    const type = precision === 'f16' || precision === 'bf16' ? precision : 'f32';
    const types =
      precision === 'mixed'
        ? /** @type {const} */ ({ aType: 'f32', bType: 'bf16', precision: 'bf16' })
        : { aType: type, bType: type, precision };
    for (const m of sizes) {
      for (const n of sizes) {
        for (const k of sizes) {
          for (const [transA, transB] of [
            [false, true],
            [false, false],
            [true, false],
          ]) {
            for (const [batch, beta] of [
              [1, 0],
              [1, 1],
              [12, 0],
            ]) {
              const { because, fallback, guess, ...plan } = matmulPlan(
                /** @type {any} */ ({ m, n, k, transA, transB, batch, beta, ...types }),
              );
              assert.ok(because, 'a plan says why');
              plans.push(plan);
            }
          }
        }
      }
    }
  }
  return plans;
}

/** SHA-256 of these plans on an H200, taken at the commit before its table moved into kernels/tuning/ (2026-11-24). */
const H200_PLANS = 'a99d3534aba4c78c5071ea5ae1060ffeb3536f4aa797fd8ed967109591dc0008';

test('an H200 has the plans and counts that were measured on it', () => {
  const plans = plansOf(infoOf('NVIDIA H200'));
  assert.equal(plans.length, 23040);
  assert.equal(createHash('sha256').update(JSON.stringify(plans)).digest('hex'), H200_PLANS);
  const context = contextOf(infoOf('NVIDIA H200'));
  const { normBlocks, crossEntropy, residentGroups, flatThreads } = context;
  assert.deepEqual(
    { normBlocks, crossEntropy, residentGroups, flatThreads },
    { normBlocks: 792, crossEntropy: { kept: 12288, groups: 528 }, residentGroups: 1056, flatThreads: 256 },
  );
});

test('other devices with its matrix units take its table, and no others', () => {
  for (const name of ['NVIDIA H200 NVL', 'NVIDIA H100 80GB HBM3', 'NVIDIA H100', 'NVIDIA GH200 480GB'])
    assert.equal(tuningOf(infoOf(name)).name, 'Hopper', name);
  for (const name of ['NVIDIA H20', 'NVIDIA A100', 'AMD Radeon RX 7900 XTX', 'Intel(R) Arc(tm) A770'])
    assert.deepEqual(tuningOf(infoOf(name)), genericTuning(infoOf(name)), name);
  assert.notDeepEqual(plansOf(infoOf('NVIDIA A100')), plansOf(infoOf('NVIDIA H200')));
});

test('the generic table follows the kind of device and its limits', () => {
  const [discrete, integrated, cpu] = [2, 1, 4].map((deviceType) => genericTuning(infoOf('a device', { deviceType })));
  for (const key of /** @type {const} */ (['units', 'residentGroups', 'normBlocks'])) {
    assert.equal(discrete[key], 4 * integrated[key], key);
    assert.ok(integrated[key] > 0, key);
  }
  assert.deepEqual([discrete.flatThreads, cpu.flatThreads], [256, 64]);
  for (const most of [32, 128]) {
    const limited = (/** @type {string} */ name, /** @type {number} */ deviceType) =>
      tuningOf(infoOf(name, { deviceType, maxComputeWorkGroupInvocations: most })).flatThreads;
    assert.deepEqual([limited('a device', 2), limited('NVIDIA H200', 2), limited('a device', 4)], [most, most, Math.min(most, 64)]);
  }
  // Whatever a device has, its plans fit it.
  for (const [maxComputeSharedMemorySize, subgroupSize, maxComputeWorkGroupInvocations] of [
    [16384, 64, 256],
    [32768, 64, 1024],
    [32768, 16, 512],
    [65536, 32, 1024],
  ]) {
    const info = infoOf('a device', { maxComputeSharedMemorySize, subgroupSize, maxComputeWorkGroupInvocations });
    for (const plan of /** @type {any[]} */ (plansOf(info))) {
      const threads =
        plan.kernel === 'f32' ? (plan.bm / plan.tm) * (plan.bn / plan.tn) : (plan.bm / plan.wm) * (plan.bn / plan.wn) * subgroupSize;
      assert.ok(threads <= maxComputeWorkGroupInvocations, JSON.stringify(plan));
    }
  }
});

test('the device is asked for the layout of its matrices when a kernel first needs it, once, and not in a graph', () => {
  let probes = 0;
  let recording = true;
  const calls = {
    createBuffer: () => 1,
    destroyBuffer: () => {},
    fillBuffer: () => {},
    createPipeline: () => 2,
    dispatch: () => probes++,
    readBuffer: () => {
      if (recording) throw Object.assign(new Error('a graph is being recorded'), { code: 'ERR_HELIOS_INVALID_BATCH' });
      return new Float32Array(512);
    },
    shaders: { attention_layout_bf16: { spirv: new Uint32Array(), bindings: 1, pushBytes: 4 } },
  };
  const { attentionKind, attentionSupports } = attentionKernels(contextOf(infoOf('a device'), calls));
  assert.ok(attentionSupports('bf16') && attentionSupports('f16'));
  assert.equal(attentionKind('f32'), 'f32');
  assert.equal(probes, 0);
  assert.throws(() => attentionKind('bf16'), /attention in bf16 asks the device once .* call attentionKind\('bf16'\) before graphBegin/);
  assert.equal(probes, 0, 'nothing has got into the graph');
  recording = false;
  // What it reads here fits no layout that the register kernels know.
  assert.equal(attentionKind('bf16'), 'scratch');
  assert.equal(attentionKind('bf16'), 'scratch');
  assert.equal(probes, 1);
});

test('every plan in PTX of the H200 names a tiling, also for shapes between the measured ones', () => {
  const { ptxPlan } = tuningOf(infoOf('NVIDIA H200', { hasPtx: true }));
  assert.ok(ptxPlan);
  let chosen = 0;
  for (const [transA, transB] of [
    [false, true],
    [false, false],
    [true, false],
  ])
    for (const m of [256, 512, 1024, 1280, 2048, 5504, 8192, 17408])
      for (const n of [1024, 2752, 3072, 5504, 17408])
        for (const k of [512, 1024, 2048, 2752, 5504, 8192, 17408]) {
          const plan = ptxPlan({ m, n, k, transA, transB });
          if (plan === undefined) continue;
          chosen++;
          assert.ok(Object.hasOwn(GEMM_TILINGS, plan.tiling), `${plan.tiling} for ${m} ${n} ${k}`);
          if (transA) continue;
          const { tiling, splits } = /** @type {any} */ (ptxPlan)({ m, n, k, transA, transB, glu: transB ? 'forward' : 'backward' });
          assert.ok(tiling !== 'm64n64-cp' && splits === 1, `with SwiGLU ${tiling} in ${splits} for ${m} ${n} ${k}`);
        }
  assert.ok(chosen > 100, `${chosen} of them in PTX`);
});

test('products with B permuted: as a line says, else where the model says that they are faster, with many rows', () => {
  const table = entriesOf('permuted', ['NT 8192 3072 1024 | m256n128-tma | 1 | 90.0', 'NN 8192 1024 1024 | natural | 1 | 35.0']);
  const NT = { m: 8192, n: 3072, k: 1024, transA: false, transB: true };
  const line = { kernel: 'ptx', tiling: 'm256n128-tma', permuted: true, splits: 1, because: 'line NT 8192 3072 1024' };
  assert.deepEqual(permutedPlan(NT, table), line);
  const other = permutedPlan({ ...NT, m: 4096, n: 5504 }, table);
  assert.deepEqual([other?.tiling, other?.permuted], ['m256n128-tma-l1', true]);
  assert.match(String(other?.because), /^model: \d+ µs by m256n128-tma-l1, \d+ by m256n128-ld-l1$/);
  for (const more of [
    { m: 1024, n: 8192 },
    { m: 2048, n: 64 },
    { transA: true, transB: false },
    { transB: false, n: 1024 },
    { precision: 'f32' },
  ])
    assert.equal(permutedPlan({ ...NT, ...more }, table), undefined, JSON.stringify(more));
});

test('an H200 can run every tiling that is tried on it', () => {
  const context = contextOf(infoOf('NVIDIA H200'));
  const { matmulPlan } = matmulKernels(context);
  const sizes = { m: 4096, n: 4096, k: 4096, transB: true };
  const tensors = /** @type {const} */ ({ a: 0, b: 1, c: 2, aType: 'bf16', bType: 'bf16' });
  for (const options of [{}, { quick: true }]) {
    const list = tilings('bf16', context, options);
    assert.ok(list.length >= 10);
    assert.equal(new Set(list.map(planName)).size, list.length, 'each once');
    for (const plan of list) assert.equal(matmulPlan({ ...sizes, ...tensors, plan }).bm, plan.bm, planName(plan));
  }
});

test('a product of few rows: the kernel, why, and sizes that fit the device', () => {
  const h100 = contextOf(infoOf('NVIDIA H100 80GB HBM3'));
  const sizes = { inputs: 2048, outputs: 8192, matrices: 2, wide: true };
  const kernel = (/** @type {any} */ problem, context = h100, /** @type {any} */ asked = undefined) =>
    matvecKernel(context, { ...sizes, type: 'f16', rows: 16, ...problem }, asked);
  assert.deepEqual(kernel({ rows: 3 }), { kernel: 'vector', because: 'fewer than 4 rows' });
  assert.deepEqual(kernel({ rows: 4, outputs: 1024 }), { kernel: 'vector', because: 'fewer than 5 rows' });
  assert.equal(kernel({ rows: 4 }).kernel, 'matrix');
  assert.equal(kernel({ type: 'f32' }).because, 'weights in f32');
  assert.equal(kernel({ wide: false }).because, 'rows cannot be read 16 bytes at a time');
  assert.equal(kernel({}, contextOf(infoOf('a GPU', { coopMatSupported: false }))).because, 'no matrix units for f16');
  assert.equal(kernel({}, contextOf(infoOf('a CPU', { deviceType: 4 }))).because, 'a CPU, which has no matrix units');
  assert.deepEqual(kernel({}, h100, { kernel: 'vector' }), { kernel: 'vector', because: 'the caller asked for it' });
  assert.throws(
    () => kernel({ type: 'f32' }, h100, { kernel: 'matrix' }),
    /matrix units cannot compute it on NVIDIA H100 80GB HBM3: weights in f32/,
  );
  assert.throws(() => kernel({}, h100, { kernel: 'matrix', out: 24 }), /no tile fits the device/);
  const small = contextOf(infoOf('a GPU', { maxComputeSharedMemorySize: 16384 }));
  for (const context of [h100, small]) {
    for (const type of ['f16', 'bf16', 'q8_0']) {
      for (const rows of [5, 8, 9, 16, 24, 25, 32]) {
        for (const [inputs, outputs, matrices] of [
          [32, 8, 1],
          [1024, 1024, 1],
          [2752, 1024, 1],
          [2048, 8192, 2],
          [8192, 2048, 1],
          [2048, 32768, 1],
        ]) {
          const plan = kernel({ type, rows, inputs, outputs, matrices }, context);
          assert.equal(plan.kernel, 'matrix', `${rows} rows of ${inputs} x ${outputs}, ${type}: ${plan.because}`);
          assert.match(plan.because, new RegExp(`^${rows} rows`));
        }
      }
    }
  }
});
