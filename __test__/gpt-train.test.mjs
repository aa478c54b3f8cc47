// The GPT on the device: gradients and optimizer against the float64 reference, repeatability, checkpoints, the CLI.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync } from 'node:fs';
import { mkdtemp, readFile, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createKernels } from '../kernels/index.mjs';
import { checkpointPath, loadCheckpoint, saveCheckpoint } from '../packages/lm/src/train/checkpoint.mjs';
import { PRESETS, checkConfig, flatConfig, learningRate, withValues } from '../packages/lm/src/train/config.mjs';
import { dataInfo, stepBatch } from '../packages/lm/src/train/data.mjs';
import { loadGenerator } from '../packages/lm/src/train/generator.mjs';
import { Random } from '../packages/lm/src/train/random.mjs';
import { adamW, forwardBackward } from './lib/gpt-reference.mjs';
import { runTraining } from '../packages/lm/src/train/run.mjs';
import { expectTensor, openTensors, writeTensors } from '../packages/lm/src/train/safetensors.mjs';
import { sample } from '../packages/lm/src/train/sample.mjs';
import { initialWeights, isNorm, parameterShapes } from '../packages/lm/src/train/state.mjs';
import { trainTokenizer } from '../packages/lm/src/train/tokenizer.mjs';
import { createTrainer } from '../packages/lm/src/train/trainer.mjs';
import { init, reset } from '../nn/index.mjs';
import { bitsOf, filled, toFloat64 } from './lib/gpt.mjs';

const vk = createRequire(import.meta.url)('../index.js');
vk.initDevice();
after(() => vk.destroy());

/** Whether matrix products of this precision run here. @param {'f32' | 'f16' | 'bf16' | 'bf16x3'} precision */
const supports = (precision) => createKernels(vk).matmulSupports(precision);

const execute = promisify(execFile);
const script = fileURLToPath(new URL('../benches/train.mjs', import.meta.url));

/** Sizes that are no multiple of any tile. */
const config = checkConfig(
  withValues(PRESETS['gpt-tiny'], {
    ...{ layers: 2, width: 96, heads: 3, hidden: 76, block: 19, vocab: 45 },
    ...{ batch: 3, microSteps: 2, steps: 20, warmup: 4 },
  }),
);

/** @param {typeof config} sizes */
function randomTokens(sizes) {
  const random = new Random(21);
  return Uint32Array.from({ length: 500 }, () => random.below(sizes.model.vocab));
}

/** A start that is no fixed point of anything: larger weights, norm weights around 1. @param {typeof config} sizes */
function startState(sizes) {
  const weights = initialWeights(sizes.model, sizes.training.seed);
  const random = new Random(22);
  for (const [name, values] of Object.entries(weights)) {
    for (let i = 0; i < values.length; i++) values[i] = isNorm(name) ? 1 + 0.3 * random.normal() : 4 * values[i];
  }
  return { step: 0, weights, m: filled(sizes.model), v: filled(sizes.model) };
}

/** ‖a − b‖ / ‖b‖ @param {ArrayLike<number>} a @param {ArrayLike<number>} b */
function relativeError(a, b) {
  let [difference, norm] = [0, 0];
  for (let i = 0; i < b.length; i++) {
    difference += (a[i] - b[i]) ** 2;
    norm += b[i] ** 2;
  }
  return Math.sqrt(difference / norm);
}

// Bounds: rounding every operand of the float64 reference to bf16 gives gradients that are off by 1e-2, and to f16
// by 1.2e-3; devices that truncate instead of rounding, and attention's own operands, come on top.
const precisions = /** @type {const} */ ([
  ['f32', 1e-5],
  ['bf16x3', 1e-4],
  ['f16', 4e-3],
  ['bf16', 2.5e-2],
]);

