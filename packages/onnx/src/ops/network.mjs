// Products and normalizations.

import { typeOf } from '../types.mjs';
import { rand, randn } from 'helios-vk/nn';
import { Value, axisOf, cast, f, result, same } from './lib.mjs';

/** @typedef {import('helios-vk/nn').Tensor} Tensor */
/** @typedef {import('../definitions.mjs').Computed} Computed */

/** In f32, whatever the type. @param {Tensor} x @returns {Tensor} */
const wide = (x) => f.to(x, 'f32');
/** The dimensions from one on. @param {number} from @param {number} rank */
const dimsFrom = (from, rank) => Array.from({ length: rank - from }, (_, i) => from + i);

/** A matrix product of any type. @param {Value} a @param {Value} b @returns {Tensor} */
export function product(a, b) {
  // A matrix without an inner dimension is a sum of nothing.
  if (a.size === 0 || b.size === 0) return f.zeros([...a.shape.slice(0, -1), ...b.shape.slice(-1)], { dtype: a.tensor.dtype });
  return f.matmul(a.tensor, b.tensor);
}

/** @type {Computed} */
const gemm = {
  run([a, b, c], { alpha = 1, beta = 1, transA = 0, transB = 0 }) {
    const [x, y] = [transA ? f.transpose(a.tensor, 0, 1) : a.tensor, transB ? f.transpose(b.tensor, 0, 1) : b.tensor];
    let z = f.matmul(x, y);
    if (alpha !== 1) z = f.mul(z, alpha);
    if (c) z = f.add(z, beta === 1 ? c.tensor : f.mul(c.tensor, beta));
    return same(a.type, z);
  },
};

/**
 * (x - mean) / √(variance + epsilon) over dimensions, with both statistics.
 * @param {Tensor} x f32 @param {number[]} dims @param {number} epsilon
 */
function normalized(x, dims, epsilon) {
  const mean = f.mean(x, dims, true);
  const centred = f.sub(x, mean);
  const inverse = f.rsqrt(f.add(f.mean(f.square(centred), dims, true), epsilon));
  return { y: f.mul(centred, inverse), mean, inverse };
}

/** @type {Computed} */
const layerNormalization = {
  run([x, scale, bias], { axis = -1, epsilon = 1e-5 }) {
    const dims = dimsFrom(axisOf(axis, x.rank), x.rank);
    const { y, mean, inverse } = normalized(wide(x.tensor), dims, epsilon);
    const scaled = f.mul(f.to(y, x.tensor.dtype), scale.tensor);
    return [same(x.type, bias ? f.add(scaled, bias.tensor) : scaled), Value.of('float', mean), Value.of('float', inverse)];
  },
};

/** @type {Computed} */
const rmsNormalization = {
  run([x, scale], { axis = -1, epsilon = 1e-5 }) {
    const dims = dimsFrom(axisOf(axis, x.rank), x.rank);
    const y = wide(x.tensor);
    const inverse = f.rsqrt(f.add(f.mean(f.square(y), dims, true), epsilon));
    return same(x.type, f.mul(f.to(f.mul(y, inverse), x.tensor.dtype), scale.tensor));
  },
};

/** A vector of channels, along the second dimension. @param {Tensor} vector @param {number} rank @returns {Tensor} */
export const perChannel = (vector, rank) => f.reshape(vector, [1, vector.size, ...new Array(rank - 2).fill(1)]);

/** @type {Computed} */
const instanceNormalization = {
  run([x, scale, bias], { epsilon = 1e-5 }) {
    const { y } = normalized(wide(x.tensor), dimsFrom(2, x.rank), epsilon);
    return same(x.type, f.add(f.mul(y, perChannel(scale.tensor, x.rank)), perChannel(bias.tensor, x.rank)));
  },
};

/** @type {Computed} */
const groupNormalization = {
  run([x, scale, bias], { epsilon = 1e-5, num_groups: groups }, { opset }) {
    const [batch, channels] = x.shape;
    const { y } = normalized(f.reshape(wide(x.tensor), [batch, groups, -1]), [2], epsilon);
    const whole = f.reshape(y, x.shape);
    // Before opset 21 a group has one scale.
    const each = (/** @type {Value} */ vector) =>
      opset >= 21 || vector.size === channels
        ? perChannel(vector.tensor, x.rank)
        : f.reshape(f.expand(f.reshape(vector.tensor, [groups, 1]), [groups, channels / groups]), [
            1,
            channels,
            ...new Array(x.rank - 2).fill(1),
          ]);
    return same(x.type, f.add(f.mul(whole, each(scale)), each(bias)));
  },
};

/** @type {Computed} */
const batchNormalization = {
  buffers: [3, 4],
  run([x, scale, bias, mean, variance], { epsilon = 1e-5, momentum = 0.9, training_mode: mode = 0 }, { training }) {
    const y = wide(x.tensor);
    const dims = [0, ...dimsFrom(2, x.rank)];
    const batch = Boolean(mode) || training;
    const own = batch ? f.mean(y, dims) : mean.tensor;
    const spread = batch ? f.variance(y, dims, { correction: 0 }) : variance.tensor;
    const inverse = f.rsqrt(f.add(wide(spread), epsilon));
    const centred = f.sub(y, perChannel(wide(own), x.rank));
    const z = f.add(f.mul(centred, perChannel(f.mul(inverse, wide(scale.tensor)), x.rank)), perChannel(wide(bias.tensor), x.rank));
    const running = (/** @type {Value} */ old, /** @type {Tensor} */ now) =>
      f.add(f.mul(old.tensor, momentum), f.mul(now, 1 - momentum)).detach();
    const statistics = batch
      ? [Value.of(mean.type, running(mean, own)), Value.of(variance.type, running(variance, spread))]
      : [mean, variance];
    // A graph of an evaluation has no outputs for them: the model's own are updated.
    if (batch && !mode) {
      mean.tensor.copy_(statistics[0].tensor);
      variance.tensor.copy_(statistics[1].tensor);
    }
    return [same(x.type, z), ...statistics];
  },
};

