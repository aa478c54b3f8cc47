// The permuted 16-bit copy of parameters. No device of these tests has a kernel that reads it, so a stand-in restores the natural order and
// multiplies. Training with it gives the same bits as training without it.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { columnOf } from '../../kernels/hopper/layout.mjs';
import {
  F,
  accumulate,
  autocast,
  checkpoint,
  compile,
  manualSeed,
  memory,
  nn,
  noGrad,
  optim,
  randn,
  scope,
  tensor,
} from '../../nn/index.mjs';
import { map } from '../../nn/core/codegen.mjs';
import { denseLayout, layoutOf } from '../../nn/core/layout.mjs';
import { PASSES } from '../../nn/compile/passes/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { childJson } from '../lib/child.mjs';
import { Random } from '../lib/random.mjs';
import { seed } from '../lib/random-data.mjs';
import { initDevice } from './setup.mjs';

/** Whether products take permuted weights now, and the arguments of those that were asked about. */
let takes = (/** @type {any} */ _args, /** @type {boolean} */ _orSlower) => false;
/** Whether products take activations now. */
let activates = true;
/** What is restored. @type {any} */
let own;

/** Products of halves by those of f32, which every device has. */
function standIn() {
  const { kernels } = runtime();
  const { context, matmul, matmulSupports, matmulGroupSaving, matmulGlu, matmulGluBackward, takesPermuted } = kernels;
  const { matmulActivation, matmulActivationBackward, takesActivation } = kernels;
  own = { matmul, matmulSupports, matmulGroupSaving, matmulGlu, matmulGluBackward, takesPermuted };
  Object.assign(own, { matmulActivation, matmulActivationBackward, takesActivation });
  /** @param {string} name @param {any} x @param {number} count @param {any} type @param {boolean} permuted */
  const single = (name, { buffer, offset = 0 }, count, type, permuted) => {
    const y = context.workspace(`${name} as f32`, 4 * count);
    if (!permuted) return { y, dispatches: [kernels.cast({ x: { buffer, offset }, y, count, from: type, to: 'f32' })] };
    assert.equal(count % 32, 0);
    const natural = context.workspace(`${name} in natural order`, 2 * count);
    const shape = [count / 32, 4, 4];
    const permute = map(
      context,
      [{ buffer, offset: offset / 2, layout: layoutOf(shape, [16, 1, 4], 0, 'u32') }],
      [{ buffer: natural, offset: 0, layout: denseLayout(shape, 'u32') }],
      (_, values) => values,
    );
    return { y, dispatches: [permute, kernels.cast({ x: natural, y, count, from: type, to: 'f32' })] };
  };
  const halfProduct = (/** @type {any} */ { bPermuted, ...args }) => {
    const { m, n, k, transA, transB, aType = 'f32', cType = 'f32', batch = 1 } = args;
    if (aType === 'f32' || batch !== 1) return matmul(args);
    const { lda = transA ? m : k, ldb = transB ? k : n, beta = 0 } = args;
    assert.ok(cType === 'f32' || beta === 0);
    const a = single('a', args.a, (transA ? k : m) * lda, aType, false);
    const b = single('b', args.b, (transB ? n : k) * ldb, aType, bPermuted);
    const c = cType === 'f32' ? args.c : { buffer: context.workspace('c as f32', 4 * m * n), offset: 0 };
    const product = matmul({ ...args, a: a.y, b: b.y, c, aType: 'f32', bType: 'f32', cType: 'f32', precision: 'f32' });
    const result = cType === 'f32' ? [] : [kernels.cast({ x: c, y: args.c, count: m * n, from: 'f32', to: cType })];
    return [...a.dispatches, ...b.dispatches, ...product, ...result];
  };
  const change = {
    matmul: halfProduct,
    matmulSupports: () => true,
    matmulGroupSaving: () => undefined,
    matmulGlu: (/** @type {any} */ { a, b, bPermuted, gateUp, y, m, columns, k, type, activation }) => [
      ...halfProduct({ a, b, bPermuted, c: gateUp, m, n: 2 * columns, k, transB: true, aType: type, bType: type, cType: type }),
      kernels.gluForward({ gateUp, y, rows: m, columns, activation, type }),
    ],
    matmulGluBackward: (/** @type {any} */ { a, b, bPermuted, gateUp, dGateUp, dy, m, columns, k, type, activation }) => [
      ...halfProduct({ a, b, bPermuted, c: dy, m, n: columns, k, aType: type, bType: type, cType: type }),
      kernels.gluBackward({ gateUp, dy, dGateUp, rows: m, columns, activation, type }),
    ],
    matmulActivation: (/** @type {any} */ { a, b, bPermuted, bias, x, y, m, n, k, type, activation }) => [
      ...halfProduct({ a, b, bPermuted, bias, c: x, m, n, k, transB: true, aType: type, bType: type, cType: type }),
      kernels.activationForward({ x, y, count: m * n, activation, type }),
    ],
    matmulActivationBackward: (/** @type {any} */ { a, b, bPermuted, x, dx, dy, m, n, k, type, activation }) => [
      ...halfProduct({ a, b, bPermuted, c: dy, m, n, k, aType: type, bType: type, cType: type }),
      kernels.activationBackward({ x, dy, dx, count: m * n, activation, type }),
    ],
    takesActivation: (/** @type {any} */ args) => {
      for (const name of ['a', 'b', 'c']) assert.ok(Number.isInteger(args[name].buffer), name);
      assert.ok(args.unit === 'forward' ? args.half && args.transB : args.unit === 'backward' && args.slopeOf);
      return activates;
    },
    takesPermuted: (/** @type {any} */ args, orSlower = false) => {
      // As the kernels in PTX are asked: by the sizes, types and operands of a product.
      for (const name of ['m', 'n', 'k']) assert.ok(Number.isInteger(args[name]), name);
      for (const name of ['aType', 'bType']) assert.match(args[name], /^b?f16$/);
      for (const name of ['a', 'b', 'c']) assert.ok(Number.isInteger(args[name].buffer), name);
      return takes(args, orSlower);
    },
  };
  Object.assign(kernels, change);
}

