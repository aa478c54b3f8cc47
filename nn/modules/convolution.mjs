// Convolutions of one to three dimensions and transposed ones.

import {
  checkGroups,
  conv1d,
  conv2d,
  conv3d,
  convTranspose1d,
  convTranspose2d,
  convTranspose3d,
  each,
  zeros,
} from '../api/convolution.mjs';
import { pad } from '../api/shape.mjs';
import { TensorCore } from '../core/tensor.mjs';
import { ArgumentError, show, shown, within } from '../core/errors.mjs';
import { track } from '../core/guards.mjs';
import { positive } from '../core/layout.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { kaiming } from './layers.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../api/convolution.mjs').Single} Single */
/** @typedef {import('../api/convolution.mjs').Pair} Pair */
/** @typedef {import('../api/convolution.mjs').Triple} Triple */
/** @typedef {import('../api/convolution.mjs').Convolution1dOptions} Convolution1dOptions */
/** @typedef {import('../api/convolution.mjs').ConvolutionOptions} ConvolutionOptions */
/** @typedef {import('../api/convolution.mjs').Convolution3dOptions} Convolution3dOptions */
/** @typedef {import('../api/convolution.mjs').Transposed1dOptions} Transposed1dOptions */
/** @typedef {import('../api/convolution.mjs').TransposedOptions} TransposedOptions */
/** @typedef {import('../api/convolution.mjs').Transposed3dOptions} Transposed3dOptions */
/** @typedef {import('./layers.mjs').LinearOptions} LinearOptions */

/**
 * What lies around x in `Conv1d`, `Conv2d` and `Conv3d`.
 * @typedef {object} PaddingOptions
 * @property {'zeros' | 'reflect' | 'replicate' | 'circular'} [paddingMode] what padding adds: zeros, when left out; elements mirrored at the
 *   outermost one; the outermost one repeated; or elements of the other end
 */

/** Options of any convolution, as they are checked. @typedef {ConvolutionOptions & TransposedOptions & LinearOptions & PaddingOptions} AnyOptions */

const MODES = ['zeros', 'reflect', 'replicate', 'circular'];

/**
 * What all convolutions have.
 * @template {[number] | [number, number] | [number, number, number]} S sizes, one for each direction
 * @template {'same' | 'valid'} N names of paddings
 */
class Convolution extends Module {
  #channels;
  #window;
  /** @type {'zeros' | 'reflect' | 'replicate' | 'circular'} */
  #mode;
  /** @type {{ stride: S, padding: N | [number, number][] | 0, outputPadding?: S, dilation: S, groups: number }} */
  #options;
  /** As it was given, one for each direction. @type {N | [number, number][] | S} */
  #padding;
  /**
   * What is added around x before the convolution, which then adds nothing: the last direction first.
   * @type {{ sizes: number[], mode: 'reflect' | 'replicate' | 'circular' } | undefined}
   */
  #border;

