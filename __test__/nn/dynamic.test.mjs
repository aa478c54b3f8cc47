// `compile` with dynamic sizes: each size gives what eager mode gives, runs the function once.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, manualSeed, nn, ones, optim, randn, scope, tensor } from '../../nn/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

const BATCHES = [4, 7, 1, 6, 4, 2, 7, 5, 3, 8];

/** A small network with what depends on the batch: a mean loss, batch statistics, and a branch of the program. */
function network() {
  manualSeed(5);
  const [conv, norm, head] = [new nn.Conv2d(2, 4, 3, { padding: 1 }), new nn.BatchNorm2d(4), new nn.Linear(4, 3)];
  const parameters = [conv, norm, head].flatMap((layer) => layer.parameters());
  const optimizer = new optim.SGD(parameters, { lr: 0.05, momentum: 0.9, clip: 1 });
  let runs = 0;
  const step = (/** @type {any} */ x, /** @type {any} */ targets) => {
    runs++;
    const h = F.relu(norm.forward(conv.forward(x))).mean([2, 3]);
    const bent = x.shape[0] > 5 ? F.gelu(h) : h.mul(2);
    const loss = F.crossEntropy(head.forward(bent), targets);
    loss.backward();
    optimizer.step();
    return { loss, h, rows: x.shape[0] };
  };
  return { step, parameters, norm, runs: () => runs };
}

/** @param {number} batch */
const data = (batch) => ({
  x: tensor(normal(batch * 32), { shape: [batch, 2, 4, 4] }),
  targets: tensor(Int32Array.from({ length: batch }, (_, i) => i % 3)),
});

test('batches of many sizes train to what eager mode trains to, and each size runs the function once', async () => {
  const warnings = /** @type {any[]} */ ([]);
  const note = (/** @type {any} */ warning) => warnings.push(warning.code);
  process.on('warning', note);
  const batches = [...BATCHES, 9, ...BATCHES, 9, 10];
  const inputs = batches.map(data);
  const run = async (/** @type {boolean} */ compiled) => {
    const { step, parameters, norm, runs } = network();
    const f = compiled ? compile(step, { dynamic: [0], bound: 10 }) : step;
    const losses = [];
    for (const { x, targets } of inputs) {
      const { loss, h, rows } = compiled ? f(x, targets) : scope(() => f(x, targets));
      losses.push(await loss.item());
      assert.deepEqual([h.shape, rows], [[x.shape[0], 4], x.shape[0]]);
    }
    const state = [...parameters, norm.running_mean, norm.running_var];
    return { losses, state: (await Promise.all(state.map(values))).flat(), runs: runs(), f };
  };
  const eager = await run(false);
  const own = await run(true);
  assertClose(Float32Array.from(own.losses), Float64Array.from(eager.losses), 1e-4, 'losses');
  assertClose(Float32Array.from(own.state), Float64Array.from(eager.state), 1e-3, 'parameters and statistics');
  // Without a step of the optimizer, and with one: states that the guard tells apart.
  assert.ok(own.runs <= 2 * new Set(batches).size, `${own.runs} runs`);
  const before = own.runs;
  for (const { x, targets } of inputs) /** @type {any} */ (own.f)(x, targets);
  assert.equal(own.runs, before);
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(warnings, []);
  process.off('warning', note);
});

test('another size makes no kernels where the program is the same', async () => {
  const [a, b] = [new nn.Linear(8, 16), new nn.Linear(16, 4)];
  const f = compile(
    (/** @type {any} */ x, /** @type {any} */ y) => {
      const h = F.gelu(a.forward(x));
      return F.mseLoss(b.forward(h).mul(0.5).add(h.mean(1, true)), y).add(h.square().mean());
    },
    { dynamic: [0], bound: 100 },
  );
  const eager = (/** @type {any} */ x, /** @type {any} */ y) => {
    const h = F.gelu(a.forward(x));
    return F.mseLoss(b.forward(h).mul(0.5).add(h.mean(1, true)), y).add(h.square().mean());
  };
  const { context } = runtime().kernels;
  const sizes = [64, 72, 80, 88, 96];
  /** @type {number[]} */
  const made = [];
  for (const batch of sizes) {
    const count = context.programs.size;
    const [x, y] = [randn([batch, 8]), randn([batch, 4])];
    assertClose(await f(x, y).toArray(), Float64Array.from(await eager(x, y).toArray()), 1e-5, `batch ${batch}`);
    made.push(context.programs.size - count);
  }
  const explained = f.explain();
  assert.ok(explained[0].found['operations fused'] > 0);
  for (const { found } of explained) assert.deepEqual(found, explained[0].found);
  // On a GPU the least size may be summed by fewer workgroups than the others.
  assert.ok(made[1] <= (context.isCpu ? 0 : 1), `generated kernels: ${made}`);
  assert.deepEqual(made.slice(2), [0, 0, 0], `generated kernels: ${made}`);
});

test('as many graphs as the bound are kept, of any sizes', async () => {
  let runs = 0;
  const f = compile(
    (/** @type {any} */ x, /** @type {any} */ { ids }) => {
      runs++;
      return x.sum(0).add(ids.to('f32').sum());
    },
    { dynamic: [0, -1], bound: 12 },
  );
  for (let round = 0; round < 2; round++) {
    // Twelve sizes are more graphs than a function has without `dynamic`.
    for (let n = 1; n <= 12; n++) {
      const y = f(ones([n, 2, n]), { ids: new Int32Array(n).fill(1) });
      assert.deepEqual(await values(y), new Array(2 * n).fill(2 * n));
    }
  }
  assert.equal(runs, 12);
  assert.deepEqual((await values(f(ones([20, 2, 1]), { ids: new Int32Array(1) }))).length, 2);
  assert.deepEqual((await values(f(ones([0, 2, 1]), { ids: new Int32Array(0) })))[0], 0);
  assert.deepEqual((await values(f(ones([3, 5, 3]), { ids: new Int32Array(3) })))[0], 3);
  assert.equal(runs, 15);
  // The first sizes were dropped for the last three, the others are kept.
  assert.deepEqual(await values(f(ones([4, 2, 4]), { ids: new Int32Array(4).fill(1) })), new Array(8).fill(8));
  assert.deepEqual((await values(f(ones([20, 2, 1]), { ids: new Int32Array(1) }))).length, 2);
  assert.equal(runs, 15);
  assert.deepEqual(await values(f(ones([1, 2, 1]), { ids: new Int32Array(1).fill(1) })), [2, 2]);
  assert.equal(runs, 16);
  assert.equal(f.explain().length, 12);
  f.dispose();
  assert.deepEqual(f.explain(), []);
  for (const [options, message] of /** @type {[any, RegExp][]} */ ([
    [{ dynamic: 0 }, /^ArgumentError: compile: dynamic must be an array of dimensions, such as \[0\], got 0/],
    [{ dynamic: [1.5] }, /^ArgumentError: compile: dynamic must be an array of dimensions/],
    [{ bound: 0 }, /^ArgumentError: compile: bound must be an integer of at least 1, got 0/],
  ])) {
    assert.throws(() => compile((/** @type {any} */ x) => x, options), message);
  }
});
