// From arguments of `kernels.matmul` to what its kernels in PTX do: plans, bindings, declared accesses, push constants and
// the second pass, on a stand-in device that runs the records on the machine, against float64. Small tilings stand for the
// measured ones, which gemm.test.mjs runs: what is tested here does not depend on sizes.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KernelContext } from '../../kernels/base.mjs';
import { createKernels } from '../../kernels/index.mjs';
import { matmulKernels } from '../../kernels/matmul.mjs';
import { ptxDevice } from './device.mjs';
import { Case } from '../lib/kernel-check.mjs';
import { random } from '../lib/tensors.mjs';
import { warningsOf } from '../lib/warnings.mjs';
import { checkGlu, checkProduct } from './product.mjs';

/** @typedef {import('./product.mjs').Product} Product */

const relay = { bm: 64, bn: 64, bk: 32, stages: 2, warpgroups: 1, load: 'ld', ahead: 2 };
const async = { bm: 64, bn: 64, bk: 16, stages: 4, warpgroups: 1, load: 'cp', ahead: 2 };
const direct = { bm: 64, bn: 64, bk: 64, stages: 2, warpgroups: 1, load: 'ld', ahead: 1, direct: true };
const copied = { bm: 128, bn: 64, bk: 64, bkB: 32, stages: 3, warpgroups: 1, load: 'tma', direct: true };

/** Kernels on a stand-in that are not tested before their use. @param {Parameters<typeof ptxDevice>[0]} [options] @param {number} [copyBytes] */
function untested(options, copyBytes) {
  const device = ptxDevice(options);
  return { ...device, kernels: matmulKernels(new KernelContext(device.vk), { verify: () => undefined, copyBytes }) };
}

/** @param {object} tiling @param {object} [more] @returns {any} */
const planOf = (tiling, more) => ({ kernel: 'ptx', tiling, wave: 2, ...more });

const PRODUCTS = /** @type {Product[]} */ ([
  { form: 'NT', m: 72, n: 72, k: 40, half: true, plan: planOf(relay) },
  { form: 'NN', m: 72, n: 72, k: 40, half: true, type: 'f16', plan: planOf(relay) },
  { form: 'TN', m: 72, n: 72, k: 37, plan: planOf(async) },
  { form: 'TT', m: 72, n: 72, k: 40, plan: planOf(async) },
  { form: 'NT', m: 65, n: 72, k: 72, plan: planOf(direct) },
  { form: 'NN', m: 72, n: 72, k: 64, pad: 0, half: true, plan: planOf(direct) },
  { form: 'NT', m: 72, n: 72, k: 32, alpha: 0.5, beta: -0.75, plan: planOf(relay) },
  { form: 'NT', m: 72, n: 72, k: 32, alpha: 0.5, beta: 2, half: true, type: 'f16', plan: planOf(relay) },
  { form: 'NN', m: 72, n: 72, k: 32, bias: true, activation: 'gelu', plan: planOf(relay) },
  { form: 'NN', m: 72, n: 72, k: 32, bias: true, activation: 'silu', residual: true, half: true, plan: planOf(relay) },
  { form: 'NT', m: 72, n: 72, k: 32, residual: true, inPlace: true, plan: planOf(relay) },
  { form: 'NT', m: 72, n: 72, k: 32, residual: true, dual: true, plan: planOf(relay) },
  { form: 'NT', m: 72, n: 72, k: 32, half: true, dual: true, beta: 1, plan: planOf(relay) },
  { form: 'TN', m: 72, n: 72, k: 96, beta: 1, plan: planOf(async, { splits: 3 }) },
  { form: 'TN', m: 64, n: 64, k: 100, alpha: 2, plan: planOf(async, { splits: 2 }) },
  { form: 'NT', m: 72, n: 72, k: 96, half: true, dual: true, bias: true, residual: true, plan: planOf(relay, { splits: 2 }) },
  { form: 'NT', m: 72, n: 72, k: 96, half: true, beta: 1, bias: true, activation: 'silu', plan: planOf(relay, { wave: 3, tail: 3 }) },
  { form: 'NN', m: 72, n: 72, k: 96, dual: true, residual: true, type: 'f16', plan: planOf(relay, { wave: 3, tail: 2 }) },
  { form: 'NN', m: 136, n: 72, k: 96, half: true, plan: planOf(copied) },
  { form: 'NN', m: 136, n: 72, k: 128, beta: -0.75, bias: true, plan: planOf(copied) },
  { form: 'NN', m: 136, n: 72, k: 192, half: true, dual: true, residual: true, plan: planOf(copied, { wave: 3, tail: 2 }) },
  { form: 'NN', m: 136, n: 72, k: 160, plan: planOf(copied, { splits: 2 }) },
  { form: 'NT', m: 136, n: 96, k: 96, half: true, permuted: true, plan: planOf(copied) },
  { form: 'NN', m: 136, n: 96, k: 96, half: true, permuted: true, plan: planOf(copied) },
  { form: 'NT', m: 136, n: 96, k: 160, half: true, dual: true, residual: true, permuted: true, plan: planOf(copied, { wave: 3, tail: 2 }) },
  { form: 'NT', m: 72, n: 64, k: 96, type: 'f16', alpha: 0.5, beta: -0.75, bias: true, permuted: true, plan: planOf(copied) },
  { form: 'NT', m: 136, n: 64, k: 160, permuted: true, plan: planOf(copied, { splits: 2 }) },
  { form: 'NT', m: 72, n: 72, k: 64, k2: 24, half: true, bias: true, plan: planOf(direct) },
  { form: 'NT', m: 72, n: 72, k: 40, k2: 40, residual: true, alpha: 0.5, plan: planOf(relay) },
  { form: 'NN', m: 136, n: 72, k: 96, k2: 16, half: true, dual: true, plan: planOf(copied) },
]);

