// Made by `npm run types` from nn/; do not edit.
/** The number of elements. @param {readonly number[]} shape */
export function sizeOf(shape: readonly number[]): number;
/** Row-major strides without gaps. @param {readonly number[]} shape */
export function denseStrides(shape: readonly number[]): any[];
/**
 * The layout with these contents.
 * @param {readonly number[]} shape @param {readonly number[]} strides @param {number} offset @param {DType} dtype
 */
export function layoutOf(shape: readonly number[], strides: readonly number[], offset: number, dtype: DType): Layout;
/**
 * A number that elements of a type can be: of integers one in their range, which a comparison or a choice would else round in silence.
 * @param {string} op @param {number} value @param {DType} dtype
 */
export function checkNumber(op: string, value: number, dtype: DType): number;
/** Throws where there is no such element type. @param {string} op @param {unknown} dtype @returns {DType} */
export function checkType(op: string, dtype: unknown): DType;
/**
 * The shape that shapes broadcast to, by NumPy's rule: from the last dimension on, sizes are equal or 1.
 * @param {string} op for the error
 * @param {...(readonly number[])} shapes
 * @returns {number[]}
 */
export function broadcastShapes(op: string, ...shapes: (readonly number[])[]): number[];
/** A layout repeated to a larger shape: stride 0 where its size is 1. @param {Layout} layout @param {readonly number[]} shape */
export function broadcastLayout(layout: Layout, shape: readonly number[]): Layout;
/**
 * The strides of a view with another shape, or undefined where the elements must be copied first.
 * @param {Layout} layout @param {readonly number[]} shape of as many elements
 * @returns {number[] | undefined}
 */
export function reshapeStrides(layout: Layout, shape: readonly number[]): number[] | undefined;
/**
 * The same elements in as few dimensions as all operands allow: sizes of 1 go, and neighbours that lie like one dimension
 * in every operand become one.
 * @param {readonly number[]} shape @param {(readonly number[])[]} operands strides of each operand
 * @returns {{ shape: number[], strides: number[][] }}
 */
export function collapse(shape: readonly number[], operands: (readonly number[])[]): {
    shape: number[];
    strides: number[][];
};
/**
 * A dimension counted from the front; negative ones count from the back.
 * @param {string} op @param {number} dim @param {number} rank
 */
export function dimension(op: string, dim: number, rank: number): number;
/**
 * Checks a shape as a caller gives it.
 * @param {string} op @param {unknown} shape
 * @returns {number[]}
 */
export function checkShape(op: string, shape: unknown): number[];
/** @typedef {'f32' | 'f16' | 'bf16' | 'i32' | 'u32' | 'bool'} DType */
/** Bytes of an element in device memory; a `bool` is a 32-bit word of 0 or 1. @type {Record<DType, number>} */
export const BYTES: Record<DType, number>;
/** Whether the type holds fractions. @param {DType} dtype */
export function isFloat(dtype: DType): dtype is "f32" | "f16" | "bf16";
/** An immutable layout. Equal ones are the same object (see {@link layoutOf}), so that `id` is a key for caches. */
export class Layout {
    /** @param {number[]} shape @param {number[]} strides @param {number} offset @param {DType} dtype @param {number} id */
    constructor(shape: number[], strides: number[], offset: number, dtype: DType, id: number);
    /** @type {readonly number[]} */
    shape: readonly number[];
    /** Elements from one index to the next, for each dimension. @type {readonly number[]} */
    strides: readonly number[];
    /** The first element. */
    offset: number;
    dtype: DType;
    id: number;
    /** The number of elements. */
    size: number;
    /** Whether the elements lie row by row without gaps. */
    contiguous: boolean;
}
/** A dense layout from the start of a storage. @param {readonly number[]} shape @param {DType} dtype */
export function denseLayout(shape: readonly number[], dtype: DType): Layout;
export type DType = "f32" | "f16" | "bf16" | "i32" | "u32" | "bool";
