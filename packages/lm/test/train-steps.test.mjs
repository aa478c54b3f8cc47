// The trainer on the device: gradients, optimizer, schedules and evaluation against the float64 reference; repeatability; memory.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, test } from 'node:test';
import { STATE, createKernels } from 'helios-vk/kernels';
import { init, reset } from 'helios-vk/nn';

import {
  bitsOf,
  bitsOfState,
  filled,
  randomTokens,
  randomWeights,
  readPart,
  relativeError,
  toFloat64,
  windowsOf,
} from '../../../__test__/lib/gpt.mjs';
import { adamW, forwardBackward } from '../../../__test__/lib/gpt-reference.mjs';
import { collectGarbage } from '../../../__test__/nn/setup.mjs';
import { parameterCount } from '../src/model/parts.mjs';
import { Generator } from '../src/train/generator.mjs';
import { SCHEDULERS, checkRun, configOf, learningRateAt } from '../src/train/settings.mjs';
import { Trainer } from '../src/train/trainer.mjs';

/** @typedef {import('../src/train/settings.mjs').RunConfig} RunConfig */
/** @typedef {import('../src/train/settings.mjs').Precision} Precision */

const vk = createRequire(import.meta.url)('helios-vk');
vk.initDevice();
after(() => {
  reset();
  vk.destroy();
});

/** @param {Precision} precision */
const supports = (precision) => createKernels(vk).matmulSupports(precision);

/**
 * A run of sizes that are no multiple of any tile.
 * @param {Partial<import('../src/train/settings.mjs').Settings & import('../src/train/settings.mjs').Sizes>} [values]
 */
const runOf = (values) =>
  checkRun(
    configOf('gpt-tiny', {
      ...{ layers: 2, width: 96, heads: 3, hidden: 76, blockSize: 19, vocabSize: 45 },
      ...{ batchSize: 3, gradientAccumulationSteps: 2, maxSteps: 20, warmupSteps: 4 },
      ...values,
    }),
  );
const usual = runOf();

/** @param {RunConfig} config @param {number} [count] @param {number} [seed] */
const dataOf = ({ model, settings }, count = 500, seed = 21) => windowsOf(randomTokens(count, model.vocabSize, seed), settings.blockSize);

/**
 * A trainer whose weights are not small.
 * @param {RunConfig} config @param {Partial<import('../src/train/trainer.mjs').TrainerOptions>} [options]
 */
function trainerOf(config, options) {
  const trainer = new Trainer(vk, config, { data: dataOf(config), ...options });
  const weights = randomWeights(config.model, 22);
  trainer.load({ step: 0, weights });
  return { trainer, weights };
}

/**
 * The reference's mean loss of a step, and its gradient added to `gradient`.
 * @param {RunConfig} config @param {Record<string, ArrayLike<number>>} weights @param {Uint32Array} batch [microSteps, 2, batch, block]
 * @param {Record<string, Float64Array>} gradient
 */
function referenceStep({ model, settings }, weights, batch, gradient) {
  const { gradientAccumulationSteps: micro, batchSize, blockSize } = settings;
  const half = batchSize * blockSize;
  let loss = 0;
  for (let i = 0; i < micro; i++) {
    const [ids, targets] = [2 * i, 2 * i + 1].map((at) => batch.subarray(at * half, (at + 1) * half));
    loss += forwardBackward(model, weights, ids, targets, gradient, 1 / micro, blockSize).loss / micro;
  }
  return loss;
}