for (const product of PRODUCTS) {
  const { form, plan, m: _m, n: _n, k: _k, ...rest } = product;
  const how = plan.splits ? `${plan.splits} splits` : plan.tail ? `a tail of ${plan.tail} parts` : 'whole';
  test(`${form} by ${plan.tiling.load}${plan.tiling.direct ? ', A in registers' : ''}, ${how}: ${JSON.stringify(rest)}`, () => {
    const { vk, kernels, ran } = untested();
    const dispatches = checkProduct(vk, kernels, product);
    const split = Boolean(plan.splits ?? plan.tail);
    assert.equal(dispatches.length, split ? 2 : 1);
    const { kernel, bindings } = ran[0];
    assert.equal(kernel.workgroupSize[0], 256);
    const { residual, bias, dual, beta, k2 } = product;
    const stores = !plan.splits;
    assert.deepEqual(kernel.access, [
      'read',
      'read',
      stores ? (beta ? 'readwrite' : 'write') : 'none',
      stores && bias ? 'read' : 'none',
      stores && residual ? 'read' : 'none',
      stores && dual ? 'write' : 'none',
      // Partial sums, and tensor maps.
      split || plan.tiling.load === 'tma' ? 'write' : 'none',
      ...(k2 ? ['read', 'read'] : []),
    ]);
    kernel.access.forEach((/** @type {string} */ how, /** @type {number} */ i) => {
      if (how === 'none') assert.deepEqual(bindings[i], bindings[0], 'A stands in for what is not touched');
    });
  });
}

/** Products of rows that are no multiple of 16 bytes, and the passes that copy operands before and results after. @type {[Product, number, number][]} */
const COPIED = [
  [{ form: 'NT', m: 67, n: 72, k: 37, pad: 0, plan: planOf(relay) }, 2, 0],
  [{ form: 'NT', m: 67, n: 73, k: 40, pad: 3, type: 'f16', plan: planOf(relay, { splits: 2 }) }, 2, 0],
  [{ form: 'NT', m: 67, n: 75, k: 42, pad: 0, half: true, dual: true, bias: true, residual: true, plan: planOf(direct) }, 4, 2],
  [{ form: 'NT', m: 3, n: 75, k: 42, pad: 0, plan: planOf(relay) }, 2, 1],
  [{ form: 'NT', m: 67, n: 75, k: 96, pad: 0, half: true, plan: planOf(relay, { splits: 2 }) }, 0, 0],
  [{ form: 'NN', m: 67, n: 70, k: 70, pad: 0, half: true, plan: planOf(direct) }, 2, 1],
  [{ form: 'NN', m: 67, n: 70, k: 72, pad: 0, bias: true, beta: -0.75, plan: planOf(relay) }, 1, 0],
  [{ form: 'NN', m: 67, n: 68, k: 71, pad: 0, half: true, type: 'f16', plan: planOf(async, { wave: 3, tail: 2 }) }, 2, 0],
  [{ form: 'NN', m: 136, n: 67, k: 96, pad: 0, half: true, plan: planOf(copied) }, 1, 1],
  [{ form: 'TN', m: 67, n: 70, k: 37, pad: 0, plan: planOf(async) }, 2, 0],
  [{ form: 'TN', m: 67, n: 73, k: 37, pad: 0, plan: planOf(async) }, 2, 1],
  [{ form: 'TN', m: 67, n: 70, k: 100, pad: 0, beta: 1, plan: planOf(async, { splits: 2 }) }, 2, 0],
  [{ form: 'TN', m: 133, n: 70, k: 96, pad: 0, beta: 1, plan: planOf(copied) }, 2, 0],
];
for (const [product, before, after] of COPIED) {
  const { plan, ...rest } = product;
  test(`rows that are no multiple of 16 bytes, ${plan.tiling.load}: ${JSON.stringify(rest)}`, () => {
    const { vk, kernels, ran } = untested();
    const dispatches = checkProduct(vk, kernels, product);
    const names = ran.slice(0, dispatches.length).map(({ kernel }) => kernel.name);
    assert.deepEqual(
      names.filter((name) => /pad$/.test(name)),
      [...Array(before).fill('matmul_pad'), ...Array(after).fill('matmul_unpad')],
    );
    assert.match(names[before], /^matmul_ptx_/);
  });
}

