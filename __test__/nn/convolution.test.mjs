// Convolutions with every option against float64, with gradients; eager and compiled, of dense tensors and of views.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, autocast, grad, nn, ones, randn, tensor } from '../../nn/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { eachTerm } from '../lib/convolution.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { checkComposed } from './composed.mjs';
import { size as volume, x } from './inputs.mjs';
import { initDevice, poison, values } from './setup.mjs';

before(() => {
  initDevice();
  poison();
});

/** @typedef {import('../../nn/ops/registry.mjs').Reference} Reference */

/**
 * In float64: the convolution of an input by a weight, whose result has these sizes; with `transposed` the gradient of one.
 * @param {number[]} result @param {Record<string, any>} how
 * @returns {(...inputs: Reference[]) => Reference}
 */
const reference =
  (result, { transposed = false, groups = 1, ...how }) =>
  (input, weight, bias) => {
    const [batch, channels, ...size] = input.shape;
    const window = weight.shape.slice(2);
    const outputs = transposed ? weight.shape[1] * groups : weight.shape[0];
    const data = new Float64Array(batch * outputs * volume(result));
    if (bias) for (let i = 0; i < data.length; i++) data[i] = bias.data[Math.floor(i / volume(result)) % outputs];
    const sizes = transposed
      ? { batch, channels: outputs, outputs: channels, groups, size: result, result: size, window, ...how }
      : { batch, channels, outputs, groups, size, result, window, ...how };
    eachTerm(sizes, (i, w, k) => {
      if (transposed) data[i] += input.data[k] * weight.data[w];
      else data[k] += input.data[i] * weight.data[w];
    });
    return { shape: [batch, outputs, ...result], data };
  };

/** Function, shapes of input and weight, options of the call, sizes of the result, and how windows go over x. @type {[string, number[], number[], any, number[], any][]} */
const CASES = [
  ['conv1d', [2, 3, 9], [4, 3, 3], { stride: 2, padding: 1 }, [5], { stride: [2], padding: [1] }],
  ['conv1d', [1, 2, 7], [3, 2, 4], { padding: 'same', dilation: 2 }, [7], { dilation: [2], padding: [3] }],
  ['conv2d', [2, 3, 5, 4], [2, 3, 3, 2], { padding: 'same' }, [5, 4], { padding: [1, 0] }],
  ['conv2d', [1, 4, 6, 5], [6, 2, 2, 3], { groups: 2, padding: 'valid', stride: [1, 2] }, [5, 2], { groups: 2, stride: [1, 2] }],
  ['conv2d', [2, 3, 7, 5], [6, 1, 3, 3], { groups: 3, padding: 1, stride: 2 }, [4, 3], { groups: 3, stride: [2, 2], padding: [1, 1] }],
  [
    'conv2d',
    [1, 2, 6, 6],
    [3, 2, 3, 3],
    {
      padding: [
        [2, 1],
        [0, 3],
      ],
      dilation: [2, 1],
    },
    [5, 7],
    { padding: [2, 0], dilation: [2, 1] },
  ],
  [
    'conv3d',
    [1, 2, 3, 4, 3],
    [2, 2, 2, 3, 1],
    { stride: [1, 2, 1], padding: [1, 1, 0] },
    [4, 2, 3],
    { stride: [1, 2, 1], padding: [1, 1, 0] },
  ],
  [
    'convTranspose1d',
    [2, 3, 4],
    [3, 2, 3],
    { stride: 3, padding: 1, outputPadding: 2 },
    [12],
    { transposed: true, stride: [3], padding: [1] },
  ],
  [
    'convTranspose2d',
    [1, 4, 3, 2],
    [4, 1, 3, 2],
    { stride: [2, 1], groups: 2, outputPadding: [1, 0], dilation: [1, 2] },
    [8, 4],
    { transposed: true, groups: 2, stride: [2, 1], dilation: [1, 2] },
  ],
  ['convTranspose3d', [1, 2, 2, 2, 3], [2, 3, 2, 1, 2], { stride: 2 }, [4, 3, 6], { transposed: true, stride: [2, 2, 2] }],
];

