// Gathers and scatters: PyTorch's results for its function names, gradients of repeated indices, other element types, views, compiled.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { apply } from '../../nn/core/engine.mjs';
import { F, compile, grad, randn, tensor, zeros } from '../../nn/index.mjs';
import { scatterAdd as scatterAddOp } from '../../nn/ops/indexing.mjs';
import { assertClose, integers, normal } from '../lib/random-data.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */
/** @param {any} data */
const ids = (data) => tensor(data, { dtype: 'i32' });

const x = () =>
  tensor([
    [1, 2, 3],
    [4, 5, 6],
  ]);

test("gather and scatter: the examples of PyTorch's documentation", async () => {
  const t = tensor([
    [1, 2],
    [3, 4],
  ]);
  const index = ids([
    [0, 0],
    [1, 0],
  ]);
  assert.deepEqual(await t.gather(1, index).toNested(), [
    [1, 1],
    [4, 3],
  ]);
  const source = tensor([
    [1, 2, 3, 4, 5],
    [6, 7, 8, 9, 10],
  ]);
  assert.deepEqual(
    await zeros([3, 5])
      .scatter(0, ids([[0, 1, 2, 0, 0]]), source.slice(0, 0, 1))
      .toNested(),
    [
      [1, 0, 0, 4, 5],
      [0, 2, 0, 0, 0],
      [0, 0, 3, 0, 0],
    ],
  );
  assert.deepEqual(
    await zeros([2, 4])
      .add(2)
      .scatter(1, ids([[2], [3]]), 1.25)
      .toNested(),
    [
      [2, 2, 1.25, 2],
      [2, 2, 2, 1.25],
    ],
  );
  assert.deepEqual(
    await F.scatterAdd(
      zeros([3, 5]).add(1),
      0,
      ids([
        [0, 1, 2, 0, 0],
        [2, 0, 0, 1, 2],
      ]),
      zeros([2, 5]).add(1),
    ).toNested(),
    [
      [2, 2, 2, 2, 2],
      [1, 2, 1, 2, 1],
      [2, 1, 2, 1, 2],
    ],
  );
});

test('indexSelect: slices of every dimension, of every type', async () => {
  const index = ids([2, 0, 2, 1]);
  for (const dtype of /** @type {const} */ (['f32', 'f16', 'bf16', 'i32', 'u32', 'bool'])) {
    const own = dtype === 'bool' ? x().to('i32').to('bool') : x().to(dtype);
    const y = own.indexSelect(1, index);
    assert.deepEqual([y.dtype, y.shape], [dtype, [2, 4]], dtype);
    assert.deepEqual(await y.toArray().then((v) => [...v]), dtype === 'bool' ? new Array(8).fill(1) : [3, 1, 3, 2, 6, 4, 6, 5], dtype);
    assert.deepEqual(await values(own.indexSelect(0, ids([1])).squeeze(0)), dtype === 'bool' ? [1, 1, 1] : [4, 5, 6], `${dtype}, rows`);
  }
  // Words of integers stay as they are, also those that would be NaNs.
  const words = tensor(Uint32Array.of(0xffffffff, 0x7fc00001, 1));
  assert.deepEqual(await values(words.indexSelect(0, ids([1, 0, 2]))), [0x7fc00001, 0xffffffff, 1]);
});

test('indexSelect reads rows of 16 bits as they are: the whole table is not converted', () => {
  const counts = /** @type {const} */ (['f32', 'f16', 'bf16']).map((dtype) => {
    const table = randn([100, 8]).to(dtype);
    const select = compile((/** @type {Tensor} */ index) => F.indexSelect(table, 0, index));
    select(ids([2, 0, -1])).dispose();
    const [{ dispatches }] = select.explain();
    select.dispose();
    return dispatches;
  });
  assert.deepEqual(counts, [counts[0], counts[0], counts[0]]);
});