const single = { bm: 32, bn: 32, bk: 8, stages: 2, warps: [2, 1], tm: 4, tn: 4, blocks: 1 };

test('f32: rows that are no multiple of 16 bytes, where they are loaded by vectors', () => {
  for (const [product, pads, unpads] of /** @type {[Product, number, number][]} */ ([
    [{ form: 'TN', m: 37, n: 40, k: 20, pad: 0, plan: planOf(single) }, 1, 0],
    [{ form: 'TN', m: 37, n: 41, k: 20, pad: 0, beta: 1, plan: planOf(single, { splits: 2 }) }, 2, 0],
    [{ form: 'NT', m: 33, n: 35, k: 19, pad: 0, bias: true, residual: true, plan: planOf(single) }, 2, 1],
    [{ form: 'NN', m: 33, n: 34, k: 19, pad: 0, plan: planOf(single) }, 1, 1],
  ])) {
    const { vk, kernels, ran } = untested();
    const dispatches = checkProduct(vk, kernels, { ...product, type: 'f32' });
    const names = ran.slice(0, dispatches.length).map(({ kernel }) => kernel.name);
    assert.deepEqual(
      [names.filter((name) => name === 'matmul_pad').length, names.filter((name) => name === 'matmul_unpad').length],
      [pads, unpads],
    );
  }
});

test('copies that would be too large are made for some rows at a time', () => {
  for (const [product, copyBytes, pieces] of /** @type {[Product, number, number][]} */ ([
    // A's copy has 20 rows of 608 elements, and those of pieces 20 of 256 or 89 rounded up.
    [{ form: 'TN', m: 601, n: 40, k: 20, type: 'f32', plan: planOf(single) }, 30_000, 3],
    [{ form: 'TN', m: 301, n: 40, k: 20, type: 'f32', beta: 1, plan: planOf(single, { splits: 2 }) }, 21_000, 2],
    [{ form: 'NT', m: 520, n: 75, k: 42, half: true, bias: true, residual: true, plan: planOf(direct) }, 300_000, 3],
  ])) {
    const { vk, kernels, ran } = untested({}, copyBytes);
    const dispatches = checkProduct(vk, kernels, { ...product, pad: 0 });
    const names = ran.slice(0, dispatches.length).map(({ kernel }) => kernel.name);
    assert.equal(names.filter((name) => name.startsWith('matmul_ptx_')).length, pieces, JSON.stringify(product));
  }
  const { kernels } = untested({}, 1000);
  const none = { m: 601, n: 40, k: 20, transA: true, plan: planOf(single) };
  assert.throws(
    () => kernels.matmulPlan(none),
    /rows of A have 601 elements, not a multiple of 4, and copies for 256 rows take 20480 bytes, 1000 are allowed/,
  );
});

test('SwiGLU and its gradient: one kernel each, of what was declared', () => {
  for (const [pass, tiling, type, permuted = false] of /** @type {const} */ ([
    ['forward', { ...relay, bn: 128 }, 'bf16'],
    ['forward', { ...direct, bn: 128 }, 'f16'],
    ['forward', { ...copied, bn: 128 }, 'bf16', true],
    ['backward', relay, 'f16'],
    ['backward', direct, 'bf16'],
    ['backward', { ...copied, bn: 128 }, 'f16'],
    ['backward', { ...copied, bn: 128 }, 'bf16', true],
    ['again', direct, 'bf16'],
    ['again', { ...copied, bn: 128 }, 'f16', true],
  ])) {
    const { vk, kernels, ran } = untested();
    const [columns, k] = [permuted ? 96 : 72, tiling.load === 'tma' ? 96 : 72];
    const dispatches = checkGlu(vk, kernels, {
      pass: pass === 'forward' ? pass : 'backward',
      again: pass === 'again',
      ...{ m: 72, columns, k, type, permuted, plan: planOf(tiling) },
    });
    assert.equal(dispatches.length, 1);
    assert.deepEqual(
      ran[0].kernel.access,
      pass === 'forward'
        ? ['read', 'read', 'write', 'none', 'none', 'write', tiling.load === 'tma' ? 'write' : 'none']
        : ['read', 'read', 'write', 'none', 'read', pass === 'again' ? 'write' : 'none', tiling.load === 'tma' ? 'write' : 'none'],
    );
  }
});

