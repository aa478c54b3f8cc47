// Made by `npm run types` from kernels/; do not edit.
/**
 * What `multiply` needs of A, in units of 16 of the depth of both blocks of rows; the same interface as `directA`, where unit u is
 * (u & 1) of half (u >> 1).
 * @param {Writer} w
 */
export function directRows(w: Writer): {
    advance: () => void;
    load: (odd: number, half: number) => void;
    next: () => void;
    /** Loads the first stage. */
    begin: () => void;
    /** The fragments of a unit, one for each block of rows, in one of two sets of registers. @param {number} odd @param {number} half @param {number} slot */
    fragments: (odd: number, half: number, slot: number) => string[][];
};
export type Writer = import("./writer.mjs").Writer;
