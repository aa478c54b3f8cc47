// Random numbers by Philox: its words, uniform numbers, and normal ones.

import { choice, finite, integer, pushConstants, tensor } from './base.mjs';

/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {'bits' | 'uniform' | 'normal'} Distribution */

const DISTRIBUTIONS = /** @type {const} */ (['bits', 'uniform', 'normal']);

/** The largest f32 below a number, without denormals, which a device may flush to 0. @param {number} value */
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
   * Fills a tensor with random numbers. Elements 4g … 4g + 3 come from the four words of Philox 4x32-10 (Salmon et al. 2011) with key
   * `random[0..1]` and counter (g, stream, random[2], random[3]).
   *
   * `bits` are the words themselves. `uniform` is low + (high - low) · u, where u is the upper 24 bits of a word divided by 2^24; values lie in
   * [low, high). `normal` makes two elements from two words (Box & Muller 1958), at most 6.77 deviations from the mean.
   * @param {object} args
   * @param {Tensor} args.y out: [count] f32; u32 for `bits`
   * @param {number} args.count elements
   * @param {Distribution} args.distribution the distribution of the elements
   * @param {number} [args.low] `uniform`: the least value; 0 when left out
   * @param {number} [args.high] `uniform`: the bound that values stay below, more than `low`; 1 when left out
   * @param {number} [args.mean] `normal`: the mean; 0 when left out
   * @param {number} [args.deviation] `normal`: the standard deviation, at least 0; 1 when left out
   * @param {Tensor} args.random 4 u32: seed low, seed high, offset low, offset high. In an optimizer state they are at `STATE.seedLow`, where
   *   `optimizerAdvance` moves the offset on
   * @param {number} [args.stream] distinguishes the draws of one step; 0 when left out
   * @returns {Dispatch}
   * @throws {RangeError} where no f32 lies in [low, high), or the deviation is negative
   */
  function random(args) {
    const kernel = 'random';
    const { low = 0, high = 1, mean = 0, deviation = 1, stream = 0 } = args;
    const distribution = DISTRIBUTIONS[choice(kernel, 'distribution', args.distribution, DISTRIBUTIONS)];
    const count = integer(kernel, 'count', args.count);
    finite(kernel, 'mean', mean);
    const span = Math.fround(finite(kernel, 'high', high) - finite(kernel, 'low', low));
    if (!Number.isFinite(span)) throw new RangeError(`${kernel}: high - low must be finite in f32, got ${low} and ${high}`);
    if (!(below(high) >= Math.fround(low))) throw new RangeError(`${kernel}: [low, high) must contain an f32, got ${low} and ${high}`);
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
