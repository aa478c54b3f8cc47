// Out of memory in the middle of a step. A call that failed has done nothing and can be repeated, the next step computes what an undisturbed
// run computes, and no buffer leaks.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, init, manualSeed, memory, nn, optim, tensor } from '../../nn/index.mjs';
import { Optimizer } from '../../nn/optim/optimizer.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { vk } from '../lib/addon.mjs';
import { collectGarbage } from './setup.mjs';

/** Calls that fail: of this name, by their numbers; and how many there were. */
const fault = { name: '', numbers: /** @type {number[]} */ ([]), calls: 0 };

const device = /** @type {any} */ ({ ...vk });
for (const name of ['createBuffer', 'uploadAsync', 'batchExecuteAll', 'graphBegin', 'graphEnd', 'graphLaunch']) {
  const call = device[name];
  device[name] = (/** @type {any[]} */ ...args) => {
    if (fault.name !== name || !fault.numbers.includes(++fault.calls)) return call(...args);
    // The recording has ended there all the same.
    if (name === 'graphEnd') vk.graphDestroy(call());
    throw Object.assign(new RangeError(`${name}: out of memory, for a test`), { code: 'ERR_HELIOS_OUT_OF_MEMORY' });
  };
}

before(() => init({ vk: device }));

/** Makes a call again where the device was out of memory. @template T @param {() => T} call @returns {T} */
function insist(call) {
  for (let i = 0; ; i++) {
    try {
      return call();
    } catch (error) {
      if (/** @type {any} */ (error).code !== 'ERR_HELIOS_OUT_OF_MEMORY' || i === 4) throw error;
    }
  }
}

const STEPS = 5;
const inputs = Array.from({ length: STEPS }, (_, i) => Float32Array.from({ length: 24 }, (_, j) => Math.sin(31 * i + j)));

/**
 * Some steps of training, of which each call that fails is made again.
 * @param {(step: (x: any, t: any) => any) => (x: any, t: any) => any} how steps are carried out
 * @param {string} [name] of the calls that fail @param {number[]} [numbers]
 * @returns {Promise<{ numbers: number[], calls: number }>} losses, results and weights; and how many calls of the name there were
 */
async function train(how, name = '', numbers = []) {
  manualSeed(5);
  const model = new nn.Sequential(new nn.Linear(6, 8), new nn.GELU(), new nn.Dropout(0.1), new nn.Linear(8, 3));
  const opt = new optim.AdamW(model.parameters(), { lr: 1e-2, clip: 1 });
  const step = how((x, t) => {
    const y = model.forward(x);
    const loss = F.mseLoss(y, t);
    loss.backward();
    opt.step();
    opt.zeroGrad();
    return [loss, y.detach()];
  });
  const target = tensor(inputs[0].subarray(0, 12), { shape: [4, 3] });
  const xs = inputs.map((data) => tensor(data, { shape: [4, 6] }));
  runtime().flush();
  Object.assign(fault, { name, numbers, calls: 0 });
  const results = xs.flatMap((x) => insist(() => step(x, target)));
  insist(() => runtime().flush());
  fault.name = '';
  const seen = [];
  for (const x of [...results, ...model.parameters()]) seen.push(...(await x.toArray()));
  for (const x of [...results, ...xs, target, ...model.parameters()]) x.dispose();
  /** @type {any} */ (step).dispose?.();
  opt.dispose();
  return { numbers: seen, calls: fault.calls };
}

/** Buffers that are held once the garbage is collected. */
async function held() {
  await collectGarbage();
  return { tensors: memory().buffers, device: vk.memoryStats().live };
}

for (const [what, options, names] of /** @type {const} */ ([
  ['a compiled step', {}, ['createBuffer', 'batchExecuteAll', 'graphBegin', 'graphEnd', 'graphLaunch']],
  ['a compiled step without a graph', { graph: false }, ['createBuffer', 'batchExecuteAll']],
  ['a compiled step whose results lie in the graph', { reuseOutputs: true }, ['createBuffer', 'graphLaunch']],
])) {
  test(`${what}: a call that finds no memory has done nothing`, async () => {
    /** @param {(x: any, t: any) => any} step */
    const how = (step) => {
      const compiled = compile(step, options);
      if (!('reuseOutputs' in options)) return compiled;
      // Results of a call are there until the next.
      const kept = (/** @type {any} */ x, /** @type {any} */ t) =>
        insist(() => compiled(x, t)).map((/** @type {any} */ y) => insist(() => y.clone()));
      return Object.assign(kept, { dispose: compiled.dispose });
    };
    for (const name of names) {
      const good = await train(how, name);
      assert.ok(good.calls > 0, name);
      const start = await held();
      for (let first = 1; first <= good.calls; first++) {
        for (const numbers of [[first], [first, first + 1]]) {
          const after = await train(how, name, numbers);
          assert.deepEqual(after.numbers, good.numbers, `${name}, calls ${numbers} of ${good.calls}`);
        }
      }
      assert.deepEqual(await held(), start, name);
    }
  });
}

