// Made by `npm run types` from nn/; do not edit.
/** @param {string} op @param {string} name @param {unknown} value @returns {number} */
export function positive(op: string, name: string, value: unknown): number;
/**
 * Makes modules whose matrices have undefined contents, for `loadStateDict` to fill: nothing is drawn and uploaded.
 * @template T
 * @param {() => T} fn
 * @returns {T}
 */
export function skipInit<T>(fn: () => T): T;
/** Uniform in ±1 / √(inputs), as PyTorch's linear layers. @param {number} inputs @param {number[]} shape */
export function kaiming(inputs: number, shape: number[]): Parameter;
/** @param {number} value @param {number[]} shape */
export function constantParameter(value: number, shape: number[]): Parameter;
/** @param {number[]} shape */
export function zeroParameter(shape: number[]): Parameter;
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
    constructor(inputs: number, outputs: number, options?: LinearOptions);
    weight: Parameter;
    bias: Parameter | undefined;
    /** @param {Tensor} x [..., inputs] @returns {Tensor} [..., outputs] */
    forward(x: Tensor): Tensor;
}
/** The rows of a table by number. */
export class Embedding extends Module {
    /** @param {number} vocabulary @param {number} columns */
    constructor(vocabulary: number, columns: number);
    weight: Parameter;
    /** @param {Tensor} ids i32 or u32 @returns {Tensor} [...ids, columns] */
    forward(ids: Tensor): Tensor;
}
/** x / rms(x) · weight over the last dimension. */
export class RMSNorm extends Module {
    /** @param {number} columns @param {NormOptions} [options] */
    constructor(columns: number, options?: NormOptions);
    weight: Parameter;
    eps: number;
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/** (x - mean) / deviation · weight + bias over the last dimension. */
export class LayerNorm extends Module {
    /** @param {number} columns @param {NormOptions} [options] */
    constructor(columns: number, options?: NormOptions);
    weight: Parameter;
    bias: Parameter;
    eps: number;
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/** Drops elements with probability p while training. */
export class Dropout extends Module {
    /** @param {number} [p] */
    constructor(p?: number);
    p: number;
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/** max(x, 0). */
export class ReLU extends Module {
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/** x · sigmoid(x). */
export class SiLU extends Module {
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/** The tanh form of GELU. */
export class GELU extends Module {
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/** tanh(x). */
export class Tanh extends Module {
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/** 1 / (1 + exp(-x)). */
export class Sigmoid extends Module {
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/** All dimensions but the first as one. */
export class Flatten extends Module {
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/** down(silu(gate x) · up x) (Shazeer 2020), gate and up in one product. */
export class SwiGLU extends Module {
    /** @param {number} width @param {number} hidden */
    constructor(width: number, hidden: number);
    gateUp: Linear;
    down: Linear;
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/** Two linear layers with GELU between them. */
export class MLP extends Module {
    /** @param {number} width @param {number} hidden @param {MLPOptions} [options] */
    constructor(width: number, hidden: number, options?: MLPOptions);
    up: Linear;
    down: Linear;
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/**
 * Attention with all heads in one product, and rotary positions where asked for. With fewer `kvHeads`, several heads share keys
 * and values (Ainslie et al. 2023); with `qkNorm`, queries and keys are normalized head by head.
 */
export class MultiHeadAttention extends Module {
    /**
     * @param {number} width @param {number} heads
     * @param {MultiHeadAttentionOptions} [options]
     */
    constructor(width: number, heads: number, options?: MultiHeadAttentionOptions);
    qkv: Linear;
    out: Linear;
    q_norm: RMSNorm | undefined;
    k_norm: RMSNorm | undefined;
    heads: number;
    kvHeads: number;
    causal: boolean;
    base: number;
    /** @param {Tensor} x [batch, tokens, width] @returns {Tensor} of x's shape */
    forward(x: Tensor): Tensor;
    #private;
}
export type Activation = import("../../kernels/activation.mjs").Activation;
/**
 * Options of `Linear`.
 */
export type LinearOptions = {
    /**
     * whether there is a bias; true when left out
     */
    bias?: boolean | undefined;
};
/**
 * Options of normalizations.
 */
export type NormOptions = {
    /**
     * is added under the root that is divided by; 1e-5 when left out
     */
    eps?: number | undefined;
};
/**
 * Options of `MLP`.
 */
export type MLPOptions = {
    /**
     * columns of the result; `width` when left out
     */
    outputs?: number | undefined;
    /**
     * whether both layers have a bias; true when left out
     */
    bias?: boolean | undefined;
};
/**
 * Options of `MultiHeadAttention`.
 */
export type MultiHeadAttentionOptions = {
    /**
     * whether a token sees only itself and those before it; false when left out
     */
    causal?: boolean | undefined;
    /**
     * whether queries and keys are turned by their positions, and the base of the
     * angles (1e4 when left out); false when left out
     */
    rope?: boolean | {
        base?: number;
    } | undefined;
    /**
     * whether both layers have a bias; false when left out
     */
    bias?: boolean | undefined;
    /**
     * heads of keys and values, which `heads` is a multiple of; `heads` when left out
     */
    kvHeads?: number | undefined;
    /**
     * whether queries and keys are normalized head by head; false when left out
     */
    qkNorm?: boolean | undefined;
};
import { Parameter } from './module.mjs';
import { Module } from './module.mjs';
import { Tensor } from '../tensor.mjs';
