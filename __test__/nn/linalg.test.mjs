// Linear equations, determinants and Cholesky's factor: against float64 and central differences, eager and compiled.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, grad, manualSeed, noGrad, randn, tensor, zeros } from '../../nn/index.mjs';
import { assertClose, normal } from '../lib/random-data.mjs';
import { checkComposed } from './composed.mjs';
import { of, range, x } from './inputs.mjs';
import { identity, matrices, times, turned } from './matrices.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** @typedef {import('../../nn/ops/registry.mjs').Reference} Reference */
/** @typedef {import('./matrices.mjs').Matrix} Matrix */
/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */
/** a⁻¹ b and the determinant, by elimination in float64. @param {Matrix} a @param {Matrix} b */
function eliminated(a, b) {
  const w = a.map((row, i) => [...row, ...b[i]]);
  const n = a.length;
  let det = 1;
  for (let k = 0; k < n; k++) {
    let p = k;
    for (let i = k; i < n; i++) if (Math.abs(w[i][k]) > Math.abs(w[p][k])) p = i;
    if (p !== k) [w[p], w[k], det] = [w[k], w[p], -det];
    det *= w[k][k];
    const pivot = w[k][k];
    w[k] = w[k].map((v) => v / pivot);
    for (let i = 0; i < n; i++) {
      if (i === k) continue;
      const factor = w[i][k];
      w[i] = w[i].map((v, j) => v - factor * w[k][j]);
    }
  }
  return { x: w.map((row) => row.slice(n)), det };
}
/** Well away from singular ones. @param {number[]} shape @returns {import('./inputs.mjs').Input} */
function regular(...shape) {
  const n = shape[shape.length - 1];
  return { shape, values: normal(shape.reduce((a, b) => a * b)).map((v, i) => v + (Math.floor(i / n) % n === i % n ? 3 : 0)) };
}
const tolerances = { tolerance: 2e-5, gradientTolerance: 3e-4 };

test('solve and inverse: batches, vectors, rows that must be swapped', async () => {
  for (const n of [1, 4])
    await checkComposed('inverse', {
      ...tolerances,
      call: F.inverse,
      inputs: [regular(2, n, n)],
      reference: (a) =>
        of(
          a.shape,
          matrices(a).map((m) => eliminated(m, identity(n)).x),
        ),
    });
  await checkComposed('solve', {
    ...tolerances,
    call: F.solve,
    inputs: [regular(2, 3, 3), x(2, 3, 2)],
    reference: (a, b) =>
      of(
        b.shape,
        matrices(a).map((m, i) => eliminated(m, matrices(b)[i]).x),
      ),
  });
  await checkComposed('solve of a vector', {
    ...tolerances,
    call: F.solve,
    inputs: [regular(3, 3), x(3)],
    reference: (a, b) =>
      of(
        [3],
        [
          eliminated(
            matrices(a)[0],
            [...b.data].map((v) => [v]),
          ).x,
        ],
      ),
  });
  const swapped = tensor([
    [0, 2, 0],
    [0, 0, 4],
    [1, 0, 0],
  ]);
  assert.deepEqual(await F.inverse(swapped).toNested(), [
    [0, 0, 1],
    [0.5, 0, 0],
    [0, 0.25, 0],
  ]);
  assert.ok(
    (
      await values(
        F.inverse(
          tensor([
            [1, 2],
            [2, 4],
          ]),
        ),
      )
    ).every((v) => !Number.isFinite(v)),
    'of a singular matrix',
  );
  manualSeed(2);
  const a = randn([32, 32]);
  const rest = F.matmul(a, F.inverse(a)).sub(tensor(identity(32)));
  assert.ok((await F.amax(F.abs(rest), [0, 1]).item()) < 1e-4);
  // PyTorch's rule: right sides of the matrices' shape without its last dimension are vectors.
  const [several, vectors] = [randn([2, 3, 3]), randn([2, 3])];
  const columns = F.solve(several, vectors.unsqueeze(-1));
  assert.deepEqual(await values(F.solve(several, vectors)), await values(columns));
  assert.deepEqual([...F.solve(several, vectors).shape], [2, 3]);
  assert.throws(() => F.inverse(F.zeros([2, 3])), /^ShapeError: inverse: expected square matrices \[\.\.\., n, n\], got \[2, 3\]/);
  assert.throws(() => F.solve(F.zeros([2, 2]), F.zeros([3])), /solve: matrices \[2, 2\] and right sides \[3\]/);
});

