// Activations as modules, with PyTorch's arguments and defaults, and modules that only change shapes. They have no parameters but PReLU.

import * as math from '../api/math.mjs';
import * as F from '../api/functional.mjs';
import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { checkShape, dimension, positive } from '../core/layout.mjs';
import { checkOptions } from '../core/options.mjs';
import { constantParameter } from './layers.mjs';
import { Module } from './module.mjs';

/** An array on the device. @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/**
 * Options of `PReLU`.
 * @typedef {object} PReLUOptions
 * @property {number} [init] what the slopes begin as; 0.25 when left out
 */

/** A number that a constructor takes. @param {string} op @param {string} name @param {unknown} value @returns {number} */
function number(op, name, value) {
  if (typeof value !== 'number') throw new ArgumentError(op, `${name} must be a number, got ${shown(value)}`);
  return value;
}

/** x where it is above 0, else alpha (eˣ - 1). */
export class ELU extends Module {
  /** @param {number} [alpha] */
  constructor(alpha = 1) {
    super();
    this.alpha = number('ELU', 'alpha', alpha);
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.elu(x, this.alpha);
  }
}

/** 1.0507 times elu(x, 1.6733). */
export class SELU extends Module {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.selu(x);
  }
}

/** x where it is above 0, else alpha (e^(x / alpha) - 1). */
export class CELU extends Module {
  /** @param {number} [alpha] */
  constructor(alpha = 1) {
    super();
    this.alpha = number('CELU', 'alpha', alpha);
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.celu(x, this.alpha);
  }
}

/** x where it is above 0, else negativeSlope · x. */
export class LeakyReLU extends Module {
  /** @param {number} [negativeSlope] */
  constructor(negativeSlope = 0.01) {
    super();
    this.negativeSlope = number('LeakyReLU', 'negativeSlope', negativeSlope);
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.leakyRelu(x, this.negativeSlope);
  }
}

/** x where it is above 0, else weight · x (He et al. 2015). `weight` is [numParameters]: one slope, or one for each channel. */
export class PReLU extends Module {
  /** @param {number} [numParameters] 1, or the size of x's second dimension @param {PReLUOptions} [options] */
  constructor(numParameters = 1, options = {}) {
    super();
    const { init = 0.25 } = checkOptions('PReLU', options, ['init']);
    this.weight = constantParameter('PReLU', number('PReLU', 'init', init), [positive('PReLU', 'numParameters', numParameters)]);
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.prelu(x, this.weight);
  }
}

/** x · hardSigmoid(x). */
export class Hardswish extends Module {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.hardSwish(x);
  }
}

/** min(max(x + 3, 0), 6) / 6. */
export class Hardsigmoid extends Module {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.hardSigmoid(x);
  }
}

/** x limited to minVal … maxVal. */
export class Hardtanh extends Module {
  /** @param {number} [minVal] @param {number} [maxVal] */
  constructor(minVal = -1, maxVal = 1) {
    super();
    this.minVal = number('Hardtanh', 'minVal', minVal);
    this.maxVal = number('Hardtanh', 'maxVal', maxVal);
    if (!(minVal < maxVal)) throw new ArgumentError('Hardtanh', `maxVal must be above minVal, got ${minVal} and ${maxVal}`);
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.hardTanh(x, this.minVal, this.maxVal);
  }
}

/** x limited to 0 … 6. */
export class ReLU6 extends Module {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.relu6(x);
  }
}

/** x · tanh(softplus(x)). */
export class Mish extends Module {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.mish(x);
  }
}

/** log(sigmoid(x)). */
export class LogSigmoid extends Module {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.logSigmoid(x);
  }
}

/** log(1 + e^(beta x)) / beta, and x where beta x is above the threshold. */
export class Softplus extends Module {
  /** @param {number} [beta] @param {number} [threshold] */
  constructor(beta = 1, threshold = 20) {
    super();
    this.beta = number('Softplus', 'beta', beta);
    this.threshold = number('Softplus', 'threshold', threshold);
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.softplus(x, this.beta, this.threshold);
  }
}

/** x / (1 + |x|). */
export class Softsign extends Module {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.softsign(x);
  }
}

