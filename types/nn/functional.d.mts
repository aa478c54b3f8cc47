// Made by `npm run types` from nn/; do not edit.
/**
 * A tensor of one value.
 * @param {readonly number[]} shape
 * @param {number} value
 * @param {TypeOptions} [options]
 */
export function full(shape: readonly number[], value: number, options?: TypeOptions): Tensor;
/**
 * The elements in another type; the same tensor where it has it.
 * @param {Tensor} x @param {DType} dtype
 */
export function to(x: Tensor, dtype: DType): Tensor;
/**
 * The same elements in another shape; one size may be -1, to be found from the others. A view where the strides allow.
 * @param {Tensor} x @param {readonly number[]} shape
 */
export function reshape(x: Tensor, shape: readonly number[]): Tensor;
/** The dimensions in another order. @param {Tensor} x @param {readonly number[]} order */
export function permute(x: Tensor, order: readonly number[]): Tensor;
/** Two dimensions exchanged. @param {Tensor} x @param {number} a @param {number} b */
export function transpose(x: Tensor, a: number, b: number): Tensor;
/** Repeated to a larger shape, as a view. @param {Tensor} x @param {readonly number[]} shape */
export function expand(x: Tensor, shape: readonly number[]): Tensor;
/** With a dimension of size 1 more. @param {Tensor} x @param {number} dim where it stands in the result */
export function unsqueeze(x: Tensor, dim: number): Tensor;
/** Without a dimension of size 1; without all of them where none is named. @param {Tensor} x @param {number} [dim] */
export function squeeze(x: Tensor, dim?: number): Tensor;
/**
 * Elements `start` to `end` (exclusive; negative ones count from the end) of a dimension, as a view.
 * @param {Tensor} x @param {number} dim @param {number} [start] @param {number} [end] @param {number} [step] positive
 */
export function slice(x: Tensor, dim: number, start?: number, end?: number, step?: number): Tensor;
/** Parts of at most `size` along a dimension, as views. @param {Tensor} x @param {number} size @param {number} [dim] */
export function split(x: Tensor, size: number, dim?: number): Tensor[];
/** Tensors end to end along a dimension. @param {Tensor[]} tensors of one type, equal in the other sizes @param {number} [dim] @returns {Tensor} */
export function cat(tensors: Tensor[], dim?: number): Tensor;
/** Tensors of one shape along a new dimension. @param {Tensor[]} tensors @param {number} [dim] */
export function stack(tensors: Tensor[], dim?: number): Tensor;
/** a + b, broadcast. @param {Operand} a @param {Operand} b @returns {Tensor} */
export function add(a: Operand, b: Operand): Tensor;
/** a - b, broadcast. @param {Operand} a @param {Operand} b @returns {Tensor} */
export function sub(a: Operand, b: Operand): Tensor;
/** a · b, element by element, broadcast. @param {Operand} a @param {Operand} b @returns {Tensor} */
export function mul(a: Operand, b: Operand): Tensor;
/** a / b, broadcast. A divisor that is a number is multiplied by its reciprocal. @param {Operand} a @param {Operand} b @returns {Tensor} */
export function div(a: Operand, b: Operand): Tensor;
/**
 * The elements, but none below `min` and none above `max`, broadcast; one of them may be left out. The gradient passes from one limit to the
 * other, and at them, as in PyTorch.
 * @param {Tensor} x @param {Operand} [min] @param {Operand} [max] @returns {Tensor}
 */
export function clamp(x: Tensor, min?: Operand, max?: Operand): Tensor;
/**
 * a where the condition holds, else b; all three broadcast. It chooses by values inside a compiled function, where `if` cannot.
 * @param {Tensor} condition bool @param {Operand} a @param {Operand} b of a's type
 * @returns {Tensor}
 */
export function where(condition: Tensor, a: Operand, b: Operand): Tensor;
/** x to the power of a number: of 2, 1, ½, -½, -1, and of integers up to 64 by multiplication; of 0 it is 1 where x is finite. @param {Tensor} x @param {number} exponent @returns {Tensor} */
export function pow(x: Tensor, exponent: number): Tensor;
/** Σ over dimensions, all when left out. Sums are f32, the result of x's type. @param {Tensor} x @param {number | readonly number[]} [dim] @param {boolean} [keepdim] */
export function sum(x: Tensor, dim?: number | readonly number[], keepdim?: boolean): Tensor;
/** The mean over dimensions, all when left out. @param {Tensor} x @param {number | readonly number[]} [dim] @param {boolean} [keepdim] */
export function mean(x: Tensor, dim?: number | readonly number[], keepdim?: boolean): Tensor;
/**
 * The variance over dimensions.
 * @param {Tensor} x @param {number | readonly number[]} [dim]
 * @param {VarianceOptions} [options]
 */
