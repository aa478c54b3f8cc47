// `F.matmul` and `F.linear` by PyTorch's rules: shapes, values and gradients against loops in float64, eager and compiled; and how the
// operations' `prepare` changes operands that this device's kernels do not support.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, autocast, compile, grad, ones, tensor } from '../../nn/index.mjs';
import { apply } from '../../nn/core/engine.mjs';
import { runtime } from '../../nn/core/runtime.mjs';
import * as products from '../../nn/ops/matmul.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** @param {readonly number[]} shape */
const count = (shape) => shape.reduce((product, n) => product * n, 1);

/** All indices of a shape, row by row. @param {readonly number[]} shape @returns {number[][]} */
const indices = (shape) =>
  shape.reduce((list, n) => list.flatMap((i) => Array.from({ length: n }, (_, j) => [...i, j])), [/** @type {number[]} */ ([])]);

/**
 * The offset of an element under broadcasting: surplus leading indices are ignored, and dimensions of size 1 are repeated.
 * @param {readonly number[]} shape @param {number[]} index
 */
function place(shape, index) {
  const own = index.slice(index.length - shape.length);
  return shape.reduce((at, n, d) => at * n + (n === 1 ? 0 : own[d]), 0);
}

/**
 * `torch.matmul` as its documentation says it: the result, and the gradients of Σ c · dc.
 * @param {number[]} aShape @param {ArrayLike<number>} a @param {number[]} bShape @param {ArrayLike<number>} b @param {(i: number) => number} dc
 */
function reference(aShape, a, bShape, b, dc) {
  const [x, y] = [aShape.length === 1 ? [1, ...aShape] : aShape, bShape.length === 1 ? [...bShape, 1] : bShape];
  const [m, k, n] = [x.at(-2) ?? 1, x.at(-1) ?? 1, y.at(-1) ?? 1];
  const rank = Math.max(x.length, y.length) - 2;
  const batch = Array.from({ length: rank }, (_, d) => Math.max(x[d + x.length - 2 - rank] ?? 1, y[d + y.length - 2 - rank] ?? 1));
  const c = indices([...batch, m, n]).map(() => 0);
  const [da, db] = [new Float64Array(count(aShape)), new Float64Array(count(bShape))];
  for (const [to, index] of indices([...batch, m, n]).entries()) {
    const [lead, i, j] = [index.slice(0, -2), index.at(-2) ?? 0, index.at(-1) ?? 0];
    for (let l = 0; l < k; l++) {
      const [p, q] = [place(x, [...lead, i, l]), place(y, [...lead, l, j])];
      c[to] += a[p] * b[q];
      da[p] += dc(to) * b[q];
      db[q] += dc(to) * a[p];
    }
  }
  const shape = [...batch, ...(aShape.length === 1 ? [] : [m]), ...(bShape.length === 1 ? [] : [n])];
  return { shape, c, da, db };
}

/** Shapes of both operands, by what they are. @type {Record<string, [number[], number[]]>} */
const SHAPES = {
  'vector × vector': [[5], [5]],
  'vectors of one element': [[1], [1]],
  'vector × matrix': [[5], [5, 3]],
  'matrix × vector': [[4, 5], [5]],
  'matrix × matrix': [
    [4, 5],
    [5, 3],
  ],
  'a column by a row': [
    [4, 1],
    [1, 3],
  ],
  'a row by a column': [
    [1, 4],
    [4, 1],
  ],
  'vector × batch': [[5], [2, 5, 3]],
  'batch × vector': [[2, 4, 5], [5]],
  'vector × batch of batches': [[5], [2, 3, 5, 2]],
  'batch of batches × vector': [[2, 3, 4, 5], [5]],
  'batch × matrix': [
    [2, 4, 5],
    [5, 3],
  ],
  'matrix × batch': [
    [4, 5],
    [2, 5, 3],
  ],
  'batch × batch': [
    [2, 4, 5],
    [2, 5, 3],
  ],
  'a batch of one × batch': [
    [1, 4, 5],
    [3, 5, 2],
  ],
  'batches of other ranks': [
    [3, 4, 5],
    [2, 1, 5, 2],
  ],
  'batches that repeat each other': [
    [2, 1, 4, 5],
    [1, 3, 5, 2],
  ],
  'columns by rows in a batch': [
    [2, 4, 1],
    [2, 1, 3],
  ],
  'columns of a batch by one row': [
    [2, 4, 1],
    [1, 3],
  ],
};

/** The same elements by other strides: every other one of a transposed array. @param {number[]} shape @param {ArrayLike<number>} data */
function strided(shape, data) {
  const order = shape.map((_, d) => shape.length - 1 - d);
  const dense = tensor(Float32Array.from(data), { shape }).permute(...order);
  const pairs = F.stack([dense, dense.mul(0).add(9)], dense.ndim).reshape(...dense.shape.slice(0, -1), -1);
  return pairs.slice(-1, 0, Infinity, 2).permute(...order);
}

