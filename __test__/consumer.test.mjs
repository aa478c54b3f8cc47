// The packed package in strict TypeScript projects, as modules and as scripts, under each way of resolving; and as a script
// under Node, where `require` must find the kernels.

import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { cpSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { packMain } from '../scripts/pack.mjs';
import { packageTypes } from '../scripts/package-types.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const REPOSITORY = fileURLToPath(new URL('../', import.meta.url));
const run = promisify(execFile);
const project = temporaryFolder();

/** What is done with the package, whatever it is imported by. */
const USE = `
const info: helios.DeviceInfo = vk.initDevice();
const shared: number = info.maxComputeSharedMemorySize;
const all: Kernels = createKernels(vk, { check: true });
const limit: number = all.context.info.maxStorageBufferRange;
const buffer: helios.BufferHandle = vk.createBuffer(64, 0);
const x: Tensor = { buffer, offset: 4 };
const sum: Dispatches = all.binary({ a: x, b: buffer, y: x, count: 4, op: 'max' });
const list = pack(sum, all.matmul({ a: x, b: x, c: buffer, m: 1, n: 1, k: 1 }));
const value: helios.TimelineValue = vk.batchExecuteAll(list.packed, list.count);
vk.waitTimeline(value);
const floats: Float32Array = vk.readBuffer(buffer);
const t: Model.Tensor = Model.tensor([[1, 2]]);
const layer = new Model.nn.Linear(2, 3);
const loss: Model.Tensor = Model.F.mseLoss(layer.forward(t), Model.zeros([1, 3]));
loss.backward();
void [shared, limit, floats];
// @ts-expect-error a timeline value is no buffer
vk.readBuffer(value);
// @ts-expect-error a timeline value is no tensor
all.fill({ y: value, count: 4, value: 0 });
// @ts-expect-error a size is a number
all.matmul({ a: x, b: x, c: x, m: '1', n: 1, k: 1 });
// @ts-expect-error a size is missing
all.reduceRows({ x, y: x, rows: 1 });
// @ts-expect-error no such kernel
all.matmull({});
// @ts-expect-error no such option
createKernels(vk, { checks: true });
// @ts-expect-error the kernels are made of the native module
createKernels({});
`;

const LM = `
import { evaluate, finetune, openDataset, openModel, train } from 'helios-lm';
const stop = new AbortController();
for await (const event of train({ data: 'novel.txt', maxSteps: 20, evalEvery: 10, signal: stop.signal })) {
  if (event.type === 'eval') void (event.loss satisfies number);
  else if (event.type === 'checkpoint') void (event.path satisfies string);
  // @ts-expect-error no such event
  else if (event.type === 'evaluation') break;
}
const { model } = await openModel('run');
const { loss } = await evaluate(model, openDataset('data', { block: 64 }));
void (loss satisfies number);
// @ts-expect-error no such type of training
finetune({ model: 'run', data: 'rows.jsonl', type: 'adapter' });
// @ts-expect-error no such option
train({ data: 'novel.txt', maxStep: 20 });
`;

const AS_MODULE = `import vk, * as helios from 'helios-vk';
import { createKernels, pack, type Dispatches, type Kernels, type Tensor } from 'helios-vk/kernels';
import * as Model from 'helios-vk/nn';
${USE}`;

const AS_SCRIPT = `import vk = require('helios-vk');
import helios = require('helios-vk');
import kernels = require('helios-vk/kernels');
import Model = require('helios-vk/nn');
type Dispatches = kernels.Dispatches;
type Kernels = kernels.Kernels;
type Tensor = kernels.Tensor;
const { createKernels, pack } = kernels;
${USE}`;

before(() => {
  const file = packMain(join(project, 'packed'));
  writeFileSync(join(project, 'package.json'), '{ "private": true }\n');
  const install = ['install', '--offline', '--no-audit', '--no-fund', '--omit=optional', file];
  execFileSync('npm', install, { cwd: project, shell: process.platform === 'win32', stdio: ['ignore', 'ignore', 'inherit'] });
  writeFileSync(join(project, 'module.mts'), AS_MODULE);
  writeFileSync(join(project, 'script.cts'), AS_SCRIPT);
});

/**
 * What the compiler says of files in the project.
 * @param {string} name @param {object} options @param {string[]} files
 */
async function check(name, options, files) {
  const config = join(project, `tsconfig.${name}.json`);
  const compilerOptions = {
    target: 'es2022',
    lib: ['es2022'],
    types: ['node'],
    typeRoots: [join(REPOSITORY, 'node_modules/@types')],
    strict: true,
    exactOptionalPropertyTypes: true,
    noUncheckedIndexedAccess: true,
    // The package's own declarations, too.
    skipLibCheck: false,
    noEmit: true,
    ...options,
  };
  writeFileSync(config, JSON.stringify({ compilerOptions, files }));
  const tsc = join(REPOSITORY, 'node_modules/typescript/bin/tsc');
  const { stdout } = await run(process.execPath, [tsc, '-p', config]).catch((error) => error);
  return stdout;
}

test('a strict project with helios-lm', async () => {
  const folder = join(project, 'node_modules/helios-lm');
  packageTypes(join(REPOSITORY, 'packages/lm'), join(folder, 'types'));
  cpSync(join(REPOSITORY, 'packages/lm/package.json'), join(folder, 'package.json'));
  writeFileSync(join(project, 'lm.mts'), LM);
  assert.equal(await check('lm', { module: 'nodenext' }, ['lm.mts']), '');
});

for (const [module, moduleResolution, skipLibCheck] of /** @type {const} */ ([
  ['node16', 'node16', false],
  ['nodenext', 'nodenext', false],
  ['preserve', 'bundler', false],
  ['esnext', 'bundler', true],
])) {
  test(`a strict project with module ${module} and resolution ${moduleResolution}`, async () => {
    // A bundler that takes modules alone has no `import = require`.
    const files = module === 'esnext' ? ['module.mts'] : ['module.mts', 'script.cts'];
    assert.equal(await check(module, { module, moduleResolution, skipLibCheck }, files), '');
  });
}

// Versions of Node that load modules by `require` give scripts those, others cjs/: as these do under the flag.
const WAYS = /** @type {any} */ (process.features).require_module ? [[], ['--no-experimental-require-module']] : [[]];

for (const flags of WAYS)
  test(`scripts and modules find the same exports, without an addon ${flags}`, async () => {
    // What the package loads as its addon; nothing of it is called while the kernels are loaded.
    const program = `
    const found = (name) => Object.keys(require(name)).sort();
    import('helios-vk/kernels').then((kernels) => {
      process.stdout.write(JSON.stringify([found('helios-vk/kernels'), Object.keys(kernels).sort()]));
    });`;
    const { stdout } = await run(process.execPath, [...flags, '-e', program], { cwd: project });
    const [script, module] = JSON.parse(stdout);
    assert.deepEqual(script, module);
    assert.ok(script.includes('createKernels'));
  });

for (const flags of WAYS)
  test(`a script computes with the kernels of the package ${flags}`, async () => {
    const program = `
    const vk = require(process.argv[1]);
    const { createKernels, pack } = require('helios-vk/kernels');
    const { equal, throws } = require('node:assert');
    vk.initDevice();
    const kernels = createKernels(vk);
    const [x, y] = [vk.createBuffer(64, 0), vk.createBuffer(64, 0)];
    vk.uploadBuffer(x, new Float32Array(16).fill(3));
    const { packed, count } = pack(kernels.unary({ x, y, count: 16, op: 'square', beta: 1 }));
    vk.batchExecuteAll(packed, count);
    equal(vk.readBuffer(y).join(), new Array(16).fill(10).join());
    throws(() => kernels.unary({ x, y, count: 17 }), /unary: x needs 17 elements/);
    process.stdout.write('computed');`;
    const { stdout } = await run(process.execPath, [...flags, '-e', program, join(REPOSITORY, 'index.js')], { cwd: project });
    assert.equal(stdout, 'computed');
  });