test('takeAlongDim puts rows in order, with an index for all of them', async () => {
  assert.deepEqual(await F.takeAlongDim(x(), ids([[2, 1, 0]]), 1).toNested(), [
    [3, 2, 1],
    [6, 5, 4],
  ]);
  assert.deepEqual(await F.takeAlongDim(x(), ids([[1], [0]]), 0).toNested(), [
    [4, 5, 6],
    [1, 2, 3],
  ]);
});

test('negative indices count from the end, those out of range read 0 and write nothing', async () => {
  const index = ids([
    [-1, 0],
    [-3, -4],
  ]);
  const w = x().requiresGrad_();
  assert.deepEqual(await values(w.gather(1, index)), [3, 1, 4, 0]);
  assert.deepEqual(await values(grad(w.gather(1, index).sum(), [w])[0]), [1, 0, 1, 1, 0, 0]);
  assert.deepEqual(await values(F.takeAlongDim(w, ids([[-1], [-2]]), 0)), [4, 5, 6, 1, 2, 3]);
  assert.deepEqual(await values(w.scatter(1, index, 9)), [9, 2, 9, 9, 5, 6]);
  const source = tensor([
    [10, 20],
    [30, 40],
  ]).requiresGrad_();
  const added = w.scatterAdd(1, index, source);
  assert.deepEqual(await values(added), [21, 2, 13, 34, 5, 6]);
  assert.deepEqual(await values(grad(added.sum(), [source])[0]), [1, 1, 1, 0]);
  for (const own of [w, w.detach().to('i32')]) {
    assert.deepEqual(await values(own.indexSelect(1, ids([-1, 0, -4]))), [3, 1, 0, 6, 4, 0]);
    assert.deepEqual(await values(own.indexSelect(0, ids([-1]))), [4, 5, 6]);
  }
  assert.deepEqual(await values(grad(w.indexSelect(1, ids([-1, 2, -4])).sum(), [w])[0]), [0, 0, 2, 0, 0, 2]);
  assert.deepEqual(await values(x().gather(1, tensor([[0xffffffff], [2]], { dtype: 'u32' }))), [0, 6], 'a u32 has no negative ones');
  assert.deepEqual(await values(F.oneHot(ids([-1, 1]), 2)), [0, 0, 0, 1]);
});

test('gradients: what one element got from several places is added up; of several sources the last one counts', async () => {
  const w = x().requiresGrad_();
  const dy = tensor([
    [1, 10, 100],
    [2, 20, 200],
  ]);
  const twice = ids([
    [1, 1, 0],
    [2, 2, 2],
  ]);
  assert.deepEqual(await values(grad(w.gather(1, twice).mul(dy).sum(), [w])[0]), [100, 11, 0, 0, 0, 222]);
  assert.deepEqual(
    await values(
      grad(
        w
          .indexSelect(1, ids([1, 1, 0]))
          .mul(dy)
          .sum(),
        [w],
      )[0],
    ),
    [100, 11, 0, 200, 22, 0],
  );
  assert.deepEqual(await values(grad(w.T.indexSelect(0, ids([2, 2])).sum(), [w])[0]), [0, 0, 2, 0, 0, 2]);
  const source = tensor([
    [7, 8, 9],
    [7, 8, 9],
  ]).requiresGrad_();
  const put = w.scatter(1, twice, source);
  assert.deepEqual(await put.toNested(), [
    [9, 8, 3],
    [4, 5, 9],
  ]);
  const [dw, ds] = grad(put.mul(dy).sum(), [w, source]);
  assert.deepEqual(await values(dw), [0, 0, 100, 2, 20, 0]);
  assert.deepEqual(await values(ds), [0, 10, 1, 0, 0, 200]);
  const [added] = grad(w.scatterAdd(1, twice, source).mul(dy).sum(), [source]);
  assert.deepEqual(await values(added), [10, 10, 1, 200, 200, 200]);
  assert.deepEqual(await values(grad(w.gather(1, ids([[-4], [7]])).sum(), [w])[0]), [0, 0, 0, 0, 0, 0], 'out of range');
});

