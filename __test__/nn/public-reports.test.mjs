// Public bug reports of other frameworks, tried here (docs/reliability.md lists them): what was wrong there must stay right here.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { bf16Bits, f16Bits } from '../../kernels/half.mjs';
import { F, cat, checkpoint, compile, full, grad, nn, noGrad, ones, rand, tensor, zeros } from '../../nn/index.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { initDevice, poison, values } from './setup.mjs';

before(() => {
  initDevice();
  poison();
});

/**
 * The results of a function, eager and compiled.
 * @param {(...args: any[]) => any} f @param {...any} args
 * @returns {Promise<[how: string, values: number[]][]>}
 */
const both = async (f, ...args) => [
  ['eager', await values(f(...args))],
  ['compiled', await values(compile(f)(...args))],
];
const HALVES = /** @type {const} */ (['f16', 'bf16']);

test('log softmax of more 16-bit elements than f16 counts to, and its gradient (pytorch#158310, jax#40409)', async () => {
  for (const dtype of HALVES) {
    const x = full([70_000], -20_000, { dtype });
    for (const [how, y] of await both((v) => F.logSoftmax(v).slice(0, 0, 2), x)) {
      assertClose(y, Float64Array.of(-Math.log(70_000), -Math.log(70_000)), 2 ** -8, `${dtype}, ${how}`);
    }
    assert.equal(F.logSoftmax(x).dtype, dtype);
  }
  const x = tensor([1, 2, 3, 4], { dtype: 'f16', requiresGrad: true });
  const dy = [60_000, 60_000, -60_000, -50_000];
  const [g] = grad(F.logSoftmax(x), [x], { gradient: tensor(dy, { dtype: 'f16' }) });
  const e = [1, 2, 3, 4].map(Math.exp);
  const [total, sum] = [e, dy].map((list) => list.reduce((a, b) => a + b));
  assertClose(
    await values(g),
    Float64Array.from(dy, (d, i) => d - (e[i] / total) * sum),
    2 ** -10,
    'gradient',
  );
});

test('scores of attention that f16 holds, of products that it does not (16-bit scores before their factor)', async () => {
  const [q, v] = [full([1, 2, 128], 30, { dtype: 'f16' }), full([1, 2, 2], 1, { dtype: 'f16' })];
  for (const [how, y] of await both((a, b) => F.scaledDotProductAttention(a, a, b), q, v)) assert.deepEqual(y, [1, 1, 1, 1], how);
  const rows = full([1, 2, 3 * 100], 30, { dtype: 'f16' });
  for (const [how, y] of await both((x) => F.attention(x, { heads: 1 }).slice(2, 0, 1), rows)) assert.deepEqual(y, [30, 30], how);
});

test('gradients of quotients whose way there does not fit the type (pytorch#193040)', async () => {
  /** @type {[name: string, dtype: 'f16' | 'f32', f: (...xs: any[]) => any, at: number[], dy: number, expected: number[]][]} */
  const cases = [
    ['a / b in f16', 'f16', (a, b) => F.div(a, b), [300, 300], 300, [1, -1]],
    ['a / b in f32', 'f32', (a, b) => F.div(a, b), [1e25, 1e20], 1e20, [1, -1e5]],
    ['a / b of little', 'f32', (a, b) => F.div(a, b), [1e-30, 1e-30], 1, [1e30, -1e30]],
    ['1 / x', 'f16', (x) => F.reciprocal(x), [2 ** -10], 2 ** -10, [-1024]],
    ['1 / √x', 'f16', (x) => F.rsqrt(x), [2 ** -12], 2 ** -4, [-(2 ** 13)]],
  ];
  for (const [name, dtype, f, at, dy, expected] of cases) {
    const xs = at.map((v) => tensor([v], { dtype, requiresGrad: true }));
    const gradients = (/** @type {any[]} */ ...inputs) => cat(grad(f(...inputs), inputs, { gradient: tensor([dy], { dtype }) }));
    assertClose(await values(gradients(...xs)), Float64Array.from(expected), 2 ** -10, `${name}, eager`);
    assertClose(await values(compile(gradients)(...xs)), Float64Array.from(expected), 2 ** -10, `${name}, compiled`);
  }
  const x = tensor([2], { requiresGrad: true });
  assert.deepEqual(await values(grad(F.sign(x), [x], { gradient: tensor([Infinity]) })[0]), [0]);
});