for (const [precision, bound] of precisions) {
  test(`the gradient of every parameter, summed over micro-steps, in ${precision}`, async (t) => {
    const half16 = precision === 'f16' || precision === 'bf16';
    // Products of an odd number of rows would be f32.
    const sizes = withValues(config, { precision, ...(half16 ? { vocab: 46, batch: 2 } : {}) });
    const { model, training } = sizes;
    const tokens = randomTokens(sizes);
    const state = startState(sizes);
    if (!supports(precision)) {
      t.skip(`the device has no matrix units for ${precision}`);
      return;
    }
    const trainer = createTrainer(vk, sizes, { tokens, state });
    const batch = stepBatch(tokens, flatConfig(sizes), 0);
    const half = training.batch * model.block;
    const expected = toFloat64(filled(model));
    let loss = 0;
    for (let micro = 0; micro < training.microSteps; micro++) {
      const ids = batch.subarray(micro * 2 * half, (micro * 2 + 1) * half);
      const targets = batch.subarray((micro * 2 + 1) * half, (micro * 2 + 2) * half);
      loss += forwardBackward(model, state.weights, ids, targets, expected, 1 / training.microSteps).loss / training.microSteps;
    }
    // A second pass must not see the first one's gradients.
    let measured = NaN;
    for (let pass = 0; pass < 2; pass++) {
      trainer.model.zeroGrad();
      measured = await trainer.submit('gradients', batch).item();
    }
    const found = new Map(trainer.model.namedParameters());
    for (const name of Object.keys(expected)) {
      // Device gradients are those of the sum of a micro-step's losses.
      const gradient = Float64Array.from(await /** @type {any} */ (found.get(name)).grad.toArray(), (g) => g / half);
      const error = relativeError(gradient, expected[name]);
      assert.ok(error < bound, `${name}: relative error ${error}`);
    }
    assert.ok(Math.abs(measured - loss) < bound * loss, `loss ${measured}, expected ${loss}`);
    trainer.destroy();
  });
}

test('optimizer steps: clipping, schedule, decay and moments', async () => {
  // A clip that bites in every step.
  const sizes = withValues(config, { clip: 0.5 });
  const { model, training } = sizes;
  const tokens = randomTokens(sizes);
  const state = startState(sizes);
  const trainer = createTrainer(vk, sizes, { tokens, state });
  const zeros = filled(model);
  const expected = { weights: toFloat64(state.weights), m: toFloat64(zeros), v: toFloat64(zeros), gradient: toFloat64(zeros) };
  const half = training.batch * model.block;
  const losses = [];
  for (let step = 0; step < 6; step++) {
    await trainer.step();
    const batch = stepBatch(tokens, flatConfig(sizes), step);
    for (const values of Object.values(expected.gradient)) values.fill(0);
    let loss = 0;
    for (let micro = 0; micro < training.microSteps; micro++) {
      const ids = batch.subarray(micro * 2 * half, (micro * 2 + 1) * half);
      const targets = batch.subarray((micro * 2 + 1) * half, (micro * 2 + 2) * half);
      loss += forwardBackward(model, expected.weights, ids, targets, expected.gradient, 1 / training.microSteps).loss;
    }
    losses.push(loss / training.microSteps);
    const norm = adamW(training, expected, step, learningRate(training, step));
    assert.ok(norm > training.clip, 'the clip does not bite');
  }
  await trainer.settle();
  for (const [step, loss] of losses.entries()) {
    const known = /** @type {number} */ (trainer.known.get(step));
    assert.ok(Math.abs(known - loss) < 1e-4, `loss of step ${step}: ${known}, expected ${loss}`);
  }
  for (const part of /** @type {const} */ (['weights', 'm', 'v'])) {
    const found = await trainer.read(part);
    for (const name of Object.keys(zeros)) {
      const error = relativeError(found[name], expected[part][name]);
      // AdamW's early steps divide by |g|: gradients near zero turn rounding into direction.
      assert.ok(error < 2e-3, `${part} of ${name}: relative error ${error}`);
    }
  }
  trainer.destroy();
});

/**
 * Runs some steps and gives every bit that training is.
 * @param {typeof config} sizes @param {'plain' | 'graph'} mode @param {number} steps
 * @param {import('../packages/lm/src/train/checkpoint.mjs').TrainingState} [state]
 */
