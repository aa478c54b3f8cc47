import { test } from 'node:test';
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { appendFile, chmod, copyFile, mkdir, readFile, readdir, readlink, realpath, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { OWN_ADDON } from '../benches/lib/addon.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const run = promisify(execFile);
const environment = { ...process.env };
delete environment.NODE_TEST_CONTEXT;
const addon = process.env.HELIOS_TEST_ADDON ?? OWN_ADDON;
const TOKENS = '../packages/alpha-backend/bench/trainer-tokens.mjs';
/** @param {string} name from benches/ on @param {string[]} args */
const bench = (name, ...args) =>
  run(process.execPath, [fileURLToPath(new URL(`../benches/${name}`, import.meta.url)), ...args], { env: environment });

test('the microbenchmarks of the calls run, check their results and compare', async () => {
  const { stdout } = await bench('calls.mjs', '--quick', '--json', '--addon', addon, '--baseline', addon);
  const { results, baseline, ratios } = JSON.parse(stdout);
  const names = Object.keys(results);
  for (const call of ['createBuffer', 'destroyBuffer', 'uploadBuffer', 'readBuffer', 'batchExecuteAll', 'batchDispatch', 'waitTimeline']) {
    assert.ok(
      names.some((name) => name.startsWith(call)),
      call,
    );
  }
  for (const name of names) {
    assert.ok(results[name].us > 0 && baseline.results[name].us > 0, name);
    assert.equal(ratios[name], baseline.results[name].us / results[name].us);
  }
});

/** A run of a bench that takes no time. */
const SMALL = ['--preset', 'gpt-tiny', '--layers', '1', '--quick', '--addon', addon];

test('the speed bench trains our GPT on two addons, compares losses, and writes its page', async (t) => {
  const folder = temporaryFolder(t);
  const [json, report] = [join(folder, 'a.json'), join(folder, 'a.html')];
  const args = [...SMALL, '--baseline', addon, '--json', json, '--report', report];
  const { stdout } = await bench(TOKENS, ...args);
  assert.match(stdout, /losses agree/);
  const result = JSON.parse(await readFile(json, 'utf8'));
  assert.equal(result.lossesAgree, true);
  assert.ok(result.ratio.median > 0);
  for (const side of result.sides) {
    assert.equal(side.losses.length, 3);
    assert.ok(
      side.losses.every((/** @type {number} */ loss) => loss > 4 && loss < 7),
      `${side.losses}`,
    );
    assert.ok(side.lossesEqual && side.toks.median > 0 && side.calls.batchExecuteAll.usPerDispatch > 0);
  }
  const page = await readFile(report, 'utf8');
  assert.ok(page.startsWith('<!doctype html>') && page.includes('the curves are equal') && !/NaN|undefined/.test(page));
});

/** Another addon: this one's calls of the trainer's contract alone, without shaders or graphs, and pipelines that take no options. */
const FOREIGN_ADDON = `
const vk = require(${JSON.stringify(resolve(addon))});
const own = /^(shaders|buildKernel|copyBuffer|uploadAsync|readAsync|setName|bufferBytes|memoryStats)$|^(graph|profile)/;
for (const name of Object.getOwnPropertyNames(vk)) if (!own.test(name)) exports[name] = vk[name];
exports.createPipeline = (...args) => {
  if (args.length !== 3) throw new TypeError('createPipeline takes three arguments, got ' + args.length);
  return vk.createPipeline(...args);
};
`;

test('the speed bench runs the same kernels on an addon whose pipelines take no options', async (t) => {
  const folder = temporaryFolder(t);
  const [foreign, json] = [join(folder, 'foreign.cjs'), join(folder, 'a.json')];
  await writeFile(foreign, FOREIGN_ADDON);
  const { stdout } = await bench(TOKENS, ...SMALL, '--baseline', foreign, '--json', json);
  assert.match(stdout, /losses agree/);
  assert.match(stdout, /kernels without full subgroups/);
  const { sides, calls } = JSON.parse(await readFile(json, 'utf8'));
  // What the other lacks stands there for this one alone.
  const [launch, create] = ['graphLaunch of 8192', 'createBuffer 64 KiB'].map(
    (call) => calls.find((/** @type {any} */ { name }) => name === call).us,
  );
  assert.ok(launch.length === 2 && launch[0] > 0 && launch[1] === null, `${launch}`);
  assert.ok(create[0] > 0 && create[1] > 0, `${create}`);
  assert.doesNotMatch(stdout, /NaN|undefined/);
  assert.equal(sides[0].calls.batchExecuteAll.count, sides[1].calls.batchExecuteAll.count);
});

/**
 * A stand-in for a trainer: prints as one does, from real calls of the addon that it finds: where it is told to look, as
 * the later ones do, at its own place, as the earlier ones do, or in a file of its own.
 */
const FAKE_TRAINER = `
import { createRequire } from 'node:module';
import { existsSync, readFileSync } from 'node:fs';
const option = (name) => process.argv.find((arg) => arg.startsWith('--' + name + '='))?.slice(name.length + 3);
if (process.argv[2] !== 'train' || option('layers') !== '3' || option('dim') !== '32' || option('extra') !== 'a') throw new Error('options: ' + process.argv);
if (existsSync(option('runDir')) || readFileSync(option('data')).length < 1e6) throw new Error('files');
const from = option('from') ?? process.env.HELIOS_NATIVE_ADDON;
const vk = createRequire(import.meta.url)(from === 'place' ? './packages/helios/native/helios_vk.node' : from);
console.log('gpu: ' + vk.initDevice().deviceName);
for (let step = 1; ; step++) {
  const buffer = vk.createBuffer(4096, 0);
  vk.uploadBuffer(buffer, new Float32Array(1024).fill(step));
  const loss = 10 / vk.readBuffer(buffer)[7];
  vk.destroyBuffer(buffer);
  if (option('slow')) await new Promise((done) => setTimeout(done, 600_000));
  console.log(\`step \${step}/1000 | loss=\${loss.toFixed(4)} | lr=1e-3 | grad_norm=1.0 | \${100 + step}ms/it | \${1000 * step} tok/s | 3 gpu_ops\`);
}
`;

test('the speed bench drives a trainer’s own command and stops it after its last step', async (t) => {
  const folder = temporaryFolder(t);
  const checkout = join(folder, "a check'out");
  await mkdir(join(checkout, 'packages', 'helios'), { recursive: true });
  await writeFile(join(checkout, 'package.json'), JSON.stringify({ scripts: { train: 'node --expose-gc fake.mjs train' } }));
  await writeFile(join(checkout, 'fake.mjs'), FAKE_TRAINER);
  const json = join(folder, 'a.json');
  const args = ['--addon', addon, '--baseline', addon, '--json', json, '--rounds', '2', '--steps', '3', '--warmup', '2', '--layers', '3'];
  await bench(TOKENS, '--trainer', checkout, '--width', '32', '--trainer-args=--extra=a', ...args);
  const { sides, ratio, lossesAgree } = JSON.parse(await readFile(json, 'utf8'));
  for (const side of sides) {
    assert.deepEqual(side.losses, [10, 5, 3.3333, 2.5, 2]);
    assert.deepEqual(side.toks, { median: 4000, spread: 0.1875, rounds: [4000, 4000] });
    assert.deepEqual(Object.keys(side.calls).sort(), ['createBuffer', 'destroyBuffer', 'readBuffer', 'uploadBuffer']);
    assert.equal(side.calls.readBuffer.count, 1);
    assert.ok(side.calls.createBuffer.us > 0);
  }
  assert.equal(ratio.median, 1);
  assert.equal(lossesAgree, true);
  await assert.rejects(bench(TOKENS, '--trainer', checkout, '--addon', addon, '--quick'), /exit code 1 after 0 of 3 steps[^]*options:/);
  await assert.rejects(bench(TOKENS, '--trainer', folder, '--addon', addon), /no package\.json there/);
  assert.deepEqual(await readdir(join(checkout, 'packages', 'helios')), [], 'nothing is left of the addon that was put there');
});

/** @param {string} folder with a checkout of the stand-in, that has an addon of its own, and two different binaries */
async function checkoutWithAddons(folder) {
  const native = join(folder, 'packages', 'helios', 'native');
  await mkdir(native, { recursive: true });
  await writeFile(join(folder, 'package.json'), JSON.stringify({ scripts: { train: 'node fake.mjs train' } }));
  await writeFile(join(folder, 'fake.mjs'), FAKE_TRAINER);
  const place = join(native, 'helios_vk.node');
  const [other, third] = ['other.node', 'helios_vk_third.node'].map((name) => join(folder, name));
  const [binary] = mapped(JSON.parse((await run(process.execPath, ['-e', MAPPED, resolve(addon)])).stdout));
  // Bytes behind its end change nothing in it but its digest.
  for (const [file, end] of [
    [place, 'its own'],
    [other, 'another'],
    [third, 'a third'],
  ]) {
    await copyFile(binary, file);
    await appendFile(file, end);
  }
  const before = await readFile(place);
  const unchanged = async () => {
    assert.deepEqual(await readdir(native), ['helios_vk.node']);
    assert.ok(before.equals(await readFile(place)), 'what lay there lies there again');
  };
  /** @type {(...more: string[]) => [string, ...string[]]} */
  const args = (...more) => [TOKENS, '--trainer', folder, '--quick', '--layers', '3', '--width', '32', ...more];
  return { native, place, other: await realpath(other), third, binary: await realpath(binary), unchanged, args };
}

/** What a process maps that loads an addon, as that of Node itself says. */
const MAPPED = 'require(process.argv[1]); console.log(JSON.stringify(process.report.getReport().sharedObjects))';
/** @param {string[]} files */
const mapped = (files) => files.filter((file) => file.endsWith('.node'));

test('the speed bench measures what it says, also with a trainer that looks at one place alone', async (t) => {
  const folder = temporaryFolder(t);
  const { place, other, binary, unchanged, args } = await checkoutWithAddons(folder);
  const json = join(folder, 'a.json');
  for (const from of ['place', '']) {
    const way = `--trainer-args=--extra=a${from && ` --from=${from}`}`;
    const { stdout } = await bench(...args('--addon', addon, '--baseline', other, '--json', json, way));
    const { sides } = JSON.parse(await readFile(json, 'utf8'));
    assert.deepEqual(
      sides.map((/** @type {any} */ side) => side.binaries.map((/** @type {any} */ { path }) => path)),
      [[binary], [other]],
    );
    assert.notEqual(sides[0].binaries[0].sha256, sides[1].binaries[0].sha256);
    assert.ok(stdout.includes(`baseline: ${other}, SHA-256 ${sides[1].binaries[0].sha256.slice(0, 16)}`), stdout);
    assert.doesNotMatch(stdout, /the same binary/);
    await unchanged();
    // The checkout's own, which is moved away meanwhile.
    const own = await bench(...args('--addon', place, '--baseline', addon, '--json', json, way));
    assert.match(own.stdout, /losses agree/);
    await unchanged();
  }
});

test('the speed bench refuses a trainer that loads something else', async (t) => {
  const folder = temporaryFolder(t);
  const { other, third, unchanged, args } = await checkoutWithAddons(folder);
  await assert.rejects(bench(...args('--addon', other, `--trainer-args=--extra=a --from=${third}`)), (/** @type {any} */ error) => {
    assert.match(error.message, /a process was to measure helios-vk, but it has loaded .*helios_vk_third\.node, not .*other\.node/);
    return true;
  });
  await unchanged();
});

/**
 * What `look` finds, as soon as it finds something; what never comes is ended by the timeout of the test run.
 * @template T
 * @param {() => Promise<T | undefined>} look
 * @returns {Promise<T>}
 */
async function until(look) {
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    await new Promise((done) => setTimeout(done, 20));
  }
}

