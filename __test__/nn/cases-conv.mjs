// Test cases of operations: convolutions and pools.

import { random, x } from './inputs.mjs';

/** @typedef {import('./inputs.mjs').Case} Case */

/** A convolution of few sizes, since each geometry is a pipeline of its own: x, the weight, the result and how windows go over x. */
function convolution() {
  const rank = random.between(1, 3);
  const list = (/** @type {number} */ low, /** @type {number} */ high) => Array.from({ length: rank }, () => random.between(low, high));
  const groups = random.pick([1, 1, 2]);
  const [batch, own, made] = [random.between(1, 2), random.between(1, 3), random.between(1, 3)];
  const [window, stride, dilation, padding, after] = [list(1, 3), list(1, 2), list(1, 2), list(0, 1), list(0, 1)];
  const size = window.map((w, d) => (w - 1) * dilation[d] + random.between(1, rank === 1 ? 9 : 3));
  const result = size.map((n, d) => Math.floor((n + padding[d] + after[d] - (window[d] - 1) * dilation[d] - 1) / stride[d]) + 1);
  return {
    image: [batch, groups * own, ...size],
    weight: [groups * made, own, ...window],
    result: [batch, groups * made, ...result],
    bias: [groups * made],
    how: { stride, padding, dilation, groups },
    after,
    size,
    window,
  };
}

/** @type {Record<string, () => Case>} */
export const cases = {
  convolution: () => {
    const { image, weight, bias, how, after } = convolution();
    return { inputs: [x(...image), x(...weight), ...(random.chance(0.5) ? [x(...bias)] : [])], attributes: { ...how, after } };
  },
  convolutionInput: () => {
    const { result, weight, image, how, size } = convolution();
    return { inputs: [x(...result), x(...weight), ...(random.chance(0.5) ? [x(image[1])] : [])], attributes: { ...how, size } };
  },
  convolutionWeight: () => {
    const { image, result, how, window } = convolution();
    return { inputs: [x(...image), x(...result)], attributes: { ...how, window } };
  },
};
