// Messages of models that tests make.

import { encode } from '../../src/proto.mjs';

export const FLOAT = 1;
export const INT64 = 7;
export const BOOL = 9;

/** @param {string} name @param {number[]} dims @param {ArrayLike<number>} data */
export const floats = (name, dims, data) => ({ name, dims, dataType: FLOAT, rawData: Buffer.from(Float32Array.from(data).buffer) });
/** @param {string} name @param {number[]} dims @param {number[]} data */
export const integers = (name, dims, data) => ({ name, dims, dataType: INT64, int64Data: data });
/** @param {string} name @param {(number | string)[]} sizes @param {number} [elemType] */
export const port = (name, sizes, elemType = FLOAT) => ({
  name,
  type: {
    tensorType: { elemType, shape: { dim: sizes.map((size) => (typeof size === 'number' ? { dimValue: size } : { dimParam: size })) } },
  },
});
/** @param {string} opType @param {string[]} input @param {string[]} output @param {object[]} [attribute] @param {object} [more] */
export const node = (opType, input, output, attribute = [], more = {}) => ({ opType, input, output, attribute, ...more });
export const int = (/** @type {string} */ name, /** @type {number} */ i) => ({ name, type: 2, i });
export const ints = (/** @type {string} */ name, /** @type {number[]} */ ints) => ({ name, type: 7, ints });
export const graphOf = (/** @type {string} */ name, /** @type {object} */ g) => ({ name, type: 5, g });
/** @param {object} graph @param {object} [more] */
export const bytesOf = (graph, more = {}) =>
  encode('ModelProto', { irVersion: 8, opsetImport: [{ domain: '', version: 17 }], graph, ...more });

export const WEIGHT = [1, 2, 3, 4, 5, 6];
/** relu(x W + b), [rows, 2] → [rows, 3]. */
export const linear = () => ({
  node: [node('Gemm', ['x', 'layer.weight', 'layer.bias'], ['h']), node('Relu', ['h'], ['y'])],
  initializer: [floats('layer.weight', [2, 3], WEIGHT), floats('layer.bias', [3], [0.5, -100, 1])],
  input: [port('x', ['rows', 2])],
  output: [port('y', ['rows', 3])],
});
