// 64-bit integers: their words, arithmetic, conversions, views and indices, eager and compiled, against bigints.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { F, compile, full, load, ones, save, tensor, zeros } from '../../nn/index.mjs';
import { both } from './both.mjs';
import { EDGES, i32, random, u32 } from './inputs.mjs';
import { initDevice, poison, values } from './setup.mjs';
import { temporaryFolder } from '../lib/folder.mjs';

before(() => {
  initDevice();
  poison();
});

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */

const any = (/** @type {unknown} */ value) => /** @type {any} */ (value);
const LEAST = -(2 ** 31);

const long = (/** @type {readonly bigint[]} */ list) => tensor(BigInt64Array.from(list));
const wrapped = (/** @type {bigint} */ value) => BigInt.asIntN(64, value);
const inOrder = (/** @type {bigint[]} */ list) => list.toSorted((p, q) => Number(p > q) - Number(p < q));
const [LEAST64, MOST64] = [-(2n ** 63n), 2n ** 63n - 1n];
const LONG = [
  0n,
  1n,
  -1n,
  7n,
  2n ** 31n,
  2n ** 32n - 1n,
  2n ** 32n,
  -(2n ** 32n),
  2n ** 53n + 1n,
  0x123456789abcdefn,
  -0xfedcba987654321n,
  LEAST64,
  MOST64,
];

test('i64: in and out, of bigints and of numbers', async () => {
  assert.deepEqual(await long(LONG).toArray(), BigInt64Array.from(LONG));
  const nested = tensor([
    [1n, 2n ** 40n],
    [-3n, 4n],
  ]);
  assert.deepEqual(
    [nested.dtype, nested.shape, await nested.toNested()],
    [
      'i64',
      [2, 2],
      [
        [1n, 2n ** 40n],
        [-3n, 4n],
      ],
    ],
  );
  assert.deepEqual(await tensor([1, -(2 ** 53) + 1], { dtype: 'i64' }).toArray(), BigInt64Array.of(1n, -(2n ** 53n) + 1n));
  assert.deepEqual(await values(tensor(BigInt64Array.of(3n, -1n), { dtype: 'f32' })), [3, -1]);
  assert.equal(await nested.slice(0, 0, 1).slice(1, 1).item(), 2 ** 40);
  assert.deepEqual(
    [await values(full([3], -5, { dtype: 'i64' })), await values(zeros([2], { dtype: 'i64' }))],
    [
      [-5n, -5n, -5n],
      [0n, 0n],
    ],
  );
  await assert.rejects(
    long([MOST64]).item(),
    /^ArgumentError: item: 9223372036854775807 is beyond the integers that a number has: use toArray\(\)/,
  );
  for (const [run, message] of /** @type {[() => any, RegExp][]} */ ([
    [
      () => tensor(any(BigUint64Array.of(1n))),
      /^tensor: a BigUint64Array: 64-bit integers are signed here, so convert it with BigInt64Array\.from/,
    ],
    [
      () => tensor([2 ** 53], { dtype: 'i64' }),
      /^tensor: element 0, 9007199254740992, is not a value of type i64: beyond 2\^53 give bigints/,
    ],
    [() => tensor([0, 0.5], { dtype: 'i64' }), /^tensor: element 1, 0\.5, is not a value of type i64/],
    [() => tensor([2n ** 63n]), /^tensor: element 0, 9223372036854775808, is not a value of type i64/],
    [() => tensor(BigInt64Array.of(2n ** 31n), { dtype: 'i32' }), /^tensor: element 0, 2147483648, is not a value of type i32/],
    [() => long([1n]).add(2 ** 53), /^add: 9007199254740992 is not an i64/],
    [() => long([1n]).requiresGrad_(), /^requiresGrad_: a tensor of i64 cannot have a gradient/],
  ]))
    assert.throws(run, { message });
});

