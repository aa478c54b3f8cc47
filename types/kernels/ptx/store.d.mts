// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./writer.mjs').Writer} Writer */
/**
 * Stores a tile. A lane has two rows of each block of 64, and runs of two or eight columns that are neighbours.
 * @param {Writer} w @param {import('./writer.mjs').Cursor} cursor @param {string[][]} sums of each block of 64 rows
 */
export function store(w: Writer, cursor: import("./writer.mjs").Cursor, sums: string[][]): void;
export type Writer = import("./writer.mjs").Writer;
