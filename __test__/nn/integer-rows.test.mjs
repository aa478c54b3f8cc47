// Sorts, scans, sums by index, products and powers of bytes, words and 64-bit integers, against BigInt; eager and compiled.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, randn, tensor } from '../../nn/index.mjs';
import { Random } from '../lib/random.mjs';
import { range } from './inputs.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

/** Types of integers: how many bits, whether signed. @type {[any, bigint, boolean][]} */
const TYPES = [
  ['i64', 64n, true],
  ['i8', 8n, true],
  ['u8', 8n, false],
  ['i32', 32n, true],
  ['u32', 32n, false],
];
const random = new Random(5);
const positive = (/** @type {bigint} */ v) => (v > 0n ? v : 0n);
/** @typedef {(a: bigint, b: bigint) => bigint} Join */
/** @type {Join[]} */
const [add, times, most, least] = [(a, b) => a + b, (a, b) => a * b, (a, b) => a + positive(b - a), (a, b) => a - positive(a - b)];
const wrapped = (/** @type {bigint} */ v, /** @type {bigint} */ bits, /** @type {boolean} */ signed) =>
  signed ? BigInt.asIntN(Number(bits), v) : BigInt.asUintN(Number(bits), v);
/** Integers of a type, few of which are equal. @param {number} count @param {bigint} bits @param {boolean} signed */
const draw = (count, bits, signed) =>
  range(count).map(() => {
    const word = (BigInt(random.below(2 ** 32)) << 32n) | BigInt(random.below(2 ** 32));
    return random.chance(0.3) ? BigInt(random.below(4)) : wrapped(word >> BigInt(random.below(40)), bits, signed);
  });
/** @param {bigint[]} list @param {any} dtype @param {number[]} shape */
const of = (list, dtype, shape) =>
  dtype === 'i64' ? tensor(BigInt64Array.from(list), { shape }) : tensor(list.map(Number), { dtype, shape });
const bigs = async (/** @type {any} */ x) => (await values(x)).map((v) => BigInt(v));
/** @param {(...inputs: any[]) => any} call @param {any[]} inputs @param {bigint[]} expected @param {string} dtype @param {string} what */
async function check(call, inputs, expected, dtype, what) {
  for (const run of [call, compile((/** @type {any[]} */ ...own) => call(...own))]) {
    const y = run(...inputs);
    assert.equal(y.dtype, dtype, what);
    assert.deepEqual(await bigs(y), expected, what);
  }
}

