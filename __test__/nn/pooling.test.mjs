// Pools at their edges, as PyTorch's documentation has them: ties, NaN, padding, last windows that reach over the end, parts of unequal size.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, grad, nn, ones, tensor } from '../../nn/index.mjs';
import { initDevice, poison } from './setup.mjs';

before(() => {
  initDevice();
  poison();
});

const row = (/** @type {number[]} */ ...values) => tensor([[values]]);

test('values of pools, eager and compiled', async () => {
  const [three, six, seven] = [row(1, 2, 3), row(1, 2, 3, 4, 5, 6), row(1, 2, 3, 4, 5, 6, 7)];
  const any = (/** @type {unknown} */ value) => /** @type {any} */ (value); // any: calls by name
  for (const [name, x, argument, options, wanted] of /** @type {[string, any, any, any, any][]} */ ([
    ['maxPool1d', six, 2, undefined, [2, 4, 6]],
    ['maxPool1d', six, 3, { stride: 2, ceilMode: true }, [3, 5, 6]],
    ['maxPool1d', three.mul(-1), 3, { stride: 1, padding: 1 }, [-1, -1, -2]],
    ['maxPool1d', seven, 3, { stride: 1, dilation: 2 }, [5, 6, 7]],
    // A window may lie beside x, between the zeros of its two ends.
    ['maxPool1d', row(-5, -7), 2, { stride: 1, padding: 1, dilation: 3 }, [-Infinity]],
    // A last window that would begin in the padding is left out.
    ['maxPool1d', three, 2, { stride: 2, padding: 1, ceilMode: true }, [1, 3]],
    ['avgPool1d', three, 3, { stride: 1, padding: 1 }, [1, 2, 5 / 3]],
    ['avgPool1d', three, 3, { stride: 1, padding: 1, countIncludePad: false }, [1.5, 2, 2.5]],
    ['avgPool1d', six, 3, { stride: 2, ceilMode: true }, [2, 4, 5.5]],
    // The last window is cut at the end of the padding, which counts.
    ['avgPool1d', six, 4, { stride: 3, padding: 1, ceilMode: true }, [6 / 4, 18 / 4, 6 / 2]],
    ['avgPool1d', six, 2, { divisorOverride: 5 }, [3 / 5, 7 / 5, 11 / 5]],
    ['adaptiveAvgPool1d', seven, 3, undefined, [2, 4, 6]],
    ['adaptiveAvgPool1d', three, 5, undefined, [1, 1.5, 2, 2.5, 3]],
    ['adaptiveAvgPool1d', six, 1, undefined, [3.5]],
    ['adaptiveMaxPool1d', seven, 3, undefined, [3, 5, 7]],
  ])) {
    const run = (/** @type {any} */ t) => any(F)[name](t, argument, ...(options ? [options] : []));
    for (const [mode, call] of /** @type {const} */ ([
      ['eager', run],
      ['compiled', compile(run)],
    ])) {
      const values = [...(await call(x).toArray())];
      assert.deepEqual(
        values.map((v) => v.toFixed(5)),
        wanted.map((/** @type {number} */ v) => v.toFixed(5)),
        `${name} ${JSON.stringify(options)}, ${mode}`,
      );
    }
  }
});

