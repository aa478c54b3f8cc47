// In-place writes to memory that the same call reads, that other tensors share, or that a compiled function keeps.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, checkpoint, compile, nn, noGrad, ones, tensor, zeros } from '../../nn/index.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** @param {number} n */
const counted = (n) => tensor(Float32Array.from({ length: n }, (_, i) => i));

test('what is read and written overlaps: as if all were read first, eager and compiled', async () => {
  const n = 100_000;
  const side = 256;
  /** @type {Record<string, [size: number, change: (x: any) => any, expected: (i: number) => number]>} */
  const changes = {
    'a shift': [n, (x) => x.slice(0, 1, n).copy_(x.slice(0, 0, n - 1)), (i) => Math.max(0, i - 1)],
    'a shift added': [n, (x) => x.slice(0, 1, n).add_(x.slice(0, 0, n - 1)), (i) => (i === 0 ? 0 : 2 * i - 1)],
    'a shift multiplied': [n, (x) => x.slice(0, 0, n - 1).mul_(x.slice(0, 1, n)), (i) => (i === n - 1 ? i : i * (i + 1))],
    'a transposition': [
      side * side,
      (x) => x.reshape(side, side).copy_(x.reshape(side, side).T),
      (i) => (i % side) * side + Math.floor(i / side),
    ],
    'every other element': [n, (x) => x.slice(0, 0, n, 2).add_(x.slice(0, 1, n, 2)), (i) => (i % 2 ? i : 2 * i + 1)],
    'one row over all': [side * side, (x) => x.reshape(side, side).copy_(x.slice(0, side, 2 * side)), (i) => side + (i % side)],
    'itself added': [n, (x) => x.add_(x), (i) => 2 * i],
  };
  for (const [name, [size, change, expected]] of Object.entries(changes)) {
    const wanted = Float32Array.from({ length: size }, (_, i) => expected(i));
    for (const how of ['eager', 'compiled']) {
      const x = counted(size);
      const f = how === 'eager' ? () => void change(x) : compile(() => void change(x));
      f();
      const actual = await x.toArray();
      const wrong = actual.findIndex((v, i) => v !== wanted[i]);
      assert.equal(wrong, -1, `${name}, ${how}: element ${wrong} is ${actual[wrong]}`);
    }
  }
});

test('a view that repeats elements is not written into', async () => {
  const x = ones([3, 1]);
  for (const [write, message] of /** @type {[() => any, RegExp][]} */ ([
    [() => x.expand(3, 4).copy_(ones([3, 4])), /copy_: several elements of \[3, 4\] share memory/],
    [() => x.expand(3, 4).fill_(2), /fill_: several elements of \[3, 4\]/],
    [() => x.expand(3, 4).mul_(2), /mul_: several elements of \[3, 4\]/],
    [
      () =>
        x
          .expand(3, 4)
          .slice(1, 0, 2)
          .add_(ones([3, 2])),
      /add_: several elements of \[3, 2\]/,
    ],
  ]))
    assert.throws(write, message);
  assert.deepEqual(await values(x), [1, 1, 1]);
});

test('sums and means over sizes of 1, and powers of 1, are not the memory of what they are of', async () => {
  /** @type {((x: any) => any)[]} */
  const calls = [(x) => x.sum(0), (x) => x.mean(0), (x) => x.sum(), (x) => x.mean(), (x) => x.pow(1), (x) => x.sum([], true)];
  for (const f of calls) {
    const x = tensor([[5]]);
    f(x).add_(100);
    assert.deepEqual(await values(x), [5], String(f));
    const leaf = tensor([[5]], { requiresGrad: true });
    f(leaf).mul(3).sum().backward();
    assert.deepEqual(await values(leaf.grad), [3], String(f));
  }
});

