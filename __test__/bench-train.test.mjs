// benches/train.mjs: what it measures, and that its steps are those of `helios-lm train` and of the float64 reference.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { SafetensorsFile } from '../bin/lib/files.mjs';
import { parameterShapes, sizeOf } from '../packages/lm/src/model/parts.mjs';
import { configOf, learningRateAt } from '../packages/lm/src/train/settings.mjs';
import { temporaryFolder } from './lib/folder.mjs';
import { filled, toFloat64 } from './lib/gpt.mjs';
import { adamW, forwardBackward } from './lib/gpt-reference.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const environment = { ...process.env };
delete environment.NODE_TEST_CONTEXT;
/** @param {string} program @param {...string} args */
const run = (program, ...args) => promisify(execFile)(process.execPath, [join(ROOT, program), ...args], { env: environment });
const bench = (/** @type {string[]} */ ...args) => run('benches/train.mjs', ...args);

const SMALL = ['--preset', 'gpt-tiny', '--layers', '1', '--width', '32', '--heads', '1', '--hidden', '64', '--block', '16', '--batch', '4'];

/** A folder with a text. @param {import('node:test').TestContext} t @param {string} text */
async function folderWith(t, text) {
  const folder = temporaryFolder(t);
  const data = join(folder, 'text.txt');
  await writeFile(data, text);
  return { folder, data, json: join(folder, 'result.json') };
}

test('train.mjs: losses, rates, memory and GPU times in the results, on the page and in print', async (t) => {
  const { folder, data, json } = await folderWith(t, 'the quick brown fox jumps over the lazy dog. '.repeat(200));
  const report = join(folder, 'report.html');
  const options = [...SMALL, '--data', data, '--steps', '40'];
  const { stdout } = await bench(...options, '--json', json, '--report', report, '--kernel-times', '--peak');
  const result = JSON.parse(await readFile(json, 'utf8'));
  assert.equal(result.losses.length, 40);
  assert.ok(Math.abs(result.losses[0] - Math.log(256)) < 0.5, `first loss ${result.losses[0]}`);
  assert.ok(result.finalLoss < result.losses[0] - 1, `final loss ${result.finalLoss}`);
  // The first steps do not count.
  assert.equal(result.tokensPerSecond.perStep.length, 37);
  assert.ok(result.tokensPerSecond.median > 0 && result.hostMillisecondsPerStep > 0 && result.memoryBytes > 0);
  const times = /** @type {{ count: number, microseconds: number }[]} */ (result.kernelTimes);
  assert.equal(
    times.reduce((sum, { count }) => sum + count, 0),
    result.dispatchesPerStep,
  );
  assert.ok(times.every(({ microseconds }) => microseconds >= 0) && times[0].microseconds > 0);
  assert.ok(result.matrixRate > 0);
  const share = (result.tokensPerSecond.median * result.flopsPerToken) / result.matrixRate;
  assert.ok(Math.abs(result.matrixShare / share - 1) < 1e-12);
  const page = await readFile(report, 'utf8');
  assert.ok(page.startsWith('<!doctype html>') && page.endsWith('</html>\n'));
  assert.equal(page.match(/<svg/g)?.length, 2);
  for (const part of [
    `<b>${result.finalLoss.toFixed(4)}</b>`,
    `${data}, 9,000 tokens`,
    '<td>dispatches a step</td>',
    '<td>adamw (trainer.mjs:',
    '<td>width</td><td>32</td>',
  ]) {
    assert.ok(page.includes(part), part);
  }
  assert.doesNotMatch(page, /NaN|undefined|Infinity/);
  for (const line of [
    /^loss .*mean of the last 10 steps/m,
    /^tokens a second .*of the device's matrix rate/m,
    /^host time a step .*\(graph\)/m,
  ]) {
    assert.match(stdout, line);
  }
});

test('train.mjs makes the steps of helios-lm train, as a graph and as a list', async (t) => {
  const { folder, data, json } = await folderWith(t, 'peter piper picked a peck of pickled peppers. '.repeat(100));
  const common = [...SMALL, '--data', data, '--steps', '6', '--micro-steps', '2', '--seed', '3', '--quiet'];
  const out = join(folder, 'run');
  await run('packages/lm/bin/helios-lm.mjs', 'train', ...common, '--validation', '0', '--sample-tokens', '0', '--out', out);
  const lines = (await readFile(join(out, 'metrics.jsonl'), 'utf8')).trim().split('\n');
  const losses = lines.map((line) => JSON.parse(line).loss).filter((loss) => loss !== undefined);
  assert.equal(losses.length, 6);
  for (const mode of ['graph', 'plain']) {
    await bench(...common, '--mode', mode, '--json', json);
    assert.deepEqual(JSON.parse(await readFile(json, 'utf8')).losses, losses, mode);
  }
});

