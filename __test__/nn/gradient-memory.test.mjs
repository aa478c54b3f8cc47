// The pass `gradients`: gradients that a compiled function makes and clears take no memory of their own, and keep their bits; all others do.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, accumulate, autocast, compile, manualSeed, nn, optim, randn } from '../../nn/index.mjs';
import { EXACT, PASSES } from '../../nn/compile/passes/index.mjs';
import { GradientMemory } from '../../nn/optim/lazy-memory.mjs';
import { initDevice, poison } from './setup.mjs';

/** @typedef {import('../../nn/api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../../nn/optim/optimizer.mjs').Optimizer} Optimizer */

const FOUND = 'allocations of gradients shared';
const WITHOUT = PASSES.filter((name) => name !== 'gradients');
const WIDTH = 64;

before(() => {
  initDevice();
  poison();
});

/** A model and an input, the same at each call. */
function begun({ bias = false, last = WIDTH } = {}) {
  manualSeed(3);
  const options = { bias };
  const model = new nn.Sequential(
    new nn.Linear(WIDTH, 2 * WIDTH, options),
    new nn.RMSNorm(2 * WIDTH),
    new nn.Linear(2 * WIDTH, last, options),
  );
  return { model, x: randn([32, WIDTH]), lossOf: (/** @type {Tensor} */ input) => model.forward(input).to('f32').square().mean() };
}

/** Whether the memory of each bucket's gradients was allocated. @param {Optimizer} optimizer */
const reserved = (optimizer) =>
  optimizer.buckets.map(({ gradients }) => {
    const { allocation } = /** @type {import('../../nn/core/storage.mjs').Storage} */ (gradients.storage);
    return allocation instanceof GradientMemory && allocation.reserved;
  });

/** @param {nn.Module} model */
const weightsOf = (model) => Promise.all(model.parameters().map((parameter) => parameter.toArray()));

/** @type {Record<string, (model: nn.Module) => Optimizer>} */
const OPTIMIZERS = {
  AdamW: (model) => new optim.AdamW(model.parameters(), { lr: 1e-2 }),
  'AdamW with clipping, in two groups': (model) => {
    const [first, ...params] = model.parameters();
    return new optim.AdamW([{ params: [first] }, { params, weightDecay: 0 }], { lr: 1e-2, clip: 0.01 });
  },
  SGD: (model) => new optim.SGD(model.parameters(), { lr: 1e-2, momentum: 0.9 }),
  Muon: (model) => {
    const [matrices, vectors] = [2, 1].map((dimensions) => model.parameters().filter(({ ndim }) => ndim === dimensions));
    return new optim.Muon([{ params: matrices }, { params: vectors, muon: false }], { lr: 1e-2, steps: 2 });
  },
  Adafactor: (model) => new optim.Adafactor(model.parameters()),
};

for (const [name, make] of Object.entries(OPTIMIZERS)) {
  test(`${name}: the same bits, and no memory for gradients`, async () => {
    const found = [];
    for (const passes of [PASSES, WITHOUT]) {
      const { model, x, lossOf } = begun();
      const optimizer = make(model);
      const step = compile(
        (/** @type {Tensor} */ input) => {
          const loss = autocast('bf16', () => accumulate(2, () => lossOf(input)));
          optimizer.step();
          return loss;
        },
        { passes, tune: false },
      );
      const losses = [];
      for (let i = 0; i < 3; i++) losses.push(await step(x).item());
      const [{ found: counts }] = step.explain();
      found.push({ losses, weights: await weightsOf(model), shared: counts[FOUND] ?? 0, reserved: reserved(optimizer) });
      for (const each of [step, optimizer, model, x]) each.dispose();
    }
    const [own, others] = found;
    assert.deepEqual([own.losses, own.weights], [others.losses, others.weights]);
    assert.ok(own.losses.every(Number.isFinite), String(own.losses));
    assert.equal(own.shared, own.reserved.length);
    assert.ok(others.reserved.every(Boolean) && own.reserved.every((each) => !each));
  });
}

