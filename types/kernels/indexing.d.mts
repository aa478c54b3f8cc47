// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./base.mjs').Tensor} Tensor */
/** @typedef {import('./base.mjs').Dispatch} Dispatch */
/** @typedef {import('./base.mjs').KernelContext} KernelContext */
/** @typedef {import('./check.mjs').Extent} Extent */
/**
 * @typedef {object} IndexSizes
 * @property {number} outer sizes before the dimension, multiplied
 * @property {number} size of the dimension that is indexed
 * @property {number} length indices along it
 * @property {number} inner sizes behind the dimension, multiplied
 */
/**
 * @typedef {object} GatherTensors
 * @property {Tensor} x [outer, size, inner] of 32-bit elements, whatever they are
 * @property {Tensor} index [outer, length, inner] u32; one outside of the dimension reads as 0
 * @property {Tensor} y out: [outer, length, inner]
 * @property {Tensor} [last] [outer, size, inner] u32 from `scatter`: elements that are not the last of their index read as 0, too
 */
/**
 * @typedef {object} ScatterTensors
 * @property {Tensor} x [outer, size, inner] of 32-bit elements; f32 for `scatterAdd`
 * @property {Tensor} index [outer, length, inner] u32; what is outside of the dimension goes nowhere
 * @property {Tensor} source [outer, length, inner]
 * @property {Tensor} y out: [outer, size, inner]
 */
/**
 * @typedef {object} LastPlaces
 * @property {Tensor} last out: [outer, size, inner] u32, the k that was taken, 0xffffffff where there is none
 */
/** @param {KernelContext} context */
export function indexingKernels(context: KernelContext): {
    /**
     * y[o][k][i] = x[o][index[o][k][i]][i]. Elements are moved as words.
     * @param {GatherTensors & IndexSizes} args
     * @returns {Dispatch}
     */
    gather: (args: GatherTensors & IndexSizes) => Dispatch;
    /**
     * y = x, with source[o][k][i] in place of [o][index[o][k][i]][i]: of several with one index the last. Looks for it as
     * `scatterAdd` does; elements are moved as words.
     * @param {ScatterTensors & IndexSizes & LastPlaces} args
     * @returns {Dispatch}
     */
    scatter: (args: ScatterTensors & IndexSizes & LastPlaces) => Dispatch;
    /**
     * y = x, with source[o][k][i] added at [o][index[o][k][i]][i], in the order of k and without atomics: every element of y looks
     * through the `length` indices of its place.
     * @param {ScatterTensors & IndexSizes} args
     * @returns {Dispatch}
     */
    scatterAdd: (args: ScatterTensors & IndexSizes) => Dispatch;
    /**
     * y[row] = the column of the row's largest (or smallest) element, the first of equal ones. A NaN is beyond all numbers, and 0
     * equals -0.
     * @param {object} args
     * @param {Tensor} args.x [rows, columns] f32
     * @param {Tensor} args.y out: [rows] u32
     * @param {number} args.rows number of rows
     * @param {number} args.columns elements of a row
     * @param {'max' | 'min'} [args.op] max when left out
     * @returns {Dispatch}
     */
    argExtreme: (args: {
        /** [rows, columns] f32 */
        x: Tensor;
        /** out: [rows] u32 */
        y: Tensor;
        /** number of rows */
        rows: number;
        /** elements of a row */
        columns: number;
        /** max when left out */
        op?: "max" | "min" | undefined;
    }) => Dispatch;
};
export type Tensor = import("./base.mjs").Tensor;
export type Dispatch = import("./base.mjs").Dispatch;
export type KernelContext = import("./base.mjs").KernelContext;
export type Extent = import("./check.mjs").Extent;
export type IndexSizes = {
    /**
     * sizes before the dimension, multiplied
     */
    outer: number;
    /**
     * of the dimension that is indexed
     */
    size: number;
    /**
     * indices along it
     */
    length: number;
    /**
     * sizes behind the dimension, multiplied
     */
    inner: number;
};
export type GatherTensors = {
    /**
     * [outer, size, inner] of 32-bit elements, whatever they are
     */
    x: Tensor;
    /**
     * [outer, length, inner] u32; one outside of the dimension reads as 0
     */
    index: Tensor;
    /**
     * out: [outer, length, inner]
     */
    y: Tensor;
    /**
     * [outer, size, inner] u32 from `scatter`: elements that are not the last of their index read as 0, too
     */
    last?: import("./base.mjs").Tensor | undefined;
};
export type ScatterTensors = {
    /**
     * [outer, size, inner] of 32-bit elements; f32 for `scatterAdd`
     */
    x: Tensor;
    /**
     * [outer, length, inner] u32; what is outside of the dimension goes nowhere
     */
    index: Tensor;
    /**
     * [outer, length, inner]
     */
    source: Tensor;
    /**
     * out: [outer, size, inner]
     */
    y: Tensor;
};
export type LastPlaces = {
    /**
     * out: [outer, size, inner] u32, the k that was taken, 0xffffffff where there is none
     */
    last: Tensor;
};
