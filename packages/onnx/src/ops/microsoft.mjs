// Operators of `com.microsoft` that onnxruntime's quantizer writes beside `QLinearConv` and `QLinearMatMul` (its format QOperator): those of ONNX
// between quantized numbers, each with one scale and zero point.

import { CONVOLUTION, centred } from './convolution.mjs';
import { ELEMENTWISE } from './elementwise.mjs';
import { Value, axisOf, f } from './lib.mjs';
import { QUANTIZATION, saturated } from './quantization.mjs';
import { REDUCTIONS } from './reductions.mjs';

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

/** @type {import('../definitions.mjs').Table} */
export const MICROSOFT = {
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
};