before(() => {
  initDevice();
  standIn();
});
after(() => void Object.assign(runtime().kernels, own));

/** What the kernels take: whole blocks of 32 in both sizes of B, for SwiGLU in gates and in ups. @param {any} args */
const blocks = ({ n, k, glu }) => (glu === 'forward' ? n / 2 : n) % 32 === 0 && k % 32 === 0;

/** Attention-free layers: some of sizes that are whole blocks of 32, and a head that is not. */
function network() {
  manualSeed(11);
  return new nn.Sequential(new nn.Linear(32, 64), new nn.RMSNorm(64), new nn.SwiGLU(64, 96), new nn.Linear(64, 32), new nn.Linear(32, 20));
}
/** @typedef {ReturnType<typeof network>} Network */

/**
 * Checks the copies of an optimizer's buckets that are up to date against the parameters.
 * @param {any} opt
 * @returns {Promise<string[]>} which copies were checked
 */
async function checkCopies(opt, where = '') {
  const device = runtime();
  const found = [];
  for (const { half, values: flat } of opt.buckets) {
    const read = async (/** @type {any} */ storage) => {
      device.flush();
      const bytes = await device.vk.readAsync(storage.allocation.handle, 0, 2 * flat.size);
      return new Uint16Array(bytes.buffer, bytes.byteOffset, flat.size);
    };
    if (!half?.fresh && !half?.permuted?.fresh) continue;
    const converted = flat.to(half.dtype);
    const natural = await read(converted.storage);
    if (half.fresh) {
      assert.deepEqual(await read(half.storage), natural, `in natural order, ${where}`);
      found.push('natural');
    }
    if (!half.permuted?.fresh) continue;
    assert.deepEqual(
      await read(half.permuted.storage),
      natural.map((_, i) => natural[columnOf(i)]),
      `permuted, ${where}`,
    );
    found.push('permuted');
  }
  return found;
}

