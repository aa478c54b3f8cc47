// Numbers of 8 and 16 bits with scales and zero points. They are multiplied as f32, whose sums of products of 8 bits are exact up to 2^24: those
// of MatMulInteger and ConvInteger, which have no scale, are of parts that stay below it.

import { TYPES, sizeOf, typeOf } from '../types.mjs';
import { centred, convolved, windowOf } from './convolution.mjs';
import { Value, axisOf, f, same } from './lib.mjs';
import { perChannel } from './network.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../types.mjs').Type} Type */
/** @typedef {import('../definitions.mjs').Computed} Computed */

/** @param {Type} type @returns {readonly [number, number]} */
const rangeOf = (type) => TYPES[/** @type {'int8'} */ (type)].range ?? [-(2 ** 31), 2 ** 31 - 1];

/** round(x) + zero, within a type's range. @param {Tensor} x f32 @param {Tensor | undefined} zero f32 @param {Type} type @returns {Value} */
export function saturated(x, zero, type) {
  const rounded = f.round(x);
  const [least, most] = rangeOf(type);
  return Value.of(type, f.to(f.clamp(zero ? f.add(rounded, zero) : rounded, least, most), TYPES[/** @type {'int8'} */ (type)].dtype));
}

/**
 * A scale or zero point in a shape that broadcasts: one for all, one for each index of an axis, or one for each block along it.
 * @param {Value} value @param {Value} x @param {number} axis @param {number} block
 * @returns {Tensor} f32
 */
function spreadOver(value, x, axis, block) {
  const y = f.to(value.tensor, 'f32');
  if (value.size === 1) return f.reshape(y, []);
  const d = axisOf(axis, x.rank);
  if (value.rank === 1 && !block)
    return f.reshape(
      y,
      x.shape.map((_size, i) => (i === d ? value.size : 1)),
    );
  const [outer, own, inner] = [sizeOf(value.shape.slice(0, d)), value.shape[d], sizeOf(value.shape.slice(d + 1))];
  const wide = f.expand(f.reshape(y, [outer, own, 1, inner]), [outer, own, block, inner]);
  return f.slice(f.reshape(wide, value.shape.with(d, own * block)), d, 0, x.shape[d]);
}

/** @type {Computed} */
const quantizeLinear = {
  buffers: [1, 2],
  run([x, scale, zero], { axis = 1, block_size: block = 0, output_dtype: dtype = 0, precision = 0 }) {
    const type = zero?.type ?? (dtype ? typeOf(dtype, 'the attribute output_dtype') : 'uint8');
    /** @type {Type} */
    const own = precision ? typeOf(precision, 'the attribute precision') : scale.type;
    // As many digits as the type of the division has. Operands are converted to a type that is asked for.
    const limited = (/** @type {Tensor} */ y) => (own === 'float16' || own === 'bfloat16' ? f.to(f.to(y, TYPES[own].dtype), 'f32') : y);
    const operands = [f.to(x.tensor, 'f32'), spreadOver(scale, x, axis, block)];
    const [a, b] = precision ? operands.map(limited) : operands;
    return saturated(limited(f.div(a, b)), zero && spreadOver(zero, x, axis, block), type);
  },
};

/** @type {Computed} */
const dequantizeLinear = {
  buffers: [1, 2],
  run([x, scale, zero], { axis = 1, block_size: block = 0, output_dtype: dtype = 0 }) {
    const y = f.to(x.tensor, 'f32');
    const shifted = zero ? f.sub(y, spreadOver(zero, x, axis, block)) : y;
    return same(dtype ? typeOf(dtype, 'the attribute output_dtype') : scale.type, f.mul(shifted, spreadOver(scale, x, axis, block)));
  },
};

/** The range of numbers, as a scale and a zero point of uint8. @param {Tensor} x f32 @returns {{ scale: Tensor, zero: Tensor }} f32 [] */
function rangeIn(x) {
  const flat = f.reshape(x, [x.size]);
  const [least, most] = [f.clamp(f.amin(flat), undefined, 0), f.clamp(f.amax(flat), 0)];
  // By a tensor: a division by a number multiplies by its reciprocal, whose results are often one unit in the last place away.
  const quotient = f.div(f.sub(most, least), f.full([], 255));
  // Zeros have no range. Their scale is 1, as in onnxruntime; 0 / 0 would be no number.
  const scale = f.where(f.eq(quotient, 0), f.full([], 1), quotient);
  return { scale, zero: f.clamp(f.round(f.div(f.neg(least), scale)), 0, 255) };
}