async function run(sizes, mode, steps, state) {
  const trainer = createTrainer(vk, sizes, { tokens: randomTokens(sizes), mode, state });
  const first = trainer.stepsDone;
  while (trainer.stepsDone < steps) await trainer.step();
  await trainer.settle();
  const losses = Array.from({ length: steps - first }, (_, i) => trainer.known.get(first + i));
  const bits = {
    losses: new Uint32Array(Float32Array.from(/** @type {number[]} */ (losses)).buffer),
    weights: bitsOf(await trainer.read('weights')),
    m: bitsOf(await trainer.read('m')),
    v: bitsOf(await trainer.read('v')),
  };
  trainer.destroy();
  return { bits, losses };
}

test('two runs with one seed are the same bit for bit, another seed is not', async () => {
  const a = await run(config, 'graph', 8);
  assert.ok(a.losses.every((loss) => Number.isFinite(loss) && /** @type {number} */ (loss) > 0));
  assert.deepEqual((await run(config, 'graph', 8)).bits, a.bits);
  assert.notDeepEqual((await run(withValues(config, { seed: 2 }), 'graph', 8)).bits.losses, a.bits.losses);
});

test('recorded graphs and packed lists give the same bits', async () => {
  assert.deepEqual((await run(config, 'graph', 8)).bits, (await run(config, 'plain', 8)).bits);
});

test('a failed read of a loss is the run’s error', async () => {
  reset();
  let reads = 0;
  const failing = Object.assign(Object.create(vk), {
    readAsync: (/** @type {any[]} */ ...args) => (++reads === 3 ? Promise.reject(new Error('no read today')) : vk.readAsync(...args)),
  });
  const trainer = createTrainer(failing, config, { tokens: randomTokens(config) });
  const steps = async () => {
    for (let i = 0; i < 8; i++) await trainer.step();
    await trainer.settle();
  };
  await assert.rejects(steps, /no read today/);
  assert.deepEqual(
    [0, 1, 2].map((step) => trainer.known.has(step)),
    [true, true, false],
  );
  await assert.rejects(trainer.step(), /no read today/);
  trainer.destroy();
  reset();
  init({ vk });
});

for (const precision of /** @type {const} */ (['f32', 'f16', 'bf16'])) {
  test(`a resumed run goes on bit for bit in ${precision}`, async (t) => {
    const sizes = withValues(config, { precision, vocab: 46 });
    if (!supports(precision)) {
      t.skip(`the device has no matrix units for ${precision}`);
      return;
    }
    const dir = await mkdtemp(join(tmpdir(), 'helios-vk-test-'));
    t.after(() => rm(dir, { recursive: true, force: true }));
    const whole = await run(sizes, 'graph', 9);
    const trainer = createTrainer(vk, sizes, { tokens: randomTokens(sizes) });
    for (let step = 0; step < 4; step++) await trainer.step();
    await trainer.settle();
    const info = { config: sizes, tokenizer: /** @type {const} */ ({ kind: 'byte' }) };
    const path = await saveCheckpoint(dir, info, 4, (part) => trainer.read(part));
    trainer.destroy();
    const { state } = await loadCheckpoint(path);
    const rest = await run(sizes, 'graph', 9, state);
    assert.deepEqual(rest.bits.losses, whole.bits.losses.subarray(4));
    assert.deepEqual({ ...rest.bits, losses: 0 }, { ...whole.bits, losses: 0 });
  });
}

