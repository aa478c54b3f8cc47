// Results where a formula that is right on paper loses digits, or gives NaN: powers and their gradients, division by tiny numbers, logarithms
// near 1, sums of many equal elements. Eager and compiled.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, full, grad, nn, tensor } from '../../nn/index.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import { light } from '../lib/addon.mjs';
import { initDevice, values } from './setup.mjs';

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */

/** Whether the device keeps results below the least number with all digits; Vulkan leaves that to it. */
let keepsDenormals = false;
before(async () => {
  await initDevice();
  keepsDenormals =
    (await tensor([2 ** -64])
      .square()
      .item()) > 0;
});

/** What a function gives eagerly and compiled. @template {Tensor[]} A @param {(...x: A) => Tensor[]} f @param {A} inputs */
async function both(f, ...inputs) {
  const compiled = compile(f);
  /** @type {number[][][]} */
  const results = [];
  for (const made of [f(...inputs), compiled(...inputs)]) results.push(await Promise.all(made.map(values)));
  compiled.dispose();
  return results;
}

/** @param {number[]} actual @param {number[]} expected @param {number} tolerance relative @param {string} what */
function assertNear(actual, expected, tolerance, what) {
  expected.forEach((wanted, i) => {
    const near = Object.is(actual[i], wanted) || Math.abs(actual[i] - wanted) <= tolerance * Math.abs(wanted);
    assert.ok(near, `${what}: element ${i} is ${actual[i]}, wanted ${wanted}`);
  });
}

test('powers and their gradients are those of C and of exponent · x^(exponent - 1), at 0 and of negative numbers, too', async () => {
  const numbers = [0, -0, 1, -1, -2, 0.5, Infinity, -Infinity, NaN, 3, -0.25];
  for (const exponent of [0, 1, 1.5, 2, 2.5, 3, 4, 63, 64, 65, 66, 101, -1, -2, -3, -65, -1.5, 0.5]) {
    const x = tensor(numbers, { requiresGrad: true });
    const f = (/** @type {Tensor} */ v) => [v.pow(exponent), ...grad(v.pow(exponent).sum(), [v])];
    const power = (/** @type {number} */ v, /** @type {number} */ e) => {
      if (e === 0) return 1;
      // sqrt and 1 / sqrt, as in PyTorch, are NaN of -∞.
      if (Math.abs(e) === 0.5 && v < 0) return NaN;
      return Math.fround(v ** e);
    };
    for (const [y, dx] of await both(f, x)) {
      // What is below this, or has a factor that is, may count as 0: a device need not keep denormals.
      const least = keepsDenormals ? 1e-37 : 1e-35;
      const finite = (/** @type {number[]} */ list) => list.map((v) => (Math.abs(v) < least ? 0 * v : v));
      assertNear(finite(y), finite(numbers.map((v) => power(v, exponent))), 3e-5, `x^${exponent}`);
      const wanted = numbers.map((v) => (exponent === 0 ? 0 : Math.fround(exponent * power(v, exponent - 1))));
      // By way of √x: that of -0 is -0, and its inverse is -∞.
      if (exponent === 0.5) [dx[1], wanted[1], dx[7], wanted[7]] = [0, 0, 0, 0];
      assertNear(finite(dx), finite(wanted), 3e-5, `the gradient of x^${exponent}`);
    }
  }
});

test('the gradient of 1 / x² stays a number where (1 / x²)² is none', async () => {
  const x = tensor([1e-10, -1e-11, 1e12], { requiresGrad: true });
  for (const [dx] of await both((v) => grad(v.pow(-2).sum(), [v]), x)) assertNear(dx, [-2e30, 2e33, -2e-36], 1e-5, 'the gradient');
});

