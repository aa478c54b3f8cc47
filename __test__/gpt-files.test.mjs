// Files and text of the trainer: safetensors, checkpoints, tokenizers. No device.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { loadCheckpoint, saveCheckpoint } from '../packages/lm/src/train/checkpoint.mjs';
import { PRESETS, flatConfig, withValues } from '../packages/lm/src/train/config.mjs';
import { checkSameData, dataInfo, loadText } from '../packages/lm/src/train/data.mjs';
import { Progress, formatBytes, formatCount, formatDuration, formatFlops, formatNumber } from '../packages/lm/src/train/progress.mjs';
import { profileTable } from '../packages/lm/src/train/profile.mjs';
import { Random } from '../packages/lm/src/train/random.mjs';
import { recentRate, stepRates } from '../packages/lm/src/train/run.mjs';
import { expectTensor, openTensors, writeTensors } from '../packages/lm/src/train/safetensors.mjs';
import { restoreTokenizer, trainTokenizer } from '../packages/lm/src/train/tokenizer.mjs';
import { filled } from './lib/gpt.mjs';

const execute = promisify(execFile);

/** @param {import('node:test').TestContext} t */
async function folder(t) {
  const path = await mkdtemp(join(tmpdir(), 'helios-vk-test-'));
  t.after(() => rm(path, { recursive: true, force: true }));
  return path;
}

test('safetensors: the layout is the specification’s', async (t) => {
  const path = join(await folder(t), 'a.safetensors');
  const a = Float32Array.of(1, -2, 3, 4, 5, 6);
  const b = Int32Array.of(7, 8);
  await writeTensors(
    path,
    [
      { name: 'a', dtype: 'F32', shape: [2, 3], data: () => a },
      { name: 'b', dtype: 'I32', shape: [2], data: () => b },
    ],
    { made: 'here' },
  );
  const bytes = await readFile(path);
  const header = Number(bytes.readBigUInt64LE(0));
  assert.equal(header % 8, 0);
  assert.deepEqual(JSON.parse(bytes.subarray(8, 8 + header).toString()), {
    __metadata__: { made: 'here' },
    a: { dtype: 'F32', shape: [2, 3], data_offsets: [0, 24] },
    b: { dtype: 'I32', shape: [2], data_offsets: [24, 32] },
  });
  assert.equal(bytes.length, 8 + header + 32);
  assert.equal(bytes.readFloatLE(8 + header + 4), -2);
  assert.equal(bytes.readInt32LE(8 + header + 28), 8);

  const file = await openTensors(path);
  const into = new Float32Array(6);
  expectTensor(path, file, 'a', 'F32', [2, 3]);
  await file.read('a', into);
  assert.deepEqual(into, a);
  assert.throws(() => expectTensor(path, file, 'a', 'F32', [3, 2]), /expected F32 \[3,2\]/);
  assert.throws(() => expectTensor(path, file, 'a', 'I32', [2, 3]), /expected I32 \[2,3\]/);
  assert.throws(() => expectTensor(path, file, 'c', 'F32', [3, 2]), /no tensor c/);
  await file.close();
});

test('safetensors: broken files are refused, failed writes leave nothing', async (t) => {
  const dir = await folder(t);
  const path = join(dir, 'a.safetensors');
  const tensors = [{ name: 'a', dtype: 'F32', shape: [2], data: () => new Float32Array(2) }];
  await writeTensors(path, tensors);
  const good = await readFile(path);
  for (const bad of [
    good.subarray(0, 4),
    good.subarray(0, good.length - 1),
    Buffer.concat([good, Buffer.alloc(4)]),
    Buffer.concat([Buffer.from([255, 255, 255, 255, 255, 0, 0, 0]), good.subarray(8)]),
    Buffer.from(good).fill('x', 8, 12),
  ]) {
    await writeFile(path, bad);
    await assert.rejects(openTensors(path), /not a safetensors file/);
  }
  await rm(path);
  await assert.rejects(
    writeTensors(path, [{ name: 'a', dtype: 'F32', shape: [3], data: () => new Float32Array(2) }]),
    /a needs 12 bytes, got 8/,
  );
  assert.deepEqual(await readdir(dir), []);
});

