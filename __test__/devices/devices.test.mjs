// Devices of which only facts are here: that every kernel stays within the limits of each, and which kernels each gets.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { createKernels } from '../../kernels/index.mjs';
import { packBytes } from '../lib/packed.mjs';
import { chosenNow, groupsOf } from './choices.mjs';
import { compiledOn } from './compiled.mjs';
import { FACTS, USABLE, brokenBy, brokenByDispatch, infoOf, needsOfPipeline, pipelineOf, recorder } from './device.mjs';
import { imposed } from './impose.mjs';
import { needsOf } from './module.mjs';
import { leftOut, withTable } from '../../scripts/platforms/devices-table.mjs';
import { PROBLEMS, TooLarge, buildOn } from './problems.mjs';

test('every fact of a device has a source, and every source gives one', () => {
  const groups = [...Object.values(FACTS.drivers), ...Object.values(FACTS.devices).map(({ facts }) => facts)].flat();
  assert.deepEqual([...new Set(groups.map(({ from }) => from))].sort(), Object.keys(FACTS.sources).sort());
  for (const { driver } of Object.values(FACTS.devices)) assert.ok(driver === undefined || driver in FACTS.drivers, driver);
});

test('what a module asks for: workgroup, shared memory, push constants, matrices', () => {
  const device = recorder(infoOf('RTX 3060'));
  const { shaders } = device.vk;
  // Two stages of 16 rows of each operand, with four more elements.
  const tiles = needsOf(shaders.matmul_f32.spirv, [256, 128, 128, 16, 8, 8, 8, 0, 0, 0, 0, 0, 2]);
  assert.deepEqual([tiles.workgroup, tiles.shared, tiles.push], [[256, 1, 1], 2 * 16 * 4 * (132 + 132), shaders.matmul_f32.pushBytes]);
  // As declared, without a specialization.
  assert.deepEqual(needsOf(shaders.transpose_f32.spirv).workgroup, [16, 16, 1]);
  const words = [128, 64, 64, 32, 32, 32, 16, 8, 16, 32, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
  const { matrices, workgroup, products } = needsOf(shaders.matmul_coop_f16.spirv, words);
  assert.deepEqual(workgroup, [128, 1, 1]);
  const shapes = matrices.map(({ rows, columns, use, component }) => `${use} ${rows}x${columns} of type ${component}`);
  assert.deepEqual([...new Set(shapes)].sort(), ['A 16x16 of type 0', 'B 16x8 of type 0', 'accumulator 16x8 of type 1']);
  const sides = { MSize: 16, NSize: 8, KSize: 16 };
  const types = { AType: 0, BType: 0, CType: 1, ResultType: 1, saturatingAccumulation: false, scope: 3 };
  assert.deepEqual(products, [{ ...sides, ...types }]);
  const inBf16 = needsOf(shaders.matmul_coop_bf16.spirv, words);
  assert.deepEqual(inBf16.products, [{ ...sides, ...types, AType: 1_000_141_000, BType: 1_000_141_000 }]);
});

test('a plan beyond a limit is noticed', () => {
  const info = infoOf('RX 7900 XTX');
  const device = recorder(info);
  const { matmul } = createKernels(device.vk, { tuning: false });
  const buffer = device.vk.createBuffer;
  const types = /** @type {const} */ ({ aType: 'f16', bType: 'f16' });
  const dispatch = matmul({ m: 512, n: 512, k: 512, ...types, a: buffer(2 ** 19), b: buffer(2 ** 19), c: buffer(2 ** 20) })[0];
  const made = device.pipelines.get(dispatch.pipeline);
  assert.ok(made);
  const { shared, push, workgroup } = needsOfPipeline(made);
  assert.deepEqual(brokenByDispatch(info, device, dispatch), []);
  for (const [changed, found] of /** @type {[object, RegExp][]} */ ([
    [{ maxComputeSharedMemorySize: shared - 1 }, /bytes of shared memory/],
    [{ maxPushConstantsSize: push - 4 }, /bytes of push constants/],
    [{ maxComputeWorkGroupInvocations: workgroup[0] - 1 }, /invocations/],
    [{ maxComputeWorkGroupSizeX: workgroup[0] - 1 }, /in X/],
    [{ requiredSubgroupSizeStages: 0 }, /for no stage/],
    [{ maxSubgroupSize: 32 }, /required subgroups of 64/],
    [{ maxComputeWorkgroupSubgroups: 0 }, /in subgroups of 64/],
    [{ computeFullSubgroupsSupported: false }, /full subgroups/],
    [{ f16Supported: false }, /Float16/],
    [{ cooperativeMatrixProperties: [] }, /a matrix A of 16 x 16/],
  ]))
    assert.match(brokenBy({ ...info, ...changed }, made).join('; '), found);
  assert.match(brokenByDispatch({ ...info, maxComputeWorkGroupCountX: 1 }, device, dispatch).join(), /workgroups in X/);
  assert.match(brokenByDispatch({ ...info, maxStorageBufferRange: 2 ** 18 }, device, dispatch).join(), /a binding of 524288 bytes/);
  assert.match(brokenByDispatch({ ...info, maxBufferBytes: 2 ** 19 }, device, dispatch).join(), /a buffer of 1048576 bytes/);
  const [first, ...others] = dispatch.buffers;
  const bind = (/** @type {object} */ range) => ({
    ...dispatch,
    buffers: [{ buffer: /** @type {number} */ (first), ...range }, ...others],
  });
  assert.deepEqual(brokenByDispatch(info, device, bind({ offset: 64 })), []);
  assert.match(brokenByDispatch({ ...info, minStorageBufferOffsetAlignment: 128 }, device, bind({ offset: 64 })).join(), /from byte 64/);
  assert.match(brokenByDispatch(info, device, bind({ offset: 64, size: 2 ** 19 })).join(), /to byte 524352 of 524288/);
});

test('matrices of another component, and sides that no one shape has together, are noticed', () => {
  const info = infoOf('RTX 4090');
  const { shaders } = recorder(info).vk;
  const words = [128, 64, 64, 32, 32, 32, 16, 8, 16, 32, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
  const of = (/** @type {string} */ type) => ({
    name: type,
    words: shaders[`matmul_coop_${type}`].spirv,
    bindings: 5,
    options: { specialization: words },
  });
  const shape = (/** @type {number[]} */ [MSize, NSize, KSize], type = 0) => ({
    ...{ ...info.cooperativeMatrixProperties[0], MSize, NSize, KSize, AType: type, BType: type },
  });
  const on = (/** @type {string} */ type, /** @type {any[]} */ shapes, more = {}) =>
    brokenBy({ ...info, cooperativeMatrixProperties: shapes, ...more }, of(type)).join('; ');
  assert.equal(on('f16', [shape([16, 8, 16])]), '');
  // Each matrix is in one of these shapes, and the product in none.
  assert.equal(on('f16', [shape([16, 16, 16]), shape([32, 8, 16]), shape([16, 8, 32])]), 'a product 16 8 16 0 0 1 1 false 3');
  const [f16, bf16] = [0, 1_000_141_000];
  assert.match(on('f16', [shape([16, 8, 16], bf16)]), /a matrix A of 16 x 16 of component type 0/);
  assert.match(on('bf16', [shape([16, 8, 16], f16)]), /a matrix A of 16 x 16 of component type 1000141000/);
  assert.equal(on('bf16', [shape([16, 8, 16], bf16)]), '');
  assert.match(on('bf16', [shape([16, 8, 16], bf16)], { bf16Supported: false }), /BFloat16TypeKHR/);
  assert.match(on('bf16', [shape([16, 8, 16], bf16)], { coopMatBf16Supported: false }), /BFloat16CooperativeMatrixKHR/);
  assert.match(on('f16', [{ ...shape([16, 8, 16]), scope: 2 }]), /a product/);
  assert.match(on('f16', [{ ...shape([16, 8, 16]), saturatingAccumulation: true }]), /a product/);
});

test('a kernel in PTX beyond what the addon gives it is noticed', () => {
  const info = infoOf('H100');
  const ptx = {
    ptx: '.shared .align 16 .b8 own[1024];',
    entry: 'k',
    bindings: 3,
    pushBytes: 16,
    sharedBytes: 47 << 10,
    workgroupSize: [256, 1, 1],
  };
  const on = (/** @type {object} */ kernel, more = {}) => brokenBy({ ...info, ...more }, pipelineOf([{ ...ptx, ...kernel }])).join('; ');
  assert.equal(on({}), '');
  assert.equal(on({ sharedBytes: 48 << 10 }), '50176 bytes of shared memory');
  assert.equal(on({ workgroupSize: [1024, 2, 1] }), '2048 invocations');
  assert.match(on({ pushBytes: 4096 }), /4096 bytes of push constants after 3 addresses/);
  assert.equal(on({}, { hasPtx: false }), 'a kernel in PTX');
});

test('under imposed limits every dispatch is held against them, in each form that kernels use', () => {
  const real = {
    ...infoOf('RX 7900 XTX'),
    maxStorageBufferRange: 2 ** 30,
    maxComputeWorkGroupCountX: 2 ** 31,
    minStorageBufferOffsetAlignment: 16,
  };
  const device = recorder(/** @type {any} */ (real));
  const calls = {
    ...device.vk,
    batchDispatch: () => undefined,
    batchDispatchMany: () => undefined,
    batchExecuteAllProfiled: () => undefined,
  };
  // 128 MiB of a buffer, 65,535 workgroups, ranges from multiples of 256.
  const vk = imposed(calls, 'the least of Vulkan 1.3');
  const { spirv, bindings, pushBytes } = vk.shaders.transpose_f32;
  assert.throws(
    () => vk.createPipeline(spirv, bindings, pushBytes, { name: 'transpose' }),
    /transpose on the least of Vulkan 1.3: 256 invocations/,
  );
  const mali = imposed(calls, 'Mali-G720');
  assert.ok(mali.createPipeline(spirv, bindings, pushBytes, { name: 'transpose' }));
  const [small, large] = [vk.createBuffer(2 ** 20), vk.createBuffer(2 ** 28)];
  const pipeline = 1000;
  const send = /** @type {const} */ ({
    dispatch: (/** @type {any[]} */ buffers, /** @type {number} */ x) => vk.dispatch(pipeline, buffers, x),
    batchDispatch: (/** @type {any[]} */ buffers, /** @type {number} */ x) => vk.batchDispatch(pipeline, buffers, x),
    batchDispatchMany: (/** @type {any[]} */ buffers, /** @type {number} */ x) =>
      vk.batchDispatchMany(
        packBytes([
          { pipeline, buffers: [small] },
          { pipeline, buffers, groups: [x, 1, 1] },
        ]),
        2,
      ),
    batchExecuteAll: (/** @type {any[]} */ buffers, /** @type {number} */ x) =>
      vk.batchExecuteAll(packBytes([{ pipeline, buffers, groups: [x, 1, 2] }]), 1),
    batchExecuteAllProfiled: (/** @type {any[]} */ buffers, /** @type {number} */ x) =>
      vk.batchExecuteAllProfiled(packBytes([{ pipeline, buffers, groups: [x, 1, 1] }]), 1),
  });
  for (const [form, call] of Object.entries(send)) {
    call([small, { buffer: large, offset: 256, size: 2 ** 27 }], 65535);
    assert.throws(() => call([small], 65536), /on the least of Vulkan 1.3: 65536 workgroups in X/, form);
    assert.throws(() => call([small, large], 1), /a binding of 268435456 bytes/, form);
    assert.throws(() => call([{ buffer: small, offset: 16, size: 64 }], 1), /a binding from byte 16/, form);
  }
});

for (const names of groupsOf(USABLE)) {
  test(`every kernel is within the limits of ${names.join(', ')}`, () => {
    const info = infoOf(names[0]);
    const device = recorder(info);
    const kernels = createKernels(device.vk, { tuning: false });
    /** @type {string[]} */
    const broken = [];
    let [built, large] = [0, 0];
    for (const problem of PROBLEMS) {
      try {
        const dispatches = buildOn(problem, kernels, info, device.vk);
        if (dispatches.length > 0) built++;
        for (const dispatch of dispatches)
          broken.push(...brokenByDispatch(info, device, dispatch).map((what) => `${problem.name}: ${what}`));
      } catch (error) {
        if (!(error instanceof TooLarge)) throw new Error(`${problem.name}: ${error}`, { cause: error });
        large++;
      }
    }
    assert.deepEqual(broken, []);
    assert.ok(built > 200 && large < 60, `${built} problems, and ${large} with tensors larger than a binding`);
  });
}

test('compiled functions, reductions and a training step are within the limits of every device', () => {
  for (const [name] of groupsOf(USABLE)) {
    const info = infoOf(name);
    const made = compiledOn(info);
    assert.ok(made.length > 50, `${name}: ${made.length} pipelines`);
    assert.deepEqual(
      made.flatMap((pipeline) => brokenBy(info, pipeline).map((what) => `${name}, ${pipeline.name}: ${what}`)),
      [],
    );
  }
});

test('the kernels that each device gets are those that are written down', () => {
  const kept = JSON.parse(readFileSync(new URL('./choices.json', import.meta.url), 'utf8'));
  // Where a change is meant: node __test__/devices/choices.mjs > __test__/devices/choices.json, and say in the commit what is better.
  assert.deepEqual(chosenNow(), kept);
});

test('matrices are multiplied in the shapes that the device lists, in subgroups of a size that is known', () => {
  const plan = (/** @type {string} */ name, type = 'f16') => {
    const { matmulPlan, matmulSupports } = createKernels(recorder(infoOf(name)).vk, { tuning: false });
    if (!matmulSupports(/** @type {any} */ (type))) return undefined;
    const { tm, tn, tk } = matmulPlan(/** @type {any} */ ({ m: 4096, n: 4096, k: 4096, aType: type, bType: type }));
    return [tm, tn, tk];
  };
  assert.deepEqual(plan('RTX 4090'), [16, 16, 16]);
  for (const type of ['f16', 'bf16']) assert.deepEqual(plan('RX 9070 XT', type), [16, 16, 16]);
  assert.deepEqual(plan('Arc B580'), [8, 16, 16]);
  assert.deepEqual(plan('Iris Xe'), [8, 8, 16]);
  for (const name of ['Apple M', 'Adreno 750', 'Mali-G720', 'RX 7900 XTX']) assert.equal(plan(name, 'bf16'), undefined, name);
  const matrices = { coopMatSupported: true, cooperativeMatrixProperties: infoOf('RTX 4090').cooperativeMatrixProperties };
  const on = (/** @type {object} */ more) => createKernels(recorder({ ...infoOf('Apple M'), ...matrices, ...more }).vk, { tuning: false });
  // As long as subgroups may have 4 to 32 invocations, nobody knows how many share a matrix.
  assert.equal(on({}).matmulSupports('f16'), false);
  assert.equal(on({ requiredSubgroupSizeStages: 32 }).matmulSupports('f16'), true);
  assert.equal(on({ minSubgroupSize: 32 }).matmulSupports('f16'), true);
});

test('what a driver cannot run of a device is named: shapes of matrices, sizes of subgroups, PTX', () => {
  const matrix = (/** @type {number} */ side) => ({ MSize: side, NSize: side, KSize: side, AType: 0, ResultType: 1 });
  const lavapipe = { subgroupSize: 8, hasPtx: false, cooperativeMatrixProperties: [matrix(8), { ...matrix(8), AType: 7, ResultType: 9 }] };
  assert.deepEqual(leftOut(infoOf('H100'), lavapipe), [
    'matrices of 16x16x16 in bf16, 16x16x16 in f16, 16x8x16 in f16, 16x8x8 in f16: the driver has 8x8x8 in f16',
    "subgroups of 32: the driver's have 8",
    'kernels in PTX: the driver takes none',
  ]);
  assert.deepEqual(leftOut(infoOf('Iris Xe'), { ...lavapipe, cooperativeMatrixProperties: [] }), [
    'matrices of 8x8x16 in f16: the driver has none',
    "subgroups of 8 to 32: the driver's have 8",
  ]);
  assert.deepEqual(leftOut(infoOf('Mali-G720'), { ...lavapipe, subgroupSize: 16 }), []);
  assert.deepEqual(leftOut(lavapipe, lavapipe), []);
});

test('the page has the table of what ran with the limits of each device', () => {
  const [results, page] = ['devices.json', 'testing.md'].map((file) =>
    readFileSync(new URL(`../../docs/${file}`, import.meta.url), 'utf8'),
  );
  const found = /** @type {import('../../scripts/platforms/devices-table.mjs').Found[]} */ (JSON.parse(results));
  assert.equal(withTable(page, found), page, 'docs/testing.md: node scripts/platforms/devices.mjs --record');
  assert.deepEqual(
    USABLE.filter((name) => !found.some(({ devices }) => devices.includes(name))),
    [],
  );
  for (const { devices, passed, failed } of found) assert.ok(passed > 0 && failed.length === 0, devices.join(', '));
  assert.throws(() => withTable('a page without a place', found), /no place for the table/);
});
