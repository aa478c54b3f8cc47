import { test } from 'node:test';
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { OWN_ADDON } from '../benches/lib/addon.mjs';

const run = promisify(execFile);
const environment = { ...process.env };
delete environment.NODE_TEST_CONTEXT;
const addon = process.env.HELIOS_TEST_ADDON ?? OWN_ADDON;
/** @param {string} name @param {string[]} args */
const bench = (name, ...args) =>
  run(process.execPath, [fileURLToPath(new URL(`../benches/${name}`, import.meta.url)), ...args], { env: environment });

test('the microbenchmarks of the calls run, check their results and compare', async () => {
  const { stdout } = await bench('calls.mjs', '--quick', '--json', '--addon', addon, '--baseline', addon);
  const { results, baseline, ratios } = JSON.parse(stdout);
  const names = Object.keys(results);
  for (const call of ['createBuffer', 'destroyBuffer', 'uploadBuffer', 'readBuffer', 'batchExecuteAll', 'batchDispatch', 'waitTimeline']) {
    assert.ok(names.some((name) => name.startsWith(call)), call);
  }
  for (const name of names) {
    assert.ok(results[name].us > 0 && baseline.results[name].us > 0, name);
    assert.equal(ratios[name], baseline.results[name].us / results[name].us);
  }
});

/** @param {string} prefix */
const scratch = (prefix) => mkdtemp(join(tmpdir(), prefix));

test('the speed bench trains our GPT on two addons, compares losses, and writes its page', async () => {
  const folder = await scratch('helios-bench-');
  try {
    const [json, report] = [join(folder, 'a.json'), join(folder, 'a.html')];
    const args = ['--preset', 'tiny', '--layers', '1', '--quick', '--addon', addon, '--baseline', addon, '--json', json, '--report', report];
    const { stdout } = await bench('toks.mjs', ...args);
    assert.match(stdout, /losses agree/);
    const result = JSON.parse(await readFile(json, 'utf8'));
    assert.equal(result.lossesAgree, true);
    assert.ok(result.ratio.median > 0);
    for (const side of result.sides) {
      assert.equal(side.losses.length, 3);
      assert.ok(side.losses.every((/** @type {number} */ loss) => loss > 4 && loss < 7), `${side.losses}`);
      assert.ok(side.lossesEqual && side.toks.median > 0 && side.calls.batchExecuteAll.usPerDispatch > 0);
    }
    const page = await readFile(report, 'utf8');
    assert.ok(page.startsWith('<!doctype html>') && page.includes('the curves are equal') && !/NaN|undefined/.test(page));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

/** Another addon: this one's calls of the trainer's contract, but no shaders, no graphs, and pipelines that take no options. */
const FOREIGN_ADDON = `
const vk = require(${JSON.stringify(resolve(addon))});
for (const name of Object.getOwnPropertyNames(vk)) if (!/^shaders$|^graph/.test(name)) exports[name] = vk[name];
exports.createPipeline = (...args) => {
  if (args.length !== 3) throw new TypeError('createPipeline takes three arguments, got ' + args.length);
  return vk.createPipeline(...args);
};
`;

test('the speed bench runs the same kernels on an addon whose pipelines take no options', async () => {
  const folder = await scratch('helios-foreign-');
  try {
    const [foreign, json] = [join(folder, 'foreign.cjs'), join(folder, 'a.json')];
    await writeFile(foreign, FOREIGN_ADDON);
    const { stdout } = await bench('toks.mjs', '--preset', 'tiny', '--layers', '1', '--quick', '--addon', addon, '--baseline', foreign, '--json', json);
    assert.match(stdout, /losses agree/);
    assert.match(stdout, /kernels without full subgroups/);
    const { sides, calls } = JSON.parse(await readFile(json, 'utf8'));
    // What the other lacks stands there for this one alone.
    const [launch, create] = ['graphLaunch of 8192', 'createBuffer 64 KiB'].map((call) => calls.find((/** @type {any} */ { name }) => name === call).us);
    assert.ok(launch.length === 2 && launch[0] > 0 && launch[1] === null, `${launch}`);
    assert.ok(create[0] > 0 && create[1] > 0, `${create}`);
    assert.doesNotMatch(stdout, /NaN|undefined/);
    assert.equal(sides[0].calls.batchExecuteAll.count, sides[1].calls.batchExecuteAll.count);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

/** A stand-in for a trainer: prints as one does, from real calls of the addon that it is told to load. */
const FAKE_TRAINER = `
import { createRequire } from 'node:module';
import { existsSync, readFileSync } from 'node:fs';
const option = (name) => process.argv.find((arg) => arg.startsWith('--' + name + '='))?.slice(name.length + 3);
if (process.argv[2] !== 'train' || option('layers') !== '3' || option('dim') !== '32' || option('extra') !== 'a') throw new Error('options: ' + process.argv);
if (existsSync(option('runDir')) || readFileSync(option('data')).length < 1e6) throw new Error('files');
const vk = createRequire(import.meta.url)(process.env.HELIOS_NATIVE_ADDON);
console.log('gpu: ' + vk.initDevice().deviceName);
for (let step = 1; ; step++) {
  const buffer = vk.createBuffer(4096, 0);
  vk.uploadBuffer(buffer, new Float32Array(1024).fill(step));
  const loss = 10 / vk.readBuffer(buffer)[7];
  vk.destroyBuffer(buffer);
  console.log(\`step \${step}/1000 | loss=\${loss.toFixed(4)} | lr=1e-3 | grad_norm=1.0 | \${100 + step}ms/it | \${1000 * step} tok/s | 3 gpu_ops\`);
}
`;

test('the speed bench drives a trainer’s own command and stops it after its last step', async () => {
  const folder = await scratch('helios-trainer-');
  try {
    const checkout = join(folder, "a check'out");
    await mkdir(checkout);
    await writeFile(join(checkout, 'package.json'), JSON.stringify({ scripts: { train: 'node --expose-gc fake.mjs train' } }));
    await writeFile(join(checkout, 'fake.mjs'), FAKE_TRAINER);
    const json = join(folder, 'a.json');
    const args = ['--addon', addon, '--baseline', addon, '--json', json, '--rounds', '2', '--steps', '3', '--warmup', '2', '--layers', '3'];
    await bench('toks.mjs', '--trainer', checkout, '--width', '32', '--trainer-args=--extra=a', ...args);
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
    await assert.rejects(bench('toks.mjs', '--trainer', checkout, '--addon', addon, '--quick'), /exit code 1 after 0 of 3 steps[^]*options:/);
    await assert.rejects(bench('toks.mjs', '--trainer', folder, '--addon', addon), /no package\.json there/);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
