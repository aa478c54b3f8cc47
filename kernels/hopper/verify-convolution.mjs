// Tests a kernel in PTX for convolutions against float64 before its first use (see verify-products.mjs). The window is wider than tall, reaches over
// all sides of the image and steps backwards in one direction, as in an input gradient; the image and the result have gaps; tiles are inner and
// edge ones, whole or in parts.

import { pack } from '../base.mjs';
import { division } from './form.mjs';
import { CONVOLUTION_TILINGS, WINDOW_TILINGS } from './tilings.mjs';
import { generator, matrices } from './verify-products.mjs';

/** @typedef {import('./convolutions.mjs').Gathered} Gathered */

/** The pixel that a position meets at a tap, or -1 outside of the image. @param {Gathered} g @param {number} position @param {number} tap */
function pixelOf({ positions, size, window, stride, offset, step }, position, tap) {
  const [h, w] = [Math.floor(position / positions[1]) % positions[0], position % positions[1]];
  const row = h * stride[0] + offset[0] + Math.floor(tap / window[1]) * step[0];
  const column = w * stride[1] + offset[1] + (tap % window[1]) * step[1];
  if (row < 0 || row >= size[0] || column < 0 || column >= size[1]) return -1;
  return (Math.floor(position / (positions[0] * positions[1])) * size[0] + row) * size[1] + column;
}

/**
 * An element of the result, in float64.
 * @param {Gathered} g @param {Float64Array} x [pixels, channels] @param {Float64Array} weight [outputs, taps, channels]
 * @param {number} position @param {number} output
 */
function elementOf(g, x, weight, position, output) {
  const { window, channels } = g;
  const taps = window[0] * window[1];
  let sum = 0;
  for (let tap = 0; tap < taps; tap++) {
    const pixel = pixelOf(g, position, tap);
    if (pixel < 0) continue;
    for (let c = 0; c < channels; c++) sum += x[pixel * channels + c] * weight[(output * taps + tap) * channels + c];
  }
  return sum;
}

/**
 * Runs a kernel on a small convolution. Throws what the device throws: ERR_HELIOS_INVALID_BATCH while a graph is recorded.
 * @param {object} how
 * @param {import('../base.mjs').KernelContext} how.context
 * @param {import('./convolutions.mjs').Choice} how.choice @param {import('./convolutions.mjs').Effects} how.effects the kernels
 * @param {(g: Gathered, tensors: import('./convolutions.mjs').Tensors, choice: import('./convolutions.mjs').Choice,
 *   work?: import('../matmul/types.mjs').Placed) => import('../base.mjs').Dispatch[]} how.records
 * @returns {string | undefined} what is wrong with the result, or undefined
 */
export function verifyConvolution({ context: { vk }, choice: { name, how }, effects: { type, bias: hasBias, relu }, records }) {
  const { tiling } = CONVOLUTION_TILINGS[name];
  const channels = 2 * tiling.bk;
  const outputs = tiling.bn + 24;
  // More positions than rows of a tile.
  const positions = /** @type {[number, number]} */ ([Math.floor(tiling.bm / 24) + 1, 13]);
  const size = /** @type {[number, number]} */ ([positions[0] - 1, 25]);
  /** @type {Omit<Gathered, 'strides' | 'ldw' | 'ldy'>} */
  const shape = { type, batch: 2, outputs, channels, positions, size, window: [2, 3], stride: [1, 2], offset: [1, -2], step: [-1, 2] };
  const product = { m: 2 * positions[0] * positions[1], n: outputs, k: 6 * channels };
  const own = division(tiling, product, { blocks: 3, splits: how.parts > 1 ? 2 : 1 });
  const next = generator(3);
  const { made, make } = matrices();
  try {
    const x = make(vk, 2 * size[0] * size[1], channels, type, next);
    const weight = make(vk, outputs, product.k, type, next);
    const y = make(vk, product.m, outputs, type, undefined);
    const bias = hasBias ? make(vk, 1, outputs, 'f32', next, false) : undefined;
    const work = own.workspaceFloats > 0 ? make(vk, 1, own.workspaceFloats, 'f32', undefined, false) : undefined;
    /** @type {Gathered} */
    const g = { ...shape, strides: [size[0] * size[1] * x.ld, size[1] * x.ld, x.ld], ldw: weight.ld, ldy: y.ld };
    const tensors = { x: x.tensor, weight: weight.tensor, y: y.tensor, bias: bias?.tensor, relu };
    const { packed, count } = pack(records(g, tensors, { name, how: own }, work?.tensor));
    // While a graph is recorded this read throws, before the graph contains any of this.
    y.read();
    for (const { upload } of made) upload();
    vk.batchExecuteAll(packed, count);
    const result = y.read();
    if (!result.whole || work?.read().whole === false) return 'its test found memory written outside of its results';
    const rounding = type === 'bf16' ? 2 ** -8 : 2 ** -11;
    for (let i = 0; i < product.m; i++) {
      for (let j = 0; j < outputs; j++) {
        const sum = elementOf(g, x.values, weight.values, i, j) + (bias ? bias.values[j] : 0);
        const want = relu ? Math.max(sum, 0) : sum;
        const got = result.at(i, j);
        // Sums are exact; the result is rounded once.
        if (!(Math.abs(got - want) <= 1e-4 + (rounding + 1e-5) * Math.abs(want)))
          return `its test found ${got} at position ${i}, output ${j} of ${product.m} x ${outputs}, expected ${want}`;
      }
    }
    return undefined;
  } finally {
    for (const { destroy } of made) destroy();
  }
}