test('i64: arithmetic, comparisons and bits are exact and wrap', async () => {
  const pairs = LONG.flatMap((a) => LONG.map((b) => [a, b]));
  const [a, b] = [0, 1].map((i) => long(pairs.map((pair) => pair[i])));
  /** @type {Record<string, (a: bigint, b: bigint) => bigint>} */
  const references = {
    add: (p, q) => p + q,
    sub: (p, q) => p - q,
    mul: (p, q) => p * q,
    maximum: (p, q) => inOrder([p, q])[1],
    minimum: (p, q) => inOrder([p, q])[0],
    bitwiseAnd: (p, q) => p & q,
    bitwiseOr: (p, q) => p | q,
    bitwiseXor: (p, q) => p ^ q,
    bitwiseLeftShift: (p, q) => p << (q & 63n),
    bitwiseRightShift: (p, q) => p >> (q & 63n),
  };
  for (const [name, f] of Object.entries(references))
    assert.deepEqual(
      (await both(any(F)[name], a, b))[2],
      pairs.map(([p, q]) => wrapped(f(p, q))),
      name,
    );
  /** @type {Record<string, (a: bigint, b: bigint) => boolean>} */
  const comparisons = {
    eq: (p, q) => p === q,
    ne: (p, q) => p !== q,
    lt: (p, q) => p < q,
    le: (p, q) => p <= q,
    gt: (p, q) => p > q,
    ge: (p, q) => p >= q,
  };
  for (const [name, f] of Object.entries(comparisons))
    assert.deepEqual(
      (await both(any(F)[name], a, b))[2],
      pairs.map(([p, q]) => Number(f(p, q))),
      name,
    );
  const of = async (/** @type {(x: any) => Tensor} */ f) => (await both(f, long(LONG)))[2];
  assert.deepEqual(
    await of((x) => x.neg()),
    LONG.map((v) => wrapped(-v)),
  );
  assert.deepEqual(
    await of((x) => x.abs()),
    LONG.map((v) => wrapped(v < 0n ? -v : v)),
  );
  assert.deepEqual(
    await of((x) => x.sign()),
    LONG.map((v) => (v < 0n ? -1n : v > 0n ? 1n : 0n)),
  );
  assert.deepEqual(
    await of((x) => x.bitwiseNot()),
    LONG.map((v) => ~v),
  );
  assert.deepEqual(
    await of((x) => x.pow(5)),
    LONG.map((v) => wrapped(v ** 5n)),
  );
  assert.deepEqual(
    await of((x) => F.sub(2 ** 40, x.mul(-3))),
    LONG.map((v) => wrapped(2n ** 40n + v * 3n)),
  );
  assert.deepEqual(
    await of((x) => x.clamp(-5, 2 ** 40)),
    LONG.map((v) => (v < -5n ? -5n : v > 2n ** 40n ? 2n ** 40n : v)),
  );
  assert.deepEqual(
    await of((x) => F.where(x.lt(0), x, 7)),
    LONG.map((v) => (v < 0n ? v : 7n)),
  );
  const many = Array.from({ length: 2000 }, () =>
    BigInt.asIntN(64, (BigInt(random.below(2 ** 32)) << 32n) | BigInt(random.below(2 ** 32))),
  );
  const rows = tensor(BigInt64Array.from(many), { shape: [4, 125, 4] });
  assert.deepEqual((await both((x) => x.sum(), rows))[2], [wrapped(many.reduce((p, q) => p + q))]);
  const columns = Array.from({ length: 16 }, (_, i) => many.filter((__, j) => Math.floor(j / 500) === i >> 2 && j % 4 === (i & 3)));
  assert.deepEqual(
    (await both((x) => x.amin(1), rows))[2],
    columns.map((list) => inOrder(list)[0]),
  );
  assert.deepEqual(
    (await both((x) => x.prod(1), rows))[2],
    columns.map((list) => wrapped(list.reduce((p, q) => p * q))),
  );
  assert.deepEqual(
    (await both((x) => x.argmax(1), rows))[2],
    columns.map((list) => list.indexOf(inOrder(list)[list.length - 1])),
  );
});

