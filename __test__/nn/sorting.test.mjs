// Sorting, searching, counting, choosing and writing by index: PyTorch's results, NaN, ties and other types, long and many rows, gradients,
// eager and compiled; and functions whose result's size depends on elements.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, grad, manualSeed, ones, scope, tensor, zeros } from '../../nn/index.mjs';
import { Random } from '../lib/random.mjs';
import { integers, normal, seed } from '../lib/random-data.mjs';
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
    assert.deepEqual(
      [sorted.dtype, indices.dtype, ...(await all(sorted, indices))],
      [dtype, 'i32', [1, 2, 2, 3, 5, 5], [3, 4, 5, 1, 0, 2]],
    );
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
    const data = Float64Array.from({ length: rows * columns }, () =>
      random.chance(0.01) ? nan : Math.fround(random.below(columns / 2 + 2) - columns / 4),
    );
    const descending = random.chance(0.5);
    const t = tensor(data, { shape: [rows, columns] });
    const { values: sorted, indices } = t.sort(1, descending);
    const expected = Array.from({ length: rows }, (_, r) => orderOf(data.subarray(r * columns, (r + 1) * columns), descending));
    const what = `${rows} rows of ${columns}`;
    assert.deepEqual(await values(indices), expected.flat(), what);
    assert.deepEqual(
      await values(sorted),
      expected.flatMap((order, r) => order.map((c) => data[r * columns + c])),
      what,
    );
    assert.deepEqual(await values(t.T.sort(0, descending).indices.T), expected.flat(), `${what}, a view`);
    assert.deepEqual(
      await values(compile((/** @type {Tensor} */ own) => own.argsort(1, descending))(t)),
      expected.flat(),
      `${what}, compiled`,
    );
  }
});

/** Rows along the last dimension made into others. @param {(row: number[]) => number[]} f @returns {(x: Reference) => Reference} */
const rows =
  (f) =>
  ({ shape, data }) => {
    const columns = shape[shape.length - 1];
    const made = Array.from({ length: data.length / columns }, (_, r) => f([...data.subarray(r * columns, (r + 1) * columns)]));
    return { shape: shape.with(-1, made[0].length), data: Float64Array.from(made.flat()) };
  };
const rising = (/** @type {number[]} */ row) => row.sort((a, b) => a - b);

test('gradients of sort, topk and kthvalue go to where the elements came from', async () => {
  const input = { inputs: [x(3, 11)] };
  await checkComposed('sort', { ...input, call: (t) => t.sort().values, reference: rows(rising) });
  await checkComposed('sort down', { ...input, call: (t) => t.sort(-1, true).values, reference: rows((row) => rising(row).reverse()) });
  await checkComposed('topk', { ...input, call: (t) => t.topk(4).values, reference: rows((row) => rising(row).reverse().slice(0, 4)) });
  await checkComposed('kthvalue', {
    ...input,
    call: (t) => t.kthvalue(3, 1, true).values,
    reference: rows((row) => rising(row).slice(2, 3)),
  });
  await checkComposed('sort of columns', {
    inputs: [x(4, 6)],
    call: (t) => t.T.sort(0).values.T,
    reference: rows(rising),
  });
});

test("topk and kthvalue: the examples of PyTorch's documentation, ties and NaN", async () => {
  const t = tensor([1, 2, 3, 4, 5]);
  assert.deepEqual(await all(t.topk(3).values, t.topk(3).indices), [
    [5, 4, 3],
    [4, 3, 2],
  ]);
  assert.deepEqual(await all(t.kthvalue(4).values, t.kthvalue(4).indices), [[4], [3]]);
  const table = tensor([
    [1, 2, 3],
    [4, 5, 6],
  ]);
  assert.deepEqual(
    [await table.kthvalue(2, 0, true).values.toNested(), await table.kthvalue(2, 0, true).indices.toNested()],
    [[[4, 5, 6]], [[1, 1, 1]]],
  );
  assert.deepEqual(await all(table.topk(1, 0, false).values, table.topk(1, 0, false).indices), [
    [1, 2, 3],
    [0, 0, 0],
  ]);
  const ties = tensor([2, nan, 7, 7, 2]);
  assert.deepEqual(await values(ties.topk(4).indices), [1, 2, 3, 0]);
  assert.deepEqual(await values(ties.topk(3, 0, false).indices), [0, 4, 2]);
  const k = compile((/** @type {Tensor} */ own) => own.topk(2).values);
  assert.deepEqual(await values(k(table)), [3, 2, 6, 5]);
});