test('SwiGLU and its gradient of a product with a second pair of operands', () => {
  for (const [pass, tiling] of /** @type {const} */ ([
    ['forward', { ...direct, bn: 128 }],
    ['backward', { ...copied, bn: 128 }],
  ])) {
    const { vk, kernels, ran } = untested();
    const dispatches = checkGlu(vk, kernels, { pass, m: 72, columns: 72, k: 96, k2: 24, type: 'bf16', plan: planOf(tiling) });
    assert.equal(dispatches.length, 1);
    assert.deepEqual(ran[0].kernel.access.slice(7), ['read', 'read']);
  }
});

test('the kernels of a second pair of operands pass the test of their first use, and are asked for by sizes', () => {
  const { vk } = ptxDevice();
  const kernels = matmulKernels(new KernelContext(vk));
  const types = /** @type {const} */ ({ aType: 'bf16', bType: 'bf16', cType: 'bf16', m: 72, n: 72, k: 96 });
  const tensors = { a: 0, b: 0, c: 0, a2: 0, b2: 0 };
  const planned = (/** @type {any} */ product, /** @type {any} */ tiling) =>
    kernels.matmulPlan({ ...types, ...tensors, ...product, plan: planOf(tiling) }).kernel;
  assert.equal(planned({ transB: true, k2: 24 }, direct), 'ptx');
  assert.equal(planned({ k2: 32 }, copied), 'ptx');
  assert.throws(() => planned({ k2: 48 }, copied), /copies take a second depth of up to 32 or in multiples of it, not 48/);
  assert.throws(() => planned({ transA: true, k2: 24 }, relay), /a second pair of operands \(k2\) takes neither/);
  // A product of few elements is not known to be faster.
  assert.equal(kernels.takesSecond({ ...types, ...tensors, transB: true, k2: 24 }), false);
});

test('the gradient of SwiGLU computes its result again with the bits of the forward pass', () => {
  for (const [tiling, type] of /** @type {const} */ ([
    [direct, 'bf16'],
    [relay, 'f16'],
  ])) {
    const { vk, kernels } = untested();
    const test = new Case({ vk });
    const [m, columns, k] = [72, 72, 72];
    const [x, w, dy, wDown] = [m * k, 2 * columns * k, m * k, k * columns].map((count) => test.input(random(count), type).tensor);
    const [gateUp, y, again, dGateUp, unused] = [2, 1, 1, 2, 1].map((halves) => test.output(halves * m * columns, type));
    const sizes = { m, columns, k, type };
    const forward = { ...sizes, a: x, b: w, gateUp: gateUp.tensor, y: y.tensor, plan: planOf({ ...tiling, bn: 128 }) };
    const out = { dGateUp: dGateUp.tensor, dy: unused.tensor, y: again.tensor };
    const backward = { ...sizes, a: dy, b: wDown, gateUp: gateUp.tensor, ...out, plan: planOf(tiling) };
    test.run([...kernels.matmulGlu(forward), ...kernels.matmulGluBackward(backward)]);
    assert.ok(y.read().every(Number.isFinite));
    assert.deepEqual(again.read(), y.read());
    test.destroy();
  }
});

test('SwiGLU without such a kernel: two passes, or an error where the plan asks for one', () => {
  const { vk, kernels, pipelines } = untested();
  const [a, b, gateUp, y, dGateUp] = [0, 1, 2, 3, 4].map(() => vk.createBuffer(1 << 17));
  const args = /** @type {any} */ ({ a, b, gateUp, y, m: 72, columns: 72, k: 40, type: 'bf16' });
  const namesOf = (/** @type {any[]} */ list) => list.map(({ pipeline }) => pipelines.get(pipeline).name);
  for (const more of [{ activation: 'gelu' }, { k: 36 }, { columns: 68 }, { y: { buffer: y, offset: 4 } }, { type: 'f32' }]) {
    const names = namesOf(kernels.matmulGlu({ ...args, ...more }));
    assert.deepEqual([names.length, /^glu_forward/.test(names[1])], [2, true], JSON.stringify(more));
    assert.throws(() => kernels.matmulGlu({ ...args, ...more, plan: planOf(relay) }), /matmul: the (PTX kernels|plan)/);
  }
  const backward = { ...args, y: undefined, dy: y, dGateUp };
  assert.match(namesOf(kernels.matmulGluBackward({ ...backward, k: 36 }))[1], /^glu_backward/);
  assert.match(namesOf(kernels.matmulGluBackward({ ...backward, k: 36, y: vk.createBuffer(1 << 17) }))[2], /^glu_forward/);
  assert.throws(() => kernels.matmulGlu({ ...args, activation: 'cube' }), /gluForward: activation must be/);
  assert.throws(() => kernels.matmulGlu({ ...args, columns: 0.5 }), /matmulGlu: columns/);
});

