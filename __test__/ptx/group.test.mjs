// Products by one launch, on the stand-in device that runs PTX: every form, sizes that fill no tile, sums added to C; what is not
// taken, and when products are faster together.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KernelContext } from '../../kernels/base.mjs';
import { matmulKernels } from '../../kernels/matmul.mjs';
import { warningsOf } from '../lib/warnings.mjs';
import { ptxDevice } from './device.mjs';
import { checkGroup } from './product.mjs';

const relay = { bm: 64, bn: 64, bk: 32, stages: 2, warpgroups: 1, load: 'ld', ahead: 2 };
const async = { bm: 64, bn: 64, bk: 16, stages: 4, warpgroups: 1, load: 'cp', ahead: 2 };
const direct = { bm: 64, bn: 64, bk: 64, stages: 2, warpgroups: 1, load: 'ld', ahead: 1, direct: true };
const both = { bm: 128, bn: 64, bk: 16, stages: 3, warpgroups: 2, load: 'tma', ahead: 2 };
const copied = { bm: 128, bn: 64, bk: 64, bkB: 32, stages: 3, warpgroups: 1, load: 'tma', direct: true };

/** @param {Parameters<typeof ptxDevice>[0]} [options] */
function untested(options) {
  const device = ptxDevice(options);
  return { ...device, kernels: matmulKernels(new KernelContext(device.vk), { verify: () => undefined, verifyGroup: () => undefined }) };
}

/** @param {import('./product.mjs').Group} group */
function check(group) {
  const { vk, kernels, ran } = untested();
  assert.equal(checkGroup(vk, kernels, group).length, group.tail ? 2 : 1);
  assert.deepEqual(
    ran[0].kernel.access,
    // Tensor maps where operands are copied, and parts.
    [
      ...group.sizes.flatMap(() => ['read', 'read', group.beta ? 'readwrite' : 'write']),
      ...(group.tiling.load === 'tma' || group.tail ? ['write'] : []),
    ],
  );
}

const GROUPS = /** @type {any[]} */ ([
  { form: 'TN', sizes: '72x72 64x136', k: 64, tiling: async },
  { form: 'TN', sizes: '8x200 64x64 136x8', k: 37, tiling: async, alpha: 0.5, beta: 2, wave: 3 },
  { form: 'TN', sizes: '8x200 64x64 136x8', k: 37, tiling: async, alpha: 0.5, beta: 1, wave: 3 },
  { form: 'TN', sizes: '64x192 64x64 128x64', k: 96, tiling: both, beta: 1, wave: 3 },
  { form: 'TN', sizes: '72x72 200x136', k: 160, tiling: copied, wave: 3, tail: 5, beta: 1 },
  { form: 'TN', sizes: '64x64 72x8 8x72 64x64', k: 48, tiling: async, type: 'f16', wave: 16 },
  { form: 'NT', sizes: '72x72 200x64', k: 40, tiling: relay, beta: -1 },
  { form: 'NN', sizes: '72x72 136x64', k: 72, tiling: direct },
  { form: 'NN', sizes: '72x72 136x64', k: 96, tiling: copied },
  { form: 'TN', sizes: '136x72 64x136', k: 128, tiling: copied },
  { form: 'TN', sizes: '8x200 64x64 136x8 200x72', k: 96, tiling: copied, alpha: 0.5, beta: 2, wave: 3 },
  { form: 'TN', sizes: '64x192 64x64 128x64 192x128', k: 96, tiling: both, alpha: 0.5, beta: 2, wave: 3 },
  { form: 'TN', sizes: '72x72 64x136', k: 96, tiling: async, tail: 3 },
  { form: 'TN', sizes: '192x64 64x192', k: 128, tiling: both, wave: 3, tail: 2 },
  { form: 'TN', sizes: '72x72 200x136', k: 160, tiling: copied, wave: 3, tail: 5, beta: 2, alpha: 0.5 },
]);
for (const { sizes, ...group } of GROUPS) {
  const list = sizes.split(' ').map((/** @type {string} */ size) => size.split('x').map(Number));
  test(`${group.form} of ${sizes}: ${JSON.stringify({ ...group, tiling: group.tiling.load })}`, () => check({ ...group, sizes: list }));
}