test('cross-entropy of large logits, whose losses are small differences (pytorch#11752)', async () => {
  for (const [logits, target, expected] of /** @type {[number[], number, number][]} */ ([
    [[1e8, 1e8], 1, Math.LN2],
    [[-3e7, -3e7, -3e7], 0, Math.log(3)],
    [[1e6, 1e6 - 1, 1e6 - 2], 1, 1 + Math.log(1 + Math.exp(-1) + Math.exp(-2))],
  ])) {
    for (const [how, [loss]] of await both((x) => F.crossEntropy(x, tensor([target], { dtype: 'i32' })), tensor([logits]))) {
      assertClose([loss], Float64Array.of(expected), 1e-6, `${logits}, ${how}`);
    }
  }
});

test('an ignored class is an integer', () => {
  for (const ignoreIndex of [NaN, 1.5, Infinity]) {
    assert.throws(
      () => F.crossEntropy(tensor([[1, 2]]), tensor([0], { dtype: 'i32' }), { ignoreIndex }),
      /crossEntropy: ignoreIndex must be an integer, got/,
    );
  }
});

test('an odd number of 16-bit elements written into a view leaves the next one as it was', async () => {
  for (const dtype of HALVES) {
    /** @type {Record<string, [write: (x: any) => void, expected: number[]]>} */
    const writes = {
      'other elements': [(x) => x.slice(0, 0, 3).copy_(tensor([10, 20, 30], { dtype })), [10, 20, 30, 4, 5, 6, 7, 8]],
      'elements of another type': [(x) => x.slice(0, 0, 3).copy_(tensor([10, 20, 30])), [10, 20, 30, 4, 5, 6, 7, 8]],
      'host data': [(x) => x.slice(0, 0, 1).copy_(Float32Array.of(7)), [7, 2, 3, 4, 5, 6, 7, 8]],
      'a shift': [(x) => x.slice(0, 0, -1).copy_(x.slice(0, 1)), [2, 3, 4, 5, 6, 7, 8, 8]],
      'a row': [
        (x) =>
          x
            .reshape(2, 4)
            .at(1)
            .slice(0, 0, 3)
            .copy_(x.slice(0, 0, 3)),
        [1, 2, 3, 4, 1, 2, 3, 8],
      ],
      'a number': [(x) => x.slice(0, 0, 5).fill_(9), [9, 9, 9, 9, 9, 6, 7, 8]],
      'a sum': [(x) => x.slice(0, 0, 3).add_(x.slice(0, 0, 3)), [2, 4, 6, 4, 5, 6, 7, 8]],
    };
    for (const [name, [write, expected]] of Object.entries(writes)) {
      const f = (/** @type {any} */ x) => {
        const own = x.clone();
        write(own);
        return own;
      };
      for (const [how, y] of await both(f, tensor([1, 2, 3, 4, 5, 6, 7, 8], { dtype })))
        assert.deepEqual(y, expected, `${dtype}, ${name}, ${how}`);
    }
  }
});

test('host numbers to 16 bits are rounded once (julia#57805)', async () => {
  const little = 2 ** -40;
  for (const [value, expected] of [
    [1 + 2 ** -8, 1],
    [1 + 2 ** -8 + little, 1 + 2 ** -7],
    [1 + 3 * 2 ** -8 - little, 1 + 2 ** -7],
    [-(1 + 2 ** -8 + little), -(1 + 2 ** -7)],
    [2 ** -134 + 2 ** -160, 2 ** -133],
    [3.5e38, Infinity],
    [-0, -0],
  ]) {
    assert.deepEqual(await values(tensor([value], { dtype: 'bf16' })), [expected], `${value}`);
  }
  assert.equal(f16Bits(1 + 2 ** -11 + little), 0x3c01);
  assert.equal(bf16Bits(Number.MAX_VALUE), 0x7f80);
});