/** Counts how often permuted copies are made anew. @param {any} opt */
function countRefreshes(opt) {
  const counter = { count: 0 };
  for (const { half } of opt.buckets) {
    if (!half?.permuted) continue;
    const { permuted } = half;
    const write = permuted.write.bind(permuted);
    permuted.write = () => {
      counter.count++;
      write();
    };
  }
  return counter;
}

/** @param {number} i @param {number} [factor] */
const batch = (i, factor = 1) =>
  tensor(
    Float32Array.from({ length: 2 * 6 * 32 }, (_, k) => factor * Math.sin(0.37 * k + i)),
    { shape: [2, 6, 32] },
  );

const weights = async (/** @type {Network} */ model) => {
  const all = [];
  for (const [, parameter] of Object.entries(model.stateDict())) all.push(...(await parameter.toArray()));
  return all;
};

/**
 * Steps of a compiled function with two backward passes and the optimizer's step, among everything else that changes parameters.
 * @param {'f16' | 'bf16'} dtype @param {(args: any) => boolean} which products take permuted weights
 */
async function train(dtype, which, { groups = false, passes = PASSES } = {}) {
  takes = which;
  const model = network();
  const parameters = model.parameters();
  const params = groups ? [{ params: parameters.slice(0, 2), weightDecay: 0 }, { params: parameters.slice(2) }] : parameters;
  const opt = new optim.AdamW(/** @type {any} */ (params), { lr: 0.02, clip: 1 });
  const lossOf = (/** @type {any} */ x) =>
    autocast(dtype, () =>
      checkpoint((input) => model.forward(input), x)
        .square()
        .mean(),
    );
  const step = (/** @type {any} */ x) => {
    const loss = accumulate(2, (i) => lossOf(x.at(i)));
    opt.step();
    return loss;
  };
  const f = compile(step, { passes });
  const evaluate = compile((/** @type {any} */ x) => noGrad(() => autocast(dtype, () => model.forward(x))), { passes });
  const random = new Random(seed);
  const results = [];
  for (let i = 0; i < 16; i++) {
    const action = i < 2 ? 9 : random.below(7);
    if (action === 0) noGrad(() => void model.at(0).weight.mul_(0.9));
    if (action === 1)
      model.loadStateDict(Object.fromEntries(Object.entries(model.stateDict()).map(([name, t]) => [name, t.mul(1.01).detach()])));
    if (action === 2) results.push(...(await scope(() => evaluate(batch(i).at(0)).to('f32')).toArray()));
    // Eagerly, where nobody takes a permuted copy: it stays up to date all the same.
    if (action === 3) results.push(await scope(() => step(batch(i))).item());
    // Its gradients are not finite: the step changes nothing.
    const factor = action === 4 ? Infinity : 1;
    const loss = await scope(() => f(batch(i, factor))).item();
    if (factor === 1) results.push(loss);
    const found = await checkCopies(opt, `step ${i}, action ${action}, seed ${seed}`);
    const expected = opt.buckets.some(({ half }) => half?.permuted) ? ['natural', 'permuted'] : ['natural'];
    assert.deepEqual(new Set(found), new Set(expected), 'up to date after each step');
  }
  const [explained] = f.explain();
  results.push(...(await weights(model)));
  const permuted = opt.buckets.filter(({ half }) => half?.permuted).length;
  for (const each of [f, evaluate, opt, model]) each.dispose();
  return { results, permuted, products: explained.found['products by permuted weights'] ?? 0 };
}

for (const dtype of /** @type {const} */ (['bf16', 'f16'])) {
  test(`${dtype}: training by permuted weights gives the bits of training without them`, async () => {
    const without = await train(dtype, () => false);
    assert.deepEqual([without.products, without.permuted], [0, 0], 'nobody takes one: there is none');
    const all = await train(dtype, blocks);
    // Forward, again for the gradient, and each gradient but that of the first layer's input; the head has no whole blocks.
    assert.deepEqual([all.products, all.permuted], [2 * (4 + 4 + 3), 1]);
    assert.deepEqual(all.results, without.results);
  });
}

