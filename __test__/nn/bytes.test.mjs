// u8 and i8: their words, arithmetic that wraps, conversions, views, writes beside other bytes and indices, eager and compiled.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { F, compile, full, load, ones, save, tensor, zeros } from '../../nn/index.mjs';
import { both } from './both.mjs';
import { initDevice, poison, values } from './setup.mjs';
import { temporaryFolder } from '../lib/folder.mjs';

before(() => {
  initDevice();
  poison();
});

const any = (/** @type {unknown} */ value) => /** @type {any} */ (value);
const ALL = Array.from({ length: 256 }, (_, i) => i);
const u8 = (/** @type {readonly number[]} */ list, /** @type {number[]} */ shape = [list.length]) =>
  tensor([...list], { dtype: 'u8', shape });
const i8 = (/** @type {readonly number[]} */ list, /** @type {number[]} */ shape = [list.length]) =>
  tensor([...list], { dtype: 'i8', shape });
const SIGNED = ALL.map((v) => v - 128);
const wrapU = (/** @type {number} */ v) => v & 255;
const wrapI = (/** @type {number} */ v) => (v << 24) >> 24;

test('in and out: a type that is asked for, of any count', async () => {
  for (let count = 1; count < 10; count++) {
    const own = ALL.slice(250 - count, 250);
    assert.deepEqual(await u8(own).toArray(), Uint8Array.from(own));
    assert.deepEqual(await i8(own.map(wrapI)).toArray(), Int8Array.from(own));
    assert.deepEqual(await values(full([count], 200, { dtype: 'u8' })), new Array(count).fill(200));
    assert.deepEqual((await both((x) => x.clone(), u8(own)))[2], own);
  }
  assert.equal(tensor(Uint8Array.of(1, 2)).dtype, 'f32', 'as before, unless the type is given');
  assert.equal(tensor(Int8Array.of(1, 2), { dtype: 'i8' }).dtype, 'i8');
  assert.deepEqual(await tensor([[1, 255]], { dtype: 'u8' }).toNested(), [[1, 255]]);
  assert.equal(await i8([5, -7]).slice(0, 1).item(), -7);
  assert.throws(() => u8([256]), /^ArgumentError: tensor: element 0, 256, is not a value of type u8/);
  assert.throws(() => i8([-129]), /^ArgumentError: tensor: element 0, -129, is not a value of type i8/);
  assert.throws(() => u8([1]).add(300), /^ArgumentError: add: 300 is not a u8/);
  assert.throws(() => u8([1]).mean(), /^ArgumentError: mean: takes f32, f16 or bf16, got u8/);
});

test('conversions to and from every type', async () => {
  const [u, i] = [u8(ALL), i8(SIGNED)];
  for (const dtype of /** @type {const} */ (['f32', 'i32', 'f16'])) {
    assert.deepEqual((await both((x) => x.to(dtype), u))[2], ALL, dtype);
    assert.deepEqual((await both((x) => x.to(dtype), i))[2], SIGNED, dtype);
    assert.deepEqual((await both((x) => x.to(dtype).to('u8'), u))[2], ALL, dtype);
    assert.deepEqual((await both((x) => x.to(dtype).to('i8'), i))[2], SIGNED, dtype);
  }
  assert.deepEqual((await both((x) => x.to('u32'), u))[2], ALL);
  assert.deepEqual((await both((x) => x.to('i64'), i))[2], SIGNED.map(BigInt));
  assert.deepEqual(
    (await both((x) => x.to('bool'), u))[2],
    ALL.map((v) => Number(v !== 0)),
  );
  assert.deepEqual((await both((x) => x.to('u8'), i))[2], SIGNED.map(wrapU));
  assert.deepEqual((await both((x) => x.to('i8'), u))[2], ALL.map(wrapI));
  assert.deepEqual((await both((x) => x.to('u8'), tensor([1.9, -1.9, 300, -0, 255])))[2], [1, 255, 44, 0, 255]);
  assert.deepEqual((await both((x) => x.to('i8'), tensor([2n ** 40n + 129n, -1n])))[2], [-127, -1]);
  assert.deepEqual((await both((x) => x.to('u8'), tensor([true, false, true])))[2], [1, 0, 1]);
});

