// Reductions and running results against float64, with gradients, of dense tensors and views, eager and compiled; and PyTorch's results at
// edges: NaN, infinities, zeros, ties, several dimensions, other types.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, grad, ones, tensor, zeros } from '../../nn/index.mjs';
import { denseStrides, sizeOf } from '../../nn/core/layout.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';
import { checkComposed } from './composed.mjs';
import { positive, smooth, x } from './inputs.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/ops/registry.mjs').Reference} Reference */
/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */

const { NaN: nan, POSITIVE_INFINITY: inf } = Number;

/**
 * One number for the elements of each group of a reduction.
 * @param {number[]} dims @param {(group: number[]) => number} f @param {boolean} [keepdim] @returns {(x: Reference) => Reference}
 */
const over =
  (dims, f, keepdim = false) =>
  ({ shape, data }) => {
    const kept = shape.map((size, d) => (dims.includes(d) ? 1 : size));
    const strides = denseStrides(kept);
    /** @type {number[][]} */
    const groups = Array.from({ length: sizeOf(kept) }, () => []);
    const own = denseStrides(shape);
    data.forEach((value, i) => {
      const to = shape.reduce((sum, size, d) => sum + (dims.includes(d) ? 0 : (Math.floor(i / own[d]) % size) * strides[d]), 0);
      groups[to].push(value);
    });
    return { shape: keepdim ? kept : shape.filter((_, d) => !dims.includes(d)), data: Float64Array.from(groups, f) };
  };

/**
 * Rows along a dimension made into others.
 * @param {number} dim @param {(row: number[]) => number[]} f @returns {(x: Reference) => Reference}
 */
const along =
  (dim, f) =>
  ({ shape, data }) => {
    const [inner, size] = [sizeOf(shape.slice(dim + 1)), shape[dim]];
    /** @type {Float64Array | undefined} */
    let result;
    let length = 0;
    for (let o = 0; o < data.length / inner / size; o++) {
      for (let i = 0; i < inner; i++) {
        const row = f(Array.from({ length: size }, (_, k) => data[(o * size + k) * inner + i]));
        length = row.length;
        result ??= new Float64Array((data.length / size) * length);
        row.forEach((value, k) => {
          /** @type {Float64Array} */ (result)[(o * length + k) * inner + i] = value;
        });
      }
    }
    return { shape: shape.with(dim, length), data: /** @type {Float64Array} */ (result) };
  };

/** @param {(a: number, b: number) => number} f */
const running = (f) => (/** @type {number[]} */ row) => {
  /** @type {number[]} */
  const result = [];
  for (const value of row) result.push(result.length ? f(/** @type {number} */ (result.at(-1)), value) : value);
  return result;
};
const plus = (/** @type {number} */ a, /** @type {number} */ b) => a + b;
const times = (/** @type {number} */ a, /** @type {number} */ b) => a * b;
const sum = (/** @type {number[]} */ row) => row.reduce(plus, 0);
const variance = (/** @type {number[]} */ row, correction = 1) =>
  sum(row.map((v) => (v - sum(row) / row.length) ** 2)) / (row.length - correction);
const logSum = (/** @type {number[]} */ row) => {
  const most = Math.max(...row);
  return most + Math.log(sum(row.map((v) => Math.exp(v - most))));
};

