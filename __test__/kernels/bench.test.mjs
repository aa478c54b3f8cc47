// The kernels' bench still runs: small shapes, every case, figures that make sense.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { addCublas, gridName, gridProducts, gridSummary, timeGrid } from '../../benches/lib/product-grid.mjs';
import { checkResults } from '../../benches/lib/results.mjs';
import { planName } from '../../kernels/matmul/words.mjs';
import { temporaryFolder } from '../lib/folder.mjs';
import { contextOf, infoOf } from '../lib/plans.mjs';
import { matmulKernels } from '../../kernels/matmul.mjs';

test('benches/kernels.mjs --quick', (t) => {
  const folder = temporaryFolder(t);
  const [json, html] = [join(folder, 'out.json'), join(folder, 'out.html')];
  const bench = fileURLToPath(new URL('../../benches/kernels.mjs', import.meta.url));
  execFileSync(process.execPath, [bench, '--quick', '--json', json, '--html', html], { stdio: ['ignore', 'pipe', 'inherit'] });
  const report = JSON.parse(readFileSync(json, 'utf8'));
  assert.ok(report.copyGBs > 0);
  assert.ok(report.results.length > 60);
  for (const { name, us, gbs, tflops, error } of report.results) {
    if (error !== undefined) assert.match(error, /^no matrix units/, name);
    else assert.ok(us > 0 && (gbs > 0 || tflops > 0), name);
  }
  assert.match(readFileSync(html, 'utf8'), /<!doctype html>[^]*rmsNormForward[^]*<\/html>/);
});

