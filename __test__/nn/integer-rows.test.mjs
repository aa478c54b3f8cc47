// Sorts, scans and sums by index of bytes and 64-bit integers, against BigInt; eager and compiled.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, randn, tensor } from '../../nn/index.mjs';
import { Random } from '../lib/random.mjs';
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
const range = (/** @type {number} */ n) => Array.from({ length: n }, (_, i) => i);
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