test("searchsorted and bucketize: the examples of PyTorch's documentation, NaN, types", async () => {
  const sorted = tensor([
    [1, 3, 5, 7, 9],
    [2, 4, 6, 8, 10],
  ]);
  const wanted = tensor([
    [3, 6, 9],
    [3, 6, 9],
  ]);
  assert.deepEqual(await values(F.searchsorted(sorted, wanted)), [1, 3, 4, 1, 2, 4]);
  assert.deepEqual(await values(F.searchsorted(sorted, wanted, { right: true })), [2, 3, 5, 1, 3, 4]);
  assert.deepEqual(await values(F.searchsorted(sorted.at(0), wanted)), [1, 3, 4, 1, 3, 4]);
  assert.deepEqual(await values(F.bucketize(wanted, sorted.at(0), { right: true })), [2, 3, 5, 2, 3, 5]);
  assert.deepEqual(await values(F.bucketize(6, sorted.at(0))), [3]);
  assert.deepEqual(await values(F.searchsorted(ids([-3, 0, 8]), ids([[-4], [1]]))), [0, 2]);
  assert.deepEqual(await values(F.searchsorted(tensor([0, inf, nan]), tensor([nan, inf, -0]))), [2, 1, 0]);
  assert.deepEqual(await values(F.searchsorted(sorted.to('f16'), wanted)), [1, 3, 4, 1, 2, 4]);
  assert.throws(() => F.searchsorted(sorted, tensor([1])), /^ShapeError: searchsorted: the sorted tensor \[2, 5\] must have one dimension/);
  assert.throws(() => F.searchsorted(sorted, ids([[1], [2]])), /^ArgumentError: searchsorted: takes tensors of one type, got f32 and i32/);
});

test("bincount and histc: the examples of PyTorch's documentation, what lies outside, many", async () => {
  const own = ids([4, 3, 6, 3, 4]);
  const weights = tensor([0, 0.25, 0.5, 0.75, 1], { requiresGrad: true });
  assert.deepEqual(await values(await own.bincount()), [0, 0, 0, 2, 2, 0, 1]);
  const weighted = await F.bincount(own, weights);
  assert.deepEqual(await values(weighted), [0, 0, 0, 1, 1, 0, 0.5]);
  assert.deepEqual(await values(grad(weighted.mul(tensor([1, 2, 3, 4, 5, 6, 7])).sum(), [weights])[0]), [5, 4, 7, 4, 5]);
  assert.deepEqual(await values(await ids([1, -1, 0, 1]).bincount(undefined, 4)), [1, 2, 0, 0]);
  assert.deepEqual(await values(await ids([1, -1]).bincount(ones([2]), 3)), [0, 1, 0]);
  assert.deepEqual((await ids([-1]).bincount()).shape, [0]);
  assert.deepEqual(await values(await zeros([0], { dtype: 'i32' }).bincount(undefined, 2)), [0, 0]);
  assert.deepEqual(await values(zeros([0]).histc(2)), [0, 0]);
  assert.deepEqual(await values(tensor([1, 2, 1]).histc(4, 0, 3)), [0, 2, 1, 0]);
  assert.deepEqual(await values(tensor([-1, 0, 0.5, 2, 4, 5, nan]).histc(2, 0, 4)), [2, 2]);
  assert.deepEqual(await values(tensor([1, 2, 5]).histc(2)), [2, 1], 'from the least to the largest');
  assert.deepEqual(await values(tensor([3, 3], { dtype: 'bf16' }).histc(3)), [0, 2, 0], 'of no width');
  const many = Int32Array.from(integers(20_000, 50));
  const counts = new Array(50).fill(0);
  for (const id of many) counts[id]++;
  assert.deepEqual(await values(await tensor(many).bincount(undefined, 50)), counts);
});