test('benches/kernels-matmul.mjs sweeps the plans of a shape, and prints a table of what it found', (t) => {
  const folder = temporaryFolder(t);
  const out = join(folder, 'out.json');
  const bench = fileURLToPath(new URL('../../benches/kernels-matmul.mjs', import.meta.url));
  const run = (/** @type {string[]} */ ...args) =>
    execFileSync(process.execPath, [bench, ...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
  // One shape, which ends long before the budget does: no clock decides what is measured.
  run('--sweep', '--small', '--groups', 'f32', '--shapes', 'NT 64 96 64', '--budget', '600', '--out', out);
  const results = JSON.parse(readFileSync(out, 'utf8'));
  assert.ok(
    results.some((/** @type {any} */ r) => r.us > 0 && r.tflops > 0),
    JSON.stringify(results.slice(0, 3)),
  );
  for (const { key, error } of results) assert.doesNotMatch(error ?? '', /wrong result|not written/, key);
  assert.match(run('--table', out), /f32: `\n(NT|NN|TN) \d+ \d+ \d+ \| /);
});

test('benches/kernels-matmul.mjs --table has the best plan of a shape, and says where SPIR-V is faster than PTX', (t) => {
  const folder = temporaryFolder(t);
  const file = join(folder, 'ptx.json');
  const coop = { kernel: 'coop', bm: 128, bn: 128, bk: 64, wm: 64, wn: 32, tm: 16, tn: 16, tk: 16, stages: 1, splits: 1 };
  const result = (/** @type {string} */ shape, /** @type {number} */ us, /** @type {object} */ plan, /** @type {object} */ more = {}) => ({
    ...{ key: `${shape} ${JSON.stringify(plan)}`, group: 'ptx', shape, us, plan },
    ...more,
  });
  const results = [
    result('NT 8192x1024x2752', 181, coop),
    result('NT 8192x1024x2752', 80.04, { kernel: 'ptx', tiling: 'm256n128-ld' }),
    result('NT 8192x1024x2752', 70, { kernel: 'ptx', tiling: 'm128n128-ld' }, { differ: 3 }),
    result('TN 1024x1024x8192', 52.1, { kernel: 'ptx', tiling: 'm128n256-cp', splits: 4 }),
    result('TN 17408x1024x8192', 900, { kernel: 'ptx', tiling: 'm256n128-ld', wave: 132, tail: 4 }),
    result('NT 512x1024x1024', 12.1, coop),
    result('NT 512x1024x1024', 20, { kernel: 'ptx', tiling: 'm128n128-ld' }),
  ];
  writeFileSync(file, JSON.stringify(results));
  const bench = fileURLToPath(new URL('../../benches/kernels-matmul.mjs', import.meta.url));
  const table = execFileSync(process.execPath, [bench, '--table', file], { encoding: 'utf8' });
  assert.equal(
    table,
    [
      '  ptx: `',
      'NT 8192 1024 2752 | m256n128-ld | 1 | 80.0',
      'TN 1024 1024 8192 | m128n256-cp | 4 | 52.1',
      'TN 17408 1024 8192 | m256n128-ld | 132/4 | 900.0',
      'NT 512 1024 1024 | coop | 1 | 12.1',
      '`,',
      '',
    ].join('\n'),
  );
});

test('benches/kernels-matmul.mjs --grid times the picks of a few products beside other plans', (t) => {
  const folder = temporaryFolder(t);
  const out = join(folder, 'out.json');
  const bench = fileURLToPath(new URL('../../benches/kernels-matmul.mjs', import.meta.url));
  const args = [bench, '--grid', '--small', '--count', '3', '--budget', '300', '--out', out, '--results', join(folder, 'results')];
  const text = execFileSync(process.execPath, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  assert.match(text, /^3 of 3 products: \d+ % within 5 % of the fastest plan, geometric mean [1-9]\.\d+$/m);
  assert.doesNotMatch(text, /^failed/m);
  const results = JSON.parse(readFileSync(out, 'utf8'));
  assert.equal(results.length, 3);
  for (const { us, plans } of results) assert.ok(us > 0 && plans.length > 1 && plans[0].us <= us);
  const [file] = readdirSync(join(folder, 'results'));
  const { figures } = checkResults(JSON.parse(readFileSync(join(folder, 'results', file), 'utf8')), file);
  assert.deepEqual(new Set(figures.map(({ series }) => series)), new Set(['pick', 'fastest plan']));
});

test('the grid on a described H100: plans in PTX and SPIR-V that it can run, the bound, what fails, cuBLAS beside it', (t) => {
  const context = contextOf(infoOf('NVIDIA H100 80GB HBM3', { hasPtx: true, multiprocessors: 132 }));
  const kernels = { context, ...matmulKernels(context, { verify: () => undefined, verifyGroup: () => undefined }) };
  const products = gridProducts('bf16', false).slice(0, 60);
  assert.deepEqual(gridProducts('bf16', false).slice(0, 60), products, 'always the same');
  assert.equal(new Set(products.map(gridName)).size, 60);
  let [opened, closed] = [0, 0];
  const timer = {
    open: (/** @type {any} */ problem) => {
      if (++opened === 2) throw new Error('no memory');
      return {
        sampler: (/** @type {any} */ plan) => {
          // Throws where the plan cannot run.
          const { kernel } = kernels.matmulPlan({ ...problem.args, plan });
          return () => (kernel === 'ptx' && planName(plan).includes('m128') ? 9 : 10);
        },
        close: () => closed++,
      };
    },
    close: () => {},
  };
  const { results, failed } = timeGrid(/** @type {any} */ (kernels), timer, products, Infinity, () => {});
  assert.equal(results.length, 59);
  assert.equal(closed, 59);
  assert.deepEqual(failed, [`${gridName(products[1])}: no memory`]);
  const both = results.filter(
    ({ plans }) => plans.some(({ name }) => name.startsWith('ptx')) && plans.some(({ name }) => !name.startsWith('ptx')),
  );
  assert.ok(both.length > 20, `${both.length} with both kernels`);
  const { within, mean, ratios } = gridSummary(results);
  assert.ok(ratios[0].ratio > 1.1 && ratios[0].result.us === 10 && ratios[0].result.plans[0].us === 9);
  assert.equal(within, results.filter(({ us, plans }) => us === plans[0].us).length / 59);
  assert.ok(mean > 1 && mean < 10 / 9);
  assert.deepEqual(timeGrid(/** @type {any} */ (kernels), timer, products, Date.now() - 1, () => {}).results, [], 'no time is left');
  // A program in the place of PyTorch.
  const folder = temporaryFolder(t);
  const file = join(folder, 'python');
  writeFileSync(
    file,
    `#!${process.execPath}
for (const product of require('node:fs').readFileSync(0, 'utf8').split('\\n').slice(0, 2)) console.log(JSON.stringify({ product, us: 5 }));
console.error('out of memory');
process.exit(1);
`,
    { mode: 0o755 },
  );
  const missing = addCublas(results, file, 60);
  assert.match(String(missing), process.platform === 'win32' ? /./ : /out of memory$/);
  if (process.platform !== 'win32')
    assert.deepEqual(
      results.slice(0, 3).map(({ cublas }) => cublas),
      [5, 5, undefined],
    );
});
