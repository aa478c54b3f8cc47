// An output that is an input, or another output, is refused before any work, by whatever path it is named.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { closeSync, linkSync, mkdirSync, openSync, readFileSync, readdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { checkPaths } from '../bin/lib/options.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const LM = 'packages/lm/bin/helios-lm.mjs';
const posix = { skip: process.platform === 'win32' && 'Windows has no such names and rights' };

/**
 * @param {string} path of a program @param {string[]} args
 * @param {{ env?: Record<string, string>, stdio?: (number | 'pipe' | 'ignore')[] }} [more]
 */
function run(path, args, { env = {}, stdio = ['ignore', 'pipe', 'pipe'] } = {}) {
  return spawnSync(process.execPath, [join(ROOT, path), ...args], {
    encoding: 'utf8',
    timeout: 600_000,
    stdio,
    env: { ...process.env, NODE_TEST_CONTEXT: undefined, ...env },
  });
}

/**
 * What is in a folder, by name. From version 22 on Node's own recursion follows links, here into a circle.
 * @param {string} dir @returns {Record<string, string>}
 */
const filesOf = (dir) =>
  Object.fromEntries(
    readdirSync(dir, { withFileTypes: true }).flatMap((entry) => {
      const path = join(dir, entry.name);
      if (entry.isDirectory()) return Object.entries(filesOf(path));
      return statSync(path).isFile() ? [[path, readFileSync(path, 'base64')]] : [];
    }),
  );

const OPTIONS = /** @type {any} */ ({
  data: { type: 'string', path: 'input', help: '' },
  some: { type: 'string', path: 'input-list', help: '' },
  addon: { type: 'string', path: 'module', help: '' },
  resume: { type: 'string', path: 'input-any', files: /^step-\d+$/, help: '' },
  checkpoint: { type: 'string', path: 'output-folder', files: /^step-\d+$/, help: '' },
  json: { type: 'string', path: 'output', help: '' },
  report: { type: 'string', path: 'output', help: '' },
  table: { type: 'string', path: 'update', help: '' },
});

test('a file is the same by whatever path', posix, (t) => {
  const dir = temporaryFolder(t);
  const [file, other, symbolic, hard] = ['file', 'other', 'symbolic', 'hard'].map((name) => join(dir, name));
  writeFileSync(file, 'as it was');
  writeFileSync(other, 'another');
  symlinkSync('file', symbolic);
  linkSync(file, hard);
  symlinkSync(dir, join(dir, 'loop'));
  const descriptor = openSync(file, 'r');
  t.after(() => closeSync(descriptor));
  const before = filesOf(dir);
  const names = [file, symbolic, hard, join(dir, 'loop', 'loop', 'hard'), `${dir}//./file`, `/dev/fd/${descriptor}`];
  for (const one of names) {
    for (const two of names) {
      const refused = (/** @type {Record<string, string>} */ values, /** @type {string} */ message) =>
        assert.throws(() => checkPaths(OPTIONS, values), { name: 'Error', message }, JSON.stringify(values));
      refused({ data: one, json: two }, `--json ${two}: --data reads the same file`);
      refused({ some: `${other},${one}`, report: two }, `--report ${two}: --some reads the same file`);
      refused({ addon: one, json: two }, `--json ${two}: --addon reads the same file`);
      refused({ resume: one, json: two }, `--json ${two}: --resume reads the same file`);
      refused({ json: one, report: two }, `--report ${two}: --json writes the same file`);
      refused({ data: one, table: two }, `--table ${two}: --data reads the same file`);
      checkPaths(OPTIONS, { data: one, resume: two, some: `${one},${two}`, json: other });
    }
  }
  // What is not there yet has a name alone.
  const made = join(dir, 'made');
  assert.throws(() => checkPaths(OPTIONS, { json: made, report: join(dir, 'loop', 'made') }), /--report \S+: --json writes the same file/);
  checkPaths(OPTIONS, { json: made, report: `${made}.html` });
  checkPaths(OPTIONS, { json: '/dev/null', report: '/dev/null', table: '/dev/null' });
  assert.deepEqual(filesOf(dir), before);
});

