// Modules without parameters that put elements elsewhere: padding, other sizes, blocks of channels, windows as columns.

import { interpolate } from '../api/resample.mjs';
import { both, fold, integers, pad, pixelShuffle, pixelUnshuffle, unfold } from '../api/shape.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { tensorOf } from '../core/engine.mjs';
import { positive } from '../core/layout.mjs';
import { checkOptions } from '../core/options.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../api/shape.mjs').PadMode} PadMode */
/** @typedef {import('../api/shape.mjs').Both} Both */
/** @typedef {import('../api/shape.mjs').UnfoldOptions} UnfoldOptions */
/** @typedef {import('../api/resample.mjs').InterpolateOptions} InterpolateOptions */
/** How many elements are added at every end, or at each: [left, right, top, bottom, front, back] of as many dimensions as there are. @typedef {number | readonly number[]} Sides */

/** What all modules of padding do; see `F.pad`. Those of PyTorch's names are below. */
class Padding extends Module {
  /**
   * @param {string} name for errors @param {number} rank dimensions that are padded @param {Sides} padding @param {PadMode} mode
   * @param {number} [value]
   */
  constructor(name, rank, padding, mode, value = 0) {
    super();
    const list = Array.isArray(padding) ? padding : new Array(2 * rank).fill(padding);
    if (list.length !== 2 * rank) throw new ArgumentError(name, `padding must be one number or ${2 * rank} of them, got ${shown(padding)}`);
    if (typeof value !== 'number') throw new ArgumentError(name, `value must be a number, got ${shown(value)}`);
    this.name = name;
    this.rank = rank;
    this.padding = integers(name, 'padding', list);
    this.mode = mode;
    this.value = value;
  }
  /** @param {Tensor} x [batch, channels, …] with as many dimensions behind them as are padded, or without the batch @returns {Tensor} */
  forward(x) {
    const { ndim, shape } = tensorOf(this.name, x);
    if (ndim !== this.rank + 1 && ndim !== this.rank + 2)
      throw new ShapeError(this.name, `expected ${this.rank + 1} or ${this.rank + 2} dimensions, got ${show(shape)}`);
    return within(this.name, () => pad(x, this.padding, this.mode, this.value));
  }
  describe() {
    return show(this.padding) + (this.mode === 'constant' ? `, ${this.value}` : '');
  }
}

/** Zeros around signals [batch, channels, steps]. */
export class ZeroPad1d extends Padding {
  /** @param {Sides} padding one number, or [left, right] */
  constructor(padding) {
    super('ZeroPad1d', 1, padding, 'constant');
  }
}
/** Zeros around images [batch, channels, rows, columns]. */
export class ZeroPad2d extends Padding {
  /** @param {Sides} padding one number, or [left, right, top, bottom] */
  constructor(padding) {
    super('ZeroPad2d', 2, padding, 'constant');
  }
}
/** Zeros around volumes [batch, channels, planes, rows, columns]. */
export class ZeroPad3d extends Padding {
  /** @param {Sides} padding one number, or [left, right, top, bottom, front, back] */
  constructor(padding) {
    super('ZeroPad3d', 3, padding, 'constant');
  }
}
/** A value around signals [batch, channels, steps]. */
export class ConstantPad1d extends Padding {
  /** @param {Sides} padding one number, or [left, right] @param {number} value */
  constructor(padding, value) {
    super('ConstantPad1d', 1, padding, 'constant', value);
  }
}
/** A value around images [batch, channels, rows, columns]. */
export class ConstantPad2d extends Padding {
  /** @param {Sides} padding one number, or [left, right, top, bottom] @param {number} value */
  constructor(padding, value) {
    super('ConstantPad2d', 2, padding, 'constant', value);
  }
}
/** A value around volumes [batch, channels, planes, rows, columns]. */
export class ConstantPad3d extends Padding {
  /** @param {Sides} padding one number, or [left, right, top, bottom, front, back] @param {number} value */
  constructor(padding, value) {
    super('ConstantPad3d', 3, padding, 'constant', value);
  }
}
/** The mirror image around signals [batch, channels, steps]. */
export class ReflectionPad1d extends Padding {
  /** @param {Sides} padding one number, or [left, right] */
  constructor(padding) {
    super('ReflectionPad1d', 1, padding, 'reflect');
  }
}
/** The mirror image around images [batch, channels, rows, columns]. */
export class ReflectionPad2d extends Padding {
  /** @param {Sides} padding one number, or [left, right, top, bottom] */
  constructor(padding) {
    super('ReflectionPad2d', 2, padding, 'reflect');
  }
}
/** The mirror image around volumes [batch, channels, planes, rows, columns]. */
export class ReflectionPad3d extends Padding {
  /** @param {Sides} padding one number, or [left, right, top, bottom, front, back] */
  constructor(padding) {
    super('ReflectionPad3d', 3, padding, 'reflect');
  }
}
/** The outermost elements, repeated, around signals [batch, channels, steps]. */
export class ReplicationPad1d extends Padding {
  /** @param {Sides} padding one number, or [left, right] */
  constructor(padding) {
    super('ReplicationPad1d', 1, padding, 'replicate');
  }
}
/** The outermost elements, repeated, around images [batch, channels, rows, columns]. */
export class ReplicationPad2d extends Padding {
  /** @param {Sides} padding one number, or [left, right, top, bottom] */
  constructor(padding) {
    super('ReplicationPad2d', 2, padding, 'replicate');
  }
}
/** The outermost elements, repeated, around volumes [batch, channels, planes, rows, columns]. */
export class ReplicationPad3d extends Padding {
  /** @param {Sides} padding one number, or [left, right, top, bottom, front, back] */
  constructor(padding) {
    super('ReplicationPad3d', 3, padding, 'replicate');
  }
}
/** The other end around signals [batch, channels, steps]. */
export class CircularPad1d extends Padding {
  /** @param {Sides} padding one number, or [left, right] */
  constructor(padding) {
    super('CircularPad1d', 1, padding, 'circular');
  }
}
/** The other end around images [batch, channels, rows, columns]. */
export class CircularPad2d extends Padding {
  /** @param {Sides} padding one number, or [left, right, top, bottom] */
  constructor(padding) {
    super('CircularPad2d', 2, padding, 'circular');
  }
}