test('a checkpoint of before the state had the order of stateDict loads, and the run continues bit for bit', async (t) => {
  const path = join(await folder(t), 'step-0000004.safetensors');
  const weights = initialWeights(config.model, 1);
  const state = { step: 4, skipped: 1, weights, m: filled(config.model), v: filled(config.model) };
  // Matrices came first, and norms last.
  const shapes = Object.entries(parameterShapes(config.model)).sort(([a], [b]) => Number(isNorm(a)) - Number(isNorm(b)));
  const tensors = /** @type {const} */ (['weights', 'm', 'v']).flatMap((part, k) =>
    shapes.map(([name, shape], i) => {
      const random = new Random(31, k - 1, i);
      const values = state[part][name];
      if (part === 'm') for (let j = 0; j < values.length; j++) values[j] = 1e-3 * random.normal();
      if (part === 'v') for (let j = 0; j < values.length; j++) values[j] = 1e-6 * random.uniform();
      return { name: `${part === 'weights' ? '' : `optimizer.${part}.`}${name}`, dtype: 'F32', shape, data: () => values };
    }),
  );
  const metadata = {
    format: 'helios-vk-gpt-2',
    step: '4',
    skipped: '1',
    config:
      '{"precision":"f32","minLr":0.0003,"weightDecay":0.1,"beta1":0.9,"beta2":0.95,"epsilon":1e-8,"clip":1,"seed":1,"layers":2,' +
      '"width":96,"heads":3,"hidden":76,"block":19,"vocab":45,"batch":3,"microSteps":2,"lr":0.003,"warmup":4,"steps":20}',
    tokenizer: '{"kind":"byte"}',
    run: 'old',
  };
  await writeTensors(path, tensors, metadata, { checksum: true });
  // Of the file that the code of commit 80282fb wrote from this state.
  const sha256 = createHash('sha256')
    .update(await readFile(path))
    .digest('hex');
  assert.equal(sha256, 'f9e6a78c7092c540e9b86d83f3159002b7aefcf5e534b4bd8d8d9804826163f2');
  const loaded = await loadCheckpoint(path);
  assert.deepEqual(loaded, { path, step: 4, config, tokenizer: { kind: 'byte' }, data: undefined, run: 'old', state });
  assert.deepEqual((await run(config, 'graph', 8, loaded.state)).bits, (await run(config, 'graph', 8, state)).bits);
});

test('a step that the optimizer skips takes a batch and nothing else, and a resumed run counts on', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'helios-vk-test-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const trainer = createTrainer(vk, config, { tokens: randomTokens(config) });
  const scale = trainer.opt.gradientScale;
  const held = () => Promise.all(/** @type {const} */ (['weights', 'm', 'v']).map((part) => trainer.read(part)));
  await trainer.step();
  const before = await held();
  // The norm is above what f32 holds.
  trainer.opt.gradientScale = 3e38;
  for (let i = 0; i < 2; i++) await trainer.step();
  assert.deepEqual(await held(), before);
  trainer.opt.gradientScale = scale;
  await trainer.step();
  await trainer.settle();
  assert.equal(await trainer.opt.skippedSteps(), 2);
  const info = { config, tokenizer: /** @type {const} */ ({ kind: 'byte' }) };
  const path = await saveCheckpoint(dir, info, 4, (part) => trainer.read(part), 2);
  for (let i = 0; i < 3; i++) await trainer.step();
  await trainer.settle();
  const whole = await held();
  trainer.destroy();
  const { state } = await loadCheckpoint(path);
  assert.deepEqual([state.step, state.skipped], [4, 2]);
  const { bits } = await run(config, 'graph', 7, state);
  assert.deepEqual([bits.weights, bits.m, bits.v], whole.map(bitsOf));
  // As of a file that does not say: two steps more are behind the schedule and the bias correction.
  const { bits: other } = await run(config, 'graph', 7, { ...state, skipped: 0 });
  assert.notDeepEqual(other.weights, bits.weights);
});

for (const precision of /** @type {const} */ (['f32', 'bf16'])) {
  test(`a trainer that is destroyed leaves no buffer behind, in ${precision}`, async (t) => {
    const sizes = withValues(config, { precision, vocab: 46 });
    if (!supports(precision)) {
      t.skip(`the device has no matrix units for ${precision}`);
      return;
    }
    const live = () => vk.memoryStats().live;
    let before = live();
    // Workspaces of products are helios-vk/nn's own and stay: there are all of them after the first trainer.
    for (const mode of /** @type {const} */ (['graph', 'graph', 'plain'])) {
      const trainer = createTrainer(vk, sizes, { tokens: randomTokens(sizes), validation: randomTokens(sizes), mode });
      await trainer.step();
      await trainer.validate();
      await trainer.generator.nextLogits([1, 2, 3]);
      const used = live();
      trainer.destroy();
      const after = live();
      assert.ok(after.buffers < used.buffers - 20 && after.bytes < used.bytes);
      if (mode === 'plain') assert.deepEqual(after, before);
      before = after;
    }
  });
}

const LOST = 'ERR_HELIOS_DEVICE_LOST';

/**
 * The addon, as on a device that is lost in the named calls: each in the n-th one after the loss before it.
 * @param {...[call: string, nth: number]} losses
 * @returns {any}
 */