test('some products alone, two buckets, and without the pass', async () => {
  const without = await train('bf16', () => false, { groups: true });
  const some = await train('bf16', ({ glu }) => glu !== undefined, { groups: true });
  assert.deepEqual([some.products, some.permuted], [2 * 3, 1], 'of the bucket whose weights are taken alone');
  assert.deepEqual(some.results, without.results);
  const both = await train('bf16', blocks, { groups: true });
  assert.equal(both.permuted, 2);
  assert.deepEqual(both.results, without.results);
  const left = await train('bf16', blocks, { groups: true, passes: PASSES.filter((name) => name !== 'shuffle') });
  assert.deepEqual([left.products, left.permuted], [0, 0]);
  assert.deepEqual(left.results, without.results);
});

test('a step whose products all read permuted weights keeps no copy in natural order: whatever else reads one makes it anew', async () => {
  const results = [];
  for (const taken of [false, true]) {
    takes = taken ? blocks : () => false;
    manualSeed(12);
    const model = new nn.Sequential(new nn.Linear(32, 64), new nn.SwiGLU(64, 96), new nn.Linear(64, 32));
    const opt = new optim.AdamW(model.parameters(), { lr: 0.02 });
    const forward = (/** @type {any} */ x) => autocast('bf16', () => model.forward(x));
    const step = (/** @type {any} */ x) => {
      const loss = forward(x).square().mean();
      loss.backward();
      opt.step();
      return loss;
    };
    const f = compile(step);
    const evaluate = compile((/** @type {any} */ x) => noGrad(() => forward(x)));
    const [{ bucket }] = model.parameters();
    const own = [];
    for (const [i, how] of ['step', 'step', 'evaluate', 'step', 'eager', 'step', 'wider', 'change', 'step'].entries()) {
      const x = batch(i).at(0);
      if (how === 'step') own.push(await scope(() => f(x)).item());
      if (how === 'wider') own.push(await scope(() => f(batch(i))).item());
      if (how === 'eager') own.push(await scope(() => step(x)).item());
      if (how === 'change') noGrad(() => void model.at(0).weight.mul_(0.9));
      if (how === 'evaluate') own.push(...(await scope(() => evaluate(x).to('f32')).toArray()));
      const { half } = /** @type {import('../../nn/optim/bucket.mjs').Bucket} */ (bucket);
      // A graph that reads weights in natural order, as that of an evaluation where no product takes others, holds their memory.
      if (i < 2) assert.equal(half?.memory.reserved, !taken, `${how} ${i}`);
      if (taken && (how === 'step' || how === 'wider'))
        assert.deepEqual([half?.fresh, half?.permuted?.fresh], [false, true], `${how} ${i}`);
      await checkCopies(opt, `${how} ${i}`);
    }
    results.push([...own, ...(await weights(model))]);
    for (const each of [f, evaluate, opt, model]) each.dispose();
  }
  assert.deepEqual(results[1], results[0]);
});

test('in whatever graphs a step is: the copy is written by the step, and made anew for the first one alone', async () => {
  /** @type {any[]} */
  const results = [];
  for (const taken of [false, true]) {
    for (const how of ['one graph', 'two graphs', 'an eager step', 'an evaluation first']) {
      takes = taken ? blocks : () => false;
      const model = network();
      const opt = new optim.AdamW(model.parameters(), { lr: 0.02 });
      const gradients = (/** @type {any} */ x) => {
        const loss = autocast('bf16', () => model.forward(x))
          .square()
          .mean();
        loss.backward();
        return loss;
      };
      const forward = compile((/** @type {any} */ x) => noGrad(() => autocast('bf16', () => model.forward(x))));
      if (how === 'an evaluation first') scope(() => void forward(batch(0).at(0)));
      const [backward, update] = [compile(gradients), compile(() => opt.step())];
      const whole = compile((/** @type {any} */ x) => {
        gradients(x);
        opt.step();
      });
      const step = (/** @type {any} */ x) => {
        if (how === 'one graph' || how === 'an evaluation first') whole(x);
        else {
          backward(x);
          if (how === 'two graphs') update();
          else opt.step();
        }
      };
      scope(() => step(batch(0).at(0)));
      const refreshes = countRefreshes(opt);
      for (let i = 1; i < 5; i++) {
        scope(() => step(batch(i).at(0)));
        assert.deepEqual(await checkCopies(opt, how), taken ? ['natural', 'permuted'] : ['natural'], how);
      }
      assert.equal(refreshes.count, 0, how);
      noGrad(() => void model.at(0).weight.mul_(0.9));
      scope(() => step(batch(5).at(0)));
      assert.equal(refreshes.count, taken ? 1 : 0, how);
      results.push(await weights(model));
      for (const each of [forward, backward, update, whole, opt, model]) each.dispose();
    }
  }
  assert.deepEqual(results.slice(4), results.slice(0, 4));
});

