// `helios-vk tune`: a real run on the device at hand, its table read back and used, and tables that must not be.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { PRESETS, PRESET_ALIASES } from '../packages/lm/src/train/settings.mjs';
import { Journal, entriesOf as journalOf, runChildren } from '../bin/lib/journal.mjs';
import { jobsOf, save, tuneReport } from '../bin/lib/tune.mjs';
import { MODELS, MODEL_ALIASES, productsOf, productsOfFile } from '../bin/lib/tune-shapes.mjs';
import { KernelContext, createKernels, pack } from '../kernels/index.mjs';
import { matmulKernels } from '../kernels/matmul.mjs';
import { duel } from '../kernels/tuning/measure.mjs';
import { FORMAT, identityOf, MachinePlans, readStored, tableFile, writeStored } from '../kernels/tuning/stored.mjs';
import { entriesOf, lineOf, tilingOf } from '../kernels/tuning/table.mjs';
import { child } from './lib/child.mjs';
import { vk } from './lib/addon.mjs';
import { until } from './lib/until.mjs';
import { warningsOf } from './lib/warnings.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const CLI = fileURLToPath(new URL('../bin/helios-vk.mjs', import.meta.url));
const info = vk.initDevice();
const folders = temporaryFolder();
after(() => vk.destroy());
let made = 0;
/** A new path in a folder of its own. */
const fresh = (name = 'table.json') => {
  const folder = join(folders, `${++made}`);
  mkdirSync(folder);
  return join(folder, name);
};

/** A tile that no device chooses by itself for these products, and every device can run. */
const ODD = '32 32 8 4 4 8 1';
const PRODUCT = { a: 0, b: 1, c: 2, m: 64, n: 96, k: 64, transB: true };

/** Writes a table of this device. @param {object} [changes] @returns {string} */
function tableOf(changes = {}) {
  const path = fresh();
  const faster = { f32: [`NT 64 96 64 | ${ODD} | 1 | 10.0`] };
  writeFileSync(path, JSON.stringify({ format: FORMAT, device: identityOf(info), date: '2026-11-24', faster, kept: {}, ...changes }));
  return path;
}

/** What the tuning warns of while `work` runs. @param {() => void} work @returns {Promise<string[]>} */
const warnings = async (work) => (await warningsOf(work)).flatMap(({ code, message }) => (code === 'HELIOS_TUNING' ? [message] : []));

/** @param {string[]} args @param {Record<string, string>} [env] */
const cli = (args, env = {}) =>
  spawnSync(process.execPath, [CLI, ...args], { encoding: 'utf8', timeout: 600_000, env: { ...process.env, ...env } });

test('a run times the products of a file, and its table is the one that createKernels reads', async () => {
  const [shapes, cache] = [fresh('shapes.txt'), fresh('cache')];
  writeFileSync(shapes, '# of a test\nNT 64 96 64\n\nTN 96 64 32  # with a comment\n');
  const env = { HELIOS_PIPELINE_CACHE: cache, HELIOS_TUNING: '' };
  // Two products of a few tiles each end long before the budget does: no clock decides what is measured.
  const run = cli(['tune', '--shapes', shapes, '--classes', 'f32', '--quick', '--budget', '500', '--json'], env);
  assert.equal(run.status, 0, run.stderr);
  const report = JSON.parse(run.stdout);
  assert.equal(report.results.length, 2);
  for (const { own, ownUs, us, tried, failed, error } of report.results) {
    assert.equal(error, undefined);
    assert.ok(ownUs > 0 && us > 0 && tried >= 2 && failed < tried, JSON.stringify(report.results));
    assert.equal(own.kernel, 'f32');
  }
  assert.match(tuneReport(report), /of 2 products have a faster plan; /);
  assert.ok(report.path.startsWith(cache) && report.path.endsWith('.tuning.json'), report.path);
  const stored = readStored(report.path, info);
  const lines = [...(stored.faster.f32 ?? []), ...(stored.kept.f32 ?? [])];
  assert.deepEqual(lines.map((line) => line.split(' | ')[0]).sort(), ['NT 64 96 64', 'TN 96 64 32']);

  // The plan of a table in that place is used without a word from the program.
  stored.faster = { f32: [`NT 64 96 64 | ${ODD} | 2 | 1.0`] };
  writeStored(report.path, stored);
  const plans = `
    const { createKernels } = await import(${JSON.stringify(new URL('../kernels/index.mjs', import.meta.url).href)});
    const product = ${JSON.stringify(PRODUCT)};
    const plan = (options, more) => createKernels(vk, options).matmulPlan({ ...product, ...more });
    console.log(JSON.stringify([plan(), plan({ tuning: false }), plan({}, { m: 65 }), plan({}, { batch: 2 }), plan({}, { transB: false })]));
    vk.destroy();`;
  const [tuned, ...others] = JSON.parse((await child(plans, { env })).stdout);
  assert.equal(lineOf('f32', { form: 'NT', m: 64, n: 96, k: 64 }, tuned, 1), `NT 64 96 64 | ${ODD} | 2 | 1.0`);
  for (const plan of others) assert.notEqual(plan.bk, tuned.bk, 'a product that was not measured');
  for (const off of [{ HELIOS_TUNING: 'off' }, { HELIOS_PIPELINE_CACHE: '0' }]) {
    const [plan] = JSON.parse((await child(plans, { env: { ...env, ...off } })).stdout);
    assert.deepEqual(plan, others[0], JSON.stringify(off));
  }
  const [named] = JSON.parse((await child(plans, { env: { HELIOS_PIPELINE_CACHE: '0', HELIOS_TUNING: report.path } })).stdout);
  assert.deepEqual(named, tuned);
});

