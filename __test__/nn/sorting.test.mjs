// Sorting, searching, counting, choosing and writing by index: PyTorch's results, NaN, ties and other types, long and many rows, gradients,
// eager and compiled; and functions whose result's size depends on elements.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, grad, manualSeed, ones, scope, tensor, zeros } from '../../nn/index.mjs';
import { Random } from '../lib/random.mjs';
import { assertClose, integers, normal, seed } from '../lib/random-data.mjs';
import { checkComposed } from './composed.mjs';
import { x } from './inputs.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */
/** @typedef {import('../../nn/ops/registry.mjs').Reference} Reference */

const { NaN: nan, POSITIVE_INFINITY: inf } = Number;
/** @param {any} data */
const ids = (data) => tensor(data, { dtype: 'i32' });
const all = (/** @type {Tensor[]} */ ...tensors) => Promise.all(tensors.map(values));

/** The places of numbers in their order, stable; NaN is the largest. @param {ArrayLike<number>} row @param {boolean} descending */
const orderOf = (row, descending = false) =>
  Array.from(row, (_, i) => i).sort((i, j) => {
    const [a, b] = [row[i], row[j]];
    const order = Number.isNaN(a) || Number.isNaN(b) ? Number(Number.isNaN(a)) - Number(Number.isNaN(b)) : Number(a > b) - Number(a < b);
    return (descending ? -order : order) || i - j;
  });

test('sort: stable in both directions, NaN largest, of every type', async () => {
  const t = tensor([3, nan, -inf, 1, -0, 3, 0, inf, nan, 1]);
  assert.deepEqual(await all(t.sort().values, t.sort().indices), [
    [-inf, -0, 0, 1, 1, 3, 3, inf, nan, nan],
    [2, 4, 6, 3, 9, 0, 5, 7, 1, 8],
  ]);
  assert.deepEqual(await values(t.argsort(-1, true)), [1, 8, 7, 0, 5, 3, 9, 4, 6, 2]);
  const own = [5, 3, 5, 1, 2, 2];
  for (const dtype of /** @type {const} */ (['f32', 'f16', 'bf16', 'i32', 'u32'])) {
    const { values: sorted, indices } = tensor(own, { dtype }).sort();
    assert.deepEqual([sorted.dtype, indices.dtype, ...(await all(sorted, indices))], [dtype, 'i32', [1, 2, 2, 3, 5, 5], [3, 4, 5, 1, 0, 2]]);
  }
  assert.deepEqual(await all(ids([2, -7, 0]).sort().values, tensor([1, 0xffffffff, 0], { dtype: 'u32' }).sort(0, true).values), [
    [-7, 0, 2],
    [0xffffffff, 1, 0],
  ]);
  assert.deepEqual(await tensor([true, false, true]).sort().values.toNested(), [false, true, true]);
  assert.deepEqual(await all(ones([]).sort().values, ones([]).argsort()), [[1], [0]]);
});

test('sort: rows of every length, few and many, along every dimension, the same compiled', async () => {
  const random = new Random(seed);
  for (const [rows, columns] of [
    [1, 1],
    [1, 2],
    [300, 3],
    [7, 31],
    [2, 255],
    [3, 256],
    [1, 257],
    [2, 513],
    [3, 1500],
    [1, 5000],
    [1, 100_003],
  ]) {
    const data = Float64Array.from({ length: rows * columns }, () => (random.chance(0.01) ? nan : Math.fround(random.below(columns / 2 + 2) - columns / 4)));
    const descending = random.chance(0.5);
    const t = tensor(data, { shape: [rows, columns] });
    const { values: sorted, indices } = t.sort(1, descending);
    const expected = Array.from({ length: rows }, (_, r) => orderOf(data.subarray(r * columns, (r + 1) * columns), descending));
    const what = `${rows} rows of ${columns}`;
    assert.deepEqual(await values(indices), expected.flat(), what);
    assert.deepEqual(await values(sorted), expected.flatMap((order, r) => order.map((c) => data[r * columns + c])), what);
    assert.deepEqual(await values(t.T.sort(0, descending).indices.T), expected.flat(), `${what}, a view`);
    assert.deepEqual(await values(compile((/** @type {Tensor} */ own) => own.argsort(1, descending))(t)), expected.flat(), `${what}, compiled`);
  }
});

test('gradients of sort, topk, kthvalue go to where the elements came from', async () => {
  const rows = (/** @type {(row: number[]) => number[]} */ f) => ({ shape, data }: Reference) => ({ shape, data, f });
});