test("unique and uniqueConsecutive: the examples of PyTorch's documentation, NaN, types", async () => {
  const { values: different, inverse, counts } = await tensor([1, 3, 2, 3]).unique();
  assert.deepEqual(await all(different, inverse, counts), [
    [1, 2, 3],
    [0, 2, 1, 2],
    [1, 1, 2],
  ]);
  const square = await F.unique(
    ids([
      [1, 3],
      [2, 3],
    ]),
  );
  assert.deepEqual(
    [square.values.dtype, await square.inverse.toNested()],
    [
      'i32',
      [
        [0, 2],
        [1, 2],
      ],
    ],
  );
  const runs = await tensor([1, 1, 2, 2, 3, 1, 1, 2], { dtype: 'bf16' }).uniqueConsecutive();
  assert.equal(runs.values.dtype, 'bf16');
  assert.deepEqual(await all(runs.values, runs.inverse, runs.counts), [
    [1, 2, 3, 1, 2],
    [0, 0, 1, 1, 2, 3, 3, 4],
    [2, 2, 1, 2, 1],
  ]);
  const odd = await tensor([nan, 0, -0, nan]).unique();
  assert.deepEqual(await all(odd.values, odd.counts), [
    [0, nan, nan],
    [2, 1, 1],
  ]);
  assert.deepEqual(await values((await ones([1]).unique()).counts), [1]);
  const data = normal(3000).map((v) => Math.round(v * 50) + 0);
  const large = await tensor(data).unique();
  const wanted = [...new Set(data)].sort((a, b) => a - b);
  assert.deepEqual(await values(large.values), wanted);
  assert.deepEqual(await values(large.values.indexSelect(0, large.inverse)), [...data]);
  assert.equal(
    (await values(large.counts)).reduce((a, b) => a + b),
    3000,
  );
});

