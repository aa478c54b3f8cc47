// Kernels of matrix products that a training run times: what is said of it, and how several processes take the plans of rank 0.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, test } from 'node:test';
import { reset, tunedPlans, tuningSummary } from 'helios-vk/nn';
import { setTimer } from '../../../nn/compile/tune.mjs';
import { processes, runtime } from '../../../nn/core/runtime.mjs';
import { temporaryFolder } from '../../../__test__/lib/folder.mjs';
import { randomTokens, windowsOf } from '../../../__test__/lib/gpt.mjs';
import { loadCheckpoint, saveCheckpoint } from '../src/train/checkpoint.mjs';
import { tuningLine } from '../src/train/profile.mjs';
import { configOf } from '../src/train/settings.mjs';
import { Trainer } from '../src/train/trainer.mjs';

const vk = createRequire(import.meta.url)('helios-vk');
vk.initDevice();
after(() => {
  setTimer(undefined);
  reset();
  vk.destroy();
});

test('what was timed, in a line', () => {
  const summary = { products: 15, faster: 13, reordered: 2, open: 3, seconds: 1.94, path: '/cache/x.tuning.json' };
  assert.equal(
    tuningLine(summary),
    'timed 15 matrix products in 1.9 s: 13 have faster kernels now; 2 of them with sums in another order, so that last bits may differ; ' +
      '3 are left for the next run; kept in /cache/x.tuning.json; HELIOS_TUNE=0 leaves this out',
  );
  assert.equal(
    tuningLine({ products: 1, faster: 1, reordered: 0, open: 0, seconds: 0.2 }),
    'timed 1 matrix product in 0.2 s: 1 has a faster kernel now; not kept; HELIOS_TUNE=0 leaves this out',
  );
  assert.equal(tuningLine({ products: 0, faster: 0, reordered: 0, open: 0, seconds: 0 }), undefined);
});

test('rank 0 times the products of a step, and the others take its plans before their first step', async (t) => {
  const config = configOf('gpt-tiny', {
    layers: 1,
    width: 192,
    heads: 3,
    hidden: 256,
    blockSize: 64,
    batchSize: 8,
    maxSteps: 4,
    warmupSteps: 1,
    vocabSize: 256,
  });
  const data = windowsOf(randomTokens(2000, 256, 3), 64);
  /** @type {any[]} */
  const sent = [];
  const groupOf = (/** @type {number} */ rank, /** @type {any} */ received) => ({
    ...{ rank, worldSize: 2, engine: 'mpi', allReduce: () => {}, reduceScatter: () => {}, allGather: () => {}, broadcast: () => {} },
    exchange: async (/** @type {any} */ value) => {
      sent.push(value);
      return rank === 0 ? [value, null] : [received, value];
    },
  });
  const trainerOf = (/** @type {any} */ group) =>
    new Trainer(
      vk,
      { ...config, settings: { ...config.settings, gradientAccumulationSteps: 2 } },
      { data, ranks: { group, zero: 0, reduce: 'f32', engine: 'mpi' } },
    );

  /** @type {string[]} */
  const timed = [];
  setTimer({
    timer: {
      open: ({ m, n, k }) => {
        timed.push(`${m} ${n} ${k}`);
        let plans = 0;
        // The package's plan comes first, the second is faster.
        return {
          sampler: () =>
            (
              (us) => () =>
                us
            )([3, 1, 2][Math.min(plans++, 2)]),
          close: () => {},
        };
      },
      close: () => {},
    },
    clock: () => 0,
  });
  const first = trainerOf(groupOf(0, null));
  runtime().kernels.context.tablePath = undefined;
  await first.agree();
  assert.ok(timed.length >= 4, timed.join());
  assert.equal(tuningSummary().products, timed.length);
  assert.equal(first.stepsDone, 0);
  const [plans] = sent.splice(0);
  assert.ok(plans.faster.f32.length > 0);
  assert.deepEqual(plans, tunedPlans());
  const kernels = first.compiled
    .explain()[0]
    .products.map(({ product, kernel }) => `${product} ${kernel}`)
    .sort();
  first.destroy();

  // The other rank: a device that knows none of these plans, and times nothing.
  reset();
  setTimer({ timer: /** @type {any} */ ({ open: () => assert.fail('it times'), close: () => {} }), clock: () => 0 });
  processes.together = false;
  const other = trainerOf(groupOf(1, JSON.parse(JSON.stringify(plans))));
  runtime().kernels.context.tablePath = undefined;
  runtime().kernels.context.machine.clear();
  await other.agree();
  assert.deepEqual(sent, [null]);
  assert.deepEqual(tunedPlans(), plans);
  other.compiled.prepare(/** @type {any} */ (other.batchOf(0)));
  assert.deepEqual(
    other.compiled
      .explain()[0]
      .products.map(({ product, kernel }) => `${product} ${kernel}`)
      .sort(),
    kernels,
  );
  other.destroy();
  processes.together = false;

  // A resumed run has the plans of its checkpoint, and times nothing: it goes on with the same bits.
  reset();
  const resumed = new Trainer(vk, config, { data, plans: JSON.parse(JSON.stringify(plans)) });
  assert.deepEqual(tunedPlans(), plans);
  resumed.functions.gradients.prepare(/** @type {any} */ (other.batchOf(0)));
  assert.deepEqual(
    resumed.functions.gradients
      .explain()[0]
      .products.map(({ product, kernel }) => `${product} ${kernel}`)
      .sort(),
    kernels,
  );
  const folder = temporaryFolder(t);
  const path = await saveCheckpoint(folder, resumed, { run: 'x', data: { folder: '', sha256: '', tokens: 0 }, best: null }, {});
  assert.deepEqual((await loadCheckpoint(path)).plans, plans);
  resumed.destroy();
  // Plans of another device are not its own.
  reset();
  const moved = new Trainer(vk, config, { data, plans: { ...plans, device: { ...plans.device, deviceName: 'another' } } });
  assert.notDeepEqual(tunedPlans(), plans);
  moved.destroy();
});
