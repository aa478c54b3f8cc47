// A checkout of the trainer, as far as the command line and the registration look at one.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';

import { optionsFromEnvironment, register } from '@helios-vk/alpha-backend/register';

const CLI = join(import.meta.dirname, '../../../bin/helios-vk.mjs');
const checkout = mkdtempSync(join(tmpdir(), 'helios-vk-test-'));
after(() => rmSync(checkout, { recursive: true, force: true }));
const file = join(checkout, 'helios-vk-backend.mjs');
mkdirSync(join(checkout, 'packages/helios/dist'), { recursive: true });
writeFileSync(join(checkout, 'package.json'), '{ "type": "module" }');

/** @param {string[]} args */
const run = (...args) =>
  spawnSync(process.execPath, args, { cwd: checkout, encoding: 'utf8', env: { ...process.env, HELIOS_ALPHA_PRECISION: 'f32' } });

test('a trainer that is not built is named', async () => {
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
  // The trainer's own addon is not ours, and is no news to who takes the backend back.
  mkdirSync(join(checkout, 'packages/helios/native'));
  writeFileSync(join(checkout, 'packages/helios/native/helios_vk.node'), 'theirs');
  const unlinked = run(CLI, 'unlink', checkout);
  assert.equal(unlinked.status, 0, unlinked.stderr);
  assert.match(unlinked.stdout, /^✓ .*helios-vk-backend\.mjs is gone\n$/);
  assert.ok(!existsSync(file));
});

test('a file of somebody else stays', () => {
  writeFileSync(file, '// mine');
  const linked = run(CLI, 'link', checkout, '--backend');
  assert.equal(linked.status, 1);
  assert.match(linked.stderr, /was not put there by helios-vk/);
  assert.equal(run(CLI, 'unlink', checkout).status, 0);
  assert.equal(readFileSync(file, 'utf8'), '// mine');
});

test('a folder or a link of somebody else stays', () => {
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

test('a link that fails in the midst of its file leaves nothing, and can be made again', () => {
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

test('what the environment says is checked', () => {
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