test('the largest: the first of equal ones gets the gradient, NaN is larger than numbers, indices count within planes', async () => {
  const x = tensor(
    [
      [
        [
          [3, 3, 1],
          [3, 2, 2],
        ],
        [
          [0, 1, 4],
          [1, 4, 4],
        ],
      ],
    ],
    { requiresGrad: true },
  ); // [1, 2, 2, 3]
  const [y, indices] = F.maxPool2d(x, 2, { stride: 1, returnIndices: true });
  assert.deepEqual(await y.toNested(), [[[[3, 3]], [[4, 4]]]]);
  assert.deepEqual(await indices.toNested(), [[[[0, 1]], [[4, 2]]]]);
  assert.equal(indices.dtype, 'i32');
  const [dx] = grad(y.sum(), [x]);
  assert.deepEqual(await dx.toNested(), [
    [
      [
        [1, 1, 0],
        [0, 0, 0],
      ],
      [
        [0, 0, 1],
        [0, 1, 0],
      ],
    ],
  ]);
  assert.deepEqual([...(await F.maxPool1d(row(1, Number.NaN, 3, 4), 2).toArray())], [Number.NaN, 4]);
  assert.deepEqual([...(await F.maxPool1d(row(-Infinity, -Infinity), 2).toArray())], [-Infinity]);
  // Of several NaN the last one, as in PyTorch.
  const several = row(Number.NaN, Number.NaN, 1, 2, 3, Number.NaN);
  assert.deepEqual([...(await F.maxPool1d(several, 3, { stride: 1, returnIndices: true })[1].toArray())], [1, 1, 4, 5]);
});

test('modules of two and three dimensions, types, and what does not fit', async () => {
  const [image, cube] = [ones([2, 3, 5, 4]), ones([1, 2, 4, 4, 6])];
  for (const [layer, x, shape] of /** @type {[any, any, number[]][]} */ ([
    [new nn.MaxPool2d(3, { stride: 2, padding: 1 }), image, [2, 3, 3, 2]],
    [new nn.AvgPool2d([2, 1], { stride: 1 }), image, [2, 3, 4, 4]],
    [new nn.MaxPool3d(2), cube, [1, 2, 2, 2, 3]],
    [new nn.AvgPool3d([1, 2, 3], { ceilMode: true }), cube, [1, 2, 4, 2, 2]],
    [new nn.AdaptiveAvgPool2d([null, 3]), image, [2, 3, 5, 3]],
    [new nn.AdaptiveAvgPool3d(1), cube, [1, 2, 1, 1, 1]],
    [new nn.AdaptiveMaxPool2d(2), image, [2, 3, 2, 2]],
  ])) {
    const y = layer.forward(x);
    assert.deepEqual(y.shape, shape);
    assert.ok((await y.toArray()).every((/** @type {number} */ v) => v === 1));
    const half = layer.forward(x.to('bf16'));
    assert.equal(half.dtype, 'bf16');
    assert.deepEqual(half.shape, shape);
  }
  assert.throws(() => F.maxPool2d(image, 6), /maxPool2d: a window \[6, 6\] does not fit into the padded input \[2, 3, 5, 4\]/);
  assert.throws(() => F.avgPool2d(image, 2, { padding: 2 }), /avgPool2d: padding must be at most half of the window \[2, 2\], got 2/);
  assert.throws(() => F.maxPool1d(image, 2), /maxPool1d: expected an input \[batch, channels, steps\], got \[2, 3, 5, 4\]/);
  assert.throws(
    () => new nn.AdaptiveAvgPool2d(/** @type {any} */ ([0, 1])),
    /AdaptiveAvgPool2d: outputSize must be an integer of at least 1/,
  );
  assert.throws(() => F.maxPool2d(ones([1, 1, 2, 2], { dtype: 'i32' }), 2), /maxPool2d: takes f32, f16 or bf16, got i32/);
});

test('indices come from the kernel that finds the values, and gradients still flow', async () => {
  const x = tensor([[[1, 5, 2, 4]]]);
  const counts = [false, true].map((returnIndices) => {
    const f = compile((/** @type {any} */ own) => /** @type {any} */ (F.maxPool1d)(own, 2, { returnIndices }));
    f(x);
    return f.explain()[0].dispatches;
  });
  assert.deepEqual(counts, [1, 1]);
  const leaf = x.detach().requiresGrad_();
  const [y, indices] = F.maxPool1d(leaf, 2, { returnIndices: true });
  y.mul(tensor([[[3, 7]]]))
    .sum()
    .backward();
  assert.deepEqual([...(await indices.toArray())], [1, 3]);
  assert.deepEqual([...(await /** @type {any} */ (leaf.grad).toArray())], [0, 3, 0, 7]);
});