test('steps in other types between those that read permuted weights alone', async () => {
  const losses = async (/** @type {string} */ kinds) => {
    manualSeed(12);
    const model = new nn.Sequential(new nn.Linear(32, 64), new nn.SwiGLU(64, 96), new nn.Linear(64, 32));
    const opt = new optim.AdamW(model.parameters(), { lr: 0.02 });
    const step = (/** @type {'bf16' | 'f16' | false} */ type) => (/** @type {any} */ x) => {
      const loss = autocast(type, () => model.forward(x).to('f32').square().mean());
      loss.backward();
      opt.step();
      return loss;
    };
    /** @type {Record<string, any>} */
    const steps = { b: compile(step('bf16')), h: compile(step('f16')), f: compile(step(false)), e: step(false) };
    const own = [];
    for (const [i, kind] of [...kinds].entries()) own.push(await scope(() => steps[kind](batch(i).at(0))).item());
    for (const each of [steps.b, steps.h, steps.f, opt, model]) each.dispose();
    return own;
  };
  for (const kinds of ['bbebb', 'bbfbb', 'bbhbb']) {
    takes = () => false;
    const natural = await losses(kinds);
    takes = blocks;
    assert.deepEqual(await losses(kinds), natural, kinds);
  }
});

test('with a process group: written by the whole step of each process, and made anew behind the gather of ZeRO-1', async () => {
  // Of one process, so that collectives have nothing to do.
  const nothing = () => undefined;
  const processGroup = { rank: 0, worldSize: 1, allReduce: nothing, reduceScatter: nothing, allGather: nothing, broadcast: nothing };
  /** @type {any[]} */
  const results = [];
  for (const zero of /** @type {const} */ ([0, 1])) {
    for (const which of [() => false, blocks]) {
      takes = which;
      const model = network();
      const opt = new optim.AdamW(model.parameters(), { lr: 0.02, clip: 1, processGroup, zero });
      const backward = compile((/** @type {any} */ x) =>
        autocast('bf16', () => model.forward(x))
          .square()
          .mean()
          .backward(),
      );
      const step = (/** @type {number} */ i) => {
        scope(() => void backward(batch(i).at(0)));
        opt.step();
      };
      step(0);
      const refreshes = countRefreshes(opt);
      for (let i = 1; i < 4; i++) step(i);
      assert.equal(refreshes.count, which === blocks && zero ? 3 : 0, `zero ${zero}`);
      results.push(await weights(model));
      for (const each of [backward, opt, model]) each.dispose();
    }
  }
  assert.deepEqual(results[1], results[0]);
  assert.deepEqual(results[3], results[2]);
});

