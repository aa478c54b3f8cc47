// The ladder of fixes: a training run with each switched off, in processes of their own.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { temporaryFolder } from './lib/folder.mjs';

const execute = promisify(execFile);
const ladder = fileURLToPath(new URL('../benches/ablation.mjs', import.meta.url));

test('ablation.mjs: a rung for each fix, and the same loss on every rung', async (t) => {
  const dir = temporaryFolder(t);
  const [json, report] = [join(dir, 'ladder.json'), join(dir, 'ladder.html')];
  const options = ['--preset', 'gpt-tiny', '--precision', 'f32', '--steps', '4', '--json', json, '--report', report];
  const sizes = '--layers=1 --width=32 --heads=1 --hidden=64 --block=16';
  const { stdout } = await execute(process.execPath, [ladder, ...options, `--train-args=${sizes}`]);
  const { rows } = JSON.parse(await readFile(json, 'utf8'));
  assert.equal(rows.length, 8);
  assert.equal(new Set(rows.map((/** @type {any} */ row) => row.loss.toFixed(4))).size, 1, stdout);
  for (const { name, tokensPerSecond } of rows) {
    assert.ok(tokensPerSecond > 0);
    assert.ok(stdout.includes(`| ${name} |`));
  }
  assert.match(await readFile(report, 'utf8'), /<svg[^]*packed lists/);
});