test('files that a program has in a folder are no output of another option, there or not there yet', posix, (t) => {
  const dir = temporaryFolder(t);
  const [own, results, outside] = [join(dir, 'step-1'), join(dir, 'results'), join(temporaryFolder(t), 'outside')];
  writeFileSync(own, 'a checkpoint');
  writeFileSync(results, 'of the last time');
  linkSync(own, outside);
  for (const [values, message] of /** @type {[Record<string, string>, RegExp][]} */ ([
    [{ resume: dir, json: own }, /--json \S+step-1: --resume reads the same file/],
    [{ resume: dir, json: outside }, /--json \S+outside: --resume reads the same file/],
    [{ checkpoint: dir, json: join(dir, 'step-9') }, /--json \S+step-9: --checkpoint writes the same file/],
    [{ checkpoint: join(dir, 'none'), report: join(dir, 'none', '..', 'none', 'step-9') }, /--report \S+: cannot be written/],
    [{ checkpoint: dir, data: own }, /--checkpoint \S+: --data reads the same file/],
    [{ checkpoint: dir, data: outside }, /--checkpoint \S+: --data reads the same file/],
  ])) {
    assert.throws(() => checkPaths(OPTIONS, values), message, JSON.stringify(values));
  }
  checkPaths(OPTIONS, { resume: own, checkpoint: dir, json: results, report: join(dir, 'report') });
  checkPaths(OPTIONS, { resume: dir, checkpoint: dir, json: results });
  assert.deepEqual(readdirSync(dir), ['results', 'step-1']);
});

test('a table may be added to the one that a variable names, and nothing else written to it', (t) => {
  const table = join(temporaryFolder(t), 'table.json');
  writeFileSync(table, '{}');
  const before = process.env.HELIOS_TUNING;
  t.after(() => {
    if (before === undefined) delete process.env.HELIOS_TUNING;
    else process.env.HELIOS_TUNING = before;
  });
  process.env.HELIOS_TUNING = table;
  checkPaths(OPTIONS, { table });
  assert.throws(() => checkPaths(OPTIONS, { json: table }), /--json \S+: HELIOS_TUNING names the same file/);
});

test('every program refuses it before any work, and leaves all as it was', posix, (t) => {
  const dir = temporaryFolder(t);
  const [input, other, symbolic, hard] = ['input', 'other', 'symbolic', 'hard'].map((name) => join(dir, name));
  writeFileSync(input, 'NT 16 16 16\n');
  writeFileSync(other, '{}');
  symlinkSync(input, symbolic);
  linkSync(input, hard);
  const before = filesOf(dir);
  const [train, compare, toks] = ['benches/train', 'benches/pytorch/compare', 'packages/alpha-backend/bench/trainer-tokens'].map(
    (name) => `${name}.mjs`,
  );
  const pairs = /** @type {[string, string[], string[]][]} */ ([
    [train, ['--data', input], ['--json', '--report', '--profile', '--dump-weights', '--dump-batches']],
    [train, ['--profile', input], ['--json', '--report']],
    [compare, ['--ours', other, '--pytorch', input], ['--json', '--report']],
    [compare, ['--pytorch', other, '--ours', `${other},${input}`], ['--json', '--report']],
    [toks, ['--addon', input], ['--json', '--report']],
    [toks, ['--baseline', input], ['--json']],
    [toks, ['--json', input], ['--report']],
    ['benches/kernels.mjs', ['--addon', input], ['--json', '--html']],
    ['benches/kernels-attention.mjs', ['--addon', input], ['--json']],
    ['benches/ablation.mjs', ['--json', input], ['--report']],
    ['bin/helios-vk.mjs', ['tune', '--shapes', input], ['--out']],
  ]);
  let which = 0;
  for (const [path, args, outputs] of pairs) {
    for (const output of outputs) {
      const named = [input, symbolic, hard][which++ % 3];
      const { status, stdout, stderr } = run(path, [...args, output, named]);
      const what = [path, ...args, output, named].join(' ');
      assert.equal(status, 2, `${what}: ${stderr}`);
      assert.match(
        stderr,
        new RegExp(`${output} ${named}: ${args.findLast((word) => word.startsWith('--'))} (reads|writes) the same file`),
        what,
      );
      assert.equal(stdout, '', what);
      assert.deepEqual(filesOf(dir), before, what);
    }
  }
});