test('reductions over one dimension, several and all, against float64', async () => {
  const input = { inputs: [smooth(3, 5, 7)] };
  for (const [dim, dims, keepdim] of /** @type {[any, number[], boolean][]} */ ([
    [undefined, [0, 1, 2], false],
    [1, [1], true],
    [[0, -1], [0, 2], false],
    [[2, 1], [1, 2], true],
  ])) {
    const what = `over ${dims}`;
    const check = (
      /** @type {string} */ name,
      /** @type {(t: Tensor) => Tensor} */ call,
      /** @type {(row: number[]) => number} */ f,
      /** @type {object} */ rest = {},
    ) => checkComposed(`${name} ${what}`, { ...input, call, reference: over(dims, f, keepdim), ...rest });
    await check(
      'amax',
      (t) => t.amax(dim ?? [], keepdim),
      (row) => Math.max(...row),
    );
    await check(
      'amin',
      (t) => t.amin(dim ?? [], keepdim),
      (row) => Math.min(...row),
    );
    await check(
      'std',
      (t) => t.std(dim, { keepdim }),
      (row) => Math.sqrt(variance(row)),
    );
    await check(
      'var',
      (t) => t.var(dim, { keepdim, correction: 0 }),
      (row) => variance(row, 0),
    );
    await check('logsumexp', (t) => t.logsumexp(dim, keepdim), logSum);
    await check(
      'prod',
      (t) => t.prod(dim, keepdim),
      (row) => row.reduce(times),
      { inputs: [positive(3, 5, 7)], tolerance: 2e-5, gradientTolerance: 1e-3 },
    );
    for (const p of [1, 2, 3, 0.5, -1.5, inf, -inf])
      await check(
        `norm ${p}`,
        (t) => t.norm(p, dim, keepdim),
        (row) =>
          Number.isFinite(p) ? sum(row.map((v) => Math.abs(v) ** p)) ** (1 / p) : Math[p > 0 ? 'max' : 'min'](...row.map(Math.abs)),
        { tolerance: 5e-5 },
      );
    await check(
      'countNonzero',
      (t) => t.relu().countNonzero(dim, keepdim),
      (row) => row.filter((v) => v > 0).length,
      { differentiable: false },
    );
    await check(
      'any',
      (t) => t.gt(1).any(dim, keepdim),
      (row) => Number(row.some((v) => v > 1)),
      { differentiable: false },
    );
    await check(
      'all',
      (t) => t.lt(1.5).all(dim, keepdim),
      (row) => Number(row.every((v) => v < 1.5)),
      { differentiable: false },
    );
  }
});

test('running results along every dimension, and differences', async () => {
  for (const dim of [0, 1, -1]) {
    const d = dim < 0 ? 2 : dim;
    const input = { inputs: [smooth(4, 3, 9)] };
    await checkComposed('cumsum', { ...input, call: (t) => t.cumsum(dim), reference: along(d, running(plus)) });
    await checkComposed('cumprod', { ...input, call: (t) => t.cumprod(dim), reference: along(d, running(times)), gradientTolerance: 1e-3 });
    await checkComposed('logcumsumexp', {
      ...input,
      call: (t) => t.logcumsumexp(dim),
      reference: along(
        d,
        running((a, b) => logSum([a, b])),
      ),
    });
    await checkComposed('cummax', { ...input, call: (t) => t.cummax(dim).values, reference: along(d, running(Math.max)) });
    await checkComposed('cummin', { ...input, call: (t) => t.cummin(dim).values, reference: along(d, running(Math.min)) });
    const minus = (/** @type {number[]} */ row) => row.slice(1).map((v, i) => v - row[i]);
    await checkComposed('diff', { ...input, call: (t) => t.diff(2, dim), reference: along(d, (row) => minus(minus(row))) });
    const halves = (/** @type {number[]} */ row) => row.slice(1).map((v, i) => (v + row[i]) / 4);
    await checkComposed('cumulativeTrapezoid', {
      ...input,
      call: (t) => F.cumulativeTrapezoid(t, undefined, { dx: 0.5, dim }),
      reference: along(d, (row) => running(plus)(halves(row))),
    });
  }
  const points = x(6);
  await checkComposed('trapezoid with points', {
    inputs: [x(3, 6), points],
    call: (y, p) => F.trapezoid(y, p),
    reference: (y, p) => over([1], (row) => sum(row.slice(1).map((v, i) => ((v + row[i]) / 2) * (p.data[i + 1] - p.data[i]))))(y),
  });
  assert.deepEqual(await values(tensor([1, 3, 2]).diff(1, 0, { prepend: tensor([5]), append: tensor([0, 7]) })), [-4, 2, -1, -2, 7]);
  assert.deepEqual(await tensor([true, false, false]).diff().toNested(), [true, false]);
});