test('det, slogdet and logdet', async () => {
  await checkComposed('det', {
    ...tolerances,
    call: F.det,
    inputs: [x(2, 3, 3)],
    reference: (a) => ({ shape: [2], data: Float64Array.from(matrices(a), (m) => eliminated(m, identity(3)).det) }),
  });
  await checkComposed('slogdet', {
    ...tolerances,
    call: (a) => F.slogdet(a).logabsdet,
    inputs: [regular(2, 4, 4)],
    reference: (a) => ({ shape: [2], data: Float64Array.from(matrices(a), (m) => Math.log(Math.abs(eliminated(m, identity(4)).det))) }),
  });
  const list = tensor([
    [
      [0, 2],
      [3, 0],
    ],
    [
      [2, 0],
      [0, 3],
    ],
    [
      [1, 2],
      [2, 4],
    ],
  ]);
  assertClose(await values(F.det(list)), Float64Array.of(-6, 6, 0), 1e-6, 'det');
  const { sign, logabsdet } = F.slogdet(list);
  assert.deepEqual(
    (await values(sign)).map((v) => v || 0),
    [-1, 1, 0],
  );
  assertClose((await values(logabsdet)).slice(0, 2), Float64Array.of(Math.log(6), Math.log(6)), 1e-6, 'logarithm');
  const logs = await values(F.logdet(list));
  assert.deepEqual([logs[0], logs[2]], [NaN, -Infinity]);
  assertClose([logs[1]], Float64Array.of(Math.log(6)), 1e-6, 'logdet');
  // Without a pivot in a column that is not the last.
  for (const singular of [F.zeros([3, 3]), F.triu(F.ones([3, 3]), 1)]) {
    assert.equal(await F.det(singular).item(), 0);
    assert.deepEqual([await F.slogdet(singular).sign.item(), await F.slogdet(singular).logabsdet.item()], [0, -Infinity]);
    assert.equal(await F.logdet(singular).item(), -Infinity);
    assert.ok((await values(F.inverse(singular))).every(Number.isNaN));
    const leaf = singular.detach().requiresGrad_();
    F.det(leaf).backward();
    assert.deepEqual(await values(leaf.grad), new Array(9).fill(0));
  }
});

/** @param {Matrix} given */
function choleskyOf(given) {
  const a = given.map((row, i) => row.map((v, j) => (v + given[j][i]) / 2));
  const l = a.map((row) => row.map(() => 0));
  for (const j of range(a.length))
    for (let i = j; i < a.length; i++) {
      const rest = a[i][j] - range(j).reduce((sum, k) => sum + l[i][k] * l[j][k], 0);
      l[i][j] = i === j ? Math.sqrt(rest) : rest / l[j][j];
    }
  return l;
}
/** @param {number} batch @param {number} n @returns {import('./inputs.mjs').Input} */
function definite(batch, n) {
  const list = range(batch).map(() => {
    const m = matrices({ shape: [n, n], data: Float64Array.from(normal(n * n)) })[0];
    return times(m, turned(m)).map((row, i) => row.map((v, j) => v + (i === j ? 1 : 0)));
  });
  return { shape: [batch, n, n], values: Float64Array.from(list.flat(2)) };
}

test('Cholesky’s factor, and what is solved with it', async () => {
  await checkComposed('cholesky', {
    ...tolerances,
    call: F.cholesky,
    inputs: [definite(2, 4)],
    reference: (a) => of(a.shape, matrices(a).map(choleskyOf)),
  });
  assert.ok(
    (
      await values(
        F.cholesky(
          tensor([
            [1, 2],
            [2, 1],
          ]),
        ),
      )
    ).includes(NaN),
    'of what is not positive definite',
  );
  const { shape, values: data } = definite(1, 3);
  const a = tensor(Float64Array.from(data), { shape }).at(0);
  const b = randn([3, 2]);
  const l = F.cholesky(a);
  assertClose(await values(F.matmul(a, F.choleskySolve(b, l))), Float64Array.from(await values(b)), 2e-5, 'lower');
  assertClose(await values(F.matmul(a, F.choleskySolve(b, l.T, true))), Float64Array.from(await values(b)), 2e-5, 'upper');
  assertClose(await values(F.matmul(a, F.choleskyInverse(l))), Float64Array.of(1, 0, 0, 0, 1, 0, 0, 0, 1), 2e-5, 'inverse');
});

