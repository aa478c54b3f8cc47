// Normalization of channels by their means and variances over a batch: elementwise, so that it fuses with what stands beside it.

import { broadcastShapes, denseLayout, isChannelsLast } from '../core/layout.mjs';
import { floatType, generated, inOrder } from './pointwise.mjs';
import { at, generate } from './reference.mjs';
import { defineOp } from './registry.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('./reference.mjs').Reference} Reference */
/** @typedef {import('./registry.mjs').Op} Op */

/** Of the statistics: how many elements a channel has where they are those of x itself; else 0. @typedef {{ count: number }} Statistics */

/** One element after another of operands that broadcast. @param {Reference[]} inputs @param {(...values: number[]) => number} f */
const each = (inputs, f) =>
  generate(broadcastShapes('batchNorm', ...inputs.map(({ shape }) => shape)), (index) => f(...inputs.map((x) => at(x, index))));

/** @typedef {(inputs: Tensor[], run: (inputs: Tensor[]) => Tensor) => Tensor} Prepare */
/** Copies operands of other strides: all of a kernel's have to fit its push constants. @type {Prepare} */
const prepare = (inputs, run) =>
  inOrder(
    'batchNorm',
    inputs.map((x) => (isChannelsLast(x.layout) ? x : x.contiguous())),
    run,
  );

/** x - k in f32, where k is one number for each channel. */
export const centered = defineOp({
  name: 'centered',
  infer: ([x]) => [denseLayout(x.shape, 'f32')],
  ...generated('centered', (p, [x, k]) => p.append('sub', x, k)),
  prepare,
  oracle: (inputs) => each(inputs, (x, k) => x - k),
});

/** dy · x̂ in f32, with x̂ = (x - mean) · inverse: of its sums over channels is the gradient of `weight`. */
const productWithNormalized = defineOp({
  name: 'productWithNormalized',
  infer: ([x]) => [denseLayout(x.shape, 'f32')],
  ...generated('productWithNormalized', (p, [x, dy, mean, inverse]) =>
    p.append('mul', dy, p.append('mul', p.append('sub', x, mean), inverse)),
  ),
  prepare,
  oracle: (inputs) => each(inputs, (x, dy, mean, inverse) => dy * (x - mean) * inverse),
});

/**
 * The gradient of x in `normalizeChannels`: a · (dy - sumDy / n - x̂ · sumDyX / n) with a = weight · inverse and x̂ = (x - mean) · inverse (Ioffe &
 * Szegedy 2015); without statistics of x itself a · dy.
 */
const normalizeChannelsBackward = defineOp({
  name: 'normalizeChannelsBackward',
  infer: ([x]) => [denseLayout(x.shape, x.dtype)],
  ...generated(
    'normalizeChannelsBackward',
    (p, [x, dy, mean, inverse, weight, sumDy, sumDyX], /** @type {Statistics} */ { count }, numbers) => {
      const [share] = count === 0 ? [] : numbers(1 / count);
      const scale = p.append('mul', weight, inverse);
      if (count === 0) return p.append('mul', dy, scale);
      const normalized = p.append('mul', p.append('sub', x, mean), inverse);
      const common = p.append('mul', p.append('add', sumDy, p.append('mul', normalized, sumDyX)), share);
      return p.append('mul', p.append('sub', dy, common), scale);
    },
  ),
  prepare,
  oracle: (inputs, { count }) =>
    each(inputs, (x, dy, mean, inverse, weight, sumDy, sumDyX) =>
      count === 0 ? dy * weight * inverse : weight * inverse * (dy - (sumDy + (x - mean) * inverse * sumDyX) / count),
    ),
});

/**
 * (x - mean) · inverse · weight + bias, each but x one number for each channel; `inverse` is 1 / √(variance + eps). Where `count` says that both are
 * functions of x, the gradient of x is the whole one.
 * @type {Op}
 */
export const normalizeChannels = defineOp({
  name: 'normalizeChannels',
  infer: ([x]) => {
    floatType('batchNorm', x);
    return [denseLayout(x.shape, x.dtype)];
  },
  ...generated('normalizeChannels', (p, [x, mean, inverse, weight, bias]) =>
    p.append('add', p.append('mul', p.append('mul', p.append('sub', x, mean), inverse), weight), bias),
  ),
  prepare,
  saveInputs: () => [0, 1, 2, 3],
  vjp: (dy, { inputs: [x, mean, inverse, weight], layouts: [, , , scale, shift], needs, attributes }, F) => {
    // One kernel of both sums, and one of the gradient, if a function is compiled.
    const sumDy = F.sumTo(F.to(dy, 'f32'), shift.shape);
    const sumDyX = F.sumTo(F.call(productWithNormalized, [x, dy, mean, inverse]), scale.shape);
    return [
      needs[0] ? F.call(normalizeChannelsBackward, [x, dy, mean, inverse, weight, sumDy, sumDyX], attributes) : undefined,
      needs[1] ? F.neg(F.mul(F.mul(weight, inverse), sumDy)) : undefined,
      needs[2] ? F.div(F.mul(weight, sumDyX), inverse) : undefined,
      needs[3] ? sumDyX : undefined,
      needs[4] ? sumDy : undefined,
    ];
  },
  oracle: (inputs) => each(inputs, (x, mean, inverse, weight, bias) => (x - mean) * inverse * weight + bias),
});
