// Made by `npm run types` from nn/; do not edit.
/**
 * y[i][k][j] = x[i][index[i][k][j]][j], for `dim` 1 of three.
 * @param {Tensor} x @param {number} dim @param {Tensor} index i32 or u32, of x's sizes but along `dim`
 * @returns {Tensor} of the index's shape
 */
export function gather(x: Tensor, dim: number, index: Tensor): Tensor;
/**
 * As `gather`, with the sizes besides `dim` broadcast.
 * @param {Tensor} x @param {Tensor} index i32 or u32, of as many dimensions @param {number} [dim]
 */
export function takeAlongDim(x: Tensor, index: Tensor, dim?: number): Tensor;
/**
 * x with source[i][k][j] added at [i][index[i][k][j]][j], for `dim` 1 of three; what has one index is added up in the order of k.
 * Each element looks through the indices of its place, so it is for short indices; rows of a table are `embedding`'s gradient.
 * @param {Tensor} x f32, f16 or bf16 @param {number} dim @param {Tensor} index i32 or u32, of x's sizes but along `dim`
 * @param {Tensor} source of the index's shape
 */
export function scatterAdd(x: Tensor, dim: number, index: Tensor, source: Tensor): Tensor;
/**
 * x with source[i][k][j] in place of [i][index[i][k][j]][j], for `dim` 1 of three: of several with one index the last. The cost is that
 * of `scatterAdd`.
 * @param {Tensor} x @param {number} dim @param {Tensor} index i32 or u32, of x's sizes but along `dim`
 * @param {Tensor | number} source of the index's shape, or one number
 */
export function scatter(x: Tensor, dim: number, index: Tensor, source: Tensor | number): Tensor;
/**
 * Slices of a dimension by number, in the order of the numbers. The gradient adds up what one slice got, in that order.
 * @param {Tensor} x @param {number} dim @param {Tensor} index [n] i32 or u32
 * @returns {Tensor} x's shape with n along `dim`
 */
export function indexSelect(x: Tensor, dim: number, index: Tensor): Tensor;
/**
 * Rows of zeros with a one at each id, f32, unlike PyTorch's int64. An id that is no class has a row of zeros.
 * @param {Tensor} ids i32 or u32, any shape @param {number} classes
 * @returns {Tensor} [...ids, classes]
 */
export function oneHot(ids: Tensor, classes: number): Tensor;
/** The places of the largest elements along a dimension, the last when left out, as i32: of equal ones the first. A NaN is the largest. @param {Tensor} x @param {number} [dim] @param {boolean} [keepdim] */
export function argmax(x: Tensor, dim?: number, keepdim?: boolean): Tensor;
/** The places of the smallest elements along a dimension, as `argmax`. A NaN is the smallest. @param {Tensor} x @param {number} [dim] @param {boolean} [keepdim] */
export function argmin(x: Tensor, dim?: number, keepdim?: boolean): Tensor;
export type Op = import("./ops/registry.mjs").Op;
import { Tensor } from './tensor.mjs';