test('long rows: sums of a million numbers, exact counts, and the same bits again', async () => {
  const n = 300_001;
  const data = Float64Array.from(normal(n), Math.fround);
  const t = tensor(data);
  const expected = Float64Array.from(running(plus)([...data]));
  const first = await t.cumsum(0).toArray();
  assertClose(first, expected, 1e-7, 'cumsum');
  assert.deepEqual(await t.cumsum(0).toArray(), first);
  assert.deepEqual(await compile((/** @type {Tensor} */ own) => own.cumsum(0))(t).toArray(), first);
  const mask = t.gt(0);
  const count = data.filter((v) => v > 0).length;
  assert.equal(await mask.countNonzero().item(), count);
  assert.equal(
    await mask
      .cumsum(0)
      .slice(0, n - 1)
      .item(),
    count,
  );
  const most = data.reduce((best, v, i) => (v >= data[best] ? i : best), 0);
  const { values: largest, indices } = t.cummax(0);
  assert.equal(await indices.slice(0, n - 1).item(), most);
  assert.equal(await largest.slice(0, n - 1).item(), data[most]);
  assert.equal(
    await tensor(Int32Array.from(data, (v) => v * 1e6))
      .max()
      .item(),
    Math.trunc(data[most] * 1e6),
  );
  assertClose(
    await t
      .logcumsumexp(0)
      .slice(0, n - 1)
      .toArray(),
    [Math.log(data.reduce((a, v) => a + Math.exp(v), 0))],
    1e-6,
    'logcumsumexp',
  );
  // Many rows, of which each invocation takes some.
  const rows = tensor(data.subarray(0, 300_000), { shape: [100_000, 3] });
  const sums = await rows.cumsum(1).toArray();
  assertClose(sums, along(1, running(plus))({ shape: [100_000, 3], data: data.subarray(0, 300_000) }).data, 1e-6, 'short rows');
});

test('max and min: with indices along a dimension, the first of equal ones, of integers too', async () => {
  // PyTorch's documentation of `max` and `cummax` has such examples.
  const t = tensor([
    [1, 5, 5, -2],
    [7, 3, 7, 0],
  ]).requiresGrad_();
  const { values: most, indices } = t.max(1);
  assert.deepEqual([await values(most), await values(indices), indices.dtype], [[5, 7], [1, 0], 'i32']);
  assert.deepEqual(await values(grad(most.sum(), [t])[0]), [0, 1, 0, 0, 1, 0, 0, 0], 'the chosen one gets the gradient');
  assert.deepEqual(await values(grad(t.max(), [t])[0]), [0, 0, 0, 0, 0.5, 0, 0.5, 0], 'equal ones share it');
  assert.deepEqual(await values(grad(t.amax([0, 1]), [t])[0]), [0, 0, 0, 0, 0.5, 0, 0.5, 0]);
  assert.deepEqual(await t.min(0, true).values.toNested(), [[1, 3, 5, -2]]);
  assert.deepEqual(await values(t.max(tensor([4]))), [4, 5, 5, 4, 7, 4, 7, 4]);
  for (const dtype of /** @type {const} */ (['i32', 'u32', 'f16', 'bf16'])) {
    const own = t.detach().add(3).to(dtype);
    assert.deepEqual(
      await Promise.all([own.max(), own.min(), own.max(1).values, own.min(1).indices].map(values)),
      [[10], [1], [8, 10], [3, 3]],
      dtype,
    );
  }
  assert.deepEqual(await values(tensor([-5, -7], { dtype: 'i32' }).max(0).values), [-5]);
  assert.deepEqual(await values(tensor([0xffffffff, 1], { dtype: 'u32' }).max()), [0xffffffff]);
  const long = tensor(BigInt64Array.of(3n, 2n ** 40n, 2n ** 40n, -1n)).max(0);
  assert.deepEqual([await values(long.values), await values(long.indices)], [[2n ** 40n], [1]]);
  const bytes = tensor([200, 7, 9], { dtype: 'u8' }).min(0);
  assert.deepEqual([bytes.values.dtype, await values(bytes.values), await values(bytes.indices)], ['u8', [7], [1]]);
  const bad = tensor([1, nan, 3, nan]);
  assert.deepEqual([await values(bad.max(0).values), await values(bad.max(0).indices), await values(bad.min())], [[nan], [1], [nan]]);
  assert.deepEqual([await values(ones([]).max(0).values), await values(ones([]).max())], [[1], [1]]);
});

test('cummax and cummin: the last of equal ones, NaN from there on', async () => {
  const t = tensor([1, 3, 3, 2, nan, 9, nan]);
  assert.deepEqual(await values(t.cummax(0).values), [1, 3, 3, 3, nan, nan, nan]);
  assert.deepEqual(await values(t.cummax(0).indices), [0, 1, 2, 2, 4, 4, 6]);
  assert.deepEqual(await values(t.cummin(0).indices), [0, 0, 0, 0, 4, 4, 6]);
  assert.deepEqual(await values(tensor([0, -0, 1]).cummin(0).indices), [0, 1, 1]);
  assert.deepEqual(await values(tensor([3, -4, 5], { dtype: 'i32' }).cummin(0).values), [3, -4, -4]);
});

