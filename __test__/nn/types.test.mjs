// Integers: arithmetic, promotion, reductions, bits and logic, eager and compiled, against JavaScript's own integers.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, full, ones, tensor, zeros } from '../../nn/index.mjs';
import { both } from './both.mjs';
import { checkComposed } from './composed.mjs';
import { EDGES, i32, random, smooth, u32, x } from './inputs.mjs';
import { initDevice, poison, values } from './setup.mjs';

before(() => {
  initDevice();
  poison();
});

/** @typedef {import('../../nn/index.mjs').Tensor} Tensor */

const any = (/** @type {unknown} */ value) => /** @type {any} */ (value);
const LEAST = -(2 ** 31);

test('arithmetic of i32 and u32 is exact and wraps', async () => {
  const pairs = EDGES.flatMap((a) => EDGES.map((b) => [a, b]));
  /** @type {Record<string, (a: number, b: number) => number>} */
  const references = {
    add: (a, b) => a + b,
    sub: (a, b) => a - b,
    mul: (a, b) => Math.imul(a, b),
    maximum: Math.max,
    minimum: Math.min,
    bitwiseAnd: (a, b) => a & b,
    bitwiseOr: (a, b) => a | b,
    bitwiseXor: (a, b) => a ^ b,
  };
  for (const [name, f] of Object.entries(references)) {
    const [a, b] = [0, 1].map((i) => pairs.map((pair) => pair[i]));
    assert.deepEqual(await both(any(F)[name], i32(a), i32(b)), ['i32', [pairs.length], pairs.map(([p, q]) => f(p, q) | 0)], name);
    const unsigned = pairs.map(([p, q]) => f(p >>> 0, q >>> 0) >>> 0);
    assert.deepEqual(
      await both(any(F)[name], u32(a.map((v) => v >>> 0)), u32(b.map((v) => v >>> 0))),
      ['u32', [pairs.length], unsigned],
      name,
    );
  }
  const a = i32(EDGES);
  const of = async (/** @type {(x: any) => Tensor} */ f, x = a) => (await both(f, x))[2];
  assert.deepEqual(
    await of((v) => v.neg()),
    EDGES.map((v) => -v | 0),
  );
  assert.deepEqual(
    await of((v) => v.abs()),
    EDGES.map((v) => Math.abs(v) | 0),
  );
  assert.deepEqual(
    await of((v) => v.sign()),
    EDGES.map((v) => Math.sign(v)).map((v) => v | 0),
  );
  assert.deepEqual(
    await of((v) => v.square()),
    EDGES.map((v) => Math.imul(v, v)),
  );
  assert.deepEqual(
    await of((v) => v.pow(3)),
    EDGES.map((v) => Math.imul(Math.imul(v, v), v)),
  );
  assert.deepEqual(
    await of((v) => v.pow(0)),
    EDGES.map(() => 1),
  );
  assert.deepEqual(
    await of((v) => v.add(7)),
    EDGES.map((v) => (v + 7) | 0),
  );
  assert.deepEqual(
    await of((v) => F.sub(3, v)),
    EDGES.map((v) => (3 - v) | 0),
  );
  assert.deepEqual(
    await of((v) => v.mul(16777217)),
    EDGES.map((v) => Math.imul(v, 16777217)),
    'a factor that f32 does not have',
  );
  assert.deepEqual(
    await of((v) => v.clamp(-5, 2 ** 24 + 1)),
    EDGES.map((v) => Math.min(2 ** 24 + 1, Math.max(-5, v))),
  );
  assert.deepEqual(
    await of((v) => v.relu()),
    EDGES.map((v) => Math.max(0, v)),
  );
  assert.deepEqual(await of((v) => v.sub(1), u32([0, 5])), [2 ** 32 - 1, 4]);
  assert.deepEqual(await of((v) => v.add(-1), u32([0, 5])), [2 ** 32 - 1, 4]);
  assert.deepEqual(await of((v) => v.neg(), u32([0, 5])), [0, 2 ** 32 - 5]);
});

