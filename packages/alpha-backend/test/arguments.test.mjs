// Arguments of the backend's methods that do not fit, and tensors without elements.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { createBackend } from '@helios-vk/alpha-backend';

const b = createBackend({ precision: 'f32' });
const tensor = (...shape) => b.full(shape, 0.5);

/** Exactly these elements in this shape. */
function holds({ shape, data }, wantedShape, values) {
  assert.deepEqual([...shape], wantedShape);
  assert.deepEqual([...data], values);
}

test('shapes, types and options that are none are named', () => {
  assert.throws(() => b.zeros([-1]), /full: shape \[-1\]: sizes must be integers from 0/);
  assert.throws(() => b.fromArray([1], [Number.NaN]), /fromArray: shape \[NaN\]/);
  assert.throws(() => b.ones('ab'), /full: shape must be an array of sizes, got ab/);
  assert.throws(() => b.zeros([2], 'bf16'), /full: dtype must be one of f32, f64, i32, f16, got bf16/);
  assert.throws(() => b.castDtype(tensor(2), 'i8'), /castDtype: dtype must be one of .*, got i8/);
  assert.throws(() => b.reshape(tensor(4), [-1, -4]), /reshape: shape \[-1, -4\]/);
  assert.throws(() => b.slice(tensor(2, 2), [0.5, 0], [1.5, 2]), /slice: \[0\.5, 0\] to \[1\.5, 2\] of \[2, 2\]/);
  assert.throws(() => createBackend(null), /createBackend: options must be an object, got null/);
  assert.throws(() => createBackend({ capture: 'no' }), /createBackend: capture must be true or false, got no/);
  assert.throws(() => createBackend({ precison: 'f32' }), /createBackend: precison: no such option, there are precision, /);
});

test('tensors too small for what a kernel reads of them are named', () => {
  const x = tensor(4, 3);
  const ids = b.fromArray([0, 1], [2], 'i32');
  const two = tensor(2);
  assert.throws(() => b.crossEntropy(x, ids), /crossEntropy: a tensor \[2\] where 4 elements are expected/);
  assert.throws(() => b.crossEntropyBackward(x, ids, b.ones([])), /crossEntropyBackward: a tensor \[2\] where 4/);
  assert.throws(() => b.layerNorm(x, two, tensor(3), 1e-5), /layerNorm: a tensor \[2\] where 3 elements/);
  assert.throws(() => b.layerNormBackward(x, tensor(3), two, 1e-5), /layerNormBackward: a tensor \[2\] where 12/);
  assert.throws(() => b.geluBackward(x, two), /geluBackward: a tensor \[2\] where 12/);
  assert.throws(() => b.clampBackward(x, two, 0, 1), /clampBackward: a tensor \[2\] where 12/);
  assert.throws(() => b.softCapBackward(two, x, 3), /softCapBackward: a tensor \[2\] where 12/);
  assert.throws(() => b.siluMul(x, two), /siluMul: a tensor \[2\] where 12/);
  assert.throws(() => b.siluMulBackward(x, x, two), /siluMulBackward: a tensor \[2\] where 12/);
  assert.throws(() => b.adamwStep(x, two, x, x, 1e-3, 0.9, 0.95, 1e-8, 0, 1, 1), /adamwStep: a tensor \[2\] where 12/);
});

test('sums of no elements', () => {
  const none = b.ones([0, 2]);
  holds(b.sum(none), [], [0]);
  holds(b.sum(none, 0), [2], [0, 0]);
  holds(b.sum(none, 1), [0], []);
  holds(b.sumOfSquares(none), [], [0]);
  holds(b.totalSumOfSquares([none, b.full([3], 2)]), [], [12]);
  holds(b.checkFinite(b.full([0], Number.NaN)), [], [0]);
  assert.throws(() => b.mean(none), /mean: \[0, 2\]: a mean of no elements/);
});
