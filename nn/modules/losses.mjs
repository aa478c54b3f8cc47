// Losses as modules: the functions of `F` with options of their own. Their names and defaults are PyTorch's.

import * as F from '../api/criteria.mjs';
import { ctcLoss } from '../api/ctc.mjs';
import { binaryCrossEntropyWithLogits, crossEntropy, l1Loss, mseLoss, nllLoss } from '../api/losses.mjs';
import { checkOptions } from '../core/options.mjs';
import { Module } from './module.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {import('../api/losses.mjs').LossOptions} LossOptions */
/** @typedef {import('../api/criteria.mjs').MarginOptions} MarginOptions */

/**
 * Options of any loss.
 * @typedef {LossOptions & MarginOptions & import('../api/losses.mjs').IgnoreOptions & import('../api/losses.mjs').ClassOptions &
 *   import('../api/losses.mjs').NllOptions & import('../api/losses.mjs').BinaryOptions & import('../api/criteria.mjs').DivergenceOptions &
 *   import('../api/criteria.mjs').HuberOptions & import('../api/criteria.mjs').SmoothOptions & import('../api/criteria.mjs').WeightOptions &
 *   import('../api/criteria.mjs').TripletOptions & import('../api/criteria.mjs').MultiMarginOptions &
 *   import('../api/criteria.mjs').PoissonOptions & import('../api/criteria.mjs').GaussianOptions & import('../api/ctc.mjs').CtcOptions} AnyOptions
 */

/** The options that are tensors, and are in `stateDict` therefore, by PyTorch's names there. @type {Record<string, string>} */
const STATE_NAMES = { posWeight: 'pos_weight' };

/** What the losses share: their options are properties. */
export class Loss extends Module {
  #names;

