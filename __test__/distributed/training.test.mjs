// Training by several processes: equal parameters on all of them after every step, the same bits in every run, and those of one process
// that adds the gradients of the parts itself; checkpoints that any number of processes goes on from.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

import { LAUNCHERS, MOST_MS, NO_LAUNCHER, REPOSITORY, launch } from './launchers.mjs';
import { temporaryFolder } from '../lib/folder.mjs';

const RANK = join(REPOSITORY, '__test__/distributed/training-rank.mjs');
const LIMIT = { timeout: 120_000, skip: NO_LAUNCHER };
const [first] = LAUNCHERS;

/** @typedef {import('./training-rank.mjs').Settings} Settings */

/** Trains; what rank 0 says of it, which all others say too. @param {number} nproc @param {Settings} settings @param {typeof first} [launcher] */
async function train(nproc, settings, launcher = first) {
  const ran = await launch(launcher, ['--nproc', String(nproc)], [RANK, JSON.stringify(settings)]);
  assert.equal(ran.status, 0, ran.output);
  assert.equal(ran.said.length, nproc, ran.output);
  const [{ hashes, problem, values, skipped }] = ran.of(0);
  assert.ok(hashes.length > 0);
  for (const other of ran.said) {
    assert.deepEqual(other.hashes, hashes, `rank ${other.rank} has other parameters after a step`);
    assert.equal(other.skipped, skipped, `rank ${other.rank} has skipped other steps`);
  }
  return { hashes, problem, values, skipped };
}

/** One process that computes the gradients of the parts one by one. @param {number} parts @param {Settings} settings */
function reference(parts, settings) {
  const args = [RANK, JSON.stringify({ ...settings, parts })];
  const { stdout, stderr } = spawnSync(process.execPath, args, { cwd: REPOSITORY, encoding: 'utf8', timeout: MOST_MS });
  const json = stdout.match(/@rank (\{.*\})/)?.[1];
  assert.ok(json, stderr);
  return JSON.parse(json);
}

/** The largest difference. @param {number[]} a @param {number[]} b */
const distance = (a, b) => a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0);

for (const launcher of LAUNCHERS) {
  test(`${launcher.name}: two processes make the steps of one that adds both gradients, bit for bit`, LIMIT, async () => {
    const expected = reference(2, {}).hashes;
    assert.equal(new Set(expected).size, 4, 'every step changes something');
    for (const zero of /** @type {const} */ ([0, 1])) {
      for (let run = 0; run < 2; run++) assert.deepEqual((await train(2, { zero }, launcher)).hashes, expected, `zero ${zero}, run ${run}`);
    }
  });
}

for (const launcher of LAUNCHERS) {
  test(`${launcher.name}: gradients in bf16 are rounded once and added in f32, bit for bit`, LIMIT, async () => {
    const settings = /** @type {const} */ ({ reduce: 'bf16' });
    const expected = reference(2, settings).hashes;
    assert.notDeepEqual(expected, reference(2, {}).hashes, 'they are rounded');
    for (const zero of /** @type {const} */ ([0, 1])) {
      assert.deepEqual((await train(2, { ...settings, zero }, launcher)).hashes, expected, `zero ${zero}`);
    }
    // Of three the order of additions is the kernel's; all have the same parameters after every step (`train` looks).
    await train(3, settings, launcher);
  });
}

test('gradients are averaged for steps of other kinds, too', LIMIT, async () => {
  assert.deepEqual((await train(2, { helper: true })).hashes, reference(2, {}).hashes);
  assert.match((await train(2, { helper: true, wrong: 'missing' })).problem, /averageGradients: parameter 2 of 4 has no gradient/);
});

test('the loss that has the head’s product in it, in blocks of rows, has gradients that add up, too', LIMIT, async () => {
  const expected = reference(2, { head: 37 }).hashes;
  assert.equal(new Set(expected).size, 4, 'every step changes something');
  for (const zero of /** @type {const} */ ([0, 1])) assert.deepEqual((await train(2, { head: 37, zero })).hashes, expected, `zero ${zero}`);
  // Of three the order of additions is the kernel's; all have the same parameters after every step (`train` looks).
  await train(3, { head: 37 });
});