test('a product by a table has the result that it has without', () => {
  const random = Float32Array.from({ length: 64 * 96 }, () => Math.random() - 0.5);
  const [a, b, c] = [0, 1, 2].map(() => vk.createBuffer(4 * random.length, 0));
  for (const handle of [a, b]) vk.uploadBuffer(handle, random);
  const results = [false, tableOf()].map((tuning) => {
    const kernels = createKernels(vk, { tuning: /** @type {string | false} */ (tuning) });
    const { packed, count } = pack(kernels.matmul({ ...PRODUCT, a, b, c }));
    vk.waitTimeline(vk.batchExecuteAll(packed, count));
    return { plan: kernels.matmulPlan({ ...PRODUCT, a, b, c }), data: vk.readBuffer(c).slice() };
  });
  assert.notDeepEqual(results[0].plan, results[1].plan);
  for (let i = 0; i < 64 * 96; i++) assert.ok(Math.abs(results[0].data[i] - results[1].data[i]) < 1e-5, `element ${i}`);
  for (const handle of [a, b, c]) vk.destroyBuffer(handle);
});

test('tables that are damaged or of another device are passed over, with a warning that says why', async () => {
  const device = identityOf(info);
  const line = `NT 64 96 64 | ${ODD} | 1 | 10.0`;
  const cut = tableOf();
  truncateSync(cut, 60);
  const empty = fresh();
  writeFileSync(empty, '');
  const large = tableOf({ more: 'x'.repeat(5 << 20) });
  for (const [path, message] of /** @type {[string, RegExp][]} */ ([
    [cut, /JSON/],
    [empty, /JSON/],
    [large, /it has \d+ bytes, more than/],
    [fresh(), /ENOENT/],
    [folders, /it is not a file/],
    [tableOf({ format: 'helios-vk tuning 0' }), /not a table of the format/],
    [tableOf({ device: undefined }), /another device or driver: its deviceName is undefined/],
    [tableOf({ device: { ...device, deviceName: 'NVIDIA H200' } }), /its deviceName is NVIDIA H200, here it is/],
    [tableOf({ device: { ...device, driverVersion: 7 } }), /its driverVersion is 7/],
    [tableOf({ faster: undefined }), /faster must be an object/],
    [tableOf({ faster: { f64: [line] } }), /faster has an unknown class f64/],
    [tableOf({ faster: [] }), /faster must be an object/],
    [tableOf({ kept: { f32: line } }), /kept\.f32 must be lines of text/],
    [tableOf({ faster: { f32: [line, 7] } }), /faster\.f32 must be lines of text/],
    [tableOf({ faster: { f32: ['x'.repeat(201)] } }), /faster\.f32 must be lines of text/],
    [tableOf({ faster: JSON.parse(`{"__proto__":["${line}"]}`) }), /faster has an unknown class __proto__/],
    [tableOf({ faster: { f32: [line.replace(ODD, 'constructor')] } }), /"constructor" is not a tile of class f32/],
    [tableOf({ faster: { f32: [line.replace('NT', 'NX')] } }), /class f32, line "NX .*is not a product/],
    [tableOf({ faster: { f32: [line.replace(' | 1 | 10.0', '')] } }), /not "product \| tile \| splits \| microseconds"/],
    [tableOf({ faster: { f32: [line.replace('32 32', '32 -32')] } }), /is not a tile of class f32/],
    [tableOf({ faster: { f32: [line.replace('32 32', '32 0')] } }), /has a size of 0/],
    [tableOf({ faster: { f32: [line.replace('| 1 |', '| 65 |')] } }), /"65" is not a number of splits/],
    [tableOf({ faster: { f32: [line.replace('| 1 |', '| 0/3 |')] } }), /"0\/3" is not a number of splits/],
    [tableOf({ faster: { half: ['NT 64 96 64 | broad | 1 | 10.0'] } }), /"broad" is not a tile of class half/],
  ])) {
    const [said, ...more] = await warnings(() => {
      assert.deepEqual(
        new KernelContext(vk, { tuning: path }).tuning,
        new KernelContext(vk, { tuning: false }).tuning,
        'as without a table',
      );
      // Once, however many kernels a program has.
      new KernelContext(vk, { tuning: path });
    });
    assert.deepEqual(more, []);
    assert.ok(said?.includes(path), `${path}: ${said}`);
    assert.match(said, message);
  }
  for (const wrong of [7, '', null, {}]) {
    assert.throws(
      () => createKernels(vk, { tuning: /** @type {any} */ (wrong) }),
      /createKernels: tuning must be the path of a table or false/,
    );
  }
});

test('a plan of a table that the device cannot run is passed over', () => {
  const plain = matmulKernels(new KernelContext(vk, { tuning: false }));
  const products = [
    ['NT', false, true],
    ['NN', false, false],
    ['TN', true, false],
  ];
  // More threads than a workgroup may have, loads that do not divide, patches that do not, rows and columns that leave some to no
  // thread although their number is whole, and more sums than registers.
  for (const tile of [
    '65536 64 8 4 4 8 1',
    '32 32 7 4 4 8 1',
    '32 32 8 4 4 5 1',
    '12 16 4 8 8 1 0',
    '16 12 4 8 8 1 0',
    '1024 1024 4 1024 1024 1 0',
  ]) {
    const faster = { f32: products.map(([form]) => `${form} 64 96 64 | ${tile} | 1 | 10.0`) };
    const { matmulPlan } = matmulKernels(new KernelContext(vk, { tuning: tableOf({ faster }) }));
    for (const [, transA, transB] of products) {
      const product = /** @type {any} */ ({ ...PRODUCT, transA, transB });
      assert.deepEqual(matmulPlan(product), plain.matmulPlan(product), tile);
    }
  }
  // No device has such an instruction, and none but Hopper runs PTX.
  for (const type of /** @type {const} */ (['f16', 'bf16'])) {
    if (!plain.matmulSupports(type)) continue;
    for (const tile of ['64 64 64 33 39 11 13 17 1', ...(info.hasPtx ? [] : ['m128n128-ld'])]) {
      const faster = { half: [`NT 64 96 64 | ${tile} | 1 | 10.0`] };
      const { matmulPlan } = matmulKernels(new KernelContext(vk, { tuning: tableOf({ faster }) }));
      const product = { ...PRODUCT, aType: type, bType: type };
      assert.deepEqual(matmulPlan(product), plain.matmulPlan(product), tile);
    }
  }
});

test('a table for a GPU says what both kinds of kernels do', () => {
  const gpu = /** @type {any} */ ({ ...info, deviceName: 'NVIDIA H200', deviceType: 2, hasPtx: true, cacheFolder: '' });
  const path = fresh();
  const faster = {
    half: ['NT 2048 3072 1024 | 128 128 64 64 32 16 16 16 1 1 | 3 | 1.0', 'NN 2048 1024 3072 | m256n128-ld | 132/2 | 1.0'],
    permuted: ['NT 2048 3072 1024 | m256n128-tma | 1 | 1.0'],
  };
  writeStored(path, { format: FORMAT, device: identityOf(gpu), date: '2026-11-24', faster, kept: {} });
  const machine = MachinePlans.of(gpu, path);
  const plans = (/** @type {any} */ problem) => machine.plan(problem);
  const problem = {
    m: 2048,
    n: 3072,
    k: 1024,
    batch: 1,
    beta: 0,
    transA: false,
    transB: true,
    precision: 'bf16',
    aType: 'bf16',
    bType: 'bf16',
  };
  assert.deepEqual(plans(problem), {
    ...{ kernel: 'coop', bm: 128, bn: 128, bk: 64, wm: 64, wn: 32, tm: 16, tn: 16, tk: 16, stages: 1 },
    ...{ ahead: 1, direct: 0, splits: 3, because: 'measured on this machine' },
  });
  assert.deepEqual(plans({ ...problem, n: 1024, k: 3072, transB: false }), {
    kernel: 'ptx',
    tiling: 'm256n128-ld',
    splits: 1,
    wave: 132,
    tail: 2,
    because: 'measured on this machine',
  });
  assert.deepEqual(plans({ ...problem, bPermuted: true }), {
    ...{ kernel: 'ptx', tiling: 'm256n128-tma', permuted: true, splits: 1 },
    because: 'measured on this machine',
  });
  assert.equal(plans({ ...problem, aType: 'f32' }), undefined);
  assert.equal(plans({ ...problem, batch: 2 }), undefined);

  // A table from before tilings and the class of permuted products were renamed says the same; a run writes it with the names of today.
  const former = fresh();
  const before = {
    half: [faster.half[0], faster.half[1].replace('m256n128-ld', 'tall')],
    shuffled: [faster.permuted[0].replace('m256n128-tma', 'tallCopied')],
  };
  writeStored(former, /** @type {any} */ ({ format: FORMAT, device: identityOf(gpu), date: '2026-11-24', faster: before, kept: before }));
  const same = MachinePlans.of(gpu, former);
  for (const more of [{}, { n: 1024, k: 3072, transB: false }, { bPermuted: true }])
    assert.deepEqual(same.plan({ ...problem, ...more }), plans({ ...problem, ...more }));
  const shape = { form: 'NT', m: 64, n: 64, k: 64 };
  save(former, identityOf(gpu), [{ name: 'permuted', shape, plan: { kernel: 'natural' }, us: 2, faster: true }]);
  const written = JSON.parse(readFileSync(former, 'utf8'));
  assert.deepEqual(written.kept, faster);
  assert.deepEqual(written.faster, { ...faster, permuted: [...faster.permuted, 'NT 64 64 64 | natural | 1 | 2.0'] });
});

test('lines and plans are each other', () => {
  const lines = {
    half: [
      'NT 512 1024 1024 | 64 64 128 32 32 16 16 16 1 | 1 | 12.1',
      'TN 1024 1024 512 | 64 64 64 32 32 16 16 16 1 0 1 | 1 | 14.9',
      'NN 17408 1024 8192 | 192 128 64 48 64 16 16 16 1 | 132/4 | 1016.1',
      'TT 1 2 3 | 192 128 32 48 64 16 16 16 2 1 | 64 | 0.1',
      'NT 4096 4096 4096 | m256n128-ld-l1 | 8 | 243.3',
    ],
    f32: ['NT 512 1024 1024 | 128 128 16 8 8 8 2 | 4 | 37.7'],
    ptx: ['NT 512 1024 1024 | coop | 1 | 12.4'],
    permuted: ['NT 8192 3072 1024 | m256n128-tma | 1 | 90.0', 'NN 8192 1024 1024 | natural | 1 | 35.0'],
  };
  for (const [name, list] of Object.entries(lines)) {
    const entries = entriesOf(name, list);
    assert.deepEqual(
      entries.map(({ plan, ...shape }, i) => lineOf(name, shape, plan, Number(list[i].split('|')[3]))),
      list,
    );
  }
  assert.throws(() => tilingOf('f32', 'tall'), /is not a tile of class f32/);
  assert.throws(() => tilingOf('permuted', 'tall'), /"tall" is not a tile of class permuted/);
  assert.throws(() => tilingOf('ptx', 'natural'), /not a tile of class ptx/);
  assert.throws(() => tilingOf('ptx', '128 128 16 8 8 8 2'), /not a tile of class ptx/);
});

test('where a table lies', () => {
  const device = /** @type {any} */ ({ vendorId: 0x10de, deviceId: 0x2335, driverVersion: 0x9123, cacheFolder: '/cache' });
  const before = process.env.HELIOS_TUNING;
  try {
    delete process.env.HELIOS_TUNING;
    const usual = { path: join('/cache', '10de-2335-00009123.tuning.json'), named: false };
    assert.deepEqual(tableFile(device), usual);
    assert.equal(tableFile({ ...device, cacheFolder: '' }), undefined);
    assert.equal(tableFile(device, false), undefined);
    assert.deepEqual(tableFile(device, 'off'), { path: 'off', named: true });
    for (const [value, want] of /** @type {[string, object | undefined][]} */ ([
      ['', usual],
      ['  ', usual],
      ['on', usual],
      ['0', undefined],
      ['Off', undefined],
      [' /a/b.json ', { path: '/a/b.json', named: true }],
    ])) {
      process.env.HELIOS_TUNING = value;
      assert.deepEqual(tableFile(device), want, value);
      assert.deepEqual(tableFile(device, '/c.json'), { path: '/c.json', named: true });
    }
  } finally {
    if (before === undefined) delete process.env.HELIOS_TUNING;
    else process.env.HELIOS_TUNING = before;
  }
});

test('results are added to a table, each product once, and a foreign table is replaced', () => {
  const path = fresh();
  const device = identityOf(info);
  const [first, second] = [32, 64].map((m) => ({ form: 'NT', m, n: 64, k: 64 }));
  const plan = entriesOf('f32', [`NT 1 1 1 | ${ODD} | 1 | 1`])[0].plan;
  const result = (/** @type {any} */ shape, /** @type {object} */ more) => ({
    name: /** @type {const} */ ('f32'),
    shape,
    plan,
    own: plan,
    us: 5,
    ...more,
  });
  assert.equal(
    save(path, device, [result(first, { faster: true }), result(second, { faster: false }), result({ ...first, m: 8 }, { error: 'x' })]),
    undefined,
  );
  let { faster, kept } = readStored(path, info);
  assert.deepEqual(
    { faster, kept },
    { faster: { f32: [`NT 32 64 64 | ${ODD} | 1 | 5.0`] }, kept: { f32: [`NT 64 64 64 | ${ODD} | 1 | 5.0`] } },
  );
  assert.equal(save(path, device, [result(first, { faster: false, us: 7 })]), undefined);
  ({ faster, kept } = readStored(path, info));
  assert.deepEqual({ faster, kept }, { faster: {}, kept: { f32: [`NT 64 64 64 | ${ODD} | 1 | 5.0`, `NT 32 64 64 | ${ODD} | 1 | 7.0`] } });
  const foreign = tableOf({ device: { ...device, deviceName: 'another' } });
  assert.match(String(save(foreign, device, [result(first, { faster: true })])), /is replaced: it is of another device/);
  assert.deepEqual(readStored(foreign, info).faster, { f32: [`NT 32 64 64 | ${ODD} | 1 | 5.0`] });
  assert.deepEqual(readdirSync(join(path, '..')), ['table.json'], 'nothing is left beside it');
});

test('runs that end at the same time lose none of each other’s products', { timeout: 120_000 }, async () => {
  const path = fresh();
  const device = identityOf(info);
  const plan = entriesOf('f32', [`NT 1 1 1 | ${ODD} | 1 | 1`])[0].plan;
  const source = (/** @type {number} */ run) => `
    const { save } = await import(${JSON.stringify(new URL('../bin/lib/tune.mjs', import.meta.url).href)});
    for (let m = 1; m <= 40; m++) {
      const shape = { form: 'NT', m, n: ${run}, k: 64 };
      save(${JSON.stringify(path)}, ${JSON.stringify(device)}, [{ name: 'f32', shape, plan: ${JSON.stringify(plan)}, us: 5, faster: true }]);
    }`;
  await Promise.all([1, 2].map((run) => child(source(run))));
  assert.equal(readStored(path, info).faster.f32?.length, 80);
  assert.deepEqual(readdirSync(dirname(path)), ['table.json']);
});

test('a run waits for one that is writing the table, and not for one that was ended there', { timeout: 120_000 }, (t) => {
  const path = fresh();
  const device = identityOf(info);
  writeFileSync(`${path}.lock`, '');
  const start = performance.now();
  save(path, device, [], 200);
  assert.ok(performance.now() - start >= 200, 'it waited');
  assert.deepEqual(readStored(path, info).faster, {});
  assert.deepEqual(readdirSync(dirname(path)), ['table.json']);
  writeFileSync(`${path}.lock`, JSON.stringify({ pid: 2 ** 22 + 1, host: hostname(), since: 'long ago' }));
  // For one whose process has ended nobody waits: no clock is read.
  const now = t.mock.method(Date, 'now', () => assert.fail('it waits'));
  save(path, device, [], 200);
  now.mock.restore();
  assert.deepEqual(readdirSync(dirname(path)), ['table.json']);
  // What is no file is nothing that a run leaves.
  mkdirSync(`${path}.lock`);
  assert.throws(() => save(path, device, [], 1), {
    code: 'ERR_TUNE',
    message: /table\.json was not written: its lock .*\.lock could not be taken: /,
  });
});

test('a lock that was left is not removed once another run has put its own in its place', (t) => {
  const path = fresh();
  const lock = `${path}.lock`;
  writeFileSync(lock, 'left');
  const start = Date.now();
  let calls = 0;
  let ended = false;
  t.mock.method(Date, 'now', () => {
    calls++;
    // The lock that was left has stayed too long, and another run that has seen so is quicker.
    if (calls === 2) {
      rmSync(lock);
      writeFileSync(lock, 'of another run', { flag: 'wx' });
      return start + 1000;
    }
    if (calls === 5) {
      assert.equal(readFileSync(lock, 'utf8'), 'of another run');
      rmSync(lock);
      ended = true;
    }
    return calls === 1 ? start : start + 1000;
  });
  save(path, identityOf(info), [], 1000);
  assert.ok(ended, 'it waited until the other run had ended');
  assert.deepEqual(readdirSync(dirname(path)), ['table.json']);
});

test('a plan wins by more than the noise only', () => {
  const sampler = (/** @type {number[]} */ list) => {
    let i = 0;
    return () => ({ us: list[i++ % list.length], dispatchUs: 0 });
  };
  const run = (/** @type {number[]} */ a, /** @type {number[]} */ b) => duel(sampler(a), sampler(b), 15);
  assert.deepEqual(run([10], [9]), { first: 10, second: 9, faster: true });
  assert.equal(run([10], [10]).faster, false);
  assert.equal(run([9], [10]).faster, false);
  // Faster in the median, but by less than either varies.
  assert.equal(run([8, 10, 12], [7.9, 9.9, 11.9]).faster, false);
  // Single outliers do not matter.
  assert.equal(run([10, 10, 10, 10, 10, 10, 30], [9, 9, 9, 9, 9, 9, 40]).faster, true);
});

test('the models are the GPTs of the presets of the training run', () => {
  const presets = Object.entries(PRESETS).filter(([, { family }]) => family === 'helios-gpt');
  assert.deepEqual(
    Object.keys(MODELS),
    presets.map(([name]) => name),
  );
  for (const [name, { sizes, settings }] of presets) {
    const { width, hidden, vocabSize: vocab, blockSize } = sizes;
    assert.deepEqual(MODELS[name], { width, hidden, vocab, tokens: settings.batchSize * blockSize }, name);
  }
  const products = productsOf(MODELS['gpt-300m'], 8192).map((shape) => Object.values(shape).join(' '));
  assert.equal(new Set(products).size, 15);
  for (const product of ['NT 8192 3072 1024', 'NN 8192 1024 5504', 'TN 1024 2752 8192', 'TN 17408 1024 8192']) {
    assert.ok(products.includes(product), product);
  }
  assert.deepEqual(MODEL_ALIASES, Object.fromEntries(Object.entries(PRESET_ALIASES).filter(([, name]) => Object.hasOwn(MODELS, name))));
  assert.deepEqual(jobsOf({ model: 'tiny,small,mission' }), jobsOf({ model: 'gpt-tiny,gpt-30m,gpt-300m' }), 'by the earlier names');
  assert.equal(jobsOf({ model: 'gpt-tiny,gpt-30m', classes: 'f32' }).length, 30);
  assert.equal(jobsOf({ model: 'gpt-tiny,gpt-tiny' }).length, 30, 'each product once in each class');
  assert.equal(jobsOf({ tokens: 7 })[0].shape.m, 7);
  assert.deepEqual(jobsOf({ classes: 'shuffled' }), jobsOf({ classes: 'permuted' }), 'the former name of the class');
  assert.ok(
    jobsOf({ classes: 'permuted' }).every(({ shape }) => shape.form !== 'TN'),
    'weights are not B of their own gradient',
  );
});

test('what cannot be timed is an error before the work', () => {
  const [empty, wrong] = [fresh('none.txt'), fresh('wrong.txt')];
  writeFileSync(empty, '# nothing\n');
  writeFileSync(wrong, 'NT 64 64 64\nNT 64 64\n');
  assert.throws(() => productsOfFile(empty), /the file has no products/);
  for (const [args, message] of /** @type {[string[], RegExp][]} */ ([
    [['--shapes', wrong], /--shapes .*wrong\.txt: line 2: "NT 64 64" is not a product/],
    [['--shapes', join(folders, 'no', 'where')], /--shapes .*cannot be read: no such file/],
    [['--shapes', wrong, '--model', 'tiny'], /--shapes and --model cannot be used together/],
    [['--shapes', wrong, '--tokens', '4'], /--tokens can be used only with --model/],
    [['--model', 'huge'], /--model huge: must be one of gpt-tiny, gpt-30m, gpt-300m, tiny, small, mission/],
    [['--classes', 'f32,f64'], /--classes f64: must be one of half, f32, mixed, bf16x3/],
    [['--tokens', '0'], /--tokens 0: must be an integer from 1/],
    [['--budget', 'x'], /--budget x: must be an integer/],
    [['--out', folders], /--out .*it is a folder/],
    [['this'], /tune takes no argument, got this/],
  ])) {
    const { status, stderr } = cli(['tune', ...args]);
    assert.equal(status, 2, stderr);
    assert.match(stderr, message);
    assert.doesNotMatch(stderr, /\n {4}at /);
  }
  const { status, stderr } = cli(['doctor', '--quick']);
  assert.equal(status, 2);
  assert.match(stderr, /--quick can be used only with tune/);
  const none = cli(['tune', '--model', 'tiny', '--budget', '60'], { HELIOS_VULKAN_LOADER: join(folders, 'no-loader.so') });
  assert.equal(none.status, 1);
  assert.match(none.stderr, /no device could be measured/);
});

test('a table that cannot be written is an error before the work, and leaves everything as it was', { timeout: 120_000 }, (t) => {
  const shapes = fresh('shapes.txt');
  writeFileSync(shapes, 'NT 64 96 64\n');
  const file = fresh('file');
  writeFileSync(file, 'kept');
  /** @type {[string[], Record<string, string>, number, RegExp][]} */
  const cases = [
    [[], { HELIOS_TUNING: folders }, 1, /could not be written: it is not a file/],
    [[], { HELIOS_TUNING: join(file, 'table.json') }, 1, /file\/table\.json could not be written: E(NOTDIR|EXIST)/],
    [[], { HELIOS_PIPELINE_CACHE: file, HELIOS_TUNING: '' }, 1, /file\/\S+\.tuning\.json could not be written: E(NOTDIR|EXIST)/],
    [[], { HELIOS_TUNING: 'off' }, 2, /HELIOS_TUNING or HELIOS_PIPELINE_CACHE is off, .*: name a file with --out/],
  ];
  if (process.platform !== 'win32') {
    // What a rename would put a file in the place of.
    const pipe = fresh('pipe');
    assert.equal(spawnSync('mkfifo', [pipe]).status, 0);
    cases.push([['--out', pipe], {}, 1, /pipe could not be written: it is not a file/]);
    t.after(() => assert.ok(statSync(pipe).isFIFO()));
    if (process.getuid?.() !== 0) {
      const closed = fresh('closed');
      mkdirSync(closed, { mode: 0o500 });
      cases.push([[], { HELIOS_TUNING: join(closed, 'table.json') }, 1, /closed\/table\.json could not be written: EACCES/]);
    }
  }
  for (const [args, env, code, message] of cases) {
    const { status, stderr } = cli(['tune', '--shapes', shapes, '--classes', 'f32', ...args], env);
    assert.equal(status, code, stderr);
    assert.match(stderr, message);
    assert.doesNotMatch(stderr, /µs/, 'nothing was measured');
    assert.doesNotMatch(stderr, /\n {4}at /);
  }
  assert.equal(readFileSync(file, 'utf8'), 'kept');
  assert.deepEqual(readdirSync(dirname(file)), ['file']);
});

test('a journal whose last line was cut goes on behind it', () => {
  const log = fresh('journal.jsonl');
  const journal = new Journal(log, Infinity);
  for (const key of ['a', 'b']) journal.write({ key, us: 1 });
  truncateSync(log, readFileSync(log).length - 5);
  const next = new Journal(log, Infinity);
  assert.deepEqual([...next.done.keys()], ['a']);
  next.write({ key: 'c', us: 2 });
  assert.deepEqual([...journalOf(log).keys()], ['a', 'c']);
});

test('a child that crashes costs the piece of work that it was at', async () => {
  const [log, module] = [fresh('journal.jsonl'), fresh('child.mjs')];
  writeFileSync(
    module,
    `import { Journal } from ${JSON.stringify(new URL('../bin/lib/journal.mjs', import.meta.url).href)};
    const journal = new Journal(process.argv[2], Infinity);
    for (const key of ['a', 'b', 'c', 'd']) {
      journal.attempt(key, { size: 1 }, (entry) => {
        if (key === 'b') process.kill(process.pid, 'SIGKILL');
        if (key === 'c') throw Object.assign(new Error('lost'), { code: 'ERR_HELIOS_DEVICE_LOST' });
        entry.us = process.pid;
      });
    }`,
  );
  assert.equal(await runChildren(module, () => [log], Date.now() + 300_000), true);
  const { a, b, c, d } = Object.fromEntries(journalOf(log));
  assert.deepEqual([b.error, c.error, b.size], ['crashed', 'lost', 1]);
  assert.ok(a.us > 0 && d.us > 0 && a.us !== d.us, 'in children of their own');
  const late = new Journal(log, 0);
  late.attempt('e', {}, () => assert.fail('the time is over'));
  assert.equal(readFileSync(log, 'utf8').includes('"e"'), false);
});

test('a child ends when who started it was killed', { timeout: 30_000, skip: process.platform === 'win32' }, async (t) => {
  const [log, module] = [fresh('journal.jsonl'), fresh('child.mjs')];
  const journal = JSON.stringify(new URL('../bin/lib/journal.mjs', import.meta.url).href);
  writeFileSync(
    module,
    `import { Journal } from ${journal};
    const journal = new Journal(process.argv[2], Infinity);
    for (let i = 0; ; i++) {
      journal.attempt(String(i), {}, (entry) => { entry.pid = process.pid; });
      await new Promise((done) => setTimeout(done, 20));
    }`,
  );
  const source = `const { runChildren } = await import(${journal});
    await runChildren(${JSON.stringify(module)}, () => [${JSON.stringify(log)}], Date.now() + 60_000);`;
  const parent = spawn(process.execPath, ['--input-type=module', '-e', source], { stdio: 'ignore' });
  const begun = () => (existsSync(log) ? /"pid":(\d+)\}\n/.exec(readFileSync(log, 'utf8'))?.[1] : undefined);
  await until(begun);
  const pid = Number(begun());
  const lives = () => {
    try {
      return process.kill(pid, 0);
    } catch {
      return false;
    }
  };
  t.after(() => lives() && process.kill(pid, 'SIGKILL'));
  parent.kill('SIGKILL');
  await until(() => !lives());
});