function losing(...losses) {
  const left = losses.map(([call, nth]) => ({ call, nth }));
  const calls = new Set(losses.map(([call]) => call));
  const wrapped = [...calls].map((call) => [
    call,
    (/** @type {any[]} */ ...args) => {
      if (left[0]?.call === call && --left[0].nth === 0) {
        left.shift();
        throw Object.assign(new Error(`lost in ${call}`), { code: LOST });
      }
      return vk[call](...args);
    },
  ]);
  return Object.assign(Object.create(vk), Object.fromEntries(wrapped));
}

/** Ten steps, each of them one packed list. */
const tenSteps = withValues(config, { steps: 10 });

/** Lists that are submitted before the first step. */
function listsBefore() {
  reset();
  let lists = 0;
  const counting = Object.assign(Object.create(vk), {
    batchExecuteAll: (/** @type {any[]} */ ...args) => {
      lists++;
      return vk.batchExecuteAll(...args);
    },
  });
  createTrainer(counting, tenSteps, { tokens: randomTokens(tenSteps), mode: 'plain' }).destroy();
  return lists;
}

/** @param {Partial<import('../packages/lm/src/train/run.mjs').RunOptions>} options */
async function train(options) {
  // Another native module in place of the one before.
  reset();
  const tokens = randomTokens(tenSteps);
  /** @type {string[]} */
  const notes = [];
  const { trainer, losses, ...rest } = await runTraining({
    vk,
    config: tenSteps,
    tokenizer: { kind: 'byte' },
    data: dataInfo({ name: 'random' }, tokens),
    tokens,
    mode: 'plain',
    checkpointEvery: 4,
    note: (line) => notes.push(line),
    ...options,
  });
  trainer.destroy();
  return { losses: [...losses].sort(([a], [b]) => a - b), notes: notes.join('\n'), ...rest };
}

/** @param {import('node:test').TestContext} t */
async function folder(t) {
  const path = await mkdtemp(join(tmpdir(), 'helios-vk-test-'));
  t.after(() => rm(path, { recursive: true, force: true }));
  return path;
}

test('after a lost device a run goes on from its own last checkpoint, whatever else the folder holds', async (t) => {
  const [dir, undisturbed] = [await folder(t), await folder(t)];
  const lists = listsBefore();
  const { losses, rates } = await train({ checkpoints: undisturbed });
  assert.equal(losses.length, 10);
  // Of ten steps three do not count, nor do those that follow the checkpoints of steps 4 and 8.
  assert.equal(rates.length, 5);

  const other = withValues(tenSteps, { seed: 7, steps: 200 });
  const info = { config: other, tokenizer: /** @type {const} */ ({ kind: 'byte' }) };
  const stale = await saveCheckpoint(dir, info, 99, () => filled(other.model));
  const lost = await train({ vk: losing(['batchExecuteAll', lists + 6]), checkpoints: dir });
  assert.match(lost.notes, /device lost \(lost in batchExecuteAll\); continuing from .*step-0000004\.safetensors/);
  assert.equal(lost.restarts, 1);
  assert.deepEqual(lost.losses, losses);

  // Before its first checkpoint a run has nothing to go on from …
  await assert.rejects(train({ vk: losing(['batchExecuteAll', lists + 2]), checkpoints: dir }), { code: LOST });
  // … but the one that it was resumed from.
  const resumed = await loadCheckpoint(checkpointPath(undisturbed, 4));
  const second = await train({ vk: losing(['batchExecuteAll', lists + 2]), checkpoints: dir, resumed });
  assert.match(second.notes, /continuing from .*step-0000004/);
  assert.ok(second.notes.includes(`continuing from ${resumed.path}`));
  assert.deepEqual(second.losses, losses.slice(4));

  // Another run that writes to the same folder may take the place of a checkpoint.
  const note = (/** @type {string} */ line) => {
    if (line.startsWith('checkpoint ')) copyFileSync(stale, line.slice('checkpoint '.length));
  };
  const replaced = train({ vk: losing(['batchExecuteAll', lists + 6]), checkpoints: dir, note });
  await assert.rejects(replaced, /cannot continue from .*step-0000004.*: it is not what this run saved there; its step/);
});

