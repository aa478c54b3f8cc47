// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./writer.mjs').Writer} Writer */
/**
 * What `multiply` needs of A: the interface of `directA`, but that a unit is 16 of the depth of both blocks of rows.
 * @param {Writer} w
 */
export function directRows(w: Writer): {
    advance: () => void;
    load: (unit: number) => void;
    next: () => void;
    /** Loads the first stage. */
    begin: () => void;
    /** The fragments of a unit with the block of rows and the 16 of the depth that each is for, in one of two sets of registers. @param {number} unit */
    fragments: (unit: number) => {
        block: number;
        slab: number;
        fragment: string[];
    }[];
};
export type Writer = import("./writer.mjs").Writer;