test('a workspace of the caller, at an offset, and its size', () => {
  const { vk, kernels, ran } = untested();
  const [a, b, c] = [72 * 96 * 2, 72 * 96 * 2, 72 * 72 * 4].map((bytes) => vk.createBuffer(bytes));
  const args = /** @type {any} */ ({ a, b, c, m: 72, n: 72, k: 96, transA: true, aType: 'bf16', bType: 'bf16' });
  args.plan = planOf(async, { splits: 3 });
  assert.equal(kernels.matmulWorkspace(args), 3 * 4 * 64 * 64);
  const workspace = vk.createBuffer(4 * (3 * 4 * 64 * 64 + 64));
  const [first] = kernels.matmul({ ...args, workspace: { buffer: workspace, offset: 64 } });
  assert.deepEqual(first.buffers[6], { buffer: workspace, offset: 256, size: 4 * 3 * 4 * 64 * 64 });
  assert.throws(() => kernels.matmul({ ...args, workspace: { buffer: workspace, offset: 68 } }), /workspace needs 49152 elements/);
  assert.equal(ran.length, 0);
  assert.equal(kernels.matmulPlan({ ...args, plan: planOf(async, { splits: 5 }) }).splits, 3, 'no part of six stages is empty');
});

test('parts that are more than a binding can be: an error where the plan asks for them', () => {
  const { vk, kernels } = untested({ info: { maxStorageBufferRange: 65_536 } });
  const [a, b, c] = [0, 1, 2].map(() => vk.createBuffer(65_536));
  const tiling = { bm: 64, bn: 64, bk: 32, stages: 2, warpgroups: 1, load: 'ld', ahead: 2 };
  const product = (/** @type {number} */ splits) => ({
    ...{ a, b, c, m: 64, n: 64, k: 256, transB: true, aType: /** @type {const} */ ('bf16'), bType: /** @type {const} */ ('bf16') },
    plan: planOf(tiling, { splits }),
  });
  assert.equal(kernels.matmul(product(4)).length, 2);
  assert.throws(() => kernels.matmul(product(8)), /the plan cannot run: it takes 131072 bytes of workspace, a binding has 65536/);
});

test('products that the kernels cannot take: an error where the plan asks for them, SPIR-V where it does not', () => {
  const { vk, kernels } = untested();
  const [a, b, c] = [0, 1, 2].map(() => vk.createBuffer(1 << 18));
  const args = /** @type {any} */ ({ a, b, c, m: 72, n: 72, k: 96, transB: true, aType: 'bf16', bType: 'bf16', plan: planOf(relay) });
  const refused = (/** @type {object} */ more, /** @type {RegExp} */ message) => {
    assert.throws(() => kernels.matmul({ ...args, ...more }), message);
    const { plan: _, ...chosen } = { ...args, ...more };
    assert.notEqual(kernels.matmulPlan(chosen).kernel, 'ptx');
  };
  refused({ n: 76, beta: 1 }, /rows of D have 76 elements, not a multiple of 8/);
  refused({ ldc: 76 }, /ldc is 76, not a multiple of 8/);
  refused({ c: { buffer: c, offset: 2 } }, /an operand is not aligned to 16 bytes/);
  refused({ workspace: { buffer: c, offset: 1 } }, /an operand is not aligned to 16 bytes/);
  refused({ batch: 2 }, /not a batch of 2/);
  refused({ aType: 'f32', precision: 'bf16' }, /must both be stored in the half type/);
  assert.throws(
    () => kernels.matmul({ ...args, plan: { kernel: 'ptx', tiling: 'high' } }),
    /plan.tiling must be one of m256n128-ld, .*, got high/,
  );
  assert.throws(() => kernels.matmul({ ...args, transA: true, plan: planOf(direct) }), /rows contiguous/);
  const off = createKernels(vk, { ptx: false });
  assert.throws(() => off.matmul(args), /the device takes no PTX, or it is turned off/);
});