for (const [dtype, bits, signed] of TYPES) {
  test(`${dtype}: sort, argsort, topk, kthvalue along both dimensions, stable`, async () => {
    const [rows, columns] = [3, 13];
    const list = draw(rows * columns, bits, signed);
    const x = of(list, dtype, [rows, columns]);
    for (const descending of [false, true]) {
      const orders = range(rows).map((r) =>
        range(columns).sort((a, b) => {
          const [p, q] = [list[r * columns + a], list[r * columns + b]];
          return (p < q ? -1 : p > q ? 1 : 0) * (descending ? -1 : 1) || a - b;
        }),
      );
      const sorted = orders.flatMap((order, r) => order.map((c) => list[r * columns + c]));
      await check((a) => F.sort(a, 1, descending).values, [x], sorted, dtype, 'sort');
      await check((a) => F.argsort(a, 1, descending), [x], orders.flat().map(BigInt), 'i32', 'argsort');
      await check((a) => F.sort(a.T.contiguous(), 0, descending).values.T, [x], sorted, dtype, 'sort of columns');
      const first = orders.flatMap((order, r) => order.slice(0, 4).map((c) => list[r * columns + c]));
      await check((a) => F.topk(a, 4, 1, descending).values, [x], first, dtype, 'topk');
      if (!descending)
        await check(
          (a) => F.kthvalue(a, 5, 1).values,
          [x],
          orders.map((order, r) => list[r * columns + order[4]]),
          dtype,
          'kthvalue',
        );
    }
  });

  test(`${dtype}: products of matrices and powers wrap`, async () => {
    const [batch, m, k, n] = [2, 3, 5, 4];
    const [p, q] = [draw(batch * m * k, bits, signed), draw(k * n, bits, signed)];
    const [a, b] = [of(p, dtype, [batch, m, k]), of(q, dtype, [k, n])];
    const dot = (/** @type {number} */ row, /** @type {number} */ c) =>
      wrapped(
        range(k).reduce((sum, i) => sum + p[row * k + i] * q[i * n + c], 0n),
        bits,
        signed,
      );
    const product = range(batch * m).flatMap((row) => range(n).map((c) => dot(row, c)));
    await check(F.matmul, [a, b], product, dtype, 'matmul');
    await check((x, w) => F.linear(x, w.T), [a, b], product, dtype, 'linear');
    await check((x, w) => F.einsum('bij,jk->bik', x, w), [a, b], product, dtype, 'einsum');
    await check((x, w) => F.tensordot(x, w, 1), [a, b], product, dtype, 'tensordot');
    await check((x, w) => F.dot(x.select(0, 1).select(0, 2), w.select(1, 3)), [a, b], product.slice(-1), dtype, 'dot');
    await check(
      (x, w) => F.mm(x.select(0, 0).slice(1, 0, 0), w.slice(0, 0, 0)),
      [a, b],
      new Array(m * n).fill(0n),
      dtype,
      'mm of no columns',
    );

    const bases = [...p.slice(0, 6), ...range(6).map((i) => (signed ? BigInt(i) - 2n : BigInt(i)))];
    const exponents = [...range(6).map((i) => BigInt(i) * 9n), ...range(6).map((i) => (signed ? BigInt(i) - 4n : BigInt(i)))];
    if (bits > 8n) exponents[3] = wrapped(2n ** (bits - 1n) - 5n, bits, signed);
    const power = (/** @type {bigint} */ x, /** @type {bigint} */ e) => {
      if (e < 0n) return x === 1n || (x === -1n && e % 2n === 0n) ? 1n : x === -1n ? -1n : 0n;
      let [y, square] = [1n, x];
      for (let rest = e; rest > 0n; rest /= 2n, square = wrapped(square * square, bits, signed))
        if (rest % 2n) y = wrapped(y * square, bits, signed);
      return y;
    };
    const powers = bases.map((x, i) => power(x, exponents[i]));
    await check(F.pow, [of(bases, dtype, [12]), of(exponents, dtype, [12])], powers, dtype, 'pow');
    const threes = exponents.map((e) => power(3n, e));
    await check((e) => F.pow(3, e), [of(exponents, dtype, [12])], threes, dtype, 'pow of a number');
    const square = p.slice(0, 4);
    const squared = [0, 1, 2, 3].map((i) =>
      wrapped(square[i - (i % 2)] * square[i % 2] + square[i - (i % 2) + 1] * square[2 + (i % 2)], bits, signed),
    );
    await check((x) => F.matrixPower(x, 2), [of(square, dtype, [2, 2])], squared, dtype, 'matrixPower');
    assert.equal(F.cov(a.select(0, 0)).dtype, 'f32');
    assert.deepEqual(await values(F.cov(a.select(0, 0))), await values(F.cov(a.select(0, 0).to('f32'))));
    assert.equal(F.corrcoef(a.select(0, 0)).dtype, 'f32');
  });

  test(`${dtype}: running sums, products and extremes`, async () => {
    const [rows, columns] = [2, 11];
    const list = draw(rows * columns, bits, signed);
    const x = of(list, dtype, [rows, columns]);
    // Of bytes the results are i32, as those of sums.
    const [own, width, isSigned] = bits === 8n ? ['i32', 32n, true] : [dtype, bits, signed];
    for (const [name, join] of /** @type {['cumsum' | 'cumprod', (a: bigint, b: bigint) => bigint][]} */ ([
      ['cumsum', (a, b) => a + b],
      ['cumprod', (a, b) => a * b],
    ])) {
      const expected = range(rows).flatMap((r) => {
        let state = name === 'cumsum' ? 0n : 1n;
        return range(columns).map((c) => (state = wrapped(join(state, list[r * columns + c]), width, Boolean(isSigned))));
      });
      await check((a) => F[name](a, 1), [x], expected, String(own), name);
      await check((a) => F[name](a.T, 0).T, [x], expected, String(own), `${name} of columns`);
    }
    for (const [name, sign] of /** @type {['cummax' | 'cummin', number][]} */ ([
      ['cummax', 1],
      ['cummin', -1],
    ])) {
      const places = range(rows).flatMap((r) => {
        let best = 0;
        return range(columns).map((c) => {
          const [p, q] = [list[r * columns + c], list[r * columns + best]];
          if (p === q || (p > q ? 1 : -1) === sign) best = c;
          return best;
        });
      });
      await check(
        (a) => F[name](a, 1).values,
        [x],
        places.map((c, i) => list[Math.floor(i / columns) * columns + c]),
        dtype,
        name,
      );
      await check((a) => F[name](a, 1).indices, [x], places.map(BigInt), 'i32', `${name}, places`);
    }
  });

  test(`${dtype}: scatterAdd and scatterReduce`, async () => {
    const [rows, size, n] = [2, 4, 9];
    const [own, source] = [draw(rows * size, bits, signed), draw(rows * n, bits, signed)];
    const index = range(rows * n).map(() => random.between(-5, 4));
    const inputs = [of(own, dtype, [rows, size]), tensor(index, { dtype: 'i32', shape: [rows, n] }), of(source, dtype, [rows, n])];
    const floor = (/** @type {bigint} */ a, /** @type {bigint} */ b) => a / b - (a % b !== 0n && a < 0n ? 1n : 0n);
    const at = (/** @type {number} */ i) => (index[i] < 0 ? index[i] + size : index[i]);
    /** @param {'sum' | 'prod' | 'mean' | 'amax' | 'amin'} reduce @param {boolean} self */
    const expected = (reduce, self) =>
      own.map((v, i) => {
        const [r, c] = [Math.floor(i / size), i % size];
        const parts = range(n).flatMap((k) => (at(r * n + k) === c ? [source[r * n + k]] : []));
        if (parts.length === 0) return v;
        const all = self ? [v, ...parts] : parts;
        // Bytes are joined as i32, and others wrap in every step.
        const width = bits === 8n ? 32n : bits;
        const wrap = (/** @type {bigint} */ w) => wrapped(w, width, bits === 8n || signed);
        const joins = { sum: add, mean: add, prod: times, amax: most, amin: least };
        const joined = all.reduce((a, b) => wrap(joins[reduce](a, b)));
        return wrapped(reduce === 'mean' ? floor(joined, BigInt(all.length)) : joined, bits, signed);
      });
    await check((a, i, s) => F.scatterAdd(a, 1, i, s), inputs, expected('sum', true), dtype, 'scatterAdd');
    await check((a, i, s) => F.scatterAdd(a.T, 0, i.T, s.T).T, inputs, expected('sum', true), dtype, 'scatterAdd of columns');
    for (const reduce of /** @type {('sum' | 'prod' | 'mean' | 'amax' | 'amin')[]} */ (['sum', 'prod', 'mean', 'amax', 'amin']))
      for (const includeSelf of [true, false])
        await check(
          (a, i, s) => F.scatterReduce(a, 1, i, s, reduce, { includeSelf }),
          inputs,
          expected(reduce, includeSelf),
          dtype,
          `${reduce} ${includeSelf}`,
        );
  });
}

