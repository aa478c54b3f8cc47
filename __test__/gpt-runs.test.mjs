// The identity of a run: whose a checkpoint is, what is the latest of a folder, and which folders a run is refused.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { checkpointPath, loadCheckpoint, saveCheckpoint } from '../packages/lm/src/train/checkpoint.mjs';

const SIZES = '--preset gpt-tiny --layers 1 --width 32 --heads 1 --hidden 4 --block 8 --batch 1'.split(' ');

/** @param {import('node:test').TestContext} t */
function folder(t) {
  const path = mkdtempSync(join(tmpdir(), 'helios-vk-test-'));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** @param {'train' | 'generate'} name @param {string[]} args */
function run(name, ...args) {
  const script = fileURLToPath(new URL(`../benches/${name}.mjs`, import.meta.url));
  return spawnSync(process.execPath, [script, ...args], { encoding: 'utf8', timeout: 600_000 });
}

/** @param {string[]} args of a run, which must succeed */
function train(...args) {
  const { status, stderr } = run('train', '--sample-tokens', '0', '--quiet', ...args);
  assert.equal(status, 0, stderr);
}

/** What a folder holds, by name. @param {string} dir */
const filesOf = (dir) => Object.fromEntries(readdirSync(dir).map((name) => [name, readFileSync(join(dir, name), 'base64')]));

/** @param {string} dir whose files stay as they are @param {RegExp} message @param {string[]} args */
function refused(dir, message, ...args) {
  const before = filesOf(dir);
  const { status, stderr } = run('train', '--sample-tokens', '0', '--quiet', ...args, '--checkpoint', dir);
  assert.equal(status, 2, stderr);
  assert.match(stderr, message);
  assert.deepEqual(filesOf(dir), before);
}

test('a run has an identity that a resumed one keeps, and its latest checkpoint is that of the folder', async (t) => {
  const [mine, theirs] = [join(folder(t), 'mine'), join(folder(t), 'theirs')];
  train(...SIZES, '--steps', '4', '--checkpoint', mine, '--checkpoint-every', '2');
  train(...SIZES, '--steps', '2', '--checkpoint', theirs, '--seed', '2');
  const [two, four, other] = await Promise.all([checkpointPath(mine, 2), mine, theirs].map(loadCheckpoint));
  assert.match(String(two.run), /^[0-9a-f]{16}$/);
  assert.equal(four.run, two.run);
  assert.notEqual(other.run, two.run);
  assert.deepEqual([four.step, other.step], [4, 2]);

  // Neither the same steps nor others: a shorter run would leave the older one as the latest.
  refused(
    theirs,
    /--checkpoint \S+: its step-0000002\S+ is of another run: use another folder, or continue that run by --resume/,
    ...SIZES,
    '--steps',
    '1',
  );
  refused(mine, /its step-0000002\S+ is of another run/, '--resume', theirs, '--steps', '8');
  // Nor what follows an earlier step of the same run, whose later checkpoints are there.
  refused(mine, /its step-0000004\S+ is of a later step than 2, where this run continues/, '--resume', two.path, '--lr', '1');

  train('--resume', mine, '--steps', '6', '--checkpoint', mine, '--keep', '2');
  assert.deepEqual(
    readdirSync(mine),
    [4, 6].map((step) => checkpointPath('', step)),
    'of the run, also from before',
  );
  const six = await loadCheckpoint(mine);
  assert.deepEqual([six.step, six.run], [6, two.run]);

  // A folder into which somebody has copied another run's.
  copyFileSync(other.path, checkpointPath(mine, 2));
  for (const [name, option] of /** @type {const} */ ([
    ['generate', '--checkpoint'],
    ['train', '--resume'],
  ])) {
    const { status, stderr } = run(name, option, mine);
    assert.equal(status, 1);
    assert.match(stderr, /holds checkpoints of 2 runs: name a file \(the latest of each are step-0000002\S+, step-0000006\S+\)/);
  }
  assert.match(run('generate', '--checkpoint', six.path, '--tokens', '1').stderr, /step-0000006\S+: step 6 /);
});

test('checkpoints without an identity go on without one, in a folder of their own', async (t) => {
  const [dir, elsewhere] = [folder(t), join(folder(t), 'elsewhere')];
  train(...SIZES, '--steps', '2', '--checkpoint', elsewhere);
  const { run: identity, state, ...silent } = await loadCheckpoint(elsewhere);
  assert.ok(identity);
  await saveCheckpoint(dir, silent, 2, (part) => state[part]);
  refused(dir, /its step-0000002\S+ is of another run/, ...SIZES);
  refused(dir, /its step-0000002\S+ is of another run/, '--resume', elsewhere, '--steps', '3');
  // `--keep` does not take what nobody knows to be the run's.
  train('--resume', dir, '--steps', '4', '--checkpoint', dir, '--keep', '1');
  assert.deepEqual(
    readdirSync(dir),
    [2, 4].map((step) => checkpointPath('', step)),
  );
  const last = await loadCheckpoint(dir);
  assert.deepEqual([last.step, 'run' in last], [4, false]);
  assert.equal(run('generate', '--checkpoint', dir, '--tokens', '1').status, 0);

  const unreadable = checkpointPath(dir, 9);
  writeFileSync(unreadable, 'half');
  refused(dir, /its step-0000009\S+ cannot be read: use another folder, or remove that file/, '--resume', last.path, '--steps', '6');
});