test("a checkpoint's second run does not count in running means, eager and compiled (pytorch#96136)", async () => {
  const x = tensor([1, 2, 3, 5], { shape: [1, 1, 2, 2], requiresGrad: true });
  const states = [];
  for (const run of /** @type {((norm: any) => any)[]} */ ([
    (norm) => grad(norm.forward(x).sum(), [x]),
    (norm) => grad(checkpoint((v) => norm.forward(v), x).sum(), [x]),
    (norm) => compile((v) => grad(checkpoint((w) => norm.forward(w), v).sum(), [v]))(x),
  ])) {
    const norm = new nn.BatchNorm2d(1);
    run(norm);
    states.push([await values(norm.running_mean), await values(norm.running_var)]);
  }
  assertClose(states[0].flat(), Float64Array.of(0.1 * 2.75, 0.9 + (0.1 * 8.75) / 3), 1e-6, 'running statistics');
  assert.deepEqual(states[1], states[0]);
  assert.deepEqual(states[2], states[0]);
});

test('BatchNorm2d does not train on one element of a channel, which has no variance (pytorch#7716)', async () => {
  const norm = new nn.BatchNorm2d(2);
  const x = ones([1, 2, 1, 1]);
  assert.throws(() => norm.forward(x), /BatchNorm2d: an input \[1, 2, 1, 1\] has one element in each channel/);
  assert.deepEqual(
    [await values(norm.running_mean), await values(norm.running_var)],
    [
      [0, 0],
      [1, 1],
    ],
  );
  assertClose(await values(norm.eval().forward(x)), Float64Array.of(1, 1), 1e-5, 'eval');
});

test('arrays among arguments of a compiled function have their elements, holes too, and nothing else', async () => {
  const f = compile((list, x) => x.mul(0.5).add(list.length));
  const x = zeros([1]);
  // biome-ignore lint/suspicious/noSparseArray: that is the test
  assert.deepEqual(await values(f([1, , 2], x)), [3]);
  assert.deepEqual(await values(f('abc'.match(/b/), x)), [1]);
  assert.deepEqual(await values(compile((list, y) => y.add(list[1] === undefined ? 1 : 2))(new Array(2), x)), [1]);
});

test('what was right already: slices, selections, extremes, shapes (mlx#657, burn#2891, tfjs#665, tfjs#777, pytorch#9145)', async () => {
  for (const [how, [sum]] of await both((x) => F.softmax(x.slice(1, 0, 2)).sum(), rand([4, 4])))
    assertClose([sum], Float64Array.of(4), 1e-6, how);
  const index = tensor([1, 2, 3], { dtype: 'i32' });
  for (const [how, y] of await both((x) => x.indexSelect(2, index).indexSelect(3, index), ones([1, 3, 10, 10])))
    assert.deepEqual(y, new Array(27).fill(1), how);
  for (const size of [2, 3, 63, 64, 65, 88, 127, 129, 257]) {
    for (const at of [0, size >> 1, size - 1]) {
      const x = new Float32Array(size);
      x[at] = 1;
      for (const [how, y] of await both((v) => v.argmax(), tensor(x))) assert.deepEqual(y, [at], `${at} of ${size}, ${how}`);
    }
  }
  for (const [how, y] of await both((x) => x.gather(0, tensor([10_000, -129, 3], { dtype: 'i32' })), ones([128])))
    assert.deepEqual(y, [0, 0, 1], how);
  const x = tensor([1], { requiresGrad: true });
  assert.deepEqual(await values(grad(x.expand(100).at(0), [x])[0]), [1]);
});