for (const [name, input, weight, options, result, how] of CASES) {
  test(`${name} ${JSON.stringify(input)} by ${JSON.stringify(weight)} with ${JSON.stringify(options)}`, async () => {
    const outputs = how.transposed ? weight[1] * (how.groups ?? 1) : weight[0];
    await checkComposed(name, {
      call: (a, w, b) => /** @type {any} */ (F)[name](a, w, b, options),
      inputs: [x(...input), x(...weight), x(outputs)],
      reference: reference(result, how),
    });
  });
}

test('a bias may be a view with strides', async () => {
  for (const [rank, conv, transposed] of /** @type {[number, any, any][]} */ ([
    [1, F.conv1d, F.convTranspose1d],
    [2, F.conv2d, F.convTranspose2d],
    [3, F.conv3d, F.convTranspose3d],
  ])) {
    const [image, weight] = [randn([1, 3, ...[5, 4, 3].slice(0, rank)]), randn([3, 3, ...new Array(rank).fill(2)])];
    const bias = randn([3, 4]).transpose(0, 1).at(1);
    for (const run of [conv, transposed])
      assert.deepEqual(await run(image, weight, bias).toArray(), await run(image, weight, bias.clone()).toArray(), `${run.name}`);
  }
});

test('16-bit images and weights, and f32 ones under autocast, within a rounding', async () => {
  for (const dtype of /** @type {const} */ (['f16', 'bf16'])) {
    const bound = dtype === 'f16' ? 2 ** -9 : 2 ** -6;
    // The second image is copied with its channels last, where the device has matrix units.
    for (const channels of [8, 32]) {
      const [image, weight, bias] = [randn([2, channels, 9, 7]), randn([16, channels, 3, 3]), randn([16])];
      const run = (/** @type {any} */ a, /** @type {any} */ w) => F.conv2d(a, w, bias, { padding: 1, stride: 2 });
      const results = [];
      for (const half of [true, false]) {
        const [a, w] = [image, weight].map((t) => (half ? t.to(dtype) : t.to(dtype).to('f32')).detach().requiresGrad_());
        const y = run(a, w);
        assert.equal(y.dtype, half ? dtype : 'f32');
        results.push([y, ...grad(y.to('f32').square().sum(), [a, w])]);
      }
      for (const [i, own] of results[0].entries())
        assertClose(
          await own.to('f32').toArray(),
          await results[1][i].toArray(),
          bound,
          `${dtype}, ${['result', 'input gradient', 'weight gradient'][i]} (${runtime().kernels.convolutionSupports(dtype)})`,
        );
      const cast = autocast(dtype, () => run(image, weight));
      assert.equal(cast.dtype, dtype);
      assert.deepEqual(await cast.toArray(), await results[0][0].toArray());
    }
  }
});

test("modules have PyTorch's parameters, and call the functions", async () => {
  for (const [layer, shapes, input, result] of /** @type {[any, number[][], number[], number[]][]} */ ([
    [new nn.Conv1d(4, 6, 3, { groups: 2 }), [[6, 2, 3], [6]], [1, 4, 5], [1, 6, 3]],
    [new nn.Conv2d(4, 4, [3, 1], { groups: 4, padding: 'same', bias: false }), [[4, 1, 3, 1]], [1, 4, 3, 2], [1, 4, 3, 2]],
    [new nn.Conv3d(1, 2, 2, { padding: 1, stride: 2 }), [[2, 1, 2, 2, 2], [2]], [1, 1, 2, 2, 4], [1, 2, 2, 2, 3]],
    [new nn.ConvTranspose1d(4, 6, 3, { groups: 2, stride: 2 }), [[4, 3, 3], [6]], [1, 4, 2], [1, 6, 5]],
    [new nn.ConvTranspose2d(4, 6, 3, { stride: 2, padding: 1, outputPadding: 1 }), [[4, 6, 3, 3], [6]], [1, 4, 2, 3], [1, 6, 4, 6]],
    [new nn.ConvTranspose3d(1, 2, [1, 2, 1], { bias: false }), [[1, 2, 1, 2, 1]], [1, 1, 1, 1, 2], [1, 2, 1, 2, 2]],
  ])) {
    assert.deepEqual(
      layer.parameters().map((/** @type {any} */ p) => p.shape),
      shapes,
    );
    const y = layer.forward(ones(input));
    assert.deepEqual(y.shape, result, String(layer));
    const bound = 1 / Math.sqrt(volume(shapes[0].slice(1)));
    assert.ok((await layer.weight.toArray()).every((/** @type {number} */ v) => Math.abs(v) <= bound));
  }
  assert.equal(String(new nn.Conv2d(3, 8, [3, 1], { groups: 1 })), 'Conv2d(3, 8, [3, 1])');
});

