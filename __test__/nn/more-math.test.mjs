// Further functions of `torch`, of jax.nn and of complex pairs, against float64 and central differences, and the examples of their documentation.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, tensor } from '../../nn/index.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { both } from './both.mjs';
import { checkComposed } from './composed.mjs';
import { few, of, positive, range, smooth, total, x } from './inputs.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/ops/registry.mjs').Reference} Reference */
const i32 = (/** @type {any[]} */ list) => tensor(list, { dtype: 'i32' });
/** @param {Reference} t @returns {number[][]} */
const rowsOf = ({ shape: [rows, columns], data }) => range(rows).map((r) => [...data.slice(r * columns, (r + 1) * columns)]);

test('isin: numbers of each type, NaN, nothing to look in', async () => {
  assert.deepEqual(
    await both(
      F.isin,
      tensor([
        [1, 2],
        [3, 4],
      ]),
      tensor([2, 3]),
    ),
    ['bool', [2, 2], [0, 1, 1, 0]],
  );
  assert.deepEqual(
    await both((/** @type {any} */ a, /** @type {any} */ b) => F.isin(a, b, { invert: true }), i32([5, -1, 7]), i32([[7], [5]])),
    ['bool', [3], [0, 1, 0]],
  );
  assert.deepEqual(await both(F.isin, tensor([NaN, 1, Infinity]), tensor([NaN, Infinity])), ['bool', [3], [0, 0, 1]]);
  assert.deepEqual(await values(F.isin(tensor([1, 9]), F.zeros([0]))), [0, 0]);
  assert.deepEqual(await values(F.isin(tensor([1.5, 2], { dtype: 'f16' }), tensor([2], { dtype: 'f16' }))), [0, 1]);
});

test('mode: the least of the most frequent, and where it is last; its gradient goes there', async () => {
  const t = i32([
    [6, 5, 1, 0, 2, 6, 6],
    [3, 2, 2, 3, 9, 9, 1],
  ]);
  const { values: found, indices } = F.mode(t);
  assert.deepEqual(
    [await values(found), await values(indices)],
    [
      [6, 2],
      [6, 2],
    ],
  );
  const along = F.mode(t, 0, true);
  assert.deepEqual(
    [along.values.shape, await values(along.values)],
    [
      [1, 7],
      [3, 2, 1, 0, 2, 6, 1],
    ],
  );
  assert.deepEqual(await both((/** @type {any} */ a) => F.mode(a, 0).values, tensor([2, 2, 1, 1])), ['f32', [], [1]]);
  const leaf = tensor([
    [1, 3, 3],
    [2, 2, 5],
  ]).requiresGrad_();
  F.mode(leaf)
    .values.mul(tensor([2, 3]))
    .sum()
    .backward();
  assert.deepEqual(await values(leaf.grad), [0, 0, 2, 0, 3, 0]);
  assert.equal(await F.mode(tensor(4)).values.item(), 4);
  // NaN equals no other NaN, as in PyTorch.
  assert.deepEqual(await values(F.mode(tensor([NaN, NaN, 1, NaN, 1])).values), [1]);
});

