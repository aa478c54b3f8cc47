// `helios-vk link --backend` and `register`, on a stand-in for a checkout of the trainer.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { optionsFromEnvironment, register } from '@helios-vk/alpha-backend/register';

import { temporaryFolder } from '../../../__test__/lib/folder.mjs';

const CLI = join(import.meta.dirname, '../../../bin/helios-vk.mjs');
const checkout = temporaryFolder();
const file = join(checkout, 'helios-vk-backend.mjs');
mkdirSync(join(checkout, 'packages/helios/dist'), { recursive: true });
writeFileSync(join(checkout, 'package.json'), '{ "type": "module" }');

/** @param {string[]} args */
const run = (...args) =>
  spawnSync(process.execPath, args, { cwd: checkout, encoding: 'utf8', env: { ...process.env, HELIOS_ALPHA_PRECISION: 'f32' } });

test('register names a trainer that is not built', async () => {
  await assert.rejects(register(checkout), /register: .*packages\/helios\/dist\/index\.js is not there: build the trainer first/);
});

test('link --backend: the trainer’s registry gives this backend; unlink takes it back', () => {
  writeFileSync(
    join(checkout, 'packages/helios/dist/index.js'),
    'export const made = new Map(); export const heliosRegistry = { register: (name, create) => made.set(name, create) };',
  );
  const linked = run(CLI, 'link', checkout, '--backend');
  assert.equal(linked.status, 0, linked.stderr);
  assert.match(linked.stdout, /node --import \.\/helios-vk-backend\.mjs apps\/cli\/dist\/main\.js train --backend=helios/);
  assert.match(run(CLI, 'link', checkout, '--backend').stdout, /already registers/);
  writeFileSync(
    join(checkout, 'main.mjs'),
    "import { made } from './packages/helios/dist/index.js'; const b = made.get('helios')(); console.log(b.name, b.precision, b.add(b.ones([2]), b.ones([2])).data[1]);",
  );
  const used = run('--import', './helios-vk-backend.mjs', 'main.mjs');
  assert.equal(used.stdout.trim(), 'helios-vk f32 2', used.stderr);
  // `unlink` need not mention an addon that it did not put there.
  mkdirSync(join(checkout, 'packages/helios/native'));
  writeFileSync(join(checkout, 'packages/helios/native/helios_vk.node'), 'theirs');
  const unlinked = run(CLI, 'unlink', checkout);
  assert.equal(unlinked.status, 0, unlinked.stderr);
  assert.match(unlinked.stdout, /^✓ .*helios-vk-backend\.mjs is gone\n$/);
  assert.ok(!existsSync(file));
});

test('a file that helios-vk did not write stays', () => {
  writeFileSync(file, '// mine');
  const linked = run(CLI, 'link', checkout, '--backend');
  assert.equal(linked.status, 1);
  assert.match(linked.stderr, /was not put there by helios-vk/);
  assert.equal(run(CLI, 'unlink', checkout).status, 0);
  assert.equal(readFileSync(file, 'utf8'), '// mine');
});

test('a folder or a link that helios-vk did not make stays', () => {
  for (const make of [() => mkdirSync(file), () => symlinkSync('absent', file)]) {
    rmSync(file, { force: true, recursive: true });
    make();
    assert.match(run(CLI, 'link', checkout, '--backend').stderr, /was not put there by helios-vk/);
    const unlinked = run(CLI, 'unlink', checkout);
    assert.equal(unlinked.status, 0, unlinked.stderr);
    assert.ok(readdirSync(checkout).includes('helios-vk-backend.mjs'));
  }
  rmSync(file);
});

test('link --backend that fails while it writes its file leaves nothing, and can be repeated', () => {
  const full = join(checkout, 'full-disk.mjs');
  writeFileSync(
    full,
    `import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
const { writeFileSync } = fs;
fs.writeFileSync = (path, text) => {
  writeFileSync(path, text.slice(0, 20));
  throw new Error('no space left on device');
};
syncBuiltinESMExports();`,
  );
  const before = readdirSync(checkout);
  const failed = run('--import', full, CLI, 'link', checkout, '--backend');
  assert.equal(failed.status, 1);
  assert.match(failed.stderr, /no space left on device/);
  assert.deepEqual(readdirSync(checkout), before);
  const linked = run(CLI, 'link', checkout, '--backend');
  assert.equal(linked.status, 0, linked.stderr);
  rmSync(file);
});

test('variables of the environment are checked', () => {
  assert.deepEqual(optionsFromEnvironment({ HELIOS_ALPHA_PRECISION: 'bf16', HELIOS_ALPHA_CAPTURE: '0' }), {
    precision: 'bf16',
    capture: false,
  });
  assert.deepEqual(optionsFromEnvironment({}), {});
  assert.throws(
    () => optionsFromEnvironment({ HELIOS_ALPHA_PRECISION: 'tf32' }),
    /HELIOS_ALPHA_PRECISION: expected bf16, f16 or f32, got tf32/,
  );
  assert.throws(() => optionsFromEnvironment({ HELIOS_ALPHA_CAPTURE: 'yes' }), /HELIOS_ALPHA_CAPTURE: expected 0 or 1, got yes/);
});
