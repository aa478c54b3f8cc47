// Random numbers: the words are Philox's, uniform ones exactly what their formula gives, normal ones and initial values to the bit what a
// model of their integers gives.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createKernels } from '../../kernels/index.mjs';
import { Philox } from '../../nn/core/philox.mjs';
import { vk } from '../lib/addon.mjs';
import { exactNormal, exactUniform } from '../lib/exact.mjs';
import { Case } from '../lib/kernel-check.mjs';
import { philox } from '../lib/reference.mjs';

const kernels = createKernels(vk);
after(() => vk.destroy());

const SEED = [0x12345678, 0x9abcdef0];
const OFFSET = [0xffffffff, 7];

/** The words of elements in order. @param {number} count @param {number} stream */
const words = (count, stream) =>
  Array.from({ length: Math.ceil(count / 4) }, (_, g) => philox([g, stream, ...OFFSET], SEED))
    .flat()
    .slice(0, count);

/**
 * @param {number} count @param {number} guard
 * @param {Omit<Parameters<typeof kernels.random>[0], 'y' | 'random' | 'count'>} args
 */
function drawn(count, guard, args) {
  const c = new Case({ guard });
  const random = c.input([...SEED, ...OFFSET], 'u32');
  const y = c.output(count, args.distribution === 'bits' ? 'u32' : 'f32');
  c.run(kernels.random({ y: y.tensor, count, random: random.tensor, ...args }));
  const result = y.read();
  c.destroy();
  return result;
}

const SIZES = [
  [1, 1],
  [77, 3],
  [1000, 8],
  [300_001, 4],
];

test('bits are the words of Philox, in every size and at every offset', () => {
  for (const [count, guard] of SIZES) {
    assert.deepEqual(drawn(count, guard, { distribution: 'bits', stream: 5 }), Float64Array.from(words(count, 5)), `${count}`);
  }
});

test('uniform numbers are the rounded formula, and stay below high', () => {
  for (const [count, guard] of SIZES) {
    for (const [low, high] of [
      [0, 1],
      [-3, 0.1],
      // The greatest sums round up to high.
      [1e6, 1e6 + 1],
      [-1, 0],
    ]) {
      const values = drawn(count, guard, { distribution: 'uniform', low, high });
      const span = Math.fround(high - low);
      words(count, 0).forEach((word, i) => {
        const exact = Math.fround(Math.fround(low) + Math.fround(span * ((word >>> 8) / 2 ** 24)));
        if (exact < high) assert.equal(values[i], exact, `element ${i} of [${low}, ${high})`);
        assert.ok(values[i] >= Math.fround(low) && values[i] < high, `${values[i]} in [${low}, ${high})`);
      });
    }
  }
  assert.ok(
    words(300_001, 0).some((word) => Math.fround(1e6 + (word >>> 8) / 2 ** 24) === 1e6 + 1),
    'some of them round up',
  );
});

/**
 * Checks numbers for their bits, of which some are recomputed in integers, and all of them against the formula in float64: the device rounds
 * once, and what it rounds is off by 2^-50 of what the number is a sum of.
 * @param {Float64Array} values @param {(i: number) => number} exact @param {(i: number) => number} formula @param {number} magnitude of terms
 */
function assertBits(values, exact, formula, magnitude) {
  values.forEach((v, i) => {
    const expected = formula(i);
    const bound = Math.abs(expected) * 2 ** -24 + magnitude * 2 ** -46 + 2 ** -126;
    assert.ok(Math.abs(v - expected) <= bound, `element ${i}: ${v}, expected ${expected}`);
    if (i < 400 || i % 331 === 0) assert.equal(v, exact(i), `element ${i}`);
  });
}

test('normal numbers are those of Box and Muller, to the bit', () => {
  for (const [count, guard] of SIZES) {
    const values = drawn(count, guard, { distribution: 'normal', mean: -2, deviation: 3, stream: 1 });
    const bits = words(count + 3, 1);
    const [first, second] = [0, 1].map((k) => (/** @type {number} */ i) => bits[i - (i % 2) + k]);
    assertBits(
      values,
      // The sine is the cosine a quarter of a turn before.
      (i) => exactNormal(2 * first(i) + 1, second(i) - (i % 2) * 2 ** 30, -2, 3),
      (i) => {
        const angle = (Math.PI * (second(i) | 0)) / 2 ** 31;
        return -2 + 3 * Math.sqrt(-2 * Math.log((first(i) + 0.5) / 2 ** 32)) * (i % 2 ? Math.sin(angle) : Math.cos(angle));
      },
      32,
    );
  }
});

