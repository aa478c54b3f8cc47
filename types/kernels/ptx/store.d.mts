// Made by `npm run types` from kernels/; do not edit.
/**
 * Where lanes shall have four columns, neighbours exchange: of every two runs of two columns an even lane gets the first from both,
 * and an odd one the second. Stores of halves then fill whole sectors.
 * @param {Writer} w @param {string[][]} sums of each block of 64 rows, in place
 */
export function exchange(w: Writer, sums: string[][]): void;
/**
 * What a lane has of a tile: two rows of each block of 64 (see `rowPlaces`), and runs of columns that are neighbours.
 * @param {Writer} w
 */
export function lanePlaces(w: Writer): {
    row: string;
    offsetOf: (block: number, lower: number) => number;
    column: string;
    width: number;
    runs: number;
    runOf: (block: string[], run: number, lower: number) => string[];
};
/**
 * Stores pieces of a tile in their order. What is read for one must be requested before the stores of those before it: a load cannot
 * pass a store that may be to the same place.
 * @template P, R
 * @param {P[]} pieces
 * @param {object} how
 * @param {number} how.ahead how many pieces' loads stand before the stores of a piece, with its own
 * @param {(piece: P) => R} how.request requests what is read for a piece
 * @param {(piece: P, requested: R, index: number) => void} how.store
 */
export function storePieces<P, R>(pieces: P[], { ahead, request, store }: {
    ahead: number;
    request: (piece: P) => R;
    /**
     * Stores a tile.
     * @param {Writer} w @param {import('./writer.mjs').Cursor} cursor @param {string[][]} sums of each block of 64 rows
     */
    store: (piece: P, requested: R, index: number) => void;
}): void;
/**
 * Has a tile's sums begin with C (`form.early`), all of which is requested at once, while operands arrive: at the tile's end it would be
 * piece by piece, between the stores. Parts begin with zeros, since the second pass adds C to them.
 * @param {Writer} w @param {import('./writer.mjs').Cursor} cursor @param {string[][]} sums of each block of 64 rows
 */
export function beginSums(w: Writer, cursor: import("./writer.mjs").Cursor, sums: string[][]): void;
/**
 * Stores a tile.
 * @param {Writer} w @param {import('./writer.mjs').Cursor} cursor @param {string[][]} sums of each block of 64 rows
 */
export function store(w: Writer, cursor: import("./writer.mjs").Cursor, sums: string[][]): void;
/**
 * What is stored of sums: act(alpha · sum + beta · old + bias) + residual.
 * @param {Writer} w @param {string[]} sums
 * @param {{ alpha: string, beta: string, old?: string[], biases?: string[], residuals?: string[] }} added to each of them
 */
export function finish(w: Writer, sums: string[], { alpha, beta, old, biases, residuals }: {
    alpha: string;
    beta: string;
    old?: string[];
    biases?: string[];
    residuals?: string[];
}): string[];
/** @param {Writer} w @param {string} address @param {number} offset @param {string[]} values two, four or eight */
export function storeF32({ p }: Writer, address: string, offset: number, values: string[]): void;
/** @param {Writer} w @param {string} address @param {number} offset @param {string[]} words one, two or four */
export function storeHalves({ p }: Writer, address: string, offset: number, words: string[]): void;
/** Zeros where the predicate does not hold. @param {Writer} w @param {string} address @param {number} offset @param {number} count two, four or eight @param {string} predicate */
export function loadF32(w: Writer, address: string, offset: number, count: number, predicate: string): string[];
/** The values of pairs of halves. @param {Writer} w @param {string[]} words */
export function unpackHalves({ p, form }: Writer, words: string[]): string[];
/** Pairs of values as words, the first in the low half. @param {Writer} w @param {string[]} values */
export function packHalves({ p, form }: Writer, values: string[]): string[];
export type Writer = import("./writer.mjs").Writer;