// Bounds: rounding every operand of the float64 reference to bf16 gives gradients that are off by 1e-2, and to f16
// by 1.2e-3; devices that truncate instead of rounding, and attention's own operands, come on top.
for (const [precision, bound] of /** @type {const} */ ([
  ['f32', 1e-5],
  ['bf16x3', 1e-4],
  ['f16', 4e-3],
  ['bf16', 2.5e-2],
])) {
  for (const gradCheckpoint of [false, true]) {
    test(`the gradient of every parameter, summed over micro-steps, in ${precision}${gradCheckpoint ? ', each layer computed twice' : ''}`, async (t) => {
      if (!supports(precision)) return t.skip(`the device has no matrix units for ${precision}`);
      const half16 = precision === 'f16' || precision === 'bf16';
      // Products of an odd number of rows would be f32.
      const config = runOf({ precision, gradCheckpoint, ...(half16 ? { vocabSize: 46, batchSize: 2 } : {}) });
      const { trainer, weights } = trainerOf(config);
      const batch = trainer.batchOf(0);
      const expected = toFloat64(filled(config.model));
      const loss = referenceStep(config, weights, batch, expected);
      // A second pass must not see the first one's gradients.
      let measured = NaN;
      for (let pass = 0; pass < 2; pass++) {
        trainer.model.zeroGrad();
        measured = await trainer.submit('gradients', batch).item();
      }
      const found = new Map(trainer.model.namedParameters());
      assert.deepEqual([...found.keys()].sort(), Object.keys(expected).sort());
      const tokens = config.settings.batchSize * config.settings.blockSize;
      for (const name of Object.keys(expected)) {
        // Device gradients are those of the sum of a micro-step's losses.
        const gradient = Float64Array.from(await /** @type {any} */ (found.get(name)).grad.toArray(), (g) => g / tokens);
        const error = relativeError(gradient, expected[name]);
        assert.ok(error < bound, `${name}: relative error ${error}`);
      }
      assert.ok(Math.abs(measured - loss) < bound * loss, `loss ${measured}, expected ${loss}`);
      trainer.destroy();
    });
  }
}

test('gradients are the same bits whether a layer is computed once or twice', async () => {
  const state = async (/** @type {boolean} */ gradCheckpoint) => {
    const { trainer } = trainerOf(runOf({ gradCheckpoint }));
    for (let i = 0; i < 3; i++) await trainer.step();
    await trainer.settle();
    const found = { bits: await bitsOfState(trainer), losses: [...trainer.known.values()], dispatches: trainer.dispatches };
    trainer.destroy();
    return found;
  };
  const [kept, again] = [await state(false), await state(true)];
  assert.ok(again.dispatches > kept.dispatches, 'it computes more');
  assert.deepEqual({ ...again, dispatches: 0 }, { ...kept, dispatches: 0 });
});

for (const lrScheduler of SCHEDULERS) {
  test(`optimizer steps: clipping, decay, moments and the schedule ${lrScheduler}`, async () => {
    // A clip that bites in every step; the rate falls within the six steps.
    const config = runOf({ lrScheduler, maxGradNorm: 0.5, warmupSteps: 2, maxSteps: 6, learningRate: 3e-3, minLr: 3e-4 });
    const { model, settings } = config;
    const { trainer, weights } = trainerOf(config);
    const zeros = filled(model);
    const expected = { weights: toFloat64(weights), m: toFloat64(zeros), v: toFloat64(zeros), gradient: toFloat64(zeros) };
    const losses = [];
    for (let step = 0; step < 6; step++) {
      await trainer.step();
      const batch = trainer.batchOf(step);
      for (const values of Object.values(expected.gradient)) values.fill(0);
      losses.push(referenceStep(config, expected.weights, batch, expected.gradient));
      const norm = adamW(settings, expected, step, learningRateAt(settings, step));
      assert.ok(norm > settings.maxGradNorm, 'the clip does not bite');
      if (step === 0) {
        await trainer.settle();
        const found = /** @type {number} */ (trainer.norms.get(0));
        assert.ok(Math.abs(found - norm) < 1e-5 * norm, `norm ${found}, expected ${norm}`);
      }
      // The device's own rate, in the state of each group of parameters.
      const rate = learningRateAt(settings, step);
      for (const { state } of trainer.opt.groups) {
        const words = /** @type {Uint32Array} */ (await state.toArray());
        const found = new Float32Array(words.buffer, words.byteOffset, words.length)[STATE.rate];
        assert.ok(Math.abs(found - rate) < 1e-6 * rate, `rate of step ${step}: ${found}, expected ${rate}`);
      }
    }
    await trainer.settle();
    for (const [step, loss] of losses.entries()) {
      const known = /** @type {number} */ (trainer.known.get(step));
      assert.ok(Math.abs(known - loss) < 1e-4, `loss of step ${step}: ${known}, expected ${loss}`);
    }
    for (const part of /** @type {const} */ (['weights', 'm', 'v'])) {
      const found = await readPart(trainer, part);
      for (const name of Object.keys(zeros)) {
        const error = relativeError(found[name], expected[part][name]);
        // AdamW's early steps divide by |g|: gradients near zero turn rounding into direction.
        assert.ok(error < 2e-3, `${part} of ${name}: relative error ${error}`);
      }
    }
    trainer.destroy();
  });
}