test('Ctrl-C ends the trainer and puts its addon back, and after a kill the next command does', {
  skip: process.platform === 'win32',
}, async (t) => {
  const folder = temporaryFolder(t);
  const { native, place, other, unchanged, args } = await checkoutWithAddons(folder);
  const [name, ...options] = args('--addon', other, '--trainer-args=--extra=a --slow=1');
  for (const [signal, ended] of /** @type {const} */ ([
    ['SIGINT', [130, null]],
    ['SIGTERM', [143, null]],
    ['SIGKILL', [null, 'SIGKILL']],
  ])) {
    const file = fileURLToPath(new URL(`../benches/${name}`, import.meta.url));
    const child = spawn(process.execPath, [file, ...options], { env: environment, stdio: 'ignore' });
    const exit = once(child, 'exit');
    const training = async () => {
      for (const pid of (await readdir('/proc')).filter((entry) => /^\d+$/.test(entry))) {
        const [line, cwd] = await Promise.all([readFile(`/proc/${pid}/cmdline`, 'utf8'), readlink(`/proc/${pid}/cwd`)]).catch(() => [
          '',
          '',
        ]);
        if (line.startsWith('node\0fake.mjs') && cwd === (await realpath(folder))) return Number(pid);
      }
      return undefined;
    };
    /** @type {() => Promise<number | true | undefined>} */
    const started = process.platform === 'linux' ? training : async () => existsSync(`${place}.borrowed.json`) || undefined;
    const pid = await until(started);
    await assert.rejects(bench(...args('--addon', other, '--trainer-args=--extra=a')), new RegExp(`is in use: process ${child.pid}`));
    child.kill(signal);
    assert.deepEqual(await exit, ended);
    if (signal === 'SIGKILL') {
      assert.ok((await readdir(native)).length > 1, 'it had no time for it');
      if (typeof pid === 'number') process.kill(pid, 'SIGKILL');
      await run(process.execPath, [fileURLToPath(new URL('../bin/helios-vk.mjs', import.meta.url)), 'unlink', folder]);
    }
    await until(async () => typeof pid !== 'number' || !existsSync(`/proc/${pid}`) || undefined);
    await unchanged();
  }
});

