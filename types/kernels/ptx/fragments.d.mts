// Made by `npm run types` from kernels/; do not edit.
/** @typedef {import('./writer.mjs').Writer} Writer */
/**
 * What `multiply` needs of A, by the order in which it lies in memory: of every stage in turn one of `sets`, each of which is
 * loaded again for the stage that is that many ahead.
 * @param {Writer} w
 */
export function fragmentsOfA(w: Writer): {
    units: number;
    /** Loads a unit of the set's next stage; with the first, goes to that stage. */
    load: (u: number) => void;
    /** Loads the set's first stage. */
    begin: () => void;
    /** Puts a unit's fragments in place: which block of 64 rows and which 16 of the depth each is for. @param {number} u */
    take: (u: number) => {
        r: number;
        slab: number;
        fragment: string[];
    }[];
}[];
export type Writer = import("./writer.mjs").Writer;
