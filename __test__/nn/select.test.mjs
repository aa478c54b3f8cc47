// Comparisons and `where`: every type, NaNs, numbers, broadcasting, gradients, and `where` inside a compiled function.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, grad, tensor, zeros } from '../../nn/index.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */
test('comparisons give bools, of every type of numbers, with tensors and with numbers', async () => {
  for (const dtype of /** @type {const} */ (['f32', 'f16', 'bf16', 'i32', 'u32'])) {
    const [a, b] = [tensor([1, 2, 3], { dtype }), tensor([3, 2, 1], { dtype })];
    assert.equal(a.lt(b).dtype, 'bool');
    const results = await Promise.all([a.eq(b), a.ne(b), a.lt(b), a.le(2), a.gt(b), a.ge(2)].map(values));
    assert.deepEqual(
      results,
      [
        [0, 1, 0],
        [1, 0, 1],
        [1, 0, 0],
        [1, 1, 0],
        [0, 0, 1],
        [0, 1, 1],
      ],
      dtype,
    );
  }
  const nan = tensor([Number.NaN, 0]);
  assert.deepEqual(await Promise.all([nan.eq(nan), nan.ne(nan), nan.gt(-1), nan.eq(-0)].map(values)), [
    [0, 1],
    [1, 0],
    [0, 1],
    [0, 1],
  ]);
  assert.deepEqual(
    await tensor([[1], [2]])
      .gt(tensor([0, 1, 2]))
      .toNested(),
    [
      [true, false, false],
      [true, true, false],
    ],
  );
  assert.deepEqual(await values(tensor([1.5, 2]).gt(tensor([1.25, 3], { dtype: 'bf16' }))), [1, 0], 'floating types meet in f32');
  assert.deepEqual(await values(tensor([-1], { dtype: 'i32' }).lt(0)), [1]);
});

test('where chooses, and the gradient goes where the value came from', async () => {
  const a = tensor([1, 2, 3], { requiresGrad: true });
  const b = tensor([[10], [20]], { requiresGrad: true });
  const mask = a.gt(1.5);
  assert.equal(mask.requiresGrad, false);
  const y = F.where(mask, a, b);
  assert.deepEqual(await y.toNested(), [
    [10, 2, 3],
    [20, 2, 3],
  ]);
  const dy = tensor([
    [1, 2, 4],
    [8, 16, 32],
  ]);
  assert.deepEqual(await Promise.all(grad(y.mul(dy).sum(), [a, b]).map(values)), [
    [0, 18, 36],
    [1, 8],
  ]);
  // What is not chosen does not count, not even as a NaN: the logarithm of what is positive alone.
  const x = tensor([-1, 4], { requiresGrad: true });
  const [dx] = grad(F.where(x.gt(0), x, 1).log().sum(), [x]);
  assert.deepEqual(await values(dx), [0, 0.25]);
  assert.deepEqual(await values(a.maskedFill(mask, -7)), [1, -7, -7]);
  assert.deepEqual(await values(F.where(mask, 1, 0)), [0, 1, 1]);
  for (const dtype of /** @type {const} */ (['f16', 'bf16', 'i32', 'u32'])) {
    const chosen = F.where(mask, tensor([1, 2, 3], { dtype }), 9);
    assert.deepEqual([chosen.dtype, await values(chosen)], [dtype, [9, 2, 3]]);
  }
  const deep = F.where(zeros([2, 1, 1, 2, 1, 3]).eq(0), zeros([3]).add(1), zeros([1, 2, 1, 1, 1, 1]));
  assert.deepEqual([deep.shape, new Set(await values(deep))], [[2, 2, 1, 2, 1, 3], new Set([1])]);
});

test('a compiled function chooses by values of each call', async () => {
  const clip = compile((/** @type {Tensor} */ x) => F.where(x.abs().gt(1), x.sign(), x));
  assert.deepEqual(await values(clip(tensor([0.5, -3, 2]))), [0.5, -1, 1]);
  assert.deepEqual(await values(clip(tensor([7, 0.25, -0.5]))), [1, 0.25, -0.5]);
  assert.equal(clip.explain().length, 1);
});

test('what does not go together is named', () => {
  assert.throws(() => F.where(zeros([2]), 1, 0), /where: the condition must be bool, got f32: compare, as in x\.gt\(0\)/);
  assert.throws(() => F.where(zeros([2]).gt(0), zeros([2], { dtype: 'i32' }), 2 ** 31), /where: 2147483648 is not an i32/);
  assert.throws(() => zeros([2]).lt(zeros([3])), /lt: \[2\] and \[3\] do not broadcast/);
  assert.throws(() => zeros([2]).eq(/** @type {any} */ ([1, 2])), /eq: expected a tensor, got an array/);
});