test('quotients by numbers whose reciprocals f32 has not, and of numbers by elements of that size', async () => {
  // Denormal divisors are not here as elements: a device may take them for 0.
  for (const [x, divisor] of [
    [2e-38, 2e-39],
    [-3e-38, 2.5e-39],
    [1.5e-38, -1e-41],
    [3e38, 3e38],
    [-1e38, 2.5e38],
    [4, Infinity],
    [0, 1e-39],
    [1, 0],
    [-1, 0],
    [0, 0],
    [Infinity, Infinity],
    [3, 7],
  ]) {
    const wanted = Math.fround(Math.fround(x) / divisor);
    for (const [y] of await both((v) => [v.div(divisor)], tensor([x]))) assertNear(y, [wanted], 3e-7, `${x} / ${divisor}`);
  }
  for (const [number, x] of [
    [1e-30, 1e-38 * 2],
    // Vulkan's division is for divisors up to 2^126: a GPU's may go by way of a reciprocal, which here has too few digits.
    ...(runtime().kernels.context.isCpu ? [[2e38, 3e38]] : []),
    [0, 1e-37],
    [5, -0],
    [0, 0],
    [-2.5, 3],
  ]) {
    const v = tensor([x], { requiresGrad: true });
    for (const [y, dx] of await both((z) => [F.div(number, z), ...grad(F.div(number, z).sum(), [z])], v)) {
      assertNear(y, [Math.fround(number / Math.fround(x))], 3e-7, `${number} / ${x}`);
      if (x === 3) assertNear(dx, [2.5 / 9], 1e-6, 'the gradient');
    }
  }
});

test('zeros keep their signs through products, and a sum with 0 is 0', async () => {
  const x = tensor([0, -0]);
  const f = (/** @type {Tensor} */ v) => [v.mul(1), v.mul(-1), v.neg(), v.add(0), v.sub(0), F.sub(0, v), v.mul(1).add(0)];
  const wanted = [
    [0, -0],
    [-0, 0],
    [-0, 0],
    [0, 0],
    [0, -0],
    [0, 0],
    [0, 0],
  ];
  for (const results of await both(f, x)) {
    results.forEach((y, k) => {
      for (const i of [0, 1]) assert.ok(Object.is(y[i], wanted[k][i]), `${k}: ${Object.is(y[i], -0) ? '-0' : y[i]}`);
    });
  }
});

test('binary cross-entropy of large logits, its gradient, and log1p have all their digits', async () => {
  const logits = [-40, -30, -20, -16, -15, -3, -0.5, 0, 0.5, 3, 15, 16, 30, 80];
  for (const target of [0, 1]) {
    const x = tensor(logits, { requiresGrad: true });
    const y = full([logits.length], target);
    const f = (/** @type {Tensor} */ v, /** @type {Tensor} */ t) => {
      const losses = F.binaryCrossEntropyWithLogits(v, t, { reduction: 'none' });
      return [losses, ...grad(losses.sum(), [v])];
    };
    const side = target ? -1 : 1;
    for (const [losses, dx] of await both(f, x, y)) {
      assertNear(
        losses,
        logits.map((v) => Math.max(side * v, 0) + Math.log1p(Math.exp(-Math.abs(v)))),
        2e-6,
        `losses of ${target}`,
      );
      assertNear(
        dx.slice(0, 7),
        logits.slice(0, 7).map((v) => 1 / (1 + Math.exp(-v)) - target),
        2e-6,
        `gradients of ${target}`,
      );
    }
  }
  const numbers = [-0, 1e-30, -1e-9, 3e-8, 1e-4, -0.3, -0.5, -0.75, 0.9, 1, 1.1, 7, 1e30, Infinity, NaN];
  // Vulkan does not say what the logarithm of a negative number is; SwiftShader says 0.
  if (Number.isNaN(await F.log(tensor([-1])).item())) numbers.push(-2);
  for (const [y] of await both((v) => [F.log1p(v)], tensor(numbers))) {
    assertNear(
      y,
      numbers.map((v) => Math.fround(Math.log1p(Math.fround(v)))),
      6e-7,
      'log1p',
    );
  }
});

