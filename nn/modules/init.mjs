// `nn.init`: draws the values of a tensor anew, in place, from the generator that `manualSeed` sets. Each returns the tensor.

import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { tensorOf } from '../core/engine.mjs';
import { denseLayout, sizeOf } from '../core/layout.mjs';
import { noGrad } from '../core/node.mjs';
import { checkAbove, checkFinite, checkLeast, checkOptions } from '../core/options.mjs';
import { constant as uploaded } from '../core/tensor.mjs';
import { initialValues, normalValues } from '../api/random.mjs';
import { scope } from '../core/scope.mjs';
import { to } from '../api/views.mjs';

/** An array on the device. @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/**
 * Options of the functions of Kaiming He.
 * @typedef {object} KaimingOptions
 * @property {number} [a] the slope of a leaky ReLU where x is negative; 0 when left out
 * @property {'fanIn' | 'fanOut'} [mode] whether variances stay in the forward or in the backward pass; 'fanIn' when left out
 * @property {Nonlinearity} [nonlinearity] what follows; 'leakyRelu' when left out
 */

/** What follows a layer. @typedef {'linear' | 'conv' | 'sigmoid' | 'tanh' | 'relu' | 'leakyRelu' | 'selu'} Nonlinearity */

/** Writes values. @param {string} op @param {Tensor} x @param {(count: number) => ArrayBufferView & ArrayLike<number>} draw @returns {Tensor} */
function written(op, x, draw) {
  tensorOf(op, x);
  return within(op, () => {
    noGrad(() => scope(() => void x.copy_(to(uploaded(draw(x.size), denseLayout(x.shape, 'f32')), x.dtype))));
    return x;
  });
}

/** Draws values on the device. @param {string} op @param {Tensor} x @param {import('../api/random.mjs').Initial} distribution @returns {Tensor} */
function drawn(op, x, distribution) {
  tensorOf(op, x);
  return within(op, () =>
    noGrad(() => {
      const { layout, shape, dtype } = x;
      if (layout.contiguous && dtype === 'f32') return initialValues(shape, distribution, x);
      scope(() => void x.copy_(to(initialValues(shape, distribution), dtype)));
      return x;
    }),
  );
}

/** The elements that a result depends on, and that depend on an input. @param {string} op @param {Tensor} x */
function fans(op, x) {
  if (tensorOf(op, x).ndim < 2) throw new ShapeError(op, `expected a tensor of at least two dimensions, got ${show(x.shape)}`);
  const [outputs, inputs, ...window] = x.shape;
  const reach = sizeOf(window);
  return { fanIn: inputs * reach, fanOut: outputs * reach };
}

/**
 * PyTorch's recommended factor on the deviation of a layer's weights. @param {Nonlinearity} nonlinearity
 * @param {number} [slope] of 'leakyRelu'; 0.01 when left out
 */
export function calculateGain(nonlinearity, slope = 0.01) {
  checkFinite('calculateGain', 'slope', slope);
  const gains = { linear: 1, conv: 1, sigmoid: 1, tanh: 5 / 3, relu: Math.SQRT2, leakyRelu: Math.sqrt(2 / (1 + slope ** 2)), selu: 0.75 };
  if (typeof nonlinearity !== 'string' || !Object.hasOwn(gains, nonlinearity))
    throw new ArgumentError('calculateGain', `nonlinearity must be one of ${Object.keys(gains).join(', ')}, got ${shown(nonlinearity)}`);
  return gains[nonlinearity];
}