test('large and full of repetitions: the same bits every time, eagerly and compiled', async () => {
  const [rows, columns, picks] = [50, 30, 400];
  const data = normal(rows * columns);
  const index = tensor(Int32Array.from(integers(rows * picks, columns)), { shape: [rows, picks] });
  const list = tensor(Int32Array.from(integers(picks, rows)));
  const weight = tensor(normal(rows * picks), { shape: [rows, picks] });
  const w = tensor(data, { shape: [rows, columns], requiresGrad: true });
  const f = (/** @type {Tensor} */ a, /** @type {Tensor} */ i, /** @type {Tensor} */ j) => {
    const y = a.gather(1, i).mul(weight).sum().add(a.indexSelect(0, j).square().sum());
    return [...grad(y, [a]), a.argmax(0), F.scatter(a, 1, i, weight)];
  };
  const first = await Promise.all(f(w, index, list).map(values));
  for (const run of [f, compile(f)]) assert.deepEqual(await Promise.all(run(w, index, list).map(values)), first);
  const expected = new Float64Array(rows * columns);
  const [i, j, v] = await Promise.all([index, list, weight].map(values));
  i.forEach((c, k) => {
    expected[Math.floor(k / picks) * columns + c] += v[k];
  });
  for (const r of j) for (let c = 0; c < columns; c++) expected[r * columns + c] += 2 * Math.fround(data[r * columns + c]);
  assertClose(first[0], expected, 1e-6, 'gradient');
});

test('many indices are sorted first: the same bits as where each element goes over all of them', async () => {
  const [size, picks] = [60, 2000];
  const list = Int32Array.from(integers(3 * picks, size + 2), (id) => (id % 3 ? id : id - size));
  const index = tensor(list, { shape: [picks, 3] });
  const source = tensor(normal(3 * picks), { shape: [picks, 3], requiresGrad: true });
  const own = tensor(normal(size * 3), { shape: [size, 3], requiresGrad: true });
  const f = (/** @type {Tensor} */ a, /** @type {Tensor} */ i, /** @type {Tensor} */ from) => {
    const y = F.scatterAdd(a, 0, i, from);
    return [y, ...grad(y.square().sum(), [a, from]), ...grad(a.gather(0, i).mul(from.detach()).sum(), [a])];
  };
  const found = await Promise.all(f(own, index, source).map(values));
  assert.deepEqual(await Promise.all(compile(f)(own, index, source).map(values)), found);
  const [y, , dSource, dGathered] = found;
  const apart = (/** @type {Tensor} */ to) => apply(scatterAddOp, [to, index, source.detach()], { dim: 0 });
  assert.deepEqual(y, await values(apart(own.detach())));
  assert.deepEqual(dGathered, await values(apart(zeros([size, 3]))));
  const wanted = [...list].map((id, j) => (id < size ? 2 * y[(id < 0 ? id + size : id) * 3 + (j % 3)] : 0));
  assert.deepEqual(dSource, wanted);
});

test('sums of halves by index are f32 inside: 1,000 small numbers, of the type of x or another', async () => {
  const count = 1000; // A sum in bf16 would stop at 32, where 0.1 is half of the last place.
  const index = zeros([count], { dtype: 'i32' });
  for (const dtype of /** @type {const} */ (['bf16', 'f16']))
    for (const source of /** @type {const} */ ([dtype, 'f32'])) {
      const from = F.full([count], 0.1, { dtype: source }).requiresGrad_();
      const x = zeros([2], { dtype });
      const each = Math.fround((await values(from))[0]);
      for (const [y, wanted] of /** @type {[Tensor, number][]} */ ([
        [F.scatterAdd(x, 0, index, from), 1000 * each],
        [F.indexAdd(x, 0, index, from), 1000 * each],
        [F.indexPut(x, [index], from, true), 1000 * each],
        [F.scatterReduce(x, 0, index, from, 'sum'), 1000 * each],
        [F.scatterReduce(x, 0, index, from, 'mean', { includeSelf: false }), each],
        [F.scatterReduce(x, 0, index, from, 'amax'), each],
      ])) {
        const [rounded] = await values(tensor([wanted]).to(dtype));
        assert.deepEqual([y.dtype, await values(y)], [dtype, [rounded, 0]]);
        const [g] = grad(y.sum(), [from]);
        assert.equal(g.dtype, source);
      }
    }
  assert.throws(
    () => F.scatterReduce(zeros([2]), 0, index, zeros([count], { dtype: 'i32' }), 'sum'),
    /^ShapeError: scatterReduce: expected a source f32 \[1000\], the shape of the index, got i32 \[1000\]/,
  );
});

