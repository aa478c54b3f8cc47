// Made by `npm run types` from kernels/; do not edit.
/**
 * Bytes of dS in memory.
 * @param {{ batch: number, heads: number, tokens: number }} sizes @param {boolean} causal
 */
export function keptBytes({ batch, heads, tokens }: {
    batch: number;
    heads: number;
    tokens: number;
}, causal: boolean): number;
/**
 * Stores dS^T of a tile's queries and of the 64 keys that a warpgroup owns.
 * @param {AttentionWriter} w @param {string} groupRow the first key
 * @returns {(tile: string, fragments: string[][]) => void} of a tile's number and dS^T as left operands
 */
export function keep(w: AttentionWriter, groupRow: string): (tile: string, fragments: string[][]) => void;
/** dQ of a block's queries. @param {AttentionWriter} w */
export function writeQueries(w: AttentionWriter): void;
/** Bytes of dS that may be kept; beyond them it is computed a second time. */
export const MOST_KEPT: number;
export type AttentionWriter = import("./attention.mjs").AttentionWriter;
