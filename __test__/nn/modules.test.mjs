// Norms, recurrent layers, tables, containers, dropout, `nn.init` and `nn.utils`: against formulas in float64, and PyTorch's names.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import {
  F,
  autocast,
  checkpoint,
  compile,
  empty,
  grad,
  manualSeed,
  nn,
  noGrad,
  ones,
  optim,
  randn,
  scope,
  tensor,
  zeros,
} from '../../nn/index.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';
import { checkComposed } from './composed.mjs';
import { positive, x } from './inputs.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/ops/registry.mjs').Reference} Reference */
/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */
const sigmoid = (/** @type {number} */ v) => 1 / (1 + Math.exp(-v));

/**
 * Elements of [B, C, P], normalized over those for which `same` is equal, times weight plus bias.
 * @param {Reference} input @param {Float64Array} weight @param {Float64Array} bias @param {(b: number, c: number) => unknown} same
 */
function normalized({ shape, data }, weight, bias, same) {
  const [, C, ...rest] = shape;
  const P = rest.reduce((a, b) => a * b, 1);
  const at = (/** @type {number} */ i) => [Math.floor(i / P / C), Math.floor(i / P) % C];
  const keys = Array.from(data, (_, i) => String(same(at(i)[0], at(i)[1])));
  const moments = new Map(
    [...new Set(keys)].map((key) => {
      const own = data.filter((_, i) => keys[i] === key);
      const mean = own.reduce((a, b) => a + b, 0) / own.length;
      return [key, { mean, variance: own.reduce((a, b) => a + (b - mean) ** 2, 0) / own.length }];
    }),
  );
  return {
    shape,
    data: data.map((v, i) => {
      const { mean, variance } = /** @type {any} */ (moments.get(keys[i]));
      return ((v - mean) / Math.sqrt(variance + 1e-5)) * weight[at(i)[1]] + bias[at(i)[1]];
    }),
  };
}

test('batchNorm, groupNorm, instanceNorm, localResponseNorm', async () => {
  const inputs = [x(3, 4, 5), x(4), x(4)];
  for (const [name, call, same] of /** @type {[string, (...a: any[]) => any, (b: number, c: number) => unknown][]} */ ([
    ['batchNorm', (a, w, b) => F.batchNorm(a, undefined, undefined, w, b, true), (_, c) => c],
    ['groupNorm', (a, w, b) => F.groupNorm(a, 2, w, b), (b, c) => [b, c >> 1]],
    ['instanceNorm', (a, w, b) => F.instanceNorm(a, undefined, undefined, w, b), (b, c) => [b, c]],
  ]))
    await checkComposed(name, { call, inputs, reference: (a, w, b) => normalized(a, w.data, b.data, same), gradientTolerance: 3e-4 });
  await checkComposed('batchNorm by running statistics', {
    call: (a, m, v) => F.batchNorm(a, m, v),
    inputs: [x(3, 4, 5), x(4), positive(4)],
    reference: (a, m, v) => ({
      shape: a.shape,
      data: a.data.map((e, i) => (e - m.data[Math.floor(i / 5) % 4]) / Math.sqrt(v.data[Math.floor(i / 5) % 4] + 1e-5)),
    }),
  });
  for (const size of [1, 2, 3])
    await checkComposed(`localResponseNorm ${size}`, {
      call: (a) => F.localResponseNorm(a, size, 0.3, 0.6, 2),
      inputs: [x(2, 4, 3)],
      reference: ({ shape, data }) => ({
        shape,
        data: data.map((v, i) => {
          const c = Math.floor(i / 3) % 4;
          let sum = 0;
          for (let k = 0; k < size; k++) {
            const other = c - Math.floor(size / 2) + k;
            if (other >= 0 && other < 4) sum += data[i + 3 * (other - c)] ** 2;
          }
          return v / (2 + (0.3 / size) * sum) ** 0.6;
        }),
      }),
    });
  assert.throws(
    () => F.batchNorm(ones([2, 3]), undefined, ones([3])),
    /batchNorm: needs runningMean and runningVar, unless training is true/,
  );
});

test('BatchNorm1d, BatchNorm3d and InstanceNorm: statistics while training, after it, and PyTorch’s names', async () => {
  const input = tensor(normal(24), { shape: [4, 3, 2] });
  const flat = input.reshape(4, 3, 1, 2, 1);
  const [one, three] = [new nn.BatchNorm1d(3, { momentum: 0.5 }), new nn.BatchNorm3d(3, { momentum: 0.5 })];
  assert.deepEqual(Object.keys(one.stateDict()), ['weight', 'bias', 'running_mean', 'running_var']);
  assertClose(await values(one.forward(input)), await values(three.forward(flat)), 1e-6, 'while training');
  assertClose(await values(one.running_var), await values(three.running_var), 1e-6, 'running');
  const data = await values(input);
  const own = data.filter((_, i) => Math.floor(i / 2) % 3 === 1);
  const mean = own.reduce((a, b) => a + b) / 8;
  assertClose([(await values(one.running_mean))[1]], [0.5 * mean], 1e-5, 'mean');
  assertClose([(await values(one.running_var))[1]], [0.5 + 0.5 * (own.reduce((a, b) => a + (b - mean) ** 2, 0) / 7)], 1e-5, 'variance');
  one.eval();
  const after = (await values(one.forward(input)))[2];
  assertClose([after], [(data[2] - 0.5 * mean) / Math.sqrt((await values(one.running_var))[1] + 1e-5)], 1e-5, 'after it');
  assert.deepEqual(one.forward(ones([2, 3])).shape, [2, 3]);
  const plain = new nn.BatchNorm1d(3, { affine: false, trackRunningStats: false });
  assert.deepEqual(Object.keys(plain.stateDict()), []);
  assertClose(await values(plain.eval().forward(input)), await values(new nn.BatchNorm1d(3).forward(input)), 1e-6, 'by the batch');
  const instance = new nn.InstanceNorm1d(3, { affine: true, trackRunningStats: true });
  assertClose(await values(instance.forward(input)), await values(F.instanceNorm(input)), 1e-6, 'instance');
  assert.ok((await values(instance.eval().forward(input))).every(Number.isFinite));
  assert.deepEqual(Object.keys(new nn.InstanceNorm2d(3).stateDict()), []);
  assert.throws(() => one.forward(ones([2, 4])), /BatchNorm1d: expected an input \[batch, 3, steps\] or \[batch, 3\], got \[2, 4\]/);
});

