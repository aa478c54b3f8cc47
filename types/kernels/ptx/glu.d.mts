// Made by `npm run types` from kernels/; do not edit.
/**
 * Asks the second-level cache for the gates and ups of a tile while its products are computed: at its end, which all blocks reach at
 * about the same time, memory alone would take as long as a third of the tile.
 * @param {Writer} w
 */
export function gateFetcher(w: Writer): {
    /** @param {Cursor} cursor */
    aim: (cursor: Cursor) => void;
    /** After a stage. @param {string} left stages */
    step: (left: string) => void;
};
/**
 * Begins to store a tile, whose last products may be open.
 * @param {Writer} w @param {Cursor} cursor
 * @returns {(sums: string[][]) => void} stores the sums of each block of 64 rows
 */
export function storeGlu(w: Writer, cursor: Cursor): (sums: string[][]) => void;
export type Writer = import("./writer.mjs").Writer;
export type Cursor = import("./writer.mjs").Cursor;
