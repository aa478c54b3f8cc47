// The form of commit messages: what passes, which commits of a repository are looked at, and git's hook.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { checkHistory, problemsOf, withoutComments } from '../scripts/commit-msg.mjs';
import { temporaryFolder } from './lib/folder.mjs';

const HOOKS = fileURLToPath(new URL('../scripts/hooks', import.meta.url));

test('a subject of the form passes', () => {
  const longest = `nn: ${'x'.repeat(68)}`;
  for (const subject of [
    'nn: read every safetensors type',
    'kernels/hopper: one tile, two stages',
    'crates, packages: break the circles',
    '.github: check out the whole history',
    longest,
    // Characters are counted, not units of UTF-16 or bytes.
    `nn: ${'𝟙'.repeat(68)}`,
    'train: fix deadlock\n\nThe reason, in as many lines as it takes.',
  ]) {
    assert.deepEqual(problemsOf(subject), [], subject);
  }
});

test('any other says what is wrong with it', () => {
  const form = /form "area: what changed"/;
  for (const [message, ...problems] of /** @type {[string, ...RegExp[]][]} */ ([
    ['Two ranks that write their weights no longer wait', form],
    ['Nn: read every type', form],
    ['nn : read every type', form],
    ['nn:read every type', form],
    ['nn: ', form],
    ['Revert "nn: read every type"', form],
    [`nn: ${'x'.repeat(69)}`, /has 73 characters, must have at most 72/],
    ['nn: read every type.', /full stop/],
    ['nn: read every type\nand more', /followed by an empty line/],
    [`Nn ${'x'.repeat(80)}.`, form, /has 84 characters/, /full stop/],
  ])) {
    const found = problemsOf(message);
    assert.equal(found.length, problems.length, `${message}: ${found.join('; ')}`);
    for (const [i, problem] of problems.entries()) assert.match(found[i], problem);
  }
});

test('comments and the diff of an editor are no part of a message', () => {
  const text = '\nnn: a\n# Please enter\n\nbody\n# ------------------------ >8 ------------------------\ndiff --git a b\n';
  assert.equal(withoutComments(text), 'nn: a\n\nbody');
});

describe('a repository', () => {
  const folder = temporaryFolder();
  // Git sets these where a hook or a rebase runs the tests, and they would lead it back to this repository.
  for (const name of Object.keys(process.env)) if (name.startsWith('GIT_')) delete process.env[name];
  const git = (/** @type {string[]} */ ...args) => {
    const all = ['-c', 'user.name=n', '-c', 'user.email=e@example.org', '-c', 'commit.gpgsign=false', ...args];
    const { status, stderr, stdout, error } = spawnSync('git', all, { cwd: folder, encoding: 'utf8' });
    assert.equal(error, undefined);
    return { status, stderr, stdout };
  };
  const commit = (/** @type {string} */ message, /** @type {string[]} */ ...args) =>
    git(...args, 'commit', '--quiet', '--allow-empty', '--cleanup=verbatim', '-m', message);

  before(() => git('init', '--quiet', '--initial-branch=main'));

  test('commits since the check was added are looked at, but for merges and what began before', () => {
    commit('An old subject that nobody knew a form for');
    assert.deepEqual(checkHistory(folder), { checked: 0, wrong: [] });
    git('branch', 'older');
    mkdirSync(join(folder, 'scripts'));
    writeFileSync(join(folder, 'scripts/commit-msg.mjs'), '');
    git('add', '.');
    commit('Adds the check');
    assert.deepEqual(checkHistory(folder), { checked: 0, wrong: [] });

    commit('nn: right');
    git('checkout', '--quiet', 'older');
    commit('A branch that began before');
    git('checkout', '--quiet', 'main');
    git('merge', '--quiet', '--no-ff', '-m', "Merge branch 'older'", 'older');
    assert.deepEqual(checkHistory(folder), { checked: 1, wrong: [] });

    commit('Wrong since the check is there\n\nbody');
    commit('nn: right again\n\nbody\n\nwith: colons');
    const hash = git('rev-parse', '--short', 'HEAD~1').stdout.trim();
    assert.deepEqual(checkHistory(folder), {
      checked: 3,
      wrong: [
        `${hash}: the subject "Wrong since the check is there" must have the form "area: what changed", with the area in small letters`,
      ],
    });
  });

  test('a folder without a repository has no commits to check', (t) => assert.equal(checkHistory(temporaryFolder(t)), null));

  test('the hook refuses a wrong message and lets a right one, a merge and a fixup pass', { skip: process.platform === 'win32' }, () => {
    const hook = ['-c', `core.hooksPath=${HOOKS}`];
    const refused = commit('Wrong subject', ...hook);
    assert.notEqual(refused.status, 0);
    assert.match(refused.stderr, /the subject "Wrong subject" must have the form/);
    for (const message of ['nn: right', "Merge branch 'x'", 'fixup! nn: right']) {
      assert.equal(commit(message, ...hook).status, 0, message);
      assert.equal(git('log', '-1', '--format=%s').stdout.trim(), message);
    }
  });
});