test('parameters that a compiled function changes itself between products', async () => {
  const results = [];
  for (const which of [() => false, blocks]) {
    takes = which;
    const model = network();
    const opt = new optim.AdamW(model.parameters(), { lr: 0.02 });
    const f = compile(
      (/** @type {any} */ x) => {
        const first = autocast('bf16', () => model.forward(x))
          .square()
          .mean();
        noGrad(() => void model.at(0).weight.mul_(0.9));
        const second = autocast('bf16', () => model.forward(x))
          .square()
          .mean();
        second.backward();
        opt.step();
        return [
          first.detach(),
          second.detach(),
          noGrad(() =>
            autocast('bf16', () => model.forward(x))
              .square()
              .mean(),
          ),
        ];
      },
      // Fusing drops roundings to 16 bits where they stand.
      { passes: ['shuffle', 'schedule'] },
    );
    for (let i = 0; i < 4; i++) for (const loss of scope(() => f(batch(i).at(0)))) results.push(await loss.item());
    results.push(...(await weights(model)));
    for (const each of [f, opt, model]) each.dispose();
  }
  assert.deepEqual(results.splice(results.length / 2), results);
});

test('eager steps over several runs of a bucket', async () => {
  takes = () => false;
  const model = network();
  const unused = new nn.Parameter(randn([5, 7]));
  const opt = new optim.AdamW([model.at(0).weight, unused, ...model.parameters().slice(1)], { lr: 0.02, clip: 1 });
  model.at(3).weight.requiresGrad_(false);
  const lossOf = (/** @type {any} */ x) =>
    autocast('bf16', () => model.forward(x))
      .square()
      .mean();
  scope(() => noGrad(() => lossOf(batch(0).at(0))));
  const permuted = opt.buckets[0].half?.permutedCopy();
  permuted?.refresh();
  for (let i = 0; i < 4; i++) {
    if (i === 3) model.at(3).weight.requiresGrad_();
    scope(() => {
      lossOf(batch(i).at(0)).backward();
      opt.step();
    });
    assert.deepEqual(await checkCopies(opt), ['natural', 'permuted']);
  }
  for (const each of [opt, model]) each.dispose();
});

test('which operands are taken: B alone, a parameter itself, of rows that are whole blocks', () => {
  const [weight, odd] = [new nn.Parameter(randn([96, 64])), new nn.Parameter(randn([64, 48]))];
  const opt = new optim.AdamW([weight, odd]);
  const [x, y, z] = [randn([6, 64]), randn([6, 96]), randn([6, 48])];
  /** @type {[name: string, f: () => any, products: number][]} */
  const cases = [
    ['a linear layer', () => F.linear(x, weight), 1],
    ['columns', () => F.matmul(y, weight), 1],
    ['as A', () => F.matmul(weight, x.transpose(0, 1)), 0],
    ['a view, which is converted by itself', () => F.matmul(x, weight.transpose(0, 1)), 0],
    ['what is made of it', () => F.linear(x, weight.mul(2)), 0],
    ['rows of 48', () => F.linear(z, odd), 0],
    ['columns of rows of 48', () => F.matmul(x, odd), 0],
  ];
  takes = () => true;
  for (const [name, f, products] of cases) {
    const compiled = compile(() => noGrad(() => autocast('bf16', f)));
    scope(() => void compiled());
    assert.equal(compiled.explain()[0].found['products by permuted weights'] ?? 0, products, name);
    compiled.dispose();
  }
  opt.dispose();
});

test('its memory goes with the optimizer, or with the last graph that reads it', () => {
  takes = blocks;
  const device = runtime();
  // Workspaces of the stand-in.
  const x = randn([6, 32]);
  /** @returns {ReturnType<typeof memory>} after */
  const cycle = () => {
    const model = network();
    const opt = new optim.AdamW(model.parameters());
    const f = compile((/** @type {any} */ x) => noGrad(() => autocast('bf16', () => model.forward(x))));
    scope(() => void f(x));
    const { permuted } = /** @type {any} */ (opt.buckets[0].half);
    opt.dispose();
    assert.ok(permuted.storage.allocation.live, 'the graph reads it');
    noGrad(() => void model.at(0).weight.mul_(2));
    scope(() => void f(x));
    assert.ok(permuted.fresh);
    f.dispose();
    assert.ok(!permuted.storage.allocation.live);
    model.dispose();
    device.flush();
    return memory();
  };
  const before = memory();
  assert.deepEqual(cycle(), before);
  x.dispose();
});

