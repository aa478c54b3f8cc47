// Layers composed of operations: against formulas in float64 and finite differences of them, eager and compiled.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { runtime } from '../../nn/core/runtime.mjs';
import { F, compile, grad, manualSeed, nn, optim, randn, scope, tensor } from '../../nn/index.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */
/** @param {any} x @returns {Promise<Float64Array>} */
const values = async (x) => Float64Array.from(await x.toArray());
const sigmoid = (/** @type {number} */ x) => 1 / (1 + Math.exp(-x));

/**
 * A layer's result against a reference, its gradients against the reference's differences, and the compiled one's bits.
 * @param {any} layer @param {Tensor} x @param {(x: Float64Array, weights: Record<string, Float64Array>) => Float64Array | number[]} reference
 * @param {(y: any) => Tensor} [first] the tensor of what forward returns
 */
async function check(layer, x, reference, first = (y) => y) {
  /** @type {Record<string, Float64Array>} */
  const state = {};
  for (const [name, tensor] of Object.entries(layer.stateDict())) state[name] = await values(tensor);
  const data = await values(x);
  const expected = reference(data, state);
  x.requiresGrad_();
  const y = first(layer.forward(x));
  assertClose(await values(y), Float64Array.from(expected), 1e-5, 'result');
  const weights = Float64Array.from(expected, (_, i) => Math.sin(3 * i + 1));
  const loss = (/** @type {ArrayLike<number>} */ out) => Array.from(out).reduce((sum, v, i) => sum + v * weights[i], 0);
  const parameters = [...layer.namedParameters()];
  const run = (/** @type {any} */ input) => {
    const out = first(layer.forward(input));
    return grad(out.mul(tensor(weights, { shape: [...out.shape] })).sum(), [input, ...parameters.map(([, p]) => p)]);
  };
  const gradients = run(x);
  const weight = tensor(weights, { shape: [...y.shape] });
  const f = compile((/** @type {any} */ input) =>
    grad(first(layer.forward(input)).mul(weight).sum(), [input, ...parameters.map(([, p]) => p)]),
  );
  const compiled = f(x);
  const names = ['', ...parameters.map(([name]) => name)];
  for (const [i, name] of names.entries()) {
    const own = name ? state[name] : data;
    const h = 1e-5;
    const differences = own.map((v, k) => {
      const at = (/** @type {number} */ value) => {
        const moved = own.with(k, value);
        return loss(name ? reference(data, { ...state, [name]: moved }) : reference(moved, state));
      };
      return (at(v + h) - at(v - h)) / (2 * h);
    });
    assertClose(await values(gradients[i]), differences, 2e-4, `gradient of ${name || 'x'}`);
    assertClose(await values(compiled[i]), await values(gradients[i]), 1e-5, `${name || 'x'}, compiled`);
  }
}

test('GRU', async () => {
  manualSeed(1);
  const [B, T, I, H] = [2, 3, 3, 4];
  await check(
    new nn.GRU(I, H),
    randn([B, T, I]),
    (x, { weight_ih_l0: wi, weight_hh_l0: wh, bias_ih_l0: bi, bias_hh_l0: bh }) => {
      const out = new Float64Array(B * T * H);
      for (let b = 0; b < B; b++) {
        let h = new Float64Array(H);
        for (let t = 0; t < T; t++) {
          const a = bi.map((v, g) => v + x.slice((b * T + t) * I, (b * T + t + 1) * I).reduce((s, e, i) => s + e * wi[g * I + i], 0));
          const c = bh.map((v, g) => v + h.reduce((s, e, i) => s + e * wh[g * H + i], 0));
          h = h.map((v, i) => {
            const [r, z] = [sigmoid(a[i] + c[i]), sigmoid(a[H + i] + c[H + i])];
            return (1 - z) * Math.tanh(a[2 * H + i] + r * c[2 * H + i]) + z * v;
          });
          out.set(h, (b * T + t) * H);
        }
      }
      return out;
    },
    ([y]) => y,
  );
});

