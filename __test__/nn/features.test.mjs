// autocast, accumulate, checkpoint, customOp, save and load, LoRA.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import {
  F,
  Tensor,
  accumulate,
  autocast,
  cat,
  checkpoint,
  compile,
  customFunction,
  grad,
  load,
  manualSeed,
  memory,
  nn,
  noGrad,
  optim,
  randn,
  save,
  scope,
  setFloat32MatmulPrecision,
  tensor,
  zeros,
} from '../../nn/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { childJson } from '../lib/child.mjs';
import { temporaryFolder } from '../lib/folder.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

/** @param {Tensor | undefined} x */
const values = async (x) => [...(await /** @type {Tensor} */ (x).toArray())];

test('autocast: products in 16 bits, losses and norms in f32, gradients of f32 parameters in f32', async () => {
  manualSeed(1);
  const model = new nn.Linear(8, 4);
  const norm = new nn.RMSNorm(4);
  const x = randn([6, 8]);
  const [y, z, loss] = autocast('bf16', () => {
    const y = model.forward(x);
    return [y, norm.forward(y), F.mseLoss(y, zeros([6, 4]))];
  });
  assert.deepEqual([y.dtype, z.dtype, loss.dtype, model.forward(x).dtype], ['bf16', 'f32', 'f32', 'f32']);
  assertClose(await y.toArray(), Float64Array.from(await model.forward(x).toArray()), 0.02, 'bf16 product');
  loss.backward();
  assert.equal(model.weight.grad?.dtype, 'f32');
  const rounded = await values(model.weight.grad);
  model.zeroGrad();
  F.mseLoss(model.forward(x), zeros([6, 4])).backward();
  assertClose(rounded, Float64Array.from(await values(model.weight.grad)), 0.02, 'gradient');
  assert.equal(
    autocast('bf16', () => autocast(false, () => model.forward(x).dtype)),
    'f32',
  );
  assert.throws(() => autocast(/** @type {any} */ ('f64'), () => x), /expected 'bf16', 'f16' or false, got f64/);
  assert.throws(() => autocast('bf16', async () => {}), /autocast: the function is async/);
});

test('products of halves whose sizes are odd, with bias and gradients; large ones stay on matrix units', async () => {
  for (const dtype of /** @type {const} */ (['bf16', 'f16'])) {
    if (!runtime().kernels.matmulSupports(dtype)) continue;
    for (const [m, k, n] of [
      [3, 5, 7],
      [65, 33, 17],
      [8, 7, 6],
      [6, 8, 7],
    ]) {
      const [x, w, bias, g] = [randn([m, k]), randn([n, k]), randn([n]), randn([m, n])];
      const of = (/** @type {'f32' | 'bf16' | 'f16'} */ type) => {
        const inputs = [x.to(dtype).to(type), w.to(dtype).to(type), bias.clone()];
        for (const input of inputs) input.requiresGrad = true;
        const y = F.linear(inputs[0], inputs[1], inputs[2]);
        const z = F.matmul(inputs[0], F.transpose(inputs[1], 0, 1));
        F.sum(y.to('f32').mul(g).add(z.to('f32').mul(g))).backward();
        return [y, z, ...inputs.map((input) => /** @type {Tensor} */ (input.grad))];
      };
      const [got, want] = [of(dtype), of('f32')];
      for (const [i, tensor] of got.entries()) {
        assertClose(
          await tensor.to('f32').toArray(),
          Float64Array.from(await want[i].toArray()),
          dtype === 'bf16' ? 0.02 : 3e-3,
          `${dtype} ${i}`,
        );
      }
    }
    const large = [645, 647].map((rows) => randn([rows, 645]).to(dtype));
    const product = compile((/** @type {Tensor} */ a, /** @type {Tensor} */ b) => F.linear(a, b));
    const y = await scope(() => product(large[0], large[1]).to('f32')).toArray();
    const [{ dispatches }] = product.explain();
    // Kernels in PTX take copies of both, whose rows are longer, and the result is copied back.
    assert.equal(dispatches, runtime().kernels.context.info.hasPtx ? 4 : 1, 'nothing is cast');
    const [a, b] = await Promise.all(large.map((x) => x.to('f32').toArray()));
    for (const [i, j] of [
      [0, 0],
      [644, 646],
      [101, 333],
    ]) {
      let sum = 0;
      for (let l = 0; l < 645; l++) sum += a[i * 645 + l] * b[j * 645 + l];
      assertClose([y[i * 647 + j]], Float64Array.of(sum), dtype === 'bf16' ? 0.02 : 3e-3, `${dtype} at ${i}, ${j}`);
    }
    product.dispose();
  }
});

