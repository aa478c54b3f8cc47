// Layers. Parameters are f32 and have PyTorch's initial distributions.

import { constant } from '../core/tensor.mjs';
import { checkBytes } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import * as F from '../api/functional.mjs';
import { scatter } from '../api/indexing.mjs';
import { norm } from '../api/reductions.mjs';
import { denseLayout, positive, sizeOf } from '../core/layout.mjs';
import { tensorOf } from '../core/engine.mjs';
import { noGrad } from '../core/node.mjs';
import { checkAbove, checkOptions, checkPower, flag } from '../core/options.mjs';
import { initialValues } from '../api/random.mjs';
import { scope } from '../core/scope.mjs';
import { unscoped } from '../core/storage.mjs';
import { Tensor, empty } from '../api/tensor.mjs';
import { Module, Parameter } from './module.mjs';

/** @typedef {import('../../kernels/activation.mjs').Activation} Activation */

/**
 * A new parameter. Checks that the device can hold it before `draw` computes the values.
 * @param {string} op the module @param {number[]} shape @param {(count: number) => ArrayBufferView & ArrayLike<number>} draw
 */
function parameter(op, shape, draw) {
  const layout = denseLayout(shape, 'f32');
  checkBytes(op, layout);
  return unscoped(() => new Parameter(constant(draw(layout.size), layout)));
}

/**
 * A new parameter, drawn on the device.
 * @param {string} op the module @param {number[]} shape @param {import('../api/random.mjs').Initial} distribution
 */
function drawnParameter(op, shape, distribution) {
  checkBytes(op, denseLayout(shape, 'f32'));
  return unscoped(() => new Parameter(initialValues(shape, distribution)));
}

/**
 * Options of `skipInit`.
 * @typedef {object} SkipOptions
 * @property {'f32' | 'f16' | 'bf16'} [dtype] type of the matrices; biases stay f32. f32 when left out
 */

/** The type of matrices while `skipInit` is running: they are then left uninitialized. @type {'f32' | 'f16' | 'bf16' | undefined} */
let skipping;
/** @param {string} op the module @param {number[]} shape */
const undefinedParameter = (op, shape) =>
  within(op, () => unscoped(() => new Parameter(empty(shape, { dtype: shape.length > 1 ? skipping : 'f32' }))));

/**
 * Calls `fn`, and leaves the matrices of the modules that it makes uninitialized, for `loadStateDict` to fill. This saves drawing
 * and uploading initial values. In 16 bits, as frozen weights, they need half the memory; products convert them where the other operand is f32.
 * @template T
 * @param {() => T} fn makes modules; synchronous
 * @param {SkipOptions} [options]
 * @returns {T} what `fn` returns
 * @throws an ArgumentError if `fn` is not a function, or for another dtype
 */
export function skipInit(fn, options = {}) {
  if (typeof fn !== 'function') throw new ArgumentError('skipInit', `expected a function, got ${shown(fn)}`);
  const { dtype = 'f32' } = checkOptions('skipInit', options, ['dtype']);
  if (!['f32', 'f16', 'bf16'].includes(dtype)) throw new ArgumentError('skipInit', `dtype must be f32, f16 or bf16, got ${shown(dtype)}`);
  const before = skipping;
  skipping = dtype;
  try {
    return fn();
  } finally {
    skipping = before;
  }
}

/** A parameter drawn uniformly from ±bound. @param {string} op the module @param {number} bound @param {number[]} shape */
export function uniformParameter(op, bound, shape) {
  if (skipping) return undefinedParameter(op, shape);
  return drawnParameter(op, shape, { distribution: 'uniform', low: -bound, high: bound });
}

/**
 * A parameter drawn uniformly from ±1 / √inputs, as PyTorch initializes linear layers.
 * @param {string} op the module @param {number} inputs @param {number[]} shape
 */
export const kaiming = (op, inputs, shape) => uniformParameter(op, 1 / Math.sqrt(inputs), shape);

