// Layers. Parameters are f32 and begin as PyTorch's do.

import { constant } from '../core/tensor.mjs';
import { checkBytes } from '../core/engine.mjs';
import { ArgumentError, ShapeError, show, shown, within } from '../core/errors.mjs';
import { attention } from '../api/attention.mjs';
import * as F from '../api/functional.mjs';
import { denseLayout, positive } from '../core/layout.mjs';
import { tensorOf } from '../core/engine.mjs';
import { checkOptions, flag } from '../core/options.mjs';
import { normalValues, uniformValues } from '../api/random.mjs';
import { unscoped } from '../core/storage.mjs';
import { Tensor, empty } from '../api/tensor.mjs';
import { ropeTable } from '../../kernels/index.mjs';
import { Module, Parameter } from './module.mjs';

/** @typedef {import('../../kernels/activation.mjs').Activation} Activation */

/**
 * A parameter of values that are drawn once it is known that the device has such tensors.
 * @param {string} op the module @param {number[]} shape @param {(count: number) => ArrayBufferView & ArrayLike<number>} draw
 */
function parameter(op, shape, draw) {
  const layout = denseLayout(shape, 'f32');
  checkBytes(op, layout);
  return unscoped(() => new Parameter(constant(draw(layout.size), layout)));
}

/** Whether matrices are left as their memory is. */
let skipping = false;
/** @param {string} op the module @param {number[]} shape */
const undefinedParameter = (op, shape) => within(op, () => unscoped(() => new Parameter(empty(shape))));

/**
 * Makes modules whose matrices have undefined contents, for `loadStateDict` to fill: nothing is drawn and uploaded.
 * @template T
 * @param {() => T} fn
 * @returns {T}
 */
export function skipInit(fn) {
  if (typeof fn !== 'function') throw new ArgumentError('skipInit', `expected a function, got ${shown(fn)}`);
  const before = skipping;
  skipping = true;
  try {
    return fn();
  } finally {
    skipping = before;
  }
}

/** Uniform in ±1 / √(inputs), as PyTorch's linear layers. @param {string} op the module @param {number} inputs @param {number[]} shape */
export function kaiming(op, inputs, shape) {
  if (skipping) return undefinedParameter(op, shape);
  const bound = 1 / Math.sqrt(inputs);
  return parameter(op, shape, (count) => uniformValues(count, -bound, bound));
}

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
 * @property {number} [eps] is added under the root that is divided by; 1e-5 when left out
 */

/**
 * Options of `MLP`.
 * @typedef {object} MLPOptions
 * @property {number} [outputs] columns of the result; `width` when left out
 * @property {boolean} [bias] whether both layers have a bias; true when left out
 */

/**
 * Options of `MultiHeadAttention`.
 * @typedef {object} MultiHeadAttentionOptions
 * @property {boolean} [causal] whether a token sees only itself and those before it; false when left out
 * @property {boolean | { base?: number }} [rope] whether queries and keys are turned by their positions, and the base of the
 *   angles (1e4 when left out); false when left out
 * @property {boolean} [bias] whether both layers have a bias; false when left out
 * @property {number} [kvHeads] heads of keys and values, which `heads` is a multiple of; `heads` when left out
 * @property {boolean} [qkNorm] whether queries and keys are normalized head by head; false when left out
 */

/** y = x Wᵀ + bias. */
export class Linear extends Module {
  /** @param {number} inputs @param {number} outputs @param {LinearOptions} [options] */
  constructor(inputs, outputs, options = {}) {
    super();
    const { bias = true } = checkOptions('Linear', options, ['bias']);
    positive('Linear', 'inputs', inputs);
    positive('Linear', 'outputs', outputs);
    flag('Linear', 'bias', bias);
    this.weight = kaiming('Linear', inputs, [outputs, inputs]);
    if (bias) this.bias = kaiming('Linear', inputs, [outputs]);
  }
  /** @param {Tensor} x [..., inputs] @returns {Tensor} [..., outputs] */
  forward(x) {
    return F.linear(x, this.weight, this.bias);
  }
  describe() {
    return `${this.weight.shape[1]}, ${this.weight.shape[0]}`;
  }
}