test('the bench of models counts what has the losses of PyTorch, and says what has not', async (t) => {
  const folder = temporaryFolder(t);
  // A stand-in that trains our own model as "eager", another as "compiled", and knows no bf16.
  const standIn = join(folder, 'python');
  const models = JSON.stringify(pathToFileURL(resolve('benches/lib/models.mjs')));
  await writeFile(
    standIn,
    `#!${process.execPath}
    const { createInterface } = require('node:readline');
    (async () => {
      const { training } = await import(${models});
      let step;
      for await (const line of createInterface({ input: process.stdin })) {
        const { do: what, model, sizes, precision, mode, check, steps } = JSON.parse(line);
        let answer = { torch: '0', device: 'stand-in', milliseconds: 5 * steps, microseconds: { add: 3, matmul: 4 } };
        if (what === 'prepare') {
          step = training(model, mode === 'compiled' ? { ...sizes, width: 2 * sizes.width } : sizes, 'f32').step;
          const losses = [];
          for (let i = 0; i < check; i++) losses.push(await step().item());
          answer = precision === 'bf16' ? { error: 'no bf16 here' } : { losses };
        }
        console.log(JSON.stringify(answer));
      }
    })();`,
  );
  await chmod(standIn, 0o755);
  const args = [
    '--addon',
    addon,
    '--small',
    '--only',
    'mlp,eager,regression',
    '--rounds',
    '2',
    '--milliseconds',
    '1',
    '--json',
    '--pytorch',
    standIn,
  ];
  const { stdout, stderr } = await bench('models.mjs', ...args, '--results', folder);
  const { figures } = JSON.parse(stdout);
  const found = figures.map((/** @type {any} */ { group, name, series }) => `${group}: ${name}, ${series}`);
  assert.deepEqual(found, [
    'a training step of mlp, f32: helios-vk, compiled, milliseconds',
    'a training step of mlp, f32: PyTorch, eager, milliseconds',
    'a training step of mlp, bf16: helios-vk, compiled, milliseconds',
    'an eager operation on 64×64: helios-vk, add',
    'an eager operation on 64×64: helios-vk, add, calls',
    'an eager operation on 64×64: helios-vk, matmul',
    'an eager operation on 64×64: helios-vk, matmul, calls',
    'an eager operation on 64×64: PyTorch, add',
    'an eager operation on 64×64: PyTorch, matmul',
    'a training step of a regression, 256 × 8 × 64: helios-vk, compiled, milliseconds',
    'a training step of a regression, 64 × 8 × 32: helios-vk, compiled, milliseconds',
  ]);
  assert.equal(figures[1].value, 5);
  for (const { value, runs } of figures) assert.ok(value > 0 && runs.length >= 2, JSON.stringify(figures));
  assert.match(stderr, /mlp, f32, PyTorch compiled: losses .* are not ours/);
  assert.match(stderr, /mlp, bf16, PyTorch eager: no bf16 here/);
  assert.ok((await readdir(folder)).some((file) => /-models-.*\.json$/.test(file)));
});