/** Images of other sizes; see `F.interpolate`. */
export class Upsample extends Module {
  /** @param {InterpolateOptions} options */
  constructor(options) {
    super();
    const { size, scaleFactor } = checkOptions('Upsample', options, [
      'size',
      'scaleFactor',
      'mode',
      'alignCorners',
      'recomputeScaleFactor',
      'antialias',
    ]);
    if ((size === undefined) === (scaleFactor === undefined)) throw new ArgumentError('Upsample', 'one of size and scaleFactor is needed');
    this.options = { ...options };
  }
  /** @param {Tensor} x [batch, channels, …] @returns {Tensor} [batch, channels, …] */
  forward(x) {
    return within('Upsample', () => interpolate(x, this.options));
  }
  describe() {
    return shown(this.options);
  }
}

/** Blocks of r × r elements of as many channels; see `F.pixelShuffle`. */
export class PixelShuffle extends Module {
  /** @param {number} factor r */
  constructor(factor) {
    super();
    this.factor = positive('PixelShuffle', 'factor', factor);
  }
  /** @param {Tensor} x [..., channels · r², rows, columns] @returns {Tensor} [..., channels, rows · r, columns · r] */
  forward(x) {
    return pixelShuffle(x, this.factor);
  }
}
/** Channels of the elements of blocks of r × r; see `F.pixelUnshuffle`. */
export class PixelUnshuffle extends Module {
  /** @param {number} factor r */
  constructor(factor) {
    super();
    this.factor = positive('PixelUnshuffle', 'factor', factor);
  }
  /** @param {Tensor} x [..., channels, rows · r, columns · r] @returns {Tensor} [..., channels · r², rows, columns] */
  forward(x) {
    return pixelUnshuffle(x, this.factor);
  }
}

/** @param {string} op @param {UnfoldOptions} options */
function checked(op, options) {
  const { dilation = 1, padding = 0, stride = 1 } = checkOptions(op, options, ['dilation', 'padding', 'stride']);
  return { dilation: both(op, 'dilation', dilation, 1), padding: both(op, 'padding', padding, 0), stride: both(op, 'stride', stride, 1) };
}

/** The windows of images as columns; see `F.unfold`. */
export class Unfold extends Module {
  /** @param {Both} kernelSize of a window @param {UnfoldOptions} [options] */
  constructor(kernelSize, options = {}) {
    super();
    this.kernelSize = both('Unfold', 'kernelSize', kernelSize, 1);
    this.options = checked('Unfold', options);
  }
  /** @param {Tensor} x [batch, channels, rows, columns] @returns {Tensor} [batch, channels · down · across, windows] */
  forward(x) {
    return unfold(x, this.kernelSize, this.options);
  }
}
/** Columns, added to the windows of images that they are of; see `F.fold`. */
export class Fold extends Module {
  /** @param {Both} outputSize rows and columns of the images @param {Both} kernelSize of a window @param {UnfoldOptions} [options] */
  constructor(outputSize, kernelSize, options = {}) {
    super();
    this.outputSize = both('Fold', 'outputSize', outputSize, 1);
    this.kernelSize = both('Fold', 'kernelSize', kernelSize, 1);
    this.options = checked('Fold', options);
  }
  /** @param {Tensor} x [batch, channels · down · across, windows] @returns {Tensor} [batch, channels, rows, columns] */
  forward(x) {
    return fold(x, this.outputSize, this.kernelSize, this.options);
  }
}