test('nanmedian, aminmax, varMean, stdMean', async () => {
  const t = tensor([
    [NaN, 4, 1],
    [3, NaN, 2],
    [NaN, NaN, NaN],
    [5, 7, 6],
  ]);
  const { values: found, indices } = F.nanmedian(t, 1);
  assert.deepEqual(await values(found), [1, 2, NaN, 6]);
  assert.deepEqual((await values(indices)).with(2, -1), [2, 2, -1, 2]);
  assert.equal(await F.nanmedian(t).item(), 4);
  assert.equal(await F.nanmedian(i32([3, 1, 2])).item(), 2);
  assert.deepEqual(await both((/** @type {any} */ a) => F.nanmedian(a, 0, true).values, t), ['f32', [1, 3], [3, 4, 2]]);
  const { min, max } = F.aminmax(
    tensor([
      [1, 5],
      [-2, 3],
    ]),
  );
  assert.deepEqual([await min.item(), await max.item()], [-2, 5]);
  assert.deepEqual(
    await values(
      F.aminmax(
        tensor([
          [1, 5],
          [-2, 3],
        ]),
        { dim: 0, keepdim: true },
      ).max,
    ),
    [1, 5],
  );
  const data = tensor([
    [1, 2, 4],
    [3, 3, 6],
  ]);
  const [variance, mean] = F.varMean(data, 1, { correction: 0 });
  assertClose(await values(variance), Float64Array.of(14 / 9, 2), 1e-6, 'variance');
  assertClose(await values(mean), Float64Array.of(7 / 3, 4), 1e-6, 'mean');
  const [deviation] = F.stdMean(data, 1, { keepdim: true });
  assertClose(await values(deviation), Float64Array.of(Math.sqrt(7 / 3), Math.sqrt(3)), 1e-6, 'deviation');
});

/** Covariances with weights. @param {number[][]} rows @param {number[]} f @param {number[]} a @param {number} correction */
function covariances(rows, f, a, correction) {
  const w = f.map((v, i) => v * a[i]);
  const sum = total(w);
  const means = rows.map((row) => total(row.map((v, i) => v * w[i])) / sum);
  const mended = (total(w.map((v, i) => v * a[i])) / sum) * correction;
  return rows.flatMap((p, i) => rows.map((q, j) => total(p.map((v, k) => w[k] * (v - means[i]) * (q[k] - means[j]))) / (sum - mended)));
}

test('cov and corrcoef, with frequencies and weights', async () => {
  const one = new Array(5).fill(1);
  await checkComposed('cov', {
    call: (a) => F.cov(a),
    inputs: [x(3, 5)],
    reference: (a) => of([3, 3], covariances(rowsOf(a), one, one, 1)),
  });
  const [f, a] = [
    [1, 3, 2, 1, 1],
    [0.5, 1, 0.25, 2, 1],
  ];
  await checkComposed('cov with weights', {
    call: (v) => F.cov(v, { fweights: i32(f), aweights: tensor(a), correction: 0.5 }),
    inputs: [x(2, 5)],
    reference: (v) => of([2, 2], covariances(rowsOf(v), f, a, 0.5)),
  });
  await checkComposed('corrcoef', {
    call: F.corrcoef,
    inputs: [x(3, 6)],
    reference: (v) => {
      const c = covariances(rowsOf(v), new Array(6).fill(1), new Array(6).fill(1), 1);
      return of(
        [3, 3],
        c.map((value, i) => value / Math.sqrt(c[4 * Math.floor(i / 3)] * c[4 * (i % 3)])),
      );
    },
  });
  // PyTorch's example.
  assert.deepEqual(
    await values(
      F.cov(
        tensor([
          [0, 1, 2],
          [2, 1, 0],
        ]),
      ),
    ),
    [1, -1, -1, 1],
  );
  assert.equal(await F.cov(tensor([1, 2, 3])).item(), 1);
  assert.deepEqual(await values(F.cov(F.zeros([2, 0]))), new Array(4).fill(NaN));
});