  /** @param {object} options @param {string[]} names of those besides `reduction` */
  constructor(options, names) {
    super();
    this.#names = ['reduction', ...names];
    const given = checkOptions(this.constructor.name, options, this.#names);
    for (const name of this.#names) {
      const value = Reflect.get(given, name);
      if (value !== undefined) Reflect.set(this, STATE_NAMES[name] ?? name, value);
    }
  }

  /** The options, as the function takes them. @returns {AnyOptions} */
  get options() {
    const entries = this.#names.map((name) => [name, Reflect.get(this, STATE_NAMES[name] ?? name)]);
    return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
  }
}

/**
 * `F.crossEntropy`. Its mean is PyTorch's: over the rows that are not ignored, unless `meanOf` is 'all'. A `weight` is in `stateDict`.
 */
export class CrossEntropyLoss extends Loss {
  /**
   * @param {LossOptions & import('../api/losses.mjs').IgnoreOptions & import('../api/losses.mjs').ClassOptions} [options] `meanOf` is 'kept'
   *   when left out
   */
  constructor(options = {}) {
    super(options, ['ignoreIndex', 'weight', 'labelSmoothing', 'dim', 'meanOf']);
  }
  /** @param {Tensor} logits [..., classes] @param {Tensor} targets indices or probabilities @returns {Tensor} */
  forward(logits, targets) {
    return crossEntropy(logits, targets, { meanOf: 'kept', ...this.options });
  }
}

/** `F.nllLoss`. A `weight` is in `stateDict`. */
export class NLLLoss extends Loss {
  /** @param {LossOptions & import('../api/losses.mjs').NllOptions} [options] */
  constructor(options = {}) {
    super(options, ['weight', 'ignoreIndex', 'dim']);
  }
  /** @param {Tensor} logProbs [..., classes] @param {Tensor} targets indices @returns {Tensor} */
  forward(logProbs, targets) {
    return nllLoss(logProbs, targets, this.options);
  }
}

/** `F.klDivLoss`. */
export class KLDivLoss extends Loss {
  /** @param {import('../api/criteria.mjs').DivergenceOptions} [options] */
  constructor(options = {}) {
    super(options, ['logTarget']);
  }
  /** @param {Tensor} x log-probabilities @param {Tensor} target @returns {Tensor} */
  forward(x, target) {
    return F.klDivLoss(x, target, this.options);
  }
}

/** `F.huberLoss`. */
export class HuberLoss extends Loss {
  /** @param {LossOptions & import('../api/criteria.mjs').HuberOptions} [options] */
  constructor(options = {}) {
    super(options, ['delta']);
  }
  /** @param {Tensor} x @param {Tensor} y @returns {Tensor} */
  forward(x, y) {
    return F.huberLoss(x, y, this.options);
  }
}

/** `F.smoothL1Loss`. */
export class SmoothL1Loss extends Loss {
  /** @param {LossOptions & import('../api/criteria.mjs').SmoothOptions} [options] */
  constructor(options = {}) {
    super(options, ['beta']);
  }
  /** @param {Tensor} x @param {Tensor} y @returns {Tensor} */
  forward(x, y) {
    return F.smoothL1Loss(x, y, this.options);
  }
}

/** `F.mseLoss`. */
export class MSELoss extends Loss {
  /** @param {LossOptions} [options] */
  constructor(options = {}) {
    super(options, []);
  }
  /** @param {Tensor} x @param {Tensor} y @returns {Tensor} */
  forward(x, y) {
    return mseLoss(x, y, this.options);
  }
}

/** `F.l1Loss`. */
export class L1Loss extends Loss {
  /** @param {LossOptions} [options] */
  constructor(options = {}) {
    super(options, []);
  }
  /** @param {Tensor} x @param {Tensor} y @returns {Tensor} */
  forward(x, y) {
    return l1Loss(x, y, this.options);
  }
}

/** `F.binaryCrossEntropy`. A `weight` is in `stateDict`. */
export class BCELoss extends Loss {
  /** @param {LossOptions & import('../api/criteria.mjs').WeightOptions} [options] */
  constructor(options = {}) {
    super(options, ['weight']);
  }
  /** @param {Tensor} x probabilities @param {Tensor} y @returns {Tensor} */
  forward(x, y) {
    return F.binaryCrossEntropy(x, y, this.options);
  }
}

/** `F.binaryCrossEntropyWithLogits`. A `weight` is in `stateDict`, and a `posWeight` as `pos_weight`. */
export class BCEWithLogitsLoss extends Loss {
  /** @param {LossOptions & import('../api/losses.mjs').BinaryOptions} [options] */
  constructor(options = {}) {
    super(options, ['weight', 'posWeight']);
  }
  /** @param {Tensor} x logits @param {Tensor} y @returns {Tensor} */
  forward(x, y) {
    return binaryCrossEntropyWithLogits(x, y, this.options);
  }
}

/** `F.cosineEmbeddingLoss`. */
export class CosineEmbeddingLoss extends Loss {
  /** @param {LossOptions & MarginOptions} [options] */
  constructor(options = {}) {
    super(options, ['margin']);
  }
  /** @param {Tensor} a @param {Tensor} b @param {Tensor} y 1 or -1 @returns {Tensor} */
  forward(a, b, y) {
    return F.cosineEmbeddingLoss(a, b, y, this.options);
  }
}

/** `F.tripletMarginLoss`. */
export class TripletMarginLoss extends Loss {
  /** @param {LossOptions & MarginOptions & import('../api/criteria.mjs').TripletOptions} [options] */
  constructor(options = {}) {
    super(options, ['margin', 'p', 'eps', 'swap']);
  }
  /** @param {Tensor} anchor @param {Tensor} positive @param {Tensor} negative @returns {Tensor} */
  forward(anchor, positive, negative) {
    return F.tripletMarginLoss(anchor, positive, negative, this.options);
  }
}

/** `F.marginRankingLoss`. */
export class MarginRankingLoss extends Loss {
  /** @param {LossOptions & MarginOptions} [options] */
  constructor(options = {}) {
    super(options, ['margin']);
  }
  /** @param {Tensor} a @param {Tensor} b @param {Tensor} y 1 or -1 @returns {Tensor} */
  forward(a, b, y) {
    return F.marginRankingLoss(a, b, y, this.options);
  }
}

/** `F.hingeEmbeddingLoss`. */
export class HingeEmbeddingLoss extends Loss {
  /** @param {LossOptions & MarginOptions} [options] */
  constructor(options = {}) {
    super(options, ['margin']);
  }
  /** @param {Tensor} x @param {Tensor} y 1 or -1 @returns {Tensor} */
  forward(x, y) {
    return F.hingeEmbeddingLoss(x, y, this.options);
  }
}

/** `F.multiMarginLoss`. A `weight` is in `stateDict`. */
export class MultiMarginLoss extends Loss {
  /** @param {LossOptions & MarginOptions & import('../api/criteria.mjs').MultiMarginOptions} [options] */
  constructor(options = {}) {
    super(options, ['margin', 'p', 'weight']);
  }
  /** @param {Tensor} x [..., classes] @param {Tensor} targets indices @returns {Tensor} */
  forward(x, targets) {
    return F.multiMarginLoss(x, targets, this.options);
  }
}

/** `F.softMarginLoss`. */
export class SoftMarginLoss extends Loss {
  /** @param {LossOptions} [options] */
  constructor(options = {}) {
    super(options, []);
  }
  /** @param {Tensor} x @param {Tensor} y 1 or -1 @returns {Tensor} */
  forward(x, y) {
    return F.softMarginLoss(x, y, this.options);
  }
}

/** `F.poissonNllLoss`. */
export class PoissonNLLLoss extends Loss {
  /** @param {LossOptions & import('../api/criteria.mjs').PoissonOptions} [options] */
  constructor(options = {}) {
    super(options, ['logInput', 'full', 'eps']);
  }
  /** @param {Tensor} x @param {Tensor} target @returns {Tensor} */
  forward(x, target) {
    return F.poissonNllLoss(x, target, this.options);
  }
}

/** `F.gaussianNllLoss`. */
export class GaussianNLLLoss extends Loss {
  /** @param {LossOptions & import('../api/criteria.mjs').GaussianOptions} [options] */
  constructor(options = {}) {
    super(options, ['full', 'eps']);
  }
  /** @param {Tensor} x means @param {Tensor} target @param {Tensor} variances @returns {Tensor} */
  forward(x, target, variances) {
    return F.gaussianNllLoss(x, target, variances, this.options);
  }
}

/** `F.ctcLoss`. */
export class CTCLoss extends Loss {
  /** @param {LossOptions & import('../api/ctc.mjs').CtcOptions} [options] */
  constructor(options = {}) {
    super(options, ['blank', 'zeroInfinity']);
  }
  /**
   * @param {Tensor} logProbs [steps, batch, classes] @param {Tensor} targets [batch, most] @param {number[] | Tensor} inputLengths
   * @param {number[] | Tensor} targetLengths @returns {Tensor}
   */
  forward(logProbs, targets, inputLengths, targetLengths) {
    return ctcLoss(logProbs, targets, inputLengths, targetLengths, this.options);
  }
}

/** `F.cosineSimilarity`. */
export class CosineSimilarity extends Module {
  /** @param {import('../api/criteria.mjs').CosineOptions} [options] */
  constructor(options = {}) {
    super();
    this.options = checkOptions('CosineSimilarity', options, ['dim', 'eps']);
  }
  /** @param {Tensor} a @param {Tensor} b broadcasts with a @returns {Tensor} */
  forward(a, b) {
    return F.cosineSimilarity(a, b, this.options);
  }
}

/** `F.pairwiseDistance`. */
export class PairwiseDistance extends Module {
  /** @param {import('../api/criteria.mjs').DistanceOptions} [options] */
  constructor(options = {}) {
    super();
    this.options = checkOptions('PairwiseDistance', options, ['p', 'eps', 'keepdim']);
  }
  /** @param {Tensor} a [..., n] @param {Tensor} b broadcasts with a @returns {Tensor} */
  forward(a, b) {
    return F.pairwiseDistance(a, b, this.options);
  }
}