test('a permuted B: kernels that were measured to be faster, any other where it is given, and errors that say why not', async () => {
  const { vk, kernels, ran } = smallDevice({}, planOf(copied, { permuted: true }));
  const [a, b, c] = [0, 1, 2].map(() => vk.createBuffer(1 << 18));
  const args = /** @type {any} */ ({ m: 136, n: 96, k: 96, transB: true, aType: 'bf16', bType: 'bf16', cType: 'bf16' });
  const forms = [args, { ...args, transB: false }, { ...args, glu: 'forward', n: 128 }, { ...args, transB: false, glu: 'backward' }];
  const warnings = await warningsOf(() => {
    for (const form of forms) assert.equal(kernels.takesPermuted(form), true);
    assert.equal(kernels.matmulPlan({ ...args, bPermuted: true, a, b, c }).tiling, copied);
    // The former names.
    assert.equal(kernels.takesShuffled(args), true);
    assert.equal(kernels.matmulPlan({ ...args, bShuffled: true, a, b, c }).tiling, copied);
  });
  assert.deepEqual([warnings, ran.length], [[], 4], 'each kernel is tested once');
  const no = [
    { n: 72 },
    { k: 72 },
    { transA: true, transB: false },
    { batch: 2 },
    { aType: 'f32', precision: 'bf16' },
    { b: { buffer: b, offset: 4 } },
  ];
  for (const more of no) assert.equal(kernels.takesPermuted({ ...args, ...more }), false, JSON.stringify(more));
  assert.equal(kernels.takesPermuted({ ...args, glu: 'forward' }), false, 'gates and ups of 48 columns');
  assert.throws(
    () => kernels.takesPermuted({ ...args, glu: /** @type {any} */ ('both') }),
    /takesPermuted: glu must be 'forward' or 'backward', got both/,
  );

  const permuted = { ...args, a, b, c, bPermuted: true };
  for (const [more, message] of /** @type {[object, RegExp][]} */ ([
    [{ n: 72 }, /cannot take this product: a permuted B must have columns and depth in multiples of 32, not 72 and 96/],
    [{ aType: 'f32', bType: 'f32', cType: 'f32' }, /the plan cannot run: matrix units do not multiply in f32/],
    [{ transA: true, transB: false }, /a permuted B is of NN and NT/],
    [{ plan: { kernel: 'coop' } }, /only kernels in PTX take a B that is permuted/],
    [{ plan: planOf(relay) }, /a permuted B needs copies/],
  ]))
    assert.throws(() => kernels.matmul({ ...permuted, ...more }), message);
  assert.throws(
    () =>
      kernels.matmulGroup(
        [0, 1].map(() => ({ ...permuted, cType: 'f32' })),
        { tiling: 'm128n256-cp' },
      ),
    /product 0 has B permuted/,
  );
  assert.throws(() => createKernels(vk, { ptx: false }).matmul(permuted), /the device takes no PTX, or it is turned off/);
  // Where none was measured, a plan of the package.
  const { kernels: unmeasured } = untested();
  for (const form of forms) assert.equal(unmeasured.takesPermuted(form), false);
  const { tiling } = unmeasured.matmulPlan(permuted);
  assert.equal(/** @type {any} */ (tiling).load, 'tma');
});