test('a compiled step whose first launch finds no memory has left gradients and versions as they were', async () => {
  const run = async (/** @type {number[]} */ numbers) => {
    manualSeed(5);
    const model = new nn.Linear(6, 3);
    const opt = new optim.SGD(model.parameters(), { lr: 0.1 });
    const x = tensor(inputs[0], { shape: [4, 6] });
    // The compiled step adds to this gradient.
    model.forward(x).square().sum().backward();
    const gradient = model.weight.grad;
    const earlier = model.forward(x).square().mean();
    const step = compile((/** @type {any} */ y) => {
      model.forward(y).square().mean().backward();
      opt.step();
    });
    Object.assign(fault, { name: 'graphLaunch', numbers, calls: 0 });
    if (numbers.length > 0) {
      assert.throws(() => step(x), { code: 'ERR_HELIOS_OUT_OF_MEMORY' });
      assert.equal(model.weight.grad, gradient);
    }
    earlier.backward();
    step(x);
    fault.name = '';
    const weights = await model.weight.toArray();
    for (const y of [step, opt, model, x, earlier]) y.dispose();
    return weights;
  };
  assert.deepEqual(await run([1]), await run([]));
});

test('an optimizer that finds no memory leaves its parameters free: it can be made again', async () => {
  for (const make of [
    (/** @type {any} */ p) => new optim.AdamW(p, { lr: 1e-2, clip: 1 }),
    (/** @type {any} */ [a, b, ...p]) => new optim.AdamW([{ params: [a, b] }, { params: p, lr: 0.1 }], { lr: 1e-2 }),
    (/** @type {any} */ p) => new optim.SGD(p, { lr: 0.1, momentum: 0.9 }),
    (/** @type {any} */ p) => new optim.Lion(p, { lr: 1e-2 }),
  ]) {
    const x = tensor(inputs[0], { shape: [4, 6] });
    const run = async (/** @type {number[]} */ numbers) => {
      manualSeed(5);
      const model = new nn.Sequential(new nn.Linear(6, 8), new nn.Tanh(), new nn.Linear(8, 3));
      // A gradient from before goes with its parameter.
      model.forward(x).square().mean().backward();
      runtime().flush();
      Object.assign(fault, { name: 'createBuffer', numbers, calls: 0 });
      const opt = insist(() => make(model.parameters()));
      fault.name = '';
      const { calls } = fault;
      opt.step();
      const weights = [];
      for (const parameter of model.parameters()) weights.push(...(await parameter.toArray()));
      opt.dispose();
      for (const parameter of model.parameters()) parameter.dispose();
      return { weights, calls };
    };
    const good = await run([]);
    assert.ok(good.calls >= 4, `${good.calls} buffers`);
    const start = await held();
    for (let first = 1; first <= good.calls; first++) {
      assert.deepEqual((await run([first, first + 1])).weights, good.weights, `buffer ${first} of ${good.calls}`);
    }
    x.dispose();
    assert.ok((await held()).tensors < start.tensors, 'nothing but the input, which is gone');
  }
});

/** An optimizer whose step is made of operations, each with memory for its result. */
class ByOperations extends Optimizer {
  /** @param {any} params */
  constructor(params) {
    super(params, { lr: 0.1, weightDecay: 0, clip: 1, gradientScale: 1 }, undefined, 1);
  }
  /** @param {any} _group @param {import('../../nn/optim/bucket.mjs').Bucket} bucket @param {import('../../nn/optim/bucket.mjs').Run} run */
  update(_group, bucket, run) {
    const [p, v, gradient] = [bucket.values, ...this.momentsOf(bucket, 1), bucket.gradients].map((flat) => bucket.part(flat, run));
    const g = gradient.mul(0.5).add(p.mul(0.1));
    v.mul_(0.9).add_(g);
    p.add_(g.add(v.mul(0.9)).mul(0.1), { alpha: -1 });
  }
}

test('an eager step of SGD or Lion takes no memory', async () => {
  for (const make of [
    (/** @type {any} */ p) => new optim.SGD(p, { lr: 0.1, momentum: 0.9, nesterov: true, weightDecay: 0.1, clip: 1 }),
    (/** @type {any} */ p) => new optim.Lion(p, { lr: 1e-2, weightDecay: 0.1, clip: 1 }),
  ]) {
    const model = new nn.Linear(6, 6);
    const opt = make(model.parameters());
    const x = tensor(inputs[0], { shape: [4, 6] });
    for (const numbers of [[], [1, 2]]) {
      model.forward(x).square().mean().backward();
      runtime().flush();
      // The first step makes the kernels' own memory.
      Object.assign(fault, { name: 'createBuffer', numbers, calls: 0 });
      opt.step();
      fault.name = '';
    }
    assert.equal(fault.calls, 0);
    for (const y of [opt, model, x]) y.dispose();
  }
});