test('i64: conversions to and from every type, to f32 rounded once', async () => {
  const edges = [
    ...LONG,
    2n ** 24n + 1n,
    2n ** 25n + 3n,
    2n ** 40n + 2n ** 16n,
    2n ** 40n + 2n ** 16n + 1n,
    3n * 2n ** 40n + 2n ** 17n,
    -(2n ** 62n) - 2n ** 38n - 1n,
  ];
  const x = long(edges);
  // Of a bigint to a number and from there to f32 would be two roundings.
  const nearest = (/** @type {bigint} */ v) => {
    const size = v < 0n ? -v : v;
    const shift = BigInt(Math.max(0, size.toString(2).length - 24));
    const [kept, rest, half] = [size >> shift, size & ((1n << shift) - 1n), shift > 0n ? 1n << (shift - 1n) : 0n];
    const up = shift > 0n && (rest > half || (rest === half && kept & 1n)) ? 1n : 0n;
    return Number((kept + up) << shift) * (v < 0n ? -1 : 1);
  };
  const zero = (/** @type {number} */ v) => v + 0;
  assert.deepEqual(any(await both((v) => v.to('f32'), x))[2].map(zero), edges.map(nearest).map(zero));
  assert.deepEqual(
    (await both((v) => v.to('i32'), x))[2],
    edges.map((v) => Number(BigInt.asIntN(32, v))),
  );
  assert.deepEqual(
    (await both((v) => v.to('u32'), x))[2],
    edges.map((v) => Number(BigInt.asUintN(32, v))),
  );
  assert.deepEqual(
    (await both((v) => v.to('bool'), x))[2],
    edges.map((v) => Number(v !== 0n)),
  );
  assert.deepEqual((await both((v) => v.to('bf16'), long([3n, -256n])))[2], [3, -256]);
  assert.deepEqual((await both((v) => v.to('f16').to('i64'), tensor([1.5, -2.75, 2048])))[2], [1n, -2n, 2048n]);
  const floats = [0, -0, 1.99, -1.99, 2 ** 31, -(2 ** 33) - 2 ** 12, 2 ** 62, -(2 ** 62), 2 ** 70, -Infinity, NaN];
  const whole = [0n, 0n, 1n, -1n, 2n ** 31n, -(2n ** 33n) - 2n ** 12n, 2n ** 62n, -(2n ** 62n), MOST64, LEAST64, 0n];
  assert.deepEqual((await both((v) => v.to('i64'), tensor(floats)))[2], whole);
  assert.deepEqual((await both((v) => v.to('i64'), i32(EDGES)))[2], EDGES.map(BigInt));
  assert.deepEqual((await both((v) => v.to('i64'), u32([2 ** 32 - 1, 5])))[2], [2n ** 32n - 1n, 5n]);
  assert.deepEqual((await both((v) => v.to('i64'), tensor([true, false])))[2], [1n, 0n]);
});

test('i64: promotion, and i32 with u32', async () => {
  const [i, u, l] = [i32([-1, LEAST]), u32([2 ** 32 - 1, 1]), long([2n ** 40n, -1n])];
  assert.deepEqual(await both(F.add, i, l), ['i64', [2], [2n ** 40n - 1n, BigInt(LEAST) - 1n]]);
  assert.deepEqual(await both(F.add, i, u), ['i64', [2], [2n ** 32n - 2n, BigInt(LEAST) + 1n]]);
  assert.deepEqual((await both(F.lt, i, u))[2], [1, 1], 'as unsigned -1 would be the largest');
  assert.deepEqual((await both(F.eq, i, u))[2], [0, 0]);
  assert.deepEqual(
    [F.mul(l, ones([2], { dtype: 'bf16' })).dtype, F.mul(l, tensor([true, false])).dtype, F.div(l, l).dtype],
    ['bf16', 'i64', 'f32'],
  );
  assert.deepEqual(await values(l.add(0.5)), [2 ** 40, -0.5]);
  const y = l.clone();
  y.add_(5).mul_(i32([2, 3]));
  assert.deepEqual(await values(y), [2n ** 41n + 10n, 12n]);
  y.slice(0, 1).copy_(BigInt64Array.of(LEAST64));
  y.slice(0, 0, 1).fill_(9);
  assert.deepEqual(await values(y), [9n, LEAST64]);
});

