// `helios-lm train` and `helios-lm generate` in processes of their own: a run learns, resumes, survives lost devices, and writes text.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { init } from 'helios-vk/nn';
import { openModel } from '../packages/lm/src/index.mjs';
import { checkpointPath, loadCheckpoint } from '../packages/lm/src/train/checkpoint.mjs';
import { Generator } from '../packages/lm/src/train/generator.mjs';
import { sample } from '../packages/lm/src/train/sample.mjs';
import { learningRateAt } from '../packages/lm/src/train/settings.mjs';
import { temporaryFolder } from './lib/folder.mjs';
import { filled, randomWeights } from './lib/gpt.mjs';
import { legacyConfig, modelOfLegacy, writeLegacy } from './lib/legacy-checkpoint.mjs';
import { PROGRAM, SIZES, eventsIn, lm, tokenFolder } from './lib/lm.mjs';

const base = temporaryFolder();
const DATA = await tokenFolder(join(base, 'data'));
let made = 0;
const fresh = () => join(base, `${++made}`);

/**
 * The events of a run that must succeed, by their type.
 * @param {string[]} args @param {NodeJS.ProcessEnv} [environment]
 */
function train(args, environment) {
  const { status, stdout, stderr } = lm(['train', ...args, '--json'], environment);
  assert.equal(status, 0, stderr);
  const all = eventsIn(stdout);
  const of = (/** @type {string} */ type) => all.filter((event) => event.type === type);
  const losses = of('step').map(({ loss }) => /** @type {number} */ (loss));
  return { all, of, losses, evals: of('eval').map(({ step, loss }) => [step, loss]), stderr };
}

test('a run learns, resumes to the same losses, and its checkpoint writes text', async () => {
  const out = fresh();
  const prompt = ['--sample-prompt', 'peter piper', '--sample-tokens', '12', '--seed', '7'];
  const { of, losses, evals, stderr } = train([DATA, ...SIZES, '--max-steps', '60', '--save-every', '40', '--out', out, ...prompt]);
  assert.equal(losses.length, 60);
  assert.ok(Math.abs(losses[0] - Math.log(300)) < 0.5, `first loss ${losses[0]}`);
  assert.ok(losses[59] < losses[0] - 1, `last loss ${losses[59]}`);
  assert.deepEqual(
    evals.map(([step]) => step),
    [6, 12, 18, 24, 30, 36, 42, 48, 54, 60],
  );
  assert.ok(evals[9][1] < evals[0][1]);
  for (const part of [/ · 25,440 parameters · f32$/m, /^step 60: validation loss /m, /^step 60: wrote /m]) assert.match(stderr, part);
  for (const name of ['best', 'step-0000040', 'step-0000060', 'metrics.jsonl']) assert.ok(existsSync(join(out, name)), name);

  rmSync(checkpointPath(out, 60), { recursive: true });
  const rest = train(['--resume', out, ...prompt.slice(0, 4)]);
  assert.equal(rest.of('start')[0].step, 40);
  assert.deepEqual(rest.losses, losses.slice(40));
  assert.deepEqual(rest.evals, evals.slice(6));
  const text = of('sample').at(-1).text;
  assert.equal(rest.of('sample').at(-1).text, text);
  assert.ok(text.startsWith('peter piper'));

  const write = (/** @type {string[]} */ ...options) => {
    const { status, stdout, stderr } = lm(['generate', '--model', out, '--prompt', 'peter piper', '--tokens', '12', '--quiet', ...options]);
    assert.deepEqual([status, stderr], [0, '']);
    return stdout;
  };
  const sampled = write('--seed', '7');
  assert.ok(sampled.startsWith('peter piper') && sampled.length > 'peter piper\n'.length);
  assert.equal(write('--seed', '7'), sampled);
  assert.notEqual(write('--seed', '8'), sampled);
  const greedy = write('--temperature', '0');
  // What the forward pass of training finds likeliest, as long as all of it fits the context.
  init();
  const { model, tokenizer } = await openModel(out);
  assert.ok(tokenizer);
  const room = 16 - tokenizer.encode('peter piper').length;
  assert.ok(room > 4);
  const likeliest = await sample(new Generator(model, 'f32'), tokenizer, 'peter piper', { temperature: 0, tokens: room });
  assert.equal(write('--temperature', '0', '--tokens', String(room)), `${likeliest}\n`);
  model.dispose();
  assert.equal(write('--seed', '9', '--top-p', '0'), greedy);
  assert.equal(write('--seed', '10', '--top-k', '1'), greedy);
  const best = lm(['generate', '--model', join(out, 'best'), '--prompt', 'peter', '--tokens', '3']);
  assert.equal(best.status, 0, best.stderr);
  assert.match(best.stderr, /best · .* · f32\n$/);
});

