// Products in f32 by the kernels in PTX without matrix units: from arguments of `kernels.matmul` to results on the machine of
// machine.mjs, against float64, in poison. A small tiling stands for the measured one, which each form runs once.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KernelContext } from '../../kernels/base.mjs';
import { createKernels } from '../../kernels/index.mjs';
import { matmulKernels } from '../../kernels/matmul.mjs';
import { productFault } from '../../kernels/hopper/form.mjs';
import { SIMT_TILINGS } from '../../kernels/hopper/tilings.mjs';
import { simt, simtFault } from '../../kernels/hopper/simt.mjs';
import { ptxPlan } from '../../kernels/hopper/tables.mjs';
import { ptxDevice } from './device.mjs';
import { checkProduct } from './product.mjs';

/** @typedef {import('../../kernels/hopper/simt.mjs').SimtTiling} SimtTiling */
/** @typedef {import('./product.mjs').Product} Product */

const small = /** @type {SimtTiling} */ ({ bm: 32, bn: 64, bk: 8, stages: 3, warps: [2, 1], tm: 4, tn: 8, blocks: 1 });
const deep = /** @type {SimtTiling} */ ({ ...small, bk: 16, stages: 2 });
const FORM = /** @type {const} */ ({ type: 'f32', transA: false, transB: true });

/** Kernels on a stand-in that are not tested before their use. @param {Parameters<typeof ptxDevice>[0]} [options] */
function untested(options) {
  const device = ptxDevice(options);
  return { ...device, kernels: matmulKernels(new KernelContext(device.vk), { verify: () => undefined }) };
}

/** @param {object} tiling @param {object} [more] @returns {any} */
const planOf = (tiling, more) => ({ kernel: 'ptx', tiling, wave: 3, ...more });

const PRODUCTS = /** @type {Omit<Product, 'form'>[]} */ ([
  { m: 32, n: 64, k: 16, plan: planOf(small) },
  { m: 40, n: 68, k: 29, plan: planOf(small) },
  { m: 72, n: 132, k: 1, plan: planOf(small) },
  { m: 40, n: 68, k: 40, plan: planOf(deep) },
  { m: 36, n: 68, k: 13, alpha: 0.5, beta: -0.75, bias: true, activation: 'gelu', residual: true, plan: planOf(small) },
  { m: 36, n: 68, k: 24, residual: true, inPlace: true, activation: 'silu', plan: planOf(small) },
  { m: 72, n: 132, k: 56, beta: 1, plan: planOf(small, { splits: 3 }) },
  { m: 72, n: 132, k: 45, bias: true, activation: 'silu', plan: planOf(small, { wave: 4, tail: 3 }) },
]);

for (const form of /** @type {const} */ (['NT', 'NN', 'TN', 'TT'])) {
  test(`${form}: tiles, edges, every depth, additions, parts`, () => {
    for (const late of [true, false]) {
      for (const product of late ? PRODUCTS : PRODUCTS.slice(1, 2)) {
        const { vk, kernels, ran } = untested({ late });
        const dispatches = checkProduct(vk, kernels, { ...product, form, type: 'f32', pad: 4 });
        const { splits, tail } = product.plan;
        assert.equal(dispatches.length, splits || tail ? 2 : 1);
        assert.deepEqual([ran[0].kernel.workgroupSize[0], ran[0].kernel.name], [64, `matmul_ptx_${form.toLowerCase()}_f32`]);
      }
    }
  });
  test(`${form} by the measured tilings`, () => {
    for (const tiling of Object.keys(SIMT_TILINGS)) {
      const { vk, kernels } = untested();
      checkProduct(vk, kernels, { form, type: 'f32', m: 132, n: 136, k: 12, pad: 4, bias: true, plan: { kernel: 'ptx', tiling } });
    }
  });
}

test('rows whose depth is contiguous may have any length and any distance', () => {
  for (const k of [7, 9]) {
    const { vk, kernels } = untested();
    checkProduct(vk, kernels, { form: 'NT', type: 'f32', m: 33, n: 64, k, pad: 0, plan: planOf(small) });
  }
});

/** Kernels with one instruction changed: the machine must find each. */
const MISTAKES = /** @type {const} */ ([
  ['copies that nobody waits for', (/** @type {string} */ text) => text.replaceAll('cp.async.wait_group 1', 'cp.async.wait_group 9')],
  ['no barrier between stages', (/** @type {string} */ text) => text.replaceAll(/ {2}bar\.sync 0, 64;\n/g, '')],
  ['a stage copied before it is read', (/** @type {string} */ text) => text.replace('setp.ne.u32 %p0, %r', 'setp.eq.u32 %p0, %r')],
  ['depths that lie elsewhere', (/** @type {string} */ text) => text.replace(/(ld\.shared\.v4\.f32 .*)\+272\]/, '$1+544]')],
]);
for (const [mistake, edit] of MISTAKES) {
  test(`found: ${mistake}`, () => {
    const { vk, kernels } = untested({
      edit: (text) => {
        assert.notEqual(edit(text), text);
        return edit(text);
      },
    });
    assert.throws(() => checkProduct(vk, kernels, { form: 'NT', type: 'f32', m: 40, n: 68, k: 64, plan: planOf(small) }));
  });
}