test('an eager step that finds no memory has changed nothing, and the next call makes it once', async () => {
  const run = async (/** @type {number[]} */ numbers) => {
    manualSeed(5);
    const model = new nn.Sequential(...Array.from({ length: 12 }, () => new nn.Linear(6, 6)));
    // Groups of one parameter each, so that a step has more dispatches than a list that is submitted by itself.
    const opt = new ByOperations(Array.from(model.parameters(), (p) => ({ params: [p] })));
    const x = tensor(inputs[0], { shape: [4, 6] });
    const earlier = model.forward(x).sum();
    model.forward(x).square().mean().backward();
    runtime().flush();
    Object.assign(fault, { name: 'createBuffer', numbers, calls: 0 });
    // The optimizer submits what is in the list and tries again, and once more after a collection: these have to fail too.
    if (numbers.length > 0) assert.throws(() => opt.step(), { code: 'ERR_HELIOS_OUT_OF_MEMORY' });
    else opt.step();
    fault.name = '';
    if (numbers.length > 0) {
      // The parameters are those that this was computed from.
      earlier.backward();
      opt.zeroGrad();
      model.forward(x).square().mean().backward();
      opt.step();
    }
    const seen = [];
    for (const y of [...model.parameters(), ...Object.values(opt.stateDict())]) seen.push(...(await y.toArray()));
    for (const y of [opt, model, x, earlier]) y.dispose();
    return { seen, calls: fault.calls };
  };
  // The first run makes the kernels' own memory.
  await run([]);
  const good = await run([]);
  assert.ok(good.calls > 100, `${good.calls} buffers`);
  const start = await held();
  for (const first of [1, 2, 50, good.calls]) {
    assert.deepEqual((await run([first, first + 1, first + 2])).seen, good.seen, `buffer ${first} of ${good.calls}`);
  }
  assert.deepEqual(await held(), start);
});

test('an eager step that finds no memory at first submits what waits, whose buffers are then free', async () => {
  const run = async (/** @type {number[]} */ numbers) => {
    manualSeed(5);
    const model = new nn.Linear(6, 6);
    const opt = new ByOperations(model.parameters());
    const x = tensor(inputs[0], { shape: [4, 6] });
    model.forward(x).square().mean().backward();
    Object.assign(fault, { name: 'createBuffer', numbers, calls: 0 });
    opt.step();
    fault.name = '';
    const seen = [];
    for (const y of [...model.parameters(), ...Object.values(opt.stateDict())]) seen.push(...(await y.toArray()));
    for (const y of [opt, model, x]) y.dispose();
    return { seen, calls: fault.calls };
  };
  const good = await run([]);
  assert.ok(good.calls > 0);
  const start = await held();
  for (let first = 1; first <= good.calls; first++) assert.deepEqual((await run([first])).seen, good.seen, `buffer ${first}`);
  assert.deepEqual(await held(), start);
});

test('a function that throws while it is traced, wherever it does, is traced whole by the next call', async () => {
  const good = await train((step) => compile(step));
  for (let at = 1; at <= 3; at++) {
    let left = at;
    const after = await train((step) => {
      const compiled = compile((x, t) => {
        const results = left === 2 ? step(x, t) : undefined;
        if (left-- > 0) throw new Error('of the program');
        return results ?? step(x, t);
      });
      const kept = (/** @type {any} */ x, /** @type {any} */ t) => {
        while (left > 0) assert.throws(() => compiled(x, t), /^Error: of the program$/);
        return compiled(x, t);
      };
      return Object.assign(kept, { dispose: compiled.dispose });
    });
    assert.deepEqual(after.numbers, good.numbers, `${at} times`);
  }
});

test('dispatches of eager steps that found no memory wait, and none is lost', async () => {
  const how = (/** @type {(x: any, t: any) => any} */ step) => step;
  const good = await train(how, 'batchExecuteAll');
  assert.ok(good.calls >= 3, `${good.calls} lists`);
  const start = await held();
  for (let first = 1; first <= good.calls; first++) {
    for (const numbers of [[first], [first, first + 1, first + 2]]) {
      const after = await train(how, 'batchExecuteAll', numbers);
      assert.deepEqual(after.numbers, good.numbers, `calls ${numbers} of ${good.calls}`);
    }
  }
  assert.deepEqual(await held(), start);
});
