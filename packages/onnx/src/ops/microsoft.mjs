// Operators of `com.microsoft` with quantized numbers: those that onnxruntime's quantizer writes beside `QLinearConv` and `QLinearMatMul` (its format
// QOperator), each with one scale and zero point; products of floats with weights of 8 bits; and weights of few bits in blocks, as language models
// have them.

import { CONVOLUTION, centred } from './convolution.mjs';
import { ELEMENTWISE } from './elementwise.mjs';
import { Value, axisOf, f, indexOf, same, strict } from './lib.mjs';
import { QUANTIZATION, dynamicallyQuantized, saturated } from './quantization.mjs';
import { REDUCTIONS } from './reductions.mjs';
import { NO_CACHE, SELF_ATTENTION, selfAttention } from './transformers.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../types.mjs').Type} Type */
/** @typedef {import('../definitions.mjs').Computed} Computed */

const ONNX = /** @type {Record<string, Computed>} */ ({ ...CONVOLUTION, ...ELEMENTWISE, ...QUANTIZATION, ...REDUCTIONS });

/** One for all. @param {Value} scale or zero point */
const whole = (scale) => f.reshape(f.to(scale.tensor, 'f32'), []);

/** What multiplies columns: one number, or one for each. @param {Value} scale */
const ofColumns = (scale) => (scale.size === 1 ? whole(scale) : f.reshape(f.to(scale.tensor, 'f32'), [-1]));

/** (x - zero) · scale. @param {Value} x @param {Value} scale @param {Value | undefined} zero 0 when left out */
const real = (x, scale, zero) => Value.of('float', f.mul(centred(x, zero, []), whole(scale)));

/** As QuantizeLinear does. @param {Value} y @param {Value} scale @param {Value | undefined} zero @param {Type} type when there is no zero point */
const quantized = ({ tensor }, scale, zero, type) => saturated(f.div(tensor, whole(scale)), zero && whole(zero), zero?.type ?? type);

/**
 * An operator whose inputs are x, its scale and its zero point for each operand, behind them the result's scale and zero point.
 * @param {string} op of ONNX @param {number} [operands] @returns {Computed}
 */
const around = (op, operands = 1) => ({
  buffers: Array.from({ length: 3 * operands + 2 }, (_, i) => i).filter((i) => i % 3 !== 0 || i === 3 * operands),
  run(inputs, attributes, call) {
    const given = Array.from({ length: operands }, (_, i) => real(inputs[3 * i], inputs[3 * i + 1], inputs[3 * i + 2]));
    // A softmax says of which opset it is.
    const y = ONNX[op].run(given, attributes, { ...call, opset: attributes.opset ?? 13 });
    return quantized(/** @type {Value} */ (y), inputs[3 * operands], inputs[3 * operands + 1], inputs[0].type);
  },
});

/** @type {Computed} */
const qLinearConcat = {
  run([scale, zero, ...inputs], { axis }) {
    const parts = [];
    for (let i = 0; i < inputs.length; i += 3) parts.push(real(inputs[i], inputs[i + 1], inputs[i + 2]));
    const joined = f.cat(
      parts.map(({ tensor }) => tensor),
      axisOf(axis, parts[0].rank),
    );
    return quantized(Value.of('float', joined), scale, zero, inputs[0].type);
  },
};

/** @type {Computed} */
const qLinearWhere = {
  buffers: [2, 3, 5, 6, 7, 8],
  run([condition, x, scaleX, zeroX, y, scaleY, zeroY, scale, zero]) {
    const z = f.where(condition.tensor, real(x, scaleX, zeroX).tensor, real(y, scaleY, zeroY).tensor);
    return quantized(Value.of('float', z), scale, zero, x.type);
  },
};

/** alpha · scaleA · scaleB · (A B + C), C having the scale of the product. Without a scale of its own the result is f32. @type {Computed} */
const qGemm = {
  buffers: [1, 2, 4, 5, 7, 8],
  run([a, scaleA, zeroA, b, scaleB, zeroB, c, scale, zero], { alpha = 1, transA = 0, transB = 0 }, call) {
    const turned = (/** @type {Value} */ x, /** @type {number} */ is) => (is ? Value.of(x.type, f.transpose(x.tensor, 0, 1)) : x);
    const product = /** @type {Value} */ (
      ONNX.MatMulInteger.run([turned(a, transA), turned(b, transB), zeroA, zeroB], call.node.attributes, call)
    );
    const sum = f.to(c ? f.add(product.tensor, c.tensor) : product.tensor, 'f32');
    const y = Value.of('float', f.mul(sum, f.mul(f.mul(whole(scaleA), ofColumns(scaleB)), alpha)));
    return scale ? quantized(y, scale, zero, a.type) : y;
  },
};