test('the GPT on a stub of an H200 that takes PTX: every product by a weight, where the table has all, in as many dispatches', async () => {
  const { steps, products } = await childJson(
    `
    const { configOf } = await import('${new URL('../../packages/lm/src/train/settings.mjs', import.meta.url)}');
    const { createTraining } = await import('${new URL('../../packages/lm/src/train/trainer.mjs', import.meta.url)}');
    const { Decoder } = await import('${new URL('../../packages/lm/src/model/decoder.mjs', import.meta.url)}');
    const { compile, nn } = await import('${new URL('../../nn/index.mjs', import.meta.url)}');
    const { PASSES } = await import('${new URL('../../nn/compile/passes/index.mjs', import.meta.url)}');
    const { openPtx } = await import('${new URL('on-stub.mjs', import.meta.url)}');
    const kernels = openPtx();
    const products = new Set();
    for (const name of ['matmul', 'matmulGlu', 'matmulGluBackward']) {
      const kernel = kernels[name];
      kernels[name] = (args) => {
        if (args.bPermuted) products.add(name + ' ' + (args.transB ? 'NT ' : '') + (args.n ?? args.columns) + 'x' + args.k);
        return kernel(args);
      };
    }
    const { model: sizes, settings: run } = configOf('gpt-300m', { precision: 'bf16', layers: 2, batchSize: 16, gradientAccumulationSteps: 1 });
    const steps = [PASSES.filter((name) => name !== 'shuffle'), PASSES].map((passes) => {
      const model = nn.skipInit(() => new Decoder(sizes));
      const training = createTraining(model, run, { logitsBytes: 2 ** 30 });
      const step = compile(training.step, { passes });
      step(new Uint32Array(2 * run.batchSize * run.blockSize)).dispose();
      const { dispatches, planned, found } = step.explain()[0];
      for (const each of [step, training.opt, model]) each.dispose();
      return { dispatches, planned, products: found['products by permuted weights'] ?? 0 };
    });
    process.stdout.write(JSON.stringify({ steps, products: [...products] }));
  `,
    { timeout: 600_000 },
  );
  const [without, by] = steps;
  // Four products of each layer, each forward and for the gradient of its input, and the loss's logits.
  assert.deepEqual([without.products, by.products], [0, 2 * (2 * 4) + 1]);
  assert.deepEqual({ ...by, products: 0 }, without);
  assert.deepEqual(
    new Set(products),
    new Set([
      ...['matmul NT 3072x1024', 'matmul NT 1024x1024', 'matmulGlu 2752x1024', 'matmul NT 1024x2752', 'matmul NT 17408x1024'],
      ...['matmul 1024x3072', 'matmul 1024x1024', 'matmul 1024x5504', 'matmulGluBackward 2752x1024'],
    ]),
  );
});

/** What a compiled step of two layers with an activation between them and a tied output learns. @param {'gelu' | 'silu'} activation @param {'f16' | 'bf16'} dtype */
async function trainActivated(activation, dtype, { passes = PASSES, biased = true } = {}) {
  manualSeed(3);
  const table = new nn.Embedding(64, 32);
  const [up, down] = [new nn.Linear(32, 64, { bias: biased }), new nn.Linear(64, 32, { bias: biased })];
  const opt = new optim.AdamW(
    [table, up, down].flatMap((module) => module.parameters()),
    { lr: 0.02 },
  );
  const ids = tensor(
    Uint32Array.from({ length: 24 }, (_, i) => (7 * i) % 64),
    { shape: [2, 12] },
  );
  const f = compile(
    () => {
      const loss = autocast(dtype, () => {
        const x = down.forward(F[activation](up.forward(table.forward(ids))));
        return F.linearCrossEntropy(x, table.weight, ids, { logitsBytes: 10 * 2 * 64 });
      });
      loss.backward();
      opt.step();
      return loss.detach();
    },
    { passes },
  );
  const losses = [];
  for (let i = 0; i < 5; i++) losses.push(await scope(() => f()).item());
  return { losses, found: f.explain()[0].found };
}

