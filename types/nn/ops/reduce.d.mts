// Made by `npm run types` from nn/; do not edit.
/**
 * Dimensions in runs of reduced and kept ones, sizes of 1 left out: the form that says which kernel can do it.
 * @param {readonly number[]} shape @param {number[]} dims
 * @returns {{ size: number, reduced: boolean }[]}
 */
export function runs(shape: readonly number[], dims: number[]): {
    size: number;
    reduced: boolean;
}[];
/** The shape that is left with sizes of 1. @param {readonly number[]} shape @param {number[]} dims */
export function keptShape(shape: readonly number[], dims: number[]): number[];
/**
 * alpha · Σ x over `dims` of a dense tensor, which are its first or its last ones; sizes of 1 are kept, sums are f32.
 */
export const sum: import("./registry.mjs").Op;
export const amax: import("./registry.mjs").Op;
export const amin: import("./registry.mjs").Op;
/** Elements that a reduction goes over. @param {readonly number[]} shape @param {number[]} dims */
export function reducedSize(shape: readonly number[], dims: number[]): number;
export type Layout = import("../layout.mjs").Layout;
export type Reference = import("./registry.mjs").Reference;