test('gradients that stay, are returned, or add to earlier ones have memory of their own', async () => {
  const { model, x, lossOf } = begun();
  const [weight] = model.parameters();
  lossOf(x).backward();
  const expected = await /** @type {Tensor} */ (weight.grad).toArray();
  model.zeroGrad();
  const optimizer = OPTIMIZERS.AdamW(model);
  const twice = compile((/** @type {Tensor} */ input) => void lossOf(input).backward(), { passes: EXACT, tune: false });
  twice(x);
  assert.deepEqual(await /** @type {Tensor} */ (weight.grad).toArray(), expected);
  twice(x);
  assert.deepEqual(
    await /** @type {Tensor} */ (weight.grad).toArray(),
    expected.map((value) => Math.fround(2 * value)),
  );
  for (const { found } of twice.explain()) assert.equal(found[FOUND], undefined);
  optimizer.zeroGrad();
  const returned = compile(
    (/** @type {Tensor} */ input) => {
      lossOf(input).backward();
      const gradient = /** @type {Tensor} */ (weight.grad);
      optimizer.zeroGrad();
      return gradient;
    },
    { passes: EXACT, tune: false },
  );
  assert.deepEqual(await returned(x).toArray(), expected);
  assert.equal(returned.explain()[0].found[FOUND], undefined);
  for (const each of [twice, returned, optimizer, model, x]) each.dispose();
});

test('steps that are compiled, and those that are not, in turn', async () => {
  const found = [];
  for (const kinds of ['ecec', 'eeee', 'ceec']) {
    const { model, x, lossOf } = begun();
    const optimizer = OPTIMIZERS.SGD(model);
    const eager = (/** @type {Tensor} */ input) => {
      lossOf(input).backward();
      optimizer.step();
    };
    const step = compile(eager, { passes: ['gradients', 'recompute', 'schedule'] });
    for (const kind of kinds) (kind === 'e' ? eager : step)(x);
    if (kinds !== 'eeee') assert.equal(step.explain()[0].found[FOUND], 1);
    found.push(await weightsOf(model));
    for (const each of [step, optimizer, model, x]) each.dispose();
  }
  assert.deepEqual(found[0], found[1]);
  assert.deepEqual(found[2], found[1]);
});

test('a gradient that the program sets is the one that the step takes, eager and compiled', async () => {
  const found = [];
  for (const isCompiled of [false, true]) {
    const { model, x, lossOf } = begun();
    const optimizer = OPTIMIZERS.SGD(model);
    const [weight] = model.parameters();
    const own = (/** @type {Tensor} */ input) => {
      lossOf(input).backward();
      weight.grad = weight.detach().mul(0.5);
      optimizer.step();
      optimizer.zeroGrad();
    };
    const step = isCompiled ? compile(own, { passes: EXACT, tune: false }) : own;
    const before = await weight.toArray();
    step(x);
    const after = await weight.toArray();
    // In the direction of the weight: all shrink by one factor.
    const factor = after[0] / before[0];
    assert.ok(factor < 1 && after.every((value, i) => Math.abs(value - factor * before[i]) <= 1e-5 * Math.abs(value)), `${factor}`);
    step(x);
    found.push(await weightsOf(model));
    for (const each of [...(isCompiled ? [/** @type {any} */ (step)] : []), optimizer, model, x]) each.dispose();
  }
  assert.deepEqual(found[1], found[0]);
});

test('what lies between parameters stays 0: memory with gaps is not shared', async () => {
  const found = [];
  for (const passes of [PASSES, WITHOUT]) {
    const { model, x, lossOf } = begun({ bias: true, last: 10 });
    const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-2, clip: 0.01 });
    const step = compile(
      (/** @type {Tensor} */ input) => {
        lossOf(input).backward();
        optimizer.step();
      },
      { passes, tune: false },
    );
    for (let i = 0; i < 3; i++) step(x);
    assert.equal(step.explain()[0].found[FOUND], undefined);
    found.push(await weightsOf(model));
    for (const each of [step, optimizer, model, x]) each.dispose();
  }
  assert.deepEqual(found[0], found[1]);
});

test('a gradient that was only in a compiled function cannot be read after it', () => {
  const { model, x, lossOf } = begun();
  const optimizer = OPTIMIZERS.AdamW(model);
  /** @type {Tensor | undefined} */
  let kept;
  const step = compile((/** @type {Tensor} */ input) => {
    lossOf(input).backward();
    kept = model.parameters()[0].grad;
    optimizer.step();
  });
  step(x);
  assert.throws(
    () => F.sum(/** @type {Tensor} */ (kept)),
    /^UsageError: sum: the gradient was only in a compiled function, which cleared it/,
  );
  for (const each of [step, optimizer, model, x]) each.dispose();
});
