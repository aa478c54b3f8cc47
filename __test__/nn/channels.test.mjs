// Images between layers: batch norm in both orders of memory against float64, what elementwise operations and sums make of images stored channels
// last, what ends a convolution, and what a compiled function keeps between its calls.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, grad, manualSeed, nn, noGrad, optim, randn, tensor } from '../../nn/index.mjs';
import { isChannelsLast } from '../../nn/core/layout.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { assertClose, seed } from '../lib/random-data.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */

/** The same elements, stored channels last. @param {Tensor} x @returns {Tensor} */
const last = (x) => x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2);

/**
 * Batch norm and ReLU, with gradients, in float64.
 * @param {ArrayLike<number>} x @param {number[]} shape @param {ArrayLike<number>} weight @param {ArrayLike<number>} bias @param {ArrayLike<number>} dy
 */
function reference(x, [B, C, ...size], weight, bias, dy) {
  const plane = size.reduce((a, b) => a * b);
  const [y, dx] = [new Float64Array(x.length), new Float64Array(x.length)];
  const [dWeight, dBias, means, variances] = Array.from({ length: 4 }, () => new Float64Array(C));
  const n = B * plane;
  for (let c = 0; c < C; c++) {
    const places = Array.from({ length: n }, (_, i) => (Math.floor(i / plane) * C + c) * plane + (i % plane));
    const mean = places.reduce((sum, i) => sum + x[i], 0) / n;
    const variance = places.reduce((sum, i) => sum + (x[i] - mean) ** 2, 0) / n;
    const inverse = 1 / Math.sqrt(variance + 1e-5);
    const hat = (/** @type {number} */ i) => (x[i] - mean) * inverse;
    for (const i of places) y[i] = Math.max(0, hat(i) * weight[c] + bias[c]);
    const d = (/** @type {number} */ i) => (y[i] > 0 ? dy[i] : 0);
    for (const i of places) {
      dWeight[c] += d(i) * hat(i);
      dBias[c] += d(i);
    }
    for (const i of places) dx[i] = weight[c] * inverse * (d(i) - (dBias[c] + hat(i) * dWeight[c]) / n);
    means[c] = 0.1 * mean;
    variances[c] = 0.9 + (0.1 * variance * n) / (n - 1);
  }
  return [y, dx, dWeight, dBias, means, variances];
}

test('batch norm and ReLU with gradients: f32 and bf16, both orders of memory, means far from 0, eager and compiled', async () => {
  manualSeed(seed);
  for (const [shape, mean] of /** @type {[number[], number][]} */ ([
    [[3, 5, 4, 3], 1],
    [[2, 8, 3, 5], 200],
    [[33, 4, 1, 1], -3],
  ])) {
    for (const order of [(/** @type {Tensor} */ x) => x, last])
      for (const dtype of /** @type {const} */ (['f32', 'bf16']))
        for (const mode of ['eager', 'compiled']) {
          const what = `${shape} ${dtype} ${order === last ? 'channels last ' : ''}${mode}`;
          const [x, dy] = noGrad(() => [randn(shape, { mean }).to(dtype), randn(shape).to(dtype)]);
          const norm = new nn.BatchNorm2d(shape[1]);
          noGrad(() => [norm.weight, norm.bias].map((parameter) => parameter.copy_(randn([shape[1]]))));
          x.requiresGrad_();
          const run = () => {
            const y = F.relu(norm.forward(order(x)));
            const gradients = grad(y, [x, norm.weight, norm.bias], { gradient: dy });
            return [y.detach(), ...gradients, .../** @type {Tensor[]} */ ([norm.running_mean, norm.running_var]).map((v) => v.clone())];
          };
          const results = mode === 'eager' ? run() : compile(run)();
          assert.equal(results[0].dtype, dtype, what);
          const inputs = await Promise.all([x, norm.weight, norm.bias, dy].map((v) => values(v.to('f32'))));
          const expected = reference(inputs[0], shape, inputs[1], inputs[2], inputs[3]);
          // Of 16-bit results each has its own rounding; the sums are of what was rounded.
          const bounds = dtype === 'f32' ? [2e-5, 2e-5] : [2 ** -7, 1e-4];
          for (const [i, result] of results.entries())
            assertClose(await values(result.to('f32')), expected[i], bounds[i < 2 ? 0 : 1], `${what}: result ${i}`);
        }
  }
});