test('arithmetic wraps, also where a kernel of several operations never stores the bytes', async () => {
  const pairs = [0, 1, 3, 100, 127, 128, 200, 255].flatMap((a, _, all) => all.map((b) => [a, b]));
  const [a, b] = [0, 1].map((i) => pairs.map((pair) => pair[i]));
  /** @type {Record<string, (a: number, b: number) => number>} */
  const references = {
    add: (p, q) => p + q,
    sub: (p, q) => p - q,
    mul: (p, q) => p * q,
    maximum: Math.max,
    minimum: Math.min,
    bitwiseXor: (p, q) => p ^ q,
  };
  for (const [name, f] of Object.entries(references)) {
    assert.deepEqual(await both(any(F)[name], u8(a), u8(b)), ['u8', [64], pairs.map(([p, q]) => wrapU(f(p, q)))], name);
    const signed = pairs.map(([p, q]) => wrapI(f(wrapI(p), wrapI(q))));
    assert.deepEqual(await both(any(F)[name], i8(a.map(wrapI)), i8(b.map(wrapI))), ['i8', [64], signed], name);
    const widened = await both((x, y) => any(F)[name](x, y).to('f32'), u8(a), u8(b));
    assert.deepEqual(
      widened[2],
      pairs.map(([p, q]) => wrapU(f(p, q))),
      `${name}, then f32`,
    );
  }
  const u = u8([5, 250, 0]);
  const of = async (/** @type {(x: any) => any} */ f, x = u) => (await both(f, x)).slice(0, 3).toSpliced(1, 1);
  assert.deepEqual(await of((x) => x.add(10)), ['u8', [15, 4, 10]]);
  assert.deepEqual(await of((x) => x.add(-1)), ['u8', [4, 249, 255]]);
  assert.deepEqual(await of((x) => x.neg()), ['u8', [251, 6, 0]]);
  assert.deepEqual(await of((x) => x.bitwiseNot()), ['u8', [250, 5, 255]]);
  assert.deepEqual(await of((x) => x.bitwiseLeftShift(1)), ['u8', [10, 244, 0]]);
  assert.deepEqual(await of((x) => x.pow(2)), ['u8', [25, 36, 0]]);
  assert.deepEqual(await of((x) => x.floorDivide(2)), ['u8', [2, 125, 0]]);
  assert.deepEqual(await of((x) => x.div(2)), ['f32', [2.5, 125, 0]]);
  assert.deepEqual(await of((x) => x.clamp(3, 9)), ['u8', [5, 9, 3]]);
  assert.deepEqual(await of((x) => x.mul(0.5)), ['f32', [2.5, 125, 0]]);
  assert.deepEqual(await of((x) => x.abs(), i8([-128, 127, -5])), ['i8', [-128, 127, 5]]);
  assert.deepEqual(await of((x) => x.sign(), i8([-128, 127, 0])), ['i8', [-1, 1, 0]]);
  assert.deepEqual(await of((x) => F.where(x.gt(4), x, 1)), ['u8', [5, 250, 1]]);
  assert.deepEqual(await of((x) => x.eq(250)), ['bool', [0, 1, 0]]);
  assert.deepEqual(
    [F.add(u, i8([1])).dtype, F.add(u, tensor([1n])).dtype, F.add(u, ones([1], { dtype: 'f16' })).dtype],
    ['i32', 'i64', 'f16'],
  );
  assert.deepEqual([F.add(u, ones([1], { dtype: 'i32' })).dtype, F.add(u, ones([1], { dtype: 'u32' })).dtype], ['i32', 'u32']);
});

test('sums are i32, extremes bytes', async () => {
  const x = i8(
    Array.from({ length: 3 * 41 * 5 }, (_, i) => ((i * 7) % 255) - 127),
    [3, 41, 5],
  );
  const wide = x.to('i32');
  for (const dim of [0, 1, 2, undefined]) {
    assert.deepEqual(await both((v) => v.sum(dim), x), await both((v) => v.sum(dim), wide));
    if (dim === undefined) continue;
    const most = await both((v) => v.amax(dim), wide);
    assert.deepEqual(await both((v) => v.amax(dim), x), most.with(0, 'i8'));
    assert.deepEqual((await both((v) => v.argmin(dim), x))[2], (await both((v) => v.argmin(dim), wide))[2]);
  }
});