test('SGD and Lion keep their moments in shards, too', LIMIT, async () => {
  for (const optimizer of /** @type {const} */ (['SGD', 'Lion'])) {
    assert.deepEqual((await train(2, { optimizer, zero: 1 })).hashes, reference(2, { optimizer }).hashes, optimizer);
  }
});

test('gradients are clipped by the norm of all shards', LIMIT, async () => {
  const settings = { clip: 0.01 };
  const expected = reference(2, settings);
  assert.notDeepEqual(expected.hashes, reference(2, {}).hashes, 'it is clipped');
  // The norm of the whole gradient, by the same kernel; by shards its sum has another order.
  assert.deepEqual((await train(2, { ...settings, zero: 0 })).hashes, expected.hashes);
  const sharded = await train(2, { ...settings, zero: 1 });
  assert.ok(distance(sharded.values, expected.values) < 1e-5, `${distance(sharded.values, expected.values)}`);
});

test('a gradient of one process that is not finite has all of them skip the step', LIMIT, async () => {
  for (const optimizer of /** @type {const} */ (['AdamW', 'SGD', 'Lion'])) {
    // A norm that no gradient reaches: it is the same bits with shards and without.
    const settings = { optimizer, clip: 1e6, bad: 1, steps: 3 };
    const expected = reference(2, settings);
    assert.equal(expected.hashes[1], expected.hashes[0], 'nothing has changed');
    assert.notEqual(expected.hashes[2], expected.hashes[1]);
    assert.equal(expected.skipped, 1);
    for (const zero of /** @type {const} */ ([0, 1])) {
      const { hashes, skipped } = await train(2, { ...settings, zero });
      assert.deepEqual({ hashes, skipped }, { hashes: expected.hashes, skipped: 1 }, `${optimizer}, zero ${zero}`);
    }
  }
});

test('a checkpoint of two processes is whole: one, two and three go on from it', LIMIT, async (t) => {
  const folder = temporaryFolder(t);
  const to = join(folder, 'a.safetensors');
  const whole = await train(2, { clip: 1, steps: 8 });
  await train(2, { clip: 1, steps: 4, to });
  const two = await train(2, { clip: 1, steps: 4, from: to });
  assert.deepEqual(two.hashes, whole.hashes.slice(4), 'as if it had not stopped');
  const one = reference(1, { clip: 1, steps: 4, from: to });
  const three = await train(3, { clip: 1, steps: 4, from: to });
  for (const { values } of [one, three]) assert.ok(distance(values, whole.values) < 1e-4, `${distance(values, whole.values)}`);
});

test('what a step of several processes cannot do is an error on each', LIMIT, async () => {
  assert.match(
    (await train(2, { wrong: 'missing' })).problem,
    /a parameter has no gradient: a step of several processes needs one of every/,
  );
  assert.match((await train(2, { wrong: 'compiled' })).problem, /a step of several processes cannot be compiled/);
});

test('the example trains on two processes and goes on with three', LIMIT, async (t) => {
  const folder = temporaryFolder(t);
  const file = join(folder, 'model.safetensors');
  const run = (/** @type {number} */ nproc, /** @type {number} */ steps) =>
    launch(first, ['--nproc', String(nproc)], ['examples/data-parallel.mjs', String(steps), file]);
  const begun = await run(2, 60);
  assert.match(begun.output, /step 0: loss .* on 2 processes/);
  const { status, output } = await run(3, 100);
  assert.equal(status, 0, output);
  const loss = Number(output.match(/step 99: loss ([\d.]+) on 3 processes/)?.[1]);
  assert.ok(loss < 0.3, output);
  assert.doesNotMatch(output, /step 0:/);
});