test('a run whose learning rate would rise to its end is an error before its first step', async (t) => {
  const dir = await folder(t);
  const wrong = train({
    config: withValues(tenSteps, { lr: 1e-3, minLr: 1 }),
    checkpoints: join(dir, 'none'),
    note: () => assert.fail('a step'),
  });
  await assert.rejects(wrong, { name: 'RangeError', message: 'minLr must be at most lr, 0.001, got 1' });
  assert.deepEqual(await readdir(dir), []);
});

test('a device that is lost again while a run recovers counts as one loss more', async (t) => {
  const dir = await folder(t);
  const { losses } = await train({});
  const thrice = /** @type {[string, number][]} */ ([
    ['batchExecuteAll', listsBefore() + 6],
    ['initDevice', 1],
    ['createBuffer', 5],
  ]);
  const recovered = await train({ vk: losing(...thrice), checkpoints: dir });
  assert.equal(recovered.restarts, 3);
  assert.deepEqual(recovered.losses, losses);
  for (const [call] of thrice) assert.ok(recovered.notes.includes(`(lost in ${call}); continuing from`), call);
  await assert.rejects(train({ vk: losing(...thrice, ['uploadAsync', 1]), checkpoints: dir }), {
    code: LOST,
    message: 'lost in uploadAsync',
  });
  reset();
});

test('logits for sampling are those of the reference, and do not disturb training', async () => {
  const tokens = randomTokens(config);
  const state = startState(config);
  const trainer = createTrainer(vk, config, { tokens, state });
  const { generator, destroy } = loadGenerator(vk, config.model, state.weights, 'f32');
  const { block, vocab } = config.model;
  for (const length of [1, 7, block]) {
    const context = tokens.subarray(30, 30 + length);
    const ids = new Uint32Array(block);
    ids.set(context);
    const { logits } = forwardBackward(config.model, state.weights, ids, ids);
    const expected = logits.subarray((length - 1) * vocab, length * vocab);
    const found = await trainer.generator.nextLogits(context);
    assert.deepEqual(await generator.nextLogits(context), found, 'of the weights alone: the same bits');
    const error = relativeError(found, expected);
    assert.ok(error < 1e-5, `${length} tokens: relative error ${error}`);
  }
  destroy();
  await assert.rejects(trainer.generator.nextLogits([]), /1 to 19 tokens/);
  const undisturbed = createTrainer(vk, config, { tokens, state });
  for (const each of [trainer, undisturbed]) {
    await each.step();
    await each.settle();
  }
  assert.deepEqual(await trainer.read('weights'), await undisturbed.read('weights'));
  trainer.destroy();
  undisturbed.destroy();
});

test('samples are repeatable and start with the prompt', async () => {
  const sizes = withValues(config, { vocab: 256 });
  const tokenizer = await trainTokenizer('', 256);
  const trainer = createTrainer(vk, sizes, { tokens: randomTokens(sizes) });
  const text = await sample(trainer.generator, tokenizer, 'Call me', { tokens: 5, seed: 3 });
  assert.ok(text.startsWith('Call me'));
  assert.equal(await sample(trainer.generator, tokenizer, 'Call me', { tokens: 5, seed: 3 }), text);
  trainer.destroy();
});

test('data that the vocabulary does not hold is refused', () => {
  const tokens = Uint32Array.of(0, config.model.vocab);
  assert.throws(() => createTrainer(vk, config, { tokens }), /token 45; vocab is 45/);
});

/** @param {...string} options */
const cli = (...options) => execute(process.execPath, [script, ...options]);

const small = [
  '--preset',
  'gpt-tiny',
  '--layers',
  '1',
  '--width',
  '32',
  '--heads',
  '1',
  '--hidden',
  '64',
  '--block',
  '16',
  '--sample-tokens',
  '4',
];