test('what padding adds: the modes of PyTorch', async () => {
  const image = tensor([[[1, 2, 3, 4]]]);
  for (const [paddingMode, padding, dilation, wanted] of /** @type {[any, any, number, number[]][]} */ ([
    ['zeros', 1, 1, [1, 3, 5, 7, 4]],
    ['reflect', 2, 1, [5, 3, 3, 5, 7, 7, 5]],
    ['replicate', [[0, 2]], 1, [3, 5, 7, 8, 8]],
    ['circular', 1, 1, [5, 3, 5, 7, 5]],
    // One element behind is missing: it is that of the other end.
    ['circular', 'same', 1, [3, 5, 7, 5]],
    ['circular', 'same', 2, [6, 4, 6, 4]],
  ])) {
    const layer = new nn.Conv1d(1, 1, 2, { paddingMode, padding, dilation, bias: false });
    layer.loadStateDict({ weight: ones([1, 1, 2]) });
    assert.deepEqual([...(await layer.forward(image).toArray())], wanted, `${paddingMode} ${padding}`);
  }
  const layer = new nn.Conv2d(1, 1, [1, 3], { paddingMode: 'reflect', padding: [0, 1] });
  assert.deepEqual(layer.forward(ones([1, 1, 2, 5])).shape, [1, 1, 2, 5]);
  assert.throws(() => layer.forward(image), /conv2d: expected an input/);
  assert.throws(
    () => new nn.Conv2d(1, 1, 1, { paddingMode: /** @type {any} */ ('mirror') }),
    /Conv2d: paddingMode must be one of zeros, reflect/,
  );
});

test('what does not fit says so', () => {
  const image = ones([1, 4, 5, 5]);
  for (const [run, message] of /** @type {[() => any, RegExp][]} */ ([
    [
      () => F.conv2d(image, ones([4, 4, 3, 3]), undefined, { groups: 2 }),
      /conv2d: an input \[1, 4, 5, 5\] needs a weight \[outputs, 2, down, across\], got \[4, 4, 3, 3\]/,
    ],
    [
      () => F.conv2d(image, ones([3, 2, 3, 3]), undefined, { groups: 2 }),
      /conv2d: 3 outputs of a weight \[3, 2, 3, 3\] are not a multiple of 2 groups/,
    ],
    [
      () => F.conv2d(image, ones([4, 4, 3, 3]), undefined, { padding: 'same', stride: 2 }),
      /conv2d: padding 'same' needs a stride of 1, got 2/,
    ],
    [
      () => F.conv2d(image, ones([4, 4, 3, 3]), undefined, { dilation: 3 }),
      /conv2d: a window \[3, 3\] with dilation \[3, 3\] does not fit into the padded input \[1, 4, 5, 5\]/,
    ],
    [
      () => F.conv2d(image, ones([4, 4, 3, 3]), undefined, { padding: /** @type {any} */ ([[1, 2]]) }),
      /conv2d: padding must be an integer of at least 0, or two of them, \[down, across\], got/,
    ],
    [
      () => F.convTranspose2d(image, ones([3, 4, 3, 3])),
      /convTranspose2d: an input \[1, 4, 5, 5\] needs a weight \[4, outputs, down, across\], got \[3, 4, 3, 3\]/,
    ],
    [
      () => F.convTranspose2d(image, ones([4, 4, 3, 3]), undefined, { outputPadding: 1 }),
      /convTranspose2d: outputPadding must be smaller than the stride or the dilation, got 1/,
    ],
    [
      () => F.convTranspose1d(ones([1, 1, 1]), ones([1, 1, 1]), undefined, { padding: 1 }),
      /convTranspose1d: padding 1 leaves nothing of the result for an input \[1, 1, 1\]/,
    ],
    [() => new nn.Conv2d(3, 4, 1, { groups: 2 }), /Conv2d: 3 inputs and 4 outputs are not multiples of 2 groups/],
  ]))
    assert.throws(run, message);
});