test('division: whole quotients and what they leave, by the signs of PyTorch', async () => {
  // The examples of torch.div, torch.remainder and torch.fmod.
  const [a, b] = [i32([-3, -2, -1, 1, 2, 3]), i32([2])];
  assert.deepEqual((await both(F.remainder, a, b))[2], [1, 0, 1, 1, 0, 1]);
  assert.deepEqual((await both((v) => F.remainder(v, 2), a))[2], [1, 0, 1, 1, 0, 1]);
  assert.deepEqual(
    (await both((v) => F.remainder(v, -1.5), i32([1, 2, 3, 4, 5])))[2],
    [-0.5, -1, 0, -0.5, -1].map((v) => v + 0),
  );
  assert.deepEqual((await both((v) => F.fmod(v, 2), a))[2], [-1, 0, -1, 1, 0, 1]);
  assert.deepEqual((await both((v) => v.floorDivide(2), i32([4, 3, -3])))[2], [2, 1, -2]);
  assert.deepEqual((await both((v) => v.floorDivide(1.4), tensor([4, 3])))[2], [2, 2]);
  assert.deepEqual(
    (await both((v) => v.div(2, { roundingMode: 'trunc' }), a))[2],
    [-1, -1, 0, 0, 1, 1].map((v) => v | 0),
  );
  assert.deepEqual((await both((v) => v.div(2, { roundingMode: 'floor' }), a))[2], [-2, -1, -1, 0, 1, 1]);
  assert.deepEqual(await both((v) => v.div(2), a), ['f32', [6], [-1.5, -1, -0.5, 0.5, 1, 1.5]]);
  assert.deepEqual(await both((v) => F.div(6, v), a), ['f32', [6], [-2, -3, -6, 6, 3, 2]]);
  const pairs = EDGES.flatMap((p) => EDGES.filter((q) => q !== 0).map((q) => [p, q]));
  const [p, q] = [0, 1].map((i) => i32(pairs.map((pair) => pair[i])));
  assert.deepEqual(
    (await both(F.floorDivide, p, q))[2],
    pairs.map(([c, d]) => Math.floor(c / d) | 0),
  );
  assert.deepEqual(
    (await both(F.remainder, p, q))[2],
    pairs.map(([c, d]) => (c - Math.floor(c / d) * d) | 0),
  );
  assert.deepEqual(
    (await both(F.fmod, p, q))[2],
    pairs.map(([c, d]) => (c % d) | 0),
  );
  const least = u32([2 ** 32 - 1, 7]);
  assert.deepEqual((await both((v) => v.floorDivide(2), least))[2], [2 ** 31 - 1, 3]);
  assert.deepEqual((await both((v) => F.remainder(100, v), least))[2], [100, 2]);
});

test('remainders of floats, with gradients, and floors of quotients that round up', async () => {
  const shape = [3, 5];
  const divisors = { shape, values: Float64Array.from({ length: 15 }, (_, i) => Math.fround(0.7 + i / 9) * (i % 2 ? -1 : 1)) };
  const dividends = { shape, values: Float64Array.from(divisors.values, (v, i) => Math.fround(v * (((i * 5) % 11) - 5.4))) };
  for (const [name, f] of /** @type {[string, (a: number, b: number) => number][]} */ ([
    ['remainder', (a, b) => a - Math.floor(a / b) * b],
    ['fmod', (a, b) => a - Math.trunc(a / b) * b],
  ])) {
    await checkComposed(name, {
      call: any(F)[name],
      inputs: [dividends, divisors],
      reference: (a, b) => ({ shape, data: a.data.map((v, i) => f(v, b.data[i])) }),
    });
  }
  // The quotient rounds to 10, 3 and 2^20, of which the dividend is a little less.
  const [a, b] = [tensor([1, 0.3, 2 ** 20 - 0.0625]), tensor([0.1, 0.1, 1])];
  const exact = [Math.fround(1) / Math.fround(0.1), Math.fround(0.3) / Math.fround(0.1), 2 ** 20 - 0.0625].map(Math.floor);
  assert.deepEqual((await both(F.floorDivide, a, b))[2], exact);
  assert.deepEqual(await values(F.remainder(tensor([5, -5, 3]), tensor([Infinity, -Infinity, 0]))), [5, -5, NaN]);
});

