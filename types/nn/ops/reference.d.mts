// Made by `npm run types` from nn/; do not edit.
/** @typedef {import('./registry.mjs').Reference} Reference */
/** @param {readonly number[]} shape @param {(index: number[]) => number} f @returns {Reference} */
export function generate(shape: readonly number[], f: (index: number[]) => number): Reference;
/** The element at an index, repeated where a size is 1 or a dimension is missing. @param {Reference} x @param {readonly number[]} index */
export function at(x: Reference, index: readonly number[]): number;
/** The size of all dimensions but the last, and of the last. @param {readonly number[]} shape @returns {[rows: number, columns: number]} */
export function rowsOf(shape: readonly number[]): [rows: number, columns: number];
/** @param {Reference} x @param {(value: number) => number} f @returns {Reference} */
export function map(x: Reference, f: (value: number) => number): Reference;
export type Reference = import("./registry.mjs").Reference;
