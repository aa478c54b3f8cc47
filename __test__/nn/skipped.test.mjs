// Steps whose gradients are not finite: all optimizers follow the same rule, eager and compiled.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { STATE } from '../../kernels/index.mjs';
import { autocast, compile, load, manualSeed, nn, noGrad, optim, save, scope, tensor } from '../../nn/index.mjs';
import { initDevice, values } from './setup.mjs';
import { temporaryFolder } from '../lib/folder.mjs';

before(initDevice);

/** @typedef {import('../../nn/optim/index.mjs').Options} Options */

const schedule = { warmup: 3, total: 12, finalLr: 0.01 };
/** Every optimizer, and what of it has moments or a decay. @type {Record<string, (params: any, options: Options) => optim.AdamW | optim.SGD | optim.Lion>} */
const OPTIMIZERS = {
  AdamW: (params, options) => new optim.AdamW(params, { lr: 0.1, schedule, ...options }),
  SGD: (params, options) => new optim.SGD(params, { lr: 0.1, schedule, ...options }),
  'SGD with momentum': (params, options) => new optim.SGD(params, { lr: 0.1, momentum: 0.9, schedule, ...options }),
  'SGD with all': (params, options) =>
    new optim.SGD(params, { lr: 0.1, momentum: 0.9, nesterov: true, weightDecay: 0.1, schedule, ...options }),
  Lion: (params, options) => new optim.Lion(params, { lr: 0.1, weightDecay: 0.1, schedule, ...options }),
};

/** 1e30: its square is above what f32 holds. */
const BAD = [NaN, Infinity, -Infinity, 1e30];
const GOOD = [
  [0.5, -1, 2],
  [-0.25, 3, 0.125],
  [1, 1, -1],
];

/**
 * An optimizer of two groups, and its step with the gradients given.
 * @param {(params: any, options: Options) => optim.AdamW | optim.SGD | optim.Lion} make @param {boolean} compiled @param {Options} [options]
 */
function training(make, compiled, options = { clip: 1 }) {
  const [a, b] = [[1, -2, 3], [4]].map((start) => new nn.Parameter(tensor(start)));
  const opt = make([{ params: [a] }, { params: [b], lr: 0.05 }], options);
  const once = (/** @type {any} */ g) => {
    a.mul(g).sum().add(b.sum()).backward();
    opt.step();
  };
  const step = compiled ? compile(once) : once;
  /** Everything that a step changes, but for how many were skipped. */
  const held = async () => {
    const state = Object.entries(opt.stateDict()).map(async ([name, x]) => {
      const words = await values(x);
      return [name, name.endsWith('state') ? words[STATE.step] : words];
    });
    return { a: await values(a), b: await values(b), ...Object.fromEntries(await Promise.all(state)) };
  };
  return { opt, step: (/** @type {number[]} */ g) => void scope(() => step(tensor(g))), held };
}

for (const [name, make] of Object.entries(OPTIMIZERS)) {
  test(`${name} with clip: a step whose gradients are not finite changes nothing but how many were skipped`, async () => {
    for (const compiled of [false, true]) {
      const [clean, other] = [0, 1].map(() => training(make, compiled));
      let skipped = 0;
      for (const [i, g] of GOOD.entries()) {
        const before = await other.held();
        for (const bad of BAD.slice(0, i + 2)) {
          other.step([0.5, bad, 1]);
          assert.deepEqual(await other.held(), before, `${bad}, compiled ${compiled}`);
          assert.equal(await other.opt.skippedSteps(), ++skipped);
        }
        for (const { step } of [clean, other]) step(g);
        assert.deepEqual(await other.held(), await clean.held(), `step ${i}, compiled ${compiled}`);
      }
      assert.equal(await clean.opt.skippedSteps(), 0);
      for (const { opt } of [clean, other]) opt.dispose();
    }
  });

  test(`${name} without clip takes what comes, as PyTorch does; also with a state that was loaded`, async () => {
    for (const compiled of [false, true]) {
      for (const loaded of [false, true]) {
        const { opt, step, held } = training(make, compiled, {});
        if (loaded) opt.loadStateDict(training(make, false, {}).opt.stateDict());
        step([0.5, NaN, 1]);
        const { a, b } = await held();
        assert.deepEqual([...a, ...b].map(Number.isNaN), [false, true, false, false], `compiled ${compiled}, loaded ${loaded}`);
        assert.equal(await opt.skippedSteps(), 0);
        opt.dispose();
      }
    }
  });

  test(`${name}: a state goes on, with how many were skipped`, async (t) => {
    const folder = temporaryFolder(t);
    const path = join(folder, 'state.safetensors');
    const [whole, rest] = [0, 1].map(() => training(make, true));
    for (const g of [GOOD[0], [NaN, 0, 0], GOOD[1]]) whole.step(g);
    await save(path, whole.opt.stateDict());
    rest.opt.loadStateDict(await load(path));
    noGrad(() =>
      whole.opt.buckets.forEach((bucket, i) => {
        bucket.parameters.forEach((parameter, j) => void rest.opt.buckets[i].parameters[j].copy_(parameter));
      }),
    );
    for (const { step } of [whole, rest]) for (const g of [GOOD[2], [0, Infinity, 0], GOOD[0]]) step(g);
    assert.deepEqual(await rest.held(), await whole.held());
    assert.deepEqual(await Promise.all([whole, rest].map(({ opt }) => opt.skippedSteps())), [2, 2]);
    // As a version wrote it that counted every step: it loads, and goes on from that number.
    const old = /** @type {any} */ (await load(path));
    const words = Uint32Array.from(await old['0.state'].toArray());
    words[STATE.step] += words[STATE.skipped];
    old['0.state'].copy_(tensor(words));
    rest.opt.loadStateDict(old);
    rest.step(GOOD[0]);
    assert.equal((await rest.held())['0.state'], 4);
    assert.equal(await rest.opt.skippedSteps(), 1);
    for (const { opt } of [whole, rest]) opt.dispose();
  });
}