test('LSTM', async () => {
  manualSeed(2);
  const [B, T, I, H] = [2, 3, 2, 3];
  await check(
    new nn.LSTM(I, H),
    randn([B, T, I]),
    (x, { weight_ih_l0: wi, weight_hh_l0: wh, bias_ih_l0: bi, bias_hh_l0: bh }) => {
      const out = new Float64Array(B * T * H);
      for (let b = 0; b < B; b++) {
        let [h, c] = [new Float64Array(H), new Float64Array(H)];
        for (let t = 0; t < T; t++) {
          const a = bi.map(
            (v, g) =>
              v +
              bh[g] +
              x.slice((b * T + t) * I, (b * T + t + 1) * I).reduce((s, e, i) => s + e * wi[g * I + i], 0) +
              h.reduce((s, e, i) => s + e * wh[g * H + i], 0),
          );
          c = c.map((v, i) => sigmoid(a[H + i]) * v + sigmoid(a[i]) * Math.tanh(a[2 * H + i]));
          h = h.map((_, i) => sigmoid(a[3 * H + i]) * Math.tanh(c[i]));
          out.set(h, (b * T + t) * H);
        }
      }
      return out;
    },
    ([y]) => y,
  );
});

test('recurrent layers one above the other are those layers one by one, with the states of each', async () => {
  manualSeed(3);
  const [B, T, I, H, L] = [2, 3, 3, 4, 3];
  const x = randn([B, T, I]);
  /** @param {any} layer @param {number} l @returns {any} the layer by itself */
  const alone = (layer, l) => {
    const own = new layer.constructor(l === 0 ? I : H, H);
    const state = Object.entries(layer.stateDict()).filter(([name]) => name.endsWith(`_l${l}`));
    own.loadStateDict(Object.fromEntries(state.map(([name, value]) => [name.replace(`_l${l}`, '_l0'), value])));
    return own;
  };
  const states = [randn([L, B, H]), randn([L, B, H])];
  for (const [layer, given] of /** @type {[any, any][]} */ ([
    [new nn.GRU(I, H, { numLayers: L }), states[0]],
    [new nn.LSTM(I, H, { numLayers: L }), states],
  ])) {
    const [y, last] = layer.forward(x, given);
    assert.deepEqual([...y.shape], [B, T, H]);
    let own = x;
    for (let l = 0; l < L; l++) {
      const of = (/** @type {any} */ value) => (Array.isArray(value) ? value.map((part) => part.at(l)) : value.at(l));
      const [next, end] = alone(layer, l).forward(own, of(given));
      own = next;
      for (const [i, wanted] of [end].flat().entries())
        assert.deepEqual(await values([of(last)].flat()[i]), await values(wanted), `layer ${l}`);
    }
    assert.deepEqual(await values(y), await values(own));
    assert.throws(() => layer.forward(x, Array.isArray(given) ? [x, x] : x), /expected a state \[3, 2, 4\], got \[2, 3, 3\]/);
    assert.throws(() => layer.forward(x.at(0)), /expected an input \[batch, steps, inputs\]/);
  }
  assert.throws(() => new nn.LSTM(I, H, { numLayers: 0 }), /LSTM: numLayers must be an integer of at least 1, got 0/);
});

test('a step of an LSTM is two dispatches, forward and backward, or all steps are one', async () => {
  const [x, layer] = [randn([2, 8, 4]), new nn.LSTM(4, 8)];
  const step = compile((/** @type {any} */ input) => {
    const [y, [h, c]] = layer.forward(input);
    return grad(y.sum().add(h.sum()).add(c.sum()), layer.parameters());
  });
  step(x);
  const counts = [8, 16].map((steps) => {
    step(randn([2, steps, 4]));
    return step.explain().at(-1)?.dispatches ?? 0;
  });
  const { recurrentSupports } = runtime().kernels;
  const isWhole = [8, 16].every((steps) => recurrentSupports({ cell: 'lstm', batch: 2, steps, hidden: 8 }));
  assert.equal((counts[1] - counts[0]) / 8, isWhole ? 0 : 4, `${counts}`);
});