test('LayerNorm of several sizes, without a bias, without parameters', async () => {
  const input = tensor(normal(24), { shape: [2, 3, 4] });
  const rows = input.reshape(2, 12);
  const norm = new nn.LayerNorm([3, 4], { bias: false });
  assert.deepEqual([Object.keys(norm.stateDict()), norm.weight.shape], [['weight'], [3, 4]]);
  noGrad(() => void norm.weight.copy_(tensor(normal(12), { shape: [3, 4] })));
  const wanted = F.layerNorm(rows, norm.weight.reshape(12), F.zeros([12])).reshape(2, 3, 4);
  assertClose(await values(norm.forward(input)), await values(wanted), 1e-6, 'several sizes');
  const bare = new nn.LayerNorm(4, { elementwiseAffine: false });
  assert.deepEqual(Object.keys(bare.stateDict()), []);
  assertClose(await values(bare.forward(input)), await values(F.layerNorm(input, ones([4]), F.zeros([4]))), 1e-6, 'bare');
  assert.throws(() => norm.forward(ones([2, 4, 3])), /layerNorm: expected an input \[\.\.\., 3, 4\], got \[2, 4, 3\]/);
});

/** One layer and direction of a recurrence in float64. @param {string} kind @param {number[][]} xs by step @param {number} H @param {number[][]} p */
function recurrence(kind, xs, H, [wi, wh, bi, bh]) {
  let [h, c] = [new Array(H).fill(0), new Array(H).fill(0)];
  const product = (/** @type {number[]} */ w, /** @type {number[]} */ v, /** @type {number} */ row) =>
    v.reduce((sum, e, i) => sum + e * w[row * v.length + i], 0);
  return xs.map((v) => {
    const a = bi.map((b, g) => b + product(wi, v, g));
    const r = bh.map((b, g) => b + product(wh, h, g));
    if (kind === 'RNN') h = a.map((e, i) => Math.tanh(e + r[i]));
    else if (kind === 'GRU') {
      h = h.map((e, i) => {
        const z = sigmoid(a[H + i] + r[H + i]);
        return (1 - z) * Math.tanh(a[2 * H + i] + sigmoid(a[i] + r[i]) * r[2 * H + i]) + z * e;
      });
    } else {
      const gate = (/** @type {number} */ k) => a.slice(k * H, (k + 1) * H).map((e, i) => e + r[k * H + i]);
      const [input, forget, cell, output] = [0, 1, 2, 3].map(gate);
      c = c.map((e, i) => sigmoid(forget[i]) * e + sigmoid(input[i]) * Math.tanh(cell[i]));
      h = c.map((e, i) => sigmoid(output[i]) * Math.tanh(e));
    }
    return h;
  });
}

