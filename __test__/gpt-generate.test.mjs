// Text that the model was not trained on, and text that it writes: validation, sampling, `train.mjs --validation`, `generate.mjs`.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { loadCheckpoint } from '../packages/lm/src/train/checkpoint.mjs';
import { PRESETS, checkConfig, withValues } from '../packages/lm/src/train/config.mjs';
import { splitTokens, validationStarts } from '../packages/lm/src/train/data.mjs';
import { loadGenerator } from '../packages/lm/src/train/generator.mjs';
import { Random } from '../packages/lm/src/train/random.mjs';
import { forwardBackward } from './lib/gpt-reference.mjs';
import { generate, sampleToken } from '../packages/lm/src/train/sample.mjs';
import { initialWeights, parameterCount } from '../packages/lm/src/train/state.mjs';
import { restoreTokenizer } from '../packages/lm/src/train/tokenizer.mjs';
import { createTrainer } from '../packages/lm/src/train/trainer.mjs';
import { init, reset } from '../nn/index.mjs';

const vk = createRequire(import.meta.url)('../index.js');
vk.initDevice();
after(() => vk.destroy());

const execute = promisify(execFile);
const script = (/** @type {string} */ name) => fileURLToPath(new URL(`../benches/${name}.mjs`, import.meta.url));
const run = (/** @type {string} */ name, /** @type {string[]} */ ...options) => execute(process.execPath, [script(name), ...options]);

const config = checkConfig(
  withValues(PRESETS['gpt-tiny'], {
    ...{ layers: 1, width: 64, heads: 2, hidden: 76, block: 19, vocab: 45 },
    ...{ batch: 3, microSteps: 2, steps: 20, warmup: 4 },
  }),
);
const { block, vocab } = config.model;

/** @param {number} length @param {number} seed */
function randomTokens(length, seed) {
  const random = new Random(seed);
  return Uint32Array.from({ length }, () => random.below(vocab));
}

test('the end of the tokens is held back, where both parts hold a sequence', () => {
  const tokens = randomTokens(100, 1);
  const { training, validation } = splitTokens(tokens, 30, 19);
  assert.deepEqual([...training, .../** @type {Uint32Array} */ (validation)], [...tokens]);
  assert.equal(validation?.length, 30);
  assert.deepEqual(splitTokens(tokens, 0, 19), { training: tokens, validation: undefined });
  assert.throws(() => splitTokens(tokens, 19, 19), /of 100 tokens 19 are for validation and 81 for training; block 19 needs at least 20/);
  assert.throws(() => splitTokens(tokens, 81, 19), /19 for training/);
});

test('validation sequences do not overlap, spread over all that is held back, and are at most so many', () => {
  assert.deepEqual(validationStarts(58, 19, 100), [0, 19, 38]);
  assert.deepEqual(validationStarts(57, 19, 100), [0, 19]);
  assert.deepEqual(validationStarts(191, 19, 5), [0, 38, 76, 114, 152]);
  assert.throws(() => validationStarts(19, 19, 5), /19 tokens are held out; block 19 needs at least 20/);
});

for (const mode of /** @type {const} */ (['graph', 'plain'])) {
  // 7 sequences are two whole micro-steps and a third of one.
  test(`the validation loss is the reference's over the same sequences, and training goes on undisturbed (${mode})`, async () => {
    const tokens = randomTokens(300, 2);
    const held = randomTokens(7 * block + 1, 3);
    const trainer = createTrainer(vk, config, { tokens, validation: held, mode });
    const weights = initialWeights(config.model, 1);
    for (const values of Object.values(weights)) for (let i = 0; i < values.length; i++) values[i] *= 3;
    trainer.load({ step: 0, weights });
    assert.equal(trainer.validationTokens, 7 * block);
    let expected = 0;
    for (const start of validationStarts(held.length, block, 100)) {
      const [ids, targets] = [held.subarray(start, start + block), held.subarray(start + 1, start + block + 1)];
      expected += forwardBackward(config.model, weights, ids, targets).loss / 7;
    }
    const loss = await trainer.validate();
    assert.ok(Math.abs(loss - expected) < 1e-5, `${loss}, ${expected} expected`);
    const undisturbed = createTrainer(vk, config, { tokens, mode });
    undisturbed.load({ step: 0, weights });
    for (let i = 0; i < 3; i++) {
      await trainer.step();
      await undisturbed.step();
      assert.notEqual(await trainer.validate(), loss, 'it is of the weights as they are');
    }
    for (const each of [trainer, undisturbed]) await each.settle();
    assert.deepEqual(trainer.known, undisturbed.known);
    assert.deepEqual(await trainer.read('weights'), await undisturbed.read('weights'));
    await assert.rejects(undisturbed.validate(), /without validation tokens/);
    trainer.destroy();
    undisturbed.destroy();
  });
}

