// The set-up step on checkouts whose files are damaged or cannot be written.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { obstacle, runWithFault } from './faults/io.mjs';
import { readStamp, writeStamp } from '../scripts/stamp.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const STAMP = 'node_modules/.cache/helios-vk/device.json';
const MODULES = 'node_modules/.package-lock.json';

/**
 * A checkout with this one's addon, and no sources that could be newer than it.
 * @param {import('node:test').TestContext} t
 */
function checkout(t) {
  const folder = temporaryFolder(t);
  for (const name of ['package.json', 'package-lock.json', 'Cargo.toml', 'index.js', 'binding.js', 'load-error.js'])
    cpSync(join(ROOT, name), join(folder, name));
  for (const name of readdirSync(ROOT).filter((name) => name.endsWith('.node'))) symlinkSync(join(ROOT, name), join(folder, name));
  for (const name of ['scripts', 'bin', 'kernels/files.mjs']) cpSync(join(ROOT, name), join(folder, name), { recursive: true });
  mkdirSync(join(folder, 'node_modules'));
  const lock = JSON.parse(readFileSync(join(folder, 'package-lock.json'), 'utf8'));
  writeFileSync(join(folder, MODULES), JSON.stringify({ packages: lock.packages }));
  // So that it is no older than what it was built from.
  rmSync(join(folder, 'Cargo.toml'));
  symlinkSync(join(ROOT, 'Cargo.toml'), join(folder, 'Cargo.toml'));
  return folder;
}

/** @param {string} folder @param {...string} args */
const bootstrap = (folder, ...args) => bootstrapBehind([], { HELIOS_NO_INSTALL: '1' }, folder, ...args);

/** @param {string[]} prefix of the command @param {Record<string, string>} environment @param {string} folder @param {...string} args */
function bootstrapBehind(prefix, environment, folder, ...args) {
  const [command, ...rest] = [...prefix, process.execPath, join(folder, 'scripts/bootstrap.mjs'), '--for', 'train', ...args];
  const { status, stdout, stderr } = spawnSync(command, rest, {
    encoding: 'utf8',
    cwd: folder,
    timeout: 600_000,
    env: { ...process.env, HELIOS_NO_INSTALL: '0', ...environment, NODE_TEST_CONTEXT: undefined },
  });
  assert.doesNotMatch(stderr, /\n {4}at /);
  return { status, stdout, stderr };
}

/** What runs a command while `folder` is on a read-only file system, in a mount namespace of its own. @param {string} folder */
function readOnly(folder) {
  // Who is not root becomes it in a user namespace, where the system lets one have it.
  const unshare = process.getuid?.() === 0 ? ['unshare', '--mount'] : ['unshare', '--user', '--map-root-user', '--mount'];
  const mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && cd "$0" && exec "$@"';
  return [...unshare, 'sh', '-c', mount, folder];
}

/** Why there is no read-only file system to be had, or null. @param {string} folder */
function noReadOnly(folder) {
  const [command, ...args] = [...readOnly(folder), 'sh', '-c', 'test ! -w .'];
  const { status, stderr, error } = spawnSync(command, args, { encoding: 'utf8' });
  return status === 0 ? null : `no read-only mount: ${error?.message ?? stderr.trim()}`;
}

/** The ways in which a file of ours is no JSON of ours. @param {string} whole */
const damages = (whole) => ['', whole.slice(0, whole.length / 2), 'null', '[]', '7', '\0'.repeat(64)];

test('a damaged stamp is as good as none, and is put right', (t) => {
  const folder = checkout(t);
  const first = bootstrap(folder);
  if (first.status !== 0) return t.skip(`not ready here: ${first.stderr}`);
  assert.match(first.stderr, /device: /);
  const whole = readFileSync(join(folder, STAMP), 'utf8');
  assert.equal(bootstrap(folder).stderr, '', 'silent where all is there');
  for (const damage of damages(whole)) {
    writeFileSync(join(folder, STAMP), damage);
    const { status, stderr } = bootstrap(folder);
    assert.equal(status, 0, stderr);
    assert.match(stderr, /device: /);
    assert.equal(readFileSync(join(folder, STAMP), 'utf8'), whole);
  }
  assert.deepEqual(readdirSync(join(folder, STAMP, '..')), ['device.json'], 'nothing half-written stays');
});

