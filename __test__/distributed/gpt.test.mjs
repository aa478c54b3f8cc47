// The training run over several processes: equal weights on all of them after every step, the same bits in every run, and those of one
// process that adds the gradients of the shares itself; checkpoints that any number goes on from; restarts.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { makeText } from '../../packages/alpha-backend/bench/lib/text.mjs';
import { checkSharding } from '../../packages/lm/src/train/ranks.mjs';

import { LAUNCHERS, MOST_MS, NO_LAUNCHER, REPOSITORY, launch } from './launchers.mjs';
import { temporaryFolder } from '../lib/folder.mjs';

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
  const [{ hashes, losses, weights, done, bytes }] = of(0);
  for (const other of said) {
    assert.deepEqual(other.hashes, hashes, `rank ${other.rank} has other weights after a step, or other moments at the end`);
    assert.deepEqual([other.losses, other.done], [losses, done]);
  }
  return { hashes, losses, weights, done, bytes };
}

/** One process without a group; with `parts` it adds the gradients of so many shares. @param {Settings} settings */
function alone(settings) {
  const args = [RANK, JSON.stringify({ parts: 1, ...settings })];
  const { stdout, stderr } = spawnSync(process.execPath, args, { cwd: REPOSITORY, encoding: 'utf8', timeout: MOST_MS });
  const json = stdout.match(/@rank (\{.*\})/)?.[1];
  assert.ok(json, stderr);
  return JSON.parse(json);
}

/** Options that every run of `helios-lm train` here has: documents, some of which are held out. @param {string} folder for the text */
function common(folder) {
  const data = join(folder, 'some text.jsonl');
  const documents = Array.from({ length: 60 }, (_, seed) => JSON.stringify({ text: makeText(1000, seed) }));
  writeFileSync(data, documents.join('\n'));
  const options = ['--sample-tokens', '3', '--validation', '0.1', '--eval-every', '4', '--eval-batches', '3'];
  return ['--preset', 'gpt-tiny', '--data', data, ...options];
}

