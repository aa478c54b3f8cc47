// The measured plans of products and of attention assemble for Hopper, in every form and with every addition to the results: no
// spill, no warning that `wgmma` is serialized (C7510 and its neighbours; C7519 says only that a fence was added), the shared memory
// and no more registers than the plan says.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { moduleText } from '../../kernels/hopper/assembler.mjs';
import { attention, attentionFault, attentionSizes, kernelsOf } from '../../kernels/hopper/attention.mjs';
import { gemmFault, sizesOf } from '../../kernels/hopper/form.mjs';
import { gemm } from '../../kernels/hopper/gemm.mjs';
import { ATTENTION_TILINGS, CONVOLUTION_TILINGS, GEMM_TILINGS, SIMT_TILINGS, WINDOW_TILINGS } from '../../kernels/hopper/tilings.mjs';
import { simt, simtSizes } from '../../kernels/hopper/simt.mjs';
import { ptxAttention } from '../../kernels/hopper/tables.mjs';
import { SUM_THREADS, tileSums } from '../../kernels/hopper/window-sums.mjs';
import { ptxas } from '../../scripts/ptxas.mjs';
import { temporaryFolder } from '../lib/folder.mjs';

const assembler = ptxas();
const folder = temporaryFolder();

/** @typedef {import('../../kernels/hopper/attention.mjs').AttentionForm} AttentionForm */
/** @typedef {import('../../kernels/hopper/form.mjs').GemmForm} GemmForm */
const NT = /** @type {GemmForm} */ ({ type: 'bf16', transA: false, transB: true, half: true });
const NN = { ...NT, transB: false };
const TN = { ...NT, transA: true, transB: false, half: false };

/** What a training step asks for, and everything at once. @type {[string, GemmForm][]} */
const FORMS = [
  ['NT', NT],
  ['NT ragged', { ...NT, ragged: true }],
  ['NT + residual, two outputs', { ...NT, half: false, residual: true, dual: true }],
  ['NT f16, GELU, all', { ...NT, type: 'f16', beta: true, bias: true, activation: 'gelu', residual: true, parts: true, ragged: true }],
  ['NN', NN],
  ['NT SwiGLU', { ...NT, glu: 'forward', ragged: true }],
  ['NN gradient of SwiGLU', { ...NN, glu: 'backward', ragged: true }],
  ['NN gradient of SwiGLU, and it again', { ...NN, glu: 'backward', again: true, ragged: true }],
  ['NT SwiGLU, a second pair', { ...NT, glu: 'forward', second: true, ragged: true }],
  ['NN gradient of SwiGLU, and it again, a second pair', { ...NN, glu: 'backward', again: true, second: true, ragged: true }],
  ['NT GELU, kept', { ...NT, bias: true, activation: 'gelu', unit: 'forward', ragged: true }],
  ['NN gradient of GELU', { ...NN, activation: 'gelu', unit: 'backward', ragged: true }],
  ['NN f32, parts', { ...NN, half: false, parts: true }],
  ['NT permuted', { ...NT, permuted: true }],
  ['NT permuted ragged', { ...NT, permuted: true, ragged: true }],
  ['NT permuted + residual, two outputs', { ...NT, permuted: true, half: false, residual: true, dual: true }],
  [
    'NT permuted f16, GELU, all',
    { ...NT, permuted: true, type: 'f16', beta: true, bias: true, activation: 'gelu', residual: true, parts: true, ragged: true },
  ],
  ['NT permuted SwiGLU', { ...NT, permuted: true, glu: 'forward', ragged: true }],
  ['NN permuted', { ...NN, permuted: true }],
  ['NN permuted gradient of SwiGLU', { ...NN, permuted: true, glu: 'backward', ragged: true }],
  ['NN permuted gradient of SwiGLU, and it again', { ...NN, permuted: true, glu: 'backward', again: true, ragged: true }],
  ['NT permuted GELU, kept', { ...NT, permuted: true, bias: true, activation: 'gelu', unit: 'forward' }],
  ['NN permuted gradient of GELU', { ...NN, permuted: true, activation: 'gelu', unit: 'backward' }],
  ['NN permuted f32, parts', { ...NN, permuted: true, half: false, parts: true }],
  ['TN', TN],
  ['TN adds, parts', { ...TN, beta: true, parts: true, ragged: true }],
  ['TN adds early', { ...TN, beta: true, early: true }],
  ['two of TN', { ...TN, products: 2 }],
  ['four of TN, parts', { ...TN, products: 4, parts: true }],
  ['four of TN, adds', { ...TN, products: 4, beta: true, ragged: true }],
  ['four of TN, adds early', { ...TN, products: 4, beta: true, early: true, ragged: true }],
  ['four of TN, adds early, parts', { ...TN, products: 4, beta: true, early: true, parts: true }],
];

const skip = assembler ? false : 'no ptxas: node scripts/ptxas.mjs install';

/**
 * Assembles a kernel and checks what the assembler says of it.
 * @param {string} plan @param {string} name of the form @param {string} text
 * @param {{ threads: number, shared: number, blocks?: number }} sizes blocks of a multiprocessor at a time
 */