test('argmax and argmin: any dimension, as class numbers', async () => {
  const y = tensor([
    [3, 9, 9],
    [4, -1, 0],
  ]);
  assert.deepEqual([y.argmax().dtype, await values(y.argmax())], ['i32', [1, 0]]);
  assert.deepEqual(await y.argmax(0, true).toNested(), [[1, 0, 0]]);
  assert.deepEqual(await values(y.argmin()), [0, 1]);
  assert.deepEqual(await values(y.T.argmin(0)), [0, 1]);
  assert.deepEqual(await values(y.to('bf16').argmax(-1)), [1, 0]);
  assert.equal(y.requiresGrad_().argmax().requiresGrad, false);
  // The largest elements, taken by their places.
  assert.deepEqual(await values(y.gather(1, y.argmax(1, true))), [9, 4]);
  assert.equal(await F.crossEntropy(y, y.argmax()).item(), await F.crossEntropy(y, ids([1, 0])).item());
});

test('what does not fit is named', () => {
  const index = ids([[0, 1]]);
  assert.throws(
    () => x().gather(0, ids([[0, 1, 0, 1]])),
    /gather: the index \[1, 4\] has more than the tensor \[2, 3\] in another dimension than 0/,
  );
  assert.throws(() => x().gather(2, index), /gather: dimension 2 is out of range for a tensor of 2 dimensions/);
  assert.throws(() => x().gather(1, x()), /gather: the index must be i32 or u32, got f32: use tensor\(…, \{ dtype: 'i32' \}\)/);
  assert.throws(() => x().gather(1, /** @type {any} */ ([0])), /gather: expected a tensor, got an array/);
  assert.throws(() => x().indexSelect(0, index), /indexSelect: the index must have one dimension, got \[1, 2\]/);
  assert.throws(
    () => x().scatterAdd(0, ids([[0, 0, 0]]), zeros([1, 2])),
    /scatterAdd: expected a source f32 \[1, 3\], the shape of the index, got f32 \[1, 2\]/,
  );
  assert.throws(
    () =>
      x()
        .to('bool')
        .scatterAdd(0, ids([[0, 0, 0]]), zeros([1, 3], { dtype: 'bool' })),
    /scatterAdd: takes numbers, got bool; convert with \.to\('i32'\)/,
  );
  assert.throws(
    () => F.takeAlongDim(x(), ids([0])),
    /takeAlongDim: the index \[1\] and the tensor \[2, 3\] must have equally many dimensions/,
  );
});