  /**
   * @param {string} name of the class @param {number} rank @param {number} inputs @param {number} outputs @param {unknown} window
   * @param {object} given options @param {boolean} transposed
   */
  constructor(name, rank, inputs, outputs, window, given, transposed) {
    super();
    const names = [
      'stride',
      'padding',
      ...(transposed ? ['outputPadding'] : []),
      'dilation',
      'groups',
      'bias',
      ...(transposed ? [] : ['paddingMode']),
    ];
    const { bias = true, groups = 1, paddingMode = 'zeros', ...options } = /** @type {AnyOptions} */ (checkOptions(name, given, names));
    positive(name, 'inputs', inputs);
    positive(name, 'outputs', outputs);
    checkGroups(name, groups, inputs, outputs);
    const sizes = each(name, 'window', window, 1, rank);
    flag(name, 'bias', bias);
    const { stride = 1, padding = 0, dilation = 1, outputPadding = 0 } = options;
    if (!MODES.includes(paddingMode))
      throw new ArgumentError(name, `paddingMode must be one of ${MODES.join(', ')}, got ${shown(paddingMode)}`);
    this.#window = /** @type {S} */ (sizes);
    this.#mode = paddingMode;
    this.#options = {
      stride: /** @type {S} */ (each(name, 'stride', stride, 1, rank)),
      padding: 0,
      ...(transposed ? { outputPadding: /** @type {S} */ (each(name, 'outputPadding', outputPadding, 0, rank)) } : {}),
      dilation: /** @type {S} */ (each(name, 'dilation', dilation, 1, rank)),
      groups,
    };
    this.#padding = this.#surroundings(/** @type {any} */ (padding));
    this.#channels = [inputs, outputs];
    const shape = transposed ? [inputs, outputs / groups, ...sizes] : [outputs, inputs / groups, ...sizes];
    const reach = shape.slice(1).reduce((a, b) => a * b, 1);
    this.weight = kaiming(name, reach, shape);
    if (bias) this.bias = kaiming(name, reach, [outputs]);
  }
  /** The options of the function: another object once one of them was set, so that a compiled function is traced again. */
  get options() {
    return track(this, 'options', this.#options);
  }
  /**
   * Sets what lies around x. @param {N | number | number[] | [number, number][]} padding
   * @returns {N | [number, number][] | S} one for each direction
   */
  #surroundings(padding) {
    const [name, { length: rank }] = [this.constructor.name, this.#window];
    const isNamed = padding === 'valid' || (padding === 'same' && this.#options.outputPadding === undefined);
    const named = isNamed ? /** @type {N} */ (padding) : zeros(name, padding, rank);
    const mode = this.#mode;
    this.#options = { ...this.#options, padding: mode === 'zeros' ? named : 0 };
    if (mode !== 'zeros') {
      const reach = this.#window.map((n, d) => (n - 1) * this.#options.dilation[d] + 1);
      this.#border = { sizes: zeros(name, named, rank, reach).toReversed().flat(), mode };
    }
    return typeof padding === 'number'
      ? /** @type {S} */ (new Array(rank).fill(padding))
      : /** @type {N | [number, number][] | S} */ (padding);
  }
  /** The channels of x. Like `outChannels`, `groups` and `kernelSize` it cannot be set: the weight has it. */
  get inChannels() {
    return this.#channels[0];
  }
  /** The channels of the result. */
  get outChannels() {
    return this.#channels[1];
  }
  /** The parts of the channels that have nothing to do with each other. */
  get groups() {
    return this.#options.groups;
  }
  /** The sizes of the window. @returns {S} */
  get kernelSize() {
    return this.#window;
  }
  /** What `padding` adds. */
  get paddingMode() {
    return this.#mode;
  }
  /** The steps between windows. Like `padding` and `dilation` it can be set: one for all directions, or one for each. @returns {S} */
  get stride() {
    return this.options.stride;
  }
  set stride(/** @type {number | S} */ stride) {
    const own = /** @type {S} */ (each(this.constructor.name, 'stride', stride, 1, this.#window.length));
    this.#options = { ...this.#options, stride: own };
  }
  /** What is added around x. @returns {N | [number, number][] | S} */
  get padding() {
    return track(this, 'padding', this.#padding);
  }
  set padding(/** @type {N | number | [number, number][] | S} */ padding) {
    this.#padding = this.#surroundings(padding);
  }
  /** The steps between elements of a window. @returns {S} */
  get dilation() {
    return this.options.dilation;
  }
  set dilation(/** @type {number | S} */ dilation) {
    const own = /** @type {S} */ (each(this.constructor.name, 'dilation', dilation, 1, this.#window.length));
    this.#options = { ...this.#options, dilation: own };
    this.padding = this.#padding;
  }
  /** x with what lies around it, unless that is zeros. @param {Tensor} x @returns {Tensor} */
  surrounded(x) {
    const border = this.#border;
    // What is no batch of images, the function says.
    if (!border || !(x instanceof TensorCore) || x.ndim !== this.options.dilation.length + 2) return x;
    return within(this.constructor.name, () => pad(x, border.sizes, border.mode));
  }
  describe() {
    return `${this.inChannels}, ${this.outChannels}, ${show(this.kernelSize)}`;
  }
}

/**
 * A convolution over steps; see `F.conv1d`. `weight` is [outputs, inputs / groups, window], `bias` is [outputs]. Both begin
 * uniform in ±1 / √(inputs / groups · window), as in PyTorch.
 * @extends {Convolution<[number], 'same' | 'valid'>}
 */
export class Conv1d extends Convolution {
  /**
   * @param {number} inputs channels of x @param {number} outputs channels of the result
   * @param {Single} window of the window in steps
   * @param {Convolution1dOptions & PaddingOptions & LinearOptions} [options]
   */
  constructor(inputs, outputs, window, options = {}) {
    super('Conv1d', 1, inputs, outputs, window, options, false);
  }
  /** @param {Tensor} x [batch, inputs, steps] @returns {Tensor} [batch, outputs, steps'] */
  forward(x) {
    return conv1d(this.surrounded(x), this.weight, this.bias, this.options);
  }
}

/**
 * A convolution over rows and columns; see `F.conv2d`. `weight` is [outputs, inputs / groups, down, across], `bias` is [outputs]. Both begin
 * uniform in ±1 / √(inputs / groups · down · across), as in PyTorch.
 * @extends {Convolution<[number, number], 'same' | 'valid'>}
 */
export class Conv2d extends Convolution {
  /**
   * @param {number} inputs channels of x @param {number} outputs channels of the result
   * @param {Pair} window one size for both directions, or [down, across]
   * @param {ConvolutionOptions & PaddingOptions & LinearOptions} [options]
   */
  constructor(inputs, outputs, window, options = {}) {
    super('Conv2d', 2, inputs, outputs, window, options, false);
  }
  /** @param {Tensor} x [batch, inputs, rows, columns] @returns {Tensor} [batch, outputs, rows', columns'] */
  forward(x) {
    return conv2d(this.surrounded(x), this.weight, this.bias, this.options);
  }
}

/**
 * A convolution over planes, rows and columns; see `F.conv3d`. `weight` is [outputs, inputs / groups, deep, down, across], `bias` is [outputs]. Both begin
 * uniform in ±1 / √(inputs / groups · deep · down · across), as in PyTorch.
 * @extends {Convolution<[number, number, number], 'same' | 'valid'>}
 */
export class Conv3d extends Convolution {
  /**
   * @param {number} inputs channels of x @param {number} outputs channels of the result
   * @param {Triple} window one size for all directions, or [deep, down, across]
   * @param {Convolution3dOptions & PaddingOptions & LinearOptions} [options]
   */
  constructor(inputs, outputs, window, options = {}) {
    super('Conv3d', 3, inputs, outputs, window, options, false);
  }
  /** @param {Tensor} x [batch, inputs, planes, rows, columns] @returns {Tensor} [batch, outputs, planes', rows', columns'] */
  forward(x) {
    return conv3d(this.surrounded(x), this.weight, this.bias, this.options);
  }
}

/**
 * A transposed convolution over steps; see `F.convTranspose1d`. `weight` is [inputs, outputs / groups, window], `bias` is
 * [outputs]. Both begin uniform in ±1 / √(outputs / groups · window), as in PyTorch.
 * @extends {Convolution<[number], 'valid'>}
 */
export class ConvTranspose1d extends Convolution {
  /**
   * @param {number} inputs channels of x @param {number} outputs channels of the result
   * @param {Single} window of the window in steps
   * @param {Transposed1dOptions & LinearOptions} [options]
   */
  constructor(inputs, outputs, window, options = {}) {
    super('ConvTranspose1d', 1, inputs, outputs, window, options, true);
  }
  /** @param {Tensor} x [batch, inputs, steps] @returns {Tensor} [batch, outputs, steps'] */
  forward(x) {
    return convTranspose1d(x, this.weight, this.bias, this.options);
  }
}

/**
 * A transposed convolution over rows and columns; see `F.convTranspose2d`. `weight` is [inputs, outputs / groups, down, across], `bias` is
 * [outputs]. Both begin uniform in ±1 / √(outputs / groups · down · across), as in PyTorch.
 * @extends {Convolution<[number, number], 'valid'>}
 */
export class ConvTranspose2d extends Convolution {
  /**
   * @param {number} inputs channels of x @param {number} outputs channels of the result
   * @param {Pair} window one size for both directions, or [down, across]
   * @param {TransposedOptions & LinearOptions} [options]
   */
  constructor(inputs, outputs, window, options = {}) {
    super('ConvTranspose2d', 2, inputs, outputs, window, options, true);
  }
  /** @param {Tensor} x [batch, inputs, rows, columns] @returns {Tensor} [batch, outputs, rows', columns'] */
  forward(x) {
    return convTranspose2d(x, this.weight, this.bias, this.options);
  }
}

/**
 * A transposed convolution over planes, rows and columns; see `F.convTranspose3d`. `weight` is [inputs, outputs / groups, deep, down, across], `bias` is
 * [outputs]. Both begin uniform in ±1 / √(outputs / groups · deep · down · across), as in PyTorch.
 * @extends {Convolution<[number, number, number], 'valid'>}
 */
export class ConvTranspose3d extends Convolution {
  /**
   * @param {number} inputs channels of x @param {number} outputs channels of the result
   * @param {Triple} window one size for all directions, or [deep, down, across]
   * @param {Transposed3dOptions & LinearOptions} [options]
   */
  constructor(inputs, outputs, window, options = {}) {
    super('ConvTranspose3d', 3, inputs, outputs, window, options, true);
  }
  /** @param {Tensor} x [batch, inputs, planes, rows, columns] @returns {Tensor} [batch, outputs, planes', rows', columns'] */
  forward(x) {
    return convTranspose3d(x, this.weight, this.bias, this.options);
  }
}
