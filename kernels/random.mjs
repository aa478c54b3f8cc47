// Random numbers by Philox: its words, uniform numbers, normal ones, and the initial values of parameters.

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

/**
 * Push constants for a number offset + scale · x, as `scaled` of shaders/include/exact.glsl takes them.
 * @param {number} offset @param {number} scale at least 0
 */
function fixedPoint(offset, scale) {
  // The least power of two that neither exceeds; below the least f32 it makes no difference.
  let exponent = -150;
  while (2 ** exponent < Math.max(Math.abs(offset), scale)) exponent++;
  const words = [
    [offset, 62 - exponent],
    [scale, 63 - exponent],
  ].flatMap(([value, bits]) => {
    const fixed = BigInt(Math.trunc(value * 2 ** bits));
    return [Number(BigInt.asUintN(32, fixed)), Number(BigInt.asUintN(32, fixed >> 32n))];
  });
  return [...words, exponent >>> 0];
}
/** `exact.glsl` divides a normal number by this, so that it is below 1. */
const NORMAL_SCALE = 8;

/** @param {KernelContext} context */
export function randomKernels(context) {
  /**
   * Fills a tensor with random numbers. Elements 4g … 4g + 3 come from the four words of Philox 4x32-10 (Salmon et al. 2011) with key
   * `random[0..1]` and counter (g, stream, random[2], random[3]).
   *
   * `bits` are the words themselves. `uniform` is low + (high - low) · u, where u is the upper 24 bits of a word divided by 2^24; values lie in
   * [low, high). `normal` makes two elements from two words (Box & Muller 1958), at most 6.77 deviations from the mean; they have the same bits
   * on every device.
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
    finite(kernel, 'deviation', NORMAL_SCALE * deviation);
    const y = tensor(kernel, 'y', args.y);
    const state = tensor(kernel, 'random', args.random);
    context.checker?.check(kernel, [['random', state, 4, 'u32']], [['y', y, count, distribution === 'bits' ? 'u32' : 'f32']]);
    return context.dispatch(`random_${distribution}`, {
      buffers: [y.buffer, state.buffer],
      writes: 0b1,
      groups: context.strideGroups(Math.ceil(count / 4), context.flatThreads),
      specialization: [context.flatThreads],
      push: pushConstants(
        [
          ...[count, integer(kernel, 'stream', stream, 0, 0xffffffff), y.offset, state.offset],
          ...(distribution === 'normal' ? fixedPoint(mean, NORMAL_SCALE * deviation) : []),
        ],
        distribution === 'normal' ? [] : [low, span, below(high)],
      ),
    });
  }

  /**
   * Fills a tensor with a parameter's initial values, from the sequence of words that a seed determines: word n is word n mod 4 of Philox 4x32-10
   * with the seed as key and counter (⌊n / 4⌋, 0, 0). A `uniform` number takes one word, of which it uses the upper 24 bits, a `normal` one takes
   * two (Box & Muller 1958). Formulas are computed in 64-bit integers and rounded to f32 once, so that every device gets the same bits.
   * @param {object} args
   * @param {Tensor} args.y out: [count] f32
   * @param {number} args.count elements
   * @param {'uniform' | 'normal'} args.distribution the distribution of the elements
   * @param {number} [args.low] `uniform`: the least value; 0 when left out
   * @param {number} [args.high] `uniform`: the upper bound, at least `low`; 1 when left out. Rounding to f32 may reach it
   * @param {number} [args.mean] `normal`: the mean; 0 when left out
   * @param {number} [args.deviation] `normal`: the standard deviation, at least 0; 1 when left out
   * @param {number} args.seed an integer from 0 to 2^53 - 1
   * @param {number} args.first the first word's number, at most 2^53 - 1
   * @returns {Dispatch}
   * @throws {RangeError} where `high` is below `low`, or the deviation negative
   */
  function initial(args) {
    const kernel = 'initial';
    const { low = 0, high = 1, mean = 0, deviation = 1 } = args;
    const distribution = /** @type {const} */ (['uniform', 'normal'])[
      choice(kernel, 'distribution', args.distribution, ['uniform', 'normal'])
    ];
    const count = integer(kernel, 'count', args.count);
    for (const [name, value] of Object.entries({ low, high, mean, deviation })) finite(kernel, name, value);
    if (!(high - low >= 0)) throw new RangeError(`${kernel}: high must be at least low, got ${low} and ${high}`);
    finite(kernel, 'high - low', high - low);
    if (deviation < 0) throw new RangeError(`${kernel}: deviation must be at least 0, got ${deviation}`);
    finite(kernel, 'deviation', NORMAL_SCALE * deviation);
    const y = tensor(kernel, 'y', args.y);
    const [seed, first] = [args.seed, args.first].map((value, i) =>
      integer(kernel, ['seed', 'first'][i], value, 0, Number.MAX_SAFE_INTEGER),
    );
    context.checker?.check(kernel, [], [['y', y, count, 'f32']]);
    return context.dispatch(`initial_${distribution}`, {
      buffers: [y.buffer],
      writes: 0b1,
      groups: context.strideGroups(count, context.flatThreads),
      specialization: [context.flatThreads],
      push: pushConstants([
        ...[count, y.offset],
        ...[seed, first].flatMap((value) => [value % 2 ** 32, Math.floor(value / 2 ** 32)]),
        ...(distribution === 'normal' ? fixedPoint(mean, NORMAL_SCALE * deviation) : fixedPoint(low, high - low)),
      ]),
    });
  }

  return { random, initial };
}