test('right sides may change before the backward pass, as in PyTorch; matrices are read at once', async () => {
  const [a, b] = [tensor(regular(3, 3).values).reshape(3, 3), tensor(x(3, 2).values).reshape(3, 2)];
  /** @type {Record<string, (a: Tensor, b: Tensor) => Tensor>} */
  const calls = {
    solve: F.solve,
    solveTriangular: (a, b) => F.linalg.solveTriangular(a, b, { upper: true }),
    'solveTriangular from the right': (a, b) => F.linalg.solveTriangular(a, b.T, { upper: false, left: false }),
    choleskySolve: (a, b) => F.choleskySolve(b, a),
  };
  for (const [name, call] of Object.entries(calls)) {
    const gradients = async (/** @type {boolean} */ changes) => {
      const leaves = [a, b].map((t) => t.clone().requiresGrad_(true));
      const y = call(leaves[0], leaves[1]);
      if (changes) noGrad(() => leaves[1].mul_(2));
      y.square().sum().backward();
      return Promise.all(leaves.map(({ grad }) => values(grad)));
    };
    assert.deepEqual(await gradients(true), await gradients(false), name);
  }
  // Broadcast on both sides, and a gradient of a gradient.
  const [wide, right] = [tensor(regular(2, 1, 3, 3).values).reshape(2, 1, 3, 3), tensor(x(2, 3, 2).values).reshape(2, 3, 2)];
  const leaves = [wide, right].map((t) => t.clone().requiresGrad_(true));
  const byInverse = (/** @type {Tensor} */ a, /** @type {Tensor} */ b) => F.matmul(F.inverse(a), b);
  const found = [F.solve, byInverse].map((f) => {
    const [da, db] = grad(f(leaves[0], leaves[1]).square().sum(), leaves, { createGraph: true });
    return [da, db, ...grad(F.add(da.square().sum(), db.square().sum()), leaves)];
  });
  for (const [i, g] of found[0].entries()) {
    assert.deepEqual(g.shape, leaves[i % 2].shape);
    const wanted = await values(found[1][i]);
    assertClose(await values(g), wanted, 1e-4 * Math.max(...wanted.map(Math.abs)), `gradient ${i}`);
  }
});

test('triangles, from both sides, with ones on the diagonal', async () => {
  for (const upper of [true, false])
    for (const left of [true, false])
      for (const unitriangular of [true, false])
        await checkComposed(`solveTriangular ${upper} ${left} ${unitriangular}`, {
          ...tolerances,
          call: (a, b) => F.solveTriangular(a, b, { upper, left, unitriangular }),
          inputs: [regular(3, 3), left ? x(3, 2) : x(2, 3)],
          reference: (a, b) => {
            const t = matrices(a)[0].map((row, i) => row.map((v, j) => (i === j ? (unitriangular ? 1 : v) : upper === i < j ? v : 0)));
            const right = matrices(b)[0];
            return of(b.shape, [left ? eliminated(t, right).x : turned(eliminated(turned(t), turned(right)).x)]);
          },
        });
});

