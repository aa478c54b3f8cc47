// Factors of matrices and what is made of them: against float64 and central differences, eager and compiled, by what holds of factors, and at edges.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, autocast, compile, manualSeed, ones, randn, tensor, zeros } from '../../nn/index.mjs';
import { assertClose } from '../lib/random-data.mjs';
import { checkComposed } from './composed.mjs';
import { of, range, x } from './inputs.mjs';
import { identity, matrices, times, turned } from './matrices.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

const { linalg } = F;
/** @typedef {import('../../nn/ops/registry.mjs').Reference} Reference */
/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */
/** @typedef {import('./matrices.mjs').Matrix} Matrix */
/** Eigenvalues of a symmetric matrix, ascending, with squares of their vectors' elements as rows: Jacobi in float64. @param {Matrix} given */
function eigen(given) {
  const n = given.length;
  let a = given.map((row) => [...row]);
  let v = identity(n);
  for (let sweep = 0; sweep < 20; sweep++)
    for (let p = 0; p < n; p++)
      for (let q = p + 1; q < n; q++) {
        const angle = Math.atan2(2 * a[p][q], a[q][q] - a[p][p]) / 2;
        const j = identity(n);
        [j[p][p], j[q][q], j[p][q], j[q][p]] = [Math.cos(angle), Math.cos(angle), Math.sin(angle), -Math.sin(angle)];
        a = times(turned(j), times(a, j));
        v = times(v, j);
      }
  const order = range(n).sort((i, j) => a[i][i] - a[j][j]);
  return { values: order.map((i) => a[i][i]), squares: order.map((i) => v.map((row) => row[i] ** 2)) };
}
/** Singular values, descending. @param {Matrix} a */
const singular = (a) => {
  const k = Math.min(a.length, a[0].length);
  const { values } = eigen(times(turned(a), a));
  return values
    .reverse()
    .slice(0, k)
    .map((v) => Math.sqrt(Math.max(v, 0)));
};
/** r with a positive diagonal. @param {Matrix} a */
function triangleOf(a) {
  const k = Math.min(a.length, a[0].length);
  const columns = turned(a);
  /** @type {Matrix} */
  const q = [];
  for (const column of columns.slice(0, k)) {
    const rest = q.reduce((own, u) => own.map((v, i) => v - u[i] * column.reduce((sum, w, j) => sum + w * u[j], 0)), column);
    const size = Math.hypot(...rest);
    q.push(rest.map((v) => v / size));
  }
  return { q, r: times(q, turned(columns)) };
}
/** a⁻¹ b in float64. @param {Matrix} a @param {Matrix} b */
function solution(a, b) {
  let w = a.map((row, i) => [...row, ...b[i]]);
  for (const k of range(a.length)) {
    const p = range(a.length)
      .slice(k)
      .reduce((most, i) => (Math.abs(w[i][k]) > Math.abs(w[most][k]) ? i : most), k);
    [w[k], w[p]] = [w[p], w[k]];
    const pivot = w[k].map((v) => v / w[k][k]);
    w = w.map((row, i) => (i === k ? pivot : row.map((v, j) => v - row[k] * pivot[j])));
  }
  return w.map((row) => row.slice(a.length));
}
/** @param {Matrix} a */
const pseudoinverse = (a) =>
  a.length >= a[0].length ? solution(times(turned(a), a), turned(a)) : turned(solution(times(a, turned(a)), a));
const SIZES = /** @type {const} */ ([
  [4, 3],
  [3, 3],
  [2, 4],
]);
const tolerances = { tolerance: 2e-5, gradientTolerance: 2e-3 };
const transposed = (/** @type {Tensor} */ a) => F.transpose(a, -2, -1);

test('qr: r, and what is the same with any signs of q', async () => {
  for (const [m, n] of SIZES) {
    await checkComposed(`r of ${m} × ${n}`, {
      ...tolerances,
      call: (a) => F.square(linalg.qr(a).r),
      inputs: [x(2, m, n)],
      reference: (a) =>
        of(
          [2, Math.min(m, n), n],
          matrices(a).map((own) => triangleOf(own).r.map((row) => row.map((v) => v * v))),
        ),
    });
    await checkComposed(`q of ${m} × ${n}`, {
      ...tolerances,
      call: (a) => F.square(linalg.qr(a).q),
      inputs: [x(1, m, n)],
      reference: (a) =>
        of(
          [1, m, Math.min(m, n)],
          matrices(a).map((own) => turned(triangleOf(own).q).map((row) => row.map((v) => v * v))),
        ),
    });
  }
});