test('layers say their sizes by the names of PyTorch; stride, padding and dilation of a convolution can be set', async () => {
  const x = randn([2, 3, 9, 8]);
  const layer = new nn.Conv2d(3, 6, [3, 2], { stride: 2, padding: [1, 0], groups: 3 });
  const { inChannels, outChannels, kernelSize, stride, padding, dilation, groups } = layer;
  assert.deepEqual(
    { inChannels, outChannels, kernelSize, stride, padding, dilation, groups },
    { inChannels: 3, outChannels: 6, kernelSize: [3, 2], stride: [2, 2], padding: [1, 0], dilation: [1, 1], groups: 3 },
  );
  // What a subclass with weights of its own calls.
  const own = F.conv2d(x, layer.weight, layer.bias, { stride, padding, dilation, groups });
  assert.deepEqual(await values(own), await values(layer.forward(x)));
  for (const paddingMode of /** @type {const} */ (['zeros', 'reflect'])) {
    for (const padding of /** @type {('same' | [number, number])[]} */ (['same', [2, 1]])) {
      const set = new nn.Conv2d(3, 6, 3, { paddingMode });
      const made = new nn.Conv2d(3, 6, 3, { paddingMode, padding, dilation: 2 });
      set.loadStateDict(made.stateDict());
      set.padding = padding;
      set.dilation = 2;
      assert.deepEqual([set.padding, set.dilation], [padding, [2, 2]]);
      assert.deepEqual(await values(set.forward(x)), await values(made.forward(x)), `${paddingMode} ${padding}`);
      if (padding === 'same') continue;
      set.stride = [1, 2];
      assert.deepEqual(set.forward(x).shape, made.forward(x).shape.with(3, Math.ceil(made.forward(x).shape[3] / 2)));
    }
  }
  assert.throws(() => void (layer.stride = 0), /Conv2d: stride must be an integer of at least 1/);
  assert.throws(() => void (layer.padding = /** @type {any} */ ('full')), /Conv2d: padding must be 'same', 'valid' or integers, got full/);
  const [linear, table, norm, groupNorm] = [new nn.Linear(3, 5), new nn.Embedding(7, 4), new nn.BatchNorm2d(3), new nn.GroupNorm(2, 4)];
  assert.deepEqual([linear.inFeatures, linear.outFeatures, table.numEmbeddings, table.embeddingDim], [3, 5, 7, 4]);
  assert.deepEqual([norm.numFeatures, groupNorm.numGroups, groupNorm.numChannels], [3, 2, 4]);
  const [rnn, pool] = [new nn.LSTM(3, 4), new nn.MaxPool2d(3, { padding: 1 })];
  assert.deepEqual([rnn.inputSize, rnn.hiddenSize, pool.kernelSize, pool.stride, pool.padding], [3, 4, [3, 3], [3, 3], [1, 1]]);
  assert.deepEqual(new nn.LayerNorm(4).normalizedShape, [4]);
});
