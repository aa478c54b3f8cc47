// Gradients of gradients, of functions that consist of several operations: against differences of first gradients. Single operations are in
// ops.test.mjs.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, checkpoint, compile, grad, manualSeed, tensor } from '../../nn/index.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';
import { initDevice } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */

/** @param {Tensor} x */
const turned = (x) => F.transpose(x, -2, -1);
/** @param {Tensor} x @param {number} from @param {number} to */
const rows = (x, from, to) => F.slice(x, -2, from, to);
/** Σ w · y. @param {Tensor[]} list @param {ArrayLike<number>[]} weights */
const weighted = (list, weights) =>
  list.map((y, i) => F.sum(F.mul(y, tensor(Float64Array.from(weights[i]), { shape: [...y.shape] })))).reduce((a, b) => F.add(a, b));
/** A symmetric matrix. @param {Tensor} a */
const symmetric = (a) => F.add(a, turned(a));
/** @param {Tensor} a */
const definite = (a) =>
  F.add(
    F.matmul(a, turned(a)),
    tensor([
      [1, 0, 0],
      [0, 1, 0],
      [0, 0, 1],
    ]),
  );

/** By what they are, of batches of 3 × 3 matrices. @type {[string, (a: Tensor) => Tensor[]][]} */
const MATRICES = [
  ['inv', (a) => [F.linalg.inv(a)]],
  ['det', (a) => [F.linalg.det(a)]],
  ['slogdet', (a) => [F.linalg.slogdet(a).logabsdet]],
  ['solve', (a) => [F.linalg.solve(a, F.slice(a, -1, 0, 2))]],
  ['solveTriangular', (a) => [F.linalg.solveTriangular(a, turned(a), { upper: true })]],
  ['cholesky', (a) => [F.linalg.cholesky(definite(a))]],
  ['qr', (a) => Object.values(F.linalg.qr(a))],
  ['qr of wide ones', (a) => Object.values(F.linalg.qr(rows(a, 0, 2)))],
  ['svd', (a) => Object.values(F.linalg.svd(rows(a, 0, 2), { fullMatrices: false })).map(F.square)],
  ['eigh', (a) => Object.values(F.linalg.eigh(symmetric(a))).map(F.square)],
  ['lu', (a) => Object.values(F.linalg.lu(F.slice(a, -1, 0, 2))).slice(1)],
  ['lu of wide ones', (a) => Object.values(F.linalg.lu(rows(a, 0, 2))).slice(1)],
  ['pinv', (a) => [F.linalg.pinv(rows(a, 0, 2))]],
  ['binaryCrossEntropy', (a) => [F.binaryCrossEntropy(F.sigmoid(a), F.sigmoid(turned(a)), { reduction: 'none' })]],
];

/**
 * Of s = u · ∂(w · f(x))/∂x the gradient, and of that one: in a direction, against differences of the order below; compiled as eagerly.
 * @param {string} name @param {(...inputs: Tensor[]) => Tensor[]} f @param {Tensor[]} start @param {{ third?: boolean, h?: number }} [how]
 */
async function check(name, f, start, { third = true, h = 4e-3 } = {}) {
  const like = () => start.map(({ shape, size }) => tensor(normal(size), { shape: [...shape] }));
  const [us, vs, directions] = [like(), like(), like()];
  const weights = f(...start).map(({ size }) => normal(size));
  const along = (/** @type {Tensor[]} */ gradients, /** @type {Tensor[]} */ list) =>
    gradients.map((g, i) => F.sum(F.mul(g, list[i]))).reduce((a, b) => F.add(a, b));
  const orders = (/** @type {Tensor[]} */ ...inputs) => {
    const first = along(grad(weighted(f(...inputs), weights), inputs, { createGraph: true }), us);
    const second = grad(first, inputs, { createGraph: third });
    return [first, along(second, vs), along(second, directions), ...(third ? [along(grad(along(second, vs), inputs), directions)] : [])];
  };
  const at = (/** @type {number} */ step) => start.map((x, i) => F.add(x.detach(), F.mul(directions[i], step)).detach().requiresGrad_());
  const numbers = async (/** @type {Tensor[]} */ list) => (await Promise.all(list.map((y) => y.toArray()))).map(([v]) => v);
  const [here, above, below] = await Promise.all([0, h, -h].map((step) => numbers(orders(...at(step)))));
  const slope = (/** @type {number} */ i) => (above[i] - below[i]) / (2 * h);
  const bound = (/** @type {number} */ wanted) => 2e-3 * Math.max(1, Math.abs(wanted), Math.abs(here[0]));
  assert.ok(Math.abs(here[2] - slope(0)) < bound(slope(0)), `${name}: second ${here[2]}, by differences ${slope(0)}`);
  if (third) assert.ok(Math.abs(here[3] - slope(1)) < 10 * bound(slope(1)), `${name}: third ${here[3]}, by differences ${slope(1)}`);
  assertClose(await numbers(compile(orders)(...at(0))), here, 2e-5, `${name}, compiled`);
}