for (const [what, [aShape, bShape]] of Object.entries(SHAPES)) {
  test(`${what}: shape, values and gradients, as torch.matmul has them`, async () => {
    const [a, b] = [normal(count(aShape)), normal(count(bShape))];
    const dc = (/** @type {number} */ i) => 1 + (i % 3);
    const expected = reference(aShape, a, bShape, b, dc);
    const step = (/** @type {any} */ x, /** @type {any} */ y) => {
      const [own, other] = [x.detach(), y.detach()];
      own.requiresGrad = other.requiresGrad = true;
      const c = F.matmul(own, other);
      const weights = tensor(
        Float32Array.from(expected.c, (_, i) => dc(i)),
        { shape: expected.shape },
      );
      return [c, ...grad(c.mul(weights).sum(), [own, other])];
    };
    const compiled = compile((/** @type {any} */ x, /** @type {any} */ y) => F.matmul(x, y));
    for (const [how, x, y] of /** @type {[string, any, any][]} */ ([
      ['dense', tensor(a, { shape: aShape }), tensor(b, { shape: bShape })],
      ['strided', strided(aShape, a), strided(bShape, b)],
    ])) {
      const [c, da, db] = step(x, y);
      assert.deepEqual([c.shape, da.shape, db.shape], [expected.shape, aShape, bShape], how);
      assertClose(await c.toArray(), expected.c, 1e-5, `${how} ${what}`);
      assertClose(await da.toArray(), expected.da, 1e-5, `${how} ${what}: gradient of a`);
      assertClose(await db.toArray(), expected.db, 1e-5, `${how} ${what}: gradient of b`);
      const again = compiled(x, y);
      assert.deepEqual(again.shape, expected.shape);
      assertClose(await again.toArray(), expected.c, 1e-5, `compiled ${how} ${what}`);
    }
    assert.deepEqual(tensor(a, { shape: aShape }).matmul(tensor(b, { shape: bShape })).shape, expected.shape);
  });
}

test('types of products: floats are promoted to f32, and no other types are mixed, on every device', async () => {
  const [f32, bf16, i32] = [ones([2, 3]), ones([3, 2], { dtype: 'bf16' }), ones([3, 2], { dtype: 'i32' })];
  assert.equal(f32.matmul(bf16).dtype, 'f32');
  assert.equal(bf16.matmul(f32).dtype, 'f32');
  assert.equal(F.linear(f32, ones([4, 3], { dtype: 'f16' })).dtype, 'f32');
  const { kernels } = runtime();
  const { matmulSupports } = kernels;
  try {
    for (const supports of [true, false]) {
      kernels.matmulSupports = () => supports;
      const half = ones([2, 3], { dtype: 'bf16' });
      const message = /takes tensors of one type, got bf16 and i32/;
      assert.throws(() => half.matmul(i32), message);
      assert.throws(() => F.linear(half, ones([4, 3], { dtype: 'i32' })), message);
      assert.equal(i32.matmul(i32.T).dtype, 'i32');
      assert.throws(() => i32.to('bool').matmul(i32.T.to('bool')), { message: /^matmul: takes numbers, got bool/ });
    }
  } finally {
    kernels.matmulSupports = matmulSupports;
  }
});

test('halves that no matrix unit takes are multiplied as f32 and rounded once, under autocast too', async () => {
  const { kernels } = runtime();
  const { matmul, matmulSupports } = kernels;
  /** @type {string[]} */
  const types = [];
  kernels.matmul = (args) => {
    types.push(`${args.aType} ${args.m}×${args.k}×${args.n}`);
    return matmul(args);
  };
  const [a, b] = [tensor(normal(2 * 3 * 4), { shape: [2, 3, 4], dtype: 'bf16' }), tensor(normal(8), { shape: [4, 2], dtype: 'bf16' })];
  const w = b.T.contiguous();
  try {
    // Plans are kept by layouts, so that each of these has sizes of its own.
    kernels.matmulSupports = () => false;
    const wanted = await values(a.to('f32').matmul(b.to('f32')).to('bf16'));
    types.length = 0;
    const [c, y] = [a.matmul(b), F.linear(a, w)];
    assert.deepEqual([c.dtype, y.dtype], ['bf16', 'bf16']);
    assert.deepEqual(await values(c), wanted);
    assert.deepEqual(await values(y), wanted);
    const inAutocast = autocast('bf16', () => a.to('f32').matmul(b.to('f32')));
    assert.equal(inAutocast.dtype, 'bf16');
    assert.deepEqual(await values(inAutocast), wanted);
    assert.ok(
      types.every((type) => type.startsWith('f32 ')),
      types.join(),
    );
  } finally {
    Object.assign(kernels, { matmul, matmulSupports });
  }
});

test('the operation itself takes operands of any strides: it prepares them', async () => {
  const [a, b] = [normal(2 * 3 * 4 * 5), normal(5 * 2)];
  const expected = reference([2, 3, 4, 5], a, [5, 2], b, () => 1);
  const c = apply(products.matmul, [strided([2, 3, 4, 5], a), strided([5, 2], b)]);
  assert.deepEqual(c.shape, expected.shape);
  assertClose(await c.toArray(), expected.c, 1e-5, 'strided');
});