test('renorm, logmeanexp, indexReduce', async () => {
  await checkComposed('renorm', {
    call: (a) => F.renorm(a, 2, 1, 1.5),
    inputs: [x(2, 4, 3)],
    reference: (a) => {
      const part = (/** @type {number} */ i) => Math.floor(i / 3) % 4;
      const lengths = range(4).map((p) => Math.hypot(...a.data.filter((_, i) => part(i) === p)));
      return of(
        a.shape,
        Array.from(a.data, (v, i) => (lengths[part(i)] > 1.5 ? (v * 1.5) / (lengths[part(i)] + 1e-7) : v)),
      );
    },
  });
  await checkComposed('logmeanexp', {
    call: (a) => F.logmeanexp(a, 1, true),
    inputs: [x(3, 5)],
    reference: (a) =>
      of(
        [3, 1],
        rowsOf(a).map((row) => Math.log(total(row.map(Math.exp)) / 5)),
      ),
  });
  const index = i32([0, 2, 0]);
  const data = tensor([
    [1, 2, 3],
    [4, 5, 6],
    [7, 8, 9],
  ]);
  for (const [reduce, expected] of /** @type {['prod' | 'mean' | 'amax' | 'amin', number[]][]} */ ([
    ['prod', [14, 32, 54, 2, 2, 2, 8, 10, 12]],
    ['amax', [7, 8, 9, 2, 2, 2, 4, 5, 6]],
    ['amin', [1, 2, 2, 2, 2, 2, 2, 2, 2]],
    ['mean', [10 / 3, 4, 14 / 3, 2, 2, 2, 3, 3.5, 4]],
  ])) {
    const y = F.indexReduce(F.full([3, 3], 2), 0, index, data, reduce);
    assertClose(await values(y), Float64Array.from(expected), 1e-6, reduce);
  }
});

test('nonzeroStatic and unravelIndex, which may be compiled', async () => {
  const t = tensor([
    [1, 0, 3],
    [0, 2, 0],
  ]);
  assert.deepEqual(await both((/** @type {any} */ a) => F.nonzeroStatic(a, { size: 5 }), t), [
    'i32',
    [5, 2],
    [0, 0, 0, 2, 1, 1, -1, -1, -1, -1],
  ]);
  assert.deepEqual(await both((/** @type {any} */ a) => F.nonzeroStatic(a, { size: 2, fillValue: 7 }), t), ['i32', [2, 2], [0, 0, 0, 2]]);
  const at = F.unravelIndex(i32([22, 41, 37]), [7, 6]);
  assert.deepEqual(await Promise.all(at.map(values)), [
    [3, 6, 6],
    [4, 5, 1],
  ]);
});

test('polynomials and Vandermonde matrices', async () => {
  const powers = (/** @type {Reference} */ v, /** @type {number} */ n, /** @type {boolean} */ up) =>
    of(
      [v.data.length, n],
      [...v.data].flatMap((a) => range(n).map((j) => a ** (up ? j : n - 1 - j))),
    );
  await checkComposed('vander', { call: (a) => F.vander(a), inputs: [smooth(4)], reference: (a) => powers(a, 4, false) });
  await checkComposed('vander up', { call: (a) => F.vander(a, 3, true), inputs: [smooth(4)], reference: (a) => powers(a, 3, true) });
  assert.deepEqual(await values(F.vander(tensor([2, 3]), 1)), [1, 1]);
  await checkComposed('polyval', {
    call: F.polyval,
    inputs: [x(4), x(3, 2)],
    reference: (p, a) =>
      of(
        a.shape,
        [...a.data].map((v) => [...p.data].reduce((y, c) => y * v + c, 0)),
      ),
  });
  assert.deepEqual(await values(F.polyadd(tensor([1, 2]), tensor([9, 5, 4]))), [9, 6, 6]);
  assert.deepEqual(await values(F.polysub(tensor([2, 10, -2]), tensor([3, 10, -4]))), [-1, 0, 2]);
  assert.deepEqual(await values(F.polymul(tensor([1, 2, 3]), tensor([9, 5, 1]))), [9, 23, 38, 17, 3]);
});