for (const activation of /** @type {const} */ (['gelu', 'silu'])) {
  for (const dtype of /** @type {const} */ (['bf16', 'f16'])) {
    test(`${activation} of ${dtype} is computed with the product before it, and its gradient with the product of gradients`, async () => {
      takes = () => false;
      for (const biased of [true, false]) {
        activates = true;
        const own = await trainActivated(activation, dtype, { biased });
        assert.equal(own.found['product and activation'], 1);
        assert.equal(own.found["product and activation's gradient"], 1);
        const plain = await trainActivated(activation, dtype, { biased, passes: [] });
        own.losses.forEach((loss, i) =>
          assert.ok(Math.abs(loss - plain.losses[i]) < 0.01 * plain.losses[0], `${own.losses} ${plain.losses}`),
        );
        activates = false;
        const apart = await trainActivated(activation, dtype, { biased });
        assert.equal(apart.found['product and activation'], undefined);
        assert.equal(apart.found["product and activation's gradient"], undefined);
      }
      activates = true;
    });
  }
}

test('products with activations, and those of logits, read permuted weights', async () => {
  /** @type {any[]} */
  const asked = [];
  const natural = await trainActivated('gelu', 'bf16');
  takes = (args) => {
    asked.push(args);
    return blocks(args);
  };
  const permuted = await trainActivated('gelu', 'bf16');
  takes = () => false;
  assert.deepEqual(permuted.losses, natural.losses);
  assert.deepEqual(
    asked.filter(({ unit }) => unit).map(({ unit }) => unit),
    ['forward', 'backward'],
  );
  // Both products of the layers, the two with activations among them, the gradients of layers' inputs, and the logits.
  assert.equal(permuted.found['products by permuted weights'], 5);
});

/**
 * Steps of a group of one whose parameters are sharded: layers are units, gathered in the order that their products take.
 * @param {'f16' | 'bf16'} dtype @param {(args: any, orSlower: boolean) => boolean} which
 */
async function trainSharded(dtype, which) {
  takes = which;
  const model = network();
  const none = () => 0;
  const processGroup = { rank: 0, worldSize: 1, allReduce: none, reduceScatter: none, allGather: none, broadcast: none };
  for (const layer of model) if (layer instanceof nn.SwiGLU || layer instanceof nn.Linear) nn.fullyShard(layer);
  const opt = new optim.AdamW(model.parameters(), { lr: 0.02, processGroup, zero: 3 });
  const gradients = compile((/** @type {any} */ x) => accumulate(2, (i) => autocast(dtype, () => model.forward(x.at(i)).square().mean())));
  const results = [];
  for (let i = 0; i < 4; i++) {
    results.push(await scope(() => gradients(batch(i))).item());
    opt.step();
  }
  results.push(...(await weights(model)));
  const [{ found }] = gradients.explain();
  for (const each of [gradients, opt, model]) each.dispose();
  return { results, products: found['products by permuted weights'] ?? 0 };
}

test('weights that are gathered for a layer are permuted if a product is faster and all can take them so, with the same bits', async () => {
  for (const dtype of /** @type {const} */ (['bf16', 'f16'])) {
    const expected = await trainSharded(dtype, () => false);
    assert.equal(expected.products, 0);
    const forward = (/** @type {any} */ args) => blocks(args) && (args.transB || args.glu === 'forward');
    // The forward pass and the backward pass, which computes the layer again, gather by themselves.
    const some = await trainSharded(dtype, forward);
    const others = await trainSharded(dtype, (args, orSlower) => forward(args) || (orSlower && blocks(args)));
    const all = await trainSharded(dtype, blocks);
    const none = await trainSharded(dtype, (args, orSlower) => orSlower && blocks(args));
    const counts = [none, some, others, all].map(({ products }) => products);
    // Those that are no faster go along with those that are; of a linear layer there is nothing to compute again, so they are alone there.
    assert.ok(counts[0] === 0 && counts[1] > 0 && counts[2] > counts[1] && counts[3] > counts[2], `${counts}`);
    for (const { results } of [some, others, all]) assert.deepEqual(results, expected.results);
  }
});
