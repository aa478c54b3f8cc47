// Common mistakes of PyTorch users, each of which gives an error that helps; memory use; and tensors as text.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, ShapeError, UsageError, arange, compile, grad, nn, noGrad, ones, optim, rand, scope, tensor, zeros } from '../../nn/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

test('a ShapeError names the operation, both shapes and the line, and shows no frame of the package', () => {
  const [a, b] = [zeros([512, 1024]), zeros([768, 1024])];
  assert.throws(
    () => a.matmul(b),
    (/** @type {any} */ error) => {
      assert.ok(error instanceof ShapeError && error instanceof RangeError);
      assert.match(error.message, /^matmul: \[512, 1024\] × \[768, 1024\]: the inner sizes 1024 and 768 differ \(usage\.test\.mjs:\d+\)$/);
      assert.match(/** @type {string} */ (error.stack), /usage\.test\.mjs/);
      assert.doesNotMatch(/** @type {string} */ (error.stack), /\/nn\/(engine|functional|tensor)\.mjs/);
      assert.equal(error.op, 'matmul');
      return true;
    },
  );
  assert.throws(() => new nn.Linear(8, 4).forward(zeros([2, 7])), /linear: \[2, 7\] × \[4, 8\]ᵀ: the inner sizes 7 and 8 differ/);
  assert.throws(() => zeros([2, 3]).add(zeros([2, 4])), /add: \[2, 3\] and \[2, 4\] do not broadcast: sizes 3 and 4 in dimension -1/);
  assert.throws(() => zeros([2, 3]).reshape(4, 2), /reshape: cannot reshape \[2, 3\] of 6 elements to \[4, 2\]/);
  assert.throws(() => zeros([2, 3]).sum(2), /sum: dimension 2 is out of range for a tensor of 2 dimensions/);
  assert.throws(() => F.mseLoss(zeros([4, 1]), zeros([4])), /mseLoss: predictions \[4, 1\] and targets \[4\].*would broadcast/);
  assert.throws(
    () => F.crossEntropy(zeros([4, 3]), zeros([4])),
    /targets must be class numbers, i32 or u32, or probabilities of the shape of the logits \[4, 3\], got f32 \[4\]/,
  );
  assert.throws(() => zeros([-1, 3]), /sizes of a shape must be integers of at least 0/);
  assert.throws(() => tensor([[1, 2], [3]]), /nested arrays have unequal lengths: 1 and 2/);
  assert.throws(() => F.add(/** @type {any} */ ([1, 2]), zeros([2])), /expected a tensor, got an array: make it a tensor with tensor/);
});

test('a + b is no sum', () => {
  const a = tensor([1, 2]);
  assert.throws(() => /** @type {any} */ (a) + 1, /a tensor is not a number: use a\.add\(b\)/);
  assert.throws(() => `${/** @type {any} */ (a)}`, /a tensor is not a number/);
  assert.throws(() => /** @type {any} */ (a) > 0, /a tensor is not a number/);
});

test('types: what does not mix says so', () => {
  assert.throws(() => tensor([1, 2], { dtype: 'i32' }).mean(), /mean: takes f32, f16 or bf16, got i32; convert/);
  assert.throws(() => tensor([1.5], { dtype: 'i32' }), /element 0, 1\.5, is not a value of type i32/);
  assert.throws(() => tensor([1], { dtype: /** @type {any} */ ('f64') }), /unknown type f64; the types are f32/);
  assert.throws(() => tensor([1, 2], { dtype: 'i32' }).requiresGrad_(), /a tensor of i32 cannot have a gradient/);
  assert.equal(tensor([1], { dtype: 'bf16' }).add(tensor([1])).dtype, 'f32', 'as PyTorch promotes');
});