/** Uniform numbers in [a, b). @param {Tensor} x @param {number} [a] @param {number} [b] at least `a` */
export function uniform(x, a = 0, b = 1) {
  checkFinite('uniform', 'a', a);
  checkFinite('uniform', 'b', b);
  if (b < a) throw new ArgumentError('uniform', `b must be at least a, got ${a} and ${b}`);
  return drawn('uniform', x, { distribution: 'uniform', low: a, high: b });
}
/** Normal numbers. @param {Tensor} x @param {number} [mean] @param {number} [std] the deviation */
export function normal(x, mean = 0, std = 1) {
  checkFinite('normal', 'mean', mean);
  checkLeast('normal', 'std', std);
  return drawn('normal', x, { distribution: 'normal', mean, deviation: std });
}
/** Normal numbers, drawn again outside of [a, b]. @param {Tensor} x @param {number} [mean] @param {number} [std] @param {number} [a] @param {number} [b] */
export function truncNormal(x, mean = 0, std = 1, a = -2, b = 2) {
  for (const [name, value] of Object.entries({ mean, a, b })) checkFinite('truncNormal', name, value);
  checkAbove('truncNormal', 'std', std);
  const [low, high] = [(a - mean) / std, (b - mean) / std];
  // Beyond, draws would rarely hit.
  if (!(low < high) || low > 3 || high < -3 || high - low < 0.01)
    throw new ArgumentError('truncNormal', `[a, b] must be an interval about mean ± 3 std, got [${a}, ${b}]`);
  return written('truncNormal', x, (count) => {
    const values = new Float32Array(count);
    for (let i = 0; i < count; ) {
      for (const value of normalValues(count - i, 0, 1)) if (value >= low && value <= high) values[i++] = mean + std * value;
    }
    return values;
  });
}
/** One number everywhere. @param {Tensor} x @param {number} value */
export function constant(x, value) {
  checkFinite('constant', 'value', value);
  return written('constant', x, (count) => new Float32Array(count).fill(value));
}
/** Zeros. @param {Tensor} x */
export const zeros = (x) => written('zeros', x, (count) => new Float32Array(count));
/** Ones. @param {Tensor} x */
export const ones = (x) => written('ones', x, (count) => new Float32Array(count).fill(1));
/** The identity. @param {Tensor} x [rows, columns] */
export function eye(x) {
  if (tensorOf('eye', x).ndim !== 2) throw new ShapeError('eye', `expected a matrix, got ${show(x.shape)}`);
  const [, columns] = x.shape;
  return written('eye', x, (count) => Float32Array.from({ length: count }, (_, i) => Number(Math.floor(i / columns) === i % columns)));
}
/** Uniform in ±gain √(6 / (fan in + fan out)) (Glorot & Bengio 2010). @param {Tensor} x @param {number} [gain] */
export function xavierUniform(x, gain = 1) {
  const { fanIn, fanOut } = fans('xavierUniform', x);
  checkLeast('xavierUniform', 'gain', gain);
  const bound = gain * Math.sqrt(6 / (fanIn + fanOut));
  return drawn('xavierUniform', x, { distribution: 'uniform', low: -bound, high: bound });
}
/** Normal with deviation gain √(2 / (fan in + fan out)) (Glorot & Bengio 2010). @param {Tensor} x @param {number} [gain] */
export function xavierNormal(x, gain = 1) {
  const { fanIn, fanOut } = fans('xavierNormal', x);
  checkLeast('xavierNormal', 'gain', gain);
  return drawn('xavierNormal', x, { distribution: 'normal', mean: 0, deviation: gain * Math.sqrt(2 / (fanIn + fanOut)) });
}
/** The deviation of He et al. @param {string} op @param {Tensor} x @param {KaimingOptions} options */
function deviation(op, x, options) {
  const { a = 0, mode = 'fanIn', nonlinearity = 'leakyRelu' } = checkOptions(op, options, ['a', 'mode', 'nonlinearity']);
  if (mode !== 'fanIn' && mode !== 'fanOut') throw new ArgumentError(op, `mode is 'fanIn' or 'fanOut', got ${shown(mode)}`);
  return within(op, () => calculateGain(nonlinearity, a)) / Math.sqrt(fans(op, x)[mode]);
}
/** Uniform in ±gain √(3 / fan) (He et al. 2015). @param {Tensor} x @param {KaimingOptions} [options] */
export function kaimingUniform(x, options = {}) {
  const bound = Math.sqrt(3) * deviation('kaimingUniform', x, options);
  return drawn('kaimingUniform', x, { distribution: 'uniform', low: -bound, high: bound });
}
/** Normal with deviation gain / √fan (He et al. 2015). @param {Tensor} x @param {KaimingOptions} [options] */
export function kaimingNormal(x, options = {}) {
  const own = deviation('kaimingNormal', x, options);
  return drawn('kaimingNormal', x, { distribution: 'normal', mean: 0, deviation: own });
}
/**
 * A matrix with orthonormal rows or columns, whichever are fewer, times `gain` (Saxe et al. 2013). More dimensions than two are columns.
 * @param {Tensor} x @param {number} [gain]
 */
export function orthogonal(x, gain = 1) {
  if (tensorOf('orthogonal', x).ndim < 2) throw new ShapeError('orthogonal', `expected at least two dimensions, got ${show(x.shape)}`);
  checkFinite('orthogonal', 'gain', gain);
  const rows = x.shape[0];
  const columns = sizeOf(x.shape.slice(1));
  const [few, many] = [Math.min(rows, columns), Math.max(rows, columns)];
  return written('orthogonal', x, (count) => {
    /** @type {Float64Array[]} */
    const basis = [];
    while (basis.length < few) {
      const vector = Float64Array.from(normalValues(many, 0, 1));
      // Twice, since once leaves the rounding of what was subtracted.
      for (let time = 0; time < 2; time++) {
        for (const other of basis) {
          const dot = vector.reduce((sum, v, i) => sum + v * other[i], 0);
          for (let i = 0; i < many; i++) vector[i] -= dot * other[i];
        }
      }
      const norm = Math.sqrt(vector.reduce((sum, v) => sum + v * v, 0));
      if (norm > 1e-6) basis.push(vector.map((v) => v / norm));
    }
    return Float32Array.from({ length: count }, (_, i) => {
      const [r, c] = [Math.floor(i / columns), i % columns];
      return gain * (rows <= columns ? basis[r][c] : basis[c][r]);
    });
  });
}
