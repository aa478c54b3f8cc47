// Whole quotients and what is left: of 64-bit integers against BigInt, and of floats by one mechanism with PyTorch's edges.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { F, compile, tensor } from '../../nn/index.mjs';
import { Random } from '../lib/random.mjs';
import { initDevice, values } from './setup.mjs';

before(initDevice);

const LIMIT = 2n ** 63n;
const EDGES = [0n, 1n, -1n, 2n, -3n, 7n, 2n ** 31n, -(2n ** 32n), 2n ** 32n + 1n, LIMIT - 1n, -LIMIT, -LIMIT + 1n, 2n ** 53n + 1n];
const floored = (/** @type {bigint} */ a, /** @type {bigint} */ b) =>
  b === 0n ? (a < 0n ? -1n : 0n) : a / b - (a % b !== 0n && a < 0n !== b < 0n ? 1n : 0n);
/** @type {[name: string, call: (a: any, b: any) => any, f: (a: bigint, b: bigint) => bigint][]} */
const FUNCTIONS = [
  ['floorDivide', F.floorDivide, floored],
  ['div floor', (a, b) => F.div(a, b, { roundingMode: 'floor' }), floored],
  ['div trunc', (a, b) => F.div(a, b, { roundingMode: 'trunc' }), (a, b) => (b === 0n ? 0n : a / b)],
  ['fmod', F.fmod, (a, b) => (b === 0n ? a : a % b)],
  ['remainder', F.remainder, (a, b) => (b === 0n ? a : a - floored(a, b) * b)],
];

test('64-bit integers: edges and random ones of all sizes, eager and compiled', async () => {
  const random = new Random(7);
  const any = () => {
    const bits = BigInt.asIntN(64, (BigInt(random.below(2 ** 32)) << 32n) | BigInt(random.below(2 ** 32)));
    return bits >> BigInt(random.below(64));
  };
  const pairs = EDGES.flatMap((a) => EDGES.map((b) => [a, b]));
  for (let i = 0; i < 600; i++) pairs.push([any(), any()]);
  // Multiples of the divisor and their neighbours.
  for (let i = 0; i < 200; i++) {
    const b = any() >> 20n || 1n;
    const q = (LIMIT - 1n) / (b < 0n ? -b : b) / BigInt(1 + random.below(1000));
    pairs.push([b * q + BigInt(random.below(3) - 1), b]);
  }
  const [a, b] = [0, 1].map((i) => tensor(BigInt64Array.from(pairs, (pair) => pair[i])));
  for (const [name, call, f] of FUNCTIONS) {
    const wanted = pairs.map(([c, d]) => BigInt.asIntN(64, f(c, d)));
    for (const run of [call, compile((/** @type {any} */ c, /** @type {any} */ d) => call(c, d))]) {
      const y = run(a, b);
      assert.equal(y.dtype, 'i64');
      const got = /** @type {any[]} */ (await values(y));
      const wrong = got.findIndex((v, i) => v !== wanted[i]);
      assert.equal(wrong, -1, `${name} of ${pairs[wrong]}: ${got[wrong]}`);
    }
  }
  assert.deepEqual(await values(F.floorDivide(tensor(BigInt64Array.of(-7n, 7n)), 2)), [-4n, 3n]);
  assert.deepEqual(await values(F.remainder(100, tensor(BigInt64Array.of(-7n, 7n)))), [-5n, 2n]);
});

test('floats: div with a roundingMode is floorDivide, or its quotient towards 0, at infinities too', async () => {
  const list = [0, -0, 0.5, -0.5, 1, -1, 7, -7, 1e30, Infinity, -Infinity, NaN];
  const pairs = list.flatMap((a) => list.map((b) => [a, b]));
  const [a, b] = [0, 1].map((i) => tensor(pairs.map((pair) => pair[i])));
  const floor = await values(F.floorDivide(a, b));
  for (const mode of /** @type {('floor' | 'trunc')[]} */ (['floor', 'trunc'])) {
    const call = (/** @type {any} */ c, /** @type {any} */ d) => F.div(c, d, { roundingMode: mode });
    for (const run of [call, compile(call)]) {
      const got = await values(run(a, b));
      const wanted = mode === 'floor' ? floor : pairs.map(([c, d]) => Math.trunc(Math.fround(c) / Math.fround(d)));
      for (const [i, v] of got.entries()) {
        // What is beyond 2^24 is a whole number that f32 rounds.
        if (Math.abs(wanted[i]) > 2 ** 24 && Number.isFinite(wanted[i]))
          assert.ok(Math.abs(v / wanted[i] - 1) < 1e-6, `${mode} of ${pairs[i]}: ${v}`);
        else assert.ok(Object.is(v, wanted[i]), `${mode} of ${pairs[i]}: ${v} instead of ${wanted[i]}`);
      }
    }
  }
  // As torch.floor_divide: of an infinity there is no remainder.
  assert.deepEqual(await values(F.div(tensor([Infinity, 1, -1, 1]), tensor([2, Infinity, Infinity, 0]), { roundingMode: 'floor' })), [
    NaN,
    0,
    -1,
    Infinity,
  ]);
  assert.deepEqual(await values(F.div(7, tensor([2, -2]), { roundingMode: 'trunc' })), [3, -3]);
  assert.equal(F.div(tensor([1], { dtype: 'f16' }), 2, { roundingMode: 'floor' }).dtype, 'f16');
});