test('what is wrong with sums of integers by index', () => {
  const [x, index] = [F.zeros([2, 3], { dtype: 'i32' }), F.zeros([2, 4], { dtype: 'i32' })];
  assert.throws(
    () => F.scatterAdd(x, 1, index, F.zeros([2, 4])),
    /^ShapeError: scatterAdd: expected a source i32 \[2, 4\], the shape of the index, got f32/,
  );
  assert.throws(
    () => F.scatterAdd(x, 0, index, index),
    /^ShapeError: scatterAdd: the index \[2, 4\] has more than the tensor \[2, 3\] in another dimension than 0/,
  );
  assert.throws(
    () => F.scatterReduce(x.to('bool'), 1, index, index.to('bool'), 'sum'),
    /^ArgumentError: scatterReduce: takes numbers, got bool/,
  );
});

test('ctcLoss with targets and lengths of 64 bits', async () => {
  const logProbs = F.logSoftmax(randn([5, 2, 4]), 2);
  const [targets, lengths] = [
    [
      [1, 2],
      [3, 1],
    ],
    [2, 1],
  ];
  const i32 = F.ctcLoss(logProbs, tensor(targets, { dtype: 'i32' }), [5, 4], lengths);
  const long = tensor(BigInt64Array.of(1n, 2n, 3n, 1n), { shape: [2, 2] });
  assert.equal(await F.ctcLoss(logProbs, long, [5, 4], tensor(BigInt64Array.of(2n, 1n))).item(), await i32.item());
  assert.equal(await F.ctcLoss(logProbs, tensor(BigInt64Array.of(1n, 2n, 3n)), [5, 4], lengths).item(), await i32.item());
});