test('the earlier names of options work, and name the same', async () => {
  const [now, before] = [fresh(), fresh()];
  const sizes = SIZES.slice(0, 10);
  const { losses } = train([
    ...[DATA, ...sizes, '--block-size', '8', '--vocab-size', '300', '--batch-size', '2', '--gradient-accumulation-steps', '2'],
    ...['--max-steps', '4', '--learning-rate', '0.01', '--warmup-steps', '1', '--max-grad-norm', '0.5', '--eval-every', '2', '--out', now],
    ...['--save-every', '1', '--save-total-limit', '2', '--sample-prompt', 'a', '--sample-tokens', '2', '--lr-scheduler', 'linear'],
  ]);
  const old = train([
    ...['--data', DATA, ...sizes, '--block', '8', '--vocab=300', '--batch', '2', '--micro-steps', '2', '--steps', '4', '--lr', '0.01'],
    ...['--warmup=1', '--clip', '0.5', '--validation-every', '2', '--checkpoint', before, '--checkpoint-every', '1', '--keep', '2'],
    ...['--sample', 'a', '--sample-tokens', '2', '--lr-scheduler', 'linear'],
  ]);
  assert.deepEqual(old.losses, losses);
  const folders = [now, before].map((folder) => readdirSync(folder).filter((name) => name.startsWith('step-')));
  assert.deepEqual(folders, [
    ['step-0000003', 'step-0000004'],
    ['step-0000003', 'step-0000004'],
  ]);
  const [{ config }, { config: other }] = await Promise.all([now, before].map(loadCheckpoint));
  assert.deepEqual(other, config);
  assert.deepEqual(
    old.of('step').map(({ learningRate }) => learningRate),
    [0, 1, 2, 3].map((step) => learningRateAt(config.settings, step)),
  );
});

// Once in the middle, and once while the run recovers or in its first steps. Without clipping no norm is read, which the clock would decide.
for (const [mode, lost] of /** @type {const} */ ([
  ['graph', '80,20'],
  ['plain', '60,40'],
])) {
  test(`a run that loses its device goes on (${mode}), with the losses of an undisturbed run`, () => {
    const args = [DATA, ...SIZES, '--max-steps', '14', '--save-every', '4', '--max-grad-norm', '0', '--mode', mode];
    const undisturbed = train([...args, '--out', fresh()]);
    assert.doesNotMatch(undisturbed.stderr, /device lost/);
    const { losses, evals, stderr } = train([...args, '--out', fresh()], { HELIOS_TEST_LOSE_DEVICE: lost, HELIOS_REPORT_DIR: base });
    const notes = stderr.split('\n').filter((line) => line.startsWith('device lost'));
    assert.equal(notes.length, 2, stderr);
    for (const note of notes) {
      assert.match(note, /HELIOS_TEST_LOSE_DEVICE.*report: .*helios-report-.*continuing from (the first step|\S+step-00000(04|08|12))$/);
    }
    assert.deepEqual(losses, undisturbed.losses);
    assert.deepEqual(evals, undisturbed.evals);
  });
}

