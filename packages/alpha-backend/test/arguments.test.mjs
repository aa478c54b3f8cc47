// Wrong arguments of the backend's methods, and tensors without elements.

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

test('errors name shapes, types and options that are wrong', () => {
  assert.throws(() => b.zeros([-1]), /full: shape \[-1\]: sizes must be integers from 0/);
  assert.throws(() => b.fromArray([1], [Number.NaN]), /fromArray: shape \[NaN\]/);
  assert.throws(() => b.ones('ab'), /full: shape must be an array of sizes, got ab/);
  assert.throws(() => b.zeros([2], 'bf16'), /full: dtype must be one of f32, f64, i32, f16, got bf16/);
  assert.throws(() => b.castDtype(tensor(2), 'i8'), /castDtype: dtype must be one of .*, got i8/);
  assert.throws(() => b.reshape(tensor(4), [-1, -4]), /reshape: shape \[-1, -4\]/);
  assert.throws(() => b.slice(tensor(2, 2), [0.5, 0], [1.5, 2]), /slice: \[0\.5, 0\] to \[1\.5, 2\] of \[2, 2\]/);
  assert.throws(() => createBackend(null), /createBackend: options must be an object, got null/);
  assert.throws(() => createBackend({ capture: 'no' }), /createBackend: capture must be true or false, got no/);
  for (const vk of [{}, 5, null])
    assert.throws(() => createBackend({ vk }), /createBackend: vk must be the module of helios-vk, which has initDevice, got /);
  assert.throws(() => createBackend({ device: 5 }), /createBackend: device must be what initDevice takes, such as \{ device: 0 \}, got 5/);
  assert.throws(
    () => createBackend({ device: { device: 500 } }),
    /createBackend: device 500 is not there, and .+ is open already: call destroy\(\) of helios-vk first/,
  );
  assert.throws(
    () => createBackend({ precison: 'f32' }),
    /createBackend: precison: no such option; the options are precision, capture, vk, device/,
  );
});

