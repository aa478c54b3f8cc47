// The GPT of the training run against its float64 reference: losses and weights over steps, eagerly and compiled.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { PRESETS, learningRate, parameterTable } from '../../benches/gpt/config.mjs';
import { stepBatch } from '../../benches/gpt/data.mjs';
import { Gpt, createTraining } from '../../benches/gpt/model.mjs';
import { adamW, forwardBackward } from '../../benches/gpt/reference.mjs';
import { freshWeights } from '../../benches/gpt/trainer.mjs';
import { compile, nn, noGrad, scope, tensor } from '../../nn/index.mjs';
import { light } from '../lib/addon.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

const config = { ...PRESETS['gpt-tiny'], batch: 2, block: 32, steps: 40, warmup: 3, microSteps: 2 };
const steps = light ? 4 : 12;
const tokens = Uint32Array.from({ length: 4096 }, (_, i) => (i * i + (i >> 3)) % 97);
const { parameters, total } = parameterTable(config);

/** Losses of the reference. */
function expectedLosses() {
  const state = {
    weights: Float64Array.from(freshWeights(config)),
    m: new Float64Array(total),
    v: new Float64Array(total),
    gradient: new Float64Array(total),
  };
  const half = config.batch * config.block;
  return Array.from({ length: steps }, (_, step) => {
    const batch = stepBatch(tokens, config, step);
    state.gradient.fill(0);
    let loss = 0;
    for (let at = 0; at < batch.length; at += 2 * half) {
      const [ids, targets] = [batch.subarray(at, at + half), batch.subarray(at + half, at + 2 * half)];
      loss += forwardBackward(config, state.weights, ids, targets, state.gradient, 1 / config.microSteps).loss / config.microSteps;
    }
    adamW(config, state, step, learningRate(config, step));
    return loss;
  });
}

test(`${steps} steps, eagerly and compiled: the losses of the float64 reference`, async () => {
  const expected = expectedLosses();
  assert.ok(expected[steps - 1] < expected[0] - 0.1, `${expected}`);
  const weights = freshWeights(config);
  for (const compiled of [false, true]) {
    const model = nn.skipInit(() => new Gpt(config));
    const state = model.stateDict();
    assert.deepEqual(Object.keys(state).sort(), parameters.map(({ name }) => name).sort());
    noGrad(() => {
      for (const { name, shape, offset, size } of parameters) state[name].copy_(tensor(weights.subarray(offset, offset + size), { shape }));
    });
    const training = createTraining(model, config);
    const step = compiled ? compile(training.step) : training.step;
    for (const [i, wanted] of expected.entries()) {
      const loss = scope(() => step(tensor(stepBatch(tokens, config, i))));
      const found = await loss.item();
      loss.dispose();
      // Early steps of AdamW divide by |g|: rounding of gradients near zero becomes direction.
      assert.ok(Math.abs(found - wanted) < 2e-4 * wanted, `${compiled ? 'compiled' : 'eager'}, step ${i}: ${found}, expected ${wanted}`);
    }
    training.opt.dispose();
    model.dispose();
  }
});
