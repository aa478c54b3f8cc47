// The GPT written with helios-vk/nn against the hand-written one: the same losses from equal weights, eagerly and compiled.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { PRESETS } from '../../benches/gpt/config.mjs';
import { stepBatch } from '../../benches/gpt/data.mjs';
import { createTraining } from '../../benches/gpt/nn-model.mjs';
import { createTrainer, freshWeights } from '../../benches/gpt/trainer.mjs';
import { scope, tensor } from '../../nn/index.mjs';
import { light, vk } from '../lib/addon.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

const config = { ...PRESETS.tiny, batch: 2, block: 32, steps: 40, warmup: 3, microSteps: 2 };
const steps = light ? 6 : 20;
const tokens = Uint32Array.from({ length: 4096 }, (_, i) => (i * i + (i >> 3)) % 97);

test(`${steps} steps: the losses of the hand-written model; eagerly and compiled`, async () => {
  const weights = freshWeights(config);
  const trainer = createTrainer(vk, config, { tokens, state: /** @type {any} */ ({ step: 0, weights: weights.slice() }) });
  for (let i = 0; i < steps; i++) trainer.step();
  await trainer.settle();
  const expected = Array.from({ length: steps }, (_, i) => /** @type {number} */ (trainer.known.get(i)));
  trainer.destroy();

  /** @type {number[][]} */
  const runs = [];
  for (const compiled of [false, true]) {
    const { model, opt, step } = createTraining(config, { weights: weights.slice(), compiled });
    assert.deepEqual(Object.keys(model.stateDict()).sort(), trainer.model.table.parameters.map(({ name }) => name).sort());
    const losses = [];
    for (let i = 0; i < steps; i++) {
      const batch = tensor(stepBatch(tokens, config, i), { dtype: 'u32', shape: [config.microSteps, 2, config.batch, config.block] });
      const loss = scope(() => step(batch));
      losses.push(await loss.item());
      for (const x of [loss, batch]) x.dispose();
    }
    runs.push(losses);
    opt.dispose();
    model.dispose();
  }
  for (const losses of runs) {
    expected.forEach((loss, i) => assert.ok(Math.abs(losses[i] - loss) < 2e-4 * loss, `step ${i}: ${losses[i]}, by hand ${loss}`));
  }
  assert.ok(expected[steps - 1] < expected[0] - 0.3, `${expected}`);
});