test('a checkpoint gives back every bit, and the latest of a folder', async (t) => {
  const dir = await folder(t);
  const config = withValues(PRESETS['gpt-tiny'], { layers: 1, width: 64, heads: 2, hidden: 12, block: 5 });
  const zeros = () => filled(config.model);
  const random = new Random(4);
  const state = { weights: zeros(), m: zeros(), v: zeros() };
  for (const [part, values] of Object.entries(state)) {
    for (const each of Object.values(values))
      each.forEach((_, i) => (each[i] = part === 'v' ? Math.abs(random.normal()) : random.normal()));
  }
  await saveCheckpoint(dir, { config, tokenizer: { kind: 'byte' } }, 9, zeros);
  const data = dataInfo({ name: 'a text', file: '/a/text' }, Uint32Array.of(1, 2, 3));
  await saveCheckpoint(dir, { config, tokenizer: { kind: 'byte' }, data }, 10, (part) => state[part]);
  const loaded = await loadCheckpoint(dir);
  assert.deepEqual(loaded.config, config);
  assert.deepEqual(loaded.tokenizer, { kind: 'byte' });
  assert.deepEqual(loaded.data, data);
  assert.equal(loaded.step, 10);
  assert.deepEqual(loaded.state, { step: 10, ...state });
  assert.deepEqual((await loadCheckpoint(dir, { moments: false })).state, { step: 10, weights: state.weights });
  assert.equal((await loadCheckpoint(join(dir, 'step-0000009.safetensors'))).data, undefined);
  await assert.rejects(loadCheckpoint(join(dir, 'nothing')), /ENOENT/);
});

test('data are the same by their tokens, wherever they lie', () => {
  const trained = dataInfo({ name: 'a.txt', file: '/here/a.txt' }, Uint32Array.of(97, 98, 99));
  assert.deepEqual(trained, {
    name: 'a.txt',
    file: '/here/a.txt',
    tokens: 3,
    // Of the twelve bytes 61 00 00 00 62 00 00 00 63 00 00 00.
    sha256: createHash('sha256').update('a\0\0\0b\0\0\0c\0\0\0').digest('hex'),
  });
  checkSameData(trained, dataInfo({ name: 'a.txt', file: '/there/a.txt' }, Uint32Array.of(97, 98, 99)));
  const other = dataInfo({ name: 'a novel' }, Uint32Array.of(97, 98, 99, 100));
  assert.throws(() => checkSameData(trained, other), {
    name: 'RangeError',
    message:
      `the checkpoint was trained on /here/a.txt (3 tokens, SHA-256 ${trained.sha256.slice(0, 16)}…), ` +
      `not on a novel (4 tokens, SHA-256 ${other.sha256.slice(0, 16)}…)`,
  });
});

test('rates leave out the first steps, and steps after a pause', () => {
  const finished = [0, 500, 600, 700, 5800, 5900, 6000];
  assert.deepEqual(stepRates(finished, 10), [100, 10_000 / 5100, 100, 100]);
  assert.deepEqual(stepRates(finished, 10, new Set([4])), [100, 100, 100]);
  assert.deepEqual(stepRates([0, 100, 300], 10), [50]);
  assert.deepEqual(stepRates([0], 10), []);
  assert.equal(recentRate(finished, 10), 30_000 / 5300);
  assert.equal(recentRate(finished, 10, new Set([4])), 50_000 / 900);
  assert.equal(recentRate([5], 10), undefined);
  assert.equal(recentRate([5, 6], 10, new Set([1])), undefined);
});

