// Matrix products in PTX on a device that takes it: the measured tilings in every form, random odd sizes and additions, in
// poison, twice, and in graphs, against float64. Elsewhere __test__/ptx/ runs the same kernels on a simulator.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { pack } from '../../kernels/base.mjs';
import { createKernels } from '../../kernels/index.mjs';
import { gemmFault, sizesFault } from '../../kernels/hopper/form.mjs';
import { GEMM_TILINGS, SIMT_TILINGS } from '../../kernels/hopper/tilings.mjs';
import { vk } from '../lib/addon.mjs';
import { checkGlu, checkGroup, checkProduct } from '../ptx/product.mjs';

/** @typedef {import('../ptx/product.mjs').Product} Product */

const info = /** @type {any} */ (vk.initDevice());
const skip = info.hasPtx ? false : 'the device takes no PTX';
const kernels = createKernels(vk);
after(() => vk.destroy());

let state = 7;
/** A random integer below `n`. @param {number} n */
const below = (n) => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * n);
};
const maybe = () => below(2) === 1;

/** A random product in f32 for a tiling. @param {string} tiling @param {Product['form']} form @returns {Product} */
function randomSingle(tiling, form) {
  const fours = (/** @type {number} */ most) => 4 * (1 + below(most / 4));
  return {
    form,
    type: 'f32',
    m: form[0] === 'T' ? fours(600) : 1 + below(600),
    n: fours(400),
    k: 1 + below(700),
    bias: maybe(),
    residual: maybe(),
    activation: /** @type {const} */ ([undefined, 'gelu', 'silu'])[below(3)],
    alpha: maybe() ? 1 : 0.5,
    beta: maybe() ? 0 : -0.75,
    pad: 4 * below(3),
    plan: { kernel: 'ptx', tiling, ...[{ splits: 2 + below(3) }, { wave: 3, tail: 2 }, {}][below(3)] },
  };
}

/** Whether a tiling takes a product. @param {string} tiling @param {{ m: number, n: number, k: number }} sizes */
const takes = (tiling, sizes) => sizesFault(GEMM_TILINGS[/** @type {keyof typeof GEMM_TILINGS} */ (tiling)], sizes) === undefined;

/** A random depth that a tiling takes, of contiguous rows in eights. @param {string} tiling @param {boolean} contiguous whether A or B has its depth contiguous */
const depthOf = (tiling, contiguous) => {
  const any = takes(tiling, { m: 64, n: 64, k: 8 });
  return any ? (contiguous ? 8 * (1 + below(87)) : 1 + below(700)) : 32 * (1 + below(22));
};

/** A random extent whose elements are contiguous. @param {string} tiling @param {number} most */
const extentOf = (tiling, most) => {
  const unit = takes(tiling, { m: 8, n: 8, k: 32 }) ? 8 : 64;
  return unit * (1 + below(most / unit));
};

/** A random product for a tiling. @param {string} tiling @param {Product['form']} form @returns {Product} */
function randomProduct(tiling, form) {
  const split = form === 'TN' ? [{ splits: 2 + below(3) }, { wave: 3, tail: 2 }, {}][below(3)] : maybe() ? { wave: 3 } : {};
  return {
    form,
    m: form[0] === 'T' ? extentOf(tiling, 600) : 1 + below(600),
    n: extentOf(tiling, 400),
    k: depthOf(tiling, form !== 'TN'),
    type: maybe() ? 'bf16' : 'f16',
    half: maybe(),
    dual: maybe(),
    bias: maybe(),
    residual: maybe(),
    activation: /** @type {const} */ ([undefined, 'gelu', 'silu'])[below(3)],
    alpha: maybe() ? 1 : 0.5,
    beta: maybe() ? 0 : -0.75,
    pad: 8 * below(3),
    plan: { kernel: 'ptx', tiling, ...split },
  };
}

for (const [tiling, sizes] of Object.entries(GEMM_TILINGS)) {
  for (const form of /** @type {const} */ (['NT', 'NN', 'TN'])) {
    if (gemmFault(sizes, { type: 'bf16', transA: form[0] === 'T', transB: form[1] === 'T' })) continue;
    test(`${form} by ${tiling}`, { skip }, () => {
      for (let i = 0; i < 4; i++) checkProduct(vk, kernels, randomProduct(tiling, form));
    });
  }
}