test('views, copies and cat of odd sizes', async () => {
  const list = ALL.slice(0, 105);
  const x = u8(list, [3, 5, 7]);
  const wide = tensor(Int32Array.from(list), { shape: [3, 5, 7] });
  for (const f of /** @type {((x: any) => any)[]} */ ([
    (v) => v.permute(2, 0, 1).contiguous(),
    (v) => v.T.contiguous(),
    (v) => v.slice(2, 1, 6, 2).contiguous(),
    (v) => v.slice(0, 1).reshape(-1).clone(),
    (v) => v.slice(1, 1, 4).add(1),
    (v) => v.slice(2, 0, 1).expand(3, 5, 4).contiguous(),
    (v) => F.cat([v.slice(2, 0, 3), v], 2),
    (v) => F.cat([v.slice(1, 2), v], 1),
    (v) => F.stack([v, v], 1),
    (v) => v.add(v.slice(2, 2, 3)),
    (v) => v.maximum(v.slice(0, 1, 2)),
  ])) {
    const [, shape, elements] = await both(f, wide);
    assert.deepEqual(await both(f, x), ['u8', shape, any(elements)], String(f));
  }
});

test('writes keep the bytes beside them', async () => {
  const write = (/** @type {any} */ x) => {
    x.slice(0, 1, 4).fill_(9);
    x.slice(0, 5, 11, 2).copy_(u8([1, 2, 3]));
    x.slice(0, 8, 9).add_(250);
    x.slice(0, 10).mul_(2);
    return x;
  };
  const start = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130];
  const expected = [10, 9, 9, 9, 50, 1, 70, 2, 84, 3, 220, 240, 4];
  const x = u8(start);
  write(x);
  assert.deepEqual(await values(x), expected);
  const f = compile((/** @type {any} */ v) => write(v.clone()));
  assert.deepEqual(await values(f(u8(start))), expected);
  const rows = zeros([3, 5], { dtype: 'i8' });
  rows.T.slice(0, 1, 3).copy_(
    tensor(
      [
        [-1, 2, -3],
        [4, -5, 6],
      ],
      { dtype: 'i8' },
    ),
  );
  assert.deepEqual(await values(rows), [0, -1, 4, 0, 0, 0, 2, -5, 0, 0, 0, -3, 6, 0, 0]);
  const whole = u8([1, 2, 3]);
  whole.add_(whole).copy_(whole.add(1));
  assert.deepEqual(await values(whole), [3, 5, 7]);
  assert.throws(() => whole.add_(0.5), /^ArgumentError: add_: 0\.5 is no u8, so the result has another type: use add/);
});

test('rows and elements are picked, and bytes are indices', async () => {
  const x = u8(ALL.slice(100, 115), [5, 3]);
  assert.deepEqual(await both((v, i) => v.indexSelect(0, i), x, u8([4, 0])), ['u8', [2, 3], [112, 113, 114, 100, 101, 102]]);
  assert.deepEqual(
    (await both((v, i) => v.gather(1, i), x, tensor([[2], [1], [0], [3], [2]], { dtype: 'i32' })))[2],
    [102, 104, 106, 0, 114],
  );
  assert.deepEqual((await both((v, i) => v.scatter(0, i, 7), x, tensor([[0, 4, 9]], { dtype: 'i32' })))[2].slice(0, 3), [7, 101, 102]);
  const table = tensor([
    [0.5, 1],
    [1.5, 2],
  ]);
  assert.deepEqual((await both((i, t) => F.embedding(i, t), u8([1, 0, 5]), table))[2], [1.5, 2, 0.5, 1, 0, 0]);
  assert.equal(await F.crossEntropy(table, i8([1, 0])).item(), await F.crossEntropy(table, tensor(Int32Array.of(1, 0))).item());
});

test('a file has them as U8 and I8', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'bytes.safetensors');
  await save(path, { u: u8(ALL.slice(0, 7)), i: i8(SIGNED.slice(0, 5)) });
  const state = await load(path);
  assert.deepEqual([state.u.dtype, await values(state.u)], ['u8', ALL.slice(0, 7)]);
  assert.deepEqual([state.i.dtype, await values(state.i)], ['i8', SIGNED.slice(0, 5)]);
});

test('chains of bytes become one kernel', async () => {
  const f = compile((/** @type {any} */ v, /** @type {any} */ w) => v.add(w).to('f32').div(255).sub(0.5));
  const got = await values(f(u8([250, 1]), u8([10, 254])));
  assert.deepEqual(got, [
    Math.fround(Math.fround(4 * Math.fround(1 / 255)) - 0.5),
    Math.fround(Math.fround(255 * Math.fround(1 / 255)) - 0.5),
  ]);
  assert.equal(f.explain()[0].dispatches, 1);
});
