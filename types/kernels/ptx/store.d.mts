// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./writer.mjs').Writer} Writer */
/**
 * What a lane has of a tile: two rows of each block of 64, and runs of two or eight columns that are neighbours.
 * @param {Writer} w
 */
export function lanePlaces(w: Writer): {
    row: string;
    column: string;
    width: number;
    runs: number;
    runOf: (block: string[], run: number, lower: number) => string[];
};
/**
 * Stores a tile.
 * @param {Writer} w @param {import('./writer.mjs').Cursor} cursor @param {string[][]} sums of each block of 64 rows
 */
export function store(w: Writer, cursor: import("./writer.mjs").Cursor, sums: string[][]): void;
/** @param {Writer} w @param {string} address @param {number} offset @param {string[]} words one or four */
export function storeHalves({ p }: Writer, address: string, offset: number, words: string[]): void;
/** The values of pairs of halves. @param {Writer} w @param {string[]} words */
export function unpackHalves({ p, form }: Writer, words: string[]): string[];
/** Pairs of values as words, the first in the low half. @param {Writer} w @param {string[]} values */
export function packHalves({ p, form }: Writer, values: string[]): string[];
export type Writer = import("./writer.mjs").Writer;
