// Arithmetic, comparisons, activations, conversions.

import { TYPES, isFloat, typeOf } from '../types.mjs';
import { Value, cast, elementwise, f, mapped, mapping, onHost, result, same, scalar } from './lib.mjs';
import * as wide from './wide.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../definitions.mjs').Computed} Computed */

/** @param {(x: Tensor) => Tensor} of @param {(x: number) => number} [host] */
const unary = (of, host) => elementwise((x) => of(x), host);
/** Comparisons, and logical operations. @param {(a: Tensor, b: Tensor) => Tensor} of @param {(a: number, b: number) => boolean} host */
const comparison = (of, host) => elementwise((a, b) => of(a, b), host, 'bool');

/** Many operands, two at a time. @param {(a: Tensor, b: Tensor) => Tensor} of @param {(a: number, b: number) => number} host */
const folded = (of, host) => ({
  run: (/** @type {import('../definitions.mjs').Inputs} */ inputs) => inputs.reduce((a, b) => elementwise(of, host).run([a, b])),
});

/** An activation with numbers as attributes. @param {(x: Tensor, attributes: import('../definitions.mjs').Attributes) => Tensor} of @returns {Computed} */
const activation = (of) => ({ run: ([x], attributes) => same(x.type, of(x.tensor, attributes)) });

/** Integer quotients are truncated. @param {number} a @param {number} b @param {import('../types.mjs').Type} type */
const quotient = (a, b, type) => (isFloat(type) ? a / b : Math.trunc(a / b));
/** The remainder with the divisor's sign. @param {number} a @param {number} b */
const modulo = (a, b) => a - Math.floor(a / b) * b;

/** @type {Computed} */
const div = {
  run([a, b]) {
    const known = onHost((x, y) => quotient(x, y, a.type), a.type, a, b);
    if (known) return known;
    if (isFloat(a.type)) return same(a.type, f.div(a.tensor, b.tensor));
    if (a.tensor.dtype === 'i64') return result(a.type, wide.truncDivide(a.tensor, b.tensor));
    return result(a.type, f.div(a.tensor, b.tensor, { roundingMode: 'trunc' }));
  },
};

/** @type {Computed} */
const mod = {
  run([a, b], { fmod = 0 }) {
    const known = onHost((x, y) => (fmod ? x % y : modulo(x, y)), a.type, a, b);
    if (known) return known;
    const own = a.tensor.dtype === 'i64' ? wide : f;
    return result(a.type, (fmod ? own.fmod : own.remainder)(a.tensor, b.tensor));
  },
};

/** @type {Computed} */
const pow = {
  run([a, b]) {
    const known = onHost((x, y) => (isFloat(a.type) ? x ** y : Math.trunc(x ** y)), a.type, a, b);
    if (known) return known;
    if (b.elements && b.size === 1 && (isFloat(a.type) || (Number.isInteger(b.number) && b.number >= 0)))
      return result(a.type, f.pow(a.tensor, b.number).reshape(...broadcastOne(a, b)));
    // The result has the base's type, whatever the exponent's.
    if (isFloat(a.type)) return same(a.type, f.pow(f.to(a.tensor, 'f32'), f.to(b.tensor, 'f32')));
    const dtype = a.tensor.dtype;
    const base = f.to(a.tensor, /^[iu]8$/.test(dtype) ? 'i32' : dtype);
    const whole = wide.power(base, f.to(b.tensor, base.dtype));
    if (!isFloat(b.type)) return cast(Value.of(base.dtype === 'i32' ? 'int32' : a.type, whole), a.type);
    const y = f.to(f.pow(f.to(base, 'f32'), f.to(b.tensor, 'f32')), base.dtype);
    const isWhole = f.eq(f.floor(b.tensor), b.tensor);
    return cast(Value.of(base.dtype === 'i32' ? 'int32' : a.type, f.where(isWhole, whole, y)), a.type);
  },
};
/** @param {Value} a @param {Value} b of one element */
const broadcastOne = (a, b) => [...new Array(Math.max(0, b.rank - a.rank)).fill(1), ...a.shape];

/** @type {Computed} */
const clip = {
  run([x, low, high], { min, max }) {
    const least = low ?? (min === undefined ? undefined : scalar(x.type, min));
    const most = high ?? (max === undefined ? undefined : scalar(x.type, max));
    let y = x;
    if (least) y = elementwise(f.maximum, Math.max).run([y, least]);
    if (most) y = elementwise(f.minimum, Math.min).run([y, most]);
    return y;
  },
};

/** @type {Computed} */
const where = {
  run([condition, a, b]) {
    const known = onHost((c, x, y) => (c ? x : y), a.type, condition, a, b);
    return known ?? same(a.type, f.where(condition.tensor, a.tensor, b.tensor));
  },
};

/** By less than 0 or as many bits as the type has, all bits go: what is left is 0, or the sign. @type {Computed} */
const bitShift = {
  run([a, b], { direction }) {
    const [x, by] = [a.tensor, b.tensor];
    const bits = 8 * TYPES[/** @type {'int8'} */ (a.type)].bytes;
    const outside = f.logicalOr(f.lt(by, 0), f.ge(by, bits));
    const zero = f.full([], 0, { dtype: x.dtype });
    if (direction === 'LEFT') return result(a.type, f.where(outside, zero, f.bitwiseLeftShift(x, by)));
    if (a.type.startsWith('u')) return result(a.type, f.where(outside, zero, f.bitwiseRightShift(x, by)));
    return result(a.type, f.bitwiseRightShift(x, f.where(outside, f.full([], bits - 1, { dtype: x.dtype }), by)));
  },
};

