// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** @typedef {number | [number, number]} Pair one number for both directions, or [down, across] */
/**
 * Options of `conv2d`.
 * @typedef {object} ConvolutionOptions
 * @property {Pair} [stride] elements from one place of the window to the next; 1 when left out
 * @property {Pair} [padding] zeros on each side; 0 when left out
 */
/**
 * Options of pools.
 * @typedef {object} PoolOptions
 * @property {Pair} [stride] elements from one place of the window to the next; the window's size when left out
 */
/**
 * @param {string} op @param {string} name @param {unknown} value a Pair of integers @param {number} least
 * @returns {[number, number]}
 */
export function pair(op: string, name: string, value: unknown, least: number): [number, number];
/**
 * Each element repeated `scale` times along rows and columns: PyTorch's `interpolate` with its default mode, 'nearest'.
 * @param {Tensor} x [batch, channels, rows, columns] @param {Pair} scale
 * @returns {Tensor} [batch, channels, rows · scale, columns · scale]
 */
export function upsample(x: Tensor, scale: Pair): Tensor;
/**
 * Cross-correlation, as every framework's convolution.
 * @param {Tensor} x [batch, channels, rows, columns] @param {Tensor} weight [outputs, channels, down, across]
 * @param {Tensor} [bias] [outputs]
 * @param {ConvolutionOptions} [options]
 * @returns {Tensor} [batch, outputs, rows', columns']
 */
export function conv2d(x: Tensor, weight: Tensor, bias?: Tensor, options?: ConvolutionOptions): Tensor;
/** The largest element under a window. @param {Tensor} x [batch, channels, rows, columns] @param {Pair} window @param {PoolOptions} [options] */
export function maxPool2d(x: Tensor, window: Pair, options?: PoolOptions): import("./tensor.mjs").Tensor;
/** The mean under a window. @param {Tensor} x [batch, channels, rows, columns] @param {Pair} window @param {PoolOptions} [options] */
export function avgPool2d(x: Tensor, window: Pair, options?: PoolOptions): import("./tensor.mjs").Tensor;
export type Tensor = import("./tensor.mjs").Tensor;
/**
 * one number for both directions, or [down, across]
 */
export type Pair = number | [number, number];
/**
 * Options of `conv2d`.
 */
export type ConvolutionOptions = {
    /**
     * elements from one place of the window to the next; 1 when left out
     */
    stride?: Pair | undefined;
    /**
     * zeros on each side; 0 when left out
     */
    padding?: Pair | undefined;
};
/**
 * Options of pools.
 */
export type PoolOptions = {
    /**
     * elements from one place of the window to the next; the window's size when left out
     */
    stride?: Pair | undefined;
};
