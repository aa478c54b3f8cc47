// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('./layout.mjs').DType} DType */
/** @typedef {number | boolean | NestedArray} Nested */
/** @typedef {Nested[]} NestedArray */
/** @typedef {Float32Array | Float64Array | Int32Array | Uint32Array | Uint8Array | Uint16Array | Int16Array | Int8Array} Numbers */
/**
 * The numbers of nested arrays, and their shape.
 * @param {string} op @param {unknown} data a number, a typed array, or nested arrays of one shape
 * @returns {{ values: ArrayLike<number>, shape: number[], dtype: DType }} the type that the data suggests
 */
export function flatten(op: string, data: unknown): {
    values: ArrayLike<number>;
    shape: number[];
    dtype: DType;
};
/**
 * The bytes of values in an element type.
 * @param {string} op @param {ArrayLike<number>} values @param {DType} dtype
 * @returns {ArrayBufferView}
 */
export function encode(op: string, values: ArrayLike<number>, dtype: DType): ArrayBufferView;
/**
 * What bytes of an element type hold.
 * @param {Uint8Array} bytes @param {DType} dtype @param {number} count
 * @returns {Float32Array | Int32Array | Uint32Array | Uint8Array}
 */
export function decode(bytes: Uint8Array, dtype: DType, count: number): Float32Array | Int32Array | Uint32Array | Uint8Array;
/**
 * Checks that data has as many elements as a shape.
 * @param {string} op @param {number} count @param {number[]} shape
 */
export function checkCount(op: string, count: number, shape: number[]): void;
export type DType = import("./layout.mjs").DType;
export type Nested = number | boolean | NestedArray;
export type NestedArray = Nested[];
export type Numbers = Float32Array | Float64Array | Int32Array | Uint32Array | Uint8Array | Uint16Array | Int16Array | Int8Array;
