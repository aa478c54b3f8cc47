// `rand` and `randn`: the stream that a seed determines, its distribution, and new numbers at every call of a compiled function.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, checkpoint, compile, manualSeed, memory, nn, rand, randn, scope, tensor } from '../../nn/index.mjs';
import { Philox } from '../../nn/core/philox.mjs';
import { erf } from '../../nn/ops/special.mjs';
import { exactNormal, exactUniform } from '../lib/exact.mjs';
import { philox } from '../lib/reference.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

/** @param {any} x @returns {Promise<Float32Array>} */
const values = (x) => x.toArray();

test('the numbers are those of Philox: the seed is the key, the count of draws the offset', async () => {
  const seed = 2 ** 40 + 77;
  manualSeed(seed);
  const key = [seed >>> 0, Math.floor(seed / 2 ** 32)];
  const expected = (/** @type {number} */ count, /** @type {number} */ draw) =>
    Array.from({ length: count }, (_, i) => (philox([i >> 2, 0, draw, 0], key)[i % 4] >>> 8) / 2 ** 24);
  assert.deepEqual([...(await values(rand([3, 7])))], expected(21, 1));
  assert.deepEqual([...(await values(rand([5])))], expected(5, 2));
  randn([2]);
  assert.deepEqual([...(await values(rand([1])))], expected(1, 4));
  // Dropout draws from the same stream.
  F.dropout(tensor([1, 2]), 0.5);
  assert.deepEqual([...(await values(rand([2])))], expected(2, 6));
});

/** Counts of values by the bin that they fall into. @param {ArrayLike<number>} x @param {number} bins @param {(v: number) => number} cdf */
function counts(x, bins, cdf) {
  const result = new Array(bins).fill(0);
  for (let i = 0; i < x.length; i++) result[Math.min(bins - 1, Math.floor(bins * cdf(x[i])))]++;
  return result;
}

/**
 * Whether counts are as even as chance: χ² has a mean of bins - 1 and a variance of twice that.
 * @param {number[]} observed @param {string} what
 */
function assertEven(observed, what) {
  const expected = observed.reduce((a, b) => a + b, 0) / observed.length;
  const square = observed.reduce((sum, n) => sum + (n - expected) ** 2 / expected, 0);
  const freedom = observed.length - 1;
  assert.ok(Math.abs(square - freedom) < 5 * Math.sqrt(2 * freedom), `${what}: χ² of ${square} at ${freedom} degrees of freedom`);
}

test('uniform and normal numbers have their distributions, alone and in pairs', async () => {
  manualSeed(5);
  const n = 1 << 16;
  const uniform = (/** @type {number} */ v) => v;
  const gauss = (/** @type {number} */ v) => (1 + erf(v / Math.SQRT2)) / 2;
  const other = { uniform: await values(rand([n])), normal: await values(randn([n])) };
  for (const [what, x, y, cdf] of /** @type {const} */ ([
    ['uniform', await values(rand([n])), other.uniform, uniform],
    ['normal', await values(randn([n])), other.normal, gauss],
  ])) {
    assertEven(counts(x, 256, cdf), what);
    // Neighbours within a word of Philox, words beside each other, and equal places of two draws.
    for (const [pairs, of] of /** @type {[string, (i: number) => [number, number]][]} */ ([
      ['neighbours', (i) => [x[2 * i], x[2 * i + 1]]],
      ['groups', (i) => [x[8 * i], x[8 * i + 4]]],
      ['draws', (i) => [x[i], y[i]]],
    ])) {
      const table = new Array(64).fill(0);
      for (let i = 0; i < n / 8; i++) {
        const [a, b] = of(i).map((v) => Math.min(7, Math.floor(8 * cdf(v))));
        table[8 * a + b]++;
      }
      assertEven(table, `${what}, ${pairs}`);
    }
  }
  const moments = await values(randn([n], { mean: 3, deviation: 0.5 }));
  const mean = moments.reduce((a, b) => a + b, 0) / n;
  const deviation = Math.sqrt(moments.reduce((a, b) => a + (b - mean) ** 2, 0) / n);
  assert.ok(Math.abs(mean - 3) < (5 * 0.5) / Math.sqrt(n), `a mean of ${mean}`);
  assert.ok(Math.abs(deviation - 0.5) < (5 * 0.5) / Math.sqrt(2 * n), `a deviation of ${deviation}`);
});