test('i64: views, copies, cat, stack and broadcasts of many dimensions', async () => {
  const shape = [2, 3, 2, 2, 3];
  const list = Array.from({ length: 72 }, (_, i) => BigInt(i) * 2n ** 33n - BigInt(i));
  const x = tensor(BigInt64Array.from(list), { shape });
  const at = (/** @type {number[]} */ [a, b, c, d, e]) => list[(((a * 3 + b) * 2 + c) * 2 + d) * 3 + e];
  const places = list.map((_, i) => [Math.floor(i / 36), Math.floor(i / 12) % 3, Math.floor(i / 6) % 2, Math.floor(i / 3) % 2, i % 3]);
  const order = [3, 0, 4, 2, 1];
  const moved = (/** @type {any} */ v) => v.permute(...order);
  const sizes = order.map((d) => shape[d]);
  const expected = new Array(72);
  for (const place of places) expected[order.map((d) => place[d]).reduce((i, p, d) => i * sizes[d] + p, 0)] = at(place);
  assert.deepEqual((await both((v) => moved(v).contiguous(), x))[2], expected);
  assert.deepEqual(
    (await both((v) => moved(v).add(1), x))[2],
    expected.map((v) => v + 1n),
  );
  assert.deepEqual(
    (await both((v) => moved(v).to('i32'), x))[2],
    expected.map((v) => Number(BigInt.asIntN(32, v))),
  );
  assert.deepEqual((await both((v) => moved(v).mul(v.permute(3, 0, 4, 2, 1).slice(2, 0, 1)), x))[2].length, 72);
  const row = long([1n, -1n, 2n ** 40n]);
  assert.deepEqual(
    (await both((v, w) => v.mul(w), x, row))[2],
    list.map((v, i) => wrapped(v * [1n, -1n, 2n ** 40n][i % 3])),
  );
  assert.deepEqual(
    (await both((v, w) => F.where(v.gt(w), v, w), x, row))[2],
    list.map((v, i) => (v > [1n, -1n, 2n ** 40n][i % 3] ? v : [1n, -1n, 2n ** 40n][i % 3])),
  );
  assert.deepEqual((await both((v) => F.cat([v.slice(1, 2), v.slice(1, 0, 1)], 1), x))[1], [2, 2, 2, 2, 3]);
  assert.deepEqual((await both((v) => F.cat([v.slice(0, 1), v.slice(0, 0, 1)], 0), x))[2], [...list.slice(36), ...list.slice(0, 36)]);
  assert.deepEqual((await both((v) => F.stack([v, v.neg()], 1), row))[2], [1n, -1n, -1n, 1n, 2n ** 40n, -(2n ** 40n)]);
  assert.deepEqual((await both((v) => v.slice(0, 1, 3).expand(2, 2), row))[2], [-1n, 2n ** 40n, -1n, 2n ** 40n]);
  // An offset that is odd in words of 16 bytes, read as it is.
  assert.deepEqual(await values(row.slice(0, 1)), [-1n, 2n ** 40n]);
});

