// Made by `npm run types` from kernels/; do not edit.
/**
 * What `multiply` needs of A, by the order in which it lies in memory.
 * @param {Writer} w
 */
export function fragmentsOfA(w: Writer): {
    units: number;
    /** Loads a unit of the next stage; with the first, goes to that stage. */
    load: (u: number) => void;
    /** Loads the first stage. */
    begin: () => void;
    /** Puts a unit's fragments in place: which block of 64 rows and which 16 of the depth each is for. @param {number} u */
    take: (u: number) => {
        r: number;
        slab: number;
        fragment: string[];
    }[];
};
export type Writer = import("./writer.mjs").Writer;
