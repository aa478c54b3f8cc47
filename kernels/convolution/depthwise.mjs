// Depthwise convolutions of halves stored channels last: each channel has a window of its own.

import { ceilDiv } from '../base.mjs';
import { MAX_CHAIN } from './plan.mjs';

/** @typedef {import('../base.mjs').KernelContext} KernelContext */

/** Most positions that share what they gather, of a row: their sums are in registers. In weight gradients the taps' sums are, too. */
const [MAX_STRIP, MAX_STRIP_OF_WEIGHTS, MAX_TAPS] = [8, 4, 8];
/** Most columns that a strip reaches: the loops over them are unrolled. */
const MAX_REACH = 160;
/** Columns of dy that a thread takes at a time. */
const MAX_SEGMENT = 64;

/** The largest part of a row, at most `most`, of which several cover it with the least left over. @param {number} n @param {number} most */
const evenly = (n, most) => ceilDiv(n, ceilDiv(n, most));

/**
 * What a depthwise convolution is of. Lists have the numbers of rows and columns.
 * @typedef {object} Depthwise
 * @property {number} batch
 * @property {number} channels
 * @property {readonly number[]} window
 * @property {readonly number[]} stride
 * @property {readonly number[]} dilation
 * @property {readonly number[]} result sizes of what is written; of weight gradients, of dy
 * @property {boolean} [isInput] whether it is the gradient of x
 */

/** `tiles`: workgroups; `specialization`: constants from 17 on. @typedef {{ threads: number, tiles: number, specialization: number[] }} GatheredPlan */

/** @param {KernelContext} context */
export function depthwisePlanner(context) {
  const { info, tuning } = context;
  const threads = Math.min(128, info.maxComputeWorkGroupInvocations);

  /** Vectors of eight channels of a workgroup, which holds so many bytes of each. @param {number} channels @param {number} bytes */
  const vectorsOf = (channels, bytes) => [8, 4, 2].find((n) => (channels / 8) % n === 0 && n * bytes <= context.sharedBytes) ?? 1;
  /** Columns that a strip reaches. @param {Depthwise} d @param {number} strip @param {number} taps */
  const reachOf = ({ stride, dilation }, strip, taps) => (strip - 1) * stride[1] + (taps - 1) * dilation[1] + 1;
  /** The largest part of a strip that reaches no further than MAX_REACH. @param {Depthwise} d @param {number} strip @param {number} taps */
  function shortened(d, strip, taps) {
    while (strip > 1 && reachOf(d, strip, taps) > MAX_REACH) strip = ceilDiv(strip, 2);
    return strip;
  }

  /**
   * The plan of a forward pass or an input gradient, or undefined where the kernel does not take it.
   * @param {Depthwise} d @returns {GatheredPlan | undefined}
   */
  function gathered(d) {
    const { batch, channels, window, result, isInput = false } = d;
    const bytes = 32 * window[0] * window[1];
    const vectors = vectorsOf(channels, bytes);
    const rows = batch * result[0] * (channels / 8);
    let strip = shortened(d, evenly(result[1], MAX_STRIP), window[1]);
    // A strip each, and still too few threads to fill the device: shorter ones.
    while (strip > 1 && rows * ceilDiv(result[1], strip) < 2 * tuning.units * threads) strip = ceilDiv(strip, 2);
    const reach = reachOf(d, strip, window[1]);
    if (reach > MAX_REACH || bytes * vectors > context.sharedBytes) return undefined;
    // Also of loops that a compiler does not unroll.
    const rounds =
      ceilDiv(window[0] * window[1] * vectors * 8, threads) + window[0] * (3 + Math.max(reach, window[1]) * (2 + strip)) + 2 * strip;
    if (!context.takesRounds(rounds)) return undefined;
    const strips = batch * result[0] * ceilDiv(result[1], strip);
    return {
      threads,
      tiles: ceilDiv(channels / 8, vectors) * ceilDiv(strips, threads / vectors),
      specialization: [vectors, strip, 1, Number(isInput)],
    };
  }

  /**
   * The plan of a weight gradient, or undefined where the kernel does not take it.
   * @param {Depthwise} d
   */
  function weights(d) {
    const { batch, channels, window, result } = d;
    const vectors = vectorsOf(channels, 0);
    const taps = evenly(window[1], MAX_TAPS);
    const strip = shortened(d, evenly(result[1], MAX_STRIP_OF_WEIGHTS), taps);
    const reach = reachOf(d, strip, taps);
    if (reach > MAX_REACH || 32 * threads > context.sharedBytes) return undefined;
    // Whole strips: a long row is shared by several threads.
    const segment = strip * ceilDiv(evenly(result[1], MAX_SEGMENT), strip);
    const units = batch * result[0] * ceilDiv(result[1], segment);
    const workers = threads / vectors;
    const tiles = ceilDiv(channels / 8, vectors) * window[0] * ceilDiv(window[1], taps);
    // Eight workgroups a unit of the device hide each other's loads.
    const filling = Math.min(ceilDiv(8 * tuning.units, tiles), ceilDiv(units, workers));
    const chain = Math.floor(MAX_CHAIN / segment) * workers;
    const most = Math.min(context.maxGroups, Math.floor(context.bindingBytes / (4 * channels * window[0] * window[1])));
    const kPerSplit = ceilDiv(units, Math.max(1, Math.min(most, Math.max(filling, ceilDiv(units, chain)))));
    const rounds =
      ceilDiv(kPerSplit, workers) * (2 + ceilDiv(segment, strip) * (2 + strip + reach * (2 + strip)) + strip * (2 + taps)) +
      taps * (2 + workers);
    if (!context.takesRounds(rounds)) return undefined;
    return { threads, tiles, kPerSplit, splits: ceilDiv(units, kPerSplit), specialization: [vectors, strip, taps, 0, segment] };
  }

  return { gathered, weights };
}