for (const [stride, padding, window] of /** @type {const} */ ([
  [1, 0, 3],
  [2, 1, 3],
  [1, 1, 2],
])) {
  test(`Conv2d: stride ${stride}, padding ${padding}, window ${window}`, async () => {
    manualSeed(3);
    const [B, C, O, H, W] = [2, 2, 3, 5, 4];
    const size = (/** @type {number} */ n) => Math.floor((n + 2 * padding - window) / stride) + 1;
    const [R, S] = [size(H), size(W)];
    await check(new nn.Conv2d(C, O, window, { stride, padding }), randn([B, C, H, W]), (x, { weight, bias }) => {
      const out = new Float64Array(B * O * R * S);
      for (let k = 0; k < out.length; k++) {
        const [b, o, r, s] = [Math.floor(k / (O * R * S)), Math.floor(k / (R * S)) % O, Math.floor(k / S) % R, k % S];
        let sum = bias[o];
        for (let c = 0; c < C; c++) {
          for (let i = 0; i < window; i++) {
            for (let j = 0; j < window; j++) {
              const [y, z] = [r * stride + i - padding, s * stride + j - padding];
              if (y >= 0 && y < H && z >= 0 && z < W)
                sum += x[((b * C + c) * H + y) * W + z] * weight[((o * C + c) * window + i) * window + j];
            }
          }
        }
        out[k] = sum;
      }
      return out;
    });
  });
}

test('Conv1d is a row of Conv2d; pools take windows; sizes that do not fit say so', async () => {
  manualSeed(4);
  const conv = new nn.Conv1d(2, 3, 3, { padding: 1 });
  const x = randn([2, 2, 6]);
  const y = F.conv2d(x.unsqueeze(2), conv.weight.unsqueeze(2), conv.bias, { padding: [0, 1] });
  assert.deepEqual(await values(conv.forward(x)), await values(y.squeeze(2)));
  const image = tensor(
    Float32Array.from({ length: 16 }, (_, i) => (i * 7) % 16),
    { shape: [1, 1, 4, 4] },
  );
  assert.deepEqual(
    [...(await values(new nn.MaxPool2d(2).forward(image)))],
    [12, 14, 15, 13]
      .map((_, k) => k)
      .map((k) => {
        const [r, c] = [2 * Math.floor(k / 2), 2 * (k % 2)];
        return Math.max(...[0, 1, 4, 5].map((d) => ((4 * r + c + d) * 7) % 16));
      }),
  );
  assert.deepEqual((await values(new nn.AvgPool2d(2, { stride: 1 }).forward(image))).length, 9);
  assert.throws(() => new nn.MaxPool2d(5).forward(image), /maxPool2d: a window \[5, 5\] does not fit into the padded input \[1, 1, 4, 4\]/);
  assert.throws(
    () => new nn.Conv2d(2, 1, 3).forward(image),
    /conv2d: an input \[1, 1, 4, 4\] needs a weight \[outputs, 1, down, across\], got \[1, 2, 3, 3\]/,
  );
});