test('autocast converts a parameter that is used twice once, and again after it has changed', async () => {
  const w = new nn.Parameter(
    tensor([
      [1, 2],
      [3, 4],
    ]),
  );
  const x = tensor([
    [1, 0],
    [0, 1],
  ]);
  const y = autocast('bf16', () => {
    const a = F.linear(x, w);
    const b = F.linear(a, w);
    noGrad(() => w.mul_(2));
    return [a, b, F.linear(x, w)];
  });
  assert.deepEqual(await values(y[2]), [2, 6, 4, 8]);
  // Twice within one autocast: the second backward pass converts anew.
  autocast('bf16', () => {
    for (let i = 0; i < 2; i++) F.linear(x, w).sum().backward();
  });
  assert.deepEqual(await values(w.grad), [2, 2, 2, 2]);
});

test('accumulate: the gradients and the loss of one batch', async () => {
  manualSeed(2);
  const model = new nn.Sequential(new nn.Linear(5, 7), new nn.Tanh(), new nn.Linear(7, 2));
  const [x, t] = [randn([4, 3, 5]), randn([4, 3, 2])];
  const whole = F.mseLoss(model.forward(x), t);
  whole.backward();
  const expected = await Promise.all(model.parameters().map(({ grad }) => values(grad)));
  model.zeroGrad();
  const loss = accumulate(4, (i) => F.mseLoss(model.forward(x.at(i)), t.at(i)));
  assert.ok(Math.abs((await loss.item()) - (await whole.item())) < 1e-6);
  for (const [i, { grad }] of model.parameters().entries())
    assertClose(await values(grad), Float64Array.from(expected[i]), 1e-5, `parameter ${i}`);
  assert.throws(() => accumulate(0, () => whole), /count must be an integer of at least 1/);
  const opt = new optim.SGD(model.parameters(), { lr: 0.1 });
  const step = compile((/** @type {any} */ a, /** @type {any} */ b) => {
    const sum = accumulate(4, (i) => F.mseLoss(model.forward(a.at(i)), b.at(i)));
    opt.step();
    return sum;
  });
  const losses = [];
  for (let i = 0; i < 3; i++) losses.push(await step(x, t).item());
  assert.ok(losses[2] < losses[1] && losses[1] < losses[0], `${losses}`);
});

test('checkpoint: the same bits as without, of parameters, inputs and what lies between; with dropout too', async () => {
  for (const dropped of [false, true]) {
    const run = async (/** @type {boolean} */ kept) => {
      manualSeed(3);
      const [first, second] = [new nn.Linear(6, 8), new nn.Linear(8, 6)];
      const drop = new nn.Dropout(0.5);
      const x = randn([5, 6], { requiresGrad: true });
      const scale = tensor([2], { requiresGrad: true });
      const outer = scale.mul(3);
      const block = (/** @type {Tensor} */ h) => {
        const y = second.forward(F.gelu(first.forward(h))).mul(outer);
        return dropped ? drop.forward(y) : y;
      };
      let h = x.mul(1.5);
      for (let i = 0; i < 3; i++) h = h.add(kept ? block(h) : checkpoint(block, h));
      h.square().mean().backward();
      return Promise.all([h, x.grad, scale.grad, first.weight.grad, second.bias?.grad].map(values));
    };
    assert.deepEqual(await run(false), await run(true));
  }
});

