// The training run over several processes: equal weights on all of them after every step, the same bits in every run, and those of one
// process that adds the gradients of the shares itself; checkpoints that any number goes on from; restarts.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { LAUNCHERS, MOST_MS, NO_LAUNCHER, REPOSITORY, launch } from './launchers.mjs';

const RANK = join(REPOSITORY, '__test__/distributed/gpt-rank.mjs');
const LIMIT = { timeout: 240_000, skip: NO_LAUNCHER };
const [first] = LAUNCHERS;

/** @typedef {import('./gpt-rank.mjs').Settings} Settings */

/** @param {number} nproc @param {Settings} settings @param {typeof first} [launcher] @param {string[]} [options] */
const run = (nproc, settings, launcher = first, options = []) =>
  launch(launcher, ['--nproc', String(nproc), ...options], [RANK, JSON.stringify(settings)]);

/** Trains; what rank 0 says of it, which all others say too. @param {number} nproc @param {Settings} settings @param {typeof first} [launcher] */
async function small(nproc, settings, launcher) {
  const { status, said, output, of } = await run(nproc, settings, launcher);
  assert.equal(status, 0, output);
  assert.equal(said.length, nproc, output);
  const [{ hashes, losses, weights, done }] = of(0);
  for (const other of said) {
    assert.deepEqual(other.hashes, hashes, `rank ${other.rank} has other weights after a step, or other moments at the end`);
    assert.deepEqual([other.losses, other.done], [losses, done]);
  }
  return { hashes, losses, weights, done };
}

/** One process without a group; with `parts` it adds the gradients of so many shares. @param {Settings} settings */
function alone(settings) {
  const args = [RANK, JSON.stringify({ parts: 1, ...settings })];
  const { stdout, stderr } = spawnSync(process.execPath, args, { cwd: REPOSITORY, encoding: 'utf8', timeout: MOST_MS });
  const json = stdout.match(/@rank (\{.*\})/)?.[1];
  assert.ok(json, stderr);
  return JSON.parse(json);
}