for (const kind of /** @type {const} */ (['RNN', 'GRU', 'LSTM'])) {
  test(`${kind}: two layers in both directions, against float64; time first; gradients; cells`, async () => {
    manualSeed(4);
    const [B, T, I, H] = [2, 4, 3, 2];
    const layer = new nn[kind](I, H, { numLayers: 2, bidirectional: true });
    const names = Object.keys(layer.stateDict());
    assert.deepEqual(names.slice(4, 9), [
      'weight_ih_l0_reverse',
      'weight_hh_l0_reverse',
      'bias_ih_l0_reverse',
      'bias_hh_l0_reverse',
      'weight_ih_l1',
    ]);
    const state = await Promise.all(Object.values(layer.stateDict()).map(values));
    const input = randn([B, T, I]);
    const data = await values(input);
    const expected = Array.from({ length: B }, (_, b) => {
      let xs = Array.from({ length: T }, (_, t) => data.slice((b * T + t) * I, (b * T + t + 1) * I));
      for (let l = 0; l < 2; l++) {
        const forth = recurrence(kind, xs, H, state.slice(8 * l, 8 * l + 4));
        const back = recurrence(kind, xs.toReversed(), H, state.slice(8 * l + 4, 8 * l + 8)).reverse();
        xs = forth.map((own, t) => [...own, ...back[t]]);
      }
      return xs;
    });
    const [y, last] = layer.forward(input);
    assertClose(await values(y), expected.flat(2), 1e-5, kind);
    const hidden = /** @type {any} */ (Array.isArray(last) ? last[0] : last);
    assert.deepEqual(hidden.shape, [4, B, H]);
    assertClose(
      await values(hidden.at(2)),
      expected.flatMap((own) => own[T - 1].slice(0, H)),
      1e-5,
      'last forward',
    );
    assertClose(
      await values(hidden.at(3)),
      expected.flatMap((own) => own[0].slice(H)),
      1e-5,
      'last backward',
    );
    const compiled = compile((/** @type {any} */ own) => layer.forward(own)[0]);
    assertClose(await values(compiled(input)), expected.flat(2), 1e-5, 'compiled');

    const other = new nn[kind](I, H, { numLayers: 2, bidirectional: true, batchFirst: false });
    other.loadStateDict(layer.stateDict());
    assertClose(await values(other.forward(input.transpose(0, 1))[0].transpose(0, 1)), expected.flat(2), 1e-5, 'time first');

    const one = new nn[kind](I, H, { bias: false });
    assert.deepEqual(Object.keys(one.stateDict()), ['weight_ih_l0', 'weight_hh_l0']);
    const cell = new nn[/** @type {'RNNCell'} */ (`${kind}Cell`)](I, H, { bias: false });
    assert.deepEqual(Object.keys(cell.stateDict()), ['weight_ih', 'weight_hh']);
    cell.loadStateDict(Object.fromEntries(Object.entries(one.stateDict()).map(([name, v]) => [name.replace('_l0', ''), v])));
    /** @type {any} */
    let now;
    for (let t = 0; t < T; t++) now = cell.forward(input.slice(1, t, t + 1).squeeze(1), now);
    const [states, end] = one.forward(input);
    for (const [i, own] of [now].flat().entries()) assertClose(await values(own), await values([end].flat()[i]), 1e-6, `cell ${i}`);
    const weights = tensor(normal(B * T * H), { shape: [B, T, H] });
    const [gradient] = grad(states.mul(weights).sum(), [Reflect.get(one, 'weight_hh_l0')]);
    const [wi, wh] = await Promise.all(Object.values(one.stateDict()).map(values));
    const zero = new Array(wh.length / H).fill(0);
    const w = await values(weights);
    const loss = (/** @type {number[]} */ own) =>
      Array.from({ length: B }, (_, b) =>
        recurrence(
          kind,
          Array.from({ length: T }, (_, t) => data.slice((b * T + t) * I, (b * T + t + 1) * I)),
          H,
          [wi, own, zero, zero],
        ),
      )
        .flat(2)
        .reduce((sum, v, i) => sum + v * w[i], 0);
    const differences = wh.map((v, i) => (loss(wh.with(i, v + 1e-5)) - loss(wh.with(i, v - 1e-5))) / 2e-5);
    assertClose(await values(gradient), differences, 2e-4, 'gradient');
  });
}

test('dropout between recurrent layers, and of whole channels, only while training', async () => {
  const layer = new nn.GRU(3, 8, { numLayers: 2, dropout: 0.9 });
  const input = randn([1, 4, 3]);
  const [first, second] = [layer.forward(input)[0], layer.forward(input)[0]];
  assert.notDeepEqual(await values(first), await values(second));
  layer.eval();
  assert.deepEqual(await values(layer.forward(input)[0]), await values(layer.forward(input)[0]));
  for (const [module, shape] of /** @type {[any, number[]][]} */ ([
    [new nn.Dropout1d(0.5), [8, 8, 3]],
    [new nn.Dropout2d(0.5), [8, 8, 1, 3]],
    [new nn.Dropout3d(0.5), [8, 8, 1, 1, 3]],
  ])) {
    const y = await values(module.forward(ones(shape)));
    for (let i = 0; i < y.length; i += 3) assert.ok((y[i] === 0 || y[i] === 2) && y[i + 1] === y[i] && y[i + 2] === y[i]);
    assert.ok(y.includes(0) && y.includes(2));
    assert.ok((await values(module.eval().forward(ones(shape)))).every((v) => v === 1));
  }
  manualSeed(1);
  const wide = randn([64, 64]);
  const y = await values(new nn.AlphaDropout(0.3).forward(wide));
  const mean = y.reduce((a, b) => a + b) / y.length;
  const variance = y.reduce((a, b) => a + (b - mean) ** 2, 0) / y.length;
  assert.ok(Math.abs(mean) < 0.1 && Math.abs(variance - 1) < 0.15, `${mean} ${variance}`);
  const z = await values(new nn.FeatureAlphaDropout(0.5).forward(ones([4, 16, 2])));
  for (let i = 0; i < z.length; i += 2) assert.equal(z[i], z[i + 1]);
  assert.equal(new Set(z).size, 2);
});