test('arguments of another habit: sizes one by one, options of another shape, names of types, modules for parameters', () => {
  const wrong = /** @type {any} */ ({ zeros, tensor, rand, F });
  assert.throws(() => wrong.zeros(2, 3), /zeros: the shape must be an array of sizes, got 2: zeros\(\[2\]\), zeros\(\[2, 3\]\)/);
  assert.throws(() => wrong.rand(), /rand: the shape must be an array of sizes, got undefined/);
  assert.throws(() => wrong.tensor(1, 2), /tensor: expected options such as .*, got 2: numbers are given as an array, tensor\(\[1, 2\]\)/);
  assert.throws(() => wrong.zeros([2], { dtype: 'float64' }), /zeros: unknown type float64; the types are f32, f16/);
  assert.throws(() => wrong.zeros([2]).to('half'), /to: unknown type half; the types are f32, f16/);
  assert.throws(
    () => wrong.zeros([2, 2]).sum({ dim: 1 }),
    /sum: dim must be a number or an array of numbers, got \{ dim: 1 \}; x\.sum\(1, true\)/,
  );
  assert.throws(() => wrong.F.stack(zeros([2]), zeros([2])), /stack: expected an array of tensors/);
  assert.throws(() => wrong.F.cat(zeros([2]), zeros([2])), /cat: expected an array of tensors/);
  const model = new nn.Linear(2, 2);
  assert.throws(() => new optim.AdamW(/** @type {any} */ (model)), /AdamW: expected parameters, got a module: pass model\.parameters\(\)/);
  assert.throws(
    () => JSON.stringify({ loss: zeros([1]) }),
    /a tensor cannot be written as JSON: write the result of await x\.toNested\(\)/,
  );
  // What PyTorch takes and is meant: sizes and orders as arrays.
  assert.deepEqual(wrong.zeros([2, 3]).permute([1, 0]).reshape([6]).shape, [6]);
});

