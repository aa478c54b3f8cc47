// Gradients of gradients, of functions that consist of several operations: against differences of first gradients. Single operations are in
// ops.test.mjs.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, grad, tensor } from '../../nn/index.mjs';
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