test('errors name tensors that are smaller than what a kernel reads', () => {
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

test('errors name arguments that are not tensors, whether the device or the host computes', () => {
  const x = tensor(2, 2);
  assert.throws(() => b.add(x, undefined), /^BackendError: add: expected a tensor, got undefined$/);
  assert.throws(() => b.add(x, 3), /add: expected a tensor, got 3/);
  assert.throws(() => b.matmul(x, null), /matmul: expected a tensor, got null/);
  assert.throws(() => b.cat([x, undefined], 0), /cat: expected a tensor, got undefined/);
  assert.throws(() => b.cat(x, 0), /cat: expected a list of at least one tensor/);
  for (const call of ['mean', 'sum', 'softmax', 'castDtype', 'argmax', 'topk', 'sliceQkv']) {
    assert.throws(() => b[call](undefined, 0), new RegExp(`^BackendError: ${call}: expected a tensor, got undefined`));
  }
  assert.throws(() => b.reshape(undefined, [4]), /reshape: expected a tensor/);
  assert.throws(() => b.pow(undefined, 3), /pow: expected a tensor/);
  assert.throws(() => b.scale(undefined, Number.NaN), /scale: expected a tensor/);
  assert.throws(() => b.adamwStep(x, undefined, x, x, 1e-3, 0.9, 0.95, 1e-8, 0, 1, 1), /adamwStep: expected a tensor/);
  for (const call of ['equal', 'allClose', 'maskedFill']) {
    assert.throws(() => b[call](x, undefined, 0), new RegExp(`${call}: expected a tensor, got undefined`));
  }
  assert.throws(() => b.gather(x, 0, undefined), /gather: expected a tensor/);
});

test('cat takes tensors of one type', () => {
  const ids = b.fromArray([1, 2], [2], 'i32');
  const numbers = b.fromArray([1.5, 2.5], [2]);
  assert.throws(() => b.cat([ids, numbers], 0), /cat: i32 \[2\] and f32 \[2\]: cast one first \(castDtype\)/);
  assert.throws(() => b.cat([numbers, ids], 0), /cat: f32 \[2\] and i32 \[2\]/);
  assert.throws(() => b.cat([numbers, b.castDtype(numbers, 'f16')], 0), /cat: f32 \[2\] and f16 \[2\]/);
  holds(b.cat([b.castDtype(ids, 'f32'), numbers], 0), [4], [1, 2, 1.5, 2.5]);
  holds(b.cat([ids, ids], 0), [4], [1, 2, 1, 2]);
});

test('errors name tensors without elements where no kernel takes them', () => {
  for (const shape of [
    [0, 3],
    [3, 0],
  ]) {
    const none = tensor(...shape);
    const error = (name) => new RegExp(`^BackendError: ${name}: a tensor \\[${shape.join(', ')}\\] has no elements`);
    assert.throws(() => b.softmax(none), error('softmax'));
    assert.throws(() => b.logSoftmax(none), error('logSoftmax'));
    assert.throws(() => b.cat([none, none], 0), error('cat'));
    assert.throws(() => b.slice(none, [0, 0], shape), error('slice'));
  }
  assert.throws(() => b.slice(tensor(4, 4), [1, 1], [1, 3]), /slice: a tensor \[0, 2\] has no elements/);
  for (const [first, second] of [
    [
      [0, 3],
      [3, 2],
    ],
    [
      [2, 0],
      [0, 2],
    ],
    [
      [2, 3],
      [3, 0],
    ],
  ]) {
    assert.throws(() => b.matmul(tensor(...first), tensor(...second)), {
      name: 'BackendError',
      message: `matmul: [${first.join(', ')}] × [${second.join(', ')}]: a matrix has no elements`,
    });
  }
  holds(b.matmul(tensor(0, 2, 3), tensor(3, 2)), [0, 2, 2], []);
  holds(b.gelu(tensor(0, 3)), [0, 3], []);
});

test('errors name a cap that numbers cannot be divided by', () => {
  const x = tensor(3);
  for (const cap of [0, Number.POSITIVE_INFINITY, Number.NaN, undefined]) {
    assert.throws(() => b.softCap(x, cap), new RegExp(`softCap: cap must be a finite number other than 0, got ${cap}`));
    assert.throws(() => b.softCapBackward(x, x, cap), new RegExp(`softCapBackward: cap must be a finite number other than 0, got ${cap}`));
  }
});

test('bounds of a clamp are numbers, and an infinite one bounds nothing', () => {
  const values = [Number.NEGATIVE_INFINITY, -3e38, -2, 0, 0.5, 3e38, Number.POSITIVE_INFINITY];
  const ids = b.fromArray([-4, 9], [2], 'i32');
  const x = b.fromArray(values, [7]);
  const g = b.full([7], 3);
  for (const bound of [undefined, null, Number.NaN, '0']) {
    for (const [lo, hi, message] of [
      [bound, 1, `lo must be a number (-Infinity for no bound), got ${bound}`],
      [0, bound, `hi must be a number (Infinity for no bound), got ${bound}`],
    ]) {
      for (const input of [x, ids]) {
        assert.throws(() => b.clamp(input, lo, hi), { name: 'BackendError', message: `clamp: ${message}` });
      }
      assert.throws(() => b.clampBackward(x, g, lo, hi), { name: 'BackendError', message: `clampBackward: ${message}` });
    }
  }
  const [low, high] = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
  for (const [lo, hi] of [
    [low, 0.25],
    [-1, high],
    [low, high],
    [-1, 1e300],
    [high, low],
    [1, 0],
    [low, low],
    [high, high],
  ]) {
    holds(b.clamp(x, lo, hi), [7], [...Float32Array.from(values, (v) => Math.max(lo, Math.min(hi, v)))]);
    holds(
      b.clampBackward(x, g, lo, hi),
      [7],
      values.map((v) => (v > Math.fround(lo) && v < Math.fround(hi) ? 3 : 0)),
    );
  }
});

test('clamp and relu of NaNs and infinities, and their gradients, are what the trainer computes on the CPU', () => {
  const values = [Number.NaN, Number.NEGATIVE_INFINITY, -2, -1, 0.5, 1, 2, Number.POSITIVE_INFINITY, Number.NaN];
  const shape = [values.length];
  const x = b.fromArray(values, shape);
  const bounds = [Number.NEGATIVE_INFINITY, -1, 1, Number.POSITIVE_INFINITY];
  for (const slope of [3, Number.POSITIVE_INFINITY, Number.NaN]) {
    const g = b.full(shape, slope);
    const gradient = (passes) => values.map((v) => (passes(v) ? slope : 0));
    for (const lo of bounds) {
      for (const hi of bounds) {
        const clamped = values.map((v) => Math.max(lo, Math.min(hi, v)));
        holds(b.clamp(x, lo, hi), shape, clamped);
        holds(
          b.clampBackward(x, g, lo, hi),
          shape,
          gradient((v) => v > lo && v < hi),
        );
      }
    }
    holds(
      b.reluBackward(x, g),
      shape,
      gradient((v) => v > 0),
    );
  }
  holds(
    b.relu(x),
    shape,
    values.map((v) => (Number.isNaN(v) ? 0 : Math.max(v, 0))),
  );
});

test('casts of tensors without elements', () => {
  for (const from of ['f32', 'f16', 'i32', 'f64']) {
    for (const to of ['f32', 'f16', 'i32', 'f64']) {
      const cast = b.castDtype(b.zeros([0, 3], from), to);
      holds(cast, [0, 3], []);
      assert.equal(cast.dtype, to);
    }
  }
  holds(b.castDtype(b.relu(tensor(0)), 'f16'), [0], []);
  holds(b.gelu(b.castDtype(b.zeros([0], 'f16'), 'f32')), [0], []);
});

test('sums of tensors without elements', () => {
  const none = b.ones([0, 2]);
  holds(b.sum(none), [], [0]);
  holds(b.sum(none, 0), [2], [0, 0]);
  holds(b.sum(none, 1), [0], []);
  holds(b.sumOfSquares(none), [], [0]);
  holds(b.totalSumOfSquares([none, b.full([3], 2)]), [], [12]);
  holds(b.checkFinite(b.full([0], Number.NaN)), [], [0]);
  assert.throws(() => b.mean(none), /mean: \[0, 2\] has no elements to take the mean of/);
});