test('types that operations do not take: each says what to do', () => {
  const ids = tensor(Int32Array.of(0, 1));
  assert.throws(() => zeros([2]).matmul(ids), /matmul: takes tensors of one type, got f32 and i32/);
  assert.throws(() => new nn.Linear(2, 1).forward(ids), /linear: takes f32, f16 or bf16, got i32; convert with \.to\('f32'\)/);
  assert.throws(() => new nn.Embedding(2, 2).forward(zeros([2])), /embedding: ids must be i32 or u32, got f32; convert with \.to\('i32'\)/);
  assert.throws(
    () => F.crossEntropy(zeros([2, 3]), zeros([2, 3]).gt(0)),
    /crossEntropy: targets must be class numbers.*argmax\(\) makes them/,
  );
  assert.throws(
    () => F.crossEntropy(zeros([2, 3, 4]), ids),
    /crossEntropy: logits \[2, 3, 4\], whose last dimension is the classes, need targets \[2, 3\], got \[2\] \(/,
  );
  assert.throws(
    () => F.crossEntropy(zeros([2, 3, 4]), zeros([2, 4], { dtype: 'i32' })),
    /got \[2, 4\]; where dimension 1 is the classes, as in PyTorch, pass \{ dim: 1 \}/,
  );
});

test('at takes an index for each of the first dimensions, in place too', async () => {
  const x = tensor(Float32Array.from({ length: 24 }, (_, i) => i)).reshape(2, 3, 4);
  assert.deepEqual([await x.at(1, 2, 3).item(), await x.at(-1, 0, -4).item()], [23, 12]);
  x.at(0, 1).fill_(-1);
  assert.deepEqual([...(await x.at(0).toArray())], [0, 1, 2, 3, -1, -1, -1, -1, 8, 9, 10, 11]);
  for (const [indices, message] of /** @type {[number[], RegExp][]} */ ([
    [[1, 3], /^ShapeError: at: index 3 is out of range for dimension 1 of \[2, 3, 4\]/],
    [[1, 2, 3, 0], /^ShapeError: at: 4 indices are more than the 3 dimensions of \[2, 3, 4\]/],
    [[], /^ShapeError: at: index undefined is out of range for \[2, 3, 4\]/],
  ]))
    assert.throws(() => x.at(...indices), message);
});

test('zeroGrad: not needed with an optimizer, whose step forgets; without one gradients add up', async () => {
  /** @param {boolean} forgets */
  const weights = async (forgets) => {
    const model = new nn.Linear(2, 1, { bias: false });
    noGrad(() => model.weight.fill_(1));
    const opt = new optim.SGD(model.parameters(), { lr: 0.5 });
    for (let i = 0; i < 3; i++) {
      if (forgets) opt.zeroGrad();
      model
        .forward(tensor([[1, i]]))
        .sum()
        .backward();
      opt.step();
    }
    assert.equal(model.weight.grad, undefined);
    opt.dispose();
    return [...(await model.weight.toArray())];
  };
  assert.deepEqual(await weights(false), [-0.5, -0.5]);
  assert.deepEqual(await weights(true), await weights(false));
  const w = tensor([1, 2], { requiresGrad: true });
  for (let i = 0; i < 3; i++) w.mul(2).sum().backward();
  assert.deepEqual([...(await /** @type {any} */ (w.grad).toArray())], [6, 6]);
  w.zeroGrad();
  w.mul(2).sum().backward();
  assert.deepEqual([...(await /** @type {any} */ (w.grad).toArray())], [2, 2]);
});

test('tensors after dispose, and out of their scope', async () => {
  const a = tensor([1, 2]);
  a.dispose();
  a.dispose();
  assert.throws(() => a.add(1), /add: the tensor was disposed of/);
  await assert.rejects(a.toArray(), UsageError);
  let inner = zeros([1]);
  const kept = scope(() => {
    inner = tensor([1]);
    return { list: [inner.add(1)] };
  });
  assert.throws(() => inner.add(1), /disposed of/);
  assert.equal(await kept.list[0].item(), 2);
  assert.throws(() => scope(async () => {}), /scope: the function is async/);
  assert.throws(() => noGrad(async () => {}), /noGrad: the function is async/);
  const [model, w] = [new nn.Linear(1, 1), zeros([1])];
  const opt = new optim.SGD(model.parameters());
  const f = compile((/** @type {any} */ x) => x.add(w));
  assert.equal(await f(tensor([1])).item(), 1);
  w.dispose();
  assert.throws(() => f(tensor([1])), /add: the tensor was disposed of.*\(usage\.test\.mjs:\d+\)/);
  assert.throws(() => f(w), /compile: the tensor was disposed of/);
  opt.dispose();
  assert.throws(() => opt.step(), /step: the optimizer was disposed of/);
  model.dispose();
  assert.throws(() => model.forward(zeros([1, 1])), /linear: the tensor was disposed of/);
});

test('reading in a compiled function, by every name for it, and choosing by a value', async () => {
  const x = tensor([1]);
  for (const read of /** @type {((x: any) => Promise<any>)[]} */ ([(y) => y.item(), (y) => y.toArray(), (y) => y.toNested()])) {
    /** @type {Promise<any> | undefined} */
    let promise;
    compile((/** @type {any} */ y) => {
      promise = read(y);
      promise.catch(() => {});
      return y;
    })(x);
    await assert.rejects(
      /** @type {Promise<any>} */ (promise),
      /no values while its function is compiled: return the tensor and read what the call returns/,
    );
  }
  assert.throws(() => compile(async (/** @type {any} */ y) => y.item())(x), /compile: the function is async/);
  assert.throws(() => compile((/** @type {any} */ y) => (y.sum() > 0 ? y : y.neg()))(x), /a tensor is not a number/);
});

test('backward: not on a vector, not twice, not without a graph', async () => {
  const w = tensor([1, 2], { requiresGrad: true });
  assert.throws(() => w.mul(2).backward(), /backward: the tensor \[2\] is not one number: take its sum\(\) or mean\(\)/);
  const loss = w.square().sum();
  loss.backward();
  assert.throws(() => loss.backward(), /backward: an earlier backward\(\) freed what sum saved.*retain: true/);
  const again = w.square().sum();
  again.backward({ retain: true });
  again.backward();
  assert.deepEqual([...(await /** @type {any} */ (w.grad).toArray())], [6, 12], 'gradients add up');
  assert.throws(() => tensor([1]).backward(), /does not depend on anything that requires a gradient/);
  assert.throws(() => noGrad(() => w.sum()).backward(), /was it made in noGrad/);
  assert.throws(() => w.detach().sum().backward(), /does not depend/);
});

test('in place: on what the backward pass needs, on leaves, on results', async () => {
  const w = tensor([1, 2], { requiresGrad: true });
  const x = tensor([3, 4]);
  const loss = w.mul(x).sum();
  x.mul_(2);
  assert.throws(
    () => loss.backward(),
    /a tensor \[2\] that mul needs for its gradient was changed in place \(version 1, used at version 0\)/,
  );
  assert.throws(() => zeros([2]).copy_(w), /copy_: gradients cannot flow through a change in place to what is written: make a new tensor/);
  assert.throws(() => w.add_(1), /add_: a tensor that requires a gradient cannot be changed in place: do it in noGrad/);
  assert.throws(() => w.mul(1).add_(1), /gradients flow through/);
  noGrad(() => w.add_(x, { alpha: 0.5 }));
  assert.deepEqual([...(await w.toArray())], [4, 6]);
  x.copy_([7, 8].length ? Float32Array.of(7, 8) : 0)
    .slice(0, 1)
    .fill_(5);
  assert.deepEqual([...(await x.toArray())], [7, 5]);
});

test('an optimizer: step before backward, parameters twice, tensors that are none', () => {
  const model = new nn.Linear(2, 2);
  const opt = new optim.AdamW(model.parameters());
  assert.throws(() => opt.step(), /step: no parameter has a gradient: call backward\(\)/);
  assert.throws(() => new optim.SGD(model.parameters()), /belongs to another optimizer/);
  assert.throws(
    () => new optim.SGD([/** @type {any} */ (zeros([1]))]),
    /expected parameters of modules, got Tensor.*: new nn\.Parameter\(x\) makes one/,
  );
  assert.throws(() => new optim.SGD([]), /expected at least one parameter, got none/);
  assert.throws(() => new optim.SGD(new nn.Linear(1, 1).parameters(), { lr: -1 }), /lr must be a number of at least 0, got -1/);
  opt.dispose();
  new optim.SGD(model.parameters()).dispose();
});

test('loadStateDict is all or nothing', async () => {
  const model = new nn.Sequential(new nn.Linear(2, 3), new nn.ReLU(), new nn.Linear(3, 1));
  assert.deepEqual(Object.keys(model.stateDict()), ['0.weight', '0.bias', '2.weight', '2.bias']);
  const before = await model.stateDict()['0.weight'].toArray();
  const wrong = { ...model.stateDict(), '0.weight': zeros([3, 2]), '2.bias': zeros([4]) };
  assert.throws(() => model.loadStateDict(wrong), /2\.bias has shape \[4\], but the module's has \[1\]/);
  assert.throws(() => model.loadStateDict({ '0.weight': zeros([3, 2]) }), /missing: 0\.bias, 2\.weight, 2\.bias/);
  assert.deepEqual(await model.stateDict()['0.weight'].toArray(), before);
  model.loadStateDict({ '0.weight': zeros([3, 2]) }, { strict: false });
  assert.deepEqual([...(await model.stateDict()['0.weight'].toArray())], new Array(6).fill(0));
});

test('grad returns gradients and leaves none behind', async () => {
  const w = tensor([1, 2, 3], { requiresGrad: true });
  const h = w.square();
  const [dw, dh] = grad(h.mul(h).sum(), [w, h]);
  assert.deepEqual([...(await dw.toArray())], [4, 32, 108], '4 w³');
  assert.deepEqual([...(await dh.toArray())], [2, 8, 18], '2 h');
  assert.equal(w.grad, undefined);
  assert.throws(() => grad(w.sum(), [tensor([1])]), /does not depend on input 0/);
});

test('memory that an operation frees is taken again in the list: large buffers at once, small ones in turns', () => {
  for (const [size, buffers] of [
    [300_000, 2],
    [1000, 9],
  ]) {
    const x = zeros([size]);
    runtime().flush();
    const before = runtime().vk.getStats().buffersCreated;
    scope(() => {
      let y = x.add(1);
      for (let i = 0; i < 40; i++) {
        const next = y.mul(2);
        y.dispose();
        y = next;
      }
    });
    assert.equal(runtime().vk.getStats().buffersCreated - before, buffers);
  }
});

/** What PyTorch 2.11 prints, with types and `requires_grad` by our names. @type {[() => import('../../nn/index.mjs').Tensor, object, string][]} */
const PRINTED = [
  [
    () =>
      tensor([
        [1, 2],
        [3, 4],
      ]),
    {},
    `tensor([[1., 2.],
        [3., 4.]])`,
  ],
  [() => tensor([1.5, -2.25, 3]), {}, `tensor([ 1.5000, -2.2500,  3.0000])`],
  [() => tensor(3.25), {}, `tensor(3.2500)`],
  [() => tensor([0, 0, 0]), {}, `tensor([0., 0., 0.])`],
  [() => tensor([Infinity, NaN, -Infinity, 1]), {}, `tensor([inf, nan, -inf, 1.])`],
  [() => tensor([Infinity, 1.5]), {}, `tensor([   inf, 1.5000])`],
  [() => tensor([1e-5, 1]), {}, `tensor([1.0000e-05, 1.0000e+00])`],
  [() => tensor([1e9, 1]), {}, `tensor([1.0000e+09, 1.0000e+00])`],
  [() => tensor([1000, 1, 2]), {}, `tensor([1000.,    1.,    2.])`],
  [() => tensor([1001, 1, 2]), {}, `tensor([1.0010e+03, 1.0000e+00, 2.0000e+00])`],
  [() => tensor([0.5, 1001]), {}, `tensor([5.0000e-01, 1.0010e+03])`],
  [() => tensor([0.03125, 0.15625, -0.03125]), {}, `tensor([ 0.0312,  0.1562, -0.0312])`],
  [
    () =>
      tensor([
        [true, false],
        [true, true],
      ]),
    {},
    `tensor([[ True, False],
        [ True,  True]])`,
  ],
  [() => tensor([1, 2], { dtype: 'i32' }), {}, `tensor([1, 2], dtype=i32)`],
  [() => tensor([1, 2], { dtype: 'u8' }), {}, `tensor([1, 2], dtype=u8)`],
  [() => tensor([1.5, 2], { dtype: 'f16' }), {}, `tensor([1.5000, 2.0000], dtype=f16)`],
  [() => tensor([1.5, 2.3], { dtype: 'bf16' }), {}, `tensor([1.5000, 2.2969], dtype=bf16)`],
  [() => zeros([0]), {}, `tensor([])`],
  [() => zeros([0, 3]), {}, `tensor([], size=(0, 3))`],
  [() => zeros([2, 0], { dtype: 'i32' }), {}, `tensor([], size=(2, 0), dtype=i32)`],
  [
    () => arange(24).reshape(2, 3, 4),
    {},
    `tensor([[[ 0.,  1.,  2.,  3.],
         [ 4.,  5.,  6.,  7.],
         [ 8.,  9., 10., 11.]],

        [[12., 13., 14., 15.],
         [16., 17., 18., 19.],
         [20., 21., 22., 23.]]])`,
  ],
  [
    () => arange(40).mul(tensor(1.7)),
    {},
    `tensor([ 0.0000,  1.7000,  3.4000,  5.1000,  6.8000,  8.5000, 10.2000, 11.9000,
        13.6000, 15.3000, 17.0000, 18.7000, 20.4000, 22.1000, 23.8000, 25.5000,
        27.2000, 28.9000, 30.6000, 32.3000, 34.0000, 35.7000, 37.4000, 39.1000,
        40.8000, 42.5000, 44.2000, 45.9000, 47.6000, 49.3000, 51.0000, 52.7000,
        54.4000, 56.1000, 57.8000, 59.5000, 61.2000, 62.9000, 64.6000, 66.3000])`,
  ],
  [
    () => arange(2000),
    {},
    `tensor([0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 1.9970e+03, 1.9980e+03,
        1.9990e+03])`,
  ],
  [
    () => arange(2400).reshape(20, 120),
    {},
    `tensor([[0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 1.1700e+02, 1.1800e+02,
         1.1900e+02],
        [1.2000e+02, 1.2100e+02, 1.2200e+02,  ..., 2.3700e+02, 2.3800e+02,
         2.3900e+02],
        [2.4000e+02, 2.4100e+02, 2.4200e+02,  ..., 3.5700e+02, 3.5800e+02,
         3.5900e+02],
        ...,
        [2.0400e+03, 2.0410e+03, 2.0420e+03,  ..., 2.1570e+03, 2.1580e+03,
         2.1590e+03],
        [2.1600e+03, 2.1610e+03, 2.1620e+03,  ..., 2.2770e+03, 2.2780e+03,
         2.2790e+03],
        [2.2800e+03, 2.2810e+03, 2.2820e+03,  ..., 2.3970e+03, 2.3980e+03,
         2.3990e+03]])`,
  ],
  [() => tensor([-0, 0, -1]), {}, `tensor([-0.,  0., -1.])`],
  [() => tensor([-0, 0.5]), {}, `tensor([-0.0000, 0.5000])`],
  [() => tensor([1e-40, 1e-45]), {}, `tensor([9.9999e-41, 1.4013e-45])`],
  [() => tensor([1e38, 2.5]), {}, `tensor([1.0000e+38, 2.5000e+00])`],
  [() => tensor([100000000, 1e5]), {}, `tensor([100000000.,    100000.])`],
  [() => tensor([1e8 + 8]), {}, `tensor([1.0000e+08])`],
  [() => tensor(NaN), {}, `tensor(nan)`],
  [() => tensor(2.5, { dtype: 'f16' }), {}, `tensor(2.5000, dtype=f16)`],
  [
    () => arange(12).reshape(3, 4).T.slice(1, 1),
    {},
    `tensor([[ 4.,  8.],
        [ 5.,  9.],
        [ 6., 10.],
        [ 7., 11.]])`,
  ],
  [() => tensor([0.00015, 0.1]), {}, `tensor([0.0002, 0.1000])`],
  [() => tensor([9.9999999, 1]), {}, `tensor([10.,  1.])`],
  [() => tensor([1.00005, 2]), {}, `tensor([1.0000, 2.0000])`],
  [() => tensor([123456.789]), {}, `tensor([123456.7891])`],
  [() => tensor([12345.5, 99.25]), {}, `tensor([12345.5000,    99.2500])`],
  [() => ones([1001]), {}, `tensor([1., 1., 1.,  ..., 1., 1., 1.])`],
  [
    () => ones([7, 150]),
    {},
    `tensor([[1., 1., 1.,  ..., 1., 1., 1.],
        [1., 1., 1.,  ..., 1., 1., 1.],
        [1., 1., 1.,  ..., 1., 1., 1.],
        ...,
        [1., 1., 1.,  ..., 1., 1., 1.],
        [1., 1., 1.,  ..., 1., 1., 1.],
        [1., 1., 1.,  ..., 1., 1., 1.]])`,
  ],
  [() => tensor([1.25, 2.5]).requiresGrad_().mul(tensor(1)), {}, `tensor([1.2500, 2.5000], gradFn=<mul>)`],
  [() => arange(30), { threshold: 10, edgeItems: 2 }, `tensor([ 0.,  1.,  ..., 28., 29.])`],
  [() => tensor([1.5, 2.5]), { sciMode: true }, `tensor([1.5000e+00, 2.5000e+00])`],
  [() => tensor([1e-6, 1e6]), { sciMode: false }, `tensor([      0.0000, 1000000.0000])`],
];

test('tensors as text, as PyTorch prints them', async () => {
  for (const [make, options, text] of PRINTED) assert.equal(await make().format(options), text, `${make}`);
  assert.equal(await tensor([1n, -(2n ** 60n)]).format(), 'tensor([                   1, -1152921504606846976], dtype=i64)');
  assert.equal(await zeros([1]).requiresGrad_().format(), 'tensor([0.], requiresGrad=true)');
  const long = await rand([1000, 1000]).format({ precision: 2, lineWidth: 40 });
  assert.match(long, /^tensor\(\[\[0\.\d\d, 0\.\d\d, 0\.\d\d, {2}\.\.\., 0\.\d\d,\n {9}0\.\d\d, 0\.\d\d\],/);
  const { log } = console;
  /** @type {string[]} */
  const lines = [];
  console.log = (line) => lines.push(line);
  try {
    await tensor([1, 2]).print();
  } finally {
    console.log = log;
  }
  assert.deepEqual(lines, ['tensor([1., 2.])']);
  for (const [options, message] of /** @type {[any, RegExp][]} */ ([
    [{ precision: -1 }, /^format: precision must be an integer of at least 0, at most 100, got -1/],
    [{ lineWidth: 0 }, /^format: lineWidth must be an integer of at least 1, got 0/],
    [{ sciMode: 1 }, /^format: sciMode must be true or false, got 1/],
    [{ digits: 3 }, /^format: unknown option '?digits/],
  ]))
    await assert.rejects(tensor([1]).format(options), { message });
  const gone = ones([2]);
  gone.dispose();
  await assert.rejects(gone.format(), UsageError);
});
