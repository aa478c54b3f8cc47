// Depthwise convolutions of halves stored channels last: each channel has a window of its own.

import { ceilDiv } from '../base.mjs';

/** @typedef {import('../base.mjs').KernelContext} KernelContext */

/** Most positions that share what they gather, of a row: their sums are in registers. In weight gradients the taps' sums are, too. */
const [MAX_STRIP, MAX_STRIP_OF_WEIGHTS, MAX_TAPS] = [8, 4, 8];
/** Most columns that a strip reaches: the loops over them are unrolled. */
const MAX_REACH = 80;
/** Most terms in one chain of additions in f32. */
const MAX_CHAIN = 1 << 12;

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
 */

/** @param {KernelContext} context */
export function depthwisePlans(context) {
  const { info, tuning } = context;
  const threads = Math.min(128, info.maxComputeWorkGroupInvocations);

  /** Vectors of eight channels of a workgroup. @param {number} channels */
  const vectorsOf = (channels) => [8, 4, 2].find((n) => (channels / 8) % n === 0) ?? 1;
  /** Columns that a strip reaches. @param {Depthwise} d @param {number} strip @param {number} taps */
  const reachOf = ({ stride, dilation }, strip, taps) => (strip - 1) * stride[1] + (taps - 1) * dilation[1] + 1;

  /**
   * The plan of a forward pass or an input gradient, or undefined where the kernel does not take it.
   * @param {Depthwise} d
   */
  function gathered(d) {
    const { batch, channels, window, result } = d;
    const vectors = vectorsOf(channels);
    const rows = batch * result[0] * (channels / 8);
    let strip = evenly(result[1], MAX_STRIP);
    // A strip each, and still too few threads to fill the device: shorter ones.
    while (strip > 1 && rows * ceilDiv(result[1], strip) < 2 * tuning.units * threads) strip = ceilDiv(strip, 2);
    const reach = reachOf(d, strip, window[1]);
    if (reach > MAX_REACH || 32 * window[0] * window[1] * vectors > context.sharedBytes) return undefined;
    // Also of loops that a compiler does not unroll.
    const rounds =
      ceilDiv(window[0] * window[1] * vectors * 8, threads) + window[0] * (3 + Math.max(reach, window[1]) * (2 + strip)) + 2 * strip;
    if (!context.takesRounds(rounds)) return undefined;
    const strips = batch * result[0] * ceilDiv(result[1], strip);
    return {
      threads,
      tiles: ceilDiv(channels / 8, vectors) * ceilDiv(strips, threads / vectors),
      specialization: [vectors, strip, 1],
    };
  }

  /**
   * The plan of a weight gradient, or undefined where the kernel does not take it.
   * @param {Depthwise} d
   */
  function weights(d) {
    const { batch, channels, window, result } = d;
    const vectors = vectorsOf(channels);
    const [strip, taps] = [evenly(result[1], MAX_STRIP_OF_WEIGHTS), evenly(window[1], MAX_TAPS)];
    const reach = reachOf(d, strip, taps);
    if (reach > MAX_REACH || 32 * threads > context.sharedBytes) return undefined;
    const [rows, workers] = [batch * result[0], threads / vectors];
    const tiles = ceilDiv(channels / 8, vectors) * window[0] * ceilDiv(window[1], taps);
    // Eight workgroups a unit hide each other's loads.
    const filling = Math.max(1, Math.min(ceilDiv(8 * tuning.units, tiles), ceilDiv(rows, workers)));
    const chain = Math.max(1, Math.floor(MAX_CHAIN / result[1])) * workers;
    const most = Math.min(context.maxGroups, Math.floor(context.bindingBytes / (4 * channels * window[0] * window[1])));
    const kPerSplit = ceilDiv(rows, Math.min(most, Math.max(filling, ceilDiv(rows, chain))));
    const rounds = ceilDiv(kPerSplit, workers) * (2 + ceilDiv(result[1], strip) * (2 + strip + reach * (2 + strip))) + taps * (2 + workers);
    if (!context.takesRounds(rounds)) return undefined;
    return { threads, tiles, kPerSplit, splits: ceilDiv(rows, kPerSplit), specialization: [vectors, strip, taps] };
  }

  return { gathered, weights };
}