test('convolve and correlate: NumPy’s modes, also where the second signal is the longer', async () => {
  const full = (/** @type {number[]} */ a, /** @type {number[]} */ b) =>
    range(a.length + b.length - 1).map((k) => total(a.map((v, i) => v * (b[k - i] ?? 0))));
  for (const [n, m] of [
    [5, 3],
    [3, 5],
    [4, 4],
    [6, 2],
    [2, 6],
  ]) {
    for (const mode of /** @type {('full' | 'same' | 'valid')[]} */ (['full', 'same', 'valid'])) {
      const cut = (/** @type {number[]} */ all) => {
        const size = mode === 'full' ? all.length : mode === 'same' ? Math.max(n, m) : Math.abs(n - m) + 1;
        const start = Math.floor((all.length - size) / 2);
        return all.slice(start, start + size);
      };
      await checkComposed(`convolve ${mode}`, {
        call: (a, b) => F.convolve(a, b, mode),
        inputs: [x(n), x(m)],
        reference: (a, b) => {
          const all = cut(full([...a.data], [...b.data]));
          return of([all.length], all);
        },
      });
    }
  }
  // NumPy's examples.
  const [a, b] = [tensor([1, 2, 3]), tensor([0, 1, 0.5])];
  assert.deepEqual(await values(F.correlate(a, b)), [3.5]);
  assert.deepEqual(await values(F.correlate(a, b, 'same')), [2, 3.5, 3]);
  assert.deepEqual(await values(F.correlate(a, b, 'full')), [0.5, 2, 3.5, 3, 0]);
  assert.deepEqual(await values(F.convolve(a, b, 'same')), [1, 2.5, 4]);
  // The other way round it is the same backwards.
  const long = tensor([1, 2, 3, 4]);
  for (const mode of /** @type {('full' | 'same' | 'valid')[]} */ (['full', 'same', 'valid']))
    assert.deepEqual(await values(F.correlate(b, long, mode)), (await values(F.correlate(long, b, mode))).reverse(), mode);
});

test('gradient: NumPy’s differences, at both orders of the ends, evenly and at places', async () => {
  assert.deepEqual(await values(F.gradient(tensor([1, 2, 4, 7, 11, 16]))[0]), [1, 1.5, 2.5, 3.5, 4.5, 5]);
  assert.deepEqual(await values(F.gradient(tensor([1, 2, 4, 7, 11, 16]), { spacing: 2 })[0]), [0.5, 0.75, 1.25, 1.75, 2.25, 2.5]);
  const places = [0, 1, 1.5, 3.5, 4, 6];
  assertClose(
    await values(F.gradient(tensor([1, 2, 4, 7, 11, 16]), { spacing: tensor(places) })[0]),
    Float64Array.of(1, 3, 3.5, 6.7, 6.9, 2.5),
    1e-6,
    'places',
  );
  // A parabola's derivative is exact, at its ends with order 2.
  const squares = tensor(places.map((p) => p * p));
  assertClose(
    await values(F.gradient(squares, { spacing: tensor(places), edgeOrder: 2 })[0]),
    Float64Array.from(places, (p) => 2 * p),
    1e-5,
    'parabola',
  );
  const [down, across] = F.gradient(
    tensor([
      [1, 2, 6],
      [3, 4, 5],
    ]),
  );
  assert.deepEqual(
    [await values(down), await values(across)],
    [
      [2, 2, -1, 2, 2, -1],
      [1, 2.5, 4, 1, 1, 1],
    ],
  );
  await checkComposed('gradient', {
    call: (a) => F.gradient(a, { dim: 1, spacing: 0.5 })[0],
    inputs: [x(2, 5)],
    reference: (a) =>
      of(
        a.shape,
        rowsOf(a).flatMap((r) => range(5).map((i) => (i === 0 ? r[1] - r[0] : i === 4 ? r[4] - r[3] : (r[i + 1] - r[i - 1]) / 2) / 0.5)),
      ),
  });
});

