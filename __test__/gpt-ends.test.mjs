// How a training run ends that does not go as planned: signals, kills, readers that have gone, a loss that is not finite, a text too short.

import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { checkpointPath, checkpointsIn, loadCheckpoint, stepOf } from '../packages/lm/src/train/checkpoint.mjs';
import { temporaryFolder } from './lib/folder.mjs';
import { SIZES, eventsIn, lm, start, tokenFolder } from './lib/lm.mjs';

const base = temporaryFolder();
const DATA = await tokenFolder(join(base, 'data'));
const TRAIN = ['train', DATA, ...SIZES];
const LIMIT = { timeout: 120_000 };
const posix = { ...LIMIT, skip: process.platform === 'win32' && 'Windows has no such signals' };
let made = 0;
const fresh = () => join(base, `${++made}`);

for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP'])) {
  test(`${signal} ends a run after its step, with a checkpoint from which it goes on`, posix, async (t) => {
    const out = fresh();
    let last = 0;
    const { ended } = start(t, [...TRAIN, '--max-steps', '1000000', '--warmup-steps', '0', '--json', '--out', out], (event, child) => {
      last = event.step;
      if (event.type === 'step' && event.step === 3) child.kill(signal);
      if (event.type === 'done') assert.equal(event.reason, 'stopped');
    });
    const { code, stderr } = await ended;
    assert.equal(code, 130, stderr);
    assert.match(stderr, /stopping; another signal ends the process at once/);
    assert.doesNotMatch(stderr, /\n {4}at /);
    const { step } = await loadCheckpoint(out);
    assert.equal(step, last);
    assert.ok(step >= 3);
    assert.ok(!existsSync(join(out, '.helios-vk.lock')));
    const next = lm(['train', '--resume', out, '--json', '--quiet', '--max-steps', String(step + 1), '--sample-tokens', '0']);
    assert.equal(next.status, 0, next.stderr);
    assert.equal(eventsIn(next.stdout)[0].step, step);
  });
}

test('a run that is killed leaves no half checkpoint, and the next one goes on with its losses', posix, async (t) => {
  const options = [...SIZES, '--max-steps', '60', '--save-every', '1', '--json', '--eval-every', '0', '--quiet'];
  const whole = eventsIn(lm(['train', DATA, ...options, '--out', fresh()]).stdout).filter(({ type }) => type === 'step');
  assert.equal(whole.length, 60);
  const out = fresh();
  let partials = 0;
  for (let kill = 1; kill <= 6; kill++) {
    const from = existsSync(out) ? (checkpointsIn(out).map(stepOf).at(-1) ?? 0) : 0;
    const args = from === 0 ? ['train', DATA, ...options, '--out', out] : ['train', '--resume', out, ...options.slice(SIZES.length)];
    const { child, ended } = start(t, args, ({ type, step }) => {
      if (type !== 'checkpoint' || step !== from + 2) return;
      // At once, or where the next checkpoint is being written.
      if (kill % 2 === 0) child.kill('SIGKILL');
      else while (!child.killed) if (existsSync(partialIn(out)) || existsSync(checkpointPath(out, 60))) child.kill('SIGKILL');
    });
    const { signal, stderr } = await ended;
    assert.equal(signal, 'SIGKILL', stderr);
    partials += Number(readdirSync(out).some((name) => name.endsWith('.partial')));
    const all = checkpointsIn(out);
    assert.ok(all.length >= from + 2);
    for (const path of all) assert.equal((await loadCheckpoint(path)).step, stepOf(path));
  }
  assert.ok(partials > 0, 'no kill met a checkpoint that was being written');
  const from = /** @type {number} */ (checkpointsIn(out).map(stepOf).at(-1));
  const rest = lm(['train', '--resume', out, ...options.slice(SIZES.length)]);
  assert.equal(rest.status, 0, rest.stderr);
  const steps = eventsIn(rest.stdout).filter(({ type }) => type === 'step');
  assert.deepEqual(
    steps.map(({ step, loss }) => [step, loss]),
    whole.slice(from).map(({ step, loss }) => [step, loss]),
  );
  assert.ok(!readdirSync(out).some((name) => name.endsWith('.partial')));
});

/** A partial checkpoint of a folder. @param {string} folder */
const partialIn = (folder) => join(folder, readdirSync(folder).find((name) => name.endsWith('.partial')) ?? 'none');

test('a run goes on when nobody reads of its progress', posix, async (t) => {
  const out = fresh();
  const { child, ended } = start(t, [...TRAIN, '--max-steps', '40', '--out', out]);
  child.stdout.resume();
  child.stderr.once('data', () => child.stderr.destroy());
  assert.equal((await ended).code, 0);
  assert.equal((await loadCheckpoint(out)).step, 40);
});

