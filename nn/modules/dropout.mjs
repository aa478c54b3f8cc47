// Dropout: of elements, of whole channels, and for SELU.

import { dropAlpha, dropChannels } from '../api/dropouts.mjs';
import * as F from '../api/functional.mjs';
import { track } from '../core/guards.mjs';
import { checkProbability } from '../core/options.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */

/** What the kinds of dropout share. */
class Dropping extends Module {
  #p;

  /** @param {number} [p] in [0, 1]; 0.5 when left out */
  constructor(p = 0.5) {
    super();
    this.#p = checkProbability(this.constructor.name, 'p', p);
  }
  /** The probability, in [0, 1]. A compiled function is traced again where it was set. */
  get p() {
    return track(this, 'p', this.#p);
  }
  set p(p) {
    this.#p = checkProbability(this.constructor.name, 'p', p);
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
    return dropChannels('Dropout1d', x, this.p, this.training, 3, '[batch, channels, steps]');
  }
}
/** Drops whole channels of images with probability p (Tompson et al. 2015), and divides the others by 1 - p. After `eval()` it returns x. */
export class Dropout2d extends Dropping {
  /** @param {Tensor} x [batch, channels, rows, columns] @returns {Tensor} */
  forward(x) {
    return dropChannels('Dropout2d', x, this.p, this.training, 4, '[batch, channels, rows, columns]');
  }
}
/** Drops whole channels of volumes with probability p, and divides the others by 1 - p. After `eval()` it returns x. */
export class Dropout3d extends Dropping {
  /** @param {Tensor} x [batch, channels, planes, rows, columns] @returns {Tensor} */
  forward(x) {
    return dropChannels('Dropout3d', x, this.p, this.training, 5, '[batch, channels, planes, rows, columns]');
  }
}
/** Sets elements to SELU's least value with probability p, so that mean 0 and variance 1 stay (Klambauer et al. 2017). After `eval()` it returns x. */
export class AlphaDropout extends Dropping {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return dropAlpha('AlphaDropout', x, this.p, this.training, false);
  }
}
/** `AlphaDropout` of whole channels. */
export class FeatureAlphaDropout extends Dropping {
  /** @param {Tensor} x [batch, channels, ...] @returns {Tensor} */
  forward(x) {
    return dropAlpha('FeatureAlphaDropout', x, this.p, this.training, true);
  }
}
