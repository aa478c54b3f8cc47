// A GPT of `helios-lm train` against its float64 reference: losses over several steps, eager and compiled.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { compile, nn, scope, tensor } from 'helios-vk/nn';
import { Decoder } from '../../packages/lm/src/model/decoder.mjs';
import { parameterShapes } from '../../packages/lm/src/model/parts.mjs';
import { configOf, learningRateAt } from '../../packages/lm/src/train/settings.mjs';
import { initialize } from '../../packages/lm/src/train/state.mjs';
import { createTraining, stepBatch } from '../../packages/lm/src/train/trainer.mjs';
import { light } from '../lib/addon.mjs';
import { filled, toFloat64, windowsOf } from '../lib/gpt.mjs';
import { adamW, forwardBackward } from '../lib/gpt-reference.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

const { model: sizes, settings } = configOf('gpt-tiny', {
  ...{ batchSize: 2, blockSize: 32, maxSteps: 40, warmupSteps: 3, gradientAccumulationSteps: 2 },
});
const { gradientAccumulationSteps: micro } = settings;
const steps = light ? 4 : 12;
const tokens = Uint32Array.from({ length: 4096 }, (_, i) => (i * i + (i >> 3)) % 97);
const data = windowsOf(tokens, settings.blockSize);

/** Losses of the reference. @param {Record<string, Float64Array>} weights that it begins with, and changes */
function expectedLosses(weights) {
  const [m, v, gradient] = [0, 0, 0].map(() => toFloat64(filled(sizes)));
  const half = settings.batchSize * settings.blockSize;
  return Array.from({ length: steps }, (_, step) => {
    const batch = stepBatch(data, settings, step);
    for (const values of Object.values(gradient)) values.fill(0);
    let loss = 0;
    for (let at = 0; at < batch.length; at += 2 * half) {
      const [ids, targets] = [batch.subarray(at, at + half), batch.subarray(at + half, at + 2 * half)];
      loss += forwardBackward(sizes, weights, ids, targets, gradient, 1 / micro).loss / micro;
    }
    adamW(settings, { weights, m, v, gradient }, step, learningRateAt(settings, step));
    return loss;
  });
}

test(`${steps} steps, eagerly and compiled: the losses of the float64 reference`, async () => {
  /** @type {number[] | undefined} */
  let expected;
  for (const compiled of [false, true]) {
    const model = nn.skipInit(() => new Decoder(sizes));
    const state = model.stateDict();
    const shapes = Object.fromEntries(Object.entries(state).map(([name, { shape }]) => [name, [...shape]]));
    assert.deepEqual(shapes, parameterShapes(sizes), 'what is known without a device');
    initialize(model, settings.seed);
    const values = await Promise.all(Object.entries(state).map(async ([name, x]) => [name, await x.toArray()]));
    expected ??= expectedLosses(toFloat64(Object.fromEntries(values)));
    assert.ok(expected[steps - 1] < expected[0] - 0.1, `${expected}`);
    const training = createTraining(model, settings);
    const step = compiled ? compile(training.step) : training.step;
    for (const [i, wanted] of expected.entries()) {
      const loss = scope(() => step(tensor(stepBatch(data, settings, i))));
      const found = await loss.item();
      loss.dispose();
      // Early steps of AdamW divide by |g|: rounding of gradients near zero becomes direction.
      assert.ok(Math.abs(found - wanted) < 2e-4 * wanted, `${compiled ? 'compiled' : 'eager'}, step ${i}: ${found}, expected ${wanted}`);
    }
    training.opt.dispose();
    model.dispose();
  }
});
