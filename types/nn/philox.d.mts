// Made by `npm run types` from nn/; do not edit.
/**
 * Four random words.
 * @param {ArrayLike<number>} counter four words @param {ArrayLike<number>} key two words
 * @returns {[number, number, number, number]}
 */
export function philox(counter: ArrayLike<number>, key: ArrayLike<number>): [number, number, number, number];
/** The words of a seed, one after another. */
export class Philox {
    /** @param {number} seed */
    constructor(seed: number);
    key: number[];
    counter: number;
    /** @type {number[]} */
    words: number[];
    left: number;
    /** The next word. */
    next(): number;
    /** Uniform in [0, 1), of 24 bits. */
    uniform(): number;
    /** Standard normal (Box & Muller 1958). */
    normal(): number;
}
