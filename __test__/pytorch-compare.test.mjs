// benches/pytorch/compare.mjs on made-up results. No device.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { temporaryFolder } from './lib/folder.mjs';

const execute = promisify(execFile);

test('compare.mjs: differences against PyTorch’s f32, and only between equal runs', async (t) => {
  const dir = temporaryFolder(t);
  const script = fileURLToPath(new URL('../benches/pytorch/compare.mjs', import.meta.url));
  const config = { precision: 'f32', layers: 2, width: 64, heads: 2, hidden: 192, seed: 1 };
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
