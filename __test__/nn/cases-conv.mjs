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

/** A pool: the shapes of x and y, and how windows go over x. @param {boolean} dilates */
function pool(dilates) {
  const rank = random.between(1, 3);
  const list = (/** @type {number} */ low, /** @type {number} */ high) => Array.from({ length: rank }, () => random.between(low, high));
  const size = list(3, 6);
  const lead = [random.between(1, 2), random.between(1, 3)];
  if (random.chance(0.3)) {
    const result = list(1, 4);
    return { image: [...lead, ...size], result: [...lead, ...result], how: { size, result } };
  }
  const [window, stride] = [list(1, 3), list(1, 2)];
  const dilation = list(1, dilates ? 2 : 1).map((d, i) => ((window[i] - 1) * d + 1 > size[i] ? 1 : d));
  const padding = window.map((w) => random.between(0, Math.floor(w / 2)));
  const result = size.map((n, d) => Math.floor((n + 2 * padding[d] - (window[d] - 1) * dilation[d] - 1) / stride[d]) + 1);
  return {
    image: [...lead, ...size],
    result: [...lead, ...result],
    how: { size, result, window, stride, padding, ...(dilates ? { dilation } : {}) },
  };
}
/** Values in a random order, none close to another: small changes do not change which is the largest. @param {number[]} shape */
function apart(shape) {
  const count = shape.reduce((a, b) => a * b, 1);
  const order = random.sample([...Array(count).keys()], count);
  return { shape, values: Float64Array.from(order, (v) => (v - count / 2) / 8) };
}
/** An index that is in the window of result i: its first element within x. @param {any} how any: of either kind of pool @param {number} i */
function middle({ size, result, window, stride, padding }, i) {
  let [index, step] = [0, 1];
  for (let d = size.length - 1; d >= 0; d--) {
    const q = i % result[d];
    i = Math.floor(i / result[d]);
    index += step * Math.max(0, window ? q * stride[d] - padding[d] : Math.floor((q * size[d]) / result[d]));
    step *= size[d];
  }
  return index;
}
/** What means are divided by. */
const divisors = () => random.pick([{}, { countIncludePad: false }, { divisor: 3 }]);

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
  maxPool: () => {
    const { image, how } = pool(true);
    return { inputs: [apart(image)], attributes: how };
  },
  maxPoolBackward: () => {
    const { result, how } = pool(false);
    const count = result.reduce((a, b) => a * b, 1);
    // An index in the window of each: its element in the middle of x.
    const indices = Float64Array.from({ length: count }, (_, i) => middle(how, i));
    return { inputs: [x(...result), { shape: result, values: indices, dtype: 'i32', constant: true }], attributes: how };
  },
  avgPool: () => {
    const { image, how } = pool(false);
    return { inputs: [x(...image)], attributes: { ...how, ...divisors() } };
  },
  avgPoolBackward: () => {
    const { result, how } = pool(false);
    return { inputs: [x(...result)], attributes: { ...how, ...divisors() } };
  },
};