/**
 * Runs some steps and gives every bit that training is.
 * @param {RunConfig} config @param {'plain' | 'graph'} mode @param {number} steps
 * @param {import('../src/train/trainer.mjs').State} [state]
 */
async function run(config, mode, steps, state) {
  const trainer = new Trainer(vk, config, { data: dataOf(config), mode });
  if (state) trainer.load(state);
  const first = trainer.stepsDone;
  while (trainer.stepsDone < steps) await trainer.step();
  await trainer.settle();
  const losses = Array.from({ length: steps - first }, (_, i) => /** @type {number} */ (trainer.known.get(first + i)));
  const { weights, m, v } = await bitsOfState(trainer);
  const bits = { losses: new Uint32Array(Float32Array.from(losses).buffer), weights, m, v };
  trainer.destroy();
  return { bits, losses };
}

test('two runs with one seed are the same bit for bit, another seed is not', async () => {
  const a = await run(usual, 'graph', 8);
  assert.ok(a.losses.every((loss) => Number.isFinite(loss) && loss > 0));
  assert.ok(Math.abs(a.losses[0] - Math.log(45)) < 0.1, 'a new model knows nothing');
  assert.deepEqual((await run(usual, 'graph', 8)).bits, a.bits);
  assert.notDeepEqual((await run(runOf({ seed: 2 }), 'graph', 8)).bits.losses, a.bits.losses);
});

for (const lrScheduler of /** @type {const} */ (['cosine', 'linear'])) {
  test(`recorded graphs and packed lists give the same bits, also of steps in flight (${lrScheduler})`, async () => {
    const config = runOf({ lrScheduler });
    assert.deepEqual((await run(config, 'graph', 8)).bits, (await run(config, 'plain', 8)).bits);
  });
}

for (const precision of /** @type {const} */ (['f32', 'bf16x3', 'f16', 'bf16'])) {
  test(`a run goes on bit for bit from its state in ${precision}`, async (t) => {
    if (!supports(precision)) return t.skip(`the device has no matrix units for ${precision}`);
    const config = runOf({ precision, vocabSize: 46 });
    const whole = await run(config, 'graph', 9);
    const trainer = new Trainer(vk, config, { data: dataOf(config) });
    for (let step = 0; step < 4; step++) await trainer.step();
    await trainer.settle();
    const [weights, m, v] = await Promise.all(/** @type {const} */ (['weights', 'm', 'v']).map((part) => readPart(trainer, part)));
    trainer.destroy();
    const rest = await run(config, 'graph', 9, { step: 4, weights, m, v });
    assert.deepEqual(rest.bits.losses, whole.bits.losses.subarray(4));
    assert.deepEqual({ ...rest.bits, losses: 0 }, { ...whole.bits, losses: 0 });
  });
}

test('a failed read of a loss is the run’s error', async () => {
  reset();
  let reads = 0;
  vk.initDevice();
  const failing = Object.assign(Object.create(vk), {
    readAsync: (/** @type {any[]} */ ...args) => (++reads === 3 ? Promise.reject(new Error('no read today')) : vk.readAsync(...args)),
  });
  // Without clipping no norms are read.
  const config = runOf({ maxGradNorm: 0 });
  const trainer = new Trainer(failing, config, { data: dataOf(config) });
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
  vk.initDevice();
  init({ vk });
});

