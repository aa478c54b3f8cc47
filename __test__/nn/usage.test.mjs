// Common mistakes of PyTorch users, each of which gives an error that helps; and memory use.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, ShapeError, UsageError, compile, grad, nn, noGrad, optim, rand, scope, tensor, zeros } from '../../nn/index.mjs';
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
    /crossEntropy: logits \[2, 3, 4\], whose last dimension is the classes, need targets \[2, 3\], got \[2\]/,
  );
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
  assert.throws(() => loss.backward(), /backward: an earlier backward\(\) freed what \w+ saved.*retain: true/);
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
  assert.throws(() => new optim.SGD([/** @type {any} */ (zeros([1]))]), /expected parameters of modules, got Tensor/);
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
