// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./writer.mjs').Writer} Writer */
/** @typedef {import('./writer.mjs').Cursor} Cursor */
/**
 * Stores a tile.
 * @param {Writer} w @param {Cursor} cursor @param {string[][]} sums of each block of 64 rows
 */
export function storeGlu(w: Writer, cursor: Cursor, sums: string[][]): void;
export type Writer = import("./writer.mjs").Writer;
export type Cursor = import("./writer.mjs").Cursor;