test('singular values, and vectors by their squares', async () => {
  for (const [m, n] of SIZES.slice(1))
    await checkComposed(`svdvals of ${m} × ${n}`, {
      ...tolerances,
      call: linalg.svdvals,
      inputs: [x(2, m, n)],
      reference: (a) => of([2, Math.min(m, n)], matrices(a).map(singular)),
    });
  for (const side of /** @type {const} */ (['u', 'vh']))
    await checkComposed(`squares of ${side}`, {
      ...tolerances,
      call: (a) =>
        F.square(side === 'vh' ? linalg.svd(a, { fullMatrices: false }).vh : transposed(linalg.svd(a, { fullMatrices: false }).u)),
      inputs: [x(3, 3)],
      reference: (a) => {
        const [own] = matrices(a);
        return of([3, 3], eigen(side === 'vh' ? times(turned(own), own) : times(own, turned(own))).squares.reverse());
      },
    });
});

test('svd and eigh of rows of several orders and of many equal eigenvalues are found as exactly', async () => {
  manualSeed(5);
  const n = 32;
  const sizes = tensor(
    range(n).map((i) => 10 ** ((-3 * i) / n)),
    { shape: [n, 1] },
  );
  const signs = tensor(
    range(n * n).map((i) => ((Math.floor(i / n) & (i % n)).toString(2).replaceAll('0', '').length % 2 ? -1 : 1)),
    { shape: [n, n] },
  );
  const a = randn([n, n]).mul(sizes);
  const { u, s, vh } = linalg.svd(a);
  const { eigenvalues, eigenvectors } = linalg.eigh(signs);
  assertClose(await values(u.mul(s.unsqueeze(-2)).matmul(vh)), await values(a), 1e-5, 'svd');
  const made = eigenvectors.mul(eigenvalues.unsqueeze(-2)).matmul(eigenvectors.transpose(0, 1));
  assertClose(await values(made), await values(signs), 3e-5, 'eigh');
});

test('singular values whose squares have no reciprocal have gradients', async () => {
  const a = tensor([3e-20, 0, 0, 2e-20], { shape: [2, 2] }).requiresGrad_();
  F.sum(linalg.svdvals(a)).backward();
  assertClose(await values(a.grad), [1, 0, 0, 1], 1e-5, 'svdvals');
});

test('eigenvalues of symmetric matrices, and vectors by their squares', async () => {
  const symmetric = (/** @type {Matrix} */ a) => a.map((row, i) => row.map((v, j) => v + a[j][i]));
  await checkComposed('eigvalsh', {
    ...tolerances,
    call: (a) => linalg.eigvalsh(F.add(a, transposed(a))),
    inputs: [x(2, 4, 4)],
    reference: (a) =>
      of(
        [2, 4],
        matrices(a).map((own) => eigen(symmetric(own)).values),
      ),
  });
  await checkComposed('vectors', {
    ...tolerances,
    call: (a) => F.square(transposed(linalg.eigh(F.add(a, transposed(a))).eigenvectors)),
    inputs: [x(3, 3)],
    reference: (a) =>
      of(
        [3, 3],
        matrices(a).map((own) => eigen(symmetric(own)).squares),
      ),
  });
  // The triangle that is not read may be anything.
  const read = tensor([
    [1, 9],
    [2, 1],
  ]);
  assertClose(await values(linalg.eigvalsh(read)), Float64Array.of(-1, 3), 1e-6, 'lower');
  assertClose(await values(linalg.eigvalsh(read, 'U')), Float64Array.of(-8, 10), 1e-6, 'upper');
});