test('checkpoint: of a gradient of a gradient, by a leaf that the function makes', async () => {
  const w = tensor([2, 3], { requiresGrad: true });
  const penalty = (/** @type {import('../../nn/index.mjs').Tensor} */ v) => {
    const x = v.detach().requiresGrad_();
    const [g] = grad(x.pow(3).mul(w).sum(), [x], { createGraph: true });
    return g.square().sum();
  };
  checkpoint(penalty, tensor([1, 2])).backward();
  assert.deepEqual(await /** @type {any} */ (w.grad).toArray(), Float32Array.of(36, 864));
});

test('grad: createGraph where a leaf was disposed of', async () => {
  const [x, c] = [tensor([2], { requiresGrad: true }), tensor([3], { requiresGrad: true })];
  const y = x.square().mul(c).sum();
  c.dispose();
  const [g] = grad(y, [x], { createGraph: true });
  g.sum().backward();
  assert.deepEqual([await g.item(), await /** @type {any} */ (x.grad).item()], [12, 6]);
});

test('grad: through a step of training, as meta-learning does: values of PyTorch 2.11 in float64', async () => {
  let seed = 1;
  /** @param {number} count */
  const numbers = (count) =>
    Float32Array.from({ length: count }, () => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32 - 0.5);
  const x = tensor(numbers(4 * 2 * 6 * 6), { shape: [4, 2, 6, 6] });
  const [ids, classes] = [tensor(Int32Array.of(1, 0, 2, 1)), tensor(Int32Array.of(2, 0, 1, -100))];
  const shapes = [[3, 2, 3, 3], [3], [3], [3, 4], [31, 10], [5, 3]];
  const weights = shapes.map((shape) => tensor(numbers(shape.reduce((a, b) => a * b)), { shape, requiresGrad: true }));
  /** @param {Tensor[]} weights */
  const loss = ([kernel, scale, shift, table, up, head]) => {
    const y = F.batchNorm(F.conv2d(x, kernel, undefined, { padding: 1 }), undefined, undefined, scale, shift, true);
    const pooled = F.maxPool2d(y.tanh(), 2).reshape(4, -1);
    const hidden = F.glu(cat([pooled, F.embedding(ids, table)], 1).matmul(up), 'silu');
    return F.crossEntropy(hidden.matmul(head), classes, { meanOf: 'kept' });
  };
  /** @param {Tensor[]} own */
  const step = (...own) => {
    const gradients = grad(loss(own), own, { createGraph: true });
    const after = loss(own.map((w, i) => w.sub(gradients[i].mul(0.5))));
    return [after, ...grad(after, own).map((g) => g.square().sum().sqrt())];
  };
  const wanted = [1.0558753385947697, 0.20507237126835684, 0.43710378905061326, 0.21698270166740383];
  wanted.push(0.12121723826629897, 0.28274913487113373, 0.14982346246188202);
  for (const f of [step, compile(step)]) {
    const found = await Promise.all(f(...weights).map((v) => v.item()));
    assertClose(found, wanted, 1e-6, f === step ? 'eager' : 'compiled');
  }
});

test('checkpoint: with grad, compiled, in noGrad; less memory between', async () => {
  const model = new nn.Sequential(...Array.from({ length: 6 }, () => new nn.Linear(32, 32)));
  const block = (/** @type {Tensor} */ h) => model.forward(h).relu();
  const x = randn([64, 32], { requiresGrad: true });
  const [a] = grad(checkpoint(block, x).sum(), [x]);
  const [b] = grad(block(x).sum(), [x]);
  assert.deepEqual(await values(a), await values(b));
  assert.equal(model.parameters()[0].grad, undefined, 'grad leaves none behind');
  const f = compile((/** @type {Tensor} */ y) => grad(checkpoint(block, y).sum(), [y])[0]);
  assert.deepEqual(await values(f(x)), await values(b));
  assert.equal(noGrad(() => checkpoint(block, x)).requiresGrad, false);
  const bytesOf = (/** @type {() => Tensor} */ fn) =>
    scope(() => {
      const start = memory().bytes;
      fn();
      return memory().bytes - start;
    });
  // Without gradients of its own a result is what a scope has to keep.
  const kept = bytesOf(() => scope(() => block(x)));
  const again = bytesOf(() => scope(() => checkpoint(block, x)));
  assert.ok(again < kept / 3, `${again} of ${kept} bytes`);
  assert.throws(() => checkpoint(() => /** @type {any} */ (1), x), /the function must return one tensor/);
});