test('Embedding with a padding id, EmbeddingBag, Bilinear', async () => {
  const table = new nn.Embedding(4, 2, { paddingIdx: -3 });
  const ids = tensor([1, 2, 1, 3], { dtype: 'i32' });
  assert.deepEqual((await values(table.weight)).slice(2, 4), [0, 0]);
  table.forward(ids).sum().backward();
  assert.deepEqual(await values(table.weight.grad), [0, 0, 0, 0, 1, 1, 1, 1]);

  for (const mode of /** @type {const} */ (['sum', 'mean', 'max'])) {
    const bag = new nn.EmbeddingBag(5, 2, { mode });
    const rows = await values(bag.weight);
    const list = [4, 0, 2, 3, 1, 2];
    const of = (/** @type {number[]} */ own) =>
      [0, 1].map((c) => {
        const column = own.map((id) => rows[2 * id + c]);
        if (column.length === 0) return 0;
        return mode === 'max' ? Math.max(...column) : column.reduce((a, b) => a + b) / (mode === 'mean' ? column.length : 1);
      });
    const flat = tensor(list, { dtype: 'i32' });
    const both = bag.forward(flat.reshape(2, 3));
    assertClose(await values(both), [...of([4, 0, 2]), ...of([3, 1, 2])], 1e-6, mode);
    const offsets = tensor([0, 2, 2], { dtype: 'i32' });
    assertClose(await values(bag.forward(flat, offsets)), [...of([4, 0]), 0, 0, ...of([2, 3, 1, 2])], 1e-6, `${mode} with offsets`);
    bag.forward(flat, offsets).sum().backward();
    const weight = /** @type {any} */ (bag.weight);
    const grad = await values(weight.grad);
    const kept = (/** @type {number[]} */ own) => (mode === 'mean' ? own.length : 1);
    const share = (/** @type {number} */ id, /** @type {number} */ c, /** @type {number[]} */ own) => {
      const times = own.filter((each) => each === id).length;
      if (mode !== 'max') return times / kept(own);
      return Number(times > 0 && own.every((each) => rows[2 * each + c] <= rows[2 * id + c]));
    };
    const bags = [
      [4, 0],
      [2, 3, 1, 2],
    ];
    const expected = rows.map((_, i) => bags.reduce((sum, own) => sum + share(Math.floor(i / 2), i % 2, own), 0));
    assertClose(grad, expected, 1e-6, `the gradient of ${mode}`);
    // What is not finite stays in its bag.
    noGrad(() => void weight.slice(0, 4, 5).fill_(Infinity));
    assertClose((await values(bag.forward(flat, offsets))).slice(4), of([2, 3, 1, 2]), 1e-6, `${mode} beside Infinity`);
    assert.deepEqual(await values(bag.forward(empty([0], { dtype: 'i32' }), tensor([0], { dtype: 'i32' }))), [0, 0]);
  }
  const layer = new nn.Bilinear(2, 3, 4);
  const [w, bias] = await Promise.all([values(layer.weight), values(/** @type {any} */ (layer.bias))]);
  await checkComposed('Bilinear', {
    call: (a, b) => layer.forward(a, b),
    inputs: [x(5, 2), x(5, 3)],
    reference: (a, b) => ({
      shape: [5, 4],
      data: Float64Array.from({ length: 20 }, (_, i) => {
        const [r, k] = [Math.floor(i / 4), i % 4];
        let sum = bias[k];
        for (let m = 0; m < 2; m++) for (let n = 0; n < 3; n++) sum += a.data[2 * r + m] * w[(k * 2 + m) * 3 + n] * b.data[3 * r + n];
        return sum;
      }),
    }),
  });
});

test('skipInit: frozen matrices in 16 bits, with biases in f32, take part in products of f32', async () => {
  const make = () => new nn.Linear(6, 4);
  for (const dtype of /** @type {const} */ (['f32', 'f16', 'bf16'])) {
    const linear = nn.skipInit(make, { dtype }).requiresGrad_(false);
    assert.deepEqual([linear.weight.dtype, linear.bias?.dtype], [dtype, 'f32']);
    const source = make();
    linear.loadStateDict(source.stateDict());
    const input = randn([3, 6]).requiresGrad_();
    const y = linear.forward(input);
    y.sum().backward();
    assert.equal(linear.weight.grad, undefined);
    const rounded = F.to(F.to(source.weight, dtype), 'f32');
    assertClose(await values(y), await values(F.linear(input, rounded, source.bias)), 1e-6, dtype);
    assertClose(await values(/** @type {any} */ (input.grad)), await values(rounded.sum(0).expand(3, 6)), 1e-6, dtype);
  }
  assert.equal(make().weight.dtype, 'f32');
  assert.throws(
    () => nn.skipInit(make, { dtype: /** @type {any} */ ('i8') }),
    /^ArgumentError: skipInit: dtype must be f32, f16 or bf16, got/,
  );
});

test('containers hold parameters under their names', () => {
  const layers = new nn.ModuleDict({ first: new nn.Linear(2, 3) }).set('second', new nn.ReLU());
  assert.deepEqual([layers.keys(), layers.has('second'), layers.get('third')], [['first', 'second'], true, undefined]);
  assert.deepEqual(Object.keys(layers.stateDict()), ['first.weight', 'first.bias']);
  assert.equal(layers.delete('second'), true);
  assert.deepEqual(
    layers.entries().map(([name]) => name),
    ['first'],
  );
  assert.throws(
    () => layers.set('forward', new nn.ReLU()),
    /ModuleDict: a name must be text without a point, and none of a ModuleDict's own/,
  );
  assert.throws(() => layers.set('a.b', new nn.ReLU()), /got a\.b/);
  const list = new nn.ParameterList([new nn.Parameter(ones([1])), new nn.Parameter(ones([2]))]);
  assert.deepEqual([Object.keys(list.stateDict()), list.at(-1).shape, [...list].length], [['0', '1'], [2], 2]);
  const named = new nn.ParameterDict([['scale', new nn.Parameter(ones([3]))]]);
  assert.deepEqual([named.parameters().length, named.values()[0].shape], [1, [3]]);
});

test('modules by name, and a function for each of them, children first', () => {
  const model = new nn.Sequential(new nn.Sequential(new nn.Linear(2, 2)), new nn.ReLU());
  assert.deepEqual(
    [...model.namedModules()].map(([name, module]) => [name, module.constructor.name]),
    [
      ['', 'Sequential'],
      ['0', 'Sequential'],
      ['0.0', 'Linear'],
      ['1', 'ReLU'],
    ],
  );
  assert.deepEqual([...model.children()], [model.at(0), model.at(1)]);
  /** @type {string[]} */
  const order = [];
  assert.equal(
    model.apply((module) => void order.push(module.constructor.name)),
    model,
  );
  assert.deepEqual(order, ['Linear', 'Sequential', 'ReLU', 'Sequential']);
});

