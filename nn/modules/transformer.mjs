// PyTorch's encoder and decoder layers, stacks of them, and both together (Vaswani et al. 2017). States have PyTorch's names.

import * as F from '../api/functional.mjs';
import { triu } from '../api/shape.mjs';
import { tensorOf } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { positive } from '../core/layout.mjs';
import { checkLeast, checkOptions, flag } from '../core/options.mjs';
import { Dropout } from './dropout.mjs';
import { xavierUniform } from './init.mjs';
import { LayerNorm, Linear, skipInit } from './layers.mjs';
import { Module, ModuleList } from './module.mjs';
import { MultiheadAttention } from './multihead.mjs';

/** @typedef {import('../api/tensor.mjs').Tensor} Tensor */
/** @typedef {(x: Tensor) => Tensor} Activation */

/**
 * Options of transformer layers.
 * @typedef {object} TransformerLayerOptions
 * @property {number} [dimFeedforward] size between the two linear layers; 2048 when left out
 * @property {number} [dropout] in [0, 1], of attention weights and after each part, while training; 0.1 when left out
 * @property {'relu' | 'gelu' | Activation} [activation] between the linear layers; 'gelu' is the exact one; 'relu' when left out
 * @property {number} [layerNormEps] added to variances; 1e-5 when left out
 * @property {boolean} [batchFirst] whether sequences are [batch, tokens, dModel] and not [tokens, batch, dModel]; true when left out (PyTorch: false)
 * @property {boolean} [normFirst] whether each part normalizes what it takes and not what it returns; false when left out
 * @property {boolean} [bias] whether linear layers and norms have biases; true when left out
 */

/**
 * Options of a call of an encoder layer.
 * @typedef {object} EncoderLayerCallOptions
 * @property {Tensor} [srcMask] as `attnMask` of `MultiheadAttention`: a bool is true where a token does not attend
 * @property {Tensor} [srcKeyPaddingMask] [batch, tokens], true at the padding
 * @property {boolean} [isCausal] whether a token attends only to itself and to earlier ones; false when left out
 */

/**
 * Options of a call of an encoder.
 * @typedef {object} EncoderCallOptions
 * @property {Tensor} [mask] as `attnMask` of `MultiheadAttention`: a bool is true where a token does not attend
 * @property {Tensor} [srcKeyPaddingMask] [batch, tokens], true at the padding
 * @property {boolean} [isCausal] whether a token attends only to itself and to earlier ones; false when left out
 */

/**
 * Options of a call of a decoder or of its layers. A bool mask is true where a token does not attend.
 * @typedef {object} DecoderCallOptions
 * @property {Tensor} [tgtMask] of the target's tokens among themselves, as `attnMask` of `MultiheadAttention`
 * @property {Tensor} [memoryMask] of the target's tokens and the memory's
 * @property {Tensor} [tgtKeyPaddingMask] [batch, target tokens], true at the padding
 * @property {Tensor} [memoryKeyPaddingMask] [batch, memory tokens], true at the padding
 * @property {boolean} [tgtIsCausal] whether a target token attends only to itself and to earlier ones; false when left out
 * @property {boolean} [memoryIsCausal] the same of the memory's tokens; false when left out
 */

/**
 * Options of `Transformer` besides those of its layers.
 * @typedef {object} StackOptions
 * @property {number} [numEncoderLayers] 6 when left out
 * @property {number} [numDecoderLayers] 6 when left out
 */

/**
 * Options of a call of `Transformer`. A bool mask is true where a token does not attend.
 * @typedef {object} TransformerCallOptions
 * @property {Tensor} [srcMask] of the source's tokens among themselves
 * @property {Tensor} [tgtMask] of the target's tokens among themselves
 * @property {Tensor} [memoryMask] of the target's tokens and the encoder's results
 * @property {Tensor} [srcKeyPaddingMask] [batch, source tokens], true at the padding
 * @property {Tensor} [tgtKeyPaddingMask] [batch, target tokens], true at the padding
 * @property {Tensor} [memoryKeyPaddingMask] [batch, source tokens], true at the padding
 * @property {boolean} [srcIsCausal] whether a source token attends only to itself and to earlier ones; false when left out
 * @property {boolean} [tgtIsCausal] the same of the target's tokens; false when left out
 * @property {boolean} [memoryIsCausal] the same of the target's tokens to the encoder's results; false when left out
 */