test('powers and norms of matrices', async () => {
  for (const n of [0, 1, 5, -2])
    await checkComposed(`matrixPower ${n}`, {
      ...tolerances,
      call: (a) => F.matrixPower(F.mul(a, 0.5), n),
      inputs: [{ ...regular(2, 3, 3) }],
      differentiable: n !== 0,
      reference: (a) =>
        of(
          a.shape,
          matrices(a).map((m) => {
            const half = m.map((row) => row.map((v) => v / 2));
            const base = n < 0 ? eliminated(half, identity(3)).x : half;
            return range(Math.abs(n)).reduce((y) => times(y, base), identity(3));
          }),
        ),
    });
  const a = tensor([
    [1, -2, 3],
    [4, 5, -6],
  ]);
  assertClose([await F.matrixNorm(a).item()], Float64Array.of(Math.sqrt(91)), 1e-6, 'fro');
  const norms = /** @type {[number, number][]} */ ([
    [1, 9],
    [-1, 5],
    [Infinity, 15],
    [-Infinity, 6],
  ]);
  for (const [order, expected] of norms) assert.equal(await F.matrixNorm(a, order).item(), expected);
  const batch = F.stack([a, a.mul(2)], 2);
  assert.deepEqual(
    [F.matrixNorm(batch, 1, [0, 1], true).shape, await values(F.matrixNorm(batch, 1, [0, 1]))],
    [
      [1, 1, 2],
      [9, 18],
    ],
  );
  assert.throws(() => F.matrixNorm(a, 3), /order must be 'fro', 'nuc', 1, -1, 2, -2, Infinity or -Infinity, got 3/);
});

test('tensorinv and tensorsolve, with their gradients: values of PyTorch 2.11', async () => {
  const own = range(36).map((i) => (i % 7) + (i % 7 === 0 ? 9 : 0));
  const [a, b] = [tensor(own, { shape: [2, 3, 2, 3], requiresGrad: true }), tensor(range(6), { shape: [2, 3] })];
  const inverse = F.linalg.tensorinv(a);
  const known = [0.1191858, 0.0079227, 0.0072389, 0.0041618, -0.0096853, -0.0719972];
  assertClose(await values(F.slice(F.reshape(inverse, [6, 6]), 0, 0, 1)), Float64Array.from(known), 1e-5, 'tensorinv');
  assertClose(await values(F.tensordot(inverse, a)), Float64Array.from(identity(6).flat()), 1e-5, 'tensordot');
  assert.deepEqual(F.linalg.tensorinv(F.reshape(a, [6, 2, 3]), 1).shape, [2, 3, 6]);
  const solution = Float64Array.of(-0.3638414, 0.100275, 0.203412, 0.2263313, 0.2314245, 0.2325563);
  const y = F.linalg.tensorsolve(a, b);
  assertClose(await values(y), solution, 1e-5, 'tensorsolve');
  const [da] = grad(F.sum(y), [a]);
  const first = Float64Array.of(0.0116345, -0.0032065, -0.0065045, -0.0072374, -0.0074002, -0.0074364);
  assertClose(await values(F.slice(F.reshape(da, [6, 6]), 0, 0, 1)), first, 1e-4, 'the gradient');
  assertClose(await values(F.linalg.tensorsolve(F.permute(a, [2, 0, 1, 3]), b, [0, 3])), solution, 1e-5, 'moved dimensions');
  assert.throws(
    () => F.linalg.tensorinv(a, 1),
    /^ShapeError: tensorinv: the first 1 dimensions of \[2, 3, 2, 3\] must have as many elements/,
  );
  assert.throws(
    () => F.linalg.tensorsolve(a, tensor([1, 2, 3])),
    /^ShapeError: tensorsolve: \[2, 3, 2, 3\] and \[3\]: a must have b's sizes/,
  );
});