test('BatchNorm2d: by the batch while training, by running means after that, compiled as well', async () => {
  const [B, C, P] = [3, 2, 4];
  const statistics = (/** @type {Float64Array} */ x, /** @type {number} */ c) => {
    const own = x.filter((_, i) => Math.floor(i / P) % C === c);
    const mean = own.reduce((a, b) => a + b, 0) / own.length;
    return { mean, variance: own.reduce((a, b) => a + (b - mean) ** 2, 0) / own.length, count: own.length };
  };
  manualSeed(5);
  const norm = new nn.BatchNorm2d(C);
  const x = randn([B, C, 2, 2], { mean: 1 });
  await check(norm, x, (data, { weight, bias }) =>
    data.map((v, i) => {
      const c = Math.floor(i / P) % C;
      const { mean, variance } = statistics(data, c);
      return ((v - mean) / Math.sqrt(variance + 1e-5)) * weight[c] + bias[c];
    }),
  );
  const other = new nn.BatchNorm2d(C);
  const f = compile((/** @type {any} */ input) => other.forward(input).detach());
  const data = await values(x);
  const [mean, variance] = [new Float64Array(C), new Float64Array(C).fill(1)];
  for (let i = 0; i < 3; i++) {
    scope(() => void f(x.detach()));
    for (let c = 0; c < C; c++) {
      const own = statistics(data, c);
      mean[c] = 0.9 * mean[c] + 0.1 * own.mean;
      variance[c] = 0.9 * variance[c] + (0.1 * own.variance * own.count) / (own.count - 1);
    }
  }
  assertClose(await values(other.running_mean), mean, 1e-5, 'running mean');
  assertClose(await values(other.running_var), variance, 1e-5, 'running variance');
  other.eval();
  assertClose(
    await values(f(x.detach())),
    data.map((v, i) => (v - mean[Math.floor(i / P) % C]) / Math.sqrt(variance[Math.floor(i / P) % C] + 1e-5)),
    1e-5,
    'eval',
  );
});

test('GroupNorm', async () => {
  manualSeed(6);
  const [B, C, P, G] = [2, 4, 3, 2];
  await check(new nn.GroupNorm(G, C), randn([B, C, P]), (x, { weight, bias }) => {
    const row = (C / G) * P;
    return x.map((v, i) => {
      const own = x.slice(Math.floor(i / row) * row, (Math.floor(i / row) + 1) * row);
      const mean = own.reduce((a, b) => a + b, 0) / row;
      const variance = own.reduce((a, b) => a + (b - mean) ** 2, 0) / row;
      const c = Math.floor(i / P) % C;
      return ((v - mean) / Math.sqrt(variance + 1e-5)) * weight[c] + bias[c];
    });
  });
});

test('attention with shared keys and values is that with the heads repeated; queries and keys normalized', async () => {
  manualSeed(7);
  for (const headSize of [32, 8]) {
    const [heads, kvHeads] = [4, 2];
    const width = heads * headSize;
    for (const qkNorm of [false, true]) {
      const shared = new nn.MultiHeadAttention(width, heads, { kvHeads, causal: true, rope: true, qkNorm });
      const full = new nn.MultiHeadAttention(width, heads, { causal: true, rope: true, qkNorm });
      const weight = await values(shared.qkv.weight);
      const row = (/** @type {number} */ head) => weight.slice(head * headSize * width, (head + 1) * headSize * width);
      const order = [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7];
      full.loadStateDict({
        ...full.stateDict(),
        'qkv.weight': tensor(Float64Array.from(order.flatMap((head) => [...row(head)])), { shape: [3 * width, width] }),
        'out.weight': shared.out.weight,
      });
      const x = randn([2, 5, width]);
      assertClose(await values(shared.forward(x)), await values(full.forward(x)), 1e-5, `heads of ${headSize}, qkNorm ${qkNorm}`);
      shared.forward(x).sum().backward();
      full.forward(x).sum().backward();
      const gradient = await values(/** @type {any} */ (full.qkv.weight.grad));
      const size = headSize * width;
      const wanted = Float64Array.from({ length: 8 * size }, (_, k) =>
        order.reduce((sum, head, i) => sum + (head === Math.floor(k / size) ? gradient[i * size + (k % size)] : 0), 0),
      );
      assertClose(await values(/** @type {any} */ (shared.qkv.weight.grad)), wanted, 1e-4, 'gradient');
    }
  }
  assert.throws(() => new nn.MultiHeadAttention(12, 3, { kvHeads: 2 }), /3 heads are not a multiple of 2 kvHeads/);
});