test('nonzero and maskedSelect wait for their size, also when a scope ends before; a compiled function says why not', async () => {
  assert.deepEqual(await (await F.nonzero(tensor([1, 1, 1, 0, 1]))).toNested(), [[0], [1], [2], [4]]);
  const t = tensor([
    [
      [0, 2],
      [0, 0],
    ],
    [
      [nan, 0],
      [0, 4],
    ],
  ]).requiresGrad_();
  assert.deepEqual(await (await t.nonzero()).toNested(), [
    [0, 0, 1],
    [1, 0, 0],
    [1, 1, 1],
  ]);
  assert.deepEqual(await (await t.gt(1).nonzero()).toNested(), [
    [0, 0, 1],
    [1, 1, 1],
  ]);
  const mask = tensor([true, false]);
  const chosen = await t.maskedSelect(mask);
  assert.deepEqual(await values(chosen), [0, 0, nan, 0]);
  assert.deepEqual(await values(grad(chosen.mul(tensor([1, 2, 3, 4])).sum(), [t])[0]), [1, 0, 2, 0, 3, 0, 4, 0]);
  const half = tensor([1, 2, 3], { dtype: 'f16' });
  assert.deepEqual(await values(await half.maskedSelect(half.ne(2))), [1, 3]);
  let promise = Promise.resolve(t);
  scope(() => {
    promise = F.nonzero(t.detach().gt(3).to('i32').slice(0, 1));
  });
  assert.deepEqual(await (await promise).toNested(), [[0, 1, 1]]);
  for (const [none, shape] of /** @type {[Tensor, number[]][]} */ ([
    [await F.nonzero(zeros([2])), [0, 1]],
    [await F.nonzero(zeros([3, 0])), [0, 2]],
    [await F.nonzero(ones([])), [1, 0]],
    [await t.maskedSelect(zeros([1]).gt(0)), [0]],
    [await zeros([0]).maskedSelect(zeros([0]).gt(0)), [0]],
    [(await zeros([0]).unique()).values, [0]],
    [(await zeros([2, 0]).uniqueConsecutive()).inverse, [2, 0]],
  ]))
    assert.deepEqual(none.shape, shape);
  const nothing = await t.maskedSelect(zeros([1]).gt(0));
  assert.deepEqual(await values(grad(nothing.sum(), [t])[0]), new Array(8).fill(0));
  for (const [name, run] of /** @type {[string, (own: Tensor) => any][]} */ ([
    ['nonzero', (own) => own.nonzero()],
    ['maskedSelect', (own) => own.maskedSelect(own.gt(0))],
    ['unique', (own) => own.unique()],
    ['uniqueConsecutive', (own) => own.uniqueConsecutive()],
    ['bincount', (own) => own.to('i32').reshape(-1).bincount()],
  ])) {
    const message = new RegExp(
      `^UsageError: ${name}: the size of the result is .*, which a compiled function does not know while it is compiled: (use|call) `,
    );
    assert.throws(() => compile(run)(t.detach()), message, name);
  }
});

test('multinomial: as often as the weights say, never what has none, by the seed', async () => {
  const weights = tensor([
    [0, 1, 3, 0, 6, 0],
    [5, 0, 0, 0, 0, 5],
  ]);
  const n = 20_000;
  manualSeed(5);
  const y = weights.multinomial(n, true);
  assert.deepEqual([y.shape, y.dtype], [[2, n], 'i32']);
  const drawn = await values(y);
  manualSeed(5);
  assert.deepEqual(await values(weights.multinomial(n, true)), drawn);
  const counts = Array.from(
    { length: 12 },
    (_, i) => drawn.filter((c, j) => Math.floor(j / n) === Math.floor(i / 6) && c === i % 6).length / n,
  );
  // Five standard deviations of a share of one half are 0.018.
  [0, 0.1, 0.3, 0, 0.6, 0, 0.5, 0, 0, 0, 0, 0.5].forEach((share, i) => {
    assert.ok(Math.abs(counts[i] - share) < (share ? 0.018 : 1e-9), `${i}: ${counts[i]}`);
  });
  // Without replacement: the first ones have the shares of the weights, and none comes twice.
  const many = weights.slice(0, 0, 1).expand(n, 6).multinomial(3);
  const triples = await many.toNested();
  const firsts = [0, 0, 0, 0, 0, 0];
  for (const triple of /** @type {number[][]} */ (triples)) {
    assert.deepEqual([...triple].sort(), [1, 2, 4]);
    firsts[triple[0]] += 1 / n;
  }
  [0, 0.1, 0.3, 0, 0.6, 0].forEach((share, i) => {
    assert.ok(Math.abs(firsts[i] - share) < 0.018, `first ${i}: ${firsts[i]}`);
  });
  const draw = compile((/** @type {Tensor} */ own) => own.multinomial(50, true));
  assert.notDeepEqual(await values(draw(weights)), await values(draw(weights)), 'a compiled function draws anew');
  assert.deepEqual((await values(tensor([2, 1, 4]).multinomial(3))).sort(), [0, 1, 2]);
  // Blocks of a long row, of which the last weights are 0.
  const long = new Float32Array(3000).fill(0.1, 7, 2500);
  for (const place of await values(tensor(long).multinomial(5000, true))) assert.ok(place >= 7 && place < 2500, `${place}`);
  assert.throws(
    () => tensor([1, 2]).multinomial(3),
    /^ShapeError: multinomial: without replacement numSamples must be at most 2, of \[2\], got 3/,
  );
});

