// How a training run ends that does not go as planned: signals, readers that have gone, a loss that is not finite, a text that is too short.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { loadCheckpoint } from '../packages/lm/src/train/checkpoint.mjs';

const [TRAIN, GENERATE] = ['train', 'generate'].map((name) => fileURLToPath(new URL(`../benches/${name}.mjs`, import.meta.url)));
const SIZES = '--preset gpt-tiny --layers 1 --width 32 --heads 1 --hidden 4 --block 8 --batch 1 --sample-tokens 0'.split(' ');
const LIMIT = { timeout: 60_000 };

/** @param {import('node:test').TestContext} t */
async function folder(t) {
  const path = await mkdtemp(join(tmpdir(), 'helios-vk-test-'));
  t.after(() => rm(path, { recursive: true, force: true }));
  return path;
}

/**
 * Starts a program; `ended` resolves to how it ended.
 * @param {import('node:test').TestContext} t
 * @param {string} script @param {string[]} args
 * @param {(child: import('node:child_process').ChildProcessWithoutNullStreams, text: string) => void} [onError] with each piece of its
 *   standard error
 */
function start(t, script, args, onError = () => {}) {
  const child = spawn(process.execPath, [script, ...args]);
  t.after(() => child.kill('SIGKILL'));
  let stderr = '';
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
    onError(child, String(chunk));
  });
  child.stdout.resume();
  /** @type {Promise<{ code: number | null, signal: NodeJS.Signals | null, stderr: string }>} */
  const ended = new Promise((done) => {
    child.on('exit', (code, signal) => setImmediate(() => done({ code, signal, stderr })));
  });
  return { child, ended };
}

/** @param {import('node:test').TestContext} t @param {string[]} args */
const train = (t, ...args) => start(t, TRAIN, [...SIZES, ...args]).ended;

const posix = { ...LIMIT, skip: process.platform === 'win32' && 'Windows has no such signals' };

for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP'])) {
  test(`${signal} ends a run after its step, with a checkpoint`, posix, async (t) => {
    const dir = await folder(t);
    const args = ['--steps', '1000000', '--checkpoint', dir, '--checkpoint-at-start'];
    const { ended } = start(t, TRAIN, [...SIZES, ...args], (child, text) => /checkpoint .*0000000/.test(text) && child.kill(signal));
    const { code, stderr } = await ended;
    assert.equal(code, 0, stderr);
    assert.match(stderr, /stopping after this step; another signal ends the process at once/);
    const names = await readdir(dir);
    assert.equal(names.length, 2, `${names}`);
    assert.ok((await loadCheckpoint(dir)).step > 0);
  });
}

test('a run goes on when nobody reads of its progress', posix, async (t) => {
  const dir = await folder(t);
  const { ended } = start(t, TRAIN, [...SIZES, '--steps', '40', '--validation', '0.1', '--checkpoint', dir], ({ stderr }) =>
    stderr.destroy(),
  );
  assert.equal((await ended).code, 0);
  assert.equal((await loadCheckpoint(dir)).step, 40);
});

test('results are in their files when nobody reads them on standard output, and that is no crash', posix, async (t) => {
  const dir = await folder(t);
  const json = join(dir, 'results.json');
  const { child, ended } = start(t, TRAIN, [...SIZES, '--steps', '3', '--checkpoint', dir, '--json', json]);
  child.stdout.destroy();
  const { code, stderr } = await ended;
  assert.equal(code, 1);
  assert.doesNotMatch(stderr, /EPIPE|\n {4}at /);
  assert.equal(JSON.parse(await readFile(json, 'utf8')).losses.length, 3);

  const writing = start(t, GENERATE, ['--checkpoint', dir, '--tokens', '1000000', '--quiet']);
  writing.child.stdout.once('data', () => writing.child.stdout.destroy());
  assert.deepEqual(await writing.ended, { code: 1, signal: null, stderr: '' });
});

test('a loss that is not finite ends the run, and no checkpoint holds such weights', LIMIT, async (t) => {
  const dir = await folder(t);
  const args = ['--quiet', '--steps', '12', '--checkpoint', dir, '--checkpoint-every', '1', '--keep', '1'];
  const at = await train(t, ...args, '--lr', '1e39');
  assert.equal(at.code, 1);
  assert.equal(at.stderr, 'train: the weights after step 1 are not finite: the run has diverged\n');
  assert.deepEqual(await readdir(dir), []);
  const behind = await train(t, ...args, '--lr', '1e12');
  assert.equal(behind.code, 1);
  assert.match(behind.stderr, /^train: the loss of step 2 is NaN: the run has diverged; [^\n]*\n$/);
  const { step, state } = await loadCheckpoint(dir);
  assert.equal(step, 1);
  assert.ok(Object.values(state.weights).every((values) => values.every(Number.isFinite)));
});

test('the learning rate does not end above its peak', LIMIT, async (t) => {
  const json = join(await folder(t), 'results.json');
  const minLr = async (/** @type {string[]} */ ...args) => {
    const { code, stderr } = await train(t, '--quiet', '--steps', '2', '--json', json, ...args);
    assert.equal(code, 0, stderr);
    return JSON.parse(await readFile(json, 'utf8')).config.minLr;
  };
  assert.equal(await minLr('--lr', '1e-5'), 1e-5);
  assert.equal(await minLr('--lr', '1e-2'), 3e-4, "the preset's");
  assert.equal(await minLr('--lr', '1e-4', '--min-lr', '1e-4'), 1e-4);
  for (const [args, peak] of /** @type {[string[], string][]} */ ([
    [['--lr', '1e-5', '--min-lr', '1e-4'], '0.00001'],
    [['--min-lr', '0.5'], '0.003'],
  ])) {
    const { code, stderr } = await train(t, '--quiet', '--steps', '2', ...args);
    assert.equal(code, 2);
    assert.match(stderr, new RegExp(`^train: --min-lr \\S+: must be at most the learning rate at the peak, ${peak} `));
  }
});

test('a text without a sequence for training or validation is an error before anything is written', LIMIT, async (t) => {
  const dir = await folder(t);
  const [data, checkpoints] = [join(dir, 'text.txt'), join(dir, 'checkpoints')];
  await writeFile(data, 'eight by');
  const args = ['--steps', '2', '--data', data];
  const short = await train(t, ...args, '--checkpoint', checkpoints, '--checkpoint-at-start');
  assert.equal(short.code, 1);
  assert.equal(short.stderr, 'train: the data has 8 tokens; block 8 needs at least 9\n');
  if (existsSync(checkpoints)) assert.deepEqual(await readdir(checkpoints), []);
  await writeFile(data, 'a longer text, of which nothing is held back');
  const none = await train(t, ...args, '--validation', '0.001');
  assert.equal(none.code, 2);
  assert.match(none.stderr, /^train: --validation 0\.001: that share of the text's 44 tokens is less than one token/);
  const batches = await train(t, ...args, '--steps', '2147483647', '--dump-batches', join(dir, 'batches'));
  assert.equal(batches.code, 2);
  assert.match(batches.stderr, /--dump-batches: 2147483647 steps have 34359738352 ids, and a file has at most 1073741824/);
});