/** A function as a layer without parameters, for `check`. @param {(x: Tensor) => Tensor} f */
const asLayer = (f) => Object.assign(new nn.Module(), { forward: f });

test('clamp: both limits, one, tensors; the gradient passes between them only', async () => {
  const values = [-2, -0.6, -0.1, 0.2, 0.4, 3];
  const between = (/** @type {number} */ low, /** @type {number} */ high) => (/** @type {Float64Array} */ x) =>
    x.map((v) => Math.min(high, Math.max(low, v)));
  await check(
    asLayer((x) => x.clamp(-0.5, 0.3)),
    tensor(values),
    between(-0.5, 0.3),
  );
  await check(
    asLayer((x) => x.clamp(undefined, 0.3)),
    tensor(values),
    between(-Infinity, 0.3),
  );
  await check(
    asLayer((x) => x.clamp(tensor([0]))),
    tensor(values),
    between(0, Infinity),
  );
  assert.throws(() => tensor(values).clamp(), /clamp: expected min, max or both/);
});

test('binaryCrossEntropyWithLogits', async () => {
  const targets = [0, 1, 0.3, 1, 0, 0.5];
  const losses = (/** @type {Float64Array} */ x) =>
    x.map((v, i) => -targets[i] * Math.log(sigmoid(v)) - (1 - targets[i]) * Math.log(1 - sigmoid(v)));
  const x = () => tensor([-3, -0.5, 0.1, 0.7, 2, 5]);
  await check(
    asLayer((x) => F.binaryCrossEntropyWithLogits(x, tensor(targets), { reduction: 'none' })),
    x(),
    losses,
  );
  await check(
    asLayer((x) => F.binaryCrossEntropyWithLogits(x, tensor(targets))),
    x(),
    (x) => [losses(x).reduce((sum, v) => sum + v) / x.length],
  );
  // Logits whose exponentials are no f32.
  const far = F.binaryCrossEntropyWithLogits(tensor([-200, 200]), tensor([1, 1]), { reduction: 'none' });
  assert.deepEqual([...(await far.toArray())], [200, 0]);
  assert.throws(() => F.binaryCrossEntropyWithLogits(x(), tensor([1])), /predictions \[6\] and targets \[1\]/);
});

test('upsample', async () => {
  const reference = (/** @type {Float64Array} */ x) =>
    Array.from({ length: 2 * 2 * 4 * 9 }, (_, i) => {
      const [image, row, column] = [Math.floor(i / 36), Math.floor((i % 36) / 9), i % 9];
      return x[image * 6 + Math.floor(row / 2) * 3 + Math.floor(column / 3)];
    });
  await check(
    asLayer((x) => F.upsample(x, [2, 3])),
    randn([2, 2, 2, 3]),
    reference,
  );
  assert.deepEqual(F.upsample(randn([1, 1, 2, 3]), 2).shape, [1, 1, 4, 6]);
  assert.throws(() => F.upsample(randn([1, 1, 2, 3]), 1.5), /upsample: scale must be an integer of at least 1/);
});