test('a step that the optimizer skips takes a batch and nothing else, and a continued run counts on', async () => {
  const { trainer } = trainerOf(usual);
  const scale = trainer.opt.gradientScale;
  const held = () => Promise.all(/** @type {const} */ (['weights', 'm', 'v']).map((part) => readPart(trainer, part)));
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
  const [weights, m, v] = await held();
  for (let i = 0; i < 3; i++) await trainer.step();
  await trainer.settle();
  const whole = await held();
  trainer.destroy();
  const state = { step: 4, skipped: 2, weights, m, v };
  const { bits } = await run(usual, 'graph', 7, state);
  assert.deepEqual([bits.weights, bits.m, bits.v], whole.map(bitsOf));
  // As of a file that does not say: two steps more are behind the schedule and the bias correction.
  const { bits: other } = await run(usual, 'graph', 7, { ...state, skipped: 0 });
  assert.notDeepEqual(other.weights, bits.weights);
});

test('a loss that is not finite is an error that names its step, and no step follows', async () => {
  const { trainer, weights } = trainerOf(usual);
  weights['norm.weight'].fill(NaN);
  trainer.load({ step: 2, weights });
  await trainer.step();
  const message = /^the loss of step 3 is NaN: the run has diverged; a lower learning rate or a longer warm-up may keep it finite$/;
  await assert.rejects(trainer.settle(), { message });
  await assert.rejects(trainer.step(), { message });
  trainer.destroy();
});

for (const precision of /** @type {const} */ (['f32', 'bf16'])) {
  test(`a trainer that is destroyed leaves no buffer behind, in ${precision}`, async (t) => {
    if (!supports(precision)) return t.skip(`the device has no matrix units for ${precision}`);
    const config = runOf({ precision, vocabSize: 46 });
    const live = () => vk.memoryStats().live;
    let before = live();
    // Workspaces of products are helios-vk/nn's own and stay: there are all of them after the first trainer.
    for (const mode of /** @type {const} */ (['graph', 'graph', 'plain'])) {
      const trainer = new Trainer(vk, config, { data: dataOf(config), validation: dataOf(config), mode });
      await trainer.step();
      await trainer.validate();
      const generator = new Generator(trainer.model, precision, { graph: mode === 'graph' });
      await generator.nextLogits([1, 2, 3]);
      const used = live();
      generator.dispose();
      trainer.destroy();
      const after = live();
      assert.ok(after.buffers < used.buffers - 20 && after.bytes < used.bytes);
      if (mode === 'plain') assert.deepEqual(after, before);
      before = after;
    }
  });
}

for (const mode of /** @type {const} */ (['graph', 'plain'])) {
  // 7 windows are two whole batches and a third of one.
  test(`the loss on held-out windows is the reference's, and training goes on undisturbed (${mode})`, async () => {
    const config = runOf({ layers: 1, width: 64, heads: 2 });
    const validation = dataOf(config, 7 * config.settings.blockSize + 1, 3);
    const { trainer, weights } = trainerOf(config, { validation, mode });
    assert.deepEqual(trainer.validationWindows(), [0, 1, 2, 3, 4, 5, 6]);
    let expected = 0;
    for (let i = 0; i < 7; i++) {
      const window = validation.window(i);
      expected += forwardBackward(config.model, weights, window.subarray(0, -1), window.subarray(1)).loss / 7;
    }
    const loss = Number(await trainer.validate());
    assert.ok(Math.abs(loss - expected) < 1e-5, `${loss}, ${expected} expected`);
    const { trainer: undisturbed } = trainerOf(config, { mode });
    for (let i = 0; i < 3; i++) {
      await trainer.step();
      await undisturbed.step();
      assert.notEqual(await trainer.validate(), loss, 'it is of the weights as they are');
    }
    for (const each of [trainer, undisturbed]) await each.settle();
    assert.deepEqual(trainer.known, undisturbed.known);
    assert.deepEqual(await readPart(trainer, 'weights'), await readPart(undisturbed, 'weights'));
    await assert.rejects(undisturbed.validate(), /without validation windows/);
    trainer.destroy();
    undisturbed.destroy();
  });
}