/**
 * Runs the two kernels of a weight gradient on a small convolution. Throws what the device throws, as `verifyConvolution`.
 * @param {object} how
 * @param {import('../base.mjs').KernelContext} how.context
 * @param {import('./convolutions.mjs').WeightChoice} how.choice
 * @param {Gathered['type']} how.type @param {'f32' | 'f16' | 'bf16'} how.weightType
 * @param {(g: Gathered, tensors: import('./convolutions.mjs').WeightTensors, weightType: 'f32' | 'f16' | 'bf16',
 *   choice: import('./convolutions.mjs').WeightChoice, work: import('../matmul/types.mjs').Placed) => import('../base.mjs').Dispatch[]} how.records
 * @returns {string | undefined} what is wrong with the result, or undefined
 */
export function verifyWeights({ context: { vk }, choice: { name, how }, type, weightType, records }) {
  const { tiling } = WINDOW_TILINGS[name];
  const [channels, outputs] = [64, tiling.bm + 24];
  // A stage of 16 is more than two rows of the result, and more than half of an image.
  const positions = /** @type {[number, number]} */ (how.ragged ? [4, 7] : [4, 6]);
  const size = /** @type {[number, number]} */ ([3, 13]);
  const product = { m: outputs, n: 6 * channels, k: 4 * positions[0] * positions[1] };
  if (how.ragged) product.k -= positions[0] * positions[1];
  const batch = product.k / (positions[0] * positions[1]);
  const own = division(tiling, product, { blocks: 3, splits: 2 });
  const next = generator(5);
  const { made, make } = matrices();
  try {
    const x = make(vk, batch * size[0] * size[1], channels, type, next);
    const dy = make(vk, product.k, outputs, type, next);
    const dw = make(vk, outputs, product.n, weightType, undefined, false);
    const work = make(vk, 1, own.workspaceFloats, 'f32', undefined, false);
    /** @type {Gathered} */
    const g = {
      ...{ type, batch, outputs, channels, positions, size, window: [2, 3], stride: [1, 2], offset: [-1, -1], step: [2, 1] },
      ...{ strides: [size[0] * size[1] * x.ld, size[1] * x.ld, x.ld], ldw: 8, ldy: dy.ld },
    };
    const { packed, count } = pack(
      records(g, { x: x.tensor, dy: dy.tensor, dWeight: dw.tensor }, weightType, { name, how: own }, work.tensor),
    );
    // While a graph is recorded this read throws, before the graph contains any of this.
    dw.read();
    for (const { upload } of made) upload();
    vk.batchExecuteAll(packed, count);
    const result = dw.read();
    if (!result.whole || !work.read().whole) return 'its test found memory written outside of its results';
    const rounding = { f32: 0, bf16: 2 ** -8, f16: 2 ** -11 }[weightType];
    const taps = g.window[0] * g.window[1];
    const sums = new Float64Array(channels);
    for (let o = 0; o < outputs; o++) {
      for (let tap = 0; tap < taps; tap++) {
        sums.fill(0);
        for (let q = 0; q < product.k; q++) {
          const pixel = pixelOf(g, q, tap);
          if (pixel < 0) continue;
          const factor = dy.values[q * outputs + o];
          for (let c = 0; c < channels; c++) sums[c] += factor * x.values[pixel * channels + c];
        }
        for (let c = 0; c < channels; c++) {
          const got = result.at(o, c * taps + tap);
          if (!(Math.abs(got - sums[c]) <= 1e-4 + (rounding + 1e-5) * Math.abs(sums[c])))
            return `its test found ${got} at output ${o}, channel ${c}, tap ${tap}, expected ${sums[c]}`;
        }
      }
    }
    return undefined;
  } finally {
    for (const { destroy } of made) destroy();
  }
}