test('nn.init: bounds, deviations, orthogonal rows', async () => {
  manualSeed(2);
  const w = new nn.Linear(40, 60).weight;
  const moments = async () => {
    const own = await values(w);
    const mean = own.reduce((a, b) => a + b) / own.length;
    return { most: Math.max(...own.map(Math.abs)), mean, deviation: Math.sqrt(own.reduce((a, b) => a + (b - mean) ** 2, 0) / own.length) };
  };
  for (const [draw, bound, deviation] of /** @type {[(w: any) => any, number, number][]} */ ([
    [(own) => nn.init.xavierUniform(own), Math.sqrt(6 / 100), Math.sqrt(2 / 100)],
    [(own) => nn.init.xavierNormal(own, 2), Infinity, 2 * Math.sqrt(2 / 100)],
    [(own) => nn.init.kaimingUniform(own, { a: Math.sqrt(5) }), 1 / Math.sqrt(40), 1 / Math.sqrt(120)],
    [(own) => nn.init.kaimingNormal(own, { mode: 'fanOut', nonlinearity: 'relu' }), Infinity, Math.sqrt(2 / 60)],
    [(own) => nn.init.truncNormal(own, 0, 0.5, -0.5, 0.5), 0.5, 0.5 * 0.54],
    [(own) => nn.init.uniform(own, -3, 3), 3, Math.sqrt(3)],
    [(own) => nn.init.normal(own, 0, 3), Infinity, 3],
  ])) {
    assert.equal(draw(w), w);
    const own = await moments();
    assert.ok(own.most <= bound && Math.abs(own.deviation / deviation - 1) < 0.1, `${draw}: ${JSON.stringify(own)}`);
  }
  for (const shape of [
    [3, 5],
    [5, 3],
  ]) {
    const q = nn.init.orthogonal(ones(shape), 2);
    const product = shape[0] < shape[1] ? q.matmul(q.T) : q.T.matmul(q);
    assertClose(await values(product), [4, 0, 0, 0, 4, 0, 0, 0, 4], 1e-5, 'orthogonal');
  }
  assert.deepEqual(await values(nn.init.eye(ones([2, 3]))), [1, 0, 0, 0, 1, 0]);
  assert.deepEqual(await values(nn.init.constant(ones([2]), 7)), [7, 7]);
  assert.equal(nn.init.calculateGain('tanh'), 5 / 3);
});

test('nn.utils: clipped gradients, and parameters as a vector', async () => {
  const parameters = [new nn.Parameter(ones([2])), new nn.Parameter(ones([1]))];
  const fill = () => {
    for (const p of parameters) p.zeroGrad();
    parameters[0]
      .mul(tensor([3, -4]))
      .sum()
      .add(parameters[1].mul(12).sum())
      .backward();
  };
  const gradients = async () => (await Promise.all(parameters.map(({ grad }) => values(grad)))).flat();
  fill();
  assertClose(await values(nn.utils.clipGradNorm(parameters, 1)), [13], 1e-6, 'norm');
  assertClose(await gradients(), [3 / 13, -4 / 13, 12 / 13], 1e-6, 'clipped');
  assertClose(await values(nn.utils.clipGradNorm(parameters, 5, Infinity)), [12 / 13], 1e-6, 'largest');
  assertClose(await gradients(), [3 / 13, -4 / 13, 12 / 13], 1e-6, 'small enough');
  fill();
  nn.utils.clipGradValue(parameters, 3.5);
  assert.deepEqual(await gradients(), [3, -3.5, 3.5]);
  const vector = nn.utils.parametersToVector(parameters);
  assert.deepEqual(await values(vector), [1, 1, 1]);
  nn.utils.vectorToParameters(tensor([5, 6, 7]), parameters);
  assert.deepEqual((await Promise.all(parameters.map(values))).flat(), [5, 6, 7]);
  assert.throws(() => nn.utils.vectorToParameters(ones([2]), parameters), /vectorToParameters: expected a vector \[3\], got \[2\]/);
});