export function variance(x: Tensor, dim?: number | readonly number[], options?: VarianceOptions): Tensor;
/** Summed to a smaller shape that broadcasts to x's: the gradient of a broadcast. @param {Tensor} x @param {readonly number[]} shape @returns {Tensor} */
export function sumTo(x: Tensor, shape: readonly number[]): Tensor;
/**
 * The matrix product, as PyTorch's: [..., m, k] × [..., k, n], leading sizes broadcast; a vector is a row on the left and a
 * column on the right.
 * @param {Tensor} a @param {Tensor} b
 * @returns {Tensor}
 */
export function matmul(a: Tensor, b: Tensor): Tensor;
/**
 * x Wᵀ + bias.
 * @param {Tensor} x [..., in] @param {Tensor} weight [out, in] @param {Tensor} [bias] [out]
 * @returns {Tensor} [..., out]
 */
export function linear(x: Tensor, weight: Tensor, bias?: Tensor): Tensor;
/** softmax(x) along a dimension. @param {Tensor} x @param {number} [dim] @returns {Tensor} */
export function softmax(x: Tensor, dim?: number): Tensor;
/** log softmax(x) along a dimension. @param {Tensor} x @param {number} [dim] @returns {Tensor} */
export function logSoftmax(x: Tensor, dim?: number): Tensor;
/** f(gate) · up of rows [gate | up]. @param {Tensor} x [..., 2 · n] @param {import('../kernels/activation.mjs').Activation} [activation] */
export function glu(x: Tensor, activation?: import("../kernels/activation.mjs").Activation): Tensor;
/** Elements dropped with probability p while training. @param {Tensor} x @param {number} [p] @param {boolean} [training] */
export function dropout(x: Tensor, p?: number, training?: boolean): Tensor;
/** Rotary positions on the first heads of each row. @param {Tensor} x [..., tokens, width] @param {Tensor} table [positions, headSize / 2, 2] @param {RopeOptions} sizes */
export function rope(x: Tensor, table: Tensor, sizes: RopeOptions): Tensor;
/**
 * Attention of fused rows.
 * @param {Tensor} qkv [batch, tokens, 3 · width]: queries, keys, values, heads side by side
 * @param {AttentionOptions} options
 * @returns {Tensor} [batch, tokens, width]
 */
export function attention(qkv: Tensor, options: AttentionOptions): Tensor;
/**
 * softmax(q kᵀ / √headSize) v.
 * @param {Tensor} q [..., queries, headSize] @param {Tensor} k [..., keys, headSize] @param {Tensor} v [..., keys, n]
 * @param {ScoreOptions} [options]
 * @returns {Tensor} [..., queries, n]
 */