test('generating takes the weights alone: no memory for moments or gradients', async () => {
  reset();
  init({ vk });
  // Weights that outweigh what a pass computes with.
  const sizes = { layers: 2, width: 128, heads: 2, hidden: 512, block: 8, vocab: 512 };
  const weights = initialWeights(sizes, 1);
  const bytes = 4 * parameterCount(sizes);
  const live = () => vk.memoryStats().live.bytes;
  const before = live();
  const { generator, destroy } = loadGenerator(vk, sizes, weights, 'f32');
  const logits = await generator.nextLogits([1, 2, 3]);
  const used = live() - before;
  assert.ok(used >= bytes && used < 1.25 * bytes, `${used} bytes for weights of ${bytes}`);
  destroy();
  // A trainer, before its first step, has the moments too.
  const training = { ...config.training, batch: 1, microSteps: 1 };
  const trainer = createTrainer(vk, { model: sizes, training }, { tokens: new Uint32Array(), state: { weights } });
  assert.deepEqual(await trainer.generator.nextLogits([1, 2, 3]), logits, 'the same bits');
  assert.ok(live() - before >= 3 * bytes, `${live() - before} bytes`);
  trainer.destroy();
});

test('sampleToken: temperature, top-k and top-p say what is sampled from', () => {
  // Probabilities 1/2, 1/4, 1/8, 1/8 at temperature 1, not in order.
  const logits = Float32Array.of(Math.log(1 / 8), Math.log(1 / 2), Math.log(1 / 8), Math.log(1 / 4));
  /** @param {import('../packages/lm/src/train/sample.mjs').Sampling} sampling */
  const shares = (sampling) => {
    const counts = [0, 0, 0, 0];
    // Every uniform number of a fine grid: no luck is involved.
    for (let i = 0; i < 840; i++) counts[sampleToken(logits, { uniform: () => (i + 0.5) / 840 }, { temperature: 1, ...sampling })]++;
    return counts.map((count) => count / 840);
  };
  const all = { topK: 0, topP: 1 };
  assert.deepEqual(shares(all), [1 / 8, 1 / 2, 1 / 8, 1 / 4]);
  assert.deepEqual(shares({ ...all, topK: 1 }), [0, 1, 0, 0]);
  assert.deepEqual(shares({ ...all, topK: 3 }), [1 / 7, 4 / 7, 0, 2 / 7]);
  assert.deepEqual(shares({ ...all, topP: 0.7 }), [0, 2 / 3, 0, 1 / 3]);
  assert.deepEqual(shares({ ...all, topP: 0 }), [0, 1, 0, 0]);
  // Of what top-k leaves (4/7, 2/7, 1/7), not of all.
  assert.deepEqual(shares({ topK: 3, topP: 0.57 }), [0, 1, 0, 0]);
  assert.deepEqual(shares({ ...all, temperature: 0 }), [0, 1, 0, 0]);
  const [, cold] = shares({ ...all, temperature: 0.5 });
  assert.ok(Math.abs(cold - 16 / 22) < 2 / 840, `${cold}`);
});

test('a character of several tokens is given out when it is whole, and what never becomes one at the end', async () => {
  /** A model that always continues with these bytes. @param {number[]} bytes */
  const model = (bytes) => {
    let next = 0;
    const nextLogits = () => {
      const byte = bytes[next++];
      return Float32Array.from({ length: 256 }, (_, i) => Number(i === byte));
    };
    return /** @type {any} */ ({ config: { block: 8 }, nextLogits });
  };
  const tokenizer = await restoreTokenizer({ kind: 'byte' });
  const parts = async (/** @type {number[]} */ bytes) => {
    const found = [];
    for await (const part of generate(model(bytes), tokenizer, 'a', { tokens: bytes.length, temperature: 0 })) found.push(part);
    return found;
  };
  assert.deepEqual(await parts([...Buffer.from('é€!')]), ['a', 'é', '€', '!']);
  assert.deepEqual(await parts([0xe2, 0x82]), ['a', '\ufffd']);
});