test('rows that are no multiple of 16 bytes', { skip }, () => {
  for (const [tiling, sizes] of Object.entries(GEMM_TILINGS)) {
    for (const form of /** @type {const} */ (['NT', 'NN', 'TN'])) {
      if (gemmFault(sizes, { type: 'bf16', transA: form[0] === 'T', transB: form[1] === 'T' })) continue;
      const k = takes(tiling, { m: 64, n: 64, k: 8 }) ? 1 + below(700) : 32 * (1 + below(22));
      const product = { ...randomProduct(tiling, form), m: 1 + below(600), n: 1 + 2 * below(200), k, beta: 0, pad: 0 };
      if (takes(tiling, product)) checkProduct(vk, kernels, product);
    }
  }
});

for (const [tiling, sizes] of Object.entries(GEMM_TILINGS)) {
  if (gemmFault(sizes, { type: 'bf16', transA: true, transB: false, products: 2 })) continue;
  test(`groups of TN by ${tiling}`, { skip }, () => {
    for (const count of [2, 3, 4]) {
      const list = Array.from({ length: count }, () => [extentOf(tiling, 400), extentOf(tiling, 400)]);
      checkGroup(vk, kernels, {
        form: 'TN',
        sizes: list,
        k: depthOf(tiling, false),
        tiling,
        beta: maybe() ? 0 : -0.75,
        wave: 3 + below(8),
        tail: 1 + below(4),
      });
    }
  });
}

for (const [tiling, sizes] of Object.entries(GEMM_TILINGS)) {
  const passes = /** @type {const} */ (['forward', 'backward']).filter(
    (glu) => !gemmFault(sizes, { type: 'bf16', transA: false, transB: glu === 'forward', half: true, glu }),
  );
  if (passes.length === 0) continue;
  test(`SwiGLU and its gradient by ${tiling}`, { skip }, () => {
    for (const pass of passes)
      for (let i = 0; i < 4; i++) {
        const type = maybe() ? 'bf16' : 'f16';
        const product = { m: 1 + below(600), columns: 8 * (1 + below(50)), k: depthOf(tiling, true) };
        const wave = maybe() ? { wave: 3 } : {};
        checkGlu(vk, kernels, { pass, ...product, type, plan: { kernel: 'ptx', tiling, ...wave } });
      }
  });
}

for (const tiling of Object.keys(SIMT_TILINGS)) {
  for (const form of /** @type {const} */ (['NT', 'NN', 'TN', 'TT'])) {
    test(`${form} in f32 by ${tiling}`, { skip }, () => {
      for (let i = 0; i < 4; i++) checkProduct(vk, kernels, randomSingle(tiling, form));
    });
  }
}

test('a product in a graph has the bits that it has outside of it', { skip }, () => {
  for (const [form, tiling, plan] of /** @type {const} */ ([
    ['NT', 'm256n128-ld', {}],
    ['NN', 'm256n128-tma', {}],
    ['TN', 'm128n256-cp', { splits: 3 }],
    ['TN', 'm256n128-tma-l1', {}],
  ])) {
    const product = { ...randomProduct(tiling, form), plan: { kernel: 'ptx', tiling, ...plan } };
    checkProduct(vk, kernels, product, (run, dispatches) => run.runInGraph(dispatches));
  }
});

test('products in a chain, each on the result of the one before', { skip }, () => {
  // A permutation matrix as weight: after eight products every element is where it was.
  const [rows, size] = [2048, 1024];
  const [x, y] = [0, 1].map(() => vk.createBuffer(2 * rows * size, 0));
  const w = vk.createBuffer(2 * size * size, 0);
  const values = Uint16Array.from({ length: rows * size }, (_, i) => 0x3f80 + (i % 127));
  const shift = new Uint16Array(size * size);
  for (let i = 0; i < size; i++) shift[i * size + ((i + 128) % size)] = 0x3f80;
  vk.uploadBuffer(x, values);
  vk.uploadBuffer(w, shift);
  const product = (/** @type {any} */ from, /** @type {any} */ to) =>
    kernels.matmul({
      ...{ a: from, b: w, c: to, m: rows, n: size, k: size, transB: true },
      ...{ aType: 'bf16', bType: 'bf16', cType: 'bf16', plan: /** @type {any} */ ({ kernel: 'ptx', tiling: 'm128n128-ld' }) },
    });
  const { packed, count } = pack(Array.from({ length: 8 }, (_, i) => (i % 2 ? product(y, x) : product(x, y))).flat());
  vk.waitTimeline(vk.batchExecuteAll(packed, count));
  const words = vk.readBuffer(x);
  assert.deepEqual(new Uint16Array(words.buffer, words.byteOffset, values.length), values);
  for (const buffer of [x, y, w]) vk.destroyBuffer(buffer);
});