test("AdamW's bias correction goes by the steps that were made", async () => {
  for (const skipped of [0, 1, 3, 10]) {
    const p = new nn.Parameter(tensor([1]));
    const opt = new optim.AdamW([p], { lr: 0.1, clip: 1, weightDecay: 0 });
    const step = (/** @type {number} */ g) => {
      p.mul(g).sum().backward();
      opt.step();
    };
    for (let i = 0; i < skipped; i++) step(NaN);
    step(0.5);
    assert.ok(Math.abs((await p.item()) - 0.9) < 1e-6, `${skipped} skipped: ${await p.item()}`);
    opt.dispose();
  }
});

test('a skipped step leaves the 16-bit copies with their parameters', async () => {
  manualSeed(5);
  const model = new nn.Linear(32, 32);
  const opt = new optim.AdamW(model.parameters(), { lr: 0.1, clip: 1 });
  const step = compile((/** @type {any} */ x, /** @type {any} */ factor) => {
    const y = autocast('bf16', () => model.forward(x)).to('f32');
    y.mul(factor).sum().backward();
    opt.step();
    return y;
  });
  const x = tensor(new Array(32).fill(0.5), { shape: [1, 32] });
  await values(step(x, tensor([1])));
  const before = await values(step(x, tensor([NaN])));
  assert.deepEqual(await values(step(x, tensor([1]))), before);
  assert.notDeepEqual(await values(step(x, tensor([1]))), before);
  assert.equal(await opt.skippedSteps(), 1);
  opt.dispose();
});

test('startAt says how many were skipped; who asks where there is no answer hears why', async () => {
  const { opt, step } = training(OPTIMIZERS.SGD, false);
  opt.startAt(4, 3);
  step([NaN, 0, 0]);
  assert.equal(await opt.skippedSteps(), 4);
  opt.startAt(4);
  assert.equal(await opt.skippedSteps(), 0);
  for (const bad of [-1, 0.5, NaN, 2 ** 32]) assert.throws(() => opt.startAt(1, bad), /startAt: skipped must be an integer from 0 to/);
  assert.throws(
    compile(() => void opt.skippedSteps()),
    /skippedSteps: call it outside of the compiled function/,
  );
  opt.dispose();
  assert.throws(() => opt.skippedSteps(), /skippedSteps: the optimizer was disposed of/);
});

test('gradientNorm is that of all gradients of the last step, before clipping', async () => {
  for (const compiled of [false, true]) {
    const { opt, step } = training(OPTIMIZERS.AdamW, compiled);
    for (const gradient of GOOD) {
      step(gradient);
      // The parameter of the second group has the gradient 1.
      const norm = Math.hypot(...gradient, 1);
      assert.ok(Math.abs((await opt.gradientNorm()) - norm) < 1e-5 * norm, `${await opt.gradientNorm()} for ${norm}`);
    }
    opt.dispose();
  }
  const plain = training(OPTIMIZERS.SGD, false, {});
  plain.step(GOOD[0]);
  assert.ok(Number.isNaN(await plain.opt.gradientNorm()), 'no step computes it without clipping');
  plain.opt.dispose();
});