test('elementwise results and sums of images stored channels last are those of others, and stay so stored', async () => {
  manualSeed(seed);
  const x = randn([3, 4, 5, 2]);
  const other = randn([3, 4, 5, 2]);
  const vector = randn([4, 1, 1]);
  /** @type {Record<string, (x: Tensor) => Tensor>} */
  const functions = {
    relu: (v) => F.relu(v),
    'with a vector of channels': (v) => v.mul(vector).add(1),
    'with a dense image': (v) => v.add(other),
    where: (v) => F.where(F.gt(v, 0), v, other),
    'another type': (v) => v.to('bf16').to('f32'),
    gelu: (v) => F.gelu(v.exp()),
  };
  for (const [name, f] of Object.entries(functions)) {
    const y = f(last(x));
    assert.ok(isChannelsLast(y.layout), name);
    assertClose(await values(y), await values(f(x)), 1e-6, name);
  }
  assert.ok(other.add(last(x)).layout.contiguous, 'the first operand decides');
  /** @type {Record<string, (x: Tensor) => Tensor>} */
  const pools = {
    maxPool: (v) => F.maxPool2d(v, 2, { padding: 1 }),
    avgPool: (v) => F.avgPool2d(v, [2, 1], { stride: 1 }),
    adaptiveAvgPool: (v) => F.adaptiveAvgPool2d(v, [3, 2]),
  };
  for (const [name, f] of Object.entries(pools)) {
    const [inputs, others] = noGrad(() => [last(x), x.clone()]).map((v) => v.requiresGrad_());
    const [y, wanted] = [f(inputs), f(others)];
    assert.ok(isChannelsLast(y.layout), name);
    assertClose(await values(y.detach()), await values(wanted.detach()), 1e-6, name);
    const dy = noGrad(() => randn([...y.shape]));
    const [own, theirs] = [grad(y, [inputs], { gradient: last(dy) })[0], grad(wanted, [others], { gradient: dy })[0]];
    assertClose(await values(own), await values(theirs), 1e-6, `gradient of ${name}`);
  }
  for (const dims of [[0, 2, 3], [2, 3], [1], [0], [0, 1, 2, 3], [3, 1]])
    for (const own of [x, last(x)]) {
      const sum = own.sum(dims);
      const wanted = await values(noGrad(() => dims.toSorted((a, b) => b - a).reduce((v, d) => v.sum(d), x)));
      assertClose(await values(sum), wanted, 1e-5, `sum over ${dims}`);
    }
});

test('a convolution ends with ReLU; batch norm takes few dispatches', async () => {
  manualSeed(seed);
  const conv = new nn.Conv2d(3, 4, 3, { padding: 1 });
  const x = randn([2, 3, 6, 5]);
  const ended = compile((/** @type {Tensor} */ v) => noGrad(() => F.relu(conv.forward(v))));
  assertClose(await values(ended(x)), await values(noGrad(() => F.relu(conv.forward(x)))), 1e-6, 'ReLU');
  assert.equal(ended.explain()[0].dispatches, 1);
  // What is read before ReLU too is not left out.
  const both = compile((/** @type {Tensor} */ v) => noGrad(() => [conv.forward(v)].flatMap((y) => [y, F.relu(y)])));
  const [plain, cut] = both(x);
  assertClose(await values(plain), await values(noGrad(() => conv.forward(x))), 1e-6, 'before ReLU');
  assertClose(await values(cut), await values(ended(x)), 1e-6, 'beside it');

  const norm = new nn.BatchNorm2d(8);
  const image = noGrad(() => last(randn([4, 8, 6, 6])));
  const forward = compile(() => noGrad(() => F.relu(norm.forward(image).add(image))));
  forward();
  // Sums, what follows of them, and the result: where the device is filled by slices of the sums, those are added by one more.
  assert.ok(forward.explain()[0].dispatches <= 4, `${forward.explain()[0].dispatches}`);
});