test('types are promoted as by PyTorch', async () => {
  const all = { bool: ones([2], { dtype: 'bool' }), i32: ones([2], { dtype: 'i32' }), u32: ones([2], { dtype: 'u32' }) };
  const floats = { f16: ones([2], { dtype: 'f16' }), bf16: ones([2], { dtype: 'bf16' }), f32: ones([2]) };
  for (const [a, b, wanted] of /** @type {[any, any, string][]} */ ([
    [all.bool, all.i32, 'i32'],
    [all.bool, all.u32, 'u32'],
    [all.bool, floats.f16, 'f16'],
    [all.i32, floats.f16, 'f16'],
    [all.u32, floats.bf16, 'bf16'],
    [all.i32, floats.f32, 'f32'],
    [floats.f16, floats.bf16, 'f32'],
  ])) {
    assert.deepEqual(await both(F.mul, a, b), [wanted, [2], [1, 1]], `${a.dtype} ${b.dtype}`);
    assert.deepEqual(await both(F.add, b, a), [wanted, [2], [2, 2]], `${b.dtype} ${a.dtype}`);
    assert.equal(F.where(ones([2], { dtype: 'bool' }), a, b).dtype, wanted);
    assert.deepEqual((await both(F.eq, a, b))[2], [1, 1]);
  }
  const [i] = [all.i32];
  assert.deepEqual(
    [i.add(2).dtype, i.add(0.5).dtype, i.mul(NaN).dtype, all.bool.add(2).dtype, all.bool.mul(0.5).dtype],
    ['i32', 'f32', 'f32', 'i32', 'f32'],
  );
  assert.deepEqual([i.maximum(0.5).dtype, i.exp().dtype, all.bool.sqrt().dtype, i.div(i).dtype], ['f32', 'f32', 'f32', 'f32']);
  assert.deepEqual(await values(F.where(tensor([true, false]), i, 0.5)), [1, 0.5]);
  assert.deepEqual(await both((a, b) => F.add(a, b), tensor([true, true, false]), tensor([true, false, false])), ['bool', [3], [1, 1, 0]]);
  assert.deepEqual(await both((a, b) => F.mul(a, b), tensor([true, true, false]), tensor([true, false, false])), ['bool', [3], [1, 0, 0]]);
  const weights = tensor([1.5, 2.5], { requiresGrad: true });
  F.mul(weights, i32([3, 4]))
    .sum()
    .backward();
  assert.deepEqual(await values(any(weights.grad)), [3, 4], 'a gradient of what was multiplied by integers');
});

test('a whole quotient, a remainder or a power of an integer tensor and a float one has the type of the float', async () => {
  for (const type of /** @type {const} */ (['f16', 'bf16'])) {
    const [a, b] = [tensor([1.5, -2, 3]).to(type), i32([2, 3, 2])];
    assert.deepEqual(await both(F.remainder, a, b), [type, [3], [1.5, 1, 1]]);
    assert.deepEqual(await both(F.remainder, b, a), [type, [3], [0.5, -1, 2]]);
    assert.deepEqual(await both(F.fmod, a, b), [type, [3], [1.5, -2, 1]]);
    assert.deepEqual(await both(F.floorDivide, a, b), [type, [3], [0, -1, 1]]);
    assert.deepEqual(await both((p, q) => F.div(p, q, { roundingMode: 'trunc' }), b, a), [type, [3], [1, -1, 0]]);
    assert.deepEqual(await both(F.pow, a, b), [type, [3], [2.25, -8, 9]]);
    assert.equal(F.pow(b, a).dtype, type);
    assert.equal(F.pow(a, ones([3])).dtype, 'f32');
  }
});

test('integers are compared with a fraction in f32, as in PyTorch', async () => {
  for (const type of /** @type {const} */ (['i32', 'i64', 'i8'])) {
    const a = i32([-1, 0, 1]).to(type);
    const results = await Promise.all(
      ['lt', 'le', 'gt', 'ge', 'eq', 'ne'].map(async (name) => /** @type {number[]} */ ((await both(any(F)[name], a, 0.5))[2]).join('')),
    );
    assert.deepEqual(results, ['110', '110', '001', '001', '000', '111'], type);
    assert.deepEqual((await both((v) => v.lt(Infinity).logicalAnd(v.ne(NaN)), a))[2], [1, 1, 1]);
  }
});

test('comparisons are exact where f32 is not', async () => {
  const [a, b] = [i32([2 ** 24, 2 ** 31 - 1, LEAST]), i32([2 ** 24 + 1, 2 ** 31 - 2, LEAST + 1])];
  assert.deepEqual((await both(F.eq, a, b))[2], [0, 0, 0]);
  assert.deepEqual((await both(F.lt, a, b))[2], [1, 0, 1]);
  assert.deepEqual((await both((v) => v.ge(2 ** 24 + 1), b))[2], [1, 1, 0]);
  assert.deepEqual((await both((c, d) => F.where(c.gt(d), c, d), a, b))[2], [2 ** 24 + 1, 2 ** 31 - 1, LEAST + 1]);
});