export function scaledDotProductAttention(q: Tensor, k: Tensor, v: Tensor, options?: ScoreOptions): Tensor;
/** An operation by itself, for backward passes. @param {Op} op @param {Tensor[]} inputs @param {any} [attributes] */
export function call(op: Op, inputs: Tensor[], attributes?: any): Tensor;
/** As `call`, with all outputs: the result, and what is kept for the backward pass. @param {Op} op @param {Tensor[]} inputs @param {any} [attributes] */
export function callAll(op: Op, inputs: Tensor[], attributes?: any): Tensor[];
/** A tensor of zeros. @param {readonly number[]} shape @param {TypeOptions} [options] */
export function zeros(shape: readonly number[], options?: TypeOptions): Tensor;
/** A tensor of ones. @param {readonly number[]} shape @param {TypeOptions} [options] */
export function ones(shape: readonly number[], options?: TypeOptions): Tensor;
/** A dense copy. @param {Tensor} x */
export function clone(x: Tensor): Tensor;
/** The larger of each two elements. @type {(a: Tensor, b: Operand) => Tensor} */
export const maximum: (a: Tensor, b: Operand) => Tensor;
/** The smaller of each two elements. @type {(a: Tensor, b: Operand) => Tensor} */
export const minimum: (a: Tensor, b: Operand) => Tensor;
/** Where a = b, as bools. @param {Tensor} a @param {Operand} b */
export const eq: (a: Tensor, b: Operand) => Tensor;
/** Where a ≠ b, as bools. @param {Tensor} a @param {Operand} b */
export const ne: (a: Tensor, b: Operand) => Tensor;
/** Where a < b, as bools. @param {Tensor} a @param {Operand} b */
export const lt: (a: Tensor, b: Operand) => Tensor;
/** Where a ≤ b, as bools. @param {Tensor} a @param {Operand} b */
export const le: (a: Tensor, b: Operand) => Tensor;
/** Where a > b, as bools. @param {Tensor} a @param {Operand} b */
export const gt: (a: Tensor, b: Operand) => Tensor;
/** Where a ≥ b, as bools. @param {Tensor} a @param {Operand} b */
export const ge: (a: Tensor, b: Operand) => Tensor;
/** -x. @param {Tensor} x */
export function neg(x: Tensor): Tensor;
/** eˣ of each element. */
export const exp: (x: Tensor) => Tensor;
/** The natural logarithm of each element. */
export const log: (x: Tensor) => Tensor;
/** √x of each element. */
export const sqrt: (x: Tensor) => Tensor;
/** 1 / √x of each element. */
export const rsqrt: (x: Tensor) => Tensor;
/** 1 / x of each element. */
export const reciprocal: (x: Tensor) => Tensor;
/** |x| of each element. */
export const abs: (x: Tensor) => Tensor;
/** x² of each element. */
export const square: (x: Tensor) => Tensor;
/** -1, 0 or 1. Its gradient is 0. */
export const sign: (x: Tensor) => Tensor;
/** max(x, 0) of each element. */
export const relu: (x: Tensor) => Tensor;
/** x · sigmoid(x). */
export const silu: (x: Tensor) => Tensor;
/** The tanh form (Hendrycks & Gimpel 2016); PyTorch's `approximate='tanh'`. */
export const gelu: (x: Tensor) => Tensor;
/** The hyperbolic tangent of each element. */
export const tanh: (x: Tensor) => Tensor;
/** 1 / (1 + exp(-x)) of each element. */
export const sigmoid: (x: Tensor) => Tensor;
/** The largest elements along one dimension, the last when left out (PyTorch's `amax` takes all then); NaN where one of them is. @param {Tensor} x @param {number} [dim] @param {boolean} [keepdim] */
export function amax(x: Tensor, dim?: number, keepdim?: boolean): Tensor;
/** The smallest elements along one dimension, the last when left out (PyTorch's `amin` takes all then); NaN where one of them is. @param {Tensor} x @param {number} [dim] @param {boolean} [keepdim] */
export function amin(x: Tensor, dim?: number, keepdim?: boolean): Tensor;
/** Root-mean-square normalization over the last dimension. @param {Tensor} x @param {Tensor} weight f32 @param {number} [eps] */
export function rmsNorm(x: Tensor, weight: Tensor, eps?: number): Tensor;
/** Layer normalization over the last dimension. @param {Tensor} x @param {Tensor} weight f32 @param {Tensor} bias f32 @param {number} [eps] */
export function layerNorm(x: Tensor, weight: Tensor, bias: Tensor, eps?: number): Tensor;
/** Rows of a table. @param {Tensor} ids i32 or u32, any shape @param {Tensor} table [vocabulary, columns] @returns {Tensor} [...ids, columns] */
export function embedding(ids: Tensor, table: Tensor): Tensor;
/**
 * The type of a tensor's elements.
 */
export type DType = import("./layout.mjs").DType;
/**
 * An operation, as the engine knows it.
 */
export type Op = import("./ops/registry.mjs").Op;
/**
 * A tensor, or a number that stands for a tensor of one element.
 */
export type Operand = Tensor | number;
/**
 * Options of tensors of one value.
 */
export type TypeOptions = {
    /**
     * the element type; f32 when left out
     */
    dtype?: import("./layout.mjs").DType | undefined;
};
/**
 * Options of `variance`.
 */
export type VarianceOptions = {
    /**
     * whether the reduced dimensions stay, of size 1; false when left out
     */
    keepdim?: boolean | undefined;
    /**
     * is taken from the count of elements: 1 when left out, 0 for the population's variance
     */
    correction?: number | undefined;
};
/**
 * What `rope` turns.
 */
export type RopeOptions = {
    /**
     * how many heads of each row are turned, from the first on
     */
    heads: number;
    /**
     * elements of a head
     */
    headSize: number;
};
/**
 * Options of `attention`.
 */
export type AttentionOptions = {
    /**
     * the width is a multiple of it
     */
    heads: number;
    /**
     * whether a token sees only itself and those before it; false when left out
     */
    causal?: boolean | undefined;
};
/**
 * Options of `scaledDotProductAttention`.
 */
export type ScoreOptions = {
    /**
     * whether a query sees only keys up to its own place, where the last query stands at the last key; false when left out
     */
    isCausal?: boolean | undefined;
    /**
     * a factor on the scores; 1 / √headSize when left out
     */
    scale?: number | undefined;
    /**
     * is added to the scores, to whose shape [..., queries, keys] it broadcasts
     */
    mask?: Tensor | undefined;
};
import { Tensor } from './tensor.mjs';