const OPTIONS = /** @type {const} */ (['dimFeedforward', 'dropout', 'activation', 'layerNormEps', 'batchFirst', 'normFirst', 'bias']);

/** What both kinds of layers share: sizes, the linear layers and how to make another such layer. */
class Layer extends Module {
  #size;
  #options;
  #activation;
  #part;

  /** @param {number} dModel @param {number} nhead @param {TransformerLayerOptions} options */
  constructor(dModel, nhead, options) {
    super();
    const op = this.constructor.name;
    const { dimFeedforward = 2048, dropout = 0.1, activation = 'relu', ...rest } = checkOptions(op, options, OPTIONS);
    const { layerNormEps: eps = 1e-5, batchFirst = true, normFirst = false, bias = true } = rest;
    for (const [name, value] of Object.entries({ dModel, nhead, dimFeedforward })) positive(op, name, value);
    for (const [name, value] of Object.entries({ batchFirst, normFirst, bias })) flag(op, name, value);
    checkLeast(op, 'layerNormEps', eps);
    if (activation !== 'relu' && activation !== 'gelu' && typeof activation !== 'function')
      throw new ArgumentError(op, `activation must be 'relu', 'gelu' or a function, got ${shown(activation)}`);
    this.#size = { dModel, nhead };
    this.#options = options;
    this.#activation =
      activation === 'relu' ? F.relu : activation === 'gelu' ? (/** @type {Tensor} */ x) => F.gelu(x, { approximate: 'none' }) : activation;
    this.normFirst = normFirst;
    this.batchFirst = batchFirst;
    this.#part = () =>
      within(op, () => ({
        attention: new MultiheadAttention(dModel, nhead, { dropout, bias, batchFirst }),
        norm: new LayerNorm(dModel, { eps, bias }),
        drop: new Dropout(dropout),
      }));
    const { attention, norm, drop } = this.#part();
    this.self_attn = attention;
    this.linear1 = within(op, () => new Linear(dModel, dimFeedforward, { bias }));
    this.dropout = new Dropout(dropout);
    this.linear2 = within(op, () => new Linear(dimFeedforward, dModel, { bias }));
    this.norm1 = norm;
    this.norm2 = new LayerNorm(dModel, { eps, bias });
    this.dropout1 = drop;
    this.dropout2 = new Dropout(dropout);
  }

  /** A further attention with its norm and dropout. */
  part() {
    return this.#part();
  }