test('compile: parameters as arguments, noGrad and autocast around the call, an argument changed in place', async () => {
  const w = new nn.Parameter(tensor([[1, 2]]));
  const f = compile((/** @type {any} */ p, /** @type {any} */ x) => F.linear(x, p));
  const x = tensor([[1, 1]]);
  assert.deepEqual(await values(f(w, x)), [3]);
  noGrad(() => w.mul_(2));
  assert.deepEqual(await values(f(w, x)), [6], 'read where it is');
  assert.equal(f.explain().length, 1);
  noGrad(() => f(w, x));
  assert.equal(autocast('bf16', () => f(w, x)).dtype, 'bf16');
  assert.equal(f(w, x).dtype, 'f32');
  assert.equal(f.explain().length, 3);
  assert.throws(
    () => compile((/** @type {any} */ y) => y.mul_(2))(x),
    /changes its tensor argument 0 \[1, 2\] in place, but it has a copy of it/,
  );
  assert.deepEqual(await values(x), [1, 1]);
});

test('compile in autocast reads a parameter that eager code has converted before', async () => {
  const w = new nn.Parameter(tensor([[1, 1]]));
  const x = tensor([[1, 2]]);
  const f = compile((/** @type {any} */ y) => F.linear(y, w).to('f32'));
  for (const expected of [3, 6, 12]) {
    const y = autocast('bf16', () => {
      F.linear(x, w);
      return f(x);
    });
    assert.deepEqual(await values(y), [expected]);
    noGrad(() => w.mul_(2));
  }
});

test('checkpoint in autocast: a weight that is used outside of it, too; backward inside and outside of autocast', async () => {
  const run = async (/** @type {boolean} */ kept, /** @type {boolean} */ inside) => {
    const w = new nn.Parameter(
      tensor([
        [1, 2],
        [3, 4],
      ]),
    );
    const x = tensor([[1, -1]], { requiresGrad: true });
    const block = (/** @type {Tensor} */ h) => F.linear(h, w);
    const y = autocast('bf16', () => {
      const h = F.linear(x, w);
      const sum = (kept ? block(h) : checkpoint(block, h)).sum();
      if (inside) sum.backward();
      return sum;
    });
    if (!inside) y.backward();
    return Promise.all([w.grad, x.grad].map(values));
  };
  for (const inside of [true, false]) assert.deepEqual(await run(false, inside), await run(true, inside));
});

test('modules in arrays have names and parameters', () => {
  class Net extends nn.Module {
    constructor() {
      super();
      this.layers = [new nn.Linear(2, 3), new nn.Linear(3, 2, { bias: false })];
    }
  }
  const net = new Net();
  assert.deepEqual(Object.keys(net.stateDict()), ['layers.0.weight', 'layers.0.bias', 'layers.1.weight']);
  net.eval();
  assert.equal(net.layers[1].training, false);
});

test('numbers that JSON cannot tell apart are different operations', async () => {
  const [a, b, c] = [0, -0, 1.5].map((value) => F.full([1], value));
  const [x, y, z] = await Promise.all([a, b, c].map(values));
  assert.deepEqual([Object.is(x[0], 0), Object.is(y[0], -0), z[0]], [true, true, 1.5]);
});