test('what standard output goes to is an output', posix, (t) => {
  const dir = temporaryFolder(t);
  const file = join(dir, 'text');
  writeFileSync(file, 'as it was');
  const log = openSync(file, 'a');
  t.after(() => closeSync(log));
  for (const [path, args, message] of /** @type {const} */ ([
    ['benches/train.mjs', ['--data', file], /--data \S+text: standard output goes to the same file/],
    ['benches/train.mjs', ['--json', file], /--json \S+text: standard output goes to the same file/],
    [LM, ['train', '--data', file], /--data \S+text: standard output goes to the same file/],
    [LM, ['train', file], /the input \S+text.*: standard output goes to the same file|standard output.*the input \S+text/],
    [LM, ['generate', '--checkpoint', file], /--model \S+text: standard output goes to the same file/],
  ])) {
    const { status, stderr } = run(path, [...args], { stdio: ['ignore', log, 'pipe'] });
    assert.equal(status, 2, stderr);
    assert.match(stderr, message);
  }
  assert.equal(readFileSync(file, 'utf8'), 'as it was');
});

test('helios-vk tune: the table that it would write by itself is not the file of shapes', (t) => {
  const dir = temporaryFolder(t);
  const shapes = join(dir, 'shapes');
  writeFileSync(shapes, 'NT 16 16 16\n');
  const { status, stderr } = run('bin/helios-vk.mjs', ['tune', '--shapes', shapes, '--quick'], { env: { HELIOS_TUNING: shapes } });
  assert.equal(status, 1, stderr);
  assert.match(stderr, /--shapes \S+shapes: it must not be the file that the table is written to/);
  assert.deepEqual(
    Object.values(filesOf(dir)).map((text) => Buffer.from(text, 'base64').toString()),
    ['NT 16 16 16\n'],
  );
});

test('helios-vk link: an addon is not linked to itself', posix, (t) => {
  const checkout = temporaryFolder(t);
  const place = join(checkout, 'packages/helios/native');
  mkdirSync(place, { recursive: true });
  const addon = join(place, 'helios_vk.node');
  const [own] = readdirSync(ROOT).filter((name) => /^helios-vk\..*\.node$/.test(name));
  writeFileSync(addon, readFileSync(join(ROOT, own)));
  const { status, stderr } = run('bin/helios-vk.mjs', ['link', checkout], { env: { NAPI_RS_NATIVE_LIBRARY_PATH: addon } });
  assert.equal(status, 1, stderr);
  assert.match(stderr, /helios_vk\.node is the addon itself/);
  assert.deepEqual(readdirSync(place), ['helios_vk.node']);
});

test('pack.mjs removes nothing from the folder of its packages but what it has made', (t) => {
  const dir = temporaryFolder(t);
  for (const name of ['kept.txt', 'helios-vk-0.0.0.tgz']) writeFileSync(join(dir, name), name);
  const { status, stderr } = run('scripts/pack.mjs', ['--binaries', dir, '--out', dir]);
  assert.equal(status, 1, stderr);
  assert.match(stderr, /no binary of a platform/);
  assert.ok(readdirSync(dir).includes('kept.txt'));
  assert.ok(!readdirSync(dir).includes('helios-vk-0.0.0.tgz'));
});
