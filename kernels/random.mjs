// Random numbers: the words of Philox as they are, uniform, and normal.

import { choice, finite, integer, pushConstants, tensor } from './base.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {'bits' | 'uniform' | 'normal'} Distribution */

const DISTRIBUTIONS = /** @type {const} */ (['bits', 'uniform', 'normal']);

/** The largest f32 below a number, of those that a device does not take for 0. @param {number} value */
function below(value) {
  const float = Float32Array.of(value);
  if (float[0] < value) return float[0];
  if (Math.abs(value) <= 2 ** -126) return value > 0 ? 0 : -(2 ** -126);
  const word = new Int32Array(float.buffer);
  word[0] += value > 0 ? -1 : 1;
  return float[0];
}

/** @param {KernelContext} context */
export function randomKernels(context) {
  /**
   * Fills a tensor with random numbers. Elements 4g … 4g + 3 are made of the words of Philox 4x32-10 (Salmon et al. 2011) under the
   * key `random[0..1]` and the counter (g, stream, random[2], random[3]): `bits` are the words; `uniform` is low + (high - low) · u,
   * where u is the upper 24 bits of a word over 2^24; `normal` takes two words for two elements (Box & Muller 1958), and lies within
   * 6.7 deviations of the mean.
   * @param {object} args
   * @param {Tensor} args.y out: [count] f32, of `bits` u32
   * @param {number} args.count elements
   * @param {Distribution} args.distribution what the elements are
   * @param {number} [args.low] of `uniform`: the least value; 0 when left out
   * @param {number} [args.high] of `uniform`: what values lie below, more than `low`; 1 when left out
   * @param {number} [args.mean] of `normal`; 0 when left out
   * @param {number} [args.deviation] of `normal`, at least 0; 1 when left out
   * @param {Tensor} args.random 4 u32: seed low, seed high, offset low, offset high (`STATE.seedLow` of an optimizer
   *   state moves on by itself)
   * @param {number} [args.stream] tells the draws of one step apart; 0 when left out
   * @returns {Dispatch}
   */
  function random(args) {
    const kernel = 'random';
    const { low = 0, high = 1, mean = 0, deviation = 1, stream = 0 } = args;
    const distribution = DISTRIBUTIONS[choice(kernel, 'distribution', args.distribution, DISTRIBUTIONS)];
    const count = integer(kernel, 'count', args.count);
    finite(kernel, 'mean', mean);
    const span = Math.fround(finite(kernel, 'high', high) - finite(kernel, 'low', low));
    if (!Number.isFinite(span)) throw new RangeError(`${kernel}: high - low must be an f32, got ${low} and ${high}`);
    if (!(below(high) >= Math.fround(low))) throw new RangeError(`${kernel}: no f32 lies in [low, high), got ${low} and ${high}`);
    if (!(finite(kernel, 'deviation', deviation) >= 0)) throw new RangeError(`${kernel}: deviation must be at least 0, got ${deviation}`);
    const y = tensor(kernel, 'y', args.y);
    const state = tensor(kernel, 'random', args.random);
    context.checker?.check(kernel, [['random', state, 4, 'u32']], [['y', y, count, distribution === 'bits' ? 'u32' : 'f32']]);
    return context.dispatch(`random_${distribution}`, {
      buffers: [y.buffer, state.buffer],
      writes: 0b1,
      groups: context.strideGroups(Math.ceil(count / 4), context.flatThreads),
      specialization: [context.flatThreads],
      push: pushConstants(
        [count, integer(kernel, 'stream', stream, 0, 0xffffffff), y.offset, state.offset],
        distribution === 'normal' ? [mean, deviation, 0] : [low, span, below(high)],
      ),
    });
  }

  return { random };
}