test('train.mjs --validation, and generate.mjs from the finished checkpoint', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'helios-vk-test-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const data = join(dir, 'text.txt');
  const text = 'the quick brown fox jumps over the lazy dog. '.repeat(100);
  await writeFile(data, text);
  const sizes = '--preset gpt-tiny --layers 1 --width 32 --heads 1 --hidden 64 --block 16'.split(' ');
  const [json, report, checkpoints] = [join(dir, 'a.json'), join(dir, 'a.html'), join(dir, 'run')];
  const first = await run(
    'train',
    ...[...sizes, '--data', data, '--steps', '30', '--validation', '0.1', '--validation-every', '10', '--seed', '7'],
    ...['--sample', 'the quick', '--sample-tokens', '30', '--json', json, '--report', report, '--checkpoint', checkpoints],
    ...['--checkpoint-every', '15'],
  );
  const result = JSON.parse(await readFile(json, 'utf8'));
  const losses = /** @type {{ step: number, loss: number }[]} */ (result.validation.losses);
  assert.deepEqual(
    losses.map(({ step }) => step),
    [10, 20, 30],
  );
  assert.equal(result.validation.tokens, text.length / 10);
  assert.equal(result.tokens, (text.length * 9) / 10);
  assert.equal(result.validation.predicted, 16 * Math.floor((text.length / 10 - 1) / 16));
  assert.ok(losses[2].loss < losses[0].loss && losses[0].loss < Math.log(256) + 0.5, JSON.stringify(losses));
  for (const { step, loss } of losses) assert.match(first.stderr, new RegExp(`^step ${step}: validation loss ${loss.toFixed(4)}$`, 'm'));
  assert.match(first.stdout, new RegExp(`^validation loss   ${losses[2].loss.toFixed(4)} `, 'm'));
  const page = await readFile(report, 'utf8');
  for (const part of ['>validation loss<', `<b>${losses[2].loss.toFixed(4)}</b>`]) assert.ok(page.includes(part), part);

  // Resumed, the same part is held back.
  const halfway = join(checkpoints, 'step-0000015.safetensors');
  assert.equal((await loadCheckpoint(halfway)).data?.validation, text.length / 10);
  const again = join(dir, 'b.json');
  await run('train', '--resume', halfway, '--validation-every', '10', '--sample-tokens', '0', '--quiet', '--json', again);
  const resumed = JSON.parse(await readFile(again, 'utf8'));
  assert.deepEqual(resumed.validation.losses, losses.slice(1));
  assert.deepEqual(resumed.losses, result.losses.slice(15));

  // The finished checkpoint writes what the run wrote at its end.
  const write = async (/** @type {string[]} */ ...options) =>
    (await run('generate', '--checkpoint', checkpoints, '--prompt', 'the quick', '--tokens', '30', '--quiet', ...options)).stdout;
  assert.equal(await write('--seed', '7'), `${result.sample}\n`);
  assert.notEqual(await write('--seed', '8'), `${result.sample}\n`);
  const greedy = await write('--temperature', '0');
  assert.equal(await write('--seed', '9', '--top-p', '0'), greedy);
  assert.equal(await write('--seed', '10', '--top-k', '1'), greedy);

  for (const [name, options, message] of /** @type {[string, string[], RegExp][]} */ ([
    [
      'train',
      ['--resume', checkpoints],
      /step 30, so --steps 30 is done: give more --steps to continue, or write text with npm run generate/,
    ],
    ['train', ['--resume', halfway, '--validation', '0.1'], /--resume keeps what the checkpoint held back/],
    ['train', [...sizes, '--data', data, '--validation-every', '5'], /--validation-every needs --validation/],
    ['train', [...sizes, '--data', data, '--validation', '0.6'], /--validation 0.6: must be a number from 0 to 0.5/],
    ['train', [...sizes, '--data', data, '--validation', '0.001'], /of 4500 tokens 4 are for validation/],
    ['generate', ['--checkpoint', dir], /holds no checkpoint/],
    ['generate', ['--checkpoint', data], /not a safetensors file/],
    ['generate', [], /--checkpoint FILE\|DIR is required/],
  ])) {
    await assert.rejects(run(name, ...options), (/** @type {any} */ error) => {
      assert.match(error.stderr, message);
      assert.doesNotMatch(error.stderr, /\n {4}at /);
      return true;
    });
  }
});