/** softmax along a dimension. */
export class Softmax extends Module {
  /** @param {number} [dim] the last when left out */
  constructor(dim = -1) {
    super();
    this.dim = number('Softmax', 'dim', dim);
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return F.softmax(x, this.dim);
  }
}

/** log(softmax(x)) along a dimension. */
export class LogSoftmax extends Module {
  /** @param {number} [dim] the last when left out */
  constructor(dim = -1) {
    super();
    this.dim = number('LogSoftmax', 'dim', dim);
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return F.logSoftmax(x, this.dim);
  }
}

/** x - tanh(x). */
export class Tanhshrink extends Module {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.tanhshrink(x);
  }
}

/** 0 where |x| is at most lambd, else x. */
export class Hardshrink extends Module {
  /** @param {number} [lambd] */
  constructor(lambd = 0.5) {
    super();
    this.lambd = number('Hardshrink', 'lambd', lambd);
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.hardshrink(x, this.lambd);
  }
}

/** 0 where |x| is at most lambd, else x nearer to 0 by it. */
export class Softshrink extends Module {
  /** @param {number} [lambd] at least 0 */
  constructor(lambd = 0.5) {
    super();
    if (!(number('Softshrink', 'lambd', lambd) >= 0)) throw new ArgumentError('Softshrink', `lambd must be at least 0, got ${lambd}`);
    this.lambd = lambd;
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.softshrink(x, this.lambd);
  }
}

/** x where it is above the threshold, else the value. */
export class Threshold extends Module {
  /** @param {number} threshold @param {number} value */
  constructor(threshold, value) {
    super();
    this.threshold = number('Threshold', 'threshold', threshold);
    this.value = number('Threshold', 'value', value);
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return math.threshold(x, this.threshold, this.value);
  }
}

/**
 * first · sigmoid(second), of the halves of a dimension (Dauphin et al. 2017). `F.glu` takes them in the other order: the gate is first, as in
 * SwiGLU.
 */
export class GLU extends Module {
  /** @param {number} [dim] the last when left out */
  constructor(dim = -1) {
    super();
    this.dim = number('GLU', 'dim', dim);
  }
  /** @param {Tensor} x its size in the dimension is even @returns {Tensor} half as large */
  forward(x) {
    const d = dimension('GLU', this.dim, tensorOf('GLU', x).ndim);
    const half = x.shape[d] / 2;
    if (!Number.isInteger(half)) throw new ShapeError('GLU', `the size of dimension ${this.dim} must be even, got ${show(x.shape)}`);
    return within('GLU', () => F.mul(F.slice(x, d, 0, half), F.sigmoid(F.slice(x, d, half))));
  }
}

/** x as it is. */
export class Identity extends Module {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return tensorOf('Identity', x);
  }
}

/** Divides one dimension into several. */
export class Unflatten extends Module {
  /** @param {number} dim @param {readonly number[]} sizes their product is the size of the dimension; one may be -1: what is left */
  constructor(dim, sizes) {
    super();
    this.dim = number('Unflatten', 'dim', dim);
    const rest = Array.isArray(sizes) ? sizes.filter((size) => size !== -1) : sizes;
    checkShape('Unflatten', rest);
    if (sizes.length - rest.length > 1 || sizes.length === 0)
      throw new ShapeError('Unflatten', `sizes must be some, of which one may be -1, got ${show(sizes)}`);
    this.sizes = [...sizes];
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    const d = dimension('Unflatten', this.dim, tensorOf('Unflatten', x).ndim);
    const known = this.sizes.reduce((product, size) => (size === -1 ? product : product * size), 1);
    const sizes = this.sizes.map((size) => (size === -1 ? x.shape[d] / known : size));
    if (sizes.reduce((a, b) => a * b, 1) !== x.shape[d] || !sizes.every(Number.isInteger))
      throw new ShapeError('Unflatten', `${show(this.sizes)} does not divide dimension ${this.dim} of ${show(x.shape)}`);
    return within('Unflatten', () => F.reshape(x, x.shape.toSpliced(d, 1, ...sizes)));
  }
}
