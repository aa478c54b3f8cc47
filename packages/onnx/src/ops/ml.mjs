// Operators of `ai.onnx.ml` that are products and divisions: what skl2onnx writes of scikit-learn's scalers, imputers, linear models and normalizers.

import { isFloat } from '../types.mjs';
import { Value, f, same, uploaded } from './lib.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../definitions.mjs').Computed} Computed */
/** @typedef {{ coefficients?: number[], intercepts?: number[], post_transform?: string }} Linear */

/** What follows a linear model's scores, by row. @type {Record<string, (scores: Tensor) => Tensor>} */
const TRANSFORMS = { NONE: (y) => y, LOGISTIC: f.sigmoid, SOFTMAX: (y) => f.softmax(y, -1) };

/** @param {string} op @param {Linear} attributes @returns {(scores: Tensor) => Tensor} */
function transform(op, { post_transform: name = 'NONE' }) {
  if (!Object.hasOwn(TRANSFORMS, name))
    throw new Error(`${op}: post_transform ${name} is not supported; ${Object.keys(TRANSFORMS).join(', ')} are`);
  return TRANSFORMS[name];
}

/** x Wᵀ + b of `rows` rows of coefficients. @param {string} op @param {Value} x [n, features] or [features] @param {Linear} attributes @param {number} rows */
function scores(op, x, { coefficients = [], intercepts = [] }, rows) {
  const features = x.shape.at(-1) ?? 1;
  if (x.rank > 2 || coefficients.length !== rows * features)
    throw new Error(`${op}: ${rows} rows of ${features} coefficients expected for an input [${x.shape}], got ${coefficients.length}`);
  if (intercepts.length > 0 && intercepts.length !== rows) throw new Error(`${op}: ${rows} intercepts expected, got ${intercepts.length}`);
  const own = f.reshape(f.to(x.tensor, 'f32'), [-1, features]);
  const product = f.matmul(own, f.transpose(uploaded(coefficients, [rows, features]), 0, 1));
  return intercepts.length > 0 ? f.add(product, uploaded(intercepts, [rows])) : product;
}

/** @type {Computed} */
const linearRegressor = {
  run([x], attributes) {
    const y = scores('LinearRegressor', x, attributes, attributes.targets ?? 1);
    return Value.of('float', transform('LinearRegressor', attributes)(y));
  },
};

/** Labels are those of the largest scores. A file with one row of coefficients for two classes has a rule for the other, which is not here. @type {Computed} */
const linearClassifier = {
  run([x], attributes) {
    const { classlabels_ints: labels } = attributes;
    if (!labels) throw new Error('LinearClassifier: labels that are strings are not supported, only classlabels_ints');
    const y = scores('LinearClassifier', x, attributes, labels.length);
    const label = f.indexSelect(uploaded(labels, [labels.length], 'i64'), 0, f.argmax(y, -1));
    return [Value.of('int64', label), Value.of('float', transform('LinearClassifier', attributes)(y))];
  },
};

/** (x - offset) · scale, of all features or of each. @type {Computed} */
const scaler = {
  run([x], { offset = [0], scale: factors = [1] }) {
    const scale = /** @type {number[]} */ (factors);
    const features = x.shape.at(-1) ?? 1;
    for (const [name, { length }] of Object.entries({ offset, scale }))
      if (length !== 1 && length !== features) throw new Error(`Scaler: ${name} must have 1 or ${features} numbers, got ${length}`);
    const [from, by] = [offset, scale].map((numbers) => uploaded(numbers, [numbers.length]));
    return Value.of('float', f.mul(f.sub(f.to(x.tensor, 'f32'), from), by));
  },
};

/** What rows are divided by. @type {Record<string, (x: Tensor) => Tensor>} */
const NORMS = {
  MAX: (x) => f.amax(x, -1, true),
  L1: (x) => f.sum(f.abs(x), -1, true),
  L2: (x) => f.norm(x, 2, -1, true),
};
/** Rows divided by their norms; those of the norm 0 stay, as in onnxruntime. Its largest element, not the largest size, is the norm MAX. @type {Computed} */
const normalizer = {
  run([x], { norm = 'MAX' }) {
    if (!Object.hasOwn(NORMS, norm)) throw new Error(`Normalizer: the norm must be one of ${Object.keys(NORMS).join(', ')}, got ${norm}`);
    const own = f.to(x.tensor, 'f32');
    const size = NORMS[norm](own);
    return Value.of('float', f.div(own, f.where(f.eq(size, 0), 1, size)));
  },
};

/** One number, or one for each feature, in the place of a number that stands for a missing one. @type {Computed} */
const imputer = {
  run([x], attributes) {
    const { imputed_value_floats: floats, imputed_value_int64s: integers } = attributes;
    const { replaced_value_float: float = 0, replaced_value_int64: integer = 0 } = attributes;
    const isOfFloats = isFloat(x.type);
    const [given, missing] = isOfFloats ? [floats, float] : [integers, integer];
    const features = x.shape.at(-1) ?? 1;
    if (!given || (given.length !== 1 && given.length !== features))
      throw new Error(`Imputer: 1 or ${features} numbers of the type ${x.type} expected, got ${given?.length ?? 'none'}`);
    const own = x.tensor;
    const isMissing = Number.isNaN(missing) ? f.ne(own, own) : f.eq(own, missing);
    return same(x.type, f.where(isMissing, uploaded(given, [given.length], own.dtype), own));
  },
};

/** @type {import('../definitions.mjs').Table} */
export const ML = {
  'ai.onnx.ml.Imputer': imputer,
  'ai.onnx.ml.LinearClassifier': linearClassifier,
  'ai.onnx.ml.LinearRegressor': linearRegressor,
  'ai.onnx.ml.Normalizer': normalizer,
  'ai.onnx.ml.Scaler': scaler,
};