/** Both factors in one, in float64. @param {Matrix} a */
function eliminated(a) {
  const w = a.map((row) => [...row]);
  for (const k of range(Math.min(a.length, a[0].length))) {
    const p = range(w.length)
      .slice(k)
      .reduce((most, i) => (Math.abs(w[i][k]) > Math.abs(w[most][k]) ? i : most), k);
    [w[k], w[p]] = [w[p], w[k]];
    for (const row of w.slice(k + 1)) {
      row[k] /= w[k][k];
      for (const j of range(row.length).slice(k + 1)) row[j] -= row[k] * w[k][j];
    }
  }
  return w;
}

test('lu: factors, LAPACK’s form, and what is solved with it', async () => {
  for (const [m, n] of SIZES) {
    await checkComposed(`luFactor of ${m} × ${n}`, {
      ...tolerances,
      call: (a) => linalg.luFactor(a).lu,
      inputs: [x(2, m, n)],
      reference: (a) => of([2, m, n], matrices(a).map(eliminated)),
    });
    const a = randn([2, m, n]);
    const { p, l, u } = linalg.lu(a);
    assertClose(await values(F.matmul(F.matmul(p, l), u)), Float64Array.from(await values(a)), 1e-6, 'p l u');
  }
  // LAPACK's example of swaps: row 0 with 1, then 1 with 2.
  const { pivots } = linalg.luFactor(
    tensor([
      [1, 2, 0],
      [4, 0, 0],
      [2, 9, 1],
    ]),
  );
  assert.deepEqual([pivots.dtype, await values(pivots)], ['i32', [2, 3, 3]]);
  for (const left of [true, false])
    for (const adjoint of [true, false])
      await checkComposed(`luSolve ${left} ${adjoint}`, {
        ...tolerances,
        call: (a, b) => {
          const { lu, pivots } = linalg.luFactor(a);
          return linalg.luSolve(lu, pivots, b, { left, adjoint });
        },
        inputs: [x(1, 3, 3), left ? x(1, 3, 2) : x(1, 2, 3)],
        reference: (a, b) => {
          const [own, right] = [matrices(a)[0], matrices(b)[0]];
          const matrix = adjoint === left ? turned(own) : own;
          return of(b.shape, [left ? solution(matrix, right) : turned(solution(matrix, turned(right)))]);
        },
      });
});

test('pseudoinverse, least squares, rank', async () => {
  for (const [m, n] of [SIZES[0], SIZES[2]]) {
    await checkComposed(`pinv of ${m} × ${n}`, {
      ...tolerances,
      tolerance: 1e-4,
      call: linalg.pinv,
      inputs: [x(1, m, n)],
      reference: (a) => of([1, n, m], matrices(a).map(pseudoinverse)),
    });
    await checkComposed(`lstsq of ${m} × ${n}`, {
      ...tolerances,
      tolerance: 1e-4,
      call: (a, b) => linalg.lstsq(a, b).solution,
      inputs: [x(1, m, n), x(1, m, 2)],
      reference: (a, b) => of([1, n, 2], [times(pseudoinverse(matrices(a)[0]), matrices(b)[0])]),
    });
  }
  const line = tensor([
    [1, 0],
    [1, 1],
    [1, 2],
  ]);
  const found = linalg.lstsq(line, tensor([0, 1, 5]));
  assertClose(await values(found.solution), Float64Array.of(-0.5, 2.5), 1e-5, 'a line');
  assertClose(await values(found.residuals), Float64Array.of(1.5), 1e-5, 'residuals');
  assert.deepEqual([await found.rank.item(), [...found.solution.shape], [...found.residuals.shape]], [2, [2], []]);
  assert.deepEqual([...linalg.lstsq(ones([2, 3]), ones([2, 1])).residuals.shape], [0]);
  const product = F.matmul(randn([2, 6, 2]), randn([2, 2, 5]));
  assert.deepEqual(await values(linalg.matrixRank(product)), [2, 2]);
  assert.equal(await linalg.matrixRank(zeros([3, 4])).item(), 0);
  assert.equal(await linalg.matrixRank(F.diag(tensor([1, 0.1, 0.01])), { atol: 0.05 }).item(), 2);
  assertClose(
    await values(F.matmul(F.matmul(product, linalg.pinv(product)), product)),
    Float64Array.from(await values(product)),
    1e-5,
    'a a⁺ a',
  );
});

