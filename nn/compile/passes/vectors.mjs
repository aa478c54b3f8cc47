// Replaces a product of a matrix and a vector by a multiplication and a sum, which fuse with their neighbours into one generated kernel. A
// product would be a separate kernel, most of whose tile is empty.

import { denseLayout, layoutOf } from '../../core/layout.mjs';
import { operations } from '../../ops/registry.mjs';
import { callInPlaceOf } from './calls.mjs';

/** @typedef {import('./calls.mjs').Call} Call */
/** @typedef {import('./calls.mjs').Context} Context */
/** @typedef {import('./calls.mjs').Value} Value */

/** The longest sum that is replaced. A product splits a longer one over several workgroups; a sum does not. */
const MAX_SUM = 1 << 15;

/**
 * Two operands to multiply element by element, and the dimension to sum over.
 * @typedef {{ matrix: Value, vector: Value, dim: number, bias?: Value }} VectorProduct
 */

/** The same memory as a matrix. @param {Value} value @param {number[]} shape @param {number[]} strides @returns {Value} */
const as = ({ allocation, layout }, shape, strides) => ({ allocation, layout: layoutOf(shape, strides, layout.offset, layout.dtype) });

/**
 * An f32 product whose result has one column or one row.
 * @param {Call} call @returns {VectorProduct | undefined} undefined for any other call
 */
function vectorProduct({ op, inputs: [a, b, bias], outputs: [y] }) {
  if ((op?.name !== 'linear' && op?.name !== 'matmul') || a.layout.dtype !== 'f32') return undefined;
  const inner = a.layout.shape.at(-1) ?? 1;
  if (inner < 2 || inner > MAX_SUM || y.layout.size === 1) return undefined;
  if (op.name === 'linear') {
    if (b.layout.shape[0] !== 1 || !a.layout.contiguous || !b.layout.contiguous) return undefined;
    return { matrix: a, vector: b, dim: a.layout.shape.length - 1, bias };
  }
  if (y.layout.shape.length !== 2) return undefined;
  const [rows, columns] = y.layout.shape;
  if (columns === 1) return { matrix: a, vector: as(b, [1, inner], [0, b.layout.strides[0]]), dim: 1 };
  if (rows === 1) return { matrix: b, vector: as(a, [inner, 1], [a.layout.strides[1], 0]), dim: 0 };
  return undefined;
}

/**
 * @param {Call[]} calls @param {Context} context
 * @returns {import('./calls.mjs').Passed} the calls, and how many products were replaced
 */
export function vectors(calls, { allocate }) {
  let replaced = 0;
  const result = calls.flatMap((call) => {
    const product = vectorProduct(call);
    if (!product) return [call];
    replaced++;
    const { matrix, vector, dim, bias } = product;
    const [y] = call.outputs;
    /** @param {string} name @param {Call['attributes']} attributes @param {Value[]} inputs @param {Value} output @returns {Call} */
    const made = (name, attributes, inputs, output) =>
      callInPlaceOf(call, { op: operations.get(name), attributes, inputs, outputs: [output] });
    const temporary = (/** @type {readonly number[]} */ shape) => {
      const layout = denseLayout(shape, 'f32');
      return { allocation: allocate(4 * layout.size), layout };
    };
    const terms = temporary(matrix.layout.shape);
    const sums = bias ? temporary(y.layout.shape) : y;
    const calls = [made('mul', {}, [matrix, vector], terms), made('sum', { dims: [dim], alpha: 1 }, [terms], sums)];
    return bias ? [...calls, made('add', {}, [sums, bias], y)] : calls;
  });
  return { calls: result, found: replaced };
}