test('faults of tilings and products are named', () => {
  const fault = (/** @type {object} */ more, /** @type {object} */ form = {}) =>
    String(simtFault({ ...small, ...more }, { ...FORM, ...form }));
  assert.equal(simtFault(small, FORM), undefined);
  assert.match(fault({}, { type: 'bf16' }), /compute in f32, not bf16/);
  assert.match(fault({}, { dual: true }), /store f32/);
  assert.match(fault({ tm: 6 }), /multiples of 4/);
  assert.match(fault({ bm: 64 }), /bm and bn must be what 2 x 1 warps have/);
  assert.match(fault({ bk: 12 }), /bk must be a multiple of 8/);
  assert.match(fault({ stages: 1 }), /stages must be at least 2/);
  assert.match(fault({ stages: 32 }), /bytes of shared memory, 49152 are allowed/);
  assert.match(fault({ bm: 16, warps: [1, 2], bn: 128 }, { transA: true }), /the copies of A do not divide among 64 threads/);
  assert.throws(() => simt('x', { ...small, stages: 1 }, FORM), /simt: stages must be at least 2/);
  const sizes = { m: 64, n: 64, k: 63, lda: 63, ldb: 65, ldc: 64 };
  const product = { ...sizes, addresses: [256n], transA: false, transB: true, type: /** @type {const} */ ('f32') };
  assert.equal(productFault(product), undefined);
  assert.match(String(productFault({ ...product, transA: true, lda: 64, m: 62 })), /rows of A have 62 elements, not a multiple of 4/);
  assert.match(String(productFault({ ...product, transB: false })), /ldb is 65, not a multiple of 4/);
  assert.match(String(productFault({ ...product, ldc: 66 })), /ldc is 66/);
  const { vk, kernels } = untested();
  const [a, b, c] = [0, 1, 2].map(() => vk.createBuffer(1 << 18));
  const args = /** @type {any} */ ({ a, b, c, m: 64, n: 64, k: 64, transB: true });
  assert.throws(() => kernels.matmul({ ...args, plan: { kernel: 'ptx', tiling: 'tall' } }), /matrix units do not multiply in f32/);
  assert.throws(() => kernels.matmul({ ...args, n: 62, beta: 1, plan: planOf(small) }), /rows of D have 62 elements/);
  assert.throws(() => createKernels(vk, { ptx: false }).matmul({ ...args, plan: planOf(small) }), /turned off/);
});

test('on Hopper large products in f32 are computed in PTX, the others by SPIR-V, and so all where it is turned off', () => {
  const kernel = (/** @type {any} */ kernels, /** @type {object} */ more) =>
    kernels.matmulPlan({ m: 12544, n: 384, k: 1536, transB: true, ...more }).kernel;
  const { vk, kernels } = untested();
  assert.equal(kernel(kernels, {}), 'ptx');
  assert.equal(kernel(kernels, { n: 386 }), 'ptx', 'on a copy of the result');
  for (const more of [{ m: 64 }, { n: 96 }, { batch: 2 }, { n: 386, beta: 1 }])
    assert.equal(kernel(kernels, more), 'f32', JSON.stringify(more));
  assert.equal(kernel(createKernels(vk, { ptx: false }), {}), 'f32');
  assert.equal(kernel(untested({ info: { deviceName: 'NVIDIA A100' } }).kernels, {}), 'f32');
});

test('a product in f32 is divided so that it fills the device: whole waves, a tail, splits', () => {
  const plan = (/** @type {string} */ form, /** @type {number} */ m, /** @type {number} */ n, /** @type {number} */ k) =>
    ptxPlan({ m, n, k, transA: form[0] === 'T', transB: form[1] === 'T', precision: 'f32' });
  for (const [form, m, n, k, tiling] of /** @type {const} */ ([
    ['TN', 1536, 384, 12544, 'm256n128-f32'],
    ['TN', 384, 1536, 12544, 'm128n256-f32'],
    ['TN', 384, 384, 12544, 'm128n128-f32'],
    ['NT', 12544, 384, 1536, 'm256n128-f32'],
    ['NT', 12544, 1152, 384, 'm256n128-f32'],
    ['NN', 4096, 4096, 4096, 'm256n128-f32'],
  ])) {
    const { splits = 1, wave = 0, tail = 1, ...chosen } = plan(form, m, n, k) ?? assert.fail();
    assert.equal(chosen.tiling, tiling, `${m} ${n} ${k}`);
    const { bm, bn, blocks } = SIMT_TILINGS[tiling];
    const tiles = Math.ceil(m / bm) * Math.ceil(n / bn);
    // Time in units of a tile with its whole depth, and what it would be were all multiprocessors at work throughout. One with one block of two is.
    const all = tail === 1 && tiles * splits <= 132 ? 132 : 132 * blocks;
    const time =
      tail > 1 ? Math.floor(tiles / wave) + Math.ceil(((tiles % wave) * tail) / all) / tail : Math.ceil((tiles * splits) / all) / splits;
    assert.ok(tiles / all / time > 0.9, `${m} ${n} ${k}: ${tiles / all / time} of the device at work`);
  }
  assert.equal(plan('NT', 128, 128, 1024), undefined);
});

test('the kernel that is chosen is tested before its first use', () => {
  const device = ptxDevice({ bytes: 8 << 20 });
  const kernels = matmulKernels(new KernelContext(device.vk));
  assert.equal(
    kernels.matmulPlan(/** @type {any} */ ({ m: 12544, n: 384, k: 384, transB: true, bias: 1, activation: 'gelu' })).kernel,
    'ptx',
  );
  assert.ok(device.ran.length > 0);
});