test('a wrong rcond of lstsq is named as it was written', () => {
  assert.throws(
    () => linalg.lstsq(ones([2, 2]), ones([2]), { rcond: -1 }),
    /^ArgumentError: lstsq: rcond must be a number of at least 0, got -1/,
  );
});

test('norms by singular values, cond, and exponentials', async () => {
  const norms = /** @type {[any, (s: number[]) => number][]} */ ([
    ['nuc', (s) => s.reduce((a, b) => a + b)],
    [2, (s) => s[0]],
    [-2, (s) => s[s.length - 1]],
  ]);
  for (const [order, f] of norms)
    await checkComposed(`matrixNorm ${order}`, {
      ...tolerances,
      call: (a) => linalg.matrixNorm(a, order),
      inputs: [x(2, 2, 3)],
      reference: (a) =>
        of(
          [2],
          matrices(a).map((own) => f(singular(own))),
        ),
    });
  await checkComposed('cond', {
    ...tolerances,
    call: (a) => linalg.cond(a),
    inputs: [x(2, 4, 2)],
    reference: (a) =>
      of(
        [2],
        matrices(a).map((own) => singular(own)[0] / singular(own)[1]),
      ),
  });
  assert.equal(await linalg.cond(F.diag(tensor([1, -4])), 1).item(), 4);
  assert.equal(await linalg.cond(F.diag(tensor([1, 0]))).item(), Infinity);
  const batch = randn([3, 2, 4]);
  assertClose(
    await values(linalg.matrixNorm(F.permute(batch, [1, 0, 2]), 2, [1, 2])),
    Float64Array.from(await values(linalg.matrixNorm(F.permute(batch, [1, 0, 2]).contiguous(), 2))),
    1e-6,
    'dimensions',
  );
  assert.deepEqual([...linalg.matrixNorm(batch, 2, [0, 2], true).shape], [1, 2, 1]);
  assert.equal(await linalg.norm(ones([2, 2])).item(), 2);
  assertClose(await values(linalg.norm(ones([2, 2]), 'nuc')), Float64Array.of(2), 1e-6, 'nuc');
  assert.deepEqual(await values(linalg.norm(ones([2, 2]), 1, 1)), [2, 2]);
  await checkComposed('matrixExp', {
    ...tolerances,
    call: linalg.matrixExp,
    inputs: [x(2, 3, 3)],
    reference: (a) =>
      of(
        a.shape,
        matrices(a).map((own) => {
          let [sum, term] = [identity(3), identity(3)];
          for (let k = 1; k < 60; k++) {
            term = times(term, own).map((row) => row.map((v) => v / k));
            sum = sum.map((row, i) => row.map((v, j) => v + term[i][j]));
          }
          return sum;
        }),
      ),
  });
  assertClose(await values(linalg.matrixExp(zeros([2, 2]))), Float64Array.of(1, 0, 0, 1), 1e-7, 'of zeros');
});

test('what holds of factors: ranks below the full one, equal values, wide ranges, odd sizes', async () => {
  manualSeed(3);
  const largest = (/** @type {Tensor} */ y) => F.max(F.abs(y)).item();
  const swapped = tensor([
    [0, 1, 0],
    [1, 0, 0],
    [0, 0, -1],
  ]);
  const list = [zeros([3, 3]), F.eye(4), ones([5, 3]), swapped, F.matmul(randn([7, 2]), randn([2, 6])), randn([1, 4]), randn([2, 9, 5])];
  for (const a of [...list, randn([4, 4]).mul(1e-30), randn([4, 4]).mul(1e30)]) {
    const size = (await largest(a)) || 1;
    const [m, n] = a.shape.slice(-2);
    const compiled = compile((/** @type {Tensor} */ own) => {
      const [{ q, r }, { u, s, vh }] = [linalg.qr(own, 'complete'), linalg.svd(own)];
      return { q, r, u, s, vh };
    });
    const { q, r, u, s, vh } = compiled(a);
    const k = Math.min(m, n);
    const [left, right] = [F.slice(u, -1, 0, k), F.slice(vh, -2, 0, k)];
    const differences = [
      F.div(F.sub(F.matmul(q, r), a), size),
      F.div(F.sub(F.matmul(F.mul(left, s.unsqueeze(-2)), right), a), size),
      F.sub(F.matmul(transposed(q), q), F.eye(m)),
      F.sub(F.matmul(transposed(u), u), F.eye(m)),
      F.sub(F.matmul(vh, transposed(vh)), F.eye(n)),
      F.tril(r, -1),
    ];
    for (const [i, rest] of differences.entries()) assert.ok((await largest(rest)) < 5e-6, `${a.shape}: ${i}, ${await largest(rest)}`);
    if (m !== n) continue;
    const whole = F.div(F.add(a, transposed(a)), size);
    const { eigenvalues, eigenvectors } = linalg.eigh(whole);
    const back = F.matmul(F.mul(eigenvectors, eigenvalues.unsqueeze(-2)), transposed(eigenvectors));
    assert.ok((await largest(F.sub(back, whole))) < 1e-5);
    assert.ok((await largest(F.sub(F.matmul(transposed(eigenvectors), eigenvectors), F.eye(n)))) < 5e-6);
  }
  // Equal values have gradients that are numbers.
  const leaf = F.eye(3).detach().requiresGrad_();
  F.sum(linalg.svd(leaf).s).backward();
  assertClose(await values(leaf.grad), Float64Array.from(identity(3).flat()), 1e-6, 'of the sum');
  assert.equal(linalg.svd(randn([2, 2]).to('bf16')).u.dtype, 'bf16');
});