test('sums of very many equal elements are off by roundings, not by as many as there are elements', async () => {
  const tenth = Math.fround(0.1);
  /** @param {string} what @param {(...x: any[]) => Tensor} f @param {number} wanted @param {...Tensor} inputs */
  const close = async (what, f, wanted, ...inputs) => {
    for (const [y] of await both((...x) => [f(...x)], ...inputs)) {
      for (const v of [y[0], y[y.length - 1]]) assert.ok(Math.abs(v / wanted - 1) < 1e-6, `${what}: ${v}, wanted ${wanted}`);
    }
  };
  const [all, columns, rows] = light ? [2 ** 20, 2 ** 16, 2 ** 14] : [2 ** 23, 2 ** 19, 2 ** 16];
  await close('all', (x) => x.mul(1).sum(), all * tenth, full([all], 0.1));
  await close('columns', (x) => x.mul(1).sum(0), columns * tenth, full([columns, 4], 0.1));
  await close('rows', (x) => x.mul(1).sum(1), rows * tenth, full([4, rows], 0.1));
  await close('short rows', (x) => x.mul(1).sum(1), 2 ** 13 * tenth, full([80, 2 ** 13], 0.1));
  await close('squares', (x) => x.square().mean(), tenth ** 2, full([all], 0.1));
  await close('rows of a norm', (x) => F.rmsNorm(x, full([rows * 4], 1), 0), 1, full([2, rows * 4], 0.1));
  const [weight, x] = [full([4], 1, {}).requiresGrad_(), full([columns, 4], 0.1)];
  await close('weights of a norm', (v, w) => grad(F.rmsNorm(v, w, 0).mul(0.1).sum(), [w])[0], columns * tenth, x, weight);
  const table = new nn.Embedding(2, 4);
  // The gradient of a table takes a CPU the square of this.
  const ids = tensor(new Int32Array(2 ** 14));
  const [d] = grad(table.forward(ids).mul(0.1).sum(), [table.weight]);
  assert.ok(Math.abs((await values(d))[0] / (2 ** 14 * tenth) - 1) < 1e-6, 'rows of a table');
  const scattered = full([2, 1], 0).scatterAdd(0, tensor(new Int32Array(2 ** 15), { shape: [2 ** 15, 1] }), full([2 ** 15, 1], 0.1));
  assert.ok(Math.abs((await values(scattered))[0] / (2 ** 15 * tenth) - 1) < 1e-6, 'scattered');
});

test('products over very many equal terms are off by less than 1e-4', async () => {
  const depth = light ? 2 ** 15 : 2 ** 18;
  for (const value of [0.1, 1 / 3]) {
    const wanted = Math.fround(value) ** 2 * depth;
    for (const [m, n] of [
      [1, 1],
      [1, 5],
    ]) {
      const [a, b] = [full([m, depth], value), full([n, depth], value)];
      for (const results of await both((x, y) => [x.matmul(y.T), F.linear(x, y), y.matmul(x.T).T], a, b)) {
        for (const y of results) assertNear(y, new Array(m * n).fill(wanted), 1e-4, `${m} x ${n} of ${value}`);
      }
    }
  }
});

test('sums keep infinities and NaN, and go beyond the largest number', async () => {
  for (const [numbers, wanted] of /** @type {[number[], number][]} */ ([
    [[1, Infinity, 2], Infinity],
    [[-Infinity, 1], -Infinity],
    [[Infinity, -Infinity], NaN],
    [[1, NaN], NaN],
    [[3e38, 3e38], Infinity],
  ])) {
    for (const length of [5, 64, 5000]) {
      const x = tensor(
        Float32Array.from({ length }, (_, i) => numbers[i % (numbers.length + 1)] ?? 0),
        { shape: [length, 1] },
      );
      const f = (/** @type {Tensor} */ v) => [v.sum(), v.expand(length, 4).contiguous().sum(0), v.reshape(1, -1).sum(1), v.mul(1).sum(0)];
      for (const results of await both(f, x)) for (const [y] of results) assert.ok(Object.is(y, wanted), `${numbers} ${length}: ${y}`);
    }
  }
});