test('save and load: every type, exactly; a file that is none says what is wrong', async (t) => {
  const dir = temporaryFolder(t);
  const path = join(dir, 'deep', 'state.safetensors');
  const state = {
    half: tensor([1.5, -2, 3e-5], { dtype: 'f16' }),
    brain: tensor([[1, 2, 3]], { dtype: 'bf16' }),
    word: tensor([7, 2 ** 32 - 1], { dtype: 'u32' }),
    sign: tensor([-7], { dtype: 'i32' }),
    yes: tensor([true, false, true]),
    view: tensor([
      [1, 2],
      [3, 4],
    ]).T,
    number: tensor(2.5),
  };
  await save(path, state, { metadata: { step: '3' } });
  const back = await load(path);
  for (const [name, x] of Object.entries(state)) {
    assert.deepEqual([back[name].dtype, back[name].shape, await values(back[name])], [x.dtype, x.shape, await values(x)], name);
  }
  assert.match(readFileSync(path, 'latin1').slice(8), /^\{"__metadata__":\{"helios\.sha256":"[0-9a-f]{64}","step":"3"\}/);
  const model = new nn.Linear(3, 2);
  const opt = new optim.AdamW(model.parameters());
  await save(path, model.stateDict());
  const other = new nn.Linear(3, 2);
  other.loadStateDict(await load(path));
  assert.deepEqual(await values(other.weight), await values(model.weight));
  opt.dispose();
  const bytes = readFileSync(path);
  writeFileSync(path, bytes.subarray(0, bytes.length - 1));
  await assert.rejects(
    load(path),
    new RegExp(`is not a safetensors file: it has ${bytes.length - 1} bytes, its header says ${bytes.length}`),
  );
  writeFileSync(path, Buffer.from('nothing like it'));
  await assert.rejects(load(path), /is not a safetensors file: it says that its header has \d+ bytes, in a file of 15/);
  await assert.rejects(save(path, { a: /** @type {any} */ (1) }), /a is not a tensor/);
  await assert.rejects(save(join(path, 'below'), model.stateDict()), /ENOTDIR|EEXIST/);
  assert.deepEqual(readdirSync(join(dir, 'deep')), ['state.safetensors']);
});

test('load: every byte of the data belongs to one tensor', async (t) => {
  const dir = temporaryFolder(t);
  const path = join(dir, 'by-hand.safetensors');
  /** @param {Record<string, [start: number, end: number]>} offsets of tensors of f32 @param {number} bytes of data */
  const write = (offsets, bytes) => {
    const entries = Object.entries(offsets).map(([name, [start, end]]) => [
      name,
      { dtype: 'F32', shape: [(end - start) / 4], data_offsets: [start, end] },
    ]);
    const text = Buffer.from(JSON.stringify(Object.fromEntries(entries)));
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(text.length));
    const data = Buffer.from(Float32Array.from({ length: bytes / 4 }, (_, i) => i).buffer);
    writeFileSync(path, Buffer.concat([length, text, data]));
  };
  // In any order.
  write({ b: [8, 12], a: [0, 8] }, 12);
  const { a, b } = await load(path);
  assert.deepEqual([[...(await values(a))], [...(await values(b))]], [[0, 1], [2]]);
  write({}, 0);
  assert.deepEqual(await load(path), {});
  for (const [offsets, bytes, message] of /** @type {const} */ ([
    [{ a: [0, 8] }, 20, /is not a safetensors file: 12 bytes after the last tensor belong to no tensor/],
    [{}, 4, /4 bytes after the last tensor/],
    [{ a: [4, 8] }, 8, /4 bytes before a belong to no tensor/],
    [{ b: [12, 16], a: [0, 8] }, 16, /4 bytes before b belong to no tensor/],
    [{ a: [0, 8], b: [4, 12] }, 12, /b, which begins at 4, overlaps a, which ends at 8/],
    [{ a: [0, 8], b: [0, 8] }, 8, /b, which begins at 0, overlaps a, which ends at 8/],
  ])) {
    write(/** @type {any} */ (offsets), bytes);
    await assert.rejects(load(path), { name: 'ArgumentError', message });
  }
});