/** @param {string} op the module @param {number} value @param {number[]} shape */
export const constantParameter = (op, value, shape) => parameter(op, shape, (count) => new Float32Array(count).fill(value));
/** @param {string} op the module @param {number[]} shape */
export const zeroParameter = (op, shape) => constantParameter(op, 0, shape);

/**
 * Options of `Linear`.
 * @typedef {object} LinearOptions
 * @property {boolean} [bias] whether there is a bias; true when left out
 */

/**
 * Options of normalizations.
 * @typedef {object} NormOptions
 * @property {number} [eps] added to the variance (`RMSNorm`: to the mean square) before the square root; 1e-5 when left out
 */

/**
 * Options of `MLP`.
 * @typedef {object} MLPOptions
 * @property {number} [outputs] size of the result's last dimension; `width` when left out
 * @property {boolean} [bias] whether both layers have a bias; true when left out
 */

/** A linear layer: y = x Wᵀ + bias. `weight` is [outputs, inputs], `bias` is [outputs]; both begin uniform in ±1 / √inputs. */
export class Linear extends Module {
  /**
   * @param {number} inputs size of the last dimension of x @param {number} outputs size of the last dimension of y
   * @param {LinearOptions} [options]
   */
  constructor(inputs, outputs, options = {}) {
    super();
    const { bias = true } = checkOptions('Linear', options, ['bias']);
    positive('Linear', 'inputs', inputs);
    positive('Linear', 'outputs', outputs);
    flag('Linear', 'bias', bias);
    this.weight = kaiming('Linear', inputs, [outputs, inputs]);
    if (bias) this.bias = kaiming('Linear', inputs, [outputs]);
    this.inFeatures = inputs;
    this.outFeatures = outputs;
  }
  /** @param {Tensor} x [..., inputs] @returns {Tensor} [..., outputs] */
  forward(x) {
    return F.linear(x, this.weight, this.bias);
  }
  describe() {
    return `${this.weight.shape[1]}, ${this.weight.shape[0]}`;
  }
}

/**
 * Options of `Embedding`.
 * @typedef {object} EmbeddingOptions
 * @property {number} [paddingIdx] an id whose row begins as zeros and gets no gradient; a negative one counts from the end. None when left out
 * @property {number} [maxNorm] the largest norm of a row: each call shortens the rows that it looks up, in place, before it does. No limit when left out
 * @property {number} [normType] p of that norm; 2 when left out
 */

/**
 * Shortens the rows that ids name to a norm, in place.
 * @param {Tensor} weight [vocabulary, columns] @param {Tensor} ids @param {number} p @param {number} most
 */
function shortenRows(weight, ids, p, most) {
  noGrad(() =>
    scope(() => {
      const flat = F.reshape(tensorOf('embedding', ids), [-1]);
      const named = scatter(F.zeros([weight.shape[0]]), 0, flat, F.ones(flat.shape));
      const norms = norm(weight, p, 1);
      // PyTorch's 1e-7: a row is never longer than it may be.
      const factors = F.where(F.gt(F.mul(norms, named), most), F.div(most, F.add(norms, 1e-7)), 1);
      weight.mul_(F.unsqueeze(factors, 1));
    }),
  );
}

/**
 * Looks up rows of a table by index. `weight` is [vocabulary, columns] and begins normal with mean 0 and deviation 1. An id outside
 * the table gives a row of zeros.
 */