/** The rows of a table by number. */
export class Embedding extends Module {
  /** @param {number} vocabulary @param {number} columns */
  constructor(vocabulary, columns) {
    super();
    positive('Embedding', 'vocabulary', vocabulary);
    positive('Embedding', 'columns', columns);
    const shape = [vocabulary, columns];
    this.weight = skipping ? undefinedParameter('Embedding', shape) : parameter('Embedding', shape, (count) => normalValues(count, 0, 1));
  }
  /** @param {Tensor} ids i32 or u32 @returns {Tensor} [...ids, columns] */
  forward(ids) {
    return F.embedding(ids, this.weight);
  }
  describe() {
    return this.weight.shape.join(', ');
  }
}

/** x / rms(x) · weight over the last dimension. */
export class RMSNorm extends Module {
  /** @param {number} columns @param {NormOptions} [options] */
  constructor(columns, options = {}) {
    super();
    const { eps = 1e-5 } = checkOptions('RMSNorm', options, ['eps']);
    this.weight = constantParameter('RMSNorm', 1, [positive('RMSNorm', 'columns', columns)]);
    this.eps = eps;
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return F.rmsNorm(x, this.weight, this.eps);
  }
}

/** (x - mean) / deviation · weight + bias over the last dimension. */
export class LayerNorm extends Module {
  /** @param {number} columns @param {NormOptions} [options] */
  constructor(columns, options = {}) {
    super();
    const { eps = 1e-5 } = checkOptions('LayerNorm', options, ['eps']);
    this.weight = constantParameter('LayerNorm', 1, [positive('LayerNorm', 'columns', columns)]);
    this.bias = zeroParameter('LayerNorm', [columns]);
    this.eps = eps;
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return F.layerNorm(x, this.weight, this.bias, this.eps);
  }
}

