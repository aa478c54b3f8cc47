// What the benches are made of: the trainer's output, our kernels on other addons, and times of the backend's methods.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { instruction, rawModule } from '../../../__test__/lib/spirv.mjs';
import { freezeSpecialization, plainAddon } from '../bench/lib/plain-addon.mjs';
import { parseSteps } from '../bench/lib/trainer.mjs';

test('parseSteps reads what an existing trainer prints', () => {
  const output = [
    'params: 119,552 (0.5 MB)',
    'step 1/1000 | loss=4.1751 | lr=3.13e-5 | grad_norm=1.100 clip=0.9091 | 645ms/it | 397 tok/s | 333 gpu_ops',
    '  [warn] grad_norm=NaN at step 2 — skipping optimizer update',
    'step 2/1000 | loss=NaN val_loss=4.2 | lr=3.27e-5 | grad_norm=n/a | 501ms/it | 511 tok/s',
  ].join('\n');
  assert.deepEqual(parseSteps(output), [
    { step: 1, loss: 4.1751, ms: 645, toks: 397 },
    { step: 2, loss: NaN, ms: 501, toks: 511 },
  ]);
});

test('frozen specialization constants are the module’s new defaults', () => {
  // One 32-bit constant (id 0), one boolean (id 1), one that is not specialized (id 2), one without a SpecId.
  const module = rawModule(
    20,
    instruction(71, 10, 1, 0),
    instruction(71, 11, 1, 1),
    instruction(71, 12, 1, 2),
    instruction(21, 1, 32, 0),
    instruction(20, 2),
    instruction(50, 1, 10, 64),
    instruction(48, 2, 11),
    instruction(50, 1, 12, 7),
    instruction(43, 1, 13, 9),
  );
  const before = module.slice();
  const frozen = freezeSpecialization(module, [128, 0]);
  assert.deepEqual(module, before);
  const expected = before.slice();
  expected[before.length - 12] = 128;
  expected.set(instruction(49, 2, 11), before.length - 11);
  assert.deepEqual(frozen, expected);
  assert.throws(() => freezeSpecialization(Uint32Array.of(1, 2, 3, 4, 5), []), /magic/);
  assert.throws(() => freezeSpecialization(before.subarray(0, before.length - 1), []), /runs past/);
});

test('options of pipelines reach addons that take them, and kernels do without them on others', () => {
  const info = { subgroupSize: 32, subgroupSizeControlSupported: true, computeFullSubgroupsSupported: true };
  const module = rawModule(20, instruction(71, 10, 1, 0), instruction(50, 1, 10, 64));
  /** @param {object} more what the addon has besides */
  const addon = (more) => {
    const calls = [];
    const vk = { initDevice: () => info, createPipeline: (...args) => calls.push(args), ...more };
    return { calls, plain: plainAddon(vk, { shaders: {} }) };
  };
  const wanted = { requiredSubgroupSize: 32, fullSubgroups: true, name: 'sum' };
  const frozen = freezeSpecialization(module, [128]);
  const own = addon({ shaders: {} });
  // A plain addon is given SPIR-V alone.
  assert.deepEqual(own.plain.initDevice(), { ...info, hasPtx: false });
  own.plain.createPipeline(module, 2, 8, { specialization: [128], ...wanted });
  assert.deepEqual(own.calls, [[frozen, 2, 8, wanted]]);
  const foreign = addon({});
  assert.deepEqual(foreign.plain.initDevice(), {
    subgroupSize: 32,
    subgroupSizeControlSupported: false,
    computeFullSubgroupsSupported: false,
    hasPtx: false,
  });
  foreign.plain.createPipeline(module, 2, 8, { specialization: [128], name: 'sum' });
  assert.deepEqual(foreign.calls, [[frozen, 2, 8]]);
  assert.throws(() => foreign.plain.createPipeline(module, 2, 8, wanted), /sum needs subgroup options/);
});

test('an addon that generates no kernels is given those of another; uploads and reads wait', async () => {
  const made = { spirv: Uint32Array.of(1), bindings: 2, pushBytes: 4 };
  const words = Uint32Array.of(7, 8);
  const memory = Uint32Array.of(1, 2, 3, 4);
  const uploads = [];
  const generated = new Map();
  const own = plainAddon({ shaders: {}, buildKernel: () => made }, { shaders: {}, generated });
  assert.equal(own.buildKernel(words), made);
  const calls = { uploadBuffer: (...args) => uploads.push(args), readBuffer: () => new Float32Array(memory.buffer) };
  const foreign = plainAddon(calls, { shaders: {}, generated });
  assert.equal(foreign.buildKernel(words), made);
  assert.throws(() => foreign.buildKernel(Uint32Array.of(7)), /buildKernel: the addon has no such call/);
  foreign.uploadAsync(5, memory);
  assert.deepEqual(uploads, [[5, memory]]);
  assert.throws(() => foreign.uploadAsync(5, memory, 4), /byte 4 of a buffer/);
  const read = await foreign.readAsync(5, 4, 8);
  assert.deepEqual(new Uint32Array(read.buffer, read.byteOffset, 2), memory.subarray(1, 3));
});

