// The GPT of `npm run train` against its float64 reference: losses and weights over several steps, eager and compiled.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { PRESETS, flatConfig, learningRate, withValues } from '../../packages/lm/src/train/config.mjs';
import { stepBatch } from '../../packages/lm/src/train/data.mjs';
import { copyFromHost } from '../../packages/lm/src/train/device.mjs';
import { Gpt, createTraining } from '../../packages/lm/src/train/model.mjs';
import { adamW, forwardBackward } from '../lib/gpt-reference.mjs';
import { initialWeights, parameterShapes } from '../../packages/lm/src/train/state.mjs';
import { compile, nn, scope, tensor } from 'helios-vk/nn';
import { light } from '../lib/addon.mjs';
import { filled, toFloat64 } from '../lib/gpt.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

const config = withValues(PRESETS['gpt-tiny'], { batch: 2, block: 32, steps: 40, warmup: 3, microSteps: 2 });
const { model: sizes, training: run } = config;
const steps = light ? 4 : 12;
const tokens = Uint32Array.from({ length: 4096 }, (_, i) => (i * i + (i >> 3)) % 97);

/** Losses of the reference. */
function expectedLosses() {
  const zeros = filled(sizes);
  const state = {
    weights: toFloat64(initialWeights(sizes, run.seed)),
    m: toFloat64(zeros),
    v: toFloat64(zeros),
    gradient: toFloat64(zeros),
  };
  const half = run.batch * sizes.block;
  return Array.from({ length: steps }, (_, step) => {
    const batch = stepBatch(tokens, flatConfig(config), step);
    for (const values of Object.values(state.gradient)) values.fill(0);
    let loss = 0;
    for (let at = 0; at < batch.length; at += 2 * half) {
      const [ids, targets] = [batch.subarray(at, at + half), batch.subarray(at + half, at + 2 * half)];
      loss += forwardBackward(sizes, state.weights, ids, targets, state.gradient, 1 / run.microSteps).loss / run.microSteps;
    }
    adamW(run, state, step, learningRate(run, step));
    return loss;
  });
}

test(`${steps} steps, eagerly and compiled: the losses of the float64 reference`, async () => {
  const expected = expectedLosses();
  assert.ok(expected[steps - 1] < expected[0] - 0.1, `${expected}`);
  const weights = initialWeights(sizes, run.seed);
  for (const compiled of [false, true]) {
    const model = nn.skipInit(() => new Gpt(sizes));
    const state = model.stateDict();
    const shapes = Object.entries(state).map(([name, { shape }]) => [name, shape]);
    assert.deepEqual(shapes, Object.entries(parameterShapes(sizes)), 'what is known without a device, in the same order');
    copyFromHost(state, weights);
    const training = createTraining(model, run);
    const step = compiled ? compile(training.step) : training.step;
    for (const [i, wanted] of expected.entries()) {
      const loss = scope(() => step(tensor(stepBatch(tokens, flatConfig(config), i))));
      const found = await loss.item();
      loss.dispose();
      // Early steps of AdamW divide by |g|: rounding of gradients near zero becomes direction.
      assert.ok(Math.abs(found - wanted) < 2e-4 * wanted, `${compiled ? 'compiled' : 'eager'}, step ${i}: ${found}, expected ${wanted}`);
    }
    training.opt.dispose();
    model.dispose();
  }
});
