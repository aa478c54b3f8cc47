import { test } from 'node:test';
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { OWN_ADDON } from '../benches/lib/addon.mjs';
import { RESULTS, checkResults, textOf, writeResults } from '../benches/lib/results.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const run = promisify(execFile);
const path = (/** @type {string} */ file) => fileURLToPath(new URL(`../${file}`, import.meta.url));
const addon = process.env.HELIOS_TEST_ADDON ?? OWN_ADDON;
const environment = { ...process.env };
delete environment.NODE_TEST_CONTEXT;

test('docs/benchmarks.md and its charts are what benches/results gives', async () => {
  await run(process.execPath, [path('scripts/benchmarks.mjs'), '--check']);
});

test('every file of benches/results fits the schema', async () => {
  const files = (await readdir(RESULTS)).filter((file) => file.endsWith('.json'));
  assert.ok(files.length > 0);
  for (const file of files) checkResults(JSON.parse(await readFile(join(RESULTS, file), 'utf8')), file);
});

test('what does not fit the schema is an error that names the field', () => {
  const figure = { group: 'g', name: 'n', series: 'helios-vk', unit: 'µs', value: 1 };
  const good = {
    schema: 1,
    bench: 'calls',
    title: 't',
    device: 'd',
    driver: 'v',
    host: 'h',
    date: '2026-11-24',
    commit: 'abcdef0',
    command: 'c',
    figures: [figure],
  };
  assert.equal(checkResults(good, 'f'), good);
  /** @type {[object, RegExp][]} */
  const bad = [
    [{ schema: 2 }, /f: schema/],
    [{ bench: 'nothing' }, /f: bench/],
    [{ device: '' }, /f: device/],
    [{ date: 'yesterday' }, /f: date/],
    [{ date: '2026-13-40' }, /f: date/],
    [{ commit: 'main' }, /f: commit/],
    [{ figures: [] }, /f: figures/],
    [{ figures: [{ ...figure, value: NaN }] }, /figures\[0\]\.value/],
    [{ figures: [{ ...figure, unit: '' }] }, /figures\[0\]\.unit/],
    [{ figures: [{ ...figure, runs: [] }] }, /figures\[0\]\.runs/],
    [{ figures: [figure, figure] }, /figures\[1\] is there twice/],
    [{ transcribed: true }, /source/],
    [{ more: 1 }, /f: more/],
  ];
  for (const [change, message] of bad) assert.throws(() => checkResults({ ...good, ...change }, 'f'), message);
});

test('a second file of the same second gets a number, and none is overwritten', async (t) => {
  const folder = temporaryFolder(t);
  const figures = [{ group: 'g', name: 'n', series: 'helios-vk', unit: 'µs', value: 1 }];
  const one = { bench: /** @type {const} */ ('calls'), title: 't', device: 'a device/1', driver: undefined, figures };
  const paths = Array.from({ length: 5 }, () => writeResults(folder, one));
  assert.equal(new Set(paths).size, 5);
  assert.equal((await readdir(folder)).length, 5);
  assert.throws(() => writeResults(folder, { ...one, figures: [{ ...figures[0], value: NaN }] }), /figures\[0\]\.value/);
  assert.equal((await readdir(folder)).length, 5);
});

/** @type {[string, string[], RegExp][]} the bench, its options, and a figure that must be there */
const RUNS = [
  ['calls', ['--quick', '--addon', addon, '--baseline', addon], /createBuffer/],
  ['trainer-tokens', ['--preset', 'gpt-tiny', '--layers', '1', '--quick', '--addon', addon, '--baseline', addon], /tokens a second/],
  ['kernels', ['--quick', '--addon', addon, '--only', 'add,matmul f32'], /matmul f32/],
  ['train', ['--preset', 'gpt-tiny', '--layers', '1', '--steps', '4', '--quiet'], /tokens a second/],
  ['kernels-matmul', ['--sweep', '--small', '--groups', 'f32', '--shapes', 'NT 64 64 64', '--budget', '8'], /NT 64/],
];
for (const [bench, options, expected] of RUNS) {
  const script = `${bench === 'trainer-tokens' ? 'packages/alpha-backend/bench' : 'benches'}/${bench}.mjs`;
  test(`${script} --results writes a file that fits the schema`, async (t) => {
    const folder = temporaryFolder(t);
    await run(process.execPath, [path(script), ...options, '--results', folder], { env: environment });
    const [file, ...more] = await readdir(folder);
    assert.deepEqual(more, []);
    const results = checkResults(JSON.parse(await readFile(join(folder, file), 'utf8')), file);
    assert.equal(results.bench, bench);
    assert.ok(results.figures.every(({ value }) => value > 0));
    assert.ok(
      results.figures.some(({ name }) => expected.test(name)),
      results.figures.map(({ name }) => name).join(', '),
    );
    assert.ok(!results.command.includes(folder), results.command);
  });
}

test('every file has a line for each figure, and the text of a run is read back as it was', async () => {
  const folder = new URL('../benches/results/', import.meta.url);
  for (const name of await readdir(folder)) {
    const text = await readFile(new URL(name, folder), 'utf8');
    const results = JSON.parse(text);
    assert.equal(textOf(results), text, name);
    assert.equal(text.match(/^ {2}\{"group":/gm)?.length, results.figures.length, name);
  }
});

test('docs/benchmarks.md has of each group the newest figures, of one day the last', async () => {
  const files = (await readdir(RESULTS)).filter((file) => file.endsWith('.json'));
  const runs = await Promise.all(files.map(async (file) => ({ file, ...JSON.parse(await readFile(join(RESULTS, file), 'utf8')) })));
  const rows = (await readFile(path('docs/benchmarks.md'), 'utf8')).split('\n').filter((line) => line.startsWith('| inference of '));
  assert.ok(rows.length > 0);
  for (const row of rows) {
    const group = row.slice(2).split(' | ')[0];
    const dates = runs.flatMap(({ bench, device, date, figures }) =>
      bench === 'onnx' && !device.startsWith('llvmpipe') && figures.some((/** @type {any} */ figure) => figure.group === group)
        ? [date]
        : [],
    );
    const shown = runs.find(({ file }) => row.includes(`(../benches/results/${file})`));
    if (dates.length > 0) assert.equal(shown.date, dates.sort().at(-1), group);
  }
});