test('matrices with a dimension of 0, as PyTorch 2.11: results, and gradients of their shape', async () => {
  const { linalg } = F;
  const eye = [1, 0, 0, 0, 1, 0, 0, 0, 1];
  /** Results as [shape, values]: those without values are 0. @type {[number[], (a: Tensor) => Tensor | Tensor[], [number[], number[]?][]][]} */
  const known = [
    [[0, 0], linalg.det, [[[], [1]]]],
    [[2, 0, 0], linalg.det, [[[2], [1, 1]]]],
    [[0, 3, 3], linalg.det, [[[0]]]],
    [[2, 0, 0], (a) => Object.values(linalg.slogdet(a)), [[[2], [1, 1]], [[2]]]],
    [[0, 0], F.logdet, [[[]]]],
    ...[linalg.inv, linalg.cholesky, linalg.matrixExp, F.choleskyInverse, (/** @type {Tensor} */ a) => linalg.matrixPower(a, -1)].flatMap(
      (f) =>
        [
          [0, 0],
          [0, 3, 3],
          [2, 0, 0],
        ].map((shape) => /** @type {any} */ ([shape, f, [[shape]]])),
    ),
    [[0, 3, 3], (a) => linalg.solve(a, zeros([3, 2])), [[[0, 3, 2]]]],
    [[3, 3], (a) => linalg.solve(a, zeros([3, 0])), [[[3, 0]]]],
    [[0, 0], (a) => linalg.solve(a, zeros([0])), [[[0]]]],
    [[3, 3], (a) => linalg.solveTriangular(a, zeros([0, 3]), { upper: true, left: false }), [[[0, 3]]]],
    [[3, 3], (a) => F.choleskySolve(zeros([3, 0]), a), [[[3, 0]]]],
    [[3, 3], (a) => linalg.luSolve(a, tensor(Int32Array.of(1, 2, 3)), zeros([3, 0])), [[[3, 0]]]],
    [[2, 0, 0], (a) => Object.values(linalg.eigh(a)), [[[2, 0]], [[2, 0, 0]]]],
    [[0, 3], (a) => Object.values(linalg.qr(a)), [[[0, 0]], [[0, 3]]]],
    [[3, 0], (a) => Object.values(linalg.qr(a, 'complete')), [[[3, 3], eye], [[3, 0]]]],
    [[3, 0], (a) => Object.values(linalg.qr(a, 'r')), [[[0]], [[0, 0]]]],
    [[0, 3], (a) => Object.values(linalg.svd(a)), [[[0, 0]], [[0]], [[3, 3], eye]]],
    [[2, 3, 0], (a) => Object.values(linalg.svd(a, { fullMatrices: false })), [[[2, 3, 0]], [[2, 0]], [[2, 0, 0]]]],
    [[3, 0], (a) => Object.values(linalg.lu(a)), [[[3, 3], eye], [[3, 0]], [[0, 0]]]],
    [[2, 0, 3], (a) => Object.values(linalg.luFactor(a)), [[[2, 0, 3]], [[2, 0]]]],
    [[2, 0, 3], linalg.pinv, [[[2, 3, 0]]]],
    [[2, 3, 0], linalg.matrixRank, [[[2]]]],
    [[0, 3], (a) => Object.values(linalg.lstsq(a, zeros([0, 2]))), [[[3, 2]], [[0]], [[]], [[0]]]],
    [[3, 0], (a) => Object.values(linalg.lstsq(a, F.ones([3, 2]))), [[[0, 2]], [[2], [3, 3]], [[]], [[0]]]],
    ...[2, 'fro', 1].map(
      (order) => /** @type {any} */ ([[2, 0, 0], (/** @type {Tensor} */ a) => linalg.cond(a, /** @type {any} */ (order)), [[[2]]]]),
    ),
    ...['fro', 'nuc', 1, 2, Infinity].flatMap((order) =>
      [
        [0, 3],
        [3, 0],
      ].map((shape) => /** @type {any} */ ([shape, (/** @type {Tensor} */ a) => linalg.matrixNorm(a, /** @type {any} */ (order)), [[[]]]])),
    ),
    [[0, 2, 0], (a) => linalg.tensorinv(a, 1), [[[2, 0, 0]]]],
  ];
  for (const [shape, f, wanted] of known) {
    const a = zeros(shape).requiresGrad_();
    const results = [f(a)].flat();
    const found = await Promise.all(results.map(async (y) => [y.shape, await values(y)]));
    const what = `${f} of [${shape}]`;
    assert.deepEqual(
      found,
      wanted.map(([own, numbers]) => [own, numbers ?? new Array(own.reduce((x, y) => x * y, 1)).fill(0)]),
      what,
    );
    for (const y of results) if (y.requiresGrad) assert.deepEqual(grad(F.sum(y), [a], { retain: true })[0].shape, shape, what);
  }
  assert.throws(() => linalg.matrixNorm(zeros([3, 0]), -1), /ShapeError: matrixNorm: none of 0 elements is the smallest/);
});