test('initial values are the words of a seed in order, whatever the first one, to the bit', () => {
  const seed = 2 ** 52 + 0x12345678;
  for (const [count, guard] of SIZES.slice(0, 3)) {
    // Blocks of four words begin at any of them; the word after 2^34 has a counter above 2^32.
    for (const first of [0, 1, 2, 3, 2 ** 34 - 5]) {
      const sequence = new Philox(seed);
      sequence.take(first);
      const bits = Array.from({ length: 2 * count }, () => sequence.next());
      const c = new Case({ guard });
      for (const [low, high] of [
        [-0.03, 0.03],
        [0, 1],
        [1e6, 1e6 + 1],
        [5, 5],
      ]) {
        const y = c.output(count);
        c.run(kernels.initial({ y: y.tensor, count, distribution: 'uniform', low, high, seed, first }));
        const formula = (/** @type {number} */ i) => low + ((high - low) * (bits[i] >>> 8)) / 2 ** 24;
        assertBits(y.read(), (i) => exactUniform(bits[i], low, high), formula, Math.max(Math.abs(low), Math.abs(high)));
      }
      for (const [mean, deviation] of [
        [0, 0.02],
        [0, 1],
        [-7, 1e-3],
        [0, 1e38],
        [3, 0],
      ]) {
        const y = c.output(count);
        c.run(kernels.initial({ y: y.tensor, count, distribution: 'normal', mean, deviation, seed, first }));
        const formula = (/** @type {number} */ i) =>
          mean + deviation * Math.sqrt(-2 * Math.log((bits[2 * i] + 1) / 2 ** 32)) * Math.cos((2 * Math.PI * bits[2 * i + 1]) / 2 ** 32);
        const finite = y.read().map((v) => (Math.abs(v) === Infinity ? Math.sign(v) * 2 ** 128 : v));
        assertBits(
          finite,
          (i) => {
            const v = exactNormal(2 * bits[2 * i] + 2, bits[2 * i + 1], mean, deviation);
            return Math.abs(v) === Infinity ? Math.sign(v) * 2 ** 128 : v;
          },
          (i) => Math.max(-(2 ** 128), Math.min(2 ** 128, formula(i))),
          Math.abs(mean) + 8 * deviation,
        );
      }
      c.destroy();
    }
  }
});

test('the ends of the words: a radius of 0, the largest one, and the axes', () => {
  // The kernel cannot be given words: the model of it can, and the tests above hold the kernel to the model.
  assert.equal(exactNormal(2 ** 33, 12345, 0, 1), 0);
  const most = Math.sqrt(-2 * Math.log(2 ** -33));
  assert.equal(exactNormal(1, 0, 0, 1), Math.fround(most));
  assert.equal(exactNormal(1, 2 ** 31, 0, 1), Math.fround(-most));
  assert.equal(exactNormal(1, 2 ** 30, 0, 1), 0);
  for (const turn of [1, 2 ** 29 - 1, 2 ** 29, 2 ** 29 + 1, 2 ** 30 - 1, 2 ** 30 + 1, 3 * 2 ** 29, 3 * 2 ** 30 + 7, 2 ** 32 - 1]) {
    for (const n of [1, 2, 3, 2 ** 16, 2 ** 32 - 1, 2 ** 32, 2 ** 32 + 1, 2 ** 33 - 1]) {
      const expected = Math.sqrt(-2 * Math.log(n / 2 ** 33)) * Math.cos((2 * Math.PI * turn) / 2 ** 32);
      const got = exactNormal(n, turn, 0, 1);
      // `cos` near its zeros, as float64 has it, is off by the rounding of the angle.
      assert.ok(Math.abs(got - expected) <= Math.abs(expected) * 2 ** -23.9 + 2 ** -48, `${n}, ${turn}: ${got}, expected ${expected}`);
    }
  }
});

test('what is no range, deviation or distribution is named', () => {
  const args = { y: 1, random: 2, count: 4 };
  assert.throws(
    () => kernels.random({ ...args, distribution: /** @type {any} */ ('cauchy') }),
    /distribution must be one of bits, uniform/,
  );
  assert.throws(
    () => kernels.random({ ...args, distribution: 'uniform', low: 1, high: 1 }),
    /\[low, high\) must contain an f32, got 1 and 1/,
  );
  assert.throws(() => kernels.random({ ...args, distribution: 'uniform', low: -3e38, high: 3e38 }), /high - low must be finite in f32/);
  assert.throws(() => kernels.random({ ...args, distribution: 'normal', deviation: -1 }), /deviation must be at least 0, got -1/);
  assert.throws(() => kernels.random({ ...args, distribution: 'normal', mean: Number.NaN }), /mean must be a finite number/);
  const own = { y: 1, count: 4, seed: 1, first: 0 };
  assert.throws(
    () => kernels.initial({ ...own, distribution: /** @type {any} */ ('bits') }),
    /distribution must be one of uniform, normal/,
  );
  assert.throws(() => kernels.initial({ ...own, distribution: 'uniform', low: 2 }), /high must be at least low, got 2 and 1/);
  assert.throws(() => kernels.initial({ ...own, distribution: 'normal', deviation: -1 }), /deviation must be at least 0, got -1/);
  assert.throws(() => kernels.initial({ ...own, distribution: 'normal', first: 0.5 }), /first must be an integer, got 0.5/);
  assert.throws(() => kernels.initial({ ...own, distribution: 'normal', seed: -1 }), /seed must be in \[0, /);
});