test('tail may ask for more than there is: no more parts than stages, and tiles of several products stay whole', () => {
  const dispatches = (/** @type {number[][]} */ sizes, /** @type {object} */ more) => {
    const { vk, kernels } = untested();
    return checkGroup(vk, kernels, { form: 'TN', sizes, k: 48, tiling: async, wave: 3, tail: 64, ...more }).length;
  };
  const [one, two, three] = [64, 128, 192].map((columns) => [64, columns]);
  assert.equal(dispatches([three, one], {}), 2, 'three parts');
  assert.equal(dispatches([three, one], { k: 16 }), 1, 'one stage');
  assert.equal(dispatches([three, one, one], {}), 1, 'tiles of the last two products are left');
  assert.equal(dispatches([one, one, two, two], {}), 1, 'no tiles are left');
  assert.equal(dispatches([two, two], { wave: 65_535 }), 1, 'less than a wave');
  const broad = (/** @type {number} */ m, /** @type {number} */ n, /** @type {object} */ more) =>
    dispatches(
      [m, n].map((rows, i) => [rows, i === 0 ? 192 : 64]),
      { tiling: 'm256n192-tma', ...more },
    );
  assert.equal(broad(256, 64, { k: 32, wave: 1 }), 1, 'tiles fill waves of one');
  assert.equal(broad(320, 256, { k: 64, wave: 2 }), 2, 'four parts of a plan of the package');
});

/** Weight gradients of sizes, on a device whose tables name a small tiling. @param {Parameters<typeof ptxDevice>[0]} [options] @param {any} [tiling] */
function small(options, tiling = async) {
  const device = ptxDevice({ info: { multiprocessors: 8 }, ...options });
  const context = new KernelContext(device.vk);
  context.tuning = { ...context.tuning, ptxGroup: () => [{ tiling, rate: 1 }] };
  const [a, b] = [0, 1].map(() => device.vk.createBuffer(1 << 16));
  const product = (/** @type {number} */ m, /** @type {number} */ n, /** @type {object} */ more = {}) => ({
    ...{ a, b, c: device.vk.createBuffer(4 * m * n), m, n, k: 32, transA: true, aType: /** @type {const} */ ('bf16') },
    ...{ bType: /** @type {const} */ ('bf16'), ...more },
  });
  return { ...device, kernels: matmulKernels(context), product };
}

/** A group's plan but for why it was chosen. @param {ReturnType<ReturnType<typeof matmulKernels>['matmulGroupPlan']>} plan */
function withoutReason(plan) {
  if (!plan) return undefined;
  const { because, ...rest } = plan;
  return rest;
}

test('products are taken together where that takes less time by the rates of the tables', () => {
  const { kernels, product, ran } = small();
  // Tiles of 64 x 64 on 8 multiprocessors.
  const taken = (/** @type {any[]} */ ...list) => kernels.matmulGroupPlan(list) !== undefined;
  assert.ok(taken(product(256, 64), product(64, 256)), '4 and 4 tiles');
  assert.ok(taken(product(256, 64), product(64, 64)), '4 and 1');
  const deep = (/** @type {number} */ m, /** @type {number} */ n) => product(m, n, { k: 8192 });
  assert.ok(taken(product(512, 128), product(512, 192)), 'two and three whole waves: a launch less');
  assert.ok(!taken(deep(512, 128), deep(512, 192)), 'the same, of which a launch is not one per cent');
  assert.ok(!taken(deep(512, 64), deep(64, 64)), 'one whole wave, and one tile');
  assert.ok(taken(product(320, 256), product(64, 192)), 'two and a half waves, and 3 tiles');
  assert.ok(!taken(product(256, 64)), 'one product');
  assert.ok(!taken(...Array.from({ length: 5 }, () => product(64, 192))), 'five');
  assert.deepEqual(
    ran.map(({ kernel }) => kernel.name),
    ['matmul_ptx_tn_bf16_group2'],
    'a kernel is tested once',
  );
});

test('the last tiles are split where that takes less time, and all of them are of the last product', () => {
  const { kernels, product, ran } = small();
  // Of 64 columns, by how many tiles they have.
  const plan = (/** @type {number} */ k, /** @type {number[]} */ ...tiles) =>
    withoutReason(kernels.matmulGroupPlan(tiles.map((count) => product(64 * count, 64, { k }))));
  assert.deepEqual(plan(2048, 5, 5, 7), { tiling: async, tail: 2 }, 'one behind two waves, parts of 1,024');
  assert.deepEqual(plan(4096, 5, 5, 7), { tiling: async, tail: 4 });
  assert.deepEqual(plan(4096, 5, 5, 6), { tiling: async, tail: 1 }, 'whole waves');
  assert.equal(plan(4096, 5, 5, 8, 1), undefined, 'three behind two waves, of which two are not of the last product');
  assert.deepEqual(
    ran.map(({ kernel }) => kernel.name),
    ['matmul_ptx_tn_bf16_group3', 'matmul_reduce_tail', 'matmul_ptx_tn_bf16_group3'],
    'tests of a kernel with parts, and of one without',
  );
});