test('LoRA: the base first, adapters alone are trained, merged they are the weights', async () => {
  manualSeed(4);
  const model = new nn.Sequential(new nn.Linear(4, 6), new nn.ReLU(), new nn.Linear(6, 2));
  const x = randn([3, 4]);
  const base = await values(model.forward(x));
  nn.lora(model, { rank: 2, alpha: 4, targets: /^2$/ });
  assert.deepEqual(await values(model.forward(x)), base);
  const trained = model.parameters().filter((p) => p.requiresGrad);
  assert.deepEqual(
    trained.map(({ shape }) => shape),
    [
      [2, 6],
      [2, 2],
    ],
  );
  const opt = new optim.SGD(trained, { lr: 0.1 });
  for (let i = 0; i < 3; i++) {
    model.forward(x).square().sum().backward();
    opt.step();
  }
  opt.dispose();
  const adapted = await values(model.forward(x));
  assert.notDeepEqual(adapted, base);
  nn.mergeLora(model);
  assert.deepEqual(Object.keys(model.stateDict()), ['0.weight', '0.bias', '2.weight', '2.bias']);
  assertClose(await values(model.forward(x)), Float64Array.from(adapted), 1e-5, 'merged');
  assert.throws(() => nn.lora(model, { targets: /nothing/ }), /no linear layer's name matches/);
});

test('setFloat32MatmulPrecision: products of f32 in three products of bf16, where the device has them', async (t) => {
  for (const bad of ['medium', undefined])
    assert.throws(() => setFloat32MatmulPrecision(/** @type {any} */ (bad)), /expected 'highest' or 'high', got/);
  if (!runtime().kernels.matmulSupports('bf16x3')) {
    assert.throws(() => setFloat32MatmulPrecision('high'), /setFloat32MatmulPrecision: .* has no matrix units for 'high'/);
    t.diagnostic('the device has no matrix units for bf16x3');
    return;
  }
  const [x, w] = [randn([64, 96]), randn([32, 96])];
  const product = compile((/** @type {any} */ a, /** @type {any} */ b) => F.linear(a, b));
  const exact = await values(product(x, w));
  setFloat32MatmulPrecision('high');
  const high = await values(product(x, w));
  assert.notDeepEqual(high, exact, 'another graph');
  // 16 bits of mantissa, of 96 products.
  assertClose(high, Float64Array.from(exact), 1e-3, 'bf16x3');
  setFloat32MatmulPrecision('highest');
  assert.deepEqual(await values(product(x, w)), exact);
});

test("'high' reaches every product of f32, and compiled functions, on a stub of an H200", async () => {
  const { highest, high, again, batched } = await childJson(`
    const { stubDevice } = await import('${new URL('../lib/stub.mjs', import.meta.url)}');
    const { compile, init: open, nn, optim, randn, setFloat32MatmulPrecision } = await import('${new URL('../../nn/index.mjs', import.meta.url)}');
    const stub = stubDevice();
    open({ vk: stub });
    const model = new nn.Linear(128, 64);
    const opt = new optim.SGD(model.parameters());
    const x = randn([32, 128], { requiresGrad: false });
    const step = compile((x) => {
      model.forward(model.forward(x).matmul(model.weight)).square().sum().backward();
      opt.step();
    });
    const products = (run) => {
      run();
      stub.reset();
      run();
      return Object.entries(stub.counts.names).flatMap(([name, count]) => (name.includes('matmul') ? [[name, count]] : []));
    };
    const highest = products(() => step(x));
    setFloat32MatmulPrecision('high');
    const high = products(() => step(x));
    const [a, b] = [randn([3, 32, 64]), randn([3, 64, 32])];
    const both = compile((a, b) => [a.matmul(b), a.at(0).matmul(b.at(0))]);
    const batched = products(() => both(a, b));
    setFloat32MatmulPrecision('highest');
    const again = products(() => step(x));
    process.stdout.write(JSON.stringify({ highest, high, again, batched }));
  `);
  const threefold = (/** @type {[string, number][]} */ products) => products.filter(([name]) => name.includes('bf16x3'));
  assert.deepEqual(threefold(highest), []);
  assert.deepEqual(again, highest);
  assert.deepEqual(threefold(high), high);
  const count = (/** @type {[string, number][]} */ products) => products.reduce((sum, [, n]) => sum + n, 0);
  // Three forward, and the gradients of all weights and of what the second and the third read.
  assert.ok(count(high) >= 8, `${high}`);
  assert.deepEqual(threefold(batched), batched);
  assert.ok(batched.length > 0);
});

test('customFunction: gradients of the program’s own, eager and compiled, of any arguments', async () => {
  const clipped = customFunction({
    forward: (x, limit) => x.round().mul(limit),
    backward: (dy, [x, limit], y) => [dy.clamp(-limit, limit).add(x.mul(y.sign()))],
  });
  const x = () => tensor([0.6, -1.7, 0.2], { requiresGrad: true });
  const expected = [2.6, 3.7, -2];
  const gradient = (/** @type {Tensor} */ own) =>
    grad(
      clipped(own, 2)
        .mul(tensor([5, 2, -3]))
        .sum(),
      [own],
    )[0];
  assertClose(await values(gradient(x())), expected, 1e-6, 'eager');
  assertClose(await values(compile(gradient)(x())), expected, 1e-6, 'compiled');
  const leafX = x();
  checkpoint(
    (/** @type {Tensor} */ v) =>
      clipped(v, 2)
        .mul(tensor([5, 2, -3]))
        .sum(),
    leafX,
  ).backward();
  assertClose(await values(leafX.grad), expected, 1e-6, 'recomputed');
  assert.equal(noGrad(() => clipped(x(), 2)).requiresGrad, false);

  // A result that is an argument, and a gradient of the gradient.
  const reversed = customFunction({ name: 'reverse', forward: (v) => v, backward: (dy) => [dy.mul(-3)] });
  const own = x();
  const [first] = grad(reversed(own.square()).sum(), [own], { createGraph: true });
  assertClose(await values(first), [-3.6, 10.2, -1.2], 1e-6, 'reversed');
  assertClose(await values(grad(first.sum(), [own])[0]), [-6, -6, -6], 1e-6, 'of the gradient');
  const twice = customFunction({ name: 'cube', forward: (v) => v.pow(3), backward: (dy, [v]) => [dy.mul(v.square()).mul(3)] });
  const [once] = grad(twice(own).sum(), [own], { createGraph: true });
  assertClose(await values(grad(once.sum(), [own])[0]), [3.6, -10.2, 1.2], 1e-5, 'through backward');

  // Gradients take the types of their inputs, and saved values must be unchanged.
  const half = customFunction({ name: 'half', forward: (v) => v.to('bf16'), backward: (dy) => [dy] });
  assert.equal(grad(half(own).sum(), [own])[0].dtype, 'f32');
  const leaf = tensor([1, 2], { requiresGrad: true });
  const late = twice(leaf).sum();
  noGrad(() => leaf.mul_(2));
  assert.throws(() => late.backward(), /^UsageError: backward: a tensor \[2\] that cube needs for its gradient was changed in place/);
  const none = customFunction({ name: 'none', forward: (v, w) => v.add(w), backward: (dy) => [undefined, dy.sum()] });
  none(own, leaf.sum()).sum().backward();
  assert.equal(own.grad, undefined);
  assert.deepEqual(await values(leaf.grad), [3, 3]);
  assert.throws(
    () => customFunction({ forward: /** @type {any} */ (async () => own), backward: () => [] }),
    /^ArgumentError: forward: the function is async/,
  );
  const swapped = customFunction({ name: 'swapped', forward: (k, v) => v.mul(k), backward: (dy, [k]) => [dy.mul(k)] });
  assert.throws(
    () => swapped(2, own).sum().backward(),
    /^ArgumentError: swapped: backward returned a gradient for argument 0, which is no tensor/,
  );
  const wrong = customFunction({ name: 'wrong', forward: (v) => v.clone(), backward: () => [zeros([2])] });
  assert.throws(
    () => wrong(own).sum().backward(),
    /^ShapeError: wrong: backward returned a gradient \[2\] for input 0, which has shape \[3\]/,
  );
});
