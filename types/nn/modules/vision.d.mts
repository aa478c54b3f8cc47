// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('../tensor.mjs').Tensor} Tensor */
/** @typedef {import('../convolution.mjs').Pair} Pair */
/** @typedef {import('../convolution.mjs').ConvolutionOptions} ConvolutionOptions */
/** @typedef {import('../convolution.mjs').PoolOptions} PoolOptions */
/** @typedef {import('./layers.mjs').LinearOptions} LinearOptions */
/** @typedef {import('./layers.mjs').NormOptions} NormOptions */
/**
 * Options of `Conv1d`.
 * @typedef {object} Conv1dOptions
 * @property {number} [stride] steps from one place of the window to the next; 1 when left out
 * @property {number} [padding] zeros on each side; 0 when left out
 * @property {boolean} [bias] whether there is a bias; true when left out
 */
/**
 * Options of `BatchNorm2d` besides those of every normalization.
 * @typedef {object} RunningOptions
 * @property {number} [momentum] the part of a new batch in the running means; 0.1 when left out
 */
/** A convolution of two dimensions. */
export class Conv2d extends Module {
    /**
     * @param {number} inputs channels @param {number} outputs channels @param {Pair} window
     * @param {ConvolutionOptions & LinearOptions} [options]
     */
    constructor(inputs: number, outputs: number, window: Pair, options?: ConvolutionOptions & LinearOptions);
    weight: import("./module.mjs").Parameter;
    bias: import("./module.mjs").Parameter | undefined;
    options: {
        stride: [number, number];
        padding: [number, number];
    };
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/** A convolution of one dimension: [batch, channels, steps]. */
export class Conv1d extends Module {
    /**
     * @param {number} inputs channels @param {number} outputs channels @param {number} window
     * @param {Conv1dOptions} [options]
     */
    constructor(inputs: number, outputs: number, window: number, options?: Conv1dOptions);
    weight: import("./module.mjs").Parameter;
    bias: import("./module.mjs").Parameter | undefined;
    stride: number;
    padding: number;
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/** The largest element under a window, of each channel. */
export class MaxPool2d extends Module {
    /** @param {Pair} window @param {PoolOptions} [options] */
    constructor(window: Pair, options?: PoolOptions);
    window: [number, number];
    options: {
        stride: [number, number];
    };
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/** The mean under a window, of each channel. */
export class AvgPool2d extends Module {
    /** @param {Pair} window @param {PoolOptions} [options] */
    constructor(window: Pair, options?: PoolOptions);
    window: [number, number];
    options: {
        stride: [number, number];
    };
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/** Normalization of each channel over the batch (Ioffe & Szegedy 2015), while training; by running means after that. */
export class BatchNorm2d extends Module {
    /** @param {number} channels @param {NormOptions & RunningOptions} [options] */
    constructor(channels: number, options?: NormOptions & RunningOptions);
    weight: import("./module.mjs").Parameter;
    bias: import("./module.mjs").Parameter;
    running_mean: import("../tensor.mjs").Tensor;
    running_var: import("../tensor.mjs").Tensor;
    eps: number;
    momentum: number;
    /** @param {Tensor} x @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
/** Normalization of groups of channels within each image (Wu & He 2018). */
export class GroupNorm extends Module {
    /** @param {number} groups @param {number} channels @param {NormOptions} [options] */
    constructor(groups: number, channels: number, options?: NormOptions);
    weight: import("./module.mjs").Parameter;
    bias: import("./module.mjs").Parameter;
    groups: number;
    eps: number;
    /** @param {Tensor} x [batch, channels, ...] @returns {Tensor} */
    forward(x: Tensor): Tensor;
}
export type Tensor = import("../tensor.mjs").Tensor;
export type Pair = import("../convolution.mjs").Pair;
export type ConvolutionOptions = import("../convolution.mjs").ConvolutionOptions;
export type PoolOptions = import("../convolution.mjs").PoolOptions;
export type LinearOptions = import("./layers.mjs").LinearOptions;
export type NormOptions = import("./layers.mjs").NormOptions;
/**
 * Options of `Conv1d`.
 */
export type Conv1dOptions = {
    /**
     * steps from one place of the window to the next; 1 when left out
     */
    stride?: number | undefined;
    /**
     * zeros on each side; 0 when left out
     */
    padding?: number | undefined;
    /**
     * whether there is a bias; true when left out
     */
    bias?: boolean | undefined;
};
/**
 * Options of `BatchNorm2d` besides those of every normalization.
 */
export type RunningOptions = {
    /**
     * the part of a new batch in the running means; 0.1 when left out
     */
    momentum?: number | undefined;
};
import { Module } from './module.mjs';