test('weightNorm: sizes and directions by PyTorch’s names, trained and joined again', async () => {
  const layer = new nn.Conv1d(4, 6, 3, { groups: 2 });
  const x = randn([2, 4, 8]);
  const [plain, weight] = [await values(layer.forward(x)), layer.weight];
  for (const [dim, shape] of /** @type {[number | null, number[]][]} */ ([
    [0, [6, 1, 1]],
    [2, [1, 1, 3]],
    [-2, [1, 2, 1]],
    [null, []],
    [-1, []],
  ])) {
    assert.equal(nn.utils.weightNorm(layer, { dim }), layer);
    assertClose(await values(layer.forward(x)), plain, 1e-5, `dim ${dim}`);
    const names = ['bias', 'parametrizations.weight.original0', 'parametrizations.weight.original1'];
    assert.deepEqual(Object.keys(layer.stateDict()), names);
    assert.deepEqual(layer.stateDict()[names[1]].shape, shape);
    nn.utils.removeWeightNorm(layer);
    assert.deepEqual(Object.keys(layer.stateDict()), ['bias', 'weight']);
    assertClose(await values(layer.forward(x)), plain, 1e-5, `dim ${dim}, joined`);
  }
  assert.equal(layer.weight, weight);

  nn.utils.weightNorm(layer);
  const [size, direction] = layer.parameters().slice(1);
  noGrad(() => size.mul_(2));
  assertClose(await values(layer.weight.norm(2, [1, 2])), await values(size.flatten()), 1e-5, 'the size is g');
  const optimizer = new optim.SGD(layer.parameters(), { lr: 1e-3 });
  const step = compile((/** @type {import('../../nn/index.mjs').Tensor} */ input) => {
    const loss = layer.forward(input).square().sum();
    loss.backward();
    const [along] = [F.sum(F.mul(/** @type {import('../../nn/index.mjs').Tensor} */ (direction.grad), direction), [1, 2])];
    optimizer.step();
    return [loss, along];
  });
  const [[first, along], [second]] = [step(x), step(x)];
  assert.ok((await second.item()) < (await first.item()));
  assertClose(await values(along), new Array(6).fill(0), 1e-4, 'the gradient of a direction is orthogonal to it');
  assert.throws(() => nn.utils.removeWeightNorm(layer), /^UsageError: removeWeightNorm: an optimizer has the parts of weight/);
  assert.throws(() => nn.utils.weightNorm(layer), /^ArgumentError: weightNorm: a Conv1d has no parameter weight/);
  assert.throws(() => nn.utils.weightNorm(layer, { name: 'bias' }), /^UsageError: weightNorm: an optimizer has the bias already/);
  assert.throws(() => nn.utils.removeWeightNorm(new nn.Linear(2, 2)), /^ArgumentError: removeWeightNorm: weightNorm was not called/);

  // PyTorch's names of now and of before.
  const source = nn.utils.weightNorm(new nn.Linear(3, 2));
  const { bias, ...parts } = source.stateDict();
  const [g, v] = Object.values(parts);
  for (const [prefix, state] of /** @type {[string, Record<string, import('../../nn/index.mjs').Tensor>][]} */ ([
    ['', { bias, ...parts }],
    ['', { bias, weight_g: g, weight_v: v }],
    ['0.', { '0.bias': bias, '0.weight_g': g, '0.weight_v': v }],
  ])) {
    const target = nn.utils.weightNorm(new nn.Linear(3, 2));
    const report = (prefix ? new nn.Sequential(target) : target).loadStateDict(state);
    assert.deepEqual(report, { missingKeys: [], unexpectedKeys: [] });
    assert.deepEqual(await values(target.weight), await values(source.weight));
  }
  assert.throws(() => source.loadStateDict({ bias, weight_g: g }), /missing: parametrizations\.weight\.original1 /);
  assert.throws(
    () => new nn.Linear(3, 2).loadStateDict({ bias, weight_g: g, weight_v: v }),
    /missing: weight; unknown: weight_g, weight_v/,
  );

  // A weight that another module has too, and one that is frozen.
  const [table, head] = [new nn.Embedding(3, 4), new nn.Linear(4, 3)];
  head.weight = table.weight;
  nn.utils.removeWeightNorm(nn.utils.weightNorm(head).requiresGrad_(false));
  assert.equal(head.weight, table.weight);
  assert.deepEqual([head.weight.requiresGrad, head.weight.disposed], [false, false]);

  const model = nn.lora(new nn.Sequential(nn.utils.weightNorm(new nn.Linear(2, 2))));
  assert.throws(() => nn.mergeLora(model), /^UsageError: merge: the weight of the base is computed .*removeWeightNorm/);
});

test('spectralNorm: largest singular values of 1, estimated as PyTorch does and under its names', async () => {
  // Rows of outputs: dimension 1 of a transposed convolution.
  for (const [module, rows] of /** @type {[nn.Module & { weight: any }, (w: any) => any][]} */ ([
    [new nn.Linear(6, 4), (w) => w],
    [new nn.Conv2d(3, 4, 3, { padding: 1, paddingMode: 'circular' }), (w) => w.flatten(1)],
    [new nn.ConvTranspose2d(3, 4, 3), (w) => w.transpose(0, 1).reshape(4, 27)],
  ])) {
    const weight = module.weight;
    assert.equal(nn.utils.spectralNorm(module, { nPowerIterations: 3 }), module);
    for (let k = 0; k < 60; k++) scope(() => module.weight);
    module.eval();
    const own = F.linalg.svdvals(rows(module.weight));
    assertClose([await own.at(0).item()], [1], 1e-3, module.constructor.name);
    const [first] = await values(F.linalg.svdvals(rows(weight)));
    assertClose(await values(module.weight), await values(weight.div(first)), 1e-3, 'a factor');
    assert.equal(nn.utils.removeSpectralNorm(module), module);
    assert.equal(module.weight, weight);
  }

  // One step from given vectors, as PyTorch's: u = W v / |W v|, v = Wᵀ u / |Wᵀ u|, W / (u W v).
  const layer = nn.utils.spectralNorm(new nn.Linear(2, 2, { bias: false }));
  const names = ['parametrizations.weight.0._u', 'parametrizations.weight.0._v', 'parametrizations.weight.original'];
  assert.deepEqual(Object.keys(layer.stateDict()), names);
  const state = { weight_u: tensor([1, 0]), weight_v: tensor([0, 1]), weight_orig: tensor([3, 0, 4, 5], { shape: [2, 2] }) };
  const step = () => {
    const loss = layer
      .forward(ones([1, 2]))
      .square()
      .sum();
    loss.backward();
    const [{ grad: gradient }] = layer.parameters();
    const found = [loss, F.clone(/** @type {Tensor} */ (gradient))];
    layer.zeroGrad();
    return found;
  };
  // W v = (0, 5), so u = (0, 1); Wᵀ u = (4, 5), so v = (4, 5) / √41, and u W v = √41. With s = 1 / √41 the result is y = (3 s, 9 s).
  const s2 = 1 / 41;
  // The gradient of 90 s²: 2 y s in each column, less 2 · 90 s² · s · u vᵀ.
  const wanted = [6 * s2, 6 * s2, 18 * s2 - 180 * s2 * s2 * 4, 18 * s2 - 180 * s2 * s2 * 5];
  for (const how of ['eager', 'compiled', 'checkpointed']) {
    assert.deepEqual(layer.loadStateDict(state), { missingKeys: [], unexpectedKeys: [] });
    const { forward } = layer;
    if (how === 'checkpointed') layer.forward = (x) => checkpoint((input) => forward.call(layer, input), x);
    const [loss, gradient] = (how === 'compiled' ? compile(step) : step)();
    layer.forward = forward;
    assertClose([await loss.item()], [90 * s2], 1e-5, how);
    assertClose(await values(gradient), wanted, 1e-5, `${how}: gradient`);
    const { _u: u, _v: v } = /** @type {any} */ (layer).parametrizations.get('weight')[0];
    assertClose([...(await values(u)), ...(await values(v))], [0, 1, 4 * Math.sqrt(s2), 5 * Math.sqrt(s2)], 1e-6, `${how}: vectors`);
  }

  // Made in a scope, used twice before the backward pass, in bf16 and of a vector.
  const made = scope(() => [nn.utils.spectralNorm(new nn.Linear(3, 3)), nn.utils.spectralNorm(new nn.PReLU(4))]);
  const twice = (/** @type {any} */ x) => made[0].forward(made[0].forward(x)).square().sum();
  twice(randn([2, 3])).backward();
  assert.ok((await values(made[0].parameters()[1].grad)).every(Number.isFinite));
  assert.equal(autocast('bf16', () => made[0].forward(ones([1, 3]))).dtype, 'bf16');
  assertClose(await values(/** @type {any} */ (made[1]).weight), [0.5, 0.5, 0.5, 0.5], 1e-6, 'a vector has length 1');
  assert.throws(() => nn.utils.removeSpectralNorm(new nn.Linear(2, 2)), /^ArgumentError: removeSpectralNorm: spectralNorm was not called/);
  assert.throws(() => nn.utils.spectralNorm(new nn.Linear(2, 2), { dim: 2 }), /^ShapeError: spectralNorm: dimension 2/);
  assert.throws(() => nn.utils.removeSpectralNorm(nn.utils.weightNorm(new nn.Linear(2, 2))), /spectralNorm was not called/);
});