test('a folder in which a run is made is refused, and is free when that run is gone', async () => {
  const out = fresh();
  const url = JSON.stringify(new URL('../packages/lm/src/train/outputs.mjs', import.meta.url));
  const source = `const { FolderLock } = await import(${url}); await FolderLock.take(${JSON.stringify(out)}); console.log(1); setInterval(() => {}, 999);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', source], { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(/** @type {import('node:stream').Readable} */ (child.stdout), 'data');
  const args = ['train', DATA, ...SIZES, '--max-steps', '2', '--out', out, '--quiet'];
  const { status, stderr } = lm(args);
  assert.equal(status, 1);
  assert.match(stderr, new RegExp(`^helios-lm: .* belongs to another run: process ${child.pid} on [^\\n]*\\n$`));
  child.kill('SIGKILL');
  await once(child, 'exit');
  assert.equal(lm(args).status, 0);
});

test('a checkpoint of an earlier version writes text, and a run goes on from it or begins with it', () => {
  const config = legacyConfig({ layers: 2, width: 64, heads: 2, hidden: 192, block: 16, vocab: 300, batch: 2, steps: 9, warmup: 2 });
  const model = modelOfLegacy(config);
  const tokenizer = { kind: 'bpe', merges: ['t h', 'th e'].map((pair) => pair.split(' ')) };
  const state = { weights: randomWeights(model, 3), m: filled(model), v: filled(model) };
  const folder = fresh();
  mkdirSync(folder);
  const file = writeLegacy(join(folder, 'step-0000007.safetensors'), { config, step: 7, run: 'old', tokenizer, state });
  for (const path of [file, folder]) {
    const { status, stdout, stderr } = lm(['generate', '--checkpoint', path, '--prompt', 'the', '--tokens', '6']);
    assert.equal(status, 0, stderr);
    assert.match(stderr, /step-0000007\.safetensors · .* · f32\n$/);
    assert.ok(stdout.startsWith('the'));
  }
  const text = join(base, 'the.txt');
  writeFileSync(text, 'the other the then there\n'.repeat(400));
  const data = fresh();
  const tokenizerFile = join(base, 'legacy-tokenizer.json');
  writeFileSync(tokenizerFile, JSON.stringify(tokenizer));
  const made = lm(['tokenize', text, '--tokenizer', tokenizerFile, '--out', data]);
  assert.equal(made.status, 0, made.stderr);
  const out = fresh();
  assert.deepEqual(
    train(['--resume', folder, '--data', data, '--out', out, '--sample-tokens', '0'])
      .of('step')
      .map(({ step }) => step),
    [8, 9],
  );
  const next = train([data, '--init-from', file, '--out', fresh(), '--max-steps', '2', '--batch-size', '2', '--sample-tokens', '4']);
  assert.equal(next.of('start')[0].step, 0);
  assert.equal(next.losses.length, 2);
  const { status, stderr } = lm(['train', '--resume', folder, '--data', data, '--out', folder]);
  assert.equal(status, 2);
  assert.match(stderr, /its step-0000007\.safetensors is of another run: use another folder/);
});

test('generate: what it cannot read is an error of one line', () => {
  const empty = fresh();
  mkdirSync(empty);
  const text = join(empty, 'text.txt');
  writeFileSync(text, 'no checkpoint');
  for (const [args, status, message] of /** @type {[string[], number, RegExp][]} */ ([
    [['--model', empty], 1, /is no model: it has neither config\.json nor a checkpoint \(step-…\)/],
    [['--model', text], 1, /text\.txt is not a safetensors file/],
    [['--model', join(empty, 'none')], 2, /none.*no such file or folder/],
    [[], 2, /--model PATH is required/],
    [['--model', empty, '--top-p', '2'], 2, /--top-p 2: must be a number from 0 to 1/],
  ])) {
    const found = lm(['generate', ...args]);
    assert.equal(found.status, status, found.stderr);
    assert.match(found.stderr, message);
    assert.equal(found.stderr.trimEnd().split('\n').length, 1);
  }
});

test('a text is trained on as it is, into runs/NAME, with a tokenizer of its own', async () => {
  const folder = fresh();
  mkdirSync(folder);
  writeFileSync(join(folder, 'a text.txt'), readFileSync(join(base, 'data', 'text.txt')));
  const args = [PROGRAM, 'train', 'a text.txt', ...SIZES, '--max-steps', '2', '--quiet'];
  const ended = () => once(spawn(process.execPath, args, { cwd: folder, stdio: 'inherit' }), 'exit');
  assert.deepEqual(await ended(), [0, null]);
  assert.deepEqual(await ended(), [0, null]);
  assert.deepEqual(readdirSync(join(folder, 'runs')).sort(), ['a-text', 'a-text-2']);
  for (const name of ['a-text', 'a-text-2']) {
    const { step, tokenizer } = await loadCheckpoint(join(folder, 'runs', name));
    assert.equal(step, 2);
    assert.ok(existsSync(join(String(tokenizer), 'tokenizer.json')));
  }
});
