// Operators of `com.microsoft` with quantized numbers: those that onnxruntime's quantizer writes beside `QLinearConv` and `QLinearMatMul` (its format
// QOperator), each with one scale and zero point; products of floats with weights of 8 bits; and weights of few bits in blocks, as language models
// have them.

import { CONVOLUTION, centred } from './convolution.mjs';
import { ELEMENTWISE } from './elementwise.mjs';
import { Value, axisOf, f, indexOf, same } from './lib.mjs';
import { QUANTIZATION, dynamicallyQuantized, saturated } from './quantization.mjs';
import { REDUCTIONS } from './reductions.mjs';
import { selfAttention } from './transformers.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../types.mjs').Type} Type */
/** @typedef {import('../definitions.mjs').Computed} Computed */

const ONNX = /** @type {Record<string, Computed>} */ ({ ...CONVOLUTION, ...ELEMENTWISE, ...QUANTIZATION, ...REDUCTIONS });

/** One for all. @param {Value} scale or zero point */
const whole = (scale) => f.reshape(f.to(scale.tensor, 'f32'), []);

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
    if (attributes.channels_last) throw new Error('channels_last is not supported');
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
    const columns = scaleB.size === 1 ? whole(scaleB) : f.reshape(scaleB.tensor, [1, scaleB.size]);
    const y = Value.of('float', f.mul(sum, f.mul(f.mul(whole(scaleA), columns), alpha)));
    return scale ? quantized(y, scale, zero, a.type) : y;
  },
};

/** What multiplies columns: one number, or one for each. @param {Value} scale */
const ofColumns = (scale) => (scale.size === 1 ? whole(scale) : f.reshape(scale.tensor, [-1]));

/** A product of quantized numbers as f32. @param {Value} a @param {Value} b @param {Value} scaleA @param {Value} scaleB @param {Value | undefined} zeroA @param {Value | undefined} zeroB */
const scaledProduct = (a, b, scaleA, scaleB, zeroA, zeroB) =>
  f.mul(f.matmul(centred(a, zeroA, []), centred(b, zeroB, [1, -1])), f.mul(whole(scaleA), ofColumns(scaleB)));

const plus = (/** @type {Tensor} */ y, /** @type {Value | undefined} */ bias) => Value.of('float', bias ? f.add(y, bias.tensor) : y);

/** @type {Computed} */
const matMulIntegerToFloat = {
  buffers: [2, 3, 4, 5],
  run: ([a, b, scaleA, scaleB, zeroA, zeroB, bias]) => plus(scaledProduct(a, b, scaleA, scaleB, zeroA, zeroB), bias),
};

/** @type {Computed} */
const dynamicQuantizeMatMul = {
  buffers: [2, 3],
  run([a, b, scale, zero, bias]) {
    const { rows, scale: own } = dynamicallyQuantized(a.tensor);
    return plus(f.mul(f.matmul(rows, centred(b, zero, [1, -1])), f.mul(own, ofColumns(scale))), bias);
  },
};

/** @type {Computed} */
const qAttention = {
  buffers: [3, 4, 6, 7],
  run([x, weights, bias, scaleX, scaleW, mask, zeroX, zeroW, past], attributes) {
    const projected = plus(scaledProduct(x, weights, scaleX, scaleW, zeroX, zeroW), bias);
    return selfAttention(projected.tensor, { mask, past, bias: undefined }, attributes, 'float');
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
 * @param {Tensor} numbers f32 [rows, blocks · size] @param {Tensor} scales f32 [rows, blocks] @param {Tensor | number} zeros f32 [rows, blocks], or one for all
 * @returns {Tensor} [rows, blocks · size]
 */
function ofBlocks(numbers, scales, zeros) {
  const [rows, blocks] = scales.shape;
  const apart = f.reshape(numbers, [rows, blocks, -1]);
  const shifted = f.sub(apart, typeof zeros === 'number' ? zeros : f.unsqueeze(zeros, 2));
  return f.reshape(f.mul(shifted, f.unsqueeze(scales, 2)), numbers.shape);
}

/** @type {Computed} */
const matMulNBits = {
  buffers: [2, 3],
  run([x, packed, scales, zeros, groups, bias], { K: columns, N: rows, bits = 4 }) {
    if (groups) throw new Error('the input g_idx is not supported');
    const blocks = packed.shape[1];
    const zero =
      zeros?.type === 'uint8'
        ? f.slice(unpacked(f.reshape(zeros.tensor, [rows, -1]), bits), 1, 0, blocks)
        : zeros
          ? f.reshape(f.to(zeros.tensor, 'f32'), [rows, blocks])
          : 2 ** (bits - 1);
    const numbers = unpacked(f.reshape(packed.tensor, [rows, -1]), bits);
    const weights = f.slice(ofBlocks(numbers, f.reshape(f.to(scales.tensor, 'f32'), [rows, blocks]), zero), 1, 0, columns);
    const y = f.matmul(f.to(x.tensor, 'f32'), f.transpose(weights, 0, 1));
    return same(x.type, bias ? f.add(y, f.to(bias.tensor, 'f32')) : y);
  },
};

/** Rows of a table in blocks. @type {Computed} */
const gatherBlockQuantized = {
  buffers: [2, 3],
  run([table, indices, scales, zeros], { bits = 4, gather_axis: axis = 0, quantize_axis: along = 1 }) {
    if (table.type !== 'uint8') throw new Error(`a table of ${table.type} is not supported`);
    if (table.rank !== 2 || axis !== 0 || axisOf(along, 2) !== 1)
      throw new Error('a table of other than two dimensions, or blocks along other ones, are not supported');
    const own = indexOf(f.reshape(indices.tensor, [indices.size]));
    const at = f.where(f.lt(own, 0), f.add(own, table.shape[0]), own);
    const rowsOf = (/** @type {Value} */ { tensor }) => f.indexSelect(tensor, 0, at);
    const zero = zeros ? f.slice(unpacked(rowsOf(zeros), bits), 1, 0, scales.shape[1]) : 2 ** (bits - 1);
    const rows = ofBlocks(unpacked(rowsOf(table), bits), f.to(rowsOf(scales), 'f32'), zero);
    return same(scales.type, f.reshape(rows, [...indices.shape, -1]));
  },
};

/** @type {import('../definitions.mjs').Table} */
export const MICROSOFT = {
  // ONNX's own, of before it had integers of 16 bits there.
  'com.microsoft.DequantizeLinear': ONNX.DequantizeLinear,
  'com.microsoft.DynamicQuantizeMatMul': dynamicQuantizeMatMul,
  'com.microsoft.GatherBlockQuantized': gatherBlockQuantized,
  'com.microsoft.MatMulIntegerToFloat': matMulIntegerToFloat,
  'com.microsoft.MatMulNBits': matMulNBits,
  'com.microsoft.QAttention': qAttention,
  'com.microsoft.QGemm': qGemm,
  'com.microsoft.QLinearAdd': around('Add', 2),
  'com.microsoft.QLinearAveragePool': around('AveragePool'),
  'com.microsoft.QLinearConcat': qLinearConcat,
  'com.microsoft.QLinearGlobalAveragePool': around('GlobalAveragePool'),
  'com.microsoft.QLinearLeakyRelu': around('LeakyRelu'),
  'com.microsoft.QLinearMul': around('Mul', 2),
  'com.microsoft.QLinearSigmoid': around('Sigmoid'),
  'com.microsoft.QLinearSoftmax': around('Softmax'),
  'com.microsoft.QLinearWhere': qLinearWhere,
  'com.microsoft.QuantizeLinear': ONNX.QuantizeLinear,
};