test('Sequential of modules by name, as of an OrderedDict: its names in files, its order, replaced, longer, compiled', async () => {
  const named = new nn.Sequential({ first: new nn.Linear(3, 4), act: new nn.Tanh(), last: new nn.Linear(4, 2) });
  assert.deepEqual(Object.keys(named.stateDict()), ['first.weight', 'first.bias', 'last.weight', 'last.bias']);
  assert.deepEqual([named.length, named.at(-1), named.at(0), named.at(3)], [3, /** @type {any} */ (named).last, [...named][0], undefined]);
  const plain = new nn.Sequential(new nn.Linear(3, 4), new nn.Tanh(), new nn.Linear(4, 2));
  plain.loadStateDict(Object.fromEntries(Object.values(named.stateDict()).map((v, i) => [Object.keys(plain.stateDict())[i], v])));
  const x = randn([5, 3]);
  assert.deepEqual(await values(named.forward(x)), await values(plain.forward(x)));
  const step = compile((/** @type {any} */ v) => named.forward(v));
  assert.deepEqual(await values(step(x)), await values(plain.forward(x)));
  /** @type {any} */ (named).act = new nn.ReLU();
  named.push(new nn.Linear(2, 1));
  assert.deepEqual([named.length, step(x).shape], [4, [5, 1]]);
  assert.deepEqual(await values(step(x)), await values(named.forward(x)));
  assert.match(String(named), /\(first\): Linear\(3, 4\)\n {2}\(act\): ReLU\(\)/);
  const any = (/** @type {any} */ v) => v;
  assert.throws(() => new nn.Sequential(any([new nn.ReLU()])), /Sequential: expected modules, got an array: pass its elements/);
  assert.throws(() => new nn.Sequential(any({ a: 1 })), /Sequential: expected a module as a, got 1/);
  for (const name of ['forward', 'a.b', '0', 'length', ''])
    assert.throws(() => new nn.Sequential({ [name]: new nn.ReLU() }), /Sequential: a name must be text without a point/, name);
});

test('padSequence: the example of PyTorch’s documentation, of numbers, with gradients', async () => {
  const list = [25, 22, 15].map((n) => ones([n, 300]));
  assert.deepEqual(nn.utils.padSequence(list, { batchFirst: false }).shape, [25, 3, 300]);
  assert.deepEqual(nn.utils.padSequence(list).shape, [3, 25, 300]);
  const ids = [[1, 2, 3], [4], [5, 6]].map((data) => tensor(data, { dtype: 'i32' }));
  const padded = nn.utils.padSequence(ids, { paddingValue: -1 });
  assert.deepEqual([padded.dtype, await values(padded)], ['i32', [1, 2, 3, 4, -1, -1, 5, 6, -1]]);
  assert.deepEqual(await values(nn.utils.padSequence(ids, { batchFirst: false })), [1, 4, 5, 2, 0, 6, 3, 0, 0]);
  const rows = [tensor([[1], [2]]).requiresGrad_(), tensor([[3]]).requiresGrad_()];
  const weights = tensor([
    [[1], [10]],
    [[100], [1000]],
  ]);
  assert.deepEqual(await Promise.all(grad(nn.utils.padSequence(rows).mul(weights).sum(), rows).map(values)), [[1, 10], [100]]);
  const any = (/** @type {any} */ v) => v;
  assert.throws(() => nn.utils.padSequence(any(ids[0])), /padSequence: expected an array of tensors, got Tensor/);
  assert.deepEqual(await values(nn.utils.padSequence([ones([1]), ones([2])], { paddingValue: -Infinity })), [1, -Infinity, 1, 1]);
  assert.throws(() => nn.utils.padSequence([]), /padSequence: expected at least one sequence/);
  assert.throws(
    () => nn.utils.padSequence([ones([2, 3]), ones([1, 4])]),
    /padSequence: sequences \[2, 3\], f32, and \[1, 4\], f32, differ/,
  );
  assert.throws(() => nn.utils.padSequence([ids[0], ones([1])]), /padSequence: sequences \[3\], i32, and \[1\], f32, differ/);
  assert.throws(() => nn.utils.padSequence([tensor(1)]), /padSequence: expected sequences \[steps, \.\.\.\], got \[\]/);
});