test('the bench of ONNX files counts what has the output of PyTorch, and says what has not', async (t) => {
  const folder = temporaryFolder(t);
  // A stand-in that exports a fixture, with PyTorch's output of it, and knows no CUDA graphs.
  const standIn = join(folder, 'python');
  const fixture = JSON.stringify(resolve('packages/onnx/test/fixtures/models/resnet'));
  const nn = JSON.stringify(pathToFileURL(resolve('nn/index.mjs')));
  await writeFile(
    standIn,
    `#!${process.execPath}
    const { createInterface } = require('node:readline');
    (async () => {
      const { load, save } = await import(${nn});
      for await (const line of createInterface({ input: process.stdin })) {
        const { do: what, model, mode, calls, folder } = JSON.parse(line);
        let answer = { torch: '0', device: 'stand-in', milliseconds: 5 * calls, apart: 0, seconds: 1 };
        if (what === 'make') {
          const values = await load(${fixture} + '.safetensors');
          const input = model === 'resnet50' ? values['input.image'] : values['input.image'].mul(2);
          await save(folder + '/values-3.safetensors', { input, output: values['output.logits'] });
          answer = { file: ${fixture} + '.onnx', seconds: 1, parameters: 5 };
        }
        if (mode === 'graphs') answer = { error: 'no graphs here' };
        console.log(JSON.stringify(answer));
      }
    })();`,
  );
  await chmod(standIn, 0o755);
  const options = { batches: 3, precision: 'f32', modes: 'eager,graphs', rounds: 2, milliseconds: 1, pytorch: standIn, results: folder };
  const args = Object.entries({ ...options, addon, only: 'resnet50' }).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const { stdout, stderr } = await bench('onnx.mjs', ...args, '--json');
  const { figures } = JSON.parse(stdout);
  const group = 'inference of resnet50, f32, batch 3';
  assert.deepEqual(
    figures.map((/** @type {any} */ each) => `${each.group}: ${each.name}`),
    ['helios-vk, compiled', 'PyTorch, eager'].flatMap((name) => [`${group}: ${name}`, `${group}, each waited for: ${name}`]),
  );
  assert.equal(figures[2].value, 5);
  for (const { value, runs } of figures) assert.ok(value > 0 && runs.length === 2, JSON.stringify(figures));
  assert.match(stderr, /resnet50, batch 3, PyTorch graphs: no graphs here/);
  assert.ok((await readdir(folder)).some((file) => /-onnx-.*\.json$/.test(file)));
  // Another input than the one that the output is of.
  await assert.rejects(bench('onnx.mjs', ...args.with(-1, 'bert-base')), /the output differs from PyTorch's by /);
});