test('what depends only on tensors that no call changes is kept between calls, until they change', async () => {
  const weight = tensor([1, 2, 3, 4], { dtype: 'f32' });
  const f = compile((/** @type {Tensor} */ x) => x.add(weight.to('bf16').to('f32').mul(2)));
  const x = tensor([0, 0, 0, 1]);
  assert.deepEqual([...(await values(f(x)))], [2, 4, 6, 9]);
  assert.equal(f.explain()[0].dispatches, 1);
  assert.ok(f.explain()[0].found['results kept between calls'] >= 1);
  weight.copy_(tensor([5, 6, 7, 8]));
  assert.deepEqual([...(await values(f(x)))], [10, 12, 14, 17], 'changed in place');
  const change = compile((/** @type {Tensor} */ by) => void weight.add_(by));
  change(tensor([1, 1, 1, 1]));
  assert.deepEqual([...(await values(f(x)))], [12, 14, 16, 19], 'changed by another compiled function');
  assert.deepEqual([...(await values(f(tensor([1, 1, 1, 1]))))], [13, 15, 17, 19], 'another argument');

  // What a call changes, and an argument, is computed in each.
  const state = tensor([1, 2, 3, 4]);
  const counted = compile(() => {
    const before = state.to('bf16').to('f32');
    state.add_(1);
    return before;
  });
  assert.deepEqual([...(await values(counted()))], [1, 2, 3, 4]);
  assert.deepEqual([...(await values(counted()))], [2, 3, 4, 5]);
  assert.equal(counted.explain()[0].found['results kept between calls'], undefined);

  const parameter = new nn.Parameter(tensor([1, 2, 3, 4]));
  const optimizer = new optim.SGD([parameter], { lr: 1 });
  const step = compile(() => {
    optimizer.zeroGrad();
    parameter.to('bf16').to('f32').sum().backward();
    optimizer.step();
  });
  for (let i = 0; i < 3; i++) step();
  assert.deepEqual([...(await values(parameter.detach()))], [-2, -1, 0, 1]);
  assert.equal(step.explain()[0].found['results kept between calls'], undefined);
});

test('depthwise convolutions of halves: as f32, channels last after them, with strides, in one and two directions', async () => {
  for (const dtype of /** @type {const} */ (['f16', 'bf16'])) {
    if (!runtime().kernels.convolutionSupports(dtype)) continue;
    for (const [shape, window, how] of /** @type {[number[], number[], any][]} */ ([
      [[2, 16, 9, 11], [3, 3], { stride: 2, padding: 1 }],
      [[1, 24, 8, 7], [7, 7], { padding: 3 }],
      [[2, 8, 13], [5], { dilation: 2 }],
    ])) {
      const [x, w, bias] = [randn(shape), randn([shape[1], 1, ...window]), randn([shape[1]])];
      const run = shape.length === 3 ? F.conv1d : F.conv2d;
      const of = (/** @type {'f32' | 'f16' | 'bf16'} */ type) => {
        const [a, b] = [x, w].map((value) => value.to(dtype).to(type).requiresGrad_());
        const y = run(a, b, bias, { groups: shape[1], ...how });
        return [y, ...grad(y.to('f32').square().sum(), [a, b])];
      };
      const [got, want] = [of(dtype), of('f32')];
      if (shape.length === 4) assert.ok(isChannelsLast(got[0].layout));
      for (const [i, tensor] of got.entries()) {
        const expected = Float64Array.from(await values(want[i]));
        assertClose(await values(tensor.to('f32')), expected, dtype === 'bf16' ? 0.02 : 3e-3, `${dtype} ${shape} ${i}`);
      }
    }
  }
});