test('train.mjs: learns, writes results and a checkpoint, and resumes to the same losses', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'helios-vk-test-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const data = join(dir, 'text.txt');
  await writeFile(data, 'the quick brown fox jumps over the lazy dog. '.repeat(200));
  const json = join(dir, 'a.json');
  const common = [...small, '--data', data, '--quiet'];
  const checkpoints = ['--checkpoint', dir, '--checkpoint-every', '20'];
  const report = join(dir, 'a.html');
  await cli(...common, '--steps', '40', '--json', json, '--report', report, '--kernel-times', '--peak', ...checkpoints);
  const result = JSON.parse(await readFile(json, 'utf8'));
  assert.equal(result.losses.length, 40);
  assert.ok(Math.abs(result.losses[0] - Math.log(256)) < 0.5, `first loss ${result.losses[0]}`);
  assert.ok(result.finalLoss < result.losses[0] - 1, `final loss ${result.finalLoss}`);
  assert.ok(result.tokensPerSecond.median > 0);
  const times = /** @type {{ count: number, microseconds: number }[]} */ (result.kernelTimes);
  assert.equal(
    times.reduce((sum, { count }) => sum + count, 0),
    result.dispatchesPerStep,
  );
  assert.ok(times.every(({ microseconds }) => microseconds >= 0) && times[0].microseconds > 0);
  assert.ok(result.matrixRate > 0 && result.matrixShare > 0);
  const page = await readFile(report, 'utf8');
  assert.ok(page.startsWith('<!doctype html>') && page.endsWith('</html>\n'));
  assert.equal(page.match(/<svg/g)?.length, 2);
  for (const part of [
    `<b>${result.finalLoss.toFixed(4)}</b>`,
    `${data}, 9,000 tokens`,
    '<td>dispatches a step</td>',
    '<td>adamw (model.mjs:',
    '<td>width</td><td>32</td>',
    'the quick brown fox jumps over the lazy ',
  ]) {
    assert.ok(page.includes(part), part);
  }
  assert.doesNotMatch(page, /NaN|undefined|Infinity/);

  // Resumed on the same text without being told which.
  const again = join(dir, 'b.json');
  const checkpoint = join(dir, 'step-0000020.safetensors');
  const resume = ['--resume', checkpoint, '--quiet', '--json', again, '--sample-tokens', '0'];
  await cli(...resume);
  const resumed = JSON.parse(await readFile(again, 'utf8'));
  assert.equal(resumed.firstStep, 20);
  assert.deepEqual(resumed.losses, result.losses.slice(20));

  // Another text is refused; the same one may lie elsewhere.
  const [other, moved] = [join(dir, 'other.txt'), join(dir, 'moved.txt')];
  await writeFile(other, 'pack my box with five dozen liquor jugs. '.repeat(200));
  await assert.rejects(cli(...resume, '--data', other), (/** @type {any} */ error) => {
    const expected = `the checkpoint was trained on ${data} (9000 tokens, SHA-256 `;
    assert.ok(error.stderr.includes(expected) && error.stderr.includes(`not on ${other} (8200 tokens`), error.stderr);
    return true;
  });
  await rename(data, moved);
  await assert.rejects(cli(...resume), /text that the checkpoint was trained on: ENOENT.*text\.txt.*pass --data FILE/);
  await cli(...resume, '--data', moved, '--steps', '21');
  // A checkpoint of before, which does not say, takes what it is given.
  const { state, data: trained, ...silent } = await loadCheckpoint(checkpoint);
  assert.equal(trained?.file, data);
  await saveCheckpoint(dir, silent, 20, (part) => state[part]);
  assert.equal((await loadCheckpoint(checkpoint)).data, undefined);
  await cli(...resume, '--data', other, '--steps', '21');
});