test('weight gradients of an H200 are taken together, also where they are added to C', () => {
  const { vk, kernels } = untested();
  const [a, b, c, d] = [0, 1, 2, 3].map(() => vk.createBuffer(16));
  const taken = (/** @type {object} */ more) =>
    kernels.matmulGroupPlan(
      [
        [1024, c],
        [3072, d],
      ].map(([m, c]) => /** @type {any} */ ({ a, b, c, m, n: 1024, k: 8192, transA: true, aType: 'bf16', bType: 'bf16', ...more })),
    )?.tiling;
  assert.equal(taken({}), 'm256n128-tma-l1');
  assert.equal(taken({ k: 2048 }), 'm256n128-tma-l1');
  assert.equal(taken({ k: 2056 }), 'm128n256-cp');
  assert.equal(taken({ k: 512 }), 'm256n128-tma-l1');
  assert.equal(taken({ k: 520, beta: 1 }), 'm128n256-cp');
  assert.equal(taken({ beta: 1 }), 'm256n128-tma-l1');
  for (const more of [{ k: 256 }, { beta: 2 }, { transA: false }, { aType: 'f32', bType: 'f32' }]) assert.equal(taken(more), undefined);
});

test('groups of the GPTs on an H200, and what they save by the model of their time', () => {
  const { vk, kernels } = untested();
  const [a, b] = [0, 1].map(() => vk.createBuffer(16));
  const list = (/** @type {string[]} */ ...sizes) =>
    sizes.map((size) => {
      const [m, n] = size.split('x').map(Number);
      return /** @type {any} */ ({ a, b, c: vk.createBuffer(16), m, n, k: 8192, transA: true, aType: 'bf16', bType: 'bf16' });
    });
  /** What a group saves, in microseconds, its tiling and parts. @param {string[]} sizes */
  const group = (...sizes) => {
    const saving = kernels.matmulGroupSaving(list(...sizes));
    const plan = kernels.matmulGroupPlan(list(...sizes));
    if (plan) {
      // The reason is the figures of the saving.
      const [, together, apart] = /^model: (\d+) µs in one launch, (\d+) in \d$/.exec(plan.because ?? '') ?? assert.fail(plan.because);
      assert.ok(Math.abs(Number(apart) - Number(together) - Number(saving)) <= 1, plan.because);
    }
    return saving && [Math.round(saving), ...Object.values(withoutReason(plan) ?? [])];
  };
  // Of width 2048, tiles of 256 x 192 for 132 multiprocessors: 232, 473, 88 and 264 a layer, one more than eight waves.
  const [down, gateUp, out, qkv] = ['2048x5504', '11008x2048', '2048x2048', '6144x2048'];
  assert.deepEqual(group(down, gateUp, out, qkv), [277, 'm256n192-tma', 8]);
  assert.deepEqual(group(down, gateUp), [164, 'm256n192-tma', 5]);
  assert.deepEqual(group(out, qkv), [57, 'm256n192-tma', 3]);
  // Of width 1024: 60, 132, 24 and 72 of those, 88, 176, 32 and 96 of 256 x 128.
  assert.deepEqual(group('1024x2752', '5504x1024', '1024x1024', '3072x1024'), [116, 'm256n192-tma', 5]);
  assert.deepEqual(group('1024x2752', '5504x1024'), [45, 'm256n128-tma-l1', 1]);
  assert.deepEqual(group('1024x1024', '3072x1024'), [51, 'm256n128-tma-l1', 1]);
  // Rows that are not in blocks of 64.
  assert.deepEqual(group('1024x2752', '5496x1024'), [45, 'm256n128-tma-l1', 1]);
  assert.equal(group('1024x1024'), undefined);
});