test('sums, products and extremes of integers over any dimensions; bools are counted', async () => {
  for (const shape of [[1], [9], [4, 1, 9], [2, 3, 4, 5], [3, 513, 2], [4099]]) {
    const size = shape.reduce((p, q) => p * q, 1);
    const data = Int32Array.from({ length: size }, () => random.below(2 ** 32) | 0);
    const dense = tensor(data, { shape });
    const strided = dense
      .permute(...shape.map((_, d) => shape.length - 1 - d))
      .contiguous()
      .permute(...shape.map((_, d) => shape.length - 1 - d));
    const subsets = [
      undefined,
      ...shape.map((_, d) => d),
      ...(shape.length > 2 ? [[0, 2], [0, shape.length - 1], shape.map((_, d) => d)] : []),
    ];
    for (const dim of subsets) {
      const dims = dim === undefined ? shape.map((_, d) => d) : [dim].flat();
      /** @type {Map<string, number[]>} */
      const groups = new Map();
      data.forEach((value, i) => {
        let rest = i;
        const index = shape.map(() => 0);
        for (let d = shape.length - 1; d >= 0; d--) [index[d], rest] = [rest % shape[d], Math.floor(rest / shape[d])];
        const key = index.map((n, d) => (dims.includes(d) ? 0 : n)).join();
        groups.set(key, [...(groups.get(key) ?? []), value]);
      });
      const lists = [...groups.values()];
      for (const own of [dense, strided]) {
        assert.deepEqual(
          (await both((v) => v.sum(dim), own))[2],
          lists.map((list) => list.reduce((p, q) => (p + q) | 0, 0)),
          `${shape} ${dim}`,
        );
        assert.deepEqual(
          (await both((v) => v.gt(0).sum(dim), own))[2],
          lists.map((list) => list.filter((v) => v > 0).length),
        );
        if (typeof dim !== 'number') continue;
        assert.deepEqual(
          (await both((v) => v.amax(dim), own))[2],
          lists.map((list) => Math.max(...list)),
        );
        assert.deepEqual(
          (await both((v) => v.amin(dim, true), own))[2],
          lists.map((list) => Math.min(...list)),
        );
        assert.deepEqual(
          (await both((v) => v.prod(dim), own))[2],
          lists.map((list) => list.reduce((p, q) => Math.imul(p, q), 1)),
        );
        assert.deepEqual(
          (await both((v) => v.argmax(dim), own))[2],
          lists.map((list) => list.indexOf(Math.max(...list))),
        );
        assert.deepEqual(
          (await both((v) => v.argmin(dim), own))[2],
          lists.map((list) => list.indexOf(Math.min(...list))),
        );
      }
    }
  }
  const b = tensor([
    [true, false],
    [false, false],
  ]);
  assert.deepEqual(
    [b.sum().dtype, b.prod(0).dtype, b.amax(0).dtype, await values(b.amax(1)), await values(b.argmax(0))],
    ['i32', 'i32', 'bool', [1, 0], [0, 0]],
  );
  const u = u32([2 ** 32 - 1, 3]);
  assert.deepEqual([await u.sum().item(), await u.amax().item(), await u.argmin().item()], [2, 2 ** 32 - 1, 1]);
  const one = i32([5]);
  one.sum().add_(1);
  assert.deepEqual(await values(one), [5], 'the sum of one element is a copy');
});

test('products of floats have gradients, also where elements are 0', async () => {
  for (const [input, dim] of /** @type {[any, number | undefined][]} */ ([
    [smooth(7), undefined],
    [smooth(3, 5), 0],
    [x(2, 1, 4), -1],
    [{ shape: [2, 3], values: Float64Array.of(0, 2, 3, 0, 0, 5) }, 1],
  ])) {
    await checkComposed('prod', {
      call: (v) => v.prod(dim),
      inputs: [input],
      reference: ({ shape, data }) => {
        const d = dim === undefined ? 0 : dim < 0 ? dim + shape.length : dim;
        const [before, size, after] =
          dim === undefined
            ? [1, data.length, 1]
            : [shape.slice(0, d), [shape[d]], shape.slice(d + 1)].map((s) => s.reduce((p, q) => p * q, 1));
        const result = new Float64Array(before * after).fill(1);
        data.forEach((v, i) => {
          result[Math.floor(i / (size * after)) * after + (i % after)] *= v;
        });
        return { shape: dim === undefined ? [] : shape.toSpliced(d, 1), data: result };
      },
    });
  }
});

