// Made by `npm run types` from kernels/; do not edit.
/**
 * Stores a tile.
 * @param {Writer} w @param {Cursor} cursor @param {string[][]} sums of each block of 64 rows
 */
export function storeGlu(w: Writer, cursor: Cursor, sums: string[][]): void;
/**
 * Asks the second-level cache for the gates and ups of a tile, which are needed at its end.
 * @param {Writer} w @param {Cursor} cursor
 */
export function fetchGates(w: Writer, cursor: Cursor): void;
export type Writer = import("./writer.mjs").Writer;
export type Cursor = import("./writer.mjs").Cursor;