test("scatterReduce: the examples of PyTorch's documentation, and gradients of every reduction", async () => {
  const [source, index] = [tensor([1, 2, 3, 4, 5, 6]), ids([0, 1, 0, 1, 2, 1])];
  for (const [own, reduce, includeSelf, wanted] of /** @type {[number[], any, boolean, number[]][]} */ ([
    [[1, 2, 3, 4], 'sum', true, [5, 14, 8, 4]],
    [[1, 2, 3, 4], 'sum', false, [4, 12, 5, 4]],
    [[5, 4, 3, 2], 'amax', true, [5, 6, 5, 2]],
    [[5, 4, 3, 2], 'amax', false, [3, 6, 5, 2]],
    [[5, 4, 3, 2], 'amin', true, [1, 2, 3, 2]],
    [[2, 2, 2, 2], 'prod', true, [6, 96, 10, 2]],
    [[2, 2, 2, 2], 'mean', true, [2, 3.5, 3.5, 2]],
    [[2, 2, 2, 2], 'mean', false, [2, 4, 5, 2]],
  ])) {
    for (const dtype of /** @type {const} */ (['f32', 'bf16'])) {
      const y = tensor(own, { dtype }).scatterReduce(0, index, source.to(dtype), reduce, { includeSelf });
      assert.deepEqual([y.dtype, await values(y)], [dtype, wanted], `${reduce} ${includeSelf}`);
    }
  }
  const nothing = ids([-9, 1, 4, 1, -2, -3]);
  assert.deepEqual(await values(tensor([1, 2, 3, 4]).scatterReduce(0, nothing, source, 'sum')), [1, 14, 8, 4], 'from the end, and outside');
  const places = { shape: [2, 7, 3], values: Float64Array.from(integers(42, 5)), dtype: /** @type {const} */ ('i32'), constant: true };
  const combine = {
    sum: (/** @type {number[]} */ list) => list.reduce((a, b) => a + b),
    prod: (/** @type {number[]} */ list) => list.reduce((a, b) => a * b),
    mean: (/** @type {number[]} */ list) => list.reduce((a, b) => a + b) / list.length,
    amax: (/** @type {number[]} */ list) => Math.max(...list),
    amin: (/** @type {number[]} */ list) => Math.min(...list),
  };
  for (const reduce of /** @type {const} */ (['sum', 'prod', 'mean', 'amax', 'amin'])) {
    for (const includeSelf of [true, false]) {
      await checkComposed(`scatterReduce ${reduce} ${includeSelf}`, {
        inputs: [x(2, 5, 3), places, x(2, 7, 3)],
        call: (own, at, from) => own.scatterReduce(1, at, from, reduce, { includeSelf }),
        reference: (own, at, from) => ({
          shape: own.shape,
          data: own.data.map((value, i) => {
            const [o, n, inner] = [Math.floor(i / 15), Math.floor(i / 3) % 5, i % 3];
            const list = [...from.data].filter((_, j) => Math.floor(j / 21) === o && j % 3 === inner && at.data[j] === n);
            return list.length === 0 ? value : combine[reduce](includeSelf ? [value, ...list] : list);
          }),
        }),
        gradientTolerance: 1e-3,
      });
    }
  }
});