for (const [name, f] of MATRICES) {
  test(`${name}: gradients of gradients, of batches and views`, async () => {
    const values = Float64Array.from({ length: 18 }, (_, i) => Math.sin(5 * i + 1) + [3, 0, 0, 0, 2.2, 0, 0, 0, 1.5][i % 9]);
    await check(name, (x) => f(turned(x)), [tensor(values, { shape: [2, 3, 3] })]);
  });
}

/** @param {...number} shape */
const random = (...shape) =>
  tensor(
    normal(shape.reduce((a, b) => a * b)).map((v) => v / 2),
    { shape },
  );

test('attention: fused heads, of groups, causal, with windows and first keys; views', async () => {
  const apart = (/** @type {Tensor} */ q, /** @type {Tensor} */ k, /** @type {Tensor} */ v) => [
    F.scaledDotProductAttention(F.transpose(q, 1, 2), k, v, { isCausal: true, enableGqa: true }),
  ];
  await check('scaledDotProductAttention', apart, [random(1, 2, 2, 32), random(1, 1, 3, 32), random(1, 1, 3, 32)], { third: false });
  const firstKey = tensor(Uint32Array.of(0, 0, 1, 1), { shape: [1, 4] });
  const rows = (/** @type {Tensor} */ qkv) => [F.attention(qkv, { heads: 2, kvHeads: 1, causal: true, window: 3, firstKey })];
  await check('attention', rows, [random(1, 4, 128)], { third: false });
});

test('recurrent layers: of several layers, in both directions, first states, with and without biases', async () => {
  const both = [3, 3].flatMap((inputs) => [random(8, inputs), random(8, 2), random(8), random(8)]);
  const lstm = (/** @type {Tensor} */ x, /** @type {Tensor} */ h, /** @type {Tensor} */ c, /** @type {Tensor[]} */ ...own) => {
    const [y, states] = F.lstm(x, [h, c], own, { bidirectional: true });
    return [y, ...states];
  };
  await check('lstm', lstm, [random(2, 2, 3), random(2, 2, 2), random(2, 2, 2), ...both]);
  const stacked = [3, 2].flatMap((inputs) => [random(6, inputs), random(6, 2)]);
  const gru = (/** @type {Tensor} */ x, /** @type {Tensor} */ h, /** @type {Tensor[]} */ ...own) =>
    F.gru(x, h, own, { numLayers: 2, bias: false });
  await check('gru', gru, [random(2, 3, 3), random(2, 2, 2), ...stacked], { third: false });
});

test('functions of several elements in types of their own, of five dimensions, broadcast', async () => {
  const f = (/** @type {Tensor} */ x, /** @type {Tensor} */ y) => {
    const wide = F.expand(F.reshape(F.exp(x), [2, 1, 1, 3, 1]), [2, 2, 1, 3, 2]);
    const other = F.permute(F.reshape(y, [1, 2, 1, 1, 2]), [0, 4, 2, 3, 1]);
    return [F.pow(wide, other), F.lerp(wide, other, F.sigmoid(other)), F.hypot(wide, other), F.logaddexp(wide, other), F.prod(x, -1)];
  };
  await check('several', f, [random(2, 3), random(4)]);
  const [x, y] = [tensor([1.5, 2], { dtype: 'f16', requiresGrad: true }), tensor([3, 2], { requiresGrad: true })];
  const [g] = grad(F.sum(F.pow(x, y)), [x], { createGraph: true });
  const [dx, dy] = grad(F.sum(g), [x, y]);
  assert.deepEqual([g.dtype, dx.dtype, dy.dtype], ['f16', 'f16', 'f32']);
  assertClose(await dx.toArray(), [9, 2], 1e-3, 'by x');
  assertClose(await dy.toArray(), [2.25 * (1 + 3 * Math.log(1.5)), 2 * (1 + 2 * Math.log(2))], 1e-3, 'by y');
});