test('the chooser takes PTX on Hopper, where it was measured to be faster', () => {
  const shape = /** @type {any} */ ({ m: 8192, n: 1024, k: 2752, transB: true, aType: 'bf16', bType: 'bf16', cType: 'bf16' });
  const plan = (/** @type {object} */ more = {}, /** @type {object} */ info = {}) => {
    const { kernels, vk } = untested({ info });
    assert.ok(vk);
    const { kernel, tiling, splits } = /** @type {any} */ (kernels.matmulPlan({ ...shape, ...more }));
    return kernel === 'ptx' ? { ...tiling, splits } : kernel;
  };
  assert.deepEqual([plan().bm, plan().splits, plan({ k: 1024, n: 2816 }).cached], [256, 1, true]);
  assert.equal(plan({ m: 2048, n: 1024, k: 1024 }).bm, 128);
  assert.equal(plan({ transA: true, transB: false, m: 1024, n: 1024, k: 8192, cType: 'f32' }).splits, 4);
  assert.equal(plan({}, { deviceName: 'NVIDIA H100 80GB HBM3' }).bm, 256);
  // Of few tiles, between the measured sizes, those that take the least time by what was measured of waves, launches and second passes.
  for (const [more, bm, splits] of /** @type {[object, number, number][]} */ ([
    [{}, 64, 1],
    [{ k: 4608 }, 64, 1],
    [{ n: 2048 }, 64, 1],
    [{ n: 3072, k: 1536 }, 128, 1],
    [{ n: 2048, k: 2048 }, 64, 1],
    [{ transB: false, m: 1280, k: 2048 }, 128, 1],
    [{ transB: false, k: 8192 }, 256, 8],
  ])) {
    const few = plan({ m: 512, ...more });
    assert.deepEqual([few.bm, few.splits], [bm, splits], JSON.stringify(more));
  }
  for (const other of [{ batch: 2 }, { n: 1020, beta: 1 }, { aType: 'f32', bType: 'f32', cType: 'f32', precision: 'bf16' }]) {
    assert.equal(plan(other), 'coop', JSON.stringify(other));
  }
  // Rows that are no multiple of 16 bytes: on copies where these take less time than they save.
  for (const [more, kernel] of /** @type {[object, string][]} */ ([
    [{ k: 2750 }, 'ptx'],
    [{ n: 1020 }, 'ptx'],
    [{ m: 4480, n: 10000, k: 650 }, 'ptx'],
    [{ m: 650, n: 650, k: 128 }, 'coop'],
  ])) {
    const { bm } = plan(more);
    assert.equal(bm === undefined ? 'coop' : 'ptx', kernel, JSON.stringify(more));
  }
  for (const info of [{ hasPtx: false }, { deviceName: 'NVIDIA H20' }, { deviceName: 'NVIDIA B200' }, { deviceName: 'NVIDIA A100' }]) {
    assert.equal(plan({}, info), 'coop', JSON.stringify(info));
  }
});

/** A device whose tables name small tilings, so that kernels are tested in little time. @param {Parameters<typeof ptxDevice>[0]} options @param {any} plan */
function smallDevice(options, plan) {
  const device = ptxDevice(options);
  const context = new KernelContext(device.vk);
  context.tuning = { ...context.tuning, ptxPlan: () => plan, permutedPlan: () => plan };
  return { ...device, kernels: matmulKernels(context) };
}

const SMALL = /** @type {any} */ ({ m: 72, n: 72, k: 40, transB: true, aType: 'bf16', bType: 'bf16', cType: 'bf16' });

test('a kernel is tested before its first use, in every form that a product asks for', async () => {
  for (const [plan, more] of /** @type {const} */ ([
    [planOf(relay), { bias: 1, residual: 1, activation: 'silu', cType: 'f32', half: 1 }],
    [planOf(relay, { wave: 3, tail: 2 }), { k: 96, beta: 1 }],
    [planOf(async, { splits: 2 }), { k: 96, transA: true, transB: false, cType: 'f32', beta: 1, aType: 'f16', bType: 'f16' }],
  ])) {
    const { kernels, ran } = smallDevice({}, plan);
    const warnings = await warningsOf(() => {
      assert.equal(kernels.matmulPlan({ ...SMALL, ...more }).kernel, 'ptx');
      assert.ok(ran.length === (plan.splits || plan.tail ? 2 : 1) && ran[0].groups[0] === 3);
      assert.equal(kernels.matmulPlan({ ...SMALL, ...more, m: 200 }).kernel, 'ptx');
    });
    assert.deepEqual(warnings, []);
    assert.ok(ran.length <= 2, 'once');
  }
});

test('a kernel that ends in SwiGLU, or in its gradient, is tested before its first use, and where it is wrong there are two passes', async () => {
  const wrong = (/** @type {string} */ text) => text.replace('ex2.approx.ftz.f32', 'neg.f32');
  for (const edit of [undefined, wrong]) {
    for (const pass of /** @type {const} */ (['forward', 'backward'])) {
      const { vk, kernels, ran } = smallDevice({ edit }, planOf({ ...relay, bn: 128 }));
      const [a, b, gateUp, y, dGateUp] = [0, 1, 2, 3, 4].map(() => vk.createBuffer(1 << 16));
      const args = { a, b, gateUp, m: 72, columns: 72, k: 40, type: /** @type {const} */ ('bf16') };
      const dispatches = () =>
        pass === 'forward' ? kernels.matmulGlu({ ...args, y }) : kernels.matmulGluBackward({ ...args, dGateUp, dy: y });
      const warnings = await warningsOf(() => {
        assert.equal(dispatches().length, edit ? 2 : 1);
        assert.equal(dispatches().length, edit ? 2 : 1);
      });
      assert.equal(ran.length, 1, 'once');
      assert.equal(warnings.length, edit ? 1 : 0);
      if (edit) assert.match(warnings[0].message, /its test found .* in result \d at row \d+, column \d+ of 104 x 152/);
    }
  }
});