export class Embedding extends Module {
  /** @param {number} vocabulary rows of the table @param {number} columns @param {EmbeddingOptions} [options] */
  constructor(vocabulary, columns, options = {}) {
    super();
    const { paddingIdx, maxNorm, normType = 2 } = checkOptions('Embedding', options, ['paddingIdx', 'maxNorm', 'normType']);
    if (maxNorm !== undefined) this.maxNorm = checkAbove('Embedding', 'maxNorm', maxNorm);
    this.normType = checkPower('Embedding', 'normType', normType);
    positive('Embedding', 'vocabulary', vocabulary);
    positive('Embedding', 'columns', columns);
    this.numEmbeddings = vocabulary;
    this.embeddingDim = columns;
    const shape = [vocabulary, columns];
    this.weight = skipping
      ? undefinedParameter('Embedding', shape)
      : drawnParameter('Embedding', shape, { distribution: 'normal', mean: 0, deviation: 1 });
    if (paddingIdx === undefined) return;
    if (!Number.isInteger(paddingIdx) || paddingIdx < -vocabulary || paddingIdx >= vocabulary)
      throw new ArgumentError(
        'Embedding',
        `paddingIdx must be an integer from -${vocabulary} to ${vocabulary - 1}, got ${shown(paddingIdx)}`,
      );
    this.paddingIdx = paddingIdx < 0 ? paddingIdx + vocabulary : paddingIdx;
    const { weight } = this;
    if (!skipping) noGrad(() => void F.slice(weight, 0, this.paddingIdx, /** @type {number} */ (this.paddingIdx) + 1).fill_(0));
  }
  /** @param {Tensor} ids i32 or u32, any shape @returns {Tensor} [...ids, columns] */
  forward(ids) {
    if (this.maxNorm !== undefined)
      within('embedding', () => shortenRows(this.weight, ids, this.normType, /** @type {number} */ (this.maxNorm)));
    const rows = F.embedding(ids, this.weight);
    if (this.paddingIdx === undefined) return rows;
    return within('embedding', () => F.where(F.unsqueeze(F.eq(ids, /** @type {number} */ (this.paddingIdx)), -1), rows.detach(), rows));
  }
  describe() {
    return this.weight.shape.join(', ');
  }
}

/** x / √(mean(x²) + eps) · weight over the last dimension (Zhang & Sennrich 2019). `weight` is [columns] and begins as ones. */
export class RMSNorm extends Module {
  /** @param {number} columns size of the last dimension @param {NormOptions} [options] */
  constructor(columns, options = {}) {
    super();
    const { eps = 1e-5 } = checkOptions('RMSNorm', options, ['eps']);
    this.weight = constantParameter('RMSNorm', 1, [positive('RMSNorm', 'columns', columns)]);
    this.eps = eps;
  }
  /** @param {Tensor} x [..., columns] @returns {Tensor} of x's shape */
  forward(x) {
    return F.rmsNorm(x, this.weight, this.eps);
  }
}

/**
 * Options of `LayerNorm` besides those of every normalization.
 * @typedef {object} LayerNormOptions
 * @property {boolean} [elementwiseAffine] whether there are a `weight` and a `bias`; true when left out
 * @property {boolean} [bias] whether there is a `bias`; true when left out
 */

/**
 * (x - mean) / √(variance + eps) · weight + bias over the last dimension, or the last ones (Ba et al. 2016). `weight` and `bias` have the
 * normalized sizes and begin as ones and zeros.
 */
export class LayerNorm extends Module {
  /** @param {number | number[]} columns the last size, or the last sizes, of x @param {NormOptions & LayerNormOptions} [options] */
  constructor(columns, options = {}) {
    super();
    const { eps = 1e-5, elementwiseAffine = true, bias = true } = checkOptions('LayerNorm', options, ['eps', 'elementwiseAffine', 'bias']);
    flag('LayerNorm', 'elementwiseAffine', elementwiseAffine);
    flag('LayerNorm', 'bias', bias);
    if (Array.isArray(columns) && columns.length === 0) throw new ArgumentError('LayerNorm', 'columns must be at least one size, got []');
    const shape = [columns].flat().map((size) => positive('LayerNorm', 'columns', size));
    // Typed as what they nearly always are.
    this.weight = /** @type {Parameter} */ (elementwiseAffine ? constantParameter('LayerNorm', 1, shape) : undefined);
    this.bias = /** @type {Parameter} */ (elementwiseAffine && bias ? zeroParameter('LayerNorm', shape) : undefined);
    this.normalizedShape = shape;
    this.eps = eps;
  }
  /** @param {Tensor} x [..., columns] @returns {Tensor} of x's shape */
  forward(x) {
    const { normalizedShape: shape, weight, bias, eps } = this;
    if (shape.length === 1 && weight && bias) return F.layerNorm(x, weight, bias, eps);
    if (String(tensorOf('layerNorm', x).shape.slice(-shape.length)) !== String(shape))
      throw new ShapeError('layerNorm', `expected an input ${show(['...', ...shape])}, got ${show(x.shape)}`);
    return within('layerNorm', () => {
      const flat = (/** @type {Tensor | undefined} */ v, /** @type {number} */ value) =>
        v ? F.reshape(v, [sizeOf(shape)]) : F.full([sizeOf(shape)], value);
      const rows = F.reshape(x, [...x.shape.slice(0, -shape.length), sizeOf(shape)]);
      return F.reshape(F.layerNorm(rows, flat(weight, 1), flat(bias, 0), eps), x.shape);
    });
  }
}