test('products with zeros: the gradient is the product of the others', async () => {
  for (const [own, wanted] of /** @type {[number[], number[]][]} */ ([
    [
      [2, 3, 4],
      [12, 8, 6],
    ],
    [
      [2, 0, 4],
      [0, 8, 0],
    ],
    [
      [0, 3, 0],
      [0, 0, 0],
    ],
  ])) {
    const t = tensor(own, { requiresGrad: true });
    assert.deepEqual(await values(grad(t.prod(), [t])[0]), wanted);
  }
  const t = tensor([2, 0, 3, 0, 5], { requiresGrad: true });
  // d Σ cumprod: of x0 1 + x1 + x1·x2 …, of the first 0 x0 · (1 + x2 + x2·x3 …).
  assert.deepEqual(await values(grad(t.cumprod(0).sum(), [t])[0]), [1, 8, 0, 0, 0]);
});

test('infinities, NaN, and what has no gradient', async () => {
  const t = tensor(
    [
      [-inf, -inf],
      [inf, 1],
      [nan, 1],
      [1000, 1000],
    ],
    { requiresGrad: true },
  );
  const y = t.logsumexp(1);
  assert.deepEqual(
    (await values(y)).map((v) => Math.round(v * 1000) / 1000),
    [-inf, inf, nan, 1000.693],
  );
  assert.deepEqual(await values(grad(y.slice(0, 0, 1).sum(), [t])[0].slice(0, 0, 1)), [0, 0]);
  assert.deepEqual(await values(tensor([-inf, -inf, 1000, 1000, inf, nan]).logcumsumexp(0).slice(0, 0, 2)), [-inf, -inf]);
  assert.deepEqual((await values(tensor([1, inf, 2, nan, 3]).logcumsumexp(0))).slice(1), [inf, inf, nan, nan]);
  const flat = tensor([[3, 3, 3]], { requiresGrad: true });
  assert.deepEqual(await values(grad(flat.std(), [flat])[0]), [0, 0, 0]);
  const zero = tensor([0, 0], { requiresGrad: true });
  for (const p of [0.5, 1, 2, 3, inf])
    assert.deepEqual([await zero.norm(p).item(), await values(grad(zero.norm(p), [zero])[0])], [0, [0, 0]], `norm ${p}`);
  assert.equal(await tensor([0, -4, 3]).norm(0).item(), 2);
  assert.equal(await tensor([0, -4, 3]).norm('fro').item(), 5);
  assert.deepEqual(
    [
      await values(tensor([1, nan, 3]).nansum()),
      await values(
        tensor([
          [1, nan],
          [nan, nan],
        ]).nanmean(1),
      ),
    ],
    [[4], [1, nan]],
  );
  assert.deepEqual(
    [await tensor([0, nan]).any().item(), await tensor([0, nan]).all().item(), await tensor([0, nan]).countNonzero().item()],
    [1, 0, 1],
  );
});

test('types: 16-bit ones as f32, bools counted, integers wrap', async () => {
  const half = tensor([1, 2, 3], { dtype: 'bf16' });
  for (const y of [
    half.cumsum(0),
    half.prod(),
    half.std(),
    half.logsumexp(),
    half.norm(),
    half.median(),
    half.quantile(0.5),
    half.nanmean(),
  ])
    assert.equal(y.dtype, 'bf16');
  assert.deepEqual(await values(half.cumsum(0)), [1, 3, 6]);
  const bools = tensor([true, true, false]);
  assert.deepEqual([bools.cumsum(0).dtype, await values(bools.cumsum(0)), await values(bools.prod())], ['i32', [1, 2, 2], [0]]);
  assert.deepEqual(await values(tensor([2 ** 30, 2 ** 30, 1], { dtype: 'i32' }).cumsum(0)), [2 ** 30, -(2 ** 31), -(2 ** 31) + 1]);
  assert.deepEqual(await values(tensor([-3, 5], { dtype: 'i32' }).prod()), [-15]);
});

