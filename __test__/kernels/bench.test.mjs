// The kernels' bench still runs: small shapes, every case, figures that make sense.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

test('benches/kernels.mjs --quick', () => {
  const folder = mkdtempSync(join(tmpdir(), 'helios-kernels-'));
  try {
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
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('benches/kernels-matmul.mjs sweeps the plans of a shape, and prints a table of what it found', () => {
  const folder = mkdtempSync(join(tmpdir(), 'helios-kernels-'));
  try {
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
  } finally {
    rmSync(folder, { recursive: true });
  }
});