/** A product of quantized numbers. @param {Value} a @param {Value} b @param {Value} scaleA @param {Value} scaleB @param {Value | undefined} zeroA @param {Value | undefined} zeroB */
const scaledProduct = (a, b, scaleA, scaleB, zeroA, zeroB) =>
  f.mul(f.matmul(centred(a, zeroA, []), centred(b, zeroB, [1, -1])), f.mul(whole(scaleA), ofColumns(scaleB)));

/** @param {Type} type @param {Tensor} y f32 @param {Value | undefined} bias */
const plus = (type, y, bias) => same(type, bias ? f.add(y, f.to(bias.tensor, 'f32')) : y);

/** @type {Computed} */
const matMulIntegerToFloat = {
  buffers: [2, 3, 4, 5],
  run: ([a, b, scaleA, scaleB, zeroA, zeroB, bias]) => plus(scaleA.type, scaledProduct(a, b, scaleA, scaleB, zeroA, zeroB), bias),
};

/** @type {Computed} */
const dynamicQuantizeMatMul = {
  buffers: [2, 3],
  run([a, b, scale, zero, bias]) {
    const { rows, scale: own } = dynamicallyQuantized(a.tensor);
    return plus('float', f.mul(f.matmul(rows, centred(b, zero, [1, -1])), f.mul(own, ofColumns(scale))), bias);
  },
};

/** @type {Computed} */
const qAttention = {
  buffers: [3, 4, 6, 7],
  run([x, weights, bias, scaleX, scaleW, mask, zeroX, zeroW, past], attributes, call) {
    const projected = plus(scaleX.type, scaledProduct(x, weights, scaleX, scaleW, zeroX, zeroW), bias);
    return selfAttention(projected.tensor, { mask, past, bias: undefined }, attributes, scaleX.type, call);
  },
};

/** The numbers of `bits` bits in bytes, the lowest bits first. @param {Tensor} bytes u8 @param {number} bits @returns {Tensor} f32, the last dimension 8 / bits times as long */
function unpacked(bytes, bits) {
  if (bits === 8) return f.to(bytes, 'f32');
  if (bits !== 4 && bits !== 2) throw new Error(`numbers of ${bits} bits are not supported`);
  const wide = f.to(bytes, 'i32');
  const digits = Array.from({ length: 8 / bits }, (_, i) =>
    f.bitwiseAnd(i === 0 ? wide : f.bitwiseRightShift(wide, bits * i), 2 ** bits - 1),
  );
  return f.to(f.reshape(f.stack(digits, bytes.ndim), [...bytes.shape.slice(0, -1), -1]), 'f32');
}

/**
 * Numbers in blocks, along their last dimension.
 * @param {Tensor} numbers f32 [rows, columns] @param {Tensor} scales f32 [rows, blocks] @param {Tensor | number} zeros f32 [rows, blocks], or one for all
 * @param {number} size of a block; the last one may have fewer
 * @returns {Tensor} [rows, columns]
 */
function ofBlocks(numbers, scales, zeros, size) {
  const [rows, columns] = numbers.shape;
  const blocks = scales.shape[1];
  if (blocks !== Math.ceil(columns / size))
    throw new Error(
      `block_size = ${size} makes ${Math.ceil(columns / size)} blocks of ${columns} numbers, and there are scales of ${blocks}`,
    );
  const own = blocks === 1 ? columns : size;
  const missing = blocks * own - columns;
  const apart = f.reshape(missing > 0 ? f.cat([numbers, f.zeros([rows, missing])], 1) : numbers, [rows, blocks, own]);
  const shifted = f.sub(apart, typeof zeros === 'number' ? zeros : f.unsqueeze(zeros, 2));
  return f.slice(f.reshape(f.mul(shifted, f.unsqueeze(scales, 2)), [rows, blocks * own]), 1, 0, columns);
}

/** @type {Computed} */
const matMulNBits = {
  buffers: [2, 3],
  run([x, packed, scales, zeros, groups, bias], { K: columns, N: rows, bits = 4, block_size: size }) {
    if (groups) throw new Error('the input g_idx is not supported');
    const plus = (/** @type {Tensor} */ y) => same(x.type, bias ? f.add(y, f.to(bias.tensor, 'f32')) : y);
    // Weights that are left out.
    if (packed.size === 0) return plus(f.zeros([...x.shape.slice(0, -1), rows]));
    const blocks = Math.ceil(columns / size);
    if (String(packed.shape) !== String([rows, blocks, (size * bits) / 8]))
      throw new Error(
        `N = ${rows}, K = ${columns}, block_size = ${size} and bits = ${bits} are not those of weights of the shape [${packed.shape}]`,
      );
    const zero =
      zeros?.type === 'uint8'
        ? f.slice(unpacked(f.reshape(zeros.tensor, [rows, -1]), bits), 1, 0, blocks)
        : zeros
          ? f.reshape(f.to(zeros.tensor, 'f32'), [rows, blocks])
          : 2 ** (bits - 1);
    const numbers = unpacked(f.reshape(packed.tensor, [rows, -1]), bits);
    const weights = f.slice(ofBlocks(numbers, f.reshape(f.to(scales.tensor, 'f32'), [rows, blocks]), zero, size), 1, 0, columns);
    return plus(f.matmul(f.to(x.tensor, 'f32'), f.transpose(weights, 0, 1)));
  },
};

