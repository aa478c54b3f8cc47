// Random numbers.

import { STATE } from '../../kernels/index.mjs';
import { denseLayout, sizeOf } from '../core/layout.mjs';
import { Philox, philox } from '../core/philox.mjs';
import { defineOp } from './registry.mjs';

/**
 * What numbers are drawn: 32 random bits, uniform ones of [low, high), or normal ones.
 * @typedef {{ distribution: 'bits' } | { distribution: 'uniform', low: number, high: number }
 *   | { distribution: 'normal', mean: number, deviation: number }} Distribution
 */

/** Numbers made of four words. @param {number[]} words @param {Distribution} drawn @returns {number[]} */
function made(words, drawn) {
  if (drawn.distribution === 'bits') return words;
  if (drawn.distribution === 'uniform') {
    const { low, high } = drawn;
    return words.map((word) => low + (high - low) * ((word >>> 8) / 2 ** 24));
  }
  return [0, 2].flatMap((i) => {
    const radius = drawn.deviation * Math.sqrt(-2 * Math.log((words[i] + 0.5) / 2 ** 32));
    const angle = (Math.PI * (words[i + 1] | 0)) / 2 ** 31;
    return [drawn.mean + radius * Math.cos(angle), drawn.mean + radius * Math.sin(angle)];
  });
}

/** Random numbers of a shape, by the input: a random state, which moves on by one before it is drawn with. */
export const random = defineOp({
  name: 'random',
  infer: (_, /** @type {{ shape: number[] } & Distribution} */ { shape, distribution }) => [
    denseLayout(shape, distribution === 'bits' ? 'u32' : 'f32'),
  ],
  lower: (k, [state], [y], { shape: _, ...rest }) => [
    k.optimizerAdvance({ state: state.buffer }),
    k.random({ y, count: y.layout.size, random: { buffer: state.buffer, offset: STATE.seedLow }, ...rest }),
  ],
  oracle: ([{ data }], attributes) => {
    const [low, high, offset] = data.subarray(STATE.seedLow, STATE.seedLow + 3);
    const count = sizeOf(attributes.shape);
    // A count of draws is below 2^32 in every test.
    const groups = Array.from({ length: Math.ceil(count / 4) }, (_, g) =>
      made(philox([g, 0, offset + 1, 0], [low, high], [0, 0, 0, 0]), attributes),
    );
    return { shape: attributes.shape, data: Float64Array.from(groups.flat().slice(0, count)) };
  },
});

/**
 * Initial values of a parameter, from the sequence of words of a seed.
 * @typedef {{ shape: number[], seed: number, first: number } & Exclude<Distribution, { distribution: 'bits' }>} Initial `first`: the number of
 *   the first word
 */

/** Initial values, with the same bits on every device. */
export const initial = defineOp({
  name: 'initial',
  infer: (_, /** @type {Initial} */ { shape }) => [denseLayout(shape, 'f32')],
  lower: (k, _, [y], { shape: __, ...rest }) => [k.initial({ y, count: y.layout.size, ...rest })],
  oracle: (_, { shape, seed, first, ...drawn }) => {
    const sequence = new Philox(seed);
    sequence.take(first);
    const draw =
      drawn.distribution === 'uniform'
        ? () => drawn.low + (drawn.high - drawn.low) * sequence.uniform()
        : () => drawn.mean + drawn.deviation * sequence.normal();
    return { shape, data: Float64Array.from({ length: sizeOf(shape) }, draw) };
  },
});
