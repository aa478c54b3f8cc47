// Operations that are one operator of ONNX together: a batch norm in evaluation mode, whose statistics then stay statistics.

import { equal } from './sizes.mjs';

/** @typedef {import('./graph.mjs').Value} Value */
/** @typedef {import('./operations.mjs').Operation} Operation */

/** @param {readonly Operation[]} operations @param {readonly Value[]} results @returns {Operation[]} */
export function withBatchNorms(operations, results) {
  /** @type {Map<Value, Operation[]>} */
  const users = new Map();
  for (const operation of operations) for (const value of operation.inputs) users.set(value, [...(users.get(value) ?? []), operation]);
  /** @type {Map<Operation, Operation>} */
  const replaced = new Map();
  for (const operation of operations) {
    const norm = batchNormAt(operation, (value) => (results.includes(value) ? [] : (users.get(value) ?? [])));
    if (norm) replaced.set(norm.last, norm.made);
  }
  return operations.map((operation) => replaced.get(operation) ?? operation);
}

/**
 * A batch norm whose product of the centered input and the scale is this operation: (x - mean) · (rsqrt(variance + eps) · weight) + bias.
 * @param {Operation} operation @param {(value: Value) => Operation[]} usersOf
 * @returns {{ last: Operation, made: Operation } | undefined} `last`: the operation that it takes the place of
 */
function batchNormAt(operation, usersOf) {
  const { producer } = operation;
  const from = (/** @type {Value} */ value, /** @type {string} */ name) => {
    const own = producer(value);
    return own?.name === name ? own : undefined;
  };
  if (operation.name !== 'mul') return undefined;
  const centered = from(operation.inputs[0], 'add');
  if (centered?.attributes.beta !== -1 || (centered.attributes.alpha ?? 1) !== 1) return undefined;
  const [x] = centered.inputs;
  if (x.shape.length < 2 || x.dtype !== 'f32') return undefined;
  /** A constant with a number for each channel, which was given dimensions of 1 behind. @param {Value} value */
  const channels = (value) => {
    const own = from(value, 'reshape')?.inputs[0];
    const { shape } = value;
    const fits = shape.length === x.shape.length - 1 && equal(shape[0], x.shape[1]) && shape.every((size, d) => d === 0 || size === 1);
    return own?.tensor && own.shape.length === 1 && fits ? own : undefined;
  };
  const mean = channels(centered.inputs[1]);
  const scaled = from(operation.inputs[1], 'mul');
  const inverse = from(scaled ? scaled.inputs[0] : operation.inputs[1], 'rsqrt');
  const shifted = inverse && from(inverse.inputs[0], 'affine');
  const variance = shifted?.attributes.alpha === 1 ? channels(shifted.inputs[0]) : undefined;
  const weight = scaled && channels(scaled.inputs[1]);
  if (!mean || !variance || (scaled && !weight)) return undefined;
  const [next, ...others] = usersOf(operation.outputs[0]);
  const adds = next?.name === 'add' && others.length === 0 && next.inputs[0] === operation.outputs[0];
  const bias = adds && (next.attributes.alpha ?? 1) === 1 && (next.attributes.beta ?? 1) === 1 ? channels(next.inputs[1]) : undefined;
  const last = bias ? next : operation;
  // Without a weight, or a bias, the operator still wants one.
  const inputs = [x, mean, variance, ...(weight ? [weight] : []), ...(bias ? [bias] : [])];
  const attributes = { eps: shifted?.attributes.beta, weight: weight !== undefined, bias: bias !== undefined };
  return { last, made: { ...last, name: 'batchNorm', attributes, inputs, body: undefined } };
}