function assemble(plan, name, text, { threads, shared, blocks = 1 }) {
  const source = join(folder, 'kernel.ptx');
  writeFileSync(source, moduleText(text));
  const { status, stdout, stderr } = spawnSync(
    /** @type {string} */ (assembler),
    ['-arch=sm_90a', '-v', '-o', join(folder, 'kernel.cubin'), source],
    { encoding: 'utf8' },
  );
  const report = stdout + stderr;
  assert.equal(status, 0, `${name}: ${report}`);
  assert.match(report, /0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads/, `${name}: ${report}`);
  assert.doesNotMatch(report, /C75(?!19)\d\d/, `${name}: ${report}`);
  const [, registers, bytes] = /** @type {RegExpExecArray} */ (/Used (\d+) registers.*?(\d+) bytes smem/.exec(report));
  assert.equal(Number(bytes), shared, name);
  // A multiprocessor has 65,536 registers, and gives them to warps in units of eight a thread.
  assert.ok(Math.ceil(Number(registers) / 8) * 8 * threads * blocks <= 65536, `${name}: ${registers} registers`);
  console.log(`${plan.padEnd(10)} ${name.padEnd(28)} ${registers} registers, ${shared} bytes of shared memory`);
}

for (const [plan, sizes] of Object.entries(GEMM_TILINGS)) {
  test(`${plan} assembles`, { skip }, () => {
    const taken = FORMS.filter(([, form]) => !gemmFault(sizes, form));
    assert.ok(taken.length > 0, `${plan} takes none of the forms`);
    for (const [name, form] of taken) {
      assemble(plan, name, gemm('kernel', sizes, form), sizesOf(sizes));
    }
    if (sizes.registers) {
      const [multiplying, fetching] = sizes.registers;
      assert.ok(128 * (sizes.warpgroups * multiplying + fetching) <= 65536);
    }
  });
}

test('convolutions assemble', { skip }, () => {
  for (const [plan, { tiling }] of Object.entries(CONVOLUTION_TILINGS))
    for (const more of [
      { half: false, parts: true },
      { bias: true, relu: true },
    ])
      assemble(plan, 'rows', gemm('kernel', tiling, { ...NT, gather: 'rows', ...more }), sizesOf(tiling));
  for (const [plan, { tiling }] of Object.entries(WINDOW_TILINGS)) {
    assemble(plan, 'columns', gemm('kernel', tiling, { ...TN, gather: 'columns', parts: true, ragged: true }), sizesOf(tiling));
    for (const type of /** @type {const} */ (['f32', 'bf16', 'f16']))
      assemble(plan, `sums, ${type}`, tileSums('kernel', tiling, { to: 'weight', type }), { threads: SUM_THREADS, shared: 16, blocks: 4 });
  }
});

for (const [plan, sizes] of Object.entries(SIMT_TILINGS)) {
  test(`${plan} assembles`, { skip }, () => {
    for (const [name, transA, transB] of /** @type {const} */ ([
      ['NT', false, true],
      ['NN', false, false],
      ['TN', true, false],
      ['TT', true, true],
    ])) {
      const form = /** @type {GemmForm} */ ({ type: 'f32', transA, transB });
      const everything = {
        ...form,
        beta: true,
        bias: true,
        residual: true,
        activation: /** @type {const} */ ('gelu'),
        parts: true,
        ragged: true,
      };
      assemble(plan, name, simt('kernel', sizes, form), simtSizes(sizes));
      assemble(plan, `${name}, all`, simt('kernel', sizes, everything), simtSizes(sizes));
    }
  });
}

for (const [pass, headSize, batch, tokens, kvHeads = 16] of /** @type {[AttentionForm['pass'], 64 | 128, number, number, number?][]} */ ([
  ['forward', 64, 16, 512],
  ['forward', 128, 16, 512],
  ['backward', 64, 1, 512],
  ['backward', 64, 1, 512, 4],
  ['backward', 64, 16, 512],
  ['backward', 64, 16, 2048],
  ['backward', 128, 16, 512],
])) {
  const plan = ptxAttention({ pass, headSize, type: 'bf16', causal: true }, { tokens, heads: 16, kvHeads, batch }) ?? assert.fail();
  test(`attention, ${pass}, heads of ${headSize}: ${plan} assembles`, { skip }, () => {
    const tiling = ATTENTION_TILINGS[plan];
    for (const type of /** @type {const} */ (['bf16', 'f16']))
      for (const causal of [true, false])
        for (const more of causal
          ? [{}, { grouped: true }, { window: true, limits: true }, { grouped: true, window: true, limits: true }]
          : [{}, { grouped: true }])
          for (const kernel of kernelsOf(tiling, { pass, headSize, type, causal, ...more, even: pass === 'backward' && causal })) {
            assert.equal(attentionFault(kernel.tiling, kernel.form), undefined);
            const sizes = { ...attentionSizes(kernel.tiling, kernel.form), blocks: kernel.tiling.blocks };
            const name = `${kernel.form.pass} ${type} ${causal ? 'causal' : 'full'}${Object.keys(more)
              .map((flag) => ` ${flag}`)
              .join('')}`;
            assemble(plan, name, attention('kernel', kernel.tiling, kernel.form), sizes);
          }
  });
}