test('median and quantiles: as PyTorch has them', async () => {
  const t = tensor([
    [4, 1, 3, 2],
    [8, 5, nan, 6],
  ]).requiresGrad_();
  assert.deepEqual(await values(t.median(1).values), [2, nan]);
  assert.deepEqual(await values(t.median(1).indices), [3, 2]);
  assert.deepEqual(await values(grad(t.median(1).values.sum(), [t])[0]), [0, 0, 0, 1, 0, 0, 1, 0]);
  assert.deepEqual(
    await tensor([
      [5, 1],
      [2, 9],
    ])
      .median(0, true)
      .values.toNested(),
    [[2, 1]],
  );
  assert.equal(await tensor([7, 1, 3], { dtype: 'i32' }).median().item(), 3);
  const five = tensor([0, 1, 2, 3, 5]);
  const at = async (/** @type {number | number[]} */ q, /** @type {any} */ interpolation) => values(five.quantile(q, { interpolation }));
  assert.deepEqual(await at([0, 0.4, 0.875, 1], 'linear'), [0, Math.fround(1.6), 4, 5]);
  assert.deepEqual(await at(0.4, 'lower'), [1]);
  assert.deepEqual(await at(0.4, 'higher'), [2]);
  assert.deepEqual(await at([0.4, 0.375, 0.625], 'nearest'), [2, 2, 2]);
  assert.deepEqual(await at(0.4, 'midpoint'), [1.5]);
  const q = t.quantile([0.5, 1], { dim: 1, keepdim: true });
  assert.deepEqual(
    [q.shape, await values(q)],
    [
      [2, 2, 1],
      [2.5, nan, 4, nan],
    ],
  );
  const quarter = (/** @type {number[]} */ row) => {
    const sorted = [...row].sort((a, b) => a - b);
    const place = 0.3 * (row.length - 1);
    const low = Math.floor(place);
    return sorted[low] + (sorted[low + 1] - sorted[low]) * (place - low);
  };
  await checkComposed('quantile', { inputs: [x(3, 8, 2)], call: (own) => own.quantile(0.3, { dim: 1 }), reference: over([1], quarter) });
});

test('what does not fit is named', () => {
  const t = ones([2, 3]);
  assert.throws(() => t.amax([0, 0]), /^ShapeError: amax: dim \[0, 0\] names a dimension of \[2, 3\] twice/);
  assert.throws(() => t.norm(/** @type {any} */ ('max')), /^ArgumentError: norm: p must be a number or 'fro', got max/);
  assert.throws(() => t.quantile(1.5), /^ArgumentError: quantile: q must be a number in \[0, 1\]/);
  assert.throws(
    () => t.std(0, { correction: 2 }),
    /^ArgumentError: std: correction must be a number less than the number of elements, 2, got 2/,
  );
});

test('of no elements: sums are 0, products 1, all is true, and there is no median', async () => {
  const none = zeros([2, 0]);
  const rows = async (/** @type {Tensor} */ y) => [y.shape, await values(y)];
  for (const [y, wanted] of /** @type {[Tensor, any[]][]} */ ([
    [none.prod(1), [1, 1]],
    [none.norm(2, 1), [0, 0]],
    [none.logsumexp(1), [-inf, -inf]],
    [none.countNonzero(1), [0, 0]],
    [none.any(1), [0, 0]],
    [none.all(1), [1, 1]],
    [none.nansum(1), [0, 0]],
    [none.nanmean(1), [nan, nan]],
    [F.trapezoid(ones([2, 1])), [0, 0]],
  ]))
    assert.deepEqual(await rows(y), [[2], wanted]);
  for (const y of [none.cumsum(1), none.cumprod(0), none.cummax(1).values, none.logcumsumexp(1), none.diff(1, 1)])
    assert.deepEqual(y.shape, [2, 0]);
  assert.deepEqual([ones([3, 2]).diff(2, 1).shape, none.sort().indices.shape, none.prod(0).shape], [[3, 0], [2, 0], [0]]);
  assert.throws(() => none.median(1), /^ShapeError: median: of 0 elements there is none/);
  assert.throws(() => none.quantile(0.5), /^ShapeError: quantile: of 0 elements there is none/);
  assert.throws(() => none.max(1), /^ShapeError: max: none of 0 elements is the largest/);
  assert.throws(() => none.to('i32').min(1), /^ShapeError: min: none of 0 elements is the smallest/);
});