test('node modules whose list is damaged are installed again', (t) => {
  const folder = checkout(t);
  const whole = readFileSync(join(folder, MODULES), 'utf8');
  for (const damage of damages(whole)) {
    writeFileSync(join(folder, MODULES), damage);
    const { status, stdout } = bootstrap(folder, '--check');
    assert.equal(status, 1);
    assert.match(stdout, /npm (ci|install)/);
  }
});

test('a damaged file of the checkout is named', (t) => {
  const folder = checkout(t);
  for (const name of ['package-lock.json', 'package.json']) {
    const whole = readFileSync(join(folder, name), 'utf8');
    for (const damage of ['', whole.slice(0, whole.length / 2)]) {
      // Node itself reads the package.json of a script.
      writeFileSync(join(folder, name), damage);
      const { status, stderr } = bootstrap(folder, '--check');
      assert.equal(status, 1, stderr);
      assert.ok(stderr.includes(name), stderr);
    }
    writeFileSync(join(folder, name), whole);
  }
});

test('on a checkout that cannot be written it does its job', (t) => {
  const reason = obstacle();
  if (reason) return t.skip(reason);
  const folder = checkout(t);
  if (bootstrap(folder).status !== 0) return t.skip('not ready here');
  rmSync(join(folder, 'node_modules/.cache'), { recursive: true });
  // A folder in whose place a file lies cannot be made, whoever asks.
  writeFileSync(join(folder, 'node_modules/.cache'), '');
  const { status, stderr } = bootstrap(folder);
  assert.equal(status, 0, stderr);
  assert.match(stderr, /device: /);
  assert.ok(stderr.includes(`${STAMP} cannot be written: `), stderr);
});

test('on a read-only file system it does its job, or names what it cannot write', (t) => {
  const folder = checkout(t);
  const reason = noReadOnly(folder);
  if (reason) return t.skip(reason);
  const { stdout: left } = bootstrap(folder, '--check');
  if (left !== '') return t.skip(`not all is there: ${left}`);
  for (const args of [[], ['--for', 'bench']]) {
    const { status, stderr } = bootstrapBehind(readOnly(folder), {}, folder, ...args);
    assert.equal(status, 0, stderr);
    assert.match(stderr, /device: /);
    assert.match(stderr, /device\.json cannot be written: EROFS/);
  }
  assert.ok(!existsSync(join(folder, STAMP)));
  // With something to do that needs the folder: npm and cargo are not begun.
  const whole = readFileSync(join(folder, MODULES), 'utf8');
  writeFileSync(join(folder, MODULES), '');
  const modules = bootstrapBehind(readOnly(folder), {}, folder);
  writeFileSync(join(folder, MODULES), whole);
  rmSync(join(folder, 'binding.js'));
  const addon = bootstrapBehind(readOnly(folder), {}, folder);
  for (const { status, stderr } of [modules, addon]) {
    assert.equal(status, 1, stderr);
    assert.ok(stderr.includes('EROFS') && stderr.includes(`'${folder}'`), stderr);
    assert.match(stderr, /not ready/);
    assert.doesNotMatch(stderr, /npm error|error: /);
  }
});

test('a stamp is written whole or not at all', (t) => {
  const reason = obstacle();
  if (reason) return t.skip(reason);
  const folder = temporaryFolder(t);
  const [inner, path] = [join(folder, 'watched'), join(folder, 'watched/stamp.json')];
  assert.equal(writeStamp(path, { key: 'before' }), null);
  const source = `const { writeStamp } = await import(${JSON.stringify(new URL('../scripts/stamp.mjs', import.meta.url))}); console.log(writeStamp(${JSON.stringify(path)}, { key: 'after' }));`;
  for (const fault of ['open:1:ENOSPC', 'write:1:ENOSPC', 'write:1:EIO', 'rename:1:EIO']) {
    const { stdout } = runWithFault(source, inner, fault);
    assert.match(stdout, /stamp\.json cannot be written: E/, fault);
    assert.deepEqual(readStamp(path), { key: 'before' }, fault);
    assert.deepEqual(readdirSync(inner), ['stamp.json'], fault);
  }
  assert.equal(runWithFault(source, inner).stdout, 'null\n');
  assert.deepEqual(readStamp(path), { key: 'after' });
  assert.ok(existsSync(path));
});