test('a reader that has gone is no crash: it ends the work as Ctrl-C does, with the status of a closed pipe', posix, async (t) => {
  const out = fresh();
  const { child, ended } = start(t, [...TRAIN, '--max-steps', '400', '--save-every', '1', '--quiet', '--json', '--out', out]);
  child.stdout.once('data', () => child.stdout.destroy());
  assert.deepEqual(await ended, { code: 141, signal: null, stderr: '' });
  assert.ok(checkpointsIn(out).length > 0);
  for (const path of checkpointsIn(out)) assert.equal((await loadCheckpoint(path)).step, stepOf(path));

  const whole = fresh();
  assert.equal(lm([...TRAIN, '--max-steps', '2', '--quiet', '--out', whole]).status, 0);
  const writing = start(t, ['generate', '--model', whole, '--tokens', '1000000', '--quiet']);
  writing.child.stdout.once('data', () => writing.child.stdout.destroy());
  assert.deepEqual(await writing.ended, { code: 141, signal: null, stderr: '' });
});

test('a loss that is not finite ends the run, and no checkpoint holds such weights', LIMIT, async () => {
  const out = fresh();
  const args = [
    ...TRAIN,
    '--quiet',
    '--max-steps',
    '12',
    '--out',
    out,
    '--save-every',
    '1',
    '--save-total-limit',
    '1',
    '--warmup-steps',
    '0',
  ];
  const at = lm([...args, '--learning-rate', '1e39']);
  assert.equal(at.status, 1);
  assert.match(at.stderr, /^helios-lm: after step 1 \S+ is not finite: the run has diverged\n$/);
  assert.deepEqual(checkpointsIn(out), []);
  const behind = lm([...args, '--learning-rate', '1e12']);
  assert.equal(behind.status, 1);
  assert.match(behind.stderr, /^helios-lm: the loss of step 2 is NaN: the run has diverged; [^\n]*\n$/);
  assert.deepEqual(checkpointsIn(out).map(stepOf), [1]);
  await loadCheckpoint(out);
  // It loads, and its outputs overflow.
  const { status, stderr } = lm(['generate', '--model', out, '--tokens', '1', '--quiet']);
  assert.equal(status, 1);
  assert.match(stderr, /^helios-lm: the model's outputs after 1 token are not finite: its weights are damaged[^\n]*\n$/);
});

test('what options cannot say is an error that names them, with status 2 and before anything is written', LIMIT, () => {
  const out = fresh();
  for (const [args, message] of /** @type {[string[], RegExp][]} */ ([
    [['--lr', '1e-5', '--min-lr', '1e-4'], /^helios-lm: --min-lr 0\.0001 must be at most --learning-rate, 0\.00001/],
    [['--warmup', '9', '--steps', '9'], /^helios-lm: --warmup-steps 9 must be less than --max-steps 9/],
    [['--width', '30', '--heads', '4'], /^helios-lm: --width 30 is not a multiple of --heads 4/],
    [['--preset', 'huge'], /--preset huge: must be one of llama-tiny, .*gpt-tiny, .*tiny, small, mission/],
    [['--layers', 'two'], /--layers two: must be an integer from 1 to 4096/],
    [['--nonsense'], /--nonsense/],
    [['--port', '80'], /--port is for --ui/],
    [['--zero', '1'], /--zero is for several processes: npx helios-vk run --nproc N/],
    [['--new-data'], /--new-data is for --resume/],
    [['--data', DATA], /the text is named twice: leave --data out/],
    [['--resume', '/nonexistent'], /--resume \/nonexistent.*no such file or folder/],
  ])) {
    const { status, stderr } = lm([...TRAIN, '--out', out, ...args]);
    assert.equal(status, 2, stderr);
    assert.match(stderr, message);
    assert.doesNotMatch(stderr, /\n {4}at /);
  }
  assert.ok(!existsSync(out));
});

test('a text that is too short is an error that says so, and there is no checkpoint', LIMIT, () => {
  const [data, out] = [join(base, 'short.txt'), fresh()];
  writeFileSync(data, 'eight by');
  const { status, stderr } = lm(['train', data, ...SIZES, '--max-steps', '2', '--out', out, '--quiet']);
  assert.equal(status, 1);
  assert.match(
    stderr,
    /^helios-lm: the text has \d+ tokens to train on, and a sequence of 16 takes 17: use more text, or a smaller block size\n$/,
  );
  assert.deepEqual(checkpointsIn(out), []);
  const none = lm(['train', join(base, 'none.txt'), ...SIZES, '--out', out]);
  assert.equal(none.status, 2);
  assert.match(none.stderr, /^helios-lm: the input \S+none\.txt cannot be read: no such file or folder \(see --help\)\n$/);
  assert.equal(readFileSync(data, 'utf8'), 'eight by');
});