test('activations at infinities and far from 0: finite, as PyTorch computes their first gradients', async () => {
  const x = tensor([Infinity, -Infinity, 1e30, -1e30, 0], { requiresGrad: true });
  for (const [f, wanted] of /** @type {[(x: Tensor) => Tensor, number][]} */ ([
    [F.mish, 0.6],
    [F.silu, 0.5],
    [F.gelu, 0.5],
    [(v) => F.gelu(v, { approximate: 'none' }), 0.5],
  ])) {
    const [g] = grad(F.sum(f(x)), [x], { createGraph: true });
    assertClose(await g.toArray(), [1, 0, 1, 0, wanted], 1e-6, `${f}`);
    const [h] = grad(F.sum(g), [x]);
    assert.deepEqual([...(await h.toArray())].slice(0, 4), [0, 0, 0, 0], `${f}`);
  }
});

test('equal eigenvalues and singular matrices have no second gradient: it is NaN', async () => {
  const one = tensor([2, 0, 0, 2], { shape: [2, 2] });
  const singular = tensor([1, 2, 2, 4], { shape: [2, 2] });
  for (const [f, at] of /** @type {[(x: Tensor) => Tensor, Tensor][]} */ ([
    [F.linalg.eigvalsh, one],
    [F.linalg.svdvals, one],
    [F.linalg.det, singular],
  ])) {
    const x = at.detach().requiresGrad_();
    const [g] = grad(F.sum(F.square(f(x))), [x], { createGraph: true });
    assert.ok([...(await g.toArray())].every(Number.isFinite), `${f}: first`);
    assert.ok([...(await grad(F.sum(g), [x])[0].toArray())].some(Number.isNaN), `${f}: second`);
  }
});

test('a gradient of a gradient passes checkpoint: inputs, parameters and what was made before, with the same dropout', async () => {
  const [x, w, v] = [random(3, 4), random(4, 4), random(3, 4)];
  /** Gradients, and those of what they add up to. @param {(f: (...inputs: any[]) => Tensor, ...inputs: any[]) => Tensor} through */
  const second = (through) => {
    const [a, b, c] = [x, w, v].map((t) => t.detach().requiresGrad_(true));
    const before = F.sin(c);
    const y = through((p, _, q) => F.dropout(F.tanh(F.mul(F.matmul(F.mul(p, before), b), q)), 0.4), F.mul(a, a), 'text', a);
    const gradients = grad(F.sum(F.square(y)), [a, b, c], { createGraph: true });
    const loss = gradients.reduce((sum, g) => F.add(sum, F.sum(F.square(g))), F.sum(y));
    return [...gradients, ...grad(loss, [a, b, c])];
  };
  manualSeed(3);
  const plain = second((f, ...inputs) => f(...inputs));
  for (const f of [second, compile(() => second(checkpoint))]) {
    manualSeed(3);
    for (const [i, g] of f(checkpoint).entries()) assertClose(await g.toArray(), await plain[i].toArray(), 2e-5, `gradient ${i}`);
  }
});

test('what cannot be passed is named as the program called it', () => {
  const x = random(2, 2).requiresGrad_();
  const index = tensor(Int32Array.of(0, 1), { shape: [1, 2] });
  for (const [name, f] of /** @type {[string, () => Tensor][]} */ ([
    ['scatterReduce', () => F.scatterReduce(x, 0, index, F.slice(x, 0, 0, 1), 'prod')],
    ['linearCrossEntropy', () => F.linearCrossEntropy(x, x, tensor(Int32Array.of(0, 1)))],
  ]))
    assert.throws(
      () => grad(F.sum(f()), [x], { createGraph: true }),
      new RegExp(`^UsageError: grad: the gradient of ${name} has no gradient itself`),
      name,
    );
});

test('the last of several sources of one place gets its gradients', async () => {
  const source = tensor([1, 2, 3], { requiresGrad: true });
  const y = F.scatter(tensor([0, 0]), 0, tensor(Int32Array.of(1, 1, 0)), source);
  const [g] = grad(F.sum(F.pow(y, 3)), [source], { createGraph: true });
  const [h] = grad(F.sum(g), [source]);
  assert.deepEqual([...(await g.toArray()), ...(await h.toArray())], [0, 12, 27, 0, 12, 18]);
});
