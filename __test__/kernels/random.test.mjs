// Random numbers: the words are Philox's, uniform ones exactly what their formula gives, normal ones within the device's
// functions of it.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createKernels } from '../../kernels/index.mjs';
import { vk } from '../lib/addon.mjs';
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

test('normal numbers are those of Box and Muller', () => {
  for (const [count, guard] of SIZES) {
    const values = drawn(count, guard, { distribution: 'normal', mean: -2, deviation: 3, stream: 1 });
    const bits = words(count + 3, 1);
    values.forEach((v, i) => {
      const [first, second] = [bits[i - (i % 2)], bits[i - (i % 2) + 1]];
      const square = -2 * Math.log((first + 0.5) / 2 ** 32);
      const angle = (Math.PI * (second | 0)) / 2 ** 31;
      const radius = Math.sqrt(square);
      const expected = -2 + 3 * radius * (i % 2 ? Math.sin(angle) : Math.cos(angle));
      // Vulkan lets sine and cosine be off by 2^-11, and logarithms between 1/2 and 2 by 2^-21; the uniform number is rounded to f32.
      const bound = 3 * (radius * 2 ** -11 + Math.sqrt(square + 2 ** -19) - radius + 2 ** -20 * (1 + radius));
      assert.ok(Math.abs(v - expected) <= bound, `element ${i}: ${v}, expected ${expected} within ${bound}`);
    });
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
});