test('a kernel that ends in an activation, or in its gradient, is tested before its first use, and where it is wrong there are two passes', async () => {
  const wrong = (/** @type {string} */ text) => text.replace('ex2.approx.ftz.f32', 'neg.f32');
  for (const edit of [undefined, wrong]) {
    for (const unit of /** @type {const} */ (['forward', 'backward'])) {
      const { vk, kernels, ran } = smallDevice({ edit }, planOf(relay));
      const [a, b, x, y, dy] = [0, 1, 2, 3, 4].map(() => vk.createBuffer(1 << 16));
      const args = /** @type {const} */ ({ a, b, x, m: 72, n: 72, k: 40, type: 'bf16', activation: 'gelu' });
      const dispatches = () =>
        unit === 'forward' ? kernels.matmulActivation({ ...args, y }) : kernels.matmulActivationBackward({ ...args, dx: y, dy });
      const types = /** @type {const} */ ({ aType: 'bf16', bType: 'bf16', cType: 'bf16' });
      const more = unit === 'forward' ? { transB: true, half: y } : { slopeOf: x };
      const warnings = await warningsOf(() => {
        assert.equal(kernels.takesActivation({ ...types, m: 72, n: 72, k: 40, activation: 'gelu', unit, ...more }), !edit);
        assert.equal(dispatches().length, edit ? 2 : 1);
      });
      assert.equal(ran.length, 1, 'once');
      assert.equal(warnings.length, edit ? 1 : 0);
      if (edit) assert.match(warnings[0].message, /its test found .* at row \d+, column \d+/);
      else {
        const access = unit === 'forward' ? ['none', 'write'] : ['read', 'none'];
        assert.deepEqual(ran[0].kernel.access, ['read', 'read', 'write', 'none', ...access, 'none']);
      }
    }
  }
});

const FAULTS = /** @type {const} */ ([
  [
    'wrong sums',
    (/** @type {string} */ text) => text.replace('xor.b32', 'or.b32'),
    /its test found .* in D at row \d+, column \d+ of 104 x 88/,
  ],
  [
    'rows stored that are not there',
    (/** @type {string} */ text) => text.replace(/setp\.lt\.u32 (%p\d+), (%r\d+), %r1;/g, 'setp.ge.u32 $1, $2, 0;'),
    /its test found memory written outside of D|has changed, which no binding/,
  ],
  [
    'text that does not assemble',
    () => {
      throw new Error('the driver does not take the module');
    },
    /the driver does not take the module/,
  ],
]);
for (const [fault, edit, message] of FAULTS) {
  test(`a kernel with ${fault} is not used, and a warning says so once`, async () => {
    const { kernels, ran } = smallDevice({ edit: /** @type {any} */ (edit) }, planOf(relay));
    const warnings = await warningsOf(() => {
      const { kernel, because = '', fallback } = kernels.matmulPlan(SMALL);
      assert.deepEqual([kernel, fallback], ['coop', true]);
      assert.match(because, /^the PTX kernels cannot take it: /);
      assert.match(because, message);
      assert.equal(kernels.matmulPlan({ ...SMALL, k: 64 }).kernel, 'coop');
      assert.equal(ran.length, 1, 'no further kernel is tried');
      assert.throws(() => kernels.matmulPlan({ ...SMALL, plan: planOf(relay) }), message);
    });
    assert.equal(warnings.length, 1);
    assert.equal(warnings[0].code, 'HELIOS_PTX');
    assert.match(warnings[0].message, /the SPIR-V kernels compute matrix products in place of matmul_ptx_nt_bf16 on NVIDIA H200/);
    assert.match(warnings[0].message, message);
  });
}

test('a kernel that is first needed while a graph is recorded is not tested and not used', async () => {
  const { kernels, record, ran } = smallDevice({}, planOf(relay));
  const warnings = await warningsOf(() => {
    record(true);
    const { kernel, because = '', fallback } = kernels.matmulPlan(SMALL);
    assert.deepEqual([kernel, fallback], ['coop', true]);
    assert.match(because, /^the PTX kernels cannot take it: .*a graph is being recorded/);
    record(false);
    assert.equal(kernels.matmulPlan(SMALL).kernel, 'coop', 'the same product has the same kernel from then on');
    assert.equal(kernels.matmulPlan({ ...SMALL, k: 64 }).kernel, 'ptx');
  });
  assert.equal(ran.length, 1);
  assert.equal(warnings.length, 1);
  assert.match(warnings[0].message, /a graph is being recorded/);
});