test('of matrices with NaN factors have gradients of NaN', async () => {
  for (const [name, f] of /** @type {[string, (a: Tensor) => Tensor][]} */ ([
    ['qr', (a) => linalg.qr(a).r],
    ['svd', (a) => linalg.svdvals(a)],
    ['eigh', (a) => linalg.eigvalsh(a)],
    ['lu', (a) => linalg.lu(a).u],
    ['pinv', (a) => linalg.pinv(a)],
  ])) {
    const a = tensor([2, 1, 1, NaN], { shape: [2, 2] }).requiresGrad_();
    F.sum(f(a)).backward();
    assert.ok((await values(a.grad)).some(Number.isNaN), name);
  }
});

test('errors of factors say what is wrong', () => {
  const leaf = ones([4, 2]).requiresGrad_();
  for (const [run, message] of /** @type {[() => any, RegExp][]} */ ([
    [() => linalg.qr(ones([3])), /^ShapeError: qr: expected matrices \[\.\.\., m, n\], got \[3\]/],
    [() => linalg.svd(ones([2])), /^ShapeError: svd: expected matrices .*, got \[2\]/],
    [() => linalg.eigh(ones([2, 3])), /^ShapeError: eigh: expected square matrices \[\.\.\., n, n\], got \[2, 3\]/],
    [() => linalg.inv(ones([2, 3])), /^ShapeError: inv: expected square matrices \[\.\.\., n, n\], got \[2, 3\]/],
    [() => linalg.qr(leaf, 'complete'), /^UsageError: qr: the mode 'complete' of \[4, 2\] has no gradient/],
    [() => linalg.svd(leaf), /^UsageError: svd: square factors of \[4, 2\] have no gradient: take \{ fullMatrices: false \}/],
    [() => linalg.luSolve(F.eye(2), zeros([2]), ones([2, 1])), /^ArgumentError: luSolve: pivots must be i32 \[2\], got f32 \[2\]/],
    [() => linalg.lstsq(ones([3, 2]), ones([2, 2])), /^ShapeError: lstsq: matrices \[3, 2\] and right sides f32 \[2, 2\]/],
    [() => linalg.pinv(ones([2, 2]), { rtol: -1 }), /^ArgumentError: pinv: rtol must be a number of at least 0, got -1/],
  ]))
    assert.throws(run, message);
});

test('under autocast linear algebra is in f32, as PyTorch’s', async () => {
  const small = tensor([1e-5, 0, 0, 2e-5], { shape: [2, 2] });
  for (const f of [
    linalg.inv,
    linalg.pinv,
    (/** @type {Tensor} */ a) => linalg.solve(a, ones([2])),
    (/** @type {Tensor} */ a) => linalg.lstsq(a, ones([2])).solution,
  ])
    assert.deepEqual(await values(autocast('f16', () => f(small))), await values(f(small)));
});