test('the hook times each of the backend’s calls once, and digests what was read', (t) => {
  const folder = temporaryFolder(t);
  const [program, out] = [join(folder, 'program.mjs'), join(folder, 'out.json')];
  const backend = import.meta.resolve('@helios-vk/alpha-backend');
  writeFileSync(
    program,
    `import { createBackend } from '${backend}';
    const b = createBackend({ precision: 'f32' });
    const x = b.full([2], 3);
    const y = b.add(b.mul(x, x), b.neg(x));
    if (y.data[1] !== 6) throw new Error(String(y.data));
    console.log('step 1/10 | loss=1 | 1ms/it | 1 tok/s');`,
  );
  const { status, stderr } = spawnSync(process.execPath, ['--import', new URL('../bench/lib/hook.mjs', import.meta.url).href, program], {
    encoding: 'utf8',
    env: { ...process.env, HELIOS_BENCH_STEPS: '1', HELIOS_BENCH_OUT: out, HELIOS_BENCH_BACKEND: backend, HELIOS_BENCH_METHODS: '1' },
  });
  assert.equal(status, 0, stderr);
  const { steps, digests } = JSON.parse(readFileSync(out, 'utf8'));
  // full, mul, neg (which calls scale), add, data.
  assert.equal(steps[0].calls.backend.count, 5);
  assert.ok(steps[0].calls.backend.us >= steps[0].calls.readBuffer.us);
  assert.equal(digests.length, 1);
});

/** A stand-in for the trainer, which computes with the backend that its registry has. `other`: a captured run computes something else. */
const fakeTrainer = (other) => `
import { heliosRegistry } from './packages/helios/dist/index.js';
const b = heliosRegistry.create();
const [weight, first, second] = [1, 0, 0].map((value) => b.full([4], value));
for (let step = 1; ; step++) {
  const different = ${other} && step === 3 && process.env.HELIOS_ALPHA_CAPTURE === '1';
  const gradient = b.scale(weight, different ? 0.25 : 0.5);
  b.adamwStep(weight, gradient, first, second, 0.01, 0.9, 0.95, 1e-8, 0, 1, 1);
  const loss = b.sum(gradient);
  console.log('step ' + step + '/1000 | loss=' + loss.data[0].toFixed(4) + ' | 1ms/it | 1000 tok/s');
  for (const tensor of [gradient, loss]) b.releaseGpuTensor(tensor);
  b.flush();
}
`;

test('the bench alpha compares runs bit by bit and leaves the checkout as it was', (t) => {
  const checkout = temporaryFolder(t);
  mkdirSync(join(checkout, 'packages/helios/dist'), { recursive: true });
  writeFileSync(join(checkout, 'package.json'), '{ "type": "module", "scripts": { "train": "node fake.mjs train" } }');
  writeFileSync(
    join(checkout, 'packages/helios/dist/index.js'),
    'export const heliosRegistry = { register: (name, create) => (heliosRegistry.create = create) };',
  );
  // As `helios-vk link --backend` writes it.
  const cli = fileURLToPath(new URL('../../../bin/helios-vk.mjs', import.meta.url));
  assert.equal(spawnSync(process.execPath, [cli, 'link', checkout, '--backend']).status, 0);
  const before = readdirSync(checkout, { recursive: true });
  const alpha = fileURLToPath(new URL('../bench/alpha.mjs', import.meta.url));
  const json = join(checkout, 'figures.json');
  const run = (other) => {
    writeFileSync(join(checkout, 'fake.mjs'), fakeTrainer(other));
    const sides = ['--sides', 'eager-f32,captured-f32', '--rounds', '1', '--steps', '8', '--json', json];
    const { status, stderr } = spawnSync(process.execPath, [alpha, '--trainer', checkout, ...sides], { encoding: 'utf8' });
    return { status, stderr, figures: JSON.parse(readFileSync(json, 'utf8')) };
  };
  const same = run(false);
  assert.equal(same.status, 0, same.stderr);
  assert.deepEqual([same.figures.compared, same.figures.differences], [1, []]);
  assert.ok(same.figures.sides['captured-f32'].losses[7] < 2);
  const different = run(true);
  assert.equal(different.status, 1);
  assert.match(different.stderr, /round 1, captured-f32 differs from round 1, eager-f32 in losses or norms of step 3/);
  rmSync(json);
  rmSync(join(checkout, 'fake.mjs'));
  assert.deepEqual(readdirSync(checkout, { recursive: true }), before);
});