test('an index of smaller sizes than the tensor’s, and a larger source, as in PyTorch', async () => {
  const index = ids([[2, 0]]);
  const own = await values(x());
  assert.deepEqual(await F.gather(x(), 1, index).toNested(), [[own[2], own[0]]]);
  const leaf = x().requiresGrad_();
  F.gather(leaf, 1, index).sum().backward();
  assert.deepEqual(await leaf.grad?.toNested(), [
    [1, 0, 1],
    [0, 0, 0],
  ]);
  const base = F.reshape(F.arange(0, 12, 1, { dtype: 'f32' }), [2, 3, 2]);
  const places = tensor(Int32Array.of(1, 0), { shape: [2, 1, 1] });
  const source = F.full([2, 4, 3], 100);
  const expected = [100, 1, 2, 3, 4, 5, 100, 7, 8, 9, 10, 11];
  const one = (/** @type {number} */ n) => expected.map((v, i) => (v === 100 ? i * n + 100 : v));
  for (const dtype of /** @type {const} */ (['f32', 'i32', 'i64', 'f16'])) {
    const [own, from] = [base.to(dtype), source.to(dtype)];
    const numbers = async (/** @type {any} */ y) => [...(await y.to('f32').toArray())];
    assert.deepEqual(await numbers(F.scatter(own, 0, places, from)), one(0), dtype);
    assert.deepEqual(await numbers(F.scatterAdd(own, 0, places, from)), one(1), dtype);
    if (dtype !== 'i64') assert.deepEqual(await numbers(F.scatterReduce(own, 0, places, from, 'sum')), one(1), dtype);
  }
  const leaves = [base.detach().requiresGrad_(), source.detach().requiresGrad_()];
  F.scatterAdd(leaves[0], 0, places, leaves[1]).sum().backward();
  assert.deepEqual(await values(leaves[0].grad), new Array(12).fill(1));
  assert.equal(await leaves[1].grad?.sum().item(), 2);
});

test('at with index tensors is x[i, j] of PyTorch: they broadcast, numbers stand among them, and gradients are added up', async () => {
  const w = x().requiresGrad_();
  assert.deepEqual(await values(w.at(ids([0, 1, 1]), ids([2, -1, 0]))), [3, 6, 4]);
  assert.deepEqual(await w.at(ids([[0, 1]])).toNested(), [
    [
      [1, 2, 3],
      [4, 5, 6],
    ],
  ]);
  assert.deepEqual(await values(w.at(1, ids([0, 2]))), [4, 6]);
  assert.deepEqual(await w.at(ids([[1], [0]]), ids([0, 2])).toNested(), [
    [4, 6],
    [1, 3],
  ]);
  assert.deepEqual(await values(w.T.at(tensor([1n, 2n]), -1)), [5, 6], 'a view, by i64');
  assert.deepEqual(await values(w.at(ids([0, 5, 0]), ids([2, 1, 3]))), [3, 0, 0], 'out of range');
  assert.deepEqual(await values(grad(w.at(ids([0, 0, 1]), ids([1, 1, 4])).sum(), [w])[0]), [0, 2, 0, 0, 0, 0]);
  const pick = compile((/** @type {Tensor} */ own, /** @type {Tensor} */ i, /** @type {Tensor} */ j) => own.at(i, j).mul(2));
  for (const j of [0, 2]) assert.deepEqual(await values(pick(x(), ids([1, 0]), ids([j, 1]))), [2 * (4 + j), 4]);
  assert.deepEqual(
    await values(
      w
        .detach()
        .to('i64')
        .at(ids([1]), ids([0])),
    ),
    [4n],
  );
  assert.deepEqual(
    [zeros([0, 3]).at(ids([0])).shape, zeros([2, 0, 3]).at(ids([0, 1, 1])).shape],
    [
      [1, 3],
      [3, 0, 3],
    ],
  );
  assert.throws(() => w.at(tensor([true, false])), /at: how many elements a mask chooses is not known: use await x\.maskedSelect\(mask\)/);
  assert.throws(
    () => w.at(/** @type {any} */ ([0, 1])),
    /at: an index is a number or a tensor, got \[ 0, 1 \]: use tensor\(…, \{ dtype: 'i32' \}\)/,
  );
  assert.throws(() => w.at(tensor([1, 2])), /at: the index must be i32 or u32, got f32/);
  assert.throws(() => w.at(ids([0, 1]), ids([0, 1, 2])), /at: \[2\] and \[3\] do not broadcast/);
  assert.throws(() => w.at(2, ids([0])), /at: index 2 is out of range for \[2, 3\]/);
  assert.throws(() => w.at(ids([0]), 3), /at: index 3 is out of range for dimension 1 of \[2, 3\]/);
});
