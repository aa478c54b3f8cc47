/**
 * The model's state on the host: arrays by name, as `Gpt.stateDict()` names tensors on the device, and the values that a run starts from.
 * Works without a device: a checkpoint is checked and a model's size is known before any of its memory exists.
 */

import { Random } from './random.mjs';

/** @typedef {import('./config.mjs').ModelConfig} ModelConfig */
/** @typedef {Record<string, Float32Array>} HostState one value of each parameter (weights, or one of the moments), by the parameter's name */

/** Standard deviation of the matrices at the start. */
const STD = 0.02;

/**
 * The shape of each parameter, by name, in the order of `Gpt.stateDict()`. Weights of products are `[outputs, inputs]`.
 * @param {Omit<ModelConfig, 'heads'>} model
 * @returns {Record<string, number[]>}
 */
export function parameterShapes({ layers, width, hidden, block, vocab }) {
  /** @type {Record<string, number[]>} */
  const shapes = {
    'token_embedding.weight': [vocab, width],
    'position_embedding.weight': [block, width],
  };
  for (let i = 0; i < layers; i++) {
    Object.assign(shapes, {
      [`layers.${i}.attention_norm.weight`]: [width],
      [`layers.${i}.attention.qkv.weight`]: [3 * width, width],
      [`layers.${i}.attention.output.weight`]: [width, width],
      [`layers.${i}.mlp_norm.weight`]: [width],
      [`layers.${i}.mlp.gate_up.weight`]: [2 * hidden, width],
      [`layers.${i}.mlp.down.weight`]: [width, hidden],
    });
  }
  return Object.assign(shapes, { 'norm.weight': [width], 'head.weight': [vocab, width] });
}

/** Elements of a shape. @param {number[]} shape */
export const sizeOf = (shape) => shape.reduce((a, b) => a * b, 1);

/** Number of parameters. @param {Omit<ModelConfig, 'heads'>} model */
export const parameterCount = (model) => Object.values(parameterShapes(model)).reduce((sum, shape) => sum + sizeOf(shape), 0);

/** Whether a parameter is the weight of an RMSNorm: it starts at 1 and does not decay. @param {string} name */
export const isNorm = (name) => name.endsWith('norm.weight');

/**
 * The weights that a run starts from: ones for norms; matrices from a normal distribution of standard deviation 0.02, those that write
 * into the residual stream from 0.02 / sqrt(2 · layers) (GPT-2). Each matrix has a random stream of its own, so its values do not depend on
 * the sizes of the others.
 * @param {ModelConfig} model
 * @param {number} seed
 * @returns {HostState}
 */
export function initialWeights(model, seed) {
  const residual = STD / Math.sqrt(2 * model.layers);
  let matrices = 0;
  /** @param {string} name @param {number} size */
  const valuesOf = (name, size) => {
    const values = new Float32Array(size);
    if (isNorm(name)) return values.fill(1);
    const std = /\.(attention\.output|mlp\.down)\.weight$/.test(name) ? residual : STD;
    const random = new Random(seed, 1, matrices++);
    for (let i = 0; i < size; i++) values[i] = std * random.normal();
    return values;
  };
  return Object.fromEntries(Object.entries(parameterShapes(model)).map(([name, shape]) => [name, valuesOf(name, sizeOf(shape))]));
}