test('train.mjs: the float64 reference has its losses, from the batches and the weights that it writes', async (t) => {
  const { folder, data, json } = await folderWith(t, 'she sells sea shells on the sea shore. '.repeat(50));
  const [dump, weights] = ['batches', 'weights'].map((name) => join(folder, `${name}.safetensors`));
  const options = [...SMALL, '--data', data, '--quiet', '--steps', '3', '--micro-steps', '2', '--seed', '5'];
  await bench(...options, '--dump-batches', dump, '--dump-weights', weights, '--json', json);
  const { losses, config } = JSON.parse(await readFile(json, 'utf8'));
  const bad = (/** @type {string} */ what) => new Error(what);
  const file = await SafetensorsFile.open(dump, bad);
  const { maxSteps, gradientAccumulationSteps: micro, batchSize, blockSize } = config;
  assert.deepEqual(JSON.parse(file.metadata.config), config);
  assert.deepEqual(file.tensors.get('batches')?.shape, [maxSteps, micro, 2, batchSize, blockSize]);
  assert.deepEqual([maxSteps, micro, batchSize, blockSize], [3, 2, 4, 16]);
  const half = batchSize * blockSize;
  const batches = new Uint32Array(maxSteps * micro * 2 * half);
  await file.read('batches', batches);
  await file.close();
  const { model, settings } = configOf('gpt-tiny', config);
  const start = filled(model);
  const from = await SafetensorsFile.open(weights, bad);
  assert.deepEqual([...from.tensors.keys()].sort(), Object.keys(start).sort());
  for (const [name, shape] of Object.entries(parameterShapes(model))) {
    assert.deepEqual(
      [from.tensors.get(name)?.dtype, from.tensors.get(name)?.shape, start[name].length],
      ['F32', shape, sizeOf(shape)],
      name,
    );
    await from.read(name, start[name]);
  }
  await from.close();
  const [m, v, gradient] = [0, 0, 0].map(() => toFloat64(filled(model)));
  const state = { weights: toFloat64(start), m, v, gradient };
  for (let step = 0; step < maxSteps; step++) {
    for (const values of Object.values(gradient)) values.fill(0);
    let loss = 0;
    for (let i = 0; i < micro; i++) {
      const at = 2 * half * (step * micro + i);
      const [ids, targets] = [batches.subarray(at, at + half), batches.subarray(at + half, at + 2 * half)];
      assert.deepEqual(ids.subarray(1, blockSize), targets.subarray(0, blockSize - 1), 'each target is the id that follows');
      loss += forwardBackward(model, state.weights, ids, targets, gradient, 1 / micro).loss / micro;
    }
    adamW(settings, state, step, learningRateAt(settings, step));
    assert.ok(Math.abs(losses[step] - loss) < 2e-4 * loss, `step ${step}: ${losses[step]}, expected ${loss}`);
  }
});

test('train.mjs: wrong options are errors that name them', async (t) => {
  const { folder } = await folderWith(t, '');
  for (const [options, message] of /** @type {[string[], RegExp][]} */ ([
    [['--preset', 'huge'], /--preset huge: must be one of .*gpt-tiny, gpt-30m, gpt-300m, tiny, small, mission/],
    [['--layers', 'two'], /--layers two: must be an integer from 1 to 4096/],
    [['--width', '30', '--heads', '4'], /width 30 is not a multiple of heads 4/],
    [['--preset', 'gpt-tiny', '--width', '30'], /width \/ heads must be even, got 15/],
    [['--nonsense'], /--nonsense/],
    [['--checkpoint', 'x'], /--checkpoint/],
    [['--preset', 'gpt-tiny', '--steps', '2000000', '--dump-batches', join(folder, 'x')], /--dump-batches: 2000000 steps have/],
    [['--data', '/nonexistent.txt'], /nonexistent/],
  ])) {
    await assert.rejects(bench(...options), (/** @type {any} */ error) => {
      assert.ok(error.code === 1 || error.code === 2, error.stderr);
      assert.match(error.stderr, message);
      assert.doesNotMatch(error.stderr, /\n {4}at /);
      return true;
    });
  }
});