test('data that a compiled function makes a tensor of is the same at each call, whatever was written over it', async () => {
  const sums = compile((/** @type {any} */ x) => {
    const sum = tensor([0, 0]);
    sum.add_(x);
    return sum;
  });
  const x = tensor([1, 2]);
  const [first, second] = [sums(x), sums(x)];
  assert.deepEqual(
    [await values(first), await values(second)],
    [
      [1, 2],
      [1, 2],
    ],
  );

  const both = compile((/** @type {any} */ v) => {
    const c = tensor([1, 2]);
    return [v.add(c), c];
  });
  const [, constant] = both(x);
  constant.add_(10);
  const [y, again] = both(x);
  assert.deepEqual(
    [await values(y), await values(again), await values(constant)],
    [
      [2, 4],
      [1, 2],
      [11, 12],
    ],
  );
  for (const f of [sums, both]) f.dispose();
});

test('checkpoint: a leaf that changed before the backward pass is an error, as without', async () => {
  for (const make of [(/** @type {any} */ w) => w, (/** @type {any} */ w) => new nn.Parameter(w)]) {
    const w = make(tensor([2], { requiresGrad: true }));
    const x = tensor([3], { requiresGrad: true });
    const run = () => checkpoint((v) => v.mul(w).square(), x).sum();
    const loss = run();
    noGrad(() => w.mul_(10));
    assert.throws(() => loss.backward(), /a tensor \[1\] that checkpoint needs for its gradient was changed in place/);
    run().backward();
    assert.deepEqual([await values(x.grad), await values(w.grad)], [[2 * 3 * 400], [2 * 20 * 9]]);
  }
});

test('sub_, div_ and clamp_: steps by hand, as PyTorch programs have them, eager and compiled', async () => {
  const step = (/** @type {any} */ w) => {
    const leaf = w.detach().requiresGrad_(true);
    leaf.square().sum().backward();
    noGrad(() =>
      w
        .sub_(leaf.grad, { alpha: 0.25 })
        .sub_(1)
        .div_(tensor([2, 4]))
        .div_(0.5)
        .clamp_(-1, 2)
        .clamp_(undefined, 1.5),
    );
    leaf.zeroGrad();
  };
  for (const how of ['eager', 'compiled']) {
    const w = tensor([5, -8]);
    const f = () => step(w);
    (how === 'eager' ? f : compile(f))();
    // (5 - 2.5 - 1) and (-8 + 4 - 1) / 2, within bounds.
    assert.deepEqual(await values(w), [1.5, -1]);
  }
  const ids = tensor(Int32Array.of(3, 9));
  assert.deepEqual(await values(ids.sub_(1).sub_(ids.clone(), { alpha: 2 }).clamp_(-5)), [-2, -5]);
  assert.deepEqual(await values(tensor([1, 2], { dtype: 'bf16' }).div_(tensor([3, 3]))), [0.333984375, 0.66796875]);
  for (const [write, message] of /** @type {[() => any, RegExp][]} */ ([
    [() => ids.div_(2), /^ArgumentError: div_: a quotient is f32, and the tensor is i32: use div/],
    [() => ids.clamp_(0.5), /^ArgumentError: clamp_: the result is f32, and the tensor is i32: use clamp/],
    [() => ids.sub_(0.5), /^ArgumentError: sub_: 0.5 is no i32, so the result has another type: use sub/],
    [() => ones([2]).sub_(ones([3])), /^ShapeError: sub_: /],
    [() => new nn.Linear(2, 2).weight.sub_(1), /^UsageError: sub_: /],
    [() => new nn.Linear(2, 2).weight.div_(2), /^UsageError: div_: /],
    [() => ones([2]).div_(/** @type {any} */ ('2')), /^ArgumentError: div_: /],
  ]))
    assert.throws(write, message);
});

test('bools are 0 and 1, whatever number they are made of', async () => {
  const made = [F.full([1], 0.5, { dtype: 'bool' }), zeros([1], { dtype: 'bool' }).fill_(NaN), tensor([NaN], { dtype: 'bool' })];
  for (const x of made) assert.deepEqual([await values(x), await values(x.to('f32')), await values(F.where(x, 3, 4))], [[1], [1], [3]]);
  assert.deepEqual(await values(tensor([NaN, 0, -0, 2]).to('bool')), [1, 0, 0, 1]);
  assert.deepEqual(await values(tensor([NaN, 0, -0, 2], { dtype: 'bool' })), [1, 0, 0, 1]);
});