test('recurrent layers of one layer take and give states [1, batch, hidden], as PyTorch has them', async () => {
  const x = randn([2, 4, 3]);
  const h = randn([1, 2, 5]);
  const c = randn([1, 2, 5]);
  for (const kind of /** @type {const} */ (['GRU', 'RNN'])) {
    const layer = new nn[kind](3, 5);
    const [y, last] = layer.forward(x, h);
    const [y2, last2] = layer.forward(x, h.squeeze(0));
    assert.deepEqual(
      [last.shape, last2.shape],
      [
        [1, 2, 5],
        [2, 5],
      ],
      kind,
    );
    assert.deepEqual([await values(y), await values(last)], [await values(y2), await values(last2)], kind);
    assert.throws(
      () => layer.forward(x, randn([2, 2, 5])),
      new RegExp(`^ShapeError: ${kind}: expected a state \\[2, 5\\], got \\[2, 2, 5\\]`),
    );
  }
  const layer = new nn.LSTM(3, 5);
  const [y, [a, b]] = layer.forward(x, [h, c]);
  const [y2, [a2, b2]] = layer.forward(x, [h.squeeze(0), c.squeeze(0)]);
  assert.deepEqual(
    [a.shape, b.shape, a2.shape],
    [
      [1, 2, 5],
      [1, 2, 5],
      [2, 5],
    ],
  );
  for (const [own, other] of [
    [y, y2],
    [a, a2],
    [b, b2],
  ])
    assert.deepEqual(await values(own), await values(other));
  const [, [next]] = layer.forward(x, [a, b]);
  assert.deepEqual(next.shape, [1, 2, 5], 'carried on');
  assert.throws(() => layer.forward(x, [h, c.squeeze(0)]), /LSTM: expected a state \[2, 5\], got \[1, 2, 5\]/);
  assert.throws(() => layer.forward(x, /** @type {any} */ (h)), /LSTM: the state must be two tensors/);
  assert.throws(() => new nn.GRUCell(3, 5).forward(randn([2, 3]), h), /GRUCell: expected a state \[2, 5\], got \[1, 2, 5\]/);
  assert.deepEqual(new nn.GRU(3, 5, { bidirectional: true }).forward(x, randn([2, 2, 5]))[1].shape, [2, 2, 5]);
});

test('p of 1 drops all, infinities too: zeros, and gradients of 0, of each kind of dropout and type', async () => {
  const make = (/** @type {number} */ ndim) =>
    F.cat([randn([1, 2, 2, 2, 2]), F.full([1, 2, 2, 2, 2], -Infinity)]).reshape(...[2, 2, 4, 2, 2].slice(0, ndim - 1), -1);
  for (const [Kind, ndim] of /** @type {[any, number][]} */ ([
    ...[nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout, nn.Dropout1d].map((kind) => [kind, 3]),
    [nn.Dropout2d, 4],
    [nn.Dropout3d, 5],
  ])) {
    for (const dtype of /** @type {const} */ (['f32', 'f16', 'bf16'])) {
      const x = make(ndim).to(dtype).requiresGrad_();
      const y = new Kind(1).forward(x);
      assert.deepEqual([y.shape, y.dtype], [x.shape, dtype]);
      const both = [y, grad(y.to('f32').sum(), [x])[0]];
      for (const z of both)
        assert.ok(
          (await values(z)).every((/** @type {number} */ v) => v === 0),
          `${Kind.name} ${dtype}`,
        );
      assert.deepEqual(await values(new Kind(1).eval().forward(x)), await values(x));
    }
  }
  assert.throws(() => F.dropout(tensor([1], { dtype: 'i32' }), 1), /dropout/);
});

test('states of a wrong size are named as they were given', () => {
  const x = randn([2, 3, 4]);
  for (const Kind of [nn.GRU, nn.RNN]) {
    const layer = new Kind(4, 5);
    assert.throws(() => layer.forward(x, zeros([1, 2, 6])), /expected a state \[2, 5\], got \[1, 2, 6\]/);
    assert.throws(() => layer.forward(x, zeros([1, 3, 5])), /expected a state \[2, 5\], got \[1, 3, 5\]/);
    assert.deepEqual(new Kind(4, 5, { batchFirst: false }).forward(x, zeros([1, 3, 5]))[1].shape, [1, 3, 5]);
  }
  assert.throws(() => new nn.LSTM(4, 5).forward(x, [zeros([1, 2, 6]), zeros([1, 2, 5])]), /expected a state \[2, 5\], got \[1, 2, 6\]/);
});