/** @type {Computed} */
const dynamicQuantizeLinear = {
  run([x]) {
    const { scale, zero } = rangeIn(x.tensor);
    return [saturated(f.div(x.tensor, scale), zero, 'uint8'), Value.of('float', scale), Value.of('uint8', f.to(zero, TYPES.uint8.dtype))];
  },
};

/** Numbers as DynamicQuantizeLinear makes them, less their zero point. @param {Tensor} x f32 @returns {{ rows: Tensor, scale: Tensor }} f32, whole numbers and [] */
export function dynamicallyQuantized(x) {
  const { scale, zero } = rangeIn(x);
  return { rows: f.sub(f.clamp(f.add(f.round(f.div(x, scale)), zero), 0, 255), zero), scale };
}

/** A scale or zero point of rows or columns. @param {Value} value @param {boolean} isRow @returns {number[]} */
const alongMatrix = (value, isRow) => (value.rank === 1 ? (isRow ? [value.size, 1] : [1, value.size]) : [...value.shape]);

/** How many products of two numbers of at most 255 have a sum that f32 has exactly. */
const EXACT = 256;

/** @type {Computed} */
const matMulInteger = {
  buffers: [2, 3],
  run([a, b, zeroA, zeroB]) {
    const x = centred(a, zeroA, zeroA ? alongMatrix(zeroA, true) : []);
    const y = centred(b, zeroB, zeroB ? alongMatrix(zeroB, false) : []);
    const size = /** @type {number} */ (x.shape.at(-1));
    const parts = [];
    for (let at = 0; at < size; at += EXACT) {
      const d = y.ndim === 1 ? 0 : -2;
      parts.push(f.to(f.matmul(f.slice(x, -1, at, Math.min(size, at + EXACT)), f.slice(y, d, at, Math.min(size, at + EXACT))), 'i32'));
    }
    return Value.of('int32', parts.length === 0 ? f.to(f.matmul(x, y), 'i32') : parts.reduce((p, q) => f.add(p, q)));
  },
};

/** @type {Computed} */
const qLinearMatMul = {
  buffers: [1, 2, 4, 5, 6, 7],
  run([a, scaleA, zeroA, b, scaleB, zeroB, scaleY, zeroY]) {
    const y = f.matmul(centred(a, zeroA, alongMatrix(zeroA, true)), centred(b, zeroB, alongMatrix(zeroB, false)));
    const whole = (/** @type {Value} */ value, /** @type {boolean} */ isRow) =>
      f.reshape(f.to(value.tensor, 'f32'), value.size === 1 ? [] : alongMatrix(value, isRow));
    const scale = f.div(f.mul(whole(scaleA, true), whole(scaleB, false)), whole(scaleY, true));
    return saturated(f.mul(y, scale), whole(zeroY, true), zeroY.type);
  },
};

/** @type {Computed} */
const qLinearConv = {
  buffers: [1, 2, 4, 5, 6, 7],
  run([x, scaleX, zeroX, weight, scaleW, zeroW, scaleY, zeroY, bias], attributes) {
    const ones = weight.shape.slice(1).map(() => 1);
    const window = windowOf(x.shape.slice(2), attributes, weight.shape.slice(2));
    const own = bias && f.to(bias.tensor, 'f32');
    const y = convolved(centred(x, zeroX, []), centred(weight, zeroW, [-1, ...ones]), own, window, attributes.group ?? 1);
    const scale = f.div(
      f.mul(f.reshape(scaleX.tensor, []), scaleW.size === 1 ? f.reshape(scaleW.tensor, []) : perChannel(scaleW.tensor, x.rank)),
      f.reshape(scaleY.tensor, []),
    );
    return saturated(f.mul(y, scale), f.reshape(f.to(zeroY.tensor, 'f32'), []), zeroY.type);
  },
};

/** @type {import('../definitions.mjs').Table} */
export const QUANTIZATION = {
  DequantizeLinear: dequantizeLinear,
  DynamicQuantizeLinear: dynamicQuantizeLinear,
  MatMulInteger: matMulInteger,
  QLinearConv: qLinearConv,
  QLinearMatMul: qLinearMatMul,
  QuantizeLinear: quantizeLinear,
};