/** @param {import('node:test').TestContext} t */
function folderOf(t) {
  const folder = mkdtempSync(join(tmpdir(), 'helios-gpt-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Options that every run of train.mjs here has. @param {string} json */
const common = (json) => ['--sample-tokens', '3', '--validation', '0.01', '--validation-every', '4', '--json', json];

/** @param {string} json */
const resultOf = (json) => JSON.parse(readFileSync(json, 'utf8'));

for (const launcher of LAUNCHERS) {
  test(`${launcher.name}: two ranks make the steps of one process that adds both gradients, bit for bit, in every run`, LIMIT, async () => {
    const expected = alone({ parts: 2 });
    assert.equal(new Set(expected.hashes).size, 8, 'every step changes something');
    const sharded = await small(2, {}, launcher);
    assert.deepEqual(sharded.hashes, expected.hashes, 'ZeRO 1');
    assert.deepEqual(sharded.losses, expected.losses);
    assert.deepEqual((await small(2, {}, launcher)).hashes, expected.hashes, 'ZeRO 1 again');
    assert.deepEqual((await small(2, { zero: 0 }, launcher)).hashes, expected.hashes, 'ZeRO 0');
  });

  test(`${launcher.name}: gradients in bf16 are those of the reference, bit for bit`, LIMIT, async () => {
    const expected = alone({ parts: 2, reduce: 'bf16' });
    assert.notDeepEqual(expected.hashes, alone({ parts: 2 }).hashes, 'they are rounded');
    assert.deepEqual((await small(2, { reduce: 'bf16' }, launcher)).hashes, expected.hashes);
  });

  test(`${launcher.name}: a rank that is killed, and the restart, are as an undisturbed run, bit for bit`, LIMIT, async (t) => {
    const folder = folderOf(t);
    const options = (/** @type {string} */ name) => [
      ...common(join(folder, `${name}.json`)),
      ...['--steps', '16', '--checkpoint', join(folder, name), '--checkpoint-every', '4', '--keep', '2'],
    ];
    const undisturbed = await run(2, { train: options('whole') }, launcher);
    assert.equal(undisturbed.status, 0, undisturbed.output);
    const dies = join(folder, 'killed', 'step-0000004.safetensors');
    const killed = await run(2, { train: options('killed'), dies }, launcher, ['--max-restarts', '1', '--grace', '20']);
    assert.equal(killed.status, 0, killed.output);
    assert.match(killed.output, /restart 1 of 1[^]*continuing from .*step-00000/);
    const [whole, rest] = ['whole', 'killed'].map((name) => resultOf(join(folder, `${name}.json`)));
    assert.ok(rest.firstStep >= 4 && rest.firstStep < 16, String(rest.firstStep));
    assert.deepEqual(rest.losses, whole.losses.slice(rest.firstStep));
    assert.deepEqual(rest.validation.losses.at(-1), whole.validation.losses.at(-1));
    const last = 'step-0000016.safetensors';
    // Those from before the restart are the run's, too.
    assert.deepEqual(readdirSync(join(folder, 'killed')), ['step-0000012.safetensors', last]);
    const [a, b] = ['whole', 'killed'].map((name) => readFileSync(join(folder, name, last)));
    // The files differ in the name of the run alone.
    const tensors = (/** @type {Buffer} */ file) => file.subarray(8 + Number(file.readBigUInt64LE()));
    assert.ok(tensors(a).equals(tensors(b)), 'weights and moments');
  });
}

test('gradients are clipped by the norm of all', LIMIT, async () => {
  const clipped = alone({ parts: 2, clip: 0.05 });
  assert.notDeepEqual(clipped.hashes, alone({ parts: 2 }).hashes, 'it is clipped');
  assert.deepEqual((await small(2, { clip: 0.05, zero: 0 })).hashes, clipped.hashes);
  // By shards the sum of squares has another order.
  const { losses } = await small(2, { clip: 0.05, zero: 1 });
  losses.forEach((/** @type {number} */ loss, /** @type {number} */ i) => assert.ok(Math.abs(loss - clipped.losses[i]) < 1e-5));
});

test('a group of one is a run without a group, bit for bit; ranks are close to micro-steps', LIMIT, async () => {
  const one = alone({ micro: 2, clip: 1 });
  const { hashes } = await small(1, { micro: 2, clip: 1 });
  assert.deepEqual(hashes, one.hashes);
  // The same sequences, added in another order. In relative L2 norm; AdamW's early steps turn rounding into direction.
  const { weights, losses } = await small(2, { clip: 1 });
  const norm = (/** @type {number[]} */ list) => Math.hypot(...list);
  const distance = norm(weights.map((/** @type {number} */ x, /** @type {number} */ i) => x - one.weights[i])) / norm(one.weights);
  assert.ok(distance < 1e-3, `relative distance of the weights ${distance}`);
  losses.forEach((/** @type {number} */ loss, /** @type {number} */ i) => assert.ok(Math.abs(loss - one.losses[i]) < 1e-4));
});

test('one rank that is asked to stop stops all, after the same step', LIMIT, async () => {
  const { done, losses } = await small(2, { stopAt: 1 });
  assert.ok(done >= 2 && done < 6, `${done} steps`);
  assert.equal(losses.length, done);
});

test('a checkpoint of two ranks goes on on two, one and four; one rank speaks', LIMIT, async (t) => {
  const folder = folderOf(t);
  const json = (/** @type {string} */ name) => join(folder, `${name}.json`);
  const train = ['--batch', '4', '--steps', '8', '--checkpoint', join(folder, 'a'), '--checkpoint-every', '4'];
  const ran = await run(2, { train: [...train, ...common(json('whole'))] });
  assert.equal(ran.status, 0, ran.output);
  for (const once of [/parameters · f32/g, /^loss {2}/gm, /^validation loss/gm, /checkpoint .*step-0000004/g]) {
    assert.equal(ran.output.match(once)?.length, 1, `${once}: ${ran.output}`);
  }
  assert.deepEqual(readdirSync(join(folder, 'a')), ['step-0000004.safetensors', 'step-0000008.safetensors']);
  const whole = resultOf(json('whole'));
  assert.deepEqual(whole.ranks, { size: 2, batch: 4, microSteps: 1, zero: 1, reduce: 'f32', engine: 'mpi' });
  assert.equal(whole.config.microSteps, 2);
  const from = ['--resume', join(folder, 'a', 'step-0000004.safetensors'), '--sample-tokens', '0'];
  for (const nproc of [2, 4, 1]) {
    const resumed = await run(nproc, { train: [...from, '--json', json('resumed')] });
    assert.equal(resumed.status, 0, resumed.output);
    const { losses, ranks } = resultOf(json('resumed'));
    assert.equal(ranks.size, nproc);
    if (nproc === 2) assert.deepEqual(losses, whole.losses.slice(4), 'as if it had not stopped');
    // Other batches would be off by more than a hundred times as much.
    losses.forEach((/** @type {number} */ loss, /** @type {number} */ i) => {
      const expected = whole.losses[4 + i];
      assert.ok(Math.abs(loss - expected) < 1e-4, `${nproc} ranks: loss ${loss}, expected ${expected}`);
    });
  }
  const odd = await run(3, { train: from });
  assert.equal(odd.status, 1);
  assert.match(odd.output, /a step of 8 sequences \(batch 4, micro-steps 2\) cannot be divided equally by 3 processes/);
});

test('two ranks write the weights that one would begin with, and go on', LIMIT, async (t) => {
  const folder = folderOf(t);
  /** The bytes of the weights, behind the header. @param {number} nproc @param {string[]} options */
  const dumped = async (nproc, options) => {
    const path = join(folder, `${nproc}.safetensors`);
    const { status, output } = await run(nproc, { train: ['--steps', '2', '--sample-tokens', '0', '--dump-weights', path, ...options] });
    assert.equal(status, 0, output);
    const bytes = readFileSync(path);
    return bytes.subarray(8 + Number(bytes.readBigUInt64LE(0)));
  };
  const expected = await dumped(1, []);
  assert.ok(expected.length > 500_000 && expected.some((byte) => byte !== 0));
  for (const zero of ['0', '1']) assert.ok(expected.equals(await dumped(2, ['--zero', zero])), `--zero ${zero}`);
});

test('ranks that were started with different options are told which', LIMIT, async () => {
  const { status, output } = await run(2, { train: ['--steps', '4'], differs: ['--lr', '0.5'] });
  assert.notEqual(status, 0);
  assert.match(output, /the ranks were started differently: lr is 0\.5 on rank 1, and 0\.003 on rank 0/);
});

test('options of several processes are errors in one', LIMIT, () => {
  const { status, stderr } = spawnSync(process.execPath, ['benches/train.mjs', '--zero', '1'], { cwd: REPOSITORY, encoding: 'utf8' });
  assert.equal(status, 2);
  assert.match(stderr, /--zero is for several processes: npx helios-vk run --nproc N/);
});