for (const [mode, losses, restarts] of /** @type {const} */ ([
  // The second device is lost while the run recovers, or in its first steps.
  ['graph', '65,2', 2],
  ['plain', '65,50', 2],
])) {
  test(`a run that loses its device goes on from its checkpoint (${mode}), with the losses of an undisturbed run`, async (t) => {
    const dir = await mkdtemp(join(tmpdir(), 'helios-vk-test-'));
    t.after(() => rm(dir, { recursive: true, force: true }));
    const data = join(dir, 'text.txt');
    await writeFile(data, 'peter piper picked a peck of pickled peppers. '.repeat(100));
    const run = async (/** @type {string} */ name, /** @type {string[]} */ options, environment = {}) => {
      const json = join(dir, `${name}.json`);
      const { stderr } = await execute(
        process.execPath,
        [script, ...small, '--data', data, '--mode', mode, '--steps', '14', '--json', json, ...options],
        { env: { ...process.env, ...environment } },
      );
      return { stderr, result: JSON.parse(await readFile(json, 'utf8')) };
    };
    const { result: undisturbed } = await run('undisturbed', []);
    assert.equal(undisturbed.restarts, 0);
    const lose = { HELIOS_TEST_LOSE_DEVICE: losses, HELIOS_REPORT_DIR: dir };
    const checkpoints = ['--checkpoint', dir, '--checkpoint-every', '4'];
    const { result, stderr } = await run('lost', checkpoints, lose);
    assert.equal(result.restarts, restarts, stderr);
    assert.match(stderr, /device lost .*HELIOS_TEST_LOSE_DEVICE.*continuing from .*step-00000(04|08|12)/);
    assert.match(stderr, /report: .*helios-report-/);
    assert.equal(result.losses.length, 14);
    assert.deepEqual(result.losses, undisturbed.losses);
    assert.equal(result.sample, undisturbed.sample);
    // Without checkpoints the error ends the run.
    await assert.rejects(run('alone', [], { ...lose, HELIOS_TEST_LOSE_DEVICE: '30' }), (/** @type {any} */ error) => {
      assert.match(error.stderr, /the device was lost/);
      return true;
    });
  });
}

test('train.mjs: dumps the batches and the weights that a run starts from', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'helios-vk-test-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const [data, dump, weights] = ['text.txt', 'batches.safetensors', 'weights.safetensors'].map((name) => join(dir, name));
  const text = 'she sells sea shells on the sea shore. '.repeat(50);
  await writeFile(data, text);
  await cli(
    ...[...small, '--data', data, '--quiet', '--steps', '3', '--micro-steps', '2', '--seed', '5'],
    ...['--dump-batches', dump, '--dump-weights', weights, '--checkpoint', dir, '--checkpoint-at-start'],
  );
  const { config: used, state } = await loadCheckpoint(join(dir, 'step-0000000.safetensors'));
  assert.deepEqual(state.weights, initialWeights(used.model, used.training.seed));
  assert.deepEqual([state.m, state.v], [filled(used.model), filled(used.model)]);
  const alone = await openTensors(weights);
  assert.deepEqual([...alone.tensors.keys()].sort(), Object.keys(state.weights).sort());
  for (const [name, shape] of Object.entries(parameterShapes(used.model))) {
    const values = new Float32Array(state.weights[name].length);
    expectTensor(weights, alone, name, 'F32', shape);
    await alone.read(name, values);
    assert.deepEqual(values, state.weights[name], name);
  }
  await alone.close();
  const file = await openTensors(dump);
  const flat = flatConfig(used);
  const { steps, microSteps, batch, block } = flat;
  const all = new Uint32Array(steps * microSteps * 2 * batch * block);
  expectTensor(dump, file, 'batches', 'I32', [steps, microSteps, 2, batch, block]);
  await file.read('batches', all);
  await file.close();
  assert.deepEqual(JSON.parse(file.metadata.config), flat);
  const tokens = Uint32Array.from(Buffer.from(text));
  for (let step = 0; step < steps; step++) {
    const size = all.length / steps;
    assert.deepEqual(all.subarray(step * size, (step + 1) * size), stepBatch(tokens, flat, step));
  }
});

test('train.mjs: bad options end with an error that names them', async () => {
  for (const [options, message] of /** @type {[string[], RegExp][]} */ ([
    [['--preset', 'huge'], /--preset huge: must be one of gpt-tiny, gpt-30m, gpt-300m, tiny, small, mission/],
    [['--layers', 'two'], /--layers two: must be an integer from 1 to 4096/],
    [['--width', '30', '--heads', '4'], /width 30 is not a multiple of heads 4/],
    [['--nonsense'], /--nonsense/],
    [['--checkpoint-every', '5'], /needs --checkpoint/],
    [['--data', '/nonexistent.txt'], /nonexistent/],
  ])) {
    await assert.rejects(cli(...options), (/** @type {any} */ error) => {
      assert.ok(error.code === 1 || error.code === 2);
      assert.match(error.stderr, message);
      assert.doesNotMatch(error.stderr, /\n {4}at /);
      return true;
    });
  }
});