/** max(x, 0). */
export class ReLU extends Module {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return F.relu(x);
  }
}

/** x · sigmoid(x). */
export class SiLU extends Module {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return F.silu(x);
  }
}

/** GELU (Hendrycks & Gimpel 2016): the tanh approximation, PyTorch's `approximate='tanh'`, or the exact one. */
export class GELU extends Module {
  /** @param {import('../api/functional.mjs').GeluOptions} [options] */
  constructor(options = {}) {
    super();
    const { approximate = 'tanh' } = checkOptions('GELU', options, ['approximate']);
    if (approximate !== 'tanh' && approximate !== 'none')
      throw new ArgumentError('GELU', `approximate must be 'none' or 'tanh', got ${shown(approximate)}`);
    this.approximate = approximate;
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return F.gelu(x, { approximate: this.approximate });
  }
}

/** tanh(x). */
export class Tanh extends Module {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return F.tanh(x);
  }
}

/** 1 / (1 + exp(-x)). */
export class Sigmoid extends Module {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return F.sigmoid(x);
  }
}

/** Merges all dimensions but the first into one. */
export class Flatten extends Module {
  /** @param {Tensor} x [batch, ...] @returns {Tensor} [batch, n] */
  forward(x) {
    tensorOf('Flatten', x);
    return within('Flatten', () => x.flatten(1));
  }
}

/**
 * down(silu(gate x) · up x) (Shazeer 2020), without biases. `gateUp` holds both matrices, gate first, so that one product computes
 * both.
 */
export class SwiGLU extends Module {
  /** @param {number} width size of the last dimension of x and of the result @param {number} hidden size between the layers */
  constructor(width, hidden) {
    super();
    positive('SwiGLU', 'width', width);
    positive('SwiGLU', 'hidden', hidden);
    this.gateUp = within('SwiGLU', () => new Linear(width, 2 * hidden, { bias: false }));
    this.down = within('SwiGLU', () => new Linear(hidden, width, { bias: false }));
  }
  /** @param {Tensor} x [..., width] @returns {Tensor} [..., width] */
  forward(x) {
    tensorOf('SwiGLU', x);
    return within('SwiGLU', () => this.down.forward(F.glu(this.gateUp.forward(x), 'silu')));
  }
}

/** down(gelu(up x)): two linear layers with GELU (the tanh approximation) between them. */
export class MLP extends Module {
  /** @param {number} width size of the last dimension of x @param {number} hidden size between the layers @param {MLPOptions} [options] */
  constructor(width, hidden, options = {}) {
    super();
    const { outputs = width, bias = true } = checkOptions('MLP', options, ['outputs', 'bias']);
    for (const [name, value] of Object.entries({ width, hidden, outputs })) positive('MLP', name, value);
    flag('MLP', 'bias', bias);
    this.up = within('MLP', () => new Linear(width, hidden, { bias }));
    this.down = within('MLP', () => new Linear(hidden, outputs, { bias }));
  }
  /** @param {Tensor} x [..., width] @returns {Tensor} [..., outputs] */
  forward(x) {
    tensorOf('MLP', x);
    return within('MLP', () => this.down.forward(F.gelu(this.up.forward(x))));
  }
}