test('bits and logic', async () => {
  const a = i32([5, -6, 0]);
  assert.deepEqual((await both((v) => v.bitwiseNot(), a))[2], [-6, 5, -1]);
  assert.deepEqual((await both((v) => v.bitwiseLeftShift(3), a))[2], [40, -48, 0]);
  assert.deepEqual((await both((v) => v.bitwiseRightShift(1), a))[2], [2, -3, 0]);
  assert.deepEqual((await both((v) => F.bitwiseLeftShift(1, v), i32([0, 4, 31])))[2], [1, 16, LEAST]);
  assert.deepEqual((await both((v) => v.bitwiseRightShift(4), u32([2 ** 32 - 1])))[2], [2 ** 28 - 1]);
  // The examples of torch.logical_and, or, xor and not: of integers, and of floats.
  const [p, q] = [i32([0, 1, 10, 0]), i32([4, 0, 1, 0])];
  assert.deepEqual(await both(F.logicalAnd, p, q), ['bool', [4], [0, 0, 1, 0]]);
  assert.deepEqual((await both(F.logicalOr, p, q.to('f32')))[2], [1, 1, 1, 0]);
  assert.deepEqual((await both(F.logicalXor, p, q))[2], [1, 1, 0, 0]);
  assert.deepEqual((await both(F.logicalNot, tensor([0, 1.5, -10, NaN])))[2], [1, 0, 0, 0]);
  assert.deepEqual((await both((v) => v.logicalNot().bitwiseAnd(v.logicalNot()), tensor([true, false])))[2], [0, 1]);
  assert.deepEqual((await both((v) => v.bitwiseXor(tensor([true, true])), tensor([true, false])))[2], [0, 1]);
});

test('in place: a result of another type has no place', async () => {
  const a = i32([1, 2, 3]);
  a.add_(2)
    .mul_(-3)
    .add_(i32([1, 1, 1]), { alpha: 10 })
    .mul_(tensor([true, true, false]));
  assert.deepEqual(await values(a), [1, -2, 0]);
  a.slice(0, 0, 3, 2).add_(5);
  assert.deepEqual(await values(a), [6, -2, 5]);
  for (const [run, message] of /** @type {[() => any, RegExp][]} */ ([
    [() => a.add_(0.5), /^add_: 0\.5 is no i32, so the result has another type: use add/],
    [() => a.mul_(ones([3])), /^mul_: the result of i32 and f32 has another type: use mul/],
    [() => a.add_(a, { alpha: 0.5 }), /^add_: alpha must be an integer, got 0\.5/],
  ]))
    assert.throws(run, { message });
  assert.deepEqual(await values(a), [6, -2, 5]);
  assert.deepEqual(await values(ones([3]).mul_(a)), [6, -2, 5]);
});

test('errors name the call that the program made', () => {
  const [a, b, f] = [i32([1, 2]), tensor([true, false]), ones([2])];
  for (const [run, message] of /** @type {[() => any, RegExp][]} */ ([
    [() => a.mean(), /^mean: takes f32, f16 or bf16, got i32; convert with \.to\('f32'\)/],
    [() => F.variance(a), /^variance: takes f32/],
    [() => a.pow(-1), /^pow: integers have no power -1; convert with \.to\('f32'\)/],
    [() => b.sub(b), /^sub: takes numbers, got bool: bools differ by logicalXor/],
    [() => f.bitwiseAnd(a), /^bitwiseAnd: takes integers or bools, got f32/],
    [() => f.bitwiseNot(), /^bitwiseNot: takes integers or bools, got f32/],
    [() => b.bitwiseLeftShift(b), /^bitwiseLeftShift: takes integers, got bool/],
    [() => a.add(2 ** 31), /^add: 2147483648 is not an i32: convert the tensor with \.to\('f32'\)/],
    [() => F.logicalAnd(a, any(1)), /^logicalAnd: expected a tensor, got 1/],
    [() => a.div(a, { roundingMode: any('ceil') }), /^div: roundingMode must be 'trunc' or 'floor', got ceil/],
    [() => a.remainder(zeros([3])), /^remainder: \[2\] and \[3\] do not broadcast/],
    [() => full([2], 1, { dtype: 'i32' }).clamp(0, 2 ** 40), /^clamp: 1099511627776 is not an i32/],
  ]))
    assert.throws(run, { message });
});

test('chains of integer operations become one kernel, whatever their numbers', async () => {
  const f = compile((/** @type {Tensor} */ v, /** @type {Tensor} */ w) => v.add(3).mul(w).sub(v).bitwiseAnd(255).to('f32').mul(0.5));
  assert.deepEqual(
    await values(f(i32([1, 2, 300]), i32([5, 6, 7]))),
    [19, 28, 0xff & (303 * 7 - 300)].map((v, i) => (i < 2 ? [19, 28][i] : v)).map((v) => v / 2),
  );
  const [{ found }] = f.explain();
  assert.ok(any(found)['operations fused'] >= 5, JSON.stringify(found));
});