test('a compiled function draws anew at every call, what eager code would; manualSeed begins anew', async () => {
  const f = (/** @type {any} */ x) => [x.add(rand([4])), F.dropout(randn([3]), 0.5)];
  const x = tensor([1, 2, 3, 4]);
  const run = async (/** @type {(x: any) => any[]} */ fn) => {
    const results = [];
    for (let i = 0; i < 3; i++) for (const y of fn(x)) results.push([...(await values(y))]);
    return results;
  };
  manualSeed(9);
  const eager = await run(f);
  const compiled = compile(f);
  manualSeed(9);
  const first = await run(compiled);
  assert.deepEqual(first, eager);
  assert.notDeepEqual(first[0], first[2]);
  assert.notDeepEqual(await run(compiled), eager);
  manualSeed(9);
  assert.deepEqual(await run(compiled), eager);
  assert.equal(compiled.explain().length, 1);
  scope(() => void compiled(x));
  const before = memory();
  for (let i = 0; i < 5; i++) scope(() => void compiled(x));
  assert.deepEqual(memory(), before);
  compiled.dispose();
});

test('a checkpoint draws the same noise again', async () => {
  const gradients = [];
  for (const kept of [true, false]) {
    manualSeed(4);
    const w = tensor([1, 2, 3], { requiresGrad: true });
    const noisy = (/** @type {any} */ v) => v.mul(randn([3])).square();
    (kept ? noisy(w) : checkpoint(noisy, w)).sum().backward();
    gradients.push([...(await values(w.grad)), ...(await values(rand([2])))]);
  }
  assert.deepEqual(gradients[1], gradients[0]);
});

test('leaves of random numbers; what cannot be drawn says why; modules have a stream of their own', async () => {
  assert.equal(rand([2], { requiresGrad: true }).mul(2).requiresGrad, true);
  assert.throws(() => rand([2], { low: 1, high: 0 }), /rand: low must be less than high, got 1 and 0/);
  assert.throws(() => rand(/** @type {any} */ (3)), /rand: the shape must be an array of sizes, got 3/);
  assert.throws(() => randn([-1]), /randn: the sizes of a shape must be integers of at least 0/);
  assert.throws(() => randn([2], { deviation: -1 }), /randn: deviation must be at least 0, got -1/);
  assert.throws(() => randn([2], { mean: /** @type {any} */ ('a') }), /randn: mean must be a number, got a/);
  // Draws on the device do not move the stream that parameters come from.
  manualSeed(1);
  const one = await values(new nn.Linear(2, 2).weight);
  manualSeed(1);
  rand([100]);
  assert.deepEqual(await values(new nn.Linear(2, 2).weight), one);
});

test('initial values are one sequence of words, whether device or host draws them, in tensors of any layout and type', async () => {
  const seed = 2 ** 35 + 3;
  manualSeed(seed);
  const sequence = new Philox(seed);
  const uniform = (/** @type {number} */ count, /** @type {number} */ low, /** @type {number} */ high) =>
    Array.from({ length: count }, () => exactUniform(sequence.next(), low, high));
  const normal = (/** @type {number} */ count, mean = 0, deviation = 1) =>
    Array.from({ length: count }, () => exactNormal(2 * sequence.next() + 2, sequence.next(), mean, deviation));

  const bound = 1 / Math.sqrt(3);
  const linear = new nn.Linear(3, 5);
  assert.deepEqual([...(await values(linear.weight))], uniform(15, -bound, bound));
  assert.deepEqual([...(await values(linear.bias))], uniform(5, -bound, bound));
  assert.deepEqual([...(await values(new nn.Embedding(3, 3).weight))], normal(9));
  // The host draws these, and one of them again and again until it lies in the interval.
  const own = nn.init.truncNormal(tensor([0, 0, 0]), 0, 1, -0.5, 0.5);
  const expected = [];
  while (expected.length < 3) {
    for (const value of Array.from({ length: 3 - expected.length }, () => sequence.normal())) {
      if (Math.abs(value) <= 0.5) expected.push(Math.fround(value));
    }
  }
  assert.deepEqual([...(await values(own))], expected);
  const wide = tensor(new Float32Array(12), { shape: [3, 4] });
  assert.equal(nn.init.normal(wide.T.slice(0, 1, 3), 2, 0.5).shape.join(), '2,3');
  const [a, b, c, d, e, f] = normal(6, 2, 0.5);
  assert.deepEqual([...(await values(wide))], [0, a, d, 0, 0, b, e, 0, 0, c, f, 0]);
  const half = nn.init.uniform(F.to(tensor([0, 0]), 'f16'), -4, 4);
  const [x, y] = uniform(2, -4, 4);
  assert.deepEqual([...(await values(half))], [...(await values(F.to(tensor([x, y]), 'f16')))]);
  // A tensor without elements takes no words, nor does one that is refused.
  nn.init.normal(tensor([], { shape: [0, 2] }));
  assert.throws(() => nn.init.uniform(wide, 1, 0), /uniform: b must be at least a, got 1 and 0/);
  const parameter = new nn.Parameter(tensor([1, 1]));
  nn.init.normal(parameter);
  assert.deepEqual([...(await values(parameter))], normal(2));
  assert.throws(() => compile(() => new nn.Linear(2, 2).weight)(), /random: parameters are drawn once/);
});
