// What a function that could not be compiled leaves of sharded gradients and parameters: nothing. A group of one needs no other process.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { checkpoint, compile, full, manualSeed, nn, optim, reset } from '../../nn/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { collectGarbage, initDevice } from './setup.mjs';

initDevice();
const nothing = () => undefined;
const processGroup = { rank: 0, worldSize: 1, allReduce: nothing, reduceScatter: nothing, allGather: nothing, broadcast: nothing };

/** A function that throws in the middle of its backward pass, when it has gradients of `first` only. @param {nn.Linear} first @param {nn.Linear} second */
const failing = (first, second) => {
  let runs = 0;
  return (/** @type {any} */ x) => {
    const fails = (/** @type {any} */ y) => {
      if (runs++ > 0) throw new Error('in the middle');
      return second.forward(y);
    };
    first.forward(checkpoint(fails, x)).sum().backward();
  };
};

for (const zero of /** @type {const} */ ([2, 3])) {
  test(`zero ${zero}: no step is made of gradients that were never computed`, () => {
    manualSeed(3);
    const [first, second] = [new nn.Linear(8, 8), new nn.Linear(8, 8)];
    const optimizer = new optim.SGD([...first.parameters(), ...second.parameters()], { lr: 0.1, processGroup, zero });
    assert.throws(() => compile(failing(first, second))(full([2, 8], 1)), /in the middle/);
    assert.throws(() => optimizer.step(), /step: no parameter has a gradient/);
    optimizer.dispose();
  });
}

test('a parameter is gathered anew, also when the recording that had it is garbage', async () => {
  manualSeed(3);
  const model = new nn.Linear(64, 64, { bias: false });
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.1, processGroup, zero: 3 });
  optimizer.setParameter(model.weight, full([64, 64], 0));
  await model.weight.toArray();
  optimizer.setParameter(model.weight, full([64, 64], 1));
  const fails = (/** @type {any} */ x) => {
    model.forward(x);
    throw new Error('after the product');
  };
  assert.throws(() => compile(fails)(full([2, 64], 1)), /after the product/);
  await collectGarbage();
  assert.ok((await model.weight.toArray()).every((/** @type {number} */ x) => x === 1));
  optimizer.dispose();
});

/**
 * Rank 0 of two processes, the other of which has what rank 0 has: of what is broadcast a copy is kept, from which parts are gathered.
 * @param {() => void} [called] before each collective
 */
function half(called = nothing) {
  /** Copies by their bytes. @type {Map<number, any>} */
  const copies = new Map();
  const copy = (/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ bytes, at = 0) =>
    runtime().vk.copyBuffer(from, to, bytes, at, at);
  return {
    ...processGroup,
    worldSize: 2,
    broadcast: (/** @type {number} */ handle, /** @type {any} */ { count }) => {
      called();
      const own = runtime().allocate(4 * count);
      copies.set(count, own);
      copy(handle, own.handle, 4 * count);
    },
    allGather: (/** @type {number} */ handle, /** @type {any} */ { count }) => {
      called();
      copy(copies.get(count).handle, handle, 2 * count, 2 * count);
    },
  };
}

test('zero 3: parameters keep their values where the optimizer cannot be made, whatever fails', async () => {
  const make = (/** @type {any} */ model, /** @type {any} */ group) =>
    new optim.AdamW(model.parameters(), { lr: 0.1, processGroup: group, zero: 3 });
  let [failed, made] = [0, false];
  for (let at = 0; !made; at++) {
    manualSeed(4);
    // Buckets of different sizes: the stand-in tells copies apart by them.
    const model = new nn.Sequential(new nn.Linear(40, 24), new nn.Linear(24, 104));
    nn.fullyShard(/** @type {any} */ (model)[1]);
    const before = await Promise.all(model.parameters().map((/** @type {any} */ x) => x.toArray()));
    const { allocate } = runtime();
    let calls = 0;
    const counts = () => {
      if (calls++ === at) throw new Error('no more');
    };
    runtime().allocate = (/** @type {[any]} */ ...args) => {
      counts();
      return allocate.apply(runtime(), args);
    };
    try {
      make(model, half(counts)).dispose();
      made = true;
    } catch (error) {
      assert.match(String(error), /no more/);
      failed++;
    } finally {
      runtime().allocate = allocate;
    }
    if (made) break;
    const after = await Promise.all(model.parameters().map((/** @type {any} */ x) => x.toArray()));
    assert.deepEqual(after, before, `the call ${at} failed`);
    // Another optimizer can take them.
    make(model, half()).dispose();
  }
  assert.ok(failed > 10, `${failed} calls`);
});

test('a backward pass that failed has no effect after reset()', async () => {
  const [first, second] = [new nn.Linear(8, 8), new nn.Linear(8, 8)];
  new optim.SGD([...first.parameters(), ...second.parameters()], { lr: 0.1, processGroup, zero: 2 });
  assert.throws(() => failing(first, second)(full([2, 8], 1)), /in the middle/);
  reset();
  initDevice();
  const model = new nn.Linear(8, 8);
  model
    .forward(full([2, 8], 1))
    .sum()
    .backward();
  assert.equal((await /** @type {any} */ (model.bias).grad.toArray())[0], 2);
});