test('unwrap: NumPy’s examples', async () => {
  assertClose(
    await values(F.unwrap(tensor([0, 0.78, 5.49, 6.28]))),
    Float64Array.of(0, 0.78, 5.49 - 2 * Math.PI, 6.28 - 2 * Math.PI),
    1e-6,
    'phase',
  );
  assert.deepEqual(await values(F.unwrap(tensor([0, 1, 2, -1, 0]), { period: 4 })), [0, 1, 2, 3, 4]);
  assert.deepEqual(await values(F.unwrap(tensor([1, 2, 3, 4, 5, 6, 1, 2, 3]), { period: 6 })), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert.deepEqual(await values(F.unwrap(tensor([2, 3, 4, 5, 2, 3, 4, 5]), { period: 4 })), [2, 3, 4, 5, 6, 7, 8, 9]);
});

test('products and parts', async () => {
  const block = F.blockDiag(
    tensor([
      [0, 1],
      [1, 0],
    ]),
    tensor([[3, 4, 5]]),
    tensor(7),
    tensor([1, 2]),
  );
  assert.deepEqual(await block.toNested(), [
    [0, 1, 0, 0, 0, 0, 0, 0],
    [1, 0, 0, 0, 0, 0, 0, 0],
    [0, 0, 3, 4, 5, 0, 0, 0],
    [0, 0, 0, 0, 0, 7, 0, 0],
    [0, 0, 0, 0, 0, 0, 1, 2],
  ]);
  await checkComposed('vecdot', {
    call: (a, b) => F.vecdot(a, b, 0),
    inputs: [x(4, 3), x(4, 3)],
    reference: (a, b) =>
      of(
        [3],
        range(3).map((c) => total(range(4).map((r) => a.data[3 * r + c] * b.data[3 * r + c]))),
      ),
  });
  await checkComposed('vdot', {
    call: F.vdot,
    inputs: [x(5), x(5)],
    reference: (a, b) => of([], [total([...a.data].map((v, i) => v * b.data[i]))]),
  });
  await checkComposed('dist', {
    call: (a, b) => F.dist(a, b, 3),
    inputs: [x(4), x(4)],
    reference: (a, b) => of([], [total([...a.data].map((v, i) => Math.abs(v - b.data[i]) ** 3)) ** (1 / 3)]),
  });
  assert.deepEqual(await F.diagflat(tensor([[1], [2]]), 1).toNested(), [
    [0, 1, 0],
    [0, 0, 2],
    [0, 0, 0],
  ]);
  assert.deepEqual(await both(F.equal, tensor([1, 2]), tensor([1, 2])), ['bool', [], [1]]);
  assert.deepEqual([await values(F.equal(tensor([1, 2]), tensor([1, 3]))), await values(F.equal(tensor([1, 2]), tensor([1])))], [[0], [0]]);
  const scale = { beta: 0.5, alpha: 2 };
  const [v, w, m] = [
    tensor([1, 2]),
    tensor([3, 4, 5]),
    tensor([
      [1, 0, 2],
      [0, 1, 1],
    ]),
  ];
  assert.deepEqual(await values(F.addmv(v, m, w, scale)), [26.5, 19]);
  assert.deepEqual(await values(F.addr(m, v, w, scale)), [6.5, 8, 11, 12, 16.5, 20.5]);
  const batch = F.stack([m, m.mul(2)]);
  assert.deepEqual(
    await values(
      F.addbmm(
        tensor([
          [1, 1],
          [1, 1],
        ]),
        batch,
        batch.transpose(1, 2),
      ),
    ),
    [26, 11, 11, 11],
  );
  assert.deepEqual(await values(F.addmv(tensor([NaN, NaN]), m, w, { beta: 0 })), [13, 9], 'an input times 0 is not read');
  assert.deepEqual(await F.columnStack([tensor([1, 2]), m]).toNested(), [
    [1, 1, 0, 2],
    [2, 0, 1, 1],
  ]);
  assert.deepEqual(await Promise.all(F.hsplit(m, 3).map(values)), [
    [1, 0],
    [0, 1],
    [2, 1],
  ]);
  assert.deepEqual(await Promise.all(F.hsplit(w, [1]).map(values)), [[3], [4, 5]]);
  assert.deepEqual(await Promise.all(F.vsplit(m, 2).map(values)), [
    [1, 0, 2],
    [0, 1, 1],
  ]);
  assert.deepEqual(
    F.dsplit(F.zeros([2, 2, 4]), 2).map((p) => p.shape),
    [
      [2, 2, 2],
      [2, 2, 2],
    ],
  );
  assert.throws(() => F.hsplit(m, 2), /^ShapeError: hsplit: 2 parts do not divide a dimension of 3/);
  assert.deepEqual(await F.combinations(tensor([1, 2, 3])).toNested(), [
    [1, 2],
    [1, 3],
    [2, 3],
  ]);
  assert.deepEqual(await F.combinations(i32([4, 5]), 2, true).toNested(), [
    [4, 4],
    [4, 5],
    [5, 5],
  ]);
  assert.deepEqual(F.combinations(tensor([1, 2]), 3).shape, [0, 3]);
  assert.throws(() => F.combinations(F.zeros([100]), 50), /combinations: 100 elements have too many combinations of 50/);
});

test('shapes, types and sequences', async () => {
  assert.deepEqual(F.broadcastShapes([2, 1], [3], []), [2, 3]);
  assert.throws(() => F.broadcastShapes([2], [3]), /^ShapeError: broadcastShapes: /);
  assert.deepEqual(
    F.broadcastTensors(F.zeros([3, 1]), F.zeros([2])).map((p) => p.shape),
    [
      [3, 2],
      [3, 2],
    ],
  );
  assert.deepEqual([F.promoteTypes('i32', 'f16'), F.promoteTypes('u8', 'i8'), F.resultType(F.zeros([1]), i32([1]))], ['f16', 'i32', 'f32']);
  assert.deepEqual(await Promise.all(F.diagIndices(3, 2).map(values)), [
    [0, 1, 2],
    [0, 1, 2],
  ]);
  assertClose(await values(F.geomspace(1, 1000, 4)), Float64Array.of(1, 10, 100, 1000), 1e-6, 'geomspace');
  assert.deepEqual(await values(F.geomspace(-8, -1, 4)), [-8, -4, -2, -1]);
  assert.deepEqual(await values(F.bartlettWindow(5, false)), [0, 0.5, 1, 0.5, 0]);
  assert.deepEqual(await values(F.bartlettWindow(4)), [0, 0.5, 1, 0.5]);
  const bessel = (/** @type {number} */ z) => total(range(40).map((k) => ((z / 2) ** k / range(k).reduce((f, i) => f * (i + 1), 1)) ** 2));
  const expected = range(5).map((i) => bessel(8 * Math.sqrt(1 - (i / 2 - 1) ** 2)) / bessel(8));
  assertClose(await values(F.kaiserWindow(5, false, 8)), Float64Array.from(expected), 1e-6, 'kaiser');
});

test('elementwise functions of jax.nn and TensorFlow.js', async () => {
  const each = (/** @type {(v: number) => number} */ f) => (/** @type {Reference} */ a) => of(a.shape, Array.from(a.data, f));
  await checkComposed('cbrt', { call: F.cbrt, inputs: [smooth(3, 5)], reference: each(Math.cbrt) });
  await checkComposed('log1mexp', { call: F.log1mexp, inputs: [positive(3, 5)], reference: each((v) => Math.log(-Math.expm1(-v))) });
  await checkComposed('squareplus', {
    call: (a) => F.squareplus(a, 2),
    inputs: [x(3, 5)],
    reference: each((v) => (v + Math.sqrt(v * v + 2)) / 2),
  });
  await checkComposed('sparsePlus', {
    call: F.sparsePlus,
    inputs: [x(3, 5)],
    reference: each((v) => (v <= -1 ? 0 : v >= 1 ? v : (v + 1) ** 2 / 4)),
  });
  await checkComposed('sparseSigmoid', {
    call: F.sparseSigmoid,
    inputs: [x(3, 5)],
    reference: each((v) => Math.min(Math.max((v + 1) / 2, 0), 1)),
  });
  await checkComposed('divNoNan', {
    call: F.divNoNan,
    inputs: [x(3, 5), { ...few(5), constant: true }],
    reference: (a, b) =>
      of(
        a.shape,
        Array.from(a.data, (v, i) => (b.data[i % 5] === 0 ? 0 : v / b.data[i % 5])),
      ),
  });
  await checkComposed('squaredDifference', {
    call: F.squaredDifference,
    inputs: [x(3, 5), x(5)],
    reference: (a, b) =>
      of(
        a.shape,
        Array.from(a.data, (v, i) => (v - b.data[i % 5]) ** 2),
      ),
  });
  const [near, ...beyond] = await values(F.log1mexp(tensor([1e-9, 0, -1])));
  assertClose([near], Float64Array.of(Math.log(1e-9)), 1e-6, 'near 0');
  assert.deepEqual(beyond, [-Infinity, NaN]);
  assert.deepEqual(await values(F.divNoNan(3, i32([0, 2]))), [0, 1.5]);
});

test('complex numbers as pairs, as the transforms have them', async () => {
  await checkComposed('complex', {
    call: F.complex,
    inputs: [x(3), x(3)],
    reference: (a, b) =>
      of(
        [3, 2],
        range(3).flatMap((i) => [a.data[i], b.data[i]]),
      ),
  });
  await checkComposed('polar', {
    call: F.polar,
    inputs: [positive(3), x(3)],
    reference: (a, b) =>
      of(
        [3, 2],
        range(3).flatMap((i) => [a.data[i] * Math.cos(b.data[i]), a.data[i] * Math.sin(b.data[i])]),
      ),
  });
  await checkComposed('conj', {
    call: F.conj,
    inputs: [x(4, 2)],
    reference: (a) =>
      of(
        [4, 2],
        Array.from(a.data, (v, i) => (i % 2 ? -v : v)),
      ),
  });
  await checkComposed('angle', {
    call: F.angle,
    inputs: [smooth(4, 2)],
    reference: (a) =>
      of(
        [4],
        rowsOf(a).map(([re, im]) => Math.atan2(im, re)),
      ),
  });
  await checkComposed('complexAbs', {
    call: F.complexAbs,
    inputs: [smooth(4, 2)],
    reference: (a) =>
      of(
        [4],
        rowsOf(a).map(([re, im]) => Math.hypot(re, im)),
      ),
  });
  await checkComposed('real', {
    call: F.real,
    inputs: [x(4, 2)],
    reference: (a) =>
      of(
        [4],
        rowsOf(a).map(([re]) => re),
      ),
  });
  await checkComposed('imag', {
    call: F.imag,
    inputs: [x(4, 2)],
    reference: (a) =>
      of(
        [4],
        rowsOf(a).map(([, im]) => im),
      ),
  });
  assert.throws(() => F.real(F.zeros([3])), /^ShapeError: real: expected pairs \[\.\.\., 2\]/);
});

test('transforms of several dimensions of real numbers, and of conjugate halves', async () => {
  const t = tensor(
    Array.from({ length: 24 }, (_, i) => Math.sin(i * i)),
    { shape: [2, 3, 4] },
  );
  const whole = F.fftn(F.complex(t, t.mul(0)));
  assertClose(await values(F.rfftn(t)), Float64Array.from(await values(whole.slice(2, 0, 3))), 1e-5, 'rfftn');
  assertClose(await values(F.irfftn(F.rfftn(t))), Float64Array.from(await values(t)), 1e-5, 'irfftn');
  // NumPy's examples of hfft.
  const signal = tensor([1, 2, 3, 4, 3, 2]);
  assertClose(await values(F.hfft(F.complex(tensor([1, 2, 3, 4]), F.zeros([4])))), Float64Array.of(15, -4, 0, -1, 0, -4), 1e-5, 'hfft');
  const spectrum = tensor([15, -4, 0, -1, 0, -4]);
  assertClose(await values(F.real(F.ihfft(spectrum))), Float64Array.of(1, 2, 3, 4), 1e-5, 'ihfft');
  const half = F.rfft(signal).mul(tensor([1, 0.5]));
  assertClose(
    await values(compile((/** @type {any} */ a) => F.ihfft(F.hfft(a, 6)))(half)),
    Float64Array.from(await values(half)),
    1e-4,
    'and back',
  );
});

test('pad: symmetric', async () => {
  assert.deepEqual(await values(F.pad(tensor([1, 2, 3]), [2, 3], 'symmetric')), [2, 1, 1, 2, 3, 3, 2, 1]);
  await checkComposed('pad symmetric', {
    call: (a) => F.pad(a, [1, 2], 'symmetric'),
    inputs: [x(2, 3)],
    reference: (a) =>
      of(
        [2, 6],
        rowsOf(a).flatMap((r) => [r[0], ...r, r[2], r[1]]),
      ),
  });
  assert.throws(() => F.pad(tensor([1, 2]), [3, 0], 'symmetric'), /mode 'symmetric' adds at most 2 elements to a dimension of 2, got 3/);
});

test('methods are the functions', async () => {
  const [v, m] = [
    tensor([3, 1, 3]),
    tensor([
      [4, 1],
      [1, 3],
    ]),
  ];
  assert.deepEqual([await v.mode().values.item(), await v.nanmedian().item(), await v.aminmax().max.item()], [3, 3, 3]);
  assert.deepEqual(await values(m.cov()), await values(F.cov(m)));
  assert.deepEqual(await values(m.corrcoef()), await values(F.corrcoef(m)));
  assert.deepEqual(await values(m.renorm(2, 0, 1)), await values(F.renorm(m, 2, 0, 1)));
  assert.deepEqual([await v.dist(v).item(), await values(v.equal(v)), v.diagflat().shape], [0, [1], [3, 3]]);
  assert.deepEqual(await values(tensor([0, 1]).bernoulli()), [0, 1]);
  for (const name of /** @type {const} */ (['det', 'logdet', 'inverse', 'cholesky']))
    assert.deepEqual(await values(m[name]()), await values(F[name](m)), name);
  assert.deepEqual([await m.slogdet().sign.item(), await values(m.matrixPower(2))], [1, await values(F.matmul(m, m))]);
});

test('functions of floats take integers as f32, and those of whole numbers leave them', async () => {
  const [ints, bytes, longs] = [tensor(Int32Array.of(-1, 0, 2)), tensor([1, 2, 3]).to('u8'), tensor(BigInt64Array.of(5n, -7n, 2n ** 40n))];
  for (const [f, expected] of /** @type {[(x: any) => any, (v: number) => number][]} */ ([
    [F.sin, Math.sin],
    [F.expm1, Math.expm1],
    [(x) => F.atan2(x, 2), (v) => Math.atan2(v, 2)],
    [(x) => F.copysign(x, -1), (v) => -Math.abs(v)],
  ]))
    for (const own of [ints, bytes]) {
      const y = f(own);
      assert.equal(y.dtype, 'f32');
      assertClose(
        await values(y),
        Float64Array.from(await values(own), (v) => expected(Number(v))),
        1e-6,
        `${f}`,
      );
    }
  assert.equal(F.atan2(ints, F.ones([3], { dtype: 'f16' })).dtype, 'f16');
  assert.deepEqual(
    await values(F.isnan(ints)),
    [false, false, false].map((v) => (v ? 1 : 0)),
  );
  for (const f of [F.floor, F.ceil, F.trunc, F.round, F.nanToNum]) {
    const y = f(longs);
    assert.deepEqual([y.dtype, await values(y)], ['i64', await values(longs)]);
  }
  assert.deepEqual([F.fmax(ints, bytes).dtype, await values(F.fmax(ints, bytes))], ['i32', [1, 2, 3]]);
  const total = F.logsumexp(tensor(BigInt64Array.of(5n, 5n)), 0);
  assertClose([await total.item()], Float64Array.of(5 + Math.LN2), 1e-6, 'logsumexp');
  assert.deepEqual(await values(F.step(tensor([-1, 0, 2, Number.NaN]), 0.5)), [0.5, 0.5, 1, Number.NaN]);
});