/** Rows of a table in blocks. @type {Computed} */
const gatherBlockQuantized = {
  buffers: [2, 3],
  run([table, indices, scales, zeros], { bits = 4, block_size: size = 128, gather_axis: axis = 0, quantize_axis: along = 1 }) {
    if (table.type !== 'uint8') throw new Error(`a table of ${table.type} is not supported`);
    if (table.rank !== 2 || axis !== 0 || axisOf(along, 2) !== 1)
      throw new Error('a table of other than two dimensions, or blocks along other ones, are not supported');
    const own = indexOf(f.reshape(indices.tensor, [indices.size]));
    const [count] = table.shape;
    const fromStart = f.where(f.lt(own, 0), f.add(own, count), own);
    // A row outside of the table is zeros.
    const at = f.where(f.lt(fromStart, 0), f.full([], count, { dtype: 'i32' }), fromStart);
    const rowsOf = (/** @type {Value} */ { tensor }) => f.indexSelect(tensor, 0, at);
    const zero = zeros ? f.slice(unpacked(rowsOf(zeros), bits), 1, 0, scales.shape[1]) : 2 ** (bits - 1);
    const rows = ofBlocks(unpacked(rowsOf(table), bits), f.to(rowsOf(scales), 'f32'), zero, size);
    return same(scales.type, f.reshape(rows, [...indices.shape, rows.shape[1]]));
  },
};

/** Over the last dimension, before opset 13 too, where ONNX's own is over all from the second one on. @type {Computed} */
const qLinearSoftmax = around('Softmax');
/** @type {Computed} */
const lastAxis = {
  ...qLinearSoftmax,
  run: (inputs, attributes, call) => qLinearSoftmax.run(inputs, { ...attributes, axis: attributes.axis ?? -1 }, call),
};

const CHANNELS_FIRST = { channels_last: 0 };
const POOL = 'auto_pad ceil_mode count_include_pad kernel_shape pads strides';

/** Of each the attributes and how many inputs it takes. @type {import('../definitions.mjs').Table} */
export const MICROSOFT = {
  // ONNX's own, of before it had integers of 16 bits there.
  'com.microsoft.DequantizeLinear': strict(ONNX.DequantizeLinear, 'axis', 3),
  'com.microsoft.DynamicQuantizeMatMul': strict(dynamicQuantizeMatMul, '', 5),
  'com.microsoft.GatherBlockQuantized': strict(gatherBlockQuantized, 'bits block_size gather_axis quantize_axis', 4),
  'com.microsoft.MatMulIntegerToFloat': strict(matMulIntegerToFloat, '', 7),
  'com.microsoft.MatMulNBits': strict(matMulNBits, 'K N accuracy_level bits block_size', 6, { weight_prepacked: 0 }),
  'com.microsoft.QAttention': strict(qAttention, SELF_ATTENTION, 9, NO_CACHE),
  'com.microsoft.QGemm': strict(qGemm, 'alpha transA transB', 9),
  'com.microsoft.QLinearAdd': strict(around('Add', 2), '', 8),
  'com.microsoft.QLinearAveragePool': strict(around('AveragePool'), POOL, 5, CHANNELS_FIRST),
  'com.microsoft.QLinearConcat': strict(qLinearConcat, 'axis', Infinity),
  'com.microsoft.QLinearGlobalAveragePool': strict(around('GlobalAveragePool'), '', 5, CHANNELS_FIRST),
  'com.microsoft.QLinearLeakyRelu': strict(around('LeakyRelu'), 'alpha', 5),
  'com.microsoft.QLinearMul': strict(around('Mul', 2), '', 8),
  'com.microsoft.QLinearSigmoid': strict(around('Sigmoid'), '', 5),
  'com.microsoft.QLinearSoftmax': strict(lastAxis, 'axis opset', 5),
  'com.microsoft.QLinearWhere': strict(qLinearWhere, '', 9),
  'com.microsoft.QuantizeLinear': strict(ONNX.QuantizeLinear, 'axis', 3),
};