/** Drops elements with probability p while training. */
export class Dropout extends Module {
  /** @param {number} [p] */
  constructor(p = 0.5) {
    super();
    if (typeof p !== 'number' || !(p >= 0 && p < 1)) throw new ArgumentError('Dropout', `p is in [0, 1), got ${shown(p)}`);
    this.p = p;
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return F.dropout(x, this.p, this.training);
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

/** The tanh form of GELU. */
export class GELU extends Module {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    return F.gelu(x);
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

/** All dimensions but the first as one. */
export class Flatten extends Module {
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    tensorOf('Flatten', x);
    return within('Flatten', () => x.flatten(1));
  }
}

/** down(silu(gate x) · up x) (Shazeer 2020), gate and up in one product. */
export class SwiGLU extends Module {
  /** @param {number} width @param {number} hidden */
  constructor(width, hidden) {
    super();
    positive('SwiGLU', 'width', width);
    positive('SwiGLU', 'hidden', hidden);
    this.gateUp = within('SwiGLU', () => new Linear(width, 2 * hidden, { bias: false }));
    this.down = within('SwiGLU', () => new Linear(hidden, width, { bias: false }));
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    tensorOf('SwiGLU', x);
    return within('SwiGLU', () => this.down.forward(F.glu(this.gateUp.forward(x), 'silu')));
  }
}

/** Two linear layers with GELU between them. */
export class MLP extends Module {
  /** @param {number} width @param {number} hidden @param {MLPOptions} [options] */
  constructor(width, hidden, options = {}) {
    super();
    const { outputs = width, bias = true } = checkOptions('MLP', options, ['outputs', 'bias']);
    for (const [name, value] of Object.entries({ width, hidden, outputs })) positive('MLP', name, value);
    flag('MLP', 'bias', bias);
    this.up = within('MLP', () => new Linear(width, hidden, { bias }));
    this.down = within('MLP', () => new Linear(hidden, outputs, { bias }));
  }
  /** @param {Tensor} x @returns {Tensor} */
  forward(x) {
    tensorOf('MLP', x);
    return within('MLP', () => this.down.forward(F.gelu(this.up.forward(x))));
  }
}

/**
 * Options of a call of `MultiHeadAttention`.
 * @typedef {object} MaskOptions
 * @property {Tensor} [mask] as that of `F.scaledDotProductAttention`; broadcasts to [batch, heads, tokens, tokens]. For sequences of
 *   different lengths: [batch, 1, 1, tokens] of bools, true where a key is a token
 */

/**
 * Attention with all heads in one product, and rotary positions where asked for. With fewer `kvHeads`, several heads share keys
 * and values (Ainslie et al. 2023); with `qkNorm`, queries and keys are normalized head by head.
 */
export class MultiHeadAttention extends Module {
  /** @type {Map<number, Tensor>} Tables of rotary positions by length. */
  #tables = new Map();

  /**
   * @param {number} width @param {number} heads
   * @param {MultiHeadAttentionOptions} [options]
   */
  constructor(width, heads, options = {}) {
    super();
    const {
      causal = false,
      rope = false,
      bias = false,
      kvHeads = heads,
      qkNorm = false,
    } = checkOptions('MultiHeadAttention', options, ['causal', 'rope', 'bias', 'kvHeads', 'qkNorm']);
    if (positive('MultiHeadAttention', 'width', width) % positive('MultiHeadAttention', 'heads', heads)) {
      throw new ShapeError('MultiHeadAttention', `a width of ${width} is not a multiple of ${heads} heads`);
    }
    if (heads % positive('MultiHeadAttention', 'kvHeads', kvHeads)) {
      throw new ShapeError('MultiHeadAttention', `${heads} heads are not a multiple of ${kvHeads} kvHeads`);
    }
    for (const [name, value] of Object.entries({ causal, bias, qkNorm })) flag('MultiHeadAttention', name, value);
    const base = typeof rope === 'object' ? checkOptions('MultiHeadAttention', rope, ['base']).base : undefined;
    if (base === undefined && typeof rope !== 'object') flag('MultiHeadAttention', 'rope', rope);
    if (base !== undefined && !(base > 0 && base < Infinity)) {
      throw new ArgumentError('MultiHeadAttention', `base is a number above 0, got ${shown(base)}`);
    }
    const headSize = width / heads;
    this.qkv = within('MultiHeadAttention', () => new Linear(width, (heads + 2 * kvHeads) * headSize, { bias }));
    this.out = within('MultiHeadAttention', () => new Linear(width, width, { bias }));
    if (qkNorm) {
      this.q_norm = new RMSNorm(headSize);
      this.k_norm = new RMSNorm(headSize);
    }
    this.heads = heads;
    this.kvHeads = kvHeads;
    this.causal = causal;
    this.base = rope ? (base ?? 1e4) : 0;
  }

  /** @param {number} tokens @param {number} headSize */
  #table(tokens, headSize) {
    let table = this.#tables.get(tokens);
    if (!table?.storage) {
      const values = ropeTable({ positions: tokens, headSize, base: this.base });
      table = constant(values, denseLayout([tokens, headSize / 2, 2], 'f32'));
      this.#tables.set(tokens, table);
    }
    return table;
  }

  /**
   * @param {Tensor} x [batch, tokens, width]
   * @param {MaskOptions} [options]
   * @returns {Tensor} of x's shape
   */
  forward(x, options = {}) {
    const { mask } = checkOptions('MultiHeadAttention', options, ['mask']);
    if (tensorOf('MultiHeadAttention', x).ndim !== 3)
      throw new ShapeError('MultiHeadAttention', `${show(x.shape)}, expected [batch, tokens, width]`);
    const [, tokens, width] = x.shape;
    const headSize = width / this.heads;
    const { heads, kvHeads, q_norm: qNorm, k_norm: kNorm } = this;
    let qkv = within('MultiHeadAttention', () => this.qkv.forward(x));
    const [batch] = x.shape;
    /** Heads of each row, [batch, tokens, count · headSize]. @param {number} first @param {number} count */
    const part = (first, count) => F.slice(qkv, 2, first * headSize, (first + count) * headSize);
    if (qNorm && kNorm) {
      const normed = (/** @type {Tensor} */ h, /** @type {RMSNorm} */ norm) =>
        F.reshape(F.to(norm.forward(F.reshape(h, [batch, tokens, -1, headSize])), qkv.dtype), [batch, tokens, -1]);
      qkv = F.cat([normed(part(0, heads), qNorm), normed(part(heads, kvHeads), kNorm), part(heads + kvHeads, kvHeads)], 2);
    }
    if (this.base) qkv = F.rope(qkv, this.#table(tokens, headSize), { heads: heads + kvHeads, headSize });
    if (kvHeads < heads) {
      // The fused kernel takes keys and values for each head.
      const repeated = (/** @type {Tensor} */ h) => {
        const split = F.reshape(h, [batch, tokens, kvHeads, 1, headSize]);
        return F.reshape(F.expand(split, [batch, tokens, kvHeads, heads / kvHeads, headSize]), [batch, tokens, width]);
      };
      qkv = F.cat([part(0, heads), repeated(part(heads, kvHeads)), repeated(part(heads + kvHeads, kvHeads))], 2);
    }
    return this.out.forward(attention(qkv, { heads: this.heads, causal: this.causal, mask }));
  }
}