test('products that one launch cannot compute: an error that says why, and no plan', () => {
  const { kernels, product } = small();
  const first = product(256, 64);
  const refused = (/** @type {any} */ other, /** @type {RegExp} */ message) => {
    assert.throws(() => kernels.matmulGroup([first, other], { tiling: /** @type {any} */ (async) }), message);
    assert.equal(kernels.matmulGroupPlan([first, other]), undefined);
  };
  refused(product(64, 256, { k: 48 }), /product 1 has k 48, the first 32/);
  refused(product(64, 256, { beta: 1 }), /product 1 has beta 1, the first 0/);
  refused(product(64, 256, { alpha: 2 }), /another alpha/);
  refused(product(64, 256, { cType: 'bf16' }), /product 1 does not store f32 alone/);
  refused(product(64, 256, { bias: first.a }), /product 1 has a bias, a residual or an activation/);
  const second = { transA: false, a2: first.a, b2: first.b, k2: 8 };
  assert.throws(
    () => kernels.matmulGroup([product(64, 256, second), product(64, 256, second)], { tiling: /** @type {any} */ (copied) }),
    /product 0 has a second pair of operands/,
  );
  refused(product(64, 252), /product 1: rows of B have 252 elements, not a multiple of 8/);
  refused(product(64, 256, { transA: false }), /product 1 has transA false, the first true/);
  assert.throws(
    () => kernels.matmulGroup([product(256, 64, { k: 48 }), product(64, 256, { k: 48 })], { tiling: /** @type {any} */ (copied) }),
    /copies take a depth in multiples of 32, not 48/,
  );
  for (const more of [{ tail: 0 }, { tail: 65 }, { tail: 1.5 }, { wave: 0 }, { wave: 65_536 }])
    assert.throws(
      () => kernels.matmulGroup([first, product(64, 256)], { tiling: 'm128n256-cp', ...more }),
      /matmulGroup: (tail|wave) must be/,
    );
  assert.throws(() => kernels.matmulGroup([first]), /no plan is known/);
  assert.throws(() => kernels.matmulGroup([first], { tiling: 'm128n256-cp' }), /1 products, not 2 to 4/);
  assert.throws(
    () => kernels.matmulGroup([first, product(64, 256)], { tiling: /** @type {any} */ (direct) }),
    /A cannot go to registers with its rows contiguous/,
  );
  const narrow = /** @type {any} */ ({ buffer: first.c, size: 65_532 });
  assert.throws(
    () => kernels.matmulGroup([product(64, 256), product(256, 64, { c: { buffer: narrow, offset: 0 } })]),
    /c needs 16384 elements/,
  );
  assert.throws(() => kernels.matmulGroup([first, product(256, 64, { c: first.c })]), /c is written and must not overlap c/);
});

test('last tiles are not split where their parts are more than a binding can be', () => {
  // Four parts of 64 x 64.
  const { kernels, product } = small({ info: { multiprocessors: 8, maxStorageBufferRange: 65_536 } });
  const list = (/** @type {number} */ tiles) => [5, 5, tiles].map((count) => product(64 * count, 64, { k: 4096 }));
  assert.deepEqual(withoutReason(kernels.matmulGroupPlan(list(7))), { tiling: async, tail: 4 });
  assert.deepEqual(withoutReason(kernels.matmulGroupPlan(list(8))), { tiling: async, tail: 2 });
  assert.throws(
    () => kernels.matmulGroup(list(8), { tiling: /** @type {any} */ (async), tail: 3 }),
    /they take 98304 bytes of workspace, a binding has 65536/,
  );
});

test('a group whose B is copied passes its test, at a depth in multiples of 32', () => {
  const { kernels, product, ran } = small({}, copied);
  const list = (/** @type {number} */ k) => [product(512, 64, { k }), product(64, 256, { k })];
  assert.ok(kernels.matmulGroupPlan(list(96)));
  assert.equal(ran.length, 1);
  assert.equal(kernels.matmulGroupPlan(list(72)), undefined);
});

test('a group whose operands are both copied passes its test, with and without parts, of rows and columns in multiples of 64', () => {
  const { kernels, product, ran } = small({}, both);
  const plan = (/** @type {number[][]} */ ...sizes) =>
    withoutReason(kernels.matmulGroupPlan(sizes.map(([m, n, k]) => product(m, n, { k }))));
  assert.deepEqual(plan([512, 64, 96], [128, 256, 96]), { tiling: both, tail: 1 });
  assert.deepEqual(plan([640, 64, 2048], [640, 64, 2048], [896, 64, 2048]), { tiling: both, tail: 2 });
  assert.equal(plan([512, 64, 96], [128, 248, 96]), undefined);
  assert.deepEqual(
    ran.map(({ kernel }) => kernel.name),
    ['matmul_ptx_tn_bf16_group2', 'matmul_ptx_tn_bf16_group3', 'matmul_reduce_tail'],
  );
  assert.throws(
    () => kernels.matmulGroup([product(512, 64, { k: 96 }), product(120, 256, { k: 96 })], { tiling: /** @type {any} */ (both) }),
    /one launch cannot compute these products: copies of both operands take rows and columns in multiples of 64, not 120 and 256/,
  );
});

test('a group whose kernel fails its test is not taken', async () => {
  // The second product's tiles are taken for the first one's.
  const edit = (/** @type {string} */ text) =>
    text.replaceAll(/setp\.ge\.u32 (%p\d+), (%r\d+), (%r\d+);(?=\n {2}@!%p\d+ bra)/g, 'setp.ne.u32 $1, $2, $2;');
  const { kernels, product } = small({ edit });
  const [warning] = await warningsOf(() => assert.equal(kernels.matmulGroupPlan([product(256, 64), product(64, 256)]), undefined));
  assert.match(warning.message, /in place of matmul_ptx_tn_bf16_group2 on .*: its test found/);
});