test('what was right already: NaN in pools, comparisons and conversions (pytorch#7645, tfjs#5800, pytorch#180159)', async () => {
  const special = tensor([NaN, Infinity, -Infinity, 3e9, -3e9, -1.9, 0.5, -0]);
  for (const [how, y] of await both((x) => F.maxPool2d(x, 2), tensor([1, NaN, 5, 6, 1, 2, 3, 4], { shape: [1, 2, 2, 2] })))
    assert.deepEqual(y, [NaN, 4], how);
  for (const [how, y] of await both((x) => x.ne(x), special)) assert.deepEqual(y, [1, 0, 0, 0, 0, 0, 0, 0], how);
  for (const [how, y] of await both((x) => x.to('i32'), special)) {
    assert.deepEqual(y, [0, 2 ** 31 - 1, -(2 ** 31), 2 ** 31 - 1, -(2 ** 31), -1, 0, 0], how);
  }
  for (const [how, y] of await both((x) => x.to('bool'), special)) assert.deepEqual(y, [1, 1, 1, 1, 1, 1, 1, 0], how);
});

test('what was right already: gradients past what was overwritten or needs none (pytorch#180164, burn#4069)', async () => {
  const gradients = (/** @type {any} */ x, /** @type {any} */ y) => {
    const written = x.scatter(
      1,
      tensor(
        [
          [0, 2],
          [1, 1],
        ],
        { dtype: 'i32' },
      ),
      y,
    );
    return cat(
      grad(
        written
          .sum(1)
          .mul(tensor([1, 2]))
          .sum(),
        [x, y],
      ).map((g) => g.reshape(-1)),
    );
  };
  const x = ones([2, 3]).requiresGrad_();
  const y = ones([2, 2]).requiresGrad_();
  for (const [how, g] of await both(gradients, x, y)) assert.deepEqual(g, [0, 1, 0, 2, 0, 2, 1, 1, 0, 2], how);
  const constant = ones([2]);
  const b = tensor([1, 2, 3], { requiresGrad: true });
  for (const [how, g] of await both(
    (v) =>
      grad(
        cat([constant, v])
          .mul(tensor([1, 2, 3, 4, 5]))
          .sum(),
        [v],
      )[0],
    b,
  ))
    assert.deepEqual(g, [3, 4, 5], how);
});

test('what was right already: products of views, of zeros, and of five dimensions (candle#1948, candle#680, candle#2228)', async () => {
  const a = tensor(
    Float32Array.from({ length: 48 }, (_, i) => i),
    { shape: [1, 8, 6] },
  );
  const w = ones([4, 6]);
  for (const [how, y] of await both((x, v) => x.slice(1, 7, 8).squeeze(1).matmul(v.T), a, w))
    assert.deepEqual(y, new Array(4).fill(42 + 43 + 44 + 45 + 46 + 47), how);
  for (const [how, y] of await both((x, v) => x.matmul(v), zeros([1, 2]), zeros([2, 2]))) assert.deepEqual(y, [0, 0], how);
  const five = ones([2, 1, 3, 2, 2]);
  for (const [how, y] of await both((x, v) => x.matmul(v).sum(), five, ones([2, 3, 2, 4]).slice(0, 0, 2)))
    assert.deepEqual(y, [2 * 2 * 3 * 2 * 4 * 2], how);
});

test('what was right already: a parameter of two names is one (pytorch#188346)', async () => {
  class Tied extends nn.Module {
    constructor() {
      super();
      this.first = new nn.Linear(2, 2, { bias: false });
      this.second = new nn.Linear(2, 2, { bias: false });
      this.second.weight = this.first.weight;
    }
  }
  const model = new Tied();
  assert.equal(model.parameters().length, 1);
  model.loadStateDict({ 'first.weight': ones([2, 2]), 'second.weight': ones([2, 2]) });
  noGrad(() => model.first.weight.mul_(3));
  assert.deepEqual(await values(model.second.weight), [3, 3, 3, 3]);
  assert.equal(model.parameters().length, 1);
});