test('isin, mode and medians of bytes and i64, whose low words may be alike', async () => {
  const far = 2n ** 40n;
  const x = tensor([far, 1n, far, -far, 1n, far + 1n]).reshape(2, 3);
  const isin = compile((/** @type {any} */ a, /** @type {any} */ b) => F.isin(a, b));
  for (const run of [F.isin, isin])
    assert.deepEqual(Array.from(await run(x, tensor([far, far + 1n, 0n])).toArray(), Number), [1, 0, 1, 0, 0, 1]);
  assert.deepEqual(Array.from(await F.isin(x, tensor([1n]), { invert: true }).toArray(), Number), [1, 0, 1, 1, 0, 1]);
  const { values, indices } = F.mode(x);
  assert.deepEqual(await values.toArray(), BigInt64Array.of(far, -far));
  assert.deepEqual(Array.from(await indices.toArray()), [2, 0]);
  for (const middle of [F.median(x, 1), F.nanmedian(x, 1)]) {
    assert.deepEqual(await middle.values.toArray(), BigInt64Array.of(far, 1n));
    assert.deepEqual(await middle.values.toArray(), await F.kthvalue(x, 2).values.toArray());
  }
  assert.equal(await F.median(x).item(), 1);
  for (const dtype of /** @type {const} */ (['u8', 'i8'])) {
    const bytes = F.median(tensor([[3, 100, 2, 1]], { dtype }), -1);
    assert.deepEqual([bytes.values.dtype, Array.from(await bytes.values.toArray()), await bytes.indices.item()], [dtype, [2], 2]);
  }
  const alone = F.cummax(tensor([7n]).reshape(), 0);
  assert.deepEqual([await alone.values.item(), await alone.indices.item()], [7, 0]);
});

test('unique, uniqueConsecutive, searchsorted and bucketize of i64 beyond 2^53', async () => {
  const far = 2n ** 53n;
  const least = -(2n ** 63n);
  const x = tensor([far + 1n, far, 5n, 2n ** 32n + 5n, 5n, -far - 1n, least, far + 1n]);
  const found = await F.unique(x.reshape(2, 4));
  assert.deepEqual(await bigs(found.values), [least, -far - 1n, 5n, 2n ** 32n + 5n, far, far + 1n]);
  assert.deepEqual(
    [found.inverse.shape, await values(found.inverse)],
    [
      [2, 4],
      [5, 4, 2, 3, 2, 1, 0, 5],
    ],
  );
  assert.deepEqual(await values(found.counts), [1, 1, 2, 1, 1, 2]);
  const runs = await F.uniqueConsecutive(tensor([far, far, far + 1n, 5n, 2n ** 32n + 5n, 5n]));
  assert.deepEqual(await bigs(runs.values), [far, far + 1n, 5n, 2n ** 32n + 5n, 5n]);
  assert.deepEqual(
    [await values(runs.inverse), await values(runs.counts)],
    [
      [0, 0, 1, 2, 3, 4],
      [2, 1, 1, 1, 1],
    ],
  );
  assert.equal((await F.unique(tensor(new BigInt64Array(0)))).values.size, 0);
  const wanted = tensor([far, far + 2n, 2n ** 32n + 5n, -far, 5n, least]).reshape(2, 3);
  const places = [4n, 6n, 3n, 2n, 2n, 0n];
  await check(F.searchsorted, [found.values, wanted], places, 'i32', 'searchsorted');
  await check((a, b) => F.bucketize(b, a, { right: true }), [found.values, wanted], [5n, 6n, 4n, 2n, 3n, 1n], 'i32', 'bucketize');
  await check(F.searchsorted, [F.stack([found.values, found.values.clamp(5)]), wanted], [4n, 6n, 3n, 0n, 0n, 0n], 'i32', 'rows');
});