test('bytes: any text goes round', async () => {
  const tokenizer = await trainTokenizer('', 256);
  for (const text of ['Héllo ∀x 日本 \u{1f600}\n\0', '\ufeffa mark at the front, \ufeff and inside', '\ufeff', '\ufeff\ufeff', '']) {
    assert.equal(tokenizer.decode(await tokenizer.encode(text)), text);
  }
});

test('BPE: goes round on text it was not trained on, deterministic, of the wanted size', async () => {
  const { text } = await loadText();
  const sample = new TextDecoder().decode(text).slice(0, 200_000);
  const tokenizer = await trainTokenizer(sample, 1000);
  assert.equal(tokenizer.size, 1000);
  const ids = await tokenizer.encode(sample);
  assert.ok(ids.length < sample.length / 2);
  assert.ok(ids.every((id) => id < 1000));
  assert.equal(tokenizer.decode(ids), sample);
  const strange = 'Héllo ∀x 日本 \u{1f600}\n\n  tabs\t\0end';
  const restored = await restoreTokenizer(JSON.parse(JSON.stringify(tokenizer.state)));
  for (const text of [strange, `\ufeff${strange}`, '\ufeff', '\ufeff\ufeff']) {
    assert.equal(restored.decode(await restored.encode(text)), text);
  }
  assert.deepEqual(await restored.encode(sample), ids);
  assert.deepEqual((await trainTokenizer(sample, 1000)).state, tokenizer.state);
  await assert.rejects(trainTokenizer(sample, 100), /vocab must be/);
});

/** A stream that keeps what is written. @param {boolean} isTTY */
function fakeStream(isTTY) {
  const written = /** @type {string[]} */ ([]);
  const stream = { isTTY, columns: 60, write: (/** @type {string} */ text) => written.push(text) };
  return { written, stream: /** @type {any} */ (stream) };
}

test('progress: one line that redraws itself on a terminal, lines elsewhere', () => {
  let now = 0;
  const terminal = fakeStream(true);
  const bar = new Progress(terminal.stream, { now: () => now });
  bar.begin(10);
  now = 10_000;
  bar.update({ step: 20, steps: 110, loss: 2.5, tokensPerSecond: 1234.5 });
  bar.update({ step: 21, steps: 110 });
  assert.equal(terminal.written.length, 1, 'redraws are rate-limited');
  assert.match(terminal.written[0], /^\r█{4}░{20} 20\/110 {2}loss 2\.5000/);
  assert.ok(terminal.written[0].length <= 60 + 4);
  now = 20_000;
  bar.end({ step: 110, steps: 110, loss: 2 });
  assert.match(terminal.written[1], /^\r█{24} 110\/110 {2}loss 2\.0000/);
  assert.equal(terminal.written[2], '\n');

  const narrow = fakeStream(true);
  for (const [columns, most] of [
    [10, 9],
    [1, 1],
    [0, 79],
  ]) {
    narrow.stream.columns = columns;
    new Progress(narrow.stream).update({ step: 20, steps: 110, loss: 2.5, tokensPerSecond: 1234.5 }, true);
    // Between the return to the line's begin and the deletion of its rest.
    const width = String(narrow.written.pop()).length - '\r\x1b[K'.length;
    assert.ok(width <= most, `${width} of ${columns} columns`);
  }

  const file = fakeStream(false);
  const lines = new Progress(file.stream, { now: () => now });
  lines.begin(0);
  now += 4500;
  lines.update({ step: 1, steps: 4, loss: 3, tokensPerSecond: 50 });
  now += 100;
  lines.update({ step: 2, steps: 4 });
  now += 5000;
  const third = { step: 3, steps: 4 };
  lines.update(third);
  now += 1000;
  lines.end(third);
  assert.equal(file.written.length, 2);
  assert.match(file.written[0], /1\/4 {2}loss 3\.0000 {2}50 tok\/s {2}ETA 0:14\n$/);
  assert.ok(file.written.every((text) => !text.includes('\r') && !text.includes('\x1b')));

  const quiet = fakeStream(true);
  const silent = new Progress(quiet.stream, { quiet: true });
  silent.note('x');
  silent.end({ step: 1, steps: 1 });
  assert.deepEqual(quiet.written, []);
});