  /** A layer of the same options and values. @returns {this} */
  copy() {
    const { dModel, nhead } = this.#size;
    const Own = /** @type {new (dModel: number, nhead: number, options: TransformerLayerOptions) => this} */ (this.constructor);
    const other = skipInit(() => new Own(dModel, nhead, this.#options));
    other.loadStateDict(this.stateDict());
    return other;
  }

  /**
   * Checks a sequence, which the program gave.
   * @param {string} name @param {Tensor} x
   */
  checkSequence(name, x) {
    const op = this.constructor.name;
    const { dModel } = this.#size;
    const { ndim, shape } = tensorOf(op, x);
    if ((ndim !== 2 && ndim !== 3) || shape.at(-1) !== dModel)
      throw new ShapeError(op, `${name} must be [..., tokens, ${dModel}] of two or three dimensions, got ${show(shape)}`);
  }

  /** The two linear layers. @param {Tensor} x @param {Dropout} drop of the result @returns {Tensor} */
  feedForward(x, drop) {
    const activation = this.#activation;
    return drop.forward(this.linear2.forward(this.dropout.forward(activation(this.linear1.forward(x)))));
  }

  /**
   * x plus a part of it, normalized before or after. @param {Tensor} x @param {LayerNorm} norm @param {(x: Tensor) => Tensor} part
   * @returns {Tensor}
   */
  residual(x, norm, part) {
    if (this.normFirst) return F.add(x, part(norm.forward(x)));
    return norm.forward(F.add(x, part(x)));
  }
}

/** Self-attention, then two linear layers, each with dropout, a sum with what it takes and a norm. States have PyTorch's names. */
export class TransformerEncoderLayer extends Layer {
  /**
   * @param {number} dModel size of the tokens @param {number} nhead heads, a divisor of dModel @param {TransformerLayerOptions} [options]
   */
  constructor(dModel, nhead, options = {}) {
    super(dModel, nhead, options);
  }

  /** @param {Tensor} src [batch, tokens, dModel] @param {EncoderLayerCallOptions} [options] @returns {Tensor} of src's shape */
  forward(src, options = {}) {
    const op = this.constructor.name;
    const { srcMask, srcKeyPaddingMask, isCausal = false } = checkOptions(op, options, ['srcMask', 'srcKeyPaddingMask', 'isCausal']);
    this.checkSequence('src', src);
    const how = { attnMask: srcMask, keyPaddingMask: srcKeyPaddingMask, isCausal, needWeights: false };
    return within(op, () => {
      const x = this.residual(src, this.norm1, (own) => this.dropout1.forward(this.self_attn.forward(own, own, own, how)[0]));
      return this.residual(x, this.norm2, (own) => this.feedForward(own, this.dropout2));
    });
  }
}

/** Self-attention, attention to a memory, then two linear layers, each with dropout, a sum and a norm. States have PyTorch's names. */
export class TransformerDecoderLayer extends Layer {
  /**
   * @param {number} dModel size of the tokens @param {number} nhead heads, a divisor of dModel @param {TransformerLayerOptions} [options]
   */
  constructor(dModel, nhead, options = {}) {
    super(dModel, nhead, options);
    const { attention, norm, drop } = this.part();
    this.multihead_attn = attention;
    this.norm3 = norm;
    this.dropout3 = drop;
  }

  /**
   * @param {Tensor} tgt [batch, target tokens, dModel] @param {Tensor} memory [batch, memory tokens, dModel]: an encoder's results
   * @param {DecoderCallOptions} [options]
   * @returns {Tensor} of tgt's shape
   */
  forward(tgt, memory, options = {}) {
    const op = this.constructor.name;
    const given = checkOptions(op, options, DECODER_NAMES);
    this.checkSequence('tgt', tgt);
    this.checkSequence('memory', memory);
    const { tgtIsCausal = false, memoryIsCausal = false } = given;
    const own = { attnMask: given.tgtMask, keyPaddingMask: given.tgtKeyPaddingMask, isCausal: tgtIsCausal, needWeights: false };
    const other = { attnMask: given.memoryMask, keyPaddingMask: given.memoryKeyPaddingMask, isCausal: memoryIsCausal, needWeights: false };
    return within(op, () => {
      let x = this.residual(tgt, this.norm1, (y) => this.dropout1.forward(this.self_attn.forward(y, y, y, own)[0]));
      x = this.residual(x, this.norm2, (y) => this.dropout2.forward(this.multihead_attn.forward(y, memory, memory, other)[0]));
      return this.residual(x, this.norm3, (y) => this.feedForward(y, this.dropout3));
    });
  }
}

const DECODER_NAMES = /** @type {const} */ ([
  'tgtMask',
  'memoryMask',
  'tgtKeyPaddingMask',
  'memoryKeyPaddingMask',
  'tgtIsCausal',
  'memoryIsCausal',
]);

/** Copies of a layer. @param {string} op @param {Layer} layer @param {typeof Layer} kind @param {number} numLayers @param {unknown} norm */
function stackOf(op, layer, kind, numLayers, norm) {
  if (!(layer instanceof kind)) throw new ArgumentError(op, `expected a ${kind.name}, got ${shown(layer)}`);
  if (positive(op, 'numLayers', numLayers) > 0xffff) throw new ArgumentError(op, `numLayers must be at most 65535, got ${numLayers}`);
  if (norm !== undefined && !(norm instanceof Module)) throw new ArgumentError(op, `norm must be a module, got ${shown(norm)}`);
  return within(op, () => new ModuleList(Array.from({ length: numLayers }, () => layer.copy())));
}

/** A stack of encoder layers. All begin with the values of the layer that it is made of, as in PyTorch. */
export class TransformerEncoder extends Module {
  /** @param {TransformerEncoderLayer} encoderLayer is copied @param {number} numLayers @param {Module} [norm] of the result; none when left out */
  constructor(encoderLayer, numLayers, norm) {
    super();
    this.layers = stackOf('TransformerEncoder', encoderLayer, TransformerEncoderLayer, numLayers, norm);
    if (norm !== undefined) this.norm = norm;
  }

  /** @param {Tensor} src [batch, tokens, dModel] @param {EncoderCallOptions} [options] @returns {Tensor} of src's shape */
  forward(src, options = {}) {
    const op = 'TransformerEncoder';
    const { mask: srcMask, srcKeyPaddingMask, isCausal } = checkOptions(op, options, ['mask', 'srcKeyPaddingMask', 'isCausal']);
    tensorOf(op, src);
    return within(op, () => {
      let x = src;
      for (const layer of this.layers) x = layer.forward(x, { srcMask, srcKeyPaddingMask, isCausal });
      return this.norm ? this.norm.forward(x) : x;
    });
  }
}

/** A stack of decoder layers. All begin with the values of the layer that it is made of, as in PyTorch. */
export class TransformerDecoder extends Module {
  /** @param {TransformerDecoderLayer} decoderLayer is copied @param {number} numLayers @param {Module} [norm] of the result; none when left out */
  constructor(decoderLayer, numLayers, norm) {
    super();
    this.layers = stackOf('TransformerDecoder', decoderLayer, TransformerDecoderLayer, numLayers, norm);
    if (norm !== undefined) this.norm = norm;
  }

  /**
   * @param {Tensor} tgt [batch, target tokens, dModel] @param {Tensor} memory [batch, memory tokens, dModel]
   * @param {DecoderCallOptions} [options]
   * @returns {Tensor} of tgt's shape
   */
  forward(tgt, memory, options = {}) {
    const op = 'TransformerDecoder';
    checkOptions(op, options, DECODER_NAMES);
    tensorOf(op, tgt);
    tensorOf(op, memory);
    return within(op, () => {
      let x = tgt;
      for (const layer of this.layers) x = layer.forward(x, memory, options);
      return this.norm ? this.norm.forward(x) : x;
    });
  }
}

const CALL_NAMES = /** @type {const} */ ([
  ...['srcMask', 'tgtMask', 'memoryMask', 'srcKeyPaddingMask', 'tgtKeyPaddingMask', 'memoryKeyPaddingMask'],
  ...['srcIsCausal', 'tgtIsCausal', 'memoryIsCausal'],
]);

/**
 * An encoder and a decoder (Vaswani et al. 2017), each with a norm at its end. Matrices begin uniform as Glorot & Bengio's, each drawn by itself.
 * States have PyTorch's names.
 */
export class Transformer extends Module {
  /** @param {number} [dModel] size of the tokens @param {number} [nhead] heads @param {TransformerLayerOptions & StackOptions} [options] */
  constructor(dModel = 512, nhead = 8, options = {}) {
    super();
    const op = 'Transformer';
    const names = [...OPTIONS, 'numEncoderLayers', 'numDecoderLayers'];
    const { numEncoderLayers = 6, numDecoderLayers = 6, ...how } = checkOptions(op, options, names);
    const norm = () => new LayerNorm(dModel, { eps: how.layerNormEps ?? 1e-5, bias: how.bias ?? true });
    const encoderLayer = within(op, () => new TransformerEncoderLayer(dModel, nhead, how));
    const decoderLayer = within(op, () => new TransformerDecoderLayer(dModel, nhead, how));
    this.encoder = within(op, () => new TransformerEncoder(encoderLayer, numEncoderLayers, norm()));
    this.decoder = within(op, () => new TransformerDecoder(decoderLayer, numDecoderLayers, norm()));
    encoderLayer.dispose();
    decoderLayer.dispose();
    within(op, () => {
      for (const parameter of this.parameters()) if (parameter.ndim > 1) xavierUniform(parameter);
    });
  }

  /**
   * @param {Tensor} src [batch, source tokens, dModel] @param {Tensor} tgt [batch, target tokens, dModel]
   * @param {TransformerCallOptions} [options]
   * @returns {Tensor} of tgt's shape
   */
  forward(src, tgt, options = {}) {
    const op = 'Transformer';
    const { srcMask: mask, srcKeyPaddingMask, srcIsCausal: isCausal, ...ofDecoder } = checkOptions(op, options, CALL_NAMES);
    tensorOf(op, src);
    tensorOf(op, tgt);
    return within(op, () => this.decoder.forward(tgt, this.encoder.forward(src, { mask, srcKeyPaddingMask, isCausal }), ofDecoder));
  }

  /** A mask for `tgtMask`: 0 up to a token's own position, -∞ behind it. @param {number} size tokens @returns {Tensor} f32 [size, size] */
  static generateSquareSubsequentMask(size) {
    positive('generateSquareSubsequentMask', 'size', size);
    return within('generateSquareSubsequentMask', () => triu(F.full([size, size], -Infinity), 1));
  }
}
