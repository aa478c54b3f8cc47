// Operations that are one operator of ONNX together: a batch norm in evaluation mode, whose statistics then stay statistics.

import { equal } from './sizes.mjs';

/** @typedef {import('./graph.mjs').Value} Value */
/** @typedef {import('./operations.mjs').Operation} Operation */

/** @param {readonly Operation[]} operations @returns {Operation[]} */
export const withBatchNorms = (operations) => operations.map((operation) => batchNormAt(operation) ?? operation);

/**
 * A batch norm by constant statistics: (x - mean) · rsqrt(variance + eps) · weight + bias.
 * @param {Operation} operation @returns {Operation | undefined} what takes its place
 */
function batchNormAt(operation) {
  const { producer } = operation;
  const from = (/** @type {Value} */ value, /** @type {string} */ name) => {
    const own = producer(value);
    return own?.name === name ? own : undefined;
  };
  if (operation.name !== 'normalizeChannels') return undefined;
  const [x, mean, inverse, weight, bias] = operation.inputs;
  if (x.shape.length < 2 || x.dtype !== 'f32') return undefined;
  /** A constant with a number for each channel, which was given dimensions of 1 behind. @param {Value} value */
  const channels = (value) => {
    const own = from(value, 'reshape')?.inputs[0];
    const { shape } = value;
    const fits = shape.length === x.shape.length - 1 && equal(shape[0], x.shape[1]) && shape.every((size, d) => d === 0 || size === 1);
    return own?.tensor && own.shape.length === 1 && fits ? own : undefined;
  };
  /** Whether a value is that of a norm without a parameter. @param {Value} value @param {number} number */
  const isNumber = (value, number) => {
    const made = from(value, 'reshape')?.inputs[0];
    return made !== undefined && from(made, 'full')?.attributes.value === number;
  };
  const shifted = from(inverse, 'rsqrt')?.inputs[0];
  const sum = shifted && from(shifted, 'affine');
  const statistics = [channels(mean), sum?.attributes.alpha === 1 ? channels(sum.inputs[0]) : undefined];
  const parameters = [channels(weight), channels(bias)];
  if (!statistics[0] || !statistics[1] || !sum) return undefined;
  if ((!parameters[0] && !isNumber(weight, 1)) || (!parameters[1] && !isNumber(bias, 0))) return undefined;
  const inputs = [x, ...statistics, ...parameters].filter((value) => value !== undefined);
  // Without a weight, or a bias, the operator still wants one.
  const attributes = { eps: sum.attributes.beta, weight: parameters[0] !== undefined, bias: parameters[1] !== undefined };
  return { ...operation, name: 'batchNorm', attributes, inputs, body: undefined };
}