/** @type {Computed} */
const dropout = {
  host: [1, 2],
  run([x, ratio, mode], { ratio: attribute }, { opset, training }) {
    const p = attribute ?? ratio?.number ?? 0.5;
    // Before opset 10 it has the type of x.
    const mask = (/** @type {Tensor} */ isKept) => cast(Value.of('bool', isKept), opset < 10 ? x.type : 'bool');
    if (!(mode ? mode.number : training) || p === 0) return [x, mask(f.full(x.shape, 1, { dtype: 'bool' }))];
    const ones = f.dropout(f.full(x.shape, 1, { dtype: x.tensor.dtype }), p, true);
    return [same(x.type, f.mul(x.tensor, ones)), mask(f.ne(ones, 0))];
  },
};

/** @type {Computed} */
const lrn = {
  run([x], { alpha = 1e-4, beta = 0.75, bias = 1, size }) {
    const channels = x.shape[1];
    const squares = f.square(wide(x.tensor));
    const [below, above] = [Math.floor((size - 1) / 2), Math.ceil((size - 1) / 2)];
    const zeros = (/** @type {number} */ count) => (count > 0 ? [f.zeros(x.shape.with(1, count))] : []);
    const padded = f.cat([...zeros(below), squares, ...zeros(above)], 1);
    let sum = f.slice(padded, 1, 0, channels);
    for (let i = 1; i < size; i++) sum = f.add(sum, f.slice(padded, 1, i, i + channels));
    return same(x.type, f.mul(wide(x.tensor), f.pow(f.add(f.mul(sum, alpha / size), bias), -beta)));
  },
};

/** @type {Computed} */
const meanVarianceNormalization = {
  run([x], { axes = [0, 2, 3] }) {
    const y = wide(x.tensor);
    const centred = f.sub(y, f.mean(y, axes, true));
    return same(x.type, f.div(centred, f.add(f.sqrt(f.mean(f.square(centred), axes, true)), 1e-9)));
  },
};

/** The determinant of square matrices, by elimination with pivots. @type {Computed} */
const det = {
  host: [0],
  run([x]) {
    const n = /** @type {number} */ (x.shape.at(-1));
    const all = x.numbers;
    const dets = Float64Array.from({ length: x.size / n ** 2 }, (_, at) => determinant(all.slice(at * n * n, (at + 1) * n * n), n));
    return cast(Value.host('double', x.shape.slice(0, -2), dets), x.type);
  },
};
/** @param {number[]} m @param {number} n */
function determinant(m, n) {
  let value = 1;
  for (let k = 0; k < n; k++) {
    let pivot = k;
    for (let i = k + 1; i < n; i++) if (Math.abs(m[i * n + k]) > Math.abs(m[pivot * n + k])) pivot = i;
    if (m[pivot * n + k] === 0) return 0;
    if (pivot !== k) {
      value = -value;
      for (let j = 0; j < n; j++) [m[k * n + j], m[pivot * n + j]] = [m[pivot * n + j], m[k * n + j]];
    }
    value *= m[k * n + k];
    for (let i = k + 1; i < n; i++) {
      const factor = m[i * n + k] / m[k * n + k];
      for (let j = k; j < n; j++) m[i * n + j] -= factor * m[k * n + j];
    }
  }
  return value;
}

/** @param {string} name @returns {Computed} */
const random = (name) => ({
  run(inputs, attributes) {
    const type = attributes.dtype === undefined ? (inputs[0]?.type ?? 'float') : typeOf(attributes.dtype, 'the attribute dtype');
    const shape = attributes.shape ?? inputs[0].shape;
    const { mean = 0, scale = 1, low = 0, high = 1 } = attributes;
    const y =
      name === 'randn' ? f.add(f.mul(randn(shape), /** @type {number} */ (scale)), mean) : f.add(f.mul(rand(shape), high - low), low);
    return same(type, y);
  },
});

/** @type {Computed} */
const bernoulli = {
  run([x], { dtype }) {
    const type = dtype === undefined ? x.type : typeOf(dtype, 'the attribute dtype');
    return cast(Value.of('bool', f.lt(rand([...x.shape]), f.to(x.tensor, 'f32'))), type);
  },
};

/** @type {import('../definitions.mjs').Table} */
export const NETWORK = {
  BatchNormalization: batchNormalization,
  Bernoulli: bernoulli,
  Det: det,
  Dropout: dropout,
  Einsum: { run: (inputs, { equation }) => result(inputs[0].type, f.einsum(equation, ...inputs.map((x) => x.tensor))) },
  Gemm: gemm,
  GroupNormalization: groupNormalization,
  InstanceNormalization: instanceNormalization,
  LayerNormalization: layerNormalization,
  LRN: lrn,
  MatMul: { run: ([a, b]) => result(a.type, product(a, b)) },
  MeanVarianceNormalization: meanVarianceNormalization,
  RandomNormal: random('randn'),
  RandomNormalLike: random('randn'),
  RandomUniform: random('rand'),
  RandomUniformLike: random('rand'),
  RMSNormalization: rmsNormalization,
};
