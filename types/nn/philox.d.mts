// Made by `npm run types` from nn/; do not edit.
/**
 * Four random words. In scalars, and into memory that is there: models have some hundred million weights.
 * @template {{ [i: number]: number }} T
 * @param {ArrayLike<number>} counter four words @param {ArrayLike<number>} key two words @param {T} words the result
 * @returns {T}
 */
export function philox<T extends {
    [i: number]: number;
}>(counter: ArrayLike<number>, key: ArrayLike<number>, words: T): T;
/** The words of a seed, one after another. */
export class Philox {
    /** @param {number} seed */
    constructor(seed: number);
    key: number[];
    counter: number;
    words: Uint32Array<ArrayBuffer>;
    left: number;
    /** The next word. */
    next(): number;
    /** Uniform in [0, 1), of 24 bits. */
    uniform(): number;
    /** Standard normal (Box & Muller 1958). */
    normal(): number;
}
