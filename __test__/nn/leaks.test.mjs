// Ten thousand steps of eager training leak nothing: no buffer and no byte on the device, and no object on the heap; with scopes, without, and
// with steps that fail half-way.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { F, ShapeError, memory, nn, optim, randn, scope, tensor } from '../../nn/index.mjs';
import { scaled, vk } from '../lib/addon.mjs';
import { collectGarbage, garbageCollector, initDevice } from './setup.mjs';

before(initDevice);

const gc = garbageCollector();

/** Steps of each kind. */
const STEPS = scaled(10_000);
/**
 * Bytes of the heap for each of ten thousand steps: more than the compiler and the collector come and go with, and less than a tensor
 * with its storage.
 */
const HEAP_NOISE = 128;

/** What is held once the garbage is collected: tensors' buffers, the device's, and the heap. */
async function collected() {
  await collectGarbage();
  return { tensors: memory(), device: vk.memoryStats().live, heap: process.memoryUsage().heapUsed };
}

/** @typedef {Awaited<ReturnType<typeof collected>>} Held */
/** @param {Held} end @param {Held} start @param {number} steps @param {string} what */
function assertNothingLeft(end, start, steps, what) {
  assert.deepEqual({ ...end, heap: 0 }, { ...start, heap: 0 }, what);
  // Fewer steps do not stand out.
  if (steps >= 10_000) assert.ok(end.heap - start.heap < HEAP_NOISE * steps, `${what}: ${end.heap - start.heap} bytes more on the heap`);
}

/** What is not to be collected before the test has counted. @type {unknown[]} */
const kept = [];

/** A model with some of everything: views, noise, an index, several results of an operation, gradients that meet. */
function training() {
  const model = new nn.Sequential(new nn.Linear(4, 8), new nn.Tanh(), new nn.Dropout(0.1), new nn.LayerNorm(8), new nn.Linear(8, 1));
  const opt = new optim.AdamW(model.parameters(), { lr: 1e-3, clip: 1 });
  const order = tensor(Int32Array.from({ length: 16 }, (_, i) => (5 * i) % 16));
  const [x, t] = [randn([16, 4]), randn([16, 1])];
  const step = () => {
    const input = x.add(randn([4], { deviation: 0.01 })).indexSelect(0, order);
    const loss = F.mseLoss(model.forward(input), t.indexSelect(0, order));
    loss.backward();
    opt.step();
    return loss;
  };
  kept.push(step);
  return step;
}

test(`${STEPS} steps in scopes`, async () => {
  const step = training();
  for (let i = 0; i < 200; i++) scope(step).dispose();
  const start = await collected();
  for (let i = 0; i < STEPS; i++) {
    scope(step).dispose();
    if (i % 10 === 0) assert.deepEqual(memory(), start.tensors, `step ${i}: a scope leaves nothing behind`);
    if (i % 50 === 0) await turn();
  }
  assertNothingLeft(await collected(), start, STEPS, 'in scopes');
});

test(`${STEPS} steps without scopes: what the program drops is found`, async () => {
  const step = training();
  for (let i = 0; i < 200; i++) scope(step).dispose();
  const start = await collected();
  let most = 0;
  for (let i = 0; i < STEPS; i++) {
    await step().item();
    most = Math.max(most, memory().buffers);
    if (i % 100 === 99) gc();
  }
  // The engine may still hold what the last step's promises hold.
  let end = await collected();
  for (let i = 0; i < 5 && end.tensors.buffers > start.tensors.buffers; i++) end = await collected();
  assertNothingLeft(end, start, STEPS, 'without scopes');
  assert.ok(most > start.tensors.buffers, 'there was something to collect');
});

test('steps that fail half-way, before and in the backward pass', async () => {
  const step = training();
  const w = randn([3], { requiresGrad: true });
  kept.push(w);
  const failing = () => {
    step();
    const y = w.square();
    const loss = y.mul(w).sum();
    if (failing.early) y.matmul(y.reshape(1, 3));
    // What the product needs for its gradient is not what it was.
    y.detach().fill_(0);
    loss.backward();
  };
  failing.early = false;
  /** @param {number} count */
  const run = (count) => {
    for (let i = 0; i < count; i++) {
      failing.early = i % 2 === 0;
      assert.throws(() => scope(failing), failing.early ? ShapeError : /changed in place/);
    }
  };
  run(4);
  const start = await collected();
  run(scaled(500));
  assertNothingLeft(await collected(), start, 0, 'after errors');
});