test('held-out windows are spread over all that there are, and are at most so many batches', () => {
  const config = runOf();
  const windows = (/** @type {number} */ count, /** @type {number} */ evalBatches) => {
    const validation = dataOf(config, count * config.settings.blockSize + 1, 3);
    const trainer = new Trainer(vk, config, { data: dataOf(config), validation, evalBatches });
    const found = trainer.validationWindows();
    trainer.destroy();
    return found;
  };
  assert.deepEqual(windows(10, 2), [0, 1, 3, 5, 6, 8]);
  assert.deepEqual(windows(2, 2), [0, 1]);
});

test('logits for sampling are those of the reference, and do not disturb training', async () => {
  const { blockSize: block } = usual.settings;
  const { vocabSize } = usual.model;
  const tokens = randomTokens(500, vocabSize);
  const { trainer, weights } = trainerOf(usual);
  const generator = new Generator(trainer.model, 'f32');
  for (const length of [1, 7, block]) {
    const context = tokens.subarray(30, 30 + length);
    const ids = new Uint32Array(block);
    ids.set(context);
    const { logits } = forwardBackward(usual.model, weights, ids, ids);
    const expected = logits.subarray((length - 1) * vocabSize, length * vocabSize);
    const error = relativeError(await generator.nextLogits(context), expected);
    assert.ok(error < 1e-5, `${length} tokens: relative error ${error}`);
  }
  for (const wrong of [[], new Uint32Array(block + 1)]) await assert.rejects(generator.nextLogits(wrong), /1 to 19 tokens/);
  const { trainer: undisturbed } = trainerOf(usual);
  for (const each of [trainer, undisturbed]) {
    await each.step();
    await each.settle();
  }
  assert.deepEqual(await readPart(trainer, 'weights'), await readPart(undisturbed, 'weights'));
  generator.dispose();
  trainer.destroy();
  undisturbed.destroy();
});

test('generating takes the weights alone: no memory for moments or gradients', async () => {
  // Weights that outweigh what a pass computes with.
  const config = runOf({ layers: 2, width: 128, heads: 2, hidden: 512, blockSize: 8, vocabSize: 512, batchSize: 1 });
  const bytes = 4 * parameterCount(config.model);
  const live = () => vk.memoryStats().live.bytes;
  // What earlier tests left would be freed between the counts.
  await collectGarbage();
  const before = live();
  const trainer = new Trainer(vk, config, { data: dataOf(config) });
  // A trainer, before its first step, has the moments too.
  assert.ok(live() - before >= 3 * bytes, `${live() - before} bytes`);
  const { model } = trainer;
  for (const compiled of Object.values(trainer.functions)) compiled.dispose();
  trainer.opt.dispose();
  const generator = new Generator(model, 'f32');
  await generator.nextLogits([1, 2, 3]);
  const used = live() - before;
  assert.ok(used >= bytes && used < 1.25 * bytes, `${used} bytes for weights of ${bytes}`);
  generator.dispose();
  model.dispose();
});

test('what a trainer cannot do is refused', () => {
  const data = dataOf(usual);
  assert.throws(() => new Trainer(vk, usual, { data, mode: /** @type {any} */ ('fast') }), /mode must be graph or plain, got fast/);
  const wrong = { ...usual, settings: { ...usual.settings, learningRate: 1e-3, minLr: 1 } };
  assert.throws(() => new Trainer(vk, wrong, { data }), { name: 'RangeError', message: 'minLr 1 must be at most learningRate, 0.001' });
  for (const precision of /** @type {const} */ (['f16', 'bf16', 'bf16x3'])) {
    if (supports(precision)) continue;
    const config = runOf({ precision, vocabSize: 46 });
    assert.throws(() => new Trainer(vk, config, { data }), {
      code: 'NO_MATRIX_UNITS',
      message: new RegExp(`^precision ${precision}: .* has no`),
    });
  }
});