/** What `metrics.jsonl` says of a run, without what depends on the clock: losses by step, and those of the evaluations. @param {string} folder */
function metricsIn(folder) {
  const lines = readFileSync(join(folder, 'metrics.jsonl'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  const pairs = (/** @type {string} */ key) => lines.filter((line) => line[key] !== undefined).map((line) => [line.step, line[key]]);
  return { losses: pairs('loss'), evaluations: pairs('eval_loss') };
}

/** The checkpoints in a folder. @param {string} folder */
const checkpointsIn = (folder) =>
  readdirSync(folder)
    .filter((name) => name.startsWith('step-'))
    .sort();

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
    const folder = temporaryFolder(t);
    const options = (/** @type {string} */ name) => [
      ...[...common(folder), '--max-steps', '16', '--out', join(folder, name), '--save-every', '4', '--save-total-limit', '2'],
    ];
    const undisturbed = await run(2, { train: options('whole') }, launcher);
    assert.equal(undisturbed.status, 0, undisturbed.output);
    const dies = join(folder, 'killed', 'step-0000004');
    const killed = await run(2, { train: options('killed'), dies }, launcher, ['--max-restarts', '1', '--grace', '20']);
    assert.equal(killed.status, 0, killed.output);
    assert.match(killed.output, /restart 1 of 1[^]*continuing from .*step-00000/);
    const [whole, rest] = ['whole', 'killed'].map((name) => metricsIn(join(folder, name)));
    assert.deepEqual([whole.losses.length, whole.evaluations.map(([step]) => step)], [16, [4, 8, 12, 16]]);
    assert.deepEqual(rest, whole);
    // Those from before the restart are the run's, too.
    assert.deepEqual(checkpointsIn(join(folder, 'killed')), ['step-0000012', 'step-0000016']);
    for (const file of ['model.safetensors', 'optimizer.safetensors']) {
      const [a, b] = ['whole', 'killed'].map((name) => readFileSync(join(folder, name, 'step-0000016', file)));
      assert.ok(a.equals(b), file);
    }
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

test('gradients and weights in shards: the steps of ZeRO 1, bit for bit, with less memory', LIMIT, async () => {
  const settings = { gradCheckpoint: true, layers: 6 };
  const [whole, two, three] = [
    await small(2, { zero: 1, ...settings }),
    await small(2, { zero: 2, ...settings }),
    await small(2, { zero: 3, ...settings }),
  ];
  for (const { hashes, losses } of [two, three]) assert.deepEqual({ hashes, losses }, { hashes: whole.hashes, losses: whole.losses });
  // f32 weights, gradients and two moments: 4 + 4 + 8 / 2, 4 + 4 / 2 + 8 / 2 and 16 / 2 bytes of each weight, and memory of one layer.
  const [first12, of10, of8] = [whole, two, three].map(({ bytes }) => bytes);
  assert.ok(of10 < 0.89 * first12, `${of10} of ${first12}`);
  assert.ok(of8 < 0.89 * of10, `${of8} of ${of10}`);
});

test('checkpoints of sharded weights are whole: other shards and one process go on from them', LIMIT, async (t) => {
  const folder = temporaryFolder(t);
  const sharded = ['--zero', '3', '--grad-checkpoint'];
  const options = common(folder).filter((each, i, all) => each !== '--sample-tokens' && all[i - 1] !== '--sample-tokens');
  const train = ['--batch-size', '4', '--max-steps', '8', '--out', join(folder, 'a'), '--save-every', '4'];
  const ran = await run(2, { train: [...options, ...train, ...sharded] });
  assert.equal(ran.status, 0, ran.output);
  const whole = metricsIn(join(folder, 'a'));
  assert.deepEqual([whole.losses.length, whole.evaluations.length], [8, 2]);
  assert.ok(readdirSync(join(folder, 'a', 'best')).includes('model.safetensors'));
  const from = (/** @type {string} */ name) => [
    ...['--resume', join(folder, 'a', 'step-0000004'), '--out', join(folder, name), '--eval-every', '4', '--eval-batches', '3'],
  ];
  for (const [name, nproc, more] of /** @type {const} */ ([
    ['same', 2, ['--zero', '3']],
    ['alone', 1, ['--sample-tokens', '0']],
  ])) {
    const resumed = await run(nproc, { train: [...from(name), ...more] });
    assert.equal(resumed.status, 0, resumed.output);
    const { losses, evaluations } = metricsIn(join(folder, name));
    if (name === 'same')
      assert.deepEqual({ losses, evaluations }, { losses: whole.losses.slice(4), evaluations: whole.evaluations.slice(1) });
    const [[, evaluation]] = evaluations.slice(-1);
    assert.ok(Math.abs(evaluation - whole.evaluations[1][1]) < 1e-4, `${name}: ${evaluation}, expected ${whole.evaluations[1][1]}`);
    losses.forEach(([step, loss], i) => {
      assert.equal(step, 5 + i);
      assert.ok(Math.abs(loss - whole.losses[4 + i][1]) < 1e-4, `${name}: loss ${loss}, expected ${whole.losses[4 + i][1]}`);
    });
  }
  assert.throws(
    () => checkSharding({ zero: 3 }, { gradCheckpoint: false }),
    /--zero 3 gathers each layer again in the backward pass, which computes it again: add --grad-checkpoint/,
  );
});

test('one rank that is asked to stop stops all, after the same step', LIMIT, async () => {
  const { done, losses } = await small(2, { stopAt: 1 });
  assert.ok(done >= 2 && done < 6, `${done} steps`);
  assert.equal(losses.length, done);
});

test('a checkpoint of two ranks goes on on two, one and four; one rank speaks', LIMIT, async (t) => {
  const folder = temporaryFolder(t);
  const train = ['--batch-size', '4', '--max-steps', '8', '--out', join(folder, 'a'), '--save-every', '4', '--json'];
  const ran = await run(2, { train: [...common(folder), ...train] });
  assert.equal(ran.status, 0, ran.output);
  for (const once of [
    /parameters · f32/g,
    /step 4: validation loss/g,
    /step 4: wrote .*step-0000004/g,
    /step 8 of 8 after/g,
    /"type":"step","step":4,/g,
  ]) {
    assert.equal(ran.output.match(once)?.length, 1, `${once}: ${ran.output}`);
  }
  assert.deepEqual(checkpointsIn(join(folder, 'a')), ['step-0000004', 'step-0000008']);
  const whole = metricsIn(join(folder, 'a'));
  const { settings } = JSON.parse(readFileSync(join(folder, 'a/step-0000004/trainer_state.json'), 'utf8'));
  assert.equal(settings.gradientAccumulationSteps, 2, 'of the whole step');
  const from = (/** @type {number} */ nproc) => [
    ...['--resume', join(folder, 'a', 'step-0000004'), '--out', join(folder, `on-${nproc}`), '--eval-every', '4', '--eval-batches', '3'],
    ...['--sample-tokens', '0'],
  ];
  for (const nproc of [2, 4, 1]) {
    const resumed = await run(nproc, { train: from(nproc) });
    assert.equal(resumed.status, 0, resumed.output);
    const { losses } = metricsIn(join(folder, `on-${nproc}`));
    if (nproc === 2) assert.deepEqual(losses, whole.losses.slice(4), 'as if it had not stopped');
    // Other batches would be off by more than a hundred times as much.
    losses.forEach(([step, loss], i) => {
      assert.equal(step, 5 + i);
      const expected = whole.losses[4 + i][1];
      assert.ok(Math.abs(loss - expected) < 1e-4, `${nproc} ranks: loss ${loss}, expected ${expected}`);
    });
    assert.equal(losses.length, 4);
  }
  const odd = await run(3, { train: from(3) });
  assert.equal(odd.status, 1);
  assert.match(odd.output, /a step of 8 sequences \(batch size 4, 2 micro-steps\) cannot be divided equally by 3 processes/);
});

test('without --out two ranks choose one folder, and a restart finds it again', LIMIT, async (t) => {
  const folder = temporaryFolder(t);
  const train = [...common(folder), '--max-steps', '16', '--save-every', '2', '--no-tensorboard'];
  const killed = await run(2, { train, cwd: folder, dies: join(folder, 'runs/some-text/step-0000002') }, first, [
    '--max-restarts',
    '1',
    '--grace',
    '20',
  ]);
  assert.equal(killed.status, 0, killed.output);
  assert.match(killed.output, /continuing from .*step-00000/);
  assert.deepEqual(readdirSync(join(folder, 'runs')), ['some-text']);
  assert.equal(metricsIn(join(folder, 'runs/some-text')).losses.length, 16);
});

test('two ranks write the weights that one would begin with, and go on', LIMIT, async (t) => {
  const folder = temporaryFolder(t);
  /** The bytes of the weights, behind the header. @param {number} nproc @param {string[]} options */
  const dumped = async (nproc, options) => {
    const path = join(folder, `${nproc}.safetensors`);
    const { status, output } = await run(nproc, { bench: ['--steps', '2', '--dump-weights', path, ...options] });
    assert.equal(status, 0, output);
    const bytes = readFileSync(path);
    return bytes.subarray(8 + Number(bytes.readBigUInt64LE(0)));
  };
  const expected = await dumped(1, []);
  assert.ok(expected.length > 500_000 && expected.some((byte) => byte !== 0));
  for (const zero of ['0', '1']) assert.ok(expected.equals(await dumped(2, ['--zero', zero])), `--zero ${zero}`);
});

test('ranks that were started with different options are told which', LIMIT, async (t) => {
  const folder = temporaryFolder(t);
  const train = [...common(folder), '--max-steps', '4', '--out', join(folder, 'a')];
  const { status, output } = await run(2, { train, differs: ['--learning-rate', '0.5'] });
  assert.notEqual(status, 0);
  assert.match(output, /the ranks were started differently: --learning-rate is 0\.5 on rank 1, and 0\.003 on rank 0/);
  const bench = await run(2, { bench: ['--steps', '4'], differs: ['--lr', '0.5'] });
  assert.notEqual(bench.status, 0);
  assert.match(bench.output, /the ranks were started differently: learningRate is 0\.5 on rank 1, and 0\.003 on rank 0/);
});

test('the bench says how two ranks share a step', LIMIT, async (t) => {
  const json = join(temporaryFolder(t), 'result.json');
  const { status, output } = await run(2, { bench: ['--batch', '4', '--steps', '4', '--json', json] });
  assert.equal(status, 0, output);
  // Not at the beginning of a line: a launcher may pass half a line of the other stream on before.
  for (const once of [/parameters · f32/g, /tokens a second {3}/g]) assert.equal(output.match(once)?.length, 1, `${once}: ${output}`);
  const { ranks, config, losses } = JSON.parse(readFileSync(json, 'utf8'));
  assert.deepEqual(ranks, { size: 2, batchSize: 4, gradientAccumulationSteps: 1, zero: 1, reduce: 'f32', engine: 'mpi' });
  assert.equal(config.gradientAccumulationSteps, 2);
  assert.equal(losses.length, 4);
});

test('fine-tuning on pairs: two processes have the losses of one', LIMIT, async (t) => {
  const folder = temporaryFolder(t);
  const program = join(REPOSITORY, 'packages/lm/bin/helios-lm.mjs');
  const text = join(folder, 'text.txt');
  writeFileSync(text, makeText(4000, 1));
  const made = ['train', text, '--preset', 'gpt-tiny', '--block-size', '32', '--max-steps', '1', '--out', join(folder, 'base')];
  const { status, stderr } = spawnSync(process.execPath, [program, ...made], { encoding: 'utf8', timeout: MOST_MS });
  assert.equal(status, 0, stderr);
  const pairs = join(folder, 'pairs.jsonl');
  const rows = Array.from({ length: 12 }, (_, i) =>
    JSON.stringify({ prompt: `What is ${i}?`, chosen: `It is ${i}.`, rejected: `No, ${i}.` }),
  );
  writeFileSync(pairs, rows.join('\n'));
  const [one, two] = await Promise.all(
    [1, 2].map(async (nproc) => {
      const out = join(folder, `${nproc}`);
      const data = ['--model', join(folder, 'base', 'step-0000001'), '--data', pairs, '--loss', 'dpo', '--block-size', '32', '--out', out];
      const steps = ['--max-steps', '2', '--gradient-accumulation-steps', '1', '--batch-size', `${4 / nproc}`, '--eval-every', '0'];
      const ran = await launch(first, ['--nproc', `${nproc}`], [program, 'finetune', ...data, ...steps]);
      assert.equal(ran.status, 0, ran.output);
      return metricsIn(out).losses;
    }),
  );
  assert.equal(one.length, 2);
  for (const [i, [, loss]] of one.entries()) assert.ok(Math.abs(two[i][1] - loss) < 1e-5, `${two[i][1]} and ${loss}`);
});

test('options of several processes are errors in one', LIMIT, () => {
  for (const program of [['packages/lm/bin/helios-lm.mjs', 'train'], ['benches/train.mjs']]) {
    const { status, stderr } = spawnSync(process.execPath, [...program, '--zero', '1'], { cwd: REPOSITORY, encoding: 'utf8' });
    assert.equal(status, 2);
    assert.match(stderr, /--zero is for several processes: npx helios-vk run --nproc N/);
  }
  for (const [options, message] of /** @type {const} */ ([
    [['--zero', '3', '--sample-tokens', '5'], /--sample-tokens: with --zero 3 no process has all weights/],
    [['--zero', '2', '--reduce', 'bf16'], /--reduce bf16 is for --zero 0 and 1: with --zero 2 gradients are summed in f32/],
    [['--zero', '4'], /--zero 4: must be an integer from 0 to 3/],
  ])) {
    const args = ['packages/lm/bin/helios-lm.mjs', 'train', ...options];
    const { status, stderr } = spawnSync(process.execPath, args, { cwd: REPOSITORY, encoding: 'utf8' });
    assert.equal(status, 2, stderr);
    assert.match(stderr, message);
  }
});
