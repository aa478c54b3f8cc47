// Steps of optimizers as operators, of ONNX's domain for training.

import { f, same } from './lib.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../value.mjs').Value} Value */
/** @typedef {import('../definitions.mjs').Attributes} Attributes */
/** @typedef {import('../definitions.mjs').Computed} Computed */
/** @typedef {{ rate: Tensor, count: number, x: Tensor, gradient: Tensor, states: Tensor[], attributes: Attributes }} Step */

/**
 * An optimizer: its inputs are the rate, the count of updates, then all tensors, all gradients, and all of each kind of state.
 * @param {number} states how many kinds there are
 * @param {(step: Step) => Tensor[]} next the new tensor and states
 * @returns {Computed}
 */
const optimizer = (states, next) => ({
  host: [1],
  run([rate, count, ...rest], attributes) {
    const tensors = rest.length / (2 + states);
    const kind = (/** @type {number} */ k, /** @type {number} */ i) => rest[k * tensors + i];
    const all = Array.from({ length: tensors }, (_, i) => {
      const x = kind(0, i);
      const decay = attributes.norm_coefficient ?? 0;
      const gradient = f.add(f.mul(x.tensor, decay), kind(1, i).tensor);
      const own = Array.from({ length: states }, (_, s) => kind(2 + s, i).tensor);
      return next({ rate: rate.tensor, count: count.number, x: x.tensor, gradient, states: own, attributes }).map((y) => same(x.type, y));
    });
    return Array.from({ length: 1 + states }, (_, k) => all.map((each) => each[k])).flat();
  },
});

const adagrad = optimizer(1, ({ rate, count, x, gradient, states: [h], attributes: { decay_factor: decay = 0, epsilon = 1e-6 } }) => {
  const sum = f.add(h, f.square(gradient));
  const step = f.div(f.mul(gradient, f.div(rate, 1 + count * decay)), f.add(f.sqrt(sum), epsilon));
  return [f.sub(x, step), sum];
});

const adam = optimizer(2, ({ rate, count, x, gradient, states: [v, h], attributes }) => {
  const { alpha = 0.9, beta = 0.999, epsilon = 1e-6, norm_coefficient_post: post = 0 } = attributes;
  const mean = f.add(f.mul(v, alpha), f.mul(gradient, 1 - alpha));
  const squares = f.add(f.mul(h, beta), f.mul(f.square(gradient), 1 - beta));
  const adjusted = count > 0 ? f.mul(rate, Math.sqrt(1 - beta ** count) / (1 - alpha ** count)) : rate;
  const moved = f.sub(x, f.div(f.mul(mean, adjusted), f.add(f.sqrt(squares), epsilon)));
  return [f.mul(moved, 1 - post), mean, squares];
});

const momentum = optimizer(1, ({ rate, count, x, gradient, states: [v], attributes: { alpha, beta, mode } }) => {
  const sum = f.add(f.mul(v, alpha), f.mul(gradient, count > 0 ? beta : 1));
  const direction = mode === 'nesterov' ? f.add(gradient, f.mul(sum, alpha)) : sum;
  return [f.sub(x, f.mul(direction, rate)), sum];
});

/** @type {import('../definitions.mjs').Table} */
export const TRAINING = {
  'ai.onnx.preview.training.Adagrad': adagrad,
  'ai.onnx.preview.training.Adam': adam,
  'ai.onnx.preview.training.Momentum': momentum,
};