/** @type {import('../definitions.mjs').Table} */
export const ELEMENTWISE = {
  Abs: unary(f.abs, Math.abs),
  Acos: unary(f.acos),
  Acosh: unary(f.acosh),
  Add: elementwise(f.add, (a, b) => a + b),
  And: comparison(f.logicalAnd, (a, b) => Boolean(a && b)),
  Asin: unary(f.asin),
  Asinh: unary(f.asinh),
  Atan: unary(f.atan),
  Atanh: unary(f.atanh),
  BitShift: bitShift,
  BitwiseAnd: elementwise((a, b) => f.bitwiseAnd(a, b)),
  BitwiseNot: elementwise((a) => f.bitwiseNot(a)),
  BitwiseOr: elementwise((a, b) => f.bitwiseOr(a, b)),
  BitwiseXor: elementwise((a, b) => f.bitwiseXor(a, b)),
  Cast: { run: ([x], { to }) => cast(x, typeOf(to, 'the attribute to')) },
  CastLike: { run: ([x, like]) => cast(x, like.type) },
  Ceil: unary(f.ceil, Math.ceil),
  Celu: activation((x, { alpha = 1 }) => f.celu(x, alpha)),
  Clip: clip,
  Cos: unary(f.cos),
  Cosh: unary(f.cosh),
  Div: div,
  Elu: activation((x, { alpha = 1 }) => f.elu(x, alpha)),
  Equal: {
    run(inputs) {
      if (inputs[0].type === 'string') return mapped((a, b) => a === b, 'bool', ...inputs);
      return comparison(f.eq, (a, b) => a === b).run(inputs);
    },
  },
  Erf: unary(f.erf),
  Exp: unary(f.exp),
  Floor: unary(f.floor, Math.floor),
  Gelu: activation((x, { approximate = 'none' }) => f.gelu(x, { approximate: approximate === 'tanh' ? 'tanh' : 'none' })),
  Greater: comparison(f.gt, (a, b) => a > b),
  GreaterOrEqual: comparison(f.ge, (a, b) => a >= b),
  HardSigmoid: activation((x, { alpha = 0.2, beta = 0.5 }) => f.clamp(f.add(f.mul(x, alpha), beta), 0, 1)),
  HardSwish: activation((x) => f.hardSwish(x)),
  Identity: { run: ([x]) => x },
  IsInf: {
    run([x], { detect_negative: low = 1, detect_positive: high = 1 }) {
      const y = f.to(x.tensor, 'f32');
      return Value.of('bool', low && high ? f.eq(f.abs(y), Infinity) : f.eq(y, high ? Infinity : low ? -Infinity : NaN));
    },
  },
  IsNaN: { run: ([x]) => Value.of('bool', f.ne(x.tensor, x.tensor)) },
  LeakyRelu: activation((x, { alpha = 0.01 }) => f.leakyRelu(x, alpha)),
  Less: comparison(f.lt, (a, b) => a < b),
  LessOrEqual: comparison(f.le, (a, b) => a <= b),
  Log: unary(f.log, Math.log),
  Max: folded((a, b) => f.maximum(a, b), Math.max),
  Mean: {
    run(inputs) {
      const sum = folded(f.add, (a, b) => a + b).run(inputs);
      return same(sum.type, f.div(sum.tensor, inputs.length));
    },
  },
  Min: folded((a, b) => f.minimum(a, b), Math.min),
  Mish: activation((x) => f.mish(x)),
  Mod: mod,
  Mul: elementwise(f.mul, (a, b) => a * b),
  Neg: unary(f.neg, (x) => -x),
  Not: elementwise(
    (x) => f.logicalNot(x),
    (x) => !x,
    'bool',
  ),
  Or: comparison(f.logicalOr, (a, b) => Boolean(a || b)),
  PRelu: mapping((x, slope) => f.where(f.ge(x, 0), x, f.mul(x, slope))),
  Pow: pow,
  Reciprocal: unary(f.reciprocal, (x) => 1 / x),
  Relu: elementwise(f.relu, (x) => Math.max(x, 0)),
  Round: unary(f.round),
  Selu: activation((x, { alpha = 1.6732631921768188, gamma = 1.0507010221481323 }) => f.mul(f.elu(x, alpha), gamma)),
  Shrink: activation((x, { bias = 0, lambd = 0.5 }) =>
    f.where(f.lt(x, -lambd), f.add(x, bias), f.where(f.gt(x, lambd), f.sub(x, bias), f.mul(x, 0))),
  ),
  Sigmoid: unary(f.sigmoid),
  Sign: unary(f.sign, Math.sign),
  Sin: unary(f.sin),
  Sinh: unary(f.sinh),
  Softplus: unary(f.softplus),
  Softsign: activation((x) => f.softsign(x)),
  Sqrt: unary(f.sqrt, Math.sqrt),
  Sub: elementwise(f.sub, (a, b) => a - b),
  Sum: folded(f.add, (a, b) => a + b),
  SwiGLU: { run: ([a, b], { alpha = 1 }) => same(a.type, f.mul(swish(a.tensor, alpha), b.tensor)) },
  Swish: activation((x, { alpha = 1 }) => swish(x, alpha)),
  Tan: unary(f.tan),
  Tanh: unary(f.tanh),
  ThresholdedRelu: activation((x, { alpha = 1 }) => f.where(f.gt(x, alpha), x, f.full([], 0, { dtype: x.dtype }))),
  Where: where,
  'ai.onnx.ml.Binarizer': activation((x, { threshold = 0 }) => f.to(f.gt(x, threshold), x.dtype)),
  Xor: comparison(f.logicalXor, (a, b) => Boolean(a) !== Boolean(b)),
};

/** x · sigmoid(alpha · x) @param {Tensor} x @param {number} alpha */
function swish(x, alpha) {
  return f.mul(x, f.sigmoid(f.mul(x, alpha)));
}