test("indexAdd, indexCopy, indexFill, maskedScatter, indexPut: the examples of PyTorch's documentation, and gradients", async () => {
  const table = tensor([
    [1, 2, 3],
    [4, 5, 6],
    [7, 8, 9],
  ]);
  const index = ids([0, 4, 2]);
  assert.deepEqual(await ones([5, 3]).indexAdd(0, index, table).toNested(), [
    [2, 3, 4],
    [1, 1, 1],
    [8, 9, 10],
    [1, 1, 1],
    [5, 6, 7],
  ]);
  assert.deepEqual((await values(ones([5, 3]).indexAdd(0, index, table, { alpha: -1 }))).slice(0, 3), [0, -1, -2]);
  assert.deepEqual(await values(zeros([5, 3]).indexCopy(0, index, table)), [1, 2, 3, 0, 0, 0, 7, 8, 9, 0, 0, 0, 4, 5, 6]);
  assert.deepEqual(await values(table.indexFill(1, ids([0, -1]), -1)), [-1, 2, -1, -1, 5, -1, -1, 8, -1]);
  const mask = tensor([
    [0, 0, 0, 1, 1],
    [1, 1, 0, 1, 1],
  ]).gt(0);
  const source = tensor([
    [0, 1, 2, 3, 4],
    [5, 6, 7, 8, 9],
  ]).requiresGrad_();
  const y = zeros([2, 5]).maskedScatter(mask, source);
  assert.deepEqual(await values(y), [0, 0, 0, 0, 1, 2, 3, 0, 4, 5]);
  assert.deepEqual(await values(grad(y.sum(), [source])[0]), [1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
  const own = zeros([3, 4]).requiresGrad_();
  const put = F.indexPut(own, [ids([0, -1, 0, 5]), ids([1, -4, 1, 0])], tensor([1, 2, 3, 4]));
  assert.deepEqual(await values(put), [0, 3, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
  assert.deepEqual(await values(grad(put.sum(), [own])[0]), [1, 0, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1]);
  assert.deepEqual((await values(own.indexPut([ids([0, 0]), ids([1, 1])], tensor([1, 3]), true))).slice(0, 3), [0, 4, 0]);
  assert.deepEqual(await values(own.indexPut([ids([[1], [2]])], tensor([7, 8, 9, 6]))), [0, 0, 0, 0, 7, 8, 9, 6, 7, 8, 9, 6], 'whole rows');
});

test('what does not fit is named', () => {
  const t = ones([2, 3]);
  assert.throws(() => t.topk(-1), /^ArgumentError: topk: k must be an integer of at least 0, got -1/);
  assert.throws(() => t.topk(4), /^ShapeError: topk: k must be at most the size of the dimension, 3 of \[2, 3\], got 4/);
  assert.throws(() => t.sort(0, /** @type {any} */ (1)), /^ArgumentError: sort: descending must be true or false, got 1/);
  assert.throws(
    () => t.scatterReduce(0, zeros([2, 3], { dtype: 'i32' }), t, /** @type {any} */ ('max')),
    /^ArgumentError: scatterReduce: reduce must be one of sum, prod, mean, amax, amin, got max/,
  );
  assert.throws(() => t.indexFill(0, zeros([1]), 1), /^ArgumentError: indexFill: the index must be i32 or u32, got f32/);
  assert.throws(() => t.maskedScatter(t, t), /^ArgumentError: maskedScatter: the mask must be bool, got f32/);
});

test('bytes and i64 are selected and counted; k may be 0', async () => {
  const bytes = tensor([3, 1, 3, 200]).to('u8');
  const found = await F.unique(bytes);
  assert.deepEqual([found.values.dtype, await values(found.values), await values(found.counts)], ['u8', [1, 3, 200], [1, 2, 1]]);
  const chosen = await F.maskedSelect(bytes, bytes.eq(3));
  assert.deepEqual([chosen.dtype, await values(chosen)], ['u8', [3, 3]]);
  const long = await F.maskedSelect(tensor(BigInt64Array.of(2n ** 40n, 1n)), tensor([true, false]));
  assert.deepEqual([long.dtype, await values(long)], ['i64', [2n ** 40n]]);
  const none = F.topk(F.ones([2, 3]), 0, 0);
  assert.deepEqual([none.values.shape, none.indices.shape, none.indices.dtype].map(String), ['0,3', '0,3', 'i32']);
});