test('oneHot and chunk', async () => {
  const rows = F.oneHot(tensor([2, 0, -1, 3], { dtype: 'i32', shape: [2, 2] }), 3);
  assert.deepEqual(rows.shape, [2, 2, 3]);
  assert.deepEqual([...(await rows.toArray())], [0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
  assert.throws(() => F.oneHot(tensor([1]), 3), /oneHot: the index must be i32 or u32, got f32/);
  const parts = tensor([1, 2, 3, 4, 5]).chunk(3);
  assert.deepEqual(await Promise.all(parts.map(async (part) => [...(await part.toArray())])), [[1, 2], [3, 4], [5]]);
  assert.deepEqual(
    randn([2, 6])
      .chunk(2, -1)
      .map(({ shape }) => shape),
    [
      [2, 3],
      [2, 3],
    ],
  );
});

test('what a call has no option for is an error that names it', () => {
  const weights = () => new nn.Linear(2, 2).parameters();
  for (const [make, message] of /** @type {[() => unknown, RegExp][]} */ ([
    [() => new nn.Linear(3, 4, /** @type {any} */ (false)), /Linear: options must be an object, \{ bias: … \}, got false/],
    [() => new nn.Linear(3, 4, /** @type {any} */ ({ biass: false })), /Linear: unknown option biass; the option is bias/],
    [
      () => new nn.Conv2d(3, 4, 3, /** @type {any} */ (2)),
      /Conv2d: options must be an object, \{ stride: …, padding: …, dilation: …, groups: …, bias: …, paddingMode: … \}, got 2/,
    ],
    [
      () => new nn.Conv2d(3, 4, 3, /** @type {any} */ ({ padding: 'none' })),
      /Conv2d: padding must be 'same', 'valid' or integers, got none/,
    ],
    [() => new nn.LayerNorm(4, /** @type {any} */ (1e-6)), /LayerNorm: options must be an object/],
    [
      () => new nn.GRU(4, 4, /** @type {any} */ ({ layers: 2 })),
      /GRU: unknown option layers; the options are numLayers, bidirectional, dropout, batchFirst, bias/,
    ],
    [() => randn([3], /** @type {any} */ ({ std: 2 })), /randn: unknown option std; the options are mean, deviation, requiresGrad/],
    [() => F.zeros([3], /** @type {any} */ ('i32')), /zeros: options must be an object, \{ dtype: … \}, got i32/],
    [
      () => new optim.AdamW(weights(), /** @type {any} */ ({ learningRate: 1 })),
      /AdamW: unknown option learningRate; the options are lr, weightDecay/,
    ],
    [
      () => new optim.SGD([{ params: weights(), ...{ momentum: 1 } }]),
      /SGD: unknown option momentum; the options are lr, weightDecay, schedule/,
    ],
  ])) {
    assert.throws(make, message);
  }
});

test('one step of recurrent functions is that of the cells', async () => {
  const input = randn([2, 3]);
  const state = () => randn([2, 4]);
  const parametersOf = (/** @type {any} */ cell) => [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh];
  const cell = /** @type {any} */ (new nn.LSTMCell(3, 4));
  const both = /** @type {[any, any]} */ ([state(), state()]);
  const expected = cell.forward(input, both);
  const got = F.lstmCell(input, both, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh);
  for (const i of [0, 1]) assert.deepEqual(await values(got[i]), await values(expected[i]));
  const second = new nn.LSTMCell(4, 4);
  const stacked = F.multiRnnCell([(x, s) => cell.forward(x, s), (x, s) => second.forward(x, s)], input, [both, both]);
  assert.deepEqual(await values(stacked[1][0]), await values(second.forward(expected[0], both)[0]));
  const own = state();
  for (const [made, f] of /** @type {[any, any][]} */ ([
    [new nn.GRUCell(3, 4), F.gruCell],
    [new nn.RNNCell(3, 4), F.rnnTanhCell],
    [new nn.RNNCell(3, 4, { nonlinearity: 'relu' }), F.rnnReluCell],
  ]))
    assert.deepEqual(await values(f(input, own, ...parametersOf(made))), await values(made.forward(input, own)));
  const plain = /** @type {any} */ (new nn.GRUCell(3, 4, { bias: false }));
  assert.deepEqual(await values(F.gruCell(input, own, plain.weight_ih, plain.weight_hh)), await values(plain.forward(input, own)));
  assert.throws(
    () => F.gruCell(input, own, plain.weight_ih, plain.weight_hh, F.ones([12])),
    /^ArgumentError: gruCell: takes both biases or none/,
  );
});
