// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('../layout.mjs').Layout} Layout */
/**
 * How a matrix of the last two dimensions lies: row by row, or transposed; undefined where neither.
 * @param {Layout} layout
 * @returns {{ transposed: boolean, ld: number } | undefined}
 */
export function matrixForm({ shape, strides }: Layout): {
    transposed: boolean;
    ld: number;
} | undefined;
/**
 * The one step between the matrices of a batch, or undefined where there is none.
 * @param {Layout} layout @param {readonly number[]} batch the broadcast leading sizes
 */
export function batchStride(layout: Layout, batch: readonly number[]): number | undefined;
/** C = A B over the last two dimensions, the others broadcast. */
export const matmul: import("./registry.mjs").Op;
/** y = x Wᵀ + bias over rows: x [..., in], W [out, in], bias [out]. */
export const linear: import("./registry.mjs").Op;
export type Layout = import("../layout.mjs").Layout;
