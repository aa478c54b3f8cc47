// Made by `npm run types` from nn/; do not edit.
/**
 * Begins all random numbers anew.
 * @param {number} value an integer
 */
export function manualSeed(value: number): void;
/** The state that dropout draws with, moved on by the one who asks. @returns {Tensor} */
export function deviceState(): Tensor;
/** The state, to be saved and restored. @returns {Tensor} */
export function randomState(): Tensor;
/** A permutation of 0 … count - 1 (Fisher & Yates). @param {number} count */
export function permutation(count: number): Int32Array<ArrayBuffer>;
/** @typedef {import('./tensor.mjs').Tensor} Tensor */
/** Philox 4x32-10 (Salmon et al. 2011): four words of a counter under a key. */
export class Philox {
    /** @param {number} seed */
    constructor(seed: number);
    low: number;
    high: number;
    counter: number;
    words: Uint32Array<ArrayBuffer>;
    left: number;
    /** The next word. */
    next(): number;
    round(): void;
    /** Uniform in [0, 1), of 24 bits. */
    uniform(): number;
    /** Standard normal (Box & Muller 1958). */
    normal(): number;
}
export function drawsSoFar(): number;
/** @param {number} count @param {number} low @param {number} high */
export function uniformValues(count: number, low: number, high: number): Float32Array<ArrayBuffer>;
/** @param {number} count @param {number} mean @param {number} deviation */
export function normalValues(count: number, mean: number, deviation: number): Float32Array<ArrayBuffer>;
export type Tensor = import("./tensor.mjs").Tensor;
