// Dropout: of elements, of whole channels, and for SELU.

import { tensorOf } from '../core/engine.mjs';
import { ShapeError, show, within } from '../core/errors.mjs';
import * as F from '../api/functional.mjs';
import { checkFraction } from '../core/options.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/** What the kinds of dropout share. */
class Dropping extends Module {
  /** @param {number} [p] in [0, 1); 0.5 when left out */
  constructor(p = 0.5) {
    super();
    this.p = checkFraction(this.constructor.name, 'p', p);
  }
  /** 1 / (1 - p) or 0, one for each channel of each image. @param {Tensor} x */
  ofChannels(x) {
    return F.dropout(F.ones([x.shape[0], x.shape[1], ...x.shape.slice(2).map(() => 1)], { dtype: x.dtype }), this.p);
  }
  /** Drops channels, while training. @param {Tensor} x @param {number} ndim @param {string} sizes for errors */
  channels(x, ndim, sizes) {
    const name = this.constructor.name;
    if (tensorOf(name, x).ndim !== ndim) throw new ShapeError(name, `expected an input ${sizes}, got ${show(x.shape)}`);
    return this.training && this.p > 0 ? within(name, () => F.mul(x, this.ofChannels(x))) : x;
  }
  /** Keeps mean and variance of SELU's results. @param {Tensor} x @param {(x: Tensor) => Tensor} draw 0 where an element is dropped */
  alpha(x, draw) {
    const { p } = this;
    // SELU's least value, -scale · alpha, stands for what is dropped (Klambauer et al. 2017).
    const least = -1.0507009873554805 * 1.6732632423543772;
    const a = (1 - p + p * (1 - p) * least ** 2) ** -0.5;
    return within(this.constructor.name, () => F.add(F.mul(F.where(F.ne(draw(x), 0), x, least), a), -a * p * least));
  }
}

/** Sets each element to 0 with probability p and divides the others by 1 - p. After `eval()` it returns x. */
export class Dropout extends Dropping {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return F.dropout(x, this.p, this.training);
  }
}
/** Drops whole channels of [batch, channels, steps] with probability p, and divides the others by 1 - p. After `eval()` it returns x. */
export class Dropout1d extends Dropping {
  /** @param {Tensor} x [batch, channels, steps] @returns {Tensor} */
  forward(x) {
    return this.channels(x, 3, '[batch, channels, steps]');
  }
}
/** Drops whole channels of images with probability p (Tompson et al. 2015), and divides the others by 1 - p. After `eval()` it returns x. */
export class Dropout2d extends Dropping {
  /** @param {Tensor} x [batch, channels, rows, columns] @returns {Tensor} */
  forward(x) {
    return this.channels(x, 4, '[batch, channels, rows, columns]');
  }
}
/** Drops whole channels of volumes with probability p, and divides the others by 1 - p. After `eval()` it returns x. */
export class Dropout3d extends Dropping {
  /** @param {Tensor} x [batch, channels, planes, rows, columns] @returns {Tensor} */
  forward(x) {
    return this.channels(x, 5, '[batch, channels, planes, rows, columns]');
  }
}
/** Sets elements to SELU's least value with probability p, so that mean 0 and variance 1 stay (Klambauer et al. 2017). After `eval()` it returns x. */
export class AlphaDropout extends Dropping {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    tensorOf('AlphaDropout', x);
    return this.training && this.p > 0 ? this.alpha(x, (own) => F.dropout(F.ones(own.shape, { dtype: own.dtype }), this.p)) : x;
  }
}
/** `AlphaDropout` of whole channels. */
export class FeatureAlphaDropout extends Dropping {
  /** @param {Tensor} x [batch, channels, ...] @returns {Tensor} */
  forward(x) {
    if (tensorOf('FeatureAlphaDropout', x).ndim < 2)
      throw new ShapeError('FeatureAlphaDropout', `expected an input [batch, channels, ...], got ${show(x.shape)}`);
    return this.training && this.p > 0 ? this.alpha(x, (own) => this.ofChannels(own)) : x;
  }
}