test('i64: indices, whose values beyond 32 bits are out of range, and what is indexed', async () => {
  const x = tensor([
    [1, 2, 3],
    [4, 5, 6],
  ]);
  const index = tensor([
    [0n, 2n],
    [2n ** 32n, -(2n ** 33n)],
  ]);
  assert.deepEqual((await both((v, i) => v.gather(1, i), x, index))[2], [1, 3, 0, 0]);
  const ids = long([1n, 2n ** 32n, 0n]);
  assert.deepEqual((await both((i, v) => F.embedding(i, v), ids, x))[2], [4, 5, 6, 0, 0, 0, 1, 2, 3]);
  assert.deepEqual((await both((v, i) => v.indexSelect(0, i), x, ids))[2], [4, 5, 6, 0, 0, 0, 1, 2, 3]);
  assert.deepEqual((await both((i) => F.oneHot(i, 2), ids))[2], [0, 1, 0, 0, 1, 0]);
  assert.deepEqual((await both((v, i) => v.scatter(0, i, 9), x, tensor([[1n, 0n, 2n ** 32n]])))[2], [1, 9, 3, 9, 5, 6]);
  assert.deepEqual((await both((v, i) => v.scatterAdd(0, i, ones([1, 3])), x, tensor([[1n, 0n, -(2n ** 32n)]])))[2], [1, 3, 3, 5, 5, 6]);
  const [marks, list] = [tensor([[1n, -1n, 2n]]), long([1n, 0n, 2n ** 32n])];
  for (const [f, expected] of /** @type {[(long: Tensor) => Tensor, number[]][]} */ ([
    [(i) => x.indexPut([i, i], ones([3])), [1, 2, 3, 4, 1, 6]],
    [(i) => F.stack(F.unravelIndex(i, [1, 2]), 1), [0, 1, 0, 0, 0, 0]],
    [(i) => F.embeddingBag(tensor([0n, 1n, 1n]), x, i.slice(0, 0, 2).flip(0), { mode: 'sum' }), [1, 2, 3, 8, 10, 12]],
  ]))
    assert.deepEqual((await both(f, list))[2].slice(0, expected.length), expected);
  const far = (/** @type {Tensor} */ i) => F.stack(F.unravelIndex(i, [3, 50_000, 50_000]));
  assert.deepEqual(await values(far(tensor([5_000_100_002n, 2n ** 31n - 1n]))), [2, 0, 2, 42949, 2, 33647]);
  assert.deepEqual(await values(far(tensor([2 ** 31 - 1], { dtype: 'i32' }))), [0, 42949, 33647]);
  const places32 = list.clamp(0, 1).to('u32');
  assert.deepEqual(await values(x.indexPut([places32, places32], ones([3]))), [1, 2, 3, 4, 1, 6]);
  assert.deepEqual(
    await values(F.multilabelMarginLoss(x.slice(0, 0, 1), marks)),
    await values(F.multilabelMarginLoss(x.slice(0, 0, 1), marks.to('i32'))),
  );
  const targets = [long([2n, -100n]), i32([2, -100])].map((own) => F.crossEntropy(x, own, { reduction: 'none' }));
  assert.deepEqual(await values(targets[0]), await values(targets[1]));
  assert.equal((await values(targets[0]))[1], 0);
  const table = tensor([
    [0.5, 1, -1],
    [1, 0, 2],
  ]);
  assert.deepEqual(await values(F.linearCrossEntropy(x, table, long([1n, 0n]))), await values(F.linearCrossEntropy(x, table, i32([1, 0]))));
  const big = tensor([
    [1n, 2n ** 40n],
    [LEAST64, -5n],
  ]);
  assert.deepEqual(
    (
      await both(
        (v, i) => v.gather(1, i),
        big,
        tensor([
          [1n, 0n],
          [0n, 7n],
        ]),
      )
    )[2],
    [2n ** 40n, 1n, LEAST64, 0n],
  );
  assert.deepEqual((await both((v, i) => v.indexSelect(1, i), big, i32([1, 1, 0])))[2], [2n ** 40n, 2n ** 40n, 1n, -5n, -5n, LEAST64]);
  assert.deepEqual(
    (
      await both(
        (v, i) => v.scatter(1, i, v.neg()),
        big,
        tensor(
          [
            [0, 0],
            [1, 1],
          ],
          { dtype: 'i32' },
        ),
      )
    )[2],
    [-(2n ** 40n), 2n ** 40n, LEAST64, 5n],
  );
  assert.deepEqual((await both((v, i) => v.scatter(0, i, -1), big, tensor([[1, 0]], { dtype: 'i32' })))[2], [1n, -1n, -1n, -5n]);
  const places = tensor([[1, 0]], { dtype: 'i32' });
  assert.throws(
    () => big.scatter(0, places, zeros([1, 2])),
    /^ShapeError: scatter: expected a source i64 \[1, 2\], the shape of the index, got f32/,
  );
  assert.throws(
    () => big.gather(0, i32([1])),
    /^ShapeError: gather: the index \[1\] and the tensor \[2, 2\] must have equally many dimensions/,
  );
});

test('i64: a compiled function takes a BigInt64Array, and chains become one kernel', async () => {
  const f = compile((/** @type {any} */ v, /** @type {any} */ w) =>
    v
      .add(w)
      .mul(3)
      .sub(w)
      .gt(2 ** 40),
  );
  assert.deepEqual(await values(f(BigInt64Array.of(2n ** 41n, 5n), long([1n, 2n]))), [1, 0]);
  assert.deepEqual(await values(f(BigInt64Array.of(0n, 2n ** 50n), long([1n, 2n]))), [0, 1]);
  assert.ok(any(f.explain()[0].found)['operations fused'] >= 3, JSON.stringify(f.explain()[0].found));
  assert.throws(() => f(any(BigUint64Array.of(1n, 2n)), long([1n, 2n])), /^ArgumentError: compile: a BigUint64Array/);
});

test('i64: a file has them as I64', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'long.safetensors');
  await save(path, { long: long(LONG), one: tensor(5n) });
  const state = await load(path);
  assert.deepEqual([state.long.dtype, await values(state.long), state.one.shape, await state.one.item()], ['i64', LONG, [], 5]);
});