test('figures are formatted for people', () => {
  assert.equal(formatDuration(3_723_000), '1:02:03');
  assert.equal(formatDuration(59_600), '1:00');
  assert.equal(formatCount(301_837_312), '301,837,312');
  assert.equal(formatCount(12.345), '12.3');
  assert.equal(formatBytes(0), '0 B');
  assert.equal(formatBytes(1.5 * 2 ** 30), '1.50 GiB');
  assert.equal(formatBytes(1010 * 2 ** 20), '1,010 MiB');
  assert.equal(formatFlops(1.234e13), '12.3 TFLOP/s');
  assert.equal(formatFlops(2.5e9), '2.50 GFLOP/s');
  assert.equal(formatFlops(1.2e15), '1,200 TFLOP/s');
  assert.equal(formatFlops(2.5e6), '0.00250 GFLOP/s');
  assert.deepEqual(
    [4120, 99.96, 99.4, 1.005, 0.0123, 0, NaN, Infinity].map((n) => formatNumber(n)),
    ['4,120', '100', '99.4', '1.01', '0.0123', '0.00', '–', '–'],
  );
  assert.equal(formatNumber(1.73412, 4), '1.734');
});

test('a profile’s table has rates without exponents', () => {
  const row = { share: 0.5, count: 4, us: 50, gbPerSecond: undefined, tflops: undefined };
  const lines = profileTable(
    /** @type {any} */ ({
      us: 200,
      gpuUs: 100,
      rows: [
        { ...row, name: 'adamw', gbPerSecond: 4123 },
        { ...row, name: 'matmul', tflops: 1200 },
      ],
      calls: { batchExecuteAll: { us: 10, calls: 3 } },
      clock: 'submission',
      clockErrorUs: 1,
    }),
  );
  assert.match(lines[1], /50\.0 % +4 +12\.5 +4,123 GB\/s {2}adamw$/);
  assert.match(lines[2], /50\.0 % +4 +12\.5 +1,200 TFLOP\/s {2}matmul$/);
});

test('compare.mjs: differences against PyTorch’s f32, and only between equal runs', async (t) => {
  const dir = await folder(t);
  const script = fileURLToPath(new URL('../benches/pytorch/compare.mjs', import.meta.url));
  const config = { ...flatConfig(PRESETS['gpt-tiny']), steps: 2 };
  const [ours, torch, out] = ['ours.json', 'torch.json', 'out.json'].map((name) => join(dir, name));
  const run = { device: 'a device', config, losses: [4, 3.003], tokensPerSecond: { median: 200 } };
  await writeFile(ours, JSON.stringify(run));
  const results = [
    { mode: 'f32', losses: [4, 3], tokensPerSecond: 100 },
    { mode: 'bf16-compiled', error: 'no compiler' },
  ];
  await writeFile(torch, JSON.stringify({ torch: '2.11', device: 'the same', config, results }));
  const page = join(dir, 'page.html');
  const options = ['--ours', ours, '--pytorch', torch, '--json', out, '--report', page];
  const { stdout, stderr } = await execute(process.execPath, [script, ...options]);
  assert.match(stdout, /\| helios-vk f32 \| 200 \| 4\.000000 \| 3\.003000 \| 0\.0e\+0 \| 1\.0e-3 \|/);
  assert.match(stderr, /bf16-compiled failed: no compiler/);
  const { rows } = JSON.parse(await readFile(out, 'utf8'));
  assert.ok(Math.abs(rows[0].largestDifference - 1e-3) < 1e-12);
  assert.match(await readFile(page, 'utf8'), /PyTorch f32/);
  await writeFile(ours, JSON.stringify({ ...run, config: { ...config, seed: 7 } }));
  await assert.rejects(execute(process.execPath, [script, ...options]), /seed is 7/);
});
